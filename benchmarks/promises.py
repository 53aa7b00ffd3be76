"""``python -m benchmarks.promises --data DIR``: is a weaker promise less accurate than a stronger?

Logistic regression with its defaults hides any distance, first with labels public and then with
labels protected, which promises more at the same numbers. Records are few: 1,000 to 3,000, the
first of a permutation; ``digits`` come with scikit-learn. Both see the same seeds. Writes
``promises.csv`` and ``promises.md``, and ends with an error where the weaker promise is more than
two standard errors of thirty fits behind.
"""

import itertools
import sys

import numpy as np
import pandas as pd

from benchmarks.study import Study, accuracies, mean_error, options, rows_of, seeds_of, show
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
    rows, seeds = (
        rows_of(run.data, dataset, RECORDS[dataset]),
        seeds_of(run, RELEASES, dataset, epsilon),
    )
    cell = {}
    for labels, radius in (("public", "full"), ("protected", "any")):
        scores = accuracies(BallDPLogisticRegression(), rows, radius, epsilon, seeds)
        cell[labels], cell[f"{labels} error"], _ = mean_error(scores).values()
    return cell


CELLS = Study("promises.csv", ("dataset", "epsilon"), measure)


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


def main(argv=None):
    run = options("promises", __doc__, argv, RECORDS)
    epsilons = EPSILONS[1:2] if run.quick else EPSILONS
    cells = CELLS.fill(itertools.product(run.datasets, epsilons), run)
    show(table(cells), run.out, "promises")
    if not run.quick and (behind(cells) > 2.0).any():
        sys.exit("a weaker promise is less accurate than a stronger one.")


if __name__ == "__main__":
    main()
