"""Scores of noisy sums and of what is public, and the first iterate of a descent made of them."""

from typing import Any

import numpy as np

from ...losses import Array
from ...privacy.problem import Problem
from ..settings import TAIL
from .discriminant import discriminant_rule, likely_counts
from .stacking import stacked


def discriminant_of(
    statistics: Any, problem: Problem, share: float, examples: Any
) -> tuple[Array, Array]:
    """Weights and intercepts in the units of the loss; ``share`` is that of steps in mu^2."""
    margins = problem.kind.margins
    coef, intercept = scores_of(statistics, examples, share=share, shrinks=not margins)
    finite = np.isfinite(intercept)
    intercept = np.where(finite, intercept, intercept[finite].min(initial=0.0))
    if margins:
        coef, intercept = _as_margins(coef, intercept, statistics)
    if problem.kind.centred:
        return coef - coef.mean(axis=0), intercept - intercept.mean()
    if len(coef) == 2:
        half = 0.5 if margins else 1.0
        return half * (coef[1:] - coef[:1]), half * (intercept[1:] - intercept[:1])
    return coef, intercept


def scores_of(
    statistics: Any,
    examples: Any,
    *,
    priors: Any = None,
    shrinkage: Any = "auto",
    share: float = 1.0,
    shrinks: bool = True,
) -> tuple[Array, Array]:
    """The discriminant of released sums, beside the model of public ``examples`` if there are some.

    Scores of class sums alone know nothing of the covariance, and their log-odds are too large:
    they are shrunk, unless their size is found otherwise (``shrinks=False``).
    """
    coef, intercept = discriminant_rule(statistics, shrinkage=shrinkage, priors=priors)
    if examples is not None:
        return stacked(statistics, coef, intercept, examples, priors=priors, share=share)
    if shrinks and statistics.second_moment is None:
        kept = _kept_of_slopes(coef, statistics, share)
        coef, intercept = kept * coef, kept * intercept
    return coef, intercept


def _class_means(statistics: Any) -> tuple[Array, Array]:
    """Weight of each class, or its records, and noisy means."""
    counts = likely_counts(statistics)
    # A public class may have no records, and nothing is divided by zero.
    counts = np.maximum(counts, float(counts[counts > 0.0].min(initial=1.0)))
    return counts, statistics.class_sums / counts[:, None]


def _kept_of_slopes(coef: Array, statistics: Any, share: float) -> float:
    """What is kept of the slopes of scores of class sums alone.

    Steps restore what is taken off, so that their ``share`` of the log-odds is enough there.
    """
    counts, means = _class_means(statistics)
    shares = counts / counts.sum()
    deviations = means - shares @ means
    squares = np.vecdot(deviations, deviations)
    noise = means.shape[1] * (statistics.sigma_sums / counts) ** 2
    # What noise adds to a square is no distance.
    apart = np.maximum(1.0 - noise / np.maximum(squares, 1e-300), 0.0)
    log_odds = max(float(shares @ (np.vecdot(coef, deviations) * apart)), 0.0)
    return 1.0 / (1.0 + share * log_odds / TAIL)


def _as_margins(coef: Array, intercept: Array, statistics: Any) -> tuple[Array, Array]:
    """Scores to about 1 on their class and -1 on the others, in the same order as before."""
    counts, means = _class_means(statistics)
    inside = np.vecdot(means, coef) + intercept
    # Sums before and behind each class: one over all, less a term of it, would cancel where sizes
    # are extreme.
    weight = _of_the_others(counts)
    mean = _of_the_others(counts[:, None] * means) / np.where(weight > 0.0, weight, 1.0)[:, None]
    others = np.where(weight > 0.0, np.vecdot(mean, coef) + intercept, 0.0)
    shares = counts / counts.sum()
    half = max(float(shares @ (0.5 * (inside - others))), 1e-3)
    return coef / half, (intercept - float(shares @ (0.5 * (inside + others)))) / half


def _of_the_others(values: Array) -> Array:
    """For each class, the sum of the values of all others."""
    sums = np.zeros((2, *values.shape))
    sums[0, 1:] = np.cumsum(values[:-1], axis=0)
    sums[1, :-1] = np.cumsum(values[:0:-1], axis=0)[::-1]
    return sums[0] + sums[1]
