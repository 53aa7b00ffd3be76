"""Rows of files on a Dask cluster: its workers make the passes, this process adds up their sums.

Noise, ledger and record stay with the process that publishes: Dask may run a task twice. While a
minimiser is computed, its parameters and sums are as private as the rows. A pass is one task for
each thread. No task raises an error, as Dask would write its arguments into a log: it returns one.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._version import __version__
from ..progress import bar
from .passes import SINGLE_BLAS_THREAD, shards_of
from .projection import REFUSED
from .sources import Floats, Rows, RowsError
from .table import Result, Shard, Sums, cut

# Threads get shards in units of about an eighth of a thread's share, so that few nodes are sent.
_NODES_PER_THREAD = 8
# Seconds after which a pass without workers is given up.
_PATIENCE = 60.0


def on_cluster(X: Rows, client: Any = None) -> Rows:
    """Rows of files that the workers of a Dask cluster read and compute with.

    A dask array is written to such a file first, by ``X.to_zarr(PATH)``.

    Parameters
    ----------
    X : Rows of shape (n_samples, n_features)
        Rows of files that every worker sees at the same path. Workers read them in each pass.
    client : distributed.Client, optional
        Connection to the cluster; the current one by default.

    Returns
    -------
    Rows
        For ``fit`` and ``predict``.

    Raises
    ------
    ImportError
        If distributed is missing: ``pip install distributed``.
    ValueError
        If there is no client.
    TypeError
        If ``X`` is no source of rows.
    """
    try:
        from distributed import get_client, get_worker
    except ImportError as error:
        raise ImportError("rows on a cluster need distributed; pip install distributed.") from error
    if not isinstance(X, Rows) or isinstance(X, ClusterRows):
        raise TypeError(
            f"X: a {type(X).__name__} cannot go to a cluster; write the rows to a file that every "
            "worker sees (X.to_zarr(PATH) of a dask array), and pass from_zarr(PATH), "
            "from_parquet(PATH, COLUMN) or from_npy(PATH)."
        )
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
            "client: no cluster is connected; call this inside of `with "
            "distributed.Client(ADDRESS):` (no address starts workers on this machine), or pass X "
            "itself, which this process reads."
        ) from error
    if client.asynchronous:
        raise ValueError("client: passes wait for their results; use Client(asynchronous=False).")
    return ClusterRows(X._for_one_fit(), client)


class ClusterRows(Rows):
    """Rows that a cluster computes with; see :func:`on_cluster`."""

    def __init__(self, rows: Rows, client: Any) -> None:
        self._rows, self._client = rows, client
        self.shape, self.dtype = rows.shape, rows.dtype

    def read(self, start: int, stop: int) -> Floats:
        return self._rows._part(start, stop)

    def _for_one_fit(self) -> Rows:
        return ClusterRows(self._rows._for_one_fit(), self._client)

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("rows on a cluster belong to this process, which is connected to it.")

    def _as_table(self, columns: Mapping[str, NDArray[Any] | None]) -> "ClusterTable":
        """Some neighbouring shards for each thread of the cluster."""
        _check_workers(self._client)
        shards, slots = shards_of(*self.shape), sum(self._client.nthreads().values())
        n, share = len(shards), len(shards) / slots
        unit = 2 ** max(0, int(math.log2(max(1.0, share / _NODES_PER_THREAD))))
        edges = sorted({min(n, unit * round(share * slot / unit)) for slot in range(slots)} | {n})

        def shard(start: int, stop: int) -> Shard:
            return Shard(self._rows, start, stop, start, cut(columns, start, stop), True)

        portions = [
            _Portion(first, [shard(*ends) for ends in shards[first:end]])
            for first, end in pairwise(edges)
        ]
        # Results of tasks, so that Dask makes those of a worker that died again.
        return ClusterTable(self._client, self.shape, _submitted(self._client, _same, portions))


def _submitted(client: Any, task: Callable[[Any], Any], inputs: Sequence[Any]) -> list[Any]:
    """Futures of a task for each input; Dask runs them where the inputs are."""
    import dask

    kind = ""
    # Tasks carry labels and parameters, so Dask's warning about their size is no use here.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PiB"}):
        try:
            # Dask's own keys would be digests of arguments, by which guesses could be checked.
            return client.map(task, inputs, key="balldp-pass", pure=False)
        except Exception as error:
            kind = type(error).__name__
    raise RuntimeError(
        f"X: its source cannot be sent to workers ({kind}): it must be a class that they can "
        "import, and hold paths instead of open files."
    )


@dataclass(repr=False)
class ClusterTable:
    """Passes over rows that workers read, as those of :class:`.Table`."""

    _client: Any
    shape: tuple[int, int]
    _portions: Sequence[Any]

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
        task = _Task(_with_computed, function, *numbers)
        return replace(self, _portions=_submitted(self._client, task, self._portions))

    def _results(self, task: "_Task") -> Iterator[Any]:
        """What a task gives for each portion, in order."""
        futures = _submitted(self._client, task, self._portions)
        for place, future in enumerate(bar(futures, "pass", "thread")):
            outcome = _waited(self._client, future)
            # Drop the future, so that the worker can free this result.
            futures[place] = None
            if isinstance(outcome, Exception):
                raise outcome
            yield outcome


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
        except RowsError as error:
            return RowsError(str(error))
        except FloatingPointError:
            return FloatingPointError(f"rows hold {REFUSED}.")
        except BaseException as error:
            return RuntimeError(
                f"X: a worker could not read or compute with its rows ({type(error).__name__}); "
                "nothing was released. Every worker needs the files at the same path, and the "
                "packages that read them."
            )


@dataclass(repr=False)
class _Portion:
    """Neighbouring shards, and the place of the first."""

    place: int
    shards: list[Shard]


def _same(portion: _Portion) -> _Portion:
    return portion


def _compute(portion: _Portion, function: Callable[..., Any], *numbers: Any) -> Iterator[Any]:
    """Results of a function for every shard of a portion."""
    numbers = tuple(map(_aligned, numbers))
    with SINGLE_BLAS_THREAD:
        for shard in portion.shards:
            yield function(shard, *numbers)


def _results_of(portion: _Portion, *work: Any) -> list[Any]:
    return list(_compute(portion, *work))


def _with_computed(portion: _Portion, *work: Any) -> _Portion:
    pairs = zip(portion.shards, _compute(portion, *work), strict=True)
    return replace(portion, shards=[shard.with_columns(more) for shard, more in pairs])


def _nodes_of(portion: _Portion, *work: Any) -> list[Any]:
    """Results added up, as nodes of the tree of additions (:class:`.Sums`)."""
    sums = Sums()
    for place, result in enumerate(_compute(portion, *work), portion.place):
        sums.add(place, 1, result)
    return sums.nodes


def _aligned(number: Any) -> Any:
    """An array, copied if it is unaligned: alignment can change the bits of a sum."""
    return number.copy() if isinstance(number, np.ndarray) and number.ctypes.data % 16 else number


def _waited(client: Any, future: Any) -> Any:
    """Result from the cluster; errors of Dask are replaced, as they may quote rows."""
    try:
        while True:
            try:
                return future.result(timeout=_PATIENCE)
            except TimeoutError:
                if future.status == "error" or not client.nthreads():
                    raise
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        kind = type(error).__name__
    # Raise outside of the handler: the original error would be the context.
    raise RuntimeError(
        f"X: the cluster did not finish a pass ({kind}): workers died, or none is left; nothing "
        "was released. See the logs of the workers."
    )


def _check_workers(client: Any) -> None:
    """Raise a ValueError unless every worker has this package in the same version."""
    package = "sklearn_balldp"
    workers = client.get_versions(packages=[package])["workers"]
    if not workers:
        raise ValueError(
            "client: the cluster has no workers; wait for one (client.wait_for_workers(1)), or let "
            "it keep one (cluster.adapt(minimum=1))."
        )
    versions = {address: worker["packages"].get(package) for address, worker in workers.items()}
    other = {address: version for address, version in versions.items() if version != __version__}
    if other:
        raise ValueError(
            f"client: workers need {package} {__version__}, whose rounding is accounted for; "
            f"these have another or none: {other}. Install it where they run."
        )
