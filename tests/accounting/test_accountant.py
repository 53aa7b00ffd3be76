"""The accountant: every release is counted, wherever it is made, and limits hold.

Tests of randomness here reject correct code with probability below 1e-9 each.
"""

import contextlib
import copy
import json
import math
import multiprocessing
import os
import pickle
import shutil
import socket
import sqlite3
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.exceptions import FitFailedWarning, UnsetMetadataPassedError
from sklearn.feature_selection import RFECV, SequentialFeatureSelector
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    PredefinedSplit,
    ShuffleSplit,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_val_score,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    PrivacyAccountant,
    RadiusPolicy,
    ReconstructionAuditor,
    compose_releases,
)
from sklearn_balldp.accounting import ledger, tickets
from sklearn_balldp.accounting.accountant import NOT_COVERED
from sklearn_balldp.accounting.ledger import BudgetExceededError, OtherRelease, charged
from sklearn_balldp.accounting.searching import PrivateAccuracy
from sklearn_balldp.accounting.tickets import active_tickets
from sklearn_balldp.mechanisms import PrototypePerturbation, Sums
from sklearn_balldp.privacy.bounds import KINDS, Bound
from sklearn_balldp.privacy.gaussian import (
    compose,
    epsilon_from_mu,
    mu_from_budget,
    mu_from_pure,
)
from sklearn_balldp.privacy.noise import SEEDED_SAMPLER, Noise

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 4))
X /= np.linalg.norm(X, axis=1, keepdims=True)
Y = np.arange(120) % 3
HEAD = BallDPRidgePrototype(epsilon=1.0, radius=0.5)
FITTED = clone(HEAD).fit(X, Y)


def fit_inside(epsilon):
    """A head made and fitted where this function runs."""
    return BallDPRidgePrototype(epsilon, radius=0.5).fit(X, Y).release_.epsilon


def search(head=HEAD, **options):
    options = {"cv": 5, "n_jobs": None} | options
    grid = {"alpha": [0.01, 0.1, 1.0]}
    return GridSearchCV(head, grid, **options)


@pytest.mark.parametrize("backend", [None, "threading", "loky", "multiprocessing"])
def test_a_search_is_counted_everywhere(backend):
    with PrivacyAccountant(radius=0.5) as accountant:
        if backend is None:
            found = search().fit(X, Y)
        else:
            with joblib.parallel_config(backend, n_jobs=2):
                found = search(n_jobs=2).fit(X, Y)
    total = accountant.total()
    assert total.n_releases == 16
    mu = mu_from_budget(1.0, 1e-6)
    assert total.mu == pytest.approx(4 * mu, rel=1e-9)
    assert total.epsilon == pytest.approx(epsilon_from_mu(4 * mu, 1e-6), rel=1e-8)
    assert total.kind == "ex post"
    assert total.private is True
    assert total.selection is None
    tighter = accountant.total(search=found)
    assert tighter.mu == pytest.approx(math.sqrt(13) * mu, rel=1e-9)
    assert tighter.n_releases == 16
    assert tighter.selection == "unprotected"
    assert accountant.total(search=found, scored_on="public").selection == "public"
    # Other radii: each release's own sensitivity there.
    mus = [release.guarantee(1.3).mu for release in accountant.releases]
    assert accountant.total(1.3).mu == pytest.approx(compose(mus), rel=1e-9)
    assert accountant.total(1.3).radius == 1.3


def test_full_radius_by_default():
    with PrivacyAccountant() as accountant:
        HEAD.fit(X, Y)
    total = accountant.total()
    assert total.radius == 2.0
    assert total.mu == pytest.approx(HEAD.release_.guarantee(2.0).mu)
    assert total.epsilon == pytest.approx(HEAD.release_.epsilon_full_radius)


def test_heads_made_by_threads_are_counted():
    with PrivacyAccountant(radius=0.5) as accountant:
        joblib.Parallel(2, "threading")(joblib.delayed(fit_inside)(1.0 + i) for i in range(6))
    assert accountant.total().n_releases == 6
    assert accountant.total().mu == pytest.approx(
        compose(mu_from_budget(1.0 + i, 1e-6) for i in range(6))
    )
    assert active_tickets() == ()


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_wrappers_that_clone_are_counted(n_jobs):
    pipeline = make_pipeline(Normalizer(), HEAD)
    vote = VotingClassifier([("a", pipeline), ("b", clone(HEAD))], n_jobs=n_jobs)
    with PrivacyAccountant(radius=0.5) as accountant:
        cross_val_score(vote, X, Y, cv=3, n_jobs=n_jobs)
    assert accountant.total().n_releases == 6
    with PrivacyAccountant(radius=0.5) as accountant:
        auditor = ReconstructionAuditor(clone(HEAD), n_candidates=2, n_supports=1, radius=1.5)
        cross_val_score(auditor, X, Y, cv=2, n_jobs=n_jobs)
    # Audits solve and simulate; what they release is one head each.
    assert accountant.total().n_releases == 2


# Limits -----------------------------------------------------------------------------------------


def test_over_the_limit_nothing_is_fitted(monkeypatch):
    summed, values = [], Sums.values
    monkeypatch.setattr(Sums, "values", lambda *given: summed.append(1) or values(*given))
    mu = mu_from_budget(1.0, 1e-6)
    limit = epsilon_from_mu(math.sqrt(3.5) * mu, 1e-6)
    with PrivacyAccountant(radius=0.5, limit=limit) as accountant:
        for _ in range(3):
            clone(HEAD).fit(X, Y)
        head = clone(HEAD)
        with pytest.raises(BudgetExceededError, match=r"above limit.* 3 release"):
            head.fit(X, Y)
        assert not hasattr(head, "release_")
        assert len(summed) == 3
        # A cheaper one still fits in.
        BallDPRidgePrototype(epsilon=0.3, radius=0.5).fit(X, Y)
    total = accountant.total()
    assert total.n_releases == 4
    assert total.epsilon <= limit
    assert total.kind == "a priori"
    assert total.limit == limit


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_workers_together_keep_the_limit(backend):
    mu = mu_from_budget(1.0, 1e-6)
    limit = epsilon_from_mu(math.sqrt(5.5) * mu, 1e-6)
    with (
        PrivacyAccountant(radius=0.5, limit=limit) as accountant,
        joblib.parallel_config(backend, n_jobs=4),
        pytest.warns(Warning, match="fits failed"),
    ):
        scores = cross_val_score(HEAD, X, Y, cv=12, error_score=np.nan)
    assert accountant.total().n_releases == 5
    assert np.isfinite(scores).sum() == 5


def test_the_limit_is_in_gaussian_terms():
    """Which way of adding up is better may not be chosen after the fact."""
    gaussian, pure = mu_from_budget(1.0, 1e-6), 0.5
    both = compose([gaussian, mu_from_pure(pure)])
    limit = epsilon_from_mu(both, 1e-6)
    # Basic composition would need less, and is what a total states.
    assert 1.0 + pure < limit
    with PrivacyAccountant(limit=0.99 * limit) as accountant:
        with charged(OtherRelease("radius", epsilon=pure)):
            pass
        with pytest.raises(BudgetExceededError), charged(OtherRelease("score", mu=gaussian)):
            raise AssertionError("released beyond the limit")
    assert accountant.total().n_releases == 1
    with (
        PrivacyAccountant(limit=1.01 * limit) as accountant,
        charged(OtherRelease("radius", epsilon=pure)),
        charged(OtherRelease("score", mu=gaussian)),
    ):
        pass
    assert accountant.total().epsilon == pytest.approx(1.0 + pure, rel=1e-6)


