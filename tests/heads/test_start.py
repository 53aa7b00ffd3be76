"""Descents that start from noisy sums: where they start, and how they see the rows."""

import dataclasses
import math

import numpy as np
import pytest
from head_cases import HIDDEN, asked, records_of, refused, steps
from mean_gradients import as_computed
from threadpoolctl import threadpool_info, threadpool_limits
from verdicts import verified

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
)
from sklearn_balldp.mechanisms import MeanGradient, descent
from sklearn_balldp.mechanisms.settings import CONSTANT, LEAST_REACH
from sklearn_balldp.mechanisms.whitening import whitening_map
from sklearn_balldp.privacy import rounding
from sklearn_balldp.privacy.rounding import LEAST_KEPT, MOST_DIRECTIONS
from sklearn_balldp.rows import passes

N, D = 900, 12
LOSSES = [BallDPLogisticRegression, BallDPSquaredHingeSVC]


def data(k=3, n=N, mean=0.0):
    """Rows that vary more along some features than along others."""
    rng, y = np.random.default_rng(0), np.arange(n) % k
    X = rng.standard_normal((n, D)) * np.linspace(0.4, 1.4, D) + 2.5 * np.eye(k, D)[y]
    X = X / np.linalg.norm(X, axis=1, keepdims=True) + mean * np.eye(D)[D - 1]
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def fitted(epsilon=2.0, Head=LOSSES[0], mean=0.0, mechanism=None, **params):
    given = {"radius": 0.4, "mechanism": mechanism or steps(), "random_state": 0, **params}
    return Head(epsilon, **given).fit(*data(mean=mean))


def first_step(head):
    """Where it is taken, and the map that it sees the rows through."""
    return next(query for query, _ in asked(head) if isinstance(query, MeanGradient))


def matrix_of(seen):
    """A, as a matrix."""
    return seen.shortened(np.eye(len(seen.centre)))


@pytest.mark.parametrize(("k", "fit_intercept"), [(2, True), (3, False), (3, True)])
@pytest.mark.parametrize("Head", LOSSES)
def test_it_starts_from_the_discriminant(noise_free, Head, k, fit_intercept):
    X, y = data(k)
    mechanism = steps(n_steps=1, learning_rate=1e-12)
    head = Head(2.0, radius=0.01, mechanism=mechanism, fit_intercept=fit_intercept).fit(X, y)
    peer = BallDPLinearDiscriminant(2.0, radius=0.01, share=0.5).fit(X, y)
    if fit_intercept:
        assert np.mean(head.predict(X) == peer.predict(X)) > (0.99 if k == 2 else 0.97)
    assert head.score(X, y) > 0.8
    margins = head.decision_function(X)
    if Head is BallDPSquaredHingeSVC and fit_intercept:
        of_label = margins[np.arange(N), y] if k > 2 else margins * (2 * y - 1)
        assert 0.5 < np.median(of_label) < 2.0
    # With absent classes too.
    absent = fitted(classes=range(5))
    assert np.isfinite(absent.coef_).all()
    assert first_step(absent).theta.any()


def moved_alone(statistics, least_reach):
    """The map without its directions."""
    return whitening_map(dataclasses.replace(statistics, second_moment=None), least_reach)


