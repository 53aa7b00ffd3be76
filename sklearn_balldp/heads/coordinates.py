r"""The coordinates in which the steps of a descent see the rows: a public map of them.

A row x of norm B at most becomes :math:`P_\tau(A\, P_\rho(x - c))`: it is moved by the mean c, and
then shortened along the directions in which rows vary most (*partial whitening*). P projects onto a
ball, and A is symmetric with eigenvalues in (0, 1], so that no two rows move further apart.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..arrays import namespace
from ..privacy.rounding import LEAST_KEPT, MOST_DIRECTIONS
from ..privacy.transcript import LEAST_REACH
from ..rows import ball_factors, project_onto_ball
from .mechanism import Array
from .statistics import Statistics

#: Least square of the mean that rows are moved by, in units of their own: a shorter one is left.
SHORT_MEAN = 0.04
#: Largest factor that norms are lengthened by where that makes steps hardly noisier, and the power
#: of it that steps are longer by than the square of the norm says.
LENGTHENED, LENGTHENED_POWER = 1.15, 1.5
#: Power of the variance along a direction (and of the mean one) that rows are shortened by there.
#: One half would make all variances equal, and small ones all noise.
WHITENING = 0.25


@dataclass(frozen=True)
class Coordinates:
    """A public map of rows that moves no two of them further apart.

    Parameters
    ----------
    centre : ndarray of shape (n_features,)
        What rows are moved by.
    reach : float
        Norm rho that they have then, at most; no less than ``norm``.
    directions : ndarray of shape (n_features, n_directions)
        Orthonormal directions along which rows are shortened.
    kept : ndarray of shape (n_directions,)
        Factors, in (0, 1], by which they are.
    norm : float
        Norm tau that they end up with, at most.
    lengthened : float, default=1.0
        What ``reach`` and ``norm`` were lengthened by to shorten fewer rows.
    """

    centre: Array
    reach: float
    directions: Array
    kept: Array
    norm: float
    lengthened: float = 1.0

    @property
    def whitened(self) -> bool:
        """Whether rows are shortened along some directions."""
        return len(self.kept) > 0

    def rounded(self, dtype: DTypeLike) -> "Coordinates":
        """The same with a centre in the precision of rows: it is public, rounded or not."""
        return replace(self, centre=self.centre.astype(dtype))

    def shortened(self, weights: Array) -> Array:
        """``weights @ A``: weights for rows that are moved alone; and gradients the other way."""
        return self._scaled(weights, self.kept - 1.0)

    def restored(self, weights: Array) -> Array:
        """``weights @ inv(A)``: weights for these coordinates, from those for moved rows."""
        return self._scaled(weights, 1.0 / self.kept - 1.0)

    def _scaled(self, weights: Array, excess: Array) -> Array:
        if not self.whitened:
            return weights
        scaled: Array = weights + ((weights @ self.directions) * excess) @ self.directions.T
        return scaled

    def factors(self, moved: Any, put: Callable[[Array], Any]) -> Any:
        """What projects moved float64 rows, so that A times them are in place; None for ones.

        ``put`` brings an array to where rows are. Raises FloatingPointError if a row holds NaN or
        infinity.
        """
        if not self.whitened:
            return ball_factors(moved, self.norm)
        found = ball_factors(moved, self.reach)
        xp = namespace(moved)
        squares = self.squares(moved, put)
        if found is not None:
            squares = squares * found * found
        long = squares > self.norm**2
        if not xp.any(long):
            return found
        after = xp.where(long, self.norm / xp.sqrt(xp.where(long, squares, 1.0)), 1.0)
        return after if found is None else found * after

    def squares(self, moved: Any, put: Callable[[Array], Any]) -> Any:
        """Squares of the norms of A times moved rows."""
        squares = namespace(moved).vecdot(moved, moved)
        if not self.whitened:
            return squares
        inner = moved @ put(self.directions)
        return squares - (inner * inner) @ put(1.0 - self.kept**2)

    def place(self, rows: NDArray[np.floating]) -> NDArray[np.floating]:
        """Rows of the domain in these coordinates."""
        moved: Any = project_onto_ball(rows - self.centre, self.reach)
        return project_onto_ball(self.shortened(moved), self.norm)


def coordinates_of(
    statistics: Statistics, *, several_steps: bool, radius: float = math.inf
) -> Coordinates | None:
    """Coordinates that released sums tell; None where rows are best left as they are.

    A single step leaves the model all but as it starts: rows are moved for it, and that is all.
    ``radius`` is that of substitutions, if norms may grow for it: see :func:`_lengthened`.
    """
    centre, reach = centre_of(statistics)
    directions, kept, norm = np.empty((len(centre), 0)), np.empty(0), reach
    if several_steps and statistics.second_moment is not None:
        directions, kept, norm = _whitening(statistics, centre, reach)
    if not (len(kept) or centre.any()):
        return None
    norm_bound = statistics.norm_bound
    longer = _lengthened(norm, reach, norm_bound, radius) if several_steps else 1.0
    reach, norm = (min(longer * length, norm_bound) for length in (reach, norm))
    return Coordinates(centre, reach, directions, kept, norm, longer)


def _lengthened(norm: float, reach: float, norm_bound: float, radius: float) -> float:
    r"""Factor by which norms may grow without making steps noisier, the intercept aside.

    Residuals of one label are at most a right angle apart. So for residuals of norm 1, and rows of
    norm tau that are up to r < 2 tau apart, gradients differ by :math:`\max(r, \sqrt 2 \tau)` at
    most. (The constant of an intercept adds one per cent.)
    """
    # Of a norm that was cut, the last bits depend on the machine: none may decide.
    if not radius < 2.0 * norm * (1.0 - 1e-9):
        return 1.0
    return max(1.0, min(radius / (math.sqrt(2.0) * norm), norm_bound / reach, LENGTHENED))


def square_of_mean(statistics: Statistics) -> float:
    """Square of the mean of all rows, less what noise adds to it on average."""
    mean = statistics.class_sums.sum(axis=0) / statistics.total
    noise = statistics.sigma_sums / statistics.total
    return float(mean @ mean) - statistics.class_sums.size * noise**2


def centre_of(statistics: Statistics) -> tuple[Array, float]:
    r"""Mean that rows are moved by, and the norm that is left for them; zero where it is short.

    The noisy mean is shrunk by what its noise, of known variance, is expected to add to its square,
    and to the length that leaves :data:`.LEAST_REACH`.

    A row of norm B that is moved by c has norm :math:`\sqrt{B^2 - \|c\|^2}` on average.
    """
    norm_bound = statistics.norm_bound
    mean = statistics.class_sums.sum(axis=0) / statistics.total
    square = float(mean @ mean)
    longest = norm_bound * math.sqrt(1.0 - LEAST_REACH**2)
    kept = max(square_of_mean(statistics), 0.0) / max(square, 1e-300)
    centre = mean * min(kept, longest / max(math.sqrt(square), 1e-150))
    share = float(centre @ centre) / norm_bound**2
    if not share > SHORT_MEAN:
        return np.zeros_like(centre), norm_bound
    return centre, norm_bound * math.sqrt(max(1.0 - share, LEAST_REACH**2))


def _whitening(statistics: Statistics, centre: Array, reach: float) -> tuple[Array, Array, float]:
    r"""Directions in which rows vary beyond the noise, what is kept there, and the norm after that.

    Noise spreads the eigenvalues of the moment by up to its edge e. An eigenvector whose eigenvalue
    is y above the mean one, y > e, is that of a variance of :math:`\sqrt{y^2 - e^2}` above it.
    """
    n, d = statistics.total, len(centre)
    moment: Array = statistics.second_moment / n - np.outer(centre, centre)  # type: ignore[operator]
    edge = (statistics.sigma_moment or 0.0) / n * math.sqrt(2.0 * d)
    values, vectors = np.linalg.eigh(moment)
    least = LEAST_REACH**2 * statistics.norm_bound**2
    total = min(max(float(values.sum()), least), reach**2)
    above = values - total / d
    # Eigenvalues ascend: the largest are the last.
    seen = np.flatnonzero(above > edge)[-MOST_DIRECTIONS:]
    excess = np.sqrt((above[seen] - edge) * (above[seen] + edge))
    # What is left, equally in all directions.
    rest = max(total - float(excess.sum()), 0.1 * total) / d
    kept = ((rest + total / d) / (rest + excess + total / d)) ** WHITENING
    kept = np.maximum(kept, LEAST_KEPT)
    square = rest * (d - len(kept)) + float(kept**2 @ (rest + excess))
    norm = min(math.sqrt(max(square, least)), reach)
    return vectors[:, seen], kept, norm
