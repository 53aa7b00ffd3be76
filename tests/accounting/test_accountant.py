"""The accountant: every release is counted, wherever it is made, and limits hold.

Tests of randomness here reject correct code with probability below 1e-9 each.
"""

import copy
import gc
import json
import math
import multiprocessing
import os
import pickle
import signal
import sqlite3
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.feature_selection import RFECV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    TunedThresholdClassifierCV,
    cross_val_score,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler, scale

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    PrivacyAccountant,
    RadiusPolicy,
    ReconstructionAuditor,
    compose_releases,
)
from sklearn_balldp.accounting import (
    BudgetExceededError,
    OtherRelease,
    PrivateAccuracy,
    charged,
    ledger,
)
from sklearn_balldp.accounting.accountant import NOT_COVERED
from sklearn_balldp.accounting.ledger import LedgerError
from sklearn_balldp.mechanisms import PrototypePerturbation, Sums
from sklearn_balldp.privacy.bounds import KINDS, Bound
from sklearn_balldp.privacy.gaussian import compose, epsilon_from_mu, mu_from_budget, mu_from_pure
from sklearn_balldp.privacy.noise import SEEDED_SAMPLER, Noise
from sklearn_balldp.publish import save

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 4))
X /= np.linalg.norm(X, axis=1, keepdims=True)
Y = np.arange(120) % 3
MU = mu_from_budget(1.0, 1e-6)
PROTECTED = {"protect_labels": True, "classes": [0, 1, 2]}


def head_of(accountant=None, epsilon=1.0, **options):
    return BallDPRidgePrototype(epsilon, accountant=accountant, **{"radius": 0.5, **options})


def fit(head):
    """For pools: a head is sent, and fitted there."""
    return head.fit(X, Y).release_.epsilon


FITTED = head_of().fit(X, Y)


def in_child(work, *args):
    """A process that does this and ends; its number."""
    child = os.fork()
    if child:
        return child
    try:
        work(*args)
        os._exit(0)
    finally:
        os._exit(1)


@pytest.fixture
def counts():
    """An accountant at the radius of the heads."""
    return PrivacyAccountant(radius=0.5)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.ledger"


def search(head, **options):
    return GridSearchCV(head, {"alpha": [0.01, 0.1, 1.0]}, **{"cv": 5, **options})


# Where releases are counted ---------------------------------------------------------------------


@pytest.mark.parametrize("backend", [None, "threading", "loky"])
def test_a_search_and_its_private_scores_are_counted_everywhere(counts, backend):
    scores = PrivateAccuracy(1.0, accountant=counts)
    with joblib.parallel_config(backend or "sequential", n_jobs=2):
        search(head_of(counts), scoring=scores, n_jobs=2 if backend else None).fit(X, Y)
    assert (len(counts.releases), len(counts.records)) == (16, 31)
    total = counts.total()
    assert (total.n_releases, total.kind, total.private) == (31, "ex post", True)
    assert total.mu == pytest.approx(math.sqrt(31) * MU, rel=1e-9)
    assert total.epsilon == pytest.approx(epsilon_from_mu(total.mu, 1e-6), rel=1e-8)
    # Other radii: each release's sensitivity there.
    mus = [release.guarantee(1.3).mu for release in counts.releases]
    assert counts.total(1.3).mu == pytest.approx(compose([*mus, *[MU] * 15]), rel=1e-9)
    assert counts.total(1.3).radius == 1.3


def test_pools_of_the_standard_library(counts):
    policy = RadiusPolicy(source="private", epsilon=0.5, accountant=counts)
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        list(pool.map(fit, [head_of(counts) for _ in range(3)]))
        pool.submit(PrivateAccuracy(1.0, accountant=counts), FITTED, X, Y).result()
        pool.submit(policy.fit, X, Y).result()
    assert [type(record).__name__ for record in counts.records].count("Release") == 3
    assert len(counts.records) == 5


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_wrappers_that_clone_are_counted(counts, n_jobs):
    pipeline = make_pipeline(Normalizer(), head_of(counts))
    vote = VotingClassifier([("a", pipeline), ("b", head_of(counts))], n_jobs=n_jobs)
    cross_val_score(vote, X, Y, cv=3, n_jobs=n_jobs)
    assert counts.total().n_releases == 6
    OneVsRestClassifier(head_of(counts)).fit(X, Y)
    CalibratedClassifierCV(head_of(counts), cv=3).fit(X, Y)
    assert counts.total().n_releases == 12
    auditor = ReconstructionAuditor(head_of(counts), n_candidates=2, n_supports=1, radius=1.5)
    cross_val_score(auditor, X, Y, cv=2, n_jobs=n_jobs)
    # Audits solve and simulate; what they release is one head each.
    assert counts.total().n_releases == 14


def test_copies_share_the_accountant_and_pickles_find_it(counts):
    head = head_of(counts)
    for other in (clone(head), copy.copy(head), copy.deepcopy(head)):
        assert other.accountant is counts
    again = pickle.loads(pickle.dumps(head))
    assert again.accountant == counts
    # Fitted heads come back from workers, and may be fitted again.
    pickle.loads(pickle.dumps(again.fit(X, Y))).fit(X, Y)
    scores = clone(search(head, scoring=PrivateAccuracy(0.5, accountant=counts))).scoring
    assert (scores.epsilon, scores.accountant) == (0.5, counts)
    assert counts.total().n_releases == 2
    assert FITTED.with_rule(priors="uniform").accountant is None
    assert again.with_rule(priors="uniform").accountant == counts
    assert counts.total().n_releases == 2  # another rule costs nothing


