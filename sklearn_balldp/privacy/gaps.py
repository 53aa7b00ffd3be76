"""How far one substitution can move the gradient of a loss.

The *gap* is the largest distance between the gradients of two adjacent records. Where residuals are
clipped, :func:`clipped_gap` bounds it at any parameters; :func:`gradient_gap` at any minimiser,
whose norm is bounded (:func:`minimizer_norm_bound`). The proofs are in this package's
documentation; the "paper" bounds are Margaryan & Gupta's.
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
from ..losses import Array, Logistic, Loss, Softmax, SquaredHinge, make_loss
from .maximum import certified_maximum

Range = tuple[Array, Array]

#: "tight" bounds the minimiser and the gap directly; "paper" is radius times a Lipschitz constant.
METHODS = ("tight", "paper")
# Relative excess of certified maxima over the best values that were reached, on squared gaps.
_EXCESS_TURNING, _EXCESS_ODDS, _EXCESS_FLIPPED = 1e-3, 5e-5, 1e-4
# Without an intercept; the hinge's largest gap is at a corner, where few cells remain.
_EXCESS_PLANE = {Logistic.name: 3e-4, SquaredHinge.name: 1e-10}
# Cells that a search may split at once.
_MAX_CELLS_ANY = 16_000
_LARGEST_NORM = 1e120
#: Smallest norm that residuals may be clipped to: the squares of smaller ones lose digits.
SMALLEST_CLIP = 1e-100
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
    _check_proved(loss)
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
        # Beyond B searches are sharper; what holds there holds for all rows that are nearer.
        beyond = geometry.at(geometry.norm_bound * (1.0 + 2.0**-40))
        if 0.5 * beyond.radius <= geometry.radius < beyond.radius:
            gap = min(gap, _gap_of_one(loss, beyond, bound, method))
    return gap


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
    _check_proved(loss)
    longest = min(loss.residual_limit(), math.inf if clip is None else float(clip))
    # The gap is convex in the lengths of the two residuals and, squared, linear in their cosine:
    # it is largest where each length is 0 or C, and the cosine 1 or 1 - v.
    square, apart, v = geometry.augmented**2, geometry.radius**2, loss.versine
    corners = [square, apart, 2.0 * v * square + (1.0 - v) * apart]
    if labels == "protected":
        corners.append(4.0 * square)
    return longest * math.sqrt(max(corners)) * _UP


def _check_proved(loss: Loss) -> None:
    """Raise a ValueError for a loss without a proof: none borrows that of another."""
    if type(loss) not in PROOFS:
        raise ValueError(
            f"loss={loss.name!r} has no proof of its gradient gap: prove one, and list it in "
            f"{__name__}.PROOFS."
        )


# -- one score -------------------------------------------------------------------------------------


class ResidualSize(NamedTuple):
    """Size of a residual as a nondecreasing function of the score t, towards larger loss.

    ``rises(low, high, short, long)`` bounds its rises by steps in [short, long] from t in [low,
    high].
    """

    value: Callable[[Array], Array]
    rises: Callable[[Array, Array, Array, Array], Range]


def _logistic_size() -> ResidualSize:
    """The sigmoid."""

    def rise(t: Array, step: Array, error: float) -> Array:
        # sigmoid(t + s) - sigmoid(t) without cancellation; the sum of both may cancel.
        top = t + step + error * (np.abs(t) + step)
        return expit(top) * expit(-t) * -np.expm1(-step)

    def rises(low: Array, high: Array, short: Array, long: Array) -> Range:
        # A rise grows with the step, and with t up to its peak; then it falls.
        ends = np.minimum(rise(low, short, -_SCORE_ERROR), rise(high, short, -_SCORE_ERROR))
        return ends, rise(np.clip(-0.5 * long, low, high), long, _SCORE_ERROR)

    return ResidualSize(expit, rises)


def _hinge_size() -> ResidualSize:
    """2 (1 + t)+."""

    def rise(t: Array, step: Array) -> Array:
        return np.maximum(np.minimum(2.0 * step, 2.0 * (1.0 + t) + 2.0 * step), 0.0)

    def rises(low: Array, high: Array, short: Array, long: Array) -> Range:
        return rise(low, short), rise(high, long)

    return ResidualSize(lambda t: np.maximum(2.0 * (1.0 + t), 0.0), rises)


#: Sizes of residuals of one score, by loss.
RESIDUAL_SIZES = {Logistic.name: _logistic_size(), SquaredHinge.name: _hinge_size()}


@dataclass(frozen=True)
class OneScore:
    r"""Two rows of one label, whose parts along the weights are z' and z = z' + s, s in [0, r].

    Scores are slope z + offset; if ``turning``, slope cos f z + offset sin f, f in [-pi/2, pi/2].
    Residuals are a' and a = a' + D, D >= 0. The parts across the weights have norms n' <= k', n <=
    k, at most q = :math:`\sqrt{r^2 - s^2}` apart. With l = min(k, k' + q) the square of the gap is
    the smaller of two forms: the first is attained, the second narrower in cells where much
    cancels.

    .. math:: c^2 D^2 + (D z + a' s)^2 + (D l + a' \min(q, l + k'))^2

    .. math:: D^2 (B^2 + c^2) + D a' (\|x\|^2 - \|x'\|^2) + a' (a' + D) \|x - x'\|^2

    Cells are of (z', s), or of (f, t', s) with the score t' of x'. Ranges are rounded outwards.
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

    def gap(self, cap: float, *, excess: float) -> float:
        """Largest gap, up to ``cap``."""
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
            max_cells=_MAX_CELLS_ANY,
            attained=self._middles,
            enough=1.0,
        )
        # Of squares that are nearly lost to underflow, the cap alone is a valid bound.
        return cap * math.sqrt(square) if 1e-290 < square < 1.0 else cap

    def squares(self, low: Array, high: Array, unit: float) -> Array:
        """Upper bounds over cells on the squared gap, in units; at points it is the value."""
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
        return np.fmax(parts, -self.geometry.norm_bound).min(axis=0)

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
    size = RESIDUAL_SIZES[loss]
    rows = OneScore(size, geometry, bound, bound * geometry.constant, turning)
    cap = rows.cap(make_loss(loss, 2).curvature)
    if geometry.radius > geometry.norm_bound:
        # Any two rows, however far apart.
        cap = min(cap, _flipped_gap(loss, geometry.augmented, bound))
    excess = _EXCESS_TURNING if turning else _EXCESS_PLANE[loss]
    return rows.gap(cap, excess=excess)


@lru_cache(maxsize=256)
def _flipped_gap(loss: str, norm: float, bound: float) -> float:
    """Search over two rows of one label anywhere in the ball of augmented rows.

    A changed label is such a pair, (x, y) and (-x, -y). Rows lie on opposite sides of the weights.
    """
    size = RESIDUAL_SIZES[loss].value

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
    """Search over the log-odds v = m + s, v' = m - s against the label, with s >= 0.

    Residuals are q (-1, w) and q' (-1, w'), q = expit(v), w the shares of the others. For fixed
    ones both rows have norm B, or one is as short as it can be; shares are at a corner of their
    hexagon.
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


#: Losses whose gaps are proved here.
PROOFS: tuple[type[Loss], ...] = (Logistic, SquaredHinge, Softmax)
