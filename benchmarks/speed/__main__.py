"""``python -m benchmarks.speed``: every figure of speed, as a ratio measured in one run."""

import argparse
import platform
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm import tqdm

from ..paper.comparators import add_option
from ..study import markdown
from .jobs import TOPICS

COLUMNS = ["topic", "job", "seconds", "against", "their_seconds", "ratio", "least", "most", "asked"]


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


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("--only", choices=TOPICS, nargs="+", default=list(TOPICS))
    parser.add_argument("--out", type=Path, default=Path("speed-results"))
    add_option(parser)
    run = parser.parse_args(argv)
    run.out.mkdir(parents=True, exist_ok=True)
    path = run.out / "speed.csv"
    cells = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=[*COLUMNS, "share"])
    for topic in tqdm(run.only, unit="topic"):
        rows = []
        for item in TOPICS[topic](run.comparators):
            rows.append({"topic": topic, **item})
            tqdm.write(str(item))
        # A topic's rows are replaced together; others stay as they were measured.
        others = cells[cells["topic"] != topic].to_dict("records")
        cells = pd.DataFrame([*others, *rows], columns=cells.columns)
        cells["asked"] = cells["asked"].astype(float)
        cells.to_csv(path, index=False)
    order = {topic: place for place, topic in enumerate(TOPICS)}
    cells = cells.sort_values("topic", key=lambda topics: topics.map(order), kind="stable")
    text = (
        f"Measured on {processor()}, Python {platform.python_version()}. Ratio: our seconds over "
        "theirs, medians of jobs timed in turn; in brackets its range over the rounds.\n\n"
    )
    (run.out / "speed.md").write_text(text + tables(cells) + "\n")
    print(f"\n{text}{tables(cells)}")


if __name__ == "__main__":
    main()
