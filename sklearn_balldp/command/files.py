"""Files and folders as rows: mappings of columns to cells, read once and one by one.

Every row comes out, or an error names its number; no error quotes a cell.
"""

import csv
import difflib
import json
import os
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from ..encoders import check_colours, pixels_of
from ..rows import history_of
from ..text import one_line, trimmed
from .options import InputError

Row: TypeAlias = dict[str, Any]
#: Formats of pictures, by their content; others of Pillow's run programs, or only look like one.
PICTURES = (
    *("AVIF", "BMP", "DIB", "GIF", "ICO", "JPEG", "JPEG2000", "MPO", "PCX", "PNG", "PPM", "QOI"),
    *("TGA", "TIFF", "WEBP"),
)
#: Rows that are read, and labelled, at a time.
PART = 2_000
#: Rows or files that a message names.
SHOWN = 5
# What a folder of a partition is called where its column lacks a value.
_NO_VALUE = "__HIVE_DEFAULTPARTITION__"


@dataclass(frozen=True)
class Columns:
    """Which columns of a file hold what; exactly one of the first three is named."""

    text: str | None = None
    image: str | None = None
    embedding: str | None = None
    label: str | None = None
    owner: str | None = None

    @cached_property
    def kind(self) -> str:
        """What the records are."""
        kinds = [name for name in ("text", "image", "embedding") if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise InputError("name one of --text, --image and --embedding.")
        return kinds[0]

    @cached_property
    def content(self) -> str:
        """The column of the records."""
        return trimmed(getattr(self, self.kind))

    @cached_property
    def named(self) -> list[str]:
        """Columns of labels and owners, as far as they are named."""
        return [trimmed(name) for name in (self.label, self.owner) if name is not None]

    def of_contents(self, row: Row, path: Path) -> list[str]:
        """Columns of the records, by the first row of a file; an error if one is not there."""
        content, columns = self.content, [self.content]
        if len({content, *self.named}) <= len(self.named):
            raise InputError(
                f"{path}: one column cannot serve as two; name another for each option."
            )
        if self.kind == "embedding" and content not in row:
            others = [name for name in row if name.startswith(content) and name not in self.named]
            ends = [(name.removeprefix(content).lstrip("_-"), name) for name in others]
            numbers = sorted((int(end), name) for end, name in ends if end.isdecimal())
            columns = [name for _, name in numbers] or columns
            if any(number != numbers[0][0] + i for i, (number, _) in enumerate(numbers)):
                raise InputError(
                    f"{path}: numbers of the columns {content}... are left out or repeated."
                )
        for name in [*columns, *self.named]:
            if name not in row:
                # Others are not shown: a file without a header has records there.
                near = difflib.get_close_matches(name, row, 1, 0.7)
                hint = f" among its {len(row)}; the first line must name them"
                hint = f"; did you mean {one_line(near[0], 60)!r}?" if near else hint
                raise InputError(f"{path}: no column {name!r}{hint}.")
        return columns


@dataclass(frozen=True)
class Picture:
    """An image file, which is opened when it is embedded.

    Errors call it by its ``place``, as its name may be private.
    """

    file: Path
    place: str = field(compare=False)

    def check(self) -> None:
        """Raise an InputError unless the beginning of the file is that of a picture."""
        self._opened(check_colours)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.uint8]:
        return self._opened(pixels_of)

    def _opened(self, use: Callable[[Any], Any]) -> Any:
        formats = _formats()
        from PIL import Image

        try:
            with Image.open(self.file, formats=formats) as image:
                if image.format == "TIFF" and getattr(image, "n_frames", 1) > 1:
                    raise InputError(f"{self.place}: no image that can be read (it has pages).")
                return use(image)
        except InputError:
            raise
        except Exception as error:
            # Readers of damaged pictures raise what they like.
            reason = str(error) if "eight bits" in str(error) else type(error).__name__
            raise InputError(f"{self.place}: no image that can be read ({reason}).") from None


@dataclass
class Layout:
    """How a file is written, noted while it is read: a pipe is read once."""

    #: What separates its cells, and whether it begins with a byte order mark.
    separator: str = ","
    marked: bool = False
    #: Columns of embeddings: of numbers for a machine, and many of them.
    embeddings: tuple[str, ...] = ()


def rows_of(path: Path, columns: Columns, layout: Layout) -> Iterator[Row]:
    """Rows of a file or folder, one by one."""
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder.")
    suffix = path.suffix.lower()
    if path.is_dir():
        rows = _folder(path, columns)
    elif suffix in READERS or (not suffix and not path.is_file()) or path.parts[1:2] == ("dev",):
        if suffix == ".parquet":
            _check_history(path, [path])
        # What a pipe holds has no ending.
        reader = READERS.get(suffix, _csv)
        rows = _csv(path, layout) if reader is _csv else reader(path)
    elif suffix in (".xls", ".xlsx", ".xlsm", ".xlsb", ".ods"):
        raise InputError(f"{path}: spreadsheets are not read; save the sheet as CSV UTF-8.")
    else:
        raise InputError(f"{path}: {suffix or 'no ending'} is none of {', '.join(READERS)}.")
    with _reading(path):
        yield from rows


