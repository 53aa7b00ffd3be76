r"""How far one substitution can move the loss gradient at parameters that are already public.

Noisy gradient descent evaluates the gradient of one record at iterates that earlier steps have
published, so the bound may use them exactly: :func:`iterate_gap`. The gradient of a record is its
residual a, the derivative of the loss by the scores, times its augmented row x. Clipping the
residual to norm C gives a second bound on the gap. (Clipping the gradient, as differentially
private gradient descent does, would leave a bound in angles between rows, which is larger.)
:func:`gap_limits` gives public limits of the gap over all parameters.

The proofs are in this package's documentation.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..adjacency import Domain
from ..losses import Logistic, Loss, Softmax, SquaredHinge, make_loss
from .maximum import certified_maximum

Array = NDArray[np.float64]

# Relative excess of a certified maximum over the best value found, on the squared gap.
_EXCESS = 1e-2
_MOST_PARAMETER = 1e100
# Rounds a computed bound up: its evaluation errs by far less.
_UP = 1.0 + 1e-11


def iterate_gap(
    loss: str,
    theta: Array,
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
    theta : ndarray of shape (n_scores, n_features) or (n_scores, n_features + 1)
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
        If the loss is unknown, the radius negative, or a parameter too large.

    Notes
    -----
    One score: the exact maximum, to half a per cent. More: bounds on residuals by known margins,
    and the identity :math:`\|a x^T - a' x'^T\|^2 = \langle a - a', a \rangle \|x\|^2
    - \langle a - a', a' \rangle \|x'\|^2 + \langle a, a' \rangle \|x - x'\|^2`.
    """
    if not radius >= 0.0:
        raise ValueError(f"radius must be non-negative, got {radius!r}.")
    parameters = np.asarray(theta, dtype=np.float64)
    kind = _loss_of(loss, len(parameters))
    labels = "protected" if label_change else "public"
    domain = Domain(norm_bound, radius, constant)
    return gap_at(kind, parameters, domain, clip=clip, labels=labels)


def _loss_of(name: str, n_scores: int) -> Loss:
    """The loss with this many columns of scores; two classes share one, except for softmax."""
    loss = make_loss(name, max(2, n_scores))
    if loss.n_scores != n_scores:
        raise ValueError(f"{name} has no {n_scores} columns of scores (two classes share one).")
    return loss


def gap_at(loss: Loss, theta: Array, domain: Domain, *, clip: float | None, labels: str) -> float:
    """As :func:`iterate_gap`, for a domain with or without its allowance for rounding."""
    if not (np.abs(theta) < _MOST_PARAMETER).all():
        raise ValueError(f"theta holds parameters that are not below {_MOST_PARAMETER:g} in size.")
    most = math.inf if clip is None else float(clip)
    kind: type[_OneScore | _Softmax | _OneVersusRest]
    if loss.name == Softmax.name:
        kind = _Softmax
    else:
        kind = _OneScore if loss.n_scores == 1 else _OneVersusRest
    # Exponentials of extreme margins are zero or infinite, as they should be.
    with np.errstate(all="ignore"):
        known = kind(loss, theta, domain)
        gap = known.same_label(most)
        if labels == "protected":
            # With clipping, take the limit over all parameters, which is known beforehand.
            limit = 2.0 * min(most, loss.residual_limit()) * domain.augmented
            gap = max(gap, known.label_change() if clip is None else limit)
    return gap * _UP


def clipped_gap(clip: float, domain: Domain, *, versine: float, least: float = 0.0) -> float:
    r"""Gap of two rows of one label with clipped residuals, from the angle of the residuals.

    With norms s, s' of the residuals and cosine k of their angle, the square of the gap is
    :math:`s^2 \|x\|^2 + s'^2 \|x'\|^2 - s s' k (\|x\|^2 + \|x'\|^2 - \|x - x'\|^2)`:
    convex in (s, s') and linear in k, so largest at corners of [least, clip]^2 and at k = 1 or
    its least.
    """
    square, shorter = domain.augmented**2, domain.augmented**2 - domain.squared_norm_drop
    least = min(least, clip)

    def corner(small: float, turn: float) -> float:
        drop = clip - small
        other = small * (clip * turn - drop)
        row = shorter if other < 0.0 else square
        along = clip * small * (1.0 - turn) * domain.radius**2
        return clip * (drop + small * turn) * square + other * row + along

    return math.sqrt(max(corner(small, turn) for small in (least, clip) for turn in (versine, 0.0)))


