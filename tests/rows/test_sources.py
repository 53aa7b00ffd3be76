"""Rows in stores: the models of the array, in little memory; and what is refused."""

import contextlib
import importlib
import itertools
import math
import os
import tracemalloc

import array_api_strict
import dask.array as da
import joblib
import numpy as np
import pandas as pd
import pytest
from row_cases import (
    HEADS,
    KINDS,
    STORES,
    ZARR,
    D,
    Store,
    assert_refused,
    assert_same,
    fitted,
    records,
    refused_rows,
    stored,
)
from sklearn.base import clone

import sklearn_balldp.radius as radius_module
from sklearn_balldp import (
    BallDPRidgePrototype,
    GradientPerturbation,
    PrivacyAccountant,
    RadiusPolicy,
    ReconstructionAuditor,
)
from sklearn_balldp.accounting import PrivateAccuracy
from sklearn_balldp.distances import same_label_quantile
from sklearn_balldp.mechanisms import MeanGradient, Records, gradients
from sklearn_balldp.privacy.problem import Problem
from sklearn_balldp.radius import rows_to_read
from sklearn_balldp.rows import domain_factors, passes, project_onto_ball, sources
from sklearn_balldp.rows.sources import Stored

DTYPES = (np.float16, np.float32, np.float64)
needs_torch = pytest.mark.needs("torch")


@pytest.fixture
def small_parts(monkeypatch):
    """Parts and threads as of many more rows."""
    monkeypatch.setattr(sources, "_READ_VALUES", 4096)
    monkeypatch.setattr(passes, "_MANY_VALUES", 2**10)
    monkeypatch.setattr(joblib, "cpu_count", lambda: 3)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(("name", "kind"), [*zip(HEADS, itertools.cycle(STORES))])
def test_every_store_gives_the_model_of_the_array(name, kind, tmp_path, monkeypatch):
    """Whether rows are kept in place between passes or not."""
    X, y = records(DTYPES[list(HEADS).index(name) % 3])
    head, store = fitted(name, X, y), stored(X, kind, tmp_path)
    other = fitted(name, store, y)
    assert_same(head, other)
    np.testing.assert_array_equal(other.predict(store), other.predict(X))
    np.testing.assert_allclose(other.decision_function(store), other.decision_function(X), 1e-12)
    assert other.n_features_in_ == D
    monkeypatch.setattr(gradients, "KEPT_BYTES", 0)
    assert_same(head, fitted(name, np.asfortranarray(X), y))


@pytest.fixture(scope="module")
def large_file(tmp_path_factory):
    """41 MB of rows in half precision, which would be 164 MB in double."""
    path, shape = tmp_path_factory.mktemp("large") / "x.npy", (160_000, 128)
    X = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=shape)
    X.reshape(16, 10_000, 128)[:] = 0.05 * np.random.default_rng(0).standard_normal((10_000, 128))
    X += np.float16(0.02)
    X.flush()
    return path


