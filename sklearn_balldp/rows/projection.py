"""Projection of rows onto the admissible ball: each row by itself, 1-Lipschitz."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import namespace
from .passes import map_shards, row_blocks
from .sources import SCALED_ENTRY, Rows, are_tame, tamed


def ball_factors(rows: NDArray[np.float64], norm_bound: float) -> NDArray[np.float64] | None:
    """Factors that project float64 rows onto the ball: min(1, B / norm), None where all are one.

    Raises FloatingPointError if a row holds NaN or infinity.
    """
    # A NumPy scalar of few bits would square to something else.
    norm_bound, xp = float(norm_bound), namespace(rows)
    with np.errstate(all="ignore"):
        squares = xp.vecdot(rows, rows)
        inside = squares <= norm_bound * norm_bound
        if xp.all(inside):
            return None
        if not xp.all(xp.isfinite(squares)):
            raise FloatingPointError("rows hold NaN or infinity.")
        factors: NDArray[np.float64] = xp.where(
            inside, 1.0, norm_bound / xp.sqrt(xp.where(inside, 1.0, squares))
        )
        return factors


def check_unchanged(
    rows: NDArray[np.floating],
    norm_bound: float,
    factors: NDArray[np.float64] | None = None,
    *,
    squares: NDArray[np.floating] | None = None,
) -> None:
    """Raise a ValueError where a projected row, times its factor, has left the ball since.

    ``squares`` of its norm are given where it lies in other coordinates.
    """
    with np.errstate(all="ignore"):
        squares = np.vecdot(rows, rows) if squares is None else squares
        squares = squares if factors is None else squares * factors**2
        longest = float(squares.max(initial=0.0))
    # Rows of single precision are rounded, and so are their squares.
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
    rows = tamed(rows, domain)
    factors = domain_factors(rows, norm_bound, domain)
    return rows if factors is None else rows * factors[:, None]


def domain_factors(
    rows: NDArray[np.float64], norm_bound: float, domain: str
) -> NDArray[np.float64] | None:
    """What to multiply each tame float64 row by; None where nothing has to change.

    Raises FloatingPointError if a row holds NaN or infinity.
    """
    if domain == "ball":
        return ball_factors(rows, norm_bound)
    xp = namespace(rows)
    with np.errstate(all="ignore"):
        squares = xp.vecdot(rows, rows)
        if not xp.all(xp.isfinite(squares)):
            raise FloatingPointError("rows hold NaN or infinity.")
        # Nothing tame but zero has a square of zero.
        factors: NDArray[np.float64] = float(norm_bound) / xp.sqrt(
            xp.where(squares > 0.0, squares, 1.0)
        )
        return factors


def were_tame(factors: NDArray[np.float64] | None, norm_bound: float) -> bool:
    """Whether :func:`domain_factors` of rows show that none of them had to be tamed."""
    # Tamed rows have an entry of that size at least.
    least = norm_bound / SCALED_ENTRY * 1e20
    return factors is None or bool(namespace(factors).min(factors) >= least)


def tame_input(X: Any, domain: str) -> Any:
    """Rows of a fit whose squares neither overflow nor vanish; ``X`` itself where they do not."""
    if isinstance(X, Rows):
        return X._tamed(domain) if X.dtype == np.float64 else X
    if X.dtype.itemsize > 8:
        return tamed(X, domain).astype(np.float64)
    if X.dtype != np.float64 or X.size == 0:
        return X
    shards = map_shards(lambda start, stop: are_tame(X[start:stop], domain), *X.shape)
    return X if all(shards) else tamed(X, domain)


def project_onto_ball(X: ArrayLike, norm_bound: float) -> NDArray[np.floating]:
    """Project rows onto the ball of radius ``norm_bound`` (1-Lipschitz in the Euclidean norm).

    Gives C order, and float32 or float64, whatever the rows hold; ``X`` itself where nothing has to
    change. It rounds to that precision: declare a radius in these coordinates, or cast to float64
    before. Raises ValueError if a row holds NaN or infinity, or ``X`` is not two-dimensional.
    """
    given: Any = np.asarray(X)
    if given.ndim != 2:
        raise ValueError(
            f"X has the shape {given.shape}, which must be (n_samples, n_features); use "
            "X.reshape(1, -1) for one row."
        )
    if not np.issubdtype(given.dtype, np.floating):
        given = given.astype(np.float64)
    given = tame_input(given.astype(given.dtype.newbyteorder("="), copy=False), "ball")
    given = np.ascontiguousarray(given, dtype=np.promote_types(given.dtype, np.float32))
    projected: Any = given
    finite = True
    for rows, block in row_blocks(given):
        try:
            factors = ball_factors(block, norm_bound)
        except FloatingPointError:
            finite = False
            break
        if factors is not None:
            if projected is given:
                projected = given.copy()
            outside = factors < 1.0
            projected[rows][outside] = block[outside] * factors[outside, None]
    if not finite:
        raise ValueError("X: rows hold NaN or infinity; drop those rows, or repair them.")
    found: NDArray[np.floating] = projected
    return found
