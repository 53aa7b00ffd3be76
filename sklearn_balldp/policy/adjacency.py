"""Which substitutions are adjacent: metrics, the admissible ball, the full radius."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray

T = TypeVar("T")

#: Public metrics on the rows. Records with different labels are never within any radius.
METRICS = ("euclidean", "manhattan", "chebyshev")

#: Relative allowance for the rounding of rows and of their norms, applied to every bound.
ROUNDING = 1e-6

#: Entries are clipped to this size, a 1-Lipschitz map of each row that keeps squares finite.
LARGEST_ENTRY = 1e140

#: Values cast to float64 at a time: a block stays in the processor's cache.
BLOCK_VALUES = 2**18


def full_radius(norm_bound: float) -> float:
    """Euclidean diameter of the admissible ball, at which every feature substitution is adjacent.

    Parameters
    ----------
    norm_bound : float
        Radius B of the admissible ball of rows.

    Returns
    -------
    float
        ``2 * norm_bound``. The guarantee at this radius keeps labels and class counts public; it
        is standard (bounded) differential privacy only when labels are protected as well.
    """
    return 2.0 * float(norm_bound)


def full_radius_in(metric: str, norm_bound: float, n_features: int) -> float:
    """Smallest radius in ``metric`` whose ball covers every substitution of admissible rows.

    Parameters
    ----------
    metric : {"euclidean", "manhattan", "chebyshev"}
        Metric of the radius.
    norm_bound : float
        Euclidean radius B of the admissible ball of rows.
    n_features : int
        Number of features d.

    Returns
    -------
    float
        2B, or 2B times the square root of d ("manhattan").
    """
    factor = {"euclidean": 1.0, "manhattan": math.sqrt(n_features), "chebyshev": 1.0}[metric]
    return factor * full_radius(norm_bound)


def euclidean_radius(
    radius: float | None, metric: str, *, norm_bound: float, n_features: int
) -> float:
    """Largest Euclidean distance between two admissible rows within ``radius`` in ``metric``.

    Parameters
    ----------
    radius : float or None
        Radius in the units of ``metric``; None for the full radius.
    metric : {"euclidean", "manhattan", "chebyshev"}
        Distance between rows of equal label.
    norm_bound : float
        Radius B of the admissible ball of rows.
    n_features : int
        Number of columns d.

    Returns
    -------
    float
        ``radius`` (euclidean, manhattan) or ``sqrt(d) * radius`` (chebyshev), at most
        ``2 * norm_bound``.

    Raises
    ------
    ValueError
        If the metric is unknown or the radius is not positive.
    """
    if metric not in METRICS:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}; got {metric!r}.")
    norm_bound = float(norm_bound)
    if radius is None:
        return full_radius(norm_bound)
    if not radius > 0.0:
        raise ValueError(
            f"radius must be positive, or None for the full radius 2 * norm_bound; got {radius!r}."
        )
    modulus = math.sqrt(n_features) if metric == "chebyshev" else 1.0
    return min(modulus * float(radius), full_radius(norm_bound))


def ball_factors(rows: NDArray[np.float64], norm_bound: float) -> NDArray[np.float64] | None:
    """Factors that project float64 rows onto the ball of radius ``norm_bound``.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features), float64
        Rows with entries clipped by :func:`clip_entries`; the caller has no need to know
        beforehand that they are finite.
    norm_bound : float
        Radius of the ball.

    Returns
    -------
    ndarray of shape (n_rows,) or None
        ``min(1, norm_bound / norm)`` for each row; None when every row lies inside.

    Raises
    ------
    FloatingPointError
        If a row holds NaN or infinity.
    """
    # A NumPy scalar of few bits would square to something else.
    norm_bound = float(norm_bound)
    with np.errstate(all="ignore"):
        squares = np.vecdot(rows, rows)
        inside = squares <= norm_bound * norm_bound
        if inside.all():
            return None
        if not np.isfinite(squares).all():
            raise FloatingPointError("rows hold NaN or infinity.")
        return np.where(inside, 1.0, norm_bound / np.sqrt(np.where(inside, 1.0, squares)))


def block_rows(n_features: int) -> int:
    """Rows in a block of :func:`row_blocks`, at most."""
    return max(1, min(4096, BLOCK_VALUES // n_features))


def clip_entries(X: NDArray[np.floating]) -> NDArray[np.floating]:
    """``X`` itself, or a C-ordered copy with entries clipped to :data:`LARGEST_ENTRY`.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        Rows; NaN and infinity are left for :func:`ball_factors` to find.

    Returns
    -------
    ndarray of shape (n_rows, n_features)
    """
    wide = X.dtype.itemsize > 8
    if (X.dtype != np.float64 and not wide) or X.size == 0:
        return X
    with np.errstate(all="ignore"):
        peak = max(X.max(), -X.min())
        if LARGEST_ENTRY < peak < np.inf:
            X = np.clip(np.ascontiguousarray(X), -LARGEST_ENTRY, LARGEST_ENTRY)
        return X.astype(np.float64) if wide else X


def row_blocks(
    X: NDArray[np.floating],
    start: int = 0,
    stop: int | None = None,
    size: int | None = None,
    dtype: type[np.floating] = np.float64,
) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Iterate over blocks of rows, float64 by default, without such a copy of the whole array.

    Blocks are in C order whatever the layout of ``X``: sums along a row err alike in every layout,
    so that no other row can decide, by way of the layout, what is computed from this one.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
        float16, float32 or float64 rows.
    start, stop : int
        Range of rows; the whole array by default.
    size : int, optional
        Rows per block; :func:`block_rows` by default.
    dtype : dtype, default=float64
        Precision of the blocks.

    Yields
    ------
    rows : slice
        Position of the block in ``X``.
    block : ndarray of shape (<= size, n_features)
        C-ordered: a view of ``X`` when it is so in this precision (do not write), else one buffer
        that the next step overwrites.
    """
    stop = len(X) if stop is None else stop
    size = block_rows(X.shape[1]) if size is None else size
    if X.dtype == dtype and X.flags.c_contiguous and X.flags.aligned:
        for first in range(start, stop, size):
            rows = slice(first, min(first + size, stop))
            yield rows, X[rows]
        return
    buffer = np.empty((min(size, stop - start), X.shape[1]), dtype=dtype)
    for first in range(start, stop, size):
        rows = slice(first, min(first + size, stop))
        block = buffer[: rows.stop - rows.start]
        np.copyto(block, X[rows])
        yield rows, block


