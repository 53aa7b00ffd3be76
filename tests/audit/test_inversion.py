"""Inversion of ridge prototypes without noise, and what noise leaves of it.

Tests of randomness here reject correct code with probability below 1e-9 each.
"""

import math

import numpy as np
import pytest

from sklearn_balldp.audit.inversion import invert_noisy_ridge, invert_ridge


def ball(rng, n, d):
    X = rng.standard_normal((n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True) * rng.uniform(0.3, 1.0, (n, 1))


def known_sums(X, codes, n_classes):
    return np.eye(n_classes)[codes].T @ X, np.bincount(codes, minlength=n_classes)


RIDGE = {"alpha": 0.1, "norm_bound": 1.0}


def prototypes(X, codes, n_classes, alpha):
    sums, counts = known_sums(X, codes, n_classes)
    return 2 * sums / (2 * counts + alpha * len(X))[:, None]


@pytest.mark.parametrize("tell", [False, True])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_ridge_is_inverted(n_classes, tell):
    rng = np.random.default_rng(n_classes)
    # The last record is the only one of its class.
    X, codes = ball(rng, 60, 7), np.r_[rng.integers(n_classes - 1, size=59), n_classes - 1]
    for hidden in (3, 30, 59):
        known = np.arange(60) != hidden
        others = known_sums(X[known], codes[known], n_classes)
        code = codes[hidden] if tell else None
        found = invert_ridge(prototypes(X, codes, n_classes, 0.1), *others, **RIDGE, code=code)
        assert found.status == "unique"
        assert found.codes.tolist() == [codes[hidden]]
        np.testing.assert_allclose(found.rows[0], X[hidden], rtol=1e-6, atol=1e-9)


def test_ridge_degenerate_record_is_recognised():
    """A record at its class's prototype moves nothing; so would one at any other's."""
    rng = np.random.default_rng(2)
    X, codes = ball(rng, 30, 4), np.arange(30) % 3
    sums, counts = known_sums(X, codes, 3)
    before = 2 * sums / (2 * counts + 0.1 * 31)[:, None]
    released = prototypes(np.vstack([X, before[1]]), np.r_[codes, 1], 3, 0.1)
    found = invert_ridge(released, sums, counts, **RIDGE)
    assert found.status == "degenerate"
    assert found.codes.tolist() == [0, 1, 2]
    np.testing.assert_allclose(found.rows, before)
    # Each of them really explains the release.
    for code in range(3):
        same = prototypes(np.vstack([X, before[code]]), np.r_[codes, code], 3, 0.1)
        np.testing.assert_allclose(same, released)
    # Public counts settle it.
    told = invert_ridge(released, sums, counts, **RIDGE, code=1)
    np.testing.assert_allclose(told.rows[0], before[1])


def test_ridge_inversion_says_when_no_record_explains_the_release():
    rng = np.random.default_rng(4)
    X, codes = ball(rng, 60, 5), np.arange(60) % 3
    others = known_sums(X[1:], codes[1:], 3)
    exact = prototypes(X, codes, 3, 0.1)
    noisy = exact + 0.01 * rng.standard_normal(exact.shape)
    for released, options, status in [
        (exact, {}, "unique"),
        (noisy, {}, "none"),
        (exact, {"code": 2}, "none"),
        (exact, {"norm_bound": 0.9 * np.linalg.norm(X[0])}, "none"),
    ]:
        assert invert_ridge(released, *others, **{**RIDGE, **options}).status == status
    with pytest.raises(ValueError, match="known_sums"):
        invert_ridge(exact, others[0][:2], others[1][:2], **RIDGE)


def test_noisy_ridge_is_unbiased_with_the_stated_error():
    rng = np.random.default_rng(3)
    X, codes = ball(rng, 40, 6), np.arange(40) % 2
    sums, counts = known_sums(X[1:], codes[1:], 2)
    sigma = np.array([0.02, 0.3])
    exact = prototypes(X, codes, 2, 0.1)
    n = 1000
    errors = np.empty((n, 6))
    for i in range(n):
        noisy = exact + sigma[:, None] * rng.standard_normal((2, 6))
        row, scale, code = invert_noisy_ridge(noisy, sums, counts, sigma, alpha=0.1, code=0)
        errors[i] = row - X[0]
    assert code == 0
    # Six standard errors of a mean, and of a variance, of n * 6 normal errors.
    assert np.abs(errors.mean(axis=0)).max() < 6.5 * scale / math.sqrt(n)
    assert abs(errors.std() / scale - 1) < 6.5 / math.sqrt(2 * errors.size)
    # A loud block strays further than a quiet one moves: only scaled displacements tell the class.
    sigma = np.array([1e-4, 1e-1])
    for _ in range(50):
        noisy = exact + sigma[:, None] * rng.standard_normal((2, 6))
        assert invert_noisy_ridge(noisy, sums, counts, sigma, alpha=0.1)[2] == 0
