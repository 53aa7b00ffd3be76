"""How far one substitution within the radius can move the second moment of the rows."""

import math

from .._parameters import check_option
from ..adjacency import DOMAINS

# Rounds a computed bound up: its evaluation errs by far less.
_UP = 1.0 + 1e-12


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
