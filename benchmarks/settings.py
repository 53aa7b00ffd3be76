"""How much the numbers of a descent matter.

The numbers of the default settings that matter to softmax are halved and doubled, one at a time.
Three cells a dataset, three releases a cell, at most 10000 records. The table has the change in
points, and what would be lost on a dataset if the settings were chosen on the paper's others.
"""

import importlib
import itertools
import pkgutil
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from benchmarks.study import (
    DATASETS,
    DIGITS,
    Study,
    accuracies,
    mean_error,
    rows_of,
    seeds_of,
    show,
)
from sklearn_balldp import BallDPLogisticRegression, mechanisms
from sklearn_balldp.mechanisms import settings

PROMISES = ((0.3, 0.5), ("any", 0.5), (0.1, 2.0))
MAX_RECORDS, RELEASES = (10_000, 5_000), 3
#: Numbers that softmax meets. The table halves and doubles each; exponents and shares stay below 1.
CONSTANTS = (
    "STEPS_NEED",
    "SUMS_NEED",
    "MANY_CLASSES",
    "EXACT_SHARE",
    "NOISY_SHARE",
    "MEANS_NOISE",
    "LITTLE",
    "AIM",
    "CLIP",
    "STEPS",
    "LONG_STEPS",
    "MOMENTUM",
    "CONSTANT",
    "WHITENING",
    "LEAST_REACH",
    "MOST_MEANS_NOISE",
    "MOST_MOMENT_NOISE",
    "MOMENT_SHARE",
    "RIDGE",
    "TAIL",
)
#: In place of twice the number, where that is no share.
LARGEST = {"EXACT_SHARE": 0.95, "MOMENTUM": 0.9, "MOMENT_SHARE": 0.95}
DEFAULTS = "defaults"


def variants():
    """What each of the settings changes, by name."""
    found = {DEFAULTS: {}}
    for name in CONSTANTS:
        value = getattr(settings, name)
        kind = type(value)
        # A shorter reach than the default is refused: its rounding is not covered.
        if name != "LEAST_REACH":
            found[f"{name} halved"] = {name: kind(value / 2)}
        found[f"{name} doubled"] = {name: LARGEST.get(name, kind(2 * value))}
    return found


@contextmanager
def changed(numbers):
    """Other numbers, in the settings and in all modules that read them."""
    found = pkgutil.walk_packages(mechanisms.__path__, f"{mechanisms.__name__}.")
    modules = [importlib.import_module(info.name) for info in found]
    with ExitStack() as stack:
        for name, value in numbers.items():
            for module in modules:
                if hasattr(module, name):
                    stack.enter_context(patch.object(module, name, value))
        yield


def measure(run, dataset, variant, radius, epsilon):
    rows, seeds = (
        rows_of(run.data, dataset, *MAX_RECORDS),
        seeds_of(run, RELEASES, dataset, radius, epsilon),
    )
    head = BallDPLogisticRegression(domain="sphere", mechanism="gradient")
    with changed(variants()[variant]):
        return mean_error(accuracies(head, rows, radius, epsilon, seeds))


def cells_of(run):
    for name, variant, promise in itertools.product(
        run.have((*DATASETS, DIGITS)), variants(), PROMISES
    ):
        yield name, variant, *promise


CELLS = Study("settings.csv", ("dataset", "settings", "radius", "epsilon"), measure, cells_of)
STUDIES = (CELLS,)


def table(cells):
    """Change in points by dataset; last, what choosing on the paper's other datasets loses."""
    by = ["settings", "dataset"]
    means = 100 * cells.groupby(by, sort=False)["mean"].mean().unstack()
    change = (means - means.loc[DEFAULTS]).drop(DEFAULTS)
    shown = change.map("{:+.2f}".format)
    lost = {}
    # One dataset alone has no others.
    for name in means if means.shape[1] > 1 else ():
        others = [other for other in means if other != name]
        others = [other for other in others if other in DATASETS] or others
        chosen = means[others].mean(axis=1).idxmax()
        lost[name] = f"{means[name].max() - means.loc[chosen, name]:.2f}"
    if lost:
        shown.loc["lost if chosen on the other datasets"] = lost
    titles = {name: DATASETS.get(name, name) for name in shown}
    return shown.rename(columns=titles).rename_axis("settings").reset_index()


def report(out):
    cells = CELLS.read(out)
    show(table(cells), out, "settings", cells)
