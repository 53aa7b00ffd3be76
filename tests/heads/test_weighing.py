"""Persons, class weights and declared weights: what one substitution moves, and is released."""

import itertools
import json
import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    PrivacyAccountant,
    RadiusPolicy,
    verify,
)
from sklearn_balldp.heads import ReleasedModel
from sklearn_balldp.heads.descent import mean_gradient
from sklearn_balldp.heads.initialisation import initialise, start_values
from sklearn_balldp.heads.mechanism import PrivateProblem, Promise
from sklearn_balldp.heads.objective import LinearObjective
from sklearn_balldp.heads.output import OutputPerturbation
from sklearn_balldp.heads.weighing import MOST_BALANCED, fit_weights, weights_of
from sklearn_balldp.losses import make_loss
from sklearn_balldp.privacy.release import Release
from sklearn_balldp.privacy.rounding import mean_rounding
from sklearn_balldp.privacy.statistics import StatisticsBound
from sklearn_balldp.privacy.weights import Weights

RADIUS = 0.4
HEADS = {
    "prototypes": BallDPRidgePrototype(),
    "prototypes, one scale": BallDPRidgePrototype(counts="min"),
    "discriminant": BallDPLinearDiscriminant(share=0.5),
    "discriminant, sphere": BallDPLinearDiscriminant(share=0.5, domain="sphere"),
    "logistic, minimiser": BallDPLogisticRegression(mechanism="output", alpha=0.05),
    "SVC, minimiser": BallDPSquaredHingeSVC(mechanism="output", alpha=0.05),
    "logistic, descent": BallDPLogisticRegression(mechanism="gradient"),
    "logistic, descent from the mean": BallDPLogisticRegression(
        mechanism=GradientPerturbation(start="mean")
    ),
    "SVC, descent": BallDPSquaredHingeSVC(mechanism=GradientPerturbation(start="zero")),
}


def records(n=60, d=5, n_classes=3, seed=0):
    """Rows on the sphere, where substitutions move most, and labels."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 2.0 * np.eye(n_classes, d)[np.arange(n) % n_classes]
    return X / np.linalg.norm(X, axis=1, keepdims=True), np.arange(n) % n_classes


def owners(y, seed=0):
    """Persons of 1 to 5 records, some of one class alone and some of several."""
    rng = np.random.default_rng(seed)
    groups, person = np.full(len(y), -1), 0
    free = list(rng.permutation(len(y)))
    while free:
        size = 1 + person % 5
        alike = [i for i in free if y[i] == y[free[0]]]
        own = (alike if person % 2 else free)[:size]
        groups[own] = person
        free = [i for i in free if i not in own]
        person += 1
    return groups


def moved(rows, radius, rng, direction=None):
    """Rows within the radius of these, in the ball; all the same way, if one is given."""
    step = (
        rng.standard_normal(rows.shape) if direction is None else np.tile(direction, (len(rows), 1))
    )
    other = rows + radius * step / np.linalg.norm(step, axis=1, keepdims=True)
    norms = np.linalg.norm(other, axis=1, keepdims=True)
    return other / np.maximum(norms, 1.0)


def spent(head, problem, neighbour, thetas):
    """How far two datasets' values are apart in units of the noise: of all that is released."""
    bound = head.release_.bound
    promise = Promise(bound, head.release_.sensitivity, head.release_.sigma)
    if head.release_.mechanism != "gradient":
        mechanism = ReleasedModel(head).mechanism
        (one, sigma), (other, _) = (mechanism.noiseless(p, promise) for p in (problem, neighbour))
        scale = np.broadcast_to(sigma, one.shape)
        noisy = scale > 0.0
        return float(np.linalg.norm((one - other)[noisy] / scale[noisy]))
    squares, table = 0.0, np.empty((0, 0))
    if bound.start is not None:
        (one, scale), (other, _) = (start_values(p, bound) for p in (problem, neighbour))
        noisy = scale > 0.0
        squares += np.sum(((one - other)[noisy] / scale[noisy]) ** 2)
        table = one + scale * np.random.default_rng(0).standard_normal(scale.shape)
    begun = initialise(table, problem, bound)
    first, second = (mean_gradient(p, begun) for p in (problem, neighbour))
    # All steps at the worst of these iterates.
    steps = []
    for scale in thetas:
        theta = begun.theta * scale
        rounding, apart = first.rounding(theta), first(theta[None]) - second(theta[None])
        sigma = [begun.bound.step(theta, s, rounding)[1] for s in range(bound.descent.n_steps)]
        steps.append(np.linalg.norm(np.linalg.norm(apart) / sigma))
    return float(np.sqrt(squares + max(steps) ** 2))


