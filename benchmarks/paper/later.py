"""The authors' later table, at q80 and epsilon 8.

It prints, for the noise of a ball of the q80 distance, the certificate for ten candidates at any
distance, and the accuracy of class prototypes. Beside it stand what this package computes, the
certificate that holds there (no row of the ball is further than B from the zero record), and what
its defaults reach at the same promise.
"""

import pandas as pd
from scipy.stats import norm

from benchmarks.study import DATASETS, DELTA, Study, accuracies, means, radius_of, rows_of, seeds_of
from sklearn_balldp.privacy.gaussian import mu_from_budget

from . import published
from .cells import METHODS, N_CANDIDATES, QUANTILES

EPSILON, N_RELEASES = 8.0, 20
PRINTED = published.LATER.set_index("dataset")


def measure(run, dataset):
    """Accuracy of prototypes in paper mode, and of the defaults, in the same ball."""
    radius, rows = radius_of(run.data, dataset, QUANTILES["q80"]), rows_of(run.data, dataset)
    seeds = seeds_of(run, N_RELEASES, "later", dataset)
    found = {
        name: accuracies(METHODS[method][0], rows, radius, EPSILON, seeds)
        for name, method in (("paper mode", "ridge paper"), ("defaults", "logistic"))
    }
    return {"radius": radius, **means(found)}


CELLS = Study(
    "later.csv",
    ("dataset",),
    measure,
    lambda run: [(name,) for name in run.have(PRINTED.index)],
    {"radius": 0.001, "paper mode": "paper mode error", "defaults": "defaults error"},
)


def table(cells):
    """A row for each dataset of the printed table."""
    mu, blind, rows = mu_from_budget(EPSILON, DELTA), norm.ppf(1.0 / N_CANDIDATES), []
    for cell in cells.to_dict("records"):
        radius, printed = float(cell["radius"]), PRINTED.loc[cell["dataset"]]
        far, valid = (float(norm.cdf(blind + mu * t / radius)) for t in (2.0, min(radius, 1.0)))
        measured = [f"{cell[n]:.3f} ± {cell[f'{n} error']:.3f}" for n in ("paper mode", "defaults")]
        rows.append(
            {
                "data": DATASETS[cell["dataset"]],
                "radius": f"{radius:.3f}",
                "certificate, printed": f"{printed['certificate']:.4f}",
                "the same, computed": f"{far:.4f}",
                "what holds": f"{valid:.4f}",
                "prototypes, printed": f"{printed['accuracy']:.3f}",
                "the same, measured": measured[0],
                "defaults, same ball": measured[1],
            }
        )
    return pd.DataFrame(rows)
