"""Inversion: the missing record from ridge prototypes (Margaryan & Gupta) and all other records."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Codes = NDArray[np.intp]


@dataclass(frozen=True)
class Reconstruction:
    """Records that explain a release exactly."""

    rows: Array  #: one row for each solution, of shape (n_solutions, n_features)
    codes: Codes  #: their class codes
    #: "unique": one record explains the release. "degenerate": the record equals the prototype of
    #: its class without it, so no prototype moved and every class qualifies. "none": no record of
    #: the domain explains the release, within the tolerance; it holds noise, or the known records
    #: are others.
    status: str


def _ridge_without(
    prototypes: ArrayLike, known_sums: ArrayLike, known_counts: ArrayLike, alpha: float
) -> tuple[Array, Array, Array, Array]:
    """Prototypes without the record, how far each moved, the record in each class, its factors."""
    released = np.asarray(prototypes, dtype=np.float64)
    sums = np.asarray(known_sums, dtype=np.float64)
    counts = np.asarray(known_counts, dtype=np.float64)
    if sums.shape != released.shape or counts.shape != released.shape[:1]:
        raise ValueError(
            f"known_sums {sums.shape} and known_counts {counts.shape} do not match prototypes "
            f"{released.shape}."
        )
    ridge = float(alpha) * (counts.sum() + 1.0)
    factors = counts + 1.0 + 0.5 * ridge
    before = 2.0 * sums / (2.0 * counts + ridge)[:, None]
    moved = np.linalg.norm(released - before, axis=1)
    return before, moved, factors[:, None] * released - sums, factors


def invert_ridge(
    prototypes: ArrayLike,
    known_sums: ArrayLike,
    known_counts: ArrayLike,
    *,
    alpha: float,
    norm_bound: float,
    code: int | None = None,
    tol: float = 1e-9,
) -> Reconstruction:
    r"""Compute the hidden record from ridge prototypes without noise.

    :math:`z = \frac{2 (n_y^- + 1) + \alpha n}{2} \mu_y - S_y^-` for the class y whose prototype
    moved. Degenerate when :math:`z = \mu_y^-`: then none did.

    Parameters
    ----------
    prototypes : array-like of shape (n_classes, n_features)
        Noiseless prototypes.
    known_sums : array-like of shape (n_classes, n_features)
        Class sums of the known records.
    known_counts : array-like of shape (n_classes,)
        Their class counts.
    alpha, norm_bound : float
        Public parameters of the fit.
    code : int, optional
        Class of the hidden record, where public counts tell it.
    tol : float, default=1e-9
        Displacement of a prototype that counts as none, relative to the largest prototype.

    Returns
    -------
    Reconstruction
        "unique", "degenerate", or "none" when another prototype moved too or the row is too long.
    """
    before, moved, rows, _ = _ridge_without(prototypes, known_sums, known_counts, alpha)
    still = moved <= tol * np.linalg.norm(prototypes, axis=1).max()
    if code is None:
        if still.all():
            # z = mu^- in every class explains prototypes that did not move.
            return Reconstruction(before, np.arange(len(before)), "degenerate")
        code = int(np.argmax(moved))
    inside = np.linalg.norm(rows[code]) <= float(norm_bound) * (1.0 + 1e-6)
    if not (inside and np.delete(still, code).all()):
        return Reconstruction(rows[:0], np.arange(0), "none")
    return Reconstruction(rows[code][None], np.array([code]), "unique")


def invert_noisy_ridge(
    prototypes: ArrayLike,
    known_sums: ArrayLike,
    known_counts: ArrayLike,
    sigma: ArrayLike,
    *,
    alpha: float,
    code: int | None = None,
) -> tuple[Array, float, int]:
    r"""Unbiased estimate of the record behind noisy ridge prototypes, its scale, and its class.

    :math:`W_y = \frac{A_y}{2} \tilde\mu_y - S_y^-`, with :math:`A_y = 2 (n_y^- + 1) + \alpha n`.
    """
    _, moved, rows, factors = _ridge_without(prototypes, known_sums, known_counts, alpha)
    scales = np.broadcast_to(np.asarray(sigma, dtype=np.float64), moved.shape)
    if code is None:
        with np.errstate(divide="ignore", invalid="ignore"):
            code = int(np.argmax(np.where(moved > 0.0, moved / scales, 0.0)))
    return rows[code], float(factors[code] * scales[code]), code
