"""Certificates: check values, endpoints, their order, and brute force.

Tests of randomness here reject correct code with probability below 1e-9 each.
"""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import ndtr, ndtri

from sklearn_balldp import BallDPLinearDiscriminant, BallDPLogisticRegression, BallDPRidgePrototype
from sklearn_balldp.audit.attacks import Candidates, normalised, simulated
from sklearn_balldp.audit.certificates import (
    check_prior,
    enclosing_ball,
    epsilon_from_certificate,
    mu_from_certificate,
    rero_bound,
    rero_bound_dp,
    scaled_models,
    span_coordinates,
    support_bound,
)
from sklearn_balldp.heads.inspection import records_of
from sklearn_balldp.mechanisms import MeanGradient, Records
from sklearn_balldp.privacy.gaussian import epsilon_from_mu, gaussian_power, mu_from_budget


def error_of(n_draws):
    """Hoeffding: a mean of numbers in [0, 1] errs by more once in 10^10 times."""
    return math.sqrt(math.log(2e10) / (2.0 * n_draws))


def best_attack(models, sigma, prior=None, n_draws=100_000, seed=0, near=None):
    """Its success, as audits estimate it: the mean of what is most probable."""
    points, rng = span_coordinates(scaled_models(models, sigma)), np.random.default_rng(seed)
    prior = check_prior(prior, len(points))
    truths = rng.choice(len(points), size=n_draws, p=prior)
    with np.errstate(divide="ignore"):
        posterior = np.exp(normalised(simulated(points, truths, rng) + np.log(prior)))
    return (posterior if near is None else posterior @ near.T).max(axis=1).mean()


@pytest.mark.parametrize("kappa", [1e-4, 0.1, 0.5, 0.99])
@pytest.mark.parametrize("mu", [0.01, 1.0, 2.5])
def test_rdp_is_the_best_order_and_direct_is_below(kappa, mu):
    orders = 1 + np.logspace(-6, 6, 200_001)
    values = np.exp(
        (np.log(kappa) + orders * mu**2 / 2) * (orders - 1) / orders,
        where=orders * mu**2 < 1000,
        out=np.full(len(orders), np.inf),
    )
    best = rero_bound(kappa, mu, method="rdp")
    assert best == pytest.approx(min(1, values.min()), rel=1e-5)
    direct, epsilon = rero_bound(kappa, mu), epsilon_from_mu(mu, 1e-6)
    assert kappa <= direct <= min(best, rero_bound_dp(kappa, epsilon, 1e-6)) * (1 + 1e-12)


def test_endpoints():
    for method in ("direct", "rdp"):
        assert rero_bound(0, 1.0, method=method) == 0
        assert rero_bound(1, 1.0, method=method) == 1
        assert rero_bound(0.3, 0.0, method=method) == pytest.approx(0.3)
        assert rero_bound(0.3, math.inf, method=method) == 1
    assert rero_bound_dp(0, 5, 1e-6) == 1e-6
    assert rero_bound_dp(1, 0, 1e-6) == 1
    assert rero_bound_dp(0.1, 1e9, 0) == 1
    assert rero_bound_dp(0.1, 0, 0.01) == pytest.approx(0.11)


def test_calibration_to_a_stated_risk():
    for gamma, kappa in [(0.2, 0.1), (0.999, 1e-4), (0.5, 0.499999), (1e-3, 1e-9)]:
        mu = mu_from_certificate(gamma, kappa)
        assert rero_bound(kappa, mu) <= gamma
        assert rero_bound(kappa, mu * (1 + 1e-6) + 1e-9) > gamma
        if gamma - kappa > 1e-5:
            epsilon = epsilon_from_certificate(gamma, kappa, 1e-6)
            assert rero_bound(kappa, mu_from_budget(epsilon, 1e-6)) <= gamma
            assert mu_from_budget(epsilon * (1 + 1e-6), 1e-6) > mu * (1 - 1e-6)
    # Within a few units of the last place of kappa the only answer may be zero.
    for kappa in (0.05, 0.1, 0.9):
        for step in range(1, 9):
            gamma = kappa + step * math.ulp(kappa)
            assert 0 <= mu_from_certificate(gamma, kappa) < 1e-12
    for gamma, delta in [(0.102, 0.01), (0.1001, 1e-3)]:
        with pytest.raises(ValueError, match=r"delta=.* alone allows"):
            epsilon_from_certificate(gamma, 0.1, delta)
    for gamma, kappa in [(0.1, 0.1), (0.05, 0.1), (1.0, 0.1), (0.2, 0.0)]:
        with pytest.raises(ValueError, match="gamma"):
            mu_from_certificate(gamma, kappa)


