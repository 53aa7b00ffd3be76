"""What is computed from one row depends on that row alone: not on the layout, nor on the others."""

import numpy as np
import pytest
from mean_gradients import Mean
from other_rows import LAYOUTS, assert_others_stay, of_many_sizes

from sklearn_balldp import RadiusPolicy
from sklearn_balldp.mechanisms import gradients
from sklearn_balldp.mechanisms.objective import LinearObjective
from sklearn_balldp.rows import passes, project_onto_ball
from sklearn_balldp.rows.passes import row_blocks

D = 24


def edge(dtype, n=400):
    """Rows at the edge of the ball: rounding decides which of them are projected."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, D))
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(dtype)


def stored(rows):
    """Rows as the passes hold them, once they went through a policy's step."""
    labels = np.arange(len(rows)) % 2
    policy = RadiusPolicy(source="declared").fit(rows, labels)
    given = policy.transform(rows)
    mean = Mean("logistic", given, labels, 2, clip=0.2, constant=0.0)
    objective = LinearObjective(
        "logistic", given, labels, 2, alpha=0.1, norm_bound=1.0, fit_intercept=False
    )
    (factors,) = objective._table.each(lambda part: part.column("factors"))
    return {
        "transformed": given,
        "descent": mean.kept,
        "factors": np.ones(len(rows)) if factors is None else factors,
        "projected": project_onto_ball(rows, 1.0),
    }


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(np.float16, 1.5), (np.float32, 1.5), (np.float64, 1.5), (np.float64, 1e139)],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_other_rows_keep_their_bits(layout, dtype, size):
    """A record leaves the ball, also by far: every other row is the same number, bit for bit."""
    X = edge(dtype)
    other = X.copy()
    other[7] *= dtype(size)
    reference = stored(X)
    for rows in (X, other):
        for name, values in stored(LAYOUTS[layout](rows)).items():
            assert values.dtype == reference[name].dtype, name
            kept = np.delete(values, 7, axis=0)
            np.testing.assert_array_equal(kept, np.delete(reference[name], 7, axis=0), name)
            assert values.flags.c_contiguous


def placed(rows, domain, seen, kept):
    """Rows as the steps of a descent multiply them, and what scales their scores at last."""
    labels = np.arange(len(rows)) % 2
    mean = Mean("logistic", rows, labels, 2, clip=0.2, constant=0.0, domain=domain, seen=seen)
    columns, chunks = {}, []
    for part in mean.table.each(lambda part: part):
        if not kept:
            for _, block in mean.passes._placing.chunks(part, 128):
                # Products may depend on addresses: rows of a pass are copies in any case.
                assert not np.shares_memory(block, rows)
                chunks.append(block.copy())
        for name in ("first", "last"):
            column = part.column(name)
            columns.setdefault(name, []).append(np.ones(len(part)) if column is None else column)
    columns = {name: np.concatenate(parts) for name, parts in columns.items()}
    return {"rows": mean.kept if kept else np.concatenate(chunks), **columns}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("domain", ["ball", "sphere"])
@pytest.mark.parametrize(
    ("layout", "mapped", "kept"),
    [("F", None, True), ("C", None, False), ("C", True, False), ("strided", False, True)],
)
def test_a_row_of_any_size_moves_no_other_of_a_descent(
    layout, mapped, kept, domain, dtype, whitening, monkeypatch
):
    monkeypatch.setattr(gradients, "KEPT_BYTES", 2**20 if kept else 0)
    X, seen = edge(dtype, 260), None
    if mapped is not None:
        seen, _ = whitening(np.full(D, 0.1), 0.8, mapped, 0.6)
    for others in (X, of_many_sizes(X)):
        assert_others_stay(lambda rows: placed(rows, domain, seen, kept), others, [7], layout)


@pytest.mark.parametrize("subnormal", [True, False])
@pytest.mark.parametrize("out", [np.float16, np.float32, np.float64])
def test_half_precision_is_copied_exactly(out, subnormal, monkeypatch):
    """All its values, also where the processor would drop the smallest in between."""
    if not subnormal:
        monkeypatch.setattr(passes, "_SUBNORMAL", np.float32(0.0))
    every = np.arange(2**16, dtype=np.uint16).view(np.float16).reshape(256, 256)
    finite = np.where(np.isfinite(every), every, 0.0)
    for rows in (finite, finite[:, ::-1], finite.T, finite[::3]):
        found, expected = np.full(rows.shape, np.nan, dtype=out), rows.astype(out)
        passes.copy_rows(found, rows)
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
        if out != np.float16:
            factors = np.random.default_rng(0).uniform(0.0, 1.0, len(rows)).astype(out)
            passes.copy_rows(found, rows, factors)
            np.testing.assert_array_equal(found, expected * factors[:, None])
    # Both infinities are among these.
    for value in every[~np.isfinite(every)][::64]:
        rows = np.array([[1.0, value]], dtype=np.float16)
        found = np.zeros(rows.shape, dtype=out)
        passes.copy_rows(found, rows)
        np.testing.assert_array_equal(found, rows.astype(out))
    passes.copy_rows(np.empty((0, 3), dtype=out), np.empty((0, 3), dtype=np.float16))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_are_in_c_order(layout, dtype):
    """Without a copy where the rows are in C order and of the precision already."""
    X = LAYOUTS[layout](edge(dtype))
    for rows, block in row_blocks(X, 3, 390, size=100, dtype=np.float64):
        assert block.flags.c_contiguous
        assert block.dtype == np.float64
        np.testing.assert_array_equal(block, X[rows])
        assert np.shares_memory(block, X) == (layout == "C" and dtype == np.float64)
