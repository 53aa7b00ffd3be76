"""``python -m benchmarks.bounds --data DIR --out FILE``: what the noise on a release costs.

Noise scale and test accuracy of heads with noise on the minimiser, and of prototypes that hide the
label too and all records of a person. The default alpha follows the noise: a sharper bound lowers
it, at about the same noise. Run it with another state of the package on PYTHONPATH, and
``--before`` puts both into one table.
"""

import argparse
import csv
import warnings
from pathlib import Path

import numpy as np
from tqdm import tqdm

from sklearn_balldp import (
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    OutputPerturbation,
)

NAMES = ("trec6", "banking77", "mnist", "imdb")
EPSILONS, RADIUS, RELEASES = (0.5, 2.0, 8.0), 0.3, 5
# Rows beyond these change times, and nothing that is compared.
MOST_ROWS = 10_000
KEYS = ("data", "head", "labels", "epsilon")


def heads(n_classes):
    """Heads by name and labels."""
    hidden = {"protect_labels": True, "classes": range(n_classes)}
    for name, head in (("logistic", BallDPLogisticRegression), ("hinge", BallDPSquaredHingeSVC)):
        for labels, given in (("public", {}), ("protected", hidden)):
            yield name, labels, head(mechanism=OutputPerturbation(), radius=RADIUS, **given)
    yield "prototypes, persons", "protected", BallDPRidgePrototype(radius=RADIUS, **hidden)


def measured(folder):
    """A row for every data set, head and epsilon."""
    rows = []
    for name in NAMES:
        with np.load(folder / f"{name}.npz") as file:
            X, Xt = (file[f"X_{part}"].astype(np.float32) for part in ("train", "test"))
            y, yt = file["y_train"], file["y_test"]
        chosen = np.random.default_rng(0).permutation(len(X))[:MOST_ROWS]
        X, y, Xt, yt = X[chosen], y[chosen], Xt[:MOST_ROWS], yt[:MOST_ROWS]
        X, Xt = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (X, Xt))
        cells = [(*own, e) for own in heads(int(y.max()) + 1) for e in EPSILONS]
        for head_name, labels, head, epsilon in tqdm(cells, desc=name):
            # Two records for each person.
            given = {"groups": np.arange(len(y)) // 2} if "persons" in head_name else {}
            scores = []
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for seed in range(RELEASES):
                    head.set_params(epsilon=epsilon, random_state=seed).fit(X, y, **given)
                    scores.append(head.score(Xt, yt))
            sigma = float(np.max(head.release_.sigma))
            alpha = head.release_.alpha
            own = dict(zip(KEYS, (name, head_name, labels, epsilon), strict=True))
            rows.append({**own, "alpha": alpha, "sigma": sigma, "accuracy": np.mean(scores)})
    return rows


def write(rows, path):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def table(before, after):
    """Markdown: noise scale and accuracy of both states."""
    titles = "data", "head", "labels", "epsilon", "sigma after/before", "alpha after/before"
    lines = [f"| {' | '.join(titles)} | accuracy | change |", "|" + "---|" * 8]
    earlier = {tuple(row[key] for key in KEYS): row for row in before}
    for row in after:
        key = tuple(str(row[name]) for name in KEYS)
        old = earlier[key]
        ratios = (float(row[name]) / float(old[name]) for name in ("sigma", "alpha"))
        ratio = " | ".join(f"{own:.3f}" for own in ratios)
        accuracy = 100 * float(row["accuracy"])
        change = accuracy - 100 * float(old["accuracy"])
        lines.append(f"| {' | '.join(key)} | {ratio} | {accuracy:.1f} | {change:+.2f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bounds", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of NAME.npz")
    parser.add_argument("--out", type=Path, required=True, help="CSV; with --before, a table too")
    parser.add_argument("--before", type=Path, help="CSV of another state of the package")
    options = parser.parse_args()
    write(measured(options.data), options.out)
    if options.before is not None:
        both = []
        for path in (options.before, options.out):
            with path.open() as file:
                both.append(list(csv.DictReader(file)))
        options.out.with_suffix(".md").write_text(table(*both))


if __name__ == "__main__":
    main()
