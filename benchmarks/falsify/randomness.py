"""Attacks on the noise: its law, and whether any of it repeats, in forks, threads and pools."""

import math
import multiprocessing
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kstest, norm

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.privacy import Noise

from .search import Found
from .settings import Rng

Array = NDArray[np.float64]
#: Correct noise is accused with this probability.
LEVEL = 1e-9


def attack_law(rng: Rng, tries: int) -> Found:
    """Deviates of one value after the other are independent and normal, at any scale."""
    size = int(rng.integers(2_000, 40_000))
    sigma = float(10.0 ** rng.uniform(-6.0, 6.0))
    values = rng.standard_normal(size) * sigma * rng.choice([0.0, 1.0, 100.0])
    noise = Noise()
    parts = np.array_split(values, rng.integers(1, 30))
    deviates = (np.concatenate([noise(part, sigma) for part in parts]) - values) / sigma
    # Numbers that are normal with variance one if the deviates are independent and normal.
    squares = (np.mean(deviates**2) - 1.0) * math.sqrt(size / 2.0)
    neighbours = np.mean(deviates[1:] * deviates[:-1]) * math.sqrt(size - 1)
    largest = -math.log(LEVEL)
    surprises = {
        "law": -math.log(max(kstest(deviates, norm.cdf).pvalue, 1e-300)),
        "mean": -norm.logsf(abs(np.mean(deviates)) * math.sqrt(size)) - math.log(2.0),
        "variance": -norm.logsf(abs(squares)) - math.log(2.0),
        "neighbours": -norm.logsf(abs(neighbours)) - math.log(2.0),
    }
    worst = max(surprises, key=lambda name: surprises[name])
    where = f"{worst}, sigma {sigma:.3g}"
    return Found("law of the noise", surprises[worst] / largest, size, where)


_SHARED: list[Noise] = []


def _drawn(size: int) -> Array:
    """In a child: deviates of the noise that its parent holds."""
    return _SHARED[0](np.zeros(size), 1.0)


def _fitted(place: int) -> Array:
    """In a child: the noise of a fit on rows of zeros."""
    head = BallDPRidgePrototype(radius=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return head.fit(np.zeros((4, 3)), [0, 1, 0, 1]).prototypes_.ravel()


def _in_fork(size: int) -> list[Array]:
    """Deviates of two forked children, and then of their parent."""
    context: Any = multiprocessing.get_context("fork")
    with warnings.catch_warnings():
        # Forks of a process with threads are what is attacked.
        warnings.simplefilter("ignore")
        found = []
        for _ in range(2):
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                found += [pool.submit(_drawn, size).result(), pool.submit(_fitted, 0).result()]
    return [*found, _drawn(size)]


def attack_repeats(rng: Rng, tries: int) -> Found:
    """No deviate occurs twice: in a fork, another thread, or a later fit."""
    noise, size = Noise(), int(rng.integers(3, 40))
    _SHARED[:] = [noise]
    # What a call left behind is what children would inherit.
    drawn = [noise(np.zeros(size), 1.0) for _ in range(int(rng.integers(1, 12)))]
    place = "threads"
    if rng.random() < 0.6 and not multiprocessing.current_process().daemon:
        place = "forks"
        drawn += _in_fork(size)
    with ThreadPoolExecutor(4) as pool:
        drawn += list(pool.map(_drawn, [size] * 8))
    drawn += [_fitted(0) for _ in range(2)]
    values = np.concatenate([np.round(part, 9) for part in drawn])
    repeats = len(values) - len(np.unique(values))
    # Two of these round alike with probability below 1e-3; three do with LEVEL.
    return Found("noise that repeats", math.inf if repeats > 2 else 0.0, len(values), place)
