"""The ledger of releases: a small database file, in which threads and processes count together.

Heads and private policies announce a release before they touch the rows. Every accountant that is
found (:mod:`.tickets`) writes it to its ledger.
"""

import contextlib
import json
import math
import operator
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..encoder_name import same_encoder
from ..privacy.gaussian import compose, epsilon_from_mu, mu_from_budget, mu_from_pure
from ..privacy.release import Release
from .tickets import Ticket, active_tickets

# Names that a record may leave open: what one does not say contradicts nothing.
_DECLARED = ("encoder",)
_WAIT = 60.0


class BudgetExceededError(ValueError):
    """A release would take the total above an accountant's limit; it was not made."""


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
#: Body, square of mu at the accountant's radius, that of the private radius it rests on, its draw,
#: and adjacency.
Row = tuple[str, float, float, str | None, str | None]

_COLUMNS = "body TEXT, square REAL, drawn REAL, draw TEXT, adjacency TEXT"
_NAMES = "body, square, drawn, draw, adjacency"
_SELECT = f"SELECT {_NAMES} FROM record ORDER BY id"
_INSERT = f"INSERT INTO record ({_NAMES}) VALUES (?, ?, ?, ?, ?)"


def adjacency_of(release: Release) -> dict[str, Any]:
    """What two releases must share to be composed at a common radius."""
    names = ("metric", "norm_bound", "domain", "n_features", "labels", "unit", *_DECLARED)
    return {name: getattr(release, name) for name in names}


def check_adjacency(known: Iterable[Mapping[str, Any]], other: Mapping[str, Any]) -> None:
    """Raise a ValueError unless releases share an adjacency, as far as they declare it."""
    for first in known:
        for name, value in first.items():
            undeclared = name in _DECLARED and None in (value, other[name])
            same = same_encoder if name == "encoder" else operator.eq
            if not (undeclared or same(value, other[name])):
                raise ValueError(
                    f"releases differ in {name} ({value}, {other[name]}): no common adjacency "
                    "covers them; account for each kind apart."
                )


def check_spent(labels: str, unit: str, spent: OtherRelease) -> None:
    """Raise a ValueError unless what was spent beside a head's release hides as much as that."""
    if unit == "person" and spent.unit == "record":
        raise ValueError(
            f"a private {spent.what} hides one record, beside releases that hide all records of "
            "one person: no common adjacency covers them; account for each kind apart."
        )
    if labels == "protected" and spent.labels == "public":
        raise ValueError(
            f"a private {spent.what} was drawn with public labels, beside releases that protect "
            "labels: no common adjacency covers them; use public reference rows."
        )


def check_unit(unit: str | None, record: Record) -> None:
    """Raise a ValueError unless a release hides what an accountant was told that all of them do."""
    if not isinstance(record, Release):
        check_spent("public", unit or "record", record)
    elif unit == "person" and record.unit != unit:
        raise ValueError(
            "this accountant counts by person (unit='person'), and this fit was given no groups=: "
            "it would hide one record; nothing was released. A search passes groups= to its heads "
            "by metadata routing alone: sklearn.set_config(enable_metadata_routing=True), and "
            "set_fit_request(groups=True) on the head."
        )
    elif unit == "record" and record.unit != unit:
        raise ValueError(
            "this accountant counts by record (unit='record'), and this fit was given groups=; "
            "nothing was released. Leave them out, or count by person."
        )


def square_of(rows: Iterable[Row]) -> float:
    """Square of the mu of all: each private radius once, whichever releases rest on it."""
    total, draws = 0.0, dict[str, float]()
    for _, square, drawn, draw, *_ in rows:
        total += square
        if draw is not None:
            draws[draw] = max(drawn, draws.get(draw, 0.0))
    return total + sum(draws.values())