@pytest.mark.parametrize("protect", [False, True], ids=["public", "protected"])
@pytest.mark.parametrize("name", HEADS)
def test_no_person_moves_more_than_mu(name, protect):
    """A search over persons of 1 to 5 records, in one class and in several."""
    X, y = records()
    groups = owners(y)
    head = sklearn.clone(HEADS[name]).set_params(
        epsilon=2.0, delta=1e-3, radius=RADIUS, protect_labels=protect
    )
    if protect:
        head.set_params(classes=[0, 1, 2])
    head.fit(X, y, groups=groups)
    assert head.release_.unit == "person"
    assert head.release_.n_units == groups.max() + 1
    problem, rng = ReleasedModel(head).on(X, y, groups=groups), np.random.default_rng(1)
    mu, largest = head.release_.mu, 0.0
    for person in range(groups.max() + 1):
        places = np.flatnonzero(groups == person)
        for kind in range(3):
            direction = None if kind == 0 else rng.standard_normal(X.shape[1])
            if kind == 2:
                direction = -X[places].sum(axis=0)
            rows, codes = moved(X[places], RADIUS, rng, direction), problem.codes[places]
            if "sphere" in name:
                # Rotated: their distance is what is left of the radius.
                rows /= np.linalg.norm(rows, axis=1, keepdims=True)
                apart = np.linalg.norm(rows - X[places], axis=1)
                assert (apart <= 1.2 * RADIUS).all()
                rows = moved(X[places], RADIUS / 1.2, rng, direction)
            if protect and kind == 1:
                rows, codes = -X[places], (codes + 1) % 3
            neighbour = problem.replaced(places, rows, codes)
            largest = max(largest, spent(head, problem, neighbour, (0.0, 1.0, 5.0)))
    assert largest <= mu * (1.0 + 1e-9)
    # With protected labels fractions of records may leave a class all but empty.
    assert largest > (0.005 if protect and "prototypes" in name else 0.02) * mu


@pytest.mark.parametrize("several", [False, True], ids=["one class", "several classes"])
@pytest.mark.parametrize("name", ["prototypes", "prototypes, one scale"])
def test_the_prototypes_bound_is_attained(name, several):
    """By the person who has most of every class, moved all the same way, well inside the ball."""
    X, y = records(n_classes=3)
    X = 0.2 * X
    groups = np.arange(len(y)) + 3
    groups[[0, 1, 2, 3, 4, 5] if several else [0, 3, 6, 9]] = 0
    if not several:
        # The class sums of other persons are of another class.
        groups[y != 0] = np.arange((y != 0).sum()) // 2 + 100
    head = sklearn.clone(HEADS[name]).set_params(epsilon=1.0, delta=1e-3, radius=RADIUS)
    head.fit(X, y, groups=groups)
    problem = ReleasedModel(head).on(X, y, groups=groups)
    direction, largest = np.eye(X.shape[1])[-1], 0.0
    for person in np.unique(groups):
        places = np.flatnonzero(groups == person)
        rows = X[places] + RADIUS * direction
        neighbour = problem.replaced(places, rows, problem.codes[places])
        largest = max(largest, spent(head, problem, neighbour, ()))
    least = 0.99 if name == "prototypes" else 0.5
    assert least * head.release_.mu < largest <= head.release_.mu


def test_fractions_of_records_may_leave_classes_all_but_empty():
    """Labels protected: one person opens ten empty classes, each by a tenth of a record.

    That is more than the bound of one whole record, with one for the weight, would allow.
    """
    X = np.eye(12)[np.arange(25) % 12]
    y, groups = np.zeros(25, int), np.r_[np.zeros(10, int), 1 + np.arange(15)]
    alpha = 0.05 / 16
    head = BallDPRidgePrototype(
        delta=1e-3, radius=0.1, protect_labels=True, classes=range(12), alpha=alpha
    ).fit(X, y, groups=groups)
    problem = ReleasedModel(head).on(X, y, groups=groups)
    neighbour = problem.replaced(np.arange(10), X[:10], 1 + np.arange(10))
    moved_by = spent(head, problem, neighbour, ()) * head.release_.sigma
    whole = 2.0 * np.sqrt(2.0) / (2.0 + alpha * 16)
    assert 1.5 * whole < moved_by <= head.release_.sensitivity
    assert head.release_.sensitivity == pytest.approx(2.0 * np.sqrt(2.0) / 0.05, rel=1e-4)


