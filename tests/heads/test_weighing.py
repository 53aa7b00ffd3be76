"""Persons, class weights and declared weights: what one substitution moves, and is released."""

import dataclasses
import itertools
import json
import math
import pickle

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
from sklearn_balldp.heads.weighing import MOST_BALANCED, fit_weights, weights_of
from sklearn_balldp.losses import make_loss
from sklearn_balldp.mechanisms import MeanGradient, Minimiser, Records
from sklearn_balldp.privacy.release import Release
from sklearn_balldp.privacy.rounding import mean_rounding

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


def replaced(records, places, rows, codes):
    """These records with others in some places."""
    X, labels = np.array(records.X), records.codes.copy()
    X[places], labels[places] = rows, codes
    return Records(X, labels, records.weights)


def fitted(head, X, y, **given):
    """With every answer, to look at the queries of its conversation."""
    head._keep_answers = True
    return head.fit(X, y, **given)


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
def test_no_person_moves_more_than_mu(name, protect, apart):
    """A search over persons of 1 to 5 records, in one class and in several."""
    X, y = records()
    groups = owners(y)
    labels = {"protect_labels": True, "classes": [0, 1, 2]} if protect else {}
    head = fitted(head_of(name, epsilon=2.0, **labels), X, y, groups=groups)
    assert head.release_.unit == "person"
    assert head.release_.n_units == groups.max() + 1
    given, rng = head._records(X, y, groups), np.random.default_rng(1)
    mu, largest = head.release_.mu, 0.0
    for places, kind in itertools.product(persons(groups), range(3)):
        direction = None if kind == 0 else rng.standard_normal(X.shape[1])
        if kind == 2:
            direction = -X[places].sum(axis=0)
        rows, codes = moved(X[places], RADIUS, rng, direction), y[places]
        if "sphere" in name:
            # Rotated: their distance is what is left of the radius.
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
            assert (np.linalg.norm(rows - X[places], axis=1) <= 1.2 * RADIUS).all()
            rows = moved(X[places], RADIUS / 1.2, rng, direction)
        if protect and kind == 1:
            rows, codes = -X[places], (codes + 1) % 3
        largest = max(largest, apart(head, given, replaced(given, places, rows, codes)))
    assert largest <= mu * (1.0 + 1e-9)
    assert largest > 0.02 * mu


@pytest.mark.parametrize("several", [False, True], ids=["one class", "several classes"])
@pytest.mark.parametrize(("name", "least"), [("prototypes", 0.99), ("prototypes, one scale", 0.5)])
def test_the_prototypes_bound_is_attained(name, least, several, apart):
    """By the person who has most of every class, moved all the same way, well inside the ball."""
    X, y = records(n_classes=3)
    X = 0.2 * X
    groups = np.arange(len(y)) + 3
    groups[[0, 1, 2, 3, 4, 5] if several else [0, 3, 6, 9]] = 0
    if not several:
        # The class sums of other persons are of another class.
        groups[y != 0] = np.arange((y != 0).sum()) // 2 + 100
    head = fitted(head_of(name, epsilon=1.0), X, y, groups=groups)
    given, rows = head._records(X, y, groups), X + RADIUS * np.eye(X.shape[1])[-1]
    largest = max(
        apart(head, given, replaced(given, places, rows[places], y[places]))
        for places in persons(groups)
    )
    assert least * head.release_.mu < largest <= head.release_.mu


@pytest.mark.parametrize(
    "spellings",
    [
        ["7", "7.0", "007", "7e+00"],
        ["p7", "p7 ", "\u200bp7", "p7\xa0"],
        ["Zo\xeb", "Zoe\u0308"],
        [b"p7", b"p7 "],
        [7, 7.0, np.float32(7)],
        [7, "7", 7.0],
    ],
    ids=str,
)
def test_a_person_in_two_spellings_is_one(spellings):
    """Counted as two, each half would be hidden alone."""
    X, y = records(n=12)
    other = {str: "8", bytes: b"8", int: 8}[type(spellings[0])]
    groups = [*spellings, *[other] * (12 - len(spellings))]
    head = head_of("prototypes", epsilon=1.0).fit(X, y, groups=groups)
    assert head.release_.n_units == 2
    apart = [f"p{i}" for i in range(6)] + [f"P{i}" for i in range(6)]
    assert head.fit(X, y, groups=apart).release_.n_units == 12


