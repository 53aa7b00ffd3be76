"""Weights of classes: a rule of prediction, which moves scores by their logarithms."""

import functools
import json

import numpy as np
import pandas as pd
import pytest
from head_cases import rows
from hypothesis import given
from hypothesis import strategies as st
from properties import PROPERTY
from sklearn.base import clone
from sklearn.utils.class_weight import compute_class_weight

from sklearn_balldp import BallDPLogisticRegression, GradientPerturbation
from sklearn_balldp.publish import load, save

X, CODES = rows(400, 3)
CODES = np.where((CODES == 2) & (np.arange(400) % 4 > 0), 0, CODES)
DAYS = np.array(["2024-01-05", "2025-02-06", "2026-03-07", "2027-04-08"], dtype="datetime64[ns]")
#: Labels, and the ways to write them as keys.
NAMES = {
    "numbers": (np.arange(4), (int, float)),
    "texts": (np.array(["a", "b", "c", "d"]), (str,)),
    "days": (DAYS, (np.datetime64, pd.Timestamp, lambda day: pd.Timestamp(day).date())),
}
FEW = GradientPerturbation(n_steps=3)


def head_of(**given):
    return BallDPLogisticRegression(**{"epsilon": 8.0, "delta": 1e-4, "mechanism": FEW, **given})


@functools.cache
def plain_and_scores(kind, k, hidden=False):
    """Of two, three or four classes; the fourth has no record."""
    names = NAMES[kind][0][:k]
    options = {"classes": names, "protect_labels": hidden, "random_state": 0}
    head = head_of(**options).fit(X, names[np.minimum(CODES, k - 1)])
    return head, contrasts(head)


def contrasts(head):
    """Scores of the classes less those of the one before."""
    scores = head.decision_function(X)
    return scores[:, None] if scores.ndim == 1 else np.diff(scores, axis=1)


@pytest.mark.kills("heads/logistic.py", "moved = np.log(", "moved = -np.log(")
@pytest.mark.kills("heads/logistic.py", "moved[1:] - moved[:1]", "moved[:1] - moved[1:]")
@pytest.mark.kills("heads/weighing.py", "/ sizes[present]", "/ np.sqrt(sizes[present])")
@PROPERTY
@given(
    kind=st.sampled_from(list(NAMES)),
    k=st.integers(2, 4),
    given=st.dictionaries(st.integers(0, 3), st.floats(1e-3, 1e3)) | st.none(),
    way=st.integers(0, 2),
    hidden=st.booleans(),
)
def test_scores_move_by_the_logarithm_of_the_weights(kind, k, given, way, hidden):
    """As scikit-learn weighs classes; what is released is the same to the last bit, at no cost."""
    plain, scores = plain_and_scores(kind, k, hidden and given is not None)
    (names, ways), weights = NAMES[kind], np.ones(k)
    if given is None:
        codes, n = np.minimum(CODES, k - 1), min(k, 3)
        weights[:n] = compute_class_weight("balanced", classes=np.arange(n), y=codes)
        class_weight = "balanced"
    else:
        some = {code: weight for code, weight in given.items() if code < k}
        weights[list(some)] = list(some.values())
        class_weight = {ways[way % len(ways)](names[code]): own for code, own in some.items()}
    fitted = clone(plain).set_params(class_weight=class_weight)
    fitted.fit(X, names[np.minimum(CODES, k - 1)])
    for head in (fitted, plain.with_rule(class_weight=class_weight)):
        assert head.release_.digest == plain.release_.digest
        assert head.release_.mu == plain.release_.mu
        expected = np.tile(np.diff(np.log(weights)), (len(X), 1))
        np.testing.assert_allclose(contrasts(head) - scores, expected, atol=1e-6)


@pytest.mark.parametrize("names", [np.array(["a", "b", "c"]), DAYS[:3]])
@pytest.mark.parametrize("balanced", [False, True])
def test_a_published_model_weighs_alike(names, balanced, tmp_path):
    given = "balanced" if balanced else {names[2]: 4.0}
    head = head_of(class_weight=given).fit(X, names[CODES])
    again = load(save(head, tmp_path / "model"))
    np.testing.assert_array_equal(again.predict(X), head.predict(X))
    np.testing.assert_allclose(again.decision_function(X), head.decision_function(X))
    config = json.loads((tmp_path / "model/config.json").read_text())
    assert config["settings"] == {"class_weight": "balanced" if balanced else [1.0, 1.0, 4.0]}
    for wrong in ([1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 1.0, "4"], "uniform", 2.0):
        config["settings"]["class_weight"] = wrong
        (tmp_path / "model/config.json").write_text(json.dumps(config, indent=2))
        with pytest.raises(ValueError, match=r"model="):
            load(tmp_path / "model")
