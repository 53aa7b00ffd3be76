"""Rows on a Dask cluster: its workers make the passes, and this process adds up what they give.

Workers see rows, labels, weights and public numbers. Noise, the accountant's ledger and the record
stay with the process that publishes: a task may run twice, and noise must not.

A pass is one task for each thread of the cluster. What it needs is loaded by tasks as well, so that
the shards of a worker that dies are loaded again by another one. Sums are added up in the order of
the shards, so it does not matter which worker made them, or when.

No task raises an error: an engine would write its arguments into a log.
"""

import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import on_host
from .passes import SINGLE_BLAS_THREAD, shards_of
from .projection import clip_entries
from .sources import PRECISIONS, Rows
from .table import Part, Result, added, cut, group_size

# First words of errors whose text holds no number of a row.
_QUOTES_NOTHING = ("rows: ", "X: ", "path=", "dataset=", "column=")


def is_dask(values: Any) -> bool:
    """Whether these are a collection of Dask."""
    return type(values).__module__.split(".")[0] == "dask"


def computed(values: Any) -> Any:
    """Labels, owners or weights as an array of this process."""
    return values.compute() if is_dask(values) else on_host(values)


def on_cluster(X: Any, client: Any = None) -> Rows:
    """Rows that the workers of a Dask cluster read and compute with.

    A dask array needs no call of this function: ``fit`` and ``predict`` make one. Rows in files do,
    because only you know whether every worker sees the file at that path.

    Parameters
    ----------
    X : dask.array.Array or Rows of shape (n_samples, n_features)
        Rows of float16, float32 or float64. Those of an array are loaded once and stay in the
        workers' memory; those of a file are read in each pass, a few at a time.
    client : distributed.Client, optional
        Connection to the cluster; the current one by default.

    Returns
    -------
    Rows
        For ``fit`` and ``predict``.

    Raises
    ------
    ImportError
        If distributed is missing: ``pip install 'sklearn_balldp[dask]'``.
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
        from distributed import get_client
    except ImportError as error:
        raise ImportError(
            "rows on a cluster need distributed; pip install 'sklearn_balldp[dask]'."
        ) from error
    if client is None:
        try:
            client = get_client()
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

    def __init__(self, X: Any, client: Any, clipped: bool = False) -> None:
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
        self._rows, self._client, self._is_clipped = X, client, clipped
        self.shape, self.dtype = (int(X.shape[0]), int(X.shape[1])), np.dtype(X.dtype)

    def _clipped(self) -> Rows:
        return ClusterRows(self._rows, self._client, True)

    def read(self, start: int, stop: int) -> NDArray[np.floating]:
        if isinstance(self._rows, Rows):
            rows = self._rows._part(start, stop)
        else:
            rows = np.asarray(self._client.compute(self._rows[start:stop]).result())
        return clip_entries(rows) if self._is_clipped else rows

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("rows on a cluster belong to this process, which is connected to it.")

    def _table(self, columns: Mapping[str, NDArray[Any] | None]) -> "ClusterTable":
        client, shards = self._client, shards_of(*self.shape)
        size = group_size(len(shards))
        groups = [shards[first : first + size] for first in range(0, len(shards), size)]
        slots = [address for address, n in client.nthreads().items() for _ in range(n)]
        if not slots:
            raise ValueError("client: the cluster has no workers yet; client.wait_for_workers(1).")
        if not isinstance(self._rows, Rows):
            _warn_of_spilling(client)
        n_portions = min(len(slots), len(groups))
        portions = []
        shares = np.array_split(np.arange(len(groups)), n_portions)
        for slot, places in zip(slots, shares, strict=False):
            own = [groups[place] for place in places]
            start, stop = own[0][0][0], own[-1][-1][1]
            load = _Load(
                own, self.dtype, self.shape[1], cut(columns, start, stop), self._is_clipped
            )
            where = {"workers": [slot], "allow_other_workers": True}
            portions.append((self._loaded(load, start, stop, where), where))
        return ClusterTable(client, self.shape, portions)

    def _loaded(self, load: "_Load", start: int, stop: int, where: Mapping[str, Any]) -> Any:
        """Future of a portion of the rows, and of what belongs to them."""
        import dask

        # Labels travel in one task for each thread.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PiB"}):
            if isinstance(self._rows, Rows):
                name = _name("load")
                return self._client.submit(load, self._rows, key=name, pure=False, **where)
            sizes = tuple(stop - start for group in load.groups for start, stop in group)
            blocks = self._rows[start:stop].rechunk((sizes, (self.shape[1],))).to_delayed()
            task = dask.delayed(load, pure=False)(list(blocks.ravel()), dask_key_name=_name("load"))
            return self._client.compute(task, **where)


class ClusterTable:
    """Passes over rows that workers have or read, as those of :class:`.Table`.

    Parameters
    ----------
    client : distributed.Client
        Connection to the cluster.
    shape : tuple of (int, int)
        Shape of the rows.
    portions : list of (Future, mapping)
        Groups of neighbouring shards, in order, and where they are.
    """

    local = False
    on_device = False

    def __init__(self, client: Any, shape: tuple[int, int], portions: Sequence[Any]) -> None:
        self._client, self.shape, self._portions = client, shape, portions

    def __len__(self) -> int:
        return self.shape[0]

    def each(self, function: Callable[..., Any], *numbers: Any, back: bool = False) -> Iterator:
        """As :meth:`.Table.each`; ``back`` is for caches of one machine."""
        for found in self._results(_Each(function, numbers)):
            yield from found

    def total(self, function: Callable[..., Result], *numbers: Any, back: bool = False) -> Result:
        """As :meth:`.Table.total`: workers add up groups, and this process adds those."""
        total: list[Any] | None = None
        for found in self._results(_Sums(function, numbers)):
            for group in found:
                total = added(total, group)
        return tuple(total)  # type: ignore[arg-type]

    def with_columns(
        self, function: Callable[..., Mapping[str, Any]], *numbers: Any
    ) -> "ClusterTable":
        """As :meth:`.Table.with_columns`; columns stay on the workers."""
        return ClusterTable(
            self._client,
            self.shape,
            [
                (future, where)
                for future, (_, where) in zip(
                    self._submitted(_More(function, numbers)), self._portions, strict=True
                )
            ],
        )

    def _submitted(self, task: "_Task") -> list[Any]:
        name = _name("pass")
        return [
            self._client.submit(task, portion, key=f"{name}-{place}", pure=False, **where)
            for place, (portion, where) in enumerate(self._portions)
        ]

    def _results(self, task: "_Task") -> Iterator[Any]:
        """What a task gives for each portion, in order."""
        futures = self._submitted(task)
        try:
            for place, future in enumerate(futures):
                found = _result_of(future)
                # What was added up need not wait on a worker for the rest.
                futures[place] = None
                if isinstance(found, _Failure):
                    raise found.error()
                yield found
        finally:
            left = [future for future in futures if future is not None]
            if left:
                self._client.cancel(left)


@dataclass(frozen=True)
class _Failure:
    """An error of a task, in words that hold no number of a row."""

    kind: str
    text: str

    @classmethod
    def of(cls, error: Exception) -> "_Failure":
        text = str(error)
        known = isinstance(error, (FloatingPointError, OSError, ImportError, MemoryError))
        return cls(type(error).__name__, text if known or text.startswith(_QUOTES_NOTHING) else "")

    def error(self) -> Exception:
        """The error for the process that fits."""
        if self.kind == "FloatingPointError":
            return FloatingPointError(self.text)
        if self.kind == "ValueError" and self.text:
            return ValueError(self.text)
        return RuntimeError(
            f"X: a worker could not read or compute with its rows ({self.kind}"
            f"{': ' if self.text else ''}{self.text}); nothing was released. Every worker needs "
            "this package, and the files at the same path."
        )


class _Portion:
    """Groups of shards on one worker."""

    def __init__(self, groups: list[list[Part]]) -> None:
        self.groups = groups

    def __sizeof__(self) -> int:
        # What an engine takes it for, when it decides how much fits into memory.
        return sum(part.nbytes for group in self.groups for part in group)


@dataclass(frozen=True, repr=False)
class _Load:
    """Task: rows of some shards, and what belongs to them.

    Parameters
    ----------
    groups : list of list of (int, int)
        Ranges of the shards in the table, in groups.
    dtype : dtype
        Precision of the rows.
    n_features : int
        Number of features.
    columns : dict of str to ndarray
        Values for each row from the first shard's first one on.
    clipped : bool
        Whether entries are clipped to where squares are finite.
    """

    groups: list[list[tuple[int, int]]]
    dtype: np.dtype
    n_features: int
    columns: dict[str, NDArray[Any]]
    clipped: bool

    def __call__(self, rows: Any) -> Any:
        """The portion, from a source or from the shards' rows."""
        try:
            return self._loaded(rows)
        except Exception as error:
            return _Failure.of(error)

    def _loaded(self, rows: Any) -> _Portion:
        origin, blocks = self.groups[0][0][0], iter(())
        if isinstance(rows, Rows):
            source = clip_entries(rows) if self.clipped else rows
        else:
            blocks = iter(rows)
        groups = []
        for shards in self.groups:
            parts = []
            for start, stop in shards:
                own = cut(self.columns, start - origin, stop - origin)
                if isinstance(rows, Rows):
                    parts.append(Part(source, start, stop, start, own, True))
                    continue
                block: NDArray[Any] = np.asarray(next(blocks))
                if block.shape != (stop - start, self.n_features) or block.dtype != self.dtype:
                    raise ValueError(
                        f"rows: a chunk of the array is of shape {block.shape} and type "
                        f"{block.dtype}, where it states {(stop - start, self.n_features)} and "
                        f"{self.dtype}; give dask.array the right meta."
                    )
                block = _own(clip_entries(block) if self.clipped else block)
                parts.append(Part(block, 0, len(block), start, own, True))
            groups.append(parts)
        return _Portion(groups)


