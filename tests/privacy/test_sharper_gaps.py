"""Bounds that a search reaches: none is exceeded, and none could be a tenth smaller."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, softmax

from sklearn_balldp.privacy.sensitivity import (
    gradient_gap,
    minimizer_norm_bound,
    prototype_sensitivity,
    share_move,
)
from sklearn_balldp.privacy.weights import Weights

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


def persons_of(total, records):
    """Public numbers of persons who have so many records each, with labels protected."""
    return Weights(
        unit="person",
        n_units=20,
        most_records=records,
        total=20.0 * total,
        largest=total,
        record=total / records,
        class_totals=None,
        class_largest=None,
    )


@pytest.mark.parametrize(("rho", "least"), [(0.4, 0.65), (2.0, 0.85), (10.0, 0.9), (100.0, 0.9)])
def test_protected_prototypes_of_persons(rho, least):
    """A person leaves, and comes back as another one with other labels and rows."""
    records, n_classes = 2, 4
    weights = persons_of(float(records), records)
    stated = float(
        prototype_sensitivity(
            2.0, [], alpha=rho / weights.total, label_change=True, norm_bound=1.0, weights=weights
        )
    )
    best = 0.0
    sizes = [0.0, *np.geomspace(0.05 * rho + 1e-9, 20.0 * rho + 5.0, 25)]
    splits = list(itertools.product(range(n_classes), repeat=records))
    for before, after in itertools.product(splits[:8], splits):
        for size in sizes:
            # Others of every class pull its prototype away from the person as far as they can.
            move = 0.0
            for c in range(n_classes):
                one, other = before.count(c), after.count(c)
                if one == other == 0:
                    continue
                # The same rows or opposite ones, with the others against either.
                worst = 0.0
                for sign, pull in itertools.product((1.0, -1.0), repeat=2):
                    first = 2.0 * (one + pull * size) / (2.0 * (size + one) + rho)
                    last = 2.0 * (sign * other + pull * size) / (2.0 * (size + other) + rho)
                    worst = max(worst, abs(first - last))
                move += worst**2
            best = max(best, np.sqrt(move))
    assert best <= stated
    assert best >= least * stated


@pytest.mark.parametrize("alpha", [1e-3, 1e-2, 0.1])
@pytest.mark.parametrize("radius", [0.5, 2.0])
def test_labels_that_stay_cost_no_more(alpha, radius):
    """What moves within a label moves among all."""
    options = {"alpha": alpha, "norm_bound": 1.0, "weights": persons_of(2.0, 2)}
    public, protected = (
        float(prototype_sensitivity(radius, [], label_change=change, **options))
        for change in (False, True)
    )
    assert public <= protected


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
