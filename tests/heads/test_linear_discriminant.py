"""The discriminant head: its rule, what it believes of noisy sums, and its record."""

import numpy as np
import pytest
from head_cases import noise_of, records_of
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from verdicts import verified

from sklearn_balldp import BallDPLinearDiscriminant

# The rule -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shrinkage", [0.1, 1.0])
def test_without_noise_it_is_the_discriminant_of_scikit_learn(noise_free, shrinkage):
    """The same directions; the slope is measured, so labels agree but near the borders."""
    rng = np.random.default_rng(0)
    y = np.arange(3000) % 3
    X = 0.1 * rng.standard_normal((3000, 8)) * np.linspace(0.3, 1.5, 8) + 0.15 * np.eye(3, 8)[y]
    head = BallDPLinearDiscriminant(1.0, radius=1e-9, share=0.5, shrinkage=shrinkage).fit(X, y)
    peer = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(X, y)
    own = head.coef_ - head.coef_.mean(axis=0)
    theirs = peer.coef_ - peer.coef_.mean(axis=0)
    cosine = np.vecdot(own, theirs) / np.linalg.norm(own, axis=1) / np.linalg.norm(theirs, axis=1)
    assert (cosine > 0.9999).all()
    assert np.mean(head.predict(X) == peer.predict(X)) > 0.99


def test_two_classes(digits):
    (X, y), (Xt, yt) = digits
    head = BallDPLinearDiscriminant(2.0, radius=0.2).fit(X, y % 2)
    assert (head.coef_.shape, head.predict_proba(Xt).shape) == ((1, 64), (len(Xt), 2))
    assert head.score(Xt, yt % 2) > 0.8
    absent = BallDPLinearDiscriminant(2.0, radius=0.2, classes=[0, 1]).fit(X, np.zeros(len(X)))
    assert np.isinf(absent.intercept_).all()
    assert (absent.predict(Xt) == 0).all()
    assert (absent.predict_proba(Xt)[:, 0] == 1).all()
    assert (absent.to_sklearn().predict(Xt) == 0).all()


@pytest.mark.parametrize("share", ["auto", 1.0])
def test_absent_classes_are_never_predicted(share, digits):
    (X, y), _ = digits
    head = BallDPLinearDiscriminant(2.0, radius=0.2, classes=range(12), share=share).fit(X, y)
    assert set(head.predict(X)) <= set(range(10))
    useless = np.r_[np.zeros(10), 0.5, 0.5]
    for rule in (
        clone(head).set_params(priors=useless).fit,
        lambda X, y: head.with_rule(priors=useless),
    ):
        with pytest.raises(ValueError, match="leave nothing for the classes that have records"):
            rule(X, y)
    assert head.class_counts_.tolist()[10:] == [0, 0]
    assert (head.predict_proba(X)[:, 10:] == 0).all()


def test_the_share_is_a_function_of_public_numbers():
    """Larger radii leave less to the second moment, and nothing where its noise is not worth it."""

    def bound(radius, n, d):
        head = BallDPLinearDiscriminant(0.5, radius=radius, domain="sphere")
        return head.plan(n, d, [n // 2, n // 2]).release.bound

    def share(bound):
        """Of the sums in mu squared, but for the sensitivity: it grows with the share."""
        return (bound.moment or np.inf) / bound.sigma

    shares = [share(bound(radius, 20_000, 384)) for radius in (0.02, 0.05, 0.1, 0.2, 0.3)]
    assert (np.diff(shares) >= 0).all()
    assert 0 < shares[0] < 1.5
    assert bound(2.0, 1000, 384).moment is None


# The record, and its rows -------------------------------------------------------------------------


def test_honest_releases_of_repeated_rows_pass():
    """Rounding of sums is no noise: rows in any format, on any machine."""
    row = np.array([[0.3, 0.7, 0.2]], dtype=np.float32)
    X, y = np.repeat(row, 60_000, axis=0), np.arange(60_000) % 2
    for domain in ("ball", "sphere"):
        head = BallDPLinearDiscriminant(1e6, 1e-7, radius=1e-6, domain=domain, share=0.5)
        head.fit(X, y)
        first, second = (
            noise_of(head, records_of(head, rows, y))[0] for rows in (X, X.astype(np.float64))
        )
        np.testing.assert_allclose(first, second, rtol=0.0, atol=1e-3)
        assert not verified(head, private=(X, y)).failed
