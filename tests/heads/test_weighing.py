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


def head_of(name, **params):
    return sklearn.clone(HEADS[name]).set_params(**{"delta": 1e-3, "radius": RADIUS, **params})


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
        rng.standard_normal(rows.shape)
        if direction is None
        else np.broadcast_to(direction, rows.shape)
    )
    other = rows + radius * step / np.linalg.norm(step, axis=1, keepdims=True)
    norms = np.linalg.norm(other, axis=1, keepdims=True)
    return other / np.maximum(norms, 1.0)


def spent(head, problem, neighbour, thetas=()):
    """How far two datasets' values are apart in units of the noise: of all that is released."""
    bound = head.release_.bound
    if head.release_.mechanism != "gradient":
        promise = Promise(bound, head.release_.sensitivity, head.release_.sigma)
        return apart(ReleasedModel(head).mechanism.noiseless, problem, neighbour, promise)
    sums, table = 0.0, np.empty((0, 0))
    if bound.start is not None:
        sums = apart(start_values, problem, neighbour, bound)
        exact, scale = start_values(problem, bound)
        table = exact + scale * np.random.default_rng(0).standard_normal(scale.shape)
    begun = initialise(table, problem, bound)
    first, second = (mean_gradient(p, begun) for p in (problem, neighbour))
    # All steps at the worst of these iterates.
    steps = []
    for scale in thetas:
        theta = begun.theta * scale
        rounding, gap = first.rounding(theta), first(theta[None]) - second(theta[None])
        sigma = [begun.bound.step(theta, s, rounding)[1] for s in range(bound.descent.n_steps)]
        steps.append(np.linalg.norm(np.linalg.norm(gap) / sigma))
    return math.hypot(sums, max(steps))


def apart(values_of, one, other, given):
    """Values of two datasets, in units of their noise."""
    (first, scale), (second, _) = (values_of(problem, given) for problem in (one, other))
    scale = np.broadcast_to(scale, first.shape)
    noisy = scale > 0.0
    return float(np.linalg.norm((first - second)[noisy] / scale[noisy]))


def persons(groups):
    """The places of each one's records."""
    return [np.flatnonzero(groups == person) for person in np.unique(groups)]


@pytest.mark.parametrize(
    ("name", "protect"),
    [
        *((name, False) for name in HEADS),
        ("prototypes", True),
        ("discriminant", True),
        ("SVC, minimiser", True),
        ("logistic, descent", True),
        ("logistic, descent from the mean", True),
        ("SVC, descent", True),
    ],
)
def test_no_person_moves_more_than_mu(name, protect):
    """A search over persons of 1 to 5 records, in one class and in several."""
    X, y = records()
    groups = owners(y)
    labels = {"protect_labels": True, "classes": [0, 1, 2]} if protect else {}
    head = head_of(name, epsilon=2.0, **labels).fit(X, y, groups=groups)
    assert head.release_.unit == "person"
    assert head.release_.n_units == groups.max() + 1
    problem, rng = ReleasedModel(head).on(X, y, groups=groups), np.random.default_rng(1)
    mu, largest = head.release_.mu, 0.0
    for places, kind in itertools.product(persons(groups), range(3)):
        direction = None if kind == 0 else rng.standard_normal(X.shape[1])
        if kind == 2:
            direction = -X[places].sum(axis=0)
        rows, codes = moved(X[places], RADIUS, rng, direction), problem.codes[places]
        if "sphere" in name:
            # Rotated: their distance is what is left of the radius.
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            assert (np.linalg.norm(rows - X[places], axis=1) <= 1.2 * RADIUS).all()
            rows = moved(X[places], RADIUS / 1.2, rng, direction)
        if protect and kind == 1:
            rows, codes = -X[places], (codes + 1) % 3
        neighbour = problem.replaced(places, rows, codes)
        largest = max(largest, spent(head, problem, neighbour, (0.0, 1.0, 5.0)))
    assert largest <= mu * (1.0 + 1e-9)
    # With protected labels fractions of records may leave a class all but empty.
    assert largest > (0.005 if protect and "prototypes" in name else 0.02) * mu


