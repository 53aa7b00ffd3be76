"""``python -m benchmarks.anchors --data DIR``: standard differential privacy beside known figures.

CIFAR-10 and MNIST at delta 1e-5, every record's replacement and label hidden: this package's heads
with their defaults, and other private linear classifiers on the same rows. Their settings are
chosen on a fifth of the training rows, held out, at no charge. Cells are appended to
``anchors_cells.csv`` as they are measured, and a run goes on where it was interrupted.
"""

import argparse
import itertools
import warnings
import zlib
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from tqdm import tqdm

from benchmarks.paper.comparators import choose, grid
from benchmarks.paper.protocol import DATASETS, load, mean_interval
from benchmarks.paper.tables import interval, markdown
from sklearn_balldp import BallDPLinearDiscriminant, BallDPLogisticRegression

from . import mechanisms

DELTA = 1e-5
EPSILONS = (1.0, 2.0, 3.0, 8.0)
SHOWN = ("cifar10", "mnist")
RELEASES = 3
OURS = {
    "logistic": BallDPLogisticRegression(protect_labels=True),
    "discriminant": BallDPLinearDiscriminant(domain="sphere", protect_labels=True),
}
RIDGES = (0.1, 0.5, 2.0, 8.0)
#: Settings that are tried again, and how often.
FINALISTS, FINALS = 2, 2
OTHERS = {
    "least squares": (
        mechanisms.gaussian(mechanisms.least_squares),
        grid(share=(0.2, 0.4, 0.6), ridge=RIDGES),
    ),
    "two Newton steps": (
        mechanisms.gaussian(mechanisms.newton),
        grid(first=(0.6, 0.9), share=(0.5,), ridge=RIDGES[:3], clip=(0.3, mechanisms.GRADIENT)),
    ),
    "DP-FC": (
        mechanisms.gaussian(mechanisms.feature_covariance),
        grid(share=(0.3,), ridge=RIDGES[:3], steps=(5, 15), rate=(0.3, 1.0), clip=(0.3, 1.0)),
    ),
    "objective perturbation": (
        mechanisms.objective,
        grid(ridge=(10.0, 30.0, 100.0, 300.0)),
    ),
}
CEILING = "no noise"
KEY = ["dataset", "method", "epsilon"]


def accuracy_of(mechanism, n_classes):
    """Test accuracy of one release, as :func:`choose` asks for it."""

    def accuracy(epsilon, X, y, X_test, y_test, seed, **settings):
        rng = np.random.default_rng(seed)
        theta = mechanism(X, y, n_classes, epsilon, DELTA, rng, **settings)
        return float(np.mean(np.argmax(X_test @ theta.astype(X.dtype), axis=1) == y_test))

    return accuracy


def measure(folder, dataset, method, epsilon, quick):
    """Mean accuracy with its interval, and the settings that were chosen."""
    X, y, X_test, y_test, classes = load(Path(folder) / f"{dataset}.npz")
    stream = np.random.default_rng(zlib.crc32(f"{dataset} {method} {epsilon}".encode()))
    seeds = iter(lambda: int(stream.integers(2**31)), None)
    releases, chosen = 2 if quick else RELEASES, ""
    if method == CEILING:
        scores = [LogisticRegression(C=10.0, max_iter=300).fit(X, y).score(X_test, y_test)]
    elif method in OURS:
        head = clone(OURS[method]).set_params(epsilon=epsilon, delta=DELTA, classes=classes)
        heads = [clone(head).set_params(random_state=next(seeds)) for _ in range(releases)]
        scores = [head.fit(X, y).score(X_test, y_test) for head in heads]
    else:
        mechanism, settings = OTHERS[method]
        accuracy, y = accuracy_of(mechanism, len(classes)), np.searchsorted(classes, y)
        y_test = np.searchsorted(classes, y_test)
        settings = settings[:2] if quick else settings
        chosen = choose(accuracy, settings, epsilon, X, y, seeds, FINALISTS, FINALS)
        scores = [
            accuracy(epsilon, X, y, X_test, y_test, next(seeds), **chosen) for _ in range(releases)
        ]
    return {**mean_interval(scores), "releases": len(scores), "settings": str(chosen)}


def run(folder, out, names, quick, jobs):
    """Measure what the file lacks; all cells of it."""
    path = out / "anchors_cells.csv"
    known = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=[*KEY, "quick"])
    if (known["quick"] != quick).any():
        raise SystemExit(f"--out {out} holds cells of a run that is quick, or not; choose another.")
    done = set(known[KEY].itertuples(index=False, name=None))
    cells = [(name, CEILING, 0.0) for name in names]
    cells += itertools.product(names, (*OURS, *OTHERS), EPSILONS)
    cells = [cell for cell in cells if cell not in done]

    def one(cell):
        with warnings.catch_warnings():
            # Solvers of the line without noise stop early on some features.
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = measure(folder, *cell, quick)
            return {**dict(zip(KEY, cell, strict=True)), **found, "quick": quick}

    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
    found = parallel(joblib.delayed(one)(cell) for cell in cells)
    for row in tqdm(found, total=len(cells), unit="cell", disable=None):
        pd.DataFrame([row]).to_csv(path, mode="a", header=not path.exists(), index=False)
    return pd.read_csv(path)


def table(cells):
    """Accuracy by epsilon, a column for each way to train."""
    rows = []
    for name, epsilon in itertools.product(DATASETS, EPSILONS):
        own = cells[cells["dataset"] == name].set_index(["method", "epsilon"])
        if (next(iter(OURS)), epsilon) not in own.index:
            continue
        row = {"data": DATASETS[name], "epsilon": f"{epsilon:g}"}
        for method in (*OURS, *OTHERS, CEILING):
            key = (method, 0.0 if method == CEILING else epsilon)
            row[method] = interval(own.loc[key]) if key in own.index else ""
        rows.append(row)
    return pd.DataFrame(rows)


def main(argv=None):
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.anchors", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("anchors-results"))
    parser.add_argument("--datasets", nargs="+", choices=list(DATASETS), default=list(SHOWN))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="two settings, two releases")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    found = table(run(options.data, options.out, options.datasets, options.quick, options.jobs))
    (options.out / "anchors.md").write_text(markdown(found) + "\n")
    print(found.to_string(index=False))


if __name__ == "__main__":
    main()
