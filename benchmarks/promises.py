"""Is a weaker promise less accurate than a stronger?

Logistic regression with its defaults hides any distance, first with labels public and then with
labels protected, which promises more at the same numbers. Records are few: 1,000 to 3,000, the
first of a permutation; ``digits`` come with scikit-learn. Both see the same seeds. It is a fault
where the weaker promise is more than two standard errors of thirty fits behind.
"""

import itertools

import numpy as np
import pandas as pd

from benchmarks.study import Study, accuracies, means, rows_of, seeds_of, show
from sklearn_balldp import BallDPLogisticRegression

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


def measure(run, dataset, epsilon):
    rows = rows_of(run.data, dataset, RECORDS[dataset])
    seeds = seeds_of(run, RELEASES, dataset, epsilon)
    ways = {"public": "full", "protected": "any"}.items()
    head = BallDPLogisticRegression()
    return means({name: accuracies(head, rows, radius, epsilon, seeds) for name, radius in ways})


CELLS = Study(
    "promises.csv",
    ("dataset", "epsilon"),
    measure,
    lambda run: itertools.product(run.have(RECORDS), EPSILONS),
    {"public": "public error", "protected": "protected error"},
)
STUDIES = (CELLS,)


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


def report(out):
    cells = CELLS.read(out)
    show(table(cells), out, "promises", cells)
    if (behind(cells) > 2.0).any():
        return ["a weaker promise is less accurate than a stronger one"]
    return []
