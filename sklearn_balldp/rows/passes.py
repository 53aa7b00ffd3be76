"""Passes over rows: blocks in double precision, on threads, added up in any order.

What rounding adds is bounded for any order of the additions (:mod:`.privacy.rounding`), so that
neither threads nor processors matter. Each pass brings rows into place by itself.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import joblib
import numpy as np
from threadpoolctl import ThreadpoolController

from ..losses import Array
from ..privacy.rounding import MOST_BLOCKS, block_rows
from .sources import Locked, Rows

R = TypeVar("R")

# Values from which threads pay, and ranges of so many rows that threads share them evenly.
_MANY_VALUES, _MIN_RANGES = 2**18, 8


def row_blocks(X: Any, start: int = 0, stop: int | None = None) -> Iterator[tuple[slice, Array]]:
    """Iterate over blocks of rows, each a copy in C order: write to it as you like."""
    stop, size = len(X) if stop is None else stop, block_rows(X.shape[1])
    # Several blocks of a file are read at once.
    n_read = max(1, X._read_values // (size * X.shape[1])) * size if isinstance(X, Rows) else size
    for first in range(start, stop, n_read):
        part = X[first : min(first + n_read, stop)]
        for place in range(0, len(part), size):
            rows = slice(first + place, first + min(place + size, len(part)))
            yield rows, np.array(part[place : place + size], dtype=np.float64, order="C")


def ranges(n_rows: int, n_features: int) -> list[tuple[int, int]]:
    """Neighbouring blocks that are added up one after the other."""
    size = block_rows(n_features)
    n_blocks = math.ceil(n_rows / size)
    run = size * max(1, min(MOST_BLOCKS, math.ceil(n_blocks / _MIN_RANGES)))
    return [(start, min(start + run, n_rows)) for start in range(0, n_rows, run)]


def each(function: Callable[[int, int], R], n_rows: int, n_features: int) -> Iterator[R]:
    """Results of ``function(start, stop)`` for ranges of rows, in order, on threads."""
    parts, threads = ranges(n_rows, n_features), 1
    if n_rows * n_features > _MANY_VALUES:
        threads = min(4, int(joblib.effective_n_jobs(-1)), len(parts))
    with SINGLE_BLAS_THREAD, contextlib.ExitStack() as pools:
        run: Any = map
        if threads > 1:
            run = pools.enter_context(ThreadPoolExecutor(threads)).map
        # A thread of a pool does not know what its caller set.
        yield from run(lambda part: np.errstate(all="ignore")(function)(*part), parts)


def total(function: Callable[[int, int], Any], n_rows: int, n_features: int) -> list[Any]:
    """Sums of the arrays that ``function(start, stop)`` gives for ranges of rows."""
    sums: list[Any] = []
    for part in each(function, n_rows, n_features):
        sums = [a + b for a, b in zip(sums, part, strict=True)] if sums else list(part)
    return sums


class _SingleBlasThread(Locked):
    """Limits BLAS to one thread while any pass runs, on any thread of this process.

    The last user restores it: overlapping limits would restore each other.
    """

    def __init__(self) -> None:
        super().__init__()
        self._users = 0
        # Searching for the BLAS libraries takes longer than a pass, so it is done once.
        self._controller = ThreadpoolController()
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._limit = self._controller.limit(limits=1, user_api="blas")

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._limit.restore_original_limits()


SINGLE_BLAS_THREAD = _SingleBlasThread()
#: Features up to which decompositions keep to one thread. More threads save little time there, and
#: wait for each other on a busy machine: a decomposition then takes up to 100 times as long.
ONE_THREAD_FEATURES = 1500


def blas_threads_for(n_features: int) -> AbstractContextManager[None]:
    """Threads of BLAS for work on a matrix of this size: one, or as many as it has."""
    return SINGLE_BLAS_THREAD if n_features <= ONE_THREAD_FEATURES else contextlib.nullcontext()
