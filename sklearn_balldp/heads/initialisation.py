"""Where a descent starts: noisy sums, the whitening map that they tell, and the first iterate."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..privacy.transcript import TranscriptBound
from .discriminant_rule import discriminant_rule, likely_counts
from .iterates import Iterates
from .mechanism import Array, PrivateProblem, Problem, Promise
from .settings import TAIL
from .statistics import Statistics, StatisticsPerturbation, statistics_of
from .whitening import WhiteningMap, whitening_map


@dataclass(frozen=True)
class Initialisation:
    """Where the steps begin, and how they see the rows: a public function of the released sums.

    The bound is that of the steps alone, for mapped rows; ``map`` is None where rows stay as they
    are; ``theta`` is the first iterate, of shape (n_scores, n_columns).
    """

    bound: TranscriptBound
    map: WhiteningMap | None
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
        if self.map is not None:
            parameters[:, :-1] = self.map.shortened(parameters[:, :-1])
            parameters[:, -1] -= parameters[:, :-1] @ self.map.centre
        return parameters

    def rounding(self, theta: Array, precision: DTypeLike) -> float:
        """Half of what rounding adds to the sensitivity of a step, of rows in a precision."""
        own = self.map
        if own is None:
            return self.bound.rounding(theta, precision)
        return self.bound.rounding(theta, precision, own.reach, whitened=own.shortens)


def initialise(released: Array, problem: Problem, bound: TranscriptBound) -> Initialisation:
    """Where the steps begin that follow released sums (any array, where there is no start)."""
    if bound.start is None:
        return Initialisation(bound, None, np.zeros(bound.shape))
    statistics = statistics_of(released, bound.start, problem.classes, problem.public_counts)
    own, seen = bound.after(bound.norm_bound), None
    if bound.whitened:
        seen = whitening_map(statistics, several_steps=bound.descent.n_steps > 1)
        own = bound.after(seen.norm)
    if bound.start.pooled:
        return Initialisation(own, seen, np.zeros(bound.shape))
    share = (bound.steps_mu / bound.promised_mu) ** 2
    coef, intercept = _discriminant(statistics, problem, own, share)
    if seen is not None:
        intercept = intercept + coef @ seen.centre
        coef = seen.restored(coef)
    columns = [coef]
    if bound.constant > 0.0:
        columns.append(intercept[:, None] / own.constant)
    return Initialisation(own, seen, np.hstack(columns))


def start_values(problem: PrivateProblem, bound: TranscriptBound) -> tuple[Array, Array]:
    """Noiseless sums that a descent starts from, and their noise scales."""
    start: Any = bound.start
    return StatisticsPerturbation().noiseless(problem, Promise(start))


def _discriminant(
    statistics: Statistics, problem: Problem, bound: TranscriptBound, share: float
) -> tuple[Array, Array]:
    """Weights and intercepts of a discriminant of noisy sums, in the units of the loss.

    ``bound`` is that of the steps alone, and ``share`` theirs of the squared mu.
    """
    priors = None
    if problem.class_weights is not None:
        # The weights of classes are priors: their sums are not weighted.
        priors = likely_counts(statistics) * np.array(problem.class_weights)
        priors = priors / priors.sum()
    coef, intercept = discriminant_rule(
        statistics, class_embeddings=problem.class_embeddings, priors=priors
    )
    known = np.isfinite(intercept)
    intercept = np.where(known, intercept, intercept[known].min(initial=0.0))
    if bound.loss == "squared_hinge":
        coef, intercept = _as_margins(coef, intercept, statistics, problem.class_weights)
    elif statistics.second_moment is None and bound.descent.n_steps > 1:
        kept = 1.0 / (1.0 + share * _log_odds(coef, statistics) / TAIL)
        coef, intercept = kept * coef, kept * intercept
    if bound.loss == "softmax":
        return coef - coef.mean(axis=0), intercept - intercept.mean()
    if len(coef) == 2:
        half = 0.5 if bound.loss == "squared_hinge" else 1.0
        return half * (coef[1:] - coef[:1]), half * (intercept[1:] - intercept[:1])
    return coef, intercept


def _class_means(statistics: Statistics) -> tuple[Array, Array]:
    """Weight of each class, or its records, and noisy means."""
    counts = likely_counts(statistics)
    # A public class may have no records, and nothing is divided by zero.
    counts = np.maximum(counts, float(counts[counts > 0.0].min(initial=1.0)))
    return counts, statistics.class_sums / counts[:, None]


def _log_odds(coef: Array, statistics: Statistics) -> float:
    r"""Log-odds L of the class means in scores of class sums alone.

    Such scores are too steep where classes are far apart, as they know nothing of the covariance:
    by 1 + L / 14. The steps restore what is taken off, the more the larger their share is.
    """
    counts, means = _class_means(statistics)
    shares = counts / counts.sum()
    deviations = means - shares @ means
    squares = np.vecdot(deviations, deviations)
    noise = means.shape[1] * (statistics.sigma_sums / counts) ** 2
    # What noise adds to a square is no distance.
    apart = np.maximum(1.0 - noise / np.maximum(squares, 1e-300), 0.0)
    return max(float(shares @ (np.vecdot(coef, deviations) * apart)), 0.0)


def _as_margins(
    coef: Array, intercept: Array, statistics: Statistics, class_weights: tuple[float, ...] | None
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
