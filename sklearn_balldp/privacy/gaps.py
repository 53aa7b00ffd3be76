"""How far one substitution can move the gradient of a loss.

The *gap* is the largest distance between the gradients of two adjacent records. Where residuals are
clipped, :func:`clipped_gap` bounds it at any parameters; :func:`gradient_gap` at any minimiser,
whose norm is bounded (:func:`minimizer_norm_bound`). All that they take from a loss stands in
``losses``. The proofs are in this package's documentation; the "paper" bounds are Margaryan &
Gupta's.
"""

import math
from functools import lru_cache

import numpy as np

from .._parameters import check_option
from ..adjacency import RowGeometry
from ..losses import Loss, make_loss

#: "tight" bounds the minimiser and the gap directly; "paper" is radius times a Lipschitz constant.
METHODS = ("tight", "paper")
_LARGEST_NORM = 1e120
#: Smallest norm that residuals may be clipped to: the squares of smaller ones lose digits.
SMALLEST_CLIP = 1e-100
# Rounds a computed bound up: its evaluation errs by far less.
_UP = 1.0 + 1e-11
# Roots, quotients and Lambert's function err by a few units in the last place.
_UP_OF_NORM = 1.0 + 2.0**-48
# Cells over the angle of each of two rows to the weights.
_ANGLES = 512


# -- any minimiser ---------------------------------------------------------------------------------


def minimizer_norm_bound(
    loss: str,
    *,
    alpha: float,
    norm_bound: float,
    fit_intercept: bool,
    n_classes: int = 2,
    method: str = "tight",
) -> float:
    r"""Upper bound R on a minimiser's norm over all datasets.

    Parameters
    ----------
    loss, alpha, norm_bound, fit_intercept, n_classes : str, float, float, bool, int
        As in :func:`gradient_gap`.
    method : {"tight", "paper"}, default="tight"
        "paper": the paper's bound.

    Returns
    -------
    float
        R, on the norm of one weight vector (logistic, squared hinge: per one-versus-rest head) or
        the Frobenius norm (softmax).

    Notes
    -----
    With :math:`\tilde B^2 = B^2 + 1` under an intercept, which is then regularised, R is
    :math:`\min(\sqrt{W(1/e)/\lambda}, \tilde B/\lambda)` for logistic,
    :math:`\min(\sqrt{W((K-1)/e)/\lambda}, \sqrt2 \tilde B/\lambda)` for softmax, and
    :math:`\min(1/\sqrt{2\lambda}, 2\tilde B/\lambda)` for squared hinge. The first terms come from
    the inner product of the optimality condition with the minimiser; W is the Lambert function.
    """
    geometry = RowGeometry(norm_bound, 0.0, float(fit_intercept))
    return _norm_bound(_loss(loss, n_classes, method), float(alpha), geometry, method) * _UP_OF_NORM


def _norm_bound(loss: Loss, alpha: float, geometry: RowGeometry, method: str) -> float:
    if method == "paper":
        return loss.paper_minimizer_norm(alpha, geometry.augmented)
    crude = loss.crude_minimizer_norm(alpha, geometry.augmented)
    return min(math.sqrt(loss.norm_constant / alpha), crude)


