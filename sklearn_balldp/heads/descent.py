"""Gradient perturbation: noisy sums to start from, noisy gradients, and the model made of them."""

import math
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._parameters import check_flag, check_option, check_positive, check_whole, is_auto
from ..adjacency import full_radius
from ..privacy.gaussian import compose
from ..privacy.noise import Noise, grid_slack
from ..privacy.transcript import MOST_STEPS, Descent, TranscriptBound
from ..privacy.weights import total_of
from ..progress import bar
from ..rows import SINGLE_BLAS_THREAD, n_threads
from .gradients import MeanGradient
from .initialisation import Initialisation, initialise, start_values
from .iterates import gains
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
from .settings import CLIP, CONSTANT, LEAST_REACH, MOMENTUM, default_learning_rate, settings_of
from .statistics import StatisticsPerturbation
from .whitening import WhiteningMap

#: What ``start=`` takes.
STARTS = "auto", "statistics", "prototypes", "mean", "zero"


def _empty() -> Array:
    return np.empty((0, 0))


@dataclass(frozen=True)
class Transcript:
    """What noisy gradient descent released, step by step, and what its steps saw; public.

    Parameters
    ----------
    gradients : ndarray of shape (n_steps, n_scores, n_columns)
        The noisy mean gradients of the loss, with clipped residuals and without the regulariser.
    iterates : ndarray of the same shape
        The parameters at which they were taken.
    sigma : ndarray of shape (n_steps,)
        The noise scale of each step.
    start : ndarray of shape (n_rows, n_features)
        The noisy sums that the first iterate was made of (:class:`.Layout`). It has no rows if the
        first iterate is zero.
    centre : ndarray of shape (n_features,)
        What the rows were moved by; empty if they stayed as they are.
    directions : ndarray of shape (n_features, n_directions)
        Orthonormal directions along which they were shortened then.
    factors : ndarray of shape (n_directions,)
        Factors by which they were.
    norms : ndarray of shape (2,)
        Largest norms of the rows once they were moved, and at last.
    """

    gradients: Array
    iterates: Array
    sigma: Array
    start: Array = field(default_factory=_empty)
    centre: Array = field(default_factory=lambda: np.empty(0))
    directions: Array = field(default_factory=_empty)
    factors: Array = field(default_factory=lambda: np.empty(0))
    norms: Array = field(default_factory=lambda: np.empty(0))

    @property
    def map(self) -> WhiteningMap | None:
        """How the steps saw the rows; None where these stayed as they are."""
        if len(self.centre) == 0:
            return None
        reach, norm = (float(v) for v in self.norms)
        return WhiteningMap(self.centre, self.directions, self.factors, reach, norm)

    def initialisation(self, bound: TranscriptBound) -> Initialisation:
        """Where the steps began, by what the transcript states.

        Parameters
        ----------
        bound : TranscriptBound
            The bound in the record of the release.

        Returns
        -------
        Initialisation
            The bound of the steps alone, the map, and the first iterate.
        """
        own = bound if bound.start is None else bound.after(bound.norm_bound)
        if self.map is not None:
            own = bound.after(self.map.norm)
        return Initialisation(own, self.map, self.iterates[0])


