"""Tickets of accountants: who counts a release, on any thread and in other processes.

A fit is counted by the accountants of its process: those whose ``with`` block is open there, on any
thread; those of the parent, in a process that was forked inside the block; and those that an
unfitted estimator was sent under. Such an estimator carries *tickets*, which pickles, copies and
clones keep: joblib and scikit-learn send estimators, so that their workers are found.

A process that builds heads of its own holds no ticket, and is not counted.
"""

import contextlib
import copy
import hashlib
import os
import socket
import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_FOLDER = "balldp-accountant-"


@dataclass(frozen=True)
class Ticket:
    """What another process needs to count with an accountant of this one.

    It ends up in pickles, so it holds no path and no name of a machine: ``token`` is what is random
    in the name of the ledger's folder, ``machine`` a digest.
    """

    token: str
    machine: str
    delta: float
    radius: float | None
    limit: float | None
    n_fits: int | None = None
    unit: str | None = None

    @classmethod
    def issue(cls, *terms: Any) -> "Ticket":
        """A ticket of a new folder in the folder of temporary files, by its terms."""
        folder = tempfile.mkdtemp(prefix=_FOLDER)
        token = Path(folder).name.removeprefix(_FOLDER)
        return cls(token, machine_of(_path(token)), *terms)

    @property
    def path(self) -> str:
        """The ledger, where this process had its temporary files when it met the ticket."""
        return _path(self.token)


@cache
def _path(token: str) -> str:
    # Found once: a folder of temporary files that moves would hide who counts.
    return str(Path(tempfile.gettempdir()) / f"{_FOLDER}{token}" / "ledger.sqlite")


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


def _after_fork() -> None:
    """A child counts with its parent's accountants; a lock held at the fork stays locked."""
    global _LOCK
    _LOCK = threading.Lock()
    _ADOPTED.extend(_ACTIVE)
    _ACTIVE.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def active_tickets() -> tuple[Ticket, ...]:
    """Accountants that count what happens in this process."""
    with _LOCK:
        active, adopted = list(_ACTIVE), list(_ADOPTED)
    if not all(os.path.exists(ticket.path) for ticket in active):
        raise RuntimeError(
            "the ledger of an active accountant is gone (was the temporary folder emptied?); "
            "nothing can be counted, so nothing is released."
        )
    # The file of another process's accountant goes when its block ends.
    return tuple(dict.fromkeys([*active, *(t for t in adopted if os.path.exists(t.path))]))


def adopt(received: Iterable[Ticket]) -> tuple[Ticket, ...]:
    """Count here with the accountants that an estimator was sent under, where they can be reached.

    Returns the others: they are on another machine, and the estimator must not be fitted here.
    """
    received = tuple(received)
    here = [ticket for ticket in received if ticket.machine == machine_of(ticket.path)]
    with _LOCK:
        known = {*_ACTIVE, *_ADOPTED}
        _ADOPTED[:] = [ticket for ticket in _ADOPTED if os.path.exists(ticket.path)]
        _ADOPTED.extend(ticket for ticket in here if ticket not in known)
    return tuple(ticket for ticket in received if ticket not in here)


def begin(ticket: Ticket) -> None:
    """Let an accountant count from now on."""
    with _LOCK:
        _ACTIVE.append(ticket)


def end(ticket: Ticket) -> None:
    """Let an accountant count no more."""
    with _LOCK:
        _ACTIVE.remove(ticket)


class CountedMixin:
    """Takes along who counts its fits when it is pickled or cloned unfitted."""

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {**(super().__getstate__() or {})}  # type: ignore[misc, dict-item]
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
        if hasattr(super(), "__setstate__"):
            super().__setstate__(state)  # type: ignore[misc]
        else:
            vars(self).update(state)

    def __sklearn_clone__(self) -> Any:
        """A clone, which keeps the tickets that cannot be reached here: it is refused too."""
        # Scorers are no estimators: scikit-learn copies these.
        clone = getattr(super(), "__sklearn_clone__", None)
        other: Any = copy.deepcopy(self) if clone is None else clone()
        far = getattr(self, "_accountants", ())
        if far:
            other._accountants = far
        return other

    def _check_reachable(self) -> None:
        """Refuse to fit where the accountant that this was sent under cannot count."""
        if getattr(self, "_accountants", ()):
            raise RuntimeError(
                "an accountant on another machine was active when this estimator was sent here, "
                "and cannot be reached; fit on its machine, or build the estimator here and "
                "account with compose_releases."
            )