@pytest.mark.parametrize("name", ["prototypes", "discriminant", "discriminant, sphere"])
def test_persons_in_several_classes_get_less_noise(name):
    """Each class sum moves by a person's weight in it, which is less than all that he has."""
    X, y = records(n=120)
    one, several = (
        head_of(name, epsilon=2.0).fit(X, y, groups=groups).release_
        for groups in (np.arange(120) // 3 + 40 * y, np.arange(120) // 3)
    )
    assert one.mu == pytest.approx(several.mu, rel=1e-6)
    # Three classes of a third each: together by the root of a third.
    ratio = np.max(several.bound.sigma) / np.max(one.bound.sigma)
    least = 0.8 if "sphere" in name else math.sqrt(1.0 / 3.0)
    assert math.sqrt(1.0 / 3.0) * (1.0 - 1e-6) <= ratio < 1.0
    if name == "prototypes":
        assert ratio == pytest.approx(least, rel=1e-5)


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
        found = owned.released_parameters()[key]
        np.testing.assert_allclose(found, values, rtol=1e-12, atol=1e-12)
    assert owned.release_.sigma == pytest.approx(plain.release_.sigma, rel=1e-12)
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
        if key not in ("class_counts_", "counts", "classes_"):
            atol, other = close * np.abs(values).max(), often.released_parameters()[key]
            np.testing.assert_allclose(other, values, rtol=0.0, atol=atol)
    assert often.release_.n_units == once.release_.n_units == 120
    assert often.release_.n_samples == 360


def test_the_noise_has_the_stated_scale_in_every_block(noise_of):
    """Of prototypes, whose scales differ by class: residuals of many fits."""
    X, y = records(n=90, d=50)
    groups, noise = owners(y), []
    for _ in range(20):
        head = head_of("prototypes", epsilon=3.0).fit(X, y, groups=groups)
        noise.append(noise_of(head, head._records(X, y, groups))[0].reshape(3, -1))
    assert len(set(head.release_.sigma)) == 3
    # The variance of 1000 deviates errs by 4.5 %.
    np.testing.assert_allclose(np.var(noise, axis=(0, 2)), 1.0, atol=0.2)


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
    without = verify(head, private=(X, y))
    (rows,) = (check for check in without.checks if check.name == "rows")
    assert (rows.verdict, without.failed) == ("CANNOT CHECK", False)
    assert "pass groups" in rows.found


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
    release = head_of("prototypes", radius=policy.set_params(accountant=None)).fit(X, y).release_
    assert 1.5 <= release.guarantee(records=3).radius_epsilon <= 1.5 + 1e-12


def test_delta_is_compared_with_the_number_of_persons():
    with pytest.warns(UserWarning, match="1/n_persons=0.0833"):
        head_of("prototypes", delta=0.1).fit(*records(), groups=np.repeat(np.arange(12), 5))


def test_balanced_weights_are_capped():
    y = np.repeat([0, 1, 2], [900, 90, 10])
    found = fit_weights(y, 1000, np.arange(3), class_weight="balanced")
    np.testing.assert_allclose(found.loss.by_class, [1000 / 2700, 1000 / 270, MOST_BALANCED])
    assert found.loss.largest == MOST_BALANCED
    # Absent classes do not count.
    y = np.repeat([0, 1, 2], [400, 300, 300])
    found = fit_weights(y, 1000, np.arange(4), class_weight="balanced")
    assert found.loss.by_class[3] == 1.0
    assert found.loss.class_totals[3] == found.loss.class_largest[3] == 0.0
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
        bound, problem = head.release_.bound, head.release_.problem
        assert isinstance(bound, Minimiser)
        exact.append(bound.values(problem, head._records(X[rows], y[rows])))
    np.testing.assert_allclose(*exact, atol=1e-4)


@pytest.mark.parametrize("name", HEADS)
def test_a_record_with_owners(name):
    """It survives JSON and pickle, and is the plan; names of owners are on nothing."""
    X, y = records()
    groups = np.array([f"secret-{i}" for i in owners(y)])
    head = head_of(name)
    plan = head.plan(60, 5, y=y, groups=groups)
    release = head.fit(X, y, groups=groups).release_
    assert plan.release == dataclasses.replace(release, digest="")
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
    card = str(release.card())
    assert f"{release.n_units} persons (at most 5 of one person)" in card
    assert "Suppose each record of one person is replaced" in card


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


def test_priors_with_owners_start_from_the_weights_of_the_classes():
    """Class probabilities are shares of persons' weights, not of records."""
    X, y = records(n=300)
    head = head_of("prototypes", epsilon=50.0)
    head.fit(X, y, groups=np.where(y == 0, 0, np.arange(300)))
    np.testing.assert_allclose(head.release_.problem.class_sizes, [1.0, 100.0, 100.0])
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


def test_group_privacy_is_attained_by_prototypes(apart):
    """k records of the smallest class, moved the same way, spend k times mu."""
    X, y = records()
    X = 0.2 * X
    head = head_of("prototypes").fit(X, y)
    given = head._records(X, y)
    for k in (2, 4):
        places = np.flatnonzero(y == 0)[:k]
        rows = X[places] + RADIUS * np.eye(5)[4]
        mu = head.release_.guarantee(records=k).mu
        assert 0.99 * mu < apart(head, given, replaced(given, places, rows, 0)) <= mu


def test_rounding_with_weights_is_covered():
    """Single precision, weights of classes: computed means stay as near as the bound says."""
    X, y = records(n=400, d=20, n_classes=4)
    single = X.astype(np.float32)
    for weight, groups in itertools.product((None, {0: 9.0, 3: 0.01}), (None, owners(y))):
        mechanism = GradientPerturbation(start="zero")
        head = head_of("logistic, descent", class_weight=weight, mechanism=mechanism)
        problem = head.fit(single, y, groups=groups).release_.problem
        shape = head.release_.bound.shape(problem)
        theta = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        query = MeanGradient(theta.astype(np.float64), clip=0.2, constant=0.15)
        assert query.precision(problem) == (np.float32 if groups is None else np.float64)
        double = dataclasses.replace(problem, precision="float64")
        gap = np.linalg.norm(
            query.values(problem, head._records(single, y, groups))
            - query.values(double, head._records(single.astype(np.float64), y, groups))
        )
        rounding = mean_rounding(
            problem.kind,
            query.theta,
            n_samples=400,
            n_features=20,
            norm_bound=1.0,
            constant=0.15,
            clip=0.2,
            dtype=query.precision(problem),
            weights=problem.loss_weights,
        )
        # One record's rounding counts; all records' together may be no more than so many times it.
        assert gap <= 400 * rounding
        # It is in the sensitivity, twice: at a radius so small there is nothing else.
        assert query.ratio(problem, 1e-30, "public") == pytest.approx(2.0 * rounding, rel=1e-2)


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


@pytest.mark.filterwarnings("ignore")
def test_all_records_may_be_of_one_person():
    """The largest weight is rounded up, and then exceeds their total by a rounding."""
    X = np.random.default_rng(0).standard_normal((12, 3))
    for n in (1, 3, 7, 12):
        y = np.arange(n) % 2 if n > 1 else np.array([0])
        head = BallDPRidgePrototype(radius=0.5, protect_labels=True, classes=[0, 1])
        head.fit(X[:n], y, groups=np.zeros(n))
        assert head.release_.n_units == 1
