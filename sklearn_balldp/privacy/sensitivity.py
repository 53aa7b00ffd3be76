r"""How far one substitution within the radius can move what a head releases.

Ridge prototypes are :math:`\mu_c = 2 S_c / (2 n_c + \lambda n)` with class sums :math:`S_c`.
Substituting a row for another of the same label within :math:`r` moves one block by at most
:math:`2 r / (2 n_c + \lambda n)`; changing a label moves two blocks, together by at most
:math:`2\sqrt2 B / (2 + \lambda n)`.

References
----------
Margaryan & Gupta, "Ball Differential Privacy: How to Mitigate Data Reconstruction with Less
Noise"; per-class blocks, label changes and rounding are proved in this package's documentation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..policy.adjacency import ROUNDING

_UNIT_ROUNDOFF = 2.0**-53

#: How ridge prototypes use the public class counts.
COUNT_MODES = ("per_class", "min", "worst")


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
        "per_class": one bound a class block, :math:`2r/(2n_c+\lambda n)` (0 for an absent class,
        whose block never moves). "min": the largest of these, for all blocks. "worst": counts
        unused, :math:`2r/(2+\lambda n)`, the paper's Table 1.
    label_change : bool
        Whether substitutions that change the label are adjacent too; counts are then private and
        ``mode`` is not used.
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
    counts = np.asarray(counts, dtype=np.float64)
    ridge = alpha * float(counts.sum())
    worst = 2.0 * radius / (2.0 + ridge)
    if label_change:
        if norm_bound is None:
            raise ValueError("norm_bound is needed when label changes are adjacent.")
        return max(worst, 2.0 * math.sqrt(2.0) * norm_bound / (2.0 + ridge))
    if mode == "worst":
        return worst
    if mode not in COUNT_MODES:
        raise ValueError(f"counts must be one of {', '.join(COUNT_MODES)}; got {mode!r}.")
    blocks = np.where(counts > 0, 2.0 * radius / (2.0 * counts + ridge), 0.0)
    return blocks if mode == "per_class" else float(blocks.max())


@dataclass(frozen=True)
class PrototypeBound:
    """Sensitivity of one ridge prototype release, as a function of the radius.

    Holds public numbers only; part of the public record of a fit.

    Parameters
    ----------
    n_samples : int
        Number of records n.
    alpha : float
        Regularisation strength.
    norm_bound : float
        Radius B of the admissible ball.
    mode : {"per_class", "min", "worst"}
        See :func:`prototype_sensitivity`.
    class_counts : tuple of int or None
        Public class counts where ``mode`` uses them, else None.
    label_change : bool
        Whether label changes are adjacent.
    """

    n_samples: int
    alpha: float
    norm_bound: float
    mode: str = "per_class"
    class_counts: tuple[int, ...] | None = None
    label_change: bool = False

    @property
    def theorem(self) -> str:
        """What the bound rests on, in one line."""
        if self.label_change:
            return "max(2r, 2 sqrt(2) B) / (2 + alpha n): prototypes, labels protected"
        return {
            "worst": "2r / (2 + alpha n): ridge prototypes, counts unused (Margaryan & Gupta)",
            "min": "2r / (2 n_min + alpha n): ridge prototypes, count-aware (Margaryan & Gupta)",
            "per_class": "2r / (2 n_c + alpha n) per class block: a substitution moves one block",
        }[self.mode]

    def at(self, radius: float) -> NDArray[np.float64]:
        """Bound for same-label substitutions within a Euclidean ``radius``.

        Includes the rounding of rows, of the class sums and of the division by the noise scale.

        Returns
        -------
        ndarray of shape (n_classes,) or (1,)
            One bound a class block, or one for all.
        """
        public = self.class_counts is not None and not self.label_change
        counts = np.asarray(self.class_counts if public else [self.n_samples], dtype=np.float64)
        norm_bound = self.norm_bound * (1.0 + ROUNDING)
        exact = prototype_sensitivity(
            radius * (1.0 + ROUNDING),
            counts,
            alpha=self.alpha,
            mode=self.mode,
            label_change=self.label_change,
            norm_bound=norm_bound,
        )
        # Summing n_c rows errs by at most n_c^2 u B on each side, in any order of summation; the
        # two divisions err by 2 u B more. Label changes move two blocks.
        sums = 4.0 * counts**2 / (2.0 * counts + self.alpha * self.n_samples)
        rounding = 2.0 * (sums + 4.0) * _UNIT_ROUNDOFF * norm_bound
        if self.mode != "per_class" or self.label_change:
            rounding = np.full(1, rounding.max())
        bound = np.atleast_1d(np.asarray(exact + rounding, dtype=np.float64))
        if public and self.mode == "per_class":
            bound[counts == 0] = 0.0
        return bound


def as_float_or_tuple(values: Sequence[float] | NDArray[np.float64]) -> float | tuple[float, ...]:
    """One float for one block, else a tuple: how blocks are stated in the public record."""
    values = [float(v) for v in values]
    return values[0] if len(values) == 1 else tuple(values)
