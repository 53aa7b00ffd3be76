"""``balldp columns``: a draft of what columns may hold; and reading it once it is filled in."""

import argparse
import csv
import json
import re
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from ..encoders import TableEncoder
from ..encoders.cells import value_of
from ..encoders.tables import ISO, MISSING, Counts, dates_of, spelled
from ..showing import one_line
from .files import table_of
from .options import HIDE_ALL, InputError
from .table import Cells, Columns, Table, name_of

_HEAD = """\
# What each column may hold. Fill it in from what the world knows, and never from the records: it is
# published with the model. Delete the lines of the label, of names and numbers of persons, and of
# whatever is not needed: fewer columns take less noise.
"""
_HINTS = {
    "numbers": "{}; of codes 64",
    "dates": "{}, the first and last day",
    "categories": '["one", "another"]',
    "codes": "64, into so many cells; or list the values",
    "texts": "delete it: free texts are for --text",
    "lists": "delete it: lists of numbers are for --embedding",
    "empty": "nothing in it so far",
}
_HOLDS = {"numbers": "[lowest, highest]", "dates": '["2000-01-01", "2025-12-31"]'}
#: Ways to write numbers and dates: the kind, and what is declared of it. Of those that fit equally
#: many cells the first is taken, and further ones are named beside it.
_WAYS = (
    ("dates", ""),
    ("dates", "%Y%m%d"),
    ("numbers", ""),
    *(("dates", form) for form in ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y")),
    *(("dates", form) for form in ("%Y/%m/%d", "%Y.%m.%d")),
    ("numbers", ","),
    ("numbers", "."),
)
_WRITTEN = {",": "have decimal commas", ".": "have commas between thousands"}
# Categories of which a column has at most so many, the length of what is a text, and the share of
# cells that a kind must fit: one is mistyped now and then.
_FEW, _LONG, _SHARE = 20, 40, 0.9
_BARE = re.compile(r"[A-Za-z0-9_-]+")
# What may group thousands where cells are parted by semicolons.
_GROUPED = re.compile(r"\s*[-+]?\d{1,3}\.\d{3}\s*")


def columns(options: argparse.Namespace) -> None:
    """Print names and kinds; no value, range or count of the records, but on the terminal."""
    cells = table_of(options.file, Columns()).cells
    keys = [_key(name) for name in cells]
    width = max(map(len, keys), default=0)
    print(_HEAD)
    for key, (name, own) in zip(keys, cells.items(), strict=True):
        kind, ways, told = kind_of(own)
        option = {"numbers": "decimal", "dates": "format"}.get(kind)
        holds = _HOLDS.get(kind, "")
        options_of = [f'{{holds = {holds}, {option} = "{way}"}}' if way else holds for way in ways]
        print(f"{key:<{width}} = []  # {kind}: {_HINTS[kind].format(' or '.join(options_of))}")
        for note in told:
            warnings.warn(f"{one_line(name, 60)}: {note}", stacklevel=2)


def _key(name: str) -> str:
    """A name as TOML has it, which shares its quoted texts with JSON but for one code."""
    quoted = json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")
    return name if _BARE.fullmatch(name) else quoted


def kind_of(cells: Sequence[Any]) -> tuple[str, list[str], list[str]]:
    """The kind of a column, by all of its cells; how they are written; what the owner is told."""
    try:
        seen = Counter(c if isinstance(c, str) else value_of(c) for c in cells)
    except (TypeError, ValueError):
        return "lists", [], []
    seen = Counter({c: n for c, n in seen.items() if spelled(c).lower() not in MISSING})
    if not seen:
        return "empty", [], []
    fits = {way: sum(n for cell, n in seen.items() if _fits(*way, cell)) for way in _WAYS}
    kind, first = max(_WAYS, key=fits.__getitem__)
    total, best = seen.total(), fits[kind, first]
    # A number that begins with 0 is a code.
    coded = kind == "numbers" and any(isinstance(c, str) and re.match(r"\s*0\d", c) for c in seen)
    if best >= _SHARE * total and not coded:
        ways = [w for k, w in _WAYS if first and k == kind and fits[k, w] == best] or [""]
        told = [f"{best:,} of {total:,} cells {_in_words(kind, way)}" for way in ways if way]
        return kind, ways, told
    if len(seen) <= _FEW:
        return "categories", [], []
    texts = sum(n for cell, n in seen.items() if len(str(cell)) > _LONG) >= _SHARE * total / 2
    return "texts" if texts else "codes", [], []


def _in_words(kind: str, way: str) -> str:
    if kind == "numbers":
        return f'{_WRITTEN[way]}: declare decimal = "{way}"'
    return f'are dates such as {date(2000, 12, 31).strftime(way)}: declare format = "{way}"'


def _fits(kind: str, way: str, cell: Any) -> bool:
    value = value_of(cell, way if kind == "numbers" else "")
    if kind == "numbers" or isinstance(value, date):
        return isinstance(value, (int, float) if kind == "numbers" else date)
    try:
        return dates_of(way or ISO)(str(value)) is not None
    except ValueError:
        return False


def declared_in(path: Path) -> TableEncoder:
    """The encoder of the columns that a file declares."""
    try:
        body = path.read_bytes()
        # PowerShell writes what is redirected so.
        wide = body.startswith((b"\xff\xfe", b"\xfe\xff"))
        found = tomllib.loads(body.decode("utf-16" if wide else "utf-8-sig"))
    except (ValueError, OSError) as error:
        fault = one_line(error, 120)
        raise InputError(f"--columns {path}: it is no TOML: {fault}.") from None
    try:
        return TableEncoder(found).fit()
    except ValueError as error:
        raise InputError(f"--columns {path}: {one_line(error)}") from None


def check_apart(path: Path, encoder: TableEncoder, label: str, owner: str | None) -> None:
    """Raise an InputError where label or owner is declared too: the model would be told it."""
    for option, name in (("label", label), ("owner", owner)):
        if name is not None and name_of(name) in map(name_of, encoder.columns):
            raise InputError(
                f"--{option} {name} is declared in {path}: delete it there, as the model would be "
                f"told the {option}."
            )


def change_of(encoder: TableEncoder, hide: str) -> Any:
    """The change that ``--hide`` says, as :meth:`.TableEncoder.radius` takes it."""
    try:
        if hide == HIDE_ALL:
            return len(encoder.columns)
        if several := re.fullmatch(r"any\s+(\d+)", hide, re.ASCII):
            encoder.radius(int(several[1]))
            return int(several[1])
        change: dict[str, float | None] = {}
        declared = {name_of(name): name for name in encoder.columns}
        for part in map(name_of, next(csv.reader([hide], skipinitialspace=True))):
            whole = part in declared or "=" not in part
            shown, amount = (part, None) if whole else part.rsplit("=", 1)
            name = declared.get(name_of(shown), shown)
            if name in change:
                raise ValueError(f"{name} is named twice.")
            change[name] = None if amount is None else float(amount)
        encoder.radius(change)
        return change
    except (ValueError, csv.Error) as error:
        raise InputError(
            f'--hide {hide!r}: say all, "any 2", or names of columns, as "age=5,sex" '
            f"({one_line(error, 200).rstrip('.')})."
        ) from None


def declared_cells(table: Table, encoder: TableEncoder) -> Cells:
    """Columns by the names that were declared; in the file they have one spelling."""
    return {name: table.cells[name_of(name)] for name in encoder.columns}


def notes_on(table: Table, encoder: TableEncoder, counts: dict[str, Counts]) -> Iterator[str]:
    """What of a table tells a model nothing, or something else: for the terminal of its owner."""
    for name in encoder.mostly_unknown(counts, len(table)):
        outside, missing = counts[name]
        absent = f", and {missing:,} are missing" if missing else ""
        yield (
            f"most cells of {one_line(name, 60)} are not as declared ({encoder.examples[name]}): "
            f"{outside:,} of {len(table):,}{absent}. Are they spelt otherwise, or in other units?"
        )
    for name, declared in encoder.columns.items():
        numbers = not isinstance(declared, int) and not any(
            isinstance(v, str) and v for v in declared
        )
        pointed = [str(cell) for cell in table.cells[name_of(name)] if "." in str(cell)]
        if numbers and table.separator == ";" and pointed and all(map(_GROUPED.fullmatch, pointed)):
            yield f"numbers of {name} such as 1.500 are read as 1.5: write 1500 if it is meant."
