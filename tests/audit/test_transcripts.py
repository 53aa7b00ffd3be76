"""Attacks on noisy gradients: the exact posterior, audits, and mechanisms that are broken."""

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator

from sklearn_balldp import (
    BallDPLogisticRegression,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    ReconstructionAuditor,
)
from sklearn_balldp.audit.auditor import FailedGuaranteeWarning
from sklearn_balldp.audit.transcripts import (
    TranscriptTrials,
    known_gradients,
    transcript_log_posterior,
)
from sklearn_balldp.heads import ReleasedModel, descent
from sklearn_balldp.heads.initialisation import initialise
from sklearn_balldp.heads.iterates import Iterates
from sklearn_balldp.privacy import Noise
from sklearn_balldp.privacy.transcript import TranscriptBound


def data(n=300, n_classes=3, d=6, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.standard_normal((n, d)) + 2.0 * rng.standard_normal((n_classes, d))[y]
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


SETTINGS = GradientPerturbation().get_params().keys()


def head(Head=BallDPLogisticRegression, **params):
    own = {name: params.pop(name) for name in SETTINGS & params.keys()}
    mechanism = GradientPerturbation(**{"n_steps": 6, "start": "zero", **own})
    return Head(**{"epsilon": 8.0, "radius": 0.8, "mechanism": mechanism, **params})


def means_with(fitted, X, codes, row, code):
    """Mean gradients of the records, the first replaced, for a descent that starts from zero."""
    rows, labels = X.copy(), codes.copy()
    rows[0], labels[0] = row, code
    problem, bound = ReleasedModel(fitted).on(rows, labels), fitted.release_.bound
    return descent.mean_gradient(problem, initialise(np.empty(0), problem, bound))


def audited(estimator, X, y, **params):
    public, labels = data(600, len(np.unique(y)), X.shape[1], seed=0)
    noise = 0.05 * np.random.default_rng(1).standard_normal(public.shape)
    public = (public + noise) / np.linalg.norm(public + noise, axis=1, keepdims=True)
    given = {"n_candidates": 5, "random_state": 0, **params}
    return ReconstructionAuditor(estimator, **given).fit(X, y, X_public=public, y_public=labels)


@pytest.mark.parametrize(
    ("Head", "clip", "n_classes"),
    [
        (BallDPLogisticRegression, 0.2, 3),
        (BallDPLogisticRegression, None, 2),
        (BallDPSquaredHingeSVC, None, 3),
        (BallDPSquaredHingeSVC, 0.2, 2),
    ],
)
def test_posterior_of_a_kept_transcript(Head, clip, n_classes):
    """Against the likelihood written out: every candidate's dataset, every step."""
    X, y = data(n_classes=n_classes)
    fitted = head(Head, clip=clip, keep_transcript=True, fit_intercept=True).fit(X, y)
    candidates, codes = X[1:40:n_classes], y[1:40:n_classes]
    prior = np.random.default_rng(0).dirichlet(np.ones(len(codes)))
    found = transcript_log_posterior(fitted, X[1:], y[1:], candidates, codes, prior)
    transcript, expected = fitted.transcript_, np.log(prior)
    for i in range(len(codes)):
        means = means_with(fitted, X, y, candidates[i], codes[i])(transcript.iterates)
        residual = (transcript.gradients - means) / transcript.sigma[:, None, None]
        expected[i] -= 0.5 * np.sum(residual**2)
    expected -= np.logaddexp.reduce(expected)
    np.testing.assert_allclose(found, expected, atol=1e-8)


def test_posterior_needs_a_transcript_and_all_other_records():
    X, y = data()
    with pytest.raises(ValueError, match="keep_transcript"):
        transcript_log_posterior(head().fit(X, y), X[1:], y[1:], X[:3], y[:3])
    fitted = head(keep_transcript=True).fit(X, y)
    with pytest.raises(ValueError, match="all of them but one"):
        transcript_log_posterior(fitted, X, y, X[:3], y[:3])


@pytest.mark.parametrize(
    ("Head", "noise"),
    [(BallDPLogisticRegression, "simulated"), (BallDPSquaredHingeSVC, "mechanism")],
)
def test_audit(Head, noise):
    X, y = data()
    auditor = audited(head(Head), X, y, n_draws=20, noise=noise)
    assert auditor.guarantee_holds_
    stated = auditor.certificate_
    assert stated["direct"] == pytest.approx(auditor.estimator_.release_.certificate(0.2))
    assert auditor.success_interval_["clopper_pearson"][0] <= stated["direct"]
    assert np.isnan(stated[["anchor", "ball", "support"]]).all()
    # The mean maximum of an exact posterior is its own success.
    low, high = auditor.success_interval_["clopper_pearson"]
    assert low - 0.03 <= stated["bayes"] <= high + 0.03
    assert auditor.report_["last_iterate"].mean() <= auditor.success_rate_ + 0.05
    assert (auditor.supports_["distance"] <= auditor.supports_["mu"] * (1 + 1e-6)).all()
    assert (auditor.supports_["distance"] > 0.05 * auditor.supports_["mu"]).all()
    auditor.plot()
    with pytest.raises(ValueError, match="n_draws"):
        auditor.attack(10)


def test_prior_distance_and_protected_labels():
    X, y = data()
    estimator = head(protect_labels=True, classes=[0, 1, 2])
    prior = [0.5, 0.2, 0.1, 0.1, 0.1]
    auditor = audited(
        estimator, X, y, candidate_labels="any", attacker_prior=prior, eta=0.2, n_draws=10
    )
    assert auditor.guarantee_holds_
    assert auditor.baseline_ >= 0.5


def trials_of(X, y, n_candidates=4, **params):
    fitted = head(n_steps=3, **params).fit(X, y)
    problem = ReleasedModel(fitted).on(X, y)
    rows, codes = X[10 : 11 + n_candidates], problem.codes[10 : 11 + n_candidates]
    trials = TranscriptTrials(ReleasedModel(fitted), problem, 0, rows, codes)
    return fitted, problem, trials, rows, codes


def test_noiseless_models_are_those_of_whole_datasets():
    X, y = data(40)
    fitted, problem, trials, rows, codes = trials_of(X, y)
    expected = []
    for row, code in zip(rows[1:], codes[1:], strict=True):
        mean = means_with(fitted, X, problem.codes, row, code)
        iterates = Iterates(1, fitted.release_.bound, 0.0, X.dtype)
        for _ in range(3):
            iterates.advance(mean(iterates.thetas))
        expected.append(iterates.released()[0])
    np.testing.assert_allclose(trials.noiseless(), expected, atol=1e-9)


def test_trials_are_scored_by_the_likelihood_of_their_own_path(monkeypatch):
    """Every run with its own noise scales and the prior, against the likelihood written out."""
    X, y = data(40)
    fitted, problem, trials, rows, codes = trials_of(X, y, clip=None, learning_rate=8.0)
    prior = np.array([0.7, 0.2, 0.1, 0.0])
    seen = []
    original = Iterates.advance

    def recorded(self, gradients):
        seen.append((self.thetas.copy(), gradients.copy()))
        original(self, gradients)

    monkeypatch.setattr(Iterates, "advance", recorded)
    target = np.array([0, 1, 2, 0, 1])
    found = trials.run(target, prior, np.random.default_rng(0), False)["map"]
    steps = seen[-3:]  # those before are noiseless
    bound = fitted.release_.bound
    known = known_gradients(problem, initialise(np.empty(0), problem, bound), 0)
    expected = np.full((5, 4), -np.inf)
    for i in range(3):
        mean = means_with(fitted, X, problem.codes, rows[1 + i], codes[1 + i])
        for run in range(5):
            log = np.log(prior[i])
            for number, (thetas, gradients) in enumerate(steps):
                sigma = bound.step(thetas[run], number, known.rounding(thetas[run]))[1]
                residual = (gradients[run] - mean(thetas[run][None])[0]) / sigma
                log -= 0.5 * np.sum(residual**2)
            expected[run, i] = log
    expected -= np.logaddexp.reduce(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_one_step_released_whole_is_its_transcript():
    """With one step and nothing averaged the model says what the transcript does."""
    X, y = data(60, n_classes=2)
    prior = [0.4, 0.3, 0.1, 0.1, 0.1]
    auditor = audited(head(n_steps=1), X, y, n_draws=10, attacker_prior=prior, radius=1.4)
    np.testing.assert_array_equal(
        auditor.report_["last_iterate"].astype(bool), auditor.report_["success"]
    )


@pytest.mark.parametrize("left_out", [0, 1])
def test_frozen_models(left_out):
    """All records, or all but one; the model's own transcript is not needed."""
    X, y = data()
    frozen = FrozenEstimator(head(radius=1.4).fit(X, y))
    auditor = audited(frozen, X[left_out:], y[left_out:], n_draws=5)
    assert auditor.guarantee_holds_
    assert auditor.estimator_ is frozen


class QuarterNoise(Noise):
    """Adds a quarter of the noise that is asked for."""

    def __call__(self, values, sigma):
        return super().__call__(values, sigma / 4)


class RepeatedNoise(Noise):
    """Draws the noise of one step and uses it at every step."""

    def __call__(self, values, sigma):
        return values + sigma * np.random.default_rng(3).standard_normal(values.shape)


class RepeatedDeviates(Noise):
    """Hands out the same deviates again and again."""

    def _deviates(self, size):
        return np.random.default_rng(5).standard_normal(size)


class SmallGap(TranscriptBound):
    """A sensitivity a quarter of the right one."""

    mechanism = "gradient"

    def sensitivity(self, *args, **kwargs):
        return super().sensitivity(*args, **kwargs) / 4.0

    def check(self, *args):
        """The record itself would refuse it."""


@pytest.mark.parametrize("Broken", [QuarterNoise, RepeatedNoise, RepeatedDeviates])
def test_broken_samplers_are_convicted(Broken):
    X, y = data()
    Head = type(Broken.__name__, (BallDPLogisticRegression,), {"_noise": lambda self: Broken()})
    with pytest.warns(FailedGuaranteeWarning):
        auditor = audited(head(Head, epsilon=4.0), X, y, n_draws=40, noise="mechanism")
    assert not auditor.guarantee_holds_


def test_small_sensitivity_is_convicted(monkeypatch):
    X, y = data()
    monkeypatch.setattr(descent, "TranscriptBound", SmallGap)
    with pytest.warns(FailedGuaranteeWarning):
        auditor = audited(head(epsilon=2.0), X, y, n_draws=40)
    assert not auditor.guarantee_holds_


def test_published_model_holds_no_audit():
    X, y = data()
    auditor = audited(head(), X, y)
    assert not any(name.startswith("_support") for name in vars(auditor.estimator_))
    assert not hasattr(auditor.estimator_, "transcript_")
