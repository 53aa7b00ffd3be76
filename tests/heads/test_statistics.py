"""Sufficient statistics: what is summed, in which precision, and the law of their noise."""

import itertools
import tracemalloc

import numpy as np
import pytest
from scipy.stats import chi2, kstest, norm

from sklearn_balldp import BallDPLinearDiscriminant
from sklearn_balldp.heads import Promise, ReleasedModel
from sklearn_balldp.heads.statistics import (
    Layout,
    StatisticsPerturbation,
    scales_of,
    sufficient_statistics,
)
from sklearn_balldp.privacy import Noise
from sklearn_balldp.privacy.statistics import SUMMED
from sklearn_balldp.rows import passes, rows_in_domain


def placed(X, norm_bound, domain):
    """One row after the other, in plain words."""
    found = np.array(X, dtype=np.float64)
    for row in found:
        size = np.linalg.norm(row)
        if size > norm_bound or (domain == "sphere" and size > 0.0):
            row *= norm_bound / size
    return found


def problem_of(X, y, **params):
    """The problem and the bound of a head with these parameters."""
    head = BallDPLinearDiscriminant(**{"radius": 0.3, "share": 0.5, **params}).fit(X, y)
    return ReleasedModel(head).on(X, y), head.release_.bound


def records(n=500, d=7, k=3, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * rng.uniform(0.1, 0.6, n)[:, None]
    X[5] = 0.0
    return X.astype(dtype), rng.integers(k, size=n)


@pytest.mark.parametrize("domain", ["ball", "sphere"])
@pytest.mark.parametrize(
    ("dtype", "order"), [(np.float16, "C"), (np.float32, "F"), (np.float64, "C")]
)
def test_sums_are_those_of_the_rows(order, dtype, domain):
    for d in (1, 2, 7, 100, 200):
        X, y = records(d=d, dtype=dtype)
        problem, bound = problem_of(np.asarray(X, order=order), y, domain=domain, norm_bound=1.5)
        sums, moment = sufficient_statistics(problem, bound)
        rows = placed(X, 1.5, domain)
        tol = 1e-10 if dtype == np.float64 or not bound.summed else 2e-4
        expected = [rows[y == c].sum(axis=0) for c in range(3)]
        np.testing.assert_allclose(sums, expected, atol=1e-10)
        np.testing.assert_allclose(np.triu(moment), np.triu(rows.T @ rows), atol=tol)


def test_threads_and_blocks_change_nothing_but_rounding(monkeypatch):
    """And the number of threads not even that: sums are the same on machines of more cores."""
    X, y = records(n=21_000, d=210, dtype=np.float32)
    problem, bound = problem_of(X, y, radius=0.5)
    assert bound.summed
    found, rows = [], placed(X, 1.0, "ball")
    for workers in (1, 2, 3, 4):
        monkeypatch.setattr(passes.joblib, "effective_n_jobs", lambda _, n=workers: n)
        found.append(sufficient_statistics(problem, bound))
        np.testing.assert_allclose(found[-1][1], found[0][1], rtol=0, atol=1e-10)
    sums, moment = found[0]
    np.testing.assert_allclose(np.triu(moment), np.triu(rows.T @ rows), atol=1e-3)
    monkeypatch.setattr(passes, "SMALL", 10**12)
    alone = sufficient_statistics(problem, bound)
    np.testing.assert_allclose(alone[0], sums, atol=1e-9)
    np.testing.assert_allclose(np.triu(alone[1]), np.triu(moment), atol=1e-3)


@pytest.mark.parametrize("domain", ["ball", "sphere"])
@pytest.mark.parametrize("radius", [0.1, 0.5])
def test_computed_neighbours_keep_the_sensitivity_in_single_precision(domain, radius):
    """Rows that all point one way make rounding worst; the changed one is at the radius."""
    rng = np.random.default_rng(0)
    d, n = 60, 9 * SUMMED
    mean = rng.random(d)
    X = mean + 1e-3 * rng.standard_normal((n, d))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    y = np.arange(n) % 2
    problem, bound = problem_of(X, y, domain=domain, radius=radius)
    assert bound.summed
    allowed = bound.sensitivity(radius)
    before = sufficient_statistics(problem, bound)
    for place in (0, 1, SUMMED - 1, 2 * SUMMED + 3, 8 * SUMMED + 3):
        step = rng.standard_normal(d)
        step -= (step @ X[place]) * X[place]
        angle = 2.0 * np.arcsin(radius / 2.0)
        row = np.cos(angle) * X[place] + np.sin(angle) * step / np.linalg.norm(step)
        if domain == "ball":
            row = X[place] * (1.0 - radius)
        changed = problem.replaced(place, row.astype(np.float32), int(problem.codes[place]))
        after = sufficient_statistics(changed, bound)
        full = [np.triu(m, 1) + np.triu(m).T for m in (before[1], after[1])]
        assert np.linalg.norm(before[0] - after[0]) <= allowed[0]
        assert np.linalg.norm(full[0] - full[1]) <= allowed[1]
        assert np.linalg.norm(full[0] - full[1]) >= 0.98 * allowed[1] - 0.02


def test_other_rows_are_the_same_to_the_last_bit():
    """A changed row may be odd (huge, zero, outside): no other row's bits depend on it."""
    X, y = records(n=400, dtype=np.float32)
    keep = np.arange(400) != 300
    for row in (np.zeros(7), np.full(7, 1e30), np.full(7, 1e-30), np.full(7, 0.9)):
        for domain in ("ball", "sphere"):
            problem, bound = problem_of(X, y, domain=domain)
            changed = problem.replaced(300, row.astype(np.float32), int(problem.codes[300]))
            before, after = (
                rows_in_domain(p.X.astype(np.float64), bound.norm_bound, bound.rows)[keep]
                for p in (problem, changed)
            )
            np.testing.assert_array_equal(before, after)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_extreme_rows_in_single_precision(dtype):
    """Their factors would over- or underflow there: they are scaled in double precision."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal((300, 12))
    base /= np.linalg.norm(base, axis=1, keepdims=True)
    sizes = np.resize([1.0, 1e-44, 1e35, 3e-39, 1e-3], 300)
    if dtype == np.float16:
        sizes = np.resize([1.0, 1e-4, 6e4], 300)
    X = (sizes[:, None] * base).astype(dtype)
    y = np.arange(300) % 2
    for domain in ("ball", "sphere"):
        problem, bound = problem_of(X, y, domain=domain)
        assert bound.summed
        rows = placed(X.astype(np.float64), 1.0, domain)
        sums, moment = sufficient_statistics(problem, bound)
        np.testing.assert_allclose(np.triu(moment), np.triu(rows.T @ rows), atol=1e-4)
        np.testing.assert_allclose(sums[0], rows[y == 0].sum(axis=0), atol=1e-9)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 9, 10])
def test_layouts_hold_every_value_once(d):
    rng = np.random.default_rng(0)
    for k, counts, moment in itertools.product((2, 5), (False, True), (False, True)):
        layout, n_second = Layout(k, d, moment, counts), moment * d * (d + 1) // 2
        sums, root = rng.standard_normal((k, d)), rng.standard_normal((d, d))
        second, numbers = root + root.T, rng.standard_normal(k)
        table = layout.pack(sums, second if moment else None, numbers if counts else None)
        scale = layout.scales(2.0, 3.0)
        assert table.shape == scale.shape == (layout.n_rows, d)
        noisy = scale > 0.0
        assert not table[~noisy].any()
        assert noisy.sum() == k * d + n_second + counts * k
        assert (scale == 3.0).sum() == n_second
        # An isometry: the table is as long as class sums, the whole matrix, and counts.
        size = np.sum(sums**2) + moment * np.sum(second**2) + counts * np.sum(numbers**2)
        assert np.sum(table**2) == pytest.approx(size)
        found = layout.unpack(table)
        np.testing.assert_array_equal(found[0], sums)
        if moment:
            np.testing.assert_allclose(found[1], second, rtol=1e-15)
        if counts:
            np.testing.assert_array_equal(found[2], numbers)
        assert (found[1] is None, found[2] is None) == (not moment, not counts)


@pytest.mark.parametrize(("protect", "random_state"), [(False, None), (True, None), (False, 0)])
def test_the_law_of_the_noise_block_by_block(random_state, protect):
    """Class sums, diagonal, off the diagonal, counts: each normal, of its own scale."""
    X, y = records(n=300, d=21)
    params = {"protect_labels": protect, "classes": range(3) if protect else None}
    if random_state is not None:
        params["random_state"] = np.random.default_rng(random_state)
    head = BallDPLinearDiscriminant(2.0, radius=0.3, share=0.4, **params)
    rows = placed(X, 1.0, "ball")
    sums = np.array([rows[y == c].sum(axis=0) for c in range(3)])
    noise = {"sums": [], "diagonal": [], "off": [], "counts": []}
    for _ in range(60):
        s = head.fit(X, y).statistics_
        second = (s.second_moment - rows.T @ rows) / s.sigma_moment
        np.testing.assert_array_equal(s.second_moment, s.second_moment.T)
        noise["sums"].append((s.class_sums - sums).ravel() / s.sigma_sums)
        noise["diagonal"].append(np.diag(second))
        noise["off"].append(second[np.triu_indices(21, 1)] * np.sqrt(2.0))
        if protect:
            noise["counts"].append((s.counts - np.bincount(y)) / s.sigma_counts)
        else:
            np.testing.assert_array_equal(s.counts, np.bincount(y))
    for name, parts in noise.items():
        if parts:
            z = np.concatenate(parts)
            assert kstest(z, norm.cdf).pvalue > 1e-6, name
            assert 1e-6 < chi2.cdf(np.sum(z**2), len(z)) < 1 - 1e-6, name
    # No two blocks share noise.
    together = np.hstack([np.stack(noise["sums"]), np.stack(noise["diagonal"])])
    correlation = np.corrcoef(together.T)[np.triu_indices(together.shape[1], 1)]
    assert np.abs(correlation).max() < 0.75


def test_released_values_are_those_that_the_noise_gave(monkeypatch):
    X, y = records()
    given, real = [], Noise.__call__

    def call(self, values, sigma):
        given.append((np.array(sigma), real(self, values, sigma)))
        return given[-1][1]

    monkeypatch.setattr(Noise, "__call__", call)
    head = BallDPLinearDiscriminant(2.0, radius=0.3, share=0.4).fit(X, y)
    ((sigma, released),) = given
    np.testing.assert_allclose(ReleasedModel(head).parameters(), released, rtol=1e-15)
    np.testing.assert_array_equal(sigma, scales_of(head.release_.bound))


def test_memory_beyond_the_rows_is_that_of_the_moments():
    n, d, k = 40_000, 256, 5
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32) / 16
    problem, bound = problem_of(X, np.arange(n) % k)
    tracemalloc.start()
    sufficient_statistics(problem, bound)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # A few matrices and blocks for each of up to four threads; the rows themselves are 41 MB.
    assert peak < 4 * (6 * 8 * d * (d + k) + 3 * 8 * 4096 * d) / 2


@pytest.mark.parametrize("norm_bound", [1e-21, 1e-22, 1e20])
def test_extreme_norms_in_single_precision_keep_mu(norm_bound):
    """Neither overflow nor underflow of products may tell two neighbours apart."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 16))
    X = (norm_bound * X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    y = np.arange(300) % 2
    head = BallDPLinearDiscriminant(radius=0.1 * norm_bound, norm_bound=norm_bound, share=0.5)
    head.fit(X, y)
    problem, bound = ReleasedModel(head).on(X, y), head.release_.bound
    row = (0.9 * X[7].astype(np.float64)).astype(np.float32)
    scale = scales_of(bound)
    tables = []
    for one in (problem, problem.replaced(7, row, int(problem.codes[7]))):
        values, _ = StatisticsPerturbation().noiseless(one, Promise(bound))
        assert np.isfinite(values).all()
        tables.append(values)
    noisy = scale > 0
    moved = np.linalg.norm((tables[0] - tables[1])[noisy] / scale[noisy])
    assert moved <= bound.mu(0.1 * norm_bound)


def test_unaligned_rows_are_summed_alike():
    """A row outside of the ball does not change how its neighbours are multiplied."""
    X, y = records(n=700, d=33, dtype=np.float32)
    X *= 0.3
    raw = np.zeros(X.nbytes + 2, dtype=np.uint8)
    buffer = np.ndarray(X.shape, np.float32, raw.data, offset=2)
    buffer[:] = X
    problem, bound = problem_of(X, y, radius=0.5)
    inside = problem.with_rows(buffer, problem.codes)
    outside = problem.replaced(300, np.full(33, 0.9, dtype=np.float32), int(problem.codes[300]))
    before, after = (sufficient_statistics(p, bound)[1] for p in (inside, outside))
    change = np.triu(after - before)
    row = placed(np.full((1, 33), 0.9), 1.0, "ball")[0]
    gone = X[300].astype(np.float64)
    np.testing.assert_allclose(
        change, np.triu(np.outer(row, row) - np.outer(gone, gone)), atol=1e-5
    )


def test_the_sensitivity_covers_the_rounding_of_sums():
    """Rows so close that rounding moves the computed sums further apart than the rows are."""
    rng = np.random.default_rng(0)
    radius, furthest = 1e-12, 0.0
    X, y = rng.uniform(0.9, 0.999, (20_000, 1)), np.arange(20_000) % 2
    problem, bound = problem_of(X, y, share=1.0)
    for row in range(0, 20_000, 50):
        other = X.copy()
        other[row] += radius
        both = [sufficient_statistics(problem.with_rows(x, y), bound)[0] for x in (X, other)]
        furthest = max(furthest, float(np.linalg.norm(both[0] - both[1])))
    assert furthest > 1.5 * radius
    assert furthest <= bound.sensitivity(radius)[0]
