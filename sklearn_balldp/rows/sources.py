"""Rows that lie in a file: their shape, and how to read some of them.

Passes accept arrays and sources alike, and a fit holds only the part of a file that its threads are
reading. A source keeps a path, and each process opens the file for itself, so that a source can be
sent to another process.
"""

import contextlib
import glob
import os
import threading
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._parameters import check_flag

#: Precisions that rows may have.
PRECISIONS = ("float16", "float32", "float64")
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

    # Whether shape and type are fixed, and nobody changes what was read.
    _steady = False

    def _part(self, start: int, stop: int) -> NDArray[np.floating]:
        """As :meth:`read`, with a check of kind, shape and type."""
        rows = self.read(start, stop)
        shape, kind = (stop - start, self.shape[1]), type(rows)
        # A masked array would lose its mask.
        plain = kind is np.ndarray or kind is np.memmap
        if not (plain and rows.shape == shape and rows.dtype == self.dtype):
            raise ValueError(
                f"rows: reading {start} to {stop} gave a {kind.__name__} of shape "
                f"{np.shape(rows)} and type {getattr(rows, 'dtype', 'unknown')}, where the source "
                f"states an ndarray of {shape} and {self.dtype}; has the file changed?"
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
        """The same rows for one fit: what was checked of them is what is used."""
        return self if self._steady else _SteadyRows(self)

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


def in_memory(name: str, values: Any) -> Any:
    """An array of another library as one of NumPy; anything else as it is.

    Raises a TypeError if it lies on a device other than this machine's memory.
    """
    # The class is asked: an attribute of a data frame may be a column.
    if isinstance(values, np.ndarray) or not hasattr(type(values), "device"):
        return values
    kind = f"{type(values).__module__.split('.')[0]} {type(values).__name__}"
    if "cpu" not in str(values.device).lower():
        raise TypeError(
            f"{name} is a {kind} on the device {values.device}; copy it to this machine's memory "
            f"first: {name}.cpu() of PyTorch, {name}.get() of CuPy, numpy.asarray({name}) of JAX."
        )
    # What NumPy cannot read is refused by others, with an error that says so.
    with contextlib.suppress(Exception):
        return np.asarray(values)
    return values


class _SteadyRows(Rows):
    """Rows of somebody's own source: shape and type are asked once, and every part is copied."""

    _steady = True

    def __init__(self, source: Rows) -> None:
        self.source, shape = source, source.shape
        self.shape, self.dtype = (int(shape[0]), int(shape[1])), np.dtype(source.dtype)
        self._read_values = source._read_values

    def read(self, start: int, stop: int) -> NDArray[np.floating]:
        rows = self.source.read(start, stop)
        now = tuple(self.source.shape), np.dtype(self.source.dtype)
        if now != (self.shape, self.dtype):
            raise ValueError(
                f"rows: reading {start} to {stop}, the source states shape and type {now}, where "
                f"it stated {(self.shape, self.dtype)} before; fix them when it is made."
            )
        return rows.copy() if type(rows) is np.ndarray else rows


class _File(Rows):
    """Rows of a file that each process opens once, by its path."""

    _steady = True

    def __init__(self, path: str | Path) -> None:
        self.path = _absolute(path)
        self._lock, self._opened = threading.Lock(), None  # type: tuple[Any, Any]

    @abstractmethod
    def _open(self) -> Any:
        """Open the file, and return what rows are read from."""

    def read(self, start: int, stop: int) -> NDArray[np.floating]:
        with _readable(self.path, f"rows {start} to {stop}"):
            return np.asarray(self._handle[start:stop])

    @property
    def _handle(self) -> Any:
        with self._lock:
            if self._opened is None:
                opened = self._open()
                self._check(opened)
                self._opened = opened
            return self._opened

    def _check(self, opened: Any) -> None:
        """Raise a ValueError if another process finds another file than the first one did."""
        if hasattr(self, "shape") and (opened.shape, opened.dtype) != (self.shape, self.dtype):
            raise ValueError(
                f"path={self.path!r} holds an array of shape {opened.shape} and type "
                f"{opened.dtype}, where it held {self.shape} and {self.dtype}: the file has "
                "changed; keep it as it is during a fit."
            )

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
    """Whether an array lies in memory that is not NumPy's: others may write to that meanwhile.

    Mapped files, buffers of Arrow, shared memory and tensors are such.
    """
    base: Any = X
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    own = base.flags.owndata if isinstance(base, np.ndarray) else isinstance(base, bytes)
    return not own


# Of errors of this file.
_QUOTES_NOTHING = ("path=", "column=", "dataset=")


@contextlib.contextmanager
def _readable(path: str, part: str = "it") -> Iterator[None]:
    """Errors of the libraries that read files, by the file and the remedy; they may quote rows."""
    kind = ""
    try:
        yield
    except ImportError:
        raise
    except Exception as error:
        if isinstance(error, ValueError) and str(error).startswith(_QUOTES_NOTHING):
            raise
        kind = type(error).__name__
    if kind:
        raise ValueError(
            f"path={path!r}: {part} cannot be read ({kind}); the file is missing, damaged or being "
            "written: restore it, or name another."
        )


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

        array: Any = zarr.open(self.path, mode="r")
        if not hasattr(array, "dtype"):
            raise ValueError(f"path={self.path!r} is a Zarr group; name the path of its array.")
        if array.nchunks_initialized < array.nchunks:
            raise ValueError(
                f"path={self.path!r} lacks {array.nchunks - array.nchunks_initialized} of "
                f"{array.nchunks} chunks, in whose place Zarr reads {array.fill_value!r}; restore "
                "them (rows of zeros are kept by write_empty_chunks=True)."
            )
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

    def __init__(self, paths: Sequence[str | Path], column: str, checksums: bool) -> None:
        super().__init__(", ".join(map(str, paths)))
        self.paths, self.column = [_absolute(path) for path in paths], column
        self._checksums = checksums
        self._groups: dict[int, NDArray[np.floating]] = {}
        self._places = _places(self._handle)
        self._starts = np.cumsum([0, *(n_rows for *_, n_rows in self._places)]).tolist()
        if not self._starts[-1]:
            raise ValueError(f"path={self.path!r} holds no rows; name files that do.")
        first = self._decoded(0)
        self._declare((self._starts[-1], first.shape[1]), first.dtype)

    def _open(self) -> Any:
        from pyarrow import parquet

        files = []
        for path in self.paths:
            with _readable(path):
                files.append(parquet.ParquetFile(path, page_checksum_verification=self._checksums))
        for path, file in zip(self.paths, files, strict=True):
            names = file.schema_arrow.names
            if names.count(self.column) != 1:
                many = "is none" if self.column not in names else "is more than one"
                raise ValueError(f"column={self.column!r} {many} of {path!r}: {', '.join(names)}.")
        kinds = {str(file.schema_arrow.field(self.column).type) for file in files}
        if len(kinds) > 1:
            raise ValueError(
                f"column={self.column!r} is of several types ({', '.join(sorted(kinds))}); write "
                "all files with one."
            )
        return files

    def _check(self, opened: Any) -> None:
        if hasattr(self, "_places"):
            for old, new in zip_longest(self._places, _places(opened)):
                if old != new:
                    self._changed(old or new)

    def _changed(self, place: tuple[int, int, int]) -> NoReturn:
        number, inside, n_rows = place
        raise ValueError(
            f"path={self.paths[number]!r}: row group {inside} does not hold the {n_rows} rows of "
            f"type {getattr(self, 'dtype', '')} that it held: the file has changed; keep it as it "
            "is during a fit."
        )

    def _decoded(self, group: int) -> NDArray[np.floating]:
        """Rows of one row group."""
        files, (number, inside, n_rows) = self._handle, self._places[group]
        with self._lock:
            if group not in self._groups:
                with _readable(self.paths[number], f"row group {inside}"):
                    column = files[number].read_row_group(inside, columns=[self.column]).column(0)
                    rows = _lists(column.combine_chunks(), self.column)
                if hasattr(self, "shape") and rows.shape[1:] != self.shape[1:]:
                    raise ValueError(f"column={self.column!r}: its lists differ in length.")
                if len(rows) != n_rows or rows.dtype != getattr(self, "dtype", rows.dtype):
                    self._changed(self._places[group])
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


def _places(files: Sequence[Any]) -> list[tuple[int, int, int]]:
    """Non-empty row groups: the number of their file, their place in it, and their rows."""
    return [
        (number, group, n_rows)
        for number, file in enumerate(files)
        for group in range(file.metadata.num_row_groups)
        if (n_rows := file.metadata.row_group(group).num_rows)
    ]


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
        If zarr is missing: ``pip install zarr``.
    """
    return _found(lambda: ZarrRows(path), path, "zarr")


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
        If h5py is missing: ``pip install h5py``.
    """
    return _found(lambda: HDF5Rows(path, dataset), path, "h5py")


def from_parquet(
    path: str | Path | Sequence[str | Path], column: str, *, verify_checksums: bool = False
) -> Rows:
    """Rows of a column of lists, in one Parquet file or several.

    Row groups are read whole: write them small (tens of megabytes).

    Parameters
    ----------
    path : str, path-like or sequence of these
        The file, or files in the order of the labels. A folder, or a pattern such as
        ``"rows/*.parquet"``, stands for its files in the order of their names.
    column : str
        Name of the column: lists of one length, of halffloat, float or double.
    verify_checksums : bool, default=False
        Finds damaged pages, where the files were written with checksums; reading takes longer.

    Returns
    -------
    Rows
        For ``fit`` and ``predict``.

    Raises
    ------
    ValueError
        If there are no such rows.
    ImportError
        If pyarrow is missing: ``pip install pyarrow``.
    """
    check_flag("verify_checksums", verify_checksums)
    paths = _parts(path) if isinstance(path, (str, Path)) else list(path)
    if not paths:
        shown = repr(str(path)) if isinstance(path, (str, Path)) else "[]"
        raise ValueError(f"path={shown} names no file; pass the files that hold the rows.")
    return _found(lambda: ParquetRows(paths, column, bool(verify_checksums)), path, "pyarrow")


def _parts(path: str | Path) -> list[str | Path]:
    """The files of a folder or a pattern, in the order of their names; or the one file."""
    if "://" in str(path):
        raise ValueError(f"path={str(path)!r}: rows are read from files; download it first.")
    if Path(path).is_dir():
        # What writers of folders leave beside the parts begins so.
        found = [own for own in Path(path).glob("*.parquet") if not own.name.startswith(("_", "."))]
        return list(sorted(found))
    if not Path(path).exists() and any(mark in str(path) for mark in "*?["):
        return list(sorted(glob.glob(str(path))))
    return [path]


def _found(open_rows: Callable[[], Rows], path: Any, package: str) -> Rows:
    try:
        with _readable(str(path)):
            return open_rows()
    except ImportError as error:
        raise ImportError(f"these rows need {package}; pip install {package}.") from error
