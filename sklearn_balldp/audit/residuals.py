r"""Does a released model carry the noise that it states? Tests for whoever holds the records.

The owner knows the records D and the released parameters. These, less what the records give without
noise, and divided by the noise scale, must be standard normal deviates,

.. math:: z = (\tilde\theta - \theta(D)) / \sigma \sim N(0, I),

and so must every noisy gradient of a kept transcript. Four kinds of tests look at z. They test its
length, the distribution of its entries, its projections on directions that were fixed before the
noise, and the correlations of its blocks with each other and with earlier releases.

**They refute, and certify nothing.** They find mistakes: a wrong scale, a shift, another
distribution, noise used twice, other weights, other records. They do not find a clever lie: noise
that the publisher can draw again (from a seed he kept), noise that is missing in a few directions,
draws selected until they pass, or records that differ in few places.

**A verdict must not decide whether to publish.** Whoever draws again after a FAIL publishes noise
conditioned on the records: with alpha the level of all tests, (epsilon, delta) becomes
:func:`epsilon_after_redraws`. Find the fault, and begin again with a budget of its own.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert
from scipy.stats import chi2, kstwo, norm
from scipy.stats import t as student

from ..adjacency import full_radius
from ..heads import (
    FitWeights,
    Initialisation,
    Layout,
    Mechanism,
    OutputPerturbation,
    PrivateProblem,
    Promise,
    PrototypePerturbation,
    ReleasedModel,
    StatisticsPerturbation,
    Transcript,
    initialise,
    mean_gradient,
    mu_ex_post,
    scales_of,
    start_values,
)
from ..heads.settings import LEAST_REACH
from ..privacy.bounds import MinimizerBound, PrototypeBound
from ..privacy.guarantee import total_epsilon
from ..privacy.release import Release
from ..privacy.statistics import StatisticsBound
from ..privacy.transcript import TranscriptBound
from ..privacy.weights import total_of
from ..rows import SINGLE_BLAS_THREAD, n_threads
from ..text import one_line

Array = NDArray[np.float64]

#: Probability, at most, that an honest release fails one of the tests.
FALSE_ALARM = 1e-6
# The four kinds of tests of residuals, and the check of the weights' size, have equal shares.
_LEVEL = FALSE_ALARM / 5.0
# Most blocks for which the blocks of all steps are compared with each other.
_BLOCKS = 10_000
PASS, FAIL, WEAK, CANNOT_CHECK = "PASS", "FAIL", "WEAK", "CANNOT CHECK"


@dataclass(frozen=True)
class Check:
    """Result of one check, as one line of a report."""

    name: str
    #: PASS, FAIL, WEAK or CANNOT CHECK.
    verdict: str
    #: The number found, in words.
    found: str
    #: What the check relies on, or what it would need.
    basis: str
    #: Whether the check used private records; then its result is for their owner alone.
    private: bool = False

    def __post_init__(self) -> None:
        # Both may quote what a stranger wrote.
        for name in ("name", "found"):
            object.__setattr__(self, name, one_line(getattr(self, name)))


@dataclass
class Residuals:
    """Standardised noise of a release."""

    #: Deviates of shape (n_groups, n_blocks, n_values): class blocks, one group for each step.
    blocks: Array
    #: Arrays of that shape that the records or earlier steps fixed before the noise, or zero.
    directions: dict[str, Array] = field(default_factory=dict)
    #: Largest distance by which the solver's tolerance and rounding can move the deviates.
    shift: float = 0.0
    #: Of softmax parameters: deviates less their mean over classes, (n_classes, n_values), before
    #: they are rotated into independent blocks.
    centred: Array | None = None
    #: Deviates that fill no block.
    rest: Array = field(default_factory=lambda: np.empty(0))


def epsilon_after_redraws(
    epsilon: float, delta: float, level: float = FALSE_ALARM
) -> tuple[float, float]:
    """What (epsilon, delta) becomes when releases that fail a test on the records are drawn again.

    ``level`` is the probability, at most, that an honest release fails.
    """
    keeps = 1.0 - level
    grown = math.exp(min(epsilon, 700.0)) * level
    return epsilon - math.log(keeps), min(1.0, (delta + grown) / keeps)


def weight_checks(
    model: ReleasedModel,
    problem: PrivateProblem,
    transcript: Transcript | None = None,
    earlier: Iterable[ReleasedModel] = (),
) -> list[Check]:
    """Checks of released parameters against all records of the fit.

    A descent's noise is in its ``transcript``, where the head keeps none. The noise of ``earlier``
    releases from the same records must be other noise. An honest release fails any of the checks
    with probability at most :data:`FALSE_ALARM`.
    """
    if not _ordinary(model.parameters()):
        return [Check("noise in the weights", FAIL, "they are not finite, or huge", "any", True)]
    if not model.decision_follows():
        basis = "the rule that makes one of the other"
        return [Check("noise in the weights", FAIL, _NOT_FOLLOWING, basis)]
    found = _residuals(model, problem, transcript)
    if isinstance(found, Check):
        return [found]
    others, left_out = [], 0
    for other in earlier:
        known = None
        with contextlib.suppress(Exception):  # a fault of an earlier model does not fail this one
            if np.array_equal(other.classes, model.classes):
                weighed = FitWeights(
                    problem.row_weights, problem.sums_weights, problem.loss_weights
                )
                known = _residuals(other, other.on_coded(problem.X, problem.codes, weighed))
        if isinstance(known, Residuals) and known.blocks.shape[2] == found.blocks.shape[2]:
            others.append(known)
        else:
            left_out += 1
    checks = residual_checks(found, others)
    if left_out:
        why = f"{left_out} of the earlier releases cannot be compared (another shape, or no noise)"
        checks.append(Check("earlier releases", CANNOT_CHECK, why, "blocks of equal length", True))
    return checks


def _ordinary(*arrays: Any) -> bool:
    """Whether numbers are finite, and their squares too."""
    return all(bool((np.abs(values) < 1e100).all()) for values in arrays)


def _residuals(
    model: ReleasedModel, problem: PrivateProblem, transcript: Transcript | None = None
) -> Residuals | Check:
    """Standardised noise of a release, or why there is none to look at."""
    if not isinstance(model.record.bound, TranscriptBound):
        return _of_parameters(model, problem)
    transcript = getattr(model.head, "transcript_", None) if transcript is None else transcript
    if transcript is None:
        return _cannot(
            "a descent's noise is in its transcript: keep it in private "
            "(GradientPerturbation(keep_transcript=True)) and pass it"
        )
    fault = transcript_fault(model, transcript)
    if fault is not None:
        return fault_check(model, fault, _REPLAYED, private=True)
    return _of_transcript(model, problem, transcript)


def residual_checks(found: Residuals, others: Sequence[Residuals] = ()) -> list[Check]:
    """The four kinds of tests: scale, law, mean and reuse."""
    flat = found.blocks.reshape(-1, found.blocks.shape[2])
    return [
        _scale_check(flat, found.rest, found.shift),
        _law_check(np.concatenate([flat.ravel(), found.rest]), found.shift),
        _mean_check(found),
        _reuse_check(found, others),
    ]


def size_check(model: ReleasedModel) -> Check:
    """Whether the released parameters are as long as noise and public limits allow.

    It needs no records: with noise of scale sigma in k values, parameters are no shorter than that
    noise alone (Anderson's inequality), and no longer than it and the longest noiseless ones.
    """
    release = model.record
    bound, parameters = release.bound, model.parameters()
    if not _ordinary(parameters):
        return Check("size of the weights", FAIL, "they are not finite, or huge", _SIZE)
    if not model.decision_follows():
        return Check("size of the weights", FAIL, _NOT_FOLLOWING, _SIZE)
    own = release.mechanism != "output"
    if isinstance(bound, PrototypeBound) and not own:
        sigma = np.broadcast_to(np.asarray(bound.sigma), len(parameters))
        blocks = [parameters[c] / sigma[c] for c in range(len(parameters)) if sigma[c] > 0.0]
        longest = [bound.norm_bound * (1.0 + 1e-6) / s for s in sigma if s > 0.0]
    elif isinstance(bound, MinimizerBound) and not own:
        if bound.loss == "softmax":
            # Centring over classes leaves the orthonormal contrasts of the scores.
            parameters = helmert(len(parameters)) @ parameters
        blocks = [parameters.ravel() / bound.sigma[0]]
        # What is released is within tol / alpha of the minimiser.
        exact = math.sqrt(bound.kind.n_stacked) * bound.norm() * (1.0 + 1e-9)
        longest = [(exact + bound.tol / bound.alpha) / bound.sigma[0]]
    elif isinstance(bound, StatisticsBound) and release.mechanism == "statistics":
        blocks, longest = _statistics_sizes(bound, parameters, model)
    else:
        why = "only noise on the parameters themselves tells how long they must be"
        return Check("size of the weights", CANNOT_CHECK, why, _SIZE)
    level = _LEVEL / (2.0 * len(blocks))
    k = np.array([block.size for block in blocks])
    low, high = np.sqrt(chi2.ppf(level, k)), np.sqrt(chi2.isf(level, k)) + np.array(longest)
    sizes = np.array([np.linalg.norm(block) for block in blocks])
    inside = (sizes >= low) & (sizes <= high)
    # Of several blocks, report the one whose length is closest to a limit.
    worst = int(np.argmin(np.minimum(sizes / low, high / np.maximum(sizes, 1e-300))))
    found = (
        f"length over noise scale {sizes[worst]:.4g}, allowed {low[worst]:.4g} to {high[worst]:.4g}"
    )
    if len(blocks) > 1:
        found += f" (the tightest of {len(blocks)} blocks)"
    return Check("size of the weights", PASS if inside.all() else FAIL, found, _SIZE)


def _statistics_sizes(
    bound: StatisticsBound, released: Array, model: ReleasedModel
) -> tuple[list[Array], list[float]]:
    """Released sums in units of their noise, and the largest lengths of the noiseless ones."""
    layout = Layout.of(bound)
    scale = scales_of(bound)
    total = total_of(bound.weights, bound.n_samples)
    counts: Any = np.full(bound.n_classes, total)
    if bound.weights is not None and bound.weights.class_totals is not None:
        counts = bound.weights.class_totals
    elif model.class_counts is not None:
        counts = model.class_counts
    moment = slice(bound.n_sums, bound.n_sums + layout.n_diagonals)
    noisy: Any = scale > 0.0
    z = released / np.where(noisy, scale, 1.0)
    norm_bound, sigma = bound.norm_bound * (1.0 + 1e-6), bound.sigma
    blocks = list(z[: bound.n_sums])
    longest = [float(n) * norm_bound / sigma[0] for n in counts]
    if bound.moment:
        blocks.append(z[moment][noisy[moment]])
        longest.append(total * norm_bound**2 / sigma[1])
    if layout.n_counts:
        blocks.append(z[moment.stop :][noisy[moment.stop :]])
        longest.append(total * bound.count_constant / sigma[0])
    return blocks, longest


_SIZE = "noise makes parameters no shorter; a noiseless solution is no longer than its proved bound"
_NOT_FOLLOWING = "what the model predicts with does not follow from what was released"
_REPLAYED = "iterates and model follow from the noisy gradients by public rules"


#: Of a map that follows no rule of this version, and whose rounding it cannot bound.
BEYOND_LIMITS = "its map of the rows shortens them more, or along more directions, than any may"


def transcript_fault(model: ReleasedModel, transcript: Transcript) -> str | None:
    """Why a transcript is not that of a model, in words; None when it is. It needs no records.

    What follows from the noisy gradients, and from what the steps saw, by definition alone: every
    version of this package can tell. Whether the steps saw what the released sums tell is for
    :func:`rule_check`.
    """
    bound: Any = model.record.bound
    shape = (bound.descent.n_steps, *bound.shape)
    try:
        stated = _as_arrays(transcript, bound)
    except (AttributeError, TypeError, ValueError):
        begins = f", start of shape {_start_shape(bound)}" if bound.start is not None else ""
        return f"it does not hold arrays of numbers: gradients, iterates, sigma{begins} and the map"
    gradients, iterates, sigma = stated.gradients, stated.iterates, stated.sigma
    if gradients.shape != shape or iterates.shape != shape or sigma.shape != shape[:1]:
        return f"gradients and iterates must be of shape {shape}, sigma one number for each step"
    if not np.allclose(sigma, np.ravel(model.record.sigma), rtol=1e-12, atol=0.0):
        return "its noise scales are not those of the record"
    if not _ordinary(gradients, iterates, stated.start, stated.centre, stated.directions):
        return "it holds huge numbers"
    if (len(stated.centre) > 0) != bound.whitened:
        return "it states a map of the rows where the record has none, or none where it has one"
    if stated.map is not None:
        fault = stated.map.fault(bound.norm_bound, bound.least_reach)
        if fault is not None:
            return f"its map of the rows: {fault}"
        if not stated.map.within_limits:
            return BEYOND_LIMITS
    elif bound.start is None and iterates[0].any():
        return "its first iterate is not zero, where nothing was released before"
    # Iterates with few values do not show the precision of the rows, so both are tried.
    precisions: list[Any] = [np.float64]
    if np.array_equal(iterates.astype(np.float32), iterates):
        precisions.insert(0, np.float32)
    begun = stated.initialisation(bound)
    faults = []
    for precision in precisions:
        followed, fault = _replayed(model, begun, stated, precision)
        for check in (_scale_fault, partial(_ex_post_fault, model.record)):
            if fault is None:
                followed, fault = followed + 1, check(begun, stated, precision)
        if fault is None:
            return None
        faults.append((followed, fault))
    # In the other precision the steps part early: the fault that is found last is the fault.
    return max(faults, key=lambda found: found[0])[1]


def fault_check(model: ReleasedModel, fault: str, basis: str, *, private: bool = False) -> Check:
    """What a fault of a transcript is worth: another rule may have other limits of the map."""
    verdict = FAIL
    if fault == BEYOND_LIMITS and not model.same_rule:
        verdict, fault = CANNOT_CHECK, f"{fault}; {_other_rule(model)}"
    return Check("transcript", verdict, fault, basis, private)


def _other_rule(model: ReleasedModel) -> str:
    return (
        f"its rule {model.record.rule or 'is not named'} is not that of this version; ask "
        f"sklearn_balldp {model.record.version}, and verify again"
    )


def rule_check(model: ReleasedModel, transcript: Transcript) -> Check | None:
    """Check that the steps started from what the released sums give; None without such sums."""
    bound, name = model.record.bound, "start of the steps"
    if not isinstance(bound, TranscriptBound) or bound.start is None:
        return None
    why = "map and first iterate follow from the released sums by the rule that the record names"
    if not model.same_rule:
        return Check(name, CANNOT_CHECK, _other_rule(model), why)
    stated = _as_arrays(transcript, bound)
    begun = initialise(stated.start, model.problem, bound)
    pairs = [(stated.iterates[0], begun.theta)]
    if begun.map is not None:
        # Another machine may turn the signs of eigenvectors: their outer products stay.
        pairs += [(stated.centre, begun.map.centre), (_outer(stated.map), _outer(begun.map))]
        pairs += [(stated.norms, np.array([begun.map.reach, begun.map.norm]))]
        pairs += [(np.array([bound.least_reach]), np.array([LEAST_REACH]))]
    same = all(
        np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-6, atol=1e-6 * _largest(b))
        for a, b in pairs
    )
    found = "as the released sums tell" if same else "it does not follow from the released sums"
    return Check(name, PASS if same else FAIL, found, why)


def _outer(whitening: Any) -> Array:
    outer: Array = (whitening.directions * (1.0 - whitening.factors)) @ whitening.directions.T
    return outer


def _start_shape(bound: TranscriptBound) -> tuple[int, int]:
    return (0, 0) if bound.start is None else Layout.of(bound.start).shape


def _as_arrays(transcript: Transcript, bound: TranscriptBound) -> Transcript:
    """A transcript of float64 arrays, as far as shapes are known beforehand."""
    flat = {"sigma", "centre", "factors", "norms"}
    found = {
        name: np.asarray(getattr(transcript, name), dtype=np.float64)
        for name in Transcript.__dataclass_fields__
    }
    found |= {name: np.ravel(found[name]) for name in flat}
    n_directions = len(found["factors"])
    found["start"] = found["start"].reshape(_start_shape(bound))
    found["directions"] = found["directions"].reshape(len(found["centre"]), n_directions)
    sizes = (len(found["centre"]), len(found["norms"]))
    if sizes not in ((0, 0), (bound.n_features, 2)):
        raise ValueError("a map of the rows has a centre of their length, and two norms.")
    return Transcript(**found)


def _scale_fault(begun: Initialisation, stated: Transcript, precision: Any) -> str | None:
    """First step whose noise scale is below what the gap at its iterate needs; None if none is."""
    for step, (theta, sigma) in enumerate(zip(stated.iterates, stated.sigma, strict=True)):
        needed = begun.bound.step(theta, step, begun.rounding(theta, precision))[1]
        if not sigma >= needed * (1.0 - 1e-6):
            found = f"the noise scale of step {step} is {sigma:.6g}"
            return f"{found}, the gap at its iterate asks for {needed:.6g}"
    return None


def _ex_post_fault(
    release: Release, begun: Initialisation, stated: Transcript, precision: Any
) -> str | None:
    """Why the record's ex-post epsilon does not cover these iterates; None if it does."""
    bound = begun.bound
    largest = full_radius(bound.norm_bound)
    moved = [bound.sensitivity(t, largest, begun.rounding(t, precision)) for t in stated.iterates]
    whole: Any = release.bound
    mu = mu_ex_post(whole, (np.array(moved) / stated.sigma).tolist())
    needed = total_epsilon(mu, release.delta, release.radius_epsilon)
    epsilon = release.epsilon_full_radius_ex_post
    if epsilon is not None and epsilon >= needed * (1.0 - 1e-6):
        return None
    return f"epsilon_full_radius_ex_post={epsilon!r} is {needed!r} at its iterates"


def _replayed(
    model: ReleasedModel, begun: Initialisation, stated: Transcript, precision: Any
) -> tuple[int, str | None]:
    """How many steps follow from the gradients, in one precision, and which one does not.

    After all steps it is the parameters that do not, or None.
    """
    replay = begun.iterates(model.record.alpha, precision)
    for step, gradient in enumerate(stated.gradients):
        own, told = replay.thetas[0], stated.iterates[step]
        # As numpy.allclose has it for finite numbers, at a tenth of its time for short ones.
        if not (np.abs(own - told) <= 1e-300 + 1e-12 * np.abs(told)).all():
            fault = f"the iterate of step {step} does not follow from what was released before it"
            return step, fault
        replay.advance(gradient[None])
    published = model.published(begun.parameters(replay.released()[0]))
    for name in ("coef_", "intercept_"):
        own, value = getattr(model.head, name), published[name]
        if np.shape(own) != np.shape(value) or not np.allclose(
            own, value, rtol=1e-12, atol=1e-12 * _largest(value)
        ):
            return len(stated.gradients), f"{name} does not follow from its gradients"
    return len(stated.gradients), None


def _largest(values: Any) -> float:
    return float(np.max(np.abs(values), initial=0.0))


def _of_parameters(model: ReleasedModel, problem: PrivateProblem) -> Residuals | Check:
    """Residuals of parameters that are noisy values as they are."""
    release, promise = model.record, model.promise
    released = model.parameters()
    read = partial(_noiseless, model.mechanism, promise)
    summed = isinstance(release.bound, StatisticsBound)
    exact = _nearest(read, problem, released) if summed else read(problem)
    if exact is None or exact[0].shape != released.shape:
        return _cannot(
            "what this mechanism publishes is not its noisy values as they are, so that its noise "
            "cannot be read off them"
        )
    values, sigma = exact[0], np.broadcast_to(np.asarray(exact[1], dtype=float), released.shape)
    centred = None
    if problem.loss == "softmax":
        if np.ptp(sigma) > 0.0 or not sigma.any():
            return _cannot("its noise differs between classes, which are published centred")
        centred = (released - values) / sigma
        centred = centred - centred.mean(axis=0)
        rotation = helmert(len(values))
        values, released, sigma = rotation @ values, rotation @ released, sigma[1:]
    noisy = sigma > 0.0
    if not (released[~noisy] == values[~noisy]).all():
        return Check(
            "values without noise",
            FAIL,
            "a block of an absent class is not zero",
            "values of noise scale 0 do not depend on records, and are published as they are",
            True,
        )
    columns = noisy.any(axis=0)
    rows: Any = noisy[:, columns].all(axis=1) & noisy.any(axis=1)
    if not rows.any():
        return _cannot("its noise is in no rectangle of values")
    part = np.ix_(rows, columns)
    # The rest: rows of which only some values have noise.
    left = noisy & ~rows[:, None]
    rest = (released[left] - values[left]) / sigma[left]
    sigma, mean = sigma[part], values[part] / sigma[part]
    z = (released[part] - values[part]) / sigma
    # The shift covers the rounding of large values and the tolerance of the solver.
    shift = 2.0**-46 * float(np.linalg.norm(mean))
    if release.tol:
        shift += 2.0 * release.tol / (release.alpha * float(sigma.min()))
    return Residuals(z[None], {"the noiseless solution": mean[None]}, shift, centred, rest)


def _narrowed(problem: PrivateProblem) -> PrivateProblem | None:
    """The problem in single precision, where its rows lose nothing; None elsewhere."""
    with np.errstate(all="ignore"):
        rows = problem.X.astype(np.float32)
    if problem.X.dtype == np.float32 or not np.array_equal(rows, problem.X):
        return None
    return problem.with_precision(np.float32)


def _nearest(
    read: Callable[[PrivateProblem], Any], problem: PrivateProblem, released: Array
) -> Any:
    """Noiseless sums and their scales, of the precision that explains the released sums better."""
    found, narrow = read(problem), _narrowed(problem)
    # The fit may have summed float32 rows that are stored as float64 now: try both.
    other = None if found is None or narrow is None else read(narrow)
    if other is None:
        return found
    farther = np.linalg.norm(found[0] - released) > np.linalg.norm(other[0] - released)
    return other if farther else found


def _noiseless(
    mechanism: Mechanism, promise: Promise, problem: PrivateProblem
) -> tuple[Array, Any] | None:
    """Values that a mechanism adds its noise to, and the noise scales; None if unknown."""
    kind = type(mechanism)
    run, read = (next(c for c in kind.__mro__ if n in vars(c)) for n in ("run", "noiseless"))
    # If a subclass overrides run but not noiseless, its own run gives the noiseless values.
    reader = Mechanism.noiseless if run is not read and issubclass(run, read) else kind.noiseless
    own = kind not in (OutputPerturbation, PrototypePerturbation, StatisticsPerturbation)
    try:
        with np.errstate(all="ignore"):
            return reader(mechanism, problem, promise)
    except Exception:
        if own:
            return None  # a custom mechanism may reject the object that stands in for noise
        raise


def _of_transcript(
    model: ReleasedModel, problem: PrivateProblem, transcript: Transcript
) -> Residuals:
    """Residuals of the noisy gradients, at the iterates where they were taken."""
    bound: Any = model.record.bound
    stated = _as_arrays(transcript, bound)
    shape, released, iterates = stated.gradients.shape, stated.start, stated.iterates
    means = np.empty(shape)
    single = np.array_equal(iterates.astype(np.float32), iterates)
    if single and shape[0] > 1 and problem.X.dtype == np.float64:
        # The fit used float32 rows, and the file format has widened them since.
        problem = problem.with_precision(np.float32)
    with ThreadPoolExecutor(n_threads(*problem.X.shape)) as pool, SINGLE_BLAS_THREAD:
        mean = mean_gradient(problem, stated.initialisation(bound), pool)
        # One step at a time, as in the fit: products of another shape round differently.
        for step, theta in enumerate(iterates):
            means[step] = mean(theta[None])[0]
    z = (stated.gradients - means) / stated.sigma[:, None, None]
    rest = np.empty(0)
    if bound.start is not None:
        values, scale = _nearest(lambda rows: start_values(rows, bound), problem, released)
        noisy = scale > 0.0
        rest = (released - values)[noisy] / scale[noisy]
    directions = {"the iterate": iterates, "the noiseless gradient": means}
    return Residuals(z, directions, rest=rest)


def _cannot(why: str) -> Check:
    return Check("noise in the weights", CANNOT_CHECK, why, "residuals need noiseless values", True)


def _verdict(p: float) -> str:
    return PASS if p >= _LEVEL else FAIL


def _scale_check(z: Array, rest: Array, shift: float) -> Check:
    """Squared lengths of all values and of each block are chi-square."""

    def two_sided(size: float, k: int) -> float:
        least, most = max(size - shift, 0.0), size + shift
        return 2.0 * min(float(chi2.sf(least**2, k)), float(chi2.cdf(most**2, k)))

    length, n_values = math.hypot(np.linalg.norm(z), np.linalg.norm(rest)), z.size + rest.size
    p = two_sided(length, n_values)
    sizes = np.linalg.norm(z, axis=1)
    blocks = min(two_sided(float(size), z.shape[1]) for size in (sizes.min(), sizes.max()))
    p = min(1.0, 2.0 * min(p, len(z) * blocks))
    ratios = sizes / math.sqrt(z.shape[1])
    found = (
        f"{length / math.sqrt(n_values):.4f} of the stated scale over {n_values} values "
        f"(blocks {ratios.min():.3f} to {ratios.max():.3f}), p = {p:.2g}"
    )
    return Check("scale of the noise", _verdict(p), found, "chi-square of the residuals", True)


def _law_check(z: Array, shift: float) -> Check:
    """Kolmogorov-Smirnov distance of all entries from the normal law."""
    ordered, n = np.sort(z), len(z)
    below = norm.cdf(ordered)
    ranks = np.arange(1, n + 1) / n
    distance = float(max((ranks - below).max(), (below - ranks + 1.0 / n).max()))
    if shift > 0.0:
        # At most shift^2 / h^2 entries move by more than h; the others change D by up to 0.4 h.
        h = (shift**2 / (0.2 * n)) ** (1.0 / 3.0)
        distance = max(0.0, distance - 0.4 * h - shift**2 / (h**2 * n))
    p = float(kstwo.sf(distance, n))
    found = f"largest distance from the normal law {distance:.4f}, p = {p:.2g}"
    return Check("law of the noise", _verdict(p), found, "Kolmogorov-Smirnov", True)


def _mean_check(found: Residuals) -> Check:
    """Projections on directions fixed before the noise are standard normal."""
    z = found.blocks
    ones = np.ones_like(z)
    tests: list[tuple[float, str]] = []
    for name, direction in {"all ones": ones, **found.directions}.items():
        sizes = np.sqrt(np.einsum("gbd,gbd->g", direction, direction))
        known = sizes > 0.0
        if known.any():
            inner = np.einsum("gbd,gbd->g", z[known], direction[known]) / sizes[known]
            score = max(0.0, abs(float(inner.sum())) / math.sqrt(known.sum()) - found.shift)
            tests.append((score, name))
    score, name = max(tests)
    p = min(1.0, len(tests) * 2.0 * float(norm.sf(score)))
    text = f"{score:.2f} standard deviations along {name}, p = {p:.2g}"
    return Check("mean of the noise", _verdict(p), text, "projections fixed beforehand", True)


def _reuse_check(found: Residuals, others: Sequence[Residuals]) -> Check:
    """Correlations of blocks with each other, and with those of earlier releases."""
    z = found.blocks
    size = float(np.linalg.norm(z, axis=2).min())
    slack = 4.0 * found.shift / size if size > 0.0 else 0.0
    largest, n_pairs, p = 0.0, 0, 1.0
    for inner, n_values in _correlations(z, [other.blocks for other in others]):
        # With fewer than three values, independent blocks are often nearly parallel.
        if inner.size and n_values >= 3:
            n_pairs += inner.size
            top = float(np.abs(inner).max())
            largest = max(largest, top)
            r = min(max(top - slack, 0.0), 1.0)
            score = r * math.sqrt((n_values - 1.0) / max(1.0 - r**2, 1e-300))
            p = min(p, 2.0 * float(student.sf(score, n_values - 1)))
    if n_pairs == 0:
        why = "no two blocks of three values or more, here or in an earlier release"
        return Check("reuse of noise", CANNOT_CHECK, why, "correlations of blocks", True)
    if found.centred is not None and len(found.centred) > 2:
        again, n_sums = _sums_of_classes(found.centred, found.shift)
        p, n_pairs = min(p, again), n_pairs + n_sums
    p = min(1.0, n_pairs * p)
    text = f"largest correlation {largest:.3f} over {n_pairs} pairs of blocks, p = {p:.2g}"
    return Check("reuse of noise", _verdict(p), text, "correlations of aligned blocks", True)


def _correlations(z: Array, others: Sequence[Array]) -> Iterator[tuple[Array, int]]:
    """Correlations of every two blocks that noise could be copied between, and their length."""
    n_groups, n_blocks, n_values = z.shape
    upper = np.triu_indices(n_blocks, 1)
    blocks = _unit(z.reshape(-1, n_values))
    few = len(blocks) <= _BLOCKS
    for start in range(0, len(blocks), n_blocks):
        group = blocks[start : start + n_blocks]
        yield (group @ group.T)[upper], n_values
        if few:
            yield (group @ blocks[start + n_blocks :].T).ravel(), n_values
        for other in others:
            theirs = _unit(other.reshape(-1, n_values))
            if len(theirs) <= _BLOCKS:
                yield (group @ theirs.T).ravel(), n_values
    for other in (z, *others):
        if n_groups > 1 and other.shape[1:] == z.shape[1:]:
            ours, theirs = (_unit(steps.reshape(len(steps), -1)) for steps in (z, other))
            pairs = (
                np.triu_indices(n_groups, 1) if other is z else np.indices((n_groups, len(theirs)))
            )
            yield (ours @ theirs.T)[tuple(pairs)].ravel(), n_blocks * n_values


def _sums_of_classes(centred: Array, shift: float) -> tuple[float, int]:
    """Smallest p of the lengths of sums and differences of two classes, and how many there are.

    If one class has the noise of another with its sign flipped, only these lengths show it.
    """
    n_classes, n_values = centred.shape
    squares = np.vecdot(centred, centred)
    first, second = np.triu_indices(n_classes, 1)
    inner = (centred @ centred.T)[first, second]
    p = 1.0
    for sign, variance in ((-1.0, 2.0), (1.0, 2.0 * (1.0 - 2.0 / n_classes))):
        lengths = np.sqrt(np.maximum(squares[first] + squares[second] + 2.0 * sign * inner, 0.0))
        lengths = lengths / math.sqrt(variance)
        least = max(float(lengths.max()) - shift * math.sqrt(n_classes), 0.0)
        most = float(lengths.min()) + shift * math.sqrt(n_classes)
        p = min(
            p, 2.0 * float(chi2.sf(least**2, n_values)), 2.0 * float(chi2.cdf(most**2, n_values))
        )
    return p, 2 * len(first)


def _unit(rows: Array) -> Array:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
