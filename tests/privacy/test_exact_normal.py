"""The vectorised exact sampler: every decision is the exact one, and the law is the normal's.

Every test of randomness here rejects a correct sampler with probability below 1e-9.
"""

import math
import os

import joblib
import mpmath
import numpy as np
import pytest
from scipy import stats

import sklearn_balldp.privacy.exact_normal as exact_normal
from sklearn_balldp.privacy.exact_normal import GRID_EXPONENT, TOLERANCE, accepts, rounded_normal

LEVEL = 1e-10
GRID = 2.0**GRID_EXPONENT


def log_acceptance(k, x):
    return -((k + x) ** 2) / 2 + (k - 1) * mpmath.log(2) + mpmath.mpf(1) / 2


def test_law_in_the_body_and_in_the_tails():
    draws = rounded_normal(1_000_000)
    assert stats.kstest(draws, "norm").pvalue > LEVEL
    n = len(draws)
    for threshold in (0.0, 0.5, 1.0, 2.0, 3.0, 4.0):
        for tail in (draws > threshold, draws < -threshold):
            expected = stats.norm.sf(threshold)
            count = int(tail.sum())
            low, high = stats.binom.interval(1 - LEVEL, n, expected)
            assert low <= count <= high
    edges = np.linspace(-4.0, 4.0, 161)
    counts = np.histogram(draws, edges)[0]
    cells = n * np.diff(stats.norm.cdf(edges))
    assert stats.chi2.sf(np.sum((counts - cells) ** 2 / cells), len(cells)) > LEVEL


def test_fine_bits_are_uniform_and_draws_do_not_repeat():
    draws = rounded_normal(400_000)
    halves = np.abs(draws) / GRID
    np.testing.assert_array_equal(halves - np.floor(halves), 0.5)
    cells = np.floor(halves).astype(np.int64)
    assert len(np.unique(cells)) > 0.9999 * len(cells)
    for shift in (0, 8, 16, 24):
        counts = np.bincount((cells >> shift) & 255, minlength=256)
        statistic = np.sum((counts - len(cells) / 256) ** 2) / (len(cells) / 256)
        assert stats.chi2.sf(statistic, 255) > LEVEL
    lagged = np.mean(draws[1:] * draws[:-1])
    assert abs(lagged) < stats.norm.isf(LEVEL) / math.sqrt(len(draws))


def test_many_are_drawn_in_parts_that_share_no_entropy(monkeypatch):
    """By as many threads as there are cores; what fails in a part is raised."""
    monkeypatch.setattr(joblib, "cpu_count", lambda: 3)
    monkeypatch.setattr(exact_normal, "_PART", 1000)
    urandom, asked = os.urandom, []

    def counted(n):
        asked.append(n)
        if len(asked) > limit:
            raise OSError("no entropy")
        return urandom(n)

    monkeypatch.setattr(os, "urandom", counted)
    limit = 1000
    draws = rounded_normal(5001, counted)
    assert len(asked) >= 6
    assert len(np.unique(draws)) == 5001
    assert stats.kstest(draws, "norm").pvalue > LEVEL
    limit = len(asked) + 5
    with pytest.raises(OSError, match="no entropy"):
        rounded_normal(5001, counted)


def test_decisions_in_double_precision_agree_with_the_exact_ones(monkeypatch):
    """The same entropy, with every comparison sent to the exact decision."""
    stream = np.random.default_rng(0)
    words = [stream.bytes(16 * 400) for _ in range(3)]
    fast = [exact_normal._proposals(400, lambda n, w=w: w) for w in words]
    monkeypatch.setattr(exact_normal, "TOLERANCE", 2.0)
    later = np.random.default_rng(1)
    for block, expected in zip(words, fast, strict=True):
        entropy = iter([block])
        slow = exact_normal._proposals(400, lambda n, e=entropy: next(e, None) or later.bytes(n))
        np.testing.assert_array_equal(slow, expected)


def test_law_of_the_exact_path(monkeypatch):
    monkeypatch.setattr(exact_normal, "TOLERANCE", 2.0)
    assert stats.kstest(rounded_normal(1500), "norm").pvalue > LEVEL


