"""The JSON of a record: what it may hold, from the types of the dataclasses that it is made of.

Each dataclass gets a type of msgspec with the same fields, which refuses whatever is missing,
unknown, of another type or out of range. Fields with their defaults are not written, so that a
default is part of the format. Reading takes time in proportion to the size.
"""

import inspect
import json
import math
import re
import reprlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from msgspec import Meta

from ..text import one_line
from .bounds import KINDS, Bound, tag_of
from .ranges import MAX_CLASSES

#: Layout of the records that are written, and the only one that is read.
FORMAT = 2
#: Largest size of a record, in bytes of JSON.
MAX_BYTES = 16 * 2**20

_LARGEST = float(np.finfo(np.float64).max)
_LONGEST_TEXT = 500
_LONGEST_LIST = MAX_CLASSES
_INTEGER = Meta(ge=-(2**53), le=2**53)
# The dataclass that a type of msgspec stands for, and the words that a field takes.
_MADE: dict[type, type] = {}
_WORDS: dict[str, tuple[str, ...]] = {}


# -- writing --------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A dataclass as built-in types, without fields that have their defaults."""
    if is_dataclass(value):
        written = {"type": tag_of(type(value))} if isinstance(value, Bound) else {}
        for field in _written_fields(value):
            held, default = getattr(value, field.name), field.default
            if "follows" in field.metadata:
                default = getattr(value, field.metadata["follows"])
            if default is MISSING or type(held) is not type(default) or held != default:
                written[field.name] = plain(held)
        return written
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def _written_fields(value: Any) -> list[Any]:
    """Fields of a dataclass; those that are not compared are no part of a record."""
    return [field for field in fields(value) if field.init and field.compare]


def check_size(record: Mapping[str, Any]) -> None:
    """Raise a ValueError if a record is too long to be written, or read."""
    size = len(json.dumps(record))
    if size > MAX_BYTES:
        raise ValueError(f"record: it takes {size} bytes of JSON, and may take {MAX_BYTES}.")


# -- types ----------------------------------------------------------------------------------------


@cache
def struct_of(kind: type) -> type[msgspec.Struct]:
    """The type of msgspec with a dataclass's fields; a TypeError if JSON cannot hold them."""
    tag = {"tag": tag_of(kind), "tag_field": "type"} if issubclass(kind, Bound) else {}
    return structure(kind.__name__, struct_fields(kind), kind, **tag)


def structure(name: str, entries: list[Any], kind: type, **options: Any) -> type[msgspec.Struct]:
    """A type of msgspec that takes these fields and no others, for a dataclass."""
    made = msgspec.defstruct(
        name, entries, forbid_unknown_fields=True, kw_only=True, frozen=True, **options
    )
    _MADE[made] = kind
    return made


def struct_fields(kind: type, **types: Any) -> list[tuple[Any, ...]]:
    """Names, types and defaults of a dataclass's fields; ``types`` replaces some of theirs."""
    if inspect.isabstract(kind) or not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} is no dataclass that an object can be made of")
    try:
        hints = get_type_hints(kind, include_extras=True)
    except NameError as error:
        raise TypeError(f"types of {kind.__name__} are not known: {error}") from error
    entries: list[tuple[Any, ...]] = []
    for field in _written_fields(kind):
        words = get_args(hints[field.name])[1:]
        if words and isinstance(words[0], tuple):
            _WORDS[field.name] = words[0]
        try:
            held = types.get(field.name) or _checked_type(hints[field.name])
        except TypeError as error:
            raise TypeError(f"{kind.__name__}.{field.name}: {error}") from error
        default = field.default
        # What is not a number in the absence of a choice is no choice.
        absent = default is MISSING or (isinstance(default, float) and math.isnan(default))
        entries.append((field.name, held) if absent else (field.name, held, default))
    return entries


