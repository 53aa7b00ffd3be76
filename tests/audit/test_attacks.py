"""Attacks on a conversation: the exact posterior, audits of descents, and broken mechanisms.

Tests of randomness here reject correct code with probability below 1e-9 each.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.frozen import FrozenEstimator

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    ReconstructionAuditor,
)
from sklearn_balldp.audit import FailedGuaranteeWarning, attacks
from sklearn_balldp.audit.attacks import (
    Candidates,
    deviates,
    log_posterior,
    normalised,
    run_trials,
    transcript_log_posterior,
)
from sklearn_balldp.mechanisms import MeanGradient, Records, Sums, drive
from sklearn_balldp.privacy import Noise


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


def audited(estimator, X, y, **params):
    public, labels = data(600, len(np.unique(y)), X.shape[1], seed=0)
    noise = 0.05 * np.random.default_rng(1).standard_normal(public.shape)
    public = (public + noise) / np.linalg.norm(public + noise, axis=1, keepdims=True)
    given = {"n_candidates": 5, "random_state": 0, **params}
    return ReconstructionAuditor(estimator, **given).fit(X, y, X_public=public, y_public=labels)


def with_candidate(records, row, code):
    """All records, the first replaced."""
    X, codes = records.X.copy(), records.codes.copy()
    X[0], codes[0] = row, code
    return Records(X, codes, records.weights)


def asked(released, answers):
    """The queries of a conversation that was answered so."""
    queries, given = [], iter(answers)

    def answer(query):
        queries.append(query)
        return next(given)

    drive(released.conversation(), answer)
    return queries


def written_out(released, answers, datasets, prior):
    """Log-posterior from normal densities: every dataset, every query, every value."""
    logs = np.log(np.array(prior))
    queries = asked(released, answers)
    for i, records in enumerate(datasets):
        for query, noisy in zip(queries, answers, strict=True):
            values = query.values(released.problem, records)
            sigma = np.broadcast_to(query.scales(released.problem), noisy.shape)
            some = sigma > 0.0
            logs[i] += norm.logpdf(noisy[some], values[some], sigma[some]).sum()
    return logs - np.logaddexp.reduce(logs)


# The posterior ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("Head", "clip", "n_classes", "start"),
    [
        (BallDPLogisticRegression, 0.2, 3, "zero"),
        (BallDPLogisticRegression, None, 2, "statistics"),
        (BallDPSquaredHingeSVC, None, 3, "mean"),
        (BallDPSquaredHingeSVC, 0.2, 2, "zero"),
    ],
)
def test_posterior_of_a_kept_transcript(Head, clip, n_classes, start):
    """Against the likelihood written out: every candidate's dataset, every step."""
    X, y = data(n_classes=n_classes)
    fitted = head(Head, clip=clip, keep_transcript=True, fit_intercept=True, start=start).fit(X, y)
    rows, codes = X[1:40:n_classes], y[1:40:n_classes]
    prior = np.random.default_rng(0).dirichlet(np.ones(len(codes)))
    found = transcript_log_posterior(fitted, X[1:], y[1:], rows, codes, prior)
    released, records = fitted.released_, fitted._records(X, y)
    datasets = [with_candidate(records, *one) for one in zip(rows, codes, strict=True)]
    expected = written_out(released, released.answers, datasets, prior)
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_the_likelihood_takes_the_right_gradients():
    """Against the derivative of the mean loss, which no code of this package computes."""
    X, y = data(60, n_classes=2)
    fitted = head(fit_intercept=False, keep_transcript=True, clip=None, n_steps=2).fit(X, y)
    released = fitted.released_
    for query in asked(released, released.answers):
        theta = query.theta.ravel()
        margin = (X @ theta) * (2.0 * y - 1.0)
        expected = -(X.T @ ((2.0 * y - 1.0) / (1.0 + np.exp(margin)))) / len(X)
        found = query.values(released.problem, fitted._records(X, y)).ravel()
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_posterior_needs_a_transcript_and_all_other_records():
    X, y = data()
    with pytest.raises(ValueError, match="keep_transcript"):
        transcript_log_posterior(head().fit(X, y), X[1:], y[1:], X[:3], y[:3])
    fitted = head(keep_transcript=True).fit(X, y)
    with pytest.raises(ValueError, match="all of them but one"):
        transcript_log_posterior(fitted, X, y, X[:3], y[:3])
    with pytest.raises(ValueError, match="prior"):
        transcript_log_posterior(fitted, X[1:], y[1:], X[:2], y[:2], [0.5, 0.6])


