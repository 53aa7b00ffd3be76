"""Bounds: what a mechanism chose, and what it guarantees at every radius, end to end.

Every test of randomness here rejects a correct mechanism with probability below 1e-6.
"""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from sklearn_balldp.mechanisms import (
    DescentBound,
    GradientPerturbation,
    MeanGradient,
    Records,
    drive,
    drive_many,
)
from sklearn_balldp.mechanisms.sums import class_sums
from sklearn_balldp.privacy import Problem, Promised
from sklearn_balldp.privacy.gaussian import delta_from_mu, mu_from_budget

Z = 5.5


def problem_of(loss="logistic", *, n_classes=2, r=0.8, labels="public", n_features=3, n_samples=6):
    half = n_samples // 2
    counts = (half, n_samples - half, *(0,) * (n_classes - 2))
    return Problem(
        n_samples=n_samples,
        n_features=n_features,
        n_classes=n_classes,
        class_counts=counts if labels == "public" else None,
        radius=r,
        loss=loss,
        fit_intercept=True,
    )


def bound_of(problem, n_steps=3, *, mu=1.0, learning_rate=1.0, momentum=0.5, **fields):
    """A descent whose steps are mu-GDP together."""
    given = {"learning_rate": learning_rate, "momentum": momentum, "clip": 0.2, "constant": 0.5}
    bound = DescentBound(n_steps=n_steps, **(given | fields))
    return bound.with_noise(problem, mu) if n_steps else bound