def test_a_failed_fit_is_not_counted():
    spoiled = X.copy()
    spoiled[3, 1] = np.nan
    with PrivacyAccountant(radius=0.5) as accountant:
        with pytest.raises(ValueError, match="NaN"):
            clone(HEAD).fit(spoiled, Y)
        assert accountant.total().n_releases == 0
        clone(HEAD).fit(X, Y)
    assert accountant.total().n_releases == 1


def test_accountants_nest_and_go_on():
    with PrivacyAccountant(radius=0.5) as outer:
        clone(HEAD).fit(X, Y)
        with PrivacyAccountant(radius=0.5, limit=1.01) as inner:
            clone(HEAD).fit(X, Y)
            with pytest.raises(BudgetExceededError):
                clone(HEAD).fit(X, Y)
        # What the inner one refused, the outer one does not count.
        assert inner.total().n_releases == 1
        assert outer.total().n_releases == 2
    with outer:
        clone(HEAD).fit(X, Y)
        with pytest.raises(RuntimeError, match="active already"):
            outer.__enter__()
    assert outer.total().n_releases == 3
    clone(HEAD).fit(X, Y)
    assert outer.total().n_releases == 3
    assert "3 release(s)" in repr(outer)


def test_an_empty_accountant():
    with PrivacyAccountant() as accountant:
        LogisticRegression().fit(X, Y)
    total = accountant.total()
    assert (total.n_releases, total.mu, total.epsilon) == (0, 0.0, 0.0)


# What is no common guarantee --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (BallDPRidgePrototype(radius=0.5, metric="manhattan"), "metric"),
        (BallDPRidgePrototype(radius=0.5, norm_bound=2.0), "norm_bound"),
        (BallDPLinearDiscriminant(radius=0.5, domain="sphere"), "domain"),
        (BallDPRidgePrototype(radius=0.5, protect_labels=True, classes=[0, 1, 2]), "labels"),
    ],
)
def test_different_adjacencies_are_refused(other, name):
    with PrivacyAccountant(radius=0.5) as accountant:
        clone(HEAD).fit(X, Y)
        with pytest.raises(ValueError, match=f"differ in {name}"):
            other.fit(X, Y)
        assert not hasattr(other, "release_")
    assert accountant.total().n_releases == 1


def test_different_encoders_are_refused():
    with PrivacyAccountant(radius=0.5):
        clone(HEAD).fit(X, Y)
        with pytest.raises(ValueError, match="differ in n_features"):
            clone(HEAD).fit(X[:, :3], Y)


def test_declared_encoders_must_agree():
    """Rows scaled by four have radii four times as long: what heads declare is compared."""

    def head(encoder):
        return BallDPRidgePrototype(1.0, radius=0.5, encoder=encoder)

    # None declares nothing, and hides no disagreement of those that do.
    with PrivacyAccountant(radius=0.5, limit=50.0) as accountant:
        for name in (None, "minilm", None, "minilm"):
            head(name).fit(X, Y)
        for name in ("minilm, times 4", ""):
            with pytest.raises(ValueError, match="differ in encoder"):
                head(name).fit(X, Y)
        head(None).fit(X, Y)
    releases = accountant.releases
    assert [r.encoder for r in releases] == [None, "minilm", None, "minilm", None]
    assert "encoder minilm" in str(releases[1])
    assert compose_releases([json.loads(json.dumps(r.to_dict())) for r in releases]).n_releases == 5
    other = replace(releases[0], encoder="resnet")
    for order in ([releases[0], releases[1], other], [other, releases[2], releases[1]]):
        with pytest.raises(ValueError, match="differ in encoder"):
            compose_releases(order)
    with pytest.raises(ValueError, match="encoder must be a string"):
        head(3).fit(X, Y)


def test_what_is_made_by_hand_is_counted():
    mu = mu_from_budget(1.0, 1e-6)
    outer = PrivacyAccountant(radius=0.5)
    with pytest.raises(RuntimeError, match="not active"):
        outer.spend(mu=mu, what="histogram")
    with outer, PrivacyAccountant(radius=0.5, limit=1.5) as accountant:
        clone(HEAD).fit(X, Y)
        accountant.spend(mu=0.5 * mu, what="histogram")
        with pytest.raises(BudgetExceededError):
            accountant.spend(mu=mu, what="another")
        for bad in (0.0, -1.0, np.nan, np.inf, "1"):
            with pytest.raises(ValueError, match="mu must be a positive number"):
                accountant.spend(mu=bad, what="histogram")
        with pytest.raises(ValueError, match="what must name"):
            accountant.spend(mu=mu, what="")
    for counted in (accountant, outer):
        assert counted.total().mu == pytest.approx(math.hypot(mu, 0.5 * mu))
        assert [r.what for r in counted.records if isinstance(r, OtherRelease)] == ["histogram"]


def test_a_seeded_release_counts_as_infinite():
    seeded = BallDPRidgePrototype(radius=0.5, random_state=0)
    with PrivacyAccountant(radius=0.5) as accountant:
        seeded.fit(X, Y)
    total = accountant.total()
    assert total.epsilon == total.mu == math.inf
    assert total.private is False
    with PrivacyAccountant(radius=0.5, limit=100.0), pytest.raises(BudgetExceededError):
        clone(seeded).fit(X, Y)


def test_private_radii_are_counted_where_they_are_drawn():
    policy = RadiusPolicy(source="private", epsilon=0.5)
    with PrivacyAccountant(radius=0.2) as accountant:
        frozen = FrozenEstimator(clone(policy).fit(X, Y))
        heads = [BallDPRidgePrototype(1.0, radius=frozen).fit(X, Y) for _ in range(3)]
    total = accountant.total()
    assert total.n_releases == 4
    mus = [head.release_.guarantee(0.2).mu for head in heads]
    # Once, though each release states it.
    assert total.mu == pytest.approx(compose([*mus, mu_from_pure(0.5)]))
    summed = epsilon_from_mu(compose(mus), 1e-6) + 0.5
    assert total.epsilon == pytest.approx(min(summed, epsilon_from_mu(total.mu, 1e-6)))
    with PrivacyAccountant(radius=0.2) as accountant:
        for _ in range(3):
            BallDPRidgePrototype(1.0, radius=policy).fit(X, Y)
    assert [r.what for r in accountant.records if isinstance(r, OtherRelease)] == ["radius"] * 3
    seeded = RadiusPolicy(source="private", epsilon=0.5, random_state=0)
    with PrivacyAccountant(radius=0.2) as accountant:
        seeded.fit(X, Y)
    assert accountant.total().epsilon == math.inf


def test_declared_radii_are_conditional():
    with PrivacyAccountant(radius=0.2) as accountant:
        BallDPRidgePrototype(1.0, radius=RadiusPolicy(source="declared")).fit(X, Y)
    assert accountant.total().private == "conditional"


