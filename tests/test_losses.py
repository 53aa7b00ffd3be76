"""What losses state of themselves, against the loss: constants that proofs rest on."""

import mpmath
import numpy as np
import pytest
from scipy.special import expit, softmax

from sklearn_balldp.losses import LOSSES, make_loss

CASES = [("logistic", 2), *(("softmax", k) for k in (2, 3, 9))]
CASES += [("squared_hinge", k) for k in (2, 4)]
RNG = np.random.default_rng(0)


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{case[1]}")
def loss(request):
    return make_loss(*request.param)


def residuals(loss, scores, codes):
    """Derivatives by score, by the definition of each loss."""
    if loss.name == "softmax":
        return softmax(scores, axis=1) - np.eye(loss.n_classes)[codes]
    signs = np.full(scores.shape, -1.0)
    if loss.n_scores == 1:
        signs = (2.0 * codes - 1.0)[:, None]
    else:
        signs[np.arange(len(scores)), codes] = 1.0
    if loss.name == "logistic":
        return -signs * expit(-signs * scores)
    return -2.0 * signs * np.maximum(1.0 - signs * scores, 0.0)


def drawn(loss, n=20_000):
    scale = RNG.choice([0.0, 0.1, 1.0, 4.0, 30.0], size=(n, 1))
    scores = scale * RNG.standard_normal((n, loss.n_scores))
    return scores, RNG.integers(loss.n_classes, size=n)


def test_residuals_in_both_forms_and_the_value_at_zero(loss):
    scores, codes = drawn(loss, 500)
    expected = residuals(loss, scores, codes)
    np.testing.assert_allclose(loss.evaluate(scores.copy(), codes)[1], expected, atol=1e-12)
    found = loss.residuals(scores[:, None].copy(), codes)[:, 0]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    value = loss.evaluate(np.zeros((3, loss.n_scores)), np.array([0, 1, 0]))[0]
    assert value.sum() == pytest.approx(3 * loss.value_at_zero)


def test_level(loss):
    """Largest mean of -<residual, scores> of one problem: attained, and by no more than it says."""
    scores, codes = drawn(loss)
    inner = -(residuals(loss, scores, codes) * scores)
    worst = inner.sum(axis=1) if loss.n_stacked == 1 else inner.max(axis=1)
    assert worst.max() <= loss.norm_constant * (1 + 1e-12)

    def along(m):
        """The label ahead of the others by m."""
        line = np.full((1, loss.n_scores), -m / 2)
        line[0, -1] = m if loss.n_scores == 1 else m / 2
        code = np.array([loss.n_classes - 1])
        return -(residuals(loss, line, code) * line)[0, -1 if loss.n_stacked > 1 else None :].sum()

    best = max(along(m) for m in np.linspace(0.0, 6.0, 6001))
    assert best == pytest.approx(loss.norm_constant, rel=1e-6)


def test_levels_are_lamberts():
    with mpmath.workdps(30):
        assert make_loss("logistic", 2).norm_constant == pytest.approx(
            float(mpmath.lambertw(1 / mpmath.e))
        )
        for k in (2, 3, 50):
            expected = float(mpmath.lambertw((k - 1) / mpmath.e))
            assert make_loss("softmax", k).norm_constant == pytest.approx(expected)


def test_curvature(loss):
    """No two residuals are further apart than the curvature times the scores; some come close."""
    scores, codes = drawn(loss)
    step = 1e-4 * RNG.standard_normal(scores.shape)
    if loss.n_scores > 1:
        # The worst direction of softmax: two scores that agree and share the probability.
        scores[:100] = np.r_[0.0, 0.0, np.full(loss.n_scores - 2, -40.0)]
        step[:100] = 1e-4 * np.r_[1.0, -1.0, np.zeros(loss.n_scores - 2)]
    else:
        scores[:100] = 0.0
    moved = residuals(loss, scores + step, codes) - residuals(loss, scores, codes)
    ratio = np.linalg.norm(moved, axis=1) / np.linalg.norm(step, axis=1)
    assert ratio.max() <= loss.curvature * (1 + 1e-6)
    assert ratio.max() >= 0.99 * loss.curvature


@pytest.mark.parametrize("reach", [0.0, 0.7, 3.0, 40.0])
@pytest.mark.kills(
    "losses.py",
    "return float(np.max(expit(math.log(rest) + high) * np.sqrt(1.0 + shared)))",
    "return float(np.max(expit(math.log(rest) + high) * np.sqrt(1.0 + shared))) / 1.05",
)
def test_residual_limits(loss, reach):
    """Of one problem while the scores of a record are at most ``reach`` long."""
    scores = RNG.uniform(-1.0, 1.0, (20_000, loss.n_scores))
    scores[:2000] = np.sign(scores[:2000])
    if loss.n_scores > 2:
        # One score against another, and the others alike.
        scores[2000:6000, 2:] = scores[2000:6000, 2:3]
    if loss.n_stacked == 1:
        scores /= np.linalg.norm(scores, axis=1, keepdims=True)
    scores *= reach
    found = residuals(loss, scores, RNG.integers(loss.n_classes, size=20_000))
    sizes = np.abs(found) if loss.n_stacked > 1 else np.linalg.norm(found, axis=1)
    assert sizes.max() <= loss.residual_peak(reach) * (1 + 1e-12)
    assert loss.residual_peak(reach) <= loss.residual_limit(reach)
    assert np.abs(found).max() <= loss.score_residual_limit(reach) * (1 + 1e-12)
    assert sizes.max() >= (0.84 if loss.name == "softmax" else 0.999) * loss.residual_peak(reach)


