"""Records of a file: texts, images, embeddings or columns, with their labels and owners.

A cell is read from its own value alone, and no error quotes one.
"""

import difflib
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..encoders import SentenceEncoder, TableEncoder, UnknownCellsWarning
from ..encoders.tables import MISSING, Counts, spelled
from ..text import appearance, label_key, one_line, spelling, trimmed
from .columns import otherwise_written
from .files import Cells, Columns, Picture, Table, name_of, rows_in_words, table_of
from .options import InputError

_MAX_LABEL = 200
# Numbers in one cell beyond which they are no columns of a table.
_MANY = 50
# Codes that may well be different.
_FEW_CODES = 20
# What may group thousands where cells are parted by semicolons.
_GROUPED = re.compile(r"\s*[-+]?\d{1,3}\.\d{3}\s*")
# Characters below which no encoder is asked how many tokens a text has.
_SHORT = 64
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
    n_respelled: int = 0  # how many write their label in another way than the first of their class
    #: Of a table: how many cells of each column are not as declared.
    counts: dict[str, Counts] = field(default_factory=dict)
    odd: tuple[str, ...] = ()  # of a table: what may be meant otherwise than it is read

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
    lacking = {
        name: numbers
        for name, own in cells.items()
        if (numbers := [i for i, cell in enumerate(own, 1) if cell is None])
    }
    if lacking and missing == "error":
        name = min(lacking, key=lambda name: lacking[name][0])
        finite = "finite " if columns.kind == "embedding" and name == columns.content else ""
        rows = rows_in_words(lacking[name])
        raise InputError(f"{path}: no {finite}{name} in {rows}; see --missing drop.")
    dropped = {i - 1 for numbers in lacking.values() for i in numbers}
    kept = [i for i in range(len(table)) if i not in dropped]
    if not kept:
        raise InputError(f"{path}: no record is complete.")
    X, *named = ([own[i] for i in kept] for own in cells.values())
    of_columns = dict(zip(columns.named, named, strict=True))
    labels, owners, respelled = None, None, 0
    if columns.label is not None:
        names = named[0]
        labels = np.array(aligned(map(trimmed, names)))
        first = dict(zip(reversed(labels.tolist()), reversed(names), strict=True))
        respelled = sum(first[label] != n for label, n in zip(labels.tolist(), names, strict=True))
    if columns.owner is not None:
        owners = _owners(of_columns[columns.named[-1]], kept, path, columns.owner)
    embeds, encoder = columns.kind in ("embedding", "table"), columns.table
    return Records(
        np.stack(X) if embeds else X,
        labels,
        owners,
        n_dropped=len(dropped),
        n_repeated=len(X) - len({blake2b(x).digest() if embeds else x for x in X}),
        n_respelled=respelled,
        kept=kept,
        counts={} if encoder is None else encoder.counts(declared_cells(table, encoder)),
        odd=() if encoder is None else tuple(_odd(table, encoder)),
    )


def declared_cells(table: Table, encoder: TableEncoder) -> Cells:
    """Columns by the names that were declared; in the file they have one spelling."""
    return {name: table.cells[name_of(name)] for name in encoder.columns}


def unlike_declared(encoder: TableEncoder, counts: dict[str, Counts], n: int) -> Iterator[str]:
    """Columns of which most cells tell a model nothing, for the terminal of the file's owner."""
    for name in encoder.mostly_unknown(counts, n):
        outside, missing = counts[name]
        absent = f", and {missing:,} are missing" if missing else ""
        yield (
            f"most cells of {one_line(name, 60)} are not as declared ({encoder.examples[name]}): "
            f"{outside:,} of {n:,}{absent}. Are they spelt otherwise, or in other units?"
        )


def _odd(table: Table, encoder: TableEncoder) -> Iterator[str]:
    """What of a table may be meant otherwise than it is read."""
    for name, declared in encoder.columns.items():
        cells = table.cells[name_of(name)]
        if isinstance(declared, int):
            codes = [code for cell in cells if (code := spelled(cell)).lower() not in MISSING]
            if len(codes) > _FEW_CODES and len({*codes}) > len(codes) / 2:
                yield (
                    f"most codes of {name} are those of one record alone: delete it if it numbers "
                    "persons."
                )
        elif table.separator == ";" and not any(isinstance(v, str) and v for v in declared):
            pointed = [str(cell) for cell in cells if "." in str(cell)]
            if pointed and all(map(_GROUPED.fullmatch, pointed)):
                yield f"numbers of {name} such as 1.500 are read as 1.5: write 1500 if it is meant."


def aligned(labels: Iterable[str], classes: Iterable[str] = ()) -> list[str]:
    """Labels as the classes, or else some of themselves, write those that are equal (7, 7.0)."""
    labels = [*labels]
    # Of two spellings that of the whole number is taken.
    names = {label_key(name): name for name in sorted({*labels}, key=len, reverse=True)}
    names |= {label_key(name): name for name in classes}
    return [names[label_key(label)] for label in labels]