@pytest.mark.parametrize("Head", LOSSES)
def test_no_steps_release_the_discriminant(Head):
    """As its own head does, where public numbers say that steps would harm, and where asked."""
    X, y = data(mean=2.0)
    given = {"epsilon": 0.5, "radius": 0.05, "random_state": 0}
    own = BallDPLinearDiscriminant(**given).fit(X, y)
    for mechanism in ("auto", GradientPerturbation(n_steps=0)):
        head = Head(mechanism=mechanism, **given).fit(X, y)
        assert head.release_.bound.n_steps == 0
        np.testing.assert_array_equal(head.predict(X), own.predict(X))
        for t in (0.05, 0.3, 2.0):
            assert head.release_.guarantee(t).mu == pytest.approx(own.release_.guarantee(t).mu)
    tuned = Head(mechanism=GradientPerturbation(learning_rate=1.0), **given).fit(X, y)
    assert tuned.release_.bound.n_steps > 1
    kept = Head(mechanism=GradientPerturbation(n_steps=0, keep_transcript=True), **given)
    kept.fit(X, y)
    assert len(kept.transcript_.gradients) == 0
    assert not verified(kept.set_params(random_state=None).fit(X, y)).failed
    with pytest.raises(ValueError, match="n_steps=0 releases the discriminant"):
        Head(mechanism=GradientPerturbation(n_steps=0, start="zero"), **given).fit(X, y)


@pytest.mark.parametrize("Head", LOSSES)
def test_a_start_scores_alike_through_every_map(Head, monkeypatch):
    """Rows where they were have the scores of the discriminant, which no steps release."""
    X, _ = data(mean=2.0)
    scores, maps, kept = [], [], True
    for shortened in (True, False):
        if not shortened:
            monkeypatch.setattr(descent, "whitening_map", moved_alone)
        query = first_step(fitted(50.0, Head, 2.0, steps(), radius=0.05))
        maps.append(query.whitening)
        moved = as_computed(X, seen=query.whitening)
        seen = np.pad(moved, ((0, 0), (0, 1)), constant_values=query.constant)
        kept &= np.linalg.norm(X - query.whitening.centre, axis=1) < query.whitening.norm
        found = seen @ query.theta.T
        scores.append(found - (Head is LOSSES[0]) * found.mean(axis=1, keepdims=True))
    assert maps[0].shortens
    assert maps[0].factors.min() < 0.9
    assert not maps[1].shortens
    assert kept.sum() > 20
    np.testing.assert_allclose(*(found[kept] for found in scores), rtol=1e-7, atol=1e-7)


def test_short_rows_in_the_ball_are_short_for_the_gaps_too():
    """The second moment tells their length, also where it tells no direction."""
    rng = np.random.default_rng(0)
    X, y = data(n=3000, mean=2.0)
    X = 0.5 * (X + rng.standard_normal(X.shape))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True))
    X *= rng.uniform(0.4, 1.0, (len(X), 1))
    for epsilon in (4.0, 16.0, 60.0):
        given = {"radius": 0.5, "mechanism": steps(), "random_state": 0}
        query = first_step(BallDPLogisticRegression(epsilon, 1e-4, **given).fit(X, y))
        tau = query.whitening.norm
        assert query.constant == pytest.approx(CONSTANT * tau)
        lengths = np.linalg.norm(as_computed(X[:300], seen=query.whitening), axis=1)
        assert lengths.max() <= tau * (1.0 + 1e-9)
        assert tau < 0.95 * query.whitening.reach


@pytest.mark.parametrize(
    ("Head", "labels"), [(LOSSES[0], HIDDEN), (LOSSES[0], {}), (LOSSES[1], {})], ids=str
)
def test_centred_steps_have_the_noise_and_the_scores_of_the_smaller_ball(Head, labels):
    """By hand: noise is the sensitivity over the step's share, and scores are of moved rows."""
    head = fitted(50.0, Head, 2.0, steps(), radius=0.2, **labels)
    X, _ = data(mean=2.0)
    bound, problem = head.release_.bound, head.release_.problem
    taken = asked(head)[1:]
    seen = taken[0][0].whitening
    tau = seen.norm
    assert seen.reach == pytest.approx(np.sqrt(1.0 - seen.centre @ seen.centre))
    # Noise of sums that hide labels may cover all directions.
    assert seen.shortens or labels
    assert tau < seen.reach if seen.shortens else tau == seen.reach
    assert seen.reach < 0.7
    gap = bound.gap(problem, 0.2, problem.labels, tau)
    share = bound.step_mu(problem, 0.2, problem.labels)
    for query, _ in taken:
        assert query.whitening is seen
        unit = dataclasses.replace(query, sigma=1.0)
        moved = unit.ratio(problem, 0.2, problem.labels)
        assert query.sigma == pytest.approx(moved / share, rel=1e-4)
        assert query.sigma == pytest.approx(gap / N / share, rel=1e-3)
    velocity = np.zeros(taken[0][0].theta.shape)
    theta, rate = taken[0][0].theta, bound.learning_rate / tau**2
    for _, gradient in taken:
        centred = gradient - (Head is LOSSES[0]) * gradient.mean(axis=0)
        velocity = bound.momentum * velocity + centred
        theta = theta - rate * velocity
    scores = (X - seen.centre) @ matrix_of(seen) @ theta[:, :-1].T
    scores += theta[:, -1] * CONSTANT * tau
    both = (
        s - (Head is LOSSES[0]) * s.mean(axis=1, keepdims=True)
        for s in (head.decision_function(X), scores)
    )
    np.testing.assert_allclose(*both, atol=1e-8)


