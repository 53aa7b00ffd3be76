"""Rows in files: the same models, bit for bit, in little memory; and what is refused."""

import contextlib
import ctypes
import itertools
import mmap
import pickle
import tracemalloc
from multiprocessing import shared_memory

import h5py
import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zarr
from pyarrow import parquet
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, cross_val_score

import sklearn_balldp.radius as radius_module
import sklearn_balldp.rows.table as table_module
from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    RadiusPolicy,
    ReconstructionAuditor,
    verify,
)
from sklearn_balldp.distances import same_label_quantile
from sklearn_balldp.heads import gradients, objective
from sklearn_balldp.heads.gradients import MeanGradient
from sklearn_balldp.radius import rows_to_read
from sklearn_balldp.rows import (
    Rows,
    from_hdf5,
    from_parquet,
    from_zarr,
    passes,
    project_onto_ball,
    shards_of,
)
from sklearn_balldp.rows.sources import is_mapped

N, D = 3000, 16
FORMATS = ("memmap", "zarr", "hdf5", "parquet", "two parquet files")
HEADS = {
    "prototypes": BallDPRidgePrototype(),
    "discriminant": BallDPLinearDiscriminant(),
    "discriminant, sphere": BallDPLinearDiscriminant(domain="sphere"),
    "descent": BallDPLogisticRegression(),
    "SVC": BallDPSquaredHingeSVC(mechanism=GradientPerturbation(start="zero", n_steps=20)),
    "minimiser": BallDPLogisticRegression(mechanism="output", alpha=0.01),
    "descent, sphere": BallDPLogisticRegression(
        domain="sphere", mechanism=GradientPerturbation(n_steps=5)
    ),
    "minimiser, sphere": BallDPLogisticRegression(domain="sphere", mechanism="output", alpha=0.01),
}


