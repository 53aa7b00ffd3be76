"""Heads, records and small shards, for rows from every kind of source."""

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
)

D = 16
FEW_STEPS = GradientPerturbation(n_steps=5)
MINIMISER = {"mechanism": "output", "alpha": 0.01}
HEADS = {
    "prototypes": BallDPRidgePrototype(),
    "discriminant": BallDPLinearDiscriminant(),
    "discriminant, sphere": BallDPLinearDiscriminant(domain="sphere"),
    "descent": BallDPLogisticRegression(mechanism=GradientPerturbation(n_steps=10)),
    "SVC": BallDPSquaredHingeSVC(mechanism=GradientPerturbation(start="zero", n_steps=10)),
    "minimiser": BallDPLogisticRegression(**MINIMISER),
    "descent, sphere": BallDPLogisticRegression(domain="sphere", mechanism=FEW_STEPS),
    "minimiser, sphere": BallDPLogisticRegression(domain="sphere", **MINIMISER),
}
#: One of each kind of pass.
KINDS = ("prototypes", "discriminant", "descent", "minimiser")


def records(dtype=np.float64, n=3000, n_classes=3):
    """Rows around a long mean, some of them outside of the ball."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, n)
    X = 0.3 * rng.standard_normal((n, D)) + 0.4 * np.eye(n_classes, D)[y] + 0.2
    return X.astype(dtype), y


def refused_rows(domain):
    """Values of a row that a domain does not admit, at the edge of those that it does."""
    huge = np.nextafter(1e140, np.inf)
    tiny = [np.nextafter(1e-100, 0.0), 1e-170, 5e-324] if domain == "sphere" else []
    return [np.nan, np.inf, -np.inf, huge, -huge, -1e300, *tiny]


def fitted(name, X, y, **sides):
    """A head of this name with seeded noise."""
    head = clone(HEADS[name]).set_params(delta=1e-5, radius=0.3, random_state=0)
    return head.fit(X, y, **sides)


def assert_same(head, other, rtol=0.0, atol=0.0):
    """What both released, bit for bit by default, and the noise that both drew."""
    np.testing.assert_allclose(other.release_.sigma, head.release_.sigma, min(rtol, 1e-9))
    for key, values in head.released_parameters().items():
        exact = values.dtype.kind != "f"
        found, near = other.released_parameters()[key], (0.0, 0.0) if exact else (rtol, atol)
        np.testing.assert_allclose(found, values, *near, err_msg=key)


def assert_refused(name, X, y, match):
    """A fit ends with this error and leaves no release."""
    head = clone(HEADS[name]).set_params(delta=1e-4, radius=0.3)
    with pytest.raises(ValueError, match=match):
        head.fit(X, y)
    assert not hasattr(head, "release_")