@pytest.mark.parametrize("several", [False, True], ids=["one class", "several classes"])
@pytest.mark.parametrize(("name", "least"), [("prototypes", 0.99), ("prototypes, one scale", 0.5)])
def test_the_prototypes_bound_is_attained(name, least, several):
    """By the person who has most of every class, moved all the same way, well inside the ball."""
    X, y = records(n_classes=3)
    X = 0.2 * X
    groups = np.arange(len(y)) + 3
    groups[[0, 1, 2, 3, 4, 5] if several else [0, 3, 6, 9]] = 0
    if not several:
        # The class sums of other persons are of another class.
        groups[y != 0] = np.arange((y != 0).sum()) // 2 + 100
    head = head_of(name, epsilon=1.0).fit(X, y, groups=groups)
    problem = ReleasedModel(head).on(X, y, groups=groups)
    rows = X + RADIUS * np.eye(X.shape[1])[-1]
    largest = max(
        spent(head, problem, problem.replaced(places, rows[places], problem.codes[places]))
        for places in persons(groups)
    )
    assert least * head.release_.mu < largest <= head.release_.mu


def test_fractions_of_records_may_leave_classes_all_but_empty():
    """Labels protected: one person opens ten empty classes, each by a tenth of a record.

    That is more than the bound of one whole record, with one for the weight, would allow.
    """
    X = np.eye(12)[np.arange(25) % 12]
    y, groups = np.zeros(25, int), np.r_[np.zeros(10, int), 1 + np.arange(15)]
    alpha = 0.05 / 16
    labels = {"protect_labels": True, "classes": range(12)}
    head = head_of("prototypes", radius=0.1, alpha=alpha, **labels).fit(X, y, groups=groups)
    problem = ReleasedModel(head).on(X, y, groups=groups)
    neighbour = problem.replaced(np.arange(10), X[:10], 1 + np.arange(10))
    moved_by = spent(head, problem, neighbour) * head.release_.sigma
    whole = 2.0 * np.sqrt(2.0) / (2.0 + alpha * 16)
    assert 1.5 * whole < moved_by <= head.release_.sensitivity
    assert head.release_.sensitivity == pytest.approx(8.0 / np.sqrt(27.0 * 0.05), rel=1e-4)


@pytest.mark.parametrize("radius", [0.1, 1.4])
def test_the_bound_of_sums_is_attained(radius):
    """By a person whose records are equal, and move together along the worst pair."""
    X, y = records()
    first, second = np.eye(5)[0], np.eye(5)[1]
    pairs = [(first, (1.0 - min(radius, u)) * first) for u in (2.0 / 3.0, 1.0)]
    for chord in np.linspace(0.5, 1.0, 21) * radius:
        angle = 2.0 * np.arcsin(0.5 * chord)
        pairs.append((first, np.cos(angle) * first + np.sin(angle) * second))
    places, groups, largest = np.array([0, 3, 6]), np.arange(len(y)), 0.0
    groups[places] = 0
    for one, other in pairs:
        X[places] = one
        head = head_of("discriminant", epsilon=2.0, radius=radius, share=0.4)
        head.fit(X, y, groups=groups)
        problem = ReleasedModel(head).on(X, y, groups=groups)
        neighbour = problem.replaced(places, np.tile(other, (3, 1)), np.zeros(3, int))
        largest = max(largest, spent(head, problem, neighbour))
    assert 0.99 * head.release_.mu < largest <= head.release_.mu


@pytest.mark.parametrize("weight", [None, {0: 5.0, 2: 0.1}], ids=["plain", "classes weighted"])
@pytest.mark.parametrize("name", ["logistic, descent", "SVC, descent"])
def test_the_bound_of_a_clipped_step_is_attained(name, weight):
    """At zero every residual of a class is the same, and clipped: s clip r / W."""
    X, y = records()
    X = 0.1 * X
    groups = owners(y)
    mechanism = GradientPerturbation(start="zero", clip=0.1)
    head = head_of(name, epsilon=2.0, class_weight=weight, mechanism=mechanism)
    problem = ReleasedModel(head.fit(X, y, groups=groups)).on(X, y, groups=groups)
    begun = initialise(np.empty((0, 0)), problem, head.release_.bound)
    mean = mean_gradient(problem, begun)
    theta, rows = np.zeros(mean.shape), X + RADIUS * np.eye(5)[4]
    stated, largest = begun.bound.sensitivity(theta, RADIUS, mean.rounding(theta)), 0.0
    for places in persons(groups):
        other = problem.replaced(places, rows[places], problem.codes[places])
        gap = mean(theta[None]) - mean_gradient(other, begun)(theta[None])
        largest = max(largest, np.linalg.norm(gap))
    assert 0.99 * stated < largest <= stated


