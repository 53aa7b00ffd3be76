"""Mean gradients of weighted records at any parameters: one pass, in double precision."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar

import numpy as np

from ..adjacency import RowGeometry
from ..losses import clip_residuals
from ..privacy.gaps import SMALLEST_CLIP, gap_at_any_parameters
from ..privacy.plain import are_numbers
from ..privacy.problem import Problem
from ..privacy.rounding import SHORTEST, block_rows, mean_rounding
from ..rows import each, row_blocks, rows_in_domain
from .kernel import Array, Query, Records
from .whitening import PublicMap

#: Bytes of rows in place that are kept between passes; more are put in place again in each.
KEPT_BYTES = 2**28
# Rounds a computed norm up: its evaluation errs by far less.
_UP = 1.0 + 1e-12
# Largest score in size that no row of the domain can make infinite.
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
            weights=problem.sums_weights,
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
            make = partial(Gradients, problem, records, *key)
            passes = records.view((problem, *key), make)
            together = passes.sums(thetas, alone=each) / problem.sums_weights.total
            by_query = together.swapaxes(-3, 0)  # with each, records come first
            for position, values in zip(positions, by_query, strict=True):
                answers[position] = values
        return answers


@lru_cache(1)
def _moves_no_further(whitening: PublicMap, problem: Problem) -> bool:
    """Whether a map moves no two rows further apart, and leaves them long enough to round."""
    if whitening.fault(problem.norm_bound, SHORTEST) is not None:
        return False
    return whitening.within_limits and len(whitening.centre) == problem.n_features


class Gradients:
    """Sums of gradients of a loss at any parameters, over records in place.

    Each pass brings rows into the domain, maps them by the public ``whitening`` if there is one,
    and augments them by ``constant``; few rows are kept as they are then. A row that holds NaN or
    infinity raises a FloatingPointError.
    """

    def __init__(
        self,
        problem: Problem,
        records: Records,
        whitening: PublicMap | None,
        constant: float,
        clip: float | None,
    ) -> None:
        self._problem, self._records, self._map = problem, records, whitening
        self._constant, self._clip = float(constant), clip
        self._weights, self._kept = records.weights, None
        if records.X.shape[0] * records.X.shape[1] * 8 <= KEPT_BYTES:
            kept = np.empty(records.X.shape)

            def keep(start: int, stop: int) -> None:
                for rows, block in self._blocks(start, stop):
                    kept[rows] = block

            list(each(keep, *kept.shape))
            self._kept = kept

    def _blocks(self, start: int, stop: int) -> Any:
        """Blocks of rows in place: in the domain, and moved; what shortens them comes after."""
        at = self._map
        if self._kept is not None:
            size = block_rows(self._kept.shape[1])
            places = (slice(i, min(i + size, stop)) for i in range(start, stop, size))
            yield from ((rows, self._kept[rows]) for rows in places)
            return
        for rows, block in row_blocks(self._records.X, start, stop):
            block = rows_in_domain(block, self._problem.norm_bound, self._problem.domain)
            factors = None
            if at is not None:
                block -= at.centre
                factors = at.projections(block)
            yield rows, block if factors is None else block * factors[:, None]

    def sums(self, thetas: Array, *, alone: bool = False) -> Array:
        """Sums of weighted gradients at some parameters; with ``alone`` those of every record."""
        d, n_columns = self._records.X.shape[1], thetas.shape[0] * thetas.shape[1]
        columns = thetas.reshape(n_columns, -1)
        weights, offsets = self._shortened(columns[:, :d]).T, self._constant * columns[:, d:]
        parts = partial(self._of_range, weights, offsets.sum(axis=1), thetas.shape[:2], alone)
        n = len(self._records)
        added = np.concatenate(list(each(parts, n, d))) if alone else sum(each(parts, n, d))
        columns = [self._shortened(added[..., :d])]
        if self._constant > 0.0:
            columns.append(self._constant * added[..., d:])
        return np.concatenate(columns, axis=-1).reshape(*added.shape[:-2], *thetas.shape)

    def _of_range(
        self, weights: Any, offsets: Array, shape: Any, alone: bool, start: int, stop: int
    ) -> Array:
        """Residuals times rows and times one, of a range of the records."""
        loss, codes = self._problem.kind, self._records.codes
        results: list[Array] = []
        added = np.zeros((len(offsets), weights.shape[0] + 1))
        for rows, block in self._blocks(start, stop):
            scores = (block @ weights + offsets).reshape(len(block), *shape)
            residuals = loss.residuals(scores, codes[rows])
            if self._clip is not None:
                residuals = clip_residuals(residuals, self._clip)
            residuals = residuals.reshape(len(block), -1)
            if self._weights is not None:
                residuals = residuals * self._weights[rows][:, None]
            block = np.hstack([block, np.ones((len(block), 1))])
            if alone:
                results.append(residuals[..., None] * block[:, None])
            else:
                added += residuals.T @ block
        return np.concatenate(results) if alone else added

    def _shortened(self, weights: Any) -> Any:
        """Weights for moved rows from those for mapped ones, or gradients the other way."""
        return weights if self._map is None else self._map.shortened(weights)
