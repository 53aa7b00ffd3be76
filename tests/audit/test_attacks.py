"""Attacks on a conversation: the exact posterior, and audits of descents."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    ReconstructionAuditor,
)
from sklearn_balldp.audit import attacks
from sklearn_balldp.audit.attacks import Candidates, normalised, run_trials
from sklearn_balldp.heads.inspection import records_of
from sklearn_balldp.mechanisms import MeanGradient, Records, Sums, drive
from sklearn_balldp.privacy import Noise


def data(n=300, n_classes=3, d=6, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.standard_normal((n, d)) + 2.0 * rng.standard_normal((n_classes, d))[y]
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def descent(Head=BallDPLogisticRegression, epsilon=8.0, *, steps=(), **params):
    mechanism = GradientPerturbation(**{"n_steps": 6, "start": "zero", **dict(steps)})
    return Head(epsilon, radius=0.8, mechanism=mechanism, **params)


def audited(estimator, X, y, **params):
    public, labels = data(600, len(np.unique(y)), X.shape[1], seed=0)
    public = public + 0.05 * np.random.default_rng(1).standard_normal(public.shape)
    public /= np.linalg.norm(public, axis=1, keepdims=True)
    options = {"n_candidates": 5, "random_state": 0, **params}
    return ReconstructionAuditor(estimator, **options).fit(X, y, X_public=public, y_public=labels)


def with_candidate(records, row, code):
    """All records, the first replaced."""
    X, codes = records.X.copy(), records.codes.copy()
    X[0], codes[0] = row, code
    return Records(X, codes, records.weights)


def asked(released, answers):
    """The queries of a conversation that was answered so."""
    queries, remaining = [], iter(answers)

    def answer(query):
        queries.append(query)
        return next(remaining)

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


HEADS = {
    "prototypes": BallDPRidgePrototype(4.0, radius=0.8),
    "an absent class": BallDPRidgePrototype(4.0, radius=0.8, classes=range(4)),
    "discriminant": BallDPLinearDiscriminant(4.0, radius=0.8),
    "protected": BallDPLinearDiscriminant(
        4.0, domain="sphere", protect_labels=True, classes=range(3)
    ),
    "minimiser": BallDPLogisticRegression(4.0, radius=0.8, mechanism="output", alpha=0.05),
    "descent": descent(steps={"n_steps": 3, "start": "statistics"}),
    "unclipped": descent(steps={"n_steps": 3, "clip": None}),
    "hinge": descent(BallDPSquaredHingeSVC, steps={"n_steps": 3, "clip": 0.2, "start": "mean"}),
}


@pytest.mark.parametrize(("name", "alone"), [*((name, False) for name in HEADS), ("descent", True)])
@pytest.mark.kills(
    "audit/attacks.py", "truth = values[truths[trial]]", "truth = values[truths[run]]"
)
@pytest.mark.kills(
    "audit/attacks.py",
    "logs[trial] -= 0.5 * np.vecdot(standard, standard)",
    "logs[trial] -= 0.4 * np.vecdot(standard, standard)",
)
def test_trials_are_scored_by_the_likelihood_of_their_path(name, alone, monkeypatch):
    """Every run with its answers, against the likelihood written out; together, and one by one."""
    if alone:
        monkeypatch.setattr(attacks, "_VALUES", 1)
    X, y = data(60)
    fitted = HEADS[name].fit(X, y)
    released, records = fitted.released_, records_of(fitted, X, y)
    rows, codes = X[:5], np.full(5, records.codes[0])
    candidates = Candidates(released.problem, records.without([0]), rows[:, None], codes[:, None])
    truths, rng, samplers = [1 + i % 4 for i in range(6)], np.random.default_rng(0), []

    class Recorded(Noise):
        def __init__(self):
            super().__init__(rng)
            self.noiseless, self.answers = [], []
            samplers.append(self)

        def __call__(self, values, sigma):
            self.noiseless.append(values)
            self.answers.append(super().__call__(values, sigma))
            return self.answers[-1]

    trials = run_trials(released, candidates, truths, Recorded)
    datasets = [with_candidate(records, *one) for one in zip(rows, codes, strict=True)]
    # What is kept of the noise has a limit: of the first ones alone.
    assert len(trials.deviates) == (1 if alone else 6)
    for run, sampler in enumerate(samplers):
        noisy = sampler.answers
        expected = written_out(released, noisy, datasets, np.full(5, 0.2))
        found = normalised(trials.log_posterior[run])
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)
        squares = np.zeros(5)
        for step, query in enumerate(asked(released, noisy)):
            values = np.array([query.values(released.problem, records) for records in datasets])
            np.testing.assert_allclose(sampler.noiseless[step], values[truths[run]], atol=1e-5)
            scale = np.broadcast_to(query.scales(released.problem), noisy[step].shape)
            some = scale > 0
            squares += (((values - values[0])[:, some] / scale[some]) ** 2).sum(axis=1)
            if run < len(trials.deviates):
                z = trials.deviates[run][step]
                expected = ((noisy[step] - values[truths[run]])[some] / scale[some]).ravel()
                np.testing.assert_allclose(z.ravel(), expected, atol=1e-5)
                assert some.sum() < some.size or z.shape == some.shape
        np.testing.assert_allclose(trials.distance[run], np.sqrt(squares), atol=1e-5)


@pytest.mark.parametrize("name", HEADS)
def test_candidates_are_datasets(name):
    """Values of every kind of query for several records, against whole neighbours."""
    X, y = data(60)
    fitted = HEADS[name].fit(X, y)
    released, some, query = fitted.released_, records_of(fitted, X, y), fitted.released_.bound
    if query.has_transcript:
        some = Records(some.X, some.codes, np.random.default_rng(0).uniform(0.5, 2.0, len(X)))
        query = MeanGradient(np.ones((3, 7)), clip=0.3, constant=1.0)
    places = np.array([0, 3, 6])
    rows, codes = X[9:33:3].reshape(-1, 1, 6) + np.zeros((1, 3, 1)), np.zeros((8, 3), int)
    weights = None if some.weights is None else some.weights[places]
    candidates = Candidates(released.problem, some.without(places), rows, codes, weights)
    (found,) = candidates.values([query])
    assert len(candidates) == len(found) == 8
    for values, row, code in zip(found, rows, codes, strict=True):
        changed, labels = some.X.copy(), some.codes.copy()
        changed[places], labels[places] = row, code
        whole = Records(changed, labels, some.weights)
        np.testing.assert_allclose(values, query.values(released.problem, whole), atol=1e-9)
    # Equal queries are asked once, those of an array anew.
    assert (candidates.values([query])[0] is found) == (query is released.bound)


@pytest.mark.kills(
    "mechanisms/kernel.py",
    "bare = np.where(excess == 0.0, 0.0, np.inf)",
    "bare = np.zeros(excess.shape)",
)
def test_deviates_of_bare_and_of_large_values():
    """Values that are published bare leave the candidates that give them; nothing cancels."""
    problem = BallDPRidgePrototype(4.0, radius=0.8).fit(*data(60)).release_.problem
    # One class of two features: values of length two.
    flat = {"n_classes": 1, "n_features": 2, "class_counts": (60,), "sums_weights": None}
    problem = replace(problem, **flat)
    values = 1e6 + np.array([[0.0, 0.0], [1e-3, 0.0], [0.0, 2e-3]])
    found, _ = Sums(sigma=1e-3).standardised(problem, values[1], values)
    np.testing.assert_allclose(np.vecdot(found, found), [1.0, 0.0, 5.0], rtol=1e-6, atol=1e-12)

    class Half(Sums):
        def scales(self, problem):
            return np.array([1.0, 0.0])

    values = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 3.0]])
    found, silent = Half().standardised(problem, np.array([0.5, 2.0]), values)
    assert silent.tolist() == [False, True]
    logs = normalised(-0.5 * np.vecdot(found, found))
    assert np.isneginf(logs).tolist() == [False, False, True]
    assert np.exp(logs).sum() == pytest.approx(1.0)
    other, _ = Half().standardised(problem, np.array([0.5, 4.0]), values)
    with pytest.raises(ValueError, match="no candidate explains"):
        normalised(-0.5 * np.vecdot(other, other))


@pytest.mark.parametrize(
    ("Head", "noise", "params", "options"),
    [
        (BallDPSquaredHingeSVC, "mechanism", {}, {}),
        (
            BallDPLogisticRegression,
            "simulated",
            {"protect_labels": True, "classes": [0, 1, 2]},
            {"candidate_labels": "any", "attacker_prior": [0.5, 0.2, 0.1, 0.1, 0.1], "eta": 0.2},
        ),
    ],
)
def test_audit(Head, noise, params, options):
    X, y = data()
    auditor = audited(descent(Head, **params), X, y, n_draws=10, noise=noise, **options)
    assert auditor.guarantee_holds_
    assert "FAIL" not in set(auditor.noise_["verdict"])
    stated, release = auditor.certificate_, auditor.estimator_.release_
    if options:
        assert auditor.baseline_ >= 0.5
    else:
        assert stated["direct"] == pytest.approx(release.certificate(0.2))
    assert auditor.success_interval_["clopper_pearson"][0] <= stated["direct"]
    assert np.isnan(stated[["anchor", "ball", "support"]]).all()
    # The mean maximum of an exact posterior is its success.
    low, high = auditor.success_interval_["clopper_pearson"]
    assert low - 0.05 <= stated["bayes"] <= high + 0.05
    assert (auditor.supports_["distance"] <= auditor.supports_["mu"] * (1 + 1e-6)).all()
    assert (auditor.supports_["distance"] > 0.05 * auditor.supports_["mu"]).all()
    assert auditor.estimator_.released_.answers == ()
    assert not any(name.startswith("_") for name in vars(auditor.estimator_))
