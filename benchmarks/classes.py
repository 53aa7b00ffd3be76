"""Rare classes, with weights and without.

Overall accuracy, balanced accuracy and recall of the rarest class, of heads with and without
weights of classes (logistic regression) or uniform class probabilities (the others). TREC-6 has one
class of 86 among 5452 records; "tail" is BANKING77 cut to counts proportional to 1 / rank.
"""

import itertools

import numpy as np
import pandas as pd
from sklearn.base import clone

from benchmarks.study import DELTA, EXACT, Study, fits, means, rows_of, scores, seeds_of, show
from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
)

DATASETS = {"trec6": "TREC-6", "banking77/tail": "BANKING77, long tail"}
EPSILONS = (1.0, 2.0, 4.0, 8.0)
RADII = {"r = 0.6": 0.6, "any distance": None}
BALANCED = {"class_weight": "balanced"}
HEADS = {
    "logistic": (BallDPLogisticRegression(), 10),
    "logistic, balanced": (BallDPLogisticRegression(**BALANCED), 10),
    "discriminant": (BallDPLinearDiscriminant(domain="sphere"), 10),
    "discriminant, uniform priors": (
        BallDPLinearDiscriminant(domain="sphere", priors="uniform"),
        10,
    ),
    "prototypes": (BallDPRidgePrototype(), 10),
    "prototypes, uniform priors": (BallDPRidgePrototype(priors="uniform"), 10),
}
NOISELESS = {
    "no noise": EXACT,
    "no noise, balanced": clone(EXACT).set_params(class_weight="balanced"),
}
SCORES = ["accuracy", "balanced", "rarest"]


def subset_of(folder, name):
    """Training and test rows; the long tail keeps max / rank records of each class, and 3."""
    if "/" not in name:
        return rows_of(folder, name)
    X, y, Xt, yt = rows_of(folder, "banking77")
    counts = np.bincount(y)
    rng, kept = np.random.default_rng(0), []
    for rank, code in enumerate(np.argsort(-counts, kind="stable")):
        members = rng.permutation(np.flatnonzero(y == code))
        kept += members[: max(3, round(counts.max() / (rank + 1)))].tolist()
    kept = np.sort(kept)
    return X[kept], y[kept], Xt, yt


def measure(run, dataset, head, radius, epsilon):
    """Three scores."""
    X, y, Xt, yt = subset_of(run.data, dataset)
    counts = np.bincount(y)
    if head in NOISELESS:
        heads = [clone(NOISELESS[head]).fit(X, y)]
    else:
        estimator, n_releases = HEADS[head]
        own = clone(estimator).set_params(epsilon=epsilon, delta=DELTA, radius=RADII[radius])
        heads = fits(own, X, y, seeds_of(run, n_releases, dataset, radius, epsilon))
    found = [scores(fitted.predict(Xt), yt, np.argmin(counts)) for fitted in heads]
    return means(dict(zip(SCORES, zip(*(own[:3] for own in found), strict=True), strict=True)))


def cells_of(run):
    for name in run.have(DATASETS):
        yield from ((name, head, "none", 0.0) for head in NOISELESS)
        yield from itertools.product([name], HEADS, RADII, EPSILONS)


COMPARED = {name: f"{name} error" for name in SCORES}
KEY = ("dataset", "head", "radius", "epsilon")
CELLS = Study("classes_cells.csv", KEY, measure, cells_of, COMPARED)

STUDIES = (CELLS,)


def table(cells, name):
    """Three scores by epsilon, in percent."""
    own, rows = cells[cells["dataset"] == name], []
    for (radius, head), part in own.groupby(["radius", "head"], sort=False):
        texts = part[SCORES].apply(lambda row: " / ".join(f"{100 * s:.1f}" for s in row), axis=1)
        # What has no noise stands beside the largest epsilon.
        epsilons = part["epsilon"].replace(0.0, EPSILONS[-1])
        shown = dict(zip(epsilons.map("eps {:g}".format), texts, strict=True))
        rows.append({"hides": radius, "head": head, **shown})
    columns = ["hides", "head", *(f"eps {epsilon:g}" for epsilon in EPSILONS)]
    return pd.DataFrame(rows, columns=columns, dtype=object).fillna("")


def report(out):
    """Tables."""
    cells = CELLS.read(out)
    for name in DATASETS:
        own = cells[cells["dataset"] == name]
        if len(own):
            show(table(cells, name), out, f"classes_{name.split('/')[-1]}", own)
