"""What a model holds, as a tree of plain values: nothing in it is called, no type of its is made.

Numbers, texts, arrays, lists and mappings stand for themselves. Every other object is a
:class:`Thing`: the name of its type, and its attributes.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Types that stand for themselves.
SCALARS = (type(None), bool, int, float, str, Fraction)
_KEYS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "int64": int,
    "float": float,
    "float64": float,
    "bool": lambda text: text in ("True", "true"),
}
# The newest layout of skops files that is read here.
_PROTOCOL = 2
_ARRAY_HEADER = re.compile(
    rb"\{'descr': '([<|=]?[biufUMm?][0-9]{0,6}(?:\[[0-9]{0,4}[a-zA-Z]{1,2}\])?)', "
    rb"'fortran_order': (True|False), 'shape': \(((?:[0-9]{1,12}(?:, ?|,?(?=\))))*)\), \} *\n"
)


@dataclass(frozen=True)
class Thing:
    """An object that does not stand for itself.

    Attributes
    ----------
    kind : str
        Module and name of its type.
    attributes : mapping
        What it holds, by name.
    own : object
        The object itself where it was handed over in memory; None where a file holds it.
    """

    kind: str
    attributes: Mapping[str, Any]
    own: Any = None

    @property
    def name(self) -> str:
        """Name of its type without the module."""
        return self.kind.rpartition(".")[2]


def tree_of(value: Any) -> Any:
    """The tree of an object in memory; attributes of a :class:`Thing` are left as they are."""
    kind = type(value)
    if isinstance(value, Thing) or kind in SCALARS or isinstance(value, np.generic):
        return value
    if isinstance(value, np.ndarray) or kind.__module__.startswith("pandas."):
        array = np.array(value)
        if array.dtype != object:
            return array
        return _objects(map(tree_of, array.ravel())).reshape(array.shape)
    if kind in (list, tuple):
        return kind(map(tree_of, value))
    if kind in (set, frozenset, range):
        return list(map(tree_of, value))
    if kind is dict:
        return {tree_of(key): tree_of(item) for key, item in value.items()}
    held = vars(value) if hasattr(value, "__dict__") and not callable(value) else {}
    return Thing(f"{kind.__module__}.{kind.__qualname__}", held, own=value)


def tree_of_skops(schema: Any, arrays: Callable[[str], NDArray[Any]]) -> Any:
    """The tree of a skops file: of its ``schema.json``, and of what reads an array by name."""
    protocol = schema.get("protocol")
    if type(protocol) is not int or not 0 <= protocol <= _PROTOCOL:
        raise ValueError(f"it has the layout {protocol!r}; those from 0 to {_PROTOCOL} are read")
    return _Skops(arrays).value(schema)


class _Skops:
    def __init__(self, arrays: Callable[[str], NDArray[Any]]) -> None:
        self._arrays = arrays

    def value(self, node: Any) -> Any:
        """The value of a node; one of a kind that is not read is an empty thing."""
        content = node.get("content")
        match node["__loader__"]:
            case "JsonNode":
                found = json.loads(content)
                if type(found) not in SCALARS:
                    raise ValueError("a number or text is something else")
                return found
            case "ListNode" | "SetNode":
                return [self.value(item) for item in content]
            case "TupleNode":
                return tuple(self.value(item) for item in content)
            case "DictNode":
                return self._mapping(node)
            case "NdArrayNode":
                return self._array(node)
            case "ObjectNode":
                held = {} if content is None else self.value(content)
                if not (isinstance(held, dict) and all(type(name) is str for name in held)):
                    raise ValueError("an object holds no attributes by name")
                return Thing(_kind(node), held)
        return Thing(_kind(node), {})

    def _mapping(self, node: Any) -> dict[Any, Any]:
        kinds = [item["__class__"] for item in node["key_types"]["content"]]
        pairs = zip(kinds, node["content"].items(), strict=True)
        return {_KEYS[kind](key): self.value(item) for kind, (key, item) in pairs}

    def _array(self, node: Any) -> Any:
        if node["type"] == "json":
            shape = self.value(node["shape"])
            items = [self.value(item) for item in node["content"]]
            if len(shape) != 1 or shape != (len(items),):
                raise ValueError("an array of objects is no list")
            return _objects(items)
        array = self._arrays(node["file"])
        return array if node["__class__"] == "ndarray" else array[()]


def _objects(items: Iterable[Any]) -> NDArray[Any]:
    """A list as an array of objects, whatever its items are."""
    return np.array([*items, None], dtype=object)[:-1]


def _kind(node: Any) -> str:
    return f"{node['__module__']}.{node['__class__']}"


def array_of(body: bytes) -> NDArray[Any]:
    """An array in NumPy's file format, of numbers, texts or dates in this machine's byte order.

    NumPy's own reader takes its header for Python, and compiles it.
    """
    if body[:6] != b"\x93NUMPY" or body[6:8] not in (b"\1\0", b"\2\0"):
        raise ValueError("an array is not in NumPy's format")
    width = 2 if body[6] == 1 else 4
    end = 8 + width + int.from_bytes(body[8 : 8 + width], "little")
    header = _ARRAY_HEADER.fullmatch(body[8 + width : end])
    if header is None:
        raise ValueError("an array holds no plain numbers or texts")
    kind, fortran, lengths = header.groups()
    shape = [int(length) for length in lengths.replace(b" ", b"").split(b",") if length]
    array = np.frombuffer(body, dtype=np.dtype(kind.decode()), offset=end)
    return array.reshape(shape, order="F" if fortran == b"True" else "C").copy(order="A")
