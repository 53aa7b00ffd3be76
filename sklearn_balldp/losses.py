"""Losses of linear scores: values, derivatives, and every constant that a proof takes from them.

A loss sees no rows. One-versus-rest losses stack ``n_stacked`` independent problems of one column
of scores each, and the constants hold for one; for all others ``n_stacked`` is 1.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, lambertw

from ._parameters import check_option

Array = NDArray[np.float64]
Scores = NDArray[np.floating]
Codes = NDArray[np.intp]
#: Longest axis for which column order makes maxima and sums along it faster.
SHORT = 64
# Score from where a sigmoid is 0 or 1 to rounding, and cells up to there.
_SATURATED, _CELLS = 40.0, 4096


class Loss(ABC):
    """Loss of one record as a function of its scores; every array has one row per record."""

    name: ClassVar[str]
    #: Lipschitz constant of the residual in the scores: the largest second derivative.
    curvature: ClassVar[float]
    #: Largest norm of the mean residual at a minimiser.
    mean_residual: ClassVar[float]
    #: Size of scores that tell classes apart, in units of those of log-losses.
    score_unit: ClassVar[float] = 1.0
    #: Whether scores aim at 1 on their class and -1 elsewhere, in place of log-odds.
    margins: ClassVar[bool] = False
    #: Whether one vector that is added to the weights of all classes changes nothing: what is
    #: released is then centred over classes.
    centred: ClassVar[bool] = False
    #: One minus the smallest cosine between the residuals of two records of one label, at any
    #: parameters of each: the gap of clipped residuals rests on it.
    versine: float
    #: Largest mean of -<residual, scores>, which is alpha |theta|^2 at a minimiser theta.
    norm_constant: float
    value_at_zero: float  # loss of every record when all scores are zero

    def __init__(self, n_classes: int) -> None:
        self.n_classes = n_classes
        self.n_scores = self.n_stacked = 1

    @abstractmethod
    def residual_limit(self, reach: float = math.inf) -> float:
        """Upper bound on the norm of a residual if no score exceeds ``reach`` in size."""

    def residual_peak(self, reach: float) -> float:
        """Largest norm of a residual if the scores of a record are no longer than ``reach``."""
        return self.residual_limit(reach)

    def residual_sizes(self, scores: Array) -> Array:
        """Sizes of the residual of one score, counted towards larger loss: they do not fall."""
        raise NotImplementedError(f"{self.name}: residuals of several scores are no numbers.")

    def residual_move(self, distance: float) -> float:
        """How far a residual can move with scores that move so far, for one label."""
        return self.curvature * distance

    def residual_pairs(self, reach: float, distance: float) -> tuple[Any, Any, Any]:
        """Bounds on the residuals of two records of one label, case by case.

        Of the larger one, of the smaller one, and of how far they are apart, if scores are no
        longer than ``reach`` and their ``distance`` is no larger. What is convex in how far they
        are apart, and rises with all three, is largest in one of the cases.
        """
        longest = self.residual_peak(reach)
        apart = min(self.residual_move(distance), longest)
        if self.n_scores > 1:
            return longest, longest, apart
        # One score: both have one sign, and the larger one is no longer than the longest.
        return longest, np.array([longest, longest - apart]), np.array([0.0, apart])

    def score_residual_limit(self, reach: float) -> float:
        """As :meth:`residual_limit`, for one column of scores."""
        return self.residual_limit(reach)

    def crude_minimizer_norm(self, alpha: float, augmented: float) -> float:
        """Bound on a minimiser's norm by its mean residual: the paper's, except for the hinge."""
        return self.mean_residual * augmented / alpha

    def paper_minimizer_norm(self, alpha: float, augmented: float) -> float:
        """The paper's bound on the norm of a minimiser."""
        return self.crude_minimizer_norm(alpha, augmented)

    @abstractmethod
    def evaluate(self, scores: Array, codes: Codes) -> tuple[Array, Array]:
        """Losses and residuals of the records; ``scores`` may be overwritten."""

    @abstractmethod
    def residuals(self, scores: Scores, codes: Codes) -> Scores:
        """Residuals alone, for scores of shape (n_records, n_parameters, n_scores).

        In the precision of the scores, which may be overwritten.
        """


