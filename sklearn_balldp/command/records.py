"""Records of a file: texts, images or embeddings, with their labels and owners.

A cell is read from its own value alone, and no error quotes one: rows are named by their number.
"""

import json
import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..text import appearance, one_line, spelling, trimmed
from .files import PART, SHOWN, Columns, Layout, Picture, Row, rows_of
from .options import InputError

_MAX_LABEL = 200
# Numbers in one cell beyond which they are no columns of a table.
_MANY = 50
# Spellings of a missing number, and types of cells that can be numbers.
_NOTHING = {"", "na", "n/a", "nan", "null", "none"}
_OF_NUMBERS = {str, int, float, Decimal, type(None)}


@dataclass(frozen=True)
class Records:
    """Records as a head or an encoder takes them; counts of them are private."""

    #: Texts, pictures, or an array of embeddings.
    X: Any
    #: Labels and owners, each in one spelling.
    y: NDArray[Any] | None
    owners: NDArray[Any] | None
    #: How many lacked something.
    n_dropped: int = 0
    #: How many have the content of an earlier one.
    n_repeated: int = 0
    #: How many write their label in another way than the first of their class.
    n_respelled: int = 0

    @property
    def groups(self) -> dict[str, Any]:
        """Owners, if there are any, as a fit takes them."""
        return {} if self.owners is None else {"groups": self.owners}


def read(path: Path, columns: Columns, *, missing: str = "error") -> Records:
    """All records of a file, or of a folder of Parquet files or pictures.

    ``missing`` says what becomes of those without content, label or owner: "error" or "drop".
    """
    lacking: dict[str, list[int]] = {name: [] for name in (columns.content, *columns.named)}
    kept: dict[str, list[Any]] = {name: [] for name in lacking}
    contents, rows, count = set[Any](), list[int](), 0
    for part, of_part in _parts(path, columns, Layout()):
        for row, content in zip(part, of_part, strict=True):
            count += 1
            cells = {columns.content: content}
            for name in columns.named:
                cells[name] = _text(row.get(name), path, name, count)
                if len(cells[name] or "") > _MAX_LABEL:
                    raise InputError(
                        f"{path}: the {name} in row {count} has more than {_MAX_LABEL} "
                        "characters; name the column of the classes."
                    )
            absent = [name for name, cell in cells.items() if cell is None]
            for name in absent:
                lacking[name].append(count)
            if not absent:
                rows.append(count)
                digest = columns.kind == "embedding"
                contents.add(blake2b(content).digest() if digest else content)
                for name, cell in cells.items():
                    kept[name].append(cell)
    incomplete = [(numbers[0], name) for name, numbers in lacking.items() if numbers]
    if incomplete and missing == "error":
        _, name = min(incomplete)
        finite = "finite " if columns.kind == "embedding" and name == columns.content else ""
        raise InputError(
            f"{path}: no {finite}{name} in {_rows(lacking[name])}; see --missing drop."
        )
    if not rows:
        raise InputError(f"{path}: no record is complete, or there is none.")
    X = kept[columns.content]
    labels, owners, respelled = None, None, 0
    if columns.label is not None:
        names = kept[trimmed(columns.label)]
        spellings = [*map(spelling, names)]
        first = dict(zip(reversed(spellings), reversed(names), strict=True))
        respelled = sum(first[s] != name for s, name in zip(spellings, names, strict=True))
        labels = np.array(spellings)
    if columns.owner is not None:
        owners = _owners(kept[trimmed(columns.owner)], rows, path, columns.owner)
    return Records(
        np.stack(X) if columns.kind == "embedding" else X,
        labels,
        owners,
        n_dropped=count - len(rows),
        n_repeated=len(rows) - len(contents),
        n_respelled=respelled,
    )


def _owners(names: list[str], rows: list[int], path: Path, column: str) -> NDArray[np.str_]:
    """Owners in one spelling; those who look alike are told by their rows."""
    owners = [spelling(name, zeros=True) for name in names]
    first = dict(zip(reversed(owners), reversed(rows), strict=True))
    looks: dict[str, list[int]] = {}
    for owner, row in sorted(first.items(), key=lambda pair: pair[1]):
        looks.setdefault(appearance(owner), []).append(row)
    alike = [numbers for numbers in looks.values() if len(numbers) > 1]
    if alike:
        warnings.warn(
            f"{path}: {sum(map(len, alike))} owners in {column} differ from another by case, "
            f"blanks or forms of letters alone, the first in {_rows(alike[0])}. Write them alike "
            "if they are one person: each counts as an owner.",
            stacklevel=3,
        )
    return np.array(owners)


