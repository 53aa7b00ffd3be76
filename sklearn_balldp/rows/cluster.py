"""Rows on a Dask cluster: its workers make the passes, and this process adds up their results.

Workers see rows, labels, weights and the parameters of each pass; the scheduler forwards their
sums. While a minimiser is computed, its parameters and sums are as private as the rows. Noise, the
accountant's ledger and the record stay with the process that publishes: Dask may run a task twice,
but noise must be drawn once.

A pass is one task for each thread of the cluster. Tasks also load the rows, so that another worker
can reload the shards of one that dies. No task raises an error, because Dask would write the task's
arguments into a log: it returns one.
"""

import contextlib
import math
import uuid
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._version import __version__
from ..progress import bar
from .passes import SINGLE_BLAS_THREAD, shards_of
from .projection import REFUSED
from .sources import PRECISIONS, Rows, RowsError, in_memory, pieces
from .table import Result, Shard, Sums, cut

# Threads get shards in units of about an eighth of a thread's share, so that few nodes are sent.
_NODES_PER_THREAD = 8
# Seconds after which a pass without workers is given up.
_PATIENCE = 60.0


def _is_dask(values: Any) -> bool:
    return type(values).__module__.split(".")[0] == "dask"


def computed(name: str, values: Any) -> Any:
    """Labels, owners or weights as an array of this process; no error quotes them."""
    return _result(name, values.compute) if _is_dask(values) else in_memory(name, values)


def as_rows(X: Any) -> Any:
    """A dask array as rows on its cluster; any other X as it is, in this machine's memory."""
    return on_cluster(X) if _is_dask(X) else in_memory("X", X)


def on_cluster(X: Any, client: Any = None) -> Rows:
    """Rows that the workers of a Dask cluster read and compute with.

    A dask array needs no call of this function: ``fit`` and ``predict`` make one. Rows in files do,
    because only you know whether every worker sees the file at that path.

    Parameters
    ----------
    X : dask.array.Array or Rows of shape (n_samples, n_features)
        Rows of float16, float32 or float64. Those of an array are loaded once in a fit, and stay in
        the workers' memory until its end; those of a file are read in each pass, a few at a time.
    client : distributed.Client, optional
        Connection to the cluster; the current one by default.

    Returns
    -------
    Rows
        For ``fit`` and ``predict``.

    Raises
    ------
    ImportError
        If distributed is missing: ``pip install 'dask[array]' distributed``.
    ValueError
        If there is no client, or the rows have no such type, or unknown lengths.
    TypeError
        If ``X`` is neither.

    Warns
    -----
    UserWarning
        In a fit, if workers may write rows of an array to their disks.
    """
    try:
        from distributed import get_client, get_worker
    except ImportError as error:
        raise ImportError(
            "rows on a cluster need distributed; pip install 'dask[array]' distributed."
        ) from error
    with contextlib.suppress(ValueError):
        get_worker()
        raise RuntimeError(
            "X: a task of a cluster cannot wait for others; call fit in the process that has the "
            "client."
        )
    try:
        client = get_client() if client is None else client
    except ValueError as error:
        raise ValueError(
            f"X is a {type(X).__module__.split('.')[0]} {type(X).__name__}, and no cluster is "
            "connected: fit inside of `with distributed.Client(ADDRESS):` (no address starts "
            "workers on this machine). Without a cluster read the rows from a file "
            "(sklearn_balldp.rows), or pass X.compute() where they fit into memory."
        ) from error
    if client.asynchronous:
        raise ValueError("client: passes wait for their results; use Client(asynchronous=False).")
    return ClusterRows(X, client)


