"""What is chosen from public numbers: the mechanism, its alpha, and the settings of a descent."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from sklearn_balldp import BallDPLogisticRegression, BallDPSquaredHingeSVC, OutputPerturbation
from sklearn_balldp.losses import make_loss
from sklearn_balldp.mechanisms.settings import LEAST_ALPHA, PRECISE, settings_of
from sklearn_balldp.privacy.gaussian import mu_from_budget
from sklearn_balldp.privacy.problem import Problem

HEADS = [BallDPLogisticRegression, BallDPSquaredHingeSVC]


def problem(**given):
    public = {"n_samples": 5000, "n_features": 384, "n_classes": 6, "radius": 0.3}
    public |= {"class_counts": (900, 900, 900, 900, 900, 500), "alpha": math.nan}
    return Problem(**{**public, "loss": "softmax", "fit_intercept": True, **given})


@pytest.mark.kills("heads/linear.py", "GradientPerturbation() if", "OutputPerturbation() if")
@pytest.mark.parametrize(("Head", "k"), [(HEADS[0], 3), (HEADS[1], 2)])
def test_auto_is_noise_on_gradients(Head, k):
    """However little noise there is, and whatever alpha: a search over it keeps the algorithm."""
    for epsilon, alpha in itertools.product((1.0, 20.0, 1e8), (None, 0.0, 1e-3, 0.5)):
        planned = Head(epsilon, radius=0.1, alpha=alpha).plan(600, 6, [600 // k] * k).release
        assert (planned.mechanism, planned.alpha) == ("gradient", alpha or 0.0)


@pytest.mark.parametrize(
    ("loss", "k", "labels"), [("softmax", 6, "public"), ("squared_hinge", 2, "protected")]
)
def test_default_alpha_keeps_the_noise_small(loss, k, labels):
    mechanism, alphas = OutputPerturbation(), []
    precise = PRECISE * make_loss(loss, k).score_unit
    for epsilon in (0.5, 1e6):
        given = problem(loss=loss)
        if labels == "protected":
            given = dataclasses.replace(given, class_counts=None, n_classes=k)
        budget = mu_from_budget(epsilon, 1e-6)
        alpha = mechanism.alpha_for(given, budget)
        own = dataclasses.replace(given, alpha=alpha)
        sigma = mechanism.bound(own, budget).sigma
        least = alpha == LEAST_ALPHA / 5000
        # The tolerance of the solver adds a thousandth.
        assert sigma <= 1.003 * precise or alpha == 1.0
        assert least or alpha == 1.0 or sigma >= 0.99 * precise
        alphas.append(alpha)
    assert (np.diff(alphas) <= 0).all()
    assert alphas[0] > 10 * alphas[1]


def test_scale_of_the_rows_changes_nothing():
    mechanism, budget = OutputPerturbation(), mu_from_budget(4.0, 1e-6)
    no_intercept = problem(fit_intercept=False)
    for scale in (1e-3, 50.0):
        scaled = dataclasses.replace(no_intercept, norm_bound=scale, radius=0.3 * scale)
        # alpha is in units of squared norm: B theta is what stays.
        own = dataclasses.replace(no_intercept, alpha=0.01)
        other = dataclasses.replace(scaled, alpha=0.01 * scale**2)
        assert mechanism._noise(other, budget) == pytest.approx(mechanism._noise(own, budget))
        given = {"start": "statistics", "n_steps": None, "learning_rate": None}
        assert settings_of(scaled, 0.4, **given) == settings_of(no_intercept, 0.4, **given)


@pytest.mark.parametrize(
    ("n", "d", "k", "epsilon", "radius", "start"),
    [
        (1347, 64, 10, 0.25, 1.2, "mean"),
        (1347, 64, 10, 1.0, 1.2, "sums"),
        (1347, 64, 10, 2.0, 2.0, "mean"),
        (3000, 384, 77, 0.5, 1.2, "mean"),
        (3000, 384, 77, 0.25, 0.6, "sums"),
        (5452, 384, 6, 2.0, 2.0, "sums"),
        (1500, 384, 2, 0.5, 2.0, "mean"),
    ],
)
def test_the_mean_takes_the_place_of_sums_that_hide_too_much(n, d, k, epsilon, radius, start):
    given = {"start": "auto", "n_steps": None, "learning_rate": None}
    public = {"n_samples": n, "n_features": d, "n_classes": k, "radius": radius}
    public |= {"class_counts": (n // k + n % k, *(k - 1) * (n // k,))}
    own = problem(**public | {"loss": "softmax" if k > 2 else "logistic"})
    mu = mu_from_budget(epsilon, 1e-6)
    chosen = settings_of(own, mu, **given)
    assert chosen.start == start
    if radius == 2.0:
        # A label change spans any distance: the stronger promise chooses alike.
        hidden = dataclasses.replace(own, class_counts=None, sums_weights=None)
        assert settings_of(hidden, mu, **given).start == start
    margins = settings_of(dataclasses.replace(own, loss="squared_hinge"), mu, **given)
    assert margins.start == (start if k == 2 else "sums")
    for lacks in (dataclasses.replace(own, fit_intercept=False), own):
        assert settings_of(lacks, mu, **given, needs_sums=lacks is own).start == "sums"
