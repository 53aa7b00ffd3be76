"""How far a release of one data set is from that of its neighbour, by two real fits.

The first fit publishes its values plus deviates that the attacker chose. The second sees its
neighbour's rows and publishes the same, step by step, as the definition of differential privacy
asks. What the two hid under the same noise, over its scale, is their distance.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklearn_balldp.privacy import Noise

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Records:
    """What a fit is given."""

    X: Any
    y: NDArray[np.intp]
    groups: NDArray[np.intp] | None = None


class Replay(Noise):
    """It keeps what it is to hide, and publishes what it is told."""

    def __init__(self, deviate: Callable[[int, Array], ArrayLike], told: Sequence[Array] = ()):
        super().__init__()
        self.hidden: list[Array] = []
        self.scales: list[Array] = []
        self.published: list[Array] = []
        self._deviate, self._told = deviate, told

    def __call__(self, values: ArrayLike, sigma: ArrayLike) -> Array:
        given = np.array(values, dtype=np.float64)
        scale = np.array(np.broadcast_to(np.asarray(sigma, dtype=np.float64), given.shape))
        number = len(self.hidden)
        if number < len(self._told):
            shown = self._told[number].copy()
        else:
            shown = given + scale * np.asarray(self._deviate(number, given))
        self.hidden.append(given)
        self.scales.append(scale)
        self.published.append(shown)
        return shown.copy()


class Violation(Exception):
    """A neighbour that the record of a release does not hide."""


def fit(head: Any, records: Records, noise: Noise) -> Any:
    """A real fit with this noise in place of the head's own."""
    head._noise = lambda: noise
    given = {} if records.groups is None else {"groups": records.groups}
    with warnings.catch_warnings():
        # So few records are drowned in noise, and heads say so.
        warnings.simplefilter("ignore")
        return head.fit(records.X, records.y, **given)


def no_deviate(number: int, given: Array) -> float:
    """Noise that happens to be zero."""
    return 0.0


def distance_of(one: Array, other: Array, scale: Array) -> float:
    """Distance of the values of two data sets, in units of their noise."""
    noisy = scale > 0.0
    if not np.array_equal(one[~noisy], other[~noisy]):
        raise Violation("A value without noise depends on a record.")
    return float(np.linalg.norm((one - other)[noisy] / scale[noisy]))


def distance(
    make: Callable[[], Any],
    one: Records,
    other: Records,
    deviate: Callable[[int, Array], ArrayLike] = no_deviate,
) -> tuple[float, Any, Replay]:
    """Distance of two releases in units of their noise, the first head, and what it hid."""
    first = Replay(deviate)
    head = fit(make(), one, first)
    second = Replay(no_deviate, first.published)
    neighbour = fit(make(), other, second)
    square = 0.0
    if len(first.hidden) != len(second.hidden):
        raise Violation("The number of noisy values depends on a record.")
    for a, b, scale, again in zip(
        first.hidden, second.hidden, first.scales, second.scales, strict=True
    ):
        if a.shape != b.shape or not np.array_equal(scale, again):
            raise Violation("The scale of the noise depends on a record.")
        square += distance_of(a, b, scale) ** 2
    if head.release_ != neighbour.release_:
        raise Violation("The record of the release depends on a record.")
    for name, value in _published(head).items():
        if not np.array_equal(value, _published(neighbour)[name]):
            raise Violation(f"{name} depends on a record beside the noise.")
    return math.sqrt(square), head, first


def _published(head: Any) -> dict[str, Array]:
    """The fitted numbers of a head that a record must not change beside its noise."""
    released = head.released_
    answers = {f"answer {place}": own for place, own in enumerate(released.answers)}
    named = {"classes_": released.classes, "what was released": released.values, **answers}
    numbers = {
        name: np.asarray(value)
        for name, value in vars(head).items()
        if name.endswith("_") and isinstance(value, (np.ndarray, float, int))
    }
    return {**numbers, **named, **head.released_parameters()}
