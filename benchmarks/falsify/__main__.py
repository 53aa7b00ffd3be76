"""``python -m benchmarks.falsify``: attack every bound for as long as you like.

Public settings are drawn at random, and neighbouring data sets evolve until a release tells them
apart as well as they can be. The command stops with exit status 1, and a script that finds the pair
again, as soon as one is further apart than the record of the release states. Exit status 2 says
that an attack itself failed.
"""

import argparse
import math
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from queue import Empty

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from tqdm import tqdm

from ..study import Study, draw, markdown, show
from . import grid, planted
from .attacks import ATTACKS, work
from .search import ROUNDING, Found

SCRIPT = '''"""A pair of neighbours that a release tells apart better than its record states."""

from numpy import array

from benchmarks.falsify.search import ratio
from benchmarks.falsify.settings import Setting

setting = Setting.from_json({setting!r})
genome = array({genome!r})
print("distance over the stated mu:", ratio(setting, genome))
'''
SCRIPT_OF_SEED = '''"""An attack that succeeds."""

import numpy

from benchmarks.falsify.attacks import ATTACKS

attack = ATTACKS[{name!r}]
print(attack(numpy.random.default_rng({seed}), {tries}))
'''
MOVE = "largest move over the stated"


def run(minutes, seed, n_processes, names, tries):
    """Attack until the time is over: pairs by attack, a script if one refutes, and failures."""
    found, failures, script = {name: [] for name in names}, [], ""
    end, total = time.monotonic() + 60.0 * minutes, round(60 * minutes)
    # Children that import anew hold nothing of this process; the attack on noise forks on its own.
    context = get_context("spawn")
    queue, stop = context.Queue(), context.Event()
    children = [
        context.Process(target=work, args=(queue, stop, names, seed, place, n_processes, tries))
        for place in range(n_processes)
    ]
    for child in children:
        child.start()
    try:
        with tqdm(total=total, unit="s", desc="attacks", mininterval=1.0) as shown:
            while (left := end - time.monotonic()) > 0.0 and not script:
                shown.update(max(0, round(total - left) - shown.n))
                try:
                    name, own, result = queue.get(timeout=min(left, 1.0))
                except Empty:
                    if all(child.exitcode is not None for child in children):
                        raise RuntimeError("every process of the attacks ended.") from None
                    continue
                if isinstance(result, str):
                    # No refutation: told at the end, and the others go on.
                    failures.append(f"{name}, seed {own}: the attack failed.\n{result}")
                    continue
                found[name].append(result)
                if result.ratio > 1.0 + ROUNDING:
                    script = script_of(name, own, tries, result)
                ratios = [pair.ratio for pairs in found.values() for pair in pairs]
                worst = f"{max(ratios):.6f}"
                shown.set_postfix(settings=len(ratios), worst=worst, refresh=False)
    finally:
        stop.set()
        last = time.monotonic() + 10.0
        for child in children:
            child.join(max(0.0, last - time.monotonic()))
            child.terminate()
    return found, script, failures


def script_of(name: str, seed: tuple[int, int], tries: int, found: Found) -> str:
    """A script that finds the pair again."""
    if found.genome:
        return SCRIPT.format(setting=found.setting, genome=list(found.genome))
    return SCRIPT_OF_SEED.format(name=name, seed=list(seed), tries=tries)


def table(found):
    """A row for each attack that found pairs."""
    rows = []
    for name, pairs in found.items():
        if pairs:
            worst, ratios = max(pairs, key=lambda own: own.ratio), [own.ratio for own in pairs]
            # Digits that do not round up to one.
            largest = math.floor(worst.ratio * 1e6) / 1e6 if worst.ratio < math.inf else math.inf
            row = {"attacked": name, "settings": len(pairs)}
            row |= {"pairs": sum(own.pairs for own in pairs), MOVE: largest}
            row |= {"median": np.median(ratios), "where": worst.where.replace("|", "/")}
            rows.append(row)
    return pd.DataFrame(rows)