@pytest.mark.parametrize("radius", [0.1, 0.5, 1.4, 2.0])
def test_the_bound_of_sums_is_attained(radius):
    """By a person whose records are equal, and move together along the worst pair."""
    X, y = records()
    first, second = np.eye(5)[0], np.eye(5)[1]
    pairs = [(first, (1.0 - min(radius, u)) * first) for u in (2.0 / 3.0, 1.0)]
    for chord in np.linspace(0.5, 1.0, 21) * radius:
        angle = 2.0 * np.arcsin(0.5 * chord)
        pairs.append((first, np.cos(angle) * first + np.sin(angle) * second))
    places = [0, 3, 6]
    groups = np.arange(len(y))
    groups[places] = 0
    largest = 0.0
    for one, other in pairs:
        X[places] = one
        head = BallDPLinearDiscriminant(epsilon=2.0, delta=1e-3, radius=radius, share=0.4)
        head.fit(X, y, groups=groups)
        problem = ReleasedModel(head).on(X, y, groups=groups)
        neighbour = problem.replaced(np.array(places), np.tile(other, (3, 1)), np.zeros(3, int))
        largest = max(largest, spent(head, problem, neighbour, ()))
    assert 0.99 * head.release_.mu < largest <= head.release_.mu


@pytest.mark.parametrize("weight", [None, {0: 5.0, 2: 0.1}], ids=["plain", "classes weighted"])
@pytest.mark.parametrize("name", ["logistic, descent", "SVC, descent"])
def test_the_bound_of_a_clipped_step_is_attained(name, weight):
    """At zero every residual of a class is the same, and clipped: s clip r / W."""
    X, y = records()
    X = 0.1 * X
    groups = owners(y)
    mechanism = GradientPerturbation(start="zero", clip=0.1)
    head = sklearn.clone(HEADS[name]).set_params(
        epsilon=2.0, delta=1e-3, radius=RADIUS, class_weight=weight, mechanism=mechanism
    )
    head.fit(X, y, groups=groups)
    problem = ReleasedModel(head).on(X, y, groups=groups)
    begun = initialise(np.empty((0, 0)), problem, head.release_.bound)
    mean = mean_gradient(problem, begun)
    theta = np.zeros(mean.shape)
    stated = begun.bound.sensitivity(theta, RADIUS, mean.rounding(theta))
    largest = 0.0
    for person in range(groups.max() + 1):
        places = np.flatnonzero(groups == person)
        rows = X[places] + RADIUS * np.eye(5)[4]
        other = mean_gradient(problem.replaced(places, rows, problem.codes[places]), begun)
        largest = max(largest, np.linalg.norm(mean(theta[None]) - other(theta[None])))
    assert 0.99 * stated < largest <= stated


@pytest.mark.parametrize("protect", [False, True], ids=["public", "protected"])
@pytest.mark.parametrize("name", HEADS)
def test_one_record_a_person_is_the_fit_without(name, protect):
    X, y = records(n=200)
    head = sklearn.clone(HEADS[name]).set_params(
        epsilon=2.0, delta=1e-4, radius=RADIUS, protect_labels=protect, random_state=3
    )
    if protect:
        head.set_params(classes=[0, 1, 2])
    plain = sklearn.clone(head).fit(X, y)
    owned = sklearn.clone(head).fit(X, y, groups=np.random.default_rng(0).permutation(200))
    for key, values in plain.released_parameters().items():
        np.testing.assert_array_equal(owned.released_parameters()[key], values)
    assert owned.release_.sigma == plain.release_.sigma
    assert (owned.release_.unit, plain.release_.unit) == ("person", "record")


