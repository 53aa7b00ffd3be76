r"""Inversion: compute the missing record from the model and all other records.

Functions of arrays, as in :mod:`.identification`.

References
----------
Margaryan & Gupta, "Ball Differential Privacy: How to Mitigate Data Reconstruction with Less
Noise" (ridge prototypes). The inversions of the other heads are this package's.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit, lambertw, logsumexp

from ..heads import LinearObjective

Array = NDArray[np.float64]
Codes = NDArray[np.intp]


@dataclass(frozen=True)
class Reconstruction:
    """Records that explain a release exactly."""

    #: One row for each solution, of shape (n_solutions, n_features).
    rows: Array
    #: Their class codes.
    codes: Codes
    #: "unique": one record explains the release. "ambiguous": each of these does. "degenerate"
    #: (ridge): the record equals the prototype of its class without it, so no prototype moved and
    #: every class qualifies (sums: it is zero). "silent": the record leaves no trace (an inactive
    #: hinge). "none": no record of the domain explains the release, within the tolerance; it holds
    #: noise, or the known records are others.
    status: str


def _solutions(rows: list[Array], codes: list[int], n_features: int) -> Reconstruction:
    status = {0: "none", 1: "unique"}.get(len(rows), "ambiguous")
    table = np.array(rows, dtype=np.float64).reshape(len(rows), n_features)
    return Reconstruction(table, np.array(codes, dtype=np.intp), status)


def _ridge_without(
    prototypes: ArrayLike, known_sums: ArrayLike, known_counts: ArrayLike, alpha: float
) -> tuple[Array, Array, Array, Array]:
    """Released prototypes, those without the record, the record in each class, its factors."""
    released = np.asarray(prototypes, dtype=np.float64)
    sums = np.asarray(known_sums, dtype=np.float64)
    counts = np.asarray(known_counts, dtype=np.float64)
    if sums.shape != released.shape or counts.shape != released.shape[:1]:
        raise ValueError(
            f"known_sums {sums.shape} and known_counts {counts.shape} do not match prototypes "
            f"{released.shape}."
        )
    ridge = float(alpha) * (counts.sum() + 1.0)
    factors = 0.5 * (2.0 * (counts + 1.0) + ridge)
    before = 2.0 * sums / (2.0 * counts + ridge)[:, None]
    return released, before, factors[:, None] * released - sums, factors


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

    Raises
    ------
    ValueError
        If shapes do not match.
    """
    released, before, rows, _ = _ridge_without(prototypes, known_sums, known_counts, alpha)
    moved = np.linalg.norm(released - before, axis=1)
    still = moved <= tol * np.linalg.norm(released, axis=1).max()
    if code is None:
        if still.all():
            # z = mu^- in every class explains prototypes that did not move.
            return Reconstruction(before, np.arange(len(before)), "degenerate")
        code = int(np.argmax(moved))
    inside = np.linalg.norm(rows[code]) <= float(norm_bound) * (1.0 + 1e-6)
    if not (inside and np.delete(still, code).all()):
        return _solutions([], [], released.shape[1])
    return _solutions([rows[code]], [code], released.shape[1])


