"""Inversion of every head without noise, and what noise leaves of it.

Tests of randomness here reject correct code with probability below 1e-9 each.
"""

import math

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.special import softmax

from sklearn_balldp import BallDPLinearDiscriminant
from sklearn_balldp.audit.inversion import (
    _softmax_scales,
    invert_minimiser,
    invert_noisy_ridge,
    invert_ridge,
    invert_statistics,
)
from sklearn_balldp.heads.objective import LinearObjective
from sklearn_balldp.heads.solver import minimise
from sklearn_balldp.losses import make_loss


def ball(rng, n, d):
    X = rng.standard_normal((n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True) * rng.uniform(0.3, 1.0, (n, 1))


def known_sums(X, codes, n_classes):
    sums = np.array([X[codes == c].sum(axis=0) for c in range(n_classes)])
    return sums, np.bincount(codes, minlength=n_classes)


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
    for hidden in range(3, 60, 7):
        known = np.arange(60) != hidden
        others = known_sums(X[known], codes[known], n_classes)
        code = codes[hidden] if tell else None
        found = invert_ridge(prototypes(X, codes, n_classes, 0.1), *others, **RIDGE, code=code)
        assert found.status == "unique"
        assert found.codes.tolist() == [codes[hidden]]
        np.testing.assert_allclose(found.rows[0], X[hidden], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("tell", [False, True])
@pytest.mark.parametrize("domain", ["ball", "sphere"])
def test_sums_are_inverted(noise_free, domain, tell):
    """From a release without its noise, and all other records: the record, and its class."""
    rng = np.random.default_rng(0)
    X, codes = ball(rng, 60, 7), np.arange(60) % 3
    head = BallDPLinearDiscriminant(radius=0.3, share=0.5, domain=domain).fit(X, codes)
    sums, moment = head.statistics_.class_sums, head.statistics_.second_moment
    rows = X / np.linalg.norm(X, axis=1, keepdims=True) if domain == "sphere" else X
    for hidden in (0, 13, 59):
        known = np.arange(60) != hidden
        others = known_sums(rows[known], codes[known], 3)[0]
        rest = rows[known].T @ rows[known]
        given = {"norm_bound": 1.0, "code": codes[hidden] if tell else None}
        moments = {"second_moment": moment, "known_moment": rest}
        for more in ({}, moments):
            found = invert_statistics(sums, others, **given, **more)
            assert found.status == "unique"
            assert found.codes.tolist() == [codes[hidden]]
            np.testing.assert_allclose(found.rows[0], rows[hidden], atol=1e-9)
        # Other records, another moment, or a row outside of the ball: no record explains it.
        wrong = others + 0.1
        assert invert_statistics(sums, wrong, **given).status == "none"
        other = {**moments, "known_moment": rest + 0.1}
        assert invert_statistics(sums, others, **given, **other).status == "none"
        short = {**given, "norm_bound": 0.9 * np.linalg.norm(rows[hidden])}
        assert invert_statistics(sums, others, **short).status == "none"


def test_a_zero_row_moves_no_sum():
    sums = known_sums(ball(np.random.default_rng(0), 20, 3), np.arange(20) % 2, 2)[0]
    found = invert_statistics(sums, sums, norm_bound=1.0)
    assert found.status == "degenerate"
    assert found.codes.tolist() == [0, 1]
    assert invert_statistics(sums, sums, norm_bound=1.0, code=1).codes.tolist() == [1]
    with pytest.raises(ValueError, match="pass both moments"):
        invert_statistics(sums, sums, norm_bound=1.0, second_moment=np.eye(3))
    with pytest.raises(ValueError, match="must match"):
        invert_statistics(sums, sums[:1], norm_bound=1.0)


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
    sums, counts = known_sums(X[1:], codes[1:], 3)
    exact = prototypes(X, codes, 3, 0.1)
    assert invert_ridge(exact, sums, counts, **RIDGE).status == "unique"
    noisy = exact + 0.01 * rng.standard_normal(exact.shape)
    assert invert_ridge(noisy, sums, counts, **RIDGE).status == "none"
    assert invert_ridge(exact, sums, counts, code=2, **RIDGE).status == "none"
    short = {**RIDGE, "norm_bound": 0.9 * np.linalg.norm(X[0])}
    assert invert_ridge(exact, sums, counts, **short).status == "none"


def test_noisy_ridge_is_unbiased_with_the_stated_error():
    rng = np.random.default_rng(3)
    X, codes = ball(rng, 40, 6), np.arange(40) % 2
    sums, counts = known_sums(X[1:], codes[1:], 2)
    sigma = np.array([0.02, 0.3])
    exact = prototypes(X, codes, 2, 0.1)
    n = 4000
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


CASES = [
    ("logistic", 2),
    ("softmax", 3),
    ("softmax", 5),
    ("squared_hinge", 2),
    ("squared_hinge", 4),
]
STRENGTHS = [
    (*case, alpha) for case, alpha in zip(CASES, (0.03, 0.3, 0.03, 0.3, 0.03), strict=True)
]


def minimiser(loss, X, codes, n_classes, alpha, fit_intercept):
    settings = {"alpha": alpha, "norm_bound": 1.0, "fit_intercept": fit_intercept}
    return minimise(LinearObjective(loss, X, codes, n_classes, **settings), tol=1e-14)


def single_gradient(loss, theta, row, code, n_classes, fit_intercept):
    settings = {"alpha": 0.0, "norm_bound": math.inf, "fit_intercept": fit_intercept}
    objective = LinearObjective(loss, row[None], np.array([code]), n_classes, **settings)
    return objective.value_and_gradient(theta)[1]


def active(loss, theta, X, codes, n_classes, fit_intercept, step):
    """Every so many records that move the minimiser: which, which others, and its gradient."""
    for hidden in range(0, len(X), step):
        gradient = single_gradient(loss, theta, X[hidden], codes[hidden], n_classes, fit_intercept)
        # Not those of an inactive hinge, or nearly.
        if np.linalg.norm(gradient) >= 1e-3:
            yield hidden, np.arange(len(X)) != hidden, gradient


def invert(loss, theta, X, codes, n_classes, alpha, fit_intercept, domain="ball"):
    return invert_minimiser(
        loss,
        theta,
        X,
        codes,
        n_classes=n_classes,
        alpha=alpha,
        norm_bound=1.0,
        fit_intercept=fit_intercept,
        domain=domain,
    )


@pytest.mark.parametrize(("fit_intercept", "alpha"), [(False, 0.003), (True, 0.3)])
@pytest.mark.parametrize(("loss", "n_classes"), CASES)
def test_minimisers_of_scaled_rows_are_inverted(loss, n_classes, fit_intercept, alpha):
    """Rows of any length, of which the fit saw the directions: no other length explains it."""
    rng = np.random.default_rng(n_classes)
    X, codes = ball(rng, 40, 5), rng.integers(n_classes, size=40)
    directions = X / np.linalg.norm(X, axis=1, keepdims=True)
    theta = minimiser(loss, directions, codes, n_classes, alpha, fit_intercept)
    records = list(active(loss, theta, directions, codes, n_classes, fit_intercept, 4))
    for hidden, known, _ in records:
        given = X[known], codes[known], n_classes, alpha, fit_intercept
        found = invert(loss, theta, *given, domain="sphere")
        near = np.linalg.norm(found.rows - directions[hidden], axis=1) < 1e-6
        assert near.any()
        np.testing.assert_allclose(np.linalg.norm(found.rows, axis=1), 1.0, rtol=1e-5)
        # Known rows that are not scaled give another gradient, which no right record explains.
        others = invert(loss, theta, *given).rows
        assert not (np.linalg.norm(others - directions[hidden], axis=1) < 1e-6).any()
    assert len(records) >= 3


@pytest.mark.parametrize(("loss", "n_classes", "alpha"), STRENGTHS)
def test_inversion_with_an_intercept_is_exact(loss, n_classes, alpha):
    rng = np.random.default_rng(n_classes)
    X, codes = ball(rng, 60, 5), rng.integers(n_classes, size=60)
    theta = minimiser(loss, X, codes, n_classes, alpha, True)
    records = list(active(loss, theta, X, codes, n_classes, True, 3))
    for hidden, known, _ in records:
        found = invert(loss, theta, X[known], codes[known], n_classes, alpha, True)
        assert found.status == "unique"
        assert found.codes.tolist() == [codes[hidden]]
        error = np.linalg.norm(found.rows[0] - X[hidden]) / np.linalg.norm(X[hidden])
        assert error < 1e-6
    assert len(records) >= 15


@pytest.mark.parametrize(("loss", "n_classes", "alpha"), STRENGTHS)
def test_inversion_without_an_intercept_returns_all_solutions(loss, n_classes, alpha):
    """The truth is among them, each explains the release, and a fine search finds no others."""
    rng = np.random.default_rng(n_classes + 10)
    X, codes = ball(rng, 60, 5), rng.integers(n_classes, size=60)
    theta = minimiser(loss, X, codes, n_classes, alpha, False)
    records = list(active(loss, theta, X, codes, n_classes, False, 4))
    for hidden, known, target in records:
        found = invert(loss, theta, X[known], codes[known], n_classes, alpha, False)
        right = found.codes == codes[hidden]
        errors = np.linalg.norm(found.rows[right] - X[hidden], axis=1)
        assert errors.min() < 1e-6
        for row, code in zip(found.rows, found.codes, strict=True):
            gradient = single_gradient(loss, theta, row, code, n_classes, False)
            np.testing.assert_allclose(gradient, target, atol=1e-6 * np.linalg.norm(target))
        if n_classes == 2:
            assert found.status == "ambiguous"
            # (x, y) and (-x, -y) come in pairs.
            for row, code in zip(found.rows, found.codes, strict=True):
                mirrored = np.linalg.norm(found.rows[found.codes == 1 - code] + row, axis=1)
                assert mirrored.min() < 1e-9
        # Every solution lies on the line of the truth: search it.
        line = np.linspace(-1, 1, 4000)[:, None] * X[hidden] / np.linalg.norm(X[hidden])
        for code in range(n_classes):
            residuals = make_loss(loss, max(2, len(theta))).evaluate(
                line @ theta.T, np.full(len(line), code)
            )[1]
            gaps = np.linalg.norm(residuals[:, :, None] * line[:, None] - target, axis=(1, 2))
            dips = np.flatnonzero((gaps[1:-1] <= gaps[:-2]) & (gaps[1:-1] <= gaps[2:])) + 1
            for i in dips[gaps[dips] < 1e-3 * np.linalg.norm(target)]:
                near = np.linalg.norm(found.rows[found.codes == code] - line[i], axis=1)
                assert near.min(initial=np.inf) < 2e-3
    assert len(records) >= 8


def softmax_step(theta, row):
    """The negative gradient of a record of the first class."""
    return np.outer(np.eye(len(theta))[0] - softmax(theta @ row), row)


@pytest.mark.parametrize("margin", [0.0, 1e-4, -1e-3, -5e-2])
def test_softmax_roots_near_the_peak(margin):
    """Two lengths of a row explain one gradient; where they meet, both must still be found."""
    rng = np.random.default_rng(3)
    theta = rng.standard_normal((4, 3)) * 3
    theta -= theta.mean(axis=0)
    unit = theta[0] / np.linalg.norm(theta[0])
    scores = theta @ unit

    def height(length):
        return length * (1 - softmax(length * scores)[0])

    peak = max(np.linspace(1e-3, 3, 3001), key=height)
    peak = minimize_scalar(
        lambda t: -height(t),
        bounds=(0.9 * peak, 1.1 * peak),
        method="bounded",
        options={"xatol": 1e-13},
    ).x
    length = peak * (1 + margin)
    v = softmax_step(theta, length * unit)
    found = [np.linalg.norm(x) for x in _softmax_scales(v, theta, 3.0)]
    # At the peak itself a root is only as sharp as the square root of rounding.
    assert min(abs(np.array(found) - length)) < 1e-6 * length
    if margin:
        other = brentq(
            lambda t: height(t) - height(length),
            *((0.5 * peak, peak) if margin > 0 else (peak, 2 * peak)),
        )
        assert min(abs(np.array(found) - other)) < 1e-6 * length


def test_softmax_inversion_of_a_confident_record():
    """A probability within 1e-6 of one: the length must be searched from the gradient's own."""
    rng = np.random.default_rng(0)
    theta = np.array([[16.0, 0, 0, 0], [0, 1.0, 0, 0], [-16.0, -1.0, 0, 0]])
    row = np.array([0.95, 0.1, 0.0, 0.0])
    assert 0 < 1.0 - softmax(theta @ row)[0] < 1e-6
    v = softmax_step(theta, row)
    v = v * (1 + 1e-13 * rng.standard_normal(v.shape))
    found = np.array(list(_softmax_scales(v, theta, 1.0)))
    assert np.linalg.norm(found - row, axis=1).min() < 1e-6


def test_both_roots_of_the_hinge_are_found():
    """A known s = 2h(1 - h) has two hinges; with weights small enough both rows are admissible."""
    both = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X, codes = ball(rng, 12, 3), np.arange(12) % 2
        X[0] *= 0.3
        theta = minimiser("squared_hinge", X, codes, 2, 0.05, False)
        found = invert("squared_hinge", theta, X[1:], codes[1:], 2, 0.05, False)
        both += len(found.rows) == 4
        if found.status == "ambiguous":
            right = found.rows[found.codes == codes[0]]
            assert np.linalg.norm(right - X[0], axis=1).min() < 1e-6
        if len(found.rows):
            norms = np.sort(np.linalg.norm(found.rows, axis=1))
            assert norms[-1] <= 1 + 1e-6
    assert both > 0


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_an_inactive_hinge_is_silent(fit_intercept):
    direction = np.eye(4)[0]
    rng = np.random.default_rng(0)
    codes = np.arange(40) % 2
    X = np.outer(2 * codes - 1, direction) * 0.3 + 0.01 * rng.standard_normal((40, 4))
    X = np.vstack([X, 0.99 * direction])
    codes = np.r_[codes, 1]
    theta = minimiser("squared_hinge", X, codes, 2, 1e-3, fit_intercept)
    gradient = single_gradient("squared_hinge", theta, X[-1], 1, 2, fit_intercept)
    assert np.linalg.norm(gradient) == 0
    found = invert("squared_hinge", theta, X[:-1], codes[:-1], 2, 1e-3, fit_intercept)
    assert found.status == "silent"
    assert found.rows.shape == (0, 4)


def test_inversion_fails_against_noise():
    """With noise in the parameters no record explains the release: the attack says so."""
    rng = np.random.default_rng(0)
    X, codes = ball(rng, 60, 5), rng.integers(3, size=60)
    theta = minimiser("softmax", X, codes, 3, 0.1, True)
    noisy = theta + 0.01 * rng.standard_normal(theta.shape)
    assert invert("softmax", noisy, X[1:], codes[1:], 3, 0.1, True).status == "none"


def test_errors():
    with pytest.raises(ValueError, match="X_known"):
        invert("logistic", np.ones((1, 2)), np.empty((0, 2)), [], 2, 0.1, False)
    with pytest.raises(ValueError, match="known_sums"):
        invert_ridge(np.eye(2), np.eye(3), [1, 1], alpha=1.0, norm_bound=1.0)
