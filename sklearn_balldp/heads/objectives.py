r"""Regularised mean losses of linear scores, evaluated on row blocks.

.. math:: F(\theta) = \frac1n \sum_i \ell(\theta \tilde x_i; y_i)
          + \frac{\alpha}{2} \|\theta\|^2

with :math:`\tilde x = (x, 1)` under an intercept (regularised) and :math:`x` without. Rows are
projected onto the admissible ball by one factor a row, never copied; sums accumulate in float64.
A loss maps scores to values, residuals (derivatives by score) and curvatures, and knows nothing
of rows; :class:`LinearObjective` knows nothing of losses.
"""

import copy
import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..policy.adjacency import ball_factors, block_rows, map_row_ranges, row_blocks

Array = NDArray[np.float64]
Scores = NDArray[np.floating]
_UNIT_ROUNDOFF = 2.0**-53


class Loss(Protocol):
    """Loss of one record as a function of its scores; every array has one row a record."""

    #: Upper bound on the second derivative along any unit direction of scores.
    curvature_bound: float

    def n_scores(self, n_classes: int) -> int:
        """Number of score columns."""

    def value_at_zero(self, n_classes: int) -> float:
        """Loss of every record when all scores are zero."""

    def residual_bound(self, margin: float) -> float:
        """Largest residual of one score while every score is at most ``margin`` in size."""

    def evaluate(self, scores: Array, codes: NDArray[np.intp]) -> tuple[float, Array, Array]:
        """Sum of losses, residuals and curvatures; ``scores`` may be overwritten."""

    def residuals(self, scores: Scores, codes: NDArray[np.intp]) -> Scores:
        """Derivatives alone, for scores of shape (n_records, n_parameters, n_scores).

        In the precision of the scores, which may be overwritten.
        """

    def curve(self, curvature: Array, direction: Array) -> Array:
        """Second derivative applied to a ``direction`` of scores, record by record."""


class LogisticLoss:
    r"""Binary :math:`\log(1 + e^{-m})`, margin m = +-score."""

    curvature_bound = 0.25

    def n_scores(self, n_classes: int) -> int:
        return 1

    def value_at_zero(self, n_classes: int) -> float:
        return math.log(2.0)

    def residual_bound(self, margin: float) -> float:
        return 1.0

    def evaluate(self, scores: Array, codes: NDArray[np.intp]) -> tuple[float, Array, Array]:
        sign = (2.0 * codes - 1.0)[:, None]
        margins = sign * scores
        # Both logaddexp and expit are exact to rounding for margins of any size.
        value = float(np.logaddexp(0.0, -margins).sum())
        wrong = expit(-margins)
        return value, -sign * wrong, wrong * expit(margins)

    def residuals(self, scores: Scores, codes: NDArray[np.intp]) -> Scores:
        # -sigmoid(-s) where y = 1, and sigmoid(s) elsewhere.
        sign = (1 - 2 * codes).astype(scores.dtype)[:, None, None]
        scores *= sign
        expit(scores, out=scores)
        scores *= sign
        return scores

    def curve(self, curvature: Array, direction: Array) -> Array:
        return curvature * direction


class SoftmaxLoss:
    r"""Cross-entropy :math:`\log \sum_c e^{s_c} - s_y` of K scores."""

    curvature_bound = 0.5

    def n_scores(self, n_classes: int) -> int:
        return n_classes

    def value_at_zero(self, n_classes: int) -> float:
        return math.log(n_classes)

    def residual_bound(self, margin: float) -> float:
        return 1.0

    def evaluate(self, scores: Array, codes: NDArray[np.intp]) -> tuple[float, Array, Array]:
        rows = np.arange(len(scores))
        scores -= scores.max(axis=1, keepdims=True)
        chosen = scores[rows, codes]
        probabilities = np.exp(scores, out=scores)
        total = probabilities.sum(axis=1, keepdims=True)
        probabilities /= total
        value = float(np.log(total).sum() - chosen.sum())
        residuals = probabilities.copy()
        residuals[rows, codes] -= 1.0
        return value, residuals, probabilities

    def residuals(self, scores: Scores, codes: NDArray[np.intp]) -> Scores:
        scores -= scores.max(axis=2, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=2, keepdims=True)
        scores[np.arange(len(scores)), :, codes] -= 1.0
        return scores

    def curve(self, curvature: Array, direction: Array) -> Array:
        weighted = curvature * direction
        return weighted - curvature * weighted.sum(axis=1, keepdims=True)


