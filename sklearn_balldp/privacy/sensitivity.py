r"""How far one substitution within the radius can move what a head releases.

Ridge prototypes are :math:`\mu_c = 2 S_c / (2 n_c + \lambda n)` with class sums :math:`S_c`.
Substituting a row for another of the same label within :math:`r` moves one block by at most
:math:`2 r / (2 n_c + \lambda n)`; changing a label moves two blocks, together by at most
:math:`2\sqrt2 B / (2 + \lambda n)`.

The minimiser of a mean loss plus :math:`(\lambda/2)\|\theta\|^2` moves by at most
:math:`G(r) / (\lambda n)`, with the *gradient gap* G: the largest distance between the loss
gradients of two adjacent records at any parameter that can be a minimiser. Bounding those
parameters (:func:`minimizer_norm_bound`) and the gap itself (:func:`gradient_gap`), instead of a
Lipschitz constant of the gradient, is what removes most of the noise.

References
----------
Margaryan & Gupta, "Ball Differential Privacy: How to Mitigate Data Reconstruction with Less
Noise" (the stability lemma and the "paper" bounds); the "tight" bounds, per-class blocks, label
changes and rounding are proved in this package's documentation.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, lambertw

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
    # NumPy scalars of few bits would overflow or round below.
    radius, alpha = float(radius), float(alpha)
    counts = np.asarray(counts, dtype=np.float64)
    ridge = alpha * float(counts.sum())
    worst = 2.0 * radius / (2.0 + ridge)
    if label_change:
        if norm_bound is None:
            raise ValueError("norm_bound is needed when label changes are adjacent.")
        return max(worst, 2.0 * math.sqrt(2.0) * float(norm_bound) / (2.0 + ridge))
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

    Raises
    ------
    ValueError
        If the mode needs counts that are missing, or counts do not add up to ``n_samples``.
    """

    n_samples: int
    alpha: float
    norm_bound: float
    mode: str = "worst"
    class_counts: tuple[int, ...] | None = None
    label_change: bool = False

    def __post_init__(self) -> None:
        if (self.mode == "worst") != (self.class_counts is None):
            raise ValueError(f"mode={self.mode!r} and class_counts do not go together.")
        if self.class_counts is not None:
            if self.label_change:
                raise ValueError("class_counts are private when label changes are adjacent.")
            if sum(self.class_counts) != self.n_samples:
                raise ValueError("class_counts must add up to n_samples.")

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

        Parameters
        ----------
        radius : float
            Euclidean radius.

        Returns
        -------
        ndarray of shape (n_classes,) or (1,)
            One bound a class block, or one for all.
        """
        counts = np.asarray(self.class_counts or [self.n_samples], dtype=np.float64)
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
        if self.mode != "per_class":
            rounding = np.full(1, rounding.max())
        bound = np.atleast_1d(np.asarray(exact + rounding, dtype=np.float64))
        if self.mode == "per_class":
            bound[counts == 0] = 0.0
        return bound


@dataclass(frozen=True)
class MinimizerBound:
    """Sensitivity of a certified minimiser, as a function of the radius.

    Holds public numbers only; part of the public record of a fit.

    Parameters
    ----------
    loss : {"logistic", "softmax", "squared_hinge"}
        Loss of one record.
    n_samples, n_classes : int
        Number of records n and classes K.
    alpha, norm_bound : float
        Regularisation strength and radius of the admissible ball.
    fit_intercept : bool
        Whether rows are augmented by a constant 1.
    method : {"tight", "paper"}
        See :func:`gradient_gap`.
    label_change : bool
        Whether label changes are adjacent.
    tol : float
        Gradient norm, fixed before data, below which every released minimiser was certified.
    """

    loss: str
    n_samples: int
    n_classes: int
    alpha: float
    norm_bound: float
    fit_intercept: bool
    method: str
    label_change: bool
    tol: float

    @property
    def theorem(self) -> str:
        """What the bound rests on, in one line."""
        gap = {
            "tight": "G the certified gradient gap",
            "paper": "G = L_z r (Margaryan & Gupta)",
        }[self.method]
        return f"G / (alpha n) + 2 tol / alpha: {self.loss} minimiser, {gap}"

    def gap(self, radius: float) -> float:
        """Gradient gap at a Euclidean radius, with the allowance for rounded rows.

        Parameters
        ----------
        radius : float
            Euclidean radius.

        Returns
        -------
        float
            G, as :func:`gradient_gap` bounds it.
        """
        return gradient_gap(
            self.loss,
            radius * (1.0 + ROUNDING),
            alpha=self.alpha,
            norm_bound=self.norm_bound * (1.0 + ROUNDING),
            fit_intercept=self.fit_intercept,
            n_classes=self.n_classes,
            method=self.method,
            label_change=self.label_change,
        )

    def norm(self) -> float:
        """Largest norm of the released parameters before noise (all heads stacked).

        Returns
        -------
        float
            R, as :func:`minimizer_norm_bound` bounds it.
        """
        bound = minimizer_norm_bound(
            self.loss,
            alpha=self.alpha,
            norm_bound=self.norm_bound * (1.0 + ROUNDING),
            fit_intercept=self.fit_intercept,
            n_classes=self.n_classes,
        )
        stacked = self.loss == "squared_hinge" and self.n_classes > 2
        return bound * (math.sqrt(self.n_classes) if stacked else 1.0)

    def at(self, radius: float) -> NDArray[np.float64]:
        """Bound for same-label substitutions within a Euclidean ``radius``.

        Parameters
        ----------
        radius : float
            Euclidean radius.

        Returns
        -------
        ndarray of shape (1,)
            ``G / (alpha n) + 2 tol / alpha``, with the rounding of the division by the noise
            scale.
        """
        moved = self.gap(radius) / (self.alpha * self.n_samples) + 2.0 * self.tol / self.alpha
        rounding = 4.0 * _UNIT_ROUNDOFF * (self.norm() + self.tol / self.alpha)
        return np.array([moved + rounding])


def as_float_or_tuple(values: Sequence[float] | NDArray[np.float64]) -> float | tuple[float, ...]:
    """One float for one block, else a tuple: how blocks are stated in the public record."""
    values = [float(v) for v in values]
    return values[0] if len(values) == 1 else tuple(values)


#: Losses of the convex heads; "softmax" with two classes is "logistic".
LOSSES = ("logistic", "softmax", "squared_hinge")
#: "tight" bounds the minimiser and the gap directly; "paper" is radius times a Lipschitz constant.
METHODS = ("tight", "paper")
# Relative excess of a certified maximum over the best value found, on the squared gap.
_EXCESS = 1e-6
# The two-dimensional search of the hinge stops earlier.
_HINGE_EXCESS = 3e-4
# Rounds a computed bound up: its evaluation errs by far less.
_UP = 1.0 + 1e-12


def minimizer_norm_bound(
    loss: str,
    *,
    alpha: float,
    norm_bound: float,
    fit_intercept: bool,
    n_classes: int = 2,
    method: str = "tight",
) -> float:
    r"""Largest norm of the minimiser over all datasets of the domain.

    Parameters
    ----------
    loss : {"logistic", "softmax", "squared_hinge"}
        Loss of one record.
    alpha : float
        Regularisation strength lambda of the mean loss.
    norm_bound : float
        Radius B of the admissible ball of rows.
    fit_intercept : bool
        Whether rows are augmented by a constant 1 (the intercept is then regularised).
    n_classes : int, default=2
        Number of classes; used by "softmax".
    method : {"tight", "paper"}, default="tight"
        "paper" gives the constants of the paper.

    Returns
    -------
    float
        R, in the norm of one weight vector (logistic, squared hinge: per one-versus-rest head)
        or the Frobenius norm (softmax). With :math:`\tilde B^2 = B^2 + 1` under an intercept:
        :math:`\min(\sqrt{W(1/e)/\lambda}, \tilde B/\lambda)` for logistic,
        :math:`\min(\sqrt{W((K-1)/e)/\lambda}, \sqrt2 \tilde B/\lambda)` for softmax,
        :math:`\min(1/\sqrt{2\lambda}, 2\tilde B/\lambda)` for squared hinge.

    Raises
    ------
    ValueError
        If the loss or method is unknown.

    References
    ----------
    Inner product of the optimality condition with the minimiser; W is the Lambert function.
    """
    loss = _check_loss(loss, n_classes, method)
    alpha, norm_bound = float(alpha), float(norm_bound)
    augmented = _augmented(norm_bound, fit_intercept)
    if loss == "squared_hinge":
        if method == "paper":
            return math.sqrt(2.0 / alpha)
        return min(1.0 / math.sqrt(2.0 * alpha), 2.0 * augmented / alpha)
    width = math.sqrt(2.0) if loss == "softmax" else 1.0
    crude = width * augmented / alpha
    if method == "paper":
        return crude
    rest = 1.0 if loss == "logistic" else n_classes - 1.0
    return min(math.sqrt(float(lambertw(rest / math.e).real) / alpha), crude)


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
        :math:`\|\theta\| \le R` and adjacent records; the minimiser moves by at most
        :math:`G / (\lambda n)`.

    Raises
    ------
    ValueError
        If the loss or method is unknown, or the radius negative.
    """
    loss = _check_loss(loss, n_classes, method)
    if not radius >= 0.0:
        raise ValueError(f"radius must be non-negative, got {radius!r}.")
    radius, alpha, norm_bound = float(radius), float(alpha), float(norm_bound)
    radius = min(radius, 2.0 * norm_bound)
    bound = minimizer_norm_bound(
        loss,
        alpha=alpha,
        norm_bound=norm_bound,
        fit_intercept=fit_intercept,
        n_classes=n_classes,
        method=method,
    )
    augmented = _augmented(norm_bound, fit_intercept)
    heads = n_classes if loss == "squared_hinge" and n_classes > 2 else 1
    lipschitz = {
        "logistic": 1.0 + augmented * bound / 4.0,
        "softmax": math.sqrt(2.0) + augmented * bound / 2.0,
        "squared_hinge": 2.0 + 4.0 * augmented * bound,
    }[loss]
    gap = lipschitz * radius
    if method == "tight":
        # Extreme parameters overflow to infinity, which bounds anything.
        tight = {"logistic": _logistic_gap, "softmax": _softmax_gap, "squared_hinge": _hinge_gap}
        with np.errstate(all="ignore"):
            sharper = tight[loss](radius, norm_bound, augmented, bound)
        gap = min(gap, sharper) if sharper >= 0.0 else gap
    same_label = math.sqrt(heads) * gap
    if not label_change:
        return same_label * _UP
    height = 1.0 + bound * augmented
    if loss == "logistic":
        # Both residuals are at most sigmoid(R B~).
        change = 2.0 * augmented * float(expit(bound * augmented))
    elif loss == "softmax":
        change = 2.0 * math.sqrt(2.0) * augmented
    elif heads == 1:
        change = 4.0 * height * augmented
    else:
        # Two heads see the label flip, the others a move of at most the diameter.
        other = _hinge_gap(2.0 * norm_bound, norm_bound, augmented, bound)
        change = math.sqrt(2.0 * (4.0 * height * augmented) ** 2 + (heads - 2) * other**2)
    return max(same_label, change) * _UP