@pytest.mark.parametrize("name", HEADS)
def test_equal_records_of_one_person_count_once(name):
    """n owners of m equal records give the model of n records, noise and all."""
    X, y = records(n=120)
    head = sklearn.clone(HEADS[name]).set_params(
        epsilon=2.0, delta=1e-4, radius=RADIUS, random_state=3
    )
    once = sklearn.clone(head).fit(X, y)
    often = sklearn.clone(head).fit(
        np.repeat(X, 3, axis=0), np.repeat(y, 3), groups=np.repeat(np.arange(120), 3)
    )
    # Sums of several records of one person are in double precision, and need less noise for that.
    close = 1e-9 if "prototypes" in name else 2e-3
    for key, values in once.released_parameters().items():
        if key not in ("class_counts_", "classes_"):
            scale = np.abs(values).max()
            np.testing.assert_allclose(
                often.released_parameters()[key], values, rtol=0.0, atol=close * scale
            )
    assert often.release_.n_units == once.release_.n_units == 120
    assert often.release_.n_samples == 360


def test_the_noise_has_the_stated_scale_in_every_block():
    """Of prototypes, whose scales differ by class: residuals of many fits."""
    X, y = records(n=90)
    groups = owners(y)
    head = BallDPRidgePrototype(epsilon=3.0, delta=1e-3, radius=RADIUS).fit(X, y, groups=groups)
    exact, sigma = ReleasedModel(head).mechanism.noiseless(
        ReleasedModel(head).on(X, y, groups=groups), Promise(head.release_.bound)
    )
    assert len(set(sigma.ravel())) == 3
    z = [
        (sklearn.clone(head).fit(X, y, groups=groups).prototypes_ - exact) / sigma
        for _ in range(200)
    ]
    # The variance of 1000 deviates errs by 4.5 %.
    np.testing.assert_allclose(np.var(z, axis=(0, 2)), 1.0, atol=0.2)


@pytest.mark.parametrize("name", HEADS)
def test_the_released_noise_passes_the_owners_checks(name):
    X, y = records(n=300)
    groups = owners(y)
    head = sklearn.clone(HEADS[name]).set_params(epsilon=2.0, delta=1e-4, radius=RADIUS)
    if "descent" in name:
        start = "zero" if "SVC" in name else "mean" if "mean" in name else "auto"
        head.set_params(mechanism=GradientPerturbation(start=start, keep_transcript=True))
    if hasattr(head, "class_weight"):
        head.set_params(class_weight="balanced")
    head.fit(X, y, groups=groups)
    verdict = verify(head, private={"X": X, "y": y, "groups": groups})
    assert not verdict.failed, verdict
    unit = next(check for check in verdict.checks if check.name == "unit")
    assert "hides one person (at most 5 records)" in unit.found
    assert "noise in the weights" not in [check.name for check in verdict.checks]
    wrong = verify(head, private={"X": X, "y": y, "groups": np.roll(groups, 1)})
    assert wrong.failed
    assert [c.name for c in verify(head, private=(X, y)).checks if c.verdict == "FAIL"] == ["rows"]


# -- what is refused, and what is public ----------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"groups": np.zeros(59)}, "groups must name one owner"),
        ({"groups": np.r_[np.nan, np.zeros(59)]}, "groups must name one owner"),
        ({"groups": np.array([None, *"a" * 59], dtype=object)}, "groups must name one owner"),
        ({"groups": np.zeros((60, 2))}, "groups must name one owner"),
    ],
)
@pytest.mark.parametrize("head", [BallDPRidgePrototype(), BallDPLogisticRegression()])
def test_bad_weights_are_refused_before_anything_is_released(head, weights, message):
    X, y = records()
    with pytest.raises(ValueError, match=message):
        head.set_params(delta=1e-3).fit(X, y, **weights)
    assert not hasattr(head, "release_")


def test_unknown_keywords_are_refused():
    with pytest.raises(TypeError, match="owners"):
        BallDPRidgePrototype(delta=1e-3).fit(*records(), owners=np.zeros(60))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"class_weight": "balance"}, "class_weight must be"),
        ({"class_weight": {0: -1.0}}, "class_weight must be"),
        ({"class_weight": {7: 1.0}}, "names the label 7"),
        ({"class_weight": {0: 0.0, 1: 0.0, 2: 0.0}}, "leaves no record"),
        ({"class_weight": {0: 2.0}, "protect_labels": True, "classes": [0, 1, 2]}, "would show"),
    ],
)
def test_bad_class_weights_are_refused(parameters, message):
    head = BallDPLogisticRegression(delta=1e-3, **parameters)
    with pytest.raises(ValueError, match=message):
        head.fit(*records())
    assert not hasattr(head, "release_")


