"""The ledger: a file in which every process counts a release before it is made."""

import contextlib
import json
import math
import os
import sqlite3
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations, product
from pathlib import Path, PurePath
from typing import Any, NamedTuple
from urllib.parse import quote

from .._parameters import Epsilon, Inside, check_number, check_option, check_positive
from .._version import __version__
from ..adjacency import LABELS
from ..encoder_name import same_encoder
from ..privacy.gaussian import compose, epsilon_from_mu, mu_from_budget
from ..privacy.origins import Declared
from ..privacy.release import Release
from ..showing import UP, rounded
from ..writing import IN_USE, own_file

#: Seconds that a process waits for others, and for the terms in a file that another has made.
_WAIT, _BEGINNING = 60.0, 5.0
#: Layout of the file, which holds records. Earlier versions wrote no number: theirs is 2.
FORMAT = 3
#: What releases must share to be added up at a common radius.
_SHARED = ("metric", "norm_bound", "domain", "n_features", "full_radius", "encoder")
_TABLES = (
    "terms (body TEXT, crc INTEGER)",
    "charge (id INTEGER PRIMARY KEY, mu REAL, kind TEXT, body TEXT, name TEXT, crc INTEGER)",
)


class BudgetExceededError(ValueError):
    """A release would take the total above an accountant's limit; it was not made."""


class LedgerError(OSError):
    """A ledger cannot be read or written, so nothing was released."""


@dataclass(frozen=True)
class OtherRelease:
    """A release of something else than a head: a declared radius, or a noisy score."""

    what: str
    mu: float = 0.0  # Gaussian differential privacy, for every substitution
    #: False when it was drawn from a seed; "conditional" when it was declared public.
    private: bool | str = True
    labels: str = "any"  # "public" when it hides feature substitutions only
    unit: str = "any"  # "record" when it hides one record, and not all of one person


Record = Release | OtherRelease


@dataclass(frozen=True)
class Terms:
    """What a ledger was made with, and keeps."""

    delta: float = 1e-6
    radius: float | None = None  # common radius of total and limit; None is the full radius
    limit: float | None = None
    #: What every release must hide.
    labels: str = "public"
    unit: str = "record"
    #: Random: another file at the same path is another ledger.
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        check_number("delta", self.delta, Inside)
        if self.radius is not None:
            check_positive("radius", self.radius, ", or None")
        if self.limit is not None:
            check_number("limit", self.limit, Epsilon, ", or None")
        check_option("labels", self.labels, LABELS)
        check_option("unit", self.unit, ("record", "person"))
        for name in ("delta", "radius", "limit"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else float(value))


class Charge(NamedTuple):
    """What a record adds to a total at one radius: a row of the ledger."""

    mu: float  # Gaussian differential privacy; infinite where a seed drew the noise
    kind: str  # JSON of what it hides, and of what it shares with others


class _Page(NamedTuple):
    """All that a ledger holds at one moment."""

    terms: Terms
    charges: list[Charge]
    bodies: list[str]  # JSON of the records
    names: list[str]  # empty, then a random one of each charge


def charge_of(record: Record, radius: float | None) -> Charge:
    """What a record adds to a total at a radius; None is the full radius."""
    kind = {"labels": record.labels, "unit": record.unit, "private": record.private}
    if isinstance(record, Release):
        kind |= {name: getattr(record, name) for name in _SHARED}
        mu = record.guarantee(record.full_radius if radius is None else radius).mu
    else:
        mu = record.mu
    return Charge(math.inf if record.private is False else mu, json.dumps(kind))


def mu_of(charges: Sequence[Charge]) -> float:
    """Gaussian differential privacy of all charges together."""
    return compose(charge.mu for charge in charges)