def gradient_gap(
    loss: str,
    radius: float,
    *,
    alpha: float,
    norm_bound: float,
    fit_intercept: bool,
    n_classes: int = 2,
    method: str = "tight",
    label_change: bool = False,
) -> float:
    r"""Certified upper bound on the gradient gap between two adjacent records.

    Parameters
    ----------
    loss : {"logistic", "softmax", "squared_hinge"}
        Loss of one record: :math:`\log(1+e^{-m})`, cross-entropy, :math:`\max(0, 1-m)^2`.
    radius : float
        Euclidean radius r; capped at ``2 * norm_bound``.
    alpha : float
        Regularisation strength lambda of the mean loss.
    norm_bound : float
        Radius B of the admissible ball of rows.
    fit_intercept : bool
        Whether rows are augmented by a constant 1.
    n_classes : int, default=2
        Number of classes K. "softmax" with two is "logistic"; "squared_hinge" with more than two
        stacks K one-versus-rest heads.
    method : {"tight", "paper"}, default="tight"
        "paper": radius times the paper's Lipschitz constant, to reproduce its tables.
    label_change : bool, default=False
        Whether pairs with different labels (at any distance) are adjacent too.

    Returns
    -------
    float
        G, an upper bound on :math:`\|\nabla\ell(\theta; z) - \nabla\ell(\theta; z')\|` over
        :math:`\|\theta\| \le R` and adjacent records.

    Raises
    ------
    ValueError
        If the loss or method is unknown, ``norm_bound`` out of range, or the radius negative.
    """
    kind = _loss(loss, n_classes, method)
    _check_sizes(norm_bound, radius)
    geometry = RowGeometry(norm_bound, radius, float(fit_intercept))
    labels = "protected" if label_change else "public"
    return gap_over_minimisers(kind, geometry, float(alpha), method=method, labels=labels)


@lru_cache(maxsize=256)
def gap_over_minimisers(
    loss: Loss, geometry: RowGeometry, alpha: float, *, method: str, labels: str
) -> float:
    """As :func:`gradient_gap`, for a domain with or without its allowance for rounding."""
    bound = _norm_bound(loss, alpha, geometry, method)
    reach, augmented = bound * geometry.augmented, geometry.augmented
    # Every head of a stack sees the record, and the constants hold for one of them.
    one = loss if loss.n_stacked == 1 else make_loss(loss.name, 2)
    any_rows = math.inf
    if one.n_scores == 1 and method == "tight":
        any_rows = _gap_of_any_rows(one, reach, augmented)
    gap = math.sqrt(loss.n_stacked) * min(_gap_of_one(one, geometry, bound, method), any_rows)
    if labels == "protected":
        change = min(2.0 * augmented * one.residual_peak(reach), any_rows)
        if loss.n_stacked > 1:
            # Two heads see the label flip, the others a move of at most the diameter.
            widest = geometry.at(2.0 * geometry.norm_bound)
            other = min(_gap_of_one(one, widest, bound, "tight"), any_rows)
            change = math.sqrt(2.0 * change**2 + (loss.n_stacked - 2) * other**2)
        gap = max(gap, change)
    return gap * _UP


def _gap_of_one(loss: Loss, geometry: RowGeometry, bound: float, method: str) -> float:
    """The gap of one problem of a loss, within a label: the least of bounds that rise with r."""
    radius, reach = geometry.radius, bound * geometry.augmented
    longest = (loss.residual_limit if method == "paper" else loss.residual_peak)(reach)
    # The radius times a Lipschitz constant of the gradient: the paper's form.
    gap = (longest + loss.curvature * reach) * radius
    if method == "paper" or not math.isfinite(gap):
        return gap
    larger, smaller, apart = loss.residual_pairs(reach, bound * radius)
    # Extreme parameters overflow to infinity, which bounds anything.
    with np.errstate(all="ignore"):
        squares = (apart * geometry.augmented) ** 2 + apart * smaller * geometry.squared_norm_drop
        gap = min(gap, math.sqrt(np.max(squares + larger * smaller * radius**2)))
    return min(gap, gap_at_any_parameters(loss, geometry, clip=longest, labels="public"))


def _gap_of_any_rows(loss: Loss, reach: float, augmented: float) -> float:
    """The gap of any two rows of one label, or of a changed label, for losses of one score.

    A changed label is such a pair, (x, y) and (-x, -y). Rows lie at angles to the weights, on
    opposite sides. Sizes of residuals fall with the angle: the ends of a cell bound it.
    """
    ends = np.linspace(0.0, math.pi, _ANGLES + 1)
    sizes = loss.residual_sizes(reach * np.cos(ends))
    large, small = sizes[:-1], sizes[1:]
    low = np.add.outer(ends[:-1], ends[:-1])
    turn = -np.cos(np.clip(math.pi, low, low + 2.0 * math.pi / _ANGLES))
    with np.errstate(all="ignore"):
        product = np.where(turn > 0.0, np.outer(large, large), np.outer(small, small))
        square = float((np.add.outer(large**2, large**2) + 2.0 * product * turn).max())
    return augmented * math.sqrt(square) if math.isfinite(square) else math.inf