def test_counts_unused_go_with_one_record_a_person():
    X, y = records()
    head = BallDPRidgePrototype(delta=1e-3, counts="worst")
    with pytest.raises(ValueError, match="counts='worst'"):
        head.fit(X, y, groups=owners(y))
    assert head.fit(X, y, groups=np.arange(60)).release_.unit == "person"


def test_a_private_radius_hides_a_record_not_a_person():
    X, y = records()
    head = BallDPRidgePrototype(
        delta=1e-3, radius=RadiusPolicy(source="private", epsilon=1.0, random_state=0)
    )
    frozen = FrozenEstimator(RadiusPolicy(source="private", epsilon=1.0, random_state=0).fit(X, y))
    for radius in (head.radius, frozen):
        head.set_params(radius=radius)
        with PrivacyAccountant() as accountant:
            with pytest.raises(ValueError, match="hides one record"):
                head.fit(X, y, groups=owners(y))
            # Nothing was drawn, and nothing is charged.
            assert not accountant.records
        assert not hasattr(head, "release_")


def test_delta_is_compared_with_the_number_of_persons():
    X, y = records()
    groups = np.repeat(np.arange(12), 5)
    with pytest.warns(UserWarning, match="1/n_persons=0.0833"):
        BallDPRidgePrototype(delta=0.1).fit(X, y, groups=groups)


def test_balanced_weights_are_capped():
    y = np.repeat([0, 1, 2], [900, 90, 10])
    found = fit_weights(y, 1000, np.arange(3), class_weight="balanced")
    np.testing.assert_allclose(found.loss.by_class, [1000 / 2700, 1000 / 270, MOST_BALANCED])
    assert found.loss.largest == MOST_BALANCED
    # Absent classes neither count nor get a weight.
    y = np.repeat([0, 1, 2], [400, 300, 300])
    found = fit_weights(y, 1000, np.arange(4), class_weight="balanced")
    assert found.loss.by_class[3] == 0.0
    assert found.loss.total == pytest.approx(1000.0)
    # Without a cap the noise is that of K times the smallest class.
    assert found.loss.effective_size == pytest.approx(900.0)


def test_the_cap_is_in_the_noise():
    X, _ = records(n=1000)
    y = np.repeat([0, 1, 2], [900, 90, 10])
    head = BallDPLogisticRegression(mechanism="output", alpha=0.05, radius=RADIUS)
    plain = head.fit(X, y).release_.sigma
    capped = sklearn.clone(head).set_params(class_weight="balanced").fit(X, y).release_
    assert capped.sigma / plain == pytest.approx(1000 / capped.weights.effective_size, rel=1e-3)
    assert 4.0 < capped.sigma / plain < 8.0


def test_class_weights_of_the_loss_are_those_of_repeated_records():
    """Without noise a class of weight 3 is fitted as if each of its records stood there 3 times."""
    X, y = records(n=90)
    often = np.repeat(np.arange(90), np.where(y == 1, 3, 1))
    exact = []
    for weight, rows in (({1: 3.0}, np.arange(90)), (None, often)):
        head = BallDPLogisticRegression(
            mechanism="output", alpha=0.05, delta=1e-4, class_weight=weight
        )
        problem = ReleasedModel(head.fit(X[rows], y[rows])).on(X[rows], y[rows])
        exact.append(OutputPerturbation().noiseless(problem, Promise(head.release_.bound))[0])
    np.testing.assert_allclose(*exact, atol=1e-4)


