"""Gradient perturbation: the noisy gradients of a descent, and the model that is made of them."""

import math
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .._validation import check_flag, check_option, check_positive, check_share, check_whole
from ..adjacency import euclidean_radius, full_radius
from ..privacy.gaussian import LARGEST_EPSILON, compose
from ..privacy.noise import Noise, grid_slack
from ..privacy.statistics import StatisticsBound
from ..privacy.transcript import MOST_OF_STEPS, Descent, TranscriptBound
from ..rows import SINGLE_BLAS_THREAD, row_ranges
from .discriminant_rule import discriminant_rule
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
from .statistics import Statistics, StatisticsPerturbation, statistics_of

#: Constant that augments the rows, in units of B: a smaller one takes less of the noise, and moves
#: intercepts more slowly.
CONSTANT = 0.3
#: Standard deviation, in units of 1 / B, that the noise of all steps together would give one
#: parameter if nothing pulled it back: what the default step size aims at.
ACCUMULATED_NOISE = 1.5
#: Largest total step, in units of 1 / B and for gradients of the clipping norm.
LONGEST_PATH = 3e4
# The steps after a start take half of their most at this noise of the class means (their energy),
# and at this radius.
_MEANS_NOISE, _SATURATION = 0.03, 0.2
# Iterates stay within this norm, in units of 1 / B: a step size that diverges gives no infinity.
_FARTHEST = 1e6


@dataclass(frozen=True)
class Transcript:
    """What noisy gradient descent released, step by step; public.

    Parameters
    ----------
    gradients : ndarray of shape (n_steps, n_scores, n_columns)
        Noisy mean gradients of the loss, residuals clipped; without the regulariser.
    iterates : ndarray of the same shape
        Parameters at which they were taken.
    sigma : ndarray of shape (n_steps,)
        Noise scales.
    start : ndarray of shape (n_rows, n_features)
        Table of the noisy sums that the first iterate was made of (:class:`.Layout`); without rows
        where it is zero.
    """

    gradients: Array
    iterates: Array
    sigma: Array
    start: Array = field(default_factory=lambda: np.empty((0, 0)))


class Iterates:
    """Parameters of one or more runs: heavy-ball steps and the mean of the last iterates.

    Functions of released gradients and public numbers alone.

    Parameters
    ----------
    n_runs : int
        Independent runs.
    bound : TranscriptBound
        Shape, loss and settings.
    alpha : float
        Regularisation strength, added to the released gradients.
    precision : dtype
        Precision that iterates are rounded to, that of the rows.
    start : ndarray of shape (n_runs, n_scores, n_columns), optional
        First iterates; zero by default.
    """

    def __init__(
        self,
        n_runs: int,
        bound: TranscriptBound,
        alpha: float,
        precision: DTypeLike = np.float64,
        start: Array | None = None,
    ) -> None:
        shape, descent = (n_runs, *bound.shape), bound.descent
        self.thetas = np.zeros(shape)
        self._velocity, self._total = np.zeros(shape), np.zeros(shape)
        self._descent, self._alpha, self._precision = descent, alpha, precision
        # The gradients of a record's classes add up to zero: noise in the sum is no signal.
        self._centred = bound.loss == "softmax"
        self._farthest = _FARTHEST / bound.norm_bound
        self._averaged = max(1, round(descent.averaging * descent.n_steps))
        self._step = 0
        if start is not None:
            self._move(start)

    def _move(self, thetas: Array) -> None:
        norms = np.sqrt(np.einsum("rkd,rkd->r", thetas, thetas))
        # At zero the factor is one, whatever the divisor.
        factors = np.minimum(1.0, self._farthest / np.maximum(norms, 1e-300))
        thetas = thetas * factors[:, None, None]
        self.thetas = thetas.astype(self._precision).astype(np.float64)

    def advance(self, gradients: Array) -> None:
        """One step of every run along its released gradient."""
        descent = self._descent
        if self._centred:
            gradients = gradients - gradients.mean(axis=1, keepdims=True)
        self._velocity = descent.momentum * self._velocity + gradients + self._alpha * self.thetas
        self._move(self.thetas - descent.learning_rate * self._velocity)
        self._step += 1
        if self._step > descent.n_steps - self._averaged:
            self._total += self.thetas

    def released(self) -> Array:
        """Mean of the last iterates of every run."""
        return self._total / self._averaged