ONE_SHOT = {
    "prototypes": BallDPRidgePrototype(4.0, radius=0.8),
    "discriminant": BallDPLinearDiscriminant(4.0, radius=0.8),
    "protected": BallDPLinearDiscriminant(
        4.0, domain="sphere", protect_labels=True, classes=range(3)
    ),
    "minimiser": BallDPLogisticRegression(4.0, radius=0.8, mechanism="output", alpha=0.05),
    "started descent": head(n_steps=3, start="statistics"),
}


def trials_of(estimator, X, y, n_candidates=4, seed=0, n_runs=6):
    """Trials of a fitted head, with what answered them, and the candidates' datasets."""
    fitted = estimator.fit(X, y)
    released, records = fitted.released_, fitted._records(X, y)
    rows, codes = X[: 1 + n_candidates], np.full(1 + n_candidates, records.codes[0])
    candidates = Candidates(
        released.problem, records.without([0]), rows[:, None], codes[:, None], None
    )
    truths = [1 + i % n_candidates for i in range(n_runs)]
    rng, answers = np.random.default_rng(seed), []

    class Recorded(Noise):
        def __init__(self):
            super().__init__(rng)
            answers.append([])
            self.given = answers[-1]

        def __call__(self, values, sigma):
            self.given.append(super().__call__(values, sigma))
            return self.given[-1]

    found = run_trials(released, candidates, truths, Recorded)
    datasets = [with_candidate(records, *one) for one in zip(rows, codes, strict=True)]
    return released, candidates, found, answers, datasets, truths


@pytest.mark.parametrize("name", ONE_SHOT)
def test_trials_are_scored_by_the_likelihood_of_their_own_path(name):
    """Every run with its own answers, against the likelihood written out."""
    X, y = data(60)
    released, candidates, found, answers, datasets, truths = trials_of(ONE_SHOT[name], X, y)
    uniform = np.full(len(datasets), 1.0 / len(datasets))
    for run, given in enumerate(answers):
        expected = written_out(released, given, datasets, uniform)
        np.testing.assert_allclose(
            normalised(found.log_posterior[run]), expected, atol=1e-5, rtol=1e-5
        )
        alone = log_posterior(given, released, candidates)
        np.testing.assert_allclose(normalised(alone), expected, atol=1e-5, rtol=1e-5)
        # The noise of the trial, in the shape of its answers.
        for query, noisy, z in zip(asked(released, given), given, found.deviates[run], strict=True):
            values = query.values(released.problem, datasets[truths[run]])
            scale = np.broadcast_to(query.scales(released.problem), noisy.shape)
            np.testing.assert_allclose(z * scale, noisy - values, atol=1e-5 * np.max(scale))


def test_what_is_kept_of_trials_has_a_limit(monkeypatch):
    """Descents of many values go one by one, and the noise of the first ones alone is kept."""
    X, y = data(60)
    together = trials_of(ONE_SHOT["started descent"], X, y)[2]
    monkeypatch.setattr(attacks, "_VALUES", 1)
    alone = trials_of(ONE_SHOT["started descent"], X, y)[2]
    assert together.log_posterior.shape == alone.log_posterior.shape
    assert len(together.deviates) == 6
    assert len(alone.deviates) == 1


def test_noiseless_models_are_those_of_whole_datasets(noise_free):
    """The conversation without noise is a fit whose sampler adds none."""
    X, y = data(60)
    for estimator in ONE_SHOT.values():
        fitted = estimator.fit(X, y)
        released, records = fitted.released_, fitted._records(X, y)

        def noiseless(query, problem=released.problem, records=records):
            return query.values(problem, records)

        found = drive(released.conversation(), noiseless)
        np.testing.assert_allclose(found, fitted.released_.values, atol=1e-9)


