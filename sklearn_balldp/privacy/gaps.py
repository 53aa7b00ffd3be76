r"""How far one substitution can move the gradient of a loss.

The gradient of a record is its *residual*, the derivative of the loss by the scores, times its
row. The *gap* is the largest distance between the gradients of two adjacent records. Of fixed
parameters, as those of a noisy descent are, it is :func:`iterate_gap`. Of a minimiser only a bound
on its norm is public (:func:`minimizer_norm_bound`): :func:`gradient_gap` is the largest gap within
it, and the minimiser of a mean loss plus :math:`(\lambda/2)\|\theta\|^2` moves by at most gap
:math:`/ (\lambda n)`.

Losses with one score have one search for both. Fixed parameters are a point of it, and those of a
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
#: Of a loss, parameters, rows and a clip: the gap within a label, and of a changed one.
_Gaps = Callable[[Loss, Array, RowGeometry, float], tuple[float, float]]

#: "tight" bounds the minimiser and the gap directly; "paper" is radius times a Lipschitz constant.
METHODS = ("tight", "paper")
# Relative excess of certified maxima over the best values that were reached, on squared gaps.
_EXCESS_FIXED, _EXCESS_TURNING, _EXCESS_ODDS, _EXCESS_FLIPPED = 1e-2, 1e-3, 5e-5, 1e-4
# Without an intercept; the hinge's largest gap is at a corner, where few cells remain.
_EXCESS_PLANE = {Logistic.name: 3e-4, SquaredHinge.name: 1e-10}
# Cells that a search of losses with one score may split at once: at fixed parameters, at any.
_MAX_CELLS_FIXED, _MAX_CELLS_ANY = 50_000, 16_000
_LARGEST_NORM = 1e120
_LARGEST_PARAMETER = 1e100
# Rounds a computed bound up: its evaluation errs by far less.
_UP = 1.0 + 1e-11
# Roots, quotients and Lambert's function err by a few units in the last place.
_UP_OF_NORM = 1.0 + 2.0**-48
# Share of its terms that a computed score may be off by, and more than a computed cosine is.
_SCORE_ERROR, _COSINE_ERROR = 2.0**-50, 2.0**-51
# Differences of shares cancel: their errors grow as radii fall, down to this share of B.
_SMALLEST_OF_ODDS, _UP_OF_ODDS = 1e-6, 1.0 + 1e-8


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


def gap_over_minimisers(
    loss: Loss, geometry: RowGeometry, alpha: float, *, method: str, labels: str
) -> float:
    """As :func:`gradient_gap`, for a domain with or without its allowance for rounding."""
    bound = _norm_bound(loss, alpha, geometry, method)
    same_label = math.sqrt(loss.n_stacked) * _gap_of_one(loss, geometry, bound, method)
    if labels == "public":
        return same_label * _UP
    change = 2.0 * geometry.augmented * loss.residual_peak(bound * geometry.augmented)
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
    _proof_of(loss)
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


# -- fixed parameters ------------------------------------------------------------------------------


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
    r"""Certified upper bound on the gradient gap of adjacent records at fixed parameters.

    Parameters
    ----------
    loss : {"logistic", "softmax", "squared_hinge"}
        Loss of one record; "squared_hinge" with several scores stacks one-versus-rest heads.
    parameters : ndarray of shape (n_scores, n_features) or (n_scores, n_features + 1)
        Public parameters, below 1e100; the last column multiplies the constant, if there is one.
    radius, norm_bound : float
        As in :func:`gradient_gap`.
    constant : float
        Constant that rows are augmented by; 0 for no intercept.
    clip : float, optional
        Norm to which the residual of each record is clipped; no clipping by default.
    label_change : bool, default=False
        As in :func:`gradient_gap`.

    Returns
    -------
    float
        Upper bound on :math:`\|a x^T - a' x'^T\|` over adjacent records. Of one score it is the
        exact maximum, to half a per cent. Of several it rests on the range of residuals.

    Raises
    ------
    ValueError
        If the loss is unknown, ``norm_bound`` out of range, the radius negative, or a parameter too
        large.
    """
    _check_sizes(norm_bound, radius)
    theta = np.asarray(parameters, dtype=np.float64)
    kind = make_loss(loss, max(2, len(theta)))
    if kind.n_scores != len(theta):
        raise ValueError(f"{loss} has no {len(theta)} columns of scores (two classes share one).")
    labels = "protected" if label_change else "public"
    return gap_at(kind, theta, RowGeometry(norm_bound, radius, constant), clip=clip, labels=labels)


def _check_sizes(norm_bound: float, radius: float) -> None:
    """Raise a ValueError for sizes whose squares underflow or overflow, or a negative radius."""
    if not 1.0 / _LARGEST_NORM <= norm_bound <= _LARGEST_NORM:
        raise ValueError(
            f"norm_bound must be between {1.0 / _LARGEST_NORM:g} and {_LARGEST_NORM:g}, got "
            f"{norm_bound!r}."
        )
    if not radius >= 0.0:
        raise ValueError(f"radius must be non-negative, got {radius!r}.")


def gap_at(
    loss: Loss, theta: Array, geometry: RowGeometry, *, clip: float | None, labels: str
) -> float:
    """As :func:`iterate_gap`, for a domain with or without its allowance for rounding."""
    if not (np.abs(theta) < _LARGEST_PARAMETER).all():
        raise ValueError(f"parameters must be below {_LARGEST_PARAMETER:g} in size.")
    longest = math.inf if clip is None else float(clip)
    gaps = _proof_of(loss)
    # Exponentials of extreme margins are zero or infinite, as they should be.
    with np.errstate(all="ignore"):
        gap, change = gaps(loss, theta, geometry, longest)
    if labels == "protected":
        if clip is not None:
            # The limit over all parameters, which is public beforehand.
            change = 2.0 * min(longest, loss.residual_limit()) * geometry.augmented
        gap = max(gap, change)
    return gap * _UP


def _proof_of(loss: Loss) -> _Gaps:
    """What bounds the gaps of this loss at fixed parameters: none borrows the proof of another."""
    proof = PROOFS.get((type(loss), loss.n_scores > 1))
    if proof is None:
        raise ValueError(
            f"loss={loss.name!r} of {loss.n_scores} score(s) has no proof of its gradient gap: "
            f"prove one, and list it in {__name__}.PROOFS."
        )
    return proof


class GapLimits(NamedTuple):
    """Smallest and largest value of :func:`iterate_gap` over all parameters."""

    smallest: float
    largest: float  # infinite where gradients are not bounded


def limits_over_iterates(
    loss: Loss, n_features: int, geometry: RowGeometry, *, clip: float | None, labels: str
) -> GapLimits:
    r"""Public limits of :func:`gap_at` over all parameters.

    Two rows r apart across all weights have equal residuals, so that no parameters make the gap of
    equal labels smaller than r times the smallest residual of the worst label: 1/2 (logistic),
    :math:`\sqrt{1 - 1/K}` (softmax), 2 (squared hinge), if there is a feature more than the weights
    span.
    """
    _proof_of(loss)
    r, augmented = geometry.radius, geometry.augmented
    size = loss.residual_limit() if clip is None else min(loss.residual_limit(), float(clip))
    smallest = min(loss.smallest_residual, size) * r if n_features > loss.n_spanned else 0.0
    if not math.isfinite(size):
        largest = math.inf
    elif loss.n_scores > 1:
        # Without clipping residuals peak at corners of the simplex: the same angle.
        largest = clipped_gap(size, geometry, versine=loss.versine)
    else:
        largest = size * max(augmented, r)
    if labels == "protected":
        change = 2.0 * size * augmented
        smallest = max(smallest, loss.smallest_change * augmented if clip is None else change)
        largest = max(largest, change)
    # The limits are rounded further than the bound itself, so that they hold for it.
    return GapLimits(smallest / _UP, largest * _UP**2)


# -- one score -------------------------------------------------------------------------------------


class ResidualSize(NamedTuple):
    """Size of a residual as a nondecreasing function of the score t, and its differences.

    Scores count towards larger loss. ``rises(low, high, short, long)`` bounds size(t + s) - size(t)
    below and above, over t in [low, high] and s in [short, long].
    """

    value: Callable[[Array], Array]
    rises: Callable[[Array, Array, Array, Array], Range]


def _logistic_size(clip: float) -> ResidualSize:
    """min(sigmoid(t), clip)."""
    edge = math.log(clip / (1.0 - clip)) if clip < 1.0 else math.inf

    def rise(t: Array, step: Array, error: float) -> Array:
        # sigmoid(t + s) - sigmoid(t) without cancellation, up to the edge.
        if clip < 1.0:
            step = np.clip(edge - t + error * (1.0 + abs(edge) + np.abs(t)), 0.0, step)
        # The sum of a large score and a large step cancels.
        top = t + step + error * (np.abs(t) + step)
        return np.minimum(expit(top) * expit(-t) * -np.expm1(-step), clip)

    def rises(low: Array, high: Array, short: Array, long: Array) -> Range:
        # A rise grows with the step, and with t up to its peak; then it falls.
        ends = np.minimum(rise(low, short, -_SCORE_ERROR), rise(high, short, -_SCORE_ERROR))
        peak = np.minimum(-0.5 * long, edge - long)
        return ends, rise(np.clip(peak, low, high), long, _SCORE_ERROR)

    return ResidualSize(lambda t: np.minimum(expit(t), clip), rises)


def _hinge_size(clip: float) -> ResidualSize:
    """min(2 (1 + t)+, clip)."""

    def rise(low: Array, high: Array, step: Array) -> Array:
        # min(2t + 2 + 2s, clip) - max(2t + 2, 0), term by term: at both ends that is a bound.
        into, out = 2.0 * (1.0 + low) + 2.0 * step, clip - 2.0 * (1.0 + high)
        within = np.minimum(2.0 * step, clip)
        return np.maximum(np.minimum(np.minimum(within, into), out), 0.0)

    def rises(low: Array, high: Array, short: Array, long: Array) -> Range:
        return rise(low, high, short), rise(high, low, long)

    return ResidualSize(lambda t: np.clip(2.0 * (1.0 + t), 0.0, clip), rises)


#: Sizes of residuals of one score that are clipped, by loss.
RESIDUAL_SIZES = {Logistic.name: _logistic_size, SquaredHinge.name: _hinge_size}


@dataclass(frozen=True)
class OneScore:
    r"""Two rows of one label, whose parts along the weights are z' and z = z' + s, s in [0, r].

    Scores are slope z + offset. If ``turning``, parameters are any of the norm ``slope``: scores
    are slope cos f z + offset sin f, f in [-pi/2, pi/2]. Residuals are a' and a = a' + D, D >= 0.
    The rows have parts across the weights of norms n' <= k' and n <= k, which are at most
    q = :math:`\sqrt{r^2 - s^2}` apart. The square of the gap is the smaller of two forms, with c
    the constant and l = min(k, k' + q):

    .. math:: c^2 D^2 + (D z + a' s)^2 + (D l + a' \min(q, l + k'))^2

    .. math:: D^2 (B^2 + c^2) + D a' (\|x\|^2 - \|x'\|^2) + a' (a' + D) \|x - x'\|^2

    Some pair attains the first. The second holds more narrowly in cells where much cancels.

    Cells are of (z', s), or of (f, t', s) with the score t' of x', at another scale. Every range
    is rounded outwards.
    """

    size: ResidualSize
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

    def gap(self, cap: float, *, excess: float, max_cells: int, reached: float = 0.0) -> float:
        """Largest gap, between ``reached`` and ``cap``."""
        bound, radius = self.geometry.norm_bound, self.geometry.radius
        if radius == 0.0 or not 0.0 < cap < math.inf:
            return 0.0 if radius == 0.0 else cap
        low, high, n_cells = [-bound, 0.0], [bound, radius], 16
        if self.turning:
            edge = math.hypot(self.slope * bound, self.offset) + self.error
            low, high = [-0.5 * math.pi, -edge, 0.0], [0.5 * math.pi, edge, radius]
            n_cells = 12
        # In units of the cap squares do not underflow.
        square = certified_maximum(
            lambda low, high: self.squares(low, high, cap),
            low,
            high,
            n_cells=n_cells,
            excess=excess,
            max_cells=max_cells,
            attained=self._middles,
            reached=(reached / cap) ** 2,
            enough=1.0,
        )
        # Of squares that are nearly lost to underflow, the cap alone is a valid bound.
        return cap * math.sqrt(square) if 1e-290 < square < 1.0 else cap

    def squares(self, low: Array, high: Array, unit: float) -> Array:
        """Upper bounds over cells on the squared gap, in units; zero where no pair is.

        At points that is the value, but for rounding.
        """
        geometry = self.geometry
        bound, radius = geometry.norm_bound, geometry.radius
        slopes, (t0, t1), (p0, p1), (s0, s1) = self.ranges(low, high)
        z0, z1 = p0 + s0, np.minimum(p1 + s1, bound)
        # Residuals in units of the gap, so that products are of its size.
        rises = self.size.rises(t0, t1, slopes[0] * s0, slopes[1] * s1)
        less, more = rises[0] / unit, rises[1] / unit
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
        attained = (geometry.constant * more) ** 2 + along**2 + sideways**2
        # How much longer x can be than x', in squares; and how far apart they are.
        longer = np.where(across > rest, rest * (2.0 * across - rest), across**2)
        longer = longer + (z1 + p1) * np.where(z1 + p1 > 0.0, s1, s0)
        longer = np.clip(longer, 0.0, geometry.squared_norm_drop)
        apart = np.minimum(radius**2, s1**2 + (across + across_other) ** 2)
        identity = (more * geometry.augmented) ** 2
        identity = identity + more * large * longer + large * (large + more) * apart
        empty = (p0 > p1) | (p0 + s0 > bound)
        return np.where(empty, 0.0, np.minimum(attained, identity))

    def ranges(self, low: Array, high: Array) -> tuple[Range, Range, Range, Range]:
        """Smallest and largest slope, score t', part z' and step s in cells."""
        if not self.turning:
            (p0, s0), (p1, s1) = low, high
            t0, t1 = self.slope * p0 + self.offset, self.slope * p1 + self.offset
            slopes = np.full_like(p0, self.slope), np.full_like(p0, self.slope)
            return slopes, (t0 - self.error, t1 + self.error), (p0, p1), (s0, s1)
        (f0, t0, s0), (f1, t1, s1) = low, high
        flat = np.minimum(np.cos(f0), np.cos(f1)) - _COSINE_ERROR
        steep = np.cos(np.clip(0.0, f0, f1)) + _COSINE_ERROR
        slopes = self.slope * np.maximum(flat, 0.0), self.slope * steep
        # The part is odd in (f, t').
        parts = self._smallest_part(f0, f1, t0), -self._smallest_part(-f1, -f0, -t1)
        return slopes, (t0 - self.error, t1 + self.error), parts, (s0, s1)

    def _smallest_part(self, f0: Array, f1: Array, score: Array) -> Array:
        """Smallest z' in [-B, inf) of this score at angles between these: at an end or a trough."""
        trough = np.clip(np.arcsin(np.clip(self.offset / score, -1.0, 1.0)), f0, f1)
        angles = np.stack([f0, f1, trough])
        above = score - self.error - self.offset * np.sin(angles)
        cosine = np.cos(angles) + np.where(above > 0.0, _COSINE_ERROR, -_COSINE_ERROR)
        parts = above / (self.slope * np.maximum(cosine, 0.0))
        smallest: Array = np.fmax(parts, -self.geometry.norm_bound).min(axis=0)
        return smallest

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
    size = RESIDUAL_SIZES[loss](math.inf)
    rows = OneScore(size, geometry, bound, bound * geometry.constant, turning)
    cap = rows.cap(make_loss(loss, 2).curvature)
    if geometry.radius > geometry.norm_bound:
        # Any two rows, however far apart.
        cap = min(cap, _flipped_gap(loss, geometry.augmented, bound))
    excess = _EXCESS_TURNING if turning else _EXCESS_PLANE[loss]
    return rows.gap(cap, excess=excess, max_cells=_MAX_CELLS_ANY)


def _gaps_of_one_score(
    loss: Loss, theta: Array, geometry: RowGeometry, clip: float
) -> tuple[float, float]:
    """Gap within a label, and of a changed one, under one column of scores."""
    weights, offsets = _split(theta, geometry.constant)
    slope, offset = float(_norms(weights)[0]), abs(float(offsets[0]))
    make = RESIDUAL_SIZES[loss.name]
    labels = [OneScore(make(clip), geometry, slope, side) for side in (offset, -offset)]
    cap = labels[0].cap(loss.curvature)
    # Two rows across the weights have equal residuals.
    gap = min(float(labels[0].size.value(np.asarray(offset))) * geometry.radius, cap)
    if gap * (1.0 + _EXCESS_FIXED) >= cap:
        gap = cap
    for rows in labels if offset > 0.0 else labels[:1]:
        if gap < cap:
            gap = rows.gap(cap, excess=_EXCESS_FIXED, max_cells=_MAX_CELLS_FIXED, reached=gap)
    # Largest gradients of the two labels, added up.
    free = [OneScore(make(math.inf), geometry, slope, rows.offset).largest for rows in labels]
    return gap, geometry.augmented * sum(free)


@lru_cache(maxsize=256)
def _flipped_gap(loss: str, norm: float, bound: float) -> float:
    r"""Search over two rows of one label anywhere in the ball of augmented rows.

    (x, y) and (-x, -y) have one gradient, so a changed label is such a pair. With angles f and f'
    between the rows, of norm B, and the weights, and residuals a = a(R B cos f), which grow, the
    squared gap is :math:`B^2 (a^2 + a'^2 - 2 a a' \cos(f + f'))`: rows lie on opposite sides.
    """
    size = RESIDUAL_SIZES[loss](math.inf).value

    def upper(low: Array, high: Array) -> Array:
        (f0, g0), (f1, g1) = low, high
        large, small = (
            [size(bound * norm * np.cos(angle)) for angle in ends] for ends in ((f0, g0), (f1, g1))
        )
        turn = -np.cos(np.clip(math.pi, f0 + g0, f1 + g1))
        # Opposite rows add up, the more the longer; others take off, the less the shorter.
        product = np.where(turn > 0.0, large[0] * large[1], small[0] * small[1])
        return norm**2 * (large[0] ** 2 + large[1] ** 2 + 2.0 * product * turn) * _UP

    flipped = certified_maximum(
        upper,
        [0.0, 0.0],
        [math.pi, math.pi],
        n_cells=32,
        excess=_EXCESS_FLIPPED,
        max_cells=100_000,
        # The two rows can be swapped.
        feasible=lambda low, high: low[0] <= high[1],
    )
    return math.sqrt(flipped)


# -- several scores --------------------------------------------------------------------------------


def clipped_gap(
    clip: float, geometry: RowGeometry, *, versine: float, smallest: float = 0.0
) -> float:
    r"""Gap of two rows of one label with clipped residuals, from the angle of the residuals.

    With norms s, s' of the residuals and cosine k of their angle, the square of the gap is
    :math:`s^2 \|x\|^2 + s'^2 \|x'\|^2 - s s' k (\|x\|^2 + \|x'\|^2 - \|x - x'\|^2)`:
    convex in (s, s') and linear in k, so largest at corners of [smallest, clip]^2 and at k = 1 or
    at its smallest, 1 - versine.
    """
    square, shorter = geometry.augmented**2, geometry.augmented**2 - geometry.squared_norm_drop

    def corner(small: float, turn: float) -> float:
        drop = clip - small
        other = small * (clip * turn - drop)
        row = shorter if other < 0.0 else square
        along = clip * small * (1.0 - turn) * geometry.radius**2
        return clip * (drop + small * turn) * square + other * row + along

    sizes = min(smallest, clip), clip
    return math.sqrt(max(corner(small, turn) for small in sizes for turn in (versine, 0.0)))


def _gap_of_residuals(
    loss: Loss,
    geometry: RowGeometry,
    clip: float,
    *,
    largest: float,
    smallest: float,
    score_move: float,
) -> float:
    """Gap within a label from the norms of residuals, and how far scores move.

    The smallest of three bounds: by the triangle inequality, the identity, and the angle.
    """
    size = min(largest, clip)
    move, unclipped = (
        min(loss.residual_rate(longest) * score_move, loss.residual_limit())
        for longest in (clip, math.inf)
    )
    triangle = size * geometry.radius + move * geometry.augmented
    identity = (
        move * (geometry.augmented**2 * move + size * geometry.squared_norm_drop)
        + (size * geometry.radius) ** 2
    )
    gap = min(triangle, math.sqrt(identity))
    if size < math.inf:
        # Normalising vectors outside a ball contracts: |a/|a| - b/|b|| <= |a - b| / smallest.
        turned = 0.5 * (unclipped / smallest) ** 2 * _UP if unclipped < 2.0 * smallest else 2.0
        versine = min(loss.versine, turned)
        gap = min(gap, clipped_gap(size, geometry, versine=versine, smallest=smallest))
    return gap


def _gaps_of_stacked(
    loss: Loss, theta: Array, geometry: RowGeometry, clip: float
) -> tuple[float, float]:
    """Gap within a label, and of a changed one, of squared hinges with one score per class."""
    weights, offsets = _split(theta, geometry.constant)
    slopes, augmented = _norms(weights), geometry.augmented
    # Rows: a record of the head's class, a record of the rest.
    signed, reach = np.stack([-offsets, offsets]), slopes * geometry.norm_bound
    heights = np.maximum(1.0 + signed + reach, 0.0)

    def worst(squares: Array) -> float:
        """For all heads but one, the record is of the rest."""
        return float(squares[1].sum()) + max(float((squares[0] - squares[1]).max()), 0.0)

    def squared_gaps(radius: float) -> Array:
        """Of each head, for both labels: ends of a convex function."""
        drop = geometry.at(radius).squared_norm_drop
        difference = np.minimum(slopes * radius, heights)
        lower = heights - difference
        apart = difference * (difference * augmented**2 + lower * drop)
        apart += heights * lower * radius**2
        return 4.0 * np.maximum(heights**2 * radius**2, apart)

    largest = 2.0 * math.sqrt(worst(heights**2))
    lowest = np.maximum(1.0 + signed - reach, 0.0) ** 2
    shortest = max(float(lowest[1].sum()) + float((lowest[0] - lowest[1]).min()), 0.0)
    gap = _gap_of_residuals(
        loss,
        geometry,
        clip,
        largest=largest,
        smallest=2.0 * math.sqrt(shortest),
        score_move=float(np.linalg.norm(slopes)) * geometry.radius,
    )
    if clip >= largest:
        gap = min(gap, math.sqrt(worst(squared_gaps(geometry.radius))))
    # Two heads see their label change, the others a move of at most the diameter.
    other = squared_gaps(2.0 * geometry.norm_bound).max(axis=0)
    flip = (2.0 * heights.sum(axis=0) * augmented) ** 2
    extra = np.sort(np.maximum(flip - other, 0.0))
    return gap, math.sqrt(other.sum() + extra[-2:].sum())


def _gaps_of_softmax(
    loss: Loss, theta: Array, geometry: RowGeometry, clip: float
) -> tuple[float, float]:
    """Gap within a label, and of a changed one, of cross-entropy of two scores or more."""
    sizes, wrong, spectral = softmax_extremes(
        theta.astype(np.float64).tobytes(), theta.shape, geometry.norm_bound, geometry.constant
    )
    gap = _gap_of_residuals(
        loss,
        geometry,
        clip,
        largest=float(sizes.max()),
        smallest=wrong * math.sqrt(len(theta) / (len(theta) - 1.0)),
        score_move=math.sqrt(spectral) * geometry.radius,
    )
    # Largest gradients of the two worst labels, added up.
    return gap, float(np.sort(sizes)[-2:].sum()) * geometry.augmented


@lru_cache(maxsize=1)
def softmax_extremes(
    parameters: bytes, shape: tuple[int, int], norm_bound: float, constant: float
) -> tuple[Array, float, float]:
    """Largest residual of each label, the smallest 1 - p_y, and the squared spectral norm.

    A step asks for two radii at the same parameters, and no radius counts in these.
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
        """1 - p_y from the scores of the other classes against the label's."""
        scores = np.where(off, scores, -np.inf)
        peak = scores.max(axis=1)
        return expit(peak + np.log(np.exp(scores - peak[:, None]).sum(axis=1)))

    # Row y: the largest and smallest 1 - p_y of any record, and the largest p_c.
    large, small = others(lead + reach), others(lead - reach)
    pairwise = np.minimum(expit(lead + reach), 1.0 - small)
    rival = np.where(off, pairwise, 0.0).max(axis=1) * _UP
    sizes = np.sqrt(large * (large + np.minimum(rival, large)))
    spectral = max(float(np.linalg.eigvalsh(gram)[-1]), 0.0) + float(error.sum())
    sizes.setflags(write=False)
    return sizes, float(small.min()), spectral


def _split(theta: Array, constant: float) -> tuple[Array, Array]:
    """Weights of the features, and intercepts."""
    if constant > 0.0:
        return theta[:, :-1], theta[:, -1] * constant
    return theta, np.zeros(len(theta))


def _norms(weights: Array) -> Array:
    """Norm of each score's weights, rounded up."""
    return np.linalg.norm(weights, axis=1) * _UP


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
        wider = geometry.at(max(radius, _SMALLEST_OF_ODDS * geometry.augmented))
        gap = min(gap, math.sqrt(_softmax_gap_by_odds(wider, bound, n_classes, gap**2)))
    return gap


@lru_cache(maxsize=256)
def _softmax_gap_by_odds(
    geometry: RowGeometry, bound: float, n_classes: int, enough: float
) -> float:
    r"""Search over the log-odds v = m + s, v' = m - s against the label, with s >= 0.

    The residuals are q (-1, w) and q' (-1, w'), with q = expit(v), and w the shares of the others.
    The lemma bounds e = |w - w'| by s and |w| by v. For fixed residuals the squared gap is linear
    in the squared norms of the rows, so that both are B, or one is as short as it can be. It is a
    quadratic form in |w| and |w'|, so that its maximum is at a corner of their hexagon.
    """
    rest, reach, move = n_classes - 1.0, bound * geometry.augmented, bound * geometry.radius
    square, radius = geometry.augmented**2, geometry.radius
    # Rows at this distance have norms that differ by this much, in squares.
    drop = radius * (2.0 * geometry.norm_bound - radius)
    centre, even, edge = math.log(rest), 1.0 / math.sqrt(rest), math.sqrt(2.0) * reach

    def room(distance: float, spent: Array) -> Array:
        """How far the shares can move, once the odds have moved by ``spent``."""
        unspent = np.maximum(distance**2 - 0.5 * spent**2, 0.0)
        return np.sqrt(2.0) * np.tanh(np.sqrt(unspent / 8.0))

    def share(low: Array, high: Array) -> Array:
        """Largest norm of the shares at log-odds between these."""
        away = np.clip(centre, low, high) - centre
        return np.minimum(np.hypot(even, room(reach, away)), 1.0)

    def form(
        products: list[Range], one: Array, two: Array, between: Array, first: int, second: int
    ) -> Array:
        """The squared gap at norms of shares, with the first or second row shorter, or none."""
        turn, lean = 1.0 + 0.5 * (one**2 + two**2 - between), one**2 - two**2
        terms = [
            square * (1.0 + one**2) - first * drop * (1.0 + one**2),
            square * (lean + between)
            + radius**2 * turn
            - first * drop * (0.5 * (lean + between) + 1.0 + one**2)
            + second * drop * (1.0 + two**2 + 0.5 * (lean - between)),
            square * between
            + radius**2 * turn
            - first * 0.5 * drop * (lean + between)
            + second * 0.5 * drop * (lean - between),
        ]
        pairs = zip(terms, products, strict=True)
        return np.sum([np.where(t > 0.0, t * b, t * a) for t, (a, b) in pairs], axis=0)

    def upper(low: Array, high: Array) -> Array:
        (m0, s0), (m1, s1) = low, high
        # q - q', which grows with s and falls with |m|, and q' = expit(m - s).
        (a0, b0), (a1, b1) = (
            (expit(m + s) * expit(s - m) * -np.expm1(-2.0 * s), other)
            for s, m, other in (
                (s0, np.maximum(abs(m0), abs(m1)), expit(m0 - s1)),
                (s1, np.clip(0.0, m0, m1), expit(m1 - s0)),
            )
        )
        products = [(a0 * a0, a1 * a1), (a0 * b0, a1 * b1), (b0 * b0, b1 * b1)]
        shared = room(move, 2.0 * s0)
        high_one, high_two = share(m0 + s0, m1 + s1), share(m0 - s1, m1 - s0)
        one, two = np.minimum(high_one, high_two + shared), np.minimum(high_two, high_one + shared)
        low_one, low_two = np.maximum(even, two - shared), np.maximum(even, one - shared)
        lowest = np.full_like(one, even)
        corners = [
            (one, two),
            (one, low_two),
            (low_one, two),
            (np.minimum(even + shared, one), lowest),
            (lowest, np.minimum(even + shared, two)),
            (lowest, lowest),
        ]
        largest = np.zeros_like(m0)
        for shorter in ((0, 0), (1, 0), (0, 1)):
            # The product of the two rows, doubled: below zero, shares further apart gain nothing.
            if 2.0 * square - sum(shorter) * drop - radius**2 >= 0.0:
                values = [form(products, a, b, shared**2, *shorter) for a, b in corners]
            else:
                values = [form(products, one, two, (one - two) ** 2, *shorter)]
            largest = np.maximum(largest, np.max(values, axis=0))
        return largest * _UP_OF_ODDS

    def feasible(low: Array, high: Array) -> NDArray[np.bool_]:
        (m0, s0), (m1, _) = low, high
        return (m0 + s0 <= centre + edge) & (m1 - s0 >= centre - edge)

    return certified_maximum(
        upper,
        [centre - edge, 0.0],
        [centre + edge, move / math.sqrt(2.0)],
        # Odds count at a scale of one, steps at that of the furthest.
        n_cells=[max(16, math.ceil(2.0 * edge)), 4],
        excess=_EXCESS_ODDS,
        max_cells=_MAX_CELLS_ANY,
        feasible=feasible,
        enough=enough,
    )


#: Gaps at fixed parameters, by the loss and whether it has several scores. A loss that is listed
#: has proofs over minimisers, and of limits, too.
PROOFS: dict[tuple[type[Loss], bool], _Gaps] = {
    (Logistic, False): _gaps_of_one_score,
    (SquaredHinge, False): _gaps_of_one_score,
    (SquaredHinge, True): _gaps_of_stacked,
    (Softmax, True): _gaps_of_softmax,
}
