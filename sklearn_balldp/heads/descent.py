"""Noisy gradient descent: every gradient is released, and the model is made of what was."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import DTypeLike

from ..privacy.transcript import Descent, TranscriptBound
from .gradients import MeanGradient
from .objectives import LOSSES, Array

#: Constant that augments the rows, in units of B: a smaller one takes less of the noise, and moves
#: intercepts more slowly.
CONSTANT = 0.3
#: Standard deviation, in units of 1 / B, that the noise of all steps together would give one
#: parameter if nothing pulled it back: what the default step size aims at.
ACCUMULATED_NOISE = 1.5
#: Largest total step, in units of 1 / B and for gradients of the clipping norm.
LONGEST_PATH = 3e4
# Iterates stay within this norm, in units of 1 / B: a step size that diverges gives no infinity.
_FARTHEST = 1e6


@dataclass(frozen=True)
class Transcript:
    """What noisy gradient descent released, step by step; public.

    Parameters
    ----------
    gradients : ndarray of shape (n_steps, n_scores, n_columns)
        Noisy mean gradients of the loss, residuals clipped; without the regulariser.
    iterates : ndarray of the same shape
        Parameters at which they were taken.
    sigma : ndarray of shape (n_steps,)
        Noise scales.
    """

    gradients: Array
    iterates: Array
    sigma: Array


class Iterates:
    """Parameters of one or more runs: heavy-ball steps and the mean of the last iterates.

    Functions of released gradients and public numbers alone.

    Parameters
    ----------
    n_runs : int
        Independent runs.
    descent : Descent
        Settings.
    bound : TranscriptBound
        Shape and loss.
    alpha : float
        Regularisation strength, added to the released gradients.
    precision : dtype
        Precision that iterates are rounded to, that of the rows.
    """

    def __init__(
        self,
        n_runs: int,
        descent: Descent,
        bound: TranscriptBound,
        alpha: float,
        precision: DTypeLike = np.float64,
    ) -> None:
        shape = (n_runs, bound.n_scores, bound.n_columns)
        self.thetas = np.zeros(shape)
        self._velocity, self._total = np.zeros(shape), np.zeros(shape)
        self._descent, self._alpha, self._precision = descent, alpha, precision
        # The gradients of a record's classes add up to zero: noise in the sum is no signal.
        self._centred = bound.loss == "softmax"
        self._farthest = _FARTHEST / bound.norm_bound
        self._averaged = max(1, round(descent.averaging * descent.n_steps))
        self._step = 0

    def advance(self, gradients: Array) -> None:
        """One step of every run along its released gradient."""
        descent = self._descent
        if self._centred:
            gradients = gradients - gradients.mean(axis=1, keepdims=True)
        self._velocity = descent.momentum * self._velocity + gradients + self._alpha * self.thetas
        thetas = self.thetas - descent.learning_rate * self._velocity
        norms = np.sqrt(np.einsum("rkd,rkd->r", thetas, thetas))
        thetas *= np.minimum(1.0, self._farthest / np.maximum(norms, 1e-300))[:, None, None]
        self.thetas = thetas.astype(self._precision).astype(np.float64)
        self._step += 1
        if self._step > descent.n_steps - self._averaged:
            self._total += self.thetas

    def released(self) -> Array:
        """Mean of the last iterates of every run."""
        return self._total / self._averaged


@dataclass
class Steps:
    """What each step of a descent released, and what it was calibrated to; all public."""

    sensitivity: list[float] = field(default_factory=list)
    sigma: list[float] = field(default_factory=list)
    #: Sensitivity at the full radius.
    full: list[float] = field(default_factory=list)
    gradients: list[Array] = field(default_factory=list)
    iterates: list[Array] = field(default_factory=list)

    def transcript(self) -> Transcript:
        return Transcript(np.array(self.gradients), np.array(self.iterates), np.array(self.sigma))


def descend(
    mean: MeanGradient,
    descent: Descent,
    bound: TranscriptBound,
    alpha: float,
    add_noise: Callable[[Array, float], Array],
    full_radius: float,
    keep: bool = False,
) -> tuple[Array, Steps]:
    """Release noisy gradients from zero on.

    Parameters
    ----------
    mean : MeanGradient
        Gradients of the private records.
    descent : Descent
        Settings.
    bound : TranscriptBound
        What every step promises.
    alpha : float
        Regularisation strength.
    add_noise : callable
        Takes a noiseless gradient and a noise scale; noise of its own at every call.
    full_radius : float
        Euclidean radius of the figure ex post.
    keep : bool, default=False
        Whether to keep gradients and iterates.

    Returns
    -------
    parameters : ndarray of shape (n_scores, n_columns)
        The released model.
    steps : Steps
        What was released on the way.
    """
    iterates = Iterates(1, descent, bound, alpha, mean.X.dtype)
    steps = Steps()
    for _ in range(descent.n_steps):
        theta = iterates.thetas[0]
        rounding = mean.rounding(theta)
        sensitivity, sigma = bound.step(theta, rounding)
        released = add_noise(mean(iterates.thetas)[0], sigma)
        steps.sigma.append(sigma)
        steps.sensitivity.append(sensitivity)
        steps.full.append(bound.sensitivity(theta, full_radius, rounding))
        if keep:
            steps.gradients.append(released)
            steps.iterates.append(theta)
        iterates.advance(released[None])
    return iterates.released()[0], steps


def default_learning_rate(
    bound: TranscriptBound, n_steps: int, momentum: float, clip: float | None, alpha: float
) -> float:
    r"""Step size from public numbers.

    With sensitivity G / n of a step at its largest, T steps and a promise rho, the noise that all
    steps add to one parameter has standard deviation :math:`\eta T G / ((1 - \mu) n \rho)`, if
    nothing pulls it back. The step size makes that :data:`ACCUMULATED_NOISE` / B: a longer path
    fits no better for the noise it gathers, a shorter one stops before the model is fitted. With
    little noise the path is limited to :data:`LONGEST_PATH`. The regulariser limits the step size
    to what keeps it stable; without clipping so does the loss, on every dataset.

    Parameters
    ----------
    bound : TranscriptBound
        What every step promises.
    n_steps, momentum, clip
        Settings of the descent.
    alpha : float
        Regularisation strength.

    Returns
    -------
    float
    """
    norm_bound = bound.norm_bound
    augmented = math.hypot(norm_bound, bound.constant)
    # Half of what makes heavy-ball steps diverge.
    curvature = alpha
    if clip is None:
        curvature += LOSSES[bound.loss]().curvature_bound * augmented**2
    rates = [(1.0 + momentum) / curvature] if curvature > 0.0 else []
    if clip is not None:
        rates.append(LONGEST_PATH * (1.0 - momentum) / (norm_bound * n_steps * clip))
    for radius, rho in bound.promises:
        gap = bound.limits(radius, bound.label_change).most
        if math.isfinite(gap):
            accumulated = n_steps * gap / ((1.0 - momentum) * bound.n_samples * rho)
            rates.append(ACCUMULATED_NOISE / (norm_bound * accumulated))
    return min(rates)
