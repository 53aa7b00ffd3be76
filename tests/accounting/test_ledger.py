"""The ledger: a file that no failure, process or accident makes count too little."""

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

import numpy as np
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


@pytest.mark.kills("accounting/ledger.py", " != self.terms:", ".radius != self.terms.radius:")
@pytest.mark.kills("accounting/ledger.py", "page.names[number : number + 1] != [name]:", "False:")
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
    refused("is damaged, empty, no ledger, or cannot be written")
    with pytest.raises(LedgerError, match="no ledger"):
        PrivacyAccountant(path)
    path.write_bytes(b"")
    monkeypatch.setattr(ledger, "_BEGINNING", 0.1)
    refused("is damaged, empty")
    with pytest.raises(LedgerError, match="is damaged, empty"):
        PrivacyAccountant(path)  # it does not begin anew
    path.write_bytes(kept)
    head.fit(X, Y)
    assert accountant.total().n_releases == 1
    path.write_bytes(kept)
    refused("it is an older copy")
    head_of(PrivacyAccountant(path)).fit(X, Y)  # the same, of another noise
    refused("it is an older copy")
    with closing(sqlite3.connect(path.with_name("others"))) as others, others:
        others.execute("CREATE TABLE of_others (body TEXT)")
    for other, match in (("others", "no ledger"), ("budget.ledger/beside", "cannot be made")):
        with pytest.raises(LedgerError, match=f"{match}.* a disk of this machine"):
            PrivacyAccountant(path.parent / other)


@pytest.mark.kills("accounting/ledger.py", "if layout != FORMAT:", "if False:")
def test_a_ledger_of_an_earlier_format_is_named_and_never_begun_anew(tmp_path):
    """What it counts stays spent."""
    path = tmp_path / "budget.ledger"
    PrivacyAccountant(path, radius=0.5).spend(mu=1.0, what="before")
    with closing(sqlite3.connect(path)) as base:
        base.execute("PRAGMA user_version = 0")
    kept = path.read_bytes()
    with pytest.raises(LedgerError, match=r"has format 2, and .* reads format 3; .* stays spent"):
        PrivacyAccountant(path, radius=0.5)
    assert path.read_bytes() == kept


@pytest.mark.kills("accounting/ledger.py", "any(row != _with_crc(*row[:-1])", "any(False")
@pytest.mark.kills("accounting/ledger.py", ".Error, OSError, UnicodeError)", ".Error, OSError)")
def test_a_damaged_ledger_is_refused_or_tells_the_same(path):
    """One that was cut off, or lost a sector or some bits; and one without its terms."""
    accountant = PrivacyAccountant(path, radius=0.5, limit=9.0)
    for _ in range(3):
        accountant.ledger.add(FITTED.release_)
    kept, total, rng = path.read_bytes(), accountant.total(), np.random.default_rng(0)
    damaged = [kept[:size] for size in range(512, len(kept), 512)]
    damaged += [kept[: at - 512] + bytes(512) + kept[at:] for at in range(512, len(kept), 512)]
    for at in rng.integers(len(kept), size=200):
        damaged.append(kept[:at] + rng.bytes(4) + kept[at + 4 :])
    held = kept.index(np.array(FITTED.release_.guarantee(0.5).mu, ">f8").tobytes())
    damaged.append(kept[: held + 1] + b"\0" + kept[held + 2 :])  # a mu that is too small
    damaged.append(kept.replace(b"TABLE charge", b"TA\xffLE\xffcharge"))  # SQLite's error quotes it
    n_refused = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            assert PrivacyAccountant(path).total() == total
            assert accountant.total() == total
        except LedgerError:
            n_refused += 1
            for asks in (head_of(accountant).fit, lambda *_: PrivacyAccountant(path)):
                with pytest.raises(LedgerError, match=r"(damaged|format).*nothing was released"):
                    asks(X, Y)
            assert "cannot be read" in repr(accountant)
    assert n_refused > 50
    for edit in ("DELETE FROM terms", "UPDATE terms SET body = NULL", "DROP TABLE charge"):
        path.write_bytes(kept)
        with closing(sqlite3.connect(path)) as base:
            base.executescript(edit)
        with pytest.raises(LedgerError, match="is damaged"):
            PrivacyAccountant(path)


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
            base, written = connect(*given, **options), []
            # After a charge is written, and before that is final.
            base.set_trace_callback(
                lambda text: die() if written else "INTO charge" in text and written.append(text)
            )
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
    number, score = 10_000, OtherRelease("score", mu=0.1)
    row = *ledger.charge_of(score, 0.5), ledger._written(score), "name"
    with counts.ledger._opened("BEGIN IMMEDIATE") as (base, _):
        every = (ledger._with_crc(i, *row) for i in range(1, number + 1))
        base.executemany("INSERT INTO charge VALUES (?, ?, ?, ?, ?, ?)", every)
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
