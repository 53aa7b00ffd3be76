"""Gradient perturbation: noisy sums to start from, noisy gradients, and the model made of them."""

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
from ..privacy.transcript import LEAST_REACH, Descent, TranscriptBound
from ..privacy.weights import total_of
from ..progress import bar
from ..rows import SINGLE_BLAS_THREAD, n_threads
from .descent_settings import default_learning_rate, settings_of
from .discriminant_rule import TAIL, discriminant_rule, likely_counts
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
#: Least square of the mean that rows are moved by, in units of their own: a shorter one is left.
SHORT_MEAN = 0.04
#: Length of the path of all steps, in lengths of the start, that may restore half of its slope.
LONG_PATH = 8.0
#: What ``start=`` takes.
STARTS = "auto", "statistics", "prototypes", "zero"
# Iterates stay within this norm, in units of 1 / B: a step size that diverges gives no infinity.
_FARTHEST = 1e6


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
        Regularisation strength.
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
        self._descent, self._precision = descent, precision
        # At rest the released gradient is minus alpha times the iterate.
        self._pull = 1.0 + descent.learning_rate * alpha / (1.0 - descent.momentum)
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
        """One step of every run along its released gradient, then towards zero."""
        if self._centred:
            gradients = gradients - gradients.mean(axis=1, keepdims=True)
        thetas, self._velocity = self._stepped(self.thetas, self._velocity, gradients)
        self._move(thetas)
        self._step += 1
        if self._step > self._descent.n_steps - self._averaged:
            self._total += self.thetas

    def _stepped(self, thetas: Array, velocity: Array, gradients: Array) -> tuple[Array, Array]:
        """Iterates and velocity after a step."""
        velocity = self._descent.momentum * velocity + gradients
        # Implicit: however strong the regulariser is, it takes no parameter beyond zero.
        return (thetas - self._descent.learning_rate * velocity) / self._pull, velocity

    def gains(self) -> Array:
        """What one more in the gradient of each step takes from a released parameter."""
        n_steps = self._descent.n_steps
        thetas, velocity, taken = np.zeros(1), np.zeros(1), np.zeros(n_steps + 1)
        for step in range(n_steps):
            thetas, velocity = self._stepped(thetas, velocity, np.array([float(step == 0)]))
            taken[step + 1] = taken[step] - thetas[0]
        # Every step acts on those that follow it as the first one does.
        left = np.arange(n_steps, 0, -1)
        return (taken[left] - taken[np.maximum(left - self._averaged, 0)]) / self._averaged

    def released(self) -> Array:
        """Mean of the last iterates of every run."""
        return self._total / self._averaged


