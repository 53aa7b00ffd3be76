"""Bars of what takes long: on a terminal after a few seconds, and elsewhere if they are asked for.

A bar counts shards, steps or supports, whose number is public.
"""

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
    return tqdm(
        steps,
        total=total,
        desc=what,
        unit=unit,
        delay=DELAY,
        disable=False if _asked.get() else None,
        leave=False,
    )


@contextmanager
def shown(verbose: bool) -> Iterator[None]:
    """Inside, bars are shown where output is not a terminal too, if they are asked for."""
    before = _asked.set(bool(verbose))
    try:
        yield
    finally:
        _asked.reset(before)
