"""What is predicted of a row depends on it and on its place, bit for bit, whatever others hold."""

import numpy as np
import pytest
from head_cases import SPHERE, head_of, rows
from other_rows import LAYOUTS, assert_others_stay, of_many_sizes

from sklearn_balldp.accounting import PrivateAccuracy
from sklearn_balldp.heads.scoring import ScoreRule, largest_of
from sklearn_balldp.privacy.noise import Noise
from sklearn_balldp.rows import joined, rows_in_domain

DTYPES = (np.float16, np.float32, np.float64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("domain", ["ball", "sphere"])
@pytest.mark.parametrize(
    ("n", "k", "layout", "norm_bound", "size"),
    [
        *((60, k, layout, 1.7, 1.0) for k, layout in zip((1, 3, 10, 3), LAYOUTS, strict=True)),
        # Several ranges; many columns; an extreme bound, and extreme weights.
        (2100, 3, "C", 1.0, 1.0),
        (60, 340, "F", 1.0, 1.0),
        (60, 10, "C", 1e-13, 1.0),
        (60, 10, "C", 1.0, 1e20),
        (60, 1, "C", 1.0, 1e-20),
    ],
)
def test_other_rows_keep_their_scores(n, k, layout, norm_bound, size, domain, dtype):
    rng = np.random.default_rng(n + k)
    X = rng.standard_normal((n, 24)).astype(dtype)
    X *= (norm_bound / np.linalg.norm(X.astype(float), axis=1, keepdims=True)).astype(dtype)
    coef, intercept = size * rng.standard_normal((k, 24)), size * rng.standard_normal(k)

    def scores(X):
        rule = coef, intercept, norm_bound, domain
        values, largest = (joined(ScoreRule(*rule, end), X) for end in (None, largest_of))
        assert np.isfinite(values).all()
        return {"scores": values, "largest": largest}

    places = [n // 2] if n > 1000 else [0, n - 1]
    for others in (X, of_many_sizes(X)):
        assert_others_stay(scores, others, places, layout)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("domain", ["ball", "sphere"])
@pytest.mark.parametrize("k", [1, 3])
def test_scores_of_rows_of_any_size(k, domain, dtype):
    """They are those of the rows that a domain makes of them."""
    rng = np.random.default_rng(0)
    X = of_many_sizes(rng.standard_normal((400, 24)).astype(dtype))
    coef, intercept = rng.standard_normal((k, 24)), rng.standard_normal(k)
    inside = rows_in_domain(X.astype(np.float64), 1.7, domain)
    found = joined(ScoreRule(coef, intercept, 1.7, domain), X)
    np.testing.assert_allclose(found, inside @ coef.T + intercept, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("name", "k", "domain"),
    [
        ("prototypes", 3, "ball"),
        ("descent", 3, "ball"),
        ("descent", 2, "sphere"),
        ("discriminant", 3, "sphere"),
        ("SVC minimiser", 3, "sphere"),
    ],
)
def test_predictions_of_other_rows_stay(name, k, domain, dtype):
    X, y = rows(90, k)
    more = {"domain": domain} if name in SPHERE else {}
    head = head_of(name, epsilon=8.0, random_state=0, **more).fit(X, y)
    methods = ["predict", "decision_function", "predict_proba", "predict_log_proba"]
    methods = [method for method in methods if hasattr(head, method)]

    def predictions(X):
        return {method: getattr(head, method)(X) for method in methods}

    for others in (X.astype(dtype), of_many_sizes(X.astype(dtype))):
        assert_others_stay(predictions, others, [7])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("domain", ["ball", "sphere"])
def test_one_row_moves_one_prediction(domain, dtype, monkeypatch):
    """Of rows on the boundary of two classes, whose labels the last bits of a score decide."""
    d, n = 8, 1000
    X, y = rows(400, 2, d)
    head = head_of("descent", epsilon=5.0, domain=domain, random_state=1).fit(X, y)
    w, b = head.coef_[0], head.intercept_[0]
    rng = np.random.default_rng(0)
    along = rng.standard_normal((n, d))
    along -= np.outer(along @ w, w) / (w @ w)
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    nearest = -b / np.linalg.norm(w)
    edge = w / np.linalg.norm(w) * nearest + along * np.sqrt(1.0 - nearest**2)
    edge = (edge * rng.uniform(1.5, 3.0, (n, 1))).astype(dtype)
    assert min(np.bincount(head.predict(edge))) > n // 50
    assert_others_stay(lambda X: {"labels": head.predict(X)}, edge, [n - 1])
    # So a score moves by one row's share.
    scored = []
    monkeypatch.setattr(Noise, "__call__", lambda self, values, sigma: scored.append(values) or [0])
    labels, changed = head.predict(edge), edge.copy()
    changed[-1] = 0.0
    for X in (edge, changed):
        PrivateAccuracy(1.0)(head, X, labels)
    assert abs(scored[0][0] - scored[1][0]) <= (1.0 + 1e-9) / n