class ClusterRows(Rows):
    """Rows that a cluster computes with; see :func:`on_cluster`."""

    def __init__(self, X: Any, client: Any) -> None:
        if isinstance(X, ClusterRows) or not (isinstance(X, Rows) or hasattr(X, "rechunk")):
            raise TypeError(
                f"X: a {type(X).__name__} cannot go to a cluster; pass a dask array (a data frame "
                "gives one by to_dask_array(lengths=True)) or rows in a file (from_zarr, "
                "from_hdf5, from_parquet)."
            )
        if len(X.shape) != 2 or np.isnan(X.shape).any():
            raise ValueError(
                f"X has the shape {X.shape}, which must be (n_samples, n_features); where lengths "
                "are unknown call X.compute_chunk_sizes() first."
            )
        if str(X.dtype) not in PRECISIONS:
            raise ValueError(
                f"X: rows are of type {X.dtype}; convert them to float16, float32 or float64 "
                "(X.astype)."
            )
        self._in_files = isinstance(X, Rows)
        self._rows, self._client = X._for_one_fit() if self._in_files else X, client
        self.shape, self.dtype = (int(X.shape[0]), int(X.shape[1])), np.dtype(X.dtype)
        self._portions: list[tuple[Any, tuple[int, int]]] = []
        # What the rows of each portion add up to, as they were first loaded.
        self._check_sums: dict[int, int] = {}

    def _for_one_fit(self) -> Rows:
        return ClusterRows(self._rows, self._client)

    def read(self, start: int, stop: int) -> NDArray[np.floating]:
        if self._in_files:
            return self._rows._part(start, stop)
        return self._fetched(self._rows[start:stop])

    def _rows_at(self, positions: NDArray[np.intp]) -> NDArray[np.floating]:
        if self._in_files:
            return super()._rows_at(positions)
        # Workers select the rows, so that no other row reaches this process.
        _check_workers(self._client)
        return self._fetched(self._rows[positions])

    def _fetched(self, rows: Any) -> NDArray[np.floating]:
        """Rows of a dask array as an array of this process."""
        return _unmasked(_result("X", self._client.compute(rows).result))

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("rows on a cluster belong to this process, which is connected to it.")

    def _as_table(self, columns: Mapping[str, NDArray[Any] | None]) -> "ClusterTable":
        if not self._portions:
            self._portions = self._load_portions()
        tasks = [_Task(_with_cut, cut(columns, *rows)) for _, rows in self._portions]
        portions = _submitted(self._client, tasks, [future for future, _ in self._portions])
        return ClusterTable(self._client, self.shape, portions, self._check_sums)

    def _load_portions(self) -> list[tuple[Any, tuple[int, int]]]:
        """Future and range of rows of some neighbouring shards for each thread of the cluster."""
        client, shards = self._client, shards_of(*self.shape)
        _check_workers(client)
        if not self._in_files:
            _warn_of_spilling(client)
        n, slots = len(shards), sum(client.nthreads().values())
        share = n / slots
        unit = 2 ** max(0, int(math.log2(max(1.0, share / _NODES_PER_THREAD))))
        edges = sorted({min(n, unit * round(share * slot / unit)) for slot in range(slots)} | {n})
        portions = []
        for first, end in pairwise(edges):
            rows = shards[first][0], shards[end - 1][1]
            chunks, lengths = (self._rows, []) if self._in_files else self._chunks_of(*rows)
            load = _Task(_load, first, shards[first:end], lengths, self.dtype, self.shape[1])
            portions.append((_submitted(client, [load], [chunks], "load")[0], rows))
        return portions

    def _chunks_of(self, start: int, stop: int) -> tuple[Any, list[int]]:
        """Chunks of whole rows that a worker loads a range from, and how many each must hold."""
        import dask
        from distributed import futures_of

        sizes = self._rows.chunks[0]
        cuts = list(pieces(np.cumsum([0, *sizes]).tolist(), start, stop))
        first, last = cuts[0][0], cuts[-1][0]
        # Dask's other method, "p2p", would write rows to disk.
        whole = self._rows.blocks[first : last + 1].rechunk({1: self.shape[1]}, method="tasks")
        chunks = whole.to_delayed().ravel().tolist()
        for number, rows in cuts:
            if rows != slice(0, sizes[number]):
                # A slice of Dask's would hide that a chunk is longer than it states.
                task = dask.delayed(_Task(_cut_rows, rows, sizes[number]), pure=False)
                key = {"dask_key_name": _random_key("cut")}
                chunks[number - first] = task(chunks[number - first], **key)
        lengths = [rows.stop - rows.start for _, rows in cuts]
        if futures_of(self._rows):
            # Workers hold what the rows are made of: Dask takes the task there.
            return _result("X", lambda: self._client.compute(chunks)), lengths
        # Nothing is held yet: one task, into which Dask does not look, makes all of them.
        return partial(dask.compute, *dask.optimize(*chunks), scheduler="synchronous"), lengths


