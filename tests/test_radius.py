"""Radius policies: quantiles, and nesting in heads."""

import itertools
import pickle

import numpy as np
import pytest
import sklearn
from scipy.spatial.distance import pdist
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.preprocessing import Normalizer

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    RadiusPolicy,
    ReconstructionAuditor,
    distances,
)
from sklearn_balldp.adjacency import METRICS
from sklearn_balldp.distances import same_label_quantile
from sklearn_balldp.privacy.origins import Declared, Reference

CDIST = {"euclidean": "euclidean", "manhattan": "cityblock", "chebyshev": "chebyshev"}


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
    X, _ = ball_rows
    for match, call in {
        "two reference rows": lambda: same_label_quantile(X[:2], [0, 1]),
        "is zero": lambda: RadiusPolicy().fit(X_public=X[[0] * 10], y_public=np.zeros(10)),
    }.items():
        with pytest.raises(ValueError, match=match):
            call()


# Policies in heads and pipelines ----------------------------------------------------------------

DECLARED = RadiusPolicy(source="declared")


@pytest.mark.parametrize("Head", [BallDPRidgePrototype, BallDPLogisticRegression])
def test_reference_rows(Head, digits):
    X, y = digits
    head = Head(4.0, radius=RadiusPolicy(0.8), random_state=0)
    head.fit(X[:1400], y[:1400], X_public=X[1400:], y_public=y[1400:])
    release = head.release_
    assert release.radius == same_label_quantile(X[1400:], y[1400:], 0.8)
    assert release.radius_from == Reference()
    # Those of a head that shrinks class means are examples too.
    helps = Head is BallDPLogisticRegression
    public = {"X_public": X[1400:], "y_public": y[1400:]} if helps else {}
    plain = Head(4.0, radius=release.radius, random_state=0).fit(X[:1400], y[:1400], **public)
    assert release.examples == 397 * helps
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


@pytest.mark.parametrize("policy", [RadiusPolicy(0.8), DECLARED])
def test_a_frozen_policy_is_what_it_was_fitted_as(policy, digits):
    """Parameters set later change nothing of what was drawn; another ball or metric is refused."""
    X, y = digits
    kept = frozen(policy, X, y, random_state=0, source="edits")
    head = BallDPRidgePrototype(4.0, radius=kept)
    release = head.fit(X, y).release_
    assert release.radius == kept.estimator.radius_
    assert release.radius_from == (Declared() if policy.source == "declared" else Reference())
    assert release.private == ("conditional" if policy.source == "declared" else True)
    assert release.radius == same_label_quantile(X, y, policy.quantile)
    assert len(pickle.dumps(kept)) < 1000
    protected = BallDPRidgePrototype(radius=policy, protect_labels=True, classes=range(10))
    if policy.source == "reference":
        assert protected.fit(X, y, X_public=X[:500], y_public=y[:500]).release_.radius < 2
    for radius in (kept, policy) if policy.source != "reference" else ():
        with pytest.raises(ValueError, match="protect_labels=True keeps private"):
            protected.set_params(radius=radius).fit(X, y)
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


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"quantile": 1.5}, "quantile"),
        ({"quantile": "half"}, "quantile"),
        ({"metric": "cosine"}, "metric must be one of"),
        ({"norm_bound": 0}, "norm_bound"),
        ({"random_state": "x"}, "random_state"),
        ({"source": "private"}, "source must be one of reference, edits, declared"),
    ],
)
def test_bad_policies(params, match, digits):
    X, y = digits
    policy = RadiusPolicy(**params)
    with pytest.raises(ValueError, match=match):
        policy.fit(X, y, X_public=X, y_public=y)
    with pytest.raises(ValueError, match=match):
        BallDPRidgePrototype(radius=policy).fit(X, y, X_public=X, y_public=y)
