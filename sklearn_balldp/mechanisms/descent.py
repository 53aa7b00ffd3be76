r"""Gradient perturbation: noisy sums to start from, noisy gradients, and the model made of them.

Step s asks :math:`g_s = \frac1n \sum_i g(\theta_{s-1}; z_i) + N(0, \sigma_s^2 I)`, g the gradient
of one record's loss. The iterate is public, so that the noise may follow the gap at it
(:func:`.iterate_gap`). Each step has a share of what the sums leave of :math:`\mu^2`.

At other radii the gaps depend on the iterates, and their realised sum is no guarantee. A descent
may *promise* further radii beforehand: each step then has the largest noise scale that any promise
asks for. What holds beyond them follows from a promise by :meth:`DescentBound.growth`.

A descent may see its rows through a map that released sums tell (:mod:`.whitening`). No two rows
move further apart by it, and every gap is that of the smaller ball.

References
----------
Dong, Roth & Su (2022): composition (Corollary 3.3) and group privacy (Theorem 2.14) of Gaussian
differential privacy. Proofs of the gaps are in this package's documentation.
"""

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._parameters import check_flag, check_option, check_positive, check_whole, is_auto
from ..adjacency import RowGeometry
from ..privacy.bounds import Bound, Promise, Promised, chain_of
from ..privacy.gaps import GapLimits, limits_over_iterates
from ..privacy.noise import grid_slack
from ..privacy.problem import Problem
from ..privacy.rounding import SHORTEST
from .base import Mechanism
from .initialisation import discriminant_of
from .kernel import Array, Conversation
from .queries import MeanGradient, Sums
from .settings import (
    CLIP,
    CONSTANT,
    FURTHER,
    GROWTH,
    LEAST_REACH,
    MOMENTUM,
    STEPS,
    STEPS_NEED,
    settings_of,
    share_of_sums,
    signal_of,
)
from .sums import class_sums
from .whitening import PublicMap, whitening_map

#: What ``start=`` takes.
STARTS = "auto", "statistics", "prototypes", "mean", "zero"
#: Most steps of a descent: gaps at as many iterates are computed to check a transcript.
MOST_STEPS = 5000
# Iterates stay within this norm, in units of 1 / B: a step size that diverges gives no infinity.
# It is part of what an iterate is by definition, and not tuned.
_FARTHEST = 1e6
# What steps leave of mu squared, so that rounding never exceeds a promise.
_LEFT = 1.0 - 2e-12
# Most further promises: each is charged for at every step.
_MOST_FURTHER = 8
# Parts of the norms that a map may leave for rows, for limits that hold between them.
_REACHES = 16


@dataclass(frozen=True)
class Transcript:
    """What noisy gradient descent released; all else follows from it by public rules.

    Parameters
    ----------
    gradients : ndarray of shape (n_steps, n_scores, n_columns)
        The noisy mean gradients of the loss, with clipped residuals and without the regulariser.
    start : ndarray of shape (n_values,)
        The noisy sums that the first iterate was made of; empty if it is zero.
    """

    gradients: Array
    start: Array = field(default_factory=lambda: np.empty(0))

    @classmethod
    def of(cls, answers: list[Array], bound: "DescentBound") -> "Transcript":
        """Of all noisy answers of a conversation, in order."""
        if bound.start is None:
            return cls(np.array(answers))
        return cls(np.array(answers[1:]), np.array(answers[0]))

    def answers(self, bound: "DescentBound") -> list[Array]:
        """The sums of the start, if ``bound`` has one, and the gradients, in order."""
        sums = [] if bound.start is None else [np.asarray(self.start, dtype=np.float64)]
        return [*sums, *np.asarray(self.gradients, dtype=np.float64)]


