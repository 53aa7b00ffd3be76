"""Descents that start from noisy sums: one promise for both, their noise, and what audits see."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import kstest, norm
from sklearn.base import clone

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    ReconstructionAuditor,
    verify,
)
from sklearn_balldp.audit.residuals import rule_check, transcript_fault
from sklearn_balldp.audit.transcripts import transcript_log_posterior
from sklearn_balldp.heads import Promise, ReleasedModel, descent
from sklearn_balldp.heads.descent import mean_gradient
from sklearn_balldp.heads.gradients import MeanGradient
from sklearn_balldp.heads.initialisation import initialise, start_values
from sklearn_balldp.heads.settings import CONSTANT, LEAST_REACH
from sklearn_balldp.heads.statistics import StatisticsPerturbation, statistics_of
from sklearn_balldp.heads.whitening import WhiteningMap, whitening_map
from sklearn_balldp.privacy import Noise, Release, rounding
from sklearn_balldp.privacy.gaussian import mu_from_budget
from sklearn_balldp.privacy.iterate_gap import iterate_gap
from sklearn_balldp.privacy.rounding import LEAST_KEPT, MOST_DIRECTIONS

N, D = 900, 12


def data(k=3, n=N, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    X = rng.standard_normal((n, D)) * np.linspace(0.4, 1.4, D) + 2.5 * np.eye(k, D)[y]
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def with_long_mean(n=N, seed=0):
    """Rows whose mean is most of their norm."""
    X, y = data(n=n, seed=seed)
    X = X + 2.0 * np.eye(D)[D - 1]
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


@pytest.mark.parametrize("long", [False, True])
def test_the_joint_distance_of_neighbours_never_exceeds_mu(long):
    """Sums of two datasets and the gradients at one iterate, over the noise: brute force."""
    rng = np.random.default_rng(0)
    X, y = with_long_mean(n=60) if long else data(n=60)
    radius = 0.4
    head = BallDPLogisticRegression(
        100.0 if long else 2.0, 1e-3, radius=radius, mechanism=started(keep_transcript=True)
    ).fit(X, y)
    begun = initialise(head.transcript_.start, ReleasedModel(head).problem, head.release_.bound)
    assert begun.map is not None
    bound = head.release_.bound
    problem = ReleasedModel(head).on(X, y)
    transcript, largest = head.transcript_, 0.0
    for _ in range(40):
        place = int(rng.integers(60))
        step = rng.standard_normal(D)
        row = X[place] + radius * step / np.linalg.norm(step)
        row /= max(1.0, np.linalg.norm(row))
        other = problem.replaced(place, row, int(problem.codes[place]))
        tables = [start_values(p, bound) for p in (problem, other)]
        noisy = tables[0][1] > 0
        squares = np.sum(((tables[0][0] - tables[1][0])[noisy] / tables[0][1][noisy]) ** 2)
        begun = initialise(transcript.start, problem, bound)
        means = [mean_gradient(p, begun)(transcript.iterates) for p in (problem, other)]
        gaps = np.linalg.norm((means[0] - means[1]).reshape(5, -1), axis=1) / transcript.sigma
        largest = max(largest, math.sqrt(squares + np.sum(gaps**2)))
    assert 0.4 * bound.mu(radius) < largest <= bound.mu(radius)


@pytest.mark.parametrize("Head", LOSSES)
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_it_starts_from_the_discriminant(noise_free, Head, k, fit_intercept):
    X, y = data(k)
    mechanism = started(n_steps=1, learning_rate=1e-12)
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


def far_apart(spread, n=N):
    """Three classes on the sphere, whose rows are spread around orthogonal directions."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    X = np.eye(3, D)[y] + spread * rng.standard_normal((n, D)) / math.sqrt(D)
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def test_noise_of_the_start_has_its_law():
    X, y = data()
    noise = []
    for _ in range(40):
        head = BallDPLogisticRegression(
            2.0, radius=0.4, mechanism=started(n_steps=1, keep_transcript=True)
        ).fit(X, y)
        values, scale = start_values(ReleasedModel(head).on(X, y), head.release_.bound)
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
    problem, bound = ReleasedModel(head).problem, head.release_.bound
    theta = initialise(head.transcript_.start, problem, bound).theta
    assert np.isfinite(theta).all()
    np.testing.assert_allclose(theta, head.transcript_.iterates[0])


