r"""How far one substitution can move the gradient of a loss.

The gradient of a record is its *residual*, the derivative of the loss by the scores, times its
row. The *gap* is the largest distance between the gradients of two adjacent records. At parameters
that are known, as those of a noisy descent are, it is :func:`iterate_gap`. A minimiser is not
known, but a bound on its norm is (:func:`minimizer_norm_bound`): :func:`gradient_gap` is the
largest gap at parameters within it, and the minimiser of a mean loss plus
:math:`(\lambda/2)\|\theta\|^2` moves by at most gap :math:`/ (\lambda n)`.

Losses with one score have one search for both. Known parameters are a point of it, and those of a
minimiser a half circle: shorter ones can be lengthened across both rows, which changes no score.

References
----------
Margaryan & Gupta, "Ball Differential Privacy: How to Mitigate Data Reconstruction with Less
Noise" (the stability lemma and the "paper" bounds); the proofs of all others are in this package's
documentation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from .._parameters import check_option
from ..adjacency import RowGeometry
from ..losses import Logistic, Loss, Softmax, SquaredHinge, make_loss
from .maximum import certified_maximum

Array = NDArray[np.float64]
Range = tuple[Array, Array]

#: "tight" bounds the minimiser and the gap directly; "paper" is radius times a Lipschitz constant.
METHODS = ("tight", "paper")
# Relative excess of certified maxima over the best values found, on squared gaps.
_EXCESS_KNOWN, _EXCESS_TURNING, _EXCESS_ODDS, _EXCESS_FLIPPED = 1e-2, 1e-3, 5e-5, 1e-4
# Without an intercept; the hinge's largest gap is at a corner, where few cells are left.
_EXCESS_PLANE = {Logistic.name: 3e-4, SquaredHinge.name: 1e-10}
# Cells that a search of losses with one score may split at once: at known parameters, at any.
_MOST_CELLS_KNOWN, _MOST_CELLS_ANY = 50_000, 16_000
_LARGEST_NORM = 1e120
_MOST_PARAMETER = 1e100
# Rounds a computed bound up: its evaluation errs by far less.
_UP = 1.0 + 1e-11
# Roots, quotients and Lambert's function err by a few units in the last place.
_UP_OF_NORM = 1.0 + 2.0**-48
# Share of its terms that a computed score may be off by, and more than a computed cosine is.
_SCORE_ERROR, _COSINE_ERROR = 2.0**-50, 2.0**-51
# Differences of shares cancel: their errors grow as radii fall, down to this share of B.
_LEAST_OF_ODDS, _UP_OF_ODDS = 1e-6, 1.0 + 1e-8


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
    loss : {"logistic", "softmax", "squared_hinge"}
        Loss of one record.
    alpha : float
        Regularisation strength lambda of the mean loss.
    norm_bound : float
        Radius B of the admissible ball of rows.
    fit_intercept : bool
        Whether rows are augmented by a constant 1.
    n_classes : int, default=2
        Number of classes K.
    method : {"tight", "paper"}, default="tight"
        "paper": the paper's bound.

    Returns
    -------
    float
        R.

    Notes
    -----
    R is in the norm of one weight vector (logistic, squared hinge: per one-versus-rest head) or the
    Frobenius norm (softmax). With :math:`\tilde B^2 = B^2 + 1` under an intercept, which is then
    regularised, it is :math:`\min(\sqrt{W(1/e)/\lambda}, \tilde B/\lambda)` for logistic,
    :math:`\min(\sqrt{W((K-1)/e)/\lambda}, \sqrt2 \tilde B/\lambda)` for softmax, and
    :math:`\min(1/\sqrt{2\lambda}, 2\tilde B/\lambda)` for squared hinge. The first terms come from
    the inner product of the optimality condition with the minimiser; W is the Lambert function.
    """
    kind = _loss(loss, n_classes, method)
    geometry = RowGeometry(norm_bound, 0.0, float(fit_intercept))
    return _norm_bound(kind, float(alpha), geometry, method) * _UP_OF_NORM


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
        :math:`\|\theta\| \le R` and adjacent records; the minimiser moves by at most
        :math:`G / (\lambda n)`.

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


def gap_over_minimisers(
    loss: Loss, geometry: RowGeometry, alpha: float, *, method: str, labels: str
) -> float:
    """As :func:`gradient_gap`, for a domain with or without its allowance for rounding."""
    bound = _norm_bound(loss, alpha, geometry, method)
    reach = bound * geometry.augmented
    gap = _gap_of_one(loss, geometry, bound, method)
    same_label = math.sqrt(loss.n_stacked) * gap
    if labels == "public":
        return same_label * _UP
    change = 2.0 * geometry.augmented * loss.residual_peak(reach)
    if loss.name != Softmax.name and method == "tight":
        with np.errstate(all="ignore"):
            flipped = _flipped_gap(loss.name, geometry.augmented, bound)
        change = min(change, flipped) if flipped >= 0.0 else change
    if loss.n_stacked > 1:
        # Two heads see the label flip, the others a move of at most the diameter.
        other = _gap_of_one(loss, geometry.at(2.0 * geometry.norm_bound), bound, "tight")
        change = math.sqrt(2.0 * change**2 + (loss.n_stacked - 2) * other**2)
    return max(same_label, change) * _UP


