"""Records of a file: texts, images or embeddings, with their labels and owners.

Nothing of a record is quoted in an error: rows are named by their number.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Frame: TypeAlias = Any  # a pandas DataFrame
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
#: Readers of pandas by the ending of a file's name.
TABLES = (".csv", ".tsv", ".jsonl", ".parquet", ".xlsx", ".xls", ".ods")
#: Rows of a CSV that are labelled at a time.
_CHUNK = 2_000
_SHOWN = 5


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
    lacking = np.zeros(len(frame), dtype=bool)
    for name in filter(
        None, (None if columns.embedding else columns.content, columns.label, columns.owner)
    ):
        own = frame[name].isna() | (frame[name].astype(str).str.strip() == "")
        lacking |= own.to_numpy()
        if missing == "error" and own.any():
            raise InputError(f"{path}: no {name} in {_rows(own.to_numpy())}; see --missing drop.")
    rows = None
    if kind == "embedding":
        rows = _embeddings(frame, columns.embedding or "", path)
        odd: NDArray[np.bool_] = np.logical_not(np.isfinite(rows).all(axis=1))
        lacking |= odd
        if missing == "error" and odd.any():
            raise InputError(f"{path}: no finite embedding in {_rows(odd)}; see --missing drop.")
    kept = np.flatnonzero(~lacking)
    if not len(kept):
        raise InputError(f"{path}: no record is complete.")
    frame = frame.iloc[kept]
    if rows is not None:
        X: Any = rows[kept]
        repeated = len(X) - len(np.unique(X, axis=0))
    else:
        contents = frame[columns.content].astype(str).tolist()
        repeated = len(contents) - len(set(contents))
        X = contents if kind == "text" else [image_of(path, name) for name in contents]
    y, owners = (
        None if name is None else frame[name].map(_label).to_numpy(dtype=str)
        for name in (columns.label, columns.owner)
    )
    return Records(X, y, owners, int(lacking.sum()), int(repeated))


def frame_of(path: Path, columns: Columns) -> Frame:
    """The table of a file, with the columns that were asked for."""
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder.")
    if path.is_dir() and not any(path.glob("*.parquet")):
        return _image_folder(path, columns)
    frame = _npz(path, columns) if path.suffix.lower() == ".npz" else _table(path)
    for name in (columns.content, columns.label, columns.owner):
        prefixed = name == columns.embedding and bool(_prefixed(frame, str(name)))
        if name is not None and name not in frame and not prefixed:
            known = ", ".join(map(str, frame.columns[:20]))
            raise InputError(f"{path}: no column {name!r}; it has {known}.")
    return frame


def parts_of_table(path: Path, columns: Columns) -> Iterator[Frame]:
    """A table in parts: a CSV a few thousand rows at a time."""
    if path.suffix.lower() in (".csv", ".tsv") and path.is_file():
        with _reading(path), _csv(path, chunksize=_CHUNK) as parts:
            for part in parts:
                if columns.content not in part and not _prefixed(part, columns.content):
                    frame_of(path, columns)
                yield part
    else:
        yield frame_of(path, columns)


def contents_of(frame: Frame, path: Path, columns: Columns) -> Any:
    """Records of a part of a table, to label them; what is missing is an empty text."""
    if columns.embedding is not None:
        rows = _embeddings(frame, columns.embedding, path)
        if not np.isfinite(rows).all():
            raise InputError(f"{path}: an embedding is not finite; leave such rows out.")
        return rows
    contents = frame[columns.content].fillna("").astype(str).tolist()
    return contents if columns.text is not None else [image_of(path, name) for name in contents]


def image_of(path: Path, name: str) -> NDArray[np.uint8]:
    """An image file, beside the table that names it; its three colours."""
    from ..encoders import pixels_of

    try:
        from PIL import Image
    except ImportError:
        raise InputError(
            "images are read by Pillow; pip install 'sklearn_balldp[vision]'."
        ) from None
    own = Path(name)
    if not own.is_absolute():
        own = (path if path.is_dir() else path.parent) / own
    try:
        with Image.open(own) as image:
            return pixels_of(image)
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{own}: no image that can be read ({error}).") from None


def _label(value: Any) -> str:
    """A label as text; tables turn whole numbers with gaps between them into floats."""
    whole = isinstance(value, (float, np.floating)) and float(value).is_integer()
    return str(int(value)) if whole else str(value)


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
        if isinstance(
            error, (ValueError, OSError, KeyError, TypeError, EOFError)
        ) and not isinstance(error, InputError):
            # The text of a parser may quote a record.
            raise InputError(
                f"{self.path}: it cannot be read as {self.path.suffix or 'a folder'} "
                f"({type(error).__name__})."
            ) from None


def _csv(path: Path, **options: Any) -> Any:
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    # Texts stay texts: "NA", "null" and "007" are values, and only an empty cell is missing.
    given = {"dtype": str, "keep_default_na": False, "na_values": [""], "encoding": "utf-8-sig"}
    return pd.read_csv(path, sep=separator, **given, **options)


def _table(path: Path) -> Frame:
    suffix = path.suffix.lower()
    if path.is_file() and suffix not in TABLES:
        raise InputError(
            f"{path}: {suffix or 'no ending'} is none of {', '.join(TABLES)} and .npz."
        )
    with _reading(path), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if path.is_dir() or suffix == ".parquet":
            return pd.read_parquet(path)
        if suffix in (".csv", ".tsv"):
            frame: Frame = _csv(path)
            return frame
        if suffix == ".jsonl":
            return pd.read_json(path, lines=True, dtype=False, convert_dates=False)
        return pd.read_excel(path, keep_default_na=False, na_values=[""])


def _npz(path: Path, columns: Columns) -> Frame:
    """Arrays of an npz file: rows of a matrix become lists in cells."""
    with _reading(path), np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    for name in filter(None, (columns.content, columns.label, columns.owner)):
        if name not in arrays:
            raise InputError(f"{path}: no array {name!r}; it has {', '.join(arrays)}.")
    own = [name for name in (columns.content, columns.label, columns.owner) if name is not None]
    if len({len(arrays[name]) for name in own}) > 1:
        raise InputError(f"{path}: {', '.join(own)} differ in length.")
    return pd.DataFrame({name: list(arrays[name]) for name in own})


def _image_folder(path: Path, columns: Columns) -> Frame:
    """Images of a folder that has a folder for each class."""
    if columns.image is None:
        raise InputError(f"{path}: a folder without .parquet files holds images; use --image file.")
    files = sorted(
        file for file in path.rglob("*") if file.suffix.lower() in IMAGES and file.is_file()
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


def _prefixed(frame: Frame, prefix: str) -> list[str]:
    """Columns called PREFIX0, PREFIX1 and so on, in the order of the numbers."""
    found = [str(c) for c in frame.columns if str(c).startswith(prefix)]
    numbered = [c for c in found if c[len(prefix) :].lstrip("_-").isdigit()]
    return sorted(numbered, key=lambda c: int(c[len(prefix) :].lstrip("_-")))


def _embeddings(frame: Frame, name: str, path: Path) -> NDArray[np.float64]:
    """Rows of numbers: of numbered columns, or of lists in cells."""
    if name not in frame:
        numbers = frame[_prefixed(frame, name)].apply(pd.to_numeric, errors="coerce")
        return numbers.to_numpy(dtype=np.float64)
    with _reading(path):
        cells = [_numbers(cell) for cell in frame[name]]
    widths = {len(cell) for cell in cells if cell is not None}
    if len(widths) != 1:
        raise InputError(f"{path}: the cells of {name!r} are no lists of one length.")
    width = widths.pop()
    empty = np.full(width, np.nan)
    return np.stack([empty if cell is None else cell for cell in cells])


def _numbers(cell: Any) -> NDArray[np.float64] | None:
    """A list of numbers, or its text; None where the cell is empty."""
    if isinstance(cell, str):
        inner = cell.strip().strip("[]()")
        cell = inner.replace(",", " ").split()
    if cell is None or np.ndim(cell) == 0 or len(cell) == 0:
        return None
    return np.asarray(cell, dtype=np.float64).ravel()