@pytest.mark.parametrize("noise", ["simulated", "mechanism"])
@pytest.mark.parametrize("rows", [data, with_long_mean])
def test_audits_hold_with_a_start(noise, rows):
    X, y = rows(n=400)
    Xp, yp = rows(n=600, seed=1)
    # Rows with a long mean are closer together: a larger epsilon, for attacks to succeed at all.
    epsilon = 32.0 if rows is data else 400.0
    head = BallDPLogisticRegression(epsilon, radius=1.2, mechanism=started())
    auditor = ReconstructionAuditor(
        head, n_draws=3, n_supports=3, n_candidates=6, noise=noise, random_state=0
    ).fit(X, y, Xp, yp)
    assert auditor.guarantee_holds_, auditor.failures_
    assert (auditor.supports_["distance"] <= auditor.supports_["mu"] * (1 + 1e-6)).all()
    assert auditor.success_rate_ > 2 * auditor.baseline_


@pytest.mark.parametrize("rows", [data, with_long_mean])
def test_the_sums_are_part_of_the_attack(rows):
    """Nearly all of the budget is in the start at a small radius: without it nothing is seen."""
    X, y = rows(n=400)
    # Seeded: other noise would now and then hide the record.
    head = BallDPLogisticRegression(
        200.0, radius=0.1, mechanism=started(keep_transcript=True), random_state=0
    ).fit(X, y)
    rng = np.random.default_rng(0)
    candidates = X[7] + 0.1 * rng.standard_normal((5, D)) / math.sqrt(D)
    candidates[0] = X[7]
    known = np.arange(400) != 7
    logs = transcript_log_posterior(head, X[known], y[known], candidates, np.full(5, y[7]))
    assert np.argmax(logs) == 0
    # Exact: the statistics' part by brute force, and the steps' as they are.
    bound, transcript = head.release_.bound, head.transcript_
    sums = StatisticsPerturbation().neighbours(ReleasedModel(head).on(X, y), Promise(bound.start))
    tables = sums.models(7, candidates, np.full(5, y[7]))
    scale = np.asarray(sums.sigma)
    noisy = scale > 0
    z = (transcript.start - tables)[:, noisy] / scale[noisy]
    parts = -0.5 * np.sum(z**2, axis=1)
    problem = ReleasedModel(head).on(X, y)
    for i, row in enumerate(candidates):
        begun = initialise(transcript.start, problem, bound)
        means = mean_gradient(problem.replaced(7, row, int(y[7])), begun)(transcript.iterates)
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
    with pytest.raises(
        ValueError, match="start must be one of auto, statistics, prototypes, mean, zero"
    ):
        BallDPLogisticRegression(mechanism=GradientPerturbation(start="warm")).fit(*data())


def placed(mean):
    """Rows as gradients see them: stored, and scaled where they are multiplied."""
    (part,) = mean._table.each(lambda part: part)
    last = part.column("last")
    rows = mean.X.astype(np.float64)
    return rows if last is None else rows * last[:, None]


@pytest.mark.parametrize("Head", LOSSES)
def test_a_start_scores_alike_through_every_map(Head):
    """Rows where they were have the scores of the discriminant; one step is not whitened."""
    X, y = with_long_mean()
    found = {}
    for name, params in {
        "moved": {},
        "one": {"n_steps": 1},
    }.items():
        mechanism = started(**{"keep_transcript": True, **params})
        head = Head(50.0, radius=0.05, mechanism=mechanism, random_state=0).fit(X, y)
        begun = initialise(head.transcript_.start, ReleasedModel(head).problem, head.release_.bound)
        found[name] = begun, begun.parameters(begun.theta)
    begun, parameters = found["moved"]
    assert begun.map.shortens
    assert begun.map.factors.min() < 0.9
    np.testing.assert_allclose(parameters, found["one"][1], rtol=1e-8, atol=1e-8)
    assert not found["one"][0].map.shortens


def matrix_of(own):
    """A, as a matrix."""
    return np.eye(D) + (own.directions * (own.factors - 1.0)) @ own.directions.T


