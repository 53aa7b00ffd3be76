"""What a model holds, as a tree of plain values: nothing in it is called, no type of its is made.

Numbers, texts, arrays, lists and mappings stand for themselves. Every other object is a
:class:`Thing`: the name of its type, and its attributes.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..text import one_line

#: Types that stand for themselves.
SCALARS = (type(None), bool, int, float, str, Fraction)
_KEYS: dict[str, Callable[[str], Any]] = {
    "str": str,
    # Keys that NumPy made, as of labels that came from its unique().
    "str_": str,
    "int": int,
    "int32": int,
    "int64": int,
    "float": float,
    "float64": float,
    "bool": lambda text: text in ("True", "true"),
}
# The newest layout of skops files that is read here.
_PROTOCOL = 2
# What each node may say of itself: longer texts, and further keys, could hold private rows.
_WORDS = {
    "__class__": re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}|<lambda>"),
    "__module__": re.compile(r"(?=.{1,100}\Z)[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*"),
    "__loader__": re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}"),
}
_ITSELF = {*_WORDS, "__id__"}
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+]{0,39}")
_FILE = re.compile(r"[A-Za-z0-9_-]{1,60}\.npy")
#: Nodes that are read, and what each holds beside that.
_HELD = {
    "JsonNode": {"content", "is_json"},
    "ListNode": {"content"},
    "SetNode": {"content"},
    "TupleNode": {"content"},
    "DictNode": {"content", "key_types"},
    "NdArrayNode": {"type", "file", "content", "shape"},
    "ObjectNode": {"content"},
}
#: Types that stand for themselves; a type of another name is no plain value.
_PLAIN = {
    "ListNode": ("builtins.list",),
    "SetNode": ("builtins.set", "builtins.frozenset"),
    "TupleNode": ("builtins.tuple",),
    "DictNode": ("builtins.dict", "collections.OrderedDict"),
}
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
    is_type : bool
        Whether a file says that it is the type itself.
    """

    kind: str
    attributes: Mapping[str, Any]
    own: Any = None
    is_type: bool = False

    @property
    def name(self) -> str:
        """Name of its type without the module."""
        return self.kind.rpartition(".")[2]


def tree_of(value: Any) -> Any:
    """The tree of an object in memory; attributes of a :class:`Thing` are left as they are."""
    kind = type(value)
    if isinstance(value, Thing) or kind in SCALARS or isinstance(value, np.generic):
        return value
    if kind is np.ndarray and value.dtype != object and not value.flags.writeable:
        # A file may name one array many times: copies would take memory without end.
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
    if type(schema) is not dict:
        raise ValueError("its schema.json is no description of a model")
    schema = dict(schema)
    protocol, version = schema.pop("protocol", None), schema.pop("_skops_version", None)
    if type(protocol) is not int or not 0 <= protocol <= _PROTOCOL:
        shown = one_line(repr(protocol), 60) if type(protocol) is int else "of another kind"
        raise ValueError(f"it has the layout {shown}; those from 0 to {_PROTOCOL} are read")
    if not (version is None or _is(_VERSION, version)):
        raise ValueError("its schema.json states no version of skops")
    return _Skops(arrays).value(schema)