def test_compose_releases_from_json():
    releases = [
        BallDPRidgePrototype(1.0, radius=0.5).fit(X, Y).release_,
        BallDPLogisticRegression(2.0, radius=0.9, mechanism="output").fit(X, Y).release_,
    ]
    texts = [json.loads(json.dumps(release.to_dict())) for release in releases]
    for radius in (0.3, 0.9, None):
        total = compose_releases(texts, radius=radius, delta=1e-7)
        mus = [release.guarantee(radius or 2.0).mu for release in releases]
        assert total.mu == pytest.approx(compose(mus), rel=1e-9)
        assert total.epsilon == pytest.approx(epsilon_from_mu(compose(mus), 1e-7))
        assert total.kind == "ex post"
    mu = compose([releases[0].guarantee(0.5).mu] * 2)
    spent_on_radius = {"radius_source": "private", "radius_epsilon": 0.5}
    for draws, spent in ((("a", "b"), 1.0), (("a", "a"), 0.5)):
        # A private radius that two releases share was drawn, and is spent, once.
        drawn = [replace(releases[0], **spent_on_radius, radius_draw=draw) for draw in draws]
        total = compose_releases(drawn, radius=0.5)
        assert total.epsilon == pytest.approx(epsilon_from_mu(mu, 1e-6) + spent)
    with pytest.raises(ValueError, match="seed"):
        compose_releases([replace(releases[0], sampler=SEEDED_SAMPLER)])
    with pytest.raises(ValueError, match="empty"):
        compose_releases([])
    other = replace(releases[0].problem, metric="manhattan")
    with pytest.raises(ValueError, match="differ in metric"):
        compose_releases([releases[0], replace(releases[0], problem=other)])


# Searches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cv", "match"),
    [(ShuffleSplit(5, random_state=0), "may overlap"), (KFold(4), "16 releases")],
)
def test_searches_that_are_not_understood(cv, match):
    with PrivacyAccountant(radius=0.5) as accountant:
        found = search().fit(X, Y)
    found.cv = cv
    found.n_splits_ = 4 if isinstance(cv, KFold) else 5
    with pytest.raises(ValueError, match=match):
        accountant.total(search=found)
    with pytest.raises(ValueError, match="fitted"):
        accountant.total(search=search())
    with pytest.raises(ValueError, match="scored_on"):
        accountant.total(search=found, scored_on="test")


def test_folds_of_a_search_must_keep_persons_together():
    groups = np.arange(len(Y)) // 3
    parameters = {"epsilon": [0.5, 1.0]}
    with sklearn.config_context(enable_metadata_routing=True):
        head = clone(HEAD).set_fit_request(groups=True)
        for cv in (KFold(4), GroupKFold(4)):
            with PrivacyAccountant(radius=0.5) as accountant:
                found = GridSearchCV(head, parameters, cv=cv).fit(X, Y, groups=groups)
            if isinstance(cv, GroupKFold):
                assert accountant.total(search=found).mu < accountant.total().mu
                assert accountant.total().unit == "person"
                continue
            with pytest.raises(ValueError, match="records of one person into several folds"):
                accountant.total(search=found)
        # The head is given its owners, and the splitter another column.
        splitter = GroupKFold(4).set_split_request(groups="session")
        with PrivacyAccountant(radius=0.5) as accountant:
            found = GridSearchCV(head, parameters, cv=splitter)
            found.fit(X, Y, groups=groups, session=np.arange(len(Y)))
        with pytest.raises(ValueError, match="may be by others than the owners"):
            accountant.total(search=found)


def test_owners_that_reach_no_head_are_missed():
    """Without metadata routing a search keeps ``groups`` for its splitter."""
    groups, grid = np.arange(len(Y)) // 3, {"epsilon": [0.5, 1.0]}
    with PrivacyAccountant(radius=0.5) as accountant:
        found = GridSearchCV(HEAD, grid, cv=GroupKFold(4)).fit(X, Y, groups=groups)
    assert "NOT known: no fit was given groups=" in str(accountant.total())
    with pytest.warns(UserWarning, match="each release hides one record") as caught:
        accountant.total(search=found)
    assert caught[0].filename == __file__
    # An accountant that counts persons lets no such fit begin.
    by_person = PrivacyAccountant(radius=0.5, unit="person")
    with by_person, pytest.raises(ValueError, match="was given no groups="):
        GridSearchCV(HEAD, grid, cv=GroupKFold(4), error_score="raise").fit(X, Y, groups=groups)
    with by_person, pytest.raises(ValueError, match="hides one record"):
        RadiusPolicy(source="private", epsilon=1.0).fit(X, Y)
    assert not by_person.records
    with sklearn.config_context(enable_metadata_routing=True):
        # With routing, scikit-learn asks what becomes of them.
        with by_person, pytest.raises(UnsetMetadataPassedError, match="set_fit_request"):
            GridSearchCV(HEAD, grid, cv=GroupKFold(4)).fit(X, Y, groups=groups)
        head = clone(HEAD).set_fit_request(groups=True)
        with by_person:
            found = GridSearchCV(head, grid, cv=GroupKFold(4)).fit(X, Y, groups=groups)
    assert by_person.total(search=found).unit == "person"
    assert "all records of a person are hidden together" in str(by_person.total())
    with PrivacyAccountant(unit="record"), pytest.raises(ValueError, match="was given groups="):
        clone(HEAD).fit(X, Y, groups=groups)


def test_different_candidates_drop_the_least_costly():
    with PrivacyAccountant(radius=0.5) as accountant:
        found = GridSearchCV(HEAD, {"epsilon": [0.5, 1.0, 2.0]}, cv=KFold(4), refit=False)
        found.fit(X, Y)
    mus = np.repeat([mu_from_budget(e, 1e-6) for e in (0.5, 1.0, 2.0)], 4)
    assert accountant.total().mu == pytest.approx(compose(mus), rel=1e-9)
    # A record is left out of one fit of each candidate.
    truth = compose([*mus[1:4], *mus[5:8], *mus[9:12]])
    assert accountant.total(search=found, n_samples=120).mu == pytest.approx(truth, rel=1e-9)
    with pytest.raises(ValueError, match="pass n_samples"):
        accountant.total(search=found)


def test_candidates_that_no_record_tells_apart_drop_the_least_costly_of_all():
    """A nested radius is not in the candidate as a number: any fit may be anyone's."""
    grid = {"radius": [0.5, None]}
    with PrivacyAccountant(radius=0.5) as accountant:
        found = GridSearchCV(HEAD, grid, cv=KFold(4), refit=False).fit(X, Y)
    mus = sorted(release.guarantee(0.5).mu for release in accountant.releases)
    assert mus[3] < 0.5 * mus[4]
    total = accountant.total(search=found, n_samples=120)
    assert total.mu == pytest.approx(compose(mus[2:]), rel=1e-9)


