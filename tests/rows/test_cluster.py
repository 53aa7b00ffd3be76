"""Rows on a Dask cluster: the models of one process, and nothing private in logs or keys."""

import gc
import multiprocessing
import os
import signal
import time
import uuid
import warnings

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
    assert_refused,
    assert_same,
    fitted,
    records,
    refused_rows,
)
from sklearn.base import clone
from sklearn.model_selection import KFold, cross_val_score

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    RadiusPolicy,
    verify,
)
from sklearn_balldp.rows import Rows, cluster, from_zarr, on_cluster, shards_of

N = 6000
# Nothing is written to disks.
STAYS_IN_MEMORY = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
}
# Workers are forks of a process that has imported the package, where systems can fork.
STARTS = {}
if "forkserver" in multiprocessing.get_all_start_methods():
    STARTS["distributed.worker.multiprocessing-method"] = "forkserver"
ONE_WORKER = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
ONE_WORKER["dashboard_address"] = ":0"


def forbid_noise():
    """On a worker: whoever draws noise there fails."""
    from sklearn_balldp.privacy import noise

    def refuse(*_, **__):
        raise AssertionError("noise was drawn on a worker")

    noise.Noise.__call__ = noise.Noise._deviates = refuse


@pytest.fixture(scope="module")
def client():
    with dask.config.set(STAYS_IN_MEMORY | STARTS):
        context = get_mp_context()
        if STARTS:
            context.set_forkserver_preload(["distributed", "dask.array", "sklearn_balldp"])
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as local,
            Client(local) as connected,
        ):
            connected.run(forbid_noise)
            yield connected


@pytest.fixture(scope="module")
def single():
    """A cluster of one worker, in this process."""
    # The worker would pause for ever, were the tests before it large enough.
    with (
        LocalCluster(**ONE_WORKER, memory_limit=None) as local,
        Client(local, set_as_default=False) as connected,
    ):
        yield connected


def sent_rows(dask_worker):
    """Values that a worker was sent by others since this was last asked."""
    sent = sum(message["total"] for message in dask_worker.transfer_incoming_log)
    dask_worker.transfer_incoming_log.clear()
    return sent / 8


