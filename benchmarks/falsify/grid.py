"""How near searches come to every gap over minimisers, on a fixed grid: ``--grid``."""

import csv
import itertools
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from .gaps import Cell, gap_of_minimisers

ALPHAS, RADII = (1e-4, 1e-2, 0.1, 1.0), (0.01, 0.1, 0.3, 1.0, 2.0)
LOSSES = (
    ("softmax", 2),
    ("softmax", 3),
    ("softmax", 8),
    ("squared_hinge", 2),
    ("squared_hinge", 3),
)
#: A search that comes so near leaves little noise that no pair needs.
NEAR = 0.85


def cells() -> list[Cell]:
    """Every loss, with and without an intercept, for one label and for two; B is 1."""
    found = []
    for (loss, k), alpha, constant in itertools.product(LOSSES, ALPHAS, (False, True)):
        given = {"loss": loss, "n_classes": k, "alpha": alpha, "constant": constant}
        found += [Cell(radius=radius, **given) for radius in RADII]
        found.append(Cell(radius=0.1, label_change=True, **given))
    return found


def _searched(cell: Cell) -> tuple[Cell, float, int]:
    with threadpool_limits(1):
        found, pairs = gap_of_minimisers(cell, np.random.default_rng(0), 4)
    return cell, found, pairs


def summary(rows: list[dict[str, Any]]) -> str:
    """A row for each loss, number of classes and kind of pair, over alpha, radius and intercept."""
    lines = ["| loss | classes | pair | cells | least | median | reach .85 | pairs tried |"]
    lines.append("|" + "---|" * 8)
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        pair = "another label" if str(row["another label"]) == "True" else "one label"
        groups.setdefault((row["loss"], row["classes"], pair), []).append(row)
    for key, own in groups.items():
        ratios = np.array([float(row["found over stated"]) for row in own])
        shown = f"{ratios.min():.3f} | {np.median(ratios):.3f} | {np.mean(ratios >= NEAR):.0%}"
        pairs = sum(int(row["pairs"]) for row in own)
        lines.append(f"| {' | '.join(map(str, key))} | {len(own)} | {shown} | {pairs:,} |")
    return "\n".join(lines) + "\n"


def main(n_processes: int, folder: Path | None) -> int:
    """Search every cell, print those that no search comes near, and keep all as CSV."""
    grid = cells()
    with get_context("spawn").Pool(n_processes) as pool:
        found = list(tqdm(pool.imap(_searched, grid), total=len(grid), unit="cell"))
    rows = [
        {
            "loss": cell.named,
            "classes": cell.n_classes,
            "alpha": cell.alpha,
            "radius": cell.radius,
            "intercept": cell.constant,
            "another label": cell.label_change,
            "stated gap": f"{cell.stated:.4f}",
            "found over stated": f"{ratio:.3f}",
            "pairs": pairs,
        }
        for cell, ratio, pairs in found
    ]
    ratios = np.array([ratio for _, ratio, _ in found])
    print(f"{np.mean(ratios >= NEAR):.1%} of {len(rows)} cells reach {NEAR}; the others:\n")
    print("| " + " | ".join(rows[0]) + " |\n" + "|---" * len(rows[0]) + "|")
    for row, ratio in zip(rows, ratios, strict=True):
        if ratio < NEAR:
            print("| " + " | ".join(str(value) for value in row.values()) + " |")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "gaps.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        (folder / "gaps.md").write_text(summary(rows))
    return int(ratios.max() > 1.0 + 1e-9)