@pytest.mark.parametrize("refit", [False, True])
def test_other_fits_of_the_right_number_are_refused(refit):
    """What was fitted on all the records touches each of them: no fit leaves one out."""
    found = GridSearchCV(HEAD, {"epsilon": [1.0, 2.0]}, cv=KFold(5), refit=refit).fit(X, Y)
    n_fits = 10 + refit
    sizes = {
        "all": [120] * n_fits,
        "another split": [60] * 5 + [96] * 5 + [120] * refit,
        "larger folds": [100] * 10 + [120] * refit,
        "a subset refitted": [96] * 10 + [96] * refit if refit else [95] * 10,
    }
    for name, rows in sizes.items():
        with PrivacyAccountant(radius=0.5) as accountant:
            for n in rows:
                BallDPRidgePrototype(1.0, radius=0.5).fit(X[:n], Y[:n])
        with pytest.raises(ValueError, match="other fits"):
            accountant.total(search=found, n_samples=120)
        assert accountant.total().n_releases == n_fits, name


@pytest.mark.parametrize("n", [118, 120])
def test_folds_of_different_sizes_are_understood(n):
    with PrivacyAccountant(radius=0.5) as accountant:
        found = search(cv=KFold(5)).fit(X[:n], Y[:n])
    assert accountant.total(search=found).n_releases == 16
    assert len({r.n_samples for r in accountant.releases}) == (3 if n == 118 else 2)


def test_protected_labels_refuse_stratified_splits():
    head = BallDPRidgePrototype(radius=0.5, protect_labels=True, classes=[0, 1, 2])
    for cv in (5, StratifiedKFold(5)):
        with PrivacyAccountant(radius=0.5) as accountant:
            found = search(head, cv=cv).fit(X, Y)
        with pytest.raises(ValueError, match=r"splits by labels.*KFold"):
            accountant.total(search=found)
    with PrivacyAccountant(radius=0.5) as accountant:
        found = search(head, cv=KFold(5)).fit(X, Y)
    assert accountant.total(search=found).labels == "protected"


def test_private_scores_protect_the_selection():
    scorer = PrivateAccuracy(epsilon=0.5)
    with PrivacyAccountant(radius=0.5) as accountant:
        found = search(scoring=scorer).fit(X, Y)
    total = accountant.total(search=found)
    assert total.selection == "private"
    assert total.n_releases == 16 + 15
    fits, scores = mu_from_budget(1.0, 1e-6), mu_from_budget(0.5, 1e-6)
    assert accountant.total().mu == pytest.approx(compose([fits] * 16 + [scores] * 15), rel=1e-9)
    # A record is trained on in four folds of five, and scored in the fifth.
    assert total.mu == pytest.approx(compose([fits] * 13 + [scores] * 3), rel=1e-9)
    leaking = search(scoring=scorer, return_train_score=True)
    with PrivacyAccountant(radius=0.5) as accountant:
        leaking.fit(X, Y)
    assert accountant.total(search=leaking).selection == "unprotected"


def test_private_accuracy_law():
    model = FITTED
    exact = model.score(X, Y)
    scorer = PrivateAccuracy(epsilon=1.0)
    draws = np.array([scorer(model, X, Y) for _ in range(600)])
    sigma = 1 / (len(X) * mu_from_budget(1.0, 1e-6))
    # Six and a half standard errors of a normal mean and standard deviation.
    assert abs(draws.mean() - exact) < 6.5 * sigma / math.sqrt(600)
    assert abs(draws.std() / sigma - 1) < 6.5 / math.sqrt(1200)
    assert "PrivateAccuracy(epsilon=1.0" in repr(scorer)
    with pytest.raises(ValueError, match="epsilon"):
        PrivateAccuracy(epsilon=-1.0)
    seeded = PrivateAccuracy(epsilon=1.0, random_state=0)
    with PrivacyAccountant() as accountant:
        seeded(model, X, Y)
    assert accountant.total().epsilon == math.inf


# Nothing stays behind ---------------------------------------------------------------------------


def test_pickles_of_fitted_heads_know_no_accountant():
    plain = pickle.dumps(clone(HEAD))
    with PrivacyAccountant() as accountant:
        fitted = clone(HEAD).fit(X, Y)
        assert b"accountant" not in pickle.dumps(fitted)
        nested = BallDPRidgePrototype(1.0, radius=RadiusPolicy(source="declared")).fit(X, Y)
        assert b"accountant" not in pickle.dumps(nested)
        assert isinstance(pickle.loads(pickle.dumps(nested)).radius, RadiusPolicy)
        for holder in (nested, copy.copy(nested), copy.deepcopy(nested)):
            assert not hasattr(holder.radius, "_plain")
        assert b"accountant" in pickle.dumps(clone(HEAD))
        again = copy.deepcopy(clone(HEAD)).fit(X, Y)
        assert not any("accountant" in name for name in vars(again))
    assert accountant.total(0.3).n_releases == 3
    assert pickle.dumps(clone(HEAD)) == plain


def test_an_accountant_has_no_copies():
    accountant = PrivacyAccountant()
    for copying in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="copied or pickled"):
            copying(accountant)


def test_another_machine_is_refused(monkeypatch):
    """Sent where its accountant cannot count, an estimator is not fitted; others are."""
    with PrivacyAccountant():
        sent = pickle.dumps(clone(HEAD))
        policy = pickle.dumps(RadiusPolicy(source="private", epsilon=1.0))
        scorer = pickle.dumps(PrivateAccuracy(1.0))
    monkeypatch.setattr(tickets.socket, "gethostname", lambda: "elsewhere")
    head = pickle.loads(sent)
    with pytest.raises(RuntimeError, match="another machine"):
        head.fit(X, Y)
    with pytest.raises(RuntimeError, match="another machine"):
        pickle.loads(policy).fit(X, Y)
    # Nor is a clone, which a search, a vote or one-versus-rest would fit there.
    for model in (clone(head), search(head), OneVsRestClassifier(head)):
        with pytest.raises(RuntimeError, match="another machine"):
            model.set_params(**({"error_score": "raise"} if hasattr(model, "cv") else {})).fit(X, Y)
    with pytest.raises(RuntimeError, match="another machine"):
        pickle.loads(scorer)(FITTED, X, Y)
    clone(HEAD).fit(X, Y)
    assert b"accountant" not in pickle.dumps(clone(HEAD))


# Everything that once escaped ---------------------------------------------------------------------


def score_inside(scorer, model):
    return scorer(model, X, Y)


METHODS = sorted({"fork", "spawn"} & {*multiprocessing.get_all_start_methods()})


def refit_inside(head):
    return head.fit(X, Y).release_.epsilon


@pytest.mark.parametrize("when", ["before", "inside"])
@pytest.mark.parametrize("method", METHODS)
def test_pools_of_the_standard_library(method, when):
    """Whatever is sent unfitted is counted, in workers from before the block as well."""
    context, model = multiprocessing.get_context(method), FITTED
    pool = None
    try:
        if when == "before":
            pool = ProcessPoolExecutor(1, mp_context=context)
            pool.submit(abs, 1).result()
        with PrivacyAccountant(radius=0.5) as accountant:
            pool = pool or ProcessPoolExecutor(1, mp_context=context)
            pool.submit(refit_inside, clone(HEAD)).result()
            pool.submit(score_inside, PrivateAccuracy(1.0), model).result()
            assert accountant.total().n_releases == 2
        pool.submit(refit_inside, clone(HEAD)).result()
    finally:
        if pool is not None:
            pool.shutdown()
    assert accountant.total().n_releases == 2


