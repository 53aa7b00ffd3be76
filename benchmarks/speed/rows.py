"""Rows in files against rows in memory: the same fits, and passes over what is not kept."""

import tempfile
from pathlib import Path
from unittest import mock

import h5py
import numpy as np
import pyarrow as pa
import zarr
from pyarrow import parquet

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    GradientPerturbation,
)
from sklearn_balldp.mechanisms import gradients
from sklearn_balldp.rows import from_hdf5, from_parquet, from_zarr

from .timing import Memory, embeddings, interleaved, peak, row

SHAPE = (60_000, 384, 6)
HEADS = {
    "prototypes": BallDPRidgePrototype(radius=0.5),
    "discriminant": BallDPLinearDiscriminant(radius=0.1),
    "20 noisy steps": BallDPLogisticRegression(
        radius=0.5, mechanism=GradientPerturbation(n_steps=20, start="zero")
    ),
}


def sources(X, folder):
    """The same rows in files of every format."""
    np.save(folder / "x.npy", X)
    zarr.save(str(folder / "x.zarr"), X)
    with h5py.File(folder / "x.h5", "w") as file:
        file["rows"] = X
    column = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])
    parquet.write_table(pa.table({"rows": column}), folder / "x.parquet", row_group_size=10_000)
    return {
        "memory map": np.load(folder / "x.npy", mmap_mode="r"),
        "Zarr": from_zarr(folder / "x.zarr"),
        "HDF5": from_hdf5(folder / "x.h5", "rows"),
        "Parquet": from_parquet(folder / "x.parquet", "rows"),
    }


def measure(comparators):
    n, d, n_classes = SHAPE
    X, y = embeddings(n, d, n_classes)
    for dtype in (np.float32, np.float16):
        rows = X.astype(dtype)
        with tempfile.TemporaryDirectory() as folder:
            files = sources(rows, Path(folder))
            for name, head in HEADS.items():
                jobs = {"array": lambda head=head, rows=rows: head.fit(rows, y)}
                for kind, source in files.items():
                    jobs[kind] = lambda head=head, source=source: head.fit(source, y)
                times = interleaved(jobs, repeats=3)
                for kind in files:
                    job = f"{name} of {n} x {d} {dtype.__name__}, {kind}"
                    yield row("rows", job, times[kind], "an array in memory", times["array"])
            head = HEADS["20 noisy steps"]

            def fitted(kept, head=head, rows=rows):
                with mock.patch.object(gradients, "KEPT_BYTES", kept):
                    head.fit(rows, y)

            jobs = {"kept": lambda f=fitted: f(2**30), "again": lambda f=fitted: f(0)}
            times = interleaved(jobs, repeats=7)
            job = f"20 noisy steps of {n} x {d} {dtype.__name__}, rows made again in each"
            asked = 1.3 if dtype == np.float32 else 1.5
            yield row("rows", job, times["again"], "rows that are kept", times["kept"], asked)
            yield Memory("rows", job, peak(lambda f=fitted: f(0)) / rows.nbytes, np.nan)
