r"""What one guess can hit: the candidates that a ball of radius eta holds, wherever its centre.

With a tolerance ``eta`` the adversary answers with any point, and succeeds if the hidden record
lies within ``eta`` of it. Which candidates one answer can hit together is decided by the smallest
ball that encloses them, in the metric of the release. Kappa, the success of the best blind guess,
is the largest prior mass of such a set.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import block_array, csr_array, eye_array, kron

Array = NDArray[np.float64]
# Balls that are larger by the rounding of distances count as small enough: kappa bounds from above.
_UP = 1.0 + 1e-9
#: Sets of candidates whose enclosing ball is computed, at most: all there are of 16.
MOST_SETS = 2**17


@dataclass(frozen=True)
class Guesses:
    """Answers of an adversary who may err by eta."""

    #: Which candidates each answer hits, of shape (n_answers, n_candidates).
    hits: NDArray[np.bool_]
    #: Largest prior mass that any answer hits, or an upper bound of it.
    kappa: float
    #: Whether kappa is attained, and no answer hits more candidates than one of these.
    exact: bool


def guesses_within(rows: Array, gaps: Array, weights: Array, eta: float, metric: str) -> Guesses:
    """All answers that matter, by the candidates that they hit.

    ``rows`` has shape (n_candidates, n_records, n_features); ``gaps`` are the distances of the
    candidates, infinite between those of different labels. An answer names a label and a point for
    each record of a person, and hits a candidate if all of its records have these labels, and lie
    within ``eta`` of these points.
    """
    n = len(weights)
    search = _Search(rows, gaps <= 2.0 * eta * _UP, eta * _UP, _CENTRES[metric])
    found = [np.isin(np.arange(n), list(own)) for own in search.maximal()]
    around = gaps <= eta * _UP
    if search.left >= 0:
        hits = np.array(found)
        return Guesses(hits, _largest_mass(hits, weights), True)
    # A ball of radius eta that holds a candidate lies within 2 eta of it.
    most = _largest_mass(gaps <= 2.0 * eta * _UP, weights)
    return Guesses(np.array([*around, *found]), most, False)


def _largest_mass(hits: NDArray[np.bool_], weights: Array) -> float:
    # Ten tenths are one.
    return min(1.0, max(math.fsum(weights[own]) for own in hits))


class _Search:
    """Sets of candidates that one ball of radius ``eta`` holds, and no larger one does."""

    def __init__(
        self,
        rows: Array,
        together: NDArray[np.bool_],
        eta: float,
        centre_of: Callable[[Array, float], Any],
    ) -> None:
        self._rows, self._together, self._eta = rows, together, eta
        self._centre_of = centre_of
        #: Sets that may still be tried; negative once there are too many.
        self.left = MOST_SETS

    def maximal(self) -> list[set[int]]:
        """The sets, without those that lie in another."""
        found: list[set[int]] = []
        for own in self._extend((), tuple(range(len(self._rows)))):
            if not any(own <= other for other in found):
                found = [other for other in found if not other < own] + [own]
        return found

    def _extend(self, own: tuple[int, ...], others: tuple[int, ...]) -> Iterator[set[int]]:
        """Sets that hold ``own`` and some of the others."""
        if self._fits(own + others):
            yield set(own + others)
            return
        yield set(own)
        for place, new in enumerate(others):
            if self._fits((*own, new)):
                near = [k for k in others[place + 1 :] if self._together[new, k]]
                yield from self._extend((*own, new), tuple(near))

    def _fits(self, own: tuple[int, ...]) -> bool:
        if not self._together[np.ix_(own, own)].all():
            return False
        if len(own) <= 2 or self.left < 0:
            return self.left >= 0
        self.left -= 1
        slots = self._rows[list(own)].swapaxes(0, 1)
        return all(self._centre_of(records, self._eta) for records in slots)


def _euclidean(points: Array, eta: float) -> bool:
    """Whether a ball of radius eta holds the points.

    Weights of the points give a centre, whose largest distance is at least the least radius, and a
    lower bound of it: both decide, and weights move towards or away from points until they do. What
    rounding leaves open counts as held.
    """
    shifted = points - points.mean(axis=0)
    gram = shifted @ shifted.T
    squares, limit = np.diag(gram), eta**2
    weights = np.full(len(points), 1.0 / len(points))
    for _ in range(10_000):
        pulled = gram @ weights
        level = float(weights @ pulled)
        gaps = squares - 2.0 * pulled + level
        far, least = int(gaps.argmax()), float(weights @ squares) - level
        if gaps[far] <= limit:
            return True
        if least > limit:
            return False
        if gaps[far] - least <= 1e-12 * limit:
            return True
        held = np.flatnonzero(weights > 0.0)
        near = int(held[gaps[held].argmin()])
        if gaps[far] - least >= least - gaps[near]:
            step = (gaps[far] - least) / (2.0 * gaps[far])
            weights *= 1.0 - step
            weights[far] += step
        else:
            most = weights[near] / max(1.0 - weights[near], 1e-300)
            step = min(most, (least - gaps[near]) / (2.0 * max(gaps[near], 1e-300)))
            weights *= 1.0 + step
            weights[near] = 0.0 if step == most else weights[near] - step
    return True


def _chebyshev(points: Array, eta: float) -> bool:
    """Boxes that meet in pairs have a point in common: half the widest range is the radius."""
    return bool(np.ptp(points, axis=0).max() <= 2.0 * eta)


def _manhattan(points: Array, eta: float) -> bool:
    """A linear program: a centre, and its distance from each point in each coordinate."""
    points = points[:, np.ptp(points, axis=0) > 0.0]
    if not points.size or np.abs(points - np.median(points, axis=0)).sum(axis=1).max() <= eta:
        return True
    n, d = points.shape
    # Columns: the centre, then the distances; the radius is last, and is minimised.
    ones = np.ones((n, 1))
    centres = kron(csr_array(ones), eye_array(d))
    gaps = eye_array(n * d)
    sums = kron(eye_array(n), csr_array(np.ones((1, d))))
    table = block_array(
        [
            [centres, -gaps, None],
            [-centres, -gaps, None],
            [None, sums, csr_array(-ones)],
        ],
        format="csr",
    )
    flat = points.ravel()
    least = linprog(
        np.r_[np.zeros(d + n * d), 1.0],
        A_ub=table,
        b_ub=np.r_[flat, -flat, np.zeros(n)],
        bounds=[*[(None, None)] * d, *[(0.0, None)] * (n * d + 1)],
        method="highs",
    )
    # The solver's own tolerance is 1e-7; what it leaves open counts as held.
    return not least.success or bool(least.fun <= eta * (1.0 + 1e-6))


_CENTRES: dict[str, Callable[[Array, float], bool]] = {
    "euclidean": _euclidean,
    "chebyshev": _chebyshev,
    "manhattan": _manhattan,
}
