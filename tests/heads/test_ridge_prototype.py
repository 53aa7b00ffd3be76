"""The ridge prototype head: the contract, the mathematics, the errors, the leaks."""

import dataclasses
import io
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.heads.prototype_rule import gaussian_rule
from sklearn_balldp.privacy.gaussian import mu_from_budget
from sklearn_balldp.privacy.noise import Noise, grid_slack

LABELS = list(range(5))


def closed_form(X, y, alpha):
    return np.array([2 * X[y == c].sum(0) / (2 * np.sum(y == c) + alpha * len(y)) for c in set(y)])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("n_repeats", [1, 150])
def test_minimiser(noise_free, ball_rows, dtype, n_repeats):
    X, y = ball_rows
    X, y = np.tile(X, (n_repeats, 1)).astype(dtype), np.tile(y, n_repeats)
    head = BallDPRidgePrototype(alpha=0.3).fit(X, y)
    expected = closed_form(X.astype(np.float64), y, 0.3)
    np.testing.assert_allclose(head.prototypes_, expected, atol=1e-6)


def test_rows_outside_the_ball_are_projected(noise_free, ball_rows):
    X, y = ball_rows
    scale = np.where(np.arange(len(X)) % 3 == 0, 40.0, 1.0)[:, None]
    projected = X * scale
    projected /= np.maximum(1, np.linalg.norm(projected, axis=1))[:, None]
    head = BallDPRidgePrototype().fit(X * scale, y)
    np.testing.assert_allclose(head.prototypes_, closed_form(projected, y, 0.01), atol=1e-14)
    np.testing.assert_allclose(
        head.decision_function(X * scale), head.decision_function(projected), atol=1e-12
    )


def test_threads_and_blocks_do_not_change_the_sums(noise_free):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50_000, 100)).astype(np.float32) / 12
    y = rng.integers(7, size=len(X))
    P = X / np.maximum(1, np.linalg.norm(X.astype(float), axis=1))[:, None]
    head = BallDPRidgePrototype().fit(X, y)
    np.testing.assert_allclose(head.prototypes_, closed_form(P, y, 0.01), atol=1e-9)


def test_noise_has_the_stated_scale(ball_rows):
    X, y = ball_rows
    head = BallDPRidgePrototype(epsilon=3.0, radius=0.4)
    truth = closed_form(X, y, 0.01)
    draws = np.array([head.fit(X, y).prototypes_ for _ in range(400)])
    z = (draws - truth) / np.reshape(head.release_.sigma, (3, 1))
    # 2400 values per class: a scale off by 12% is 8 standard deviations away.
    np.testing.assert_allclose(z.std(axis=(0, 2)), 1, atol=0.1)
    np.testing.assert_allclose(z.mean(axis=(0, 2)), 0, atol=0.15)
    assert head.release_.sigma[2] > head.release_.sigma[0]


def test_two_fits_never_share_noise(ball_rows):
    X, y = ball_rows
    head = BallDPRidgePrototype()
    first = head.fit(X, y).prototypes_
    assert not np.isin(first, clone(head).fit(X, y).prototypes_).any()
    seeded = BallDPRidgePrototype(random_state=1)
    np.testing.assert_array_equal(seeded.fit(X, y).prototypes_, clone(seeded).fit(X, y).prototypes_)


def test_nearest_is_the_closest_prototype(ball_rows):
    X, y = ball_rows
    nearest = BallDPRidgePrototype(decision="nearest")
    head = clone(nearest).set_params(epsilon=50.0, radius=0.2, alpha=1e-6).fit(X, y)
    distances = np.linalg.norm(X[:, None] - head.prototypes_, axis=2)
    np.testing.assert_array_equal(head.predict(X), distances.argmin(axis=1))
    exact = clone(nearest).set_params(epsilon=1e9, radius=0.2, alpha=1e-9).fit(X, y)
    np.testing.assert_array_equal(exact.predict(X), NearestCentroid().fit(X, y).predict(X))


def test_binary_decision_function(ball_rows):
    X, y = ball_rows
    head = BallDPRidgePrototype(epsilon=50.0, radius=0.2).fit(X, np.where(y == 0, "a", "b"))
    scores = head.decision_function(X)
    assert scores.shape == (len(X),)
    np.testing.assert_array_equal(head.predict(X), np.where(scores > 0, "b", "a"))


