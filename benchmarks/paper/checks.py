"""What the tables must show, each decided by the measured cells; a cell that is missing fails."""

import itertools
import math
from typing import NamedTuple

import pandas as pd

from benchmarks.study import DATASETS

from . import published
from .cells import AUDIT_EPSILONS, AUDITED, PAPERS_NUMBER, QUANTILES, WITHOUT_NOISE
from .tables import difference, half_of, interval, published_audit, rate, value_of

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


def _check(table, claim, cells, holds, shown):
    """The claim on cells by name; one that was not measured, or is no number, fails it."""
    if not cells:
        return []
    values = {name: v for name, v in cells.items() if v is not None and math.isfinite(v)}
    missing = [name for name in cells if name not in values]
    texts = [f"{len(values)} of {len(cells)} cells"]
    texts += [f"missing: {', '.join(missing)}"] if missing else []
    texts += [shown(values)] if values else []
    # Nothing is claimed where nothing was asked for.
    return [Check(table, claim, not missing and bool(holds(values)), "; ".join(texts))] * bool(
        cells
    )


def _extreme(values, choose, sign="+"):
    name = choose(values, key=values.get)
    return f"{values[name]:{sign}.3f} ({name})"


def _up_to(table, claim, cells, limit):
    """That no difference is larger."""
    shown = lambda v: f"largest difference {_extreme(v, max, '')}"  # noqa: E731
    return _check(table, claim, cells, lambda v: max(v.values()) <= limit, shown)


def _from_zero(table, claim, cells, what):
    """That none is below zero."""
    shown = lambda v: f"{what} {_extreme(v, min)}"  # noqa: E731
    return _check(table, claim, cells, lambda v: min(v.values()) >= 0, shown)


def _absolute(value):
    return None if value is None else abs(value)


def _table1(results):
    near, full, gains, order, scaled = {}, {}, {}, {}, {}
    for dataset in results.datasets:
        printed, same = published.TABLE1[dataset], dataset in published.SAME_ROWS
        paper = {policy: results.of(dataset, "ridge paper", policy, 2.0) for policy in printed}
        for pair in itertools.pairwise(printed) if not same else ():
            smaller, larger = (paper[policy] for policy in pair)
            order[f"{DATASETS[dataset]} {pair[0]} over {pair[1]}"] = _rise(smaller, larger)
        for policy, value in printed.items():
            name = f"{DATASETS[dataset]} {policy}"
            if same:
                away = _absolute(difference(paper[policy], value))
                (near if policy in QUANTILES else full)[name] = away
                for method in ("ridge", "logistic"):
                    cell = results.of(dataset, method, policy, 2.0)
                    gains[f"{name} {method}"] = difference(cell, value)
            if dataset in published.N_SAMPLES:
                cell = results.of(dataset, PAPERS_NUMBER, policy, 2.0)
                scaled[name] = _absolute(difference(cell, value))
    for cells, limit, where in ((near, WITHIN, "q50 to q95"), (full, AT_MOST, "every distance")):
        claim = f"Table 1 in paper mode within {limit:g} of the paper for {where}"
        yield from _up_to("table1", claim, cells, limit)
    claim = (
        "where rows are not the paper's, its order of radii is nowhere contradicted beyond noise"
    )
    yield from _from_zero("table1", claim, order, "least rise, its noise added,")
    claim = f"with the noise of the paper's number of records, within {WITHIN:g} of the paper"
    yield from _up_to("table1", claim, scaled, WITHIN)
    claim = (
        "at least the paper's accuracy in every cell of Table 1 whose rows are the paper's, by "
        "prototypes and by logistic"
    )
    yield from _from_zero("table1", claim, gains, "least gain")


def _rise(smaller, larger):
    """Accuracy of the smaller radius over the larger one's, with half of the gap's interval."""
    if smaller is None or larger is None:
        return None
    return smaller["mean"] - larger["mean"] + math.hypot(half_of(smaller), half_of(larger))


def _convex(results):
    if "imdb" not in results.datasets:
        return
    far, gains, explained = {}, {}, []
    for (head, policy, epsilon), (value, half) in published.CONVEX.items():
        name = f"{head} {policy} epsilon {epsilon:g}"
        cell = results.of("imdb", f"{head} paper", policy, epsilon)
        far[name] = away = _absolute(difference(cell, value))
        if cell is not None and WITHIN < away <= min(AT_MOST, math.hypot(half, half_of(cell))):
            explained.append(name)
        for method in (head,) if head == "ridge" else (head, f"{head} output"):
            cell = results.of("imdb", method, policy, epsilon)
            gains[f"{name} {method}"] = difference(cell, value)
    yield from _check(
        "convex",
        f"IMDb in paper mode within {WITHIN:g} of the paper (within {AT_MOST:g} where the noise of "
        "both explains it)",
        far,
        lambda v: all(d <= WITHIN or name in explained for name, d in v.items()),
        lambda v: (
            f"largest difference {_extreme(v, max, '')}"
            + (f"; explained by noise: {', '.join(explained)}" if explained else "")
        ),
    )
    claim = "IMDb: each head at least at the paper's accuracy, by either place of the noise"
    yield from _from_zero("convex", claim, gains, "least gain")


