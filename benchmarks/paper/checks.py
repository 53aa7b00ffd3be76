"""What the tables must show, each decided by the measured cells; a cell that is missing fails."""

import math
from typing import NamedTuple

import pandas as pd

from . import published
from .plan import AUDIT_EPSILONS, TABLE_EPSILONS, WITHOUT_NOISE
from .protocol import DATASETS, PUBLIC_LABELS, QUANTILES

#: How far a reproduced accuracy may lie from the paper's.
WITHIN = 0.03
#: How far it may lie where the noise of both explains it.
AT_MOST = 0.05
#: How far accuracy at epsilon 2, q50 may lie from the same head's without noise.
COST = 0.05
#: Share of the paper's audit cells whose interval ours must meet.
OVERLAP = 0.6


class Check(NamedTuple):
    """A claim of a table, whether it holds, and the figures behind it."""

    table: str
    claim: str
    holds: bool
    shown: str


class _Tally:
    """Values by name, and the names of cells that were not measured or are not numbers."""

    def __init__(self):
        self.values, self.missing = {}, []

    def add(self, name, value):
        if value is None or not math.isfinite(value):
            self.missing.append(name)
        else:
            self.values[name] = value

    def check(self, table, claim, holds, shown):
        """None where nothing was asked for."""
        n_cells = len(self.values) + len(self.missing)
        if n_cells == 0:
            return []
        text = f"{len(self.values)} of {n_cells} cells"
        if self.missing:
            text += f"; missing: {', '.join(self.missing)}"
        if self.values:
            text += f"; {shown(self.values)}"
        return [Check(table, claim, not self.missing and bool(holds(self.values)), text)]


def _mean(cell):
    return None if cell is None else cell["mean"]


def _extreme(values, choose):
    name = choose(values, key=values.get)
    return f"{values[name]:+.3f} ({name})"


def _table1(results):
    near, full, gains = _Tally(), _Tally(), _Tally()
    for dataset in [d for d in published.TABLE1 if d in results.datasets]:
        for policy, value in published.TABLE1[dataset].items():
            name = f"{DATASETS[dataset]} {policy}"
            mean = _mean(results.of(dataset, "ridge paper", policy, 2.0))
            difference = None if mean is None else abs(mean - value)
            (near if policy in QUANTILES else full).add(name, difference)
            for method in ("ridge", "logistic"):
                mean = _mean(results.of(dataset, method, policy, 2.0))
                gains.add(f"{name} {method}", None if mean is None else mean - value)
    for tally, limit, where in ((near, WITHIN, "q50 to q95"), (full, AT_MOST, "every distance")):
        yield from tally.check(
            "table1",
            f"Table 1 in paper mode within {limit:g} of the paper for {where}",
            lambda v, limit=limit: max(v.values()) <= limit,
            lambda v: f"largest difference {_extreme(v, max)}",
        )
    claim = "at least the paper's accuracy in every cell of Table 1, by prototypes and by logistic"
    yield from gains.check(
        "table1", claim, lambda v: min(v.values()) >= 0, lambda v: f"least gain {_extreme(v, min)}"
    )


def _convex(results):
    if "imdb" not in results.datasets:
        return
    far, gains, explained = _Tally(), _Tally(), []
    for (head, policy), values in published.CONVEX.items():
        for epsilon, value in zip(published.CONVEX_EPSILONS, values, strict=True):
            name = f"{head} {policy} epsilon {epsilon:g}"
            cell = results.of("imdb", f"{head} paper", policy, epsilon)
            difference = None if cell is None else abs(cell["mean"] - value)
            if cell is not None and WITHIN < difference <= AT_MOST:
                # The paper's mean is of a few releases, taken to be as noisy as ours.
                share = 1 / published.CONVEX_RELEASES + 1 / cell["releases"]
                if difference <= 1.96 * cell["sd"] * math.sqrt(share):
                    explained.append(name)
            far.add(name, difference)
            methods = (head,) if head == "ridge" else (head, f"{head} output")
            for method in methods:
                mean = _mean(results.of("imdb", method, policy, epsilon))
                gains.add(f"{name} {method}", None if mean is None else mean - value)
    yield from far.check(
        "convex",
        f"IMDb in paper mode within {WITHIN:g} of the paper (within {AT_MOST:g} where the noise of "
        "both explains it)",
        lambda v: all(d <= WITHIN or name in explained for name, d in v.items()),
        lambda v: (
            f"largest difference {_extreme(v, max)}"
            + (f"; explained by noise: {', '.join(explained)}" if explained else "")
        ),
    )
    yield from gains.check(
        "convex",
        "IMDb: each head at least at the paper's accuracy, by either place of the noise",
        lambda v: min(v.values()) >= 0,
        lambda v: f"least gain {_extreme(v, min)}",
    )


