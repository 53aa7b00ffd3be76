"""Other libraries' private linear heads: diffprivlib and Opacus DP-SGD.

python -m venv ENV
ENV/bin/pip install torch==2.13.0 opacus==1.6.0 dp-accounting==0.6.0 diffprivlib==0.6.6 \\
    scikit-learn==1.5.2
python -m benchmarks --data DIR --peers ENV/bin/python

In an environment of its own, since these libraries ask for older packages: it imports nothing of
this one. Settings are chosen on a fifth of the training rows, held out, at no charge, which
favours these libraries: every setting once, then the best few on further noise.
"""

import argparse
import functools
import itertools
import json
import math
import subprocess
import tempfile
import time
import warnings
import zlib
from pathlib import Path

import numpy as np
from scipy.stats import t as student

DELTA = 1e-6
KEY = ("dataset", "method", "epsilon")
#: Settings that are tried again, and how often.
FINALISTS, FINALS = 5, 3
RELEASES = 5


def run_in(python, *options):
    """Run this file in the libraries' environment; what it prints."""
    command = [python, __file__, *map(str, options)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def measured(run, rows, method, epsilon, rare=False):
    """A cell, measured in the libraries' environment."""
    with tempfile.TemporaryDirectory() as folder:
        path, names = Path(folder, "rows.npz"), ("X_train", "y_train", "X_test", "y_test")
        np.savez(path, **dict(zip(names, rows, strict=True)))
        options = ("--method", method, "--epsilon", epsilon, "--seed", run.seed)
        return json.loads(run_in(run.peers, path, *options, *["--rare"] * rare))


def load(path):
    file = np.load(path)
    rows = {}
    for split in ("train", "test"):
        X = file[f"X_{split}"].astype(np.float32)
        rows[split] = X / np.linalg.norm(X, axis=1, keepdims=True), file[f"y_{split}"]
    return *rows["train"], *rows["test"]


def scores(predicted, y, rarest):
    """Accuracy, its mean over classes, recall of the rarest, and of every class."""
    right = predicted == y
    recalls = {code: np.mean(right[y == code]) for code in np.unique(y)}
    return (
        np.mean(right),
        np.mean([*recalls.values()]),
        recalls.get(rarest, 0.0),
        [*recalls.values()],
    )


def diffprivlib(epsilon, X, y, X_test, seed, inverse_alpha):
    """Predictions of objective perturbation."""
    from diffprivlib.models import LogisticRegression

    head = LogisticRegression(
        epsilon=epsilon, data_norm=1.0 + 1e-6, C=inverse_alpha, max_iter=300, random_state=seed
    )
    return head.fit(X.astype(np.float64), y).predict(X_test)


@functools.cache
def noise_multiplier(epsilon, n_batches, epochs, *, replace):
    """Least noise of DP-SGD for the budget, by dp-accounting's loss distributions."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    adjacency = dp_accounting.NeighboringRelation["REPLACE_ONE" if replace else "ADD_OR_REMOVE_ONE"]

    def event(noise):
        step = dp_accounting.PoissonSampledDpEvent(
            1 / n_batches, dp_accounting.GaussianDpEvent(noise)
        )
        return dp_accounting.SelfComposedDpEvent(step, epochs * n_batches)

    return dp_accounting.calibrate_dp_mechanism(
        lambda: PLDAccountant(adjacency), event, epsilon, DELTA, tol=1e-3
    )


def opacus(epsilon, X, y, X_test, seed, *, epochs, rate, n_batches, clip, replace, balanced=False):
    """Predictions of DP-SGD.

    ``balanced`` weighs classes in the loss; clipping the weighted gradients takes back most of it.
    """
    import torch
    from opacus import PrivacyEngine

    class Rows(torch.utils.data.Dataset):
        """A dataset that gives a batch at once."""

        def __len__(self):
            return len(y)

        def __getitems__(self, chosen):
            return features[chosen], labels[chosen]

        __getitem__ = __getitems__

    torch.manual_seed(seed)
    features, labels = torch.tensor(X), torch.tensor(y)
    loader = torch.utils.data.DataLoader(
        Rows(), batch_size=math.ceil(len(y) / n_batches), collate_fn=lambda batch: batch
    )
    model = torch.nn.Linear(X.shape[1], int(y.max()) + 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    weight = torch.tensor(len(y) / (y.max() + 1) / np.bincount(y), dtype=torch.float32)
    # "ghost" clips the same gradients without storing them.
    model, optimizer, loss, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        max_grad_norm=clip,
        noise_multiplier=noise_multiplier(epsilon, len(loader), epochs, replace=replace),
        criterion=torch.nn.CrossEntropyLoss(weight=weight if balanced else None),
        grad_sample_mode="ghost",
    )
    for _ in range(epochs):
        for batch, codes in loader:
            optimizer.zero_grad()
            loss(model(batch), codes).backward()
            optimizer.step()
    with torch.no_grad():
        return model(torch.tensor(X_test)).argmax(1).numpy()


def grid(**values):
    return [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]


REPLACE = functools.partial(opacus, replace=True)
OPACUS_GRID = grid(
    epochs=(10, 30, 60),
    rate=(0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
    n_batches=(20, 4),
    clip=(0.3, 1.0),
)
#: Name, predictions of one release, settings tried, and the score that chooses among them.
METHODS = {
    "diffprivlib": (diffprivlib, grid(inverse_alpha=(0.1, 1.0, 10.0, 100.0, 1000.0)), 0),
    "Opacus, add/remove": (functools.partial(opacus, replace=False), OPACUS_GRID, 0),
    "Opacus, replace one": (REPLACE, OPACUS_GRID, 0),
}
FEW = grid(epochs=(30,), rate=(0.2, 1.0, 5.0), n_batches=(4,), clip=(0.3, 1.0))
#: For rare classes; diffprivlib has no weights. A balanced head is chosen by every class's recall.
RARE = {
    "diffprivlib": (diffprivlib, grid(inverse_alpha=(10.0,)), 0),
    "Opacus": (REPLACE, FEW, 0),
    "Opacus, balanced": (functools.partial(REPLACE, balanced=True), FEW, 1),
}


def choose(accuracy, settings, epsilon, X, y, seeds):
    """Settings that score best on a fifth of the rows, held out."""
    order = np.random.default_rng(next(seeds)).permutation(len(y))
    held, kept = order[: len(y) // 5], order[len(y) // 5 :]
    parts = X[kept], y[kept], X[held], y[held]

    def score(setting):
        return accuracy(epsilon, *parts, next(seeds), **setting)

    first = [score(setting) for setting in settings]
    best = [settings[place] for place in np.argsort(first)[::-1][:FINALISTS]]
    final = [np.mean([score(setting) for _ in range(FINALS)]) for setting in best]
    return best[int(np.argmax(final))]


def measure(method, epsilon, seed, rare, X, y, X_test, y_test):
    """Scores of the best settings: means over releases, and a 95 % interval of the accuracy."""
    predict, settings, place = (RARE if rare else METHODS)[method]
    start = time.perf_counter()
    stream = np.random.default_rng([seed, len(y), zlib.crc32(f"{method} {epsilon}".encode())])
    seeds, rarest = iter(lambda: int(stream.integers(2**31)), None), np.argmin(np.bincount(y))

    def scored(epsilon, X, y, X_test, y_test, seed, **setting):
        return scores(predict(epsilon, X, y, X_test, seed, **setting), y_test, rarest)[:3]

    best = choose(
        lambda *cell, **setting: scored(*cell, **setting)[place], settings, epsilon, X, y, seeds
    )
    parts = epsilon, X, y, X_test, y_test
    found = np.array([scored(*parts, next(seeds), **best) for _ in range(RELEASES)])
    accuracy, balanced, rare = found.mean(axis=0)
    error = np.std(found[:, 0], ddof=1) / math.sqrt(RELEASES)
    half = student.ppf(0.975, RELEASES - 1) * error
    return {
        "accuracy": accuracy,
        "low": accuracy - half,
        "high": accuracy + half,
        "balanced": balanced,
        "rarest": rare,
        "error": error,
        "releases": RELEASES,
        "settings": str(best),
        "seconds": time.perf_counter() - start,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="file of rows")
    parser.add_argument("--method", help="left out: time one fit of Opacus")
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--rare", action="store_true", help="the methods for rare classes")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    # Both libraries warn of their own deprecations and of solvers that stop early.
    warnings.simplefilter("ignore")
    rows = load(args.data)
    if args.method:
        print(json.dumps(measure(args.method, args.epsilon, args.seed, args.rare, *rows)))
        return
    start = time.perf_counter()
    REPLACE(args.epsilon, *rows[:3], args.seed, epochs=10, rate=0.5, n_batches=20, clip=1.0)
    print(time.perf_counter() - start)


if __name__ == "__main__":
    main()
