"""``python -m benchmarks.paper``: every number and figure of the paper that the data allow."""

import sys
import time

from benchmarks.study import DATASETS, options, show

from . import comparators, later, report
from .cells import STUDIES, TABLE_EPSILONS, TABLES, cells_of


def main(argv=None):
    only, start = (*TABLES, "later"), time.perf_counter()
    run = options("paper", __doc__, argv, DATASETS, only=only, more=comparators.add_option)
    tables = [name for name in run.only if name in TABLES]

    def n_cells():
        return sum(len(study.read(run.out)) for study in STUDIES.values())

    before, cells = n_cells(), {name: [] for name in STUDIES}
    for dataset in run.datasets:
        for table in tables:
            study, own = cells_of(table, dataset, run.quick)
            cells[study] += own
    for name, study in STUDIES.items():
        study.fill(cells[name], run)
    measured, seconds = n_cells() - before, time.perf_counter() - start
    if measured:
        report.describe(run.out, seconds, measured)
    if run.comparators:
        given = "--data", run.data, "--out", run.out / "comparators.csv", "--seed", run.seed
        given += ("--epsilons", *TABLE_EPSILONS, "--datasets", *run.datasets)
        print(comparators.run_in(run.comparators, *given))
    if "later" in run.only:
        show(later.table(run.data, run.datasets), run.out, "later")
    if not report.seeds(run.out):
        raise SystemExit(f"none of {', '.join(run.only)} can be measured on {run.datasets}.")
    built = report.write(run.out, tables)
    for name, table in built.items():
        print(f"\n{name}\n{table.to_string(index=False)}")
    print(f"\n{measured} cells measured in {seconds:.0f} s; see {run.out}")
    if run.quick:
        print("Claims are not judged: --quick draws too few releases.")
    elif not built["checks.csv"].query("seed == @run.seed")["holds"].all():
        sys.exit("a check failed: see checks.csv")


if __name__ == "__main__":
    main()
