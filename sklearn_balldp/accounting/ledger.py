"""The ledger of releases: who counts them, across threads and processes.

Heads and private policies announce a release before they touch the rows. Every accountant that is
found here writes it to its ledger: a small database file, so that threads and processes count
together. An accountant is found in one of four ways, each of which reaches processes that no other
does:

=========================================================  ==================================
where the fit runs                                         found by
=========================================================  ==================================
the accountant's process, on any thread                    a list in memory
a process below it, at any depth: fork, spawn, forkserver  the boards of this process's
and loky workers, subprocesses, what a shell starts;       ancestors (a file for each process
started before the block or inside                         that has an active accountant)
a process whose parent has ended (a daemon, ``command &``  the environment
in a script), if all above it were started inside
a process that is not below it, but was sent an estimator  a ticket in the estimator's pickle
while the block was active
=========================================================  ==================================

Not found: a process that makes heads of its own and is not below the accountant's, or no longer so,
a process between them that was started before the block having ended. On another machine (or in
another container) an unfitted estimator with a ticket refuses to be fitted. Tickets adopted by a
process that is not below the accountant's make all its fits count while the block lasts.
"""

import contextlib
import copy
import hashlib
import json
import math
import os
import socket
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from ..privacy.gaussian import compose, epsilon_from_mu, mu_from_budget, mu_from_pure
from ..privacy.release import Release
from .wrappers import wrappers_above

# Names that a record may leave open: what one does not say contradicts nothing.
_DECLARED = ("coordinates", "encoder")
_VARIABLE = "SKLEARN_BALLDP_ACCOUNTANTS"
_WAIT = 60.0


class BudgetExceededError(ValueError):
    """A release would take the total above an accountant's limit; it was not made."""


@dataclass(frozen=True)
class Spent:
    """A release of something else than a head: a private radius, or a noisy score.

    Parameters
    ----------
    what : str
        What was released.
    mu : float
        Gaussian differential privacy parameter, for every substitution.
    epsilon : float
        Pure differential privacy, for every substitution.
    private : bool or str
        False when it was drawn from a seed; "conditional" when it was declared public.
    labels : {"any", "public"}
        "public" when it hides feature substitutions only.
    draw : str
        Identifies a private radius, which releases that rest on it name.
    unit : {"any", "record"}
        "record" when it hides one record, and not all of one person.
    """

    what: str
    mu: float = 0.0
    epsilon: float = 0.0
    private: bool | str = True
    labels: str = "any"
    draw: str = ""
    unit: str = "any"


Record = Release | Spent
#: Body, square of mu at the accountant's radius, that of the private radius it rests on, its draw,
#: adjacency, and what surrounds it.
Row = tuple[str, float, float, str | None, str | None, str]

_COLUMNS = "body TEXT, square REAL, drawn REAL, draw TEXT, adjacency TEXT, beside TEXT"
_NAMES = "body, square, drawn, draw, adjacency, beside"
_SELECT = f"SELECT {_NAMES} FROM record ORDER BY id"
_INSERT = f"INSERT INTO record ({_NAMES}) VALUES (?, ?, ?, ?, ?, ?)"


def adjacency_of(release: Release) -> dict[str, Any]:
    """What two releases must share to be composed at a common radius."""
    names = ("metric", "norm_bound", "domain", "n_features", "labels", "unit", *_DECLARED)
    return {name: getattr(release, name) for name in names}


def check_adjacency(known: Iterable[Mapping[str, Any]], other: Mapping[str, Any]) -> None:
    """Raise a ValueError unless releases share an adjacency, as far as they declare it."""
    for first in known:
        for name, value in first.items():
            undeclared = name in _DECLARED and None in (value, other[name])
            if other[name] != value and not undeclared:
                raise ValueError(
                    f"releases differ in {name} ({value}, {other[name]}): no common adjacency "
                    "covers them; account for each kind apart."
                )


