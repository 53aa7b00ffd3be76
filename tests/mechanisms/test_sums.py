"""Sums over records: what is summed, whatever the format of the rows, and how it is laid out."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from sklearn_balldp.heads.weighing import weights_of
from sklearn_balldp.mechanisms import Records, Sums
from sklearn_balldp.mechanisms.sums import class_sums, constant_of_counts
from sklearn_balldp.privacy.problem import Problem

BOTH = Sums(1.0, 1.0)


def placed(X, norm_bound, domain):
    """One row after the other, in plain words."""
    found = np.array(X, dtype=np.float64)
    for row in found:
        size = np.linalg.norm(row)
        if size > norm_bound or (domain == "sphere" and size > 0.0):
            row *= norm_bound / size
    return found


def problem_of(X, y, k=3, **public):
    """Public numbers of these records."""
    given = {"n_classes": k, "class_counts": tuple(np.bincount(y, minlength=k).tolist())}
    given |= {"n_samples": X.shape[0], "n_features": X.shape[1], "radius": 0.3, **public}
    return Problem(**given)


def summed(problem, X, y, query=BOTH, weights=None):
    """Class sums, and the second moment."""
    found = query.statistics(problem, query.values(problem, Records(X, y, weights)))
    return found.class_sums, found.second_moment


def records(n=500, d=7, k=3, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * rng.uniform(0.1, 0.6, n)[:, None]
    X[5] = 0.0
    return X.astype(dtype), rng.integers(k, size=n)


@pytest.mark.parametrize("domain", ["ball", "sphere"])
@pytest.mark.parametrize(
    ("dtype", "order", "sizes"),
    [
        (np.float16, "C", [1.0]),
        (np.float32, "F", [1.0]),
        (np.float64, "C", [1.0]),
        # Factors that would over- or underflow: they are scaled in double precision.
        (np.float16, "C", [1.0, 1e-4, 6e4]),
        (np.float32, "C", [1.0, 1e-44, 1e35, 3e-39, 1e-3]),
    ],
)
def test_sums_are_those_of_the_rows(order, dtype, sizes, domain):
    for d in (1, 2, 7, 100, 200):
        X, y = records(d=d)
        if len(sizes) > 1:
            X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)
        X = (X * np.resize(sizes, len(X))[:, None]).astype(dtype)
        problem = problem_of(X, y, domain=domain, norm_bound=1.5)
        sums, moment = summed(problem, np.asarray(X, order=order), y)
        rows = placed(X.astype(np.float64), 1.5, domain)
        expected = [rows[y == c].sum(axis=0) for c in range(3)]
        np.testing.assert_allclose(sums, expected, atol=1e-10 if len(sizes) == 1 else 1e-9)
        np.testing.assert_allclose(moment, rows.T @ rows, atol=1e-10 if len(sizes) == 1 else 1e-9)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 9, 10])
def test_layouts_hold_every_value_once(d):
    rng = np.random.default_rng(0)
    for k, constant, moment in itertools.product((2, 5), (0.0, 0.7), (None, 3.0)):
        y, X = np.arange(10 * k) % k, 0.1 * rng.standard_normal((10 * k, d))
        hidden = {"class_counts": None} if constant else {}
        problem, query = problem_of(X, y, k, **hidden), Sums(2.0, moment, constant)
        values, scale = query.values(problem, Records(X, y)), query.scales(problem)
        n_second = 0 if moment is None else d * (d + 1) // 2
        assert values.shape == scale.shape == query.shape(problem)
        assert values.size == k * d + n_second + (k if constant else 0)
        assert (scale == 3.0).sum() == n_second
        # An isometry: as long as class sums, the whole matrix, and counts.
        found = query.statistics(problem, values)
        size = np.sum(found.class_sums**2) + np.sum((constant * found.counts) ** 2)
        size += 0.0 if moment is None else np.sum(found.second_moment**2)
        assert np.sum(values**2) == pytest.approx(size)
        if moment is not None:
            np.testing.assert_allclose(found.second_moment, X.T @ X, atol=1e-14)
            np.testing.assert_array_equal(found.second_moment, found.second_moment.T)
        np.testing.assert_allclose(found.counts, np.full(k, 10.0))
        assert (found.second_moment is None) == (moment is None)
        np.testing.assert_array_equal(found.sigma_sums, np.full(k, 2.0))
        assert found.sigma_counts == (2.0 / constant if constant else 0.0)
        # What is released stays as it is, whatever is done to the arrays.
        found.class_sums[:] = -9.0
        assert not (values == -9.0).any()


@pytest.mark.parametrize("norm_bound", [1e-21, 1e-22, 1e20])
def test_extreme_norms_in_single_precision_keep_mu(norm_bound):
    """Neither overflow nor underflow of products may tell two neighbours apart."""
    X = np.random.default_rng(0).standard_normal((300, 16))
    X = (norm_bound * X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    y = np.arange(300) % 2
    problem = problem_of(X, y, 2, radius=0.1 * norm_bound, norm_bound=norm_bound)
    query, changed = class_sums(problem, 1.0, 0.5), X.copy()
    changed[7] = 0.9 * X[7].astype(np.float64)
    values = [query.values(problem, Records(rows, y)) for rows in (X, changed)]
    assert np.isfinite(values).all()
    moved = np.linalg.norm((values[0] - values[1]) / query.scales(problem))
    assert 0.1 < moved <= query.mu(problem) <= 1.0


@pytest.mark.kills(
    "mechanisms/sums.py",
    "rounding = self._roundings(problem)\n        noise = math.inf",
    "rounding = 0.0, 0.0\n        noise = math.inf",
)
def test_the_sensitivity_covers_the_rounding_of_sums():
    """Rows so close that rounding moves the computed sums further apart than the rows are."""
    rng = np.random.default_rng(0)
    radius, furthest, query = 1e-12, 0.0, Sums(1.0)
    X, y = rng.uniform(0.9, 0.999, (20_000, 1)), np.arange(20_000) % 2
    problem = problem_of(X, y, 2, radius=radius)
    for row in range(0, 20_000, 200):
        other = X.copy()
        other[row] += radius
        both = [query.values(problem, Records(x, y)) for x in (X, other)]
        furthest = max(furthest, float(np.linalg.norm(both[0] - both[1])))
    assert furthest > 1.5 * radius
    assert furthest <= query.ratio(problem, radius, "public")


def test_weighted_counts_of_many_records():
    """One after the other, light records are rounded away, or up, by one heavy one."""
    weights = np.r_[np.ones(2**20), np.full(10**6, 0.51 * 2.0**-32)]
    n = len(weights)
    query, counts = Sums(1.0, constant=0.5), []
    X = np.zeros((n, 2))
    problem = problem_of(
        X,
        np.zeros(n, int),
        2,
        class_counts=None,
        sums_weights=weights_of(weights, None, 2, np.arange(n)),
    )
    for first in (0, 1):
        codes = np.zeros(n, dtype=np.intp)
        codes[0] = first
        values = query.values(problem, Records(X, codes, weights))
        counts.append(query.statistics(problem, values).counts)
    moved = np.sqrt(2.0 + np.sum((0.5 * (counts[0] - counts[1])) ** 2))
    assert moved <= query.ratio(problem, 0.1, "protected")
    assert abs(counts[0][0] - math.fsum(weights)) < 1e-9


# -- how a budget is divided -----------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
@pytest.mark.parametrize("labels", ["public", "protected"])
def test_shares_of_sums_and_moment(share, labels):
    """Each gets what it was promised, but for what no pair of records attains together."""
    X, y = records()
    hidden = {} if labels == "public" else {"class_counts": None}
    problem = problem_of(X, y, **hidden)
    query = class_sums(problem, 0.8, share)
    sums, moment = query.sensitivity(problem)
    assert query.mu(problem) == pytest.approx(0.8, rel=1e-6)
    ratio = (sums / query.sigma) ** 2 / (moment / query.moment) ** 2
    assert ratio == pytest.approx(share / (1.0 - share), rel=1e-9)
    assert (query.constant > 0.0) == (labels == "protected")
    assert class_sums(problem, 0.8, 1.0).moment is None
    assert class_sums(problem, 0.8, 0.5, pooled=True).moment is None


def test_counts_cost_nothing_beside_substitutions():
    """The constant is as large as a substitution within the radius allows, and B / 2 at least."""
    X, y = records()
    problem = problem_of(X, y, class_counts=None)
    for radius in (0.1, 1.5, 1.9, 2.0):
        own = replace(problem, radius=radius)
        constant = constant_of_counts(own)
        free = Sums(1.0, constant=1e-9).ratio(own, radius, "protected")
        priced = Sums(1.0, constant=constant).ratio(own, radius, "protected")
        assert constant == pytest.approx(max(0.5, math.sqrt(max(0.5 * radius**2 - 1.0, 0.0))))
        assert constant == 0.5 or priced == pytest.approx(max(free, radius), rel=1e-5)
