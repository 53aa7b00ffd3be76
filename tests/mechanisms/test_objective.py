"""Losses and their row-block evaluation against definitions and finite differences."""

import mpmath
import numpy as np
import pytest
from mean_gradients import objective_of

from sklearn_balldp.losses import LOSSES, make_loss
from sklearn_balldp.privacy.rounding import gradient_rounding

CASES = [("logistic", 2), ("softmax", 4), ("squared_hinge", 2), ("squared_hinge", 4)]


def make(loss, n_classes, *, n=300, d=5, dtype=np.float64, scale=1.0, **params):
    """An objective, its rows and their codes."""
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((n, d)) * scale / np.sqrt(d)).astype(dtype)
    codes = rng.integers(n_classes, size=n)
    return objective_of(loss, X, codes, n_classes, **params), X, codes


@pytest.mark.parametrize(("loss", "n_classes"), CASES)
def test_value_is_the_definition(loss, n_classes):
    objective, X, codes = make(loss, n_classes)
    theta = np.random.default_rng(1).standard_normal(objective.shape)
    X = X / np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
    scores = np.hstack([X, np.ones((len(X), 1))]) @ theta.T
    total = mpmath.mpf(0)
    for row, code in zip(scores, codes, strict=True):
        if loss == "softmax":
            total += mpmath.log(sum(mpmath.exp(s) for s in row)) - row[code]
            continue
        for y, s in zip(signs(code, len(row)), row, strict=True):
            margin = mpmath.mpf(y * s)
            hinge = max(0, 1 - margin) ** 2
            total += mpmath.log1p(mpmath.exp(-margin)) if loss == "logistic" else hinge
    expected = float(total / len(X)) + 0.05 * float(np.sum(theta**2))
    assert objective.value_and_gradient(theta)[0] == pytest.approx(expected, rel=1e-12)
    assert objective.value_and_gradient(0 * theta)[0] == pytest.approx(objective.value_at_zero)


def signs(code, n_scores):
    """Of the margins: one versus the rest, or the second class of two."""
    return [1 if k == code else -1 for k in range(n_scores)] if n_scores > 1 else [2 * code - 1]


@pytest.mark.parametrize("loss", list(LOSSES))
def test_stable_for_huge_margins(loss):
    kind, margin = make_loss(loss, 3 if loss == "softmax" else 2), 1e6
    scores = margin * np.array([[1.0, -1.0, 0.5], [-1.0, 1.0, 1.0]])[:, : kind.n_scores]
    value, residuals = kind.evaluate(scores.copy(), np.array([1, 1]))
    assert all(np.isfinite(part).all() for part in (value, residuals))
    if loss == "logistic":
        assert value.sum() == pytest.approx(margin)
        np.testing.assert_allclose(residuals[:, 0], [0, -1], atol=1e-12)
    if loss == "softmax":
        assert value.sum() == pytest.approx(2 * margin + np.log(2))


LOGISTIC = make_loss("logistic", 2)


@pytest.mark.parametrize(("loss", "n_classes"), CASES)
def test_gradient_rounding_bounds_the_error(loss, n_classes):
    objective, X, codes = make(loss, n_classes, n=40, d=3)
    theta = 30 * np.random.default_rng(1).standard_normal(objective.shape)
    own = {"norm": float(np.linalg.norm(theta)), "row_norm": np.sqrt(2.0)}
    bound = gradient_rounding(objective.loss, n_samples=40, n_features=3, **own)
    error = objective.value_and_gradient(theta)[1] - _mpmath_gradient(objective, X, codes, theta)
    assert np.linalg.norm(error) <= bound


def test_gradient_rounding_covers_the_projection_of_long_rows():
    d = 300_000
    X, codes = np.vstack([np.full(d, 0.3), np.full(d, 0.11)]), np.array([1, 0])
    given = {"alpha": 1e3, "fit_intercept": False}
    both, one = (objective_of("logistic", X[:n], codes[:n], 2, **given) for n in (2, 1))
    gradient, single = (own.value_and_gradient(np.zeros(own.shape))[1] for own in (both, one))
    bound = gradient_rounding(LOGISTIC, n_samples=2, n_features=d, norm=1.0 / 1e3, row_norm=1.0)
    # At zero the two residuals are -1/2 and 1/2 and both rows project to 1/sqrt(d): they cancel.
    assert np.linalg.norm(gradient) <= bound
    with mpmath.workdps(40):
        exact = -mpmath.mpf(1) / 2 / mpmath.sqrt(d)
        error = float(abs(mpmath.mpf(float(single[0, 0])) - exact) * mpmath.sqrt(d))
    assert error <= bound


def test_gradient_rounding_has_every_term():
    """Worst cases that data hardly reach: long sums, long rows, large parameters."""
    unit, small = 2.0**-53, {"norm": 0.0, "row_norm": 1.0}
    long_sum = gradient_rounding(LOGISTIC, n_samples=10**9, n_features=10, **small)
    # Rows of a block, blocks of a run, and pairs of runs.
    assert long_sum >= 2 * unit * (4096 + 256 + 2 * np.log2(1e9 / 4096 / 256))
    long_row = gradient_rounding(LOGISTIC, n_samples=2, n_features=10**6, **small)
    assert long_row >= 2 * unit * 10**6
    far = {"n_samples": 2, "n_features": 10**4, "norm": 1e3, "row_norm": 1.0}
    assert gradient_rounding(LOGISTIC, **far) >= 2 * unit * 0.25 * 10**4 * 1e3
    hinge = {"n_samples": 4096, "n_features": 2, "norm": 1e9, "row_norm": 2.0}
    assert gradient_rounding(make_loss("squared_hinge", 2), **hinge) >= 4 * unit * 4096 * 4e9


def _mpmath_gradient(objective, X, codes, theta):
    with mpmath.workdps(40):
        total = mpmath.zeros(*theta.shape)
        weights = mpmath.matrix(theta.tolist())
        for row, code in zip(X, codes, strict=True):
            x = [mpmath.mpf(float(v)) for v in row]
            norm = mpmath.sqrt(sum(v * v for v in x))
            x = [v / max(1, norm) for v in x] + [mpmath.mpf(1)]
            s = [sum(weights[k, j] * x[j] for j in range(len(x))) for k in range(len(theta))]
            sign = signs(int(code), len(s))
            if isinstance(objective.loss, LOSSES["softmax"]):
                top = sum(mpmath.exp(v) for v in s)
                residual = [mpmath.exp(v) / top - (k == code) for k, v in enumerate(s)]
            elif isinstance(objective.loss, LOSSES["logistic"]):
                residual = [-sign[0] / (1 + mpmath.exp(sign[0] * s[0]))]
            else:
                residual = [-2 * y * max(0, 1 - y * v) for y, v in zip(sign, s, strict=True)]
            for k, value in enumerate(residual):
                for j, v in enumerate(x):
                    total[k, j] += value * v
        mean = total / len(X) + mpmath.mpf(objective.alpha) * weights
        return np.array(mean.tolist(), dtype=float)
