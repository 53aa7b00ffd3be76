"""Files and folders read whole, as columns of cells in the types of the file.

Every row comes out, or an error names its number; no error quotes a cell.
"""

import csv
import io
import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from .._cached import cached_property
from ..encoders import TableEncoder
from ..encoders.cells import cells_of
from ..encoders.images import check_colours, pixels_of
from ..encoders.tables import spelled
from ..pointers import unfetched
from ..text import by_numbers, listed, one_line, trimmed
from .options import InputError

#: Cells by the names of their columns, which are all of one length.
Cells: TypeAlias = dict[str, list[Any]]
#: Formats of pictures, by their content; others of Pillow's run programs, or only look like one.
PICTURES = (
    *("AVIF", "BMP", "DIB", "GIF", "ICO", "JPEG", "JPEG2000", "MPO", "PCX", "PNG", "PPM", "QOI"),
    *("TGA", "TIFF", "WEBP"),
)
# What folders hold whose Parquet files are those of a table with a history.
_HISTORIES = {
    "Delta": "_delta_log/*",
    "Hudi": ".hoodie/*",
    "Iceberg": "metadata/*.metadata.json*",
    "Paimon": "snapshot/snapshot-*",
}
#: Rows or files that a message names.
SHOWN = 5
# What a folder of a partition is called where its column lacks a value.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_BREAK = re.compile("\r\n|\r|\n")
# Folders that divide records, and are no classes.
_SPLIT = re.compile(r"(?<![a-z])(train|test|val|eval|dev|fold|split)", re.IGNORECASE)


@dataclass(frozen=True)
class Columns:
    """Which columns of a file hold what: texts, images, embeddings, or those declared."""

    text: str | None = None
    image: str | None = None
    embedding: str | None = None
    label: str | None = None
    owner: str | None = None
    table: TableEncoder | None = None

    @cached_property
    def kind(self) -> str:
        """What the records are."""
        kinds = "text", "image", "embedding", "table"
        return next(name for name in kinds if getattr(self, name) is not None)

    @cached_property
    def content(self) -> str:
        """The column of the records; of a table what no column is called."""
        return " table" if self.table is not None else name_of(getattr(self, self.kind))

    @cached_property
    def contents(self) -> list[str]:
        """All columns of the records that are known by name."""
        return [self.content] if self.table is None else [*map(name_of, self.table.columns)]

    @cached_property
    def named(self) -> list[str]:
        """Columns of labels and owners, as far as they are named."""
        return [name_of(name) for name in (self.label, self.owner) if name is not None]


@dataclass(frozen=True)
class Table:
    """A file or folder, read whole."""

    path: Path
    cells: Cells
    separator: str = ","  # what separates its cells
    marked: bool = False  # whether it begins with a byte order mark

    def __len__(self) -> int:
        return len(next(iter(self.cells.values()), ()))


@dataclass(frozen=True)
class Picture:
    """An image file, opened when it is embedded; errors tell its ``place``, no private name."""

    file: Path
    place: str = field(compare=False)

    def check(self) -> None:
        """Raise an InputError unless the beginning of the file is that of a picture."""
        self._opened(check_colours)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.uint8]:
        return self._opened(pixels_of)

    def _opened(self, use: Callable[[Any], Any]) -> Any:
        formats = {*_formats().values()}
        from PIL import Image

        try:
            reason = _fault(self.file)
            if reason is None:
                with Image.open(self.file, formats=[*formats]) as image:
                    if image.format != "TIFF" or getattr(image, "n_frames", 1) == 1:
                        return use(image)
                reason = "it has pages"
        except Exception as error:
            # Readers of damaged pictures raise what they like.
            reason = str(error) if "eight bits" in str(error) else type(error).__name__
        raise InputError(f"{self.place}: no image that can be read ({reason}).")