def fit_after_a_move(head, folder):
    tempfile.tempdir = folder
    try:
        return head.fit(X, Y).release_.epsilon
    finally:
        tempfile.tempdir = None


@pytest.mark.parametrize("method", METHODS)
def test_a_folder_of_temporary_files_that_moves_hides_no_fit(method, tmp_path):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        pool.submit(abs, 1).result()
        with PrivacyAccountant(radius=0.5) as accountant:
            pool.submit(fit_after_a_move, clone(HEAD), str(tmp_path)).result()
            fit_after_a_move(clone(HEAD), str(tmp_path))
            assert accountant.total().n_releases == 2
            # The end finds its ledger too.
            tempfile.tempdir, ledger_of_it = str(tmp_path), accountant._ticket.path
    tempfile.tempdir = None
    assert accountant.total().n_releases == 2
    assert not os.path.exists(ledger_of_it)


def test_a_search_with_private_scores_can_be_cloned():
    scorer = clone(search(scoring=PrivateAccuracy(0.5))).scoring
    assert (scorer.epsilon, scorer.mu) == (0.5, PrivateAccuracy(0.5).mu)


def test_scores_alone_carry_the_ticket_too():
    model = FITTED
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with PrivacyAccountant(radius=0.5) as accountant:
            pool.submit(score_inside, PrivateAccuracy(1.0), model).result()
        assert accountant.total().n_releases == 1


def test_no_pickle_names_the_machine(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "name-of-this-machine")
    with PrivacyAccountant():
        sent = pickle.dumps(clone(HEAD))
        assert b"accountant" in sent
        assert b"name-of-this-machine" not in sent


def test_a_lost_ledger_stops_releases():
    accountant = PrivacyAccountant(radius=0.5, limit=1.01)
    accountant.__enter__()
    shutil.rmtree(Path(accountant._ticket.path).parent)
    with pytest.raises(RuntimeError, match="ledger of an active accountant is gone"):
        clone(HEAD).fit(X, Y)
    with pytest.raises(sqlite3.OperationalError):
        accountant.__exit__(None, None, None)
    assert active_tickets() == ()
    clone(HEAD).fit(X, Y)
    # It must not begin anew, as if nothing had been released.
    assert "lost" in repr(accountant)
    for ask in (accountant.total, accountant.__enter__, lambda: accountant.records):
        with pytest.raises(RuntimeError, match="ledger was lost"):
            ask()


@dataclass(frozen=True)
class ElsewhereBound(Bound):
    """A bound of a module that a reader may not have."""

    sigma: float

    def mu_at(self, problem, radius, labels):
        return radius / self.sigma


def test_a_record_that_cannot_be_read_here_is_not_lost(monkeypatch):
    """Its bound is defined where it was made: nothing is forgotten, and the limit counts it."""
    release = clone(HEAD).fit(X, Y).release_
    mu = mu_from_budget(1.0, 1e-6)
    other = replace(release, head="Own", mechanism="elsewhere", bound=ElsewhereBound(0.5 / mu))
    accountant = PrivacyAccountant(radius=0.5, limit=epsilon_from_mu(1.5 * mu, 1e-6))
    with accountant, charged(other):
        pass
    with monkeypatch.context() as patch:
        patch.delitem(KINDS, other.to_dict()["bound"]["type"])
        with pytest.raises(ValueError, match=f"import {__name__}, which defines it"):
            accountant.total()
        with accountant:
            clone(HEAD).fit(X, Y)
            with pytest.raises(BudgetExceededError):
                clone(HEAD).fit(X, Y)
    assert accountant.total().n_releases == 2
    assert accountant.total().mu == pytest.approx(math.sqrt(2) * mu, rel=1e-6)


def test_a_forked_child_ends_nothing():
    with PrivacyAccountant(radius=0.5) as accountant:
        child = os.fork()
        if child == 0:
            try:
                # A head of the child's own is counted: it has its parent's tickets.
                clone(HEAD).fit(X, Y)
                accountant.__exit__(None, None, None)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        clone(HEAD).fit(X, Y)
    assert accountant.total().n_releases == 2


def test_a_fit_that_comes_too_late_is_refused():
    """Charged after the last reading of the ledger, a release would be lost."""
    with PrivacyAccountant(radius=0.5) as accountant:
        ticket = accountant._ticket
        assert ledger.Ledger(ticket.path).close() == []
        with pytest.raises(RuntimeError, match="ended, or could not be reached"):
            clone(HEAD).fit(X, Y)
        ledger.Ledger(ticket.path).create()


def test_private_radii_and_protected_labels_do_not_mix():
    protected = BallDPRidgePrototype(radius=0.5, protect_labels=True, classes=[0, 1, 2])
    policy = RadiusPolicy(source="private", epsilon=0.5)
    with PrivacyAccountant(radius=0.5):
        clone(policy).fit(X, Y)
        with pytest.raises(ValueError, match="protect labels"):
            clone(protected).fit(X, Y)
    with PrivacyAccountant(radius=0.5):
        clone(protected).fit(X, Y)
        with pytest.raises(ValueError, match="protect labels"):
            clone(policy).fit(X, Y)
        PrivateAccuracy(1.0)(FITTED, X, Y)


def test_a_limit_is_a_priori_where_it_was_enforced():
    with PrivacyAccountant(radius=0.5, limit=2.0) as accountant:
        clone(HEAD).fit(X, Y)
    assert accountant.total(0.3).kind == "a priori"
    further = accountant.total(2.0)
    assert (further.kind, further.limit) == ("ex post", None)
    for name in ("limit", "radius", "delta"):
        with pytest.raises(AttributeError):
            setattr(accountant, name, 1.0)


def test_radii_drawn_before_the_block_count_once():
    frozen = FrozenEstimator(RadiusPolicy(source="private", epsilon=0.5).fit(X, Y))
    with PrivacyAccountant() as accountant:
        heads = [BallDPRidgePrototype(1.0, radius=frozen).fit(X, Y) for _ in range(2)]
    mus = [head.release_.guarantee(2.0).mu for head in heads]
    expected = compose([*mus, mu_from_pure(0.5)])
    assert accountant.total().mu == pytest.approx(expected)
    assert compose_releases([head.release_ for head in heads]).mu == pytest.approx(expected)
    # The limit knows it too.
    limit = epsilon_from_mu(compose([mus[0], 0.5 * mu_from_pure(0.5)]), 1e-6)
    with PrivacyAccountant(limit=limit), pytest.raises(BudgetExceededError):
        BallDPRidgePrototype(1.0, radius=frozen).fit(X, Y)


