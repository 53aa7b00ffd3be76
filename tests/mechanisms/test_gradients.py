"""Mean gradients: right, in any precision, and moved by one row as much as is accounted for."""

import itertools

import numpy as np
import pytest
from mean_gradients import Mean
from scipy.special import expit, softmax

import sklearn_balldp.mechanisms.gradients as gradients_module
from sklearn_balldp.losses import make_loss
from sklearn_balldp.mechanisms.objective import LinearObjective
from sklearn_balldp.privacy import rounding
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


def data(n, n_classes, d=6, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    X = rng.standard_normal((n, d)) + rng.standard_normal((n_classes, d))[y]
    return (X / np.linalg.norm(X, axis=1, keepdims=True) * rng.uniform(0.5, 1.5, (n, 1))).astype(
        dtype
    ), y


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
def test_record_by_record(loss, n_classes, clip, constant):
    X, y = data(300, n_classes)
    mean = Mean(loss, X, y, n_classes, clip, constant)
    assert not np.shares_memory(mean.kept, X)
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
    monkeypatch.setattr(gradients_module, "KEPT_BYTES", kept)
    loss, n_classes = case
    X, y = data(300, n_classes, dtype=dtype)
    centre, weights = np.full(6, 0.3), np.random.default_rng(2).uniform(0.5, 1.0, 300)
    norm = 0.45 if whitened else 0.6
    own, matrix = whitening(centre, 0.6, whitened, norm)
    mean = Mean(loss, X, y, n_classes, 0.2, seen=own, weights=weights)
    rows = projected(X.astype(np.float64), 1.0) - centre
    assert (np.linalg.norm(rows, axis=1) > 0.6).mean() > 0.3
    rows = projected(rows, 0.6) @ matrix
    assert ((np.linalg.norm(rows, axis=1) > norm + 1e-9).mean() > 0.1) == whitened
    rows = projected(rows, norm)
    thetas = np.random.default_rng(1).standard_normal((2, *mean.shape))
    for theta, found in zip(thetas, mean(thetas), strict=True):
        expected = sum(
            weight * naive(loss, rows[i : i + 1], y[i : i + 1], theta, 0.2, 0.5)
            for i, weight in enumerate(weights)
        )
        atol = 1e-12 if dtype == np.float64 else 3e-7
        np.testing.assert_allclose(found, expected / weights.sum(), atol=2.0 * atol)


@pytest.mark.parametrize(("loss", "n_classes"), CASES)
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
    X, y = data(gradients_module.SUMMED, n_classes, 200, dtype=dtype)
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
    """Every term of the documented bound: scores, residuals, the block, and sums in float64."""
    n, d, constant = 5000, 30, 3.0
    X, y = data(n, 4, d, dtype=np.float32)
    mean = Mean("softmax", X, y, 4, clip, constant=constant)
    theta = representable(mean, scale * np.random.default_rng(0).standard_normal(mean.shape))
    u, augmented, largest = 2.0**-23, np.hypot(1.0, constant), np.sqrt(2.0)
    reach = np.linalg.norm(theta[:, :-1]) + constant * np.linalg.norm(theta[:, -1])
    evaluation = 24 * u
    rate = 0.5 if clip is None else np.sqrt(2) * clip
    residual = rate * (d + 16) * u / 2 * reach + evaluation * largest
    gradient = min(largest, clip or np.inf) * augmented
    block = 128**2 * u / 2 * gradient
    sums = 2 * n / 128 * 2.0**-53 * gradient
    expected = (residual * augmented + evaluation * gradient + block) / n + sums
    assert expected <= mean.rounding(theta) <= 1.02 * expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rounding_of_whitened_rows_by_hand(dtype):
    """Norms that are differences, and products with the directions, in double precision."""
    n, d, v = 5000, 400, 2.0**-53
    theta = 5.0 * np.random.default_rng(0).standard_normal((4, d)) / np.sqrt(d)
    common = {"n_samples": n, "n_features": d, "norm_bound": 1.0, "constant": 0.0, "clip": 0.2}
    common |= {"dtype": dtype, "weights": uniform_weights(n, None)}
    found = [
        rounding.mean_rounding(make_loss("softmax", 4), theta, **common, whitened=own)
        for own in (False, True)
    ]
    k = min(d, 64)
    turned = 6 * (d + k + 4) * v
    # A third is the least factor along a direction.
    row = 4.5 * ((1 + 2 * np.sqrt(k)) * d + 2 * k + 16) * v + turned
    record = np.sqrt(2) * 0.2 * row * np.linalg.norm(theta) + 0.2 * row
    expected = record / (n if dtype == np.float32 else 1) + 0.2 * turned
    assert found[1] - found[0] == pytest.approx(expected, rel=1e-3, abs=0.0)


def test_rounding_of_several_heads_by_hand():
    """Residuals of one-versus-rest are as many as classes; errors of long rows multiply."""
    n, d, n_classes, v = 5000, 10**6, 5, 2.0**-24
    theta = np.zeros((n_classes, d))
    theta[:, 0] = 10.0
    common = {"n_samples": n, "n_features": d, "norm_bound": 1.0, "constant": 0.0, "clip": None}
    loss = make_loss("squared_hinge", n_classes)
    common |= {"dtype": np.float32, "weights": uniform_weights(n, None)}
    found = rounding.mean_rounding(loss, theta, **common)
    reach = 10.0 * np.sqrt(n_classes)
    largest = 2.0 * (1.0 + reach) * np.sqrt(n_classes)
    scores = np.expm1((d + 16) * v) * reach
    evaluation = 2 * 25 * 2 * v * largest
    expected = (2.0 * scores + evaluation + 128**2 * v * largest) / n
    assert expected <= found * 1.0001
    assert found <= 1.1 * expected


@pytest.mark.parametrize(
    ("dtype", "moved", "kept"),
    [
        *itertools.product((np.float16, np.float64), (None, True), (0,)),
        (np.float32, True, 2**30),
        (np.float32, False, 0),
    ],
)
def test_other_blocks_do_not_move_by_a_bit(dtype, moved, kept, whitening, monkeypatch):
    """A new row, inside the ball or far outside, changes its own block's sum alone."""
    monkeypatch.setattr(gradients_module, "KEPT_BYTES", kept)
    n, d, size = 1024, 40, gradients_module.SUMMED
    X, y = data(n, 3, d, dtype=dtype)
    X = (0.99 * projected(X.astype(np.float64), 1.0)).astype(dtype)
    if moved is not None:
        # No other row leaves the smaller ball.
        X = (0.1 + 0.3 * (X - 0.1)).astype(dtype)
    own = None if moved is None else whitening(np.full(40, 0.1), 1.0, bool(moved))[0]
    original, sums = gradients_module.block_sums, []

    def recorded(residuals, rows=None):
        for i in range(0, len(residuals), size):
            block = None if rows is None else rows[i : i + size]
            sums.append(original(residuals[i : i + size], block).ravel())
        return original(residuals, rows)

    monkeypatch.setattr(gradients_module, "block_sums", recorded)
    theta = np.random.default_rng(0).standard_normal((1, 3, d + 1)).astype(np.float16)
    seen = []
    for row in (X[200], -X[200], 50 * X[200], np.zeros(d)):
        other = X.copy()
        other[200] = row
        sums.clear()
        Mean("softmax", other, y, 3, 0.2, seen=own)(theta.astype(np.float64))
        seen.append(list(sums))
    # Of the intercepts first, then of the rows.
    where = np.tile(np.arange(n // size), 2) != 200 // size
    for other in seen[1:]:
        same = [np.array_equal(*pair) for pair in zip(other, seen[0], strict=True)]
        np.testing.assert_array_equal(same, where)


@pytest.mark.parametrize(("norm_bound", "clip"), [(1e38, 0.2), (1e-38, 0.2), (1.0, 1e-46)])
def test_extreme_public_numbers_are_computed_in_float64(norm_bound, clip):
    X, y = data(300, 2, dtype=np.float32)
    X = X * np.float32(min(norm_bound, 1e30))
    mean = Mean("logistic", X, y, 2, clip, norm_bound=norm_bound)
    assert mean.kept.dtype == np.float64
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
        (part,) = mean.table.each(lambda part: part)
        # Longer rows wait for the products that their factors multiply.
        norms = np.linalg.norm(mean.kept.astype(np.float64), axis=1) / norm_bound
        norms *= part.column("last")
        assert norms.max() <= 1 + 1e-6
        assert part.column("last")[3] == 1.0
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
def test_stored_rows_err_as_little_as_is_proved(dtype, moved, kept, whitening, monkeypatch):
    """Projected, moved and projected in their own precision; the longest and the shortest too."""
    monkeypatch.setattr(gradients_module, "KEPT_BYTES", kept)
    norm_bound, rng = 0.3, np.random.default_rng(0)
    centre = rng.standard_normal(40)
    centre *= np.sqrt(1.0 - norm_bound**2) / np.linalg.norm(centre)
    rows = centre + 0.1 * rng.standard_normal((2000, 40))
    rows *= rng.uniform(0.5, 2.0, (2000, 1))
    rows[0], rows[1], rows[2] = np.finfo(dtype).max / 10, np.finfo(dtype).tiny, 0.0
    rows = np.clip(rows, -1e140, 1e140).astype(dtype)
    own, matrix = whitening(centre, norm_bound, bool(moved), 0.7 * norm_bound if moved else None)
    used = {"norm_bound": own.norm} if moved is None else {"seen": own}
    mean = Mean("logistic", rows, np.arange(len(rows)) % 2, 2, 0.1, **used)
    (part,) = mean.table.each(lambda part: part)
    stored = np.concatenate([block.copy() for _, block in mean.passes._pass._chunks(part)])
    assert stored.dtype == mean.dtype
    # Scores and gradients are scaled instead.
    stored = stored * part.column("last").astype(stored.dtype)[:, None]
    exact = rows.astype(np.longdouble)
    if moved is not None:
        exact = projected(exact, 1.0) - centre.astype(mean.dtype)
    exact = projected(exact, norm_bound)
    if moved:
        lengths = norms_of(exact @ matrix)
        assert (lengths > own.norm).mean() > 0.1
        exact *= np.minimum(1, own.norm / np.maximum(lengths, 1e-300))
    error = np.linalg.norm((stored - exact).astype(float), axis=1).max() / norm_bound
    if mean.dtype == np.float64:
        allowed = rounding._CENTRING_FACTOR * (40 + 12)
        if moved:
            allowed += 0.5 * ((1 + 2 * np.sqrt(40)) * 40 + 96) / rounding.LEAST_KEPT**2
        assert error <= allowed * rounding.UNIT_ROUNDOFF
    else:
        assert (0.5 if moved is None else 1.9) * 2.0**-24 < error <= 5 * 2.0**-23


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_rows(bad):
    X, y = data(50, 2)
    X[7, 1] = bad
    with pytest.raises(FloatingPointError):
        Mean("logistic", X, y, 2)