@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared_hinge"])
def test_curvature_of_a_weighted_objective(loss):
    X, y = records(n=60, n_classes=2 if loss == "logistic" else 3)
    weights = np.random.default_rng(0).random(60)
    objective = LinearObjective(
        loss,
        X,
        y,
        int(y.max()) + 1,
        alpha=0.1,
        norm_bound=1.0,
        fit_intercept=True,
        weights=weights,
        total=weights.sum(),
    )
    rng = np.random.default_rng(1)
    theta, step = 0.3 * rng.standard_normal((2, *objective.shape))
    ahead, behind = (objective.value_and_gradient(theta + h * step) for h in (1e-6, -1e-6))
    gradient = objective.value_and_gradient(theta, curvature=True)[1]
    slope = (ahead[0] - behind[0]) / 2e-6
    assert slope == pytest.approx(np.vdot(gradient, step), rel=1e-6)
    product = objective.curvature_product(step)
    np.testing.assert_allclose(product, (ahead[1] - behind[1]) / 2e-6, atol=1e-7)
    if len(theta) == 1:
        np.testing.assert_allclose(objective.hessian(theta) @ step[0], product[0], atol=1e-10)


def test_a_record_with_weights_survives_json_and_pickle():
    X, y = records()
    groups = owners(y)
    for head in HEADS.values():
        head = sklearn.clone(head).set_params(delta=1e-3, radius=RADIUS).fit(X, y, groups=groups)
        release = head.release_
        assert Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release
        again = pickle.loads(pickle.dumps(head))
        assert again.release_ == release
        assert release.matches(again)
        assert "one person (at most 5 records)" in str(release)
        assert (release.guarantee().unit, release.guarantee().most_records) == ("person", 5)
        card = release.card().to_markdown()
        assert f"{release.n_units} persons (at most 5 of one person)" in card
        assert "Suppose each record of one person is replaced" in card
        assert f"number_of_privacy_units: {release.n_units}" in release.card().to_yaml()


def test_a_plan_is_the_fit_that_follows():
    X, y = records(n=300)
    groups = owners(y)
    for head in HEADS.values():
        head = sklearn.clone(head).set_params(delta=1e-4, radius=RADIUS)
        plan = head.plan(300, 5, y=y, groups=groups)
        release = head.fit(X, y, groups=groups).release_
        assert plan.release.promised == release.promised
        assert len(plan.class_signal_to_noise or plan.signal_to_noise) == 3
        with pytest.raises(ValueError, match="pass y with groups"):
            head.plan(300, 5, [100, 100, 100], groups=groups)


def test_a_plan_shows_which_class_is_lost():
    counts = [5000, 400, 4]
    shown = {}
    for weight in (None, "balanced"):
        head = BallDPLogisticRegression(
            epsilon=0.5, class_weight=weight, mechanism="output", alpha=0.01
        )
        plan = head.plan(sum(counts), 100, counts)
        shown[weight] = plan.class_signal_to_noise
        assert "lost in the noise" in str(plan).splitlines()[-1]
    # Balanced, the rare class pulls more in comparison, at more noise for all.
    assert shown["balanced"][2] / shown["balanced"][0] > 2 * shown[None][2] / shown[None][0]


def test_routing_takes_owners_to_the_head():
    """As scikit-learn does it: requested, and cut to the folds of a splitter by owners."""
    X, y = records(n=300)
    groups = owners(y)
    head = BallDPRidgePrototype(delta=1e-4, radius=RADIUS)
    with sklearn.config_context(enable_metadata_routing=True):
        head.set_fit_request(groups=True)
        search = GridSearchCV(
            make_pipeline(Normalizer(), head),
            {"ballDPridgeprototype__alpha".lower(): [0.01, 0.1]},
            cv=GroupKFold(3),
        ).fit(X, y, groups=groups)
        assert search.best_estimator_[-1].release_.n_units == groups.max() + 1
        scores = cross_val_score(head, X, y, cv=GroupKFold(3), params={"groups": groups})
        assert np.isfinite(scores).all()
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError):
            make_pipeline(Normalizer(), BallDPRidgePrototype()).fit(X, y, groups=groups)


def test_prototypes_take_class_probabilities():
    X, _ = records(n=1000)
    y = np.repeat([0, 1, 2], [900, 90, 10])
    head = BallDPRidgePrototype(epsilon=1.0, delta=1e-4, random_state=0).fit(X, y)
    shares = head.predict_log_proba(X)
    head.set_params(priors="uniform")
    ratio = head.predict_log_proba(X) - shares
    counts = np.array([900, 90, 10])
    np.testing.assert_allclose(
        np.diff(ratio, axis=1), np.tile(np.diff(-np.log(counts)), (1000, 1)), atol=1e-6
    )
    head.set_params(priors=[0.5, 0.5, 0.0])
    assert not (head.predict(X) == 2).any()
    for bad in ([0.5, 0.5], [1.0, 1.0, -1.0], "equal"):
        with pytest.raises(ValueError, match="priors"):
            BallDPRidgePrototype(delta=1e-4, priors=bad).fit(X, y)
    with pytest.raises(ValueError, match="gaussian"):
        BallDPRidgePrototype(delta=1e-4, priors="uniform", decision="nearest").fit(X, y)


