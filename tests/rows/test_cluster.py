"""Rows of files on a Dask cluster: the models of one process, nothing private in logs or keys."""

import gc
import multiprocessing
import os
import signal
import threading
import time
from importlib.metadata import version
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
import zarr
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from row_cases import (
    HEADS,
    KINDS,
    D,
    assert_same,
    fitted,
    records,
    stored,
)
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_score
from verdicts import verified

from sklearn_balldp import BallDPLinearDiscriminant, BallDPRidgePrototype, RadiusPolicy
from sklearn_balldp.rows import Rows, cluster, from_zarr, on_cluster, shards_of

N = 6000
FORMATS = ("zarr", "npy", "parquet", "two parquet files", "zarr shards")


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
    context.set_forkserver_preload(["distributed", "zarr", "sklearn_balldp.rows.cluster"])
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


@pytest.fixture(scope="module")
def single():
    """A cluster of one worker, in this process."""
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "memory_limit": None}
    # The worker would pause for ever, had it a limit and the tests before it were large enough.
    with (
        LocalCluster(**options, dashboard_address=":0") as local,
        Client(local, set_as_default=False) as connected,
    ):
        yield connected


@pytest.mark.usefixtures("client", "many_shards")
@pytest.mark.parametrize("name", [*KINDS, "SVC"])
def test_a_cluster_gives_the_model_of_one_process(name, tmp_path):
    """From every format, also of persons; and workers draw no noise."""
    X, y = records(n=N)
    assert len(shards_of(*X.shape)) > 10
    persons = name in ("prototypes", "SVC")
    owners = np.random.default_rng(1).integers(0, N // 2, N) if persons else None
    head = fitted(name, X, y, groups=owners)
    assert head.release_.unit == ("person" if persons else "record")
    source = on_cluster(stored(X, FORMATS[[*KINDS, "SVC"].index(name)], tmp_path))
    other = fitted(name, source, y, groups=owners)
    assert_same(head, other)
    assert other.n_features_in_ == D
    np.testing.assert_array_equal(other.decision_function(source), head.decision_function(X))
    assert other.score(source, y) == head.score(X, y)


@pytest.mark.usefixtures("many_shards")
@pytest.mark.parametrize(("name", "dtype"), [*zip(KINDS, 2 * ["float16", "float32"], strict=True)])
def test_the_number_of_workers_decides_no_bit(client, single, name, dtype, tmp_path):
    """Rows of less precision are computed with in double precision, as machines may differ."""
    X, y = records(dtype, N)
    source = stored(X, "npy", tmp_path)
    head, other = (fitted(name, on_cluster(source, own), y) for own in (client, single))
    assert_same(head, other)
    if name != "minimiser":
        wide = fitted(name, X.astype(np.float64), y)
        assert_same(wide, head, rtol=1e-6, atol=1e-6)


SECRET = 0.7351942688


class Talkative(Rows):
    """A source whose errors quote rows."""

    def __init__(self, X, good):
        self.X, self.shape, self.dtype, self.good = X, X.shape, X.dtype, good

    def read(self, start, stop):
        if start >= self.good:
            raise ValueError(f"bad rows: {self.X[start:stop].tolist()}")
        return self.X[start:stop]


def _traces(dask_scheduler):
    """Keys of all tasks, and what the scheduler remembers of errors."""
    log = [str(entry) for entry in dask_scheduler.transition_log]
    return [*log, str(dask_scheduler.get_events())]


@pytest.mark.usefixtures("many_shards")
@pytest.mark.parametrize("good", [0, 3000])
def test_logs_keys_and_errors_hold_no_row(client, good, capfd):
    X, y = records(n=N)
    X[4000:] = SECRET
    digits = str(SECRET)[2:8]
    head = clone(HEADS["descent"]).set_params(delta=1e-5, radius=0.3)
    with pytest.raises(RuntimeError, match="a worker could not read") as caught:
        head.fit(on_cluster(Talkative(X, good)), y)
    assert not hasattr(head, "release_")
    error = caught.value
    while error is not None:
        assert digits not in str(error)
        error = error.__cause__ or error.__context__
    bad = X.copy()
    bad[5000, 3] = np.nan
    with pytest.raises(ValueError, match="NaN or infinity"):
        head.fit(on_cluster(Talkative(bad, N)), y)
    head.fit(on_cluster(Talkative(X, N)), y)
    said = [str(client.get_worker_logs()), str(client.get_scheduler_logs())]
    said += client.run_on_scheduler(_traces)
    said += list(capfd.readouterr())
    assert "balldp-pass" in "".join(said)
    assert digits not in "".join(said)


def test_keys_of_tasks_are_drawn_by_chance(client):
    """A key that was a digest of its arguments would be the same again, and tell of rows."""
    X, y = records(n=500)

    def keys():
        log = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.transition_log))
        return {str(entry[0]) for entry in log if str(entry[0]).startswith("balldp")}

    seen = []
    for _ in range(2):
        before = keys()
        fitted("prototypes", on_cluster(Talkative(X, N)), y)
        seen.append(keys() - before)
    assert min(map(len, seen)) >= 2
    assert not seen[0] & seen[1]


