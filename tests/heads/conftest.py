"""Fixtures shared by the tests of heads."""

import pytest
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize


@pytest.fixture(scope="session")
def digits():
    """Rows of norm one and their labels: 1200 to fit, the others to predict."""
    X, y = load_digits(return_X_y=True)
    X = normalize(X)
    return (X[:1200], y[:1200]), (X[1200:], y[1200:])
