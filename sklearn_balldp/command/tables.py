"""Records of a file: texts, images or embeddings, with their labels and owners.

Nothing of a record is quoted in an error: rows are named by their number.
"""

import difflib
import json
import math
import re
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..text import one_line

Frame: TypeAlias = Any  # a pandas DataFrame
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
#: Readers of pandas by the ending of a file's name.
TABLES = (".csv", ".tsv", ".jsonl", ".parquet", ".xlsx", ".xls", ".ods")
#: Rows of a CSV that are labelled at a time.
_CHUNK = 2_000
_SHOWN = 5
_LONGEST_LABEL = 200


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
        return str(getattr(self, self.kind))


@dataclass(frozen=True)
class Records:
    """Records as a head or an encoder takes them.

    Attributes
    ----------
    X : list of str, list of ndarray, or ndarray of shape (n_records, n_features)
        Texts, images or embeddings.
    y, owners : ndarray of shape (n_records,) or None
        Labels, as texts, and owners.
    n_dropped, n_repeated : int
        How many lacked something, and how many have the content of an earlier one. Private counts.
    """

    X: Any
    y: NDArray[Any] | None
    owners: NDArray[Any] | None
    n_dropped: int = 0
    n_repeated: int = 0


def read(path: Path, columns: Columns, *, missing: str = "error") -> Records:
    """All records of a file.

    Parameters
    ----------
    path : pathlib.Path
        CSV, TSV, JSONL, Parquet (also a folder of parts), Excel, NPZ, or a folder of images that
        has a folder for each class.
    columns : Columns
        What they are called.
    missing : {"error", "drop"}
        What becomes of records without content, label or owner.

    Raises
    ------
    InputError
        If the file or a column cannot be read.
    """
    kind = columns.kind
    frame = frame_of(path, columns)
    named = (None if kind == "embedding" else columns.content, columns.label, columns.owner)
    texts: dict[str, list[str | None]] = {
        name: [_as_text(cell, path, name, i) for i, cell in enumerate(frame[name])]
        for name in named
        if name is not None
    }
    lacking = np.zeros(len(frame), dtype=bool)
    for name, cells in texts.items():
        own = np.array([cell is None for cell in cells], dtype=bool)
        lacking |= own
        if missing == "error" and own.any():
            raise InputError(f"{path}: no {name} in {_rows(own)}; see --missing drop.")
    rows = None
    if kind == "embedding":
        rows = _embeddings(frame, columns, path)
        odd: NDArray[np.bool_] = np.logical_not(np.isfinite(rows).all(axis=1))
        lacking |= odd
        if missing == "error" and odd.any():
            raise InputError(f"{path}: no finite embedding in {_rows(odd)}; see --missing drop.")
    kept = np.flatnonzero(~lacking)
    if not len(kept):
        raise InputError(f"{path}: no record is complete, or there is none.")
    labels, owners = (
        None if name is None else _labels([texts[name][i] for i in kept], path, name, kept)
        for name in (columns.label, columns.owner)
    )
    if rows is not None:
        X: Any = rows[kept]
        repeated = len(X) - len(np.unique(X, axis=0))
    else:
        contents = [str(texts[columns.content][i]) for i in kept]
        repeated = len(contents) - len(set(contents))
        X = contents
        if kind == "image":
            X = [image_of(path, name, i) for i, name in zip(kept.tolist(), contents, strict=True)]
    return Records(X, labels, owners, int(lacking.sum()), int(repeated))


def _as_text(cell: Any, path: Path, name: str, row: int) -> str | None:
    """A cell as text, whatever the other cells are; None if it is empty."""
    if cell is None or cell is pd.NA or cell is pd.NaT or (cell != cell) is True or cell == "":
        return None
    if isinstance(cell, str):
        if not cell.isascii() and any(0xD800 <= ord(c) < 0xE000 for c in cell):
            raise InputError(f"{path}: the {name} in row {row + 1} is no valid Unicode.")
        return cell if cell.strip() else None
    if isinstance(cell, (bool, int, float, np.bool_, np.integer, np.floating)):
        if isinstance(cell, (float, np.floating)) and np.isnan(cell):
            return None
        return str(cell)
    raise InputError(f"{path}: the {name} in row {row + 1} is neither text nor number.")


