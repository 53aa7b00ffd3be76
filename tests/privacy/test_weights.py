"""Public numbers of weights against brute force, and records that contradict them."""

import dataclasses
import json

import numpy as np
import pytest
import sklearn

from sklearn_balldp import PrivacyAccountant, compose_releases
from sklearn_balldp.accounting import PrivateAccuracy
from sklearn_balldp.heads import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
)
from sklearn_balldp.heads.weighing import fit_weights, weights_of
from sklearn_balldp.privacy import Release
from sklearn_balldp.privacy.gaussian import mu_from_budget
from sklearn_balldp.privacy.weights import Weights


@pytest.mark.parametrize("seed", range(3))
def test_public_numbers_are_those_of_a_brute_force(seed):
    rng = np.random.default_rng(seed)
    n, k = 200, 4
    codes, owners = rng.integers(0, k - 1, n), rng.integers(0, 70, n)
    owners = np.unique(owners, return_inverse=True)[1]
    rows = (0.1 + 0.9 * rng.random(n)) / np.bincount(owners)[owners]
    found = weights_of(rows, codes, k, owners)
    held = np.zeros((owners.max() + 1, k))
    np.add.at(held, (owners, codes), rows)
    assert found.total == pytest.approx(rows.sum())
    assert found.largest == pytest.approx(held.sum(axis=1).max())
    assert found.largest >= held.sum(axis=1).max()
    assert found.most_records == np.bincount(owners).max()
    assert found.most_classes == (held > 0).sum(axis=1).max()
    np.testing.assert_allclose(found.class_totals, held.sum(axis=0))
    np.testing.assert_allclose(found.class_largest, held.max(axis=0))
    largest = np.where(held.max(axis=0) > 0, held.max(axis=0), 1.0)
    block_factor = np.sqrt(((held / largest) ** 2).sum(axis=1)).max()
    assert found.block_factor == pytest.approx(block_factor)
    assert found.block_factor >= block_factor
    # Without owners each record is one.
    alone = weights_of(rows, codes, k)
    assert alone.largest == rows.max()
    assert (alone.block_factor, alone.most_records, alone.n_units) == (1.0, 1, n)


def test_owners_weigh_one_each():
    groups = np.array(["a", "b", "a", "c", "a", "b"])
    found = fit_weights(np.array([0, 0, 1, 1, 0, 1]), 6, np.arange(2), groups=groups)
    np.testing.assert_allclose(found.rows, [1 / 3, 1 / 2, 1 / 3, 1, 1 / 3, 1 / 2])
    assert found.sums.effective_size == pytest.approx(3.0, rel=1e-12)
    assert found.sums.unit == "person"
    assert found.sums is found.loss
    assert fit_weights(None, 6, np.arange(2), groups=groups).sums.class_totals is None


VALID = {
    "unit": "person",
    "n_units": 50,
    "most_records": 4,
    "most_classes": 2,
    "total": 50.0,
    "largest": 1.0,
    "record": 1.0,
    "class_records": (60, 40),
    "class_totals": (30.0, 20.0),
    "class_largest": (1.0, 1.0),
    "block_factor": 1.2,
}


def test_impossible_weights_are_refused():
    assert Weights(**VALID).effective_size == 50.0
    for change in (
        {"unit": "household"},
        {"n_units": 0},
        {"most_classes": 5},
        {"total": 51.0},
        {"total": -1.0},
        {"largest": 5.0},
        {"largest": 0.5},
        {"record": 0.0},
        {"record": 2.0},
        {"block_factor": 0.9},
        {"block_factor": 1.5},
        {"block_factor": float("nan")},
        {"class_totals": None},
        {"class_totals": (30.0, 10.0)},
        {"class_totals": (49.5, 0.5), "class_largest": (1.0, 0.009)},
        {"class_totals": (30.0, 20.0, 0.0)},
        {"class_largest": (0.4, 0.4)},
        {"class_largest": (0.5, 0.5), "record": 0.5, "block_factor": 1.0},
        {"class_largest": (1.0, 0.3)},
        {"class_largest": (1.0, 2.0)},
        {"class_largest": (1.0, -1.0)},
        {"class_records": None},
        {"class_records": (20, 80)},
        {"by_class": (1.0,)},
    ):
        with pytest.raises(ValueError, match=r"unit|total|block_factor|class|argument"):
            Weights(**{**VALID, **change})


