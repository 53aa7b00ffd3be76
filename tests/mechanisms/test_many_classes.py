"""Many classes: time and memory grow with the model, not with the square of its classes."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from mean_gradients import Mean

from sklearn_balldp.mechanisms import discriminant_rule, initialisation
from sklearn_balldp.mechanisms.settings import TAIL
from sklearn_balldp.rows.passes import results

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


@pytest.mark.parametrize(("k", "most"), [(4, 4096), (1000, 1048), (10_000, 104)])
def test_a_pass_holds_the_scores_of_few_rows(k, most):
    """More would take gigabytes on several threads."""
    n = 20_000
    mean = Mean("softmax", np.ones((n, D)), np.arange(n) % k, k, 0.2)
    at = mean.passes._at(np.zeros((k, D + 1)))
    sizes = []

    def counted(block):
        sizes.append(len(block))

    counted.width = at.width
    list(results(counted, np.ones((n, D))))
    assert sum(sizes) == n
    assert max(sizes) == most


def test_the_discriminant_holds_no_matrix_of_classes():
    means, counts, noise = sums_of()
    given = means, noise, counts, np.eye(D) / D, 0.01, np.log(counts / counts.sum()), "auto"
    assert peak_of(discriminant_rule._scores, *given) < 8 * K**2 / 4


def test_margins_hold_no_matrix_of_classes():
    means, counts, _ = sums_of()
    own = SimpleNamespace(
        counts=counts, sigma_counts=0.0, total=counts.sum(), class_sums=counts[:, None] * means
    )
    given = means, np.zeros(K), own
    assert peak_of(initialisation._as_margins, *given) < 8 * K**2 / 4


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
    variance = own + max(shares @ (measured - own), signal * isotropic / inverse.sum())
    slope = signal / variance / (1.0 + signal**2 / (shares @ variance) / TAIL)
    offsets = -slope * (weights @ grand + 0.5 * np.diag(forms))
    found = discriminant_rule._scores(means, noise, counts, moment, sigma, np.zeros(k), shrinkage)
    np.testing.assert_allclose(found[0], slope[:, None] * weights, rtol=1e-9)
    np.testing.assert_allclose(found[1], offsets, rtol=1e-9)


@pytest.mark.parametrize("spread", [0.0, 8.0])
def test_margins_are_those_of_all_scores(spread):
    """Were the sum of all classes less one taken, small ones beside a large one would cancel."""
    rng, k = np.random.default_rng(0), 12
    means, _, _ = sums_of(k)
    coef, intercept = rng.standard_normal((k, D)), rng.standard_normal(k)
    counts, scores = 10.0 ** rng.uniform(0.0, 2.0 * spread, size=k), means @ coef.T + intercept
    own = SimpleNamespace(
        counts=counts, sigma_counts=0.0, total=counts.sum(), class_sums=counts[:, None] * means
    )
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
