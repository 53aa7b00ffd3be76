"""Where a descent starts: noisy sums, the coordinates that they tell, and the first iterate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..privacy.noise import Noise
from ..privacy.statistics import StatisticsBound
from ..privacy.transcript import TranscriptBound
from .coordinates import LENGTHENED_POWER, Coordinates, coordinates_of, square_of_mean
from .discriminant_rule import TAIL, discriminant_rule, likely_counts
from .iterates import Iterates
from .mechanism import Array, PrivateProblem, Problem, Promise
from .statistics import Statistics, StatisticsPerturbation, statistics_of

#: Square of a mean, in units of B squared and of the share of its second release, from where that
#: one pays: it leaves steps less of the budget, and shorter rows.
LONG_MEAN = 2.0
#: Length of the path of all steps, in lengths of the start, that may restore half of its slope.
LONG_PATH = 8.0


@dataclass(frozen=True)
class Beginning:
    """Where the steps begin, and in which coordinates: a public function of the released sums.

    Parameters
    ----------
    bound : TranscriptBound
        Of the steps alone, for rows in their coordinates.
    coordinates : Coordinates or None
        How the steps see the rows; None where they stay as they are.
    theta : ndarray of shape (n_scores, n_columns)
        First iterate.
    """

    bound: TranscriptBound
    coordinates: Coordinates | None
    theta: Array

    def iterates(self, alpha: float, precision: DTypeLike) -> Iterates:
        """One run from here."""
        return Iterates(1, self.bound, alpha, precision, self.theta[None])

    def parameters(self, theta: Array) -> Array:
        """Weights and intercepts for rows where they were, from an iterate or a mean of some."""
        constant = self.bound.constant
        if constant == 0.0:
            return theta
        parameters = theta.copy()
        parameters[:, -1] *= constant
        if self.coordinates is not None:
            parameters[:, :-1] = self.coordinates.shortened(parameters[:, :-1])
            parameters[:, -1] -= parameters[:, :-1] @ self.coordinates.centre
        return parameters

    def rounding(self, theta: Array, precision: DTypeLike) -> float:
        """Half of what rounding adds to the sensitivity of a step, of rows in a precision."""
        own = self.coordinates
        if own is None:
            return self.bound.rounding(theta, precision)
        return self.bound.rounding(theta, precision, own.reach, whitened=own.whitened)


def beginning(table: Array, problem: Problem, bound: TranscriptBound) -> Beginning:
    """Where the steps begin that follow a released table of sums (any, where there is none)."""
    if bound.start is None:
        return Beginning(bound, None, np.zeros(bound.shape))
    statistics = statistics_of(table, problem, bound.start)
    coordinates = None
    if bound.centred:
        (radius, _), *others = bound.promises
        several = bound.descent.n_steps > 1
        # A change of label moves a row by any distance, a second promise is a wider one, and
        # residuals that are not clipped grow with the norm.
        if bound.labels != "public" or others or bound.descent.clip is None:
            radius = math.inf
        coordinates = coordinates_of(statistics, several_steps=several, radius=radius)
    own = bound.after(bound.norm_bound)
    if coordinates is not None:
        own = bound.after(coordinates.norm, coordinates.lengthened**LENGTHENED_POWER)
    if bound.start.pooled:
        return Beginning(own, coordinates, np.zeros(bound.shape))
    coef, intercept = start_of(statistics, problem, own)
    if coordinates is not None:
        intercept = intercept + coef @ coordinates.centre
        coef = coordinates.restored(coef)
    columns = [coef]
    if bound.constant > 0.0:
        columns.append(intercept[:, None] / own.constant)
    return Beginning(own, coordinates, np.hstack(columns))


def start_bound(
    problem: Problem,
    promises: Sequence[tuple[float, float]],
    share: float,
    sums: float | None,
    *,
    pooled: bool,
) -> StatisticsBound:
    """Bound of the sums that a descent starts from, ``share`` of mu squared being left for it.

    ``sums`` is the share of the class sums among them, None for what public numbers say;
    ``pooled`` takes one sum of all rows instead.
    """
    mechanism, most = StatisticsPerturbation(sums), math.sqrt(1.0 - share)
    bound = mechanism.bound(problem, most * promises[0][1], pooled=pooled)
    for outer, outer_mu in promises[1:]:
        excess = bound.mu(outer) / (most * outer_mu)
        if excess > 1.0:
            # The second promise is the stricter one.
            bound = StatisticsPerturbation(bound.share).bound(
                problem, most * promises[0][1] / excess, pooled=pooled
            )
    return bound


def start_values(problem: PrivateProblem, bound: TranscriptBound) -> tuple[Array, Array]:
    """Noiseless table of the sums that a descent starts from, and its noise scales."""
    start: Any = bound.start
    return StatisticsPerturbation().noiseless(problem, Promise(start))


def released_start(
    problem: PrivateProblem, bound: TranscriptBound, noise: Noise
) -> tuple[Array, TranscriptBound]:
    """Noisy table of the sums that a descent starts from, and the bound that it leaves.

    A mean is released roughly at first, and again where that shows it to be long: steps of shorter
    rows then save more than the second release takes from them.
    """
    values, scale = start_values(problem, bound)
    table = noise(values, scale)
    if bound.start is None or not bound.start.pooled:
        return table, bound
    repeating = bound.repeating()
    if repeating is None:
        return table, bound
    again, both = repeating
    taken = max((again.mu(radius) / mu) ** 2 for radius, mu in bound.promises)
    mean = statistics_of(table, problem, bound.start)
    if square_of_mean(mean) <= LONG_MEAN * taken * bound.norm_bound**2:
        return table, bound
    ratio = (scale[0, 0] / again.sigma[0]) ** 2
    return (table + ratio * noise(values, again.sigma[0])) / (1.0 + ratio), both


def start_of(
    statistics: Statistics, problem: Problem, bound: TranscriptBound
) -> tuple[Array, Array]:
    """Weights and intercepts of a discriminant of noisy sums, in the units of the loss.

    ``bound`` is that of the steps alone.
    """
    priors = None
    if problem.class_weights is not None:
        # The weights of classes are priors: their sums are not weighted.
        priors = likely_counts(statistics) * np.array(problem.class_weights)
        priors = priors / priors.sum()
    coef, intercept = discriminant_rule(statistics, prior=problem.prior, priors=priors)
    known = np.isfinite(intercept)
    intercept = np.where(known, intercept, intercept[known].min(initial=0.0))
    if bound.loss == "squared_hinge":
        coef, intercept = _as_margins(coef, intercept, statistics, problem.class_weights)
    elif statistics.second_moment is None and bound.descent.n_steps > 1:
        kept = _kept(coef, statistics, bound)
        coef, intercept = kept * coef, kept * intercept
    if bound.loss == "softmax":
        return coef - coef.mean(axis=0), intercept - intercept.mean()
    if len(coef) == 2:
        half = 0.5 if bound.loss == "squared_hinge" else 1.0
        return half * (coef[1:] - coef[:1]), half * (intercept[1:] - intercept[:1])
    return coef, intercept


def _kept(coef: Array, statistics: Statistics, bound: TranscriptBound) -> float:
    r"""Share of its slope that a start keeps if it is made of class sums alone.

    Such scores are too steep where classes are far apart, as they know nothing of the covariance:
    by :math:`1 + L / 14` for log-odds L of the class means. As much is taken off as steps could
    restore: most of it where their path is many times as long as the start.
    """
    counts, means = _class_means(statistics)
    shares = counts / counts.sum()
    deviations = means - shares @ means
    squares = np.vecdot(deviations, deviations)
    noise = means.shape[1] * (statistics.sigma_sums / counts) ** 2
    # What noise adds to a square is no distance.
    apart = np.maximum(1.0 - noise / np.maximum(squares, 1e-300), 0.0)
    log_odds = max(float(shares @ (np.vecdot(coef, deviations) * apart)), 0.0)
    descent = bound.descent
    longest = descent.learning_rate * descent.n_steps / (1.0 - descent.momentum)
    longest *= (descent.clip or 1.0) * bound.norm_bound
    length = max(float(np.linalg.norm(coef - coef.mean(axis=0))), 1e-300)
    restored = 1.0 / (1.0 + (LONG_PATH * length / longest) ** 2)
    return 1.0 / (1.0 + restored * log_odds / TAIL)


def _class_means(statistics: Statistics) -> tuple[Array, Array]:
    """Weight of each class, or its records, and noisy means; none is divided by nothing."""
    counts = likely_counts(statistics)
    # A public class may have no records.
    counts = np.maximum(counts, float(counts[counts > 0.0].min(initial=1.0)))
    return counts, statistics.class_sums / counts[:, None]


def _as_margins(
    coef: Array,
    intercept: Array,
    statistics: Statistics,
    class_weights: tuple[float, ...] | None,
) -> tuple[Array, Array]:
    """Scores to about 1 on their own class and -1 on the others, in the same order as before."""
    counts, means = _class_means(statistics)
    if class_weights is not None:
        counts = counts * np.array(class_weights)
    scores = means @ coef.T + intercept
    own = np.diag(scores)
    # Row by row: a sum over all less one of them would cancel where weights are extreme.
    rest = np.where(np.eye(len(counts), dtype=bool), 0.0, counts)
    weight = rest.sum(axis=1)
    others = np.vecdot(rest, scores.T) / np.where(weight > 0.0, weight, 1.0)
    shares = counts / counts.sum()
    half = max(float(shares @ (0.5 * (own - others))), 1e-3)
    return coef / half, (intercept - float(shares @ (0.5 * (own + others)))) / half
