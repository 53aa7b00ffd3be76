"""Rows that stay where they are: whatever has ``shape``, ``dtype`` and slices, such as Zarr."""

import contextlib
import os
import threading
import weakref
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

#: Rows, or numbers of each, in a precision that rows may have.
Floats = NDArray[np.floating]
#: Precisions that rows may have.
PRECISIONS = ("float16", "float32", "float64")
# Values that one thread reads at once, or a chunk of more.
_READ_VALUES = 2**21


class RowsError(ValueError):
    """An error of reading rows, in words that quote none of their values."""


class Locked:
    """An object with a lock, renewed by a fork: the child lacks the thread that may hold it."""

    _all: ClassVar["weakref.WeakSet[Locked]"] = weakref.WeakSet()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all.add(self)

    @classmethod
    def _renew(cls) -> None:
        for one in cls._all:
            one._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Locked._renew)


def is_store(X: Any) -> bool:
    """Whether these are rows to be read by slices: arrays, which compute, can be added to."""
    has_rows = all(hasattr(X, name) for name in ("shape", "dtype", "__getitem__"))
    return has_rows and not hasattr(type(X), "__add__")


class Stored(Locked):
    """Rows of a store for one fit or prediction: their shape and type stay as they were."""

    ndim = 2

    def __init__(self, rows: Any) -> None:
        super().__init__()
        self._rows, self._kind = rows, type(rows).__name__
        check_type(rows.dtype)
        self.shape, self.dtype = tuple(map(int, rows.shape)), np.dtype(rows.dtype)
        written = getattr(rows, "nchunks_initialized", None)
        if written is not None and written < rows.nchunks:
            raise RowsError(
                "X: chunks of this array were never written, in whose place Zarr reads a fill "
                "value; restore them (rows of zeros are kept by write_empty_chunks=True)."
            )

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Ranges of whole chunks, as a store decodes all of a chunk for any row of it."""
        chunk = int((getattr(self._rows, "chunks", None) or (1,))[0])
        size = chunk * max(1, _READ_VALUES // (chunk * max(self.shape[1], 1)))
        return [(i, min(i + size, len(self))) for i in range(0, max(len(self), 1), size)]

    def __getitem__(self, place: slice) -> Floats:
        start, stop, _ = place.indices(len(self))
        expected, kind = (max(stop - start, 0), self.shape[1]), ""
        # One thread at a time: not every library of files lets several read.
        with self._lock:
            try:
                rows = self._rows[start:stop]
            except (MemoryError, KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                kind = type(error).__name__
        # Raise outside of the handler: the original error may quote rows.
        if kind:
            raise RowsError(
                f"X: rows {start} to {stop} of the {self._kind} cannot be read ({kind}): its file "
                "is missing, closed or damaged; open it again, or restore it."
            )
        check_rows(rows, expected, self.dtype, f"rows {start} to {stop} of the {self._kind}")
        return rows

    def at(self, positions: NDArray[np.intp]) -> Floats:
        """Rows at these positions, which ascend."""
        parts = [np.empty((0, self.shape[1]), self.dtype)]
        for start, stop in self.ranges:
            some = positions[slice(*np.searchsorted(positions, (start, stop)))]
            if len(some):
                parts.append(self[start:stop][some - start])
        return np.concatenate(parts)

    def whole(self) -> Floats:
        """All rows, in memory."""
        return np.array(self[0 : len(self)])


def check_type(dtype: Any) -> None:
    """Raise an error for types that rows which stay where they are cannot have."""
    if str(dtype) not in PRECISIONS:
        raise RowsError(
            f"X: rows of type {dtype} are not read from a store or a Dask array; give it the type "
            "float16, float32 or float64, in this machine's order of bytes."
        )


def check_rows(rows: Any, shape: tuple[int, ...], dtype: Any, name: str) -> None:
    """Raise an error for rows that are not of the shape, type and kind which were announced."""
    # A masked array would lose its mask.
    plain = type(rows) is np.ndarray or type(rows) is np.memmap
    if not (plain and rows.shape == shape and rows.dtype == dtype):
        raise RowsError(
            f"X: {name} gave a {type(rows).__name__} of shape {np.shape(rows)} and type "
            f"{getattr(rows, 'dtype', 'unknown')}, where an ndarray of {shape} and {dtype} was "
            "announced."
        )


def in_memory(name: str, values: Any) -> Any:
    """An array of another library as one of NumPy; anything else as it is.

    What Dask has not computed is computed. A TypeError if it is not in this machine's memory.
    """
    library = type(values).__module__.split(".")[0]
    if library in ("dask", "dask_expr"):
        from .chunks import computed

        return computed(name, values)
    # The class is asked: an attribute of a data frame may be a column.
    if isinstance(values, np.ndarray) or not hasattr(type(values), "device"):
        return values
    if "cpu" not in str(values.device).lower():
        raise TypeError(
            f"{name} is a {library} {type(values).__name__} on the device {values.device}; copy it "
            f"to this machine's memory first: {name}.cpu() of PyTorch, {name}.get() of CuPy, "
            f"numpy.asarray({name}) of JAX."
        )
    # What NumPy cannot read is refused by others, with an error that says so.
    with contextlib.suppress(Exception):
        return np.asarray(values)
    return values


def rows_outside(X: Any) -> Any:
    """Rows that stay where they are, ready for passes; None for all others."""
    if type(X).__module__.split(".")[0] in ("dask", "dask_expr"):
        from .chunks import ChunkedRows

        return ChunkedRows(X)
    return Stored(X) if is_store(X) else None


def whole(name: str, values: Any) -> Any:
    """Values that stay elsewhere, read into memory; all others as they are."""
    if is_store(values):
        return Stored(values).whole()
    return in_memory(name, values)
