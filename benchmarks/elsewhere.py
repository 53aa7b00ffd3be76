"""``python -m benchmarks.elsewhere --data DIR``: the heads on data that no default was chosen on.

DIR holds ``hwu64.npz`` (64 intents), ``snips.npz`` (7 intents), both embedded by all-MiniLM-L6-v2,
and ``letter.npz`` (26 letters, 16 columns). Writes ``elsewhere.csv`` and ``elsewhere.md``.
"""

import argparse
import itertools
import warnings
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression
from tqdm import tqdm

from benchmarks import noiseless
from benchmarks.paper.tables import markdown
from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
)
from sklearn_balldp.datasets import load_embeddings
from sklearn_balldp.publish.steps import step_of

NAMES = {"hwu64": "HWU64", "snips": "Snips", "letter": "Letter"}
HEADS = {
    "logistic": BallDPLogisticRegression(),
    "SVC": BallDPSquaredHingeSVC(),
    "discriminant": BallDPLinearDiscriminant(),
    "prototypes": BallDPRidgePrototype(),
}
EPSILONS, RADII, RELEASES = (0.5, 2.0), (0.3, 0.6, "any"), 10


def measure(rows, name, head, radius, epsilon):
    """Mean test accuracy over releases, and its standard error."""
    X, y, Xt, yt = rows
    params = {"epsilon": epsilon, "delta": 1e-6, "radius": None if radius == "any" else radius}
    if radius == "any":
        params |= {"protect_labels": True, "classes": np.unique(y)}
    scores = []
    for release in range(RELEASES):
        seed = zlib.crc32(f"{name} {radius} {epsilon} {release}".encode())
        with noiseless.shared(X):
            fitted = clone(HEADS[head]).set_params(**params, random_state=seed).fit(X, y)
        scores.append(fitted.score(Xt, yt))
    return np.mean(scores), np.std(scores, ddof=1) / np.sqrt(RELEASES)


def in_features(rows, name, epsilon, radius):
    """Logistic regression on random Fourier features, for a radius in the columns."""
    X, y, Xt, yt = rows
    step = RBFSampler(gamma=2.0, n_components=512, random_state=0).fit(X[:1])
    if radius != "any":
        radius *= step_of(step).stretch
    moved = step.transform(X), y, step.transform(Xt), yt
    return measure(moved, name, "logistic", radius, epsilon)


def table(cells):
    """A row for each dataset and promise, a column for each head."""
    rows = []
    for name, title in NAMES.items():
        own = cells[cells["dataset"] == name]
        for epsilon, radius in itertools.product(EPSILONS, map(str, RADII)):
            found = own[(own["epsilon"] == epsilon) & (own["radius"] == radius)].set_index("head")
            if len(found):
                hides = "standard DP" if radius == "any" else f"r = {radius}"
                row = {"data": title, "epsilon": f"{epsilon:g}", "hides": hides}
                row |= {
                    head: f"{found['mean'][head]:.3f} ± {1.96 * found['error'][head]:.3f}"
                    for head in HEADS
                }
                without = own[own["head"] == "no noise"]["mean"].iloc[0]
                rows.append(row | {"no noise": f"{without:.3f}"})
    return pd.DataFrame(rows)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elsewhere", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("elsewhere-results"))
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    found = []
    for name in NAMES:
        file = load_embeddings(options.data / f"{name}.npz")
        rows = [file[part] for part in ("X_train", "y_train", "X_test", "y_test")]
        plain = LogisticRegression(C=10.0, max_iter=300).fit(*rows[:2]).score(*rows[2:])
        found.append((name, "no noise", "none", 0.0, plain, 0.0))
        cells = list(itertools.product(HEADS, RADII, EPSILONS))
        for head, radius, epsilon in tqdm(cells, desc=name, disable=None):
            with warnings.catch_warnings():
                # Seeds, and classes with few records.
                warnings.simplefilter("ignore")
                own = measure(rows, name, head, radius, epsilon)
            found.append((name, head, radius, epsilon, *own))
    # The last rows are Letter's.
    for radius in (0.3, "any"):
        own = in_features(rows, name, 2.0, radius)
        found.append((name, "logistic, random features", radius, 2.0, *own))
    columns = ["dataset", "head", "radius", "epsilon", "mean", "error"]
    cells = pd.DataFrame(found, columns=columns).round(5)
    cells.to_csv(options.out / "elsewhere.csv", index=False)
    cells["radius"] = cells["radius"].astype(str)
    text = markdown(table(cells))
    (options.out / "elsewhere.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
