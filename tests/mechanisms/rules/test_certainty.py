"""The factor of a descent's scores: its formula, its limits, and what it leaves as it was."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from sklearn_balldp import BallDPLogisticRegression, GradientPerturbation
from sklearn_balldp.losses import clip_residuals
from sklearn_balldp.mechanisms.rules import certainty
from sklearn_balldp.mechanisms.rules.certainty import factor, last_of
from sklearn_balldp.publish.model import Published
from sklearn_balldp.publish.saving import write_files


def log_loss(scores, codes, by=1.0):
    return -log_softmax(by * scores, axis=1)[np.arange(len(codes)), codes].mean()


def records(n_classes, by, n=60_000):
    """Scores, and labels whose log-odds are these times a factor."""
    rng = np.random.default_rng(n_classes)
    scores = 2.5 * rng.standard_normal((n, n_classes))
    if n_classes == 2:
        scores[:, 0] = 0.0
    chance = softmax(by * scores, axis=1).cumsum(axis=1)
    return scores, (rng.random((n, 1)) > chance[:, :-1]).sum(axis=1)


def product(scores, codes, clip):
    """Mean product of scores with clipped residuals, by the residuals of the mechanism."""
    residuals = softmax(scores, axis=1)
    residuals[np.arange(len(codes)), codes] -= 1.0
    if scores.shape[1] == 2:
        residuals, scores = residuals[:, 1:], scores[:, 1:]
    if clip is not None:
        residuals = clip_residuals(residuals.copy(), clip)
    return np.vecdot(residuals, scores).mean()


@pytest.mark.parametrize("n_classes", [2, 7])
@pytest.mark.parametrize("clip", [0.2, None])
@pytest.mark.parametrize("by", [0.25, 0.8])
def test_without_noise_it_is_the_factor_of_least_log_loss(n_classes, clip, by):
    scores, codes = records(n_classes, by)
    best = minimize_scalar(lambda a: log_loss(scores, codes, a), bounds=(0.05, 1.0)).x
    columns = scores[:, 1:] if n_classes == 2 else scores
    found = factor(columns, clip, product(scores, codes, clip), 0.0)
    assert found == pytest.approx(best, rel=0.05)
    told = columns[:4000], clip, product(scores, codes, clip), 1e-6
    assert factor(*told, pooled=True) == pytest.approx(best, rel=0.08)
    assert log_loss(scores, codes, found) < log_loss(scores, codes, best) + 5e-4


def test_noise_pulls_it_towards_a_public_number_and_it_stays_within_its_limits():
    scores, codes = records(2, 0.3)
    told = product(scores, codes, 0.2)
    found = [factor(scores[:, 1:], 0.2, told, noise) for noise in (0.0, 0.1, 1e6)]
    assert found[0] < found[1] < found[2] == pytest.approx(certainty.CERTAINTY, rel=1e-3)
    assert factor(scores[:, 1:], 0.2, -1e3, 0.0) == 1.0
    assert factor(scores[:, 1:], 0.2, 1e3, 0.0) == certainty._LEAST


@pytest.mark.kills(
    "mechanisms/rules/certainty.py",
    "for of in (by_label, scores)",
    "for of in (by_label, by_label)",
)
@pytest.mark.kills("mechanisms/rules/certainty.py", "chances @ gains", "gains[chances.argmax()]")
@pytest.mark.kills("mechanisms/rules/certainty.py", "-0.5 * (misfit**2", "-0.5 * (0.0 * misfit**2")
@pytest.mark.parametrize(("told", "noise"), [(0.1, 0.05), (0.0, 0.05), (-0.1, 0.4)])
def test_after_a_mean_alone_it_is_the_factor_of_least_expected_log_loss(told, noise):
    scores = 2.5 * np.random.default_rng(0).standard_normal((1_000, 1))
    both = np.hstack([np.zeros_like(scores), scores])
    residuals = softmax(both, axis=1)[:, 1] - np.array([[0.0], [1.0]])
    by_label = (
        clip_residuals(residuals.reshape(-1, 1).copy(), 0.2).reshape(2, -1) * scores[:, 0]
    ).T
    logs = np.linspace(np.log(1 / 64), np.log(4.0), 150)
    laws = np.array([softmax(np.exp(log) * both, axis=1) for log in logs])
    misfit = (told - np.vecdot(laws, by_label).mean(axis=1)) / noise
    chances = softmax(-0.5 * misfit**2 - 0.5 * (logs - np.log(certainty.CERTAINTY)) ** 2)
    law = np.tensordot(chances, laws, axes=1)

    def expected(a):
        return -np.vecdot(law, log_softmax(a * both, axis=1)).mean()

    best = minimize_scalar(expected, bounds=(1 / 64, 1.0), method="bounded").x
    assert factor(scores, 0.2, told, noise, pooled=True) == pytest.approx(best, rel=0.02)


def test_the_last_steps_tell_it():
    assert [last_of(n) for n in (1, 3, 20, 60)] == [1, 3, 5, 15]


@pytest.fixture(scope="module")
def overlapping():
    """Rows on the sphere whose labels follow from them by chance."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6_000, 8))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    chance = 1.0 / (1.0 + np.exp(-4.0 * X[:, 0]))
    return X, (rng.random(len(X)) < chance).astype(int), chance


@pytest.mark.parametrize("options", [{}, {"protect_labels": True, "classes": [0, 1]}])
@pytest.mark.parametrize("start", ["auto", "mean"])
def test_probabilities_of_overlapping_classes_are_those_of_the_labels(
    overlapping, options, start, monkeypatch, tmp_path
):
    X, y, chance = overlapping
    head = BallDPLogisticRegression(
        4.0, radius=0.3, domain="sphere", mechanism=GradientPerturbation(start=start), **options
    )
    head.set_params(random_state=0, delta=1e-6)
    fitted = head.fit(X, y)
    monkeypatch.setattr("sklearn_balldp.mechanisms.descent.factor_of", lambda *_: 1.0)
    before = BallDPLogisticRegression(**head.get_params(deep=False)).fit(X, y)
    own, raw = fitted.decision_function(X), before.decision_function(X)
    np.testing.assert_allclose(own / raw, np.median(own / raw), rtol=1e-6)
    np.testing.assert_array_equal(fitted.predict(X), before.predict(X))
    errors = [np.abs(h.predict_proba(X)[:, 1] - chance).mean() for h in (fitted, before)]
    assert errors[0] < 0.06
    assert 1.5 * errors[0] < errors[1]
    # A model of plain scikit-learn, and one that was saved, mean the same.
    write_files(Published.of(fitted), tmp_path)
    for other in (fitted.to_sklearn(), Published.read(tmp_path).head()):
        np.testing.assert_allclose(other.predict_proba(X), fitted.predict_proba(X), atol=1e-6)
