"""``python -m benchmarks.falsify``: attack every bound for as long as you like.

Public settings are drawn at random, and neighbouring data sets evolve until a release tells them
apart as well as they can be. The command stops with exit status 1, and a script that finds the pair
again, as soon as one is further apart than the record of the release states. Exit status 2 says
that an attack itself failed.
"""

import argparse
import csv
import math
import os
import sys
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from queue import Empty

import numpy as np
from tqdm import tqdm

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


@dataclass
class Tally:
    """What one mechanism withstood."""

    settings: int = 0
    pairs: int = 0
    ratios: tuple[float, ...] = ()
    worst: Found | None = None

    @property
    def largest(self) -> float:
        return 0.0 if self.worst is None else self.worst.ratio

    def add(self, found: Found) -> None:
        self.settings += 1
        self.pairs += found.pairs
        self.ratios += (found.ratio,)
        if self.worst is None or found.ratio > self.largest:
            self.worst = found


def run(
    minutes: float, seed: int, n_processes: int, names: list[str], tries: int
) -> tuple[dict[str, Tally], str, list[str]]:
    """Attack until the time is over: what was found, a script if it refutes, and what failed."""
    tallies, failures = {name: Tally() for name in names}, list[str]()
    end, script, count = time.monotonic() + 60.0 * minutes, "", 0
    # Children that import anew hold nothing of this process; the attack on noise forks on its own.
    context = get_context("spawn")
    found, stop = context.Queue(), context.Event()
    children = [
        context.Process(target=work, args=(found, stop, names, seed, place, n_processes, tries))
        for place in range(n_processes)
    ]
    for child in children:
        child.start()
    try:
        with tqdm(total=round(60 * minutes), unit="s", desc="attacks", mininterval=1.0) as shown:
            while (left := end - time.monotonic()) > 0.0 and not script:
                shown.update(max(0, round(60 * minutes - left) - shown.n))
                try:
                    name, own, result = found.get(timeout=min(left, 1.0))
                except Empty:
                    if all(child.exitcode is not None for child in children):
                        raise RuntimeError("every process of the attacks ended.") from None
                    continue
                if isinstance(result, str):
                    # No refutation: told at the end, and the others go on.
                    failures.append(f"{name}, seed {own}: the attack failed.\n{result}")
                    continue
                count += 1
                tallies[name].add(result)
                if result.ratio > 1.0 + ROUNDING:
                    script = script_of(name, own, tries, result)
                worst = max(tally.largest for tally in tallies.values())
                shown.set_postfix(settings=count, worst=f"{worst:.6f}", refresh=False)
    finally:
        stop.set()
        last = time.monotonic() + 10.0
        for child in children:
            child.join(max(0.0, last - time.monotonic()))
            child.terminate()
    return tallies, script, failures


def script_of(name: str, seed: tuple[int, int], tries: int, found: Found) -> str:
    """A script that finds the pair again."""
    if found.genome:
        return SCRIPT.format(setting=found.setting, genome=list(found.genome))
    return SCRIPT_OF_SEED.format(name=name, seed=list(seed), tries=tries)


def table(tallies: dict[str, Tally], *, where: bool = True) -> str:
    """A row for each mechanism."""
    titles = ["attacked", "settings", "pairs", "largest move over the stated", "median"]
    titles += ["where"] if where else []
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    for name, tally in tallies.items():
        if tally.worst is None:
            continue
        # Digits that do not round up to one.
        largest = tally.worst.ratio
        if math.isfinite(largest):
            largest = math.floor(largest * 1e6) / 1e6
        median = f"{np.median(tally.ratios):.3f}"
        row = [name, f"{tally.settings:,}", f"{tally.pairs:,}", f"{largest:.6f}", median]
        row += [tally.worst.where.replace("|", "/")] if where else []
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def draw_strips(tallies: dict[str, Tally], path: Path) -> None:
    """One strip for each mechanism: how near the searches come to one."""
    import matplotlib.pyplot as plt

    own = {name: tally for name, tally in tallies.items() if tally.ratios}
    figure, axes = plt.subplots(figsize=(8, 0.42 * len(own) + 1.0), layout="constrained")
    for height, tally in enumerate(reversed(own.values())):
        ratios = np.array(tally.ratios)
        axes.plot(ratios, np.full(len(ratios), height), "|", color="#33658a", alpha=0.25, ms=13)
        axes.plot(ratios.max(), height, "o", color="#b23a48", ms=6)
    axes.axvline(1.0, color="black", lw=1)
    axes.set_yticks(range(len(own)), list(reversed(own)))
    axes.set_xlim(0.0, 1.04)
    axes.set_xlabel(
        "largest move that a search found, over the stated one (dot: the largest of all)"
    )
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def save(tallies: dict[str, Tally], folder: Path) -> None:
    """The table, its numbers as CSV, and the picture."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "falsify.md").write_text(table(tallies, where=False))
    with (folder / "falsify.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["attacked", "settings", "pairs", "largest", "median", "where"])
        for name, tally in tallies.items():
            if tally.worst is not None:
                values = tally.settings, tally.pairs, tally.worst.ratio, np.median(tally.ratios)
                writer.writerow([name, *values, tally.worst.where])
    draw_strips(tallies, folder / "falsify.png")


def main(argv: list[str] | None = None) -> int:
    """Attack, print a table, and fail if something was refuted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.falsify", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="time limit")
    parser.add_argument("--seed", type=int, default=0, help="of settings and searches")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="attacks whose name holds this text")
    parser.add_argument("--tries", type=int, default=150, help="pairs for each setting")
    parser.add_argument("--out", type=Path, help="folder for table, CSV and picture")
    parser.add_argument("--planted", action="store_true", help="attack faulty copies instead")
    parser.add_argument("--grid", action="store_true", help="search a fixed grid of gaps instead")
    options = parser.parse_args(argv)
    if options.grid:
        return grid.main(options.processes, options.out)
    if options.planted:
        return planted.main(options.minutes, options.processes, options.seed)
    names = [name for name in ATTACKS if options.only in name]
    if not names:
        parser.error(f"--only {options.only!r}: no attack's name holds it; there are {[*ATTACKS]}")
    given = options.minutes, options.seed, options.processes, names, options.tries
    tallies, script, failures = run(*given)
    print(table(tallies))
    refuted = [(name, t.worst) for name, t in tallies.items() if t.largest > 1.0 + ROUNDING]
    for name, worst in refuted:
        print(f"REFUTED {name}: {worst.ratio:.6f} times what is stated; {worst.where}")
    if options.out is not None:
        save(tallies, options.out)
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