def neighbours(r, n_features=3, n_samples=6):
    """Two datasets that differ in the first row, by r across the first axis."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_samples, n_features))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X[0] = 0.0
    X[0, 0] = r / 2
    other = X.copy()
    other[0, 0] = -r / 2
    return X, other, np.arange(n_samples) % 2


def log_ratios(problem, bound, here, there, n_runs):
    """Log-likelihood ratios of what a descent releases, of the records against their neighbour."""
    rng, ratios = np.random.default_rng(1), np.zeros(n_runs)

    def answer(runs, queries):
        mean = np.array(MeanGradient.together(queries, problem, here))
        moved = np.array(MeanGradient.together(queries, problem, there))
        sigma = np.array([query.sigma for query in queries])[:, None, None]
        noise = sigma * rng.standard_normal(mean.shape)
        change = (moved - mean - noise) / sigma
        ratios[runs] += 0.5 * (change**2).sum(axis=(1, 2))
        ratios[runs] -= 0.5 * ((noise / sigma) ** 2).sum(axis=(1, 2))
        return list(mean + noise)

    mechanism = GradientPerturbation()
    drive_many([mechanism.conversation(problem, bound) for _ in range(n_runs)], answer)
    return ratios


@pytest.mark.parametrize(
    ("loss", "n_steps", "learning_rate", "clip"),
    [("logistic", 1, 1.0, 0.2), ("squared_hinge", 5, 0.0, 0.2)],
)
def test_worst_pair_at_zero_spends_mu_exactly(loss, n_steps, learning_rate, clip):
    """One step, or iterates that stay: L is N(mu^2/2, mu^2), neither more nor less."""
    r, mu, n_runs = 1.6, 0.7, 4_000
    problem = problem_of(loss, r=r)
    bound = bound_of(problem, n_steps, mu=mu, clip=clip, learning_rate=learning_rate)
    X, other, y = neighbours(r)
    ratios = log_ratios(problem, bound, Records(X, y), Records(other, y), n_runs)
    assert stats.kstest((ratios - mu**2 / 2) / mu, "norm").pvalue > 1e-7
    # A tenth of mu, from the mean.
    assert ratios.mean() == pytest.approx(mu**2 / 2, abs=Z * mu / math.sqrt(n_runs))


@pytest.mark.parametrize(
    ("loss", "n_classes", "clip", "labels"),
    [
        ("logistic", 2, 0.3, "protected"),
        ("squared_hinge", 2, 0.5, "public"),
        ("softmax", 3, 0.2, "public"),
    ],
)
def test_whole_transcripts_keep_the_guarantee(loss, n_classes, clip, labels):
    """Iterates that move by much: mean, second moment and privacy profile of L stay below."""
    # Where gaps are quick to find there are more runs.
    r, mu, n_runs = 1.2, 1.2, 2_000 if n_classes > 2 else 5_000
    problem = problem_of(loss, n_classes=n_classes, r=r, labels=labels)
    bound = bound_of(problem, 3, mu=mu, clip=clip, learning_rate=18.0)
    X, other, y = neighbours(r)
    there = Records(other, y)
    if labels == "protected":
        changed = y.copy()
        changed[0] = 1 - y[0]
        X[0] = other[0] = [1.0, 0.0, 0.0]
        there = Records(other, changed)
    ratios = log_ratios(problem, bound, Records(X, y), there, n_runs)

    def mean_with_error(values):
        return values.mean(), Z * values.std() / math.sqrt(n_runs)

    mean, error = mean_with_error(ratios)
    assert mean <= mu**2 / 2 + error
    second, error = mean_with_error(np.exp(ratios))
    assert second <= math.exp(mu**2) + error
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0):
        profile, error = mean_with_error(np.maximum(-np.expm1(epsilon - ratios), 0.0))
        assert profile <= delta_from_mu(mu, epsilon) + error
    # The pair is a bad one: most of the budget is used, so that a bound half as large would show.
    assert mean > 0.3 * mu**2 / 2


LOSSES = [("logistic", 2), ("squared_hinge", 2), ("softmax", 4), ("squared_hinge", 3)]


@pytest.mark.parametrize(("loss", "n_classes"), LOSSES)
@pytest.mark.parametrize("labels", ["public", "protected"])
@pytest.mark.parametrize("near", [0.02, 0.5, 1.6])
@pytest.mark.kills("mechanisms/descent.py", "radius / problem.diameter", "1.0")
@pytest.mark.kills("mechanisms/descent.py", "radius / problem.diameter, self", "0.0, self")
def test_growth_is_that_of_the_worst_norm_of_rows(loss, n_classes, labels, near):
    """A run has one map, whose norm sums decide: the largest ratio of all, and no more."""
    problem = problem_of(loss, n_classes=n_classes, n_features=8, r=near, labels=labels)
    for least, constant in itertools.product((0.3, 0.7), (0.0, 0.15, 2.0)):
        bound = bound_of(problem, least_reach=least, constant=constant)
        norms = np.linspace(least, 1.0, 400)
        near_gaps = np.array([bound.gap(problem, near, labels, norm) for norm in norms])
        for far in (0.5 * near, 1.1 * near, 2.0 * near, 1.0, 2.0):
            far_gaps = np.array([bound.gap(problem, far, labels, norm) for norm in norms])
            largest = max(float(np.max(far_gaps / near_gaps)), 1.0)
            growth = bound.growth(problem, far, labels)
            # Between two norms of the grid a ratio may be a little larger.
            assert largest <= growth <= largest * (1.0 + 2e-3)
            assert growth <= max(far / near, 1.0) * (1.0 + 1e-8)
            if labels == "protected":
                # Twice the clip times the row, at every radius.
                assert bound.growth(problem, far, "public") <= growth <= 1.0 + 1e-8


RADII = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.3, 2.0)
NEAR = "near = (radius, labels) if self.even_at is None"


@pytest.mark.kills("mechanisms/descent.py", " * self.growth(problem, radius, labels)", "")
@pytest.mark.kills("mechanisms/descent.py", "(self.even_at, problem.labels)", "(1.0, 'public')")
@pytest.mark.kills("mechanisms/descent.py", NEAR, NEAR.replace("radius", "problem.radius"))
@pytest.mark.kills("mechanisms/descent.py", "/ (mu - self._slack(problem))", "/ mu / 1.1")
@pytest.mark.kills("mechanisms/descent.py", "return math.sqrt(self.n_steps) * one", "return one")
@pytest.mark.kills("mechanisms/descent.py", "self.mu_of_steps(problem, radius, labels), ", "")
@pytest.mark.parametrize("reach", [0.3, 1.0])
@pytest.mark.parametrize("labels", ["public", "protected"])
@pytest.mark.parametrize(("loss", "n_classes"), LOSSES)
@pytest.mark.kills(
    "mechanisms/descent.py",
    "sums = 0.0 if self.start is None else self.start.mu(problem, radius, labels)",
    "sums = 0.0",
    attack="descent from sums",
)
def test_what_is_stated_holds_at_every_radius(loss, n_classes, labels, reach):
    """Whatever the answers are, and whichever map they lead to; at the radius it is used up."""
    rng = np.random.default_rng(0)
    problem = problem_of(loss, n_classes=n_classes, r=0.2, n_features=6, labels=labels)
    start = class_sums(problem, 0.5, 1.0) if reach < 1.0 else None
    bound = bound_of(problem, 6, mu=1.1, start=start, least_reach=reach)
    bound.check(problem)
    for size, rate in itertools.product((0.0, 1.0, 1e3, 1e9), (1e-9, 30.0)):
        chosen = dataclasses.replace(bound, learning_rate=rate)
        spent = {t: [] for t in RADII}

        def answer(query, size=size, spent=spent):
            for t in RADII:
                spent[t].append(query.mu(problem, t))
            return size * rng.standard_normal(query.shape(problem))

        drive(GradientPerturbation().conversation(problem, chosen), answer)
        used = {t: math.hypot(*mus) for t, mus in spent.items()}
        assert all(used[t] <= chosen.mu(problem, t) * (1.0 + 1e-12) for t in RADII)
        assert used[0.2] >= 0.999999 * chosen.mu(problem)


@pytest.mark.kills("mechanisms/descent.py", "0.0 if start is None else start.mu(problem)", "0.0")
@pytest.mark.kills("mechanisms/descent.py", "math.sqrt(_LEFT / self.n_steps)", "math.sqrt(_LEFT)")
def test_no_settings_make_the_steps_spend_more_than_mu():
    """Exactly added up: however many steps, and whatever the sums before them take."""
    rng, problem = np.random.default_rng(0), problem_of(r=0.3, n_features=6)
    here = 0.3, "public"
    for _ in range(100):
        bound = bound_of(problem, int(10.0 ** rng.uniform(0, 3.7)), mu=0.9)
        exact = bound.n_steps * Fraction(bound.step_mu(problem, *here)) ** 2
        assert 0.98 * Fraction(0.9) ** 2 <= exact <= Fraction(0.9) ** 2
    for epsilon, n_steps in itertools.product((1e-3, 0.5, 8.0, 300.0), (0, 3, 700)):
        mu = mu_from_budget(epsilon, 1e-6)
        mechanism = GradientPerturbation(start="statistics", n_steps=n_steps)
        assert 0.999999 * mu <= mechanism.bound(problem, mu).mu(problem) <= mu


def test_what_steps_cost_is_rounded_up_at_every_radius():
    problem = problem_of(r=0.3, n_features=6)
    for share in (0.1, 0.9, 1.0 - 1e-9):
        start = class_sums(problem, math.sqrt(share), 1.0)
        steps = math.sqrt(1.0 - share)
        bound = bound_of(problem, 4, mu=steps, start=start, least_reach=0.3)
        for t in (0.1, 0.3, 0.31, 0.6, 2.0):
            one = Fraction(bound.step_mu(problem, 0.3, "public"))
            grown = 4 * one**2 * Fraction(bound.growth(problem, t, "public")) ** 2
            total = grown + Fraction(start.mu(problem, t)) ** 2
            assert Fraction(bound.mu(problem, t)) ** 2 >= total


def sigmas(problem, bound):
    """Noise scales of the steps of one run, whose answers are always the same."""
    rng, scales = np.random.default_rng(0), []

    def answer(query):
        scales.append(query.sigma)
        return rng.standard_normal(query.shape(problem))

    drive(GradientPerturbation().conversation(problem, bound), answer)
    return scales[1:]


@pytest.mark.kills(
    "mechanisms/descent.py", "whitening, self.even_at,", "whitening, problem.euclidean_radius,"
)
@pytest.mark.parametrize("reach", [0.3, 1.0])
@pytest.mark.parametrize("labels", ["public", "protected"])
@pytest.mark.parametrize(("loss", "n_classes"), LOSSES)
def test_what_a_descent_costs_rests_on_its_noise_and_not_on_the_radius_declared(
    loss, n_classes, labels, reach
):
    """Whoever declares another radius for the same noise states the same mu at every one."""
    problem = problem_of(loss, n_classes=n_classes, r=0.7, n_features=6, labels=labels)
    start = class_sums(problem, 0.5, 1.0) if reach < 1.0 else None
    bound = bound_of(problem, 6, start=start, least_reach=reach)
    for r in (0.2, 0.69, 1.0, 1.4, 2.0):
        other = dataclasses.replace(problem, radius=r)
        for t in RADII:
            for of in {labels, "public"}:
                assert bound.mu(other, t, of) == bound.mu(problem, t, of)
        assert bound.mu(other) == bound.mu(problem, r)
        assert sigmas(other, bound) == sigmas(problem, bound)
    twice = dataclasses.replace(bound, sigma=2.0 * bound.sigma)
    assert twice.mu_of_steps(problem, 0.7, labels) == pytest.approx(
        0.5 * bound.mu_of_steps(problem, 0.7, labels), rel=1e-6
    )


@pytest.mark.kills("mechanisms/descent.py", " or self.n_steps == 0:", ":")
def test_a_descent_of_no_steps_costs_what_its_sums_cost():
    problem = problem_of(r=0.3, n_features=6)
    start = class_sums(problem, 1.0, 0.5)
    bound = bound_of(problem, 0, start=start)
    bound.check(problem)
    for t in RADII:
        assert bound.mu(problem, t) == pytest.approx(start.mu(problem, t), rel=1e-12)
    assert bound.stated(problem) == start.stated(problem)
    assert bound.theorem(problem) == start.theorem(problem)
    assert bound.covers(problem, start, 0)
    gradient = MeanGradient(np.zeros((1, 7)), sigma=1e9, clip=bound.clip, constant=bound.constant)
    assert not bound.covers(problem, gradient, 1)
    with pytest.raises(ValueError, match="n_steps=0 needs class sums"):
        bound_of(problem, 0).check(problem)


@pytest.mark.kills("privacy/bounds.py", "steps[1] * _CHAIN_SLACK)", "steps[1] * _CHAIN_SLACK) - 1")
def test_chains_of_substitutions():
    """A promise about unknown queries holds further away by records in between."""
    ball, promised = problem_of(r=0.5), Promised(0.7)
    for t, length in ((0.1, 1), (0.5, 1), (0.5 * (1 + 1e-12), 1), (0.51, 2), (2.0, 4), (9.0, 4)):
        assert promised.mu(ball, t) == length * 0.7
    # On the sphere the records in between lie on an arc, which is longer.
    sphere = dataclasses.replace(ball, domain="sphere")
    for t in (0.7, 1.3, 1.99, 2.0):
        angle, length = 2 * math.asin(t / 2), round(promised.mu(sphere, t) / 0.7)
        assert 2 * math.sin(angle / length / 2) <= 0.5 < 2 * math.sin(angle / (length - 1) / 2)
    assert promised.mu(sphere, 2.0) == 7 * 0.7
    # By way of another label.
    hidden = problem_of(r=0.5, labels="protected")
    assert promised.mu(hidden, 2.0) == promised.mu(hidden, 2.0, "public") == 2 * 0.7
