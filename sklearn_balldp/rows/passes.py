"""Passes over rows: blocks in double precision, on threads, added up in any order.

What is asked of the records is one function of a block and its columns of values (codes, weights),
which returns arrays to add up. What rounding adds is bounded for any order of the additions
(:mod:`.privacy.rounding`), so that neither threads nor processors matter.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import reduce
from itertools import islice
from typing import Any, TypeVar

import joblib
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from ..losses import Array
from ..privacy.rounding import MOST_BLOCKS, block_rows
from ..progress import bar
from .sources import Locked, Stored

R = TypeVar("R")
#: Arrays to add up, which whoever computed them no longer needs.
Sums = Sequence[NDArray[Any]]

# Values from which threads pay, and ranges of so many rows that threads share them evenly.
_MANY_VALUES, _MIN_RANGES = 2**18, 8
# Values that a function computes of a block, at most, if it has the number of one row as ``width``.
_MOST_VALUES = 2**20


def blocks_of(rows: Any, width: int = 1) -> Iterator[tuple[slice, Array]]:
    """Blocks of rows in memory, and their places: float64 in C order, to be read alone.

    Each is a copy: a row that another process changes is the same in all that a block is used for.
    Blocks are smaller where so many values as their ``width`` are computed of each row.
    """
    size = min(block_rows(rows.shape[1]), max(1, _MOST_VALUES // max(width, 1)))
    kept = _is_kept(rows)
    for start in range(0, max(len(rows), 1), size):
        block = rows[start : start + size]
        place = slice(start, start + len(block))
        yield place, block if kept else np.array(block, dtype=np.float64, order="C")


def _is_kept(rows: Any) -> bool:
    """Whether these are rows of :func:`kept_rows`, which nobody can change."""
    owner = rows if rows.base is None else rows.base
    locked = type(owner) is np.ndarray and owner.flags.owndata and not owner.flags.writeable
    return locked and rows.dtype == np.float64 and rows.flags.c_contiguous and rows.dtype.isnative


def total(function: Callable[..., Sums], X: Any, *columns: Any) -> Sums:
    """Sums of the arrays that ``function(block, *columns)`` gives for blocks of rows.

    Dask arrays are added up where they are, so the function is then sent to workers.
    """
    if hasattr(X, "total"):
        return X.total(function, *columns)
    if isinstance(X, np.ndarray) and len(X) <= block_rows(X.shape[1]):
        # One block: threads and a bar would take as long as the pass.
        with SINGLE_BLAS_THREAD, np.errstate(all="ignore"):
            return sums_of(function, X, *columns)
    return added(each(lambda *rows: sums_of(function, *rows), X, *columns))


def sums_of(function: Callable[..., Sums], rows: Any, *columns: Any) -> Sums:
    """As :func:`total`, of rows in memory and on one thread."""
    blocks = results(function, rows, *columns)
    # Runs of blocks, each in the memory of its first result.
    return added(reduce(_add, islice(blocks, MOST_BLOCKS - 1), first) for first in blocks)


def joined(function: Callable[..., NDArray[Any]], X: Any, *columns: Any) -> NDArray[Any]:
    """The arrays that ``function(block, *columns)`` gives for blocks of rows, one after another."""
    of_ranges = each(lambda *rows: list(results(function, *rows)), X, *columns)
    return np.concatenate([array for arrays in of_ranges for array in arrays])


def kept_rows(function: Callable[[Array, Array], Array], X: Any) -> Array:
    """What ``function(block, out)`` makes of all rows, in double precision; nobody can change it.

    It may write to ``out``, where its rows are kept, which saves it arrays of its own.
    """
    kept = np.empty(X.shape)

    def keep(rows: Any, places: Array) -> None:
        for place, block in blocks_of(rows):
            out = places[place]
            made = function(block, out)
            if made is not out:
                out[...] = made

    list(each(keep, X, kept))
    kept.setflags(write=False)
    return kept


def results(function: Callable[..., R], rows: Any, *columns: Any) -> Iterator[R]:
    """Results of a function for blocks of rows in memory."""
    for place, block in blocks_of(rows, getattr(function, "width", 1)):
        yield function(block, *cut(columns, place))


def cut(columns: Iterable[Any], place: slice) -> list[Any]:
    """Columns of some rows; None stays None."""
    return [None if values is None else values[place] for values in columns]


def added(parts: Iterable[Sums]) -> Sums:
    """Sum of all parts, in pairs of neighbours, pairs of pairs, and so on."""
    pairs: list[tuple[int, Sums]] = []
    for sums in parts:
        level = 0
        while pairs and pairs[-1][0] == level:
            sums, level = _plus(pairs.pop()[1], sums), level + 1
        pairs.append((level, sums))
    return reduce(_plus, [sums for _, sums in reversed(pairs)])


def _plus(one: Sums, other: Sums) -> Sums:
    return [a + b for a, b in zip(one, other, strict=True)]


def _add(one: Sums, other: Sums) -> Sums:
    for a, b in zip(one, other, strict=True):
        a += b
    return one


def ranges(n_rows: int, n_features: int) -> list[tuple[int, int]]:
    """Ranges of rows in memory that a thread adds up, of MOST_BLOCKS blocks at most."""
    size = block_rows(n_features)
    n_blocks = math.ceil(n_rows / size)
    run = size * max(1, min(MOST_BLOCKS, math.ceil(n_blocks / _MIN_RANGES)))
    return [(start, min(start + run, n_rows)) for start in range(0, max(n_rows, 1), run)]


def each(function: Callable[..., R], X: Any, *columns: Any) -> Iterator[R]:
    """Results of ``function(rows, *columns)`` for ranges of rows, in order, on threads."""
    of_rows = X.ranges if isinstance(X, Stored) else ranges(*X.shape)
    threads = 1
    if math.prod(X.shape) > _MANY_VALUES:
        threads = min(4, joblib.cpu_count(), len(of_rows))

    def of_range(ends: tuple[int, int]) -> R:
        place = slice(*ends)
        # A thread of a pool does not know what its caller set.
        with np.errstate(all="ignore"):
            return function(X[place], *cut(columns, place))

    with SINGLE_BLAS_THREAD, contextlib.ExitStack() as pools:
        run: Any = map
        if threads > 1:
            run = pools.enter_context(ThreadPoolExecutor(threads)).map
        yield from bar(run(of_range, of_rows), "pass", "range", len(of_rows))


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
