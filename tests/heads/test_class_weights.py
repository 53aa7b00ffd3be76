"""Weights of classes: a rule of prediction, which moves scores by their logarithms."""

import datetime
import json

import numpy as np
import pandas as pd
import pytest
from head_cases import rows
from sklearn.metrics import balanced_accuracy_score
from sklearn.utils.class_weight import compute_class_weight

from sklearn_balldp import (
    BallDPLogisticRegression,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    OutputPerturbation,
    PrivacyAccountant,
)
from sklearn_balldp.publish import load, save

X, CODES = rows(400, 3)
CODES = np.where((CODES == 2) & (np.arange(400) % 4 > 0), 0, CODES)
DAYS = np.array(["2024-01-05", "2025-02-06", "2026-03-07"], dtype="datetime64[ns]")
FEW = GradientPerturbation(n_steps=3)


def head_of(**given):
    return BallDPLogisticRegression(**{"epsilon": 8.0, "delta": 1e-4, "mechanism": FEW, **given})


@pytest.mark.kills("heads/logistic.py", "moved = np.log(", "moved = -np.log(")
@pytest.mark.kills("heads/logistic.py", "moved[1:] - moved[:1]", "moved[:1] - moved[1:]")
@pytest.mark.kills("heads/weighing.py", "/ sizes[present]", "/ np.sqrt(sizes[present])")
@pytest.mark.parametrize("names", [np.arange(3), np.array(["a", "b", "c"]), DAYS])
@pytest.mark.parametrize("k", [2, 3])
def test_scores_move_by_the_logarithm_of_the_weights(names, k):
    """As scikit-learn weighs classes; what is released is the same to the last bit, at no cost."""
    codes = np.minimum(CODES, k - 1)
    plain = head_of(random_state=0).fit(X, names[codes])
    scores = np.column_stack([np.zeros(400), plain.decision_function(X)])[:, -k:]
    balanced = compute_class_weight("balanced", classes=np.arange(k), y=codes)
    some = {names[k - 1]: 3.0, names[0]: 0.5}
    for given, weights in (("balanced", balanced), (some, [0.5, 1.0, 3.0][:: 4 - k])):
        fitted = head_of(random_state=0, class_weight=given).fit(X, names[codes])
        for head in (fitted, plain.with_rule(class_weight=given)):
            assert head.release_.digest == plain.release_.digest
            assert head.release_.mu == plain.release_.mu
            found = head.decision_function(X)
            found = found if k > 2 else np.column_stack([np.zeros(400), found])
            moved = found - scores
            expected = np.tile(np.diff(np.log(weights)), (400, 1))
            np.testing.assert_allclose(np.diff(moved, axis=1), expected, atol=1e-6)
    assert plain.with_rule(class_weight=None).decision_function(X) == pytest.approx(
        plain.decision_function(X)
    )


def test_a_class_without_records_has_weight_one():
    head = head_of(classes=[0, 1, 2, 7], random_state=0).fit(X, CODES)
    moved = head.with_rule(class_weight="balanced").decision_function(X) - head.decision_function(X)
    assert np.isfinite(moved).all()
    counts = np.bincount(CODES)
    np.testing.assert_allclose(
        moved - moved[:, 3:], np.tile([*np.log(400 / 3 / counts), 0.0], (400, 1)), atol=1e-6
    )


@pytest.mark.kills("heads/logistic.py", "self._mechanism().needs_alpha", "False")
@pytest.mark.kills("heads/logistic.py", "float(self.alpha) > 0.0", "float(self.alpha) > 9.0")
@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"mechanism": "output"}, "log-odds.*use mechanism='gradient'"),
        ({"mechanism": OutputPerturbation(), "alpha": 0.1}, "use mechanism='gradient'"),
        ({"alpha": 0.1}, "alpha=0.1 shrinks them: use alpha=None"),
        ({"protect_labels": True, "classes": [0, 1, 2]}, "private; .* a mapping from labels"),
    ],
)
def test_what_it_is_wrong_for_is_refused_before_anything_is_charged(given, match):
    accountant = PrivacyAccountant()
    head = head_of(**given, class_weight="balanced", accountant=accountant)
    with pytest.raises(ValueError, match=match):
        head.fit(X, CODES)
    with pytest.raises(ValueError, match=match):
        head.set_params(class_weight=None).fit(X, CODES).with_rule(class_weight="balanced")
    assert len(accountant.records) == 1
    assert "class_weight" not in BallDPSquaredHingeSVC().get_params()


def test_hidden_labels_take_weights_that_need_no_counts():
    hidden = {"protect_labels": True, "classes": [0, 1, 2], "random_state": 0}
    head, plain = (head_of(class_weight=w, **hidden).fit(X, CODES) for w in ({1: 5.0}, None))
    moved = head.decision_function(X) - plain.decision_function(X)
    np.testing.assert_allclose(moved, np.tile([0.0, np.log(5.0), 0.0], (400, 1)), atol=1e-6)


@pytest.mark.parametrize(
    "key", [DAYS[2], DAYS[2].astype("datetime64[D]"), datetime.date(2026, 3, 7), None]
)
def test_days_are_keys(key):
    key = pd.Timestamp("2026-03-07") if key is None else key
    head = head_of(class_weight={key: 4.0}, random_state=0).fit(X, DAYS[CODES])
    other = head_of(class_weight={2: 4.0}, random_state=0).fit(X, CODES)
    np.testing.assert_allclose(head.decision_function(X), other.decision_function(X))


@pytest.mark.parametrize("names", [np.arange(3), np.array(["a", "b", "c"]), DAYS])
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


def test_rare_records_are_found():
    """5 % are rare: as with weights in the loss, whose noise would be ten times as large."""
    rng = np.random.default_rng(0)
    y = (np.arange(4000) < 200).astype(int)
    records = rng.standard_normal((4000, 5)) * 0.35
    records[:, 0] += np.where(y == 1, 0.4, -0.4)
    head = BallDPLogisticRegression(8.0, 1e-5, radius=0.5, norm_bound=1.5).fit(records, y)
    found = balanced_accuracy_score(y, head.with_rule(class_weight="balanced").predict(records))
    assert found > max(0.84, balanced_accuracy_score(y, head.predict(records)) + 0.05)
