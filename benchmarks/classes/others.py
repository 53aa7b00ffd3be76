"""Opacus and diffprivlib on rare classes, in an environment of their own (paper/comparators.py).

Opacus takes weights of classes in its loss; it clips the weighted gradients, which takes back most
of them. diffprivlib has none. Settings are fixed, the best of a few on held-out rows being chosen
at no charge.
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "paper"))
import comparators

EPSILONS = (1.0, 2.0, 4.0, 8.0)
SETTINGS = comparators.grid(epochs=(30,), rate=(0.2, 1.0, 5.0), n_batches=(4,), clip=(0.3, 1.0))
RELEASES = 3


def opacus(epsilon, X, y, Xt, seed, setting, weight):
    """Predictions of DP-SGD under replacement of one record."""
    import torch
    from opacus import PrivacyEngine

    torch.manual_seed(seed)
    rows = comparators.rows_of(X, y)
    batch = -(-len(y) // setting["n_batches"])
    loader = torch.utils.data.DataLoader(rows, batch_size=batch, collate_fn=lambda part: part)
    model = torch.nn.Linear(X.shape[1], int(y.max()) + 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=setting["rate"], momentum=0.9)
    noise = comparators.noise_multiplier(epsilon, len(loader), setting["epochs"], replace=True)
    model, optimizer, loss, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        max_grad_norm=setting["clip"],
        noise_multiplier=noise,
        criterion=torch.nn.CrossEntropyLoss(weight=weight),
        grad_sample_mode="ghost",
    )
    for _ in range(setting["epochs"]):
        for part, labels in loader:
            optimizer.zero_grad()
            loss(model(part), labels).backward()
            optimizer.step()
    with torch.no_grad():
        return model(torch.tensor(Xt)).argmax(1).numpy()


def diffprivlib(epsilon, X, y, Xt, seed):
    """Predictions of objective perturbation."""
    from diffprivlib.models import LogisticRegression

    head = LogisticRegression(
        epsilon=epsilon, data_norm=1.0 + 1e-6, C=10.0, max_iter=300, random_state=seed
    )
    return head.fit(X.astype(np.float64), y).predict(Xt)


def scores_of(predicted, y, rarest):
    """As in ``__main__``, which this environment cannot import."""
    recalls = [np.mean(predicted[y == code] == code) for code in np.unique(y)]
    return np.mean(predicted == y), np.mean(recalls), np.mean(predicted[y == rarest] == rarest)


def main():
    """Append cells of one dataset."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    # Both libraries warn of their own deprecations and of solvers that stop early.
    warnings.simplefilter("ignore")
    import torch

    X, y, Xt, yt = comparators.load(options.rows)
    counts = np.bincount(y)
    rarest = int(np.argmin(counts))
    balanced = torch.tensor(len(y) / (len(counts) * counts), dtype=torch.float32)
    held = np.random.default_rng(0).permutation(len(y)) < len(y) // 5
    for epsilon in EPSILONS:
        cells = {"diffprivlib": [diffprivlib(epsilon, X, y, Xt, seed) for seed in range(RELEASES)]}
        for head, weight in (("Opacus", None), ("Opacus, balanced", balanced)):

            def on_held(setting, weight=weight, epsilon=epsilon):
                found = opacus(epsilon, X[~held], y[~held], X[held], 0, setting, weight)
                # What each is for: accuracy, or that of every class.
                return scores_of(found, y[held], rarest)[0 if weight is None else 1]

            best = max(SETTINGS, key=on_held)
            cells[head] = [
                opacus(epsilon, X, y, Xt, seed, best, weight) for seed in range(RELEASES)
            ]
        rows = []
        for head, predictions in cells.items():
            found = np.array([scores_of(p, yt, rarest) for p in predictions])
            error = found[:, 1].std(ddof=1) / np.sqrt(RELEASES)
            rows.append([options.name, head, "any distance, labels too", epsilon])
            rows[-1] += [*found.mean(axis=0), error, RELEASES]
        columns = ["dataset", "head", "radius", "epsilon", "accuracy", "balanced", "rarest"]
        table = pd.DataFrame(rows, columns=[*columns, "error", "releases"])
        new = not options.out.exists()
        table.to_csv(options.out, mode="a", header=new, index=False, float_format="%.5g")


if __name__ == "__main__":
    main()