def table_of(path: Path, columns: Columns) -> Table:
    """A file or a folder as columns; an InputError that quotes nothing of it."""
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder.")
    suffix = path.suffix.lower()
    reader: Callable[..., Table] | None = _folder if path.is_dir() else READERS.get(suffix)
    # What a pipe holds has no ending.
    if not suffix and (path.parts[1:2] == ("dev",) or not (path.is_file() or path.is_dir())):
        reader = _csv
    if suffix in (".xls", ".xlsx", ".xlsm", ".xlsb", ".ods"):
        raise InputError(f"{path}: spreadsheets are not read; save the sheet as CSV UTF-8.")
    if reader is None:
        raise InputError(f"{path}: {suffix or 'no ending'} is none of {', '.join(READERS)}.")
    try:
        fault = _fault(path) if path.is_file() or reader in (_npz, _parquet) else None
        if fault is None:
            return reader(path, columns)
        reason = f"{fault}."
    except InputError:
        raise
    except ImportError as error:
        reason = f"it is read by {error.name}; pip install {error.name}."
    except UnicodeError:
        reason = "it is no text in UTF-8; save it as UTF-8 (in Excel: CSV UTF-8)."
    except MemoryError:
        reason = "it does not fit into memory; fit rows of Parquet in Python (docs/rows)."
    except Exception as error:
        # The text of a parser may quote a record.
        reason = f"it cannot be read as {suffix or 'a folder'} ({type(error).__name__})."
    raise InputError(f"{path}: {reason}")


def _fault(file: Path) -> str | None:
    """Why a file is not opened; a pipe would wait for whoever writes it."""
    special = file.exists() and not file.is_file()
    return "it is a pipe, a folder or a device" if special else unfetched(file)


def name_of(text: Any) -> str:
    """The name of a column in one spelling and one line."""
    return re.sub(r"\s*[\r\n]+\s*", " ", trimmed(str(text)))


def _names(path: Path, cells: Iterable[Any]) -> list[str]:
    """Names of columns; of two columns of one name one would be lost."""
    names = [*map(name_of, cells)]
    places: dict[str, int] = {}
    for place, name in enumerate(names, 1):
        if places.setdefault(name, place) != place:
            raise InputError(
                f"{path}: columns {places[name]} and {place} have one name; rename one of them."
            )
    return names


def rows_in_words(numbers: Sequence[int]) -> str:
    """The numbers of some rows; the first is 1."""
    return f"row{'s' if len(numbers) > 1 else ''} {listed(numbers, SHOWN)}"


# -- tables ---------------------------------------------------------------------------------------


#: How files begin that are no text, what they are, and what to do.
_PACKED = {
    b"\x1f\x8b": ("a file of gzip", "unpack it"),
    b"BZh91AY&SY": ("a file of bzip2", "unpack it"),
    b"\xfd7zXZ\0": ("a file of xz", "unpack it"),
    b"PK\3\4": ("a ZIP archive or a spreadsheet", "unpack it, or save the sheet as CSV UTF-8"),
    b"PAR1\x15": ("Parquet", "give it the ending .parquet"),
}


def _text(path: Path) -> bytes:
    """What a file of text holds; an error if that is no text."""
    body = path.read_bytes()
    for start, (what, remedy) in _PACKED.items():
        if body.startswith(start):
            raise InputError(f"{path}: it is {what} under another name; {remedy}.")
    if b"\0" in body:
        raise UnicodeError
    return body


