"""Private choices have the stated law, and so have the coins that they are made of.

Every test of randomness here rejects a correct sampler with probability below 1e-9.
"""

import itertools
import math
import os
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from sklearn_balldp import distances
from sklearn_balldp.distances import permute_and_flip

LEVEL = 1e-10


def exact_law(scores, epsilon):
    """Probabilities of permute-and-flip, by all subsets of accepted candidates."""
    p = np.exp(-epsilon * (max(scores) - np.asarray(scores)) / 2)
    # The best candidate is always accepted, so that the empty subset, left out, has weight zero.
    accepted = np.array(list(itertools.product([False, True], repeat=len(p)))[1:])
    weights = np.prod(np.where(accepted, p, 1 - p), axis=1)
    return (weights / accepted.sum(axis=1)) @ accepted


@pytest.mark.parametrize(
    ("scores", "epsilon"),
    [([5, 0, 4, 4, 2], 1.0), ([-3, -1, 0, -1], 3.0), ([0, 0, 0], 2.0**-20), ([7], 0.7)],
)
def test_law_of_permute_and_flip(scores, epsilon):
    n = 2000
    found = np.bincount(
        [permute_and_flip(scores, epsilon) for _ in range(n)], minlength=len(scores)
    )
    for times, share in zip(found.tolist(), exact_law(scores, epsilon), strict=True):
        assert stats.binomtest(times, n, min(share, 1.0)).pvalue > LEVEL


def test_the_law_is_pure_dp_and_no_worse_than_the_exponential_mechanism():
    rng = np.random.default_rng(0)
    for epsilon in (0.2, 1.0, 4.0):
        worst = 0.0
        for _ in range(300):
            scores = rng.integers(-6, 1, size=5)
            near = scores + rng.integers(-1, 2, size=5)
            ratio = exact_law(scores, epsilon) / exact_law(near, epsilon)
            worst = max(worst, np.log(ratio).max())
            other = np.exp(epsilon * scores / 2)
            assert exact_law(scores, epsilon) @ scores >= other @ scores / other.sum() - 1e-12
        assert worst <= epsilon * (1 + 1e-9)
        assert worst > 0.7 * epsilon


@pytest.mark.parametrize("rate", [Fraction(0), Fraction(1, 3), Fraction(1), Fraction(0.1)])
def test_coins_are_exponentials(rate):
    n = 20_000
    found = sum(distances._coin_of_exponential(rate, os.urandom) for _ in range(n))
    low, high = stats.binom.interval(1 - LEVEL, n, math.exp(-rate))
    assert low <= found <= high


def test_many_coins_of_inverse_e():
    n = 200_000
    coins = distances._coins_of_inverse_e(n, os.urandom)
    low, high = stats.binom.interval(1 - LEVEL, n, math.exp(-1))
    assert low <= coins.sum() <= high


@pytest.mark.parametrize("most", [1, 2, 3, 7, 255, 256, 257, 2**70 + 1])
def test_whole_numbers_are_uniform_by_rejection(most):
    """Words that would make small numbers more likely are drawn again."""
    n_bytes = ((most - 1).bit_length() + 7) // 8
    if most & (most - 1):
        words = iter([256**n_bytes - 1, 0])

        def bits(n):
            return next(words).to_bytes(n, "little")

        assert distances._below(most, bits) == 0
    drawn = [distances._below(most, os.urandom) for _ in range(2000)]
    assert 0 <= min(drawn) <= max(drawn) < most
    if most < 300:
        counts = np.bincount(drawn, minlength=most)
        assert stats.chisquare(counts).pvalue > LEVEL if most > 1 else counts[0] == 2000


def test_many_whole_numbers_are_uniform_by_rejection():
    words = [2**64 - 1, 5]
    blocks = iter([np.array(words, dtype="<u8").tobytes(), np.array([4], dtype="<u8").tobytes()])
    # 2^64 - 1 is the one word too many for threes.
    np.testing.assert_array_equal(distances._many_below(3, 2, lambda n: next(blocks)), [1, 2])


def test_seeded_choices_repeat_and_hostile_scores_are_refused():
    scores = np.arange(50)
    assert permute_and_flip(scores, 0.1, 3) == permute_and_flip(scores, 0.1, 3)
    assert permute_and_flip([10**6, 0], 1e300) == 0
    assert permute_and_flip(np.array([2**62, -(2**62)]), 1.0) == 0
    for bad in ([0.5], [], [[1, 2]], ["a"]):
        with pytest.raises(ValueError, match="whole numbers"):
            permute_and_flip(bad, 1.0)
    for epsilon in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="epsilon"):
            permute_and_flip([1, 2], epsilon)
