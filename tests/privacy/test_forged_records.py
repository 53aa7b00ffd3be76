"""Records that contradict themselves: every field is changed in turn, and every one is refused.

What a record states may be more than what follows from the rest of it, and never less.
"""

import copy
import dataclasses
import functools
import json
import math
import time
import tracemalloc

import numpy as np
import pytest

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    OutputPerturbation,
    RadiusPolicy,
    compose_releases,
)
from sklearn_balldp.privacy import Release
from sklearn_balldp.privacy.bounds import MinimizerBound, PrototypeBound, bound_from_dict
from sklearn_balldp.privacy.digest import parameters_digest, record_digest
from sklearn_balldp.privacy.gaussian import epsilon_from_mu
from sklearn_balldp.privacy.noise import EXACT_SAMPLER, SEEDED_SAMPLER
from sklearn_balldp.privacy.statistics import StatisticsBound

N, D, K = 90, 4, 3


def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    return X / np.linalg.norm(X, axis=1, keepdims=True), np.arange(N) % K


PRIVATE = RadiusPolicy(0.5, source="private", epsilon=1.0)
HEADS = {
    "prototypes": BallDPRidgePrototype(4.0, radius=0.5),
    "protected": BallDPRidgePrototype(4.0, radius=0.5, protect_labels=True, classes=range(K)),
    "private radius": BallDPRidgePrototype(4.0, radius=PRIVATE),
    "minimiser": BallDPLogisticRegression(4.0, radius=0.5, mechanism="output"),
    "paper": BallDPSquaredHingeSVC(
        4.0, radius=0.5, mechanism=OutputPerturbation(sensitivity="paper"), fit_intercept=False
    ),
    "descent": BallDPLogisticRegression(
        4.0, radius=0.5, mechanism=GradientPerturbation(start="zero", n_steps=5)
    ),
    "started descent": BallDPLogisticRegression(
        100.0,
        radius=0.5,
        mechanism=GradientPerturbation(n_steps=5, start="statistics"),
    ),
    "from the mean": BallDPLogisticRegression(
        4.0, radius=0.5, mechanism=GradientPerturbation(start="mean", n_steps=5)
    ),
    "hinge descent": BallDPSquaredHingeSVC(
        4.0,
        radius=0.5,
        mechanism=GradientPerturbation(start="zero", n_steps=5),
        fit_intercept=False,
    ),
    "statistics": BallDPLinearDiscriminant(4.0, radius=0.5, domain="sphere"),
    "protected statistics": BallDPLinearDiscriminant(
        4.0, radius=0.5, protect_labels=True, classes=range(K)
    ),
    "seeded": BallDPRidgePrototype(4.0, radius=0.5, random_state=0),
}


@functools.cache
def release_of(name):
    return copy.deepcopy(HEADS[name]).fit(*data()).release_


def record_of(name):
    return json.loads(json.dumps(release_of(name).to_dict()))


def sealed(record):
    """The record with a checksum of what it says now: what a forger would hand over."""
    record = json.loads(json.dumps(record))
    record.pop("checksum", None)
    return {**record, "checksum": record_digest(record)}


def test_honest_records_are_read():
    """Also as other tools write them: 2.0 becomes 2, and 1e-06 becomes 0.000001."""

    def rewritten(value):
        if isinstance(value, dict):
            return {key: rewritten(item) for key, item in value.items()}
        if isinstance(value, list):
            return [rewritten(item) for item in value]
        return int(value) if isinstance(value, float) and value.is_integer() else value

    for name in HEADS:
        record = record_of(name)
        assert Release.from_dict(record) == release_of(name), name
        assert sealed(record) == record
        assert Release.from_dict(rewritten(record)).to_dict() == release_of(name).to_dict(), name


def HALF(value):
    return [item / 2 for item in value] if isinstance(value, list) else value / 2


