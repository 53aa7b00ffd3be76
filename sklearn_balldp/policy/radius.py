"""Radii from the distances between records of equal label."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import pdist

from .adjacency import METRICS

#: Names of the metrics in scipy.spatial.distance.
SCIPY_NAMES = {"euclidean": "euclidean", "manhattan": "cityblock", "chebyshev": "chebyshev"}
#: Classes with at most this many pairs use all of them.
ALL_PAIRS = 250_000


def _sampled_distances(
    rows: NDArray[np.floating], metric: str, n_pairs: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    order = {"euclidean": 2, "manhattan": 1, "chebyshev": np.inf}[metric]
    first = rng.integers(len(rows), size=n_pairs)
    # An offset of at least one keeps the two rows of a pair distinct.
    second = (first + rng.integers(1, len(rows), size=n_pairs)) % len(rows)
    distances = np.empty(n_pairs)
    for start in range(0, n_pairs, 4096):
        part = slice(start, start + 4096)
        difference = rows[first[part]].astype(np.float64) - rows[second[part]]
        distances[part] = np.linalg.norm(difference, ord=order, axis=1)
    return distances


def same_label_quantile(
    X: ArrayLike,
    y: ArrayLike,
    quantile: float = 0.5,
    *,
    metric: str = "euclidean",
    max_pairs: int = 100_000,
    random_state: int | np.random.Generator | None = 0,
) -> float:
    """Largest class's quantile of same-label pair distances: the paper's radius.

    The result is a function of the rows: it is public only if they are.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Reference rows.
    y : array-like of shape (n_samples,)
        Their labels.
    quantile : float, default=0.5
        Quantile of the distances in each class, between 0 and 1.
    metric : {"euclidean", "manhattan", "chebyshev"}, default="euclidean"
        Distance between rows.
    max_pairs : int, default=100_000
        Pairs sampled with replacement in a class of more than 250000 pairs.
    random_state : int, Generator or None, default=0
        Draws those pairs.

    Returns
    -------
    float
        Maximum over classes of the quantile (classes of one row are left out).

    Raises
    ------
    ValueError
        If the metric or quantile is invalid, or no class has two rows.

    References
    ----------
    Margaryan & Gupta, the radius policy of the experiments.
    """
    if metric not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}; got {metric!r}.")
    if not 0.0 <= quantile <= 1.0:
        raise ValueError(f"quantile must lie in [0, 1], got {quantile!r}.")
    X, y = np.asarray(X), np.asarray(y)
    rng = np.random.default_rng(random_state)
    radii = []
    for label in np.unique(y):
        rows = X[y == label]
        n_pairs = len(rows) * (len(rows) - 1) // 2
        if n_pairs == 0:
            continue
        if n_pairs <= ALL_PAIRS:
            distances = pdist(rows.astype(np.float64), SCIPY_NAMES[metric])
        else:
            distances = _sampled_distances(rows, metric, max_pairs, rng)
        radii.append(np.quantile(distances, quantile))
    if not radii:
        raise ValueError("y: no class has two reference rows; pass more reference records.")
    return float(max(radii))