class _OneScore:
    """One column of scores: logistic, or the squared hinge of two classes.

    Margins are t = c + s z, with z the component of the row along the weights, towards larger
    loss, and s their norm; the size of the residual is a nondecreasing function of t.
    """

    def __init__(self, loss: Loss, theta: Array, domain: Domain) -> None:
        weights, offsets = _split(theta, domain.constant)
        self.loss, self.domain = loss, domain
        self.slope, self.offset = float(_norms(weights)[0]), abs(float(offsets[0]))
        self.size = _RESIDUAL_SIZES[loss.name]
        self.n_features = weights.shape[1]

    def same_label(self, clip: float) -> float:
        """Largest gap of two rows of one label, over both labels."""
        domain, slope = self.domain, self.slope
        size = self.size(clip)
        largest = float(size.value(np.asarray(self.offset + slope * domain.norm_bound)))
        # Limits that need no search: corners of [0, largest]^2, and a Lipschitz constant.
        cap = largest * max(domain.augmented, domain.radius)
        lipschitz = (
            largest * domain.radius + self.loss.curvature * slope * domain.radius * domain.augmented
        )
        cap = min(cap, lipschitz)
        # Two rows orthogonal to the weights have equal residuals, so some pair attains this gap.
        across = float(size.value(np.asarray(self.offset))) * domain.radius
        if self.n_features > 1 and across * (1.0 + _EXCESS) >= cap:
            return cap
        gap = 0.0
        for centre in (self.offset, -self.offset):
            gap = _certified_gap(size, centre, slope, domain, gap, cap)
            if gap >= cap or self.offset == 0.0:
                break
        return min(gap, cap)

    def label_change(self) -> float:
        """Largest gradients of the two labels, added up."""
        reach = self.slope * self.domain.norm_bound
        value = self.size(math.inf).value
        sizes = [value(np.asarray(centre + reach)) for centre in (self.offset, -self.offset)]
        return self.domain.augmented * float(sum(sizes))


class _Residuals:
    """Residual vectors of two scores or more: bounds on their norms, distance and angle."""

    loss: Loss
    domain: Domain
    #: Largest and least norm, and largest distance between scores of adjacent records.
    largest: float
    least: float
    apart: float

    def _residual_distance(self, clip: float = math.inf) -> float:
        """Largest distance between residuals of adjacent records, once they are clipped."""
        return min(self.loss.residual_rate(clip) * self.apart, self.loss.residual_limit())

    def same_label(self, clip: float) -> float:
        """Least of three bounds: by the triangle inequality, the identity, and the angle."""
        domain, size, move = self.domain, min(self.largest, clip), self._residual_distance(clip)
        triangle = size * domain.radius + move * domain.augmented
        identity = (
            move * (domain.augmented**2 * move + size * domain.squared_norm_drop)
            + (size * domain.radius) ** 2
        )
        bounds = [triangle, math.sqrt(identity)]
        versine = min(self.loss.versine, _versine(self._residual_distance(), self.least))
        if size < math.inf:
            bounds.append(clipped_gap(size, domain, versine=versine, least=self.least))
        return min(bounds)


class _OneVersusRest(_Residuals):
    """Squared hinges of one score per class, stacked."""

    def __init__(self, loss: Loss, theta: Array, domain: Domain) -> None:
        self.loss, self.domain = loss, domain
        weights, offsets = _split(theta, domain.constant)
        self.slopes = _norms(weights)
        # Rows: a record of the head's own class, a record of the rest.
        signed = np.stack([-offsets, offsets])
        reach = self.slopes * domain.norm_bound
        self.heights = np.maximum(1.0 + signed + reach, 0.0)
        lowest = np.maximum(1.0 + signed - reach, 0.0) ** 2
        own, rest = self.heights**2
        self.largest = 2.0 * math.sqrt(rest.sum() + max(float((own - rest).max()), 0.0))
        own, rest = lowest
        self.least = 2.0 * math.sqrt(max(rest.sum() + float((own - rest).min()), 0.0))
        self.apart = float(np.linalg.norm(self.slopes)) * domain.radius

    def _squared_gaps(self, radius: float) -> Array:
        """Squared gap of each head, for both labels: ends of a convex function."""
        domain = self.domain.at(radius)
        square, drop = domain.augmented**2, domain.squared_norm_drop
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
        own, rest = self._squared_gaps(self.domain.radius)
        return min(bound, math.sqrt(rest.sum() + max(float((own - rest).max()), 0.0)))

    def label_change(self) -> float:
        """Two heads see their label change, the others a move of at most the diameter."""
        other = self._squared_gaps(2.0 * self.domain.norm_bound).max(axis=0)
        flip = (2.0 * self.heights.sum(axis=0) * self.domain.augmented) ** 2
        extra = np.sort(np.maximum(flip - other, 0.0))
        return math.sqrt(other.sum() + extra[-2:].sum())