# Field by field: what a forger writes, for every head that has the field.
EDITS = {
    "head": ("BallDPLogisticRegression ", None),
    "mechanism": ("exact", None),
    "n_samples": (10 * N, None),
    "n_features": (D + 1, None),
    "n_classes": (K + 1, None),
    "alpha": (7.0, None),
    "norm_bound": (0.5, None),
    "metric": ("chebyshev", None),
    "radius": (0.1, None),
    "radius_source": ("declared", None),
    "radius_epsilon": (0.25, None),
    "radius_draw": ("x", None),
    "radius_edits": (7, None),
    "radius_hides": (0.5, None),
    "radius_hides_records": (0.5, None),
    "epsilon": (0.1, None),
    "delta": (1e-9, None),
    "format": (2, None),
    "sampler": (None, lambda v: EXACT_SAMPLER if v == SEEDED_SAMPLER else SEEDED_SAMPLER),
    "version": ("9.9.9\n", None),
    "numpy_version": ("0.1", None),
    "date": ("yesterday", None),
    "encoder": ("other", None),
    "rule": ("another", None),
    "digest": ("0" * 63, None),
    "epsilon_full_radius_ex_post": (0.01, None),
    "mu": (None, HALF),
    "sensitivity": (None, HALF),
    "sigma": (None, HALF),
    "labels": (None, lambda v: "public" if v == "protected" else "protected"),
    "unit": (None, lambda v: "person" if v == "record" else "record"),
    "private": (None, lambda v: v is not True),
    "epsilon_full_radius": (None, HALF),
}
# Nothing else in a record depends on these: only the checksum sees that they were edited.
FREE = {"encoder", "head", "mechanism", "numpy_version", "radius_draw", "rule"}
# What these say then is true as well: changes of a label move more than these radii do, and the
# regulariser of a descent holds no data.
STILL_TRUE = {
    *[
        (field, name)
        for field in ("metric", "radius")
        for name in ("protected", "protected statistics")
    ],
    # What is hidden within a radius is hidden within a smaller one.
    *[("radius", name) for name in ("prototypes", "private radius", "minimiser", "statistics")],
    # What a radius spent is the publisher's word.
    ("radius_epsilon", "private radius"),
    *[("alpha", name) for name in ("descent", "started descent", "from the mean", "hinge descent")],
}


KINDS = ["prototypes", "protected", "private radius", "minimiser", "started descent", "statistics"]


@pytest.mark.parametrize("name", KINDS)
def test_every_field_in_turn(name):
    record = record_of(name)
    assert set(EDITS) == set(record) - {"bound", "checksum"}
    for field, (value, change) in EDITS.items():
        forged = {**record, field: value if change is None else change(record[field])}
        assert forged[field] != record[field], field
        with pytest.raises(ValueError, match="record"):
            Release.from_dict(forged)
        # Sealed anew, what follows from the rest is still refused.
        if field not in FREE and (field, name) not in STILL_TRUE:
            with pytest.raises(
                ValueError, match=r"record: .*(should be|must|below|go together|known)"
            ):
                Release.from_dict(sealed(forged))


@pytest.mark.parametrize("name", KINDS)
def test_more_than_follows_may_be_stated(name):
    """As by a version whose bounds were looser; what follows is what is shown then."""
    record = record_of(name)
    for field in ("mu", "epsilon_full_radius"):
        read = Release.from_dict(sealed({**record, field: 1.1 * record[field]}))
        assert getattr(read, field) == pytest.approx(record[field], rel=1e-9)
    read = Release.from_dict(sealed({**record, "epsilon": 1.1 * record["epsilon"]}))
    assert read.mu == release_of(name).mu
    # Fields with defaults may be absent.
    for field in (
        "encoder",
        "rule",
        "radius_edits",
        "radius_hides",
        "radius_hides_records",
        "epsilon_full_radius_ex_post",
    ):
        less = {key: value for key, value in record.items() if key != field}
        if record[field] in (None, "", 0, 0.0):
            assert Release.from_dict(sealed(less)) == release_of(name)


START_EDITS = [
    ("rows", lambda v: "sphere"),
    ("sigma", lambda v: [x / 2 for x in v]),
    ("sigma", lambda v: [-x for x in v]),
    ("sigma", lambda v: []),
    ("share", lambda v: 0.0),
    ("count_constant", lambda v: 0.5),
    ("labels", lambda v: "protected"),
    ("n_samples", lambda v: 10 * v),
    ("norm_bound", lambda v: v / 2),
    ("n_features", lambda v: v + 1),
]
# Class sums have a second moment beside them, and a sum of all rows has not.
OF_SUMS = [
    ("sigma", lambda v: [v[0], v[1] / 2]),
    ("sigma", lambda v: v[:1]),
    ("share", lambda v: 1.0),
    ("summed", lambda v: -1),
    ("summed", lambda v: 10**6),
    ("pooled", lambda v: True),
]


@pytest.mark.parametrize("name", ["started descent", "from the mean"])
def test_starts_of_descents_in_turn(name):
    """Also in memory: what a start promises is recomputed."""
    record, release = record_of(name), release_of(name)
    for field, change in START_EDITS + (OF_SUMS if name == "started descent" else []):
        start = {**record["bound"]["start"], field: change(record["bound"]["start"][field])}
        forged = {**record, "bound": {**record["bound"], "start": start}}
        with pytest.raises(ValueError, match="record"):
            Release.from_dict(sealed(forged))
        plain = {k: tuple(v) if isinstance(v, list) else v for k, v in start.items()}
        try:
            bound = dataclasses.replace(release.bound, start=StatisticsBound(**plain))
        except ValueError:
            continue  # there is no such bound
        with pytest.raises(ValueError, match="record"):
            dataclasses.replace(release, bound=bound)


def test_a_mean_that_moves_nothing_is_no_start():
    """It would leave the steps the gaps of rows that were not moved: a start for nothing."""
    record = record_of("from the mean")
    forged = {**record, "bound": {**record["bound"], "least_reach": 1.0}}
    with pytest.raises(ValueError, match=r"bound\.start\.pooled=True needs bound\.least_reach"):
        Release.from_dict(sealed(forged))