@pytest.mark.parametrize("name", ["logistic", "squared_hinge"])
def test_sizes_of_one_score_rise_with_it(name):
    """Of the class that a larger score is further from."""
    loss, scores = make_loss(name, 2), np.sort(10.0 * RNG.standard_normal((1000, 1)), axis=0)
    sizes = loss.residual_sizes(scores[:, 0])
    found = residuals(loss, scores, np.zeros(1000, dtype=int))[:, 0]
    np.testing.assert_allclose(np.abs(found), sizes, atol=1e-15)
    assert (np.diff(sizes) >= 0.0).all()


@pytest.mark.kills(
    "losses.py", "return larger, expit(high), apart", "return larger, expit(low), apart"
)
@pytest.mark.kills(
    "losses.py", "np.minimum(high + distance, reach)", "np.minimum(low + distance, reach)"
)
@pytest.mark.kills("losses.py", "-0.5 * distance", "0.5 * distance")
@pytest.mark.kills("losses.py", "[longest, longest - apart]", "[longest - apart, longest - apart]")
@pytest.mark.parametrize("reach", [0.05, 0.7, 3.0, 50.0])
@pytest.mark.parametrize("share", [1e-6, 0.01, 0.3, 2.0])
def test_some_case_bounds_each_pair_of_residuals(loss, reach, share):
    """For forms of the kind that gaps are: of the move squared, and of products of sizes."""
    one = make_loss(loss.name, 2) if loss.n_stacked > 1 else loss
    n, distance = 4000, share * reach
    first = RNG.uniform(-1.0, 1.0, (n, one.n_scores))
    first[:1000] = np.sign(first[:1000])
    first *= reach / np.linalg.norm(first, axis=1, keepdims=True) * RNG.uniform(size=(n, 1)) ** 0.1
    step = RNG.standard_normal((n, one.n_scores))
    second = first + step * distance / np.linalg.norm(step, axis=1, keepdims=True)
    second *= np.minimum(1.0, reach / np.linalg.norm(second, axis=1, keepdims=True))
    if one.n_scores == 1:
        # Where a sigmoid rises most.
        first[:100], second[:100] = -0.5 * distance, 0.5 * distance
    codes = RNG.integers(one.n_classes, size=n)
    a, b = (residuals(one, scores, codes) for scores in (first, second))
    sizes = np.sort([np.linalg.norm(v, axis=1) for v in (a, b)], axis=0)
    found = sizes[1], sizes[0], np.linalg.norm(a - b, axis=1)
    stated = one.residual_pairs(reach, distance)

    def form(pair, square, drop, near):
        larger, smaller, apart = pair
        return np.max(apart**2 * square + apart * smaller * drop + larger * smaller * near)

    for factors in [(1.0, 0.0, 0.0), (1.0, 1.0, 0.0), (0.0, 0.0, 1.0), (9.0, 0.1, 0.01)]:
        assert form(found, *factors) <= form(stated, *factors) * (1 + 1e-10) + 1e-15


@pytest.mark.kills(
    "losses.py",
    "    versine = 0.5\n",
    "    versine = 0.25\n",
    attack="gap at any parameters, softmax",
)
def test_angle_between_residuals_of_one_label(loss):
    scores, codes = drawn(loss, 40_000)
    found = residuals(loss, scores, np.zeros_like(codes))
    a, b = found[::2], found[1::2]
    sizes = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    kept = sizes > 1e-8  # p - e_y has lost its digits where p_y rounds to one
    versine = 1.0 - np.vecdot(a[kept], b[kept]) / sizes[kept]
    assert versine.max() <= loss.versine + 1e-7
    if loss.n_classes > 3:
        assert versine.max() >= 0.9 * loss.versine


def test_mean_residual_of_a_minimiser():
    """The mean of 2h is at most 2 where the mean of h^2 is at most the objective at zero."""
    assert make_loss("squared_hinge", 2).mean_residual == 2.0
    assert make_loss("logistic", 2).mean_residual == make_loss("logistic", 2).residual_limit()
    assert make_loss("softmax", 5).mean_residual == make_loss("softmax", 5).residual_limit()


def test_unknown_loss():
    with pytest.raises(ValueError, match=r"loss must be one of logistic.*'hinge'"):
        make_loss("hinge", 2)
    # The constants of each are compared with it here.
    assert set(LOSSES) == {name for name, _ in CASES}