def test_two_data_sets_on_two_threads():
    """They neither meet nor count each other's fits: with a limit of 2.5 and one of 10."""
    few, many = (PrivacyAccountant(radius=0.5, limit=limit) for limit in (2.5, 10.0))
    both = threading.Barrier(2)

    def work(accountant, n_features, n_fits):
        both.wait()
        for _ in range(n_fits):
            head_of(accountant).fit(RNG.standard_normal((90, n_features)), np.arange(90) % 2)

    with joblib.parallel_config("threading"):
        joblib.Parallel(2)(joblib.delayed(work)(*each) for each in ((few, 5, 3), (many, 7, 12)))
    assert (few.total().n_releases, many.total().n_releases) == (3, 12)
    assert few.total().epsilon < 2.5 < many.total().epsilon


def test_a_head_without_an_accountant_is_not_counted(counts):
    head_of().fit(X, Y)
    assert (counts.total().n_releases, counts.total().epsilon) == (0, 0.0)
    for value in ("budget.ledger", PrivacyAccountant, 1):
        for spends in (
            lambda value=value: head_of(value).fit(X, Y),
            lambda value=value: RadiusPolicy(source="declared", accountant=value).fit(X, Y),
            lambda value=value: PrivateAccuracy(1.0, accountant=value),
        ):
            with pytest.raises(ValueError, match="accountant must be a PrivacyAccountant or None"):
                spends()


def test_attach_finds_every_part(counts):
    policy = RadiusPolicy(source="private", epsilon=0.5)
    inner, other = head_of(radius=policy), BallDPLinearDiscriminant(radius=0.5)
    scores, frozen = PrivateAccuracy(1.0), FrozenEstimator(head_of())
    vote = VotingClassifier([("a", make_pipeline(Normalizer(), inner)), ("b", frozen)])
    grid = [{"a__n": [1]}, {"b": np.array([other, None], dtype=object)}]
    model = GridSearchCV(ReconstructionAuditor(vote), grid, scoring={"one": scores}, refit="one")
    assert counts.attach(model) is model
    assert inner.accountant is policy.accountant is other.accountant is scores.accountant is counts
    assert frozen.estimator.accountant is None
    columns = ColumnTransformer([("radius", policy, [0, 1])])
    assert PrivacyAccountant().attach(columns).transformers[0][1].accountant != counts

    class Own(BallDPRidgePrototype):
        def __init__(self, epsilon=1.0):
            super().__init__(epsilon)

    for odd, match in ((LogisticRegression(), "no part of this"), (Own(), "no parameter")):
        with pytest.raises(ValueError, match=match):
            counts.attach(odd)


# Limits -----------------------------------------------------------------------------------------


def test_over_the_limit_nothing_is_fitted(monkeypatch):
    summed, values = [], Sums.values
    monkeypatch.setattr(Sums, "values", lambda *given: summed.append(1) or values(*given))
    limit = epsilon_from_mu(math.sqrt(3.5) * MU, 1e-6)
    accountant = PrivacyAccountant(radius=0.5, limit=limit)
    for _ in range(3):
        head_of(accountant).fit(X, Y)
    head = head_of(accountant)
    with pytest.raises(BudgetExceededError, match=r"above limit.* 3 release"):
        head.fit(X, Y)
    assert not hasattr(head, "release_")
    assert len(summed) == 3
    # A cheaper one still fits in.
    head_of(accountant, 0.3).fit(X, Y)
    total = accountant.total()
    assert (total.n_releases, total.kind, total.limit) == (4, "a priori", limit)
    assert total.epsilon <= limit


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_workers_together_keep_the_limit(backend):
    limit = epsilon_from_mu(math.sqrt(5.5) * MU, 1e-6)
    accountant = PrivacyAccountant(radius=0.5, limit=limit)
    with (
        joblib.parallel_config(backend, n_jobs=2),
        pytest.warns(Warning, match="fits failed"),
    ):
        scores = cross_val_score(head_of(accountant), X, Y, cv=12, error_score=np.nan)
    assert accountant.total().n_releases == 5
    assert np.isfinite(scores).sum() == 5


def test_the_limit_is_in_gaussian_terms():
    """Which way of adding up is better may not be chosen after the fact."""
    radius, score = OtherRelease("radius", epsilon=0.5), OtherRelease("score", mu=MU)
    limit = epsilon_from_mu(compose([MU, mu_from_pure(0.5)]), 1e-6)
    # Basic composition would need less, and is what a total states.
    assert limit > 1.5
    for factor, counted in ((0.99, 1), (1.01, 2)):
        accountant, n_released = PrivacyAccountant(limit=factor * limit), 0
        with suppress(BudgetExceededError):
            for record in (radius, score):
                with charged(accountant, record):
                    n_released += 1
        assert n_released == accountant.total().n_releases == counted
    assert accountant.total().epsilon == pytest.approx(1.5, rel=1e-6)


def test_a_limit_is_a_priori_where_it_was_enforced():
    accountant = PrivacyAccountant(radius=0.5, limit=2.0)
    head_of(accountant).fit(X, Y)
    assert accountant.total(0.3).kind == "a priori"
    further = accountant.total(2.0)
    assert (further.kind, further.limit) == ("ex post", None)
    for name in ("limit", "radius", "delta"):
        with pytest.raises(AttributeError):
            setattr(accountant, name, 1.0)


