"""How well heads predict: against scikit-learn without noise, and against each other."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
)

HIDDEN = {"protect_labels": True, "classes": range(10)}
LDA = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")


def prototypes(epsilon, radius):
    return BallDPRidgePrototype(epsilon, radius=radius, decision="gaussian")


def discriminant(epsilon, radius=2.0, **params):
    return BallDPLinearDiscriminant(epsilon, radius=radius, **params)


@pytest.fixture(scope="module")
def embeddings(digits):
    """Vectors of the classes, of public rows."""
    X, y = digits[1]
    return np.array([X[y == c].mean(axis=0) for c in range(10)])


def scores_of(head, digits, n_seeds):
    """Accuracies with noise from seeds, so that two heads draw the same where they can."""
    if "epsilon" not in head.get_params():
        return np.array([head.fit(*digits[0]).score(*digits[1])])
    heads = (clone(head).set_params(random_state=seed) for seed in range(n_seeds))
    return np.array([one.fit(*digits[0]).score(*digits[1]) for one in heads])


@pytest.mark.parametrize(
    ("head", "other", "more"),
    [
        # Never much worse than prototypes, and nearly noiseless at a small radius.
        (discriminant(0.25, 2.0, domain="sphere"), prototypes(0.25, 2.0), -0.005),
        (discriminant(1.0, 0.3, domain="sphere"), prototypes(1.0, 0.3), -0.005),
        (discriminant(8.0, 0.02, domain="sphere"), prototypes(8.0, 0.02), -0.005),
        (discriminant(1.0, 0.01, domain="sphere"), prototypes(1.0, 0.01), 0.02),
        (discriminant(1.0, 0.01, domain="sphere"), LDA, -0.02),
        # Near the noiseless head without tuning.
        (BallDPLogisticRegression(8.0, radius=0.3), LogisticRegression(C=10), -0.05),
        (BallDPSquaredHingeSVC(8.0, radius=0.3), LogisticRegression(C=10), -0.05),
        # A weaker promise is no less accurate.
        (BallDPLogisticRegression(0.5), BallDPLogisticRegression(0.5, **HIDDEN), 0.0),
    ],
    ids=str,
)
def test_no_head_is_less_accurate_than_another(head, other, more, digits):
    ours, theirs = (scores_of(one, digits, 5) for one in (head, other))
    error = np.sqrt(sum(np.var(found) / len(found) for found in (ours, theirs)))
    assert ours.mean() >= theirs.mean() + more - 3.0 * error
    assert error < 0.05


@pytest.mark.parametrize(
    ("head", "gain"),
    [
        (discriminant(0.25, share=1.0), 0.05),
        (BallDPLogisticRegression(0.25, radius=1.0), 0.02),
        (BallDPSquaredHingeSVC(0.25, radius=1.0), 0.02),
    ],
    ids=str,
)
def test_public_vectors_help_where_noise_is_large(head, gain, embeddings, digits):
    """And with the same noise: releases vary by more than that. A constant changes no fit."""
    informed = clone(head).set_params(class_embeddings=embeddings)
    ours, plain = (scores_of(one, digits, 6) for one in (informed, head))
    assert np.mean(ours - plain) > gain
    shifted = clone(head).set_params(class_embeddings=embeddings + 3.0)
    one, other = (h.set_params(random_state=0).fit(*digits[0]).coef_ for h in (informed, shifted))
    np.testing.assert_allclose(other, one, atol=1e-5 * np.abs(one).max())
    # Vectors that say nothing cost little.
    useless = np.random.default_rng(0).standard_normal((10, 64))
    strong = clone(head).set_params(epsilon=8.0, radius=0.2)
    misled = clone(strong).set_params(class_embeddings=useless)
    ours, plain = (scores_of(one, digits, 2) for one in (misled, strong))
    assert np.mean(ours - plain) > -0.02


@pytest.mark.parametrize(("epsilon", "least"), [(0.5, 0.5), (2.0, 0.85)])
def test_protected_prototypes_are_accurate(digits, epsilon, least):
    """Where noisy prototypes themselves found one in eight: class sums come with their counts."""
    head = BallDPRidgePrototype(epsilon, radius=0.5, **HIDDEN)
    assert scores_of(head, digits, 5).mean() > least


@pytest.mark.parametrize(("epsilon", "radius"), [(0.5, 0.05), (2.0, 0.5)])
def test_probabilities_are_calibrated(epsilon, radius, digits):
    """Another temperature gains little: half or twice the scores are no better."""
    (X, y), (Xt, yt) = digits
    losses = np.zeros(3)
    for seed in range(6):
        head = discriminant(epsilon, radius, random_state=seed).fit(X, y)
        scores = head.decision_function(Xt)
        for i, factor in enumerate((0.4, 1.0, 2.5)):
            p = np.exp(factor * scores - (factor * scores).max(axis=1, keepdims=True))
            losses[i] += log_loss(yt, p / p.sum(axis=1, keepdims=True))
    assert losses[1] < min(losses[0], losses[2])
    np.testing.assert_allclose(head.predict_proba(Xt).sum(axis=1), 1.0)