@pytest.mark.parametrize(
    ("name", "protect"),
    [
        *((name, False) for name in HEADS if "SVC" not in name and "one scale" not in name),
        ("prototypes", True),
        ("SVC, descent", True),
    ],
)
def test_one_record_a_person_is_the_fit_without(name, protect):
    X, y = records(n=200)
    labels = {"protect_labels": True, "classes": [0, 1, 2]} if protect else {}
    head = head_of(name, epsilon=2.0, random_state=3, **labels)
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
    once, often = (
        head_of(name, epsilon=2.0, delta=1e-4, random_state=3).fit(
            np.repeat(X, m, axis=0), np.repeat(y, m), groups=groups
        )
        for m, groups in ((1, None), (3, np.repeat(np.arange(120), 3)))
    )
    # Sums of several records of one person are in double precision, and need less noise for that.
    close = 1e-9 if "prototypes" in name else 2e-3
    for key, values in once.released_parameters().items():
        if key not in ("class_counts_", "classes_"):
            atol, other = close * np.abs(values).max(), often.released_parameters()[key]
            np.testing.assert_allclose(other, values, rtol=0.0, atol=atol)
    assert often.release_.n_units == once.release_.n_units == 120
    assert often.release_.n_samples == 360


def test_the_noise_has_the_stated_scale_in_every_block():
    """Of prototypes, whose scales differ by class: residuals of many fits."""
    X, y = records(n=90, d=50)
    groups = owners(y)
    head = head_of("prototypes", epsilon=3.0).fit(X, y, groups=groups)
    exact, sigma = ReleasedModel(head).mechanism.noiseless(
        ReleasedModel(head).on(X, y, groups=groups), Promise(head.release_.bound)
    )
    assert len(set(sigma.ravel())) == 3
    fits = (sklearn.clone(head).fit(X, y, groups=groups).prototypes_ for _ in range(20))
    z = [(released - exact) / sigma for released in fits]
    # The variance of 1000 deviates errs by 4.5 %.
    np.testing.assert_allclose(np.var(z, axis=(0, 2)), 1.0, atol=0.2)


@pytest.mark.parametrize(
    "name",
    [
        "prototypes",
        "discriminant",
        "SVC, minimiser",
        "logistic, descent",
        "logistic, descent from the mean",
    ],
)
def test_the_released_noise_passes_the_owners_checks(name):
    X, y = records(n=300)
    groups = owners(y)
    head = head_of(name, epsilon=2.0)
    if "descent" in name:
        start = "mean" if "mean" in name else "auto"
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


def test_bad_groups_are_refused_before_anything_is_released(refused):
    secret = "owner-of-everything"
    for groups in (
        np.zeros(59),
        np.r_[np.nan, np.zeros(59)],
        np.array([None, *"a" * 59], dtype=object),
        np.zeros((60, 2)),
        np.array([secret, *np.arange(59)], dtype=object),
    ):
        for name in ("prototypes", "logistic, descent"):
            match = "groups (must name one owner|holds missing values)"
            refused(head_of(name), *records(), match, groups=groups)
    # No error quotes an owner.
    with pytest.raises(ValueError, match="groups") as caught:
        head_of("prototypes").fit(*records(), groups=groups)
    assert secret not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    with pytest.raises(TypeError, match="owners"):
        head_of("prototypes").fit(*records(), owners=np.zeros(60))


def test_counts_unused_go_with_one_record_a_person(refused):
    X, y = records()
    refused(head_of("prototypes", counts="worst"), X, y, "counts='worst'", groups=owners(y))
    head = head_of("prototypes", counts="worst").fit(X, y, groups=np.arange(60))
    assert head.release_.unit == "person"


def test_a_private_radius_hides_a_record_not_a_person(refused):
    """Nothing is drawn, and nothing charged, where owners are given."""
    X, y = records(n=300)
    policy = RadiusPolicy(source="private", epsilon=0.5, random_state=0)
    for radius in (policy, FrozenEstimator(sklearn.clone(policy).fit(X, y))):
        head = head_of("prototypes", radius=radius)
        refused(head, X, y, "hides one record", groups=owners(y))
    release = head_of("prototypes", radius=policy).fit(X, y).release_
    assert 1.5 <= release.guarantee(records=3).radius_epsilon <= 1.5 + 1e-12