class _Softmax(_Residuals):
    """Cross-entropy of two scores or more."""

    def __init__(self, loss: Loss, theta: Array, domain: Domain) -> None:
        self.loss, self.domain = loss, domain
        own = theta.astype(np.float64).tobytes(), theta.shape, domain.norm_bound, domain.constant
        self.sizes, least, spectral = _softmax_sizes(*own)
        self.largest = float(self.sizes.max())
        self.least = least * math.sqrt(len(theta) / (len(theta) - 1.0))
        self.apart = math.sqrt(spectral) * domain.radius

    def label_change(self) -> float:
        """Sum of the largest gradients of the two worst labels."""
        return float(np.sort(self.sizes)[-2:].sum()) * self.domain.augmented


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


class _ResidualSize(NamedTuple):
    """Size of a residual as a nondecreasing function of t, and its differences.

    ``rises(low, high, least, most)`` bounds size(t + s) - size(t) below and above, over t in
    [low, high] and s in [least, most].
    """

    value: Callable[[Array], Array]
    rises: Callable[[Array, Array, Array, Array], tuple[Array, Array]]


def _logistic_size(clip: float) -> _ResidualSize:
    """min(sigmoid(t), clip)."""
    edge = math.log(clip / (1.0 - clip)) if clip < 1.0 else math.inf

    def value(t: Array) -> Array:
        return np.minimum(expit(t), clip)

    def rise(t: Array, step: Array) -> Array:
        # sigmoid(t + s) - sigmoid(t) without cancellation, up to the edge.
        step = np.clip(edge - t, 0.0, step)
        return expit(t + step) * expit(-t) * -np.expm1(-step)

    def rises(low: Array, high: Array, least: Array, most: Array) -> tuple[Array, Array]:
        # A rise grows with the step, and with t up to its peak; then it falls.
        ends = np.minimum(rise(low, least), rise(high, least))
        peak = np.minimum(-0.5 * most, edge - most)
        return ends, rise(np.clip(peak, low, high), most)

    return _ResidualSize(value, rises)


def _hinge_size(clip: float) -> _ResidualSize:
    """min(2 (1 + t)+, clip)."""

    def value(t: Array) -> Array:
        return np.clip(2.0 * (1.0 + t + _margin_error(t)), 0.0, clip)

    def rises(low: Array, high: Array, least: Array, most: Array) -> tuple[Array, Array]:
        # Where t + 1 rounds to a multiple of the clip, nothing is known but 0 <= rise <= clip.
        low, high = 2.0 * (1.0 + low - _margin_error(low)), 2.0 * (1.0 + high + _margin_error(high))

        def rise(doubled: Array, step: Array) -> Array:
            return np.clip(
                np.minimum(doubled + 2.0 * step, clip) - np.maximum(doubled, 0.0), 0, clip
            )

        ends = np.minimum(rise(low, least), rise(high, least))
        # The largest end minus the least start. Where the clip is below the rounding of the
        # margins, a search for the peak between them would miss it.
        span = np.minimum(high + 2.0 * most, clip) - np.maximum(low, 0.0)
        return ends, np.clip(span, 0.0, np.minimum(2.0 * most, clip))

    return _ResidualSize(value, rises)


#: Sizes of clipped residuals of one score, by loss.
_RESIDUAL_SIZES = {Logistic.name: _logistic_size, SquaredHinge.name: _hinge_size}


def _margin_error(t: Array) -> Array:
    """How far a computed margin, a sum of terms not much larger than it or one, may be off."""
    return 2.0**-50 * (1.0 + np.abs(t))