def test_gaussian_rule_is_the_bayes_rule_when_there_is_no_noise():
    rng = np.random.default_rng(0)
    means = rng.standard_normal((4, 50)) * 0.05
    counts = np.array([10, 20, 30, 40])
    coef, intercept = gaussian_rule(means, counts, np.zeros(4), alpha=1e-12, norm_bound=1.0)
    X = rng.standard_normal((30, 50)) / 7
    squares = counts @ np.vecdot(means, means) / 100
    t = 10 / 50 * (1 - squares)
    expected = X @ means.T / t - np.vecdot(means, means) / (2 * t) + np.log(counts / 100)
    np.testing.assert_allclose(
        softmax(X @ coef.T + intercept, axis=1), softmax(expected, axis=1), rtol=1e-9
    )


def test_gaussian_rule_falls_back_to_the_prior_under_huge_noise():
    counts = np.array([1, 9, 0])
    noise = np.random.default_rng(0).standard_normal((3, 20)) * 1e4
    coef, intercept = gaussian_rule(noise, counts, np.full(3, 1e4), alpha=0.01, norm_bound=1.0)
    X = np.eye(20)
    np.testing.assert_allclose(softmax(X @ coef.T + intercept, axis=1)[:, 2], 0)
    np.testing.assert_allclose(softmax(X @ coef.T + intercept, axis=1)[:, 0], 0.1, atol=0.01)


@pytest.mark.parametrize("n_features", [1, 2, 40])
@pytest.mark.parametrize("sigma", [0.0, 1e-9, 1.0, 1e6])
def test_gaussian_rule_is_finite_in_the_corners(n_features, sigma):
    rng = np.random.default_rng(0)
    for counts in ([1, 1], [1, 1000], [5, 5, 5]):
        for scale in (0.0, 1.0):
            mu = scale * rng.standard_normal((len(counts), n_features))
            rule = gaussian_rule(
                mu, np.array(counts), np.full(len(counts), sigma), alpha=0.01, norm_bound=1.0
            )
            assert all(np.isfinite(part).all() for part in rule)


def test_predict_proba_only_with_the_generative_rule(ball_rows):
    X, y = ball_rows
    head = BallDPRidgePrototype(decision="gaussian", epsilon=8.0, radius=0.5).fit(X, y)
    proba = head.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(head.classes_[proba.argmax(axis=1)], head.predict(X))
    assert not hasattr(BallDPRidgePrototype(decision="nearest"), "predict_proba")
    # By default the rule follows the labels: of the parameters, then of the release.
    head.set_params(decision="auto")
    np.testing.assert_array_equal(head.predict_proba(X), proba)
    protected = BallDPRidgePrototype(8.0, radius=0.5, protect_labels=True, classes=[0, 1, 2])
    assert not hasattr(protected, "predict_proba")
    assert hasattr(BallDPRidgePrototype(), "predict_proba")
    nearest = protected.fit(X, y).predict(X)
    np.testing.assert_array_equal(nearest, protected.set_params(decision="nearest").predict(X))
    assert not hasattr(protected.set_params(decision="auto", protect_labels=False), "predict_proba")


@pytest.mark.parametrize("decision", ["nearest", "gaussian"])
def test_absent_class_is_never_predicted_and_needs_no_noise(ball_rows, decision):
    X, y = ball_rows
    head = BallDPRidgePrototype(classes=[0, 1, 2, 3], decision=decision).fit(X, y)
    assert head.release_.sigma[3] == 0
    np.testing.assert_array_equal(head.prototypes_[3], 0)
    assert 3 not in head.predict(X)


