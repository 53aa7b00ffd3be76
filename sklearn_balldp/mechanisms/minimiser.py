"""Output perturbation: the certified minimiser, and noise on it (the paper's mechanism)."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from scipy.optimize import brentq

from .._parameters import check_option, check_positive
from ..adjacency import RowGeometry
from ..privacy.gaps import METHODS, gap_over_minimisers, minimizer_norm_bound
from ..privacy.plain import are_numbers
from ..privacy.problem import Problem
from ..privacy.rounding import UNIT_ROUNDOFF, gradient_rounding
from .base import Mechanism
from .kernel import Array, Conversation, Query, Records
from .objective import LinearObjective
from .settings import LEAST_ALPHA, PRECISE
from .solver import minimise

# The default tolerance adds a thousandth to the sensitivity: two of them, 5e-4 of the gap each.
_TOLERANCE = 5e-4
# Share of the certified gradient norm that the computed one may use; the rest is its rounding.
_ACCEPTED = 0.9
# Errors of a computed norm that it holds at least, as no two passes need err alike.
_ERRORS = 2.0
# Gradient norms below this share of the size of the summed terms are lost in rounding.
_REACHABLE = 1e-13


@dataclass(frozen=True)
class Minimiser(Query):
    r"""Minimiser of the regularised mean loss, whose gradient has norm ``tol`` at most.

    It moves by at most :math:`G / (\alpha n) + 2 tol / \alpha` with one record, G the largest
    distance between two adjacent records' gradients at any minimiser (the *gradient gap*).

    Attributes
    ----------
    tol : float
        Fixed before the data; its share of the sensitivity is covered by noise.
    method : {"tight", "paper"}
        The proof of the gap.
    sigma : float
        Noise scale.
    """

    what: ClassVar[str] = "noise on the minimiser"

    tol: float
    method: str = "tight"
    sigma: float = 1.0

    def ratio(self, problem: Problem, radius: float, labels: str) -> float:
        if not (self._is_proved(problem) and 0.0 < self.sigma < math.inf):
            return math.inf
        moved = self.gap(problem, radius, labels) / (problem.alpha * problem.effective_size)
        moved += 2.0 * self.tol / problem.alpha
        norm = math.sqrt(problem.kind.n_stacked) * self.norm(problem)
        moved += 4.0 * UNIT_ROUNDOFF * (norm + self.tol / problem.alpha)
        return moved / self.sigma

    def _is_proved(self, problem: Problem) -> bool:
        """Whether there is a minimiser, and its tolerance is one that can be certified."""
        regular = bool(problem.loss) and problem.alpha > 0.0 and self.method in METHODS
        if not (regular and are_numbers(self.tol, self.sigma) and 0.0 <= self.tol < math.inf):
            return False
        # As of those that are certifiable: else records decide whether the solver reaches it.
        reachable = replace(self, tol=0.0).rounding(problem)[0]
        accepted, rounding = self.accepted(problem), self.rounding(problem)[1]
        return accepted >= max(0.5 * reachable, _ERRORS * rounding)

    def domain(self, problem: Problem, radius: float) -> RowGeometry:
        """Augmented rows and a radius, with the allowance for rounding."""
        return RowGeometry.of_rounded_rows(problem.norm_bound, radius, float(problem.fit_intercept))

    def gap(self, problem: Problem, radius: float, labels: str) -> float:
        """Upper bound of the gradient gap, with the allowance for rounded rows."""
        domain = self.domain(problem, radius)
        return gap_over_minimisers(
            problem.kind, domain, problem.alpha, method=self.method, labels=labels
        )

    def norm(self, problem: Problem) -> float:
        """Upper bound of the norm of one problem's weights before noise."""
        return minimizer_norm_bound(
            problem.loss,
            alpha=problem.alpha,
            norm_bound=self.domain(problem, 0.0).norm_bound,
            fit_intercept=problem.fit_intercept,
            n_classes=problem.n_classes,
        )

    def rounding(self, problem: Problem) -> tuple[float, float]:
        """Smallest gradient norm within reach of float64, and a bound on a computed one's error."""
        row_norm, loss = self.domain(problem, 0.0).augmented, problem.kind
        # The gradient is computed near the minimiser, at a distance of up to tol / alpha.
        norm = self.norm(problem) + self.tol / problem.alpha
        size = row_norm * math.sqrt(loss.n_scores)
        reachable = _REACHABLE * size * (1.0 + loss.curvature * norm * row_norm)
        rounding = gradient_rounding(
            loss,
            n_samples=problem.n_samples,
            n_features=problem.n_features,
            norm=norm,
            row_norm=row_norm,
        )
        return reachable, rounding

    def accepted(self, problem: Problem) -> float:
        """Gradient norm that the solver stops at: with rounding it is the certified one."""
        return min(_ACCEPTED * self.tol, self.tol - self.rounding(problem)[1])

    def certifiable(self, problem: Problem) -> "Minimiser":
        """The same with the next tolerance that is reached on every data set of the domain.

        Raises
        ------
        ValueError
            If there is none at this regularisation.
        """
        # The smallest reachable norm and its rounding error are public numbers. The certified norm
        # must exceed the computed norm that is accepted: tol >= accepted + rounding.
        reachable, rounding = self.rounding(problem)
        tol = max(self.tol, reachable)
        least = (1.01 + _ERRORS) * rounding
        query = replace(self, tol=max(tol, _ACCEPTED * tol + rounding, least))
        if query.accepted(problem) < max(0.5 * tol, _ERRORS * query.rounding(problem)[1]):
            raise ValueError(
                f"alpha={problem.alpha!r} is too small: in double precision no minimiser can be "
                "certified at this shape; raise alpha."
            )
        return query

    def shape(self, problem: Problem) -> tuple[int, ...]:
        return problem.kind.n_scores, problem.n_features + int(problem.fit_intercept)

    def values(self, problem: Problem, records: Records) -> Array:
        objective = LinearObjective(problem, records)
        return minimise(objective, tol=self.accepted(problem))

    def theorem(self, problem: Problem) -> str:
        tight = self.method == "tight"
        gap = "G the certified gradient gap" if tight else "G = L_z r (Margaryan & Gupta)"
        n = "alpha n" if problem.sums_weights.uniform else "alpha W / s"
        return f"G / ({n}) + 2 tol / alpha: {problem.loss} minimiser, {gap}"

    def check(self, problem: Problem) -> None:
        if not (self._is_proved(problem) and self.sigma > 0.0):
            raise ValueError(
                f"tol={self.tol!r}, method={self.method!r}, sigma={self.sigma!r} are no noise on a "
                "minimiser of this problem."
            )