def records(dtype=np.float32, n=N):
    """Rows around a long mean, some of them outside of the ball."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    X = 0.3 * rng.standard_normal((n, D)) + 0.4 * np.eye(3, D)[y] + 0.2
    return X.astype(dtype), y


def lists(X):
    return pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])


def stored(X, kind, folder):
    """The rows in a file of some format."""
    path = folder / "rows"
    if kind == "memmap":
        np.save(path.with_suffix(".npy"), X)
        return np.load(path.with_suffix(".npy"), mmap_mode="r")
    if kind == "zarr":
        zarr.save(str(path), X)
        return from_zarr(path)
    if kind == "hdf5":
        with h5py.File(path, "w") as file:
            file["train/rows"] = X
        return from_hdf5(path, "train/rows")
    paths = [path.with_suffix(".a"), path.with_suffix(".b")]
    if kind == "parquet":
        parquet.write_table(pa.table({"e": lists(X)}), paths[0], row_group_size=700)
        return from_parquet(paths[0], "e")
    for part, own in zip((X[:1234], X[1234:]), paths, strict=True):
        uneven = pa.array(list(map(list, part)), type=pa.list_(pa.from_numpy_dtype(X.dtype)))
        parquet.write_table(pa.table({"e": uneven}), own, row_group_size=500)
    return from_parquet(paths, "e")


@pytest.fixture
def many_shards(monkeypatch):
    """Shards and blocks as of many more rows."""
    monkeypatch.setattr(passes, "SMALL", 8000)
    monkeypatch.setattr(passes, "SHARD_ROWS", 512)
    monkeypatch.setattr(Rows, "_read_values", 4096)
    monkeypatch.setattr(passes, "BLOCK_VALUES", 2048)


def released(head, X, y):
    fitted = clone(head).set_params(delta=1e-4, radius=0.3, random_state=0).fit(X, y)
    return fitted, {**fitted.released_parameters(), "predicted": fitted.predict(X)}


@pytest.mark.usefixtures("many_shards")
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", HEADS)
def test_every_source_gives_the_model_of_the_array(name, kind, dtype, tmp_path):
    X, y = records(dtype)
    assert len(shards_of(*X.shape)) > 4
    source = stored(X, kind, tmp_path)
    assert source.shape == X.shape
    assert source.dtype == dtype
    head, expected = released(HEADS[name], X, y)
    other, found = released(HEADS[name], source, y)
    for key, values in expected.items():
        np.testing.assert_array_equal(found[key], values, key)
    assert other.release_.sigma == head.release_.sigma
    assert other.n_features_in_ == D


@pytest.mark.usefixtures("many_shards")
@pytest.mark.parametrize("name", HEADS)
def test_cores_decide_no_bit(name, monkeypatch):
    X, y = records()
    found = []
    for cores in (1, 2, 4):
        monkeypatch.setattr(joblib, "effective_n_jobs", lambda n_jobs, cores=cores: cores)
        assert passes.n_threads(*X.shape) == cores
        found.append(released(HEADS[name], X, y)[1])
    for other in found[1:]:
        for key, values in found[0].items():
            np.testing.assert_array_equal(other[key], values, key)


@pytest.mark.usefixtures("many_shards")
@pytest.mark.parametrize("name", HEADS)
def test_rows_that_are_not_kept_give_the_same_bits(name, monkeypatch):
    """Moved and projected again in each pass, and second derivatives computed again."""
    for dtype in (np.float16, np.float32, np.float64):
        X, y = records(dtype)
        expected = released(HEADS[name], X, y)[1]
        with monkeypatch.context() as patch:
            patch.setattr(gradients, "KEPT_BYTES", 0)
            patch.setattr(objective, "_KEPT", 0)
            found = released(HEADS[name], X, y)[1]
        for key, values in expected.items():
            if key not in ("coef_", "intercept_") or name in ("prototypes", "discriminant"):
                np.testing.assert_array_equal(found[key], values, key)
            else:
                # Kept rows are added up to and fro.
                np.testing.assert_allclose(found[key], values, rtol=1e-5, atol=1e-7)


@pytest.mark.usefixtures("many_shards")
@pytest.mark.parametrize("moved", [None, False, True])
@pytest.mark.parametrize("norm_bound", [0.5, 3.0])
def test_a_mean_gradient_of_rows_that_are_not_kept(norm_bound, moved, whitening, monkeypatch):
    X, y = records()
    own, _ = whitening(0.2 * np.ones(D), 1.2 * norm_bound, bool(moved), norm_bound)
    means = []
    for kept in (2**30, 0):
        monkeypatch.setattr(gradients, "KEPT_BYTES", kept)
        means.append(
            MeanGradient(
                "softmax",
                X,
                y,
                3,
                norm_bound=norm_bound,
                constant=0.3,
                clip=0.1,
                whitening=None if moved is None else own,
                reach=0.9,
            )
        )
    theta = np.random.default_rng(1).standard_normal((1, *means[0].shape))
    assert means[0].X is not None
    assert means[1].X is None
    np.testing.assert_array_equal(means[0](theta), means[1](theta))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(("longer", "name"), [(100.0, "last"), (1e9, "first")])
def test_whether_rows_are_projected_decides_not_how_others_are_computed(
    longer, name, inside, dtype, monkeypatch
):
    """Products may depend on addresses: rows of a pass are copies in either case."""
    monkeypatch.setattr(gradients, "KEPT_BYTES", 0)
    X, y = records(dtype)
    norms = np.linalg.norm(X, axis=1)
    X /= 2.0 * norms.max() if inside else 0.5 * norms.min()
    other = X.copy()
    other[7] *= longer
    chunks, lasts = [], []
    for rows in (X, other):
        mean = MeanGradient("softmax", rows, y, 3, norm_bound=1.0, constant=0.3, clip=0.1)
        (part,) = mean._table.each(lambda part: part)
        factors = {c: part.column(c) for c in ("first", "last")}
        factors = {c: np.ones(N) if own is None else own for c, own in factors.items()}
        assert np.all(np.delete(factors["first"], 7) == 1.0)
        assert np.all((np.delete(factors["last"], 7) == 1.0) == inside)
        if rows is other:
            assert factors[name][7] < 0.1
            assert factors[{"first": "last", "last": "first"}[name]][7] == 1.0
        lasts.append(np.delete(factors["last"], 7))
        found = [block.copy() for _, block in mean._pass._chunks(part, False)]
        assert not any(
            np.shares_memory(block, rows) for _, block in mean._pass._chunks(part, False)
        )
        chunks.append(np.delete(np.concatenate(found), 7, axis=0))
    np.testing.assert_array_equal(*chunks)
    np.testing.assert_array_equal(*lasts)


@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared_hinge"])
def test_second_derivatives_that_are_not_kept_are_the_same(loss, monkeypatch):
    X, y = records()
    y = y % 2 if loss == "logistic" else y
    common = {"alpha": 0.1, "norm_bound": 1.0, "fit_intercept": True}
    n_classes, found = int(y.max()) + 1, []
    for kept in (2**30, 0):
        monkeypatch.setattr(objective, "_KEPT", kept)
        whole = objective.LinearObjective(loss, X, y, n_classes, **common)
        theta, step = np.random.default_rng(2).standard_normal((2, *whole.shape))
        whole.value_and_gradient(theta, curvature=True)
        found.append(whole.curvature_product(step))
    np.testing.assert_array_equal(*found)


def test_shards_are_a_function_of_the_shape():
    assert shards_of(1000, 10) == [(0, 1000)]
    for n, d in [(20_000, 384), (10**6, 384), (10**7, 64), (10**5, 4096), (70_001, 100)]:
        shards = shards_of(n, d)
        assert shards[0][0] == 0
        assert shards[-1][1] == n
        assert all(a[1] == b[0] and b[0] % 256 == 0 for a, b in itertools.pairwise(shards))
        assert len(shards) >= min(8, n * d // passes.SMALL + 1) - 1
        longest = max(stop - start for start, stop in shards)
        assert longest <= max(passes.SHARD_ROWS, passes.SMALL // d) + 256
        # What the proofs of rounding count on: no more shards than these.
        assert len(shards) <= 8 + n / passes.SHARD_ROWS


@pytest.mark.parametrize("name", ["prototypes", "discriminant", "descent", "minimiser"])
def test_little_memory_above_the_file(name, tmp_path, monkeypatch):
    """80 MB of rows in half precision: a fit and a prediction take a fraction of it."""
    n, d = 320_000, 128
    monkeypatch.setattr(gradients, "KEPT_BYTES", 2**20)
    monkeypatch.setattr(objective, "_KEPT", 2**10)
    monkeypatch.setattr(Rows, "_read_values", 2**18)
    rng = np.random.default_rng(0)
    X = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float16, shape=(n, d))
    y = np.arange(n) % 2
    for start in range(0, n, 10_000):
        X[start : start + 10_000] = 0.05 * rng.standard_normal((10_000, d)) + 0.02
    X.flush()
    source = np.load(tmp_path / "x.npy", mmap_mode="r")
    head = clone(HEADS[name])
    if name == "descent":
        head.set_params(mechanism=GradientPerturbation(n_steps=2))
    tracemalloc.start()
    head.fit(source, y).predict(source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Labels, codes and predictions take 8 bytes a row each; blocks some megabytes a thread.
    assert peak < 64e6


def test_a_source_reads_what_is_asked_for(tmp_path):
    X, _ = records()
    for kind in FORMATS[1:]:
        (tmp_path / kind).mkdir()
        source = stored(X, kind, tmp_path / kind)
        np.testing.assert_array_equal(source[5:1300], X[5:1300])
        np.testing.assert_array_equal(source[::7], X[::7])
        np.testing.assert_array_equal(
            source[[2999, 0, 1234, 1233, -1]], X[[2999, 0, 1234, 1233, -1]]
        )
        np.testing.assert_array_equal(source[X[:, 0] > 0.5], X[X[:, 0] > 0.5])
        np.testing.assert_array_equal(source[17], X[17])
        np.testing.assert_array_equal(np.asarray(source), X)
        assert source[10:5].shape == (0, D)
        assert (len(source), source.size, source.ndim) == (N, N * D, 2)
        again = pickle.loads(pickle.dumps(source))
        np.testing.assert_array_equal(again[100:200], X[100:200])
        with pytest.raises(IndexError):
            source[[N]]
        with pytest.raises(IndexError, match="mask"):
            source[[True, False]]
        with pytest.raises(ValueError, match="copy"):
            np.asarray(source, copy=False)
        # A pickle holds the path, and no row.
        assert len(pickle.dumps(source)) < 2000


def test_searches_cut_a_source_into_folds(tmp_path):
    X, y = records()
    source = stored(X, "hdf5", tmp_path)
    head = BallDPRidgePrototype(delta=1e-4, radius=0.3, random_state=0)
    expected = cross_val_score(head, X, y, cv=KFold(3))
    np.testing.assert_array_equal(cross_val_score(head, source, y, cv=KFold(3)), expected)


def test_audits_and_checks_read_a_source(tmp_path):
    X, y = records(n=600)
    source = stored(X, "zarr", tmp_path)
    head = BallDPRidgePrototype(delta=1e-4, radius=1.0).fit(source, y)
    assert not verify(head, private=(source, y)).failed
    auditor = ReconstructionAuditor(clone(head), n_candidates=3, random_state=0).fit(source, y)
    assert auditor.guarantee_holds_


@pytest.mark.usefixtures("many_shards")
@pytest.mark.parametrize("kind", ["array", "columns", "memmap", "zarr", "hdf5"])
@pytest.mark.parametrize("name", ["prototypes", "descent", "minimiser"])
def test_huge_entries_are_clipped_in_every_pass(name, kind, tmp_path, monkeypatch):
    X, y = records(np.float64)
    X[7, 3], X[2008], X[2009, :2] = 1e200, -1e300, (1e120, -1e150)
    clipped = np.clip(X, -1e140, 1e140)
    expected = released(HEADS[name], clipped, y)[1]
    monkeypatch.setattr(gradients, "KEPT_BYTES", 0)
    rows = {"array": X, "columns": np.asfortranarray(X)}.get(kind)
    found = released(HEADS[name], stored(X, kind, tmp_path) if rows is None else rows, y)[1]
    assert expected.keys() == found.keys()
    for key, values in expected.items():
        np.testing.assert_array_equal(found[key], values, key)


@pytest.mark.usefixtures("many_shards")
@pytest.mark.parametrize("kind", ["array", "columns", "memmap", "zarr", "hdf5"])
@pytest.mark.parametrize("name", [name for name in HEADS if "sphere" in name])
def test_extreme_rows_are_scaled_in_every_pass(name, kind, tmp_path, monkeypatch):
    """On the sphere what is huge, or all but zero, points where it pointed."""
    X, y = records(np.float64)
    scales = np.ones(N)
    scales[[7, 2008, 2009, 2010, 5]] = 1e200, 1e307, 1e-150, 1e-300, 0.0
    expected = released(HEADS[name], X * np.where(scales > 0.0, 1.0, 0.0)[:, None], y)[1]
    monkeypatch.setattr(gradients, "KEPT_BYTES", 0)
    X *= scales[:, None]
    rows = {"array": X, "columns": np.asfortranarray(X)}.get(kind)
    found = released(HEADS[name], stored(X, kind, tmp_path) if rows is None else rows, y)[1]
    assert expected.keys() == found.keys()
    for key, values in expected.items():
        np.testing.assert_allclose(found[key], values, rtol=1e-9, atol=1e-9, err_msg=key)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", HEADS)
def test_rows_that_are_not_finite_are_refused(name, bad, tmp_path):
    X, y = records(np.float64)
    X[2500, 3] = bad
    head = clone(HEADS[name]).set_params(delta=1e-4, radius=0.3)
    with pytest.raises(ValueError, match=r"NaN or infinity"):
        head.fit(stored(X, "hdf5", tmp_path), y)
    assert not hasattr(head, "release_")


def test_what_would_be_pulled_into_memory_is_refused(tmp_path):
    X, y = records()
    stored(X, "zarr", tmp_path)
    with pytest.raises(TypeError, match="from_zarr"):
        BallDPRidgePrototype().fit(zarr.open(str(tmp_path / "rows"), mode="r"), y)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["e"] = X
        with pytest.raises(TypeError, match="from_hdf5"):
            BallDPRidgePrototype().fit(file["e"], y)


def test_tensors_on_the_host_are_arrays():
    torch = pytest.importorskip("torch")
    X, y = records()
    expected, found = (
        released(HEADS["prototypes"], rows, y)[1] for rows in (X, torch.from_numpy(X))
    )
    np.testing.assert_array_equal(found["prototypes_"], expected["prototypes_"])


def test_columns_of_lists_say_what_to_do():
    X, y = records(n=50)
    frame = pd.DataFrame({"e": list(X)})
    with pytest.raises(ValueError, match=r"numpy\.stack"):
        BallDPRidgePrototype(delta=1e-3).fit(frame, y)
    BallDPRidgePrototype(delta=1e-3).fit(np.stack(frame["e"]), y)


def test_labels_must_be_as_many(tmp_path):
    X, y = records()
    source = stored(X, "zarr", tmp_path)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        BallDPRidgePrototype(delta=1e-4).fit(source, y[:-1])
    head = BallDPRidgePrototype(delta=1e-4).fit(source, y)
    with pytest.raises(ValueError, match="features"):
        head.predict(X[:, :3])


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("given", [{"source": "declared"}, {"source": "private", "epsilon": 1.0}])
@pytest.mark.parametrize("Head", [BallDPRidgePrototype, BallDPLinearDiscriminant])
def test_a_radius_read_off_private_rows_is_that_of_the_array(
    Head, given, kind, tmp_path, monkeypatch
):
    """Also where a policy does not read all of them."""
    monkeypatch.setattr(radius_module, "MAX_ROWS_READ", 500)
    X, y = records()
    source, policy = stored(X, kind, tmp_path), RadiusPolicy(random_state=0, **given)
    head = Head(delta=1e-4, radius=policy, random_state=0)
    expected = clone(head).fit(X, y).release_.radius
    assert clone(head).fit(source, y).release_.radius == expected
    assert clone(policy).fit(source, y).radius_ == clone(policy).fit(X, y).radius_


def test_the_largest_distance_is_not_read_off_some_rows(monkeypatch):
    X, y = records()
    policy = RadiusPolicy(1.0, source="declared")
    assert policy.fit(X, y).radius_ == same_label_quantile(project_onto_ball(X, 1.0), y, 1.0)
    monkeypatch.setattr(radius_module, "MAX_ROWS_READ", len(y) - 1)
    with pytest.raises(ValueError, match=r"quantile=1\.0"):
        policy.fit(X, y)


def test_a_policy_that_needs_public_rows_reads_no_private_ones(tmp_path, monkeypatch):
    X, y = records()
    source = stored(X, "zarr", tmp_path)
    monkeypatch.setattr(type(source), "read", None)
    assert RadiusPolicy().fit(source, y, X_public=X[:100], y_public=y[:100]).radius_ > 0.0


def test_a_policy_reads_few_rows_of_each_class(monkeypatch):
    """Which ones depends on labels alone, so that a substitution moves one of them."""
    X, y = records()
    y[y == 2] = np.where(np.arange((y == 2).sum()) < 10, 2, 1)
    assert rows_to_read(X, y)[0] is X
    monkeypatch.setattr(radius_module, "MAX_ROWS_READ", 61)
    rows, labels = rows_to_read(X, y)
    assert np.unique(labels, return_counts=True)[1].tolist() == [25, 25, 10]
    places = np.flatnonzero((X[:, None] == rows).all(axis=-1).any(axis=1))
    np.testing.assert_array_equal(X[places], rows)
    # Spread over the table, the last records too.
    assert places[0] < len(X) // 20
    assert places[-1] > len(X) - len(X) // 20
    other = np.random.default_rng(1).standard_normal(X.shape)
    np.testing.assert_array_equal(rows_to_read(other, y)[0], other[places])


def test_files_that_hold_no_rows(tmp_path):
    X, _ = records(n=20)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["flat"], file["whole"], file["rows"] = X[:, 0], np.arange(6).reshape(2, 3), X
    for name, message in (
        ("flat", "two-dimensional"),
        ("whole", "of type"),
        ("none", "is none of"),
    ):
        with pytest.raises(ValueError, match=message):
            from_hdf5(tmp_path / "x.h5", name)
    zarr.open_group(str(tmp_path / "g"), mode="w").create_array("a", shape=X.shape, dtype=X.dtype)
    with pytest.raises(ValueError, match="Zarr group"):
        from_zarr(tmp_path / "g")
    uneven = pa.array([[1.0, 2.0], [3.0]])
    gaps = pa.array([[1.0, 2.0], None, [3.0, 4.0]])
    words = pa.array(["a", "b"])
    with pytest.raises(ValueError, match=r"path=\[\] names no file"):
        from_parquet([], "e")
    for column, message in ((uneven, "differ in length"), (gaps, "gaps"), (words, "type string")):
        parquet.write_table(pa.table({"e": column}), tmp_path / "x.parquet")
        with pytest.raises(ValueError, match=message):
            from_parquet(tmp_path / "x.parquet", "e")
    with pytest.raises(ValueError, match="'f' is none"):
        from_parquet(tmp_path / "x.parquet", "f")
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, kind in zip(paths, (pa.float32(), pa.float64()), strict=True):
        parquet.write_table(pa.table({"e": pa.array([[1.0, 2.0]], pa.list_(kind))}), path)
    with pytest.raises(ValueError, match="several types"):
        from_parquet(paths, "e")
    # Groups and files without rows are passed over.
    none = pa.table({"e": pa.array([], pa.list_(pa.float64()))})
    parquet.write_table(none, paths[0])
    assert from_parquet(paths[::-1], "e").shape == from_parquet(paths, "e").shape == (1, 2)
    # A later group of other lists is found when it is read.
    table = pa.table({"e": pa.array([[1.0, 2.0]] * 3 + [[1.0, 2.0, 3.0]] * 3)})
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=3)
    source = from_parquet(tmp_path / "x.parquet", "e")
    with pytest.raises(ValueError, match="differ in length"):
        source.read(0, 6)


def test_a_missing_package_is_named(monkeypatch, tmp_path):
    import builtins

    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "zarr":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"sklearn_balldp\[files\]"):
        from_zarr(tmp_path)


class Computed(Rows):
    """Rows of one's own: no file at all."""

    def __init__(self, X):
        self.X, self.shape, self.dtype = X, X.shape, X.dtype

    def read(self, start, stop):
        return self.X[start:stop]


