"""Radii of 120000 rows against the pairs that a user would compute."""

import numpy as np
from sklearn.metrics import pairwise_distances_chunked

from sklearn_balldp.distances import private_quantile, same_label_quantile

from .timing import Memory, embeddings, interleaved, peak, row


def largest_distance(X, y):
    """scikit-learn's way to the same-label diameter."""
    return max(
        float(chunk.max())
        for label in np.unique(y)
        for chunk in pairwise_distances_chunked(X[y == label])
    )


def measure(comparators):
    X, y = embeddings(120_000, 384, 4)
    times = interleaved(
        {
            "diameter": lambda: same_label_quantile(X, y, 1.0),
            "sklearn": lambda: largest_distance(X, y),
            "median": lambda: same_label_quantile(X, y),
            "private": lambda: private_quantile(X, y, epsilon=0.5),
        },
        repeats=1,
    )
    other = "scikit-learn's pairwise_distances_chunked"
    shape = "120000 x 384, 4 classes"
    yield row("radius", f"same-label diameter, {shape}", times["diameter"], other, times["sklearn"])
    yield row(
        "radius", f"largest class's median, {shape}", times["median"], other, times["sklearn"]
    )
    yield row("radius", f"private median, {shape}", times["private"], other, times["sklearn"])
    share = peak(lambda: same_label_quantile(X, y)) / X.nbytes
    yield Memory("radius", f"largest class's median, {shape}", share, np.nan)
