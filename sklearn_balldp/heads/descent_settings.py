"""What public numbers decide of a descent: shares of the budget, clipping norm, step size.

All of it is fixed before the rows are touched, and tuned on public benchmark data alone. Two
numbers say how a descent fares. The *noise of the means* is what the noise of class sums would add
to the squared norm of a class mean if they had all of the budget, on average over records, in units
of the squared norm of a row. The *worth of steps* is the product of two shares. One compares the
noise of the sums, which is proportional to the radius, with that of gradients, which is not: at
small radii sums are nearly exact, and steps would only add their noise. The other says whether
there are records enough for steps to learn from: that takes more of them where classes are many.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..losses import make_loss
from ..privacy.transcript import MOST_OF_STEPS, TranscriptBound, share_of_mean
from .mechanism import Problem

#: Share of mu squared for the steps after a start: where they are worth little; where they are
#: worth much, but the means are mostly noise (over the root of the number of classes: where these
#: are many, steps need a start); and where the means are exact, at a radius of B.
LITTLE, SOME, MOST = 0.1, 1.8, MOST_OF_STEPS
#: Power of the radius with which the share of the sums then falls: in smaller balls they tell more.
SUMS_POWER = 0.2
#: Noise of the means halfway between the last two.
HALF_MEANS_NOISE = 0.1
#: Records, in the unit of :data:`RECORDS`, below which sums that hide labels tell less than their
#: share costs: the mean of all rows is released in their place. Class means are harder to do
#: without where classes are many: beyond so many of them the number falls with the root of theirs.
FEWER_THAN_SUMS_NEED, MANY_CLASSES = 2.4, 10
#: Steps from a start, where more would be noisier ones: the squared hinge needs them where there is
#: little noise, two classes everywhere. Steps from zero, and where the mean was released before.
STEPS, USUAL_STEPS = {"squared_hinge": 50, "logistic": 40}, 20
STEPS_FROM_ZERO, STEPS_FROM_MEAN = 100, 60
#: Share of the velocity that is kept: between steps from sums, and otherwise.
MOMENTUM, USUAL_MOMENTUM = 0.8, 0.9
#: Power of their worth that the share of steps grows with: two classes need little of their sums.
WORTH_POWER = {"logistic": 0.25}
#: Worth below which many steps cost more than they gain, and the share of the only one there.
LEAST_WORTH, HARDLY_ANY = 0.3, 0.01
#: Records times mu, over the root of the number of features, at which the radius times the root of
#: the number of classes is the relative noise of the sums; the power at which that grows with it.
RECORDS, RECORDS_POWER = 51.0, 0.7
#: Relative noise at which steps are as good as the sums that they start from, and how fast that
#: turns.
EVEN_NOISE, NOISE_POWER = 0.75, 6.0
#: Records, in that unit and over a power of the number of classes, that are just enough; and that
#: power. Sums that hide labels are so noisy that steps pay with fewer. The squared hinge's records
#: are counted for each one-versus-rest head already.
FEW_USUAL, FEW_PROTECTED, FEW_HINGE = (0.2, 0.45), (0.03, 0.75), (0.35, 0.2)
#: How fast that turns.
FEW_POWER = 6.0
#: Power at which the relative noise falls with W / s of the loss over that of the sums.
WEIGHTED_POWER = 2.0
#: Clipping norm of residuals where the sums are nearly exact, and where they are noisy; and after
#: the mean alone.
CLIPS, CLIP_FROM_MEAN = (0.3, 0.1), 0.2
#: Standard deviation, in units of 1 / B, that the noise of all steps together would give one
#: parameter if nothing pulled it back: what the default step size aims at. The first aim is for
#: sums that are nearly exact, the second for noisy sums and few records (over the root of the
#: number of one-versus-rest heads), the third for noisy sums and enough records. Margins of the
#: squared hinge are smaller. From zero the path is longer.
AIMS = {"squared_hinge": (0.02, 0.2, 0.5)}
USUAL_AIMS, FROM_ZERO = (0.2, 0.5, 1.5), 1.5
#: Power of the radius with which the third aim falls: smaller balls start nearer to the optimum.
NEAR_POWER = {"softmax": 0.3}
#: Largest total step, in units of 1 / B and for gradients of the clipping norm.
LONGEST_PATH = 3e4


@dataclass(frozen=True)
class Settings:
    """Settings of a descent that were left to public numbers.

    Parameters
    ----------
    start : {"zero", "mean", "sums"}
        Whether sums are released before the steps: none, one of all rows, or one of each class.
    share : float
        Share of mu squared for the steps.
    clip : float
        Clipping norm.
    accumulated_noise : float
        What the step size aims at, in units of 1 / B.
    n_steps : int
        Number of steps.
    """

    start: str
    share: float
    clip: float
    accumulated_noise: float
    n_steps: int


def settings_of(
    problem: Problem,
    mu: float,
    *,
    start: str,
    moves: bool = True,
    n_steps: int | None = None,
    learning_rate: float | None = None,
) -> Settings:
    """Settings for a budget at the problem's radius, for a descent from a start or from zero.

    ``start`` is as the user gave it, and ``moves`` says whether steps move rows by their mean. The
    number of steps is a setting unless it is given, or many are asked for by their size.
    """
    if start == "zero":
        return Settings("zero", 1.0, CLIPS[1], FROM_ZERO, n_steps or STEPS_FROM_ZERO)
    # One-versus-rest heads share the clipping norm: each sees less of it.
    stacked = make_loss(problem.loss, problem.n_classes).n_stacked
    records = problem.mass * mu / math.sqrt(problem.n_features * stacked) / RECORDS
    # A prior needs class means, and margins of the squared hinge suffer more from a start at zero.
    movable = moves and problem.prior is None and problem.loss != "squared_hinge"
    fewer = FEWER_THAN_SUMS_NEED * math.sqrt(min(1.0, MANY_CLASSES / problem.n_classes))
    lacking = problem.labels == "protected" and records < fewer
    if start == "mean" or (start == "auto" and lacking and movable):
        # A label change spans any distance.
        distance = 2.0 if problem.labels == "protected" else problem.radius / problem.norm_bound
        share = 1.0 - share_of_mean(problem.n_features, problem.sums_mass, distance, mu)
        return Settings("mean", share, CLIP_FROM_MEAN, FROM_ZERO, n_steps or STEPS_FROM_MEAN)
    r = problem.radius / problem.norm_bound
    n, counts = problem.sums_mass, problem.class_masses
    if problem.labels == "protected":
        # A label change spans any distance; counts are private.
        r, counts = 2.0, np.full(problem.n_classes, n / problem.n_classes)
    elif counts is None:
        raise ValueError("class_counts=None: they are public with public labels.")
    elif problem.sums_weights is not None:
        # In units of the largest weight that one substitution moves.
        counts = counts / problem.sums_weights.largest
    # Weights of classes make steps noisier, and leave the sums as they are.
    relative = r * math.sqrt(problem.n_classes) * records**RECORDS_POWER
    relative *= (problem.mass / n) ** WEIGHTED_POWER
    few, power = FEW_PROTECTED if problem.labels == "protected" else FEW_USUAL
    if problem.loss == "squared_hinge":
        few, power = FEW_HINGE
    noisy = _share(relative / EVEN_NOISE, NOISE_POWER)
    worth = noisy * _share(records / (few * problem.n_classes**power), FEW_POWER)
    aims = AIMS.get(problem.loss, USUAL_AIMS)
    # A regulariser that was asked for acts in the steps; sums that hide labels have more noise.
    asked_for = problem.alpha > 0.0 or learning_rate is not None or problem.labels != "public"
    if n_steps is None and not asked_for and worth < LEAST_WORTH:
        return Settings("sums", HARDLY_ANY, CLIPS[0], aims[0], 1)
    present = counts[counts > 0]
    noise = problem.n_features * (r / mu) ** 2 * float(np.sum(1.0 / present)) / n
    most = max(1.0 - (1.0 - MOST) / min(1.0, r) ** SUMS_POWER, LITTLE)
    some = min(most, SOME / math.sqrt(problem.n_classes))
    most = some + (most - some) / (1.0 + noise / HALF_MEANS_NOISE)
    exact, few_records, enough = aims
    few_records /= math.sqrt(stacked)
    enough *= min(1.0, r) ** NEAR_POWER.get(problem.loss, 0.0)
    aim = exact + noisy * (few_records - exact) + worth * (enough - few_records)
    clip = CLIPS[0] + noisy * (CLIPS[1] - CLIPS[0])
    n_steps = n_steps or STEPS.get(problem.loss, USUAL_STEPS)
    share = LITTLE + worth ** WORTH_POWER.get(problem.loss, 1.0) * (most - LITTLE)
    return Settings("sums", share, clip, aim, n_steps)


def _share(ratio: float, power: float) -> float:
    """Ratio^power / (1 + ratio^power): nothing far below one, a half at one, all far above."""
    # At a radius of next to nothing the ratio may vanish.
    return 1.0 / (1.0 + max(ratio, 1e-30) ** -power)


def default_momentum(n_steps: int, *, from_sums: bool) -> float:
    """Share of the velocity that is kept from step to step."""
    return MOMENTUM if from_sums and n_steps > 1 else USUAL_MOMENTUM


def default_learning_rate(bound: TranscriptBound, accumulated_noise: float) -> float:
    r"""Step size from public numbers.

    With sensitivity G / n of a step at its largest, T steps of equal shares and a promise mu, the
    noise that all steps add to one parameter has standard deviation
    :math:`\eta T G / ((1 - \beta) n \mu)`, with momentum :math:`\beta`, if nothing pulls it back
    and no iterates are averaged. The step size makes that ``accumulated_noise`` / B: a longer path
    fits no better for the noise it gathers, a shorter one stops before the model is fitted. With
    little noise the path is limited to :data:`LONGEST_PATH`. Without clipping the curvature of the
    loss limits the step size, to half of what makes heavy-ball steps diverge, on every dataset. The
    limit holds for a single step too, which no other would mend. The regulariser limits nothing:
    :class:`.Iterates` applies it implicitly.
    """
    norm_bound, descent = bound.norm_bound, bound.descent
    n_steps, momentum, clip = descent.n_steps, descent.momentum, descent.clip
    augmented = math.hypot(norm_bound, bound.constant)
    rates = []
    if clip is None or n_steps == 1:
        rates += [(1.0 + momentum) / (bound.kind.curvature * augmented**2)]
    if clip is not None:
        rates += [LONGEST_PATH * (1.0 - momentum) / (norm_bound * n_steps * clip)]
    for radius, mu in bound.step_promises:
        gap = bound.limits(radius).most
        if math.isfinite(gap):
            accumulated = n_steps * gap / ((1.0 - momentum) * bound.mass * mu)
            rates.append(accumulated_noise / (norm_bound * accumulated))
    return min(rates)