def test_a_discriminant_has_sums_of_classes():
    release = BallDPLinearDiscriminant(4.0, radius=0.5, share=1.0).fit(*data()).release_
    bound = dataclasses.replace(release.bound, pooled=True)
    bound = bound.calibrated(0.5, release.mu)
    with pytest.raises(ValueError, match=r"bound\.pooled=True does not follow"):
        dataclasses.replace(release, bound=bound)


def test_a_start_on_the_sphere_is_none_for_steps_in_the_ball():
    """All else made to follow: shares, mu and epsilon."""
    started = GradientPerturbation(n_steps=5, start="statistics")
    head = BallDPLogisticRegression(4.0, radius=0.1, mechanism=started).fit(*data())
    release = head.release_
    start, left = release.bound.start, release.bound.steps_mu
    sphere = dataclasses.replace(start, rows="sphere")
    sums, moment = sphere.sensitivity(0.1) / np.array(start.sigma)
    sphere = dataclasses.replace(sphere, share=float(sums**2 / (sums**2 + moment**2)))
    mu = math.hypot(left, sphere.mu(0.1))
    assert mu < 0.99 * release.mu
    bound = dataclasses.replace(release.bound, start=sphere, promised_mu=mu)
    epsilon = epsilon_from_mu(mu, release.delta)
    with pytest.raises(ValueError, match=r"bound\.start\.rows"):
        dataclasses.replace(release, bound=bound, epsilon=epsilon)


BOUND_EDITS = [
    ("prototypes", "sigma", lambda v: [x / 2 for x in v], "epsilon"),
    ("prototypes", "sigma", lambda v: v[:1], "sigma"),
    ("prototypes", "sigma", lambda v: "exact", "sigma"),
    ("prototypes", "class_counts", lambda v: [N - 2, 1, 1], "epsilon"),
    ("prototypes", "class_counts", lambda v: [N], "record"),
    ("prototypes", "class_counts", lambda v: [30, 30, 31], "class_counts"),
    ("prototypes", "n_samples", lambda v: 10 * v, "class_counts|n_samples"),
    ("prototypes", "n_values", lambda v: 1, "n_values"),
    ("prototypes", "alpha", lambda v: 9.0, "alpha"),
    ("prototypes", "norm_bound", lambda v: 0.1, "norm_bound"),
    ("prototypes", "mode", lambda v: "worst", "mode"),
    ("prototypes", "mode", lambda v: "min", "record"),
    ("prototypes", "labels", lambda v: "protected", "class_counts"),
    ("protected", "labels", lambda v: "public", "labels|epsilon|sigma"),
    ("statistics", "sigma", lambda v: [x / 2 for x in v], "epsilon"),
    ("statistics", "sigma", lambda v: v[:1], "record"),
    ("statistics", "share", lambda v: 1.0, "record"),
    ("statistics", "share", lambda v: 0.0, "share"),
    ("statistics", "rows", lambda v: "ball", "epsilon|sigma"),
    ("statistics", "rows", lambda v: "torus", "rows"),
    ("statistics", "count_constant", lambda v: 0.5, "constant"),
    ("statistics", "labels", lambda v: "protected", "constant"),
    ("statistics", "norm_bound", lambda v: 0.1, "norm_bound"),
    ("statistics", "n_samples", lambda v: 10 * v, "n_samples"),
    ("statistics", "n_features", lambda v: 9, "n_features"),
    ("protected statistics", "count_constant", lambda v: 2 * v, "epsilon|constant"),
    ("protected statistics", "labels", lambda v: "public", "constant"),
    ("minimiser", "sigma", lambda v: [v[0] / 2], "epsilon"),
    ("minimiser", "tol", lambda v: -1.0, "sigma|tol|epsilon"),
    ("minimiser", "loss", lambda v: "logistic", "bound.loss"),
    ("minimiser", "loss", lambda v: "none", "loss"),
    ("minimiser", "fit_intercept", lambda v: 1, "fit_intercept"),
    ("minimiser", "n_features", lambda v: 9, "n_features"),
    ("minimiser", "n_classes", lambda v: 2, "n_classes"),
    ("minimiser", "method", lambda v: "paper", "sigma|epsilon"),
    ("descent", "promised_mu", lambda v: v / 2, "sigma|sensitivity"),
    ("descent", "promised_mu", lambda v: 0.0, "promised_mu"),
    ("descent", "promised_mu", lambda v: 1.1 * v, "epsilon"),
    ("descent", "promised_radius", lambda v: 0.1, "promised_radius|epsilon"),
    ("started descent", "least_reach", lambda v: 0.0, "least_reach"),
    ("started descent", "least_reach", lambda v: 0.29, "least_reach"),
    ("statistics", "summed", lambda v: -1, "summed"),
    ("descent", "n_samples", lambda v: 10 * v, "n_samples"),
    ("descent", "loss", lambda v: "squared_hinge", "bound.loss"),
    ("hinge descent", "loss", lambda v: "softmax", "bound.loss"),
    ("descent", "descent", lambda v: {**v, "shares": v["shares"][:4]}, "length of sensitivity"),
    ("descent", "descent", lambda v: {**v, "shares": [2 * s for s in v["shares"]]}, "shares"),
    ("descent", "descent", lambda v: {**v, "clip": 0.4}, "sensitivity"),
    ("descent", "descent", lambda v: {**v, "averaged": "5"}, "averaged"),
]


