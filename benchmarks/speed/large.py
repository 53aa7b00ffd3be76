"""Rows that do not fit into memory.

Makes a file of seeded float16 rows, caps the memory that a process may allocate below its size, and
fits heads on the mapped file. Seconds are set against those of one bare pass over the file, of a
sum of its rows.
"""

import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pandas as pd

from sklearn_balldp import BallDPLogisticRegression, GradientPerturbation

from ..study import Study, show
from .jobs import heads

CLASSES, DELTA = 10, 1e-8
STEPS = 30
#: Rows, features, and the gibibytes that may be allocated.
SIZE = (2_000_000, 384, 0.9)


def make(path, n, d):
    """Rows of norm about 1 around a mean for each class."""
    rng, y = np.random.default_rng(0), labels(n)
    means = 0.4 * rng.standard_normal((CLASSES, d), dtype=np.float32) / np.sqrt(d)
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(n, d))
    for start in range(0, n, 100_000):
        part = y[start : start + 100_000]
        rows = rng.standard_normal((len(part), d), dtype=np.float32) * (0.9 / np.sqrt(d))
        file[start : start + 100_000] = rows + means[part]
    file.flush()


def labels(n):
    """Public labels of so many records."""
    return np.random.default_rng(1).integers(0, CLASSES, n)


def bare(X):
    """One pass: the sum of all rows, in single precision by blocks."""
    blocks = (X[start : start + 8192] for start in range(0, len(X), 8192))
    return sum(np.add.reduce(block, axis=0, dtype=np.float32) for block in blocks)


def seconds_of(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(run, records, features, gibibytes):
    """A row for each head."""
    spawned = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    with tempfile.TemporaryDirectory() as folder, spawned as pool:
        path = f"{folder}/rows.npy"
        make(path, records, features)
        return pool.submit(fitted, path, int(gibibytes * 2**30)).result()


def fitted(path, cap):
    """Fits of a process whose memory is capped."""
    resource.setrlimit(resource.RLIMIT_DATA, (cap, cap))
    X = np.load(path, mmap_mode="r")
    y, found, alone = labels(len(X)), [], seconds_of(lambda: bare(X))
    jobs = heads(STEPS, delta=DELTA)
    mechanism = GradientPerturbation(n_steps=STEPS)
    jobs[f"logistic regression, {STEPS} steps from sums"] = BallDPLogisticRegression(
        delta=DELTA, radius=0.5, mechanism=mechanism
    )
    del jobs["noisy steps"]
    for name, head in jobs.items():
        seconds = seconds_of(lambda head=head: head.fit(X, y))
        score = head.score(X[-100_000:], y[-100_000:])
        found.append({"job": name, "seconds": seconds, "pass": alone, "accuracy": score})
    return found


CELLS = Study(
    "large.csv",
    ("records", "features", "gibibytes"),
    measure,
    lambda run: [SIZE],
    {},  # too long for a sample
    alone=True,
)
STUDIES = (CELLS,)


def report(out):
    cells = CELLS.read(out)
    size = cells["records"].astype(str) + " x " + cells["features"].astype(str)
    table = pd.DataFrame(
        {
            "job": cells["job"] + ", " + size + " float16",
            "seconds": cells["seconds"].map("{:.0f}".format),
            "one bare pass": cells["pass"].map("{:.0f}".format),
            "ratio": (cells["seconds"] / cells["pass"]).map("{:.1f}".format),
            "accuracy": cells["accuracy"].map("{:.3f}".format),
        }
    )
    n, d, memory = SIZE
    more = f"Memory that could be allocated: {memory:g} GiB; rows: {2 * n * d / 2**30:.1f} GiB. "
    show(table, out, "large", cells, more)
