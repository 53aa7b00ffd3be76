"""Transcripts of noisy gradient descent: the guarantee, end to end and at other radii.

Every test of randomness here rejects a correct mechanism with probability below 1e-6.
"""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from sklearn_balldp.heads.descent import shares_of
from sklearn_balldp.heads.gradients import MeanGradient
from sklearn_balldp.heads.iterates import Iterates, gains
from sklearn_balldp.privacy.bounds import bound_from_dict
from sklearn_balldp.privacy.gaussian import delta_from_mu
from sklearn_balldp.privacy.noise import grid_slack
from sklearn_balldp.privacy.transcript import Descent, TranscriptBound

N_RUNS = 40_000
Z = 5.5


def descent_of(n_steps, learning_rate, momentum, clip, averaging):
    averaged = max(1, round(averaging * n_steps))
    shares = shares_of(n_steps, momentum, averaged)
    return Descent(learning_rate, momentum, clip, averaged, shares)


def bound_of(
    loss="logistic",
    *,
    n_samples=6,
    n_features=3,
    n_scores=1,
    n_steps=3,
    mu=1.0,
    r=0.8,
    clip=0.2,
    labels="public",
    constant=0.5,
    learning_rate=1.0,
):
    return TranscriptBound(
        loss=loss,
        n_samples=n_samples,
        n_features=n_features,
        n_classes=max(2, n_scores),
        norm_bound=1.0,
        constant=constant,
        labels=labels,
        promised_radius=r,
        promised_mu=mu,
        descent=descent_of(n_steps, learning_rate, 0.5, clip, 0.5),
    )


def neighbours(r, n_features=3, n_samples=6):
    """Two datasets that differ in the first row, by r across the first axis."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_samples, n_features))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.arange(n_samples) % 2
    X[0] = 0.0
    X[0, 0] = r / 2
    other = X.copy()
    other[0, 0] = -r / 2
    return X, other, y


def log_ratios(bound, X, other, y, n_runs=N_RUNS, label=None):
    """Log-likelihood ratios of transcripts of ``X`` against ``other``, by the shipped parts."""
    rng = np.random.default_rng(1)

    def gradients(rows, codes):
        settings = {"norm_bound": 1.0, "constant": bound.constant, "clip": bound.descent.clip}
        return MeanGradient(bound.loss, rows, codes, bound.n_classes, **settings)

    here, there = gradients(X, y), gradients(other, y if label is None else label)
    iterates = Iterates(n_runs, bound, 0.0)
    ratios = np.zeros(n_runs)
    for number in range(bound.descent.n_steps):
        thetas = iterates.thetas
        distinct = thetas if np.ptp(thetas, axis=0).any() else thetas[:1]
        sigma = np.array([bound.step(t, number, here.rounding(t))[1] for t in distinct])
        sigma = sigma[:, None, None]
        mean, moved = here(thetas), there(thetas)
        noise = sigma * rng.standard_normal(mean.shape)
        change = (moved - mean - noise) / sigma
        ratios += 0.5 * (change**2).sum(axis=(1, 2))
        ratios -= 0.5 * ((noise / sigma) ** 2).sum(axis=(1, 2))
        iterates.advance(mean + noise)
    return ratios


@pytest.mark.parametrize(
    ("loss", "n_steps", "learning_rate", "clip"),
    [
        ("logistic", 1, 1.0, 0.2),
        ("logistic", 5, 0.0, None),
        ("squared_hinge", 1, 1.0, None),
        ("squared_hinge", 5, 0.0, 0.2),
    ],
)
def test_worst_pair_at_zero_spends_mu_exactly(loss, n_steps, learning_rate, clip):
    """One step, or iterates that stay: L is N(mu^2/2, mu^2), neither more nor less."""
    r, mu = 0.8, 0.7
    bound = bound_of(loss, n_steps=n_steps, mu=mu, r=r, clip=clip, learning_rate=learning_rate)
    X, other, y = neighbours(r)
    ratios = log_ratios(bound, X, other, y)
    assert stats.kstest((ratios - mu**2 / 2) / mu, "norm").pvalue > 1e-7
    # Three decimals of mu, from the mean.
    assert ratios.mean() == pytest.approx(mu**2 / 2, abs=Z * mu / math.sqrt(N_RUNS))


@pytest.mark.parametrize(
    ("loss", "n_scores", "clip", "labels"),
    [
        ("logistic", 1, 0.2, "public"),
        ("logistic", 1, 0.3, "protected"),
        ("squared_hinge", 1, 0.5, "public"),
        ("softmax", 3, 0.2, "public"),
        ("softmax", 3, 0.5, "protected"),
    ],
)
def test_whole_transcripts_keep_the_guarantee(loss, n_scores, clip, labels):
    """Iterates that move by much: mean, second moment and privacy profile of L stay below."""
    # Where gaps are quick to find there are more runs.
    r, mu, n_steps, n_runs = 1.2, 1.2, 3, 5_000 if n_scores > 1 else 20_000
    public = {"n_scores": n_scores, "n_steps": n_steps, "clip": clip, "labels": labels}
    bound = bound_of(loss, mu=mu, r=r, learning_rate=18.0, **public)
    X, other, y = neighbours(r)
    label = None
    if labels == "protected":
        label = y.copy()
        label[0] = 1 - y[0]
        X[0] = other[0] = [1.0, 0.0, 0.0]
    ratios = log_ratios(bound, X, other, y, n_runs, label)

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


def test_step_noise_is_calibrated_to_the_promise():
    bound = bound_of(n_steps=7, mu=0.9)
    theta = np.array([[3.0, -1.0, 0.5, 0.2]])
    sigma = np.array([bound.step(theta, number)[1] for number in range(7)])
    spent = bound.sensitivity(theta, 0.8) / sigma + 2 * grid_slack(bound.step_values)
    assert np.linalg.norm(spent) == pytest.approx(0.9, rel=1e-11)
    assert np.linalg.norm(spent) <= 0.9


def test_no_settings_make_the_steps_spend_more_than_mu():
    """Exactly added up: however many steps, and however long a gradient acts."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        descent = descent_of(
            int(10.0 ** rng.uniform(0, 3.7)),
            1.0,
            float(rng.choice([0.0, 0.5, 0.9, 1.0 - 10.0 ** rng.uniform(-16, -1)])),
            None,
            float(rng.choice([0.0, 0.2, 1.0])),
        )
        bound = replace(bound_of(mu=0.9), descent=descent)
        spent = bound.step_mu()
        exact = sum((Fraction(share) ** 2 for share in spent.tolist()), Fraction(0))
        assert 0.98 * Fraction(0.9) ** 2 <= exact <= Fraction(0.9) ** 2
        gain = gains(descent.n_steps, descent.momentum, descent.averaged)
        assert (np.diff(gain) <= 1e-12 * gain[0]).all()
        np.testing.assert_allclose((spent / spent[0]) ** 4, gain / gain[0], rtol=1e-6)