class Broken(Computed):
    """A source that does not give what it states."""

    def __init__(self, X, read):
        super().__init__(X)
        self._read = read

    def read(self, start, stop):
        return self._read(self.X, start, stop)


@pytest.mark.parametrize(
    "read",
    [
        lambda X, a, b: X[a : min(b, 1000)],
        lambda X, a, b: X[a : a + 1],
        lambda X, a, b: np.vstack([X[a:b], X[:1]]),
        lambda X, a, b: X[a:b, :1],
        lambda X, a, b: X[a:b].astype(np.float64),
        lambda X, a, b: X[a:b].tolist(),
        lambda X, a, b: np.ma.masked_array(X[a:b], X[a:b] > 0.5),
    ],
)
@pytest.mark.parametrize("name", HEADS)
def test_a_read_of_another_shape_is_refused(name, read):
    """What is read short would leave old memory among the rows."""
    X, y = records()
    head = clone(HEADS[name]).set_params(delta=1e-4, radius=0.3)
    with pytest.raises(ValueError, match="has the file changed"):
        head.fit(Broken(X, read), y)
    assert not hasattr(head, "release_")


@pytest.mark.usefixtures("many_shards")
@pytest.mark.parametrize("name", ["descent", "SVC", "minimiser"])
def test_rows_that_change_between_passes_are_noticed(name, monkeypatch):
    """What was projected at first would no longer be."""
    monkeypatch.setattr(gradients, "KEPT_BYTES", 0)
    X, y = records()
    passes_made = []

    def read(X, start, stop):
        passes_made.append(start == 0)
        rows = X[start:stop].copy()
        if sum(passes_made) > 6 and start == 0:
            rows[0] = 1000.0
        return rows

    head = clone(HEADS[name]).set_params(delta=1e-4, radius=0.3)
    with pytest.raises(ValueError, match="changed while they were read"):
        head.fit(Broken(X, read), y)
    assert not hasattr(head, "release_")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_of_a_file_that_became_none_are_noticed(bad, monkeypatch):
    """In half precision they have the bits of numbers, which this ball would hold."""
    monkeypatch.setattr(gradients, "KEPT_BYTES", 0)
    X, y = records(np.float16)
    passes_made = []

    def read(X, start, stop):
        passes_made.append(start == 0)
        rows = X[start:stop].copy()
        if sum(passes_made) > 6:
            rows[0] = bad
        return rows

    head = clone(HEADS["descent"]).set_params(delta=1e-4, radius=3e5, norm_bound=1e6)
    with pytest.raises(ValueError, match="changed while they were read"):
        head.fit(Broken(X, read), y)
    assert not hasattr(head, "release_")