def _gap_of_one(loss: Loss, geometry: RowGeometry, bound: float, method: str) -> float:
    """The gap of one problem of a loss, within a label."""
    reach = bound * geometry.augmented
    # The radius times a Lipschitz constant of the gradient: the paper's form.
    gap = (loss.residual_limit(reach) + loss.curvature * reach) * geometry.radius
    if method == "tight":
        # Extreme parameters overflow to infinity, which bounds anything.
        with np.errstate(all="ignore"):
            if loss.name == Softmax.name:
                sharper = _softmax_gap(geometry, bound, loss.n_classes)
            else:
                sharper = _gap_of_any(loss.name, geometry, bound)
        gap = min(gap, sharper) if sharper >= 0.0 else gap
    return gap


def _loss(name: str, n_classes: int, method: str) -> Loss:
    check_option("sensitivity", method, METHODS)
    return make_loss("logistic" if name == "softmax" and n_classes == 2 else name, n_classes)


# -- known parameters ------------------------------------------------------------------------------


def iterate_gap(
    loss: str,
    parameters: Array,
    radius: float,
    *,
    norm_bound: float,
    constant: float,
    clip: float | None = None,
    label_change: bool = False,
) -> float:
    r"""Certified upper bound on the gradient gap of adjacent records at known parameters.

    Parameters
    ----------
    loss : {"logistic", "softmax", "squared_hinge"}
        Loss of one record; "squared_hinge" with several scores stacks one-versus-rest heads.
    parameters : ndarray of shape (n_scores, n_features) or (n_scores, n_features + 1)
        Public parameters, below 1e100; the last column multiplies the constant, if there is one.
    radius : float
        Euclidean radius r of same-label substitutions; capped at ``2 * norm_bound``.
    norm_bound : float
        Radius B of the admissible ball of rows.
    constant : float
        Constant that rows are augmented by; 0 for no intercept.
    clip : float, optional
        Norm to which the residual of each record is clipped; no clipping by default.
    label_change : bool, default=False
        Whether pairs with different labels (at any distance) are adjacent too.

    Returns
    -------
    float
        Upper bound on :math:`\|a x^T - a' x'^T\|` over adjacent records.

    Raises
    ------
    ValueError
        If the loss is unknown, ``norm_bound`` out of range, the radius negative, or a parameter too
        large.

    Notes
    -----
    One score: the exact maximum, to half a per cent. More: bounds on residuals by known margins,
    and the identity :math:`\|a x^T - a' x'^T\|^2 = \langle a - a', a \rangle \|x\|^2
    - \langle a - a', a' \rangle \|x'\|^2 + \langle a, a' \rangle \|x - x'\|^2`.
    """
    _check_sizes(norm_bound, radius)
    theta = np.asarray(parameters, dtype=np.float64)
    kind = _loss_of(loss, len(theta))
    labels = "protected" if label_change else "public"
    geometry = RowGeometry(norm_bound, radius, constant)
    return gap_at(kind, theta, geometry, clip=clip, labels=labels)


def _check_sizes(norm_bound: float, radius: float) -> None:
    """Raise a ValueError for sizes whose squares underflow or overflow, or a negative radius."""
    if not 1.0 / _LARGEST_NORM <= norm_bound <= _LARGEST_NORM:
        raise ValueError(
            f"norm_bound must be between {1.0 / _LARGEST_NORM:g} and {_LARGEST_NORM:g}, got "
            f"{norm_bound!r}."
        )
    if not radius >= 0.0:
        raise ValueError(f"radius must be non-negative, got {radius!r}.")


def _loss_of(name: str, n_scores: int) -> Loss:
    """The loss with this many columns of scores; two classes share one, except for softmax."""
    loss = make_loss(name, max(2, n_scores))
    if loss.n_scores != n_scores:
        raise ValueError(f"{name} has no {n_scores} columns of scores (two classes share one).")
    return loss


def gap_at(
    loss: Loss, theta: Array, geometry: RowGeometry, *, clip: float | None, labels: str
) -> float:
    """As :func:`iterate_gap`, for a domain with or without its allowance for rounding."""
    if not (np.abs(theta) < _MOST_PARAMETER).all():
        raise ValueError(f"parameters must be below {_MOST_PARAMETER:g} in size.")
    most = math.inf if clip is None else float(clip)
    kind: type[_OneColumn | _Softmax | _OneVersusRest]
    if loss.name == Softmax.name:
        kind = _Softmax
    else:
        kind = _OneColumn if loss.n_scores == 1 else _OneVersusRest
    # Exponentials of extreme margins are zero or infinite, as they should be.
    with np.errstate(all="ignore"):
        known = kind(loss, theta, geometry)
        gap = known.same_label(most)
        if labels == "protected":
            # With clipping, take the limit over all parameters, which is known beforehand.
            limit = 2.0 * min(most, loss.residual_limit()) * geometry.augmented
            gap = max(gap, known.label_change() if clip is None else limit)
    return gap * _UP


