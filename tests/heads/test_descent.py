"""Noise on gradients: what is taken of them, its settings, and what is published."""

import numpy as np
import pytest
from head_cases import asked, rows
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import normalize

from sklearn_balldp import BallDPLogisticRegression, BallDPSquaredHingeSVC, GradientPerturbation
from sklearn_balldp.mechanisms.settings import CONSTANT
from sklearn_balldp.privacy.gaussian import mu_from_budget

HEADS = [BallDPLogisticRegression, BallDPSquaredHingeSVC]
SETTINGS = GradientPerturbation().get_params().keys()


def gradient_head(Head=HEADS[0], **params):
    """A head of eight steps; settings of the descent among the parameters are its mechanism's."""
    settings = {name: params.pop(name) for name in SETTINGS & params.keys()}
    given = {"n_steps": 8, "start": "zero", "keep_transcript": True, **settings}
    mechanism = GradientPerturbation(**given)
    return Head(**{"epsilon": 2.0, "radius": 0.6, "mechanism": mechanism, **params})


@pytest.mark.parametrize(
    ("Head", "n_classes", "alpha", "dtype"),
    [
        (HEADS[0], 3, 0.01, np.float32),
        (HEADS[0], 2, None, np.float64),
        (HEADS[1], 3, 0.01, np.float64),
    ],
)
@pytest.mark.kills(
    "mechanisms/descent.py",
    "theta = limited((theta - rate * velocity) / pull)",
    "theta = limited(theta - rate * velocity)",
)
@pytest.mark.kills("mechanisms/descent.py", "gradient = gradient - gradient.mean(axis=0)", "pass")
@pytest.mark.kills("mechanisms/descent.py", "= yield replace(query, theta=theta)", "= yield query")
def test_model_is_a_function_of_the_transcript(Head, n_classes, alpha, dtype):
    """By hand: heavy ball on released gradients, the regulariser, the last iterate."""
    head = gradient_head(Head, alpha=alpha, clip=0.2).fit(*rows(600, n_classes, dtype=dtype))
    centred = Head is BallDPLogisticRegression and n_classes > 2
    problem, bound, mu = head.release_.problem, head.release_.bound, mu_from_budget(2.0, 1e-6)
    at, velocity, close = 0.0, 0.0, 1e-9
    np.testing.assert_array_equal(head.transcript_.gradients, [g for _, g in asked(head)])
    pull = bound.learning_rate / (1.0 - bound.momentum) * head.release_.alpha
    for query, gradient in asked(head):
        np.testing.assert_allclose(query.theta, at, rtol=close, atol=close)
        assert (query.mu(problem) / mu) ** 2 == pytest.approx(1.0 / bound.n_steps, rel=1e-4)
        velocity = bound.momentum * velocity + gradient - gradient.mean(axis=0) * centred
        at = (at - bound.learning_rate * velocity) / (1.0 + pull)
    theta = at - at.mean(axis=0) * centred
    np.testing.assert_allclose(head.coef_, theta[:, :-1], rtol=close, atol=close)
    np.testing.assert_allclose(head.intercept_, theta[:, -1] * CONSTANT, rtol=close, atol=close)


@pytest.mark.parametrize("clip", [None, 0.2])
@pytest.mark.parametrize("Head", HEADS)
def test_steps_of_any_length_stay_finite(Head, clip):
    clip = 2.0 if Head is BallDPSquaredHingeSVC and clip is None else clip
    head = gradient_head(Head, clip=clip, learning_rate=1e5, n_steps=60).fit(*rows())
    assert np.isfinite(head.coef_).all()
    # By default they stay where the minimiser can be, not at the farthest norm allowed.
    for alpha in (0.1, 10.0):
        given = {"epsilon": 8.0, "radius": 0.5, "clip": clip, "n_steps": 100}
        head = gradient_head(Head, alpha=alpha, **given).fit(*rows(2000))
        assert np.linalg.norm(asked(head)[-1][0].theta) < 100.0


@pytest.mark.parametrize("Head", HEADS)
def test_a_regulariser_shrinks_the_head(Head):
    """From its start too: more of it gives shorter weights, and no labels are reversed."""
    X, y = load_breast_cancer(return_X_y=True)
    X, norms = normalize(X), []
    for alpha in (None, 1e-3, 1e-2, 0.1, 1.0):
        head = Head(8.0, delta=1e-4, radius=0.1, mechanism="gradient", alpha=alpha, random_state=0)
        norms.append(np.linalg.norm(head.fit(X, y).coef_))
        assert head.score(X, y) > 0.8
    assert (np.diff(norms) < 0).all()
    assert norms[-1] < 0.01 * norms[0]


def test_mechanisms_are_estimators():
    """What was released is what it was, whatever is asked for next; nothing of a fit stays."""
    mechanism = GradientPerturbation(n_steps=3, clip=None, start="zero")
    assert repr(clone(mechanism)) == "GradientPerturbation(clip=None, n_steps=3, start='zero')"
    assert clone(BallDPLogisticRegression(mechanism=mechanism)).mechanism is not mechanism
    head = BallDPLogisticRegression(radius=0.6, mechanism=mechanism).fit(*rows())
    assert vars(mechanism) == vars(clone(mechanism))
    mechanism.set_params(n_steps=99)
    assert head.set_params(mechanism="output").released_.mechanism.n_steps == 3
    named, same = (
        BallDPLogisticRegression(2.0, radius=0.6, mechanism=given).plan(90, 4, [45, 45]).release
        for given in ("gradient", GradientPerturbation())
    )
    assert named == same
