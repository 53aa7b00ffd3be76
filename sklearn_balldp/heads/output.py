"""Output perturbation: noise on the certified minimiser (the paper's mechanism)."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from .._validation import check_option, check_positive
from ..privacy.bounds import MinimizerBound
from ..privacy.noise import Noise
from ..privacy.sensitivity import METHODS
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
)
from .objective import LinearObjective, ReplacedRecord, gradient_rounding
from .solver import hessian_factor, minimise, newton_step

# Share of the certified gradient norm that the computed one may use; the rest is its rounding.
_ACCEPTED = 0.9
# The default tolerance adds a thousandth to the sensitivity: two of them, 5e-4 of the gap each.
_TOLERANCE = 5e-4
# Gradient norms below this, in units of what the terms of a sum come to, drown in rounding.
_REACHABLE = 1e-13


class OutputPerturbation(Mechanism):
    r"""Noise on the certified minimiser of the regularised mean loss.

    A minimiser moves by at most :math:`G / (\alpha n)` with one record, G the largest distance
    between two adjacent records' gradients (the *gradient gap*). Its guarantee follows from the
    sensitivity at every radius.

    Parameters
    ----------
    tol : float or None, default=None
        How exactly the solver must converge: the gradient norm (of all one-versus-rest heads
        together) that every minimiser is certified to. The error is covered by extra noise; None
        adds about 0.1 %. Unreachably small values are raised.
    sensitivity : {"tight", "paper"}, default="tight"
        "paper" multiplies the radius by the paper's Lipschitz constant, to reproduce its tables.

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
    # The noise falls as alpha grows, and so does the fit.
    default_alpha = 0.01
    needs_alpha = True

    def __init__(self, *, tol=None, sensitivity="tight"):
        self.tol = tol
        self.sensitivity = sensitivity

    def check(self) -> None:
        check_option("sensitivity", self.sensitivity, METHODS)
        if self.tol is not None:
            check_positive("tol", self.tol, " or None")

    def promise(self, problem: Problem, budget: Budget) -> Promise:
        return Promise(self._certifiable(problem).calibrated(problem.radius, budget.mu))

    def _certifiable(self, problem: Problem) -> MinimizerBound:
        """The bound, with a tolerance that the solver reaches on every dataset of the domain."""
        bound = MinimizerBound(
            loss=problem.loss,
            n_samples=problem.n_samples,
            n_features=problem.n_features,
            n_classes=problem.n_classes,
            alpha=problem.alpha,
            norm_bound=problem.norm_bound,
            fit_intercept=problem.fit_intercept,
            method=self.sensitivity,
            labels=problem.labels,
            tol=0.0,
        )
        gap = bound.gap(problem.radius)
        asked = _TOLERANCE * gap / problem.n_samples if self.tol is None else float(self.tol)
        # What rounding leaves within reach, and what it may hide, are public numbers. The certified
        # norm must exceed the accepted, computed one by the rounding: tol >= accepted + rounding.
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
        # Warm starts: one record moves the minimiser little, and the Hessian less.
        bound: Any = promise.bound
        tol = _accepted(bound)
        objective = _objective(problem, bound)
        theta = minimise(objective, tol=tol)
        gradient = objective.value_and_gradient(theta)[1]
        factor = hessian_factor(objective, theta)

        def models(left_out: int, rows: Rows, codes: Codes) -> Array:
            fits = []
            for row, code in zip(rows, codes, strict=True):
                neighbour = ReplacedRecord(objective, left_out, row, code)
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
    )


def _accepted(bound: MinimizerBound) -> float:
    """Computed gradient norm that, with its rounding, stays within the certified one."""
    return min(_ACCEPTED * bound.tol, bound.tol - _rounding(bound)[1])


def _rounding(bound: MinimizerBound) -> tuple[float, float]:
    """Least gradient norm within reach of float64, and a bound on the error of a computed one."""
    row_norm = bound.domain(0.0).augmented
    # The gradient is computed within the tolerance of the minimiser, not at it.
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
