"""Bars of long work: where they are shown, and what they say."""

import io
import itertools
import re
import sys

import numpy as np
import pytest
from sklearn.base import clone

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    progress,
)
from sklearn_balldp.privacy import rounding

HEADS = {
    "prototypes": BallDPRidgePrototype(),
    "discriminant": BallDPLinearDiscriminant(),
    "descent": BallDPLogisticRegression(mechanism="gradient"),
    "minimiser": BallDPSquaredHingeSVC(mechanism="output", alpha=0.1),
}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    """Bars at once, and of several ranges."""
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(rounding, "BLOCK_VALUES", 1024)


def records(seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, 1024)
    return 0.2 * rng.standard_normal((1024, 8)) + np.eye(3, 8)[y], y


@pytest.mark.parametrize("name", HEADS)
def test_bars_are_shown_on_request_and_not_in_files(name, capfd):
    X, y = records()
    head = clone(HEADS[name]).set_params(delta=1e-4, radius=0.5, random_state=0)
    quiet = head.fit(X, y).decision_function(X)
    assert capfd.readouterr().err == ""
    head.set_params(verbose=True).fit(X, y)
    shown = capfd.readouterr().err
    assert "pass" in shown
    assert ("descent" in shown) == (name == "descent")
    # Those of a later call are its own.
    np.testing.assert_array_equal(head.decision_function(X), quiet)
    assert capfd.readouterr().err == ""


def test_bars_count_ranges_and_steps(capfd):
    """Nothing else."""
    X, y = records()
    head = BallDPLogisticRegression(delta=1e-4, radius=0.5, mechanism="gradient", verbose=True)
    head.fit(X, y)
    text = capfd.readouterr().err
    found = re.findall(r"(\w+): +\d+%\|[^|]*\| \d+/(\d+) \[", text)
    assert set(found) == {("pass", "8"), ("descent", "20")}
    assert len(found) == text.count("|") / 2


def test_a_service_without_output_fits(monkeypatch):
    X, y = records()
    closed = io.StringIO()
    closed.close()
    for stream, verbose in itertools.product((None, closed), (False, True)):
        monkeypatch.setattr(sys, "stderr", stream)
        head = BallDPRidgePrototype(delta=1e-4, radius=0.5, verbose=verbose)
        assert len(head.fit(X, y).predict(X)) == len(X)
