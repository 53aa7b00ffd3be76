"""The ridge prototype head: its minimisers, its rules, its noise at every radius."""

import itertools
import math

import numpy as np
import pytest
from head_cases import HIDDEN
from sklearn.base import clone
from sklearn.neighbors import NearestCentroid

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.mechanisms.rules.discriminant import likely_counts
from sklearn_balldp.privacy.gaussian import mu_from_budget


def closed_form(X, y, alpha):
    X = X.astype(np.float64)
    X = X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    return np.array([2 * X[y == c].sum(0) / (2 * np.sum(y == c) + alpha * len(y)) for c in set(y)])


@pytest.mark.parametrize(
    ("dtype", "n_repeats", "d", "close"),
    [
        (np.float16, 150, 6, 1e-3),
        (np.float32, 1, 6, 1e-3),
        (np.float32, 250, 100, 1e-3),
        (np.float64, 1, 6, 1e-12),
    ],
)
def test_minimiser(noise_free, dtype, n_repeats, d, close):
    """Rows inside the ball and outside, in blocks and on threads."""
    rng = np.random.default_rng(0)
    X = np.tile(rng.standard_normal((90, d)) / 2, (n_repeats, 1)).astype(dtype)
    y = np.tile(np.repeat([0, 1, 2], [50, 30, 10]), n_repeats)
    head = BallDPRidgePrototype(alpha=0.3).fit(X, y)
    np.testing.assert_allclose(head.prototypes_, closed_form(X, y, 0.3), atol=1e-3 * close)
    inside = X / np.maximum(1.0, np.linalg.norm(X.astype(float), axis=1))[:, None]
    scores = head.decision_function(inside.astype(dtype))
    np.testing.assert_allclose(head.decision_function(X), scores, rtol=close, atol=close)


def test_nearest_is_the_closest_prototype(ball_rows):
    X, y = ball_rows
    head = BallDPRidgePrototype(50.0, radius=0.2, alpha=1e-6, decision="nearest").fit(X, y)
    apart = np.linalg.norm(X[:, None] - head.prototypes_, axis=2)
    np.testing.assert_array_equal(head.predict(X), apart.argmin(axis=1))
    exact = clone(head).set_params(epsilon=1e9, alpha=1e-9).fit(X, y)
    np.testing.assert_array_equal(exact.predict(X), NearestCentroid().fit(X, y).predict(X))


def test_predict_proba_only_with_the_generative_rule(ball_rows):
    """By default the rule follows the labels: of the parameters, then of the release."""
    X, y = ball_rows
    head = BallDPRidgePrototype(decision="gaussian", epsilon=8.0, radius=0.5).fit(X, y)
    proba = head.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(head.classes_[proba.argmax(axis=1)], head.predict(X))
    np.testing.assert_array_equal(head.with_rule(decision="auto").predict_proba(X), proba)
    protected = BallDPRidgePrototype(8.0, radius=0.5, **HIDDEN).fit(X, y)
    nearest = protected.with_rule(decision="nearest").predict(X)
    np.testing.assert_array_equal(protected.predict(X), nearest)
    # Whatever the parameters say by now.
    protected.set_params(protect_labels=False)
    for other in (BallDPRidgePrototype(decision="nearest"), head.with_rule(decision="nearest")):
        assert not hasattr(other, "predict_proba")
    assert not hasattr(protected, "predict_proba")
    for other in (BallDPRidgePrototype(), head.set_params(decision="nearest")):
        assert hasattr(other, "predict_proba")


@pytest.mark.parametrize("decision", ["nearest", "gaussian"])
def test_absent_class_is_never_predicted_and_needs_no_noise(ball_rows, decision):
    X, y = ball_rows
    head = BallDPRidgePrototype(classes=[0, 1, 2, 3], decision=decision).fit(X, y)
    assert head.release_.sigma[3] == 0
    assert head.release_.sensitivity[3] == 0
    np.testing.assert_array_equal(head.prototypes_[3], 0)
    assert 3 not in head.predict(X)


