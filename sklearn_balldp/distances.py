"""Distances between rows, and quantiles of them: same-label pairs, edits, private draws."""

import math
import os
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist, pdist

from ._parameters import Share, check_number, check_option
from .adjacency import METRICS, full_radius_in
from .losses import Array
from .privacy.exact_normal import Entropy
from .privacy.noise import RandomState, check_random_state

#: Classes with at most this many pairs use all of them.
ALL_PAIRS = 250_000
#: Of larger ones so many are drawn.
DRAWN_PAIRS = 100_000
#: Candidates of the private quantile, evenly spaced up to the diameter of the domain.
GRID_SIZE = 4096
#: Number of distances that the diameter computes at a time.
DIAMETER_BLOCK = 2**22


def row_distances(before: NDArray[np.floating], after: NDArray[np.floating], metric: str) -> Array:
    """Distance of every row from its partner, computed in blocks in double precision."""
    distances = np.empty(len(before))
    for start in range(0, len(before), 4096):
        rows = slice(start, start + 4096)
        difference = before[rows].astype(np.float64) - after[rows]
        distances[rows] = np.linalg.norm(difference, ord=METRICS[metric].order, axis=1)
    return distances


def _class_distances(rows: NDArray[np.floating], metric: str, rng: np.random.Generator) -> Array:
    """Distances of all pairs of a small class, of sampled pairs of a large one."""
    if math.comb(len(rows), 2) <= ALL_PAIRS:
        return pdist(rows.astype(np.float64), METRICS[metric].scipy_name)
    first = rng.integers(len(rows), size=DRAWN_PAIRS)
    # An offset of at least one keeps the two rows of a pair distinct.
    second = (first + rng.integers(1, len(rows), size=DRAWN_PAIRS)) % len(rows)
    some = [slice(start, start + 4096) for start in range(0, DRAWN_PAIRS, 4096)]
    return np.concatenate([row_distances(rows[first[s]], rows[second[s]], metric) for s in some])


