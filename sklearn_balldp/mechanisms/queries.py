"""The queries whose sensitivity this package proves: sums, mean gradients, certified minimisers.

Each is plain data: it can be printed, pickled and asked again of other records. Its ``ratio`` is
proved on the page "What is asked of the records" of the documentation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from ..adjacency import RowGeometry
from ..privacy.bounds import Blocks, as_float_or_tuple
from ..privacy.gaps import (
    METHODS,
    SMALLEST_CLIP,
    gap_at_any_parameters,
    gap_over_minimisers,
    minimizer_norm_bound,
)
from ..privacy.problem import Problem
from ..privacy.rounding import SHORTEST, UNIT_ROUNDOFF, additions, mean_rounding
from ..privacy.sensitivity import moment_sensitivity
from ..rows import Shard, block_rows, domain_factors, table_of, working_precision
from .gradients import Gradients
from .kernel import Array, Query, Records
from .objective import LinearObjective, gradient_rounding
from .solver import minimise
from .whitening import PublicMap

# Rounds a computed bound up: its evaluation errs by far less.
_UP = 1.0 + 1e-12
# Share of the certified gradient norm that the computed one may use; the rest is its rounding.
_ACCEPTED = 0.9
# Largest score in size that no row of the domain can make infinite, in any precision.
_MOST_SCORE = 1e15
# Gradient norms below this share of the size of the summed terms are lost in rounding.
_REACHABLE = 1e-13


# -- sums over records ----------------------------------------------------------------------------


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
        scales, weights = self._occupied(problem), problem.sums_weights
        smallest = float(scales.min())
        sums, moment = self._moves(problem, radius, labels)
        rounding = self._roundings(problem)
        noise = math.inf if self.moment is None else self.moment
        ratio = math.hypot((sums + rounding[0]) / smallest, (moment + rounding[1]) / noise)
        if self.moment is not None:
            # At large radii no pair of records attains both; rounding is added to it.
            together = self._joint_move(problem, radius, labels, smallest)
            ratio = min(
                ratio, together * _UP + math.hypot(rounding[0] / smallest, rounding[1] / noise)
            )
        if weights.class_largest is not None and not self.pooled:
            # A person moves each class by the weight there. Beside a moment that holds of the
            # two largest moves alone, not of the joint one: records of two classes may move
            # unequally.
            sizes: Any = problem.class_sizes
            largest = np.array(weights.class_largest)[sizes > 0.0]
            share = weights.block_factor * float(np.max(largest / scales)) / weights.largest
            by_class = sums * share + rounding[0] / smallest
            ratio = min(ratio, math.hypot(by_class, (moment + rounding[1]) / noise))
        return ratio * (1.0 + 2.0**-50)

    def _is_proved(self, problem: Problem) -> bool:
        """Whether these are sums that the proof speaks of."""
        n_scales = np.size(self.sigma)
        lengths = n_scales == 1 or n_scales == self.n_sums(problem)
        scales = self._occupied(problem) if lengths else np.zeros(1)
        positive = bool((scales > 0.0).all() and np.isfinite(scales).all()) and scales.size > 0
        moment = self.moment is None or (0.0 < self.moment < math.inf and not self.pooled)
        counted = self.constant > 0.0
        counts = not counted or (problem.labels == "protected" and not self.pooled)
        return positive and moment and counts and 0.0 <= self.constant < math.inf

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
        """What rounding adds to the moves of class sums and second moment.

        In double precision each computed sum is close to the exact one, whichever machines make it,
        in whatever order: the terms of n rows err by the additions that they pass through, and the
        factor of a row with the squares in its norm. Products and weights add a few roundoffs.
        """
        b = RowGeometry.of_rounded_rows(problem.norm_bound, 0.0).norm_bound
        n, d = problem.n_samples, problem.n_features
        record = problem.sums_weights.record
        error = 2.0 * record * 1.01 * (additions(n, d) + d + 64.0) * n * UNIT_ROUNDOFF
        return error * math.hypot(b, self.constant), error * b**2

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
        weights = problem.sums_weights
        if len(scales) > 1 and weights.class_largest is not None:
            largest = np.array(weights.class_largest) / weights.largest
            moved = sums * largest * weights.block_factor
        if len(scales) > 1:
            sizes: Any = problem.class_sizes
            moved = np.where(sizes > 0.0, moved, 0.0)
        return as_float_or_tuple(moved), as_float_or_tuple(scales)

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
        table = table_of(records.X, codes=records.codes, weights=records.weights)
        return self._flat(problem, *table.total(_sums_of, self, problem))

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


def _sums_of(part: Shard, query: Sums, problem: Problem) -> tuple[Any, Any, Any]:
    """Class sums, upper half of the second moment, and counts, of a shard's records."""
    k, d = query.n_sums(problem), problem.n_features
    sums, counts = np.zeros((k, d)), np.zeros(k)
    side = d if query.moment is not None else 0
    moment: Any = np.zeros((side, side), order="F")
    codes, weights, sums_of = part.column("codes"), part.column("weights"), part.class_sums(k)
    # Few large blocks: one pass only, and calls take time.
    for rows, block in part.blocks(2 * block_rows(d)):
        factors = domain_factors(block, problem.norm_bound, problem.domain)
        entries = np.ones(len(block)) if factors is None else factors
        factors_of_records = None if weights is None else weights[rows]
        classes = 0 * codes[rows] if query.pooled else codes[rows]
        sums += sums_of(
            block, classes, entries if factors_of_records is None else entries * factors_of_records
        )
        if query.constant > 0.0:
            counts += np.bincount(classes, factors_of_records, k)
        if query.moment is None:
            continue
        if factors is not None or factors_of_records is not None:
            scale = entries if factors_of_records is None else entries * factors_of_records**0.5
            block = block * scale[:, None]
        moment = dsyrk(1.0, block.T, beta=1.0, c=moment, overwrite_c=True)
    return sums, moment, counts