class SquaredHingeLoss:
    r"""Sum over heads of :math:`\max(0, 1 - m)^2`; two classes share one head."""

    curvature_bound = 2.0

    def n_scores(self, n_classes: int) -> int:
        return 1 if n_classes == 2 else n_classes

    def value_at_zero(self, n_classes: int) -> float:
        return float(self.n_scores(n_classes))

    def residual_bound(self, margin: float) -> float:
        return 2.0 * (1.0 + margin)

    def evaluate(self, scores: Array, codes: NDArray[np.intp]) -> tuple[float, Array, Array]:
        sign = self._signs(scores.shape[1], codes)
        hinges = np.maximum(1.0 - sign * scores, 0.0)
        return float(np.vdot(hinges, hinges)), -2.0 * sign * hinges, 2.0 * (hinges > 0.0)

    def residuals(self, scores: Scores, codes: NDArray[np.intp]) -> Scores:
        sign = self._signs(scores.shape[2], codes).astype(scores.dtype)[:, None, :]
        scores *= sign
        np.subtract(1, scores, out=scores)
        np.maximum(scores, 0, out=scores)
        scores *= sign
        scores *= -2
        return scores

    def _signs(self, n_scores: int, codes: NDArray[np.intp]) -> Array:
        if n_scores == 1:
            return (2.0 * codes - 1.0)[:, None]
        sign = np.full((len(codes), n_scores), -1.0)
        sign[np.arange(len(codes)), codes] = 1.0
        return sign

    def curve(self, curvature: Array, direction: Array) -> Array:
        return curvature * direction


LOSSES: dict[str, Callable[[], Loss]] = {
    "logistic": LogisticLoss,
    "softmax": SoftmaxLoss,
    "squared_hinge": SquaredHingeLoss,
}


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
    ) -> None:
        self.loss, self.loss_name = LOSSES[loss](), loss
        self.X, self.codes, self.alpha = X, codes, float(alpha)
        self.norm_bound, self.fit_intercept = float(norm_bound), fit_intercept
        self.n_classes = n_classes
        self.shape = (self.loss.n_scores(n_classes), X.shape[1] + int(fit_intercept))
        self._factors = self._projection()
        self._curvature: Array | None = None

    @property
    def row_norm(self) -> float:
        """Largest norm of an augmented row."""
        return math.hypot(self.norm_bound, float(self.fit_intercept))

    @property
    def smoothness(self) -> float:
        """Lipschitz constant of the gradient over every dataset of the domain."""
        return self.loss.curvature_bound * self.row_norm**2 + self.alpha

    @property
    def value_at_zero(self) -> float:
        """Objective at zero: the same for every dataset."""
        return self.loss.value_at_zero(self.n_classes)

    def _projection(self) -> Array | None:
        """One factor a row, or None when every row lies inside the ball."""
        factors = np.ones(len(self.X))

        def project(start: int, stop: int) -> bool:
            outside = False
            for rows, block in row_blocks(self.X, start, stop):
                part = ball_factors(block, self.norm_bound)
                if part is not None:
                    factors[rows] = part
                    outside = True
            return outside

        return factors if any(map_row_ranges(project, *self.X.shape)) else None

    def _scores(self, rows: slice, block: Array, theta: Array) -> Array:
        n_features = self.X.shape[1]
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
        kept = np.empty((len(self.X), self.shape[0])) if curvature else None

        def evaluate(start: int, stop: int) -> tuple[float, Array]:
            value, gradient = 0.0, np.zeros(self.shape)
            for rows, block in row_blocks(self.X, start, stop):
                part, residuals, second = self.loss.evaluate(
                    self._scores(rows, block, theta), self.codes[rows]
                )
                value += part
                self._back(rows, block, residuals, gradient)
                if kept is not None:
                    kept[rows] = second
            return value, gradient

        parts = map_row_ranges(evaluate, *self.X.shape)
        if kept is not None:
            self._curvature = kept
        value = sum(value for value, _ in parts) / len(self.X)
        gradient = sum(gradient for _, gradient in parts) / len(self.X) + self.alpha * theta
        return value + 0.5 * self.alpha * float(np.vdot(theta, theta)), gradient

    def curvature_product(self, direction: Array) -> Array:
        """Hessian at the last point evaluated with ``curvature=True``, times ``direction``."""
        curvature = self._curvature
        if curvature is None:
            raise RuntimeError("evaluate with curvature=True first.")

        def evaluate(start: int, stop: int) -> Array:
            product = np.zeros(self.shape)
            for rows, block in row_blocks(self.X, start, stop):
                scores = self._scores(rows, block, direction)
                self._back(rows, block, self.loss.curve(curvature[rows], scores), product)
            return product

        parts = map_row_ranges(evaluate, *self.X.shape)
        return sum(parts[1:], parts[0]) / len(self.X) + self.alpha * direction

    def hessian(self, theta: Array) -> Array:
        """Hessian at ``theta``, for one score column."""
        self.value_and_gradient(theta, curvature=True)
        curvature = self._curvature
        dimension = self.shape[1]

        def accumulate(start: int, stop: int) -> Array:
            total = np.zeros((dimension, dimension))
            for rows, block in row_blocks(self.X, start, stop):
                augmented = np.ones((len(block), dimension))
                augmented[:, : block.shape[1]] = block
                if self._factors is not None:
                    augmented[:, : block.shape[1]] *= self._factors[rows, None]
                augmented *= np.sqrt(curvature[rows])
                total += augmented.T @ augmented
            return total

        parts = map_row_ranges(accumulate, *self.X.shape)
        hessian = sum(parts[1:], parts[0]) / len(self.X)
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