def _owners(names: list[str], kept: list[int], path: Path, column: str) -> NDArray[np.str_]:
    """Owners in one spelling; those who look alike are told by their rows."""
    owners = [*map(spelling, names)]
    first = dict(zip(reversed(owners), reversed(kept), strict=True))
    looks: dict[str, list[int]] = {}
    for owner, place in sorted(first.items(), key=lambda pair: pair[1]):
        looks.setdefault(appearance(owner), []).append(place + 1)
    alike = [numbers for numbers in looks.values() if len(numbers) > 1]
    if alike:
        warnings.warn(
            f"{path}: {sum(map(len, alike))} owners in {column} differ from another by case, "
            f"blanks or forms of letters alone, the first in {rows_in_words(alike[0])}. Write them "
            "alike if they are one person: each counts as an owner.",
            stacklevel=3,
        )
    return np.array(owners)


def new_records(
    path: Path, columns: Columns, *, alone: bool, strict: bool
) -> tuple[Table, list[Any], list[str]]:
    """A table, contents of its rows, and its columns of embeddings.

    ``alone`` says that a column of another name is meant if it is the only one; ``strict`` that
    what a model can say little of is an error, and no note.
    """
    table = table_of(path, columns)
    if alone and len(table.cells) == 1 and columns.content not in table.cells:
        named: dict[str, Any] = {columns.kind: next(iter(table.cells))}
        columns = Columns(**named)
        if columns.content not in ("text", "image", "embedding"):
            warnings.warn(
                f"{path}: its first line names the only column, and is no record.", stacklevel=3
            )
    contents = contents_of(table, columns)
    absent = [i for i, content in enumerate(contents, 1) if content is None]
    if absent and columns.text is None:
        rows = rows_in_words(absent)
        raise InputError(f"{path}: no finite {columns.kind} in {rows}; leave such rows out.")
    notes = list[str]()
    if columns.table is not None:
        cells = declared_cells(table, columns.table)
        notes += unlike_declared(columns.table, columns.table.counts(cells), len(table))
        absent = (columns.table.unknown_rows(cells) + 1).tolist()
    if absent:
        notes.append(f"nothing is known of {rows_in_words(absent)}: all such get one answer.")
    if notes and strict:
        raise InputError(f"{path}: {' '.join(notes)}")
    for note in notes:
        warnings.warn(f"{path}: {note}", stacklevel=3)
    own = [*_content_columns(table, columns)] if columns.kind == "embedding" else []
    for name, column in table.cells.items():
        first = next((cell for cell in column if cell is not None), None)
        if name not in own and isinstance(first, (list, np.ndarray)) and len(first) > _MANY:
            own.append(name)
    return table, ["" if content is None else content for content in contents], own


def tell_cut(path: Path, texts: list[str], encoder: SentenceEncoder) -> None:
    """Warn of texts whose ends the encoder does not read, with the length that would do."""
    # A model is loaded for them alone.
    if max(map(len, texts)) < _SHORT:
        return
    count, limit, longest, most = encoder.cut(texts)
    if count:
        remedy = f"--max-length {longest} would do"
        if most is not None and longest > most:
            remedy = f"{longest} would do, and the encoder takes {most} at most: divide such texts"
        warnings.warn(
            f"{path}: {count:,} of {len(texts):,} texts are longer than the {limit} tokens that "
            f"are read of each; what follows is ignored. {remedy}, or use another encoder.",
            stacklevel=2,
        )


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
        try:
            with warnings.catch_warnings():
                # The owner is told with the numbers of cells.
                warnings.simplefilter("ignore", UnknownCellsWarning)
                return [*columns.table.transform(declared_cells(table, columns.table))]
        except ValueError as error:
            said = str(error).removeprefix("X: ")
            for name, found in declared_cells(table, columns.table).items():
                if f"column {name!r} " in said and isinstance(columns.table.columns[name], list):
                    said += "".join(f" {name}: {told}." for told in otherwise_written(found))
            raise InputError(f"{path}: {said}") from None
    texts = [text_of(c, path, names[0], i) for i, c in enumerate(table.cells[names[0]], 1)]
    if columns.kind == "text":
        return texts
    # Of a folder the owner must find the file.
    of_folder, folder = path.is_dir(), path if path.is_dir() else path.parent
    pictures = [
        None
        if name is None
        else Picture(folder / name, f"{path}: {one_line(name, 200) if of_folder else f'row {i}'}")
        for i, name in enumerate(texts, 1)
    ]
    for picture in pictures:
        if picture is not None:
            picture.check()
    return pictures


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
    if isinstance(cell, (str, bytes)):
        try:
            text = cell.decode() if isinstance(cell, bytes) else cell
            text.encode()
        except UnicodeError:
            raise InputError(
                f"{path}: the {name} in row {row} is no valid Unicode; of images write each to a "
                "file, and its name into the table."
            ) from None
        return text if trimmed(text) else None
    if isinstance(cell, (Real, Decimal, np.bool_)):
        return str(cell)
    remedy = f"convert the column first (in pandas: table[{name!r}].astype(str))"
    if isinstance(cell, dict) and "bytes" in cell:
        remedy = "write each image to a file, and its name into the table"
    raise InputError(
        f"{path}: the {name} in row {row} is neither text nor number, but a "
        f"{type(cell).__name__}; {remedy}."
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