class GapLimits(NamedTuple):
    """Smallest and largest value of :func:`iterate_gap` over all parameters."""

    least: float
    most: float  # infinite where gradients are not bounded


def limits_over_iterates(
    loss: Loss, n_features: int, geometry: RowGeometry, *, clip: float | None, labels: str
) -> GapLimits:
    r"""Public limits of :func:`gap_at` over all parameters.

    Two rows r apart across all weights have equal residuals, so that no parameters make the gap of
    equal labels smaller than r times the least residual of the worst label: 1/2 (logistic),
    :math:`\sqrt{1 - 1/K}` (softmax), 2 (squared hinge), given a feature more than the weights
    span.
    """
    r, augmented = geometry.radius, geometry.augmented
    largest = loss.residual_limit()
    if clip is not None:
        largest = min(largest, float(clip))
    least = min(loss.least_residual, largest) * r if n_features > loss.n_spanned else 0.0
    if not math.isfinite(largest):
        most = math.inf
    elif loss.n_scores > 1:
        # Without clipping residuals peak at corners of the simplex: the same angle.
        most = clipped_gap(largest, geometry, versine=loss.versine)
    else:
        most = largest * max(augmented, r)
    if labels == "protected":
        most_change = 2.0 * largest * augmented
        least = max(least, loss.least_change * augmented if clip is None else most_change)
        most = max(most, most_change)
    # The limits are rounded further than the bound itself, so that they hold for it.
    return GapLimits(least / _UP, most * _UP**2)


# -- one score -------------------------------------------------------------------------------------


class _ResidualSize(NamedTuple):
    """Size of a residual as a nondecreasing function of the score t, and its differences.

    Scores count towards larger loss. ``rises(low, high, least, most)`` bounds size(t + s) - size(t)
    below and above, over t in [low, high] and s in [least, most].
    """

    value: Callable[[Array], Array]
    rises: Callable[[Array, Array, Array, Array], Range]


def _logistic_size(clip: float) -> _ResidualSize:
    """min(sigmoid(t), clip)."""
    edge = math.log(clip / (1.0 - clip)) if clip < 1.0 else math.inf

    def value(t: Array) -> Array:
        return np.minimum(expit(t), clip)

    def rise(t: Array, step: Array, error: float) -> Array:
        # sigmoid(t + s) - sigmoid(t) without cancellation, up to the edge.
        if clip < 1.0:
            step = np.clip(edge - t + error * (1.0 + abs(edge) + np.abs(t)), 0.0, step)
        # The sum of a large score and a large step cancels.
        top = t + step + error * (np.abs(t) + step)
        return np.minimum(expit(top) * expit(-t) * -np.expm1(-step), clip)

    def rises(low: Array, high: Array, least: Array, most: Array) -> Range:
        # A rise grows with the step, and with t up to its peak; then it falls.
        ends = np.minimum(rise(low, least, -_SCORE_ERROR), rise(high, least, -_SCORE_ERROR))
        peak = np.minimum(-0.5 * most, edge - most)
        return ends, rise(np.clip(peak, low, high), most, _SCORE_ERROR)

    return _ResidualSize(value, rises)


def _hinge_size(clip: float) -> _ResidualSize:
    """min(2 (1 + t)+, clip)."""

    def value(t: Array) -> Array:
        return np.clip(2.0 * (1.0 + t), 0.0, clip)

    def rise(low: Array, high: Array, step: Array) -> Array:
        # min(2t + 2 + 2s, clip) - max(2t + 2, 0), term by term: at both ends that is a bound.
        step = 2.0 * step
        within, into, out = (
            np.minimum(step, clip),
            2.0 * (1.0 + low) + step,
            clip - 2.0 * (1.0 + high),
        )
        return np.maximum(np.minimum(np.minimum(within, into), out), 0.0)

    def rises(low: Array, high: Array, least: Array, most: Array) -> Range:
        return rise(low, high, least), rise(high, low, most)

    return _ResidualSize(value, rises)


#: Sizes of clipped residuals of one score, by loss.
_RESIDUAL_SIZES = {Logistic.name: _logistic_size, SquaredHinge.name: _hinge_size}


