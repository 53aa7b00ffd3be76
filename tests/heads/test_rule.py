"""What predictions are made of: parameters act at the next fit, a new rule costs nothing."""

import functools
import pickle

import numpy as np
import pytest
from head_cases import HIDDEN, rows
from hypothesis import given
from hypothesis import strategies as st
from properties import PROPERTY
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from verdicts import verified

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    OutputPerturbation,
    PrivacyAccountant,
)
from sklearn_balldp.heads.inspection import matches

RNG = np.random.default_rng(0)
Y = np.repeat([0, 1, 2], [150, 100, 50])
X = rows(300, 1, 5)[0] + np.eye(3, 5)[Y]
X /= np.linalg.norm(X, axis=1, keepdims=True)
NEW = 1.5 * np.concatenate([X[::7], -X[::11]])
VECTORS = RNG.standard_normal((3, 5))
DESCENT = GradientPerturbation(n_steps=3, keep_transcript=True)
HEADS = {
    "prototypes": BallDPRidgePrototype(4.0),
    "nearest prototypes": BallDPRidgePrototype(4.0, decision="nearest"),
    "hidden prototypes": BallDPRidgePrototype(4.0, **HIDDEN),
    "discriminant": BallDPLinearDiscriminant(4.0, share=0.5),
    "discriminant, vectors": BallDPLinearDiscriminant(4.0, class_embeddings=VECTORS),
    "hidden discriminant": BallDPLinearDiscriminant(4.0, domain="sphere", share=0.5, **HIDDEN),
    "minimiser": BallDPLogisticRegression(4.0, mechanism="output", alpha=0.1),
    "descent": BallDPLogisticRegression(4.0, mechanism=DESCENT),
    "descent, vectors": BallDPLogisticRegression(4.0, mechanism=DESCENT, class_embeddings=VECTORS),
    "SVC": BallDPSquaredHingeSVC(4.0, mechanism=DESCENT, fit_intercept=False),
}
OTHER = {
    "epsilon": 0.1,
    "delta": 1e-3,
    "radius": 1.9,
    "metric": "chebyshev",
    "alpha": 0.7,
    "norm_bound": 7.0,
    "counts": "min",
    "domain": "sphere",
    "share": 0.9,
    "shrinkage": 0.9,
    "priors": "uniform",
    "class_embeddings": -VECTORS,
    "class_weight": "balanced",
    "classes": [0, 1, 2, 3],
    "encoder": "another",
    "random_state": 5,
    "verbose": True,
}
RULES = {
    "prototypes": [{"priors": [0.2, 0.0, 0.8]}, {"decision": "nearest"}],
    "nearest prototypes": [{"decision": "gaussian"}, {"decision": "auto", "priors": "uniform"}],
    "hidden prototypes": [{"decision": "nearest"}],
    "discriminant": [
        {"class_embeddings": VECTORS},
        {"priors": "uniform", "shrinkage": 1.0, "class_embeddings": VECTORS},
    ],
    "discriminant, vectors": [{"class_embeddings": None}],
    "hidden discriminant": [{"priors": "uniform"}, {"shrinkage": 0.3}],
    "descent": [{"class_weight": "balanced"}],
    "descent, vectors": [{"class_weight": {2: 0.5, 0: 3.0}}],
}


def fitted(name, **params):
    return clone(HEADS[name]).set_params(radius=0.5, random_state=0, **params).fit(X, Y)


cached = functools.cache(fitted)


def predicted(head):
    return {"labels": head.predict(NEW), "scores": head.decision_function(NEW)}


def seen(head):
    """All that a fitted head shows."""
    found = predicted(head) | head.released_parameters()
    for name in ("coef_", "intercept_", "prototypes_", "classes_", "class_counts_"):
        if hasattr(head, name):
            found[name] = getattr(head, name)
    if hasattr(head, "predict_proba"):
        found["probabilities"] = head.predict_proba(NEW)
        found["served"] = head.to_sklearn().predict_proba(NEW)
    if hasattr(head, "statistics_"):
        found["sums"] = head.statistics_.class_sums
    if hasattr(head, "transcript_"):
        found["gradients"] = head.transcript_.gradients
    return found


def faults(head):
    """What a verifier finds against a head; of these, that a seed drew the noise."""
    return [check.name for check in verified(head).checks if check.verdict == "FAIL"]


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.parametrize("name", HEADS)
def test_parameters_act_at_the_next_fit(name):
    """One by one, and all together: nothing that was released or is predicted changes."""
    head = fitted(name)
    before, release, state = seen(head), head.release_, pickle.dumps(head.released_)
    scores = predicted(head)
    changes = {key: value for key, value in OTHER.items() if key in head.get_params(deep=False)}
    if "fit_intercept" in head.get_params():
        changes |= {"fit_intercept": not head.fit_intercept, "mechanism": OutputPerturbation()}
    if "decision" in head.get_params():
        changes["decision"] = "gaussian" if head.decision == "nearest" else "nearest"
    changes["protect_labels"] = not head.protect_labels
    for key, value in changes.items():
        head.set_params(**{key: value})
        assert_same(predicted(head), scores)
        assert head.release_ is release
    assert_same(seen(head), before)
    assert pickle.dumps(head.released_) == state
    assert matches(release, head)
    assert faults(head) == faults(fitted(name))
    for again in (pickle.loads(pickle.dumps(head)), clone(fitted(name)).fit(X, Y)):
        assert_same(seen(again), before)


