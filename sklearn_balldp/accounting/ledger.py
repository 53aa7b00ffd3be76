"""The ledger: a file in which every process counts a release before it is made."""

import contextlib
import json
import math
import operator
import os
import sqlite3
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..encoder_name import same_encoder
from ..privacy.gaussian import mu_from_budget, mu_from_pure
from ..privacy.release import Release

#: Seconds that a process waits for others.
_WAIT = 60.0
#: What releases must share to be added up at a common radius.
_SHARED = ("metric", "norm_bound", "domain", "n_features", "full_radius", "encoder")
# The square of the mu of all; each private radius once, by its largest statement.
_MU_SQUARED = """
SELECT TOTAL(mu * mu) + (
    SELECT TOTAL(largest * largest) FROM (
        SELECT MAX(mu_of_pure) AS largest FROM charge WHERE pure > 0
        GROUP BY CASE draw WHEN '' THEN id ELSE draw END
    )
) FROM charge
"""
_TABLES = """
CREATE TABLE terms (body TEXT);
CREATE TABLE charge (
    id INTEGER PRIMARY KEY AUTOINCREMENT, mu REAL, pure REAL, draw TEXT, kind TEXT, mu_of_pure REAL
);
CREATE TABLE record (id INTEGER PRIMARY KEY, body TEXT);
"""


# SQLite's locks are the process's: a child that is forked while a thread holds one finds the ledger
# locked for ever. So no process forks before its threads are done.
_IN_USE = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_IN_USE.acquire, after_in_parent=_IN_USE.release, after_in_child=_IN_USE.release
    )


class BudgetExceededError(ValueError):
    """A release would take the total above an accountant's limit; it was not made."""


class LedgerError(OSError):
    """A ledger cannot be read or written, so nothing was released."""


@dataclass(frozen=True)
class OtherRelease:
    """A release of something else than a head: a private radius, or a noisy score."""

    what: str
    #: Gaussian and pure differential privacy, for every substitution.
    mu: float = 0.0
    epsilon: float = 0.0
    #: False when it was drawn from a seed; "conditional" when it was declared public.
    private: bool | str = True
    #: "public" when it hides feature substitutions only.
    labels: str = "any"
    #: Identifies a private radius, which releases that rest on it name.
    draw: str = ""
    #: "record" when it hides one record, and not all of one person.
    unit: str = "any"


Record = Release | OtherRelease


@dataclass(frozen=True)
class Terms:
    """What a ledger was made with, and keeps."""

    delta: float = 1e-6
    #: Common radius of total and limit; None is the full radius.
    radius: float | None = None
    limit: float | None = None
    #: What every release must hide.
    labels: str = "public"
    unit: str = "record"
    #: Random: another file at the same path is another ledger.
    name: str = field(default_factory=lambda: uuid.uuid4().hex)


class Charge(NamedTuple):
    """What a record adds to a total at one radius: a row of the ledger."""

    #: Gaussian differential privacy; infinite where a seed drew the noise.
    mu: float
    #: Pure differential privacy, and the name of the private radius that spent it.
    pure: float
    draw: str
    #: JSON of what it hides, and of what it shares with others.
    kind: str


def charge_of(record: Record, radius: float | None) -> Charge:
    """What a record adds to a total at a radius; None is the full radius."""
    kind = {"labels": record.labels, "unit": record.unit, "private": record.private}
    if isinstance(record, Release):
        kind |= {name: getattr(record, name) for name in _SHARED}
        mu = record.guarantee(record.full_radius if radius is None else radius).mu
        pure, draw = record.radius_epsilon, record.radius_draw
    else:
        mu, pure, draw = record.mu, record.epsilon, record.draw
    return Charge(math.inf if record.private is False else mu, pure, draw, json.dumps(kind))


def pure_of(charges: Iterable[Charge]) -> list[float]:
    """What was spent beside Gaussian noise: each private radius once, by its largest statement."""
    draws: dict[str | int, float] = {}
    for number, charge in enumerate(charges):
        if charge.pure > 0.0:
            name = charge.draw or number
            draws[name] = max(charge.pure, draws.get(name, 0.0))
    return list(draws.values())


def kinds_of(texts: Iterable[str]) -> list[dict[str, Any]]:
    """The different kinds of releases; a ValueError if no common adjacency covers them."""
    kinds = [json.loads(text) for text in dict.fromkeys(texts)]
    shared = [kind for kind in kinds if "metric" in kind]
    for place, kind in enumerate(shared):
        for first in shared[:place]:
            _check_shared(first, kind)
    return kinds