@dataclass(frozen=True)
class _OneScore:
    r"""Two rows of one label, whose parts along the weights are z' and z = z' + s, s in [0, r].

    Scores are slope z + offset. If ``turning``, parameters are any of the norm ``slope``: scores
    are slope cos f z + offset sin f, f in [-pi/2, pi/2]. Residuals are a' and a = a' + D, D >= 0.
    The rows have parts across the weights of norms n' <= k' and n <= k, which are at most
    q = :math:`\sqrt{r^2 - s^2}` apart. The square of the gap is the least of two forms, with c
    the constant and l = min(k, k' + q):

    .. math:: c^2 D^2 + (D z + a' s)^2 + (D l + a' \min(q, l + k'))^2

    .. math:: D^2 (B^2 + c^2) + D a' (\|x\|^2 - \|x'\|^2) + a' (a' + D) \|x - x'\|^2

    Some pair attains the first. The second holds more narrowly in cells where much cancels.

    Cells are of (z', s), or of (f, t', s) with the score t' of x', which counts at a scale of its
    own. Every range is rounded outwards.
    """

    size: _ResidualSize
    geometry: RowGeometry
    slope: float
    offset: float
    turning: bool = False

    @property
    def error(self) -> float:
        """How far a computed score may be off."""
        return _SCORE_ERROR * (1.0 + self.slope * self.geometry.norm_bound + abs(self.offset))

    @property
    def largest(self) -> float:
        """Largest residual."""
        reach = self.slope * self.geometry.norm_bound
        reach = math.hypot(reach, self.offset) if self.turning else reach + self.offset
        return float(self.size.value(np.asarray(reach + self.error)))

    def cap(self, curvature: float) -> float:
        """The gap without a search: corners of [0, largest]^2, and a Lipschitz constant."""
        geometry, largest = self.geometry, self.largest
        lipschitz = largest + curvature * self.slope * geometry.augmented
        return min(largest * max(geometry.augmented, geometry.radius), lipschitz * geometry.radius)

    def gap(self, cap: float, *, excess: float, most_cells: int, reached: float = 0.0) -> float:
        """Largest gap, between ``reached`` and ``cap``."""
        bound, radius = self.geometry.norm_bound, self.geometry.radius
        if radius == 0.0 or not 0.0 < cap < math.inf:
            return 0.0 if radius == 0.0 else cap
        low, high, n_cells = [-bound, 0.0], [bound, radius], [16, 16]
        if self.turning:
            edge = math.hypot(self.slope * bound, self.offset) + self.error
            low, high = [-0.5 * math.pi, -edge, 0.0], [0.5 * math.pi, edge, radius]
            n_cells = [12, 12, 12]
        # In units of the cap squares do not underflow.
        found = certified_maximum(
            lambda low, high: self.squares(low, high, cap),
            low,
            high,
            n_cells=n_cells,
            excess=excess,
            most_cells=most_cells,
            attained=self._middles,
            reached=(reached / cap) ** 2,
            enough=1.0,
        )
        # Of squares that are nearly lost to underflow, the cap alone is a valid bound.
        return cap * math.sqrt(found) if 1e-290 < found < 1.0 else cap

    def squares(self, low: Array, high: Array, unit: float) -> Array:
        """Upper bounds over cells on the squared gap, in units; zero where no pair is.

        At points that is the value, but for rounding.
        """
        bound, radius, constant = (
            self.geometry.norm_bound,
            self.geometry.radius,
            self.geometry.constant,
        )
        slopes, (t0, t1), (p0, p1), (s0, s1) = self._ranges(low, high)
        z0, z1 = p0 + s0, np.minimum(p1 + s1, bound)
        less, more = self.size.rises(t0, t1, slopes[0] * s0, slopes[1] * s1)
        # Residuals in units of the gap, so that products are of its size.
        less, more = less / unit, more / unit
        small, large = self.size.value(t0) / unit, self.size.value(t1) / unit
        across, across_other = self._across(z0, z1), self._across(p0, p1)
        rest = np.sqrt(np.maximum((radius - s0) * (radius + s0), 0.0))
        # The two terms along the weights may have opposite signs: both ends, the larger counts.
        along = np.maximum(
            np.abs(np.where(z1 > 0.0, more, less) * z1 + large * s1),
            np.abs(np.where(z0 > 0.0, less, more) * z0 + small * s0),
        )
        n = np.minimum(across, across_other + rest)
        sideways = more * n + large * np.minimum(rest, n + across_other)
        attained = (constant * more) ** 2 + along**2 + sideways**2
        # How much longer x can be than x', in squares; and how far apart they are.
        longer = np.where(across > rest, rest * (2.0 * across - rest), across**2)
        longer = longer + (z1 + p1) * np.where(z1 + p1 > 0.0, s1, s0)
        longer = np.clip(longer, 0.0, self.geometry.squared_norm_drop)
        apart = np.minimum(radius**2, s1**2 + (across + across_other) ** 2)
        identity = (more * self.geometry.augmented) ** 2
        identity = identity + more * large * longer + large * (large + more) * apart
        empty = (p0 > p1) | (p0 + s0 > bound)
        return np.where(empty, 0.0, np.minimum(attained, identity))

    def _ranges(self, low: Array, high: Array) -> tuple[Range, Range, Range, Range]:
        """Least and largest slope, score t', part z' and step s in cells."""
        if not self.turning:
            (p0, s0), (p1, s1) = low, high
            t0, t1 = self.slope * p0 + self.offset, self.slope * p1 + self.offset
            slopes = np.full_like(p0, self.slope), np.full_like(p0, self.slope)
            return slopes, (t0 - self.error, t1 + self.error), (p0, p1), (s0, s1)
        (f0, t0, s0), (f1, t1, s1) = low, high
        least = np.minimum(np.cos(f0), np.cos(f1)) - _COSINE_ERROR
        most = np.cos(np.clip(0.0, f0, f1)) + _COSINE_ERROR
        slopes = self.slope * np.maximum(least, 0.0), self.slope * most
        # The part is odd in (f, t').
        parts = self._least_part(f0, f1, t0), -self._least_part(-f1, -f0, -t1)
        return slopes, (t0 - self.error, t1 + self.error), parts, (s0, s1)

    def _least_part(self, f0: Array, f1: Array, score: Array) -> Array:
        """Least z' in [-B, inf) of this score at angles between these: at an end or a trough."""
        trough = np.clip(np.arcsin(np.clip(self.offset / score, -1.0, 1.0)), f0, f1)
        angles = np.stack([f0, f1, trough])
        above = score - self.error - self.offset * np.sin(angles)
        cosine = np.cos(angles) + np.where(above > 0.0, _COSINE_ERROR, -_COSINE_ERROR)
        parts = above / (self.slope * np.maximum(cosine, 0.0))
        least: Array = np.fmax(parts, -self.geometry.norm_bound).min(axis=0)
        return least

    def _across(self, low: Array, high: Array) -> Array:
        """Largest part across the weights of a row whose part along them is between these."""
        bound = self.geometry.norm_bound
        nearest = np.maximum(np.abs(np.clip(0.0, low, high)) - 2.0**-52 * bound, 0.0)
        return np.sqrt(np.maximum((bound - nearest) * (bound + nearest), 0.0))

    def _middles(self, low: Array, high: Array) -> Array:
        """A point of each cell, moved to where pairs are."""
        bound = self.geometry.norm_bound
        middle = 0.5 * (low + high)
        if not self.turning:
            step = np.minimum(middle[1], bound - low[0])
            return np.array([np.minimum(middle[0], bound - step), step])
        f, t, s = middle
        straight, tilt = self.slope * np.cos(f), self.offset * np.sin(f)
        t = np.clip(t, tilt - straight * bound, tilt + straight * (bound - s))
        return np.array([f, np.clip(t, low[1], high[1]), s])


