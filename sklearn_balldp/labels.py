"""Labels of classes: which of them a published model can hold, and how its file spells them."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Characters of a label, at most: a longer one is a text that somebody wrote.
MAX_LABEL = 1000
_TYPES = re.compile(r"text|bool|u?int(8|16|32|64)|float(16|32|64)|datetime64\[[a-zA-Z]{1,2}\]")


def native(labels: Any) -> Any:
    """Labels as NumPy computes with them; nullable whole numbers would become floats."""
    of_frame = getattr(labels, "ndim", 0) == 2 and hasattr(labels, "iloc") and labels.shape[1] == 1
    dtype = labels.dtypes.iloc[0] if of_frame else getattr(labels, "dtype", None)
    kind = getattr(dtype, "kind", "")
    if kind == "S":
        raise TypeError("labels are of type bytes, which no model holds: take y.astype(str).")
    if kind == "T":
        # NumPy's texts of any width, of which scikit-learn takes none.
        return labels.astype(object)
    if isinstance(dtype, np.dtype):
        return labels if dtype.isnative else np.asarray(labels).astype(dtype.newbyteorder("="))
    if kind in ("b", "i", "u") and (numpy_dtype := getattr(dtype, "numpy_dtype", None)) is not None:
        return np.asarray(labels).astype(numpy_dtype)
    return labels


def type_of(labels: NDArray[Any]) -> str | None:
    """What labels are of, as a file says it; None if no file holds them."""
    texts = labels.dtype.kind == "O" and all(isinstance(label, str) for label in labels.ravel())
    name = "text" if texts or labels.dtype.kind == "U" else str(labels.dtype)
    return name if _TYPES.fullmatch(name) else None


def as_json(labels: NDArray[Any]) -> dict[str, Any]:
    """Labels as JSON: numbers, truth values, texts, or days as texts."""
    texts = labels.dtype.kind in "UM"
    values = labels.astype(str).tolist() if texts else labels.tolist()
    return {"type": type_of(labels), "values": values}


def from_json(described: Any) -> NDArray[Any]:
    """The labels that were described so; a ValueError if they are of another type, or too long."""
    name, values = described["type"], described["values"]
    if not _TYPES.fullmatch(name):
        raise ValueError("labels are of another type")
    if any(isinstance(value, str) and len(value) > MAX_LABEL for value in values):
        raise ValueError("a label is too long")
    return np.array(values, dtype=str if name == "text" else name)


def fault_of(labels: NDArray[Any]) -> str | None:
    """Why no file holds these classes in this order, behind "labels"; None if one does."""
    if labels.ndim != 1 or type_of(labels) is None:
        first = labels.flat[0] if labels.dtype == object and labels.size else labels.dtype
        kind = first.name if isinstance(first, np.dtype) else type(first).__name__
        return f"of type {kind}, where a model holds numbers, texts and days (y.astype(str))"
    described = as_json(labels)
    try:
        "".join(value for value in described["values"] if isinstance(value, str)).encode()
        again = from_json(described)
    except UnicodeEncodeError:
        return "with characters that are none (lone surrogates): replace them"
    except ValueError:
        return f"of more than {MAX_LABEL} characters: name the classes"
    if not np.array_equal(again, labels):
        return "that are others once they are written, such as texts that end in NUL: rename them"
    return None if bool((labels[1:] > labels[:-1]).all()) else "that are not in order, once each"