@pytest.mark.parametrize("name", ["descent", "SVC"])
@pytest.mark.parametrize("norm_bound", [1e-9, 1e9, 1e11])
def test_long_rows_of_a_file_that_did_not_change(name, norm_bound, monkeypatch):
    """Single precision holds the squares that show it, however much longer rows are than B."""
    X, y = records()
    X *= (norm_bound * 10.0 ** np.linspace(-2.0, 10.0, len(X)))[:, None].astype(np.float32)
    found = []
    for kept in (2**30, 0):
        monkeypatch.setattr(gradients, "KEPT_BYTES", kept)
        head = clone(HEADS[name]).set_params(delta=1e-4, radius=0.3 * norm_bound)
        head.set_params(norm_bound=norm_bound, random_state=0)
        source = X if kept else Broken(X, lambda X, start, stop: X[start:stop].copy())
        found.append(head.fit(source, y).coef_)
    np.testing.assert_array_equal(*found)


def test_predictions_read_a_few_rows_at_a_time():
    X = np.zeros((60_000, 200), dtype=np.float32)
    X[:, 0] = np.linspace(-1, 1, 60_000)
    y = (X[:, 0] > 0).astype(int)
    head = BallDPRidgePrototype(epsilon=1000.0, delta=1e-6).fit(X, y)
    read = []

    def counted(X, start, stop):
        read.append(stop - start)
        return X[start:stop]

    predicted = head.predict(Broken(X, counted))
    assert max(read) < 12_000
    np.testing.assert_array_equal(predicted, head.predict(X))
    codes = (head.decision_function(X) > 0).astype(int)
    np.testing.assert_array_equal(predicted, head.classes_[codes])


