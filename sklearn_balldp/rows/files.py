"""Rows in files: NumPy, Zarr and Parquet, as the libraries of these formats read them.

A source keeps a path, and each process opens it for itself. Where a file lacks rows, Zarr makes up
values, and tables that keep deleted rows look like folders of Parquet: both are refused.
"""

import contextlib
import copy
import errno
import glob
import importlib
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._parameters import check_flag
from ..pointers import unfetched
from ..text import by_numbers
from .sources import PRECISIONS, Floats, Locked, Rows, RowsError, pieces

T = TypeVar("T")

# Bytes of decoded rows that a source keeps in memory, at least two parts, and bytes of the whole
# chunks that make one part. Larger chunks are a part each, up to the third; others are cut.
_KEPT, _SMALL_PART, _LARGE_PART = 2**27, 2**24, 2**26
# What this process lacks, and not the file.
_LIMITS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
# What folders hold whose Parquet files are those of a table with a history.
_TABLES = {
    "Delta": "_delta_log/*",
    "Hudi": ".hoodie/*",
    "Iceberg": "metadata/*.metadata.json*",
    "Paimon": "snapshot/snapshot-*",
}
# Codecs that numcodecs reads once a package is there; its extras have their names.
_EXTRAS = {"crc32c", "msgpack2", "pcodec", "zfpy"}


@dataclass(frozen=True)
class _Parts:
    """An array in a file, decoded from one edge to the next; the first process checks it."""

    shape: tuple[int, ...]
    dtype: np.dtype
    edges: Sequence[int]
    decode: Callable[[int, int], Floats]
    check: Callable[[], None] = lambda: None


