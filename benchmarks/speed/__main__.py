"""``python -m benchmarks.speed``: every figure of speed, as a ratio measured in one run."""

import argparse
import importlib
import math
import platform
from pathlib import Path

import pandas as pd
from tqdm import tqdm

from ..study import markdown
from .timing import Memory, Row

TOPICS = ("ridge", "statistics", "convex", "gradient", "audit", "radius", "predict", "rows")


def processor():
    """Name of the processor, where the system tells it."""
    info = Path("/proc/cpuinfo")
    names = info.read_text().splitlines() if info.exists() else []
    found = [line.split(":")[1].strip() for line in names if line.startswith("model name")]
    return f"{len(found)} cores of {found[0]}" if found else platform.processor() or "unknown"


def times_table(found):
    """Ratios in words: seconds of both, the range over rounds, and the ratio asked for."""
    rows = []
    for _, item in found[found["ratio"].notna()].iterrows():
        asked = "" if math.isnan(item["asked"]) else f"at most {item['asked']:g}"
        rows.append(
            {
                "job": item["job"],
                "seconds": f"{item['seconds']:.3g}",
                "against": item["against"],
                "their seconds": f"{item['their_seconds']:.3g}",
                "ratio": f"{item['ratio']:.3g} ({item['least']:.2g} to {item['most']:.2g})",
                "asked": asked,
            }
        )
    return pd.DataFrame(rows)


def memory_table(found):
    """Peak memory of jobs, in words."""
    rows = []
    for _, item in found[found["share"].notna()].iterrows():
        asked = "" if math.isnan(item["asked"]) else f"at most {item['asked']:.0%}"
        rows.append(
            {
                "job": item["job"],
                "peak memory over the rows": f"{item['share']:.1%}",
                "asked": asked,
            }
        )
    return pd.DataFrame(rows)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("--only", choices=TOPICS, nargs="+", default=list(TOPICS))
    parser.add_argument("--out", type=Path, default=Path("paper-results"))
    parser.add_argument(
        "--comparators",
        metavar="PYTHON",
        help="time Opacus too, with the Python of its own environment",
    )
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "speed.csv"
    found = pd.DataFrame(columns=list(dict.fromkeys(Row._fields + Memory._fields)))
    if path.exists():
        found = pd.read_csv(path)
    for topic in tqdm(options.only, unit="topic"):
        measure = importlib.import_module(f"{__package__}.{topic}").measure
        rows = []
        for item in measure(options.comparators):
            rows.append(item._asdict())
            tqdm.write(str(tuple(item)))
        # A topic's rows are replaced together; others stay as they were measured.
        kept = found[found["topic"] != topic]
        found = pd.DataFrame([*kept.to_dict("records"), *rows], columns=found.columns)
        found.to_csv(path, index=False)
    order = {topic: place for place, topic in enumerate(TOPICS)}
    found = found.sort_values("topic", key=lambda topics: topics.map(order), kind="stable")
    tables = [table for table in (times_table(found), memory_table(found)) if not table.empty]
    text = (
        f"Measured on {processor()}, Python {platform.python_version()}. Ratio: our seconds over "
        "theirs, medians of jobs timed in turn; in brackets its range over the rounds.\n\n"
        + "\n\n".join(markdown(table) for table in tables)
    )
    (options.out / "speed.md").write_text(text + "\n")
    print(f"\n{text}")


if __name__ == "__main__":
    main()
