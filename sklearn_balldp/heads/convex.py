"""What the linear heads share: noise on a certified minimiser, or on the gradients of a descent."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._validation import check_option, check_positive, check_whole, is_real
from ..policy.adjacency import ROUNDING, euclidean_radius, full_radius, row_ranges
from ..privacy.exact_normal import NormalStream
from ..privacy.gaussian import compose
from ..privacy.noise import add_gaussian_noise, check_random_state, grid_slack, sampler_name
from ..privacy.release import Release, total_epsilon
from ..privacy.sensitivity import METHODS, MinimizerBound, minimizer_norm_bound
from ..privacy.transcript import Descent, TranscriptBound
from .base import BaseBallDPClassifier, Neighbours, Problem
from .descent import CONSTANT, default_learning_rate, descend
from .gradients import MeanGradient
from .objectives import LOSSES, LinearObjective, ReplacedRecord, gradient_rounding
from .solver import SINGLE_BLAS_THREAD, hessian_factor, minimise, newton_step

MECHANISMS = ("output", "gradient")
# Regularisation of the minimiser when none is given; a descent needs none.
_ALPHA = 0.01

# Share of the certified gradient norm that the computed one may use; the rest is its rounding.
_ACCEPTED = 0.9


class BaseMinimizerClassifier(BaseBallDPClassifier):
    """Linear head that minimises a regularised mean loss; subclasses name the loss."""

    _loss: ClassVar[str]
    _flags = ("protect_labels", "fit_intercept", "keep_transcript")

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_option("mechanism", self.mechanism, MECHANISMS)
        check_option("sensitivity", self.sensitivity, METHODS)
        if self.tol is not None:
            check_positive("tol", self.tol, " or None")
        check_whole("n_steps", self.n_steps, 1)
        for name in ("learning_rate", "clip", "outer_radius", "outer_epsilon"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name), " or None")
        for name, most in (("momentum", 1.0), ("averaging", math.nextafter(1.0, 2.0))):
            value = getattr(self, name)
            if not (is_real(value) and 0.0 <= value < most):
                end = ")" if most == 1.0 else "]"
                raise ValueError(f"{name} must lie in [0, 1{end}, got {value!r}.")
        if (self.outer_radius is None) != (self.outer_epsilon is None):
            raise ValueError("outer_radius and outer_epsilon go together: pass both or neither.")
        if self.outer_radius is not None and self.mechanism == "output":
            raise ValueError(
                f"outer_radius={self.outer_radius!r}: with mechanism='output' the guarantee at "
                "every radius is exact as it stands (release_.guarantee); leave it None."
            )
        if self.mechanism == "gradient" and self.sensitivity == "paper":
            raise ValueError(
                "sensitivity='paper': the paper has no bound for mechanism='gradient'; use 'tight'."
            )

    def _check_alpha(self) -> None:
        if self.alpha is None:
            return
        if self.mechanism == "gradient" and is_real(self.alpha) and float(self.alpha) == 0.0:
            return
        check_positive("alpha", self.alpha, " or None")

    def _alpha(self) -> float:
        if self.alpha is not None:
            return float(self.alpha)
        return _ALPHA if self.mechanism == "output" else 0.0

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

    def _plan(
        self, problem: Problem, rho: float, calibrate: Callable[[float, float], float]
    ) -> dict[str, Any]:
        if self.mechanism == "output":
            return super()._plan(problem, rho, calibrate)
        n_steps, clip = int(self.n_steps), None if self.clip is None else float(self.clip)
        loss = self._loss_name(problem.n_classes)
        bound = TranscriptBound(
            loss=loss,
            n_samples=problem.X.shape[0],
            n_features=problem.X.shape[1],
            n_scores=LOSSES[loss]().n_scores(problem.n_classes),
            norm_bound=problem.norm_bound,
            constant=CONSTANT * problem.norm_bound if self.fit_intercept else 0.0,
            n_steps=n_steps,
            clip=clip,
            label_change=bool(self.protect_labels),
            promises=((problem.radius, rho), *self._outer_promise(problem, rho, calibrate)),
        )
        if bound.step_rho(rho) <= grid_slack(bound.n_values):
            raise ValueError(
                f"epsilon={self.epsilon!r} is too small for {n_steps} steps on the sampler's grid; "
                "raise epsilon or lower n_steps."
            )
        momentum = float(self.momentum)
        rate = self.learning_rate
        if rate is None:
            rate = default_learning_rate(bound, n_steps, momentum, clip, problem.alpha)
        return {
            "bound": bound,
            "sensitivity": (),
            "sigma": (),
            "tol": 0.0,
            "n_values": n_steps * bound.n_values,
            "sampler": sampler_name(self.random_state, vectorised=True),
            "mechanism": "gradient",
            "descent": Descent(n_steps, float(rate), momentum, clip, float(self.averaging)),
        }

    def _outer_promise(
        self, problem: Problem, rho: float, calibrate: Callable[[float, float], float]
    ) -> list[tuple[float, float]]:
        """The second promised radius and its rho, if there is one."""
        if self.outer_radius is None:
            return []
        outer = euclidean_radius(
            float(self.outer_radius),
            self.metric,
            norm_bound=problem.norm_bound,
            n_features=problem.X.shape[1],
        )
        outer_rho = calibrate(float(self.outer_epsilon), float(self.delta))
        if not (outer > problem.radius and outer_rho >= rho):
            raise ValueError(
                f"outer_radius={self.outer_radius!r}, outer_epsilon={self.outer_epsilon!r}: a "
                "second promise needs a larger radius than radius (both count up to the diameter "
                "of the ball of rows), and no smaller epsilon."
            )
        return [(outer, outer_rho)]

    def _release(
        self, problem: Problem, release: Release
    ) -> tuple[NDArray[np.float64], Release, dict[str, Any]]:
        if self.mechanism == "output":
            return super()._release(problem, release)
        bound, descent = release.bound, release.descent
        stream = self._noise_stream()

        def add_noise(gradient: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
            return self._add_step_noise(gradient, sigma, stream)

        with ThreadPoolExecutor(len(row_ranges(*problem.X.shape))) as pool, SINGLE_BLAS_THREAD:
            mean = mean_gradient(problem, bound, pool)
            parameters, steps = descend(
                mean,
                descent,
                bound,
                problem.alpha,
                add_noise,
                full_radius(problem.norm_bound),
                keep=bool(self.keep_transcript),
            )
        if bound.constant > 0.0:
            parameters[:, -1] *= bound.constant
        spent = [full / sigma for full, sigma in zip(steps.full, steps.sigma, strict=True)]
        slack = math.sqrt(bound.n_steps) * grid_slack(bound.n_values)
        ex_post = total_epsilon(compose(spent) + slack, release.delta, release.radius_epsilon)
        release = replace(
            release,
            sensitivity=tuple(steps.sensitivity),
            sigma=tuple(steps.sigma),
            epsilon_full_radius_ex_post=ex_post,
        )
        kept = {"transcript_": steps.transcript()} if self.keep_transcript else {}
        return parameters, release, kept

    def _noise_stream(self) -> Any:
        """Source of the noise of all steps: a seed taken anew would repeat its noise at each."""
        return check_random_state(self.random_state) or NormalStream()

    def _add_step_noise(
        self, gradient: NDArray[np.float64], sigma: float, stream: Any
    ) -> NDArray[np.float64]:
        """One released gradient, with noise of this head's own sampler."""
        if isinstance(stream, NormalStream):
            return add_gaussian_noise(gradient, sigma, vectorised=stream)
        return add_gaussian_noise(gradient, sigma, stream)

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


def mean_gradient(problem: Problem, bound: TranscriptBound, pool: Any = None) -> MeanGradient:
    """Gradients of a problem's records, as a descent takes them."""
    return MeanGradient(
        bound.loss,
        problem.X,
        problem.codes,
        problem.n_classes,
        norm_bound=bound.norm_bound,
        constant=bound.constant,
        clip=bound.clip,
        pool=pool,
    )


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
