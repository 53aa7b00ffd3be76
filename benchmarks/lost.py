"""Which classes are lost in the noise: what a plan foretells of each, beside its recall.

On the bundled messages and two sets of many classes, whole and cut to a share of their records.
"""

import itertools

import numpy as np
import pandas as pd

from benchmarks.study import DELTA, Study, fits, mean_error, rows_of, scores, seeds_of, show
from sklearn_balldp import BallDPLogisticRegression
from sklearn_balldp.datasets import load_messages
from sklearn_balldp.heads.plan import AT_RISK, LOST

MESSAGES = "messages"
DATASETS = {MESSAGES: "bundled messages", "banking77": "BANKING77", "hwu64": "HWU64"}
SHARES, EPSILONS = (1.0, 0.25), (0.5, 1.0, 2.0, 4.0, 8.0)
RADII = {"0.6": 0.6, "any": None}
N_RELEASES = 5
#: An epsilon at which nobody sees the noise.
NOISELESS = 1e3
#: Share of its recall without noise that a class must keep, or it is lost.
KEPT = 0.5
RATIO = "signal to noise"


def rows(run, name, share):
    """Training and test rows; a share of the first, drawn at random."""
    if name == MESSAGES:
        own = load_messages()
        X, y, Xt, yt = own.X_train, own.y_train, own.X_test, own.y_test
    else:
        X, y, Xt, yt = rows_of(run.data, name)
    if share < 1.0:
        kept = np.random.default_rng(0).permutation(len(X))[: round(share * len(X))]
        X, y = X[kept], y[kept]
    # A class without a record is none.
    known = np.isin(yt, y)
    return X, y, Xt[known], yt[known]


def measure(run, dataset, share, radius, epsilon):
    """Of each class what the plan says, and its recall with noise and without."""
    X, y, Xt, yt = rows(run, dataset, share)
    classes, counts = np.unique(y, return_counts=True)
    head = BallDPLogisticRegression(delta=DELTA, radius=RADII[radius])
    seeds = seeds_of(run, N_RELEASES, dataset, share, radius, epsilon)

    def recalls(epsilon, seeds):
        heads = fits(head.set_params(epsilon=epsilon), X, y, seeds)
        return np.array([scores(own.predict(Xt), yt, 0)[3] for own in heads])

    (without,), released = recalls(NOISELESS, seeds[:1]), recalls(epsilon, seeds)
    noisy = released.mean(axis=0)
    ratios = np.array(head.plan(*X.shape, counts).class_signal_to_noise)
    each = {RATIO: ratios[np.isin(classes, yt)], "without": without, "recall": noisy}
    cell = {name: " ".join(f"{value:.5g}" for value in found) for name, found in each.items()}
    return cell | mean_error(released.mean(axis=1))


def cells_of(run):
    others = [name for name in DATASETS if name != MESSAGES]
    return itertools.product([MESSAGES, *run.have(others)], SHARES, RADII, EPSILONS)


CELLS = Study("lost_cells.csv", ("dataset", "share", "radius", "epsilon"), measure, cells_of)
STUDIES = (CELLS,)


def classes_of(cells):
    """A row for each class: its ratio, and which share of its recall the noise leaves."""
    each = [RATIO, "without", "recall"]
    part = cells[["dataset", *each]].copy()
    part[each] = part[each].map(str.split)
    part = part.explode(each)
    part[each] = part[each].astype(float)
    # What is hardly ever recognised without noise tells nothing of it.
    part = part[part["without"] >= KEPT]
    kept = part["recall"] / part["without"]
    return part.assign(kept=kept, lost=kept < KEPT)


def table(classes):
    """Share of the recall that is left, and of the classes that are lost, by ratio."""
    edges = [0.0, LOST / 2, LOST, AT_RISK, 2 * AT_RISK, 4 * AT_RISK, np.inf]
    bins = pd.cut(classes[RATIO], edges)
    rows = {}
    for name, own in [("all", classes), *classes.groupby("dataset", sort=False)]:
        parts = own.groupby(pd.cut(own[RATIO], edges), observed=False)
        shares = parts[["kept", "lost"]].mean().mul(100.0).to_numpy()
        rows[DATASETS.get(name, name)] = [
            "" if np.isnan(kept) else f"{kept:.0f} / {lost:.0f}" for kept, lost in shares
        ]
    return pd.DataFrame({RATIO: bins.cat.categories.astype(str), **rows})


def faults(classes):
    """Where a plan's two words do not hold: most below one are lost, few above the other."""
    ratio, lost = classes[RATIO], classes["lost"]
    shares = {
        f"even just below {LOST} most are lost": lost[ratio.between(LOST / 2, LOST)].mean() > 0.5,
        f"most between {LOST} and {AT_RISK} stay": lost[ratio.between(LOST, AT_RISK)].mean() < 0.5,
        f"above {AT_RISK} one in fifty is lost": lost[ratio > AT_RISK].mean() < 0.02,
    }
    return [claim for claim, holds in shares.items() if not holds]


def report(out):
    """The table, and whether a plan's words hold."""
    cells = CELLS.read(out)
    classes = classes_of(cells)
    show(table(classes), out, "lost", cells)
    return faults(classes)
