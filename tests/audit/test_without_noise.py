"""What one subtraction tells of a record: all of it without noise, and with noise only the noise.

Tests of randomness here reject correct code with probability below 1e-9 each.
"""

import math

import numpy as np

from sklearn_balldp import BallDPRidgePrototype

ALPHA = 0.1


def missing_record(head, X, y, hidden):
    """The hidden record by the formula of "Attacks, and what bounds them", and its scale."""
    known = np.delete(np.arange(len(X)), hidden)
    of_class = known[y[known] == y[hidden]]
    factor = len(of_class) + 1 + ALPHA * len(X) / 2
    row = factor * head.prototypes_[y[hidden]] - X[of_class].sum(axis=0)
    return row, factor * np.broadcast_to(head.release_.sigma, 3)[y[hidden]]


def test_prototypes_without_noise_give_the_record_away_and_noise_hides_it():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 40))
    X /= np.linalg.norm(X, axis=1, keepdims=True) / rng.uniform(0.3, 1.0, (60, 1))
    y = np.r_[rng.integers(2, size=59), 2]  # the last record is the only one of its class
    errors = []
    for hidden in (3, 30, 59):
        head = BallDPRidgePrototype(1e10, alpha=ALPHA, radius=0.5).fit(X, y)
        row, _ = missing_record(head, X, y, hidden)
        np.testing.assert_allclose(row, X[hidden], atol=1e-2)
        for seed in range(40):
            head = BallDPRidgePrototype(1.0, alpha=ALPHA, radius=0.5, random_state=seed).fit(X, y)
            row, scale = missing_record(head, X, y, hidden)
            errors.append((row - X[hidden]) / scale)
    # Six and a half standard errors of a mean, and of a deviation, of normal errors.
    n = np.size(errors)
    assert abs(np.mean(errors)) < 6.5 / math.sqrt(n)
    assert abs(np.std(errors) - 1) < 6.5 / math.sqrt(2 * n)
