"""Files and folders read whole, as columns of cells in the types of the file.

Every row comes out, or an error names its number; no error quotes a cell.
"""

import csv
import io
import json
import os
import re
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ..encoders.cells import cells_of
from ..names import trimmed
from ..showing import by_numbers, listed, one_line
from .options import InputError
from .pictures import formats
from .table import BESIDE, SHOWN, Cells, Columns, Table, fault_of, name_of, names_of

_BREAK, _MARK = re.compile("\r\n|\r|\n"), "\ufeff"
# What folders hold whose Parquet files are those of a table with a history.
_HISTORIES = {
    "Delta": "_delta_log/*",
    "Hudi": ".hoodie/*",
    "Iceberg": "metadata/*.metadata.json*",
    "Paimon": "snapshot/snapshot-*",
}


def table_of(path: Path, columns: Columns) -> Table:
    """A file or a folder as columns; an InputError that quotes nothing of it."""
    suffix = path.suffix.lower()
    of_folder = _parquet if columns.image is None else _pictures
    reader: Callable[..., Table] | None = of_folder if path.is_dir() else READERS.get(suffix)
    # What a pipe holds has no ending.
    if not suffix and (path.parts[1:2] == ("dev",) or not (path.is_file() or path.is_dir())):
        reader = _csv
    if reader is None:
        raise InputError(
            f"{path}: {suffix or 'no ending'} is none of {', '.join(READERS)}; save the sheet of a "
            "spreadsheet as CSV UTF-8."
        )
    try:
        reason = fault_of(path) if path.is_file() or reader is _npz else None
        if reason is None:
            table = reader(path, columns)
            # Only of a file that is not refused.
            if table.note:
                warnings.warn(f"{path}: {table.note}", stacklevel=2)
            return table
    except InputError:
        raise
    except ImportError as error:
        reason = f"it is read by {error.name}; pip install {error.name}"
    except UnicodeError:
        reason = "it is no text in UTF-8; save it as such (a spreadsheet as CSV UTF-8), unpack it "
        reason += "if it is packed, or give Parquet the ending .parquet"
    except Exception as error:
        # The text of a parser may quote a record.
        reason = f"it cannot be read as {suffix or 'a folder'} ({type(error).__name__})"
        if str(error).startswith("Object arrays"):
            reason = "it holds Python objects, which are not loaded; save texts by y.astype(str)"
    raise InputError(f"{path}: {reason}.")


def _text(path: Path) -> str:
    """What a file of text holds, with its byte order mark; an error if that is no text."""
    body = path.read_bytes()
    if b"\0" in body:
        raise UnicodeError
    return body.decode()


def _csv(path: Path, columns: Columns) -> Table:
    csv.field_size_limit(2**31 - 1)
    text = _text(path)
    marks = "\t" if path.suffix.lower() == ".tsv" else ",;"
    mark, rows = _parsed(path, text.removeprefix(_MARK), marks)
    names = names_of(path, _named(rows.pop(0) if rows else []))
    # Of a file without names the first record would be lost; a wrong mark makes one column of all.
    if not names or (len(names) == 1 and re.match(r"[\[(]?[-+\d]|sep=|.*[;\t|]", names[0])):
        raise InputError(
            f"{path}: its first line must name the columns, separated by commas (in a .tsv by "
            "tabs); it holds no names, numbers, other marks or Excel's sep=."
        )
    width = len(names)
    while width > 1 and rows and not rows[-1]:
        # Blank lines at the end hold no record.
        rows.pop()
    for number, row in enumerate(rows, 1):
        if width == 1 and not row:
            row.append("")
        if not _fits(row, width):
            amount = "more fields" if len(row) > width else "fewer fields (a blank line has none)"
            raise InputError(f"{path}: row {number} has {amount} than its first line.")
        if width > 1 and trimmed(row[0]) == names[0] and [*map(name_of, row[:width])] == names:
            raise InputError(f"{path}: row {number} repeats the first line; leave it out.")
    broken = sum(any(map(_BREAK.search, row)) for row in rows)
    note = (
        f"cells of {broken:,} records hold line breaks, of {len(rows):,}. Quotes that are part of "
        "a text must be written twice, or they join records."
    )
    cells = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return Table(path, cells, mark, text.startswith(_MARK), note=note if broken else "")


def _parsed(path: Path, text: str, marks: str) -> tuple[str, list[list[str]]]:
    """The rows of a CSV, and the mark that makes all of them as wide as the names.

    If commas and semicolons both do, as many spreadsheets write these, it is the one that makes
    more columns, and if none does the one that fits more rows.
    """
    found = dict[str, tuple[tuple[bool, bool, int], list[list[str]], bool]]()
    for mark in marks:
        lines = io.StringIO(text, newline="")
        width = len(_named(next(csv.reader(lines, delimiter=mark), [])))
        lines.seek(0)
        rows, whole = list[list[str]](), False
        with suppress(csv.Error):
            rows.extend(csv.reader(lines, delimiter=mark, strict=True))
            whole = True
        fits = [not row or _fits(row, width) for row in rows]
        every = whole and all(fits)
        found[mark] = (width > 1, every, width if every else sum(fits)), rows, whole
    mark = max(found, key=lambda mark: found[mark][0])
    best, rows, whole = found[mark]
    if best[0] and best[1] and [own[0] for own in found.values()].count(best) > 1:
        raise InputError(
            f"{path}: commas part all rows into {best[2]} cells, and so do semicolons; put quotes "
            "around names and cells that hold one of them."
        )
    if not whole:
        place = f"row {len(rows)}" if rows else "the first line"
        raise InputError(
            f"{path}: the quotes of {place} do not match; put them around whole cells, and write "
            "each one inside of a cell twice."
        )
    return mark, rows


