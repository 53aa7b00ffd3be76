"""Gaps of gradients: check values, searches that try to exceed them, and cells in sixty digits."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, softmax

import sklearn_balldp.privacy.gaps as gaps_module
from sklearn_balldp.adjacency import RowGeometry
from sklearn_balldp.losses import Softmax, make_loss
from sklearn_balldp.mechanisms import Minimiser
from sklearn_balldp.privacy import Problem
from sklearn_balldp.privacy.gaps import (
    _RESIDUAL_SIZES,
    _hinge_size,
    _OneScore,
    _softmax_sizes,
    clipped_gap,
    gradient_gap,
    iterate_gap,
    limits_over_iterates,
    minimizer_norm_bound,
    share_move,
)

# loss, K, intercept, alpha, r, paper, G, least value that a search has reached (None: unknown)
CHECK_VALUES = [
    ("logistic", 2, True, 0.1, 0.3, 1.80, 0.318, None),
    ("logistic", 2, True, 0.1, 1.25, 7.50, 1.142, 1.116),
    ("logistic", 2, True, 0.1, 2.0, 12.0, 1.827, 1.683),
    ("logistic", 2, True, 0.01, 0.3, 15.3, 0.608, None),
    ("logistic", 2, True, 0.01, 0.5, 25.5, 0.904, 0.857),
    ("logistic", 2, True, 0.01, 1.25, 63.75, 1.355, 1.348),
    ("logistic", 2, True, 0.01, 2.0, 102.0, 1.999, 1.990),
    ("softmax", 3, True, 0.01, 0.3, 42.9, 1.610, 1.230),
    ("softmax", 3, True, 0.01, 0.9, 128.6, 2.193, 2.132),
    ("softmax", 3, True, 0.01, 2.0, 285.7, 2.828, 2.827),
    ("squared_hinge", 2, False, 0.1, 0.3, 5.97, 2.88, 2.88),
    ("squared_hinge", 2, False, 0.1, 0.8, 15.91, 5.89, 5.89),
    ("squared_hinge", 2, False, 0.1, 2.0, 39.78, 7.88, 7.49),
    ("squared_hinge", 2, False, 0.01, 0.3, 17.57, 7.81, 7.81),
    ("squared_hinge", 2, False, 0.01, 0.8, 46.85, 15.18, 15.18),
    ("squared_hinge", 2, False, 0.01, 2.0, 117.1, 18.24, 17.04),
]
SETTINGS = [
    ("logistic", 2),
    ("softmax", 3),
    ("softmax", 6),
    ("squared_hinge", 2),
    ("squared_hinge", 4),
]


def setting_of(alpha, norm_bound, fit_intercept):
    return {"alpha": alpha, "norm_bound": norm_bound, "fit_intercept": fit_intercept}


@pytest.mark.parametrize("case", CHECK_VALUES, ids=lambda c: "-".join(map(str, c[:5])))
def test_check_values(case):
    loss, n_classes, fit_intercept, alpha, radius, paper, tight, reached = case
    arguments = setting_of(alpha, 1.0, fit_intercept) | {"n_classes": n_classes}
    gap = gradient_gap(loss, radius, **arguments)
    assert gap <= 1.01 * tight
    assert gap >= (reached or 0.0) * (1 - 5e-4)  # the table has four digits
    assert gradient_gap(loss, radius, method="paper", **arguments) == pytest.approx(paper, rel=2e-3)


def gradients(loss, theta, rows, labels):
    """Loss gradients at each theta (..., k, d) for its row (..., d), independent of the package."""
    scores = (theta @ rows[..., None])[..., 0]
    if loss == "softmax":
        residual = softmax(scores, axis=-1) - np.eye(scores.shape[-1])[labels]
        return residual[..., None] * rows[..., None, :]
    if scores.shape[-1] == 1:
        sign = np.asarray(2.0 * labels - 1.0)[..., None]
    else:
        sign = 2.0 * np.eye(scores.shape[-1])[labels] - 1.0
    if loss == "logistic":
        residual = -sign * expit(-sign * scores)
    else:
        residual = -2.0 * sign * np.maximum(1.0 - sign * scores, 0.0)
    return residual[..., None] * rows[..., None, :]


def into_ball(rows, radius):
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows * np.minimum(1.0, radius / np.maximum(norms, 1e-300))


class Search:
    """Adjacent records and an admissible parameter, from one unconstrained vector."""

    def __init__(self, loss, n_classes, *, radius, alpha, norm_bound, fit_intercept, d=3):
        self.loss, self.radius, self.norm_bound = loss, radius, norm_bound
        self.fit_intercept, self.d, self.n_classes = fit_intercept, d, n_classes
        self.n_scores = 1 if n_classes == 2 else n_classes
        self.bound = minimizer_norm_bound(
            loss,
            alpha=alpha,
            norm_bound=norm_bound,
            fit_intercept=fit_intercept,
            n_classes=n_classes,
        )
        self.size = 2 * d + self.n_scores * (d + fit_intercept)

    def gap(self, vectors, label, other):
        """Distance of the two gradients; records within radius when the labels agree."""
        d = self.d
        x, step = into_ball(vectors[..., :d], self.norm_bound), vectors[..., d : 2 * d]
        if label == other:
            # Halve the step until the neighbour is in the ball: the segment stays adjacent.
            step = x + into_ball(step, self.radius)
        x2 = into_ball(step, self.norm_bound)
        theta = vectors[..., 2 * d :]
        if self.loss != "squared_hinge":
            theta = into_ball(theta, self.bound)
        theta = theta.reshape(*theta.shape[:-1], self.n_scores, -1)
        if self.loss == "squared_hinge":
            theta = into_ball(theta, self.bound)  # each head on its own
        if self.fit_intercept:
            x, x2 = (np.concatenate([v, np.ones_like(v[..., :1])], axis=-1) for v in (x, x2))
        change = gradients(self.loss, theta, x, label) - gradients(self.loss, theta, x2, other)
        return np.sqrt(np.sum(change**2, axis=(-2, -1)))

    def best(self, starts, label, other, n_starts, **options):
        """The largest gap that a climb from the best of these starts finds."""
        found = self.gap(starts, label, other)
        climbed = [
            -minimize(
                lambda v: -float(self.gap(v, label, other)),
                v,
                method="Nelder-Mead",
                options=options,
            ).fun
            for v in starts[np.argsort(found)[-n_starts:]]
        ]
        return max(found.max(), *climbed)

    def starts(self, rng, count):
        vectors = rng.standard_normal((count, self.size))
        vectors[:, : self.d] *= self.norm_bound
        vectors[:, self.d : 2 * self.d] *= max(self.radius, 1e-3)
        scale = self.bound * rng.choice([0.1, 1.0, 3.0], size=(count, 1))
        vectors[:, 2 * self.d :] *= scale
        # Weights along the row: where the margins are extreme.
        aligned = rng.random(count) < 0.5
        row = vectors[aligned, : self.d]
        width = self.d + self.fit_intercept
        sign = rng.choice([-5.0, 5.0], size=(len(row), 1))
        weights = vectors[aligned, 2 * self.d : 2 * self.d + width].copy()
        weights[:, : self.d] += sign * row * self.bound
        vectors[aligned, 2 * self.d : 2 * self.d + width] = weights
        return vectors


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("alpha", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize(("loss", "n_classes"), SETTINGS)
def test_search_never_exceeds_the_gap(loss, n_classes, alpha, fit_intercept):
    rng = np.random.default_rng(0)
    for norm_bound in (0.5, 1.0, 3.0):
        for share in (0.005, 0.1, 0.4, 0.7, 1.0):
            radius = 2 * norm_bound * share
            setting = setting_of(alpha, norm_bound, fit_intercept)
            search = Search(loss, n_classes, radius=radius, **setting)
            for change in (False, True):
                gap = gradient_gap(
                    loss, radius, n_classes=n_classes, label_change=change, **setting
                )
                starts = search.starts(rng, 1000)
                found = search.best(starts, 0, int(change), 1, maxfev=250)
                assert found <= gap, (norm_bound, radius, change)


@pytest.mark.parametrize(
    ("loss", "n_classes", "radius"),
    [("logistic", 2, 0.3), ("softmax", 3, 0.9), ("squared_hinge", 2, 0.3)],
)
def test_search_comes_close_to_the_gap(loss, n_classes, radius):
    """A gap that were halved would be exceeded here."""
    setting = setting_of(0.01, 1.0, loss != "squared_hinge")
    search = Search(loss, n_classes, radius=radius, **setting)
    starts = search.starts(np.random.default_rng(1), 4000)
    best = search.best(starts, 0, 0, 4, maxfev=3000, adaptive=True)
    gap = gradient_gap(loss, radius, n_classes=n_classes, **setting)
    print(f"{loss} r={radius}: search reaches {best / gap:.3f} of the gap")
    assert 0.9 * gap <= best <= gap


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(("loss", "n_classes"), SETTINGS)
def test_monotone_and_below_the_paper(loss, n_classes, fit_intercept):
    radii = 3.0 * np.array([1e-7, 1e-3, 0.1, 0.3, 0.7, 1.01, 1.3, 2, 5])
    for alpha in (1e-6, 1e-2, 30.0):
        arguments = setting_of(alpha, 3.0, fit_intercept) | {"n_classes": n_classes}
        tight = np.array([gradient_gap(loss, r, **arguments) for r in radii])
        paper = np.array([gradient_gap(loss, r, method="paper", **arguments) for r in radii])
        assert np.all(np.diff(tight) >= -2e-4 * tight[:-1])  # certified cells: that much excess
        assert np.all(tight <= paper)
        changed = [gradient_gap(loss, r, label_change=True, **arguments) for r in radii]
        assert np.all(changed >= tight)


def test_gap_at_tiny_radii_is_the_local_lipschitz_constant():
    """No cell excess survives where a fixed grid would be hundreds of times too large."""
    arguments = setting_of(1e-4, 1.0, True)
    slopes = [gradient_gap("logistic", r, **arguments) / r for r in (1e-9, 1e-7, 1e-5)]
    np.testing.assert_allclose(slopes, slopes[0], rtol=0.01)
    bound = minimizer_norm_bound("logistic", **arguments)
    # Angle of the weights, score, and which share of the step is along the weights.
    angle, t, along = (
        v[None]
        for v in np.meshgrid(
            np.linspace(-1.57, 1.57, 316), np.linspace(-6, 6, 121), np.linspace(0, 1, 41)
        )
    )
    z = (t / bound - np.sin(angle)) / np.cos(angle)
    s, steep = expit(t), expit(t) * expit(-t) * bound * np.cos(angle) * along
    squares = steep**2 + (steep * z + s * along) ** 2
    across = np.sqrt(np.maximum(1.0 - z**2, 0.0))
    squares += (steep * across + s * np.sqrt(1.0 - along**2)) ** 2
    limit = np.sqrt(squares[np.abs(z) <= 1.0].max())
    assert slopes[0] == pytest.approx(limit, rel=0.01)


@pytest.mark.parametrize(("loss", "n_classes"), SETTINGS)
def test_norm_bound_holds_for_minimisers(loss, n_classes):
    """Weighted datasets chosen to pull the minimiser out stay within R, some of them close."""
    rng = np.random.default_rng(0)
    ratios = []
    n_scores = 1 if n_classes == 2 else n_classes
    for alpha in (1e-2, 1.0, 20.0):
        bound = minimizer_norm_bound(
            loss, alpha=alpha, norm_bound=1.0, fit_intercept=False, n_classes=n_classes
        )
        for _ in range(12):
            rows = into_ball(rng.standard_normal((n_classes, n_classes + 1)) * 9, 1.0)
            if n_classes == 2:
                rows[1] = -rows[0]
            labels = np.arange(n_classes)
            weights = rng.dirichlet(np.full(n_classes, 3.0))

            def objective(flat, rows=rows, labels=labels, weights=weights, alpha=alpha):
                theta = flat.reshape(n_scores, -1)
                scores = rows @ theta.T
                if loss == "logistic":
                    value = np.logaddexp(0, -(2 * labels - 1) * scores[:, 0])
                elif loss == "softmax":
                    value = -np.log(softmax(scores, axis=1)[labels, labels])
                elif n_scores == 1:
                    value = np.maximum(1 - (2 * labels - 1) * scores[:, 0], 0) ** 2
                else:
                    sign = 2 * np.eye(n_scores)[labels] - 1
                    value = (np.maximum(1 - sign * scores, 0) ** 2).sum(axis=1)
                gradient = np.tensordot(weights, gradients(loss, theta, rows, labels), 1)
                return weights @ value + alpha / 2 * flat @ flat, (gradient + alpha * theta).ravel()

            start = np.zeros(n_scores * rows.shape[1])
            theta = minimize(objective, start, jac=True, method="BFGS").x.reshape(n_scores, -1)
            axis = 1 if loss == "squared_hinge" else None
            norm = np.max(np.linalg.norm(theta, axis=axis))
            ratios.append(norm / bound)
            assert norm <= bound * (1 + 1e-6)
    assert max(ratios) > (0.7 if n_classes == 2 else 0.3)


def problem_of(loss, n_samples, n_classes, radius, **setting):
    counts = (n_samples - n_classes + 1, *(1,) * (n_classes - 1))
    sizes = {"n_samples": n_samples, "n_features": 5, "n_classes": n_classes}
    return Problem(**sizes, class_counts=counts, radius=radius, loss=loss, **setting)


def test_bound_adds_the_solvers_tolerance():
    problem = problem_of("logistic", 1000, 2, 0.5, **setting_of(0.01, 1.0, True))
    exact, loose = (Minimiser(tol=tol).stated(problem)[0] for tol in (0.0, 1e-4))
    assert loose - exact == pytest.approx(2 * 1e-4 / 0.01)
    gap = gradient_gap("logistic", 0.5, **setting_of(0.01, 1.0, True))
    assert exact == pytest.approx(gap / (0.01 * 1000), rel=1e-4)
    assert exact >= gap / (0.01 * 1000)


def test_label_changes():
    arguments = setting_of(0.01, 1.0, False) | {"label_change": True}
    assert gradient_gap("logistic", 0.1, **arguments) <= 2.0
    assert gradient_gap("softmax", 0.1, n_classes=3, **arguments) <= 2 * math.sqrt(2)
    # Two rows of one label, as far around the weights as each other, are near the worst pair.
    height, angles = 1 / math.sqrt(0.02), np.linspace(0.0, math.pi, 10**5)
    near = (4.0 * (1.0 + height * np.cos(angles)) * np.sin(angles)).max()
    assert near <= gradient_gap("squared_hinge", 0.1, **arguments) <= near * (1 + 1e-4)


def test_bound_allowances():
    for loss, n_classes in SETTINGS:
        problem = problem_of(loss, 10**9, n_classes, 0.3, **setting_of(1e-8, 2.0, True))
        query = Minimiser(tol=1e-9)
        arguments = {"alpha": 1e-8, "fit_intercept": True, "n_classes": n_classes}
        rounded = gradient_gap(loss, 0.3 * (1 + 1e-6), norm_bound=2 * (1 + 1e-6), **arguments)
        gap = query.gap(problem, 0.3, "public")
        assert gap >= rounded > gradient_gap(loss, 0.3, norm_bound=2.0, **arguments)
        assert query.stated(problem)[0] > rounded / (1e-8 * 10**9) + 2 * 1e-9 / 1e-8
        norm = minimizer_norm_bound(loss, norm_bound=2 * (1 + 1e-6), **arguments)
        assert query.norm(problem) == pytest.approx(norm)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_tiny_radii_are_not_lost_in_rounding(loss):
    arguments = setting_of(1e-4, 1.0, False)
    slopes = [gradient_gap(loss, 10.0**-k, **arguments) * 10.0**k for k in range(5, 30, 3)]
    np.testing.assert_allclose(slopes, slopes[0], rtol=1e-2)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_extreme_parameters_stay_bounded_without_warnings(loss):
    for alpha in (1e-100, 1e100):
        for norm_bound in (1e-100, 1e80, 1e100):
            assert gradient_gap(loss, norm_bound * 1.5, **setting_of(alpha, norm_bound, False)) > 0


def test_errors():
    for change, match in (
        ({"loss": "hinge"}, "loss must be"),
        ({"method": "best"}, "sensitivity must be"),
        ({"radius": -1.0}, "radius"),
        ({"radius": math.nan}, "radius"),
    ):
        with pytest.raises(ValueError, match=match):
            gradient_gap(
                **{"loss": "logistic", "radius": 0.3, **setting_of(0.1, 1.0, True), **change}
            )


# -- bounds that climbing reaches ------------------------------------------------------------------


HINGE = {"loss": "squared_hinge", "norm_bound": 1.0}


def polar(angle, size, most=1.0):
    """A point of a ball in the plane."""
    return most * np.clip(abs(size), 0.0, 1.0) * np.array([np.cos(angle), np.sin(angle)])


def weights_at(angle, bound):
    """Weights along the first feature, and the constant."""
    return bound * np.array([np.cos(angle), 0.0, np.sin(angle)])


def hinge_gradient(theta, x, y, constant):
    """Of max(0, 1 - y score)^2 for a row with its constant."""
    row = np.append(x, 1.0) if constant else x
    return -2.0 * max(0.0, 1.0 - y * (theta @ row)) * y * row


def largest(move, size, seeds):
    """The largest value that climbing from random starts, the best of many, finds."""
    best = 0.0
    for seed in range(seeds):
        starts = 2.0 * np.random.default_rng(seed).standard_normal((60, size))
        start = max(starts, key=move)
        options = {"maxiter": 1500, "fatol": 1e-9, "xatol": 1e-7}
        for _ in range(2):
            found = minimize(lambda v: -move(v), start, method="Nelder-Mead", options=options)
            start = found.x
        best = max(best, -found.fun)
    return best


@pytest.mark.parametrize("alpha", [1e-4, 1e-2, 1.0])
@pytest.mark.parametrize(("radius", "least"), [(0.1, 0.98), (0.3, 0.98), (1.0, 0.98), (1.6, 0.9)])
def test_hinge_with_an_intercept(alpha, radius, least):
    """The constant does not move: weights that point at it gain height, and no movement."""
    bound = minimizer_norm_bound("squared_hinge", alpha=alpha, norm_bound=1.0, fit_intercept=True)
    stated = gradient_gap(radius=radius, alpha=alpha, fit_intercept=True, **HINGE)

    def move(v):
        x = polar(v[0], v[1])
        other = x + polar(v[2], v[3], radius)
        other /= max(1.0, np.linalg.norm(other))
        theta = weights_at(v[4], bound)
        own, moved = (hinge_gradient(theta, row, 1.0, True) for row in (x, other))
        return np.linalg.norm(own - moved)

    found = largest(move, 5, 16)
    assert found <= stated
    assert found >= least * stated


def logistic_gradient(theta, x, y, constant):
    row = np.append(x, 1.0) if constant else x
    return -expit(-y * (theta @ row)) * y * row


@pytest.mark.parametrize("alpha", [1e-3, 1e-2, 0.3])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_two_classes_with_another_label(loss, alpha, constant):
    """Such a pair has the gradients of two rows of one label, anywhere in the augmented ball."""
    options = {"alpha": alpha, "fit_intercept": constant, "norm_bound": 1.0}
    bound = minimizer_norm_bound(loss, **options)
    stated = gradient_gap(loss, radius=0.1, label_change=True, **options)
    gradient = logistic_gradient if loss == "logistic" else hinge_gradient

    def move(v):
        theta = weights_at(v[4] if constant else 0.0, bound)[: 2 + constant]
        one = gradient(theta, polar(v[0], v[1]), 1.0, constant)
        return np.linalg.norm(one - gradient(theta, polar(v[2], v[3]), -1.0, constant))

    found = largest(move, 5, 16)
    assert found <= stated
    # With a constant, rows and the opposites of others do not fill the augmented ball.
    assert found >= (0.7 if constant else 0.995) * stated
    former = 2.0 * np.hypot(1.0, constant) * expit(bound * np.hypot(1.0, constant))
    assert loss == "squared_hinge" or stated <= former


@pytest.mark.parametrize("alpha", [1e-4, 1e-2, 0.1, 1.0])
@pytest.mark.parametrize(
    ("radius", "least"), [(1e-3, 0.999), (0.1, 0.999), (1.0, 0.999), (1.5, 0.92), (2.0, 0.999)]
)
def test_logistic_without_an_intercept(alpha, radius, least):
    """A row that is much shorter than its neighbour has moved along itself."""
    options = {"alpha": alpha, "fit_intercept": False, "norm_bound": 1.0}
    bound = minimizer_norm_bound("logistic", **options)
    stated = gradient_gap("logistic", radius, **options)

    def move(v):
        x = polar(v[0], v[1])
        other = x + polar(v[2], v[3], radius)
        other /= max(1.0, np.linalg.norm(other))
        theta = weights_at(v[4] if len(v) > 4 else 0.0, bound)[:2]
        own, moved = (logistic_gradient(theta, row, 1.0, False) for row in (x, other))
        return np.linalg.norm(own - moved)

    found = largest(move, 4, 16)
    assert found <= stated
    assert found >= least * stated


def softmax_gradient(theta, x, label):
    shares = softmax(theta @ x)
    shares[label] -= 1.0
    return np.outer(shares, x)


@pytest.mark.parametrize(
    ("n_classes", "alpha", "least"), [(3, 1.0, 0.7), (3, 0.1, 0.65), (5, 1.0, 0.65), (5, 0.01, 0.8)]
)
def test_softmax_with_another_label(n_classes, alpha, least):
    """Scores that take all from the label have no room left to give all to one other."""
    options = {"alpha": alpha, "norm_bound": 1.0, "n_classes": n_classes, "fit_intercept": False}
    bound = minimizer_norm_bound("softmax", **options)
    stated = gradient_gap("softmax", radius=0.1, label_change=True, **options)

    def move(v):
        theta = v[4:].reshape(n_classes, 2)
        theta = bound * theta / max(1.0, np.linalg.norm(theta))
        one = softmax_gradient(theta, polar(v[0], v[1]), 0)
        return np.linalg.norm(one - softmax_gradient(theta, polar(v[2], v[3]), 1))

    found = largest(move, 4 + 2 * n_classes, 6)
    assert found <= stated
    assert found >= least * stated


@pytest.mark.parametrize(
    ("n_classes", "alpha", "radius", "constant", "least"),
    [
        (3, 1e-3, 0.1, False, 0.94),
        (3, 0.01, 0.3, True, 0.92),
        (3, 1.0, 1.0, False, 0.95),
        (3, 1.0, 1.9, False, 0.85),
        (4, 0.1, 1.5, True, 0.82),
        (8, 1e-3, 0.1, False, 0.95),
        (8, 0.1, 1.0, False, 0.77),
    ],
)
def test_softmax_with_one_label(n_classes, alpha, radius, constant, least):
    """Log-odds against the label, and what the other classes share, have one movement to spend."""
    options = {
        "alpha": alpha,
        "norm_bound": 1.0,
        "n_classes": n_classes,
        "fit_intercept": constant,
    }
    bound = minimizer_norm_bound("softmax", **options)
    stated = gradient_gap("softmax", radius=radius, **options)

    def move(v):
        theta = v[4:].reshape(n_classes, 2 + constant)
        theta = bound * theta / max(1.0, np.linalg.norm(theta))
        x = polar(v[0], v[1])
        other = x + polar(v[2], v[3], radius)
        rows = [x, other / max(1.0, np.linalg.norm(other))]
        if constant:
            rows = [np.append(row, 1.0) for row in rows]
        one, moved = (softmax_gradient(theta, row, 0) for row in rows)
        return np.linalg.norm(one - moved)

    size, best = 4 + n_classes * (2 + constant), 0.0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        starts = rng.standard_normal((200, size)) * rng.choice([0.2, 1.0, 3.0], (200, 1))
        for start in sorted(starts, key=move)[-3:]:
            for _ in range(3):
                found = minimize(lambda v: -move(v), start, method="BFGS")
                start = found.x
            best = max(best, -found.fun)
    assert best <= stated
    assert best >= least * stated


@pytest.mark.parametrize(("constant", "m", "s"), [(1.0, 0.21705, 0.28799), (0.0, 0.27478, 0.2868)])
def test_the_form_over_log_odds_by_brute_force(constant, m, s):
    """All norms of the shares at the worst log-odds, one long and the other as short as may be.

    q = expit(m + s) and q' = expit(m - s) are the shares that the label lacks. Corners of the
    hexagon, in the bound, reach what all of its points do here.
    """
    n_classes, radius, square = 50, 0.03, 1.0 + constant**2
    options = {"alpha": 0.01, "norm_bound": 1.0, "fit_intercept": constant > 0.0}
    options["n_classes"] = n_classes
    stated = gradient_gap("softmax", radius=radius, **options)
    bound = minimizer_norm_bound("softmax", **options)
    least, centre = 1.0 / np.sqrt(n_classes - 1.0), np.log(n_classes - 1.0)

    def room(distance, spent):
        return np.sqrt(2.0) * np.tanh(np.sqrt(max(distance**2 - 0.5 * spent**2, 0.0) / 8.0))

    far, shared = bound * np.sqrt(square), room(bound * radius, 2.0 * s)
    most = [min(np.hypot(least, room(far, v - centre)), 1.0) for v in (m + s, m - s)]
    one = np.linspace(least, most[0], 2001)[:, None]
    two = np.clip(one + shared * np.linspace(-1.0, 1.0, 401), least, most[1])
    q, other = expit(m + s), expit(m - s)
    drop, found = radius * (2.0 - radius), 0.0
    for p, p_other in ((square, square), (square - drop, square), (square, square - drop)):
        for apart in (shared**2, (one - two) ** 2):
            inner = 1.0 + 0.5 * (one**2 + two**2 - apart)
            rows = 0.5 * (p + p_other - radius**2)
            gap = q**2 * (1.0 + one**2) * p + other**2 * (1.0 + two**2) * p_other
            found = max(found, float(np.max(gap - 2.0 * q * other * inner * rows)))
    assert 0.999 * stated < np.sqrt(found) <= stated


@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared_hinge"])
@pytest.mark.parametrize("label_change", [False, True])
def test_tiny_radii(loss, label_change):
    """Gaps are in proportion to tiny radii: none is lost to rounding, or to squares that vanish."""
    options = {"alpha": 0.5, "fit_intercept": False, "label_change": label_change}
    radii = np.array([1e-5, 1e-8, 1e-16, 1e-20, 1e-139, 1e-150, 1e-200])
    gaps = [gradient_gap(loss, r, norm_bound=1.0, n_classes=3, **options) for r in radii]
    ratios = np.array(gaps) / (1.0 if label_change else radii)
    assert ratios.min() >= (1.0 - 1e-4) * ratios[0]
    assert ratios[:-2].max() <= 1.5 * ratios[0]
    if loss == "softmax" and not label_change:
        # A pair that the search over log-odds missed by .3 % at radii that rounding loses.
        assert gradient_gap(loss, 1e-16, norm_bound=1.0, n_classes=3, **options) >= 1.3174360e-16


@pytest.mark.parametrize("n_classes", [3, 10, 1000])
@pytest.mark.parametrize("alpha", [1e-9, 1e-4, 0.1, 10.0])
def test_softmax_states_no_more_than_before(n_classes, alpha):
    """Records of the former bound stay valid."""
    for constant, radius in itertools.product((False, True), (1e-6, 1e-2, 0.3, 1.0, 1.9)):
        options = {"alpha": alpha, "n_classes": n_classes, "fit_intercept": constant}
        bound = minimizer_norm_bound("softmax", norm_bound=1.0, **options)
        move = share_move(bound * radius)
        drop = radius * (2.0 - radius) if radius < 1.0 else 1.0
        along = (1.0 + constant) * move + np.sqrt(2.0) * drop
        former = np.sqrt(move * along + 2.0 * radius**2)
        stated = gradient_gap("softmax", radius=radius, norm_bound=1.0, **options)
        assert stated <= former * (1 + 1e-9)


@pytest.mark.parametrize("n_classes", [2, 3, 7])
@pytest.mark.parametrize("far", [0.1, 1.0, 4.0])
def test_how_far_shares_move(n_classes, far):
    """The lemma of the page of proofs: scores that move by so much move the shares no further."""
    stated = share_move(far)

    def move(v):
        step = v[n_classes:] * far / max(np.linalg.norm(v[n_classes:]), 1e-12)
        return np.linalg.norm(softmax(v[:n_classes] + step) - softmax(v[:n_classes]))

    found = largest(move, 2 * n_classes, 6)
    assert 0.999 * stated <= found <= stated * (1 + 1e-9)


@pytest.mark.parametrize("n_classes", [3, 10])
def test_gaps_grow_with_the_radius_where_searches_begin(n_classes):
    """Else a guarantee at a smaller radius could be weaker than the one that was promised."""
    options = {"alpha": 0.5, "fit_intercept": False, "norm_bound": 1.0, "n_classes": n_classes}
    gaps = [gradient_gap("softmax", r, **options) for r in np.geomspace(1e-8, 1e-4, 60)]
    assert (np.diff(gaps) >= 0.0).all()


@pytest.mark.parametrize("n_classes", [3, 5])
@pytest.mark.parametrize("constant", [False, True])
def test_another_label_of_stacked_heads_in_the_papers_mode(n_classes, constant):
    """Heads that see no change of label move by the sharper gap there too, as they always did."""
    options = {"alpha": 0.01, "norm_bound": 1.0, "fit_intercept": constant}
    bound = minimizer_norm_bound("squared_hinge", method="paper", **options)
    change = 4.0 * np.hypot(1.0, constant) * (1.0 + bound * np.hypot(1.0, constant))
    stated = gradient_gap(
        "squared_hinge", 0.3, n_classes=n_classes, method="paper", label_change=True, **options
    )
    assert stated < np.sqrt(n_classes) * change


def test_the_former_bounds_are_no_smaller():
    for alpha, radius in itertools.product((1e-3, 0.1, 1.0), (0.1, 0.5, 1.5)):
        for constant in (False, True):
            options = {"alpha": alpha, "fit_intercept": constant}
            bound = minimizer_norm_bound("squared_hinge", norm_bound=1.0, **options)
            height = 1.0 + bound * np.sqrt(1.0 + constant)
            moved = min(bound * radius, height)
            drop = radius * (2.0 - radius) if radius < 1.0 else 1.0
            apart = moved * (moved * (1.0 + constant) + (height - moved) * drop)
            apart += height * (height - moved) * radius**2
            former = 2.0 * np.sqrt(max(height**2 * radius**2, apart)) * (1 + 1e-9)
            assert gradient_gap(radius=radius, **options, **HINGE) <= former
            change = gradient_gap(radius=radius, label_change=True, **options, **HINGE)
            assert change <= max(4.0 * height * np.sqrt(1.0 + constant), former) * (1 + 1e-9)


# -- known parameters ------------------------------------------------------------------------------


LOSSES = [
    ("logistic", 1),
    ("squared_hinge", 1),
    ("softmax", 2),
    ("softmax", 3),
    ("softmax", 6),
    ("squared_hinge", 3),
]
ROUNDED = 1e-9


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


def clipped_gradients(loss, theta, rows, codes, constant, clip):
    out, augmented = residuals(loss, theta, rows, codes, constant)
    if clip is not None:
        out *= np.minimum(1.0, clip / np.maximum(np.linalg.norm(out, axis=1), 1e-300))[:, None]
    return out[:, :, None] * augmented[:, None, :]


def distances(loss, theta, a, b, codes, constant, clip):
    """Of the gradients of two records; ``codes`` are the labels of the first and the second."""
    first, second = (
        clipped_gradients(loss, theta, rows, labels, constant, clip)
        for rows, labels in zip((a, b), codes, strict=True)
    )
    return np.sqrt(((first - second) ** 2).sum(axis=(1, 2)))


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
            assert found <= gap * (1 + ROUNDED)
            limits = limits_over_iterates(
                make_loss(loss, max(2, n_scores)),
                d,
                RowGeometry(bound, r, constant),
                clip=clip,
                labels="protected" if label_change else "public",
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
            assert best <= gap * (1 + ROUNDED)
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
        known = gaps_module._Softmax(Softmax(3), theta, RowGeometry(1.0, 1e-9 / common))
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
        bound = clipped_gap(1.0, RowGeometry(1.0, r, constant), versine=1 - cosine, least=least)
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
def test_tiny_radii_at_known_parameters(loss, r, clip):
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


def test_bad_parameters():
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
    hidden = 0
    for weight in np.random.default_rng(0).uniform(1e-3, 2e-3, 50).tolist():
        intercept = 1.0 + weight
        # Fractions of floats are exact.
        inside = 1 + Fraction(weight) - Fraction(intercept)
        if weight - intercept == -1.0 and inside > Fraction(clip):
            hidden += 1
            rows = _OneScore(_hinge_size(clip), RowGeometry(1.0, 0.5, 1.0), weight, -intercept)
            assert rows.largest == clip
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


# -- cells of the search, in sixty digits ----------------------------------------------------------


def exact_square(loss, clip, rows, slope, offset, part, step):
    """Largest squared gap of two rows with these parts along the weights, in mpmath's digits."""

    def size(t):
        residual = 1 / (1 + mpmath.exp(-t)) if loss == "logistic" else 2 * max(1 + t, mpmath.mpf(0))
        return min(residual, mpmath.mpf(clip))

    bound, radius = mpmath.mpf(rows.geometry.norm_bound), mpmath.mpf(rows.geometry.radius)
    t, z = slope * part + offset, part + step
    other = size(t)
    rise = size(t + slope * step) - other
    across, across_other = (mpmath.sqrt(max(bound**2 - v**2, 0)) for v in (z, part))
    rest = mpmath.sqrt(max(radius**2 - step**2, 0))
    n = min(across, across_other + rest)
    along, sideways = rise * z + other * step, rise * n + other * min(rest, n + across_other)
    return (mpmath.mpf(rows.geometry.constant) * rise) ** 2 + along**2 + sideways**2