def test_short_rows_in_the_ball_are_short_for_the_gaps_too():
    """The second moment tells their length, also where it tells no direction."""
    rng = np.random.default_rng(0)
    X, y = with_long_mean(n=3000)
    X = 0.5 * (X + rng.standard_normal(X.shape))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    X *= rng.uniform(0.4, 1.0, (len(X), 1))
    for epsilon in (4.0, 8.0, 16.0, 60.0):
        head = BallDPLogisticRegression(
            epsilon, 1e-4, radius=0.5, mechanism=started(keep_transcript=True), random_state=0
        ).fit(X, y)
        bound, problem = head.release_.bound, ReleasedModel(head).on(X, y)
        begun = initialise(head.transcript_.start, problem, bound)
        own, tau = begun.map, begun.bound.norm_bound
        rows = placed(mean_gradient(problem, begun)) @ matrix_of(own)
        assert np.linalg.norm(rows, axis=1).max() <= tau * (1.0 + 1e-9)
        assert own.norm == tau < 0.95 * own.reach


@pytest.mark.parametrize("n_directions", [0, 3, D])
def test_rows_stay_in_the_smaller_ball_and_move_no_further_apart(n_directions):
    """What the gaps at tau rest on: rows of any norm, any map, in both precisions."""
    rng = np.random.default_rng(0)
    for dtype, slack in ((np.float64, 1e-12), (np.float32, 3e-7)):
        for _ in range(30):
            X = (rng.standard_normal((40, D)) * rng.choice([0.01, 0.3, 3.0], (40, 1))).astype(dtype)
            other = (X + rng.choice([1e-3, 0.5]) * rng.standard_normal(X.shape)).astype(dtype)
            centre = rng.standard_normal(D)
            centre *= rng.uniform(0.2, 1.0) / np.linalg.norm(centre)
            reach = max(np.sqrt(1.0 - centre @ centre), 0.3)
            directions = np.linalg.qr(rng.standard_normal((D, D)))[0][:, :n_directions]
            kept = rng.uniform(LEAST_KEPT, 1.0, n_directions)
            tau = reach * rng.uniform(0.5, 1.0)
            own = WhiteningMap(centre, directions, kept, reach, tau)
            moved = [
                placed(
                    MeanGradient(
                        "softmax",
                        rows,
                        np.zeros(40, dtype=np.intp),
                        3,
                        norm_bound=tau,
                        constant=0.3 * tau,
                        clip=0.1,
                        whitening=own,
                        reach=1.0,
                    )
                )
                @ matrix_of(own)
                for rows in (X, other)
            ]
            assert (np.linalg.norm(moved[0], axis=1) <= tau * (1.0 + slack)).all()
            apart = np.linalg.norm((X - other).astype(np.float64), axis=1)
            closer = np.linalg.norm(moved[0] - moved[1], axis=1)
            assert (closer <= apart + slack).all()
            inside = np.linalg.norm(X, axis=1) <= 1.0
            by_hand = X.astype(np.float64) - centre
            by_hand *= np.minimum(1.0, reach / np.linalg.norm(by_hand, axis=1))[:, None]
            by_hand = by_hand @ matrix_of(own)
            by_hand *= np.minimum(1.0, tau / np.linalg.norm(by_hand, axis=1))[:, None]
            np.testing.assert_allclose(moved[0][inside], by_hand[inside], atol=1e-6)
            # As an audit sees them.
            np.testing.assert_allclose(
                own.place(X[inside].astype(float)), by_hand[inside], atol=1e-12
            )


@pytest.mark.parametrize("Head", LOSSES)
@pytest.mark.parametrize("protect", [False, True])
def test_noise_of_centred_steps_is_that_of_the_smaller_ball(Head, protect):
    X, y = with_long_mean()
    labels = {"protect_labels": True, "classes": [0, 1, 2]} if protect else {}
    head = Head(50.0, radius=0.2, mechanism=started(keep_transcript=True), **labels).fit(X, y)
    bound, kept = head.release_.bound, head.transcript_
    begun = initialise(kept.start, ReleasedModel(head).problem, bound)
    tau = begun.bound.norm_bound
    own = begun.map
    assert own.reach == pytest.approx(np.sqrt(1.0 - own.centre @ own.centre))
    # Noise of sums that hide labels may cover all directions.
    assert own.shortens or protect
    assert tau < own.reach if own.shortens else tau == own.reach
    assert own.reach < 0.7
    mean = mean_gradient(ReleasedModel(head).on(X, y), begun)
    shares = bound.step_mu()
    for theta, sigma, share in zip(kept.iterates, kept.sigma, shares, strict=True):
        gap = iterate_gap(
            "softmax" if Head is BallDPLogisticRegression else "squared_hinge",
            theta,
            0.2,
            norm_bound=tau,
            constant=CONSTANT * tau,
            clip=0.1,
            label_change=protect,
        )
        asked = (gap / N + 2.0 * mean.rounding(theta)) / share
        assert sigma == pytest.approx(asked, rel=1e-4)
        assert sigma >= bound._least_gap(0.2) / N / share
    # Scores are those of moved rows, for rows where they were.
    iterates = begun.iterates(0.0, np.float64)
    for gradient in kept.gradients:
        iterates.advance(gradient[None])
    theta = iterates.released()[0]
    scores = (X - own.centre) @ matrix_of(own) @ theta[:, :-1].T + theta[
        :, -1
    ] * begun.bound.constant
    if Head is BallDPLogisticRegression:
        scores -= scores.mean(axis=1, keepdims=True)
    own = head.decision_function(X)
    if Head is BallDPLogisticRegression:
        own = own - own.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(own, scores, atol=1e-8)