def test_drops_into_pipeline_and_grid_search():
    rng = np.random.default_rng(0)
    y = np.repeat(["x", "y", "z"], 80)
    X = pd.DataFrame(rng.standard_normal((240, 4)) + 3 * np.eye(4)[np.repeat([0, 1, 2], 80)])
    X.columns = list("abcd")
    pipe = make_pipeline(Normalizer(), BallDPRidgePrototype(radius=0.3, epsilon=20.0))
    grid = GridSearchCV(pipe, {"balldpridgeprototype__epsilon": [1.0, 20.0]}, cv=3)
    assert grid.fit(X, y).best_score_ > 0.8
    assert cross_val_score(pipe, X, y, cv=3).mean() > 0.8
    head = BallDPRidgePrototype().fit(X, y)
    assert list(head.feature_names_in_) == list("abcd")


VARIANTS = [
    {},
    {"counts": "min", "radius": 0.3},
    {"counts": "worst", "radius": 0.3},
    {"protect_labels": True, "classes": [0, 1, 2], "radius": 0.5},
    {"metric": "chebyshev", "radius": 0.1},
]


@pytest.mark.parametrize("params", VARIANTS, ids=str)
def test_the_noise_added_is_the_noise_recorded(ball_rows, monkeypatch, params):
    seen = []

    def spy(self, values, sigma):
        seen.append((np.ravel(sigma), self.private))
        return values

    monkeypatch.setattr(Noise, "__call__", spy)
    head = BallDPRidgePrototype(**params).fit(*ball_rows)
    ((sigma, private),) = seen
    assert private
    np.testing.assert_array_equal(sigma, np.atleast_1d(head.release_.sigma))


@pytest.mark.parametrize("params", VARIANTS, ids=str)
def test_mu_covers_sensitivity_and_grid(ball_rows, params):
    release = BallDPRidgePrototype(epsilon=2.0, **params).fit(*ball_rows).release_
    assert release.bound.n_values == 18
    ratio = np.max(np.divide(release.sensitivity, release.sigma))
    assert ratio + grid_slack(18) <= release.mu <= mu_from_budget(2.0, 1e-6)


@pytest.mark.parametrize("params", VARIANTS, ids=str)
def test_only_the_prototypes_depend_on_the_rows(ball_rows, params):
    X, y = ball_rows
    states = []
    for rows in (X, np.where(np.arange(len(X))[:, None] % 3 == 0, 9 * X, X)):
        head = BallDPRidgePrototype(**params).fit(rows, y)
        head.predict(X)
        state = {k: v for k, v in vars(head).items() if k != "prototypes_"}
        state["release_"] = dataclasses.replace(head.release_, digest="")
        states.append(pickle.dumps(state))
    assert states[0] == states[1]


@pytest.mark.parametrize("name", ["alpha", "norm_bound", "radius", "epsilon"])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int8, np.int32, np.int64])
def test_numpy_scalars_are_the_numbers_they_print(noise_free, name, kind):
    """Few-bit scalars overflow silently in arithmetic that keeps their type."""
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((70_000, 4)) * 3).astype(np.float16)
    y = np.arange(len(X)) % 2
    value = kind(12)
    params = {"counts": "worst", "epsilon": 2.0}
    scalar = BallDPRidgePrototype(**params).set_params(**{name: value}).fit(X, y)
    number = BallDPRidgePrototype(**params).set_params(**{name: float(value)}).fit(X, y)
    assert scalar.release_ == number.release_
    np.testing.assert_array_equal(scalar.prototypes_, number.prototypes_)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "chebyshev"])
def test_radii_in_every_metric(ball_rows, metric):
    radius, d = 0.05, 6
    head = BallDPRidgePrototype(metric=metric, epsilon=2.0, counts="worst")
    ball = clone(head).set_params(radius=radius).fit(*ball_rows).release_
    full = head.fit(*ball_rows).release_
    modulus = np.sqrt(d) if metric == "chebyshev" else 1
    assert ball.sensitivity == pytest.approx(2 * radius * modulus / 2.9, rel=1e-5)
    assert full.radius == pytest.approx(2 * np.sqrt(d) if metric == "manhattan" else 2)
    assert ball.guarantee(full.radius).mu == pytest.approx(ball.mu * 2 / (radius * modulus))
    assert ball.epsilon_full_radius == pytest.approx(ball.guarantee(full.radius).epsilon)


