"""Passes over rows: fixed blocks in C order, on threads."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import joblib
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

T = TypeVar("T")

#: Values of a block: it stays in the processor's cache.
BLOCK_VALUES = 2**18


def working_precision(dtype: np.dtype, *numbers: float) -> type[np.float32] | type[np.float64]:
    """float32 for rows of that precision or less, unless public numbers are extreme for it."""
    # Squares, and sums of a block of them, stay well within float32.
    moderate = all(1e-12 <= number <= 1e12 for number in numbers)
    return np.float32 if moderate and dtype.itemsize <= 4 else np.float64


def block_rows(n_features: int) -> int:
    """Rows in a block of :func:`row_blocks`, at most."""
    return max(1, min(4096, BLOCK_VALUES // n_features))


def row_blocks(
    X: NDArray[np.floating],
    start: int = 0,
    stop: int | None = None,
    size: int | None = None,
    dtype: type[np.floating] = np.float64,
) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Iterate over blocks of rows, float64 by default, without such a copy of the whole array.

    Blocks are in C order whatever the layout of ``X``: sums along a row err alike in every layout,
    so that no other row can decide, by way of the layout, what is computed from this one.

    A block is a view of ``X`` where that is in C order and of this precision (do not write), else a
    buffer that the next step overwrites.
    """
    stop = len(X) if stop is None else stop
    size = block_rows(X.shape[1]) if size is None else size
    if X.dtype == dtype and X.flags.c_contiguous and X.flags.aligned:
        for first in range(start, stop, size):
            rows = slice(first, min(first + size, stop))
            yield rows, X[rows]
        return
    buffer = np.empty((min(size, stop - start), X.shape[1]), dtype=dtype)
    for first in range(start, stop, size):
        rows = slice(first, min(first + size, stop))
        block = buffer[: rows.stop - rows.start]
        np.copyto(block, X[rows])
        yield rows, block


def row_ranges(n_rows: int, n_features: int, multiple: int = 1) -> list[tuple[int, int]]:
    """Contiguous ranges of rows, one for each thread that a pass over the rows pays for.

    They begin at multiples of ``multiple``, so that groups of so many rows are the same on machines
    of more or fewer cores.
    """
    workers = min(4, joblib.effective_n_jobs(-1)) if n_rows * n_features > 4_000_000 else 1
    inner = np.linspace(0, n_rows, workers + 1).astype(int)[1:-1] // multiple * multiple
    return list(pairwise([0, *inner.tolist(), n_rows]))


def map_row_ranges(
    function: Callable[[int, int], T], n_rows: int, n_features: int, multiple: int = 1
) -> list[T]:
    """Apply ``function(start, stop)`` to contiguous row ranges, on threads when it pays."""
    ranges = row_ranges(n_rows, n_features, multiple)
    if len(ranges) == 1:
        return [function(0, n_rows)]
    with ThreadPoolExecutor(len(ranges)) as pool:
        return list(pool.map(function, *zip(*ranges, strict=True)))


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
