"""Candidate models of an audit: the closed form and the warm starts against fits from scratch."""

import numpy as np
import pytest

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    OutputPerturbation,
)
from sklearn_balldp.heads import Mechanism, Promise, ReleasedModel, output
from sklearn_balldp.heads.objective import LinearObjective, ReplacedRecords
from sklearn_balldp.heads.solver import hessian_factor, minimise, newton_step
from sklearn_balldp.privacy import Noise
from sklearn_balldp.privacy.statistics import StatisticsBound

TIGHT, TIGHTEST = OutputPerturbation(tol=1e-9), OutputPerturbation(tol=1e-10)
HEADS = [
    (BallDPRidgePrototype(), 3),
    (BallDPRidgePrototype(counts="worst"), 2),
    (BallDPLinearDiscriminant(), 3),
    (BallDPLinearDiscriminant(radius=0.1, domain="sphere", share=0.5, norm_bound=2.0), 2),
    (BallDPLinearDiscriminant(protect_labels=True, classes=range(3)), 3),
    (BallDPLogisticRegression(mechanism=TIGHT), 2),
    (BallDPLogisticRegression(alpha=1e-4, fit_intercept=False, mechanism=TIGHTEST), 2),
    (BallDPLogisticRegression(mechanism=TIGHT), 3),
    (BallDPSquaredHingeSVC(fit_intercept=True, mechanism=TIGHT), 2),
    (BallDPSquaredHingeSVC(alpha=1e-3, mechanism=TIGHTEST, fit_intercept=False), 3),
]


def promise_of(head):
    release = head.release_
    return Promise(release.bound, release.sensitivity, release.sigma)


def rounding(bound, X):
    """What the solver's tolerance, or sums in single precision, leave open."""
    if isinstance(bound, StatisticsBound):
        return 1e-3 if bound.summed and X.dtype == np.float32 else 1e-11
    return 2 * getattr(bound, "tol", 0.0) / bound.alpha


def neighbours(head, problem):
    return ReleasedModel(head).mechanism.neighbours(problem, promise_of(head)).models


def records(n_classes, dtype=np.float64, n=300, d=8):
    rng = np.random.default_rng(n_classes)
    # Some rows lie outside the ball, to be projected.
    X = rng.standard_normal((n, d)) * 0.45
    return X.astype(dtype), rng.integers(n_classes, size=n)


def objective_of(loss, X, y, alpha=0.1, fit_intercept=True):
    given = {"alpha": alpha, "norm_bound": 1.0, "fit_intercept": fit_intercept}
    return LinearObjective(loss, X, y, 3 if loss == "softmax" else 2, **given)


@pytest.mark.parametrize(
    ("head", "n_classes", "dtype"),
    [
        *((head, k, np.float64) for head, k in HEADS),
        *((*HEADS[i], np.float32) for i in (2, 3, 5)),
    ],
)
def test_neighbours_equal_fits_from_scratch(head, n_classes, dtype):
    X, y = records(n_classes, dtype)
    head.fit(X, y)
    problem, bound = ReleasedModel(head).on(X, y), head.release_.bound
    rows, codes = X[:5] * np.float32(0.5) + X[5:10] * np.float32(0.5), np.arange(5) % n_classes
    rows[0] *= 10
    fast = neighbours(head, problem)
    # Any mechanism's: it runs with noise that keeps what it is given.
    slow = Mechanism.neighbours(ReleasedModel(head).mechanism, problem, promise_of(head)).models
    tol = 1e-12 + rounding(bound, X)
    for left_out in (0, 17, 299):
        models, exact = fast(left_out, rows, codes), slow(left_out, rows, codes)
        gaps = np.linalg.norm(models.reshape(5, -1) - exact, axis=1)
        assert gaps.max() <= tol
        # The candidates really differ, by far more than the solver's tolerance.
        assert np.linalg.norm(models[0] - models[1]) > 5 * tol
    assert not any("neighbour" in name for name in vars(head))


@pytest.mark.parametrize(("head", "n_classes"), [HEADS[i] for i in (0, 2, 7, 9)])
def test_the_record_itself_gives_the_fitted_model(head, n_classes, noise_free):
    X, y = records(n_classes)
    head.fit(X, y)
    problem, bound = ReleasedModel(head).on(X, y), head.release_.bound
    model = neighbours(head, problem)(7, X[7:8], problem.codes[7:8])[0]
    fitted = ReleasedModel(head).mechanism.run(problem, promise_of(head), Noise()).parameters
    assert np.linalg.norm(model - fitted) <= 1e-12 + rounding(bound, X)