def test_fields_of_the_bound():
    """What derives from the bound is derived anew by the forger, as far as it can be."""
    for name, field, change, match in BOUND_EDITS:
        record = record_of(name)
        record["bound"][field] = change(record["bound"][field])
        with pytest.raises(ValueError, match=match):
            Release.from_dict(sealed(_derived_again(record)))
        with pytest.raises(ValueError, match="record"):
            Release.from_dict(sealed(record))


def test_more_noise_than_is_needed_is_no_contradiction():
    for name in ("prototypes", "minimiser", "statistics"):
        record = record_of(name)
        record["bound"]["sigma"] = record["sigma"] = np.multiply(record["sigma"], 2.0).tolist()
        if isinstance(record["bound"]["sigma"], float):
            record["bound"]["sigma"] = [record["sigma"]]
        read = Release.from_dict(sealed(record))
        assert read.mu < 0.6 * record["mu"], name


def _derived_again(record):
    """Derived numbers that agree with the bound as it is now."""
    try:
        bound = bound_from_dict(json.loads(json.dumps(record["bound"])))
        mu = bound.mu(record["radius"])
        return {**record, "mu": mu, "labels": bound.labels}
    except Exception:
        return record


def test_steps_of_a_descent():
    """A step's noise follows from its sensitivity, and that is not below the least there is."""
    record = record_of("descent")
    for step in (0, 3):
        values = list(record["sigma"])
        values[step] *= 0.99
        with pytest.raises(ValueError, match=rf"sigma\[{step}\]"):
            Release.from_dict(sealed({**record, "sigma": values}))
    # Less of both, in proportion: below what any iterate allows.
    less = {name: [v / 100 for v in record[name]] for name in ("sigma", "sensitivity")}
    with pytest.raises(ValueError, match=r"sensitivity\[0\]"):
        Release.from_dict(sealed({**record, **less}))
    # The first step starts from zero, where the gap is known to the last digit.
    free = GradientPerturbation(start="zero", n_steps=5, clip=None)
    head = copy.deepcopy(HEADS["descent"]).set_params(mechanism=free)
    record = head.fit(*data()).release_.to_dict()
    first = {name: [0.99 * record[name][0], *record[name][1:]] for name in less}
    with pytest.raises(ValueError, match=r"sensitivity\[0\]"):
        Release.from_dict(sealed({**record, **first}))
    for name in ("sigma", "sensitivity"):
        with pytest.raises(ValueError, match="length"):
            Release.from_dict(sealed({**record, name: record[name][:-1]}))


def test_the_forgeries_that_were_believed():
    """A small epsilon beside the noise of a large one; private beside a seed; a forged total."""
    record = record_of("prototypes")
    with pytest.raises(ValueError, match=r"epsilon=0.1 does not follow .* should be 3.99"):
        Release.from_dict(sealed({**record, "epsilon": 0.1}))
    with pytest.raises(ValueError, match=r"epsilon=0.1"):
        compose_releases([sealed({**record, "epsilon": 0.1})])
    with pytest.raises(ValueError, match=r"private=True does not follow .* False"):
        Release.from_dict(sealed({**record_of("seeded"), "private": True}))


def test_what_a_radius_spends_goes_with_its_source():
    for change in (
        {"radius_source": "private"},
        {"radius_source": "private", "radius_epsilon": 0.5},
        {"radius_source": "seeded", "radius_draw": "x"},
        {"radius_epsilon": 0.5},
        {"radius_draw": "x"},
        {"radius_source": "reference", "radius_epsilon": 0.5, "radius_draw": "x"},
    ):
        with pytest.raises(ValueError, match="do not go together"):
            dataclasses.replace(release_of("prototypes"), **change)
    with pytest.raises(ValueError, match="reads labels"):
        dataclasses.replace(release_of("protected"), radius_source="declared")


def test_private_follows_from_sampler_and_source():
    head = HEADS["prototypes"]
    release = copy.deepcopy(head).fit(*data()).release_
    assert release.private is True
    assert dataclasses.replace(release, sampler=SEEDED_SAMPLER).private is False
    assert dataclasses.replace(release, radius_source="declared").private == "conditional"
    spent = {"radius_epsilon": 1.0, "radius_draw": "x"}
    assert dataclasses.replace(release, radius_source="private", **spent).private is True
    assert dataclasses.replace(release, radius_source="seeded", **spent).private is False
    seeded = RadiusPolicy(0.5, source="private", epsilon=1.0, random_state=0)
    release = BallDPRidgePrototype(4.0, radius=seeded).fit(*data()).release_
    assert (release.sampler, release.radius_source) == (EXACT_SAMPLER, "seeded")
    assert release.private is False
    with pytest.raises(dataclasses.FrozenInstanceError):
        release.private = True