@lru_cache(maxsize=256)
def _gap_of_any(loss: str, geometry: RowGeometry, bound: float) -> float:
    """The gap of rows of one label under one score, at parameters of norm ``bound`` or less."""
    turning = geometry.constant > 0.0
    rows = _OneScore(
        _RESIDUAL_SIZES[loss](math.inf), geometry, bound, bound * geometry.constant, turning
    )
    cap = rows.cap(make_loss(loss, 2).curvature)
    if geometry.radius > geometry.norm_bound:
        # Any two rows, however far apart.
        cap = min(cap, _flipped_gap(loss, geometry.augmented, bound))
    excess = _EXCESS_TURNING if turning else _EXCESS_PLANE[loss]
    return rows.gap(cap, excess=excess, most_cells=_MOST_CELLS_ANY)


class _OneColumn:
    """One column of scores at known parameters: logistic, or the squared hinge of two classes."""

    def __init__(self, loss: Loss, theta: Array, geometry: RowGeometry) -> None:
        weights, offsets = _split(theta, geometry.constant)
        self.loss, self.geometry = loss, geometry
        self.slope, self.offset = float(_norms(weights)[0]), abs(float(offsets[0]))

    def _rows(self, clip: float, offset: float) -> _OneScore:
        return _OneScore(_RESIDUAL_SIZES[self.loss.name](clip), self.geometry, self.slope, offset)

    def same_label(self, clip: float) -> float:
        """Largest gap of two rows of one label, over both labels."""
        rows = self._rows(clip, self.offset)
        cap = rows.cap(self.loss.curvature)
        # Two rows across the weights have equal residuals.
        gap = min(float(rows.size.value(np.asarray(self.offset))) * self.geometry.radius, cap)
        if gap * (1.0 + _EXCESS_KNOWN) >= cap:
            return cap
        for offset in (self.offset, -self.offset):
            rows = self._rows(clip, offset)
            gap = rows.gap(cap, excess=_EXCESS_KNOWN, most_cells=_MOST_CELLS_KNOWN, reached=gap)
            if gap >= cap or self.offset == 0.0:
                break
        return gap

    def label_change(self) -> float:
        """Largest gradients of the two labels, added up."""
        sizes = [self._rows(math.inf, offset).largest for offset in (self.offset, -self.offset)]
        return self.geometry.augmented * sum(sizes)


@lru_cache(maxsize=256)
def _flipped_gap(loss: str, norm: float, bound: float) -> float:
    r"""Search over two rows of one label anywhere in the ball of augmented rows.

    (x, y) and (-x, -y) have one gradient, so a changed label is such a pair. With angles f and f'
    between the rows, of norm B, and the weights, and residuals a = a(R B cos f), which grow, the
    squared gap is :math:`B^2 (a^2 + a'^2 - 2 a a' \cos(f + f'))`: rows lie on opposite sides.
    """

    def residual(angle: Array) -> Array:
        scores = bound * norm * np.cos(angle)
        return expit(scores) if loss == "logistic" else 2.0 * np.maximum(1.0 + scores, 0.0)

    def upper(low: Array, high: Array) -> Array:
        (f0, g0), (f1, g1) = low, high
        largest, least = ([residual(f) for f in ends] for ends in ((f0, g0), (f1, g1)))
        turn = -np.cos(np.clip(math.pi, f0 + g0, f1 + g1))
        # Opposite rows add up, the more the longer; others take off, the less the shorter.
        product = np.where(turn > 0.0, largest[0] * largest[1], least[0] * least[1])
        return norm**2 * (largest[0] ** 2 + largest[1] ** 2 + 2.0 * product * turn) * _UP

    def feasible(low: Array, high: Array) -> NDArray[np.bool_]:
        # The two rows can be swapped.
        return low[0] <= high[1]

    found = certified_maximum(
        upper,
        [0.0, 0.0],
        [math.pi, math.pi],
        n_cells=[32, 32],
        excess=_EXCESS_FLIPPED,
        most_cells=100_000,
        feasible=feasible,
    )
    return math.sqrt(found)


