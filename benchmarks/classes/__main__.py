"""``python -m benchmarks.classes --data DIR``: rare classes, with weights and without.

Overall accuracy, balanced accuracy and recall of the rarest class, of heads with and without class
weights or uniform class probabilities. TREC-6 has one class of 86 among 5452 records; "tail" is
BANKING77 cut to counts proportional to 1 / rank. ``--comparators PYTHON`` adds Opacus and
diffprivlib (see ``benchmarks.paper.comparators``). Cells are appended to ``classes_cells.csv`` as
they are measured, and a run goes on where it was interrupted.
"""

import argparse
import itertools
import subprocess
import zlib
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from tqdm import tqdm

from benchmarks.paper.tables import markdown
from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
)
from sklearn_balldp.datasets import load_embeddings
from sklearn_balldp.heads.plan import AT_RISK, LOST

DELTA = 1e-6
DATASETS = {"trec6": "TREC-6", "tail": "BANKING77, long tail"}
EPSILONS = (1.0, 2.0, 4.0, 8.0)
RADII = {"r = 0.6": {"radius": 0.6}, "any distance": {"radius": None}}
BALANCED = {"class_weight": "balanced"}
HEADS = {
    "logistic": (BallDPLogisticRegression(), 10),
    "logistic, balanced": (BallDPLogisticRegression(**BALANCED), 10),
    "logistic, uniform priors": (BallDPLogisticRegression(priors="uniform"), 10),
    "SVC": (BallDPSquaredHingeSVC(), 5),
    "SVC, balanced": (BallDPSquaredHingeSVC(**BALANCED), 5),
    "minimiser": (BallDPLogisticRegression(mechanism="output"), 3),
    "minimiser, balanced": (BallDPLogisticRegression(mechanism="output", **BALANCED), 3),
    "discriminant": (BallDPLinearDiscriminant(domain="sphere"), 10),
    "discriminant, uniform priors": (
        BallDPLinearDiscriminant(domain="sphere", priors="uniform"),
        10,
    ),
    "prototypes": (BallDPRidgePrototype(), 10),
    "prototypes, uniform priors": (BallDPRidgePrototype(priors="uniform"), 10),
}
NOISELESS = {
    "no noise": LogisticRegression(C=10.0, max_iter=300),
    "no noise, balanced": LogisticRegression(C=10.0, max_iter=300, class_weight="balanced"),
}
SCORES = ["accuracy", "balanced", "rarest"]
KEY = ["dataset", "head", "radius", "epsilon"]
#: Heads whose recalls by class are kept, beside what a plan says of each.
PLAIN = ("logistic", "discriminant", "prototypes")
SHOWN = ("logistic", "logistic, balanced", "logistic, uniform priors")


def rows_of(folder, name):
    """Training and test rows; the long tail keeps max / rank records of each class, and 3."""
    file = load_embeddings(folder / f"{'banking77' if name == 'tail' else name}.npz")
    X, y, Xt, yt = (file[part] for part in ("X_train", "y_train", "X_test", "y_test"))
    if name != "tail":
        return X, y, Xt, yt
    counts = np.bincount(y)
    rng, kept = np.random.default_rng(0), []
    for rank, code in enumerate(np.argsort(-counts, kind="stable")):
        members = rng.permutation(np.flatnonzero(y == code))
        kept += members[: max(3, round(counts.max() / (rank + 1)))].tolist()
    kept = np.sort(kept)
    return X[kept], y[kept], Xt, yt


def scores_of(predicted, y, rarest):
    """Accuracy, its mean over classes, and recall of the rarest."""
    balanced = np.mean(recalls_of(predicted, y))
    return np.mean(predicted == y), balanced, np.mean(predicted[y == rarest] == rarest)


def recalls_of(predicted, y):
    """Recall of every class."""
    return [np.mean(predicted[y == code] == code) for code in np.unique(y)]


def run(folder, out, names, quick):
    """Measure every cell that is not in the file; recalls by class go beside it."""
    path, by_class = out / "classes_cells.csv", out / "classes_recall.csv"
    known = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=KEY)
    done = set(map(tuple, known[KEY].to_numpy(object)))
    for name in names:
        X, y, Xt, yt = rows_of(folder, name)
        counts = np.bincount(y)
        rarest = int(np.argmin(counts))
        for head, estimator in NOISELESS.items():
            if (name, head, "none", 0.0) not in done:
                found = scores_of(clone(estimator).fit(X, y).predict(Xt), yt, rarest)
                _append(path, [[name, head, "none", 0.0, *found, 0.0, 1]])
        cells = list(itertools.product(HEADS, RADII, EPSILONS))
        for head, radius, epsilon in tqdm(cells, desc=name, disable=None):
            if (name, head, radius, epsilon) in done:
                continue
            if quick and epsilon != 1.0:
                continue
            estimator, n_releases = HEADS[head] if not quick else (HEADS[head][0], 2)
            own = clone(estimator).set_params(epsilon=epsilon, delta=DELTA, **RADII[radius])
            found, recalls = [], []
            for release in range(n_releases):
                seed = zlib.crc32(f"{name} {radius} {epsilon} {release}".encode())
                predicted = own.set_params(random_state=seed).fit(X, y).predict(Xt)
                found.append(scores_of(predicted, yt, rarest))
                recalls.append(recalls_of(predicted, yt))
            error = np.std([s[1] for s in found], ddof=1) / np.sqrt(n_releases)
            _append(path, [[name, head, radius, epsilon, *np.mean(found, 0), error, n_releases]])
            if head not in PLAIN:
                continue
            plan = own.plan(len(X), X.shape[1], counts)
            ratios = plan.class_signal_to_noise
            rows = zip(range(len(counts)), counts, ratios, np.mean(recalls, 0), strict=True)
            _append(by_class, [[name, head, radius, epsilon, *row] for row in rows], RECALL)
    return pd.read_csv(path), pd.read_csv(by_class)


