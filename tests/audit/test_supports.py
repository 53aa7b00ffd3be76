"""Supports: inside the ball, distinct, chosen as stated; clear errors when there are too few."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from sklearn_balldp.audit.supports import (
    Pool,
    Surroundings,
    TooFewCandidates,
    draw_supports,
    duplicates,
    select,
)


def pool(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 5))
    return X / np.linalg.norm(X, axis=1, keepdims=True), rng.integers(3, size=n)


RECORDS, PUBLIC = pool(60, seed=1), pool(150, seed=2)


def draw(radius, rows=RECORDS[0], public=PUBLIC, **options):
    anchors, n_supports = options.pop("anchors", np.arange(60)), options.pop("n_supports", 5)
    options = {"n_candidates": 4, "strategy": "farthest", **options}
    around = Surroundings(rows, RECORDS[1], Pool(*public, 1.0), radius, **options)
    return draw_supports(around, anchors, n_supports, np.random.default_rng(0))


@pytest.mark.parametrize("any_label", [False, True])
@pytest.mark.parametrize(
    ("metric", "name", "radius"), [("euclidean", "euclidean", 1.0), ("manhattan", "cityblock", 1.9)]
)
def test_candidates_are_those_of_a_brute_force(metric, name, radius, any_label):
    """All of them and no more; the anchor's own row is none, and under another label it is."""
    (X, codes), (rows, labels) = RECORDS, PUBLIC
    rows, labels = np.vstack([X[:1], X[:1], rows]), np.r_[codes[0], (codes[0] + 1) % 3, labels]
    gaps, same = cdist(rows, X[:1], name)[:, 0], labels == codes[0]
    near = np.where(same, (gaps <= radius) & (gaps > 0), any_label)
    n = near.sum()
    assert 5 < (near & same).sum() < same.sum() - 5
    options = {"metric": metric, "any_label": any_label, "anchors": np.array([0]), "n_supports": 1}
    for strategy in ("nearest", "farthest", "random"):
        given = {"n_candidates": n, "strategy": strategy, **options}
        ((support,), _) = draw(radius, public=(rows, labels), **given)
        assert sorted(support.positions[:, 0]) == np.flatnonzero(near).tolist()
        assert support.n_in_ball == n
    with pytest.raises(TooFewCandidates) as error:
        draw(radius, public=(rows, labels), n_candidates=n + 2, **options)
    # Rows under other labels count at any distance.
    reach = np.where(same, gaps, 0.0 if any_label else np.inf)[1:]
    assert error.value.needed == np.sort(reach)[n + 1]


def test_near_copies():
    """Records within rounding of an earlier one of their label, by all pairs; and very many."""
    rng = np.random.default_rng(0)
    rows = np.repeat(pool(40)[0], 10, axis=0) + 2.5e-7 * rng.standard_normal((400, 5))
    order = np.r_[rng.permutation(400), :20]
    rows, codes = rows[order], rng.integers(3, size=420)
    near = cdist(rows, rows) <= 1e-6 * np.linalg.norm(rows, axis=1).max()
    expected = (np.tril(near, -1) & (codes[:, None] == codes)).any(axis=1)
    assert 0.5 < expected.mean() < 0.9
    np.testing.assert_array_equal(duplicates(rows, codes), expected)
    many = np.eye(1, 16)[0] + 1e-9 * rng.standard_normal((5000, 16))
    many[::2] = many[0]
    assert np.flatnonzero(~duplicates(many, np.arange(5000) % 3)).tolist() == [0, 1, 2]
    zeros = np.array([[0.0, 1.0], [-0.0, 1.0]])
    assert duplicates(zeros, np.zeros(2)).tolist() == [False, True]