def test_weights_are_of_so_many_records():
    private = {"class_records": None, "class_totals": None, "class_largest": None}
    weights = Weights(**{**VALID, **private})
    for n_samples in (50, 100, 200):
        weights.check(n_samples, 2, "protected")
    for n_samples in (49, 201):
        with pytest.raises(ValueError, match="n_units"):
            weights.check(n_samples, 2, "protected")
    Weights(**VALID).check(100, 2, "public")
    for wrong in ((101, 2, "public"), (100, 3, "public"), (100, 2, "protected")):
        with pytest.raises(ValueError, match="class_"):
            Weights(**VALID).check(*wrong)


def people(n=120):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 4))
    return X / np.linalg.norm(X, axis=1, keepdims=True), np.arange(n) % 3, np.arange(n) // 2


@pytest.mark.parametrize("protect", [False, True], ids=["public", "protected"])
@pytest.mark.parametrize(
    "head",
    [
        BallDPRidgePrototype(),
        BallDPLinearDiscriminant(share=0.5),
        BallDPLogisticRegression(mechanism="output", alpha=0.1),
        BallDPLogisticRegression(mechanism="gradient"),
    ],
)
def test_forged_weights_are_found(head, protect, forged):
    """Whoever states other persons, units or weights contradicts the noise, or the counts."""
    X, y, groups = people()
    head = sklearn.clone(head).set_params(delta=1e-3, radius=0.4, protect_labels=protect)
    if protect:
        head.set_params(classes=[0, 1, 2])
    release = head.fit(X, y, groups=groups).release_
    weights = release.weights
    assert Release.from_dict(forged(release)) == release

    def both(**changes):
        parts = ("sums_weights", "loss_weights")
        fields = {f"problem.{part}.{n}": v for part in parts for n, v in changes.items()}
        return forged(release, **fields)

    fewer, another = both(n_units=20), both(unit="record")
    without = forged(release, **{"problem.sums_weights": ..., "problem.loss_weights": ...})
    lighter = {"total": 2.0 * weights.total}
    if not protect:
        lighter["class_totals"] = [2.0 * total for total in weights.class_totals]
    unit = forged(release, "follows.unit", "record")
    for record in (fewer, another, without, unit, both(**lighter)):
        with pytest.raises(ValueError, match="record: "):
            Release.from_dict(record)


def noise_follows(release, weights):
    """The record with other weights in the loss, and the noise that they would ask for."""
    problem = dataclasses.replace(release.problem, loss_weights=weights)
    bound = release.bound.calibrated(problem, mu_from_budget(release.epsilon, release.delta))
    return dataclasses.replace(release, problem=problem, bound=bound)


def test_weights_beyond_the_counts_are_no_record():
    """Ten thousand times a class of 990 records: the noise would be that of records not there."""
    head = BallDPLogisticRegression(
        mechanism="output", alpha=0.1, delta=1e-4, radius=0.5, class_weight={0: 1.0, 1: 20.0}
    ).fit(people(1000)[0], np.repeat([0, 1], [990, 10]))
    weights = head.release_.weights
    with pytest.raises(ValueError, match="do not go with total"):
        dataclasses.replace(weights, total=20000.0, class_totals=(10000.0, 10000.0))
    evened = dataclasses.replace(
        weights, total=10500.0, class_records=(500, 500), class_totals=(500.0, 10000.0)
    )
    with pytest.raises(ValueError, match=r"class_records are not problem\.class_counts"):
        noise_follows(head.release_, evened).checked()