# -- several scores --------------------------------------------------------------------------------


def clipped_gap(clip: float, geometry: RowGeometry, *, versine: float, least: float = 0.0) -> float:
    r"""Gap of two rows of one label with clipped residuals, from the angle of the residuals.

    With norms s, s' of the residuals and cosine k of their angle, the square of the gap is
    :math:`s^2 \|x\|^2 + s'^2 \|x'\|^2 - s s' k (\|x\|^2 + \|x'\|^2 - \|x - x'\|^2)`:
    convex in (s, s') and linear in k, so largest at corners of [least, clip]^2 and at k = 1 or
    its least.
    """
    square, shorter = geometry.augmented**2, geometry.augmented**2 - geometry.squared_norm_drop
    least = min(least, clip)

    def corner(small: float, turn: float) -> float:
        drop = clip - small
        other = small * (clip * turn - drop)
        row = shorter if other < 0.0 else square
        along = clip * small * (1.0 - turn) * geometry.radius**2
        return clip * (drop + small * turn) * square + other * row + along

    return math.sqrt(max(corner(small, turn) for small in (least, clip) for turn in (versine, 0.0)))


class _Residuals:
    """Residual vectors of two scores or more: bounds on their norms, distance and angle."""

    loss: Loss
    geometry: RowGeometry
    #: Largest and least norm, and largest distance between scores of adjacent records.
    largest: float
    least: float
    apart: float

    def _residual_distance(self, clip: float = math.inf) -> float:
        """Largest distance between residuals of adjacent records, once they are clipped."""
        return min(self.loss.residual_rate(clip) * self.apart, self.loss.residual_limit())

    def same_label(self, clip: float) -> float:
        """Least of three bounds: by the triangle inequality, the identity, and the angle."""
        geometry, size, move = self.geometry, min(self.largest, clip), self._residual_distance(clip)
        triangle = size * geometry.radius + move * geometry.augmented
        identity = (
            move * (geometry.augmented**2 * move + size * geometry.squared_norm_drop)
            + (size * geometry.radius) ** 2
        )
        bounds = [triangle, math.sqrt(identity)]
        versine = min(self.loss.versine, _versine(self._residual_distance(), self.least))
        if size < math.inf:
            bounds.append(clipped_gap(size, geometry, versine=versine, least=self.least))
        return min(bounds)


class _OneVersusRest(_Residuals):
    """Squared hinges of one score per class, stacked."""

    def __init__(self, loss: Loss, theta: Array, geometry: RowGeometry) -> None:
        self.loss, self.geometry = loss, geometry
        weights, offsets = _split(theta, geometry.constant)
        self.slopes = _norms(weights)
        # Rows: a record of the head's own class, a record of the rest.
        signed = np.stack([-offsets, offsets])
        reach = self.slopes * geometry.norm_bound
        self.heights = np.maximum(1.0 + signed + reach, 0.0)
        lowest = np.maximum(1.0 + signed - reach, 0.0) ** 2
        own, rest = self.heights**2
        self.largest = 2.0 * math.sqrt(rest.sum() + max(float((own - rest).max()), 0.0))
        own, rest = lowest
        self.least = 2.0 * math.sqrt(max(rest.sum() + float((own - rest).min()), 0.0))
        self.apart = float(np.linalg.norm(self.slopes)) * geometry.radius

    def _squared_gaps(self, radius: float) -> Array:
        """Squared gap of each head, for both labels: ends of a convex function."""
        geometry = self.geometry.at(radius)
        square, drop = geometry.augmented**2, geometry.squared_norm_drop
        difference = np.minimum(self.slopes * radius, self.heights)
        lower = self.heights - difference
        apart = difference * (difference * square + lower * drop)
        apart += self.heights * lower * radius**2
        return 4.0 * np.maximum(self.heights**2 * radius**2, apart)

    def same_label(self, clip: float) -> float:
        """The general bound, or head by head: for all heads but one, the record is of the rest."""
        bound = super().same_label(clip)
        if clip < self.largest:
            return bound
        own, rest = self._squared_gaps(self.geometry.radius)
        return min(bound, math.sqrt(rest.sum() + max(float((own - rest).max()), 0.0)))

    def label_change(self) -> float:
        """Two heads see their label change, the others a move of at most the diameter."""
        other = self._squared_gaps(2.0 * self.geometry.norm_bound).max(axis=0)
        flip = (2.0 * self.heights.sum(axis=0) * self.geometry.augmented) ** 2
        extra = np.sort(np.maximum(flip - other, 0.0))
        return math.sqrt(other.sum() + extra[-2:].sum())


