"""Scores of rows under released weights, the classes of largest score, and probabilities.

What is predicted of a row depends on it alone, bit for bit: :class:`.PrivateAccuracy` counts on it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax
from sklearn.utils.metaestimators import available_if

from ..losses import Array
from ..rows import each, row_blocks, rows_in_domain
from ..rows.sources import Floats


class ProbabilitiesMixin:
    """Probabilities of a head whose scores are log-probabilities, up to a constant of the row."""

    _scores: Callable[..., NDArray[Any]]  # the head provides it

    def _has_probabilities(self) -> bool:
        return True

    @available_if(lambda self: self._has_probabilities())
    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Log-probabilities of ``classes_``, of shape (n_samples, n_classes), for rows ``X``.

        Rows and types are those of ``decision_function``.
        """
        scores = self._scores(X)
        if scores.shape[1] == 1:
            scores = np.hstack([np.zeros_like(scores), scores])
        logs = log_softmax(scores, axis=1)
        # Minus infinity where the probability itself underflows to zero.
        return np.where(np.exp(logs) > 0.0, logs, -np.inf)

    @available_if(lambda self: self._has_probabilities())
    def predict_proba(self, X: ArrayLike) -> Floats:
        """Probabilities of ``classes_``, of shape (n_samples, n_classes), for rows ``X``."""
        return np.exp(self.predict_log_proba(X))


def projected_scores(
    X: Floats,
    coef: Array,
    intercept: Array,
    norm_bound: float,
    domain: str = "ball",
    *,
    largest: bool = False,
) -> NDArray[Any]:
    """Scores of rows in the domain.

    With ``largest`` only where they are largest. Refused rows raise a FloatingPointError.
    """

    def of_range(start: int, stop: int) -> NDArray[Any]:
        kept = []
        for _, block in row_blocks(X, start, stop):
            scores = rows_in_domain(block, norm_bound, domain) @ coef.T + intercept
            kept.append(_largest_of(scores) if largest else scores)
        return np.concatenate(kept)

    return np.concatenate(list(each(of_range, *X.shape)))


def _largest_of(scores: NDArray[Any]) -> NDArray[np.intp]:
    """Positions of the largest scores, of equal ones the first."""
    if scores.shape[1] == 1:
        return (scores[:, 0] > 0.0).astype(np.intp)
    return scores.argmax(axis=1)
