"""What files of records are read into: columns of cells, and which of them hold what."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray

from .._cached import cached_property
from ..encoders import TableEncoder
from ..names import trimmed
from ..pointers import unfetched
from ..publish.model import Published
from ..showing import listed
from .options import InputError

#: Cells by the names of their columns, which are all of one length.
Cells: TypeAlias = dict[str, list[Any]]
#: How names of arrays begin that ``balldp embed`` writes beside the columns of its rows.
BESIDE = "balldp."
#: Rows or files that a message names.
SHOWN = 5


@dataclass(frozen=True)
class Columns:
    """Which columns of a file hold what: texts, images, embeddings, or those declared."""

    text: str | None = None
    image: str | None = None
    embedding: str | None = None
    label: str | None = None
    owner: str | None = None
    table: TableEncoder | None = None

    @classmethod
    def of(cls, published: Published, column: str | None = None, **named: Any) -> "Columns":
        """Those that a model takes; of other records than a table the column that it was told."""
        if published.kind == "tables":
            return cls(table=published.pipeline()[0], **named)
        kind = {"texts": "text", "images": "image", "rows": "embedding"}[published.kind]
        return cls(**{kind: column or published.column or kind} | named)

    @cached_property
    def kind(self) -> str:
        """What the records are."""
        kinds = "text", "image", "embedding", "table"
        return next(name for name in kinds if getattr(self, name) is not None)

    @cached_property
    def contents(self) -> list[str]:
        """The columns of the records that are known by name."""
        names = [getattr(self, self.kind)] if self.table is None else self.table.columns
        return [*map(name_of, names)]

    @cached_property
    def content(self) -> str:
        """The column of the records; of a table what no column is called."""
        return self.contents[0] if self.table is None else " table"

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
    beside: dict[str, NDArray[Any]] = field(default_factory=dict)  # arrays called BESIDE
    note: str = ""  # what its owner is told of it

    def __len__(self) -> int:
        return len(next(iter(self.cells.values()), ()))


def fault_of(file: Path) -> str | None:
    """Why a file is not opened; a pipe would wait for whoever writes it."""
    special = file.exists() and not file.is_file()
    return "it is a pipe, a folder or a device" if special else unfetched(file)


def name_of(text: Any) -> str:
    """The name of a column in one spelling and one line."""
    return re.sub(r"\s*[\r\n]+\s*", " ", trimmed(str(text)))


def names_of(place: object, cells: Iterable[Any]) -> list[str]:
    """Names of columns; of two columns of one name one would be lost."""
    names = [*map(name_of, cells)]
    places: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if places.setdefault(name, number) != number:
            raise InputError(
                f"{place}: columns {places[name]} and {number} have one name; rename one of them."
            )
    return names


def rows_in_words(numbers: Sequence[int]) -> str:
    """The numbers of some rows; the first is 1."""
    return f"row{'s' if len(numbers) > 1 else ''} {listed(numbers, SHOWN)}"
