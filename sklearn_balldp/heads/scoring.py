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
from ..mechanisms.products import scores_of
from ..rows import Shard, are_plain, rows_in_domain, table_of, working_precision
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
    """Scores of rows in the domain, in the precision of the rows where it can hold them.

    With ``largest`` only where they are largest. Refused rows raise a FloatingPointError.
    """
    # Products of plain rows with such weights are finite. No row decides the precision.
    moderate = bool((np.abs(coef) < 1e18).all())
    moderate = moderate and bool(((np.abs(intercept) < 1e18) | np.isneginf(intercept)).all())
    precision: Any = working_precision(X.dtype, norm_bound) if moderate else np.float64
    weights = np.ascontiguousarray(coef.T, dtype=precision)
    kind = (len(X),) if largest else (len(X), len(coef))
    scores: NDArray[Any] = np.empty(kind, dtype=np.intp if largest else precision)
    start = 0
    for part in table_of(X).each(
        _scores_in, weights, intercept.astype(precision), norm_bound, domain, largest
    ):
        scores[start : start + len(part)] = part
        start += len(part)
    return scores


def _scores_in(
    part: Shard,
    weights: NDArray[Any],
    offsets: NDArray[Any],
    norm_bound: float,
    domain: str,
    largest: bool,
) -> NDArray[Any]:
    """Scores of one shard's rows in the precision of the weights, or where they are largest."""
    precision: Any = weights.dtype.type
    # The squared bound in the precision of the squares that it is compared with.
    bound, kept = float(precision(norm_bound) ** 2), []
    for _, block in part.blocks(dtype=precision):
        with np.errstate(all="ignore"):
            scores = scores_of(block, weights)
            squares = np.vecdot(block, block)
            plain = are_plain(squares, block.shape[1], domain)
            scaled = plain & (squares > bound) if domain == "ball" else plain
            # A factor of one changes no bit: every row is multiplied, whatever the others need.
            scores *= np.where(scaled, norm_bound / np.sqrt(squares), precision(1.0))[:, None]
        if not plain.all():
            _score_others(scores, block, ~plain, weights, norm_bound, domain)
        scores += offsets
        kept.append(_largest_of(scores) if largest else scores)
    return np.concatenate(kept)


def _score_others(
    scores: NDArray[Any],
    block: NDArray[Any],
    others: NDArray[np.bool_],
    weights: NDArray[Any],
    norm_bound: float,
    domain: str,
) -> None:
    """Score rows of a block that are refused, or of a size that only float64 can square."""
    places = np.flatnonzero(others)
    places = places[block[places].any(axis=1)]  # scores of zero rows are zero already
    if len(places):
        # At their places in a block of this shape: how many there are must not matter to any.
        placed = np.zeros_like(block)
        placed[places] = rows_in_domain(block[places].astype(np.float64), norm_bound, domain)
        scores[places] = scores_of(placed, weights)[places]


def _largest_of(scores: NDArray[Any]) -> NDArray[np.intp]:
    """Positions of the largest scores, of equal ones the first."""
    if scores.shape[1] == 1:
        return (scores[:, 0] > 0.0).astype(np.intp)
    return scores.argmax(axis=1)
