"""How certain the scores of a descent may be: a factor that makes them log-odds.

Clipped residuals and noise make scores too large. "Noise on gradients" of the documentation derives
the factor from what was released; it is at most 1, and changes no prediction. (``class_weight``
moves scores after it: beside smaller scores it moves more predictions.)
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax

from ...losses import Array
from ...privacy.problem import Problem
from ...rows import blas_threads_for
from ..settings import CERTAINTY
from .discriminant import likely_counts

#: Share of the steps, the last, whose gradients tell; and the smallest factor.
_LAST, _LEAST = 0.25, 2.0**-6
# Factors that a descent from zero may need, as logarithms: where both curves are taken, and read.
_TAKEN = np.linspace(math.log(_LEAST), math.log(4.0), 25)
_READ = np.linspace(_TAKEN[0], _TAKEN[-1], 2001)
# Drawn scores: so many values, of so many records at most.
_VALUES, _RECORDS = 2**21, 2000


def last_of(n_steps: int) -> int:
    """How many steps tell the factor: the last ones, as their parameters are nearly released."""
    return min(n_steps, max(3, round(_LAST * n_steps)))


def factor_of(
    problem: Problem,
    statistics: Any,
    parameters: Array,
    clip: float | None,
    products: Sequence[float],
    noise: float,
) -> float:
    """The factor of a descent's scores, for rows as they come, of released values alone.

    ``products`` are those of the last gradients with where they were taken, each with ``noise``.
    """
    scores = scores_of_sums(problem, statistics, parameters)
    told = float(np.mean(products)), noise / math.sqrt(len(products))
    return factor(scores, clip, *told, pooled=len(statistics.class_sums) < problem.n_classes)


def factor(
    scores: Array, clip: float | None, product: float, noise: float, *, pooled: bool = False
) -> float:
    """The factor for which scores of these sizes have a mean product with clipped residuals.

    After class sums the noise pulls it towards a public number. A descent of noisier steps, from
    the mean of all rows alone (``pooled``), knows less: each factor is as likely as the product
    makes it, times a log-normal law around that number (of deviation 1), and the one of least
    expected log loss is taken. It gives scores and labels the mean product that is expected.
    """
    binary = scores.shape[1] == 1
    if binary:
        scores = np.hstack([np.zeros_like(scores), scores])
    # NumPy takes short rows several times as fast in column order; so few have the same bits.
    columns = np.asfortranarray(scores) if scores.shape[1] < 8 else scores

    def labels(log_factor: float) -> Array:
        return np.ascontiguousarray(softmax(math.exp(log_factor) * columns, axis=1))

    p = labels(0.0)
    # Norms of the residuals, label by label: those of two classes have one entry.
    norms = 1.0 - p if binary else np.sqrt(np.vecdot(p, p)[:, None] - 2.0 * p + 1.0)
    clipped = 1.0 if clip is None else np.minimum(1.0, clip / np.maximum(norms, 1e-300))
    by_label = (np.vecdot(p, scores)[:, None] - scores) * clipped

    if pooled:
        laws = [labels(log_factor) for log_factor in _TAKEN]
        clips, gains = (
            np.interp(_READ, _TAKEN, [np.vecdot(p, of).mean() for p in laws])
            for of in (by_label, scores)
        )
        misfit = (product - clips) / max(noise, 1e-12)
        chances = softmax(-0.5 * (misfit**2 + (_READ - math.log(CERTAINTY)) ** 2))
        return math.exp(min(float(np.interp(chances @ gains, gains, _READ)), 0.0))

    def excess(log_factor: float) -> float:
        """Falls with the factor; the second term is the pull, in units of the noise."""
        expected = np.vecdot(labels(log_factor), by_label).mean()
        return float(expected - product) - noise * (log_factor - math.log(CERTAINTY))

    least = math.log(_LEAST)
    if not excess(0.0) < 0.0:
        return 1.0
    return _LEAST if excess(least) <= 0.0 else math.exp(brentq(excess, least, 0.0))


def scores_of_sums(problem: Problem, statistics: Any, parameters: Array) -> Array:
    """Scores of records as released sums have them: normal around those of the class means."""
    d = problem.n_features
    coef, offsets = parameters[:, :d], parameters[:, d:].sum(axis=1)
    n, square = statistics.total, statistics.norm_bound**2
    noise = np.broadcast_to(statistics.sigma_sums, len(statistics.class_sums))
    if len(statistics.class_sums) < problem.n_classes:
        counts, shares = np.array([n]), np.ones(1)
    else:
        counts = np.maximum(likely_counts(statistics), 1.0)
        shares = counts / counts.sum()
    means = statistics.class_sums / counts[:, None]
    # What noise adds to the squares of the means is no part of them.
    added = float(shares @ (noise / counts) ** 2)
    if statistics.second_moment is None:
        between = float(shares @ np.vecdot(means, means)) - d * added
        spread = coef @ coef.T * (min(max(square - between, 0.05 * square), square) / d)
    else:
        within = coef @ (statistics.second_moment / n) @ coef.T
        centres = means @ coef.T
        spread = within - (centres.T * shares) @ centres + added * coef @ coef.T
    with blas_threads_for(len(coef)):
        values, vectors = np.linalg.eigh(spread)
    # The symmetric root, which no choice of eigenvectors moves.
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    k = len(coef)
    records = max(min(_RECORDS, _VALUES // k), 2)
    # This stream is the same with every version of NumPy.
    draws = np.random.RandomState(0).standard_normal((records, k))
    classes = np.searchsorted(np.cumsum(shares)[:-1], (np.arange(records) + 0.5) / records)
    return (means @ coef.T + offsets)[classes] + draws @ root
