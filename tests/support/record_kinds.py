"""Records of every kind, made of public numbers alone: no rows are needed."""

import functools
import json
import math
from dataclasses import replace

import pytest

from sklearn_balldp.mechanisms import (
    GradientPerturbation,
    OutputPerturbation,
    PrototypePerturbation,
    StatisticsPerturbation,
)
from sklearn_balldp.privacy import Problem, Release
from sklearn_balldp.privacy.digest import record_digest
from sklearn_balldp.privacy.gaussian import mu_from_budget
from sklearn_balldp.privacy.noise import EXACT_SAMPLER, SEEDED_SAMPLER
from sklearn_balldp.privacy.origins import Edits
from sklearn_balldp.privacy.weights import Weights

EPSILON, DELTA = 4.0, 1e-5
PUBLIC = {"n_features": 4, "class_counts": (50, 30, 10), "radius": 0.5, "alpha": 0.1}
PROTECTED = {"n_samples": 90, "n_classes": 3, "class_counts": None}
LINEAR = {"loss": "softmax", "fit_intercept": True}
HINGE = {"loss": "squared_hinge"}
PERSONS = Weights(
    unit="person",
    n_units=45,
    most_records=2,
    total=45.0,
    largest=1.0,
    record=0.5,
    class_totals=(25.0, 15.0, 5.0),
    class_largest=(1.0, 0.5, 0.5),
    block_factor=math.sqrt(2.0),
)
OWNED = {"sums_weights": PERSONS}
HIDDEN = {"sums_weights": replace(PERSONS, class_totals=None, class_largest=None)}
EDITS = {"radius_from": Edits(8, 0.75, 0.5)}
ZERO = GradientPerturbation(start="zero", n_steps=5)
HEADS = {
    "prototypes": "BallDPRidgePrototype",
    "statistics": "BallDPLinearDiscriminant",
    "output": "BallDPLogisticRegression",
    "gradient": "BallDPLogisticRegression",
}
#: Mechanism, numbers of the problem, and fields of the record.
KINDS = {
    "prototypes": (PrototypePerturbation(), {}, {}),
    "least": (PrototypePerturbation("min"), {}, {}),
    "worst": (PrototypePerturbation("worst"), {"metric": "manhattan"}, {}),
    "protected": (PrototypePerturbation(), PROTECTED, {}),
    "seeded": (PrototypePerturbation(), {}, {"sampler": SEEDED_SAMPLER}),
    "persons": (PrototypePerturbation(), OWNED, {}),
    "protected persons": (PrototypePerturbation(), {**PROTECTED, **HIDDEN}, {}),
    "statistics": (StatisticsPerturbation(0.4), {"domain": "sphere"}, EDITS),
    "protected statistics": (StatisticsPerturbation(0.5), PROTECTED, {}),
    "minimiser": (OutputPerturbation(), LINEAR, {"encoder": "an encoder"}),
    "paper": (OutputPerturbation(sensitivity="paper"), HINGE, {}),
    "descent": (ZERO, LINEAR, {}),
    "started descent": (GradientPerturbation(start="statistics", n_steps=5), LINEAR, {}),
    "from the mean": (GradientPerturbation(start="mean", n_steps=5), {**LINEAR, **PROTECTED}, {}),
    "hinge descent": (ZERO, HINGE, {"accepted": ("mine:Query",)}),
    "descent of persons": (GradientPerturbation(n_steps=3), {**LINEAR, **OWNED}, {}),
}


@functools.cache
def made(name):
    """The record of a kind."""
    return release_made_of(*KINDS[name])


def release_made_of(mechanism, numbers, fields=None):
    """A record of public numbers."""
    problem = Problem(**{**PUBLIC, **numbers})
    hinge = problem.loss == "squared_hinge"
    return Release(
        **{
            "head": "BallDPSquaredHingeSVC" if hinge else HEADS[mechanism.name],
            "problem": problem,
            "bound": mechanism.bound(problem, mu_from_budget(EPSILON, DELTA)),
            "epsilon": EPSILON,
            "delta": DELTA,
            "sampler": EXACT_SAMPLER,
            "version": "0.2.0",
            "numpy_version": "2.1.0",
            "date": "2026-01-31",
            **(fields or {}),
        }
    )


def leaves(value, path=()):
    """Paths and values of all that a record states itself."""
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in items:
            if (*path, name) not in (("follows",), ("checksum",)):
                yield from leaves(part, (*path, name))
    if path:
        yield path, value


def edited(record, path, value):
    """A copy of a record with another value at a path, which may be new there."""
    copy = json.loads(json.dumps(record))
    *outer, last = path
    part = copy
    for name in outer:
        part = part[name]
    if value is ...:
        part.pop(last)
    else:
        part[last] = value
    return copy


@pytest.fixture
def release_of():
    """The record of this kind."""
    return made


@pytest.fixture(params=KINDS)
def release(request):
    """A record of each kind."""
    return made(request.param)


@pytest.fixture
def forged():
    """The JSON of a record, changed at a path, with a checksum of what it says now."""

    def change(release, path="", value=None, **more):
        record = json.loads(json.dumps(release.to_dict() if hasattr(release, "bound") else release))
        for where, new in [*([(path, value)] if path else []), *more.items()]:
            *outer, last = where.split(".")
            part = record
            for name in outer:
                part = part[int(name)] if isinstance(part, list) else part[name]
            if new is ...:
                del part[last]
            else:
                part[int(last) if isinstance(part, list) else last] = new
        record.pop("checksum", None)
        return {**record, "checksum": record_digest(record)}

    return change
