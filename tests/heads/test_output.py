"""Logistic regression and squared-hinge SVC: contract, minimisers, sensitivity end to end."""

import numpy as np
import pytest
from head_cases import rows
from scipy.optimize import differential_evolution
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from sklearn_balldp import BallDPLogisticRegression, BallDPSquaredHingeSVC, OutputPerturbation
from sklearn_balldp.privacy.gaps import gradient_gap

HEADS = [BallDPLogisticRegression, BallDPSquaredHingeSVC]


def minimiser(Head, **params):
    """A head with noise on the minimiser, as the paper has it."""
    fit_intercept = Head is BallDPLogisticRegression
    given = {"mechanism": "output", "alpha": 0.01, "fit_intercept": fit_intercept, **params}
    return Head(**given)


@pytest.mark.parametrize(
    ("n", "n_classes", "alpha"), [(50, 2, 1e-4), (1000, 3, 1e-2), (50, 10, 1.0)]
)
@pytest.mark.parametrize("Head", HEADS)
def test_same_minimiser_as_scikit_learn(noise_free, Head, n, n_classes, alpha):
    X, y = rows(n, n_classes)
    exact = {"fit_intercept": True, "mechanism": OutputPerturbation(tol=1e-12)}
    head = minimiser(Head, alpha=alpha, **exact).fit(X, y)
    common = {"C": 1 / (alpha * n), "fit_intercept": False, "tol": 1e-12, "max_iter": 100_000}
    if Head is BallDPLogisticRegression:
        reference = LogisticRegression(solver="newton-cg", **common)
    else:
        # LinearSVC minimises |w|^2/2 + C sum h^2.
        reference = LinearSVC(loss="squared_hinge", dual=False, **common)
    reference.fit(np.hstack([X, np.ones((n, 1))]), y)
    mine = np.hstack([head.coef_, head.intercept_[:, None]])
    np.testing.assert_allclose(mine, reference.coef_, atol=1e-6, rtol=1e-6)


def weighted_minimisers(loss, rows, signs, weights, alpha, start=0.0):
    """Minimisers of many small weighted problems at once, by damped Newton."""
    theta = np.zeros((len(rows), rows.shape[2])) + start
    eye = alpha * np.eye(rows.shape[2])

    def gradient(theta):
        margins = signs * (rows @ theta[..., None])[..., 0]
        if loss == "logistic":
            slope, curve = -expit(-margins), expit(margins) * expit(-margins)
        else:
            hinge = np.maximum(1 - margins, 0)
            slope, curve = -2 * hinge, 2.0 * (hinge > 0)
        value = ((weights * signs * slope)[:, None] @ rows)[:, 0] + alpha * theta
        return value, weights * curve

    g, curve = gradient(theta)
    for _ in range(80):
        hessian = rows.transpose(0, 2, 1) @ (curve[..., None] * rows) + eye
        step = np.linalg.solve(hessian, g[..., None])[..., 0]
        length = np.ones((len(rows), 1))
        norm = np.linalg.norm(g, axis=1, keepdims=True)
        for _ in range(12):
            moved, curve_moved = gradient(theta - length * step)
            worse = np.linalg.norm(moved, axis=1, keepdims=True) > (1 - 0.1 * length) * norm
            # Rounding alone is no reason for a shorter step.
            worse &= norm > 1e-14
            if not worse.any():
                break
            length = np.where(worse, length / 2, length)
        theta, g, curve = theta - length * step, moved, curve_moved
        if np.abs(g).max() < 1e-13:
            break
    return theta, np.linalg.norm(g, axis=1)


@pytest.mark.parametrize(
    ("loss", "radius", "alpha", "least"),
    [("logistic", 1.25, 0.01, 0.8), ("squared_hinge", 0.3, 0.1, 0.6)],
)
def test_adversarial_datasets_nearly_reach_the_sensitivity(loss, radius, alpha, least):
    """Search over datasets of 20000 records, by weights, for the largest real move."""
    n, d, bulk = 20_000, 3, 3
    gap = gradient_gap(loss, radius, alpha=alpha, norm_bound=1.0, fit_intercept=False)
    signs = np.array([[1.0, 1.0, -1.0, 1.0]])

    def shortened(vectors):
        return vectors / np.maximum(1, np.linalg.norm(vectors, axis=-1, keepdims=True))

    def ratio(vectors):
        """Of the move to what is stated: points, the step of the first, and the others' weights."""
        points, step, raw = np.split(vectors.T, [(bulk + 1) * d, (bulk + 2) * d], axis=1)
        points = shortened(points.reshape(-1, bulk + 1, d))
        other = points.copy()
        other[:, 0] = shortened(points[:, 0] + radius * shortened(step))  # projection: no further
        raw = np.exp(4 * raw)
        share = raw / raw.sum(axis=1, keepdims=True) * (n - 1) / n
        weights = np.hstack([np.full((len(raw), 1), 1 / n), share])
        first, error = weighted_minimisers(loss, points, signs, weights, alpha)
        second, other_error = weighted_minimisers(loss, other, signs, weights, alpha, first)
        moved = np.linalg.norm(first - second, axis=1) * alpha * n / gap
        return np.where(error + other_error < 1e-10, moved, 0.0)

    best = 0.0
    for restart in range(3):  # a single search may stall in a local maximum
        result = differential_evolution(
            lambda v: -ratio(v),
            [(-1.5, 1.5)] * ((bulk + 2) * d + bulk),
            vectorized=True,
            popsize=12,
            maxiter=200,
            tol=0,
            polish=False,
            seed=restart,
            updating="deferred",
        )
        best = max(best, -result.fun)
        if best > least + 0.02:
            break
    print(f"{loss} r={radius}: the minimiser moves by {best:.3f} of G / (alpha n)")
    assert least <= best <= 1
