"""What probabilities are worth.

Log loss and expected calibration error (15 bins of the largest probability) beside accuracy, on the
tables of :mod:`benchmarks.tables` and six of the paper's datasets, at most 4000 records of each.
"as trained" are the scores of the last step; "public rows" are those scores behind scikit-learn's
CalibratedClassifierCV on 500 rows that are neither trained nor tested on; "best scale" is the
factor of least log loss on the test rows, which nobody has.
"""

import contextlib
import functools
import itertools
import warnings
from unittest import mock

import numpy as np
import pandas as pd
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from benchmarks.study import DELTA, Study, means, rows_of, seeds_of, show
from benchmarks.tables import COLUMNS, at_hand, table_of
from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
)
from sklearn_balldp.encoders import TableEncoder
from sklearn_balldp.mechanisms import descent

EMBEDDED = ("imdb", "trec6", "emotion", "banking77", "cifar10", "mnist")
HEADS = {
    "logistic": BallDPLogisticRegression(domain="sphere"),
    "discriminant": BallDPLinearDiscriminant(domain="sphere"),
    "prototypes": BallDPRidgePrototype(domain="sphere"),
}
PROMISES, EPSILONS, RECORDS, PUBLIC = ("any", "ball"), (0.5, 1.0, 2.0), 4000, 500
KINDS = ("as trained", "released", "public rows", "best scale")
NUMBERS = ("accuracy", "log loss", "calibration")


@functools.lru_cache(maxsize=1)
def data_of(folder, name):
    """Training rows, public rows and test rows with their labels; the radius of a small change."""
    if name not in COLUMNS:
        X, y, Xt, yt = rows_of(folder, name, RECORDS, 2000 + PUBLIC)
        radius = 0.3
    else:
        X, y = table_of(name)
        encoder, y = TableEncoder(COLUMNS[name]), np.asarray(y)
        order = np.random.default_rng(0).permutation(len(y))
        X, radius = encoder.transform(X)[order], encoder.radius(1)
        y, n = y[order], min(RECORDS, 2 * len(y) // 3)
        X, y, Xt, yt = X[:n], y[:n], X[n:], y[n:]
    public = min(PUBLIC, len(yt) // 3)
    return (X, y), (Xt[:public], yt[:public]), (Xt[public:][:2000], yt[public:][:2000]), radius


def calibration_error(p, codes, n_bins=15):
    """Mean distance of the largest probability and the share of right predictions, by bins."""
    sure, right = p.max(axis=1), p.argmax(axis=1) == codes
    bins = np.minimum((sure * n_bins).astype(int), n_bins - 1)
    gaps = [abs((sure - right)[bins == b].sum()) for b in range(n_bins)]
    return sum(gaps) / len(p)


def numbers(p, y, classes):
    p = np.clip(p, 1e-12, 1.0)
    codes = np.searchsorted(classes, y)
    return {
        "accuracy": np.mean(p.argmax(axis=1) == codes),
        "log loss": log_loss(y, p / p.sum(axis=1, keepdims=True), labels=classes),
        "calibration": calibration_error(p, codes),
    }


def measure(run, dataset, head, promise, epsilon, kind):
    (X, y), public, (Xt, yt), radius = data_of(run.data, dataset)
    classes = np.unique(y)
    if head == "none":
        fits = [LogisticRegression(C=c, max_iter=300).fit(X, y) for c in (1.0, 10.0, 100.0)]
        found = [numbers(own.predict_proba(Xt), yt, classes) for own in fits]
        return means(
            {name: [value] for name, value in min(found, key=lambda own: own["log loss"]).items()}
        )
    found = []
    for seed in seeds_of(run, 2, dataset, promise, epsilon):
        params = {"epsilon": epsilon, "delta": DELTA, "radius": radius, "random_state": seed}
        if promise == "any":
            largest = 2**0.5 if dataset in COLUMNS else None
            params |= {"protect_labels": True, "classes": classes, "radius": largest}
        with warnings.catch_warnings(), contextlib.ExitStack() as stack:
            # Little signal is what is measured, and seeds make it repeatable.
            warnings.simplefilter("ignore")
            if kind != "released":
                stack.enter_context(mock.patch.object(descent, "factor_of", return_value=1.0))
            own = clone(HEADS[head]).set_params(**params).fit(X, y)
            if kind == "public rows":
                own = CalibratedClassifierCV(FrozenEstimator(own)).fit(*public)
        p = own.predict_proba(Xt)
        if kind == "best scale":
            logs = np.log(np.clip(p, 1e-300, 1.0))

            def loss(a, logs=logs):
                return log_loss(yt, np.exp(log_softmax(a * logs, axis=1)), labels=classes)

            best = minimize_scalar(loss, bounds=(0.02, 5.0), method="bounded").x
            p = np.exp(log_softmax(best * logs, axis=1))
        found.append(numbers(p, yt, classes))
    return means(found)


def cells_of(run):
    for name in (*at_hand(), *run.have(EMBEDDED)):
        yield name, "none", "none", 0.0, "none"
        yield from itertools.product([name], ["logistic"], PROMISES, EPSILONS, KINDS)
        yield from itertools.product(
            [name], ["discriminant", "prototypes"], ["ball"], EPSILONS, KINDS[1:3]
        )


CELLS = Study(
    "probabilities.csv",
    ("dataset", "head", "promise", "epsilon", "kind"),
    measure,
    cells_of,
    {name: f"{name} error" for name in NUMBERS},
)
STUDIES = (CELLS,)


def table(cells):
    """Means over datasets of a group, and how much of the excess over no noise is gone."""
    none = cells[cells["head"] == "none"].set_index("dataset")["log loss"]
    rows = []
    for tables, head, epsilon in itertools.product((True, False), HEADS, EPSILONS):
        own = cells[(cells["head"] == head) & (cells["epsilon"] == epsilon)]
        own = own[own["dataset"].isin(COLUMNS) == tables]
        if own.empty:
            continue
        shown = list(NUMBERS)
        wide = own.pivot_table(index=["dataset", "promise"], columns="kind", values=shown)
        row = {"data": "tables" if tables else "embedded", "head": head, "epsilon": f"{epsilon:g}"}
        row["accuracy"] = f"{100 * wide['accuracy']['released'].mean():.1f}"
        for kind in KINDS:
            if kind in wide["log loss"]:
                mean, error = wide["log loss"][kind].mean(), wide["calibration"][kind].mean()
                row[kind] = f"{mean:.3f} ({error:.3f})"
        if head == "logistic":
            without = none.reindex(wide.index.get_level_values("dataset")).mean()
            loss = wide["log loss"].mean()
            excess = loss["as trained"] - without
            row["without noise"] = f"{without:.3f}"
            for title, kind in (("gone", "released"), ("best gone", "best scale")):
                row[title] = f"{100 * (loss['as trained'] - loss[kind]) / excess:.0f} %"
        rows.append(row)
    return pd.DataFrame(rows).fillna("")


def report(out):
    cells = CELLS.read(out)
    show(table(cells), out, "probabilities", cells)