def test_arrays_of_dask_are_written_first():
    """Whatever they are passed as: an error names the file to write, or what computes them."""
    X, y = records(n=500)
    rows, labels, frame = da.from_array(X), da.from_array(y), dd.from_pandas(pd.DataFrame(X), 2)
    head = BallDPRidgePrototype(delta=1e-4)
    masked = da.ma.masked_equal(labels, y[0])
    for name, args, groups in (
        ("X", (frame, y), None),
        ("y", (X, masked), None),
        ("groups", (X, y), labels),
    ):
        with pytest.raises(TypeError, match=rf"^{name} is a dask .*{name}\.compute\(\).*to_zarr"):
            head.fit(*args, groups=groups)
        assert not hasattr(head, "release_")
    with pytest.raises(TypeError, match="X is a dask"):
        head.fit(X, y).predict(rows)


def test_what_a_cluster_cannot_take_is_refused(client, monkeypatch):
    X, y = records(n=500)
    head, source = BallDPRidgePrototype(delta=1e-4), Talkative(X, N)
    for rows in (X, da.from_array(X), on_cluster(source)):
        with pytest.raises(TypeError, match=r"cannot go to a cluster; .*X\.to_zarr\(PATH\)"):
            on_cluster(rows)
    with pytest.raises(TypeError, match="belong to this process"):
        on_cluster(source).__getstate__()
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        head.fit(on_cluster(source), y[:-1])
    chosen = clone(head).set_params(radius=RadiusPolicy(source="declared"))
    found = chosen.fit(on_cluster(source), y).release_.radius
    assert found == clone(chosen).fit(X, y).release_.radius
    # As an open file of HDF5, it cannot be sent.
    source.file = threading.Lock()
    with pytest.raises(RuntimeError, match="hold paths instead of open files") as caught:
        head.fit(on_cluster(source), y)
    assert caught.value.__context__ is None
    del source.file
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "__version__", "0.0")
        with pytest.raises(ValueError, match=r"workers need sklearn_balldp 0\.0"):
            head.fit(on_cluster(source), y)
    with monkeypatch.context() as patch:
        patch.setattr(type(client), "asynchronous", True)
        with pytest.raises(ValueError, match="asynchronous=False"):
            on_cluster(source)
    monkeypatch.setattr(type(client), "get_versions", lambda *_, **__: {"workers": {}})
    with pytest.raises(ValueError, match="wait_for_workers"):
        head.fit(on_cluster(source), y)


def test_without_a_cluster_the_remedy_is_named(monkeypatch):
    import distributed

    def none():
        raise ValueError("No global client found and no address provided")

    monkeypatch.setattr(distributed, "get_client", none)
    source = Talkative(records(n=100)[0], N)
    with pytest.raises(ValueError, match=r"with distributed\.Client"):
        on_cluster(source)
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(ImportError, match="pip install distributed"):
        on_cluster(source)


@pytest.mark.usefixtures("client")
def test_folds_and_checks_of_rows_on_a_cluster(tmp_path):
    X, y = records(n=600)
    source = on_cluster(stored(X, "zarr", tmp_path))
    head = BallDPRidgePrototype(delta=1e-4, radius=0.3, random_state=0)
    expected = cross_val_score(head, X, y, cv=KFold(3))
    np.testing.assert_array_equal(cross_val_score(head, source, y, cv=KFold(3)), expected)
    head = head.set_params(random_state=None).fit(source, y)
    assert not verified(head, private=(source, y)).failed


