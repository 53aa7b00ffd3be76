r"""How far one substitution can move the loss gradient at parameters that are already public.

Noisy gradient descent evaluates the gradient of one record at iterates that earlier steps have
published, so the bound may use them exactly: :func:`iterate_gap`. Clipping the gradient of every
record to norm C bounds it once more, by the angle between the gradients of two adjacent records:
:func:`clipped_gap`. Over all parameters both have the public limits of :func:`gap_range`.

Margins are written as t = c + s z, with z the component of the row along the weights (towards
larger loss) and s their norm; a is the size of the gradient's factor at t. The proofs are in this
package's documentation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

Array = NDArray[np.float64]

# Relative excess of a certified maximum over the best value found, on the squared gap.
_EXCESS = 1e-2
_CELLS = 16
_MOST_CELLS = 50_000
# Rounds a computed bound up: its evaluation errs by far less.
_UP = 1.0 + 1e-11


@dataclass(frozen=True)
class Domain:
    """Where rows lie, and which pairs are adjacent.

    Parameters
    ----------
    radius : float
        Euclidean radius r of same-label substitutions.
    norm_bound : float
        Radius B of the ball of rows.
    fit_intercept : bool
        Whether rows are augmented by a constant 1.
    """

    radius: float
    norm_bound: float
    fit_intercept: bool

    @property
    def augmented(self) -> float:
        """Largest norm of an augmented row."""
        return math.hypot(self.norm_bound, 1.0) if self.fit_intercept else self.norm_bound

    @property
    def shortening(self) -> float:
        """B^2 - ((B - r)+)^2, by how much the square of an adjacent row may be less."""
        r, b = self.radius, self.norm_bound
        return r * (2.0 * b - r) if r < b else b * b

    @property
    def cosine(self) -> float:
        """Least cosine of the angle between two adjacent augmented rows.

        Rows lie at distance 1 or more from the origin, from where a segment of length r is seen
        under the angle 2 arctan(r / 2) at most. Without an intercept rows may be opposite.
        """
        square = 0.25 * self.radius**2
        return (1.0 - square) / (1.0 + square) if self.fit_intercept else -1.0


def iterate_gap(
    loss: str,
    theta: Array,
    radius: float,
    *,
    norm_bound: float,
    fit_intercept: bool,
    clip: float | None = None,
    label_change: bool = False,
) -> float:
    r"""Certified upper bound on the gradient gap of adjacent records at known parameters.

    Parameters
    ----------
    loss : {"logistic", "softmax", "squared_hinge"}
        Loss of one record; "squared_hinge" with several scores stacks one-versus-rest heads.
    theta : ndarray of shape (n_scores, n_features + fit_intercept)
        Public parameters, finite; the last column is the intercept, if there is one.
    radius : float
        Euclidean radius r of same-label substitutions; capped at ``2 * norm_bound``.
    norm_bound : float
        Radius B of the admissible ball of rows.
    fit_intercept : bool
        Whether rows are augmented by a constant 1.
    clip : float, optional
        Norm to which the gradient of each record is clipped; no clipping by default.
    label_change : bool, default=False
        Whether pairs with different labels (at any distance) are adjacent too.

    Returns
    -------
    float
        Upper bound on :math:`\|g(\theta; z) - g(\theta; z')\|` over adjacent records, g the
        (clipped) gradient of the loss.

    Raises
    ------
    ValueError
        If the loss is unknown, the radius negative, or a parameter not finite.

    Notes
    -----
    Logistic: the exact maximum, to half a per cent. Squared hinge: the ends of a convex function.
    Softmax: bounds on the residual by known margins, and the identity
    :math:`\|q x - q' x'\|^2 = \langle q - q', q \rangle \|x\|^2
    - \langle q - q', q' \rangle \|x'\|^2 + \langle q, q' \rangle \|x - x'\|^2`.
    """
    if not radius >= 0.0:
        raise ValueError(f"radius must be non-negative, got {radius!r}.")
    parameters = np.asarray(theta, dtype=np.float64)
    if not np.isfinite(parameters).all():
        raise ValueError("theta holds parameters that are not finite.")
    domain = Domain(min(float(radius), 2.0 * norm_bound), float(norm_bound), fit_intercept)
    cap = math.inf
    # Extreme parameters overflow to infinity, which bounds anything.
    with np.errstate(all="ignore"):
        known = _known(loss, parameters, domain)
        if clip is not None:
            cap = clipped_gap(float(clip), domain, cosine=known.cosine(), least=known.least())
        gap = min(cap, known.same_label(cap))
        if label_change:
            change = known.label_change()
            gap = max(gap, change if clip is None else min(change, 2.0 * float(clip)))
    return gap * _UP


def clipped_gap(clip: float, domain: Domain, *, cosine: float, least: float = 0.0) -> float:
    r"""Largest distance between the clipped gradients of two adjacent records of equal label.

    With norms s, s' of the clipped gradients and cosine k of the angle between them,
    :math:`(s - s')^2 + 2 s s' (1 - k)` is convex in (s, s') and so largest at a corner of
    [least, clip]^2.

    Parameters
    ----------
    clip : float
        Norm C that gradients are clipped to.
    domain : Domain
        Rows and radius.
    cosine : float
        Least cosine of the angle between the residual vectors of two records of equal label,
        not negative.
    least : float, default=0.0
        Least norm of a gradient before clipping.

    Returns
    -------
    float
        Between 0 and ``2 * clip``.
    """
    angle = domain.cosine * (cosine if domain.cosine > 0.0 else 1.0)
    square = 2.0 - 2.0 * angle
    least = min(least, clip)
    apart = math.sqrt((clip - least) ** 2 + least * clip * square)
    return max(apart, clip * math.sqrt(square))


def _known(loss: str, theta: Array, domain: Domain) -> "_OneScore | _OneVersusRest | _Softmax":
    if loss == "softmax":
        return _Softmax(theta, domain)
    if loss not in ("logistic", "squared_hinge"):
        raise ValueError(f"loss must be logistic, softmax or squared_hinge; got {loss!r}.")
    return _OneScore(loss, theta, domain) if len(theta) == 1 else _OneVersusRest(theta, domain)


class _OneScore:
    """One column of scores: logistic, or the squared hinge of two classes."""

    def __init__(self, loss: str, theta: Array, domain: Domain) -> None:
        slopes, offsets = _split(theta, domain)
        self.domain, self.slope, self.offset = domain, float(slopes[0]), abs(float(offsets[0]))
        self.n_features = theta.shape[1] - int(domain.fit_intercept)
        self.factor = _LOGISTIC if loss == "logistic" else _HINGE

    def same_label(self, cap: float) -> float:
        """Gap of two rows of equal label, or ``cap`` if that is less; the worse label counts."""
        domain, slope = self.domain, self.slope
        # Limits that need no search: factors of at most one, ends in the smaller factor, and a
        # Lipschitz constant.
        if self.factor is _LOGISTIC:
            limit, steepest = max(domain.augmented, domain.radius), 0.25
        else:
            height = np.asarray(1.0 + self.offset + slope * domain.norm_bound)
            limit = 2.0 * math.sqrt(float(_hinge_ends(height, np.asarray(slope), domain)))
            steepest = 2.0
        largest = float(self.factor.value(np.asarray(self.offset + slope * domain.norm_bound)))
        lipschitz = (largest + steepest * slope * domain.augmented) * domain.radius
        cap, gap = min(cap, limit, lipschitz), 0.0
        # Two rows across the weights have equal factors: a gap that some pair attains.
        across = float(self.factor.value(np.asarray(self.offset))) * domain.radius
        if self.n_features > 1 and across * (1.0 + _EXCESS) >= cap:
            return cap
        for centre in (self.offset, -self.offset):
            gap = _certified_gap(self.factor, centre, slope, domain, gap, cap)
            if gap >= cap or self.offset == 0.0:
                break
        return min(gap, cap)

    def label_change(self) -> float:
        """Largest gradients of the two labels, added up."""
        reach = self.slope * self.domain.norm_bound
        factors = [self.factor.value(np.asarray(c + reach)) for c in (self.offset, -self.offset)]
        return self.domain.augmented * float(sum(factors))

    def least(self) -> float:
        """Least norm of a gradient."""
        if not self.domain.fit_intercept:
            return 0.0
        margin = -self.offset - self.slope * self.domain.norm_bound
        return float(self.factor.value(np.asarray(margin)))

    def cosine(self) -> float:
        """Residuals of equal label have equal signs."""
        return 1.0


class _OneVersusRest:
    """Squared hinges of one score a class, stacked."""

    def __init__(self, theta: Array, domain: Domain) -> None:
        self.domain = domain
        self.slopes, self.offsets = _split(theta, domain)
        # Rows: a record of the head's own class, a record of the rest.
        signed = np.stack([-self.offsets, self.offsets])
        self.heights = np.maximum(1.0 + signed + self.slopes * domain.norm_bound, 0.0)

    def _moves(self, domain: Domain) -> Array:
        """Squared gap of each head, for both labels: ends of a convex function."""
        return 4.0 * _hinge_ends(self.heights, self.slopes, domain)

    def same_label(self, cap: float) -> float:
        """Every head but one sees a record of the rest."""
        own, rest = self._moves(self.domain)
        return math.sqrt(rest.sum() + max(float((own - rest).max()), 0.0))

    def label_change(self) -> float:
        """Two heads see their label change, the others a move of at most the diameter."""
        other = self._moves(replace(self.domain, radius=2.0 * self.domain.norm_bound)).max(axis=0)
        flip = (2.0 * self.heights.sum(axis=0) * self.domain.augmented) ** 2
        extra = np.sort(np.maximum(flip - other, 0.0))
        return math.sqrt(other.sum() + extra[-2:].sum())

    def _least_residual(self) -> float:
        reach = self.slopes * self.domain.norm_bound
        own = np.maximum(1.0 - self.offsets - reach, 0.0) ** 2
        rest = np.maximum(1.0 + self.offsets - reach, 0.0) ** 2
        return 2.0 * math.sqrt(max(rest.sum() + float((own - rest).min()), 0.0))

    def least(self) -> float:
        """Least norm of a gradient."""
        return self._least_residual() if self.domain.fit_intercept else 0.0

    def cosine(self) -> float:
        """Residuals have equal signs head by head, and move by a Lipschitz constant."""
        moved = 2.0 * float(np.linalg.norm(self.slopes)) * self.domain.radius
        return max(0.0, _cosine(moved, self._least_residual()))


class _Softmax:
    """Cross-entropy of two scores or more."""

    def __init__(self, theta: Array, domain: Domain) -> None:
        self.domain = domain
        n_classes = len(theta)
        # Adding one vector to every class changes nothing.
        theta = theta - theta.mean(axis=0)
        weights, offsets = theta, np.zeros(n_classes)
        if domain.fit_intercept:
            weights, offsets = theta[:, :-1], theta[:, -1]
        gram = weights @ weights.T
        squares = np.diag(gram)
        pairs = squares[:, None] + squares
        # The products err by at most as many roundings as there are features.
        error = 4.0 * (weights.shape[1] + 4) * 2.0**-53 * pairs
        apart = np.sqrt(np.maximum(pairs - 2.0 * gram, 0.0) + error)
        reach, lead = apart * domain.norm_bound, offsets - offsets[:, None]
        off = ~np.eye(n_classes, dtype=bool)

        def others(scores: Array) -> Array:
            """1 - p_y from the scores of the other classes against its own."""
            return expit(logsumexp(np.where(off, scores, -np.inf), axis=1))

        # Row y: the largest and least 1 - p_y of any record, and the largest p_c.
        most, least = others(lead + reach), others(lead - reach)
        rival = np.where(off, expit(lead + reach), 0.0).max(axis=1)
        self.sizes = np.sqrt(most * (most + np.minimum(rival, most)))
        self.least_residual = float(least.min()) * math.sqrt(n_classes / (n_classes - 1.0))
        spectral = max(float(np.linalg.eigvalsh(gram)[-1]), 0.0) + float(error.sum())
        self.move = min(0.5 * math.sqrt(spectral) * domain.radius, math.sqrt(2.0))

    def same_label(self, cap: float) -> float:
        """Least of the triangle inequality, the identity, and the corners of the simplex."""
        domain, size, move = self.domain, float(self.sizes.max()), self.move
        radius, augmented = domain.radius, domain.augmented
        triangle = size * radius + move * augmented
        identity = move * (augmented**2 * move + size * domain.shortening) + (size * radius) ** 2
        corners = max(math.sqrt(2.0) * radius, math.hypot(math.sqrt(2.0) * augmented, radius))
        return min(triangle, math.sqrt(identity), corners)

    def label_change(self) -> float:
        """The two largest residuals, at any two rows."""
        return float(np.sort(self.sizes)[-2:].sum()) * self.domain.augmented

    def least(self) -> float:
        """Least norm of a gradient."""
        return self.least_residual if self.domain.fit_intercept else 0.0

    def cosine(self) -> float:
        """At least 1/2: residuals are (1 - p_y)(q - e_y), q a distribution over other classes."""
        return max(0.5, _cosine(self.move, self.least_residual))


def _split(theta: Array, domain: Domain) -> tuple[Array, Array]:
    """Norms of the weights, rounded up, and intercepts."""
    weights, offsets = theta, np.zeros(len(theta))
    if domain.fit_intercept:
        weights, offsets = theta[:, :-1], theta[:, -1]
    return np.linalg.norm(weights, axis=1) * _UP, offsets


def _cosine(moved: float, least: float) -> float:
    """Least cosine between two vectors of norm ``least`` or more, ``moved`` apart at most.

    Normalising vectors outside a ball contracts: |a/|a| - b/|b|| <= |a - b| / least.
    """
    return 1.0 - 0.5 * (moved / least) ** 2 if moved < 2.0 * least else -1.0


def _hinge_ends(heights: Array, slopes: Array, domain: Domain) -> Array:
    """Square of the gap of h x over 0 <= h <= height and |h - h'| <= slope r: ends in h'."""
    square, drop = domain.augmented**2, domain.shortening
    difference = np.minimum(slopes * domain.radius, heights)
    lower = heights - difference
    apart = difference * (difference * square + lower * drop) + heights * lower * domain.radius**2
    return np.maximum(heights**2 * domain.radius**2, apart)


@dataclass(frozen=True)
class _Factor:
    """Size of a gradient's factor as a nondecreasing function of t, and its differences.

    ``rises(low, high, least, most)`` bounds factor(t + s) - factor(t) below and above, over
    t in [low, high] and s in [least, most].
    """

    value: Callable[[Array], Array]
    rises: Callable[[Array, Array, Array, Array], tuple[Array, Array]]


def _logistic_rise(t: Array, step: Array) -> Array:
    """sigmoid(t + step) - sigmoid(t), without cancellation."""
    return expit(t + step) * expit(-t) * -np.expm1(-step)


def _logistic_rises(low: Array, high: Array, least: Array, most: Array) -> tuple[Array, Array]:
    # One peak, at -step / 2; least at an end.
    peak = np.clip(-0.5 * most, low, high)
    ends = np.minimum(_logistic_rise(low, least), _logistic_rise(high, least))
    return ends, _logistic_rise(peak, most)


def _hinge(t: Array) -> Array:
    return 2.0 * np.maximum(1.0 + t, 0.0)


def _hinge_rises(low: Array, high: Array, least: Array, most: Array) -> tuple[Array, Array]:
    def rise(t: Array, step: Array) -> Array:
        return 2.0 * np.clip(1.0 + t + step, 0.0, step)

    return rise(low, least), rise(high, most)


_LOGISTIC = _Factor(expit, _logistic_rises)
_HINGE = _Factor(_hinge, _hinge_rises)


def _certified_gap(
    factor: _Factor, centre: float, slope: float, domain: Domain, reached: float, cap: float
) -> float:
    r"""Gap of two rows of one label, by splitting cells; ``reached`` or ``cap`` where they decide.

    Rows have components z' and z = z' + s along the weights, s in [0, r], factors a' <= a, and
    n' and n across them, :math:`n \le \min(c, c' + q)`, :math:`c^2 = B^2 - z^2`,
    :math:`q^2 = r^2 - s^2`. The square of the gap is at most

    .. math:: e (a - a')^2 + ((a - a') z + a' s)^2 + ((a - a') n + a' \min(q, n + c'))^2

    with e = 1 under an intercept, and some pair attains it.
    """
    bound, radius = domain.norm_bound, domain.radius
    if radius == 0.0:
        return reached
    constant = float(domain.fit_intercept)

    def squares(p0: Array, p1: Array, s0: Array, s1: Array) -> Array:
        """Upper bound over z' in [p0, p1], s in [s0, s1]; exact for points."""
        z0, z1 = p0 + s0, np.minimum(p1 + s1, bound)
        t0, t1 = centre + slope * p0, centre + slope * p1
        less, more = factor.rises(t0, t1, slope * s0, slope * s1)
        smaller0, smaller1 = factor.value(t0), factor.value(t1)
        along1 = np.where(z1 > 0.0, more, less) * z1 + smaller1 * s1
        along0 = np.where(z0 > 0.0, less, more) * z0 + smaller0 * s0
        along = np.maximum(np.abs(along0), np.abs(along1))
        c = np.sqrt(np.maximum(bound**2 - np.clip(0.0, z0, z1) ** 2, 0.0))
        c_other = np.sqrt(np.maximum(bound**2 - np.clip(0.0, p0, p1) ** 2, 0.0))
        q = np.sqrt(np.maximum(radius**2 - s0**2, 0.0))
        n = np.minimum(c, c_other + q)
        across = more * n + smaller1 * np.minimum(q, n + c_other)
        return constant * more**2 + along**2 + across**2

    edges_p = np.linspace(-bound, bound, _CELLS + 1)
    edges_s = np.linspace(0.0, radius, _CELLS + 1)
    p0, s0 = (grid.ravel() for grid in np.meshgrid(edges_p[:-1], edges_s[:-1], indexing="ij"))
    p1, s1 = (grid.ravel() for grid in np.meshgrid(edges_p[1:], edges_s[1:], indexing="ij"))
    best = certified = reached**2
    bounds, alive = np.empty(0), np.empty(0, dtype=bool)
    for _ in range(60):
        kept = p0 + s0 <= bound
        p0, p1, s0, s1 = p0[kept], p1[kept], s0[kept], s1[kept]
        # A feasible point of each cell, for a value that is attained.
        s = np.minimum(0.5 * (s0 + s1), bound - p0)
        p = np.minimum(0.5 * (p0 + p1), bound - s)
        best = max(best, float(np.nan_to_num(squares(p, p, s, s)).max()))
        if best * (1.0 + _EXCESS) >= cap**2:
            return cap
        bounds = np.nan_to_num(squares(p0, p1, s0, s1), nan=math.inf, posinf=math.inf)
        alive = bounds > best * (1.0 + _EXCESS)
        certified = max(certified, float(bounds[~alive].max(initial=0.0)))
        if not 0 < np.count_nonzero(alive) <= _MOST_CELLS:
            break
        p0, p1, s0, s1 = p0[alive], p1[alive], s0[alive], s1[alive]
        pm, sm = 0.5 * (p0 + p1), 0.5 * (s0 + s1)
        p0, p1 = np.concatenate([p0, p0, pm, pm]), np.concatenate([pm, pm, p1, p1])
        s0, s1 = np.concatenate([s0, sm, s0, sm]), np.concatenate([sm, s1, sm, s1])
    return math.sqrt(max(certified, best, float(bounds[alive].max(initial=0.0))))


@dataclass(frozen=True)
class GapLimits:
    """Limits of :func:`iterate_gap` over all parameters.

    Parameters
    ----------
    least : float
        No parameters have a smaller bound.
    most : float
        No parameters have a larger bound; infinite where gradients are not bounded.
    """

    least: float
    most: float


def gap_limits(
    loss: str,
    radius: float,
    *,
    n_scores: int,
    n_features: int,
    norm_bound: float,
    fit_intercept: bool,
    clip: float | None = None,
    label_change: bool = False,
) -> GapLimits:
    r"""Smallest and largest value of :func:`iterate_gap` over all parameters.

    Two rows r apart across all weights have equal scores, so that no parameters make the gap of
    equal labels smaller than r times the least residual of the worst label: 1/2 (logistic),
    :math:`\sqrt{1 - 1/K}` (softmax), 2 (squared hinge), given a feature more than the weights
    span.

    Parameters
    ----------
    loss, radius, norm_bound, fit_intercept, clip, label_change
        As in :func:`iterate_gap`.
    n_scores, n_features : int
        Shape of the parameters.

    Returns
    -------
    GapLimits
    """
    domain = Domain(min(float(radius), 2.0 * norm_bound), float(norm_bound), fit_intercept)
    r, augmented = domain.radius, domain.augmented
    rest = n_scores - 1
    # Least residual, gap and label change; dimension that the weights span; cosine of residuals.
    if loss == "logistic":
        least, most = 0.5 * r, max(augmented, r)
        change, most_change = augmented, 2.0 * augmented
        spanned, cosine = 1, 1.0
    elif loss == "softmax":
        least = math.sqrt(rest / n_scores) * r
        most = max(math.sqrt(2.0) * r, math.hypot(math.sqrt(2.0) * augmented, r))
        second = (rest - 1.0) / rest * math.sqrt(n_scores / rest)
        change = (math.sqrt(rest / n_scores) + second) * augmented
        most_change, spanned, cosine = 2.0 * math.sqrt(2.0) * augmented, rest, 0.5
    else:
        least, most = 2.0 * r, math.inf
        change = 4.0 * augmented * (math.sqrt(2.0) if rest else 1.0)
        most_change, spanned, cosine = math.inf, n_scores, 0.0 if rest else 1.0
    if n_features <= spanned:
        least = 0.0
    if clip is not None:
        # The angle between rows remains when that between residuals vanishes.
        angle = math.sqrt(2.0 - 2.0 * domain.cosine)
        least = min(least, float(clip) * angle)
        most = min(most, clipped_gap(float(clip), domain, cosine=cosine))
        change, most_change = min(change, 2.0 * float(clip)), min(most_change, 2.0 * float(clip))
    if label_change:
        least, most = max(least, change), max(most, most_change)
    return GapLimits(least / _UP, most * _UP)
