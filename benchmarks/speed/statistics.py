"""Sufficient statistics: a discriminant's fit against the bare product of its rows."""

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from sklearn_balldp import BallDPLinearDiscriminant

from .timing import Memory, interleaved, peak, row, unit_rows, without_noise


def sums(head, X, y):
    """The pass over the rows alone."""
    released, records = head.released_, head._records(X, y)
    return lambda: released.bound.values(released.problem, records)


def bare(head, X, y):
    """A fit apart from its noise."""
    with without_noise():
        head.fit(X, y)


def measure(comparators):
    y = np.random.default_rng(1).integers(4, size=120_000)
    for dtype in (np.float32, np.float64):
        X = unit_rows(120_000, 384).astype(dtype)
        for domain in ("ball", "sphere"):
            head = BallDPLinearDiscriminant(radius=0.3, domain=domain).fit(X, y)
            functions = {
                "product": lambda X=X: X.T @ X,
                "one pass": lambda X=X: X.sum(axis=0),
                "sums": sums(head, X, y),
            }
            if dtype == np.float32:
                functions |= {
                    "bare": lambda head=head, X=X: bare(head, X, y),
                    "fit": lambda head=head, X=X: head.fit(X, y),
                }
            times = interleaved(functions, repeats=9)
            shape = f"120000 x 384, {np.dtype(dtype).name}, {domain}"
            yield row(
                "statistics",
                f"class sums and second moment, {shape}",
                times["sums"],
                "1.5 times X.T @ X, and one pass",
                1.5 * times["product"] + times["one pass"],
                asked=1,
            )
            if dtype == np.float32:
                # Noise takes a third of the fit at most.
                yield row(
                    "statistics",
                    f"fit, {shape}",
                    times["fit"],
                    "the same apart from noise",
                    times["bare"],
                    asked=1.5,
                )
    X = unit_rows(120_000, 384)
    head = BallDPLinearDiscriminant(radius=0.3, domain="sphere")
    peer = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    times = interleaved({"fit": lambda: head.fit(X, y), "peer": lambda: peer.fit(X, y)}, repeats=3)
    yield row(
        "statistics",
        "fit, 120000 x 384, float32",
        times["fit"],
        "scikit-learn's LinearDiscriminantAnalysis",
        times["peer"],
        asked=1,
    )
    yield Memory("statistics", "fit, 120000 x 384", peak(lambda: head.fit(X, y)) / X.nbytes, 0.25)
