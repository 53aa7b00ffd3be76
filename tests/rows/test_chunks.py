"""Dask arrays: the models of the array, under every scheduler; nothing private in logs or keys."""

import gc
import multiprocessing
import os
import signal
import time
import warnings
from importlib.metadata import version

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from row_cases import HEADS, KINDS, assert_refused, assert_same, fitted, records
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_score
from verdicts import verified

from sklearn_balldp import BallDPLinearDiscriminant, BallDPRidgePrototype, RadiusPolicy
from sklearn_balldp.rows import chunks

N = 3000
#: Chunks of one row, uneven and empty ones.
UNEVEN = (1, 1, 1, 0, 997, 0, 2000)
SECRET = 0.7351942688
DTYPES = ["float16", "float32", "float64"]
lazy = pytest.mark.filterwarnings("ignore:X is a Dask array that is not persisted")


def forbid_noise():
    """On a worker: whoever draws noise there fails."""
    from sklearn_balldp.privacy import noise

    def refuse(*_, **__):
        raise AssertionError("noise was drawn on a worker")

    noise.Noise.__call__ = noise.Noise._deviates = refuse


def method_of_starts():
    """Workers fork from a process that has imported what they need, where systems have one."""
    method = "forkserver"
    # It was tried with releases of this year alone; others start as they always did.
    older = int(version("distributed").partition(".")[0]) < 2026
    if older or method not in multiprocessing.get_all_start_methods():
        return "spawn"
    with dask.config.set({"distributed.worker.multiprocessing-method": method}):
        context = get_mp_context()
    context.set_forkserver_preload(["distributed", "sklearn_balldp.rows.chunks"])
    return method


@pytest.fixture(scope="module")
def client():
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": method_of_starts()}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as local,
        Client(local) as connected,
    ):
        connected.run(forbid_noise)
        yield connected


def chunked(X, sizes=UNEVEN):
    """Rows in memory, in chunks of these sizes."""
    return da.from_array(X, chunks=(sizes, (X.shape[1],)))


def assert_predicts_alike(head, other, X, rows):
    """Predictions of Dask rows are lazy, and those of the array."""
    for method in ("predict", "decision_function", "predict_proba", "predict_log_proba"):
        if hasattr(head, method):
            expected, found = getattr(head, method)(X), getattr(other, method)(rows)
            assert isinstance(found, da.Array)
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            if expected.dtype.kind == "f":
                np.testing.assert_allclose(found.compute(), expected, 1e-5, 1e-5)
            else:
                np.testing.assert_array_equal(found.compute(), expected)


