"""The same fits of rows in memory, in files, and in Dask on this machine; and those of others.

Rows are float32: an array, a mapped file, a Zarr array, and a persisted Dask array under threads
and on a cluster of two processes of one thread each. Rows a second count every pass; the disk's
speed is that of reading the NumPy file in order. Memory is what workers (or this process) hold
beyond what they held before the fit. Ways take turns, so that none has the quiet hour.

Dask has its workers give memory back to the system at once, which slows passes: here they keep it,
as docs/rows.md advises.

Of two classes, which is what Dask-ML has, logistic regression stands beside Dask-ML's (by lbfgs, as
its default solver takes minutes) and scikit-learn's, without noise.
"""

import math
import os
import tempfile
from unittest import mock

import dask
import dask.array as da
import joblib
import numpy as np
import pandas as pd
import zarr
from distributed import Client, LocalCluster
from sklearn.linear_model import LogisticRegression

from sklearn_balldp import BallDPLogisticRegression

from ..study import Study, show
from .jobs import heads
from .timing import disk_speed, embeddings, rates, watched

CLASSES, STEPS, THREADS = 10, 20, 2
ROWS, CHUNK, REPEATS = (1_000_000, 128), 50_000, 3
KEEPS = {"MALLOC_TRIM_THRESHOLD_": 2**28, "MALLOC_MMAP_THRESHOLD_": 2**28, "OMP_NUM_THREADS": 1}
DELTA = 1e-7
OPTIONS = {"memory_limit": None, "dashboard_address": ":0", "threads_per_worker": 1}


def measure(run, n, d):
    """A row for each head and way."""
    X, y = embeddings(n, d, CLASSES)
    with (
        tempfile.TemporaryDirectory() as folder,
        dask.config.set({"distributed.nanny.pre-spawn-environ": KEEPS}),
        LocalCluster(n_workers=THREADS, **OPTIONS) as cluster,
        Client(cluster, set_as_default=False) as client,
        mock.patch.object(joblib, "cpu_count", return_value=THREADS),
    ):
        np.save(f"{folder}/rows.npy", X)
        zarr.save(f"{folder}/rows.zarr", X)
        disk, chunks = disk_speed(f"{folder}/rows.npy"), da.from_array(X, chunks=(CHUNK, -1))
        ways = {
            "an array, 2 threads": (X, "threads"),
            "a mapped file, 2 threads": (np.load(f"{folder}/rows.npy", mmap_mode="r"), "threads"),
            "Zarr, 2 threads": (zarr.open_array(f"{folder}/rows.zarr", mode="r"), "threads"),
            "Dask, 2 threads": (chunks, "threads"),
            "Dask, 2 processes": (client.persist(chunks), client),
        }
        found = [
            row
            for name, head in heads(STEPS, delta=DELTA).items()
            for row in timed(name, head, ways, y)
        ]
        for name, (head, kinds) in LOGISTIC.items():
            own = {way: given for way, given in ways.items() if way.startswith(kinds)}
            found += timed(name, head, own, y % 2)
    return [{**own, "itemsize": 4, "disk": disk} for own in found]


class _OfDask:
    """Dask-ML's logistic regression, of labels in Dask as it asks."""

    def fit(self, X, y):
        # No test needs it.
        from dask_ml.linear_model import LogisticRegression

        LogisticRegression(solver="lbfgs").fit(X, da.from_array(y, chunks=CHUNK))


#: Logistic regression of two classes, by name, and the ways that each has.
LOGISTIC = {
    "default fit, 2 classes": (BallDPLogisticRegression(radius=0.5, delta=DELTA), ""),
    "scikit-learn, 2 classes": (LogisticRegression(), "an array"),
    "Dask-ML, 2 classes": (_OfDask(), "Dask"),
}


def timed(name, head, ways, y):
    """The quickest of a few fits of a head in each way, and the most memory."""
    rounds = []
    for _ in range(REPEATS):
        for way, (rows, scheduler) in ways.items():
            processes = ["self"]
            if hasattr(scheduler, "run"):
                processes = list(scheduler.run(os.getpid).values())
            with dask.config.set(scheduler=scheduler, num_workers=THREADS):
                seconds, memory = watched(lambda rows=rows: head.fit(rows, y), processes)
            rounds.append({"on": way, "seconds": seconds, "memory": memory})
    cells = pd.DataFrame(rounds).groupby("on", sort=False)
    best = cells["seconds"].min().to_frame().assign(memory=cells["memory"].max()).reset_index()
    passes = {"noisy steps": STEPS, **dict.fromkeys(LOGISTIC, math.nan)}.get(name, 1)
    for row in best.to_dict("records"):
        yield {"fit": name.replace("noisy", f"{STEPS} noisy"), "passes": passes, **row}


CELLS = Study(
    "rows.csv",
    ("records", "features"),
    measure,
    lambda run: [ROWS],
    {},  # too long for a sample
    alone=True,
)
STUDIES = (CELLS,)


def report(out):
    cells = CELLS.read(out)
    show(rates(cells, ["fit", "on"]).replace("nan", ""), out, "rows", cells)
