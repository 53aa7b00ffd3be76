"""What rounding adds to sums, means and gradients, whichever machines make them, in any order."""

import math

from ..adjacency import ROW_ALLOWANCE
from ..losses import Loss
from .weights import Weights

UNIT_ROUNDOFF = 2.0**-53
#: Values of a block of rows, and most rows and most blocks that are added up one after the other:
#: proofs count on them, and so on that all else is added in pairs (:mod:`.rows.passes`).
BLOCK_VALUES, BLOCK, MOST_BLOCKS = 2**18, 4096, 256
#: Least norm, in units of B, that a whitening map may leave for rows: relative errors of a row grow
#: as it gets shorter.
SHORTEST = 0.3
# So moving rows makes them shorter, and their relative errors larger, by 1 / 0.3 and a little.
_CENTRING_FACTOR = 3.5
#: Least factor that whitening multiplies rows by along a direction, and most such directions.
LEAST_KEPT, MOST_DIRECTIONS = 1.0 / 3.0, 64


def block_rows(n_features: int) -> int:
    """Rows in a block, at most."""
    return max(1, min(BLOCK, BLOCK_VALUES // max(n_features, 1)))


def additions(n_rows: int, n_features: int) -> float:
    """Most additions that the term of a row passes through, however rows are cut into chunks.

    Those of the rows of its block, and of the blocks of its run; runs and parts are added in pairs.
    A public number, which follows from the shape alone.
    """
    # A record that is not checked yet may state a negative number.
    pairs = 4.0 * math.log2(max(n_rows, 0) + 2)
    return block_rows(n_features) + MOST_BLOCKS + pairs


def mean_rounding(
    loss: Loss,
    *,
    norm: float,
    n_samples: int,
    n_features: int,
    norm_bound: float,
    constant: float,
    clip: float | None,
    weights: Weights,
    whitened: bool = False,
) -> float:
    """Half of what rounding adds to the sensitivity of a computed mean gradient.

    The page "Finite precision" proves it. Where rows are shortened (``whitened``), B is their
    norm before that, and ``norm`` is of parameters for rows after it.
    """
    u = 2.0**-52
    # The factor covers stored rows that rounding has moved out of the ball.
    augmented = math.hypot(norm_bound, constant) * (1.0 + ROW_ALLOWANCE)
    score = norm * augmented
    longest = min(loss.residual_limit(), math.inf if clip is None else clip)
    # A sum of d squares, its root and a quotient; a row may be projected, moved, and projected.
    row = _CENTRING_FACTOR * (n_features + 12.0) * UNIT_ROUNDOFF
    turned = 0.0
    if whitened:
        k = min(MOST_DIRECTIONS, n_features)
        turned = 6.0 * (n_features + k + 4.0) * UNIT_ROUNDOFF
        squares = (1.0 + 2.0 * math.sqrt(k)) * n_features + 2.0 * k + 16.0
        row += 0.5 * squares / LEAST_KEPT**2 * UNIT_ROUNDOFF + turned
    evaluation = (loss.n_scores + 20.0) * u
    gradient = longest * augmented
    record = (evaluation + row) * gradient
    # Residuals before they are clipped: those of softmax may be wrong in their angle.
    products = 0.5 * (n_features + 16.0) * u
    # The second factor covers powers of the first.
    moved = (products * (1.0 + 2.0 * products) + row) * score
    largest = loss.residual_limit(score) * math.sqrt(loss.n_stacked)
    record += (loss.curvature * moved + evaluation * largest) * augmented
    if not weights.uniform:
        # Weights are rounded, and so are their products.
        record += 4.0 * u * gradient
    # Divisions by the total weight and the noise scale, and products of errors.
    added = 1.01 * (additions(n_samples, n_features) + 8.0) * UNIT_ROUNDOFF + turned
    return record + added * gradient


def sums_rounding(
    *, n_samples: int, n_features: int, record: float, augmented: float, norm: float
) -> tuple[float, float]:
    """What rounding adds to the moves of class sums, and of the second moment, in double precision.

    ``record`` is the largest weight of one; rows have a ``norm``, and are as long as ``augmented``
    with what counts them. The proof is in "What is asked of the records".
    """
    terms = additions(n_samples, n_features) + n_features + 64.0
    error = 2.0 * record * 1.01 * terms * n_samples * UNIT_ROUNDOFF
    return error * augmented, error * norm**2


def gradient_rounding(
    loss: Loss, *, n_samples: int, n_features: int, norm: float, row_norm: float
) -> float:
    """Bound on the rounding error of a computed gradient of the objective, from public numbers."""
    scores = (n_features + 3.0) * norm * row_norm * loss.curvature
    # A row's projection factor errs like a sum of n_features squares; its weight is a factor too.
    terms = additions(n_samples, n_features) + n_features + loss.n_scores + 26.0
    sums = terms * loss.score_residual_limit(norm * row_norm)
    columns = math.sqrt(loss.n_scores)
    return 2.0 * UNIT_ROUNDOFF * columns * row_norm * (scores + sums)
