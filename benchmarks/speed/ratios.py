"""Every figure of speed, as a ratio measured in one run."""

import platform
from pathlib import Path

import numpy as np
import pandas as pd

from ..study import Study, made, markdown, show
from .jobs import DEFAULT, TOPICS


def processor():
    """Name of the processor, where the system tells it."""
    info = Path("/proc/cpuinfo")
    names = info.read_text().splitlines() if info.exists() else []
    found = [line.split(":")[1].strip() for line in names if line.startswith("model name")]
    return f"{len(found)} cores of {found[0]}" if found else platform.processor() or "unknown"


def tables(cells):
    """Ratios in words (seconds of both, the range over rounds, the ratio asked for); and memory."""
    asked = cells["asked"].map(lambda value: "" if np.isnan(value) else f"at most {value:g}")
    shown = cells[["job", "against"]].assign(asked=asked)
    for name in ("seconds", "their_seconds"):
        shown[name.replace("_", " ")] = cells[name].map("{:.3g}".format)
    ratios = cells[["ratio", "least", "most"]].itertuples(index=False)
    shown["ratio"] = [f"{own:.3g} ({low:.2g} to {high:.2g})" for own, low, high in ratios]
    shown["peak memory over the rows"] = cells["share"].map("{:.1%}".format)
    timed = ["job", "seconds", "against", "their seconds", "ratio", "asked"]
    used = ["job", "peak memory over the rows", "asked"]
    parts = shown.loc[cells["ratio"].notna(), timed], shown.loc[cells["share"].notna(), used]
    return "\n\n".join(markdown(part) for part in parts if len(part))


TIMES = "\N{MULTIPLICATION SIGN}"


def short(cells):
    """Default fits beside scikit-learn's, for a reader in a hurry."""
    found = cells[cells["job"].str.startswith(f"{DEFAULT} (")]
    own = found["job"].str.extract(r"\((?P<clock>\w+)\), (?P<size>[\d, x]+) float32, (?P<k>\d+)")
    wide = found.join(own).pivot(index=["size", "k"], columns="clock")
    wall = "perf_counter"
    return pd.DataFrame(
        [
            {
                "default fit": f"{size.replace(' x ', TIMES)}, {k} classes",
                "ours": f"{row['seconds', wall]:.2g}",
                "`LogisticRegression`": f"{row['their_seconds', wall]:.2g}",
            }
            for size, k in dict.fromkeys(zip(own["size"], own["k"], strict=True))
            for row in [wide.loc[size, k]]
        ]
    )


def measure(run, topic):
    """Rows of a topic: its ratios, and the memory it takes."""
    return list(TOPICS[topic](run.peers))


CELLS = Study(
    "speed.csv",
    ("topic",),
    measure,
    lambda run: [(topic,) for topic in TOPICS],
    {"ratio": 2.0, "share": 1.3},
    alone=True,
)
STUDIES = (CELLS,)


def report(out):
    """A page of ratios, of which the table of default fits is kept."""
    cells = CELLS.read(out)
    show(short(cells), out, "speed_short", cells)
    text = (
        f"Measured on {processor()}, Python {platform.python_version()}. Ratio: our seconds over "
        "theirs, medians of jobs timed in turn; in brackets its range over the rounds.\n\n"
    )
    print(f"\n{text}{tables(cells)}\n\n{made(cells)}")
