"""A guess may be any point: no grid of guesses beats kappa, and one comes near it."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.spatial.distance import cdist

from sklearn_balldp import BallDPRidgePrototype, ReconstructionAuditor
from sklearn_balldp.audit import tolerance
from sklearn_balldp.audit.tolerance import guesses_within

CDIST = {"euclidean": "euclidean", "manhattan": "cityblock", "chebyshev": "chebyshev"}


def guesses(points, eta, metric="euclidean", weights=None):
    """Answers for one record a candidate."""
    weights = np.full(len(points), 1 / len(points)) if weights is None else weights
    gaps = cdist(points, points, CDIST[metric])
    return guesses_within(points[:, None, :], gaps, weights, eta, metric)


def grid_kappa(points, eta, metric, weights, n):
    """Best blind guess among the points of a fine grid."""
    low, high = points.min(axis=0), points.max(axis=0)
    sides = [np.linspace(a, b, n) for a, b in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, points.shape[1])
    return float(((cdist(grid, points, CDIST[metric]) <= eta) @ weights).max())


@pytest.mark.parametrize("metric", CDIST)
@pytest.mark.parametrize(("d", "n_grid"), [(2, 400), (3, 60)])
def test_no_grid_of_guesses_beats_kappa_and_one_comes_near(metric, d, n_grid):
    rng = np.random.default_rng(0)
    for case in range(12):
        m = int(rng.integers(3, 9))
        points = rng.standard_normal((m, d)) * (0.3 if case % 3 else 1.0)
        weights = rng.dirichlet(np.ones(m)) if case % 2 else np.full(m, 1 / m)
        eta = float(rng.uniform(0.2, 1.2)) * np.median(cdist(points, points, CDIST[metric]))
        found = guesses(points, eta, metric, weights)
        assert found.exact
        assert grid_kappa(points, eta, metric, weights, n_grid) <= found.kappa + 1e-12
        # A slightly larger ball leaves the grid room: it reaches what kappa says.
        wider = eta + 2.0 * float(np.ptp(points, axis=0).max()) * d / n_grid
        assert grid_kappa(points, wider, metric, weights, n_grid) >= found.kappa - 1e-12


def test_candidates_around_one_point_are_hit_by_one_guess():
    """Each candidate misses one other, and one guess between them hits all."""
    rng = np.random.default_rng(3)
    points = rng.standard_normal((10, 30))
    points *= 0.217 / np.linalg.norm(points, axis=1, keepdims=True)
    gaps = cdist(points, points)
    assert ((gaps <= 0.219).mean(axis=1) < 1.0).all()
    found = guesses(points, 0.219)
    assert (found.kappa, found.exact, found.hits.tolist()) == (1.0, True, [[True] * 10])


@pytest.mark.parametrize("metric", CDIST)
def test_radii_of_subsets_are_those_of_a_solver(metric):
    """Against a linear program, or all balls through few points."""
    rng = np.random.default_rng(1)
    for _ in range(25):
        points = rng.standard_normal((int(rng.integers(3, 7)), 3))
        least = smallest_radius(points, metric)
        centre_of = tolerance._CENTRES[metric]
        assert centre_of(points, least * (1 + 1e-5), tolerance._Budget())
        assert centre_of(points, least * (1 - 1e-5), tolerance._Budget()) is False


def smallest_radius(points, metric):
    n, d = points.shape
    if metric == "euclidean":
        # The smallest ball is that of some of the points, all at one distance in their span.
        best = np.inf
        for size in range(2, n + 1):
            for own in itertools.combinations(range(n), size):
                sides = points[list(own[1:])] - points[own[0]]
                half = 0.5 * np.vecdot(sides, sides)
                centre = points[own[0]] + np.linalg.pinv(sides) @ half
                best = min(best, np.linalg.norm(points - centre, axis=1).max())
        return best
    cost = np.r_[np.zeros(d + n * d), 1.0]
    rows, limits = [], []
    for i, j, sign in itertools.product(range(n), range(d), (1, -1)):
        row = np.zeros(len(cost))
        row[j], row[d + i * d + j] = sign, -1.0
        rows.append(row)
        limits.append(sign * points[i, j])
    for i in range(n):
        groups = [slice(0, d)] if metric == "manhattan" else [slice(j, j + 1) for j in range(d)]
        for own in groups:
            row = np.zeros(len(cost))
            row[d + i * d : d + (i + 1) * d][own] = 1.0
            row[-1] = -1.0
            rows.append(row)
            limits.append(0.0)
    return linprog(cost, A_ub=rows, b_ub=limits, bounds=(None, None)).fun


def test_sixteen_candidates_are_exact_and_more_may_stop_at_a_bound(monkeypatch):
    rng = np.random.default_rng(2)
    points = rng.standard_normal((16, 12))
    eta = 0.8 * np.median(cdist(points, points))
    full = guesses(points, eta)
    assert full.exact
    # All sets that one ball holds, one by one.
    assert guesses(points[:11], eta).kappa == pytest.approx(brute_kappa(points[:11], eta))
    monkeypatch.setattr(tolerance, "_ENOUGH", 1e6)
    bounded = guesses(points, eta)
    assert not bounded.exact
    assert bounded.kappa >= full.kappa
    assert bounded.kappa == ((cdist(points, points) <= 2 * eta).sum(axis=1) / 16).max()


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
def test_manhattan_radii_are_decided_at_any_scale(scale):
    rng = np.random.default_rng(4)
    for _ in range(5):
        points = rng.standard_normal((6, 4))
        least = smallest_radius(points, "manhattan")
        for factor, held in ((0.99, False), (1.01, True)):
            eta = scale * factor * least
            assert tolerance._manhattan(scale * points, eta, tolerance._Budget()) is held


def test_the_linear_program_decides_alone(monkeypatch):
    """Medians decide most sets, so they are left out."""
    monkeypatch.setattr(tolerance, "_ROUNDS", 0)
    test_radii_of_subsets_are_those_of_a_solver("manhattan")
    for scale in (1e-9, 1.0, 1e6):
        test_manhattan_radii_are_decided_at_any_scale(scale)
    equal = np.zeros((3, 2))
    assert tolerance._manhattan(equal, 0.0, tolerance._Budget()) is True
    assert tolerance._manhattan(equal + np.eye(3, 2), 0.0, tolerance._Budget()) is False


def test_a_hard_search_stops_by_its_operations(monkeypatch):
    """Of thousands of linear programs, a few are solved; half the candidates lie in one ball."""
    points, calls = np.random.default_rng(0).standard_normal((16, 16)), []
    eta = 0.6 * np.median(cdist(points, points, "cityblock")[np.triu_indices(16, 1)])
    solve = tolerance._by_program
    monkeypatch.setattr(tolerance, "MOST_OPERATIONS", 2e8)
    monkeypatch.setattr(tolerance, "_ROUNDS", 1)
    monkeypatch.setattr(tolerance, "_by_program", lambda own: calls.append(0) or solve(own))
    found = guesses(points, eta, "manhattan")
    assert not found.exact
    assert found.kappa >= 0.5
    assert 0 < len(calls) <= 2e8 / 8e6
    again = guesses(points, eta, "manhattan")
    assert (again.kappa, again.hits.tolist()) == (found.kappa, found.hits.tolist())


def test_undecided_sets_raise_kappa_and_are_not_exact(monkeypatch):
    """Three corners at distance one: no ball of radius .55 holds them."""
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
    decided = guesses(corners, 0.55)
    assert (decided.kappa, decided.exact) == (pytest.approx(2 / 3), True)
    monkeypatch.setitem(tolerance._CENTRES, "euclidean", lambda *_: None)
    found = guesses(corners, 0.55)
    assert (found.kappa, found.exact) == (1.0, False)
    # No answer claims to hit what only may lie in one ball.
    assert found.hits.sum(axis=1).max() < 3


def test_centres_that_stop_early_are_undecided(monkeypatch):
    points = np.random.default_rng(5).standard_normal((6, 4))
    for metric in CDIST:
        eta = smallest_radius(points, metric) * (1 + 1e-5)
        assert tolerance._CENTRES[metric](points, eta, tolerance._Budget(1.0)) is None
    monkeypatch.setattr(tolerance, "_by_program", lambda own: None)
    eta = smallest_radius(points, "manhattan") * (1 + 1e-5)
    assert tolerance._manhattan(points, eta, tolerance._Budget()) is None


def brute_kappa(points, eta):
    held, limit, budget = {0}, eta * (1 + 1e-9), tolerance._Budget()
    for mask in range(1, 2 ** len(points)):
        own = [i for i in range(len(points)) if mask >> i & 1]
        smaller = all(mask & ~(1 << i) in held for i in own)
        if smaller and (len(own) == 1 or tolerance._euclidean(points[own], limit, budget)):
            held.add(mask)
    return max(mask.bit_count() for mask in held) / len(points)


def test_persons_and_labels():
    """All records of a person must be hit, each with its label."""
    rows = np.array([[[0.0], [0.0]], [[0.0], [2.0]], [[1.0], [1.0]]])
    gaps = np.array([[0.0, 2.0, 1.0], [2.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
    weights = np.array([0.2, 0.3, 0.5])
    assert guesses_within(rows, gaps, weights, 0.5, "euclidean").kappa == pytest.approx(0.8)
    assert guesses_within(rows, gaps, weights, 1.0, "euclidean").kappa == pytest.approx(1.0)
    gaps[2, :2] = gaps[:2, 2] = np.inf  # another label
    assert guesses_within(rows, gaps, weights, 1.0, "euclidean").kappa == pytest.approx(0.5)


def test_an_audit_answers_between_the_candidates():
    """Blind guesses succeed where they do, and the certificate is above every attack."""
    rng = np.random.default_rng(0)
    centre = np.eye(1, 12)[0] * 0.5
    ring = rng.standard_normal((10, 12))
    ring *= 0.2 / np.linalg.norm(ring, axis=1, keepdims=True)
    X = np.vstack([centre + ring, 0.3 * rng.standard_normal((80, 12))])
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    y = np.r_[np.zeros(10, dtype=int), np.arange(80) % 2]
    public, labels = (centre + ring)[:, :], np.zeros(10, dtype=int)
    head = BallDPRidgePrototype(1.0, 1e-5, radius=1.0)
    options = {"n_candidates": 10, "n_supports": 1, "random_state": 0, "support": "nearest"}
    loose = ReconstructionAuditor(head, eta=0.21, **options).fit(
        X[10:], y[10:], X_public=public, y_public=labels
    )
    assert loose.baseline_ == loose.certificate_["direct"] == loose.success_rate_ == 1.0
    tight = ReconstructionAuditor(head, eta=0.12, **options).fit(
        X[10:], y[10:], X_public=public, y_public=labels
    )
    assert tight.baseline_ < 1.0
    assert tight.certificate_["bayes"] >= tight.baseline_ - 0.03
    assert bool(tight.supports_["kappa_is_exact"].all())
