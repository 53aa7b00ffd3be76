"""What the heads with an iterative minimiser share: bound, public tolerance, certified solve."""

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._validation import check_option, check_positive
from ..policy.adjacency import ROUNDING
from ..privacy.sensitivity import METHODS, MinimizerBound, minimizer_norm_bound
from .base import BaseBallDPClassifier, Neighbours, Problem
from .objectives import LOSSES, LinearObjective, ReplacedRecord, gradient_rounding
from .solver import hessian_factor, minimise, newton_step

# Share of the certified gradient norm that the computed one may use; the rest is its rounding.
_ACCEPTED = 0.9


class BaseMinimizerClassifier(BaseBallDPClassifier):
    """Linear head that minimises a regularised mean loss; subclasses name the loss."""

    _loss: ClassVar[str]
    _flags = ("protect_labels", "fit_intercept")

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_option("sensitivity", self.sensitivity, METHODS)
        if self.tol is not None:
            check_positive("tol", self.tol, " or None")

    def _loss_name(self, n_classes: int) -> str:
        """Loss of this many classes."""
        return self._loss

    def _bound(self, problem: Problem) -> MinimizerBound:
        shape = problem.X.shape
        common: dict[str, Any] = {
            "loss": self._loss_name(problem.n_classes),
            "n_samples": shape[0],
            "n_classes": problem.n_classes,
            "alpha": problem.alpha,
            "norm_bound": problem.norm_bound,
            "fit_intercept": bool(self.fit_intercept),
            "method": self.sensitivity,
            "label_change": bool(self.protect_labels),
        }
        gap = MinimizerBound(**common, tol=0.0).gap(problem.radius)
        requested = 5e-4 * gap / shape[0] if self.tol is None else float(self.tol)
        # What rounding leaves within reach, and what it may hide, are public numbers.
        reachable, rounding = _rounding(MinimizerBound(**common, tol=requested), shape[1])
        tol = max(requested, reachable)
        bound = MinimizerBound(**common, tol=max(tol, _ACCEPTED * tol + rounding))
        if _accepted(bound, shape[1]) < 0.5 * tol:
            raise ValueError(
                f"alpha={problem.alpha!r} is too small: in double precision no minimiser can be "
                "certified at this shape; raise alpha."
            )
        return bound

    def _minimise(self, problem: Problem, bound: MinimizerBound) -> NDArray[np.float64]:
        tol = _accepted(bound, problem.X.shape[1])
        return minimise(_objective(problem, bound), tol=tol)

    def _neighbours(self, problem: Problem, bound: MinimizerBound) -> Neighbours:
        tol = _accepted(bound, problem.X.shape[1])
        objective = _objective(problem, bound)
        theta = minimise(objective, tol=tol)
        gradient = objective.value_and_gradient(theta)[1]
        factor = hessian_factor(objective, theta)

        def models(
            left_out: int, rows: NDArray[np.floating], codes: NDArray[np.intp]
        ) -> NDArray[np.float64]:
            """Warm starts: one record moves the minimiser little, and the Hessian less."""
            fits = []
            for row, code in zip(rows, codes, strict=True):
                neighbour = ReplacedRecord(objective, left_out, row, code)
                moved = gradient + neighbour.gradient_change(theta)
                start = newton_step(theta, moved, factor)
                fits.append(minimise(neighbour, tol=tol, start=start, factor=factor))
            return np.stack(fits)

        return models

    def _n_values(self, problem: Problem) -> int:
        n_scores = 1 if problem.n_classes == 2 else problem.n_classes
        return n_scores * (problem.X.shape[1] + int(self.fit_intercept))

    def _publish(self, parameters: NDArray[np.float64], problem: Problem) -> dict[str, Any]:
        fitted: dict[str, Any] = {"coef_": parameters, "intercept_": np.zeros(len(parameters))}
        if self.fit_intercept:
            fitted["coef_"] = parameters[:, :-1].copy()
            fitted["intercept_"] = parameters[:, -1].copy()
        if not self.protect_labels:
            fitted["class_counts_"] = problem.counts()
        return fitted

    def _linear_rule(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self.coef_, self.intercept_


def _objective(problem: Problem, bound: MinimizerBound) -> LinearObjective:
    return LinearObjective(
        bound.loss,
        problem.X,
        problem.codes,
        problem.n_classes,
        alpha=bound.alpha,
        norm_bound=bound.norm_bound,
        fit_intercept=bound.fit_intercept,
    )


def _accepted(bound: MinimizerBound, n_features: int) -> float:
    """Computed gradient norm that, with its rounding, stays within the certified one."""
    _, rounding = _rounding(bound, n_features)
    return min(_ACCEPTED * bound.tol, bound.tol - rounding)


def _rounding(bound: MinimizerBound, n_features: int) -> tuple[float, float]:
    """Least gradient norm within reach of float64, and a bound on the error of a computed one."""
    norm_bound = bound.norm_bound * (1.0 + ROUNDING)
    row_norm = math.hypot(norm_bound, float(bound.fit_intercept))
    norm = minimizer_norm_bound(
        bound.loss,
        alpha=bound.alpha,
        norm_bound=norm_bound,
        fit_intercept=bound.fit_intercept,
        n_classes=bound.n_classes,
    )
    # The gradient is computed within the tolerance of the minimiser, not at it.
    norm += bound.tol / bound.alpha
    loss = LOSSES[bound.loss]()
    size = row_norm * math.sqrt(loss.n_scores(bound.n_classes))
    reachable = 1e-13 * size * (1.0 + loss.curvature_bound * norm * row_norm)
    rounding = gradient_rounding(
        bound.loss,
        n_samples=bound.n_samples,
        n_features=n_features,
        n_classes=bound.n_classes,
        norm=norm,
        row_norm=row_norm,
    )
    return reachable, rounding