def anchor_bound(models, sigma, prior=None, reference=None):
    """The direct bound at the largest distance from a reference, as the auditor states it."""
    points = scaled_models(models, sigma)
    centre = enclosing_ball(points)[0]
    if reference is not None:
        *points, centre = scaled_models(np.concatenate([models, reference[None]]), sigma)
    kappa = 1 / len(models) if prior is None else np.max(prior)
    return gaussian_power(kappa, np.linalg.norm(points - centre, axis=1).max())


def random_support(rng, m, spread):
    models = rng.standard_normal((m, 4, 3)) * spread
    sigma = rng.uniform(0.5, 2.0, size=(4, 1))
    return models, sigma, rng.dirichlet(np.full(m, 2.0))


@pytest.mark.parametrize("m", [2, 10])
@pytest.mark.parametrize("spread", [0.05, 2.0])
def test_order_of_the_bounds(m, spread):
    rng = np.random.default_rng(m)
    for _ in range(5):
        models, sigma, prior = random_support(rng, m, spread)
        bayes = best_attack(models, sigma, prior, 20_000, rng)
        low = bayes - error_of(20_000)
        support = support_bound(models, sigma, prior)
        anchor = anchor_bound(models, sigma, prior)
        assert low <= support <= anchor * (1 + 1e-9)
        reference = models[0]
        at_first = support_bound(models, sigma, prior, reference)
        assert low <= at_first <= anchor_bound(models, sigma, prior, reference) * (1 + 1e-9)
        assert support >= prior.max() * (1 - 1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_support_bound_equals_brute_force(seed):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 7))
    models, sigma, prior = random_support(rng, m, rng.choice([0.1, 0.5, 1.5]))
    if seed % 3 == 0:
        models[1] = models[0]
    reference = models[0]
    scaled = scaled_models(models, sigma)
    d = np.linalg.norm(scaled - scaled[0], axis=1)

    def negative(q):
        q = np.clip(q, 1e-15, 1 - 1e-15)
        return -np.sum(prior * ndtr(ndtri(q) + d))

    best = -math.inf
    for start in [np.full(m, 1 / m), prior, *rng.dirichlet(np.ones(m), size=6)]:
        result = minimize(
            negative,
            start,
            method="SLSQP",
            bounds=[(0, 1)] * m,
            constraints={"type": "ineq", "fun": lambda q: 1 - q.sum()},
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        if result.x.sum() <= 1 + 1e-9:
            best = max(best, -result.fun)
    assert support_bound(models, sigma, prior, reference) == pytest.approx(best, abs=1e-6)


def test_bounds_are_exact_for_two_candidates():
    """Two candidates at distance d: Bayes success is Phi(d/2), and so are the ball bounds."""
    models, exact = np.array([[0.0], [1.3]]), ndtr(0.65)
    assert anchor_bound(models, 1.0) == pytest.approx(exact, rel=1e-6)
    assert support_bound(models, 1.0) == pytest.approx(exact, rel=1e-6)
    assert best_attack(models, 1.0) == pytest.approx(exact, abs=error_of(100_000))
    # Doubling the noise halves the distance: a forgotten scale would show.
    assert support_bound(models, 2.0) == pytest.approx(ndtr(0.325), rel=1e-6)
    # Very loud noise, and many identical candidates, teach nothing; very little tells all.
    many = np.random.default_rng(0).standard_normal((5_000, 3))
    for known, sigma, expected in (
        (many, 1e9, 1 / 5_000),
        (0 * many, 1.0, 1 / 5_000),
        (many, 1e-9, 1),
    ):
        for bound in (support_bound, anchor_bound):
            assert bound(known, sigma) == pytest.approx(expected, rel=1e-6)


def test_block_noise_is_measured_in_its_own_units():
    models = np.zeros((2, 2, 3))
    models[1, 0, 0], models[1, 1, 1] = 3.0, 4.0
    scaled = scaled_models(models, np.array([[1.0], [2.0]]))
    assert np.linalg.norm(scaled[0] - scaled[1]) == pytest.approx(math.sqrt(9 + 4))
    with pytest.raises(ValueError, match="without noise"):
        scaled_models(models, np.array([[1.0], [0.0]]))
    models[1, 1] = 0
    assert scaled_models(models, np.array([[1.0], [0.0]])).shape == (2, 3)


@pytest.mark.parametrize("tolerant", [False, True])
def test_simulation_is_the_best_attack(success_interval, tolerant):
    """Counting the successes of the best decoder gives the same probability."""
    rng = np.random.default_rng(0)
    models, sigma, prior = random_support(rng, 6, 0.4)
    near = np.abs(np.subtract.outer(range(6), range(6))) <= int(tolerant)
    estimate = best_attack(models, sigma, prior, seed=1, near=near if tolerant else None)
    points, n = scaled_models(models, sigma), 40_000
    truth = rng.choice(6, size=n, p=prior)
    released = points[truth] + rng.standard_normal((n, points.shape[1]))
    logs = np.log(prior) - ((released[:, None] - points) ** 2).sum(axis=2) / 2
    masses = np.exp(logs - logs.max(axis=1, keepdims=True)) @ near
    low, high = success_interval(np.count_nonzero(near[truth, masses.argmax(axis=1)]), n)
    assert low - error_of(100_000) <= estimate <= high + error_of(100_000)
    if tolerant:
        assert estimate > best_attack(models, sigma, prior, seed=1)


def test_enclosing_ball_covers_and_is_small():
    rng = np.random.default_rng(0)
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float)
    centre, radius = enclosing_ball(corners + 5)
    assert radius == pytest.approx(math.sqrt(3), rel=1e-3)
    points = rng.standard_normal((40, 7))
    centre, radius = enclosing_ball(points)
    distances = np.linalg.norm(points - centre, axis=1)
    assert distances.max() <= radius * (1 + 1e-12)
    assert radius >= np.linalg.norm(points[:, None] - points, axis=2).max() / 2
    better = minimize(
        lambda c: np.linalg.norm(points - c, axis=1).max(),
        centre,
        method="Nelder-Mead",
        options={"maxfev": 20_000, "xatol": 1e-9},
    )
    assert radius <= better.fun * 1.002


