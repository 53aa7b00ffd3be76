"""Checks of private rows whose errors quote no cell, and fits that set all attributes or none."""

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from ._parameters import check_no_mask
from .labels import native
from .rows import REFUSED, check_sizes, in_memory, rows_outside


def caller_level() -> int:
    """``stacklevel`` of a warning for the code that called this package, or a search."""
    level, frame = 1, sys._getframe(1)
    between = {__name__.split(".")[0], "sklearn", "joblib"}
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in between:
        level, frame = level + 1, frame.f_back
    return level


#: float64 first: integer input becomes float64; the other two are read in row blocks.
DTYPES = (np.float64, np.float32, np.float16)
# Messages of scikit-learn that hold shapes, names and types alone. All others may quote cells.
_QUOTES_NOTHING = re.compile(
    r"Found (array with|input variables)|X has \d+ features, but|The feature names should match|"
    r"Feature names |(This \w+ estimator )?requires y to be passed|y should be a 1d array|"
    r"Input [Xy] contains |"
    r"float\(\) argument must be|"
    r"Expected a 2-dimensional container|Input contains NaN$"
)
# What else its messages begin with, as a pattern, and what is said instead.
_REMEDIES = {
    "setting an array element with a sequence": (
        "X holds lists in its cells, such as a column of embeddings: make rows of them "
        "(numpy.stack(frame[COLUMN]); pyarrow, polars and Hugging Face columns by to_list() "
        "first)."
    ),
    "Expected 2D array": (
        "Expected 2D array for X, got another shape. Reshape your data: one record per row."
    ),
    "Sparse data was passed": (
        "X is sparse, and a head takes dense rows. Of texts make embeddings, or hash their words: "
        "make_pipeline(HashingVectorizer(n_features=512), sklearn_balldp.pipelines.DenseRows(), "
        "head). Weights of TF-IDF are learned from the private texts, and no dense form hides that."
    ),
    "Complex data not supported": "Complex data not supported; pass real rows.",
    r"Can't call numpy\(\) on Tensor that requires grad": (
        "X or y is a tensor that requires grad; pass X.detach(), y.detach()."
    ),
    "(?s:.*)unsupported ScalarType BFloat16": (
        "X or y is a tensor of type bfloat16; pass X.float(), y.long()."
    ),
    "could not convert string": "X holds text; encode it into numbers first.",
}


def validated(
    estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool = True, whole: bool = False
) -> Any:
    """Rows (and labels) by scikit-learn's ``validate_data``; no error quotes a cell.

    Rows in a store or in Dask stay there, unless the ``whole`` of them shall be in memory.
    """
    _check_kind(X)
    y = complete_labels(y)
    check_no_mask("X", X)
    source = rows_outside(X)
    if source is not None:
        # A stand-in of this shape and type passes through every check that reads no numbers.
        stand_in = np.broadcast_to(np.zeros((), dtype=source.dtype), source.shape)
        checked = validated(estimator, stand_in, y, reset=reset)
        rows = source.whole() if whole else source
        return (rows, checked[1]) if isinstance(checked, tuple) else rows
    X = in_memory("X", X)
    if isinstance(X, np.ndarray) and X.dtype == np.longdouble and X.ndim == 2:
        # Conversion to float64 would make rows of zeros of the smallest ones.
        with all_finite():
            check_sizes(X, getattr(estimator, "domain", "ball"))
    kind: type[Exception] = ValueError
    try:
        return validate_data(estimator, X, y, dtype=DTYPES, ensure_all_finite=False, reset=reset)
    except Exception as error:
        kind, text = type(error), str(error)
    # Raise outside of the handler: the original error would be the context, and quote cells.
    raise _quoting_nothing(kind, text)


def _check_kind(X: Any) -> None:
    """Raise a ValueError for rows of a kind that no pass takes."""
    whole = {
        Path: "a path: read its rows first (numpy.load, pyarrow.parquet, zarr.open_array)",
        str: "a text: pass rows, or read a file first (numpy.load, pyarrow.parquet)",
        Mapping: "a mapping: pass a table or an array of its columns",
        Iterator: "a generator, which can be read once only: pass a list or an array",
        np.matrix: "a numpy.matrix: pass numpy.asarray(X)",
    }
    for kind, what in whole.items():
        if isinstance(X, kind) and (kind is np.matrix or not hasattr(X, "shape")):
            raise ValueError(f"X is {what}.")
    if hasattr(X, "collect") and not hasattr(X, "shape"):
        raise ValueError("X is a table that was not computed; pass X.collect().")
    types = getattr(X, "dtypes", None)
    for dtype in [getattr(X, "dtype", None)] if types is None else list(types):
        if str(dtype).lower().startswith(("date", "timedelta", "duration", "time")):
            raise ValueError(
                "X holds dates or durations; encode them into numbers of one scale first."
            )


