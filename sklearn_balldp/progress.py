"""Progress bars of long computations: on a terminal, and elsewhere on request.

What is counted is public; the number of bars may depend on the private rows.
"""

import numbers
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from tqdm import tqdm

#: Seconds after which a bar is shown.
DELAY = 3.0
_requested: ContextVar[bool] = ContextVar("asked", default=False)


def bar(steps: Iterable[Any] | None, what: str, unit: str, total: int | None = None) -> Any:
    """Iterate over the steps, with a bar of how many have been taken."""
    if steps is not None and total == 1:
        return steps  # a bar takes longer than a small pass
    # With None, tqdm shows the bar only on a terminal.
    disable = False if _requested.get() else None
    if getattr(sys.stderr, "closed", True):
        # Services may run without stderr.
        disable = True
    return tqdm(steps, total=total, desc=what, unit=unit, delay=DELAY, disable=disable, leave=False)


@contextmanager
def shown(verbose: Any) -> Iterator[None]:
    """Inside this context, ``verbose`` shows bars even if the output is not a terminal."""
    # What is no truth value is refused later, by name.
    before = _requested.set(isinstance(verbose, numbers.Integral | np.bool_) and bool(verbose))
    try:
        yield
    finally:
        _requested.reset(before)
