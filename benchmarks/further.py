"""``python -m benchmarks.further --data DIR``: what a descent promises beyond its radius.

For each data set, head, start, radius and epsilon: epsilon at any distance as it follows from the
promise at the radius alone ("alone"), as it is promised there too ("promised"), and what the runs
came to by their answers ("realised", which is no guarantee). Both kinds of fits see the same seeds.
Persons have three records each. Writes ``further.csv`` (every cell) and ``further.md`` (medians,
worst cases, and what the promises cost in accuracy).
"""

import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd

from benchmarks.study import DELTA, Study, fits, options, rows_of, show
from sklearn_balldp import BallDPLogisticRegression, BallDPSquaredHingeSVC, GradientPerturbation
from sklearn_balldp.mechanisms import drive
from sklearn_balldp.privacy.gaussian import epsilon_from_mu

#: Sets that the rule was chosen on, then those that it is judged on.
CHOSEN = "digits", "trec6", "emotion", "banking77", "agnews", "imdb", "cifar10", "mnist"
JUDGED = "hwu64", "snips", "letter"
HEADS = {"logistic": BallDPLogisticRegression, "hinge": BallDPSquaredHingeSVC}
STARTS, UNITS = ("auto", "zero"), ("records", "persons", "weights")
RADII, EPSILONS, RELEASES = (0.1, 0.3, 0.6, 1.2), (0.5, 2.0, 8.0), 3
#: Training records of sets with many classes, and of others.
MANY, USUAL = dict.fromkeys(("banking77", "hwu64", "letter"), 6000), 4000


class Alone(GradientPerturbation):
    """A descent that promises nothing beyond its radius."""

    def bound(self, problem, mu):
        return replace(super().bound(problem, mu), further=())


def realised(head, radius):
    """Epsilon that the answers of a fit came to at a radius."""
    released, spent = head.released_, []
    answers = iter(released.answers)

    def answer(query):
        spent.append(query.mu(released.problem, radius))
        return next(answers)

    drive(released.conversation(), answer)
    return epsilon_from_mu(math.hypot(*spent), DELTA)


def measure(run, dataset, unit, kind, start, radius, epsilon):
    """Both kinds of fits, at the same seeds."""
    X, y, Xt, yt = rows_of(run.data, dataset, MANY.get(dataset, USUAL), 2000)
    persons = {"groups": np.arange(len(y)) // 3} if unit == "persons" else {}
    cell, far = {}, 2.0
    for label, mechanism in (("alone", Alone), ("promised", GradientPerturbation)):
        head = HEADS[kind](epsilon, DELTA, radius)
        head.set_params(mechanism=mechanism(start=start, keep_transcript=True))
        if unit == "weights":
            head.set_params(class_weight="balanced")
        releases = fits(
            head, X, y, range(run.seed, run.seed + (1 if run.quick else RELEASES)), **persons
        )
        release = releases[-1].release_
        cell["steps"], cell[label] = release.bound.n_steps, release.guarantee(far).epsilon
        cell[f"{label} at 2 r"] = release.guarantee(min(2.0 * radius, far)).epsilon
        cell[f"{label}, accuracy"] = np.mean([own.score(Xt, yt) for own in releases])
        cell[f"{label}, realised"] = np.median([realised(own, far) for own in releases])
    return cell


CELLS = Study("further.csv", ("dataset", "unit", "head", "start", "radius", "epsilon"), measure)


def table(cells):
    """Medians and worst cases, by group of sets, what is replaced, the start, and epsilon."""
    lines, keys = [], ["sets", "units", "begins at", "epsilon"]
    # From sums there are 1 or 20 steps, after the mean 60, as from zero.
    sums = cells["steps"].map({1: "sums, one step", 20: "sums"}).fillna("the mean")
    cells = cells.assign(
        sets=np.where(cells["dataset"].isin(JUDGED), "judging", "choosing"),
        units=cells["unit"],
        change=100.0 * (cells["promised, accuracy"] - cells["alone, accuracy"]),
        **{"begins at": sums.where(cells["start"] == "auto", "zero")},
    )
    for key, group in cells.groupby(keys):
        both = [f"{group[c].median():.3g} / {group[c].max():.3g}" for c in ("alone", "promised")]
        change = group["change"]
        lines.append(
            {
                **dict(zip(keys, key, strict=True)),
                "cells": len(group),
                "alone (median / worst)": both[0],
                "promised": both[1],
                "realised": f"{group['promised, realised'].median():.3g}",
                "points (mean / worst)": f"{change.mean():+.2f} / {change.min():+.2f}",
            }
        )
    return pd.DataFrame(lines)


def main(argv=None):
    run = options("further", __doc__, argv, (*CHOSEN, *JUDGED))
    ways = (
        HEADS,
        STARTS,
        RADII[1:2] if run.quick else RADII,
        EPSILONS[2:] if run.quick else EPSILONS,
    )
    cells = [
        (name, unit, *way)
        for name in run.datasets
        for unit in (UNITS if name in ("digits", "snips") else UNITS[:1])
        for way in itertools.product(*ways)
    ]
    show(table(CELLS.fill(cells, run)), run.out, "further")


if __name__ == "__main__":
    main()
