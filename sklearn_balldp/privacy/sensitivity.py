r"""How far one substitution within the radius can move class sums, prototypes and moments.

Ridge prototypes are :math:`\mu_c = 2 S_c / (2 n_c + \lambda n)` with class sums :math:`S_c`.
Substituting a row for another of the same label within :math:`r` moves one block by at most
:math:`2 r / (2 n_c + \lambda n)`; changing a label moves two blocks, together by at most
:math:`2\sqrt2 B / (2 + \lambda n)`.

The class sums move by at most r, the second moment by :func:`moment_sensitivity`.
What moves with a loss is in :mod:`.gaps`.

The proofs are in this package's documentation.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._parameters import check_option
from ..adjacency import DOMAINS
from .weights import Weights

#: How ridge prototypes use the public class counts.
COUNT_MODES = ("per_class", "min", "worst")
# Rounds a computed bound up: its evaluation errs by far less.
_UP = 1.0 + 1e-12


def prototype_sensitivity(
    radius: float,
    counts: ArrayLike,
    *,
    alpha: float,
    mode: str = "per_class",
    label_change: bool = False,
    norm_bound: float | None = None,
    weights: Weights | None = None,
) -> float | NDArray[np.float64]:
    r"""L2 sensitivity of ridge prototypes to one substitution within ``radius``.

    With weights :math:`\mu_c = 2 S_c / (2 W_c + \lambda W)`, :math:`S_c` being the weighted sum.
    One person moves block c by at most :math:`2 r s_{p,c} / (2 W_c + \lambda W)`. If block c has
    the scale :math:`q\, 2 r s_c / (2 W_c + \lambda W)`, all blocks together move by at most one in
    these scales. A record of weight w that changes its label leaves one block and joins another.
    Each of the two moves by at most w times
    :math:`2 \|x - \mu_c\| / (2 W_c + \lambda W) \le 2 B / (\lambda W)`. Over the records of a
    person that adds up to :math:`s\, 2 \sqrt2 B / (\lambda W)`.

    Parameters
    ----------
    radius : float
        Euclidean radius of the same-label substitutions.
    counts : array-like of shape (n_classes,)
        Class counts n_c. With ``label_change`` only their sum n is used.
    alpha : float
        Regularisation strength lambda of the mean loss.
    mode : {"per_class", "min", "worst"}
        "per_class": one bound per class block, :math:`2r/(2n_c+\lambda n)` (0 for an absent class,
        whose block never moves). "min": the largest of these, for all blocks. "worst": counts
        unused, :math:`2r/(2+\lambda n)`, the paper's Table 1.
    label_change : bool
        Whether substitutions that change the label are adjacent too; counts are then private and
        ``mode`` is not used.
    norm_bound : float, optional
        Radius B of the admissible ball; needed with ``label_change``, and makes the sensitivity to
        persons smaller.
    weights : Weights, optional
        Public weights, whose totals take the place of ``counts``.

    Returns
    -------
    float or ndarray of shape (n_classes,)
        An array for ``mode="per_class"`` without ``label_change``, else one number.

    Raises
    ------
    ValueError
        If the mode is unknown, or ``norm_bound`` is missing.
    """
    # NumPy scalars of few bits would overflow or round below.
    radius, alpha = float(radius), float(alpha)
    counts = np.asarray(counts, dtype=np.float64)
    ridge = alpha * float(counts.sum() if weights is None else weights.total)
    change = 0.0
    if label_change:
        if norm_bound is None:
            raise ValueError("norm_bound is needed when label changes are adjacent.")
        change = 2.0 * math.sqrt(2.0) * float(norm_bound)
    furthest = max(2.0 * radius, change)
    if weights is not None and not weights.uniform:
        if weights.class_totals is None or weights.class_largest is None:
            # Counts are private, whether or not label changes count.
            moved = weights.largest * furthest / ridge
            if norm_bound is None:
                return moved
            # No block is longer than B, and a record that changes its label moves two.
            norm, blocks_of_record = float(norm_bound), 2.0 if label_change else 1.0
            most = 2.0 * norm * math.sqrt(blocks_of_record * weights.most_records)
            return min(moved, most, _person_gone(weights.largest, ridge, norm))
        if label_change or mode not in ("per_class", "min"):
            raise ValueError(
                f"counts={mode!r}: weights with public labels need 'per_class' or 'min'."
            )
        shrink = 2.0 * np.array(weights.class_totals) + ridge
        blocks = weights.block_factor * 2.0 * radius * np.array(weights.class_largest) / shrink
    else:
        if label_change or mode == "worst":
            return furthest / (2.0 + ridge)
        check_option("counts", mode, COUNT_MODES)
        blocks = np.where(counts > 0, 2.0 * radius / (2.0 * counts + ridge), 0.0)
    return blocks if mode == "per_class" else float(blocks.max())


def _person_gone(total: float, ridge: float, norm_bound: float) -> float:
    r"""Most that prototypes move if a person of this total weight is replaced by any other.

    A person of weight :math:`\omega` in class c moves its block by at most :math:`G(\omega) = 2
    \omega B (2 z - \rho) / (z (z + 2 \omega))`, with z twice the weight of the others there plus
    :math:`\rho = \lambda W`; that is largest at :math:`z = (\rho + \sqrt{\rho^2 + 4 \rho
    \omega}) / 2`. Weights before and after add up to s each, so the square of the whole move is at
    most :math:`4 s \max_{0 < \omega \le s} G(\omega)^2 / \omega`, attained at :math:`\min(s, 3
    \rho / 4)`.
    """
    omega = min(total, 0.75 * ridge)
    z = 0.5 * (ridge + math.sqrt(ridge**2 + 4.0 * ridge * omega))
    moved = 2.0 * omega * norm_bound * (2.0 * z - ridge) / (z * (z + 2.0 * omega))
    return 2.0 * math.sqrt(total / omega) * moved * _UP


def moment_sensitivity(
    radius: float, *, norm_bound: float, domain: str = "ball", label_change: bool = False
) -> float:
    r"""Sensitivity of the second moment :math:`\sum_i x_i x_i^T`, in the Frobenius norm.

    With :math:`p = \|x\|^2`, :math:`q = \|x'\|^2` and :math:`t = \|x - x'\|`, all in units of B,

    .. math:: \|x x^T - x' x'^T\|_F^2 = p^2 + q^2 - (p + q - t^2)^2 / 2.

    On the sphere that is :math:`2 t^2 (1 - t^2/4)`, largest at :math:`t = \sqrt2`. In the ball it
    is convex in (p, q), so it peaks on the sphere or at collinear rows, which give
    :math:`2 t - t^2` up to t = 1, and 1 beyond.

    Parameters
    ----------
    radius : float
        Euclidean radius of the same-label substitutions.
    norm_bound : float
        Norm B of the rows: at most B in the ball, B on the sphere.
    domain : {"ball", "sphere"}
        Where rows lie.
    label_change : bool
        Whether substitutions that change the label are adjacent too, at any distance.

    Returns
    -------
    float
        At most :math:`\sqrt2 B^2`.

    Raises
    ------
    ValueError
        If the domain is unknown.
    """
    check_option("domain", domain, DOMAINS)
    norm_bound = float(norm_bound)
    # NumPy scalars of few bits would overflow or round below.
    t = math.sqrt(2.0) if label_change else min(float(radius) / norm_bound, math.sqrt(2.0))
    across = t * math.sqrt(2.0 - 0.5 * t**2)
    along = t * (2.0 - t) if t < 1.0 else 1.0
    return _UP * norm_bound**2 * (across if domain == "sphere" else max(across, along))