def test_delta_is_compared_with_the_number_of_persons():
    with pytest.warns(UserWarning, match="1/n_persons=0.0833"):
        head_of("prototypes", delta=0.1).fit(*records(), groups=np.repeat(np.arange(12), 5))


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
    X, y = records(n=1000)[0], np.repeat([0, 1, 2], [900, 90, 10])
    plain, capped = (
        head_of("logistic, minimiser", delta=1e-6, class_weight=weight).fit(X, y).release_
        for weight in (None, "balanced")
    )
    ratio = capped.sigma / plain.sigma
    assert ratio == pytest.approx(1000 / capped.weights.effective_size, rel=1e-3)
    assert 4.0 < ratio < 8.0


def test_class_weights_of_the_loss_are_those_of_repeated_records():
    """Without noise a class of weight 3 is fitted as if each of its records stood there 3 times."""
    X, y = records(n=90)
    often = np.repeat(np.arange(90), np.where(y == 1, 3, 1))
    exact = []
    for weight, rows in (({1: 3.0}, np.arange(90)), (None, often)):
        head = head_of("logistic, minimiser", class_weight=weight).fit(X[rows], y[rows])
        problem = ReleasedModel(head).on(X[rows], y[rows])
        exact.append(OutputPerturbation().noiseless(problem, Promise(head.release_.bound))[0])
    np.testing.assert_allclose(*exact, atol=1e-4)


@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared_hinge"])
def test_curvature_of_a_weighted_objective(loss):
    X, y = records(n=60, n_classes=2 if loss == "logistic" else 3)
    weights = np.random.default_rng(0).random(60)
    given = {"alpha": 0.1, "norm_bound": 1.0, "fit_intercept": True, "total": weights.sum()}
    objective = LinearObjective(loss, X, y, int(y.max()) + 1, weights=weights, **given)
    theta, step = 0.3 * np.random.default_rng(1).standard_normal((2, *objective.shape))
    ahead, behind = (objective.value_and_gradient(theta + h * step) for h in (1e-6, -1e-6))
    gradient = objective.value_and_gradient(theta, curvature=True)[1]
    slope = (ahead[0] - behind[0]) / 2e-6
    assert slope == pytest.approx(np.vdot(gradient, step), rel=1e-6)
    product = objective.curvature_product(step)
    np.testing.assert_allclose(product, (ahead[1] - behind[1]) / 2e-6, atol=1e-7)
    if len(theta) == 1:
        np.testing.assert_allclose(objective.hessian(theta) @ step[0], product[0], atol=1e-10)


@pytest.mark.parametrize("name", HEADS)
def test_a_record_with_owners(name):
    """It survives JSON and pickle, and is the plan; names of owners are on nothing."""
    X, y = records()
    groups = np.array([f"secret-{i}" for i in owners(y)])
    head = head_of(name)
    plan = head.plan(60, 5, y=y, groups=groups)
    release = head.fit(X, y, groups=groups).release_
    assert plan.release.promised == release.promised
    assert len(plan.class_signal_to_noise) == 3
    with pytest.raises(ValueError, match="pass y with groups"):
        head.plan(60, 5, [20, 20, 20], groups=groups)
    assert Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release
    state = pickle.dumps(head)
    assert b"secret-" not in state
    again = pickle.loads(state)
    assert again.release_ == release
    assert release.matches(again)
    assert "one person (at most 5 records)" in str(release)
    assert (release.guarantee().unit, release.guarantee().most_records) == ("person", 5)
    card = release.card().to_markdown()
    assert f"{release.n_units} persons (at most 5 of one person)" in card
    assert "Suppose each record of one person is replaced" in card
    assert f"number_of_privacy_units: {release.n_units}" in release.card().to_yaml()


