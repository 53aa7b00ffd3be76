"""How long a fit will take is said before it starts."""

import numpy as np
import pytest

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
)
from sklearn_balldp.heads import cost


def test_multiplications_are_those_of_the_products():
    n, d = 1000, 20
    counts = [250] * 4
    steps = GradientPerturbation(n_steps=7, start="zero")
    plan = BallDPLogisticRegression(2.0, radius=0.3, mechanism=steps).plan(n, d, counts)
    assert cost.multiplications(plan.release) == 7 * 2 * n * d * 4
    plan = BallDPRidgePrototype(2.0, radius=0.3).plan(n, d, counts)
    assert cost.multiplications(plan.release) == 2 * n * d * 4
    plan = BallDPLinearDiscriminant(2.0, radius=0.3).plan(n, d, counts)
    assert cost.multiplications(plan.release) == n * d * (2 * 4 + d)


@pytest.mark.parametrize(
    ("amount", "words"), [(0.2, "about 1 s"), (100.0, "about 100 s"), (7200.0, "about 2 hours")]
)
def test_words(amount, words):
    assert cost.in_words(amount) == words


HEADS = [BallDPLogisticRegression, BallDPSquaredHingeSVC, BallDPLinearDiscriminant]


@pytest.mark.parametrize("head", HEADS)
def test_a_long_fit_says_so_and_names_a_short_one(head, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((90, 4)), np.repeat([0, 1, 2], 30)
    fitted = head(2.0, radius=0.3, verbose=True)
    fitted.fit(X, y)
    assert "records" not in capsys.readouterr().err
    monkeypatch.setattr(cost, "_FEW", 0.0)
    fitted.fit(X, y)
    assert f"{head.__name__}: about 1 s for 90 records" in capsys.readouterr().err
    monkeypatch.setattr(cost, "LONG", 0.0)
    # It is accurate with protected labels too, which default prototypes are not.
    with pytest.warns(UserWarning, match=r"BallDPLinearDiscriminant\(share=1.0\) needs a single"):
        fitted.fit(X, y)
    # None is shorter than these.
    for short in (BallDPLinearDiscriminant(2.0, radius=0.3, share=1.0), BallDPRidgePrototype(2.0)):
        short.fit(X, y)
