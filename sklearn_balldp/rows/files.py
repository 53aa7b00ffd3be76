"""Rows in files: Zarr, HDF5 and Parquet, as the libraries of these formats read them.

A source keeps a path, and each process opens the file for itself, so that a source can be sent to
another process. Where a file lacks rows, these libraries make up fill values: such files are
refused, when they are opened and at each reading.
"""

import contextlib
import copy
import errno
import glob
import importlib
import math
import os
import re
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._parameters import check_flag
from .sources import PRECISIONS, Locked, Rows, RowsError, pieces

T = TypeVar("T")

# Number of decoded Parquet row groups kept in memory, as threads read neighbouring parts.
_KEPT_GROUPS = 4
# What this process lacks, and not the file.
_LIMITS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}


class FileRows(Locked, Rows):
    """Rows of an array in a file, which each process opens for itself by ``open_array(*names)``."""

    _is_fixed = True

    def __init__(self, open_array: Callable[..., Any], *names: Any) -> None:
        super().__init__()
        self._open, self._names, self._opened = open_array, names, (0, None)
        self.path = names[0] if isinstance(names[0], str) else ", ".join(names[0])
        array = self._array
        if len(array.shape) != 2 or str(np.dtype(array.dtype)) not in PRECISIONS:
            raise RowsError(
                f"path={self.path!r} holds an array of shape {tuple(array.shape)} and type "
                f"{array.dtype}; rows are two-dimensional and of type {', '.join(PRECISIONS)}: "
                "convert them first."
            )
        self.shape, self.dtype = (int(array.shape[0]), int(array.shape[1])), np.dtype(array.dtype)

    @property
    def _array(self) -> Any:
        process = os.getpid()
        with self._lock:
            if self._opened[0] != process:
                array = _read_by(self.path, "it", lambda: self._open(*self._names))
                shape, dtype = tuple(array.shape), np.dtype(array.dtype)
                if hasattr(self, "shape") and (shape, dtype) != (self.shape, self.dtype):
                    raise RowsError(
                        f"path={self.path!r} holds an array of shape {shape} and type {dtype}, "
                        f"where it held {self.shape} and {self.dtype}: the file has changed; keep "
                        "it as it is during a fit."
                    )
                self._opened = process, array
            return self._opened[1]

    def read(self, start: int, stop: int) -> NDArray[np.floating]:
        what, array = f"rows {start} to {stop}", self._array
        return _read_by(self.path, what, lambda: np.asarray(array[start:stop]))

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lock": None, "_opened": (0, None)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        Locked.__init__(self)


def _read_by(path: str, part: str, read: Callable[[], T]) -> T:
    """What a library reads; its errors may quote rows, so others name the file and the remedy."""
    try:
        return read()
    except (ImportError, RowsError):
        raise
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        replaced: Exception = RowsError(
            f"path={path!r}: {part} cannot be read ({type(error).__name__}); the file is missing, "
            "damaged or being written: restore it, or name another."
        )
        if isinstance(error, MemoryError):
            replaced = MemoryError(f"path={path!r}: {part} did not fit into memory.")
        elif number in _LIMITS:
            reason = os.strerror(number)
            replaced = OSError(number, f"path={path!r}: {part} cannot be read: {reason}.")
    # Raise outside of the handler: the original error would be the context.
    raise replaced


def _absolute(path: str | Path) -> str:
    """An absolute path; a URL stays as it is."""
    return str(path) if "://" in str(path) else os.path.abspath(path)