@lazy
@pytest.mark.kills(
    "rows/chunks.py",
    "cut(columns, slice(start, stop))",
    "cut([c if c is None else np.roll(c, 1) for c in columns], slice(start, stop))",
)
@pytest.mark.kills("rows/chunks.py", "nodes[i : i + _ADDED]", "nodes[i : i + _ADDED - 1]")
@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
@pytest.mark.parametrize(("name", "dtype"), [*zip(HEADS, 3 * DTYPES, strict=False)])
def test_every_scheduler_gives_the_model_of_the_array(name, dtype, scheduler, monkeypatch):
    """Of persisted and of lazy arrays; those of persons, and weights of classes, too."""
    monkeypatch.setattr(chunks, "_ADDED", 3)
    X, y = records(dtype, N)
    owners = np.random.default_rng(1).integers(0, N // 2, N) if name == "prototypes" else None
    head = fitted(name, X, y, groups=owners)
    with dask.config.set(scheduler=scheduler):
        rows = chunked(X) if scheduler == "threads" else chunked(X).map_blocks(np.copy)
        groups = None if owners is None else da.from_array(owners, chunks=100)
        other = fitted(name, rows, da.from_array(y, chunks=999), groups=groups)
        assert_same(head, other)
        assert_predicts_alike(head, other, X, rows)
        assert other.score(rows, da.from_array(y)) == head.score(X, y)


@pytest.mark.kills(
    "rows/chunks.py",
    "return sums_of(work.given, chunk, *columns)",
    "from ..privacy.noise import Noise; return Noise()(chunk, 1.0)",
)
@pytest.mark.parametrize(
    ("name", "dtype"), [*zip([*KINDS, "SVC"], 3 * ["float32", "float64"], strict=False)]
)
def test_a_cluster_gives_the_model_of_the_array(client, name, dtype):
    """Of two processes; whoever draws noise there fails."""
    X, y = records(dtype, N)
    head, rows = fitted(name, X, y), chunked(X).persist()
    other = fitted(name, rows, y)
    assert_same(head, other)
    assert_predicts_alike(head, other, X, rows)
    assert other.score(rows, y) == head.score(X, y)


@pytest.mark.usefixtures("client")
def test_rows_that_no_pass_takes_are_refused():
    """Before anything is charged where Dask announces it, else by the first pass."""
    X, y = records(np.float32, 500)
    rows = da.from_array(X, chunks=(100, -1))
    for given, match in (
        (rows[rows[:, 0] > 0.1], r"compute_chunk_sizes\(\)"),
        (rows.rechunk((100, 3)), r"X\.rechunk\(\{1: -1\}\)"),
        (rows.astype(int), "order of bytes"),
        (rows[:-1], "inconsistent numbers of samples"),
        (rows[:, 0], "Expected 2D array"),
        (rows.map_blocks(lambda b: b[:-1], dtype=X.dtype, meta=X[:0]), "was announced"),
        (rows.map_blocks(lambda b: b.astype(float), dtype=X.dtype), "was announced"),
        (da.ma.masked_greater(rows, 0.9), "MaskedArray"),
        (rows.map_blocks(lambda b: b * np.nan, dtype=X.dtype, meta=X[:0]), "NaN or infinity"),
    ):
        assert_refused("prototypes", given, y, match)
    frame = dd.from_pandas(pd.DataFrame(X), npartitions=2)
    with pytest.raises(TypeError, match=r"X\.to_dask_array\(lengths=True\)"):
        BallDPRidgePrototype(delta=1e-4).fit(frame, y)
    head = fitted("prototypes", X, y)
    assert_same(head, fitted("prototypes", frame.to_dask_array(lengths=True), y))
    masked = da.ma.masked_equal(da.from_array(y), y[0])
    with pytest.raises(ValueError, match=r"y (has a mask|holds missing)"):
        BallDPRidgePrototype(delta=1e-4).fit(rows, masked)


def test_labels_and_owners_are_computed_once():
    X, y = records(n=500)
    asked = []

    def counted(block):
        asked.append(len(block))
        return block

    labels, owners = (
        da.from_array(values, chunks=500).map_blocks(counted, dtype=int, meta=y[:0])
        for values in (y, np.arange(500) // 2)
    )
    with dask.config.set(scheduler="synchronous"):
        head = BallDPRidgePrototype(delta=1e-4, radius=0.3).fit(
            chunked(X, (500,)), labels, groups=owners
        )
        assert asked == [500, 500]
        assert 0.0 <= head.score(chunked(X, (500,)), labels) <= 1.0
        assert asked == [500, 500, 500]


def test_a_fit_of_many_steps_over_a_lazy_array_says_so_once():
    X, y = records(n=500)
    rows = chunked(X, (250, 250))
    for name, given, said in (
        ("descent", rows + 0.0, 1),
        ("minimiser", rows + 0.0, 1),
        ("prototypes", rows + 0.0, 0),
        ("descent", rows, 0),
        ("descent", (rows + 0.0).persist(scheduler="threads"), 0),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fitted(name, given, y)
        told = [w for w in caught if r"X.persist()" in str(w.message)]
        assert len(told) == said
        assert all(w.filename == fitted.__code__.co_filename for w in told)


def _traces(dask_scheduler):
    """Keys of all tasks, and what the scheduler remembers of errors."""
    log = [str(entry) for entry in dask_scheduler.transition_log]
    return [*log, str(dask_scheduler.get_events())]


@lazy
def test_logs_keys_and_errors_hold_no_row(client, capfd):
    X, y = records(n=N)
    X[2000:] = SECRET
    digits = str(SECRET)[2:8]
    head = clone(HEADS["descent"]).set_params(delta=1e-5, radius=0.3)
    bad = X.copy()
    bad[2500, 3] = np.nan
    given, refused = (chunked(rows).persist() for rows in (X, bad))
    head.fit(given, y)
    errors = []
    for use in (
        lambda: clone(head).fit(refused, y),
        lambda: head.predict(refused).compute(),
        lambda: head.score(refused, y),
        lambda: clone(head).fit(given.map_blocks(lambda block: 1 // 0, meta=X[:0]), y),
    ):
        with pytest.raises((ValueError, RuntimeError)) as caught:
            use()
        errors.append(caught.value)
    assert ["NaN or infinity" in str(error) for error in errors] == [True, True, True, False]
    said = [str(client.get_worker_logs()), str(client.get_scheduler_logs()), *map(str, errors)]
    said += client.run_on_scheduler(_traces)
    said += list(capfd.readouterr())
    assert "balldp-pass" in "".join(said)
    assert digits not in "".join(said)


def test_keys_of_tasks_are_drawn_by_chance(client):
    """A key that was a digest of its arguments would be the same again, and tell of labels."""
    X, y = records(n=500)
    rows = chunked(X, (250, 250)).persist()

    def keys():
        log = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.transition_log))
        return {str(entry[0]) for entry in log if "array" not in str(entry[0])}

    seen = []
    for _ in range(2):
        before = keys()
        head = fitted("prototypes", rows, y)
        head.predict(rows).compute()
        seen.append(keys() - before)
    assert min(map(len, seen)) >= 5
    assert not seen[0] & seen[1]


@lazy
def test_nothing_is_held_after_a_fit(client):
    X, y = records(np.float32, N)
    rows = chunked(X)
    fitted("descent", rows, y).predict(rows).compute()
    with pytest.raises(ValueError, match="NaN"):
        fitted("descent", rows * np.nan, y)
    deadline = time.monotonic() + 600.0
    held = {"": 1}
    while any(held.values()) and time.monotonic() < deadline:
        # Tests before this one may have left cycles behind, by their errors.
        gc.collect()
        held = client.run(lambda dask_worker: len(dask_worker.data))
    assert not any(held.values())


def test_a_task_cannot_wait_for_others(client):
    def fit():
        X = da.from_array(np.eye(6), chunks=(3, -1))
        return BallDPRidgePrototype(delta=1e-4).fit(X, np.arange(6) % 2)

    with pytest.raises(ValueError, match="cannot wait for others"):
        client.submit(fit).result()


@pytest.mark.usefixtures("client")
def test_folds_checks_and_public_rows():
    X, y = records(n=600)
    rows = chunked(X, (200, 400)).persist()
    head = BallDPRidgePrototype(delta=1e-4, radius=0.3, random_state=0)
    expected = cross_val_score(head, X, y, cv=KFold(3))
    np.testing.assert_array_equal(cross_val_score(head, rows, y, cv=KFold(3)), expected)
    head = head.set_params(random_state=None).fit(rows, y)
    assert not verified(head, private=(rows, y)).failed
    policy = RadiusPolicy(source="edits")
    head = BallDPLinearDiscriminant(delta=1e-4, radius=policy, domain="sphere", random_state=0)
    edits = X[:200], X[:200] + 0.01
    here, far = (
        head.fit(X, y, X_public=before, y_public=after).release_.radius
        for before, after in (edits, [da.from_array(own, chunks=(90, -1)) for own in edits])
    )
    assert here == far > 0.0


def test_a_cluster_that_cannot_work_is_named(client, monkeypatch):
    X, y = records(n=500)
    head, rows = BallDPRidgePrototype(delta=1e-4), chunked(X, (500,))
    with monkeypatch.context() as patch:
        patch.setattr(chunks, "__version__", "0.0")
        with pytest.raises(ValueError, match=r"workers need sklearn_balldp 0\.0"):
            head.fit(rows, y)
    monkeypatch.setattr(type(client), "get_versions", lambda *_, **__: {"workers": {}})
    with pytest.raises(ValueError, match="wait_for_workers"):
        head.fit(rows, y)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_open", [False, True])
def test_a_cluster_that_was_closed_is_named(is_open):
    """Rows that it held are gone, whether its client is still open or not; others are read here."""
    X, y = records(n=60)
    options = {"processes": False, "n_workers": 1, "memory_limit": None, "dashboard_address": ":0"}
    with LocalCluster(**options) as cluster, Client(cluster) as connected:
        rows, held = chunked(X, (30, 30)), chunked(X, (30, 30)).persist()
        head = fitted("prototypes", held, y)
        cluster.close()
        if not is_open:
            connected.close()
        for use in (lambda: fitted("prototypes", held, y), lambda: head.score(held, y)):
            with pytest.raises(RuntimeError, match="the cluster that held it was closed"):
                use()
    assert_same(head, fitted("prototypes", rows, y))


def in_the_middle(monkeypatch, lose, after=5):
    """Lose workers while a pass waits for them, after so many."""
    waited, sent = chunks._waited, []

    def losing(client, values):
        sent.append(values)
        if len(sent) == after:
            lose()
        return waited(client, values)

    monkeypatch.setattr(chunks, "_waited", losing)
    return sent


def two_workers(client):
    """Wait for two; nannies that gave up on theirs are replaced. Their processes."""
    try:
        client.wait_for_workers(2, timeout=30)
    except TimeoutError:
        client.cluster.scale(0)
        client.cluster.scale(2)
        client.wait_for_workers(2, timeout=600)
    return set(client.run(os.getpid).values())


@lazy
def test_workers_that_are_lost_change_nothing(client, monkeypatch):
    """The pass is made again by those that come back: a nanny starts one for each that dies."""
    X, y = records(n=N)
    rows, before = chunked(X) + 0.0, two_workers(client)
    sent = in_the_middle(monkeypatch, lambda: [os.kill(each, signal.SIGKILL) for each in before])
    assert_same(fitted("descent", X, y), fitted("descent", rows, y))
    # One for each pass: the sums, and ten steps.
    assert len(sent) == 11
    assert two_workers(client) != before


@lazy
def test_a_cluster_without_workers_ends_the_fit(client, monkeypatch):
    """The last test of the file: it leaves no workers."""
    X, y = records(n=N)
    monkeypatch.setattr(chunks, "_PATIENCE", 0.5)
    in_the_middle(monkeypatch, lambda: client.cluster.scale(0))
    with pytest.raises(RuntimeError, match=r"\(TimeoutError\): a task failed, workers died"):
        fitted("descent", chunked(X) + 0.0, y)
