"""Attacks on a conversation: the exact posterior, and audits of descents."""

from dataclasses import replace

import numpy as np
import pytest
from head_cases import HEADS, HIDDEN, head_of, of_any_length, queries_of, rows
from scipy.stats import norm

from sklearn_balldp import (
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    ReconstructionAuditor,
)
from sklearn_balldp.audit import attacks
from sklearn_balldp.audit.attacks import Candidates, normalised, run_trials
from sklearn_balldp.heads.inspection import records_of
from sklearn_balldp.mechanisms import Records, Sums
from sklearn_balldp.privacy import Noise

X, Y = rows(60)


def fitted(name):
    """Of few records; with a class that has none, or labels that are hidden and rows scaled."""
    head = head_of(name, epsilon=4.0, radius=0.8)
    if head.protect_labels and "domain" in head.get_params():
        return head.set_params(domain="sphere").fit(of_any_length(X, np.float16), Y)
    return head.set_params(classes=range(3 if head.protect_labels else 4)).fit(X, Y)


@pytest.mark.parametrize(("name", "alone"), [*((name, False) for name in HEADS), ("descent", True)])
@pytest.mark.kills("audit/attacks.py", "truth = values[truths[trial]", "truth = values[truths[run]")
@pytest.mark.kills("audit/attacks.py", "[trial] -= 0.5 * np.vecdot(", "[trial] -= 0.4 * np.vecdot(")
def test_trials_are_scored_by_the_likelihood_of_their_path(name, alone, monkeypatch):
    """Every run with its answers, against the likelihood written out; together, and one by one."""
    if alone:
        monkeypatch.setattr(attacks, "_VALUES", 1)
    head = fitted(name)
    released, records = head.released_, records_of(head, X, Y)
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
    datasets = [Records(np.vstack([row, X[1:]]), Y, records.weights) for row in rows]
    # What is kept of the noise has a limit: of the first ones alone.
    assert len(trials.deviates) == (1 if alone else 6)
    for run, sampler in enumerate(samplers):
        noisy, squares, logs = sampler.answers, np.zeros(5), np.zeros(5)
        for step, query in enumerate(queries_of(released, noisy)[0]):
            values = np.array([query.values(released.problem, records) for records in datasets])
            np.testing.assert_allclose(sampler.noiseless[step], values[truths[run]], atol=1e-5)
            scale = np.broadcast_to(query.scales(released.problem), noisy[step].shape)
            some = scale > 0
            squares += (((values - values[0])[:, some] / scale[some]) ** 2).sum(axis=1)
            for i in range(5):
                logs[i] += norm.logpdf(noisy[step][some], values[i][some], scale[some]).sum()
            if run < len(trials.deviates):
                z = trials.deviates[run][step]
                expected = ((noisy[step] - values[truths[run]])[some] / scale[some]).ravel()
                np.testing.assert_allclose(z.ravel(), expected, atol=1e-5)
                assert some.sum() < some.size or z.shape == some.shape
        np.testing.assert_allclose(trials.distance[run], np.sqrt(squares), atol=1e-5)
        found, expected = normalised(trials.log_posterior[run]), logs - np.logaddexp.reduce(logs)
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.kills("mechanisms/kernel.py", "where(excess == 0.0, 0.0, np.inf", "zeros(excess.shape")
def test_deviates_of_bare_and_of_large_values():
    """Values that are published bare leave the candidates that give them; nothing cancels."""
    problem = BallDPRidgePrototype(4.0, radius=0.8).fit(X, Y).release_.problem
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
    ("Head", "noise", "params", "more"),
    [
        (BallDPSquaredHingeSVC, "mechanism", {"domain": "sphere"}, {}),
        (
            BallDPLogisticRegression,
            "simulated",
            HIDDEN,
            {"candidate_labels": "any", "attacker_prior": [0.5, 0.2, 0.1, 0.1, 0.1], "eta": 0.2},
        ),
    ],
)
def test_audit(Head, noise, params, more):
    (X, y), (public, labels) = rows(300), rows(600, seed=1)
    if "domain" in params:
        X, public = (of_any_length(some, np.float16).astype(float) for some in (X, public))
    head = Head(8.0, radius=0.8, mechanism=GradientPerturbation(n_steps=6, start="zero"), **params)
    options = {"n_candidates": 5, "n_draws": 10, "noise": noise, "random_state": 0, **more}
    auditor = ReconstructionAuditor(head, **options).fit(X, y, public, labels)
    assert auditor.guarantee_holds_
    assert "FAIL" not in set(auditor.noise_["verdict"])
    stated, release = auditor.certificate_, auditor.estimator_.release_
    if more:
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
    if "domain" in params:
        # Candidates are near each other as scaled rows.
        X, public = (some / np.linalg.norm(some, axis=1, keepdims=True) for some in (X, public))
        for _, row in auditor.supports_.iterrows():
            gaps = np.linalg.norm(public[list(row["candidates"])] - X[row["anchor"]], axis=1)
            assert gaps.max() <= 0.8 + 1e-9
    assert auditor.estimator_.released_.answers == ()
    assert not any(name.startswith("_") for name in vars(auditor.estimator_))