def test_logistic_regression_takes_class_probabilities():
    """Scores move by the logarithm of what they replace; released parameters do not."""
    X, _ = records(n=1000)
    y = np.repeat([0, 1, 2], [900, 90, 10])
    head = BallDPLogisticRegression(
        epsilon=1.0, delta=1e-4, mechanism="output", alpha=0.1, class_weight={2: 2.0}
    ).fit(X, y)
    plain, digest = head.decision_function(X), head.released_parameters()["intercept_"].copy()
    head.set_params(priors="uniform")
    masses = np.array([900, 90, 20])
    np.testing.assert_allclose(
        np.diff(head.decision_function(X) - plain, axis=1),
        np.tile(np.diff(-np.log(masses)), (1000, 1)),
        atol=1e-6,
    )
    np.testing.assert_array_equal(head.released_parameters()["intercept_"], digest)
    assert head.release_.matches(head)
    served = head.to_sklearn().predict_proba(X)
    np.testing.assert_allclose(served, head.predict_proba(X), atol=1e-6)
    binary = BallDPLogisticRegression(delta=1e-4, mechanism="output", alpha=0.1).fit(X, y > 0)
    before = binary.decision_function(X)
    binary.set_params(priors=[0.2, 0.8])
    shift = np.log(0.8 / 0.2) - np.log(100 / 900)
    np.testing.assert_allclose(binary.decision_function(X) - before, shift, atol=1e-6)
    binary.set_params(protect_labels=True, classes=[False, True])
    with pytest.raises(ValueError, match="priors"):
        binary.fit(X, y > 0)
    protected = binary.set_params(priors=None).fit(X, y > 0).set_params(priors="uniform")
    with pytest.raises(ValueError, match="private"):
        protected.predict(X)


def test_priors_with_owners_start_from_the_weights_of_the_classes():
    """Class probabilities are shares of persons' weights, not of records."""
    X, y = records(n=300)
    groups = np.where(y == 0, 0, np.arange(300))
    head = BallDPRidgePrototype(epsilon=50.0, radius=RADIUS, delta=1e-4).fit(X, y, groups=groups)
    np.testing.assert_allclose(head._class_sizes(), [1.0, 100.0, 100.0])
    assert (head.predict(X) == 0).mean() < 0.2


@pytest.mark.parametrize("name", HEADS)
def test_group_privacy(name):
    X, y = records()
    head = sklearn.clone(HEADS[name]).set_params(delta=1e-3, radius=RADIUS).fit(X, y)
    release = head.release_
    for k in (2, 3, 7):
        several = release.guarantee(records=k)
        assert several.mu == pytest.approx(k * release.mu, rel=1e-12)
        assert several.mu >= k * release.mu
        assert several.records == k
        assert several.epsilon > release.guarantee(records=k - 1).epsilon
        assert release.certificate(0.1, records=k) > release.certificate(0.1, records=k - 1)
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="records must be an integer"):
            release.guarantee(records=bad)


def test_group_privacy_is_attained_by_prototypes():
    """k records of the smallest class, moved the same way, spend k times mu."""
    X, y = records()
    X = 0.2 * X
    head = BallDPRidgePrototype(delta=1e-3, radius=RADIUS).fit(X, y)
    problem = ReleasedModel(head).on(X, y)
    for k in (2, 4):
        places = np.flatnonzero(y == 0)[:k]
        rows = X[places] + RADIUS * np.eye(5)[4]
        neighbour = problem.replaced(places, rows, np.zeros(k, int))
        mu = head.release_.guarantee(records=k).mu
        assert 0.99 * mu < spent(head, problem, neighbour, ()) <= mu