def test_a_failed_fit_does_not_take_back_a_radius_that_others_rest_on(monkeypatch):
    """Two fits under way at once rest on one private radius, drawn before; the first fails."""
    frozen = FrozenEstimator(RadiusPolicy(source="private", epsilon=0.25).fit(X, Y))
    # The drawn radius may be any: there is room for two fits at once, and not for three.
    own = BallDPRidgePrototype(0.5, radius=frozen).fit(X, Y).release_.guarantee(2.0).mu
    pure = mu_from_pure(0.25)
    limit = epsilon_from_mu(math.sqrt(2.5 * own**2 + pure**2), 1e-6)
    with PrivacyAccountant(limit=limit) as accountant:
        release = BallDPRidgePrototype(0.5, radius=frozen).fit(X, Y).release_
        assert release.guarantee(2.0).mu == pytest.approx(own)
        values = Sums.values

        def late(*arguments):
            # Another fit ends while this one is under way.
            monkeypatch.setattr(Sums, "values", values)
            BallDPRidgePrototype(0.5, radius=frozen).fit(X, Y)
            raise OSError("the disk is full")

        for number in accountant._counted():
            assert number[1] == pytest.approx(release.guarantee(2.0).mu ** 2)
        ledger.Ledger(accountant._ticket.path).remove(1)
        monkeypatch.setattr(Sums, "values", late)
        with pytest.raises(OSError, match="disk"):
            BallDPRidgePrototype(0.5, radius=frozen).fit(X, Y)
        assert ledger.square_of(accountant._counted()) == pytest.approx(own**2 + pure**2)
        left = mu_from_budget(limit, 1e-6) ** 2 - own**2 - pure**2
        assert accountant.remaining() == pytest.approx(epsilon_from_mu(math.sqrt(left), 1e-6))
        with contextlib.suppress(BudgetExceededError):
            while True:
                BallDPRidgePrototype(0.5, radius=frozen).fit(X, Y)
    assert accountant.total().mu <= mu_from_budget(limit, 1e-6)


def test_a_radius_that_is_stated_twice_counts_by_the_larger():
    frozen = FrozenEstimator(RadiusPolicy(source="private", epsilon=0.5).fit(X, Y))
    release = BallDPRidgePrototype(1.0, radius=frozen).fit(X, Y).release_
    less = replace(release, radius_epsilon=0.01)
    totals = [compose_releases(pair).mu for pair in ([release, less], [less, release])]
    assert totals[0] == totals[1] == compose_releases([release, release]).mu


