"""What sums, second moments and prototypes move by: searched, attained, and by brute force."""

import math

import mpmath
import numpy as np
import pytest
from climbing import climbed, into_ball

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.mechanisms.sums import PrototypePerturbation, class_sums
from sklearn_balldp.privacy.problem import Problem
from sklearn_balldp.privacy.sensitivity import moment_sensitivity

DOMAINS = ["ball", "sphere"]


def problem_of(radius, counts=(30, 20), n_features=3, **public):
    """Public numbers of records in so many classes."""
    sizes = {"n_samples": sum(counts), "n_classes": len(counts), "n_features": n_features}
    return Problem(**{**sizes, "class_counts": counts, "radius": radius, "alpha": 0.01, **public})


def furthest(move, domain, radius, d, seed=0):
    """The largest ``move`` of squared distances of two rows and of their outer products."""

    def value(free, _):
        x, z = free[:, :d], free[:, d:]
        if domain == "sphere":
            x = x / np.linalg.norm(x, axis=1, keepdims=True)
            across = z - np.vecdot(z, x)[:, None] * x
            angle = 2.0 * np.arcsin(np.minimum(0.5 * radius * np.tanh(abs(z[:, :1])), 1.0))
            across /= np.linalg.norm(across, axis=1, keepdims=True)
            z = np.cos(angle) * x + np.sin(angle) * across
        else:
            x = into_ball(x, 1.0)
            z = into_ball(x + into_ball(z, radius), 1.0)
        p, q, inner = np.vecdot(x, x), np.vecdot(z, z), np.vecdot(x, z)
        apart = x - z
        # p^2 + q^2 - 2 inner^2, which would cancel.
        products = 2.0 * (p * q - inner**2) + (p - q) ** 2
        return move(np.vecdot(apart, apart), products, p + q)

    rng = np.random.default_rng(seed)
    starts = 3.0 * rng.standard_normal((2000, 2 * d))
    return math.sqrt(climbed(value, starts, rng))


def joint(query):
    """The squared distance of both sums, in units of their noise."""
    return lambda rows, products, _: (
        rows / query.sigma**2 + (0.0 if query.moment is None else products / query.moment**2)
    )


# -- class sums and the second moment --------------------------------------------------------------


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("d", [2, 3, 7])
@pytest.mark.kills("privacy/sensitivity.py", "* norm_bound**2 * (", "/ 1.05 * norm_bound**2 * (")
def test_some_pair_reaches_the_moments_sensitivity_and_none_exceeds_it(domain, d):
    for radius in (0.02, 0.1, 0.3, 0.58, 0.6, 0.9, 1.0, 1.2, 1.4, 1.42, 1.7, 2.0):
        stated = moment_sensitivity(radius, norm_bound=1.0, domain=domain)
        best = furthest(lambda _, products, norms: products, domain, radius, d)
        assert (0.999 if d < 7 else 0.95) * stated <= best <= stated * (1 + 1e-12)


def test_the_identity_in_many_digits():
    """|xx' - zz'|^2 = p^2 + q^2 - (p + q - t^2)^2 / 2, and small radii do not cancel."""
    with mpmath.workdps(60):
        for radius in (1e-9, 1e-6, 1e-3, 0.5):
            t = mpmath.mpf(radius)
            along, across = 2 * t - t**2, t * mpmath.sqrt(2 - t**2 / 2)
            for domain, exact in (("sphere", across), ("ball", max(along, across))):
                stated = moment_sensitivity(radius, norm_bound=1.0, domain=domain)
                assert 0 <= (mpmath.mpf(stated) - exact) / exact < 1e-11


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("radius", [0.02, 0.8, 2.0])
@pytest.mark.kills("mechanisms/sums.py", "labels, smallest) * _UP", "labels, smallest) / 1.1")
def test_both_sums_together_reach_mu_and_never_exceed_it(domain, radius):
    """One pair moves both; at the radius of the promise, and at others."""
    for share in (0.05, 0.4, 0.95):
        problem = problem_of(radius, domain=domain)
        query = class_sums(problem, 0.5, share)
        for t in {radius, 0.2, 1.3}:
            best = max(furthest(joint(query), domain, t, d) for d in (2, 3))
            assert best <= query.ratio(problem, t, "public") < query.mu(problem, t)
            assert best >= 0.985 * query.mu(problem, t)
        assert query.mu(problem) <= 0.5


# -- rounding --------------------------------------------------------------------------------------