def _labels(cells: list[Any], path: Path, name: str, rows: NDArray[Any]) -> NDArray[np.str_]:
    """Labels or owners. A long one is refused: it would make every entry of the array as long."""
    for row, cell in zip(rows.tolist(), cells, strict=True):
        if len(cell) > _LONGEST_LABEL:
            raise InputError(
                f"{path}: the {name} in row {row + 1} has more than {_LONGEST_LABEL} characters; "
                "name the column of the classes."
            )
    return np.array(cells, dtype=str)


def frame_of(path: Path, columns: Columns) -> Frame:
    """The table of a file, with the columns that were asked for."""
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder.")
    if path.is_dir() and not any(path.glob("*.parquet")):
        return _image_folder(path, columns)
    frame = _npz(path) if path.suffix.lower() == ".npz" else _table(path)
    _check_columns(frame, path, columns)
    return frame


def names_of(path: Path) -> list[str]:
    """Names of the columns of a file; of a CSV its first line is read alone."""
    if path.is_file() and path.suffix.lower() in (".csv", ".tsv"):
        with _reading(path):
            return [str(name) for name in _csv(path, nrows=0).columns]
    if not path.exists() or path.is_dir():
        return []
    frame = _npz(path) if path.suffix.lower() == ".npz" else _table(path)
    return [str(name) for name in frame.columns]


def _check_columns(frame: Frame, path: Path, columns: Columns) -> None:
    """Raise an InputError unless the columns that were asked for are there, once each."""
    if not isinstance(frame.index, pd.RangeIndex):
        raise InputError(f"{path}: its rows have more fields than its first line.")
    own = [columns.content, columns.label, columns.owner]
    if len({name for name in own if name is not None}) < sum(name is not None for name in own):
        raise InputError(f"{path}: one column cannot serve as two; name another for each option.")
    for name in own:
        prefixed = name == columns.embedding and bool(_prefixed(frame, columns))
        if name is not None and name not in frame and not prefixed:
            raise InputError(f"{path}: no column {name!r}{_hint(frame, name)}.")
        if name is not None and name in frame and getattr(frame[name], "ndim", 1) != 1:
            raise InputError(f"{path}: two columns are called {name!r}.")


def _hint(frame: Frame, name: str) -> str:
    """A column of nearly that name. Others are not shown: a file without a header has records."""
    found = difflib.get_close_matches(name, map(str, frame.columns), 1, 0.7)
    if found:
        return f"; did you mean {one_line(found[0], 60)!r}?"
    many = len(frame.columns) == 1 and any(mark in str(frame.columns[0]) for mark in ";\t|")
    separated = ", which are separated by commas" if many else ""
    return f" among its {len(frame.columns)}{separated}; the first line must name them"


def parts_of_table(path: Path, columns: Columns) -> Iterator[Frame]:
    """A table in parts: a CSV a few thousand rows at a time."""
    if path.suffix.lower() in (".csv", ".tsv") and path.is_file():
        with _reading(path), _csv(path, chunksize=_CHUNK) as parts:
            for part in parts:
                _check_columns(part, path, columns)
                yield part
    else:
        yield frame_of(path, columns)


def contents_of(frame: Frame, path: Path, columns: Columns) -> Any:
    """Records of a part of a table, to label them; what is missing is an empty text."""
    if columns.embedding is not None:
        rows = _embeddings(frame, columns, path)
        if not np.isfinite(rows).all():
            raise InputError(f"{path}: an embedding is not finite; leave such rows out.")
        return rows
    cells = [
        _as_text(cell, path, columns.content, i) or ""
        for i, cell in zip(frame.index, frame[columns.content], strict=True)
    ]
    if columns.text is not None:
        return cells
    return [image_of(path, name, i) for i, name in zip(frame.index, cells, strict=True)]