class Logistic(Loss):
    r"""Binary :math:`\log(1 + e^{-m})`, margin m = +-score."""

    name = "logistic"
    curvature = 0.25
    mean_residual = 1.0
    versine = 0.0
    # m sigmoid(-m) is stationary where m = 1 + exp(-m): its maximum is W(1/e), Lambert's W.
    norm_constant = float(lambertw(math.exp(-1.0)).real)
    value_at_zero = math.log(2.0)

    def residual_limit(self, reach: float = math.inf) -> float:
        return 1.0

    def residual_peak(self, reach: float) -> float:
        return float(expit(reach))

    def residual_sizes(self, scores: Array) -> Array:
        return expit(scores)

    def residual_pairs(self, reach: float, distance: float) -> tuple[Any, Any, Any]:
        # Cells of the score of the smaller residual: where both are large, they move less.
        edge = min(reach, _SATURATED)
        ends = np.linspace(-edge, edge, _CELLS + 1)
        ends[[0, -1]] = -reach, reach
        low, high = ends[:-1], ends[1:]
        larger = expit(np.minimum(high + distance, reach))
        apart = np.minimum(
            _rise(low, np.minimum(high - low + distance, reach - low)),
            # The sigmoid rises most around zero.
            _rise(np.clip(-0.5 * distance, low, high), distance),
        )
        return larger, expit(high), apart

    def evaluate(self, scores: Array, codes: Codes) -> tuple[Array, Array]:
        sign = _signs(codes, 1, scores.dtype)
        margins = sign * scores
        # Both logaddexp and the sigmoid are exact to rounding for margins of any size.
        values = np.logaddexp(0.0, -margins)[:, 0]
        return values, -sign * expit(-margins)

    def residuals(self, scores: Scores, codes: Codes) -> Scores:
        # -sigmoid(-s) where y = 1, and sigmoid(s) elsewhere.
        sign = -_signs(codes, 1, scores.dtype)[:, None, :]
        scores *= sign
        scores = expit(scores, out=scores)
        scores *= sign
        return scores


class Softmax(Loss):
    r"""Cross-entropy :math:`\log \sum_c e^{s_c} - s_y` of K scores."""

    name = "softmax"
    curvature = 0.5
    mean_residual = math.sqrt(2.0)
    centred = True
    # Residuals are (1 - p_y)(q - e_y) with q a distribution over the other classes: <., .> >= 1/2.
    versine = 0.5

    def __init__(self, n_classes: int) -> None:
        super().__init__(n_classes)
        self.n_scores, rest = n_classes, n_classes - 1.0
        # At the maximum all other scores are equal, 1 + W((K - 1) / e) below the label's.
        self.norm_constant = float(lambertw(rest / math.e).real)
        self.value_at_zero = math.log(n_classes)

    def residual_limit(self, reach: float = math.inf) -> float:
        return math.sqrt(2.0)

    def residual_peak(self, reach: float) -> float:
        # q (-1, w) has norm q sqrt(1 + |w|^2), and scores that raise q = expit(v) leave less for w.
        if not reach < 1e3:
            return self.residual_limit()
        rest = self.n_classes - 1.0
        edges = math.sqrt(2.0) * reach * np.linspace(-1.0, 1.0, 2**12 + 1)
        low, high = edges[:-1], edges[1:]
        room = np.maximum(reach**2 - 0.5 * np.clip(0.0, low, high) ** 2, 0.0)
        shared = np.minimum(1.0 / rest + 2.0 * np.tanh(np.sqrt(room / 8.0)) ** 2, 1.0)
        return float(np.max(expit(math.log(rest) + high) * np.sqrt(1.0 + shared)))

    def residual_move(self, distance: float) -> float:
        return math.sqrt(2.0) * math.tanh(distance / math.sqrt(8.0))

    def score_residual_limit(self, reach: float) -> float:
        return 1.0

    def evaluate(self, scores: Array, codes: Codes) -> tuple[Array, Array]:
        scores -= _largest(scores)
        chosen = scores[np.arange(len(scores)), codes]
        probabilities = np.exp(scores, out=scores)
        total = probabilities.sum(axis=1, keepdims=True)
        probabilities /= total
        values = np.log(total[:, 0]) - chosen
        return values, _less_one_at(probabilities, codes)

    def residuals(self, scores: Scores, codes: Codes) -> Scores:
        scores -= _largest(scores)
        scores = np.exp(scores, out=scores)
        scores /= scores.sum(axis=2, keepdims=True)
        return _less_one_at(scores, codes)