def _loss(name: str, n_classes: int, method: str) -> Loss:
    check_option("sensitivity", method, METHODS)
    return make_loss("logistic" if name == "softmax" and n_classes == 2 else name, n_classes)


def _check_sizes(norm_bound: float, radius: float) -> None:
    """Raise a ValueError for sizes whose squares underflow or overflow, or a negative radius."""
    if not 1.0 / _LARGEST_NORM <= norm_bound <= _LARGEST_NORM:
        raise ValueError(
            f"norm_bound must be between {1.0 / _LARGEST_NORM:g} and {_LARGEST_NORM:g}, got "
            f"{norm_bound!r}."
        )
    if not radius >= 0.0:
        raise ValueError(f"radius must be non-negative, got {radius!r}.")


# -- any parameters --------------------------------------------------------------------------------


def clipped_gap(
    loss: str,
    radius: float,
    *,
    clip: float | None,
    norm_bound: float,
    constant: float,
    n_classes: int = 2,
    label_change: bool = False,
) -> float:
    r"""Upper bound on the gradient gap of records whose residuals are clipped, at any parameters.

    Parameters
    ----------
    loss : {"logistic", "softmax", "squared_hinge"}
        As in :func:`gradient_gap`. "softmax" with two classes has two scores here.
    radius : float
        Euclidean radius r; capped at ``2 * norm_bound``.
    clip : float or None
        Norm that residuals are clipped to, at least 1e-100. None: they are not clipped.
    norm_bound : float
        Radius B of the admissible ball of rows.
    constant : float
        What rows are augmented by; 0 for no intercept.
    n_classes : int, default=2
        Number of classes K.
    label_change : bool, default=False
        Whether pairs with different labels (at any distance) are adjacent too.

    Returns
    -------
    float
        G, an upper bound on :math:`\|\rho x^T - \rho' x'^T\|` over adjacent records with
        residuals :math:`\rho` and :math:`\rho'`. Infinite for a squared hinge that is not clipped.

    Raises
    ------
    ValueError
        If the loss is unknown, or ``clip``, ``norm_bound`` or ``radius`` out of range.

    Notes
    -----
    With C the clip, or the largest residual of the loss if that is smaller, A the largest norm of
    an augmented row, and v the *versine* of the loss (one minus the smallest cosine between two
    residuals of one label),

    .. math:: G = C \sqrt{\max(A^2, r^2, 2 v A^2 + (1 - v) r^2)},

    and 2 C A where labels may change. The proof is in this package's documentation.
    """
    _check_sizes(norm_bound, radius)
    if clip is not None and not clip >= SMALLEST_CLIP:
        raise ValueError(f"clip must be at least {SMALLEST_CLIP:g}, or None, got {clip!r}.")
    labels = "protected" if label_change else "public"
    geometry = RowGeometry(norm_bound, radius, constant)
    return gap_at_any_parameters(make_loss(loss, n_classes), geometry, clip=clip, labels=labels)


def gap_at_any_parameters(
    loss: Loss, geometry: RowGeometry, *, clip: float | None, labels: str
) -> float:
    """As :func:`clipped_gap`, for a domain with or without its allowance for rounding."""
    longest = min(loss.residual_limit(), math.inf if clip is None else float(clip))
    # The gap is convex in the lengths of the two residuals and, squared, linear in their cosine:
    # it is largest where each length is 0 or C, and the cosine 1 or 1 - v.
    square, apart, v = geometry.augmented**2, geometry.radius**2, loss.versine
    corners = [square, apart, 2.0 * v * square + (1.0 - v) * apart]
    if labels == "protected":
        corners.append(4.0 * square)
    return longest * math.sqrt(max(corners)) * _UP
