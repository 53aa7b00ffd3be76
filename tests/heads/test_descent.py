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
from sklearn_balldp.mechanisms import DescentBound, drive
from sklearn_balldp.mechanisms.descent import gains, shares_of
from sklearn_balldp.mechanisms.settings import CONSTANT
from sklearn_balldp.privacy.gaussian import mu_from_budget
from sklearn_balldp.privacy.problem import Problem
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


@pytest.mark.parametrize(
    ("Head", "n_classes", "alpha"), [(HEADS[0], 3, 0.01), (HEADS[0], 2, None), (HEADS[1], 3, 0.01)]
)
def test_model_is_a_function_of_the_transcript(Head, n_classes, alpha, asked):
    """By hand: heavy ball on released gradients, the regulariser, mean of the last iterates."""
    X, y = data(n_classes=n_classes)
    head = gradient_head(Head, alpha=alpha, keep_transcript=True, clip=0.2).fit(X, y)
    centred = Head is BallDPLogisticRegression and n_classes > 2
    descent = head.release_.bound
    at, velocity, kept = 0.0, 0.0, []
    np.testing.assert_array_equal(head.transcript_.gradients, [g for _, g in asked(head)])
    pull = descent.learning_rate / (1.0 - descent.momentum) * head.release_.alpha
    for query, gradient in asked(head):
        np.testing.assert_allclose(query.theta, at, rtol=1e-9, atol=1e-9)
        velocity = descent.momentum * velocity + gradient - gradient.mean(axis=0) * centred
        at = (at - descent.learning_rate * velocity) / (1.0 + pull)
        kept.append(at)
    theta = np.mean(kept[-descent.averaged :], axis=0)
    theta -= theta.mean(axis=0) * centred
    np.testing.assert_allclose(head.coef_, theta[:, :-1], atol=1e-9)
    np.testing.assert_allclose(head.intercept_, theta[:, -1] * CONSTANT, atol=1e-9)


def test_gains_are_what_a_step_adds_to_the_model():
    """One more in the gradient of one step, by finite differences of whole descents."""
    head = gradient_head(BallDPSquaredHingeSVC, fit_intercept=False).fit(*data())
    bound, problem = head.release_.bound, head.release_.problem
    gradients = np.random.default_rng(0).standard_normal((bound.n_steps, *bound.shape(problem)))

    def released(gradients):
        answers = iter(gradients)
        return drive(head.released_.conversation(), lambda query: next(answers))

    expected = gains(bound.n_steps, bound.momentum, bound.averaged)
    for step, gain in enumerate(expected):
        more = gradients.copy()
        more[step] += 1.0
        moved = (released(gradients) - released(more)) / bound.learning_rate
        np.testing.assert_allclose(moved, gain, rtol=1e-6)
    shares = np.array(shares_of(bound.n_steps, bound.momentum, bound.averaged))
    assert shares == pytest.approx(np.sqrt(expected) / np.sqrt(expected).sum())
    assert bound.shares == tuple(shares.tolist())


@pytest.mark.parametrize(
    ("Head", "protect_labels", "clip", "dtype"),
    [
        (BallDPLogisticRegression, False, 0.2, np.float64),
        (BallDPLogisticRegression, True, None, np.float32),
        (BallDPSquaredHingeSVC, False, None, np.float64),
        (BallDPSquaredHingeSVC, True, 0.2, np.float32),
    ],
)
def test_noise_is_calibrated_at_every_iterate(Head, protect_labels, clip, dtype, asked, noise_of):
    """Scale, law and independence of the noise, from the transcript and the exact gradients."""
    X, y = data(d=11, dtype=dtype)
    own = {"keep_transcript": True, "clip": clip, "learning_rate": 0.5}
    head = gradient_head(Head, protect_labels=protect_labels, classes=[0, 1, 2], **own)
    mu, noises = mu_from_budget(2.0, 1e-6), []
    for _ in range(20):
        release = head.fit(X, y).release_
        noises.append(noise_of(head, head._records(X, y)))
        problem = release.problem
        spent = [query.mu(problem) for query, _ in asked(head)]
        assert mu * (1 - 1e-6) <= math.hypot(*spent) <= mu
        shares = np.square(spent) / mu**2
        np.testing.assert_allclose(shares, release.bound.shares, rtol=1e-6)
    noises = np.array(noises)
    assert stats.kstest(noises.ravel(), "norm").pvalue > 1e-9
    energy, tail = np.sum(noises**2), stats.chi2(noises.size)
    assert min(tail.cdf(energy), tail.sf(energy)) > 1e-10
    lagged = np.mean(noises[:, 1:] * noises[:, :-1])
    assert abs(lagged) < 6.5 / math.sqrt(noises[:, 1:].size)


def test_seeded_steps_draw_noise_of_their_own(noise_of):
    """One seed serves the whole descent: its noise must not repeat from step to step."""
    X, y = data()
    seeded = gradient_head(
        BallDPLogisticRegression, keep_transcript=True, random_state=3, learning_rate=1e-9
    )
    head, again = clone(seeded).fit(X, y), clone(seeded).fit(X, y)
    noise = np.array(noise_of(head, head._records(X, y)))
    between = np.corrcoef(noise)[np.triu_indices(8, 1)]
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
    assert mu_from_budget(2.0, 1e-6) * (1.0 - 1e-12) <= release.mu <= mu_from_budget(2.0, 1e-6)
    # They follow from the iterates, which a record does not tell.
    assert release.sigma == release.sensitivity == ()
    assert release.guarantee().epsilon == pytest.approx(2.0, rel=1e-6)
    assert release.guarantee(0.2).mu == release.mu < release.guarantee(1.0).mu
    assert release.guarantee(1.0).epsilon <= release.epsilon_full_radius
    assert release.certificate(0.1, radius=0.3) == release.certificate(0.1)
    assert release.tol == release.alpha == 0.0
    for part in ("one for each of its steps", "clipped at 0.2", "noise on the gradients"):
        assert part in text
    again = Release.from_dict(json.loads(json.dumps(release.to_dict())))
    assert again == release
    assert again.guarantee(0.9) == release.guarantee(0.9)
    assert not hasattr(head, "transcript_")


