"""Every tuned number of the heads, and the one rule by which a descent follows from public numbers.

No guarantee rests on any of them: records state what was chosen, and the bounds count with that.
The numbers were chosen on public benchmark data (``docs/worth.md``; the table of each is
``benchmarks/results/settings.md``).
"""

import hashlib
import json
import math
import sys
from dataclasses import dataclass

import numpy as np

from ..losses import make_loss
from ..privacy.transcript import TranscriptBound
from .mechanism import Problem

#: Raised when a formula of the rule changes, and no number does.
EDITION = 1

# -- whether steps pay, their share, size and number ----------------------------------------------
#: Noise of the sums, radius * sqrt(K) * records^POWER, below which steps only add theirs.
EXACT_SUMS, POWER = 0.75, 0.7
#: Records times mu over the root of the number of features: the unit that records are counted in.
RECORDS = 51.0
#: Share of mu squared for the steps: at most, and over the root of the number of classes where the
#: class means are mostly noise.
MOST_SHARE, CLASSES_SHARE = 0.8, 1.8
#: What noise adds to the squared norm of a class mean halfway between the two.
MEANS_NOISE = 0.1
#: Standard deviation, in units of 1 / B, that the noise of all steps gives a parameter.
AIM = 1.0
#: Norm that residuals are clipped to.
CLIP = 0.2
#: Steps from class sums, and without them.
STEPS, LONG_STEPS = 20, 60
#: Share of the velocity that is kept, and of the iterates whose mean is released.
MOMENTUM, AVERAGING = 0.8, 0.2
#: Share of the budget of a single step, which leaves the start all but as it is.
SINGLE_SHARE = 0.01
#: Records below which sums that hide labels are worth less than their share: over sqrt(K).
TOO_FEW = 7.6
#: What noise may add to the square of the mean of all rows where it is released alone.
MEAN_NOISE = 0.1

# -- what the steps see ---------------------------------------------------------------------------
#: Constant that augments the rows, in units of B.
CONSTANT = 0.15
#: Power of the variance along a direction (and of the mean one) that rows are shortened by there.
WHITENING = 0.25
#: Norm that the whitening map leaves for rows, in units of B, at least.
LEAST_REACH = 0.3

# -- the discriminant -----------------------------------------------------------------------------
#: Noise beyond which a second moment is not worth its share: energy of the noise in class means
#: (rows have energy 1), and edge of the noise in the second moment over its mean eigenvalue.
MOST_MEANS_NOISE, MOST_MOMENT_NOISE = 0.022, 11.0
#: Share of the second moment where there is little noise; it falls to a third of that.
MOMENT_SHARE = 0.7
#: Least cleaned eigenvalue, in units of the mean one.
FLOOR = 0.1
#: Ridge on the eigenvalues: half the edge of the noise (and d / n mean eigenvalues for the sample's
#: own), but no more than twice the mean eigenvalue.
RIDGE_EDGE, RIDGE_MEAN = 0.5, 2.0
#: Log-odds from where the tails of real classes are heavier than a normal law's.
TAIL = 14.0

# -- other heads ----------------------------------------------------------------------------------
#: Effective dimension of class means and scatter in the "gaussian" rule of prototypes.
EFFECTIVE_DIMENSION = 10
#: Least share of the squared norm bound that a rule leaves to the variance within classes.
WITHIN_CLASS_FLOOR = 0.05
#: Least default alpha of a noisy minimiser, times the number of records: less fits no better.
LEAST_ALPHA = 0.3
#: Standard deviation of the noise in a parameter of a minimiser, in units of 1 / B, that costs
#: little accuracy, for a loss of curvature 1/4.
PRECISE = 0.15
#: Largest weight that ``class_weight="balanced"`` gives, in units of the mean one.
MOST_BALANCED = 4.0


