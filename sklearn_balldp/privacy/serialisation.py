"""The JSON of a record: msgspec reads the dataclasses that it is made of, by their types.

What was read is written again and compared: whatever is unknown, or has a second spelling, is found
by that. Fields with their defaults are not written, so that a default is part of the format.
"""

import inspect
import json
import math
import re
import reprlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

import msgspec
import numpy as np

from .._parameters import MAX_CLASSES
from ..showing import one_line
from .bounds import KINDS, Bound, tag_of
from .plain import fields_of

#: Layout of the records that are written, and the only one that is read.
FORMAT = 3
#: Largest size of a record, in bytes of JSON.
MAX_BYTES = 16 * 2**20

_LONGEST_TEXT = 500
# What no record holds, in a schema.
_NOTHING: dict[str, Any] = {"not": {}}


# -- writing --------------------------------------------------------------------------------------


def jsonable(value: Any, path: str = "") -> Any:
    """A dataclass as built-in types, without fields that have their defaults, or follow.

    A ValueError for what no record holds: infinite numbers, long texts, objects of other types.
    """
    if is_dataclass(value):
        written = {"type": tag_of(type(value))} if isinstance(value, Bound) else {}
        for field in fields_of(type(value)):
            held, default = getattr(value, field.name), field.default
            if "follows" in field.metadata:
                default = field.metadata["follows"](value)
            same = default is not MISSING and type(held) is type(default) and held == default
            if not same:
                written[field.name] = jsonable(held, f"{path}.{field.name}".lstrip("."))
        return written
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if isinstance(value, tuple) and len(value) <= MAX_CLASSES:
        return [jsonable(item, f"{path}[{i}]") for i, item in enumerate(value)]
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str):
        sound = value.isprintable() and len(value) <= _LONGEST_TEXT
    elif isinstance(value, (int, float)):
        sound = math.isfinite(value) and (isinstance(value, float) or abs(value) <= 2**53)
    else:
        sound = value is None
    if not sound:
        raise ValueError(
            f"record: {path}={_short(value)} is a {type(value).__name__}. No record can hold this "
            "kind; it holds finite numbers (whole ones up to 2**53), one short line of text "
            f"({_LONGEST_TEXT} characters), None, bounds, and tuples of length <= {MAX_CLASSES}."
        )
    return value


