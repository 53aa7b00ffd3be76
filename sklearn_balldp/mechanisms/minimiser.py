"""Output perturbation: noise on the certified minimiser (the paper's mechanism)."""

import math
from dataclasses import dataclass, replace

from scipy.optimize import brentq

from .._parameters import check_option, check_positive
from ..privacy.gaps import METHODS
from ..privacy.problem import Problem
from .base import Mechanism
from .kernel import Conversation
from .queries import Minimiser
from .settings import LEAST_ALPHA, PRECISE

# The default tolerance adds a thousandth to the sensitivity: two of them, 5e-4 of the gap each.
_TOLERANCE = 5e-4


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

    def has_small_noise(self, problem: Problem, mu: float) -> bool:
        """Whether noise is as small as :meth:`alpha_for` asks, at alpha or at the smallest one."""
        alpha = LEAST_ALPHA / problem.effective_size if math.isnan(problem.alpha) else problem.alpha
        return alpha > 0.0 and self._noise(replace(problem, alpha=alpha), mu) <= 1.0

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
