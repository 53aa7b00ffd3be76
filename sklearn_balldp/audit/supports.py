"""Candidate sets of an audit: records near an anchor, from rows that were not trained on."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from ..adjacency import METRICS
from ..rows import project_onto_ball
from ..text import UP, rounded

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
            rows = np.asarray(
                project_onto_ball(self.rows[positions].astype(np.float64), self.norm_bound),
                dtype=np.float64,
            )
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


def draw_supports(
    X: NDArray[np.floating],
    codes: Codes,
    pool: Pool,
    radius: float,
    *,
    anchors: NDArray[np.intp],
    n_supports: int,
    n_candidates: int,
    strategy: str,
    random_state: np.random.Generator,
    metric: str = "euclidean",
    any_label: bool = False,
    owners: Codes | None = None,
) -> tuple[list[Support], int]:
    """Supports around random training records, or persons, drawn without replacement.

    Anchors with too few candidates, far from all public records, are passed over.
    """
    supports: list[Support] = []
    passed_over: list[tuple[int, float]] = []
    if owners is not None:
        # Keep one record of each owner.
        anchors = anchors[np.unique(owners[anchors], return_index=True)[1]]

    def ball_around(places: NDArray[np.intp], i: int) -> tuple[Any, Rows, Rows, float, int]:
        """Pool positions and rows near a record, how far they are, the radius needed, a margin."""
        code = int(codes[places[i]])
        row = project_onto_ball(X[places[i]][None].astype(np.float64), pool.norm_bound)[0]
        # A row more for each earlier record that may have taken one: see below.
        more = i if any_label else int((codes[places[:i]] == code).sum())
        positions, rows = pool.candidate_rows(None if any_label else code)
        distance, same = distances(rows, row[None], metric)[:, 0], pool.codes[positions] == code
        # The anchor's row is no candidate; under another label, at any distance, it is one.
        other = ~same | (distance > _SAME * max(radius, float(np.linalg.norm(row))))
        reach = np.where(same, distance, 0.0)[other]
        near, last = np.flatnonzero(other)[reach <= radius], n_candidates + more - 1
        needed = float(np.partition(reach, last)[last]) if len(reach) > last else np.inf
        return positions[near], rows[near], distance[near], needed, more

    for anchor in random_state.permutation(anchors)[: _TRIED_ANCHORS * n_supports].tolist():
        if len(supports) == n_supports:
            break
        places = np.array([anchor])
        if owners is not None:
            places = np.flatnonzero(owners == owners[anchor])
        balls = [ball_around(places, i) for i in range(len(places))]
        # The radius must do for all records of a person.
        needed = max(ball[3] for ball in balls)
        if needed > radius:
            n_near = min(len(distance) - more for _, _, distance, _, more in balls)
            passed_over.append((max(0, n_near), needed))
            continue
        picks = []
        taken: list[set[int]] = [set() for _ in range(n_candidates)]
        for positions, rows, distance, _, more in balls:
            drawn = select(
                rows, distance, n_candidates + more, strategy, random_state, metric=metric
            )
            # No candidate has one public row in the place of two records.
            picked: list[int] = []
            for rows_of_one in taken:
                fresh = (k for k in drawn if positions[k] not in rows_of_one and k not in picked)
                picked.append(next(fresh))
                rows_of_one.add(int(positions[picked[-1]]))
            picks.append((rows[picked], positions[picked]))
        chosen = np.stack([positions for _, positions in picks], axis=1)
        picked_rows = np.stack([rows for rows, _ in picks], axis=1)
        n_in_ball = min(len(ball[2]) for ball in balls)
        codes_of = pool.codes[chosen]
        supports.append(Support(anchor, picked_rows, codes_of, chosen, n_in_ball, places))
    short = n_supports - len(supports)
    if short > 0:
        n_near = max((n_near for n_near, _ in passed_over), default=0)
        needed = ([*sorted(needed for _, needed in passed_over), *[np.inf] * short])[short - 1]
        remedy = "more X_public (or a larger holdout), or lower n_candidates or n_supports"
        if np.isfinite(needed):
            remedy = (
                f"a radius of {rounded(needed, 4, UP)} would do: pass it as the auditor's radius "
                f"(not the head's), or pass {remedy}"
            )
        else:
            remedy = f"no radius would do: pass {remedy}"
        raise TooFewCandidates(
            f"only {len(supports)} of n_supports={n_supports} anchors have "
            f"n_candidates={n_candidates} distinct candidates within {rounded(radius, 4, UP)}, the "
            f"others at most {n_near}; {remedy}.",
            needed,
        )
    return supports, len(passed_over)