def _csv(path: Path, columns: Columns) -> Table:
    csv.field_size_limit(2**31 - 1)
    body = _text(path)
    if re.match(rb'(\xef\xbb\xbf)?"?sep=.?"?\s*[\r\n]', body, re.IGNORECASE):
        raise InputError(f"{path}: its first line is Excel's sep=, no names; leave it out.")

    def parsed(mark: str, strict: bool) -> Iterator[list[str]]:
        text = io.TextIOWrapper(io.BytesIO(body), encoding="utf-8-sig", newline="")
        return csv.reader(text, delimiter=mark, strict=strict)

    mark, rows = (
        "\t" if path.suffix.lower() == ".tsv" else _separator(path, parsed),
        list[list[str]](),
    )
    try:
        for row in parsed(mark, True):
            rows.append(row)
    except csv.Error:
        place = f"row {len(rows)}" if rows else "the first line"
        raise InputError(
            f"{path}: the quotes of {place} do not match; put them around whole cells, and write "
            "each one inside of a cell twice."
        ) from None
    names = _header(path, rows.pop(0) if rows else [])
    width = len(names)
    while width > 1 and rows and not rows[-1]:
        # Blank lines at the end hold no record.
        rows.pop()
    for number, row in enumerate(rows, 1):
        if width == 1:
            row += [] if row else [""]
        elif not row:
            raise InputError(f"{path}: row {number} is a blank line; leave it out.")
        elif trimmed(row[0]) == names[0] and [*map(name_of, row)][:width] == names:
            raise InputError(f"{path}: row {number} repeats the first line; leave it out.")
        if not _fits(row, width):
            amount = "more" if len(row) > width else "fewer"
            raise InputError(f"{path}: row {number} has {amount} fields than its first line.")
    _tell_breaks(path, rows, mark)
    cells = map(list, zip(*rows, strict=False)) if rows else ([] for _ in names)
    return Table(
        path, dict(zip(names, cells, strict=False)), mark, body.startswith(b"\xef\xbb\xbf")
    )


def _fits(row: list[str], width: int) -> bool:
    """Whether a row is as wide as the names; blank cells at its end are those of a spreadsheet."""
    return len(row) >= width and not any(map(str.strip, row[width:]))


def _named(cells: list[str]) -> list[str]:
    """A first line without blank cells at its end."""
    while cells and not trimmed(cells[-1]):
        cells.pop()
    return cells


def _separator(path: Path, parsed: Callable[[str, bool], Iterator[list[str]]]) -> str:
    """A comma, or a semicolon as many spreadsheets write: what makes all rows as wide as the names.

    If both do it is the one that makes more columns, and if none does the one that fits more rows.
    """
    widths = {mark: len(_named(next(parsed(mark, False), []))) for mark in ",;"}
    marks = [mark for mark, width in widths.items() if width > 1] or [*widths]
    if len(marks) == 1:
        return marks[0]
    found = dict[str, tuple[bool, int]]()
    for mark, width in widths.items():
        fits = list[bool]()
        try:
            fits.extend(not row or _fits(row, width) for row in parsed(mark, True))
        except csv.Error:
            fits.append(False)
        found[mark] = all(fits), width if all(fits) else sum(fits)
    if found[","] == found[";"] and found[","][0] and widths[","] > 1:
        raise InputError(
            f"{path}: commas part all rows into {widths[',']} cells, and so do semicolons; put "
            "quotes around names and cells that hold one of them."
        )
    return max(found, key=found.__getitem__)


def _header(path: Path, cells: list[str]) -> list[str]:
    """Names of the columns of a CSV."""
    cells = _named(cells)
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


def _tell_breaks(path: Path, rows: list[list[str]], mark: str) -> None:
    """Warn of quoted cells of several lines: quotes that are part of texts join all between two."""
    broken = [row for row in rows if any(map(_BREAK.search, row))]
    alike = 0
    for row in broken:
        # Marks in other quoted cells part no fields.
        cells = (cell if _BREAK.search(cell) else cell.replace(mark, "") for cell in row)
        lines = _BREAK.split(mark.join(cells))
        alike += len(row) > 1 and all(line.count(mark) == len(row) - 1 for line in lines)
    if broken:
        warnings.warn(
            f"{path}: cells of {len(broken):,} records hold line breaks, of {len(rows):,}; in "
            f"{alike:,} of these each line could be a record. Quotes that are part of a text must "
            "be written twice, or they join records.",
            stacklevel=3,
        )


def _jsonl(path: Path, columns: Columns) -> Table:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return dict(zip(_names(path, [k for k, _ in pairs]), [v for _, v in pairs], strict=True))

    rows, blank = list[dict[str, Any]](), 0
    with io.TextIOWrapper(io.BytesIO(_text(path)), encoding="utf-8-sig") as file:
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
            rows.append(row)
    names = dict.fromkeys(chain.from_iterable(rows))
    return Table(path, {name: [row.get(name) for row in rows] for name in names})