def _submitted(
    client: Any, tasks: Sequence["_Task"], inputs: Sequence[Any], what: str = "pass"
) -> list[Any]:
    """Futures of tasks, each on one input; Dask runs them where the inputs are."""
    import dask

    # Each task carries its labels or parameters, so Dask's warning about size is no use here.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PiB"}):
        return [
            client.submit(task, one, key=_random_key(what), pure=False)
            for task, one in zip(tasks, inputs, strict=True)
        ]


@dataclass(repr=False)
class ClusterTable:
    """Passes over rows that workers have or read, as those of :class:`.Table`."""

    _client: Any
    shape: tuple[int, int]
    _portions: Sequence[Any]
    _check_sums: dict[int, int]

    def precision(self, dtype: DTypeLike) -> DTypeLike:
        """Double, as the bits of sums may differ between machines."""
        return np.float64

    def can_keep(self, n_bytes: int, limit: int) -> bool:
        """Nothing: passes are made in other processes."""
        return False

    def use_threads(self) -> None:
        """Workers have theirs."""

    def each(self, function: Callable[..., Any], *numbers: Any) -> Iterator:
        """As :meth:`.Table.each`."""
        for results in self._results(_Task(_results_of, function, *numbers)):
            yield from results

    def total(self, function: Callable[..., Result], *numbers: Any) -> Result:
        """As :meth:`.Table.total`: workers add up what they have, and this process the rest."""
        sums = Sums()
        for nodes in self._results(_Task(_nodes_of, function, *numbers)):
            for node in nodes:
                sums.add(*node)
        return sums.total()

    def with_columns(
        self, function: Callable[..., Mapping[str, Any]], *numbers: Any
    ) -> "ClusterTable":
        """As :meth:`.Table.with_columns`; columns stay on the workers."""
        tasks = [_Task(_with_computed, function, *numbers)] * len(self._portions)
        return replace(self, _portions=_submitted(self._client, tasks, self._portions))

    def _results(self, task: "_Task") -> Iterator[Any]:
        """What a task gives for each portion, in order."""
        futures = _submitted(self._client, [task] * len(self._portions), self._portions)
        try:
            for place, future in enumerate(bar(futures, "pass", "thread")):
                outcome = _result("X", partial(_waited, self._client, future))
                # Drop the future, so that the worker can free this result.
                futures[place] = None
                if isinstance(outcome, Exception):
                    raise outcome
                check_sum, results = outcome
                if self._check_sums.setdefault(place, check_sum) != check_sum:
                    raise RowsError(
                        "X: rows changed when a worker loaded them again; nothing was released. "
                        "Give tasks that make the same rows every time, or write the rows to a "
                        "file."
                    )
                yield results
        finally:
            waiting = [future for future in futures if future is not None]
            if waiting:
                # Cancelling fails if the cluster is gone; then nothing is left to cancel.
                with contextlib.suppress(Exception):
                    self._client.cancel(waiting)