@dataclass(frozen=True, repr=False)
class _Task:
    """Task: a pass over one portion."""

    function: Callable[..., Any]
    numbers: tuple[Any, ...] = field(default=())

    def __call__(self, portion: Any) -> Any:
        if isinstance(portion, _Failure):
            return portion
        try:
            with SINGLE_BLAS_THREAD:
                numbers = (_own(number) for number in self.numbers)
                return replace(self, numbers=tuple(numbers)).of(portion)
        except Exception as error:
            return _Failure.of(error)

    def of(self, portion: _Portion) -> Any:
        """What is made of the portion."""
        raise NotImplementedError


class _Each(_Task):
    """What the function gives for each shard."""

    def of(self, portion: _Portion) -> list[Any]:
        return [self.function(part, *self.numbers) for group in portion.groups for part in group]


class _Sums(_Task):
    """Sums of what the function gives for the shards of each group."""

    def of(self, portion: _Portion) -> list[Any]:
        sums = []
        for group in portion.groups:
            total: list[Any] | None = None
            for part in group:
                total = added(total, self.function(part, *self.numbers))
            sums.append(total)
        return sums


class _More(_Task):
    """The portion with further columns, on the same rows."""

    def of(self, portion: _Portion) -> _Portion:
        return _Portion(
            [
                [part.with_columns(self.function(part, *self.numbers)) for part in group]
                for group in portion.groups
            ]
        )


def _own(number: Any) -> Any:
    """An array where NumPy would put it: odd addresses, of messages, may decide bits of a sum."""
    return number.copy() if isinstance(number, np.ndarray) and number.ctypes.data % 16 else number


def _name(what: str) -> str:
    """Key of a task: by chance, as a digest of its arguments would tell of rows."""
    return f"balldp-{what}-{uuid.uuid4().hex}"


def _result_of(future: Any) -> Any:
    """Result of a future; an error of the engine itself, or of the array's own tasks."""
    kind = words = ""
    try:
        return future.result()
    except Exception as error:
        kind = type(error).__name__
        if kind in ("KilledWorker", "ModuleNotFoundError", "ImportError"):
            words = f": {error}"
    # Outside of the handler: an error's context would quote what its message does not.
    raise RuntimeError(
        f"X: the cluster did not finish a pass ({kind}{words}); nothing was released. See the "
        "workers' logs; every worker needs this package, and rows come from where they can be "
        "read again (files), not from client.scatter."
    )


def _warn_of_spilling(client: Any) -> None:
    """Warn where workers write what they hold to disks, in the clear."""
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
    return bool(
        memory.memory_limit and (memory.memory_target_fraction or memory.memory_spill_fraction)
    )