def _rule() -> str:
    """Digest of the numbers above."""
    own = vars(sys.modules[__name__])
    numbers = {k: v for k, v in own.items() if k.isupper() and isinstance(v, (int, float))}
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class DescentSettings:
    """Settings of a descent that public numbers decide.

    Parameters
    ----------
    start : {"zero", "mean", "sums"}
        Whether sums are released before the steps: none, one of all rows, or one of each class.
    share : float
        Share of mu squared for the steps.
    aim : float
        Noise in a parameter that the step size aims at, in units of 1 / B.
    n_steps : int
        Number of steps.
    """

    start: str
    share: float
    aim: float
    n_steps: int


def settings_of(
    problem: Problem, mu: float, *, start: str, n_steps: int | None, learning_rate: float | None
) -> DescentSettings:
    """Settings for a budget at the problem's radius.

    ``start`` and the others are as the user gave them, None for what public numbers decide.
    """
    if start == "zero":
        return DescentSettings("zero", 1.0, AIM, n_steps or LONG_STEPS)
    loss = make_loss(problem.loss, problem.n_classes)
    k, protected = problem.n_classes, problem.labels == "protected"
    # A label change spans any distance.
    r = 2.0 if protected else problem.radius / problem.norm_bound
    records = problem.effective_size * mu / math.sqrt(problem.n_features * loss.n_stacked) / RECORDS
    lacking = protected and records * math.sqrt(k) < TOO_FEW
    movable = problem.fit_intercept and problem.class_embeddings is None
    if start == "mean" or (start == "auto" and lacking and movable):
        noise = problem.n_features * (r / (problem.sums_effective_size * mu)) ** 2
        return DescentSettings(
            "mean", 1.0 - min(noise / MEAN_NOISE, 0.3), AIM, n_steps or LONG_STEPS
        )
    exact = r * math.sqrt(k) * records**POWER < EXACT_SUMS
    asked_for = problem.alpha > 0.0 or learning_rate is not None or protected
    if n_steps is None and exact and not asked_for:
        return DescentSettings("sums", SINGLE_SHARE, AIM, 1)
    some = min(MOST_SHARE, CLASSES_SHARE / math.sqrt(k))
    share = some + (MOST_SHARE - some) / (1.0 + _noise_of_means(problem, r, mu) / MEANS_NOISE)
    return DescentSettings("sums", share, AIM, n_steps or STEPS)


def _noise_of_means(problem: Problem, r: float, mu: float) -> float:
    """What the noise of class sums with all of the budget adds to the square of a class mean.

    On average over records, in units of the squared norm of a row.
    """
    n, counts = problem.sums_effective_size, problem.class_sizes
    if counts is None:
        counts = np.full(problem.n_classes, n / problem.n_classes)
    elif problem.sums_weights is not None:
        # In units of the largest weight that one substitution moves.
        counts = counts / problem.sums_weights.largest
    return problem.n_features * (r / mu) ** 2 * float(np.sum(1.0 / counts[counts > 0])) / n


def default_learning_rate(bound: TranscriptBound, aim: float) -> float:
    r"""Step size from public numbers.

    With sensitivity G / n of a step at its largest, T steps of equal shares and a promise mu, the
    noise that all steps add to one parameter has standard deviation
    :math:`\eta T G / ((1 - \beta) n \mu)`, with momentum :math:`\beta`, if nothing pulls it back
    and no iterates are averaged. The step size makes that ``aim`` / B: a longer path fits no better
    for the noise it gathers, a shorter one stops before the model is fitted. Without clipping the
    curvature of the loss limits the step size, to half of what makes heavy-ball steps diverge, on
    every dataset. The limit holds for a single step too, which no other would mend.
    """
    norm_bound, descent = bound.norm_bound, bound.descent
    n_steps, momentum, clip = descent.n_steps, descent.momentum, descent.clip
    rates = []
    if clip is None or n_steps == 1:
        augmented = math.hypot(norm_bound, bound.constant)
        rates.append((1.0 + momentum) / (bound.kind.curvature * augmented**2))
    gap = bound.limits(bound.promised_radius).most
    if math.isfinite(gap):
        accumulated = n_steps * gap / ((1.0 - momentum) * bound.effective_size * bound.steps_mu)
        rates.append(aim / (norm_bound * accumulated))
    return min(rates)


#: What a record calls the rule of this version.
RULE = _rule()