def parts_of_file(
    path: Path, columns: Columns, layout: Layout, *, alone: bool = False
) -> Iterator[tuple[list[Row], list[Any]]]:
    """Rows of a file and their contents, some thousands at a time; a missing text is empty.

    ``alone`` says that a column of another name is meant if it is the only one.
    """
    count = 0
    for part, contents in _parts(path, columns, layout, alone=alone):
        absent = [count + i for i, content in enumerate(contents, 1) if content is None]
        if absent and columns.text is None:
            raise InputError(
                f"{path}: no finite {columns.kind} in {_rows(absent)}; leave such rows out."
            )
        count += len(part)
        yield part, ["" if content is None else content for content in contents]


def _parts(
    path: Path, columns: Columns, layout: Layout, *, alone: bool = False
) -> Iterator[tuple[list[Row], list[Any]]]:
    """The same, with None for what is missing."""
    rows, count, width = rows_of(path, columns, layout), 0, None
    while part := list(islice(rows, PART)):
        if not count:
            if alone and len(part[0]) == 1 and columns.content not in part[0]:
                columns = Columns(**{columns.kind: next(iter(part[0]))})
                if columns.content not in ("text", "image", "embedding"):
                    warnings.warn(
                        f"{path}: its first line names the only column, and is no record.",
                        stacklevel=3,
                    )
            names = columns.of_contents(part[0], path)
            beside = [name for name, cell in part[0].items() if _holds_many(cell)]
            layout.embeddings = (*names, *beside) if columns.kind == "embedding" else (*beside,)
        contents: list[Any] = []
        for row in part:
            count += 1
            if columns.kind == "embedding":
                content: Any = _numbers(row, names, path, count)
                width = width or (None if content is None else len(content))
                if content is not None and len(content) != width:
                    raise InputError(
                        f"{path}: {columns.content} in row {count} holds more or fewer numbers "
                        "than above; the cells are no lists of one length."
                    )
                content = None if content is None or not np.isfinite(content).all() else content
            else:
                content = _text(row.get(names[0]), path, names[0], count)
            if columns.kind == "image" and content is not None:
                # Of a folder the owner must find the file.
                folder, place = path.parent, f"row {count}"
                if path.is_dir():
                    folder, place = path, one_line(content, 200)
                content = Picture(folder / content, f"{path}: {place}")
                content.check()
            contents.append(content)
        yield part, contents


def _rows(numbers: list[int]) -> str:
    """The numbers of some rows; the first is 1."""
    shown = ", ".join(map(str, numbers[:SHOWN]))
    more = f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else ""
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
    if isinstance(cell, (str, bytes)) or cell is None or (cell != cell) is True:
        plain = isinstance(cell, str) and cell.isascii()
        return cell if plain else _text(cell, path, name, row) or ""
    return str(cell)


def _numbers(row: Row, names: list[str], path: Path, number: int) -> NDArray[np.float64] | None:
    """Numbers of one record: a list, its text, or a cell each; NaN or None where they lack."""
    if len(names) > 1:
        array = _as_numbers([row.get(name) for name in names])
        if array is None:
            raise InputError(f"{path}: a cell of {names[0]}... in row {number} is no number.")
        return array
    cell = row.get(names[0])
    if cell is None or (cell != cell) is True:
        return None
    if isinstance(cell, str):
        if cell.strip().lower() in _NOTHING:
            return None
        text = re.sub(r"np\.float\d+\(([^()]*)\)", r"\1", cell).strip()
        if (text[:1], text[-1:]) in (("[", "]"), ("(", ")")):
            text = text[1:-1]
        # Decimal commas are followed by no blank, beside others that are.
        spaced = len(re.findall(r",\s", text))
        cell = text.split("," if "," in text else None) if spaced in (0, text.count(",")) else None
    array = None if cell is None else _as_numbers(cell)
    if array is None:
        raise InputError(
            f"{path}: the cell in row {number} is no list of real numbers ({names[0]}): write "
            "decimal points, and either blanks or commas between numbers."
        )
    return array


def _holds_many(cell: Any) -> bool:
    """Whether a cell is a list of more numbers than a person would read, or a text of one."""
    if isinstance(cell, (list, np.ndarray)):
        return len(cell) > _MANY
    if not isinstance(cell, str) or len(re.findall(r"[\s,]+", cell)) < _MANY:
        return False
    return re.fullmatch(r"\s*[\[(]?[-+\d.eE\s,]+[\])]?\s*", cell) is not None


def _as_numbers(cells: Any) -> NDArray[np.float64] | None:
    """Numbers of a list or an array, NaN for those that lack; None if something is no number."""
    if isinstance(cells, np.ndarray):
        return cells.astype(np.float64) if cells.ndim == 1 and cells.dtype.kind in "iuf" else None
    types = {*map(type, cells)} if isinstance(cells, list) else set()
    # A number has underscores in Python alone.
    if not types or types - _OF_NUMBERS or (str in types and "_" in "".join(map(str, cells))):
        return None
    for absent in (False, True):
        if absent:
            cells = [None if str(cell).strip().lower() in _NOTHING else cell for cell in cells]
        # A cell that lacks is None for NumPy.
        with suppress(ValueError, OverflowError):
            return np.array(cells, dtype=np.float64)
    return None
