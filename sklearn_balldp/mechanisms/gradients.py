"""Losses and gradients of weighted records at any parameters: one pass, in double precision."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..adjacency import RowGeometry
from ..losses import Codes, Loss, clip_residuals
from ..privacy.gaps import SMALLEST_CLIP, gap_at_any_parameters
from ..privacy.plain import are_numbers
from ..privacy.problem import Problem
from ..privacy.rounding import SHORTEST, mean_rounding
from ..rows import joined, kept_rows, rows_in_domain, total
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
            type(self.whitening) is PublicMap
            and self.whitening.fault(problem.norm_bound, SHORTEST) is None
            and self.whitening.within_limits
            and len(self.whitening.centre) == problem.n_features
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
        return self._passes(problem, records).sums(self.theta) / problem.sums_weights.total

    def _passes(self, problem: Problem, records: Records) -> "Gradients":
        """Sums over the records as it sees them."""
        seen = self.whitening, self.constant, self.clip
        return records.view((problem, *seen), partial(Gradients, problem, records, *seen))

    @classmethod
    def together(
        cls, queries: Sequence[Any], problem: Problem, records: Records, *, each: bool = False
    ) -> list[Array]:
        """One pass over the records for the queries that see them alike."""
        answers: list[Any] = [None] * len(queries)
        alike: dict[Any, list[int]] = {}
        for position, query in enumerate(queries):
            alike.setdefault((query.whitening, query.constant, query.clip), []).append(position)
        for positions in alike.values():
            thetas = np.stack([queries[i].theta for i in positions])
            passes = queries[positions[0]]._passes(problem, records)
            together = passes.sums(thetas, alone=each) / problem.sums_weights.total
            by_query = together.swapaxes(-3, 0)  # with each, records come first
            for position, values in zip(positions, by_query, strict=True):
                answers[position] = values
        return answers


@dataclass(frozen=True)
class Place:
    """Brings rows into the domain, and moves them by a public map; its factors come later."""

    norm_bound: float
    domain: str
    whitening: PublicMap | None = None

    def __call__(self, block: Array, out: Array | None = None) -> Array:
        """The rows in place, written to ``out`` if it is given."""
        block = rows_in_domain(block, self.norm_bound, self.domain, out)
        if self.whitening is None:
            return block
        block = np.subtract(block, self.whitening.centre, out=out)
        factors = self.whitening.projections(block)
        if factors is not None:
            block *= factors[:, None]
        return block


@dataclass(frozen=True)
class LossAt:
    """Losses and residuals of a block of records at public parameters: one or several at once."""

    place: Place | None  # None for rows in place
    loss: Loss
    weights: Array  # (n_features, n_parameters * n_scores), for rows in place
    offsets: Array  # (n_parameters * n_scores,)
    clip: float | None = None  # norm that the residual of each record is clipped to
    valued: bool = False  # whether losses are asked for; then of one parameter

    @property
    def width(self) -> int:
        """Number of scores of a row."""
        return len(self.offsets)

    def __call__(self, block: Array, codes: Codes, masses: Array | None) -> list[Array]:
        """Sums of weighted losses, of residuals times rows, and of residuals."""
        values, residuals, block = self._evaluated(block, codes, masses)
        return [values, residuals.T @ block, residuals.sum(axis=0)]

    def alone(self, block: Array, codes: Codes, masses: Array | None) -> Array:
        """Residuals times rows, and residuals in a last column, of every record alone."""
        _, residuals, block = self._evaluated(block, codes, masses)
        augmented = np.hstack([block, np.ones((len(block), 1))])
        return residuals[..., None] * augmented[:, None]

    def _evaluated(
        self, block: Array, codes: Codes, masses: Array | None
    ) -> tuple[Array, Array, Array]:
        if self.place is not None:
            block = self.place(block)
        scores = block @ self.weights + self.offsets
        residuals: Any
        values = np.zeros(1)
        if self.valued:
            values, residuals = self.loss.evaluate(scores, codes)
        else:
            residuals = self.loss.residuals(
                scores.reshape(len(block), -1, self.loss.n_scores), codes
            )
        if self.clip is not None:
            residuals = clip_residuals(residuals, self.clip)
        residuals = residuals.reshape(len(block), -1)
        if masses is not None:
            values, residuals = values * masses, residuals * masses[:, None]
        return values.sum(keepdims=True), residuals, block


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
        self._problem, self._map = problem, whitening
        self._constant, self._clip = float(constant), clip
        self._columns = records.codes, records.weights
        place = Place(problem.norm_bound, problem.domain, whitening)
        self._X: Any = records.X
        self._place: Place | None = None
        if isinstance(self._X, np.ndarray) and 8 * self._X.size <= KEPT_BYTES:
            self._X = kept_rows(place, self._X)
        else:
            self._place = place

    def sums(self, thetas: Array, *, alone: bool = False) -> Array:
        """Sums of weighted gradients at some parameters; with ``alone`` those of every record."""
        columns = thetas.reshape(-1, thetas.shape[-1])
        at, d = self._at(columns), self._X.shape[1]
        if alone:
            added = joined(at.alone, self._X, *self._columns)
            products, ones = added[..., :d], added[..., d:]
        else:
            _, products, sums = total(at, self._X, *self._columns)
            ones = sums[:, None]
        parts = [self._shortened(products)]
        if self._constant > 0.0:
            parts.append(self._constant * ones)
        gradients = np.concatenate(parts, axis=-1)
        return gradients.reshape(*gradients.shape[:-2], *thetas.shape)

    def _at(self, columns: Array, *, valued: bool = False) -> LossAt:
        """The function of a block at parameters, one in each row of ``columns``."""
        d = self._X.shape[1]
        weights = np.ascontiguousarray(self._shortened(columns[:, :d]).T)
        offsets = self._constant * columns[:, d:].sum(axis=1)
        return LossAt(self._place, self._problem.kind, weights, offsets, self._clip, valued)

    def _shortened(self, weights: Any) -> Any:
        """Weights for moved rows from those for mapped ones, or gradients the other way."""
        return weights if self._map is None else self._map.shortened(weights)
