"""What one subtraction tells of a record: all of it without noise, and with noise only the noise.

Tests of randomness here reject correct code with probability below 1e-9 each.
"""

import itertools
import math

import numpy as np

from sklearn_balldp import BallDPRidgePrototype

ALPHA = 0.1


def test_prototypes_without_noise_give_the_record_away_and_noise_hides_it():
    """By the formula of "Attacks, and what bounds them"."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 40))
    X /= np.linalg.norm(X, axis=1, keepdims=True) / rng.uniform(0.3, 1.0, (60, 1))
    y = np.r_[rng.integers(2, size=59), 2]  # the last record is the only one of its class
    errors = []
    for hidden, seed in itertools.product((3, 30, 59), (None, *range(40))):
        epsilon = 1e10 if seed is None else 1.0
        head = BallDPRidgePrototype(epsilon, alpha=ALPHA, radius=0.5, random_state=seed).fit(X, y)
        known = (y == y[hidden]) & (np.arange(60) != hidden)
        factor = known.sum() + 1 + ALPHA * len(X) / 2
        row = factor * head.prototypes_[y[hidden]] - X[known].sum(axis=0)
        if seed is None:
            np.testing.assert_allclose(row, X[hidden], atol=1e-2)
        else:
            errors.append((row - X[hidden]) / factor / head.release_.sigma[y[hidden]])
    # Six and a half standard errors of a mean, and of a deviation, of normal errors.
    n = np.size(errors)
    assert abs(np.mean(errors)) < 6.5 / math.sqrt(n)
    assert abs(np.std(errors) - 1) < 6.5 / math.sqrt(2 * n)
