"""``python -m benchmarks.radius.settings --data DIR``: how much the numbers of a descent matter.

The numbers of the default settings that matter to softmax are halved and doubled, one at a time.
Three cells a dataset, three releases a cell, at most 10000 records. The table has the change in
points, and what would be lost on a dataset if the settings were chosen on the paper's others.
"""

import argparse
import importlib
import pkgutil
import zlib
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
from tqdm import tqdm

from benchmarks.paper.tables import markdown
from sklearn_balldp import BallDPLogisticRegression, mechanisms
from sklearn_balldp.mechanisms import settings

from .__main__ import DATASETS, DELTA, rows_of

CELLS = ((0.3, 0.5), ("any", 0.5), (0.1, 2.0))
MOST_ROWS, MOST_TEST_ROWS, RELEASES = 10_000, 5_000, 3
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
    """Names of the settings, and what they change."""
    yield DEFAULTS, {}
    for name in CONSTANTS:
        value = getattr(settings, name)
        kind = type(value)
        # A shorter reach than the default is refused: its rounding is not covered.
        if name != "LEAST_REACH":
            yield f"{name} halved", {name: kind(value / 2)}
        yield f"{name} doubled", {name: LARGEST.get(name, kind(2 * value))}


@contextmanager
def changed(numbers):
    """Other numbers, in the settings and in the modules that read them."""
    with ExitStack() as stack:
        for info in pkgutil.iter_modules(mechanisms.__path__):
            module = importlib.import_module(f"{mechanisms.__name__}.{info.name}")
            here = {name: value for name, value in numbers.items() if hasattr(module, name)}
            stack.enter_context(patch.multiple(module, **here) if here else nullcontext())
        yield


def subset(folder, name):
    """Rows of a dataset, some of them where there are many."""
    X, y, Xt, yt = rows_of(folder, name)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    rows = [rng.permutation(len(a))[:most] for a, most in ((X, MOST_ROWS), (Xt, MOST_TEST_ROWS))]
    return X[rows[0]], y[rows[0]], Xt[rows[1]], yt[rows[1]]


def accuracy(data, name, radius, epsilon):
    """Mean accuracy of some releases."""
    X, y, Xt, yt = data
    params = {"epsilon": epsilon, "delta": DELTA, "radius": None if radius == "any" else radius}
    params["domain"] = "sphere"
    if radius == "any":
        params |= {"protect_labels": True, "classes": np.unique(y)}
    scores = []
    for release in range(RELEASES):
        seed = zlib.crc32(f"{name} {radius} {epsilon} {release}".encode())
        head = BallDPLogisticRegression(**params, mechanism="gradient", random_state=seed)
        scores.append(head.fit(X, y).score(Xt, yt))
    return np.mean(scores)


def measure(folder, names):
    """Accuracy of every variant in every cell."""
    rows = []
    for name in names:
        data = subset(folder, name)
        for variant, numbers in tqdm(list(variants()), desc=name, disable=None):
            with changed(numbers):
                for radius, epsilon in CELLS:
                    mean = accuracy(data, name, radius, epsilon)
                    rows.append((name, variant, radius, epsilon, mean))
    return pd.DataFrame(rows, columns=["dataset", "settings", "radius", "epsilon", "mean"])


def table(cells):
    """Change in points by dataset; last, what choosing on the paper's other datasets loses."""
    by = ["settings", "dataset"]
    means = 100 * cells.groupby(by, sort=False)["mean"].mean().unstack()
    change = (means - means.loc[DEFAULTS]).drop(DEFAULTS)
    shown = change.map("{:+.2f}".format)
    lost = {}
    for name in means:
        others = [other for other in means if other != name]
        others = [other for other in others if other in DATASETS] or others
        chosen = means[others].mean(axis=1).idxmax()
        lost[name] = f"{means[name].max() - means.loc[chosen, name]:.2f}"
    shown.loc["lost if chosen on the other datasets"] = lost
    titles = {name: DATASETS.get(name, name) for name in shown}
    return shown.rename(columns=titles).rename_axis("settings").reset_index()


def main(argv=None):
    """Measure and write ``settings.csv`` and ``settings.md``."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.radius.settings", description=__doc__
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("radius-results"))
    parser.add_argument("--datasets", nargs="+", choices=[*DATASETS, "digits"])
    options = parser.parse_args(argv)
    names = options.datasets
    if names is None:
        names = [name for name in DATASETS if (options.data / f"{name}.npz").exists()]
        names.append("digits")
    options.out.mkdir(parents=True, exist_ok=True)
    cells = measure(str(options.data), names)
    cells.to_csv(options.out / "settings.csv", index=False)
    (options.out / "settings.md").write_text(markdown(table(cells)))
    print(table(cells).to_string(index=False))


if __name__ == "__main__":
    main()
