"""The noise has the stated law, whichever sampler draws it.

Every test of randomness here rejects a correct sampler with probability below 1e-9.
"""

import copy
import math
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

import sklearn_balldp.privacy.noise as noise_module
from sklearn_balldp.mechanisms import MeanGradient, Minimiser, Sums
from sklearn_balldp.privacy import Problem
from sklearn_balldp.privacy.noise import GRID_EXPONENT, Noise, grid_slack

SCALES = np.array([[1e-6], [0.3], [40.0]])
LEVEL = 1e-10


@pytest.fixture(params=["exact", "numpy"])
def noise(request):
    return Noise({"exact": None, "numpy": 7}[request.param])


@pytest.mark.kills("privacy/noise.py", "deviates) * scale[noisy", "deviates / 1.05) * scale[noisy")
def test_law_of_each_block(noise):
    n = 16_000
    values = np.array([[5.0], [-2.0], [1e3]]) + np.zeros((3, n))
    drawn = (noise(values, SCALES) - values) / SCALES
    for block in drawn:
        assert stats.kstest(block, "norm").pvalue > LEVEL
        # The chi-squared law of the energy catches a scale that is off by 5%.
        energy = np.sum(block**2)
        assert min(stats.chi2.cdf(energy, n), stats.chi2.sf(energy, n)) > LEVEL


def test_values_are_independent(noise):
    n = 4000
    draws = noise(np.zeros((n, 5)), 1.0)
    covariance = draws.T @ draws / n
    bound = stats.norm.isf(LEVEL) / math.sqrt(n)
    off = covariance[np.triu_indices(5, 1)]
    assert np.abs(off).max() < 1.3 * bound
    assert np.abs(np.diag(covariance) - 1).max() < 1.3 * bound * math.sqrt(2)
    lagged = np.mean(draws.ravel()[1:] * draws.ravel()[:-1])
    assert abs(lagged) < bound


@pytest.mark.kills(
    "privacy/noise.py",
    "            return rounded_normal(size)",
    """            stock = vars(self).setdefault("_stock", rounded_normal(50 + size))
            self._stock = stock[size:] if len(stock) >= size else rounded_normal(50)
            return stock[:size] if len(stock) >= size else rounded_normal(size)""",
    attack="noise that repeats",
)
def test_nothing_is_drawn_ahead_or_kept(monkeypatch):
    """What a call does not keep, no thread and no other process can draw again."""
    drawn, streams = [], [np.random.default_rng(0).bytes for _ in range(2)]

    def recorded(size, *entropy, _original=noise_module.rounded_normal):
        drawn.append(_original(size, *entropy))
        return drawn[-1]

    monkeypatch.setattr(noise_module, "rounded_normal", recorded)
    noise = Noise()
    sizes = (3, 0, 385, 385, 20_000, 7, 385, 40_000)
    taken = [noise(np.zeros(size), 1.0) for size in sizes]
    assert tuple(map(len, drawn)) == sizes
    np.testing.assert_array_equal(np.concatenate(taken), np.concatenate(drawn))
    assert vars(noise) == {"_generator": None}
    # Nor does what draws them: the same entropy gives the same, whatever was drawn before.
    first, second = (noise_module.rounded_normal(385, stream) for stream in streams)
    np.testing.assert_array_equal(first, second)


def test_noise_has_no_copies():
    for copying in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="not copied"):
            copying(Noise())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(("same", "threads"), [(False, 1), (True, 4)])
def test_forked_processes_do_not_share_noise(same, threads):
    """Neither through new objects nor through one, nor do the threads of a child."""
    kept = Noise()
    for _ in range(20):
        kept(np.zeros(50), 1.0)

    def draw(_=0):
        return (kept if same else Noise())(np.zeros(50), 1.0)

    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with ThreadPoolExecutor(threads) as pool:
                os.write(writer, pickle.dumps(np.concatenate(list(pool.map(draw, range(8))))))
        finally:
            os._exit(0)
    os.close(writer)
    here = draw()
    with os.fdopen(reader, "rb") as stream:
        there = pickle.load(stream)
    os.waitpid(child, 0)
    assert len(np.unique(np.concatenate([here, there]))) == 450


