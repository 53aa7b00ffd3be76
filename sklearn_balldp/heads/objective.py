r"""Regularised mean losses of linear scores, evaluated on row blocks.

.. math:: F(\theta) = \frac1W \sum_i w_i \ell(\theta \tilde x_i; y_i)
          + \frac{\alpha}{2} \|\theta\|^2

with public weights of sum W (1 and n where there are none), :math:`\tilde x = (x, 1)` under an
intercept (regularised) and :math:`x` without. Rows are projected onto the admissible ball by one
factor per row, never copied; sums accumulate in float64.
"""

import copy
import math

import numpy as np
from numpy.typing import NDArray

from ..losses import Array, make_loss
from ..rows import (
    Rows,
    ball_factors,
    block_rows,
    check_unchanged,
    map_shards,
    row_blocks,
    total_of_shards,
)

_UNIT_ROUNDOFF = 2.0**-53
# Second derivatives of so many scores are kept between passes; of more they are computed again.
_KEPT = 2**23


class LinearObjective:
    """Regularised mean of a loss over projected rows, its gradient and curvature.

    Parameters
    ----------
    loss : {"logistic", "softmax", "squared_hinge"}
        Loss of one record.
    X : ndarray of shape (n_samples, n_features)
        float16, float32 or float64 rows, projected onto the ball on the fly.
    codes : ndarray of shape (n_samples,)
        Class codes 0..K-1.
    n_classes : int
        K.
    alpha : float
        Regularisation strength.
    norm_bound : float
        Radius of the admissible ball.
    fit_intercept : bool
        Whether rows are augmented by a constant 1.
    weights : ndarray of shape (n_samples,), optional
        Weight of each record; 1 by default.
    total : float, optional
        What the sum of losses is divided by; the number of records by default.

    Raises
    ------
    FloatingPointError
        If a row holds NaN or infinity.
    """

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
        weights: Array | None = None,
        total: float | None = None,
    ) -> None:
        self.loss = make_loss(loss, n_classes)
        self.X, self.codes, self.alpha = X, codes, float(alpha)
        self.weights, self.total = weights, float(len(X)) if total is None else float(total)
        self.norm_bound, self.fit_intercept = float(norm_bound), fit_intercept
        self.shape = (self.loss.n_scores, X.shape[1] + int(fit_intercept))
        self._factors = self._projection()
        self._curvature: Array | None = None

    @property
    def row_norm(self) -> float:
        """Largest norm of an augmented row."""
        return math.hypot(self.norm_bound, float(self.fit_intercept))

    @property
    def smoothness(self) -> float:
        """Lipschitz constant of the gradient over every dataset of the domain."""
        return self.loss.curvature * self.row_norm**2 + self.alpha

    @property
    def value_at_zero(self) -> float:
        """Objective at zero: the same for every dataset."""
        return self.loss.value_at_zero

    def _projection(self) -> Array | None:
        """One factor per row, or None when every row lies inside the ball."""
        factors = np.ones(len(self.X))

        def project(start: int, stop: int) -> bool:
            outside = False
            for rows, block in row_blocks(self.X, start, stop):
                part = ball_factors(block, self.norm_bound)
                if part is not None:
                    factors[rows] = part
                    outside = True
            return outside

        return factors if any(list(map_shards(project, *self.X.shape))) else None

    def _scores(self, rows: slice, block: Array, theta: Array) -> Array:
        n_features = self.X.shape[1]
        if isinstance(self.X, Rows):
            factors = 1.0 if self._factors is None else self._factors[rows, None]
            check_unchanged(block * factors, self.norm_bound)
        # One column is a matrix-vector product, which BLAS runs faster as such.
        weights = theta[0, :n_features] if len(theta) == 1 else theta[:, :n_features].T
        scores = (block @ weights).reshape(len(block), len(theta))
        if self._factors is not None:
            scores *= self._factors[rows, None]
        if self.fit_intercept:
            scores += theta[:, -1]
        return scores

    def _back(self, rows: slice, block: Array, residuals: Array, out: Array) -> None:
        n_features = self.X.shape[1]
        if self.fit_intercept:
            # Along contiguous columns NumPy sums pairwise: many equal terms must not drift.
            out[:, -1] += np.ascontiguousarray(residuals.T).sum(axis=1)
        if self._factors is not None:
            residuals = residuals * self._factors[rows, None]
        if len(out) == 1:
            out[0, :n_features] += residuals[:, 0] @ block
        else:
            out[:, :n_features] += residuals.T @ block

    def value_and_gradient(self, theta: Array, curvature: bool = False) -> tuple[float, Array]:
        """Objective and gradient at ``theta`` (shape ``self.shape``), in one pass.

        With ``curvature`` the second derivatives are kept for :meth:`curvature_product`.
        """
        keep = curvature and len(self.X) * self.shape[0] <= _KEPT
        kept = np.empty((len(self.X), self.shape[0])) if keep else None

        def evaluate(start: int, stop: int) -> tuple[float, Array]:
            value, gradient = 0.0, np.zeros(self.shape)
            for rows, block in row_blocks(self.X, start, stop):
                values, residuals, second = self.loss.evaluate(
                    self._scores(rows, block, theta), self.codes[rows]
                )
                if self.weights is not None:
                    values = values * self.weights[rows]
                    residuals *= self.weights[rows, None]
                value += float(values.sum())
                self._back(rows, block, residuals, gradient)
                if kept is not None:
                    kept[rows] = second
            return value, gradient

        value, gradient = 0.0, np.zeros(self.shape)
        for part, own in map_shards(evaluate, *self.X.shape):
            value += part
            gradient += own
        if curvature:
            self._curvature = theta.copy() if kept is None else kept
        value, gradient = value / self.total, gradient / self.total + self.alpha * theta
        return value + 0.5 * self.alpha * float(np.vdot(theta, theta)), gradient

    def curvature_product(self, direction: Array) -> Array:
        """Hessian at the last point evaluated with ``curvature=True``, times ``direction``."""
        known = self._curvature
        if known is None:
            raise RuntimeError("evaluate with curvature=True first.")
        again = len(self.X) * self.shape[0] > _KEPT

        def evaluate(start: int, stop: int) -> Array:
            product = np.zeros(self.shape)
            for rows, block in row_blocks(self.X, start, stop):
                scores = self._scores(rows, block, direction)
                curvature = known[rows] if not again else self._curved(rows, block, known)
                curved = self.loss.curve(curvature, scores)
                if self.weights is not None:
                    curved = curved * self.weights[rows, None]
                self._back(rows, block, curved, product)
            return product

        product = total_of_shards(map_shards(evaluate, *self.X.shape))
        return product / self.total + self.alpha * direction

    def _curved(self, rows: slice, block: Array, theta: Array) -> Array:
        """Second derivatives of a block's records at some parameters."""
        return self.loss.evaluate(self._scores(rows, block, theta), self.codes[rows])[2]

    def hessian(self, theta: Array) -> Array:
        """Hessian at ``theta``, for one score column."""
        dimension = self.shape[1]

        def accumulate(start: int, stop: int) -> Array:
            total = np.zeros((dimension, dimension))
            for rows, block in row_blocks(self.X, start, stop):
                augmented = np.ones((len(block), dimension))
                augmented[:, : block.shape[1]] = block
                if self._factors is not None:
                    augmented[:, : block.shape[1]] *= self._factors[rows, None]
                augmented *= np.sqrt(self._curved(rows, block, theta))
                if self.weights is not None:
                    augmented *= np.sqrt(self.weights[rows, None])
                total += augmented.T @ augmented
            return total

        hessian = total_of_shards(map_shards(accumulate, *self.X.shape)) / self.total
        hessian[np.diag_indices(dimension)] += self.alpha
        return hessian

    def second_moment(self, n_rows: int) -> Array:
        """Second moment of about ``n_rows`` augmented rows, evenly spread: a preconditioner."""
        step = max(1, len(self.X) // n_rows)
        sample = self.X[::step]
        factors = None if self._factors is None else self._factors[::step]
        n_features, dimension = sample.shape[1], self.shape[1]
        moment = np.zeros((dimension, dimension))
        for rows, block in row_blocks(sample):
            block = block if factors is None else block * factors[rows, None]
            moment[:n_features, :n_features] += block.T @ block
            if self.fit_intercept:
                moment[-1, :-1] += block.sum(axis=0)
        if self.fit_intercept:
            moment[:-1, -1] = moment[-1, :-1]
            moment[-1, -1] = len(sample)
        return moment / len(sample)


class ReplacedRecords:
    """A :class:`LinearObjective` in which some records are replaced, without a copy of the rows.

    Parameters
    ----------
    objective : LinearObjective
        Objective of all records.
    left_out : ndarray of shape (n_changed,)
        Positions of the records that are replaced.
    rows : ndarray of shape (n_changed, n_features)
        Rows that take their places, with their weights.
    codes : ndarray of shape (n_changed,)
        Their classes.
    """

    def __init__(
        self,
        objective: LinearObjective,
        left_out: NDArray[np.intp],
        rows: NDArray[np.floating],
        codes: NDArray[np.intp],
    ) -> None:
        # A copy of its own: curvatures are kept on the object, and audits run on threads.
        self._all = copy.copy(objective)
        self.shape, self.alpha = objective.shape, objective.alpha
        self.smoothness, self.value_at_zero = objective.smoothness, objective.value_at_zero
        self.loss = objective.loss
        weights = objective.weights
        own = None if weights is None else weights[left_out]
        self._old = self._few(objective.X[left_out], objective.codes[left_out], own)
        self._new = self._few(rows, codes, own)

    def _few(
        self, rows: NDArray[np.floating], codes: NDArray[np.intp], weights: Array | None
    ) -> LinearObjective:
        return LinearObjective(
            self._all.loss.name,
            rows,
            codes,
            self._all.loss.n_classes,
            alpha=0.0,
            norm_bound=self._all.norm_bound,
            fit_intercept=self._all.fit_intercept,
            weights=weights,
            total=self._all.total,
        )

    def gradient_change(self, theta: Array) -> Array:
        """Gradient at ``theta`` minus that of all records; touches those that change."""
        return self._new.value_and_gradient(theta)[1] - self._old.value_and_gradient(theta)[1]

    def value_and_gradient(self, theta: Array, curvature: bool = False) -> tuple[float, Array]:
        """As :meth:`LinearObjective.value_and_gradient`."""
        value, gradient = self._all.value_and_gradient(theta, curvature)
        new, new_gradient = self._new.value_and_gradient(theta, curvature)
        old, old_gradient = self._old.value_and_gradient(theta, curvature)
        return value + (new - old), gradient + (new_gradient - old_gradient)

    def curvature_product(self, direction: Array) -> Array:
        """As :meth:`LinearObjective.curvature_product`."""
        new = self._new.curvature_product(direction) - self._old.curvature_product(direction)
        return self._all.curvature_product(direction) + new

    def second_moment(self, n_rows: int) -> Array:
        """As :meth:`LinearObjective.second_moment`, of all records."""
        return self._all.second_moment(n_rows)


def gradient_rounding(
    loss: str,
    *,
    n_samples: int,
    n_features: int,
    n_classes: int,
    norm: float,
    row_norm: float,
) -> float:
    """Bound on the rounding error of a computed gradient, from public numbers.

    Scores err by at most ``(d + 3) u norm row_norm``, which residuals pass on times their
    Lipschitz constant; summing n terms in blocks errs by at most ``(block + n / block) u`` times
    their size, and the projection factor of a row by ``d u``. Columns of scores add in quadrature.
    """
    kind = make_loss(loss, n_classes)
    scores = (n_features + 3.0) * norm * row_norm * kind.curvature
    rows = block_rows(n_features)
    # A row's projection factor errs like a sum of n_features squares; its weight is a factor too.
    # Blocks are added up in shards, and shards in order: at most eight of them are no longer.
    terms = rows + n_samples / rows + n_features + 18.0
    sums = terms * kind.score_residual_limit(norm * row_norm)
    columns = math.sqrt(kind.n_scores)
    return 2.0 * _UNIT_ROUNDOFF * columns * row_norm * (scores + sums)
