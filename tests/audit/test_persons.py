"""Audits of releases that hide persons: all of one person's records are replaced together."""

import numpy as np
import pytest
import sklearn
from sklearn.frozen import FrozenEstimator

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    ReconstructionAuditor,
)
from sklearn_balldp.audit import FailedGuaranteeWarning
from sklearn_balldp.audit.attacks import transcript_log_posterior
from sklearn_balldp.audit.preparation import _hold_out_owners
from sklearn_balldp.audit.supports import Support, candidate_distances
from sklearn_balldp.privacy.noise import Noise

HEADS = {
    "prototypes": BallDPRidgePrototype(),
    "discriminant": BallDPLinearDiscriminant(),
    "minimiser": BallDPLogisticRegression(mechanism="output", alpha=0.02),
    "descent": BallDPLogisticRegression(mechanism=GradientPerturbation(n_steps=8)),
    "weighted descent": BallDPSquaredHingeSVC(
        mechanism=GradientPerturbation(n_steps=8), class_weight={0: 3.0, 1: 0.5}
    ),
}


def people(n=400, d=6, seed=0):
    """Rows near their class, labels, and owners of 1 to 4 records."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = 0.3 * rng.standard_normal((n, d)) + 0.5 * np.eye(3, d)[y]
    return X / np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True)), y, rng.integers(0, 150, n)


@pytest.mark.parametrize(
    ("name", "noise"),
    [
        ("prototypes", "simulated"),
        ("prototypes", "mechanism"),
        ("discriminant", "simulated"),
        ("minimiser", "simulated"),
        ("descent", "mechanism"),
        ("weighted descent", "simulated"),
    ],
)
def test_an_audit_leaves_one_person_out(name, noise):
    X, y, groups = people()
    head = sklearn.clone(HEADS[name]).set_params(epsilon=20.0, delta=1e-4, radius=1.2)
    auditor = ReconstructionAuditor(head, n_candidates=4, n_draws=5, noise=noise, random_state=0)
    auditor.fit(X, y, groups=groups)
    assert auditor.guarantee_holds_
    assert auditor.estimator_.release_.unit == "person"
    trained = np.bincount(groups[auditor.training_rows_], minlength=150)
    sizes = trained[groups[auditor.supports_["anchor"]]]
    assert auditor.supports_["n_records"].tolist() == sizes.tolist()
    assert sizes.max() > 1
    assert (auditor.supports_["distance"] > 0.0).all()
    # Those who were held out are other persons.
    held = np.setdiff1d(np.arange(400), auditor.training_rows_)
    assert not set(groups[held]) & set(groups[auditor.training_rows_])
    assert 0.1 < len(held) / 400 <= 0.2


@pytest.mark.parametrize("by_class", [True, False])
def test_owners_are_held_out_one_by_one(by_class):
    """As long as they fit, and every class keeps a record; also of very many records."""
    for n in (400, 160_000):
        owners, y = np.random.default_rng(0).integers(n // 3, size=n), np.arange(n) % 4
        held = _hold_out_owners(owners, y, 0.2, by_class, np.random.default_rng(1))
        assert 0.19 < held.mean() <= 0.2
        assert not np.isin(owners[held], owners[~held]).any()
    # Owner 1 has all of class 1; the one who is drawn first has room alone.
    owners, y = np.repeat([0, 1, 2], 4), np.repeat([0, 1, 0], 4)
    for seed in range(20):
        held = _hold_out_owners(owners, y, 0.4, by_class, np.random.default_rng(seed))
        first = [o for o in np.random.default_rng(seed).permutation(3) if o != 1 or not by_class]
        assert np.flatnonzero(held).tolist() == np.flatnonzero(owners == first[0]).tolist()


@pytest.mark.parametrize("name", ["prototypes", "discriminant", "minimiser", "weighted descent"])
def test_posteriors_are_calibrated(name):
    """The best guess is right as often as its posterior says: likelihoods are those of sets."""
    X, y, groups = people()
    head = sklearn.clone(HEADS[name]).set_params(epsilon=100.0, delta=1e-4, radius=1.8)
    auditor = ReconstructionAuditor(
        head, n_candidates=3, n_supports=6, n_draws=14, noise="mechanism", random_state=1
    ).fit(X, y, groups=groups)
    report = auditor.report_
    # The mean posterior of the truth is the mean of the squared posteriors: above a third where
    # something is told, and each guess is right with its own posterior.
    assert report["posterior"].mean() > 0.36
    told = auditor.certificate_["bayes"]
    error = np.sqrt(told * (1 - told) / len(report))
    assert abs(auditor.success_rate_ - told) < 4.5 * error


def test_too_little_noise_for_a_person_is_found(monkeypatch):
    """A twentieth of the noise fails the audit."""
    groups = np.arange(300) // 3
    y = groups % 3
    # All of one person's candidates are near each other, so that the records move together.
    X = 0.2 * np.repeat(people(n=300)[0][::3], 3, axis=0)
    call = Noise.__call__
    monkeypatch.setattr(
        Noise, "__call__", lambda self, values, sigma: call(self, values, np.asarray(sigma) / 20.0)
    )
    head = BallDPRidgePrototype(epsilon=4.0, delta=1e-4, radius=0.4)
    auditor = ReconstructionAuditor(
        head, n_candidates=4, n_supports=6, n_draws=50, noise="mechanism", random_state=0
    )
    with pytest.warns(FailedGuaranteeWarning):
        auditor.fit(X, y, X_public=X + 0.01, y_public=y, groups=groups)
    assert not auditor.guarantee_holds_


def test_a_frozen_model_needs_the_owners():
    X, y, groups = people()
    head = BallDPRidgePrototype(epsilon=8.0, delta=1e-4, radius=1.2).fit(X, y, groups=groups)
    rng = np.random.default_rng(3)
    public = people(seed=5)[:2]
    auditor = ReconstructionAuditor(FrozenEstimator(head), n_candidates=4, random_state=0)
    found = auditor.fit(X, y, *public, groups=groups)
    assert found.guarantee_holds_
    assert set(found.noise_["verdict"]) == {"PASS"}
    for wrong in ({}, {"groups": rng.permutation(groups)}):
        with pytest.raises(ValueError, match="not those of the fit"):
            auditor.fit(X, y, *public, **wrong)
    with pytest.raises(ValueError, match="not of all of its records"):
        auditor.fit(X[:-1], y[:-1], *public, groups=groups[:-1])
    with pytest.raises(ValueError, match="groups must hold one value"):
        auditor.fit(X, y, *public, groups=groups[:-1])


def test_a_guess_is_near_where_all_records_are():
    rows = np.zeros((3, 2, 2))
    rows[1, 0, 0], rows[2, 1, 0] = 0.1, 5.0
    codes = np.array([[0, 1], [0, 1], [0, 1]])
    support = Support(0, rows, codes, codes, 3, np.arange(2))
    gaps = candidate_distances(support, "euclidean")
    np.testing.assert_allclose(gaps[0], [0.0, 0.1, 5.0])
    codes[1, 0] = 2
    assert candidate_distances(support, "euclidean")[0, 1] == np.inf


def test_the_posterior_of_one_transcript_is_for_records():
    X, y, groups = people()
    head = BallDPLogisticRegression(
        delta=1e-4, mechanism=GradientPerturbation(keep_transcript=True)
    ).fit(X, y, groups=groups)
    with pytest.raises(ValueError, match="owners or weights"):
        transcript_log_posterior(head, X[1:], y[1:], X[:5], y[:5])
