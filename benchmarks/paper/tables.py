"""Tables from measured cells: values with their 95% intervals, beside the paper's."""

import dataclasses
import itertools
import math
from statistics import NormalDist

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator

from benchmarks.study import ADJACENCY, DATASETS, DELTA, ORIGIN, number
from sklearn_balldp.audit.certificates import rero_bound, rero_bound_dp
from sklearn_balldp.privacy.gaussian import delta_from_mu, mu_from_budget

from . import later, published
from .cells import (
    AUDITED,
    EPSILONS,
    LINES,
    N_CANDIDATES,
    NOISELESS,
    PAPERS_NUMBER,
    PUBLIC_LABELS,
    STUDIES,
    WITHOUT_NOISE,
)

#: Columns of accuracy, and the method behind each.
COLUMNS = {"prototypes": "ridge", "logistic": "logistic", "SVC": "svc"}
#: Certificates of ten candidates at the q50 distance, at which lines are compared.
COMPARED_AT = (0.15, 0.2, 0.3, 0.5, 0.8)


@dataclasses.dataclass(frozen=True)
class Results:
    """Measured cells, with lookups."""

    accuracy: pd.DataFrame
    identification: pd.DataFrame
    radius: pd.DataFrame
    later: pd.DataFrame

    @classmethod
    def read(cls, folder):
        """Cells in ``folder``."""
        tables = {name: study.read(folder) for name, study in STUDIES.items()}
        return cls(**tables, later=later.CELLS.read(folder))

    @property
    def cells(self):
        """Origin of every cell of the tables."""
        every = self.accuracy, self.identification, self.radius
        return pd.concat([table[list(ORIGIN)] for table in every if len(table)])

    @property
    def datasets(self):
        tables = self.accuracy, self.identification, self.radius
        return [name for name in DATASETS if any((t["dataset"] == name).any() for t in tables)]

    def of(self, dataset, method, policy, epsilon):
        """The accuracy cell, or None where it was not measured."""
        return _cell(self.accuracy, dataset=dataset, method=method, policy=policy, epsilon=epsilon)

    def noiseless(self, dataset, method):
        return self.of(dataset, method, "full", NOISELESS)

    def audit(self, dataset, counts, policy, epsilon):
        key = {"dataset": dataset, "counts": counts, "policy": policy, "epsilon": epsilon}
        return _cell(self.identification, **key)

    def radius_of(self, dataset, policy):
        return _cell(self.radius, dataset=dataset, policy=policy)


def _cell(table, **key):
    """The row with these values, or None."""
    here = np.logical_and.reduce([table[name] == value for name, value in key.items()])
    return table[here].iloc[-1] if here.any() else None


def half_of(cell):
    """Half of an interval."""
    return (cell["high"] - cell["low"]) / 2


def interval(cell):
    """A mean and half of its interval, as text."""
    if cell is None:
        return ""
    half = half_of(cell)
    return f"{cell['mean']:.3f}" if half == 0 else f"{cell['mean']:.3f} ± {half:.3f}"


def rate(cell):
    return "" if cell is None else f"{cell['rate']:.3f} [{cell['low']:.3f}, {cell['high']:.3f}]"


def signed(value):
    return "" if value is None or math.isnan(value) else f"{value:+.3f}"


def value_of(cell, name="mean"):
    return None if cell is None else cell[name]


def difference(cell, value, name="mean"):
    """A cell less a published number, or None where one is missing."""
    return None if cell is None or value is None else cell[name] - value


def with_values(rows, named, columns=None):
    """A table of the rows in which something beside the first columns was measured."""
    table = pd.DataFrame(rows, columns=columns, dtype=object).fillna("")
    return table[(table.iloc[:, named:] != "").any(axis=1)] if len(table) else table


def table1(results, epsilon=2.0):
    """Accuracy of every head, a row for each thing hidden: the paper's Table 1."""
    rows = []
    for dataset, policy in itertools.product(results.datasets, ("none", *PUBLIC_LABELS, "labels")):
        row = {"data": DATASETS[dataset], "hides": ADJACENCY[policy]}
        if policy == "none":
            row["paper mode"] = interval(results.noiseless(dataset, "ridge per class"))
        else:
            value = published.TABLE1.get(dataset, {}).get(policy)
            own = results.of(dataset, "ridge paper", policy, epsilon)
            row |= {"paper": number(value), "paper mode": interval(own)}
            row["difference"] = signed(difference(own, value))
            if row["difference"]:
                scaled = results.of(dataset, PAPERS_NUMBER, policy, epsilon)
                row["its formula, its n"] = interval(scaled)
        for column, method in COLUMNS.items():
            cell = results.of(dataset, method, policy, epsilon)
            if policy == "none" and results.of(dataset, method, "q50", epsilon) is not None:
                cell = results.noiseless(dataset, WITHOUT_NOISE[method])
            row[column] = interval(cell)
        rows.append(row)
    columns = ["data", "hides", "paper", "paper mode", "difference", "its formula, its n"]
    # Rows and columns that nothing was measured in are left out.
    table = with_values(rows, 2, [*columns, *COLUMNS])
    return table.loc[:, [*(table != "").any()]]


