"""What a fit costs by records, features, classes and steps.

One number changes at a time, from 200,000 records of 384 float32 features, 10 classes and 20 steps.
Seconds are those of one core.
"""

import time

import matplotlib.pyplot as plt

from ..study import Study, draw
from .jobs import heads
from .timing import embeddings, interleaved

BASE = {"records": 200_000, "features": 384, "classes": 10, "steps": 20}
VALUES = {
    "records": (50_000, 100_000, 200_000, 400_000),
    "features": (96, 192, 384, 768),
    "classes": (2, 10, 50, 150),
    "steps": (5, 10, 20, 40),
}


def measure(run, number, value):
    """Least seconds of two fits of every head."""
    job = {**BASE, number: value}
    X, y = embeddings(job["records"], job["features"], job["classes"])
    fits = {
        line: lambda head=head: head.fit(X, y)
        for line, head in heads(job["steps"], delta=1e-7).items()
        if number != "steps" or line == "noisy steps"
    }
    times = interleaved(fits, 2, time.process_time)
    return [{"head": line, "seconds": seconds.min()} for line, seconds in times.items()]


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


CELLS = Study(
    "cost.csv",
    ("number", "value"),
    measure,
    lambda run: [(number, value) for number, values in VALUES.items() for value in values],
    # Other machines are slower: only ratios are compared between them.
    {},
    alone=True,
)
STUDIES = (CELLS,)


def report(out):
    draw(figure(CELLS.read(out)), out / "cost.png", dpi=120)