def test_candidates_are_datasets():
    """Values of every kind of query, against each neighbour's records as a whole."""
    X, y = data(60)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    for estimator in ONE_SHOT.values():
        fitted = estimator.fit(X, y)
        released = fitted.released_
        plain = fitted._records(X, y)
        weighted = Records(plain.X, plain.codes, weights)
        some = weighted if released.release.mechanism == "gradient" else plain
        places = np.array([0, 3, 6])
        rows, codes = X[9:33:3].reshape(-1, 1, 6) + np.zeros((1, 3, 1)), np.zeros((8, 3), int)
        own = None if some.weights is None else some.weights[places]
        candidates = Candidates(released.problem, some.without(places), rows, codes, own)
        query = (
            MeanGradient(np.ones((3, 7)), clip=0.3, constant=1.0)
            if released.release.mechanism == "gradient"
            else released.bound
        )
        (found,) = candidates.values([query])
        assert len(candidates) == len(found) == 8
        for values, row, code in zip(found, rows, codes, strict=True):
            changed, labels = some.X.copy(), some.codes.copy()
            changed[places], labels[places] = row, code
            whole = Records(changed, labels, some.weights)
            np.testing.assert_allclose(values, query.values(released.problem, whole), atol=1e-9)
        # Equal queries are asked once, those of an array anew.
        assert (candidates.values([query])[0] is found) == (query is released.bound)


def test_deviates_with_large_common_parts_do_not_cancel():
    values = 1e6 + np.array([[0.0, 0.0], [1e-3, 0.0], [0.0, 2e-3]])
    X, y = data(60)
    problem = BallDPRidgePrototype(4.0, radius=0.8).fit(X, y).release_.problem
    found = deviates(Sums(sigma=1e-3), _flat(problem), values[1], values)
    squares = np.vecdot(found, found)
    np.testing.assert_allclose(squares, [1.0, 0.0, 5.0], rtol=1e-6, atol=1e-12)


def _flat(problem):
    """The public numbers with one class of two features: values of length two."""
    return replace(
        problem, n_classes=1, n_features=2, class_counts=(problem.n_samples,), sums_weights=None
    )


def test_answers_without_noise_identify():
    """Where a value is published bare, only candidates that give it are left."""
    X, y = data(60)
    problem = _flat(BallDPRidgePrototype(4.0, radius=0.8).fit(X, y).release_.problem)
    values = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 3.0]])

    class Half(Sums):
        def scales(self, problem):
            return np.array([1.0, 0.0])

    found = deviates(Half(), problem, np.array([0.5, 2.0]), values)
    logs = normalised(-0.5 * np.vecdot(found, found))
    assert np.isneginf(logs).tolist() == [False, False, True]
    assert np.exp(logs).sum() == pytest.approx(1.0)
    other = deviates(Half(), problem, np.array([0.5, 4.0]), values)
    with pytest.raises(ValueError, match="no candidate explains"):
        normalised(-0.5 * np.vecdot(other, other))


def test_guesses_are_the_most_probable_and_the_rule_is_the_best(success_interval):
    """An unweighted distance and a forgotten prior do worse than the attack."""
    rng = np.random.default_rng(0)
    points, sigma = 0.5 * rng.standard_normal((5, 12)), np.repeat([0.5, 1.0, 2.0], 4)
    prior = np.array([0.6, 0.1, 0.1, 0.1, 0.1])
    n = 40_000
    truth = rng.choice(5, size=n, p=prior)
    seen = points[truth] + sigma * rng.standard_normal((n, 12))

    def guesses(scale, prior):
        apart = (seen[:, None] - points) / scale
        return (np.log(prior) - 0.5 * np.vecdot(apart, apart)).argmax(axis=1)

    hits = {
        "map": guesses(sigma, prior),
        "no prior": guesses(sigma, np.full(5, 0.2)),
        "unweighted": guesses(1.0, prior),
    }
    wins = {name: np.count_nonzero(guess == truth) for name, guess in hits.items()}
    low, _ = success_interval(wins["map"], n)
    for name in ("no prior", "unweighted"):
        assert low > success_interval(wins[name], n)[1]
    # The attack's judge takes the answer that hits most, of the truths that are near.
    logs = np.log(np.array([[0.28, 0.1, 0.28, 0.34]]))
    near = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=bool)
    best = np.exp(logs) @ near.T
    judged = attacks._judge(logs, best.argmax(axis=1), np.array([1]), near)
    assert judged["guess"].tolist() == [0]
    assert judged["success"].tolist() == [True]
    assert judged["posterior"].tolist() == pytest.approx([0.1])


