"""Rows that are scaled to the sphere: each by its direction alone, whatever its length."""

import itertools

import numpy as np
import pytest
from head_cases import head_of, of_any_length, rows

from sklearn_balldp import BallDPLinearDiscriminant, RadiusPolicy
from sklearn_balldp.mechanisms import gradients

N, D = 300, 10


def on_sphere(name, **params):
    given = {"epsilon": 8.0, "domain": "sphere", "norm_bound": 2.0, "random_state": 0, **params}
    return head_of(name, **given)


def scaled(X):
    """Long hand: by the largest entry, and then by the norm."""
    X = X.astype(np.longdouble)
    X = X / np.maximum(np.abs(X).max(axis=1, keepdims=True), np.finfo(np.longdouble).tiny)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return (X / np.where(norms > 0.0, norms, 1.0)).astype(np.float64)


@pytest.mark.parametrize(
    ("name", "dtype", "k", "kept"),
    [
        *itertools.product(
            ("descent", "descent from the mean", "minimiser", "discriminant"),
            (np.float16, np.float64),
            (3,),
            (True,),
        ),
        ("descent", np.float32, 2, False),
        ("discriminant", np.float32, 2, True),
        ("SVC from zero", np.float64, 3, False),
    ],
)
@pytest.mark.kills("rows/projection.py", '== 0.0 if domain == "sphere" else squares <=', "<=")
def test_lengths_of_rows_do_not_matter(name, dtype, k, kept, monkeypatch, recwarn):
    monkeypatch.setattr(gradients, "KEPT_BYTES", 2**20 if kept else 0)
    X, y = rows(N, k, D, mean=1.0)
    long = of_any_length(X, dtype)
    long[3] = 0.0
    X = scaled(long)
    head, other = (on_sphere(name).fit(given, y) for given in (long, X))
    np.testing.assert_allclose(head.coef_, other.coef_, rtol=1e-7, atol=1e-7)
    scores = head.decision_function(X)
    np.testing.assert_allclose(head.decision_function(long), scores, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(np.ravel(scores[3]), head.intercept_, atol=1e-12)
    assert not recwarn.list
    # In the ball short rows stay short.
    if dtype == np.float64:
        ball = on_sphere(name, domain="ball").fit(long, y)
        assert np.abs(ball.coef_ - head.coef_).max() > 0.1


@pytest.mark.parametrize("source", ["reference", "declared"])
def test_policies_and_audits_measure_between_scaled_rows(source):
    """Short rows as well: projected onto the ball they would stay where they are."""
    X, y = rows(600, d=D)
    policy = RadiusPolicy(0.3, source=source)
    exact = 2.0 * RadiusPolicy(0.3, source="declared").fit(X, y).radius_
    public = {"X_public": 0.1 * X, "y_public": y} if source == "reference" else {}
    for size in (np.linspace(0.05, 0.5, 600), np.linspace(0.1, 9.0, 600)):
        head = on_sphere("discriminant", radius=policy, random_state=None)
        radius = head.fit(size[:, None] * X, y, **public).release_.radius
        assert radius == pytest.approx(exact, rel=1e-9)


def test_wide_rows_are_scaled_not_turned():
    """Long doubles: what points the same way is the same row, and what float64 loses is refused."""
    X = np.random.default_rng(0).standard_normal((60, 2)).astype(np.longdouble)
    y = np.arange(60) % 2
    X[0] = [1e130, 1e120]
    head = BallDPLinearDiscriminant(2.0, 1e-3, radius=0.1, domain="sphere").fit(X, y)
    scores = head.decision_function(X[:1])
    assert scores == pytest.approx(head.decision_function(np.array([[1.0, 1e-10]])))
    for size in ("1e-400", "1e-101", "1e400"):
        X[0] = np.longdouble(size)
        with pytest.raises(ValueError, match="NaN or infinity, an entry above 1e140"):
            head.fit(X, y)
