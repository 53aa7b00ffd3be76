"""Rows that do not fit into memory.

Makes a file of seeded float16 rows, caps the memory that a process may allocate below its size, and
fits heads on the mapped file, beside a bare pass that sums its rows. Rows a second count every
pass; the disk's speed is that of reading the file in order.
"""

import resource
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from sklearn_balldp import BallDPLogisticRegression, GradientPerturbation

from ..study import Study, show
from .jobs import heads
from .timing import disk_speed, rates, watched

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
    """One pass: the sum of all rows, by blocks."""
    blocks = (X[start : start + 8192] for start in range(0, len(X), 8192))
    return sum(np.add.reduce(block, axis=0, dtype=np.float64) for block in blocks)


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
    y, disk, options = labels(len(X)), disk_speed(path), {"delta": DELTA}
    steps = GradientPerturbation(n_steps=STEPS)
    own = heads(STEPS, **options)
    jobs = {
        "a bare pass": (lambda: bare(X), 1),
        "prototypes": (lambda: own["prototypes"].fit(X, y), 1),
        "discriminant": (lambda: own["discriminant"].fit(X, y), 1),
        f"logistic regression, {STEPS} steps from sums": (
            lambda: BallDPLogisticRegression(radius=0.5, mechanism=steps, **options).fit(X, y),
            STEPS + 1,
        ),
    }
    found = []
    for name, (job, passes) in jobs.items():
        seconds, memory = watched(job)
        found.append({"job": name, "seconds": seconds, "passes": passes, "memory": memory})
    return [{**own, "itemsize": X.itemsize, "disk": disk} for own in found]


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
    cells, (n, d, memory) = CELLS.read(out), SIZE
    more = f"{n:,} x {d} float16, {2 * n * d / 2**30:.1f} GiB, with {memory:g} GiB to allocate. "
    show(rates(cells, ["job"]), out, "large", cells, more)
