"""The (epsilon, delta) <-> mu calibration against a 60-digit oracle."""

import math

import mpmath
import numpy as np
import pytest
from scipy.special import ndtri

from sklearn_balldp.audit.certificates import mu_from_certificate
from sklearn_balldp.privacy.gaps import minimizer_norm_bound
from sklearn_balldp.privacy.gaussian import (
    compose,
    delta_from_mu,
    epsilon_from_mu,
    gaussian_power,
    mu_from_budget,
)
from sklearn_balldp.privacy.guarantee import Guarantee

EPSILONS = [10 ** (-3 + 6 * i / 17) for i in range(18)]
DELTAS = [10 ** (-2 - 2 * i) for i in range(7)]


def true_delta(mu, epsilon):
    """Textbook form of the profile in enough digits that its cancellation does not matter."""
    with mpmath.workdps(60 + int(epsilon)):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        phi = lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2  # noqa: E731
        return phi(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * phi(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("delta", DELTAS)
def test_calibration_is_conservative_and_tight(delta):
    for epsilon in EPSILONS:
        ratio = true_delta(mu_from_budget(epsilon, delta), epsilon) / mpmath.mpf(delta)
        assert 0.999 <= ratio <= 1, (epsilon, delta, ratio)


@pytest.mark.parametrize("epsilon", [1e4, 1e6, 1e9])
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-15])
def test_calibration_at_huge_epsilon(epsilon, delta):
    mu = mpmath.mpf(mu_from_budget(epsilon, delta))
    with mpmath.workdps(60):
        u = mpmath.mpf(epsilon) / mu - mu / 2
        mills = lambda x: mpmath.exp(x * x / 2) * mpmath.erfc(x / mpmath.sqrt(2))  # noqa: E731
        # e^eps phi(v) = phi(u); M(v) through its asymptotic series (v > 100).
        v = u + mu
        tail = sum((-1) ** k * mpmath.fac2(2 * k - 1) / v ** (2 * k + 1) for k in range(6))
        exact = mpmath.exp(-u * u / 2) * (mills(u) / 2 - tail / mpmath.sqrt(2 * mpmath.pi))
        assert 0.999 <= exact / mpmath.mpf(delta) <= 1


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 1e-3, 0.5, 3.0, 40.0, 900.0])
@pytest.mark.parametrize("mu", [1e-8, 1e-4, 0.05, 0.0999, 0.1001, 0.7, 3.0, 12.0, 70.0])
def test_profile_matches_oracle(mu, epsilon):
    exact = true_delta(mu, epsilon)
    if exact < mpmath.mpf("1e-300"):
        assert delta_from_mu(mu, epsilon) <= 1e-299
    else:
        assert abs(delta_from_mu(mu, epsilon) / exact - 1) < 1e-10


@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-15])
@pytest.mark.parametrize("mu", [1e-3, 0.02, 0.3, 1.5, 9.0, 80.0, 1e4])
def test_epsilon_is_the_inverse_and_rounds_up(mu, delta):
    epsilon = epsilon_from_mu(mu, delta)
    assert delta_from_mu(mu, epsilon) <= delta
    if epsilon > 0:
        assert delta_from_mu(mu, epsilon * (1 - 1e-7)) > delta
        assert mu_from_budget(epsilon, delta) == pytest.approx(mu, rel=1e-7)


def test_endpoints():
    assert delta_from_mu(0, 1) == 0
    assert delta_from_mu(math.inf, 1) == 1
    assert epsilon_from_mu(0, 1e-6) == 0
    assert epsilon_from_mu(math.inf, 1e-6) == math.inf
    assert mu_from_budget(1.0, 1 - 1e-16) > 8
    # At zero epsilon delta is the total variation.
    assert epsilon_from_mu(0.01, 0.1) == 0
    assert math.erf(mu_from_budget(0, 1e-3) / math.sqrt(8)) == pytest.approx(1e-3, rel=1e-8)
    # Extremes are answered or refused.
    with pytest.raises(ValueError, match="epsilon"):
        mu_from_budget(1.7e308, 1e-6)
    assert epsilon_from_mu(1e60, 1e-6) == pytest.approx(5e119)
    for mus, mu in (([], 0), ([0.3], 0.3), ([1, math.inf], math.inf), ([3, 4], 5)):
        assert compose(mus) == pytest.approx(mu)
    for arguments, power in (((0, 3), 0), ((1, 3), 1), ((0.2, math.inf), 1), ((0, math.inf), 1)):
        assert gaussian_power(*arguments) == power