def kinds_of(texts: Iterable[str]) -> list[dict[str, Any]]:
    """The different kinds of releases; a ValueError if no common adjacency covers them."""
    kinds = [json.loads(text) for text in dict.fromkeys(texts)]
    of_heads = [kind for kind in kinds if "metric" in kind]
    for name, (first, second) in product(_SHARED, combinations(of_heads, 2)):
        one, other = first[name], second[name]
        # An encoder that one of them does not name contradicts nothing.
        same = name == "encoder" and (None in (one, other) or same_encoder(one, other))
        if not (same or one == other):
            raise ValueError(
                f"releases differ in {name} ({one}, {other}): no common adjacency covers them; "
                "count each kind in a ledger of its own."
            )
    return kinds


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
        page = self._begun(Terms(**asked))
        self.terms = page.terms
        #: How many charges were seen, and the last: an older copy lacks it, or has another there.
        self._seen = len(page.charges), page.names[-1]
        for name, value in asked.items():
            kept = getattr(self.terms, name)
            if value != kept:
                raise ValueError(
                    f"{name}={value!r}: the ledger {path!r} was made with {name}={kept!r}, and a "
                    "ledger keeps its terms; leave them out, or name another file."
                )

    def _begun(self, terms: Terms) -> _Page:
        """What the file holds; one that is missing is made, whole or not at all."""
        missing, until = not os.path.exists(self.path), time.monotonic() + _BEGINNING
        while True:
            with self._transaction("BEGIN IMMEDIATE" if missing else "BEGIN", missing) as base:
                if missing:
                    base.execute(f"PRAGMA user_version = {FORMAT}")
                    for table in _TABLES:
                        base.execute(f"CREATE TABLE IF NOT EXISTS {table}")
                    base.execute(
                        "INSERT INTO terms SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM terms)",
                        _with_crc(json.dumps(asdict(terms))),
                    )
                ((n_tables,),) = base.execute("SELECT COUNT(*) FROM sqlite_master")
                if n_tables or time.monotonic() > until:
                    return self._page(base)
            # Another process made the file a moment ago, and is about to write its terms.
            time.sleep(0.02)

    def charges(self) -> list[Charge]:
        """What every record adds at the radius of the terms."""
        with self._opened() as (_, page):
            return page.charges

    def records(self) -> list[Record]:
        """Everything counted."""
        with self._opened() as (_, page):
            return list(map(_read, page.bodies))

    def add(self, record: Record, *, keep: bool = True) -> None:
        """Write a record unless it exceeds the limit, in one step for all processes."""
        charge = charge_of(record, self.terms.radius)
        _check_hidden(self.terms, record)
        with self._opened("BEGIN IMMEDIATE") as (base, page):
            kinds_of([*(each.kind for each in page.charges), charge.kind])
            self._check_limit(record, charge, page.charges)
            number, name = len(page.charges) + 1, uuid.uuid4().hex
            row = _with_crc(number, *charge, _written(record), name)
            base.execute("INSERT INTO charge VALUES (?, ?, ?, ?, ?, ?)", row)
            if not keep:
                base.rollback()
        if keep:
            self._seen = max(self._seen, (number, name))

    def check(self, record: Record) -> None:
        """Raise what :meth:`add` would raise; nothing is counted."""
        self.add(record, keep=False)

    def _check_limit(self, record: Record, charge: Charge, earlier: list[Charge]) -> None:
        """Raise an error if a charge beside the earlier ones would pass the limit."""
        terms = self.terms
        if terms.limit is None:
            return
        if mu_of([*earlier, charge]) <= mu_from_budget(terms.limit, terms.delta):
            return
        spent, cost = (epsilon_from_mu(mu_of(part), terms.delta) for part in (earlier, [charge]))
        where = "at any distance" if terms.radius is None else f"within {terms.radius:g}"
        told = way = ""
        # What a radius costs tells it: those were read off private rows.
        if not isinstance(getattr(record, "radius_from", None), Declared):
            told = f": it costs epsilon={rounded(cost, 4, UP)} {where}, where this ledger counts"
            if isinstance(record, Release) and record.radius < (terms.radius or record.full_radius):
                own = rounded(record.guarantee().epsilon, 4, UP)
                told += f" (its own epsilon={own} holds within {record.radius:g} alone)"
                way = ", or count fits of another radius in a ledger of that radius"
        so_far = f"{len(earlier)} release(s) so far, epsilon={rounded(spent, 4, UP)} {where}"
        raise BudgetExceededError(
            f"this release would take the total above limit={terms.limit!r} (delta="
            f"{terms.delta!r}, {so_far}){told}; nothing was released. Lower epsilon, or make fewer "
            f"fits{way}."
        )

    @contextlib.contextmanager
    def _opened(self, begin: str = "BEGIN") -> Iterator[tuple[sqlite3.Connection, _Page]]:
        """One transaction of this ledger, which an error rolls back, and all that it holds."""
        with self._transaction(begin) as base:
            page, (number, name) = self._page(base), self._seen
            if page.terms != self.terms:
                raise LedgerError(
                    f"the ledger {self.path!r} is not the one that this accountant was made with: "
                    "its terms, or its name, are others; nothing was released. Put that one back, "
                    "or make the accountant anew."
                )
            if page.names[number : number + 1] != [name]:
                raise LedgerError(
                    f"the ledger {self.path!r} lacks what this accountant has counted in it: it is "
                    "an older copy; nothing was released. Put the newest one back."
                )
            self._seen = len(page.charges), page.names[-1]
            yield base, page

    def _page(self, base: sqlite3.Connection) -> _Page:
        """All that the file holds; an error if it is damaged, or of another format."""
        of_terms = base.execute("SELECT * FROM terms").fetchall()
        ((layout,),) = base.execute("PRAGMA user_version")
        if layout != FORMAT:
            raise LedgerError(
                f"the ledger {self.path!r} has format {layout or 2}, and sklearn_balldp "
                f"{__version__} reads format {FORMAT}; nothing was released. What it counts stays "
                "spent: count on with the version that made it, and in a new ledger only releases "
                "of other records."
            )
        rows = base.execute("SELECT * FROM charge ORDER BY id").fetchall()
        if len(of_terms) != 1 or any(row != _with_crc(*row[:-1]) for row in [*of_terms, *rows]):
            raise sqlite3.DatabaseError("what it holds is not what was written")
        charges = [Charge._make(row[1:3]) for row in rows]
        terms, names = Terms(**json.loads(of_terms[0][0])), ["", *(row[4] for row in rows)]
        return _Page(terms, charges, [row[3] for row in rows], names)

    @contextlib.contextmanager
    def _transaction(self, begin: str, make: bool = False) -> Iterator[sqlite3.Connection]:
        address = f"{_address(Path(self.path))}?mode=rw"
        try:
            if make:
                own_file(self.path)
            with (
                IN_USE,
                contextlib.closing(
                    sqlite3.connect(address, uri=True, timeout=_WAIT, isolation_level=None)
                ) as base,
                base,
            ):
                # EXTRA writes the folder out too, or a power cut might bring back what was before.
                base.execute(f"PRAGMA synchronous = {'EXTRA' if self._lasting else 'OFF'}")
                base.execute(begin)
                yield base
        except LedgerError:
            raise
        except (sqlite3.Error, OSError, UnicodeError) as error:
            raise LedgerError(self._fault(error, make)) from error

    def _fault(self, error: Exception, make: bool) -> str:
        named = f"the ledger {self.path!r}"
        if make:
            return (
                f"{named} cannot be made ({getattr(error, 'strerror', error)}). Name a file in a "
                "folder that exists and that you may write to, on a disk of this machine."
            )
        if not os.path.exists(self.path):
            return (
                f"{named} is missing, or on another machine; nothing was released. Put it back, or "
                "pass another accountant. One that was made without a path ends with its object."
            )
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            return (
                f"{named} was locked by another process for {_WAIT:g} seconds; nothing was "
                "released. End that process, or try again; if there is none, the disk has no "
                "locks: put the file on a disk of this machine."
            )
        return (
            f"{named} is damaged, empty, no ledger, or cannot be written ({error}); nothing was "
            "released. Put it back as it was. It must be a file on a disk of this machine, in a "
            "folder that you may write to."
        )


def _address(path: PurePath) -> str:
    """The path as SQLite takes it, which knows no hosts: a share begins with four slashes."""
    text = path.as_posix()
    return f"file://{'' if text.startswith('/') else '/'}{quote(text, safe='/:')}"


def _with_crc(*row: Any) -> tuple[Any, ...]:
    """A row and its checksum: it tells of a disk that changed a bit, and not of a forger."""
    return (*row, zlib.crc32(repr(row).encode()))


def _written(record: Record) -> str:
    body = record.to_dict() if isinstance(record, Release) else asdict(record)
    return json.dumps([type(record).__name__, body])


def _read(text: str) -> Record:
    kind, body = json.loads(text)
    return Release.from_dict(body) if kind == "Release" else OtherRelease(**body)


def count(accountant: Any, record: Record) -> None:
    """Count a release with an accountant, if there is one, before it is made: it stays counted."""
    if accountant is not None:
        accountant.ledger.add(record)
