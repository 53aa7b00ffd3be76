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

**A verdict must not decide whether to publish.** Who draws again after a FAIL publishes noise
conditioned on the records: with alpha the level of all tests, (epsilon, delta) becomes
:func:`conditioned`. Find the fault, and begin again with a budget of its own.
"""

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

from ..heads.base import BaseBallDPClassifier
from ..heads.descent import Iterates, Transcript, mean_gradient, parameters_of
from ..heads.mechanism import PrivateProblem, Promise
from ..privacy.bounds import MinimizerBound, PrototypeBound, TranscriptBound
from ..rows import SINGLE_BLAS_THREAD, row_ranges

Array = NDArray[np.float64]

#: Probability, at most, that an honest release fails one of the tests.
FALSE_ALARM = 1e-6
# Each of the five kinds of tests has an equal share.
_LEVEL = FALSE_ALARM / 5.0
# Gradients of all steps are computed for this many values at a time.
_STEP_VALUES = 2**22
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
        The statement that it rests on, or what would be needed.
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
    """

    blocks: Array
    directions: dict[str, Array] = field(default_factory=dict)
    shift: float = 0.0


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
    bound = head.release_.bound
    if isinstance(bound, TranscriptBound):
        transcript = getattr(head, "transcript_", None) if transcript is None else transcript
        if transcript is None:
            return [
                _cannot(
                    "a descent's noise is in its transcript: keep it in private "
                    "(GradientPerturbation(keep_transcript=True)) and pass it"
                )
            ]
        fault = transcript_fault(head, transcript)
        if fault is not None:
            return [Check("transcript", FAIL, fault, _REPLAYED, True)]
        found = _of_transcript(head, problem, transcript)
        if isinstance(found, Check):
            return [found]
        others: list[Residuals] = []
    else:
        own = _of_parameters(head, problem)
        if own is None:
            return [
                _cannot(
                    "what this mechanism publishes is not its noisy values as they are, so "
                    "that its noise cannot be read off them"
                )
            ]
        found = own
        if isinstance(found, Check):
            return [found]
        pairs = [
            (other, other._known(problem.X, head.classes_[problem.codes])) for other in earlier
        ]
        others = [r for r in (_of_parameters(*pair) for pair in pairs) if isinstance(r, Residuals)]
    return residual_checks(found, others)


def residual_checks(found: Residuals, others: Sequence[Residuals] = ()) -> list[Check]:
    """The four kinds of tests: scale, law, mean and reuse."""
    flat = found.blocks.reshape(-1, found.blocks.shape[2])
    return [
        _scale_check(flat, found.shift),
        _law_check(flat.ravel(), found.shift),
        _mean_check(found),
        _reuse_check(found, others),
    ]


def size_check(head: BaseBallDPClassifier) -> Check:
    """Whether the released parameters are as long as noise and public limits allow.

    It needs no records: with noise of scale sigma in k values, parameters are no shorter than that
    noise alone (Anderson's inequality), and no longer than it and the longest noiseless ones.
    """
    bound = head.release_.bound
    parameters = head._parameters_as_published()
    if isinstance(bound, PrototypeBound):
        sigma = np.broadcast_to(np.asarray(bound.sigma), len(parameters))
        blocks = [parameters[c] / sigma[c] for c in range(len(parameters)) if sigma[c] > 0.0]
        longest = [bound.norm_bound * (1.0 + 1e-6) / s for s in sigma if s > 0.0]
    elif isinstance(bound, MinimizerBound):
        if bound.loss == "softmax":
            parameters = _contrasts(len(parameters)) @ parameters
        blocks = [parameters.ravel() / bound.sigma[0]]
        longest = [math.sqrt(bound.kind.n_stacked) * bound.norm() / bound.sigma[0]]
    else:
        return Check("size of the weights", CANNOT, "noise was added before the last step", _SIZE)
    level = _LEVEL / (2.0 * len(blocks))
    k = len(blocks[0])
    low, high = math.sqrt(chi2.ppf(level, k)), math.sqrt(chi2.isf(level, k))
    sizes = np.array([np.linalg.norm(block) for block in blocks])
    inside = bool(np.all((sizes >= low) & (sizes <= high + np.array(longest))))
    found = (
        f"length over noise scale {sizes.min():.4g} to {sizes.max():.4g}, allowed {low:.4g} to "
        f"{high + max(longest):.4g}"
    )
    return Check("size of the weights", PASS if inside else FAIL, found, _SIZE)


