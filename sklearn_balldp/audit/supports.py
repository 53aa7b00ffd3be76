"""Candidate sets of an audit: records near an anchor, from rows that were not trained on."""

import math
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from ..adjacency import METRICS
from ..rows import project_onto_ball
from ..showing import UP, rounded

# Rows closer than this, in units of their length, count as one record.
_SAME = 1e-6

Rows = NDArray[np.float64]
Codes = NDArray[np.intp]
# So many anchors are tried for one support.
_TRIED_ANCHORS = 100
STRATEGIES = ("farthest", "random", "nearest")


@dataclass(frozen=True, repr=False)
class Support:
    """Candidates for one hidden record, or for all records of one person."""

    #: Position of the training record that they stand in for; of several, the one that was drawn.
    anchor: int
    #: A row for each record that changes, inside the admissible ball: (n_candidates, n_changed,
    #: n_features).
    rows: Rows
    codes: Codes  # their class codes, of shape (n_candidates, n_changed)
    positions: NDArray[np.intp]  # their positions in the pool, of the same shape
    #: Number of distinct pool rows that could be candidates; of several records, the smallest.
    n_in_ball: int
    places: NDArray[np.intp]  # positions of the training records that they stand in for


class Pool:
    """Records that candidates are drawn from, in the ball; made class by class when asked for."""

    def __init__(self, rows: NDArray[np.floating], codes: Codes, norm_bound: float) -> None:
        self.rows, self.codes, self.norm_bound = rows, codes, norm_bound
        self._ready: dict[int | None, tuple[NDArray[np.intp], Rows]] = {}

    def candidate_rows(self, code: int | None) -> tuple[NDArray[np.intp], Rows]:
        """Positions and projected float64 rows of a class (None: of all), without duplicates."""
        if code not in self._ready:
            everything = np.arange(len(self.codes))
            positions = everything if code is None else np.flatnonzero(self.codes == code)
            own = self.rows[positions].astype(np.float64)
            rows: Rows = project_onto_ball(own, self.norm_bound)  # type: ignore[assignment]
            kept = ~duplicates(rows, self.codes[positions])
            self._ready[code] = positions[kept], rows[kept]
        return self._ready[code]


class TooFewCandidates(ValueError):
    """The pool has too few candidates near an anchor; ``needed`` is a radius that has enough."""

    def __init__(self, message: str, needed: float) -> None:
        super().__init__(message)
        self.needed = needed


def distances(rows: Rows, others: Rows, metric: str) -> Rows:
    """Distances between two sets of rows, in a metric of the package."""
    return cdist(rows, others, METRICS[metric].scipy_name)


def candidate_distances(support: Support, metric: str) -> Rows:
    """Largest distance over the records of two candidates; infinite if their labels differ."""
    gaps = np.zeros((len(support.rows), len(support.rows)))
    for rows, codes in zip(support.rows.swapaxes(0, 1), support.codes.T, strict=True):
        # Another label is another record, however near.
        same = codes[:, None] == codes
        gaps = np.maximum(gaps, np.where(same, distances(rows, rows, metric), np.inf))
    return gaps


def duplicates(rows: NDArray[np.floating], codes: Codes) -> NDArray[np.bool_]:
    """Which records repeat an earlier one of their class, up to the rounding of a projection."""
    repeated = np.zeros(len(rows), dtype=bool)
    squares = np.vecdot(rows, rows)
    tolerance = _SAME * math.sqrt(float(squares.max(initial=0.0)))
    # Equal rows have equal projections, so only neighbours in their order are compared.
    direction = np.random.default_rng(0).standard_normal(rows.shape[1])
    keys = rows @ (direction / np.linalg.norm(direction))
    order = np.argsort(keys, kind="stable")
    # Places in that order whose record is compared with that ``step`` places before, and after.
    places = {-1: np.arange(len(rows)), 1: np.arange(len(rows))}
    for step in range(1, len(rows)):
        for side, place in places.items():
            # A record that repeats one is compared no further, so that many copies take no longer.
            place = place[~repeated[order[place]]]
            place = place[(place + side * step >= 0) & (place + side * step < len(rows))]
            one, other = order[place], order[place + side * step]
            close = np.abs(keys[one] - keys[other]) <= tolerance
            places[side] = place[close]
            some = close & (other < one) & (codes[one] == codes[other])
            one, other = one[some], other[some]
            repeated[one[np.linalg.norm(rows[one] - rows[other], axis=1) <= tolerance]] = True
        if not any(map(len, places.values())):
            break
    return repeated


def select(
    rows: Rows,
    distance: Rows,
    n_candidates: int,
    strategy: str,
    random_state: np.random.Generator,
    *,
    metric: str = "euclidean",
) -> NDArray[np.intp]:
    """Choose candidates among the rows of a ball; "farthest" is the paper's choice."""
    if strategy == "random":
        return random_state.choice(len(rows), size=n_candidates, replace=False)
    order = np.argsort(distance, kind="stable")
    if strategy == "nearest":
        return order[:n_candidates]
    chosen = [int(random_state.choice(order[-4 * n_candidates :]))]
    gap = distances(rows, rows[chosen], metric)[:, 0]
    while len(chosen) < n_candidates:
        gap[chosen] = -1.0
        chosen.append(int(np.argmax(gap)))
        gap = np.minimum(gap, distances(rows, rows[chosen[-1:]], metric)[:, 0])
    return np.array(chosen)


