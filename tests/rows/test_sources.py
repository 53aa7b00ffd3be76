"""Rows in files: the same models, bit for bit, in little memory; and what is refused."""

import contextlib
import ctypes
import errno
import importlib
import itertools
import json
import math
import os
import pickle
import re
import shutil
import sys
import tracemalloc
import types
from dataclasses import replace
from pathlib import Path

import array_api_strict
import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zarr
from mean_gradients import Mean
from pyarrow import parquet
from row_cases import (
    HEADS,
    KINDS,
    LAYOUTS,
    TABLES,
    ZARR,
    D,
    assert_refused,
    assert_same,
    fitted,
    records,
    refused_rows,
    store,
    stored,
    with_history,
)
from sklearn.base import clone

import sklearn_balldp.radius as radius_module
import sklearn_balldp.rows
from sklearn_balldp import (
    BallDPRidgePrototype,
    GradientPerturbation,
    RadiusPolicy,
    ReconstructionAuditor,
)
from sklearn_balldp.distances import same_label_quantile
from sklearn_balldp.mechanisms import gradients
from sklearn_balldp.privacy.rounding import MORE_ROWS, SUMMED
from sklearn_balldp.radius import rows_to_read
from sklearn_balldp.rows import (
    Rows,
    RowsError,
    domain_factors,
    files,
    from_npy,
    from_parquet,
    from_zarr,
    passes,
    project_onto_ball,
    shards_of,
)
from sklearn_balldp.rows.sources import is_mapped

N = 3000
DTYPES = (np.float16, np.float32, np.float64)
needs_torch = pytest.mark.needs("torch")


@pytest.fixture
def small_blocks(many_shards, monkeypatch):
    """Shards and blocks as of many more rows."""
    monkeypatch.setattr(Rows, "_read_values", 4096)
    monkeypatch.setattr(passes, "BLOCK_VALUES", 2048)


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of files as of many more rows: some of a chunk, and two of them are kept."""
    for name, n_bytes in (("_KEPT", 0), ("_SMALL_PART", 2**12), ("_LARGE_PART", 2**14)):
        monkeypatch.setattr(files, name, n_bytes)


@pytest.fixture
def nothing_kept(monkeypatch):
    """Rows are moved and projected again in each pass."""
    monkeypatch.setattr(gradients, "KEPT_BYTES", 0)


class Computed(Rows):
    """Rows of one's own: no file at all, and perhaps not what it states."""

    def __init__(self, X, read=lambda X, start, stop: X[start:stop]):
        self.X, self.shape, self.dtype, self._read = X, X.shape, X.dtype, read

    def read(self, start, stop):
        return self._read(self.X, start, stop)


def softmax_mean(rows, y, **options):
    options = {"norm_bound": 1.0, "constant": 0.3, "clip": 0.1} | options
    return Mean("softmax", rows, y, 3, **options)


def some_theta(mean):
    return np.random.default_rng(1).standard_normal((1, *mean.shape))


@pytest.mark.usefixtures("small_blocks", "small_parts")
@pytest.mark.parametrize(
    ("name", "dtype"),
    [*zip(HEADS, itertools.cycle(DTYPES)), *zip(KINDS, itertools.cycle(DTYPES[1:]))],
)
def test_every_source_gives_the_model_of_the_array(name, dtype, tmp_path, monkeypatch):
    """A file of some format, a memory map of rows that are not kept, and other numbers of cores."""
    X, y = records(dtype)
    assert len(shards_of(*X.shape)) > 4
    monkeypatch.setattr(passes, "MANY_FEATURES", 1)  # so that two matrices are decomposed at once
    head = fitted(name, X, y)
    turn = 3 * list(HEADS).index(name) + np.dtype(dtype).itemsize // 4
    cores, sources = [1, 2, 4], [stored(X, LAYOUTS[turn % 6], tmp_path), X]
    sources.append(stored(X, "memmap", tmp_path))
    for source in sources:
        assert (source.shape, source.dtype) == (X.shape, dtype)
        n_cores = cores.pop()
        monkeypatch.setattr(joblib, "cpu_count", lambda n_cores=n_cores: n_cores)
        assert passes.n_threads(*X.shape) == n_cores
        if n_cores == 1:
            monkeypatch.setattr(gradients, "KEPT_BYTES", 0)
        other = fitted(name, source, y)
        assert_same(head, other)
        np.testing.assert_array_equal(other.predict(source), head.predict(X))
        assert other.n_features_in_ == D


