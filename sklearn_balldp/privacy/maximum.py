"""Branch and bound: a certified upper bound on the maximum of a function over a box."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: Lower and upper corners of cells, each of shape (n_dimensions, n_cells).
Cells = tuple[Array, Array]
# Most rounds of splitting; after these, cells are as small as doubles can tell apart.
_ROUNDS = 100


def certified_maximum(
    bound: Callable[[Array, Array], Array],
    low: Sequence[float],
    high: Sequence[float],
    *,
    n_cells: int,
    excess: float,
    most_cells: int,
    attained: Callable[[Array, Array], Array] | None = None,
    feasible: Callable[[Array, Array], NDArray[np.bool_]] | None = None,
    reached: float = 0.0,
    enough: float = math.inf,
) -> float:
    """Upper bound on the maximum of a non-negative function, by splitting cells that may hold it.

    Parameters
    ----------
    bound : callable
        Upper bounds on the function over cells, given their lower and upper corners. If both
        corners are one point, it gives the function's value there.
    low, high : sequence of float
        Corners of the box.
    n_cells : int
        Cells along each dimension at the start.
    excess : float
        Cells are split until no bound exceeds the best value found by this share.
    most_cells : int
        If more cells than this are left, they are not split further, and their bounds count.
    attained : callable, optional
        A feasible point of each cell; the middle by default.
    feasible : callable, optional
        Which cells may hold feasible points; all by default.
    reached : float, default=0.0
        A value known to be attained.
    enough : float, optional
        A known upper bound, which is returned once the search cannot find a smaller one.

    Returns
    -------
    float
        No value of the function is larger. Overflow gives infinity, which bounds anything.
    """
    sides = [np.linspace(a, b, n_cells + 1) for a, b in zip(low, high, strict=True)]
    lows = np.array([g.ravel() for g in np.meshgrid(*(s[:-1] for s in sides), indexing="ij")])
    highs = np.array([g.ravel() for g in np.meshgrid(*(s[1:] for s in sides), indexing="ij")])
    best = certified = reached
    for left in reversed(range(_ROUNDS)):
        if feasible is not None:
            kept = feasible(lows, highs)
            lows, highs = lows[:, kept], highs[:, kept]
        points = 0.5 * (lows + highs) if attained is None else attained(lows, highs)
        best = max(best, _largest(bound(points, points), undefined=0.0))
        if best * (1.0 + excess) >= enough:
            return enough
        bounds = np.nan_to_num(bound(lows, highs), nan=math.inf, posinf=math.inf)
        alive = bounds > best * (1.0 + excess)
        certified = max(certified, float(bounds[~alive].max(initial=0.0)))
        if left == 0 or not 0 < np.count_nonzero(alive) <= most_cells:
            break
        lows, highs = _split(lows[:, alive], highs[:, alive])
    return max(certified, best, float(bounds[alive].max(initial=0.0)))


def _largest(values: Array, undefined: float) -> float:
    return float(np.nan_to_num(values, nan=undefined, posinf=math.inf).max(initial=0.0))


def _split(lows: Array, highs: Array) -> Cells:
    """Every cell in halves along every dimension."""
    for axis in range(len(lows)):
        middle = 0.5 * (lows[axis] + highs[axis])
        first, second = highs.copy(), lows.copy()
        first[axis] = second[axis] = middle
        lows, highs = np.hstack([lows, second]), np.hstack([first, highs])
    return lows, highs
