r"""Does a release carry the noise that it states? Tests for whoever holds the records.

The owner knows the records D and the noisy answers. These, less what the records give without
noise, and divided by the noise scale, must be standard normal deviates,

.. math:: z = (\tilde f - f(D)) / \sigma \sim N(0, I).

The same conversation that released the answers tells which values to compare them with. Four kinds
of tests look at z alone: its length, the distribution of its entries, its projections on directions
that were fixed before the noise, and the correlations of its blocks with each other and with those
of other releases.

**They refute, and certify nothing.** They find mistakes: a wrong scale, a shift, another
distribution, noise used twice, other weights, other records. They do not find a clever lie: noise
that the publisher can draw again (from a kept seed), noise that is missing in a few directions,
draws selected until they pass, or records that differ in few places.

**A verdict must not decide whether to publish.** Whoever draws again after a FAIL publishes noise
conditioned on the records: with alpha the level of all tests, (epsilon, delta) becomes
:func:`epsilon_after_redraws`. Find the fault, and begin again with a fresh budget.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert
from scipy.stats import chi2, kstwo, norm
from scipy.stats import t as student

from ..heads import Released
from ..losses import Array
from ..mechanisms import Minimiser, Query, Records, drive
from ..mechanisms.settings import TUNING
from ..privacy.problem import Problem
from ..rows import SINGLE_BLAS_THREAD
from ..verdicts import CANNOT_CHECK, FAIL, FALSE_ALARM, PASS, Check

#: With fewer deviates than these, a tenth of the noise too little can be missed.
ENOUGH = 5_000
# Up to so many blocks, every two are compared.
_BLOCKS = 8_000
# Rows whose correlations are computed at once.
_AT_ONCE = 512


@dataclass
class Deviates:
    """Standardised noise of a release, or of several."""

    #: Of each answer, in rows that noise could be copied between.
    blocks: list[Array] = field(default_factory=list)
    #: Arrays of these shapes that the records or earlier answers fixed before the noise.
    directions: dict[str, list[Array]] = field(default_factory=dict)
    rest: Array = field(default_factory=lambda: np.empty(0))  # deviates that fill no block
    #: Largest distance by which the solver's tolerance and rounding can move the deviates.
    shift: float = 0.0

    @property
    def size(self) -> int:
        """Number of deviates."""
        return sum(z.size for z in self.blocks) + self.rest.size

    def add(self, width: int, z: Array, silent: NDArray[np.bool_], **directions: Array) -> None:
        """Add an answer, in rows of ``width`` values if it lies flat, less what has no noise."""
        whole = z.size // width * width

        def rows(values: Any) -> Any:
            return values if values.ndim == 2 else values.ravel()[:whole].reshape(-1, width)

        blocks, mute = rows(z), rows(silent)
        full = ~mute.any(axis=1)
        parts = [self.rest, blocks[~full][~mute[~full]]]
        if z.ndim != 2:
            parts.append(z.ravel()[whole:][~silent.ravel()[whole:]])
        self.rest = np.concatenate(parts)
        self.blocks.append(blocks[full])
        for name, direction in directions.items():
            self.directions.setdefault(name, []).append(rows(direction)[full])

    def join(self, other: "Deviates") -> None:
        """Add the noise of another release of this kind, to be tested as one."""
        self.blocks += other.blocks
        for name, directions in other.directions.items():
            self.directions[name] += directions
        self.rest = np.concatenate([self.rest, other.rest])
        # Each is moved by the tolerance and the rounding of its values.
        self.shift += other.shift


def epsilon_after_redraws(
    epsilon: float, delta: float, level: float = FALSE_ALARM
) -> tuple[float, float]:
    """What (epsilon, delta) becomes if releases that fail a test of this level are drawn again."""
    keeps = 1.0 - level
    grown = math.exp(min(epsilon, 700.0)) * level
    return epsilon - math.log(keeps), min(1.0, (delta + grown) / keeps)


def weight_checks(
    released: Released,
    records: Records,
    earlier: Iterable[Released] = (),
    *,
    level: float = FALSE_ALARM,
) -> list[Check]:
    """Checks of noisy answers against all records of the fit, or why there are none.

    The noise of ``earlier`` releases must be other noise.
    """
    noise = deviates_of(released, records)
    if isinstance(noise, Check):
        return [noise]
    tried = [
        deviates_of(other, records) if np.array_equal(other.classes, released.classes) else None
        for other in earlier
    ]
    others = [other for other in tried if isinstance(other, Deviates)]
    checks = noise_checks(noise, others, level=level)
    if len(others) < len(tried):
        why = (
            f"{len(tried) - len(others)} of the earlier releases cannot be compared (other labels, "
            "or no noise)"
        )
        checks.append(Check("earlier releases", CANNOT_CHECK, why, "noise of each release", True))
    return checks


def deviates_of(released: Released, records: Records) -> Deviates | Check:
    """Standardised noise of a release, or why there is none to look at."""
    if not released.answers:
        return _cannot(
            "a descent's noise is in its transcript: keep it in private "
            "(GradientPerturbation(keep_transcript=True)) and pass it"
        )
    started = released.bound.has_transcript and released.bound.start is not None
    if started and released.release.rule != TUNING:
        return _cannot(
            f"its rule {released.release.rule or 'is not named'} is not that of this version; ask "
            f"sklearn_balldp {released.release.version}, and verify again"
        )
    if not all(bool((np.abs(answer) < 1e100).all()) for answer in released.answers):
        return Check("noise in the numbers", FAIL, "they are not finite, or huge", "any", True)
    problem, answers, noise = released.problem, iter(released.answers), Deviates()
    bare = []

    def answer(query: Query) -> Array:
        noisy = next(answers)
        bare.append(_add(noise, query, problem, noisy, query.values(problem, records)))
        return noisy

    try:
        with SINGLE_BLAS_THREAD, np.errstate(all="ignore"):
            drive(released.conversation(), answer)
    except StopIteration:
        return Check("transcript", FAIL, "answers are missing", "one for each query", True)
    if any(bare):
        return Check(
            "values without noise",
            FAIL,
            "a block of an absent class is not zero",
            "values of noise scale 0 do not depend on records, and are published as they are",
            True,
        )
    return noise if noise.size else _cannot("no released value has noise")


def _add(noise: Deviates, query: Query, problem: Problem, noisy: Array, values: Array) -> bool:
    """Add the noise of one answer; True if a value without noise is not as it should be."""
    z, silent = query.standardised(problem, noisy, values)
    if z[silent].any():
        return True
    mean = np.where(silent, 0.0, query.standardised(problem, values, np.zeros(noisy.shape))[0])
    # What rounds large values, and the tolerance of the solver.
    noise.shift = math.hypot(noise.shift, 2.0**-46 * float(np.linalg.norm(mean)))
    state = np.asarray(getattr(query, "theta", np.zeros(noisy.shape)), dtype=np.float64)
    if isinstance(query, Minimiser):
        noise.shift += 2.0 * query.tol / (problem.alpha * query.sigma)
        largest = float(np.abs(noisy).max(initial=0.0))
        sums = np.abs(noisy.sum(axis=0)).max(initial=0.0)
        if problem.kind.centred and sums <= 1e-9 * largest * len(noisy):
            # Published centred: the orthonormal contrasts of the classes are independent.
            rotation = helmert(len(noisy))
            z, mean, state = rotation @ z, rotation @ mean, rotation @ state
            silent = np.zeros(z.shape, dtype=bool)
    directions = {"the noiseless values": mean, "the state": state}
    noise.add(problem.n_features, z, silent, **directions)
    return False


def noise_checks(
    noise: Deviates, others: Sequence[Deviates] = (), *, level: float = FALSE_ALARM
) -> list[Check]:
    """Four tests with equal shares of ``level``: scale, law, mean and reuse (of others too)."""
    each = level / 4.0
    checks = [check(noise, each) for check in (_scale_check, _law_check, _mean_check)]
    return [*checks, _reuse_check(noise, others, each)]


def _cannot(why: str) -> Check:
    return Check("noise in the numbers", CANNOT_CHECK, why, "noisy answers", True)


def _verdict(p: float, level: float) -> str:
    return PASS if p >= level else FAIL


def _scale_check(noise: Deviates, level: float) -> Check:
    """Squared lengths of all values and of each block are chi-square."""
    shift = noise.shift

    def two_sided(size: Any, k: Any) -> Any:
        low, high = np.maximum(size - shift, 0.0), size + shift
        return 2.0 * np.minimum(chi2.sf(low**2, k), chi2.cdf(high**2, k))

    sizes = np.concatenate([np.empty(0), *(np.linalg.norm(z, axis=1) for z in noise.blocks)])
    widths = np.concatenate([np.empty(0), *(np.full(len(z), z.shape[1]) for z in noise.blocks)])
    length = math.hypot(np.linalg.norm(sizes), np.linalg.norm(noise.rest))
    p = float(two_sided(length, noise.size))
    ratios = np.ones(1)
    if len(sizes):
        p = min(p, len(sizes) * float(two_sided(sizes, widths).min()))
        ratios = sizes / np.sqrt(widths)
    p = min(1.0, 2.0 * p)
    # Noise of this share of the scale would fail nearly always.
    share = math.sqrt(chi2.ppf(level / 4.0, noise.size) / chi2.ppf(0.99, noise.size))
    text = (
        f"{length / math.sqrt(noise.size):.4f} of the stated scale over {noise.size} values "
        f"(blocks {ratios.min():.3f} to {ratios.max():.3f}), p = {p:.2g}; from {share:.2f} down "
        "it would be seen"
    )
    return Check("scale of the noise", _verdict(p, level), text, "chi-square of the noise", True)


def _law_check(noise: Deviates, level: float) -> Check:
    """Kolmogorov-Smirnov distance of all entries from the normal law."""
    z = np.concatenate([*(z.ravel() for z in noise.blocks), noise.rest])
    n, shift = len(z), noise.shift
    below, ranks = norm.cdf(np.sort(z)), np.arange(1, n + 1) / n
    distance = float(max((ranks - below).max(), (below - ranks + 1.0 / n).max()))
    if shift > 0.0:
        # At most shift^2 / h^2 entries move by more than h; the others change D by up to 0.4 h.
        h = (shift**2 / (0.2 * n)) ** (1.0 / 3.0)
        distance = max(0.0, distance - 0.4 * h - shift**2 / (h**2 * n))
    p = float(kstwo.sf(distance, n))
    text = f"largest distance from the normal law {distance:.4f}, p = {p:.2g}"
    return Check("law of the noise", _verdict(p, level), text, "Kolmogorov-Smirnov", True)


def _mean_check(noise: Deviates, level: float) -> Check:
    """Projections on directions fixed before the noise are standard normal."""
    tests: list[tuple[float, str]] = []
    ones = {"all ones": [np.ones_like(z) for z in noise.blocks]}
    for name, directions in (ones | noise.directions).items():
        inner = [
            float(np.vdot(z, direction)) / size
            for z, direction in zip(noise.blocks, directions, strict=True)
            if (size := float(np.linalg.norm(direction))) > 0.0
        ]
        if inner:
            score = max(0.0, abs(sum(inner)) / math.sqrt(len(inner)) - noise.shift)
            tests.append((score, name))
    if not tests:
        return Check("mean of the noise", CANNOT_CHECK, "no block", "projections", True)
    score, name = max(tests)
    p = min(1.0, len(tests) * 2.0 * float(norm.sf(score)))
    text = f"{score:.2f} standard deviations along {name}, p = {p:.2g}"
    return Check("mean of the noise", _verdict(p, level), text, "projections fixed before", True)


def _reuse_check(noise: Deviates, others: Sequence[Deviates], level: float) -> Check:
    """Correlations of blocks with each other, and with those of other releases."""
    slack = 4.0 * noise.shift
    largest, n_pairs, p = 0.0, 0, 1.0
    for rows, second in _compared(noise, others):
        # With fewer than three values, independent blocks are often nearly parallel.
        n_values = rows.shape[1]
        top, n_some = (0.0, 0) if n_values < 3 else _largest(rows, second)
        if n_some == 0:
            continue
        n_pairs += n_some
        largest = max(largest, top)
        lengths = (np.linalg.norm(z, axis=1).min() for z in (rows, second) if z is not None)
        length = float(min(lengths))
        r = min(max(top - slack / max(length, 1e-300), 0.0), 1.0)
        score = r * math.sqrt((n_values - 1.0) / max(1.0 - r**2, 1e-300))
        p = min(p, 2.0 * float(student.sf(score, n_values - 1)))
    if n_pairs == 0:
        why = "no two blocks of three values or more, here or in another release"
        return Check("reuse of noise", CANNOT_CHECK, why, "correlations of blocks", True)
    p = min(1.0, n_pairs * p)
    text = f"largest correlation {largest:.3f} over {n_pairs} pairs of blocks, p = {p:.2g}"
    return Check("reuse of noise", _verdict(p, level), text, "correlations of blocks", True)


def _compared(noise: Deviates, others: Sequence[Deviates]) -> Iterator[tuple[Array, Array | None]]:
    """Rows whose correlations are looked at: with each other (None), or with other rows.

    Of very many blocks those of one answer, and of the answer that follows.
    """
    theirs = [z for other in others for z in other.blocks]
    for width in dict.fromkeys(z.shape[1] for z in noise.blocks):
        ours, far = (
            [z for z in blocks if z.shape[1] == width and len(z)]
            for blocks in (noise.blocks, theirs)
        )
        groups = [np.concatenate(ours)] if ours else []
        if ours and len(groups[0]) > _BLOCKS:
            groups = list(_runs(ours))
        yield from ((group, None) for group in groups)
        yield from ((g, z) for z in far for g in ours if len(g) + len(z) <= _BLOCKS)
    for shape in dict.fromkeys(z.shape for z in noise.blocks if len(z) > 1):
        whole, other_answers = (
            [z.ravel() for z in blocks if z.shape == shape] for blocks in (noise.blocks, theirs)
        )
        yield np.stack(whole), None
        if other_answers:
            yield np.stack(whole), np.stack(other_answers)


def _runs(answers: Sequence[Array]) -> Iterator[Array]:
    """Blocks of some answers in a row; each run begins with the last answer of the one before."""
    run: list[Array] = []
    for answer in answers:
        run.append(answer)
        if sum(map(len, run)) >= _AT_ONCE:
            yield np.concatenate(run)
            run = [answer]
    yield np.concatenate(run)


def _largest(rows: Array, others: Array | None) -> tuple[float, int]:
    """Largest correlation of two rows, or of a row and one of others, and how many pairs."""
    first = _unit(rows)
    second = first if others is None else _unit(others)
    largest, n_pairs = 0.0, 0
    for start in range(0, len(first), _AT_ONCE):
        some = first[start : start + _AT_ONCE]
        inner = np.abs(some @ (second[start:] if others is None else second).T)
        n_pairs += inner.size
        if others is None:
            # Each pair once, and no row with itself.
            inner[:, : len(some)][np.tril_indices(len(some))] = 0.0
            n_pairs -= len(some) * (len(some) + 1) // 2
        largest = max(largest, float(inner.max(initial=0.0)))
    return largest, n_pairs


def _unit(rows: Array) -> Array:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