# Audits of descents ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("Head", "noise"),
    [(BallDPLogisticRegression, "simulated"), (BallDPSquaredHingeSVC, "mechanism")],
)
def test_audit(Head, noise):
    X, y = data()
    auditor = audited(head(Head), X, y, n_draws=20, noise=noise)
    assert auditor.guarantee_holds_
    assert "FAIL" not in set(auditor.noise_["verdict"])
    stated = auditor.certificate_
    assert stated["direct"] == pytest.approx(auditor.estimator_.release_.certificate(0.2))
    assert auditor.success_interval_["clopper_pearson"][0] <= stated["direct"]
    assert np.isnan(stated[["anchor", "ball", "support"]]).all()
    # The mean maximum of an exact posterior is its own success.
    low, high = auditor.success_interval_["clopper_pearson"]
    assert low - 0.03 <= stated["bayes"] <= high + 0.03
    assert (auditor.supports_["distance"] <= auditor.supports_["mu"] * (1 + 1e-6)).all()
    assert (auditor.supports_["distance"] > 0.05 * auditor.supports_["mu"]).all()
    auditor.plot()


def test_prior_distance_and_protected_labels():
    X, y = data()
    estimator = head(protect_labels=True, classes=[0, 1, 2])
    prior = [0.5, 0.2, 0.1, 0.1, 0.1]
    auditor = audited(
        estimator, X, y, candidate_labels="any", attacker_prior=prior, eta=0.2, n_draws=10
    )
    assert auditor.guarantee_holds_
    assert auditor.baseline_ >= 0.5


@pytest.mark.parametrize("left_out", [0, 1])
def test_frozen_models(left_out):
    """All records, or all but one; the model's own transcript is not needed."""
    X, y = data()
    frozen = FrozenEstimator(head(radius=1.4).fit(X, y))
    auditor = audited(frozen, X[left_out:], y[left_out:], n_draws=5)
    assert auditor.guarantee_holds_
    assert auditor.estimator_ is frozen
    # No answer was kept, so that its noise cannot be tested; nothing is made up.
    noise = auditor.noise_.set_index("name")["verdict"]
    assert set(noise.drop(["parameters", "sampler"])) == {"CANNOT CHECK"}


# Broken mechanisms -----------------------------------------------------------------------------


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


@pytest.mark.parametrize("Broken", [QuarterNoise, RepeatedNoise, RepeatedDeviates])
@pytest.mark.parametrize("noise", ["simulated", "mechanism"])
def test_broken_samplers_are_convicted(Broken, noise):
    X, y = data()
    Head = type(Broken.__name__, (BallDPLogisticRegression,), {"_noise": lambda self: Broken()})
    with pytest.warns(FailedGuaranteeWarning):
        auditor = audited(head(Head, epsilon=4.0), X, y, n_draws=10, noise=noise)
    assert not auditor.guarantee_holds_


def test_small_sensitivity_is_convicted(monkeypatch):
    """A quarter of the right one: the values of candidates lie further apart than stated."""
    X, y = data()
    gap = MeanGradient.ratio
    monkeypatch.setattr(MeanGradient, "ratio", lambda *args: gap(*args) / 4.0)
    with pytest.warns(FailedGuaranteeWarning):
        auditor = audited(head(epsilon=2.0), X, y, n_draws=40)
    assert not auditor.guarantee_holds_


def test_published_model_holds_no_audit():
    X, y = data()
    auditor = audited(head(), X, y)
    assert auditor.estimator_.released_.answers == ()
    assert not any(name.startswith("_") for name in vars(auditor.estimator_))
    assert not hasattr(auditor.estimator_, "transcript_")
