"""Distances between rows, and quantiles of them: same-label pairs, and edits."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist, pdist

from ._parameters import Share, check_number, check_option
from .adjacency import METRICS
from .losses import Array

#: Classes with at most this many pairs use all of them.
ALL_PAIRS = 250_000
#: Of larger ones so many are drawn.
DRAWN_PAIRS = 100_000
#: Number of distances that the diameter computes at a time.
DIAMETER_BLOCK = 2**22


def row_distances(before: NDArray[np.floating], after: NDArray[np.floating], metric: str) -> Array:
    """Distance of every row from its partner, computed in blocks in double precision."""
    distances = np.empty(len(before))
    for start in range(0, len(before), 4096):
        rows = slice(start, start + 4096)
        difference = before[rows].astype(np.float64) - after[rows]
        distances[rows] = np.linalg.norm(difference, ord=METRICS[metric].order, axis=1)
    return distances


def _class_distances(rows: NDArray[np.floating], metric: str, rng: np.random.Generator) -> Array:
    """Distances of all pairs of a small class, of sampled pairs of a large one."""
    if math.comb(len(rows), 2) <= ALL_PAIRS:
        return pdist(rows.astype(np.float64), METRICS[metric].scipy_name)
    first = rng.integers(len(rows), size=DRAWN_PAIRS)
    # An offset of at least one keeps the two rows of a pair distinct.
    second = (first + rng.integers(1, len(rows), size=DRAWN_PAIRS)) % len(rows)
    some = [slice(start, start + 4096) for start in range(0, DRAWN_PAIRS, 4096)]
    return np.concatenate([row_distances(rows[first[s]], rows[second[s]], metric) for s in some])


def _diameter(rows: NDArray[np.floating], metric: str) -> float:
    """Exact diameter of a class, in blocks of rows."""
    rows, name = rows.astype(np.float64), METRICS[metric].scipy_name
    largest = 0.0
    size = max(1, DIAMETER_BLOCK // len(rows))
    centred = rows - rows.mean(axis=0)
    squares = np.vecdot(centred, centred)
    # More than the rounding of a squared distance by a product, and of the centred rows.
    reach, length = math.sqrt(squares.max()), math.sqrt(np.vecdot(rows, rows).max())
    slack = 2.0**-50 * (rows.shape[1] + 8) * reach * (reach + length)
    for start in range(0, len(rows), size):
        block, later = rows[start : start + size], rows[start:]
        if metric == "euclidean":
            # A matrix product is many times as fast, and leaves the few rows that may be farthest.
            product = centred[start : start + size] @ centred[start:].T
            farthest = squares[start : start + size] + (squares[start:] - 2.0 * product).max(axis=1)
            block = block[farthest >= max(largest**2, farthest.max() - slack) - slack]
        if len(block):
            largest = max(largest, float(cdist(block, later, name).max()))
    return largest


def same_label_quantile(
    X: ArrayLike,
    y: ArrayLike,
    quantile: float = 0.5,
    *,
    metric: str = "euclidean",
    random_state: int | np.random.Generator | None = 0,
) -> float:
    """Largest class's quantile of same-label pair distances: the radius of Margaryan & Gupta.

    The result is a function of the rows: it is public only if they are.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Reference rows.
    y : array-like of shape (n_samples,)
        Their labels.
    quantile : float, default=0.5
        How many of the pairs the radius covers: a larger quantile gives a larger radius, and so
        more noise. Between 0 and 1; 1 is the same-label diameter, always exact.
    metric : {"euclidean", "manhattan", "chebyshev"}, default="euclidean"
        How distances between rows are measured.
    random_state : int, Generator or None, default=0
        Draws the pairs of classes that have more than 250000; the default draws the same ones
        every time.

    Returns
    -------
    float
        The radius; classes of one row are left out.

    Raises
    ------
    ValueError
        If a parameter is invalid, or no class has two rows.
    """
    check_option("metric", metric, METRICS)
    check_number("quantile", quantile, Share)
    X, y = np.asarray(X), np.asarray(y)
    rng = np.random.default_rng(random_state)
    classes = [np.flatnonzero(y == label) for label in np.unique(y)]
    classes = [members for members in classes if len(members) > 1]
    if not classes:
        raise ValueError(
            f"y: no class has two reference rows (n_samples={len(y)}); pass more reference records."
        )
    radii = (
        _diameter(X[members], metric)
        if quantile == 1.0
        else float(np.quantile(_class_distances(X[members], metric, rng), quantile))
        for members in classes
    )
    return max(radii)


def edit_quantile(
    X_before: ArrayLike,
    X_after: ArrayLike,
    quantile: float = 0.95,
    *,
    metric: str = "euclidean",
    coverage: str = "pairs",
    record: ArrayLike | None = None,
) -> tuple[float, float, float | None]:
    """Smallest distance of a pair within which lies a share of the edits, and what it covers.

    The share, at least ``quantile``, is of all pairs, or of the records all of whose pairs lie
    within. ``record`` is the number of each: encoders round equal texts in another batch in another
    way. Returns the distance, and both shares; the second is None without numbers.
    """
    before = np.asarray(X_before)
    covered = distances = row_distances(before, np.asarray(X_after), metric)
    furthest = None
    if record is not None:
        number = np.unique(checked_records(record, len(before)), return_inverse=True)[1]
        furthest = np.zeros(number.max() + 1)
        np.maximum.at(furthest, number, distances)
    if coverage == "records":
        if furthest is None:
            raise ValueError(
                "coverage='records' needs the number of each pair's record: fit the policy itself, "
                "RadiusPolicy(...).fit(X_before, X_after, record=pairs.record), and pass it to a "
                "head in a FrozenEstimator; or use coverage='pairs'."
            )
        covered = furthest
    # This method returns an observed distance, never a value between two of them.
    radius = float(np.quantile(covered, quantile, method="inverted_cdf"))
    of_records = None if furthest is None else float(np.mean(furthest <= radius))
    return radius, float(np.mean(distances <= radius)), of_records


def checked_records(record: ArrayLike, n_pairs: int) -> NDArray[np.integer]:
    """Numbers of the records that pairs came from; a ValueError if they are none."""
    numbers = np.asarray(record)
    if numbers.shape != (n_pairs,) or numbers.dtype.kind not in "iu":
        raise ValueError(
            f"record must hold a whole number for each of the {n_pairs} pairs, that of its record; "
            "pass EditPairs.record."
        )
    return numbers