class GradientPerturbation(Mechanism):
    """Noise on class sums, and on the gradients of a full-batch descent that starts from them.

    It is far more accurate than noise on the minimiser at the same guarantee. The guarantee covers
    the sums and the noisy gradients of all steps, not only the final parameters. The noise of each
    step is calibrated at the step's own iterate, which is public.

    Parameters
    ----------
    n_steps : int or "auto", default="auto"
        How many steps the descent takes. Each costs one pass over the rows; all share the budget
        equally, so more steps are noisier ones. "auto" takes 50, and 100 from zero. It takes one
        where labels are public, neither ``alpha`` nor ``learning_rate`` is given, and public
        numbers say that steps would cost their start more than they gain: that one has a hundredth
        of the budget, and the model is all but the discriminant that it starts from.
    learning_rate : float or None, default=None
        How far a step goes: larger steps fit sooner, and gather more noise. None chooses the size
        from public numbers, so that noise and fit balance. It is the size for rows of norm
        ``norm_bound``; where rows are centred, and shorter, it grows as one over their squared
        norm.
    momentum : float, default=0.9
        Makes the descent faster: the share of the velocity that is kept from step to step. At least
        0, below 1.
    clip : float, "auto" or None, default="auto"
        Limits what one record can change: a smaller value takes less noise, and bends the fit more.
        It is the norm that the residual of each record, its derivative by the scores, is clipped
        to; its gradient is then at most ``clip`` times the norm of its row. "auto" is 0.1, and up
        to 0.3 at small radii. None does not clip.
    averaging : float, default=0.2
        Averages some of the noise away: the share of the iterates, the last ones, whose mean is
        released. 0 releases the last one alone.
    start : {"auto", "statistics", "prototypes", "zero"}, default="auto"
        Where the descent begins: a better start takes a share of the budget, and saves steps.
        "prototypes" begins at the noise-aware rule of noisy class sums. "statistics" and "auto"
        begin at the linear discriminant (:class:`.BallDPLinearDiscriminant`) of the same sums and a
        noisy second moment, where public numbers say that the moment is worth its noise. Public
        numbers decide the share too: nearly all at small radii, a fifth where the steps do more.
        "zero" spends the whole budget on the steps, and needs about 100 of them.
    centre : bool, default=True
        Saves noise where rows have a long mean in common, as image features do: rows are moved by
        that mean, as the start tells it, and gradients of the shorter rows need less noise. The
        released weights are for rows that were not moved. It needs a start and an intercept, and
        has no effect otherwise.
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
        momentum=0.9,
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
        if not (isinstance(self.n_steps, str) and self.n_steps == "auto"):
            check_whole("n_steps", self.n_steps, 1)
        for name in ("learning_rate", "outer_radius", "outer_epsilon"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name), " or None")
        if not (self.clip is None or (isinstance(self.clip, str) and self.clip == "auto")):
            check_positive("clip", self.clip, ", 'auto' or None")
        check_share("momentum", self.momentum, below_one=True)
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

    def promise(self, problem: Problem, budget: Budget) -> Promise:
        if self.start == "zero" and problem.prior is not None:
            raise ValueError(
                "prior: a descent from start='zero' has no means that it could shrink; pass "
                "prior=None, or start='auto'."
            )
        given = None if self.n_steps == "auto" else int(self.n_steps)
        settings = settings_of(
            problem,
            budget.mu,
            started=self.start != "zero",
            n_steps=given,
            learning_rate=self.learning_rate,
        )
        n_steps, momentum = settings.n_steps, float(self.momentum)
        clip = settings.clip if self.clip == "auto" else self.clip
        constant = CONSTANT * problem.norm_bound if problem.fit_intercept else 0.0
        promises = ((problem.radius, budget.mu), *self._outer_promise(problem, budget))
        start = None
        if self.start != "zero":
            sums = 1.0 if self.start == "prototypes" else None
            start = start_bound(problem, promises, settings.share, sums)

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
                centred=start is not None and constant > 0.0 and bool(self.centre),
                weights=problem.loss_weights,
                rows=problem.domain,
            )

        promised = bound(math.nan)
        if promised.step_mu(promised.step_promises[0][1]) <= grid_slack(promised.step_values):
            raise ValueError(
                f"epsilon={budget.epsilon!r} is too small for {n_steps} steps on the sampler's "
                "grid; raise epsilon or lower n_steps."
            )
        rate = self.learning_rate
        if rate is None:
            rate = default_learning_rate(promised, settings.accumulated_noise)
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
        steps = Steps()
        if bound.start is not None:
            steps.start = noise(*start_values(problem, bound))
        begun = beginning(steps.start, problem, bound)
        own = begun.bound
        # The figure ex post is at the largest substitution of the domain.
        largest = full_radius(own.norm_bound)
        with ThreadPoolExecutor(n_threads(*problem.X.shape)) as pool, SINGLE_BLAS_THREAD:
            mean = mean_gradient(problem, begun, pool)
            iterates = begun.iterates(problem.alpha, mean.dtype)
            for _ in bar(range(own.descent.n_steps), "descent", "step"):
                theta = iterates.thetas[0]
                rounding = mean.rounding(theta)
                sensitivity, sigma = own.step(theta, rounding)
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
            attributes={"transcript_": steps.transcript()} if self.keep_transcript else {},
        )

    def neighbours(self, problem: PrivateProblem, promise: Promise) -> Neighbours:
        raise TypeError("noise on gradients is audited by its transcript.")


@dataclass(frozen=True)
class Beginning:
    """Where the steps begin, and in which coordinates: a public function of the released sums.

    Parameters
    ----------
    bound : TranscriptBound
        Of the steps alone, for rows as they are moved.
    centre : ndarray of shape (n_features,) or None
        What rows are moved by; None where they stay.
    theta : ndarray of shape (n_scores, n_columns)
        First iterate.
    """

    bound: TranscriptBound
    centre: Array | None
    theta: Array

    def iterates(self, alpha: float, precision: DTypeLike) -> Iterates:
        """One run from here."""
        return Iterates(1, self.bound, alpha, precision, self.theta[None])

    def parameters(self, theta: Array) -> Array:
        """Weights and intercepts for rows where they were, from an iterate or a mean of some."""
        constant = self.bound.constant
        if constant == 0.0:
            return theta
        parameters = theta.copy()
        parameters[:, -1] *= constant
        if self.centre is not None:
            parameters[:, -1] -= parameters[:, :-1] @ self.centre
        return parameters


def beginning(table: Array, problem: Problem, bound: TranscriptBound) -> Beginning:
    """Where the steps begin that follow a released table of sums (any, where there is none)."""
    if bound.start is None:
        return Beginning(bound, None, np.zeros(bound.shape))
    statistics = statistics_of(table, problem, bound.start)
    centre, reach = None, bound.norm_bound
    if bound.centred:
        centre, reach = centre_of(statistics)
    own = bound.after(reach)
    coef, intercept = start_of(statistics, problem, own)
    if centre is not None:
        intercept = intercept + coef @ centre
    columns = [coef]
    if bound.constant > 0.0:
        columns.append(intercept[:, None] / own.constant)
    return Beginning(own, centre, np.hstack(columns))


def centre_of(statistics: Statistics) -> tuple[Array | None, float]:
    r"""Mean that rows are moved by, and the norm that is left for them; None where it is short.

    The noisy mean is shrunk by what its noise, of known variance, is expected to add to its square,
    and to the length that leaves :data:`.LEAST_REACH`.

    A row of norm B that is moved by c has norm :math:`\sqrt{B^2 - \|c\|^2}` on average.
    """
    n, norm_bound = statistics.total, statistics.norm_bound
    mean = statistics.class_sums.sum(axis=0) / n
    added = mean.size * len(statistics.class_sums) * (statistics.sigma_sums / n) ** 2
    square = float(mean @ mean)
    longest = norm_bound * math.sqrt(1.0 - LEAST_REACH**2)
    kept = max(square - added, 0.0) / max(square, 1e-300)
    centre = mean * min(kept, longest / max(math.sqrt(square), 1e-150))
    share = float(centre @ centre) / norm_bound**2
    if not share > SHORT_MEAN:
        return None, norm_bound
    return centre, norm_bound * math.sqrt(max(1.0 - share, LEAST_REACH**2))


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
        moved=None if begun.centre is None else (problem.norm_bound, begun.centre),
        weights=(bound.weights, problem.loss_row_weights),
        total=total,
        pool=pool,
    )


def start_bound(
    problem: Problem, promises: Sequence[tuple[float, float]], share: float, sums: float | None
) -> StatisticsBound:
    """Bound of the sums that a descent starts from, ``share`` of mu squared being left for it.

    ``sums`` is the share of the class sums among them, None for what public numbers say.
    """
    mechanism, most = StatisticsPerturbation(sums), math.sqrt(1.0 - share)
    bound = mechanism.bound(problem, most * promises[0][1])
    for outer, outer_mu in promises[1:]:
        excess = bound.mu(outer) / (most * outer_mu)
        if excess > 1.0:
            # The second promise is the stricter one.
            bound = StatisticsPerturbation(bound.share).bound(
                problem, most * promises[0][1] / excess
            )
    return bound


def start_values(problem: PrivateProblem, bound: TranscriptBound) -> tuple[Array, Array]:
    """Noiseless table of the sums that a descent starts from, and its noise scales."""
    mechanism = StatisticsPerturbation()
    return mechanism.noiseless(problem, Promise(bound.start))  # type: ignore[arg-type]


def start_of(
    statistics: Statistics, problem: Problem, bound: TranscriptBound
) -> tuple[Array, Array]:
    """Weights and intercepts of a discriminant of noisy sums, in the units of the loss.

    ``bound`` is that of the steps alone.
    """
    priors = None
    if problem.class_weights is not None:
        # The weights of classes are priors: their sums are not weighted.
        priors = likely_counts(statistics) * np.array(problem.class_weights)
        priors = priors / priors.sum()
    coef, intercept = discriminant_rule(statistics, prior=problem.prior, priors=priors)
    known = np.isfinite(intercept)
    intercept = np.where(known, intercept, intercept[known].min(initial=0.0))
    if bound.loss == "squared_hinge":
        coef, intercept = _as_margins(coef, intercept, statistics, problem.class_weights)
    elif statistics.second_moment is None and bound.descent.n_steps > 1:
        kept = _kept(coef, statistics, bound)
        coef, intercept = kept * coef, kept * intercept
    if bound.loss == "softmax":
        return coef - coef.mean(axis=0), intercept - intercept.mean()
    if len(coef) == 2:
        half = 0.5 if bound.loss == "squared_hinge" else 1.0
        return half * (coef[1:] - coef[:1]), half * (intercept[1:] - intercept[:1])
    return coef, intercept


def _kept(coef: Array, statistics: Statistics, bound: TranscriptBound) -> float:
    r"""Share of its slope that a start keeps if it is made of class sums alone.

    Such scores are too steep where classes are far apart, as they know nothing of the covariance:
    by :math:`1 + L / 14` for log-odds L of the class means. As much is taken off as steps could
    restore: most of it where their path is many times as long as the start.
    """
    counts, means = _class_means(statistics)
    shares = counts / counts.sum()
    deviations = means - shares @ means
    squares = np.vecdot(deviations, deviations)
    noise = means.shape[1] * (statistics.sigma_sums / counts) ** 2
    # What noise adds to a square is no distance.
    apart = np.maximum(1.0 - noise / np.maximum(squares, 1e-300), 0.0)
    log_odds = max(float(shares @ (np.vecdot(coef, deviations) * apart)), 0.0)
    descent = bound.descent
    longest = descent.learning_rate * descent.n_steps / (1.0 - descent.momentum)
    longest *= (descent.clip or 1.0) * bound.norm_bound
    length = max(float(np.linalg.norm(coef - coef.mean(axis=0))), 1e-300)
    restored = 1.0 / (1.0 + (LONG_PATH * length / longest) ** 2)
    return 1.0 / (1.0 + restored * log_odds / TAIL)


def _class_means(statistics: Statistics) -> tuple[Array, Array]:
    """Weight of each class, or its records, and noisy means; none is divided by nothing."""
    counts = likely_counts(statistics)
    # A public class may have no records.
    counts = np.maximum(counts, float(counts[counts > 0.0].min(initial=1.0)))
    return counts, statistics.class_sums / counts[:, None]


def _as_margins(
    coef: Array,
    intercept: Array,
    statistics: Statistics,
    class_weights: tuple[float, ...] | None,
) -> tuple[Array, Array]:
    """Scores to about 1 on their own class and -1 on the others, in the same order as before."""
    counts, means = _class_means(statistics)
    if class_weights is not None:
        counts = counts * np.array(class_weights)
    scores = means @ coef.T + intercept
    own = np.diag(scores)
    # Row by row: a sum over all less one of them would cancel where weights are extreme.
    rest = np.where(np.eye(len(counts), dtype=bool), 0.0, counts)
    weight = rest.sum(axis=1)
    others = np.vecdot(rest, scores.T) / np.where(weight > 0.0, weight, 1.0)
    shares = counts / counts.sum()
    half = max(float(shares @ (0.5 * (own - others))), 1e-3)
    return coef / half, (intercept - float(shares @ (0.5 * (own + others)))) / half