def _certified_gap(
    size: _ResidualSize, centre: float, slope: float, domain: Domain, reached: float, cap: float
) -> float:
    r"""Gap of two rows of one label, by splitting cells; between ``reached`` and ``cap``.

    Rows have components z' and z = z' + s along the weights, s in [0, r], residuals a' <= a, and
    n' and n across them, :math:`n \le \min(c, c' + q)`, :math:`c^2 = B^2 - z^2`,
    :math:`q^2 = r^2 - s^2`. The square of the gap is at most

    .. math:: e (a - a')^2 + ((a - a') z + a' s)^2 + ((a - a') n + a' \min(q, n + c'))^2

    with e the square of the constant, and some pair attains it.
    """
    bound, radius = domain.norm_bound, domain.radius
    if radius == 0.0:
        return reached

    def squares(low: Array, high: Array) -> Array:
        """Upper bound over z' and s in cells; exact for points."""
        (p0, s0), (p1, s1) = low, high
        z0, z1 = p0 + s0, np.minimum(p1 + s1, bound)
        t0, t1 = centre + slope * p0, centre + slope * p1
        less, more = size.rises(t0, t1, slope * s0, slope * s1)
        smaller0, smaller1 = size.value(t0), size.value(t1)
        # The two terms may have opposite signs: take both ends, and the larger absolute value.
        along1 = np.where(z1 > 0.0, more, less) * z1 + smaller1 * s1
        along0 = np.where(z0 > 0.0, less, more) * z0 + smaller0 * s0
        along = np.maximum(np.abs(along0), np.abs(along1))
        c = np.sqrt(np.maximum(bound**2 - np.clip(0.0, z0, z1) ** 2, 0.0))
        c_other = np.sqrt(np.maximum(bound**2 - np.clip(0.0, p0, p1) ** 2, 0.0))
        q = np.sqrt(np.maximum(radius**2 - s0**2, 0.0))
        n = np.minimum(c, c_other + q)
        across = more * n + smaller1 * np.minimum(q, n + c_other)
        return domain.constant**2 * more**2 + along**2 + across**2

    def feasible(low: Array, high: Array) -> NDArray[np.bool_]:
        return low.sum(axis=0) <= bound

    def attained(low: Array, high: Array) -> Array:
        (p0, s0), (p1, s1) = low, high
        s = np.minimum(0.5 * (s0 + s1), bound - p0)
        return np.array([np.minimum(0.5 * (p0 + p1), bound - s), s])

    certified = certified_maximum(
        squares,
        [-bound, 0.0],
        [bound, radius],
        n_cells=16,
        excess=_EXCESS,
        most_cells=50_000,
        attained=attained,
        feasible=feasible,
        reached=reached**2,
        enough=cap**2,
    )
    # Squares of tiny numbers underflow to zero; then only the cap is a valid bound.
    return cap if certified >= cap**2 else math.sqrt(certified)


class GapLimits(NamedTuple):
    """Limits of :func:`iterate_gap` over all parameters."""

    least: float
    most: float  # infinite where gradients are not bounded


def gap_limits(
    loss: str,
    radius: float,
    *,
    n_scores: int,
    n_features: int,
    norm_bound: float,
    constant: float,
    clip: float | None = None,
    label_change: bool = False,
) -> GapLimits:
    """Smallest and largest value of :func:`iterate_gap` over all parameters."""
    kind = _loss_of(loss, n_scores)
    labels = "protected" if label_change else "public"
    domain = Domain(norm_bound, radius, constant)
    return limits_over_iterates(kind, n_features, domain, clip=clip, labels=labels)


def limits_over_iterates(
    loss: Loss, n_features: int, domain: Domain, *, clip: float | None, labels: str
) -> GapLimits:
    r"""As :func:`gap_limits`, for a domain with or without its allowance for rounding.

    Two rows r apart across all weights have equal residuals, so that no parameters make the gap of
    equal labels smaller than r times the least residual of the worst label: 1/2 (logistic),
    :math:`\sqrt{1 - 1/K}` (softmax), 2 (squared hinge), given a feature more than the weights
    span.
    """
    r, augmented = domain.radius, domain.augmented
    largest = loss.residual_limit()
    if clip is not None:
        largest = min(largest, float(clip))
    least = min(loss.least_residual, largest) * r if n_features > loss.n_spanned else 0.0
    if not math.isfinite(largest):
        most = math.inf
    elif loss.n_scores > 1:
        # Without clipping residuals peak at corners of the simplex: the same angle.
        most = clipped_gap(largest, domain, versine=loss.versine)
    else:
        most = largest * max(augmented, r)
    if labels == "protected":
        most_change = 2.0 * largest * augmented
        least = max(least, loss.least_change * augmented if clip is None else most_change)
        most = max(most, most_change)
    # The limits are rounded further than the bound itself, so that they hold for it.
    return GapLimits(least / _UP, most * _UP**2)