def image_of(path: Path, name: str, row: int) -> NDArray[np.uint8]:
    """An image file, beside the table that names it; its three colours."""
    from ..encoders import pixels_of

    try:
        from PIL import Image
    except ImportError:
        raise InputError("images are read by Pillow; pip install pillow.") from None
    try:
        own = Path(name)
        if not own.is_absolute():
            own = (path if path.is_dir() else path.parent) / own
        with Image.open(own) as image:
            return pixels_of(image)
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        # The name may be private, as is all that a cell holds.
        reason = str(error) if "eight bits" in str(error) else type(error).__name__
        raise InputError(
            f"{path}: no image that can be read in row {row + 1} ({reason})."
        ) from None


def _rows(lacking: NDArray[np.bool_]) -> str:
    """The numbers of some rows; the first is 1."""
    places = np.flatnonzero(lacking)
    shown = ", ".join(str(i + 1) for i in places[:_SHOWN])
    more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    return f"row{'s' if len(places) > 1 else ''} {shown}{more}"


class _reading:
    """Errors of a reader, as one line that quotes nothing of the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, ImportError):
            missing = getattr(error, "name", None) or "a package"
            needed = (
                "pyarrow" if self.path.suffix == ".parquet" or self.path.is_dir() else "openpyxl"
            )
            known = missing if missing != "a package" else needed
            raise InputError(f"{self.path}: it is read by {known}; pip install {known}.") from None
        if isinstance(error, UnicodeError):
            raise InputError(
                f"{self.path}: it is not UTF-8; save it as UTF-8 (in Excel: CSV UTF-8)."
            ) from None
        refused = (ValueError, OSError, KeyError, TypeError, EOFError, zipfile.BadZipFile)
        if isinstance(error, refused) and not isinstance(error, InputError):
            # The text of a parser may quote a record.
            raise InputError(
                f"{self.path}: it cannot be read as {self.path.suffix or 'a folder'} "
                f"({type(error).__name__})."
            ) from None


def _csv(path: Path, **options: Any) -> Any:
    separator = "\t" if path.suffix.lower() == ".tsv" else _separator(path)
    # Texts stay texts: "NA", "null" and "007" are values, and only an empty cell is missing.
    given = {"dtype": str, "keep_default_na": False, "na_values": [""], "encoding": "utf-8-sig"}
    return pd.read_csv(path, sep=separator, **given, **options)


def _separator(path: Path) -> str:
    """The separator of a CSV, by its first line: many spreadsheets write semicolons."""
    with path.open("rb") as file:
        first = file.readline(2**20)
    names = re.sub(rb'"[^"]*"', b"", first)
    return ";" if names.count(b";") > names.count(b",") else ","


def _table(path: Path) -> Frame:
    suffix = path.suffix.lower()
    if path.is_file() and suffix not in TABLES:
        raise InputError(
            f"{path}: {suffix or 'no ending'} is none of {', '.join(TABLES)} and .npz."
        )
    with _reading(path), warnings.catch_warnings():
        # Readers warn of the styles of a sheet, and of types that are not guessed here.
        warnings.simplefilter("ignore")
        if path.is_dir() or suffix == ".parquet":
            return _parquet(path)
        if suffix in (".csv", ".tsv"):
            return _csv(path)
        if suffix == ".jsonl":
            return _jsonl(path)
        return pd.read_excel(path, keep_default_na=False, na_values=[""], dtype=object)


def _parquet(path: Path) -> Frame:
    """Cells as they are: pandas would turn whole numbers into fractions where one is missing."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path)
    names = table.column_names
    if len(set(names)) < len(names):
        raise InputError(f"{path}: two of its columns have one name.")
    cells = {name: table.column(name) for name in names}
    return pd.DataFrame(
        {
            name: column.to_numpy()
            if str(column.type) in ("double", "float", "halffloat")
            else pd.Series(column.to_pylist(), dtype=object)
            for name, column in cells.items()
        }
    )