def _csv(path: Path, layout: Layout) -> Iterator[Row]:
    csv.field_size_limit(2**31 - 1)
    with path.open(encoding="utf-8", newline="") as file:
        first = file.readline()
        layout.marked = first.startswith("\ufeff")
        first = first.removeprefix("\ufeff")
        # Many spreadsheets write semicolons.
        bare = re.sub(r'"[^"]*"', "", first)
        mark = ";" if bare.count(";") > bare.count(",") else ","
        mark = "\t" if path.suffix.lower() == ".tsv" else mark
        layout.separator = mark
        lines = csv.reader(chain([first], file), delimiter=mark, strict=True)
        names = _header(path, _cells(path, lines, 0) or [])
        number, blank = 1, 0
        while (cells := _cells(path, lines, number)) is not None:
            if not cells and len(names) > 1:
                # Blank lines at the end hold no record.
                blank, number = blank or number, number + 1
                continue
            cells = cells or [""]
            if blank:
                raise InputError(f"{path}: row {blank} is a blank line; leave it out.")
            if len(cells) < len(names) or any(map(str.strip, cells[len(names) :])):
                amount = "more" if len(cells) > len(names) else "fewer"
                raise InputError(f"{path}: row {number} has {amount} fields than its first line.")
            again = len(names) > 1 and trimmed(cells[0]) == names[0]
            if again and [*map(trimmed, cells)][: len(names)] == names:
                raise InputError(f"{path}: row {number} repeats the first line; leave it out.")
            yield dict(zip(names, cells, strict=False))
            number += 1


def _cells(path: Path, lines: Iterator[list[str]], number: int) -> list[str] | None:
    """The next row; None behind the last."""
    try:
        return next(lines, None)
    except csv.Error:
        place = f"row {number}" if number else "the first line"
        raise InputError(
            f"{path}: the quotes of {place} do not match; put them around whole cells, and "
            "write each one inside of a cell twice."
        ) from None


def _header(path: Path, cells: list[str]) -> list[str]:
    """Names of the columns of a CSV; blank ones at the end are those of a spreadsheet."""
    while cells and not trimmed(cells[-1]):
        cells.pop()
    names = _names(path, cells)
    # Of a file without names the first record would be lost.
    if not names or (len(names) == 1 and re.fullmatch(r"[\[(]?[-+\d].*", names[0])):
        raise InputError(
            f"{path}: its first line must name the columns, and holds none or numbers."
        )
    if len(names) == 1 and re.search(r"[;\t|]", names[0]):
        raise InputError(
            f"{path}: the first line must name the columns, which are separated by commas (by tabs "
            "in a .tsv)."
        )
    return names


def _names(path: Path, cells: list[Any]) -> list[str]:
    """Names of columns in one spelling; of two columns of one name one would be lost."""
    names = [trimmed(str(cell)) for cell in cells]
    places: dict[str, int] = {}
    for place, name in enumerate(names, 1):
        if places.setdefault(name, place) != place:
            raise InputError(
                f"{path}: columns {places[name]} and {place} have one name; rename one of them."
            )
    return names


def _jsonl(path: Path) -> Iterator[Row]:
    def once(pairs: list[tuple[str, Any]]) -> Row:
        return dict(zip(_names(path, [k for k, _ in pairs]), [v for _, v in pairs], strict=True))

    blank = 0
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                blank = blank or number
                continue
            if blank:
                raise InputError(f"{path}: line {blank} is blank; leave it out.")
            try:
                row = json.loads(line, object_pairs_hook=once)
            except InputError as error:
                raise InputError(f"{error} (line {number})") from None
            except ValueError:
                row = None
            if not isinstance(row, dict):
                raise InputError(f"{path}: line {number} is no JSON object.")
            yield row


def _npz(path: Path) -> Iterator[Row]:
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(zip(_names(path, file.files), map(file.get, file.files), strict=True))
    arrays = {name: array for name, array in arrays.items() if array.ndim > 0}
    if len({len(array) for array in arrays.values()}) > 1:
        raise InputError(f"{path}: its arrays differ in length.")
    for cells in zip(*arrays.values(), strict=True):
        # Numbers become Python's, of which each has one text.
        plain = (cell.item() if isinstance(cell, np.generic) else cell for cell in cells)
        yield dict(zip(arrays, plain, strict=True))


