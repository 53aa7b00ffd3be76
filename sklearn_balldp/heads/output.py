"""Output perturbation: noise on the certified minimiser (the paper's mechanism)."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import brentq

from .._parameters import check_option, check_positive
from ..privacy.bounds import MinimizerBound
from ..privacy.noise import Noise
from ..privacy.sensitivity import METHODS
from ..privacy.weights import total_of
from .mechanism import (
    Array,
    Budget,
    Codes,
    Mechanism,
    Neighbours,
    Outcome,
    PrivateProblem,
    Problem,
    Promise,
    Rows,
    as_sets,
)
from .objective import LinearObjective, ReplacedRecords, gradient_rounding
from .settings import LEAST_ALPHA, PRECISE
from .solver import hessian_factor, minimise, newton_step

# Share of the certified gradient norm that the computed one may use; the rest is its rounding.
_ACCEPTED = 0.9
# The default tolerance adds a thousandth to the sensitivity: two of them, 5e-4 of the gap each.
_TOLERANCE = 5e-4
# Gradient norms below this share of the size of the summed terms are lost in rounding.
_REACHABLE = 1e-13


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

    def __init__(self, *, tol=None, sensitivity="tight"):
        self.tol = tol
        self.sensitivity = sensitivity

    def check(self) -> None:
        check_option("sensitivity", self.sensitivity, METHODS)
        if self.tol is not None:
            check_positive("tol", self.tol, " or None")

    def settings_beside(self, record: Any) -> dict[str, tuple[Any, Any]]:
        return {"sensitivity": (str(self.sensitivity), record.bound.method)}

    def alpha_for(self, problem: Problem, budget: Budget) -> float:
        """The least regularisation whose noise has standard deviation 0.15 / B in a parameter.

        For the squared hinge, whose margins are smaller, it is 0.05 / B. Noise falls as alpha
        grows, and so does the fit. Alpha is ``0.3 / n_samples`` (or W / s) at least, which
        is ``C=3.3`` of scikit-learn's ``LogisticRegression``, and 1 at most.

        Parameters
        ----------
        problem, budget : Problem, Budget
            Public numbers of the fit, and what may be spent.

        Returns
        -------
        float
            Regularisation strength.
        """

        def excess(log_alpha: float) -> float:
            own = replace(problem, alpha=math.exp(log_alpha))
            return math.log(self._noise(own, budget))

        lowest = LEAST_ALPHA / problem.effective_size
        least, most = math.log(lowest), 0.0
        if excess(least) <= 0.0:
            return lowest
        if excess(most) >= 0.0:
            return 1.0
        return math.exp(brentq(excess, least, most, xtol=1e-3))

    def has_small_noise(self, problem: Problem, budget: Budget) -> bool:
        """Whether noise on the minimiser is small at the given alpha, or at the least one.

        Parameters
        ----------
        problem, budget : Problem, Budget
            Public numbers of the fit, and what may be spent.

        Returns
        -------
        bool
            Whether a parameter gets no more noise than :meth:`alpha_for` allows.
        """
        alpha = LEAST_ALPHA / problem.effective_size if math.isnan(problem.alpha) else problem.alpha
        return alpha > 0.0 and self._noise(replace(problem, alpha=alpha), budget) <= 1.0

    def _noise(self, problem: Problem, budget: Budget) -> float:
        """Noise scale at an exact minimiser, over the scale that costs little accuracy."""
        bound = self._bound(problem)
        moved = bound.gap(problem.radius) / (problem.alpha * problem.effective_size)
        return moved / budget.mu * problem.norm_bound / (PRECISE * bound.kind.score_unit)

    def promise(self, problem: Problem, budget: Budget) -> Promise:
        return Promise(self._certifiable(problem).calibrated(problem.radius, budget.mu))

    def _bound(self, problem: Problem) -> MinimizerBound:
        """The bound for an exact minimiser."""
        return MinimizerBound(
            loss=problem.loss,
            n_samples=problem.n_samples,
            n_features=problem.n_features,
            n_classes=problem.n_classes,
            alpha=problem.alpha,
            norm_bound=problem.norm_bound,
            fit_intercept=problem.fit_intercept,
            method=str(self.sensitivity),
            labels=problem.labels,
            tol=0.0,
            weights=problem.loss_weights,
            rows=problem.domain,
        )

    def _certifiable(self, problem: Problem) -> MinimizerBound:
        """The bound, with a tolerance that the solver reaches on every dataset of the domain."""
        if problem.class_embeddings is not None:
            raise ValueError(
                "class_embeddings: noise on the minimiser starts from nothing that it could "
                "shrink; pass class_embeddings=None, or mechanism='gradient'."
            )
        bound = self._bound(problem)
        gap = bound.gap(problem.radius)
        asked = _TOLERANCE * gap / problem.effective_size if self.tol is None else float(self.tol)
        # The least reachable norm and its rounding error are public numbers. The certified norm
        # must exceed the computed norm that is accepted: tol >= accepted + rounding.
        reachable, rounding = _rounding(replace(bound, tol=asked))
        tol = max(asked, reachable)
        bound = replace(bound, tol=max(tol, _ACCEPTED * tol + rounding))
        if _accepted(bound) < 0.5 * tol:
            raise ValueError(
                f"alpha={problem.alpha!r} is too small: in double precision no minimiser can be "
                "certified at this shape; raise alpha."
            )
        return bound

    def run(self, problem: PrivateProblem, promise: Promise, noise: Noise) -> Outcome:
        return Outcome(noise(*self.noiseless(problem, promise)))

    def noiseless(self, problem: PrivateProblem, promise: Promise) -> tuple[Array, float]:
        bound: Any = promise.bound
        return minimise(_objective(problem, bound), tol=_accepted(bound)), bound.sigma[0]

    def neighbours(self, problem: PrivateProblem, promise: Promise) -> Neighbours:
        # Warm starts help: one record moves the minimiser little, and the Hessian even less.
        bound: Any = promise.bound
        tol = _accepted(bound)
        objective = _objective(problem, bound)
        theta = minimise(objective, tol=tol)
        gradient = objective.value_and_gradient(theta)[1]
        factor = hessian_factor(objective, theta)

        def models(left_out: Any, rows: Rows, codes: Codes) -> Array:
            fits = []
            places, rows, codes = as_sets(left_out, rows, codes)
            for row, code in zip(rows, codes, strict=True):
                neighbour = ReplacedRecords(objective, places, row, code)
                moved = gradient + neighbour.gradient_change(theta)
                start = newton_step(theta, moved, factor)
                fits.append(minimise(neighbour, tol=tol, start=start, factor=factor))
            return np.stack(fits)

        return Neighbours(models, bound.sigma[0])


def _objective(problem: PrivateProblem, bound: MinimizerBound) -> LinearObjective:
    return LinearObjective(
        bound.loss,
        problem.X,
        problem.codes,
        problem.n_classes,
        alpha=bound.alpha,
        norm_bound=bound.norm_bound,
        fit_intercept=bound.fit_intercept,
        domain=bound.rows,
        weights=problem.loss_row_weights,
        total=total_of(bound.weights, problem.n_samples),
    )


def _accepted(bound: MinimizerBound) -> float:
    """Computed gradient norm that, with its rounding, stays within the certified one."""
    return min(_ACCEPTED * bound.tol, bound.tol - _rounding(bound)[1])


def _rounding(bound: MinimizerBound) -> tuple[float, float]:
    """Least gradient norm within reach of float64, and a bound on the error of a computed one."""
    row_norm = bound.domain(0.0).augmented
    # The gradient is computed near the minimiser, at a distance of up to tol / alpha.
    norm = bound.norm() + bound.tol / bound.alpha
    loss = bound.kind
    size = row_norm * math.sqrt(loss.n_scores)
    reachable = _REACHABLE * size * (1.0 + loss.curvature * norm * row_norm)
    rounding = gradient_rounding(
        bound.loss,
        n_samples=bound.n_samples,
        n_features=bound.n_features,
        n_classes=bound.n_classes,
        norm=norm,
        row_norm=row_norm,
    )
    return reachable, rounding