class SquaredHinge(Loss):
    r"""Sum over heads of :math:`\max(0, 1 - m)^2`; two classes share one head."""

    name = "squared_hinge"
    curvature = 2.0
    # Margins are full at 1, where log-odds are about 3.
    score_unit = 1.0 / 3.0
    margins = True
    # The mean hinge is at most the root of the mean squared hinge, which is at most one.
    mean_residual = 2.0
    # A record with hinge h contributes 2 h (1 - h), which is at most 1/2.
    norm_constant = 0.5

    def __init__(self, n_classes: int) -> None:
        super().__init__(n_classes)
        self.n_scores = self.n_stacked = 1 if n_classes == 2 else n_classes
        # Residuals of one label agree in sign in every head; their angle can still be 90 degrees.
        self.versine = 0.0 if n_classes == 2 else 1.0
        self.value_at_zero = float(self.n_scores)

    def residual_limit(self, reach: float = math.inf) -> float:
        return 2.0 * (1.0 + reach)

    def residual_sizes(self, scores: Array) -> Array:
        return np.maximum(2.0 * (1.0 + scores), 0.0)

    def paper_minimizer_norm(self, alpha: float, augmented: float) -> float:
        return math.sqrt(2.0 / alpha)

    def evaluate(self, scores: Array, codes: Codes) -> tuple[Array, Array]:
        sign = _signs(codes, self.n_scores, scores.dtype)
        hinges = np.maximum(1.0 - sign * scores, 0.0)
        return np.vecdot(hinges, hinges), -2.0 * sign * hinges

    def residuals(self, scores: Scores, codes: Codes) -> Scores:
        sign = _signs(codes, self.n_scores, scores.dtype)[:, None, :]
        # The hinge is one minus the margin, where that is positive.
        scores *= -sign
        scores += 1.0
        scores = np.maximum(scores, 0.0, out=scores)
        scores *= -2.0 * sign
        return scores


#: Losses by name.
LOSSES: dict[str, type[Loss]] = {kind.name: kind for kind in (Logistic, Softmax, SquaredHinge)}


def make_loss(name: str, n_classes: int) -> Loss:
    """The loss of this name for this many classes."""
    check_option("loss", name, LOSSES)
    return LOSSES[name](n_classes)


def _rise(scores: Any, step: Any) -> Any:
    """How far the sigmoid rises over a step from each score, without cancelling."""
    return expit(scores + step) * expit(-scores) * -np.expm1(-step)


def clip_residuals(residuals: Any, clip: float) -> Any:
    """Clip residual vectors (along the last axis) to norm ``clip``; they may be overwritten."""
    if residuals.shape[-1] == 1:
        return np.clip(residuals, -clip, clip)
    size = np.sqrt(np.sum(residuals * residuals, axis=-1))
    residuals *= (clip / np.where(size < clip, clip, size))[..., None]
    return residuals


def _signs(codes: Codes, n_columns: int, dtype: Any) -> Any:
    """1 in the column of each record's class, else -1; a single column is that of class 1."""
    if n_columns == 1:
        return (2 * codes - 1).astype(dtype)[:, None]
    sign = np.full((len(codes), n_columns), -1.0, dtype=dtype)
    sign[np.arange(len(codes)), codes] = 1.0
    return sign


def _largest(values: Scores) -> Scores:
    """The largest value along the last axis; the axis stays, with length one."""
    if values.shape[-1] <= SHORT:
        # NumPy vectorises a maximum across rows, but not one along a short axis.
        return np.ascontiguousarray(values.T).max(axis=0).T[..., None]
    return values.max(axis=-1, keepdims=True)


def _less_one_at(values: Any, codes: Codes) -> Any:
    """Subtract one at each record's class along the last axis; values are overwritten."""
    # Two adjacent index arrays take half as long as two with a slice between them.
    every = values.swapaxes(1, -1)
    every[np.arange(len(values)), codes] -= 1.0
    return values
