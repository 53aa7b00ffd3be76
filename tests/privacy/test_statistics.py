"""Sensitivity of class sums and the second moment: searched, and attained."""

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize

from sklearn_balldp.heads.plan import _of_classes
from sklearn_balldp.mechanisms.sums import class_sums
from sklearn_balldp.privacy.problem import Problem
from sklearn_balldp.privacy.sensitivity import moment_sensitivity

DOMAINS = ["ball", "sphere"]


def problem_of(radius, **public):
    """Public numbers of records in a unit ball."""
    counts = None if public.get("labels") == "protected" else (30, 20)
    sizes = {"n_samples": 50, "n_features": 3, "n_classes": 2, "class_counts": counts}
    return Problem(**{**sizes, "radius": radius, **public})


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


def joint(query, rows, products=0.0):
    """The largest distance of both sums, in units of their noise."""
    squares = rows / query.sigma**2
    if query.moment is not None:
        squares = squares + products / query.moment**2
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
        problem = problem_of(radius, domain=domain)
        query = class_sums(problem, mu, share)
        largest = joint(query, rows, products)
        assert largest <= query.ratio(problem, radius, "public") < query.mu(problem) <= mu
        assert largest >= 0.985 * mu


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("radius", [0.1, 1.0, 1.9, 2.0])
def test_label_changes_reach_mu_and_never_exceed_it(domain, radius):
    """Any row leaves one class for another row in another: sums with their counts, and products."""
    rng, mu = np.random.default_rng(2), 0.7
    problem = problem_of(radius, domain=domain, labels="protected")
    query = class_sums(problem, mu, 0.5)
    assert query.constant == max(0.5, math.sqrt(max(0.5 * radius**2 - 1.0, 0.0)))
    X, Z = pairs(rng, domain, 2.0, 4, 100_000)
    rows, products = moved(X, Z)
    changed = np.vecdot(X, X) + np.vecdot(Z, Z) + 2.0 * query.constant**2
    same = rows <= radius**2
    alike = joint(query, rows[same], products[same])
    largest = max(alike, joint(query, changed, products))
    assert largest <= query.ratio(problem, radius, "protected") < query.mu(problem) <= mu
    assert largest >= 0.985 * mu
    # Asked about one label it answers for one label.
    assert alike <= query.mu(problem, radius, "public") <= query.mu(problem)


@pytest.mark.parametrize("labels", ["public", "protected"])
@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("radius", [0.02, 0.4, 1.3, 2.0])
def test_a_sum_of_all_rows_reaches_mu_and_never_exceeds_it(domain, radius, labels):
    """It sees no label: a change of one is a substitution at any distance."""
    rng, mu = np.random.default_rng(4), 0.6
    problem = problem_of(radius, domain=domain, labels=labels)
    query = class_sums(problem, mu, 1.0, pooled=True)
    reach = radius if labels == "public" else 2.0
    largest = max(joint(query, moved(*pairs(rng, domain, reach, d, 40_000))[0]) for d in (2, 3, 8))
    assert largest <= query.ratio(problem, radius, labels) < query.mu(problem) <= mu
    assert largest >= 0.99 * mu
    assert query.shape(problem) == (3,)
    # It tells no class, and has no counts.
    assert _of_classes(problem, query, np.array([30.0, 20.0])) == (0.0, 0.0)
    assert replace(query, constant=0.5).mu(problem) == math.inf
    further = query.mu(problem, 2.0)
    assert further == pytest.approx(2.0 / query.sigma, rel=1e-5)
    assert (further <= mu) == (labels == "protected" or radius == 2.0)


def test_other_radii():
    problem = problem_of(0.1)
    query = class_sums(problem, 0.3, 0.4)
    exact = math.hypot(0.4 / query.sigma, (0.8 - 0.16) / query.moment)
    assert query.mu(problem, 0.4) == pytest.approx(exact, rel=1e-4)
    assert query.mu(problem, 0.4) >= exact
    assert query.mu(problem, 0.1, "protected") == math.inf
    mus = [query.mu(problem, t) for t in np.linspace(0.001, 2.0, 60)]
    assert (np.diff(mus) > 0).all()


@pytest.mark.parametrize("radius", [0.02, 0.1, 2.0])
@pytest.mark.parametrize("domain", DOMAINS)
def test_rounding_takes_a_small_share(domain, radius):
    """Of the sensitivity, even of a million rows."""
    problem = problem_of(radius, domain=domain, n_samples=10**6, class_counts=(10**6, 0))
    stated = class_sums(problem, 0.5, 0.4).sensitivity(problem)
    moment = moment_sensitivity(radius * (1 + 1e-6), norm_bound=1 + 1e-6, domain=domain)
    for found, exact in zip(stated, (radius * (1 + 1e-6), moment), strict=True):
        # Rows that are all alike: every addition errs by half a unit of its result.
        assert 2.0**-53 * 10**6 < found - exact < 1e-3 * exact


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("t", [0.2, 0.7, 1.3, 1.5, 2.0])
def test_at_every_radius_one_pair_comes_near_mu(domain, t):
    """Both sums at once: no more than is stated at any radius, and nearly as much."""
    rng = np.random.default_rng(3)
    found = [moved(*pairs(rng, domain, t, d, 60_000)) for d in (2, 3)]
    rows, products = (np.concatenate(parts) for parts in zip(*found, strict=True))
    for share in (0.1, 0.4, 0.9):
        problem = problem_of(0.1, domain=domain)
        query = class_sums(problem, 0.3, share)
        largest = joint(query, rows, products)
        assert 0.98 * query.mu(problem, t) <= largest <= query.ratio(problem, t, "public")
