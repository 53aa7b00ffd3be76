"""Tables, figures and checks of a results folder; and the part of a page that is made of them.

python -m benchmarks.paper.report    # benchmarks/results, and its part of docs/reproduction.md
"""

import argparse
from pathlib import Path

from benchmarks.study import RESULTS, ROOT, draw, show

from . import checks, figures, later, tables
from .cells import STUDIES as CELLS
from .errata import counts, errata

STUDIES = (*CELLS.values(), later.CELLS)
PAGE = ROOT / "docs" / "reproduction.md"
#: Around what is wrong in the paper, on the page of results.
BEGIN = "<!-- Filled by python -m benchmarks.paper.report: edit that, not this. -->"
END = "<!-- Up to here. -->"


def build(results):
    """Every table whose cells were measured."""
    built = {
        "table1.csv": tables.table1(results),
        "misses.md": checks.misses(results),
        "worth.csv": tables.worth(results),
        "convex.csv": tables.convex(results),
        "identification.csv": tables.identification(results),
        "calibration.csv": tables.calibration(),
        "counts.md": counts(results),
        "later.md": later.table(results.later),
        "checks.csv": checks.check(results),
    }
    return {name: table for name, table in built.items() if not table.empty}


def report(folder):
    """Files of every table and figure; what claims do not hold."""
    results = tables.Results.read(folder)
    built = build(results)
    for name, table in built.items():
        stem, _, kind = name.partition(".")
        if kind == "md":
            show(table, folder, stem, results.later if stem == "later" else results.cells)
        else:
            table.to_csv(folder / name, index=False)
    for stem, figure in figures.FIGURES.items():
        draw(figure(results), folder / f"{stem}.png", dpi=110)
    found = built["checks.csv"]
    return [f"{claim} (see checks.csv)" for claim in found["claim"][~found["holds"].astype(bool)]]


def filled(text):
    """A page whose part between the two marks says what is wrong in the paper."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{errata()}\n\n{END}{after}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    report(options.results)
    PAGE.write_text(filled(PAGE.read_text()))


if __name__ == "__main__":
    main()