# -- mean gradients at public parameters ----------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MeanGradient(Query):
    """Mean gradient of the loss at public parameters, without the regulariser.

    Attributes
    ----------
    theta : ndarray of shape (n_scores, n_columns)
        Where it is taken; the last column is of the constant, if there is one.
    sigma : float
        Noise scale.
    clip : float or None
        Norm that the residual of each record is clipped to.
    constant : float
        What rows are augmented by; 0 for no intercept.
    whitening : PublicMap or None
        Public map of the rows, which moves no two of them further apart.
    """

    additive: ClassVar[bool] = True

    theta: Array
    sigma: float = 1.0
    clip: float | None = None
    constant: float = 0.0
    whitening: PublicMap | None = None

    def ratio(self, problem: Problem, radius: float, labels: str) -> float:
        if not (0.0 < self.sigma < math.inf and self._is_proved(problem)):
            return math.inf
        norm = float(np.linalg.norm(self.theta)) * _UP
        return self.move(problem, radius, labels, norm) / self.sigma

    def move(self, problem: Problem, radius: float, labels: str, norm: float) -> float:
        """Furthest that one unit moves the mean gradient at parameters of a ``norm``, or less."""
        rows, mapped = self._rows(problem, radius), self.whitening
        gap = gap_at_any_parameters(problem.kind, rows, clip=self.clip, labels=labels)
        rounding = mean_rounding(
            problem.kind,
            norm=norm,
            n_samples=problem.n_samples,
            n_features=problem.n_features,
            norm_bound=problem.norm_bound if mapped is None else mapped.reach,
            constant=self.constant,
            clip=self.clip,
            dtype=self.precision(problem),
            weights=problem.loss_weights,
            whitened=mapped is not None and mapped.shortens,
        )
        return gap / problem.effective_size + 2.0 * rounding

    def _rows(self, problem: Problem, radius: float) -> RowGeometry:
        """Rows as the gradient sees them, with the allowance for their rounding."""
        norm = problem.norm_bound if self.whitening is None else self.whitening.norm
        return RowGeometry.of_rounded_rows(norm, radius, self.constant)

    def _is_proved(self, problem: Problem) -> bool:
        """Whether the state is one that the proof of the sensitivity speaks of.

        No row of the domain then makes a score infinite, or a gradient that is no number.
        """
        if not (problem.loss and 0.0 <= self.constant < math.inf):
            return False
        if not (self.clip is None or SMALLEST_CLIP <= self.clip < math.inf):
            return False
        mapped = self.whitening is None or (
            type(self.whitening) is PublicMap and _moves_no_further(self.whitening, problem)
        )
        shape = problem.kind.n_scores, problem.n_features + int(self.constant > 0.0)
        if not mapped or self.theta.shape != shape:
            return False
        largest = float(np.abs(self.theta).max())  # NaN is within no limit
        if not largest < float(np.finfo(self.precision(problem)).max):
            return False
        longest = _MOST_SCORE / self._rows(problem, 0.0).augmented
        return largest <= longest and float(np.linalg.norm(self.theta)) <= longest

    def shape(self, problem: Problem) -> tuple[int, ...]:
        return self.theta.shape

    def values(self, problem: Problem, records: Records) -> Array:
        return self.together([self], problem, records)[0]

    @classmethod
    def together(
        cls, queries: Sequence[Any], problem: Problem, records: Records, *, each: bool = False
    ) -> list[Array]:
        """One pass over the records for the queries that see them alike."""
        answers: list[Any] = [None] * len(queries)
        alike: dict[Any, list[int]] = {}
        for position, query in enumerate(queries):
            alike.setdefault((query.whitening, query.constant, query.clip), []).append(position)
        for key, positions in alike.items():
            first, thetas = queries[positions[0]], np.stack([queries[i].theta for i in positions])

            def make(query: Any = first) -> Gradients:
                return Gradients(
                    problem,
                    records,
                    whitening=query.whitening,
                    constant=query.constant,
                    clip=query.clip,
                    dtype=query.precision(problem),
                )

            passes = records.view((problem, *key), make)
            together = passes.sums(thetas, each=each) / problem.loss_weights.total
            by_query = np.moveaxis(together, -3, 0)  # with each, records come first
            for position, values in zip(positions, by_query, strict=True):
                answers[position] = values
        return answers

    def precision(self, problem: Problem) -> Any:
        """Single for such rows, where each record is in one block alone; else double."""
        weights = problem.loss_weights
        if problem.precision == "float64" or weights.most_records > 1:
            return np.float64
        norm = problem.norm_bound if self.whitening is None else self.whitening.norm
        return working_precision(np.dtype(np.float32), norm, self.clip or 1.0, weights.largest)


