"""Fixtures shared by the tests."""

import matplotlib
import numpy as np
import pytest

import sklearn_balldp.heads.base as base

matplotlib.use("Agg")


@pytest.fixture
def noise_free(monkeypatch):
    """Make ``fit`` publish the parameters without noise, to see the true minimiser."""
    monkeypatch.setattr(base, "add_gaussian_noise", lambda values, sigma, random_state: values)


@pytest.fixture
def ball_rows():
    """Rows spread over the unit ball, boundary included, with three labels."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 6))
    X *= (rng.uniform(size=90) ** 0.3 / np.linalg.norm(X, axis=1))[:, None]
    return X, np.repeat([0, 1, 2], [50, 30, 10])