def _parquet(path: Path, beside: Row | None = None) -> Iterator[Row]:
    """Rows of one file, and the columns that the names of its folders give."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as table:
        names = _names(path, [*table.schema_arrow.names, *(beside or {})])
        for batch in table.iter_batches(PART):
            columns = (column.to_pylist() for column in batch.columns)
            for cells in zip(*columns, strict=True):
                yield dict(zip(names, [*cells, *(beside or {}).values()], strict=True))


READERS: dict[str, Callable[..., Iterator[Row]]] = {
    ".csv": _csv,
    ".tsv": _csv,
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".parquet": _parquet,
    ".npz": _npz,
}


def _folder(path: Path, columns: Columns) -> Iterator[Row]:
    """Rows of a folder of Parquet files, or images of a folder that has a folder for each class."""
    files = _files(path)
    tables = [file for file in files if file.suffix.lower() == ".parquet"]
    if not tables and columns.image is None:
        raise InputError(f"{path}: a folder without .parquet files holds images; use --image file.")
    if not tables and columns.owner is not None:
        raise InputError(f"{path}: a folder of images names no owners; use a table with --image.")
    _check_history(path, tables)
    endings, hiding = {".parquet"} if tables else _endings(), (".", "_") if tables else "."
    ignored, count = list[Path](), 0
    for file in files:
        name = file.relative_to(path)
        readable = file.suffix.lower() in endings or (not tables and _is_picture(file))
        if any(part.startswith(hiding) for part in name.parts) or not readable:
            ignored.append(name)
            continue
        count += 1
        if tables:
            keys = (part.partition("=") for part in name.parts[:-1])
            beside = {key: unquote(value) for key, mark, value in keys if mark}
            yield from _parquet(file, {k: None if v == _NO_VALUE else v for k, v in beside.items()})
            continue
        row: Row = {columns.content: str(name)}
        if columns.label is not None:
            label = name.parts[0] if len(name.parts) > 1 else None
            key, _, value = (label or "").partition("=")
            row[trimmed(columns.label)] = unquote(value) if key == columns.label else label
        yield row
    if not count:
        raise InputError(f"{path}: no {'Parquet files' if tables else 'images'} in it.")
    if ignored:
        what = "Parquet files" if tables else "pictures"
        shown = ", ".join(one_line(name, 60) for name in ignored[:SHOWN])
        more = f" and {len(ignored) - SHOWN} more" if len(ignored) > SHOWN else ""
        warnings.warn(
            f"{path}: {len(ignored)} files are hidden or no {what}, and left out: {shown}{more}.",
            stacklevel=2,
        )


def _check_history(path: Path, tables: list[Path]) -> None:
    history = history_of(tables)
    if history is not None:
        raise InputError(f"{path} {history}")


def _files(path: Path) -> list[Path]:
    """Files of a folder and of those in it, also behind links; numbers in names count as such."""

    def refuse(error: OSError) -> None:
        raise error

    files = []
    for place, folders, names in os.walk(path, onerror=refuse, followlinks=True):
        folder = Path(place)
        if any(folder.resolve().is_relative_to((folder / name).resolve()) for name in folders):
            raise InputError(f"{path}: a link in it leads to a folder above itself; leave it out.")
        files += [folder / name for name in names]

    def by_numbers(file: Path) -> list[list[Any]]:
        # Of the parts of a split every second one is a number.
        splits = (re.split(r"(\d+)", name) for name in file.relative_to(path).parts)
        return [[int(part) if i % 2 else part for i, part in enumerate(s)] for s in splits]

    return sorted(files, key=by_numbers)


def _formats() -> list[str]:
    """Formats of pictures that this Pillow reads."""
    try:
        from PIL import Image
    except ImportError:
        raise InputError("images are read by Pillow; pip install pillow.") from None
    Image.init()
    return [name for name in PICTURES if name in Image.OPEN]


def _endings() -> set[str]:
    """Endings of the names of such files."""
    formats = _formats()
    from PIL import Image

    return {ending for ending, name in Image.registered_extensions().items() if name in formats}


def _is_picture(file: Path) -> bool:
    try:
        Picture(file, "").check()
    except InputError:
        return False
    return True


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Errors of a reader, as one line that quotes nothing of the file."""
    try:
        yield
        return
    except InputError:
        raise
    except ImportError as error:
        reason = f"it is read by {error.name}; pip install {error.name}."
    except UnicodeError:
        reason = "it is not UTF-8; save it as UTF-8 (in Excel: CSV UTF-8)."
    except (ValueError, OSError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        # The text of a parser may quote a record.
        kind = type(error).__name__
        reason = f"it cannot be read as {path.suffix or 'a folder'} ({kind})."
    raise InputError(f"{path}: {reason}") from None
