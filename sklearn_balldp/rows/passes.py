"""Passes over rows: fixed shards and blocks in C order, on threads.

The shape alone decides the shards, and results are added up in order: cores change no bit.
"""

import contextlib
import contextvars
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any, TypeVar

import joblib
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from ..privacy.rounding import SHARD_ROWS, SHARD_VALUES, SUMMED
from .sources import Floats, Locked, Rows, is_mapped

T = TypeVar("T")
R = TypeVar("R")

# Half-precision bits, read as single precision, give a number too small by this factor.
_HALF_TO_SINGLE = np.float32(2.0**112)
_SUBNORMAL = np.float32(2.0**-136)
# Row factors up to this stay finite when multiplied by _HALF_TO_SINGLE.
_FITTING = np.float32(2.0**14)
# Factors below this, or above its inverse, lose digits or overflow in single precision.
_TINY = 2.0**-100
#: Number of values of a block, which then stays in the processor's cache.
BLOCK_VALUES = 2**18
#: Rows are cut into several shards if they are at least so many, or hold more values than a shard
#: may; then into at least so many, so that threads share them evenly.
SEVERAL_ROWS, MIN_SHARDS = 2048, 8


def working_precision(dtype: np.dtype, *numbers: float) -> type[np.float32] | type[np.float64]:
    """float32 for rows of that precision or less, unless public numbers are extreme for it."""
    # Squares, and their sums over a block, then stay well within the range of float32.
    moderate = all(1e-12 <= number <= 1e12 for number in numbers)
    return np.float32 if moderate and dtype.itemsize <= 4 else np.float64