def check_spent(labels: str, unit: str, spent: Spent) -> None:
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
        with self._connect() as base:
            base.execute("BEGIN EXCLUSIVE")
            rows = base.execute(_SELECT).fetchall()
            base.execute("DROP TABLE record")
            base.execute("COMMIT")
        return rows

    def add(self, record: Record, ticket: "Ticket", beside: list[str]) -> int:
        """Write a record unless it exceeds the limit, in one step for all processes."""
        with self._connect() as base:
            base.execute("BEGIN IMMEDIATE")
            try:
                number = self._insert(base, record, ticket, beside)
            except BaseException:
                base.execute("ROLLBACK")
                raise
            base.execute("COMMIT")
            return number

    def _insert(
        self,
        base: sqlite3.Connection,
        record: Record,
        ticket: "Ticket",
        beside: list[str],
    ) -> int:
        radius, limit, delta = ticket.radius, ticket.limit, ticket.delta
        adjacency, draw, drawn = None, None, 0.0
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
        rows = base.execute(
            "SELECT '', square, drawn, draw, adjacency, beside FROM record"
        ).fetchall()
        row = (_write(record), mu**2, drawn, draw, adjacency, json.dumps(beside))
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
    return Release.from_dict(body) if kind == "Release" else Spent(**body)


@dataclass(frozen=True)
class Ticket:
    """What another process needs to count with an accountant of this one.

    ``machine`` is a digest: the name of the machine is in no pickle.
    """

    path: str
    machine: str
    delta: float
    radius: float | None
    limit: float | None
    n_fits: int | None = None

    def is_here(self) -> bool:
        """Whether it was issued on this machine."""
        return self.machine == machine_of(self.path)


def machine_of(path: str) -> str:
    """Digest of this machine's name and of the folder of ledgers; another one for every ledger.

    Two containers may have one name, and each its own folder at that path.
    """
    known = f"{path}\0{socket.gethostname()}"
    with contextlib.suppress(OSError):
        found = Path(path).parent.parent.stat()
        known += f"\0{found.st_dev}\0{found.st_ino}"
    return hashlib.sha256(known.encode()).hexdigest()[:16]


_LOCK = threading.Lock()
_ACTIVE: list[Ticket] = []
_ADOPTED: list[Ticket] = []
# Two statements of when a process was created differ by less, in seconds or in ticks.
_SAME_TIME = 2.0


