"""``python -m benchmarks.speed.device``: rows in a PyTorch tensor against a NumPy array.

On a GPU where there is one; else the tensor is in this machine's memory, and the table says so.
Both compute in double precision. Seconds are wall-clock, with all cores of the host.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    GradientPerturbation,
)
from sklearn_balldp.rows import on_device

from ..paper.tables import markdown
from .timing import embeddings, interleaved

CLASSES = 10
HEADS = {
    "prototypes": BallDPRidgePrototype(delta=1e-7, radius=0.5),
    "discriminant": BallDPLinearDiscriminant(delta=1e-7, radius=0.1),
    "20 noisy steps": BallDPLogisticRegression(
        delta=1e-7, radius=0.5, mechanism=GradientPerturbation(n_steps=20, start="zero")
    ),
}


def measure(n, d, repeats):
    """Rows of the table: medians of fits that were timed in turn."""
    X, y = embeddings(n, d, CLASSES)
    X = X.astype(np.float64)
    tensor, place = torch.from_numpy(X), "the host (no GPU was there)"
    if torch.cuda.is_available():
        tensor, place = tensor.cuda(), torch.cuda.get_device_name()
    rows = on_device(tensor)
    for name, head in HEADS.items():
        jobs = {
            "array": lambda head=head: head.fit(X, y),
            "tensor": lambda head=head: head.fit(rows, y),
        }
        for job in jobs.values():
            # Kernels are loaded at their first call.
            job()
        times = {job: np.median(found) for job, found in interleaved(jobs, repeats).items()}
        yield {
            "fit": f"{name}, {n} x {d} float64, {CLASSES} classes",
            "tensor on": place,
            "seconds": f"{times['tensor']:.2f}",
            "seconds of an array": f"{times['array']:.2f}",
            "array / tensor": f"{times['array'] / times['tensor']:.2f}",
        }


def main():
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=384)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("paper-results"))
    options = parser.parse_args()
    text = markdown(pd.DataFrame(measure(options.rows, options.features, options.repeats)))
    print(text)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "device.md").write_text(text + "\n")


if __name__ == "__main__":
    main()
