"""What a fit would release, before it is made."""

import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from head_cases import HEADS, head_of, rows, steps
from sklearn.frozen import FrozenEstimator

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    RadiusPolicy,
)
from sklearn_balldp.datasets import load_messages
from sklearn_balldp.heads.plan import _of_classes
from sklearn_balldp.mechanisms import GradientPerturbation, MeanGradient, Records, Sums
from sklearn_balldp.privacy import Noise
from sklearn_balldp.publish import summary

N, D, COUNTS = 300, 6, (150, 100, 50)
Y = np.repeat([0, 1, 2], COUNTS)


def plan_of(name, n_features=D, **params):
    return head_of(name, epsilon=2.0, **params).plan(N, n_features, COUNTS)


def lengths(values, plan):
    """Of the parts of released values that a plan speaks of."""
    bound, problem = plan.release.bound, plan.release.problem
    if not isinstance(bound, Sums) or bound.moment is None:
        return np.array([np.linalg.norm(values)])
    k, d = problem.n_classes, problem.n_features
    moment = np.zeros(len(values), dtype=bool)
    moment[k * d : k * d + d * (d + 1) // 2] = True
    return np.array([np.linalg.norm(values[~moment]), np.linalg.norm(values[moment])])


@pytest.mark.parametrize(
    ("name", "metric"), [*((n, "euclidean") for n in HEADS), ("minimiser", "manhattan")]
)
def test_expected_noise_is_that_of_fits_and_no_signal_is_longer(name, metric, monkeypatch):
    """Rows at the edge of the ball, all alike in a class: the longest that there is."""
    added, real = [], Noise.__call__
    plan = plan_of(name, metric=metric)

    def call(self, values, sigma):
        released = real(self, values, sigma)
        added.append(released - values)
        return released

    problem, bound = plan.release.problem, plan.release.bound
    if "gradients of the steps" in plan.parts:
        # All of one label: the longest mean gradient at zero.
        alike = Records(np.tile(np.eye(D)[:1], (N, 1)), np.zeros(N, dtype=int))
        query = MeanGradient(np.zeros(bound.shape(problem)), 1.0, bound.clip, bound.constant)
        size = bound.n_steps * np.linalg.norm(query.values(problem, alike)) * (1.0 - 1e-6)
        assert size > 0.5 * plan.signal[-1]
        sizes = np.array([size])
    else:
        sizes = lengths(bound.values(problem, Records(np.eye(D)[Y], Y)), plan)
        monkeypatch.setattr(Noise, "__call__", call)
        wide, head = plan_of(name, 60), head_of(name, epsilon=2.0)
        X = rows(N, d=60)[0]
        for _ in range(20):
            head.fit(X, Y)
        found = np.sqrt(np.mean([lengths(noise, wide) ** 2 for noise in added], axis=0))
        np.testing.assert_allclose(found, wide.noise, rtol=0.08)
    assert (sizes <= np.array(plan.signal[-len(sizes) :]) * (1 + 1e-9) + 1e-12).all()
    assert len(plan.parts) == len(plan.noise) == len(plan.signal)
    assert all(ratio > 0 for ratio in plan.signal_to_noise)
    # A line for each part, also where counts are private.
    text = str(plan)
    assert text.count("noise of length") == len(plan.parts)
    for part, noise in zip(plan.parts, plan.noise, strict=True):
        assert f"noise of length {noise:.3g} in the {part}" in text


def test_class_signals_of_a_descent():
    """What one class adds to the noisy gradients at zero, over the noise: as it is computed."""
    mechanism = steps("prototypes", n_steps=4, clip=None)
    plan = plan_of("descent", mechanism=mechanism)
    bound, counts = plan.release.bound, np.array(COUNTS)
    # A residual of softmax at zero is at most sqrt(1 - 1/K) long; the limit for any score is 1.
    sizes = counts / N * math.sqrt(1.0 + bound.constant**2)
    signal = sizes * math.sqrt(bound.n_steps) / bound.sigma / math.sqrt(D)
    expected = np.hypot(signal, counts / (bound.start.sigma * math.sqrt(D)))
    found = np.array(plan.class_signal_to_noise)
    assert (found >= 0.8 * expected).all()
    assert (found <= 2.0 * expected).all()


@pytest.mark.parametrize("n_steps", [1, 25])
def test_no_class_tells_more_than_all_records(n_steps):
    """With gradients weighted by their noise, as the best reader of a transcript weighs them."""
    head = head_of("descent", mechanism=steps("zero", n_steps=n_steps), fit_intercept=False)
    plan = head.set_params(delta=1e-6).plan(10_000, D, (0, 10_000))
    assert plan.signal_to_noise[0] == pytest.approx(max(plan.class_signal_to_noise))


#: Epsilon and radius: of few records, and of many.
FORETOLD = {
    60: ((0.25, 0.6), (1.0, None), (2.0, 0.1), (0.5, 0.02)),
    717: ((0.02, 0.6), (2.0, None), (0.1, 0.1)),
}


@pytest.mark.parametrize("n", FORETOLD)
def test_ratios_of_classes_foretell_the_accuracy_as_the_page_says(n):
    page = (Path(__file__).parents[2] / "docs" / "choose.md").read_text(encoding="utf-8")
    said = r"(\d+) % where it was above (\d+), and at most (\d+) % where it was below (0\.\d+)"
    least, above, most, below = map(float, re.search(said, page).groups())
    messages = load_messages()
    places = np.random.default_rng(0).permutation(len(messages.X_train))[:n]
    X, y = messages.X_train[places], messages.y_train[places]
    counts, told = np.unique(y, return_counts=True)[1], []
    heads = BallDPLogisticRegression, BallDPRidgePrototype, BallDPLinearDiscriminant
    for head, (epsilon, radius) in itertools.product(heads, FORETOLD[n]):
        own = head(epsilon, radius=radius)
        ratios = own.plan(*X.shape, counts).class_signal_to_noise
        told.append(1 if min(ratios) > above else -1 if max(ratios) < below else 0)
        # Noise that hides classes moves an accuracy by ten points.
        n_fits = {1: 1, 0: 0, -1: 12}[told[-1]]
        scores = [own.fit(X, y).score(messages.X_test, messages.y_test) for _ in range(n_fits)]
        assert told[-1] < 1 or 100.0 * np.mean(scores) >= least, (head, epsilon, radius)
        assert told[-1] > -1 or 100.0 * np.mean(scores) <= most, (head, epsilon, radius)
    assert min(told.count(1), told.count(-1)) >= 3


def test_classes_have_their_names():
    for classes in (["cat", "dog"], [True, False], [10, 7]):
        plan = BallDPRidgePrototype(classes=classes).plan(100, D, [60, 40])
        assert plan.classes == tuple(sorted(classes))
        shown = [line.split()[:2] for line in str(plan).splitlines()[-2:]]
        assert shown == [[str(plan.classes[0]), "60"], [str(plan.classes[1]), "40"]]
        told = BallDPRidgePrototype().plan(100, D, y=np.repeat(plan.classes, [60, 40]))
        assert str(told).splitlines()[-2:] == str(plan).splitlines()[-2:]
    # Rare classes have less left; of a plan of many those are shown that are most at risk.
    text = str(head_of("prototypes").plan(N, D, (290, 10, 0)))
    assert text.splitlines()[-1].split()[:5] == ["2", "0", "0", "likely", "lost"]
    names = [f"class {i}" for i in range(30)]
    plan = BallDPRidgePrototype(classes=names).plan(465, D, range(1, 31))
    order = sorted(names)
    assert f"{order[0]:>8}         1" in str(plan)
    assert "\x1b" not in str(BallDPRidgePrototype(classes=["a", "\x1b[2J"]).plan(9, D, [4, 5]))


def test_a_descent_shows_the_sums_that_it_starts_from():
    parts = {name: list(plan_of(name).parts) for name in HEADS if "descent" in name}
    assert parts["descent"] == ["class sums", "second moment", "gradients of the steps"]
    assert parts["descent from the mean"] == ["sum of all rows", "gradients of the steps"]
    assert parts["descent from zero"] == ["gradients of the steps"]
    # Of sums: a class is its records over their noise, and the second moment is no class.
    plan = plan_of("discriminant")
    expected = np.array(COUNTS) / (plan.release.bound.sigma * math.sqrt(D))
    np.testing.assert_allclose(plan.class_signal_to_noise, expected)
    # A sum of all rows tells no class.
    release = plan_of("descent from the mean").release
    assert _of_classes(release.problem, release.bound.start, np.array(COUNTS)) == (0.0,) * 3


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
        ((N, D, np.ma.masked_array([200, 100], [0, 1])), "class_counts has a mask"),
        ((N, D, [200.0, 100.0]), "class_counts must be an integer"),
    ],
)
def test_numbers_that_are_no_plan(arguments, match):
    with pytest.raises(ValueError, match=match):
        head_of("prototypes").plan(*arguments)


