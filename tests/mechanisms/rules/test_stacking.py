"""What is made of a public model beside released sums, and of a descent from it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from sklearn_balldp import BallDPLogisticRegression, BallDPSquaredHingeSVC
from sklearn_balldp.mechanisms import Examples
from sklearn_balldp.mechanisms.rules.moves import MultipleFit, kept_of_moves
from sklearn_balldp.mechanisms.rules.stacking import multiples_of
from sklearn_balldp.mechanisms.settings import TAIL

K, D = 3, 5


def classes(seed=0, per_class=4000):
    """Class means, a covariance within classes, and records of both."""
    rng = np.random.default_rng(seed)
    means = 0.3 * rng.standard_normal((K, D))
    root = np.diag([0.4, 0.3, 0.2, 0.1, 0.1])
    codes = np.repeat(np.arange(K), per_class)
    return means, root @ root, means[codes] + rng.standard_normal((len(codes), D)) @ root, codes


def objective(multiples, coefs, deviations, within, shares):
    """The loss of a linear discriminant, from its definition."""
    theta = sum(m * coef for m, coef in zip(multiples, coefs, strict=True))
    return shares @ (0.5 * np.vecdot(theta @ within, theta) - np.vecdot(theta, deviations))


def sizes(multiples, coefs, deviations, within, shares, share=1.0):
    """What tails leave of the multiples that fit best."""
    log_odds = -2.0 * objective(multiples, coefs, deviations, within, shares)
    return 1.0 / (1.0 + share * log_odds / TAIL)


@pytest.mark.kills("mechanisms/rules/stacking.py", "least = 1.0 + ", "least = 4.0 + ")
@pytest.mark.kills("mechanisms/rules/stacking.py", "shared, other]]", "0.0, other]]")
@pytest.mark.kills("mechanisms/rules/stacking.py", "(size * slopes)", "slopes")
@pytest.mark.kills("mechanisms/rules/stacking.py", "else share) * max(", "else 1.0) * max(")
@pytest.mark.parametrize(("wrong", "share"), [(False, None), (False, 0.3), (True, None)])
def test_multiples_are_those_that_fit_best(wrong, share):
    """With many examples and little noise: the minimiser of the loss that the page states."""
    means, within, X, codes = classes()
    examples = Examples.of(X, np.roll(codes, 3000) if wrong else codes, K, norm_bound=4.0)
    counts = np.full(K, 1000.0)
    deviations = (means - means.mean(axis=0)) / 4.0
    coef = 0.5 * deviations @ np.diag([9.0, 1.0, 4.0, 9.0, 2.0])
    found = multiples_of(coef, examples, means / 4.0, np.full(K, 1e-9), counts, share)
    given = (coef, examples.coef), deviations, within / 16.0, counts / counts.sum()
    best = minimize(objective, np.ones(2), given, bounds=[(0.0, None)] * 2).x
    found = np.array(found) / sizes(best, *given, share=1.0 if share is None else share)
    if wrong:
        # The covariance of examples with wrong labels holds what lies between classes too.
        assert found[1] < 0.3
        return
    losses = [objective(own, *given) for own in (found, best, (1.0, 0.0))]
    assert losses[0] - losses[1] < 0.02 * (losses[2] - losses[1])


@pytest.mark.kills("mechanisms/rules/stacking.py", "None else size, 1.0]", "None else 1.0, 1.0]")
def test_noise_leaves_the_multiples_at_one_and_sums_decide():
    means, _, X, codes = classes()
    examples = Examples.of(X, codes, K, norm_bound=4.0)
    coef, counts = (means - means.mean(axis=0)) / 4.0, np.full(K, 1000.0)
    lost = multiples_of(coef, examples, means / 4.0, np.full(K, 1e9), counts)
    np.testing.assert_allclose(lost, 1.0, rtol=1e-3)
    # Slopes that know no tails are taken for smaller ones.
    smaller = multiples_of(coef, examples, means / 4.0, np.full(K, 1e9), counts, 1.0)
    assert smaller[0] < 0.9
    assert smaller[1] == pytest.approx(1.0, rel=1e-3)
    # Against the sums, the examples' model is left out, and never turned round.
    against = multiples_of(coef, examples, -means / 4.0, np.full(K, 1e-9), counts)
    assert against[1] == 0.0


@pytest.mark.kills("mechanisms/rules/stacking.py", "= np.maximum(1.0 - d", "= np.maximum(1.0 + d")
def test_sums_that_are_noise_alone_count_little():
    """What noise adds to the squares of class means is no distance between them."""
    rng, d = np.random.default_rng(0), 200
    X, codes = rng.standard_normal((6000, d)) / 20.0, np.arange(6000) % K
    examples, noise = Examples.of(X, codes, K), np.full(K, 1e-2)
    means = 0.1 * rng.standard_normal((K, d))
    coef, counts = 30.0 * (means - means.mean(axis=0)), np.full(K, 1000.0)
    assert multiples_of(coef, examples, means, noise, counts)[0] < 0.3


@pytest.mark.kills("mechanisms/rules/stacking.py", "np.diag([1.0, 0.0])", "np.eye(2)")
def test_the_size_of_vectors_means_nothing():
    means, *_ = classes()
    coef, counts = (means - means.mean(axis=0)) / 4.0, np.full(K, 1000.0)
    noise = np.full(K, 1e-4)
    found = [
        np.array(multiples_of(coef, Examples.of_vectors(s * means), means / 4.0, noise, counts))
        for s in (1.0, 100.0)
    ]
    np.testing.assert_allclose(found[0], found[1] * [1.0, 100.0], rtol=1e-4)


@pytest.mark.kills("mechanisms/rules/moves.py", "share * tau / total", "tau / total")
@pytest.mark.kills("mechanisms/rules/moves.py", "n_scores * float(curvatures @ left)", "0.0")
@pytest.mark.parametrize("signal", [0.0, 1.0, 30.0])
def test_of_moves_the_signal_is_kept(signal):
    """Moves of a descent that covers a part of the way, along directions of many curvatures."""
    rng = np.random.default_rng(0)
    curvatures, reach, noise = np.geomspace(1e-3, 1.0, 200), 0.3, 2.0
    share = -np.expm1(-reach * curvatures)
    left = noise * -np.expm1(-2.0 * reach * curvatures) / (2.0 * reach * curvatures)
    way = signal * rng.standard_normal((6, 200))
    moved = share * way + np.sqrt(left) * rng.standard_normal((6, 200))
    given = {"n_scores": 6, "curvatures": curvatures, "reach": reach, "noise": noise}
    kept = kept_of_moves(moved, **given, prior=noise)
    assert ((kept >= 0.0) & (kept <= 1.0)).all()

    def error(kept):
        return (curvatures * (kept * moved - way) ** 2).sum()

    # Nearly as near to the optimum as with the best shares, which nobody knows.
    best = signal**2 * share / (signal**2 * share**2 + left)
    assert error(kept) <= 1.1 * error(np.minimum(best, 1.0)) + 0.05 * error(1.0)


@pytest.mark.kills("mechanisms/rules/moves.py", "self._steps * self._told)", "self._told)")
@pytest.mark.parametrize("certain", [True, False])
def test_a_multiple_is_found_from_noisy_slopes(certain):
    """As by least squares on all of them, with what was believed before."""
    rng, curvature, noise, truth = np.random.default_rng(0), 2.0, 3.0, 0.4
    fit, seen = MultipleFit(curvature, noise, certain), []
    for _ in range(50):
        slope = curvature * (fit.multiple - truth) + noise * rng.standard_normal()
        seen.append(fit.multiple - slope / curvature)
        fit.update(slope)
    weight = (curvature / noise) ** 2
    expected = (weight * np.sum(seen) + certain) / (weight * 50 + certain)
    assert fit.multiple == pytest.approx(expected, rel=1e-9)
    assert MultipleFit(0.0, 0.0, certain).update(1.0) == 0.0


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    X = normalize(X)
    public = np.concatenate([np.flatnonzero(y == label)[:5] for label in range(10)])
    return X, y, public, np.setdiff1d(np.arange(len(X)), public)


@pytest.mark.kills("mechanisms/descent.py", "theta = fit.multiple * public\n", "pass\n")
@pytest.mark.kills("mechanisms/rules/stacking.py", "+ b * public.coef", "- b * public.coef")
@pytest.mark.parametrize(
    ("head", "params", "less"),
    [
        (BallDPLogisticRegression, {"radius": 0.6}, 0.03),
        (BallDPLogisticRegression, {"protect_labels": True, "classes": range(10)}, 0.03),
        (BallDPSquaredHingeSVC, {"radius": 0.6}, 0.03),
        # The noise of its steps is of ten heads.
        (BallDPSquaredHingeSVC, {"protect_labels": True, "classes": range(10)}, 0.2),
    ],
)
def test_examples_help_and_private_records_too(head, params, less, digits):
    """Nearly as good as the better of both alone; and wrong ones do little harm."""
    X, y, public, rest = digits
    train, test = rest[::2], rest[1::2]

    def score(epsilon, labels=None):
        given = {} if labels is None else {"X_public": X[public], "y_public": labels}
        fits = [head(epsilon, 1e-5, **params, random_state=seed) for seed in range(3)]
        return np.mean(
            [fit.fit(X[train], y[train], **given).score(X[test], y[test]) for fit in fits]
        )

    alone = LogisticRegression(C=10.0, max_iter=1000).fit(X[public], y[public])
    alone = alone.score(X[test], y[test])
    for epsilon in (0.1, 1.0):
        plain, helped = score(epsilon), score(epsilon, y[public])
        assert helped > max(plain, alone) - less
    permuted = score(1.0, (y[public] + 1) % 10)
    assert permuted > plain - 0.06


def test_a_folder_of_examples_is_made_of_sums_alone(digits):
    """Fewer numbers than records of many examples, and none that stands for one of them."""
    X, y, public, rest = digits
    some = rest[::4]
    arrays = Examples.of(X[some], y[some], 10).arrays()
    assert max(array.size for array in arrays.values()) <= 64 * 64
    for array in arrays.values():
        rows = np.atleast_2d(array)
        if rows.shape[1] == X.shape[1]:
            assert np.linalg.norm(rows[:, None] - X[some], axis=2).min() > 1e-3
    one = Examples.of(X[public[:1]], y[public[:1]], 10)
    np.testing.assert_allclose(one.means[0], X[public[0]])
    assert not replace(one, means=one.coef).coef.any()
