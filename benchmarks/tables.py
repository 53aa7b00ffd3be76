"""Tables of columns, beside DP-EBM and diffprivlib.

The tables are those that packages carry: breast cancer (scikit-learn), ACTG175 (lifelines), fair,
anes96 and randhie (statsmodels; the last two were chosen before any number was seen), and flchain
(scikit-survival). DP-EBM needs interpret-core, and the other diffprivlib 0.6.6 with scikit-learn
1.7: what a Python lacks is named, and its cells are left as they are. Every method has the same
bounds, from these sources and not from the records: codebooks of the packages; ages of adults;
trials that are open to counts and weights which a clinic expects; serum free light chains and
creatinine to about three times the upper end of their reference intervals; those of breast cancer
are in ``sklearn_balldp.datasets``.
The noise of DP-EBM hides a record added or removed, ours one replaced, which is harder.
"""

import importlib
import importlib.util
import itertools
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

from benchmarks.study import DELTA, Study, means, say, seeds_of, show
from sklearn_balldp import BallDPLogisticRegression
from sklearn_balldp.datasets import BREAST_CANCER
from sklearn_balldp.encoders import TableEncoder

YES = ["0", "1"]
FLAGS = "hemo homo drugs oprior z30 race gender symptom treat offtrt"
COLUMNS = {
    "cancer": BREAST_CANCER,
    "actg": {
        "age": [12, 75],
        "wtkg": [30, 150],
        "karnof": [60, 100],
        "preanti": [0, 3000],
        "cd40": [0, 1000],
        "cd420": [0, 1000],
        "cd80": [0, 3000],
        "cd820": [0, 3000],
        **dict.fromkeys(FLAGS.split(), YES),
    },
    "fair": {
        "age": [17, 45],
        "yrs_married": [0, 25],
        "children": [0, 6],
        "religious": [1, 4],
        "educ": [9, 20],
        "rate_marriage": list("12345"),
        "occupation": list("123456"),
        "occupation_husb": list("123456"),
    },
    "flchain": {
        "age": [50, 100],
        "sex": ["F", "M"],
        "sample.yr": [1995, 2003],
        "kappa": [0, 5],
        "lambda": [0, 5],
        "flc.grp": [1, 10],
        "creatinine": [0.4, 3],
        "mgus": ["no", "yes"],
    },
    "anes96": {
        "popul": [0, 10, 100, 1000, 10_000],
        "TVnews": [0, 7],
        "selfLR": [1, 7],
        "ClinLR": [1, 7],
        "DoleLR": [1, 7],
        "PID": [0, 6],
        "age": [18, 95],
        "educ": [1, 7],
        "income": [1, 24],
    },
    "randhie": {
        "lncoins": [0, 4.7],
        "idp": YES,
        "lpi": [0, 7.5],
        "fmde": [0, 8.5],
        "physlm": [0, 1],
        "disea": [0, 60],
        **dict.fromkeys(("hlthg", "hlthf", "hlthp"), YES),
    },
}
PACKAGES = {"cancer": "sklearn", "actg": "lifelines", "flchain": "sksurv"}
OURS, EBM, IBM, NONE = ("ours, standard DP", "ours, any one cell"), "DP-EBM", "diffprivlib", "none"
PEERS = {EBM: "interpret", IBM: "diffprivlib.models"}
EPSILONS, SPLITS = (0.25, 0.5, 1.0, 2.0), 10
NUMBERS = ("accuracy", "auc", "log loss")


def has(package):
    """Whether a package is there, and runs beside the others."""
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True


def table_of(name):
    """Columns and labels of a table that a package carries."""
    if name == "cancer":
        from sklearn.datasets import load_breast_cancer

        return load_breast_cancer(return_X_y=True, as_frame=True)
    if name == "flchain":
        from sksurv.datasets import load_flchain

        X, y = load_flchain()
        return X, y["death"].astype(int)
    if name == "actg":
        folder = Path(importlib.util.find_spec("lifelines").origin).parent / "datasets"
        X = pd.read_csv(folder / "ACTG175.csv")
        return X, X["cens"]
    from statsmodels import datasets

    X = getattr(datasets, name).load_pandas().data
    label = {"fair": "affairs", "anes96": "vote", "randhie": "mdvis"}[name]
    return X, (X[label] > 0).astype(int)


