"""The heads on data that no default was chosen on.

DIR holds ``hwu64.npz`` (64 intents), ``snips.npz`` (7 intents), both embedded by all-MiniLM-L6-v2,
and ``letter.npz`` (26 letters, 16 columns).
"""

import itertools

import pandas as pd
from sklearn.base import clone
from sklearn.kernel_approximation import RBFSampler

from benchmarks.study import EXACT, Study, accuracies, mean_error, rows_of, seeds_of, show
from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
)
from sklearn_balldp.publish.steps import step_of

NAMES = {"hwu64": "HWU64", "snips": "Snips", "letter": "Letter"}
HEADS = {
    "logistic": BallDPLogisticRegression(),
    "SVC": BallDPSquaredHingeSVC(),
    "discriminant": BallDPLinearDiscriminant(),
    "prototypes": BallDPRidgePrototype(),
}
EPSILONS, RADII, RELEASES = (0.5, 2.0), (0.3, 0.6, "any"), 10
NOISELESS, FEATURES = "no noise", "logistic, random features"


def measure(run, dataset, head, radius, epsilon):
    rows, seeds = rows_of(run.data, dataset), seeds_of(run, RELEASES, dataset, radius, epsilon)
    X, y, Xt, yt = rows
    if head == NOISELESS:
        return mean_error([clone(EXACT).fit(X, y).score(Xt, yt)])
    if head == FEATURES:
        step = RBFSampler(gamma=2.0, n_components=512, random_state=0).fit(X[:1])
        rows, head = (step.transform(X), y, step.transform(Xt), yt), "logistic"
        # For a radius in the columns.
        radius = radius if radius == "any" else radius * step_of(step).stretch
    return mean_error(accuracies(HEADS[head], rows, radius, epsilon, seeds))


def cells_of(run):
    for name in (names := run.have(NAMES)):
        yield name, NOISELESS, "none", 0.0
        for cell in itertools.product(HEADS, RADII, EPSILONS):
            yield name, *cell
    if "letter" in names:
        yield from (("letter", FEATURES, radius, 2.0) for radius in (0.3, "any"))


CELLS = Study("elsewhere.csv", ("dataset", "head", "radius", "epsilon"), measure, cells_of)
STUDIES = (CELLS,)


def table(cells):
    """A row for each dataset and promise, a column for each head."""
    rows = []
    for name, epsilon, radius in itertools.product(NAMES, EPSILONS, map(str, RADII)):
        own = cells[cells["dataset"] == name]
        here = own[(own["epsilon"] == epsilon) & (own["radius"] == radius)].set_index("head")
        if len(here):
            hides = "standard DP" if radius == "any" else f"r = {radius}"
            shown = {
                head: f"{here['mean'][head]:.3f} ± {1.96 * here['error'][head]:.3f}"
                for head in HEADS
            }
            without = own.set_index("head")["mean"][NOISELESS]
            row = {"data": NAMES[name], "epsilon": f"{epsilon:g}", "hides": hides}
            rows.append(row | shown | {NOISELESS: f"{without:.3f}"})
    return pd.DataFrame(rows)


def report(out):
    cells = CELLS.read(out)
    show(table(cells), out, "elsewhere", cells)
