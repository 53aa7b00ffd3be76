"""Array functions that need different code for NumPy and for libraries on a device."""

from typing import Any

import numpy as np
from scipy.special import expit

# Longest axis for which a copy to column order makes a maximum faster.
_SHORT = 64


def namespace(array: Any) -> Any:
    """Functions of the array API standard for this array."""
    if isinstance(array, np.ndarray):
        return np
    from array_api_compat import array_namespace

    return array_namespace(array)


def on_host(array: Any) -> Any:
    """Copy an array of another library to NumPy; return anything else unchanged."""
    if isinstance(array, (np.ndarray, np.generic, int, float)) or not hasattr(array, "device"):
        return array
    for copied in ("cpu", "get"):
        # PyTorch has cpu(), CuPy has get().
        if hasattr(array, copied):
            array = getattr(array, copied)()
    return np.asarray(array)


def by_columns(values: Any) -> Any:
    """The same values; NumPy arrays in column (Fortran) order.

    NumPy processes many short rows several times as fast in that order.
    """
    return np.asfortranarray(values) if isinstance(values, np.ndarray) else values


def one_hot(codes: Any, n_classes: int, dtype: Any) -> Any:
    """One in the column of each record's class, and zero elsewhere."""
    xp = namespace(codes)
    columns = xp.arange(n_classes, dtype=codes.dtype, device=codes.device)
    return xp.astype(codes[:, None] == columns[None, :], dtype)


def signs(codes: Any, n_columns: int, dtype: Any) -> Any:
    """1 in the column of each record's class, else -1; a single column is that of class 1."""
    if n_columns == 1:
        return namespace(codes).astype(2 * codes - 1, dtype)[:, None]
    if isinstance(codes, np.ndarray):
        sign = np.full((len(codes), n_columns), -1.0, dtype=dtype)
        sign[np.arange(len(codes)), codes] = 1.0
        return sign
    return 2.0 * one_hot(codes, n_columns, dtype) - 1.0


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
    """max(x, 0), which keeps NaN; values may be overwritten."""
    if isinstance(values, np.ndarray):
        return np.maximum(values, 0.0, out=values)
    return namespace(values).where(values < 0.0, 0.0, values)


def exponential(values: Any) -> Any:
    """exp(x); values may be overwritten."""
    if isinstance(values, np.ndarray):
        return np.exp(values, out=values)
    return namespace(values).exp(values)


def largest(values: Any) -> Any:
    """The largest value along the last axis; the axis stays, with length one."""
    if isinstance(values, np.ndarray) and values.shape[-1] <= _SHORT:
        # NumPy vectorises a maximum across rows, but not one along a short axis.
        return np.ascontiguousarray(values.T).max(axis=0).T[..., None]
    return namespace(values).max(values, axis=-1, keepdims=True)


def subtract_one_hot(values: Any, codes: Any) -> Any:
    """Subtract one at each record's class along the last axis; values may be overwritten."""
    if isinstance(values, np.ndarray):
        # Two adjacent index arrays take half as long as two with a slice between them.
        every = values.swapaxes(1, -1)
        every[np.arange(len(values)), codes] -= 1.0
        return values
    own = one_hot(codes, values.shape[-1], values.dtype)
    return values - (own if values.ndim == 2 else own[:, None, :])


def at_labels(values: Any, codes: Any) -> Any:
    """The value in each record's class."""
    if isinstance(values, np.ndarray):
        return values[np.arange(len(values)), codes]
    xp = namespace(values)
    return xp.sum(values * one_hot(codes, values.shape[1], values.dtype), axis=1)