def test_private_radii_and_persons_do_not_mix():
    head = BallDPRidgePrototype(radius=0.5)
    for first in (True, False):
        with PrivacyAccountant(radius=0.5):
            if first:
                RadiusPolicy(source="private", epsilon=1.0).fit(X, Y)
                with pytest.raises(ValueError, match="hides one record"):
                    head.fit(X, Y, groups=np.arange(120) // 2)
            else:
                head.fit(X, Y, groups=np.arange(120) // 2)
                with pytest.raises(ValueError, match="hides one record"):
                    RadiusPolicy(source="private", epsilon=1.0).fit(X, Y)


def test_a_declared_policy_alone_is_conditional():
    with PrivacyAccountant() as accountant:
        RadiusPolicy(source="declared").fit(X, Y)
    assert accountant.total().private == "conditional"


def test_policies_sent_to_workers_are_counted():
    policy = RadiusPolicy(source="private", epsilon=0.5)
    with joblib.parallel_config("loky", n_jobs=2), PrivacyAccountant() as accountant:
        joblib.Parallel()(joblib.delayed(clone(policy).fit)(X, Y) for _ in range(3))
    assert len(accountant.records) == 3


def test_radii_of_different_sizes_at_the_default_radius():
    """At the full radius the noise of a small radius costs most: it may not be left out."""
    grid = {"radius": [0.05, 1.0]}
    with PrivacyAccountant() as accountant:
        found = GridSearchCV(HEAD, grid, cv=KFold(5)).fit(X, Y)
    large, small = (
        [r.guarantee(2.0).mu for r in accountant.releases if r.radius == radius]
        for radius in (1.0, 0.05)
    )
    best = large if found.best_params_["radius"] == 1.0 else small
    truth = compose([*large[:4], *small[:4], best[-1]])
    assert accountant.total(search=found).mu >= truth * (1 - 1e-12)


class Overlapping(KFold):
    pass


@pytest.mark.parametrize("cv", [PredefinedSplit([-1] * 60 + [0, 1, 2] * 20), Overlapping(5)])
def test_splits_that_are_no_partition(cv):
    with PrivacyAccountant(radius=0.5) as accountant:
        found = search(cv=cv).fit(X, Y)
    with pytest.raises(ValueError, match="may overlap"):
        accountant.total(search=found)


def test_scores_are_left_out_only_when_they_are_understood():
    fits, scores = mu_from_budget(1.0, 1e-6), mu_from_budget(0.5, 1e-6)
    scorer = PrivateAccuracy(0.5)
    two = {"first": scorer, "second": PrivateAccuracy(0.25)}
    cheap = mu_from_budget(0.25, 1e-6)
    cases = [
        (search(scoring=two, refit="first"), 0, [scores] * 6),
        (search(scoring=scorer, return_train_score=True), 0, [scores] * 30),
        (search(scoring=scorer), 2, [scores] * 17),
        (search(), 2, [scores] * 2),
    ]
    for made, n_more, expected in cases:
        with PrivacyAccountant(radius=0.5) as accountant:
            found = made.fit(X, Y)
            for _ in range(n_more):
                scorer(found.best_estimator_, X, Y)
        total = accountant.total(search=found)
        assert total.mu >= compose([fits] * 13 + expected) * (1 - 1e-9)
    assert cheap < scores
    # What is no score stays in.
    with PrivacyAccountant(radius=0.5) as accountant:
        found = search().fit(X, Y)
        RadiusPolicy(source="private", epsilon=0.5).fit(X, Y)
    expected = compose([fits] * 13 + [mu_from_pure(0.5)])
    assert accountant.total(search=found).mu == pytest.approx(expected)


def test_what_is_left_out_still_decides_what_is_private():
    """A seeded fit, a declared radius or a private radius counts though no record touches it."""
    cv = {"cv": KFold(2), "refit": False}
    with PrivacyAccountant(radius=0.5) as accountant:
        found = GridSearchCV(HEAD, {"random_state": [0, None]}, **cv).fit(X, Y)
    total = accountant.total(search=found, n_samples=120)
    assert (total.epsilon, total.private) == (math.inf, False)
    cheap = PrivateAccuracy(0.5, random_state=0)
    scoring = {"a": PrivateAccuracy(1.0), "b": cheap}
    with PrivacyAccountant(radius=0.5) as accountant:
        found = search(scoring=scoring, refit="a").fit(X, Y)
    assert accountant.total(search=found).epsilon == math.inf
    with PrivacyAccountant(radius=0.2) as accountant:
        grid = {"radius": [RadiusPolicy(source="declared"), 0.01]}
        found = GridSearchCV(BallDPRidgePrototype(0.1), grid, **cv).fit(X, Y)
    assert accountant.total(search=found, n_samples=120).private == "conditional"
    frozen = [
        FrozenEstimator(RadiusPolicy(q, source="private", epsilon=e).fit(X, Y))
        for q, e in ((1.0, 5.0), (0.0, 0.01))
    ]
    with PrivacyAccountant(radius=0.2) as accountant:
        found = GridSearchCV(BallDPRidgePrototype(0.1), {"radius": frozen}, **cv).fit(X, Y)
    assert accountant.total(search=found, n_samples=120).epsilon > 5.0


def test_the_best_estimator_must_be_among_the_fits():
    found = search(cv=KFold(5)).fit(X, Y)
    with PrivacyAccountant(radius=0.5) as accountant:
        for _ in range(15):
            BallDPRidgePrototype(0.7, radius=0.5).fit(X[:96], Y[:96])
        BallDPRidgePrototype(0.7, radius=0.5).fit(X, Y)
    with pytest.raises(ValueError, match="best_estimator_ was not counted"):
        accountant.total(search=found)
    pipe = make_pipeline(Normalizer(), HEAD)
    with PrivacyAccountant(radius=0.5) as accountant:
        grid = {"ballDPridgeprototype__alpha".lower(): [0.01, 0.1]}
        found = GridSearchCV(pipe, grid, cv=KFold(5)).fit(X, Y)
    assert accountant.total(search=found).n_releases == 11


@pytest.mark.filterwarnings("ignore:One or more of the test scores")
def test_failed_fits_cannot_be_matched():
    class Moody(BallDPRidgePrototype):
        def fit(self, X, y, X_public=None, y_public=None):
            if self.alpha == 0.1:
                raise ValueError("not today")
            return super().fit(X, y)

    with PrivacyAccountant(radius=0.5) as accountant, pytest.warns(Warning, match="fits failed"):
        found = search(Moody(1.0, radius=0.5)).fit(X, Y)
    with pytest.raises(ValueError, match="a fit failed"):
        accountant.total(search=found)


def test_seeded_scores_protect_nothing():
    with PrivacyAccountant(radius=0.5) as accountant:
        found = search(scoring=PrivateAccuracy(0.5, random_state=0)).fit(X, Y)
    total = accountant.total(search=found)
    assert (total.selection, total.private, total.epsilon) == ("unprotected", False, math.inf)


def test_private_accuracy_scale(monkeypatch):
    """One row moves the accuracy by 1 / n: the noise is that over mu, and no less."""
    seen = []
    monkeypatch.setattr(
        Noise, "__call__", lambda self, values, sigma: seen.append(sigma) or np.array(values)
    )
    PrivateAccuracy(1.0)(FITTED, X, Y)
    assert seen[0] == pytest.approx(1 / (len(X) * mu_from_budget(1.0, 1e-6)), rel=1e-9)
    assert seen[0] >= 1 / (len(X) * mu_from_budget(1.0, 1e-6))


@pytest.mark.parametrize(
    ("options", "match"),
    [({"delta": 0.0}, "delta"), ({"radius": -1.0}, "radius"), ({"limit": 0.0}, "limit")],
)
def test_bad_parameters(options, match):
    with pytest.raises(ValueError, match=match):
        PrivacyAccountant(**options)


def test_bagging_is_not_private():
    """Its seeds are drawn from a generator that others know: the total is infinite."""
    with PrivacyAccountant() as accountant:
        BaggingClassifier(HEAD, n_estimators=2).fit(X, Y)
    total = accountant.total()
    assert total.private is False
    assert total.epsilon == np.inf


def test_totals_read_like_releases():
    with PrivacyAccountant(radius=0.5, limit=6.0) as accountant:
        for _ in range(2):
            BallDPRidgePrototype(2.0, radius=0.5).fit(X, Y)
    shown = str(accountant.total())
    assert shown.startswith("Total\n  releases")
    for part in ("within 0.5", "of the limit 6", "a priori", "the heads' own fits", "zCDP rho"):
        assert part in shown
    releases = accountant.releases
    assert "ex post" in str(compose_releases(releases, radius=0.5))
    assert "any distance" in str(PrivacyAccountant().total())
    # What no total covers is one list, which every total shows.
    assert all(what in shown for what in NOT_COVERED)


def test_plans_are_spent_to_the_last():
    for n_fits in (1, 7):
        accountant = PrivacyAccountant(delta=1e-6, radius=0.5, limit=3.0)
        epsilon = accountant.plan(n_fits)
        with accountant:
            assert accountant.remaining() == pytest.approx(3.0, rel=1e-6)
            for _ in range(n_fits):
                BallDPRidgePrototype(epsilon, radius=0.5).fit(X, Y)
            assert accountant.total().epsilon == pytest.approx(3.0, rel=1e-4)
            assert accountant.total().epsilon <= 3.0
            with pytest.raises(BudgetExceededError):
                BallDPRidgePrototype(0.05, radius=0.5).fit(X, Y)
        assert accountant.remaining() < 1e-3
        assert accountant.plan(3) < 1e-3


def test_what_remains_can_be_spent_and_no_more():
    with PrivacyAccountant(radius=0.5, limit=3.0) as accountant:
        BallDPRidgePrototype(1.0, radius=0.5).fit(X, Y)
        left = accountant.remaining()
        spent = mu_from_budget(1.0, 1e-6) ** 2 + mu_from_budget(left, 1e-6) ** 2
        assert spent == pytest.approx(mu_from_budget(3.0, 1e-6) ** 2, rel=1e-6)
        with pytest.raises(BudgetExceededError):
            BallDPRidgePrototype(left * 1.001, radius=0.5).fit(X, Y)
        BallDPRidgePrototype(left, radius=0.5).fit(X, Y)


def test_a_search_is_refused_before_its_first_fit():
    search = GridSearchCV(
        BallDPRidgePrototype(1.0, radius=0.5), {"alpha": [0.1, 1.0]}, cv=3, error_score="raise"
    )
    with PrivacyAccountant(radius=0.5, limit=2.0, n_fits=7) as accountant:
        with pytest.raises(
            BudgetExceededError, match=r"n_fits=7 fits like this one .* none was made"
        ):
            search.fit(X, Y)
        assert not accountant.records
        search.estimator.epsilon = accountant.plan(7)
        search.fit(X, Y)
    assert accountant.total().n_releases == 7
    assert accountant.total().epsilon <= 2.0


def test_limits_that_are_missing():
    with pytest.raises(ValueError, match="plans against a limit"):
        PrivacyAccountant(n_fits=3)
    with pytest.raises(ValueError, match="n_fits must be an integer"):
        PrivacyAccountant(limit=1.0, n_fits=0)
    with pytest.raises(ValueError, match="limit=None"):
        PrivacyAccountant().remaining()
    with pytest.raises(ValueError, match="n_fits must be an integer"):
        PrivacyAccountant(limit=1.0).plan(0.5)


def test_a_plan_counts_the_radius_of_every_fit():
    policy = RadiusPolicy(0.5, source="private", epsilon=2.0)
    head = BallDPRidgePrototype(3.0, radius=policy)
    with PrivacyAccountant(radius=0.5, limit=30.0, n_fits=6) as accountant:
        with pytest.raises(BudgetExceededError, match="n_fits=6"):
            head.fit(X, Y)
        assert not accountant.releases


def interrupted(self, values, sigma):
    """Noise that was drawn, and maybe seen, before the interrupt came."""
    self.used = True
    raise KeyboardInterrupt


def test_an_interrupt_after_the_noise_leaves_the_charge(monkeypatch):
    policy = RadiusPolicy(source="private", epsilon=0.5)
    with PrivacyAccountant(radius=0.5) as accountant:
        with pytest.raises(ValueError, match="NaN"):
            HEAD.fit(np.where(np.arange(120)[:, None] == 3, np.nan, X), Y)
        assert not accountant.records  # nothing was drawn
        monkeypatch.setattr(Noise, "__call__", interrupted)
        for model in (HEAD, BallDPLogisticRegression(1.0, radius=0.5)):
            with pytest.raises(KeyboardInterrupt):
                model.fit(X, Y)
        with pytest.raises(KeyboardInterrupt):
            PrivateAccuracy(0.5)(FITTED, X, Y)
        monkeypatch.undo()
        monkeypatch.setattr("sklearn_balldp.radius.private_quantile", interrupted_draw)
        with pytest.raises(KeyboardInterrupt):
            policy.fit(X, Y)
    assert len(accountant.records) == 4


def test_an_interrupt_after_the_last_line_leaves_the_charge():
    release = clone(HEAD).fit(X, Y).release_
    for late in (True, False):
        with PrivacyAccountant(radius=0.5) as accountant:
            charge = charged(release, lambda late=late: late)
            charge.__enter__()
            with pytest.raises(KeyboardInterrupt):
                charge.gen.throw(KeyboardInterrupt)
            assert len(accountant.records) == int(late)


def interrupted_draw(*args, **options):
    raise KeyboardInterrupt


@pytest.mark.parametrize("answered", [False, True])
def test_an_error_of_a_mechanism_of_ones_own(answered):
    """It may have shown the answer that it got; before that it knew nothing."""

    class Failing(PrototypePerturbation):
        bound = PrototypePerturbation.bound

        def conversation(self, problem, bound):
            if answered:
                yield bound
            raise OSError("no answer is kept")

    class Head(BallDPRidgePrototype):
        def _mechanism(self):
            return Failing()

    with PrivacyAccountant(radius=0.5) as accountant:
        with pytest.raises(OSError, match="kept"):
            Head(1.0, radius=0.5).fit(X, Y)
        assert len(accountant.records) == int(answered)


class Picky(BallDPRidgePrototype):
    """Fails in one fold, at one of the candidates."""

    def fit(self, X, y, **options):
        if self.alpha == 0.1 and X[0, 0] == FIRST and len(X) < 120:
            raise ValueError("on purpose")
        return super().fit(X, y, **options)


FIRST = X[0, 0]


def test_a_numeric_error_score_hides_no_fit():
    """Another fit of equal size would be counted in its place."""
    with PrivacyAccountant(radius=0.5) as accountant:
        with pytest.warns(FitFailedWarning, match="fits failed"):
            found = search(Picky(1.0, radius=0.5), error_score=0.0, cv=KFold(2)).fit(X, Y)
        HEAD.fit(X[:60], Y[:60])
    assert len(accountant.records) == 3 * 2 + 1
    with pytest.raises(ValueError, match=r"error_score=0\.0 hides a fit"):
        accountant.total(search=found)
    assert accountant.total().n_releases == 7


def test_what_is_not_covered_is_said_with_every_total_and_in_the_docstring():
    with PrivacyAccountant(radius=0.5) as accountant:
        for train, _ in StratifiedKFold(2).split(X, Y):
            BallDPRidgePrototype(1.0, radius=0.5, protect_labels=True, classes=[0, 1, 2]).fit(
                X[train], Y[train]
            )
    with PrivacyAccountant(radius=0.5) as selecting:
        SequentialFeatureSelector(HEAD, n_features_to_select=1, cv=2, n_jobs=2).fit(X[:, :2], Y)
    for point in NOT_COVERED:
        assert point in str(accountant.total())
        assert point in str(selecting.total())
        assert point in PrivacyAccountant.__doc__


def test_what_is_pickled_inside_holds_no_path(monkeypatch):
    # A short name of a machine is found in noise by chance.
    monkeypatch.setattr(socket, "gethostname", lambda: "the-machine-of-the-publisher")
    with PrivacyAccountant(radius=0.5) as accountant:
        found = search().fit(X, Y)
        path = Path(accountant._ticket.path)
        for model in (found, found.best_estimator_, HEAD, clone(HEAD), search()):
            body = pickle.dumps(model)
            for part in (str(path), path.parent.name, socket.gethostname()):
                assert part.encode() not in body
        again = pickle.loads(pickle.dumps(search()))
        again.fit(X, Y)
    assert accountant.total().n_releases == 32


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"radius": "a"}, "radius must be"),
        ({"radius": True}, "radius must be"),
        ({"limit": True}, "limit must be"),
        ({"unit": "owner"}, "unit must be one of record, person"),
        ({"limit": "1"}, "limit must be"),
        ({"delta": "x"}, "delta must"),
        ({"limit": 10**400}, "limit must be"),
    ],
)
def test_odd_terms(options, match):
    with pytest.raises(ValueError, match=match):
        PrivacyAccountant(**options)


