"""Plain data: what is charged, computed and recorded must be one and the same object.

A view, a mask or a class of one's own may show one value to a proof and another to the code. So
frozen dataclasses that a proof reads copy their fields once.
"""

from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any

import numpy as np

#: Fields of a class of dataclasses, found once: every query is looked at.
fields_of: Callable[[Any], tuple[Field[Any], ...]] = cache(fields)

#: Kinds of values that nobody can change.
_SIMPLE = frozenset((type(None), bool, int, float, str))


def make_plain(instance: Any) -> None:
    """Replace each field of a frozen dataclass by plain data (:func:`plain`)."""
    for item in fields_of(type(instance)):
        try:
            given = getattr(instance, item.name)
            value = plain(given)
        except TypeError as error:
            name = f"{type(instance).__name__}.{item.name}"
            raise TypeError(f"{name} {error}") from None
        if value is given and type(value) is np.ndarray:
            # Whoever made it may let it be written again.
            value = value.copy()
            value.setflags(write=False)
        object.__setattr__(instance, item.name, value)


def plain(value: Any) -> Any:
    """The value as plain data: built-in numbers and texts, tuples, read-only float64 arrays.

    Raises a TypeError for everything else, but frozen dataclasses, which are plain themselves.
    """
    if is_plain(value):
        return value
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, (tuple, list)):
        return tuple(plain(part) for part in value)
    if hasattr(value, "__array__") and not isinstance(value, np.ma.MaskedArray):
        array = np.asarray(value)
        if array.dtype.kind in "fiub":
            array = np.array(array, dtype=np.float64, order="C", subok=False)
            array.setflags(write=False)
            return array if array.ndim else array.item()
    raise TypeError(
        f"must be plain data (numbers, texts, tuples, arrays of numbers), and is a "
        f"{type(value).__name__}: convert it, a masked array by filled()."
    )


def are_numbers(*values: Any) -> bool:
    """Whether all are built-in numbers: others, plain dataclasses too, compare as they like."""
    return all(type(value) in (int, float) for value in values)


def is_plain(value: Any) -> bool:
    """Whether a value is plain data already, so that nobody else can change it."""
    kind = type(value)
    if kind in _SIMPLE:
        return True
    if kind is tuple:
        return all(map(is_plain, value))
    if kind is np.ndarray:
        return value.dtype == np.float64 and not value.flags.writeable and value.base is None
    names = _names_in(kind)  # type: ignore[arg-type]
    return names is not None and all(is_plain(getattr(value, name)) for name in names)


@cache
def _names_in(kind: Any) -> tuple[str, ...] | None:
    """Names of the fields of a frozen dataclass; None for any other class."""
    frozen = is_dataclass(kind) and getattr(kind, "__dataclass_params__").frozen  # noqa: B009
    return tuple(item.name for item in fields_of(kind)) if frozen else None
