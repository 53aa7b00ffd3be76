"""Records of a file: texts, images or embeddings, with their labels and owners.

A file is an iterator of rows, mappings of columns to cells, and is read once. A cell is read from
its own value alone. Every row comes out, or an error names its number; no error quotes a cell.
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
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, islice
from numbers import Real
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from ..encoders import check_colours, pixels_of
from ..text import appearance, one_line, spelling, trimmed

Row: TypeAlias = dict[str, Any]
#: Formats of pictures, by their content; others of Pillow's run programs, or only look like one.
PICTURES = (
    *("AVIF", "BMP", "DIB", "GIF", "ICO", "JPEG", "JPEG2000", "MPO", "PCX", "PNG", "PPM", "QOI"),
    *("TGA", "TIFF", "WEBP"),
)
#: Rows that are read, and labelled, at a time.
_PART = 2_000
_SHOWN = 5
_LONGEST_LABEL = 200
# Spellings of a missing number, and types of cells that can be numbers.
_NOTHING = {"", "na", "n/a", "nan", "null", "none"}
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_OF_NUMBERS = {str, int, float, Decimal, type(None)}


class InputError(ValueError):
    """What is wrong with a file, in one line."""


@dataclass(frozen=True)
class Columns:
    """Which columns of a file hold what; exactly one of the first three is named."""

    text: str | None = None
    image: str | None = None
    embedding: str | None = None
    label: str | None = None
    owner: str | None = None

    @property
    def kind(self) -> str:
        """What the records are."""
        found = [name for name in ("text", "image", "embedding") if getattr(self, name) is not None]
        if len(found) != 1:
            raise InputError("name one of --text, --image and --embedding.")
        return found[0]

    @property
    def content(self) -> str:
        """The column of the records."""
        return trimmed(getattr(self, self.kind))

    @property
    def named(self) -> list[str]:
        """Columns of labels and owners, as far as they are named."""
        return [trimmed(name) for name in (self.label, self.owner) if name is not None]

    def of_contents(self, row: Row, path: Path) -> list[str]:
        """Columns of the records, by the first row of a file; an error if one is not there."""
        if len({self.content, *self.named}) <= len(self.named):
            raise InputError(
                f"{path}: one column cannot serve as two; name another for each option."
            )
        columns = [self.content]
        if self.kind == "embedding" and self.content not in row:
            ends = {name: name.removeprefix(self.content).lstrip("_-") for name in row}
            numbers = {
                name: int(end)
                for name, end in ends.items()
                if end.isdecimal() and name.startswith(self.content) and name not in self.named
            }
            columns = sorted(numbers, key=numbers.__getitem__) or columns
            places = sorted(numbers.values())
            if places != list(range(places[0], places[0] + len(places)) if places else []):
                raise InputError(
                    f"{path}: numbers of the columns {self.content}... are left out or repeated."
                )
        for name in [*columns, *self.named]:
            if name not in row:
                raise InputError(f"{path}: no column {name!r}{_hint(row, name)}.")
        return columns


def _hint(row: Row, name: str) -> str:
    """A column of nearly that name. Others are not shown: a file without a header has records."""
    near = difflib.get_close_matches(name, row, 1, 0.7)
    if near:
        return f"; did you mean {one_line(near[0], 60)!r}?"
    return f" among its {len(row)}; the first line must name them"


@dataclass(frozen=True)
class Records:
    """Records as a head or an encoder takes them.

    Attributes
    ----------
    X : list of str, list of Picture, or ndarray of shape (n_records, n_features)
        Texts, images or embeddings.
    y, owners : ndarray of shape (n_records,) or None
        Labels and owners, each in one spelling.
    n_dropped, n_repeated : int
        How many lacked something, and how many have the content of an earlier one. Private counts.
    n_respelled : int
        How many write their label in another way than the first of their class. A private count.
    """

    X: Any
    y: NDArray[Any] | None
    owners: NDArray[Any] | None
    n_dropped: int = 0
    n_repeated: int = 0
    n_respelled: int = 0


@dataclass(frozen=True)
class Picture:
    """An image file, which is opened when it is embedded.

    Attributes
    ----------
    file : pathlib.Path
        The file.
    place : str
        What an error calls it, as its name may be private.
    """

    file: Path
    place: str

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
                return use(image)
        except Exception as error:
            # Readers of damaged pictures raise what they like.
            reason = str(error) if "eight bits" in str(error) else type(error).__name__
            raise InputError(f"{self.place}: no image that can be read ({reason}).") from None


def read(path: Path, columns: Columns, *, missing: str = "error") -> Records:
    """All records of a file.

    Parameters
    ----------
    path : pathlib.Path
        CSV, TSV, JSONL, NPZ, Parquet (also a folder of parts), or a folder of images that has a
        folder for each class.
    columns : Columns
        What they are called.
    missing : {"error", "drop"}
        What becomes of records without content, label or owner.

    Raises
    ------
    InputError
        If the file, a row or a column cannot be read.
    """
    lacking: dict[str, list[int]] = {name: [] for name in (columns.content, *columns.named)}
    kept: dict[str, list[Any]] = {name: [] for name in lacking}
    seen, rows, count = set[Any](), list[int](), 0
    for part, contents in _parts(path, columns):
        for row, content in zip(part, contents, strict=True):
            count += 1
            cells = {columns.content: content}
            for name in columns.named:
                cells[name] = _text(row.get(name), path, name, count)
                if len(cells[name] or "") > _LONGEST_LABEL:
                    raise InputError(
                        f"{path}: the {name} in row {count} has more than {_LONGEST_LABEL} "
                        "characters; name the column of the classes."
                    )
            absent = [name for name, cell in cells.items() if cell is None]
            for name in absent:
                lacking[name].append(count)
            if not absent:
                rows.append(count)
                seen.add(content.tobytes() if isinstance(content, np.ndarray) else content)
                for name, cell in cells.items():
                    kept[name].append(cell)
    incomplete = [(own[0], name, own) for name, own in lacking.items() if own]
    if incomplete and missing == "error":
        _, name, own = min(incomplete)
        finite = "finite " if columns.kind == "embedding" and name == columns.content else ""
        raise InputError(f"{path}: no {finite}{name} in {_rows(own)}; see --missing drop.")
    if not rows:
        raise InputError(f"{path}: no record is complete, or there is none.")
    X = kept[columns.content]
    labels, owners, respelled = None, None, 0
    if columns.label is not None:
        names = kept[trimmed(columns.label)]
        labels = np.array([spelling(name) for name in names])
        first: dict[str, str] = {}
        respelled = sum(
            first.setdefault(label, name) != name
            for label, name in zip(labels.tolist(), names, strict=True)
        )
    if columns.owner is not None:
        owners = _owners(kept[trimmed(columns.owner)], rows, path, columns.owner)
    return Records(
        np.stack(X) if columns.kind == "embedding" else X,
        labels,
        owners,
        count - len(rows),
        len(rows) - len(seen),
        respelled,
    )


def _owners(names: list[str], rows: list[int], path: Path, column: str) -> NDArray[np.str_]:
    """Owners in one spelling; those who look alike are told by their rows."""
    owners = [spelling(name, zeros=True) for name in names]
    first = dict(zip(reversed(owners), reversed(rows), strict=True))
    alike: dict[str, list[int]] = {}
    for owner, row in sorted(first.items(), key=lambda pair: pair[1]):
        alike.setdefault(appearance(owner), []).append(row)
    several = [found for found in alike.values() if len(found) > 1]
    if several:
        warnings.warn(
            f"{path}: {sum(map(len, several))} owners in {column} differ from another by case, "
            f"blanks or forms of letters alone, the first in {_rows(several[0])}. Write them alike "
            "if they are one person: each counts as an owner.",
            stacklevel=3,
        )
    return np.array(owners)


def parts_of_file(
    path: Path, columns: Columns, *, alone: bool = False
) -> Iterator[tuple[list[Row], list[Any]]]:
    """Rows of a file and their contents, some thousands at a time; a missing text is empty.

    ``alone`` says that a column of another name is meant if it is the only one.
    """
    count = 0
    for part, contents in _parts(path, columns, alone=alone):
        own = [count + i for i, content in enumerate(contents, 1) if content is None]
        if own and columns.text is None:
            raise InputError(
                f"{path}: no finite {columns.kind} in {_rows(own)}; leave such rows out."
            )
        count += len(part)
        yield part, ["" if content is None else content for content in contents]


def _parts(
    path: Path, columns: Columns, *, alone: bool = False
) -> Iterator[tuple[list[Row], list[Any]]]:
    """The same, with None for what is missing."""
    rows, count, width = rows_of(path, columns), 0, None
    while part := list(islice(rows, _PART)):
        if not count:
            if alone and len(part[0]) == 1 and columns.content not in part[0]:
                columns = Columns(**{columns.kind: next(iter(part[0]))})
                if columns.content not in ("text", "image", "embedding"):
                    warnings.warn(
                        f"{path}: its first line names the only column, and is no record.",
                        stacklevel=3,
                    )
            names = columns.of_contents(part[0], path)
        contents: list[Any] = []
        for row in part:
            count += 1
            if columns.kind == "embedding":
                content: Any = _numbers(row, names, path, count)
                if content is not None:
                    width = width or len(content)
                    if len(content) != width:
                        raise InputError(
                            f"{path}: {columns.content} in row {count} holds more or fewer numbers "
                            "than above; the cells are no lists of one length."
                        )
                    content = content if np.isfinite(content).all() else None
            else:
                content = _text(row.get(names[0]), path, names[0], count)
            if columns.kind == "image" and content is not None:
                own = path if path.is_dir() else path.parent
                # Of a folder the owner must find the file.
                place = one_line(content, 200) if path.is_dir() else f"row {count}"
                content = Picture(own / content, f"{path}: {place}")
                content.check()
            contents.append(content)
        yield part, contents


# Files as rows


def rows_of(path: Path, columns: Columns) -> Iterator[Row]:
    """Rows of a file or folder, one by one."""
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder.")
    suffix = path.suffix.lower()
    if path.is_dir():
        rows = _folder(path, columns)
    elif suffix in READERS or (not suffix and not path.is_file()) or path.parts[1:2] == ("dev",):
        # What a pipe holds has no ending.
        rows = READERS.get(suffix, _csv)(path)
    elif suffix in (".xls", ".xlsx", ".xlsm", ".xlsb", ".ods"):
        raise InputError(f"{path}: spreadsheets are not read; save the sheet as CSV UTF-8.")
    else:
        raise InputError(f"{path}: {suffix or 'no ending'} is none of {', '.join(READERS)}.")
    with _reading(path):
        yield from rows


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(2**31 - 1)
    with path.open(encoding="utf-8-sig", newline="") as file:
        # Many spreadsheets write semicolons.
        first = file.readline()
        bare = re.sub(r'"[^"]*"', "", first)
        mark = ";" if bare.count(";") > bare.count(",") else ","
        mark = "\t" if path.suffix.lower() == ".tsv" else mark
        lines = csv.reader(chain([first], file), delimiter=mark, strict=True)
        number, blank, names = 0, 0, list[str]()
        while True:
            try:
                cells = next(lines, None)
            except csv.Error:
                place = f"row {number}" if number else "the first line"
                raise InputError(
                    f"{path}: the quotes of {place} do not match; put them around whole cells, and "
                    "write each one inside of a cell twice."
                ) from None
            if not number:
                names, number = _header(path, cells or []), 1
                continue
            if cells is None:
                return
            if not cells and len(names) > 1:
                # Blank lines at the end hold no record.
                blank, number = blank or number, number + 1
                continue
            cells = cells or [""]
            if blank:
                raise InputError(f"{path}: row {blank} is a blank line; leave it out.")
            if len(cells) < len(names) or any(map(str.strip, cells[len(names) :])):
                found = "more" if len(cells) > len(names) else "fewer"
                raise InputError(f"{path}: row {number} has {found} fields than its first line.")
            if len(names) > 1 and [trimmed(cell) for cell in cells[: len(names)]] == names:
                raise InputError(f"{path}: row {number} repeats the first line; leave it out.")
            yield dict(zip(names, cells, strict=False))
            number += 1


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


def _names(path: Path, names: list[Any]) -> list[str]:
    """Names of columns in one spelling; of two columns of one name one would be lost."""
    found = [trimmed(str(name)) for name in names]
    places: dict[str, int] = {}
    for place, name in enumerate(found, 1):
        if places.setdefault(name, place) != place:
            raise InputError(
                f"{path}: columns {places[name]} and {place} have one name; rename one of them."
            )
    return found


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
        names = [name for name in file.files if file[name].ndim > 0]
        arrays = dict(zip(_names(path, names), (file[name] for name in names), strict=True))
    if len({len(array) for array in arrays.values()}) > 1:
        raise InputError(f"{path}: its arrays differ in length.")
    for cells in zip(*arrays.values(), strict=True):
        # Numbers become Python's, of which each has one text.
        own = (cell.item() if isinstance(cell, np.generic) else cell for cell in cells)
        yield dict(zip(arrays, own, strict=True))


def _parquet(path: Path, beside: Row | None = None) -> Iterator[Row]:
    """Rows of one file, and the columns that the names of its folders give."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as table:
        names = _names(path, [*table.schema_arrow.names, *(beside or {})])
        for batch in table.iter_batches(_PART):
            columns = (column.to_pylist() for column in batch.columns)
            for cells in zip(*columns, strict=True):
                yield dict(zip(names, [*cells, *(beside or {}).values()], strict=True))