class GradientPerturbation(Mechanism):
    """Noise on class sums, and on the gradients of a full-batch descent that starts from them.

    It is far more accurate than noise on the minimiser at the same guarantee. The guarantee covers
    the sums and the noisy gradients of all steps, not only the final parameters. The noise of each
    step is calibrated at the step's own iterate, which is public.

    Where the start tells the mean of the rows, and the head has an intercept, the steps see the
    rows moved by that mean. Where it tells their second moment too, rows are then shortened along
    the directions in which they vary most (*partial whitening*). Gradients of the shorter rows
    need less noise. The released weights are for rows that were not changed.

    Parameters
    ----------
    n_steps : int or "auto", default="auto"
        How many steps the descent takes. Each costs one pass over the rows; all share the budget,
        so more steps are noisier ones. "auto" takes 20 after class sums, and 60 from zero or after
        the mean alone. It takes one where public numbers say that steps would harm their start:
        that one has a fiftieth of the budget, and the model is all but the discriminant that it
        starts from. Where labels are protected, or ``alpha`` or ``learning_rate`` is given, it
        takes many all the same.
    learning_rate : float or None, default=None
        How far a step goes: larger steps fit sooner, and gather more noise. None chooses the size
        from public numbers, so that noise and fit balance. It is the size for rows of norm
        ``norm_bound``; where the steps see shorter rows, it grows as one over their squared norm.
    clip : float, "auto" or None, default="auto"
        Limits what one record can change: a smaller value takes less noise, and bends the fit more.
        It is the norm that the residual of each record, its derivative by the scores, is clipped
        to; its gradient is then at most ``clip`` times the norm of its row. "auto" is 0.2. None
        does not clip.
    start : {"auto", "statistics", "prototypes", "mean", "zero"}, default="auto"
        Where the descent begins: a better start takes a share of the budget, and saves steps.
        "prototypes" begins at the noise-aware rule of noisy class sums. "statistics" begins at the
        linear discriminant (:class:`.BallDPLinearDiscriminant`) of the same sums and a noisy second
        moment, where public numbers say that the moment is worth its noise. Public numbers decide
        the share too. "mean" releases the noisy mean of all rows alone, which rows are moved by,
        and begins at zero. "zero" spends the whole budget on the steps. "auto" is "statistics",
        and "mean" where public numbers say that records are too few for class sums that hide so
        large a radius, or labels.
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
        clip="auto",
        start="auto",
        keep_transcript=False,
    ):
        self.n_steps = n_steps
        self.learning_rate = learning_rate
        self.clip = clip
        self.start = start
        self.keep_transcript = keep_transcript

    def check(self) -> None:
        if not is_auto(self.n_steps):
            check_whole("n_steps", self.n_steps, 1)
            if self.n_steps > MOST_STEPS:
                raise ValueError(
                    f"n_steps={self.n_steps!r} must be at most {MOST_STEPS}; lower it."
                )
        if self.learning_rate is not None:
            check_positive("learning_rate", self.learning_rate, " or None")
        if not (self.clip is None or is_auto(self.clip)):
            check_positive("clip", self.clip, ", 'auto' or None")
        check_option("start", self.start, STARTS)
        check_flag("keep_transcript", self.keep_transcript)

    def settings_beside(self, record: Any) -> dict[str, tuple[Any, Any]]:
        bound, own = record.bound, record.bound.descent
        found: dict[str, tuple[Any, Any]] = {
            "start from zero": (self.start == "zero", bound.start is None)
        }
        for name in ("n_steps", "learning_rate", "clip"):
            value = getattr(self, name)
            open_to_choice = is_auto(value) or (name == "learning_rate" and value is None)
            if not open_to_choice:
                found[name] = value, getattr(own, name)
        if self.start == "prototypes" and bound.start is not None:
            found["second moment"] = False, bound.start.moment
        # Heads that share the clipping norm never start from the mean by themselves.
        chosen = self.start == "auto" and bound.kind.n_stacked == 1
        if not chosen and self.start != "zero" and bound.start is not None:
            found["start from the mean"] = self.start == "mean", bound.start.pooled
        return found

    def promise(self, problem: Problem, budget: Budget) -> Promise:
        if self.start in ("zero", "mean") and problem.class_embeddings is not None:
            raise ValueError(
                f"class_embeddings: a descent from start={self.start!r} has no class means that it "
                "could shrink; pass class_embeddings=None, or start='auto'."
            )
        if self.start == "mean" and not problem.fit_intercept:
            raise ValueError(
                "start='mean' serves to move rows by their mean, which fit_intercept=False rules "
                "out; set fit_intercept=True, or pass start='zero'."
            )
        settings = settings_of(
            problem,
            budget.mu,
            start=self.start,
            n_steps=None if is_auto(self.n_steps) else int(self.n_steps),
            learning_rate=self.learning_rate,
        )
        start = None
        if settings.start != "zero":
            sums = 1.0 if self.start == "prototypes" else None
            pooled = settings.start == "mean"
            # What the share of the steps leaves of mu squared.
            left = math.sqrt(1.0 - settings.share) * budget.mu
            start = StatisticsPerturbation(sums).bound(problem, left, pooled=pooled)
        clip = CLIP if is_auto(self.clip) else self.clip
        whitened = start is not None and problem.fit_intercept
        averaged = max(1, round((1.0 - MOMENTUM) * settings.n_steps))
        bound = TranscriptBound(
            loss=problem.loss,
            n_samples=problem.n_samples,
            n_features=problem.n_features,
            n_classes=problem.n_classes,
            norm_bound=problem.norm_bound,
            constant=CONSTANT * problem.norm_bound if problem.fit_intercept else 0.0,
            labels=problem.labels,
            promised_radius=problem.radius,
            promised_mu=budget.mu,
            descent=Descent(
                learning_rate=math.nan,
                momentum=MOMENTUM,
                clip=None if clip is None else float(clip),
                averaged=averaged,
                shares=shares_of(settings.n_steps, MOMENTUM, averaged),
            ),
            start=start,
            least_reach=LEAST_REACH if whitened else 1.0,
            weights=problem.loss_weights,
            rows=problem.domain,
        )
        if bound.step_mu().min() <= grid_slack(bound.step_values):
            raise ValueError(
                f"epsilon={budget.epsilon!r} is too small for {settings.n_steps} steps on the "
                "sampler's grid; raise it or lower n_steps."
            )
        rate = self.learning_rate
        if rate is None:
            rate = default_learning_rate(bound, settings.aim)
        descent = replace(bound.descent, learning_rate=float(rate))
        return Promise(replace(bound, descent=descent))

    def run(self, problem: PrivateProblem, promise: Promise, noise: Noise) -> Outcome:
        bound: Any = promise.bound
        start = _empty() if bound.start is None else noise(*start_values(problem, bound))
        begun = initialise(start, problem, bound)
        own, steps = begun.bound, _Steps(begun, start)
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
            mu_ex_post=mu_ex_post(bound, steps.spent),
            attributes={"transcript_": steps.transcript()} if self.keep_transcript else {},
        )

    def neighbours(self, problem: PrivateProblem, promise: Promise) -> Neighbours:
        raise TypeError("noise on gradients is audited by its transcript.")


@dataclass
class _Steps:
    """What each step of a descent released, and what it was calibrated to; all public."""

    begun: Initialisation
    start: Array
    sensitivity: list[float] = field(default_factory=list)
    sigma: list[float] = field(default_factory=list)
    #: Sensitivity at the full radius, over the noise scale.
    spent: list[float] = field(default_factory=list)
    gradients: list[Array] = field(default_factory=list)
    iterates: list[Array] = field(default_factory=list)

    def transcript(self) -> Transcript:
        seen, map_ = {}, self.begun.map
        if map_ is not None:
            seen = {"centre": map_.centre, "directions": map_.directions, "factors": map_.factors}
            seen["norms"] = np.array([map_.reach, map_.norm])
        gradients, iterates = np.array(self.gradients), np.array(self.iterates)
        return Transcript(gradients, iterates, np.array(self.sigma), self.start, **seen)


def shares_of(n_steps: int, momentum: float, averaged: int) -> tuple[float, ...]:
    """Share of mu squared that each step has: steps that move the model less have more noise.

    Noise of a step stays in the model by its gain. If nothing pulled it back, shares in proportion
    to the gains would leave the least in all. A loss pulls more of the earlier noise back, so they
    are in proportion to the roots.
    """
    roots: NDArray[np.float64] = np.sqrt(gains(n_steps, momentum, averaged))
    return tuple((roots / roots.sum()).tolist())


def mu_ex_post(bound: TranscriptBound, spent: list[float]) -> float:
    """Mu at the full radius by the gaps at the iterates that occurred.

    ``spent`` are sensitivities at that radius over the noise scales of the steps.
    """
    steps = compose(spent) + math.sqrt(len(spent)) * grid_slack(bound.step_values)
    if bound.start is None:
        return steps
    return compose([steps, bound.start.mu(full_radius(bound.norm_bound))])


def mean_gradient(
    problem: PrivateProblem,
    begun: Initialisation,
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
        whitening=begun.map,
        reach=problem.norm_bound,
        weights=(bound.weights, problem.loss_row_weights),
        total=total,
        pool=pool,
    )
