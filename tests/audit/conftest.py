"""What the tests of audits share."""

import pytest
from scipy.stats import binomtest


@pytest.fixture
def success_interval():
    """The Clopper-Pearson interval; by default rejecting correct code once in 10^9 tests."""

    def of(successes, trials, confidence=1 - 1e-9):
        return tuple(binomtest(int(successes), trials).proportion_ci(confidence, "exact"))

    return of
