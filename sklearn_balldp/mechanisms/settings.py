"""Tuned numbers of accuracy, and the one rule by which a descent follows from public numbers.

No guarantee rests on any of them (``docs/worth.md``; ``benchmarks/results/settings.md``).
"""

import hashlib
import json
import math
import sys
from dataclasses import dataclass

import numpy as np

from ..privacy.problem import Problem
from ..privacy.rounding import LEAST_KEPT as LEAST_KEPT
from ..privacy.rounding import MOST_DIRECTIONS as MOST_DIRECTIONS
from ..privacy.sensitivity import moment_sensitivity

#: Raised when a formula by which a model follows from answers changes, and no number does.
EDITION = 7

# -- numbers of a descent --------------------------------------------------------------------------
#: Signal of the records below which steps only add noise: then there is none.
STEPS_NEED = 14.0
#: Signal below which class sums that hide any distance are not worth their share, over K^0.4: the
#: mean takes their place.
SUMS_NEED = 31.0
#: Number of classes from where each further one takes its share of the steps' signal.
MANY_CLASSES = 10.0
#: Share of mu squared for steps after exact sums; and after noisy ones, over the root of K.
EXACT_SHARE, NOISY_SHARE = 0.84, 1.8
#: What noise adds to the squared norm of a class mean halfway between the two, in units of B^2.
MEANS_NOISE = 0.1
#: Share of mu squared for a mean of all rows, which must cost next to nothing.
LITTLE = 0.02
#: Standard deviation that the noise of all steps gives a parameter, in units of 1 / B and over the
#: root of the loss's curvature.
AIM = 0.7
#: Norm that residuals are clipped to.
CLIP = 0.2
#: Steps from class sums, and without them.
STEPS, LONG_STEPS = 20, 60
#: Share of the velocity that is kept.
MOMENTUM = 0.8
# ... what the steps see
#: Constant that augments the rows for the intercept, in units of B.
CONSTANT = 0.15
#: Power of the variance along a direction (and of the mean one) that rows are shortened by there.
WHITENING = 0.25
#: Norm that the whitening map leaves for rows at least, in units of B (the bound of the rounding
#: refuses less than ``privacy.rounding.SHORTEST``); as a square it is the smallest variance along a
#: direction, in units of the mean one.
LEAST_REACH = 0.3
# ... and the discriminant of the sums
#: Noise beyond which a second moment is not released: energy of the noise in class means (rows have
#: energy 1), and edge of the noise in the second moment over its mean eigenvalue.
MOST_MEANS_NOISE, MOST_MOMENT_NOISE = 0.022, 11.0
#: Share of the second moment where there is little noise; it falls to a third of that.
MOMENT_SHARE = 0.7
#: Ridge on the eigenvalues: the edge of the noise over this, at most so many mean eigenvalues.
RIDGE = 2.0
#: Log-odds from where the tails of real classes are heavier than a normal law's.
TAIL = 14.0
# ... and probabilities
#: Factor of the scores towards which noise pulls what released gradients tell of it.
CERTAINTY = 0.7

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


def _tuning() -> str:
    """Digest of the numbers above, and of those that the whitening map shares with its bound."""
    names = vars(sys.modules[__name__])
    numbers = {k: v for k, v in names.items() if k.isupper() and isinstance(v, (int, float, tuple))}
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class DescentSettings:
    """Settings of a descent that public numbers decide.

    Sums come first: none ("zero"), one of all rows ("mean"), or "sums" of classes. The share is
    that of the steps in mu squared; their noise in a parameter shall be ``aim`` / B.
    """

    start: str
    share: float
    aim: float
    n_steps: int