def test_what_remains_can_be_spent_to_the_last_and_no_more():
    for n_fits in (1, 7):
        accountant = PrivacyAccountant(delta=1e-6, radius=0.5, limit=3.0)
        assert accountant.remaining() == pytest.approx(3.0, rel=1e-6)
        epsilon = accountant.remaining(n_fits)
        for _ in range(n_fits - 1):
            head_of(accountant, epsilon).fit(X, Y)
        assert accountant.remaining() == pytest.approx(epsilon, rel=1e-6)
        with pytest.raises(BudgetExceededError):
            head_of(accountant, epsilon * 1.001).fit(X, Y)
        head_of(accountant, epsilon).fit(X, Y)
        assert accountant.total().epsilon == pytest.approx(3.0, rel=1e-4)
        assert accountant.total().epsilon <= 3.0
        with pytest.raises(BudgetExceededError):
            head_of(accountant, 0.05).fit(X, Y)
        assert max(accountant.remaining(), accountant.remaining(3)) < 1e-3
    with pytest.raises(ValueError, match="n_fits must be an integer"):
        accountant.remaining(0.5)
    with pytest.raises(ValueError, match="limit=None"):
        PrivacyAccountant().remaining()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("delta", (0.0, "x")),
        ("radius", (-1.0, True)),
        ("limit", (0.0, "1", 10**400)),
        ("unit", ("owner",)),
        ("labels", ("hidden",)),
    ],
)
def test_odd_terms(path, name, values):
    for value in values:
        with pytest.raises(ValueError, match=f"^{name} must"):
            PrivacyAccountant(path, **{name: value})
    assert not path.exists()


# The file ---------------------------------------------------------------------------------------


def test_a_budget_outlives_its_process(path):
    def elsewhere():
        head_of(PrivacyAccountant(path, radius=0.5, limit=2.0)).fit(X, Y)

    assert os.waitpid(in_child(elsewhere), 0)[1] == 0
    accountant = PrivacyAccountant(path)
    accountant.spend(mu=0.1, what="here")
    total = accountant.total()
    assert total.mu == pytest.approx(math.hypot(MU, 0.1))
    assert (accountant.radius, accountant.limit, accountant.delta) == (0.5, 2.0, 1e-6)
    assert (
        repr(accountant) == repr(PrivacyAccountant(path, radius=0.5)) in repr(head_of(accountant))
    )
    shown = f"'budget.ledger', epsilon={total.epsilon:.4g}, limit=2, n_releases=2"
    assert shown in repr(accountant)
    for terms in ({"radius": 0.7}, {"limit": 3.0}, {"delta": 1e-5}, {"unit": "person"}):
        (name,) = terms
        with pytest.raises(ValueError, match=f"made with {name}=.*a ledger keeps its terms"):
            PrivacyAccountant(path, **terms)
    assert os.listdir(path.parent) == ["budget.ledger"]  # nothing beside it


def test_without_a_path_it_lives_as_long_as_its_object():
    accountant = PrivacyAccountant()
    head, known = pickle.loads(pickle.dumps(head_of(accountant))), accountant.ledger.path
    if not os.fork():
        # A copy in a child that ends removes nothing.
        del accountant
        gc.collect()
        os._exit(0)
    os.wait()
    head.fit(X, Y)
    assert accountant.total().n_releases == 1
    del accountant
    gc.collect()
    assert not os.path.exists(os.path.dirname(known))
    with pytest.raises(LedgerError, match="ends with its object"):
        head.fit(X, Y)


def test_each_fault_of_a_ledger_refuses_the_fit_in_its_own_words(path, monkeypatch):
    monkeypatch.setattr(ledger, "_WAIT", 0.1)
    accountant, head = PrivacyAccountant(path, radius=0.5), None
    head = head_of(accountant)
    kept = path.read_bytes()

    def refused(match):
        for spends in (
            head.fit,
            PrivateAccuracy(1.0, accountant=accountant).__call__,
            RadiusPolicy(source="private", epsilon=1.0, accountant=accountant).fit,
        ):
            given = (FITTED, X, Y) if isinstance(spends.__self__, PrivateAccuracy) else (X, Y)
            with pytest.raises(LedgerError, match=f"{match}.*nothing was released"):
                spends(*given)
        assert not hasattr(head, "release_")

    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        refused("was locked by another process for 0.1 seconds")
        assert "cannot be read" in repr(accountant)
    path.unlink()
    refused("is missing, or on another machine")
    assert not path.exists()  # it does not begin anew
    PrivacyAccountant(path, radius=0.5)
    refused("is not the one that this accountant was made with")
    path.write_bytes(b"no ledger" * 1000)
    refused("is damaged, no ledger, or cannot be written")
    with pytest.raises(LedgerError, match="no ledger"):
        PrivacyAccountant(path)
    path.write_bytes(b"")
    refused("is damaged, no ledger")
    path.write_bytes(kept)
    head.fit(X, Y)
    assert accountant.total().n_releases == 1
    with pytest.raises(LedgerError, match="cannot be made"):
        PrivacyAccountant(path / "beside")