@pytest.mark.parametrize("name", KINDS)
def test_little_memory_above_the_file(name, large_file, monkeypatch):
    """A fit and a prediction of rows that are not kept take some blocks for each thread."""
    monkeypatch.setattr(gradients, "KEPT_BYTES", 2**20)
    source = np.load(large_file, mmap_mode="r")
    y, head = np.arange(len(source)) % 2, clone(HEADS[name])
    if name == "descent":
        head.set_params(mechanism=GradientPerturbation(n_steps=2))
    tracemalloc.start()
    head.fit(source, y).predict(source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Labels, codes and predictions take 8 bytes a row each; blocks some megabytes a thread.
    assert peak < 60e6


@pytest.mark.parametrize("kind", ["zarr", "hdf5", "own"])
def test_audits_and_policies_read_a_store(kind, tmp_path):
    X, y = records(np.float32, n=600)
    store = stored(X, kind, tmp_path)
    head = BallDPRidgePrototype(delta=1e-4, radius=1.0)
    auditor = ReconstructionAuditor(head, n_candidates=3, random_state=0)
    assert auditor.fit(store, y).guarantee_holds_
    assert auditor.fit(da.from_array(X, chunks=(100, -1)), da.from_array(y)).guarantee_holds_
    policy = RadiusPolicy(source="declared").fit(X, y)
    np.testing.assert_array_equal(policy.transform(store), policy.transform(X))


@pytest.mark.kills("accounting/scoring.py", "validate_data(estimator", "str(estimator")
def test_private_accuracy_knows_its_rows_before_it_is_charged(tmp_path):
    """As many labels as rows; and chunks of Dask, which machines may round, are refused."""
    X, y = records(n=200)
    head, account = fitted("prototypes", X, y), PrivacyAccountant()
    score = PrivateAccuracy(1.0, accountant=account)
    for rows, labels, said in (
        (X[:0], y[:0], "X holds no rows"),
        (X, y[:-1], "inconsistent numbers of samples"),
        (X[:, :-1], y, "features, but"),
        (da.from_array(X), y, "PrivateAccuracy: X is an array of Dask"),
    ):
        with pytest.raises(ValueError, match=said):
            score(head, rows, labels)
    assert account.total().n_releases == 0
    assert np.isfinite(score(head, stored(X, "zarr", tmp_path), da.from_array(y)))


@pytest.mark.parametrize("name", [*KINDS, *(name for name in HEADS if "sphere" in name)])
def test_rows_of_no_admitted_size_are_refused(name, tmp_path):
    """In an array or a store, by fit and predict; zero and the edge are taken."""
    X, y = records(n=400)
    domain = "sphere" if "sphere" in name else "ball"
    X[6], X[7] = 0.0, 1e140 / (np.arange(D) + 1.0)
    X[8] = 1e-100 * (np.arange(D) == 2)
    head = fitted(name, X, y)
    assert np.isfinite(head.decision_function(X)).all()
    for place, bad in zip(itertools.cycle((150, 9, 399)), [np.nan, *refused_rows(domain)]):
        rows = X.copy()
        rows[place], rows[place, 3] = 0.0, bad
        chunks = da.from_array(rows, chunks=(90, -1))
        for given in (np.asfortranarray(rows), stored(rows, "own", tmp_path), chunks):
            assert_refused(name, given, y, "NaN or infinity, an entry above 1e140")
            for ask in (head.predict, head.decision_function):
                with pytest.raises(ValueError, match="NaN or infinity, an entry above 1e140"):
                    np.asarray(ask(given))


def growing(X, rows):
    """Rows that are longer each time they are read."""
    growing.size *= 10.0
    return growing.size * X[rows]


@pytest.mark.parametrize("whitened", [None, False, True])
def test_rows_that_change_between_passes_stay_in_the_ball(whitened, whitening, monkeypatch):
    """Each pass brings the rows that it reads into the domain: no record adds more than it may."""
    X, y = records(n=300)
    growing.size = 1.0
    seen = None if whitened is None else whitening(np.full(D, 0.1), 0.8, whitened, 0.6)[0]
    public = {"n_samples": 300, "n_features": D, "n_classes": 3, "class_counts": (100, 100, 100)}
    problem = Problem(**public, radius=0.3, loss="softmax")
    held = Records(Stored(Store(X, growing)), y)
    thetas = np.random.default_rng(1).standard_normal((6, 3, D + 1))
    for theta in thetas:
        query = MeanGradient(theta, clip=0.2, constant=0.3, whitening=seen)
        norm = 1.0 if seen is None else seen.norm
        values = query.values(problem, held)
        assert np.linalg.norm(values) <= 0.2 * np.hypot(norm, 0.3) * (1.0 + 1e-9)
    assert growing.size == 1e6


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


@pytest.mark.parametrize("kind", ["zarr", "hdf5", "dask"])
def test_a_radius_read_off_private_rows_is_that_of_the_array(kind, tmp_path, monkeypatch):
    """Also where a policy does not read all of them."""
    X, y = records(np.float32)
    store = da.from_array(X, chunks=(700, -1)) if kind == "dask" else stored(X, kind, tmp_path)
    for most in (10**6, 500):
        monkeypatch.setattr(radius_module, "MAX_ROWS_READ", most)
        policy = RadiusPolicy(random_state=0, source="declared")
        head = BallDPRidgePrototype(delta=1e-4, radius=policy, random_state=0)
        expected, found = (
            (clone(head).fit(rows, y).release_.radius, clone(policy).fit(rows, y).radius_)
            for rows in (X, store)
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
    source = Store(X, None)
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


@pytest.mark.parametrize("kind", [*ZARR, "own"])
@pytest.mark.parametrize("written", [[], [slice(0, 200)], [slice(0, 50), slice(200, 250)]])
def test_chunks_that_were_never_written_are_not_made_up(written, kind, tmp_path):
    """Zarr reads fill values in their place."""
    X, y = records(n=400)
    store = stored(X, kind, tmp_path, written)
    if kind == "own":
        BallDPRidgePrototype(delta=1e-4, radius=0.5).fit(store, y)
    elif not ("shards" in kind and len(written) == 2):
        # Whether chunks inside of a shard were written, nobody is asked.
        assert_refused("prototypes", store, y, "chunks of this array were never written")


@pytest.mark.parametrize(
    "read",
    [
        lambda X, rows: X[rows][:-1],
        lambda X, rows: np.vstack([X[rows], X[:1]]),
        lambda X, rows: X[rows, :1],
        lambda X, rows: X[rows].astype(np.float64),
        lambda X, rows: X[rows].tolist(),
        lambda X, rows: np.ma.masked_array(X[rows], X[rows] > 0.5),
    ],
)
def test_what_is_not_as_announced_is_refused(read):
    """What is read short would leave old memory among the rows; a mask would be lost."""
    X, y = records(np.float32)
    for name in KINDS:
        assert_refused(name, Store(X, read), y, "was announced")


@pytest.mark.parametrize("dtype", [">f4", "int32", "longdouble"])
def test_stores_of_other_types_are_refused(dtype):
    X, y = records(np.float32, n=60)
    for rows in (Store(X.astype(dtype)), da.from_array(X.astype(dtype))):
        with pytest.raises(ValueError, match="order of bytes"):
            BallDPRidgePrototype(delta=1e-4).fit(rows, y)


def test_errors_of_a_library_quote_no_row():
    X, y = records(n=80)

    def talkative(X, rows):
        raise OSError(f"bad rows: {X[rows].tolist()}")

    for store in (Store(X, talkative), Store(X, lambda X, rows: 1 // 0)):
        head = clone(HEADS["prototypes"]).set_params(delta=1e-4, radius=0.3)
        with pytest.raises(
            ValueError, match=r"cannot be read \((OS|ZeroDivision)Error\)"
        ) as caught:
            head.fit(store, y)
        assert caught.value.__context__ is None
        assert not hasattr(head, "release_")


def test_cells_that_hold_lists_say_what_to_call():
    X, y = records(n=60)
    with pytest.raises(ValueError, match=r"numpy\.stack"):
        BallDPRidgePrototype().fit(pd.DataFrame({"e": list(X)}), y)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_leaves_no_lock_taken():
    """Another thread may be reading then, and the child has no such thread."""
    source = Stored(Store(records(n=20)[0]))
    with source._lock, passes.SINGLE_BLAS_THREAD._lock:
        child = os.fork()
        if child == 0:
            locks = source._lock, passes.SINGLE_BLAS_THREAD._lock
            os._exit(0 if all(lock.acquire(timeout=5.0) for lock in locks) else 7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