def _cost(results):
    costs = {}
    for dataset, (method, reference) in itertools.product(results.datasets, WITHOUT_NOISE.items()):
        exact = value_of(results.noiseless(dataset, reference))
        loss = difference(results.of(dataset, method, "q50", 2.0), exact)
        costs[f"{DATASETS[dataset]} {method}"] = None if loss is None else -loss

    def one_head_each(values):
        least = pd.Series(values).groupby(lambda name: name.rsplit(" ", 1)[0]).min()
        return len(least) == len(results.datasets) and least.max() <= COST

    yield from _check(
        "table1",
        f"epsilon 2, q50: within {COST:g} of the same head's noiseless accuracy, by one head or "
        "more on each dataset",
        costs,
        one_head_each,
        lambda v: ", ".join(f"{name} {cost:.3f}" for name, cost in v.items()),
    )


def _ball_pays(results):
    gains = {}
    for dataset, epsilon in itertools.product(results.datasets, (2.0, 0.5)):
        standard = value_of(results.of(dataset, "logistic", "labels", epsilon))
        gain = difference(results.of(dataset, "logistic", "q50", epsilon), standard)
        gains[f"{DATASETS[dataset]} epsilon {epsilon:g}"] = gain
    yield from _check(
        "table1",
        "logistic on gradients, epsilon 2 and 0.5: a q50 ball is nowhere below standard DP",
        gains,
        lambda v: min(v.values()) >= 0,
        lambda v: ", ".join(f"{name} {gain:+.3f}" for name, gain in v.items()),
    )


def _audits(results):
    above, apart = {}, {}
    for dataset, policy, epsilon in itertools.product(results.datasets, AUDITED, AUDIT_EPSILONS):
        name = f"{DATASETS[dataset]} {policy} {epsilon:g}"
        for counts in ("min", "per_class"):
            cell = results.audit(dataset, counts, policy, epsilon)
            gap = difference(cell, value_of(cell, "certificate"), "exact_low")
            above[f"{name} {counts}"] = gap
        if dataset in published.SAME_ROWS:
            cell = results.audit(dataset, "min", policy, epsilon)
            apart[name] = None if cell is None else _apart(cell, dataset, policy, epsilon)
    yield from _check(
        "identification",
        "every audit's exact interval starts at or below its certificate",
        above,
        lambda v: max(v.values()) <= 0,
        lambda v: f"nearest {_extreme(v, max)}",
    )
    yield from _check(
        "identification",
        f"audits meet the paper's interval in at least {OVERLAP:.0%} of the cells whose rows are "
        "the paper's",
        apart,
        lambda v: sum(gap <= 0 for gap in v.values()) >= OVERLAP * len(v),
        lambda v: f"{sum(gap <= 0 for gap in v.values())} meet it",
    )


def _apart(cell, dataset, policy, epsilon):
    """How far the interval of an audit lies from the paper's; not above 0 where they meet."""
    value, half = published_audit(dataset, epsilon, policy)
    return max(cell["low"] - value, value - cell["high"]) - half


def _miss(table, name, paper, shown, away, *measured):
    """A published cell that is not reproduced, with what was measured about it."""
    return {
        "table": table,
        "cell": name,
        "paper": paper,
        "here": shown,
        "difference": f"{away:+.3f}",
        "measured": "; ".join(part for part in measured if part),
    }


def _times(away, half, cell, what):
    """A difference over the half interval of both."""
    return f"{abs(away) / math.hypot(half, half_of(cell)):.1f} times {what}"


def misses(results):
    """Published cells that are not reproduced, each with what was measured about it."""
    rows = []
    for dataset in results.datasets:
        title, other_rows = DATASETS[dataset], published.OTHER_ROWS.get(dataset, "")
        for policy, value in published.TABLE1[dataset].items():
            cell = results.of(dataset, "ridge paper", policy, 2.0)
            away = difference(cell, value)
            if away is None or abs(away) <= (WITHIN if policy in QUANTILES else AT_MOST):
                continue
            parts = [other_rows]
            own = results.of(dataset, PAPERS_NUMBER, policy, 2.0)
            if own is not None:
                n = published.N_SAMPLES[dataset]
                parts.append(f"with the noise of its {n} records {interval(own)}")
            clean = results.noiseless(dataset, "ridge per class")
            if clean is not None:
                parts.append(f"without noise {interval(clean)}")
            shown = f"{value:.3f}", interval(cell), away
            rows.append(_miss("1", f"{title} {policy}", *shown, *parts))
        for policy, epsilon in itertools.product(AUDITED, AUDIT_EPSILONS):
            cell = results.audit(dataset, "min", policy, epsilon)
            if cell is None or _apart(cell, dataset, policy, epsilon) <= 0:
                continue
            value, half = published_audit(dataset, epsilon, policy)
            away = cell["rate"] - value
            times = _times(away, half, cell, "the half interval of the difference")
            best = f"best attack on these supports {cell['bayes']:.3f}, a blind guess 0.1"
            name, shown = f"{title} {policy}, epsilon {epsilon:g}", f"{value:.3f} ± {half:.3f}"
            parts = shown, rate(cell), away, other_rows, times, best
            rows.append(_miss("identification", name, *parts))
    for (head, policy, epsilon), (value, half) in published.CONVEX.items():
        cell = results.of("imdb", f"{head} paper", policy, epsilon)
        away = difference(cell, value)
        if away is not None and abs(away) > WITHIN:
            times = _times(away, half, cell, "its half interval")
            name, shown = f"{head} {policy}, epsilon {epsilon:g}", f"{value:.3f} ± {half:.3f}"
            rows.append(_miss("heads", name, shown, interval(cell), away, times))
    return pd.DataFrame(rows)


def check(results, only=("table1", "convex", "identification")):
    """Checks of these tables, as a table of their own."""
    groups = (_table1, _convex, _cost, _ball_pays, _audits)
    items = [item for group in groups for item in group(results) if item.table in only]
    return pd.DataFrame(items, columns=Check._fields)
