"""Regularised mean losses of linear scores, evaluated on row blocks; sums accumulate in float64.

Rows are brought into the domain by one factor each, and never copied.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsyrk

from ..losses import Array, Loss, make_loss
from ..rows import Shard, block_rows, check_unchanged, domain_factors, row_blocks, table_of
from .products import block_sums, scores_of


class LinearObjective:
    """Regularised mean of a loss over rows in the domain; losses are divided by ``total``."""

    def __init__(
        self,
        loss: str,
        X: NDArray[np.floating],
        codes: NDArray[np.intp],
        n_classes: int,
        *,
        alpha: float,
        norm_bound: float,
        fit_intercept: bool,
        domain: str = "ball",
        weights: Array | None = None,
        total: float | None = None,
    ) -> None:
        self.loss = make_loss(loss, n_classes)
        self.X, self.codes, self.alpha = X, codes, float(alpha)
        self.weights, self.total = weights, float(len(X)) if total is None else float(total)
        self.norm_bound, self.fit_intercept = float(norm_bound), fit_intercept
        self.domain = domain
        self.shape = (self.loss.n_scores, X.shape[1] + int(fit_intercept))
        #: Largest norm of an augmented row.
        self.row_norm = math.hypot(self.norm_bound, float(fit_intercept))
        #: Lipschitz constant of the gradient, and value at zero, for every dataset of the domain.
        self.smoothness = self.loss.curvature * self.row_norm**2 + self.alpha
        self.value_at_zero = self.loss.value_at_zero
        self._passes = _ShardSums(self.loss, self.norm_bound, fit_intercept, domain)
        table = table_of(X, codes=codes, weights=weights)
        self._table = table.with_columns(self._passes.factors)

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """Objective and gradient at ``theta`` (shape ``self.shape``), in one pass."""
        value, gradient = self._table.total(self._passes.evaluate, theta)
        value, gradient = value / self.total, gradient / self.total + self.alpha * theta
        return value + 0.5 * self.alpha * float(np.vdot(theta, theta)), gradient

    def second_moment(self, n_rows: int) -> Array:
        """Second moment of about ``n_rows`` augmented rows, evenly spread: a preconditioner."""
        step = max(1, len(self.X) // n_rows)
        moment, sample = self._table.total(self._passes.moment, step)
        upper: Array = np.triu(moment) / sample
        return upper + np.triu(upper, 1).T


@dataclass(frozen=True)
class _ShardSums:
    """What an objective computes from one shard."""

    loss: Loss
    norm_bound: float
    fit_intercept: bool
    domain: str

    def factors(self, part: Shard) -> dict[str, Array]:
        """Factors that bring each row into the domain; empty if no row needs one."""
        columns: dict[str, Array] = {}
        for rows, block in part.blocks():
            factors = domain_factors(block, self.norm_bound, self.domain)
            if factors is not None:
                if not columns:
                    columns["factors"] = np.ones(len(part))
                columns["factors"][rows] = factors
        return columns

    def evaluate(self, part: Shard, theta: Array) -> tuple[float, Array]:
        """Sums of losses and of gradients."""
        codes, weights, factors = map(part.column, ("codes", "weights", "factors"))
        value, gradient, n_features = 0.0, np.zeros(theta.shape), part.shape[1]
        # One column is a matrix-vector product, which BLAS runs faster as such.
        columns = theta[0, :n_features] if len(theta) == 1 else theta[:, :n_features].T
        for rows, block in part.blocks():
            scale: Any = 1.0 if factors is None else factors[rows][:, None]
            if part.may_change:
                check_unchanged(block * scale, self.norm_bound)
            scores: Any = scores_of(block, columns).reshape(len(block), len(theta))
            if factors is not None:
                scores *= scale
            if self.fit_intercept:
                scores += theta[:, -1]
            values, residuals = self.loss.evaluate(scores, codes[rows])
            if weights is not None:
                values = values * weights[rows]
                residuals *= weights[rows][:, None]
            value += float(values.sum())
            if self.fit_intercept:
                # NumPy sums contiguous columns pairwise, so that the error of many stays small.
                gradient[:, -1] += np.ascontiguousarray(residuals.T).sum(axis=1)
            residuals = residuals if factors is None else residuals * scale
            if len(theta) == 1:
                gradient[0, :n_features] += residuals[:, 0] @ block
            else:
                gradient[:, :n_features] += block_sums(residuals, block)
        return value, gradient

    def moment(self, part: Shard, step: int) -> tuple[Array, int]:
        """Outer products of every ``step``-th row, added up (upper half), and their number."""
        factors, sample = part.column("factors"), part.every_nth(step)
        width = sample.shape[1] + int(self.fit_intercept)
        moment = np.zeros((width, width), order="F")
        if factors is not None:
            factors = factors[-part.start % step :: step]
        for rows, block in row_blocks(sample, size=max(1, block_rows(width) // 8)):
            if factors is not None:
                block = block * factors[rows][:, None]
            if self.fit_intercept:
                block = np.pad(block, ((0, 0), (0, 1)), constant_values=1.0)
            moment = dsyrk(1.0, block.T, beta=1.0, c=moment, overwrite_c=True)
        return moment, len(sample)
