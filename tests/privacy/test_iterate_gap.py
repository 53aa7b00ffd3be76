"""The gap at a known iterate: never exceeded by a search, and hardly above it."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, softmax

import sklearn_balldp.privacy.gaps as iterate_gap_module
from sklearn_balldp.adjacency import Domain
from sklearn_balldp.losses import Softmax
from sklearn_balldp.privacy.gaps import (
    _softmax_sizes,
    clipped_gap,
    iterate_gap,
)


def gap_limits(
    loss, r, *, n_scores, n_features, norm_bound, constant, clip=None, label_change=False
):
    from sklearn_balldp.losses import make_loss

    return iterate_gap_module.limits_over_iterates(
        make_loss(loss, max(2, n_scores)),
        n_features,
        Domain(norm_bound, r, constant),
        clip=clip,
        labels="protected" if label_change else "public",
    )


LOSSES = [
    ("logistic", 1),
    ("squared_hinge", 1),
    ("softmax", 2),
    ("softmax", 3),
    ("softmax", 6),
    ("squared_hinge", 3),
]
SLOW = 1e-9


def residuals(loss, theta, rows, codes, constant):
    """By the definition of each loss, one record per row."""
    augmented = rows if constant == 0 else np.hstack([rows, np.full((len(rows), 1), constant)])
    scores = augmented @ theta.T
    if loss == "softmax":
        out = softmax(scores, axis=1)
        out[np.arange(len(rows)), codes] -= 1.0
        return out, augmented
    signs = np.full(scores.shape, -1.0)
    if scores.shape[1] == 1:
        signs = (2.0 * codes - 1.0)[:, None]
    else:
        signs[np.arange(len(rows)), codes] = 1.0
    if loss == "logistic":
        return -signs * expit(-signs * scores), augmented
    return -2.0 * signs * np.maximum(1.0 - signs * scores, 0.0), augmented


def gradients(loss, theta, rows, codes, constant, clip):
    out, augmented = residuals(loss, theta, rows, codes, constant)
    if clip is not None:
        out *= np.minimum(1.0, clip / np.maximum(np.linalg.norm(out, axis=1), 1e-300))[:, None]
    return out[:, :, None] * augmented[:, None, :]


def distances(loss, theta, a, b, codes, constant, clip):
    """Of the gradients of two records; ``codes`` are the labels of the first and the second."""
    first, second = (
        gradients(loss, theta, rows, labels, constant, clip)
        for rows, labels in zip((a, b), codes, strict=True)
    )
    return np.sqrt(((first - second) ** 2).sum(axis=(1, 2)))


def into_ball(rows, bound):
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows * np.minimum(1.0, bound / np.maximum(norms, 1e-300))


def pairs(rng, n, d, theta, r, bound, constant):
    """Rows of the ball and rows within r of them: spread, on the boundary, and along weights."""
    weights = theta[:, :d]
    x = rng.standard_normal((n, d))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x *= bound * rng.choice([1.0, 1.0, 0.5, 0.1], (n, 1)) * rng.uniform(size=(n, 1)) ** 0.1
    step = rng.standard_normal((n, d))
    one, two, three = (weights[rng.integers(len(weights), size=n)] for _ in range(3))
    along = one - two + three * (rng.random((n, 1)) < 0.5)
    size = np.linalg.norm(along, axis=1, keepdims=True)
    unit = np.where(size > 0, along / np.maximum(size, 1e-300), step)
    mix = rng.random((n, 1)) < 0.5
    x = np.where(mix, x + bound * rng.uniform(-1, 1, (n, 1)) * unit, x)
    x = into_ball(x, bound)
    step = np.where(rng.random((n, 1)) < 0.4, unit * rng.choice([-1, 1], (n, 1)), step)
    step *= r / np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-300)
    other = x + step * rng.choice([1.0, 0.99, 0.5], (n, 1))
    # Projections onto the ball move two points no further apart.
    return x, into_ball(other, bound)


def searched(loss, theta, r, bound, constant, clip, label_change, rng, n=2000):
    """Largest distance of gradients that a search finds."""
    d = theta.shape[1] - (constant > 0)
    n_classes = max(len(theta), 2)
    x, other = pairs(rng, n, d, theta, r, bound, constant)
    codes = rng.integers(n_classes, size=n)
    new = codes.copy()
    if label_change:
        new = rng.integers(n_classes, size=n)
        elsewhere = rng.permutation(x)
        other = np.where((new != codes)[:, None], elsewhere, other)

    def distance(a, b, y, z):
        return distances(loss, theta, a, b, (y, z), constant, clip)

    values = distance(x, other, codes, new)
    best = int(np.argmax(values))
    y, z = codes[best : best + 1], new[best : best + 1]

    def shaped(flat):
        a, b = into_ball(flat[:d], bound), flat[d:]
        if y[0] == z[0]:
            b = a + into_ball(b - a, r)
        return a[None], into_ball(b, bound)[None]

    start, options = np.concatenate([x[best], other[best]]), {"maxiter": 150}
    polished = minimize(
        lambda f: -distance(*shaped(f), y, z)[0], start, method="Nelder-Mead", options=options
    )
    return max(float(values[best]), -float(polished.fun))


@pytest.mark.parametrize("label_change", [False, True])
@pytest.mark.parametrize("clip", [None, 0.05, 0.3, 1.5])
@pytest.mark.parametrize(("loss", "n_scores"), LOSSES)
def test_no_search_exceeds_it(loss, n_scores, clip, label_change):
    rng = np.random.default_rng(n_scores)
    for scale in (0.0, 0.1, 1.0, 6.0, 50.0, 1e4):
        for _ in range(4):
            d = int(rng.integers(1, 5))
            constant = float(rng.choice([0.0, 0.3, 1.0]))
            bound = float(rng.choice([0.5, 1.0, 3.0]))
            r = bound * float(rng.choice([1e-3, 0.3, 1.2, 2.0]))
            theta = scale * rng.standard_normal((n_scores, d + (constant > 0)))
            common = {"norm_bound": bound, "constant": constant, "clip": clip}
            gap = iterate_gap(loss, theta, r, label_change=label_change, **common)
            found = searched(loss, theta, r, bound, constant, clip, label_change, rng)
            assert found <= gap * (1 + SLOW)
            limits = gap_limits(
                loss, r, n_scores=n_scores, n_features=d, label_change=label_change, **common
            )
            assert limits.least <= gap <= limits.most


def planar_gap(loss, slope, offset, r, bound, constant, clip=None):
    """The largest distance on a fine grid of the plane of the weights and one direction across."""
    best = 0.0
    # Finer where the residual bends.
    edges = [(m - offset) / slope for m in (0.0, 1.0, -1.0)] if slope else []
    near = [(s * e + np.linspace(-r, r, 25)) for e in edges for s in (1, -1)]
    u = np.concatenate([np.linspace(-bound, bound, 41), *near])
    u = u[np.abs(u) <= bound]
    angle = np.linspace(0, 2 * np.pi, 49)
    lengths = r * np.array([0.8, 1.0])
    radial = np.sqrt(np.maximum(bound**2 - u**2, 0))
    x = np.concatenate([np.stack([u, s * radial], 1) for s in (1.0, 0.5, 0.0)])
    steps = np.concatenate([np.stack([s * np.cos(angle), s * np.sin(angle)], 1) for s in lengths])
    a = np.repeat(x, len(steps), axis=0)
    b = a + np.tile(steps, (len(x), 1))
    b = into_ball(b, bound)
    theta = np.array([[slope, 0.0] + ([offset / constant] if constant else [])])
    for label in (0, 1):
        codes = np.full(len(a), label)
        found = distances(loss, theta, a, b, (codes, codes), constant, clip)
        best = max(best, float(found.max()))
    return iterate_gap(loss, theta, r, norm_bound=bound, constant=constant, clip=clip), best


@pytest.mark.parametrize("clip", [None, 0.2, 0.6])
def test_one_score_is_tight(clip):
    """Within 5% (nearly always 1%) of a grid search."""
    ratios = []
    for slope, offset, r in itertools.product((0.0, 4.0, 15.0), (0.0, -0.8), (0.05, 1.2)):
        for loss in ("logistic", "squared_hinge"):
            gap, best = planar_gap(loss, slope, offset, r, 1.0, 1.0, clip)
            assert best <= gap * (1 + SLOW)
            assert gap <= 1.05 * best
            ratios.append(gap / best)
    assert np.median(ratios) < 1.01


def test_values_at_zero():
    """Residuals of one label agree there, so only the rows differ."""

    def gap(loss, n_scores, constant, clip=None):
        zero = np.zeros((n_scores, 4))
        return iterate_gap(loss, zero, r, norm_bound=1.0, constant=constant, clip=clip)

    for r in (0.1, 1.0):
        assert gap("logistic", 1, 1.0) == pytest.approx(r / 2, rel=6e-3)
        assert gap("softmax", 5, 1.0) == pytest.approx(math.sqrt(0.8) * r)
        assert gap("squared_hinge", 1, 0.0) == pytest.approx(2 * r, rel=6e-3)
        for loss, n_scores in LOSSES:
            assert gap(loss, n_scores, 0.5, 0.2) == pytest.approx(0.2 * r, rel=6e-3)


def test_worst_label_counts():
    """At w = 0 the gap is sigmoid(|b|) r: the maximum over labels, not that of one."""
    for r, offset in itertools.product((0.1, 1.0, 1.7), (2.0, -2.0)):
        theta = np.array([[0.0, 0.0, offset]])
        gap = iterate_gap("logistic", theta, r, norm_bound=1.0, constant=1.0)
        assert gap == pytest.approx(expit(2.0) * r, rel=6e-3)


@pytest.mark.parametrize(("loss", "n_scores"), LOSSES)
@pytest.mark.parametrize("scale", [1e3, 1e8, 1e90])
def test_huge_parameters(loss, n_scores, scale):
    rng = np.random.default_rng(0)
    theta = scale * rng.standard_normal((n_scores, 5))
    common = {"norm_bound": 1.0, "constant": 0.5}
    gap = iterate_gap(loss, theta, 0.7, **common)
    assert gap >= searched(loss, theta / 1e3, 0.7, 1.0, 0.5, None, False, rng) * (1 - 1e-9) or (
        loss == "squared_hinge"
    )
    assert not math.isnan(gap)
    clipped = iterate_gap(loss, theta, 0.7, **common, clip=0.2)
    assert 0.0 < clipped <= 0.4 * math.hypot(1.0, 0.5) * (1 + 1e-9)


@pytest.mark.parametrize(("loss", "n_scores"), LOSSES)
def test_grows_with_the_radius_and_with_the_clip(loss, n_scores):
    rng = np.random.default_rng(1)
    theta = 3.0 * rng.standard_normal((n_scores, 4))

    def gap(r, clip):
        return iterate_gap(loss, theta, r, norm_bound=1.0, constant=0.5, clip=clip)

    gaps = [gap(r, 0.3) for r in np.linspace(0.0, 2.0, 21)]
    assert gaps[0] == 0.0
    assert (np.diff(gaps) >= -6e-3 * np.array(gaps[1:])).all()
    clips = [gap(0.8, c) for c in (0.01, 0.1, 0.5, 1.0, 2.0)]
    assert (np.diff(clips) >= -6e-3 * np.array(clips[1:])).all()
    assert clips[-1] <= gap(0.8, None) * 1.006 or loss == "squared_hinge"


def test_weights_with_a_large_common_part():
    """Products lose the digits of small differences; the bound must cover them."""
    rng = np.random.default_rng(0)
    for common in (1e3, 1e6, 1e9):
        small = rng.standard_normal((3, 6)) * 1e-6 * common
        small -= small.mean(axis=0)
        theta = small + common * np.array([1.0, -2.0, 3.0])[:, None] * np.eye(6)[0]
        known = iterate_gap_module._Softmax(Softmax(3), theta, Domain(1.0, 1e-9 / common))
        centred = (theta - theta.mean(axis=0)).astype(np.longdouble).astype(float)
        exact = 0.5 * np.linalg.svd(centred, compute_uv=False)[0] * 1e-9 / common
        assert known._residual_distance() >= exact * (1 - 1e-15)
        assert known._residual_distance() <= 1.1 * exact


@pytest.mark.parametrize("clip", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("slope", [3.0, 30.0])
def test_residuals_that_clipping_slows_down(clip, slope):
    """A pair at the edge of the clip, whose residuals turn as fast as clipped ones can."""
    r, constant, n_classes = 1e-3, 0.5, 4
    theta = np.zeros((n_classes, 3))
    theta[:2, 0] = slope * np.array([1.0, -1.0]) / math.sqrt(2.0)
    # All but two classes are out of reach; p - e_y has the length of the clip.
    wrong = clip / math.sqrt(2.0)
    theta[2:, 2], theta[0, 2] = -200.0, math.log((1.0 - wrong) / wrong) / constant
    gap = iterate_gap("softmax", theta, r, norm_bound=1.0, constant=constant, clip=clip)
    x, codes = np.linspace(0.0, 3.0 * r, 31), np.zeros(31, int)
    across = math.sqrt(1.0 - 16.0 * r**2)
    rows = [np.stack([x + move, np.full(31, across)], axis=1) for move in (0.0, r)]
    found = distances("softmax", theta, *rows, (codes, codes), constant, clip).max()
    assert found <= gap
    assert found >= (1.0 - clip) * 0.8 * gap


@pytest.mark.parametrize("cosine", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("constant", [0.0, 0.5])
def test_angle_bound_is_never_exceeded_and_attained(cosine, constant):
    """Any two residuals at that angle or less, any two rows: a search of vectors, not of models."""
    rng = np.random.default_rng(0)
    n = 200_000
    for r, least in ((0.3, 0.0), (0.9, 0.5), (1.4, 0.0), (2.0, 0.9), (1.4, 1.0)):
        bound = clipped_gap(1.0, Domain(1.0, r, constant), versine=1 - cosine, least=least)
        x, other = pairs(rng, n, 3, np.zeros((1, 3)), r, 1.0, constant)
        if constant:
            x, other = (np.hstack([v, np.full((n, 1), constant)]) for v in (x, other))
        k = np.where(rng.random(n) < 0.5, cosine, rng.uniform(cosine, 1.0, n))
        s, t = (rng.choice([least, 1.0, rng.uniform(least, 1.0)], n) for _ in range(2))
        square = s**2 * np.vecdot(x, x) + t**2 * np.vecdot(other, other)
        square -= 2 * s * t * k * np.vecdot(x, other)
        assert math.sqrt(square.max()) <= bound * (1 + 1e-12)
        assert math.sqrt(square.max()) >= 0.9 * bound


in_digits = np.vectorize(mpmath.mpf, otypes=[object])


def exact_gradient(loss, theta, row, code, clip):
    """The clipped gradient of one row, in the digits of mpmath."""
    scores, own = in_digits(theta) @ row, (np.arange(len(theta)) == code).astype(int)
    if loss == "softmax":
        powers = np.array([mpmath.exp(score) for score in scores])
        residual = powers / powers.sum() - own
    else:
        signs = 2 * own - 1
        residual = -2 * signs * np.maximum(1 - signs * scores, 0)
    size = mpmath.sqrt(np.sum(residual**2))
    return np.outer(residual * min(1, mpmath.mpf(clip) / max(size, mpmath.mpf("1e-50"))), row)


@pytest.mark.parametrize("clip", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("r", [1e-6, 1e-8, 1e-10])
@pytest.mark.parametrize("loss", ["softmax", "squared_hinge"])
def test_tiny_radii(loss, r, clip):
    """Small turns of a residual must not be lost to rounding; the oracle has sixty digits."""
    rng = np.random.default_rng(0)
    worst = 0.0
    with mpmath.workdps(60):
        for _ in range(15):
            theta = rng.choice([0.3, 2.0]) * rng.standard_normal((3, 2))
            gap = iterate_gap(loss, theta, r, norm_bound=1.0, constant=0.0, clip=clip)
            x = rng.standard_normal(2)
            x /= np.linalg.norm(x) * 1.0000001
            across = np.array([-x[1], x[0]]) * r * 0.999999
            rows = in_digits(x), in_digits(x) + in_digits(across)
            for code in range(3):
                first, second = (exact_gradient(loss, theta, row, code, clip) for row in rows)
                found = mpmath.sqrt(np.sum((first - second) ** 2))
                worst = max(worst, float(found / mpmath.mpf(gap)))
    assert 0.3 < worst <= 1 + 1e-9


def test_bad_input():
    given = {"loss": "logistic", "parameters": np.zeros((1, 1)), "radius": 1.0}
    for bad in (
        {"radius": -1.0},
        {"loss": "hinge"},
        {"parameters": [[np.nan]]},
        {"parameters": [[1e101]]},
    ):
        with pytest.raises(ValueError, match=r"radius|loss|parameters"):
            iterate_gap(**{**given, **bad}, norm_bound=1.0, constant=0.0)
    # Two classes share one head; stacking two would need the gap of both.
    with pytest.raises(ValueError, match="2 columns of scores"):
        iterate_gap("squared_hinge", np.zeros((2, 3)), 0.1, norm_bound=1.0, constant=0.0)
    with pytest.raises(ValueError, match="2 columns of scores"):
        gap_limits("squared_hinge", 0.1, n_scores=2, n_features=3, norm_bound=1.0, constant=0.0)


@pytest.mark.parametrize("constant", [0.0, 0.3])
@pytest.mark.parametrize("clip", [1e-4, 1e-8, 1e-12, 1e-16, 1e-25])
def test_tiny_clips(clip, constant):
    """A record outside the hinge, another clipped: the margin that parts them is lost in rounding.

    Both rows are exact; the distance of their gradients is clip times the norm of one.
    """
    theta = np.array([[2.0, 0.0, 0.0, 1.0]])[:, : 3 + int(constant > 0)]
    # Score 1 + 0: hinge zero. A step towards larger loss of any size is clipped.
    z = (1.0 - constant) / 2.0
    other = z - 0.25
    across = math.sqrt(1.0 - other**2)
    attained = clip * math.hypot(other, across, constant)
    gap = iterate_gap("squared_hinge", theta, 0.5, norm_bound=1.0, constant=constant, clip=clip)
    assert gap >= attained * (1.0 - 1e-14)
    assert gap <= attained * 1.02


@pytest.mark.parametrize("clip", [1e-25, 7.5e-11, 1e-6])
@pytest.mark.parametrize("slope", [1e2, 1e6, 4e9])
def test_tiny_clips_of_long_weights(clip, slope):
    """Margins that move by far more than the clip: one record outside, one clipped."""
    for radius in (1e-3, 0.5):
        theta = np.array([[slope, 0.0, 0.0]])
        gap = iterate_gap("squared_hinge", theta, radius, norm_bound=1.0, constant=0.0, clip=clip)
        # At score one the hinge ends; a step towards zero of any size is clipped.
        along = 1.0 / slope - 1e-9 * radius
        attained = clip * math.sqrt(1.0 - along**2)
        assert gap >= attained * (1.0 - 1e-6)
        assert gap <= 1.05 * clip


def test_margins_lost_in_rounding():
    """A record 3e-17 before the end of the hinge is at its end in float64, but it is clipped."""
    clip = 1e-20
    size = iterate_gap_module._hinge_size(clip)
    hidden = 0
    for weight in np.random.default_rng(0).uniform(1e-3, 2e-3, 50).tolist():
        intercept = 1.0 + weight
        # Fractions of floats are exact.
        inside = 1 + Fraction(weight) - Fraction(intercept)
        if weight - intercept == -1.0 and inside > Fraction(clip):
            hidden += 1
            assert size.value(np.asarray(weight - intercept)) == clip
    assert hidden > 5


def test_radii_whose_square_is_zero():
    """They have the bound of a larger radius, whose square has all its digits."""
    for loss, theta in (("logistic", [[1.0, 0.5]]), ("softmax", np.eye(3, 2))):
        gap = iterate_gap(loss, np.array(theta), 1e-170, norm_bound=1.0, constant=0.0)
        assert 0.2e-140 < gap < 5e-140


@pytest.mark.parametrize("n_classes", [2, 4])
def test_what_two_radii_share_holds_for_every_record(n_classes):
    """Residuals are no longer, and 1 - p_y no less, than stated; with two classes both are met."""
    rng = np.random.default_rng(n_classes)
    theta = 2.0 * rng.standard_normal((n_classes, 4))
    sizes, least, spectral = _softmax_sizes(theta.tobytes(), theta.shape, 1.0, 0.3)
    weights, offsets = theta[:, :-1], 0.3 * theta[:, -1]
    rows = rng.standard_normal((4000, 3))
    rows = np.vstack([rows, *(weights[:, None] - weights).reshape(1, -1, 3)])
    rows /= np.maximum(np.linalg.norm(rows, axis=1), 1e-12)[:, None]
    shares = softmax(rows @ weights.T + offsets, axis=1)
    left = 1.0 - shares
    found = np.sqrt(left**2 + (shares**2).sum(axis=1)[:, None] - shares**2).max(axis=0)
    assert (found <= sizes * (1.0 + 1e-9)).all()
    assert least <= left.min() * (1.0 + 1e-9)
    centred = np.linalg.norm(weights - weights.mean(axis=0), 2) ** 2
    assert centred <= spectral <= centred * (1.0 + 1e-6)
    if n_classes == 2:
        np.testing.assert_allclose(found, sizes, rtol=1e-9)
        np.testing.assert_allclose(left.min(), least, rtol=1e-9)
