"""Supports: inside the ball, distinct, chosen as stated; clear errors when there are too few."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from sklearn_balldp.audit.supports import (
    Pool,
    TooFewCandidates,
    _up,
    candidates_in_ball,
    draw_supports,
    duplicates,
    select,
)


def pool(n=200, d=5, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True), rng.integers(n_classes, size=n)


def around_the_first(X, codes, radius, **options):
    """Candidates among the other rows for the first one."""
    return candidates_in_ball(X[1:], codes[1:], X[0], codes[0], radius, **options)


@pytest.mark.parametrize(
    ("metric", "name", "radius"),
    [
        ("euclidean", "euclidean", 1.2),
        ("manhattan", "cityblock", 2.3),
        ("chebyshev", "chebyshev", 0.8),
    ],
)
def test_candidates_are_those_of_a_brute_force(metric, name, radius):
    X, codes = pool()
    positions, distance = around_the_first(X, codes, radius, metric=metric, n_candidates=2)
    gaps = cdist(X[1:], X[:1], name)[:, 0]
    same = codes[1:] == codes[0]
    expected = np.flatnonzero(same & (gaps <= radius))
    np.testing.assert_array_equal(positions, expected)
    assert 5 < len(expected) < same.sum()
    np.testing.assert_allclose(distance, gaps[positions])


def test_any_label_qualifies_at_any_distance():
    X, codes = pool()
    positions, _ = around_the_first(X, codes, 0.8, any_label=True)
    others = np.flatnonzero(codes[1:] != codes[0])
    assert np.isin(others, positions).all()
    same = np.setdiff1d(positions, others)
    assert 0 < len(same) < (codes[1:] == codes[0]).sum()
    assert (np.linalg.norm(X[1:][same] - X[0], axis=1) <= 0.8).all()
    # The anchor's row under another label is another record.
    twin, labels = np.vstack([X[:1], X[1:]]), np.r_[codes[0] + 1, codes[1:]]
    positions, _ = candidates_in_ball(twin, labels, X[0], codes[0], 0.8, any_label=True)
    assert 0 in positions


def test_the_anchor_itself_is_no_candidate():
    X, codes = pool()
    positions, distance = candidates_in_ball(X, codes, X[0], codes[0], 2.0)
    assert 0 not in positions
    assert (distance > 0).all()


def test_duplicates():
    X, codes = pool(6)
    rows, labels = np.vstack([X, X[:3], -0.0 * X[:1], 0.0 * X[:1]]), np.r_[codes, codes[:3], 0, 0]
    labels[7] = codes[1] + 1
    assert duplicates(rows, labels).tolist() == [False] * 6 + [True, False, True, False, True]


def test_near_copies():
    """Records within rounding of an earlier one of their label, by all pairs; and very many."""
    rng = np.random.default_rng(0)
    rows = np.repeat(pool(40)[0], 10, axis=0) + 2.5e-7 * rng.standard_normal((400, 5))
    order = rng.permutation(400)
    rows, codes = rows[order], rng.integers(3, size=400)
    near = cdist(rows, rows) <= 1e-6 * np.linalg.norm(rows, axis=1).max()
    expected = (np.tril(near, -1) & (codes[:, None] == codes)).any(axis=1)
    assert 0.5 < expected.mean() < 0.9
    np.testing.assert_array_equal(duplicates(rows, codes), expected)
    many = np.eye(1, 64)[0] + 1e-9 * rng.standard_normal((30_000, 64))
    assert np.flatnonzero(~duplicates(many, np.arange(30_000) % 3)).tolist() == [0, 1, 2]


def test_selection():
    X, _ = pool()
    n_candidates = 5
    anchor, rows = X[0], X[1:]
    distance = np.linalg.norm(rows - anchor, axis=1)
    rng = np.random.default_rng(0)
    nearest = select(rows, distance, n_candidates, "nearest", rng)
    assert set(nearest) == set(np.argsort(distance)[:n_candidates])
    seen = set()
    for _ in range(200):
        chosen = select(rows, distance, n_candidates, "random", rng)
        assert len(set(chosen)) == n_candidates
        seen |= set(chosen)
    assert len(seen) > 0.8 * len(rows)
    far = set(np.argsort(distance)[-4 * n_candidates :])
    firsts = set()
    for _ in range(200):
        chosen = select(rows, distance, n_candidates, "farthest", rng)
        firsts.add(chosen[0])
        assert len(set(chosen)) == n_candidates
        for k in range(1, n_candidates):
            gaps = cdist(rows, rows[chosen[:k]]).min(axis=1)
            assert gaps[chosen[k]] == gaps.max()
    # Each of the farthest starts with probability 1 / (4 m) at least 1 / 20: all do but some.
    assert firsts <= far
    assert len(firsts) > len(far) / 2


def test_select_all_rows():
    X, _ = pool(4)
    distance = np.linalg.norm(X - 1, axis=1)
    for strategy in ("farthest", "random", "nearest"):
        assert sorted(select(X, distance, 4, strategy, np.random.default_rng(0))) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="support must be one of"):
        select(X, distance, 2, "best", np.random.default_rng(0))


def test_too_few_says_how_many_and_what_radius_would_do():
    X, codes = pool()
    same = np.flatnonzero(codes[1:] == codes[0])
    distance = np.sort(np.linalg.norm(X[1:][same] - X[0], axis=1))
    radius = (distance[2] + distance[3]) / 2
    with pytest.raises(TooFewCandidates, match=r"only 3 distinct candidate\(s\)") as error:
        around_the_first(X, codes, radius, n_candidates=7)
    assert error.value.found == 3
    assert error.value.needed == distance[6]
    assert f"a radius of {distance[6]:.4g}" in str(error.value)
    # That radius does.
    assert len(around_the_first(X, codes, error.value.needed, n_candidates=7)[0]) == 7
    with pytest.raises(TooFewCandidates, match=f"only {len(same)} at any radius.*X_public"):
        around_the_first(X, codes, radius, n_candidates=100)


RECORDS, PUBLIC = pool(60, seed=1), pool(150, seed=2)


def draw(radius, rows=RECORDS[0], public=PUBLIC, **options):
    given = {
        "anchors": np.arange(60),
        "n_supports": 5,
        "n_candidates": 4,
        "strategy": "farthest",
        "random_state": np.random.default_rng(0),
        **options,
    }
    return draw_supports(rows, RECORDS[1], Pool(*public, 1.0), radius, **given)


def test_drawn_supports():
    (X, codes), (public, labels) = RECORDS, PUBLIC
    supports, passed_over = draw(0.8, 3 * X, n_supports=20)
    assert passed_over > 0
    assert len({support.anchor for support in supports}) == 20
    for support in supports:
        anchor = X[support.anchor]  # rows outside the ball are projected
        assert (support.codes == codes[support.anchor]).all()
        np.testing.assert_array_equal(support.rows, public[support.positions])
        rows = support.rows[:, 0]
        assert (np.linalg.norm(rows - anchor, axis=1) <= 0.8).all()
        assert len(np.unique(rows, axis=0)) == 4
        inside = np.linalg.norm(public - anchor, axis=1) <= 0.8
        assert support.n_in_ball == (inside & (labels == codes[support.anchor])).sum()


def test_rows_outside_the_ball_are_projected_and_repeat():
    """Multiples of one row project to one record, up to rounding; the anchor's are the anchor."""
    (X, codes), (inside, labels) = RECORDS, PUBLIC
    outside = np.vstack([1.7 * inside, 2.9 * inside, 3 * X]).astype(np.float32)
    public = outside, np.r_[labels, labels, codes]
    supports, _ = draw(1.2, public=public, n_supports=10, strategy="nearest")
    for support in supports:
        rows, anchor = support.rows[:, 0], X[support.anchor]
        assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-9
        assert np.linalg.norm(rows - anchor, axis=1).min() > 1e-3
        assert cdist(rows, rows)[np.triu_indices(4, 1)].min() > 1e-3
        same = np.linalg.norm(inside[labels == codes[support.anchor]] - anchor, axis=1)
        own = np.linalg.norm(X[codes == codes[support.anchor]] - anchor, axis=1)
        assert support.n_in_ball == (same <= 1.2).sum() + (own <= 1.2).sum() - 1


