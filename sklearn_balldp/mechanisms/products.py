"""Products of rows with columns of weights, and of residuals with rows: few at a time.

BLAS multiplies small matrices in place, but copies large ones, which takes longer.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..privacy.rounding import SUMMED

Array = NDArray[np.floating]

# Most multiplications in a product that BLAS treats as a small one.
_SMALL = 10**6


def scores_of(rows: Array, weights: Array) -> Array:
    """``rows @ weights``, of shape (n_rows, n_columns), or (n_rows,) for a vector of weights."""
    if weights.ndim == 1:
        return rows @ weights
    n_features, n_columns = weights.shape
    if SUMMED * weights.size > _SMALL:
        if rest := -n_columns % 4:
            # Columns of zeros up to a multiple of four: a remainder takes longer than these.
            # (np.pad takes as long as a tenth of the product.)
            order: Any = "F" if weights.flags.fnc else "C"
            padded = np.zeros((n_features, n_columns + rest), weights.dtype, order)
            padded[:, :n_columns] = weights
            weights = padded
        return (rows @ weights)[:, :n_columns]
    scores = np.empty((len(rows), n_columns), dtype=rows.dtype)
    for some, size in in_blocks(len(rows)):
        few = rows[some].reshape(-1, size, n_features)
        np.matmul(few, weights, out=scores[some].reshape(-1, size, n_columns))
    return scores


def block_sums(residuals: Array, rows: Array | None = None) -> Array:
    """Residuals times rows (or times one): blocks in their precision, added up in float64."""
    n_columns = residuals.shape[1]
    total = np.zeros((n_columns, 1 if rows is None else rows.shape[1]))
    for some, size in in_blocks(len(residuals)):
        blocks = residuals[some].reshape(-1, size, n_columns)
        if rows is None:
            total[:, 0] += blocks.sum(axis=1).sum(axis=0, dtype=np.float64)
        else:
            products = blocks.swapaxes(1, 2) @ rows[some].reshape(-1, size, rows.shape[1])
            total += products.sum(axis=0, dtype=np.float64)
    return total


def in_blocks(n_rows: int, size: int = SUMMED) -> Iterator[tuple[slice, int]]:
    """The rows of all whole blocks, then the remaining rows: a slice and a block size each."""
    whole = n_rows // size * size
    for some in (slice(0, whole), slice(whole, n_rows)):
        if some.stop > some.start:
            yield some, min(size, some.stop - some.start)
