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

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    GradientPerturbation,
)

from .timing import embeddings

BASE = {"records": 200_000, "features": 384, "classes": 10, "steps": 20}
VALUES = {
    "records": (50_000, 100_000, 200_000, 400_000),
    "features": (96, 192, 384, 768),
    "classes": (2, 10, 50, 150),
    "steps": (5, 10, 20, 40),
}


def heads(steps):
    """Heads by the names of the lines."""
    descent = GradientPerturbation(n_steps=steps, start="zero")
    return {
        "prototypes": BallDPRidgePrototype(delta=1e-7, radius=0.5),
        "discriminant": BallDPLinearDiscriminant(delta=1e-7, radius=0.1),
        "noisy steps": BallDPLogisticRegression(delta=1e-7, radius=0.5, mechanism=descent),
    }


def measure():
    """Rows of the table: least seconds of two fits."""
    for name, values in tqdm(VALUES.items(), unit="number"):
        for value in values:
            job = {**BASE, name: value}
            X, y = embeddings(job["records"], job["features"], job["classes"])
            for line, head in heads(job["steps"]).items():
                if name == "steps" and line != "noisy steps":
                    continue
                seconds = []
                for _ in range(2):
                    start = time.process_time()
                    head.fit(X, y)
                    seconds.append(time.process_time() - start)
                yield {"number": name, "value": value, "head": line, "seconds": min(seconds)}


def draw(found, path):
    """One panel for each number, on logarithmic axes."""
    figure, axes = plt.subplots(1, 4, figsize=(12, 3.4), sharey=True, layout="constrained")
    for axis, (name, rows) in zip(axes, found.groupby("number", sort=False), strict=True):
        for colour, head in enumerate(heads(1)):
            own = rows[rows["head"] == head]
            axis.plot(own["value"], own["seconds"], "o-", color=f"C{colour}", label=head)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xticks(VALUES[name], [f"{value:,}" for value in VALUES[name]], fontsize=8)
        axis.minorticks_off()
        axis.set_xlabel(name)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds of one core")
    axes[0].legend(fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main():
    """Measure, write and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("paper-results"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    found = pd.DataFrame(measure())
    found.to_csv(options.out / "cost.csv", index=False)
    draw(found, options.out / "cost.png")
    print(found.to_string())


if __name__ == "__main__":
    main()