def test_unknown_formats_are_named():
    record = record_of("prototypes")
    for other in (0, 2, "1", None, [1]):
        with pytest.raises(ValueError, match=r"format=.* is not known: .* reads format 1"):
            Release.from_dict(sealed({**record, "format": other}))
    with pytest.raises(ValueError, match=r"format=None .* of version '0.2.0'"):
        Release.from_dict({k: v for k, v in record.items() if k != "format"})


def test_types_and_options():
    for field, value in (
        ("n_samples", "90"),
        ("n_samples", True),
        ("n_samples", 90.5),
        ("epsilon", "4"),
        ("epsilon", math.nan),
        ("epsilon", math.inf),
        ("delta", 0.0),
        ("delta", 1.0),
        ("radius", -0.5),
        ("radius", [0.5]),
        ("metric", ["euclidean"]),
        ("metric", "cosine"),
        ("sampler", "OS entropy"),
        ("digest", 7),
        ("encoder", 3),
        ("rule", None),
        ("bound", []),
        ("private", "yes"),
        ("date", "2026-13"),
        ("surplus", 1),
    ):
        with pytest.raises(ValueError, match="record"):
            Release.from_dict(sealed({**record_of("prototypes"), field: value}))
    for kind in ({}, {"type": "Guess"}, {"type": "ParameterBound"}, {"type": "TranscriptBound"}):
        with pytest.raises(ValueError, match=r"record: (unknown bound|no TranscriptBound)"):
            Release.from_dict(sealed({**record_of("prototypes"), "bound": kind}))
    for record in (None, [], "{}", 3, {}, {"version": "0.2.0"}):
        with pytest.raises(ValueError, match="record"):
            Release.from_dict(record)


def test_a_contradiction_cannot_be_made_in_memory_either():
    release = release_of("minimiser")
    for change in ({"epsilon": 0.5}, {"radius": 0.6}, {"n_samples": 9}, {"delta": 1e-12}):
        with pytest.raises(ValueError, match="record"):
            dataclasses.replace(release, **change)


def test_numbers_of_numpy_are_written_as_plain_ones():
    """They pass the checks of a record, so JSON must take them."""
    release = release_of("prototypes")
    bound, alpha = release.bound, np.float32(0.5)
    sigma = tuple(2 * np.float32(bound.sigma))
    changed = dataclasses.replace(
        release,
        n_samples=np.int32(N),
        radius_edits=np.int64(0),
        alpha=alpha,
        epsilon=np.float32(30.0),
        bound=dataclasses.replace(
            bound, n_values=np.int64(bound.n_values), alpha=alpha, sigma=sigma
        ),
    )
    written = json.loads(json.dumps(changed.to_dict()))
    assert Release.from_dict(written) == changed


def test_another_loss_is_told_the_right_one():
    """What a record of a head should say is believed once it says so."""
    X, y = data()
    for name, kind, n_classes, loss in (
        ("descent", BallDPLogisticRegression, 2, "logistic"),
        ("descent", BallDPLogisticRegression, 3, "softmax"),
        ("hinge descent", BallDPSquaredHingeSVC, 2, "squared_hinge"),
    ):
        head = kind(**HEADS[name].get_params(deep=False)).fit(X, y % n_classes)
        record = head.release_.to_dict()
        for other in {"logistic", "softmax", "squared_hinge", "prototypes"} - {loss}:
            forged = {**record, "bound": {**record["bound"], "loss": other}}
            with pytest.raises(ValueError, match=rf"bound\.loss=.* it should be '{loss}'"):
                Release.from_dict(sealed(forged))
        assert Release.from_dict(sealed(record)) == head.release_


@pytest.mark.parametrize("name", ["descent", "hinge descent", "started descent"])
@pytest.mark.parametrize("n_classes", [1500, 10_000])
def test_many_classes_take_no_time(name, n_classes):
    """A record of a thousand bytes may state as many as are read: no table of pairs of them."""
    record = record_of(name)
    bound = {**record["bound"], "n_classes": n_classes}
    if bound["start"] is not None:
        bound["start"] = {**bound["start"], "n_classes": n_classes}
    steps = record["bound"]["descent"]["shares"]
    forged = {**record, "n_classes": n_classes, "bound": bound, "sensitivity": [1.0] * len(steps)}
    forged = sealed({**forged, "sigma": [1e9] * len(steps)})
    start = time.process_time()
    tracemalloc.start()
    try:
        assert Release.from_dict(forged).n_classes == n_classes
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert time.process_time() - start < 0.5
    assert peak < 2e7