def test_errors():
    for call, match in (
        (lambda: rero_bound(0.1, 1.0, method="best"), "method"),
        (lambda: rero_bound(1.1, 1.0), "blind guess"),
        (lambda: rero_bound_dp(-0.1, 1.0, 0.0), "kappa"),
        (lambda: rero_bound_dp(0.1, -1.0, 0.0), "epsilon"),
        (lambda: support_bound(np.eye(3), 1.0, [0.5, 0.5]), "prior"),
        (lambda: support_bound(np.eye(3), -1.0), "sigma"),
    ):
        with pytest.raises(ValueError, match=match):
            call()


def attack_on(head, X, y, rows, codes):
    """Success of the best attack on candidates in the place of the first record."""
    head.fit(X, y)
    released, records = head.released_, records_of(head, X, y)
    query, problem = released.bound, released.problem
    candidates = Candidates(problem, records.without([0]), rows[:, None], codes[:, None])
    (values,) = candidates.values([query])
    return best_attack(values, query.scales(problem), n_draws=200_000)


def a_record_among_others():
    rng = np.random.default_rng(0)
    X = 0.1 * rng.standard_normal((40, 6))
    return X, np.arange(40) % 2


@pytest.mark.parametrize("n", [2, 6, 12])
def test_no_candidate_is_further_than_b_from_the_zero_record(n):
    """Opposite candidates come near the certificate at B; the one at 2 B would say far more."""
    X, y = a_record_among_others()
    rows = np.vstack([np.eye(6), -np.eye(6)])[[0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11]][:n]
    head = BallDPRidgePrototype(8.0, 1e-5, radius=0.5, counts="min")
    best = attack_on(head, X, y, rows, np.zeros(n, dtype=int))
    stated = head.release_.certificate(1 / n, 2.0)
    assert stated == pytest.approx(head.release_.certificate(1 / n, 1.0), rel=1e-12)
    assert best <= stated + 0.003
    assert best >= (0.99 if n == 2 else 0.6) * stated
    assert stated < gaussian_power(1 / n, head.release_.guarantee(2.0).mu)
    # On the sphere the zero record is none.
    other = BallDPLinearDiscriminant(2.0, 1e-5, radius=0.5, domain="sphere").fit(X, y).release_
    assert other.certificate(1 / n, 2.0) == gaussian_power(1 / n, other.guarantee(2.0).mu)