def _check_loss(loss: str, n_classes: int, method: str) -> str:
    if loss not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}; got {loss!r}.")
    if method not in METHODS:
        raise ValueError(f"sensitivity must be one of {', '.join(METHODS)}; got {method!r}.")
    return "logistic" if loss == "softmax" and n_classes == 2 else loss


def _augmented(norm_bound: float, fit_intercept: bool) -> float:
    return math.hypot(norm_bound, 1.0) if fit_intercept else norm_bound


def _square_loss(radius: float, norm_bound: float) -> float:
    """B^2 - ((B - r)+)^2: how much shorter the nearer record may be, without cancellation."""
    return radius * (2.0 * norm_bound - radius) if radius < norm_bound else norm_bound**2


def _logistic_gap(radius: float, norm_bound: float, augmented: float, bound: float) -> float:
    r"""Maximise (a-b)(a B2 - b b2) + a b r^2 over a = sigmoid(t + R r), b = sigmoid(t).

    From ||a x - b x'||^2 = (a-b)(a ||x||^2 - b ||x'||^2) + a b ||x-x'||^2 with residuals a >= b.
    a, b increase with t and a - b has one peak, so ends and peak of a cell bound it.
    """
    if radius == 0.0:
        return 0.0
    square, drop = augmented**2, _square_loss(radius, norm_bound)
    step, edge = bound * radius, bound * augmented

    def upper(low: NDArray, high: NDArray) -> NDArray:
        a = expit(np.minimum(high + step, edge))
        b = expit(high)
        peak = np.clip(-0.5 * step, low, high)
        rise = np.minimum(step, edge - peak)
        # sigmoid(t + s) - sigmoid(t), without cancellation.
        difference = expit(peak + rise) * expit(-peak) * -np.expm1(-rise)
        return difference * (a * drop + difference * (square - drop)) + a * b * radius**2

    def value(points: NDArray) -> NDArray:
        return upper(points, points)

    certified = _certified_maximum(value, upper, -edge, edge)
    return min(math.sqrt(certified), max(augmented, radius))


