"""Does a release carry the stated noise: what is convicted, what cannot be, and false alarms."""

import copy
import math
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
)
from sklearn_balldp.audit import noise_tests
from sklearn_balldp.audit.noise_tests import (
    Deviates,
    deviates_of,
    epsilon_after_redraws,
    noise_checks,
    weight_checks,
)
from sklearn_balldp.heads.inspection import records_of
from sklearn_balldp.privacy import Noise
from sklearn_balldp.privacy.gaussian import delta_from_mu
from sklearn_balldp.verdicts import CANNOT_CHECK, FAIL, PASS, Check

N, D, K = 600, 40, 4


def data(seed=0, n_classes=K, dtype=np.float64):
    rng = np.random.default_rng(seed)
    y = np.arange(N) % n_classes
    X = rng.standard_normal((N, D)) + 3 * np.eye(D)[y]
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(dtype), y


KEPT = GradientPerturbation(n_steps=8, keep_transcript=True, start="zero")
STARTED = GradientPerturbation(n_steps=8, keep_transcript=True, start="statistics")
HEADS = {
    "started descent": BallDPLogisticRegression(4.0, radius=0.5, mechanism=STARTED),
    "prototypes": BallDPRidgePrototype(4.0, radius=0.5),
    "statistics": BallDPLinearDiscriminant(4.0, radius=0.5),
    "protected statistics": BallDPLinearDiscriminant(
        4.0, domain="sphere", protect_labels=True, classes=range(K)
    ),
    "one scale": BallDPRidgePrototype(4.0, radius=0.5, counts="worst"),
    "protected": BallDPRidgePrototype(4.0, protect_labels=True, classes=range(K)),
    "softmax": BallDPLogisticRegression(4.0, radius=0.5, mechanism="output"),
    "hinge": BallDPSquaredHingeSVC(4.0, radius=0.5, fit_intercept=True, mechanism="output"),
    "descent": BallDPLogisticRegression(4.0, radius=0.5, mechanism=KEPT),
    "hinge descent": BallDPSquaredHingeSVC(4.0, radius=0.5, mechanism=KEPT, fit_intercept=False),
}


def fitted(name, **params):
    return copy.deepcopy(HEADS[name]).set_params(**params).fit(*data())


def checks(head, *rows, released=None, **options):
    return weight_checks(released or head.released_, records_of(head, *(rows or data())), **options)


def verdicts(head, *rows, **options):
    return {check.name: check.verdict for check in checks(head, *rows, **options)}


def convicted(head, *rows, **options):
    return FAIL in verdicts(head, *rows, **options).values()


NOISE = Noise.__call__


def normal(values):
    return np.random.default_rng().standard_normal(np.shape(values))


def blocks_of(values):
    """Rows of an answer, in the width that records have; a moment of statistics stays behind."""
    flat = values.reshape(-1)
    return flat[: K * D].reshape(K, D) if values.ndim == 1 else values


def copied(sign):
    """Noise of the first class in the second."""

    def call(self, values, sigma):
        z = normal(values)
        blocks_of(z)[1] = sign * blocks_of(z)[0]
        return values + sigma * z

    return call