def true_power(level, mu):
    """Phi(Phi^-1(level) + mu), with the quantile by Newton's method on the nearer tail."""
    level, quantile = mpmath.mpf(level), mpmath.mpf(float(ndtri(level)))
    side = -1 if level < 0.5 else 1
    for _ in range(5):
        tail = mpmath.erfc(side * quantile / mpmath.sqrt(2)) / 2
        error = mpmath.log(tail / (level if side < 0 else 1 - level))
        quantile += side * error * tail / mpmath.npdf(quantile)
    return mpmath.erfc(-(quantile + mpmath.mpf(mu)) / mpmath.sqrt(2)) / 2


@pytest.mark.kills("privacy/gaussian.py", "(ndtr(quantile + mu)) * up", "(ndtr(quantile + mu))")
def test_what_an_attacker_gains_is_rounded_up():
    """No digit of power, advantage or accepted risk is to the attacker's side of the truth."""
    rng = np.random.default_rng(0)
    with mpmath.workdps(40):
        for _ in range(150):
            mu = 10 ** rng.uniform(-12, 1)
            for level in (10 ** rng.uniform(-200, 0), rng.uniform(), 1 - 10 ** rng.uniform(-15, 0)):
                exact, power = true_power(level, mu), gaussian_power(level, mu)
                assert exact <= power <= min(1, exact * (1 + mpmath.mpf("2e-12")))
                if level > 1e-3:
                    assert power <= exact * (1 + mpmath.mpf("2e-13"))
            guarantee = Guarantee(0.5, mu, 1.0, 1e-6, "public", True)
            exact = mpmath.erf(mpmath.mpf(mu) / mpmath.sqrt(8))
            assert exact <= guarantee.advantage <= min(1, exact * (1 + mpmath.mpf("3e-15")))
            kappa = 10 ** rng.uniform(-9, 0)
            gamma = kappa + rng.uniform() * (1 - kappa)
            assert true_power(kappa, mu_from_certificate(gamma, kappa)) <= gamma
    assert Guarantee(0.5, 0.0, 0.0, 1e-6, "public", True).advantage == 0.0
    assert Guarantee(0.5, math.inf, math.inf, 1e-6, "public", True).advantage == 1.0
    assert gaussian_power(0.1, 0.0) == 0.1


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_longest_minimisers_are_rounded_up(fit_intercept):
    rng = np.random.default_rng(0)
    with mpmath.workdps(40):
        for _ in range(300):
            alpha, norm, k = (
                10 ** rng.uniform(-9, 3),
                10 ** rng.uniform(-3, 3),
                rng.integers(3, 999),
            )
            B = mpmath.sqrt(mpmath.mpf(norm) ** 2 + fit_intercept)
            for loss, constant, residual in (
                ("logistic", mpmath.lambertw(1 / mpmath.e), 1),
                ("softmax", mpmath.lambertw((int(k) - 1) / mpmath.e), mpmath.sqrt(2)),
                ("squared_hinge", mpmath.mpf(1) / 2, 2),
            ):
                classes = 2 if loss == "logistic" else int(k)
                options = {"alpha": alpha, "norm_bound": norm, "fit_intercept": fit_intercept}
                found = minimizer_norm_bound(loss, n_classes=classes, **options)
                exact = min(mpmath.sqrt(constant.real / mpmath.mpf(alpha)), residual * B / alpha)
                assert exact <= found <= exact * (1 + mpmath.mpf("1e-14"))


def test_errors_name_the_argument():
    for function, arguments, name in (
        (mu_from_budget, (-1, 1e-6), "epsilon"),
        (mu_from_budget, (math.nan, 1e-6), "epsilon"),
        (mu_from_budget, (math.inf, 1e-6), "epsilon"),
        (mu_from_budget, (1, 0), "delta"),
        (mu_from_budget, (1, 1), "delta"),
        (delta_from_mu, (-1, 1), "mu"),
        (epsilon_from_mu, (math.nan, 0.1), "mu"),
        (gaussian_power, (1.5, 1), "blind guess"),
        (compose, ([0.5, -1],), "mu"),
    ):
        with pytest.raises(ValueError, match=name):
            function(*arguments)