@pytest.mark.parametrize(
    ("name", "settings"), [(name, rule) for name, rules in RULES.items() for rule in rules]
)
def test_a_new_rule_is_that_of_a_fit_and_spends_nothing(name, settings):
    head = fitted(name)
    accountant = PrivacyAccountant(radius=0.5).attach(head).accountant
    before = seen(head)
    found = head.with_rule(**settings)
    assert found.accountant is accountant
    assert not accountant.records
    assert found.release_ is head.release_
    assert matches(found.release_, found)
    assert faults(found) == faults(head)
    # As a fit with these parameters, and the same noise, would have it.
    expected = fitted(name, **settings)
    assert_same(seen(found), seen(expected))
    for key, value in settings.items():
        assert found.get_params()[key] is value
    assert_same(seen(pickle.loads(pickle.dumps(found))), seen(expected))
    # The first head stays as it was, and comes back, be it by one setting after the other.
    assert_same(seen(head), before)
    for key in reversed(settings):
        found = found.with_rule(**{key: head.get_params()[key]})
    assert_same(seen(found), before)
    # Parameters that were set meanwhile, for the next fit, are no part of it.
    changed = head.set_params(encoder="another", epsilon=0.1).with_rule(**settings)
    assert_same(predicted(changed), predicted(expected))


def test_arrays_that_are_changed_later_change_nothing():
    priors, vectors = np.array([0.2, 0.3, 0.5]), VECTORS.copy()
    head = fitted("discriminant", priors=priors, class_embeddings=vectors)
    other = fitted("discriminant").with_rule(priors=priors, class_embeddings=vectors)
    before = seen(head)
    priors[:], vectors[:] = [0.8, 0.1, 0.1], 0.0
    for one in (head, other, pickle.loads(pickle.dumps(other))):
        assert_same(seen(one), before)


@PROPERTY
@given(
    name=st.sampled_from(["prototypes", "discriminant", "hidden discriminant"]),
    masses=st.lists(st.floats(1e-6, 1.0) | st.just(0.0), min_size=3, max_size=3).filter(any),
)
def test_scores_move_by_the_logarithm_of_the_priors(name, masses):
    """A class without any is never predicted; by default they are shares of the records."""
    head, priors = cached(name), np.array(masses) / sum(masses)
    with np.errstate(divide="ignore"):
        moved = np.log(3.0 * priors)
    plain = head.with_rule(priors="uniform")
    found = head.with_rule(priors=priors)
    np.testing.assert_allclose(
        found.decision_function(NEW), plain.decision_function(NEW) + moved, atol=1e-6
    )
    assert not set(found.predict(NEW)) & set(np.flatnonzero(priors == 0.0))
    if "hidden" not in name:
        shares = head.with_rule(priors=np.array([150, 100, 50]) / 300.0)
        np.testing.assert_allclose(
            shares.decision_function(NEW), head.decision_function(NEW), atol=1e-9
        )


@pytest.mark.parametrize(
    ("name", "settings", "match"),
    [
        ("prototypes", {"epsilon": 1.0}, "epsilon: a new rule of this head takes priors, dec"),
        ("prototypes", {"alpha": 1.0}, "everything else needs a new fit"),
        ("prototypes", {"decision": "nearest", "priors": "uniform"}, "gaussian"),
        ("hidden prototypes", {"decision": "gaussian"}, "decision='nearest'"),
        ("hidden prototypes", {"priors": "uniform"}, "gaussian"),
        ("discriminant", {"shrinkage": 2.0}, "shrinkage"),
        ("minimiser", {"class_weight": "balanced"}, "log-odds.*use mechanism='gradient'"),
        ("SVC", {"class_weight": "balanced"}, "class_weight: a new rule of this head takes no"),
        ("discriminant", {"class_embeddings": np.zeros((3, 3))}, "class_embeddings must be None"),
        ("descent, vectors", {"class_embeddings": None}, "class_embeddings"),
        ("SVC", {"priors": None}, "priors: a new rule of this head takes no settings;"),
    ],
)
def test_what_is_no_rule(name, settings, match):
    head = cached(name)
    before = seen(head)
    with pytest.raises(ValueError, match=match):
        head.with_rule(**settings)
    assert_same(seen(head), before)
    with pytest.raises(NotFittedError):
        clone(head).with_rule(priors=None)
