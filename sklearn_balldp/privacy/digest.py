"""Fingerprints: of released parameters, and of a record."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def parameters_digest(parameters: Mapping[str, ArrayLike]) -> str:
    """SHA-256 of named arrays, in a layout that anyone can compute again.

    The arrays are taken in the order of their names. Each adds one line of JSON, ``[name, type,
    shape]`` with a line feed, and then its values in C order: little-endian float64 ("f8"), int64
    ("i8") or bytes 0 and 1 ("b1"); labels that are text add the JSON list of them in UTF-8 ("str").
    """
    digest = hashlib.sha256()
    for name in sorted(parameters):
        kind, shape, body = _layout(np.asarray(parameters[name]))
        digest.update(json.dumps([name, kind, shape]).encode() + b"\n" + body)
    return digest.hexdigest()


def _layout(values: np.ndarray[Any, Any]) -> tuple[str, list[int], bytes]:
    kinds = {"f": "f8", "i": "i8", "u": "i8", "b": "b1"}
    kind = kinds.get(values.dtype.kind)
    if kind is None:
        text = json.dumps([str(value) for value in values.ravel().tolist()], ensure_ascii=False)
        return "str", list(values.shape), text.encode()
    return kind, list(values.shape), values.astype("<" + kind).tobytes()


def record_digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of a record's JSON with sorted keys, which detects accidental edits.

    Whole numbers are hashed as floats, because some JSON tools write floats as whole numbers. It is
    no signature: someone who edits a record on purpose can compute it again.
    """
    return hashlib.sha256(json.dumps(_floats(record), sort_keys=True).encode()).hexdigest()


def _floats(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _floats(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_floats(item) for item in value]
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) if whole and abs(value) < 2**53 else value
