"""Mean gradients: right, in any precision, and moved by one row as much as is accounted for."""

import itertools

import numpy as np
import pytest
from mean_gradients import Mean, as_computed
from scipy.special import expit, softmax

from sklearn_balldp.losses import make_loss
from sklearn_balldp.mechanisms import gradients
from sklearn_balldp.mechanisms.objective import LinearObjective
from sklearn_balldp.mechanisms.whitening import PublicMap
from sklearn_balldp.privacy import rounding
from sklearn_balldp.privacy.rounding import LEAST_KEPT, SUMMED, UNIT_ROUNDOFF
from sklearn_balldp.privacy.weights import uniform_weights

CASES = [("logistic", 2), ("softmax", 4), ("squared_hinge", 2), ("squared_hinge", 3)]


def norms_of(rows):
    """In the rows' own precision, which may be more than double."""
    return np.sqrt((rows**2).sum(axis=1, keepdims=True))


def projected(rows, bound):
    return rows * np.minimum(1, bound / np.maximum(norms_of(rows), 1e-300))


def representable(mean, thetas):
    """Parameters rounded to the rows' precision, where gradients are taken."""
    return thetas.astype(mean.dtype).astype(np.float64)


def data(n, n_classes, d=6, dtype=np.float64):
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=n)
    X = rng.standard_normal((n, d)) + rng.standard_normal((n_classes, d))[y]
    return (X / norms_of(X) * rng.uniform(0.5, 1.5, (n, 1))).astype(dtype), y


def naive(loss, X, y, theta, clip, constant):
    """Record by record, in float64."""
    X = projected(X.astype(np.float64), 1.0)
    augmented = np.hstack([X, np.full((len(X), int(constant > 0)), constant)])
    total = np.zeros(theta.shape)
    for row, code in zip(augmented, y, strict=True):
        s = theta @ row
        if loss == "softmax":
            a = softmax(s) - (np.arange(len(s)) == code)
        else:
            sign = 2.0 * (np.arange(len(s)) == code) - 1.0 if len(s) > 1 else 2.0 * code - 1.0
            hinge = -2 * sign * np.maximum(1 - sign * s, 0)
            a = -sign * expit(-sign * s) if loss == "logistic" else hinge
        if clip is not None:
            a = a * min(1.0, clip / max(np.linalg.norm(a), 1e-300))
        total += np.outer(a, row)
    return total / len(X)


@pytest.mark.parametrize(("clip", "constant"), [(None, 0.0), (0.2, 0.5)])
@pytest.mark.parametrize(("loss", "n_classes"), CASES)
@pytest.mark.kills(
    "losses.py",
    "    if residuals.shape[-1] == 1:\n        return np.clip(residuals, -clip, clip)\n",
    "    return residuals\n",
    attack="descent from zero",
)
def test_record_by_record(loss, n_classes, clip, constant):
    X, y = data(300, n_classes)
    mean = Mean(loss, X, y, n_classes, clip, constant)
    rng = np.random.default_rng(1)
    thetas = rng.standard_normal((5, *mean.shape)) * np.array([0, 0.3, 1, 5, 30])[:, None, None]
    for theta, gradient in zip(thetas, mean(thetas), strict=True):
        np.testing.assert_allclose(gradient, naive(loss, X, y, theta, clip, constant), atol=1e-12)
        np.testing.assert_allclose(mean(theta[None])[0], gradient, atol=1e-14)


@pytest.mark.parametrize(
    ("case", "dtype", "whitened", "kept"),
    [
        *itertools.product(CASES[1:2], (np.float32, np.float64), (False, True), (2**30, 0)),
        *itertools.product((CASES[0], *CASES[2:]), (np.float64,), (True,), (0,)),
    ],
)
def test_moved_rows_record_by_record(case, dtype, whitened, kept, whitening, monkeypatch):
    """Projected, moved, projected, whitened, projected, weighted: as one would do it row by row."""
    monkeypatch.setattr(gradients, "KEPT_BYTES", kept)
    loss, n_classes = case
    X, y = data(300, n_classes, dtype=dtype)
    centre, weights = np.full(6, 0.3), np.random.default_rng(2).uniform(0.5, 1.0, 300)
    norm = 0.45 if whitened else 0.6
    seen, matrix = whitening(centre, 0.6, whitened, norm)
    mean = Mean(loss, X, y, n_classes, 0.2, seen=seen, weights=weights)
    rows = projected(X.astype(np.float64), 1.0) - centre
    assert (np.linalg.norm(rows, axis=1) > 0.6).mean() > 0.3
    rows = projected(rows, 0.6) @ matrix
    assert ((np.linalg.norm(rows, axis=1) > norm + 1e-9).mean() > 0.1) == whitened
    rows = projected(rows, norm)
    thetas = np.random.default_rng(1).standard_normal((2, *mean.shape))
    for theta, gradient in zip(thetas, mean(thetas), strict=True):
        expected = sum(
            weight * naive(loss, rows[i : i + 1], y[i : i + 1], theta, 0.2, 0.5)
            for i, weight in enumerate(weights)
        )
        atol = 2e-12 if dtype == np.float64 else 6e-7
        np.testing.assert_allclose(gradient, expected / weights.sum(), atol=atol)


