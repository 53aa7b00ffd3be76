"""Climbing from random neighbouring data sets to those that a release tells apart best."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .plain import check
from .replay import Records, Violation, distance
from .settings import NORMS, Rng, Setting

Array = NDArray[np.float64]
# Beyond one, by this much: distances are computed in double precision.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Found:
    """The pair of a setting that a release tells apart best."""

    mechanism: str
    ratio: float
    pairs: int
    where: str
    #: What a script needs to find it again; empty for attacks that need none.
    setting: str = ""
    genome: tuple[float, ...] = ()


def furthest(setting: Setting, one: Records, other: Records) -> float:
    """How far a record of the same label moved, in the metric, as the rows were rounded."""
    moved = np.asarray(other.X, dtype=np.float64) - np.asarray(one.X, dtype=np.float64)
    moved = moved[one.y == other.y]
    norm = NORMS[setting.parameters["metric"]]
    lengths = np.linalg.norm(moved, norm, axis=1) if len(moved) else np.zeros(1)
    return max(float(lengths.max()), setting.distance)


def ratio(setting: Setting, genome: Array) -> float:
    """Distance of two releases over what the record states for such a pair.

    Raises
    ------
    Violation
        If something else than a noisy value gives the record away.
    """
    one, other, deviate = setting.pair(genome)
    found, head, replay = distance(setting.make, one, other, deviate)
    check(setting, one, head, replay)
    release = head.release_
    stated = release.guarantee(radius=furthest(setting, one, other), records=setting.n_units).mu
    return found / stated if stated > 0.0 else math.inf * found


def climb(
    move: Callable[[Array], float], start: Array, block: int, rng: Rng, tries: int
) -> Iterator[tuple[float, Array]]:
    """Ever better genomes: steps of a size that adapts, and rows that copy or oppose others."""
    best, value, size = start, move(start), 0.5
    yield value, best
    n_blocks = max(len(start) // block, 1)
    for _ in range(tries):
        new = best.copy()
        kind = rng.random()
        place = slice(*(block * rng.integers(n_blocks) + np.array([0, block])))
        if kind < 0.25:
            new[place] = rng.standard_normal(len(new[place])) * rng.choice([0.1, 1.0, 3.0])
        elif kind < 0.45:
            source = slice(*(block * rng.integers(n_blocks) + np.array([0, block])))
            new[place] = best[source] * rng.choice([1.0, -1.0, 0.0])
        elif kind < 0.55:
            new[-1] += rng.standard_normal() * 2.0
        else:
            new += size * rng.standard_normal(len(new)) * (rng.random(len(new)) < rng.random())
        found = move(new)
        if found > value:
            best, value = new, found
            size = min(size * 1.5, 2.0)
            yield value, best
        else:
            size = max(size * 0.9, 1e-3)


def start_of(setting: Setting, rng: Rng) -> Array:
    """A first genome: rows at random, or all along one axis."""
    genome = rng.standard_normal(setting.size) * rng.choice([0.3, 1.0, 3.0])
    if rng.random() < 0.5:
        rows = genome[: len(genome) - len(genome) % setting.n_features]
        rows = rows.reshape(-1, setting.n_features)
        rows[:, 1:] *= rng.choice([0.0, 0.1])
        rows[:, 0] = 3.0 * np.sign(rows[:, 0])
    genome[-1] = rng.uniform(-12.0, 4.0)
    return genome


def attack(setting: Setting, rng: Rng, tries: int) -> Found:
    """The best pair of some tries; the search ends once a pair refutes the record."""
    best, genome, count = 0.0, np.zeros(setting.size), 0

    def move(values: Array) -> float:
        nonlocal count
        count += 1
        return ratio(setting, values)

    try:
        starts = [start_of(setting, rng) for _ in range(4)]
        values = [move(start) for start in starts]
        start = starts[int(np.argmax(values))]
        for value, found in climb(move, start, setting.n_features, rng, tries):
            best, genome = value, found
            if best > 1.0 + ROUNDING:
                break
    except Violation as violation:
        return Found(setting.mechanism, math.inf, count, str(violation), setting.to_json())
    where = described(setting)
    own = setting.to_json(), tuple(genome.tolist())
    return Found(setting.mechanism, best, count, where, *own)


def described(setting: Setting) -> str:
    """A setting in one line."""
    given = {"n": len(setting.labels), "d": setting.n_features, **setting.parameters}
    if setting.options:
        given |= setting.options
    if setting.owners is not None:
        given["persons"] = len(set(setting.owners))
    if setting.n_units > 1:
        given["replaced"] = setting.n_units
    given |= {"factor": setting.factor, "dtype": setting.dtype}
    given.pop("classes", None)
    return ", ".join(f"{name} {_short(value)}" for name, value in given.items())


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