def released_sums(mean, n=N):
    """Noiseless statistics of a start, the bound of the descent, and its problem."""
    X, y = data(n=n, mean=mean)
    head = BallDPLogisticRegression(20.0, radius=0.3, mechanism=steps()).fit(X, y)
    problem, bound = head.release_.problem, head.release_.bound
    values = bound.start.values(problem, records_of(head, X, y))
    return bound.start.statistics(problem, values), bound, problem


def test_what_the_centre_is_shrunk_by():
    statistics, bound, problem = released_sums(2.0, n=300)
    rng, exact = np.random.default_rng(0), statistics.class_sums
    mean, longest = exact.sum(axis=0) / 300, []

    def centre_of(sums, noise):
        noisy = dataclasses.replace(statistics, class_sums=sums, sigma_sums=np.full(3, noise))
        found = whitening_map(noisy, LEAST_REACH)
        return found.centre, found.reach

    def centres(sums, noise):
        """Of noisy sums, and their means."""
        noisy = [sums + noise * rng.standard_normal((3, D)) for _ in range(200)]
        return np.array([centre_of(s, noise)[0] for s in noisy]), np.sum(noisy, axis=1) / 300

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
        grown = bound.gap(problem, 0.8, "public", reach) / bound.gap(problem, 0.3, "public", reach)
        assert grown <= bound.growth(problem, 0.8, "public")


def test_a_start_from_the_mean():
    X, y = data(mean=2.0)
    head = fitted(20.0, mean=2.0, radius=0.3, mechanism=steps("mean"), random_state=None)
    begin, release = first_step(head), head.release_
    assert head.transcript_.start.shape == (D,)
    assert not hasattr(head, "statistics_")
    assert not begin.theta.any()
    noise = math.sqrt(D) * release.bound.start.sigma / N
    assert np.linalg.norm(begin.whitening.centre - X.mean(axis=0)) < 3.0 * noise + 1e-9
    assert "r for the sum of all rows" in release.theorem
    # Where labels are protected: two datasets that differ in labels alone are the same to it.
    head.set_params(epsilon=2.0, **HIDDEN).fit(X, y)
    start, problem = head.release_.bound.start, head.release_.problem
    tables = [start.values(problem, records_of(head, X, labels)) for labels in (y, y[::-1])]
    np.testing.assert_array_equal(*tables)
    assert start.sigma * start.mu(problem, 0.3) == pytest.approx(2.0, rel=1e-4)


