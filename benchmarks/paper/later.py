"""The authors' later table, at q80 and epsilon 8.

It prints, for the noise of a ball of the q80 distance, the certificate for ten candidates at any
distance, and the accuracy of class prototypes. Beside it stand what this package computes, the
certificate that holds there (no row of the ball is further than B from the zero record), and what
its defaults reach at the same promise.
"""

import pandas as pd
from scipy.stats import norm

from benchmarks.study import DATASETS, DELTA, accuracies, mean_error, radius_of, rows_of
from sklearn_balldp.privacy.gaussian import mu_from_budget

from . import published
from .cells import METHODS, N_CANDIDATES, QUANTILES

EPSILON, N_RELEASES = 8.0, 20


def table(folder, datasets):
    """A row for each dataset of the printed table."""
    mu, blind, rows = mu_from_budget(EPSILON, DELTA), norm.ppf(1.0 / N_CANDIDATES), []
    for printed in published.LATER[published.LATER["dataset"].isin(datasets)].itertuples():
        radius = radius_of(folder, printed.dataset, QUANTILES["q80"])
        far, valid = (float(norm.cdf(blind + mu * t / radius)) for t in (2.0, min(radius, 1.0)))
        cells = []
        for method in ("ridge paper", "logistic"):
            head, data = METHODS[method][0], rows_of(folder, printed.dataset)
            scores = mean_error(accuracies(head, data, radius, EPSILON, range(N_RELEASES)))
            cells.append(f"{scores['mean']:.3f} ± {scores['error']:.3f}")
        rows.append(
            {
                "data": DATASETS[printed.dataset],
                "radius": f"{radius:.3f}",
                "certificate, printed": f"{printed.certificate:.4f}",
                "the same, computed": f"{far:.4f}",
                "what holds": f"{valid:.4f}",
                "prototypes, printed": f"{printed.accuracy:.3f}",
                "the same, measured": cells[0],
                "defaults, same ball": cells[1],
            }
        )
    return pd.DataFrame(rows)
