"""The ledger: a file that no failure, process or hand makes count too little."""

import gc
import math
import os
import pickle
import signal
import sqlite3
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import PurePosixPath, PureWindowsPath

import pytest
from counted_heads import FITTED, MU, X, Y, head_of, in_child, interrupted
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from sklearn_balldp import PrivacyAccountant, RadiusPolicy
from sklearn_balldp.accounting import BudgetExceededError, OtherRelease, PrivateAccuracy, ledger
from sklearn_balldp.accounting.ledger import LedgerError
from sklearn_balldp.mechanisms import Sums
from sklearn_balldp.privacy.bounds import KINDS, Bound
from sklearn_balldp.privacy.gaussian import compose, epsilon_from_mu
from sklearn_balldp.publish import save

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


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


@pytest.mark.kills(
    "accounting/ledger.py",
    "if page.terms != self.terms:",
    "if page.terms.radius != self.terms.radius:",
)
@pytest.mark.kills(
    "accounting/ledger.py", "if page.seals[number : number + 1] != [seal]:", "if False:"
)
def test_each_fault_of_a_ledger_refuses_the_fit_in_its_own_words(path, monkeypatch):
    monkeypatch.setattr(ledger, "_WAIT", 0.1)
    accountant, head = PrivacyAccountant(path, radius=0.5), None
    head = head_of(accountant)
    kept = path.read_bytes()

    def refused(match):
        for spends in (
            head.fit,
            PrivateAccuracy(1.0, accountant=accountant).__call__,
            RadiusPolicy(source="declared", accountant=accountant).fit,
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
    monkeypatch.setattr(ledger, "_BEGINNING", 0.1)
    refused("the file is empty")
    with pytest.raises(LedgerError, match="the file is empty"):
        PrivacyAccountant(path)  # it does not begin anew
    path.write_bytes(kept)
    head.fit(X, Y)
    assert accountant.total().n_releases == 1
    path.write_bytes(kept)
    refused("it is an older copy")
    PrivacyAccountant(path).spend(mu=1.0, what="in the older copy")
    refused("it is an older copy")
    with closing(sqlite3.connect(path.with_name("others"))) as others, others:
        others.execute("CREATE TABLE of_others (body TEXT)")
    for other, match in (("others", "no ledger"), ("budget.ledger/beside", "cannot be made")):
        with pytest.raises(LedgerError, match=f"{match}.* a disk of this machine"):
            PrivacyAccountant(path.parent / other)


EDITS = {
    "UPDATE charge SET mu = NULL": "changed",
    "UPDATE charge SET mu = 0.01 WHERE id = 2": "changed",
    "UPDATE record SET body = '[]'": "changed",
    "UPDATE record SET seal = NULL": "changed",
    "UPDATE terms SET body = replace(body, '9.0', '99.0')": "changed",
    "UPDATE terms SET body = replace(body, '9.0', '\"9\"')": "cannot be read",
    "UPDATE terms SET body = NULL": "cannot be read",
    "INSERT INTO terms VALUES ('{}')": "no terms, or two",
    "DELETE FROM terms": "no terms, or two",
    "DELETE FROM charge": "removed",
    "DELETE FROM record WHERE id = 2": "removed",
    "DELETE FROM charge WHERE id = 2; DELETE FROM record WHERE id = 2": "removed",
    "INSERT INTO record VALUES (3, '[]', '')": "removed",
    "UPDATE charge SET id = 7 WHERE id = 2": "changed",
    "CREATE TRIGGER one AFTER INSERT ON charge BEGIN DELETE FROM charge; END": "trigger",
    "DROP TABLE record": "damaged",
    "ALTER TABLE charge RENAME mu TO nu": "damaged",
}


@pytest.mark.parametrize(("edit", "fault"), EDITS.items())
@pytest.mark.kills(
    "accounting/ledger.py",
    "bool(rows) and seals[-1] != digest.hexdigest()",
    "any(row[-1] is None for row in rows)",
)
def test_a_ledger_that_was_edited_by_hand_is_not_believed(path, edit, fault):
    accountant = PrivacyAccountant(path, radius=0.5, limit=9.0)
    for _ in range(2):
        accountant.ledger.add(FITTED.release_)
    with closing(sqlite3.connect(path)) as base:
        base.executescript(edit)
    for asks in (
        head_of(accountant).fit,
        lambda *_: accountant.total(),
        lambda *_: accountant.remaining(),
        lambda *_: accountant.records,
        lambda *_: PrivacyAccountant(path),
    ):
        with pytest.raises(LedgerError, match=f"{fault}.*nothing was released"):
            asks(X, Y)
    assert "cannot be read" in repr(accountant)


def test_addresses_of_files_on_other_systems():
    """SQLite knows no hosts: it took a share, file://server/..., for one, and called it damaged."""
    share = ledger._address(PureWindowsPath(r"\\server\share\a budget?.ledger"))
    assert share == "file:////server/share/a%20budget%3F.ledger"
    assert ledger._address(PureWindowsPath(r"C:\budget.ledger")) == "file:///C:/budget.ledger"
    assert ledger._address(PurePosixPath("/a/b#1%")) == "file:///a/b%231%25"
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        sqlite3.connect(f"{share}?mode=rw", uri=True)


@pytest.mark.parametrize(("moment", "n_counted"), [("in its fit", 1), ("in its charge", 0)])
def test_a_killed_process_leaves_a_whole_charge_or_none(path, moment, n_counted):
    """What touched rows was charged before; the lock of the dead one is gone."""

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def killed():
        accountant, connect = PrivacyAccountant(path, radius=0.5), sqlite3.connect

        def dying(*given, **options):
            base = connect(*given, **options)
            # Between two writes of one charge.
            base.set_trace_callback(lambda text: "INTO record" in text and die())
            return base

        if moment == "in its fit":
            Sums.values = die
        else:
            sqlite3.connect = dying
        head_of(accountant).fit(X, Y)

    assert os.waitpid(in_child(killed), 0)[1] == signal.SIGKILL
    accountant = PrivacyAccountant(path)
    assert accountant.total().n_releases == len(accountant.records) == n_counted
    assert accountant.total().mu == pytest.approx(MU * n_counted)
    head_of(accountant).fit(X, Y)
    assert accountant.total().n_releases == n_counted + 1


@pytest.mark.kills("accounting/ledger.py", "'EXTRA' if self._lasting else 'OFF'", "'OFF'")
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


def test_processes_that_begin_one_ledger_share_it(path, monkeypatch):
    """SQLite makes it, whole or not at all: without hard links, which some disks lack."""
    monkeypatch.setattr(os, "link", interrupted)
    for number in range(3):
        waiting, go = os.pipe()
        begun = path.with_name(f"{number}.ledger")

        def spend(waiting=waiting, begun=begun):
            os.read(waiting, 1)
            accountant = PrivacyAccountant(begun, radius=0.5)
            for _ in range(3):
                accountant.spend(mu=0.1, what=accountant.ledger.terms.name)

        children = [in_child(spend) for _ in range(8)]
        os.write(go, b"x" * 8)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 8
        accountant = PrivacyAccountant(begun)
        assert [record.what for record in accountant.records] == [accountant._names()[1]] * 24
    assert len(os.listdir(path.parent)) == 3


def test_a_child_that_is_forked_while_a_thread_counts_can_count(counts, monkeypatch):
    """SQLite's locks would be copied into it, and never be freed there."""
    monkeypatch.setattr(ledger, "_WAIT", 20.0)
    done = threading.Event()

    def work():
        # It leaves the file for a moment: SQLite promises nobody a turn.
        while not done.wait(0.002):
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


def test_ten_thousand_releases_are_added_up_in_a_second(counts):
    """Every row was once compared with all rows before it."""
    number = 10_000
    with counts.ledger._opened("BEGIN IMMEDIATE") as (base, page):
        for i in range(1, number + 1):
            record = OtherRelease("score", mu=0.1)
            charge, body = ledger.charge_of(record, 0.5), ledger._written(record)
            page.digest.update(ledger._bytes_of((i, *charge, body)))
            base.execute("INSERT INTO charge VALUES (?, ?, ?)", (i, *charge))
            base.execute("INSERT INTO record VALUES (?, ?, ?)", (i, body, page.digest.hexdigest()))
    begun = time.process_time()
    total = counts.total()
    counts.spend(mu=0.1, what="one more")
    assert time.process_time() - begun < 1.0
    assert total.n_releases == number
    assert total.mu == pytest.approx(compose([0.1] * number))


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