def test_routing_takes_owners_to_the_head():
    """As scikit-learn does it: requested, and cut to the folds of a splitter by owners."""
    X, y = records(n=300)
    groups = owners(y)
    head = head_of("prototypes")
    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(Normalizer(), head.set_fit_request(groups=True))
        grid = {"balldpridgeprototype__alpha": [0.01, 0.1]}
        search = GridSearchCV(pipe, grid, cv=GroupKFold(3)).fit(X, y, groups=groups)
        assert search.best_estimator_[-1].release_.n_units == groups.max() + 1
        scores = cross_val_score(head, X, y, cv=GroupKFold(3), params={"groups": groups})
        assert np.isfinite(scores).all()
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError):
            make_pipeline(Normalizer(), BallDPRidgePrototype()).fit(X, y, groups=groups)


def test_prototypes_take_class_probabilities():
    X, counts = records(n=1000)[0], np.array([900, 90, 10])
    head = BallDPRidgePrototype(epsilon=1.0, delta=1e-4).fit(X, np.repeat([0, 1, 2], counts))
    shares = head.predict_log_proba(X)
    ratio = np.diff(head.set_params(priors="uniform").predict_log_proba(X) - shares, axis=1)
    np.testing.assert_allclose(ratio, np.tile(np.diff(-np.log(counts)), (1000, 1)), atol=1e-6)
    head.set_params(priors=[0.5, 0.5, 0.0])
    assert not (head.predict(X) == 2).any()


def test_logistic_regression_takes_class_probabilities():
    """Scores move by the logarithm of what they replace; released parameters do not."""
    X, y = records(n=1000)[0], np.repeat([0, 1, 2], [900, 90, 10])
    given = {"delta": 1e-4, "mechanism": "output", "alpha": 0.1}
    head = BallDPLogisticRegression(1.0, class_weight={2: 2.0}, **given).fit(X, y)
    plain, offsets = head.decision_function(X), head.released_parameters()["intercept_"].copy()
    head.set_params(priors="uniform")
    change, masses = np.diff(head.decision_function(X) - plain, axis=1), np.array([900, 90, 20])
    np.testing.assert_allclose(change, np.tile(np.diff(-np.log(masses)), (1000, 1)), atol=1e-6)
    np.testing.assert_array_equal(head.released_parameters()["intercept_"], offsets)
    assert head.release_.matches(head)
    served = head.to_sklearn().predict_proba(X)
    np.testing.assert_allclose(served, head.predict_proba(X), atol=1e-6)
    binary = BallDPLogisticRegression(**given).fit(X, y > 0)
    before = binary.decision_function(X)
    binary.set_params(priors=[0.2, 0.8])
    shift = np.log(0.8 / 0.2) - np.log(100 / 900)
    np.testing.assert_allclose(binary.decision_function(X) - before, shift, atol=1e-6)
    binary.set_params(protect_labels=True, classes=[False, True])
    protected = binary.set_params(priors=None).fit(X, y > 0).set_params(priors="uniform")
    with pytest.raises(ValueError, match="private"):
        protected.predict(X)


def test_priors_with_owners_start_from_the_weights_of_the_classes():
    """Class probabilities are shares of persons' weights, not of records."""
    X, y = records(n=300)
    head = head_of("prototypes", epsilon=50.0)
    head.fit(X, y, groups=np.where(y == 0, 0, np.arange(300)))
    np.testing.assert_allclose(head._class_sizes(), [1.0, 100.0, 100.0])
    assert (head.predict(X) == 0).mean() < 0.2


@pytest.mark.parametrize("name", ["prototypes", "logistic, descent"])
def test_group_privacy(name):
    release = head_of(name).fit(*records()).release_
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
    head = head_of("prototypes").fit(X, y)
    problem = ReleasedModel(head).on(X, y)
    for k in (2, 4):
        places = np.flatnonzero(y == 0)[:k]
        rows = X[places] + RADIUS * np.eye(5)[4]
        neighbour = problem.replaced(places, rows, np.zeros(k, int))
        mu = head.release_.guarantee(records=k).mu
        assert 0.99 * mu < spent(head, problem, neighbour) <= mu


def test_rounding_with_weights_is_covered():
    """Single precision, weights of classes: computed means stay as near as the bound says."""
    X, y = records(n=400, d=20, n_classes=4)
    single = X.astype(np.float32)
    for weight, groups in itertools.product((None, {0: 9.0, 3: 0.01}), (None, owners(y))):
        mechanism = GradientPerturbation(start="zero")
        head = head_of("logistic, descent", class_weight=weight, mechanism=mechanism)
        head.fit(single, y, groups=groups)
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