@dataclass(frozen=True)
class DescentBound(Promised):
    """Settings of a descent, and what its steps and the sums before them promise together.

    Attributes
    ----------
    budget : float
        Mu of sums and steps together, at the problem's radius.
    learning_rate, momentum : float
        Step size for rows of norm B, and share of the velocity that a step keeps (heavy ball).
    clip : float or None
        Norm that residuals are clipped to.
    averaged : int
        How many iterates, the last ones, have their mean released.
    shares : tuple of float
        Of each step in what the sums leave of mu squared.
    constant : float
        What rows are augmented by; 0 for no intercept.
    start : Sums or None
        What the first iterate is made of; None: zero.
    least_reach : float
        Smallest norm that the whitening map leaves for rows, in units of B; 1: no map.
    further : tuple of (float, float)
        Euclidean radii beyond the problem's, in order, and mu that is promised at each.
    """

    what: ClassVar[str] = "noise on the gradients of a descent"
    parts: ClassVar[str] = "steps"
    has_transcript: ClassVar[bool] = True

    learning_rate: float = math.nan
    momentum: float = 0.0
    clip: float | None = None
    averaged: int = 1
    shares: tuple[float, ...] = (1.0,)
    constant: float = 0.0
    start: Sums | None = None
    least_reach: float = 1.0
    further: tuple[tuple[float, float], ...] = ()

    @property
    def n_steps(self) -> int:
        """Number of steps T."""
        return len(self.shares)

    @property
    def whitened(self) -> bool:
        """Whether the steps see the rows through a map."""
        return self.least_reach < 1.0

    @property
    def runs_at_once(self) -> int:  # type: ignore[override]
        """One, if each run sees the rows through another map."""
        return 1 if self.whitened else Bound.runs_at_once

    @property
    def of_the_ball(self) -> bool:  # type: ignore[override]
        """Gaps hold for all pairs in the ball; a second moment on the sphere does not."""
        return self.start is None or self.start.moment is None

    def shape(self, problem: Problem) -> tuple[int, int]:
        """Shape of the parameters: scores, and columns of (augmented) rows."""
        return problem.kind.n_scores, problem.n_features + int(self.constant > 0.0)

    def reach(self, problem: Problem, whitening: PublicMap | None) -> float:
        """Norm of the rows that the steps see, in units of B."""
        return 1.0 if whitening is None else whitening.norm / problem.norm_bound

    def covers(self, problem: Problem, query: Any, asked: int) -> bool:
        if self.start is not None and asked == 0:
            return query == self.start
        if type(query) is not MeanGradient:
            return False
        # Growth beyond a promised radius is that of such gradients, whatever their parameters.
        whitening, norm = query.whitening, problem.norm_bound
        if whitening is not None and whitening.fault(norm, self.least_reach) is not None:
            return False
        stated = self.clip, self.constant * self.reach(problem, whitening)
        return (query.clip, query.constant) == stated

    def promises(self, problem: Problem) -> list[Promise]:
        further = [(radius, problem.labels, mu) for radius, mu in self.further]
        return super().promises(problem) + further

    def mu_of_steps(self, problem: Problem, radius: float, mu: float) -> float:
        """Mu that the sums leave for all steps, at a radius where ``mu`` is promised."""
        if self.start is None:
            return mu
        used = self.start.mu(problem, radius)
        return math.sqrt(max((mu * (1.0 - 2.0**-49)) ** 2 - used**2, 0.0))

    def step_mu(self, problem: Problem) -> Array:
        """Lower bound of the sensitivity over the noise scale of every step, over all promises."""
        steps = min(self.mu_of_steps(problem, *kept[::2]) for kept in self.promises(problem))
        slack = grid_slack(math.prod(self.shape(problem)))
        mu: Array = steps * np.sqrt(np.array(self.shares) * _LEFT) - 2.0 * slack
        return mu

    def limits(self, problem: Problem, radius: float, labels: str, reach: float = 1.0) -> GapLimits:
        """Least and largest gap over all iterates, of rows of norm ``reach * B``."""
        geometry = RowGeometry.of_rounded_rows(
            problem.norm_bound * reach, radius, self.constant * reach
        )
        return limits_over_iterates(
            problem.kind, problem.n_features, geometry, clip=self.clip, labels=labels
        )

    def growth(self, problem: Problem, near: float, far: float, labels: str) -> float:
        r"""Largest ratio of what a step costs at a radius ``far`` and at a promised one, ``near``.

        It is the length of a chain of records, or the largest gap at ``far`` over the least at
        ``near``, if that is smaller. All steps see rows of one norm R, which the map decides. Both
        limits grow with R, and fall in units of R (rows R times as long are those of a radius
        1 / R times as large), so that norms between two are bounded by the limits at these.
        """
        if far <= near:
            return 1.0
        # The gaps of the steps hold for all pairs in the ball.
        chain = chain_of(problem, far, near, in_the_ball=True, hidden=problem.labels)
        norms = np.geomspace(self.least_reach, 1.0, _REACHES if self.whitened else 1).tolist()
        # Where a radius spans the ball of the rows, the limits change their form.
        norms += [r / problem.diameter for r in (near, far) if self.whitened]
        limits = []
        for norm in sorted(r for r in norms if self.least_reach <= r <= 1.0):
            near_gap = self.limits(problem, near, problem.labels, norm).smallest
            if near_gap == 0.0:
                return chain
            limits.append((norm, near_gap, self.limits(problem, far, labels, norm).largest))
        ratio = max(
            min(next_far / near_gap, (far_gap / norm) / (next_near / next_norm))
            for (norm, near_gap, far_gap), (next_norm, next_near, next_far) in pairwise(
                [limits[0], *limits]
            )
        )
        # Below one, rounding would count for more than its share of the sensitivity.
        return min(chain, max(ratio * (1.0 + 4e-9), 1.0))

    def mu_at(self, problem: Problem, radius: float, labels: str) -> float:
        # Beforehand: what the filter keeps, and what follows from that for the steps.
        least = super().mu_at(problem, radius, labels)
        sums = 0.0 if self.start is None else self.start.mu(problem, radius, labels)
        for promised, _, mu in self.promises(problem):
            steps = self.mu_of_steps(problem, promised, mu)
            steps *= self.growth(problem, promised, radius, labels)
            least = min(least, math.nextafter(math.hypot(steps, sums), math.inf))
        return least

    def theorem(self, problem: Problem) -> str:
        clipped = "" if self.clip is None else f", clipped at {self.clip:g}"
        change = ", label changes included" if problem.labels == "protected" else ""
        after = "" if self.start is None else f", after {self.start.theorem(problem)}"
        if self.whitened:
            after += ", whose mean the rows are moved by"
            if self.start is not None and self.start.moment is not None and self.n_steps > 1:
                after += ", partially whitened"
        n = "n" if problem.loss_weights.uniform else "(W / s)"
        return f"gradient gap at each public iterate / {n}{clipped}{change}{after}"

    def check(self, problem: Problem) -> None:
        if not 1 <= self.n_steps <= MOST_STEPS:
            raise ValueError(f"shares hold {self.n_steps} steps; there are 1 to {MOST_STEPS}.")
        if not (min(self.shares) > 0.0 and math.fsum(self.shares) <= 1.0 + 1e-12):
            raise ValueError("shares must be positive, and sum to 1 at most.")
        clipped = self.clip is None or self.clip > 0.0
        steps = 1 <= self.averaged <= self.n_steps and self.learning_rate > 0.0
        if not (clipped and steps and 0.0 <= self.momentum < 1.0 and self.constant >= 0.0):
            raise ValueError(
                f"learning_rate={self.learning_rate!r}, momentum={self.momentum!r}, clip="
                f"{self.clip!r}, averaged={self.averaged!r} and constant={self.constant!r} must be "
                "settings of a descent: positive, and momentum between 0 and 1."
            )
        if not SHORTEST <= self.least_reach <= 1.0:
            raise ValueError(
                f"least_reach={self.least_reach!r} must lie between {SHORTEST} and 1: the rounding "
                "of shorter rows is not covered."
            )
        if self.whitened and not (self.start is not None and self.constant > 0.0):
            raise ValueError("least_reach below 1 needs a start, and an intercept.")
        if self.start is not None:
            self.start.check(problem)
            if self.start.pooled and not self.whitened:
                raise ValueError("a pooled start needs least_reach below 1.")
        radii = [problem.euclidean_radius, *(radius for radius, _ in self.further)]
        rising = all(near < far for near, far in pairwise(radii))
        more = all(self.budget <= mu for _, mu in self.further)
        if not (rising and more and radii[-1] <= problem.diameter):
            raise ValueError(
                f"further={self.further!r} must hold rising radii beyond {radii[0]!r} and up to "
                f"{problem.diameter!r}, and for each at least the mu promised there."
            )
        if len(self.further) > _MOST_FURTHER:
            raise ValueError(
                f"further holds {len(self.further)} promises; there are {_MOST_FURTHER} at most."
            )
        if not (self.step_mu(problem) > 0.0).all():
            raise ValueError(f"budget={self.budget!r} leaves nothing for a step on the grid.")


