"""Projection of rows onto the admissible ball: each row by itself, 1-Lipschitz."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import namespace
from .passes import map_shards, row_blocks
from .sources import SCALED_ENTRY, Rows, are_squarable, squarable


def ball_factors(rows: NDArray[np.float64], norm_bound: float) -> NDArray[np.float64] | None:
    """Factors that project float64 rows onto the ball: min(1, B / norm), None where all are one.

    Raises FloatingPointError if a row holds NaN or infinity.
    """
    # A low-precision NumPy scalar would round or overflow when squared.
    norm_bound, xp = float(norm_bound), namespace(rows)
    with np.errstate(all="ignore"):
        squares = xp.vecdot(rows, rows)
        inside = squares <= norm_bound * norm_bound
        if xp.all(inside):
            return None
        if not xp.all(xp.isfinite(squares)):
            raise FloatingPointError("rows hold NaN or infinity.")
        return xp.where(inside, 1.0, norm_bound / xp.sqrt(xp.where(inside, 1.0, squares)))


def check_unchanged(
    rows: NDArray[np.floating],
    norm_bound: float,
    factors: NDArray[np.float64] | None = None,
    *,
    squares: NDArray[np.floating] | None = None,
) -> None:
    """Raise a ValueError if a row, times its known factor, lies outside of the ball.

    The file was then written to after the factor was computed. ``squares`` are the squared norms of
    rows that are in other coordinates.
    """
    with np.errstate(all="ignore"):
        squares = np.vecdot(rows, rows) if squares is None else squares
        squares = squares if factors is None else squares * factors**2
        longest = float(squares.max(initial=0.0))
    # The tolerance covers the rounding of single-precision rows and of their squares.
    if not longest <= (norm_bound * (1.0 + 1e-4)) ** 2:
        raise ValueError(
            "X: rows changed while they were read; nothing was released. Use a file that nobody "
            "writes to."
        )


def rows_in_domain(
    rows: NDArray[np.float64], norm_bound: float, domain: str
) -> NDArray[np.float64]:
    """float64 rows as a head takes them: projected onto the ball, or each scaled to norm B.

    Gives ``rows`` itself where nothing has to change. A zero row stays zero on the sphere. Raises
    FloatingPointError if a row holds NaN or infinity.
    """
    rows = squarable(rows, domain)
    factors = domain_factors(rows, norm_bound, domain)
    return rows if factors is None else rows * factors[:, None]


def domain_factors(
    rows: NDArray[np.float64], norm_bound: float, domain: str
) -> NDArray[np.float64] | None:
    """Factors that bring rows of :func:`.squarable` into the domain; None if nothing has to change.

    Raises FloatingPointError if a row holds NaN or infinity.
    """
    if domain == "ball":
        return ball_factors(rows, norm_bound)
    xp = namespace(rows)
    with np.errstate(all="ignore"):
        squares = xp.vecdot(rows, rows)
        if not xp.all(xp.isfinite(squares)):
            raise FloatingPointError("rows hold NaN or infinity.")
        # After squarable(), only a zero row has a squared norm of zero.
        return float(norm_bound) / xp.sqrt(xp.where(squares > 0.0, squares, 1.0))


def were_squarable(factors: NDArray[np.float64] | None, norm_bound: float) -> bool:
    """Whether the factors of rows show that :func:`.squarable` changed none of them."""
    # A changed row has an entry of SCALED_ENTRY or more, so its factor is far below this.
    least = norm_bound / SCALED_ENTRY * 1e20
    return factors is None or bool(namespace(factors).min(factors) >= least)


def squarable_input(X: Any, domain: str) -> Any:
    """Rows of a fit after :func:`.squarable`; ``X`` itself if it needs no change."""
    if isinstance(X, Rows):
        return X._squarable(domain) if X.dtype == np.float64 else X
    if X.dtype.itemsize > 8:
        return squarable(X, domain).astype(np.float64)
    if X.dtype != np.float64 or X.size == 0:
        return X
    shards = map_shards(lambda start, stop: are_squarable(X[start:stop], domain), *X.shape)
    return X if all(shards) else squarable(X, domain)


def project_onto_ball(X: ArrayLike, norm_bound: float) -> NDArray[np.floating]:
    """Project rows onto the ball of radius ``norm_bound`` (1-Lipschitz in the Euclidean norm).

    The result is in C order and of float32 or float64, whatever the type of the rows; it is ``X``
    itself if nothing has to change. It is rounded to that precision: declare a radius in these
    coordinates, or cast to float64 before. Raises ValueError if a row holds NaN or infinity, or
    ``X`` is not two-dimensional.
    """
    given: Any = np.asarray(X)
    if given.ndim != 2:
        raise ValueError(
            f"X has the shape {given.shape}, which must be (n_samples, n_features); use "
            "X.reshape(1, -1) for one row."
        )
    if not np.issubdtype(given.dtype, np.floating):
        given = given.astype(np.float64)
    given = squarable_input(given.astype(given.dtype.newbyteorder("="), copy=False), "ball")
    given = np.ascontiguousarray(given, dtype=np.promote_types(given.dtype, np.float32))
    projected = given
    try:
        for rows, block in row_blocks(given):
            factors = ball_factors(block, norm_bound)
            if factors is not None:
                if projected is given:
                    projected = given.copy()
                outside = factors < 1.0
                projected[rows][outside] = block[outside] * factors[outside, None]
    except FloatingPointError:
        raise ValueError("X: rows hold NaN or infinity; drop those rows, or repair them.") from None
    return projected
