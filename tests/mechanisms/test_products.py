"""Products a few rows at a time are those of all rows at once."""

import numpy as np
import pytest

from sklearn_balldp.mechanisms.products import block_sums, scores_of


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_rows", [0, 1, 127, 128, 129, 1000])
def test_products_by_blocks(n_rows, dtype):
    """Of few columns and of many, in rows or in columns, and of a vector."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n_rows, 384)).astype(dtype)
    # Errors are in units of what is added up.
    limit = 400 * np.finfo(dtype).eps
    for n_columns in (1, 2, 6, 20, 77):
        weights = rng.standard_normal((n_columns, 384)).astype(dtype).T
        for columns in (weights[:, 0], np.ascontiguousarray(weights), weights):
            scores = scores_of(rows, columns)
            assert scores.dtype == dtype
            sizes = np.abs(rows).astype(float) @ np.abs(columns)
            assert scores.shape == sizes.shape
            assert (np.abs(scores - rows.astype(float) @ columns) <= limit * sizes).all()
        for other, exact in ((rows, rows.astype(float)), (None, np.ones((n_rows, 1)))):
            sums = block_sums(scores, other)
            assert sums.dtype == np.float64
            sizes = np.abs(scores).T.astype(float) @ np.abs(exact)
            assert (np.abs(sums - scores.T.astype(float) @ exact) <= limit * sizes).all()


def test_few_columns_are_multiplied_a_few_rows_at_a_time():
    """A row in another block decides no bit."""
    rows = np.random.default_rng(0).standard_normal((512, 40)).astype(np.float32)
    weights = np.random.default_rng(1).standard_normal((40, 3)).astype(np.float32)
    whole = scores_of(rows, weights)
    for first in range(0, 512, 128):
        block = scores_of(rows[first : first + 128].copy(), weights)
        np.testing.assert_array_equal(block, whole[first : first + 128])
