"""Accuracy of other libraries' private linear heads: diffprivlib and Opacus DP-SGD.

python -m venv ENV
ENV/bin/pip install torch==2.13.0 opacus==1.6.0 dp-accounting==0.6.0 diffprivlib==0.6.6 \\
    scikit-learn==1.5.2 pandas
python -m benchmarks.paper --data DIR --comparators ENV/bin/python

In an environment of its own, since these libraries ask for older packages: it imports nothing of
this one. Settings are chosen on a fifth of the training rows, held out, at no charge, which
favours these libraries.
"""

import argparse
import functools
import itertools
import math
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t as student

DELTA = 1e-6
KEY = ["dataset", "method", "epsilon", "seed"]


def load(path):
    file = np.load(path)
    rows = {}
    for split in ("train", "test"):
        X = file[f"X_{split}"].astype(np.float32)
        rows[split] = X / np.linalg.norm(X, axis=1, keepdims=True), file[f"y_{split}"]
    return *rows["train"], *rows["test"]


def diffprivlib_accuracy(epsilon, X, y, X_test, y_test, seed, inverse_alpha):
    from diffprivlib.models import LogisticRegression

    head = LogisticRegression(epsilon=epsilon, data_norm=1.0 + 1e-6, C=inverse_alpha,
                              max_iter=300, random_state=seed)  # fmt: skip
    return head.fit(X.astype(np.float64), y).score(X_test, y_test)


@functools.cache
def noise_multiplier(epsilon, n_batches, epochs, *, replace):
    """Least noise of DP-SGD for the budget, by dp-accounting's loss distributions."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    adjacency = dp_accounting.NeighboringRelation[
        "REPLACE_ONE" if replace else "ADD_OR_REMOVE_ONE"
    ]  # fmt: skip

    def event(noise):
        step = dp_accounting.PoissonSampledDpEvent(
            1 / n_batches, dp_accounting.GaussianDpEvent(noise)
        )
        return dp_accounting.SelfComposedDpEvent(step, epochs * n_batches)

    return dp_accounting.calibrate_dp_mechanism(
        lambda: PLDAccountant(adjacency), event, epsilon, DELTA, tol=1e-3
    )


def opacus_accuracy(epsilon, X, y, X_test, y_test, seed, epochs, rate, *, replace):
    import torch
    from opacus import PrivacyEngine

    torch.manual_seed(seed)
    rows = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(y))
    loader = torch.utils.data.DataLoader(rows, batch_size=max(256, len(y) // 20))
    model = torch.nn.Linear(X.shape[1], int(y.max()) + 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=loader, max_grad_norm=1.0,
        noise_multiplier=noise_multiplier(epsilon, len(loader), epochs, replace=replace),
    )  # fmt: skip
    for _ in range(epochs):
        for batch, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), labels).backward()
            optimizer.step()
    with torch.no_grad():
        return float((model(torch.tensor(X_test)).argmax(1).numpy() == y_test).mean())


OPACUS_GRID = [
    {"epochs": epochs, "rate": rate}
    for epochs, rate in itertools.product((10, 30), (0.5, 2.0, 8.0))
]
#: Name, accuracy of one release, settings tried.
METHODS = {
    "diffprivlib": (diffprivlib_accuracy, [{"inverse_alpha": c} for c in (0.1, 10.0, 1000.0)]),
    "Opacus, add/remove": (functools.partial(opacus_accuracy, replace=False), OPACUS_GRID),
    "Opacus, replace one": (functools.partial(opacus_accuracy, replace=True), OPACUS_GRID),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, help="CSV file, appended to")
    parser.add_argument("--datasets", nargs="+", default=[])
    parser.add_argument("--time", type=Path, help="only time one fit of Opacus on this file")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 2.0])
    parser.add_argument("--releases", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    # Both libraries warn of their own deprecations and of solvers that stop early.
    warnings.simplefilter("ignore")
    if args.time:
        rows, start = load(args.time), time.perf_counter()
        opacus_accuracy(2.0, *rows, args.seed, **OPACUS_GRID[1], replace=True)
        print(time.perf_counter() - start)
        return
    table = pd.read_csv(args.out) if args.out.exists() else pd.DataFrame(columns=KEY)
    done = set(map(tuple, table[KEY].to_numpy(object)))
    for name, epsilon, method in itertools.product(args.datasets, args.epsilons, METHODS):
        key = (name, method, epsilon, args.seed)
        if key in done:
            continue
        X, y, X_test, y_test = load(args.data / f"{name}.npz")
        order = np.random.default_rng(args.seed).permutation(len(y))
        held, kept = order[: len(y) // 5], order[len(y) // 5 :]
        accuracy, grid = METHODS[method]
        start = time.perf_counter()
        found = [
            accuracy(epsilon, X[kept], y[kept], X[held], y[held], args.seed, **params)
            for params in grid
        ]
        best = grid[int(np.argmax(found))]
        # Seeds of two base seeds must not meet.
        scores = [
            accuracy(epsilon, X, y, X_test, y_test, 1000 * (args.seed + 1) + i, **best)
            for i in range(args.releases)
        ]
        half = student.ppf(0.975, args.releases - 1) * np.std(scores, ddof=1)
        half /= math.sqrt(args.releases)
        row = dict(zip(KEY, key, strict=True))
        row.update(
            accuracy=np.mean(scores), low=np.mean(scores) - half, high=np.mean(scores) + half,
            releases=args.releases, settings=str(best), seconds=time.perf_counter() - start,
        )  # fmt: skip
        table = pd.concat([table, pd.DataFrame([row])], ignore_index=True)
        table.to_csv(args.out, index=False)
        print(f"{name} epsilon={epsilon:g} {method}: {np.mean(scores):.3f}", flush=True)


if __name__ == "__main__":
    main()
