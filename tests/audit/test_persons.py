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
from sklearn_balldp.audit.preparation import hold_out
from sklearn_balldp.audit.supports import Support, candidate_distances

STEPS = GradientPerturbation(n_steps=3)


def people(n=400, d=6, seed=0):
    """Rows near their class, labels, and owners of 1 to 4 records."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    X = 0.3 * rng.standard_normal((n, d)) + 0.5 * np.eye(3, d)[y]
    return X / np.maximum(1.0, np.linalg.norm(X, axis=1, keepdims=True)), y, rng.integers(0, 150, n)


@pytest.mark.parametrize(
    ("head", "noise"),
    [
        (BallDPLinearDiscriminant(), "simulated"),
        (BallDPLogisticRegression(mechanism="output", alpha=0.02), "mechanism"),
        (BallDPSquaredHingeSVC(mechanism=STEPS), "mechanism"),
    ],
)
def test_an_audit_leaves_one_person_out(head, noise):
    """And its posteriors are calibrated: the best guess is right as often as they say."""
    X, y, groups = people()
    head = sklearn.clone(head).set_params(epsilon=100.0, delta=1e-4, radius=1.8)
    options = {"n_candidates": 3, "n_supports": 6, "n_draws": 10, "noise": noise}
    auditor = ReconstructionAuditor(head, random_state=1, **options).fit(X, y, groups=groups)
    assert auditor.guarantee_holds_
    assert auditor.estimator_.release_.unit == "person"
    trained = np.bincount(groups[auditor.training_rows_], minlength=150)
    sizes = trained[groups[auditor.supports_["anchor"]]]
    assert auditor.supports_["n_records"].tolist() == sizes.tolist()
    assert sizes.max() > 1
    # Those who were held out are other persons.
    held = np.setdiff1d(np.arange(400), auditor.training_rows_)
    assert not set(groups[held]) & set(groups[auditor.training_rows_])
    assert 0.1 < len(held) / 400 <= 0.2
    # The mean posterior of the truth is the mean of the squared posteriors: above a third where
    # something is told, and each guess is right with its own posterior.
    assert auditor.report_["posterior"].mean() > 0.36
    expected = auditor.certificate_["bayes"]
    error = np.sqrt(expected * (1 - expected) / len(auditor.report_))
    assert abs(auditor.success_rate_ - expected) < 4.5 * error


@pytest.mark.parametrize("by_class", [True, False])
def test_owners_are_held_out_one_by_one(by_class):
    """As long as they fit, and every class keeps a record; also of very many records."""
    for n in (400, 40_000):
        owners, y = np.random.default_rng(0).integers(n // 3, size=n), np.arange(n) % 4
        held = hold_out(y, owners, 0.2, by_class, np.random.default_rng(1))
        assert 0.19 < held.mean() <= 0.2
        assert not np.isin(owners[held], owners[~held]).any()
    owners = np.arange(40) // 2
    held = hold_out(owners % 4, owners, 0.9, by_class, np.random.default_rng(1))
    assert held.sum() == 32 + 4 * (not by_class)
    assert len(set((owners % 4)[~held])) == 4 or not by_class
    # Owner 1 has all of class 1; the one who is drawn first has room alone.
    owners, y = np.repeat([0, 1, 2], 4), np.repeat([0, 1, 0], 4)
    for seed in range(20):
        held = hold_out(y, owners, 0.4, by_class, np.random.default_rng(seed))
        first = [o for o in np.random.default_rng(seed).permutation(3) if o != 1 or not by_class]
        assert np.flatnonzero(held).tolist() == np.flatnonzero(owners == first[0]).tolist()


def test_a_frozen_model_needs_the_owners():
    X, y, groups = people()
    head = BallDPRidgePrototype(epsilon=8.0, delta=1e-4, radius=1.2).fit(X, y, groups=groups)
    public = people(seed=5)[:2]
    auditor = ReconstructionAuditor(FrozenEstimator(head), n_candidates=4, random_state=0)
    auditor.fit(X, y, *public, groups=groups)
    assert auditor.guarantee_holds_
    assert set(auditor.noise_["verdict"]) == {"PASS"}
    others = np.random.default_rng(3).permutation(groups)
    for rows, owners, match in [
        (slice(None), None, "not those of the fit"),
        (slice(None), others, "not those of the fit"),
        (slice(-1), groups[:-1], "fitted on 400: pass all records"),
        (slice(-1), groups, "groups must hold one value"),
    ]:
        with pytest.raises(ValueError, match=match):
            auditor.fit(X[rows], y[rows], *public, groups=owners)


def test_a_guess_is_near_where_all_records_are():
    rows, codes = np.zeros((3, 2, 2)), np.array([[0, 1]] * 3)
    rows[1, 0, 0], rows[2, 1, 0] = 0.1, 5.0
    support = Support(0, rows, codes, codes, 3, np.arange(2))
    gaps = candidate_distances(support, "euclidean")
    np.testing.assert_allclose(gaps[0], [0.0, 0.1, 5.0])
    codes[1, 0] = 2
    assert candidate_distances(support, "euclidean")[0, 1] == np.inf