def test_public_rows_may_be_on_the_cluster(client):
    X, y = records(n=N)
    policy = RadiusPolicy(source="edits")
    head = BallDPLinearDiscriminant(delta=1e-4, radius=policy, domain="sphere", random_state=0)
    edits = X[:200], X[:200] + 0.01
    here, far = (
        head.fit(X, y, X_public=before, y_public=after).release_.radius
        for before, after in (edits, [on_cluster(Talkative(rows, N), client) for rows in edits])
    )
    assert here == far > 0.0


def test_nothing_is_held_after_a_fit(client):
    X, y = records(np.float32, N)
    fitted("descent", on_cluster(Talkative(X, N)), y).predict(on_cluster(Talkative(X, N)))
    with pytest.raises(RuntimeError, match="a worker could not read"):
        fitted("descent", on_cluster(Talkative(X, 3000)), y)
    deadline = time.monotonic() + 600.0
    held = {"": 1}
    while any(held.values()) and time.monotonic() < deadline:
        # Tests before this one may have left cycles behind, by their errors.
        gc.collect()
        held = client.run(lambda dask_worker: len(dask_worker.data))
    assert not any(held.values())


def test_a_task_cannot_wait_for_others(client):
    with pytest.raises(RuntimeError, match="cannot wait for others"):
        client.submit(lambda: on_cluster(Talkative(np.eye(2), 2))).result()


class Panic(BaseException):
    """An error of no usual kind."""


class Fails(Talkative):
    """A reader with an error of its own."""

    def read(self, start, stop):
        raise self.good


@pytest.mark.parametrize("error", [ModuleNotFoundError(f"{SECRET}"), Panic(f"{SECRET}")])
def test_errors_of_any_kind_end_a_fit_and_quote_nothing(client, error):
    X, y = records(n=500)
    X[:] = SECRET
    head = BallDPRidgePrototype(delta=1e-4)
    said = rf"compute with its rows \({type(error).__name__}\); nothing was released"
    with pytest.raises(RuntimeError, match=said) as caught:
        head.fit(on_cluster(Fails(X, error)), y)
    digits = str(SECRET)[2:8]
    assert digits not in str(caught.value) + str(client.get_worker_logs())
    assert caught.value.__context__ is None
    assert not hasattr(head, "release_")


def test_a_file_that_is_gone_is_named_by_the_workers(client, tmp_path):
    X, y = records(n=500)
    source = on_cluster(stored(X, "npy", tmp_path))
    next(Path(tmp_path).glob("*.npy")).unlink()
    with pytest.raises(ValueError, match=r"x\.npy'.* cannot be read \(FileNotFoundError\)"):
        BallDPRidgePrototype(delta=1e-4).fit(source, y)


def in_the_middle(monkeypatch, lose, after=9):
    """Lose workers once so many passes were sent."""
    submitted, sent = cluster._submitted, []

    def losing(*args):
        futures = submitted(*args)
        sent.append(futures)
        if len(sent) == after:
            lose()
        return futures

    monkeypatch.setattr(cluster, "_submitted", losing)
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


@pytest.mark.usefixtures("many_shards")
def test_workers_that_are_lost_change_nothing(client, tmp_path, monkeypatch):
    """The pass is made again by those that come back: a nanny starts one for each that dies."""
    X, y = records(n=N)
    rows = on_cluster(stored(X, "zarr", tmp_path))
    before = two_workers(client)
    sent = in_the_middle(monkeypatch, lambda: [os.kill(each, signal.SIGKILL) for each in before])
    assert_same(fitted("descent", X, y), fitted("descent", rows, y))
    # One message for each pass, and one task for each thread in it: ten steps, sums and columns.
    assert 9 < len(sent) <= 10 + 6
    assert {len(futures) for futures in sent} == {2}
    assert two_workers(client) != before


@pytest.mark.usefixtures("many_shards")
def test_a_cluster_without_workers_ends_the_fit(client, tmp_path, monkeypatch):
    """The last test of the file: it leaves no workers."""
    X, y = records(n=N)
    zarr.save(str(tmp_path / "rows"), X)
    monkeypatch.setattr(cluster, "_PATIENCE", 0.5)
    in_the_middle(monkeypatch, lambda: client.cluster.scale(0))
    with pytest.raises(RuntimeError, match=r"\(TimeoutError\): workers died, or none is left"):
        fitted("descent", on_cluster(from_zarr(tmp_path / "rows")), y)
