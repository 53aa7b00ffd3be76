"""Rows, owners and heads of every kind, and what is asked of the records in a fit of them."""

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    PrivacyAccountant,
)
from sklearn_balldp.heads.weighing import fit_weights
from sklearn_balldp.mechanisms import Records, drive

HIDDEN = {"protect_labels": True, "classes": [0, 1, 2]}


def steps(start="statistics", **settings):
    """A descent of few steps whose answers are kept."""
    given = {"n_steps": 5, "clip": 0.1, "keep_transcript": True, "start": start}
    return GradientPerturbation(**{**given, **settings})


def logistic(mechanism, **params):
    return BallDPLogisticRegression(mechanism=mechanism, **params)


def svc(mechanism, **params):
    return BallDPSquaredHingeSVC(mechanism=mechanism, **params)


HEADS = {
    "prototypes": BallDPRidgePrototype(),
    "prototypes, min": BallDPRidgePrototype(counts="min"),
    "prototypes, worst": BallDPRidgePrototype(counts="worst"),
    "hidden prototypes": BallDPRidgePrototype(**HIDDEN),
    "discriminant": BallDPLinearDiscriminant(share=0.5),
    "hidden discriminant": BallDPLinearDiscriminant(share=0.5, **HIDDEN),
    "minimiser": logistic("output", alpha=0.05),
    "SVC minimiser": svc("output", alpha=0.05),
    "hidden SVC minimiser": svc("output", alpha=0.05, **HIDDEN),
    "descent": logistic(steps()),
    "descent from the mean": logistic(steps("mean")),
    "descent from zero": logistic(steps("zero")),
    "SVC from zero": svc(steps("zero", clip=0.5), fit_intercept=False),
    "hidden descent": logistic(steps(), **HIDDEN),
    "hidden SVC from the mean": svc(steps("mean"), **HIDDEN),
}
#: Those that know rows on the sphere.
SPHERE = [name for name, head in HEADS.items() if "domain" in head.get_params()]
DESCENTS = [name for name in SPHERE if hasattr(getattr(HEADS[name], "mechanism", ""), "n_steps")]


def head_of(name, **params):
    """A head of this name, with a radius."""
    return clone(HEADS[name]).set_params(**{"delta": 1e-4, "radius": 0.3, **params})


def rows(n=300, k=3, d=6, seed=0, dtype=np.float64, mean=0.0):
    """Rows of norm one around those of their class; most of each is ``mean``, if it is large."""
    rng, y = np.random.default_rng(seed), np.arange(n) % k
    X = rng.standard_normal((n, d)) + 2.0 * np.eye(k, d)[y] + mean * np.eye(d)[d - 1]
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(dtype), y


def of_any_length(X, dtype=np.float64, seed=1):
    """The same rows, some of them as long and as short as a precision holds."""
    limits = {np.float16: (-6, 4), np.float32: (-44, 38), np.float64: (-98, 138)}[dtype]
    exponents = np.random.default_rng(seed).uniform(*limits, len(X))
    with np.errstate(under="ignore"):
        return (X * 10.0 ** exponents[:, None]).astype(dtype)


def owners(y, seed=0):
    """Persons of 1 to 5 records, some of one class alone and some of several."""
    rng = np.random.default_rng(seed)
    groups, person = np.full(len(y), -1), 0
    free = list(rng.permutation(len(y)))
    while free:
        alike = [i for i in free if y[i] == y[free[0]]]
        groups[(alike if person % 2 else free)[: 1 + person % 5]] = person
        free = [i for i in free if groups[i] < 0]
        person += 1
    return groups


def records_of(head, X, y, groups=None):
    """Records with the weights that a fit gave them."""
    codes = np.searchsorted(head.classes_, y)
    counts = head.release_.problem.class_counts
    return Records(X, codes, fit_weights(len(y), counts, codes, groups).rows)


def queries_of(released, answers):
    """The queries of a conversation that was answered so, and what it returns."""
    queries, remaining = [], iter(answers)
    values = drive(
        released.conversation(), lambda query: (queries.append(query), next(remaining))[1]
    )
    assert next(remaining, None) is None
    return queries, values


def asked(head):
    """The queries of a fitted head's conversation, in order, and their noisy answers."""
    released = head.released_
    queries, values = queries_of(released, released.answers)
    np.testing.assert_allclose(values, released.values, rtol=1e-9, atol=1e-9)
    return list(zip(queries, released.answers, strict=True))


def noise_of(head, records):
    """Noise over its scale in every answer, given all records."""
    problem, noise = head.released_.problem, []
    for query, answer in asked(head):
        scale = np.broadcast_to(query.scales(problem), answer.shape)
        excess = answer - query.values(problem, records)
        assert not excess[scale == 0.0].any()
        noise.append(excess[scale > 0.0] / scale[scale > 0.0])
    return noise


def distances(head, records, others):
    """How far values of others lie from those of the records, over the noise, in all queries."""
    problem, squares = head.released_.problem, np.zeros(len(others))
    for query, answer in asked(head):
        scale = np.broadcast_to(query.scales(problem), answer.shape)
        values = query.values(problem, records)
        for i, other in enumerate(others):
            moved = query.values(problem, other) - values
            assert not moved[scale == 0.0].any()
            squares[i] += np.sum((moved[scale > 0.0] / scale[scale > 0.0]) ** 2)
    return np.sqrt(squares)


def fitted_names(head):
    """What a fit leaves on a head."""
    return [name for name in vars(head) if name.endswith("_")]


def refused(head, X, y, match, error=ValueError, **given):
    """A fit fails with this message; nothing is fitted, and nothing charged."""
    accountant = PrivacyAccountant()
    with pytest.raises(error, match=match) as caught:
        accountant.attach(head).fit(X, y, **given)
    # What was handled meanwhile has frames that hold rows.
    assert caught.value.__context__ is None
    assert not accountant.records
    assert not fitted_names(head)
