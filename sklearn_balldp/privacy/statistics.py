r"""What noisy sufficient statistics guarantee: class sums and the second moment, released once.

One substitution moves the class sums by at most the radius, and the second moment by
:func:`.moment_sensitivity`. Both are released with noise of their own scale, so that at any radius

.. math:: \mu(t)^2 = (\Delta_S(t) / \sigma_S)^2 + (\Delta_M(t) / \sigma_M)^2.

As the radius goes to zero, so does the noise: it depends on no clipping norm, solver or iterate.

With weights both are sums of :math:`w_i x_i` and :math:`w_i x_i x_i^T`. The records of one unit, of
total weight at most s, move the pair of sums by at most s times as much as one record does.

One sum of all rows may take the place of class sums. It does not depend on labels. A substitution
moves it by the distance of the two rows, which is at most 2 B where label changes are adjacent.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._parameters import check_option
from ..adjacency import DOMAINS, Domain, full_radius
from .bounds import ParameterBound
from .fields import check_follows
from .noise import grid_slack
from .rounding import UNIT_ROUNDOFF, additions
from .sensitivity import moment_sensitivity
from .weights import Weights, is_weighted, total_of

#: Rows in one sum of outer products in double precision, and at most in single precision.
SUMMED = 256
#: Number of groups whose sums are added up in pairs, in the same precision.
FOLDED = 4
#: Rows whose sums are added up, in float64, before they join the total.
CHUNK = 8192
_SINGLE_ROUNDOFF = 2.0**-24
# The results of these additions hold 2, 2 and 4 groups, which makes 8.
_PAIRED_GROUPS = 8.0
# Rounds a computed bound up: its evaluation errs by far less.
_UP = 1.0 + 1e-12


def n_triangle(n_features: int) -> int:
    """Number of values that are released of a symmetric matrix."""
    return n_features * (n_features + 1) // 2


def _group_error(n_rows: int, roundoff: float, factors: float = 4.0) -> float:
    """Error of a sum of so many terms, in any order, in units of the largest term.

    Each addition errs by the roundoff times its result, and all results together are at most
    2 + 3 + ... + n. Products and factors add a few roundoffs per term, and weights some more.
    """
    return 1.01 * (0.5 * n_rows**2 + factors * n_rows) * roundoff


@dataclass(frozen=True)
class StatisticsBound(ParameterBound):
    """Noise on class sums and on the second moment."""

    what = "noise on class sums and the second moment"
    parts = "statistics"
    mechanism = "statistics"
    #: Of the head: there is no loss that it could be confused with.
    loss = "discriminant"

    n_samples: int
    n_features: int
    n_classes: int
    norm_bound: float
    rows: str
    share: float  # of the class sums in mu squared; 1 if the second moment is not released
    count_constant: float  # that rows are augmented by where labels are protected; else 0
    labels: str = "public"
    summed: int = 0  # most outer products in a float32 sum, whose rounding is covered; 0: none
    #: Of the class sums, and of the second moment (its diagonal; over sqrt(2) off the diagonal).
    sigma: tuple[float, ...] = ()
    weights: Weights | None = None
    pooled: bool = False  # one sum of all rows is released in place of class sums, and no moment

    def __post_init__(self) -> None:
        check_option("rows", self.rows, DOMAINS)
        if not 0.0 < self.share <= 1.0:
            raise ValueError(f"share={self.share!r} must lie in (0, 1].")
        if self.pooled and self.moment:
            raise ValueError(f"share={self.share!r}: a pooled sum is released alone (share=1).")
        if (self.count_constant > 0.0) != self.releases_counts or self.count_constant < 0.0:
            raise ValueError(
                "a constant is for class sums with protected labels, and they need one."
            )
        n_scales = 1 + int(self.moment)
        if not 0 <= self.summed <= SUMMED:
            raise ValueError(f"summed={self.summed!r} must lie between 0 and {SUMMED}.")
        if self.sigma and not (len(self.sigma) == n_scales and min(self.sigma) > 0.0):
            raise ValueError(
                f"sigma={self.sigma!r} must be a positive scale for the class sums, and one for "
                "the second moment if it is released."
            )

    @property
    def moment(self) -> bool:
        """Whether the second moment is released."""
        return self.share < 1.0

    @property
    def n_sums(self) -> int:
        """Sums of rows that are released: one for each class, or one of all."""
        return 1 if self.pooled else self.n_classes

    @property
    def releases_counts(self) -> bool:
        """Whether class counts are private, and released with the sums."""
        return self.labels == "protected" and not self.pooled

    @property
    def _values_of_sums(self) -> int:
        return self.n_sums * (self.n_features + int(self.releases_counts))

    @property
    def n_values(self) -> int:  # type: ignore[override]
        """Released values."""
        return self._values_of_sums + (n_triangle(self.n_features) if self.moment else 0)

    @property
    def theorem(self) -> str:
        change = ", label changes included" if self.labels == "protected" else ""
        times = "s times " if is_weighted(self.weights) else ""
        if self.pooled:
            distance = "r" if self.labels == "public" else "2 B"
            return f"{times}{distance} for the sum of all rows{change}"
        if not self.moment:
            return f"{times}r for class sums{change}"
        where = "in the ball" if self.rows == "ball" else "on the sphere"
        return f"{times}r for class sums, {times}F(r) for the second moment of rows {where}{change}"

    @property
    def largest(self) -> float:
        """Largest total weight s of one unit."""
        return 1.0 if self.weights is None else self.weights.largest

    def calibrated(self, radius: float, mu: float) -> "StatisticsBound":
        left = self._left_of(mu)
        shares = np.array([self.share, 1.0 - self.share] if self.moment else [self.share])
        sigma = self.sensitivity(radius) / np.sqrt(shares)
        # With these shares the ratio is one, or less if no record moves both sums the furthest.
        spent = replace(self, sigma=tuple(sigma.tolist()))._ratio(radius, self.labels)
        return replace(self, sigma=tuple((sigma * (spent / left)).tolist()))

    def single_share(self, radius: float, summed: int) -> float:
        """Share of the second moment's sensitivity that rounding of float32 sums would add."""
        error = _group_error(summed, _SINGLE_ROUNDOFF, 4.0 + _PAIRED_GROUPS)
        added = self.largest * 2.0 * error * self.norm_bound**2
        return float(added / replace(self, summed=0).sensitivity(radius)[-1])

    def mu_at(self, radius: float, labels: str) -> float:
        ratio = self._ratio(radius, labels) * (1.0 + 2.0**-50)
        return math.nextafter(ratio + grid_slack(self.n_values), math.inf)

    def _ratio(self, radius: float, labels: str) -> float:
        """Mu of both releases together: the root of the sum of squares."""
        sigma = np.asarray(self.sigma)
        ratios = self.sensitivity(radius, labels) / sigma
        ratio = math.hypot(*ratios.tolist())
        if self.moment:
            # At large radii no pair of records attains both sensitivities; rounding is added to it.
            rounding = math.hypot(*(np.array(self._roundings()) / sigma).tolist())
            ratio = min(ratio, self._joint_distance(radius, labels == "protected") * _UP + rounding)
        return ratio

    def _joint_distance(self, radius: float, label_change: bool) -> float:
        """Largest joint distance of two records' rows and outer products, in units of the noise.

        Let s be the squared distance of the rows over B^2. On the sphere the squared distance of
        the outer products is 2 s - s^2 / 2 (over B^4), and the total is concave in s. In the ball,
        the outer products of collinear rows are further apart up to s = 4/9, increasingly with s.
        """
        domain = Domain.of_rounded_rows(self.norm_bound, radius)
        b = domain.norm_bound
        t = domain.radius / b
        sums, moment = (self.sigma[0] / b) ** 2, (self.sigma[1] / b**2) ** 2
        s = min(t**2, 4.0, 2.0 + moment / sums)
        largest = s / sums + (2.0 * s - 0.5 * s**2) / moment
        if self.rows == "ball":
            u = min(t, 2.0 / 3.0)
            largest = max(largest, u**2 / sums + (u * (2.0 - u)) ** 2 / moment)
        if label_change:
            # Orthogonal rows of norm B.
            changed = 2.0 * (1.0 + (self.count_constant / b) ** 2) / sums + 2.0 / moment
            largest = max(largest, changed)
        return self.largest * math.sqrt(largest)

    def check(self, record: Any, radius: float, mu: float) -> None:
        # A discriminant has no regulariser, and releases class sums.
        check_follows("alpha", record.alpha, 0.0)
        check_follows("bound.pooled", self.pooled, False)

    def sensitivity(self, radius: float, labels: str | None = None) -> NDArray[np.float64]:
        change = (labels or self.labels) == "protected"
        if self.pooled and change:
            # The pooled sum ignores labels: a label change is a substitution at any distance.
            radius, change = full_radius(self.norm_bound), False
        domain = Domain.of_rounded_rows(self.norm_bound, radius)
        sums = domain.radius
        if change:
            # One class loses a row with its constant, and another class gains one.
            most = math.sqrt(2.0) * math.hypot(domain.norm_bound, self.count_constant)
            sums = max(sums, most)
        rounding = self._roundings()
        moved = [self.largest * sums + rounding[0]]
        if self.moment:
            moment = moment_sensitivity(
                domain.radius, norm_bound=domain.norm_bound, domain=self.rows, label_change=change
            )
            moved.append(self.largest * moment + rounding[1])
        return np.array(moved)

    def _roundings(self) -> tuple[float, float]:
        """What rounding adds to the sensitivities of class sums and second moment."""
        b = Domain.of_rounded_rows(self.norm_bound, 0.0).norm_bound
        # No term exceeds the largest weight; the records of one unit may all be in other groups.
        record, several, factors = 1.0, 1, 4.0
        if is_weighted(self.weights):
            record, several, factors = self.weights.record, self.weights.most_records, 8.0
        folds = self._folds()
        sums = several * _group_error(CHUNK, UNIT_ROUNDOFF, factors) + folds
        roundoff = _SINGLE_ROUNDOFF if self.summed else UNIT_ROUNDOFF
        # Rows and their factors are rounded before the outer products are computed.
        group = _group_error(self.summed or SUMMED, roundoff, factors + _PAIRED_GROUPS)
        moment = several * group + folds + several * 4.0 * roundoff
        longest = math.hypot(b, self.count_constant)
        return 2.0 * record * sums * longest, 2.0 * record * moment * b**2

    def _folds(self) -> float:
        """Error of sums in float64, whichever machines make them, in units of the largest term.

        The factor of a row errs with the squares in its norm; products and weights add a few
        roundoffs.
        """
        n, d = self.n_samples, self.n_features
        return 1.01 * (additions(n, d) + d + 32.0) * n * UNIT_ROUNDOFF

    def class_signals(self, masses: tuple[float, ...]) -> tuple[float, ...]:
        if self.pooled:
            return (0.0,) * len(masses)
        noise = self.sigma[0] * math.sqrt(self.n_features)
        return tuple(mass * self.norm_bound / noise for mass in masses)

    def signal_and_noise(self, record: Any) -> dict[str, tuple[float, float]]:
        n, b = total_of(self.weights, self.n_samples), self.norm_bound
        noise = self.sigma[0] * math.sqrt(self._values_of_sums)
        found = {"class sums": (n * math.hypot(b, self.count_constant), noise)}
        if self.moment:
            noise = self.sigma[1] * math.sqrt(n_triangle(self.n_features))
            found["second moment"] = n * b**2, noise
        return found
