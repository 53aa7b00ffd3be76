"""Sums in any order: what other machines, kernels and partitions may change is accounted for."""

import dataclasses
import itertools
from fractions import Fraction

import dask
import dask.array as da
import mpmath
import numpy as np
import pytest
from mean_gradients import Mean
from row_cases import Store

from sklearn_balldp import BallDPLogisticRegression, GradientPerturbation, mechanisms
from sklearn_balldp.heads.weighing import weights_of
from sklearn_balldp.losses import make_loss
from sklearn_balldp.mechanisms import MeanGradient, Records, gradients
from sklearn_balldp.privacy import rounding
from sklearn_balldp.privacy.gaps import clipped_gap
from sklearn_balldp.privacy.problem import Problem
from sklearn_balldp.privacy.rounding import additions, mean_rounding
from sklearn_balldp.privacy.weights import uniform_weights
from sklearn_balldp.rows import passes, sources
from sklearn_balldp.rows.chunks import ChunkedRows
from sklearn_balldp.rows.sources import Stored


def apart(values):
    """The largest distance of two of these."""
    return max(np.linalg.norm(a - b) for a, b in itertools.combinations(values, 2))


def rounding_of_mean(loss, theta, n, d, constant=0.0, clip=0.2, **options):
    n_classes = max(2, len(theta))
    return mean_rounding(
        make_loss(loss, n_classes),
        norm=float(np.linalg.norm(theta)),
        n_samples=n,
        n_features=d,
        norm_bound=1.0,
        constant=constant,
        clip=clip,
        **{"weights": uniform_weights(n, None), **options},
    )


class Term:
    """Something to add up that counts how many additions it has passed through."""

    def __init__(self, n):
        self.n = n

    def __add__(self, other):
        return Term(max(self.n, other.n) + 1)


def terms_of(block):
    """The rows of a block are added one after the other."""
    return [np.array([Term(max(len(block) - 1, 0))])]


def most_additions(X):
    (found,) = passes.total(terms_of, X)[0]
    return found.n


@pytest.mark.kills("privacy/rounding.py", "return block_rows(n_features) + MOST", "return MOST")
@pytest.mark.kills("privacy/rounding.py", "+ MOST_BLOCKS + pairs", "+ pairs")
@pytest.mark.kills("privacy/rounding.py", "pairs = 4.0 * math.log2", "pairs = 0.0 * math.log2")
@pytest.mark.parametrize(("rows", "blocks"), [(8, 2), (4, 64), (64, 4)])
def test_no_term_passes_through_more_additions_than_are_counted(rows, blocks, monkeypatch):
    """Counted by the additions themselves, in arrays, stores, and Dask arrays of any chunks."""
    monkeypatch.setattr(rounding, "BLOCK", rows)
    for module in (rounding, passes):
        monkeypatch.setattr(module, "MOST_BLOCKS", blocks)
    monkeypatch.setattr(sources, "_READ_VALUES", 16)
    rng, run = np.random.default_rng(0), rows * blocks
    for n in (1, rows, run, run + 1, 20 * run):
        X = np.zeros((n, 2))
        cuts = np.diff(np.unique([0, *rng.integers(0, n, 9), n]))
        chunkings = [(n,), tuple(cuts), (0, n, 0)]
        if n < 700:
            chunkings.append((1,) * n)
        whole = ChunkedRows(da.from_array(X, chunks=(n, 2)))
        found = [most_additions(X), most_additions(Stored(Store(X)))]
        with dask.config.set(scheduler="synchronous"):
            found += [
                most_additions(ChunkedRows(da.from_array(X, chunks=(chunks, (2,)))))
                for chunks in chunkings
            ]
        assert max(found) <= additions(n, 2)
        # A term of a whole chunk passes through all of its first run.
        assert found[2] >= min(n, run) // rows + min(n, rows) - 2
        assert whole.shape == X.shape


def orders(X, y, monkeypatch):
    """The same records by other orders, partitions and kernels."""
    rng = np.random.default_rng(1)
    yield X, y
    for _ in range(3):
        order = rng.permutation(len(X))
        yield X[order], y[order]
    monkeypatch.setattr(rounding, "BLOCK_VALUES", 512)
    monkeypatch.setattr(passes, "MOST_BLOCKS", 3)
    monkeypatch.setattr(gradients, "KEPT_BYTES", 0)
    yield X, y
    yield X[::-1].copy(), y[::-1].copy()
    yield ChunkedRows(da.from_array(X, chunks=(613, -1))), y