@pytest.mark.parametrize("counts", [(1, 0), (1, 1000), (7, 100_000)])
@pytest.mark.parametrize("radius", [1e-300, 1e-9, 0.3, 2.0])
def test_allowances_for_rounding(counts, radius):
    """Rows to one part in a million, and in both datasets the sums of all classes."""
    norm_bound, c = 3.0, np.array(counts, dtype=float)
    # Rows of a block and its runs, one by one, and factors that err with the squares in a norm.
    added = np.minimum(c, 4096) + np.minimum(c / 4096, 256)
    sums = 2 * (added + 50 / 2) * c * 2.0**-53 * norm_bound
    for mode in ("per_class", "min", "worst"):
        problem = problem_of(radius, counts, 50, norm_bound=norm_bound)
        query = PrototypePerturbation(mode).bound(problem, 1.0)
        for place in np.flatnonzero(c):
            moved = np.where(np.arange(len(c)) == place, radius * (1 + 1e-6), 0.0) + sums
            ratios = moved[c > 0] / np.array(query.sigma)[c > 0]
            assert np.linalg.norm(ratios) <= query.ratio(problem, radius, "public")
    hidden = problem_of(radius, counts, 50, norm_bound=norm_bound, class_counts=None)
    query = class_sums(hidden, 1.0, 1.0)
    label = math.sqrt(2) * math.hypot(norm_bound * (1 + 1e-6), query.constant)
    assert query.sensitivity(hidden)[0] >= label + np.linalg.norm(sums)


# -- prototypes ------------------------------------------------------------------------------------

ALPHA, COUNTS = 0.05, (1, 3, 8)
Y = np.repeat([0, 1, 2], COUNTS)


def neighbours(rng, radius, label_change):
    """Pairs of datasets that differ in one record, many of them extremal."""
    for i in range(36):
        X = rng.standard_normal((len(Y), 3))
        X *= (rng.choice([0.2, 1.0], size=len(Y)) / np.linalg.norm(X, axis=1))[:, None]
        record, labels = np.flatnonzero(i % 3 == Y)[0], Y.copy()
        if label_change:
            labels[record] = rng.choice([c for c in range(4) if c != Y[record]])
        X[record] /= np.linalg.norm(X[record])
        moved = X.copy()
        if label_change:
            moved[record] *= rng.choice([-1.0, 0.0, 1.0])
        elif rng.random() < 0.5:
            # A chord of length radius.
            across = np.cross(X[record], rng.standard_normal(3))
            across *= radius / 2.0 / np.linalg.norm(across)
            X[record] *= math.sqrt(1.0 - radius**2 / 4.0)
            moved[record] = X[record] - across
            X[record] += across
        else:
            moved[record] += radius * into_ball(9.0 * rng.standard_normal(3), 1.0)
        yield X, moved, labels


@pytest.mark.parametrize("radius", [0.1, 2.0])
def test_same_label_substitutions(noise_free, radius):
    """A head's prototypes move one at a time, by what its record states, and no further than mu."""
    rng, shifts = np.random.default_rng(0), []
    head = BallDPRidgePrototype(2.0, alpha=ALPHA, radius=radius)
    for X, moved, _ in neighbours(rng, radius, label_change=False):
        shift = head.fit(X, Y).prototypes_ - head.fit(moved, Y).prototypes_
        shifts.append(np.linalg.norm(shift, axis=1))
        assert np.count_nonzero(shifts[-1]) <= 1
    largest, prototypes = np.max(shifts, axis=0), head.prototypes_
    exact = 2 * radius / (2 * np.array(COUNTS) + ALPHA * len(Y))
    for counts in ("per_class", "min", "worst"):
        release = head.set_params(counts=counts).fit(moved, Y).release_
        np.testing.assert_allclose(head.prototypes_, prototypes, rtol=1e-14)
        stated = np.broadcast_to(release.sensitivity, 3)
        np.testing.assert_allclose(stated, exact, rtol=3e-6)
        assert np.all(largest <= stated)
        assert np.all(largest >= 0.99 * stated)
        # What the noise gives, whatever it was made for.
        together = np.linalg.norm(shifts / np.asarray(release.sigma), axis=1).max()
        assert 0.99 * release.mu <= together <= release.mu


@pytest.mark.kills("mechanisms/sums.py", "sums = max(sums, changed)", "sums = min(sums, changed)")
def test_label_changes(noise_free):
    """They take a record to any place, whatever the radius, and move sums and counts."""
    head = BallDPRidgePrototype(2.0, alpha=ALPHA, protect_labels=True, classes=[0, 1, 2, 3])
    for radius in (0.1, 2.0):
        largest, rng = 0.0, np.random.default_rng(1)
        head.set_params(radius=radius)
        for X, moved, labels in neighbours(rng, radius, label_change=True):
            shift = head.fit(X, Y).released_.values - head.fit(moved, labels).released_.values
            largest = max(largest, float(np.linalg.norm(shift)) / head.release_.bound.sigma)
        assert 0.99 * head.release_.mu <= largest <= head.release_.mu
