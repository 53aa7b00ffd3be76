"""Projection of rows onto the admissible ball: each row by itself, 1-Lipschitz."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..losses import Array
from .passes import blocks_of
from .sources import Floats

#: Rows are refused if an entry is larger than the first, or, on the sphere, if the largest entry is
#: not zero and below the second: their squares could overflow, or lose digits and vanish.
LARGEST_ENTRY, SMALLEST_ENTRY = 1e140, 1e-100
#: What such rows are, for errors: no other word depends on the rows.
REFUSED = (
    "NaN or infinity, an entry above 1e140 or, on the sphere, a row other than zero without an "
    "entry of 1e-100"
)


def are_plain(squares: Floats, n_features: int, domain: str) -> NDArray[np.bool_]:
    """Which rows, by their squared norms, are neither refused nor zero on the sphere.

    Their squares, and products with moderate weights, are well within the precision.
    """
    limits = np.finfo(squares.dtype)
    # The factors of two cover the rounding of squares.
    plain = squares <= min(0.5 * LARGEST_ENTRY**2, float(limits.max) ** 0.75)
    if domain == "sphere":
        plain &= squares >= max(2.0 * n_features * SMALLEST_ENTRY**2, float(limits.tiny) ** 0.75)
    return plain


def check_sizes(rows: Floats, domain: str) -> None:
    """Raise FloatingPointError if a row holds NaN or infinity, or is of no admitted size."""
    with np.errstate(all="ignore"):
        peaks = np.maximum(rows.max(axis=1, initial=0.0), -rows.min(axis=1, initial=0.0))
        # In lower precision the limits would be infinity and zero.
        peaks = peaks.astype(np.promote_types(rows.dtype, np.float64))
        fits = peaks <= LARGEST_ENTRY
        if domain == "sphere":
            fits &= (peaks >= SMALLEST_ENTRY) | (peaks == 0.0)
    if not fits.all():
        raise FloatingPointError(f"rows hold {REFUSED}.")


def rows_in_domain(rows: Array, norm_bound: float, domain: str, out: Array | None = None) -> Array:
    """float64 rows as a head takes them, by :func:`domain_factors`; ``rows`` if none changes.

    Those that change are written to ``out`` if it is given.
    """
    factors = domain_factors(rows, norm_bound, domain)
    return rows if factors is None else np.multiply(rows, factors[:, None], out=out)


def domain_factors(rows: Array, norm_bound: float, domain: str = "ball") -> Array | None:
    """Factors that bring float64 rows into the domain; None if nothing has to change.

    Zero rows stay zero. Raises FloatingPointError if a row is refused (:data:`REFUSED`).
    """
    # A low-precision NumPy scalar would round or overflow when squared.
    norm_bound = float(norm_bound)
    with np.errstate(all="ignore"):
        squares = np.vecdot(rows, rows)
        unchanged = squares == 0.0 if domain == "sphere" else squares <= norm_bound * norm_bound
    if domain == "ball" and unchanged.all():
        return None
    if not are_plain(squares, rows.shape[1], domain).all():
        check_sizes(rows, domain)
    scaled = norm_bound / np.sqrt(np.where(unchanged, 1.0, squares))
    return np.where(unchanged, 1.0, scaled) if domain == "ball" else scaled


def project_onto_ball(X: ArrayLike, norm_bound: float) -> Floats:
    """Project rows onto the ball of radius ``norm_bound`` (1-Lipschitz in the Euclidean norm).

    In C order, of float32 or float64 whatever the type of the rows, rounded to it; ``X`` itself if
    nothing has to change. Raises a ValueError if a row is refused, or ``X`` is not two-dimensional.
    """
    rows: Any = np.asarray(X)
    if rows.ndim != 2:
        raise ValueError(
            f"X has the shape {rows.shape}, which must be (n_samples, n_features); use "
            "X.reshape(1, -1) for one row."
        )
    is_other = rows.dtype.kind != "f" or rows.dtype.itemsize > 8
    kind = np.dtype(np.float64) if is_other else rows.dtype.newbyteorder("=")
    # What a wide number is too large for becomes infinity, which is refused.
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(rows, dtype=np.promote_types(kind, np.float32))
    projected, refused = rows, False
    try:
        for place, block in blocks_of(rows):
            factors = domain_factors(block, norm_bound)
            if factors is not None:
                projected = rows.copy() if projected is rows else projected
                projected[place] = block * factors[:, None]
    except FloatingPointError:
        refused = True
    if refused:
        raise ValueError(f"X: rows hold {REFUSED}; drop those rows, or repair them.")
    return projected
