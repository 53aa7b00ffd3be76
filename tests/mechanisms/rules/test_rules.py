"""Rules of released numbers: what they are where these are exact, and with many classes."""

import dataclasses
import itertools
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import truncnorm

from sklearn_balldp.mechanisms import Statistics
from sklearn_balldp.mechanisms.rules import discriminant, initialisation
from sklearn_balldp.mechanisms.rules.discriminant import believed, likely_counts, spectrum_of_mean
from sklearn_balldp.mechanisms.rules.prototypes import gaussian_rule
from sklearn_balldp.mechanisms.settings import TAIL

K, D = 3000, 8


def peak_of(function, *given):
    tracemalloc.start()
    try:
        function(*given)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def sums_of(k=K, d=D, seed=0):
    """Sums of rows of norm 1, of classes of many sizes."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(5, 50, size=k).astype(float)
    means = rng.standard_normal((k, d)) / np.sqrt(d)
    return means, counts, 10.0 ** rng.uniform(-4, -1, size=k)


def test_no_rule_holds_a_matrix_of_classes():
    means, counts, noise = sums_of()
    given = means, noise, counts, np.eye(D) / D, 0.01, np.log(counts / counts.sum()), "auto"
    assert peak_of(discriminant._scores, *given) < 8 * K**2 / 4
    own = {"counts": counts, "sigma_counts": 0.0, "total": counts.sum()}
    own = SimpleNamespace(**own, class_sums=counts[:, None] * means)
    assert peak_of(initialisation._as_margins, means, np.zeros(K), own) < 8 * K**2 / 4


@pytest.mark.parametrize("seed", range(2))
def test_the_discriminant_is_that_of_all_inner_products(seed):
    k, d, sigma, shrinkage = 30, 6, 0.01, 0.3
    means, counts, noise = sums_of(k, d, seed)
    moment = np.cov(np.random.default_rng(seed).standard_normal((50, d)).T) / d
    shares = counts / counts.sum()
    grand, deviations = shares @ means, means - shares @ means
    covariance = np.diag(noise) - shares * noise - (shares * noise)[:, None] + shares**2 @ noise
    sampling = np.diag(1.0 / counts) - 1.0 / counts.sum()
    within = moment - (means.T * shares) @ means + (shares @ noise) * np.eye(d)
    raw, vectors = np.linalg.eigh(within)
    mean = max(raw.mean(), 0.05 / d)
    clean = np.maximum((1.0 - shrinkage) * raw + shrinkage * mean, 1e-6 * mean)
    inverse = 1.0 / clean
    rotated = deviations @ vectors
    weights = (rotated * inverse) @ vectors.T
    forms = weights @ deviations.T - inverse.sum() * covariance - (inverse @ clean) * sampling
    signal = max(shares @ np.diag(forms), np.finfo(float).tiny)
    gaps = raw[:, None] - raw + np.eye(d)
    stein = -(sigma**2) * inverse * ((inverse[:, None] - inverse) / gaps).sum(axis=1)
    total = moment - np.outer(grand, grand)
    measured = np.vecdot(weights @ total, weights) + rotated**2 @ stein - forms**2 @ shares
    isotropic = inverse**2 @ clean
    own = np.diag(covariance) * isotropic + np.diag(sampling) * (inverse**2 @ clean**2)
    doubt = sigma * np.sqrt(shares @ (weights @ weights.T) ** 2 @ shares)
    told, least = shares @ (measured - own), signal * isotropic / inverse.sum()
    variance = own + truncnorm.mean((least - told) / doubt, np.inf, told, doubt)
    slope = signal / variance / (1.0 + signal**2 / (shares @ variance) / TAIL)
    offsets = -slope * (weights @ grand + 0.5 * np.diag(forms))
    found = discriminant._scores(means, noise, counts, moment, sigma, np.zeros(k), shrinkage)
    np.testing.assert_allclose(found[0], slope[:, None] * weights, rtol=1e-9)
    np.testing.assert_allclose(found[1], offsets, rtol=1e-9)


@pytest.mark.kills("mechanisms/rules/discriminant.py", "noise * max(beyond - z, 0.0)", "0.0")
def test_a_number_with_a_limit_is_believed_as_far_as_its_noise_allows():
    for z in (-30.0, -2.0, 0.0, 3.0, 30.0):
        expected = truncnorm.mean(z, np.inf, 1.0 - 0.5 * z, 0.5)
        assert believed(1.0 - 0.5 * z, 0.5, 1.0) == pytest.approx(expected, rel=1e-9)
    for noise in (0.0, 1e-300, 1e-9):
        assert believed(2.0, noise, 1.0) == pytest.approx(2.0, rel=1e-9)
        assert believed(-2.0, noise, 1.0) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.kills("mechanisms/rules/discriminant.py", "doubt = sigma *", "doubt = 0.01 * sigma *")
@pytest.mark.kills("mechanisms/rules/discriminant.py", "doubt = sigma *", "doubt = 9.0 * sigma *")
def test_a_moment_of_much_noise_makes_no_score_certain():
    """Noise may take the variance of scores below 0: they were log-odds of thousands to one."""
    rng, d, counts = np.random.default_rng(0), 20, np.array([300.0, 300.0])
    apart = np.zeros((2, d))
    apart[:, 0] = -0.25, 0.25
    cov = (1.0 - 0.25**2) / d
    sizes = []
    for _ in range(200):
        noise = rng.standard_normal((d, d))
        noise = 0.04 * (noise + noise.T) / 2.0
        means = apart + 0.05 * rng.standard_normal((2, d))
        moment = cov * np.eye(d) + apart.T @ apart / 2.0 + noise
        given = np.full(2, 0.05**2), counts, moment, 0.04, np.log([0.5, 0.5]), "auto"
        weights, _ = discriminant._scores(means, *given)
        sizes.append(np.sqrt(cov) * np.linalg.norm(weights[1] - weights[0]))
    true = 0.5 / np.sqrt(cov)
    middle, large = np.quantile(sizes, [0.5, 0.9])
    assert 0.4 * true < middle < true
    assert large < 1.5 * true


@pytest.mark.parametrize("spread", [0.0, 100.0])
def test_margins_are_those_of_all_scores(spread):
    """Were the sum of all classes less one taken, extreme weights would cancel."""
    rng, k = np.random.default_rng(0), 12
    means, _, _ = sums_of(k)
    coef, intercept = rng.standard_normal((k, D)), rng.standard_normal(k)
    counts, scores = 10.0 ** rng.uniform(-spread, spread, size=k), means @ coef.T + intercept
    sums = counts[:, None] * means
    own = SimpleNamespace(counts=counts, sigma_counts=0.0, total=counts.sum(), class_sums=sums)
    others = [
        np.delete(counts, i) @ np.delete(scores[:, i], i) / np.delete(counts, i).sum()
        for i in range(k)
    ]
    shares = counts / counts.sum()
    half = max(shares @ (0.5 * (np.diag(scores) - others)), 1e-3)
    middle = shares @ (0.5 * (np.diag(scores) + others))
    found = initialisation._as_margins(coef, intercept, own)
    np.testing.assert_allclose(found[0], coef / half, rtol=1e-10)
    np.testing.assert_allclose(found[1], (intercept - middle) / half, rtol=1e-10)


def test_spectra_are_projected_onto_those_of_their_mean():
    rng, floor = np.random.default_rng(0), 0.1
    values = rng.standard_normal(50) + 0.3
    found = spectrum_of_mean(values, 1.0, floor)
    assert found.mean() == pytest.approx(1.0)
    assert found.min() >= floor - 1e-12
    # Nearest: no feasible point is closer.
    for _ in range(200):
        other = np.maximum(found + 0.1 * rng.standard_normal(50), floor)
        other += 1.0 - other.mean()
        if other.min() >= floor:
            assert np.linalg.norm(other - values) >= np.linalg.norm(found - values) - 1e-9
    # Of noise alone: an eigenvalue so large that the mean of all is lost beside it.
    for size in (1e16, 1e30, 1e300):
        for values in ([0.0, 1.0, size], [-size, 0.0, size], [size, size, -size]):
            found = spectrum_of_mean(np.array(values), 1.0, floor)
            assert np.isfinite(found).all()
            assert found.min() >= floor


def noisy_counts(true, sigma, rng):
    """What a release tells of class counts, and little else."""
    sums = np.asarray(true)[:, None] * np.eye(len(true), 50)
    noisy = np.asarray(true) + sigma * rng.standard_normal(len(true))
    noise = {"sigma_sums": np.ones(len(true)), "sigma_moment": None, "sigma_counts": sigma}
    domain = {"domain": "ball", "norm_bound": 1.0, "total": float(np.sum(true))}
    return Statistics(noisy, sums, None, **noise, **domain)


@pytest.mark.parametrize("sigma", [5.0, 1e4])
@pytest.mark.parametrize("spread", [0.0, 2.0])
def test_noisy_counts_are_believed_as_far_as_their_spread_exceeds_the_noise(spread, sigma):
    rng = np.random.default_rng(0)
    shares = np.exp(spread * rng.standard_normal(80))
    true = 8000 * shares / shares.sum()
    errors, found = [], []
    for _ in range(50):
        statistics = noisy_counts(true, sigma, rng)
        found.append(likely_counts(statistics))
        clipped = np.maximum(statistics.counts, 1.0)
        errors.append([np.sum((c - true) ** 2) for c in (found[-1], clipped, 100.0)])
    ours, noisy, equal = np.mean(errors, axis=0)
    # Neither counts as they came nor equal ones are better, but for what it costs to tell which.
    assert ours <= 1.1 * noisy
    assert ours <= 1.1 * equal + 0.01 * 80 * sigma**2
    assert np.min(found) >= 1.0
    known = dataclasses.replace(noisy_counts(true, sigma, rng), sigma_counts=0.0)
    np.testing.assert_array_equal(likely_counts(known), known.counts)


def test_gaussian_rule_is_the_bayes_rule_when_there_is_no_noise():
    rng = np.random.default_rng(0)
    means = rng.standard_normal((4, 50)) * 0.05
    counts = np.array([10, 20, 30, 40])
    coef, intercept = gaussian_rule(means, counts, np.zeros(4), alpha=1e-12, norm_bound=1.0)
    X = rng.standard_normal((30, 50)) / 7
    squares = counts @ np.vecdot(means, means) / 100
    t = 10 / 50 * (1 - squares)
    expected = X @ means.T / t - np.vecdot(means, means) / (2 * t) + np.log(counts / 100)
    np.testing.assert_allclose(
        softmax(X @ coef.T + intercept, axis=1), softmax(expected, axis=1), rtol=1e-9
    )


def test_gaussian_rule_falls_back_to_the_prior_under_huge_noise():
    counts = np.array([1, 9, 0])
    noise = np.random.default_rng(0).standard_normal((3, 20)) * 1e4
    coef, intercept = gaussian_rule(noise, counts, np.full(3, 1e4), alpha=0.01, norm_bound=1.0)
    shares = softmax(np.eye(20) @ coef.T + intercept, axis=1)
    np.testing.assert_allclose(shares[:, 2], 0)
    np.testing.assert_allclose(shares[:, 0], 0.1, atol=0.01)
    rng = np.random.default_rng(0)
    corners = itertools.product(
        (1, 2, 40), (0.0, 1e-9, 1.0, 1e6), ([1, 1], [1, 1000], [5, 5, 5]), (0.0, 1.0)
    )
    for d, sigma, counts, scale in corners:
        means, sigmas = scale * rng.standard_normal((len(counts), d)), np.full(len(counts), sigma)
        rule = gaussian_rule(means, np.array(counts), sigmas, alpha=0.01, norm_bound=1.0)
        assert all(np.isfinite(part).all() for part in rule)
