"""Mean gradients: right, and moved by one row as much as is accounted for."""

import itertools

import numpy as np
import pytest
from mean_gradients import Mean, as_computed
from scipy.special import expit, softmax

from sklearn_balldp.losses import make_loss
from sklearn_balldp.mechanisms import gradients
from sklearn_balldp.mechanisms.whitening import PublicMap
from sklearn_balldp.privacy import rounding
from sklearn_balldp.privacy.rounding import LEAST_KEPT, UNIT_ROUNDOFF
from sklearn_balldp.privacy.weights import uniform_weights
from sklearn_balldp.rows.passes import results

CASES = [("logistic", 2), ("softmax", 4), ("squared_hinge", 2), ("squared_hinge", 3)]


def norms_of(rows):
    """In the rows' own precision, which may be more than double."""
    return np.sqrt((rows**2).sum(axis=1, keepdims=True))


def projected(rows, bound):
    return rows * np.minimum(1, bound / np.maximum(norms_of(rows), 1e-300))


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
        np.testing.assert_allclose(gradient, expected / weights.sum(), atol=2e-12)


def test_rounding_of_whitened_rows_by_hand():
    """Norms that are differences, and products with the directions."""
    n, d, v, norm = 5000, 400, 2.0**-53, 10.0
    common = {"n_samples": n, "n_features": d, "norm_bound": 1.0, "constant": 0.0, "clip": 0.2}
    common |= {"weights": uniform_weights(n, None), "norm": norm}
    plain, mapped = (
        rounding.mean_rounding(make_loss("softmax", 4), **common, whitened=whitened)
        for whitened in (False, True)
    )
    k = min(d, 64)
    turned = 6 * (d + k + 4) * v
    # A third is the least factor along a direction.
    row = 4.5 * ((1 + 2 * np.sqrt(k)) * d + 2 * k + 16) * v + turned
    # Scores count: every record may err.
    expected = 0.2 * row + 0.5 * row * norm + 0.2 * turned
    assert mapped - plain == pytest.approx(expected, rel=1e-3, abs=0.0)


def test_rounding_of_several_heads_by_hand():
    """Residuals of one-versus-rest grow with parameters; errors of long rows multiply."""
    n, d, n_classes, v, norm = 50, 10**6, 5, 2.0**-53, 1e4
    common = {"n_samples": n, "n_features": d, "norm_bound": 1.0, "constant": 0.0, "clip": 0.2}
    common |= {"weights": uniform_weights(n, None), "norm": norm}
    stated = rounding.mean_rounding(make_loss("squared_hinge", n_classes), **common)
    largest = 2.0 * (1.0 + norm) * np.sqrt(n_classes)
    moved = ((d + 16) * v + 3.5 * (d + 12) * v) * norm
    expected = 2.0 * moved + 25 * 2 * v * largest
    assert expected <= stated * 1.0001
    assert stated <= 1.1 * expected


ORDERS = 40


@pytest.mark.parametrize("size", [1e6, 9e14])
@pytest.mark.kills("mechanisms/gradients.py", ".effective_size + 2.0 * rounding", ".effective_size")
@pytest.mark.kills("mechanisms/gradients.py", "            norm=norm,\n", "            norm=0.0,\n")
def test_any_order_of_addition_is_covered(size):
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
    common = {"norm_bound": 1.0, "constant": 0.0, "clip": 0.2}
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


@pytest.mark.parametrize(
    ("dtype", "moved", "kept"),
    [
        *itertools.product((np.float16, np.float32, np.float64), (None, True), (2**30,)),
        (np.float32, True, 0),
        (np.float64, False, 0),
    ],
)
def test_rows_err_as_little_as_is_proved(dtype, moved, kept, whitening, monkeypatch):
    """Projected, moved and projected; the longest and the shortest too."""
    monkeypatch.setattr(gradients, "KEPT_BYTES", kept)
    norm_bound, rng, d = 0.3, np.random.default_rng(0), 40
    centre = rng.standard_normal(d)
    centre *= np.sqrt(1.0 - norm_bound**2) / np.linalg.norm(centre)
    rows = centre + 0.1 * rng.standard_normal((200, d))
    rows *= rng.uniform(0.5, 2.0, (200, 1))
    rows[0], rows[1], rows[2] = np.finfo(dtype).max / 10, np.finfo(dtype).tiny, 0.0
    rows = np.clip(rows, -1e140, 1e140).astype(dtype)
    seen, matrix = whitening(centre, norm_bound, bool(moved), 0.7 * norm_bound if moved else None)
    used = {"norm_bound": norm_bound} if moved is None else {"seen": seen}
    computed, exact = as_computed(rows, **used), rows.astype(np.longdouble)
    if moved is not None:
        exact = projected(exact, 1.0) - centre
    exact = projected(exact, norm_bound)
    if moved:
        assert (norms_of(exact @ matrix) > seen.norm).mean() > 0.1
        exact = projected(exact @ matrix, seen.norm)
    error = np.linalg.norm((computed - exact).astype(float), axis=1).max() / norm_bound
    allowed = 3.5 * (d + 12)
    if moved:
        allowed += 6 * (d + 6) + 0.5 * ((1 + 2 * np.sqrt(d)) * d + 96) / LEAST_KEPT**2
    assert error <= allowed * UNIT_ROUNDOFF


@pytest.mark.parametrize("n_directions", [0, 3, 12])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.kills(
    "mechanisms/whitening.py",
    "return self._scaled(weights, self.factors - 1.0)",
    "return 1.05 * self._scaled(weights, self.factors - 1.0)",
    attack="descent from sums",
)
def test_rows_stay_in_the_smaller_ball_and_move_no_further_apart(n_directions, dtype):
    """What the gaps at tau rest on: rows of any norm, any map, stored in both precisions."""
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
        assert (np.linalg.norm(moved[0], axis=1) <= tau * (1.0 + 1e-12)).all()
        apart = np.linalg.norm(X.astype(np.float64) - other, axis=1)
        assert (np.linalg.norm(moved[0] - moved[1], axis=1) <= apart + 1e-12).all()
        inside = np.linalg.norm(X, axis=1) <= 1.0
        by_hand = projected(X.astype(np.float64) - centre, reach)
        by_hand = by_hand @ (np.eye(d) + (directions * (factors - 1.0)) @ directions.T)
        by_hand = projected(by_hand, tau)[inside]
        np.testing.assert_allclose(moved[0][inside], by_hand, atol=1e-12)


@pytest.mark.parametrize(("k", "most"), [(4, 4096), (1000, 1048), (10_000, 104)])
def test_a_pass_holds_the_scores_of_few_rows(k, most):
    """More would take gigabytes on several threads."""
    n, d = 20_000, 8
    mean = Mean("softmax", np.ones((n, d)), np.arange(n) % k, k, 0.2)
    at = mean.passes._at(np.zeros((k, d + 1)))
    sizes = []

    def counted(block):
        sizes.append(len(block))

    counted.width = at.width
    list(results(counted, np.ones((n, d))))
    assert sum(sizes) == n
    assert max(sizes) == most