class _Skops:
    def __init__(self, arrays: Callable[[str], NDArray[Any]]) -> None:
        self._arrays = arrays

    def value(self, node: Any) -> Any:
        """The value of a node; one of a kind that is not read is an empty thing."""
        kind, loader = _checked(node), node["__loader__"]
        content = node.get("content")
        if loader == "JsonNode":
            return _scalar(node)
        if loader in _PLAIN and kind in _PLAIN[loader]:
            if loader == "DictNode":
                return self._mapping(node)
            values = [self.value(item) for item in content]
            return tuple(values) if loader == "TupleNode" else values
        if loader == "NdArrayNode" and _is_of_numpy(node):
            return self._array(node)
        if loader == "ObjectNode":
            held = {} if content is None else self.value(content)
            if not (isinstance(held, dict) and all(type(name) is str for name in held)):
                raise ValueError("an object holds no attributes by name")
            return Thing(kind, held)
        # What nobody looks at must not pass for an object without attributes.
        held = {"unread": Thing(loader, {})} if node.keys() - _ITSELF else {}
        return Thing(kind, held, is_type=loader == "TypeNode")

    def _mapping(self, node: Any) -> dict[Any, Any]:
        kinds = self.value(node["key_types"])
        pairs = zip(kinds, node["content"].items(), strict=True)
        return {_key(kind, key): self.value(item) for kind, (key, item) in pairs}

    def _array(self, node: Any) -> Any:
        known = {"json": {"type", "content", "shape"}, "numpy": {"type", "file"}}
        if node.keys() - _ITSELF != known.get(node["type"]):
            raise ValueError("an array of its schema.json holds more than its values")
        if node["type"] == "json":
            shape = self.value(node["shape"])
            items = [self.value(item) for item in node["content"]]
            if len(shape) != 1 or shape != (len(items),):
                raise ValueError("an array of objects is no list")
            return _objects(items)
        if not _is(_FILE, node["file"]):
            raise ValueError("an array of its schema.json is in a file of an odd name")
        array = self._arrays(node["file"])
        return array if node["__class__"] == "ndarray" else array[()]


def _is(pattern: re.Pattern[str], value: Any) -> bool:
    return type(value) is str and pattern.fullmatch(value) is not None


def _checked(node: Any) -> str:
    """Module and name of a node's type; a ValueError if it says more than skops writes."""
    if type(node) is not dict:
        raise ValueError("a node of its schema.json is none")
    for name, pattern in _WORDS.items():
        if not _is(pattern, node.get(name)):
            raise ValueError(f"{name} of a node of its schema.json is no name")
    number = node.get("__id__", 0)
    if type(number) is not int or not 0 <= number < 2**64:
        raise ValueError("__id__ of a node of its schema.json is no number of an object")
    further = node.keys() - _ITSELF - _HELD.get(node["__loader__"], node.keys())
    if further:
        raise ValueError(f"a node of its schema.json holds {one_line(min(further), 60)!r} as well")
    return f"{node['__module__']}.{node['__class__']}"


def _scalar(node: Any) -> Any:
    """A number or text, written as skops does: other digits and spaces could hold anything."""
    found = json.loads(node["content"])
    if type(found) not in SCALARS:
        raise ValueError("a number or text is something else")
    own = (node["__module__"], node["__class__"], node.get("is_json", True))
    if json.dumps(found) != node["content"] or own != ("builtins", "str", True):
        raise ValueError("a number or text of its schema.json is not written as skops does")
    return found


def _key(kind: Thing, text: str) -> Any:
    """The key of a mapping, under the same condition."""
    own = kind.kind in (f"builtins.{kind.name}", f"numpy.{kind.name}") and not kind.attributes
    own = own and kind.is_type
    # Python's own errors would show the text.
    with contextlib.suppress(KeyError, ValueError):
        key = _KEYS[kind.name](text)
        if own and text in (key, str(key), json.dumps(key)):
            return key
    raise ValueError("a key of its schema.json is not written as skops does")


def _is_of_numpy(node: Any) -> bool:
    name = node["__class__"]
    kind = vars(np).get(name, vars(np).get(f"{name}_"))
    own = isinstance(kind, type) and issubclass(kind, (np.ndarray, np.generic))
    return own and node["__module__"] == "numpy"


def _objects(items: Iterable[Any]) -> NDArray[Any]:
    """A list as an array of objects, whatever its items are."""
    return np.array([*items, None], dtype=object)[:-1]


def array_of(body: bytes) -> NDArray[Any]:
    """An array in NumPy's file format, of numbers, texts or dates in this machine's byte order.

    It is read-only, and shares the memory of the file. NumPy's own reader takes its header for
    Python, and compiles it.
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
    if array.dtype.kind == "U":
        codes = array.view(f"{array.dtype.str[0]}u4")
        # No text holds such a character: Python fails on it wherever it is shown.
        if np.any(codes > 0x10FFFF) or np.any((codes >= 0xD800) & (codes < 0xE000)):
            raise ValueError("an array of texts holds what is no character")
    if not array.flags.aligned:
        array = array.copy()
        array.flags.writeable = False
    return array.reshape(shape, order="F" if fortran == b"True" else "C")