def _quoting_no_row(error: BaseException) -> Exception:
    """An error of a task for the process that fits, in words that quote no value of a row."""
    if isinstance(error, FloatingPointError):
        return FloatingPointError(f"rows hold {REFUSED}.")
    if isinstance(error, RowsError):
        return RowsError(str(error))
    words = ""
    if isinstance(error, OSError) and error.errno:
        # Only errors of the operating system are sure to quote no row.
        words = f": {error.strerror}: {error.filename}"
    elif isinstance(error, ImportError):
        words = f": no module {error.name}"
    return RuntimeError(
        f"X: a worker could not read or compute with its rows ({type(error).__name__}{words}); "
        "nothing was released. Every worker needs the files at the same path, and the packages "
        "that read them."
    )


class _Task:
    """A function of one input for a worker. It returns errors, and shows no argument."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._function, self._arguments = function, arguments

    def __call__(self, value: Any) -> Any:
        if isinstance(value, Exception):
            return value
        try:
            # As for the fit: no warning of arithmetic may depend on the rows.
            with np.errstate(all="ignore"):
                return self._function(value, *self._arguments)
        except (KeyboardInterrupt, SystemExit):
            # A request to stop the worker.
            raise
        except BaseException as error:
            return _quoting_no_row(error)


@dataclass(repr=False)
class _Portion:
    """Neighbouring shards on one worker; the check sum is that of rows which are held there."""

    place: int
    shards: list[Shard]
    check_sum: int = 0

    def __sizeof__(self) -> int:
        # Dask uses this size when it decides how much fits into memory.
        return sum(shard.nbytes for shard in self.shards)

    def with_columns(self, columns: Iterable[Mapping[str, NDArray[Any]]]) -> "_Portion":
        """The portion with more columns of each shard."""
        pairs = zip(self.shards, columns, strict=True)
        return replace(self, shards=[shard.with_columns(more) for shard, more in pairs])


def _cut_rows(chunk: Any, rows: slice, n_rows: int) -> NDArray[Any]:
    """Some rows of a chunk of so many, on the worker that holds it."""
    if len(chunk) != n_rows:
        raise RowsError(
            f"rows: chunks of the array hold {len(chunk)} rows, where it states {n_rows}; give "
            "dask.array the right chunks."
        )
    # A view would keep the whole chunk in memory.
    return _unmasked(chunk)[rows].copy()


def _load(
    rows: Any,
    place: int,
    shards: Sequence[tuple[int, int]],
    sizes: Sequence[int],
    dtype: np.dtype,
    n_features: int,
) -> _Portion | Exception:
    """Rows of some shards: of a source, of chunks of these lengths, or of what makes those."""
    if isinstance(rows, Rows):
        return _Portion(place, [Shard(rows, a, b, a, {}, True) for a, b in shards])
    rows = rows() if callable(rows) else rows
    if errors := [chunk for chunk in rows if isinstance(chunk, Exception)]:
        return errors[0]
    chunks = [_unmasked(chunk) for chunk in rows]
    for chunk, size in zip(chunks, sizes, strict=True):
        if (chunk.shape, chunk.dtype) != ((size, n_features), dtype):
            raise RowsError(
                f"rows: chunks of the array hold {chunk.shape} values of type {chunk.dtype}, where "
                f"it states {(size, n_features)} of {dtype}; give dask.array the right chunks and "
                "meta."
            )
    edges = np.cumsum([shards[0][0], *sizes]).tolist()
    portion = _Portion(place, [])
    for start, stop in shards:
        # Copied: somebody else may hold the memory of a chunk.
        block = np.concatenate([chunks[i][some] for i, some in pieces(edges, start, stop)])
        block = _aligned(block)
        portion.check_sum = zlib.crc32(block.view(np.uint8), portion.check_sum)
        portion.shards.append(Shard(block, 0, stop - start, start, {}, False))
    return portion


def _with_cut(portion: _Portion, columns: Mapping[str, NDArray[Any]]) -> _Portion:
    edges = np.cumsum([0, *map(len, portion.shards)]).tolist()
    return portion.with_columns(cut(columns, *rows) for rows in pairwise(edges))


def _with_computed(portion: _Portion, *work: Any) -> _Portion:
    return portion.with_columns(_compute(portion, *work))


def _compute(portion: _Portion, function: Callable[..., Any], *numbers: Any) -> Iterator[Any]:
    """Results of a function for every shard of a portion."""
    numbers = tuple(map(_aligned, numbers))
    with SINGLE_BLAS_THREAD:
        for shard in portion.shards:
            yield function(shard, *numbers)


def _results_of(portion: _Portion, *work: Any) -> tuple[int, list[Any]]:
    """Results, beside the check sum of the rows that they are of."""
    return portion.check_sum, list(_compute(portion, *work))


def _nodes_of(portion: _Portion, *work: Any) -> tuple[int, list[Any]]:
    """The same added up, as nodes of the tree of additions (:class:`.Sums`)."""
    sums = Sums()
    for place, result in enumerate(_compute(portion, *work), portion.place):
        sums.add(place, 1, result)
    return portion.check_sum, sums.nodes


def _unmasked(chunk: Any) -> NDArray[Any]:
    if np.ma.is_masked(chunk):
        raise RowsError(
            "rows: chunks of the array have a mask, which would be ignored; drop what it masks."
        )
    return np.asarray(chunk)


def _aligned(number: Any) -> Any:
    """An array, copied if it is unaligned: alignment can change the bits of a sum."""
    return number.copy() if isinstance(number, np.ndarray) and number.ctypes.data % 16 else number


def _random_key(what: str) -> str:
    """Random key of a task: Dask's default, a digest of the arguments, would depend on the rows."""
    return f"balldp-{what}-{uuid.uuid4().hex}"


