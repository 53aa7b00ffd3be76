"""What a fit would release, before it is made."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    PrivacyAccountant,
    RadiusPolicy,
)
from sklearn_balldp.heads import ReleasedModel
from sklearn_balldp.heads.descent import mean_gradient
from sklearn_balldp.heads.initialisation import initialise
from sklearn_balldp.privacy import Noise

N, D, COUNTS = 300, 6, (150, 100, 50)


def data(d=D):
    X = np.random.default_rng(0).standard_normal((N, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True), np.repeat([0, 1, 2], COUNTS)


HEADS = [
    BallDPRidgePrototype(2.0, radius=0.5),
    BallDPRidgePrototype(2.0, radius=0.5, counts="min"),
    BallDPRidgePrototype(2.0, protect_labels=True, classes=[0, 1, 2]),
    BallDPLogisticRegression(2.0, radius=0.3, metric="manhattan", mechanism="output"),
    BallDPSquaredHingeSVC(
        2.0, radius=0.3, mechanism=GradientPerturbation(n_steps=4), fit_intercept=False
    ),
    BallDPLogisticRegression(
        2.0, radius=0.3, mechanism=GradientPerturbation(n_steps=4, start="statistics")
    ),
    BallDPLinearDiscriminant(2.0, radius=0.3, share=0.5),
    BallDPLinearDiscriminant(2.0, protect_labels=True, classes=[0, 1, 2]),
]


@pytest.mark.parametrize("head", HEADS, ids=repr)
def test_the_plan_is_what_a_fit_releases(head):
    with PrivacyAccountant() as accountant:
        plan = head.plan(N, D, COUNTS)
    assert not accountant.records
    assert not [name for name in vars(head) if name.endswith("_")]
    assert plan.release.promised == head.fit(*data()).release_.promised
    assert f"epsilon={plan.release.epsilon:g}" in str(plan)


@pytest.mark.parametrize("head", [HEADS[0], HEADS[2], HEADS[3]], ids=repr)
def test_expected_noise_is_that_of_fits(head, monkeypatch):
    X, y = data(60)
    plan, added, real = head.plan(*X.shape, COUNTS), [], Noise.__call__

    def call(self, values, sigma):
        released = real(self, values, sigma)
        added.append(released - values)
        return released

    monkeypatch.setattr(Noise, "__call__", call)
    for _ in range(20):
        head.fit(X, y)
    squares = np.array([np.sum(noise**2, axis=1) for noise in added]).mean(axis=0)
    found = squares if len(plan.noise) == len(squares) else [squares.sum()]
    np.testing.assert_allclose(np.sqrt(found), plan.noise, rtol=0.08)


@pytest.mark.parametrize("head", HEADS, ids=repr)
def test_no_signal_is_longer(head, noise_free):
    """Rows at the edge of the ball, all alike in a class: the longest that there is."""
    plan = head.plan(N, D, COUNTS)
    X = np.eye(D)[data()[1]]
    head.fit(X, data()[1])
    if hasattr(head, "statistics_"):
        s = head.statistics_
        weighed = s.counts * getattr(head.release_.bound, "count_constant", 0.0)
        sizes = [np.linalg.norm(np.column_stack([s.class_sums, weighed]))]
        sizes += [] if s.second_moment is None else [np.linalg.norm(s.second_moment)]
    elif len(plan.signal) > 1:
        sizes = np.linalg.norm(head.prototypes_, axis=1)
    elif not hasattr(head, "mechanism"):
        sizes = np.zeros(1)
    elif head.release_.mechanism == "output":
        sizes = [np.linalg.norm(np.hstack([head.coef_, head.intercept_[:, None]]))]
    else:
        # All of one label: the longest mean gradient at zero.
        bound, problem = head.release_.bound, ReleasedModel(head).problem
        places = problem.with_rows(np.tile(X[:1], (N, 1)), np.zeros(N, dtype=int))
        begun = initialise(np.zeros((0, 0)), problem, replace(bound, start=None))
        own = mean_gradient(places, begun)(np.zeros((1, *bound.shape)))[0]
        sizes = [bound.descent.n_steps * np.linalg.norm(own) * (1.0 - 1e-6)]
        assert sizes[0] > 0.5 * plan.signal[0]
    assert (np.array(sizes) <= np.array(plan.signal) * (1 + 1e-9) + 1e-12).all()
    assert all(ratio > 0 for ratio in plan.signal_to_noise)


def test_class_signals_of_a_descent():
    """What one class adds to the noisy gradients at zero, over the noise: as it is computed."""
    mechanism = GradientPerturbation(n_steps=4, start="prototypes", clip=None)
    plan = BallDPLogisticRegression(2.0, radius=0.3, mechanism=mechanism).plan(N, D, COUNTS)
    bound, counts = plan.release.bound, np.array(COUNTS)
    sigma = np.array([bound.step(np.zeros(bound.shape), s)[1] for s in range(4)])
    # A residual of softmax at zero is at most sqrt(1 - 1/K) long; the limit for any score is 1.
    lengths = counts / N * math.sqrt(bound.norm_bound**2 + bound.constant**2)
    steps = lengths * np.linalg.norm(1.0 / sigma) / math.sqrt(D)
    expected = np.hypot(steps, counts / (bound.start.sigma[0] * math.sqrt(D)))
    found = np.array(plan.class_signal_to_noise)
    assert (found >= 0.8 * expected).all()
    assert (found <= 2.0 * expected).all()


@pytest.mark.parametrize("n_steps", [1, 25])
def test_no_class_tells_more_than_all_records(n_steps):
    """With gradients weighted by their noise, as the best reader of a transcript weighs them."""
    mechanism = GradientPerturbation(n_steps=n_steps, start="zero")
    head = BallDPLogisticRegression(2.0, radius=0.3, fit_intercept=False, mechanism=mechanism)
    plan = head.plan(10_000, D, (0, 10_000))
    assert plan.signal_to_noise[0] == pytest.approx(max(plan.class_signal_to_noise))


def test_rare_classes_have_less_left():
    ratios = HEADS[0].plan(N, D, COUNTS).signal_to_noise
    assert ratios[0] > ratios[1] > ratios[2]
    text = str(HEADS[0].plan(N, D, (290, 10, 0)))
    assert text.splitlines()[-1].split()[:4] == ["2", "0", "0", "0"]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((N, D), "class_counts=None"),
        ((N, D, (1, 2)), "add up to 3, not to n_samples=300"),
        ((N, D, (N,)), "at least 2 classes"),
        ((N, D, (N + 1, -1)), "class_counts must be an integer of at least 0"),
        ((0, D, (0, 0)), "n_samples must be an integer of at least 1"),
        ((N, 2.5, COUNTS), "n_features must be an integer"),
        ((N, D, N), "class_counts must list the records of each class, .*, got 300"),
        ((N, D, {0: 200, 1: 100}), "class_counts must list the records of each class"),
        ((N, D, iter(COUNTS)), "class_counts must list the records of each class"),
        ((N, D, [[200], [100, 0]]), "class_counts must list the records of each class"),
        ((N, D, np.ma.masked_array([200, 100], [0, 1])), "class_counts has a mask"),
        ((N, D, [200.0, 100.0]), "class_counts must be an integer"),
    ],
)
def test_numbers_that_are_no_plan(arguments, match):
    with pytest.raises(ValueError, match=match):
        HEADS[0].plan(*arguments)


@pytest.mark.parametrize("y", [["a", "b"], "abc", [["a"], ["b", "c"], []], np.zeros((3, 1))])
def test_labels_that_are_no_plan(y):
    with pytest.raises(ValueError, match="y must hold one label for each of n_samples=3"):
        HEADS[0].plan(3, D, y=y)


@pytest.mark.parametrize(
    ("head", "counts"),
    [
        (HEADS[0], [10**11, 9 * 10**11]),
        (HEADS[2], None),
        (BallDPLogisticRegression(2.0, class_weight="balanced"), [10**11, 9 * 10**11]),
    ],
    ids=repr,
)
def test_a_plan_of_more_records_than_memory_holds(head, counts):
    plan = clone(head).set_params(delta=1e-18).plan(10**12, D, counts)
    assert plan.release.n_samples == 10**12


def test_parts_are_told_apart_by_name():
    """Two classes, and two parts that are none of classes."""
    plan = BallDPLinearDiscriminant(2.0, radius=0.3, share=0.5).plan(N, D, (200, 100))
    sums, moment = (f"{noise:.3g} in the" for noise in plan.noise)
    assert list(plan.parts) == ["class sums", "second moment"]
    assert f"noise of length {sums} class sums" in str(plan)
    assert f"noise of length {moment} second moment" in str(plan)
    rows = [line.split() for line in str(plan).splitlines()[-2:]]
    assert rows == [
        [str(code), str(count), f"{ratio:.3g}"]
        for code, count, ratio in zip((0, 1), (200, 100), plan.class_signal_to_noise, strict=True)
    ]
    # Counts are private: one line for all prototypes.
    text = str(HEADS[2].plan(N, D))
    assert text.count("noise of length") == text.count("in each prototype") == 1


def test_radii_that_are_chosen():
    with pytest.raises(ValueError, match="this policy chooses from rows, and a plan has none"):
        BallDPRidgePrototype(radius=RadiusPolicy()).plan(N, D, COUNTS)
    policy = RadiusPolicy().fit(X_public=data()[0], y_public=data()[1])
    plan = BallDPRidgePrototype(radius=FrozenEstimator(policy)).plan(N, D, COUNTS)
    assert plan.release.radius == policy.radius_
    with pytest.warns(UserWarning, match="1/n_samples"):
        BallDPRidgePrototype(delta=0.1).plan(N, D, COUNTS)
    with pytest.raises(ValueError, match="epsilon must be"):
        BallDPRidgePrototype(epsilon=-1.0).plan(N, D, COUNTS)
