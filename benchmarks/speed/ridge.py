"""Ridge prototypes: a fit against one pass over its rows and against NearestCentroid."""

import numpy as np
from sklearn.neighbors import NearestCentroid

from sklearn_balldp import BallDPRidgePrototype

from .timing import Memory, interleaved, peak, row, unit_rows, without_noise


def bare(head, X, y):
    """A fit apart from its noise."""
    with without_noise():
        head.fit(X, y)


def measure(comparators):
    X, y = unit_rows(120_000, 384), np.random.default_rng(1).integers(4, size=120_000)
    head = BallDPRidgePrototype(radius=0.5)
    times = interleaved(
        {
            "pass": lambda: np.add.reduce(X, axis=0),
            "bare": lambda: bare(head, X, y),
            "fit": lambda: head.fit(X, y),
            "sklearn": lambda: NearestCentroid().fit(X, y),
        },
        repeats=25,
    )
    shape = "120000 x 384, 4 classes"
    yield row(
        "ridge",
        f"fit apart from noise, {shape}",
        times["bare"],
        "one pass: np.add.reduce",
        times["pass"],
        asked=3,
    )
    yield row(
        "ridge",
        f"fit apart from noise, {shape}",
        times["bare"],
        "scikit-learn's NearestCentroid",
        times["sklearn"],
        asked=0.2,
    )
    yield row(
        "ridge", f"fit, {shape}", times["fit"], "scikit-learn's NearestCentroid", times["sklearn"]
    )
    # Noise takes a fifth of the fit at most.
    yield row(
        "ridge",
        f"fit, {shape}",
        times["fit"],
        "the same apart from noise",
        times["bare"],
        asked=1.25,
    )
    yield Memory("ridge", f"fit, {shape}", peak(lambda: head.fit(X, y)) / X.nbytes, 0.1)
    for n, d, n_classes in [(10_000, 384, 77), (50_000, 2048, 1000)]:
        X, y = unit_rows(n, d), np.arange(n) % n_classes
        times = interleaved(
            {
                "fit": lambda X=X, y=y: head.fit(X, y),
                "bare": lambda X=X, y=y: bare(head, X, y),
            },
            repeats=1 if n_classes == 1000 else 3,
        )
        yield row(
            "ridge",
            f"fit, exact noise on {n_classes} x {d} parameters",
            times["fit"],
            "the same apart from noise",
            times["bare"],
            asked=2 if n_classes == 77 else np.nan,
        )