@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared_hinge"])
def test_gradients_in_any_order(loss, monkeypatch):
    rng, n, d = np.random.default_rng(0), 5000, 12
    n_classes = 2 if loss == "logistic" else 3
    X, y = 0.4 * rng.standard_normal((n, d)) + 0.2, rng.integers(0, n_classes, n)
    found, stated = [], 0.0
    theta = None
    for rows, labels in orders(X, y, monkeypatch):
        mean = Mean(loss, rows, labels, n_classes, clip=0.2, constant=0.3)
        if theta is None:
            theta = rng.standard_normal(mean.shape)
            stated = mean.rounding(theta)
        found.append(mean(theta[None])[0])
    assert 0.0 < apart(found) <= 2.0 * stated
    assert stated < 1e-12


def test_sums_in_any_order(monkeypatch):
    rng, n, d = np.random.default_rng(0), 5000, 12
    X, y = 0.4 * rng.standard_normal((n, d)) + 0.2, rng.integers(0, 3, n)
    problem, query = problem_of(n, d, counts=np.bincount(y)), mechanisms.Sums(1.0, 1.0)
    found = [
        query.statistics(problem, query.values(problem, Records(rows, labels)))
        for rows, labels in orders(X, y, monkeypatch)
    ]
    stated = query._roundings(problem)
    assert 0.0 < apart([one.class_sums for one in found]) <= stated[0]
    assert 0.0 < apart([one.second_moment for one in found]) <= stated[1]
    assert max(stated) < 1e-7


def problem_of(n, d, counts, **public):
    """Public numbers of so many records."""
    given = {"n_samples": n, "n_features": d, "n_classes": len(counts), "radius": 0.3}
    return Problem(**{**given, "class_counts": tuple(map(int, counts)), **public})


def test_every_class_may_err():
    """All classes together: a thousand of them, a tiny radius, and noise that suits one."""
    problem = problem_of(10**9, 64, [10**6] * 1000)
    each = 2 * (4096 + 256 + 32) * 2.0**-53 * 1e6
    for scales in (1.0, (1.0, *[100.0] * 999)):
        ratio = mechanisms.Sums(scales).ratio(problem, 1e-3, "public")
        assert ratio >= 1e-3 + np.sqrt(1000) * each
    assert mechanisms.Sums((1.0, 0.01, *[1.0] * 998)).ratio(problem, 1e-3, "public") >= 100 * each