def _checked_type(hint: Any) -> Any:
    """The type of a field with its limits: numbers are finite, lists and texts not too long."""
    limits: Any = Meta()
    if get_origin(hint) is Annotated:
        hint, limits = get_args(hint)[:2]
    if isinstance(limits, tuple):
        return Literal[limits]
    origin, parts = get_origin(hint), get_args(hint)
    if hint is float:
        ends = {name: getattr(limits, name) for name in ("gt", "ge", "lt", "le")}
        if ends["gt"] is ends["ge"] is None:
            ends["ge"] = -_LARGEST
        if ends["lt"] is ends["le"] is None:
            ends["le"] = _LARGEST
        return Annotated[float, Meta(**ends)]
    if hint is int:
        return Annotated[int, _INTEGER if limits == Meta() else limits]
    if hint is str:
        sizes = {"min_length": limits.min_length, "max_length": limits.max_length or _LONGEST_TEXT}
        return Annotated[str, Meta(pattern=limits.pattern, **sizes)]
    if hint in (bool, NoneType) or origin is Literal:
        return hint
    if origin in (Union, UnionType):
        return reduce(or_, map(_checked_type, parts))
    if origin is tuple:
        items = tuple(part if part is ... else _checked_type(part) for part in parts)
        held: Any = tuple.__class_getitem__(items)
        return Annotated[held, Meta(max_length=_LONGEST_LIST)] if ... in items else held
    if isinstance(hint, type) and is_dataclass(hint):
        return struct_of(hint)
    raise TypeError(
        f"{one_line(hint, 80)} is none of the types that a record holds: numbers, texts, truth "
        "values, None, tuples of these, and bounds"
    )


def bound_struct(kind: type[Bound]) -> type[msgspec.Struct]:
    """The type of msgspec of a bound; a ValueError if no record can hold it."""
    try:
        return struct_of(kind)
    except TypeError as error:
        raise ValueError(f"record: bound: no record can hold this kind ({error}).") from error


def recordable() -> tuple[type[Bound], ...]:
    """The kinds of bounds of this package that a record can hold."""
    kinds = []
    for tag, kind in sorted(KINDS.items()):
        if ":" not in tag and not inspect.isabstract(kind):
            try:
                struct_of(kind)
            except TypeError:
                continue
            kinds.append(kind)
    return tuple(kinds)


# -- reading --------------------------------------------------------------------------------------


def kind_of(bound: Any) -> type[Bound]:
    """The class of a bound in JSON, by its tag; a ValueError if no class has it."""
    tag = bound.get("type") if isinstance(bound, Mapping) else None
    kind = KINDS.get(tag) if isinstance(tag, str) else None
    if kind is None or inspect.isabstract(kind):
        module = tag.partition(":")[0] if isinstance(tag, str) and ":" in tag else ""
        remedy = f"import {one_line(module, 80)}, which defines it" if module else "pass to_dict()"
        raise ValueError(f"record: bound.type={one_line(repr(tag), 80)} is not known; {remedy}.")
    return kind


def converted(record: Mapping[str, Any], kind: type[msgspec.Struct]) -> Any:
    """The fields of a record as a type of msgspec; a ValueError names what does not fit."""
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError as error:
        text, _, where = str(error).rpartition(" - at `$")
        path = where.strip("`.")
        place = f"{one_line(path, 80)}={_shown(record, path)}: " if path and text else ""
        text = one_line(text or where, 120)
        if text.startswith("Invalid enum value") and (words := _WORDS.get(path.split(".")[-1])):
            text = f"must be one of {', '.join(words)}"
        raise ValueError(f"record: {place}{text[:1].lower()}{text[1:]}.") from None


def _shown(record: Any, path: str) -> str:
    """The value at a path, on one short line."""
    try:
        for name, position in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
            record = record[int(position)] if position else record[name]
    except (KeyError, IndexError, TypeError):
        return "?"
    return one_line(reprlib.repr(record), 60)


def made(value: Any, path: str = "") -> Any:
    """The dataclass that a type of msgspec stands for; a ValueError for texts of several lines."""
    if isinstance(value, msgspec.Struct):
        kind: Any = _MADE[type(value)]
        names = {name: f"{path}.{name}".strip(".") for name in value.__struct_fields__}
        fields = {name: made(getattr(value, name), at) for name, at in names.items()}
        with contradictions(path):
            return kind(**fields)
    if isinstance(value, tuple) and value and not isinstance(value[0], (int, float)):
        return tuple(made(item, path) for item in value)
    if isinstance(value, str) and not value.isprintable():
        shown = one_line(repr(value), 80)
        raise ValueError(f"record: {path}={shown} must be one short line of text.")
    return value


@contextmanager
def contradictions(name: str = "") -> Iterator[None]:
    """Values that no arithmetic can make sense of are a contradiction too."""
    try:
        with np.errstate(all="ignore"):
            yield
    except Exception as error:
        # A bound that somebody wrote may raise anything.
        if isinstance(error, ValueError) and str(error).startswith("record"):
            raise
        text = one_line(error, 200)
        if isinstance(error, ValueError) and name:
            raise ValueError(f"record: {name}: {text}") from error
        raise ValueError(
            f"record: it cannot be made sense of ({type(error).__name__}: {text})."
        ) from error