def settings_of(
    problem: Problem,
    mu: float,
    *,
    start: str,
    n_steps: int | None,
    learning_rate: float | None,
    needs_sums: bool = False,
) -> DescentSettings:
    """Settings for a budget at the problem's radius, from public numbers.

    ``start``, ``n_steps`` and ``learning_rate`` are as the user gave them; None is for this rule.
    ``needs_sums`` says whether what is public about the classes serves beside class sums alone.
    What is released must be worth its noise: its signal must reach what it needs. With K classes,
    r the radius in units of B (2 where labels are hidden: a label change spans any distance), and
    k = sqrt(max(1, K / 10)):

    ===================================  ===================  ====================
    released                             signal               needed
    ===================================  ===================  ====================
    class sums, and not one of all rows  n mu / sqrt(d)       31 K^.4 (r / 2)^3.5
    steps after class sums               n mu / sqrt(d)       14 K^(1/3)
    steps after a second moment too      r n mu / sqrt(d)     14 / k
    steps of one-versus-rest heads       either of the above  14 k sqrt(K)
    ===================================  ===================  ====================
    """
    aim = AIM / math.sqrt(problem.kind.curvature)
    signal = problem.effective_size * mu / math.sqrt(problem.n_features)
    r = 2.0 if problem.labels == "protected" else problem.euclidean_radius / problem.norm_bound
    # Heads that share the clipping norm start badly at 0.
    movable = problem.fit_intercept and not needs_sums and problem.kind.n_stacked == 1
    if start == "auto" and movable and n_steps != 0 and not signal >= _need_of_sums(problem, r):
        start = "mean"
    if start in ("zero", "mean"):
        longer = aim * math.sqrt(LONG_STEPS / STEPS)
        share = 1.0 if start == "zero" else 1.0 - LITTLE
        return DescentSettings(start, share, longer, n_steps or LONG_STEPS)
    # A number of steps, or a regulariser, that was asked for acts in the steps.
    pays = n_steps is not None or problem.alpha > 0.0 or learning_rate is not None
    if not pays:
        whitens = start != "prototypes" and share_of_sums(problem, mu) < 1.0
        pays = (r * signal if whitens else signal) >= _need_of_steps(problem, whitens)
    if not pays or n_steps == 0:
        return DescentSettings("sums", 0.0, aim, 0)
    some = min(EXACT_SHARE, NOISY_SHARE / math.sqrt(problem.n_classes))
    exactness = 1.0 / (1.0 + _noise_of_means(problem, r, mu) / MEANS_NOISE)
    return DescentSettings("sums", some + (EXACT_SHARE - some) * exactness, aim, n_steps or STEPS)


def _need_of_sums(problem: Problem, r: float) -> float:
    """Signal that class sums need, or the mean of all rows takes their place.

    The noise of K sums has length r sqrt(K d) / mu; that of clipped steps falls more slowly with r.
    """
    return SUMS_NEED * problem.n_classes**0.4 * (r / 2.0) ** 3.5


def _need_of_steps(problem: Problem, whitens: bool) -> float:
    """Signal that steps need after class sums, whose discriminant is released without them."""
    k, many = problem.n_classes, math.sqrt(max(1.0, problem.n_classes / MANY_CLASSES))
    stacked = problem.kind.n_stacked > 1
    if problem.labels == "protected" and not (stacked and many > 1.0):
        return 0.0  # sums that hide labels are noisy: steps pay, but for those of many heads
    if stacked:
        # Heads share the clipping norm: each sees less of a record.
        return STEPS_NEED * many * math.sqrt(k)
    # More classes need more records, but leave steps more to do once sums tell the moment.
    return STEPS_NEED / many if whitens else STEPS_NEED * k ** (1.0 / 3.0)


def _noise_of_means(problem: Problem, r: float, mu: float) -> float:
    """Noise of class sums with all of the budget in the square of a class mean, on average."""
    n, counts = problem.effective_size, problem.class_sizes
    if counts is None:
        counts = np.full(problem.n_classes, n / problem.n_classes)
    else:
        # In units of the largest weight that one substitution moves.
        counts = counts / problem.sums_weights.largest
    return problem.n_features * (r / mu) ** 2 * float(np.sum(1.0 / counts[counts > 0])) / n


def share_of_sums(problem: Problem, mu: float) -> float:
    """Share of mu squared for the class sums, beside the second moment, from public numbers.

    It is 1 where the second moment is not worth its noise: the scores are then those of prototypes.
    """
    radius, counts = problem.euclidean_radius / problem.norm_bound, problem.class_sizes
    n, d = problem.effective_size, problem.n_features
    if counts is None:
        # Private: as if classes were equally large, at the distance that a label change spans.
        radius, counts = math.sqrt(2.0), np.full(problem.n_classes, n / problem.n_classes)
    else:
        # In units of the largest weight that one substitution moves.
        counts = counts * (n / problem.sums_weights.total)
    present = counts[counts > 0]
    k = max(len(present), 2)
    # Both with all of the budget: what noise adds to the squared norm of a class mean, on average
    # over records, and sampling; and the largest eigenvalue of the moment's noise over 1 / d, the
    # mean one. Fewer classes leave fewer directions in which a covariance could help.
    energy = d * (radius / mu) ** 2 * float(np.sum(1.0 / present)) + 0.5 * k
    gap = moment_sensitivity(radius, norm_bound=1.0, domain=problem.domain)
    means = energy / n / MOST_MEANS_NOISE
    moment = d * math.sqrt(2.0 * d) * gap / mu / n / MOST_MOMENT_NOISE
    if max(means, moment * k / (k - 1.0)) > 1.0:
        return 1.0
    return 1.0 - MOMENT_SHARE / (1.0 + means + moment)


#: Digest of the numbers: records state it as their ``rule``.
TUNING = _tuning()