@pytest.mark.parametrize("y", [["a", "b"], "abc", [["a"], ["b", "c"], []], np.zeros((3, 1))])
def test_labels_that_are_no_plan(y):
    with pytest.raises(ValueError, match="y must hold one label for each of n_samples=3"):
        head_of("prototypes").plan(3, D, y=y)


@pytest.mark.parametrize(
    ("head", "counts"),
    [
        (head_of("prototypes"), [10**11, 9 * 10**11]),
        (head_of("hidden prototypes"), None),
        (BallDPLogisticRegression(2.0, class_weight="balanced"), [10**11, 9 * 10**11]),
    ],
    ids=repr,
)
def test_a_plan_of_more_records_than_memory_holds(head, counts):
    plan = head.set_params(delta=1e-18).plan(10**12, D, counts)
    assert plan.release.n_samples == 10**12


def test_radii_that_are_chosen():
    with pytest.raises(ValueError, match="this policy chooses from rows, and a plan has none"):
        BallDPRidgePrototype(radius=RadiusPolicy()).plan(N, D, COUNTS)
    policy = RadiusPolicy().fit(X_public=rows(N)[0], y_public=Y)
    plan = BallDPRidgePrototype(radius=FrozenEstimator(policy)).plan(N, D, COUNTS)
    assert plan.release.radius == policy.radius_
    with pytest.warns(UserWarning, match="1/n_samples"):
        BallDPRidgePrototype(delta=0.1).plan(N, D, COUNTS)
    with pytest.raises(ValueError, match="epsilon must be"):
        BallDPRidgePrototype(epsilon=-1.0).plan(N, D, COUNTS)


@pytest.mark.kills("mechanisms/descent.py", "if self.n_steps else sums", "if True else sums")
@pytest.mark.parametrize(
    ("n_steps", "start", "what", "parts"),
    [
        (0, "prototypes", "class sums", "class sums"),
        (5, "prototypes", "class sums, and on the gradients of a descent from them", "steps"),
        (5, "zero", "the gradients of a descent", "steps"),
    ],
)
def test_a_record_names_what_was_released(n_steps, start, what, parts):
    """Scales of class sums are not those of gradients, where no step was taken."""
    mechanism = GradientPerturbation(n_steps=n_steps, start=start)
    head = BallDPLogisticRegression(radius=0.5, mechanism=mechanism)
    release = head.plan(90, 4, [45, 45]).release
    assert (release.bound.what, release.bound.parts) == (f"noise on {what}", parts)
    text = summary(release)
    assert f" noise on {what}\n" in text
    found = re.search(r"noise scale +(?:.*, )?(\S+) \(each of 5 steps\)", text)
    assert (found is not None) == ("them" in what)
    if found:
        assert float(found[1]) == pytest.approx(release.bound.sigma, rel=1e-3)
        assert re.search(r"noise scale +\S+ \(class sums\), ", text)