@pytest.mark.parametrize("dtype", [">f4", "int32", "longdouble"])
def test_sources_of_other_types_are_refused(dtype):
    X, y = records()
    with pytest.raises(ValueError, match="order of bytes"):
        BallDPRidgePrototype(delta=1e-4).fit(Computed(X.astype(dtype)), y)


def test_after_an_error_the_other_shards_are_left():
    done = []

    def function(start, stop):
        done.append(start)
        raise RuntimeError("first")

    with passes.ThreadPoolExecutor(2) as pool, pytest.raises(RuntimeError):
        list(passes.map_shards(function, 2_000_000, 100, pool))
    assert len(done) < 20


def test_public_rows_of_a_policy_may_be_in_a_file():
    X, y = records(np.float64)
    head = BallDPRidgePrototype(delta=1e-4, radius=RadiusPolicy(source="edits"))
    before, after = Computed(X[:50]), Computed(X[:50] + 0.01)
    assert head.fit(X, y, X_public=before, y_public=after).release_.radius_edits == 50
    assert RadiusPolicy(source="edits").fit(before, after).radius_ > 0.0


def test_a_source_of_ones_own():
    X, y = records()
    expected, found = (released(HEADS["descent"], rows, y)[1] for rows in (X, Computed(X)))
    np.testing.assert_array_equal(found["coef_"], expected["coef_"])
    assert repr(Computed(X)) == "Computed(shape=(3000, 16), dtype=float32)"
    exact = LogisticRegression().fit(np.asarray(Computed(X)), y)
    assert exact.score(X, y) > 0.5


