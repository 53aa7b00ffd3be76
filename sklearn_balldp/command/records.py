"""Records of a file: texts, images, embeddings or columns, with their labels and owners.

A cell is read from its own value alone, and no error quotes one.
"""

import difflib
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from hashlib import blake2b
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..encoders import UnknownCellsWarning
from ..encoders.tables import MISSING, Counts
from ..names import appearance, label_key, spelling, trimmed
from ..publish.model import Published
from ..showing import listed, one_line
from .columns import declared_cells, kind_of, notes_on
from .files import table_of
from .options import InputError
from .pictures import opened
from .table import SHOWN, Columns, Table, rows_in_words

_MAX_LABEL = 200
# Types of cells that can be numbers.
_OF_NUMBERS = {str, int, float, np.float16, np.float32, Decimal, type(None)}


@dataclass(frozen=True)
class Records:
    """Records as a head or an encoder takes them; counts of them are private."""

    X: Any  # texts, pictures, or an array of embeddings or of the rows of a table
    y: NDArray[Any] | None  # labels, each in one spelling
    owners: NDArray[Any] | None  # in one spelling, too
    kept: list[int] = field(default_factory=list)  # their places in the file
    n_dropped: int = 0  # how many lacked something
    n_repeated: int = 0  # how many have the content of an earlier one
    #: Of a table: how many cells of each column are not as declared.
    counts: dict[str, Counts] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  # of a table: what tells a model nothing, or something else
    #: What ``balldp embed`` wrote beside rows.
    beside: dict[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def groups(self) -> dict[str, Any]:
        """Owners, if there are any, as a fit takes them."""
        return {} if self.owners is None else {"groups": self.owners}


def read(path: Path, columns: Columns, *, missing: str = "error") -> Records:
    """All records of a file or folder; ``missing`` says "error" or "drop" of incomplete ones."""
    table = table_of(path, columns)
    cells = {columns.content: contents_of(table, columns)}
    for name in columns.named:
        cells[name] = [text_of(c, path, name, i) for i, c in enumerate(table.cells[name], 1)]
        long = [i for i, cell in enumerate(cells[name], 1) if len(cell or "") > _MAX_LABEL]
        if long:
            raise InputError(
                f"{path}: the {name} in row {long[0]} has more than {_MAX_LABEL} characters; name "
                "the column of the classes."
            )
    lacking = {n: [i for i, cell in enumerate(own, 1) if cell is None] for n, own in cells.items()}
    name = min(lacking, key=lambda name: min(lacking[name], default=len(table) + 1))
    if lacking[name] and missing == "error":
        finite = "finite " if columns.kind == "embedding" and name == columns.content else ""
        rows = rows_in_words(lacking[name])
        raise InputError(f"{path}: no {finite}{name} in {rows}; see --missing drop.")
    dropped = {i - 1 for numbers in lacking.values() for i in numbers}
    kept = [i for i in range(len(table)) if i not in dropped]
    if not kept:
        raise InputError(f"{path}: no record is complete.")
    X, *named = ([own[i] for i in kept] for own in cells.values())
    labels = None if columns.label is None else np.array(aligned(map(trimmed, named[0])))
    owners = None if columns.owner is None else np.array([*map(spelling, named[-1])])
    for column, names in zip((columns.label, columns.owner), (labels, owners), strict=True):
        if names is not None:
            _tell_alike(path, column, zip(names.tolist(), (i + 1 for i in kept), strict=True))
    embeds, encoder = columns.kind in ("embedding", "table"), columns.table
    counts = {} if encoder is None else encoder.counts(declared_cells(table, encoder))
    return Records(
        np.stack(X) if embeds else X,
        labels,
        owners,
        n_dropped=len(dropped),
        n_repeated=len(X) - len({blake2b(x).digest() if embeds else x for x in X}),
        kept=kept,
        counts=counts,
        notes=() if encoder is None else tuple(notes_on(table, encoder, counts)),
        beside=table.beside,
    )


def aligned(labels: Iterable[str], classes: Iterable[str] = ()) -> list[str]:
    """Labels as the classes, or else some of themselves, write those that are equal (7, 7.0)."""
    labels = [*labels]
    # Of two spellings that of the whole number is taken.
    names = {label_key(name): name for name in sorted({*labels}, key=len, reverse=True)}
    names |= {label_key(name): name for name in classes}
    return [names[label_key(label)] for label in labels]


def _tell_alike(path: Path, column: str | None, rows: Iterable[tuple[str, int]]) -> None:
    """Warn of names, of which each has a row, that differ by what is easily overlooked alone."""
    looks: dict[str, dict[str, int]] = {}
    for name, row in rows:
        looks.setdefault(appearance(name), {}).setdefault(name, row)
    alike = [[*same.values()] for same in looks.values() if len(same) > 1]
    if alike:
        warnings.warn(
            f"{path}: {sum(map(len, alike))} names in {column} differ from another by case, blanks "
            f"or forms of letters alone, the first in {rows_in_words(alike[0])}. Write them alike "
            "if they are one: each counts for itself.",
            stacklevel=3,
        )


def new_records(
    path: Path, published: Published, column: str | None, *, strict: bool
) -> tuple[Table, list[Any], list[str]]:
    """A table, contents of its rows, and its columns of embeddings.

    ``strict`` says that what a model can say little of is an error, and no note.
    """
    columns = Columns.of(published, column)
    table = table_of(path, columns)
    contents = contents_of(table, columns)
    absent = [i for i, content in enumerate(contents, 1) if content is None]
    if absent and columns.text is None:
        rows = rows_in_words(absent)
        raise InputError(f"{path}: no finite {columns.kind} in {rows}; leave such rows out.")
    notes = list[str]()
    if columns.table is not None:
        cells = declared_cells(table, columns.table)
        notes += notes_on(table, columns.table, columns.table.counts(cells))
        absent = (columns.table.unknown_rows(cells) + 1).tolist()
    if absent:
        notes.append(f"nothing is known of {rows_in_words(absent)}: all such get one answer.")
    if notes and strict:
        raise InputError(f"{path}: {' '.join(notes)}")
    for note in notes:
        warnings.warn(f"{path}: {note}", stacklevel=3)
    own = _content_columns(table, columns) if columns.kind == "embedding" else []
    return table, ["" if content is None else content for content in contents], own


def contents_of(table: Table, columns: Columns) -> list[Any]:
    """Texts, pictures, or rows of numbers or columns; None for what is missing."""
    path = table.path
    if not len(table):
        raise InputError(f"{path}: there is no record in it.")
    names = _content_columns(table, columns)
    if columns.kind == "embedding":
        cells = zip(*(table.cells[name] for name in names), strict=True)
        place = f"{path}: {columns.content} in row"
        rows = [_row_of(own, f"{place} {i}") for i, own in enumerate(cells, 1)]
        width = next((len(row) for row in rows if row is not None), 0)
        for number, row in enumerate(rows, 1):
            if row is not None and len(row) != width:
                raise InputError(
                    f"{place} {number} holds more or fewer numbers than above; the cells are no "
                    "lists of one length."
                )
        return [None if row is None or not np.isfinite(row).all() else row for row in rows]
    if columns.table is not None:
        own = declared_cells(table, columns.table)
        try:
            with warnings.catch_warnings():
                # The owner is told with the numbers of cells.
                warnings.simplefilter("ignore", UnknownCellsWarning)
                return [*columns.table.transform(own)]
        except ValueError as error:
            said = str(error).removeprefix("X: ")
            for name, found in own.items():
                if f"column {name!r} " in said and isinstance(columns.table.columns[name], list):
                    said += "".join(f" {name}: {told}." for told in kind_of(found)[2])
            raise InputError(f"{path}: {said}") from None
    texts = [text_of(c, path, names[0], i) for i, c in enumerate(table.cells[names[0]], 1)]
    return texts if columns.kind == "text" else [*opened(path, texts)]


def _content_columns(table: Table, columns: Columns) -> list[str]:
    """Columns of the records; an error if one of them, or of labels or owners, is not there."""
    path, content, names = table.path, columns.content, columns.contents
    if len({content, *columns.named}) <= len(columns.named):
        raise InputError(f"{path}: one column cannot serve as two; name another for each option.")
    if columns.kind == "embedding" and content not in table.cells:
        others = [n for n in table.cells if n.startswith(content) and n not in columns.named]
        ends = [(name.removeprefix(content).lstrip("_-"), name) for name in others]
        numbers = sorted((int(end), name) for end, name in ends if end.isdecimal())
        names = [name for _, name in numbers] or names
        if any(number != numbers[0][0] + i for i, (number, _) in enumerate(numbers)):
            raise InputError(
                f"{path}: numbers of the columns {content}... are left out or repeated."
            )
    for name in [*names, *columns.named]:
        if name not in table.cells:
            # Others are not shown: a file without a header has records there.
            near = difflib.get_close_matches(name, table.cells, 1, 0.7)
            hint = f" among its {len(table.cells)}; the first line must name them."
            hint = f"; did you mean {one_line(near[0], 60)!r}?" if near else hint
            raise InputError(f"{path}: no column {name!r}{hint}")
    return names


def text_of(cell: Any, path: Path, name: str, row: int) -> str | None:
    """A cell as text, whatever the other cells are; None if nothing of it is seen."""
    if cell is None or (cell != cell) is True:
        return None
    reason = None
    if isinstance(cell, (str, bytes)):
        with suppress(UnicodeError):
            text = cell.decode() if isinstance(cell, bytes) else cell
            text.encode()
            return text if trimmed(text) else None
        reason = "is no valid Unicode"
    elif isinstance(cell, (Real, Decimal, np.bool_)):
        return str(cell)
    reason = reason or f"is neither text nor number, but a {type(cell).__name__}"
    raise InputError(
        f"{path}: the {name} in row {row} {reason}; convert the column first (in pandas: "
        f"table[{name!r}].astype(str)), and write images to files, which a column names."
    )


def _row_of(cells: Any, place: str) -> NDArray[np.float64] | None:
    """Numbers of one record, a list or a cell each; NaN where one lacks, None where all do."""
    types = _OF_NUMBERS
    if len(cells) == 1:
        # Of a list that is a text nobody knows which marks part it.
        cells, types = cells[0], types - {str}
        if cells is None or (cells != cells) is True:
            return None
    array = isinstance(cells, np.ndarray) and cells.ndim == 1 and cells.dtype.kind in "iuf"
    found = {*map(type, cells)} if isinstance(cells, (list, tuple)) else set()
    if str in found:
        cells = [None if str(cell).strip().lower() in MISSING else cell for cell in cells]
        # A number has underscores in Python alone.
        found |= {bool} if any("_" in str(cell) for cell in cells) else set()
    # One number, of norm one, is like every other.
    if (array or (found and not found - types)) and len(cells) > 1:
        # A cell that lacks is None for NumPy.
        with suppress(ValueError, OverflowError):
            return np.array(cells, dtype=np.float64)
    raise InputError(
        f"{place} is no list of two or more numbers; save embeddings as NPZ, Parquet or JSONL, or "
        "in a column for each number, with decimal points."
    )


# -- public records -------------------------------------------------------------------------------


def read_further(
    option: str, path: Path | None, columns: Columns, others: Records | None
) -> Records | None:
    """Records of a public file that lack nothing, if one is named; others must not pass for them.

    Those of ``--public`` are compared with the private ones, and ``--examples`` with ``--public``
    alone: what is said of the private ones would tell that one is there.
    """
    if path is None:
        return None
    named, found = f"--{option} {path}", read(path, columns, missing="drop")
    if found.n_dropped:
        warnings.warn(
            f"{named}: {found.n_dropped:,} of its records lack something, and are left out.",
            stacklevel=2,
        )
    # Short answers are given by many: what counts is how many different ones there are.
    contents = {*map(_digest, found.X)}
    common = 0 if others is None else len({*map(_digest, others.X)} & contents)
    most, of, remedy = {
        "public": (0.5, "among the private ones", "name records that may be published"),
        "examples": (0.0, "in --public too, which tests the model", "take them out of one of both"),
    }[option]
    # In tables of few values many records are equal by chance.
    if common > (most * len(contents) if columns.table is None else len(found.X) / 2):
        raise InputError(
            f"{named}: {common:,} of its {len(contents):,} different records are {of}; {remedy}."
        )
    if common:
        warnings.warn(f"{named}: {common:,} of its records are {of}.", stacklevel=2)
    return found


def _digest(record: Any) -> bytes:
    # Rows and images would take their memory again.
    body = record.encode() if isinstance(record, str) else np.asarray(record).tobytes()
    return blake2b(body, digest_size=16).digest()


def of_classes(named: str, public: Records, classes: Any) -> Records | None:
    """Public records that a model can be right about; None if there are none."""
    y = np.array(aligned(np.asarray(public.y).tolist(), classes))
    labels, counts = np.unique(y, return_counts=True)
    strange, places = ~np.isin(labels, classes), np.flatnonzero(np.isin(y, classes))
    shown = [
        f"{one_line(label, 40)!r} ({count:,} records)"
        for label, count in zip(labels[strange].tolist(), counts[strange], strict=True)
    ]
    use = f"The other {len(places):,} records are used" if len(places) else "No accuracy is stated"
    if shown:
        warnings.warn(
            f"{named}: {len(shown):,} of its {len(labels):,} labels are no class: "
            f"{listed(shown, SHOWN)}. {use}.",
            stacklevel=2,
        )
    if not len(places):
        return None
    X = public.X[places] if isinstance(public.X, np.ndarray) else [public.X[i] for i in places]
    return replace(public, X=X, y=y[places])