class GradientPerturbation(Mechanism):
    r"""Noise on the gradients of a full-batch descent, calibrated at each public iterate.

    Far more accurate than noise on the minimiser at the same guarantee. The whole transcript of
    noisy gradients is what the guarantee covers. ``release_.guarantee`` at smaller radii is the one
    at ``radius``.

    Parameters
    ----------
    n_steps : int, default=100
        Steps of the descent; the budget is shared equally among them.
    learning_rate : float or None, default=None
        Step size. None chooses it from public numbers, so that noise and fit balance.
    momentum : float, default=0.9
        Share of the velocity that is kept from step to step.
    clip : float or None, default=0.2
        Norm that the residual of each record, its derivative by the scores, is clipped to; None
        for no clipping. Bounds gradients by ``clip`` times the norm of a row.
    averaging : float, default=0.5
        Share of the iterates, the last ones, whose mean is released; 0 for the last alone.
    start : {"zero", "statistics"}, default="zero"
        Where the descent begins. "statistics": at the linear discriminant of noisy class sums and a
        noisy second moment (:class:`.BallDPLinearDiscriminant`), which take a share of the budget
        that public numbers decide. It then needs few steps: 30, with ``clip=0.1`` and
        ``averaging=0.3``, say.
    outer_radius, outer_epsilon : float or None, default=None
        A second, larger radius and the epsilon promised at it (same delta): every step adds the
        noise that the stricter promise needs.
    keep_transcript : bool, default=False
        Whether the head keeps ``transcript_``, which is public: the guarantee is its own.

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
        n_steps=100,
        learning_rate=None,
        momentum=0.9,
        clip=0.2,
        averaging=0.5,
        start="zero",
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
        self.outer_radius = outer_radius
        self.outer_epsilon = outer_epsilon
        self.keep_transcript = keep_transcript

    def check(self) -> None:
        check_whole("n_steps", self.n_steps, 1)
        for name in ("learning_rate", "clip", "outer_radius", "outer_epsilon"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name), " or None")
        check_share("momentum", self.momentum, below_one=True)
        check_share("averaging", self.averaging)
        check_option("start", self.start, ("zero", "statistics"))
        check_flag("keep_transcript", self.keep_transcript)
        if self.outer_epsilon is not None and float(self.outer_epsilon) > LARGEST_EPSILON:
            raise ValueError(
                f"outer_epsilon={self.outer_epsilon!r} is beyond {LARGEST_EPSILON:g}; lower it."
            )
        if (self.outer_radius is None) != (self.outer_epsilon is None):
            raise ValueError("outer_radius and outer_epsilon go together: pass both or neither.")

    def promise(self, problem: Problem, budget: Budget) -> Promise:
        n_steps, momentum = int(self.n_steps), float(self.momentum)
        clip = None if self.clip is None else float(self.clip)
        constant = CONSTANT * problem.norm_bound if problem.fit_intercept else 0.0
        promises = ((problem.radius, budget.mu), *self._outer_promise(problem, budget))
        start = start_bound(problem, promises) if self.start == "statistics" else None

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
                descent=Descent(n_steps, learning_rate, momentum, clip, float(self.averaging)),
                start=start,
            )

        promised = bound(math.nan)
        if promised.step_mu(promised.step_promises[0][1]) <= grid_slack(promised.step_values):
            raise ValueError(
                f"epsilon={budget.epsilon!r} is too small for {n_steps} steps on the sampler's "
                "grid; raise epsilon or lower n_steps."
            )
        rate = self.learning_rate
        if rate is None:
            rate = default_learning_rate(promised, problem.alpha)
        return Promise(bound(float(rate)))

    def _outer_promise(self, problem: Problem, budget: Budget) -> list[tuple[float, float]]:
        """The second promised radius and its mu, if there is one."""
        if self.outer_radius is None:
            return []
        outer = euclidean_radius(
            float(self.outer_radius),
            problem.metric,
            norm_bound=problem.norm_bound,
            n_features=problem.n_features,
        )
        outer_mu = budget.mu_at(float(self.outer_epsilon))
        if not (outer > problem.radius and outer_mu >= budget.mu):
            raise ValueError(
                f"outer_radius={self.outer_radius!r}, outer_epsilon={self.outer_epsilon!r}: a "
                "second promise needs a larger radius than radius (both count up to the diameter "
                "of the ball of rows), and no smaller epsilon."
            )
        return [(outer, outer_mu)]

    def run(self, problem: PrivateProblem, promise: Promise, noise: Noise) -> Outcome:
        bound: Any = promise.bound
        # The figure ex post is at the largest substitution of the domain.
        largest = full_radius(problem.norm_bound)
        steps = Steps()
        start = None
        if bound.start is not None:
            steps.start = noise(*start_values(problem, bound))
            start = start_of(steps.start[None], problem, bound)
        with ThreadPoolExecutor(len(row_ranges(*problem.X.shape))) as pool, SINGLE_BLAS_THREAD:
            mean = mean_gradient(problem, bound, pool)
            iterates = Iterates(1, bound, problem.alpha, mean.X.dtype, start)
            for _ in range(bound.descent.n_steps):
                theta = iterates.thetas[0]
                rounding = mean.rounding(theta)
                sensitivity, sigma = bound.step(theta, rounding)
                released = noise(mean(iterates.thetas)[0], sigma)
                steps.sigma.append(sigma)
                steps.sensitivity.append(sensitivity)
                steps.spent.append(bound.sensitivity(theta, largest, rounding) / sigma)
                if self.keep_transcript:
                    steps.gradients.append(released)
                    steps.iterates.append(theta)
                iterates.advance(released[None])
        return Outcome(
            parameters_of(iterates, bound),
            sensitivity=tuple(steps.sensitivity),
            sigma=tuple(steps.sigma),
            mu_ex_post=steps.mu_ex_post(bound),
            attributes={"transcript_": steps.transcript()} if self.keep_transcript else {},
        )

    def neighbours(self, problem: PrivateProblem, promise: Promise) -> Neighbours:
        raise TypeError("noise on gradients is audited by its transcript.")


def parameters_of(iterates: Iterates, bound: TranscriptBound) -> Array:
    """Parameters that a single run releases, intercepts in the units of the scores."""
    parameters = iterates.released()[0]
    if bound.constant > 0.0:
        parameters[:, -1] *= bound.constant
    return parameters


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


def mean_gradient(
    problem: PrivateProblem, bound: TranscriptBound, pool: Executor | None = None
) -> MeanGradient:
    """Gradients of a problem's records, as a descent takes them."""
    return MeanGradient(
        bound.loss,
        problem.X,
        problem.codes,
        problem.n_classes,
        norm_bound=bound.norm_bound,
        constant=bound.constant,
        clip=bound.descent.clip,
        pool=pool,
    )