_SIZE = "noise makes parameters no shorter; a noiseless solution is no longer than its proved bound"
_REPLAYED = "iterates and model follow from the noisy gradients by public rules"


def transcript_fault(head: BaseBallDPClassifier, transcript: Transcript) -> str | None:
    """Why a transcript is not that of a model, in words; None when it is. It needs no records."""
    release, bound = head.release_, head.release_.bound
    shape = (bound.descent.n_steps, *bound.shape)
    gradients, iterates = np.asarray(transcript.gradients), np.asarray(transcript.iterates)
    sigma = np.ravel(transcript.sigma)
    if gradients.shape != shape or iterates.shape != shape or sigma.shape != shape[:1]:
        return f"gradients and iterates must be of shape {shape}, sigma one number for each step"
    if not all(np.isfinite(part).all() for part in (gradients, iterates, sigma)):
        return "it holds NaN or infinity"
    if not np.allclose(sigma, np.ravel(release.sigma), rtol=1e-12, atol=0.0):
        return "its noise scales are not those of the record"
    single = np.array_equal(iterates.astype(np.float32), iterates)
    replay = Iterates(1, bound, release.alpha, np.float32 if single else np.float64)
    for step, gradient in enumerate(gradients):
        if not np.allclose(replay.thetas[0], iterates[step], rtol=1e-12, atol=1e-300):
            return f"the iterate of step {step} does not follow from the gradients before it"
        replay.advance(gradient[None])
    problem = head._problem(classes=head.classes_, **_public_numbers(head))
    for name, value in head._publish(parameters_of(replay, bound), problem).items():
        close = np.allclose(getattr(head, name), value, rtol=1e-12, atol=1e-12 * _largest(value))
        if name in ("coef_", "intercept_") and not close:
            return f"{name} does not follow from its gradients"
    return None


def _public_numbers(head: BaseBallDPClassifier) -> dict[str, Any]:
    release = head.release_
    names = ("n_samples", "n_features", "alpha", "norm_bound", "radius", "metric", "labels")
    return {**{name: getattr(release, name) for name in names}, "class_counts": None}


def _largest(values: Any) -> float:
    return float(np.max(np.abs(values), initial=0.0))


def _contrasts(n_scores: int) -> Array:
    """Orthonormal contrasts of scores: what centring over classes leaves of softmax parameters."""
    return helmert(n_scores)


def _of_parameters(head: BaseBallDPClassifier, problem: PrivateProblem) -> Residuals | Check | None:
    """Residuals of parameters that are noisy values as they are."""
    release = head.release_
    promise = Promise(release.bound, release.sensitivity, release.sigma)
    with np.errstate(all="ignore"):
        exact = head._released_by().noiseless(problem, promise)
    released = head._parameters_as_published()
    if exact is None or exact[0].shape != released.shape:
        return None
    values, sigma = exact[0], np.broadcast_to(np.asarray(exact[1], dtype=float), released.shape)
    if problem.loss == "softmax":
        if np.ptp(sigma) > 0.0:
            return None
        rotation = _contrasts(len(values))
        values, released, sigma = rotation @ values, rotation @ released, sigma[1:]
    noisy = (sigma > 0.0).all(axis=1)
    if not (released[~noisy] == values[~noisy]).all():
        return Check(
            "values without noise",
            FAIL,
            "a block of an absent class is not zero",
            "blocks of noise scale 0 do not depend on records, and are published as they are",
            True,
        )
    sigma = sigma[noisy]
    z = (released[noisy] - values[noisy]) / sigma
    mean = values[noisy] / sigma
    tol = 2.0 * release.tol / (release.alpha * float(sigma.min())) if release.tol else 0.0
    return Residuals(z[None], {"the noiseless solution": mean[None]}, tol)