CELLS = [*KEY, *SCORES, "error", "releases"]
RECALL = [*KEY, "class", "records", "signal to noise", "recall"]


def _append(path, rows, columns=CELLS):
    table = pd.DataFrame(rows, columns=columns)
    table.to_csv(path, mode="a", header=not path.exists(), index=False, float_format="%.5g")


def others(python, folder, out, names):
    """Opacus and diffprivlib, in an environment of their own."""
    for name in names:
        X, y, Xt, yt = rows_of(folder, name)
        rows = out / f"classes_{name}.npz"
        np.savez(rows, X_train=X, y_train=y, X_test=Xt, y_test=yt)
        command = [python, Path(__file__).with_name("others.py"), "--rows", rows, "--name", name]
        subprocess.run([*command, "--out", out / "classes_others.csv"], check=True)
        rows.unlink()


def table(cells, name):
    """Three scores by epsilon, in percent."""
    own, rows = cells[cells["dataset"] == name], []
    for (radius, head), part in own.groupby(["radius", "head"], sort=False):
        row = {"hides": radius, "head": head}
        found = part.set_index("epsilon")
        if radius == "none":
            row |= dict.fromkeys([f"eps {e:g}" for e in EPSILONS], "")
            row["eps 8"] = _three(found.loc[0.0])
        else:
            row |= {f"eps {e:g}": _three(found.loc[e]) for e in EPSILONS if e in found.index}
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


def _three(row):
    return " / ".join(f"{100 * row[score]:.1f}" for score in SCORES)


def lost(recall):
    """Recall by signal to noise, in percent."""
    bins = [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, np.inf]
    part = recall.copy()
    part["signal to noise"] = pd.cut(part["signal to noise"], bins)
    part["head"] = part["head"] + ", " + part["dataset"].map(DATASETS)
    wide = part.pivot_table(
        index="signal to noise", columns="head", values="recall", observed=True, sort=False
    )
    wide = (100 * wide).round(1).sort_index()
    wide = wide.astype(object).where(wide.notna(), "")
    return wide.reset_index().astype(str)


def figure(cells, path):
    """Mean recall of the classes, and recall of the rarest one, against epsilon."""
    titles = {"balanced": "mean recall", "rarest": "recall of the rarest class"}
    fig, axes = plt.subplots(
        len(DATASETS), 2, figsize=(7.6, 5.8), layout="constrained", squeeze=False
    )
    colours = dict(
        zip((*SHOWN, "discriminant, uniform priors"), ("0.5", "C1", "C0", "C2"), strict=True)
    )
    for row, (name, title) in zip(axes, DATASETS.items(), strict=True):
        own = cells[(cells["dataset"] == name) & (cells["radius"] == "r = 0.6")]
        exact = cells[(cells["dataset"] == name) & (cells["radius"] == "none")].set_index("head")
        for ax, (score, label) in zip(row, titles.items(), strict=True):
            for head, colour in colours.items():
                part = own[own["head"] == head].sort_values("epsilon")
                ax.plot(part["epsilon"], part[score], "o-", color=colour, label=head, ms=4)
            if len(exact):
                ax.axhline(exact.loc["no noise", score], color="0.4", ls=":", label="no noise")
                balanced = exact.loc["no noise, balanced", score]
                ax.axhline(balanced, color="0.4", ls="--", label="no noise, balanced")
            ax.set_xscale("log", base=2)
            ax.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
            ax.set_ylim(-0.02, 1.0)
            ax.set_title(f"{title}: {label}", fontsize=9)
    for ax in axes[-1]:
        ax.set_xlabel("epsilon, ball of radius 0.6")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9)
    fig.savefig(path, dpi=130)
    plt.close(fig)


def report(cells, recall, out):
    """Tables and the picture."""
    beside = out / "classes_others.csv"
    if beside.exists():
        cells = pd.concat([cells, pd.read_csv(beside)], ignore_index=True)
    for name in DATASETS:
        if (cells["dataset"] == name).any():
            (out / f"classes_{name}.md").write_text(markdown(table(cells, name)))
    (out / "classes_lost.md").write_text(markdown(lost(recall)))
    figure(cells, out / "classes.png")
    return cells


def main(argv=None):
    """Measure, write, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.classes", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("classes-results"))
    parser.add_argument("--datasets", nargs="+", choices=list(DATASETS), default=list(DATASETS))
    parser.add_argument("--comparators", help="a Python that has Opacus and diffprivlib")
    parser.add_argument("--quick", action="store_true", help="one epsilon, two releases")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    cells, recall = run(options.data, options.out, options.datasets, options.quick)
    if options.comparators:
        others(options.comparators, options.data, options.out, options.datasets)
    report(cells, recall, options.out)
    print(f"lost below a signal to noise of {LOST:g}, at risk below {AT_RISK:g}; recall:")
    print(lost(recall).to_string(index=False))


if __name__ == "__main__":
    main()