def test_a_private_radius_counts_for_each_record():
    X, y = records(n=300)
    policy = RadiusPolicy(source="private", epsilon=0.5)
    release = BallDPRidgePrototype(delta=1e-4, radius=policy).fit(X, y).release_
    assert release.guarantee(records=3).radius_epsilon == pytest.approx(1.5, rel=1e-12)
    assert release.guarantee(records=3).radius_epsilon >= 1.5


def test_rounding_with_weights_is_covered():
    """Single precision, weights of classes: computed means stay as near as the bound says."""
    X, y = records(n=400, d=20, n_classes=4)
    single = X.astype(np.float32)
    for weight, groups in itertools.product((None, {0: 9.0, 3: 0.01}), (None, owners(y))):
        head = BallDPLogisticRegression(
            delta=1e-4,
            radius=RADIUS,
            class_weight=weight,
            mechanism=GradientPerturbation(start="zero"),
        ).fit(single, y, groups=groups)
        found = []
        for rows in (single, single.astype(np.float64)):
            problem = ReleasedModel(head).on(rows, y, groups=groups)
            begun = initialise(np.empty((0, 0)), problem, head.release_.bound)
            found.append(mean_gradient(problem, begun))
        assert found[0].X.dtype == (np.float32 if groups is None else np.float64)
        theta = np.random.default_rng(0).standard_normal(found[0].shape).astype(np.float32)
        theta = theta.astype(np.float64)
        gap = np.linalg.norm(found[0](theta[None]) - found[1](theta[None]))
        # One record's rounding counts; all records' together may be no more than so many times it.
        assert gap <= 400 * found[0].rounding(theta)


def test_persons_of_several_records_are_computed_in_double_precision():
    """Each record may be in another block of rows, which errs by itself."""
    kind, theta = make_loss("softmax", 3), np.ones((3, 6))
    common = {"n_samples": 1000, "n_features": 5, "norm_bound": 1.0, "constant": 0.3, "clip": 0.1}
    codes = np.arange(1000) % 3
    for most in (1, 2, 10):
        # The largest owner has so many records; all others have one, of weight 1.
        owner = np.r_[np.zeros(most, int), 1 + np.arange(1000 - most)]
        weights = weights_of(1.0 / np.bincount(owner)[owner], codes, 3, owner)
        single, double = (
            mean_rounding(kind, theta, **common, dtype=precision, weights=weights)
            for precision in (np.float32, np.float64)
        )
        assert (single == double) == (most > 1)


def test_weighted_counts_of_many_records():
    """One after the other, light records are rounded away, or up, by one heavy one.

    A label change moves such a sum across a power of two, and all later additions with it.
    """
    weights = np.r_[np.ones(2**20), np.full(4 * 10**6, 0.51 * 2.0**-32)]
    n, total = len(weights), math.fsum(weights)
    public = Weights("record", n, 1, 1, total, 1.0, 1.0, None, None, None)
    bound = StatisticsBound(n, 64, 2, 1.0, "ball", 1.0, 0.5, "protected", weights=public)
    counts, naive = [], []
    for first in (0, 1):
        codes = np.zeros(n, dtype=np.intp)
        codes[0] = first
        own = SimpleNamespace(codes=codes, row_weights=weights, n_classes=2)
        counts.append(PrivateProblem.counts(own))
        naive.append(np.bincount(codes, weights, 2))
    # The rows of the record are orthogonal, and all others zero: their sums are exact.
    moved = [math.sqrt(2.0 + np.sum((0.5 * (a - b)) ** 2)) for a, b in (counts, naive)]
    assert moved[0] <= bound.sensitivity(0.1)[0] < moved[1]
    assert abs(counts[0][0] - total) < 1e-9


def test_no_error_quotes_an_owner():
    X, y = records()
    secret = "owner-of-everything"
    groups = np.array([secret, *np.arange(59)], dtype=object)
    with pytest.raises(ValueError, match="groups") as caught:
        BallDPRidgePrototype(delta=1e-3).fit(X, y, groups=groups)
    assert secret not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_owners_stay_off_the_fitted_head():
    """How many records the largest owner has is public; names of owners are on nothing."""
    X, y = records()
    groups = np.array([f"secret-{i}" for i in owners(y)])
    for head in HEADS.values():
        head = sklearn.clone(head).set_params(delta=1e-3, radius=RADIUS).fit(X, y, groups=groups)
        assert b"secret-" not in pickle.dumps(head)