@pytest.mark.parametrize(("loss", "n_classes"), CASES[1:3])
def test_same_as_the_objective(loss, n_classes):
    X, y = data(20_000, n_classes, d=250, dtype=np.float32)  # on threads
    mean = Mean(loss, X, y, n_classes, constant=1.0)
    theta = representable(mean, np.random.default_rng(0).standard_normal((1, *mean.shape)))
    common = {"alpha": 0.0, "norm_bound": 1.0, "fit_intercept": True}
    exact = LinearObjective(loss, X, y, n_classes, **common).value_and_gradient(theta[0])[1]
    np.testing.assert_allclose(mean(theta)[0], exact, atol=2e-6)


@pytest.mark.parametrize(
    ("case", "clip", "dtype"),
    [
        *itertools.product(CASES[1:2], (None, 0.2), (np.float16, np.float32, np.float64)),
        *itertools.product((CASES[0], *CASES[2:]), (0.2,), (np.float32,)),
    ],
)
def test_one_row_moves_a_computed_mean_within_gap_and_rounding(case, clip, dtype):
    """Neighbours in the rows' own precision; rounding alone for equal rows is far smaller."""
    n, d, (loss, n_classes) = 1000, 64, case
    rng = np.random.default_rng(3)
    X, y = data(n, n_classes, d, dtype=dtype)
    for scale in (0.1, 3.0, 100.0):
        mean = Mean(loss, X, y, n_classes, clip)
        theta = representable(mean, scale * rng.standard_normal(mean.shape) / np.sqrt(d))
        place, other = int(rng.integers(n)), X.copy()
        step = rng.standard_normal(d)
        row = projected(X[place : place + 1].astype(np.float64), 1.0)[0]
        other[place] = row + 0.3 * step / np.linalg.norm(step)
        moved = Mean(loss, other, y, n_classes, clip)(theta[None]) - mean(theta[None])
        radius = np.linalg.norm(other[place].astype(float) - X[place].astype(float))
        assert np.linalg.norm(moved) <= mean.query(theta).ratio(mean.problem, radius, "public")


@pytest.mark.parametrize(
    ("case", "dtype"), [*((case, np.float32) for case in CASES), (CASES[1], np.float64)]
)
def test_rounding_covers_the_error_of_a_block(case, dtype):
    """A single block: what is computed against float64 sums of the same records, times n."""
    loss, n_classes = case
    X, y = data(SUMMED, n_classes, 200, dtype=dtype)
    X = projected(X, 1.0).astype(dtype)
    mean = Mean(loss, X, y, n_classes, 0.3)
    theta = representable(mean, 2.0 * np.random.default_rng(0).standard_normal(mean.shape))
    exact = naive(loss, X, y, theta, 0.3, 0.5)
    error = np.linalg.norm(mean(theta[None])[0] - exact) * len(X)
    # In single precision the bound is of one record's error, and of the sum's.
    n_errors = len(X) + 1 if dtype == np.float32 else 1
    assert error <= n_errors * mean.rounding(theta) * len(X)
    assert mean.rounding(theta) * len(X) < (0.01 if dtype == np.float32 else 1e-8)