@pytest.mark.parametrize("clip", [None, 0.2])
def test_what_was_guaranteed_beforehand_holds_of_every_run(clip, asked):
    """At other radii the spent mu follows from the iterates, and stays below what was stated."""
    X, y = data()
    head = gradient_head(BallDPLogisticRegression, clip=clip, keep_transcript=True)
    guaranteed, found = set(), set()
    for _ in range(4):
        release = head.fit(X, y).release_
        problem = release.problem
        for radius in (0.9, 1.3, 2.0):
            spent = math.hypot(*(query.mu(problem, radius) for query, _ in asked(head)))
            assert release.mu < spent <= release.guarantee(radius).mu * (1.0 + 1e-6)
            found.add(spent)
            guaranteed.add(release.guarantee(radius))
    assert len(found) == (12 if clip is None else len(found))
    assert len(guaranteed) == 3


def test_other_metrics():
    X, y = data()
    for metric, factor in (("manhattan", 1.0), ("chebyshev", math.sqrt(5))):
        head = gradient_head(BallDPLogisticRegression, metric=metric, radius=0.2).fit(X, y)
        ((radius, _, _),) = head.release_.bound.promises(head.release_.problem)
        assert radius == pytest.approx(0.2 * factor)
        assert head.release_.guarantee(0.2).epsilon == pytest.approx(2.0, rel=1e-6)


def test_diverging_steps_stay_finite():
    X, y = data()
    for Head in HEADS:
        for clip in (None, 0.2):
            head = gradient_head(Head, clip=clip, learning_rate=1e5, n_steps=60).fit(X, y)
            assert np.isfinite(head.coef_).all()


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
def test_default_step_size_is_stable_under_regularisation(Head, alpha, asked):
    """Iterates stay where the objective's minimiser can be, not at the farthest norm allowed."""
    X, y = data(2000)
    mechanism = GradientPerturbation(clip=None, keep_transcript=True, start="zero", n_steps=100)
    head = Head(8.0, radius=0.5, mechanism=mechanism, alpha=alpha).fit(X, y)
    assert np.linalg.norm(asked(head)[-1][0].theta) < 100.0


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


def test_iterates_have_the_precision_of_the_rows(asked):
    X, y = data(dtype=np.float32)
    head = gradient_head(BallDPLogisticRegression, keep_transcript=True).fit(X, y)
    iterates = np.array([query.theta for query, _ in asked(head)])
    np.testing.assert_array_equal(iterates, iterates.astype(np.float32))
    assert (iterates[1:] != 0).all()


def test_default_step_size_uses_public_numbers_alone():
    """Same shape, other rows: the same settings; with little noise a limit takes over."""
    X, y = data()

    def rate(rows, **params):
        head = gradient_head(BallDPLogisticRegression, **params).fit(rows, y)
        return head.release_.bound.learning_rate

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
        assert search.best_estimator_.release_.bound.n_steps == steps


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
    # What was released is what it was, whatever is asked for next.
    head.set_params(mechanism="output")
    assert head.released_.mechanism is not mechanism
    assert head.released_.mechanism.get_params() == mechanism.get_params()
    mechanism.set_params(n_steps=99)
    assert head.released_.mechanism.n_steps == 3


def test_noise_along_all_classes_moves_no_iterate(asked):
    """Gradients of a record's classes add up to zero: noise in their sum is no signal."""
    head = gradient_head(BallDPLogisticRegression, keep_transcript=True).fit(*data())
    sums = [query.theta.sum(axis=0) for query, _ in asked(head)]
    np.testing.assert_allclose(sums, 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"shares": ()}, "shares hold 0 steps"),
        ({"shares": (0.5, 0.6)}, "sum to 1 at most"),
        ({"shares": (1.5, -0.5)}, "shares must be positive"),
        ({"shares": (1e-4,) * 5001}, "5001 steps"),
        ({"momentum": 1.0}, "momentum"),
        ({"clip": -0.1}, "clip"),
        ({"averaged": 0}, "averaged"),
        ({"averaged": 9}, "averaged"),
        ({"learning_rate": math.nan}, "learning_rate"),
        ({"constant": -1.0}, "constant"),
        ({"least_reach": 0.2}, "least_reach"),
        ({"least_reach": 0.9}, "needs a start"),
        ({"budget": 1e-20}, "leaves nothing"),
    ],
)
def test_bounds_that_are_no_descent(changes, match):
    public = {"n_samples": 60, "n_features": 5, "n_classes": 3, "class_counts": (20, 20, 20)}
    problem = Problem(**public, radius=0.5, loss="softmax")
    given = {"budget": 1.0, "learning_rate": 1.0, "clip": 0.2, "shares": (0.5, 0.5)}
    DescentBound(**given).check(problem)
    with pytest.raises(ValueError, match=match):
        DescentBound(**{**given, **changes}).check(problem)
