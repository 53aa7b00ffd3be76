"""Noisy sums over the records, and the mechanisms that ask for nothing else.

How far a record moves them is proved on the page "What is asked of the records".
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from .._parameters import check_option
from ..adjacency import RowGeometry
from ..losses import Codes
from ..privacy.bounds import Blocks, as_float_or_tuple
from ..privacy.plain import are_numbers
from ..privacy.problem import Problem
from ..privacy.rounding import sums_rounding
from ..privacy.sensitivity import moment_sensitivity
from ..rows import rows_in_domain, total
from .base import Mechanism
from .kernel import Array, Conversation, Query, Records
from .rules.discriminant import likely_counts
from .settings import share_of_sums

#: How prototypes use the public class counts.
COUNT_MODES = ("per_class", "min", "worst")
# Rounds a computed bound up: its evaluation errs by far less.
_UP = 1.0 + 1e-12


@dataclass(frozen=True)
class Statistics:
    """Noisy sums by name, and the scales of their noise: all of it public.

    Attributes
    ----------
    counts : ndarray of shape (n_classes,)
        Records of each class (with weights their total weight): public numbers, or noisy ones where
        labels are protected.
    class_sums : ndarray of shape (n_classes, n_features)
        Noisy sums of the rows of each class, times their weights.
    second_moment : ndarray of shape (n_features, n_features) or None
        Noisy sum of x x^T over all rows, symmetric; None where it was not asked for.
    sigma_sums : ndarray of shape (n_classes,)
        Standard deviation of the noise in each value of ``class_sums``.
    sigma_moment : float or None
        Standard deviation of the noise on the diagonal of ``second_moment``; off the diagonal it
        is less by the square root of two.
    sigma_counts : float
        Standard deviation of the noise in ``counts``; 0 where they are public.
    domain : {"ball", "sphere"}
        Whether rows have norm at most ``norm_bound``, or are scaled to it.
    norm_bound : float
        Norm B of the rows.
    total : float
        Number of records; with weights their sum.
    """

    counts: Array
    class_sums: Array
    second_moment: Array | None
    sigma_sums: Array
    sigma_moment: float | None
    sigma_counts: float
    domain: str
    norm_bound: float
    total: float


@dataclass(frozen=True)
class Sums(Query):
    r"""Class sums of the rows, and with them their second moment, or private counts.

    Values lie flat: the sums; the second moment, each pair of features once, off the diagonal times
    the root of two, so that lengths are Frobenius norms; the counts times ``constant``. One
    substitution within a class moves the sums by at most the radius, and the second moment by
    :func:`.moment_sensitivity`.

    Attributes
    ----------
    sigma : float or tuple of float
        Noise scale of each class sum, or of all. 0 for a public class without records.
    moment : float or None
        Noise scale of the second moment (over the root of two off the diagonal); None: not asked.
    constant : float
        What rows are augmented by where counts are private; 0: counts are not asked.
    pooled : bool
        Whether one sum of all rows takes the place of class sums.
    """

    additive: ClassVar[bool] = True
    what: ClassVar[str] = "noise on class sums"
    parts: ClassVar[str] = "class sums"

    sigma: float | tuple[float, ...] = 1.0
    moment: float | None = None
    constant: float = 0.0
    pooled: bool = False

    def scaled(self, factor: float) -> Self:
        sums = (np.array(self.sigma) * factor).tolist()
        moment = None if self.moment is None else self.moment * factor
        return replace(self, sigma=tuple(sums) if isinstance(sums, list) else sums, moment=moment)

    # The sensitivity.

    def ratio(self, problem: Problem, radius: float, labels: str) -> float:
        if not self._is_proved(problem):
            return math.inf
        # By the furthest moves of class sums and second moment, as if one record made both.
        bounds = [self._in_noise(problem, *self._moves(problem, radius, labels))]
        if self.moment is not None:
            bounds.append(self._by_joint_move(problem, radius, labels))
        if problem.sums_weights.class_largest is not None and not self.pooled:
            bounds.append(self._by_class(problem, radius, labels))
        return min(bounds) * (1.0 + 2.0**-50)

    def _by_joint_move(self, problem: Problem, radius: float, labels: str) -> float:
        """By the furthest joint move: at large radii no pair of records attains both."""
        smallest = float(self._occupied(problem).min())
        together = self._joint_move(problem, radius, labels, smallest) * _UP
        return together + self._in_noise(problem, 0.0, 0.0)

    def _by_class(self, problem: Problem, radius: float, labels: str) -> float:
        """By the weight that a person has in each class.

        Beside a moment this holds of the two furthest moves, and not of the joint one: records of
        two classes may move unequally.
        """
        sums, moment = self._moves(problem, radius, labels)
        weights, scales = problem.sums_weights, self._occupied(problem)
        sizes: Any = problem.class_sizes
        largest = np.array(weights.class_largest)[sizes > 0.0]
        share = weights.block_factor * float(np.max(largest / scales)) / weights.largest
        return self._in_noise(problem, sums * share * float(scales.min()), moment)

    def _in_noise(self, problem: Problem, sums: float, moment: float) -> float:
        """Moves of class sums and second moment, with their rounding, in units of the noise."""
        rounding = self._roundings(problem)
        noise = math.inf if self.moment is None else self.moment
        smallest = float(self._occupied(problem).min())
        return math.hypot((sums + rounding[0]) / smallest, (moment + rounding[1]) / noise)

    def _is_proved(self, problem: Problem) -> bool:
        """Whether these are sums that the proof speaks of."""
        sigma: Any = self.sigma
        if type(sigma) is not tuple:
            sigma = () if type(sigma) is np.ndarray else (sigma,)
        numbers = self.constant, 1.0 if self.moment is None else self.moment
        if not (are_numbers(*sigma, *numbers) and type(self.pooled) is bool):
            return False
        n_scales = np.size(self.sigma)
        lengths = n_scales == 1 or n_scales == self.n_sums(problem)
        scales = self._occupied(problem) if lengths else np.zeros(1)
        positive = bool((scales > 0.0).all() and np.isfinite(scales).all()) and scales.size > 0
        noisy = self.moment is None or (0.0 < self.moment < math.inf and not self.pooled)
        counted = self.constant > 0.0
        counts = not counted or (problem.labels == "protected" and not self.pooled)
        # A larger one could make the counts of some records infinite.
        small = self.constant >= 0.0 and self.constant * problem.sums_weights.total <= 1e300
        return positive and noisy and counts and small

    def _occupied(self, problem: Problem) -> Array:
        """Noise scales of the sums, without those of public classes that have no records."""
        sizes = problem.class_sizes
        if sizes is None or self.pooled:
            return np.atleast_1d(np.asarray(self.sigma, dtype=np.float64))
        return np.broadcast_to(np.asarray(self.sigma, dtype=np.float64), len(sizes))[sizes > 0.0]

    def _moves(self, problem: Problem, radius: float, labels: str) -> tuple[float, float]:
        """Furthest that one unit moves the sums, and the second moment."""
        change = labels == "protected"
        if self.pooled and change:
            # The pooled sum ignores labels: a label change is a substitution at any distance.
            radius, change = problem.diameter, False
        geometry = RowGeometry.of_rounded_rows(problem.norm_bound, radius)
        sums, moment = geometry.radius, 0.0
        if change:
            # One class loses a row with its constant, and another class gains one.
            changed = math.sqrt(2.0) * math.hypot(geometry.norm_bound, self.constant)
            sums = max(sums, changed)
        if self.moment is not None:
            moment = moment_sensitivity(
                geometry.radius,
                norm_bound=geometry.norm_bound,
                domain=problem.domain,
                label_change=change,
            )
        largest = problem.sums_weights.largest
        return largest * sums, largest * moment

    def _joint_move(self, problem: Problem, radius: float, labels: str, sigma: float) -> float:
        """Largest joint distance of two records' rows and outer products, in units of the noise.

        Let s be the squared distance of the rows over B^2. On the sphere the squared distance of
        the outer products is 2 s - s^2 / 2 (over B^4), and the total is concave in s. In the ball,
        the outer products of collinear rows are further apart up to s = 4/9, increasingly with s.
        """
        geometry = RowGeometry.of_rounded_rows(problem.norm_bound, radius)
        b, noise = geometry.norm_bound, self.moment or math.nan
        t = geometry.radius / b
        sums, moment = (sigma / b) ** 2, (noise / b**2) ** 2
        s = min(t**2, 4.0, 2.0 + moment / sums)
        largest = s / sums + (2.0 * s - 0.5 * s**2) / moment
        if problem.domain == "ball":
            u = min(t, 2.0 / 3.0)
            largest = max(largest, u**2 / sums + (u * (2.0 - u)) ** 2 / moment)
        if labels == "protected":
            # Orthogonal rows of norm B.
            changed = 2.0 * (1.0 + (self.constant / b) ** 2) / sums + 2.0 / moment
            largest = max(largest, changed)
        return problem.sums_weights.largest * math.sqrt(largest)

    def _roundings(self, problem: Problem) -> tuple[float, float]:
        """What rounding adds to the moves of class sums and second moment."""
        b = RowGeometry.of_rounded_rows(problem.norm_bound, 0.0).norm_bound
        return sums_rounding(
            n_samples=problem.n_samples,
            n_features=problem.n_features,
            record=problem.sums_weights.record,
            augmented=math.hypot(b, self.constant),
            norm=b,
        )

    def sensitivity(self, problem: Problem) -> tuple[float, float]:
        """Furthest moves (L2) of the sums and of the second moment (0 without), with rounding."""
        sums, moment = self._moves(problem, problem.euclidean_radius, problem.labels)
        rounding = self._roundings(problem)
        return sums + rounding[0], 0.0 if self.moment is None else moment + rounding[1]

    def stated(self, problem: Problem) -> tuple[Blocks, Blocks]:
        sums, moment = self.sensitivity(problem)
        scales = np.atleast_1d(np.asarray(self.sigma, dtype=np.float64))
        if self.moment is not None:
            return (sums, moment), (float(scales.max()), self.moment)
        moved = np.full(len(scales), sums)
        if len(scales) > 1:
            weights, sizes = problem.sums_weights, problem.class_sizes
            if weights.class_largest is not None:
                largest = np.array(weights.class_largest) / weights.largest
                moved = sums * largest * weights.block_factor
            moved = np.where(sizes > 0.0, moved, 0.0)  # type: ignore[operator]
        return as_float_or_tuple(moved), as_float_or_tuple(scales)

    def by_query(self, problem: Problem) -> list[tuple[str, Blocks, Blocks]]:
        if self.moment is None:
            return super().by_query(problem)
        moves, scales = self.stated(problem)
        names = self.parts, "second moment"
        return [(n, m, s) for n, m, s in zip(names, moves, scales, strict=True)]  # type: ignore[arg-type]

    def theorem(self, problem: Problem) -> str:
        change = ", label changes included" if problem.labels == "protected" else ""
        times = "" if problem.sums_weights.uniform else "s times "
        if self.pooled:
            distance = "r" if problem.labels == "public" else "2 B"
            return f"{times}{distance} for the sum of all rows{change}"
        if self.moment is None:
            return f"{times}r for class sums{change}"
        where = "in the ball" if problem.domain == "ball" else "on the sphere"
        return f"{times}r for class sums, {times}F(r) for the second moment of rows {where}{change}"

    def check(self, problem: Problem) -> None:
        if not self._is_proved(problem):
            raise ValueError(
                f"sigma={self.sigma!r}, moment={self.moment!r}, constant={self.constant!r} are no "
                "noise scales of sums over these classes."
            )

    # The values.

    def n_sums(self, problem: Problem) -> int:
        """How many sums of rows are released: one for each class, or one of all."""
        return 1 if self.pooled else problem.n_classes

    def shape(self, problem: Problem) -> tuple[int, ...]:
        k, d = self.n_sums(problem), problem.n_features
        return (k * (d + int(self.constant > 0.0)) + (0 if self.moment is None else _triangle(d)),)

    def scales(self, problem: Problem) -> Array:
        k, d = self.n_sums(problem), problem.n_features
        sums = np.broadcast_to(np.asarray(self.sigma, dtype=np.float64), k)
        moment = np.full(0 if self.moment is None else _triangle(d), self.moment, dtype=np.float64)
        return np.concatenate(
            [np.repeat(sums, d), moment, sums if self.constant > 0.0 else sums[:0]]
        )

    def values(self, problem: Problem, records: Records) -> Array:
        domain = problem.norm_bound, problem.domain
        of_block = partial(
            _sums_of, *domain, self.n_sums(problem), self.pooled, self.moment is not None
        )
        return self._flat(problem, *total(of_block, records.X, records.codes, records.weights))

    def _flat(self, problem: Problem, sums: Array, moment: Any, counts: Array) -> Array:
        """Values in one row; only the upper half of the moment is read."""
        parts = [sums.reshape(*sums.shape[:-2], -1)]
        if self.moment is not None:
            i, j = _pairs(problem.n_features)
            parts.append(np.where(i == j, 1.0, math.sqrt(2.0)) * moment[..., i, j])
        if self.constant > 0.0:
            parts.append(self.constant * counts)
        return np.concatenate(parts, axis=-1)

    def statistics(self, problem: Problem, released: Array) -> Statistics:
        """The ``released`` values, copied, by name, and their noise scales."""
        k, d = self.n_sums(problem), problem.n_features
        size = 0 if self.moment is None else _triangle(d)
        sums, flat, noisy = np.split(released, [k * d, k * d + size])
        moment = None
        counts: Any = problem.class_sizes
        if self.pooled:
            counts = np.array([problem.sums_weights.total])
        elif self.constant > 0.0:
            counts = noisy / self.constant
        if self.moment is not None:
            i, j = _pairs(d)
            moment = np.empty((d, d))
            moment[i, j] = moment[j, i] = np.where(i == j, flat, flat / math.sqrt(2.0))
        scales = np.array(np.broadcast_to(np.asarray(self.sigma, dtype=np.float64), k))
        return Statistics(
            counts=counts,
            class_sums=sums.reshape(k, d).copy(),
            second_moment=moment,
            sigma_sums=scales,
            sigma_moment=self.moment,
            sigma_counts=float(scales.max()) / self.constant if self.constant > 0.0 else 0.0,
            domain=problem.domain,
            norm_bound=problem.norm_bound,
            total=problem.sums_weights.total,
        )


def _triangle(n_features: int) -> int:
    """Number of values of a symmetric matrix."""
    return n_features * (n_features + 1) // 2


@lru_cache(1)
def _pairs(d: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions of a symmetric matrix's values, each once: the diagonal, and those beside it."""
    i = np.tile(np.arange(d), d // 2 + 1)
    j = (i + np.repeat(np.arange(d // 2 + 1), d)) % d
    size = _triangle(d)
    return np.minimum(i, j)[:size], np.maximum(i, j)[:size]


def _sums_of(
    norm_bound: float,
    domain: str,
    n_sums: int,
    pooled: bool,
    squared: bool,
    block: Array,
    codes: Codes,
    weights: Array | None,
) -> list[Array]:
    """Class sums, upper half of the second moment (none unless ``squared``), and counts."""
    own = block if block.flags.writeable else None  # a copy: rows that are kept are locked
    block = rows_in_domain(block, norm_bound, domain, own)
    masses = np.ones(len(block)) if weights is None else weights
    classes = 0 * codes if pooled else codes
    # Column i holds row i's weight at its class.
    places = masses, classes, np.arange(len(block) + 1)
    sums = sp.csc_array(places, (n_sums, len(block))) @ block
    moment: Any = np.zeros((0, 0))
    if squared:
        moment = dsyrk(1.0, (block if weights is None else block * (masses**0.5)[:, None]).T)
    return [sums, moment, np.bincount(classes, masses, n_sums)]


@dataclass(eq=False, repr=False)
class StatisticsPerturbation(Mechanism):
    """Noise on class sums and on the second moment of the rows."""

    name = "statistics"

    #: Of mu squared, for the class sums; 1 leaves the second moment out, None asks the rule.
    share: float | None = None

    def bound(self, problem: Problem, mu: float) -> Sums:
        share = share_of_sums(problem, mu) if self.share is None else float(self.share)
        return class_sums(problem, mu, share)

    def conversation(self, problem: Problem, bound: Sums) -> Conversation:
        return (yield bound)


@dataclass(eq=False, repr=False)
class PrototypePerturbation(Mechanism):
    """Noise on class sums, of which ridge prototypes are made."""

    name = "prototypes"

    #: Noise in each prototype: what its count asks for, what the smallest asks for, or what a count
    #: of one would (the paper's). Not used where labels are protected: counts are released too.
    counts: str = "per_class"

    def check(self) -> None:
        check_option("counts", self.counts, COUNT_MODES)

    def bound(self, problem: Problem, mu: float) -> Sums:
        sizes, weights = problem.class_sizes, problem.sums_weights
        if sizes is None:
            return class_sums(problem, mu, 1.0)
        if self.counts == "worst" and not weights.uniform:
            raise ValueError(
                "counts='worst' is the paper's, for one record of one weight a person; use "
                "counts='per_class' with groups or weights."
            )
        # What a class sum is divided by; a prototype's noise is that of the sum over half of it.
        shrink: Any = 2.0 * sizes + problem.alpha * weights.total
        present = sizes > 0.0
        scales = np.array(weights.class_largest) if self.counts == "per_class" else shrink
        query = Sums(tuple(np.where(present, scales, 0.0).tolist())).calibrated(problem, mu)
        if self.counts == "worst":
            smallest: float = np.min(shrink[present])
            query = query.scaled(smallest / (2.0 + problem.alpha * weights.total))
        return query

    def conversation(self, problem: Problem, bound: Sums) -> Conversation:
        return (yield bound)


def class_sums(problem: Problem, mu: float, share: float, *, pooled: bool = False) -> Sums:
    """The query that spends ``mu`` at the radius, a ``share`` of its square on class sums.

    A share of 1 asks no second moment; ``pooled`` asks one sum of all rows in place of class sums.
    """
    counted = problem.labels == "protected" and not pooled
    query = Sums(constant=constant_of_counts(problem) if counted else 0.0, pooled=pooled)
    if share < 1.0 and not pooled:
        sums, moment = replace(query, moment=1.0).sensitivity(problem)
        query = replace(
            query, sigma=sums / math.sqrt(share), moment=moment / math.sqrt(1.0 - share)
        )
    return query.calibrated(problem, mu)


def constant_of_counts(problem: Problem) -> float:
    """Constant of rows for noisy counts: as large as costs nothing, and B / 2 at least."""
    norm_bound = problem.norm_bound
    r = min(problem.euclidean_radius, 2.0 * norm_bound)
    return max(0.5 * norm_bound, math.sqrt(max(0.5 * r**2 - norm_bound**2, 0.0)))


def prototypes_of(statistics: Any, alpha: float) -> Array:
    """Ridge prototypes of noisy class sums: 2 S_c / (2 n_c + alpha n)."""
    shrink = 2.0 * likely_counts(statistics) + alpha * statistics.total
    return 2.0 * statistics.class_sums / shrink[:, None]
