r"""What noisy sufficient statistics guarantee: class sums and the second moment, released once.

One substitution moves the class sums by at most the radius, and the second moment by
:func:`.moment_sensitivity`. Both are released with noise of their own scale, so that at any radius

.. math:: \mu(t)^2 = (\Delta_S(t) / \sigma_S)^2 + (\Delta_M(t) / \sigma_M)^2.

The noise follows the radius down to zero: no clipping norm, no solver and no iterate is in it.

With weights both are sums of :math:`w_i x_i` and :math:`w_i x_i x_i^T`. The records of one unit, of
total weight s at most, move the pair of sums by a sum of such moves: by s times as much, at most.

One sum of all rows may take the place of class sums. It says nothing of labels, and moves by the
distance of the two rows, whichever their labels are: by 2 B at most where label changes are
adjacent.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..adjacency import DOMAINS, Domain, full_radius
from .bounds import ParameterBound
from .fields import check_follows
from .noise import grid_slack
from .rounding import UNIT_ROUNDOFF, additions
from .sensitivity import moment_sensitivity
from .weights import Weights, is_weighted, total_of

#: Rows whose outer products may be summed in one go in single precision: the more, the faster.
GROUPS = (256, 128)
#: Rows that are summed in one go in double precision.
SUMMED = 256
#: Groups whose sums are added up in pairs, in that precision.
FOLDED = 4
#: Rows whose sums are added up, in float64, before they join the total.
CHUNK = 8192
_SINGLE_ROUNDOFF = 2.0**-24
# Groups that the results of those additions come to: two and two, and all four.
_FOLDS = 8.0
# Rounding of float32 sums may take this share of the sensitivity; else they are made in float64.
_SINGLE_SHARE = 1.0 / 64.0
# Rows of smaller norm B, or of larger than its inverse, are summed in float64.
_LEAST_NORM = 1e-12
# Rounds a computed bound up: its evaluation errs by far less.
_UP = 1.0 + 1e-12
# What the constant of protected labels is at least, in units of B: smaller ones make counts noisy.
_LEAST_CONSTANT = 0.5


def n_triangle(n_features: int) -> int:
    """Values of a symmetric matrix that are released."""
    return n_features * (n_features + 1) // 2


def constant_of_counts(norm_bound: float, radius: float) -> float:
    """Constant that rows are augmented by where labels are protected: it gives noisy counts.

    A label change moves the sums by sqrt(2) (B^2 + c^2)^(1/2); c is as large as costs nothing
    beside substitutions within the radius, and at least B / 2.
    """
    r = min(float(radius), 2.0 * norm_bound)
    return max(_LEAST_CONSTANT * norm_bound, math.sqrt(max(0.5 * r**2 - norm_bound**2, 0.0)))


def _group_error(n_rows: int, roundoff: float, factors: float = 4.0) -> float:
    """Error of a sum of so many terms, in any order, in units of the largest term.

    Each addition errs by the roundoff times its result: results of all additions are no longer than
    2 + 3 + ... + n together. Products and factors add a few roundoffs a term, weights some more.
    """
    return 1.01 * (0.5 * n_rows**2 + factors * n_rows) * roundoff


@dataclass(frozen=True)
class StatisticsBound(ParameterBound):
    """Noise on class sums and on the second moment.

    Parameters
    ----------
    n_samples, n_features, n_classes : int
        Number of records n, of features d, and of classes K.
    norm_bound : float
        Norm B of the rows.
    rows : {"ball", "sphere"}
        Whether rows have norm at most B, or are scaled to B.
    share : float
        Share of mu squared that the class sums take; 1 if the second moment is not released.
    count_constant : float
        Constant that rows are augmented by where labels are protected; 0 for public labels.
    labels : {"public", "protected"}
        Whether label changes are adjacent.
    summed : int
        Outer products that may be summed in float32, which the sensitivity covers; 0 for none.
    sigma : tuple of float
        Noise scales: of the class sums, and of the second moment (a standard deviation of its
        diagonal; over the square root of two off the diagonal).
    weights : Weights or None
        Public weights of the records.
    pooled : bool
        Whether one sum of all rows is released in place of class sums, and nothing else.

    Raises
    ------
    ValueError
        If the domain is unknown, the share is not in (0, 1], a constant is not with class sums and
        protected labels, or a pooled sum is not alone.
    """

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
    share: float
    count_constant: float
    labels: str = "public"
    summed: int = 0
    sigma: tuple[float, ...] = ()
    weights: Weights | None = None
    pooled: bool = False

    def __post_init__(self) -> None:
        if self.rows not in DOMAINS:
            raise ValueError(f"rows must be one of {', '.join(DOMAINS)}; got {self.rows!r}.")
        if not 0.0 < self.share <= 1.0:
            raise ValueError(f"share={self.share!r} must lie in (0, 1].")
        if self.pooled and self.moment:
            raise ValueError(f"share={self.share!r}: a pooled sum is released alone (share=1).")
        if (self.count_constant > 0.0) != self.counted or self.count_constant < 0.0:
            raise ValueError(
                "a constant is for class sums with protected labels, and they need one."
            )
        n_scales = 1 + int(self.moment)
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
    def counted(self) -> bool:
        """Whether class counts are private, and released with the sums."""
        return self.labels == "protected" and not self.pooled

    @property
    def _values_of_sums(self) -> int:
        return self.n_sums * (self.n_features + int(self.counted))

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
        left = (mu - 2.0 * grid_slack(self.n_values)) * (1.0 - 2.0**-50)
        if left <= 0.0:
            raise ValueError(
                f"epsilon is too small: its mu={mu!r} is less than rounding to the sampler's grid "
                "takes; raise epsilon."
            )
        # Which precision sums are made in follows from the radius of the release, at every other.
        bound = replace(self, summed=self.group(radius))
        shares = np.array([self.share, 1.0 - self.share][: 1 + int(self.moment)])
        sigma = bound.sensitivity(radius) / np.sqrt(shares)
        # In these shares the two come to one, or to less where no record moves both the furthest.
        spent = replace(bound, sigma=tuple(sigma.tolist()))._ratio(radius, self.labels)
        return replace(bound, sigma=tuple((sigma * (spent / left)).tolist()))

    def scaled(self, factor: float) -> "StatisticsBound":
        """The same with ``factor`` times the noise."""
        return replace(self, sigma=tuple(factor * scale for scale in self.sigma))

    def group(self, radius: float) -> int:
        """Largest group whose sums in float32 cost little at the radius of a release; 0 if none."""
        if self.weights is not None and self.weights.most_records > 1:
            # Rounding counts once for each record: double precision makes it vanish.
            return 0
        whole = replace(self, summed=0).sensitivity(radius)
        # Products of extreme rows would over- or underflow in single precision.
        moderate = _LEAST_NORM <= self.norm_bound <= 1.0 / _LEAST_NORM
        for summed in GROUPS if self.moment and moderate else ():
            error = _group_error(summed, _SINGLE_ROUNDOFF, 4.0 + _FOLDS)
            added = self.largest * 2.0 * error * self.norm_bound**2
            if added <= _SINGLE_SHARE * whole[-1]:
                return summed
        return 0

    def mu_at(self, radius: float, labels: str) -> float:
        ratio = self._ratio(radius, labels) * (1.0 + 2.0**-50)
        return math.nextafter(ratio + grid_slack(self.n_values), math.inf)

    def _ratio(self, radius: float, labels: str) -> float:
        """Sensitivities over noise scales, both together."""
        sigma = np.asarray(self.sigma)
        ratios = self.sensitivity(radius, labels) / sigma
        ratio = math.hypot(*ratios.tolist())
        if self.moment:
            # No pair attains both at large radii; what rounding adds comes on top of the pairs.
            rounding = math.hypot(*(np.array(self._roundings()) / sigma).tolist())
            ratio = min(ratio, self._joint(radius, labels == "protected") * _UP + rounding)
        return ratio

    def _joint(self, radius: float, label_change: bool) -> float:
        """Largest distance of two records' sums and products together, in units of the noise.

        With s the squared distance of the rows over B squared: on the sphere products are
        2 s - s^2 / 2 apart, squared, which is concave in s with the sums' share; collinear rows of
        the ball are further apart up to s = 4/9, and grow with it.
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
        # It has no regulariser, and is of class sums.
        check_follows("alpha", record.alpha, 0.0)
        check_follows("bound.pooled", self.pooled, False)
        self.check_calibrated("bound", radius, mu)

    def check_calibrated(self, name: str, radius: float, mu: float) -> None:
        """Raise a ValueError unless all follows from what was spent at the radius of the release.

        Parameters
        ----------
        name : str
            What a record calls this bound.
        radius : float
            Euclidean radius.
        mu : float
            Mu that it was allowed to spend there.
        """
        if self.counted:
            constant = constant_of_counts(self.norm_bound, radius)
            check_follows(f"{name}.count_constant", self.count_constant, constant)
        whole = self.calibrated(radius, mu)
        check_follows(f"{name}.summed", self.summed, whole.summed)
        check_follows(f"{name}.sigma", self.sigma, whole.sigma)

    def sensitivity(self, radius: float, labels: str | None = None) -> NDArray[np.float64]:
        change = (labels or self.labels) == "protected"
        if self.pooled and change:
            # Only the rows count: a label change is a substitution at any distance.
            radius, change = full_radius(self.norm_bound), False
        domain = Domain.of_rounded_rows(self.norm_bound, radius)
        sums = domain.radius
        if change:
            # Two classes lose and gain a row with its constant.
            most = math.sqrt(2.0) * math.hypot(domain.norm_bound, self.count_constant)
            sums = max(sums, most)
        rounding = self._roundings()
        moved = [self.largest * sums + rounding[0]]
        if self.moment:
            moment = moment_sensitivity(
                domain.radius,
                norm_bound=domain.norm_bound,
                domain=self.rows,
                label_change=change,
            )
            moved.append(self.largest * moment + rounding[1])
        return np.array(moved)

    def _roundings(self) -> tuple[float, float]:
        """What rounding adds to the sensitivities of class sums and second moment."""
        b = Domain.of_rounded_rows(self.norm_bound, 0.0).norm_bound
        # Terms are as large as the largest weight; records of one unit may be in as many groups.
        record, several, factors = 1.0, 1, 4.0
        if is_weighted(self.weights):
            record, several, factors = self.weights.record, self.weights.most_records, 8.0
        sums = several * _group_error(CHUNK, UNIT_ROUNDOFF, factors) + self._folds()
        roundoff = _SINGLE_ROUNDOFF if self.summed else UNIT_ROUNDOFF
        # Rows are rounded too, and their factors, before they are multiplied by one another.
        group = _group_error(self.summed or SUMMED, roundoff, factors + _FOLDS)
        moment = several * group + self._folds()
        moment += several * 4.0 * roundoff
        return (
            2.0 * record * sums * math.hypot(b, self.count_constant),
            2.0 * record * moment * b**2,
        )

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

    def signal_and_noise(self, record: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
        n, b = total_of(self.weights, self.n_samples), self.norm_bound
        values = [self._values_of_sums, n_triangle(self.n_features)]
        signal = (n * math.hypot(b, self.count_constant), n * b**2)
        noise = tuple(s * math.sqrt(k) for s, k in zip(self.sigma, values, strict=False))
        return signal[: len(noise)], noise
