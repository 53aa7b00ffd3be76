"""Tables, figures and checks of a results folder."""

from benchmarks.study import draw, show

from . import checks, figures, later, tables
from .cells import STUDIES as CELLS
from .errata import counts

STUDIES = (*CELLS.values(), later.CELLS)


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
