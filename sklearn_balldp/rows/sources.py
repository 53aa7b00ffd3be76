"""Rows outside of memory: a fit holds only the part of a source that its threads are reading."""

import contextlib
import os
import threading
import weakref
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

#: Rows, or numbers of each, in a precision that rows may have.
Floats = NDArray[np.floating]
#: Precisions that rows may have.
PRECISIONS = ("float16", "float32", "float64")


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


class Rows(ABC):
    """Rows of embeddings outside of memory; derive from it to read a store of your own.

    A subclass sets ``shape`` and ``dtype``, and reads ranges: from several threads, and the same
    numbers every time.

    Attributes
    ----------
    shape : tuple of (int, int)
        Number of rows and of features.
    dtype : dtype
        float16, float32 or float64.
    """

    shape: tuple[int, int]
    dtype: np.dtype
    ndim = 2
    # Number of values read at once.
    _read_values = 2**21
    # Whether shape and type are fixed, and nobody changes the arrays that were read.
    _is_fixed = False

    def _part(self, start: int, stop: int) -> Floats:
        """As :meth:`read`, with a check of kind, shape and type."""
        rows = self.read(start, stop)
        shape, kind = (stop - start, self.shape[1]), type(rows)
        # A masked array would lose its mask.
        plain = kind is np.ndarray or kind is np.memmap
        if not (plain and rows.shape == shape and rows.dtype == self.dtype):
            raise RowsError(
                f"rows: reading {start} to {stop} gave a {kind.__name__} of shape "
                f"{np.shape(rows)} and type {getattr(rows, 'dtype', 'unknown')}, where the source "
                f"states an ndarray of {shape} and {self.dtype}; has the file changed?"
            )
        return rows

    @abstractmethod
    def read(self, start: int, stop: int) -> Floats:
        """Rows of a range, in memory.

        Parameters
        ----------
        start, stop : int
            First row, and the one after the last.

        Returns
        -------
        ndarray of shape (stop - start, n_features)
            In the precision of the source.
        """

    def _for_one_fit(self) -> "Rows":
        """The same rows for one fit: what was checked of them is what is used."""
        return self if self._is_fixed else _FixedRows(self)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        """Number of values."""
        return self.shape[0] * self.shape[1]

    def __getitem__(self, rows: Any) -> Floats:
        if isinstance(rows, tuple) and len(rows) == 2 and rows[1] is Ellipsis:
            # The folds of scikit-learn index rows like this.
            rows = rows[0]
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                return self._part(start, max(start, stop))
            return self._rows_at(np.arange(start, stop, step))
        positions = np.asarray(rows)
        if positions.dtype == bool:
            if positions.shape != (len(self),):
                raise IndexError(f"rows: a mask must have {len(self)} entries.")
            positions = np.flatnonzero(positions)
        return self._rows_at(np.atleast_1d(positions))[slice(None) if positions.ndim else 0]

    def _rows_at(self, positions: NDArray[np.intp]) -> Floats:
        """Rows at these positions, by one pass over the ranges of the source that hold them."""
        positions = np.where(positions < 0, positions + len(self), positions)
        if len(positions) and not (positions.min() >= 0 and positions.max() < len(self)):
            raise IndexError(f"rows: positions must lie below {len(self)}.")
        taken = np.empty((len(positions), self.shape[1]), dtype=self.dtype)
        order = np.argsort(positions, kind="stable")
        ranges = positions[order] // max(1, 2**20 // self.shape[1])
        for chosen in np.split(order, np.flatnonzero(np.diff(ranges)) + 1) if len(order) else []:
            first, last = int(positions[chosen[0]]), int(positions[chosen[-1]])
            taken[chosen] = self._part(first, last + 1)[positions[chosen] - first]
        return taken

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("rows: those of a file cannot be had without a copy.")
        # A writeable array: read-only views of a file are copied.
        return np.require(self._part(0, len(self)), dtype, "W")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype})"


def in_memory(name: str, values: Any) -> Any:
    """An array of another library as one of NumPy; anything else as it is.

    A TypeError if it is Dask's, or not in this machine's memory.
    """
    library = type(values).__module__.split(".")[0]
    kind = f"{library} {type(values).__name__}"
    if library == "dask":
        raise TypeError(
            f"{name} is a {kind}, which is not computed yet; pass {name}.compute(). Rows that do "
            "not fit into memory are written first: X.to_zarr(PATH) of an array, and "
            "sklearn_balldp.rows.from_zarr(PATH), perhaps in on_cluster."
        )
    # The class is asked: an attribute of a data frame may be a column.
    if isinstance(values, np.ndarray) or not hasattr(type(values), "device"):
        return values
    if "cpu" not in str(values.device).lower():
        raise TypeError(
            f"{name} is a {kind} on the device {values.device}; copy it to this machine's memory "
            f"first: {name}.cpu() of PyTorch, {name}.get() of CuPy, numpy.asarray({name}) of JAX."
        )
    # What NumPy cannot read is refused by others, with an error that says so.
    with contextlib.suppress(Exception):
        return np.asarray(values)
    return values


class _FixedRows(Rows):
    """Rows of a source of others: shape and type are asked once, and all that is read is copied."""

    _is_fixed = True

    def __init__(self, source: Rows) -> None:
        self.source, shape = source, source.shape
        self.shape, self.dtype = (int(shape[0]), int(shape[1])), np.dtype(source.dtype)
        self._read_values = source._read_values

    def read(self, start: int, stop: int) -> Floats:
        rows = self.source.read(start, stop)
        now = tuple(self.source.shape), np.dtype(self.source.dtype)
        if now != (self.shape, self.dtype):
            raise RowsError(
                f"rows: reading {start} to {stop}, the source states shape and type {now}, where "
                f"it stated {(self.shape, self.dtype)} before; fix them when it is made."
            )
        return rows.copy() if type(rows) is np.ndarray else rows


def pieces(edges: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, slice]]:
    """Which parts hold a range of rows, and which rows of each; parts begin at ``edges``."""
    for part in range(bisect_right(edges, start) - 1, bisect_left(edges, stop)):
        edge, end = edges[part : part + 2]
        yield part, slice(max(start - edge, 0), min(stop, end) - edge)


def is_mapped(X: Any) -> bool:
    """Whether others may write to an array's memory: mapped files, Arrow, buffers, tensors."""
    base: Any = X
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return not (base.flags.owndata if isinstance(base, np.ndarray) else isinstance(base, bytes))