def _check_shared(first: Mapping[str, Any], kind: Mapping[str, Any]) -> None:
    for name in _SHARED:
        # An encoder that one of them does not name contradicts nothing.
        undeclared = name == "encoder" and None in (first[name], kind[name])
        same = same_encoder if name == "encoder" else operator.eq
        if not (undeclared or same(first[name], kind[name])):
            raise ValueError(
                f"releases differ in {name} ({first[name]}, {kind[name]}): no common adjacency "
                "covers them; count each kind in a ledger of its own."
            )


def hidden_by_all(kinds: Iterable[Mapping[str, Any]], name: str, more: str, less: str) -> str:
    """What all releases hide: more only if none hides less."""
    return more if {kind[name] for kind in kinds} - {"any"} == {more} else less


def _check_hidden(terms: Terms, record: Record) -> None:
    """Raise a ValueError unless a release hides what the terms say that every one does."""
    what = "fit" if isinstance(record, Release) else f"private {record.what}"
    if terms.unit == "person" and record.unit == "record":
        raise ValueError(
            f"this accountant counts by person (unit='person'), and this {what} was given no "
            "groups=: it would hide one record; nothing was released. A search passes groups= to "
            "its heads by metadata routing alone: sklearn.set_config(enable_metadata_routing=True)"
            ", and set_fit_request(groups=True) on the head."
        )
    if terms.labels == "protected" and record.labels == "public":
        raise ValueError(
            f"this accountant counts what protects labels (labels='protected'), and this {what} "
            "takes them for public; nothing was released. Pass protect_labels=True to heads, and "
            "a radius that does not come from private rows."
        )