def _needed(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(f"these rows need {package}; pip install {package}.") from error


def from_zarr(path: str | Path) -> Rows:
    """Rows of a Zarr array.

    Parameters
    ----------
    path : str or path-like
        The array, of shape (n_samples, n_features) and type float16, float32 or float64. One that
        is stored in shards is read once when it is opened, as its chunks may be missing.

    Returns
    -------
    Rows
        For ``fit`` and ``predict``.

    Raises
    ------
    ValueError
        If there are no such rows, or chunks were not written.
    ImportError
        If zarr is missing: ``pip install zarr``.
    """
    return FileRows(_ZarrArray, _absolute(path))


class _ZarrArray:
    """A Zarr array without missing chunks: it is read with a fill value that tells of them."""

    def __init__(self, path: str) -> None:
        zarr: Any = _needed("zarr")
        array = zarr.open(path, mode="r")
        if not hasattr(array, "dtype"):
            raise RowsError(f"path={path!r} is a Zarr group; name the path of its array.")
        self._path, self.shape, self.dtype = path, array.shape, np.dtype(array.dtype)
        n_missing = array.nchunks - array.nchunks_initialized
        if n_missing > 0:
            self._refuse(f"{n_missing} of {array.nchunks} chunks")
        if str(self.dtype) not in PRECISIONS or len(self.shape) != 2:
            return
        # A number that no computation gives.
        self._bits = np.dtype(f"u{self.dtype.itemsize}")
        self._mark = np.array(-0x15A5, f"i{self.dtype.itemsize}").view(self._bits)[()]
        metadata = copy.copy(array.metadata)
        object.__setattr__(metadata, "fill_value", self._mark.view(self.dtype))
        self._array = zarr.Array(zarr.AsyncArray(metadata, array.store_path))
        if getattr(array, "shards", None) is not None:
            for start in range(0, self.shape[0], array.shards[0]):
                self[start : start + array.shards[0]]

    def __getitem__(self, rows: slice) -> NDArray[np.floating]:
        values = np.ascontiguousarray(self._array[rows])
        if (values.view(self._bits) == self._mark).any():
            self._refuse(f"chunks among the rows {rows.start} to {rows.stop}")
        return values

    def _refuse(self, missing: str) -> None:
        raise RowsError(
            f"path={self._path!r} lacks {missing}, in whose place Zarr reads a fill value; restore "
            "them (rows of zeros are kept by write_empty_chunks=True)."
        )


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
        If there are no such rows, or some were not written, or lie in a file that is missing.
    ImportError
        If h5py is missing: ``pip install h5py``.
    """
    return FileRows(_HDF5Dataset, _absolute(path), dataset)


class _HDF5Dataset:
    """A dataset of which all rows are stored."""

    def __init__(self, path: str, dataset: str) -> None:
        h5py: Any = _needed("h5py")
        file = h5py.File(path, mode="r")
        if not isinstance(file.get(dataset), h5py.Dataset):
            raise RowsError(
                f"dataset={dataset!r} is none of {path!r}, which holds {', '.join(file)}; name one "
                "of those."
            )
        self._path, self._dataset = path, file[dataset]
        self.shape, self.dtype = self._dataset.shape, self._dataset.dtype
        self._check()

    def __getitem__(self, rows: slice) -> NDArray[np.floating]:
        values = self._dataset[rows]
        # Files that it is spread over may vanish: if they are there now, they were before.
        self._check()
        return values

    def _check(self) -> None:
        missing = _missing_from(self._dataset)
        if missing:
            raise RowsError(
                f"path={self._path!r} lacks {missing}, in whose place HDF5 reads a fill value; "
                "restore what is missing, or write the rows again."
            )


def _missing_from(dataset: Any) -> str:
    """What a dataset of HDF5 lacks, in words; nothing if all of its values are stored."""
    if dataset.is_virtual:
        return _missing_from_sources(dataset)
    file = dataset.file
    # HDF5 reads zeros behind the end of a file. One that this process writes to may end later.
    has_ended = file.driver == "sec2" and file.mode == "r"
    if has_ended and os.fstat(file.id.get_vfd_handle()).st_size < file.id.get_filesize():
        return f"the end of the file {file.filename!r}"
    settings = dataset.id.get_create_plist()
    for number in range(settings.get_external_count()):
        name, offset, size = settings.get_external(number)
        prefix = dataset.id.get_access_plist().get_efile_prefix().decode()
        raw = _beside(dataset, os.fsdecode(name), "HDF5_EXTFILE_PREFIX", prefix)
        if not os.path.exists(raw) or os.path.getsize(raw) < offset + min(size, dataset.nbytes):
            return f"the file {raw!r}, or the end of it"
    if dataset.chunks is not None:
        sides = zip(dataset.shape, dataset.chunks, strict=True)
        n_chunks = math.prod(-(-length // side) for length, side in sides)
        n_missing = n_chunks - dataset.id.get_num_chunks()
        return f"{n_missing} of {n_chunks} chunks" if n_missing > 0 else ""
    n_bytes = dataset.size * dataset.id.get_type().get_size()
    return "storage for its rows" if dataset.id.get_storage_size() < n_bytes else ""


def _missing_from_sources(dataset: Any) -> str:
    """What the sources of a virtual dataset lack; each must give whole rows."""
    h5py, covered = _needed("h5py"), np.zeros(dataset.shape[0], dtype=bool)
    for source in dataset.virtual_sources():
        (first, *_), (last, *_) = source.vspace.get_select_bounds()
        if source.vspace.get_select_npoints() != (last + 1 - first) * math.prod(dataset.shape[1:]):
            return "whole rows in the parts that it is made of"
        with contextlib.ExitStack() as files:
            file, path = dataset.file, dataset.file.filename
            if source.file_name != ".":
                path = _beside(dataset, source.file_name, "HDF5_VDS_PREFIX", os.path.dirname(path))
                if not os.path.exists(path):
                    return f"the file {path!r}"
                file = files.enter_context(h5py.File(path, mode="r"))
            part = file.get(source.dset_name)
            if part is None or not _is_long_enough(part, source):
                return f"rows of the dataset {source.dset_name!r} in {path!r}"
            missing = _missing_from(part)
        if missing:
            return missing
        covered[first : last + 1] = True
    return "" if covered.all() else "sources of some rows"


def _is_long_enough(dataset: Any, source: Any) -> bool:
    """Whether a dataset is as long as what a virtual one takes from it."""
    if source.src_space.get_select_type() == _needed("h5py").h5s.SEL_ALL:
        return dataset.size == source.vspace.get_select_npoints()
    ends = source.src_space.get_select_bounds()[1]
    return all(end < length for end, length in zip(ends, dataset.shape, strict=True))


def _beside(dataset: Any, name: str, variable: str, folder: str) -> str:
    """Where HDF5 looks for a file that a dataset names."""
    folder = os.environ.get(variable) or folder
    folder = folder.replace("${ORIGIN}", os.path.dirname(os.path.abspath(dataset.file.filename)))
    path = os.path.join(folder, name)
    return path if os.path.exists(path) else os.path.abspath(name)


def from_parquet(
    path: str | Path | Sequence[str | Path], column: str, *, verify_checksums: bool = False
) -> Rows:
    """Rows of a column of lists, in one Parquet file or several.

    Row groups are read whole: write them small (tens of megabytes).

    Parameters
    ----------
    path : str, path-like or sequence of these
        The file, or files in the order of the labels. A folder, with the folders inside of it, or a
        pattern such as ``"rows/*.parquet"``, stands for its files in the order of their names.
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
        If there are no such rows, or the order of the files is not sure.
    ImportError
        If pyarrow is missing: ``pip install pyarrow``.
    """
    check_flag("verify_checksums", verify_checksums)
    paths = _files_of(path) if isinstance(path, (str, Path)) else list(path)
    if not paths:
        shown = repr(str(path)) if isinstance(path, (str, Path)) else "[]"
        raise RowsError(f"path={shown} names no file; pass the files that hold the rows.")
    rows = FileRows(_ParquetColumn, list(map(_absolute, paths)), column, bool(verify_checksums))
    # Uneven lists are refused when they are read: the first ones at once.
    rows.read(0, 1)
    return rows


def _files_of(path: str | Path) -> Sequence[str | Path]:
    """The files of a folder or a pattern, in the order of their names; or the one file."""
    if "://" in str(path):
        raise RowsError(f"path={str(path)!r}: rows are read from files; download it first.")
    if Path(path).is_dir():
        inside = (file.relative_to(path) for file in Path(path).rglob("*.parquet"))
        # What writers of folders leave beside the parts begins so.
        kept = [str(file) for file in inside if not any(name[0] in "_." for name in file.parts)]
        names = [os.path.join(path, name) for name in sorted(kept)]
    elif not Path(path).exists() and any(mark in str(path) for mark in "*?["):
        names = sorted(glob.glob(str(path)))
    else:
        return [path]
    if names != sorted(names, key=_by_numbers):
        raise RowsError(
            f"path={str(path)!r}: the order of its files is not sure, as names put 10 before 2; "
            "pass a list of them, in the order of the labels."
        )
    return names


def _by_numbers(name: str) -> list[str | int]:
    parts = re.split(r"(\d+)", name)
    return [int(part) if number % 2 else part for number, part in enumerate(parts)]


class _ParquetColumn:
    """A column of lists as an array that can be sliced."""

    def __init__(self, paths: Sequence[str], column: str, checksums: bool) -> None:
        self._lock = threading.Lock()
        data, system = _needed("pyarrow.dataset"), _needed("pyarrow.fs").LocalFileSystem()
        options = data.ParquetFragmentScanOptions(page_checksum_verification=checksums)
        form = data.ParquetFileFormat(default_fragment_scan_options=options)
        self._column, self._groups, types = column, [], set()

        def opened(path: str) -> tuple[Any, list[Any]]:
            file = form.make_fragment(path, filesystem=system)
            return file.physical_schema, file.split_by_row_group()

        for path in paths:
            # One by one, so that an error names its file.
            schema, groups = _read_by(path, "it", partial(opened, path))
            if schema.names.count(column) != 1:
                many = "is none" if column not in schema.names else "is more than one"
                raise RowsError(f"column={column!r} {many} of {path!r}: {', '.join(schema.names)}.")
            types.add(schema.field(column).type)
            self._groups += [group for group in groups if group.row_groups[0].num_rows]
        if len(types) > 1:
            raise RowsError(
                f"column={column!r} is of several types ({', '.join(sorted(map(str, types)))}); "
                "write all files with one."
            )
        (self._type,) = types
        if str(getattr(self._type, "value_type", "")) not in ("halffloat", "float", "double"):
            raise RowsError(
                f"column={column!r} is of type {self._type}; rows are lists of halffloat, float or "
                "double."
            )
        if not self._groups:
            raise RowsError(f"path={', '.join(paths)!r} holds no rows; name files that do.")
        sizes = [group.row_groups[0].num_rows for group in self._groups]
        self._starts = np.cumsum([0, *sizes]).tolist()
        self._decoded = lru_cache(_KEPT_GROUPS)(self._decode)
        first = self._groups[0].head(1, columns=[column]).column(0)[0].as_py()
        self.dtype = np.dtype(self._type.value_type.to_pandas_dtype())
        self.shape = self._starts[-1], len(first or [])

    def _decode(self, number: int) -> NDArray[np.floating]:
        import pyarrow as pa

        group, n_rows = self._groups[number], self._starts[number + 1] - self._starts[number]
        what = f"row group {group.row_groups[0].id}"
        table = _read_by(group.path, what, lambda: group.to_table(columns=[self._column]))
        column = table.column(0).combine_chunks()
        with contextlib.suppress(pa.ArrowInvalid):
            # It refuses lists of another length.
            even = column.cast(pa.list_(self._type.value_type, self.shape[1]))
            values = even.flatten()
            if len(even) == n_rows and not even.null_count and not values.null_count:
                numbers = np.asarray(values.to_numpy(zero_copy_only=False))
                return numbers.reshape(n_rows, self.shape[1])
        raise RowsError(
            f"path={group.path!r}: {what} of column={self._column!r} does not hold {n_rows} lists "
            f"of {self.shape[1]} numbers; its lists differ in length or have gaps, or the file has "
            "changed."
        )

    def __getitem__(self, rows: slice) -> NDArray[np.floating]:
        with self._lock:
            ranges = pieces(self._starts, rows.start, rows.stop)
            parts = [self._decoded(number)[some] for number, some in ranges]
        # There is no part where the range is empty.
        return np.concatenate([np.empty((0, self.shape[1]), self.dtype), *parts])
