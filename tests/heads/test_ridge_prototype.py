"""The ridge prototype head: the contract, the mathematics, the errors, the leaks."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.mechanisms.discriminant_rule import likely_counts
from sklearn_balldp.mechanisms.prototype_rule import gaussian_rule
from sklearn_balldp.privacy.gaussian import mu_from_budget
from sklearn_balldp.privacy.noise import Noise, grid_slack


def closed_form(X, y, alpha):
    return np.array([2 * X[y == c].sum(0) / (2 * np.sum(y == c) + alpha * len(y)) for c in set(y)])


@pytest.mark.parametrize(("dtype", "n_repeats"), [(np.float16, 150), (np.float32, 1), (float, 1)])
def test_minimiser(noise_free, ball_rows, dtype, n_repeats):
    X, y = ball_rows
    X, y = np.tile(X, (n_repeats, 1)).astype(dtype), np.tile(y, n_repeats)
    head = BallDPRidgePrototype(alpha=0.3).fit(X, y)
    expected = closed_form(X.astype(np.float64), y, 0.3)
    np.testing.assert_allclose(head.prototypes_, expected, atol=1e-6)


def test_rows_outside_the_ball_are_projected(noise_free, ball_rows):
    X, y = ball_rows
    scale = np.where(np.arange(len(X)) % 3 == 0, 40.0, 1.0)[:, None]
    projected = X * scale
    projected /= np.maximum(1, np.linalg.norm(projected, axis=1))[:, None]
    head = BallDPRidgePrototype().fit(X * scale, y)
    np.testing.assert_allclose(head.prototypes_, closed_form(projected, y, 0.01), atol=1e-14)
    np.testing.assert_allclose(
        head.decision_function(X * scale), head.decision_function(projected), atol=1e-12
    )


def test_threads_and_blocks_do_not_change_the_sums(noise_free):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50_000, 100)).astype(np.float32) / 12
    y = rng.integers(7, size=len(X))
    P = X / np.maximum(1, np.linalg.norm(X.astype(float), axis=1))[:, None]
    head = BallDPRidgePrototype().fit(X, y)
    np.testing.assert_allclose(head.prototypes_, closed_form(P, y, 0.01), atol=1e-9)


def test_noise_has_the_stated_scale():
    X = np.random.default_rng(0).standard_normal((90, 60)) / 12
    y = np.repeat([0, 1, 2], [50, 30, 10])
    head, truth = BallDPRidgePrototype(epsilon=3.0, radius=0.4), closed_form(X, y, 0.01)
    draws = np.array([head.fit(X, y).prototypes_ for _ in range(40)])
    z = (draws - truth) / np.reshape(head.release_.sigma, (3, 1))
    # 2400 values per class: a scale off by 12% is 8 standard deviations away.
    np.testing.assert_allclose(z.std(axis=(0, 2)), 1, atol=0.1)
    np.testing.assert_allclose(z.mean(axis=(0, 2)), 0, atol=0.15)
    assert head.release_.sigma[2] > head.release_.sigma[0]


def test_two_fits_never_share_noise(ball_rows):
    X, y = ball_rows
    head = BallDPRidgePrototype()
    first = head.fit(X, y).prototypes_
    assert not np.isin(first, clone(head).fit(X, y).prototypes_).any()
    seeded = BallDPRidgePrototype(random_state=1)
    np.testing.assert_array_equal(seeded.fit(X, y).prototypes_, clone(seeded).fit(X, y).prototypes_)


def test_nearest_is_the_closest_prototype(ball_rows):
    X, y = ball_rows
    head = BallDPRidgePrototype(50.0, radius=0.2, alpha=1e-6, decision="nearest").fit(X, y)
    distances = np.linalg.norm(X[:, None] - head.prototypes_, axis=2)
    np.testing.assert_array_equal(head.predict(X), distances.argmin(axis=1))
    exact = clone(head).set_params(epsilon=1e9, alpha=1e-9).fit(X, y)
    np.testing.assert_array_equal(exact.predict(X), NearestCentroid().fit(X, y).predict(X))


def test_gaussian_rule_is_the_bayes_rule_when_there_is_no_noise():
    rng = np.random.default_rng(0)
    means = rng.standard_normal((4, 50)) * 0.05
    counts = np.array([10, 20, 30, 40])
    coef, intercept = gaussian_rule(means, counts, np.zeros(4), alpha=1e-12, norm_bound=1.0)
    X = rng.standard_normal((30, 50)) / 7
    squares = counts @ np.vecdot(means, means) / 100
    t = 10 / 50 * (1 - squares)
    expected = X @ means.T / t - np.vecdot(means, means) / (2 * t) + np.log(counts / 100)
    np.testing.assert_allclose(
        softmax(X @ coef.T + intercept, axis=1), softmax(expected, axis=1), rtol=1e-9
    )


def test_gaussian_rule_falls_back_to_the_prior_under_huge_noise():
    counts = np.array([1, 9, 0])
    noise = np.random.default_rng(0).standard_normal((3, 20)) * 1e4
    coef, intercept = gaussian_rule(noise, counts, np.full(3, 1e4), alpha=0.01, norm_bound=1.0)
    shares = softmax(np.eye(20) @ coef.T + intercept, axis=1)
    np.testing.assert_allclose(shares[:, 2], 0)
    np.testing.assert_allclose(shares[:, 0], 0.1, atol=0.01)


def test_gaussian_rule_is_finite_in_the_corners():
    rng, own = np.random.default_rng(0), {"alpha": 0.01, "norm_bound": 1.0}
    corners = itertools.product(
        (1, 2, 40), (0.0, 1e-9, 1.0, 1e6), ([1, 1], [1, 1000], [5, 5, 5]), (0.0, 1.0)
    )
    for d, sigma, counts, scale in corners:
        mu = scale * rng.standard_normal((len(counts), d))
        rule = gaussian_rule(mu, np.array(counts), np.full(len(counts), sigma), **own)
        assert all(np.isfinite(part).all() for part in rule)


def test_predict_proba_only_with_the_generative_rule(ball_rows):
    X, y = ball_rows
    head = BallDPRidgePrototype(decision="gaussian", epsilon=8.0, radius=0.5).fit(X, y)
    proba = head.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(head.classes_[proba.argmax(axis=1)], head.predict(X))
    assert not hasattr(BallDPRidgePrototype(decision="nearest"), "predict_proba")
    # By default the rule follows the labels: of the parameters, then of the release.
    auto = head.with_rule(decision="auto")
    np.testing.assert_array_equal(auto.predict_proba(X), proba)
    assert not hasattr(head.with_rule(decision="nearest"), "predict_proba")
    protected = BallDPRidgePrototype(8.0, radius=0.5, protect_labels=True, classes=[0, 1, 2])
    assert not hasattr(protected, "predict_proba")
    assert hasattr(BallDPRidgePrototype(), "predict_proba")
    nearest = protected.fit(X, y).predict(X)
    other = protected.with_rule(decision="nearest")
    np.testing.assert_array_equal(nearest, other.predict(X))
    for name in ("gaussian", "far"):
        with pytest.raises(ValueError, match="decision"):
            protected.with_rule(decision=name)
    # Whatever the parameters say by now.
    assert not hasattr(protected.set_params(protect_labels=False), "predict_proba")
    assert hasattr(head.set_params(decision="nearest"), "predict_proba")


@pytest.mark.parametrize("decision", ["nearest", "gaussian"])
def test_absent_class_is_never_predicted_and_needs_no_noise(ball_rows, decision):
    X, y = ball_rows
    head = BallDPRidgePrototype(classes=[0, 1, 2, 3], decision=decision).fit(X, y)
    assert head.release_.sigma[3] == 0
    assert head.release_.sensitivity[3] == 0
    np.testing.assert_array_equal(head.prototypes_[3], 0)
    assert 3 not in head.predict(X)


def test_drops_into_pipeline_and_grid_search():
    rng, places = np.random.default_rng(0), np.repeat([0, 1, 2], 80)
    X = pd.DataFrame(rng.standard_normal((240, 4)) + 3 * np.eye(4)[places], columns=list("abcd"))
    y = np.array(["x", "y", "z"])[places]
    pipe = make_pipeline(Normalizer(), BallDPRidgePrototype(radius=0.3, epsilon=20.0))
    grid = GridSearchCV(pipe, {"balldpridgeprototype__epsilon": [1.0, 20.0]}, cv=3)
    assert grid.fit(X, y).best_score_ > 0.8
    assert cross_val_score(pipe, X, y, cv=3).mean() > 0.8
    assert list(BallDPRidgePrototype().fit(X, y).feature_names_in_) == list("abcd")


VARIANTS = [
    {},
    {"counts": "worst", "radius": 0.3},
    {"protect_labels": True, "classes": [0, 1, 2], "radius": 0.5},
    {"metric": "chebyshev", "radius": 0.1},
]


@pytest.mark.parametrize("params", VARIANTS, ids=str)
def test_the_noise_added_is_the_noise_recorded(ball_rows, monkeypatch, params):
    """And mu covers the sensitivity over it, and the grid."""
    seen = []

    def spy(self, values, sigma):
        seen.append((np.array(sigma), self.private))
        return values.copy()

    monkeypatch.setattr(Noise, "__call__", spy)
    head = BallDPRidgePrototype(epsilon=2.0, **params).fit(*ball_rows)
    release = head.release_
    ((sigma, private),) = seen
    assert private
    np.testing.assert_array_equal(sigma, release.bound.scales(release.problem))
    # Prototypes are public multiples of the sums where counts are public.
    if "classes" not in params:
        counts = np.bincount(ball_rows[1])
        divisors = 2.0 * counts + 0.01 * 90
        expected = 2.0 * np.ravel(release.bound.sigma) / divisors
        np.testing.assert_allclose(np.broadcast_to(release.sigma, 3), expected, rtol=1e-9)
    ratio = np.max(np.divide(release.sensitivity, release.sigma))
    assert ratio + grid_slack(sigma.size) <= release.mu * (1.0 + 1e-12)
    assert release.mu <= mu_from_budget(2.0, 1e-6)


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


def test_refit_with_protected_labels_forgets_the_counts(ball_rows):
    head = BallDPRidgePrototype().fit(*ball_rows)
    assert head.class_counts_.tolist() == [50, 30, 10]
    head.set_params(protect_labels=True, classes=[0, 1, 2])
    assert head.class_counts_.tolist() == [50, 30, 10]
    head.fit(*ball_rows)
    assert not hasattr(head, "class_counts_")
    with pytest.raises(ValueError, match="decision='nearest'"):
        head.with_rule(decision="gaussian")


def test_protected_prototypes_are_made_of_sums_and_counts(noise_free, ball_rows):
    X, y = ball_rows
    head = BallDPRidgePrototype(alpha=0.3, protect_labels=True, classes=[0, 1, 2]).fit(X, y)
    found = head.statistics_
    np.testing.assert_allclose(found.counts, [50, 30, 10])
    sums = [X[y == c].sum(axis=0) for c in range(3)]
    np.testing.assert_allclose(found.class_sums, sums, atol=1e-12)
    # Noisy counts are believed as far as their spread exceeds the noise.
    shrink = 2.0 * likely_counts(found) + 0.3 * 90
    np.testing.assert_allclose(head.prototypes_, 2.0 * found.class_sums / shrink[:, None])
    assert head.release_.bound.constant >= 0.5


@pytest.mark.parametrize(("epsilon", "least"), [(0.5, 0.5), (2.0, 0.85)])
def test_protected_prototypes_are_accurate(digits, epsilon, least):
    """Where noisy prototypes themselves found one in eight: class sums come with their counts."""
    (X, y), (Xt, yt) = digits
    given = {"radius": 0.5, "protect_labels": True, "classes": range(10)}
    scores = [
        BallDPRidgePrototype(epsilon, **given, random_state=seed).fit(X, y).score(Xt, yt)
        for seed in range(5)
    ]
    assert np.mean(scores) > least


def test_every_generator_is_flagged(ball_rows):
    for seed in (0, np.random.default_rng(0), np.random.RandomState(0)):
        head = BallDPRidgePrototype(random_state=seed).fit(*ball_rows)
        assert head.release_.private is False


def test_arithmetic_never_warns_or_fails_on_a_row():
    X = np.full((40, 3), 0.1)
    X[0] = 1e-200
    X[1] = 1e139
    with np.errstate(all="raise"):
        BallDPRidgePrototype(protect_labels=True, classes=[0, 1]).fit(X, np.arange(40) % 2)
