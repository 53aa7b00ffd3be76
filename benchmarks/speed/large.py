"""``python -m benchmarks.speed.large --folder DIR``: rows that do not fit into memory.

Makes a file of seeded float16 rows once (10 million of 384 features are 7.7 GB), caps the memory
that this process may allocate at 2 GB, and fits heads on the mapped file. Seconds are set against
those of one bare pass over the file, of a sum of its rows.
"""

import argparse
import resource
import time
from pathlib import Path

import numpy as np
import pandas as pd

from sklearn_balldp import BallDPLogisticRegression, GradientPerturbation

from ..study import markdown
from .jobs import heads

CLASSES, DELTA = 10, 1e-8
STEPS = 30


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


def main(argv=None):
    """Make the file, cap the memory, and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.large", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--features", type=int, default=384)
    parser.add_argument("--memory", type=float, default=2.0, help="gibibytes to allocate")
    parser.add_argument("--out", type=Path, default=Path("speed-results"))
    options = parser.parse_args(argv)
    path = options.folder / f"rows_{options.rows}_{options.features}.npy"
    if not path.exists():
        make(path, options.rows, options.features)
    cap = int(options.memory * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (cap, cap))
    X, y = np.load(path, mmap_mode="r"), labels(options.rows)
    jobs, found, alone = heads(STEPS, delta=DELTA), [], seconds_of(lambda: bare(X))
    mechanism = GradientPerturbation(n_steps=STEPS)
    jobs[f"logistic regression, {STEPS} steps from sums"] = BallDPLogisticRegression(
        delta=DELTA, radius=0.5, mechanism=mechanism
    )
    del jobs["noisy steps"]
    for name, head in jobs.items():
        seconds = seconds_of(lambda head=head: head.fit(X, y))
        found.append(
            {
                "job": f"{name}, {options.rows} x {options.features} float16",
                "seconds": f"{seconds:.0f}",
                "one bare pass": f"{alone:.0f}",
                "ratio": f"{seconds / alone:.1f}",
                "accuracy": f"{head.score(X[-100_000:], y[-100_000:]):.3f}",
            }
        )
        print(found[-1], flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    rows = f"rows: {X.nbytes / 2**30:.1f} GiB"
    text = markdown(pd.DataFrame(found))
    text += f"\n\nMemory that could be allocated: {options.memory:g} GiB; {rows}"
    print(text, f"(resident with mapped pages: {peak:.1f} GiB)")
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "large.md").write_text(text + ".\n")


if __name__ == "__main__":
    main()
