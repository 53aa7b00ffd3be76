"""``python -m benchmarks.paper.later --data DIR``: the authors' later table, at q80 and epsilon 8.

It prints, for the noise of a ball of the q80 distance, the certificate for ten candidates at any
distance, and the accuracy of class prototypes. Beside it stand what this package computes, the
certificate that holds there (no row of the ball is further than B from the zero record), and what
its defaults reach at the same promise.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.base import clone

from sklearn_balldp.datasets import load_embeddings
from sklearn_balldp.privacy.gaussian import mu_from_budget

from .protocol import DATASETS, DELTA, METHODS, N_CANDIDATES, QUANTILES, radius_of
from .tables import markdown

EPSILON, N_RELEASES = 8.0, 20
PUBLISHED = Path(__file__).parent / "published" / "later.csv"
RESULTS = Path(__file__).parents[1] / "results"


def accuracy(name, data, radius):
    """Mean test accuracy of releases at this radius, and its standard error."""
    head = clone(METHODS[name][0]).set_params(epsilon=EPSILON, delta=DELTA, radius=radius)
    found = []
    for seed in range(N_RELEASES):
        own = clone(head).set_params(random_state=seed)
        found.append(own.fit(data.X_train, data.y_train).score(data.X_test, data.y_test))
    return float(np.mean(found)), float(np.std(found, ddof=1) / np.sqrt(len(found)))


def rows(folder):
    """A row for each dataset of the printed table."""
    for printed in pd.read_csv(PUBLISHED).itertuples():
        path = folder / f"{printed.dataset}.npz"
        radius = radius_of(path, QUANTILES["q80"])
        mu = mu_from_budget(EPSILON, DELTA)
        blind = norm.ppf(1.0 / N_CANDIDATES)
        far, valid = (float(norm.cdf(blind + mu * t / radius)) for t in (2.0, min(radius, 1.0)))
        cells = {}
        for name, method in (("prototypes", "ridge paper"), ("defaults", "logistic")):
            mean, error = accuracy(method, load_embeddings(path), radius)
            cells[name] = f"{mean:.3f} ± {error:.3f}"
        yield {
            "data": DATASETS[printed.dataset],
            "radius": f"{radius:.3f}",
            "certificate, printed": f"{printed.certificate:.4f}",
            "the same, computed": f"{far:.4f}",
            "what holds": f"{valid:.4f}",
            "prototypes, printed": f"{printed.accuracy:.3f}",
            "the same, measured": cells["prototypes"],
            "defaults, same ball": cells["defaults"],
        }


def main():
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    table = pd.DataFrame(rows(given.data))
    (given.out / "later.md").write_text(markdown(table))
    print(table.to_string(index=False))


if __name__ == "__main__":
    main()