@pytest.mark.usefixtures("many_shards")
def test_rows_are_computed_where_they_are_held(client):
    (X, y), addresses = records(n=N), list(client.nthreads())
    for number, order in enumerate((addresses, addresses[::-1])):
        # As a persisted array has them: each half on a worker of its own.
        name, held = f"rows{number}", {}
        for place, address in enumerate(order):
            half = X[place * N // 2 : (place + 1) * N // 2]
            held |= client.scatter({(name, place, 0): half}, workers=[address])
        rows = da.Array(held, name, chunks=((N // 2, N // 2), (D,)), dtype=X.dtype)
        client.run(sent_rows)
        assert_same(fitted("prototypes", X, y), fitted("prototypes", rows, y))
        # Shards are whole: one of them may lie in both halves, and its rows in one are sent.
        assert sum(client.run(sent_rows).values()) < 2 * 512 * D


@pytest.mark.usefixtures("client", "many_shards")
@pytest.mark.parametrize("name", HEADS)
def test_a_cluster_gives_the_model_of_one_process(name, tmp_path):
    """Also of persons; and workers draw no noise."""
    X, y = records(n=N)
    assert len(shards_of(*X.shape)) > 10
    persons = name in ("prototypes", "SVC")
    owners = np.random.default_rng(1).integers(0, N // 2, N) if persons else None
    head = fitted(name, X, y, groups=owners)
    assert head.release_.unit == ("person" if persons else "record")
    # Chunks of the array are not the shards, and may cut features.
    rows, labels = da.from_array(X, chunks=(1234, 9)), da.from_array(y)
    other = fitted(name, rows, labels, groups=None if owners is None else da.from_array(owners))
    assert_same(head, other)
    assert other.n_features_in_ == D
    np.testing.assert_array_equal(other.predict(rows), head.predict(X))
    np.testing.assert_array_equal(other.decision_function(rows), head.decision_function(X))
    assert other.score(rows, labels) == head.score(X, y)
    # A file that every worker sees, of which none is held.
    zarr.save(str(tmp_path / "rows"), X)
    source = on_cluster(from_zarr(tmp_path / "rows"))
    assert_same(head, fitted(name, source, y, groups=owners))
    np.testing.assert_array_equal(other.predict(source), head.predict(X))


@pytest.mark.usefixtures("many_shards")
@pytest.mark.parametrize(
    ("name", "dtype"),
    [*zip(KINDS, 2 * ["float16", "float32"], strict=True)]
    + [(name, "float32") for name in HEADS if name not in KINDS],
)
def test_the_number_of_workers_decides_no_bit(client, single, name, dtype):
    """Rows of less precision are computed with in double precision, as machines may differ."""
    X, y = records(dtype, N)
    rows = da.from_array(X, chunks=(700, D))
    head, other = fitted(name, rows, y), fitted(name, on_cluster(rows, single), y)
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
    for rows in (da.from_array(bad), on_cluster(Talkative(bad, N))):
        with pytest.raises(ValueError, match="NaN or infinity"):
            head.fit(rows, y)
    # Blocks that are not what the array states, whole or cut.
    for lie in (lambda block: block[:-1], lambda block: np.vstack([block, block[:3]])):
        lying = da.from_array(X).map_blocks(lie, dtype=X.dtype, chunks=((N,), (D,)))
        for given in (lying, lying.persist()):
            with pytest.raises(ValueError, match=r"give dask\.array the right"):
                head.fit(given, y)
    head.fit(da.from_array(X), y)
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
        return {entry[0] for entry in log if str(entry[0]).startswith("balldp")}

    rows, seen = da.from_array(X), []
    for _ in range(2):
        before = keys()
        fitted("prototypes", rows, y)
        seen.append(keys() - before)
    assert min(map(len, seen)) >= 2
    assert not seen[0] & seen[1]


def test_what_a_cluster_cannot_take_is_refused(client, monkeypatch):
    X, y = records(n=500)
    head, given = BallDPRidgePrototype(delta=1e-4), da.from_array(X, chunks=(100, D))
    for rows, message in (
        (given[given[:, 0] > 0], "compute_chunk_sizes"),
        (given.astype(int), r"X\.astype"),
        (given[:, 0], "n_samples, n_features"),
        (given[:-1], "inconsistent numbers of samples"),
    ):
        with pytest.raises(ValueError, match=message):
            head.fit(rows, y)
    with pytest.raises(TypeError, match="to_dask_array"):
        head.fit(dd.from_pandas(pd.DataFrame(X), npartitions=2), y)
    for rows in (X, on_cluster(given)):
        with pytest.raises(TypeError, match="cannot go to a cluster"):
            on_cluster(rows)
    with pytest.raises(TypeError, match="belong to this process"):
        on_cluster(given).__getstate__()
    chosen = clone(head).set_params(radius=RadiusPolicy(source="declared"))
    assert chosen.fit(given, y).release_.radius == clone(chosen).fit(X, y).release_.radius
    with monkeypatch.context() as patch:
        patch.setattr(cluster, "__version__", "0.0")
        with pytest.raises(ValueError, match=r"workers need sklearn_balldp 0\.0"):
            head.fit(given, y)
    monkeypatch.setattr(type(client), "asynchronous", True)
    with pytest.raises(ValueError, match="asynchronous=False"):
        on_cluster(given)
    monkeypatch.undo()
    monkeypatch.setattr(type(client), "nthreads", lambda self: {})
    with pytest.raises(ValueError, match="wait_for_workers"):
        head.fit(given, y)


def test_without_a_cluster_the_remedy_is_named(monkeypatch):
    import distributed

    def none():
        raise ValueError("No global client found and no address provided")

    monkeypatch.setattr(distributed, "get_client", none)
    X, y = records(n=100)
    with pytest.raises(ValueError, match=r"with distributed\.Client"):
        BallDPRidgePrototype(delta=1e-3).fit(da.from_array(X), y)
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install .* distributed"):
        BallDPRidgePrototype(delta=1e-3).fit(da.from_array(X), y)


def test_rows_that_may_be_written_to_disks_are_warned_of():
    X, y = records(n=500)
    # A worker in this process would pause for ever, were the tests before it large enough.
    memory = {"target": 0.6, "pause": False, "terminate": False}
    with (
        dask.config.set({f"distributed.worker.memory.{k}": v for k, v in memory.items()}),
        LocalCluster(**{**ONE_WORKER, "memory_limit": "1GiB"}) as local,
        Client(local),
    ):
        with pytest.warns(UserWarning, match=r"memory\.target and \.spill to False"):
            fitted("prototypes", da.from_array(X), y)
        # Of a file workers hold nothing.
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fitted("prototypes", on_cluster(Talkative(X, N)), y)


@pytest.mark.usefixtures("client")
def test_folds_audits_and_checks_of_a_dask_array():
    X, y = records(n=600)
    given = da.from_array(X, chunks=(100, D))
    head = BallDPRidgePrototype(delta=1e-4, radius=0.3, random_state=0)
    expected = cross_val_score(head, X, y, cv=KFold(3))
    np.testing.assert_array_equal(cross_val_score(head, given, y, cv=KFold(3)), expected)
    head = clone(head).set_params(random_state=None).fit(given, y)
    assert not verify(head, private=(given, y)).failed
    source = on_cluster(given)
    np.testing.assert_array_equal(source[[5, 599, 17]], X[[5, 599, 17]])
    np.testing.assert_array_equal(np.asarray(source), X)


@pytest.mark.usefixtures("many_shards")
def test_no_row_is_written_to_a_disk(client):
    """Columns in several chunks are put together in memory, whatever Dask would do by itself."""
    X, y = records(n=N)
    client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.transition_log.clear())
    fitted("prototypes", da.from_array(X, chunks=(777, 3)).persist(), y)
    traces = client.run_on_scheduler(_traces)
    assert any("rechunk" in entry for entry in traces)
    # Dask's other way to put chunks together goes by disks.
    assert not any("p2p" in entry for entry in traces)


def test_an_array_is_loaded_once_in_a_fit(client, tmp_path, monkeypatch):
    """By few calls, however many chunks it has."""
    X, y = records(n=N)
    compute, calls = client.compute, []
    monkeypatch.setattr(client, "compute", lambda *a, **k: calls.append(a) or compute(*a, **k))

    def counted(block, path=str(tmp_path)):
        if len(block) > 1:
            with open(f"{path}/{uuid.uuid4().hex}", "w"):
                return block
        return block

    loaded = da.from_array(X, chunks=(100, D)).map_blocks(counted, dtype=X.dtype, meta=X[:0])
    # Sums, and then steps.
    fitted("descent", loaded, y)
    assert 60 <= len(list(tmp_path.iterdir())) <= 60 + 1  # one chunk is cut between two workers
    # All chunks of a portion at once, and the first and last, where it cuts them.
    assert len(calls) <= 3 * sum(client.nthreads().values())


def test_no_rows_come_here_but_those_that_a_policy_reads(client, monkeypatch):
    monkeypatch.setattr("sklearn_balldp.radius.MAX_ROWS_READ", 500)
    X, y = records(n=N)
    policy = RadiusPolicy(source="declared")
    expected = clone(policy).fit(X, y).radius_
    # Ranges of rows would hold others too.
    monkeypatch.setattr("sklearn_balldp.rows.cluster.ClusterRows.read", None)
    assert policy.fit(da.from_array(X, chunks=(1000, D)), y).radius_ == expected


@pytest.mark.parametrize(("source", "domain"), [("edits", "sphere"), ("reference", "ball")])
def test_public_rows_may_be_on_the_cluster(client, source, domain):
    X, y = records(n=N)
    public = (X[:200], X[:200] + 0.01 if source == "edits" else y[:200])
    on_workers = tuple(da.from_array(part, chunks=(60, *part.shape[1:])) for part in public)
    policy = RadiusPolicy(source=source)
    head = BallDPLinearDiscriminant(delta=1e-4, radius=policy, domain=domain, random_state=0)
    found = [
        head.fit(X, y, X_public=rows, y_public=others).release_.radius
        for rows, others in (public, on_workers)
    ]
    assert found[0] == found[1] > 0.0
    given = on_workers if source == "edits" else (None, None, *on_workers)
    assert policy.fit(*given).radius_ > 0.0


def test_nothing_is_held_after_a_fit(client):
    X, y = records(np.float32, N)
    for rows in (da.from_array(X), on_cluster(da.from_array(X))):
        fitted("descent", rows, y).predict(rows)
        deadline = time.monotonic() + 600.0
        held = {"": 1}
        while any(held.values()) and time.monotonic() < deadline:
            # Tests before this one may have left cycles behind, by their errors.
            gc.collect()
            held = client.run(lambda dask_worker: len(dask_worker.data))
        assert not any(held.values())


def test_a_task_cannot_wait_for_others(client):
    X, y = records(n=500)
    head = BallDPRidgePrototype(delta=1e-4)
    with pytest.raises(RuntimeError, match="cannot wait for others"):
        client.submit(lambda: head.fit(da.from_array(X), y)).result()


class Panic(BaseException):
    """An error of no usual kind."""


class Fails(Talkative):
    """A reader with an error of its own."""

    def read(self, start, stop):
        raise self.good


def test_errors_of_any_kind_end_a_fit_and_quote_nothing(client):
    X, y = records(n=500)
    X[:] = SECRET

    def fails(block):
        raise ValueError(f"{block} {SECRET}")

    digits, rows = str(SECRET)[2:8], da.from_array(X)
    logged = str(client.get_worker_logs()).count(digits)
    lazy, held = (
        own.map_blocks(fails, dtype=X.dtype, meta=X[:0]) for own in (rows, rows.persist())
    )
    labels = da.from_array(y).map_blocks(fails, dtype=int, meta=y[:0])
    errors = {
        "Error: No such file: /data/x.h5": OSError(2, "No such file", "/data/x.h5"),
        "OSError": OSError(f"{SECRET}"),
        "Error: no module zarr": ModuleNotFoundError("No module named 'zarr'", name="zarr"),
        "Panic": Panic(f"{SECRET}"),
    }
    worker = "X: a worker could not read or compute with its rows"
    cases = [(on_cluster(Fails(X, e)), y, None, rf"{said}\); ") for said, e in errors.items()]
    cases += [
        (lazy, y, None, rf"{worker} \(ValueError\)"),
        # Dask itself logs what these raise.
        (held, y, None, r"X: the cluster did not finish a pass \(ValueError\)"),
        (rows, labels, None, "y: the cluster did not finish"),
        (X, y, labels, "groups: the cluster did not finish"),
    ]
    head = BallDPRidgePrototype(delta=1e-4)
    for given, marks, owners, said in cases:
        with pytest.raises(RuntimeError, match=said + ".*nothing was released") as caught:
            head.fit(given, marks, groups=owners)
        assert digits not in str(caught.value)
        assert caught.value.__context__ is None
        assert not hasattr(head, "release_")
        if given is lazy:
            assert str(client.get_worker_logs()).count(digits) == logged


@pytest.mark.usefixtures("client")
def test_rows_of_no_admitted_size_are_refused_on_workers():
    X, y = records(n=400)
    for bad in refused_rows("sphere"):
        X[9] = 0.0
        X[9, 3] = bad
        for rows in (da.from_array(X), on_cluster(Talkative(X, 400))):
            assert_refused("minimiser, sphere", rows, y, "NaN or infinity, an entry above 1e140")


def test_what_a_worker_holds_is_counted():
    """Dask decides by it how much fits into memory."""
    X, _ = records(np.float32, N)
    load = cluster._Task(cluster._load, 0, [(0, 4000), (4000, N)], [1000, N - 1000], X.dtype, D)
    assert load([X[:1000], X[1000:]]).__sizeof__() == X.nbytes


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


def killed(processes):
    for process in processes:
        os.kill(process, signal.SIGKILL)


def away_and_back(client):
    client.cluster.scale(0)
    begin = time.monotonic()
    while client.nthreads() and time.monotonic() < begin + 600.0:
        time.sleep(0.05)
    client.cluster.scale(2)


@pytest.mark.usefixtures("many_shards")
@pytest.mark.parametrize(
    ("kind", "lost"), [("array", "one"), ("array", "all"), ("file", "all"), ("file", "scaled")]
)
def test_workers_that_are_lost_change_nothing(client, kind, lost, tmp_path, monkeypatch):
    """Shards are loaded again, by others or by those that come back, and the pass is made again."""
    X, y = records(n=N)
    zarr.save(str(tmp_path / "rows"), X)
    rows = da.from_zarr(str(tmp_path / "rows"))
    rows = rows if kind == "array" else on_cluster(from_zarr(tmp_path / "rows"))
    before = two_workers(client)
    lose = {
        # A nanny starts another worker for each that dies.
        "one": lambda: killed([min(before)]),
        "all": lambda: killed(before),
        "scaled": lambda: away_and_back(client),
    }[lost]
    sent = in_the_middle(monkeypatch, lose)
    assert_same(fitted("descent", X, y), fitted("descent", rows, y))
    assert len(sent) > 9
    assert two_workers(client) != before


@pytest.mark.usefixtures("many_shards")
def test_rows_that_are_other_ones_when_loaded_again_end_the_fit(client, monkeypatch):
    """Their columns are loaded again too, so that no other check would notice."""
    X, y = records(n=N)
    augmented = da.from_array(X, chunks=(1000, D)).map_blocks(
        lambda block: block + 1e-3 * np.random.default_rng().random(), dtype=X.dtype, meta=X[:0]
    )
    head = fitted("descent", augmented, y)  # read once in a fit
    assert head.n_features_in_ == D
    before = two_workers(client)
    in_the_middle(monkeypatch, lambda: killed(before))
    head = clone(HEADS["descent"]).set_params(delta=1e-5, radius=0.3)
    with pytest.raises(ValueError, match="rows changed when a worker loaded them again"):
        head.fit(augmented, y)
    assert not hasattr(head, "release_")
    two_workers(client)


@pytest.mark.usefixtures("many_shards")
def test_a_cluster_without_workers_ends_the_fit(client, tmp_path, monkeypatch):
    X, y = records(n=N)
    zarr.save(str(tmp_path / "rows"), X)
    monkeypatch.setattr(cluster, "_PATIENCE", 0.5)
    in_the_middle(monkeypatch, lambda: client.cluster.scale(0))
    try:
        with pytest.raises(RuntimeError, match=r"\(NoWorkersError\); nothing was released"):
            fitted("descent", on_cluster(from_zarr(tmp_path / "rows")), y)
    finally:
        client.cluster.scale(2)
        two_workers(client)


def shifted(block, block_info=None):
    """One chunk a row longer, and the next one a row shorter."""
    place = block_info[0]["chunk-location"][0]
    return np.concatenate([block, block[:1]]) if place == 0 else block[: len(block) - (place == 1)]


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("persisted", [False, True])
def test_chunks_of_other_lengths_with_the_right_sum(persisted):
    X, y = records(n=400)
    rows = da.from_array(X, chunks=(100, D)).map_blocks(shifted, dtype=X.dtype)
    rows = da.Array(rows.dask, rows.name, ((100,) * 4, (D,)), dtype=X.dtype)
    with pytest.raises(ValueError, match="chunks of the array hold"):
        BallDPRidgePrototype(1.0, radius=0.5).fit(rows.persist() if persisted else rows, y)


@pytest.mark.usefixtures("client")
def test_masks_in_chunks_are_refused():
    X, y = records(n=400)
    masked = np.ma.masked_array(X, mask=np.arange(X.size).reshape(X.shape) == 7)
    head = BallDPRidgePrototype(1.0, radius=0.5)
    with pytest.raises(ValueError, match="mask"):
        head.fit(da.from_array(masked, chunks=(100, D), asarray=False), y)
    with pytest.raises(ValueError, match="mask"):
        head.fit(X, da.ma.masked_equal(da.from_array(y, chunks=100), y[0]))
    held = head.fit(X, y)
    with pytest.raises(ValueError, match="mask"):
        held.predict(da.from_array(masked, chunks=(100, D), asarray=False))


@pytest.mark.parametrize("kind", ["array", "files"])
def test_memory_that_others_write_to_is_copied(single, kind, tmp_path, monkeypatch):
    """Rows that grow after they were projected would leave the ball."""
    X, y = records(n=400)
    own = X.copy()
    rows = da.from_array(own, chunks=(100, D))
    if kind == "files":
        da.to_npy_stack(str(tmp_path / "stack"), rows)
        rows = da.from_npy_stack(str(tmp_path / "stack"))
    written = [np.load(path, mmap_mode="r+") for path in sorted(tmp_path.glob("stack/*.npy"))]
    passes, results = [0], cluster.ClusterTable._results

    def writing(self, task):
        passes[0] += 1
        if passes[0] == 3:
            for part in written or [own]:
                part[:] = 50.0 * part
        return results(self, task)

    head = BallDPLogisticRegression(1.0, radius=0.5, mechanism="output", alpha=0.1, random_state=0)
    expected = clone(head).fit(X, y)
    monkeypatch.setattr(cluster.ClusterTable, "_results", writing)
    found = head.fit(on_cluster(rows, single), y)
    assert passes[0] > 3
    np.testing.assert_array_equal(found.coef_, expected.coef_)
