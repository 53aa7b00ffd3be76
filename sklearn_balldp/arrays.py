"""Arrays of NumPy, or of another library on a device; what each does in a way of its own."""

from typing import Any

import numpy as np
from scipy.special import expit

# Values along an axis up to which a copy across it pays.
_SHORT = 64


def namespace(array: Any) -> Any:
    """Functions of the array API standard for this array."""
    if isinstance(array, np.ndarray):
        return np
    from array_api_compat import array_namespace

    return array_namespace(array)


def on_host(array: Any) -> Any:
    """An array of another library as one of NumPy; all else as it is."""
    if isinstance(array, (np.ndarray, np.generic, int, float)) or not hasattr(array, "device"):
        return array
    for copied in ("cpu", "get"):
        # PyTorch's way, and that of CuPy.
        if hasattr(array, copied):
            array = getattr(array, copied)()
    return np.asarray(array)


def by_columns(values: Any) -> Any:
    """The same values, a column after the other where they are of NumPy.

    It computes of short rows several times as fast if the same column of the next one is next.
    """
    return np.asfortranarray(values) if isinstance(values, np.ndarray) else values


def indicator(codes: Any, n_classes: int, dtype: Any) -> Any:
    """One in the column of each record's class, and zero elsewhere."""
    xp = namespace(codes)
    columns = xp.arange(n_classes, dtype=codes.dtype, device=codes.device)
    return xp.astype(codes[:, None] == columns[None, :], dtype)


def signs(codes: Any, n_columns: int, dtype: Any) -> Any:
    """1 in the column of each record's class and -1 elsewhere; of one column, 1 for class 1."""
    if n_columns == 1:
        return namespace(codes).astype(2 * codes - 1, dtype)[:, None]
    if isinstance(codes, np.ndarray):
        sign = np.full((len(codes), n_columns), -1.0, dtype=dtype)
        sign[np.arange(len(codes)), codes] = 1.0
        return sign
    return 2.0 * indicator(codes, n_columns, dtype) - 1.0


def sigmoid(values: Any) -> Any:
    """1 / (1 + exp(-x)), exact to rounding; values may be overwritten."""
    if isinstance(values, np.ndarray):
        return expit(values, out=values)
    xp = namespace(values)
    small = xp.exp(-xp.abs(values))
    return xp.where(values >= 0.0, 1.0 / (1.0 + small), small / (1.0 + small))


def softplus(values: Any) -> Any:
    """log(1 + exp(x)), exact to rounding."""
    if isinstance(values, np.ndarray):
        return np.logaddexp(0.0, values)
    xp = namespace(values)
    return xp.logaddexp(xp.zeros_like(values), values)


def positive(values: Any) -> Any:
    """The larger of x and 0, NaN where x is; values may be overwritten."""
    if isinstance(values, np.ndarray):
        return np.maximum(values, 0.0, out=values)
    return namespace(values).where(values < 0.0, 0.0, values)


def exponential(values: Any) -> Any:
    """exp(x); values may be overwritten."""
    if isinstance(values, np.ndarray):
        return np.exp(values, out=values)
    return namespace(values).exp(values)


def largest(values: Any) -> Any:
    """The largest value along the last axis, which is kept with length one."""
    if isinstance(values, np.ndarray) and values.shape[-1] <= _SHORT:
        # Across rows, NumPy compares several values at once; along a short axis it does not.
        return np.ascontiguousarray(values.T).max(axis=0).T[..., None]
    return namespace(values).max(values, axis=-1, keepdims=True)


def less_labels(values: Any, codes: Any) -> Any:
    """Values less one where the last axis has the record's class; they may be overwritten."""
    if isinstance(values, np.ndarray):
        # Two indices take half as long as those with a slice between them.
        every = values.swapaxes(1, -1)
        every[np.arange(len(values)), codes] -= 1.0
        return values
    own = indicator(codes, values.shape[-1], values.dtype)
    return values - (own if values.ndim == 2 else own[:, None, :])


def of_labels(values: Any, codes: Any) -> Any:
    """The value in each record's class."""
    if isinstance(values, np.ndarray):
        return values[np.arange(len(values)), codes]
    xp = namespace(values)
    return xp.sum(values * indicator(codes, values.shape[1], values.dtype), axis=1)