def sized(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record after a round trip through JSON; a ValueError if it is too long."""
    text = json.dumps(record)
    if len(text) > MAX_BYTES:
        raise ValueError(f"record: it takes {len(text)} bytes of JSON, and may take {MAX_BYTES}.")
    return json.loads(text)


# -- reading --------------------------------------------------------------------------------------


def kinds() -> dict[str, type[Bound]]:
    """Kinds of bounds by their names in records, those of this package among them."""
    # A bound registers where it is defined, which a process that only reads has not imported.
    import_module(f"{__package__.rpartition('.')[0]}.mechanisms")
    return KINDS


def kind_of(bound: Any) -> type[Bound]:
    """The class of a bound in JSON, by its tag; a ValueError if no record can hold it."""
    tag = bound.get("type") if isinstance(bound, dict) else None
    kind = kinds().get(tag) if isinstance(tag, str) else None
    if kind is None or inspect.isabstract(kind):
        module = tag.partition(":")[0] if isinstance(tag, str) and ":" in tag else ""
        remedy = f"import {one_line(module, 80)}, which defines it" if module else "pass to_dict()"
        raise ValueError(f"record: bound.type={_short(tag)} is not known; {remedy}.")
    fault = fault_of(kind)
    if fault:
        raise ValueError(f"record: bound: no record can hold this kind ({fault}).")
    return kind


@cache
def fault_of(kind: type[Bound]) -> str:
    """Why no record can hold a kind of bounds, by the types of its fields; empty if one can."""
    if not is_dataclass(kind) or inspect.isabstract(kind):
        return f"{kind.__name__} is no dataclass that an object can be made of"
    try:
        shown = msgspec.json.schema_components([kind], schema_hook=lambda _: _NOTHING)
    except (NameError, TypeError) as error:
        return one_line(error, 200)
    return f"a type of {kind.__name__} is none of a record" if str(_NOTHING) in str(shown) else ""


def read(kind: type, record: Any, path: str = "") -> Any:
    """A dataclass from JSON, by its types; a ValueError names what does not fit.

    What its types do not name is passed over: :func:`check_same` finds it.
    """
    try:
        return msgspec.convert(record, kind, dec_hook=_passed)
    except msgspec.ValidationError as error:
        text, _, where = str(error).rpartition(" - at `$")
        place = f"{path}{where.strip('`')}" if text else path
        place, text = place.strip("."), one_line(text or where, 200)
        if words := re.search(r"regex '\^\((.+)\)\$'$", text):
            text = f"must be one of {words[1].replace('|', ', ')}".replace("\\", "")
        shown = f"{one_line(place, 80)}={_short(_at(record, place, path))}: " if place else ""
        raise ValueError(f"record: {shown}{text[:1].lower()}{text[1:]}.") from None


def _passed(kind: Any, value: Any) -> Any:
    """A bound that was read before; nothing else that msgspec does not know is part of a record."""
    if kind is Bound and isinstance(value, Bound):
        return value
    raise TypeError("no record can hold this kind")


def _at(record: Any, place: str, path: str) -> Any:
    """The value at a place, of a record that is at a path."""
    for name, position in re.findall(r"([^.\[\]]+)|\[(\d+)\]", place[len(path) :]):
        record = record[int(position)] if position else record[name]
    return record


def check_same(written: Any, record: Any, path: str = "") -> None:
    """Raise a ValueError where a record is not what is written of the object read from it."""
    if not (isinstance(written, dict) and isinstance(record, dict)):
        if written != record:
            raise ValueError(f"record: {path}={_short(record)} should be {_short(written)}.")
        return
    for name in written | record:
        place = f"{path}.{name}".lstrip(".")
        if name not in written:
            raise ValueError(
                f"record: {one_line(place, 80)}={_short(record[name])}: unknown field "
                f"`{one_line(name, 80)}`, or one with its default, which is left out."
            )
        check_same(written[name], record.get(name), place)


def _short(value: Any) -> str:
    return one_line(reprlib.repr(value), 60)


@contextmanager
def contradictions() -> Iterator[None]:
    """Values that no arithmetic can make sense of are a contradiction too."""
    try:
        with np.errstate(all="ignore"):
            yield
    except Exception as error:
        # A bound that somebody wrote may raise anything.
        if isinstance(error, ValueError) and str(error).startswith("record"):
            raise
        kind, text = type(error).__name__, one_line(error, 200)
        raise ValueError(f"record: it cannot be made sense of ({kind}: {text}).") from error


# -- schema ---------------------------------------------------------------------------------------


def schema_of(kind: type) -> dict[str, Any]:
    """JSON Schema of a dataclass, with the bounds of this package that a record can hold."""
    ours = {tag: bound for tag, bound in sorted(kinds().items()) if ":" not in tag}
    bounds = {tag: bound for tag, bound in ours.items() if not fault_of(bound)}
    union = {"anyOf": [{"$ref": f"#/$defs/{tag}"} for tag in bounds]}
    (top, *_), definitions = msgspec.json.schema_components(
        [kind, *bounds.values()],
        schema_hook=lambda custom: union if custom is Bound else _NOTHING,
        ref_template="#/$defs/{name}",
    )
    for name, definition in definitions.items():
        definition.pop("description", None)
        held = {n: s for n, s in definition["properties"].items() if str(_NOTHING) not in str(s)}
        needed = definition["required"]
        if name in bounds:
            held, needed = {"type": {"const": name}, **held}, ["type", *needed]
        for field, shown in held.items():
            # What is not a number in the absence of a choice is no choice.
            if shown.get("default") != shown.get("default"):
                del shown["default"]
                needed.append(field)
        definition |= {"properties": held, "required": needed, "additionalProperties": False}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "$defs": definitions}
