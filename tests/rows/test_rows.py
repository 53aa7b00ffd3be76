"""Blocks of rows, and their projection onto the admissible ball."""

import threading
import tracemalloc

import joblib
import numpy as np
import pytest

from sklearn_balldp.rows import domain_factors, passes, project_onto_ball, row_blocks, side_by_side


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_inside_are_not_copied(dtype):
    X = np.full((5000, 4), 0.25, dtype=dtype)
    projected = project_onto_ball(X, 1.0)
    # Half precision is widened always, so that no row decides whether it is.
    assert (projected is X) == (dtype != np.float16)
    assert projected.dtype == np.promote_types(dtype, np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.kills(
    "rows/projection.py",
    "squares <= norm_bound * norm_bound",
    "squares <= 1.01 * norm_bound * norm_bound",
)
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


@pytest.mark.parametrize("n_cores", [1, 2])
def test_side_by_side(n_cores, monkeypatch):
    """Two threads where there are as many cores, for matrices that are worth it; errors of both."""
    monkeypatch.setattr(joblib, "cpu_count", lambda: n_cores)

    def told():
        return threading.get_ident(), np.geterr()["under"]

    for n_features, beside in ((passes.MANY_FEATURES, n_cores == 2), (2, False), (10_000, False)):
        with np.errstate(under="print"):
            one, other = side_by_side(told, told, n_features)
        assert (one[0] != other[0], one[1], other[1]) == (beside, "print", "print")
    for pair in ((told, lambda: 1 // 0), (lambda: 1 // 0, told)):
        with pytest.raises(ZeroDivisionError):
            side_by_side(*pair, passes.MANY_FEATURES)


def test_other_byte_orders():
    X = np.array([[1e100, 0.0], [0.3, 0.4]], dtype=">f8")
    np.testing.assert_allclose(project_onto_ball(X, 1.0), [[1.0, 0.0], [0.3, 0.4]])


def test_non_finite_rows_are_refused():
    for bad in (np.nan, -1e300, np.longdouble("1e400")):
        with pytest.raises(ValueError, match="X: rows hold NaN or infinity, an entry above 1e140"):
            project_onto_ball(np.array([[0.0, 0.0], [0.0, bad]]), 1.0)


def test_factor_is_exact_at_the_boundary():
    assert domain_factors(np.array([[0.6, 0.8], [0.0, 1.0]]), 1.0) is None
    factors = domain_factors(np.array([[0.6, 0.8], [0.0, 2.0]]), 1.0)
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


def test_only_rows_are_projected():
    for shape in ((3,), (2, 2, 2)):
        with pytest.raises(ValueError, match="n_samples, n_features"):
            project_onto_ball(np.zeros(shape), 1.0)