@pytest.mark.parametrize(("head", "n_classes"), [HEADS[i] for i in (5, 6, 8)])
def test_candidate_models_keep_the_certified_tolerance(head, n_classes):
    """The gradient of the replaced rows is within what the release accounts for."""
    X, y = records(n_classes)
    problem, bound = ReleasedModel(head.fit(X, y)).on(X, y), head.release_.bound
    models = neighbours(head, problem)(5, X[10:20], problem.codes[10:20])
    for model, i in zip(models, range(10, 20), strict=True):
        changed, labels = X.copy(), problem.codes.copy()
        changed[5], labels[5] = X[i], problem.codes[i]
        objective = objective_of(bound.loss, changed, labels, bound.alpha, bound.fit_intercept)
        assert np.linalg.norm(objective.value_and_gradient(model)[1]) <= bound.tol


def test_replaced_record_is_the_objective_of_the_replaced_rows():
    X, y = records(3)
    theta = np.random.default_rng(0).standard_normal((3, 9))
    objective = objective_of("softmax", X, y)
    neighbour = ReplacedRecords(objective, np.array([4]), X[9:10] * 3, np.array([2]))
    changed, labels = X.copy(), y.copy()
    changed[4], labels[4] = X[9] * 3, 2
    direct = objective_of("softmax", changed, labels)
    (value, gradient), (expected, expected_gradient) = (
        own.value_and_gradient(theta, curvature=True) for own in (neighbour, direct)
    )
    assert value == pytest.approx(expected, rel=1e-13)
    from_change = objective.value_and_gradient(theta)[1] + neighbour.gradient_change(theta)
    for found in (gradient, from_change):
        np.testing.assert_allclose(found, expected_gradient, atol=1e-14)
    product = neighbour.curvature_product(theta)
    np.testing.assert_allclose(product, direct.curvature_product(theta), atol=1e-14)


def test_curvatures_of_neighbours_are_not_shared():
    """Audits solve neighbours on threads: each must keep its own second derivatives."""
    X, y = records(2)
    objective, theta = objective_of("logistic", X, y), np.ones((1, 9))
    first, second = (
        ReplacedRecords(objective, np.array([i]), X[5:6], np.array([1])) for i in (0, 1)
    )
    first.value_and_gradient(theta, curvature=True)
    alone = first.curvature_product(theta)
    second.value_and_gradient(-40 * theta, curvature=True)
    np.testing.assert_array_equal(first.curvature_product(theta), alone)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_hessian_is_the_derivative_of_the_gradient(loss):
    X, y = records(2, n=50)
    objective = objective_of(loss, X, y)
    theta = 0.3 * np.random.default_rng(0).standard_normal((1, 9))
    hessian = objective.hessian(theta)
    for i, step in enumerate(1e-6 * np.eye(9)):
        ahead = objective.value_and_gradient(theta + step)[1]
        behind = objective.value_and_gradient(theta - step)[1]
        np.testing.assert_allclose(hessian[i], (ahead - behind)[0] / 2e-6, atol=1e-7)
    # One Newton step from nearby lands at the minimiser, to second order.
    exact = minimise(objective, tol=1e-12)
    factor = hessian_factor(objective, exact)
    start = exact + 1e-4
    stepped = newton_step(start, objective.value_and_gradient(start)[1], factor)
    assert np.linalg.norm(stepped - exact) < 1e-6


def test_warm_starts_take_few_passes(monkeypatch):
    passes = []
    evaluate = LinearObjective.value_and_gradient

    def counted(self, *args, **kwargs):
        passes.append(len(self.X))
        return evaluate(self, *args, **kwargs)

    X, y = records(2, n=5000)
    head = BallDPLogisticRegression(mechanism="output").fit(X, y)
    problem = ReleasedModel(head).on(X, y)
    models = neighbours(head, problem)
    monkeypatch.setattr(LinearObjective, "value_and_gradient", counted)
    models(3, X[:10], problem.codes[:10])
    assert passes.count(5000) <= 20


def test_a_useless_hessian_does_no_harm():
    """A factor of another problem: the chord steps give up and the solver goes on."""
    X, y = records(2)
    objective = objective_of("logistic", X, y, alpha=1e-3)
    for factor in (1e-3 * np.eye(9), 1e3 * np.eye(9)):
        theta = minimise(objective, tol=1e-10, start=np.ones((1, 9)), factor=factor)
        assert np.linalg.norm(objective.value_and_gradient(theta)[1]) <= 1e-10


def test_very_many_features_go_without_a_factor(monkeypatch):
    monkeypatch.setattr(output, "hessian_factor", lambda objective, theta: None)
    X, y = records(2)
    head = BallDPLogisticRegression(mechanism="output").fit(X, y)
    problem = ReleasedModel(head).on(X, y)
    assert np.isfinite(neighbours(head, problem)(0, X[1:2], problem.codes[1:2])).all()