@pytest.mark.parametrize("k", [0, 1, 2, 3, 5, 9])
def test_double_precision_errs_less_than_the_tolerance(k):
    rng = np.random.default_rng(k)
    fraction = np.concatenate([rng.integers(2**53, size=200), [0, 1, 2**53 - 1]])
    z = k + fraction * 2.0**-53
    computed = np.exp(exact_normal._OFFSET[k] - 0.5 * z * z)
    with mpmath.workdps(60):
        for f, p in zip(fraction.tolist(), computed.tolist(), strict=True):
            # Both ends of the interval that x lies in, and the width of the uniform's.
            for end in (f, f + 1):
                exact = mpmath.exp(log_acceptance(k, mpmath.mpf(end) / 2**53))
                assert abs(exact - p) + 2.0**-53 < TOLERANCE / 64
                assert exact <= 1


@pytest.mark.parametrize("k", [0, 1, 2, 4, 10, 12])
def test_decisions_next_to_the_threshold(k):
    """Uniforms within a few units of p, decided by further bits; the oracle reads the same bits."""
    rng = np.random.default_rng(k)
    outcomes = set()
    for offset in (-2, -1, 0, 1, 2):
        for _ in range(6):
            fraction = int(rng.integers(2**53))
            with mpmath.workdps(80):
                p = mpmath.exp(log_acceptance(k, mpmath.mpf(fraction) / 2**53))
                uniform = int(mpmath.floor(p * 2**53)) + offset
            if not 0 <= uniform < 2**53:
                continue
            drawn = []

            def entropy(n, drawn=drawn):
                drawn.append(rng.bytes(n))
                return drawn[-1]

            decision = accepts(k, fraction, uniform, 53, entropy)
            x, u = fraction, uniform
            for more_x, more_u in zip(drawn[::2], drawn[1::2], strict=True):
                x = x << 64 | int.from_bytes(more_x, "little")
                u = u << 64 | int.from_bytes(more_u, "little")
            bits = 53 + 32 * len(drawn)
            with mpmath.workdps(200):
                least = mpmath.exp(log_acceptance(k, mpmath.mpf(x + 1) / 2**bits))
                most = mpmath.exp(log_acceptance(k, mpmath.mpf(x) / 2**bits))
                assert decision == (mpmath.mpf(u + 1) / 2**bits <= least)
                assert decision != (mpmath.mpf(u) / 2**bits >= most)
            outcomes.add(decision)
    if k < 10:
        assert outcomes == {True, False}


def test_the_marker_of_large_whole_parts_draws_on(monkeypatch):
    """Ten zero bits say k >= 10: further bits say which, and the cell that is returned has it."""
    word = 5 << 11 | 1  # x = 5 / 2**53, k bits zero, negative
    first = (word).to_bytes(8, "little") + (0).to_bytes(8, "little")
    asked = []
    chunks = iter([first, b"\x00", b"\x00", b"\x01"])

    def entropy(n):
        asked.append(n)
        return next(chunks)

    seen = {}

    def decide(k, fraction, uniform, bits, entropy):
        seen.update(k=k, fraction=fraction, uniform=uniform)
        return True

    monkeypatch.setattr(exact_normal, "accepts", decide)
    value = exact_normal._proposals(1, entropy)
    assert asked == [16, 1, 1, 1]
    assert seen == {"k": 12, "fraction": 5, "uniform": 0}
    np.testing.assert_array_equal(value, [-(12 * 2.0**40 + 0.5) * GRID])


def test_whole_parts_halve():
    """Over all patterns of bits; no sample is large enough to see one pattern out of place."""
    counts = np.bincount(exact_normal._WHOLE.astype(int))
    np.testing.assert_array_equal(counts, [512, 256, 128, 64, 32, 16, 8, 4, 2, 1, 1])


def test_sum_is_a_function_of_value_plus_deviate():
    """floor(v + Z) and a half, in cells: what makes the noise post-processing of exact noise."""
    values = np.rint(np.random.default_rng(0).uniform(-50, 50, 500) / GRID) * GRID
    word = os.urandom(16 * 3000)
    entropy = iter([word])
    deviates = exact_normal._proposals(3000, lambda n: next(entropy))[:500]
    low = np.floor(deviates / GRID) * GRID
    for fraction in (0.01, 0.5, 0.99):
        z = low + fraction * GRID
        cell = np.floor((values + z) / GRID)
        np.testing.assert_allclose(values + deviates, (cell + 0.5) * GRID, rtol=0, atol=1e-13)
