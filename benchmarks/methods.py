"""What a user would pick instead, on the same rows in one run.

Accuracy of a linear head on seven datasets, by Opacus, diffprivlib, the paper's output
perturbation, and this package's default under standard DP and in a ball of the paper's radius (the
median distance of two records of one label); without noise beside them. Training and test rows are
split at random five times, into the sizes of the official split; every method sees the same
splits, and a release on each. ``--peers PYTHON`` adds the other libraries (``benchmarks.peers``);
tables of columns have a study of their own.
"""

import functools
import itertools

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.base import clone

from benchmarks import peers
from benchmarks.study import (
    DATASETS,
    DELTA,
    EXACT,
    Study,
    draw,
    mean_error,
    radius_of,
    rows_of,
    seeds_of,
    show,
)
from sklearn_balldp import BallDPLogisticRegression, BallDPRidgePrototype, OutputPerturbation

EPSILONS, SPLITS = (0.5, 1.0, 2.0, 8.0), 5
#: Datasets that other libraries are measured on; the others have too many rows for their search.
SEARCHED = ("trec6", "emotion", "banking77", "imdb")
PAPER, STANDARD, BALL, NONE = "paper, ball", "ours, standard DP", "ours, ball", "no noise"
_LIPSCHITZ = OutputPerturbation(sensitivity="paper")
HEADS = {
    PAPER: BallDPRidgePrototype(counts="worst", decision="nearest"),
    "paper, ball, logistic": BallDPLogisticRegression(mechanism=_LIPSCHITZ, alpha=0.01),
    STANDARD: BallDPLogisticRegression(),
    BALL: BallDPLogisticRegression(),
    NONE: EXACT,
}
COLUMNS = ("diffprivlib", "Opacus, add or remove", "Opacus", *HEADS)
#: The table for a reader in a hurry.
FEW, EPSILON = ("Opacus", STANDARD, BALL, NONE), 2.0


@functools.lru_cache(maxsize=1)
def _rows(folder, dataset):
    """All rows and labels, and how many are to be test rows."""
    X, y, Xt, yt = rows_of(folder, dataset)
    return np.concatenate([X, Xt]).astype(np.float32), np.concatenate([y, yt]), len(yt)


def measure(run, dataset, method, epsilon):
    """Accuracy of a release on each split: its mean, and each."""
    X, y, n_test = _rows(run.data, dataset)
    seeds, settings = seeds_of(run, SPLITS, "split", dataset), ""
    if method not in HEADS:
        scores, settings = peers.measured(
            run.peers, (X, y), n_test, seeds, method, epsilon
        ).values()
    else:
        scores, head = [], clone(HEADS[method])
        if method != NONE:
            head.set_params(epsilon=epsilon, delta=DELTA)
            promise = {"protect_labels": True, "classes": np.unique(y)}
            if method != STANDARD:
                promise = {"radius": radius_of(run.data, dataset, 0.5)}
            head.set_params(**promise)
        for own in seeds:
            rows, labels, *test = peers.split(X, y, n_test, own)
            if method != NONE:
                head.set_params(random_state=own)
            scores.append(head.fit(rows, labels).score(*test))
    each = " ".join(f"{score:.5f}" for score in scores)
    return {**mean_error(scores), "each": each, "settings": settings}


def cells_of(run):
    for name in run.have(DATASETS):
        yield name, NONE, 0.0
        yield from itertools.product([name], [own for own in HEADS if own != NONE], EPSILONS)


KEY = ("dataset", "method", "epsilon")
CELLS = Study("methods.csv", KEY, measure, cells_of)
PEERS = Study(
    "methods_peers.csv",
    KEY,
    measure,
    lambda run: itertools.product(run.have(SEARCHED), peers.METHODS, EPSILONS),
    {},  # too long for a sample
)
STUDIES = CELLS, PEERS


def read(folder):
    """Cells of all methods; without noise at every epsilon."""
    cells = pd.concat([CELLS.read(folder), PEERS.read(folder)], ignore_index=True)
    exact = cells["method"] == NONE
    both = cells[exact].drop(columns="epsilon").merge(pd.DataFrame({"epsilon": EPSILONS}), "cross")
    return pd.concat([cells[~exact], both], ignore_index=True)