@pytest.mark.parametrize("clip", [None, 0.2])
@pytest.mark.parametrize("scale", [0.0, 1e4])
def test_rounding_by_hand(scale, clip):
    """Every term of the documented bound in single precision, in which scores do not count."""
    n, d, constant = 5000, 30, 3.0
    X, y = data(n, 4, d, dtype=np.float32)
    mean = Mean("softmax", X, y, 4, clip, constant=constant)
    theta = representable(mean, scale * np.random.default_rng(0).standard_normal(mean.shape))
    u, augmented, largest = 2.0**-23, np.hypot(1.0, constant), np.sqrt(2.0)
    evaluation = 24 * u
    gradient = min(largest, clip or np.inf) * augmented
    block = 128**2 * u / 2 * gradient
    sums = 2 * n / 128 * 2.0**-53 * gradient
    # The clipped gradient, and the residual before it was clipped, whose angle may be wrong.
    expected = (evaluation * (gradient + largest * augmented) + block) / n + sums
    assert expected <= mean.rounding(theta) <= 1.02 * expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_of_whitened_rows_by_hand(dtype):
    """Norms that are differences, and products with the directions, in double precision."""
    n, d, v, norm = 5000, 400, 2.0**-53, 10.0
    common = {"n_samples": n, "n_features": d, "norm_bound": 1.0, "constant": 0.0, "clip": 0.2}
    common |= {"dtype": dtype, "weights": uniform_weights(n, None), "norm": norm}
    plain, mapped = (
        rounding.mean_rounding(make_loss("softmax", 4), **common, whitened=whitened)
        for whitened in (False, True)
    )
    k = min(d, 64)
    turned = 6 * (d + k + 4) * v
    # A third is the least factor along a direction.
    row = 4.5 * ((1 + 2 * np.sqrt(k)) * d + 2 * k + 16) * v + turned
    record = 0.2 * row
    if dtype == np.float64:
        # Scores count: every record may err.
        record = n * (record + 0.5 * row * norm)
    expected = record / n + 0.2 * turned
    assert mapped - plain == pytest.approx(expected, rel=1e-3, abs=0.0)


def test_rounding_of_several_heads_by_hand():
    """Residuals of one-versus-rest grow with parameters; errors of long rows multiply."""
    n, d, n_classes, v, norm = 50, 10**6, 5, 2.0**-53, 1e4
    common = {"n_samples": n, "n_features": d, "norm_bound": 1.0, "constant": 0.0, "clip": 0.2}
    common |= {"dtype": np.float64, "weights": uniform_weights(n, None), "norm": norm}
    stated = rounding.mean_rounding(make_loss("squared_hinge", n_classes), **common)
    largest = 2.0 * (1.0 + norm) * np.sqrt(n_classes)
    moved = ((d + 16) * v + 3.5 * (d + 12) * v) * norm
    expected = 2.0 * moved + 25 * 2 * v * largest
    assert expected <= stated * 1.0001
    assert stated <= 1.1 * expected


ORDERS = 40


@pytest.mark.parametrize("size", [1e6, 9e14])
@pytest.mark.kills(
    "mechanisms/gradients.py",
    "return gap / problem.effective_size + 2.0 * rounding",
    "return gap / problem.effective_size",
)
@pytest.mark.kills(
    "mechanisms/gradients.py",
    "            norm=norm,\n            n_samples",
    "            norm=0.0,\n            n_samples",
)
def test_in_double_precision_any_order_of_addition_is_covered(size):
    """Equal rows at the edge of the clip, weights across them: all records may differ at once."""
    n, d, rng, sums = 512, 64, np.random.default_rng(0), []
    row = rng.standard_normal(d)
    row /= np.linalg.norm(row)
    across = rng.standard_normal(d)
    across -= (across @ row) * row
    edge = np.log(0.2 / 0.8)
    weights = edge * row + size * across / np.linalg.norm(across)
    for _ in range(ORDERS):
        order = rng.permutation(d)
        score = 0.0
        for a, b in zip(row[order], weights[order], strict=True):
            score += a * b
        sums.append(min(expit(score), 0.2))
    apart = max(sums) - min(sums)
    weighted = {"n_samples": n, "n_features": d, "weights": uniform_weights(n, None)}
    common = {"norm_bound": 1.0, "constant": 0.0, "clip": 0.2, "dtype": np.float64}
    stated = rounding.mean_rounding(make_loss("logistic", 2), norm=size, **weighted, **common)
    assert apart <= 2.0 * stated
    without = rounding.mean_rounding(make_loss("logistic", 2), norm=0.0, **weighted, **common)
    assert apart > 2.0 * without
    # So does a query: where scores are large, all records move further than one ever could.
    mean = Mean("logistic", np.tile(row, (n, 1)), np.zeros(n, dtype=int), 2, 0.2, 0.0)
    stated, small = (
        mean.query(theta[None]).ratio(mean.problem, 1e-9, "public") for theta in (weights, row)
    )
    assert apart <= stated
    assert size < 1e14 or apart > small