def test_digest_of_parameters():
    """The layout that the documentation states, computed by hand."""
    import hashlib

    named = {
        "weights": np.array([[1.0, -0.0]], dtype=np.float32),
        "classes_": np.array(["a", "é"]),
        "counts": np.array([3, 4], dtype=np.int32),
        "flags": np.array([True, False]),
    }
    body = (
        b'["classes_", "str", [2]]\n'
        + '["a", "é"]'.encode()
        + b'["counts", "i8", [2]]\n'
        + np.array([3, 4], dtype="<i8").tobytes()
        + b'["flags", "b1", [2]]\n\x01\x00'
        + b'["weights", "f8", [1, 2]]\n'
        + np.array([1.0, -0.0], dtype="<f8").tobytes()
    )
    assert parameters_digest(named) == hashlib.sha256(body).hexdigest()
    assert parameters_digest({**named, "weights": named["weights"].T}) != parameters_digest(named)
    order = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    assert parameters_digest({"w": order}) == parameters_digest({"w": order.copy("C")})


def test_labels_of_another_type_have_another_digest():
    """Also where their text, or their bytes, are the same."""
    days = ["2026-01-30", "2026-01-31"]
    for one, other in (
        (np.array([1, 2], dtype=object), ["1", "2"]),
        (np.array([1, 2], dtype=object), np.array([1.0, 2.0], dtype=object)),
        (np.array([True, False], dtype=object), ["True", "False"]),
        (np.array([None, "a"], dtype=object), ["None", "a"]),
        (np.array([b"1"], dtype=object), ["b'1'"]),
        (np.array([b"1"]), ["b'1'"]),
        (np.array(days, dtype="datetime64[D]"), days),
        (np.array([7], dtype="datetime64[ns]"), ["7"]),
        (np.array([7], dtype="datetime64[ns]"), np.array([7], dtype="timedelta64[ns]")),
        (np.array([2**64 - 1], dtype=np.uint64), [-1]),
    ):
        assert parameters_digest({"classes_": one}) != parameters_digest({"classes_": other})
    # Of ordinary labels it is the digest that it always was, however they are stored.
    for one, other in (
        (np.array(["1", "2"], dtype=object), ["1", "2"]),
        (np.array([1, 2], dtype=np.uint8), [1, 2]),
        (np.array([1, 2], dtype=np.uint64), [1, 2]),
        (np.array([np.int8(1), 2], dtype=object), np.array([1, 2], dtype=object)),
    ):
        assert parameters_digest({"classes_": one}) == parameters_digest({"classes_": other})


@pytest.mark.parametrize("name", ["prototypes", "minimiser", "descent", "statistics", "seeded"])
def test_the_record_knows_its_parameters(name):
    head = copy.deepcopy(HEADS[name]).fit(*data())
    release = head.release_
    assert release.matches(head)
    assert release.digest == parameters_digest(head.released_parameters())
    for attribute in head.released_parameters():
        other = copy.deepcopy(head)
        holder = other if hasattr(other, attribute) else other.statistics_
        values = getattr(holder, attribute)
        object.__setattr__(holder, attribute, values[::-1] + 0)
        assert not release.matches(other) or (values == values[::-1]).all()
    if hasattr(head, "statistics_"):
        # What predicts is no part of the digest, but follows from it; as do the copies.
        for attribute in ("coef_", "intercept_", "class_counts_"):
            other = copy.deepcopy(head)
            if hasattr(other, attribute):
                setattr(other, attribute, getattr(other, attribute) * 2)
                assert not release.matches(other)
        for attribute in ("sigma_sums", "sigma_moment", "norm_bound", "total"):
            other = copy.deepcopy(head)
            value = getattr(other.statistics_, attribute)
            object.__setattr__(other.statistics_, attribute, 2 * (value or 1.0))
            assert not release.matches(other)
    other = copy.deepcopy(HEADS[name]).fit(*data())
    assert release.matches(other) == (name == "seeded")
    assert not release.matches(object())


# Forgeries that were once believed --------------------------------------------------------------


def calibrated_again(record, **fields):
    """Bound fields changed, noise calibrated to them anew: consistent as far as it goes."""
    kinds = {"PrototypeBound": PrototypeBound, "MinimizerBound": MinimizerBound}
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in record["bound"].items()}
    bound = kinds[plain.pop("type")](**{**plain, **fields, "sigma": ()})
    bound = bound.calibrated(record["radius"], record["mu"])
    sensitivity, sigma = bound.scales(record["radius"])
    return {**record, "bound": bound.to_dict(), "sensitivity": sensitivity, "sigma": sigma}


def test_tolerances_and_counts_below_zero():
    record = record_of("minimiser")
    gap = Release.from_dict(record).bound.gap(0.5)
    for tol in (-1e-12, -gap / (2 * N) * 0.999):
        with pytest.raises(ValueError, match=r"record: .*tol"):
            Release.from_dict(sealed(calibrated_again({**record, "tol": tol}, tol=tol)))
    record = record_of("prototypes")
    for counts in ([10**9, 10**9, N - 2 * 10**9], [0.5, 0.5, N - 1.0]):
        with pytest.raises(ValueError, match=r"record: .*class_counts"):
            Release.from_dict(sealed(calibrated_again(record, class_counts=tuple(counts))))


