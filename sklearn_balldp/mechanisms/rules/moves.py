"""What a descent from a public model keeps of its moves, and how it fits that model's multiple.

Both are functions of public numbers and of released gradients, so neither costs privacy. "What is
public is free" of the documentation says how.
"""

import math

import numpy as np
from scipy.special import softmax

from ...losses import Array
from .prototypes import discounted

# Variances of the way to the optimum that are tried, in units of the noise's, and the standard
# deviation of their logarithm beforehand.
_VARIANCES, _PRIOR = np.exp(np.linspace(-6.0, 6.0, 61)), 2.0


class MultipleFit:
    """The multiple of public parameters, from released gradients along them.

    The loss has ``curvature`` in it, and a gradient tells the slope with noise of a known scale s:
    so t of them tell the multiple with variance s^2 / (curvature^2 t). Beforehand it is 1, give or
    take 1, where ``certain``; else nothing is known of it, and it begins at 0.
    """

    def __init__(self, curvature: float, noise: float, certain: bool) -> None:
        self._curvature, self._certain, self.multiple = curvature, float(certain), float(certain)
        self._steps = 0
        self._told = (curvature / noise) ** 2 if noise > 0.0 else 0.0

    def update(self, slope: float) -> float:
        """Learn from one more noisy slope, taken at the multiple so far: by how much it changes."""
        self._steps += 1
        if self._told == 0.0:
            return 0.0
        gain = self._told / (self._certain + self._steps * self._told)
        change = -gain * slope / self._curvature
        self.multiple += change
        return change


def kept_of_moves(
    moved: Array, *, n_scores: int, curvatures: Array, reach: float, noise: float, prior: float
) -> Array:
    """What is kept of the moves of a descent along each direction: shares between 0 and 1.

    It ``moved`` so far along each column, signal and noise; of the rows ``n_scores`` are free. Step
    sizes add up to ``reach``: a descent covers ``s = 1 - exp(-reach * curvature)`` of the way. The
    variance in a parameter is that of the ``noise``, were there no curvature, and of the way from
    the start to the optimum, before moves are seen (``prior``).

    A move has variance s^2 tau^2 + v: the likelihood of all moves, times a log-normal prior, tells
    tau^2, and s tau^2 / (s^2 tau^2 + v) of a move is kept, at most 1, on average over it. That
    takes signal to be spread evenly. Where it is not, the moves change scores by more than noise
    does: what exceeds it, as a share of the scores' variance, is kept everywhere.
    """
    way = reach * curvatures
    share = -np.expm1(-way)
    # Steps pull noise back as they pull the start: of earlier steps less is left.
    left = noise * -np.expm1(-2.0 * way) / np.maximum(2.0 * way, 1e-12)
    left = np.where(way > 1e-12, left, noise)
    squares = np.vecdot(moved.T, moved.T)
    tau = (prior * _VARIANCES)[:, None]
    total = share**2 * tau + left
    logs = -0.5 * (n_scores * np.log(total) + squares / total).sum(axis=1)
    logs -= 0.5 * (np.log(_VARIANCES) / _PRIOR) ** 2
    evenly = softmax(logs) @ np.minimum(share * tau / total, 1.0)
    of_scores = float(curvatures @ squares)
    spread = math.sqrt(2.0 * n_scores * float(curvatures**2 @ left**2))
    excess = discounted(of_scores - n_scores * float(curvatures @ left), spread)
    everywhere = excess / max(of_scores, 1e-300)
    kept: Array = everywhere + (1.0 - everywhere) * evenly
    return kept