class Ledger:
    """A database file of terms and releases, whose lock orders the processes of this machine."""

    def __init__(self, path: str, asked: Mapping[str, Any], *, lasting: bool = True) -> None:
        """Open the file, or make it with these terms; a lasting one survives a power cut."""
        self.path, self._lasting = path, lasting
        if not os.path.exists(path):
            self._make(Terms(**asked))
        with self._transaction() as base:
            self.terms = _terms_of(base)
        for name, value in asked.items():
            kept = getattr(self.terms, name)
            if value != kept:
                raise ValueError(
                    f"{name}={value!r}: the ledger {path!r} was made with {name}={kept!r}, and a "
                    "ledger keeps its terms; leave them out, or name another file."
                )

    def _make(self, terms: Terms) -> None:
        """Write the file as a whole: a process that meets it finds its terms."""
        try:
            with tempfile.TemporaryDirectory(dir=os.path.dirname(self.path)) as folder:
                made = os.path.join(folder, "ledger")
                with contextlib.closing(sqlite3.connect(made)) as base, base:
                    base.execute(self._synchronous)
                    base.executescript(_TABLES)
                    body = json.dumps(asdict(terms))
                    base.execute("INSERT INTO terms VALUES (?)", (body,))
                # Unlike a move it replaces nothing: of two processes one is late.
                with contextlib.suppress(FileExistsError):
                    os.link(made, self.path)
        except (OSError, sqlite3.Error) as error:
            raise LedgerError(f"the ledger {self.path!r} cannot be made ({error}).") from error

    def charges(self) -> list[Charge]:
        """What every record adds at the radius of the terms."""
        with self._opened() as base:
            rows = base.execute("SELECT mu, pure, draw, kind FROM charge ORDER BY id").fetchall()
        return list(map(Charge._make, rows))

    def mu_squared(self) -> float:
        """Square of the mu of all at the radius of the terms, which a limit is compared with."""
        with self._opened() as base:
            return _mu_squared(base)

    def records(self) -> list[Record]:
        """Everything counted."""
        with self._opened() as base:
            bodies = base.execute("SELECT body FROM record ORDER BY id").fetchall()
        return [_read(body) for (body,) in bodies]

    def add(self, record: Record) -> int:
        """Write a record unless it exceeds the limit, in one step for all processes."""
        terms, charge = self.terms, charge_of(record, self.terms.radius)
        _check_hidden(terms, record)
        with self._opened("BEGIN IMMEDIATE") as base:
            earlier = base.execute("SELECT DISTINCT kind FROM charge").fetchall()
            kinds_of([*(kind for (kind,) in earlier), charge.kind])
            row = base.execute(
                "INSERT INTO charge VALUES (NULL, ?, ?, ?, ?, ?)",
                (*charge, mu_from_pure(charge.pure)),
            )
            base.execute("INSERT INTO record VALUES (?, ?)", (row.lastrowid, _written(record)))
            if terms.limit is not None:
                # Against a limit only one way of adding up may be used: the Gaussian one.
                allowed = mu_from_budget(terms.limit, terms.delta)
                if math.isinf(charge.mu) or math.sqrt(_mu_squared(base)) > allowed:
                    ((number,),) = base.execute("SELECT COUNT(*) FROM charge")
                    raise BudgetExceededError(
                        f"this release would take the total above limit={terms.limit!r} "
                        f"(delta={terms.delta!r}, {number - 1} release(s) so far); nothing was "
                        "released. Lower epsilon, or make fewer fits (accountant.remaining())."
                    )
        return int(row.lastrowid or 0)

    def remove(self, number: int) -> None:
        """Take back the charge of a release that was not made."""
        with self._opened("BEGIN IMMEDIATE") as base:
            for table in ("charge", "record"):
                base.execute(f"DELETE FROM {table} WHERE id = ?", (number,))

    @property
    def _synchronous(self) -> str:
        # EXTRA writes the folder out too, or a power cut might bring back what was before.
        return f"PRAGMA synchronous = {'EXTRA' if self._lasting else 'OFF'}"

    @contextlib.contextmanager
    def _opened(self, begin: str = "BEGIN") -> Iterator[sqlite3.Connection]:
        """One transaction of this ledger, which an error rolls back."""
        with self._transaction(begin) as base:
            if _terms_of(base) != self.terms:
                raise LedgerError(
                    f"the ledger {self.path!r} is not the one that this accountant was made with: "
                    "its terms, or its name, are others; nothing was released. Put that one back, "
                    "or make the accountant anew."
                )
            yield base

    @contextlib.contextmanager
    def _transaction(self, begin: str = "BEGIN") -> Iterator[sqlite3.Connection]:
        address = Path(self.path).as_uri() + "?mode=rw"
        try:
            with (
                _IN_USE,
                contextlib.closing(
                    sqlite3.connect(address, uri=True, timeout=_WAIT, isolation_level=None)
                ) as base,
                base,
            ):
                base.execute(self._synchronous)
                base.execute(begin)
                yield base
        except sqlite3.Error as error:
            raise LedgerError(self._fault(error)) from error

    def _fault(self, error: sqlite3.Error) -> str:
        named = f"the ledger {self.path!r}"
        if not os.path.exists(self.path):
            return (
                f"{named} is missing, or on another machine; nothing was released. Put it back, or "
                "pass another accountant. One that was made without a path ends with its object."
            )
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            return (
                f"{named} was locked by another process for {_WAIT:g} seconds; nothing was "
                "released. End that process, or try again."
            )
        return (
            f"{named} is damaged, no ledger, or cannot be written ({error}); nothing was released."
        )


def _terms_of(base: sqlite3.Connection) -> Terms:
    ((body,),) = base.execute("SELECT body FROM terms").fetchall()
    return Terms(**json.loads(body))


def _mu_squared(base: sqlite3.Connection) -> float:
    ((square,),) = base.execute(_MU_SQUARED).fetchall()
    return float(square)


def _written(record: Record) -> str:
    body = record.to_dict() if isinstance(record, Release) else asdict(record)
    return json.dumps([type(record).__name__, body])


def _read(text: str) -> Record:
    kind, body = json.loads(text)
    return Release.from_dict(body) if kind == "Release" else OtherRelease(**body)


@contextlib.contextmanager
def charged(
    accountant: Any, record: Record, drawn: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Count a release with an accountant, if there is one, before it is made.

    After an error, an interrupt included, the charge stays, unless ``drawn`` says that no noise was
    drawn yet: somebody may know it then.
    """
    if accountant is None:
        yield
        return
    process, number = os.getpid(), accountant.ledger.add(record)
    try:
        yield
    except BaseException:
        # A child that was forked in the fit does not know what its parent releases.
        if not drawn() and os.getpid() == process:
            # A charge that cannot be taken back stays: it counts too much.
            with contextlib.suppress(LedgerError):
                accountant.ledger.remove(number)
        raise