def worth(results):
    """Accuracy at equal certificates for the same candidates, which lie within the q50 radius.

    A gain has half of its 95% interval, from those of its cells.
    """
    names, rows = list(LINES), []
    for dataset in results.datasets:
        lines = [_at_certificates(results, dataset, *line) for line in LINES.values()]
        if any(line is None for line in lines):
            continue
        for place, at in enumerate(COMPARED_AT):
            (ball, half), *others = [line[place] for line in lines]
            row = {"data": DATASETS[dataset], "certificate": f"{at:g}"}
            row |= {name: number(line[place][0]) for name, line in zip(names, lines, strict=True)}
            for name, (other, its) in zip(("any distance", "standard DP"), others, strict=True):
                gain = f"{signed(ball - other)} ± {math.hypot(half, its):.3f}"
                row[f"ball over {name}"] = "" if math.isnan(ball - other) else gain
            rows.append(row)
    return pd.DataFrame(rows)


def _at_certificates(results, dataset, method, policy):
    """Accuracy of a line where its certificate is one of COMPARED_AT, and half of its interval.

    Between the budgets measured: monotone cubics in the logarithm of mu. None if there are too few.
    """
    asked = np.log([NormalDist().inv_cdf(at) - NormalDist().inv_cdf(0.1) for at in COMPARED_AT])
    _, cells = against_one_attacker(results, dataset, method, policy)
    if len(cells) < 2:
        return None
    places = np.log([float(cell["mu_at_q50"]) for cell in cells])
    values = np.array([[cell["mean"], half_of(cell)] for cell in cells])
    order = places.argsort()
    return PchipInterpolator(places[order], values[order], extrapolate=False)(asked)


def against_one_attacker(results, dataset, method, policy):
    """Certificates for ten candidates within the q50 radius, and cells, over epsilon."""
    cells = [results.of(dataset, method, policy, epsilon) for epsilon in EPSILONS]
    cells = [cell for cell in cells if cell is not None]
    return [rero_bound(1 / N_CANDIDATES, float(cell["mu_at_q50"])) for cell in cells], cells


def prototype_sensitivity(radius, counts, *, alpha, mode):
    """L2 sensitivity of ridge prototypes, 2 r / (2 m + alpha n) for the least count m of a class.

    "min": that of these counts. "worst": counts unused, m = 1, as in the paper's Table 1.
    """
    least = min(counts) if mode == "min" else 1
    return 2.0 * radius / (2.0 * least + alpha * sum(counts))


def certificate(epsilon):
    """Largest success of an informed attacker with ten candidates in the ball."""
    return rero_bound(1 / N_CANDIDATES, mu_from_budget(epsilon, DELTA))


def classic_mu(epsilon):
    """Rho of the textbook formula's noise, also where the formula is not proved."""
    return epsilon / math.sqrt(2.0 * math.log(1.25 / DELTA))


def convex(results):
    """The paper's IMDb table of three heads."""
    rows = []
    for (head, policy, epsilon), (value, half) in published.CONVEX.items():
        own, best, output = (
            results.of("imdb", head + kind, policy, epsilon) for kind in (" paper", "", " output")
        )
        ridge = head == "ridge"
        if own is not None:
            rows.append(
                {
                    "head": head,
                    "hides": ADJACENCY[policy],
                    "epsilon": f"{epsilon:g}",
                    "paper": f"{value:.3f} ± {half:.3f}",
                    "paper mode": interval(own),
                    "difference": signed(difference(own, value)),
                    "noise on parameters": interval(best if ridge else output),
                    "noise on gradients": "" if ridge else interval(best),
                }
            )
    return pd.DataFrame(rows)


def identification(results):
    """The paper's exact-identification table."""
    rows = []
    epsilons = sorted(results.identification["epsilon"].unique())
    for dataset, policy, epsilon in itertools.product(results.datasets, AUDITED, epsilons):
        low, per_class = (
            results.audit(dataset, counts, policy, epsilon) for counts in ("min", "per_class")
        )
        if low is None:
            continue
        paper = published_audit(dataset, epsilon, policy)
        rows.append(
            {
                "data": DATASETS[dataset],
                "hides": ADJACENCY[policy],
                "epsilon": f"{epsilon:g}",
                "certificate": number(low["certificate"]),
                "paper": "" if paper is None else f"{paper[0]:.3f} ± {paper[1]:.3f}",
                "smallest class's noise": rate(low),
                "difference": signed(difference(low, paper and paper[0], "rate")),
                "best attack": number(low["bayes"]),
                "noise a class": rate(per_class),
                "best attack on it": number(value_of(per_class, "bayes")),
            }
        )
    return pd.DataFrame(rows)


def published_audit(dataset, epsilon, policy):
    """The paper's success rate and half of its interval, or None."""
    policy = "full" if policy == "diameter" else policy
    return published.IDENTIFICATION.get((dataset, epsilon, policy))


def calibration():
    """What (epsilon, delta) costs and certifies, without data."""
    rows = []
    for epsilon in EPSILONS:
        mu, kappa, classic = mu_from_budget(epsilon, DELTA), 1 / N_CANDIDATES, classic_mu(epsilon)
        rows.append(
            {
                "epsilon": f"{epsilon:g}",
                "mu": number(mu, 4),
                "classic formula's mu": number(classic, 4),
                "its true delta": f"{delta_from_mu(classic, epsilon):.1e}",
                "certificate": number(rero_bound(kappa, mu), 4),
                "paper": number(published.CERTIFICATES.get(epsilon), 4),
                "by Rényi": number(rero_bound(kappa, mu, method="rdp"), 4),
                "by (epsilon, delta)": number(rero_bound_dp(kappa, epsilon, DELTA), 4),
            }
        )
    return pd.DataFrame(rows)
