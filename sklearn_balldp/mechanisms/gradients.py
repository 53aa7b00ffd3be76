"""Mean gradients of weighted records at any parameters, with a bound on what rounding moves.

float32 rows are computed in float32, which halves the time of a pass, on one machine. Between two
datasets that differ in one row all other blocks must then be the same numbers, bit by bit. So
nothing but a row itself may decide how it is stored or computed: rows are always copied, to C
order, from blocks in C order. Several records of one person may be in as many blocks, each of which
errs by itself: their sums are made in double precision. "Finite precision" has the proofs.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np

from .._cached import cached_property
from ..adjacency import RowGeometry
from ..losses import SHORT, Loss, clip_residuals
from ..privacy.gaps import SMALLEST_CLIP, gap_at_any_parameters
from ..privacy.plain import are_numbers
from ..privacy.problem import Problem
from ..privacy.rounding import BLOCK, SHORTEST, SUMMED, mean_rounding
from ..rows import (
    Shard,
    block_rows,
    check_unchanged,
    domain_factors,
    place_rows,
    table_of,
    working_precision,
)
from ..rows.passes import BLOCK_VALUES
from ..rows.sources import Floats
from .kernel import Array, Query, Records
from .products import block_sums, scores_of
from .whitening import PublicMap

#: Bytes of moved and projected rows that are kept between passes; more are made again in each.
KEPT_BYTES = 2**27
# Factors from this to one over it may wait for the scores and residuals of their rows: even single
# precision holds the squares of rows that long.
_MILD = 2.0**-20
# Rounds a computed norm up: its evaluation errs by far less.
_UP = 1.0 + 1e-12
# Largest score in size that no row of the domain can make infinite, in any precision.
_MOST_SCORE = 1e15


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
        if not (self._is_proved(problem) and 0.0 < self.sigma < math.inf):
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
        numbers = self.sigma, self.constant, 0.0 if self.clip is None else self.clip
        if not (are_numbers(*numbers) and type(self.theta) is np.ndarray):
            return False
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
        alike: dict[tuple[Any, Any, Any], list[int]] = {}
        for position, query in enumerate(queries):
            alike.setdefault((query.whitening, query.constant, query.clip), []).append(position)
        for key, positions in alike.items():
            thetas = np.stack([queries[i].theta for i in positions])
            dtype = queries[positions[0]].precision(problem)
            make = partial(Gradients, problem, records, *key, dtype)
            passes = records.view((problem, *key), make)
            together = passes.sums(thetas, each=each) / problem.loss_weights.total
            by_query = together.swapaxes(-3, 0)  # with each, records come first
            for position, values in zip(positions, by_query, strict=True):
                answers[position] = values
        return answers

    def precision(self, problem: Problem) -> Any:
        """Single for such rows, where each record is in one block alone; else double."""
        weights = problem.loss_weights
        if problem.precision == "float64" or weights.most_records > 1:
            return np.float64
        norm = problem.norm_bound if self.whitening is None else self.whitening.norm
        numbers = norm, self.clip or 1.0, weights.largest, max(self.constant, 1.0)
        return working_precision(np.dtype(np.float32), *numbers)


@lru_cache(1)
def _moves_no_further(whitening: PublicMap, problem: Problem) -> bool:
    """Whether a map moves no two rows further apart, and leaves them long enough to round."""
    if whitening.fault(problem.norm_bound, SHORTEST) is not None:
        return False
    return whitening.within_limits and len(whitening.centre) == problem.n_features


class Gradients:
    """Gradients of a loss at any parameters, of records that are placed once.

    Rows are brought into the domain, mapped by the public ``whitening`` if there is one, and
    augmented by ``constant``. A row that holds NaN or infinity raises a FloatingPointError.
    """

    def __init__(
        self,
        problem: Problem,
        records: Records,
        whitening: PublicMap | None,
        constant: float,
        clip: float | None,
        dtype: Any,
    ) -> None:
        self._loss, self._clip, self._constant = problem.kind, clip, float(constant)
        self._norm_bound, self._domain = problem.norm_bound, problem.domain
        self._records, self._weights = records, records.loss_weights(problem)
        self._n, self._d = records.X.shape
        self._whitening, self._dtype = whitening, np.dtype(dtype)
        # Rows as they are multiplied, where they are kept: what scales them last comes after.
        self._kept: Floats | None = None

    @cached_property
    def _table(self) -> Any:
        """Rows in place, or their factors, shard by shard."""
        records = self._records
        table = table_of(records.X, codes=records.codes, weights=self._weights)
        self._dtype = np.dtype(table.precision(self._dtype))
        placing = self._placing
        if table.can_keep(self._n * self._d * self._dtype.itemsize, KEPT_BYTES):
            self._kept = np.empty((self._n, self._d), dtype=self._dtype)
            table = table.with_columns(placing.fill, self._kept).on(self._kept)
        else:
            table = table.with_columns(placing.factors)
        table.use_threads()
        return table

    @cached_property
    def _map(self) -> PublicMap | None:
        return None if self._whitening is None else self._whitening.rounded(self._dtype)

    @property
    def _placing(self) -> "_Placing":
        return _Placing(self._norm_bound, self._map, self._dtype, self._domain)

    @cached_property
    def _pass(self) -> "_GradientPass":
        placing = None if self._kept is not None else self._placing
        return _GradientPass(self._loss, self._clip, self._constant, placing)

    def sums(self, thetas: Array, *, each: bool = False) -> Array:
        """Sums of weighted gradients at some parameters; with ``each`` those of every record."""
        table = self._table
        columns = thetas.reshape(-1, thetas.shape[2]).astype(self._dtype)
        # Rows stay where they were moved: weights and gradients take the rest of the way.
        weights = np.ascontiguousarray(self._turned(columns[:, : self._d]).astype(self._dtype).T)
        offsets = (self._constant * columns[:, -1]).astype(self._dtype).reshape(thetas.shape[:2])
        if each:
            parts = table.each(replace(self._pass, each=True), weights, offsets)
            total = np.concatenate([part for (part,) in parts])
        else:
            total = table.total(self._pass, weights, offsets)[0]
        total[..., : self._d] = self._turned(total[..., : self._d])
        return total.reshape(*total.shape[:-2], *thetas.shape)

    def _turned(self, weights: Any) -> Any:
        """Weights for moved rows from those for mapped ones, or gradients the other way."""
        if self._map is None or not self._map.shortens:
            return weights
        return self._map.shortened(weights.astype(np.float64))


@dataclass(frozen=True)
class _Placing:
    """How rows are scaled, moved and projected before they are computed with in ``dtype``."""

    norm_bound: float
    whitening: PublicMap | None
    dtype: np.dtype
    domain: str

    def fill(self, part: Shard, rows: Floats) -> dict[str, Floats]:
        """Write the rows of a shard, as they are computed with; give what scales them last."""
        last: dict[str, Any] = {}
        for places, block, (first, after) in self._blocks(part):
            out = rows[part.start + places.start :][: len(block)]
            self._place(out, block, first, finite=True)
            self._note(part, last, "last", places, after)
        return last

    def factors(self, part: Shard) -> dict[str, Any]:
        """What rows of a shard are multiplied by, if anything, at first and at last."""
        columns: dict[str, Any] = {}
        for places, _, pair in self._blocks(part):
            for name, factors in zip(("first", "last"), pair, strict=True):
                self._note(part, columns, name, places, factors)
        return columns

    def _blocks(self, part: Shard) -> Iterator[tuple[slice, Array, tuple[Any, Any]]]:
        """Blocks of float64 rows, and their factors at first and at last; None for ones."""
        # One room for all blocks: new memory would take longer than what is done in it.
        size = max(1, block_rows(part.shape[1]) // 2)
        room = np.empty((min(size, len(part)), part.shape[1]))
        for places, block in part.blocks(size):
            first = domain_factors(block, self.norm_bound, self.domain)
            if self.whitening is None:
                yield places, block, _split_factors(first)
                continue
            out = room[: len(block)]
            moving = block if first is None else np.multiply(block, first[:, None], out=out)
            moved = np.subtract(moving, self.whitening.centre, out=out)
            yield places, block, (first, self.whitening.projections(moved))

    def _note(
        self, part: Shard, columns: dict[str, Any], name: str, places: slice, factors: Any
    ) -> None:
        """Keep factors of some rows of a shard; those of all others are one."""
        if factors is not None:
            if name not in columns:
                columns[name] = np.ones(len(part))
            columns[name][places] = factors

    def _place(self, out: Floats, block: Floats, first: Array | None, *, finite: bool) -> None:
        """Multiply rows by what they are at first, and move them, in the precision of ``out``."""
        place_rows(out, block, first, finite=finite)
        if self.whitening is not None:
            out -= self.whitening.centre

    def chunks(self, part: Shard, size: int) -> Iterator[tuple[slice, Floats]]:
        """Rows of a shard as they are computed with, projected and moved again."""
        first, last = part.column("first"), part.column("last")
        placed = np.empty((min(size, len(part)), part.shape[1]), dtype=self.dtype)
        few = max(1, block_rows(part.shape[1]) // 2)
        for rows, block in part.blocks(size, part.dtype.type, once=True):
            # A few at a time, which stay in the cache.
            for start in range(0, len(block), few):
                places = slice(rows.start + start, min(rows.start + start + few, rows.stop))
                out = placed[start : start + few][: places.stop - places.start]
                few_first = None if first is None else first[places]
                self._place(out, block[start : start + few], few_first, finite=not part.may_change)
                if part.may_change:
                    self._check(out, None if last is None else last[places])
            yield rows, placed[: len(block)]

    def _check(self, rows: Floats, last: Array | None) -> None:
        """Raise a ValueError where a row is outside of the ball since its factor was computed."""
        at = self.whitening
        if at is None:
            check_unchanged(rows, self.norm_bound, last)
            return
        with np.errstate(all="ignore"):
            squares = at.squares(rows)
        check_unchanged(rows, at.norm, last, squares=squares)


def _split_factors(factors: Any) -> tuple[Any, Any]:
    """What rows are multiplied by, and what their scores and residuals are instead.

    A row's factor alone decides which: others must not change how it is computed.
    """
    if factors is None:
        return None, None
    mild = (factors >= _MILD) & (factors <= 1.0 / _MILD)
    last = np.where(mild, factors, 1.0)
    return (None if mild.all() else np.where(mild, 1.0, factors)), last


@dataclass(frozen=True)
class _GradientPass:
    """Sum of the gradients of a shard's records; ``placing`` is None where they are placed."""

    loss: Loss
    clip: float | None
    constant: float
    placing: _Placing | None
    each: bool = False

    def __call__(self, part: Shard, weights: Any, offsets: Any) -> tuple[Array]:
        """From offsets of columns, and weights of shape (n_features, n_columns)."""
        n_features, n_columns = weights.shape[0], math.prod(offsets.shape)
        codes, own_weights = part.column("codes"), part.column("weights")
        last = part.column("last")
        shape = n_columns, n_features + int(self.constant > 0.0)
        total = np.zeros((len(part), *shape) if self.each else shape)
        summed = _of_each if self.each else block_sums
        for rows, block in self._chunks(part, n_columns):
            # One column is a matrix-vector product, which BLAS runs faster as such.
            scores = scores_of(block, weights[:, 0] if n_columns == 1 else weights)
            # NumPy takes many short rows several times as fast in column order.
            scores = np.asfortranarray(scores) if 1 < n_columns <= SHORT else scores
            scores = scores.reshape(len(block), *offsets.shape)
            # What rows are scaled by at last scales their scores and gradients instead.
            scale = None if last is None else last[rows].astype(scores.dtype)
            if scale is not None:
                scores *= scale[:, None, None]
            if self.constant > 0.0:
                scores += offsets
            residuals = self.loss.residuals(scores, codes[rows])
            if self.clip is not None:
                residuals = clip_residuals(residuals, self.clip)
            residuals = residuals.reshape(len(block), n_columns)
            if own_weights is not None:
                residuals *= own_weights[rows].astype(residuals.dtype)[:, None]
            into = total[rows] if self.each else total
            if self.constant > 0.0:
                into[..., -1] += self.constant * summed(residuals)[..., 0]
            if scale is not None:
                residuals *= scale[:, None]
            into[..., :n_features] += summed(residuals, block)
        return (total,)

    def _chunks(self, part: Shard, n_columns: int) -> Iterator[tuple[slice, Floats]]:
        """Rows as they are computed with: a few megabytes at a time, in whole summed blocks."""
        # Calls take time too: small chunks would save less in the cache than they cost.
        values = (8 if self.placing is None else 4) * BLOCK_VALUES
        # Where classes are many, their scores are what a cache must hold.
        size = min(BLOCK, values // part.shape[1], 2 * BLOCK_VALUES // n_columns)
        size = max(SUMMED, size // SUMMED * SUMMED)
        if self.placing is not None:
            yield from self.placing.chunks(part, size)
            return
        for first in range(0, len(part), size):
            rows = slice(first, min(first + size, len(part)))
            yield rows, part.rows[rows]


def _of_each(residuals: Any, rows: Any = None) -> Array:
    """Each record's residuals times its row (or times one)."""
    products: Array = residuals[..., None] * (1.0 if rows is None else rows[:, None])
    return products