@pytest.mark.parametrize("options", [{}, {"chunks": (100, D)}, {"compression": "gzip"}])
@pytest.mark.parametrize("userblock", [0, 1024])
def test_a_dataset_in_one_piece_is_read_where_it_is(tmp_path, options, userblock):
    X, _ = records()
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=userblock) as file:
        file.create_dataset("other", data=np.arange(5.0))
        file.create_dataset("rows", data=X, **options)
    source = from_hdf5(tmp_path / "x.h5", "rows")
    assert isinstance(source._handle, np.memmap) == (not options)
    np.testing.assert_array_equal(source[100:300], X[100:300])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(source))[-7:], X[-7:])
    np.asarray(source)[:] = 0.0
    np.testing.assert_array_equal(source[:7], X[:7])
    with pytest.raises(OSError, match=r"lock|open"):
        h5py.File(tmp_path / "x.h5", "r+")


def test_a_dataset_that_numpy_would_read_otherwise_is_left_to_hdf5(tmp_path):
    X, _ = records()
    X = X[:200]
    brief = h5py.h5t.IEEE_F32LE.copy()
    brief.set_fields(15, 7, 8, 0, 7)
    brief.set_size(2)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["rows"] = X
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=1024) as file:
        file["pad"] = np.zeros(X.shape)
        file["link"] = h5py.ExternalLink("other.h5", "rows")
        file.create_dataset("empty", X.shape, X.dtype)
        space = h5py.h5s.create_simple(X.shape)
        rows = h5py.Dataset(h5py.h5d.create(file.id, b"brief", brief, space))
        rows[:] = X
        layout = h5py.VirtualLayout(X.shape, X.dtype)
        layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "rows", X.shape)
        file.create_virtual_dataset("virtual", layout)
        file["big"] = X.astype(X.dtype.newbyteorder(">"))
        file.flush()
        # Still open for writing.
        open_rows = file.create_dataset("late", X.shape, X.dtype)
        for place, row in enumerate(X):
            open_rows[place] = row
        late = from_hdf5(tmp_path / "x.h5", "late")
        np.testing.assert_array_equal(late[:], X)
        del late
    linked = from_hdf5(tmp_path / "x.h5", "link")
    assert isinstance(linked._handle, np.memmap)
    np.testing.assert_array_equal(linked[:], X)
    np.testing.assert_array_equal(from_hdf5(tmp_path / "x.h5", "empty")[:], 0.0 * X)
    np.testing.assert_array_equal(from_hdf5(tmp_path / "x.h5", "virtual")[:], X)
    found = from_hdf5(tmp_path / "x.h5", "brief")[:]
    np.testing.assert_allclose(found, X, rtol=2.0**-7)
    assert not np.array_equal(found, X)
    with pytest.raises(ValueError, match="type >f4"):
        from_hdf5(tmp_path / "x.h5", "big")