def test_refit_with_protected_labels_forgets_the_counts(ball_rows):
    head = BallDPRidgePrototype().fit(*ball_rows)
    head.set_params(protect_labels=True, classes=[0, 1, 2]).fit(*ball_rows)
    assert not hasattr(head, "class_counts_")
    with pytest.raises(ValueError, match="decision='nearest'"):
        head.set_params(decision="gaussian").predict(ball_rows[0])


def test_changed_norm_bound_does_not_change_the_released_rule(ball_rows):
    X, y = ball_rows
    head = BallDPRidgePrototype().fit(X, y)
    before = head.decision_function(3 * X)
    np.testing.assert_array_equal(before, head.set_params(norm_bound=7.0).decision_function(3 * X))


def test_every_generator_is_flagged(ball_rows):
    for seed in (0, np.random.default_rng(0), np.random.RandomState(0)):
        head = BallDPRidgePrototype(random_state=seed).fit(*ball_rows)
        assert head.release_.private is False


def _leaves(value, seen):
    """Every number and array that hangs on ``value``."""
    if id(value) in seen:
        return
    seen.append(id(value))
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(key, seen)
            yield from _leaves(item, seen)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _leaves(item, seen)
    elif isinstance(value, np.ndarray) or np.isscalar(value):
        yield value
    elif hasattr(value, "__dict__"):
        yield from _leaves(vars(value), seen)


@pytest.mark.parametrize("protect", [False, True])
def test_nothing_noiseless_on_the_object(protect):
    rng = np.random.default_rng(4)
    X = rng.uniform(0.05, 0.4, size=(60, 5))
    y = np.repeat([0, 1, 2], [31, 17, 12])
    params = {"protect_labels": True, "classes": [0, 1, 2]} if protect else {}
    head = BallDPRidgePrototype(epsilon=0.3, radius=0.3, **params).fit(X, y)
    head.predict(X)
    sums = np.array([X[y == c].sum(0) for c in range(3)])
    means = sums / np.bincount(y)[:, None]
    distances = np.linalg.norm(X[:, None] - X, axis=2)
    secrets = {
        "sum": sums,
        "mean": means,
        "minimiser": closed_form(X, y, 0.01),
        "row": X,
        "total": X.sum(0),
        "norm": np.linalg.norm(X, axis=1),
        "quantile": np.quantile(distances[distances > 0], [0.5, 0.8, 0.95]),
        "largest norm": np.linalg.norm(X, axis=1).max(),
    }
    if protect:
        secrets["count"] = np.array([31.0, 17.0, 12.0])
    buffer = io.BytesIO()
    pickle.dump(head, buffer)
    state = buffer.getvalue()
    leaves = [np.ravel(v).astype(float) for v in _leaves(vars(head), []) if _is_number(v)]
    found = np.concatenate(leaves)
    assert len(found) > 20
    for name, secret in secrets.items():
        for number in np.ravel(secret):
            assert not np.any(np.abs(found - number) < 1e-12 * abs(number)), name
            if name == "count":  # too short a number to search for in text
                continue
            for text in (repr(head), head._repr_html_(), repr(head.release_)):
                assert repr(float(number)) not in text, name
            assert np.float64(number).tobytes() not in state, name


def _is_number(value):
    return np.issubdtype(np.asarray(value).dtype, np.number)


def test_the_leak_test_can_fail(ball_rows):
    head = BallDPRidgePrototype().fit(*ball_rows)
    head.sums_ = {"a": [ball_rows[0].sum(0)]}
    leaves = [np.ravel(v).astype(float) for v in _leaves(vars(head), []) if _is_number(v)]
    assert np.isin(ball_rows[0].sum(0), np.concatenate(leaves)).all()


