"""Gradient perturbation: noisy sums to start from, noisy gradients, and the model made of them.

How far a record moves a step (:func:`.gap_at_any_parameters`) holds at any parameters. So all steps
have one noise scale, and what they cost is known beforehand at every radius: see "Noise on
gradients".
"""

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from .._parameters import check_flag, check_option, check_positive, check_whole, is_auto
from ..adjacency import RowGeometry
from ..privacy.bounds import Blocks, Bound
from ..privacy.gaps import SMALLEST_CLIP, gap_at_any_parameters
from ..privacy.noise import grid_slack
from ..privacy.problem import Problem
from ..privacy.rounding import SHORTEST
from ..rows import blas_threads_for
from .base import Mechanism
from .examples import Examples
from .gradients import MeanGradient
from .kernel import Array, Conversation, spendable
from .rules.certainty import factor_of, last_of
from .rules.initialisation import discriminant_of
from .rules.moves import MultipleFit, kept_of_moves
from .settings import (
    CLIP,
    CONSTANT,
    LEAST_REACH,
    MANY_CLASSES,
    MOMENTUM,
    settings_of,
    share_of_sums,
)
from .sums import Sums, class_sums
from .whitening import PublicMap, whitening_map

#: What ``start=`` takes.
STARTS = "auto", "statistics", "prototypes", "mean", "zero"
#: Most steps of a descent: a check of a transcript takes as many.
MOST_STEPS = 5000
# Iterates stay within this norm, in units of 1 / B: in double precision the noise covers what
# rounding does to scores of this size, and a step size that diverges gives no infinity.
_FARTHEST = 1e4
# More than what rounding adds to the mu of all steps behind a map, and the share of mu squared that
# is theirs with it; and more than a few operations round.
_UP, _LEFT, _SLACK = 1.0 + 1e-12, 1.0 - 4e-12, 2.0**-49


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
class DescentBound(Bound):
    """Settings of a descent, and the noise of its steps and of the sums before them.

    What all of it costs follows from that noise, at every radius. Without a step the discriminant
    of the sums ``start`` is released (None: the descent begins at zero). The ``learning_rate`` is
    for rows of norm B; ``least_reach`` is the smallest norm that the whitening map leaves for rows,
    in units of B (1: no map).

    The noise scale ``sigma`` of the steps is for rows of norm B. Behind a map rows are shorter, and
    so is the noise: at the Euclidean radius ``even_at`` (None: no map) a step costs the same for
    rows of every norm.
    """

    has_transcript: ClassVar[bool] = True

    sigma: float = 0.0
    even_at: float | None = None
    learning_rate: float = math.nan
    momentum: float = 0.0
    clip: float | None = None
    n_steps: int = 1
    constant: float = 0.0
    start: Sums | None = None
    least_reach: float = 1.0

    @property
    def what(self) -> str:  # type: ignore[override]
        """What was released: sums, gradients, or both."""
        if self.start is None:
            return "noise on the gradients of a descent"
        sums = "noise on the sum of all rows" if self.pooled else self.start.what
        return f"{sums}, and on the gradients of a descent from them" if self.n_steps else sums

    @property
    def parts(self) -> str:  # type: ignore[override]
        """What the numbers of its noise are of."""
        return self.start.parts if self.start is not None and self.n_steps == 0 else "steps"

    @property
    def pooled(self) -> bool:
        """Whether it starts from the sum of all rows alone."""
        return self.start is not None and self.start.pooled

    @property
    def whitened(self) -> bool:
        """Whether the steps see the rows through a map."""
        return self.least_reach < 1.0

    @property
    def runs_at_once(self) -> int:  # type: ignore[override]
        """One, if each run sees the rows through another map."""
        return 1 if self.whitened else Bound.runs_at_once

    def shape(self, problem: Problem) -> tuple[int, int]:
        """Shape of the parameters: scores, and columns of (augmented) rows."""
        return problem.kind.n_scores, problem.n_features + int(self.constant > 0.0)

    def reach(self, problem: Problem, whitening: PublicMap | None) -> float:
        """Norm of the rows that the steps see, in units of B."""
        return 1.0 if whitening is None else whitening.norm / problem.norm_bound

    def covers(self, problem: Problem, query: Any, asked: int) -> bool:
        if self.start is not None and asked == 0:
            return query == self.start
        if type(query) is not MeanGradient or self.n_steps == 0:
            return False
        # What is stated at other radii is that of such gradients, whatever their parameters.
        whitening, norm = query.whitening, problem.norm_bound
        if whitening is not None and whitening.fault(norm, self.least_reach) is not None:
            return False
        stated = self.clip, self.constant * self.reach(problem, whitening)
        return (query.clip, query.constant) == stated

    def step_mu(self, problem: Problem, radius: float, labels: str) -> float:
        """Mu of a step that sees rows of norm B, rounding to the sampler's grid included."""
        return self.move(problem, None, radius, labels) / self.sigma + self._slack(problem)

    def _slack(self, problem: Problem) -> float:
        return 2.0 * grid_slack(math.prod(self.shape(problem)))

    def gap(self, problem: Problem, radius: float, labels: str, reach: float = 1.0) -> float:
        """Gap of the steps' gradients, of rows of norm ``reach * B``."""
        rows = RowGeometry.of_rounded_rows(
            problem.norm_bound * reach, radius, self.constant * reach
        )
        return gap_at_any_parameters(problem.kind, rows, clip=self.clip, labels=labels)

    def longest(self, problem: Problem, whitening: PublicMap | None) -> float:
        """Norm that no iterate exceeds."""
        return _FARTHEST / (problem.norm_bound * self.reach(problem, whitening))

    def move(
        self, problem: Problem, whitening: PublicMap | None, radius: float, labels: str
    ) -> float:
        """Sensitivity of a step at any iterate, for rows behind a map."""
        constant = self.constant * self.reach(problem, whitening)
        query = MeanGradient(np.empty((0, 0)), 1.0, self.clip, constant, whitening)
        return query.move(problem, radius, labels, self.longest(problem, whitening))

    def scale(self, problem: Problem, whitening: PublicMap | None) -> float:
        """Noise scale of every step, for rows behind a map."""
        if whitening is None or self.even_at is None:
            return self.sigma
        mu = self.step_mu(problem, self.even_at, problem.labels)
        moved = self.move(problem, whitening, self.even_at, problem.labels)
        return moved / (mu - self._slack(problem)) * (1.0 + _SLACK)

    def with_noise(self, problem: Problem, mu: float) -> "DescentBound":
        """The same with the noise by which all steps together are mu-GDP at the radius."""
        radius = problem.euclidean_radius
        share = mu * math.sqrt(_LEFT / self.n_steps)
        moved = self.move(problem, None, radius, problem.labels)
        if not share > self._slack(problem):
            raise ValueError(
                f"epsilon is too small for {self.n_steps} steps on the sampler's grid; raise it or "
                "lower n_steps."
            )
        sigma = moved / spendable(share, 0.5 * self._slack(problem))
        return replace(self, sigma=sigma, even_at=radius if self.whitened else None)

    def growth(self, problem: Problem, radius: float, labels: str) -> float:
        """Largest ratio of what a step costs at a radius, and at ``even_at``.

        The sums decide the norm of the rows that steps see: the ratio is largest for those whose
        diameter the radius is ("Noise on gradients", theorem 3).
        """
        if self.even_at is None or radius <= self.even_at:
            return 1.0
        reach = min(max(radius / problem.diameter, self.least_reach), 1.0)
        near = self.gap(problem, self.even_at, problem.labels, reach)
        if near == math.inf:
            return math.inf
        # The factor covers maps that are shorter by their rounding, and that of the gaps.
        return max(self.gap(problem, radius, labels, reach) / near * (1.0 + 4e-9), 1.0)

    def mu_of_steps(self, problem: Problem, radius: float, labels: str) -> float:
        """Mu of all steps together, rounded up."""
        if self.n_steps == 0:
            return 0.0
        near = (radius, labels) if self.even_at is None else (self.even_at, problem.labels)
        one = self.step_mu(problem, *near) * self.growth(problem, radius, labels)
        return math.sqrt(self.n_steps) * one * _UP

    @lru_cache(64)  # noqa: B019 (of public numbers, and asked a dozen times in a fit)
    def mu_at(self, problem: Problem, radius: float, labels: str) -> float:
        sums = 0.0 if self.start is None else self.start.mu(problem, radius, labels)
        return math.hypot(self.mu_of_steps(problem, radius, labels), sums) * (1.0 + _SLACK)

    def stated(self, problem: Problem) -> tuple[Blocks, Blocks]:
        if self.start is None:
            moved = self.move(problem, None, problem.euclidean_radius, problem.labels)
            return moved, self.sigma
        return self.start.stated(problem) if self.n_steps == 0 else ((), ())

    def by_query(self, problem: Problem) -> list[tuple[str, Blocks, Blocks]]:
        asked = [] if self.start is None else self.start.by_query(problem)
        if self.n_steps > 0:
            moved = self.move(problem, None, problem.euclidean_radius, problem.labels)
            asked.append((f"each of {self.n_steps} steps", moved, self.sigma))
        return asked

    def theorem(self, problem: Problem) -> str:
        if self.n_steps == 0 and self.start is not None:
            return self.start.theorem(problem)
        clipped = "" if self.clip is None else f", clipped at {self.clip:g}"
        change = ", label changes included" if problem.labels == "protected" else ""
        after = "" if self.start is None else f", after {self.start.theorem(problem)}"
        if self.whitened:
            after += ", whose mean the rows are moved by"
            if self.start is not None and self.start.moment is not None:
                after += ", partially whitened"
        n = "n" if problem.sums_weights.uniform else "(W / s)"
        return f"gap of gradients at any parameters / {n}{clipped}{change}{after}"

    def check(self, problem: Problem) -> None:
        if not 0 <= self.n_steps <= MOST_STEPS:
            raise ValueError(f"n_steps={self.n_steps!r} must lie between 0 and {MOST_STEPS}.")
        clipped = self.clip is None or self.clip >= SMALLEST_CLIP
        moves = self.learning_rate > 0.0 and 0.0 <= self.momentum < 1.0
        if not (clipped and moves and self.constant >= 0.0):
            raise ValueError(
                f"learning_rate={self.learning_rate!r}, momentum={self.momentum!r}, clip="
                f"{self.clip!r} and constant={self.constant!r} must be settings of a descent: "
                f"positive, momentum between 0 and 1, and clip at least {SMALLEST_CLIP:g}."
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
        if self.pooled and not self.whitened:
            raise ValueError("a pooled start needs least_reach below 1.")
        if not math.isfinite(problem.kind.residual_limit()) and self.clip is None:
            raise ValueError(
                "clip=None: the gradients of a squared hinge have no bound, so no noise hides one "
                "of them; set clip."
            )
        if self.n_steps == 0 and (self.start is None or self.pooled):
            raise ValueError("n_steps=0 needs class sums to start from.")
        whitened = self.n_steps > 0 and self.whitened
        noisy = self.sigma > 0.0 if self.n_steps > 0 else self.sigma == 0.0
        if not (noisy and (self.even_at is not None) == whitened and (self.even_at or 1.0) > 0.0):
            raise ValueError(
                f"sigma={self.sigma!r}, even_at={self.even_at!r}: steps have a positive noise "
                "scale, and behind a map a positive radius at which all cost the same; without a "
                "step there is neither."
            )


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
        none where public numbers say that steps would harm the discriminant that they start from,
        unless ``alpha`` or ``learning_rate`` is set. Without a step that discriminant is released.
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
    uses_examples = True

    n_steps: int | str = "auto"
    learning_rate: float | None = None
    clip: Any = "auto"
    start: str = "auto"
    keep_transcript: bool = False

    def check(self) -> None:
        if not is_auto(self.n_steps):
            check_whole("n_steps", self.n_steps, 0)
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

    def takes_examples(self) -> bool:
        return self.start not in ("zero", "mean")

    def bound(self, problem: Problem, mu: float, examples: Examples | None = None) -> DescentBound:
        if self.start in ("zero", "mean") and examples is not None:
            raise ValueError(
                f"class_embeddings, X_public: start={self.start!r} begins without them; leave them "
                "out, or pass start='auto'."
            )
        if self.start == "mean" and not problem.fit_intercept:
            raise ValueError(
                "start='mean' serves to move rows by their mean, which fit_intercept=False rules "
                "out; set fit_intercept=True, or pass start='zero'."
            )
        if self.start in ("zero", "mean") and self.n_steps == 0:
            raise ValueError(
                f"n_steps=0 releases the discriminant of class sums, which start={self.start!r} "
                "does not ask for; pass start='auto', or take steps."
            )
        n_steps, rate = None if is_auto(self.n_steps) else int(self.n_steps), self.learning_rate
        settings = settings_of(
            problem,
            mu,
            start=self.start,
            n_steps=n_steps,
            learning_rate=rate,
            needs_sums=examples is not None and _needs_sums(problem, examples),
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
        moves = start is not None and problem.fit_intercept and settings.n_steps > 0
        bound = DescentBound(
            learning_rate=1.0,
            momentum=MOMENTUM,
            clip=None if clip is None else float(clip),
            n_steps=settings.n_steps,
            constant=CONSTANT * problem.norm_bound if problem.fit_intercept else 0.0,
            start=start,
            least_reach=LEAST_REACH if moves else 1.0,
        )
        if bound.n_steps > 0:
            used = 0.0 if start is None else start.mu(problem)
            left = max((mu * (1.0 - 2.0 * _SLACK)) ** 2 - used**2, 0.0)
            bound = bound.with_noise(problem, math.sqrt(left))
        bound.check(problem)
        if bound.n_steps == 0:
            return bound
        if rate is None:
            rate = default_learning_rate(problem, bound, settings.aim)
        return replace(bound, learning_rate=float(rate))

    def conversation(
        self, problem: Problem, bound: DescentBound, examples: Examples | None = None
    ) -> Conversation:
        whitening, theta, statistics = None, np.zeros(bound.shape(problem)), None
        if bound.start is not None:
            statistics = bound.start.statistics(problem, (yield bound.start))
            whitening, theta = _start_of(problem, bound, statistics, examples)
        # Everything that depends on the norm of the rows, for those that the steps see.
        reach = bound.reach(problem, whitening)
        constant, rate = bound.constant * reach, bound.learning_rate / reach**2
        # An implicit step for the regulariser takes no parameter beyond zero.
        pull = 1.0 + rate * problem.alpha / (1.0 - bound.momentum)

        if bound.n_steps == 0:
            return _for_original_rows(problem, theta, constant, whitening)
        sigma, farthest = bound.scale(problem, whitening), bound.longest(problem, whitening)
        query = MeanGradient(theta, sigma, bound.clip, constant, whitening)

        def limited(theta: Array) -> Array:
            return theta * min(1.0, farthest / max(float(np.linalg.norm(theta)), 1e-300))

        public, fit = np.zeros(theta.shape), None
        if bound.pooled and examples is not None and whitening is not None:
            public = _model_of(problem, bound, whitening, examples)
            noise = sigma * float(np.linalg.norm(public))
            fit = MultipleFit(float(examples.told[0]), noise, examples.freedom > 0)
            theta = fit.multiple * public
        theta, velocity = limited(theta), np.zeros(theta.shape)
        products, last = [], last_of(bound.n_steps)
        for _ in range(bound.n_steps):
            gradient = yield replace(query, theta=theta)
            products.append(float(np.vdot(theta, gradient)))
            if problem.kind.centred:
                # The gradients of a record's classes add up to zero: noise in the sum is no signal.
                gradient = gradient - gradient.mean(axis=0)
            velocity = bound.momentum * velocity + gradient
            if fit is not None:
                theta = theta + fit.update(float(np.vdot(public, gradient))) * public
            theta = limited((theta - rate * velocity) / pull)
        parameters = _for_original_rows(problem, theta, constant, whitening)
        factor = 1.0
        if statistics is not None and not problem.kind.margins:
            noise = sigma * float(np.linalg.norm(theta))
            told = statistics, parameters, bound.clip, products[-last:], noise
            factor = factor_of(problem, *told)
        if fit is not None and whitening is not None and examples is not None:
            began = fit.multiple * public
            moved = _signal_of(problem, bound, whitening, examples, theta - began)
            parameters = _for_original_rows(problem, began + moved, constant, whitening)
        return parameters * factor


def _start_of(
    problem: Problem, bound: DescentBound, statistics: Any, examples: Examples | None
) -> tuple[PublicMap | None, Array]:
    """The map that released sums tell, and their discriminant for rows behind it."""
    whitening = whitening_map(statistics, bound.least_reach) if bound.whitened else None
    if bound.pooled:
        return whitening, np.zeros(bound.shape(problem))
    # Nothing restores what is taken off slopes that are released as they are.
    here = problem.euclidean_radius, problem.labels
    share = (bound.mu_of_steps(problem, *here) / bound.mu(problem)) ** 2 if bound.n_steps else 1.0
    coef, intercept = discriminant_of(statistics, problem, share, examples)
    reach = bound.reach(problem, whitening)
    if whitening is not None:
        intercept = intercept + coef @ whitening.centre
        coef = whitening.restored(coef)
    if bound.constant == 0.0:
        return whitening, coef
    return whitening, np.hstack([coef, intercept[:, None] / (bound.constant * reach)])


def _needs_sums(problem: Problem, examples: Examples) -> bool:
    """Whether what is public about the classes serves beside class sums alone.

    Scores of a model are no margins; and the multiple of vectors, whose size tells nothing, is
    found by sums of many classes sooner than by steps.
    """
    few = examples.freedom > 0 or problem.n_classes <= MANY_CLASSES
    return problem.kind.margins or not few


def _model_of(
    problem: Problem, bound: DescentBound, whitening: PublicMap, examples: Examples
) -> Array:
    """Parameters of the examples' model, for rows behind a map that moves them alone."""
    coef, intercept = examples.coef / problem.norm_bound, examples.intercept
    if problem.kind.n_scores == 1:
        coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
    constant = bound.constant * bound.reach(problem, whitening)
    return np.hstack([coef, (intercept + coef @ whitening.centre)[:, None] / constant])


def _signal_of(
    problem: Problem, bound: DescentBound, whitening: PublicMap, examples: Examples, moved: Array
) -> Array:
    """What is kept of the moves of a descent from the examples' model."""
    kind, steps, momentum = problem.kind, bound.n_steps, bound.momentum
    reach = bound.reach(problem, whitening)
    rate, sigma = bound.learning_rate / reach**2, bound.scale(problem, whitening)
    weights = rate * (1.0 - momentum ** np.arange(steps, 0, -1)) / (1.0 - momentum)
    with blas_threads_for(problem.n_features):
        values, vectors = np.linalg.eigh(examples.covariance() * problem.norm_bound**2)
    squares = np.append(values, (bound.constant * reach) ** 2)
    rotated = np.hstack([moved[:, :-1] @ vectors, moved[:, -1:]])
    rotated *= kept_of_moves(
        rotated,
        n_scores=kind.n_scores - int(kind.centred),
        curvatures=float(examples.told[1]) / problem.n_classes * squares,
        reach=float(weights.sum()),
        noise=sigma**2 * float(weights @ weights),
        prior=steps * (rate * sigma / (1.0 - momentum)) ** 2,
    )
    return np.hstack([rotated[:, :-1] @ vectors.T, rotated[:, -1:]])


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


def default_learning_rate(problem: Problem, bound: DescentBound, aim: float) -> float:
    """Step size from public numbers: the noise in one parameter then has scale ``aim`` / B.

    Without clipping, and for a single step, the curvature limits it, to half of what makes
    heavy-ball steps diverge.
    """
    norm_bound, radius, rates = problem.norm_bound, problem.euclidean_radius, []
    if bound.clip is None or bound.n_steps == 1:
        augmented = math.hypot(norm_bound, bound.constant)
        rates.append((1.0 + bound.momentum) / (problem.kind.curvature * augmented**2))
    gap = bound.gap(problem, radius, problem.labels)
    if math.isfinite(gap):
        told = (1.0 - bound.momentum) * problem.effective_size
        told *= bound.mu_of_steps(problem, radius, problem.labels)
        rates.append(aim / (norm_bound * (bound.n_steps * gap / told)))
    return min(rates)