@pytest.mark.usefixtures("many_shards")
@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moved_rows_of_a_file_that_did_not_change(dtype, whitened, whitening, monkeypatch):
    """Some of them are scaled at last: what is multiplied is longer than the ball."""
    monkeypatch.setattr(gradients, "KEPT_BYTES", 0)
    X, y = records(dtype)
    rows = X / np.float32(0.6) / np.linalg.norm(X, axis=1).max()
    centre = np.zeros(D)
    centre[0] = -0.9
    own, _ = whitening(centre, 0.4, whitened, 0.3 if whitened else None)
    means = [
        MeanGradient(
            "softmax",
            source,
            y,
            3,
            norm_bound=own.norm,
            constant=0.3,
            clip=0.1,
            whitening=own,
            reach=1.0,
        )
        for source in (rows, Computed(rows))
    ]
    parts = list(means[1]._table.each(lambda part: part))
    assert all(part.may_change and part.column("last").min() < 0.9 for part in parts)
    theta = np.random.default_rng(1).standard_normal((1, *means[0].shape))
    np.testing.assert_array_equal(means[0](theta), means[1](theta))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_whitened_rows_that_leave_the_ball_are_noticed(dtype, whitening, tmp_path, monkeypatch):
    """One turns where rows are not shortened: it is no longer than it was, before whitening."""
    monkeypatch.setattr(gradients, "KEPT_BYTES", 0)
    X, y = records(dtype)
    own, _ = whitening(np.zeros(D), 1.0, True, 0.5)
    rows = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", dtype, X.shape)
    rows[:] = X
    rows[7] = own.directions[:, 0]
    rows.flush()
    given = np.load(tmp_path / "x.npy", mmap_mode="r")
    common = {"norm_bound": 0.5, "constant": 0.3, "clip": 0.1, "whitening": own, "reach": 1.0}
    mean = MeanGradient("softmax", given, y, 3, **common)
    theta = np.random.default_rng(1).standard_normal((1, *mean.shape))
    mean(theta)
    rows[7] = np.linalg.svd(own.directions.T)[2][-1]
    rows.flush()
    with pytest.raises(ValueError, match="changed while they were read"):
        mean(theta)


