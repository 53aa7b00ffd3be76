"""Noise on gradients: contract, calibration of every step, what is published and what is not."""

import json
import math

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import normalize

from sklearn_balldp import (
    BallDPLogisticRegression,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    OutputPerturbation,
)
from sklearn_balldp.heads import ReleasedModel
from sklearn_balldp.heads.descent import mean_gradient
from sklearn_balldp.heads.initialisation import initialise
from sklearn_balldp.heads.iterates import Iterates
from sklearn_balldp.heads.settings import CONSTANT
from sklearn_balldp.privacy.gaussian import epsilon_from_mu, mu_from_budget
from sklearn_balldp.privacy.noise import grid_slack
from sklearn_balldp.privacy.release import Release

HEADS = [BallDPLogisticRegression, BallDPSquaredHingeSVC]


def data(n=600, n_classes=3, d=5, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.standard_normal((n, d)) + 1.5 * rng.standard_normal((n_classes, d))[y]
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(dtype), y


SETTINGS = GradientPerturbation().get_params().keys()


def gradient_head(Head, **params):
    """A head of eight steps; settings of the descent among the parameters are its mechanism's."""
    own = {name: params.pop(name) for name in SETTINGS & params.keys()}
    given = {"mechanism": GradientPerturbation(**{"n_steps": 8, "start": "zero", **own})}
    return Head(**{"epsilon": 2.0, "radius": 0.6, **given, **params})


@pytest.mark.parametrize("n_classes", [2, 4])
def test_minimiser_without_noise(noise_free, n_classes):
    """A long unclipped descent ends at scikit-learn's minimiser of the same objective."""
    X, y = data(400, n_classes)
    own = {"n_steps": 150, "clip": None, "learning_rate": 1.0}
    head = gradient_head(BallDPLogisticRegression, alpha=0.05, **own).fit(X, y)
    augmented = np.hstack([X, np.full((len(X), 1), CONSTANT)])
    reference = LogisticRegression(
        C=1 / (0.05 * len(X)), fit_intercept=False, tol=1e-10, max_iter=2000
    ).fit(augmented, y)
    expected = reference.coef_ - reference.coef_.mean(axis=0) * (n_classes > 2)
    np.testing.assert_allclose(head.coef_, expected[:, :-1], atol=2e-5)
    np.testing.assert_allclose(head.intercept_, expected[:, -1] * CONSTANT, atol=2e-5)


def gradients_of(problem, bound):
    """Mean gradients of the records, for a descent that starts from zero."""
    return mean_gradient(problem, initialise(np.empty(0), problem, bound))


@pytest.mark.parametrize(
    ("Head", "n_classes", "alpha"), [(HEADS[0], 3, 0.01), (HEADS[0], 2, None), (HEADS[1], 3, 0.01)]
)
def test_model_is_a_function_of_the_transcript(Head, n_classes, alpha):
    """By hand: heavy ball on released gradients, the regulariser, mean of the last iterates."""
    X, y = data(n_classes=n_classes)
    head = gradient_head(Head, alpha=alpha, keep_transcript=True, clip=0.2).fit(X, y)
    centred = Head is BallDPLogisticRegression and n_classes > 2
    descent, released = head.release_.bound.descent, head.transcript_
    at, velocity, kept = 0.0, 0.0, []
    pull = descent.learning_rate / (1.0 - descent.momentum) * head.release_.alpha
    for theta, gradient in zip(released.iterates, released.gradients, strict=True):
        np.testing.assert_allclose(theta, at, rtol=1e-9, atol=1e-9)
        velocity = descent.momentum * velocity + gradient - gradient.mean(axis=0) * centred
        at = (at - descent.learning_rate * velocity) / (1.0 + pull)
        kept.append(at)
    theta = np.mean(kept[-descent.averaged :], axis=0)
    theta -= theta.mean(axis=0) * centred
    np.testing.assert_allclose(head.coef_, theta[:, :-1], atol=1e-9)
    np.testing.assert_allclose(head.intercept_, theta[:, -1] * CONSTANT, atol=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_gains_are_what_a_step_adds_to_the_model(alpha):
    """One more in the gradient of one step, by finite differences of whole descents."""
    X, y = data()
    head = gradient_head(BallDPSquaredHingeSVC).fit(X, y)
    bound = head.release_.bound
    gradients = np.random.default_rng(0).standard_normal((bound.descent.n_steps, *bound.shape))

    def released(gradients):
        iterates = Iterates(1, bound, alpha)
        for gradient in gradients:
            iterates.advance(gradient[None])
        return iterates.released()[0]

    gains = Iterates(1, bound, alpha).gains()
    for step, gain in enumerate(gains):
        more = gradients.copy()
        more[step] += 1.0
        np.testing.assert_allclose(released(gradients) - released(more), gain, rtol=1e-6)


@pytest.mark.parametrize(
    ("Head", "protect_labels", "clip", "dtype"),
    [
        (BallDPLogisticRegression, False, 0.2, np.float64),
        (BallDPLogisticRegression, True, None, np.float32),
        (BallDPSquaredHingeSVC, False, None, np.float64),
        (BallDPSquaredHingeSVC, True, 0.2, np.float32),
    ],
)
def test_noise_is_calibrated_at_every_iterate(Head, protect_labels, clip, dtype):
    """Scale, law and independence of the noise, from the transcript and the exact gradients."""
    X, y = data(d=11, dtype=dtype)
    own = {"keep_transcript": True, "clip": clip, "learning_rate": 0.5}
    head = gradient_head(Head, protect_labels=protect_labels, classes=[0, 1, 2], **own)
    mu, noises = mu_from_budget(2.0, 1e-6), []
    for _ in range(20):
        transcript, release = head.fit(X, y).transcript_, head.release_
        mean = gradients_of(ReleasedModel(head).on(X, y), release.bound)
        exact = np.array([mean(theta[None])[0] for theta in transcript.iterates])
        noises.append((transcript.gradients - exact) / transcript.sigma[:, None, None])
        assert mu * (1 - 1e-6) <= math.hypot(*np.divide(release.sensitivity, release.sigma)) <= mu
        # The stated sensitivity is that of the iterate, rounding included.
        again = [release.bound.sensitivity(t, 0.6, mean.rounding(t)) for t in transcript.iterates]
        np.testing.assert_allclose(again, release.sensitivity)
        np.testing.assert_array_equal(transcript.sigma, release.sigma)
    noises = np.array(noises)
    assert stats.kstest(noises.ravel(), "norm").pvalue > 1e-9
    energy, tail = np.sum(noises**2), stats.chi2(noises.size)
    assert min(tail.cdf(energy), tail.sf(energy)) > 1e-10
    lagged = np.mean(noises[:, 1:] * noises[:, :-1])
    assert abs(lagged) < 6.5 / math.sqrt(noises[:, 1:].size)


def test_seeded_steps_draw_noise_of_their_own():
    """One seed serves the whole descent: its noise must not repeat from step to step."""
    X, y = data()
    seeded = gradient_head(
        BallDPLogisticRegression, keep_transcript=True, random_state=3, learning_rate=1e-9
    )
    head, again = clone(seeded).fit(X, y), clone(seeded).fit(X, y)
    mean = gradients_of(ReleasedModel(head).on(X, y), head.release_.bound)
    sigma = head.transcript_.sigma[:, None, None]
    noise = (head.transcript_.gradients - mean(head.transcript_.iterates)) / sigma
    between = np.corrcoef(noise.reshape(8, -1))[np.triu_indices(8, 1)]
    assert np.abs(between).max() < 0.99
    assert np.abs(np.diff(noise, axis=0)).std() > 0.5
    np.testing.assert_array_equal(again.coef_, head.coef_)
    assert head.release_.private is False
    other = gradient_head(BallDPLogisticRegression).fit(X, y)
    assert other.release_.private is True
    assert "exact" in other.release_.sampler


def test_release():
    X, y = data()
    head = gradient_head(BallDPLogisticRegression).fit(X, y)
    release, text = head.release_, str(head.release_)
    assert release.mechanism == "gradient"
    assert release.mu == mu_from_budget(2.0, 1e-6)
    assert len(release.sigma) == len(release.sensitivity) == 8
    assert release.guarantee().epsilon == pytest.approx(2.0, rel=1e-6)
    assert release.guarantee(0.2).mu == release.mu < release.guarantee(1.0).mu
    assert release.guarantee(1.0).epsilon <= release.epsilon_full_radius
    assert release.certificate(0.1, radius=0.3) == release.certificate(0.1)
    assert release.tol == release.alpha == 0.0
    for part in ("over 8 steps", "clipped at 0.2", "noise on the gradients"):
        assert part in text
    again = Release.from_dict(json.loads(json.dumps(release.to_dict())))
    assert again == release
    assert again.guarantee(0.9) == release.guarantee(0.9)
    assert not hasattr(head, "transcript_")
    # The grid's slack is part of every step.
    slack = grid_slack(release.bound.step_values)
    assert math.hypot(*(np.divide(release.sensitivity, release.sigma) + slack)) <= release.mu


def test_ex_post_figure_is_apart_from_the_guarantee():
    """It follows from the iterates, so it varies; what is guaranteed does not."""
    X, y = data()
    releases = [
        gradient_head(BallDPLogisticRegression, clip=None).fit(X, y).release_ for _ in range(4)
    ]
    assert len({r.epsilon_full_radius_ex_post for r in releases}) == 4
    assert len({r.epsilon_full_radius for r in releases}) == 1
    assert len({r.guarantee(1.3) for r in releases}) == 1
    for release in releases:
        assert release.epsilon < release.epsilon_full_radius_ex_post <= release.epsilon_full_radius


def test_ex_post_figure_from_the_transcript():
    X, y = data()
    head = gradient_head(BallDPLogisticRegression, keep_transcript=True).fit(X, y)
    bound, transcript = head.release_.bound, head.transcript_
    mean = gradients_of(ReleasedModel(head).on(X, y), bound)
    spent = [bound.sensitivity(theta, 2.0, mean.rounding(theta)) for theta in transcript.iterates]
    mu, stated = math.hypot(*(spent / transcript.sigma)), head.release_.epsilon_full_radius_ex_post
    assert mu_from_budget(stated, 1e-6) == pytest.approx(mu, rel=1e-6)
    slack = math.sqrt(bound.descent.n_steps) * grid_slack(bound.step_values)
    assert stated == pytest.approx(epsilon_from_mu(mu + slack, 1e-6), rel=1e-13)


def test_other_metrics():
    X, y = data()
    for metric, factor in (("manhattan", 1.0), ("chebyshev", math.sqrt(5))):
        head = gradient_head(BallDPLogisticRegression, metric=metric, radius=0.2).fit(X, y)
        assert head.release_.bound.promised_radius == pytest.approx(0.2 * factor)
        assert head.release_.guarantee(0.2).epsilon == pytest.approx(2.0, rel=1e-6)


def test_diverging_steps_stay_finite():
    X, y = data()
    for Head in HEADS:
        for clip in (None, 0.2):
            head = gradient_head(Head, clip=clip, learning_rate=1e5, n_steps=60).fit(X, y)
            assert np.isfinite(head.coef_).all()
            assert np.isfinite(head.release_.sigma).all()


@pytest.mark.parametrize(("Head", "n_classes"), [(HEADS[0], 5), (HEADS[1], 2)])
def test_defaults_fit_without_tuning(Head, n_classes):
    """Near the noiseless head at a moderate budget, from 2000 rows on."""
    X, y = data(4000, n_classes, d=20, dtype=np.float32)
    train, test = slice(0, 3000), slice(3000, None)
    reference = LogisticRegression(C=10).fit(X[train], y[train]).score(X[test], y[test])
    head = Head(8.0, radius=0.6, mechanism="gradient").fit(X[train], y[train])
    assert head.score(X[test], y[test]) > reference - 0.05


@pytest.mark.parametrize("alpha", [0.1, 10.0])
@pytest.mark.parametrize("Head", HEADS)
def test_default_step_size_is_stable_under_regularisation(Head, alpha):
    """Iterates stay where the objective's minimiser can be, not at the farthest norm allowed."""
    X, y = data(2000)
    mechanism = GradientPerturbation(clip=None, keep_transcript=True, start="zero", n_steps=100)
    head = Head(8.0, radius=0.5, mechanism=mechanism, alpha=alpha).fit(X, y)
    assert np.linalg.norm(head.transcript_.iterates[-1]) < 100.0


@pytest.mark.parametrize("Head", HEADS)
def test_a_regulariser_shrinks_the_head(Head):
    """From its start too: more of it gives shorter weights, and no labels are reversed."""
    X, y = load_breast_cancer(return_X_y=True)
    X, norms = normalize(X), []
    for alpha in (None, 1e-3, 3e-3, 1e-2, 0.03, 0.1, 0.3, 1.0):
        head = Head(8.0, delta=1e-4, radius=0.1, mechanism="gradient", alpha=alpha, random_state=0)
        norms.append(np.linalg.norm(head.fit(X, y).coef_))
        assert head.score(X, y) > 0.8
    assert (np.diff(norms) < 0).all()
    assert norms[-1] < 0.01 * norms[0]


def test_iterates_have_the_precision_of_the_rows():
    X, y = data(dtype=np.float32)
    head = gradient_head(BallDPLogisticRegression, keep_transcript=True).fit(X, y)
    iterates = head.transcript_.iterates
    np.testing.assert_array_equal(iterates, iterates.astype(np.float32))
    assert (iterates[1:] != 0).all()


def test_default_step_size_uses_public_numbers_alone():
    """Same shape, other rows: the same settings; with little noise a limit takes over."""
    X, y = data()

    def rate(rows, **params):
        head = gradient_head(BallDPLogisticRegression, **params).fit(rows, y)
        return head.release_.bound.descent.learning_rate

    assert rate(X) == rate(-X)
    assert rate(X, epsilon=0.5) < rate(X, epsilon=1e3) < rate(X, epsilon=1e4)


def test_grid_search_over_the_mechanism():
    """By name, as objects, and over their parameters: also of one that was given by name."""
    grid = [
        {"mechanism": ["auto", "output", GradientPerturbation(n_steps=5)], "epsilon": [1.0, 4.0]},
        {"mechanism": [OutputPerturbation()], "mechanism__sensitivity": ["tight", "paper"]},
        {"mechanism": ["gradient"], "mechanism__n_steps": [2, 3]},
    ]
    head = BallDPLogisticRegression(radius=0.6, mechanism="output")
    search = GridSearchCV(head, grid, cv=3).fit(*data())
    assert len(search.cv_results_["params"]) == 10
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    for mechanism in ("gradient", GradientPerturbation(n_steps=5)):
        head = BallDPLogisticRegression(radius=0.6, mechanism=mechanism)
        search = GridSearchCV(head, {"mechanism__n_steps": [2, 7]}, cv=3).fit(*data())
        steps = search.best_params_["mechanism__n_steps"]
        assert search.best_estimator_.release_.bound.descent.n_steps == steps


def test_mechanisms_are_estimators():
    mechanism = GradientPerturbation(n_steps=3, clip=None, start="zero")
    assert repr(clone(mechanism)) == "GradientPerturbation(clip=None, n_steps=3, start='zero')"
    assert clone(BallDPLogisticRegression(mechanism=mechanism)).mechanism is not mechanism
    X, y = data()
    head = BallDPLogisticRegression(radius=0.6, mechanism=mechanism).fit(X, y)
    assert vars(mechanism) == vars(clone(mechanism))  # nothing of the fit stays on it
    text = BallDPLogisticRegression(2.0, radius=0.6, mechanism="gradient").fit(X, y).release_
    same = BallDPLogisticRegression(2.0, radius=0.6, mechanism=GradientPerturbation()).fit(X, y)
    assert text.bound == same.release_.bound
    head.set_params(mechanism="output")
    with pytest.raises(ValueError, match="released by 'gradient'"):
        _ = ReleasedModel(head).mechanism
