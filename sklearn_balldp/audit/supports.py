"""Candidate sets of an audit: records near an anchor, from rows that were not trained on."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from .._parameters import check_option
from ..adjacency import METRICS
from ..rows import project_onto_ball
from ..text import UP, rounded

# Rows closer than this, in units of their length, count as one record.
_SAME = 1e-6

Rows = NDArray[np.float64]
Codes = NDArray[np.intp]
#: Most anchors that are tried for one support.
MAX_ANCHORS = 100
STRATEGIES = ("farthest", "random", "nearest")


@dataclass(frozen=True)
class Support:
    """Candidates for one hidden record, or for all records of one person."""

    #: Position of the training record that they stand in for; of several, the one that was drawn.
    anchor: int
    #: A row for each record that changes, inside the admissible ball: (n_candidates, n_changed,
    #: n_features).
    rows: Rows
    #: Their class codes, of shape (n_candidates, n_changed).
    codes: Codes
    #: Their positions in the pool, of the same shape.
    positions: NDArray[np.intp]
    #: Number of distinct pool rows that could be candidates; of several records, the smallest.
    n_in_ball: int
    #: Positions of the training records that they stand in for.
    places: NDArray[np.intp]


class Pool:
    """Records that candidates are drawn from, projected onto the ball of radius ``norm_bound``.

    Rows are projected and deduplicated class by class, when they are asked for.
    """

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
    """The pool has too few candidates near an anchor: how many, and a radius that has enough."""

    def __init__(self, message: str, found: int, needed: float) -> None:
        super().__init__(message)
        self.found, self.needed = found, needed


def distances(rows: Rows, others: Rows, metric: str) -> Rows:
    """Distances between two sets of rows, in a metric of the package."""
    return cdist(rows, others, METRICS[metric].scipy_name)


def candidate_distances(support: Support, metric: str) -> Rows:
    """Largest distance over the records of two candidates; infinite if their labels differ."""
    gaps = np.zeros((len(support.rows), len(support.rows)))
    for rows, codes in zip(support.rows.swapaxes(0, 1), support.codes.T, strict=True):
        own = distances(rows, rows, metric)
        # Another label is another record, however near.
        own[codes[:, None] != codes] = np.inf
        np.maximum(gaps, own, out=gaps)
    return gaps


def candidates_in_ball(
    pool: Rows,
    pool_codes: Codes,
    anchor: Rows,
    code: int,
    radius: float,
    *,
    metric: str = "euclidean",
    n_candidates: int = 10,
    any_label: bool = False,
) -> tuple[NDArray[np.intp], Rows]:
    """Distinct rows of the pool that may stand in for the anchor."""
    same = pool_codes == code
    whole = any_label or bool(same.all())
    positions = np.arange(len(pool)) if whole else np.flatnonzero(same)
    rows, same = (pool, same) if whole else (pool[positions], same[positions])
    distance = distances(rows, anchor[None], metric)[:, 0]
    # The anchor's own row is no candidate; under another label it is another record.
    other = ~same | (distance > _SAME * max(radius, float(np.linalg.norm(anchor))))
    positions, distance, same = positions[other], distance[other], same[other]
    near = (distance <= radius) | ~same
    found, total = int(near.sum()), len(near)
    if found >= n_candidates:
        return positions[near], distance[near]

    where = f"only {found} distinct candidate(s) lie within {_up(radius)} of the anchor"
    if total < n_candidates:
        raise TooFewCandidates(
            f"{where}, and only {total} at any radius; n_candidates={n_candidates} needs more "
            "public rows of the anchor's class: pass more X_public, or lower n_candidates.",
            found,
            np.inf,
        )
    needed = float(np.sort(np.where(same, distance, 0.0))[n_candidates - 1])
    raise TooFewCandidates(
        f"{where}; n_candidates={n_candidates} needs a radius of {_up(needed)}: pass that radius, "
        "more X_public, or lower n_candidates.",
        found,
        needed,
    )


def _up(radius: float) -> str:
    """A radius in few digits, rounded up, so that it is still large enough."""
    return rounded(radius, 4, UP)


def duplicates(rows: NDArray[np.floating], codes: Codes) -> NDArray[np.bool_]:
    """Which records repeat an earlier one, up to the rounding of their projection."""
    repeated = np.ones(len(rows), dtype=bool)
    exact = {
        (code, row.tobytes()): i
        for i, (code, row) in reversed(list(enumerate(zip(codes.tolist(), rows, strict=True))))
    }
    first_of_each = np.sort(np.fromiter(exact.values(), dtype=np.intp, count=len(exact)))
    repeated[first_of_each] = _near_duplicates(rows[first_of_each], codes[first_of_each])
    return repeated


def _near_duplicates(rows: NDArray[np.floating], codes: Codes) -> NDArray[np.bool_]:
    """Which records lie within rounding of an earlier one of their class."""
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
            other = place + side * step
            place = place[(other >= 0) & (other < len(rows))]
            own, other = order[place], order[place + side * step]
            close = np.abs(keys[own] - keys[other]) <= tolerance
            places[side], own, other = place[close], own[close], other[close]
            own, other = (
                part[(other < own) & (codes[own] == codes[other])] for part in (own, other)
            )
            equal = np.linalg.norm(rows[own] - rows[other], axis=1) <= tolerance
            repeated[own[equal]] = True
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
    check_option("support", strategy, STRATEGIES)
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

    Anchors with too few candidates are passed over: records far from all public ones are
    audited less.
    """
    supports: list[Support] = []
    passed_over: list[tuple[int, float]] = []
    if owners is not None:
        # Keep one record of each owner.
        anchors = anchors[np.unique(owners[anchors], return_index=True)[1]]

    def ball_of(place: int, least: int) -> tuple[NDArray[np.intp], Rows, NDArray[np.intp], Rows]:
        """Positions and rows of a record's class, which of them are near, and how far away."""
        row = project_onto_ball(X[place][None].astype(np.float64), pool.norm_bound)[0]
        code = int(codes[place])
        positions, rows = pool.candidate_rows(None if any_label else code)
        near, distance = candidates_in_ball(
            rows,
            pool.codes[positions],
            row,
            code,
            radius,
            metric=metric,
            n_candidates=least,
            any_label=any_label,
        )
        return positions, rows, near, distance

    order = random_state.permutation(anchors)[: MAX_ANCHORS * n_supports]
    for anchor in order.tolist():
        if len(supports) == n_supports:
            break
        places = np.array([anchor])
        if owners is not None:
            places = np.flatnonzero(owners == owners[anchor])
        balls, short_of = [], []
        for i, place in enumerate(places.tolist()):
            # A row more for each earlier record that may have taken one: see below.
            earlier = i if any_label else int((codes[places[:i]] == codes[place]).sum())
            try:
                balls.append((*ball_of(place, n_candidates + earlier), n_candidates + earlier))
            except TooFewCandidates as error:
                short_of.append((max(0, error.found - earlier), error.needed))
        if short_of:
            # The radius must do for all records of the person.
            found_of, needed_of = zip(*short_of, strict=True)
            passed_over.append((min(found_of), max(needed_of)))
            continue
        parts = []
        taken: list[set[int]] = [set() for _ in range(n_candidates)]
        for positions, rows, near, distance, least in balls:
            drawn = near[select(rows[near], distance, least, strategy, random_state, metric=metric)]
            own: list[int] = []
            # No candidate has one public row in the place of two records.
            for has in taken:
                own.append(next(k for k in drawn if positions[k] not in has and k not in own))
                has.add(int(positions[own[-1]]))
            parts.append((rows[own], pool.codes[positions[own]], positions[own], len(near)))
        own_rows, own_codes, own_positions, n_near = zip(*parts, strict=True)
        supports.append(
            Support(
                anchor,
                np.stack(own_rows, axis=1),
                np.stack(own_codes, axis=1),
                np.stack(own_positions, axis=1),
                min(n_near),
                places,
            )
        )
    short = n_supports - len(supports)
    if short > 0:
        found = max((found for found, _ in passed_over), default=0)
        needed = sorted(needed for _, needed in passed_over)[short - 1 : short] or [np.inf]
        more = "more X_public (or a larger holdout), or lower n_candidates or n_supports"
        remedy = f"no radius would do: pass {more}"
        if np.isfinite(needed[0]):
            remedy = (
                f"a radius of {_up(needed[0])} would do: pass it as the auditor's radius (not the "
                f"head's), or pass {more}"
            )
        raise TooFewCandidates(
            f"only {len(supports)} of n_supports={n_supports} anchors have "
            f"n_candidates={n_candidates} distinct candidates within {_up(radius)}, the others at "
            f"most {found}; {remedy}.",
            found,
            needed[0],
        )
    return supports, len(passed_over)