def statistics_with(moment, n=1000, sigma=1e-9):
    """Released sums of no mean, with this second moment of the rows."""
    return dataclasses.replace(
        released_sums(0.0)[0],
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
        sums = dataclasses.replace(statistics, second_moment=1000 * (moment + noise))
        return whitening_map(sums, LEAST_REACH)

    assert sum(len(noisy(np.eye(d) / d).factors) for _ in range(20)) <= 6
    moment = np.eye(d) * (1.0 - spike) / d
    moment[0, 0] += spike
    maps = [noisy(moment) for _ in range(20)]
    aligned = np.mean([seen.directions[0, -1] ** 2 for seen in maps])
    assert aligned > 0.9
    variance = aligned * spike
    expected = ((2.0 - variance) / (2.0 - variance + d * variance)) ** 0.25
    assert np.mean([seen.factors[-1] for seen in maps]) == pytest.approx(expected, rel=0.02)


def test_whitening_has_its_limits():
    """However lopsided the rows are: what the proofs of rounding and of other radii count on."""
    rng = np.random.default_rng(0)
    for d, n_spikes in ((5, 1), (200, 1), (200, 100), (200, 199)):
        spectrum = np.full(d, 1e-9)
        spectrum[:n_spikes] = 1.0
        for size in (1.0, 1e-3, 1e3):
            sums = statistics_with(np.diag(size * spectrum / spectrum.sum()))
            seen = whitening_map(sums, LEAST_REACH)
            assert seen.fault(1.0, LEAST_REACH) is None
            assert seen.within_limits
            assert len(seen.factors) <= MOST_DIRECTIONS
            assert (seen.factors >= LEAST_KEPT).all()
            assert (seen.factors <= 1.0).all()
            assert LEAST_REACH <= seen.norm <= seen.reach <= 1.0
            weights = rng.standard_normal((20, d))
            lengths = [np.linalg.norm(w, axis=1) for w in (seen.shortened(weights), weights)]
            assert (lengths[0] <= lengths[1] * (1.0 + 1e-12)).all()


@pytest.mark.kills("heads/released.py", "self.settings.for_mechanism(self.problem)", "{}")
def test_class_embeddings_are_part_of_what_follows_from_a_release():
    """The first iterate is made of them: the conversation without them asks other questions."""
    vectors = np.random.default_rng(0).standard_normal((3, D))
    head = fitted(0.5, radius=1.0, class_embeddings=vectors, random_state=None)
    assert first_step(head).theta.any()
    assert not verified(head, private=data()).failed
    settings = dataclasses.replace(head.released_.settings, class_embeddings=vectors[::-1])
    head.released_ = dataclasses.replace(head.released_, settings=settings)
    assert verified(head).failed
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        asked(head)


@pytest.mark.parametrize("several", [False, True])
def test_rules_decompose_on_one_thread(monkeypatch, several):
    """On a busy machine threads of a small decomposition wait for each other."""
    threads, real = [], np.linalg.eigh

    def eigh(matrix):
        found = [i["num_threads"] for i in threadpool_info() if i["user_api"] == "blas"]
        threads.append(max(found, default=1))
        return real(matrix)

    monkeypatch.setattr(np.linalg, "eigh", eigh)
    if several:
        monkeypatch.setattr(passes, "ONE_THREAD_FEATURES", D - 1)
    X, y = data()
    with threadpool_limits(2, user_api="blas"):
        eigh(np.eye(2))
        if threads.pop() != 2:
            pytest.skip("this BLAS has one thread")
        BallDPLinearDiscriminant(8.0, radius=0.1, share=0.5).fit(X, y).predict(X)
        assert len(threads) == 1
        fitted(8.0, radius=0.1, mechanism=steps(n_steps=2))
    # The rule of the discriminant; then the whitening map, the rule, and a matrix of scores.
    assert threads == [*[2 if several else 1] * 3, 1]


def test_rows_that_a_map_makes_shorter_than_rounding_allows_are_refused(monkeypatch):
    """The allowance for rounding holds for rows that keep a share of their norm, tuned or not."""
    assert 1.0 / rounding.SHORTEST <= 3.5
    monkeypatch.setattr(descent, "LEAST_REACH", 0.9 * rounding.SHORTEST)
    head = BallDPLogisticRegression(mechanism="gradient")
    refused(head, *data(), "the rounding of shorter rows is not covered")
