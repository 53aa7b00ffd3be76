"""How near searches come to every gap over minimisers, on a fixed grid: ``--grid``."""

import itertools
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from ..study import markdown
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


def summary(rows: pd.DataFrame) -> str:
    """A row for each loss, number of classes and kind of pair, over alpha, radius and intercept."""
    keys = ["loss", "classes", "pair"]
    pair = np.where(rows["another label"], "another label", "one label")
    groups = rows.assign(pair=pair).groupby(keys, sort=False)
    ratios = groups["found over stated"]
    table = pd.DataFrame(
        {
            "cells": ratios.size(),
            "least": ratios.min().map("{:.3f}".format),
            "median": ratios.median().map("{:.3f}".format),
            "reach .85": ratios.apply(lambda own: f"{np.mean(own >= NEAR):.0%}"),
            "pairs tried": groups["pairs"].sum().map("{:,}".format),
        }
    )
    return markdown(table.reset_index()) + "\n"


def main(n_processes: int, folder: Path | None) -> int:
    """Search every cell, print those that no search comes near, and keep all as CSV."""
    grid = cells()
    with get_context("spawn").Pool(n_processes) as pool:
        found = list(tqdm(pool.imap(_searched, grid), total=len(grid), unit="cell"))
    rows = pd.DataFrame(
        {
            "loss": cell.named,
            "classes": cell.n_classes,
            "alpha": cell.alpha,
            "radius": cell.radius,
            "intercept": cell.constant,
            "another label": cell.label_change,
            "stated gap": cell.stated,
            "found over stated": ratio,
            "pairs": pairs,
        }
        for cell, ratio, pairs in found
    )
    ratios = rows["found over stated"]
    print(f"{np.mean(ratios >= NEAR):.1%} of {len(rows)} cells reach {NEAR}; the others:\n")
    print(markdown(rows[ratios < NEAR].round(4)))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        rows.to_csv(folder / "gaps.csv", index=False, float_format="%.4g")
        (folder / "gaps.md").write_text(summary(rows))
    return int(ratios.max() > 1.0 + 1e-9)
