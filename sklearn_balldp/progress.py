"""Progress bars of what takes long: on a terminal, and elsewhere if they are asked for.

A bar counts shards, threads, steps, supports or records, whose number is public. How many bars a
fit shows may depend on its rows: they are for whoever fits.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tqdm import tqdm

#: Seconds after which a bar is shown.
DELAY = 3.0
_asked: ContextVar[bool] = ContextVar("asked", default=False)


def bar(steps: Iterable[Any] | None, what: str, unit: str, total: int | None = None) -> Any:
    """The steps, with a bar of how many have been taken."""
    # None leaves it to whether there is a terminal.
    disable = False if _asked.get() else None
    if getattr(sys.stderr, "closed", True):
        # Services have no such stream.
        disable = True
    return tqdm(steps, total=total, desc=what, unit=unit, delay=DELAY, disable=disable, leave=False)


@contextmanager
def shown(verbose: bool) -> Iterator[None]:
    """Inside, bars are shown where output is not a terminal too, if they are asked for."""
    before = _asked.set(bool(verbose))
    try:
        yield
    finally:
        _asked.reset(before)
