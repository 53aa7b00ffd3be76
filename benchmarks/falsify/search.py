"""Climbing from random neighbouring data sets to those that a release tells apart best."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sklearn_balldp.mechanisms import PrivacyError, Query, drive

from .plain import check, values
from .replay import Records, Replay, Violation, distance, distance_of, fit, no_deviate
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


class Opponent:
    """Tells neighbouring data sets of one setting apart, by every answer of the conversation."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._released: Any = None
        self._best = -math.inf

    def released(self, records: Records) -> Any:
        """What a fit releases; its problem and its bound are the same for all data sets."""
        if self._released is None:
            self._released = fit(self.setting.make(), records, Replay(no_deviate)).released_
        return self._released

    def ratio(self, genome: Array, *, real: bool = True) -> float:
        """Distance over what is stated for such a pair.

        It is computed by plain formulas; of the best pairs so far, or if ``real``, by two fits too.

        Raises
        ------
        Violation
            If something else than a noisy value gives the record away, or a fit hid other values.
        """
        one, other, deviate = self.setting.pair(genome)
        released = self.released(one)
        found = self._by_formulas(released, one, other, deviate)
        if real or found > self._best:
            found = max(found, self._by_fits(one, other, deviate))
        self._best = max(self._best, found)
        return found

    def _stated(self, release: Any, one: Records, other: Records) -> tuple[float, float, str]:
        """Mu of the release for such a pair, the pair's radius, and whether a label changed."""
        radius = furthest(self.setting, one, other)
        labels = "public" if np.array_equal(one.y, other.y) else "protected"
        guarantee = release.guarantee(radius=radius, labels=labels, records=self.setting.n_units)
        return guarantee.mu, release.problem.euclidean(radius), labels

    def _by_formulas(
        self, released: Any, one: Records, other: Records, deviate: Callable[[int, Array], Any]
    ) -> float:
        """All queries together over what the release states, or one over what it states."""
        stated, radius, labels = self._stated(released.release, one, other)
        square, worst, number = 0.0, 0.0, 0

        def answer(query: Query) -> Array:
            nonlocal square, worst, number
            first, second = (
                values(self.setting, records, query, released) for records in (one, other)
            )
            scale = np.broadcast_to(query.scales(released.problem), first.shape)
            apart = distance_of(first, second, scale)
            mu = self.setting.n_units * query.mu(released.problem, radius, labels)
            square, worst = square + apart**2, max(worst, _over(apart, mu))
            number += 1
            return first + scale * np.asarray(deviate(number - 1, first))

        with np.errstate(all="ignore"):
            drive(released.conversation(), answer)
        return max(_over(math.sqrt(square), stated), worst)

    def _by_fits(self, one: Records, other: Records, deviate: Callable[[int, Array], Any]) -> float:
        """The distance of two real fits, whose values are compared with the plain formulas."""
        found, head, replay = distance(self.setting.make, one, other, deviate)
        hidden = zip(replay.hidden, replay.published, strict=True)

        def answer(query: Query) -> Array:
            exact, shown = next(hidden)
            check(self.setting, one, query, head.released_, exact)
            return shown

        drive(head.released_.conversation(), answer)
        return _over(found, self._stated(head.release_, one, other)[0])


def _over(found: float, stated: float) -> float:
    return found / stated if stated > 0.0 else math.inf * found if found > 0.0 else 0.0


def ratio(setting: Setting, genome: Array) -> float:
    """Distance of two releases over what the record states for such a pair."""
    return Opponent(setting).ratio(genome)


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
    opponent = Opponent(setting)

    def move(genome: Array) -> float:
        nonlocal count
        count += 1
        return opponent.ratio(genome, real=False)

    try:
        starts = [start_of(setting, rng) for _ in range(4)]
        values = [move(start) for start in starts]
        start = starts[int(np.argmax(values))]
        for value, found in climb(move, start, setting.n_features, rng, tries):
            best, genome = value, found
            if best > 1.0 + ROUNDING:
                break
    except (Violation, PrivacyError) as violation:
        # A filter that refuses an honest fit was told less than it asks for.
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
