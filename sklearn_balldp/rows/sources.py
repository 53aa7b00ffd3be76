"""Rows that lie in a file: their shape, and how to read some of them.

Passes accept arrays and sources alike, and a fit holds only the part of a file that its threads are
reading. A source keeps a path, and each process opens the file for itself, so that a source can be
sent to another process.
"""

import os
import threading
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from mmap import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..arrays import namespace

#: Precisions that rows may have.
PRECISIONS = ("float16", "float32", "float64")
#: If a row's largest entry is above the first or below the second, its square may leave float64.
LARGEST_ENTRY, SMALLEST_ENTRY = 1e140, 1e-100
#: Size of the largest entry of such a row after it was rescaled (on the sphere).
SCALED_ENTRY = 1e120
# Number of decoded Parquet row groups kept in memory, as threads read neighbouring parts.
_KEPT_GROUPS = 4


class Rows(ABC):
    """Rows of embeddings outside of memory; derive from it to read a store of your own.

    A subclass sets ``shape`` and ``dtype``, and reads ranges. It must be safe to read from several
    threads, and give the same numbers every time.

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

    def _part(self, start: int, stop: int) -> NDArray[np.floating]:
        """As :meth:`read`, with a check of shape and type."""
        rows = self.read(start, stop)
        shape = stop - start, self.shape[1]
        if not (isinstance(rows, np.ndarray) and rows.shape == shape and rows.dtype == self.dtype):
            kind = getattr(rows, "dtype", type(rows).__name__)
            raise ValueError(
                f"rows: reading {start} to {stop} gave an array of shape {np.shape(rows)} and type "
                f"{kind}, where the source states {shape} and {self.dtype}; has the file changed?"
            )
        return rows

    @abstractmethod
    def read(self, start: int, stop: int) -> NDArray[np.floating]:
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
        """The same rows for one fit, without what workers hold for an earlier one."""
        return self

    def _squarable(self, domain: str) -> "Rows":
        """The same rows, changed as :func:`squarable` does."""
        return SquarableRows(self, domain)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def size(self) -> int:
        """Number of values."""
        return self.shape[0] * self.shape[1]

    def __getitem__(self, rows: Any) -> NDArray[np.floating]:
        if isinstance(rows, tuple) and len(rows) == 2 and rows[1] is Ellipsis:
            # The folds of scikit-learn index rows like this.
            rows = rows[0]
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                return self._part(start, max(start, stop))
            return self._rows_at(np.arange(start, stop, step))
        places = np.asarray(rows)
        if places.dtype == bool:
            if places.shape != (len(self),):
                raise IndexError(f"rows: a mask must have {len(self)} entries.")
            places = np.flatnonzero(places)
        if places.ndim == 0:
            return self._rows_at(places[None])[0]
        return self._rows_at(places)

    def _rows_at(self, places: NDArray[np.intp]) -> NDArray[np.floating]:
        """Rows at these positions, by one pass over the parts of the source that hold them."""
        places = np.where(places < 0, places + len(self), places)
        if len(places) and not (places.min() >= 0 and places.max() < len(self)):
            raise IndexError(f"rows: positions must lie below {len(self)}.")
        taken = np.empty((len(places), self.shape[1]), dtype=self.dtype)
        size = max(1, 2**20 // self.shape[1])
        order = np.argsort(places, kind="stable")
        parts = np.searchsorted(places[order], np.arange(0, len(self) + size, size))
        for part in np.flatnonzero(np.diff(parts)).tolist():
            own = order[parts[part] : parts[part + 1]]
            first, last = int(places[own].min()), int(places[own].max())
            taken[own] = self._part(first, last + 1)[places[own] - first]
        return taken

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("rows: those of a file cannot be had without a copy.")
        # A writeable array: read-only views of a file are copied.
        return np.require(self._part(0, len(self)), dtype, "W")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype})"


def are_squarable(rows: NDArray[np.floating], domain: str) -> bool:
    """Whether squares alone show that :func:`squarable` changes no row."""
    # The factors of two cover the rounding of squares, so that squarable() would change no row.
    most, least = 0.5 * LARGEST_ENTRY**2, 2.0 * rows.shape[1] * SMALLEST_ENTRY**2
    with np.errstate(all="ignore"):
        squares = np.vecdot(rows, rows)
        moderate = bool(squares.max(initial=0.0) <= most)
        return moderate and (domain == "ball" or bool(squares.min(initial=np.inf) >= least))


def squarable(rows: Any, domain: str | None) -> Any:
    """Change extreme rows, so that no squared norm overflows or vanishes.

    The result is ``rows`` itself if no row is extreme, or if there is no domain; otherwise it is a
    copy in C order.

    In the ball, entries are clipped to :data:`LARGEST_ENTRY`, a 1-Lipschitz map of each row.
    Clipping changes the direction of a row, so rows for the sphere are rescaled instead, each to a
    largest entry of :data:`SCALED_ENTRY`.
    Each row changes by itself; rows that hold NaN or infinity, and zero rows, stay as they are.
    """
    xp = namespace(rows)
    if domain is None or (xp is np and are_squarable(rows, domain)):
        return rows
    with np.errstate(all="ignore"):
        peaks = xp.maximum(xp.max(rows, axis=1), -xp.min(rows, axis=1))
        odd = peaks > LARGEST_ENTRY
        if domain == "sphere":
            odd = odd | ((peaks > 0.0) & (peaks < SMALLEST_ENTRY))
        odd = (odd & xp.isfinite(peaks))[:, None]
        if not xp.any(odd):
            return rows
        if domain == "sphere":
            own = rows / xp.where(odd, peaks[:, None], 1.0) * SCALED_ENTRY
        else:
            own = xp.clip(rows, -LARGEST_ENTRY, LARGEST_ENTRY)
        found = xp.where(odd, own, rows)
    return np.ascontiguousarray(found) if xp is np else found


class SquarableRows(Rows):
    """Rows of a file, changed as :func:`squarable` does."""

    def __init__(self, source: Rows, domain: str) -> None:
        self.source, self._domain = source, domain
        self.shape, self.dtype, self._read_values = source.shape, source.dtype, source._read_values

    def read(self, start: int, stop: int) -> NDArray[np.floating]:
        return squarable(self.source._part(start, stop), self._domain)


class _File(Rows):
    """Rows of a file that each process opens once, by its path."""

    def __init__(self, path: str | Path) -> None:
        self.path = _absolute(path)
        self._lock, self._opened = threading.Lock(), None  # type: tuple[Any, Any]

    @abstractmethod
    def _open(self) -> Any:
        """Open the file, and return what rows are read from."""

    def read(self, start: int, stop: int) -> NDArray[np.floating]:
        return np.asarray(self._handle[start:stop])

    @property
    def _handle(self) -> Any:
        with self._lock:
            if self._opened is None:
                self._opened = self._open()
            return self._opened

    def _declare(self, shape: Sequence[int], dtype: Any) -> None:
        """Set shape and precision; a ValueError if they are not those of rows."""
        if len(shape) != 2 or str(np.dtype(dtype)) not in PRECISIONS:
            raise ValueError(
                f"path={self.path!r} holds an array of shape {tuple(shape)} and type {dtype}; rows "
                f"are two-dimensional and of type {', '.join(PRECISIONS)}: convert them first."
            )
        self.shape, self.dtype = (int(shape[0]), int(shape[1])), np.dtype(dtype)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lock": None, "_opened": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()


def pieces(edges: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, slice]]:
    """Which parts hold a range of rows, and which rows of each; ``edges`` are where parts begin."""
    for place in range(bisect_right(edges, start) - 1, bisect_left(edges, stop)):
        edge, end = edges[place : place + 2]
        yield place, slice(max(start - edge, 0), min(stop, end) - edge)


def is_mapped(X: Any) -> bool:
    """Whether an array is a view of a mapped file, which other processes may write to."""
    while X is not None and not isinstance(X, mmap):
        X = getattr(X, "base", None)
    return X is not None


def _absolute(path: str | Path) -> str:
    """An absolute path; a URL stays as it is."""
    return str(path) if "://" in str(path) else os.path.abspath(path)


class ZarrRows(_File):
    """Rows of a Zarr array; see :func:`from_zarr`."""

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        self._declare(self._handle.shape, self._handle.dtype)

    def _open(self) -> Any:
        import zarr

        array = zarr.open(self.path, mode="r")
        if not hasattr(array, "dtype"):
            raise ValueError(f"path={self.path!r} is a Zarr group; name the path of its array.")
        return array


class HDF5Rows(_File):
    """Rows of a dataset in an HDF5 file; see :func:`from_hdf5`."""

    def __init__(self, path: str | Path, dataset: str) -> None:
        super().__init__(path)
        self.dataset = dataset
        self._declare(self._handle.shape, self._handle.dtype)

    def _open(self) -> Any:
        import h5py

        file = h5py.File(self.path, mode="r")
        if not isinstance(file.get(self.dataset), h5py.Dataset):
            raise ValueError(
                f"dataset={self.dataset!r} is none of {self.path!r}, which holds "
                f"{', '.join(file)}; name one of those."
            )
        rows = file[self.dataset]
        # A link may point to another file, and the stored type may differ from NumPy's.
        home, kind, offset = rows.file, rows.dtype, rows.id.get_offset()
        in_one_piece = (
            str(kind) in PRECISIONS
            and offset is not None
            and rows.size > 0
            and rows.id.get_storage_size() == rows.nbytes
            and rows.id.get_type().equal(h5py.h5t.py_create(kind))
        )
        # If this process also writes to the file, part of it may not be on disk yet.
        if not (in_one_piece and home.driver in ("sec2", "windows") and home.mode == "r"):
            return rows
        mapped: Any = np.memmap(home.filename, kind, mode="r", offset=offset, shape=rows.shape)
        # While the dataset is open, others cannot open its file for writing.
        mapped.dataset = rows
        # A mapped file needs no large reads; a small block is still in the cache when it is used.
        self._read_values = 1
        return mapped


class ParquetRows(_File):
    """Rows of a column of lists in Parquet files; see :func:`from_parquet`."""

    def __init__(self, paths: Sequence[str | Path], column: str) -> None:
        super().__init__(", ".join(map(str, paths)))
        self.paths, self.column = [_absolute(path) for path in paths], column
        self._groups: dict[int, NDArray[np.floating]] = {}
        # Non-empty row groups: the number of their file, and their position in it.
        self._places, sizes = [], []
        for number, file in enumerate(self._handle):
            for group in range(file.metadata.num_row_groups):
                n_rows = file.metadata.row_group(group).num_rows
                if n_rows:
                    self._places.append((number, group))
                    sizes.append(n_rows)
        if not sizes:
            raise ValueError(f"path={self.path!r} holds no rows; name files that do.")
        self._starts = np.cumsum([0, *sizes]).tolist()
        first = self._decoded(0)
        self._declare((self._starts[-1], first.shape[1]), first.dtype)

    def _open(self) -> Any:
        from pyarrow import parquet

        files = [parquet.ParquetFile(path) for path in self.paths]
        for path, file in zip(self.paths, files, strict=True):
            if self.column not in file.schema_arrow.names:
                names = ", ".join(file.schema_arrow.names)
                raise ValueError(f"column={self.column!r} is none of {path!r}: {names}.")
        kinds = {str(file.schema_arrow.field(self.column).type) for file in files}
        if len(kinds) > 1:
            raise ValueError(
                f"column={self.column!r} is of several types ({', '.join(sorted(kinds))}); write "
                "all files with one."
            )
        return files

    def _decoded(self, group: int) -> NDArray[np.floating]:
        """Rows of one row group."""
        files, (number, inside) = self._handle, self._places[group]
        with self._lock:
            if group not in self._groups:
                column = files[number].read_row_group(inside, columns=[self.column]).column(0)
                rows = _lists(column.combine_chunks(), self.column)
                if hasattr(self, "shape") and rows.shape[1:] != self.shape[1:]:
                    raise ValueError(f"column={self.column!r}: its lists differ in length.")
                while len(self._groups) >= _KEPT_GROUPS:
                    self._groups.pop(next(iter(self._groups)))
                self._groups[group] = rows
            return self._groups[group]

    def read(self, start: int, stop: int) -> NDArray[np.floating]:
        parts = [self._decoded(group)[own] for group, own in pieces(self._starts, start, stop)]
        # There is no part where the range is empty.
        return np.concatenate([np.empty((0, self.shape[1]), self.dtype), *parts])

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_groups": {}}


def _lists(column: Any, name: str) -> NDArray[np.floating]:
    """Rows from an Arrow array of lists of one length."""
    import pyarrow as pa

    kind = column.type
    fixed = pa.types.is_fixed_size_list(kind)
    lists = fixed or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not lists or str(kind.value_type) not in ("halffloat", "float", "double"):
        raise ValueError(
            f"column={name!r} is of type {kind}; rows are lists of halffloat, float or double."
        )
    values = column.flatten()
    length = len(values) // max(1, len(column))
    even = fixed or (
        len(values) == length * len(column)
        and np.all(np.diff(np.asarray(column.offsets)) == length)
    )
    if column.null_count or values.null_count or not even:
        raise ValueError(
            f"column={name!r}: its lists differ in length or have gaps; drop those records, or "
            "repair them."
        )
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(len(column), length)


def from_zarr(path: str | Path) -> Rows:
    """Rows of a Zarr array.

    Parameters
    ----------
    path : str or path-like
        The array, of shape (n_samples, n_features) and type float16, float32 or float64.

    Returns
    -------
    Rows
        For ``fit`` and ``predict``.

    Raises
    ------
    ValueError
        If there are no such rows.
    ImportError
        If zarr is missing: ``pip install 'sklearn_balldp[files]'``.
    """
    return _found(lambda: ZarrRows(path), "zarr")


def from_hdf5(path: str | Path, dataset: str) -> Rows:
    """Rows of a dataset in an HDF5 file.

    Parameters
    ----------
    path : str or path-like
        The file.
    dataset : str
        Name of the dataset, of shape (n_samples, n_features) and type float16, float32 or float64.

    Returns
    -------
    Rows
        For ``fit`` and ``predict``.

    Raises
    ------
    ValueError
        If there are no such rows.
    ImportError
        If h5py is missing: ``pip install 'sklearn_balldp[files]'``.
    """
    return _found(lambda: HDF5Rows(path, dataset), "h5py")


def from_parquet(path: str | Path | Sequence[str | Path], column: str) -> Rows:
    """Rows of a column of lists, in one Parquet file or several.

    Row groups are read whole: write them small (tens of megabytes).

    Parameters
    ----------
    path : str, path-like or sequence of these
        The file, or files in the order of the labels.
    column : str
        Name of the column: lists of one length, of halffloat, float or double.

    Returns
    -------
    Rows
        For ``fit`` and ``predict``.

    Raises
    ------
    ValueError
        If there are no such rows.
    ImportError
        If pyarrow is missing: ``pip install 'sklearn_balldp[files]'``.
    """
    paths = [path] if isinstance(path, (str, Path)) else list(path)
    return _found(lambda: ParquetRows(paths, column), "pyarrow")


def _found(open_rows: Callable[[], Rows], package: str) -> Rows:
    try:
        return open_rows()
    except ImportError as error:
        raise ImportError(
            f"these rows need {package}; pip install 'sklearn_balldp[files]'."
        ) from error
