"""Metric moduli, projection onto the admissible ball, row blocks."""

import math
import tracemalloc

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from sklearn_balldp.policy.adjacency import (
    METRICS,
    ball_factors,
    euclidean_radius,
    full_radius,
    project_onto_ball,
    row_blocks,
)

CDIST = {"euclidean": "euclidean", "manhattan": "cityblock", "chebyshev": "chebyshev"}


@pytest.mark.parametrize("metric", METRICS)
def test_modulus_is_never_exceeded_and_is_attained(metric):
    rng = np.random.default_rng(1)
    d, radius = 5, 0.2
    bound = euclidean_radius(radius, metric, norm_bound=1.0, n_features=d)
    steps = rng.standard_normal((20_000, d)) * rng.choice([0.0, 1.0, 1e3], size=(20_000, d))
    steps = np.vstack([steps, np.ones(d), np.eye(d)])
    steps = steps[np.any(steps != 0, axis=1)]
    steps *= radius / cdist(steps, np.zeros((1, d)), CDIST[metric])
    lengths = np.linalg.norm(steps, axis=1)
    assert lengths.max() <= bound * (1 + 1e-12)
    assert lengths.max() >= bound * (1 - 1e-12)


def test_radius_is_capped_at_the_diameter():
    for metric in METRICS:
        assert euclidean_radius(1e3, metric, norm_bound=1.5, n_features=4) == 3.0
        assert euclidean_radius(None, metric, norm_bound=1.5, n_features=4) == 3.0
    assert full_radius(1.5) == 3.0


@pytest.mark.parametrize(
    ("radius", "metric", "name"), [(-1, "euclidean", "radius"), (0, "chebyshev", "radius"),
                                   (math.nan, "euclidean", "radius"), (1, "cosine", "metric")]
)  # fmt: skip
def test_bad_radius(radius, metric, name):
    with pytest.raises(ValueError, match=name):
        euclidean_radius(radius, metric, norm_bound=1.0, n_features=3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_inside_are_not_copied(dtype):
    X = np.full((5000, 4), 0.25, dtype=dtype)
    projected = project_onto_ball(X, 1.0)
    # Half precision is widened always, so that no row decides whether it is.
    assert (projected is X) == (dtype != np.float16)
    assert projected.dtype == np.promote_types(dtype, np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_projection(dtype):
    rng = np.random.default_rng(2)
    X = (rng.standard_normal((5000, 4)) * rng.choice([0.1, 3.0], size=(5000, 1))).astype(dtype)
    before = X.copy()
    P = project_onto_ball(X, 2.0)
    np.testing.assert_array_equal(X, before)
    norms = np.linalg.norm(X.astype(float), axis=1)
    np.testing.assert_array_equal(P[norms <= 2.0], X[norms <= 2.0])
    expected = X * np.minimum(1, 2.0 / norms)[:, None]
    np.testing.assert_allclose(P, expected, rtol=1e-6 if dtype == np.float32 else 1e-14)
    # 1-Lipschitz: no pair of rows gets further apart.
    A, B = P[:2500].astype(float), P[2500:].astype(float)
    far = np.linalg.norm(A - B, axis=1) - np.linalg.norm(X[:2500] - X[2500:], axis=1)
    assert far.max() <= 1e-6


def test_projection_survives_overflowing_norms():
    X = np.array([[1e200, 1e200], [3e-1, 0.0], [0.0, 0.0], [1e308, -1e308]])
    P = project_onto_ball(X, 1.0)
    h = math.sqrt(0.5)
    np.testing.assert_allclose(P, [[h, h], [0.3, 0], [0, 0], [h, -h]])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_rows_are_refused(bad):
    X = np.zeros((10, 3))
    X[7, 1] = bad
    with pytest.raises(ValueError, match="X: rows hold NaN or infinity"):
        project_onto_ball(X, 1.0)


def test_factor_is_exact_at_the_boundary():
    assert ball_factors(np.array([[0.6, 0.8], [0.0, 1.0]]), 1.0) is None
    factors = ball_factors(np.array([[0.6, 0.8], [0.0, 2.0]]), 1.0)
    np.testing.assert_array_equal(factors, [1.0, 0.5])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_blocks_cover_the_rows_in_little_memory(dtype):
    X = np.arange(60_000, dtype=np.float64).reshape(6000, 10).astype(dtype) / 60_000
    total = np.zeros(10)
    tracemalloc.start()
    for rows, block in row_blocks(X, 500, 5501, size=256):
        np.testing.assert_array_equal(block, X[rows])
        assert block.dtype == np.float64
        total += block.sum(axis=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * 6000 * 10 * 8
    np.testing.assert_allclose(total, X[500:5501].astype(float).sum(axis=0))
