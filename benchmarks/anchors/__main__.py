"""``python -m benchmarks.anchors --data DIR``: standard differential privacy beside known figures.

CIFAR-10 and MNIST at delta 1e-5, every record's replacement and label hidden: this package's heads
with their defaults, and other private linear classifiers on the same rows. Their settings are
chosen on a fifth of the training rows, held out, at no charge.
"""

import itertools

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from benchmarks.paper.cells import mean_interval
from benchmarks.paper.comparators import choose, grid
from benchmarks.paper.tables import interval
from benchmarks.study import DATASETS, Study, fits, options, rows_of, show, stream_of
from sklearn_balldp import BallDPLinearDiscriminant, BallDPLogisticRegression

from . import mechanisms

DELTA = 1e-5
EPSILONS = (1.0, 2.0, 3.0, 8.0)
SHOWN = {name: DATASETS[name] for name in ("cifar10", "mnist")}
RELEASES = 3
OURS = {
    "logistic": BallDPLogisticRegression(protect_labels=True),
    "discriminant": BallDPLinearDiscriminant(domain="sphere", protect_labels=True),
}
RIDGES = (0.1, 0.5, 2.0, 8.0)
#: Settings that are tried again, and how often.
FINALISTS, FINALS = 2, 2
OTHERS = {
    "least squares": (
        mechanisms.gaussian(mechanisms.least_squares),
        grid(share=(0.2, 0.4, 0.6), ridge=RIDGES),
    ),
    "two Newton steps": (
        mechanisms.gaussian(mechanisms.newton),
        grid(first=(0.6, 0.9), share=(0.5,), ridge=RIDGES[:3], clip=(0.3, mechanisms.GRADIENT)),
    ),
    "DP-FC": (
        mechanisms.gaussian(mechanisms.feature_covariance),
        grid(share=(0.3,), ridge=RIDGES[:3], steps=(5, 15), rate=(0.3, 1.0), clip=(0.3, 1.0)),
    ),
    "objective perturbation": (
        mechanisms.objective,
        grid(ridge=(10.0, 30.0, 100.0, 300.0)),
    ),
}
CEILING = "no noise"


def accuracy_of(mechanism, n_classes):
    """Test accuracy of one release, as :func:`choose` asks for it."""

    def accuracy(epsilon, X, y, X_test, y_test, seed, **settings):
        rng = np.random.default_rng(seed)
        theta = mechanism(X, y, n_classes, epsilon, DELTA, rng, **settings)
        return float(np.mean(np.argmax(X_test @ theta.astype(X.dtype), axis=1) == y_test))

    return accuracy


def measure(run, dataset, method, epsilon):
    """Mean accuracy with its interval, and the settings that were chosen."""
    X, y, X_test, y_test = rows_of(run.data, dataset)
    stream, chosen = stream_of(run, dataset, method, epsilon), ""
    seeds = [int(seed) for seed in stream.integers(2**31, size=2 if run.quick else RELEASES)]
    if method == CEILING:
        scores = [LogisticRegression(C=10.0, max_iter=300).fit(X, y).score(X_test, y_test)]
    elif method in OURS:
        head = OURS[method].set_params(epsilon=epsilon, delta=DELTA, classes=np.unique(y))
        scores = [own.score(X_test, y_test) for own in fits(head, X, y, seeds)]
    else:
        (mechanism, settings), classes = OTHERS[method], np.unique(y)
        accuracy, y = accuracy_of(mechanism, len(classes)), np.searchsorted(classes, y)
        y_test = np.searchsorted(classes, y_test)
        further = iter(lambda: int(stream.integers(2**31)), None)
        settings = settings[:2] if run.quick else settings
        chosen = choose(accuracy, settings, epsilon, X, y, further, FINALISTS, FINALS)
        scores = [accuracy(epsilon, X, y, X_test, y_test, seed, **chosen) for seed in seeds]
    return {**mean_interval(scores), "releases": len(scores), "settings": str(chosen)}


CELLS = Study("anchors_cells.csv", ("dataset", "method", "epsilon"), measure)


def table(cells):
    """Accuracy by epsilon, a column for each way to train."""
    rows = []
    for name, epsilon in itertools.product(SHOWN, EPSILONS):
        own = cells[cells["dataset"] == name].set_index(["method", "epsilon"])
        if (next(iter(OURS)), epsilon) not in own.index:
            continue
        row = {"data": DATASETS[name], "epsilon": f"{epsilon:g}"}
        for method in (*OURS, *OTHERS, CEILING):
            key = (method, 0.0 if method == CEILING else epsilon)
            row[method] = interval(own.loc[key]) if key in own.index else ""
        rows.append(row)
    return pd.DataFrame(rows)


def main(argv=None):
    run = options("anchors", __doc__, argv, SHOWN)
    cells = [(name, CEILING, 0.0) for name in run.datasets]
    cells += itertools.product(
        run.datasets, (*OURS, *OTHERS), EPSILONS[:1] if run.quick else EPSILONS
    )
    show(table(CELLS.fill(cells, run)), run.out, "anchors")


if __name__ == "__main__":
    main()
