"""Counting the releases made from the same records, wherever they are made.

Heads and private policies announce a release before they touch the rows. Every accountant active in
this process, in the process that started this one, or in the one that sent the estimator here,
writes it to its ledger: a small database file, so that threads and processes count together.
"""

import contextlib
import json
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

from joblib.externals.loky import get_reusable_executor

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
    private : bool
        False when it was drawn from a seed.
    """

    what: str
    rho: float = 0.0
    epsilon: float = 0.0
    private: bool = True


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
    return _total(known, delta, radius, radius_epsilon=True)


def _total(
    records: Iterable[Record], delta: float, radius: float | None, radius_epsilon: bool = False
) -> Total:
    """Compose records at a common radius.

    ``radius_epsilon`` adds what the releases themselves state of private radii: an accountant
    sees those drawn, once each, as records of their own.
    """
    records = list(records)
    releases = [record for record in records if isinstance(record, Release)]
    spent = [record for record in records if isinstance(record, Spent)]
    labels = "public"
    if releases:
        first = releases[0]
        for name in ("metric", "norm_bound", "n_features", "labels"):
            values = {getattr(release, name) for release in releases}
            if len(values) > 1:
                shown = ", ".join(sorted(map(str, values)))
                raise ValueError(
                    f"releases differ in {name} ({shown}): no common adjacency covers them; "
                    "account for each kind apart."
                )
        labels = first.labels
        if radius is None:
            radius = full_radius_in(first.metric, first.norm_bound, first.n_features)
    private: bool | str = True
    if any(release.private == "conditional" for release in releases):
        private = "conditional"
    if any(record.private is False for record in records):
        private = False
    rhos = [release.guarantee(radius).rho for release in releases] + [s.rho for s in spent]
    pure = [s.epsilon for s in spent]
    if radius_epsilon:
        pure += [release.radius_epsilon for release in releases]
    rho = compose([*rhos, *map(rho_from_pure, pure)])
    epsilon = epsilon_from_rho(rho, delta)
    if any(pure):
        summed = (epsilon_from_rho(compose(rhos), delta) + sum(pure)) * (1.0 + 2.0**-50)
        epsilon = min(epsilon, summed)
    if private is False:
        # A known seed gives the noise away.
        rho = epsilon = float("inf")
    return Total(len(records), radius, rho, epsilon, delta, labels, "ex post", private)


class _Ledger:
    """Records in a database file; its lock orders the writers of all processes."""

    def __init__(self, path: str) -> None:
        self.path = path

    def _connect(self) -> contextlib.closing:
        return contextlib.closing(
            sqlite3.connect(f"file:{self.path}?mode=rw", uri=True, timeout=_WAIT,
                            isolation_level=None)
        )  # fmt: skip

    def create(self) -> None:
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as base:
            base.execute("CREATE TABLE record (id INTEGER PRIMARY KEY, body TEXT)")

    def records(self) -> list[Record]:
        with self._connect() as base:
            rows = base.execute("SELECT body FROM record ORDER BY id").fetchall()
        return [_read(body) for (body,) in rows]

    def add(self, record: Record, delta: float, radius: float | None, limit: float | None) -> int:
        """Write a record unless it exceeds the limit, in one step for all processes."""
        with self._connect() as base:
            base.execute("BEGIN IMMEDIATE")
            try:
                rows = base.execute("SELECT body FROM record ORDER BY id").fetchall()
                records = [*(_read(body) for (body,) in rows), record]
                total = _total(records, delta, radius)
                # Against a limit only one way of adding up may be used: the Gaussian one.
                if limit is not None and total.rho > rho_from_budget(limit, delta):
                    raise BudgetExceededError(
                        f"this release would take the total above limit={limit!r} (delta={delta!r},"
                        f" {len(records) - 1} release(s) so far); nothing was released. Lower "
                        "epsilon, make fewer fits, or raise the limit."
                    )
                cursor = base.execute("INSERT INTO record (body) VALUES (?)", (_write(record),))
            except BaseException:
                base.execute("ROLLBACK")
                raise
            base.execute("COMMIT")
            return int(cursor.lastrowid)

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


def tickets() -> tuple[Ticket, ...]:
    """Accountants that count what happens in this process."""
    with _LOCK:
        inherited = [Ticket(**entry) for entry in json.loads(os.environ.get(_VARIABLE, "[]"))]
        known = dict.fromkeys([*_ACTIVE, *_ADOPTED, *inherited])
    return tuple(ticket for ticket in known if _is_open(ticket))


def adopt(received: Iterable[Ticket]) -> None:
    """Count in this process with the accountants that an estimator was sent under."""
    with _LOCK:
        known = {*_ACTIVE, *_ADOPTED}
        _ADOPTED.extend(ticket for ticket in received if ticket not in known)


def _is_open(ticket: Ticket) -> bool:
    if ticket.host != socket.gethostname():
        raise RuntimeError(
            "an accountant on another machine counts this fit, and cannot be reached; fit on its "
            "machine, or account there with compose_releases."
        )
    # The file goes when its accountant ends.
    return os.path.exists(ticket.path)


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
    """
    with contextlib.ExitStack() as undo:
        for ticket in tickets():
            ledger = _Ledger(ticket.path)
            number = ledger.add(record, ticket.delta, ticket.radius, ticket.limit)
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
        self.delta, self.radius, self.limit = delta, radius, limit
        self._ticket: Ticket | None = None
        self._records: list[Record] = []

    def __enter__(self) -> "PrivacyAccountant":
        if self._ticket is not None:
            raise RuntimeError("this accountant is active already; make another one.")
        folder = tempfile.mkdtemp(prefix="balldp-accountant-")
        path = str(Path(folder) / "ledger.sqlite")
        ledger = _Ledger(path)
        ledger.create()
        for record in self._records:
            ledger.add(record, self.delta, self.radius, None)
        self._ticket = Ticket(path, socket.gethostname(), self.delta, self.radius, self.limit)
        # Idle workers were started before and would not know: new ones inherit the variable.
        get_reusable_executor().shutdown(wait=True)
        with _LOCK:
            _ACTIVE.append(self._ticket)
            _publish()
        return self

    def __exit__(self, *_: object) -> None:
        ticket = self._ticket
        if ticket is None:
            return
        self._records = _Ledger(ticket.path).records()
        with _LOCK:
            _ACTIVE.remove(ticket)
            _publish()
        self._ticket = None
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
        radius = self.radius if radius is None else float(radius)
        total = _total(records, self.delta, radius)
        selection = None
        if search is not None:
            # Imported here: a private score is charged to accountants.
            from .searching import selection_of, touching_one_record

            selection = selection_of(search, scored_on)
            touching = touching_one_record(search, records, radius)
            total = _total(touching, self.delta, radius)
        return replace(
            total,
            n_releases=len(records),
            kind="ex post" if self.limit is None else "a priori",
            limit=self.limit,
            selection=selection,
        )

    def __repr__(self) -> str:
        state = "active" if self._ticket else "ended"
        return f"PrivacyAccountant({state}, {len(self.records)} release(s))"


def _publish() -> None:
    """Tell processes started from now on which accountants are active."""
    if _ACTIVE:
        os.environ[_VARIABLE] = json.dumps([asdict(ticket) for ticket in _ACTIVE])
    else:
        os.environ.pop(_VARIABLE, None)