class ReplacedRecord:
    """A :class:`LinearObjective` in which one record is replaced, without a copy of the rows.

    Parameters
    ----------
    objective : LinearObjective
        Objective of all records.
    left_out : int
        Position of the record that is replaced.
    row : ndarray of shape (n_features,)
        Row that takes its place.
    code : int
        Its class.
    """

    def __init__(
        self, objective: LinearObjective, left_out: int, row: NDArray[np.floating], code: int
    ) -> None:
        # A copy of its own: curvatures are kept on the object, and audits run on threads.
        self._all = copy.copy(objective)
        self.shape, self.alpha = objective.shape, objective.alpha
        self.smoothness, self.value_at_zero = objective.smoothness, objective.value_at_zero
        self.loss = objective.loss
        self._old = self._single(objective.X[left_out], int(objective.codes[left_out]))
        self._new = self._single(row, int(code))

    def _single(self, row: NDArray[np.floating], code: int) -> LinearObjective:
        return LinearObjective(
            self._all.loss_name,
            row[None],
            np.array([code]),
            self._all.n_classes,
            alpha=0.0,
            norm_bound=self._all.norm_bound,
            fit_intercept=self._all.fit_intercept,
        )

    def gradient_change(self, theta: Array) -> Array:
        """Gradient at ``theta`` minus that of all records; touches two records."""
        new, old = self._new.value_and_gradient(theta)[1], self._old.value_and_gradient(theta)[1]
        return (new - old) / len(self._all.X)

    def value_and_gradient(self, theta: Array, curvature: bool = False) -> tuple[float, Array]:
        """As :meth:`LinearObjective.value_and_gradient`."""
        value, gradient = self._all.value_and_gradient(theta, curvature)
        new, new_gradient = self._new.value_and_gradient(theta, curvature)
        old, old_gradient = self._old.value_and_gradient(theta, curvature)
        n_samples = len(self._all.X)
        return value + (new - old) / n_samples, gradient + (new_gradient - old_gradient) / n_samples

    def curvature_product(self, direction: Array) -> Array:
        """As :meth:`LinearObjective.curvature_product`."""
        new = self._new.curvature_product(direction) - self._old.curvature_product(direction)
        return self._all.curvature_product(direction) + new / len(self._all.X)

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

    Parameters
    ----------
    loss : {"logistic", "softmax", "squared_hinge"}
        Loss of one record.
    n_samples, n_features, n_classes : int
        Shape of the problem.
    norm : float
        Bound on the norm of one weight vector.
    row_norm : float
        Bound on the norm of an augmented row.

    Returns
    -------
    float
        Bound on the Euclidean norm of the error.
    """
    kind = LOSSES[loss]()
    scores = (n_features + 3.0) * norm * row_norm * kind.curvature_bound
    rows = block_rows(n_features)
    # A row's projection factor errs like a sum of n_features squares.
    terms = rows + n_samples / rows + n_features + 8.0
    sums = terms * kind.residual_bound(norm * row_norm)
    columns = math.sqrt(kind.n_scores(n_classes))
    return 2.0 * _UNIT_ROUNDOFF * columns * row_norm * (scores + sums)
