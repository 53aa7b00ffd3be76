"""Identification: the posterior against a brute-force density, and decoding.

Tests of randomness here reject correct code with probability below 1e-9 each.
"""

import numpy as np
import pytest
from scipy.stats import norm

from sklearn_balldp.audit.identification import decode, log_posterior


def models_with_blocks(rng, m=5):
    return rng.standard_normal((m, 3, 4)), np.array([[0.5], [1.0], [2.0]])


@pytest.mark.parametrize("prior", [None, [0.5, 0.1, 0.1, 0.3, 0.0]])
def test_posterior_is_that_of_the_densities(prior):
    rng = np.random.default_rng(0)
    models, sigma = models_with_blocks(rng)
    released = models[[0, 3]] + sigma * rng.standard_normal((2, 3, 4))
    weights = np.full(5, 0.2) if prior is None else np.array(prior)
    for seen, logs in zip(released, log_posterior(released, models, sigma, prior), strict=True):
        density = weights * norm.pdf(seen, models, np.broadcast_to(sigma, (3, 4))).prod(axis=(1, 2))
        np.testing.assert_allclose(np.exp(logs), density / density.sum(), rtol=1e-10)
    one = log_posterior(released[0], models, sigma, prior)
    assert one.shape == (5,)
    np.testing.assert_allclose(one, log_posterior(released, models, sigma, prior)[0])


def test_posterior_with_large_common_parts():
    """Models that nearly agree around a large common value: squares must not cancel."""
    models = 1e6 + np.array([[0.0, 0.0], [1e-3, 0.0], [0.0, 2e-3]])
    logs = log_posterior(models[1], models, 1e-3)
    squares = np.array([1.0, 0.0, 5.0])
    expected = np.exp(-squares / 2) / np.exp(-squares / 2).sum()
    np.testing.assert_allclose(np.exp(logs), expected, rtol=1e-6)


def test_parameters_without_noise_identify():
    rng = np.random.default_rng(0)
    models, _ = models_with_blocks(rng)
    models[1, 0] = models[0, 0]
    sigma = np.array([[0.0], [1.0], [1.0]])
    logs = log_posterior(models[0] + sigma * rng.standard_normal((3, 4)), models, sigma)
    assert np.isneginf(logs[2:]).all()
    assert np.isfinite(logs[:2]).all()
    assert np.exp(logs).sum() == pytest.approx(1)
    with pytest.raises(ValueError, match="no candidate explains"):
        log_posterior(models[0] + 1.0, models, sigma)


def test_decoder_takes_the_answer_that_hits_most():
    logs = np.log([0.28, 0.1, 0.28, 0.34])
    hits = np.array([[True, True, False, False], [False, True, True, False], [False] * 3 + [True]])
    assert decode(logs) == 3
    assert decode(logs, np.eye(4)) == 3
    assert decode(logs, hits) == 0
    assert decode(np.stack([logs, logs[::-1]]), hits).tolist() == [0, 0]


def test_map_beats_other_rules_with_priors_and_blocks(success_interval):
    """Nearest model, unweighted distance and a forgotten prior all do worse."""
    rng = np.random.default_rng(0)
    models, sigma = models_with_blocks(rng)
    models *= 0.5
    prior = np.array([0.6, 0.1, 0.1, 0.1, 0.1])
    n = 40_000
    truth = rng.choice(5, size=n, p=prior)
    released = models[truth] + sigma * rng.standard_normal((n, 3, 4))
    rules = {
        "map": decode(log_posterior(released, models, sigma, prior)),
        "no prior": decode(log_posterior(released, models, sigma)),
        "unweighted": decode(log_posterior(released, models, 1.0, prior)),
    }
    hits = {name: np.count_nonzero(guess == truth) for name, guess in rules.items()}
    low, _ = success_interval(hits["map"], n)
    for name in ("no prior", "unweighted"):
        assert low > success_interval(hits[name], n)[1]


def test_errors():
    for call, match in (
        (lambda: log_posterior(np.zeros(3), np.eye(2), 1.0), "released"),
        (lambda: log_posterior(np.zeros(2), np.eye(2), -1.0), "sigma"),
        (lambda: log_posterior(np.zeros(2), np.eye(2), 1.0, [1.0, 1.0]), "prior"),
    ):
        with pytest.raises(ValueError, match=match):
            call()
