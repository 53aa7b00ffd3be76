"""Fixtures shared by the tests."""

import os

import matplotlib
import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from sklearn_balldp.mechanisms.whitening import PublicMap
from sklearn_balldp.privacy.noise import Noise

matplotlib.use("Agg")

if "PYTEST_XDIST_WORKER" in os.environ:
    # The workers share the cores; threads of BLAS in each would only wait for one another.
    threadpool_limits(1, user_api="blas")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # of the processes that they start


@pytest.fixture
def noise_free(monkeypatch):
    """Make ``fit`` publish the parameters without noise, to see the true minimiser."""
    monkeypatch.setattr(
        Noise, "__call__", lambda self, values, sigma: np.array(values, dtype=float)
    )


@pytest.fixture
def array_api(monkeypatch):
    """Have scikit-learn's contract include arrays of other libraries, and not skip them."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")


@pytest.fixture(scope="session")
def digits():
    """Rows of norm one, and their labels."""
    X, y = load_digits(return_X_y=True)
    return normalize(X), y


@pytest.fixture(scope="session")
def ball_rows():
    """Rows spread over the unit ball, boundary included, with three labels."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((90, 6))
    X *= (rng.uniform(size=90) ** 0.3 / np.linalg.norm(X, axis=1))[:, None]
    X.setflags(write=False)
    return X, np.repeat([0, 1, 2], [50, 30, 10])


@pytest.fixture
def whitening():
    """A map that moves rows and, perhaps, shortens them in two directions; and its matrix."""

    def of(centre, reach, whitened, norm=None):
        d = len(centre)
        directions = np.linalg.qr(np.random.default_rng(5).standard_normal((d, 2)))[0]
        directions = directions[:, : 2 if whitened else 0]
        kept = np.array([0.4, 0.9])[: directions.shape[1]]
        matrix = np.eye(d) + (directions * (kept - 1.0)) @ directions.T
        return PublicMap(centre, directions, kept, reach, norm or reach), matrix

    return of