def complete_labels(y: Any) -> Any:
    """Labels in this process; a ValueError for missing ones, and such as NumPy cannot read."""
    y = in_memory("y", y)
    # Labels that are not passed at all are scikit-learn's to refuse.
    if y is not None:
        check_complete("y", y, "drop those records, or give them another label")
    if isinstance(y, (list, tuple)) and len({*map(_kind_of, y)}) > 1:
        raise ValueError(
            "y holds labels of several types, of which one would change all others: write them all "
            "as texts, or all as numbers."
        )
    return native(y)


def _kind_of(label: Any) -> type | None:
    """Texts, bytes and truth values are kinds of their own; None is any other, or missing."""
    kinds = (str, bytes, bool, np.bool_)
    return next((bool if k is np.bool_ else k for k in kinds if isinstance(label, k)), None)


def check_complete(name: str, values: Any, remedy: str) -> None:
    """Raise a ValueError if a label or an owner is missing, or under a mask."""
    check_no_mask(name, values)
    if _some_missing(values):
        raise ValueError(f"{name} holds missing values; {remedy}.")


def _some_missing(values: Any) -> bool:
    """Whether an array, a table or a list holds a missing value."""
    array: NDArray[Any] = np.empty(0)
    # What NumPy cannot read is refused by others, with an error that says so.
    with contextlib.suppress(Exception):
        array = np.asarray(values)
        if array.dtype.kind in "SU" and not hasattr(values, "__array__"):
            # In a list, a NaN beside texts would become the text "nan".
            array = np.asarray(values, dtype=object)
    if array.dtype.kind in "biuSU":
        return False
    if array.dtype.kind not in "OT":
        return bool(array.dtype.kind in "fcmM" and (array != array).any())
    # Texts of variable width spell a missing one by an object of their type.
    nothing = getattr(array.dtype, "na_object", None)
    return any(is_missing(value, nothing) for value in array.astype(object).flat)


def is_missing(value: Any, nothing: Any = None) -> bool:
    """Whether an object stands for a missing value: of NaN, NaT and NA none equals itself."""
    if value is None or value is np.ma.masked or value is nothing:
        return True
    try:
        return bool(value != value) or (isinstance(nothing, str) and value == nothing)
    except (TypeError, ArithmeticError):
        return True  # NA has no truth value, and a signalling NaN is not compared
    except ValueError:
        return False  # an array, which is no label


def _quoting_nothing(kind: type[Exception], text: str) -> Exception:
    """An error like scikit-learn's whose message quotes no cell."""
    if _QUOTES_NOTHING.match(text):
        return kind(text)
    for beginning, remedy in _REMEDIES.items():
        if re.match(beginning, text):
            return ValueError(remedy)
    return ValueError(
        f"X or y could not be read ({kind.__name__}): pass rows of real numbers, one record "
        "per row, and one label for each."
    )


@contextlib.contextmanager
def all_finite() -> Iterator[None]:
    """Turn the FloatingPointError for rows that are refused into a ValueError."""
    try:
        yield
        return
    except FloatingPointError:
        pass
    raise_alone(ValueError(f"Input X contains {REFUSED}; drop those rows, or repair them."))


def raise_alone(error: Exception) -> NoReturn:
    """Raise an error without the one that is handled meanwhile, whose frames may hold rows.

    The body of a ``with`` is left by an error: what its manager raises has that one as its context.
    """
    try:
        raise error
    finally:
        error.__context__ = None


@contextlib.contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Replace every fitted attribute inside; after an error none remains, new or old."""
    _forget(estimator)
    try:
        yield
    except BaseException:
        # Validation may already have set n_features_in_.
        _forget(estimator)
        raise


def _forget(estimator: Any) -> None:
    for name in [name for name in vars(estimator) if name.endswith("_") and name[:2] != "__"]:
        delattr(estimator, name)