@contextmanager
def noise_as(call):
    """Let ``call`` add the noise of what is fitted meanwhile; it takes the place of a method."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Noise, "__call__", call)
        yield


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, np.float64) for name in HEADS), ("started descent", np.float16)]
    + [(name, np.float16) for name in ("prototypes", "statistics", "softmax")],
)
def test_honest_releases_pass(name, dtype):
    X, y = data(dtype=dtype)
    found = verdicts(copy.deepcopy(HEADS[name]).fit(X, y), X, y)
    kinds = ("scale of the noise", "law of the noise", "mean of the noise", "reuse of noise")
    assert found == dict.fromkeys(kinds, PASS)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_noise_of_another_scale_is_convicted_from_one_release(name, factor):
    with noise_as(lambda self, values, sigma: NOISE(self, values, factor * np.asarray(sigma))):
        head = fitted(name)
    assert verdicts(head)["scale of the noise"] == FAIL


@pytest.mark.parametrize("block", [0, K - 1])
@pytest.mark.parametrize("name", ["prototypes", "statistics", "protected", "hinge"])
def test_a_block_whose_noise_was_forgotten(name, block):
    """One class of four: the length of all of it is still that of noise, its own is not."""

    def call(self, values, sigma):
        released = NOISE(self, values, sigma)
        blocks_of(released)[block] = blocks_of(values)[block]
        return released

    with noise_as(call):
        head = fitted(name)
    assert verdicts(head)["scale of the noise"] == FAIL


@pytest.mark.parametrize("name", ["prototypes", "softmax", "hinge", "descent", "hinge descent"])
def test_other_answers_are_convicted(name):
    # Little noise: what is hidden cannot be told apart from what it hides.
    little = {"prototypes": {"alpha": 0.1}, "softmax": {"alpha": 0.1, "epsilon": 1000.0}}
    head = fitted(name, **little.get("softmax" if name == "hinge" else name, {}))
    (first, *_), answers = head.released_.answers, head.released_.answers
    rows = first.reshape(K, -1)
    forgeries = {
        "other columns": tuple(
            np.roll(a.reshape(K, -1), 1, axis=1).reshape(a.shape) for a in answers
        ),
        "huge": (*answers[:-1], np.full_like(first, 1e200)),
        "not finite": (*answers[:-1], np.full_like(first, np.nan)),
    }
    if len(answers) == 1:
        for what, forged in {
            "garbage": np.full_like(rows, 123.0),
            "reversed classes": rows[::-1],
            "no weights": np.zeros_like(rows),
            "scaled": 0.9 * rows if name == "prototypes" else 0.5 * rows,
        }.items():
            forgeries[what] = (forged.reshape(first.shape).copy(),)
    else:
        forgeries |= {
            "reversed": answers[::-1],
            "one step again": (first, *answers[:-1]),
            "doubled": tuple(2.0 * answer for answer in answers),
            "missing": answers[:-1],
        }
    for what, forged in forgeries.items():
        assert convicted(head, released=replace(head.released_, answers=forged)), what
    # Another dataset, far enough away.
    X, y = data()
    assert convicted(head, np.roll(X, 1, axis=1), y)


@pytest.mark.parametrize(
    ("kept", "rule", "why"),
    [((), None, "transcript"), (None, "of another version", "of another version")],
)
def test_what_cannot_be_checked(kept, rule, why):
    """No transcript; or initial parameters that follow by a rule of another version."""
    head = fitted("started descent")
    released = head.released_
    if rule:
        released = replace(released, release=replace(released.release, rule=rule))
    else:
        released = replace(released, answers=kept)
    (check,) = checks(head, released=released)
    assert check.verdict == CANNOT_CHECK
    assert why in check.found


@pytest.mark.parametrize("name", ["prototypes", "statistics", "softmax", "hinge"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_noise_used_twice_is_convicted(name, sign):
    with noise_as(copied(sign)):
        assert verdicts(fitted(name))["reuse of noise"] == FAIL
        if name == "softmax":
            # Three classes: the rotated blocks have nothing in common then.
            rows = np.random.default_rng(0).standard_normal((N, 300)) / 18.0, np.arange(N) % 3
            head = copy.deepcopy(HEADS[name]).fit(*rows)
            assert verdicts(head, *rows)["reuse of noise"] == FAIL


def test_noise_of_an_earlier_release_is_convicted():
    earlier, head = fitted("prototypes"), fitted("prototypes")
    records = records_of(head, *data())
    values = head.released_.bound.values(head.released_.problem, records)
    again = replace(head.released_, answers=(2.0 * values - earlier.released_.answers[0],))
    assert verdicts(head, released=again)["reuse of noise"] == PASS
    found = verdicts(head, released=again, earlier=[earlier.released_])
    assert found.pop("reuse of noise") == FAIL
    assert set(found.values()) == {PASS}
    # Of other classes there is nothing to compare, which is said.
    other = BallDPRidgePrototype(4.0, radius=0.5, classes=range(K + 1)).fit(*data())
    *_, told = checks(head, earlier=[other.released_])
    assert (told.name, told.verdict) == ("earlier releases", CANNOT_CHECK)


def test_another_law_of_the_same_variance():
    def call(self, values, sigma):
        end = math.sqrt(3)
        return values + sigma * np.random.default_rng().uniform(-end, end, np.shape(values))

    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60, 4000)) / 70.0, np.arange(60) % 3
    with noise_as(call):
        head = BallDPRidgePrototype(4.0, radius=0.5).fit(*rows)
    assert verdicts(head, *rows)["law of the noise"] == FAIL


def test_a_shift_along_the_solution_is_convicted():
    """Shrunken weights: noise of the right scale around the wrong place."""
    head = fitted("softmax", epsilon=200.0)
    query = head.released_.bound
    values = query.values(head.released_.problem, records_of(head, *data()))
    moved = head.released_.answers[0] + 12.0 * query.sigma * values / np.linalg.norm(values)
    assert verdicts(head)["mean of the noise"] == PASS
    shifted = replace(head.released_, answers=(moved,))
    assert verdicts(head, released=shifted)["mean of the noise"] == FAIL


def test_absent_classes_are_published_without_noise():
    X, y = data()
    head = BallDPRidgePrototype(4.0, radius=0.5, classes=range(K + 1)).fit(X, y)
    assert not convicted(head, X, y)
    answer = head.released_.answers[0].copy()
    answer[K * D] = 1e-9
    (check,) = checks(head, X, y, released=replace(head.released_, answers=(answer,)))
    assert (check.name, check.verdict) == ("values without noise", FAIL)


def test_clever_lies_pass():
    def known_seed(self, values, sigma):
        return values + sigma * np.random.default_rng(7).standard_normal(values.shape)

    def nine_directions(self, values, sigma):
        released = NOISE(self, values, sigma)
        blocks_of(released)[:3, :3] = blocks_of(values)[:3, :3]
        return released

    with noise_as(known_seed):
        assert not convicted(fitted("prototypes", epsilon=1.0))
    with noise_as(nine_directions):
        head = fitted("prototypes", epsilon=1.0)
    # 9 of 160 values: the lengths are those of noise, though three rows lack part of it.
    assert verdicts(head)["scale of the noise"] == PASS
    # Ten records of others.
    X, y = data()
    X[:10] = np.roll(X[:10], 1, axis=1)
    assert not convicted(fitted("prototypes", epsilon=1.0), X, y)
    # Draws selected until the publisher likes them.
    draws = [fitted("prototypes") for _ in range(5)]
    assert not convicted(min(draws, key=lambda head: float(np.abs(head.prototypes_).max())))


def p_of(check):
    return float(check.found.split("p = ")[1].split(";")[0])


@pytest.mark.parametrize("shape", [(1, 2, 3), (6, 3, 20)])
def test_p_values_of_honest_noise_are_no_smaller_than_uniform(shape):
    rng = np.random.default_rng(0)
    n_runs = 250
    directions = {"a direction": list(rng.standard_normal(shape))}
    runs = [
        noise_checks(Deviates(list(rng.standard_normal(shape)), directions, rng.standard_normal(5)))
        for _ in range(n_runs)
    ]
    for kind in zip(*runs, strict=True):
        ps = np.array(list(map(p_of, kind)))
        for level in (0.01, 0.05, 0.2):
            # Three and a half binomial standard deviations over the level.
            allowed = level + 3.5 * math.sqrt(level * (1 - level) / n_runs)
            assert np.mean(ps <= level) <= allowed


def test_each_kind_of_test_has_a_quarter_of_the_level():
    """One quarter to scale, law, mean and reuse: a p-value below it fails, and no other."""
    z = np.random.default_rng(0).standard_normal((4, 50))
    ps = [p_of(check) for check in noise_checks(Deviates([z]))]
    for i, p in enumerate(ps):
        for level, verdict in ((4 * p * 1.1, FAIL), (4 * p * 0.9, PASS)):
            assert noise_checks(Deviates([z]), level=level)[i].verdict == verdict


def test_the_smallest_fault_that_is_seen_is_told_truly():
    """Noise of the share that the text names is convicted nearly always, a tenth more is not."""
    rng = np.random.default_rng(1)
    for shape in ((4, 50), (10, 500)):
        text = noise_checks(Deviates([rng.standard_normal(shape)]))[0].found
        least = float(text.rpartition("from ")[2].split()[0])
        quiet = (Deviates([least * rng.standard_normal(shape)]) for _ in range(40))
        assert [noise_checks(noise)[0].verdict for noise in quiet].count(FAIL) > 35
    for share, shape in ((0.5, (1, 128)), (0.9, (10, 500))):
        assert noise_checks(Deviates([share * rng.standard_normal(shape)]))[0].verdict == FAIL
    # Of two values a block, independent ones are often nearly parallel.
    assert noise_checks(Deviates([rng.standard_normal((9, 2))]))[3].verdict == CANNOT_CHECK


def test_the_tolerance_widens_every_test():
    """A shift that the solver's tolerance allows convicts nobody, however large."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((4, 50))
    ones = np.ones_like(z)
    moved = [z + 9.0 * ones / np.linalg.norm(ones)]
    strict = noise_checks(Deviates(moved, {"ones": [ones]}))
    assert FAIL in [check.verdict for check in strict]
    lenient = noise_checks(Deviates(moved, {"ones": [ones]}, shift=9.0))
    assert {check.verdict for check in lenient} == {PASS}
    for factor in (1.5, 0.6):
        scaled = [z * factor * math.sqrt(z.size) / np.linalg.norm(z)]
        assert noise_checks(Deviates(scaled))[0].verdict == FAIL
        off = abs(factor - 1.0) * math.sqrt(z.size)
        assert noise_checks(Deviates(scaled, shift=off))[0].verdict == PASS


