"""Public numbers of weights against brute force, and records that contradict them."""

import dataclasses
import json

import numpy as np
import pytest

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    PrivacyAccountant,
    compose_releases,
)
from sklearn_balldp.accounting import PrivateAccuracy
from sklearn_balldp.heads.weighing import weigh, weights_of
from sklearn_balldp.privacy.digest import record_digest
from sklearn_balldp.privacy.release import Release
from sklearn_balldp.privacy.weights import Weights


@pytest.mark.parametrize("seed", range(5))
def test_public_numbers_are_those_of_a_brute_force(seed):
    rng = np.random.default_rng(seed)
    n, k = 200, 4
    codes, owners = rng.integers(0, k - 1, n), rng.integers(0, 70, n)
    owners = np.unique(owners, return_inverse=True)[1]
    rows = rng.random(n) + 0.1
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
    joint = np.sqrt(((held / largest) ** 2).sum(axis=1)).max()
    assert found.joint == pytest.approx(joint)
    assert found.joint >= joint
    # Without owners each record is one.
    alone = weights_of(rows, codes, k)
    assert alone.largest == rows.max()
    assert (alone.joint, alone.most_records, alone.n_units) == (1.0, 1, n)


def test_owners_weigh_one_each():
    groups = np.array(["a", "b", "a", "c", "a", "b"])
    found = weigh(np.array([0, 0, 1, 1, 0, 1]), 6, np.arange(2), groups=groups)
    np.testing.assert_allclose(found.rows, [1 / 3, 1 / 2, 1 / 3, 1, 1 / 3, 1 / 2])
    assert found.sums.mass == pytest.approx(3.0, rel=1e-12)
    assert found.sums.unit == "person"
    assert found.sums is found.loss
    # Owners and declared weights together.
    both = weigh(
        None, 6, np.arange(2), groups=groups, sample_weight=[1, 2, 1, 2, 1, 2], max_weight=2.0
    )
    np.testing.assert_allclose(both.rows, found.rows * [0.5, 1, 0.5, 1, 0.5, 1])
    assert both.sums.class_totals is None


VALID = {
    "unit": "person",
    "n_units": 50,
    "most_records": 4,
    "most_classes": 2,
    "total": 50.0,
    "largest": 1.0,
    "record": 1.0,
    "class_totals": (30.0, 20.0),
    "class_largest": (1.0, 1.0),
    "joint": 1.2,
}


@pytest.mark.parametrize(
    "change",
    [
        {"unit": "household"},
        {"n_units": 0},
        {"most_classes": 5},
        {"total": 51.0},
        {"total": -1.0},
        {"largest": 5.0},
        {"largest": 0.5},
        {"record": 0.0},
        {"record": 2.0},
        {"joint": 0.9},
        {"joint": 1.5},
        {"joint": float("nan")},
        {"class_totals": None},
        {"class_totals": (30.0, 10.0)},
        {"class_totals": (50.0, 0.0)},
        {"class_largest": (0.5, 0.5)},
        {"class_largest": (1.0, 2.0)},
        {"by_class": (1.0, -1.0)},
        {"by_class": (1.0, 0.0)},
        {"by_class": (1.0,)},
    ],
)
def test_impossible_weights_are_refused(change):
    assert Weights(**VALID).mass == 50.0
    with pytest.raises(ValueError, match=r"unit|total|joint|class|argument"):
        Weights(**{**VALID, **change})


def people(n=120):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 4))
    return X / np.linalg.norm(X, axis=1, keepdims=True), np.arange(n) % 3, np.arange(n) // 2


def forged(release, change):
    """The record with other weights, and a checksum that fits."""
    record = json.loads(json.dumps(release.to_dict()))
    change(record)
    del record["checksum"]
    return {**record, "checksum": record_digest(record)}


@pytest.mark.parametrize(
    "head",
    [
        BallDPRidgePrototype(),
        BallDPLinearDiscriminant(share=0.5),
        BallDPLogisticRegression(mechanism="output", alpha=0.1),
        BallDPLogisticRegression(mechanism="gradient"),
    ],
)
def test_forged_weights_are_found(head):
    """Whoever states other weights, persons or units contradicts the noise, or the counts."""
    X, y, groups = people()
    release = head.set_params(delta=1e-3, radius=0.4).fit(X, y, groups=groups).release_

    def weights_in(record):
        return [
            w
            for w in (
                record["bound"]["weights"],
                (record["bound"].get("start") or {}).get("weights"),
            )
            if w
        ]

    def scaled(record):
        for weights in weights_in(record):
            # As if there were twice the persons.
            weights["total"] *= 2
            weights["n_units"] *= 2
            weights["class_totals"] = [2 * t for t in weights["class_totals"]]

    def fewer(record):
        for weights in weights_in(record):
            weights["n_units"] = 20

    def another(record):
        for weights in weights_in(record):
            weights["unit"] = "record"

    def without(record):
        record["bound"]["weights"] = None
        if record["bound"].get("start"):
            record["bound"]["start"]["weights"] = None

    def unit(record):
        record["unit"] = "record"

    def persons(record):
        record["n_units"] = 120

    Release.from_dict(forged(release, lambda record: None))
    for change in (scaled, fewer, another, without, unit, persons):
        with pytest.raises(ValueError, match=r"record|unit|weights"):
            Release.from_dict(forged(release, change))


def test_units_are_not_added_up():
    X, y, groups = people()
    head = BallDPRidgePrototype(delta=1e-3, radius=0.4)
    one, all_of = head.fit(X, y).release_, head.fit(X, y, groups=groups).release_
    with pytest.raises(ValueError, match="differ in unit"):
        compose_releases([one, all_of])
    total = compose_releases([all_of, all_of])
    assert total.unit == "person"
    assert "one person's substitution" in str(total)
    with PrivacyAccountant() as accountant:
        head.fit(X, y, groups=groups)
        with pytest.raises(ValueError, match="differ in unit"):
            head.fit(X, y)
        with pytest.raises(ValueError, match="hides one record"):
            PrivateAccuracy(epsilon=1.0)(head, X, y)
        accountant.spend(mu=0.1, what="by hand")
    assert len(accountant.records) == 2
    fitted = BallDPRidgePrototype(delta=1e-3).fit(X, y)
    with PrivacyAccountant() as accountant:
        PrivateAccuracy(epsilon=1.0)(fitted, X, y)
        with pytest.raises(ValueError, match="hides one record"):
            head.fit(X, y, groups=groups)
    assert accountant.total().unit == "record"


def test_two_bounds_of_one_fit_speak_of_the_same_units():
    X, y, groups = people()
    head = BallDPLogisticRegression(delta=1e-3, radius=0.4).fit(X, y, groups=groups)
    bound = head.release_.bound
    other = dataclasses.replace(bound.start.weights, most_records=3)
    changed = dataclasses.replace(bound, start=dataclasses.replace(bound.start, weights=other))
    with pytest.raises(ValueError, match="units"):
        dataclasses.replace(head.release_, bound=changed)