class _Softmax(_Residuals):
    """Cross-entropy of two scores or more."""

    def __init__(self, loss: Loss, theta: Array, geometry: RowGeometry) -> None:
        self.loss, self.geometry = loss, geometry
        own = (
            theta.astype(np.float64).tobytes(),
            theta.shape,
            geometry.norm_bound,
            geometry.constant,
        )
        self.sizes, least, spectral = _softmax_sizes(*own)
        self.largest = float(self.sizes.max())
        self.least = least * math.sqrt(len(theta) / (len(theta) - 1.0))
        self.apart = math.sqrt(spectral) * geometry.radius

    def label_change(self) -> float:
        """Sum of the largest gradients of the two worst labels."""
        return float(np.sort(self.sizes)[-2:].sum()) * self.geometry.augmented


@lru_cache(maxsize=1)
def _softmax_sizes(
    parameters: bytes, shape: tuple[int, int], norm_bound: float, constant: float
) -> tuple[Array, float, float]:
    """Largest residual of each label, the least 1 - p_y, and the squared spectral norm.

    A step asks for two radii at the same parameters, and no radius counts here.
    """
    theta = np.frombuffer(parameters).reshape(shape)
    if not theta.any():
        # No row tells classes apart: no matrix of pairs is needed, however many there are.
        q = float(expit(math.log(len(theta) - 1.0)))
        sizes = np.full(len(theta), math.sqrt(q * (q + min(min(0.5, 1.0 - q) * _UP, q))))
        sizes.setflags(write=False)
        return sizes, q, 0.0
    # Adding one vector to every class changes nothing.
    weights, offsets = _split(theta - theta.mean(axis=0), constant)
    gram = weights @ weights.T
    squares = np.diag(gram)
    pairs = squares[:, None] + squares
    # The products err by at most as many roundings as there are features.
    error = 4.0 * (weights.shape[1] + 4) * 2.0**-53 * pairs
    apart = np.sqrt(np.maximum(pairs - 2.0 * gram, 0.0) + error)
    reach, lead = apart * norm_bound, offsets - offsets[:, None]
    off = ~np.eye(len(theta), dtype=bool)

    def others(scores: Array) -> Array:
        """1 - p_y from the scores of the other classes against its own."""
        scores = np.where(off, scores, -np.inf)
        peak = scores.max(axis=1)
        return expit(peak + np.log(np.exp(scores - peak[:, None]).sum(axis=1)))

    # Row y: the largest and least 1 - p_y of any record, and the largest p_c.
    most, least = others(lead + reach), others(lead - reach)
    pairwise = np.minimum(expit(lead + reach), 1.0 - least)
    rival = np.where(off, pairwise, 0.0).max(axis=1) * _UP
    sizes = np.sqrt(most * (most + np.minimum(rival, most)))
    spectral = max(float(np.linalg.eigvalsh(gram)[-1]), 0.0) + float(error.sum())
    sizes.setflags(write=False)
    return sizes, float(least.min()), spectral


def _split(theta: Array, constant: float) -> tuple[Array, Array]:
    """Weights of the features, and intercepts."""
    if constant > 0.0:
        return theta[:, :-1], theta[:, -1] * constant
    return theta, np.zeros(len(theta))


def _norms(weights: Array) -> Array:
    """Norm of each score's weights, rounded up."""
    return np.linalg.norm(weights, axis=1) * _UP


def _versine(moved: float, least: float) -> float:
    """Largest versine between two vectors of norm ``least`` or more, ``moved`` apart at most.

    Normalising vectors outside a ball contracts: |a/|a| - b/|b|| <= |a - b| / least.
    """
    return 0.5 * (moved / least) ** 2 * _UP if moved < 2.0 * least else 2.0


def share_move(distance: float) -> float:
    """How far softmax moves with scores that move so far: the lemma of docs/sensitivity.md."""
    return math.sqrt(2.0) * math.tanh(distance / math.sqrt(8.0))


def _softmax_gap(geometry: RowGeometry, bound: float, n_classes: int) -> float:
    """The smallest of three: over vertices of the simplex, by one identity, and over log-odds."""
    square, radius = geometry.augmented**2, geometry.radius
    vertices = max(
        math.sqrt(2.0) * radius, math.sqrt(2.0 * square), math.sqrt(2.0 * square + radius**2)
    )
    move = share_move(bound * radius)
    along = square * move + math.sqrt(2.0) * geometry.squared_norm_drop
    gap = min(vertices, math.sqrt(move * along + 2.0 * radius**2))
    # Cells over more log-odds would be coarse, and vertices of the simplex are reached.
    if radius > 0.0 and bound * geometry.augmented < 1e3:
        # A larger radius bounds the radii whose differences of shares would be lost.
        wider = geometry.at(max(radius, _LEAST_OF_ODDS * geometry.augmented))
        gap = min(gap, math.sqrt(_softmax_gap_by_odds(wider, bound, n_classes, gap**2)))
    return gap


