"""Gradient perturbation: noisy sums to start from, noisy gradients, and the model made of them."""

import math
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._parameters import check_flag, check_option, check_positive, check_share, check_whole
from ..adjacency import euclidean_radius, full_radius
from ..privacy.gaussian import LARGEST_EPSILON, compose
from ..privacy.noise import Noise, grid_slack
from ..privacy.transcript import MOST_STEPS, Descent, TranscriptBound
from ..privacy.weights import total_of
from ..progress import bar
from ..rows import SINGLE_BLAS_THREAD, n_threads
from .descent_settings import default_learning_rate, default_momentum, settings_of
from .gradients import MeanGradient
from .mechanism import (
    Array,
    Budget,
    Mechanism,
    Neighbours,
    Outcome,
    PrivateProblem,
    Problem,
    Promise,
)
from .start import Beginning, beginning, released_start, start_bound

#: Constant that augments the rows, in units of B: a smaller one takes less of the noise, and moves
#: intercepts more slowly.
CONSTANT = 0.15
#: What ``start=`` takes.
STARTS = "auto", "statistics", "prototypes", "mean", "zero"


@dataclass(frozen=True)
class Transcript:
    """What noisy gradient descent released, step by step; public.

    Parameters
    ----------
    gradients : ndarray of shape (n_steps, n_scores, n_columns)
        The noisy mean gradients of the loss, with clipped residuals and without the regulariser.
    iterates : ndarray of the same shape
        The parameters at which they were taken.
    sigma : ndarray of shape (n_steps,)
        The noise scale of each step.
    start : ndarray of shape (n_rows, n_features)
        The noisy sums that the first iterate was made of, as one table (:class:`.Layout`). It has
        no rows if the first iterate is zero.
    """

    gradients: Array
    iterates: Array
    sigma: Array
    start: Array = field(default_factory=lambda: np.empty((0, 0)))