@dataclass(eq=False, repr=False, kw_only=True)
class GradientPerturbation(Mechanism):
    """Noise on class sums, and on the gradients of a full-batch descent that starts from them.

    It is far more accurate than noise on the minimiser at the same guarantee, which covers the sums
    and the noisy gradients of all steps. Where the start tells the mean of the rows, and the head
    has an intercept, the steps see the rows moved by that mean; where it tells their second moment
    too, rows are shortened along the directions in which they vary most (*partial whitening*), as
    gradients of shorter rows need less noise. The released weights are for rows as they come.

    Parameters
    ----------
    n_steps : int or "auto", default="auto"
        How many steps the descent takes, each in one pass over the rows; more steps are noisier
        ones. "auto" takes 20 after class sums, and 60 from zero or after the mean alone. It takes
        one, with a fiftieth of the budget, where public numbers say that steps would harm the
        discriminant that they start from, unless labels are protected, or ``alpha`` or
        ``learning_rate`` is set.
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
        Where the descent begins: a better start takes a share of the budget (by public numbers),
        and saves steps. "prototypes" begins at the noise-aware rule of noisy class sums.
        "statistics" begins at the linear discriminant (:class:`.BallDPLinearDiscriminant`) of these
        and a noisy second moment, where that is worth its noise. "mean" releases the noisy mean of
        all rows alone, which rows are moved by, and begins at zero. "zero" spends the whole budget
        on the steps. "auto" is "statistics", and "mean" where records are too few for class sums
        that hide so large a radius, or labels.
    keep_transcript : bool, default=False
        Lets you test the noise later: the head keeps ``transcript_``, the noisy answers to all
        queries, which :func:`~sklearn_balldp.verify` reads. It may be published, since the
        guarantee covers it.

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

    n_steps: int | str = "auto"
    learning_rate: float | None = None
    clip: Any = "auto"
    start: str = "auto"
    keep_transcript: bool = False

    def check(self) -> None:
        if not is_auto(self.n_steps):
            check_whole("n_steps", self.n_steps, 1)
            if int(self.n_steps) > MOST_STEPS:
                raise ValueError(
                    f"n_steps={self.n_steps!r} must be at most {MOST_STEPS}; lower it."
                )
        if self.learning_rate is not None:
            check_positive("learning_rate", self.learning_rate, " or None")
        if not (self.clip is None or is_auto(self.clip)):
            check_positive("clip", self.clip, ", 'auto' or None")
        check_option("start", self.start, STARTS)
        check_flag("keep_transcript", self.keep_transcript)

    def bound(self, problem: Problem, mu: float) -> DescentBound:
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
            mu,
            start=self.start,
            n_steps=None if is_auto(self.n_steps) else int(self.n_steps),
            learning_rate=self.learning_rate,
        )
        start = None
        if settings.start != "zero":
            pooled = settings.start == "mean"
            # What the share of the steps leaves of mu squared.
            rest = math.sqrt(1.0 - settings.share) * mu
            alone = pooled or self.start == "prototypes"
            share = 1.0 if alone else share_of_sums(problem, rest)
            start = class_sums(problem, rest, share, pooled=pooled)
        clip = CLIP if is_auto(self.clip) else self.clip
        averaged = max(1, round((1.0 - MOMENTUM) * settings.n_steps))
        bound = DescentBound(
            budget=mu,
            momentum=MOMENTUM,
            clip=None if clip is None else float(clip),
            averaged=averaged,
            shares=shares_of(settings.n_steps, MOMENTUM, averaged),
            constant=CONSTANT * problem.norm_bound if problem.fit_intercept else 0.0,
            start=start,
            least_reach=LEAST_REACH if start is not None and problem.fit_intercept else 1.0,
        )
        if not (bound.step_mu(problem) > 0.0).all():
            raise ValueError(
                f"epsilon is too small for {settings.n_steps} steps on the sampler's grid; raise "
                "it or lower n_steps."
            )
        rate = self.learning_rate
        if rate is None:
            rate = default_learning_rate(problem, bound, settings.aim)
        bound = replace(bound, learning_rate=float(rate))
        return replace(bound, further=further_promises(problem, bound))

    def conversation(self, problem: Problem, bound: DescentBound) -> Conversation:
        whitening, theta = None, np.zeros(bound.shape(problem))
        if bound.start is not None:
            statistics = bound.start.statistics(problem, (yield bound.start))
            if bound.whitened:
                several = bound.n_steps > 1
                least = bound.least_reach
                whitening = whitening_map(statistics, several_steps=several, least_reach=least)
            if not bound.start.pooled:
                theta = _first_iterate(problem, bound, statistics, whitening)
        # Everything that depends on the norm of the rows, for those that the steps see.
        reach = bound.reach(problem, whitening)
        constant, rate = bound.constant * reach, bound.learning_rate / reach**2
        # An implicit step for the regulariser takes no parameter beyond zero.
        pull = 1.0 + rate * problem.alpha / (1.0 - bound.momentum)
        farthest = _FARTHEST / (problem.norm_bound * reach)

        def query_at(theta: Array) -> MeanGradient:
            return MeanGradient(theta, clip=bound.clip, constant=constant, whitening=whitening)

        precision = query_at(theta).precision(problem)

        def rounded(theta: Array) -> Array:
            norm = max(float(np.linalg.norm(theta)), 1e-300)
            return (theta * min(1.0, farthest / norm)).astype(precision).astype(np.float64)

        promises = bound.promises(problem)
        radii = [radius for radius, _, _ in promises]
        unspent = [
            _LEFT * bound.mu_of_steps(problem, radius, mu) ** 2 for radius, _, mu in promises
        ]
        theta, velocity, total = rounded(theta), np.zeros(theta.shape), np.zeros(theta.shape)
        for step, share in enumerate(bound.shares):
            # What a step leaves of a promise, as another asks for more noise, later steps have.
            part = share / math.fsum(bound.shares[step:])
            asked = query_at(theta)
            noisy = [
                asked.calibrated(problem, math.sqrt(part * square), radius)
                for radius, square in zip(radii, unspent, strict=True)
            ]
            query = max(noisy, key=lambda query: query.sigma)
            unspent = [
                square - query.mu(problem, radius) ** 2
                for radius, square in zip(radii, unspent, strict=True)
            ]
            gradient = yield query
            if problem.kind.centred:
                # The gradients of a record's classes add up to zero: noise in the sum is no signal.
                gradient = gradient - gradient.mean(axis=0)
            velocity = bound.momentum * velocity + gradient
            theta = rounded((theta - rate * velocity) / pull)
            if step >= bound.n_steps - bound.averaged:
                total += theta
        return _for_original_rows(problem, total / bound.averaged, constant, whitening)


def _first_iterate(
    problem: Problem, bound: DescentBound, statistics: Any, whitening: PublicMap | None
) -> Array:
    """The discriminant of released sums, for rows behind a map."""
    steps = bound.mu_of_steps(problem, problem.euclidean_radius, bound.budget)
    share = (steps / bound.budget) ** 2
    reach = 1.0 if whitening is None else whitening.norm / problem.norm_bound
    coef, intercept = discriminant_of(statistics, problem, share, several_steps=bound.n_steps > 1)
    if whitening is not None:
        intercept = intercept + coef @ whitening.centre
        coef = whitening.restored(coef)
    if bound.constant == 0.0:
        return coef
    return np.hstack([coef, intercept[:, None] / (bound.constant * reach)])


def _for_original_rows(
    problem: Problem, theta: Array, constant: float, whitening: PublicMap | None
) -> Array:
    """Weights and intercepts for rows as they come, from those for rows that steps see."""
    parameters = theta.copy()
    if constant > 0.0:
        parameters[:, -1] *= constant
    if whitening is not None:
        parameters[:, :-1] = whitening.shortened(parameters[:, :-1])
        parameters[:, -1] -= parameters[:, :-1] @ whitening.centre
    return parameters - parameters.mean(axis=0) if problem.kind.centred else parameters


def gains(n_steps: int, momentum: float, averaged: int) -> Array:
    """How far a released parameter moves if the gradient of a step is larger by one.

    For each step, in units of the step size.
    """
    theta, velocity, sums = 0.0, 1.0, [0.0]
    for _ in range(n_steps):
        theta += velocity
        velocity *= momentum
        sums.append(sums[-1] + theta)
    moved = np.array(sums)
    # Every step acts on those that follow it as the first one does.
    later = np.arange(n_steps, 0, -1)
    return (moved[later] - moved[np.maximum(later - averaged, 0)]) / averaged


def shares_of(n_steps: int, momentum: float, averaged: int) -> tuple[float, ...]:
    """Share of mu squared that each step has: steps that move the model less have more noise.

    Noise of a step stays in the model by its gain. If nothing pulled it back, shares in proportion
    to the gains would leave the smallest sum. A loss pulls more of the earlier noise back, so they
    are in proportion to the roots.
    """
    roots: NDArray[np.float64] = np.sqrt(gains(n_steps, momentum, averaged))
    return tuple((roots / roots.sum()).tolist())


def further_promises(problem: Problem, bound: DescentBound) -> tuple[tuple[float, float], ...]:
    r"""Radii beyond the declared one, and mu that is promised there, from public numbers.

    With s the mu of the sums at a radius t, and l what they leave for the steps at the declared
    one, :math:`m^2 = s^2 + l^2 \rho^{2 (1 - q)} \lambda^{2 q}`. Here lambda is the
    provable growth (:meth:`DescentBound.growth`), which iterates near zero attain. rho is that of
    iterates far from zero: the largest gap at t over the largest at r, for rows of one norm. A
    descent from class sums begins far from zero, so that q is 0.

    Nothing is promised where it would cost accuracy, or is no less than what holds anyway.
    """
    near, labels, promises = problem.euclidean_radius, problem.labels, []
    from_sums = bound.start is not None and not bound.start.pooled
    if from_sums:
        pays = bound.n_steps > 1
    else:
        pays = bound.n_steps >= STEPS and bound.clip is not None
        pays = pays and signal_of(problem, bound.budget) >= STEPS_NEED
    if not pays:
        return ()
    q, steps_mu = 0.0 if from_sums else GROWTH, bound.mu_of_steps(problem, near, bound.budget)
    norms = np.geomspace(bound.least_reach, 1.0, _REACHES) if bound.whitened else [1.0]
    for far in sorted({min(times * near, problem.diameter) for times in FURTHER}):
        most = [
            [bound.limits(problem, r, labels, norm).largest for norm in norms] for r in (near, far)
        ]
        if far <= near or not np.isfinite(most).all():
            continue
        rho = float(np.max(np.divide(most[1], most[0])))
        growth = bound.growth(problem, near, far, labels)
        sums = 0.0 if bound.start is None else bound.start.mu(problem, far)
        steps = steps_mu * min(rho, growth) ** (1.0 - q) * growth**q
        mu = max(math.hypot(sums, steps), bound.budget)
        # Beside far longer sums, what remains for the steps is lost in rounding.
        kept = bound.mu_of_steps(problem, far, mu) >= steps_mu
        if kept and mu < bound.mu(problem, far) * (1.0 - 1e-6):
            promises.append((far, mu))
    return tuple(promises)


def default_learning_rate(problem: Problem, bound: DescentBound, aim: float) -> float:
    r"""Step size from public numbers.

    With sensitivity G / n of a step at its largest, T steps of equal shares and a promise mu, the
    noise that all steps add to one parameter has standard deviation
    :math:`\eta T G / ((1 - \beta) n \mu)`, with momentum :math:`\beta`, if nothing pulls it back
    and no iterates are averaged. The step size makes that ``aim`` / B: a longer path fits no better
    for the noise it gathers, a shorter one stops before the model is fitted. Without clipping the
    curvature of the loss limits the step size, to half of what makes heavy-ball steps diverge, on
    every dataset. The limit holds for a single step too, which no other would mend.
    """
    norm_bound, radius, rates = problem.norm_bound, problem.euclidean_radius, []
    if bound.clip is None or bound.n_steps == 1:
        augmented = math.hypot(norm_bound, bound.constant)
        rates.append((1.0 + bound.momentum) / (problem.kind.curvature * augmented**2))
    gap = bound.limits(problem, radius, problem.labels).largest
    if math.isfinite(gap):
        steps_mu = bound.mu_of_steps(problem, radius, bound.budget)
        accumulated = (
            bound.n_steps * gap / ((1.0 - bound.momentum) * problem.effective_size * steps_mu)
        )
        rates.append(aim / (norm_bound * accumulated))
    return min(rates)
