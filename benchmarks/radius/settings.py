"""``python -m benchmarks.radius.settings --data DIR``: how much the constants of a descent matter.

The constants of the default settings that matter to softmax are halved and doubled, one at a time.
Three cells a dataset, five releases a cell, at most 20000 records. The table has the change in
points, and what would be lost on a dataset if the settings were chosen on the paper's others.
"""

import argparse
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm import tqdm

from benchmarks.paper.tables import markdown
from sklearn_balldp import BallDPLogisticRegression
from sklearn_balldp.heads import coordinates, descent, descent_settings

from .__main__ import DATASETS, DELTA, rows_of

CELLS = ((0.3, 0.5), ("any", 0.5), (0.1, 2.0))
MOST_ROWS, MOST_TEST_ROWS, RELEASES = 20_000, 5_000, 5
CONSTANTS = {
    "LEAST_WORTH": (0.15, 0.6),
    "EVEN_NOISE": (0.375, 1.5),
    "FEW_USUAL": ((0.1, 0.45), (0.4, 0.45)),
    "FEW_PROTECTED": ((0.015, 0.75), (0.06, 0.75)),
    "HALF_MEANS_NOISE": (0.05, 0.2),
    "SOME": (0.9, 3.6),
    "SUMS_POWER": (0.1, 0.4),
    "USUAL_AIMS": ((0.1, 0.25, 0.75), (0.4, 1.0, 3.0)),
    "NEAR_POWER": ({"softmax": 0.15}, {"softmax": 0.6}),
    "CLIPS": ((0.15, 0.05), (0.6, 0.2)),
    "WHITENING": (0.125, 0.5),
    "CONSTANT": (0.075, 0.3),
    "FEWER_THAN_SUMS_NEED": (1.2, 4.8),
}
#: Where they are, if not among the settings of a descent.
MODULES = {"WHITENING": coordinates, "CONSTANT": descent}
DEFAULTS = "defaults"


def variants():
    """Names of the settings, and what they change."""
    yield DEFAULTS, {}
    for name, values in CONSTANTS.items():
        for factor, value in zip(("halved", "doubled"), values, strict=True):
            yield f"{name} {factor}", {name: value}


def module_of(constant):
    return MODULES.get(constant, descent_settings)


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
    usual = {name: getattr(module_of(name), name) for name in CONSTANTS}
    rows = []
    for name in names:
        data = subset(folder, name)
        for variant, changed in tqdm(list(variants()), desc=name, disable=None):
            try:
                for constant, value in {**usual, **changed}.items():
                    setattr(module_of(constant), constant, value)
                for radius, epsilon in CELLS:
                    mean = accuracy(data, name, radius, epsilon)
                    rows.append((name, variant, radius, epsilon, mean))
            finally:
                for constant, value in usual.items():
                    setattr(module_of(constant), constant, value)
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