class GradientPerturbation(Mechanism):
    """Noise on class sums, and on the gradients of a full-batch descent that starts from them.

    It is far more accurate than noise on the minimiser at the same guarantee. The guarantee covers
    the sums and the noisy gradients of all steps, not only the final parameters. The noise of each
    step is calibrated at the step's own iterate, which is public.

    Parameters
    ----------
    n_steps : int or "auto", default="auto"
        How many steps the descent takes. Each costs one pass over the rows; all share the budget,
        so more steps are noisier ones. "auto" takes 20 (40 for logistic regression of two
        classes, 50 for the squared hinge), 60 after the mean alone, and 100 from zero. It takes one
        if public numbers say that steps would harm their start: that one has a hundredth of the
        budget, and the model is all but the discriminant that it starts from. Where labels are
        protected, or ``alpha`` or ``learning_rate`` is given, it takes many all the same.
    learning_rate : float or None, default=None
        How far a step goes: larger steps fit sooner, and gather more noise. None chooses the size
        from public numbers, so that noise and fit balance. It is the size for rows of norm
        ``norm_bound``; where rows are centred, and shorter, it grows about as one over their
        squared norm.
    momentum : float or "auto", default="auto"
        Makes the descent faster: the share of the velocity that is kept from step to step. At least
        0, below 1. "auto" takes 0.8, and 0.9 from zero, after the mean alone, or for a single step.
    clip : float, "auto" or None, default="auto"
        Limits what one record can change: a smaller value takes less noise, and bends the fit more.
        It is the norm that the residual of each record, its derivative by the scores, is clipped
        to; its gradient is then at most ``clip`` times the norm of its row. "auto" is 0.1, up to
        0.3 at small radii, and 0.2 after the mean alone. None does not clip.
    averaging : float, default=0.2
        Averages some of the noise away: the share of the iterates, the last ones, whose mean is
        released. 0 releases the last one alone.
    start : {"auto", "statistics", "prototypes", "mean", "zero"}, default="auto"
        Where the descent begins: a better start takes a share of the budget, and saves steps.
        "prototypes" begins at the noise-aware rule of noisy class sums. "statistics" begins at the
        linear discriminant (:class:`.BallDPLinearDiscriminant`) of the same sums and a noisy second
        moment, where public numbers say that the moment is worth its noise. Public numbers decide
        the share too: nearly all at small radii, a fifth where the steps do more. "mean" releases
        the noisy mean of all rows alone, for ``centre``, and begins at zero. "zero" spends the
        whole budget on the steps, and needs about 100 of them. "auto" is "statistics", and "mean"
        where labels are protected and public numbers say that records are too few for class sums.
    centre : bool, default=True
        Saves noise where rows have much in common that tells nothing about classes, as image
        features do. Rows are moved by their mean, as the start tells it. Where it also tells their
        second moment, rows are then shortened along the directions in which they vary most
        (*partial whitening*). Gradients of the shorter rows need less noise. The released weights
        are for rows that were not changed. It needs a start and an intercept, and has no effect
        otherwise.
    outer_radius, outer_epsilon : float or None, default=None
        Promises a second, larger radius as well, which can cost noise: every step adds the noise
        that the stricter of both promises needs. ``outer_epsilon`` is the epsilon there (same
        delta), no smaller than the first. Pass both or neither; anything else raises a ValueError.
    keep_transcript : bool, default=False
        Lets you test the noise later: the head keeps ``transcript_``, the noisy gradients of all
        steps, which :func:`~sklearn_balldp.verify` and :func:`.transcript_log_posterior` read. It
        may be published, since the guarantee covers it.

    References
    ----------
    Dong, Roth & Su, "Gaussian differential privacy" (2022), for the composition of the steps; the
    gaps are proved in this package's documentation.

    Examples
    --------
    >>> from sklearn_balldp import BallDPLogisticRegression, GradientPerturbation
    >>> head = BallDPLogisticRegression(mechanism=GradientPerturbation(n_steps=50, clip=None))
    """

    name = "gradient"
    adaptive = True

    def __init__(
        self,
        *,
        n_steps="auto",
        learning_rate=None,
        momentum="auto",
        clip="auto",
        averaging=0.2,
        start="auto",
        centre=True,
        outer_radius=None,
        outer_epsilon=None,
        keep_transcript=False,
    ):
        self.n_steps = n_steps
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.clip = clip
        self.averaging = averaging
        self.start = start
        self.centre = centre
        self.outer_radius = outer_radius
        self.outer_epsilon = outer_epsilon
        self.keep_transcript = keep_transcript

    def check(self) -> None:
        if not _is_auto(self.n_steps):
            check_whole("n_steps", self.n_steps, 1)
            if self.n_steps > MOST_STEPS:
                raise ValueError(
                    f"n_steps={self.n_steps!r} must be at most {MOST_STEPS}; lower it."
                )
        for name in ("learning_rate", "outer_radius", "outer_epsilon"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name), " or None")
        if not (self.clip is None or _is_auto(self.clip)):
            check_positive("clip", self.clip, ", 'auto' or None")
        if not _is_auto(self.momentum):
            check_share("momentum", self.momentum, ", or 'auto'", below_one=True)
        check_share("averaging", self.averaging)
        check_option("start", self.start, STARTS)
        check_flag("centre", self.centre)
        check_flag("keep_transcript", self.keep_transcript)
        if self.outer_epsilon is not None and float(self.outer_epsilon) > LARGEST_EPSILON:
            raise ValueError(
                f"outer_epsilon={self.outer_epsilon!r} is beyond {LARGEST_EPSILON:g}; lower it."
            )
        if (self.outer_radius is None) != (self.outer_epsilon is None):
            raise ValueError("outer_radius and outer_epsilon go together: pass both or neither.")

    def settings_beside(self, record: Any) -> dict[str, tuple[Any, Any]]:
        bound = record.bound
        own = bound.descent
        found: dict[str, tuple[Any, Any]] = {
            "start from zero": (self.start == "zero", bound.start is None)
        }
        for name in ("n_steps", "learning_rate", "clip", "averaging"):
            value = getattr(self, name)
            open_to_choice = _is_auto(value) or (name == "learning_rate" and value is None)
            if not open_to_choice:
                found[name] = value, getattr(own, name)
        from_sums = bound.start is not None and not bound.start.pooled
        found["momentum"] = self._momentum(own.n_steps, from_sums), own.momentum
        if self.start == "prototypes" and bound.start is not None:
            found["second moment"] = False, bound.start.moment
        chosen = self.start == "auto" and bound.labels == "protected"
        if not chosen and self.start != "zero" and bound.start is not None:
            found["start from the mean"] = self.start == "mean", bound.start.pooled
        if not self.centre:
            found["centre"] = False, bound.centred
        stated = bound.promises[1:]
        if (self.outer_radius is None) != (not stated):
            found["outer_radius"] = self.outer_radius, stated[0][0] if stated else None
        elif stated:
            budget = Budget(record.epsilon, record.delta, record.calibration)
            outer = self._outer(record.metric, bound.norm_bound, bound.n_features, budget)
            found["outer_radius"], found["mu of outer_epsilon"] = zip(outer, stated[0], strict=True)
        return found

    def promise(self, problem: Problem, budget: Budget) -> Promise:
        if self.start in ("zero", "mean") and problem.prior is not None:
            raise ValueError(
                f"prior: a descent from start={self.start!r} has no class means that it could "
                "shrink; pass prior=None, or start='auto'."
            )
        moves = problem.fit_intercept and bool(self.centre)
        if self.start == "mean" and not moves:
            raise ValueError(
                f"start='mean' serves to move rows by their mean, with fit_intercept="
                f"{problem.fit_intercept!r}, centre={self.centre!r}; both must be True, or pass "
                "start='zero'."
            )
        given = None if _is_auto(self.n_steps) else int(self.n_steps)
        settings = settings_of(
            problem,
            budget.mu,
            start=self.start,
            moves=moves,
            n_steps=given,
            learning_rate=self.learning_rate,
        )
        n_steps = settings.n_steps
        momentum = self._momentum(n_steps, settings.start == "sums")
        clip = settings.clip if _is_auto(self.clip) else self.clip
        constant = CONSTANT * problem.norm_bound if problem.fit_intercept else 0.0
        promises = ((problem.radius, budget.mu), *self._outer_promise(problem, budget))
        start = None
        if settings.start != "zero":
            sums = 1.0 if self.start == "prototypes" else None
            pooled = settings.start == "mean"
            start = start_bound(problem, promises, settings.share, sums, pooled=pooled)

        def bound(learning_rate: float) -> TranscriptBound:
            return TranscriptBound(
                loss=problem.loss,
                n_samples=problem.n_samples,
                n_features=problem.n_features,
                n_classes=problem.n_classes,
                norm_bound=problem.norm_bound,
                constant=constant,
                labels=problem.labels,
                promises=promises,
                descent=Descent(
                    n_steps,
                    learning_rate,
                    momentum,
                    None if clip is None else float(clip),
                    float(self.averaging),
                ),
                start=start,
                centred=start is not None and moves,
                weights=problem.loss_weights,
                rows=problem.domain,
            )

        promised = bound(math.nan)
        # The start takes a larger share of one promise than of the other.
        least = min(promised.step_mu(mu).min() for _, mu in promised.step_promises)
        if least <= grid_slack(promised.step_values):
            raise ValueError(
                f"epsilon={budget.epsilon!r} (outer_epsilon={self.outer_epsilon!r}) is too small "
                f"for {n_steps} steps on the sampler's grid; raise it or lower n_steps."
            )
        rate = self.learning_rate
        if rate is None:
            rate = default_learning_rate(promised, settings.accumulated_noise)
        return Promise(bound(float(rate)))

    def _momentum(self, n_steps: int, from_sums: bool) -> float:
        if _is_auto(self.momentum):
            return default_momentum(n_steps, from_sums=from_sums)
        return float(self.momentum)

    def _outer_promise(self, problem: Problem, budget: Budget) -> list[tuple[float, float]]:
        """The second promised radius and its mu, if there is one."""
        if self.outer_radius is None:
            return []
        outer, outer_mu = self._outer(
            problem.metric, problem.norm_bound, problem.n_features, budget
        )
        if not (outer > problem.radius and outer_mu >= budget.mu):
            raise ValueError(
                f"outer_radius={self.outer_radius!r}, outer_epsilon={self.outer_epsilon!r}: a "
                "second promise needs a larger radius than radius (both count up to the diameter "
                "of the ball of rows), and no smaller epsilon."
            )
        return [(outer, outer_mu)]

    def _outer(
        self, metric: str, norm_bound: float, n_features: int, budget: Budget
    ) -> tuple[float, float]:
        """The second promised radius, a Euclidean one, and its mu."""
        outer = euclidean_radius(
            float(self.outer_radius), metric, norm_bound=norm_bound, n_features=n_features
        )
        return outer, budget.mu_at(float(self.outer_epsilon))

    def run(self, problem: PrivateProblem, promise: Promise, noise: Noise) -> Outcome:
        bound: Any = promise.bound
        steps = Steps()
        if bound.start is not None:
            steps.start, bound = released_start(problem, bound, noise)
        begun = beginning(steps.start, problem, bound)
        own = begun.bound
        # The figure ex post is at the largest substitution of the domain.
        largest = full_radius(own.norm_bound)
        with ThreadPoolExecutor(n_threads(*problem.X.shape)) as pool, SINGLE_BLAS_THREAD:
            mean = mean_gradient(problem, begun, pool)
            iterates = begun.iterates(problem.alpha, mean.dtype)
            for number in bar(range(own.descent.n_steps), "descent", "step"):
                theta = iterates.thetas[0]
                rounding = mean.rounding(theta)
                sensitivity, sigma = own.step(theta, number, rounding)
                released = noise(mean(iterates.thetas)[0], sigma)
                steps.sigma.append(sigma)
                steps.sensitivity.append(sensitivity)
                steps.spent.append(own.sensitivity(theta, largest, rounding) / sigma)
                if self.keep_transcript:
                    steps.gradients.append(released)
                    steps.iterates.append(theta)
                iterates.advance(released[None])
        return Outcome(
            begun.parameters(iterates.released()[0]),
            sensitivity=tuple(steps.sensitivity),
            sigma=tuple(steps.sigma),
            mu_ex_post=steps.mu_ex_post(bound),
            bound=bound,
            attributes={"transcript_": steps.transcript()} if self.keep_transcript else {},
        )

    def neighbours(self, problem: PrivateProblem, promise: Promise) -> Neighbours:
        raise TypeError("noise on gradients is audited by its transcript.")