def _fits(row: list[str], width: int) -> bool:
    """Whether a row is as wide as the names; blank cells at its end are those of a spreadsheet."""
    return len(row) >= width and not any(map(str.strip, row[width:]))


def _named(cells: list[str]) -> list[str]:
    """A first line without blank cells at its end."""
    while cells and not trimmed(cells[-1]):
        cells.pop()
    return cells


def _jsonl(path: Path, columns: Columns) -> Table:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = names_of(f"{path}: line {number}", [name for name, _ in pairs])
        return dict(zip(names, [cell for _, cell in pairs], strict=True))

    rows = list[dict[str, Any]]()
    text = _text(path).removeprefix(_MARK).rstrip()
    for number, line in enumerate(_BREAK.split(text) if text else (), 1):
        try:
            row = json.loads(line, object_pairs_hook=once)
        except InputError:
            raise
        except ValueError:  # also of a number with more digits than Python reads
            row = None
        if not isinstance(row, dict):
            raise InputError(
                f"{path}: line {number} is no JSON object; leave it out if it is blank."
            )
        rows.append(row)
    names = dict.fromkeys(chain.from_iterable(rows))
    return Table(path, {name: [row.get(name) for row in rows] for name in names})


def _npz(path: Path, columns: Columns) -> Table:
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(zip(names_of(path, file.files), map(file.get, file.files), strict=True))
    beside = {name: arrays.pop(name) for name in [*arrays] if name.startswith(BESIDE)}
    arrays = {name: array for name, array in arrays.items() if array.ndim > 0}
    if len({*map(len, arrays.values())}) > 1:
        lengths = ", ".join(f"{one_line(name, 60)} {len(a):,}" for name, a in arrays.items())
        raise InputError(
            f"{path}: its arrays differ in length ({lengths}); save those with one entry for each "
            "record alone."
        )
    # Numbers become Python's, of which each has one text; days would become numbers.
    plain = {n: a.ndim == 1 and a.dtype.kind in "biufSU" for n, a in arrays.items()}
    cells = {n: cells_of(a) if plain[n] else list(a) for n, a in arrays.items()}
    return Table(path, cells, beside=beside)


def _parquet(path: Path, columns: Columns) -> Table:
    """One file of Parquet, or all those of a folder."""
    names, note = [Path()], ""
    if path.is_dir():
        names, note = _listed(path, (".parquet",), ("_", "."), "Parquet files")
    files = [path / name for name in names]
    _check_history(path, files)
    parts = [_part(file, columns) for file in files]
    whole: Cells = {name: [] for part in parts for name in part}
    for part in parts:
        length = len(next(iter(part.values()), ()))
        for column, cells in whole.items():
            cells += part.get(column, [None] * length)
    return Table(path, whole, note=note)


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


def _listed(
    path: Path, endings: Iterable[str], hidden: str | tuple[str, ...], what: str
) -> tuple[list[Path], str]:
    """Names of the files of a folder, and of those in it, with such endings; a note on others.

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
    ignored = [name for name in names if name not in {*kept}]
    note = f"{len(ignored)} files are hidden or no {what}, and left out: "
    note += f"{listed(ignored, SHOWN)}."
    return kept, note if ignored else ""


def _pictures(path: Path, columns: Columns) -> Table:
    """A folder of pictures, with a folder for each class."""
    if columns.owner is not None:
        raise InputError(f"{path}: a folder of images names no owners; use a table with --image.")
    names, note = _listed(path, formats(), ".", "pictures")
    whole: Cells = {columns.content: [str(name) for name in names]}
    if columns.label is not None:
        deep = next((name.parts[0] for name in names if len(name.parts) > 2), None)
        if deep is not None:
            raise InputError(
                f"{path}: folders lie in {one_line(deep, 60)}, and only the first level can be the "
                "classes: pass the folder that holds one folder for each, or a table with --image."
            )
        classes = [name.parts[0] if len(name.parts) > 1 else None for name in names]
        whole[name_of(columns.label)] = classes
    return Table(path, whole, note=note)


READERS: dict[str, Callable[[Path, Columns], Table]] = {
    **dict.fromkeys((".csv", ".tsv"), _csv),
    **dict.fromkeys((".jsonl", ".ndjson"), _jsonl),
    ".parquet": _parquet,
    ".npz": _npz,
}