@dataclass(eq=False, repr=False, kw_only=True)
class OutputPerturbation(Mechanism):
    r"""Noise on the certified minimiser of the regularised mean loss.

    A minimiser moves by at most :math:`G / (\alpha n)` with one record, G the largest distance
    between two adjacent records' gradients (the *gradient gap*). So the sensitivity is known at
    every radius, and epsilon follows from it. If records have weights, W / s takes the place of n:
    the sum of all weights over the largest weight of one record, or of one person.

    Parameters
    ----------
    tol : float or None, default=None
        How exactly the solver must converge: the gradient norm (of all one-versus-rest heads
        together) that every minimiser is certified to. The error is covered by extra noise; None
        adds about 0.1 %. Unreachably small values are raised.
    sensitivity : {"tight", "paper"}, default="tight"
        "tight" takes less noise: it is the smallest gradient gap that this package proves. "paper"
        multiplies the radius by the paper's Lipschitz constant, to reproduce its tables.

    References
    ----------
    Margaryan & Gupta, "Ball Differential Privacy: How to Mitigate Data Reconstruction with Less
    Noise"; the "tight" gap is proved in this package's documentation.

    Examples
    --------
    >>> from sklearn_balldp import BallDPLogisticRegression, OutputPerturbation
    >>> head = BallDPLogisticRegression(mechanism=OutputPerturbation(sensitivity="paper"))
    """

    name = "output"
    needs_alpha = True

    tol: float | None = None
    sensitivity: str = "tight"

    def check(self) -> None:
        check_option("sensitivity", self.sensitivity, METHODS)
        if self.tol is not None:
            check_positive("tol", self.tol, " or None")

    def alpha_for(self, problem: Problem, mu: float) -> float:
        """The smallest regularisation whose noise has standard deviation 0.15 / B in a parameter.

        For the squared hinge, whose margins are smaller, it is 0.05 / B. Noise falls as alpha
        grows, and so does the fit. Alpha is ``0.3 / n_samples`` (or W / s) or more, which
        is ``C=3.3`` of scikit-learn's ``LogisticRegression``, and 1 or less.
        """

        def excess(log_alpha: float) -> float:
            return math.log(self._noise(replace(problem, alpha=math.exp(log_alpha)), mu))

        lowest = LEAST_ALPHA / problem.effective_size
        low, high = math.log(lowest), 0.0
        if excess(low) <= 0.0:
            return lowest
        if excess(high) >= 0.0:
            return 1.0
        return math.exp(brentq(excess, low, high, xtol=1e-3))

    def _noise(self, problem: Problem, mu: float) -> float:
        """Noise scale at an exact minimiser, over the scale that costs little accuracy."""
        query = Minimiser(tol=0.0, method=str(self.sensitivity))
        gap = query.gap(problem, problem.euclidean_radius, problem.labels)
        moved = gap / (problem.alpha * problem.effective_size)
        return moved / mu * problem.norm_bound / (PRECISE * problem.kind.score_unit)

    def bound(self, problem: Problem, mu: float) -> Minimiser:
        if problem.class_embeddings is not None:
            raise ValueError(
                "class_embeddings: noise on the minimiser starts from nothing that it could "
                "shrink; pass class_embeddings=None, or mechanism='gradient'."
            )
        query = Minimiser(tol=0.0, method=str(self.sensitivity))
        gap = query.gap(problem, problem.euclidean_radius, problem.labels)
        tol = _TOLERANCE * gap / problem.effective_size if self.tol is None else float(self.tol)
        return replace(query, tol=tol).certifiable(problem).calibrated(problem, mu)

    def conversation(self, problem: Problem, bound: Minimiser) -> Conversation:
        theta = yield bound
        # The minimiser's rows sum to zero: what the noise adds to the sum carries no signal.
        return theta - theta.mean(axis=0) if problem.kind.centred else theta