def strips(found):
    """One strip for each attack: how near the searches come to one."""
    found = {name: [own.ratio for own in pairs] for name, pairs in found.items() if pairs}
    size = (8, 0.42 * len(found) + 1.0)
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    for height, ratios in enumerate(reversed(found.values())):
        axes.plot(ratios, np.full(len(ratios), height), "|", color="#33658a", alpha=0.25, ms=13)
        axes.plot(max(ratios), height, "o", color="#b23a48", ms=6)
    axes.axvline(1.0, color="black", lw=1)
    axes.set_yticks(range(len(found)), list(reversed(found)))
    axes.set_xlim(0.0, 1.04)
    axes.set_xlabel("largest move found, over the stated one (dot: of all)")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


#: Minutes of the runs whose table is kept, and their seeds.
MINUTES, SEEDS = 30.0, (0, 1)


def measure(run_, minutes):
    """Rows of the table, of runs side by side; the picture of all searches is drawn on the way."""
    minutes = 0.5 if run_.most else minutes
    processes = max(1, (os.cpu_count() or 1) // len(SEEDS))
    with ThreadPoolExecutor(len(SEEDS)) as threads:
        runs = threads.map(
            lambda seed: run(minutes, run_.seed + seed, processes, list(ATTACKS), 150), SEEDS
        )
    found = {}
    for own, script, failures in runs:
        if script:
            print(script)  # what finds the pair again, before another run's failure hides it
        if failures:
            raise RuntimeError("\n".join(failures))
        for name, pairs in own.items():
            found[name] = found.get(name, []) + pairs
    if not run_.most:
        draw(strips(found), run_.out / "falsify.png", dpi=150)
    return table(found).drop(columns="where").to_dict("records")


def of_both(rows, anew):
    """No search may get further than is stated, whatever a longer one found."""
    for row in anew:
        move, named = float(row[MOVE]), {"cell": f"falsify.csv: {row['attacked']}", "number": MOVE}
        yield {**named, "file": 1.0, "anew": move, "away": move, "allowed": 1.0 + ROUNDING}


CELLS = Study("falsify.csv", ("minutes",), measure, lambda run: [(MINUTES,)], of_both, alone=True)
STUDIES = CELLS, grid.CELLS


def report(out):
    cells, gaps = CELLS.read(out), grid.CELLS.read(out)
    shown = cells[["attacked", "settings", "pairs", MOVE, "median"]].copy()
    shown[["settings", "pairs"]] = shown[["settings", "pairs"]].map("{:,}".format)
    shown[MOVE] = shown[MOVE].map("{:.6f}".format)
    show(shown.assign(median=shown["median"].map("{:.3f}".format)), out, "falsify", cells)
    show(grid.summary(gaps), out, "gaps", gaps)
    return [f"{name} refuted" for name in cells["attacked"][cells[MOVE] > 1.0 + ROUNDING]]


def main(argv: list[str] | None = None) -> int:
    """Attack, print a table, and fail if something was refuted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.falsify", description=__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=2.0, help="time limit")
    add("--seed", type=int, default=0, help="of settings and searches")
    add("--processes", type=int, default=os.cpu_count() or 1)
    add("--only", default="", help="attacks whose name holds this text")
    add("--tries", type=int, default=150, help="pairs for each setting")
    add("--planted", action="store_true", help="attack faulty copies instead")
    options = parser.parse_args(argv)
    if options.planted:
        return planted.main(options.minutes, options.processes, options.seed)
    names = [name for name in ATTACKS if options.only in name]
    if not names:
        parser.error(f"--only {options.only!r}: no attack's name holds it; there are {[*ATTACKS]}")
    limits = options.minutes, options.seed, options.processes
    found, script, failures = run(*limits, names, options.tries)
    print(markdown(table(found)))
    for name, pairs in found.items():
        for own in pairs:
            if own.ratio > 1.0 + ROUNDING:
                print(f"REFUTED {name}: {own.ratio:.6f} times what is stated; {own.where}")
    if script:
        path = Path("refuted.py")
        path.write_text(script)
        print(f"A pair refutes the package; `python {path}` finds it again.")
        return 1
    print("Nothing was refuted.")
    for failure in failures:
        print(failure, file=sys.stderr)
    return 2 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
