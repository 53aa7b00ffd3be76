"""Types of a record's fields, checked when a record is made or read."""

import inspect
import math
import numbers
import types
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, get_args, get_type_hints

from .._parameters import is_real

# Largest relative difference between two machines' values of one formula.
_ROUNDING = 1e-9


def check_types(instance: Any, what: str) -> None:
    """Raise a ValueError unless the plain fields of a dataclass hold what their types say.

    Fields of other types, such as those of a custom bound, are not checked.
    """
    kind: Any = type(instance)
    hints = _hints(kind)
    for field in fields(instance):
        value = getattr(instance, field.name)
        wanted = _wanted(hints.get(field.name))
        if wanted is not None and not _fits(value, wanted):
            names = " or ".join(dict.fromkeys(_NAMES[kind] for kind in wanted))
            raise ValueError(f"{what}: {field.name}={value!r} must be {names}.")


def with_floats(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a dataclass; floats that JSON tools wrote as whole numbers are floats again."""
    hints = _hints(kind)
    return {name: _as_float(value, hints.get(name)) for name, value in values.items()}


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Types of the fields and of the properties of a class."""
    try:
        found = get_type_hints(kind)
        for name in dir(kind):
            derived = inspect.getattr_static(kind, name)
            read = getattr(derived, "fget", None) or getattr(derived, "func", None)
            if read is not None:
                found[name] = get_type_hints(read).get("return")
    except NameError:
        return {}  # a custom class, whose annotations name types that do not exist at run time
    return found


def _as_float(value: Any, hint: Any) -> Any:
    parts = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if isinstance(value, tuple) and (float, ...) in map(get_args, parts):
        return tuple(_as_float(item, float) for item in value)
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return float(value) if whole and float in parts else value


_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a finite number",
    str: "text",
    bool: "true or false",
    type(None): "nothing",
    tuple: "a list of finite numbers",
}


def _wanted(hint: Any) -> tuple[Any, ...] | None:
    """Kinds that a type allows; None for a type that is not a plain one."""
    parts = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = tuple(tuple if get_args(part) in ((float, ...), (int, ...)) else part for part in parts)
    return kinds if all(kind in _NAMES for kind in kinds) else None


def _fits(value: Any, wanted: tuple[Any, ...]) -> bool:
    if isinstance(value, tuple):
        return tuple in wanted and all(is_real(v) and math.isfinite(v) for v in value)
    if value is None or isinstance(value, (bool, str)):
        return type(value) in wanted
    if int in wanted and isinstance(value, numbers.Integral):
        return True
    return float in wanted and is_real(value) and math.isfinite(value)


def check_follows(name: str, value: Any, expected: Any) -> None:
    """Raise a ValueError if a value in a record contradicts the rest of the record.

    Numbers may differ by rounding, as in :func:`agree`.
    """
    if not agree(value, expected):
        raise ValueError(
            f"record: {name}={value!r} does not follow from the rest of it: it should be "
            f"{expected!r}."
        )


def check_at_least(name: str, value: Any, expected: Any) -> None:
    """Raise a ValueError if a record states less than what follows from the rest of it.

    A record may state more: another version of this package may prove a smaller number.
    """
    stated, needed = (v if isinstance(v, tuple) else (v,) for v in (value, expected))
    same = len(stated) == len(needed) and all(map(is_real, stated))
    if not (same and all(s >= n * (1.0 - _ROUNDING) for s, n in zip(stated, needed, strict=True))):
        raise ValueError(
            f"record: {name}={value!r} does not follow from the rest of it: it should be at least "
            f"{expected!r}."
        )


def agree(value: Any, expected: Any) -> bool:
    """Whether two values are equal; numbers may differ by the rounding of another machine."""
    if isinstance(expected, tuple):
        same = isinstance(value, tuple) and len(value) == len(expected)
        return same and all(agree(*pair) for pair in zip(value, expected, strict=True))
    if is_real(expected) and is_real(value):
        return math.isclose(value, expected, rel_tol=_ROUNDING)
    return type(value) is type(expected) and value == expected
