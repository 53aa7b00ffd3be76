"""Fixtures shared by the tests of heads."""

import math

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize

from sklearn_balldp import PrivacyAccountant
from sklearn_balldp.heads import Promise, ReleasedModel
from sklearn_balldp.heads.descent import mean_gradient
from sklearn_balldp.heads.initialisation import initialise, start_values
from sklearn_balldp.heads.statistics import StatisticsPerturbation


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
        with PrivacyAccountant() as accountant, pytest.raises(error, match=match):
            head.fit(X, y, **given)
        assert not accountant.records
        assert not [name for name in vars(head) if name.endswith("_")]

    return check


@pytest.fixture
def joint_distance():
    """Sums and gradients of two datasets at the iterates that occurred, over their noise."""

    def of(head, one, other):
        bound, transcript, squares = head.release_.bound, head.transcript_, 0.0
        if bound.start is not None:
            (first, scale), (second, _) = (start_values(p, bound) for p in (one, other))
            noisy = scale > 0
            squares = np.sum(((first - second)[noisy] / scale[noisy]) ** 2)
        begun = initialise(transcript.start, one, bound)
        first, second = (mean_gradient(p, begun)(transcript.iterates) for p in (one, other))
        gaps = np.linalg.norm((first - second).reshape(len(first), -1), axis=1) / transcript.sigma
        return math.sqrt(squares + np.sum(gaps**2))

    return of


@pytest.fixture
def exact_log_posterior():
    """Of candidates for one record under a uniform prior: densities of sums, then of each step."""

    def of(head, X, y, place, candidates):
        bound, kept, problem = head.release_.bound, head.transcript_, ReleasedModel(head).on(X, y)
        sums = StatisticsPerturbation().neighbours(problem, Promise(bound.start))
        tables = sums.models(place, candidates, np.full(len(candidates), y[place]))
        scale = np.asarray(sums.sigma)
        noisy = scale > 0
        logs = -0.5 * np.sum(((kept.start - tables)[:, noisy] / scale[noisy]) ** 2, axis=1)
        begun = initialise(kept.start, problem, bound)
        for i, row in enumerate(candidates):
            neighbour = problem.replaced(place, row, int(y[place]))
            residuals = kept.gradients - mean_gradient(neighbour, begun)(kept.iterates)
            logs[i] -= 0.5 * np.sum((residuals / kept.sigma[:, None, None]) ** 2)
        return logs - np.logaddexp.reduce(logs)

    return of
