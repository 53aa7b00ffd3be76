"""Mechanisms that ask one question: noisy class sums, with a second moment or private counts."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._parameters import check_option
from ..privacy.problem import Problem
from .base import Mechanism
from .discriminant_rule import likely_counts
from .kernel import Array, Conversation
from .queries import Sums
from .settings import share_of_sums

#: How prototypes use the public class counts.
COUNT_MODES = ("per_class", "min", "worst")


@dataclass(eq=False, repr=False)
class StatisticsPerturbation(Mechanism):
    """Noise on class sums and on the second moment of the rows.

    Parameters
    ----------
    share : float or None, default=None
        How the budget is divided: what takes the larger share gets less noise. It is the share of
        the squared mu that the class sums take; 1 leaves the second moment out. None takes what
        :func:`.share_of_sums` finds from public numbers.
    """

    name = "statistics"

    share: float | None = None

    def bound(self, problem: Problem, mu: float) -> Sums:
        share = share_of_sums(problem, mu) if self.share is None else float(self.share)
        return class_sums(problem, mu, share)

    def conversation(self, problem: Problem, bound: Sums) -> Conversation:
        return (yield bound)


@dataclass(eq=False, repr=False)
class PrototypePerturbation(Mechanism):
    """Noise on class sums, of which ridge prototypes are made.

    Parameters
    ----------
    counts : {"per_class", "min", "worst"}
        Noise in each prototype: what its count asks for, what the smallest count asks for, or
        what a count of one would (the paper's). Not used where labels are protected: counts are
        then released too.
    """

    name = "prototypes"

    counts: str = "per_class"

    def check(self) -> None:
        check_option("counts", self.counts, COUNT_MODES)

    def bound(self, problem: Problem, mu: float) -> Sums:
        sizes, weights = problem.class_sizes, problem.sums_weights
        if sizes is None:
            return class_sums(problem, mu, 1.0)
        if self.counts == "worst" and not weights.uniform:
            raise ValueError(
                "counts='worst' is the paper's, for one record of one weight a person; use "
                "counts='per_class' with groups or weights."
            )
        # What a class sum is divided by; a prototype's noise is that of the sum over half of it.
        shrink: Any = 2.0 * sizes + problem.alpha * weights.total
        present = sizes > 0.0
        scales = np.array(weights.class_largest) if self.counts == "per_class" else shrink
        query = Sums(tuple(np.where(present, scales, 0.0).tolist())).calibrated(problem, mu)
        if self.counts == "worst":
            smallest: float = np.min(shrink[present])
            query = query.scaled(smallest / (2.0 + problem.alpha * weights.total))
        return query

    def conversation(self, problem: Problem, bound: Sums) -> Conversation:
        return (yield bound)


def class_sums(problem: Problem, mu: float, share: float, *, pooled: bool = False) -> Sums:
    """The query that spends ``mu`` at the problem's radius, a share of its square on class sums.

    Parameters
    ----------
    problem : Problem
        Public numbers of the fit.
    mu : float
        Gaussian differential privacy to spend.
    share : float
        Of the class sums in mu squared; 1: no second moment.
    pooled : bool, default=False
        Whether one sum of all rows takes the place of class sums.

    Returns
    -------
    Sums
        With noise scales.
    """
    counted = problem.labels == "protected" and not pooled
    query = Sums(constant=constant_of_counts(problem) if counted else 0.0, pooled=pooled)
    if share < 1.0 and not pooled:
        sums, moment = replace(query, moment=1.0).sensitivity(problem)
        query = replace(
            query, sigma=sums / math.sqrt(share), moment=moment / math.sqrt(1.0 - share)
        )
    return query.calibrated(problem, mu)


def constant_of_counts(problem: Problem) -> float:
    """Constant that rows are augmented by where labels are protected: it gives noisy counts.

    A label change moves the sums by sqrt(2) (B^2 + c^2)^(1/2); c is as large as costs nothing
    beside substitutions within the radius, and at least B / 2.
    """
    norm_bound = problem.norm_bound
    r = min(problem.euclidean_radius, 2.0 * norm_bound)
    return max(0.5 * norm_bound, math.sqrt(max(0.5 * r**2 - norm_bound**2, 0.0)))


def prototypes_of(statistics: Any, alpha: float) -> Array:
    """Ridge prototypes of noisy class sums: 2 S_c / (2 n_c + alpha n)."""
    shrink = 2.0 * likely_counts(statistics) + alpha * statistics.total
    prototypes: Array = 2.0 * statistics.class_sums / shrink[:, None]
    return prototypes
