"""The gradient gap: check values, and searches that try to exceed it."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, softmax

from sklearn_balldp.mechanisms import Minimiser
from sklearn_balldp.privacy import Problem
from sklearn_balldp.privacy.gaps import gradient_gap, minimizer_norm_bound

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
    t = np.linspace(-100, 100, 400_001)
    bound = minimizer_norm_bound("logistic", **arguments)
    s, c = expit(t), expit(t) * expit(-t)
    # b2 is short of B2 by 2 B r: the cross term of the identity is of order r^2 too.
    limit = np.sqrt(np.max((bound * c) ** 2 * 2 + bound * c * s * 2 + s**2))
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
