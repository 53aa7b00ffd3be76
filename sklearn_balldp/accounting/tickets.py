"""Tickets of accountants: who counts a release, across threads and processes.

An accountant is found in one of four ways, each of which reaches processes that no other does:

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
import os
import socket
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

_VARIABLE = "SKLEARN_BALLDP_ACCOUNTANTS"


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


def active_tickets() -> tuple[Ticket, ...]:
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
        known = () if plain else active_tickets()
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
