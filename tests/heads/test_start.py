"""Descents that start from noisy sums: one promise for both, their noise, and what audits see."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from scipy.stats import kstest, norm
from threadpoolctl import threadpool_info, threadpool_limits

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    ReconstructionAuditor,
    verify,
)
from sklearn_balldp.audit.attacks import transcript_log_posterior
from sklearn_balldp.mechanisms import MeanGradient, Records, descent
from sklearn_balldp.mechanisms.gradients import Gradients
from sklearn_balldp.mechanisms.settings import CONSTANT, LEAST_REACH
from sklearn_balldp.mechanisms.whitening import PublicMap, whitening_map
from sklearn_balldp.privacy import Release, rounding
from sklearn_balldp.privacy.gaps import iterate_gap
from sklearn_balldp.privacy.gaussian import mu_from_budget
from sklearn_balldp.privacy.problem import Problem
from sklearn_balldp.privacy.rounding import LEAST_KEPT, MOST_DIRECTIONS
from sklearn_balldp.rows import passes

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


class Alone(GradientPerturbation):
    """It promises nothing beyond its radius, which alone decides the noise."""

    def bound(self, problem, mu):
        return dataclasses.replace(super().bound(problem, mu), further=())


KEPT = {"keep_transcript": True}
HIDDEN = {"protect_labels": True, "classes": [0, 1, 2]}


@pytest.fixture
def begun_of(asked):
    """The first step: where it is taken, and the map that it sees the rows through."""
    return lambda head: next(q for q, _ in asked(head) if isinstance(q, MeanGradient))


LOSSES = [BallDPLogisticRegression, BallDPSquaredHingeSVC]


@pytest.mark.parametrize(
    ("Head", "radius", "protect"),
    [
        *itertools.product((BallDPLogisticRegression,), (0.05, 0.4, 2.0), (False, True)),
        (BallDPSquaredHingeSVC, 0.4, False),
    ],
)
def test_start_and_steps_share_one_promise(Head, radius, protect, asked):
    labels = HIDDEN if protect else {}
    head = Head(2.0, radius=radius, mechanism=started(**KEPT), **labels).fit(*data())
    release, mu = head.release_, mu_from_budget(2.0, 1e-6)
    bound, problem = release.bound, release.problem
    spent = [query.mu(problem) for query, _ in asked(head)]
    assert spent[0] == bound.start.mu(problem)
    assert 0.99 * mu <= math.hypot(*spent) <= mu
    assert release.mu <= mu
    np.testing.assert_allclose(spent[1:], bound.step_mu(problem), rtol=1e-6)
    assert Release.from_dict(release.to_dict()) == release
    # Elsewhere: no less than what the start alone gives, and it grows.
    radii = 0.01, 0.1, 0.5, 1.0, 2.0
    mus = [bound.mu(problem, t) for t in radii]
    assert (np.diff(mus) >= -1e-12).all()
    assert all(m >= bound.start.mu(problem, t) for m, t in zip(mus, radii, strict=True))
    assert math.isinf(bound.mu(problem, radius, "protected")) == (not protect)


@pytest.mark.parametrize("long", [False, True])
def test_the_joint_distance_of_neighbours_never_exceeds_mu(long, apart, begun_of):
    """Sums of two datasets and the gradients at one iterate, over the noise: brute force."""
    rng = np.random.default_rng(0)
    X, y = with_long_mean(n=60) if long else data(n=60)
    radius, epsilon = 0.4, 100.0 if long else 2.0
    head = BallDPLogisticRegression(epsilon, 1e-3, radius=radius, mechanism=started(**KEPT))
    records, largest = head.fit(X, y)._records(X, y), 0.0
    assert begun_of(head).seen is not None
    for _ in range(40):
        place, step, rows = int(rng.integers(60)), rng.standard_normal(D), X.copy()
        rows[place] += radius * step / np.linalg.norm(step)
        rows[place] /= max(1.0, np.linalg.norm(rows[place]))
        largest = max(largest, apart(head, records, head._records(rows, y)))
    assert 0.4 * head.release_.mu < largest <= head.release_.mu


@pytest.mark.parametrize(("k", "fit_intercept"), [(2, True), (3, False), (3, True)])
@pytest.mark.parametrize("Head", LOSSES)
def test_it_starts_from_the_discriminant(noise_free, Head, k, fit_intercept):
    X, y = data(k)
    mechanism = started(n_steps=1, learning_rate=1e-12)
    head = Head(2.0, radius=0.01, mechanism=mechanism, fit_intercept=fit_intercept).fit(X, y)
    peer = BallDPLinearDiscriminant(2.0, radius=0.01, share=0.5).fit(X, y)
    if fit_intercept:
        assert np.mean(head.predict(X) == peer.predict(X)) > (0.99 if k == 2 else 0.97)
    assert head.score(X, y) > 0.8
    margins = head.decision_function(X)
    if Head is BallDPSquaredHingeSVC and fit_intercept:
        own = margins[np.arange(N), y] if k > 2 else margins * (2 * y - 1)
        assert 0.5 < np.median(own) < 2.0


def test_noise_of_the_start_has_its_law(noise_of):
    X, y = data()
    mechanism, noise = started(n_steps=1, **KEPT), []
    for _ in range(40):
        head = BallDPLogisticRegression(2.0, radius=0.4, mechanism=mechanism).fit(X, y)
        noise.append(noise_of(head, head._records(X, y))[0])
    assert kstest(np.concatenate(noise), norm.cdf).pvalue > 1e-4
    assert not hasattr(head, "statistics_")
    assert head.transcript_.start.size == noise[0].size


def test_absent_classes_and_floors(begun_of):
    head = BallDPLogisticRegression(2.0, radius=0.4, classes=range(5), mechanism=started(**KEPT))
    theta = begun_of(head.fit(*data())).theta
    assert np.isfinite(head.coef_).all()
    assert np.isfinite(theta).all()
    assert theta.any()


@pytest.mark.parametrize(("noise", "rows"), [("mechanism", data), ("simulated", with_long_mean)])
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
def test_the_sums_are_part_of_the_attack(rows, exact_log_posterior):
    """Nearly all of the budget is in the start at a small radius: without it nothing is seen."""
    X, y = rows(n=400)
    # Seeded: other noise would now and then hide the record.
    head = BallDPLogisticRegression(200.0, radius=0.1, mechanism=started(**KEPT), random_state=0)
    head.fit(X, y)
    rng = np.random.default_rng(0)
    candidates = X[7] + 0.1 * rng.standard_normal((5, D)) / math.sqrt(D)
    candidates[0], known = X[7], np.arange(400) != 7
    logs = transcript_log_posterior(head, X[known], y[known], candidates, np.full(5, y[7]))
    assert np.argmax(logs) == 0
    np.testing.assert_allclose(logs, exact_log_posterior(head, X, y, 7, candidates), atol=1e-6)


def passes_of(X, codes, query, problem):
    """Rows as gradients see them."""
    given = {"seen": query.seen, "constant": query.constant, "clip": query.clip}
    return Gradients(problem, Records(X, codes), **given, dtype=query.precision(problem))


def placed(passes):
    """Rows as gradients see them: stored, and scaled where they are multiplied."""
    table = passes._table
    rows = passes._kept.astype(np.float64)
    for part in table.each(lambda part: part):
        last = part.column("last")
        if last is not None:
            rows[part.start :][: len(part)] *= last[:, None]
    return rows


@pytest.mark.parametrize("Head", LOSSES)
def test_a_start_scores_alike_through_every_map(Head, begun_of):
    """Rows where they were have the scores of the discriminant; one step is not whitened."""
    X, y = with_long_mean()
    scores, maps = [], []
    for n_steps in (5, 1):
        mechanism = started(n_steps=n_steps, **KEPT)
        head = Head(50.0, radius=0.05, mechanism=mechanism, random_state=0).fit(X, y)
        query = begun_of(head)
        maps.append(query.seen)
        seen = np.pad(query.seen.place(X), ((0, 0), (0, 1)), constant_values=query.constant)
        kept = np.linalg.norm(X - query.seen.centre, axis=1) < query.seen.norm
        found = seen[kept] @ query.theta.T
        centred = Head is LOSSES[0]
        scores.append((kept, found - centred * found.mean(axis=1, keepdims=True)))
    assert maps[0].shortens
    assert maps[0].factors.min() < 0.9
    assert not maps[1].shortens
    both = scores[0][0] & scores[1][0]
    assert both.sum() > 20
    first, second = (found[both[kept]] for kept, found in scores)
    np.testing.assert_allclose(first, second, rtol=1e-7, atol=1e-7)


def matrix_of(own):
    """A, as a matrix."""
    return np.eye(D) + (own.directions * (own.factors - 1.0)) @ own.directions.T


def test_short_rows_in_the_ball_are_short_for_the_gaps_too(begun_of):
    """The second moment tells their length, also where it tells no direction."""
    rng = np.random.default_rng(0)
    X, y = with_long_mean(n=3000)
    X = 0.5 * (X + rng.standard_normal(X.shape))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    X *= rng.uniform(0.4, 1.0, (len(X), 1))
    for epsilon in (4.0, 8.0, 16.0, 60.0):
        mechanism = started(**KEPT)
        head = BallDPLogisticRegression(
            epsilon, 1e-4, radius=0.5, mechanism=mechanism, random_state=0
        )
        query = begun_of(head.fit(X, y))
        own, tau = query.seen, query.seen.norm
        assert query.constant == pytest.approx(CONSTANT * tau)
        rows = placed(passes_of(X, y, query, head.release_.problem)) @ matrix_of(own)
        assert np.linalg.norm(rows, axis=1).max() <= tau * (1.0 + 1e-9)
        assert tau < 0.95 * own.reach


@pytest.mark.parametrize("n_directions", [0, 3, D])
def test_rows_stay_in_the_smaller_ball_and_move_no_further_apart(n_directions):
    """What the gaps at tau rest on: rows of any norm, any map, in both precisions."""
    rng, codes = np.random.default_rng(0), np.zeros(40, dtype=np.intp)
    for dtype, slack in 30 * [(np.float64, 1e-12)] + 30 * [(np.float32, 3e-7)]:
        X = (rng.standard_normal((40, D)) * rng.choice([0.01, 0.3, 3.0], (40, 1))).astype(dtype)
        other = (X + rng.choice([1e-3, 0.5]) * rng.standard_normal(X.shape)).astype(dtype)
        centre = rng.standard_normal(D)
        centre *= rng.uniform(0.2, 1.0) / np.linalg.norm(centre)
        reach = max(np.sqrt(1.0 - centre @ centre), 0.3)
        directions = np.linalg.qr(rng.standard_normal((D, D)))[0][:, :n_directions]
        kept = rng.uniform(LEAST_KEPT, 1.0, n_directions)
        tau = reach * rng.uniform(0.5, 1.0)
        own = PublicMap(centre, directions, kept, reach, tau)
        query = MeanGradient(np.zeros((3, D + 1)), constant=0.3 * tau, clip=0.1, seen=own)
        precision = np.dtype(dtype).name
        problem = Problem(
            n_samples=40,
            n_features=D,
            n_classes=3,
            class_counts=(40, 0, 0),
            radius=0.5,
            loss="softmax",
            precision=precision,
        )
        moved = [placed(passes_of(x, codes, query, problem)) @ matrix_of(own) for x in (X, other)]
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
        np.testing.assert_allclose(own.place(X[inside].astype(float)), by_hand[inside], atol=1e-12)


@pytest.mark.parametrize(
    ("Head", "loss", "protect"),
    [
        (LOSSES[0], "softmax", True),
        (LOSSES[0], "softmax", False),
        (LOSSES[1], "squared_hinge", False),
    ],
)
def test_noise_of_centred_steps_is_that_of_the_smaller_ball(Head, loss, protect, asked):
    X, y = with_long_mean()
    labels = HIDDEN if protect else {}
    head = Head(50.0, radius=0.2, mechanism=Alone(**started(**KEPT).get_params()), **labels).fit(
        X, y
    )
    bound, problem = head.release_.bound, head.release_.problem
    steps = asked(head)[1:]
    own = steps[0][0].seen
    tau = own.norm
    assert own.reach == pytest.approx(np.sqrt(1.0 - own.centre @ own.centre))
    # Noise of sums that hide labels may cover all directions.
    assert own.shortens or protect
    assert tau < own.reach if own.shortens else tau == own.reach
    assert own.reach < 0.7
    given = {"norm_bound": tau, "constant": CONSTANT * tau, "clip": 0.1}
    shape = {"n_samples": N, "n_features": D, "dtype": np.float64, "whitened": own.shortens}
    shape["weights"] = problem.loss_weights
    least = bound.limits(problem, 0.2, problem.labels, bound.least_reach).least
    for (query, _), share in zip(steps, bound.step_mu(problem), strict=True):
        assert query.seen is own
        gap = iterate_gap(loss, query.theta, 0.2, **given, label_change=protect)
        allowed = given | {"norm_bound": own.reach}
        rounded = rounding.mean_rounding(problem.kind, query.theta, **shape, **allowed)
        asked_for = (gap / N + 2.0 * rounded) / share
        assert query.sigma == pytest.approx(asked_for, rel=1e-4)
        assert query.sigma >= least / N / share
    # Scores are those of moved rows, for rows where they were.
    thetas, velocity = [], np.zeros(steps[0][0].theta.shape)
    theta, rate = steps[0][0].theta, bound.learning_rate / tau**2
    for _, gradient in steps:
        centred = gradient - (loss == "softmax") * gradient.mean(axis=0)
        velocity = bound.momentum * velocity + centred
        theta = theta - rate * velocity
        thetas.append(theta)
    theta = np.mean(thetas[-bound.averaged :], axis=0)
    scores = (X - own.centre) @ matrix_of(own) @ theta[:, :-1].T
    scores += theta[:, -1] * CONSTANT * tau
    centred = loss == "softmax"
    found, expected = (
        s - centred * s.mean(axis=1, keepdims=True) for s in (head.decision_function(X), scores)
    )
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_mu_elsewhere_holds_wherever_the_rows_were_moved_to():
    """Ratios of sensitivities at two radii, over parameters and lengths of the centre."""
    rng = np.random.default_rng(0)
    head = BallDPLogisticRegression(2.0, radius=0.5, mechanism=started()).fit(*with_long_mean())
    problem = head.release_.problem
    # What follows from the promise at the radius alone.
    bound = dataclasses.replace(head.release_.bound, further=())
    assert bound.whitened
    steps = bound.left(problem, 0.5, bound.budget)
    for t in (0.6, 0.9, 1.4, 2.0):
        most = math.sqrt(bound.mu(problem, t) ** 2 - bound.start.mu(problem, t) ** 2)
        for _ in range(60):
            reach = rng.choice([LEAST_REACH, 0.5, 0.8, 1.0])
            own = PublicMap(np.zeros(D), np.empty((D, 0)), np.empty(0), reach, reach)
            theta = rng.standard_normal(bound.shape(problem)) * rng.choice([1e-3, 1.0, 30.0])
            query = MeanGradient(theta, clip=bound.clip, constant=CONSTANT * reach, seen=own)
            ratio = query.ratio(problem, t, "public") / query.ratio(problem, 0.5, "public")
            assert steps * ratio <= most * (1.0 + 1e-9)


def released_sums(X, y):
    """Noiseless statistics of a start, the bound of the descent, and its problem."""
    head = BallDPLogisticRegression(20.0, radius=0.3, mechanism=started()).fit(X, y)
    problem, bound = head.release_.problem, head.release_.bound
    values = bound.start.values(problem, head._records(X, y))
    return bound.start.statistics(problem, values), bound, problem


def test_what_the_centre_is_shrunk_by():
    statistics, bound, problem = released_sums(*with_long_mean(n=300))
    rng, exact = np.random.default_rng(0), statistics.class_sums
    mean, longest = exact.sum(axis=0) / 300, []

    def centre_of(sums, noise):
        own = dataclasses.replace(statistics, class_sums=sums, sigma_sums=np.full(3, noise))
        found = whitening_map(own, several_steps=False, least_reach=LEAST_REACH)
        return found.centre, found.reach

    def centres(sums, noise):
        """Of noisy sums, and their own means."""
        noisy = [sums + noise * rng.standard_normal((3, D)) for _ in range(200)]
        found = np.array([centre_of(s, noise)[0] for s in noisy])
        return found, np.sum(noisy, axis=1) / 300

    for noise in (1e-9, 0.5, 20.0):
        found, raw = (c - mean for c in centres(exact, noise))
        assert np.mean(found**2) <= 1.05 * np.mean(raw**2) + 1e-12
        longest.append(np.linalg.norm(found + mean, axis=1).max())
    assert longest[0] == pytest.approx(np.linalg.norm(mean))
    # Where noise is as long as the mean, half of its square is saved.
    found, _ = centres(0.5 * exact, 20.0)
    assert np.mean((found - 0.5 * mean) ** 2) < 0.75 * 3 * (20.0 / 300) ** 2
    # Noise alone is no mean: most of it is taken off.
    found, _ = centres(0.0 * exact, 6.0)
    assert np.mean(found**2) < 0.2 * 3 * (6.0 / 300) ** 2
    assert not centre_of(0.0 * exact, statistics.sigma_sums[0])[0].any()
    # However long the mean: what holds before the first step counts on this much being left.
    for length in (0.9, 0.999, 1.5, 1e9):
        c, reach = centre_of(np.full((3, D), length * 100.0 / math.sqrt(D)), 1e-9)
        # No true mean is longer than a row.
        assert np.linalg.norm(c) == pytest.approx(min(length, math.sqrt(1.0 - LEAST_REACH**2)))
        assert reach == pytest.approx(math.sqrt(max(1.0 - length**2, LEAST_REACH**2)))
        near = bound.limits(problem, 0.3, "public", reach).least
        assert near >= bound.limits(problem, 0.3, "public", bound.least_reach).least
        far = bound.limits(problem, 0.8, "public", reach).most
        assert far <= bound.limits(problem, 0.8, "public").most


def test_starts_by_name():
    X, y = with_long_mean()
    head = BallDPLogisticRegression(8.0, radius=0.1)
    auto, statistics, prototypes, zero = (
        head.set_params(mechanism=started(start=start)).fit(X, y).release_.bound
        for start in ("auto", "statistics", "prototypes", "zero")
    )
    assert auto == statistics
    assert auto.start.moment is not None
    assert prototypes.start.moment is None
    assert prototypes.whitened
    assert zero.start is None
    assert not zero.whitened
    assert zero.clip == 0.1
    head.set_params(mechanism=started(), fit_intercept=False)
    assert not head.fit(X, y).release_.bound.whitened


def test_a_start_from_the_mean(begun_of):
    X, y = with_long_mean()
    mechanism = GradientPerturbation(start="mean", n_steps=5, keep_transcript=True)
    head = BallDPLogisticRegression(20.0, radius=0.3, mechanism=mechanism).fit(X, y)
    release, begun = head.release_, begun_of(head)
    assert head.transcript_.start.shape == (D,)
    assert not begun.theta.any()
    noise = math.sqrt(D) * release.bound.start.sigma / N
    assert np.linalg.norm(begun.seen.centre - X.mean(axis=0)) < 3.0 * noise + 1e-9
    assert "r for the sum of all rows" in release.theorem
    assert not verify(head, private=(X, y)).failed
    # Where labels are protected: two datasets that differ in labels alone are the same to it.
    head.set_params(epsilon=2.0, **HIDDEN).fit(X, y)
    start, problem = head.release_.bound.start, head.release_.problem
    tables = [start.values(problem, head._records(X, labels)) for labels in (y, y[::-1])]
    np.testing.assert_array_equal(*tables)
    assert start.sigma * start.mu(problem, 0.3) == pytest.approx(2.0, rel=1e-4)
    assert not verify(head, private=(X, y)).failed


def statistics_with(moment, n=1000, sigma=1e-9):
    """Released sums of no mean, with this second moment of the rows."""
    return dataclasses.replace(
        released_sums(*data())[0],
        class_sums=np.zeros((3, len(moment))),
        second_moment=n * moment,
        sigma_moment=n * sigma,
        total=float(n),
        norm_bound=1.0,
    )


def test_whitening_sees_no_more_than_noise_lets_through():
    """Noise alone has no directions; a variance in noise is told without bias."""
    rng, d, sigma = np.random.default_rng(0), 100, 0.01
    spike = 3.0 * sigma * math.sqrt(2.0 * d)
    statistics = statistics_with(np.eye(d), sigma=sigma)

    def noisy(moment):
        noise = rng.standard_normal((d, d)) * sigma / math.sqrt(2.0)
        noise = np.triu(noise) + np.triu(noise, 1).T + np.diag(noise.diagonal()) * 0.4
        own = dataclasses.replace(statistics, second_moment=1000 * (moment + noise))
        return whitening_map(own, several_steps=True, least_reach=LEAST_REACH)

    assert sum(len(noisy(np.eye(d) / d).factors) for _ in range(20)) <= 6
    moment = np.eye(d) * (1.0 - spike) / d
    moment[0, 0] += spike
    found = [noisy(moment) for _ in range(20)]
    aligned = np.mean([own.directions[0, -1] ** 2 for own in found])
    assert aligned > 0.9
    told = aligned * spike
    expected = ((2.0 - told) / (2.0 - told + d * told)) ** 0.25
    assert np.mean([own.factors[-1] for own in found]) == pytest.approx(expected, rel=0.02)


def test_whitening_has_its_limits():
    """However lopsided the rows are: what the proofs of rounding and of other radii count on."""
    rng = np.random.default_rng(0)
    for d, n_spikes in ((5, 1), (200, 1), (200, 100), (200, 199)):
        spectrum = np.full(d, 1e-9)
        spectrum[:n_spikes] = 1.0
        for size in (1.0, 1e-3, 1e3):
            moment = np.diag(size * spectrum / spectrum.sum())
            own = whitening_map(
                statistics_with(moment), several_steps=True, least_reach=LEAST_REACH
            )
            assert own.fault(1.0, LEAST_REACH) is None
            assert own.within_limits
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

    def score(Head, seed, vectors):
        """With a seed: the same noise with and without, for releases vary by more than that."""
        head = Head(0.5, radius=1.0, class_embeddings=vectors, random_state=seed)
        return head.fit(X, y).score(X, y)

    for Head in LOSSES:
        gain = [score(Head, seed, vectors) - score(Head, seed, None) for seed in range(8)]
        assert np.mean(gain) > 0.02


def test_class_embeddings_are_part_of_what_follows_from_a_release(asked):
    """The first iterate is made of them: the conversation without them asks other questions."""
    X, y = data()
    vectors = np.random.default_rng(0).standard_normal((3, D))
    head = BallDPLogisticRegression(
        0.5, radius=1.0, class_embeddings=vectors, mechanism=started(**KEPT)
    ).fit(X, y)
    assert asked(head)[1][0].theta.any()
    assert not verify(head, private=(X, y)).failed
    head.released_ = dataclasses.replace(
        head.released_,
        settings=dataclasses.replace(head.released_.settings, class_embeddings=vectors[::-1]),
    )
    assert verify(head).failed
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        asked(head)


@pytest.mark.parametrize("several", [False, True])
def test_rules_decompose_on_one_thread(digits, monkeypatch, several):
    """On a busy machine threads of a small decomposition wait for each other."""
    threads, real = [], np.linalg.eigh

    def eigh(matrix):
        found = [i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"]
        threads.append(max(found, default=1))
        return real(matrix)

    monkeypatch.setattr(np.linalg, "eigh", eigh)
    if several:
        monkeypatch.setattr(passes, "ONE_THREAD_FEATURES", 63)
    steps = GradientPerturbation(n_steps=2, start="statistics")
    with threadpool_limits(2, user_api="blas"):
        eigh(np.eye(2))
        if threads.pop() != 2:
            pytest.skip("this BLAS has one thread")
        BallDPLinearDiscriminant(8.0, radius=0.1, share=0.5).fit(*digits[0]).predict(digits[0][0])
        assert len(threads) == 1
        BallDPLogisticRegression(8.0, radius=0.1, mechanism=steps).fit(*digits[0])
    # The rule of the discriminant, and then the whitening map and the rule.
    assert threads == [2 if several else 1] * 3


def test_rows_that_a_map_makes_shorter_than_rounding_allows_are_refused(monkeypatch, refused):
    """The allowance for rounding holds for rows that keep a share of their norm, tuned or not."""
    assert 1.0 / rounding.SHORTEST <= rounding._CENTRING_FACTOR
    monkeypatch.setattr(descent, "LEAST_REACH", 0.9 * rounding.SHORTEST)
    head = BallDPLogisticRegression(mechanism="gradient")
    refused(head, *data(), "the rounding of shorter rows is not covered")
