"""A cell of a table as a value. The cell is all that its value follows from.

Whatever library holds the column, and whatever its other cells are: a type that a library chose
because of another cell changes no value.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .._validation import is_missing
from ..names import number_of, trimmed

#: A number that is whole is an int, unless it may have been rounded; None is a missing cell.
Value: TypeAlias = str | int | float | date | None

# Types that hold numbers of single and of half precision, as their libraries call them.
_HALF, _SINGLE = re.compile("(?<!b)float16|halffloat"), re.compile(r"float32|(?<![a-z])float(?!\d)")
# How libraries make a list of a column.
_LISTS = ("to_pylist", "to_list", "tolist")
#: From where on a float that is whole may have been another whole number.
_ROUNDED: dict[type, float] = {np.float16: 2.0**11, np.float32: 2.0**24}


def value_of(cell: Any, decimal: str = "") -> Value:
    """What a cell says; a TypeError, or a UnicodeError, if it is no cell of a table.

    A number is told by its value, as a text too, and in single precision by the shortest decimal
    that gives it back. True and false are texts. A time is its day, in its zone. A text is in
    Unicode's composed form, without what is not seen at its ends.

    Parameters
    ----------
    cell : object
        A value of Python, NumPy or pandas.
    decimal : {"", ",", "."}, default=""
        The decimal mark of texts that may group thousands by the other mark, blanks or apostrophes.
    """
    if is_missing(cell):
        return None
    if isinstance(cell, (bool, np.bool_)):
        return "true" if cell else "false"
    if isinstance(cell, (int, np.integer)):
        return int(cell)
    if isinstance(cell, (float, np.floating)):
        double = float(cell) if isinstance(cell, float) else float(str(cell))
        known = double.is_integer() and abs(double) < _ROUNDED.get(type(cell), 2.0**53)
        return int(double) if known else double
    if isinstance(cell, Decimal):
        return number_of(str(cell)) if cell.is_finite() else float(cell)
    if isinstance(cell, np.datetime64):
        cell = cell.astype("datetime64[D]").item()
    if isinstance(cell, date):
        return cell.date() if isinstance(cell, datetime) else cell
    if isinstance(cell, (str, bytes)):
        text = cell.decode() if isinstance(cell, bytes) else str.__str__(cell)
    else:
        # Text of others may tell an order or a place in memory, or the library.
        durations = (timedelta, np.timedelta64)
        if isinstance(cell, (Collection, *durations)) or type(cell).__repr__ is object.__repr__:
            raise TypeError
        text = str(cell)
    text = text.strip() if text.isascii() else trimmed(text)
    number = number_of(text, decimal) if decimal or text.isascii() else None
    if number is not None:
        return number
    return text.lower() if text.lower() in ("true", "false") else text or None


def spelled(cell: Any) -> str:
    """One text for one value: 7, 7.0, "07" and "7.00" are the same; so are True and "TRUE"."""
    value = value_of(cell)
    if value is None or isinstance(value, str):
        return value or ""
    return value.isoformat() if isinstance(value, date) else repr(value)


def column_of(X: Any, name: str) -> Any:
    """A column of a table, as its library has it; of records in mappings a list."""
    if isinstance(X, (list, tuple)) and (not X or any(isinstance(row, Mapping) for row in X)):
        for number, row in enumerate(X, 1):
            if not isinstance(row, Mapping):
                raise ValueError(
                    f"X: record {number} is no mapping from names of columns to cells; leave it "
                    "out."
                )
        if X and not any(name in row for row in X):
            raise _lacks(X, name)
        return [row.get(name) for row in X]
    check_computed(X)
    structured = getattr(getattr(X, "dtype", None), "names", None) is not None
    if not hasattr(X, "__getitem__") or (isinstance(X, np.ndarray) and not structured):
        raise ValueError(
            f"X is a {type(X).__name__}, and must hold its columns by name: pass a table of "
            "pandas, polars or pyarrow, a mapping from names to columns, or a list of mappings."
        )
    try:
        column = X[name]
    except Exception:  # each library has its own
        column = None
    if column is None:
        raise _lacks(X, name)
    holds = isinstance(getattr(column, "dtype", None), np.dtype) or isinstance(column, Sequence)
    holds = holds or any(hasattr(column, method) for method in _LISTS)
    if getattr(column, "ndim", 1) != 1 or isinstance(column, (str, bytes)) or not holds:
        raise ValueError(
            f"X has no single column {name!r}: pass one value for each record, not a "
            f"{type(column).__name__}."
        )
    return column


def _lacks(X: Any, name: str) -> ValueError:
    known = isinstance(X, (Mapping, list, tuple)) or hasattr(X, "columns")
    kind = "" if known else f" (it is a {type(X).__name__})"
    return ValueError(f"X{kind} has no column {name!r}, which is declared.")


def check_computed(X: Any) -> None:
    """Raise a ValueError for a lazy table, of which no cell is known yet."""
    method = "compute" if hasattr(X, "dask") else "collect"
    if hasattr(X, method) and (method == "compute" or not hasattr(X, "shape")):
        raise ValueError(f"X is a table that was not computed; pass X.{method}().")


def cells_of(column: Any) -> list[Any]:
    """Cells of a column of any library as Python's values; in single precision as NumPy's.

    Nothing passes through an array of another type, which would depend on the other cells.
    """
    if isinstance(column, np.ma.MaskedArray):
        hidden = np.ma.getmaskarray(column)
        return [None if h else c for c, h in zip(cells_of(column.data), hidden, strict=True)]
    dtype = getattr(column, "dtype", getattr(column, "type", None))
    if isinstance(dtype, np.dtype):
        array = np.asarray(column)
        if dtype.kind == "M":
            array = array.astype("datetime64[D]")  # a time of day is cut off
        # As Python's, other floats would be doubles, and durations numbers.
        return list(array) if dtype.kind == "m" or _is_inexact(dtype) else array.tolist()
    if str(dtype) == "category":
        held = getattr(column, "cat", column)
        known = [*cells_of(held.categories), None]
        return [known[code] for code in np.asarray(held.codes).tolist()]
    method = next((method for method in _LISTS if hasattr(column, method)), None)
    cells = list(column) if method is None else getattr(column, method)()
    kind = str(dtype).lower()
    single = np.float16 if _HALF.search(kind) else np.float32 if _SINGLE.search(kind) else None
    if single is None:
        return cells
    return [single(cell) if isinstance(cell, float) else cell for cell in cells]


def doubles_of(column: Any) -> NDArray[np.float64] | None:
    """Numbers of a column that is an array of them; None of any other."""
    dtype = getattr(column, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind not in "iuf" or np.ma.isMaskedArray(column):
        return None
    array = np.asarray(column)
    return np.asarray(array.astype(str) if _is_inexact(dtype) else array, dtype=np.float64)


def _is_inexact(dtype: np.dtype[Any]) -> bool:
    """Whether numbers are floats other than doubles, of which the shortest decimal is meant."""
    return dtype.kind == "f" and dtype.itemsize != 8
