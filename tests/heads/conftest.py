"""Fixtures shared by the tests of heads."""

import math

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize

from sklearn_balldp import PrivacyAccountant
from sklearn_balldp.mechanisms import drive


@pytest.fixture(scope="session")
def digits():
    """Rows of norm one and their labels: 1200 to fit, the others to predict."""
    X, y = load_digits(return_X_y=True)
    X = normalize(X)
    return (X[:1200], y[:1200]), (X[1200:], y[1200:])


@pytest.fixture
def refused():
    """A fit fails with this message; nothing is fitted, and nothing charged."""

    def check(head, X, y, match, error=ValueError, **given):
        accountant = PrivacyAccountant()
        with pytest.raises(error, match=match):
            accountant.attach(head).fit(X, y, **given)
        assert not accountant.records
        assert not [name for name in vars(head) if name.endswith("_")]

    return check


@pytest.fixture
def asked():
    """The queries of a fitted head's conversation, in order, and their noisy answers."""

    def of(head):
        released, queries = head.released_, []
        answers = iter(released.answers)
        values = drive(released.conversation(), lambda q: (queries.append(q), next(answers))[1])
        assert next(answers, None) is None
        np.testing.assert_allclose(values, released.values, rtol=1e-9, atol=1e-9)
        return list(zip(queries, released.answers, strict=True))

    return of


@pytest.fixture
def noise_of(asked):
    """Noise over its scale in every answer, given all records."""

    def of(head, records):
        problem, found = head.released_.problem, []
        for query, answer in asked(head):
            scale = np.broadcast_to(query.scales(problem), answer.shape)
            excess = answer - query.values(problem, records)
            assert not excess[scale == 0.0].any()
            found.append(excess[scale > 0.0] / scale[scale > 0.0])
        return found

    return of


@pytest.fixture
def apart(asked):
    """How far two datasets' values lie apart at the states that occurred, over their noise."""

    def of(head, one, other):
        problem, squares = head.released_.problem, 0.0
        for query, answer in asked(head):
            scale = np.broadcast_to(query.scales(problem), answer.shape)
            moved = query.values(problem, one) - query.values(problem, other)
            assert not moved[scale == 0.0].any()
            squares += np.sum((moved[scale > 0.0] / scale[scale > 0.0]) ** 2)
        return math.sqrt(squares)

    return of


@pytest.fixture
def exact_log_posterior(noise_of):
    """Of candidates for one record under a uniform prior: densities of every answer."""

    def of(head, X, y, place, candidates):
        logs = []
        for row in candidates:
            rows = X.copy()
            rows[place] = row
            noise = noise_of(head, head._records(rows, y))
            logs.append(-0.5 * sum(float(np.vdot(z, z)) for z in noise))
        return np.array(logs) - np.logaddexp.reduce(logs)

    return of
