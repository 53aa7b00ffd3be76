"""The noise has the stated law, whichever sampler draws it.

Every test of randomness here rejects a correct sampler with probability below 1e-9.
"""

import functools
import math
import os
import pickle

import numpy as np
import pytest
from scipy import stats

from sklearn_balldp.privacy.gaussian import delta_from_rho
from sklearn_balldp.privacy.noise import (
    GRID_EXPONENT,
    add_gaussian_noise,
    check_random_state,
    exact_sampler,
    grid_slack,
)

SCALES = np.array([[1e-6], [0.3], [40.0]])
LEVEL = 1e-10


@pytest.fixture(params=["opendp", "vectorised", "numpy"])
def add_noise(request):
    options = {
        "opendp": {},
        "vectorised": {"vectorised": True},
        "numpy": {"random_state": 7},
    }[request.param]
    return functools.partial(add_gaussian_noise, **options)


def test_law_of_each_block(add_noise):
    values = np.array([[5.0], [-2.0], [1e3]]) + np.zeros((3, 4000))
    noise = (add_noise(values, SCALES) - values) / SCALES
    for block in noise:
        assert stats.kstest(block, "norm").pvalue > LEVEL
        # The chi-squared law of the energy catches a scale that is off by 15%.
        energy = np.sum(block**2)
        assert min(stats.chi2.cdf(energy, 4000), stats.chi2.sf(energy, 4000)) > LEVEL


def test_kolmogorov_smirnov_would_catch_a_wrong_scale():
    noise = add_gaussian_noise(np.zeros(4000), 0.8, 7)
    assert stats.kstest(noise, "norm").pvalue < LEVEL


def test_values_are_independent(add_noise):
    n = 4000
    draws = add_noise(np.zeros((n, 5)), 1.0)
    covariance = draws.T @ draws / n
    bound = stats.norm.isf(LEVEL) / math.sqrt(n)
    off = covariance[np.triu_indices(5, 1)]
    assert np.abs(off).max() < 1.3 * bound
    assert np.abs(np.diag(covariance) - 1).max() < 1.3 * bound * math.sqrt(2)
    lagged = np.mean(draws.ravel()[1:] * draws.ravel()[:-1])
    assert abs(lagged) < bound


@pytest.mark.parametrize("vectorised", [False, True])
def test_exact_draws_differ(vectorised):
    values = np.zeros(20_000)  # more than one chunk
    a, b = (add_gaussian_noise(values, 1.0, vectorised=vectorised) for _ in range(2))
    assert len(np.unique(np.concatenate([a, b]))) > 39_990
    for chunk in (slice(0, 1024), slice(1024, 2048), slice(19_456, None)):
        assert stats.kstest(a[chunk], "norm").pvalue > LEVEL


def test_seeded_draws_repeat():
    values = np.zeros(20_000)
    np.testing.assert_array_equal(
        add_gaussian_noise(values, 1.0, 3), add_gaussian_noise(values, 1.0, 3)
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("vectorised", [False, True])
def test_forked_processes_do_not_share_noise(vectorised):
    add_gaussian_noise(np.zeros(3), 1.0, vectorised=vectorised)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, pickle.dumps(add_gaussian_noise(np.zeros(50), 1.0, vectorised=vectorised)))
        os._exit(0)
    here = add_gaussian_noise(np.zeros(50), 1.0, vectorised=vectorised)
    os.waitpid(child, 0)
    there = pickle.loads(os.read(reader, 65536))
    os.close(reader)
    os.close(writer)
    assert not np.isin(here, there).any()


@pytest.mark.parametrize("vectorised", [False, True])
def test_values_are_rounded_to_the_grid_first(vectorised):
    value, sigma = math.pi, 0.5
    noisy = add_gaussian_noise(np.full(200, value), sigma, vectorised=vectorised) / sigma
    # The middles of cells lie half a step off the grid.
    steps = noisy / 2.0**GRID_EXPONENT - 0.5 * vectorised
    np.testing.assert_array_equal(steps, np.rint(steps))


@pytest.mark.parametrize("n_values", [1, 640, 29_568])
@pytest.mark.parametrize("rho", [1e-4, 0.4483, 5.0, 4e4])
def test_slack_covers_rounding_and_the_samplers_own_allowance(n_values, rho):
    zcdp = exact_sampler(n_values).map(rho)
    rounding = math.sqrt(n_values) * 2.0**GRID_EXPONENT
    assert math.sqrt(2 * zcdp) + rounding <= (rho + grid_slack(n_values)) * (1 + 1e-12)


def test_discrete_profile_is_the_gaussian_profile():
    """On a grid of sigma / 2^k the profile differs by a multiple of 4^-k only."""
    rho, epsilon = 0.5, 1.0
    exact = delta_from_rho(rho, epsilon)
    errors = []
    for k in (4, 6, 8):
        scale = 2**k
        shift = round(rho * scale)
        x = np.arange(-40 * scale, 40 * scale + 1)
        p = np.exp(-0.5 * (x / scale) ** 2)
        q = np.exp(-0.5 * ((x - shift) / scale) ** 2)
        errors.append(abs(np.maximum(p - math.exp(epsilon) * q, 0).sum() / p.sum() / exact - 1))
    assert errors[0] < 0.02
    assert errors[1] < errors[0] / 4
    assert errors[2] < errors[1] / 4


def test_zero_scale_passes_unchanged():
    values = np.array([[1.5, math.pi], [2.5, 3.5]])
    noisy = add_gaussian_noise(values, [[0.0], [1.0]])
    np.testing.assert_array_equal(noisy[0], values[0])
    assert np.all(noisy[1] != values[1])


@pytest.mark.parametrize("sigma", [-1.0, np.nan, np.inf])
def test_bad_scale(sigma):
    with pytest.raises(ValueError, match="sigma"):
        add_gaussian_noise(np.zeros(3), sigma)


@pytest.mark.parametrize("seed", ["0", -1, 1.5])
def test_bad_random_state(seed):
    with pytest.raises(ValueError, match="random_state"):
        check_random_state(seed)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_values_are_never_released(value):
    with pytest.raises(ValueError, match="values must be finite"):
        add_gaussian_noise([0.0, value], 1.0)
