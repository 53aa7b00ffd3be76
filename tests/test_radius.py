"""Radius policies: quantiles, the private quantile's law and privacy, nesting in heads.

Tests of randomness here reject correct code with probability below 1e-9 each.
"""

import itertools
import json
import math
import pickle

import mpmath
import numpy as np
import pytest
import sklearn
from scipy.optimize import brentq
from scipy.spatial.distance import cdist, pdist
from scipy.special import expit, ndtr
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, normalize

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    RadiusPolicy,
    ReconstructionAuditor,
    distances,
)
from sklearn_balldp.adjacency import METRICS
from sklearn_balldp.audit.certificates import rero_bound
from sklearn_balldp.distances import private_quantile, same_label_quantile
from sklearn_balldp.privacy.gaussian import delta_from_mu, mu_from_budget, mu_from_pure
from sklearn_balldp.privacy.origins import Declared, Reference
from sklearn_balldp.privacy.release import Release

CDIST = {"euclidean": "euclidean", "manhattan": "cityblock", "chebyshev": "chebyshev"}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return normalize(X), y


@pytest.mark.parametrize("metric", METRICS)
def test_quantiles_of_pairs_of_one_label(ball_rows, metric, monkeypatch):
    """The largest of all classes, in blocks of any size; and of pairs that are drawn."""
    X, y = ball_rows
    classes = [pdist(X[y == c], CDIST[metric]) for c in range(3)]
    exact = {q: max(np.quantile(pairs, q) for pairs in classes) for q in (0.5, 0.8, 1.0)}
    for rel, name, value in ((1e-6, "DIAMETER_BLOCK", 100), (0.02, "ALL_PAIRS", 10)):
        for (q, expected), dtype in itertools.product(exact.items(), (np.float64, np.float32)):
            found = same_label_quantile(X.astype(dtype), y, q, metric=metric)
            # The diameter is always exact.
            assert found == pytest.approx(expected, rel=1e-6 if q == 1.0 else rel)
            monkeypatch.setattr(distances, name, value)


def test_diameter_of_rows_near_each_other():
    """A product of such rows cancels: most of its digits are lost."""
    rng = np.random.default_rng(0)
    for spread in (1e-2, 3e-4, 1e-7):
        rows = np.eye(1, 64)[0] + spread * rng.standard_normal((600, 64)) * rng.random((600, 1))
        rows = rows.astype(np.float32)
        expected = pdist(rows.astype(np.float64)).max()
        assert same_label_quantile(rows, np.zeros(600), 1.0) == pytest.approx(expected, rel=1e-15)
    assert same_label_quantile(np.ones((5, 3)), np.zeros(5), 1.0) == 0.0


def test_errors(ball_rows):
    X, y = ball_rows
    for match, call in {
        "quantile": lambda: same_label_quantile(X, y, quantile=1.5),
        "metric": lambda: same_label_quantile(X, y, metric="cosine"),
        "two reference rows": lambda: same_label_quantile(X[:2], [0, 1]),
        "two records": lambda: private_quantile(X[:2], y[[0, -1]], epsilon=1.0),
        "is zero": lambda: RadiusPolicy().fit(X_public=X[[0] * 10], y_public=np.zeros(10)),
    }.items():
        with pytest.raises(ValueError, match=match):
            call()


# The private quantile ---------------------------------------------------------------------------


def kolmogorov_limit(n):
    """Distance of n draws from their law that is exceeded with probability below 1e-10."""
    return math.sqrt(math.log(2e10) / (2 * n))


NODES, WEIGHTS = np.polynomial.legendre.leggauss(600)


def permute_and_flip_law(scores, epsilon):
    """Candidate i is first: accepted, and none of the others so before its place in the order.

    Places are uniform: the probability is p_i times the integral of the others' (1 - p_j t).
    """
    values, where, counts = np.unique(scores, return_inverse=True, return_counts=True)
    p = np.exp(0.5 * epsilon * (values - values.max()))
    left = np.log1p(-np.outer(0.5 * (NODES + 1.0), p))
    others = np.exp((left @ counts)[:, None] - left)
    return (p * (0.5 * WEIGHTS @ others))[where]


