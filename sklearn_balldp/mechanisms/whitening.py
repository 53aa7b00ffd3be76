r"""The whitening map: a public map of rows, through which the steps of a descent see them.

A row x becomes :math:`P_\tau(A\, P_\rho(x - c))`: moved, and shortened where rows vary most. P
projects onto a ball, and A has eigenvalues in (0, 1], so that no two rows move further apart.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..losses import Array
from ..privacy.plain import are_numbers, make_plain
from ..rows import blas_threads_for, domain_factors
from .settings import LEAST_KEPT, MOST_DIRECTIONS, WHITENING


@dataclass(frozen=True, eq=False)
class PublicMap:
    """A public map of rows that moves no two of them further apart, and that nobody can change.

    Rows are moved by ``centre`` and projected to norm ``reach`` (rho); shortened by ``factors`` in
    (0, 1] along the orthonormal ``directions``, of shape (n_features, n_directions); and projected
    to ``norm`` (tau), which is at most ``reach``.
    """

    centre: Array
    directions: Array
    factors: Array
    reach: float
    norm: float

    def __post_init__(self) -> None:
        make_plain(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        make_plain(self)

    @property
    def shortens(self) -> bool:
        """Whether rows are shortened along some directions."""
        return len(self.factors) > 0

    @property
    def within_limits(self) -> bool:
        """Whether the bound of the rounding, as this version knows it, covers the map."""
        kept = bool(self.factors.min(initial=1.0) >= LEAST_KEPT * (1.0 - 1e-9))
        return kept and len(self.factors) <= MOST_DIRECTIONS

    @lru_cache(4)  # noqa: B019 (public, and asked at each step: no field ever changes)
    def fault(self, norm_bound: float, least_reach: float) -> str | None:
        """Why this is no map of rows of norm B that keeps ``least_reach`` of it; None if it is."""
        arrays = self.centre, self.directions, self.factors
        if not all(type(own) is np.ndarray for own in arrays):
            return "its centre, directions and factors must be arrays"
        if not (are_numbers(self.reach, self.norm) and self.centre.ndim == self.factors.ndim == 1):
            return "its norms must be numbers, its centre and factors vectors"
        n_directions = len(self.factors)
        if self.directions.shape != (len(self.centre), n_directions):
            return "its directions and factors are not of one length"
        if not float(np.linalg.norm(self.centre)) <= norm_bound * (1.0 + 1e-9):
            return "its centre is longer than rows may be"  # their rounding is not covered then
        if not ((self.factors > 0.0) & (self.factors <= 1.0)).all():
            return "its factors must lie between 0 and 1"
        products = self.directions.T @ self.directions
        if not np.allclose(products, np.eye(n_directions), rtol=0.0, atol=1e-9):
            return "its directions are not orthonormal"
        smallest = least_reach * norm_bound * (1.0 - 1e-9)
        if not smallest <= self.norm <= self.reach <= norm_bound * (1.0 + 1e-9):
            return f"its norms must lie between {smallest:.6g} and {norm_bound:.6g}"
        return None

    def shortened(self, weights: Array) -> Array:
        """``weights @ A``: weights for rows that are moved alone; and gradients the other way."""
        return self._scaled(weights, self.factors - 1.0)

    def restored(self, weights: Array) -> Array:
        """``weights @ inv(A)``: weights for mapped rows, from those for moved rows."""
        return self._scaled(weights, 1.0 / self.factors - 1.0)

    def _scaled(self, weights: Array, excess: Array) -> Array:
        if not self.shortens:
            return weights
        return weights + ((weights @ self.directions) * excess) @ self.directions.T

    def projections(self, moved: Array) -> Array | None:
        """Factors of moved float64 rows, so that A times them are in place; None for 1."""
        if not self.shortens:
            return domain_factors(moved, self.norm)
        factors = domain_factors(moved, self.reach)
        squares = self.squares(moved)
        if factors is not None:
            squares = squares * factors * factors
        long = squares > self.norm**2
        if not long.any():
            return factors
        after = np.where(long, self.norm / np.sqrt(np.where(long, squares, 1.0)), 1.0)
        return after if factors is None else factors * after

    def squares(self, moved: Array) -> Array:
        """Squares of the norms of A times moved rows."""
        squares: Array = np.vecdot(moved, moved)
        if not self.shortens:
            return squares
        inner = moved @ self.directions
        return squares - (inner * inner) @ (1.0 - self.factors**2)


def whitening_map(statistics: Any, least_reach: float) -> PublicMap:
    """The map that released sums tell: it moves rows by the noisy mean, less what its noise adds.

    At least ``least_reach`` times B is kept of their norm, as other radii count with that.
    """
    norm_bound, total = statistics.norm_bound, statistics.total
    mean = statistics.class_sums.sum(axis=0) / total
    noise = len(mean) * float(np.sum(statistics.sigma_sums**2)) / total**2
    square = float(mean @ mean)
    longest = norm_bound * math.sqrt(1.0 - least_reach**2)
    kept = max(square - noise, 0.0) / max(square, 1e-300)
    centre = mean * min(kept, longest / max(math.sqrt(square), 1e-150))
    share = float(centre @ centre) / norm_bound**2
    reach = norm_bound * math.sqrt(max(1.0 - share, least_reach**2))
    if statistics.second_moment is not None:
        with blas_threads_for(len(centre)):
            return _whitening(statistics, centre, reach, least_reach)
    return PublicMap(centre, np.empty((len(centre), 0)), np.empty(0), reach, reach)


def _whitening(statistics: Any, centre: Array, reach: float, least_reach: float) -> PublicMap:
    """The map with directions in which rows vary beyond the noise.

    Noise spreads the eigenvalues of the moment by up to its edge e: one that is y > e above the
    mean is that of a variance of sqrt(y^2 - e^2) above it.
    """
    n, d = statistics.total, len(centre)
    moment: Array = statistics.second_moment / n - np.outer(centre, centre)  # type: ignore[operator]
    edge = (statistics.sigma_moment or 0.0) / n * math.sqrt(2.0 * d)
    values, vectors = np.linalg.eigh(moment)
    smallest = least_reach**2 * statistics.norm_bound**2
    total = min(max(float(values.sum()), smallest), reach**2)
    above = values - total / d
    # Eigenvalues ascend: the largest are the last.
    kept = np.flatnonzero(above > edge)[-MOST_DIRECTIONS:]
    excess = np.sqrt((above[kept] - edge) * (above[kept] + edge))
    # What remains, equally in all directions.
    rest = max(total - float(excess.sum()), least_reach**2 * total) / d
    factors = ((rest + total / d) / (rest + excess + total / d)) ** WHITENING
    factors = np.maximum(factors, LEAST_KEPT)
    square = rest * (d - len(factors)) + float(factors**2 @ (rest + excess))
    norm = min(math.sqrt(max(square, smallest)), reach)
    return PublicMap(centre, vectors[:, kept], factors, reach, norm)