def test_mu_elsewhere_holds_wherever_the_rows_were_moved_to():
    """Ratios of gaps at two radii, over parameters and lengths of the centre."""
    rng = np.random.default_rng(0)
    head = BallDPLogisticRegression(2.0, radius=0.5, mechanism=started()).fit(*with_long_mean())
    bound = head.release_.bound
    assert bound.whitened
    steps = bound.steps_mu
    for t in (0.6, 0.9, 1.4, 2.0):
        most = math.sqrt(bound.mu(t) ** 2 - bound.start.mu(t) ** 2)
        for _ in range(60):
            own = bound.after(rng.choice([LEAST_REACH, 0.5, 0.8, 1.0]))
            theta = rng.standard_normal(own.shape) * rng.choice([1e-3, 1.0, 30.0])
            ratio = own.sensitivity(theta, t) / own.sensitivity(theta, 0.5)
            assert steps * ratio <= most * (1.0 + 1e-9)


def centre_of(statistics):
    found = whitening_map(statistics, several_steps=False)
    return found.centre, found.reach


def test_what_the_centre_is_shrunk_by():
    X, y = with_long_mean(n=300)
    head = BallDPLogisticRegression(20.0, radius=0.3, mechanism=started()).fit(X, y)
    problem, bound = ReleasedModel(head).on(X, y), head.release_.bound
    values, scale = start_values(problem, bound)
    statistics = statistics_of(values, bound.start, problem.classes, problem.public_counts)
    rng = np.random.default_rng(0)
    mean, longest = statistics.class_sums.sum(axis=0) / 300, []
    for noise in (1e-9, 0.5, 20.0):
        sums = [
            statistics.class_sums + noise * rng.standard_normal(statistics.class_sums.shape)
            for _ in range(200)
        ]
        centres = [
            centre_of(dataclasses.replace(statistics, class_sums=s, sigma_sums=noise))[0]
            for s in sums
        ]
        errors = [np.sum((mean - c) ** 2) for c in centres]
        raw = [np.sum((s.sum(axis=0) / 300 - mean) ** 2) for s in sums]
        assert np.mean(errors) <= 1.05 * np.mean(raw) + 1e-12
        longest.append(max(np.linalg.norm(c) for c in centres))
    assert longest[0] == pytest.approx(np.linalg.norm(mean))
    # Where noise is as long as the mean, half of its square is saved.
    errors = []
    for _ in range(200):
        sums = 0.5 * statistics.class_sums + 20.0 * rng.standard_normal((3, D))
        own = dataclasses.replace(statistics, class_sums=sums, sigma_sums=20.0)
        errors.append(np.sum((0.5 * mean - centre_of(own)[0]) ** 2))
    assert np.mean(errors) < 0.75 * 3 * D * (20.0 / 300) ** 2
    # Noise alone is no mean: most of it is taken off.
    nothing = [
        centre_of(
            dataclasses.replace(
                statistics,
                class_sums=6.0 * rng.standard_normal(statistics.class_sums.shape),
                sigma_sums=6.0,
            )
        )[0]
        for _ in range(200)
    ]
    assert np.mean([c @ c for c in nothing]) < 0.2 * 3 * D * (6.0 / 300) ** 2
    assert not centre_of(dataclasses.replace(statistics, class_sums=0.0 * values[:3]))[0].any()
    # However long the mean: what holds before the first step counts on this much being left.
    for length in (0.9, 0.999, 1.5, 1e9):
        sums = np.full((3, D), length * 100.0 / math.sqrt(D))
        c, reach = centre_of(dataclasses.replace(statistics, class_sums=sums, sigma_sums=1e-9))
        # No true mean is longer than a row.
        assert np.linalg.norm(c) == pytest.approx(min(length, math.sqrt(1.0 - LEAST_REACH**2)))
        assert reach == pytest.approx(math.sqrt(max(1.0 - length**2, LEAST_REACH**2)))
        assert bound.after(reach).limits(0.3).least >= bound._least_gap(0.3)
        assert bound.after(reach).limits(0.8).most <= bound.limits(0.8).most
        assert bound.after(reach).descent.learning_rate == pytest.approx(
            bound.descent.learning_rate / reach**2
        )
    assert np.isfinite(scale).all()


