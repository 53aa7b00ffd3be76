"""Passes over rows: fixed shards and blocks in C order, on threads.

Rows are cut into shards by their number and that of features alone. What a shard gives does not
depend on the machine, and shards are added up in order: the number of cores decides how long a pass
takes, and no bit of what it gives.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import joblib
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from .sources import Rows, is_mapped

T = TypeVar("T")

# Single precision with the bits of half precision is too small by this factor.
_HALF_TO_SINGLE = np.float32(2.0**112)
_SUBNORMAL = np.float32(2.0**-136)
# Factors that stay finite times that one.
_FITTING = np.float32(2.0**14)
# Factors outside of this and one over it lose digits or overflow in single precision.
_TINY = 2.0**-100
#: Values of a block: it stays in the processor's cache.
BLOCK_VALUES = 2**18
#: Values of rows that are one shard.
SMALL = 4_000_000
#: Rows of a shard of many, at most; where they are short it has as many as :data:`SMALL` values.
SHARD_ROWS = 8192
#: Shards that there are at least of more rows, so that threads share them evenly.
LEAST_SHARDS = 8


def working_precision(dtype: np.dtype, *numbers: float) -> type[np.float32] | type[np.float64]:
    """float32 for rows of that precision or less, unless public numbers are extreme for it."""
    # Squares, and sums of a block of them, stay well within float32.
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
    """Iterate over blocks of rows, float64 by default, without such a copy of the whole array.

    Blocks are in C order whatever the layout of ``X``: sums along a row err alike in every layout,
    so that no other row can decide, by way of the layout, what is computed from this one.

    A block is a view of ``X`` where that is in C order and of this precision (do not write), else a
    buffer that the next step overwrites. Of a file several blocks are read at once. It is a view
    of a file only for those who read it ``once``: all others read the same numbers twice.
    """
    stop = len(X) if stop is None else stop
    size = block_rows(X.shape[1]) if size is None else size
    if isinstance(X, Rows):
        held = max(1, X._read_values // (size * X.shape[1])) * size
        for first in range(start, stop, held):
            part = X._part(first, min(first + held, stop))
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
    out: NDArray[np.floating],
    rows: NDArray[np.floating],
    factors: NDArray[np.floating] | None = None,
    *,
    finite: bool = False,
) -> None:
    """Copy rows into an array of a precision that holds them; finite ones times factors there.

    Whoever gives factors, or says so, has seen that all are finite: nobody looks again.
    NumPy converts half precision value by value. Here single precision takes its bits as they are:
    the exponents are then off by 112, which a product by that power of two mends.
    """
    if rows.dtype != np.float16 or out.dtype == np.float16 or not rows.dtype.isnative:
        if factors is None:
            np.copyto(out, rows, casting="same_kind")
        else:
            np.multiply(rows, factors[:, None], out=out, casting="same_kind")
    elif out.dtype != np.float32:
        single = np.empty(rows.shape, dtype=np.float32)
        copy_rows(single, rows, finite=finite or factors is not None)
        # Some NaN warn of themselves: who looks for them says so.
        with np.errstate(invalid="ignore"):
            copy_rows(out, single, factors)
    elif not _SUBNORMAL * _HALF_TO_SINGLE > 0.0:
        # Told to drop subnormal numbers, this processor would drop the smallest values.
        copy_rows(out, rows.astype(np.float32), factors)
    else:
        bits = out.view(np.uint32)
        # Ten bits of a fraction become 23, and the sign goes to the front again.
        np.copyto(bits.view(np.int32), rows.view(np.int16))
        bits <<= 13
        bits &= 0x8FFFE000
        if factors is None or not factors.max(initial=0.0) <= _FITTING:
            out *= _HALF_TO_SINGLE
            if factors is not None:
                out *= factors[:, None]
        else:
            # In one go: the product of both factors is exact.
            out *= factors[:, None] * _HALF_TO_SINGLE
        # Infinity and NaN have the exponent after the largest.
        seen = finite or factors is not None
        if not seen and max(out.max(initial=0.0), -out.min(initial=0.0)) >= 2.0**16:
            np.copyto(out, rows)


def place_rows(
    out: NDArray[np.floating],
    rows: NDArray[np.floating],
    factors: NDArray[np.float64] | None,
    *,
    finite: bool = False,
) -> None:
    """Copy rows, times factors if there are any, in the precision of the array they are copied to.

    All are copied and multiplied in one way: that a row is scaled must not decide how others are
    computed. A factor of one changes nothing.
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
    # Factors of extreme rows overflow here: these rows are written again below.
    with np.errstate(all="ignore"):
        copy_rows(out, rows, factors.astype(out.dtype))
    out[extreme] = others


def shards_of(n_rows: int, n_features: int) -> list[tuple[int, int]]:
    """Contiguous ranges of rows that passes take one by one: a function of the shape alone.

    They begin at multiples of 256, so that groups of so many rows are whole.
    """
    if n_rows * n_features <= SMALL:
        return [(0, n_rows)]
    most = max(SHARD_ROWS, SMALL // n_features)
    size = -(-min(most, -(-n_rows // LEAST_SHARDS)) // 256) * 256
    return list(pairwise([*range(0, n_rows, size), n_rows]))


def n_threads(n_rows: int, n_features: int) -> int:
    """Threads that a pass over rows pays for."""
    return min(4, joblib.effective_n_jobs(-1), len(shards_of(n_rows, n_features)))


def map_shards(
    function: Callable[[int, int], T],
    n_rows: int,
    n_features: int,
    pool: Executor | None = None,
    *,
    back: bool = False,
) -> Iterator[T]:
    """What ``function(start, stop)`` gives for each shard, in their order, on threads if it pays.

    Few results wait at a time. With ``back`` the last shards are computed first (all results then
    wait), as they may still be in the cache.
    """
    # BLAS sums long rows on as many threads as there are cores.
    with SINGLE_BLAS_THREAD:
        yield from _mapped(function, n_rows, n_features, pool, back)


def _mapped(
    function: Callable[[int, int], T],
    n_rows: int,
    n_features: int,
    pool: Executor | None,
    back: bool,
) -> Iterator[T]:
    shards = shards_of(n_rows, n_features)
    threads = n_threads(n_rows, n_features)
    if threads == 1 and not back:
        yield from (function(*shard) for shard in shards)
        return
    if threads == 1:
        yield from [function(*shard) for shard in reversed(shards)][::-1]
        return
    if pool is None:
        with ThreadPoolExecutor(threads) as own:
            yield from _mapped(function, n_rows, n_features, own, back)
        return
    ahead = len(shards) if back else 2 * threads
    first = shards[:ahead][:: -1 if back else 1]
    waiting = deque([pool.submit(function, *shard) for shard in first][:: -1 if back else 1])
    try:
        for place in range(len(shards)):
            yield waiting.popleft().result()
            if place + ahead < len(shards):
                waiting.append(pool.submit(function, *shards[place + ahead]))
    finally:
        # After an error in one shard the others are not worth their time.
        for future in waiting:
            future.cancel()


class _SingleBlasThread:
    """Limits BLAS to one thread while any solve runs, on any thread of this process.

    The limit is global: overlapping limits would restore one another's.
    """

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        # Looking for the libraries takes longer than a pass over the rows: once is enough.
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