SHAPES = [(2048, 2), (2500, 384), (10_000, 384), (20_000, 768), (50_000, 384), (10**6, 384)]
SHAPES += [(10**7, 64), (10**5, 4096), (70_001, 100), (1500, 30_000), (100, 10**6)]


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_shards_are_a_function_of_the_shape(n, d):
    """Many of nearly one length, which all cores share; whole blocks of a sum."""
    assert shards_of(1000, 10) == [(0, 1000)]
    shards = shards_of(n, d)
    assert shards[0][0] == 0
    assert shards[-1][1] == n
    assert all(a[1] == b[0] and b[0] % SUMMED == 0 for a, b in itertools.pairwise(shards))
    assert len(shards) >= min(8, n // (2 * SUMMED) + 1)
    lengths = [stop - start for start, stop in shards]
    assert max(lengths) - min(lengths) <= 2 * SUMMED
    # What the proofs of rounding count on: no longer and no more shards than these.
    assert max(lengths) <= max(passes.SHARD_ROWS, passes.SHARD_VALUES // d) + MORE_ROWS
    assert len(shards) <= 8 + n / passes.SHARD_ROWS


@pytest.fixture(scope="module")
def large_file(tmp_path_factory):
    """40 MB of rows in half precision."""
    path, shape = tmp_path_factory.mktemp("large") / "x.npy", (160_000, 128)
    X = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=shape)
    X.reshape(16, 10_000, 128)[:] = 0.05 * np.random.default_rng(0).standard_normal((10_000, 128))
    X += np.float16(0.02)
    X.flush()
    return path


@pytest.mark.parametrize("name", KINDS)
def test_little_memory_above_the_file(name, large_file, monkeypatch):
    """A fit and a prediction take a fraction of the file."""
    monkeypatch.setattr(gradients, "KEPT_BYTES", 2**20)
    monkeypatch.setattr(Rows, "_read_values", 2**18)
    source = np.load(large_file, mmap_mode="r")
    y, head = np.arange(len(source)) % 2, clone(HEADS[name])
    if name == "descent":
        head.set_params(mechanism=GradientPerturbation(n_steps=2))
    tracemalloc.start()
    head.fit(source, y).predict(source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Labels, codes and predictions take 8 bytes a row each; blocks some megabytes a thread.
    assert peak < 32e6


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("kind", LAYOUTS[:-1])
def test_a_source_reads_what_is_asked_for(kind, tmp_path):
    X, _ = records(np.float16)
    source = stored(X, kind, tmp_path)
    for places in (slice(5, 1300), slice(None, None, 7), [2999, 0, 1234, 1233, -1], X[:, 0] > 0.5):
        np.testing.assert_array_equal(source[places], X[places])
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


def test_audits_read_a_source(tmp_path):
    X, y = records(np.float32, n=600)
    head = BallDPRidgePrototype(delta=1e-4, radius=1.0)
    auditor = ReconstructionAuditor(head, n_candidates=3, random_state=0)
    assert auditor.fit(stored(X, "zarr", tmp_path), y).guarantee_holds_


@pytest.mark.parametrize("name", [*KINDS, *(name for name in HEADS if "sphere" in name)])
def test_rows_of_no_admitted_size_are_refused(name, tmp_path, monkeypatch):
    """In any shard of an array or a file, by fit and predict; zero and the edge are taken."""
    monkeypatch.setattr(passes, "SEVERAL_ROWS", 200)
    X, y = records(n=400)
    assert len(shards_of(*X.shape)) == 4
    domain = "sphere" if "sphere" in name else "ball"
    X[6], X[7] = 0.0, 1e140 / (np.arange(D) + 1.0)
    X[8] = 1e-100 * (np.arange(D) == 2)
    head = fitted(name, X, y)
    assert np.isfinite(head.decision_function(X)).all()
    for place, bad in zip(itertools.cycle((150, 9, 399)), [np.nan, *refused_rows(domain)]):
        rows = X.copy()
        rows[place], rows[place, 3] = 0.0, bad
        # A file of its own: what was raised may hold the other one open still.
        for given in (np.asfortranarray(rows), stored(rows, "zarr", tmp_path / f"{place} {bad}")):
            assert_refused(name, given, y, "NaN or infinity, an entry above 1e140")
            with pytest.raises(ValueError, match="NaN or infinity, an entry above 1e140"):
                head.predict(given)


@pytest.mark.parametrize("domain", ["ball", "sphere"])
def test_no_row_decides_whether_another_is_refused(domain):
    """Squares err: what they show of a block must hold for each of its rows, at the very edge."""
    for d in (*range(1, 10), 16, 17, 31, 33, 64, 79):
        for edge in (1e-100, 1e140, 1e-100 / math.sqrt(d), 1e140 / math.sqrt(d)):
            for entry in (np.nextafter(edge, 0.0), edge, np.nextafter(edge, np.inf)):
                admitted = entry <= 1e140 and (domain == "ball" or entry >= 1e-100)
                for other in (0.0, 1.0, 1e-100, 1e139):
                    rows = np.full((3, d), other)
                    rows[1] = entry
                    kept = contextlib.nullcontext()
                    with kept if admitted else pytest.raises(FloatingPointError):
                        factors = domain_factors(rows, 1.0, domain)
                        if factors is not None and other:
                            alone = domain_factors(rows[:1], 1.0, domain)
                            assert factors[0] == (1.0 if alone is None else alone[0])


def test_what_would_be_pulled_into_memory_is_refused(tmp_path):
    X, y = records(np.float32)
    stored(X, "zarr", tmp_path)
    # As the class of h5py names itself.
    dataset = type("Dataset", (), {"__module__": "h5py._hl.dataset", "shape": X.shape})()
    for rows, remedy in (
        (zarr.open(str(tmp_path / "x"), mode="r"), "from_zarr"),
        (dataset, r"derives from sklearn_balldp\.rows\.Rows"),
    ):
        with pytest.raises(TypeError, match=remedy):
            BallDPRidgePrototype().fit(rows, y)
    with pytest.raises(ValueError, match=r"numpy\.stack"):
        BallDPRidgePrototype().fit(pd.DataFrame({"e": list(X)}), y)


@pytest.mark.parametrize("library", [array_api_strict, pytest.param("torch", marks=needs_torch)])
def test_arrays_of_other_libraries_are_arrays(library):
    library = importlib.import_module(library) if isinstance(library, str) else library
    X, y = records(np.float32)
    head, rows = fitted("prototypes", X, y), library.asarray(X)
    assert_same(head, fitted("prototypes", rows, library.asarray(y)))
    np.testing.assert_array_equal(head.predict(rows), head.predict(X))


def test_arrays_on_another_device_say_what_to_call():
    X, y = records(n=60)
    there = array_api_strict.Device("device1")
    rows, labels = (array_api_strict.asarray(values, device=there) for values in (X, y))
    for name, given in (("X", (rows, y)), ("y", (X, labels)), ("groups", (X, y, labels))):
        with pytest.raises(TypeError, match=rf"{name} is .* on the device .*{name}\.cpu\(\)"):
            BallDPRidgePrototype(delta=1e-3).fit(*given[:2], groups=given[2] if given[2:] else None)


def test_a_frame_may_have_any_column_names():
    """An attribute of a frame may be a column, whose values no error may quote."""
    X, y = records(n=200)
    names = ["device", "dtype", "shape", "get", "cpu", "fit", "collect", "requires_grad"]
    frame = pd.DataFrame(X, columns=[*names, "columns", *"abcdefg"])
    head, other = (fitted("prototypes", rows, y) for rows in (X, frame))
    assert_same(head, other)
    np.testing.assert_array_equal(other.predict(frame), head.predict(X))


@pytest.mark.parametrize("given", [{"source": "declared"}, {"source": "private", "epsilon": 1.0}])
def test_a_radius_read_off_private_rows_is_that_of_the_array(given, tmp_path, monkeypatch):
    """Also where a policy does not read all of them."""
    monkeypatch.setattr(radius_module, "MAX_ROWS_READ", 500)
    X, y = records(np.float32)
    policy = RadiusPolicy(random_state=0, **given)
    head = BallDPRidgePrototype(delta=1e-4, radius=policy, random_state=0)
    expected, found = (
        (clone(head).fit(rows, y).release_.radius, clone(policy).fit(rows, y).radius_)
        for rows in (X, stored(X, "zarr", tmp_path))
    )
    assert found == expected


def test_the_largest_distance_is_not_read_off_some_rows(monkeypatch):
    X, y = records(np.float32)
    policy = RadiusPolicy(1.0, source="declared")
    assert policy.fit(X, y).radius_ == same_label_quantile(project_onto_ball(X, 1.0), y, 1.0)
    monkeypatch.setattr(radius_module, "MAX_ROWS_READ", len(y) - 1)
    with pytest.raises(ValueError, match=r"quantile=1\.0"):
        policy.fit(X, y)
    # A policy that needs public rows reads no private ones.
    source = Computed(X, None)
    assert RadiusPolicy().fit(source, y, X_public=X[:100], y_public=y[:100]).radius_ > 0.0


def test_a_policy_reads_few_rows_of_each_class(monkeypatch):
    """Which ones depends on labels alone, so that a substitution moves one of them."""
    X, y = records(np.float32)
    y[y == 2] = np.where(np.arange((y == 2).sum()) < 10, 2, 1)
    assert rows_to_read(RadiusPolicy(), X, y)[0] is X
    monkeypatch.setattr(radius_module, "MAX_ROWS_READ", 61)
    rows, labels = rows_to_read(RadiusPolicy(), X, y)
    assert np.unique(labels, return_counts=True)[1].tolist() == [25, 25, 10]
    places = np.flatnonzero((X[:, None] == rows).all(axis=-1).any(axis=1))
    np.testing.assert_array_equal(X[places], rows)
    # Spread over the table, the last records too.
    assert places[0] < len(X) // 20
    assert places[-1] > len(X) - len(X) // 20
    other = np.random.default_rng(1).standard_normal(X.shape)
    np.testing.assert_array_equal(rows_to_read(RadiusPolicy(), other, y)[0], other[places])


def table_at(path, values, kind=None, names=("e",), **options):
    """A Parquet file with this column."""
    column = pa.array(values, kind and pa.list_(kind))
    parquet.write_table(pa.table([column] * len(names), names=list(names)), path, **options)
    return path


def test_files_that_hold_no_rows(tmp_path):
    X, _ = records(np.float32, n=20)
    names = iter(range(99))
    zarr.open_group(str(tmp_path / "g"), mode="w").create_array("a", shape=X.shape, dtype=X.dtype)

    def column_of(values, kind=None, **options):
        return table_at(tmp_path / f"{next(names)}.parquet", values, kind, **options)

    def saved(X, save=np.save):
        save(tmp_path / "x.npy", X)
        return tmp_path / "x.npy"

    def in_zarr(X):
        zarr.save(str(tmp_path / f"{next(names)}"), X)
        return tmp_path / f"{next(names) - 1}"

    def zipped(path):
        return shutil.make_archive(path, "zip", path)

    def archive(path, X):
        with open(path, "wb") as file:
            np.savez(file, X=X)

    single, double = (column_of([[1.0, 2.0]], kind) for kind in (pa.float32(), pa.float64()))
    for message, read in {
        r"\(20,\) and type float32; rows are two-dimensional": lambda: from_npy(saved(X[:, 0])),
        "type >f4": lambda: from_npy(saved(X.astype(">f4"))),
        "type int64": lambda: from_zarr(in_zarr(np.arange(6).reshape(2, 3))),
        r"numpy\.ascontiguousarray\(X\)": lambda: from_npy(saved(np.asfortranarray(X))),
        r"no NumPy file of one array \(\.npy\)": lambda: from_npy(saved(X, archive)),
        r"x\.npy'.* cannot be read \(ValueError\)": lambda: from_npy(saved(X.astype(object))),
        "Zarr group": lambda: from_zarr(tmp_path / "g"),
        "is a ZIP file; unpack it": lambda: from_zarr(zipped(in_zarr(X))),
        r"path=\[\] names no file": lambda: from_parquet([], "e"),
        "differ in length": lambda: from_parquet(column_of([[1.0, 2.0], [3.0]]), "e"),
        "gaps": lambda: from_parquet(column_of([[1.0, 2.0], None, [3.0, 4.0]]), "e"),
        "type string": lambda: from_parquet(column_of(["a", "b"]), "e"),
        "'f' is none": lambda: from_parquet(single, "f"),
        "'e' is more than one of": lambda: from_parquet(column_of([[1.0]], names="ee"), "e"),
        "several types": lambda: from_parquet([single, double], "e"),
    }.items():
        with pytest.raises(ValueError, match=message):
            read()
    # Groups and files without rows are passed over.
    paths = [column_of([], pa.float64()), double]
    assert from_parquet(paths[::-1], "e").shape == from_parquet(paths, "e").shape == (1, 2)
    # A later group of other lists is found when it is read.
    source = from_parquet(
        column_of([[1.0, 2.0]] * 3 + [[1.0, 2.0, 3.0]] * 3, row_group_size=3), "e"
    )
    with pytest.raises(ValueError, match="differ in length"):
        source.read(0, 6)


def parts(folder, *names):
    """Files of one row each, whose first number is their place."""
    for place, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        table_at(folder / name, [[float(place), 2.0]])


@pytest.mark.parametrize("partition", ["", "year=2025/label=a/"])
def test_a_folder_and_a_pattern_stand_for_their_files(partition, tmp_path):
    """As Spark writes them, perhaps in partitions."""
    for place in (2, 1, 0):
        parts(tmp_path / f"{partition}{place}", *["part-0.parquet", "part-1.parquet"][: place + 1])
    for other in ("_metadata.parquet", "_SUCCESS", ".part-0.parquet.crc", "_temporary/0.parquet"):
        (tmp_path / other).parent.mkdir(exist_ok=True)
        (tmp_path / other).write_text("")
    for path in (tmp_path, str(tmp_path), f"{tmp_path}/{partition}*/part-*.parquet"):
        found = from_parquet(path, "e").read(0, 5)[:, 0]
        np.testing.assert_array_equal(found, [0.0, 0.0, 1.0, 0.0, 1.0])
    with pytest.raises(ValueError, match="names no file"):
        from_parquet(tmp_path / "none-*.parquet", "e")
    with pytest.raises(ValueError, match="download it first"):
        from_parquet("s3://bucket/rows.parquet", "e")


@pytest.mark.parametrize("name", ["part.{}.parquet", "label={}/part-0.parquet"])
def test_numbered_files_are_in_order_or_asked_for(name, tmp_path):
    """Dask numbers parts without zeros, and reads 2 before 10; pandas and pyarrow do not."""
    names = [name.format(place) for place in range(11)]
    parts(tmp_path, *names[:10])
    np.testing.assert_array_equal(from_parquet(tmp_path, "e")[:][:, 0], range(10))
    parts(tmp_path, *names)
    for path in (tmp_path, str(tmp_path / name.format("*"))):
        with pytest.raises(ValueError, match="pass a list of them, in the order of the labels"):
            from_parquet(path, "e")
    found = from_parquet([tmp_path / own for own in names], "e")
    np.testing.assert_array_equal(found[:][:, 0], range(11))


@pytest.mark.parametrize("table", TABLES)
def test_a_table_with_a_history_is_refused(table, tmp_path):
    """However its files are named: what was deleted from it still lies among them."""
    folder = tmp_path / "x"
    with_history(folder, table, lambda path: table_at(path, [[1.0, 2.0]]))
    (tmp_path / "link").symlink_to(folder / "data")
    (tmp_path / "blobs").mkdir()
    # As caches of downloads keep files: the folder holds links to them.
    blob = (folder / "data" / "1.parquet").rename(tmp_path / "blobs" / "1")
    (folder / "data" / "1.parquet").symlink_to(blob)
    inside = sorted((folder / "data").glob("*.parquet"))
    for path in (tmp_path, folder, folder / "data", f"{folder}/*/*.parquet", inside, inside[1]):
        with pytest.raises(ValueError, match=rf"a table of {table}, whose files keep rows that"):
            from_parquet(path, "e")
    with pytest.raises(ValueError, match=f"a table of {table}"):
        from_parquet(tmp_path / "link", "e")
    (folder / TABLES[table]).unlink()
    assert from_parquet(folder, "e").shape == (2, 2)


def test_a_missing_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(ImportError, match="pip install zarr"):
        from_zarr(tmp_path)


@pytest.mark.parametrize(
    ("codec", "remedy"),
    [
        ("imagecodecs_jpeg2k", "imagecodecs"),
        ("pcodec", r"pip install 'numcodecs\[pcodec\]'"),
        ("blosc9", "the package that registers it"),
    ],
)
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr")
def test_a_missing_codec_is_named_with_what_to_install(version, codec, remedy, tmp_path):
    """When the file is opened; it is not called damaged."""
    stored(records(n=40)[0], "zarr 2" if version == 2 else "zarr", tmp_path)
    path = tmp_path / "x" / (".zarray" if version == 2 else "zarr.json")
    metadata = json.loads(path.read_text())
    if version == 2:
        metadata["compressor"] = {"id": codec}
    elif codec == "pcodec":
        metadata["codecs"] = [{"name": "numcodecs.pcodec", "configuration": {"level": 8}}]
    else:
        metadata["codecs"].append({"name": codec, "configuration": {}})
    path.write_text(json.dumps(metadata))
    with pytest.raises(
        ValueError, match=rf"(?i)codec '[\w.]*{codec}', .* not installed: it needs {remedy};"
    ):
        from_zarr(tmp_path / "x")


def test_a_codec_of_parquet_that_is_missing_is_named(tmp_path):
    path = table_at(tmp_path / "x.parquet", [[1.0, 2.0]], compression="snappy")
    # The codec's number, behind the name of the column: LZO is in no pyarrow.
    before, _, after = path.read_bytes().rpartition(b"element\x15\x02")
    path.write_bytes(before + b"element\x15\x06" + after)
    with pytest.raises(ValueError, match="the codec LZO, which this pyarrow lacks"):
        from_parquet(path, "e")


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize("layout", [*ZARR, "parquet"])
def test_a_file_of_moderate_size_is_decoded_once(layout, many_shards, tmp_path, monkeypatch):
    """Chunks are no shards: each pass would decode some of them twice, if no part was kept."""
    X, y = records(n=3000)
    source, decoded = stored(X, layout, tmp_path), []
    open_file = source._open

    def counted(*names):
        parts = open_file(*names)

        def decode(start, stop):
            decoded.append(start)
            return parts.decode(start, stop)

        return replace(parts, decode=decode)

    source._open = counted
    fitted("descent", source, y)
    assert sorted(decoded) == source._opened[1][:-1]


@pytest.mark.parametrize("layout", LAYOUTS[:-1])
def test_the_next_fit_reads_what_was_written_since(layout, tmp_path):
    """What was decoded in a fit is not kept until the next one, nor are places of row groups."""
    X, y = records(n=400)
    source = stored(X, layout, tmp_path)
    expected = fitted("prototypes", X, y)
    assert_same(expected, fitted("prototypes", source, y))
    np.testing.assert_array_equal(source[:], X)
    shutil.rmtree(tmp_path / "x", ignore_errors=True)
    other = X[::-1].copy()
    store(other, layout, tmp_path)
    assert_same(fitted("prototypes", other, y), fitted("prototypes", source, y))
    np.testing.assert_array_equal(source[[3, 399]], other[[3, 399]])


@pytest.mark.parametrize(("rows", "features", "chunk"), [(10**6, 64, 1000), (10**6, 384, 10**6)])
def test_parts_are_whole_chunks_of_some_megabytes(rows, features, chunk):
    edges = files._edges((rows, features), np.dtype(np.float64), chunk)
    lengths = np.diff(edges)
    assert (edges[0], edges[-1]) == (0, rows)
    assert 2**23 < lengths[0] * features * 8 <= 2**26
    assert chunk > lengths[0] or all(edge % chunk == 0 for edge in edges)
    assert files._edges((0, features), np.dtype(np.float64), chunk) == [0]


def test_the_class_of_the_page_reads_another_store(tmp_path):
    """What docs/rows.md shows for HDF5: a fit gives the model of the array."""
    page = (Path(__file__).parents[2] / "docs" / "rows.md").read_text()
    (code,) = re.findall(r"```python\n(class HDF5Rows.*?)```", page, re.DOTALL)
    # A file of NumPy's archive can be read while it is open, and holds arrays under names.
    scope = {"rows": sklearn_balldp.rows, "h5py": types.SimpleNamespace(File=np.load)}
    exec(code, scope)
    X, y = records(np.float32)
    np.savez(tmp_path / "x.npz", rows=X)
    source = scope["HDF5Rows"](tmp_path / "x.npz", "rows")
    for name in KINDS:
        assert_same(fitted(name, X, y), fitted(name, source, y))


@pytest.mark.parametrize(
    "read",
    [
        lambda X, a, b: X[a : min(b, 1000)],
        lambda X, a, b: np.vstack([X[a:b], X[:1]]),
        lambda X, a, b: X[a:b, :1],
        lambda X, a, b: X[a:b].astype(np.float64),
        lambda X, a, b: X[a:b].tolist(),
        lambda X, a, b: np.ma.masked_array(X[a:b], X[a:b] > 0.5),
    ],
)
def test_a_read_of_another_shape_is_refused(read):
    """What is read short would leave old memory among the rows."""
    X, y = records(np.float32)
    for name in KINDS:
        assert_refused(name, Computed(X, read), y, "has the file changed")


def spoiled_after(n_passes, value):
    """Reads rows of which the first is another one after some passes."""
    starts = []

    def read(X, start, stop):
        starts.append(start)
        rows = X[start:stop].copy()
        if starts.count(0) > n_passes and start == 0:
            rows[0] = value
        return rows

    return read


@pytest.mark.usefixtures("small_blocks", "nothing_kept")
@pytest.mark.parametrize(
    ("name", "dtype", "value"),
    [(name, np.float32, 1000.0) for name in ("descent", "SVC", "minimiser")]
    + [("descent", np.float16, bad) for bad in (np.nan, np.inf, -np.inf)],
)
def test_rows_that_change_between_passes_are_noticed(name, dtype, value):
    """What was projected at first would no longer be. In half precision NaN has a number's bits."""
    X, y = records(dtype)
    head = clone(HEADS[name]).set_params(delta=1e-4, radius=0.3)
    if dtype == np.float16:
        head.set_params(norm_bound=1e6)  # a ball that would hold those numbers
    with pytest.raises(ValueError, match="changed while they were read"):
        head.fit(Computed(X, spoiled_after(6, value)), y)
    assert not hasattr(head, "release_")


@pytest.mark.parametrize(
    ("name", "norm_bound"), [("descent", 1e-9), ("descent", 1e11), ("SVC", 1e9)]
)
def test_long_rows_of_a_file_that_did_not_change(name, norm_bound, request):
    """Single precision holds the squares that show it, however much longer rows are than B."""
    X, y = records(np.float32)
    X *= (norm_bound * 10.0 ** np.linspace(-2.0, 10.0, len(X)))[:, None].astype(np.float32)
    head = clone(HEADS[name]).set_params(delta=1e-4, radius=0.3 * norm_bound)
    head.set_params(norm_bound=norm_bound, random_state=0)
    expected = clone(head).fit(X, y)
    request.getfixturevalue("nothing_kept")
    assert_same(expected, head.fit(Computed(X, lambda X, a, b: X[a:b].copy()), y))


@pytest.mark.parametrize("dtype", [">f4", "int32", "longdouble"])
def test_sources_of_other_types_are_refused(dtype):
    X, y = records(np.float32, n=60)
    with pytest.raises(ValueError, match="order of bytes"):
        BallDPRidgePrototype(delta=1e-4).fit(Computed(X.astype(dtype)), y)


def test_threads_stop_at_an_error_and_ignore_what_their_caller_ignores():
    """Else whether a warning is given would depend on the rows."""
    shards = iter(range(200))
    with passes.ThreadPoolExecutor(2) as pool, pytest.raises(ZeroDivisionError):
        list(passes.map_shards(lambda _: next(shards) // 0, range(200), 2, pool))
    assert next(shards) < 20
    with passes.ThreadPoolExecutor(2) as pool, np.errstate(all="ignore"):
        found = list(passes.map_shards(lambda _: np.float64(1e308) * 10, range(9), 2, pool))
    assert len(found) > 2
    assert set(found) == {np.inf}


@pytest.mark.usefixtures("small_blocks", "nothing_kept")
@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_moved_rows_of_a_file_that_did_not_change(dtype, whitened, whitening):
    """Some of them are scaled at last: what is multiplied is longer than the ball."""
    X, y = records(dtype)
    rows = X / np.float32(0.6) / np.linalg.norm(X, axis=1).max()
    centre = np.zeros(D)
    centre[0] = -0.9
    own, _ = whitening(centre, 0.4, whitened, 0.3 if whitened else None)
    kept, read = (softmax_mean(source, y, seen=own) for source in (rows, Computed(rows)))
    parts = list(read.table.each(lambda part: part))
    assert all(part.may_change and part.column("last").min() < 0.9 for part in parts)
    np.testing.assert_array_equal(kept(some_theta(kept)), read(some_theta(kept)))


def mapped(X, folder):
    """Rows of a file that may be changed, and what a fit reads of it."""
    rows = np.lib.format.open_memmap(folder / "x.npy", "w+", X.dtype, X.shape)
    rows[:] = X
    rows.flush()
    return rows, np.load(folder / "x.npy", mmap_mode="r")


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_whitened_rows_that_leave_the_ball_are_noticed(dtype, whitening, tmp_path):
    """One turns where rows are not shortened: it is no longer than it was, before whitening."""
    X, y = records(dtype)
    own, _ = whitening(np.zeros(D), 1.0, True, 0.5)
    X[7] = own.directions[:, 0]
    rows, given = mapped(X, tmp_path)
    mean = softmax_mean(given, y, seen=own)
    mean(some_theta(mean))
    rows[7] = np.linalg.svd(own.directions.T)[2][-1]
    rows.flush()
    with pytest.raises(ValueError, match="changed while they were read"):
        mean(some_theta(mean))


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


def column_at(path, X, kind=None, **options):
    return table_at(path, X.tolist(), kind or pa.float32(), **options)


@pytest.mark.parametrize(("rows", "kind"), [(20, pa.float64()), (24, pa.float32()), (15, None)])
@pytest.mark.parametrize("opened", [False, True])
def test_a_file_that_was_rewritten_is_named(rows, kind, opened, tmp_path):
    """Between its naming and its reading in another process, or within one."""
    X, y = records(n=24)
    path = tmp_path / "x.parquet"
    column_at(path, X[:20], row_group_size=5)
    source = from_parquet(path, "e")
    sent = source if opened else pickle.loads(pickle.dumps(source))
    column_at(path, X[:rows], kind, row_group_size=rows)
    head = BallDPRidgePrototype(delta=1e-4, radius=0.5)
    with pytest.raises(ValueError, match=r"x\.parquet'.*(changed|cannot be read)"):
        head.fit(sent, y[:20])
    assert not hasattr(head, "release_")


@pytest.mark.parametrize("layout", ZARR)
@pytest.mark.parametrize("rows", [[], [slice(0, 200)], [slice(0, 50), slice(200, 250)]])
def test_rows_that_were_never_written_are_not_made_up(rows, layout, tmp_path):
    """Libraries read fill values in their place."""
    opened, _ = store(records(n=400)[0], layout, tmp_path, rows)
    with pytest.raises(ValueError, match=rf"path='{tmp_path}/x' lacks .* reads a fill value"):
        opened()


#: What can happen to a file; only some notice bytes that changed.
DAMAGES = [*itertools.product(LAYOUTS[:-1], ("gone", "cut")), ("parquet", "noise")]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize(("layout", "damage"), DAMAGES)
def test_rows_that_vanish_after_opening_are_not_made_up(layout, damage, sent, tmp_path):
    X, y = records(n=400)
    opened, files = store(X, layout, tmp_path)
    source = pickle.loads(pickle.dumps(opened())) if sent else opened()
    np.testing.assert_array_equal(source[:20], X[:20])
    body = bytearray(files[-1].read_bytes())
    middle = slice(len(body) // 3, len(body) // 3 + 40)
    if damage == "gone":
        files[-1].unlink()
    elif damage == "cut":
        os.truncate(files[-1], len(body) - (len(body) // 2 if "parquet" in layout else 100))
    else:
        body[middle] = bytes(b ^ 0xA5 for b in body[middle])
        files[-1].write_bytes(body)
    head = BallDPRidgePrototype(delta=1e-4, radius=0.5)
    with pytest.raises(ValueError, match=r"x1?(\.npy)?'( lacks|: .* cannot be read)"):
        head.fit(source, y)
    assert not hasattr(head, "release_")


@pytest.mark.parametrize(
    ("error", "kind", "match"),
    [
        (MemoryError("of 1.25"), MemoryError, "rows 0 to 20 did not fit into memory"),
        (OSError(errno.EMFILE, "of 1.25"), OSError, "cannot be read: Too many open files"),
        (OSError(errno.EIO, "of 1.25"), ValueError, "missing, damaged or being written"),
        (ValueError("path= of 1.25"), ValueError, r"cannot be read \(ValueError\)"),
    ],
)
def test_what_is_wrong_is_told_without_a_value(error, kind, match, tmp_path):
    """An error of this package is known by its class, whatever its first words are."""
    source = stored(records(n=20)[0], "npy", tmp_path)

    def fails(number):
        raise error

    source._opened = os.getpid(), [0, 20], fails
    with pytest.raises(kind, match=match) as caught:
        source[:]
    assert "1.25" not in str(caught.value)
    assert caught.value.__context__ is None
    assert isinstance(caught.value, RowsError) == (kind is ValueError)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_leaves_no_lock_taken(tmp_path):
    """Another thread may be decoding then, and the child has no such thread."""
    source = stored(records(n=20)[0], "parquet", tmp_path)
    with source._lock, passes.SINGLE_BLAS_THREAD._lock:
        child = os.fork()
        if child == 0:
            locks = source._lock, passes.SINGLE_BLAS_THREAD._lock
            os._exit(0 if all(lock.acquire(timeout=5.0) for lock in locks) else 7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.kills("rows/sources.py", "else isinstance(base, bytes))", "else True)")
def test_memory_that_others_may_write_to_counts_as_mapped(tmp_path):
    X, _ = records(n=40)
    (tmp_path / "x").write_bytes(X.tobytes())
    for memory in (
        np.memmap(tmp_path / "x").base,
        pa.memory_map(str(tmp_path / "x")).read_buffer(),
        (ctypes.c_char * X.nbytes)(*X.tobytes()),
        memoryview(bytearray(X.tobytes())),
    ):
        rows = np.frombuffer(memory, X.dtype).reshape(X.shape)
        assert is_mapped(rows)
        assert is_mapped(rows[3:, :2])
        for _, part in passes.row_blocks(rows, dtype=X.dtype.type):
            assert not np.shares_memory(part, rows)
            np.testing.assert_array_equal(part, X)
    for own in (X, X[2:], X.T, np.frombuffer(X.tobytes(), X.dtype), pd.DataFrame(X).to_numpy()):
        assert not is_mapped(own)


class Alive(Computed):
    """A source whose shape grows once it was asked, and that keeps what it gave."""

    grown = asked = 0

    @property
    def shape(self):
        self.asked += 1
        return len(self.X) + self.grown * (self.asked > 1), self.X.shape[1]

    @shape.setter
    def shape(self, shape):
        """As stated at first."""


@pytest.mark.parametrize("name", KINDS)
def test_a_shape_that_changes_during_a_fit_ends_it(name):
    X, y = records()
    head, rows = clone(HEADS[name]).set_params(delta=1e-4, radius=0.3, random_state=0), Alive(X)
    assert clone(head).fit(rows, y).release_.digest == clone(head).fit(X, y).release_.digest
    rows.grown, rows.asked = 5, 0
    with pytest.raises(ValueError, match="the source states shape and type"):
        head.fit(rows, y)
    assert not hasattr(head, "release_")


def test_parts_of_a_source_of_ones_own_are_copied():
    X, _ = records(n=50)
    rows = Computed(X.copy())._for_one_fit()
    part = rows._part(0, 10)
    rows.source.X[:] = 7e12
    np.testing.assert_array_equal(part, X[:10])