def block_rows(n_features: int) -> int:
    """Rows in a block of :func:`row_blocks`, at most."""
    return max(1, min(4096, BLOCK_VALUES // n_features))


def row_blocks(
    X: Any,
    start: int = 0,
    stop: int | None = None,
    size: int | None = None,
    dtype: type[np.floating] = np.float64,
    *,
    once: bool = False,
) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Iterate over blocks of rows in the given precision, without a copy of the whole array.

    Blocks are in C order whatever the layout of ``X``: other rows could otherwise change, through
    it, how sums along this one round. A block is a view where ``X`` is so already (do not write to
    it), of a mapped file only with ``once``, as another process may write to it between two reads;
    else a buffer that the next step overwrites. Several blocks of a file are read at once.
    """
    stop = len(X) if stop is None else stop
    size = block_rows(X.shape[1]) if size is None else size
    if isinstance(X, Rows):
        n_read = max(1, X._read_values // (size * X.shape[1])) * size
        for first in range(start, stop, n_read):
            part = X._part(first, min(first + n_read, stop))
            for rows, block in row_blocks(part, size=size, dtype=dtype, once=once):
                yield slice(first + rows.start, first + rows.stop), block
        return
    plain = X.dtype == dtype and X.flags.c_contiguous and X.flags.aligned
    if plain and (once or not is_mapped(X)):
        for first in range(start, stop, size):
            rows = slice(first, min(first + size, stop))
            yield rows, X[rows]
        return
    buffer = np.empty((min(size, stop - start), X.shape[1]), dtype=dtype)
    for first in range(start, stop, size):
        rows = slice(first, min(first + size, stop))
        block = buffer[: rows.stop - rows.start]
        copy_rows(block, X[rows])
        yield rows, block


def copy_rows(
    out: Floats, rows: Floats, factors: Floats | None = None, *, finite: bool = False
) -> None:
    """Copy rows into an array in its precision, times factors if there are any.

    Of callers that pass factors, or ``finite=True``, all values are finite. Of half precision,
    which NumPy converts value by value, the bits are copied to single precision; the exponents are
    then too small by 112, which a product with that power of two corrects.
    """
    if rows.dtype != np.float16 or out.dtype == np.float16 or not rows.dtype.isnative:
        if factors is None:
            np.copyto(out, rows, casting="same_kind")
        else:
            np.multiply(rows, factors[:, None], out=out, casting="same_kind")
    elif out.dtype != np.float32:
        single = np.empty(rows.shape, dtype=np.float32)
        copy_rows(single, rows, finite=finite or factors is not None)
        # NumPy warns about some NaN here, so the check for NaN is separate.
        with np.errstate(invalid="ignore"):
            copy_rows(out, single, factors)
    elif not _SUBNORMAL * _HALF_TO_SINGLE > 0.0:
        # This processor flushes subnormal numbers to zero, which would lose the smallest values.
        copy_rows(out, rows.astype(np.float32), factors)
    else:
        bits = out.view(np.uint32)
        # Widen the fraction from 10 to 23 bits; the mask keeps the sign in the first bit.
        np.copyto(bits.view(np.int32), rows.view(np.int16))
        bits <<= 13
        bits &= 0x8FFFE000
        if factors is None or not factors.max(initial=0.0) <= _FITTING:
            out *= _HALF_TO_SINGLE
            if factors is not None:
                out *= factors[:, None]
        else:
            # One product is enough: multiplying the factors by a power of two is exact.
            out *= factors[:, None] * _HALF_TO_SINGLE
        # Infinity and NaN have an exponent above the largest, so they come out as 2^16 or more.
        checked = finite or factors is not None
        if not checked and max(out.max(initial=0.0), -out.min(initial=0.0)) >= 2.0**16:
            np.copyto(out, rows)


def place_rows(
    out: Floats, rows: Floats, factors: NDArray[np.float64] | None, *, finite: bool = False
) -> None:
    """Copy rows, times factors if there are any, in the precision of the array they are copied to.

    Then every row is multiplied: whether one is must not change how others are computed.
    """
    if factors is None:
        copy_rows(out, rows, finite=finite)
        return
    extreme = ~((factors >= _TINY) & (factors <= 1.0 / _TINY))
    others = rows[extreme] * factors[extreme, None]
    if rows.dtype.itemsize > out.dtype.itemsize:
        # NumPy takes twice as long to multiply from one precision to another.
        copy_rows(out, rows)
        rows = out
    # Extreme factors overflow here; their rows are overwritten below.
    with np.errstate(all="ignore"):
        copy_rows(out, rows, factors.astype(out.dtype))
    out[extreme] = others


def shards_of(n_rows: int, n_features: int) -> list[tuple[int, int]]:
    """Contiguous ranges of rows, one for each shard: by the shape alone.

    They begin at multiples of :data:`.SUMMED`, so that no block of a sum is split.
    """
    if n_rows < SEVERAL_ROWS and n_rows * n_features <= SHARD_VALUES:
        return [(0, n_rows)]
    n_shards = max(MIN_SHARDS, math.ceil(n_rows / max(SHARD_ROWS, SHARD_VALUES // n_features)))
    edges = (round(shard * n_rows / n_shards / SUMMED) * SUMMED for shard in range(n_shards))
    return list(pairwise(sorted({n_rows, *(edge for edge in edges if edge < n_rows)})))


def n_threads(n_rows: int, n_features: int) -> int:
    """Number of threads that a pass over rows can use well."""
    # Asking for the number of processors takes longer than a pass over few values, and so do
    # threads.
    if n_rows * n_features <= SHARD_VALUES // 16:
        return 1
    return min(4, joblib.cpu_count(), len(shards_of(n_rows, n_features)))


def map_shards(
    function: Callable[[T], R], shards: Sequence[T], threads: int, pool: Executor | None = None
) -> Iterator[R]:
    """Results of a function for each shard, in order, on threads; few are held at a time."""
    # BLAS would split long rows over all cores, and their number would change the sums.
    with SINGLE_BLAS_THREAD, contextlib.ExitStack() as pools:
        if threads == 1:
            yield from map(function, shards)
            return
        if pool is None:
            pool = pools.enter_context(ThreadPoolExecutor(threads))

        def submit(shard: T) -> Future[R]:
            # A thread of a pool does not know what its caller set, such as NumPy's errstate.
            return pool.submit(contextvars.copy_context().run, function, shard)

        ahead = 2 * threads
        waiting = deque(map(submit, shards[:ahead]))
        try:
            for later in range(ahead, ahead + len(shards)):
                yield waiting.popleft().result()
                waiting.extend(map(submit, shards[later : later + 1]))
        finally:
            # After an error in one shard, the results of the others are not needed.
            for future in waiting:
                future.cancel()


class _SingleBlasThread(Locked):
    """Limits BLAS to one thread while any solve runs, on any thread of this process.

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
                return
            # Whoever is inside of another limit may have raised it.
            for library in self._controller.lib_controllers:
                if library.user_api == "blas" and library.num_threads != 1:
                    library.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._limit.restore_original_limits()


SINGLE_BLAS_THREAD = _SingleBlasThread()

#: Features up to which decompositions keep to one thread. More threads save little time there, and
#: wait for each other on a busy machine: a decomposition then takes up to 100 times as long.
ONE_THREAD_FEATURES = 1500


#: Features from which a decomposition takes so long that another thread pays.
MANY_FEATURES = 200


def side_by_side(one: Callable[[], T], other: Callable[[], R], n_features: int) -> tuple[T, R]:
    """Results of two functions that each decompose a matrix of this size, on two threads."""
    # Larger ones have all threads of BLAS.
    worth = MANY_FEATURES <= n_features <= ONE_THREAD_FEATURES
    if not worth or joblib.cpu_count() == 1:
        return one(), other()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(contextvars.copy_context().run, one)
        second = other()
        return first.result(), second


def blas_threads_for(n_features: int) -> AbstractContextManager[None]:
    """Threads of BLAS for work on a matrix of this size: one, or as many as it has."""
    return SINGLE_BLAS_THREAD if n_features <= ONE_THREAD_FEATURES else contextlib.nullcontext()
