"""``python -m benchmarks.promises --data DIR``: is a weaker promise less accurate than a stronger?

Logistic regression with its defaults hides any distance, first with labels public and then with
labels protected, which promises more at the same numbers. Records are few: 1,000 to 3,000, the
first of a permutation; ``digits`` come with scikit-learn. Both see the same seeds. Writes
``promises.csv`` and ``promises.md``, and ends with an error where the weaker promise is more than
two standard errors of thirty fits behind.
"""

import argparse
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize
from tqdm import tqdm

from benchmarks import noiseless
from benchmarks.paper.tables import markdown
from sklearn_balldp import BallDPLogisticRegression
from sklearn_balldp.datasets import load_embeddings

#: Records that are kept of each dataset; digits leave a quarter for tests.
RECORDS = {
    "digits": 1347,
    "trec6": 1500,
    "snips": 2000,
    "emotion": 2000,
    "letter": 1500,
    "banking77": 3000,
}
EPSILONS, RELEASES = (0.25, 0.5, 1.0, 2.0), 30


def rows_of(folder, name):
    """Some records of a dataset, and its test rows."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        X, Xt, y, yt = train_test_split(normalize(X), y, test_size=0.25, random_state=0)
        return X, y, Xt, yt
    file = load_embeddings(folder / f"{name}.npz")
    X, y, Xt, yt = (file[part] for part in ("X_train", "y_train", "X_test", "y_test"))
    kept = np.random.default_rng(0).permutation(len(X))[: RECORDS[name]]
    return X[kept], y[kept], Xt, yt


def measure(rows, name, epsilon, protected):
    """Mean test accuracy over releases, and its standard error."""
    X, y, Xt, yt = rows
    head = BallDPLogisticRegression(epsilon, 1e-6)
    if protected:
        head.set_params(protect_labels=True, classes=np.unique(y))
    scores = []
    for release in range(RELEASES):
        head.set_params(random_state=zlib.crc32(f"{name} {epsilon} {release}".encode()))
        with noiseless.shared(X):
            scores.append(head.fit(X, y).score(Xt, yt))
    return np.mean(scores), np.std(scores, ddof=1) / np.sqrt(RELEASES)


def table(cells):
    """A row for each cell, in points; ``behind`` is in standard errors of the difference."""
    return pd.DataFrame(
        {
            "data": cells["dataset"],
            "records": cells["dataset"].map(RECORDS),
            "epsilon": cells["epsilon"].map("{:g}".format),
            "labels public": (100 * cells["public"]).map("{:.1f}".format),
            "labels protected": (100 * cells["protected"]).map("{:.1f}".format),
            "behind": behind(cells).map("{:+.1f}".format),
        }
    )


def behind(cells):
    """By how many standard errors the weaker promise is less accurate."""
    error = np.hypot(cells["public error"], cells["protected error"])
    return (cells["protected"] - cells["public"]) / error


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.promises", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("promises-results"))
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    found = []
    for name in RECORDS:
        rows = rows_of(options.data, name)
        for epsilon in tqdm(EPSILONS, desc=name, disable=None):
            with warnings.catch_warnings():
                # Seeds, and classes with few records.
                warnings.simplefilter("ignore")
                weaker = measure(rows, name, epsilon, False)
                stronger = measure(rows, name, epsilon, True)
            found.append((name, epsilon, *weaker, *stronger))
    columns = ["dataset", "epsilon", "public", "public error", "protected", "protected error"]
    cells = pd.DataFrame(found, columns=columns)
    cells.round(5).to_csv(options.out / "promises.csv", index=False)
    text = markdown(table(cells))
    (options.out / "promises.md").write_text(text)
    print(text)
    if (behind(cells) > 2.0).any():
        sys.exit("a weaker promise is less accurate than a stronger one.")


if __name__ == "__main__":
    main()