def split(name, seed):
    """Columns of training records and of others, labels of both."""
    X, y = table_of(name)
    y, order = np.asarray(y), np.random.default_rng(seed % 2**32).permutation(len(y))
    test, train = np.split(order, [min(5000, len(y) // 4)])
    return X.iloc[train], y[train], X.iloc[test], y[test]


def released(name, method, epsilon, seed):
    """Probabilities of the second class, labels."""
    X, y, Xt, yt = split(name, seed)
    columns = COLUMNS[name]
    encoder = TableEncoder(columns)
    if method == EBM:
        from interpret.privacy import DPExplainableBoostingClassifier

        numbers = [not isinstance(declared[0], str) for declared in columns.values()]
        kinds = ["continuous" if number else "nominal" for number in numbers]
        bounds = [
            (declared[0], declared[-1]) if number else (np.nan, np.nan)
            for declared, number in zip(columns.values(), numbers, strict=True)
        ]
        tables = []
        for part in (X, Xt):
            part = part[list(columns)].copy()
            for column, number in zip(columns, numbers, strict=True):
                cells = part[column].astype(float if number else str)
                part[column] = cells.fillna(columns[column][0]) if number else cells
            tables.append(part)
        head = DPExplainableBoostingClassifier(
            epsilon=epsilon,
            delta=DELTA,
            feature_types=kinds,
            privacy_bounds=np.array(bounds, dtype=float),
        )
        return head.fit(tables[0], y).predict_proba(tables[1])[:, 1], yt
    rows, test = encoder.transform(X), encoder.transform(Xt)
    if method == IBM:
        from diffprivlib.models import LogisticRegression as Private

        head = Private(epsilon=epsilon, data_norm=1.0, random_state=seed % 2**31, max_iter=300)
        rows, test = rows.astype(float), test.astype(float)
        # Single precision leaves rows a little longer than one.
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    elif method == NONE:
        head = LogisticRegression(C=100.0, max_iter=500)
    else:
        head = BallDPLogisticRegression(
            epsilon, DELTA, encoder.radius(1), domain="sphere", random_state=seed
        )
        if method == OURS[0]:
            head.set_params(radius=2**0.5, protect_labels=True, classes=[0, 1])
    return head.fit(rows, y).predict_proba(test)[:, 1], yt


def measure(run, dataset, method, epsilon):
    found = []
    for seed in seeds_of(run, SPLITS, dataset):
        with warnings.catch_warnings():
            # Other libraries warn of what a benchmark asks for on purpose.
            warnings.simplefilter("ignore")
            p, y = released(dataset, method, epsilon, seed)
        p = np.clip(p, 1e-6, 1.0 - 1e-6)
        found.append([np.mean((p > 0.5) == y), roc_auc_score(y, p), log_loss(y, p)])
    return means(dict(zip(NUMBERS, zip(*found, strict=True), strict=True)))


def at_hand():
    """Tables whose package is there."""
    return [name for name in COLUMNS if has(PACKAGES.get(name, "statsmodels"))]


def cells_of(run):
    names, methods = at_hand(), [*OURS, *(peer for peer in PEERS if has(PEERS[peer]))]
    if missing := [name for name in (*COLUMNS, *PEERS) if name not in (*names, *methods)]:
        say(f"left as they are, for a package is missing: {', '.join(missing)}")
    for name in names:
        yield name, NONE, 0.0
        yield from itertools.product([name], methods, EPSILONS)


CELLS = Study(
    "tables.csv",
    ("dataset", "method", "epsilon"),
    measure,
    cells_of,
    {name: f"{name} error" for name in NUMBERS},
)
STUDIES = (CELLS,)


def table(cells, number="accuracy"):
    """Epsilons in a cell, a column for each table."""
    rows, percent = [], number != "log loss"
    for method in (m for m in (*OURS, *PEERS, NONE) if (cells["method"] == m).any()):
        row = {number: "without noise" if method == NONE else method}
        for name in COLUMNS:
            own = cells[(cells["dataset"] == name) & (cells["method"] == method)]
            values = own.sort_values("epsilon")[number]
            row[name] = " / ".join(f"{100 * v:.1f}" if percent else f"{v:.2f}" for v in values)
        rows.append(row)
    return pd.DataFrame(rows)


def report(out):
    cells = CELLS.read(out)
    for number in NUMBERS:
        show(table(cells, number), out, f"tables_{number.replace(' ', '_')}", cells)
