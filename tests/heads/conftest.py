"""Fixtures shared by the tests of heads."""

import pytest


@pytest.fixture(scope="session")
def digits(digits):
    """Rows of norm one and their labels: 1200 to fit, the others to predict."""
    X, y = digits
    return (X[:1200], y[:1200]), (X[1200:], y[1200:])
