r"""How far one substitution within the radius can move what a head releases.

Ridge prototypes are :math:`\mu_c = 2 S_c / (2 n_c + \lambda n)` with class sums :math:`S_c`.
Substituting a row for another of the same label within :math:`r` moves one block by at most
:math:`2 r / (2 n_c + \lambda n)`; changing a label moves two blocks, together by at most
:math:`2\sqrt2 B / (2 + \lambda n)`.

The class sums move by at most r, the second moment by :func:`moment_sensitivity`.

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
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from .._parameters import check_option
from ..adjacency import DOMAINS, Domain
from ..losses import Loss, make_loss
from .maximum import certified_maximum
from .weights import Weights

Array = NDArray[np.float64]

#: How ridge prototypes use the public class counts.
COUNT_MODES = ("per_class", "min", "worst")
#: "tight" bounds the minimiser and the gap directly; "paper" is radius times a Lipschitz constant.
METHODS = ("tight", "paper")
# Relative excess of a certified maximum over the best value found, on the squared gap.
_EXCESS = 1e-6
# The two-dimensional search of the hinge stops earlier.
_HINGE_EXCESS = 3e-4
# Rounds a computed bound up: its evaluation errs by far less.
_UP = 1.0 + 1e-12
# Roots, quotients and Lambert's function err by a few units in the last place.
_UP_OF_NORM = 1.0 + 2.0**-48
# Differences of shares cancel: their errors grow as radii fall, down to this share of B.
_LEAST_OF_ODDS, _UP_OF_ODDS = 1e-6, 1.0 + 1e-8


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


def minimizer_norm_bound(
    loss: str,
    *,
    alpha: float,
    norm_bound: float,
    fit_intercept: bool,
    n_classes: int = 2,
    method: str = "tight",
) -> float:
    r"""Upper bound R on a minimiser's norm over all datasets; arguments as :func:`gradient_gap`.

    R is in the norm of one weight vector (logistic, squared hinge: per one-versus-rest head) or the
    Frobenius norm (softmax). With :math:`\tilde B^2 = B^2 + 1` under an intercept, which is then
    regularised, it is :math:`\min(\sqrt{W(1/e)/\lambda}, \tilde B/\lambda)` for logistic,
    :math:`\min(\sqrt{W((K-1)/e)/\lambda}, \sqrt2 \tilde B/\lambda)` for softmax, and
    :math:`\min(1/\sqrt{2\lambda}, 2\tilde B/\lambda)` for squared hinge. The first terms come from
    the inner product of the optimality condition with the minimiser; W is the Lambert function.
    """
    kind = _loss(loss, n_classes, method)
    domain = Domain(norm_bound, 0.0, float(fit_intercept))
    return _norm_bound(kind, float(alpha), domain, method) * _UP_OF_NORM


def _norm_bound(loss: Loss, alpha: float, domain: Domain, method: str) -> float:
    if method == "paper":
        return loss.paper_minimizer_norm(alpha, domain.augmented)
    crude = loss.crude_minimizer_norm(alpha, domain.augmented)
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
        If the loss or method is unknown, or the radius negative.
    """
    kind = _loss(loss, n_classes, method)
    if not radius >= 0.0:
        raise ValueError(f"radius must be non-negative, got {radius!r}.")
    domain = Domain(norm_bound, radius, float(fit_intercept))
    labels = "protected" if label_change else "public"
    return gap_over_minimisers(kind, domain, float(alpha), method=method, labels=labels)


def gap_over_minimisers(
    loss: Loss, domain: Domain, alpha: float, *, method: str, labels: str
) -> float:
    """As :func:`gradient_gap`, for a domain with or without its allowance for rounding."""
    bound = _norm_bound(loss, alpha, domain, method)
    reach = bound * domain.augmented
    gap = _gap_of_one(loss, domain, bound, method)
    same_label = math.sqrt(loss.n_stacked) * gap
    if labels == "public":
        return same_label * _UP
    change = 2.0 * domain.augmented * loss.residual_peak(reach)
    if loss.name != "softmax" and method == "tight":
        with np.errstate(all="ignore"):
            flipped = _flipped_gap(loss.name, domain.augmented, bound)
        change = min(change, flipped) if flipped >= 0.0 else change
    if loss.n_stacked > 1:
        # Two heads see the label flip, the others a move of at most the diameter.
        other = _gap_of_one(loss, domain.at(2.0 * domain.norm_bound), bound, "tight")
        change = math.sqrt(2.0 * change**2 + (loss.n_stacked - 2) * other**2)
    return max(same_label, change) * _UP