def _after_fork() -> None:
    """In a child the accountants are its parent's; a lock held at the fork stays locked."""
    global _LOCK
    _LOCK = threading.Lock()
    _ACTIVE.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _board(process: int) -> Path:
    """File on which a process posts its accountants for those below it, however they started."""
    # One place for all of them: a program may be started with another TMPDIR.
    shared = Path("/tmp") if os.access("/tmp", os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return shared / f"balldp-accountants-{user}" / f"{process}.json"


def _is_ours(folder: Path) -> bool:
    return not hasattr(os, "getuid") or folder.stat().st_uid == os.getuid()


def created(process: psutil.Process) -> float:
    """When a process was created: in ticks since the machine started, where the system tells."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        # A clock that is set while it runs moves the time of day, and psutil's answer with it.
        return float(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
    return process.create_time()


def _ancestors() -> Iterator[tuple[int, float]]:
    """Processes above this one, and when each was created: its number may be another's by now."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process().parent()
        while process is not None:
            yield process.pid, created(process)
            process = process.parent()


def _posted() -> list[Ticket]:
    """Tickets of accountants that are active in the processes above this one."""
    entries: list[dict[str, Any]] = []
    for process, start in _ancestors():
        board = _board(process)
        # The folder's name is known to all users of the machine: only our own is believed.
        with contextlib.suppress(FileNotFoundError):
            if _is_ours(board.parent):
                posted = json.loads(board.read_text())
                if abs(posted["created"] - start) < _SAME_TIME:
                    entries += posted["tickets"]
    return [Ticket(**entry) for entry in entries]


def _inherited() -> list[Ticket]:
    """Tickets that were put into the environment when this process was started."""
    try:
        return [Ticket(**entry) for entry in json.loads(os.environ.get(_VARIABLE, "[]"))]
    except (TypeError, ValueError):
        pass
    raise RuntimeError(f"{_VARIABLE} in the environment was not written by this package; unset it.")


def tickets() -> tuple[Ticket, ...]:
    """Accountants that count what happens in this process."""
    with _LOCK:
        active, others = list(_ACTIVE), [*_ADOPTED, *_inherited()]
    posted = _posted()
    for ticket in [*active, *posted]:
        # One that ended while we looked is on no board any more.
        if not os.path.exists(ticket.path) and (ticket in active or ticket in _posted()):
            raise RuntimeError(
                "the ledger of an active accountant is gone (was the temporary folder emptied?); "
                "nothing can be counted, so nothing is released."
            )
    # Of the others the file goes when their accountant ends.
    open_ones = [ticket for ticket in [*posted, *others] if os.path.exists(ticket.path)]
    return tuple(dict.fromkeys([*active, *open_ones]))


def adopt(received: Iterable[Ticket]) -> tuple[Ticket, ...]:
    """Count here with the accountants that an estimator was sent under, where they can be reached.

    Returns the others: they are on another machine, and the estimator must not be fitted here.
    """
    received = tuple(received)
    here = [ticket for ticket in received if ticket.is_here()]
    with _LOCK:
        known = {*_ACTIVE, *_ADOPTED}
        _ADOPTED[:] = [ticket for ticket in _ADOPTED if os.path.exists(ticket.path)]
        _ADOPTED.extend(ticket for ticket in here if ticket not in known)
    return tuple(ticket for ticket in received if ticket not in here)


def begin(ticket: Ticket) -> None:
    """Let an accountant count from now on, here and in processes that this one starts."""
    with _LOCK:
        _ACTIVE.append(ticket)
        try:
            _post(ticket, None)
        except BaseException:
            _ACTIVE.remove(ticket)
            raise


def end(ticket: Ticket) -> None:
    """Let an accountant count no more."""
    with _LOCK:
        _ACTIVE.remove(ticket)
        _post(None, ticket)


class CountedMixin:
    """Takes along who counts its fits when it is pickled unfitted, and finds them again."""

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {**super().__getstate__()}  # type: ignore[misc, dict-item]
        plain = state.pop("_plain", False)
        if any(name.endswith("_") and not name.startswith("_") for name in state):
            # Fitted: what it was made of goes along, but counts nothing elsewhere.
            for name, value in state.items():
                if isinstance(value, CountedMixin):
                    state[name] = copy.copy(value)
                    state[name]._plain = True
            return state
        known = () if plain else tickets()
        return {**state, "_accountants": known} if known else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        for value in state.values():
            if isinstance(value, CountedMixin):
                # A shallow copy of a fitted estimator ends here without pickling what it holds.
                vars(value).pop("_plain", None)
        far = adopt(state.pop("_accountants", ()))
        if far:
            state["_accountants"] = far
        super().__setstate__(state)  # type: ignore[misc]

    def _check_reachable(self) -> None:
        """Refuse to fit where the accountant that this was sent under cannot count."""
        if getattr(self, "_accountants", ()):
            raise RuntimeError(
                "an accountant on another machine was active when this estimator was sent here, "
                "and cannot be reached; fit on its machine, or fit a clone and account with "
                "compose_releases."
            )


@contextlib.contextmanager
def charged(record: Record) -> Iterator[None]:
    """Count a release with every accountant before it is made; take it back if it fails."""
    with contextlib.ExitStack() as undo:
        active = tickets()
        protected = isinstance(record, Release) and record.labels == "protected"
        beside = wrappers_above(protected) if active else []
        for ticket in active:
            ledger = Ledger(ticket.path)
            try:
                number = ledger.add(record, ticket, beside)
            except sqlite3.OperationalError as error:
                raise RuntimeError(
                    "an accountant ended, or could not be reached, while this release was to be "
                    "counted; nothing was released."
                ) from error
            undo.callback(ledger.remove, number)
        yield
        undo.pop_all()


def _post(added: Ticket | None, removed: Ticket | None) -> None:
    """Tell processes started from now on, and those started before, of this one's accountants."""
    board = _board(os.getpid())
    if _ACTIVE:
        board.parent.mkdir(mode=0o700, exist_ok=True)
        if not _is_ours(board.parent):
            raise RuntimeError(
                f"{board.parent} belongs to another user; set TMPDIR to a folder of your own."
            )
        posted = {
            "created": created(psutil.Process()),
            "tickets": [asdict(ticket) for ticket in _ACTIVE],
        }
        # Readers see the old file or the new one, never half of it.
        with tempfile.NamedTemporaryFile("w", dir=board.parent, delete=False) as file:
            json.dump(posted, file)
        os.replace(file.name, board)
    else:
        board.unlink(missing_ok=True)
    shown = [ticket for ticket in _inherited() if ticket != removed]
    if added is not None:
        shown.append(added)
    if shown:
        os.environ[_VARIABLE] = json.dumps([asdict(ticket) for ticket in shown])
    else:
        os.environ.pop(_VARIABLE, None)