def test_threads_share_no_deviate():
    """Nor do calls, one after another, and other releases."""
    noise = Noise()
    with ThreadPoolExecutor(8) as pool:
        draws = list(pool.map(lambda i: noise(np.zeros(3), 1.0), range(4000)))
    draws += [noise(np.zeros(3000), 1.0), noise(np.zeros(3000), 1.0), Noise()(np.zeros(3000), 1.0)]
    assert len(np.unique(np.concatenate(draws))) >= 20_998


@pytest.mark.kills(
    "privacy/noise.py",
    "        return released\n",
    "        released.flat[:1] = values.flat[:1]\n        return released\n",
)
def test_values_are_rounded_to_the_grid_first():
    value, sigma = math.pi, 0.5
    noisy = Noise()(np.full(200, value), sigma) / sigma
    # The middles of cells lie half a step off the grid.
    steps = noisy / 2.0**GRID_EXPONENT - 0.5
    np.testing.assert_array_equal(steps, np.rint(steps))


def opendp_gaussian(n_values):
    """OpenDP's discrete Gaussian on the same grid: the oracle for law and privacy map."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    try:
        domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=n_values)
        return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=1.0, k=GRID_EXPONENT)
    finally:
        dp.disable_features("contrib")


@pytest.mark.parametrize("n_values", [1, 640, 29_568])
def test_slack_covers_rounding_and_a_samplers_own_allowance(n_values):
    """OpenDP's map counts rounding too: with the slack even a discrete sampler would do."""
    rounding = math.sqrt(n_values) * 2.0**GRID_EXPONENT
    for mu in (1e-4, 0.4483, 5.0, 4e4):
        zcdp = opendp_gaussian(n_values).map(mu)
        assert math.sqrt(2 * zcdp) + rounding <= (mu + grid_slack(n_values)) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("values", "sigma", "match"),
    [
        ([0.0], -1.0, "sigma"),
        ([0.0], np.nan, "sigma"),
        ([0.0], np.inf, "sigma"),
        ([0.0, np.nan], 1.0, "values must be finite"),
        ([0.0, np.inf], 1.0, "values must be finite"),
        ([1e300], 1e-300, "too large for sigma"),
        ([-1e300], 1e-300, "too large for sigma"),
    ],
)
def test_what_is_never_released(values, sigma, match):
    with pytest.raises(ValueError, match=match):
        Noise()(values, sigma)


@pytest.mark.parametrize(
    "query",
    [Sums(), Sums(moment=1.0), Minimiser(tol=1e-8), MeanGradient(np.zeros((1, 200)), clip=0.5)],
    ids=["sums", "moment", "minimiser", "gradient"],
)
def test_the_stated_mu_covers_what_rounding_moves_apart(query, monkeypatch):
    """Neighbours whose values all lie just beside a middle of the grid are rounded apart."""
    monkeypatch.setattr(Noise, "_deviates", lambda self, size: np.zeros(size))
    sizes = {"n_samples": 50, "n_features": 200, "n_classes": 2, "class_counts": (25, 25)}
    problem = Problem(**sizes, radius=0.3, alpha=0.1, loss="logistic")
    grid, p = 2.0**GRID_EXPONENT, math.prod(query.shape(problem))
    value = np.full(p, (0.5 - 1e-4) * grid)
    other = value + (3.0 + 2e-4) * grid
    moved = np.linalg.norm(other - value)
    # As far apart, in units of the noise, as the query's values may be.
    query = query.scaled(query.ratio(problem, 0.3, "public") / moved)
    scales = np.ravel(query.scales(problem)).astype(float)
    one, two = (Noise(0)(v * scales, scales) / scales for v in (value, other))
    apart = np.linalg.norm(one - two)
    assert apart > 1.3 * moved
    assert apart <= query.mu(problem)