def test_steps_without_noise():
    record = record_of("descent")
    for value in (0.0, [], [0.0] * 5, [-1.0] * 5, [1e-300] * 5):
        for forged in ({"sigma": value}, {"sigma": value, "sensitivity": value}):
            with pytest.raises(ValueError, match="record"):
                Release.from_dict(sealed({**record, **forged}))
    with pytest.raises(ValueError, match="sigma"):
        Release.from_dict(sealed({**record, "sensitivity": [1e300] * 5}))


def test_settings_of_no_descent():
    for change in (
        {"clip": -0.2},
        {"clip": 0.0},
        {"momentum": 1.0},
        {"momentum": -7.0},
        {"averaged": 55},
        {"averaged": 0},
        {"learning_rate": -1.0},
        {"shares": []},
        {"shares": [1.0, 0.0, 0.0, 0.0, 0.0]},
        {"shares": [0.3] * 5},
        {"shares": [1e-6] * (10**5 + 1)},
    ):
        record = record_of("descent")
        record["bound"]["descent"] |= change
        for forged in (record, {**record, "sigma": [1e-9] * 5, "sensitivity": [1e-9] * 5}):
            with pytest.raises(ValueError, match=r"record: bound.descent"):
                Release.from_dict(sealed(forged))
    # Nothing may be left that the sampler's grid takes.
    record["bound"]["descent"]["shares"] = [1e-30, 0.25, 0.25, 0.25, 0.2]
    with pytest.raises(ValueError, match="leaves nothing for a step on the grid"):
        Release.from_dict(sealed(record))


def test_steps_of_weighted_records_count_by_their_weights():
    """W / s takes the place of n: with rare classes it is far less."""
    X, y = data()
    y = np.where(np.arange(N) < 6, 1, 0)
    head = BallDPLogisticRegression(
        4.0,
        radius=0.5,
        class_weight="balanced",
        mechanism=GradientPerturbation(n_steps=5, start="prototypes"),
    ).fit(X, y)
    record, bound = head.release_.to_dict(), head.release_.bound
    assert bound.effective_size < 0.6 * N
    assert Release.from_dict(sealed(record)) == head.release_
    for factor, fails in ((1.0, False), (0.9, True), (bound.effective_size / N, True)):
        least = factor * (1.0 + 1e-9) * bound._least_gap(0.5) / bound.effective_size
        sigma = least / bound.step_mu()
        forged = sealed({**record, "sensitivity": [least] * 5, "sigma": sigma.tolist()})
        if fails:
            with pytest.raises(ValueError, match=r"sensitivity\[0\]"):
                Release.from_dict(forged)
        else:
            assert Release.from_dict(forged).sigma == tuple(sigma.tolist())


def test_radii_that_were_not_read_off_edits_hide_none():
    for change in ((-100, 2.0), (0, 0.5), (10, 0.0), (0, -0.5), (-1, 0.0)):
        edited = dict(zip(("radius_edits", "radius_hides"), change, strict=True))
        with pytest.raises(ValueError, match="do not go together"):
            Release.from_dict(sealed({**record_of("prototypes"), **edited}))


@pytest.mark.parametrize("name", ["prototypes", "minimiser", "statistics", "started descent"])
def test_a_millionth_less_is_too_little(name):
    """Numbers that follow from others do so to many digits."""
    record = record_of(name)
    for key in ("epsilon", "mu", "epsilon_full_radius", "sigma", "sensitivity"):
        value = record[key]
        if name == "started descent" and key in ("sigma", "sensitivity"):
            continue  # gaps at iterates that the record does not hold
        less = np.multiply(value, 1.0 - 1e-6).tolist()
        with pytest.raises(ValueError, match="record"):
            Release.from_dict(sealed({**record, key: less}))


