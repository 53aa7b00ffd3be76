"""What a fitted head holds: nothing of the rows and private labels but what noise was added to."""

import dataclasses
import pickle

import numpy as np
import pytest
from head_cases import DESCENTS, HEADS, head_of, steps
from sklearn.base import clone

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.privacy import Noise

COUNTS = [31, 17, 12]
#: A descent of one step, whose sensitivity is that at zero.
ONE_STEP = {"mechanism": steps("zero", n_steps=1, keep_transcript=False)}


def records():
    return np.random.default_rng(4).uniform(0.05, 0.4, (60, 5)), np.repeat([0, 1, 2], COUNTS)


def leaves(value, seen):
    """Every number and array that hangs on ``value``."""
    if id(value) in seen:
        return
    seen[id(value)] = value
    if isinstance(value, dict):
        yield from leaves([*value.keys(), *value.values()], seen)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from leaves(item, seen)
    elif isinstance(value, np.ndarray) or np.isscalar(value):
        if np.issubdtype(np.asarray(value).dtype, np.number):
            yield np.ravel(value).astype(float)
    elif hasattr(value, "__dict__"):
        yield from leaves(vars(value), seen)


@pytest.mark.parametrize(
    ("name", "kept"), [*((name, True) for name in HEADS), *((name, False) for name in DESCENTS)]
)
@pytest.mark.kills("heads/fitting.py", "return not bound.has_transcript or", "return True or")
def test_nothing_noiseless_on_the_object(name, kept, monkeypatch):
    """Neither rows, nor sums, counts, minimisers and gradients, nor what else they tell."""
    X, y = records()
    given, real = [], Noise.__call__

    def call(self, values, sigma):
        given.append(np.array(values, dtype=float)[np.broadcast_to(sigma, values.shape) > 0])
        return real(self, values, sigma)

    monkeypatch.setattr(Noise, "__call__", call)
    head = head_of(name, epsilon=0.3)
    if name in DESCENTS:
        head.set_params(mechanism__keep_transcript=kept, mechanism__learning_rate=0.1)
    head.fit(X, y)
    monkeypatch.undo()
    assert given
    head.decision_function(X)
    assert hasattr(head, "transcript_") == (name in DESCENTS and kept)
    sums, distances = np.array([X[y == c].sum(0) for c in range(3)]), X[:, None] - X
    distances = np.linalg.norm(distances, axis=2)
    secrets = [*given, X, sums, sums / np.array(COUNTS)[:, None], X.sum(0), X.T @ X, np.cov(X.T)]
    secrets += [np.linalg.norm(X, axis=1), np.linalg.eigvalsh(X.T @ X)]
    secrets += [np.quantile(distances[distances > 0], [0.5, 0.8, 0.95])]
    secrets = np.concatenate([np.ravel(secret) for secret in secrets])
    secrets = secrets[secrets != 0.0]
    found = np.concatenate(list(leaves(vars(head), {})))
    assert len(found) > 20
    for number in [*secrets, *COUNTS] if "hidden" in name else secrets:
        assert not np.any(np.abs(found - number) < 1e-12 * abs(number))
    state = pickle.dumps(head)
    text = repr(head) + head._repr_html_() + repr(head.release_) + str(head.release_.to_dict())
    text += repr(getattr(head, "statistics_", ""))
    for number in secrets:
        assert np.float64(number).tobytes() not in state
        # Numbers of a few digits occur in other ones.
        assert len(repr(float(number))) < 10 or repr(float(number)) not in text


def test_the_leak_test_can_fail():
    X, y = records()
    head = BallDPRidgePrototype().fit(X, y)
    head.sums_ = {"a": [X.sum(0)]}
    assert np.isin(X.sum(0), np.concatenate(list(leaves(vars(head), {})))).all()


@pytest.mark.parametrize("metric", ["euclidean", "chebyshev"])
@pytest.mark.parametrize("name", HEADS)
def test_only_the_released_parameters_depend_on_the_rows(name, metric):
    X, y = records()
    head, states = head_of(name, metric=metric), []
    if name in DESCENTS:
        head.set_params(**ONE_STEP)
    for rows in (X, X[::-1] * np.where(np.arange(60) % 3, 1.0, 9.0)[:, None]):
        head = clone(head).fit(rows, y)
        head.predict(rows)
        released = dataclasses.replace(
            head.released_,
            release=dataclasses.replace(head.release_, digest=""),
            values=np.zeros(head.released_.values.shape),
            answers=tuple(np.zeros(answer.shape) for answer in head.released_.answers),
        )
        states.append(pickle.dumps({**vars(head), "released_": released}))
    assert states[0] == states[1]


@pytest.mark.parametrize("name", [name for name in HEADS if "hidden" in name])
def test_protected_labels_say_nothing_about_counts(name, recwarn):
    """Rare, absent and single classes fit in silence, with the same record."""
    X, head, records_ = records()[0], head_of(name), []
    if "discriminant" in name:
        head.set_params(share="auto")
    for y in (np.zeros(60, int), np.arange(60) % 3, np.r_[1, np.zeros(59, int)]):
        head.fit(X, y)
        assert not hasattr(head, "class_counts_")
        assert np.isfinite(head.decision_function(X)).all()
        records_.append(dataclasses.replace(head.release_, digest=""))
    assert records_[0] == records_[1] == records_[2]
    assert not recwarn.list