class Ledger:
    """Records in a database file; its lock orders the writers of all processes."""

    def __init__(self, path: str) -> None:
        self._address = Path(path).as_uri() + "?mode=rw"

    def _connect(self, mode: str = "") -> contextlib.closing:
        base = sqlite3.connect(self._address + mode, uri=True, timeout=_WAIT, isolation_level=None)
        base.execute("PRAGMA synchronous = OFF")
        return contextlib.closing(base)

    def create(self, rows: Iterable[Row] = ()) -> None:
        """Begin with these rows, as :meth:`close` gave them."""
        with self._connect("c") as base:
            base.execute(f"CREATE TABLE record (id INTEGER PRIMARY KEY, {_COLUMNS})")
            base.executemany(_INSERT, rows)

    def rows(self) -> list[Row]:
        """Everything counted, as written: a bound that is not known here loses no record."""
        with self._connect() as base:
            return base.execute(_SELECT).fetchall()

    def close(self) -> list[Row]:
        """All rows; a writer that comes later finds no table, and makes no release."""
        with self._connect() as base, base:
            base.execute("BEGIN EXCLUSIVE")
            rows = base.execute(_SELECT).fetchall()
            base.execute("DROP TABLE record")
        return rows

    def add(self, record: Record, ticket: Ticket) -> int:
        """Write a record unless it exceeds the limit, in one step for all processes."""
        # The connection commits when its own block ends, and rolls back after an error.
        with self._connect() as base, base:
            base.execute("BEGIN IMMEDIATE")
            return self._insert(base, record, ticket)

    def _insert(self, base: sqlite3.Connection, record: Record, ticket: Ticket) -> int:
        radius, limit, delta = ticket.radius, ticket.limit, ticket.delta
        adjacency, draw, drawn = None, None, 0.0
        check_unit(ticket.unit, record)
        found = base.execute("SELECT DISTINCT adjacency FROM record WHERE adjacency IS NOT NULL")
        known = [json.loads(text) for (text,) in found]
        if isinstance(record, Release):
            own = adjacency_of(record)
            adjacency = json.dumps(own)
            mu = record.guarantee(record.full_radius if radius is None else radius).mu
            if record.radius_epsilon > 0.0:
                draw = record.radius_draw
                drawn = mu_from_pure(record.radius_epsilon) ** 2
            check_adjacency(known, own)
            for (body,) in base.execute("SELECT body FROM record WHERE adjacency IS NULL"):
                check_spent(record.labels, record.unit, read_record(body))  # type: ignore[arg-type]
        else:
            draw, mu = record.draw or None, record.mu
            if draw is None:
                mu = compose([mu, mu_from_pure(record.epsilon)])
            else:
                drawn = mu_from_pure(record.epsilon) ** 2
            if known:
                check_spent(known[0]["labels"], known[0]["unit"], record)
        if record.private is False:
            mu = math.inf
        # Without their bodies, which are long.
        rows = base.execute("SELECT '', square, drawn, draw, adjacency FROM record").fetchall()
        row = (_write(record), mu**2, drawn, draw, adjacency)
        if limit is not None and ticket.n_fits is not None and adjacency and not known:
            # The first fit of those planned: all of them must be within reach, each with a radius
            # drawn for it if this one has.
            planned = math.sqrt(mu**2 + drawn)
            self._check_planned(square_of(rows), planned, limit, delta, ticket.n_fits)
        # Against a limit only one way of adding up may be used: the Gaussian one.
        if limit is not None and math.sqrt(square_of([*rows, row])) > mu_from_budget(limit, delta):
            raise BudgetExceededError(
                f"this release would take the total above limit={limit!r} (delta={delta!r}, "
                f"{len(rows)} release(s) so far); nothing was released. Lower epsilon, make fewer "
                "fits, or raise the limit."
            )
        return int(base.execute(_INSERT, row).lastrowid or 0)

    @staticmethod
    def _check_planned(total: float, mu: float, limit: float, delta: float, n_fits: int) -> None:
        left = mu_from_budget(limit, delta) ** 2 - total
        if n_fits * mu**2 > left * (1.0 + 1e-12):
            each = epsilon_from_mu(math.sqrt(max(left, 0.0) / n_fits), delta)
            raise BudgetExceededError(
                f"n_fits={n_fits} fits like this one would take the total above limit={limit!r} "
                f"(delta={delta!r}); none was made. Each may spend epsilon={each:.4g} at the "
                "accountant's radius (plan): lower epsilon, make fewer fits, or raise the limit."
            )

    def remove(self, number: int) -> None:
        with self._connect() as base:
            base.execute("DELETE FROM record WHERE id = ?", (number,))


def _write(record: Record) -> str:
    body = record.to_dict() if isinstance(record, Release) else asdict(record)
    return json.dumps([type(record).__name__, body])


def read_record(text: str) -> Record:
    """A record from the body of its row."""
    kind, body = json.loads(text)
    return Release.from_dict(body) if kind == "Release" else OtherRelease(**body)


@contextlib.contextmanager
def charged(record: Record, begun: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Count a release with every accountant before it is made.

    After an error, an interrupt included, the charge stays, unless ``begun`` says that no noise was
    drawn yet: what was drawn may be known to somebody.
    """
    counted: list[tuple[Ledger, int]] = []
    drawing = False
    try:
        for ticket in active_tickets():
            ledger = Ledger(ticket.path)
            try:
                counted.append((ledger, ledger.add(record, ticket)))
            except sqlite3.OperationalError as error:
                raise RuntimeError(
                    "an accountant ended, or could not be reached, while this release was to be "
                    "counted; nothing was released."
                ) from error
        drawing = True
        yield
    except BaseException:
        if not drawing or not begun():
            for ledger, number in counted:
                ledger.remove(number)
        raise
