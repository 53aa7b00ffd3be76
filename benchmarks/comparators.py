"""Accuracy of other libraries' private linear heads: diffprivlib and Opacus DP-SGD.

python -m venv ENV
ENV/bin/pip install diffprivlib==0.6.6 scikit-learn==1.5.2 opacus==1.6.0 pandas
ENV/bin/python benchmarks/comparators.py --data DIR --out comparators.csv

In an environment of its own: it imports nothing of this package. Settings are chosen on a fifth of
the training rows held out, at no charge, which favours these libraries. Adjacency: diffprivlib's
objective perturbation is (epsilon, 0), its paper's adjacency replaces one record, label included;
Opacus accounts for one record added or removed, which is weaker than replacing one.
"""

import argparse
import itertools
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

DATASETS = ("trec6", "emotion", "banking77", "imdb")
DELTA = 1e-6


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


def opacus_accuracy(epsilon, X, y, X_test, y_test, seed, epochs, rate):
    import torch
    from opacus import PrivacyEngine

    torch.manual_seed(seed)
    rows = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(y))
    loader = torch.utils.data.DataLoader(rows, batch_size=max(256, len(y) // 20))
    model = torch.nn.Linear(X.shape[1], int(y.max()) + 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    model, optimizer, loader = PrivacyEngine().make_private_with_epsilon(
        module=model, optimizer=optimizer, data_loader=loader, target_epsilon=epsilon,
        target_delta=DELTA, epochs=epochs, max_grad_norm=1.0,
    )  # fmt: skip
    for _ in range(epochs):
        for batch, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch), labels).backward()
            optimizer.step()
    with torch.no_grad():
        return float((model(torch.tensor(X_test)).argmax(1).numpy() == y_test).mean())


METHODS = {
    "diffprivlib": (diffprivlib_accuracy, [{"inverse_alpha": c} for c in (0.1, 10.0, 1000.0)]),
    "opacus": (
        opacus_accuracy,
        [{"epochs": e, "rate": r} for e, r in itertools.product((10, 30), (0.5, 2.0, 8.0))],
    ),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[2.0])
    parser.add_argument("--releases", type=int, default=5)
    parser.add_argument("--only", choices=DATASETS, nargs="+", default=DATASETS)
    args = parser.parse_args()
    # Both libraries warn of their own deprecations and of solvers that stop early.
    warnings.simplefilter("ignore")
    rows = []
    for name, epsilon in itertools.product(args.only, args.epsilons):
        X, y, X_test, y_test = load(args.data / f"{name}.npz")
        order = np.random.default_rng(0).permutation(len(y))
        held, kept = order[: len(y) // 5], order[len(y) // 5 :]
        for method, (accuracy, grid) in METHODS.items():
            start = time.perf_counter()
            found = [
                accuracy(epsilon, X[kept], y[kept], X[held], y[held], 0, **params)
                for params in grid
            ]
            best = grid[int(np.argmax(found))]
            scores = [
                accuracy(epsilon, X, y, X_test, y_test, seed, **best)
                for seed in range(args.releases)
            ]
            rows.append({"data": name, "epsilon": epsilon, "method": method,
                         "accuracy": np.mean(scores), "sd": np.std(scores), "settings": str(best),
                         "seconds": time.perf_counter() - start})  # fmt: skip
            print(rows[-1], flush=True)
            pd.DataFrame(rows).to_csv(args.out, index=False)


if __name__ == "__main__":
    main()