def invert_noisy_ridge(
    prototypes: ArrayLike,
    known_sums: ArrayLike,
    known_counts: ArrayLike,
    sigma: ArrayLike,
    *,
    alpha: float,
    code: int | None = None,
) -> tuple[Array, float, int]:
    r"""Unbiased estimate of the record behind noisy ridge prototypes.

    :math:`W_y = \frac{A_y}{2} \tilde\mu_y - S_y^- = z + N(0, (A_y \sigma_y / 2)^2 I)` with
    :math:`A_y = 2 (n_y^- + 1) + \alpha n`.
    """
    released, before, rows, factors = _ridge_without(prototypes, known_sums, known_counts, alpha)
    scales = np.broadcast_to(np.asarray(sigma, dtype=np.float64), released.shape[:1])
    if code is None:
        moved = np.linalg.norm(released - before, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            code = int(np.argmax(np.where(moved > 0.0, moved / scales, 0.0)))
    return rows[code], float(factors[code] * scales[code]), code


def invert_statistics(
    class_sums: ArrayLike,
    known_sums: ArrayLike,
    *,
    norm_bound: float,
    second_moment: ArrayLike | None = None,
    known_moment: ArrayLike | None = None,
    code: int | None = None,
    tol: float = 1e-9,
) -> Reconstruction:
    r"""Compute the hidden record from class sums (and a second moment) without noise.

    :math:`z = S_y - S_y^-` for the class y whose sum moved, and :math:`M - M^- = z z^T` must agree.

    Parameters
    ----------
    class_sums, known_sums : array-like of shape (n_classes, n_features)
        Noiseless class sums, and those of the known records, of rows in the domain.
    norm_bound : float
        Norm B of the rows.
    second_moment, known_moment : array-like of shape (n_features, n_features), optional
        Noiseless second moment, and that of the known records.
    code : int, optional
        Class of the hidden record, where public counts tell it.
    tol : float, default=1e-9
        Displacement of a sum that counts as none, relative to the largest sum.

    Returns
    -------
    Reconstruction
        "unique"; "degenerate" for a zero row of unknown class, which moves no sum; "none" when
        another sum moved too, the row is too long, or the second moment disagrees.

    Raises
    ------
    ValueError
        If shapes do not match, or one of the two moments is missing.
    """
    released, known = (np.asarray(s, dtype=np.float64) for s in (class_sums, known_sums))
    if released.shape != known.shape or (second_moment is None) != (known_moment is None):
        raise ValueError(
            f"known_sums {known.shape} must match class_sums {released.shape}; pass both moments, "
            "or neither."
        )
    moved = np.linalg.norm(released - known, axis=1)
    still = moved <= tol * max(float(np.linalg.norm(released, axis=1).max()), float(norm_bound))
    own = int(np.argmax(moved)) if code is None else code
    row = released[own] - known[own]
    agrees = np.linalg.norm(row) <= float(norm_bound) * (1.0 + 1e-6)
    if second_moment is not None:
        change = np.asarray(second_moment, dtype=np.float64) - np.asarray(known_moment)
        slack = tol * max(float(np.linalg.norm(second_moment)), float(norm_bound) ** 2)
        agrees &= float(np.linalg.norm(change - np.outer(row, row))) <= slack
    if not (agrees and np.delete(still, own).all()):
        return _solutions([], [], released.shape[1])
    if code is None and still.all():
        codes = np.arange(len(released))
        return Reconstruction(np.zeros(released.shape), codes, "degenerate")
    return _solutions([row], [own], released.shape[1])


def invert_minimiser(
    loss: str,
    theta: ArrayLike,
    X_known: ArrayLike,
    codes_known: ArrayLike,
    *,
    n_classes: int,
    alpha: float,
    norm_bound: float,
    fit_intercept: bool,
    domain: str = "ball",
    tol: float = 1e-6,
    residual: float = 1e-12,
) -> Reconstruction:
    r"""Compute the records that explain a minimiser without noise.

    Optimality gives the missing record's gradient,
    :math:`v = n \alpha \hat\theta + \sum_{known} \nabla\ell(\hat\theta; z_i)
    = -\nabla\ell(\hat\theta; z)`, a multiple c of the augmented row for each score. With an
    intercept the last column is c, so the row is v / c. Without one the scale is found from the
    loss itself, which may have several solutions, and a binary record (x, y) cannot be told from
    (-x, -y): all solutions in the domain are returned. Each solution is checked against v.

    Parameters
    ----------
    loss : {"logistic", "softmax", "squared_hinge"}
        Loss of one record.
    theta : array-like of shape (n_scores, n_features + fit_intercept)
        Minimiser, noiseless.
    X_known : array-like of shape (n_samples - 1, n_features)
        Known records.
    codes_known : array-like of shape (n_samples - 1,)
        Their class codes.
    n_classes : int
        Number of classes.
    alpha, norm_bound : float
        Public parameters of the fit.
    fit_intercept : bool
        Whether the last column of ``theta`` is the intercept.
    domain : {"ball", "sphere"}, default="ball"
        Whether the fit projected rows onto the ball, or scaled all to norm B; known rows are
        brought there, and the missing one is found there.
    tol : float, default=1e-6
        Relative error of v within which a solution counts.
    residual : float, default=1e-12
        Gradient norm that the solver left; v inherits n times that as its error.

    Returns
    -------
    Reconstruction
        "unique", "ambiguous", "silent" or "none".

    Raises
    ------
    ValueError
        If no record is known.
    """
    parameters = np.asarray(theta, dtype=np.float64)
    if len(np.asarray(codes_known)) == 0:
        raise ValueError("X_known holds no record; an informed adversary knows all but one.")
    objective = partial(
        LinearObjective, loss, n_classes=n_classes, alpha=0.0, fit_intercept=fit_intercept
    )
    known_codes = np.asarray(codes_known, dtype=np.intp)
    known = objective(np.asarray(X_known), known_codes, norm_bound=norm_bound, domain=domain)
    n_known = len(known.X)
    gradient_sum = n_known * known.value_and_gradient(parameters)[1]
    v = (n_known + 1) * float(alpha) * parameters + gradient_sum
    size = float(np.linalg.norm(v))
    n_features = known.X.shape[1]
    rows: list[Array] = []
    codes: list[int] = []
    # A gradient below its own error says nothing about the record.
    error = (n_known + 1) * float(residual) + 1e-14 * float(np.linalg.norm(gradient_sum))
    if size <= error:
        return Reconstruction(np.empty((0, n_features)), np.empty(0, dtype=np.intp), "silent")

    def explains(row: Array, code: int) -> bool:
        single = objective(row[None], np.array([code]), norm_bound=math.inf)
        gradient = single.value_and_gradient(parameters)[1]
        return float(np.linalg.norm(gradient + v)) <= tol * size + 2.0 * error

    if fit_intercept:
        proposed = _with_intercept(v)
    else:
        proposed = _without_intercept(loss, v, parameters, float(norm_bound))
    for row in proposed:
        length = float(np.linalg.norm(row) / norm_bound)
        short = domain == "sphere" and tol < length < 1.0 - tol
        if short or not length <= 1.0 + tol:
            continue
        for code in range(n_classes):
            new = all(
                code != known_code or np.linalg.norm(row - other) > tol * np.linalg.norm(row)
                for other, known_code in zip(rows, codes, strict=True)
            )
            if new and explains(row, code):
                rows.append(row)
                codes.append(code)
    return _solutions(rows, codes, n_features)


def _with_intercept(v: Array) -> Iterator[Array]:
    """The last column holds the factor of every score: least squares over the scores."""
    factors = v[:, -1]
    square = float(factors @ factors)
    if square > 0.0:
        yield v[:, :-1].T @ factors / square


def _without_intercept(loss: str, v: Array, theta: Array, norm_bound: float) -> Iterator[Array]:
    """Rows on the line that v spans, at every scale that the loss allows."""
    if loss == "softmax":
        yield from _softmax_scales(v, theta, norm_bound)
        return
    # The score with the largest gradient is the best conditioned; its sign is unknown.
    best = int(np.argmax(np.linalg.norm(v, axis=1)))
    direction, s = v[best], float(theta[best] @ v[best])
    if loss == "logistic":
        factors = _logistic_factors(s)
    else:
        # s = 2 h (1 - h) of the hinge h; the gradient's factor is 2 h.
        root = math.sqrt(max(0.0, 1.0 - 2.0 * s))
        factors = [1.0 + root, 1.0 - root]
    for factor in factors:
        if factor > 0.0:
            yield direction / factor
            yield -direction / factor


def _logistic_factors(s: float) -> list[float]:
    """Solutions of a log((1 - a) / a) = s in (0, 1): a = sigmoid(-margin), s = a margin."""

    def excess(a: float) -> float:
        return a * (math.log1p(-a) - math.log(a)) - s

    tiny, whole = 1e-300, 1.0 - 2.0**-53
    # The curve rises from 0 to W(1/e) at its peak, and falls to minus infinity at 1.
    peak = expit(-1.0 - lambertw(1.0 / math.e).real)
    roots = []
    if excess(peak) < 0.0:
        # Rounding may lift s just above the peak.
        return [peak] if excess(peak) > -1e-9 else []
    if s > 0.0:
        roots.append(brentq(excess, tiny, peak, xtol=1e-300, rtol=1e-15))
    if excess(whole) < 0.0:
        roots.append(brentq(excess, peak, whole, xtol=1e-300, rtol=1e-15))
    return roots


def _softmax_scales(v: Array, theta: Array, norm_bound: float) -> Iterator[Array]:
    """v = c x^T with c = e_y - p(x): one unknown length, found where c explains p at x."""
    left, values, right = np.linalg.svd(v, full_matrices=False)
    for sign in (1.0, -1.0):
        direction, unit = sign * left[:, 0], sign * right[0]
        positive = np.flatnonzero(direction > 0.0)
        # Only the record's own class has a positive factor.
        if len(positive) != 1:
            continue
        own = int(positive[0])
        scores = theta @ unit
        others = np.delete(scores, own) - scores[own]
        # The row is length * unit, and the factor of its class (1 - p_y) is target / length.
        target = float(values[0] * direction[own])

        def excess(length: float, others: Array = others, target: float = target) -> float:
            return length * float(expit(logsumexp(length * others))) / target - 1.0

        # 1 - p_y < 1, so that the length exceeds the target.
        for length in _roots(excess, target, norm_bound * (1.0 + 1e-6)):
            yield length * unit


def _roots(function: Callable[[float], float], low: float, high: float) -> Iterator[float]:
    """Roots of a smooth function, including double roots and pairs of roots close together."""
    if not 0.0 < low < high:
        return
    grid = np.geomspace(low, high, 1000)
    heights = np.array([function(x) for x in grid])
    points, values = list(grid), list(heights)
    for i in range(1, len(grid) - 1):
        h = heights[i]
        # The function may cross zero and turn back between two grid points.
        if abs(h) <= min(abs(heights[i - 1]), abs(heights[i + 1])):
            sign = math.copysign(1.0, h)
            turn = minimize_scalar(
                lambda x, sign=sign: sign * function(x),
                bounds=(grid[i - 1], grid[i + 1]),
                method="bounded",
                options={"xatol": 1e-12 * grid[i]},
            ).x
            points.append(turn)
            values.append(function(turn))
            if abs(values[-1]) <= 1e-10:
                yield float(turn)
    order = np.argsort(points)
    at, value = np.array(points)[order], np.array(values)[order]
    for j in np.flatnonzero(value[:-1] * value[1:] < 0.0).tolist():
        yield brentq(function, at[j], at[j + 1], xtol=1e-300, rtol=1e-15)
    yield from at[value == 0.0].tolist()