def _certified_maximum(
    value: Callable[[NDArray], NDArray],
    upper: Callable[[NDArray, NDArray], NDArray],
    low: float,
    high: float,
) -> float:
    """Upper bound on a maximum over [low, high] by splitting the cells that may still hold it."""
    edges = np.linspace(low, high, 257)
    lows, highs = edges[:-1], edges[1:]
    best = float(value(edges).max())
    certified = best
    for _ in range(200):
        bounds = np.nan_to_num(upper(lows, highs), nan=math.inf, posinf=math.inf)
        alive = bounds > best * (1.0 + _EXCESS)
        certified = max(certified, float(bounds[~alive].max(initial=0.0)))
        if not alive.any():
            return certified
        lows, highs, bounds = lows[alive], highs[alive], bounds[alive]
        middles = 0.5 * (lows + highs)
        if len(lows) > 100_000:
            break
        best = max(best, float(value(middles).max()))
        lows, highs = np.concatenate([lows, middles]), np.concatenate([middles, highs])
    return max(certified, _largest(upper(lows, highs)))


def _largest(bounds: NDArray[np.float64]) -> float:
    """Largest bound; infinity where overflow left none."""
    return float(np.nan_to_num(bounds, nan=math.inf, posinf=math.inf).max())


def _softmax_gap(radius: float, norm_bound: float, augmented: float, bound: float) -> float:
    """Least of two bounds: vertices of the simplex, and the identity with residual vectors."""
    square = augmented**2
    vertices = max(
        math.sqrt(2.0) * radius, math.sqrt(2.0 * square), math.sqrt(2.0 * square + radius**2)
    )
    move = min(bound * radius / 2.0, math.sqrt(2.0))
    drop = _square_loss(radius, norm_bound)
    identity = move * (square * move + math.sqrt(2.0) * drop) + 2.0 * radius**2
    return min(vertices, math.sqrt(identity))