def start_bound(problem: Problem, promises: Sequence[tuple[float, float]]) -> StatisticsBound:
    """Bound of the sums that a descent starts from: its share of mu squared, from public numbers.

    Steps get less where balls are small, as their noise does not follow the radius there, and where
    classes are many.
    """
    radius, mu = promises[0]
    r = radius / problem.norm_bound
    counts = np.array(problem.class_counts or ())
    if problem.labels == "protected":
        r, counts = 2.0, np.full(problem.n_classes, problem.n_samples / problem.n_classes)
    present = counts[counts > 0]
    noise = problem.n_features * (r / mu) ** 2 * float(np.sum(1.0 / present)) / problem.n_samples
    steps = MOST_OF_STEPS / (1.0 + noise / _MEANS_NOISE) * r**2 / (r**2 + _SATURATION**2)
    share = math.sqrt(1.0 - steps)
    bound = StatisticsPerturbation().bound(problem, share * mu)
    for outer, outer_mu in promises[1:]:
        excess = bound.mu(outer) / (share * outer_mu)
        if excess > 1.0:
            # The second promise is the stricter one.
            bound = StatisticsPerturbation(bound.share).bound(problem, share * mu / excess)
    return bound


def start_values(problem: PrivateProblem, bound: TranscriptBound) -> tuple[Array, Array]:
    """Noiseless table of the sums that a descent starts from, and its noise scales."""
    mechanism = StatisticsPerturbation()
    return mechanism.noiseless(problem, Promise(bound.start))  # type: ignore[arg-type]