@pytest.mark.parametrize("kind", [np.float16, np.int8, np.int64])
def test_numpy_scalars_are_the_numbers_they_print(noise_free, kind):
    """Few-bit scalars overflow silently in arithmetic that keeps their type."""
    X = (np.random.default_rng(0).standard_normal((70_000, 1)) * 3).astype(np.float16)
    y, head = np.arange(len(X)) % 2, BallDPRidgePrototype(2.0, counts="worst")
    for name in ("alpha", "norm_bound", "radius", "epsilon"):
        scalar = clone(head).set_params(**{name: kind(12)}).fit(X, y)
        number = clone(head).set_params(**{name: 12.0}).fit(X, y)
        assert scalar.release_ == number.release_
        np.testing.assert_array_equal(scalar.prototypes_, number.prototypes_)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "chebyshev"])
def test_radii_in_every_metric(ball_rows, metric):
    radius, d = 0.05, 6
    head = BallDPRidgePrototype(metric=metric, epsilon=2.0, counts="worst")
    ball = clone(head).set_params(radius=radius).fit(*ball_rows).release_
    full = head.fit(*ball_rows).release_
    modulus = np.sqrt(d) if metric == "chebyshev" else 1
    # The noise does not use the counts; what it hides does.
    paper = 2 * radius * modulus / 2.9 / mu_from_budget(2.0, 1e-6)
    assert ball.sigma == pytest.approx(paper, rel=1e-5)
    moved = 2 * radius * modulus / (2 * np.array([50, 30, 10]) + 0.9)
    assert ball.sensitivity == pytest.approx(moved, rel=1e-5)
    assert ball.mu == pytest.approx(moved[2] / paper, rel=1e-5)
    assert full.radius == pytest.approx(2 * np.sqrt(d) if metric == "manhattan" else 2)
    growth = 2 / (radius * modulus)
    assert ball.guarantee(full.radius).mu == pytest.approx(growth * ball.mu, rel=1e-6)
    assert ball.epsilon_full_radius == pytest.approx(ball.guarantee(full.radius).epsilon)
    # Of prototypes that use the counts, the noise is that of the sums over public divisors.
    exact = clone(head).set_params(radius=radius, counts="per_class").fit(*ball_rows).release_
    assert exact.sigma == pytest.approx(moved / exact.mu, rel=1e-5)
    sums = np.ravel(exact.bound.sigma) * 2.0 / (2.0 * np.array([50, 30, 10]) + 0.9)
    np.testing.assert_allclose(exact.sigma, sums, rtol=1e-9)


def test_protected_prototypes_are_made_of_sums_and_counts(noise_free, ball_rows):
    X, y = ball_rows
    head = BallDPRidgePrototype(alpha=0.3, **HIDDEN).fit(X, y)
    found = head.statistics_
    np.testing.assert_allclose(found.counts, [50, 30, 10])
    sums = [X[y == c].sum(axis=0) for c in range(3)]
    np.testing.assert_allclose(found.class_sums, sums, atol=1e-12)
    # Noisy counts are believed as far as their spread exceeds the noise.
    shrink = 2.0 * likely_counts(found) + 0.3 * 90
    np.testing.assert_allclose(head.prototypes_, 2.0 * found.class_sums / shrink[:, None])
    assert head.release_.bound.constant >= 0.5


def test_prototypes_without_noise_give_the_record_away_and_noise_hides_it():
    """By the formula of "Attacks, and what bounds them"."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 40))
    X /= np.linalg.norm(X, axis=1, keepdims=True) / rng.uniform(0.3, 1.0, (60, 1))
    y = np.r_[rng.integers(2, size=59), 2]  # the last record is the only one of its class
    errors = []
    for hidden, seed in itertools.product((3, 30, 59), (None, *range(40))):
        epsilon = 1e10 if seed is None else 1.0
        head = BallDPRidgePrototype(epsilon, alpha=0.1, radius=0.5, random_state=seed).fit(X, y)
        known = (y == y[hidden]) & (np.arange(60) != hidden)
        factor = known.sum() + 1 + 0.1 * len(X) / 2
        row = factor * head.prototypes_[y[hidden]] - X[known].sum(axis=0)
        if seed is None:
            np.testing.assert_allclose(row, X[hidden], atol=1e-2)
        else:
            errors.append((row - X[hidden]) / factor / head.release_.sigma[y[hidden]])
    # Six and a half standard errors of a mean, and of a deviation, of normal errors.
    n = np.size(errors)
    assert abs(np.mean(errors)) < 6.5 / math.sqrt(n)
    assert abs(np.std(errors) - 1) < 6.5 / math.sqrt(2 * n)