@pytest.mark.kills("privacy/release.py", ".norm_bound / modulus,", ".norm_bound / 1.05 / modulus,")
def test_other_units_of_the_radius():
    X, y = a_record_among_others()
    for metric, far in (("manhattan", 2.4), ("chebyshev", 0.9)):
        head = BallDPRidgePrototype(2.0, 1e-5, radius=0.2, metric=metric).fit(X, y)
        euclidean = BallDPRidgePrototype(2.0, 1e-5, radius=0.2).fit(X, y).release_
        own = head.release_
        scale = np.max(euclidean.sigma) / np.max(own.sigma)
        at_b = euclidean.guarantee(1.0).mu * scale
        assert own.guarantee_of_candidates(far).mu == pytest.approx(at_b, rel=1e-6)
        assert own.guarantee_of_candidates(0.1).mu == own.guarantee(0.1).mu
        # It states what two data sets at that distance are hidden by, not those of two candidates.
        held = own.guarantee_of_candidates(far)
        assert held.mu == own.guarantee(held.radius).mu
        assert held.radius < far


@pytest.mark.kills("privacy/release.py", '(asked.labels == "public" or alone)', "True")
def test_a_record_of_another_label_is_next_to_all_of_one_label():
    """With labels protected the certificate for candidates of one label holds at any distance."""
    X, y = a_record_among_others()
    options = {"protect_labels": True, "classes": [0, 1], "radius": 0.5}
    for head in (
        BallDPRidgePrototype(8.0, 1e-5, **options),
        BallDPLinearDiscriminant(8.0, 1e-5, **options),
        BallDPLogisticRegression(8.0, 1e-5, mechanism="output", alpha=0.1, **options),
        BallDPLogisticRegression(8.0, 1e-5, **options),
    ):
        release = head.fit(X, y).release_
        declared = release.certificate(0.1)
        for radius in (0.5, 1.0, 2.0):
            assert release.certificate(0.1, radius, "public") <= declared
            assert release.certificate(0.1, radius) == declared
            # Two records may agree in one label and differ in the other.
            two = release.certificate(0.1, records=2)
            assert release.certificate(0.1, radius, "public", 2) <= two
            held = release.guarantee_of_candidates(radius, records=2)
            assert held.radius == pytest.approx(min(radius, 1.0))
    head = BallDPRidgePrototype(8.0, 1e-5, **options)
    rows = np.array([np.eye(6)[0], -np.eye(6)[0]])
    best = attack_on(head, X, y, rows, np.array([0, 0]))
    assert best <= head.release_.certificate(0.5, 2.0, "public") + 0.003
    # Two labels, the same row: a label change itself, which the certificate reaches.
    best = attack_on(head, X, y, rows[[0, 0]], np.array([0, 1]))
    assert 0.45 < best <= head.release_.certificate(0.5, 2.0) + 0.003


def test_answers_of_several_labels_lie_in_a_ball_of_one_move():
    """A search for candidates of two labels whose answers no point is as near to as one move."""
    n = 3

    def outside(flat):
        own, others = np.split(flat.reshape(n, 2), [n // 2])
        across = np.linalg.norm(own[:, None] - others, axis=2).max()
        return -enclosing_ball(flat.reshape(n, 2) / across, 100)[1]

    rng = np.random.default_rng(n)
    starts = rng.standard_normal((2, 2 * n))
    best = min(minimize(outside, s, method="Nelder-Mead").fun for s in starts)
    # The ball is found to a few percent.
    assert 0.7 < -best <= 1.03
    # No smaller number would do: two of one label, and one of another halfway between.
    best = best_attack([[-0.8], [0.8], [0.0]], 1.0, [0.5, 0.5, 0.0])
    assert best == pytest.approx(gaussian_power(0.5, 0.8), abs=0.01)


@pytest.mark.parametrize("clip", [None, 0.3])
def test_attacks_on_candidates_of_every_label_at_any_distance(clip):
    """The best attack on answers at public parameters of any length, and the number."""
    X, y = a_record_among_others()
    rng = np.random.default_rng(0)
    head = BallDPLogisticRegression(20.0, 1e-5, radius=0.1, protect_labels=True, classes=[0, 1])
    problem = head.fit(X, y).released_.problem
    directions = np.vstack([np.eye(6)[:2], -np.eye(6)[:2]])
    rows, codes = np.tile(directions, (2, 1)), np.repeat([0, 1], 4)
    for scale in (0.0, 1.0, 5.0, 30.0):
        theta = scale * rng.standard_normal((1, 6))
        query = MeanGradient(theta, clip=clip).calibrated(problem, 2.0)
        (values,) = MeanGradient.together([query], problem, Records(rows, codes), each=True)
        best = best_attack(values, query.scales(problem))
        assert best <= gaussian_power(1 / 8, 2.0) + 0.005