def _of_transcript(
    head: BaseBallDPClassifier, problem: PrivateProblem, transcript: Transcript
) -> Residuals | Check:
    """Residuals of the noisy gradients, at the iterates where they were taken."""
    bound: Any = head.release_.bound
    shape = (bound.descent.n_steps, *bound.shape)
    means = np.empty(shape)
    with ThreadPoolExecutor(len(row_ranges(*problem.X.shape))) as pool, SINGLE_BLAS_THREAD:
        mean = mean_gradient(problem, bound, pool)
        size = max(1, _STEP_VALUES // (len(problem.X) * shape[1]))
        for start in range(0, shape[0], size):
            part = slice(start, start + size)
            means[part] = mean(transcript.iterates[part])
        for step, theta in enumerate(transcript.iterates):
            needed = bound.step(theta, mean.rounding(theta))[1]
            if not math.isclose(needed, transcript.sigma[step], rel_tol=1e-6):
                found = f"step {step}: {transcript.sigma[step]:.6g}, should be {needed:.6g}"
                return Check(
                    "noise scales", FAIL, found, "the gradient gap at each public iterate", True
                )
    sigma = np.ravel(transcript.sigma)[:, None, None]
    z = (transcript.gradients - means) / sigma
    return Residuals(z, {"the iterate": transcript.iterates, "the noiseless gradient": means})


def _cannot(why: str) -> Check:
    return Check("noise in the weights", CANNOT, why, "residuals need noiseless values", True)


def _verdict(p: float) -> str:
    return PASS if p >= _LEVEL else FAIL


def _scale_check(z: Array, shift: float) -> Check:
    """Squared lengths of all values and of each block are chi-square."""

    def two_sided(size: float, k: int) -> float:
        least, most = max(size - shift, 0.0), size + shift
        return 2.0 * min(float(chi2.sf(least**2, k)), float(chi2.cdf(most**2, k)))

    length = float(np.linalg.norm(z))
    p = two_sided(length, z.size)
    sizes = np.linalg.norm(z, axis=1)
    blocks = min(two_sided(float(size), z.shape[1]) for size in (sizes.min(), sizes.max()))
    p = min(1.0, 2.0 * min(p, len(z) * blocks))
    ratios = sizes / math.sqrt(z.shape[1])
    found = (
        f"{length / math.sqrt(z.size):.4f} of the stated scale over {z.size} values "
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
        n_pairs += inner.size
        if not inner.size or n_values < 3:
            continue
        top = float(np.abs(inner).max())
        largest = max(largest, top)
        r = min(max(top - slack, 0.0), 1.0)
        score = r * math.sqrt((n_values - 1.0) / max(1.0 - r**2, 1e-300))
        p = min(p, 2.0 * float(student.sf(score, n_values - 1)))
    if n_pairs == 0:
        why = "one block, and no earlier release to compare with"
        return Check("reuse of noise", CANNOT, why, "correlations of blocks", True)
    p = min(1.0, n_pairs * p)
    text = f"largest correlation {largest:.3f} over {n_pairs} pairs of blocks, p = {p:.2g}"
    return Check("reuse of noise", _verdict(p), text, "correlations of aligned blocks", True)


def _correlations(z: Array, others: Sequence[Array]) -> Iterator[tuple[Array, int]]:
    """Correlations of every two blocks that noise could be copied between, and their length."""
    n_groups, n_blocks, n_values = z.shape
    upper = np.triu_indices(n_blocks, 1)
    for group in map(_unit, z):
        yield (group @ group.T)[upper], n_values
    if n_groups > 1:
        steps = _unit(z.reshape(n_groups, -1))
        yield (steps @ steps.T)[np.triu_indices(n_groups, 1)], n_blocks * n_values
    for other in others:
        if other.shape == z.shape:
            ours, theirs = (_unit(blocks.reshape(-1, n_values)) for blocks in (z, other))
            yield (ours @ theirs.T).ravel(), n_values


def _unit(rows: Array) -> Array:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
