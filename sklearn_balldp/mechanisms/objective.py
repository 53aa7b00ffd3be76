"""Regularised mean losses of linear scores, over records in place."""

import math
from typing import Any

import numpy as np

from ..losses import Array
from ..privacy.problem import Problem
from ..rows import total
from .gradients import Gradients
from .kernel import Records


class LinearObjective(Gradients):
    """Regularised mean of a loss over records in the domain."""

    def __init__(self, problem: Problem, records: Records) -> None:
        super().__init__(problem, records, None, float(problem.fit_intercept), None)
        self.loss, self.alpha = problem.kind, problem.alpha
        self.shape = self.loss.n_scores, problem.n_features + int(problem.fit_intercept)
        #: Lipschitz constant of the gradient, and value at zero, for every dataset of the domain.
        row_norm = math.hypot(problem.norm_bound, float(problem.fit_intercept))
        self.smoothness = self.loss.curvature * row_norm**2 + self.alpha
        self.value_at_zero = self.loss.value_at_zero

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        """Objective and gradient at ``theta`` (shape ``self.shape``), in one pass."""
        d, mass = self._problem.n_features, self._problem.sums_weights.total
        weights, offsets = theta[:, :d].T, theta[:, d:].sum(axis=1)

        def of_range(start: int, stop: int) -> tuple[float, Array]:
            value, added = 0.0, np.zeros((len(theta), d + 1))
            for rows, block in self._blocks(start, stop):
                codes = self._records.codes[rows]
                values, residuals = self.loss.evaluate(block @ weights + offsets, codes)
                if self._weights is not None:
                    values = values * self._weights[rows]
                    residuals = residuals * self._weights[rows][:, None]
                value += float(values.sum())
                added += residuals.T @ np.hstack([block, np.ones((len(block), 1))])
            return value, added

        value, added = total(of_range, *self._records.X.shape)
        gradient = added[:, : self.shape[1]] / mass + self.alpha * theta
        return value / mass + 0.5 * self.alpha * float(np.vdot(theta, theta)), gradient

    def second_moment(self, n_rows: int) -> Array:
        """Second moment of about ``n_rows`` augmented rows, evenly spread: a preconditioner."""
        step = max(1, len(self._records) // n_rows)
        sample: Any = np.concatenate([b[::step] for _, b in self._blocks(0, len(self._records))])
        sample = np.hstack([sample, np.ones((len(sample), self.shape[1] - sample.shape[1]))])
        return sample.T @ sample / len(sample)
