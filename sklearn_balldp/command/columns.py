"""``balldp columns``: a draft of what columns may hold; and reading it once it is filled in."""

import argparse
import csv
import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..encoders import TableEncoder
from ..encoders.tables import MISSING, spelled
from ..text import one_line
from .files import Columns, name_of, table_of
from .options import HIDE_ALL, InputError

_HEAD = """\
# What each column may hold. Fill it in from what the world knows, and never from the records: it is
# published with the model. Delete the lines of the label, of names and numbers of persons, and of
# whatever is not needed: fewer columns take less noise.
"""
_HINTS = {
    "numbers": "[lowest, highest]; of codes 64",
    "dates": '["2000-01-01", "2025-12-31"], the first and last day',
    "categories": '["one", "another"]',
    "codes": "64, into so many cells; or list the values",
    "texts": "delete it: free texts are for --text",
    "lists": "delete it: lists of numbers are for --embedding",
    "empty": "nothing in it so far",
}
# Different cells that tell a column's kind, categories of which it has at most so many, the length
# of what is a text, and the share of cells that a kind must fit: one is mistyped now and then.
_LOOKED_AT, _FEW, _LONG, _SHARE = 200, 20, 40, 0.9
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def columns(options: argparse.Namespace) -> None:
    """Print names and kinds; no value, range or count of the records."""
    cells = table_of(options.file, Columns()).cells
    keys = [_key(name) for name in cells]
    width = max(map(len, keys), default=0)
    print(_HEAD)
    for key, own in zip(keys, cells.values(), strict=True):
        kind = _kind(own)
        print(f"{key:<{width}} = []  # {kind}: {_HINTS[kind]}")


def _key(name: str) -> str:
    """A name as TOML has it, which shares its quoted texts with JSON but for one code."""
    quoted = json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")
    return name if _BARE.fullmatch(name) else quoted


def _kind(cells: Sequence[Any]) -> str:
    try:
        seen = dict.fromkeys(map(spelled, cells))
    except (TypeError, ValueError):
        return "lists"
    texts = [text for text in seen if text.lower() not in MISSING]
    if not texts:
        return "empty"
    some = texts[:_LOOKED_AT]
    enough = _SHARE * len(some)
    # A number that begins with 0 is a code.
    if not any(re.match(r"0\d", text) for text in some):
        for kind, declared in (("numbers", [0, 1]), ("dates", ["2000-01-01", "2000-01-02"])):
            if sum(_fits(declared, text) for text in some) >= enough:
                return kind
    if len(texts) <= _FEW:
        return "categories"
    return "texts" if sum(len(text) > _LONG for text in some) >= enough / 2 else "codes"


def _fits(declared: list[Any], cell: str) -> bool:
    try:
        TableEncoder({"column": declared}).transform({"column": [cell]})
    except ValueError:
        return False
    return True


def declared_in(path: Path) -> TableEncoder:
    """The encoder of the columns that a file declares, in TOML or JSON."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len({*names}) < len(names):
            raise ValueError("a name is repeated")
        return dict(pairs)

    try:
        body = path.read_bytes()
        # PowerShell writes what is redirected so.
        wide = body.startswith((b"\xff\xfe", b"\xfe\xff"))
        text = body.decode("utf-16" if wide else "utf-8-sig")
        if path.suffix.lower() == ".json":
            found = json.loads(text, object_pairs_hook=once)
        else:
            found = tomllib.loads(text)
    except (ValueError, OSError) as error:
        fault = one_line(error, 120)
        raise InputError(f"--columns {path}: it is no TOML, or JSON (.json): {fault}.") from None
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