def around(rng, value, low, high):
    """A range within limits that holds a value, of any width, and often ends at it."""
    width = (high - low) * 10.0 ** rng.uniform(-16, 0) * rng.integers(0, 2, 2) * rng.random(2)
    return max(low, value - width[0]), min(high, value + width[1])


@pytest.mark.parametrize("turning", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_no_point_of_a_cell_exceeds_its_bound(loss, turning):
    """At all scales: weights to 1e8, at the poles and the trough, next to edges of residuals."""
    rng, found, tight = np.random.default_rng(int(turning)), 0, 0
    with mpmath.workdps(60), np.errstate(all="ignore"):
        while found < 500:
            bound, constant = 10.0 ** rng.integers(-3, 4), rng.choice([0.0, 1e-3, 0.3, 1.0])
            if turning and not constant:
                continue
            clip = float(rng.choice([np.inf, np.inf, 1e-12, 1e-3, 0.2, 0.6, 1.5]))
            radius = bound * rng.choice([1e-8, 1e-4, 0.1, 0.7, 1.3, 2.0])
            norm = 10.0 ** rng.uniform(-3, 8) / bound
            offset = norm * constant
            if not turning:
                offset *= rng.choice([-1.0, 1.0]) * rng.choice([1e-3, 0.9, 1.0, 1.1, 1e3])
            domain = RowGeometry(bound, radius, constant)
            rows = _OneScore(_RESIDUAL_SIZES[loss](clip), domain, norm, offset, turning)
            angle = rng.choice([0.5, rng.random(), 10.0 ** rng.uniform(-16, -1)])
            angle = rng.choice([-1.0, 1.0]) * (1.0 - 2.0 * angle) * math.pi / 2
            turn = mpmath.mpf(angle)
            if turning and abs(angle) == math.pi / 2:
                turn = mpmath.sign(turn) * mpmath.pi / 2  # the pole itself, beyond float64
            slope, tilt = (
                (mpmath.mpf(norm), mpmath.mpf(offset))
                if not turning
                else (
                    mpmath.mpf(norm) * mpmath.cos(turn),
                    mpmath.mpf(norm) * mpmath.mpf(constant) * mpmath.sin(turn),
                )
            )
            step = radius * rng.choice([0.0, 1.0, rng.random(), 1 - 10.0 ** rng.uniform(-16, -1)])
            part = rng.uniform(-bound, bound) * rng.choice([1.0, 1e-6])
            if rng.random() < 0.5 and slope > 0:
                # Where a residual bends, or rises most.
                edge = math.log(clip / (1 - clip)) if clip < 1.0 else 0.0
                score = rng.choice([0.0, -1.0, edge]) + rng.normal() * 10.0 ** rng.uniform(-12, 0)
                part = float((score - tilt) / slope)
            part = min(max(part, -bound), bound)
            step = min(step, bound - part)
            if mpmath.mpf(part) + mpmath.mpf(step) > bound:
                continue
            steps = around(rng, step, 0.0, radius)
            if turning:
                score = slope * mpmath.mpf(part) + tilt
                edge = math.hypot(norm * bound, offset) + rows.error
                low, high = around(rng, float(score), -edge, edge)
                scores = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
                cell = around(rng, angle, -math.pi / 2, math.pi / 2), scores, steps
            else:
                cell = around(rng, part, -bound, bound), steps
            unit = rows.cap(make_loss(loss, 2).curvature)
            if unit == 0.0:
                continue
            corners = np.array(cell, dtype=float).T[:, :, None]
            stated = mpmath.mpf(float(rows.squares(*corners, unit)[0]))
            square = exact_square(loss, clip, rows, slope, tilt, mpmath.mpf(part), mpmath.mpf(step))
            square /= mpmath.mpf(unit) ** 2
            assert square <= stated * (1 + mpmath.mpf("1e-12")) + mpmath.mpf("1e-290"), (rows, cell)
            found, tight = found + 1, tight + (square > 0.9 * stated)
    assert tight > 50


@pytest.mark.parametrize("score", [-4.0, -2.0, 0.0, 2.0, 3.5, 4.1])
def test_least_part_along_turning_weights(score):
    """At an end of the angles, or at a trough between them: compared with a fine grid."""
    rows = _OneScore(_hinge_size(math.inf), RowGeometry(1.0, 0.5, 1.0), 3.0, 3.0, turning=True)
    for low, high in itertools.combinations(np.linspace(-1.5, 1.5, 7), 2):
        angles = np.linspace(low, high, 20_001)
        parts = (score - 3.0 * np.sin(angles)) / (3.0 * np.cos(angles))
        least = max(parts.min(), -1.0)
        with np.errstate(divide="ignore"):
            found = rows._least_part(*(np.array([v]) for v in (low, high, score)))[0]
            corners = np.array([[[low], [score], [0.1]], [[high], [score], [0.1]]])
            steepest = rows._ranges(*corners)[0]
        assert least - 1e-6 <= found <= least
        assert steepest[1][0] >= 3.0 * np.cos(angles).max()
        assert steepest[0][0] <= 3.0 * np.cos(angles).min() <= steepest[0][0] + 1e-6


@pytest.mark.parametrize("clip", [0.51, 0.9, 0.99999])
@pytest.mark.parametrize(("slope", "radius"), [(1e12, 1e-3), (1e27, 1e-5), (1e60, 1e-30)])
def test_steps_that_cancel_large_scores(clip, slope, radius):
    """Residuals may rise from 0 to the clip within any radius: two rows across the edge."""
    theta = slope * np.array([[1.0, 0.0, 0.0, -0.37]])
    given = {"norm_bound": 1.0, "constant": 1.0, "clip": clip}
    found = iterate_gap("logistic", theta, radius, **given)
    # A row on the side of the clip, and one without a residual.
    assert found >= clip * math.sqrt(2.0) * (1.0 - 1e-9)
    size = gaps_module._RESIDUAL_SIZES["logistic"](clip)
    ends = (np.array([-2.0 * slope]), np.array([-1e3]), np.array([0.0]), np.array([slope]))
    assert size.rises(*ends)[1] >= clip * (1.0 - 1e-9)


@pytest.mark.parametrize("norm_bound", [0.0, 1e-165, math.inf, math.nan])
def test_norms_out_of_range_are_refused(norm_bound):
    """Their squares would underflow."""
    with pytest.raises(ValueError, match="norm_bound must be"):
        gradient_gap("logistic", 1.0, alpha=1.0, norm_bound=norm_bound, fit_intercept=False)
    with pytest.raises(ValueError, match="norm_bound must be"):
        iterate_gap("logistic", np.ones((1, 2)), 1.0, norm_bound=norm_bound, constant=0.0)
