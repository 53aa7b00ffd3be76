"""Sufficient statistics: class sums and the second moment, in one pass, released once with noise.

What is released is one array of independent noisy values (:class:`Layout`): the class sums; the
second moment, each of its two equal halves once, with off-diagonal values times the square root of
two, so that lengths are Frobenius norms; and, where labels are protected, noisy class counts.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import namespace
from ..privacy.bounds import Bound
from ..privacy.noise import Noise
from ..privacy.release import Release
from ..privacy.statistics import CHUNK, FOLDED, SUMMED, StatisticsBound
from ..privacy.weights import total_of
from ..rows import Shard, block_rows, domain_factors, place_rows, rows_in_domain, table_of
from .mechanism import (
    Array,
    Budget,
    Codes,
    Mechanism,
    Neighbours,
    Outcome,
    PrivateProblem,
    Problem,
    Promise,
    Rows,
    as_sets,
)
from .products import PANEL, in_blocks
from .settings import share_of_sums

# Usual blocks of rows that are read at a time: calls take time too.
_BLOCKS = 4
# Rows whose outer products may be summed in one go in single precision: the more, the faster.
_GROUPS = (256, 128)
# Rounding of float32 sums may take this share of the sensitivity; else they are made in float64.
_SINGLE_SHARE = 1.0 / 64.0
# Rows of smaller norm B, or of larger than its inverse, would over- or underflow in float32.
_LEAST_NORM = 1e-12


@dataclass(frozen=True)
class Statistics:
    """Noisy sufficient statistics, and their law: all of it public.

    Any linear discriminant can be made of them at no further cost
    (:meth:`.BallDPLinearDiscriminant.from_statistics`).

    Attributes
    ----------
    classes : ndarray of shape (n_classes,)
        Labels.
    counts : ndarray of shape (n_classes,)
        Records of each class (with weights their total weight): public numbers, or noisy ones where
        labels are protected.
    class_sums : ndarray of shape (n_classes, n_features)
        Noisy sums of the rows of each class, times their weights.
    second_moment : ndarray of shape (n_features, n_features) or None
        Noisy sum of x x^T over all rows, symmetric; None where it was not worth its noise.
    sigma_sums : float
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
    release : Release
        Public record of the release.
    """

    classes: NDArray[Any]
    counts: NDArray[Any]
    class_sums: Array
    second_moment: Array | None
    sigma_sums: float
    sigma_moment: float | None
    sigma_counts: float
    domain: str
    norm_bound: float
    total: float
    release: Release | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Layout:
    """Places of the released values in one array with a column for each feature.

    Rows hold, from the top: class sums (or one sum of all rows); diagonals of the second moment,
    wrapped around (for an even number of features the last has half as many values, and zeros);
    counts, and zeros.
    """

    n_sums: int
    n_features: int
    moment: bool
    counts: bool

    @classmethod
    def of(cls, bound: StatisticsBound) -> "Layout":
        """The layout of what a bound speaks of."""
        return cls(bound.n_sums, bound.n_features, bound.moment, bound.releases_counts)

    @property
    def n_diagonals(self) -> int:
        """Rows that the second moment takes."""
        return self.n_features // 2 + 1 if self.moment else 0

    @property
    def n_rows(self) -> int:
        """Rows of the array."""
        return self.n_sums + self.n_diagonals + math.ceil(self.n_counts / self.n_features)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the array."""
        return self.n_rows, self.n_features

    @property
    def n_counts(self) -> int:
        """Noisy counts that are released."""
        return self.n_sums if self.counts else 0

    def pack(self, sums: Array, moment: Array | None, counts: Array | None) -> Array:
        """One array of these values; only the upper half of the moment is read."""
        k, d = self.n_sums, self.n_features
        values = np.zeros((self.n_rows, d))
        values[:k] = sums
        if moment is not None:
            first, second = self._wrapped()
            diagonals = moment[np.minimum(first, second), np.maximum(first, second)]
            values[k : k + self.n_diagonals] = diagonals
            values[k + 1 : k + self.n_diagonals] *= math.sqrt(2.0)
            self._last(values)[:] = 0.0
        if counts is not None:
            values[k + self.n_diagonals :].reshape(-1)[: self.n_counts] = counts
        return values

    def scales(self, sums: float, moment: float) -> Array:
        """Noise scale of every value of such an array; zero where there is none."""
        k = self.n_sums
        scale = np.zeros((self.n_rows, self.n_features))
        scale[:k] = sums
        scale[k : k + self.n_diagonals] = moment
        if self.moment:
            self._last(scale)[:] = 0.0
        scale[k + self.n_diagonals :].reshape(-1)[: self.n_counts] = sums
        return scale

    def unpack(self, released: Array) -> tuple[Array, Array | None, Array | None]:
        """Class sums, second moment and counts of such an array; None for what it does not hold."""
        k, d = self.n_sums, self.n_features
        moment = counts = None
        if self.moment:
            first, second = self._wrapped()
            diagonals = released[k : k + self.n_diagonals].copy()
            diagonals[1:] /= math.sqrt(2.0)
            used = np.ones(diagonals.shape, dtype=bool)
            if d % 2 == 0:
                used[-1, d // 2 :] = False
            moment = np.empty((d, d))
            moment[first[used], second[used]] = diagonals[used]
            moment[second[used], first[used]] = diagonals[used]
        if self.counts:
            counts = released[k + self.n_diagonals :].reshape(-1)[: self.n_counts].copy()
        return released[:k].copy(), moment, counts

    def _wrapped(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Row and column, in the second moment, of the values of each wrapped diagonal."""
        first = np.broadcast_to(np.arange(self.n_features), (self.n_diagonals, self.n_features))
        return first, (first + np.arange(self.n_diagonals)[:, None]) % self.n_features

    def _last(self, released: Array) -> Array:
        """The half of the last diagonal that repeats the other; empty for an odd number."""
        d = self.n_features
        half = d // 2 if d % 2 == 0 else d
        return released[self.n_sums + self.n_diagonals - 1, half:]


class StatisticsPerturbation(Mechanism):
    """Noise on class sums and on the second moment of the rows.

    Parameters
    ----------
    share : float or None, default=None
        How the budget is divided: what takes the larger share gets less noise. It is the share of
        the squared mu that the class sums take; 1 leaves the second moment out. None takes what
        :func:`.share_of_sums` finds from public numbers.
    """

    name = "statistics"

    def __init__(self, share=None):
        self.share = share

    def settings_beside(self, record: Any) -> dict[str, tuple[Any, Any]]:
        return {} if self.share is None else {"share": (float(self.share), record.bound.share)}

    def promise(self, problem: Problem, budget: Budget) -> Promise:
        return Promise(self.bound(problem, budget.mu))

    def bound(self, problem: Problem, mu: float, *, pooled: bool = False) -> StatisticsBound:
        """The bound of a release that spends ``mu`` at the problem's radius.

        Parameters
        ----------
        problem, mu : Problem, float
            Public numbers of the fit, and Gaussian differential privacy to spend.
        pooled : bool, default=False
            Whether one sum of all rows takes the place of all others.

        Returns
        -------
        StatisticsBound
            With noise scales.
        """
        counted = problem.labels == "protected" and not pooled
        share = 1.0 if pooled else self.share
        share = share_of_sums(problem, mu) if share is None else float(share)
        bound = StatisticsBound(
            n_samples=problem.n_samples,
            n_features=problem.n_features,
            n_classes=problem.n_classes,
            norm_bound=problem.norm_bound,
            rows=problem.domain,
            share=share,
            count_constant=_constant_of_counts(problem) if counted else 0.0,
            labels=problem.labels,
            weights=problem.sums_weights,
            pooled=pooled,
        )
        summed = _summed_in_single(bound, problem.radius)
        return replace(bound, summed=summed).calibrated(problem.radius, mu)

    def run(self, problem: PrivateProblem, promise: Promise, noise: Noise) -> Outcome:
        return Outcome(noise(*self.noiseless(problem, promise)))

    def noiseless(self, problem: PrivateProblem, promise: Promise) -> tuple[Array, Array]:
        bound: Any = promise.bound
        sums, moment = sufficient_statistics(problem, bound)
        return self._packed(bound, sums, moment, problem.counts()), scales_of(bound)

    def _packed(
        self, bound: StatisticsBound, sums: Array, moment: Array | None, counts: Array
    ) -> Array:
        weighed: Any = counts * bound.count_constant if bound.releases_counts else None
        return Layout.of(bound).pack(sums, moment, weighed)

    def neighbours(self, problem: PrivateProblem, promise: Promise) -> Neighbours:
        # In closed form: a record adds its row to one class sum, and one outer product.
        bound: Any = promise.bound
        all_sums, all_moments = sufficient_statistics(problem, bound)

        def models(left_out: Any, rows: Rows, codes: Codes) -> Array:
            places, rows, codes = as_sets(left_out, rows, codes)

            def placed(some: Rows) -> Array:
                return rows_in_domain(some.astype(np.float64), bound.norm_bound, bound.rows)

            old, own = placed(problem.X[places]), problem.codes[places]
            weights = np.ones(len(places))
            if problem.row_weights is not None:
                weights = problem.row_weights[places]
            found = []
            for some, code in zip(rows, codes, strict=True):
                new = placed(some)
                sums, counts, moment = all_sums.copy(), problem.counts(), None
                np.subtract.at(sums, 0 * own if bound.pooled else own, weights[:, None] * old)
                np.add.at(sums, 0 * code if bound.pooled else code, weights[:, None] * new)
                np.subtract.at(counts, own, weights)
                np.add.at(counts, code, weights)
                if all_moments is not None:
                    moment = all_moments + (new.T * weights) @ new - (old.T * weights) @ old
                found.append(self._packed(bound, sums, moment, counts))
            return np.stack(found)

        return Neighbours(models, scales_of(bound))


def _constant_of_counts(problem: Problem) -> float:
    """Constant that rows are augmented by where labels are protected: it gives noisy counts.

    A label change moves the sums by sqrt(2) (B^2 + c^2)^(1/2); c is as large as costs nothing
    beside substitutions within the radius, and at least B / 2.
    """
    norm_bound = problem.norm_bound
    r = min(problem.radius, 2.0 * norm_bound)
    return max(0.5 * norm_bound, math.sqrt(max(0.5 * r**2 - norm_bound**2, 0.0)))


def _summed_in_single(bound: StatisticsBound, radius: float) -> int:
    """Outer products that may be summed in float32 at little cost; 0 for none."""
    several = bound.weights is not None and bound.weights.most_records > 1
    moderate = _LEAST_NORM <= bound.norm_bound <= 1.0 / _LEAST_NORM
    # Rounding counts once for each record of a unit: double precision makes it vanish.
    if several or not moderate or not bound.moment:
        return 0
    cheap = (n for n in _GROUPS if bound.single_share(radius, n) <= _SINGLE_SHARE)
    return next(cheap, 0)


def scales_of(bound: StatisticsBound) -> Array:
    """Noise scales of the values that a bound speaks of."""
    sums, *moment = bound.sigma
    return Layout.of(bound).scales(sums, *(moment or [0.0]))


def statistics_of(
    released: Array, bound: Bound, classes: NDArray[Any], public_counts: Any
) -> Statistics:
    """What was released, by name, before its record is complete.

    ``public_counts`` are records of each class, or their weights; None where they are private.
    """
    if not isinstance(bound, StatisticsBound):
        raise ValueError("bound: a linear discriminant needs class sums and a second moment.")
    sums, moment, weighed = Layout.of(bound).unpack(released)
    counts, sigma = public_counts, 0.0
    if bound.pooled:
        counts = np.array([total_of(bound.weights, bound.n_samples)])
    elif weighed is not None:
        counts, sigma = weighed / bound.count_constant, bound.sigma[0] / bound.count_constant
    return Statistics(
        classes=classes,
        counts=counts,
        class_sums=sums,
        second_moment=moment,
        sigma_sums=bound.sigma[0],
        sigma_moment=bound.sigma[1] if bound.moment else None,
        sigma_counts=sigma,
        domain=bound.rows,
        norm_bound=bound.norm_bound,
        total=total_of(bound.weights, bound.n_samples),
    )


def sufficient_statistics(
    problem: PrivateProblem, bound: StatisticsBound
) -> tuple[Array, Array | None]:
    """Weighted class sums and the upper half of the second moment, in one pass over blocks of rows.

    Outer products of ``bound.summed`` rows are summed in the precision of the rows, where the bound
    covers that; everything else is in float64.
    """
    X, d = problem.X, problem.n_features
    table = table_of(X, codes=problem.codes, weights=problem.row_weights)
    # The bound covers single precision in sums of this many rows, on one machine; in double any
    # number would do.
    single = table.local and bound.summed > 0 and X.dtype.itemsize <= 4
    precision: Any = np.float32 if single else np.float64
    class_sums, *panels = table.total(_sums_of, bound, precision)
    if not bound.moment:
        return class_sums, None
    upper = np.zeros((d, d))
    for start, panel in zip(range(0, d, PANEL), panels, strict=True):
        upper[start : start + PANEL, start:] = panel
    return class_sums, upper


def _sums_of(part: Shard, bound: StatisticsBound, precision: Any) -> tuple[Array, ...]:
    """Class sums of one shard, and the panels of its second moment."""
    n_sums, d = bound.n_sums, bound.n_features
    codes, row_weights = part.column("codes"), part.column("weights")
    if bound.pooled:
        codes = 0 * codes
    summed = bound.summed or SUMMED
    # A power of two groups, so that a chunk is of whole blocks.
    size = summed << (max(1, min(_BLOCKS * block_rows(d), CHUNK) // summed).bit_length() - 1)
    total, chunk = (part.to_device(np.zeros((n_sums, d))) for _ in range(2))
    n_moments = d if bound.moment else 0
    moments: Any = _WholeMoments(n_moments, part) if part.on_device else None
    moments = moments or _Moments(n_moments, precision, summed)
    sums_of = part.class_sums(n_sums)
    placed = None if part.on_device else np.empty((size, d), dtype=precision)
    wide = None if precision == np.float64 else np.empty((size, d))
    # Read in the precision of products: what is placed for these need not be converted back.
    for rows, read in part.blocks(size, precision):
        block = read
        if wide is not None:
            block = wide[: len(read)]
            # A conversion of NaN warns; the check of the factors refuses it by name.
            with np.errstate(invalid="ignore"):
                np.copyto(block, read)
        factors = domain_factors(block, bound.norm_bound, bound.rows)
        weights = part.to_device(np.ones(block.shape[0])) if factors is None else factors
        own = None if row_weights is None else row_weights[rows]
        entries = weights if own is None else weights * own
        chunk += sums_of(block, codes[rows], entries)
        if own is not None:
            # Outer products take the root of the weight twice.
            weights = weights * namespace(own).sqrt(own)
        if placed is None:
            out = block * weights[:, None]
        else:
            out = placed[: len(block)]
            place_rows(out, read, None if factors is None and own is None else weights)
        moments.add(out)
        if rows.stop // CHUNK > rows.start // CHUNK:
            total += chunk
            chunk[:] = 0.0
            moments.fold()
    moments.fold()
    return total + chunk, *moments.total


class _Moments:
    """Sum of outer products of rows, its upper half in panels of a few features each.

    Groups of rows are multiplied in their precision. Sums of a few groups are added up in pairs
    there, and in float64 from then on.
    """

    def __init__(self, n_features: int, precision: Any, summed: int) -> None:
        self._summed = summed
        starts = range(0, n_features, PANEL)
        shapes = [(min(PANEL, n_features - start), n_features - start) for start in starts]
        self._starts = starts
        # One room for the products of all panels.
        self._room = np.empty(FOLDED * min(PANEL, n_features) * n_features, dtype=precision)
        self._chunk = [np.zeros(shape) for shape in shapes]
        self.total = [np.zeros(shape) for shape in shapes]

    def add(self, rows: NDArray[np.floating]) -> None:
        for some, size in in_blocks(len(rows), self._summed):
            groups = rows[some].reshape(-1, size, rows.shape[1])
            for first in range(0, len(groups), FOLDED):
                self._add_groups(groups[first : first + FOLDED])

    def _add_groups(self, groups: NDArray[np.floating]) -> None:
        for start, chunk in zip(self._starts, self._chunk, strict=True):
            left = groups[:, :, start : start + PANEL].swapaxes(1, 2)
            products = self._room[: len(groups) * chunk.size].reshape(-1, *chunk.shape)
            np.matmul(left, groups[:, :, start:], out=products)
            while len(products) > 1:
                pairs, rest = len(products) // 2, -(-len(products) // 2)
                products[:pairs] += products[rest:]
                products = products[:rest]
            chunk += products[0]

    def fold(self) -> None:
        for total, chunk in zip(self.total, self._chunk, strict=True):
            total += chunk
            chunk[:] = 0.0


class _WholeMoments:
    """As :class:`_Moments`, on a device: all of the products, in double precision."""

    def __init__(self, n_features: int, part: Shard) -> None:
        self._sum = part.to_device(np.zeros((n_features, n_features)))

    def add(self, rows: Any) -> None:
        if self._sum.shape[0]:
            self._sum += rows.T @ rows

    def fold(self) -> None:
        """Sums are of few rows as they are."""

    @property
    def total(self) -> list[Any]:
        d = self._sum.shape[0]
        return [self._sum[a : min(a + PANEL, d), a:] for a in range(0, d, PANEL)]