def _npz(path: Path, columns: Columns) -> Table:
    arrays = dict[str, NDArray[Any]]()
    with np.load(path, allow_pickle=False) as file:
        for name, key in zip(_names(path, file.files), file.files, strict=True):
            try:
                arrays[name] = file[key]
            except ValueError as error:
                if "allow_pickle" not in str(error):
                    raise
                raise InputError(
                    f"{path}: its array {one_line(name, 60)!r} holds Python objects, which are not "
                    "loaded; save texts as such (y.astype(str))."
                ) from None
    arrays = {name: array for name, array in arrays.items() if array.ndim > 0}
    if len({*map(len, arrays.values())}) > 1:
        lengths = ", ".join(f"{one_line(name, 60)} {len(a):,}" for name, a in arrays.items())
        raise InputError(
            f"{path}: its arrays differ in length ({lengths}); save those with one entry for each "
            "record alone."
        )
    # Numbers become Python's, of which each has one text; days would become numbers.
    plain = {n: a.ndim == 1 and a.dtype.kind in "biufSU" for n, a in arrays.items()}
    return Table(path, {n: cells_of(a) if plain[n] else list(a) for n, a in arrays.items()})


def _parquet(path: Path, columns: Columns) -> Table:
    _check_history(path, [path])
    return Table(path, _part(path, {}, columns))


def _part(file: Path, beside: dict[str, str | None], columns: Columns) -> Cells:
    """Columns of one file of Parquet, and those that the names of its folders give."""
    import pyarrow
    from pyarrow import parquet

    fault = _fault(file)
    if fault is not None:
        raise InputError(f"{file}: {fault}.")
    with parquet.ParquetFile(file) as opened:
        table = opened.read()
    types = pyarrow.types
    values = [
        # Arrays take a fourth of the memory of lists.
        list(column.to_numpy())
        if types.is_list(column.type) and types.is_floating(column.type.value_type)
        else cells_of(column)
        for column in table.columns
    ]
    own = {name_of(name): cells for name, cells in zip(table.column_names, values, strict=True)}
    for name in beside.keys() & own.keys():
        _check_agrees(file, name, own[name], beside.pop(name))
    names = _names(file, [*table.column_names, *beside])
    for name, column in zip(names, table.schema, strict=False):
        # Periods lie there as numbers; whoever knows them not reads numbers.
        kind = (column.metadata or {}).get(b"ARROW:extension:name", b"").decode()
        kind = getattr(column.type, "extension_name", kind)
        if kind.startswith("pandas.") and name in (*columns.contents, *columns.named):
            raise InputError(
                f"{file}: the column {name!r} is of type {kind}; convert it before it is written "
                "(astype(str))."
            )
    values += [[value] * table.num_rows for value in beside.values()]
    return dict(zip(names, values, strict=True))


def _check_agrees(file: Path, name: str, cells: Iterable[Any], value: str | None) -> None:
    """Raise an InputError unless a column holds what the name of its folder says."""
    for number, cell in enumerate(cells, 1):
        lacks = cell is None or (cell != cell) is True
        if lacks or value is None:
            agrees = lacks and value is None
        else:
            agrees = value == str(cell) or spelled(value) == spelled(cell)
        if not agrees:
            raise InputError(
                f"{file}: the folder says what {name} is, and row {number} holds something else in "
                "this column; correct one of them, or leave the column out."
            )


READERS: dict[str, Callable[[Path, Columns], Table]] = {
    ".csv": _csv,
    ".tsv": _csv,
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".parquet": _parquet,
    ".npz": _npz,
}


# -- folders --------------------------------------------------------------------------------------