def test_the_loss_and_the_sums_speak_of_the_same_units():
    X, y, groups = people()
    release = BallDPLogisticRegression(delta=1e-3, radius=0.4).fit(X, y, groups=groups).release_
    for change in ({"most_records": 3}, {"n_units": 61}):
        other = dataclasses.replace(release.problem.sums_weights, **change)
        problem = dataclasses.replace(release.problem, sums_weights=other)
        with pytest.raises(ValueError, match="same units"):
            dataclasses.replace(release, problem=problem).checked()
    # A class may weigh nothing in the loss, and its records move the sums all the same.
    head = BallDPLogisticRegression(delta=1e-3, radius=0.4, class_weight={0: 0.0})
    release = head.fit(X, y, groups=groups).release_
    assert release.weights.class_totals[0] == 0.0 < release.problem.sums_weights.class_totals[0]
    assert Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release


def test_joint_is_no_less_than_the_largest_person_asks_for():
    """Half a weight in each of two classes, of a person who weighs one: q is the root of two."""
    X, _, groups = people()
    head = BallDPRidgePrototype(delta=1e-3, radius=0.4).fit(X, np.arange(120) % 2, groups=groups)
    assert head.release_.weights.block_factor == pytest.approx(np.sqrt(2.0))
    with pytest.raises(ValueError, match="block_factor"):
        dataclasses.replace(head.release_.weights, block_factor=1.0)


def test_owners_that_sorting_does_not_find_are_refused():
    """Sets are ordered in part: equal ones need not be neighbours."""
    X, y, _ = people()
    owners = np.empty(120, dtype=object)
    owners[:] = [frozenset({i % 7, 7 + i % 3}) for i in range(120)]
    with pytest.raises(ValueError, match="groups must name one owner"):
        BallDPRidgePrototype(delta=1e-3).fit(X, y, groups=owners)


@pytest.mark.parametrize("kind", [BallDPLogisticRegression, BallDPSquaredHingeSVC])
@pytest.mark.parametrize("mechanism", ["output", "gradient"])
def test_extreme_weights_of_classes_give_a_model(kind, mechanism):
    X, y = people()[0], np.arange(120) % 2
    for weight in ({0: 1.0, 1: 0.0}, {0: 1e12, 1: 1e-12}):
        head = kind(delta=1e-3, mechanism=mechanism, class_weight=weight).fit(X, y)
        assert np.isfinite(head.coef_).all()


def test_priors_must_leave_something_for_classes_with_weight():
    head = BallDPLogisticRegression(
        delta=1e-3, class_weight={0: 0.0}, priors=[1.0, 0.0], mechanism="output"
    )
    with pytest.raises(ValueError, match="leave nothing"):
        head.fit(people()[0], np.arange(120) % 2)
    assert not hasattr(head, "release_")


def test_units_are_not_added_up():
    X, y, groups = people()
    head = BallDPRidgePrototype(delta=1e-3, radius=0.4)
    one, all_of = head.fit(X, y).release_, head.fit(X, y, groups=groups).release_
    with pytest.raises(ValueError, match="differ in unit"):
        compose_releases([one, all_of])
    total = compose_releases([all_of, all_of])
    assert total.unit == "person"
    assert "one person's substitution" in str(total)
    fitted = BallDPRidgePrototype(delta=1e-3).fit(X, y)
    with PrivacyAccountant() as accountant:
        head.fit(X, y, groups=groups)
        with pytest.raises(ValueError, match="differ in unit"):
            head.fit(X, y)
        with pytest.raises(ValueError, match="hides one record"):
            PrivateAccuracy(epsilon=1.0)(fitted, X, y)
        accountant.spend(mu=0.1, what="by hand")
    assert len(accountant.records) == 2
    with PrivacyAccountant() as accountant:
        PrivateAccuracy(epsilon=1.0)(fitted, X, y)
        with pytest.raises(ValueError, match="hides one record"):
            head.fit(X, y, groups=groups)
    assert accountant.total().unit == "record"
