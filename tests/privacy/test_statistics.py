"""Sensitivity of class sums and the second moment: searched, and attained."""

import math

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize

from sklearn_balldp.privacy.gaussian import mu_from_budget
from sklearn_balldp.privacy.sensitivity import moment_sensitivity
from sklearn_balldp.privacy.statistics import StatisticsBound

DOMAINS = ["ball", "sphere"]


def bound_of(radius=0.3, mu=0.5, **public):
    given = {
        "n_samples": 50,
        "n_features": 3,
        "n_classes": 2,
        "norm_bound": 1.0,
        "rows": "ball",
        "share": 0.4,
        "count_constant": 0.0,
        **public,
    }
    return StatisticsBound(**given).calibrated(radius, mu)


def pairs(rng, domain, radius, d, size):
    """Pairs of rows of the domain within the radius, many of them at its edge."""
    X = rng.standard_normal((size, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    tangent = rng.standard_normal((size, d))
    tangent -= np.vecdot(tangent, X)[:, None] * X
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    reach = radius * np.where(rng.random(size) < 0.5, 1.0, rng.random(size))
    angle = 2.0 * np.arcsin(np.minimum(reach / 2.0, 1.0))
    on_sphere = X.copy(), np.cos(angle)[:, None] * X + np.sin(angle)[:, None] * tangent
    if domain == "sphere":
        return on_sphere
    X *= (rng.random(size) ** rng.choice([0.0, 0.05, 1.0], size))[:, None]
    tilt = rng.choice([0.0, 1.0, 0.3], size)
    direction = tilt[:, None] * tangent - X
    direction /= np.maximum(np.linalg.norm(direction, axis=1, keepdims=True), 1e-12)
    other = X + reach[:, None] * direction
    norms = np.maximum(np.linalg.norm(other, axis=1, keepdims=True), 1.0)
    other /= norms
    near = np.linalg.norm(X - other, axis=1) <= radius
    return tuple(
        np.concatenate(rows) for rows in zip(on_sphere, (X[near], other[near]), strict=True)
    )


def moved(X, Z):
    """Squared distances of single rows, and of their outer products."""
    p, q, inner = np.vecdot(X, X), np.vecdot(Z, Z), np.vecdot(X, Z)
    return np.vecdot(X - Z, X - Z), p**2 + q**2 - 2.0 * inner**2


def joint(bound, rows, products=0.0):
    """The largest distance of both sums, in units of their noise."""
    squares = rows / bound.sigma[0] ** 2
    if bound.moment:
        squares = squares + products / bound.sigma[1] ** 2
    return math.sqrt(np.max(squares))


@pytest.mark.parametrize("domain", DOMAINS)
def test_random_pairs_never_exceed_it_and_reach_it(domain):
    rng = np.random.default_rng(0)
    for radius in (0.02, 0.1, 0.3, 0.58, 0.6, 0.9, 1.0, 1.2, 1.4, 1.42, 1.7, 2.0):
        stated = moment_sensitivity(radius, norm_bound=1.0, domain=domain)
        found = [moved(*pairs(rng, domain, radius, d, 20_000))[1] for d in (2, 3, 5, 20, 50)]
        largest = math.sqrt(np.concatenate(found).max())
        assert 0.99 * stated <= largest <= stated * (1 + 1e-12)


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("radius", [0.05, 0.59, 1.3, 2.0])
@pytest.mark.parametrize("d", [2, 3, 7])
def test_optimised_pairs_never_exceed_it(domain, radius, d):
    """Gradient-free ascent over both rows, brought back into the domain and the radius."""
    rng = np.random.default_rng(d)
    stated = moment_sensitivity(radius, norm_bound=1.0, domain=domain)

    def brought(values):
        x, z = values[:d], values[d:]
        if domain == "sphere":
            x, z = x / np.linalg.norm(x), z / np.linalg.norm(z)
            t = np.linalg.norm(x - z)
            if t > radius:
                e = z - (z @ x) * x
                e /= max(np.linalg.norm(e), 1e-300)
                angle = 2.0 * math.asin(radius / 2.0)
                z = math.cos(angle) * x + math.sin(angle) * e
            return x, z
        x = x / max(1.0, np.linalg.norm(x))
        z = z / max(1.0, np.linalg.norm(z))
        t = np.linalg.norm(x - z)
        return x, x + (z - x) * min(1.0, radius / max(t, 1e-300))

    def loss(values):
        x, z = brought(values)
        return -np.linalg.norm(np.outer(x, x) - np.outer(z, z))

    starts = rng.standard_normal((6, 2 * d))
    found = [
        minimize(loss, start, method="Nelder-Mead", options={"maxiter": 2000}) for start in starts
    ]
    assert 0.97 * stated <= -min(result.fun for result in found) <= stated * (1 + 1e-9)


def test_the_identity_in_many_digits():
    """|xx' - zz'|^2 = p^2 + q^2 - (p + q - t^2)^2 / 2, and small radii do not cancel."""
    with mpmath.workdps(60):
        for radius in (1e-9, 1e-6, 1e-3, 0.5):
            t = mpmath.mpf(radius)
            along, across = 2 * t - t**2, t * mpmath.sqrt(2 - t**2 / 2)
            for domain, exact in (("sphere", across), ("ball", max(along, across))):
                found = moment_sensitivity(radius, norm_bound=1.0, domain=domain)
                assert 0 <= (mpmath.mpf(found) - exact) / exact < 1e-11


@pytest.mark.parametrize("domain", DOMAINS)
def test_scale_growth_and_limits(domain):
    values = [
        moment_sensitivity(r, norm_bound=1.0, domain=domain) for r in np.linspace(0.01, 2, 99)
    ]
    assert (np.diff(values) >= -1e-12).all()
    assert values[-1] == pytest.approx(math.sqrt(2.0))
    scaled = moment_sensitivity(0.9, norm_bound=3.0, domain=domain)
    assert scaled == pytest.approx(9.0 * moment_sensitivity(0.3, norm_bound=1.0, domain=domain))
    changed = moment_sensitivity(0.01, norm_bound=1.0, domain=domain, label_change=True)
    assert changed == pytest.approx(math.sqrt(2.0))
    with pytest.raises(ValueError, match="domain must be one of ball, sphere"):
        moment_sensitivity(0.1, norm_bound=1.0, domain="cube")


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("radius", [0.02, 0.3, 0.8, 1.2])
def test_both_sums_together_reach_mu_and_never_exceed_it(domain, radius):
    """One pair moves both: the joint distance in units of the noise, over the whole domain."""
    rng, mu = np.random.default_rng(1), 0.5
    found = [moved(*pairs(rng, domain, radius, d, 40_000)) for d in (2, 3, 8)]
    rows, products = (np.concatenate(parts) for parts in zip(*found, strict=True))
    for share in (0.05, 0.4, 0.95, 1.0):
        bound = bound_of(radius, mu, rows=domain, share=share)
        largest = joint(bound, rows, products)
        assert largest <= bound.mu(radius) <= mu
        assert largest >= 0.985 * mu  # float32 sums have up to a 64th of it


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("radius", [0.1, 1.0, 1.9, 2.0])
def test_label_changes_reach_mu_and_never_exceed_it(domain, radius):
    """Any row leaves one class for another row in another: sums with their counts, and products."""
    rng, mu = np.random.default_rng(2), 0.7
    constant = max(0.5, math.sqrt(max(0.5 * radius**2 - 1.0, 0.0)))
    bound = bound_of(
        radius, mu, rows=domain, labels="protected", count_constant=constant, share=0.5
    )
    X, Z = pairs(rng, domain, 2.0, 4, 100_000)
    rows, products = moved(X, Z)
    changed = np.vecdot(X, X) + np.vecdot(Z, Z) + 2.0 * constant**2
    same = rows <= radius**2
    alike = joint(bound, rows[same], products[same])
    largest = max(alike, joint(bound, changed, products))
    assert largest <= bound.mu(radius) <= mu
    assert largest >= 0.985 * mu
    # Asked about one label it answers for one label.
    assert alike <= bound.mu(radius, "public") <= bound.mu(radius)


@pytest.mark.parametrize("labels", ["public", "protected"])
@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("radius", [0.02, 0.4, 1.3, 2.0])
def test_a_sum_of_all_rows_reaches_mu_and_never_exceeds_it(domain, radius, labels):
    """It sees no label: a change of one is a substitution at any distance."""
    rng, mu = np.random.default_rng(4), 0.6
    public = {"rows": domain, "labels": labels, "share": 1.0, "pooled": True}
    bound = bound_of(radius, mu, **public)
    reach = radius if labels == "public" else 2.0
    largest = max(joint(bound, moved(*pairs(rng, domain, reach, d, 40_000))[0]) for d in (2, 3, 8))
    assert largest <= bound.mu(radius) <= mu
    assert largest >= 0.99 * mu
    assert (bound.n_sums, bound.n_values, len(bound.sigma)) == (1, 3, 1)
    assert bound.class_signals((30.0, 20.0)) == (0.0, 0.0)
    further = bound.mu(2.0)
    assert further == pytest.approx(2.0 / bound.sigma[0], rel=1e-5)
    assert (further <= mu) == (labels == "protected" or radius == 2.0)


def test_other_radii():
    bound = bound_of(0.1, 0.3)
    exact = math.hypot(0.4 / bound.sigma[0], (0.8 - 0.16) / bound.sigma[1])
    assert bound.mu(0.4) == pytest.approx(exact, rel=5e-3)
    assert bound.mu(0.4) >= exact
    assert bound.mu(0.1, "protected") == math.inf
    mus = [bound.mu(t) for t in np.linspace(0.001, 2.0, 60)]
    assert (np.diff(mus) > 0).all()


@pytest.mark.parametrize("radius", [0.02, 0.1, 2.0])
@pytest.mark.parametrize("domain", DOMAINS)
def test_rounding_takes_a_small_share(domain, radius):
    """Rounding of sums in single precision is in the sensitivity."""
    exact = moment_sensitivity(radius * (1 + 1e-6), norm_bound=1 + 1e-6, domain=domain)
    for summed in (0, 128, 256):
        bound = bound_of(radius, rows=domain, n_samples=1_000_000, summed=summed)
        excess = bound.sensitivity(radius)[1] / exact - 1.0
        # Rows that are all alike: every addition is rounded by half a unit of its result.
        assert excess >= 2.0 * sum(range(2, summed + 1)) * 2.0**-24 / exact
        if summed:
            assert excess == pytest.approx(bound.single_share(radius, summed), rel=0.1)
        else:
            assert 0.0 < excess < 1e-3


def test_shares_follow_the_budget():
    mu = mu_from_budget(1.0, 1e-6)
    for share in (0.1, 0.5, 0.9):
        bound = bound_of(0.3, mu, share=share)
        parts = (bound.sensitivity(0.3) / np.array(bound.sigma)) ** 2
        np.testing.assert_allclose(parts / mu**2, [share, 1 - share], rtol=1e-6)
    alone = bound_of(0.3, mu, share=1.0)
    assert len(alone.sigma) == 1
    assert alone.n_values == 6
    assert bound.n_values == 6 + 6


def test_wrong_fields_are_refused():
    for wrong, name in (
        ({"rows": "cube"}, "rows"),
        ({"share": 0.0}, "share"),
        ({"share": 1.5}, "share"),
        ({"count_constant": 0.5}, "constant"),
        ({"labels": "protected"}, "constant"),
        ({"pooled": True}, "share=0.4: a pooled sum is released alone"),
        ({"pooled": True, "share": 1.0, "count_constant": 0.5}, "constant"),
        ({"mu": 1e-13}, "epsilon is too small"),
    ):
        with pytest.raises(ValueError, match=name):
            bound_of(**wrong)
    for share, sigma in [(0.4, (1.0,)), (1.0, (1.0, 1.0)), (0.4, (1.0, -1.0)), (0.4, (0.0, 1.0))]:
        with pytest.raises(ValueError, match="sigma"):
            StatisticsBound(50, 3, 2, 1.0, "ball", share, 0.0, sigma=sigma)


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("t", [0.2, 0.7, 1.3, 1.5, 2.0])
def test_at_every_radius_one_pair_comes_near_mu(domain, t):
    """Both sums at once: no more than is stated at any radius, and nearly as much."""
    rng = np.random.default_rng(3)
    found = [moved(*pairs(rng, domain, t, d, 60_000)) for d in (2, 3)]
    rows, products = (np.concatenate(parts) for parts in zip(*found, strict=True))
    for share in (0.1, 0.4, 0.9):
        bound = bound_of(0.1, 0.3, rows=domain, share=share)
        assert 0.98 * bound.mu(t) <= joint(bound, rows, products) <= bound.mu(t)
