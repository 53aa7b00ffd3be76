"""Counting the releases made from the same records, wherever they are made.

Heads and private policies announce a release before they touch the rows. Every accountant active in
this process, in the process that started this one (however and whenever), or in the one that sent
the estimator here, writes it to its ledger: a small database file, so that threads and processes
count together.
"""

import contextlib
import copy
import json
import math
import multiprocessing
import os
import shutil
import socket
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..policy.adjacency import full_radius_in
from .gaussian import compose, epsilon_from_rho, rho_from_budget, rho_from_pure
from .release import Release

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
    rho : float
        Gaussian differential privacy parameter, for every substitution.
    epsilon : float
        Pure differential privacy, for every substitution.
    private : bool or str
        False when it was drawn from a seed; "conditional" when it was declared public.
    labels : {"any", "public"}
        "public" when it hides feature substitutions only.
    draw : str
        Identifies a private radius, which releases that rest on it name.
    """

    what: str
    rho: float = 0.0
    epsilon: float = 0.0
    private: bool | str = True
    labels: str = "any"
    draw: str = ""


Record = Release | Spent


@dataclass(frozen=True)
class Total:
    """Guarantee of several releases from the same records, taken together.

    Attributes
    ----------
    n_releases : int
        Releases counted.
    radius : float
        Substitutions hidden, in the releases' metric.
    rho : float
        Gaussian differential privacy parameter of them all.
    epsilon, delta : float
        They are together (epsilon, delta)-private for substitutions within ``radius``.
    labels : {"public", "protected"}
        Whether label changes are part of the adjacency.
    kind : {"a priori", "ex post"}
        "a priori": ``limit`` was enforced before each release and is the guarantee, whatever was
        chosen on the way; ``epsilon`` is what was used of it. "ex post": the sum of what was
        released; a guarantee only where none of it was chosen after seeing earlier outputs.
    private : bool or str
        False when a release was seeded; "conditional" when a radius was declared public.
    limit : float or None
        The enforced epsilon.
    selection : {None, "unprotected", "private", "public"}
        Of a search: whether the choice of the best candidate, and the scores, are covered.
    """

    n_releases: int
    radius: float | None
    rho: float
    epsilon: float
    delta: float
    labels: str
    kind: str
    private: bool | str
    limit: float | None = None
    selection: str | None = None


def compose_releases(
    releases: Iterable[Release | Mapping[str, Any]],
    *,
    delta: float = 1e-6,
    radius: float | None = None,
) -> Total:
    """Total guarantee of releases, such as those read from JSON.

    Parameters
    ----------
    releases : iterable of Release or dict
        Releases from the same records, or their ``to_dict()``.
    delta : float, default=1e-6
        Failure probability of the total.
    radius : float, optional
        Common radius, in their metric; the full radius by default.

    Returns
    -------
    Total
        Labelled "ex post".

    Raises
    ------
    ValueError
        If there is none, one was drawn from a seed, or they differ in metric, norm bound, number
        of features or label adjacency: no common adjacency covers them.

    References
    ----------
    Dong, Roth & Su (2022), Corollary 3.3; pure releases by their Gaussian cover, or added up,
    whichever is less.
    """
    known = [r if isinstance(r, Release) else Release.from_dict(r) for r in releases]
    if not known:
        raise ValueError("releases is empty; pass at least one release.")
    if any(release.private is False for release in known):
        raise ValueError("a release was drawn from a seed, which hides nothing; fit it without.")
    return _total(known, delta, radius)


def _full_radius(release: Release) -> float:
    return full_radius_in(release.metric, release.norm_bound, release.n_features)


def _adjacency(release: Release) -> dict[str, Any]:
    """What two releases must share to be composed at a common radius."""
    names = ("metric", "norm_bound", "n_features", "labels")
    return {name: getattr(release, name) for name in names}


def _check_adjacency(first: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    for name, value in first.items():
        if other[name] != value:
            raise ValueError(
                f"releases differ in {name} ({value}, {other[name]}): no common adjacency covers "
                "them; account for each kind apart."
            )


def _check_labels(labels: str, spent: Spent) -> None:
    if labels == "protected" and spent.labels == "public":
        raise ValueError(
            f"a private {spent.what} was drawn with public labels, beside releases that protect "
            "labels: no common adjacency covers them; use public reference rows."
        )


def _total(records: Iterable[Record], delta: float, radius: float | None) -> Total:
    """Compose records at a common radius."""
    records = list(records)
    releases = [record for record in records if isinstance(record, Release)]
    spent = [record for record in records if isinstance(record, Spent)]
    labels = "public"
    if releases:
        first = _adjacency(releases[0])
        for release in releases[1:]:
            _check_adjacency(first, _adjacency(release))
        labels = releases[0].labels
        for item in spent:
            _check_labels(labels, item)
        if radius is None:
            radius = _full_radius(releases[0])
    private: bool | str = True
    if any(record.private == "conditional" for record in records):
        private = "conditional"
    if any(record.private is False for record in records):
        private = False
    rhos = [release.guarantee(radius).rho for release in releases] + [s.rho for s in spent]
    pure = [s.epsilon for s in spent] + list(_drawn_elsewhere(releases, spent).values())
    rho = compose([*rhos, *map(rho_from_pure, pure)])
    epsilon = epsilon_from_rho(rho, delta)
    if any(pure):
        summed = (epsilon_from_rho(compose(rhos), delta) + sum(pure)) * (1.0 + 2.0**-50)
        epsilon = min(epsilon, summed)
    if private is False:
        # A known seed gives the noise away.
        rho = epsilon = float("inf")
    return Total(len(records), radius, rho, epsilon, delta, labels, "ex post", private)


def _drawn_elsewhere(releases: Iterable[Release], spent: Iterable[Spent]) -> dict[str, float]:
    """Private radii that releases rest on and that were not counted when drawn, once each."""
    seen = {item.draw for item in spent}
    return {
        release.radius_draw: release.radius_epsilon
        for release in releases
        if release.radius_epsilon > 0.0 and release.radius_draw not in seen
    }


class _Ledger:
    """Records in a database file; its lock orders the writers of all processes."""

    def __init__(self, path: str) -> None:
        self._address = Path(path).as_uri() + "?mode=rw"

    def _connect(self, mode: str = "") -> contextlib.closing:
        base = sqlite3.connect(self._address + mode, uri=True, timeout=_WAIT, isolation_level=None)
        base.execute("PRAGMA synchronous = OFF")
        return contextlib.closing(base)

    def create(self) -> None:
        with self._connect("c") as base:
            base.execute(
                "CREATE TABLE record (id INTEGER PRIMARY KEY, body TEXT, square REAL, draw TEXT, "
                "adjacency TEXT, labels TEXT)"
            )

    def records(self) -> list[Record]:
        with self._connect() as base:
            rows = base.execute("SELECT body FROM record ORDER BY id").fetchall()
        return [_read(body) for (body,) in rows]

    def close(self) -> list[Record]:
        """All records; a writer that comes later finds no table, and makes no release."""
        with self._connect() as base:
            base.execute("BEGIN EXCLUSIVE")
            rows = base.execute("SELECT body FROM record ORDER BY id").fetchall()
            base.execute("DROP TABLE record")
            base.execute("COMMIT")
        return [_read(body) for (body,) in rows]

    def add(self, record: Record, delta: float, radius: float | None, limit: float | None) -> int:
        """Write a record unless it exceeds the limit, in one step for all processes."""
        with self._connect() as base:
            base.execute("BEGIN IMMEDIATE")
            try:
                number = self._insert(base, record, delta, radius, limit)
            except BaseException:
                base.execute("ROLLBACK")
                raise
            base.execute("COMMIT")
            return number

    def _insert(
        self,
        base: sqlite3.Connection,
        record: Record,
        delta: float,
        radius: float | None,
        limit: float | None,
    ) -> int:
        adjacency = draw = None
        labels = "any"
        if isinstance(record, Release):
            adjacency = json.dumps(_adjacency(record))
            rho = record.guarantee(_full_radius(record) if radius is None else radius).rho
            if record.radius_epsilon > 0.0:
                known = base.execute(
                    "SELECT 1 FROM record WHERE draw = ?", (record.radius_draw,)
                ).fetchone()
                draw = record.radius_draw
                if known is None:
                    rho = compose([rho, rho_from_pure(record.radius_epsilon)])
            for (other,) in base.execute(
                "SELECT adjacency FROM record WHERE adjacency IS NOT NULL LIMIT 1"
            ):
                _check_adjacency(json.loads(other), json.loads(adjacency))
            if record.labels == "protected":
                for (body,) in base.execute(
                    "SELECT body FROM record WHERE labels = 'public' LIMIT 1"
                ):
                    _check_labels("protected", _read(body))  # type: ignore[arg-type]
        else:
            labels, draw = record.labels, record.draw or None
            rho = compose([record.rho, rho_from_pure(record.epsilon)])
            for (other,) in base.execute(
                "SELECT adjacency FROM record WHERE adjacency IS NOT NULL LIMIT 1"
            ):
                _check_labels(json.loads(other)["labels"], record)
        if record.private is False:
            rho = math.inf
        count, total = base.execute(
            "SELECT COUNT(*), COALESCE(SUM(square), 0.0) FROM record"
        ).fetchone()
        # Against a limit only one way of adding up may be used: the Gaussian one.
        if limit is not None and math.sqrt(total + rho**2) > rho_from_budget(limit, delta):
            raise BudgetExceededError(
                f"this release would take the total above limit={limit!r} (delta={delta!r}, "
                f"{count} release(s) so far); nothing was released. Lower epsilon, make fewer "
                "fits, or raise the limit."
            )
        cursor = base.execute(
            "INSERT INTO record (body, square, draw, adjacency, labels) VALUES (?, ?, ?, ?, ?)",
            (_write(record), rho**2, draw, adjacency, labels),
        )
        return int(cursor.lastrowid or 0)

    def remove(self, number: int) -> None:
        with self._connect() as base:
            base.execute("DELETE FROM record WHERE id = ?", (number,))


def _write(record: Record) -> str:
    body = record.to_dict() if isinstance(record, Release) else asdict(record)
    return json.dumps([type(record).__name__, body])


def _read(text: str) -> Record:
    kind, body = json.loads(text)
    return Release.from_dict(body) if kind == "Release" else Spent(**body)


@dataclass(frozen=True)
class Ticket:
    """What another process needs to count with an accountant of this one."""

    path: str
    host: str
    delta: float
    radius: float | None
    limit: float | None


_LOCK = threading.Lock()
_ACTIVE: list[Ticket] = []
_ADOPTED: list[Ticket] = []


def _after_fork() -> None:
    """In a child the accountants are its parent's; a lock held at the fork stays locked."""
    global _LOCK
    _LOCK = threading.Lock()
    _ADOPTED.extend(_ACTIVE)
    _ACTIVE.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _board(process: int) -> Path:
    """File on which a process posts its accountants for its children, however they started."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"balldp-accountants-{user}" / f"{process}.json"


def _posted() -> list[Ticket]:
    """Tickets inherited by the environment, or posted by the processes that started this one."""
    texts = [os.environ.get(_VARIABLE, "[]")]
    parents = {os.getppid()}
    started_by = multiprocessing.parent_process()
    if started_by is not None and started_by.pid is not None:
        parents.add(started_by.pid)
    for process in parents:
        with contextlib.suppress(FileNotFoundError):
            texts.append(_board(process).read_text())
    return [Ticket(**entry) for text in texts for entry in json.loads(text)]


def tickets() -> tuple[Ticket, ...]:
    """Accountants that count what happens in this process."""
    with _LOCK:
        active, others = list(_ACTIVE), [*_ADOPTED, *_posted()]
    for ticket in active:
        if not os.path.exists(ticket.path):
            raise RuntimeError(
                "the ledger of an active accountant is gone (was the temporary folder emptied?); "
                "nothing can be counted, so nothing is released."
            )
    # Of the others the file goes when their accountant ends.
    open_ones = [ticket for ticket in others if os.path.exists(ticket.path)]
    return tuple(dict.fromkeys([*active, *open_ones]))


def adopt(received: Iterable[Ticket]) -> tuple[Ticket, ...]:
    """Count here with the accountants that an estimator was sent under, where they can be reached.

    Returns the others: they are on another machine, and the estimator must not be fitted here.
    """
    received = tuple(received)
    here = [ticket for ticket in received if ticket.host == socket.gethostname()]
    with _LOCK:
        known = {*_ACTIVE, *_ADOPTED}
        _ADOPTED[:] = [ticket for ticket in _ADOPTED if os.path.exists(ticket.path)]
        _ADOPTED.extend(ticket for ticket in here if ticket not in known)
    return tuple(ticket for ticket in received if ticket not in here)


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
    """Count a release with every accountant before it is made; take it back if it fails.

    Parameters
    ----------
    record : Release or Spent
        What is about to be released; public numbers alone.

    Raises
    ------
    BudgetExceededError
        If it would exceed a limit; then no accountant counts it.
    ValueError
        If it shares no adjacency with what was counted before.
    RuntimeError
        If an accountant ended meanwhile, or its ledger is gone.
    """
    with contextlib.ExitStack() as undo:
        for ticket in tickets():
            ledger = _Ledger(ticket.path)
            try:
                number = ledger.add(record, ticket.delta, ticket.radius, ticket.limit)
            except sqlite3.OperationalError as error:
                raise RuntimeError(
                    "an accountant ended, or could not be reached, while this release was to be "
                    "counted; nothing was released."
                ) from error
            undo.callback(ledger.remove, number)
        yield
        undo.pop_all()


class PrivacyAccountant:
    """Count every release made inside a ``with`` block, in this process and those it starts.

    It counts fits of Ball-DP heads, private radii and private scores, under ``clone``, Pipelines,
    searches and cross-validation, on threads and on processes. The total is exact for Gaussian
    releases fixed beforehand. With a limit a fit that would exceed it is refused before it touches
    the rows, which makes the limit a guarantee even when fits are chosen after seeing earlier
    results. Without one the total is "ex post": what has been released.

    It covers the models. Scores on private folds, and so the choice of the best candidate, are
    not covered unless they are private themselves (:class:`PrivateAccuracy`) or computed on public
    rows.

    Parameters
    ----------
    delta : float, default=1e-6
        Failure probability of the total.
    radius : float or None, default=None
        Common radius of the total and of the limit, in the heads' metric; None is the full radius
        ``2 * norm_bound``.
    limit : float or None, default=None
        Largest total epsilon at (``delta``, ``radius``).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.preprocessing import normalize
    >>> from sklearn_balldp import BallDPRidgePrototype, PrivacyAccountant
    >>> X, y = load_digits(return_X_y=True)
    >>> with PrivacyAccountant(radius=0.6) as accountant:
    ...     head = BallDPRidgePrototype(epsilon=1.0, radius=0.6)
    ...     search = GridSearchCV(head, {"alpha": [0.01, 0.1, 1.0]}, cv=5).fit(normalize(X), y)
    >>> accountant.total().n_releases
    16
    >>> round(accountant.total().epsilon, 1), round(accountant.total(search=search).epsilon, 1)
    (4.6, 4.1)
    """

    def __init__(
        self, delta: float = 1e-6, radius: float | None = None, *, limit: float | None = None
    ) -> None:
        if not 0.0 < delta < 1.0:
            raise ValueError(f"delta must lie strictly between 0 and 1, got {delta!r}.")
        if radius is not None and not 0.0 < radius < float("inf"):
            raise ValueError(f"radius must be positive, or None, got {radius!r}.")
        if limit is not None and not 0.0 < limit <= 1e10:
            raise ValueError(f"limit must be a positive epsilon, or None, got {limit!r}.")
        self._delta = float(delta)
        self._radius = None if radius is None else float(radius)
        self._limit = None if limit is None else float(limit)
        self._ticket: Ticket | None = None
        self._process = 0
        self._records: list[Record] = []

    @property
    def delta(self) -> float:
        """Failure probability of the total; fixed, as the limit is enforced with it."""
        return self._delta

    @property
    def radius(self) -> float | None:
        """Common radius of the total and of the limit; fixed."""
        return self._radius

    @property
    def limit(self) -> float | None:
        """Largest total epsilon; fixed."""
        return self._limit

    def __enter__(self) -> "PrivacyAccountant":
        if self._ticket is not None:
            raise RuntimeError("this accountant is active already; make another one.")
        folder = Path(tempfile.mkdtemp(prefix="balldp-accountant-"))
        ticket = Ticket(
            str(folder / "ledger.sqlite"), socket.gethostname(), self.delta, self.radius, self.limit
        )
        ledger = _Ledger(ticket.path)
        ledger.create()
        for record in self._records:
            ledger.add(record, self.delta, self.radius, None)
        with _LOCK:
            _ACTIVE.append(ticket)
            try:
                _post(ticket, None)
            except BaseException:
                _ACTIVE.remove(ticket)
                raise
        self._ticket, self._process = ticket, os.getpid()
        return self

    def __exit__(self, *_: object) -> None:
        ticket = self._ticket
        # A forked child that leaves the block ends nothing: the accountant is its parent's.
        if ticket is None or self._process != os.getpid():
            return
        try:
            self._records = _Ledger(ticket.path).close()
        finally:
            self._ticket = None
            with _LOCK:
                _ACTIVE.remove(ticket)
                _post(None, ticket)
            shutil.rmtree(Path(ticket.path).parent, ignore_errors=True)

    def __reduce__(self) -> Any:
        raise TypeError("an accountant cannot be copied or pickled: its budget would start anew.")

    @property
    def records(self) -> list[Record]:
        """Everything counted: releases of heads, and what else was spent."""
        if self._ticket is None:
            return list(self._records)
        return _Ledger(self._ticket.path).records()

    @property
    def releases(self) -> list[Release]:
        """Releases of heads counted."""
        return [record for record in self.records if isinstance(record, Release)]

    def total(
        self,
        radius: float | None = None,
        *,
        search: Any = None,
        scored_on: str = "private",
    ) -> Total:
        """Guarantee of everything counted.

        Parameters
        ----------
        radius : float, optional
            Common radius; the accountant's by default.
        search : fitted GridSearchCV or RandomizedSearchCV, optional
            The search that made all the fits counted. Its folds being disjoint, a record is left
            out of one fold's fit for each candidate, which lowers the total.
        scored_on : {"private", "public"}, default="private"
            Whether the search scored on folds of the private rows, or on public rows.

        Returns
        -------
        Total

        Raises
        ------
        ValueError
            If the search did not make these fits, or its splits are not disjoint, or follow labels
            that the releases protect.
        """
        records = self.records
        heads = [record for record in records if isinstance(record, Release)]
        enforced = self.radius
        if enforced is None and heads:
            enforced = _full_radius(heads[0])
        radius = enforced if radius is None else float(radius)
        total = _total(records, self.delta, radius)
        selection = None
        if search is not None:
            # Imported here: a private score is charged to accountants.
            from .searching import selection_of, touching_one_record

            selection = selection_of(search, scored_on)
            touching = touching_one_record(search, records, radius)
            total = _total(touching, self.delta, radius)
        # What was enforced at a radius holds for closer substitutions, not for further ones.
        covered = self.limit is not None and (
            enforced is None or radius is None or radius <= enforced
        )
        return replace(
            total,
            n_releases=len(records),
            kind="a priori" if covered else "ex post",
            limit=self.limit if covered else None,
            selection=selection,
        )

    def __repr__(self) -> str:
        state = "active" if self._ticket else "ended"
        return f"PrivacyAccountant({state}, {len(self.records)} release(s))"


def _post(added: Ticket | None, removed: Ticket | None) -> None:
    """Tell processes started from now on, and those started before, of this one's accountants."""
    inherited = [Ticket(**entry) for entry in json.loads(os.environ.get(_VARIABLE, "[]"))]
    shown = [ticket for ticket in inherited if ticket != removed]
    if added is not None:
        shown.append(added)
    if shown:
        os.environ[_VARIABLE] = json.dumps([asdict(ticket) for ticket in shown])
    else:
        os.environ.pop(_VARIABLE, None)
    board = _board(os.getpid())
    if _ACTIVE:
        board.parent.mkdir(mode=0o700, exist_ok=True)
        text = json.dumps([asdict(ticket) for ticket in _ACTIVE])
        # Readers see the old file or the new one, never half of it.
        with tempfile.NamedTemporaryFile("w", dir=board.parent, delete=False) as file:
            file.write(text)
        os.replace(file.name, board)
    else:
        board.unlink(missing_ok=True)