class FileRows(Locked, Rows):
    """Rows of an array in a file, which each process opens for itself by ``open_file(*names)``."""

    # Whether decoded parts are kept: in one fit, as the file may be written anew until the next.
    _keeps = False

    def __init__(self, open_file: Callable[..., _Parts], *names: Any) -> None:
        super().__init__()
        self._open, self._names = open_file, names
        self.path = names[0] if isinstance(names[0], str) else ", ".join(names[0])
        parts = _read_by(self.path, "it", lambda: self._open(*self._names))
        self.shape, self.dtype = (int(parts.shape[0]), int(parts.shape[1])), parts.dtype
        self._keep(parts)
        _read_by(self.path, "it", parts.check)
        # What its library cannot decode is told at once.
        self.read(0, min(1, len(self)))

    def _keep(self, parts: _Parts) -> None:
        """Note what this process has opened."""
        longest = max((stop - start for start, stop in pairwise(parts.edges)), default=0)
        n_bytes = max(1, longest * self.shape[1] * self.dtype.itemsize)
        decoded = lru_cache(max(2, _KEPT // n_bytes) if self._keeps else 0)(
            lambda number: parts.decode(*parts.edges[number : number + 2])
        )
        self._opened = os.getpid(), parts.edges, decoded

    def _decoded_parts(self) -> tuple[Sequence[int], Callable[[int], Floats]]:
        """Edges of the parts, and what decodes each; the last ones are kept."""
        if self._opened[0] != os.getpid():
            parts = _read_by(self.path, "it", lambda: self._open(*self._names))
            if (tuple(parts.shape), parts.dtype) != (self.shape, self.dtype):
                raise RowsError(
                    f"path={self.path!r} holds an array of shape {tuple(parts.shape)} and type "
                    f"{parts.dtype}, where it held {self.shape} and {self.dtype}: the file has "
                    "changed; keep it as it is during a fit."
                )
            self._keep(parts)
        return self._opened[1:]

    def read(self, start: int, stop: int) -> Floats:
        rows, end = np.empty((max(0, stop - start), self.shape[1]), self.dtype), 0
        with self._lock:
            edges, decoded = self._decoded_parts()
            for number, some in pieces(edges, start, stop):
                part = _read_by(self.path, f"rows {start} to {stop}", partial(decoded, number))
                begin, end = end, end + some.stop - some.start
                rows[begin:end] = part[some]
        return rows

    def _rows_at(self, positions: NDArray[np.intp]) -> Floats:
        # Its ranges may lie in one part.
        return Rows._rows_at(self._for_one_fit(), positions)

    def _for_one_fit(self) -> Rows:
        rows = copy.copy(self)
        rows._keeps = True
        return rows

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_lock": None, "_opened": (0,)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        Locked.__init__(self)


def _check_kind(path: str, shape: Sequence[int], dtype: Any) -> None:
    if len(shape) != 2 or str(dtype) not in PRECISIONS:
        raise RowsError(
            f"path={path!r} holds an array of shape {tuple(shape)} and type {dtype}; rows are "
            f"two-dimensional and of type {', '.join(PRECISIONS)}: convert them first."
        )


def _edges(shape: Sequence[int], dtype: np.dtype, chunk: int) -> list[int]:
    """Where parts begin that are made of whole chunks of so many rows, unless those are large."""
    width = max(1, shape[1] * dtype.itemsize)
    size = max(1, _SMALL_PART // width // chunk) * chunk
    return [*range(0, shape[0], min(size, max(1, _LARGE_PART // width))), shape[0]]


def _read_by(path: str, part: str, read: Callable[[], T]) -> T:
    """What a library reads; its errors may quote rows, so others name the file and the remedy."""
    try:
        return read()
    except (ImportError, RowsError):
        raise
    except Exception as error:
        fault = unfetched(path)
        number = error.errno if isinstance(error, OSError) else None
        replaced: Exception = RowsError(
            f"path={path!r}: {part} cannot be read ({type(error).__name__}); the file is missing, "
            "damaged or being written: restore it, or name another."
        )
        if fault is not None:
            replaced = RowsError(f"path={path!r}: {fault}.")
        elif isinstance(error, MemoryError):
            replaced = MemoryError(f"path={path!r}: {part} did not fit into memory.")
        elif number in _LIMITS:
            reason = os.strerror(number)
            replaced = OSError(number, f"path={path!r}: {part} cannot be read: {reason}.")
        elif type(error).__name__ == "UnknownCodecError":
            # Zarr and numcodecs name the codec, in quotation marks, before all else.
            named = re.search(r"'([\w.]+)'", str(error))
            replaced = _lacking_codec(path, named[1] if named else "(unnamed)")
    # Raise outside of the handler: the original error would be the context.
    raise replaced


def _lacking_codec(path: str, codec: str) -> RowsError:
    """The error of a codec that Zarr does not find, with what to install."""
    name = codec.rpartition("numcodecs.")[2].lower()
    package = "imagecodecs" if name.startswith("imagecodecs") else "the package that registers it"
    if name in _EXTRAS:
        package = f"pip install 'numcodecs[{name.removesuffix('2')}]'"
    return RowsError(
        f"path={path!r} is written with the codec {codec!r}, which is not installed: it needs "
        f"{package}; or write the array with another (zstd), where that is."
    )


def _absolute(path: str | Path) -> str:
    """An absolute path; a URL stays as it is."""
    return str(path) if "://" in str(path) else os.path.abspath(path)


def _needed(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(f"these rows need {package}; pip install {package}.") from error


def from_npy(path: str | Path) -> Rows:
    """Rows of a NumPy file, for the workers of a cluster.

    In one process ``numpy.load(path, mmap_mode="r")`` does, and copies less.

    Parameters
    ----------
    path : str or path-like
        The file, as ``numpy.save`` writes it: an array of shape (n_samples, n_features) and type
        float16, float32 or float64, in C order.

    Returns
    -------
    Rows
        For :func:`on_cluster`.

    Raises
    ------
    ValueError
        If there are no such rows.
    """
    return FileRows(_open_npy, _absolute(path))


def _open_npy(path: str) -> _Parts:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.memmap):
        raise RowsError(f"path={path!r} is no NumPy file of one array (.npy); name one that is.")
    shape, dtype, offset = array.shape, array.dtype, array.offset
    _check_kind(path, shape, dtype)
    if not array.flags.c_contiguous:
        raise RowsError(
            f"path={path!r} holds columns first; save numpy.ascontiguousarray(X) instead."
        )

    def decode(start: int, stop: int) -> Floats:
        # Reading a map of a file that was cut short would end the process.
        n_values, before = (stop - start) * shape[1], start * shape[1] * dtype.itemsize
        values = np.fromfile(path, dtype, n_values, offset=offset + before)
        return values.reshape(stop - start, shape[1])

    return _Parts(shape, dtype, _edges(shape, dtype, 1), decode)


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
        If there are no such rows, chunks were not written, or a codec is not installed.
    ImportError
        If zarr is missing: ``pip install zarr``.
    """
    return FileRows(_open_zarr, _absolute(path))


def _open_zarr(path: str) -> _Parts:
    """A Zarr array without missing chunks: it is read with a fill value that tells of them."""
    zarr: Any = _needed("zarr")
    if zipfile.is_zipfile(path):
        raise RowsError(f"path={path!r} is a ZIP file; unpack it, and name the folder.")
    array = zarr.open(path, mode="r")
    if not hasattr(array, "dtype"):
        raise RowsError(f"path={path!r} is a Zarr group; name the path of its array.")
    shape, dtype = array.shape, np.dtype(array.dtype)
    _check_kind(path, shape, dtype)
    # A number that no computation gives.
    bits = np.dtype(f"u{dtype.itemsize}")
    mark = np.array(-0x15A5, f"i{dtype.itemsize}").view(bits)[()]
    metadata = replace(array.metadata, fill_value=mark.view(dtype))
    marked = zarr.Array(zarr.AsyncArray(metadata, array.store_path))
    edges = _edges(shape, dtype, array.chunks[0])

    def lacks(missing: str) -> RowsError:
        return RowsError(
            f"path={path!r} lacks {missing}, in whose place Zarr reads a fill value; restore them "
            "(rows of zeros are kept by write_empty_chunks=True)."
        )

    def decode(start: int, stop: int) -> Floats:
        values = np.ascontiguousarray(marked[start:stop])
        if (values.view(bits) == mark).any():
            raise lacks(f"chunks among the rows {start} to {stop}")
        return values

    def check() -> None:
        n_missing = array.nchunks - array.nchunks_initialized
        if n_missing > 0:
            raise lacks(f"{n_missing} of {array.nchunks} chunks")
        if getattr(array, "shards", None) is not None:
            for start, stop in pairwise(edges):
                decode(start, stop)

    return _Parts(shape, dtype, edges, decode, check)


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
        If there are no such rows, the order of the files is not sure, or they lie in a table that
        keeps deleted rows (Delta, Hudi, Iceberg, Paimon).
    ImportError
        If pyarrow is missing: ``pip install pyarrow``.
    """
    check_flag("verify_checksums", verify_checksums)
    paths = _files_of(path) if isinstance(path, (str, Path)) else list(path)
    shown = repr(str(path)) if isinstance(path, (str, Path)) else "[]"
    if not paths:
        raise RowsError(f"path={shown} names no file; pass the files that hold the rows.")
    history = history_of(paths)
    if history is not None:
        raise RowsError(f"path={str(paths[0])!r} {history}")
    return FileRows(_open_parquet, list(map(_absolute, paths)), column, bool(verify_checksums))


def history_of(files: Iterable[str | Path]) -> str | None:
    """What is wrong with Parquet files of a table that keeps deleted rows; None for all others."""
    places = {place(file) for file in files for place in (os.path.abspath, os.path.realpath)}
    for folder in sorted({folder for place in places for folder in Path(place).parents}):
        for table, mark in _TABLES.items():
            if next(folder.glob(mark), None) is not None:
                return (
                    f"lies in {str(folder)!r}, a table of {table}, whose files keep rows that were "
                    "deleted; export those it has now to a folder elsewhere."
                )
    return None


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
    if names != sorted(names, key=by_numbers):
        raise RowsError(
            f"path={str(path)!r}: the order of its files is not sure, as names put 10 before 2; "
            "pass a list of them, in the order of the labels."
        )
    return names


def _open_parquet(paths: Sequence[str], column: str, checksums: bool) -> _Parts:
    """A column of lists; its parts are row groups."""
    data, system = _needed("pyarrow.dataset"), _needed("pyarrow.fs").LocalFileSystem()
    options = data.ParquetFragmentScanOptions(page_checksum_verification=checksums)
    form = data.ParquetFileFormat(default_fragment_scan_options=options)
    groups, types = list[Any](), set()

    def opened(path: str) -> tuple[Any, Any, list[Any]]:
        file = form.make_fragment(path, filesystem=system)
        return file.physical_schema, file.metadata, file.split_by_row_group()

    for path in paths:
        # One by one, so that an error names its file.
        schema, metadata, own = _read_by(path, "it", partial(opened, path))
        if schema.names.count(column) != 1:
            many = "is none" if column not in schema.names else "is more than one"
            raise RowsError(f"column={column!r} {many} of {path!r}: {', '.join(schema.names)}.")
        types.add(schema.field(column).type)
        if metadata.num_row_groups:
            _check_codec(path, metadata.row_group(0), column)
        groups += [group for group in own if group.row_groups[0].num_rows]
    if len(types) > 1:
        raise RowsError(
            f"column={column!r} is of several types ({', '.join(sorted(map(str, types)))}); "
            "write all files with one."
        )
    (kind,) = types
    if str(getattr(kind, "value_type", "")) not in ("halffloat", "float", "double"):
        raise RowsError(
            f"column={column!r} is of type {kind}; rows are lists of halffloat, float or double."
        )
    if not groups:
        raise RowsError(f"path={', '.join(paths)!r} holds no rows; name files that do.")
    edges = np.cumsum([0, *(group.row_groups[0].num_rows for group in groups)]).tolist()
    group_at = dict(zip(edges, groups, strict=False))
    first = groups[0].head(1, columns=[column]).column(0)[0].as_py()
    shape = edges[-1], len(first or [])

    def decode(start: int, stop: int) -> Floats:
        group = group_at[start]
        return _numbers(group, column, kind.value_type, (stop - start, shape[1]))

    return _Parts(shape, np.dtype(kind.value_type.to_pandas_dtype()), edges, decode)


def _check_codec(path: str, group: Any, column: str) -> None:
    """Raise a RowsError if this pyarrow cannot decompress a column of a row group."""
    from pyarrow import Codec

    columns = map(group.column, range(group.num_columns))
    for codec in {own.compression for own in columns if own.path_in_schema.startswith(column)}:
        is_known = codec == "UNCOMPRESSED"
        with contextlib.suppress(ValueError):
            is_known = is_known or Codec.is_available(codec)
        if not is_known:
            raise RowsError(
                f"path={path!r} is written with the codec {codec}, which this pyarrow lacks: that "
                "of `pip install pyarrow` has all but LZO; or write the file with another (zstd), "
                "where that is."
            )


def _numbers(group: Any, column: str, kind: Any, shape: tuple[int, int]) -> Floats:
    """The lists of a row group as rows of this shape."""
    import pyarrow as pa

    what = f"row group {group.row_groups[0].id}"
    table = _read_by(group.path, what, lambda: group.to_table(columns=[column]))
    lists = table.column(0).combine_chunks()
    with contextlib.suppress(pa.ArrowInvalid):
        # It refuses lists of another length.
        even = lists.cast(pa.list_(kind, shape[1]))
        values = even.flatten()
        if len(even) == shape[0] and not even.null_count and not values.null_count:
            return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(shape)
    raise RowsError(
        f"path={group.path!r}: {what} of column={column!r} does not hold {shape[0]} lists of "
        f"{shape[1]} numbers; its lists differ in length or have gaps, or the file has changed."
    )
