"""What public numbers decide of a descent: shares of the budget, clipping norm, step size.

All of it is fixed before the rows are touched, and tuned on public benchmark data alone. Two
numbers say how a descent fares. The *noise of the means* is what the noise of class sums would add
to the squared norm of a class mean if they had all of the budget, on average over records, in units
of the squared norm of a row. The *worth of steps* compares the noise of the sums, which is
proportional to the radius, with that of gradients, which is not: at small radii sums are nearly
exact, and steps would only add their noise.
"""

import math
from dataclasses import dataclass

import numpy as np

from ..losses import make_loss
from ..privacy.transcript import MOST_OF_STEPS, TranscriptBound
from .mechanism import Problem

#: Share of mu squared for the steps after a start: where they are worth little; where they are
#: worth much, but the means are mostly noise; and where the means are exact.
LITTLE, SOME, MOST = 0.1, 0.3, MOST_OF_STEPS
#: Noise of the means halfway between the last two.
HALF_MEANS_NOISE = 0.1
#: Steps, and those from zero.
STEPS, STEPS_FROM_ZERO = 50, 100
#: Worth below which many steps cost more than they gain, and the share of the only one there.
LEAST_WORTH, HARDLY_ANY = 0.2, 0.01
#: Worth at which steps are as good as the sums that they start from, and how fast that turns.
EVEN_WORTH, FEW_RECORDS, WORTH_POWER = 0.9, 0.7, 4.0
#: Records times mu, over the root of the number of features, at which the radius times the root of
#: the number of classes is the worth; the power at which the worth grows with it.
RECORDS, RECORDS_POWER = 51.0, 0.7
#: Power at which the worth falls with W / s of the loss over that of the sums.
WEIGHTED_POWER = 2.0
#: Clipping norm of residuals where steps are worth little, and where they are worth much.
CLIPS = 0.3, 0.1
#: Standard deviation, in units of 1 / B, that the noise of all steps together would give one
#: parameter if nothing pulled it back: what the default step size aims at; likewise. Margins of the
#: squared hinge are smaller. From zero the path is longer.
ACCUMULATED_NOISE = {"squared_hinge": (0.02, 0.5)}
OTHERWISE, FROM_ZERO = (0.2, 1.5), 1.5
#: Largest total step, in units of 1 / B and for gradients of the clipping norm.
LONGEST_PATH = 3e4


@dataclass(frozen=True)
class Settings:
    """Settings of a descent that were left to public numbers.

    Parameters
    ----------
    share : float
        Share of mu squared for the steps after a start.
    clip : float
        Clipping norm.
    accumulated_noise : float
        What the step size aims at, in units of 1 / B.
    n_steps : int
        Number of steps.
    """

    share: float
    clip: float
    accumulated_noise: float
    n_steps: int


def settings_of(
    problem: Problem,
    mu: float,
    *,
    started: bool,
    n_steps: int | None = None,
    learning_rate: float | None = None,
) -> Settings:
    """Settings for a budget at the problem's radius, for a descent from a start or from zero.

    The number of steps is one of them unless it is given, or many are asked for by their size.
    """
    if not started:
        return Settings(1.0, CLIPS[1], FROM_ZERO, n_steps or STEPS_FROM_ZERO)
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
    # One-versus-rest heads share the clipping norm: each sees less of it.
    stacked = make_loss(problem.loss, problem.n_classes).n_stacked
    records = problem.mass * mu / math.sqrt(problem.n_features * stacked) / RECORDS
    # Weights of classes make steps noisier, and leave the sums as they are.
    relative = r * math.sqrt(problem.n_classes) * records**RECORDS_POWER
    relative *= (problem.mass / n) ** WEIGHTED_POWER
    odds = (EVEN_WORTH / relative) ** WORTH_POWER + (FEW_RECORDS / records) ** WORTH_POWER
    worth = 1.0 / (1.0 + odds)
    aims = ACCUMULATED_NOISE.get(problem.loss, OTHERWISE)
    # A regulariser that was asked for acts in the steps; sums that hide labels have more noise.
    asked_for = problem.alpha > 0.0 or learning_rate is not None or problem.labels != "public"
    if n_steps is None and not asked_for and worth < LEAST_WORTH:
        return Settings(HARDLY_ANY, CLIPS[0], aims[0], 1)
    present = counts[counts > 0]
    noise = problem.n_features * (r / mu) ** 2 * float(np.sum(1.0 / present)) / n
    most = SOME + (MOST - SOME) / (1.0 + noise / HALF_MEANS_NOISE)

    def between(little: float, much: float) -> float:
        return little + worth * (much - little)

    return Settings(between(LITTLE, most), between(*CLIPS), between(*aims), n_steps or STEPS)


def default_learning_rate(bound: TranscriptBound, accumulated_noise: float) -> float:
    r"""Step size from public numbers.

    With sensitivity G / n of a step at its largest, T steps and a promise mu, the noise that all
    steps add to one parameter has standard deviation :math:`\eta T G / ((1 - \beta) n \mu)`, with
    momentum :math:`\beta`, if nothing pulls it back. The step size makes that
    ``accumulated_noise`` / B: a longer path fits no better for the noise it gathers, a shorter
    one stops before the model is fitted. With little noise the path is limited to
    :data:`LONGEST_PATH`. Without clipping the curvature of the loss limits the step size, to half
    of what makes heavy-ball steps diverge, on every dataset. The limit holds for a single step too,
    which no other would mend. The regulariser limits nothing: :class:`.Iterates` applies it
    implicitly.
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
