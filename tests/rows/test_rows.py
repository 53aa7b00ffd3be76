"""Blocks of rows, and their projection onto the admissible ball."""

import tracemalloc

import joblib
import numpy as np
import pytest

from sklearn_balldp.privacy import rounding
from sklearn_balldp.rows import blocks_of, domain_factors, kept_rows, passes, project_onto_ball


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_inside_are_not_copied(dtype):
    X = np.full((5000, 4), 0.25, dtype=dtype)
    projected = project_onto_ball(X, 1.0)
    # Half precision is widened always, so that no row decides whether it is.
    assert (projected is X) == (dtype != np.float16)
    assert projected.dtype == np.promote_types(dtype, np.float32)
    # Nor is one at the boundary moved beside another.
    assert domain_factors(np.array([[0.6, 0.8], [0.0, 1.0]]), 1.0) is None
    factors = domain_factors(np.array([[0.6, 0.8], [0.0, 2.0]]), 1.0)
    np.testing.assert_array_equal(factors, [1.0, 0.5])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ">f8"])
@pytest.mark.kills("rows/projection.py", "squares <= norm_bound", "squares <= 1.01 * norm_bound")
def test_projection(dtype):
    rng = np.random.default_rng(2)
    X = (rng.standard_normal((5000, 4)) * rng.choice([0.1, 3.0], size=(5000, 1))).astype(dtype)
    before = X.copy()
    P = project_onto_ball(X, 2.0)
    np.testing.assert_array_equal(X, before)
    norms = np.linalg.norm(X.astype(float), axis=1)
    np.testing.assert_array_equal(P[norms <= 2.0], X[norms <= 2.0])
    expected = X * np.minimum(1, 2.0 / norms)[:, None]
    np.testing.assert_allclose(P, expected, rtol=1e-6 if dtype == np.float32 else 1e-14)
    # 1-Lipschitz: no pair of rows gets further apart.
    A, B = P[:2500].astype(float), P[2500:].astype(float)
    far = np.linalg.norm(A - B, axis=1) - np.linalg.norm(X[:2500] - X[2500:], axis=1)
    assert far.max() <= 1e-6


@pytest.mark.parametrize("layout", [np.asarray, np.asfortranarray, lambda X: X[::-1]])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f8"])
def test_blocks_cover_the_rows_in_little_memory(dtype, layout, monkeypatch):
    """Of every layout and type; and what is computed of a row may be large."""
    monkeypatch.setattr(rounding, "BLOCK", 256)
    X = layout((np.arange(60_000).reshape(6000, 10) / 60_000).astype(dtype))
    for width in (1, 2**14):
        seen, lengths = np.zeros(len(X), dtype=int), set()
        tracemalloc.start()
        for rows, block in blocks_of(X, width):
            np.testing.assert_array_equal(block, X[rows])
            assert block.dtype == np.float64
            assert block.flags.c_contiguous
            seen[rows] += 1
            lengths.add(len(block))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (seen == 1).all()
        assert max(lengths) == (256 if width == 1 else 64)
        assert peak < 0.5 * 6000 * 10 * 8


def test_a_block_stays_as_it_was_read(tmp_path):
    """Another process may write to a map, and another thread to an array, while it is used."""
    rows = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float64, (10, 4))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    buffer = np.frombuffer(bytearray(10 * 4 * 8)).reshape(10, 4)
    buffer.setflags(write=False)
    for given in (rows, np.asarray(rows), rows[2:], mapped, buffer, np.ones((10, 4))):
        ((_, block),) = blocks_of(given)
        assert not np.shares_memory(block, given)
    kept = kept_rows(lambda block, out: block + 1.0, rows)
    assert not kept.flags.writeable
    ((_, block),) = blocks_of(kept[2:7])
    assert np.shares_memory(block, kept)


@pytest.mark.kills("rows/passes.py", "        a += b", "        a += 2 * b")
@pytest.mark.kills("rows/passes.py", "max(len(rows), 1), size)", "max(len(rows) - size, 1), size)")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("n", "d"), [(0, 3), (1, 3), (9000, 40), (300_000, 2)])
def test_every_row_is_added_up_once(n, d, threads, monkeypatch):
    """With its own values of every column; results of blocks come in the order of the rows."""
    monkeypatch.setattr(joblib, "cpu_count", lambda: threads)
    monkeypatch.setattr(rounding, "BLOCK", 512)
    monkeypatch.setattr(passes, "_MANY_VALUES", 2**12)
    X, codes = np.arange(n * d, dtype=np.float32).reshape(n, d) % 97, np.arange(n) % 7

    def sums(block, own, weights):
        assert weights is None
        return [own @ block, np.bincount(own, minlength=7)]

    found = passes.total(sums, X, codes, None)
    np.testing.assert_array_equal(found[0], codes @ X.astype(np.float64))
    np.testing.assert_array_equal(found[1], np.bincount(codes, minlength=7))
    joined = passes.joined(lambda block, own: block[:, 0] + 100 * own, X, codes)
    np.testing.assert_array_equal(joined, X[:, 0] + 100 * codes)
    np.testing.assert_array_equal(
        kept_rows(lambda block, out: np.multiply(2.0, block, out=out), X), 2.0 * X
    )


def test_threads_ignore_what_their_caller_ignores():
    """Else whether a warning is given would depend on the rows."""
    with np.errstate(all="ignore"):
        (found,) = passes.total(
            lambda block: [1e308 * 10.0 * block.sum(axis=0)], np.ones((10**5, 4))
        )
    assert np.isinf(found).all()


def test_only_rows_are_projected():
    for shape in ((3,), (2, 2, 2)):
        with pytest.raises(ValueError, match="n_samples, n_features"):
            project_onto_ball(np.zeros(shape), 1.0)
