"""Every attack by name: each draws public settings at random and looks for the worst pair."""

import itertools
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from . import budget, gaps, places, randomness, search, settings, tables, totals
from .search import Found
from .settings import Rng

Attack = Callable[[Rng, int], Found]


def _fits(mechanism: str) -> Attack:
    """Two real fits, on data sets that evolve."""

    def attack(rng: Rng, tries: int) -> Found:
        return search.attack(settings.draw(mechanism, rng), rng, tries)

    return attack


ATTACKS: dict[str, Attack] = {
    **{mechanism: _fits(mechanism) for mechanism in settings.MECHANISMS},
    **{f"gap of minimisers, {loss}": gaps.attack_gap(loss) for loss in gaps.LOSSES},
    **{f"gap at any parameters, {loss}": gaps.attack_clipped(loss) for loss in gaps.LOSSES},
    "norm of minimisers": gaps.attack_norm,
    budget.NAME: budget.attack,
    "rows elsewhere": places.attack,
    "sums of the accountant": totals.attack,
    "law of the noise": randomness.attack_law,
    "noise that repeats": randomness.attack_repeats,
    tables.NAME: tables.attack,
}


def work(
    found: Any, stop: Any, names: list[str], seed: int, first: int, stride: int, tries: int
) -> None:
    """Attack until told to stop, in one of several processes, and tell what each attack found.

    Every attack has the same share of the time. An error that is no refutation is told as a text.
    """
    spent = dict.fromkeys(names, 0.0)
    with threadpool_limits(1):
        for number in itertools.count(first, stride):
            if stop.is_set():
                return
            name, own, begun = min(spent, key=spent.__getitem__), (seed, number), time.monotonic()
            try:
                found.put((name, own, ATTACKS[name](np.random.default_rng(own), tries)))
            except Exception:
                found.put((name, own, traceback.format_exc()))
            spent[name] += time.monotonic() - begun
