"""What the tables must show, each decided by the measured cells; a cell that is missing fails."""

import math
from itertools import pairwise
from typing import NamedTuple

import pandas as pd

from . import published
from .plan import AUDIT_EPSILONS, TABLE_EPSILONS, WITHOUT_NOISE
from .protocol import DATASETS, PAPERS_NUMBER, QUANTILES
from .tables import AUDITED, interval, published_audit, rate

#: How far a reproduced accuracy may lie from the paper's.
WITHIN = 0.03
#: How far it may lie where the noise of both explains it.
AT_MOST = 0.05
#: How far accuracy at epsilon 2, q50 may lie from the same head's without noise.
COST = 0.05
#: Share of the paper's audit cells whose interval ours must meet, where rows are the paper's.
OVERLAP = 0.8


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


def _largest(values):
    """The largest of differences that have no sign."""
    name = max(values, key=values.get)
    return f"{values[name]:.3f} ({name})"


def _table1(results):
    near, full, gains, order, scaled = (_Tally() for _ in range(5))
    for dataset in [d for d in DATASETS if d in results.datasets]:
        if dataset not in published.SAME_ROWS:
            for pair in pairwise(published.TABLE1[dataset]):
                cells = [results.of(dataset, "ridge paper", policy, 2.0) for policy in pair]
                missing = any(cell is None for cell in cells)
                order.add(f"{DATASETS[dataset]} {pair[0]} over {pair[1]}", _rise(*cells, missing))
        for policy, value in published.TABLE1[dataset].items():
            name = f"{DATASETS[dataset]} {policy}"
            mean = _mean(results.of(dataset, "ridge paper", policy, 2.0))
            difference = None if mean is None else abs(mean - value)
            if dataset in published.SAME_ROWS:
                (near if policy in QUANTILES else full).add(name, difference)
            if dataset in published.N_SAMPLES:
                own = _mean(results.of(dataset, PAPERS_NUMBER, policy, 2.0))
                scaled.add(name, None if own is None else abs(own - value))
            for method in ("ridge", "logistic") if dataset in published.SAME_ROWS else ():
                mean = _mean(results.of(dataset, method, policy, 2.0))
                gains.add(f"{name} {method}", None if mean is None else mean - value)
    for tally, limit, where in ((near, WITHIN, "q50 to q95"), (full, AT_MOST, "every distance")):
        yield from tally.check(
            "table1",
            f"Table 1 in paper mode within {limit:g} of the paper for {where}",
            lambda v, limit=limit: max(v.values()) <= limit,
            lambda v: f"largest difference {_largest(v)}",
        )
    yield from order.check(
        "table1",
        "where rows are not the paper's, its order of radii is nowhere contradicted beyond noise",
        lambda v: min(v.values()) >= 0,
        lambda v: f"least rise, its noise added, {_extreme(v, min)}",
    )
    yield from scaled.check(
        "table1",
        f"with the noise of the paper's number of records, within {WITHIN:g} of the paper",
        lambda v: max(v.values()) <= WITHIN,
        lambda v: f"largest difference {_largest(v)}",
    )
    claim = (
        "at least the paper's accuracy in every cell of Table 1 whose rows are the paper's, by "
        "prototypes and by logistic"
    )
    yield from gains.check(
        "table1", claim, lambda v: min(v.values()) >= 0, lambda v: f"least gain {_extreme(v, min)}"
    )


def _rise(smaller, larger, missing):
    """Accuracy of the smaller radius over the larger one's, with half of the gap's interval."""
    if missing:
        return None
    halves = [(cell["high"] - cell["low"]) / 2 for cell in (smaller, larger)]
    return smaller["mean"] - larger["mean"] + math.hypot(*halves)


def _convex(results):
    if "imdb" not in results.datasets:
        return
    far, gains, explained = _Tally(), _Tally(), []
    for (head, policy, epsilon), (value, half) in published.CONVEX.items():
        name = f"{head} {policy} epsilon {epsilon:g}"
        cell = results.of("imdb", f"{head} paper", policy, epsilon)
        difference = None if cell is None else abs(cell["mean"] - value)
        noise = math.inf if cell is None else math.hypot(half, (cell["high"] - cell["low"]) / 2)
        if cell is not None and WITHIN < difference <= min(AT_MOST, noise):
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
            f"largest difference {_largest(v)}"
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
        f"epsilon 2, q50: within {COST:g} of the same head's noiseless accuracy, by one head or "
        "more on each dataset",
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
        "logistic on gradients, epsilon 2 and 0.5: a q50 ball is nowhere below standard DP",
        lambda v: min(v.values()) >= 0,
        lambda v: ", ".join(f"{name} {gain:+.3f}" for name, gain in v.items()),
    )