def _gap_of_one(loss: Loss, domain: Domain, bound: float, method: str) -> float:
    """The gap of one problem of a loss, within a label."""
    reach = bound * domain.augmented
    # The radius times a Lipschitz constant of the gradient: the paper's form.
    gap = (loss.residual_limit(reach) + loss.curvature * reach) * domain.radius
    if method == "tight":
        # Extreme parameters overflow to infinity, which bounds anything.
        with np.errstate(all="ignore"):
            sharper = _tight_gap(loss, domain, bound)
        gap = min(gap, sharper) if sharper >= 0.0 else gap
    return gap


def _loss(name: str, n_classes: int, method: str) -> Loss:
    check_option("sensitivity", method, METHODS)
    return make_loss("logistic" if name == "softmax" and n_classes == 2 else name, n_classes)


@lru_cache(maxsize=256)
def _logistic_gap(domain: Domain, bound: float) -> float:
    r"""Maximise (a-b)(a B2 - b b2) + a b r^2 over a = sigmoid(t + R r), b = sigmoid(t).

    From ||a x - b x'||^2 = (a-b)(a ||x||^2 - b ||x'||^2) + a b ||x-x'||^2 with residuals a >= b.
    a, b increase with t and a - b has one peak, so ends and peak of a cell bound it.
    """
    radius, drop = domain.radius, domain.squared_norm_drop
    if radius == 0.0:
        return 0.0
    square = domain.augmented**2
    step, edge = bound * radius, bound * domain.augmented

    def upper(low: Array, high: Array) -> Array:
        low, high = low[0], high[0]
        a = expit(np.minimum(high + step, edge))
        b = expit(high)
        peak = np.clip(-0.5 * step, low, high)
        rise = np.minimum(step, edge - peak)
        # sigmoid(t + s) - sigmoid(t), without cancellation.
        difference = expit(peak + rise) * expit(-peak) * -np.expm1(-rise)
        return difference * (a * drop + difference * (square - drop)) + a * b * radius**2

    certified = certified_maximum(
        upper, [-edge], [edge], n_cells=256, excess=_EXCESS, most_cells=100_000
    )
    gap = min(math.sqrt(certified), max(domain.augmented, radius))
    if domain.constant == 0.0:
        gap = min(gap, math.sqrt(_logistic_gap_in_plane(domain, bound)))
    if radius > domain.norm_bound:
        # Any two rows, however far apart.
        gap = min(gap, _flipped_gap("logistic", domain.augmented, bound))
    return gap


def _logistic_gap_in_plane(domain: Domain, bound: float) -> float:
    r"""Search over the parts z = m + s >= z' = m - s of two rows along the weights.

    A row much shorter than its neighbour has moved along itself, and its score with it. With
    P = sqrt(B^2 - z^2) and rho = sqrt(r^2 - (z - z')^2) the other row has z'^2 + ((P - rho)+)^2 at
    least as its squared norm, in place of ((B - r)+)^2. Weights that are shorter than R, with these
    rows, give the residuals of weights of norm R that point out of the plane of the rows.
    """
    square, radius, edge = domain.norm_bound**2, domain.radius, domain.norm_bound

    def upper(low: Array, high: Array) -> Array:
        (m0, s0), (m1, s1) = low, high
        a, b = (expit(bound * np.minimum(part, edge)) for part in (m1 + s1, m1 - s0))
        # sigmoid(R z) - sigmoid(R z'), which grows with s and falls with |m|.
        m, s = bound * np.clip(0.0, m0, m1), bound * s1
        apart = expit(m + s) * expit(s - m) * -np.expm1(-2.0 * s)
        nearest = np.clip(0.0, m0 + s0, m1 + s1)
        across = np.sqrt(np.maximum(square - nearest**2, 0.0))
        rest = np.sqrt(np.maximum(radius**2 - 4.0 * s0**2, 0.0))
        along = 4.0 * np.maximum(m1 * s1, m1 * s0)
        drop = along + np.where(across > rest, rest * (2.0 * across - rest), across**2)
        return (apart * (apart * square + b * np.maximum(drop, 0.0)) + a * b * radius**2) * _UP

    def feasible(low: Array, high: Array) -> NDArray[np.bool_]:
        (m0, s0), (m1, _) = low, high
        return (m0 + s0 <= edge) & (m1 - s0 >= -edge)

    return certified_maximum(
        upper,
        [-edge, 0.0],
        [edge, 0.5 * radius],
        n_cells=48,
        excess=_HINGE_EXCESS,
        most_cells=100_000,
        feasible=feasible,
    )