def ratios(cells, method, other):
    """Accuracy over another method's, split by split: mean and standard error by cell."""
    scores = {
        name: own.set_index(["dataset", "epsilon"])["each"] for name, own in cells.groupby("method")
    }
    found = {}
    for cell in scores[method].index.intersection(scores[other].index):
        ours, theirs = (
            np.array(scores[name][cell].split(), dtype=float) for name in (method, other)
        )
        found[cell] = mean_error(ours / theirs)
    return pd.DataFrame(found).T


def table(cells, columns=COLUMNS, epsilons=EPSILONS):
    """A row for each dataset and epsilon; in percent, with the standard error if there are many."""
    rows = []
    for name, epsilon in itertools.product(DATASETS, epsilons):
        own = cells[(cells["dataset"] == name) & (cells["epsilon"] == epsilon)]
        own = own.set_index("method")[["mean", "error"]].mul(100.0).astype(float)
        if len(own):
            row = {"test accuracy": DATASETS[name]}
            row |= {"epsilon": f"{epsilon:g}"} if len(epsilons) > 1 else {}
            for method in columns:
                known = method in own.index
                text = "{:.1f} ± {:.1f}" if len(epsilons) > 1 else "{:.1f}"
                row[method] = text.format(*own.loc[method]) if known else ""
            rows.append(row)
    return pd.DataFrame(rows)


def table_of_ratios(cells):
    """Each method's accuracy over our standard DP's, paired split by split."""
    rows = {}
    for method in (name for name in COLUMNS if name != STANDARD):
        if method not in set(cells["method"]):
            continue
        for (name, epsilon), own in ratios(cells, method, STANDARD).iterrows():
            row = {"accuracy over ours, standard DP": DATASETS[name], "epsilon": f"{epsilon:g}"}
            shown = f"{own['mean']:.3f} ± {own['error']:.3f}"
            rows.setdefault((name, epsilon), row)[method] = shown
    ordered = [rows[cell] for cell in itertools.product(DATASETS, EPSILONS) if cell in rows]
    return pd.DataFrame(ordered).fillna("")


#: Marks of the picture: method, colour, marker.
MARKS = {
    "standard DP, Opacus": ("Opacus", "0.45", "x"),
    "standard DP, this package": (STANDARD, "C1", "s"),
    "a ball of the median distance": (BALL, "C0", "o"),
    "no noise": (NONE, "k", "|"),
}


def figure(cells, epsilon=0.5):
    """One panel: what each promise leaves of the accuracy."""
    here = cells[cells["epsilon"] == epsilon].set_index(["dataset", "method"])["mean"]
    names = [name for name in DATASETS if (name, BALL) in here]
    fig, ax = plt.subplots(figsize=(8, 0.42 * len(names) + 1.5), layout="constrained")
    for label, (method, colour, marker) in MARKS.items():
        places = [i for i, name in enumerate(names) if (name, method) in here]
        values = [100.0 * here[names[i], method] for i in places]
        size = {"markersize": 14, "markeredgewidth": 2} if marker == "|" else {"markersize": 8}
        ax.plot(values, places, marker, color=colour, label=label, **size)
    ax.set_yticks(range(len(names)), [DATASETS[name] for name in names])
    ax.invert_yaxis()
    ax.grid(axis="y", color="0.9")
    ax.set_axisbelow(True)
    ax.set_xlabel(f"test accuracy in percent, epsilon {epsilon:g}")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    fig.legend(loc="outside upper center", ncols=4, fontsize=9, frameon=False)
    return fig


def report(out):
    """Tables and the picture; a method that is ahead of ours where it hides the same."""
    cells = read(out)
    show(table(cells), out, "methods", cells)
    show(table_of_ratios(cells), out, "methods_ratios", cells)
    show(table(cells, FEW, (EPSILON,)), out, "methods_short", cells)
    draw(figure(cells), out / "methods.png", dpi=110)
    if "Opacus" in set(cells["method"]):
        found = ratios(cells, "Opacus", STANDARD)
        ahead = found.index[found["mean"] - 2.0 * found["error"] > 1.0]
        return [f"Opacus is ahead on {name} at epsilon {epsilon:g}" for name, epsilon in ahead]
    return []
