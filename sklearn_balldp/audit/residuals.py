r"""Does a released model carry the noise that it states? Tests for whoever holds the records.

The owner knows the records D and the released parameters. These, less what the records give without
noise, and divided by the noise scale, must be standard normal deviates,

.. math:: z = (\tilde\theta - \theta(D)) / \sigma \sim N(0, I),

and so must every noisy gradient of a kept transcript. Four kinds of tests look at z: its length,
the law of its entries, its projections on directions that were fixed before the noise, and what its
blocks have in common with each other and with earlier releases.

**They refute, and certify nothing.** They find mistakes: a wrong scale, a shift, another law, noise
used twice, other weights, other records. A publisher who lies cleverly passes: with noise that he
can draw again (a seed he kept), noise that is missing in a few directions, draws selected until
they pass, records that differ in few places.

**A verdict must not decide whether to publish.** Whoever draws again after a FAIL publishes noise
conditioned on the records: with alpha the level of all tests, (epsilon, delta) becomes
:func:`conditioned`. Find the fault, and begin again with a budget of its own.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert
from scipy.stats import chi2, kstwo, norm
from scipy.stats import t as student

from ..adjacency import full_radius
from ..heads.base import BaseBallDPClassifier
from ..heads.descent import Steps, Transcript, mean_gradient
from ..heads.mechanism import Mechanism, PrivateProblem, Promise
from ..heads.output import OutputPerturbation
from ..heads.ridge_prototype import PrototypePerturbation
from ..heads.start import Beginning, beginning, start_values
from ..heads.statistics import Layout, StatisticsPerturbation, scales_of
from ..heads.weighing import Weighed
from ..privacy.bounds import MinimizerBound, PrototypeBound
from ..privacy.guarantee import total_epsilon
from ..privacy.release import Release
from ..privacy.statistics import StatisticsBound
from ..privacy.transcript import TranscriptBound
from ..privacy.weights import total_of
from ..rows import SINGLE_BLAS_THREAD, n_threads

Array = NDArray[np.float64]

#: Probability, at most, that an honest release fails one of the tests.
FALSE_ALARM = 1e-6
# Each of the five kinds of tests has an equal share.
_LEVEL = FALSE_ALARM / 5.0
# Blocks of all steps are compared with each other up to this many of them.
_BLOCKS = 10_000
PASS, FAIL, CANNOT = "PASS", "FAIL", "CANNOT CHECK"


@dataclass(frozen=True)
class Check:
    """One line of a verdict.

    Attributes
    ----------
    name : str
        What was looked at.
    verdict : {"PASS", "FAIL", "CANNOT CHECK"}
        How it ended.
    found : str
        The number found, in words.
    rests_on : str
        What the check relies on, or what it would need.
    private : bool
        Whether private records were looked at: then it is for their owner, not for publication.
    """

    name: str
    verdict: str
    found: str
    rests_on: str
    private: bool = False


@dataclass
class Residuals:
    """Standardised noise of a release.

    Attributes
    ----------
    blocks : ndarray of shape (n_groups, n_blocks, n_values)
        Deviates: class blocks (one group), or class blocks of every step (a group for each).
    directions : dict of str to ndarray
        Arrays of that shape, functions of the records or of the history before the noise; zero
        where there is no direction.
    shift : float
        Length by which the solver's tolerance may move all of them.
    centred : ndarray of shape (n_classes, n_values) or None
        Of softmax parameters: deviates less their mean over classes, before they are rotated into
        independent blocks.
    rest : ndarray of shape (n_rest,)
        Deviates that fill no block.
    """

    blocks: Array
    directions: dict[str, Array] = field(default_factory=dict)
    shift: float = 0.0
    centred: Array | None = None
    rest: Array = field(default_factory=lambda: np.empty(0))


def conditioned(epsilon: float, delta: float, level: float = FALSE_ALARM) -> tuple[float, float]:
    """What (epsilon, delta) becomes when releases that fail a test on the records are drawn again.

    Parameters
    ----------
    epsilon, delta : float
        Guarantee of one release.
    level : float
        Probability, at most, that an honest one fails.

    Returns
    -------
    tuple of float
        epsilon and delta of what is published in the end.
    """
    keeps = 1.0 - level
    grown = math.exp(min(epsilon, 700.0)) * level
    return epsilon - math.log(keeps), min(1.0, (delta + grown) / keeps)


def weight_checks(
    head: BaseBallDPClassifier,
    problem: PrivateProblem,
    transcript: Transcript | None = None,
    earlier: Iterable[BaseBallDPClassifier] = (),
) -> list[Check]:
    """Checks of released parameters against the records they were fitted on.

    Parameters
    ----------
    head : estimator
        Fitted head.
    problem : PrivateProblem
        All records of the fit.
    transcript : Transcript, optional
        Of a descent: its noisy gradients, where the head keeps none.
    earlier : iterable of estimator
        Earlier releases from the same records, whose noise must be other noise.

    Returns
    -------
    list of Check
        At most :data:`FALSE_ALARM` in all for an honest release.
    """
    if not _ordinary(head._parameters_as_published()):
        return [Check("noise in the weights", FAIL, "they are not finite, or huge", "any", True)]
    if not head._parameters_follow():
        rests_on = "the rule that makes one of the other"
        return [Check("noise in the weights", FAIL, _NOT_FOLLOWING, rests_on)]
    found = _residuals(head, problem, transcript)
    if isinstance(found, Check):
        return [found]
    others, left_out = [], 0
    for other in earlier:
        known = None
        with contextlib.suppress(Exception):  # whatever another model is, it convicts nobody
            if np.array_equal(other.classes_, head.classes_):
                weighed = Weighed(problem.row_weights, problem.sums_weights, problem.loss_weights)
                known = _residuals(other, other._of_rows(problem.X, problem.codes, weighed))
        if isinstance(known, Residuals) and known.blocks.shape[2] == found.blocks.shape[2]:
            others.append(known)
        else:
            left_out += 1
    checks = residual_checks(found, others)
    if left_out:
        why = f"{left_out} of the earlier releases cannot be compared (another shape, or no noise)"
        checks.append(Check("earlier releases", CANNOT, why, "blocks of equal length", True))
    return checks


def _ordinary(*arrays: Any) -> bool:
    """Whether numbers are finite, and their squares too."""
    return all(bool((np.abs(values) < 1e100).all()) for values in arrays)


def _residuals(
    head: BaseBallDPClassifier, problem: PrivateProblem, transcript: Transcript | None = None
) -> Residuals | Check:
    """Standardised noise of a head, or why there is none to look at."""
    if not isinstance(head.release_.bound, TranscriptBound):
        return _of_parameters(head, problem)
    transcript = getattr(head, "transcript_", None) if transcript is None else transcript
    if transcript is None:
        return _cannot(
            "a descent's noise is in its transcript: keep it in private "
            "(GradientPerturbation(keep_transcript=True)) and pass it"
        )
    fault = transcript_fault(head, transcript)
    if fault is not None:
        return Check("transcript", FAIL, fault, _REPLAYED, True)
    return _of_transcript(head, problem, transcript)


def residual_checks(found: Residuals, others: Sequence[Residuals] = ()) -> list[Check]:
    """The four kinds of tests: scale, law, mean and reuse."""
    flat = found.blocks.reshape(-1, found.blocks.shape[2])
    return [
        _scale_check(flat, found.rest, found.shift),
        _law_check(np.concatenate([flat.ravel(), found.rest]), found.shift),
        _mean_check(found),
        _reuse_check(found, others),
    ]


def size_check(head: BaseBallDPClassifier) -> Check:
    """Whether the released parameters are as long as noise and public limits allow.

    It needs no records: with noise of scale sigma in k values, parameters are no shorter than that
    noise alone (Anderson's inequality), and no longer than it and the longest noiseless ones.
    """
    release = head.release_
    bound, parameters = release.bound, head._parameters_as_published()
    if not _ordinary(parameters):
        return Check("size of the weights", FAIL, "they are not finite, or huge", _SIZE)
    if not head._parameters_follow():
        return Check("size of the weights", FAIL, _NOT_FOLLOWING, _SIZE)
    own = release.mechanism != "output"
    if isinstance(bound, PrototypeBound) and not own:
        sigma = np.broadcast_to(np.asarray(bound.sigma), len(parameters))
        blocks = [parameters[c] / sigma[c] for c in range(len(parameters)) if sigma[c] > 0.0]
        longest = [bound.norm_bound * (1.0 + 1e-6) / s for s in sigma if s > 0.0]
    elif isinstance(bound, MinimizerBound) and not own:
        if bound.loss == "softmax":
            parameters = _contrasts(len(parameters)) @ parameters
        blocks = [parameters.ravel() / bound.sigma[0]]
        # What is released is within tol / alpha of the minimiser.
        exact = math.sqrt(bound.kind.n_stacked) * bound.norm() * (1.0 + 1e-9)
        longest = [(exact + bound.tol / bound.alpha) / bound.sigma[0]]
    elif isinstance(bound, StatisticsBound) and release.mechanism == "statistics":
        blocks, longest = _statistics_sizes(bound, parameters, head)
    else:
        why = "only noise on the parameters themselves tells how long they must be"
        return Check("size of the weights", CANNOT, why, _SIZE)
    level = _LEVEL / (2.0 * len(blocks))
    k = np.array([block.size for block in blocks])
    low, high = np.sqrt(chi2.ppf(level, k)), np.sqrt(chi2.isf(level, k)) + np.array(longest)
    sizes = np.array([np.linalg.norm(block) for block in blocks])
    inside = (sizes >= low) & (sizes <= high)
    # Of several lengths the one that is nearest to where it may not be.
    worst = int(np.argmin(np.minimum(sizes / low, high / np.maximum(sizes, 1e-300))))
    found = (
        f"length over noise scale {sizes[worst]:.4g}, allowed {low[worst]:.4g} to {high[worst]:.4g}"
    )
    if len(blocks) > 1:
        found += f" (the tightest of {len(blocks)} blocks)"
    return Check("size of the weights", PASS if inside.all() else FAIL, found, _SIZE)


def _statistics_sizes(
    bound: StatisticsBound, table: Array, head: BaseBallDPClassifier
) -> tuple[list[Array], list[float]]:
    """Released sums in units of their noise, and how long they may be without it."""
    layout = Layout.of(bound)
    scale = scales_of(bound)
    total = total_of(bound.weights, bound.n_samples)
    counts: Any = np.full(bound.n_classes, total)
    if bound.weights is not None and bound.weights.class_totals is not None:
        counts = bound.weights.class_totals
    elif hasattr(head, "class_counts_"):
        counts = head.class_counts_
    moment = slice(bound.n_sums, bound.n_sums + layout.n_diagonals)
    noisy: Any = scale > 0.0
    z = table / np.where(noisy, scale, 1.0)
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


def transcript_fault(head: BaseBallDPClassifier, transcript: Transcript) -> str | None:
    """Why a transcript is not that of a model, in words; None when it is. It needs no records."""
    release, bound, problem = head.release_, head.release_.bound, head._released_problem()
    shape = (bound.descent.n_steps, *bound.shape)
    table = Layout.of(bound.start).shape if bound.start is not None else (0, 0)
    try:
        start = np.asarray(transcript.start, dtype=np.float64).reshape(table)
        gradients = np.asarray(transcript.gradients, dtype=np.float64)
        iterates = np.asarray(transcript.iterates, dtype=np.float64)
        sigma = np.ravel(np.asarray(transcript.sigma, dtype=np.float64))
    except (AttributeError, TypeError, ValueError):
        begins = f", and start of shape {table}" if bound.start is not None else ""
        return f"it does not hold three arrays of numbers: gradients, iterates and sigma{begins}"
    if gradients.shape != shape or iterates.shape != shape or sigma.shape != shape[:1]:
        return f"gradients and iterates must be of shape {shape}, sigma one number for each step"
    if not np.allclose(sigma, np.ravel(release.sigma), rtol=1e-12, atol=0.0):
        return "its noise scales are not those of the record"
    if not _ordinary(gradients, iterates, start):
        return "it holds huge numbers"
    # In the precision of the rows, which iterates of few values do not tell.
    precisions: list[Any] = [np.float64]
    if np.array_equal(iterates.astype(np.float32), iterates):
        precisions.insert(0, np.float32)
    begun = beginning(start, problem, bound)
    faults = [
        _replay_fault(head, begun, gradients, iterates, precision)
        or _scale_fault(begun, iterates, sigma, precision)
        or _ex_post_fault(release, begun, iterates, sigma, precision)
        for precision in precisions
    ]
    return None if None in faults else faults[-1]


def _scale_fault(begun: Beginning, iterates: Array, sigma: Array, precision: Any) -> str | None:
    """Where the noise scale is not what the gap at the iterate, and the rows' rounding, ask for."""
    for step, theta in enumerate(iterates):
        needed = begun.bound.step(theta, step, begun.rounding(theta, precision))[1]
        if not math.isclose(needed, sigma[step], rel_tol=1e-6):
            stated = f"the noise scale of step {step} is {sigma[step]:.6g}"
            return f"{stated}, the gap at its iterate asks for {needed:.6g}"
    return None


def _ex_post_fault(
    release: Release, begun: Beginning, iterates: Array, sigma: Array, precision: Any
) -> str | None:
    """Whether the figure ex post is that of these iterates."""
    bound = begun.bound
    largest = full_radius(bound.norm_bound)
    moved = [bound.sensitivity(t, largest, begun.rounding(t, precision)) for t in iterates]
    whole: Any = release.bound
    mu = Steps(spent=list(np.array(moved) / sigma)).mu_ex_post(whole)
    needed = total_epsilon(mu, release.delta, release.radius_epsilon)
    stated = release.epsilon_full_radius_ex_post
    if stated is not None and math.isclose(stated, needed, rel_tol=1e-6):
        return None
    return f"epsilon_full_radius_ex_post={stated!r} is {needed!r} at its iterates"


def _replay_fault(
    head: BaseBallDPClassifier,
    begun: Beginning,
    gradients: Array,
    iterates: Array,
    precision: Any,
) -> str | None:
    """Where iterates or the model do not follow from the gradients, in one precision."""
    problem, bound = head._released_problem(), head.release_.bound
    replay = begun.iterates(head.release_.alpha, precision)
    # A start is made of eigenvectors, which another machine rounds otherwise.
    exact = bound.start is None
    for step, gradient in enumerate(gradients):
        rtol, atol = (1e-12, 1e-300) if exact else (1e-6, 1e-6 * _largest(iterates[0]))
        if not np.allclose(replay.thetas[0], iterates[step], rtol=rtol, atol=atol):
            return f"the iterate of step {step} does not follow from what was released before it"
        replay.advance(gradient[None])
    parameters = begun.parameters(replay.released()[0])
    published = head._publish(parameters, problem, bound)
    for name, value in published.items():
        stated = getattr(head, name)
        close = 1e-12 if exact else 1e-6
        same = np.shape(stated) == np.shape(value) and np.allclose(
            stated, value, rtol=close, atol=close * _largest(value)
        )
        if name in ("coef_", "intercept_") and not same:
            return f"{name} does not follow from its gradients"
    return None


def _largest(values: Any) -> float:
    return float(np.max(np.abs(values), initial=0.0))


def _contrasts(n_scores: int) -> Array:
    """Orthonormal contrasts of scores: what centring over classes leaves of softmax parameters."""
    return helmert(n_scores)


def _of_parameters(head: BaseBallDPClassifier, problem: PrivateProblem) -> Residuals | Check:
    """Residuals of parameters that are noisy values as they are."""
    release = head.release_
    promise = Promise(release.bound, release.sensitivity, release.sigma)
    exact = _noiseless(head._released_by(), problem, promise)
    released = head._parameters_as_published()
    narrow = _narrowed(problem)
    if isinstance(release.bound, StatisticsBound) and narrow is not None and exact is not None:
        # Sums in single precision: as the fit made them, whatever format the rows came in since.
        other = _noiseless(head._released_by(), narrow, promise)
        if other is not None and _farther(exact[0], other[0], released):
            exact = other
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
        rotation = _contrasts(len(values))
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
    # Rows with noise in some of their values are left.
    left = noisy & ~rows[:, None]
    rest = (released[left] - values[left]) / sigma[left]
    sigma, mean = sigma[part], values[part] / sigma[part]
    z = (released[part] - values[part]) / sigma
    # What the solver's tolerance leaves open, and what rounding of large values does.
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


def _farther(one: Array, other: Array, released: Array) -> bool:
    return bool(np.linalg.norm(one - released) > np.linalg.norm(other - released))


def _noiseless(
    mechanism: Mechanism, problem: PrivateProblem, promise: Promise
) -> tuple[Array, Any] | None:
    """What a mechanism adds its noise to; None where that cannot be told."""
    kind = type(mechanism)
    run, read = (next(c for c in kind.__mro__ if n in vars(c)) for n in ("run", "noiseless"))
    # One that inherits the reading, and runs otherwise, is read by its run.
    reader = Mechanism.noiseless if run is not read and issubclass(run, read) else kind.noiseless
    own = kind not in (OutputPerturbation, PrototypePerturbation, StatisticsPerturbation)
    try:
        with np.errstate(all="ignore"):
            return reader(mechanism, problem, promise)
    except Exception:
        if own:
            return None  # it may refuse noise that is none
        raise


def _of_transcript(
    head: BaseBallDPClassifier, problem: PrivateProblem, transcript: Transcript
) -> Residuals:
    """Residuals of the noisy gradients, at the iterates where they were taken."""
    bound: Any = head.release_.bound
    shape = (bound.descent.n_steps, *bound.shape)
    released = np.asarray(transcript.start, dtype=np.float64)
    means = np.empty(shape)
    iterates = np.asarray(transcript.iterates, dtype=np.float64)
    single = np.array_equal(iterates.astype(np.float32), iterates)
    if single and shape[0] > 1 and problem.X.dtype == np.float64:
        # The rows of the fit, which another format has widened.
        problem = problem.with_precision(np.float32)
    with ThreadPoolExecutor(n_threads(*problem.X.shape)) as pool, SINGLE_BLAS_THREAD:
        mean = mean_gradient(problem, beginning(released, problem, bound), pool)
        # One by one, as the fit did: other products round otherwise, all records alike.
        for step, theta in enumerate(iterates):
            means[step] = mean(theta[None])[0]
    sigma = np.ravel(transcript.sigma)[:, None, None]
    z = (np.asarray(transcript.gradients) - means) / sigma
    rest = np.empty(0)
    if bound.start is not None:
        values, scale = start_values(problem, bound)
        narrow = _narrowed(problem)
        if narrow is not None:
            other = start_values(narrow, bound)[0]
            values = other if _farther(values, other, released) else values
        noisy = scale > 0.0
        rest = (released - values)[noisy] / scale[noisy]
    directions = {"the iterate": iterates, "the noiseless gradient": means}
    return Residuals(z, directions, rest=rest)


def _cannot(why: str) -> Check:
    return Check("noise in the weights", CANNOT, why, "residuals need noiseless values", True)


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
        # Entries that move by more than h are shift^2 / h^2 at most; the others move D by 0.4 h.
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
        # In two dimensions any two blocks are all but parallel at times.
        if inner.size and n_values >= 3:
            n_pairs += inner.size
            top = float(np.abs(inner).max())
            largest = max(largest, top)
            r = min(max(top - slack, 0.0), 1.0)
            score = r * math.sqrt((n_values - 1.0) / max(1.0 - r**2, 1e-300))
            p = min(p, 2.0 * float(student.sf(score, n_values - 1)))
    if n_pairs == 0:
        why = "no two blocks of three values or more, here or in an earlier release"
        return Check("reuse of noise", CANNOT, why, "correlations of blocks", True)
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

    Copies with the sign turned leave nothing in the rotated blocks but their length.
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
