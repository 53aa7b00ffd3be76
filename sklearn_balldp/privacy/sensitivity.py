r"""How far one substitution within the radius can move prototypes and second moments.

Ridge prototypes are :math:`\mu_c = 2 S_c / (2 n_c + \lambda n)` with class sums :math:`S_c`, which
move by at most r. So a row that is replaced by another of its label moves one block by at most
:math:`2 r / (2 n_c + \lambda n)`; a label that changes moves two blocks, together by at most
:math:`2\sqrt2 B / (2 + \lambda n)`. What moves with a loss is in :mod:`.gaps`. The proofs are in
this package's documentation.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._parameters import check_option
from ..adjacency import DOMAINS

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
) -> float | NDArray[np.float64]:
    r"""L2 sensitivity of ridge prototypes to one substitution within ``radius``.

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
        Whether substitutions that change the label are adjacent too, at any distance.
    norm_bound : float, optional
        Radius B of the admissible ball; needed with ``label_change``.

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
    furthest, counts = 2.0 * float(radius), np.asarray(counts, dtype=np.float64)
    ridge = float(alpha) * float(counts.sum())
    if label_change:
        if norm_bound is None:
            raise ValueError("norm_bound is needed when label changes are adjacent.")
        furthest = max(furthest, 2.0 * math.sqrt(2.0) * float(norm_bound))
    if label_change or mode == "worst":
        return furthest / (2.0 + ridge)
    check_option("counts", mode, COUNT_MODES)
    blocks = np.where(counts > 0, furthest / (2.0 * counts + ridge), 0.0)
    return blocks if mode == "per_class" else float(blocks.max())


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