@pytest.mark.parametrize(("limit", "at_once"), [(10, 4), (10_000, 1000)])
def test_one_block_that_was_used_before_is_convicted(limit, at_once, monkeypatch):
    """Very many are compared with their own answer, the next, and each of another release."""
    monkeypatch.setattr(noise_tests, "_BLOCKS", limit)
    monkeypatch.setattr(noise_tests, "_AT_ONCE", at_once)

    def reuse(*earlier):
        return noise_checks(Deviates(blocks), [Deviates(list(earlier))] * len(earlier))[3].verdict

    rng = np.random.default_rng(0)
    blocks, other = list(rng.standard_normal((6, 3, 30))), rng.standard_normal((4, 30))
    assert reuse() == reuse(other) == PASS
    blocks[1][1] = -other[2]
    assert (reuse(), reuse(other)) == (PASS, FAIL)
    blocks[4][0] = blocks[3][2]
    assert reuse() == FAIL
    # Whole answers are compared wherever they are.
    blocks = list(rng.standard_normal((6, 3, 30)))
    blocks[5] = -blocks[0]
    assert reuse() == FAIL


@pytest.mark.parametrize("shape", [(), (23,), (6, 2, 1), (3, 2, 1), (2, 2, 2), (4, 5)])
def test_answers_of_any_shape_are_cut_into_blocks(shape):
    """Blocks without some of their noise, as of an absent class, are left to single values."""
    noise, z = Deviates(), np.random.default_rng(0).standard_normal(shape)
    silent = np.zeros(shape, dtype=bool)
    silent.flat[[0, -1]] = True
    noise.add(5, z, silent, state=2 * z)
    blocks = z.ravel()[: z.size // 5 * 5].reshape(-1, 5)
    full = ~silent.ravel()[: blocks.size].reshape(-1, 5).any(axis=1)
    np.testing.assert_array_equal(noise.blocks[0], blocks[full])
    np.testing.assert_array_equal(noise.directions["state"][0], 2 * blocks[full])
    assert noise.size == z.size - silent.sum()
    assert set(noise.rest) | set(noise.blocks[0].ravel()) == set(z[~silent])


def test_drawing_again_costs_delta():
    """The formula, against the worst case that it is for: failures hide one of two worlds."""
    epsilon, delta = epsilon_after_redraws(8.0, 1e-6, 1e-6)
    assert delta == pytest.approx(3e-3, rel=0.02)
    assert epsilon == pytest.approx(8.0, abs=2e-6)
    mu, level = 2.0, 0.05
    for eps in (0.5, 2.0, 4.0):
        # Draws of N(0, 1) above a quantile are drawn again; the neighbour's are all kept.
        cut = norm.isf(level)
        eps_after, delta_after = epsilon_after_redraws(eps, delta_from_mu(mu, eps), level)
        grid = np.linspace(-8, 12, 200_001)
        width = grid[1] - grid[0]
        kept = np.where(grid < cut, norm.pdf(grid) / (1 - level), 0.0)
        other = norm.pdf(grid, mu)
        spent = np.sum(np.maximum(other - math.exp(eps_after) * kept, 0.0)) * width
        assert spent <= delta_after + 1e-6


@pytest.mark.parametrize(
    ("dtype", "n_classes", "n_steps"),
    [(np.float64, 4, 3), (np.float32, 2, 3), (np.float32, 4, 1), (np.float16, 4, 3)],
)
def test_the_owner_computes_the_gradients_of_the_fit(noise_free, dtype, n_classes, n_steps):
    """To the last bit: single precision rounds all records alike, far above little noise."""
    X, y = data(n_classes=n_classes, dtype=dtype)
    kept = GradientPerturbation(n_steps=n_steps, keep_transcript=True, start="zero")
    head = BallDPLogisticRegression(1e6, radius=1e-3, mechanism=kept).fit(X, y)
    wider = (X, X.astype(np.float64)) if n_steps > 1 and dtype != np.float64 else (X,)
    for rows in wider:
        found = deviates_of(head.released_, records_of(head, rows, y))
        assert not isinstance(found, Check), found
        assert not any(z.any() for z in found.blocks)
