"""``python -m benchmarks.speed.cluster``: Dask workers on this machine against this process.

The same fits of the same float64 rows, so that the arithmetic is the same: on one thread of this
process, on two, and on two workers of one thread each, which read a NumPy file or Zarr. Seconds are
wall-clock; the processor's time is that of the workers alone.

Dask has its workers give memory back to the system at once, which costs passes a third of their
time: here they keep it, as docs/cluster.md advises.
"""

import argparse
import tempfile
import time
from pathlib import Path
from unittest import mock

import dask
import joblib
import numpy as np
import pandas as pd
import zarr
from distributed import Client, LocalCluster

from sklearn_balldp.rows import from_npy, from_zarr, on_cluster

from ..study import show
from .jobs import heads
from .timing import embeddings

WORKERS, CLASSES = 2, 10
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


def measure(n, d, repeats):
    """Rows of the table."""
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
            rounds = [{job: run() for job, run in jobs.items()} for _ in range(repeats)]
            best = pd.DataFrame(rounds).map(np.array).apply(lambda own: np.min([*own], axis=0))
            one, title = best["one thread"], name.replace("noisy", "20 noisy")
            for job in list(jobs)[1:]:
                yield {
                    "fit": f"{title}, {n} x {d} float64, {CLASSES} classes",
                    "on": job,
                    "seconds": f"{best[job][0]:.2f}",
                    "one thread / this": f"{one[0] / best[job][0]:.2f}",
                    "processor time / one thread's": f"{best[job][1] / one[1]:.2f}",
                    "processor": best[job][1],
                }


def of_many(cells, n, d):
    """What a billion rows cost by arithmetic: the processor's time grows with the rows."""
    for _, item in cells[cells["on"] == WORK].iterrows():
        hours = item["processor"] * MANY / n / 3600.0
        minutes = {f"minutes on {k} threads": f"{60.0 * hours / k:.2g}" for k in THREADS}
        fit = f"{item['fit'].split(',')[0]}, {MANY:.0e} x {d}".replace("e+0", "e")
        yield {"fit": fit, "hours of one core": f"{hours:.2g}", **minutes}


def main(argv=None):
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.cluster", description=__doc__)
    parser.add_argument("--rows", type=int, default=800_000)
    parser.add_argument("--features", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("speed-results"))
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    size = options.rows, options.features
    cells = pd.DataFrame(measure(*size, options.repeats))
    show(cells.drop(columns="processor"), options.out, "cluster")
    show(pd.DataFrame(of_many(cells, *size)), options.out, "cluster_many")


if __name__ == "__main__":
    main()