BAD_PARAMETERS = [
    ({"epsilon": 0}, "epsilon"),
    ({"epsilon": -1.0}, "epsilon"),
    ({"epsilon": np.nan}, "epsilon"),
    ({"epsilon": "1"}, "epsilon"),
    ({"epsilon": np.inf}, "epsilon"),
    ({"delta": 0.0}, "delta"),
    ({"delta": 1.0}, "delta"),
    ({"radius": 0.0}, "radius"),
    ({"radius": -2}, "radius"),
    ({"radius": "auto"}, "radius"),
    ({"alpha": 0.0}, "alpha"),
    ({"norm_bound": -1.0}, "norm_bound"),
    ({"norm_bound": 1e160}, "norm_bound"),
    ({"norm_bound": 1e-200}, "norm_bound"),
    ({"epsilon": 1e16}, "epsilon"),
    ({"protect_labels": [True]}, "protect_labels"),
    ({"metric": np.array(["euclidean"])}, "metric"),
    ({"classes": [[0, 1, 2]]}, "classes"),
    ({"classes": [0, "a", None]}, "classes"),
    ({"metric": "cosine"}, "metric .*euclidean"),
    ({"counts": "mean"}, "counts .*per_class"),
    ({"decision": "far"}, "decision .*nearest"),
    ({"random_state": "x"}, "random_state"),
    ({"protect_labels": True}, "classes=None.*pass classes"),
    ({"protect_labels": True, "classes": [0, 1, 2], "decision": "gaussian"}, "decision='gaussian'"),
    ({"classes": [0]}, "classes"),
    ({"classes": [0, 1]}, "outside the declared classes"),
    ({"classes": ["a", "b"]}, "outside the declared classes"),
]


def assert_nothing_fitted(head):
    assert not [name for name in vars(head) if name.endswith("_")]


@pytest.mark.parametrize(("params", "match"), BAD_PARAMETERS, ids=lambda v: str(v)[:40])
def test_bad_parameters(ball_rows, params, match):
    head = BallDPRidgePrototype().fit(*ball_rows).set_params(**params)
    with pytest.raises(ValueError, match=match):
        head.fit(*ball_rows)
    assert_nothing_fitted(head)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_non_finite_rows(ball_rows, bad, dtype):
    X, y = ball_rows[0].astype(dtype), ball_rows[1]
    X[17, 2] = bad
    head = BallDPRidgePrototype()
    with pytest.raises(ValueError, match="Input X contains") as error:
        head.fit(X, y)
    assert_nothing_fitted(head)
    shown = f"{error.value} {error.value.__cause__} {error.value.__context__}"
    assert not any(f"{abs(value):.4f}" in shown for value in ball_rows[0].ravel())


def test_arithmetic_never_warns_or_fails_on_a_row():
    X = np.full((40, 3), 0.1)
    X[0] = 1e-200
    X[1] = 1e200
    with np.errstate(all="raise"):
        BallDPRidgePrototype(protect_labels=True, classes=[0, 1]).fit(X, np.arange(40) % 2)


def test_bad_data(ball_rows):
    X, y = ball_rows
    head = BallDPRidgePrototype()
    for rows, labels, match in [
        (X, np.zeros(len(X)), "1 class"),
        (X[:0], y[:0], "0 sample"),
        (X, y[:-1], "inconsistent numbers of samples"),
        (X, y + 0.5, "continuous"),
        (X[:, 0], y, "2D array"),
    ]:
        with pytest.raises(ValueError, match=match):
            head.fit(rows, labels)
        assert_nothing_fitted(head)
    with pytest.raises(ValueError, match="6 features"):
        head.fit(X, y).predict(X[:, :3])


def test_protected_labels_say_nothing_about_counts(recwarn):
    """Rare, absent and single classes fit in silence, with the same record."""
    X = np.full((40, 3), 0.3)
    params = {"protect_labels": True, "classes": [0, 1, 2]}
    records = []
    for y in (np.zeros(40, int), np.arange(40) % 3, np.r_[1, np.zeros(39, int)]):
        head = BallDPRidgePrototype(**params).fit(X, y)
        assert not hasattr(head, "class_counts_")
        records.append(dataclasses.replace(head.release_, digest=""))
    assert records[0] == records[1] == records[2]
    assert not recwarn.list


def test_counts_do_not_move_protected_or_worst_noise(ball_rows):
    X, y = ball_rows
    for params in ({"counts": "worst"}, {"protect_labels": True, "classes": [0, 1, 2]}):
        one = BallDPRidgePrototype(**params).fit(X, y).release_
        other = BallDPRidgePrototype(**params).fit(X, np.arange(len(y)) % 3).release_
        assert one.sigma == other.sigma
        assert isinstance(one.sigma, float)