def test_fewer_records_than_their_noise_is_for():
    record = record_of("descent")
    for n in (N // 2, 10**18):
        forged = {**record, "n_samples": n, "bound": {**record["bound"], "n_samples": n}}
        with pytest.raises(ValueError, match=r"sensitivity\[0\]|must not exceed"):
            Release.from_dict(sealed(forged))


def test_contradictions_of_words():
    for name, change in (
        ("prototypes", {"head": "BallDPLogisticRegression"}),
        ("prototypes", {"head": ""}),
        ("prototypes", {"head": "X\n\n# Y"}),
        ("prototypes", {"mechanism": ""}),
        ("prototypes", {"mechanism": "Output"}),
        ("prototypes", {"encoder": "x\n\n# FAKE"}),
        ("prototypes", {"encoder": "\ud800"}),
        ("prototypes", {"numpy_version": "1\n- certified"}),
        ("prototypes", {"rule": "1\n- certified"}),
        ("prototypes", {"date": "9999-99-99"}),
        ("prototypes", {"alpha": 1e308}),
        ("prototypes", {"epsilon_full_radius_ex_post": 9.0}),
        ("minimiser", {"mechanism": "gradient"}),
        ("descent", {"mechanism": "output"}),
        ("descent", {"n_classes": 10**12}),
    ):
        with pytest.raises(ValueError, match="record"):
            Release.from_dict(sealed({**record_of(name), **change}))


@pytest.mark.parametrize("name", ["prototypes", "descent"])
def test_junk_is_a_value_error(name):
    """Whole numbers beyond any float, deep lists, and whatever else JSON may hold."""
    deep: list = []
    for _ in range(3000):
        deep = [deep]
    for field in [*EDITS, "bound"]:
        for junk in (
            10**400,
            -(10**400),
            deep,
            {"a": {"b": []}},
            [None],
            "",
            "\x00",
            False,
            -1,
            1e308,
        ):
            record = {**record_of(name), field: junk}
            if record[field] != record_of(name)[field]:
                with pytest.raises(ValueError, match="record"):
                    Release.from_dict(record)
    record = record_of(name)
    for inner in record["bound"]:
        for junk in (10**400, deep, None, "x", {}, [10**400]):
            forged = {**record, "bound": {**record["bound"], inner: junk}}
            if junk != record["bound"][inner]:
                with pytest.raises(ValueError, match="record"):
                    Release.from_dict(forged)


def test_honest_descents_of_tiny_epsilon():
    """The grid takes a share of so small a mu: what was realised may be less than was asked."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 400)) / 20.0
    y = np.arange(200) % 10
    for params in ({}, {"protect_labels": True, "classes": range(10)}):
        head = BallDPLogisticRegression(
            1e-4, 1e-6, mechanism=GradientPerturbation(start="zero", n_steps=60)
        )
        release = head.set_params(**params).fit(X, y).release_
        assert Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release


def test_random_fits_make_records_that_are_read():
    rng = np.random.default_rng(1)
    for _ in range(60):
        k, d, n = rng.integers(2, 6), rng.integers(1, 8), rng.integers(12, 80)
        X = (rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-3, 3)).astype(
            rng.choice([np.float64, np.float32])
        )
        y = np.arange(n) % k
        params = {
            "epsilon": 10.0 ** rng.uniform(-2, 2),
            "delta": 10.0 ** rng.uniform(-9, -3),
            "radius": 10.0 ** rng.uniform(-4, 2),
            "norm_bound": 10.0 ** rng.uniform(-3, 3),
            "metric": rng.choice(["euclidean", "manhattan", "chebyshev"]).item(),
        }
        heads = [
            BallDPRidgePrototype(counts=rng.choice(["per_class", "min", "worst"]).item(), **params),
            BallDPLogisticRegression(alpha=10.0 ** rng.uniform(-3, 0), **params),
            BallDPSquaredHingeSVC(
                mechanism=GradientPerturbation(start="zero", n_steps=4, clip=None), **params
            ),
            BallDPLogisticRegression(
                mechanism=GradientPerturbation(start="zero", n_steps=1), **params
            ),
        ]
        for head in heads:
            release = head.fit(X, y).release_
            assert Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
@pytest.mark.parametrize("clip", [1e-3, 10.0])
def test_honest_descents_of_long_paths(dtype, clip):
    """What rounding adds grows with the iterates, and no record of it is refused after the run."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 120))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(dtype)
    for rate in (None, 1e4):
        mechanism = GradientPerturbation(start="zero", n_steps=10, clip=clip, learning_rate=rate)
        for kind in (BallDPLogisticRegression, BallDPSquaredHingeSVC):
            release = kind(1.0, radius=0.5, mechanism=mechanism).fit(X, np.arange(400) % 4).release_
            assert Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release


@dataclasses.dataclass(frozen=True)
class Wordy(PrototypeBound):
    """A bound of one's own, with fields of its own kinds."""

    levels: tuple[str, ...] = ("a", "b")


def test_bounds_of_ones_own_may_hold_words():
    bound = Wordy(n_samples=10, n_values=6, alpha=0.1, norm_bound=1.0)
    record = json.loads(json.dumps(bound.to_dict()))
    assert record["type"].endswith(":Wordy")
    assert Wordy.mechanism == ""
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in record.items()}
    assert bound_from_dict(plain) == bound


def test_rows_are_centred_by_a_start_and_an_intercept_alone():
    X, y = data()
    started = GradientPerturbation(n_steps=5)
    plain = GradientPerturbation(n_steps=5, start="zero")
    for mechanism, params in ((started, {"fit_intercept": False}), (plain, {})):
        release = BallDPLogisticRegression(4.0, radius=0.5, mechanism=mechanism, **params)
        release = release.fit(X, y).release_
        with pytest.raises(ValueError, match=r"bound\.least_reach below 1 needs"):
            dataclasses.replace(release, bound=dataclasses.replace(release.bound, least_reach=0.5))
