"""Iterates of a noisy descent: public functions of the gradients that were released."""

import numpy as np
from numpy.typing import DTypeLike

from ..privacy.transcript import Descent, TranscriptBound
from .mechanism import Array

# Iterates stay within this norm, in units of 1 / B: a step size that diverges gives no infinity.
# It is part of what an iterate is by definition, and not tuned.
_FARTHEST = 1e6


class Iterates:
    """Parameters of one or more runs: heavy-ball steps and the mean of the last iterates.

    Functions of released gradients and public numbers alone. Iterates are rounded to ``precision``,
    that of the rows. They begin at ``start``, of shape (n_runs, n_scores, n_columns), or at zero.
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
        own = self._descent
        self._velocity = own.momentum * self._velocity + gradients
        # Implicit: however strong the regulariser is, it takes no parameter beyond zero.
        self._move((self.thetas - own.learning_rate * self._velocity) / self._pull)
        self._step += 1
        if self._step > own.n_steps - own.averaged:
            self._total += self.thetas

    def gains(self) -> Array:
        """How far a released parameter moves if the gradient of a step is larger by one."""
        own: Descent = self._descent
        return own.learning_rate * gains(own.n_steps, own.momentum, own.averaged, self._pull)

    def released(self) -> Array:
        """Mean of the last iterates of every run."""
        return self._total / self._descent.averaged


def gains(n_steps: int, momentum: float, averaged: int, pull: float = 1.0) -> Array:
    """How far a released parameter moves if the gradient of a step is larger by one.

    For each step, in units of the step size; ``pull`` is what a regulariser divides every iterate
    by.
    """
    theta, velocity, sums = 0.0, 1.0, [0.0]
    for _ in range(n_steps):
        theta = (theta + velocity) / pull
        velocity *= momentum
        sums.append(sums[-1] + theta)
    moved = np.array(sums)
    # Every step acts on those that follow it as the first one does.
    left = np.arange(n_steps, 0, -1)
    return (moved[left] - moved[np.maximum(left - averaged, 0)]) / averaged
