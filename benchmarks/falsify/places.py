"""Attacks on the reading of rows: a neighbour's rows lie elsewhere, or in other blocks."""

import functools
import logging
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from . import settings
from .replay import Records, Violation, distance
from .search import Found, described, furthest, start_of
from .settings import Rng


def _mapped(X: Any, folder: Path) -> Any:
    np.save(folder / "rows.npy", X)
    return np.load(folder / "rows.npy", mmap_mode="r")


def _fortran(X: Any, folder: Path) -> Any:
    return np.asfortranarray(X)


def _reversed(X: Any, folder: Path) -> Any:
    return X[::-1].copy()[::-1]


def _zarr(X: Any, folder: Path) -> Any:
    import zarr

    given = {"chunks": (2, X.shape[1]), "config": {"write_empty_chunks": True}}
    return zarr.create_array(str(folder / "rows.zarr"), data=X, **given)


def _chunks(X: Any, folder: Path) -> Any:
    import dask.array

    return dask.array.from_array(X, chunks=(2, -1))


def _cluster(X: Any, folder: Path) -> Any:
    import distributed

    # Workers in this process: reading is attacked, not the network.
    _connected(distributed)
    return _chunks(X, folder).persist()


def _tensor(X: Any, folder: Path) -> Any:
    import torch

    return torch.from_numpy(np.ascontiguousarray(X))


@functools.lru_cache(maxsize=1)
def _connected(distributed: Any) -> Any:
    quiet = {"dashboard_address": None, "silence_logs": logging.CRITICAL}
    return distributed.Client(processes=False, n_workers=2, threads_per_worker=1, **quiet)


#: Where rows may lie; what is not installed is left out.
PLACES: dict[str, Callable[[Any, Path], Any]] = {
    "a mapped file": _mapped,
    "columns first": _fortran,
    "reversed memory": _reversed,
    "Zarr": _zarr,
    "chunks of Dask": _chunks,
    "a cluster": _cluster,
    "a tensor": _tensor,
}


def attack(rng: Rng, tries: int) -> Found:
    """The move of a release whose neighbour was read elsewhere, over what is stated."""
    drawn = settings.draw(str(rng.choice(settings.MECHANISMS)), rng)
    single = {"replaced": drawn.replaced[:1], "new_labels": drawn.new_labels[:1]}
    setting = replace(drawn, owners=None, n_units=1, **single)
    one, other, deviate = setting.pair(start_of(setting, rng))
    name = str(rng.choice(list(PLACES)))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # So few records are drowned in noise, and heads say so.
        warnings.simplefilter("ignore")
        try:
            moved = Records(PLACES[name](other.X, Path(folder)), other.y)
        except ImportError:
            return Found("rows elsewhere", 0.0, 0, f"{name} is not installed")
        try:
            far, head, _ = distance(setting.make, one, moved, deviate)
        except Violation as violation:
            return Found("rows elsewhere", np.inf, 1, f"{name}: {violation}", setting.to_json())
    stated = head.release_.guarantee(radius=furthest(setting, one, other)).mu
    return Found("rows elsewhere", far / stated, 1, f"{name}: {described(setting)}")