@dataclass
class Steps:
    """What each step of a descent released, and what it was calibrated to; all public."""

    sensitivity: list[float] = field(default_factory=list)
    sigma: list[float] = field(default_factory=list)
    #: Sensitivity at the full radius, over the noise scale.
    spent: list[float] = field(default_factory=list)
    gradients: list[Array] = field(default_factory=list)
    iterates: list[Array] = field(default_factory=list)
    start: Array = field(default_factory=lambda: np.empty((0, 0)))

    def transcript(self) -> Transcript:
        gradients, iterates = np.array(self.gradients), np.array(self.iterates)
        return Transcript(gradients, iterates, np.array(self.sigma), self.start)

    def mu_ex_post(self, bound: TranscriptBound) -> float:
        """Mu at the full radius by the gaps at the iterates that occurred."""
        steps = compose(self.spent) + math.sqrt(len(self.spent)) * grid_slack(bound.step_values)
        if bound.start is None:
            return steps
        return compose([steps, bound.start.mu(full_radius(bound.norm_bound))])


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def mean_gradient(
    problem: PrivateProblem,
    begun: Beginning,
    pool: Executor | None = None,
    total: float | None = None,
) -> MeanGradient:
    """Gradients of a problem's records, as a descent takes them; ``total`` divides their sum."""
    bound = begun.bound
    if total is None:
        total = total_of(bound.weights, problem.n_samples)
    return MeanGradient(
        bound.loss,
        problem.X,
        problem.codes,
        problem.n_classes,
        norm_bound=bound.norm_bound,
        constant=bound.constant,
        clip=bound.descent.clip,
        domain=problem.domain,
        coordinates=begun.coordinates,
        reach=problem.norm_bound,
        weights=(bound.weights, problem.loss_row_weights),
        total=total,
        pool=pool,
    )