def exact_law(X, y, quantile, epsilon, metric, monkeypatch):
    """Log-probabilities of every candidate, class by class, from the scores that are drawn."""
    laws = []

    def record(scores, budget, random_state):
        laws.append(np.log(permute_and_flip_law(scores, budget)))
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(distances, "permute_and_flip", record)
        patch.setattr(distances, "_shuffled", lambda n, _: np.arange(n))
        private_quantile(X, y, quantile, epsilon=epsilon, metric=metric)
    return laws


@pytest.mark.parametrize("metric", METRICS)
def test_private_quantile_weights_are_those_of_the_mechanism(ball_rows, metric, monkeypatch):
    X, y = ball_rows
    laws = exact_law(X, y, 0.3, 0.8, metric, monkeypatch)
    largest = {"euclidean": 2.0, "manhattan": 2.0 * math.sqrt(6), "chebyshev": 2.0}[metric]
    grid = largest * np.arange(1, 4097) / 4096
    for law, label in zip(laws, range(3), strict=True):
        rows = X[y == label]
        m = len(rows) // 2
        distances = [
            cdist(rows[i : i + 1], rows[m + i : m + i + 1], CDIST[metric])[0, 0] for i in range(m)
        ]
        below = np.array([sum(d < o for d in distances) for o in grid])
        expected = permute_and_flip_law(-np.abs(below - round(0.3 * m)), 0.8)
        np.testing.assert_allclose(np.exp(law), expected)
        assert np.exp(law).sum() == pytest.approx(1)


def test_private_quantile_law_end_to_end(ball_rows, monkeypatch):
    X, y = ball_rows
    X, y = X[y == 0], y[y == 0]
    monkeypatch.setattr(distances, "GRID_SIZE", 64)
    [law] = exact_law(X, y, 0.5, 0.5, "euclidean", monkeypatch)
    monkeypatch.setattr(distances, "_shuffled", lambda n, _: np.arange(n))
    # Half or twice the epsilon moves the law by 0.12 and more: noticed but for once in 1e7.
    n = 2500
    draws = np.array([private_quantile(X, y, 0.5, epsilon=0.5) for _ in range(n)])
    grid = 2.0 * np.arange(1, 65) / 64
    shares = np.searchsorted(np.sort(draws), grid, side="right") / n
    assert np.abs(shares - np.cumsum(np.exp(law))).max() < kolmogorov_limit(n)


@pytest.mark.parametrize("metric", METRICS)
def test_private_quantile_over_neighbours(ball_rows, metric, monkeypatch):
    """Exact likelihood ratios of random and extreme substitutions stay within epsilon."""
    X, y = ball_rows
    rng = np.random.default_rng(0)
    worst = 0.0
    for trial in range(60):
        quantile = rng.choice([0.0, 0.1, 0.5, 0.95, 1.0])
        before = exact_law(X, y, quantile, 0.7, metric, monkeypatch)
        i = int(rng.integers(len(X)))
        changed = X.copy()
        row = rng.standard_normal(6)
        changed[i] = row / np.linalg.norm(row) if trial % 3 else -X[i]
        if trial % 5 == 0:
            partner = (i + 25) % 50 if i < 50 else i
            changed[i] = X[partner]  # distance zero
        after = exact_law(changed, y, quantile, 0.7, metric, monkeypatch)
        moved = [np.abs(b - a).max() for b, a in zip(before, after, strict=True)]
        # One class moves: the maximum over classes costs no more than that one.
        assert sum(value > 0 for value in moved) <= 1
        assert max(moved) <= 0.7 * (1 + 1e-9)
        worst = max(worst, *moved)
    assert worst > 0.3


# What the choice costs --------------------------------------------------------------------------