def _jsonl(path: Path) -> Frame:
    """A line for each record; a cell is read from its own value alone."""
    records = []
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if not isinstance(record, dict):
                raise InputError(f"{path}: line {number} is no JSON object.")
            records.append(record)
    names = list(dict.fromkeys(name for record in records for name in record))
    return pd.DataFrame(
        {name: pd.Series([own.get(name) for own in records], dtype=object) for name in names}
    )


def _npz(path: Path) -> Frame:
    """Arrays of an npz file: rows of a matrix become lists in cells."""
    with _reading(path), np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files if file[name].ndim > 0}
    lengths = {len(array) for array in arrays.values()}
    if len(lengths) > 1:
        raise InputError(f"{path}: its arrays differ in length.")
    return pd.DataFrame(
        {name: pd.Series(list(array), dtype=object) for name, array in arrays.items()}
    )


def _image_folder(path: Path, columns: Columns) -> Frame:
    """Images of a folder that has a folder for each class."""
    if columns.image is None:
        raise InputError(f"{path}: a folder without .parquet files holds images; use --image file.")
    files = sorted(
        file
        for file in path.rglob("*")
        if file.suffix.lower() in IMAGES
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    )
    if not files:
        raise InputError(f"{path}: no images in it ({', '.join(IMAGES)}).")
    names = [str(file.relative_to(path)) for file in files]
    frame = pd.DataFrame({columns.image: names})
    if columns.label is not None:
        frame[columns.label] = [
            Path(name).parts[0] if len(Path(name).parts) > 1 else None for name in names
        ]
    if columns.owner is not None:
        raise InputError(f"{path}: a folder of images names no owners; use a table with --image.")
    return frame


def _prefixed(frame: Frame, columns: Columns) -> list[str]:
    """Columns called PREFIX0, PREFIX1 and so on, in the order of the numbers."""
    prefix, taken = str(columns.embedding), (columns.label, columns.owner)
    if columns.embedding is None:
        return []
    found = [str(c) for c in frame.columns if str(c).startswith(prefix) and c not in taken]
    numbers = {c: c[len(prefix) :].lstrip("_-") for c in found}
    own = {c: int(number) for c, number in numbers.items() if number.isdecimal()}
    return sorted(own, key=own.__getitem__)


def _embeddings(frame: Frame, columns: Columns, path: Path) -> NDArray[np.float64]:
    """Rows of numbers: of numbered columns, or of lists in cells; NaN where a cell is empty."""
    name = str(columns.embedding)
    if name not in frame:
        own = _prefixed(frame, columns)
        numbers = [int(c[len(name) :].lstrip("_-")) for c in own]
        if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise InputError(f"{path}: numbers of the columns {name}... are left out or repeated.")
        table = frame[own]
        if all(dtype.kind == "f" for dtype in table.dtypes):
            return table.to_numpy(dtype=np.float64)
        found = [_float(cell) for cell in table.to_numpy(dtype=object).ravel()]
        return np.array(found, dtype=np.float64).reshape(len(frame), len(own))
    cells = [_numbers(cell, path, i) for i, cell in enumerate(frame[name])]
    widths = {len(cell) for cell in cells if cell is not None}
    if len(widths) != 1:
        raise InputError(f"{path}: the cells of {name!r} are no lists of one length.")
    empty = np.full(widths.pop(), np.nan)
    return np.stack([empty if cell is None else cell for cell in cells])


def _float(cell: Any) -> float:
    """One number, NaN if it is none."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return math.nan


def _numbers(cell: Any, path: Path, row: int) -> NDArray[np.float64] | None:
    """A list of numbers, or its text; None where the cell is empty."""
    if cell is None or (isinstance(cell, str) and not cell.strip()) or cell is pd.NA:
        return None
    if isinstance(cell, str):
        cell = re.sub(r"[\[\](),]", " ", cell.replace("np.float64", " ")).split()
    if isinstance(cell, float) and math.isnan(cell):
        return None
    try:
        numbers = np.asarray(cell)
        if numbers.ndim == 1 and len(numbers) and numbers.dtype.kind in "iufU":
            return numbers.astype(np.float64)
    except (TypeError, ValueError):
        pass
    raise InputError(f"{path}: the cell in row {row + 1} is no list of real numbers.")
