"""Logistic regression and squared-hinge SVC: contract, minimisers, sensitivity end to end."""

import dataclasses
import io
import pickle

import numpy as np
import pytest
from scipy.optimize import differential_evolution
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from sklearn_balldp import BallDPLogisticRegression, BallDPSquaredHingeSVC, OutputPerturbation
from sklearn_balldp.privacy import Noise
from sklearn_balldp.privacy.gaussian import mu_from_budget
from sklearn_balldp.privacy.sensitivity import gradient_gap

HEADS = [BallDPLogisticRegression, BallDPSquaredHingeSVC]


def minimiser(Head, **params):
    """A head with noise on the minimiser, as the paper has it."""
    own = {"mechanism": "output", "alpha": 0.01}
    own["fit_intercept"] = Head is BallDPLogisticRegression
    return Head(**{**own, **params})


def data(n, n_classes, d=5, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.standard_normal((n, d)) + 1.5 * rng.standard_normal((n_classes, d))[y]
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


@pytest.mark.parametrize(
    ("n", "n_classes", "alpha"), [(50, 2, 1e-4), (5000, 3, 1e-2), (50, 10, 1.0)]
)
@pytest.mark.parametrize("Head", HEADS)
def test_same_minimiser_as_scikit_learn(noise_free, Head, n, n_classes, alpha):
    X, y = data(n, n_classes)
    head = minimiser(
        Head, alpha=alpha, fit_intercept=True, mechanism=OutputPerturbation(tol=1e-12)
    ).fit(X, y)
    augmented = np.hstack([X, np.ones((n, 1))])
    if Head is BallDPLogisticRegression:
        reference = LogisticRegression(
            C=1 / (alpha * n), fit_intercept=False, tol=1e-12, solver="newton-cg", max_iter=1000
        )
        reference.fit(augmented, y)
        expected = reference.coef_
    else:
        # LinearSVC minimises |w|^2/2 + C sum h^2.
        reference = LinearSVC(
            C=1 / (alpha * n),
            loss="squared_hinge",
            dual=False,
            tol=1e-12,
            fit_intercept=False,
            max_iter=100_000,
        )
        reference.fit(augmented, y)
        expected = reference.coef_
    mine = np.hstack([head.coef_, head.intercept_[:, None]])
    np.testing.assert_allclose(mine, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("sensitivity", ["tight", "paper"])
@pytest.mark.parametrize("Head", HEADS)
def test_release_states_the_gap_and_the_noise(Head, sensitivity):
    X, y = data(300, 3)
    head = minimiser(
        Head,
        epsilon=2.0,
        radius=0.4,
        alpha=0.1,
        mechanism=OutputPerturbation(sensitivity=sensitivity),
    ).fit(X, y)
    release = head.release_
    gap = gradient_gap(
        "softmax" if Head is BallDPLogisticRegression else "squared_hinge",
        0.4,
        alpha=0.1,
        norm_bound=1.0,
        fit_intercept=head.fit_intercept,
        n_classes=3,
        method=sensitivity,
    )
    assert release.sensitivity >= gap / (0.1 * 300) + 2 * release.tol / 0.1
    assert release.sensitivity == pytest.approx(gap / 30, rel=2e-3)
    assert release.bound.gap(0.4) == pytest.approx(gap, rel=1e-5)
    assert release.mu == pytest.approx(mu_from_budget(2.0, 1e-6))
    assert release.mu == pytest.approx(release.sensitivity / release.sigma, rel=1e-6)
    assert ("L_z" in release.theorem) == (sensitivity == "paper")
    assert release.guarantee(0.2).epsilon < release.guarantee().epsilon
    assert release.epsilon_full_radius > 2.0


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("Head", HEADS)
def test_protected_labels_pay_for_label_changes(Head, n_classes):
    X, y = data(300, n_classes)
    head = minimiser(Head, protect_labels=True, classes=range(n_classes), radius=0.01, alpha=0.1)
    release = head.fit(X, y).release_
    loss = "softmax" if Head is BallDPLogisticRegression else "squared_hinge"
    gap = gradient_gap(
        loss,
        0.01,
        alpha=0.1,
        norm_bound=1.0,
        n_classes=n_classes,
        fit_intercept=head.fit_intercept,
        label_change=True,
    )
    assert release.sensitivity >= gap / (0.1 * 300)
    assert release.guarantee(labels="public").mu < 0.2 * release.guarantee().mu


@pytest.mark.parametrize("Head", HEADS)
def test_rows_that_project_alike_are_alike(noise_free, Head):
    """Rows whose products would overflow before their projection give the same minimiser."""
    X, y = np.ones((10, 3)), np.r_[np.ones(9, int), 0]
    X[1] = [1e-3, -0.2, 0.5]
    expected = minimiser(Head, alpha=1e-4).fit(X, y).coef_
    for size in (1e12, 1e150, 1.7e308):
        huge = X.copy()
        huge[0] = size
        np.testing.assert_allclose(
            minimiser(Head, alpha=1e-4).fit(huge, y).coef_, expected, atol=1e-6
        )


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("Head", HEADS)
def test_noise_has_the_stated_scale(monkeypatch, Head, n_classes):
    X, y = data(200, n_classes, d=6)
    head = minimiser(Head, epsilon=1.0, radius=0.5, alpha=0.1)
    monkeypatch.setattr(Noise, "__call__", lambda self, values, sigma: values)
    truth = head.fit(X, y).coef_
    monkeypatch.undo()
    z = np.array([(head.fit(X, y).coef_ - truth) / head.release_.sigma for _ in range(150)])
    if Head is BallDPLogisticRegression and n_classes > 2:
        np.testing.assert_allclose(z.sum(axis=1), 0, atol=1e-9)  # centred
        z = z * np.sqrt(n_classes / (n_classes - 1))
    # 900 values or more: 0.17 is over 7 standard deviations of the estimate.
    assert z.std() == pytest.approx(1, abs=0.17)
    assert abs(z.mean()) < 0.25


@pytest.mark.parametrize("Head", HEADS)
def test_decision_rule(Head):
    for n_classes in (2, 3):
        X, y = data(400, n_classes)
        labels = np.array(["a", "b", "c"])[y]
        head = minimiser(Head, epsilon=1e6, radius=0.1, fit_intercept=True).fit(X, labels)
        scores = X @ head.coef_.T + head.intercept_
        decision = head.decision_function(X)
        np.testing.assert_allclose(decision, scores[:, 0] if n_classes == 2 else scores)
        assert head.score(X, labels) > 0.6
        if Head is BallDPLogisticRegression:
            proba = head.predict_proba(X)
            expected = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
            if n_classes == 2:
                expected = np.hstack([expit(-scores), expit(scores)])
            np.testing.assert_allclose(proba, expected)
            np.testing.assert_allclose(np.exp(head.predict_log_proba(X)), proba)


# ------------------------------------------------------------------ end to end


def weighted_minimisers(loss, rows, signs, weights, alpha):
    """Minimisers of many small weighted problems at once, by damped Newton."""
    theta = np.zeros((len(rows), rows.shape[2]))
    eye = alpha * np.eye(rows.shape[2])

    def gradient(theta):
        margins = signs * np.einsum("pjd,pd->pj", rows, theta)
        if loss == "logistic":
            slope, curve = -expit(-margins), expit(margins) * expit(-margins)
        else:
            hinge = np.maximum(1 - margins, 0)
            slope, curve = -2 * hinge, 2.0 * (hinge > 0)
        value = np.einsum("pj,pjd->pd", weights * signs * slope, rows) + alpha * theta
        return value, weights * curve

    g, curve = gradient(theta)
    for _ in range(80):
        hessian = np.einsum("pj,pjd,pje->pde", curve, rows, rows) + eye
        step = np.linalg.solve(hessian, g[..., None])[..., 0]
        length = np.ones((len(rows), 1))
        norm = np.linalg.norm(g, axis=1, keepdims=True)
        for _ in range(12):
            moved, curve_moved = gradient(theta - length * step)
            worse = np.linalg.norm(moved, axis=1, keepdims=True) > (1 - 0.1 * length) * norm
            if not worse.any():
                break
            length = np.where(worse, length / 2, length)
        theta, g, curve = theta - length * step, moved, curve_moved
        if np.abs(g).max() < 1e-13:
            break
    return theta, np.linalg.norm(g, axis=1)


@pytest.mark.parametrize(
    ("loss", "radius", "alpha", "least"),
    [
        ("logistic", 0.5, 0.01, 0.8),
        ("logistic", 1.25, 0.01, 0.8),
        ("squared_hinge", 0.3, 0.1, 0.6),
        ("squared_hinge", 0.8, 0.1, 0.6),
    ],
)
def test_adversarial_datasets_nearly_reach_the_sensitivity(loss, radius, alpha, least):
    """Search over datasets of 20000 records, by weights, for the largest real move."""
    n, d, bulk = 20_000, 3, 3
    gap = gradient_gap(loss, radius, alpha=alpha, norm_bound=1.0, fit_intercept=False)

    def build(vectors):
        vectors = vectors.T
        points = vectors[:, : (bulk + 1) * d].reshape(-1, bulk + 1, d)
        points = points / np.maximum(1, np.linalg.norm(points, axis=2))[:, :, None]
        step = vectors[:, (bulk + 1) * d : (bulk + 2) * d]
        step = radius * step / np.maximum(1, np.linalg.norm(step, axis=1))[:, None]
        moved = points[:, 0] + step
        moved /= np.maximum(1, np.linalg.norm(moved, axis=1))[:, None]  # projection: no further
        raw = np.exp(4 * vectors[:, (bulk + 2) * d :])
        share = raw / raw.sum(axis=1, keepdims=True) * (n - 1) / n
        weights = np.hstack([np.full((len(raw), 1), 1 / n), share])
        other = points.copy()
        other[:, 0] = moved
        return points, other, weights

    signs = np.array([[1.0, 1.0, -1.0, 1.0]])

    def ratio(vectors):
        one, two, weights = build(np.atleast_2d(vectors.T).T)
        first, error = weighted_minimisers(loss, one, signs, weights, alpha)
        second, other_error = weighted_minimisers(loss, two, signs, weights, alpha)
        moved = np.linalg.norm(first - second, axis=1) * alpha * n / gap
        return np.where(error + other_error < 1e-10, moved, 0.0)

    size = (bulk + 2) * d + bulk
    best = 0.0
    for restart in range(3):  # a single search may stall in a local maximum
        result = differential_evolution(
            lambda v: -ratio(v),
            [(-1.5, 1.5)] * size,
            vectorized=True,
            popsize=12,
            maxiter=600,
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


# ------------------------------------------------------------------ leaks and errors


@pytest.mark.parametrize("Head", HEADS)
@pytest.mark.parametrize("protect", [False, True])
def test_only_the_released_parameters_depend_on_the_rows(Head, protect):
    X, y = data(120, 3)
    params = {"protect_labels": True, "classes": [0, 1, 2]} if protect else {}
    states = []
    for rows in (X, X[::-1] * np.where(np.arange(120) % 3, 1.0, 9.0)[:, None]):
        head = minimiser(Head, **params).fit(rows, y)
        head.predict(rows)
        kept = {k: v for k, v in vars(head).items() if k not in ("coef_", "intercept_")}
        kept["release_"] = dataclasses.replace(head.release_, digest="")
        states.append(pickle.dumps(kept))
    assert states[0] == states[1]


@pytest.mark.parametrize("Head", HEADS)
def test_nothing_noiseless_in_the_pickle(monkeypatch, Head):
    X, y = data(120, 3)
    params = {"fit_intercept": True, "epsilon": 0.5}
    monkeypatch.setattr(Noise, "__call__", lambda self, values, sigma: values)
    exact = minimiser(Head, **params).fit(X, y)
    monkeypatch.undo()
    head = minimiser(Head, **params).fit(X, y)
    head.decision_function(X)
    buffer = io.BytesIO()
    pickle.dump(head, buffer)
    for number in np.concatenate([exact.coef_.ravel(), exact.intercept_, X.ravel()]):
        assert number.tobytes() not in buffer.getvalue()
        assert repr(float(number)) not in repr(head) + repr(head.release_) + head._repr_html_()


@pytest.mark.parametrize("Head", HEADS)
@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"alpha": 1e-30}, "alpha=1e-30 is too small"),
        ({"mechanism__sensitivity": "best"}, "sensitivity .*tight"),
        ({"mechanism__tol": 0.0}, "tol"),
        ({"mechanism__tol": -1e-3}, "tol"),
        ({"alpha": -1}, "alpha"),
        ({"fit_intercept": "yes"}, "fit_intercept"),
        ({"radius": 0.0}, "radius"),
        ({"epsilon": 0}, "epsilon"),
        ({"protect_labels": True}, "classes=None"),
    ],
)
def test_bad_parameters(Head, params, match):
    X, y = data(60, 2)
    head = minimiser(Head).fit(X, y).set_params(**params)
    with pytest.raises(ValueError, match=match):
        head.fit(X, y)
    assert not [name for name in vars(head) if name.endswith("_")]


@pytest.mark.parametrize("Head", HEADS)
def test_failed_solve_releases_nothing(monkeypatch, Head):
    import sklearn_balldp.heads.output as output
    from sklearn_balldp.heads.solver import ConvergenceError

    X, y = data(60, 2)

    def fail(objective, *, tol):
        raise ConvergenceError("the gradient did not reach tol")

    monkeypatch.setattr(output, "minimise", fail)
    head = minimiser(Head)
    with pytest.raises(ConvergenceError, match="did not reach"):
        head.fit(X, y)
    assert not [name for name in vars(head) if name.endswith("_")]


@pytest.mark.parametrize("Head", HEADS)
def test_protected_labels_fit_in_silence(recwarn, Head):
    X = data(40, 2)[0]
    records = []
    for y in (np.zeros(40, int), np.arange(40) % 3, np.r_[1, np.zeros(39, int)]):
        head = minimiser(Head, protect_labels=True, classes=[0, 1, 2]).fit(X, y)
        records.append(dataclasses.replace(head.release_, digest=""))
    assert records[0] == records[1] == records[2]
    assert not recwarn.list
