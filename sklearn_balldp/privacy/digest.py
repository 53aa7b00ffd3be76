"""Fingerprints: of released parameters, and of a record."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def parameters_digest(parameters: Mapping[str, ArrayLike]) -> str:
    """SHA-256 of named arrays, in a layout that anyone can compute again ("Reading a release").

    In the order of their names each adds one line of JSON, ``[name, type, shape]`` with a line
    feed, and its values in C order: little-endian "f8", "i8", "u8" or "b1"; texts as a JSON list
    ("str"); all others as one of ``[type, text]``.
    """
    digest = hashlib.sha256()
    for name in sorted(parameters):
        kind, shape, body = _layout(np.asarray(parameters[name]))
        digest.update(json.dumps([name, kind, shape]).encode() + b"\n" + body)
    return digest.hexdigest()


def _layout(values: np.ndarray[Any, Any]) -> tuple[str, list[int], bytes]:
    shape, kind = list(values.shape), {"f": "f8", "i": "i8", "b": "b1"}.get(values.dtype.kind)
    if values.dtype.kind == "u":
        kind = "i8" if values.max(initial=0) < 2**63 else "u8"
    if kind is not None:
        return kind, shape, values.astype("<" + kind).tobytes()
    items = [v.item() if isinstance(v, np.generic) else v for v in values.ravel().tolist()]
    if all(isinstance(item, str) for item in items):
        return "str", shape, json.dumps(list(map(str, items)), ensure_ascii=False).encode()
    typed = [[type(item).__name__, str(item)] for item in items]
    return values.dtype.name, shape, json.dumps(typed, ensure_ascii=False).encode()


def record_digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of a record's JSON with sorted keys, against accidental edits: it is no signature.

    Whole numbers are hashed as floats, because some JSON tools write floats as whole numbers.
    """
    return hashlib.sha256(json.dumps(_floats(record), sort_keys=True).encode()).hexdigest()


def _floats(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _floats(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_floats(item) for item in value]
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and abs(value) < 2**53 else value
