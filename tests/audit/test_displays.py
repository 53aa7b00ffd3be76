"""Displays: what is drawn is what was measured."""

import functools

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from sklearn_balldp import (
    BallDPRidgePrototype,
    PrivacyUtilityDisplay,
    ReconstructionAuditor,
    ReconstructionDisplay,
)
from sklearn_balldp.audit.displays import COLUMNS


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def auditor(digits):
    @functools.cache
    def of(epsilon, radius):
        head = BallDPRidgePrototype(epsilon, radius=radius)
        return ReconstructionAuditor(head, radius=0.6, random_state=0).fit(*digits)

    return of


def test_reconstruction_display(auditor):
    groups = {"r = 0.6": [auditor(2.0, 0.6), auditor(8.0, 0.6)], "full radius": auditor(8.0, None)}
    display = ReconstructionDisplay.from_estimators(groups)
    first, row = groups["r = 0.6"][0], display.results.iloc[0]
    assert display.results["name"].tolist() == ["r = 0.6", "r = 0.6", "full radius"]
    assert row["success"] == first.success_rate_
    assert (row["low"], row["high"]) == first.success_interval_["clopper_pearson"]
    assert row["certificate"] == first.certificate_["direct"]
    ax = display.plot().ax_
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["2", "8"]
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert set(labels) == {"r = 0.6", "full radius", "direct certificate", "blind guess"}
    heights = np.concatenate([line.get_ydata() for line in ax.lines])
    for value in (*display.results["success"], 0.1):
        assert value in heights
    marks = [path[:, 1] for lines in ax.collections for path in lines.get_segments()]
    for value in display.results["certificate"]:
        assert value in np.concatenate(marks)


def test_nothing_to_draw():
    with pytest.raises(ValueError, match="auditors holds no fitted auditor"):
        ReconstructionDisplay.from_estimators({})
    names = ["certificate", "deviation", "group", "utility"]
    for kind, columns in ((ReconstructionDisplay, COLUMNS), (PrivacyUtilityDisplay, names)):
        with pytest.raises(ValueError, match="holds no row"):
            kind(pd.DataFrame(columns=list(columns)))
        with pytest.raises(ValueError, match="lacks the column"):
            kind(pd.DataFrame({"epsilon": [1.0]}))
    for results, options, match in (
        ({"mean_test_recall": [1.0]}, {"utility": "recall"}, r"lacks mean_test_certificate.*'acc"),
        (pd.DataFrame(), {}, "cv_results must be a dict"),
        (RESULTS, {"utility": "recall"}, "mean_test_recall"),
        (RESULTS, {"group": "alpha"}, "param_alpha"),
    ):
        with pytest.raises(ValueError, match=match):
            PrivacyUtilityDisplay.from_cv_results(results, **options)


def test_one_auditor_and_given_axes(auditor):
    audit = auditor(2.0, 0.6)
    _, ax = plt.subplots()
    display = audit.plot(ax=ax)
    assert display.ax_ is ax
    assert display.results["name"].tolist() == ["r = 0.6"]
    wider = ReconstructionDisplay.from_estimators(auditor(8.0, 0.9)).results["name"].tolist()
    assert wider == ["r = 0.6 (released for 0.9)"]
    assert len(ReconstructionDisplay.from_estimators({"a": (a for a in [audit])}).results) == 1
    with pytest.raises(NotFittedError):
        ReconstructionAuditor(BallDPRidgePrototype()).plot()
    with pytest.raises(ValueError, match="expected a fitted ReconstructionAuditor"):
        ReconstructionDisplay.from_estimator(audit.estimator_)
    named = ReconstructionDisplay.from_estimator(audit, name="mine")
    assert named.results["name"].tolist() == ["mine"]


def test_many_policies_keep_apart():
    """Points stay in their epsilon's slot, and the legend leaves the axes."""
    common = {"success": 0.2, "low": 0.1, "high": 0.3, "certificate": 0.5}
    rows = [
        {"name": f"policy {i}", "epsilon": epsilon, "baseline": 0.1 + 0.01 * i, **common}
        for i in range(12)
        for epsilon in (1.0, 2.0, 4.0)
    ]
    display = ReconstructionDisplay(pd.DataFrame(rows)).plot()
    points = [line for line in display.ax_.lines if line.get_marker() == "o"]
    for line in points:
        assert (np.abs(line.get_xdata() - np.arange(3)) < 0.5).all()
    legend = display.ax_.get_legend()
    assert legend.get_bbox_to_anchor()._bbox.x0 == 1.0
    assert [text.get_text() for text in legend.get_texts()].count("blind guess") == 1


RESULTS = {
    "mean_test_accuracy": np.array([0.6, 0.8, 0.5, 0.7]),
    "std_test_accuracy": np.array([0.1, 0.02, 0.1, 0.05]),
    "mean_test_certificate": np.array([-0.2, -0.6, -0.2, -0.6]),
    "param_estimator__radius": np.ma.array([0.5, 0.5, None, None], dtype=object),
}


def test_privacy_utility_display():
    display = PrivacyUtilityDisplay.from_cv_results(RESULTS, group="estimator__radius").plot()
    ax = display.ax_
    assert ax.get_ylabel() == "accuracy"
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["radius = 0.5", "full radius"]
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [0.2, 0.6])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [0.6, 0.8])
    alone = PrivacyUtilityDisplay.from_cv_results(RESULTS).plot()
    assert alone.ax_.get_legend() is None
    assert alone.ax_.lines[0].get_linestyle() == "None"
    assert alone.ax_.get_xlabel() == "reconstruction certificate"
    failed = {**RESULTS, "mean_test_certificate": [-0.2, np.nan, -0.3, -0.4]}
    measured = PrivacyUtilityDisplay.from_cv_results(failed)
    assert len(measured.results) == 3