def test_rounding_adds_to_the_noise():
    bound = bound_of()
    theta = np.zeros((1, 4))
    assert bound.sensitivity(theta, 0.8, 0.01) == pytest.approx(
        bound.sensitivity(theta, 0.8) + 0.02
    )
    assert bound.step(theta, 0, 0.01)[1] > bound.step(theta, 0)[1]


@pytest.mark.parametrize("clip", [None, 0.2])
@pytest.mark.parametrize(
    ("loss", "n_scores"),
    [("logistic", 1), ("squared_hinge", 1), ("softmax", 4), ("squared_hinge", 3)],
)
@pytest.mark.parametrize("labels", ["public", "protected"])
def test_other_radii_hold_at_every_iterate(loss, n_scores, clip, labels):
    """mu(t) covers every gap at t that could occur, over the noise that the promise gives."""
    bound = bound_of(loss, n_scores=n_scores, n_features=8, clip=clip, r=0.5, labels=labels)
    stated = []
    least = bound.limits(0.5, labels).least
    for t, change in itertools.product((0.1, 0.5, 0.6, 1.0, 1.3, 2.0), {"public", labels}):
        limit, chain = bound.mu(t, change), math.ceil(t / 0.5 * (1 - 1e-9))
        most = bound.limits(t, change).most
        assert limit <= most / least * (1 + 1e-8) or limit <= math.ceil(2 * t)
        # A chain of records is no bound on gaps that are themselves bounds from above.
        if limit < chain:
            stated.append((t, change, limit))
    rng = np.random.default_rng(0)
    for _ in range(40):
        theta = rng.choice([0.0, 0.1, 1.0, 5.0, 30.0]) * rng.standard_normal((n_scores, 9))
        # Large intercepts leave one label without a gradient.
        theta[:, -1] *= rng.choice([1.0, 20.0])
        steps = range(bound.descent.n_steps)
        sigma = np.array([bound.step(theta, number)[1] for number in steps])
        for t, change, limit in stated:
            step = np.linalg.norm(bound.sensitivity(theta, t, labels=change) / sigma)
            assert step <= limit * (1 + 1e-9)


@pytest.mark.parametrize("clip", [None, 0.2])
def test_guarantee_at_other_radii(clip):
    bound = bound_of(clip=clip, n_features=10, r=0.5)
    assert bound.mu(0.1) == bound.mu(0.5) == 1.0
    assert bound.mu(0.5 * (1 + 1e-12)) <= 1.0 + 1e-9  # rounding lengthens no chain
    mus = [bound.mu(t) for t in np.linspace(0.05, 2.0, 40)]
    assert (np.diff(mus) >= 0).all()
    assert bound.mu(1.0) <= 2.0
    assert bound.mu(2.0) <= 4.0
    if clip:
        # max(B~, 2) / r: clipping keeps gaps from growing with the parameters.
        assert bound.mu(2.0) == pytest.approx(4.0, rel=1e-5)
        assert bound.mu(1.1) == pytest.approx(math.hypot(1, 0.5) / 0.5, rel=1e-5)


def test_label_protection_asked_less():
    """Same-label substitutions of a release that hides label changes too."""
    bound = bound_of(clip=0.2, labels="protected", r=0.5, n_features=10)
    assert bound.mu(0.5) == 1.0
    # No less, as rounding keeps its share, and no more: max(B~, t) stays below 2 B~.
    assert bound.mu(0.5, labels="public") == 1.0
    assert bound.mu(2.0, labels="public") == 1.0
    assert bound.mu(2.0) == pytest.approx(1.0, rel=1e-6)
    # Labels are public, and class counts are published.
    assert bound_of(r=0.5).mu(0.5, labels="protected") == math.inf
    assert bound_of(r=0.5, clip=None, loss="squared_hinge").mu(0.5, labels="protected") == math.inf
    loose = bound_of(clip=None, labels="protected", r=0.5, n_features=10)
    assert loose.mu(2.0) <= 2.0


def test_no_limit_without_features_to_spare():
    """With one feature all rows move along the weights: only the chain is left."""
    assert bound_of(n_features=1, r=0.5, n_samples=5).mu(1.2) == 3.0


def test_statements():
    assert "clipped" in bound_of().theorem
    assert "label" in bound_of(labels="protected").theorem
    assert bound_of().step_values == 4
    assert bound_from_dict(bound_of(r=0.5).to_dict()) == bound_of(r=0.5)