@lru_cache(1)
def _moves_no_further(whitening: PublicMap, problem: Problem) -> bool:
    """Whether a map moves no two rows further apart, and leaves them long enough to round."""
    if len(whitening.centre) != problem.n_features:
        return False
    return whitening.within_limits and whitening.fault(problem.norm_bound, SHORTEST) is None


# -- the certified minimiser ----------------------------------------------------------------------


@dataclass(frozen=True)
class Minimiser(Query):
    r"""Minimiser of the regularised mean loss, whose gradient has norm ``tol`` at most.

    It moves by at most :math:`G / (\alpha n) + 2 tol / \alpha` with one record, G the largest
    distance between two adjacent records' gradients at any minimiser (the *gradient gap*).

    Attributes
    ----------
    tol : float
        Fixed before the data; its share of the sensitivity is covered by noise.
    method : {"tight", "paper"}
        The proof of the gap.
    sigma : float
        Noise scale.
    """

    what: ClassVar[str] = "noise on the minimiser"

    tol: float
    method: str = "tight"
    sigma: float = 1.0

    def ratio(self, problem: Problem, radius: float, labels: str) -> float:
        if not (0.0 < self.sigma < math.inf and self._is_proved(problem)):
            return math.inf
        moved = self.gap(problem, radius, labels) / (problem.alpha * problem.effective_size)
        moved += 2.0 * self.tol / problem.alpha
        norm = math.sqrt(problem.kind.n_stacked) * self.norm(problem)
        moved += 4.0 * UNIT_ROUNDOFF * (norm + self.tol / problem.alpha)
        return moved / self.sigma

    def _is_proved(self, problem: Problem) -> bool:
        """Whether there is a minimiser, and its tolerance is one that can be certified."""
        regular = bool(problem.loss) and problem.alpha > 0.0 and self.method in METHODS
        return regular and 0.0 <= self.tol < math.inf

    def domain(self, problem: Problem, radius: float) -> RowGeometry:
        """Augmented rows and a radius, with the allowance for rounding."""
        return RowGeometry.of_rounded_rows(problem.norm_bound, radius, float(problem.fit_intercept))

    def gap(self, problem: Problem, radius: float, labels: str) -> float:
        """Upper bound of the gradient gap, with the allowance for rounded rows."""
        domain = self.domain(problem, radius)
        return gap_over_minimisers(
            problem.kind, domain, problem.alpha, method=self.method, labels=labels
        )

    def norm(self, problem: Problem) -> float:
        """Upper bound of the norm of one problem's weights before noise."""
        return minimizer_norm_bound(
            problem.loss,
            alpha=problem.alpha,
            norm_bound=self.domain(problem, 0.0).norm_bound,
            fit_intercept=problem.fit_intercept,
            n_classes=problem.n_classes,
        )

    def rounding(self, problem: Problem) -> tuple[float, float]:
        """Smallest gradient norm within reach of float64, and a bound on a computed one's error."""
        row_norm, loss = self.domain(problem, 0.0).augmented, problem.kind
        # The gradient is computed near the minimiser, at a distance of up to tol / alpha.
        norm = self.norm(problem) + self.tol / problem.alpha
        size = row_norm * math.sqrt(loss.n_scores)
        reachable = _REACHABLE * size * (1.0 + loss.curvature * norm * row_norm)
        rounding = gradient_rounding(
            problem.loss,
            n_samples=problem.n_samples,
            n_features=problem.n_features,
            n_classes=problem.n_classes,
            norm=norm,
            row_norm=row_norm,
        )
        return reachable, rounding

    def accepted(self, problem: Problem) -> float:
        """Gradient norm that the solver stops at: with rounding it is the certified one."""
        return min(_ACCEPTED * self.tol, self.tol - self.rounding(problem)[1])

    def certifiable(self, problem: Problem) -> "Minimiser":
        """The same with the next tolerance that is reached on every data set of the domain.

        Raises
        ------
        ValueError
            If there is none at this regularisation.
        """
        # The smallest reachable norm and its rounding error are public numbers. The certified norm
        # must exceed the computed norm that is accepted: tol >= accepted + rounding.
        reachable, rounding = self.rounding(problem)
        tol = max(self.tol, reachable)
        query = replace(self, tol=max(tol, _ACCEPTED * tol + rounding))
        if query.accepted(problem) < 0.5 * tol:
            raise ValueError(
                f"alpha={problem.alpha!r} is too small: in double precision no minimiser can be "
                "certified at this shape; raise alpha."
            )
        return query

    def shape(self, problem: Problem) -> tuple[int, ...]:
        return problem.kind.n_scores, problem.n_features + int(problem.fit_intercept)

    def values(self, problem: Problem, records: Records) -> Array:
        objective = LinearObjective(
            problem.loss,
            records.X,
            records.codes,
            problem.n_classes,
            alpha=problem.alpha,
            norm_bound=problem.norm_bound,
            fit_intercept=problem.fit_intercept,
            domain=problem.domain,
            weights=records.loss_weights(problem),
            total=problem.loss_weights.total,
        )
        return minimise(objective, tol=self.accepted(problem))

    def theorem(self, problem: Problem) -> str:
        gap = {
            "tight": "G the certified gradient gap",
            "paper": "G = L_z r (Margaryan & Gupta)",
        }[self.method]
        n = "alpha n" if problem.loss_weights.uniform else "alpha W / s"
        return f"G / ({n}) + 2 tol / alpha: {problem.loss} minimiser, {gap}"

    def check(self, problem: Problem) -> None:
        if not (self._is_proved(problem) and self.sigma > 0.0):
            raise ValueError(
                f"tol={self.tol!r}, method={self.method!r}, sigma={self.sigma!r} are no noise on a "
                "minimiser of this problem."
            )


#: The queries whose sensitivity is proved here.
PROVED: tuple[type[Query], ...] = (Sums, MeanGradient, Minimiser)