class _Ball(NamedTuple):
    """Rows of the pool that may stand in for one record."""

    positions: NDArray[np.intp]
    rows: Rows
    distance: Rows
    needed: float  # the smallest radius that has enough of them
    spare: int  # rows that earlier records of the same person may take away


class _Shortage(NamedTuple):
    """Why an anchor is passed over: so many candidates are near, and the radius that would do."""

    n_near: int
    needed: float


@dataclass(frozen=True, repr=False)
class Surroundings:
    """What supports are drawn from: training records in the ball, and the pool around them."""

    X: NDArray[np.floating]
    codes: Codes
    pool: Pool
    radius: float
    _: KW_ONLY
    n_candidates: int
    strategy: str
    metric: str = "euclidean"
    any_label: bool = False
    owners: Codes | None = None  # of each training record, where persons are attacked

    def support(self, anchor: int, random_state: np.random.Generator) -> Support | _Shortage:
        """Candidates for an anchor's record, or for all of its owner."""
        places = np.array([anchor])
        if self.owners is not None:
            places = np.flatnonzero(self.owners == self.owners[anchor])
        balls = [self._ball(places, i) for i in range(len(places))]
        # The radius must do for all records of a person.
        needed = max(ball.needed for ball in balls)
        if needed > self.radius:
            return _Shortage(max(0, min(len(b.rows) - b.spare for b in balls)), needed)
        taken: list[set[int]] = [set() for _ in range(self.n_candidates)]
        picks = [(ball, self._pick(ball, taken, random_state)) for ball in balls]
        positions = np.stack([ball.positions[picked] for ball, picked in picks], axis=1)
        rows = np.stack([ball.rows[picked] for ball, picked in picks], axis=1)
        n_in_ball = min(len(ball.rows) for ball in balls)
        return Support(anchor, rows, self.pool.codes[positions], positions, n_in_ball, places)

    def _ball(self, places: NDArray[np.intp], i: int) -> _Ball:
        """The rows that may stand in for record ``places[i]``."""
        code = int(self.codes[places[i]])
        own: Rows = self.X[places[i]][None].astype(np.float64)
        row: Rows = project_onto_ball(own, self.pool.norm_bound)  # type: ignore[assignment]
        spare = i if self.any_label else int((self.codes[places[:i]] == code).sum())
        positions, rows = self.pool.candidate_rows(None if self.any_label else code)
        distance = distances(rows, row, self.metric)[:, 0]
        same = self.pool.codes[positions] == code
        # The anchor's row is no candidate; under another label, at any distance, it is one.
        other = ~same | (distance > _SAME * max(self.radius, float(np.linalg.norm(row))))
        reach = np.where(same, distance, 0.0)[other]
        near, last = np.flatnonzero(other)[reach <= self.radius], self.n_candidates + spare - 1
        needed = float(np.partition(reach, last)[last]) if len(reach) > last else np.inf
        return _Ball(positions[near], rows[near], distance[near], needed, spare)

    def _pick(
        self, ball: _Ball, taken: list[set[int]], random_state: np.random.Generator
    ) -> list[int]:
        """A row for each candidate, none that it has ``taken`` in another record's place."""
        drawn = select(
            ball.rows,
            ball.distance,
            self.n_candidates + ball.spare,
            self.strategy,
            random_state,
            metric=self.metric,
        )
        picked: list[int] = []
        for positions in taken:
            fresh = (k for k in drawn if ball.positions[k] not in positions and k not in picked)
            picked.append(next(fresh))
            positions.add(int(ball.positions[picked[-1]]))
        return picked


def draw_supports(
    around: Surroundings,
    anchors: NDArray[np.intp],
    n_supports: int,
    random_state: np.random.Generator,
) -> tuple[list[Support], int]:
    """Supports around random anchors, or their persons, drawn without replacement.

    Anchors with too few candidates, far from all public records, are passed over.
    """
    supports: list[Support] = []
    passed_over: list[_Shortage] = []
    if around.owners is not None:
        # Keep one record of each owner.
        anchors = anchors[np.unique(around.owners[anchors], return_index=True)[1]]
    for anchor in random_state.permutation(anchors)[: _TRIED_ANCHORS * n_supports].tolist():
        if len(supports) == n_supports:
            break
        drawn = around.support(anchor, random_state)
        if isinstance(drawn, Support):
            supports.append(drawn)
        else:
            passed_over.append(drawn)
    if len(supports) < n_supports:
        raise _too_few(around, len(supports), n_supports, passed_over)
    return supports, len(passed_over)


def _too_few(
    around: Surroundings, n_drawn: int, n_supports: int, passed_over: list[_Shortage]
) -> TooFewCandidates:
    """The error for supports that are missing, with a radius that has enough."""
    short = n_supports - n_drawn
    n_near = max((one.n_near for one in passed_over), default=0)
    needed = ([*sorted(one.needed for one in passed_over), *[np.inf] * short])[short - 1]
    remedy = "more X_public (or a larger holdout), or lower n_candidates or n_supports"
    if np.isfinite(needed):
        remedy = (
            f"a radius of {rounded(needed, 4, UP)} would do: pass it as the auditor's radius "
            f"(not the head's), or pass {remedy}"
        )
    else:
        remedy = f"no radius would do: pass {remedy}"
    return TooFewCandidates(
        f"only {n_drawn} of n_supports={n_supports} anchors have "
        f"n_candidates={around.n_candidates} distinct candidates within "
        f"{rounded(around.radius, 4, UP)}, the others at most {n_near}; {remedy}.",
        needed,
    )