def test_starts_by_name():
    X, y = with_long_mean()
    bounds = {
        start: BallDPLogisticRegression(8.0, radius=0.1, mechanism=started(start=start))
        .fit(X, y)
        .release_.bound
        for start in ("auto", "statistics", "prototypes", "zero")
    }
    assert bounds["auto"] == bounds["statistics"]
    assert bounds["auto"].start.moment
    assert not bounds["prototypes"].start.moment
    assert bounds["prototypes"].whitened
    assert bounds["zero"].start is None
    assert not bounds["zero"].whitened
    assert bounds["zero"].descent.clip == 0.1
    head = BallDPLogisticRegression(8.0, radius=0.1, mechanism=started(), fit_intercept=False)
    assert not head.fit(X, y).release_.bound.whitened


def test_a_start_from_the_mean():
    X, y = with_long_mean()
    mechanism = GradientPerturbation(start="mean", n_steps=5, keep_transcript=True)
    head = BallDPLogisticRegression(20.0, radius=0.3, mechanism=mechanism).fit(X, y)
    bound, kept = head.release_.bound, head.transcript_
    assert kept.start.shape == (1, D)
    begun = initialise(kept.start, ReleasedModel(head).problem, bound)
    assert not begun.theta.any()
    noise = math.sqrt(D) * bound.start.sigma[0] / N
    assert np.linalg.norm(begun.map.centre - X.mean(axis=0)) < 3.0 * noise + 1e-9
    assert "r for the sum of all rows" in bound.theorem
    assert not verify(head, private=(X, y)).failed
    for change, match in (
        ({"fit_intercept": False}, "fit_intercept=False rules out"),
        ({"class_embeddings": np.zeros((3, D))}, "start='mean' has no class means"),
    ):
        with pytest.raises(ValueError, match=match):
            clone(head).set_params(**change).fit(X, y)


def test_where_labels_are_protected_the_mean_alone_keeps_every_label():
    """Two datasets that differ in labels alone are the same to it."""
    X, y = with_long_mean()
    mechanism = GradientPerturbation(start="mean", n_steps=5, keep_transcript=True)
    head = BallDPLogisticRegression(
        2.0, radius=0.3, mechanism=mechanism, protect_labels=True, classes=range(3)
    ).fit(X, y)
    bound = head.release_.bound
    tables = [start_values(ReleasedModel(head).on(X, labels), bound)[0] for labels in (y, y[::-1])]
    np.testing.assert_array_equal(*tables)
    assert bound.start.sigma[0] * bound.start.mu(0.3) == pytest.approx(2.0, rel=1e-4)
    assert not verify(head, private=(X, y)).failed


def statistics_with(moment, n=1000, sigma=1e-9, norm_bound=1.0):
    """Released sums of no mean, with this second moment of the rows."""
    X, y = data()
    head = BallDPLogisticRegression(20.0, radius=0.3, mechanism=started()).fit(X, y)
    problem, bound = ReleasedModel(head).on(X, y), head.release_.bound
    values = start_values(problem, bound)[0]
    statistics = statistics_of(values, bound.start, problem.classes, problem.public_counts)
    return dataclasses.replace(
        statistics,
        class_sums=np.zeros((3, len(moment))),
        second_moment=n * norm_bound**2 * moment,
        sigma_moment=n * norm_bound**2 * sigma,
        total=float(n),
        norm_bound=norm_bound,
    )


