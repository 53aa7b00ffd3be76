"""Scores of rows under released weights, the classes of largest score, and probabilities.

What is predicted of a row depends on it, on its place and on the number of rows: no other row moves
it by a bit. :class:`.PrivateAccuracy` counts on that.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax
from sklearn.utils.metaestimators import available_if

from ..losses import Array
from ..rows import rows_in_domain


@dataclass(frozen=True, repr=False, eq=False)
class ScoreRule:
    """What is predicted of a block of rows: scores in the domain, and what is made of them.

    Refused rows raise a FloatingPointError.
    """

    coef: Array
    intercept: Array
    norm_bound: float
    domain: str = "ball"
    finish: Callable[[Array], NDArray[Any]] | None = None

    @property
    def width(self) -> int:
        """Number of scores of a row."""
        return len(self.intercept)

    def __call__(self, block: Array) -> NDArray[Any]:
        rows = rows_in_domain(block, self.norm_bound, self.domain)
        scores: Array = rows @ self.coef.T + self.intercept
        return scores if self.finish is None else self.finish(scores)


def largest_of(scores: Array) -> NDArray[np.intp]:
    """Positions of the largest scores, of equal ones the first."""
    if scores.shape[1] == 1:
        return (scores[:, 0] > 0.0).astype(np.intp)
    return scores.argmax(axis=1)


def decisions(scores: Array) -> Array:
    """Scores in scikit-learn's shape: one column for two classes."""
    if scores.shape[1] == 2:
        return scores[:, 1] - scores[:, 0]
    return scores[:, 0] if scores.shape[1] == 1 else scores


def log_probabilities(scores: Array) -> Array:
    """Logarithms of the probabilities of all classes."""
    if scores.shape[1] == 1:
        scores = np.hstack([np.zeros_like(scores), scores])
    logs = log_softmax(scores, axis=1)
    # Minus infinity where the probability itself underflows to zero.
    return np.where(np.exp(logs) > 0.0, logs, -np.inf)


def probabilities(scores: Array) -> Array:
    """Probabilities of all classes."""
    return np.exp(log_probabilities(scores))


class ProbabilitiesMixin:
    """Probabilities of a head whose scores are log-probabilities, up to a constant of the row."""

    _predicted: Callable[..., Any]  # the head provides it

    def _has_probabilities(self) -> bool:
        return True

    @available_if(lambda self: self._has_probabilities())
    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Log-probabilities of ``classes_``, of shape (n_samples, n_classes), for rows ``X``.

        Rows are those of ``decision_function``.
        """
        return self._predicted(X, log_probabilities)

    @available_if(lambda self: self._has_probabilities())
    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities of ``classes_``, of shape (n_samples, n_classes), for rows ``X``."""
        return self._predicted(X, probabilities)
