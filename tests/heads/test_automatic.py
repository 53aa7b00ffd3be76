"""What is chosen from public numbers: the mechanism, its alpha, and the settings of a descent."""

import dataclasses
import math
import pickle

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    OutputPerturbation,
    PrivacyAccountant,
    ReconstructionAuditor,
    verify,
)
from sklearn_balldp.heads import Budget, Problem
from sklearn_balldp.heads.descent_settings import settings_of
from sklearn_balldp.heads.output import LEAST_ALPHA
from sklearn_balldp.privacy import Release
from sklearn_balldp.privacy.gaussian import mu_from_budget
from sklearn_balldp.privacy.transcript import MOST_OF_STEPS

HEADS = [BallDPLogisticRegression, BallDPSquaredHingeSVC]


@parametrize_with_checks([Head(**p) for Head in HEADS for p in ({}, {"epsilon": 1e8})])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_sklearn_contract(estimator, check):
    check(estimator)


def data(n=600, k=3, d=6, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    X = rng.standard_normal((n, d)) + 1.5 * rng.standard_normal((k, d))[y]
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def problem(**given):
    public = {
        "n_samples": 5000,
        "n_features": 384,
        "classes": np.arange(6),
        "class_counts": (900, 900, 900, 900, 900, 500),
        "alpha": math.nan,
        "norm_bound": 1.0,
        "radius": 0.3,
        "metric": "euclidean",
        "labels": "public",
        "loss": "softmax",
        "fit_intercept": True,
    }
    return Problem(**{**public, **given})


@pytest.mark.parametrize("Head", HEADS)
@pytest.mark.parametrize("k", [2, 3])
def test_little_noise_ends_at_the_minimiser(Head, k):
    X, y = data(k=k)
    chosen = [Head(epsilon, radius=0.1).fit(X, y).release_ for epsilon in (1.0, 1e8)]
    assert [release.mechanism for release in chosen] == ["gradient", "output"]
    assert chosen[0].alpha == 0.0
    assert chosen[1].alpha == LEAST_ALPHA / len(X)
    heads = [Head(1e8, radius=0.1).fit(X, y) for _ in range(16)]
    peer = LogisticRegression if Head is BallDPLogisticRegression else LinearSVC
    options = {} if Head is BallDPLogisticRegression else {"dual": False}
    exact = peer(C=1.0 / LEAST_ALPHA, fit_intercept=False, tol=1e-10, max_iter=5000, **options)
    rows = np.hstack([X, np.ones((len(X), 1))])
    exact.fit(rows, y)
    released = np.mean([np.hstack([h.coef_, h.intercept_[:, None]]) for h in heads], axis=0)
    # Six standard deviations of a mean of 16.
    atol = 1.5 * np.max(heads[0].release_.sigma)
    assert atol < 0.01
    np.testing.assert_allclose(released, exact.coef_, rtol=0, atol=atol)


@pytest.mark.parametrize("loss", ["softmax", "squared_hinge"])
@pytest.mark.parametrize("labels", ["public", "protected"])
def test_default_alpha_keeps_the_noise_small(loss, labels):
    mechanism, alphas = OutputPerturbation(), []
    precise = 0.05 if loss == "squared_hinge" else 0.15
    for epsilon in (0.5, 2.0, 8.0, 32.0, 1e3, 1e6):
        given = problem(loss=loss, labels=labels)
        if labels == "protected":
            given = dataclasses.replace(given, class_counts=None)
        budget = Budget(epsilon, 1e-6)
        alpha = mechanism.alpha_for(given, budget)
        own = dataclasses.replace(given, alpha=alpha)
        sigma = mechanism.promise(own, budget).bound.sigma[0]
        least = alpha == LEAST_ALPHA / 5000
        # The tolerance of the solver adds a thousandth.
        assert sigma <= 1.003 * precise or alpha == 1.0
        assert least or alpha == 1.0 or sigma >= 0.99 * precise
        assert mechanism.is_precise(given, budget) == (least and sigma <= 1.003 * precise)
        alphas.append(alpha)
    assert (np.diff(alphas) <= 0).all()
    assert alphas[0] > 10 * alphas[3]


def test_scale_of_the_rows_changes_nothing():
    mechanism, budget = OutputPerturbation(), Budget(4.0, 1e-6)
    no_intercept = problem(fit_intercept=False)
    for scale in (1e-3, 50.0):
        scaled = dataclasses.replace(no_intercept, norm_bound=scale, radius=0.3 * scale)
        # alpha is in units of squared norm: B theta is what stays.
        own = dataclasses.replace(no_intercept, alpha=0.01)
        other = dataclasses.replace(scaled, alpha=0.01 * scale**2)
        assert mechanism._noise(other, budget) == pytest.approx(mechanism._noise(own, budget))
        assert settings_of(scaled, 0.4, start="statistics") == settings_of(
            no_intercept, 0.4, start="statistics"
        )


@pytest.mark.parametrize("Head", HEADS)
@pytest.mark.parametrize("epsilon", [2.0, 1e8])
def test_what_was_chosen_is_recorded_planned_audited_and_verified(Head, epsilon):
    X, y = data()
    head = Head(epsilon, radius=0.3)
    planned = head.plan(len(X), X.shape[1], np.bincount(y)).release
    with PrivacyAccountant():
        head.fit(X, y)
    release = head.release_
    assert (planned.mechanism, planned.alpha, planned.bound) == (
        release.mechanism,
        release.alpha,
        release.bound,
    )
    assert Release.from_dict(release.to_dict()) == release
    assert pickle.loads(pickle.dumps(head)).release_ == release
    assert head.mechanism == "auto"
    assert not verify(head).failed
    public, labels = data(seed=0)
    auditor = ReconstructionAuditor(head, n_candidates=3, n_supports=2, random_state=0)
    auditor.fit(X, y, 0.97 * public, labels)
    assert auditor.guarantee_holds_


def test_an_alpha_that_is_given_is_kept():
    X, y = data()
    for epsilon, alpha, expected in ((1.0, 0.5, "output"), (1.0, 1e-3, "gradient")):
        head = BallDPLogisticRegression(epsilon, radius=0.1, alpha=alpha)
        head.set_params(epsilon=20.0 if expected == "output" else epsilon).fit(X, y)
        assert (head.release_.mechanism, head.release_.alpha) == (expected, alpha)
    assert BallDPLogisticRegression(1e8, alpha=0.0).fit(X, y).release_.mechanism == "gradient"
    prior = np.ones((3, 6))
    assert BallDPLogisticRegression(1e8, prior=prior).fit(X, y).release_.mechanism == "gradient"


def test_settings_of_a_mechanism_need_its_name():
    head = BallDPLogisticRegression(mechanism="gradient").set_params(mechanism__n_steps=5)
    assert isinstance(head.mechanism, GradientPerturbation)
    with pytest.raises(ValueError, match="n_steps"):
        BallDPLogisticRegression().set_params(mechanism__n_steps=5)
    search = GridSearchCV(
        BallDPLogisticRegression(20.0, radius=0.1),
        {"mechanism": ["auto", "output", GradientPerturbation(n_steps=5)]},
        cv=2,
    ).fit(*data())
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_settings_are_functions_of_public_numbers():
    """As the documentation states them."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        k = int(rng.integers(2, 200))
        counts = rng.integers(0, 400, k)
        counts[:2] += 5
        n, d = int(counts.sum()), int(rng.integers(2, 1000))
        mu, r = 10.0 ** rng.uniform(-3, 2), 10.0 ** rng.uniform(-3, 0.3)
        given = problem(
            n_samples=n,
            n_features=d,
            classes=np.arange(k),
            class_counts=tuple(counts.tolist()),
            radius=r,
        )
        found = settings_of(given, mu, start="statistics", n_steps=7)
        m = n * mu / (51.0 * math.sqrt(d))
        x = r * math.sqrt(k) * m**0.7
        a = 1.0 / (1.0 + (0.75 / x) ** 6)
        w = a / (1.0 + (0.2 * k**0.45 / m) ** 6)
        v = d / n * (r / mu) ** 2 * np.sum(1.0 / counts[counts > 0])
        most = max(1.0 - 0.16 * min(1.0, r) ** -0.2, 0.1)
        some = min(most, 1.8 / math.sqrt(k))
        g = some + (most - some) / (1.0 + v / 0.1)
        assert found.share == pytest.approx(0.1 + w * (g - 0.1))
        assert found.clip == pytest.approx(0.3 - 0.2 * a)
        enough = 1.5 * min(1.0, r) ** 0.3
        assert found.accumulated_noise == pytest.approx(0.2 + 0.3 * a + (enough - 0.5) * w)
        binary = settings_of(
            dataclasses.replace(given, loss="logistic"), mu, start="statistics", n_steps=7
        )
        assert binary.accumulated_noise == pytest.approx(0.2 + 0.3 * a + w)
        assert binary.share == pytest.approx(0.1 + w**0.25 * (g - 0.1))
        pair = settings_of(
            dataclasses.replace(given, loss="logistic", alpha=0.1), mu, start="statistics"
        )
        assert pair.n_steps == 40
        assert 0.1 <= found.share <= MOST_OF_STEPS
        assert found.n_steps == 7
        own = settings_of(given, mu, start="statistics")
        hinged = dataclasses.replace(given, loss="squared_hinge")
        if w < 0.3:
            assert dataclasses.astuple(own) == ("sums", 0.01, 0.3, 0.2, 1)
        else:
            assert own == dataclasses.replace(found, n_steps=20)
        assert (
            settings_of(dataclasses.replace(given, alpha=0.1), mu, start="statistics").n_steps == 20
        )
        hidden = dataclasses.replace(given, labels="protected", class_counts=None)
        assert settings_of(hidden, mu, start="statistics").n_steps == 20
        hinge = settings_of(hinged, mu, start="statistics", n_steps=7)
        m /= math.sqrt(k) if k > 2 else 1.0
        x = r * math.sqrt(k) * m**0.7
        a = 1.0 / (1.0 + (0.75 / x) ** 6)
        w = a / (1.0 + (0.35 * k**0.2 / m) ** 6)
        assert hinge.share == pytest.approx(0.1 + w * (g - 0.1))
        assert settings_of(hinged, mu, start="statistics").n_steps == (1 if w < 0.3 else 50)
        few = 0.2 / math.sqrt(k if k > 2 else 1)
        expected = 0.02 + (few - 0.02) * a + (0.5 - few) * w
        assert hinge.accumulated_noise == pytest.approx(expected)
        tiny = settings_of(
            dataclasses.replace(given, radius=1e-200), mu, start="statistics", n_steps=7
        )
        assert (tiny.share, tiny.clip, tiny.accumulated_noise) == (0.1, 0.3, 0.2)
        zero = settings_of(given, mu, start="zero")
        assert dataclasses.astuple(zero) == ("zero", 1.0, 0.1, 1.5, 100)
        hidden = dataclasses.replace(given, labels="protected", class_counts=None)
        equal = settings_of(hidden, mu, start="statistics")
        assert equal == settings_of(
            dataclasses.replace(hidden, radius=0.1 * r), mu, start="statistics"
        )


def test_where_records_are_few_the_mean_is_released_alone():
    """As the documentation states it; where labels are public, never unasked."""
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(200):
        n, d, k = (int(rng.integers(*ends)) for ends in ((50, 20000), (2, 600), (3, 100)))
        mu, r = 10.0 ** rng.uniform(-2, 0.5), rng.uniform(0.1, 2.0)
        counts = (n - k + 1, *(1,) * (k - 1))
        given = problem(
            n_samples=n, n_features=d, classes=np.arange(k), class_counts=counts, radius=r
        )
        hidden = dataclasses.replace(given, labels="protected", class_counts=None)
        few = n * mu / (51.0 * math.sqrt(d)) < 2.4 * min(1.0, math.sqrt(10.0 / k))
        found = settings_of(hidden, mu, start="auto")
        seen.add(found.start)
        assert found.start == ("mean" if few else "sums")
        assert settings_of(given, mu, start="auto").start == "sums"
        assert settings_of(hidden, mu, start="auto", moves=False).start == "sums"
        hinge = dataclasses.replace(hidden, loss="squared_hinge")
        assert settings_of(hinge, mu, start="auto").start == "sums"
        for own, distance in ((hidden, 2.0), (given, r), (hinge, 2.0)):
            mean = settings_of(own, mu, start="mean")
            share = min(max(d * (distance / (n * mu)) ** 2 / 0.1, 0.012), 0.3) / 4.0
            assert dataclasses.astuple(mean) == ("mean", pytest.approx(1.0 - share), 0.2, 1.5, 60)
    assert seen == {"mean", "sums"}
    with_prior = dataclasses.replace(hidden, n_samples=50, prior=np.zeros((k, d)))
    assert settings_of(with_prior, 0.01, start="auto").start == "sums"


def test_fewer_records_are_enough_where_labels_are_protected():
    n, d, k, mu = 1200, 64, 10, 0.1
    given = problem(n_samples=n, n_features=d, classes=np.arange(k), class_counts=(n // k,) * k)
    given = dataclasses.replace(given, radius=2.0)
    hidden = dataclasses.replace(given, labels="protected", class_counts=None)
    m = n * mu / (51.0 * math.sqrt(d))
    a = 1.0 / (1.0 + (0.75 / (2.0 * math.sqrt(k) * m**0.7)) ** 6)
    v = d / n * (2.0 / mu) ** 2 * k**2 / n
    some = 1.8 / math.sqrt(k)
    g = some + (0.84 - some) / (1.0 + v / 0.1)
    shares = [settings_of(own, mu, start="statistics", n_steps=7).share for own in (given, hidden)]
    for share, few in zip(shares, (0.2 * k**0.45, 0.03 * k**0.75), strict=True):
        assert share == pytest.approx(0.1 + a / (1.0 + (few / m) ** 6) * (g - 0.1))
    assert shares[0] < 0.5 * shares[1]
    # Each one-versus-rest head counts its own.
    hinges = [dataclasses.replace(own, loss="squared_hinge") for own in (given, hidden)]
    assert len({settings_of(own, mu, start="statistics", n_steps=7) for own in hinges}) == 1


def test_momentum_is_for_several_steps_from_a_start():
    X, y = data()
    for own, momentum in (
        ({}, 0.8),
        ({"n_steps": 1}, 0.9),
        ({"start": "zero", "n_steps": 3}, 0.9),
        ({"momentum": 0.3}, 0.3),
    ):
        mechanism = GradientPerturbation(**{"n_steps": 4, **own})
        head = BallDPLogisticRegression(2.0, radius=0.3, mechanism=mechanism).fit(X, y)
        assert head.release_.bound.descent.momentum == momentum


@pytest.mark.parametrize("Head", HEADS)
@pytest.mark.parametrize(("epsilon", "radius"), [(5.0, 1e-3), (100.0, 1e-5)])
def test_a_single_step_leaves_the_discriminant_as_it_is(Head, epsilon, radius):
    """However little noise there is, it does not leap."""
    rng = np.random.default_rng(0)
    y = np.arange(30_000) % 10
    X = normalize(rng.standard_normal((10, 10)))[y] + 0.17 * rng.standard_normal((30_000, 10))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    head = Head(epsilon, radius=radius, mechanism="gradient", random_state=0).fit(X, y)
    assert head.release_.bound.descent.n_steps == 1
    other = BallDPLinearDiscriminant(epsilon, radius=radius, random_state=0).fit(X, y)
    assert abs(head.score(X, y) - other.score(X, y)) < 0.003
    tuned = GradientPerturbation(learning_rate=1.0)
    steps = 50 if Head is BallDPSquaredHingeSVC else 20
    assert head.set_params(mechanism=tuned).fit(X, y).release_.bound.descent.n_steps == steps


@pytest.mark.parametrize("epsilon", [1e-3, 1e4])
@pytest.mark.parametrize("radius", [1e-30, 1e-6, 2.0])
def test_extreme_budgets_and_radii(epsilon, radius):
    X, y = data()
    for Head in HEADS:
        release = Head(epsilon, radius=radius, mechanism="gradient").fit(X, y).release_
        assert release.bound.mu(radius) <= mu_from_budget(epsilon, 1e-6)
        assert Release.from_dict(release.to_dict()) == release
