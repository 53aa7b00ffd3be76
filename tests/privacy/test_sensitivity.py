"""Prototype sensitivities against brute-force neighbours."""

import math

import numpy as np
import pytest

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.privacy.bounds import PrototypeBound
from sklearn_balldp.privacy.sensitivity import prototype_sensitivity

B, ALPHA = 1.0, 0.05
COUNTS = (1, 3, 8)


def prototypes(X, y, **params):
    head = BallDPRidgePrototype(alpha=ALPHA, norm_bound=B, **params)
    return head.fit(X, y).prototypes_


def neighbours(rng, radius, label_change):
    """Pairs of datasets that differ in one record, many of them extremal."""
    y = np.repeat([0, 1, 2], COUNTS)
    for _ in range(250):
        X = rng.standard_normal((len(y), 3))
        X *= (B * rng.choice([0.2, 1.0], size=len(y)) / np.linalg.norm(X, axis=1))[:, None]
        record = rng.integers(len(y))
        labels = y.copy()
        if label_change:
            # Extremal: the record opposes the mean of the class it leaves and of the one it joins.
            labels[record] = rng.choice([c for c in range(4) if c != y[record]])
            replacement = rng.choice([-1.0, 1.0]) * X[record]
            if rng.random() < 0.5:
                X[(y == y[record]) & (np.arange(len(y)) != record)] = -X[record]
                X[y == labels[record]] = -replacement
            moved = X.copy()
            moved[record] = replacement
            yield X, y, moved, labels
            continue
        moved = X.copy()
        if rng.random() < 0.5:
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
        yield X, y, moved, labels


@pytest.mark.parametrize("radius", [0.1, 0.7, 2.0])
def test_same_label_substitutions(noise_free, radius):
    """Without noise the prototypes are the same whichever counts the bound uses."""
    rng = np.random.default_rng(0)
    largest = np.zeros(3)
    for X, y, moved, _ in neighbours(rng, radius, label_change=False):
        shift = np.linalg.norm(prototypes(X, y) - prototypes(moved, y), axis=1)
        assert np.count_nonzero(shift) <= 1
        largest = np.maximum(largest, shift)
    for counts in ("per_class", "min", "worst"):
        np.testing.assert_array_equal(prototypes(X, y), prototypes(X, y, counts=counts))
        public = None if counts == "worst" else COUNTS
        bound = PrototypeBound(sum(COUNTS), 9, ALPHA, B, mode=counts, class_counts=public)
        stated = np.broadcast_to(bound.sensitivity(radius), 3)
        assert np.all(largest <= stated)
        if counts == "per_class":
            assert np.all(largest >= 0.99 * stated)
        # Of counts unused, a class of one record comes within the slack of 2 n_c against 2.
        assert largest.max() >= 0.99 * stated[0]


def test_label_changes(noise_free):
    """They take a record to any place, so that one search is for all radii."""
    rng = np.random.default_rng(1)
    n = sum(COUNTS)
    params = {"protect_labels": True, "classes": [0, 1, 2, 3]}
    largest = 0.0
    for X, y, moved, labels in neighbours(rng, 2.0, label_change=True):
        shift = prototypes(X, y, **params) - prototypes(moved, labels, **params)
        largest = max(largest, float(np.linalg.norm(shift)))
    bound = PrototypeBound(n, 12, ALPHA, B, labels="protected")
    for radius in (0.1, 2.0):
        assert largest <= bound.sensitivity(radius)[0]
    assert largest >= 0.99 * 2 * math.sqrt(2) * B / (2 + ALPHA * n)


def test_rounding_of_the_sums_is_counted():
    """Sums of many rows in the worst order stay within the allowance of the bound."""
    n = 16_000
    bound = PrototypeBound(
        n_samples=n, n_values=1, alpha=0.0, norm_bound=1.0, mode="per_class", class_counts=(n,)
    )
    radius = 1e-9
    rows = np.full(n, 0.1)
    exact = math.fsum(rows)
    error = abs(np.cumsum(rows)[-1] - exact) * 2 / (2 * n)
    assert error > 0
    assert bound.sensitivity(radius)[0] > 2 * radius / (2 * n) + 2 * error


@pytest.mark.parametrize("counts", [(1,), (1, 1000), (7, 100_000)])
@pytest.mark.parametrize("radius", [1e-300, 1e-9, 0.3, 2.0])
def test_allowances_for_rounding(counts, radius):
    """Rows to one part in a million, sums of n_c rows, division by the noise scale."""
    norm_bound, alpha, n = 3.0, 0.01, sum(counts)
    c, unit, d = np.array(counts, dtype=float), 2.0**-53, 50
    # Rows of a block, one by one, and factors that err with the squares in a norm.
    terms = np.minimum(c, 2**14) + d / 2
    sums = (4 * terms * c / (2 * c + alpha * n) + 4) * unit * norm_bound

    def bound(**kwargs):
        return PrototypeBound(n, len(c) * d, alpha, norm_bound, **kwargs).sensitivity(radius)

    exact = 2 * radius * (1 + 1e-6) / (2 * c + alpha * n)
    per_class = bound(mode="per_class", class_counts=counts)
    # Noise is in proportion to the bound, and rounding moves the prototypes of all classes.
    for place in range(len(c)):
        moved = np.where(np.arange(len(c)) == place, exact, 0.0) + sums
        assert np.linalg.norm(moved / per_class) <= 1.0
    smallest = bound(mode="min", class_counts=counts)[0]
    assert smallest >= np.linalg.norm(np.where(c == c.min(), exact.max(), 0.0) + sums)
    worst = bound(mode="worst")[0]
    assert worst >= 2 * radius / (2 + alpha * n) + np.linalg.norm(sums)
    label = 2 * math.sqrt(2) * norm_bound * (1 + 1e-6) / (2 + alpha * n)
    assert bound(labels="protected")[0] >= label + sums.max()


def test_bound_refuses_what_it_cannot_bound():
    with pytest.raises(ValueError, match="counts must be one of"):
        prototype_sensitivity(0.5, [3, 4], alpha=0.1, mode="mean")
    with pytest.raises(ValueError, match="norm_bound"):
        prototype_sensitivity(0.5, [3, 4], alpha=0.1, label_change=True)
    for kwargs in (
        {"mode": "per_class"},
        {"mode": "min"},
        {"class_counts": (3, 4)},
        {"mode": "per_class", "class_counts": (3, 5)},
        {"mode": "per_class", "class_counts": (3, 4), "labels": "protected"},
    ):
        with pytest.raises(ValueError, match="class_counts"):
            PrototypeBound(7, 1, 0.1, 1.0, **kwargs)