def test_statistics_by_hand():
    """Every addition in double precision counts, in both datasets."""
    n, d = 10**9, 64
    problem = problem_of(n, d, [n // 10] * 10, norm_bound=2.0)
    most = 4096 + 256 + 4 * np.log2(n) + d / 2
    sums, moment = mechanisms.Sums(1.0, 1.0)._roundings(problem)
    for stated, longest in ((sums, 2.0), (moment, 4.0)):
        assert 1.0 <= stated / (2 * most * n * 2.0**-53 * longest) <= 1.04
    # With counts, rows are longer by the constant.
    hidden = problem_of(n, d, [1] * 10, norm_bound=2.0, class_counts=None)
    counted = mechanisms.Sums(1.0, constant=3.0)._roundings(hidden)[0]
    assert counted == pytest.approx(sums * np.hypot(2.0, 3.0) / 2.0)


@pytest.mark.parametrize("d", [1000, 100_000])
def test_the_projection_of_a_long_row(d):
    """Its factor errs with the squares in its norm, most where one entry is far above the rest."""
    x = np.full((1, d), 2.0**-27)
    x[0, 0] = 1.0
    with mpmath.workdps(40):
        norm = mpmath.sqrt(1 + (d - 1) * mpmath.mpf(2) ** -54)
        factor = min(mpmath.mpf(1), 1 / norm)
    rows, codes = np.vstack([x, np.zeros((1, d))]), np.array([1, 0])
    mean = Mean("logistic", rows, codes, 2, constant=0.0)
    theta = np.zeros(mean.shape)
    exact = -x[0] * float(factor) / 4.0
    error = np.linalg.norm(mean(theta[None])[0] - exact)
    assert error <= mean.rounding(theta)
    problem, query = problem_of(2, d, [1, 1]), mechanisms.Sums(1.0)
    sums = query.values(problem, Records(rows, codes))[d:]
    assert 2.0 * np.linalg.norm(sums - x[0] * float(factor)) <= query._roundings(problem)[0]


def test_rounding_by_hand():
    """Every term of the bound: scores, rows, residuals, and additions."""
    n, d, constant, n_classes = 10**7, 30, 3.0, 4
    theta = 5.0 * np.random.default_rng(0).standard_normal((n_classes, d + 1))
    found = rounding_of_mean("softmax", theta, n, d, constant)
    u, augmented = 2.0**-52, np.hypot(1.0, constant)
    reach = np.linalg.norm(theta) * augmented
    row = 3.5 * (d + 12) * u / 2
    rate = 0.5
    residual = rate * ((d + 16) * u / 2 + row) * reach + 24 * u * np.sqrt(2.0)
    gradient = 0.2 * augmented
    most = 4096 + 256 + 4 * np.log2(n)
    expected = residual * augmented + (24 * u + row) * gradient + most * u / 2 * gradient
    assert expected <= found <= 1.02 * expected


@pytest.mark.parametrize(("n", "d"), [(2 * 10**7, 1), (10**8, 384), (10**9, 3)])
def test_rounding_of_many_rows_costs_little(n, d):
    """The sensitivity of the first step, with its rounding, is hardly more than the gap."""
    head = BallDPLogisticRegression(
        delta=1e-11, radius=0.1, mechanism=GradientPerturbation(start="zero", n_steps=3)
    )
    release = head.plan(n_samples=n, n_features=d, class_counts=(n // 2, n - n // 2)).release
    bound = release.bound
    problem, theta = release.problem, np.zeros(bound.shape(release.problem))
    query = MeanGradient(theta, clip=bound.clip, constant=bound.constant)
    given = {"norm_bound": 1.0, "constant": bound.constant, "clip": bound.clip}
    gap = clipped_gap("logistic", 0.1, **given) / n
    moved = query.ratio(problem, 0.1, "public")
    assert gap <= moved <= (1.01 if n < 10**9 else 1.02) * gap


@pytest.mark.parametrize(("persons", "records", "seeds"), [(40, 25, 5), (5, 6, 50)])
def test_weights_of_persons_are_rounded_up(persons, records, seeds):
    """No less than the exact sums of any person's, and the length of shares in the largest ones."""
    for seed in range(seeds):
        rng, n = np.random.default_rng(seed), persons * records
        owners, codes = np.repeat(np.arange(persons), records), rng.integers(0, 3, n)
        rows = rng.uniform(0.0, 1.0 / records, n) * 10.0 ** rng.integers(-2 * (n > 99), 1, n)
        found = weights_of(rows, codes, 3, owners)
        held = np.full((persons, 3), Fraction(0))
        for owner, code, weight in zip(owners, codes, rows.tolist(), strict=True):
            held[owner, code] += Fraction(weight)
        most = held.max(axis=0)
        assert Fraction(found.largest) >= held.sum(axis=1).max()
        assert (np.array([*map(Fraction, found.class_largest)]) >= most).all()
        assert Fraction(found.block_factor) ** 2 >= ((held / most) ** 2).sum(axis=1).max()


def test_weights_in_sums_by_hand():
    """Each of the n records errs by its own weight at most, whoever owns it."""
    n, d = 1000, 64
    query, plain = mechanisms.Sums(1.0, 1.0), problem_of(n, d, [100] * 10, norm_bound=2.0)
    for m in (1, 3, 25):
        owners, rows = np.arange(n) // m, np.linspace(0.5, 1.0, n) / m
        heavy = weights_of(rows, np.arange(n) % 10, 10, owners)
        own = dataclasses.replace(plain, sums_weights=heavy)
        for found, one in zip(query._roundings(own), query._roundings(plain), strict=True):
            assert found == pytest.approx(heavy.record * one)


def test_rounding_with_weights_by_hand():
    """The weight of a record and its product with the gradient err too, by 4 u of its length."""
    theta, n = np.zeros((4, 30)), 100
    heavy = weights_of(np.linspace(0.5, 1.0, n), None, 4, np.arange(n))
    plain, weighted = (
        rounding_of_mean("softmax", theta, n, 30, weights=own)
        for own in (uniform_weights(n, None), heavy)
    )
    assert weighted >= plain + 3.99 * 2.0**-52 * 0.2


def test_rows_may_be_stored_outside_of_the_ball():
    """A rounded row of norm B may be longer by a few roundoffs of single precision."""
    found = rounding_of_mean("logistic", np.zeros((1, 5)), 1, 5, clip=1e-15)
    # Only the rounding of the residual is left, times the length of a row.
    residual = 21.0 * 2.0**-52
    assert residual * (1.0 + 5.0 * 2.0**-23) <= found <= residual * (1.0 + 1e-5)
