"""``python -m benchmarks.further --data DIR``: what a descent promises beyond its radius.

For each data set, head, start, radius and epsilon: epsilon at any distance as it follows from the
promise at the radius alone ("alone"), as it is promised there too ("promised"), and what the runs
came to by their answers ("realised", which is no guarantee). Both kinds of fits see the same seeds.
Persons have three records each. Writes ``further.csv`` (every cell) and ``further.md`` (medians,
worst cases, and what the promises cost in accuracy).
"""

import argparse
import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize
from tqdm import tqdm

from benchmarks import noiseless
from benchmarks.paper.tables import markdown
from sklearn_balldp import BallDPLogisticRegression, BallDPSquaredHingeSVC, GradientPerturbation
from sklearn_balldp.datasets import load_embeddings
from sklearn_balldp.mechanisms import drive
from sklearn_balldp.privacy.gaussian import epsilon_from_mu

#: Sets that the rule was chosen on, then those that it is judged on.
CHOSEN = "digits", "trec6", "emotion", "banking77", "agnews", "imdb", "cifar10", "mnist"
JUDGED = "hwu64", "snips", "letter"
HEADS = {"logistic": BallDPLogisticRegression, "hinge": BallDPSquaredHingeSVC}
STARTS, UNITS = ("auto", "zero"), ("records", "persons", "weights")
RADII, EPSILONS, DELTA, RELEASES = (0.1, 0.3, 0.6, 1.2), (0.5, 2.0, 8.0), 1e-6, 3
MOST_ROWS = {"banking77": 6000, "hwu64": 6000, "letter": 6000}


class Alone(GradientPerturbation):
    """A descent that promises nothing beyond its radius."""

    def bound(self, problem, mu):
        return replace(super().bound(problem, mu), further=())


def rows_of(folder, name):
    """Training and test rows, and their labels."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        X, Xt, y, yt = train_test_split(normalize(X), y, random_state=0, stratify=y)
        return X, y, Xt, yt
    file = load_embeddings(folder / f"{name}.npz")
    parts = []
    for part, most in (("train", MOST_ROWS.get(name, 4000)), ("test", 2000)):
        X, y = file[f"X_{part}"], file[f"y_{part}"]
        kept = np.random.default_rng(0).permutation(len(X))[:most]
        parts += [X[kept], y[kept]]
    return parts


def realised(head, radius):
    """Epsilon that the answers of a fit came to at a radius."""
    released, spent = head.released_, []
    answers = iter(released.answers)

    def answer(query):
        spent.append(query.mu(released.problem, radius))
        return next(answers)

    drive(released.conversation(), answer)
    return epsilon_from_mu(math.hypot(*spent), DELTA)


def measured(rows, name, unit, kind, start, radius, epsilon):
    """One cell: both kinds of fits, at the same seeds."""
    X, y, Xt, yt = rows
    given = {"groups": np.arange(len(y)) // 3} if unit == "persons" else {}
    cell = {"data": name, "unit": unit, "head": kind, "start": start, "radius": radius}
    cell["epsilon"] = epsilon
    far = 2.0
    for label, mechanism in (("alone", Alone), ("promised", GradientPerturbation)):
        head = HEADS[kind](epsilon, DELTA, radius)
        head.set_params(mechanism=mechanism(start=start, keep_transcript=True))
        if unit == "weights":
            head.set_params(class_weight="balanced")
        scores, came_to = [], []
        for seed in range(RELEASES):
            with noiseless.shared(X):
                head.set_params(random_state=seed).fit(X, y, **given)
            scores.append(head.score(Xt, yt))
            came_to.append(realised(head, far))
        release = head.release_
        cell["steps"], cell[label] = release.bound.n_steps, release.guarantee(far).epsilon
        cell[f"{label} at 2 r"] = release.guarantee(min(2.0 * radius, far)).epsilon
        cell[f"{label}, accuracy"] = np.mean(scores)
        cell[f"{label}, realised"] = np.median(came_to)
    return cell


def table(cells):
    """Medians and worst cases, by group of sets, what is replaced, the start, and epsilon."""
    lines = []
    keys = ["sets", "units", "begins at", "epsilon"]
    # From sums there are 1 or 20 steps, after the mean 60, as from zero.
    sums = cells["steps"].map({1: "sums, one step", 20: "sums"}).fillna("the mean")
    cells = cells.assign(
        sets=np.where(cells["data"].isin(JUDGED), "judging", "choosing"),
        units=cells["unit"],
        change=100.0 * (cells["promised, accuracy"] - cells["alone, accuracy"]),
        **{"begins at": sums.where(cells["start"] == "auto", "zero")},
    )
    for key, group in cells.groupby(keys):
        both = [f"{group[c].median():.3g} / {group[c].max():.3g}" for c in ("alone", "promised")]
        lines.append(
            {
                **dict(zip(keys, key, strict=True)),
                "cells": len(group),
                "alone (median / worst)": both[0],
                "promised": both[1],
                "realised": f"{group['promised, realised'].median():.3g}",
                "points (mean / worst)": "{:+.2f} / {:+.2f}".format(
                    group["change"].mean(), group["change"].min()
                ),
            }
        )
    return pd.DataFrame(lines)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.further", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[*CHOSEN, *JUDGED], help="names of sets")
    parser.add_argument("--out", type=Path, default=Path("further-results"))
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    found = []
    for name in options.only:
        rows = rows_of(options.data, name)
        cells = [
            (unit, kind, start, radius, epsilon)
            for unit in (UNITS if name in ("digits", "snips") else UNITS[:1])
            for kind in HEADS
            for start in STARTS
            for radius in RADII
            for epsilon in EPSILONS
        ]
        for cell in tqdm(cells, desc=name, disable=None):
            with warnings.catch_warnings():
                # Seeds, and classes with few records.
                warnings.simplefilter("ignore")
                found.append(measured(rows, name, *cell))
        pd.DataFrame(found).round(5).to_csv(options.out / "further.csv", index=False)
    text = markdown(table(pd.DataFrame(found).round(5)))
    (options.out / "further.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
