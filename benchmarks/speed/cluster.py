"""Dask workers on this machine against this process, on rows in a file.

The same fits of the same float64 rows, so that the arithmetic is the same: on one and two threads
of this process, and on one, two and four workers of one thread each. Rows a second count every
pass; the disk's speed is that of reading the NumPy file in order. Memory is what workers (or this
process) hold beyond what they held before the fit.

Dask has its workers give memory back to the system at once, which costs passes a third of their
time: here they keep it, as docs/cluster.md advises.
"""

import os
import tempfile
import time
from unittest import mock

import dask
import joblib
import numpy as np
import pandas as pd
import zarr
from distributed import Client, LocalCluster

from sklearn_balldp.rows import from_npy, from_zarr, on_cluster

from ..study import Study, show
from .jobs import heads
from .timing import disk_speed, embeddings, rates, watched

WORKERS, CLASSES, STEPS = (1, 2, 4), 10, 20
ROWS, REPEATS = (200_000, 128), 3
MANY, THREADS = 10**9, (100, 400)
#: What a billion rows are foretold from.
WORK = "1 worker, NumPy file"
KEEPS = {"MALLOC_TRIM_THRESHOLD_": 2**28, "MALLOC_MMAP_THRESHOLD_": 2**28, "OMP_NUM_THREADS": 1}
OPTIONS = {"memory_limit": None, "dashboard_address": ":0", "threads_per_worker": 1}


def measure(run, n, d):
    """A row for each head and way."""
    X, y = embeddings(n, d, CLASSES)
    X, found = X.astype(np.float64), []
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/rows.npy", X)
        zarr.save(f"{folder}/rows.zarr", X)
        disk = disk_speed(f"{folder}/rows.npy")
        for threads in (1, 2):
            with mock.patch.object(joblib, "cpu_count", return_value=threads):
                found += timed(f"{threads} thread{'s' * (threads > 1)}", X, y)
        for number in WORKERS:
            with (
                dask.config.set({"distributed.nanny.pre-spawn-environ": KEEPS}),
                LocalCluster(n_workers=number, **OPTIONS) as cluster,
                Client(cluster) as client,
            ):
                name = f"{number} worker{'s' * (number > 1)}"
                for file, kind in (("npy", from_npy), ("zarr", from_zarr)):
                    rows = on_cluster(kind(f"{folder}/rows.{file}"), client)
                    title = {"npy": "NumPy file", "zarr": "Zarr"}[file]
                    found += timed(f"{name}, {title}", rows, y, client)
    return [{**own, "itemsize": 8, "disk": disk} for own in found]


def timed(on, rows, y, client=None):
    """The quickest of a few fits of each head, by seconds, those of the processors, and memory."""
    processes = list(client.run(os.getpid).values()) if client else ["self"]

    def used():
        return sum(client.run(time.process_time).values()) if client else time.process_time()

    for name, head in heads(STEPS, delta=1e-7).items():
        rounds = []
        for _ in range(REPEATS):
            before = used()
            seconds, memory = watched(lambda head=head: head.fit(rows, y), processes)
            rounds.append({"seconds": seconds, "processor": used() - before, "memory": memory})
        best = pd.DataFrame(rounds)
        passes = STEPS if name == "noisy steps" else 1
        title = name.replace("noisy", f"{STEPS} noisy")
        yield {
            "fit": title,
            "on": on,
            "passes": passes,
            **best.min(),
            "memory": best["memory"].max(),
        }


def of_many(cells):
    """What a billion rows cost by arithmetic: the processor's time grows with the rows."""
    for _, item in cells[cells["on"] == WORK].iterrows():
        hours = item["processor"] * MANY / item["records"] / 3600.0
        minutes = {f"minutes on {k} threads": f"{60.0 * hours / k:.2g}" for k in THREADS}
        fit = f"{item['fit']}, {MANY:.0e} x {item['features']}".replace("e+0", "e")
        yield {"fit": fit, "hours of one core": f"{hours:.2g}", **minutes}


CELLS = Study(
    "cluster.csv",
    ("records", "features"),
    measure,
    lambda run: [ROWS],
    {},  # too long for a sample
    alone=True,
)
STUDIES = (CELLS,)


def report(out):
    cells = CELLS.read(out)
    show(rates(cells.sort_values("fit", kind="stable"), ["fit", "on"]), out, "cluster", cells)
    show(pd.DataFrame(of_many(cells)), out, "cluster_many", cells)