def test_whitening_sees_no_more_than_noise_lets_through():
    """Noise alone has no directions; a variance in noise is told without bias."""
    rng, d, sigma = np.random.default_rng(0), 100, 0.01
    edge = sigma * math.sqrt(2.0 * d)

    def noisy(moment):
        noise = rng.standard_normal((d, d)) * sigma / math.sqrt(2.0)
        return moment + np.triu(noise) + np.triu(noise, 1).T + np.diag(noise.diagonal()) * 0.4

    found = [
        whitening_map(statistics_with(noisy(np.eye(d) / d), sigma=sigma), several_steps=True)
        for _ in range(20)
    ]
    assert sum(len(own.factors) for own in found) <= 6
    spike = 3.0 * edge
    moment = np.eye(d) * (1.0 - spike) / d
    moment[0, 0] += spike
    kept, aligned = [], []
    for _ in range(20):
        own = whitening_map(statistics_with(noisy(moment), sigma=sigma), several_steps=True)
        kept.append(own.factors[-1])
        aligned.append(own.directions[0, -1] ** 2)
    assert np.mean(aligned) > 0.9
    told = np.mean(aligned) * spike
    expected = ((2.0 - told) / (2.0 - told + d * told)) ** 0.25
    assert np.mean(kept) == pytest.approx(expected, rel=0.02)


def test_whitening_has_its_limits():
    """However lopsided the rows are: what the proofs of rounding and of other radii count on."""
    rng = np.random.default_rng(0)
    for d, n_spikes in ((5, 1), (200, 1), (200, 100), (200, 199)):
        spectrum = np.full(d, 1e-9)
        spectrum[:n_spikes] = 1.0
        for size in (1.0, 1e-3, 1e3):
            moment = np.diag(size * spectrum / spectrum.sum())
            own = whitening_map(statistics_with(moment), several_steps=True)
            assert own.fault(1.0, LEAST_REACH) is None
            assert len(own.factors) <= MOST_DIRECTIONS
            assert (own.factors >= LEAST_KEPT).all()
            assert (own.factors <= 1.0).all()
            assert LEAST_REACH <= own.norm <= own.reach <= 1.0
            weights = rng.standard_normal((20, d))
            lengths = [np.linalg.norm(w, axis=1) for w in (own.shortened(weights), weights)]
            assert (lengths[0] <= lengths[1] * (1.0 + 1e-12)).all()


def test_public_vectors_of_the_classes_help_where_noise_is_large():
    rng = np.random.default_rng(0)
    k, d, n = 20, 30, 2000
    means = rng.standard_normal((k, d))
    y = np.arange(n) % k
    X = means[y] + 1.5 * rng.standard_normal((n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    vectors = 7.0 * means + 1.0
    for Head in LOSSES:
        # The same noise with and without: releases vary by more than what is to be seen.
        scores = [
            np.mean(
                [
                    Head(0.5, radius=1.0, class_embeddings=v, random_state=seed)
                    .fit(X, y)
                    .score(X, y)
                    for seed in range(8)
                ]
            )
            for v in (None, vectors)
        ]
        assert scores[1] > scores[0] + 0.02
    head = BallDPLogisticRegression(
        0.5, radius=1.0, class_embeddings=vectors, mechanism=started(keep_transcript=True)
    ).fit(X, y)
    assert transcript_fault(ReleasedModel(head), head.transcript_) is None
    assert rule_check(ReleasedModel(head), head.transcript_).verdict == "PASS"
    other = ReleasedModel(head.set_params(class_embeddings=None))
    assert rule_check(other, head.transcript_).verdict == "FAIL"
    with pytest.raises(
        ValueError, match=r"class_embeddings must be None or finite vectors of shape \(20, 30\)"
    ):
        BallDPLogisticRegression(class_embeddings=vectors.T).fit(X, y)
    with pytest.raises(ValueError, match="mechanism='gradient'"):
        BallDPSquaredHingeSVC(class_embeddings=vectors, mechanism="output").fit(X, y)
    with pytest.raises(ValueError, match="class_embeddings: a descent from start='zero'"):
        head.set_params(class_embeddings=vectors, mechanism=started(start="zero")).fit(X, y)


def test_rows_that_a_map_makes_shorter_than_rounding_allows_are_refused(monkeypatch):
    """The allowance for rounding holds for rows that keep a share of their norm, tuned or not."""
    assert 1.0 / rounding.SHORTEST <= rounding._CENTRING_FACTOR
    monkeypatch.setattr(descent, "LEAST_REACH", 0.9 * rounding.SHORTEST)
    rng = np.random.default_rng(0)
    head = BallDPLogisticRegression(mechanism="gradient")
    with pytest.raises(ValueError, match="the rounding of shorter rows is not covered"):
        head.fit(rng.standard_normal((50, 3)), np.arange(50) % 2)
    assert not hasattr(head, "release_")
