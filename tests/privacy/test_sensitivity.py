"""What released class sums and prototypes move by, against brute-force neighbours."""

import math

import numpy as np
import pytest

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.mechanisms.sums import PrototypePerturbation, class_sums
from sklearn_balldp.privacy.problem import Problem
from sklearn_balldp.privacy.sensitivity import prototype_sensitivity

B, ALPHA = 1.0, 0.05
COUNTS = (1, 3, 8)
Y = np.repeat([0, 1, 2], COUNTS)


def neighbours(rng, radius, label_change):
    """Pairs of datasets that differ in one record, many of them extremal."""
    for _ in range(250):
        X = rng.standard_normal((len(Y), 3))
        X *= (B * rng.choice([0.2, 1.0], size=len(Y)) / np.linalg.norm(X, axis=1))[:, None]
        record, labels, moved = rng.integers(len(Y)), Y.copy(), X.copy()
        if label_change:
            labels[record] = rng.choice([c for c in range(4) if c != Y[record]])
            moved[record] *= rng.choice([-1.0, 0.0, 1.0])
        elif rng.random() < 0.5:
            # A chord of length radius.
            t = np.linalg.norm(X[record])
            half = min(0.5 * radius, t)
            e1 = X[record] / t
            e2 = np.cross(e1, rng.standard_normal(3))
            e2 /= np.linalg.norm(e2)
            X[record] = math.sqrt(t * t - half * half) * e1 + half * e2
            moved[record] = X[record] - 2 * half * e2
        else:
            step = rng.standard_normal(3)
            moved[record] = X[record] + radius * step / np.linalg.norm(step)
        yield X, moved, labels


@pytest.mark.parametrize("radius", [0.1, 0.7, 2.0])
def test_same_label_substitutions(noise_free, radius):
    """A head's prototypes move one at a time, by what its record states, and no further than mu."""
    rng, shifts = np.random.default_rng(0), []
    head = BallDPRidgePrototype(2.0, alpha=ALPHA, radius=radius)
    for X, moved, _ in neighbours(rng, radius, label_change=False):
        shift = head.fit(X, Y).prototypes_ - head.fit(moved, Y).prototypes_
        shifts.append(np.linalg.norm(shift, axis=1))
        assert np.count_nonzero(shifts[-1]) <= 1
    exact = 2 * radius / (2 * np.array(COUNTS) + ALPHA * len(Y))
    prototypes = head.prototypes_
    for counts in ("per_class", "min", "worst"):
        release = head.set_params(counts=counts).fit(moved, Y).release_
        np.testing.assert_allclose(head.prototypes_, prototypes, rtol=1e-14)
        stated = np.broadcast_to(release.sensitivity, 3)
        np.testing.assert_allclose(stated, exact, rtol=3e-6)
        largest = np.max(shifts, axis=0)
        assert np.all(largest <= stated)
        assert np.all(largest >= 0.99 * stated)
        # What the noise gives, whatever it was made for.
        together = np.linalg.norm(shifts / np.asarray(release.sigma), axis=1).max()
        assert 0.99 * release.mu <= together <= release.mu


def test_label_changes(noise_free):
    """They take a record to any place, whatever the radius, and move sums and counts."""
    rng = np.random.default_rng(1)
    head = BallDPRidgePrototype(2.0, alpha=ALPHA, protect_labels=True, classes=[0, 1, 2, 3])
    for radius in (0.1, 2.0):
        largest = 0.0
        head.set_params(radius=radius)
        for X, moved, labels in neighbours(rng, radius, label_change=True):
            shift = head.fit(X, Y).released_.values - head.fit(moved, labels).released_.values
            largest = max(largest, float(np.linalg.norm(shift)) / head.release_.bound.sigma)
        assert 0.99 * head.release_.mu <= largest <= head.release_.mu


def problem_of(counts, radius, **public):
    """Public numbers of records in so many classes."""
    sizes = {"n_samples": sum(counts), "n_classes": len(counts), "n_features": 50}
    return Problem(**{**sizes, "class_counts": counts, "radius": radius, "alpha": 0.01, **public})


def test_rounding_of_the_sums_is_counted():
    """Sums of many rows in the worst order stay within the allowance."""
    n, radius = 16_000, 1e-9
    problem = problem_of((n, 0), radius, n_features=1)
    rows = np.full(n, 0.1)
    error = abs(np.cumsum(rows)[-1] - math.fsum(rows))
    assert error > 0.0
    assert class_sums(problem, 1.0, 1.0).sensitivity(problem)[0] > radius + 2 * error


@pytest.mark.parametrize("counts", [(1, 0), (1, 1000), (7, 100_000)])
@pytest.mark.parametrize("radius", [1e-300, 1e-9, 0.3, 2.0])
def test_allowances_for_rounding(counts, radius):
    """Rows to one part in a million, and in both datasets the sums of all classes."""
    norm_bound, c = 3.0, np.array(counts, dtype=float)
    # Rows of a block, one by one, and factors that err with the squares in a norm.
    sums = 2 * (np.minimum(c, 2**14) + 50 / 2) * c * 2.0**-53 * norm_bound
    for mode in ("per_class", "min", "worst"):
        problem = problem_of(counts, radius, norm_bound=norm_bound)
        query = PrototypePerturbation(mode).bound(problem, 1.0)
        for place in np.flatnonzero(c):
            moved = np.where(np.arange(len(c)) == place, radius * (1 + 1e-6), 0.0) + sums
            found = moved[c > 0] / np.array(query.sigma)[c > 0]
            assert np.linalg.norm(found) <= query.ratio(problem, radius, "public")
    private = {"labels": "protected", "class_counts": None}
    hidden = problem_of(counts, radius, norm_bound=norm_bound, **private)
    query = class_sums(hidden, 1.0, 1.0)
    label = math.sqrt(2) * math.hypot(norm_bound * (1 + 1e-6), query.constant)
    assert query.sensitivity(hidden)[0] >= label + np.linalg.norm(sums)


def test_bound_refuses_what_it_cannot_bound():
    with pytest.raises(ValueError, match="counts must be one of"):
        prototype_sensitivity(0.5, [3, 4], alpha=0.1, mode="mean")
    with pytest.raises(ValueError, match="norm_bound"):
        prototype_sensitivity(0.5, [3, 4], alpha=0.1, label_change=True)


@pytest.mark.parametrize(("mode", "worst"), [("per_class", None), ("min", 3), ("worst", 1)])
def test_a_prototype_moves_with_a_row_of_its_class(mode, worst):
    """One row of the class moves by the radius; the prototype's count is the class's, or less."""
    counts, alpha, radius = np.array([3, 5, 0]), 0.1, 0.4
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((8, 4)), np.repeat([0, 1], [3, 5])
    found = np.broadcast_to(prototype_sensitivity(radius, counts, alpha=alpha, mode=mode), 3)
    for label in (0, 1):
        other, place = X.copy(), np.flatnonzero(y == label)[0]
        other[place] += radius * np.array([0.6, 0.0, 0.8, 0.0])
        count = counts[label] if worst is None else worst
        one, moved = (
            2.0 * rows[y == label].sum(axis=0) / (2.0 * count + alpha * 8) for rows in (X, other)
        )
        assert found[label] == pytest.approx(np.linalg.norm(one - moved), rel=1e-9)