def _folder(path: Path, columns: Columns) -> Table:
    """A folder of Parquet files, or of images that has a folder for each class."""
    files = _files(path)
    tables = [file for file in files if file.suffix.lower() == ".parquet"]
    if not tables and columns.image is None:
        raise InputError(f"{path}: a folder without .parquet files holds images; use --image file.")
    if not tables and columns.owner is not None:
        raise InputError(f"{path}: a folder of images names no owners; use a table with --image.")
    _check_history(path, tables)
    endings, hiding = {".parquet"} if tables else {*_formats()}, (".", "_") if tables else "."
    kept, ignored = list[Path](), list[Path]()
    for file in files:
        name = file.relative_to(path)
        hidden = any(part.startswith(hiding) for part in name.parts)
        readable = file.suffix.lower() in endings or (not tables and _is_picture(file))
        (kept if readable and not hidden else ignored).append(name)
    what = "Parquet files" if tables else "pictures"
    if not kept:
        raise InputError(f"{path}: no {what if tables else 'images'} in it.")
    if ignored:
        shown = listed(ignored, SHOWN)
        warnings.warn(
            f"{path}: {len(ignored)} files are hidden or no {what}, and left out: {shown}.",
            stacklevel=2,
        )
    keys = [_keys(name) for name in kept]
    if tables:
        parts = [_part(path / name, own, columns) for name, own in zip(kept, keys, strict=True)]
        lengths = [len(next(iter(part.values()), ())) for part in parts]
        whole: Cells = {name: [] for part in parts for name in part}
        for part, length in zip(parts, lengths, strict=True):
            for column, cells in whole.items():
                cells += part.get(column, [None] * length)
        return Table(path, whole)
    whole = {columns.content: [str(name) for name in kept]}
    if columns.label is not None:
        label = name_of(columns.label)
        if not all(label in own for own in keys):
            _check_levels(path, kept)
        levels = (name.parts[0] if len(name.parts) > 1 else None for name in kept)
        pairs = zip(keys, levels, strict=True)
        whole[label] = [own.get(label, level) for own, level in pairs]
    return Table(path, whole)


def _keys(name: Path) -> dict[str, str | None]:
    """What folders that are called ``label=pos`` say of a file."""
    parts = (part.partition("=") for part in name.parts[:-1])
    values = {name_of(key): unquote(value) for key, mark, value in parts if mark}
    return {key: None if value == _NO_VALUE else value for key, value in values.items()}


def _check_levels(path: Path, names: list[Path]) -> None:
    """Raise an InputError where folders of classes seem to lie one level below the first one."""
    below: dict[str, set[str]] = {}
    for name in names:
        if len(name.parts) > 1:
            below.setdefault(name.parts[0], set()).add(name.parts[1] if name.parts[2:] else "")
    inner = Counter(folder for folders in below.values() for folder in folders if folder)
    shared = [folder for folder, count in inner.items() if count > 1]
    divided = all(map(_SPLIT.search, below)) or len(below) == 1
    # The same two folders in each of several: one level is the classes, and nobody says which.
    unsure = len(shared) > 1 and not all(map(_SPLIT.search, inner))
    if inner and (divided or unsure):
        first, other = min(below), one_line(min(shared or inner), 60)
        outer = ", ".join(one_line(folder, 60) for folder in sorted(below)[:SHOWN])
        raise InputError(
            f"{path}: folders such as {other} lie in {outer}, which may be no classes; pass "
            f"the folder that holds one folder for each class, as {path / one_line(first, 60)}, or "
            "a table with --image."
        )


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

    return sorted(files, key=lambda file: by_numbers(str(file.relative_to(path))))


def _formats() -> dict[str, str]:
    """Formats of pictures that this Pillow reads, by the endings of their files."""
    try:
        from PIL import Image
    except ImportError:
        raise InputError("images are read by Pillow; pip install pillow.") from None
    endings = Image.registered_extensions().items()
    return {end: name for end, name in endings if name in PICTURES and name in Image.OPEN}


def _is_picture(file: Path) -> bool:
    try:
        Picture(file, "").check()
    except InputError:
        return False
    return True
