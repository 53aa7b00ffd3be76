"""Regularised mean losses of linear scores, over records in place."""

import math
from functools import partial

import numpy as np

from ..losses import Array
from ..privacy.problem import Problem
from ..rows import total
from .gradients import Gradients, Place
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
        at, mass = self._at(theta, valued=True), self._problem.sums_weights.total
        losses, products, ones = total(at, self._X, *self._columns)
        augmented = np.hstack([products, ones[:, None]])[:, : self.shape[1]]
        value = float(losses[0]) / mass + 0.5 * self.alpha * float(np.vdot(theta, theta))
        return value, augmented / mass + self.alpha * theta

    def second_moment(self, n_rows: int) -> Array:
        """Second moment of about ``n_rows`` augmented rows, evenly spread: a preconditioner."""
        step = max(1, self._X.shape[0] // n_rows)
        moment, size = total(partial(_moment_of_some, self._place, step), self._X)
        return (moment / size)[: self.shape[1], : self.shape[1]]


def _moment_of_some(place: Place | None, step: int, block: Array) -> list[Array]:
    """Second moment of every ``step``-th row of a block, augmented by one, and their number."""
    some = block[::step] if place is None else place(block[::step])
    some = np.hstack([some, np.ones((len(some), 1))])
    return [some.T @ some, np.full(1, float(len(some)))]
