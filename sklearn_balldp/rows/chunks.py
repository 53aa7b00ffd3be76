"""Dask arrays as rows: a pass is one task for each chunk, which returns sums.

Tasks run under the scheduler that is active: threads, processes, a cluster. Noise, ledger and
record stay with the process that publishes, as Dask may run a task twice. No task of a pass raises
an error, since Dask would write its arguments into a log: it returns one. Keys are drawn by chance,
as those of Dask are digests of arguments, by which guesses of them could be checked.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from .._version import __version__
from .passes import SINGLE_BLAS_THREAD, Sums, added, cut, joined, sums_of
from .projection import REFUSED
from .sources import Floats, RowsError, check_rows, check_type

# Sums that one task adds up: the proof of the rounding counts on it.
_ADDED = 8
# Seconds after which a pass without workers is given up.
_PATIENCE = 60.0


class ChunkedRows:
    """A Dask array of rows, for one fit or prediction."""

    ndim = 2

    def __init__(self, X: Any) -> None:
        if type(X).__name__ != "Array":
            raise TypeError(
                f"X is a dask {type(X).__name__}; pass an array: X.to_dask_array(lengths=True)."
            )
        check_type(X.dtype)
        if np.isnan(X.shape).any():
            raise RowsError(
                "X: a Dask array of unknown chunks; call X.compute_chunk_sizes() first."
            )
        if X.ndim == 2 and X.numblocks[1] > 1:
            raise RowsError(
                "X: the features of a Dask array must lie in one chunk; pass X.rechunk({1: -1})."
            )
        self.array, self.shape, self.dtype = X, tuple(map(int, X.shape)), X.dtype
        self._chunks: list[Any] | None = None

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def is_lazy(self) -> bool:
        """Whether each pass computes the array anew."""
        graph = self.array.dask
        chunks = graph.layers.get(self.array.name, {})
        kept = [isinstance(v, np.ndarray) or hasattr(v, "status") for v in chunks.values()]
        return bool(graph.dependencies.get(self.array.name)) or not all(kept)

    def total(self, function: Callable[..., Sums], *columns: Any) -> Sums:
        """As :func:`.passes.total`: workers add up what they have."""
        from dask import delayed

        name = f"balldp-pass-{uuid4().hex}"
        if self._chunks is None:
            _check_workers()
            self._chunks = list(self.array.to_delayed().ravel())
        # One node of the graph, so that parameters are sent once to each worker.
        shared = delayed(_Unshown(function), name=f"{name}-work", pure=False, traverse=False)
        edges = np.cumsum([0, *self.array.chunks[0]]).tolist()
        nodes = []
        for chunk, (start, stop) in zip(self._chunks, pairwise(edges), strict=True):
            if stop > start or len(self) == 0:
                shape, own = (stop - start, self.shape[1]), cut(columns, slice(start, stop))
                announced = _Unshown((shape, self.dtype, own))
                nodes.append(_node(_sums_of, name, chunk, shared, announced))
        while len(nodes) > 1:
            nodes = [
                _node(_added, name, nodes[i : i + _ADDED]) for i in range(0, len(nodes), _ADDED)
            ]
        outcome = computed("X", nodes[0])
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def lazily(self, function: Callable[..., NDArray[Any]]) -> Any:
        """What a public function of a block gives for all rows, as a Dask array."""
        like = function(np.zeros((1, self.shape[1])))
        given: dict[str, Any] = {"dtype": like.dtype, "meta": like[:0]}
        if like.ndim == 1:
            given["drop_axis"] = 1
        else:
            given["chunks"] = (self.array.chunks[0], like.shape[1:])
        announced = partial(_applied, function, self.shape[1], self.dtype)
        return self.array.map_blocks(announced, name=f"balldp-rows-{uuid4().hex}", **given)

    def at(self, positions: NDArray[np.intp]) -> Floats:
        """Rows at these positions, which ascend."""
        return self._read(self.array[positions], len(positions))

    def whole(self) -> Floats:
        """All rows, in memory."""
        return self._read(self.array, len(self))

    def _read(self, some: Any, n_rows: int) -> Floats:
        rows = computed("X", some)
        check_rows(rows, (n_rows, self.shape[1]), self.dtype, "the Dask array")
        return rows


@dataclass(repr=False, eq=False)
class _Unshown:
    """What a task is given; it shows none of it."""

    given: Any


def _node(function: Callable[..., Any], name: str, *arguments: Any) -> Any:
    from dask import delayed

    return delayed(function, pure=False)(*arguments, dask_key_name=f"{name}-{uuid4().hex}")


def _sums_of(chunk: Any, work: _Unshown, announced: _Unshown) -> Any:
    """Sums over a chunk, or the error that reading or computing gave."""
    shape, dtype, columns = announced.given
    try:
        check_rows(chunk, shape, dtype, "a chunk of the Dask array")
        # As for the fit: no warning of arithmetic may depend on the rows.
        with SINGLE_BLAS_THREAD, np.errstate(all="ignore"):
            return sums_of(work.given, chunk, *columns)
    except (KeyboardInterrupt, SystemExit):
        # A request to stop the worker.
        raise
    except RowsError as error:
        return RowsError(str(error))
    except FloatingPointError:
        return FloatingPointError(f"rows hold {REFUSED}.")
    except BaseException as error:
        return RuntimeError(
            f"X: a worker could not compute with its rows ({type(error).__name__}); nothing was "
            "released. Every worker needs this package, and as much memory as a chunk takes."
        )


def _added(sums: Sequence[Any]) -> Any:
    """Sum of these, or the first error among them; they stay as they are."""
    errors = [each for each in sums if isinstance(each, Exception)]
    return errors[0] if errors else added(sums)


def _applied(function: Callable[..., Any], width: int, dtype: Any, chunk: Any) -> Any:
    """What a public function gives for a chunk; its errors quote no row."""
    check_rows(chunk, (len(chunk), width), dtype, "a chunk of the Dask array")
    with suppress(FloatingPointError):
        return joined(function, chunk)
    raise RowsError(f"Input X contains {REFUSED}; drop those rows, or repair them.")


def computed(name: str, values: Any) -> Any:
    """What the active scheduler computes."""
    return _asked(name, lambda: _waited(_client(), values))


def _asked(name: str, ask: Callable[[], Any]) -> Any:
    """What Dask answers; its errors are replaced, as they may quote rows."""
    try:
        return ask()
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except RowsError as error:
        fault: Exception = RowsError(str(error))
    except BaseException as error:
        fault = RuntimeError(
            f"{name}: Dask could not compute it ({type(error).__name__}): a task failed, workers "
            "died, or the cluster that held it was closed; nothing was released. See the logs of "
            "the workers."
        )
    # Raise outside of the handler: the original error would be the context.
    raise fault


def _client() -> Any:
    """The client of a cluster, if that is the active scheduler."""
    from dask.base import get_scheduler

    in_task = False
    with suppress(ImportError, ValueError):
        from distributed import get_worker

        in_task = bool(get_worker())
    if in_task:
        raise RowsError(
            "X: a task of a cluster cannot wait for others; call fit in the process that has the "
            "client."
        )
    client = getattr(get_scheduler(), "__self__", None)
    return client if hasattr(client, "nthreads") else None


def _waited(client: Any, values: Any) -> Any:
    """Result from a cluster, where it is forgotten; without one from this process."""
    import dask

    if client is None:
        return values.compute()
    # Tasks carry labels, so Dask's warning about their size is no use here.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PiB"}):
        future = client.compute(values)
    try:
        while True:
            try:
                return future.result(timeout=_PATIENCE)
            except TimeoutError:
                if future.status != "pending" or not client.nthreads():
                    raise
    finally:
        future.release()


def _check_workers() -> None:
    """Raise an error unless every worker has this package in the same version."""
    client = _client()
    if client is None:
        return
    package = "sklearn_balldp"
    workers = _asked("X", lambda: client.get_versions(packages=[package])["workers"])
    if not workers:
        raise ValueError(
            "X: the Dask cluster has no workers; wait for one (client.wait_for_workers(1)), or let "
            "it keep one (cluster.adapt(minimum=1))."
        )
    versions = {address: worker["packages"].get(package) for address, worker in workers.items()}
    other = {address: version for address, version in versions.items() if version != __version__}
    if other:
        raise ValueError(
            f"X: workers need {package} {__version__}, whose rounding is accounted for; these have "
            f"another or none: {other}. Install it where they run."
        )