def _audits(results):
    above, apart = _Tally(), _Tally()
    for dataset in results.datasets:
        for policy in AUDITED:
            for epsilon in AUDIT_EPSILONS:
                for counts in ("min", "per_class"):
                    cell = results.audit(dataset, counts, policy, epsilon)
                    gap = None if cell is None else cell["exact_low"] - cell["certificate"]
                    above.add(f"{DATASETS[dataset]} {policy} {epsilon:g} {counts}", gap)
            if dataset in published.SAME_ROWS:
                for epsilon in AUDIT_EPSILONS:
                    cell = results.audit(dataset, "min", policy, epsilon)
                    gap = None if cell is None else _apart(cell, dataset, policy, epsilon)
                    apart.add(f"{DATASETS[dataset]} {policy} {epsilon:g}", gap)
    yield from above.check(
        "identification",
        "every audit's exact interval starts at or below its certificate",
        lambda v: max(v.values()) <= 0,
        lambda v: f"nearest {_extreme(v, max)}",
    )
    yield from apart.check(
        "identification",
        f"audits meet the paper's interval in at least {OVERLAP:.0%} of the cells whose rows are "
        "the paper's",
        lambda v: sum(gap <= 0 for gap in v.values()) >= OVERLAP * len(v),
        lambda v: f"{sum(gap <= 0 for gap in v.values())} meet it",
    )


def _apart(cell, dataset, policy, epsilon):
    """How far the interval of an audit lies from the paper's; not above 0 where they meet."""
    value, half = published_audit(dataset, epsilon, policy)
    return max(cell["low"] - value, value - cell["high"]) - half


def _about(results, dataset, policy):
    """What was measured about a cell of Table 1 that differs."""
    clean = results.noiseless(dataset, "ridge per class")
    own = results.of(dataset, PAPERS_NUMBER, policy, 2.0)
    parts = [published.OTHER_ROWS.get(dataset, "")]
    if own is not None:
        n = published.N_SAMPLES[dataset]
        parts.append(f"with the noise of its {n} records {interval(own)}")
    if clean is not None:
        parts.append(f"without noise {interval(clean)}")
    return "; ".join(part for part in parts if part)


def _about_audit(cell, dataset, policy, epsilon):
    """What was measured about an audit that differs."""
    value, half = published_audit(dataset, epsilon, policy)
    spread = math.hypot(half, (cell["high"] - cell["low"]) / 2)
    parts = [published.OTHER_ROWS.get(dataset, "")]
    parts.append(
        f"{abs(cell['rate'] - value) / spread:.1f} times the half interval of the difference"
    )
    parts.append(f"best attack on these supports {cell['bayes']:.3f}, a blind guess 0.1")
    return "; ".join(part for part in parts if part)


def misses(results):
    """Published cells that are not reproduced, each with what was measured about it."""
    rows = []
    for dataset in results.datasets:
        for policy, value in published.TABLE1[dataset].items():
            cell = results.of(dataset, "ridge paper", policy, 2.0)
            limit = WITHIN if policy in QUANTILES else AT_MOST
            if cell is None or abs(cell["mean"] - value) <= limit:
                continue
            rows.append(
                {
                    "table": "1",
                    "cell": f"{DATASETS[dataset]} {policy}",
                    "paper": f"{value:.3f}",
                    "here": interval(cell),
                    "difference": f"{cell['mean'] - value:+.3f}",
                    "measured": _about(results, dataset, policy),
                }
            )
        for policy in AUDITED:
            for epsilon in AUDIT_EPSILONS:
                cell = results.audit(dataset, "min", policy, epsilon)
                if cell is None or _apart(cell, dataset, policy, epsilon) <= 0:
                    continue
                value, half = published_audit(dataset, epsilon, policy)
                rows.append(
                    {
                        "table": "identification",
                        "cell": f"{DATASETS[dataset]} {policy}, epsilon {epsilon:g}",
                        "paper": f"{value:.3f} ± {half:.3f}",
                        "here": rate(cell),
                        "difference": f"{cell['rate'] - value:+.3f}",
                        "measured": _about_audit(cell, dataset, policy, epsilon),
                    }
                )
    if "imdb" in results.datasets:
        rows += _missed_heads(results)
    return pd.DataFrame(rows)


def _missed_heads(results):
    """Cells of the paper's table of heads on IMDb that are not reproduced."""
    for (head, policy, epsilon), (value, half) in published.CONVEX.items():
        cell = results.of("imdb", f"{head} paper", policy, epsilon)
        if cell is not None and abs(cell["mean"] - value) > WITHIN:
            spread = math.hypot(half, (cell["high"] - cell["low"]) / 2)
            yield {
                "table": "heads",
                "cell": f"{head} {policy}, epsilon {epsilon:g}",
                "paper": f"{value:.3f} ± {half:.3f}",
                "here": interval(cell),
                "difference": f"{cell['mean'] - value:+.3f}",
                "measured": f"{abs(cell['mean'] - value) / spread:.1f} times its half interval",
            }


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