@lru_cache(maxsize=256)
def _softmax_gap_by_odds(
    geometry: RowGeometry, bound: float, n_classes: int, enough: float
) -> float:
    r"""Search over the log-odds v = m + s, v' = m - s against the label, with s >= 0.

    The residuals are q (-1, w) and q' (-1, w'), with q = expit(v), and w the shares of the others.
    The lemma bounds e = |w - w'| by s and |w| by v. For given residuals the squared gap is linear
    in the squared norms of the rows, so that both are B, or one is as short as it can be. It is a
    quadratic form in |w| and |w'|, so that its maximum is at a corner of their hexagon.
    """
    rest, reach, move = n_classes - 1.0, bound * geometry.augmented, bound * geometry.radius
    square, radius = geometry.augmented**2, geometry.radius
    # Rows at this distance have norms that differ by this much, in squares.
    drop = radius * (2.0 * geometry.norm_bound - radius)
    centre, least = math.log(rest), 1.0 / math.sqrt(rest)

    def room(distance: float, spent: Array) -> Array:
        """How far the shares can move, once the odds have moved by ``spent``."""
        left = np.maximum(distance**2 - 0.5 * spent**2, 0.0)
        return np.sqrt(2.0) * np.tanh(np.sqrt(left / 8.0))

    def share(low: Array, high: Array) -> Array:
        """Largest norm of the shares at log-odds between these."""
        away = np.clip(centre, low, high) - centre
        return np.minimum(np.hypot(least, room(reach, away)), 1.0)

    def upper(low: Array, high: Array) -> Array:
        (m0, s0), (m1, s1) = low, high
        # q' = expit(m - s), and q - q', which grows with s and falls with |m|.
        other = expit(m0 - s1), expit(m1 - s0)
        apart = [
            expit(m + s) * expit(s - m) * -np.expm1(-2.0 * s)
            for s, m in ((s0, np.maximum(abs(m0), abs(m1))), (s1, np.clip(0.0, m0, m1)))
        ]
        products = [(a * a, a * b, b * b) for a, b in zip(apart, other, strict=True)]
        shared = room(move, 2.0 * s0)
        most, most_other = share(m0 + s0, m1 + s1), share(m0 - s1, m1 - s0)

        def form(one: Array, two: Array, between: Array, shorter: int) -> Array:
            """The squared gap at norms of shares, with the first or second row shorter, or none."""
            turn, lean = 1.0 + 0.5 * (one**2 + two**2 - between), one**2 - two**2
            terms = [
                square * (1.0 + one**2),
                square * (lean + between) + radius**2 * turn,
                square * between + radius**2 * turn,
            ]
            if shorter == 1:
                terms[0] = terms[0] - drop * (1.0 + one**2)
                terms[1] = terms[1] - drop * (0.5 * (lean + between) + 1.0 + one**2)
                terms[2] = terms[2] - 0.5 * drop * (lean + between)
            elif shorter == 2:
                terms[1] = terms[1] + drop * (1.0 + two**2 + 0.5 * (lean - between))
                terms[2] = terms[2] + 0.5 * drop * (lean - between)
            return sum(
                np.where(t > 0.0, t * large, t * small)
                for t, small, large in zip(terms, *products, strict=True)
            )

        one, two = np.minimum(most, most_other + shared), np.minimum(most_other, most + shared)
        low_one, low_two = np.maximum(least, two - shared), np.maximum(least, one - shared)
        foot = np.minimum(least + shared, one), np.minimum(least + shared, two)
        corners = [
            (one, two),
            (one, low_two),
            (low_one, two),
            (foot[0], np.full_like(one, least)),
            (np.full_like(one, least), foot[1]),
            (np.full_like(one, least), np.full_like(one, least)),
        ]
        found = np.zeros_like(m0)
        for shorter in (0, 1, 2):
            # The product of the two rows, doubled: below zero, shares further apart gain nothing.
            if 2.0 * square - (drop if shorter else 0.0) - radius**2 >= 0.0:
                values = [form(a, b, shared**2, shorter) for a, b in corners]
            else:
                values = [form(one, two, (one - two) ** 2, shorter)]
            found = np.maximum(found, np.max(values, axis=0))
        return found * _UP_OF_ODDS

    def feasible(low: Array, high: Array) -> NDArray[np.bool_]:
        (m0, s0), (m1, _) = low, high
        edge = math.sqrt(2.0) * reach
        return (m0 + s0 <= centre + edge) & (m1 - s0 >= centre - edge)

    edge, furthest = math.sqrt(2.0) * reach, move / math.sqrt(2.0)
    return certified_maximum(
        upper,
        [centre - edge, 0.0],
        [centre + edge, furthest],
        # Odds count at a scale of one, steps at that of the furthest.
        n_cells=[max(16, math.ceil(2.0 * edge)), 4],
        excess=_EXCESS_ODDS,
        most_cells=_MOST_CELLS_ANY,
        feasible=feasible,
        enough=enough,
    )
