"""Branch and bound: a certified upper bound on the maximum of a function over a box."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# Rounds of splitting; after these, cells are as small as doubles can tell apart.
_ROUNDS = 100


def certified_maximum(
    bound: Callable[[Array, Array], Array],
    low: Sequence[float],
    high: Sequence[float],
    *,
    n_cells: int | Sequence[int],
    excess: float,
    max_cells: int,
    attained: Callable[[Array, Array], Array] | None = None,
    feasible: Callable[[Array, Array], NDArray[np.bool_]] | None = None,
    enough: float = math.inf,
) -> float:
    """Upper bound on the maximum of a non-negative function, by splitting cells that may hold it.

    ``bound`` gives upper bounds over cells between ``low`` and ``high``, and the value if both
    corners are one point. Cells, ``n_cells`` along each dimension, are split until no bound exceeds
    the best value by the share ``excess``, or more than ``max_cells`` remain: then their bounds
    count. ``attained`` gives a feasible point of each cell, by default the middle; ``feasible``
    tells which may hold one. ``enough`` is a bound to return once a smaller one is out of reach.
    """
    counts = np.broadcast_to(n_cells, len(low))
    sides = [np.linspace(a, b, n + 1) for a, b, n in zip(low, high, counts, strict=True)]
    lows, highs = (
        np.array([g.ravel() for g in np.meshgrid(*(s[ends] for s in sides), indexing="ij")])
        for ends in (slice(-1), slice(1, None))
    )
    best = certified = 0.0
    for last in [False] * (_ROUNDS - 1) + [True]:
        if feasible is not None:
            kept = feasible(lows, highs)
            lows, highs = lows[:, kept], highs[:, kept]
        points = 0.5 * (lows + highs) if attained is None else attained(lows, highs)
        # Of points and of cells in one call: the fewer calls, the faster.
        both = bound(np.hstack([points, lows]), np.hstack([points, highs]))
        values, bounds = np.split(both, [points.shape[1]])
        values = np.nan_to_num(values, nan=0.0, posinf=math.inf)
        best = max(best, float(values.max(initial=0.0)))
        if best * (1.0 + excess) >= enough:
            return enough
        bounds = np.nan_to_num(bounds, nan=math.inf, posinf=math.inf)
        alive = bounds > best * (1.0 + excess)
        certified = max(certified, float(bounds[~alive].max(initial=0.0)))
        if last or not 0 < np.count_nonzero(alive) <= max_cells:
            break
        lows, highs = lows[:, alive], highs[:, alive]
        for axis in range(len(lows)):
            # Every cell in halves along every dimension.
            middle = 0.5 * (lows[axis] + highs[axis])
            first, second = highs.copy(), lows.copy()
            first[axis] = second[axis] = middle
            lows, highs = np.hstack([lows, second]), np.hstack([first, highs])
    return max(certified, best, float(bounds[alive].max(initial=0.0)))