def test_selection():
    X, _ = pool()
    n_candidates = 5
    rows, rng = X[1:], np.random.default_rng(0)
    distance = np.linalg.norm(rows - X[0], axis=1)
    nearest = select(rows, distance, n_candidates, "nearest", rng)
    assert set(nearest) == set(np.argsort(distance)[:n_candidates])
    draws = [select(rows, distance, n_candidates, "random", rng) for _ in range(200)]
    assert all(len(set(chosen)) == n_candidates for chosen in draws)
    assert len(set(np.concatenate(draws))) > 0.8 * len(rows)
    far = set(np.argsort(distance)[-4 * n_candidates :])
    firsts = set()
    for _ in range(200):
        chosen = select(rows, distance, n_candidates, "farthest", rng)
        firsts.add(chosen[0])
        for k in range(1, n_candidates):
            gaps = cdist(rows, rows[chosen[:k]]).min(axis=1)
            assert gaps[chosen[k]] == gaps.max() > 0
    # Each of the farthest starts with probability 1 / (4 m) at least 1 / 20: all do but some.
    assert firsts <= far
    assert len(firsts) > len(far) / 2


def test_drawn_supports():
    """Multiples of one row are projected to one record, up to rounding."""
    (X, codes), (inside, labels) = RECORDS, PUBLIC
    public = np.vstack([1.7 * inside, 2.9 * inside, 3 * X]).astype(np.float32)
    public = public, np.r_[labels, labels, codes]
    supports, passed_over = draw(0.8, 3 * X, public, n_supports=20)
    assert passed_over > 0
    assert len({support.anchor for support in supports}) == 20
    for support in supports:
        rows, anchor = support.rows[:, 0], X[support.anchor]
        assert (support.codes == codes[support.anchor]).all()
        assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-9
        gaps = np.linalg.norm(rows - anchor, axis=1)
        assert 1e-3 < gaps.min() < gaps.max() <= 0.8
        assert cdist(rows, rows)[np.triu_indices(4, 1)].min() > 1e-3
        near = [
            np.linalg.norm(some[kinds == codes[support.anchor]] - anchor, axis=1) <= 0.8
            for some, kinds in (PUBLIC, RECORDS)
        ]
        assert support.n_in_ball == np.concatenate(near).sum() - 1


@pytest.mark.parametrize("any_label", [False, True])
@pytest.mark.parametrize("records", [1, 3])
@pytest.mark.parametrize("seed", range(2))
def test_the_advised_radius_does_and_no_smaller_one(seed, records, any_label):
    owners = np.arange(60) // records
    options = {"owners": owners, "any_label": any_label, "n_candidates": 115 if any_label else 4}
    given = pool(60, seed=10 + seed)[0], pool(150, seed=20 + seed)
    with pytest.raises(TooFewCandidates, match=r"only 0 of n_supports=5.* a radius of") as error:
        draw(0.05, *given, **options)
    needed = error.value.needed
    # It is quoted in few digits, rounded up.
    quoted = float(str(error.value).split("a radius of ")[1].split()[0])
    assert needed <= quoted <= needed * 1.001
    assert len(draw(needed, *given, **options)[0]) == 5
    with pytest.raises(TooFewCandidates, match="only 4 of n_supports=5"):
        draw(needed * (1 - 1e-9), *given, **options)
    # Where none would do, that is said.
    for few in ({"anchors": np.array([3, 8])}, {"n_candidates": 500}):
        with pytest.raises(TooFewCandidates, match=r"no radius would do"):
            draw(2.0, *given, **{**options, **few})


@pytest.mark.parametrize("strategy", ["farthest", "random", "nearest"])
@pytest.mark.parametrize("any_label", [False, True])
def test_no_candidate_has_one_row_in_two_places(strategy, any_label):
    """Records of one person near each other, and few rows near them."""
    rows = RECORDS[0][:12].repeat(5, axis=0)
    options = {"owners": np.arange(60) // 5, "strategy": strategy, "any_label": any_label}
    supports, _ = draw(1.3, rows, **options)
    for support in supports:
        assert support.positions.shape == (4, 5)
        for positions in (support.positions, support.positions.T):
            assert all(len(set(some)) == len(some) for some in positions.tolist())
        # Projected onto the ball, a row of norm one may move in its last bits.
        np.testing.assert_allclose(support.rows, PUBLIC[0][support.positions], rtol=1e-14)
        np.testing.assert_array_equal(support.codes, PUBLIC[1][support.positions])
