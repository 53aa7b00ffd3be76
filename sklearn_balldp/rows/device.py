"""Rows on a device: passes over arrays of another library (PyTorch, CuPy) run on that device.

Passes compute in double precision. Devices promise no order of additions, and their reduced single
precision (TF32) would err by more than the proofs allow. Sums are copied to the host, which draws
the noise.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import namespace, on_host, one_hot
from ..progress import bar
from .cluster import is_dask, on_cluster
from .passes import SHARD_ROWS
from .sources import PRECISIONS, Rows, squarable
from .table import Shard, Table, sum_of


def as_rows(X: Any) -> Any:
    """An array of a cluster or a device as the rows that stay there; any other X as it is."""
    if is_dask(X):
        return on_cluster(X)
    in_memory = str(getattr(X, "device", "cpu")).startswith("cpu")
    return X if in_memory else on_device(X)


def on_device(X: Any) -> Rows:
    """Rows that stay on their device, where their own library computes with them.

    Tensors on a GPU need no call of this function: ``fit`` and ``predict`` make one. Those in this
    machine's memory are taken as NumPy arrays without it, which is faster.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        Array of a library that follows the array API standard (PyTorch, CuPy, array-api-strict), of
        float16, float32 or float64. Passes compute with it in double precision.

    Returns
    -------
    Rows
        For ``fit`` and ``predict``.

    Raises
    ------
    ImportError
        If array-api-compat is missing: ``pip install array-api-compat``.
    TypeError
        If their library does not follow the standard.
    ValueError
        If the rows are of another type or shape.
    """
    return DeviceRows(X)


class DeviceRows(Rows):
    """Rows in an array of another library; see :func:`on_device`."""

    _steady = True

    def __init__(self, X: Any) -> None:
        try:
            namespace(X)
        except ImportError as error:
            raise ImportError(
                "rows on a device need array-api-compat; pip install array-api-compat."
            ) from error
        except TypeError as error:
            raise TypeError(
                f"X: a {type(X).__module__}.{type(X).__name__} on the device "
                f"{getattr(X, 'device', None)} is of no library that follows the array API "
                "standard; copy it to the host."
            ) from error
        _check_device(X)
        precision = str(X.dtype).split(".")[-1]
        if len(X.shape) != 2 or precision not in PRECISIONS:
            raise ValueError(
                f"X: an array of shape {tuple(X.shape)} and type {X.dtype}; rows are "
                f"two-dimensional and of type {', '.join(PRECISIONS)}: convert them first."
            )
        # A model needs no derivatives of its rows.
        self._X = X.detach() if hasattr(X, "detach") else X
        self.shape, self.dtype = (int(X.shape[0]), int(X.shape[1])), np.dtype(precision)

    def _squarable(self, domain: str) -> Rows:
        rows = squarable(self._X, domain)
        return self if rows is self._X else DeviceRows(rows)

    def read(self, start: int, stop: int) -> NDArray[np.floating]:
        return on_host(self._X[start:stop, :])

    def _rows_at(self, places: NDArray[np.intp]) -> NDArray[np.floating]:
        xp = namespace(self._X)
        return on_host(xp.take(self._X, placed(places, self._X), axis=0))

    def _as_table(self, columns: Mapping[str, NDArray[Any] | None]) -> "DeviceTable":
        return DeviceTable(self._X, columns)


def _check_device(X: Any) -> None:
    """Raise a ValueError if arrays on the device are read-only or lack double precision."""
    with contextlib.suppress(Exception):
        xp = namespace(X)
        place = xp.zeros(1, dtype=xp.float64, device=X.device)
        place[:] = 1.0
        if str(place.dtype).endswith("float64"):
            return
    raise ValueError(
        f"X: a {type(X).__module__}.{type(X).__name__} on the device {X.device}; passes need "
        "arrays of float64 that can be written to, which this library or device does not have: "
        "copy the rows to the host."
    )


class DeviceShard(Shard):
    """One shard of rows on a device."""

    on_device = True

    def to_device(self, array: NDArray[Any]) -> Any:
        return placed(array, self._X)

    @property
    def rows(self) -> Any:
        return self.blocks_of(self._first, self._stop)

    def blocks_of(self, first: int, stop: int, step: int = 1) -> Any:
        """Rows of a range, in double precision."""
        xp = namespace(self._X)
        return xp.astype(self._X[first:stop:step, :], xp.float64)

    def blocks(self, *_: Any, **__: Any) -> Iterator[tuple[slice, Any]]:
        # Large products keep a device busy; SHARD_ROWS is within the rows that the proofs allow.
        for first in range(self._first, self._stop, SHARD_ROWS):
            stop = min(first + SHARD_ROWS, self._stop)
            yield slice(first - self._first, stop - self._first), self.blocks_of(first, stop)

    def every_nth(self, step: int) -> Any:
        first = min(self._first + -self.start % step, self._stop)
        return self.blocks_of(first, self._stop, step)

    def class_sums(self, n_classes: int) -> Callable[[Any, Any, Any], Any]:
        def sums(block: Any, codes: Any, factors: Any) -> Any:
            return (one_hot(codes, n_classes, block.dtype) * factors[:, None]).T @ block

        return sums


class DeviceTable(Table):
    """Passes over rows on a device, as those of :class:`.Table`."""

    local = False
    on_device = True
    _kind = DeviceShard

    def __init__(self, X: Any, columns: Mapping[str, NDArray[Any] | None]) -> None:
        self._X = X
        super().__init__(X, {k: placed(v, X) for k, v in columns.items() if v is not None})

    def each(self, function: Callable[..., Any], *numbers: Any, back: bool = False) -> Iterator:
        for result in self._each(function, *numbers):
            yield on_host(result)

    def _each(self, function: Callable[..., Any], *numbers: Any, back: bool = False) -> Iterator:
        own = [placed(v, self._X) if isinstance(v, np.ndarray) else v for v in numbers]
        results = (function(part, *own) for part in self._parts.values())
        yield from bar(results, "pass", "shard", len(self._parts))

    def total(self, function: Callable[..., Any], *numbers: Any, back: bool = False) -> Any:
        # The device adds up the sums, and only the total is copied to the host.
        return tuple(on_host(value) for value in sum_of(self._each(function, *numbers)))


def placed(array: NDArray[Any], X: Any) -> Any:
    """Copy a NumPy array to the library and the device of the rows."""
    # A copy: released arrays are read-only, which not every library takes.
    return namespace(X).asarray(np.array(array, order="C"), device=X.device)