def _diameter(rows: NDArray[np.floating], metric: str) -> float:
    """Exact diameter of a class, in blocks of rows."""
    rows, name = rows.astype(np.float64), METRICS[metric].scipy_name
    largest = 0.0
    size = max(1, DIAMETER_BLOCK // len(rows))
    centred = rows - rows.mean(axis=0)
    squares = np.vecdot(centred, centred)
    # More than the rounding of a squared distance by a product, and of the centred rows.
    reach, length = math.sqrt(squares.max()), math.sqrt(np.vecdot(rows, rows).max())
    slack = 2.0**-50 * (rows.shape[1] + 8) * reach * (reach + length)
    for start in range(0, len(rows), size):
        block, later = rows[start : start + size], rows[start:]
        if metric == "euclidean":
            # A matrix product is many times as fast, and leaves the few rows that may be farthest.
            product = centred[start : start + size] @ centred[start:].T
            farthest = squares[start : start + size] + (squares[start:] - 2.0 * product).max(axis=1)
            block = block[farthest >= max(largest**2, farthest.max() - slack) - slack]
        if len(block):
            largest = max(largest, float(cdist(block, later, name).max()))
    return largest


def same_label_quantile(
    X: ArrayLike,
    y: ArrayLike,
    quantile: float = 0.5,
    *,
    metric: str = "euclidean",
    random_state: int | np.random.Generator | None = 0,
) -> float:
    """Largest class's quantile of same-label pair distances: the radius of Margaryan & Gupta.

    The result is a function of the rows: it is public only if they are.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Reference rows.
    y : array-like of shape (n_samples,)
        Their labels.
    quantile : float, default=0.5
        How many of the pairs the radius covers: a larger quantile gives a larger radius, and so
        more noise. Between 0 and 1; 1 is the same-label diameter, always exact.
    metric : {"euclidean", "manhattan", "chebyshev"}, default="euclidean"
        How distances between rows are measured.
    random_state : int, Generator or None, default=0
        Draws the pairs of classes that have more than 250000; the default draws the same ones
        every time.

    Returns
    -------
    float
        The radius; classes of one row are left out.

    Raises
    ------
    ValueError
        If a parameter is invalid, or no class has two rows.
    """
    check_option("metric", metric, METRICS)
    check_number("quantile", quantile, Share)
    X, y = np.asarray(X), np.asarray(y)
    rng = np.random.default_rng(random_state)
    classes = [np.flatnonzero(y == label) for label in np.unique(y)]
    classes = [members for members in classes if len(members) > 1]
    if not classes:
        raise ValueError(
            f"y: no class has two reference rows (n_samples={len(y)}); pass more reference records."
        )
    radii = (
        _diameter(X[members], metric)
        if quantile == 1.0
        else float(np.quantile(_class_distances(X[members], metric, rng), quantile))
        for members in classes
    )
    return max(radii)


def edit_quantile(
    X_before: ArrayLike,
    X_after: ArrayLike,
    quantile: float = 0.95,
    *,
    metric: str = "euclidean",
    coverage: str = "pairs",
    record: ArrayLike | None = None,
) -> tuple[float, float, float | None]:
    """Smallest distance of a pair within which lies a share of the edits, and what it covers.

    The share, at least ``quantile``, is of all pairs, or of the records all of whose pairs lie
    within. ``record`` is the number of each: encoders round equal texts in another batch in another
    way. Returns the distance, and both shares; the second is None without numbers.
    """
    before = np.asarray(X_before)
    covered = distances = row_distances(before, np.asarray(X_after), metric)
    furthest = None
    if record is not None:
        number = np.unique(checked_records(record, len(before)), return_inverse=True)[1]
        furthest = np.zeros(number.max() + 1)
        np.maximum.at(furthest, number, distances)
    if coverage == "records":
        if furthest is None:
            raise ValueError(
                "coverage='records' needs the number of each pair's record: fit the policy itself, "
                "RadiusPolicy(...).fit(X_before, X_after, record=pairs.record), and pass it to a "
                "head in a FrozenEstimator; or use coverage='pairs'."
            )
        covered = furthest
    # This method returns an observed distance, never a value between two of them.
    radius = float(np.quantile(covered, quantile, method="inverted_cdf"))
    of_records = None if furthest is None else float(np.mean(furthest <= radius))
    return radius, float(np.mean(distances <= radius)), of_records


def checked_records(record: ArrayLike, n_pairs: int) -> NDArray[np.integer]:
    """Numbers of the records that pairs came from; a ValueError if they are none."""
    numbers = np.asarray(record)
    if numbers.shape != (n_pairs,) or numbers.dtype.kind not in "iu":
        raise ValueError(
            f"record must hold a whole number for each of the {n_pairs} pairs, that of its record; "
            "pass EditPairs.record."
        )
    return numbers


def private_quantile(
    X: ArrayLike,
    y: ArrayLike,
    quantile: float = 0.5,
    *,
    epsilon: float,
    norm_bound: float = 1.0,
    metric: str = "euclidean",
    random_state: RandomState = None,
) -> float:
    """Largest class's quantile of same-label distances, by permute-and-flip.

    Records are paired at random by labels alone, so a substitution changes one distance. Classes
    are disjoint: the maximum over them costs no more epsilon than one. The scores of radii o, for m
    pairs, are -|#{d < o} - q m| (Smith, 2011; "The private quantile" of the documentation).
    """
    X, y = np.asarray(X), np.asarray(y)
    generator = check_random_state(random_state)
    # The pairing need not be secret: the random choice of the candidate gives the privacy.
    order = _shuffled(len(y), generator)
    largest = full_radius_in(metric, norm_bound, X.shape[1])
    grid = largest * np.arange(1, GRID_SIZE + 1) / GRID_SIZE
    radii = []
    for label in np.unique(y):
        members = order[y[order] == label]
        n_pairs = len(members) // 2
        if n_pairs == 0:
            continue
        first, second = members[:n_pairs], members[n_pairs : 2 * n_pairs]
        distances = np.sort(row_distances(X[first], X[second], metric))
        below = np.searchsorted(distances, grid, side="left")
        # Integer scores have no rounding error: a substitution changes each by at most one.
        scores = -np.abs(below - round(quantile * n_pairs))
        radii.append(grid[permute_and_flip(scores, epsilon, generator)])
    if not radii:
        raise ValueError(
            f"y: no class has two records (n_samples={len(y)}); pass a radius instead."
        )
    return float(max(radii))


def _shuffled(
    n: int, generator: np.random.Generator | np.random.RandomState | None
) -> NDArray[np.intp]:
    return (np.random.default_rng() if generator is None else generator).permutation(n)


def permute_and_flip(scores: ArrayLike, epsilon: float, random_state: RandomState = None) -> int:
    """Choose an index with a large score, by permute-and-flip: pure epsilon-DP.

    One substitution must move each of the scores, which are whole, by at most one. Candidate i
    would be accepted with probability exp(-epsilon (max score - score) / 2); the choice is uniform
    among all that would be. Without ``random_state`` the coins are exact, with operating-system
    entropy.

    References
    ----------
    McKenna & Sheldon, "Permute-and-flip", NeurIPS 2020. Its coins are those of Canonne, Kamath &
    Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Algorithm 1.
    """
    whole = np.asarray(scores)
    if whole.dtype.kind not in "iu" or whole.ndim != 1 or len(whole) == 0:
        raise ValueError("scores must be a non-empty vector of whole numbers.")
    if not 0.0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be positive, got {epsilon!r}.")
    generator = check_random_state(random_state)
    bits: Entropy = os.urandom if generator is None else generator.bytes
    half = Fraction(epsilon) / 2
    gaps = [int(gap) for gap in int(whole.max()) - whole.astype(object)]
    rates = {gap: divmod(half * gap, 1) for gap in set(gaps)}
    # exp(-rate) is the product of floor(rate) factors exp(-1) and of exp(-rest).
    factors = np.array([min(rates[gap][0], 2**62) for gap in gaps], dtype=np.int64)
    alive = np.arange(len(gaps))
    while (waiting := factors[alive] > 0).any():
        passed = np.ones(len(alive), dtype=bool)
        passed[waiting] = _coins_of_inverse_e(int(waiting.sum()), bits)
        factors[alive] -= 1
        alive = alive[passed]
    accepted = [i for i in alive.tolist() if _coin_of_exponential(rates[gaps[i]][1], bits)]
    return accepted[_below(len(accepted), bits)]


def _coin_of_exponential(rate: Fraction, bits: Entropy) -> bool:
    """True with probability exp(-rate), for a rate in [0, 1]: the first to fail is odd."""
    trial = 1
    while _below(rate.denominator * trial, bits) < rate.numerator:
        trial += 1
    return trial % 2 == 1


def _coins_of_inverse_e(size: int, bits: Entropy) -> NDArray[np.bool_]:
    """Many coins that are True with probability exp(-1), by the same trials at rate 1."""
    odd = np.zeros(size, dtype=bool)
    going, trial = np.arange(size), 1
    while len(going):
        succeeds = _many_below(trial, len(going), bits) == 0
        odd[going[~succeeds]] = trial % 2 == 1
        going, trial = going[succeeds], trial + 1
    return odd


def _below(end: int, bits: Entropy) -> int:
    """A uniform whole number below ``end``, by rejection."""
    n_bits = (end - 1).bit_length()
    n_bytes = (n_bits + 7) // 8
    while True:
        number = int.from_bytes(bits(n_bytes), "little") >> (8 * n_bytes - n_bits)
        if number < end:
            return number


def _many_below(end: int, size: int, bits: Entropy) -> NDArray[np.uint64]:
    """Uniform whole numbers below a small ``end``, by rejection."""
    words = np.frombuffer(bits(8 * size), dtype="<u8").copy()
    # Words from this limit on would make small remainders more likely.
    limit = 2**64 // end * end
    while (again := np.flatnonzero(words > np.uint64(limit - 1))).size:
        words[again] = np.frombuffer(bits(8 * len(again)), dtype="<u8")
    return words % np.uint64(end)