@pytest.mark.parametrize("spent", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("mu", [0.2, 1.0])
def test_total_covers_the_exact_composition(spent, mu, digits):
    """Randomised response is the worst pure release; beside a Gaussian its profile is known."""
    guarantee = BallDPRidgePrototype(2.0, radius=0.6).fit(*digits).release_.guarantee()
    guarantee = type(guarantee)(**{**vars(guarantee), "mu": mu, "radius_epsilon": spent})

    def gaussian(epsilon):
        if epsilon >= 0:
            return delta_from_mu(mu, epsilon)
        return 1 - math.exp(epsilon) * (1 - delta_from_mu(mu, -epsilon))

    for epsilon in (0.0, 0.3, spent, 1.0, 2.5, 5.0):
        truth = expit(spent) * gaussian(epsilon - spent) + expit(-spent) * gaussian(epsilon + spent)
        assert truth <= guarantee.delta_at(epsilon) * (1 + 1e-9)

    def level(threshold, shift):
        """Probability that the log-likelihood ratio exceeds a threshold."""

        def part(sign):
            return ndtr((sign * spent - threshold) / mu + (shift - 0.5) * mu)

        heads = expit(spent) if shift else expit(-spent)
        return heads * part(1) + (1 - heads) * part(-1)

    for kappa in (0.01, 0.1, 0.5):
        threshold = brentq(lambda t: level(t, 0) - kappa, -50, 50)  # noqa: B023
        assert level(threshold, 1) <= guarantee.certificate(kappa) * (1 + 1e-9)
        assert guarantee.certificate(kappa) <= level(threshold, 1) * 2


def test_pure_privacy_as_gaussian():
    assert mu_from_pure(0.5) == pytest.approx(0.624, abs=5e-4)
    assert mu_from_pure(0.0) == 0
    assert mu_from_pure(1e6) == math.inf
    for epsilon in (1e-17, 1e-9, 1e-3, 0.5, 0.999, 1.001, 5.0, 40.0, 300.0):
        with mpmath.workdps(60):
            level = mpmath.exp(epsilon) / (1 + mpmath.exp(epsilon))
            if epsilon < 100:
                exact = 2 * mpmath.sqrt(2) * mpmath.erfinv(2 * level - 1)
                assert exact <= mu_from_pure(epsilon) <= exact * (1 + 1e-12)
    for epsilon in (1e-6, 0.3, 2.0, 30.0):
        mu = mu_from_pure(epsilon)
        # The Gaussian profile covers that of randomised response, at every order.
        for order in np.linspace(0, epsilon, 7):
            truth = expit(epsilon) - math.exp(order) * expit(-epsilon)
            assert max(truth, 0) <= delta_from_mu(mu, order) * (1 + 1e-9) + 1e-15
    with pytest.raises(ValueError, match="epsilon"):
        mu_from_pure(-1.0)


def test_a_private_radius_joins_the_total(digits):
    policy = RadiusPolicy(source="private", epsilon=0.5)
    head = BallDPRidgePrototype(2.0, radius=policy).fit(*digits)
    release = head.release_
    assert release.radius_source == "private"
    assert release.radius_epsilon == 0.5
    assert release.private is True
    guarantee = release.guarantee()
    assert guarantee.mu == pytest.approx(mu_from_budget(2.0, 1e-6), rel=1e-6)
    assert guarantee.epsilon == pytest.approx(2.5, rel=1e-6)
    assert guarantee.delta_at(guarantee.epsilon) <= 1e-6
    assert guarantee.mu_total == pytest.approx(math.hypot(guarantee.mu, mu_from_pure(0.5)))
    assert release.epsilon_full_radius == pytest.approx(release.guarantee(2.0).epsilon)
    assert release.certificate(0.1) > rero_bound(0.1, guarantee.mu)
    assert "epsilon=2.5" in str(release)
    assert Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release
    seeded = BallDPRidgePrototype(2.0, radius=clone(policy).set_params(random_state=0)).fit(*digits)
    assert seeded.release_.private is False


# Policies in heads and pipelines ----------------------------------------------------------------

DECLARED, PRIVATE = RadiusPolicy(source="declared"), RadiusPolicy(source="private", epsilon=5.0)


@pytest.mark.parametrize("Head", [BallDPRidgePrototype, BallDPLogisticRegression])
def test_reference_rows(Head, digits):
    X, y = digits
    head = Head(4.0, radius=RadiusPolicy(0.8), random_state=0)
    head.fit(X[:1400], y[:1400], X_public=X[1400:], y_public=y[1400:])
    release = head.release_
    assert release.radius == same_label_quantile(X[1400:], y[1400:], 0.8)
    assert release.radius_from == Reference()
    plain = Head(4.0, radius=release.radius, random_state=0).fit(X[:1400], y[:1400])
    name = "prototypes_" if Head is BallDPRidgePrototype else "coef_"
    np.testing.assert_array_equal(getattr(head, name), getattr(plain, name))
    with pytest.raises(ValueError, match=r"radius: .*X_public and y_public to fit"):
        head.fit(X, y)
    assert not hasattr(head, "release_")
    with pytest.raises(ValueError, match="go together"):
        head.fit(X, y, X_public=X)
    with pytest.raises(ValueError, match="features"):
        head.fit(X, y, X_public=X[:, :5], y_public=y)
    # The private rows are never a fallback.
    assert "radius_" not in vars(head.radius)


def frozen(policy, X, y, **parameters):
    """A fitted policy, as a head takes it, with parameters that were changed after the fit."""
    public = {"X_public": X, "y_public": y} if policy.source == "reference" else {"X": X, "y": y}
    return FrozenEstimator(clone(policy).fit(**public).set_params(**parameters))


@pytest.mark.parametrize("policy", [RadiusPolicy(0.8), DECLARED, PRIVATE])
def test_a_frozen_policy_is_what_it_was_fitted_as(policy, digits):
    """Parameters set later change nothing of what was drawn; another ball or metric is refused."""
    X, y = digits
    epsilon = policy.epsilon
    late = {"random_state": 0, "source": "private" if epsilon is None else "reference"}
    kept = frozen(policy, X, y, **late, epsilon=None if epsilon is None else 0.001)
    head = BallDPRidgePrototype(4.0, radius=kept)
    release = head.fit(X, y).release_
    assert release.radius == kept.estimator.radius_
    assert release.radius_from == (Declared() if policy.source == "declared" else Reference())
    assert release.radius_epsilon == (epsilon or 0.0)
    assert release.private == ("conditional" if policy.source == "declared" else True)
    if policy.source != "private":
        assert release.radius == same_label_quantile(X, y, policy.quantile)
    if policy.source != "reference":
        protected = BallDPRidgePrototype(radius=kept, protect_labels=True, classes=range(10))
        with pytest.raises(ValueError, match="protect_labels=True keeps private"):
            protected.fit(X, y)
    small = frozen(clone(policy).set_params(norm_bound=0.1), X, y)
    for radius, message in (
        (small, r"norm_bound=0.1, the head has norm_bound=1.0"),
        (frozen(clone(policy).set_params(metric="manhattan"), X, y), "metric='manhattan'"),
        (FrozenEstimator(Normalizer()), "radius must be"),
    ):
        with pytest.raises(ValueError, match=message):
            head.set_params(radius=radius).fit(X, y)
        assert not hasattr(head, "release_")
    assert head.set_params(radius=small, norm_bound=0.1).fit(X, y).release_.radius <= 0.2
    with pytest.raises(sklearn.exceptions.NotFittedError):
        head.set_params(radius=FrozenEstimator(policy)).fit(X, y)


def test_a_frozen_choice_of_a_seed_is_not_private(digits):
    policy = frozen(clone(PRIVATE).set_params(random_state=0), *digits, random_state=None)
    release = BallDPRidgePrototype(1.0, radius=policy).fit(*digits).release_
    assert (release.radius_epsilon, release.private) == (5.0, False)


@pytest.mark.parametrize("source", ["reference", "edits"])
def test_a_frozen_policy_of_rows_that_the_sphere_scales_is_refused(source, digits):
    X, y = digits
    head = BallDPLinearDiscriminant(4.0, domain="sphere")
    policy = RadiusPolicy(0.8, source=source)
    # Both sides of an edit must lie on it.
    others = np.roll(X, 1, axis=0) if source == "edits" else y
    short = [(0.3 * X, others)] + [(X, 0.3 * others)] * (source == "edits")
    for public in short:
        kept = FrozenEstimator(clone(policy).fit(X_public=public[0], y_public=public[1]))
        with pytest.raises(ValueError, match="normalise the rows before its fit"):
            head.set_params(radius=kept).fit(0.3 * X, y)
    for dtype in (np.float32, np.float64):
        whole = clone(policy).fit(X_public=X.astype(dtype), y_public=others)
        release = head.set_params(radius=FrozenEstimator(whole)).fit(0.3 * X, y).release_
        assert release.radius == whole.radius_


def test_the_heads_metric_and_ball_are_used(digits):
    X, y = digits
    head = BallDPRidgePrototype(4.0, radius=RadiusPolicy(), metric="manhattan", norm_bound=0.5)
    release = head.fit(X, y, X_public=X[:500], y_public=y[:500]).release_
    expected = same_label_quantile(0.5 * X[:500], y[:500], 0.5, metric="manhattan")
    assert release.radius == pytest.approx(expected)


def test_protected_labels_refuse_policies_that_read_them(digits):
    X, y = digits
    head = BallDPRidgePrototype(radius=DECLARED, protect_labels=True, classes=range(10))
    for policy in (DECLARED, PRIVATE):
        with pytest.raises(ValueError, match="protect_labels=True keeps private"):
            head.set_params(radius=policy).fit(X, y)
    head.set_params(radius=RadiusPolicy())
    assert head.fit(X, y, X_public=X[:500], y_public=y[:500]).release_.radius < 2


def test_the_auditor_passes_public_rows_on(digits):
    X, y = digits
    head = BallDPRidgePrototype(4.0, radius=RadiusPolicy())
    auditor = ReconstructionAuditor(head, random_state=0)
    auditor.fit(X[:1200], y[:1200], X[1200:], y[1200:])
    release = auditor.estimator_.release_
    assert release.radius == same_label_quantile(X[1200:], y[1200:], 0.5)
    # Rows held out of the private ones are no public reference.
    with pytest.raises(ValueError, match="X_public and y_public"):
        auditor.fit(X, y)


def test_as_a_step(digits):
    X, y = digits
    pipe = make_pipeline(RadiusPolicy(source="declared"), BallDPRidgePrototype(4.0, radius=0.6))
    assert pipe.fit(3 * X, y).score(3 * X, y) > 0.7
    np.testing.assert_allclose(np.linalg.norm(pipe[0].transform(3 * X), axis=1), 1)
    assert pipe[0].get_feature_names_out().tolist()[:2] == ["x0", "x1"]
    with pytest.raises(ValueError, match="source='reference' needs X_public and y_public"):
        make_pipeline(RadiusPolicy(), BallDPRidgePrototype()).fit(X, y)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"quantile": 1.5}, "quantile"),
        ({"quantile": "half"}, "quantile"),
        ({"source": "guess"}, "source must be one of"),
        ({"metric": "cosine"}, "metric must be one of"),
        ({"norm_bound": 0}, "norm_bound"),
        ({"random_state": "x"}, "random_state"),
        ({"epsilon": 1.0}, r"epsilon=1.0 is for source='private'"),
        ({"source": "private"}, "epsilon must be a number, at least 1e-06 and at most 1000"),
        ({"source": "private", "epsilon": -1.0}, "epsilon must be a number, at least 1e-06 and"),
    ],
)
def test_bad_policies(params, match, digits):
    X, y = digits
    policy = RadiusPolicy(**params)
    with pytest.raises(ValueError, match=match):
        policy.fit(X, y, X_public=X, y_public=y)
    with pytest.raises(ValueError, match=match):
        BallDPRidgePrototype(radius=policy).fit(X, y, X_public=X, y_public=y)


def test_a_policy_keeps_no_rows(digits):
    for policy in map(clone, (DECLARED, PRIVATE)):
        assert len(pickle.dumps(policy.fit(*digits))) < 1000
        head = BallDPRidgePrototype(radius=policy, random_state=0).fit(*digits)
        assert head.radius is policy