@pytest.mark.usefixtures("many_shards")
@pytest.mark.parametrize("name", ["descent", "minimiser"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_memory_map_that_changes_between_passes_is_noticed(name, dtype, tmp_path, monkeypatch):
    monkeypatch.setattr(gradients, "KEPT_BYTES", 0)
    X, y = records(dtype)
    rows = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", dtype, X.shape)
    rows[:] = X
    real, seen = passes.row_blocks, []

    def changing(given, *args, **options):
        seen.append(1)
        if len(seen) == 40:
            rows[0] = 1000.0
        return real(given, *args, **options)

    monkeypatch.setattr(table_module, "row_blocks", changing)
    head = clone(HEADS[name]).set_params(delta=1e-4, radius=0.3)
    with pytest.raises(ValueError, match="changed while they were read"):
        head.fit(np.load(tmp_path / "x.npy", mmap_mode="r"), y)
    assert not hasattr(head, "release_")


def test_a_block_of_a_file_reads_the_same_twice(tmp_path):
    rows = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float64, (10, 4))
    for given in (
        rows,
        np.asarray(rows),
        rows[2:][::1],
        np.load(tmp_path / "x.npy", mmap_mode="r"),
    ):
        ((_, view),) = passes.row_blocks(given, 1, once=True)
        assert np.shares_memory(view, given)
        ((_, block),) = passes.row_blocks(given, 1)
        rows[:] = 0.0
        before = block.copy()
        rows[:] = 7.0
        np.testing.assert_array_equal(block, before)


# What was checked is what is used ----------------------------------------------------------------


def columns(X, kind=None):
    return pa.table({"e": pa.array(X.tolist(), pa.list_(kind or pa.float32()))})


@pytest.mark.parametrize(
    ("rows", "sizes", "kind", "named"),
    [
        (20, 1, pa.float32(), "group 0"),  # a group of length one was broadcast
        (20, 20, pa.float32(), "group 0"),
        (20, 5, pa.float64(), "group 0"),
        (24, 5, pa.float32(), "group 4"),
        (15, 5, pa.float32(), "group 3"),
    ],
)
@pytest.mark.parametrize("opened", [False, True])
def test_a_file_that_was_rewritten_is_named(rows, sizes, kind, named, opened, tmp_path):
    """Between its naming and its reading in another process, or within one."""
    X, y = records(n=24)
    path = tmp_path / "x.parquet"
    parquet.write_table(columns(X[:20]), path, row_group_size=5)
    source = from_parquet(path, "e")
    source.read(0, 5)
    sent = source if opened else pickle.loads(pickle.dumps(source))
    parquet.write_table(columns(X[:rows], kind), path, row_group_size=sizes)
    if opened:
        sent._opened = None
        sent._groups.clear()
    head = BallDPRidgePrototype(delta=1e-4, radius=0.5)
    with pytest.raises(
        ValueError, match=rf"x\.parquet': row group .*{named[-1]}|{named}"
    ) as caught:
        head.fit(sent, y[:20])
    assert "changed" in str(caught.value) or "cannot be read" in str(caught.value)
    assert not hasattr(head, "release_")


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        *itertools.product(["zarr", "hdf5", "parquet"], ["cut", "gone"]),
        ("hdf5", "noise"),
        ("parquet", "noise"),
    ],
)
def test_damaged_files_are_named(kind, damage, tmp_path):
    X, y = records(n=400)
    if kind == "zarr":
        zarr.save(str(tmp_path / "x"), X)
        path = next(p for p in (tmp_path / "x").rglob("*") if p.is_file() and p.name != "zarr.json")
        source = from_zarr(tmp_path / "x")
    elif kind == "hdf5":
        path = tmp_path / "x"
        with h5py.File(path, "w") as file:
            file.create_dataset("e", data=X, chunks=(50, D), compression="gzip")
        source = from_hdf5(path, "e")
    else:
        path = tmp_path / "x"
        parquet.write_table(columns(X), path, row_group_size=50, write_page_checksum=True)
        source = from_parquet(path, "e", verify_checksums=True)
    source = pickle.loads(pickle.dumps(source))
    body = bytearray(path.read_bytes())
    middle = slice(len(body) // 3, len(body) // 3 + 40)
    body[middle] = bytes(b ^ 0xA5 for b in body[middle])
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(body[: len(body) // 2] if damage == "cut" else body)
    head = BallDPRidgePrototype(delta=1e-4, radius=0.5)
    with pytest.raises(ValueError, match=rf"path='{tmp_path}/x'.*(restore|lacks)"):
        head.fit(source, y)
    assert not hasattr(head, "release_")


def test_missing_chunks_and_names_that_are_there_twice(tmp_path):
    X, _ = records(n=100)
    array = zarr.open(str(tmp_path / "x"), mode="w", shape=X.shape, chunks=(10, D), dtype=X.dtype)
    array[:50] = X[:50]
    with pytest.raises(ValueError, match="lacks 5 of 10 chunks, in whose place Zarr reads"):
        from_zarr(tmp_path / "x")
    array[50:] = X[50:]
    assert from_zarr(tmp_path / "x").shape == X.shape
    twice = pa.table([columns(X)["e"], columns(X)["e"]], names=["e", "e"])
    parquet.write_table(twice, tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="'e' is more than one of"):
        from_parquet(tmp_path / "x.parquet", "e")


@pytest.mark.parametrize("made", ["frombuffer", "arrow", "ctypes", "shared"])
def test_memory_that_others_may_write_to_counts_as_mapped(made, tmp_path):
    X, _ = records(n=40)
    with contextlib.ExitStack() as held:
        if made == "frombuffer":
            (tmp_path / "x").write_bytes(X.tobytes())
            file = held.enter_context(open(tmp_path / "x", "r+b"))
            rows = np.frombuffer(mmap.mmap(file.fileno(), 0), X.dtype)
        elif made == "arrow":
            with pa.OSFile(str(tmp_path / "x"), "wb") as sink:
                sink.write(X.tobytes())
            rows = np.frombuffer(pa.memory_map(str(tmp_path / "x")).read_buffer(), X.dtype)
        elif made == "ctypes":
            rows = np.frombuffer((ctypes.c_char * X.nbytes)(*X.tobytes()), X.dtype)
        else:
            block = shared_memory.SharedMemory(create=True, size=X.nbytes)
            held.callback(block.unlink)
            rows = np.ndarray(X.shape, X.dtype, block.buf)
            rows[:] = X
        rows = rows.reshape(X.shape)
        assert is_mapped(rows)
        assert is_mapped(rows[3:, :2])
        for _, part in passes.row_blocks(rows, dtype=X.dtype.type):
            assert not np.shares_memory(part, rows)
            np.testing.assert_array_equal(part, X)
        del rows, part
    for own in (X, X[2:], X.T, np.frombuffer(X.tobytes(), X.dtype), pd.DataFrame(X).to_numpy()):
        assert not is_mapped(own)


class Alive(Rows):
    """A source whose shape grows once it was asked, and that keeps what it gave."""

    def __init__(self, X, grown):
        self.X, self.dtype, self.grown, self.asked = X, X.dtype, grown, 0

    @property
    def shape(self):
        self.asked += 1
        more = self.grown if self.asked > 1 else 0
        return len(self.X) + more, self.X.shape[1]

    def read(self, start, stop):
        return self.X[start:stop]


@pytest.mark.parametrize("name", HEADS)
def test_a_shape_that_changes_during_a_fit_ends_it(name):
    X, y = records()
    head = clone(HEADS[name]).set_params(delta=1e-4, radius=0.3, random_state=0)
    with pytest.raises(ValueError, match="the source states shape and type"):
        head.fit(Alive(X, 5), y)
    assert not hasattr(head, "release_")
    assert head.fit(Alive(X, 0), y).release_.digest == clone(head).fit(X, y).release_.digest


def test_parts_of_a_source_of_ones_own_are_copied():
    X, _ = records(n=50)
    rows = Alive(X.copy(), 0)._for_one_fit()
    part = rows._part(0, 10)
    rows.source.X[:] = 7e12
    np.testing.assert_array_equal(part, X[:10])