def share_move(distance: float) -> float:
    """How far softmax moves with scores that move so far: the lemma of docs/sensitivity.md."""
    return math.sqrt(2.0) * math.tanh(distance / math.sqrt(8.0))


def _softmax_gap(domain: Domain, bound: float, n_classes: int) -> float:
    """The smallest of three: over vertices of the simplex, by one identity, and over log-odds."""
    square, radius = domain.augmented**2, domain.radius
    vertices = max(
        math.sqrt(2.0) * radius, math.sqrt(2.0 * square), math.sqrt(2.0 * square + radius**2)
    )
    move = share_move(bound * radius)
    along = square * move + math.sqrt(2.0) * domain.squared_norm_drop
    gap = min(vertices, math.sqrt(move * along + 2.0 * radius**2))
    # Cells over more log-odds would be coarse, and vertices of the simplex are reached.
    if radius > 0.0 and bound * domain.augmented < 1e3:
        # A larger radius bounds the radii whose differences of shares would be lost.
        own = domain.at(max(radius, _LEAST_OF_ODDS * domain.augmented))
        gap = min(gap, math.sqrt(_softmax_gap_by_odds(own, bound, n_classes)))
    return gap


@lru_cache(maxsize=256)
def _softmax_gap_by_odds(domain: Domain, bound: float, n_classes: int) -> float:
    r"""Search over the log-odds v = m + s, v' = m - s against the label, with s >= 0.

    The residuals are q (-1, w) and q' (-1, w'), with q = expit(v), and w the shares of the others.
    The lemma bounds e = |w - w'| by s and |w| by v. For given residuals the squared gap is linear
    in the squared norms of the rows, so that both are B, or one is as short as it can be. It is a
    quadratic form in |w| and |w'|, so that its maximum is at a corner of their hexagon.
    """
    rest, reach, move = n_classes - 1.0, bound * domain.augmented, bound * domain.radius
    square, radius = domain.augmented**2, domain.radius
    # Rows at this distance have norms that differ by this much, in squares.
    drop = radius * (2.0 * domain.norm_bound - radius)
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
        n_cells=48,
        excess=_HINGE_EXCESS,
        most_cells=100_000,
        feasible=feasible,
    )


@lru_cache(maxsize=256)
def _hinge_gap(domain: Domain, bound: float) -> float:
    """Maximum at the ends, as it is convex in the smaller hinge; for r > B also a 2-D search."""
    square, drop, radius = domain.augmented**2, domain.squared_norm_drop, domain.radius
    height = 1.0 + bound * domain.augmented
    difference = min(bound * radius, height)
    lower = height - difference
    apart = difference * (difference * square + lower * drop) + height * lower * radius**2
    gap = 2.0 * math.sqrt(max(height**2 * radius**2, apart))
    if domain.constant > 0.0:
        gap = min(gap, 2.0 * math.sqrt(_hinge_gap_by_angle(domain, bound)))
    if radius > domain.norm_bound:
        gap = min(gap, 2.0 * math.sqrt(_hinge_gap_search(domain, bound)))
        # Any two rows, however far apart.
        gap = min(gap, _flipped_gap("squared_hinge", domain.augmented, bound))
    return gap


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

    found = certified_maximum(
        upper, [0.0, 0.0], [math.pi, math.pi], n_cells=32, excess=1e-5, most_cells=100_000
    )
    return math.sqrt(found)


