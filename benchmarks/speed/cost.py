"""``python -m benchmarks.speed.cost``: what a fit costs by records, features, classes and steps.

One number changes at a time, from 200,000 records of 384 float32 features, 10 classes and 20 steps.
Seconds are those of one core.
"""

import argparse
import time
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from tqdm import tqdm

from ..study import draw
from .jobs import heads
from .timing import embeddings, interleaved

BASE = {"records": 200_000, "features": 384, "classes": 10, "steps": 20}
VALUES = {
    "records": (50_000, 100_000, 200_000, 400_000),
    "features": (96, 192, 384, 768),
    "classes": (2, 10, 50, 150),
    "steps": (5, 10, 20, 40),
}


def measure():
    """Rows of the table: least seconds of two fits."""
    for name, values in tqdm(VALUES.items(), unit="number"):
        for value in values:
            job = {**BASE, name: value}
            X, y = embeddings(job["records"], job["features"], job["classes"])
            fits = {
                line: lambda head=head: head.fit(X, y)  # noqa: B023
                for line, head in heads(job["steps"], delta=1e-7).items()
                if name != "steps" or line == "noisy steps"
            }
            for line, seconds in interleaved(fits, 2, time.process_time).items():
                yield {"number": name, "value": value, "head": line, "seconds": seconds.min()}


def figure(cells):
    """One panel for each number, on logarithmic axes."""
    figure, axes = plt.subplots(1, 4, figsize=(12, 3.4), sharey=True, layout="constrained")
    for axis, (name, rows) in zip(axes, cells.groupby("number", sort=False), strict=True):
        for head, own in rows.groupby("head", sort=False):
            colour = f"C{[*heads(1)].index(head)}"
            axis.plot(own["value"], own["seconds"], "o-", color=colour, label=head)
        axis.set(xscale="log", yscale="log", xlabel=name)
        axis.set_xticks(VALUES[name], [f"{value:,}" for value in VALUES[name]], fontsize=8)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds of one core")
    axes[0].legend(fontsize=8)
    return figure


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.cost", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("speed-results"))
    out = parser.parse_args(argv).out
    out.mkdir(parents=True, exist_ok=True)
    cells = pd.DataFrame(measure())
    cells.to_csv(out / "cost.csv", index=False)
    draw(figure(cells), out / "cost.png", dpi=120)
    print(cells.to_string())


if __name__ == "__main__":
    main()
