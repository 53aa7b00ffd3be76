"""Tables in Parquet, a file or a folder of parts; and the files of a folder."""

import os
import re
import warnings
from collections.abc import Iterable
from pathlib import Path

from ..encoders.cells import cells_of
from ..showing import by_numbers, listed
from .options import InputError
from .table import SHOWN, Cells, Columns, Table, fault_of, names_of

# What folders hold whose Parquet files are those of a table with a history.
_HISTORIES = {
    "Delta": "_delta_log/*",
    "Hudi": ".hoodie/*",
    "Iceberg": "metadata/*.metadata.json*",
    "Paimon": "snapshot/snapshot-*",
}


def parquet_of(path: Path, columns: Columns) -> Table:
    """One file of Parquet, or all those of a folder."""
    files = [path]
    if path.is_dir():
        names = files_of(path, (".parquet",), ("_", "."), "Parquet files")
        files = [path / name for name in names]
    _check_history(path, files)
    parts = [_part(file, columns) for file in files]
    whole: Cells = {name: [] for part in parts for name in part}
    for part in parts:
        length = len(next(iter(part.values()), ()))
        for column, cells in whole.items():
            cells += part.get(column, [None] * length)
    return Table(path, whole)


def _part(file: Path, columns: Columns) -> Cells:
    """Columns of one file."""
    import pyarrow
    from pyarrow import parquet

    reason = fault_of(file)
    if reason is not None:
        raise InputError(f"{file}: {reason}.")
    with parquet.ParquetFile(file) as opened:
        table = opened.read()
    types, own = pyarrow.types, Cells()
    for name, field, column in zip(
        names_of(file, table.column_names), table.schema, table.columns, strict=True
    ):
        # Periods lie there as numbers; whoever knows them not reads numbers.
        kind = re.search(r"pandas\.\w+", f"{field.type} {field.metadata}")
        if kind and name in (*columns.contents, *columns.named):
            raise InputError(
                f"{file}: the column {name!r} is of type {kind[0]}; convert it before it is "
                "written (astype(str))."
            )
        # Arrays take a fourth of the memory of lists.
        floats = types.is_list(field.type) and types.is_floating(field.type.value_type)
        own[name] = list(column.to_numpy()) if floats else cells_of(column)
    return own


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


def files_of(
    path: Path, endings: Iterable[str], hidden: str | tuple[str, ...], what: str
) -> list[Path]:
    """Names of the files of a folder, and of those in it, with such endings; others are told.

    They are ordered by numbers, lie behind links too, and begin as nothing ``hidden`` does.
    """

    def refuse(error: OSError) -> None:
        raise error

    names = list[Path]()
    for place, folders, files in os.walk(path, onerror=refuse, followlinks=True):
        folder = Path(place)
        if any(folder.resolve().is_relative_to((folder / name).resolve()) for name in folders):
            raise InputError(f"{path}: a link in it leads to a folder above itself; leave it out.")
        names += [(folder / name).relative_to(path) for name in files]
    names.sort(key=lambda name: by_numbers(str(name)))
    shown = [name for name in names if not any(part.startswith(hidden) for part in name.parts)]
    kept = [name for name in shown if name.suffix.lower() in endings]
    if not kept:
        raise InputError(f"{path}: there are no {what} in it (pictures need --image).")
    if ignored := [name for name in names if name not in {*kept}]:
        warnings.warn(
            f"{path}: {len(ignored)} files are hidden or no {what}, and left out: "
            f"{listed(ignored, SHOWN)}.",
            stacklevel=3,
        )
    return kept