def _cost(results):
    costs = _Tally()
    for dataset in results.datasets:
        for method, reference in WITHOUT_NOISE.items():
            mean = _mean(results.of(dataset, method, "q50", 2.0))
            exact = _mean(results.noiseless(dataset, reference))
            cost = None if mean is None or exact is None else exact - mean
            costs.add(f"{DATASETS[dataset]} {method}", cost)

    def one_head_each(values):
        names = [DATASETS[dataset] for dataset in results.datasets]
        return all(
            any(key.startswith(f"{name} ") and cost <= COST for key, cost in values.items())
            for name in names
        )

    yield from costs.check(
        "table1",
        f"epsilon 2, q50: within {COST:g} of the same head's noiseless accuracy, by one head",
        one_head_each,
        lambda v: ", ".join(f"{name} {cost:.3f}" for name, cost in v.items()),
    )


def _ball_pays(results):
    gains = _Tally()
    for dataset in results.datasets:
        for epsilon in TABLE_EPSILONS:
            ball = _mean(results.of(dataset, "logistic", "q50", epsilon))
            standard = _mean(results.of(dataset, "logistic", "labels", epsilon))
            gain = None if ball is None or standard is None else ball - standard
            gains.add(f"{DATASETS[dataset]} epsilon {epsilon:g}", gain)
    yield from gains.check(
        "table1",
        "logistic on gradients: a ball is never below label-protecting standard DP",
        lambda v: min(v.values()) >= 0,
        lambda v: ", ".join(f"{name} {gain:+.3f}" for name, gain in v.items()),
    )


def _audits(results):
    above, apart = _Tally(), _Tally()
    for dataset in results.datasets:
        for policy in (*[p for p in PUBLIC_LABELS if p in QUANTILES], "diameter"):
            for epsilon in AUDIT_EPSILONS:
                for counts in ("min", "per_class"):
                    cell = results.audit(dataset, counts, policy, epsilon)
                    gap = None if cell is None else cell["exact_low"] - cell["certificate"]
                    above.add(f"{DATASETS[dataset]} {policy} {epsilon:g} {counts}", gap)
    for (dataset, epsilon), (value, half) in published.IDENTIFICATION.items():
        if dataset in results.datasets:
            cell = results.audit(dataset, "min", "q50", epsilon)
            gap = None if cell is None else max(cell["low"] - value, value - cell["high"]) - half
            apart.add(f"{DATASETS[dataset]} epsilon {epsilon:g}", gap)
    yield from above.check(
        "identification",
        "every audit's exact interval starts at or below its certificate",
        lambda v: max(v.values()) <= 0,
        lambda v: f"nearest {_extreme(v, max)}",
    )
    yield from apart.check(
        "identification",
        f"audits meet the paper's interval in at least {OVERLAP:.0%} of the cells at hand",
        lambda v: sum(gap <= 0 for gap in v.values()) >= OVERLAP * len(v),
        lambda v: f"{sum(gap <= 0 for gap in v.values())} meet it",
    )


def check(results, only=("table1", "convex", "identification")):
    """Checks of these tables, as a table of their own."""
    groups = (_table1, _convex, _cost, _ball_pays, _audits)
    checks = [item for group in groups for item in group(results) if item.table in only]
    rows = [{"seed": results.seed, **item._asdict()} for item in checks]
    return pd.DataFrame(rows, columns=["seed", *Check._fields])


#: Other libraries: what is held against our logistic head with labels protected.
OTHERS = {
    "diffprivlib": "the same adjacency, and delta 0, which promises more",
    "Opacus, replace one": "the same adjacency",
    "Opacus, add/remove": "half the change",
}


def _above(results, name, policy):
    """Where another library is above our logistic head under a policy, in words."""
    above, n_cells = [], 0
    for dataset in results.datasets:
        for epsilon in TABLE_EPSILONS:
            theirs = _mean(results.other(dataset, name, epsilon))
            ours = _mean(results.of(dataset, "logistic", policy, epsilon))
            if theirs is None or ours is None:
                continue
            n_cells += 1
            if theirs > ours:
                above.append(
                    f"{DATASETS[dataset]} at epsilon {epsilon:g} ({theirs:.3f} against {ours:.3f})"
                )
    if not above:
        return n_cells, f"in none of {n_cells} cells"
    return n_cells, f"in {len(above)} of {n_cells} cells: {', '.join(above)}"


def beaten(results):
    """Sentences on where another library is above this package's logistic head."""
    lines = []
    for name, relation in OTHERS.items():
        n_cells, standard = _above(results, name, "labels")
        ball = _above(results, name, "q50")[1]
        if n_cells:
            lines.append(
                f"- {name} ({relation}): above our label-protecting head {standard}. Above the "
                f"same head with a q50 ball, which promises less, {ball}."
            )
    return lines
