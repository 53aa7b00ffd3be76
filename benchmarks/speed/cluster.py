"""Dask workers on this machine against this process.

The same fits of the same float64 rows, so that the arithmetic is the same: on one thread of this
process, on two, and on two workers of one thread each, which read a NumPy file or Zarr. Seconds are
wall-clock; the processor's time is that of the workers alone.

Dask has its workers give memory back to the system at once, which costs passes a third of their
time: here they keep it, as docs/cluster.md advises.
"""

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
from .timing import embeddings

WORKERS, CLASSES = 2, 10
ROWS, REPEATS = (200_000, 128), 3
MANY, THREADS = 10**9, (100, 400)
WORK = "workers, NumPy file"


def timed(fit, used):
    """Wall-clock seconds of a fit, and those of the processors that made its passes."""
    before, start = used(), time.perf_counter()
    fit()
    return time.perf_counter() - start, used() - before


def in_process(fit, threads):
    """As a machine of so many cores has it."""
    with mock.patch.object(joblib, "effective_n_jobs", return_value=threads):
        return timed(fit, time.process_time)


def measure(run, n, d):
    """A row for each head and way."""
    return list(_measured(n, d))


def _measured(n, d):
    X, y = embeddings(n, d, CLASSES)
    X = X.astype(np.float64)
    keeps = {"MALLOC_TRIM_THRESHOLD_": 2**28, "MALLOC_MMAP_THRESHOLD_": 2**28}
    environ = {"distributed.nanny.pre-spawn-environ": {**keeps, "OMP_NUM_THREADS": 1}}
    options = {"memory_limit": None, "dashboard_address": ":0"}
    with (
        tempfile.TemporaryDirectory() as folder,
        dask.config.set(environ),
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, **options) as cluster,
        Client(cluster) as client,
    ):
        np.save(f"{folder}/rows.npy", X)
        zarr.save(f"{folder}/rows.zarr", X)
        files = {WORK: from_npy(f"{folder}/rows.npy")}
        files["workers, Zarr"] = from_zarr(f"{folder}/rows.zarr")
        sources = {name: on_cluster(file, client) for name, file in files.items()}

        def used():
            return sum(client.run(time.process_time).values())

        for name, head in heads(20, delta=1e-7).items():
            jobs = {
                "one thread": lambda h=head: in_process(lambda: h.fit(X, y), 1),
                "two threads": lambda h=head: in_process(lambda: h.fit(X, y), 2),
            }
            for job, source in sources.items():
                jobs[job] = lambda h=head, rows=source: timed(lambda: h.fit(rows, y), used)
            rounds = [{job: run() for job, run in jobs.items()} for _ in range(REPEATS)]
            best = pd.DataFrame(rounds).map(np.array).apply(lambda own: np.min([*own], axis=0))
            one, title = best["one thread"], name.replace("noisy", "20 noisy")
            for job in list(jobs)[1:]:
                yield {
                    "fit": f"{title}, {n} x {d} float64, {CLASSES} classes",
                    "on": job,
                    "seconds": best[job][0],
                    "one thread / this": one[0] / best[job][0],
                    "processor time / one thread's": best[job][1] / one[1],
                    "processor": best[job][1],
                }


def of_many(cells):
    """What a billion rows cost by arithmetic: the processor's time grows with the rows."""
    for _, item in cells[cells["on"] == WORK].iterrows():
        hours = item["processor"] * MANY / item["records"] / 3600.0
        minutes = {f"minutes on {k} threads": f"{60.0 * hours / k:.2g}" for k in THREADS}
        fit = f"{item['fit'].split(',')[0]}, {MANY:.0e} x {item['features']}".replace("e+0", "e")
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
    shown = ["seconds", "one thread / this", "processor time / one thread's"]
    table = cells[["fit", "on"]].join(cells[shown].map("{:.2f}".format))
    show(table, out, "cluster", cells)
    show(pd.DataFrame(of_many(cells)), out, "cluster_many", cells)