def start_of(tables: Array, problem: Problem, bound: TranscriptBound) -> Array:
    """First iterates from noisy tables: discriminants, in the units of the loss."""
    found = []
    for table in tables:
        statistics = statistics_of(table, problem, bound.start)  # type: ignore[arg-type]
        coef, intercept = discriminant_rule(statistics)
        known = np.isfinite(intercept)
        lowest = intercept[known].min(initial=0.0)
        intercept = np.where(known, intercept, lowest)
        if bound.loss == "squared_hinge":
            coef, intercept = _as_margins(coef, intercept, statistics)
        if bound.loss == "softmax":
            coef, intercept = coef - coef.mean(axis=0), intercept - intercept.mean()
        elif len(coef) == 2:
            coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
            if bound.loss == "squared_hinge":
                coef, intercept = 0.5 * coef, 0.5 * intercept
        columns = [coef]
        if bound.constant > 0.0:
            columns.append(intercept[:, None] / bound.constant)
        found.append(np.hstack(columns))
    return np.stack(found)


def _as_margins(coef: Array, intercept: Array, statistics: Statistics) -> tuple[Array, Array]:
    """Scores scaled, each by itself, to about 1 on its own class and -1 on the others."""
    counts = np.maximum(np.asarray(statistics.counts, dtype=np.float64), 1.0)
    means = statistics.class_sums / counts[:, None]
    scores = means @ coef.T + intercept
    own = np.diag(scores)
    others = (counts @ scores - counts * own) / (counts.sum() - counts)
    half = 0.5 * (own - others)
    factor = np.where(half > 1e-3, 1.0 / np.maximum(half, 1e-3), 0.0)
    return factor[:, None] * coef, factor * (intercept - 0.5 * (own + others))


def default_learning_rate(bound: TranscriptBound, alpha: float) -> float:
    r"""Step size from public numbers.

    With sensitivity G / n of a step at its largest, T steps and a promise mu, the noise that all
    steps add to one parameter has standard deviation :math:`\eta T G / ((1 - \beta) n \mu)`, with
    momentum :math:`\beta`, if nothing pulls it back. The step size makes that
    :data:`ACCUMULATED_NOISE` / B: a longer path fits no better for the noise it gathers, a shorter
    one stops before the model is fitted. With little noise the path is limited to
    :data:`LONGEST_PATH`. The regulariser limits the step size to what keeps it stable; without
    clipping so does the loss, on every dataset.
    """
    norm_bound, descent = bound.norm_bound, bound.descent
    n_steps, momentum, clip = descent.n_steps, descent.momentum, descent.clip
    augmented = math.hypot(norm_bound, bound.constant)
    # Half of what makes heavy-ball steps diverge.
    curvature = alpha
    if clip is None:
        curvature += bound.kind.curvature * augmented**2
    rates = [(1.0 + momentum) / curvature] if curvature > 0.0 else []
    if clip is not None:
        rates.append(LONGEST_PATH * (1.0 - momentum) / (norm_bound * n_steps * clip))
    for radius, mu in bound.step_promises:
        gap = bound.limits(radius).most
        if math.isfinite(gap):
            accumulated = n_steps * gap / ((1.0 - momentum) * bound.n_samples * mu)
            rates.append(ACCUMULATED_NOISE / (norm_bound * accumulated))
    return min(rates)
