"""``python -m benchmarks.paper``: every number and figure of the paper that the data allow."""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from . import comparators, report, store
from .plan import TABLE_EPSILONS, TABLES
from .protocol import DATASETS


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper", description=__doc__)
    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        help=f"folder of NAME.npz, NAME one of {', '.join(DATASETS)}",
    )
    parser.add_argument("--datasets", choices=DATASETS, nargs="+", default=list(DATASETS))
    parser.add_argument("--only", choices=TABLES, nargs="+", default=list(TABLES))
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("paper-results"),
        help="results; what lies there is not measured again",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="base seed of all noise; tables show the lowest"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--quick", action="store_true", help="two releases a cell: try the command with it"
    )
    parser.add_argument(
        "--comparators",
        metavar="PYTHON",
        help="measure diffprivlib and Opacus too, with the Python of their own "
        "environment (comparators.py says what it holds)",
    )
    options = parser.parse_args(arguments)

    found = [name for name in options.datasets if (options.data / f"{name}.npz").exists()]
    if not found:
        names = ", ".join(f"{name}.npz" for name in options.datasets)
        raise SystemExit(f"--data {options.data} holds none of {names}.")
    options.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    cells = [
        cell
        for dataset in found
        for table in options.only
        for cell in TABLES[table](dataset, options.quick)
    ]
    n_cells, skipped = store.fill(
        cells, options.data, options.out, options.seed, options.jobs, options.quick
    )
    if n_cells:
        report.describe(options.out, time.perf_counter() - start, n_cells)
    if options.comparators:
        subprocess.run(
            [
                options.comparators,
                comparators.__file__,
                "--data",
                options.data,
                "--out",
                options.out / "comparators.csv",
                "--seed",
                str(options.seed),
                "--epsilons",
                *map(str, TABLE_EPSILONS),
                "--datasets",
                *found,
            ],
            check=True,
        )
    for cell, reason in skipped.items():
        print(f"skipped {cell}: {reason}", file=sys.stderr)
    if not store.seeds(options.out):
        raise SystemExit(f"none of {', '.join(options.only)} can be measured on {found}.")
    built = report.write(options.out, options.only)
    for name, table in built.items():
        print(f"\n{name}\n{table.to_string(index=False)}")
    print(
        f"\n{n_cells} cells measured in {time.perf_counter() - start:.0f} s; tables and figures "
        f"in {options.out}"
    )
    if options.quick:
        print("Claims are not judged: --quick draws too few releases.")
    elif not built["checks"].query("seed == @options.seed")["holds"].all():
        sys.exit("a check failed: see checks.md")


if __name__ == "__main__":
    main()
