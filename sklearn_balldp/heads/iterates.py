"""Iterates of a noisy descent: public functions of the gradients that were released."""

import numpy as np
from numpy.typing import DTypeLike

from ..privacy.transcript import TranscriptBound
from .mechanism import Array

# Iterates stay within this norm, in units of 1 / B: a step size that diverges gives no infinity.
_FARTHEST = 1e6


class Iterates:
    """Parameters of one or more runs: heavy-ball steps and the mean of the last iterates.

    Functions of released gradients and public numbers alone.

    Parameters
    ----------
    n_runs : int
        Independent runs.
    bound : TranscriptBound
        Shape, loss and settings.
    alpha : float
        Regularisation strength.
    precision : dtype
        Precision that iterates are rounded to, that of the rows.
    start : ndarray of shape (n_runs, n_scores, n_columns), optional
        First iterates; zero by default.
    """

    def __init__(
        self,
        n_runs: int,
        bound: TranscriptBound,
        alpha: float,
        precision: DTypeLike = np.float64,
        start: Array | None = None,
    ) -> None:
        shape, descent = (n_runs, *bound.shape), bound.descent
        self.thetas = np.zeros(shape)
        self._velocity, self._total = np.zeros(shape), np.zeros(shape)
        self._descent, self._precision = descent, precision
        # At rest the released gradient is minus alpha times the iterate.
        self._pull = 1.0 + descent.learning_rate * alpha / (1.0 - descent.momentum)
        # The gradients of a record's classes add up to zero: noise in the sum is no signal.
        self._centred = bound.loss == "softmax"
        self._farthest = _FARTHEST / bound.norm_bound
        self._averaged = max(1, round(descent.averaging * descent.n_steps))
        self._step = 0
        if start is not None:
            self._move(start)

    def _move(self, thetas: Array) -> None:
        norms = np.sqrt(np.einsum("rkd,rkd->r", thetas, thetas))
        # At zero the factor is one, whatever the divisor.
        factors = np.minimum(1.0, self._farthest / np.maximum(norms, 1e-300))
        thetas = thetas * factors[:, None, None]
        self.thetas = thetas.astype(self._precision).astype(np.float64)

    def advance(self, gradients: Array) -> None:
        """One step of every run along its released gradient, then towards zero."""
        if self._centred:
            gradients = gradients - gradients.mean(axis=1, keepdims=True)
        thetas, self._velocity = self._stepped(self.thetas, self._velocity, gradients)
        self._move(thetas)
        self._step += 1
        if self._step > self._descent.n_steps - self._averaged:
            self._total += self.thetas

    def _stepped(self, thetas: Array, velocity: Array, gradients: Array) -> tuple[Array, Array]:
        """Iterates and velocity after a step."""
        velocity = self._descent.momentum * velocity + gradients
        # Implicit: however strong the regulariser is, it takes no parameter beyond zero.
        return (thetas - self._descent.learning_rate * velocity) / self._pull, velocity

    def gains(self) -> Array:
        """What one more in the gradient of each step takes from a released parameter."""
        n_steps = self._descent.n_steps
        thetas, velocity, taken = np.zeros(1), np.zeros(1), np.zeros(n_steps + 1)
        for step in range(n_steps):
            thetas, velocity = self._stepped(thetas, velocity, np.array([float(step == 0)]))
            taken[step + 1] = taken[step] - thetas[0]
        # Every step acts on those that follow it as the first one does.
        left = np.arange(n_steps, 0, -1)
        return (taken[left] - taken[np.maximum(left - self._averaged, 0)]) / self._averaged

    def released(self) -> Array:
        """Mean of the last iterates of every run."""
        return self._total / self._averaged