READERS = {
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
    left_out, count = list[Path](), 0
    if not tables and columns.image is None:
        raise InputError(f"{path}: a folder without .parquet files holds images; use --image file.")
    if not tables and columns.owner is not None:
        raise InputError(f"{path}: a folder of images names no owners; use a table with --image.")
    endings = set() if tables else _endings()
    for file in files:
        name = file.relative_to(path)
        hidden = any(part.startswith((".", "_") if tables else ".") for part in name.parts)
        if tables and file.suffix.lower() == ".parquet" and not hidden:
            keys = (part.partition("=") for part in name.parts[:-1])
            beside = {key: unquote(value) for key, mark, value in keys if mark}
            yield from _parquet(file, {k: None if v == _NO_VALUE else v for k, v in beside.items()})
        elif hidden or tables or not (file.suffix.lower() in endings or _is_picture(file)):
            left_out.append(name)
            continue
        else:
            row: Row = {columns.content: str(name)}
            if columns.label is not None:
                own = name.parts[0] if len(name.parts) > 1 else None
                key, _, value = (own or "").partition("=")
                row[trimmed(columns.label)] = unquote(value) if key == columns.label else own
            yield row
        count += 1
    what = "Parquet files" if tables else "pictures"
    if not count:
        raise InputError(f"{path}: no {what.replace('pictures', 'images')} in it.")
    if left_out:
        shown = ", ".join(one_line(name, 60) for name in left_out[:_SHOWN])
        more = f" and {len(left_out) - _SHOWN} more" if len(left_out) > _SHOWN else ""
        warnings.warn(
            f"{path}: {len(left_out)} files are hidden or no {what}, and left out: {shown}{more}.",
            stacklevel=2,
        )


def _files(path: Path) -> list[Path]:
    """Files of a folder and of those in it, also behind links; numbers in names count as such."""

    def refuse(error: OSError) -> None:
        raise error

    found = []
    for folder, folders, names in os.walk(path, onerror=refuse, followlinks=True):
        own = Path(folder)
        if any(own.resolve().is_relative_to((own / name).resolve()) for name in folders):
            raise InputError(f"{path}: a link in it leads to a folder above itself; leave it out.")
        found += [own / name for name in names]
    digits = re.compile(r"(\d+)")
    # Of the parts of a split every second one is a number.
    return sorted(
        found,
        key=lambda file: [
            [int(part) if i % 2 else part for i, part in enumerate(digits.split(name))]
            for name in file.relative_to(path).parts
        ],
    )


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
    known = set(_formats())
    from PIL import Image

    return {ending for ending, name in Image.registered_extensions().items() if name in known}


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
    except InputError:
        raise
    except ImportError as error:
        raise InputError(f"{path}: it is read by {error.name}; pip install {error.name}.") from None
    except UnicodeError:
        raise InputError(
            f"{path}: it is not UTF-8; save it as UTF-8 (in Excel: CSV UTF-8)."
        ) from None
    except (ValueError, OSError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        # The text of a parser may quote a record.
        kind = type(error).__name__
        raise InputError(
            f"{path}: it cannot be read as {path.suffix or 'a folder'} ({kind})."
        ) from None


# Cells


def _rows(numbers: list[int]) -> str:
    """The numbers of some rows; the first is 1."""
    shown = ", ".join(map(str, numbers[:_SHOWN]))
    more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    return f"row{'s' if len(numbers) > 1 else ''} {shown}{more}"


def _text(cell: Any, path: Path, name: str, row: int) -> str | None:
    """A cell as text, whatever the other cells are; None if nothing of it is seen."""
    if cell is None or (cell != cell) is True:
        return None
    if isinstance(cell, (str, bytes)):
        try:
            text = cell.decode() if isinstance(cell, bytes) else cell
            text.encode()
        except UnicodeError:
            raise InputError(f"{path}: the {name} in row {row} is no valid Unicode.") from None
        return text if trimmed(text) else None
    if isinstance(cell, (Real, Decimal, np.bool_)):
        return str(cell)
    raise InputError(f"{path}: the {name} in row {row} is neither text nor number.")


def cell_of(cell: Any, path: Path, name: str, row: int) -> str:
    """A cell as a CSV holds it."""
    if isinstance(cell, np.ndarray):
        cell = cell.tolist()
    if isinstance(cell, (list, dict)):
        return json.dumps(cell, ensure_ascii=False, default=str)
    if isinstance(cell, str) and cell.isascii():
        return cell
    known = isinstance(cell, (str, bytes)) or cell is None or (cell != cell) is True
    return (_text(cell, path, name, row) or "") if known else str(cell)


def _numbers(row: Row, names: list[str], path: Path, number: int) -> NDArray[np.float64] | None:
    """Numbers of one record: a list, its text, or a cell each; NaN or None where they lack."""
    cells: Any = [row.get(name) for name in names]
    if len(names) == 1:
        cells = cells[0]
        if cells is None or (cells != cells) is True:
            return None
        if isinstance(cells, str):
            text = re.sub(r"np\.float\d+\(([^()]*)\)", r"\1", cells).strip()
            inner = re.fullmatch(r"\[(.*)\]|\((.*)\)", text, re.DOTALL)
            text = (inner[1] or inner[2] or "").strip() if inner else text
            if not inner and text.lower() in _NOTHING:
                return None
            marks = re.findall(r"\s*,\s*|\s+", text)
            kinds = {("," in mark, mark != "," and "," in mark) for mark in marks}
            if len(kinds) > 1:
                raise InputError(
                    f"{path}: {names[0]} in row {number} mixes separators, as decimal commas do: "
                    "write decimal points, and blanks or commas between numbers."
                )
            cells = re.split(r"\s*,\s*|\s+", text)
    array = _as_numbers(cells)
    if array is not None:
        return array
    if len(names) > 1:
        raise InputError(f"{path}: a cell of {names[0]}... in row {number} is no number.")
    raise InputError(f"{path}: the cell in row {number} is no list of real numbers ({names[0]}).")


def _as_numbers(cells: Any) -> NDArray[np.float64] | None:
    """Numbers of a list or an array, NaN for those that lack; None if something is no number."""
    if isinstance(cells, np.ndarray):
        return cells.astype(np.float64) if cells.ndim == 1 and cells.dtype.kind in "iuf" else None
    if not isinstance(cells, list) or not cells or not {*map(type, cells)} <= _OF_NUMBERS:
        return None
    texts = [cell for cell in cells if isinstance(cell, str)]
    # A number has underscores in Python alone.
    if "_" in "".join(texts):
        return None
    if any(text.strip().lower() in _NOTHING for text in texts):
        cells = [None if str(cell).strip().lower() in _NOTHING else cell for cell in cells]
    try:
        return np.array(cells, dtype=np.float64)
    except (ValueError, OverflowError):
        return None
