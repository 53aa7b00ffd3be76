"""Attacks on what a declared table says of distances: ``radius`` and ``hidden``."""

import math
import warnings
from typing import Any

import numpy as np

from sklearn_balldp.encoders import TableEncoder, UnknownCellsWarning

from .search import Found
from .settings import Rng

NAME = "distances of declared columns"


def _declared(rng: Rng) -> Any:
    """What one column may hold."""
    kind = rng.integers(5)
    low = float(rng.normal() * 10.0 ** rng.uniform(-8.0, 8.0))
    if kind < 2:
        return [low, low + abs(low) * 10.0 ** rng.uniform(-3.0, 3.0) + 1e-9]
    if kind == 2:
        steps = 10.0 ** rng.uniform(-3.0, 3.0, rng.integers(3, 9))
        # Knots that are closer than 2^-30 of their size are refused.
        return (low + np.cumsum(np.maximum(steps, 2.0**-28 * (abs(low) + 1e4)))).tolist()
    if kind == 3:
        return [*map(str, range(rng.integers(2, 6))), *[""] * int(rng.integers(2))]
    return int(rng.integers(2, 65))


def _moved(rng: Rng, declared: Any, knots: int, n: int) -> tuple[Any, Any, float | None]:
    """Cells, what they change to, and by how much at most; None is any value."""
    if not (isinstance(declared, list) and isinstance(declared[0], float)):
        pool = [str(i) for i in range(64)] if isinstance(declared, int) else [*declared, "", "odd"]
        return rng.choice(pool, n).tolist(), rng.choice(pool, n).tolist(), None
    marks = np.linspace(*declared, knots) if len(declared) == 2 else np.array(declared)
    amount = float(np.diff(marks).min() * 10.0 ** rng.uniform(-2.0, 0.5))
    # Near every knot, beyond the bounds, and anywhere.
    starts = np.where(
        rng.random(n) < 0.7,
        rng.choice(marks, n) - amount * rng.choice([0.0, 0.5, 1.0, *rng.random(3)], n),
        rng.uniform(marks[0] - amount, marks[-1] + amount, n),
    )
    ends = starts + amount * rng.choice([1.0, -1.0], n)
    # Rounding may take an end further than the amount.
    return starts, ends, float(np.abs(ends - starts).max())


def attack(rng: Rng, tries: int) -> Found:
    """Two tables whose records differ by a stated change."""
    p, n, knots = int(rng.integers(1, 6)), 40 * tries, int(rng.integers(2, 9))
    columns = {f"c{i}": _declared(rng) for i in range(p)}
    encoder = TableEncoder(columns, knots=knots)
    before, after, change = {}, {}, {}
    for name, declared in columns.items():
        before[name], after[name], amount = _moved(rng, declared, knots, n)
        if rng.random() < 0.5 or (name == f"c{p - 1}" and not change):
            change[name] = amount
        else:
            after[name] = before[name]
    alone = len(change) == 1 and None not in change.values()
    stated = encoder.radius(change)
    if alone and rng.random() < 0.5:
        # The inverse: the radius that hides a change no smaller than this one.
        (name, amount), low, high = *change.items(), 0.0, stated + 1e-6
        for _ in range(60):
            middle = 0.5 * (low + high)
            hides = middle > 0.0 and encoder.hidden(middle)[name] >= float(amount or math.inf)
            low, high = (low, middle) if hides else (middle, high)
        # At the root of two, where any value is hidden, heads allow for the rounding of rows.
        stated = high if high < 1.4142 else high * (1.0 + 1e-6)
    elif rng.random() < 0.3:
        stated = encoder.radius(len(change))
    with warnings.catch_warnings():
        # Cells that are not as declared are what is attacked.
        warnings.simplefilter("ignore", UnknownCellsWarning)
        rows = [encoder.transform(table).astype(np.float64) for table in (before, after)]
    furthest = float(np.linalg.norm(rows[0] - rows[1], axis=1).max())
    return Found(NAME, furthest / stated, n, f"{columns}, {knots} knots, change {change}"[:300])