def test_in_single_precision_the_gap_holds_for_wrong_scores():
    """Pairs whose scores are rounding alone stay within a bound that has no parameters in it."""
    rng, d, n, reached = np.random.default_rng(0), 64, 128, 0.0
    for loss, n_classes in CASES:
        for size in (1e3, 1e8, 9e14):
            X, y = data(n, n_classes, d, dtype=np.float32)
            X = projected(X, 0.999).astype(np.float32)
            mean = Mean(loss, X, y, n_classes, 0.2)
            theta = rng.standard_normal(mean.shape)
            theta[:, :-1] -= (theta[:, :-1] @ X[7])[:, None] * X[7] / (X[7] @ X[7])
            theta[:, -1] = 0.0
            theta = representable(mean, size / 3.0 * theta / np.linalg.norm(theta))
            for _ in range(5):
                other = X.copy()
                step = rng.standard_normal(d)
                other[7] += (1e-7 * step / np.linalg.norm(step)).astype(np.float32)
                moved = Mean(loss, other, y, n_classes, 0.2)(theta[None]) - mean(theta[None])
                radius = np.linalg.norm((other[7] - X[7]).astype(float))
                stated = mean.query(theta).ratio(mean.problem, radius, "public")
                assert np.linalg.norm(moved) <= stated
                reached = max(reached, np.linalg.norm(moved) / stated)
    assert reached > 0.5


@pytest.mark.parametrize("domain", ["ball", "sphere"])
@pytest.mark.parametrize("moved", [None, False, True])
@pytest.mark.parametrize(
    ("dtype", "kept"), [(np.float16, 0), (np.float32, 2**30), (np.float32, 0), (np.float64, 2**30)]
)
def test_a_row_moves_no_other_by_a_bit(dtype, moved, kept, domain, whitening, monkeypatch):
    """A record without weight: whatever row it has, inside or far outside, the sum is the same."""
    monkeypatch.setattr(gradients, "KEPT_BYTES", kept)
    n, d = 4 * SUMMED, 40
    X, y = data(n, 3, d, dtype=dtype)
    # No other row leaves the ball, or the smaller one.
    X = (0.1 + 0.3 * (0.99 * projected(X.astype(np.float64), 1.0) - 0.1)).astype(dtype)
    seen = None if moved is None else whitening(np.full(d, 0.1), 1.0, moved)[0]
    weights = np.ones(n)
    weights[200] = 0.0
    theta = np.random.default_rng(0).standard_normal((1, 3, d + 1)).astype(np.float16)
    sizes = {np.float16: (6e-8, 6e4), np.float32: (1e-45, 3e38), np.float64: (1e-99, 1e139)}[dtype]
    rows = [X[200], -X[200], 50 * X[200], np.zeros(d), *(np.full(d, size) for size in sizes)]
    sums = []
    for row in rows:
        other = X.copy()
        other[200] = row
        mean = Mean("softmax", other, y, 3, 0.2, seen=seen, weights=weights, domain=domain)
        sums.append(mean(theta.astype(np.float64)))
    for other in sums[1:]:
        np.testing.assert_array_equal(other, sums[0])


@pytest.mark.parametrize(("norm_bound", "clip"), [(1e38, 0.2), (1e-38, 0.2), (1.0, 1e-46)])
def test_extreme_public_numbers_are_computed_in_float64(norm_bound, clip):
    X, y = data(300, 2, dtype=np.float32)
    X = X * np.float32(min(norm_bound, 1e30))
    mean = Mean("logistic", X, y, 2, clip, norm_bound=norm_bound)
    assert mean.dtype == np.float64
    assert np.isfinite(mean(np.zeros((1, *mean.shape)))).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_any_size(dtype):
    """Rows near the largest number are projected before any product."""
    X, y = data(50, 2, 4, dtype=dtype)
    X[3] = np.finfo(dtype).max / 10
    X[4] = np.finfo(dtype).tiny
    X = np.clip(X, -1e140, 1e140) if dtype == np.float64 else X
    for norm_bound in (1.0, 1e-9):
        mean = Mean("logistic", X, y, 2, 0.2, norm_bound=norm_bound)
        assert np.isfinite(mean(np.ones((1, *mean.shape)))).all()
        norms = np.linalg.norm(as_computed(X, norm_bound=norm_bound), axis=1) / norm_bound
        assert norms.max() <= 1 + 1e-6
        # The factor of this row is too small for single precision.
        assert norms[3] == pytest.approx(1.0, rel=3e-7)


