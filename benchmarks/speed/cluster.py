"""``python -m benchmarks.speed.cluster``: Dask workers on this machine against this process.

The same fits of the same float64 rows, so that the arithmetic is the same: on one thread of this
process, on two, and on two workers of one thread each. Workers hold a dask array, or read a file.
Seconds are wall-clock; the processor's time is that of the workers alone.

Dask has its workers give memory back to the system at once, which costs passes a third of their
time: here they keep it, as docs/cluster.md advises.
"""

import argparse
import tempfile
import time
from pathlib import Path

import dask
import dask.array as da
import h5py
import joblib
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster, wait

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    GradientPerturbation,
)
from sklearn_balldp.rows import from_hdf5, on_cluster

from ..study import markdown
from .timing import embeddings

WORKERS, CLASSES = 2, 10
MANY, THREADS = 10**9, (100, 400)
HEADS = {
    "prototypes": BallDPRidgePrototype(delta=1e-7, radius=0.5),
    "discriminant": BallDPLinearDiscriminant(delta=1e-7, radius=0.1),
    "20 noisy steps": BallDPLogisticRegression(
        delta=1e-7, radius=0.5, mechanism=GradientPerturbation(n_steps=20, start="zero")
    ),
}


def timed(fit, used):
    """Wall-clock seconds of a fit, and those of the processors that made its passes."""
    before, start = used(), time.perf_counter()
    fit()
    return time.perf_counter() - start, used() - before


def in_process(head, X, y, threads):
    """As a machine of so many cores has it."""
    kept = joblib.effective_n_jobs
    joblib.effective_n_jobs = lambda n_jobs: threads
    try:
        return timed(lambda: head.fit(X, y), time.process_time)
    finally:
        joblib.effective_n_jobs = kept


def persisted(client, rows):
    """Rows in the workers' memory, each of them holding neighbours."""
    addresses = list(client.nthreads())
    parts = np.array_split(np.arange(rows.numblocks[0]), len(addresses))
    pairs = zip(addresses, parts, strict=True)
    held = [rows.blocks[part.tolist()].persist(workers=[address]) for address, part in pairs]
    wait(held)
    return da.concatenate(held)


def measure(n, d, repeats):
    """Rows of the table."""
    X, y = embeddings(n, d, CLASSES)
    X = X.astype(np.float64)
    keeps = {"MALLOC_TRIM_THRESHOLD_": 2**28, "MALLOC_MMAP_THRESHOLD_": 2**28}
    memory = {
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.nanny.pre-spawn-environ": {**keeps, "OMP_NUM_THREADS": 1},
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        dask.config.set(memory),
        LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, memory_limit=None, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        path = Path(folder) / "rows.h5"
        with h5py.File(path, "w") as file:
            file["rows"] = X
        held = persisted(client, da.from_array(h5py.File(path)["rows"], chunks=(-(-n // 8), d)))
        file_rows = on_cluster(from_hdf5(path, "rows"))

        def used():
            return sum(client.run(time.process_time).values())

        for name, head in HEADS.items():
            jobs = {
                "one thread": lambda head=head: in_process(head, X, y, 1),
                "two threads": lambda head=head: in_process(head, X, y, 2),
                "workers that hold the rows": lambda head=head: timed(
                    lambda: head.fit(held, y), used
                ),
                "workers that read a file": lambda head=head: timed(
                    lambda: head.fit(file_rows, y), used
                ),
            }
            times = {job: [] for job in jobs}
            for _ in range(repeats):
                for job, run in jobs.items():
                    times[job].append(run())
            best = {job: np.min(found, axis=0) for job, found in times.items()}
            for job in list(jobs)[1:]:
                yield {
                    "fit": f"{name}, {n} x {d} float64, {CLASSES} classes",
                    "on": job,
                    "seconds": f"{best[job][0]:.2f}",
                    "one thread / this": f"{best['one thread'][0] / best[job][0]:.2f}",
                    "processor time / one thread's": f"{best[job][1] / best['one thread'][1]:.2f}",
                    "processor": best[job][1],
                }


def of_many(found, n, d):
    """What a billion rows cost by arithmetic: the processor's time grows with the rows."""
    for _, item in found[found["on"] == "workers that hold the rows"].iterrows():
        name = item["fit"].split(",")[0]
        hours = item["processor"] * MANY / n / 3600.0
        yield {
            "fit": f"{name}, {MANY:.0e} x {d}".replace("e+0", "e"),
            "hours of one core": f"{hours:.2g}",
            **{
                f"minutes on {threads} threads": f"{60.0 * hours / threads:.2g}"
                for threads in THREADS
            },
        }


def main():
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=800_000)
    parser.add_argument("--features", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("paper-results"))
    options = parser.parse_args()
    found = pd.DataFrame(measure(options.rows, options.features, options.repeats))
    text = markdown(found.drop(columns="processor"))
    many = markdown(pd.DataFrame(of_many(found, options.rows, options.features)))
    print(f"{text}\n\n{many}")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "cluster.md").write_text(text + "\n")
    (options.out / "cluster_many.md").write_text(many + "\n")


if __name__ == "__main__":
    main()