def row_ranges(n_rows: int, n_features: int) -> list[tuple[int, int]]:
    """Contiguous ranges of rows, one for each thread that a pass over the rows pays for."""
    workers = min(4, joblib.effective_n_jobs(-1)) if n_rows * n_features > 4_000_000 else 1
    edges = np.linspace(0, n_rows, workers + 1).astype(int).tolist()
    return list(pairwise(edges))


def map_row_ranges(function: Callable[[int, int], T], n_rows: int, n_features: int) -> list[T]:
    """Apply ``function(start, stop)`` to contiguous row ranges, on threads when it pays.

    Parameters
    ----------
    function : callable
        Takes the first and one past the last row of a range; must release the GIL in its work.
    n_rows, n_features : int
        Shape of the data.

    Returns
    -------
    list
        One result a range, in row order.
    """
    ranges = row_ranges(n_rows, n_features)
    if len(ranges) == 1:
        return [function(0, n_rows)]
    with ThreadPoolExecutor(len(ranges)) as pool:
        return list(pool.map(function, *zip(*ranges, strict=True)))


def project_onto_ball(X: ArrayLike, norm_bound: float) -> NDArray[np.floating]:
    """Project rows onto the ball of radius ``norm_bound`` (1-Lipschitz in the Euclidean norm).

    Parameters
    ----------
    X : array-like of shape (n_rows, n_features)
        Rows, floating point.
    norm_bound : float
        Radius of the ball, positive.

    Returns
    -------
    ndarray of shape (n_rows, n_features)
        In C order, float32 or float64 (float32 for float16), whatever the rows hold. Rows outside
        are scaled to norm ``norm_bound``, up to its rounding: declare a radius in these
        coordinates. ``X`` itself where nothing has to change.

    Raises
    ------
    ValueError
        If a row holds NaN or infinity.
    """
    X = np.asarray(X)
    if not np.issubdtype(X.dtype, np.floating):
        X = X.astype(np.float64)
    X = clip_entries(X)
    X = np.ascontiguousarray(X, dtype=np.promote_types(X.dtype, np.float32))
    projected = X
    finite = True
    for rows, block in row_blocks(X):
        try:
            factors = ball_factors(block, norm_bound)
        except FloatingPointError:
            finite = False
            break
        if factors is not None:
            if projected is X:
                projected = X.copy()
            outside = factors < 1.0
            projected[rows][outside] = block[outside] * factors[outside, None]
    if not finite:
        raise ValueError("X: rows hold NaN or infinity; drop those rows, or repair them.")
    return projected
