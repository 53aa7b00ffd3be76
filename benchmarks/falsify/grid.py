"""How near searches come to every gap over minimisers, on a fixed grid."""

import itertools

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from ..study import Study
from .gaps import Cell, gap_of_minimisers

ALPHAS, RADII = (1e-4, 1e-2, 0.1, 1.0), (0.01, 0.1, 0.3, 1.0, 2.0)
LOSSES = (
    ("logistic", 2),
    ("softmax", 3),
    ("softmax", 8),
    ("squared_hinge", 2),
    ("squared_hinge", 3),
)
#: A search that comes so near leaves little noise that no pair needs.
NEAR = 0.85


def cells(run):
    """Every loss, with and without an intercept, for one label and for two; B is 1."""
    for (loss, k), alpha, constant in itertools.product(LOSSES, ALPHAS, (False, True)):
        for radius in RADII:
            yield loss, k, alpha, radius, constant, False
        yield loss, k, alpha, 0.1, constant, True


def measure(run, loss, n_classes, alpha, radius, constant, label_change):
    """The largest gap that a search finds."""
    named = "softmax" if loss == "logistic" else loss
    cell = Cell(named, n_classes, alpha, radius, constant=constant, label_change=label_change)
    with threadpool_limits(1):
        found, pairs = gap_of_minimisers(cell, np.random.default_rng(run.seed), 4)
    return {"stated gap": cell.stated, "found over stated": found, "pairs": pairs}


KEY = ("loss", "classes", "alpha", "radius", "intercept", "another label")
# A search with other random starts may end a little further, or less far.
CELLS = Study("gaps.csv", KEY, measure, cells, {"stated gap": 1e-3, "found over stated": 0.1})


def summary(rows: pd.DataFrame) -> pd.DataFrame:
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
    return table.reset_index()
