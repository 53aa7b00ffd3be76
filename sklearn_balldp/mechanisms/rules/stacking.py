"""How much of the released discriminant, and of a public model beside it, a start is made of.

Both are functions of public numbers and of what was released, so neither costs privacy. "What is
public is free" of the documentation says how.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ...losses import Array
from ..settings import EFFECTIVE_DIMENSION, TAIL, WITHIN_CLASS_FLOOR
from .discriminant import of_occupied


def stacked(
    statistics: Any,
    coef: Array,
    intercept: Array,
    examples: Any,
    *,
    priors: Any,
    share: float,
) -> tuple[Array, Array]:
    """A discriminant of released sums beside the model of public examples, each as it fits.

    Vectors of classes alone know no covariance, and add nothing to sums that are released with a
    second moment. Scores of class sums alone know no tails: what is made of them does, and a
    ``share`` of the log-odds is enough there, where steps restore what is taken off.
    """
    if examples.freedom == 0 and statistics.second_moment is not None:
        return coef, intercept
    norm_bound = statistics.norm_bound
    occupied, counts, log_priors, means, noise = of_occupied(statistics, priors)
    public = replace(
        examples,
        **{name: getattr(examples, name)[occupied] for name in ("coef", "cross", "spread")},
    )
    own = coef[occupied] * norm_bound
    a, b = multiples_of(
        own, public, means, noise, counts, share if statistics.second_moment is None else None
    )
    offsets = log_priors + a * (intercept[occupied] - log_priors) + b * examples.intercept[occupied]
    coef, intercept = coef.copy(), intercept.copy()
    coef[occupied] = a * coef[occupied] + b * public.coef / norm_bound
    intercept[occupied] = offsets
    return coef, intercept


def multiples_of(
    coef: Array,
    examples: Any,
    means: Array,
    noise: Array,
    counts: Array,
    share: float | None = None,
) -> tuple[float, float]:
    r"""Multiples (a, b) of a discriminant ``coef`` and of the examples' model.

    They minimise the loss of a linear discriminant for the scores a A + b T, class k with share
    :math:`\pi_k` at :math:`\delta_k` from the grand mean, W the covariance within classes:

    .. math:: \sum_k \pi_k (\tfrac12 \theta_k W \theta_k - s \theta_k \delta_k)

    Released sums tell the second term, with noise of a known scale; the examples tell the first,
    from records that T has not seen. Before the sums are seen both multiples are 1, give or take 1.
    The factor s is 1 / (1 + L / TAIL) for the log-odds L of the best scores with s = 1: classes
    have heavier tails than normal ones.

    Slopes are those for rows of norm 1, as are released ``means``, the variances of the ``noise``
    in their values, and the classes' weights ``counts``. A ``share`` of L counts; it is given if
    ``coef`` knows no tails, and its multiple is s beforehand.
    """
    shares, d, public = counts / counts.sum(), means.shape[1], examples.coef
    grand = shares @ means
    deviations = means - grand
    added = noise * (1.0 - 2.0 * shares) + shares**2 @ noise
    squares = np.vecdot(deviations, deviations)
    # What noise adds to a square is no distance.
    apart = np.maximum(1.0 - d * added / np.maximum(squares, 1e-300), 0.0)
    seen = np.vecdot(coef, deviations) * apart, np.vecdot(public, deviations)
    slopes = np.array([max(float(shares @ seen[0]), 0.0), float(shares @ seen[1])])

    if examples.freedom > 0:
        # The variance of the scores is uncertain, and too much trust does more harm.
        least = 1.0 + math.sqrt(2.0 / examples.freedom)
        own = np.vecdot(coef @ examples.within, coef)
        rows = own, np.vecdot(coef, examples.cross), least * examples.spread
        certain = np.eye(2)
    else:
        # Nothing tells how classes spread, but what the rule of noisy means takes for granted. The
        # size of such vectors means nothing.
        centre = float(grand @ grand) - d * float(shares**2 @ noise)
        between = float(shares @ (squares - d * added))
        left = max(1.0 - max(centre, 0.0) - max(between, 0.0), WITHIN_CLASS_FLOOR)
        k = min(EFFECTIVE_DIMENSION, d)
        # Signal lies where rows vary most; noise lies everywhere.
        width, own = left * k / d, np.vecdot(coef, coef) * (apart + (1.0 - apart) / k)
        rows = width * own, width * np.vecdot(coef, public), width * np.vecdot(public, public)
        certain = np.diag([1.0, 0.0])
    variance, shared, other = (float(shares @ row) for row in rows)
    limit = math.sqrt(max(variance * other, 0.0))
    shared = min(max(shared, -limit), limit)
    curvature = np.array([[variance, shared], [shared, other]])
    log_odds = float(slopes @ np.linalg.lstsq(curvature, slopes, rcond=1e-9)[0])
    size = 1.0 / (1.0 + (1.0 if share is None else share) * max(log_odds, 0.0) / TAIL)
    believed = np.array([1.0 if share is None else size, 1.0])

    weights = shares**2 * added
    both = np.array([[weights @ np.vecdot(x, y) for x in (coef, public)] for y in (coef, public)])
    both += np.diag(1e-9 * np.diag(both) + np.finfo(np.float64).tiny)
    told = curvature @ np.linalg.inv(both)
    total, wanted = certain + told @ curvature, certain @ believed + told @ (size * slopes)
    found = np.linalg.lstsq(total, wanted, rcond=None)[0]
    for i in (0, 1):
        if found[i] < 0.0:
            # Neither is turned round: the other one alone.
            found[i], found[1 - i] = 0.0, max(wanted[1 - i] / total[1 - i, 1 - i], 0.0)
    return float(found[0]), float(found[1])