class NoWorkersError(Exception):
    """The cluster has lost its workers and got no others."""


def _waited(client: Any, future: Any) -> Any:
    while True:
        try:
            return future.result(timeout=_PATIENCE)
        except TimeoutError:
            if future.done():
                raise
        if not client.nthreads():
            raise NoWorkersError


def _result(name: str, get: Callable[[], Any]) -> Any:
    """Result from the cluster; errors of Dask and of the array's tasks are replaced."""
    try:
        return get()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        kind = type(error).__name__
        words = f"{kind}: {error}" if kind == "KilledWorker" else kind
    # Raise outside of the handler: the original error would be the context, and quote rows.
    raise RuntimeError(
        f"{name}: the cluster did not finish a pass ({words}); nothing was released. See the "
        "workers' logs; rows come from where they can be read again (files), not from "
        "client.scatter."
    )


def _check_workers(client: Any) -> None:
    """Raise a ValueError unless every worker has this package in the same version."""
    if not client.nthreads():
        raise ValueError(
            "client: the cluster has no workers; wait for one (client.wait_for_workers(1)), or let "
            "it keep one (cluster.adapt(minimum=1))."
        )
    package = "sklearn_balldp"
    workers = client.get_versions(packages=[package])["workers"]
    versions = {address: worker["packages"].get(package) for address, worker in workers.items()}
    other = {address: version for address, version in versions.items() if version != __version__}
    if other:
        raise ValueError(
            f"client: workers need {package} {__version__}, whose rounding is accounted for; "
            f"these have another or none: {other}. Install it where they run."
        )


def _warn_of_spilling(client: Any) -> None:
    # Dask does not encrypt the data that workers write.
    if any(client.run(_spills, on_error="ignore").values()):
        warnings.warn(
            "X: workers of this cluster write arrays to their disks when memory runs low, and "
            "rows with them; set distributed.worker.memory.target and .spill to False "
            "(dask.config.set, before the cluster starts), or keep rows in a file "
            "(sklearn_balldp.rows.on_cluster), of which workers hold none.",
            UserWarning,
            stacklevel=2,
        )


def _spills(dask_worker: Any) -> bool:
    memory = dask_worker.memory_manager
    fractions = memory.memory_target_fraction, memory.memory_spill_fraction
    return bool(memory.memory_limit) and any(fractions)
