"""Descents that start from noisy sums: one promise for both, their noise, and what audits see."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import kstest, norm

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    ReconstructionAuditor,
)
from sklearn_balldp.audit.transcripts import transcript_log_posterior
from sklearn_balldp.heads import Promise
from sklearn_balldp.heads.descent import start_bound, start_of, start_values
from sklearn_balldp.heads.statistics import StatisticsPerturbation
from sklearn_balldp.privacy import Noise, Release
from sklearn_balldp.privacy.gaussian import mu_from_budget

N, D = 900, 12


def data(k=3, n=N, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    X = rng.standard_normal((n, D)) * np.linspace(0.4, 1.4, D) + 2.5 * np.eye(k, D)[y]
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def started(**params):
    return GradientPerturbation(**{"n_steps": 5, "start": "statistics", "clip": 0.1, **params})


LOSSES = [BallDPLogisticRegression, BallDPSquaredHingeSVC]


@pytest.mark.parametrize("Head", LOSSES)
@pytest.mark.parametrize("radius", [0.05, 0.4, 2.0])
@pytest.mark.parametrize("protect", [False, True])
def test_start_and_steps_share_one_promise(Head, radius, protect):
    labels = {"protect_labels": True, "classes": [0, 1, 2]} if protect else {}
    head = Head(2.0, radius=radius, mechanism=started(), **labels).fit(*data())
    release, mu = head.release_, mu_from_budget(2.0, 1e-6)
    bound = release.bound
    steps = math.hypot(*[s / v for s, v in zip(release.sensitivity, release.sigma, strict=True)])
    total = math.hypot(steps, bound.start.mu(radius))
    assert total <= mu
    assert total >= 0.99 * mu
    assert bound.mu(radius) <= mu
    assert Release.from_dict(head.release_.to_dict()) == head.release_
    # Elsewhere: no less than what the start alone gives, and it grows.
    mus = [bound.mu(t) for t in (0.01, 0.1, 0.5, 1.0, 2.0)]
    assert (np.diff(mus) >= -1e-12).all()
    assert all(m >= bound.start.mu(t) for m, t in zip(mus, (0.01, 0.1, 0.5, 1.0, 2.0), strict=True))
    assert math.isinf(bound.mu(radius, "protected")) == (not protect)


def test_the_joint_distance_of_neighbours_never_exceeds_mu():
    """Sums of two datasets and the gradients at one iterate, over the noise: brute force."""
    rng = np.random.default_rng(0)
    X, y = data(n=60)
    radius = 0.4
    head = BallDPLogisticRegression(
        2.0, 1e-3, radius=radius, mechanism=started(keep_transcript=True)
    ).fit(X, y)
    bound = head.release_.bound
    problem = head._known(X, y)
    transcript, largest = head.transcript_, 0.0
    from sklearn_balldp.heads.descent import mean_gradient

    for _ in range(40):
        place = int(rng.integers(60))
        step = rng.standard_normal(D)
        row = X[place] + radius * step / np.linalg.norm(step)
        row /= max(1.0, np.linalg.norm(row))
        other = problem.replaced(place, row, int(problem.codes[place]))
        tables = [start_values(p, bound) for p in (problem, other)]
        noisy = tables[0][1] > 0
        squares = np.sum(((tables[0][0] - tables[1][0])[noisy] / tables[0][1][noisy]) ** 2)
        means = [mean_gradient(p, bound)(transcript.iterates) for p in (problem, other)]
        gaps = np.linalg.norm((means[0] - means[1]).reshape(5, -1), axis=1) / transcript.sigma
        largest = max(largest, math.sqrt(squares + np.sum(gaps**2)))
    assert 0.4 * bound.mu(radius) < largest <= bound.mu(radius)


def test_a_second_promise_binds_the_start_too():
    X, y = data()
    one = started()
    two = started(outer_radius=2.0, outer_epsilon=2.5)
    releases = [
        BallDPLogisticRegression(2.0, radius=0.05, mechanism=m).fit(X, y).release_
        for m in (one, two)
    ]
    limit = mu_from_budget(2.5, 1e-6)
    assert releases[0].bound.mu(2.0) > limit
    assert releases[1].bound.mu(2.0) <= limit
    assert releases[1].bound.start.mu(2.0) < limit
    assert releases[1].bound.mu(0.05) <= mu_from_budget(2.0, 1e-6)
    assert releases[1].guarantee(2.0).epsilon <= 2.5
    assert Release.from_dict(releases[1].to_dict()) == releases[1]


@pytest.mark.parametrize("Head", LOSSES)
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_it_starts_from_the_discriminant(noise_free, Head, k, fit_intercept):
    X, y = data(k)
    mechanism = started(n_steps=1, learning_rate=1e-12, averaging=0.0)
    head = Head(2.0, radius=0.01, mechanism=mechanism, fit_intercept=fit_intercept).fit(X, y)
    peer = BallDPLinearDiscriminant(2.0, radius=0.01, share=head.release_.bound.start.share)
    peer.fit(X, y)
    if fit_intercept:
        assert np.mean(head.predict(X) == peer.predict(X)) > (0.99 if k == 2 else 0.97)
    assert head.score(X, y) > 0.8
    margins = head.decision_function(X)
    if Head is BallDPSquaredHingeSVC and fit_intercept:
        own = margins[np.arange(N), y] if k > 2 else margins * (2 * y - 1)
        assert 0.5 < np.median(own) < 2.0


def test_noise_of_the_start_has_its_law():
    X, y = data()
    noise = []
    for _ in range(40):
        head = BallDPLogisticRegression(
            2.0, radius=0.4, mechanism=started(n_steps=1, keep_transcript=True)
        ).fit(X, y)
        values, scale = start_values(head._known(X, y), head.release_.bound)
        noisy = scale > 0
        noise.append((head.transcript_.start - values)[noisy] / scale[noisy])
    assert kstest(np.concatenate(noise), norm.cdf).pvalue > 1e-4
    assert not hasattr(head, "statistics_")


def test_absent_classes_and_floors():
    X, y = data()
    head = BallDPLogisticRegression(
        2.0, radius=0.4, classes=range(5), mechanism=started(keep_transcript=True)
    ).fit(X, y)
    assert np.isfinite(head.coef_).all()
    problem, bound = head._released_problem(), head.release_.bound
    theta = start_of(head.transcript_.start[None], problem, bound)
    assert np.isfinite(theta).all()
    np.testing.assert_allclose(theta[0], head.transcript_.iterates[0])


def test_shares_are_public_and_follow_the_radius():
    X, y = data()
    head = BallDPLogisticRegression(2.0, radius=0.4, mechanism=started()).fit(X, y)
    problem = head._released_problem()
    mu = 0.4

    def share(radius):
        bound = start_bound(dataclasses.replace(problem, radius=radius), [(radius, mu)])
        return (bound.mu(radius) / mu) ** 2

    shares = [share(r) for r in (0.02, 0.1, 0.3, 1.0)]
    assert (np.diff(shares) < 0).all()
    assert shares[0] > 0.95
    assert shares[-1] > 0.19


@pytest.mark.parametrize("noise", ["simulated", "mechanism"])
def test_audits_hold_with_a_start(noise):
    X, y = data(n=400)
    Xp, yp = data(n=600, seed=1)
    head = BallDPLogisticRegression(32.0, radius=1.2, mechanism=started())
    auditor = ReconstructionAuditor(
        head, n_draws=3, n_supports=3, n_candidates=6, noise=noise, random_state=0
    ).fit(X, y, Xp, yp)
    assert auditor.guarantee_holds_, auditor.failures_
    assert (auditor.supports_["distance"] <= auditor.supports_["mu"] * (1 + 1e-6)).all()
    assert auditor.success_rate_ > 2 * auditor.baseline_


def test_the_sums_are_part_of_the_attack():
    """Nearly all of the budget is in the start at a small radius: without it nothing is seen."""
    X, y = data(n=400)
    head = BallDPLogisticRegression(200.0, radius=0.1, mechanism=started(keep_transcript=True)).fit(
        X, y
    )
    rng = np.random.default_rng(0)
    candidates = X[7] + 0.1 * rng.standard_normal((5, D)) / math.sqrt(D)
    candidates[0] = X[7]
    known = np.arange(400) != 7
    logs = transcript_log_posterior(head, X[known], y[known], candidates, np.full(5, y[7]))
    assert np.argmax(logs) == 0
    # Exact: the statistics' part by brute force, and the steps' as they are.
    bound, transcript = head.release_.bound, head.transcript_
    sums = StatisticsPerturbation().neighbours(head._known(X, y), Promise(bound.start))
    tables = sums.models(7, candidates, np.full(5, y[7]))
    scale = np.asarray(sums.sigma)
    noisy = scale > 0
    z = (transcript.start - tables)[:, noisy] / scale[noisy]
    parts = -0.5 * np.sum(z**2, axis=1)
    problem = head._known(X, y)
    from sklearn_balldp.heads.descent import mean_gradient

    for i, row in enumerate(candidates):
        means = mean_gradient(problem.replaced(7, row, int(y[7])), bound)(transcript.iterates)
        residual = (transcript.gradients - means) / transcript.sigma[:, None, None]
        parts[i] -= 0.5 * np.sum(residual**2)
    np.testing.assert_allclose(logs, parts - np.logaddexp.reduce(parts), atol=1e-6)


def test_nothing_of_the_sums_is_kept(monkeypatch):
    X, y = data()
    given = []
    real = Noise.__call__
    monkeypatch.setattr(
        Noise, "__call__", lambda s, v, sigma: given.append(np.array(v)) or real(s, v, sigma)
    )
    head = BallDPLogisticRegression(2.0, radius=0.4, mechanism=started()).fit(X, y)
    assert len(given) == 6
    assert given[0].shape[1] == D
    assert not hasattr(head, "transcript_")
    for value in vars(head).values():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            assert not np.isin(np.round(given[0][given[0] != 0], 12), np.round(value, 12)).any()


def test_wrong_starts_are_refused():
    with pytest.raises(ValueError, match="start must be one of zero, statistics"):
        BallDPLogisticRegression(mechanism=GradientPerturbation(start="warm")).fit(*data())