@pytest.mark.parametrize(("moment", "n_counted"), [("in its fit", 1), ("in its charge", 0)])
def test_a_killed_process_leaves_a_whole_charge_or_none(path, moment, n_counted):
    """What touched rows was charged before; the lock of the dead one is gone."""

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def killed():
        if moment == "in its fit":
            Sums.values = die
        else:
            ledger._written = die  # between two writes of one charge
        head_of(PrivacyAccountant(path, radius=0.5)).fit(X, Y)

    assert os.waitpid(in_child(killed), 0)[1] == signal.SIGKILL
    accountant = PrivacyAccountant(path)
    assert accountant.total().n_releases == len(accountant.records) == n_counted
    assert accountant.total().mu == pytest.approx(MU * n_counted)
    head_of(accountant).fit(X, Y)
    assert accountant.total().n_releases == n_counted + 1


def test_a_charge_is_written_out_before_rows_are_touched(path, monkeypatch):
    """A power cut may lose what waits in the machine's memory: files and folder are written out."""
    said = []
    connect = sqlite3.connect

    def listened(*given, **options):
        base = connect(*given, **options)
        said.append(int(base.execute("PRAGMA synchronous").fetchone()[0]))
        base.set_trace_callback(lambda text: "synchronous" in text and said.append(text))
        return base

    accountant = PrivacyAccountant(path, radius=0.5)
    monkeypatch.setattr(sqlite3, "connect", listened)
    monkeypatch.setattr(Sums, "values", lambda *_: said.append(len(accountant.records)) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        head_of(accountant).fit(X, Y)
    assert "PRAGMA synchronous = EXTRA" in said[: said.index(1, 2)]


def test_processes_that_begin_one_ledger_share_it(path):
    waiting, go = os.pipe()

    def count():
        os.read(waiting, 1)
        accountant = PrivacyAccountant(path, radius=0.5)
        for _ in range(10):
            accountant.spend(mu=0.1, what="one")

    children = [in_child(count) for _ in range(4)]
    os.write(go, b"x" * 4)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert PrivacyAccountant(path).total().n_releases == 40


def test_a_child_that_is_forked_while_a_thread_counts_can_count(counts, monkeypatch):
    """SQLite's locks would be copied into it, and never be freed there."""
    monkeypatch.setattr(ledger, "_WAIT", 5.0)
    done = threading.Event()

    def work():
        while not done.is_set():
            counts.spend(mu=1e-3, what="thread")

    def count():
        with suppress(LedgerError):
            counts.spend(mu=1e-3, what="child")

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(20):
        os.waitpid(in_child(count), 0)
    done.set()
    thread.join()
    assert sum(record.what == "child" for record in counts.records) == 20


def test_what_is_published_names_no_ledger(path, tmp_path):
    accountant = PrivacyAccountant(path, radius=0.5)
    head = make_pipeline(Normalizer(), head_of(accountant)).fit(X, Y)
    plain = make_pipeline(Normalizer(), head_of()).fit(X, Y)
    assert head[-1].release_.to_dict().keys() == plain[-1].release_.to_dict().keys()
    folder = save(head, tmp_path / "model")
    for file in (*folder.iterdir(), path):
        for word in (b"ledger", b"accountant", str(tmp_path).encode()):
            assert word not in file.read_bytes() or file == path
    # Nor does the ledger hold anything of the rows.
    assert head[-1].release_.digest.encode() not in path.read_bytes()


# What failed, and what was interrupted ----------------------------------------------------------


def test_a_failed_fit_is_not_counted(counts):
    spoiled = X.copy()
    spoiled[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        head_of(counts).fit(spoiled, Y)
    assert counts.total().n_releases == 0


def interrupted(self, values, sigma):
    """Noise that was drawn, and maybe seen, before the interrupt came."""
    self.used = True
    raise KeyboardInterrupt


def interrupted_draw(*args, **options):
    raise KeyboardInterrupt


def test_an_interrupt_after_the_noise_leaves_the_charge(counts, monkeypatch):
    monkeypatch.setattr(Noise, "__call__", interrupted)
    monkeypatch.setattr("sklearn_balldp.radius.private_quantile", interrupted_draw)
    for model in (
        head_of(counts),
        BallDPLogisticRegression(1.0, radius=0.5, accountant=counts),
        RadiusPolicy(source="private", epsilon=0.5, accountant=counts),
    ):
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, Y)
    with pytest.raises(KeyboardInterrupt):
        PrivateAccuracy(0.5, accountant=counts)(FITTED, X, Y)
    assert len(counts.records) == 4


@pytest.mark.parametrize("late", [True, False])
def test_an_interrupt_after_the_last_line_leaves_the_charge(counts, late):
    charge = charged(counts, FITTED.release_, lambda: late)
    charge.__enter__()
    with pytest.raises(KeyboardInterrupt):
        charge.gen.throw(KeyboardInterrupt)
    assert len(counts.records) == int(late)


def test_a_child_forked_in_a_fit_takes_nothing_back(counts, monkeypatch):
    """It fails before any noise is drawn, and its parent releases."""
    real, parent = Sums.values, os.getpid()

    def forking(*given):
        child = os.fork()
        if child == 0:
            raise OSError("no memory in the child")
        os.waitpid(child, 0)
        return real(*given)

    monkeypatch.setattr(Sums, "values", forking)
    try:
        head_of(counts).fit(X, Y)
    finally:
        if os.getpid() != parent:
            os._exit(0)
    assert counts.total().n_releases == 1


def test_a_charge_that_cannot_be_taken_back_stays(counts, monkeypatch):
    """The ledger's error does not hide that of the fit."""
    file = counts.ledger.path

    def fail(*_):
        os.rename(file, file + ".moved")
        raise OSError("the disk is full")

    monkeypatch.setattr(Sums, "values", fail)
    with pytest.raises(OSError, match="disk is full"):
        head_of(counts).fit(X, Y)
    os.rename(file + ".moved", file)
    assert counts.total().n_releases == 1


@pytest.mark.parametrize("answered", [False, True])
def test_an_error_of_a_mechanism_of_ones_own(counts, answered):
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

    with pytest.raises(OSError, match="kept"):
        Head(1.0, radius=0.5, accountant=counts).fit(X, Y)
    assert len(counts.records) == int(answered)


# What is added up -------------------------------------------------------------------------------


def test_ten_thousand_releases_are_added_up_in_a_second(counts):
    """Every row was once compared with all rows before it."""
    number = 10_000
    with counts.ledger._opened("BEGIN IMMEDIATE") as base:
        for epsilon in (0.0, 0.01):
            charge = ledger.charge_of(OtherRelease("score", mu=0.1, epsilon=epsilon), 0.5)
            rows = [(None, *charge, mu_from_pure(epsilon))] * (number // 2)
            base.executemany("INSERT INTO charge VALUES (?, ?, ?, ?, ?, ?)", rows)
    begun = time.process_time()
    total = counts.total()
    assert time.process_time() - begun < 1.0
    assert total.n_releases == number
    half = [0.1, mu_from_pure(0.01)]
    assert total.mu == pytest.approx(compose([0.1] * (number // 2) + half * (number // 2)))
    assert counts.ledger.mu_squared() == pytest.approx(total.mu**2, rel=1e-12)
    begun = time.process_time()
    counts.spend(mu=0.1, what="one more")
    assert time.process_time() - begun < 0.1
    releases = [replace(FITTED.release_, epsilon=1.0 + i / number) for i in range(number // 10)]
    begun = time.process_time()
    compose_releases(releases, radius=0.5)
    assert time.process_time() - begun < 1.0


def test_full_radius_by_default():
    accountant = PrivacyAccountant()
    release, total = head_of(accountant).fit(X, Y).release_, accountant.total()
    assert total.radius == 2.0
    assert total.mu == pytest.approx(release.guarantee(2.0).mu)
    assert total.epsilon == pytest.approx(release.epsilon_full_radius)


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (BallDPRidgePrototype(radius=0.5, metric="manhattan"), "metric"),
        (BallDPRidgePrototype(radius=0.5, norm_bound=2.0), "norm_bound"),
        (BallDPLinearDiscriminant(radius=0.5, domain="sphere"), "domain"),
    ],
)
def test_different_adjacencies_are_refused(counts, other, name):
    head_of(counts).fit(X, Y)
    with pytest.raises(ValueError, match=f"differ in {name} .*each kind in a ledger of its own"):
        counts.attach(clone(other)).fit(X, Y)
    assert not hasattr(other, "release_")
    with pytest.raises(ValueError, match="differ in n_features"):
        head_of(counts).fit(X[:, :3], Y)
    assert counts.total().n_releases == 1


@pytest.mark.parametrize("order", [1, -1])
def test_releases_that_cover_others_count_as_those(order):
    """Protected labels cover public ones, and persons records: the total states what all hide."""
    owners = {"groups": np.arange(120) // 2}
    wide, narrow = PrivacyAccountant(radius=0.5), PrivacyAccountant(radius=0.5)
    fits = [(head_of(wide), {}), (head_of(wide, **PROTECTED), {}), (head_of(wide), owners)]
    releases = [head.fit(X, Y, **given).release_ for head, given in fits[::order]]
    mu = compose(release.guarantee(0.5).mu for release in releases)
    for total in (wide.total(), compose_releases(releases, radius=0.5)):
        assert (total.labels, total.unit, total.n_releases) == ("public", "record", 3)
        assert total.mu == pytest.approx(mu)
    # Each hides a substitution of one label, of one record, at least as well as that.
    assert mu >= compose(release.guarantee(0.5, "public").mu for release in releases)
    for _ in range(2):
        head_of(narrow, **PROTECTED).fit(X, Y, **owners)
    PrivateAccuracy(1.0)(FITTED, X, Y)
    assert (narrow.total().labels, narrow.total().unit) == ("protected", "person")
    assert "all records of a person are hidden together" in str(narrow.total())


def test_terms_refuse_what_hides_less():
    groups, grid = np.arange(len(Y)) // 3, {"epsilon": [0.5, 1.0]}
    person, protected = PrivacyAccountant(unit="person"), PrivacyAccountant(labels="protected")
    plain = GridSearchCV(head_of(person), grid, cv=GroupKFold(4), error_score="raise")
    # Without metadata routing a search keeps groups= for its splitter.
    with pytest.raises(ValueError, match=r"was given no groups=.*set_fit_request"):
        plain.fit(X, Y, groups=groups)
    policy = RadiusPolicy(source="private", epsilon=1.0)
    for spends in (person.attach(clone(policy)), protected.attach(clone(policy))):
        with pytest.raises(ValueError, match="this private radius"):
            spends.fit(X, Y)
    with pytest.raises(ValueError, match="this private accuracy"):
        PrivateAccuracy(1.0, accountant=person)(FITTED, X, Y)
    with pytest.raises(ValueError, match="takes them for public"):
        head_of(protected).fit(X, Y)
    with sklearn.config_context(enable_metadata_routing=True):
        # With routing, scikit-learn asks what becomes of them.
        with pytest.raises(UnsetMetadataPassedError, match="set_fit_request"):
            plain.fit(X, Y, groups=groups)
        assert not person.records + protected.records
        plain.estimator.set_fit_request(groups=True)
        plain.fit(X, Y, groups=groups)
    head_of(protected, **PROTECTED).fit(X, Y)
    assert person.total().unit == "person"
    assert protected.total().labels == "protected"


def test_declared_encoders_must_agree():
    """Rows scaled by four have radii four times as long: what heads declare is compared."""
    accountant = PrivacyAccountant(radius=0.5, limit=50.0)
    # None declares nothing, and hides no disagreement of those that do.
    for name in (None, "minilm", None, "minilm"):
        head_of(accountant, encoder=name).fit(X, Y)
    for name in ("minilm, times 4", ""):
        with pytest.raises(ValueError, match="differ in encoder"):
            head_of(accountant, encoder=name).fit(X, Y)
    head_of(accountant).fit(X, Y)
    releases = accountant.releases
    assert [r.encoder for r in releases] == [None, "minilm", None, "minilm", None]
    assert "encoder minilm" in str(releases[1])
    assert compose_releases([json.loads(json.dumps(r.to_dict())) for r in releases]).n_releases == 5
    other = replace(releases[0], encoder="resnet")
    for order in ([releases[0], releases[1], other], [other, releases[2], releases[1]]):
        with pytest.raises(ValueError, match="differ in encoder"):
            compose_releases(order)


def test_what_is_made_by_hand_is_counted():
    accountant = PrivacyAccountant(radius=0.5, limit=1.5)
    head_of(accountant).fit(X, Y)
    accountant.spend(mu=0.5 * MU, what="histogram")
    with pytest.raises(BudgetExceededError):
        accountant.spend(mu=MU, what="another")
    for mu, what, match in [
        *((bad, "x", "mu must be a positive") for bad in (0.0, -1.0, np.nan, np.inf, "1")),
        (MU, "", "what must name"),
    ]:
        with pytest.raises(ValueError, match=match):
            accountant.spend(mu=mu, what=what)
    assert accountant.total().mu == pytest.approx(math.hypot(MU, 0.5 * MU))
    assert [r.what for r in accountant.records if isinstance(r, OtherRelease)] == ["histogram"]


def test_a_seeded_release_counts_as_infinite(counts):
    head_of(counts, random_state=0).fit(X, Y)
    total = counts.total()
    assert total.epsilon == total.mu == math.inf
    assert total.private is False
    limited = PrivacyAccountant(radius=0.5, limit=100.0)
    with pytest.raises(BudgetExceededError):
        head_of(limited, random_state=0).fit(X, Y)
    for seeded in (
        PrivateAccuracy(epsilon=1.0, random_state=0, accountant=limited),
        RadiusPolicy(source="private", epsilon=0.5, random_state=0, accountant=limited),
    ):
        with pytest.raises(BudgetExceededError):
            seeded(FITTED, X, Y) if callable(seeded) else seeded.fit(X, Y)
    assert not limited.records
    # Bagging gives its members seeds of a generator that others know.
    bagged = PrivacyAccountant()
    BaggingClassifier(head_of(bagged), n_estimators=2).fit(X, Y)
    assert (bagged.total().private, bagged.total().epsilon) == (False, math.inf)


# Radii ------------------------------------------------------------------------------------------


def test_private_radii_are_counted_where_they_are_drawn():
    accountant = PrivacyAccountant(radius=0.2)
    policy = RadiusPolicy(source="private", epsilon=0.5, accountant=accountant)
    frozen = FrozenEstimator(clone(policy).fit(X, Y))
    heads = [head_of(accountant, radius=frozen).fit(X, Y) for _ in range(3)]
    total = accountant.total()
    assert total.n_releases == 4
    mus = [head.release_.guarantee(0.2).mu for head in heads]
    # Once, though each release states it.
    assert total.mu == pytest.approx(compose([*mus, mu_from_pure(0.5)]))
    summed = epsilon_from_mu(compose(mus), 1e-6) + 0.5
    assert total.epsilon == pytest.approx(min(summed, epsilon_from_mu(total.mu, 1e-6)))
    seeded = PrivacyAccountant()
    RadiusPolicy(source="private", epsilon=0.5, random_state=0, accountant=seeded).fit(X, Y)
    assert seeded.total().epsilon == math.inf


def test_a_head_counts_the_radius_of_its_policy_before_it_is_drawn(monkeypatch):
    policy = RadiusPolicy(source="private", epsilon=0.5)
    accountant = PrivacyAccountant(radius=0.2)
    head_of(accountant, radius=policy).fit(X, Y)
    search(head_of(accountant, radius=policy), cv=2).fit(X, Y)
    kinds = [type(record).__name__ for record in accountant.records]
    assert kinds == ["OtherRelease", "Release"] * 8
    # Each draw once, although two rows of the ledger state it.
    assert sum(charge.pure > 0 for charge in accountant.ledger.charges()) == 16
    assert len(ledger.pure_of(accountant.ledger.charges())) == 8
    monkeypatch.setattr("sklearn_balldp.radius.private_quantile", interrupted_draw)
    tight = PrivacyAccountant(radius=0.2, limit=0.4)
    with pytest.raises(BudgetExceededError):
        head_of(tight, radius=policy).fit(X, Y)
    with pytest.raises(ValueError, match="another accountant than the head"):
        head_of(radius=RadiusPolicy(source="private", epsilon=0.5, accountant=tight)).fit(X, Y)


def test_declared_radii_are_conditional():
    policy = RadiusPolicy(source="declared")
    for model in (policy, head_of(radius=clone(policy))):
        accountant = PrivacyAccountant(radius=0.2)
        accountant.attach(model).fit(X, Y)
        assert (accountant.total().private, accountant.total().n_releases) == ("conditional", 1)


def test_radii_drawn_without_an_accountant_count_once():
    frozen = FrozenEstimator(RadiusPolicy(source="private", epsilon=0.5).fit(X, Y))
    accountant = PrivacyAccountant()
    heads = [head_of(accountant, radius=frozen).fit(X, Y) for _ in range(2)]
    mus = [head.release_.guarantee(2.0).mu for head in heads]
    expected = compose([*mus, mu_from_pure(0.5)])
    assert accountant.total().mu == pytest.approx(expected)
    assert accountant.ledger.mu_squared() == pytest.approx(expected**2)
    assert compose_releases([head.release_ for head in heads]).mu == pytest.approx(expected)
    # The limit knows it too.
    limit = epsilon_from_mu(compose([mus[0], 0.5 * mu_from_pure(0.5)]), 1e-6)
    with pytest.raises(BudgetExceededError):
        head_of(PrivacyAccountant(limit=limit), radius=frozen).fit(X, Y)


def test_a_failed_fit_does_not_take_back_a_radius_that_others_rest_on(monkeypatch):
    """Two fits under way at once rest on one private radius, drawn before; the first fails."""
    frozen = FrozenEstimator(RadiusPolicy(source="private", epsilon=0.25).fit(X, Y))
    # The drawn radius may be any: there is room for two fits at once, and not for three.
    own = head_of(None, 0.5, radius=frozen).fit(X, Y).release_.guarantee(2.0).mu
    pure = mu_from_pure(0.25)
    limit = epsilon_from_mu(math.sqrt(2.5 * own**2 + pure**2), 1e-6)
    accountant, values = PrivacyAccountant(limit=limit), Sums.values
    head = head_of(accountant, 0.5, radius=frozen)

    def late(*arguments):
        # Another fit ends while this one is under way.
        monkeypatch.setattr(Sums, "values", values)
        clone(head).fit(X, Y)
        raise OSError("the disk is full")

    monkeypatch.setattr(Sums, "values", late)
    with pytest.raises(OSError, match="disk"):
        head.fit(X, Y)
    assert accountant.ledger.mu_squared() == pytest.approx(own**2 + pure**2)
    left = mu_from_budget(limit, 1e-6) ** 2 - own**2 - pure**2
    assert accountant.remaining() == pytest.approx(epsilon_from_mu(math.sqrt(left), 1e-6))
    head.fit(X, Y)
    with pytest.raises(BudgetExceededError):
        head.fit(X, Y)
    assert accountant.total().mu <= mu_from_budget(limit, 1e-6)


def test_a_radius_that_is_stated_twice_counts_by_the_larger(counts):
    frozen = FrozenEstimator(RadiusPolicy(source="private", epsilon=0.5).fit(X, Y))
    release = head_of(radius=frozen).fit(X, Y).release_
    less = replace(release, radius_epsilon=0.01)
    totals = [compose_releases(pair).mu for pair in ([release, less], [less, release])]
    assert totals[0] == totals[1] == compose_releases([release, release]).mu
    for stated in (less, release, less):
        counts.ledger.add(stated)
    assert counts.ledger.mu_squared() == pytest.approx(counts.total().mu ** 2)


# Records ----------------------------------------------------------------------------------------


def test_compose_releases_from_json():
    releases = [
        FITTED.release_,
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


@dataclass(frozen=True)
class ElsewhereBound(Bound):
    """A bound of a module that a reader may not have."""

    sigma: float

    def mu_at(self, problem, radius, labels):
        return radius / self.sigma


def test_a_record_that_cannot_be_read_here_is_not_lost(path, monkeypatch):
    """Its bound is defined where it was made: nothing is forgotten, and the limit counts it."""
    other = replace(
        FITTED.release_, head="Own", mechanism="elsewhere", bound=ElsewhereBound(0.5 / MU)
    )
    PrivacyAccountant(path, radius=0.5, limit=epsilon_from_mu(1.5 * MU, 1e-6)).ledger.add(other)
    accountant = PrivacyAccountant(path)
    with monkeypatch.context() as patch:
        patch.delitem(KINDS, other.to_dict()["bound"]["type"])
        with pytest.raises(ValueError, match=f"import {__name__}, which defines it"):
            accountant.total(0.3)
        assert accountant.total().mu == pytest.approx(MU)
        head_of(accountant).fit(X, Y)
        with pytest.raises(BudgetExceededError):
            head_of(accountant).fit(X, Y)
    assert len(accountant.records) == 2
    assert accountant.total().mu == pytest.approx(math.sqrt(2) * MU, rel=1e-6)


def test_totals_read_like_releases():
    accountant = PrivacyAccountant(radius=0.5, limit=6.0)
    for _ in range(2):
        head_of(accountant, 2.0).fit(X, Y)
    shown = str(accountant.total())
    assert shown.startswith("Total\n  releases")
    for part in ("within 0.5", "of the limit 6", "a priori", "the fits of heads", "zCDP rho"):
        assert part in shown
    assert "NOT known: a fit was given no groups=" in shown
    assert "ex post" in str(compose_releases(accountant.releases, radius=0.5))
    assert "any distance" in str(PrivacyAccountant().total())
    # What no total covers is one list, which every total shows.
    assert all(point in shown and point in PrivacyAccountant.__doc__ for point in NOT_COVERED)


# Private scores ---------------------------------------------------------------------------------


def test_private_accuracy_law():
    scorer = PrivateAccuracy(epsilon=1.0)
    draws = np.array([scorer(FITTED, X, Y) for _ in range(600)])
    sigma = 1 / (len(X) * MU)
    # Six and a half standard errors of a normal mean and standard deviation.
    assert abs(draws.mean() - FITTED.score(X, Y)) < 6.5 * sigma / math.sqrt(600)
    assert abs(draws.std() / sigma - 1) < 6.5 / math.sqrt(1200)
    assert "PrivateAccuracy(epsilon=1.0" in repr(scorer)
    with pytest.raises(ValueError, match="epsilon"):
        PrivateAccuracy(epsilon=-1.0)


def test_private_accuracy_scale(monkeypatch):
    """One row moves the accuracy by 1 / n: the noise is that over mu, and no less."""
    sigmas = []
    monkeypatch.setattr(
        Noise, "__call__", lambda self, values, sigma: sigmas.append(sigma) or np.array(values)
    )
    assert PrivateAccuracy(1.0)(FITTED, X, Y) == FITTED.score(X, Y)
    assert 1 <= sigmas[0] * len(X) * MU <= 1 + 1e-9


def test_a_score_hides_only_what_the_model_hides(counts):
    """One training record may move a nearest neighbour's score from all to half."""
    scorer = PrivateAccuracy(0.5, accountant=counts)
    rows = np.array([[0.0], [1.0]])
    one = KNeighborsClassifier(1).fit(rows, [0, 1])
    other = KNeighborsClassifier(1).fit([[0.0], [-9.0]], [0, 1])
    held = np.array([[0.1], [0.9]] * 50), np.array([0, 1] * 50)
    assert one.score(*held) - other.score(*held) == 0.5
    voted = VotingClassifier([("a", head_of()), ("b", LogisticRegression())]).fit(X, Y)
    # A fixed seed: noise that makes one class of all rows leaves no threshold to tune.
    seeded, side = head_of(random_state=0), X[:, 0] > 0
    chosen = RFECV(head_of(), cv=2, importance_getter="prototypes_").fit(X, Y)
    private, leaking = PrivateAccuracy(1.0), {"return_train_score": True}
    frozen = FrozenEstimator(FunctionTransformer(scale))
    searched = {"scoring": private, "return_train_score": False}
    for model, data in (
        (one, held),
        (LogisticRegression().fit(X, Y), (X, Y)),
        (make_pipeline(Normalizer(), LogisticRegression()).fit(X, Y), (X, Y)),
        (voted, (X, Y)),
        (CalibratedClassifierCV(head_of(), cv=2).fit(X, Y), (X, Y)),
        # What a fit finds beside the heads, by their scores on the same rows.
        (search(head_of(), cv=2).fit(X, Y), (X, Y)),
        (search(head_of(), cv=2, scoring=private, **leaking).fit(X, Y), (X, Y)),
        (search(head_of(), cv=2, scoring=PrivateAccuracy(1.0, random_state=0)).fit(X, Y), (X, Y)),
        (TunedThresholdClassifierCV(seeded, cv=2).fit(X, side), (X, side)),
        (chosen, (X, Y)),
        (make_pipeline(StandardScaler(), head_of()).fit(X, Y), (X, Y)),
        # What learns nothing may compare rows all the same.
        (make_pipeline(FunctionTransformer(scale), head_of()).fit(X, Y), (X, Y)),
        (make_pipeline(frozen, head_of()).fit(X, Y), (X, Y)),
        # What says of itself that it was released, or chosen.
        (SimpleNamespace(release_=None, predict=FITTED.predict), (X, Y)),
        (SimpleNamespace(best_estimator_=FITTED, predict=FITTED.predict, **searched), (X, Y)),
    ):
        with pytest.raises(ValueError, match="not all comes from a release"):
            scorer(model, *data)
    with pytest.raises(ValueError, match="functiontransformer is not known to map each row"):
        scorer(make_pipeline(FunctionTransformer(scale), FITTED), X, Y)
    assert not counts.records
    models = (
        FITTED,
        make_pipeline(Normalizer(), head_of()).fit(X, Y),
        make_pipeline(FrozenEstimator(StandardScaler().fit(X)), head_of()).fit(X, Y),
        FrozenEstimator(FITTED),
        VotingClassifier([("a", head_of()), ("b", head_of())]).fit(X, Y),
        OneVsRestClassifier(head_of()).fit(X, Y),
        search(head_of(), cv=KFold(2), scoring=private).fit(X, Y),
    )
    for model in models:
        assert scorer(model, X, Y) > -9.0
    assert len(counts.records) == len(models)
    with pytest.raises(ValueError, match="not all comes from a release"):
        cross_val_score(LogisticRegression(), X, Y, scoring=scorer, error_score="raise")
