"""What the tests of audits share."""

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize

from sklearn_balldp.privacy import Noise


@pytest.fixture(scope="session")
def digits():
    X, y = load_digits(return_X_y=True)
    return normalize(X), y


@pytest.fixture
def success_interval():
    """The Clopper-Pearson interval; by default rejecting correct code once in 10^9 tests."""

    def of(successes, trials, confidence=1 - 1e-9):
        return tuple(binomtest(int(successes), trials).proportion_ci(confidence, "exact"))

    return of


@pytest.fixture
def with_noise():
    """Call a function while all noise is drawn by another: ``sampler(noise, values, sigma)``."""

    def run(sampler, function, *args, **kwargs):
        def scaled(self, values, sigma):
            return sampler(self, values, np.asarray(sigma, dtype=float))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Noise, "__call__", scaled)
            return function(*args, **kwargs)

    return run
