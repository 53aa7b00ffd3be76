"""Candidate sets of an audit: records near an anchor, from rows that were not trained on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from ..policy.adjacency import project_onto_ball
from ..policy.radius import SCIPY_NAMES

Rows = NDArray[np.float64]
Codes = NDArray[np.intp]
#: Anchors looked at for one support, at most.
MAX_ANCHORS = 250
STRATEGIES = ("farthest", "random", "nearest")


@dataclass(frozen=True)
class Support:
    """Candidates for one hidden record.

    Attributes
    ----------
    anchor : int
        Position of the training record that they stand in for.
    rows : ndarray of shape (n_candidates, n_features)
        Candidates, inside the admissible ball.
    codes : ndarray of shape (n_candidates,)
        Their class codes.
    positions : ndarray of shape (n_candidates,)
        Their positions in the pool.
    n_in_ball : int
        Distinct rows of the pool that could have been candidates.
    """

    anchor: int
    rows: Rows
    codes: Codes
    positions: NDArray[np.intp]
    n_in_ball: int


class TooFewCandidates(ValueError):
    """The pool has too few candidates near an anchor; ``needed`` is a radius that has enough."""

    def __init__(self, message: str, found: int, needed: float) -> None:
        super().__init__(message)
        self.found, self.needed = found, needed


def distances(rows: Rows, others: Rows, metric: str) -> Rows:
    """Distances between two sets of rows, in a metric of the package.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
    others : ndarray of shape (n_others, n_features)
    metric : {"euclidean", "manhattan", "chebyshev"}
        Distance between rows.

    Returns
    -------
    ndarray of shape (n_rows, n_others)
    """
    return cdist(rows, others, SCIPY_NAMES[metric])


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
    """Distinct rows of the pool that may stand in for the anchor.

    Parameters
    ----------
    pool : ndarray of shape (n_pool, n_features)
        Rows inside the admissible ball that were not trained on, without :func:`duplicates`.
    pool_codes : ndarray of shape (n_pool,)
        Their class codes.
    anchor : ndarray of shape (n_features,)
        Anchor, inside the admissible ball.
    code : int
        Its class.
    radius : float
        Largest distance from the anchor.
    metric : {"euclidean", "manhattan", "chebyshev"}, default="euclidean"
        Distance between rows.
    n_candidates : int, default=10
        Least number of candidates.
    any_label : bool, default=False
        Whether rows of other classes qualify, at any distance (label-protecting adjacency).

    Returns
    -------
    positions : ndarray
        Positions in the pool, increasing; none equal to the anchor.
    distance : ndarray
        Their distances from the anchor.

    Raises
    ------
    TooFewCandidates
        If there are fewer than ``n_candidates``; the message says how many there were and what
        radius would do.
    """
    same = pool_codes == code
    positions = np.arange(len(pool)) if any_label else np.flatnonzero(same)
    distance = distances(pool[positions], anchor[None], metric)[:, 0]
    # A record of another class at the anchor's place is still another record.
    distance = np.where(same[positions] | (distance > 0.0), distance, np.inf)
    positions, distance = positions[distance > 0.0], distance[distance > 0.0]
    near = (distance <= radius) | ~same[positions]
    found, total = int(near.sum()), len(near)
    if found >= n_candidates:
        return positions[near], distance[near]
    where = f"only {found} distinct candidate(s) lie within {radius:.4g} of the anchor"
    if total < n_candidates:
        raise TooFewCandidates(
            f"{where}, and only {total} at any radius; n_candidates={n_candidates} needs more "
            "public rows of the anchor's class: pass more X_public, or lower n_candidates.",
            found,
            np.inf,
        )
    needed = float(np.sort(distance)[n_candidates - 1])
    raise TooFewCandidates(
        f"{where}; n_candidates={n_candidates} needs a radius of {needed:.4g}: pass that radius, "
        "more X_public, or lower n_candidates.",
        found,
        needed,
    )


def duplicates(rows: NDArray[np.floating], codes: Codes) -> NDArray[np.bool_]:
    """Which records repeat an earlier one.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
    codes : ndarray of shape (n_rows,)
        Their class codes: equal rows of different classes are different records.

    Returns
    -------
    ndarray of shape (n_rows,)
    """
    seen: set[tuple[int, bytes]] = set()
    repeated = np.zeros(len(rows), dtype=bool)
    for i, (row, code) in enumerate(zip(rows, codes.tolist(), strict=True)):
        # Adding zero turns -0.0 into 0.0.
        key = (code, (row + 0.0).tobytes())
        repeated[i] = key in seen
        seen.add(key)
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
    """Choose candidates among the rows of a ball.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features)
        Distinct rows in the ball, at least ``n_candidates``.
    distance : ndarray of shape (n_rows,)
        Their distances from the anchor.
    n_candidates : int
        How many to choose.
    strategy : {"farthest", "random", "nearest"}
        "farthest": the first at random among the ``4 * n_candidates`` farthest from the anchor,
        then always the row farthest from those chosen (the paper's, the easiest to tell apart).
        "random": uniformly. "nearest": the nearest to the anchor (the hardest).
    random_state : Generator
        Draws the random choices.
    metric : {"euclidean", "manhattan", "chebyshev"}, default="euclidean"
        Distance between rows.

    Returns
    -------
    ndarray of shape (n_candidates,)
        Distinct positions in ``rows``.

    Raises
    ------
    ValueError
        If the strategy is unknown.

    References
    ----------
    Margaryan & Gupta, the audit's farthest-point supports.
    """
    if strategy == "random":
        return random_state.choice(len(rows), size=n_candidates, replace=False)
    order = np.argsort(distance, kind="stable")
    if strategy == "nearest":
        return order[:n_candidates]
    if strategy != "farthest":
        raise ValueError(f"support must be one of {', '.join(STRATEGIES)}; got {strategy!r}.")
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
    pool: NDArray[np.floating],
    pool_codes: Codes,
    radius: float,
    *,
    anchors: NDArray[np.intp],
    norm_bound: float,
    n_supports: int,
    n_candidates: int,
    strategy: str,
    random_state: np.random.Generator,
    metric: str = "euclidean",
    any_label: bool = False,
) -> tuple[list[Support], int]:
    """Supports around random training records, drawn without replacement.

    Anchors with too few candidates are passed over: records far from all public ones are
    audited less.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Training rows.
    codes : ndarray of shape (n_samples,)
        Their class codes.
    pool, pool_codes
        As for :func:`candidates_in_ball`.
    radius, metric, any_label
        As for :func:`candidates_in_ball`.
    anchors : ndarray
        Positions of the training records that may be anchors.
    norm_bound : float
        Radius of the admissible ball that training rows are projected onto.
    n_supports : int
        How many supports.
    n_candidates, strategy
        How many candidates in each, chosen how (:func:`select`).
    random_state : Generator
        Draws anchors and candidates.

    Returns
    -------
    supports : list of Support
    n_passed_over : int
        Anchors that had too few candidates.

    Raises
    ------
    TooFewCandidates
        If too few anchors have enough candidates; the message says how many the others have and
        what radius would do.
    """
    everywhere = np.arange(len(pool))
    by_class = {c: np.flatnonzero(pool_codes == c) for c in np.unique(codes[anchors]).tolist()}
    supports: list[Support] = []
    passed_over: list[TooFewCandidates] = []
    order = random_state.permutation(anchors)[: MAX_ANCHORS * n_supports]
    for anchor in order.tolist():
        if len(supports) == n_supports:
            break
        row = project_onto_ball(X[anchor][None].astype(np.float64), norm_bound)[0]
        code = int(codes[anchor])
        part = everywhere if any_label else by_class[code]
        rows = pool[part].astype(np.float64)
        try:
            near, distance = candidates_in_ball(
                rows,
                pool_codes[part],
                row,
                code,
                radius,
                metric=metric,
                n_candidates=n_candidates,
                any_label=any_label,
            )
        except TooFewCandidates as error:
            passed_over.append(error)
            continue
        chosen = select(rows[near], distance, n_candidates, strategy, random_state, metric=metric)
        positions = part[near[chosen]]
        supports.append(
            Support(anchor, rows[near[chosen]], pool_codes[positions], positions, len(near))
        )
    short = n_supports - len(supports)
    if short > 0:
        found = max((error.found for error in passed_over), default=0)
        needed = sorted(error.needed for error in passed_over)[short - 1 : short] or [np.inf]
        remedy = "no radius would do: pass more X_public, or lower n_candidates or n_supports"
        if np.isfinite(needed[0]):
            remedy = f"a radius of {needed[0]:.4g} would do, or more X_public, or less of either"
        raise TooFewCandidates(
            f"only {len(supports)} of n_supports={n_supports} anchors have "
            f"n_candidates={n_candidates} distinct candidates within {radius:.4g}, the others at "
            f"most {found}; {remedy}.",
            found,
            needed[0],
        )
    return supports, len(passed_over)