def _hinge_gap(radius: float, norm_bound: float, augmented: float, bound: float) -> float:
    """Ends of a convex function of the smaller hinge; for r > B also the two-margin search."""
    square, drop = augmented**2, _square_loss(radius, norm_bound)
    height = 1.0 + bound * augmented
    difference = min(bound * radius, height)
    lower = height - difference
    apart = difference * (difference * square + lower * drop) + height * lower * radius**2
    gap = 2.0 * math.sqrt(max(height**2 * radius**2, apart))
    if radius > norm_bound:
        searched = _hinge_gap_far(radius, augmented, square - drop, bound)
        gap = min(gap, 2.0 * math.sqrt(searched))
    return gap


def _hinge_gap_far(radius: float, augmented: float, least: float, bound: float) -> float:
    r"""Search over the projections z >= z' of the two records on the direction of the weights.

    Maximises (h-h')(h B2 - h' max(z'^2, b2)) + h h' min(r^2, (z-z')^2 + (c(z) + c(z'))^2) with
    h = 1 + R z, c(z) = sqrt(B2 - z^2) and z - z' <= r, by splitting cells.
    """
    square = augmented**2
    edges = np.linspace(-augmented, augmented, 33)
    u0, v0 = (grid.ravel() for grid in np.meshgrid(edges[:-1], edges[:-1], indexing="ij"))
    u1, v1 = (grid.ravel() for grid in np.meshgrid(edges[1:], edges[1:], indexing="ij"))

    def hinge(z: NDArray) -> NDArray:
        return np.maximum(1.0 + bound * z, 0.0)

    def upper(u0: NDArray, u1: NDArray, v0: NDArray, v1: NDArray) -> NDArray:
        large, small0, small1 = hinge(u1), hinge(v0), hinge(v1)
        nearest_u = np.clip(0.0, u0, u1) ** 2
        nearest_v = np.clip(0.0, v0, v1) ** 2
        across = np.sqrt(np.maximum(square - nearest_u, 0.0))
        across = across + np.sqrt(np.maximum(square - nearest_v, 0.0))
        along = np.clip(u1 - v0, 0.0, radius)
        distance = np.minimum(radius**2, along**2 + across**2)
        first = (large - small0) * (large * square - small0 * np.maximum(nearest_v, least))
        return first + large * small1 * distance

    def feasible(u0: NDArray, u1: NDArray, v0: NDArray, v1: NDArray) -> NDArray:
        return (u1 >= v0) & (u0 - v1 <= radius)

    best = certified = 0.0
    for _ in range(60):
        kept = feasible(u0, u1, v0, v1)
        u0, u1, v0, v1 = u0[kept], u1[kept], v0[kept], v1[kept]
        # The feasible pair nearest to the cell's far corner, for a value that is attained.
        u = np.clip(u1, None, v1 + radius)
        v = np.minimum(np.maximum(v0, u - radius), u)
        best = max(best, float(upper(u, u, v, v).max()))
        bounds = np.nan_to_num(upper(u0, u1, v0, v1), nan=math.inf, posinf=math.inf)
        alive = bounds > best * (1.0 + _HINGE_EXCESS)
        certified = max(certified, float(bounds[~alive].max(initial=0.0)))
        if not alive.any():
            return max(certified, best)
        u0, u1, v0, v1 = u0[alive], u1[alive], v0[alive], v1[alive]
        if len(u0) > 50_000:
            break
        um, vm = 0.5 * (u0 + u1), 0.5 * (v0 + v1)
        u0, u1, v0, v1 = (
            np.concatenate([u0, u0, um, um]),
            np.concatenate([um, um, u1, u1]),
            np.concatenate([v0, vm, v0, vm]),
            np.concatenate([vm, v1, vm, v1]),
        )
    return max(certified, _largest(upper(u0, u1, v0, v1)))