def _hinge_gap_by_angle(domain: Domain, bound: float) -> float:
    r"""Search over the angle f between the weights and those of the features alone.

    The constant does not move: weights that point at it gain height, and lose movement. At f the
    hinge is at most H = 1 + R (B cos f + c sin f), and two differ by at most D = min(R r cos f, H).
    The squared gap over 4 is convex in the difference, and grows with H, so that its maximum is
    H^2 r^2 or D (D (B^2 + c^2) + (H - D) drop) + H (H - D) r^2.
    """
    square, drop, radius = domain.augmented**2, domain.squared_norm_drop, domain.radius
    highest = math.atan2(domain.constant, domain.norm_bound)

    def upper(low: Array, high: Array) -> Array:
        low, high = low[0], high[0]
        at = np.clip(highest, low, high)
        height = 1.0 + bound * (domain.norm_bound * np.cos(at) + domain.constant * np.sin(at))
        height *= _UP
        difference = np.minimum(bound * radius * np.cos(low) * _UP, height)
        lower = height - difference
        apart = difference * (difference * square + lower * drop) + height * lower * radius**2
        return np.maximum(height**2 * radius**2, apart)

    return certified_maximum(
        upper, [0.0], [0.5 * math.pi], n_cells=256, excess=_EXCESS, most_cells=100_000
    )


def _hinge_gap_search(domain: Domain, bound: float) -> float:
    r"""Search over the projections z >= z' of the two records on the direction of the weights.

    Maximises (h-h')(h B2 - h' max(z'^2, b2)) + h h' min(r^2, (z-z')^2 + (c(z) + c(z'))^2) with
    h = 1 + R z, c(z) = sqrt(B2 - z^2) and z - z' <= r, by splitting cells.
    """
    square, radius, edge = domain.augmented**2, domain.radius, domain.augmented
    least = square - domain.squared_norm_drop

    def hinge(z: Array) -> Array:
        return np.maximum(1.0 + bound * z, 0.0)

    def upper(low: Array, high: Array) -> Array:
        (u0, v0), (u1, v1) = low, high
        large, small0, small1 = hinge(u1), hinge(v0), hinge(v1)
        nearest_u, nearest_v = np.clip(0.0, u0, u1) ** 2, np.clip(0.0, v0, v1) ** 2
        across = np.sqrt(np.maximum(square - nearest_u, 0.0))
        across += np.sqrt(np.maximum(square - nearest_v, 0.0))
        along = np.clip(u1 - v0, 0.0, radius)
        distance = np.minimum(radius**2, along**2 + across**2)
        first = (large - small0) * (large * square - small0 * np.maximum(nearest_v, least))
        return first + large * small1 * distance

    def feasible(low: Array, high: Array) -> NDArray[np.bool_]:
        (u0, v0), (u1, v1) = low, high
        return (u1 >= v0) & (u0 - v1 <= radius)

    def attained(low: Array, high: Array) -> Array:
        """The feasible pair nearest to the far corner of each cell."""
        (_, v0), (u1, v1) = low, high
        u = np.clip(u1, None, v1 + radius)
        return np.array([u, np.minimum(np.maximum(v0, u - radius), u)])

    return certified_maximum(
        upper,
        [-edge, -edge],
        [edge, edge],
        n_cells=32,
        excess=_HINGE_EXCESS,
        most_cells=50_000,
        attained=attained,
        feasible=feasible,
    )


def _tight_gap(loss: Loss, domain: Domain, bound: float) -> float:
    """A bound sharper than a Lipschitz constant, for one problem of a loss."""
    if loss.name == "softmax":
        return _softmax_gap(domain, bound, loss.n_classes)
    return (_logistic_gap if loss.name == "logistic" else _hinge_gap)(domain, bound)
