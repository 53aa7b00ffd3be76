"""Tables in Parquet: a file, or a folder of parts, whose names may say what a column holds."""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ..encoders.cells import cells_of
from ..encoders.tables import spelled
from ..showing import by_numbers, listed
from .options import InputError
from .table import SHOWN, Cells, Columns, Table, fault_of, name_of, names_of

# What folders hold whose Parquet files are those of a table with a history.
_HISTORIES = {
    "Delta": "_delta_log/*",
    "Hudi": ".hoodie/*",
    "Iceberg": "metadata/*.metadata.json*",
    "Paimon": "snapshot/snapshot-*",
}
# What a folder of a partition is called where its column lacks a value.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def parquet_of(path: Path, columns: Columns) -> Table:
    """One file of Parquet."""
    _check_history(path, [path])
    return Table(path, _part(path, {}, columns))


def _part(file: Path, beside: dict[str, str | None], columns: Columns) -> Cells:
    """Columns of one file of Parquet, and those that the names of its folders give."""
    import pyarrow
    from pyarrow import parquet

    reason = fault_of(file)
    if reason is not None:
        raise InputError(f"{file}: {reason}.")
    with parquet.ParquetFile(file) as opened:
        table = opened.read()
    types, own = pyarrow.types, Cells()
    for name, column in zip(names_of(file, table.column_names), table.columns, strict=True):
        # Arrays take a fourth of the memory of lists.
        floats = types.is_list(column.type) and types.is_floating(column.type.value_type)
        own[name] = list(column.to_numpy()) if floats else cells_of(column)
    for name, column in zip(own, table.schema, strict=True):
        # Periods lie there as numbers; whoever knows them not reads numbers.
        kind = (column.metadata or {}).get(b"ARROW:extension:name", b"").decode()
        kind = getattr(column.type, "extension_name", kind)
        if kind.startswith("pandas.") and name in (*columns.contents, *columns.named):
            raise InputError(
                f"{file}: the column {name!r} is of type {kind}; convert it before it is written "
                "(astype(str))."
            )
    for name, value in beside.items():
        cells = own.setdefault(name, [value] * table.num_rows)
        odd = [number for number, cell in enumerate(cells, 1) if not _agrees(cell, value)]
        if odd:
            raise InputError(
                f"{file}: the folder says what {name} is, and row {odd[0]} holds something else in "
                "this column; correct one of them, or leave the column out."
            )
    return own


def _agrees(cell: Any, value: str | None) -> bool:
    """Whether a column holds what the name of its folder says."""
    if value is None or cell is None or (cell != cell) is True:
        return value is None and (cell is None or (cell != cell) is True)
    return value == str(cell) or spelled(value) == spelled(cell)


def folder_of(path: Path, columns: Columns) -> Table:
    """A folder of Parquet files."""
    files = files_of(path)

    def is_part(name: Path) -> bool:
        return name.suffix.lower() == ".parquet"

    _check_history(path, [path / name for name in files if is_part(name)])
    names = chosen(path, files, is_part, ("_", "."), "Parquet files")
    parts = [_part(path / name, keys_of(name), columns) for name in names]
    whole: Cells = {name: [] for part in parts for name in part}
    for part in parts:
        length = len(next(iter(part.values()), ()))
        for column, cells in whole.items():
            cells += part.get(column, [None] * length)
    return Table(path, whole)


def chosen(
    path: Path,
    names: list[Path],
    fits: Callable[[Path], bool],
    hidden: str | tuple[str, ...],
    what: str,
) -> list[Path]:
    """Names of the files of a folder that are not hidden, and fit; others are told."""
    shown = [name for name in names if not any(part.startswith(hidden) for part in name.parts)]
    kept = [name for name in shown if fits(name)]
    ignored = [name for name in names if name not in set(kept)]
    if not kept:
        raise InputError(f"{path}: there are no {what} in it (pictures need --image).")
    if ignored:
        warnings.warn(
            f"{path}: {len(ignored)} files are hidden or no {what}, and left out: "
            f"{listed(ignored, SHOWN)}.",
            stacklevel=3,
        )
    return kept


def keys_of(name: Path) -> dict[str, str | None]:
    """What folders that are called ``label=pos`` say of a file."""
    parts = (part.partition("=") for part in name.parts[:-1])
    values = {name_of(key): unquote(value) for key, mark, value in parts if mark}
    return {key: None if value == _NO_VALUE else value for key, value in values.items()}


def _check_history(path: Path, tables: list[Path]) -> None:
    """Raise an InputError for Parquet files of a table that keeps deleted rows."""
    places = {place(file) for file in tables for place in (os.path.abspath, os.path.realpath)}
    for folder in sorted({folder for place in places for folder in Path(place).parents}):
        for kind, mark in _HISTORIES.items():
            if next(folder.glob(mark), None) is not None:
                raise InputError(
                    f"{path} lies in {str(folder)!r}, a table of {kind}, whose files keep rows "
                    "that were deleted; export those it has now to a folder elsewhere."
                )


def files_of(path: Path) -> list[Path]:
    """Names of the files of a folder and of those in it, also behind links, ordered by numbers."""

    def refuse(error: OSError) -> None:
        raise error

    names = []
    for place, folders, files in os.walk(path, onerror=refuse, followlinks=True):
        folder = Path(place)
        if any(folder.resolve().is_relative_to((folder / name).resolve()) for name in folders):
            raise InputError(f"{path}: a link in it leads to a folder above itself; leave it out.")
        names += [(folder / name).relative_to(path) for name in files]
    return sorted(names, key=lambda name: by_numbers(str(name)))
