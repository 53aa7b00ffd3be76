"""Tables: rows with columns of values beside them, and passes over their shards, block by block."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from ..progress import bar
from .passes import map_shards, n_threads, row_blocks, shards_of
from .sources import Floats, Rows, is_mapped

Array = NDArray[np.float64]
#: Result of a pass for one shard: arrays or numbers.
Result = tuple[Any, ...]


@dataclass(repr=False, eq=False)
class Shard:
    """One shard of a table: rows from position ``start`` on, with columns of values for each.

    ``may_change`` says whether rows are read again in each pass, and may have changed.
    """

    _X: Any
    _first: int
    _stop: int
    start: int
    _columns: Mapping[str, NDArray[Any]]
    may_change: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        return self._stop - self._first, self._X.shape[1]

    def __len__(self) -> int:
        return self._stop - self._first

    @property
    def dtype(self) -> np.dtype:
        """Precision of the rows, in native byte order."""
        return self._X.dtype.newbyteorder("=")

    def __repr__(self) -> str:
        # Dask may write the arguments of tasks into logs, so this shows no row.
        return f"Shard(shape={self.shape})"

    def column(self, name: str) -> Any:
        """Values of a column; None where the table has none."""
        return self._columns.get(name)

    @property
    def rows(self) -> Floats:
        """All rows at once, a view where they are an array."""
        return self._X[self._first : self._stop]

    def class_sums(self, n_classes: int) -> Callable[[Any, Any, Any], Any]:
        """Function of (block, codes, factors): the sums of each class's rows times factors."""
        return _ClassSums(n_classes)

    def blocks(
        self, size: int | None = None, dtype: type[np.floating] = np.float64, *, once: bool = False
    ) -> Iterator[tuple[slice, NDArray[Any]]]:
        """As :func:`.row_blocks`; positions count from the first row of the shard."""
        for rows, block in row_blocks(self._X, self._first, self._stop, size, dtype, once=once):
            yield slice(rows.start - self._first, rows.stop - self._first), block

    def every_nth(self, step: int) -> Floats:
        """The shard's rows among every ``step``-th row of the table."""
        return self._X[self._first + -self.start % step : self._stop : step]

    def with_columns(self, columns: Mapping[str, NDArray[Any]]) -> "Shard":
        """The shard with more columns."""
        return replace(self, _columns={**self._columns, **columns})

    def on(self, X: Floats) -> "Shard":
        """The shard with other rows, in memory, and the same columns."""
        return replace(self, _X=X, may_change=False)


class _ClassSums:
    """Class sums of blocks; blocks of equal size share one indicator matrix."""

    def __init__(self, n_classes: int) -> None:
        self._n_classes = n_classes
        self._indicator = sp.csc_array((n_classes, 0))

    def __call__(
        self, block: NDArray[Any], codes: NDArray[np.integer], factors: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        n_rows = len(block)
        if self._indicator.shape[1] != n_rows:
            # Column i holds row i's factor at its class. SciPy's checks of a new matrix are slow.
            places = np.zeros(n_rows, dtype=np.int32), np.arange(n_rows + 1, dtype=np.int32)
            entries = np.zeros(n_rows), *places
            self._indicator = sp.csc_array(entries, (self._n_classes, n_rows))
        self._indicator.indices[:] = codes
        self._indicator.data[:] = factors
        return self._indicator @ block


class Table:
    """Rows of this process, in memory or in a file, with columns beside them (None: left out)."""

    def __init__(self, X: Any, columns: Mapping[str, NDArray[Any] | None]) -> None:
        self.shape: tuple[int, int] = X.shape
        self._pool: Executor | None = None
        self._threads = n_threads(*X.shape)
        self._is_single = False
        may_change = isinstance(X, Rows) or is_mapped(X)
        self._shards = [
            Shard(X, start, stop, start, cut(columns, start, stop), may_change)
            for start, stop in shards_of(*X.shape)
        ]

    def precision(self, dtype: DTypeLike) -> DTypeLike:
        """Precision of sums where ``dtype`` is enough: here they always have the same bits."""
        return dtype

    def can_keep(self, n_bytes: int, limit: int) -> bool:
        """Whether passes may write so many bytes of results to this process's memory."""
        return n_bytes <= limit

    def use_threads(self) -> None:
        """Run all later passes on the same threads; without it each pass starts its own."""
        self._is_single = self._threads == 1
        self._pool = None if self._is_single else ThreadPoolExecutor(self._threads)

    def each(self, function: Callable[..., Any], *numbers: Any) -> Iterator:
        """Results of ``function(shard, *numbers)`` for each shard, in order."""

        def of_shard(shard: Shard) -> Any:
            return function(shard, *numbers)

        if self._is_single:
            yield from map(of_shard, self._shards)
            return
        results = map_shards(of_shard, self._shards, self._threads, self._pool)
        n_shards = len(self._shards)
        yield from results if n_shards == 1 else bar(results, "pass", "shard", n_shards)

    def total(self, function: Callable[..., Result], *numbers: Any) -> Result:
        """Sum of a function's results over all shards, added up as :class:`Sums` does."""
        sums = Sums()
        for place, result in enumerate(self.each(function, *numbers)):
            sums.add(place, 1, result)
        return sums.total()

    def with_columns(self, function: Callable[..., Mapping[str, Any]], *numbers: Any) -> "Table":
        """The table with columns that a function gives for each shard; a shard may have none."""
        columns = zip(self._shards, list(self.each(function, *numbers)), strict=True)
        return self._with_shards([shard.with_columns(more) for shard, more in columns])

    def on(self, X: Floats) -> "Table":
        """The table with other rows, in memory, and the same columns."""
        return self._with_shards([shard.on(X) for shard in self._shards])

    def _with_shards(self, shards: list[Shard]) -> "Table":
        table = copy.copy(self)
        table._shards = shards
        return table


def cut(columns: Mapping[str, Any], start: int, stop: int) -> dict[str, Any]:
    """Columns of a range of rows, without those that are None."""
    return {name: values[start:stop] for name, values in columns.items() if values is not None}


class Sums:
    """Sums of shards' results, in pairs of neighbours, pairs of pairs, and so on.

    The tree follows from the positions of shards alone: another process can return nodes of it.
    """

    def __init__(self) -> None:
        #: Place of the first shard, number of shards, and their sums.
        self.nodes: list[tuple[int, int, list[Any]]] = []

    def add(self, place: int, size: int, result: Sequence[Any]) -> None:
        """Take the next node: the sums of ``size`` shards; they may be overwritten."""
        sums = list(result)
        while self.nodes and self.nodes[-1][1] == size and self.nodes[-1][0] % (2 * size) == 0:
            place, _, before = self.nodes.pop()
            sums, size = _added(before, sums), 2 * size
        self.nodes.append((place, size, sums))

    def total(self) -> Result:
        """Sum of all nodes, from the last and smallest one on."""
        total = self.nodes[-1][2]
        for _, _, before in self.nodes[-2::-1]:
            total = _added(before, total)
        return tuple(total)


def _added(one: list[Any], other: list[Any]) -> list[Any]:
    for place, value in enumerate(other):
        one[place] += value
    return one


def table_of(X: Any, **columns: NDArray[Any] | None) -> Any:
    """The table of rows and columns, of the kind that suits the rows."""
    return X._as_table(columns) if hasattr(X, "_as_table") else Table(X, columns)
