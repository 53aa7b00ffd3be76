r"""What one guess can hit: the candidates that a ball of radius eta holds, wherever its centre.

With a tolerance ``eta`` the adversary answers with any point, and succeeds if the hidden record
lies within ``eta`` of it. Which candidates one answer can hit together is decided by the smallest
ball that encloses them, in the metric of the release. Kappa, the success of the best blind guess,
is the largest prior mass of such a set.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import block_array, csr_array, eye_array, kron

Array = NDArray[np.float64]
# Balls that are larger by the rounding of distances count as small enough: kappa bounds from above.
_UP = 1.0 + 1e-9
#: Operations that a search may cost: they are about a nanosecond each, so two seconds.
MOST_OPERATIONS = 2e9
# So few candidates are searched to the end: their sets cost at most a minute or two. Linear
# programs could take hours, so Manhattan balls keep to the budget.
_FEW, _ENOUGH = 16, 1e12
# Operations that a few calls of NumPy on small arrays cost.
_CALLS = 2e4
# Cheap bounds by medians, before a linear program.
_ROUNDS = 50


@dataclass(frozen=True)
class Guesses:
    """Answers of an adversary who may err by eta."""

    #: Which candidates each answer hits, of shape (n_answers, n_candidates).
    hits: NDArray[np.bool_]
    #: Largest prior mass that any answer hits, or an upper bound of it.
    kappa: float
    #: Whether kappa is attained, and no answer hits more candidates than one of these.
    exact: bool


class _Budget:
    """Operations that are left: counted, so that results do not depend on a clock."""

    def __init__(self, left: float = math.inf) -> None:
        #: Negative once they are used up.
        self.left = left

    def spend(self, cost: float) -> bool:
        """Whether the cost could be paid."""
        self.left -= cost
        return self.left >= 0.0


# Whether a ball of radius eta holds the points; None is undecided.
_Centre = Callable[[Array, float, _Budget], bool | None]


def guesses_within(rows: Array, gaps: Array, weights: Array, eta: float, metric: str) -> Guesses:
    """All answers that matter, by the candidates that they hit.

    ``rows`` has shape (n_candidates, n_records, n_features); ``gaps`` are the distances of the
    candidates, infinite between those of different labels. An answer names a label and a point for
    each record of a person, and hits a candidate if all of its records have these labels, and lie
    within ``eta`` of these points.
    """
    n = len(weights)
    search = _Search(rows, gaps <= 2.0 * eta * _UP, eta * _UP, _CENTRES[metric])
    sets = search.maximal()
    found = np.array([np.isin(np.arange(n), list(own)) for own in sets])
    if search.budget.left >= 0.0 and not search.undecided:
        return Guesses(found, _largest_mass(found, weights), True)
    # A ball of radius eta that holds a candidate lies within 2 eta of it.
    most = _largest_mass(gaps <= 2.0 * eta * _UP, weights)
    if search.budget.left >= 0.0:
        most = min(most, _largest_mass(found, weights))
    # Undecided sets raise kappa, but no answer claims to hit them.
    sure = found[[own not in search.undecided for own in sets]]
    return Guesses(np.concatenate([gaps <= eta * _UP, sure]), most, False)


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
        centre_of: _Centre,
    ) -> None:
        self._rows, self._together, self._eta = rows, together, eta
        self._centre_of = centre_of
        to_the_end = len(rows) <= _FEW and centre_of is not _manhattan
        self.budget = _Budget(_ENOUGH if to_the_end else MOST_OPERATIONS)
        #: Sets that count as held though no ball is known to hold them.
        self.undecided: list[set[int]] = []

    def maximal(self) -> list[set[int]]:
        """The sets, without those that lie in another."""
        found: list[set[int]] = []
        for own in self._extend((), tuple(range(len(self._rows)))):
            self.budget.spend(200.0 * len(found))
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
        if not self.budget.spend(_CALLS + 100.0 * len(self._rows) + len(own) ** 2):
            return False
        if not self._together[np.ix_(own, own)].all():
            return False
        if len(own) <= 2:
            return True
        held: bool | None = True
        for records in self._rows[list(own)].swapaxes(0, 1):
            one = self._centre_of(records, self._eta, self.budget)
            if one is False or self.budget.left < 0.0:
                return False
            held = held and one
        if held is None:
            self.undecided.append(set(own))
        return True


def _euclidean(points: Array, eta: float, budget: _Budget) -> bool | None:
    """Whether a ball of radius eta holds the points.

    Weights of the points give a centre, whose largest distance is at least the least radius, and a
    lower bound of it: both decide, and weights move towards or away from points until they do.
    """
    n, d = points.shape
    if not budget.spend(_CALLS + n * (n + 1) * d):
        return None
    shifted = points - points.mean(axis=0)
    gram = shifted @ shifted.T
    squares, limit = np.diag(gram), eta**2
    weights = np.full(n, 1.0 / n)
    for _ in range(10_000):
        if not budget.spend(_CALLS + n**2):
            return None
        pulled = gram @ weights
        level = float(weights @ pulled)
        gaps = squares - 2.0 * pulled + level
        far, least = int(gaps.argmax()), float(weights @ squares) - level
        if gaps[far] <= limit:
            return True
        if least > limit:
            return False
        # Rounding.
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
    return None


def _chebyshev(points: Array, eta: float, budget: _Budget) -> bool | None:
    """Boxes that meet in pairs have a point in common: half the widest range is the radius."""
    if not budget.spend(_CALLS + 4.0 * points.size):
        return None
    return bool(np.ptp(points, axis=0).max() <= 2.0 * eta)


def _manhattan(points: Array, eta: float, budget: _Budget) -> bool | None:
    """Medians bound the least radius from both sides; a linear program finds it.

    For any weights, the mean distance from the weighted median is a lower bound.
    """
    if not budget.spend(_CALLS + 50.0 * points.size):
        return None
    points = points[:, np.ptp(points, axis=0) > 0.0]
    if not points.size or eta == 0.0:
        return not points.size
    # The solver's tolerances are absolute, so the ball has radius one.
    points = (points - np.median(points, axis=0)) / eta
    n, d = points.shape
    order = points.argsort(axis=0)
    ordered = np.take_along_axis(points, order, axis=0)
    weights, total, gaps = np.full(n, 1.0 / n), np.zeros(d), np.zeros(n)
    for k in range(_ROUNDS):
        if not budget.spend(2.0 * _CALLS + 40.0 * n * d):
            return None
        heavy = weights[order].cumsum(axis=0) >= 0.5 * weights.sum()
        centre = ordered[heavy.argmax(axis=0), np.arange(d)]
        total += centre
        away = np.abs(points - centre).sum(axis=1)
        mean = np.abs(points - total / (k + 1)).sum(axis=1)
        if min(away.max(), mean.max()) <= 1.0:
            return True
        if weights @ away > weights.sum():
            return False
        # Points that were far so far weigh more.
        gaps += away
        weights = np.exp((gaps - gaps.max()) / math.sqrt(k + 1.0))
    # The time of a linear program, as measured, grows with the square of its size.
    if not budget.spend(8e6 + 40.0 * (n * d) ** 2):
        return None
    return _by_program(points)


def _by_program(points: Array) -> bool | None:
    """Whether a Manhattan ball of radius one holds the points, by a centre or a lower bound."""
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
    if least.x is None:
        return None
    if np.abs(points - least.x[:d]).sum(axis=1).max() <= 1.0:
        return True
    # Signed weights that add up to zero in each coordinate bound the radius from below.
    above, below = least.ineqlin.marginals[: 2 * n * d].reshape(2, n, d)
    signed = above - below - (above - below).mean(axis=0)
    if abs(float((signed * points).sum())) > float(np.abs(signed).max(axis=1).sum()):
        return False
    return None


_CENTRES: dict[str, _Centre] = {
    "euclidean": _euclidean,
    "chebyshev": _chebyshev,
    "manhattan": _manhattan,
}