def test_advised_radius_counts_other_labels_at_any_distance():
    X, codes = pool(40)
    others = int((codes[1:] != codes[0]).sum())
    with pytest.raises(TooFewCandidates) as error:
        around_the_first(X, codes, 1e-3, n_candidates=others + 3, any_label=True)
    same = np.sort(np.linalg.norm(X[1:][codes[1:] == codes[0]] - X[0], axis=1))
    assert error.value.needed == same[2]


def test_quoted_radii_are_rounded_up():
    for radius in (0.29293704, 1.23451, 0.99999, 12.0, 3e-7):
        assert radius <= float(_up(radius)) <= radius * 1.001
    # Quotients by a power of ten would move some of these up.
    for shown in ("0.0011", "0.002", "1.2", "inf"):
        assert _up(float(shown)) == shown


def test_anchors_that_are_too_few():
    supports, _ = draw(2.0, anchors=np.array([3, 8, 11, 20, 41]))
    assert {support.anchor for support in supports} == {3, 8, 11, 20, 41}
    with pytest.raises(TooFewCandidates, match=r"only 2 of n_supports=5 .*no radius would do"):
        draw(2.0, anchors=np.array([3, 8]))
    # Drawing says which radius would do.
    with pytest.raises(TooFewCandidates, match=r"only 0 of n_supports=5.* a radius of") as error:
        draw(0.05)
    needed = error.value.needed
    assert len(draw(needed * (1 + 1e-9))[0]) == 5
    with pytest.raises(TooFewCandidates, match="only 4 of n_supports=5"):
        draw(needed * (1 - 1e-9))
    with pytest.raises(TooFewCandidates, match="no radius would do"):
        draw(1.0, n_candidates=100)


# Persons ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("any_label", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_advised_radius_does_for_all_records_of_a_person(seed, any_label):
    owners = np.arange(60) // 3
    options = {"owners": owners, "any_label": any_label, "n_candidates": 115 if any_label else 4}
    given = pool(60, seed=10 + seed)[0], pool(150, seed=20 + seed)
    with pytest.raises(TooFewCandidates, match=r"only 0 of n_supports=5.* a radius of") as error:
        draw(0.05, *given, **options)
    needed = error.value.needed
    assert len(draw(needed * (1 + 1e-9), *given, **options)[0]) == 5
    with pytest.raises(TooFewCandidates, match="only 4 of n_supports=5"):
        draw(needed * (1 - 1e-9), *given, **options)


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
            assert all(len(set(own)) == len(own) for own in positions.tolist())
        np.testing.assert_array_equal(support.rows, PUBLIC[0][support.positions])
        np.testing.assert_array_equal(support.codes, PUBLIC[1][support.positions])
