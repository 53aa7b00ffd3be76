"""Displays: what is drawn is what was measured."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.preprocessing import normalize

from sklearn_balldp import (
    BallDPRidgePrototype,
    PrivacyUtilityDisplay,
    ReconstructionAuditor,
    ReconstructionDisplay,
)


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def auditor(epsilon, radius):
    X, y = load_digits(return_X_y=True)
    X = normalize(X)
    head = BallDPRidgePrototype(epsilon, radius=radius)
    return ReconstructionAuditor(head, radius=0.6, random_state=0).fit(X, y)


def test_reconstruction_display():
    groups = {
        "r = 0.6": [auditor(2.0, 0.6), auditor(8.0, 0.6)],
        "full radius": auditor(8.0, None),
    }
    display = ReconstructionDisplay.from_estimators(groups)
    assert display.results["name"].tolist() == ["r = 0.6", "r = 0.6", "full radius"]
    first = groups["r = 0.6"][0]
    row = display.results.iloc[0]
    assert row["success"] == first.success_rate_
    assert (row["low"], row["high"]) == first.success_interval_["clopper_pearson"]
    assert row["certificate"] == first.certificate_["direct"]
    assert display.plot() is display
    ax = display.ax_
    assert display.figure_ is ax.figure
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["2", "8"]
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert set(labels) == {"r = 0.6", "full radius", "certificate", "blind guess"}
    heights = np.concatenate([line.get_ydata() for line in ax.lines])
    for value in (*display.results["success"], 0.1):
        assert value in heights
    scatters = [points.get_offsets() for points in ax.collections]
    marks = np.concatenate([offsets[:, 1] for offsets in scatters if len(offsets)])
    for value in display.results["certificate"]:
        assert value in marks


def test_one_auditor_and_given_axes():
    audit = auditor(4.0, 0.6)
    _, ax = plt.subplots()
    display = audit.plot(ax=ax)
    assert display.ax_ is ax
    assert display.results["name"].tolist() == ["r = 0.6"]
    named = ReconstructionDisplay.from_estimator(audit, name="mine")
    assert named.results["name"].tolist() == ["mine"]
    X, y = load_digits(return_X_y=True)
    X = normalize(X)
    frozen = ReconstructionAuditor(FrozenEstimator(BallDPRidgePrototype(3.0, radius=0.6).fit(X, y)))
    assert frozen.fit(X, y, X + 1e-3, y).plot().results["epsilon"].tolist() == [3.0]
    with pytest.raises(ValueError, match="lacks the column"):
        ReconstructionDisplay(pd.DataFrame({"epsilon": [1.0]}))


RESULTS = {
    "mean_test_accuracy": np.array([0.6, 0.8, 0.5, 0.7]),
    "std_test_accuracy": np.array([0.1, 0.02, 0.1, 0.05]),
    "mean_test_certificate": np.array([-0.2, -0.6, -0.2, -0.6]),
    "param_estimator__radius": np.ma.array([0.5, 0.5, None, None], dtype=object),
}


def test_privacy_utility_display():
    display = PrivacyUtilityDisplay.from_cv_results(RESULTS, group="estimator__radius").plot()
    ax = display.ax_
    assert display.figure_ is ax.figure
    assert ax.get_ylabel() == "accuracy"
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["radius = 0.5", "radius = None"]
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [0.2, 0.6])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [0.6, 0.8])
    alone = PrivacyUtilityDisplay.from_cv_results(RESULTS).plot()
    assert alone.ax_.get_legend() is None
    with pytest.raises(ValueError, match="mean_test_recall"):
        PrivacyUtilityDisplay.from_cv_results(RESULTS, utility="recall")
    with pytest.raises(ValueError, match="param_alpha"):
        PrivacyUtilityDisplay.from_cv_results(RESULTS, group="alpha")
    with pytest.raises(ValueError, match="lacks the column"):
        PrivacyUtilityDisplay(pd.DataFrame({"utility": [1.0]}))