def test_a_score_hides_only_what_the_model_hides():
    """One training record may move a nearest neighbour's score from all to half."""
    scorer = PrivateAccuracy(0.5)
    rows = np.array([[0.0], [1.0]])
    one = KNeighborsClassifier(1).fit(rows, [0, 1])
    other = KNeighborsClassifier(1).fit([[0.0], [-9.0]], [0, 1])
    held = np.array([[0.1], [0.9]] * 50), np.array([0, 1] * 50)
    assert one.score(*held) - other.score(*held) == 0.5
    voted = VotingClassifier([("a", clone(HEAD)), ("b", LogisticRegression())]).fit(X, Y)
    # A fixed seed: noise that makes one class of all rows leaves no threshold to tune.
    seeded, side = clone(HEAD).set_params(random_state=0), X[:, 0] > 0
    chosen = RFECV(clone(HEAD), cv=2, importance_getter="prototypes_").fit(X, Y)
    with PrivacyAccountant() as accountant:
        for model, data in (
            (one, held),
            (LogisticRegression().fit(X, Y), (X, Y)),
            (make_pipeline(Normalizer(), LogisticRegression()).fit(X, Y), (X, Y)),
            (voted, (X, Y)),
            (CalibratedClassifierCV(clone(HEAD), cv=2).fit(X, Y), (X, Y)),
            # What a fit finds beside the heads, by their scores on the same rows.
            (search(cv=2).fit(X, Y), (X, Y)),
            (TunedThresholdClassifierCV(seeded, cv=2).fit(X, side), (X, side)),
            (chosen, (X, Y)),
            (make_pipeline(StandardScaler(), clone(HEAD)).fit(X, Y), (X, Y)),
        ):
            before = len(accountant.records)
            with pytest.raises(ValueError, match="not all comes from a release"):
                scorer(model, *data)
            assert len(accountant.records) == before
    for model in (
        FITTED,
        make_pipeline(Normalizer(), clone(HEAD)).fit(X, Y),
        FrozenEstimator(FITTED),
        VotingClassifier([("a", clone(HEAD)), ("b", clone(HEAD))]).fit(X, Y),
        OneVsRestClassifier(clone(HEAD)).fit(X, Y),
        search(cv=2, scoring=PrivateAccuracy(1.0)).fit(X, Y),
    ):
        with PrivacyAccountant() as accountant:
            assert scorer(model, X, Y) > -9.0
        assert len(accountant.records) == 1
    with pytest.raises(ValueError, match="not all comes from a release"):
        cross_val_score(LogisticRegression(), X, Y, scoring=scorer, error_score="raise")