@pytest.mark.parametrize(
    ("dtype", "moved", "kept"),
    [
        *itertools.product((np.float16, np.float32, np.float64), (None, True), (2**30,)),
        (np.float32, True, 0),
        (np.float64, False, 0),
    ],
)
def test_rows_err_as_little_as_is_proved(dtype, moved, kept, whitening, monkeypatch):
    """Projected, moved and projected in their own precision; the longest and the shortest too."""
    monkeypatch.setattr(gradients, "KEPT_BYTES", kept)
    norm_bound, rng, d = 0.3, np.random.default_rng(0), 40
    centre = rng.standard_normal(d)
    centre *= np.sqrt(1.0 - norm_bound**2) / np.linalg.norm(centre)
    rows = centre + 0.1 * rng.standard_normal((200, d))
    rows *= rng.uniform(0.5, 2.0, (200, 1))
    rows[0], rows[1], rows[2] = np.finfo(dtype).max / 10, np.finfo(dtype).tiny, 0.0
    rows = np.clip(rows, -1e140, 1e140).astype(dtype)
    precision = np.float64 if dtype == np.float64 else np.float32
    seen, matrix = whitening(centre, norm_bound, bool(moved), 0.7 * norm_bound if moved else None)
    used = {"norm_bound": norm_bound} if moved is None else {"seen": seen}
    computed, exact = as_computed(rows, **used), rows.astype(np.longdouble)
    if moved is not None:
        exact = projected(exact, 1.0) - centre.astype(precision)
    exact = projected(exact, norm_bound)
    if moved:
        assert (norms_of(exact @ matrix) > seen.norm).mean() > 0.1
        exact = projected(exact @ matrix, seen.norm)
    error = np.linalg.norm((computed - exact).astype(float), axis=1).max() / norm_bound
    if precision == np.float64:
        allowed = 3.5 * (d + 12)
        if moved:
            allowed += 6 * (d + 6) + 0.5 * ((1 + 2 * np.sqrt(d)) * d + 96) / LEAST_KEPT**2
        assert error <= allowed * UNIT_ROUNDOFF
    else:
        assert (0.5 if moved is None else 1.0) * 2.0**-24 < error <= 5 * 2.0**-23


@pytest.mark.parametrize("n_directions", [0, 3, 12])
@pytest.mark.parametrize(("dtype", "slack"), [(np.float64, 1e-12), (np.float32, 3e-7)])
@pytest.mark.kills(
    "mechanisms/whitening.py",
    "return self._scaled(weights, self.factors - 1.0)",
    "return 1.05 * self._scaled(weights, self.factors - 1.0)",
    attack="descent from sums",
)
def test_rows_stay_in_the_smaller_ball_and_move_no_further_apart(n_directions, dtype, slack):
    """What the gaps at tau rest on: rows of any norm, any map, in both precisions."""
    rng, d = np.random.default_rng(0), 12
    for _ in range(5):
        X = (rng.standard_normal((20, d)) * rng.choice([0.01, 0.3, 3.0], (20, 1))).astype(dtype)
        other = (X + rng.choice([1e-3, 0.5]) * rng.standard_normal(X.shape)).astype(dtype)
        centre = rng.standard_normal(d)
        centre *= rng.uniform(0.2, 1.0) / np.linalg.norm(centre)
        reach = max(np.sqrt(1.0 - centre @ centre), 0.3)
        directions = np.linalg.qr(rng.standard_normal((d, d)))[0][:, :n_directions]
        factors = rng.uniform(LEAST_KEPT, 1.0, n_directions)
        tau = reach * rng.uniform(0.5, 1.0)
        seen = PublicMap(centre, directions, factors, reach, tau)
        moved = [as_computed(rows, seen=seen) for rows in (X, other)]
        assert (np.linalg.norm(moved[0], axis=1) <= tau * (1.0 + slack)).all()
        apart = np.linalg.norm((X - other).astype(np.float64), axis=1)
        assert (np.linalg.norm(moved[0] - moved[1], axis=1) <= apart + slack).all()
        inside = np.linalg.norm(X, axis=1) <= 1.0
        by_hand = projected(X.astype(np.float64) - centre, reach)
        by_hand = by_hand @ (np.eye(d) + (directions * (factors - 1.0)) @ directions.T)
        by_hand = projected(by_hand, tau)[inside]
        np.testing.assert_allclose(moved[0][inside], by_hand, atol=1e-6)
        # As an audit sees them.
        np.testing.assert_allclose(seen.place(X[inside].astype(float)), by_hand, atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_rows(bad):
    X, y = data(50, 2)
    X[7, 1] = bad
    with pytest.raises(FloatingPointError):
        Mean("logistic", X, y, 2, 0.2)
