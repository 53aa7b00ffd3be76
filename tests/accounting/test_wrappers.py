"""What a total covers, what it names as left out, and budgets that are planned."""

import warnings

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    TunedThresholdClassifierCV,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from sklearn.random_projection import GaussianRandomProjection
from sklearn.semi_supervised import SelfTrainingClassifier

from sklearn_balldp import (
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    PrivacyAccountant,
    RadiusPolicy,
    compose_releases,
)
from sklearn_balldp.accounting import BudgetExceededError, UncoveredWarning
from sklearn_balldp.privacy.gaussian import mu_from_budget

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 6))
X /= np.linalg.norm(X, axis=1, keepdims=True)
Y = np.arange(120) % 3
B = (Y == 1).astype(int)
UNLABELLED = np.where(np.arange(120) < 20, -1, Y)
HEAD = BallDPLogisticRegression(4.0, radius=0.5, mechanism="output")

LEAKY = [
    (CalibratedClassifierCV(HEAD, cv=2), Y, "CalibratedClassifierCV"),
    (CalibratedClassifierCV(HEAD, cv=2, n_jobs=2), Y, "CalibratedClassifierCV"),
    (StackingClassifier([("a", HEAD)], LogisticRegression(), cv=2), Y, "Stacking"),
    (
        StackingClassifier([("a", HEAD)], LogisticRegression(), cv=2, n_jobs=2),
        Y,
        "cross_val_predict",
    ),
    (BaggingClassifier(HEAD, n_estimators=2), Y, "Bagging"),
    (BaggingClassifier(HEAD, n_estimators=2, n_jobs=2), Y, "Bagging"),
    (SelfTrainingClassifier(HEAD, max_iter=1), UNLABELLED, "SelfTraining"),
    (TunedThresholdClassifierCV(HEAD, cv=2), B, "TunedThresholdClassifierCV"),
    (make_pipeline(SelectKBest(k=3), HEAD), Y, "SelectKBest"),
    (make_pipeline(StandardScaler(), HEAD), Y, "StandardScaler"),
    (
        GridSearchCV(
            make_pipeline(SelectKBest(k=3), HEAD), {"selectkbest__k": [2]}, cv=2, n_jobs=2
        ),
        Y,
        "SelectKBest",
    ),
]
COVERED = [
    (make_pipeline(Normalizer(), GaussianRandomProjection(4), HEAD), Y),
    (FixedThresholdClassifier(HEAD), B),
    (VotingClassifier([("a", HEAD)]), Y),
    (GridSearchCV(HEAD, {"alpha": [0.1]}, cv=2), Y),
]


@pytest.mark.parametrize(("model", "y", "name"), LEAKY)
@pytest.mark.filterwarnings("default")
def test_what_lets_private_labels_or_scores_out_is_named(model, y, name):
    with PrivacyAccountant() as accountant:
        model.fit(X, y)
    with pytest.warns(UncoveredWarning, match=name):
        total = accountant.total()
    assert any(name in what for what in total.uncovered)
    assert f"NOT covered  {total.uncovered[0]}" in str(total)


@pytest.mark.parametrize(("model", "y"), COVERED)
def test_what_releases_nothing_else_is_not(model, y):
    with PrivacyAccountant() as accountant:
        model.fit(X, y)
        cross_val_score(model, X, y, cv=2)
    assert accountant.total().uncovered == ()


def test_bagging_is_not_private():
    """Its seeds are drawn from a generator that others know: the total is infinite."""
    with PrivacyAccountant() as accountant:
        BaggingClassifier(HEAD, n_estimators=2).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        total = accountant.total()
    assert total.private is False
    assert total.epsilon == np.inf


def test_totals_read_like_releases():
    with PrivacyAccountant(radius=0.5, limit=6.0) as accountant:
        for _ in range(2):
            BallDPRidgePrototype(2.0, radius=0.5).fit(X, Y)
    shown = str(accountant.total())
    assert shown.startswith("Total\n  releases")
    for part in ("within 0.5", "of the limit 6", "a priori", "the heads' own fits", "zCDP rho"):
        assert part in shown
    releases = accountant.releases
    assert "ex post" in str(compose_releases(releases, radius=0.5))
    assert "any distance" in str(PrivacyAccountant().total())


def test_plans_are_spent_to_the_last():
    for n_fits in (1, 2, 7, 50):
        accountant = PrivacyAccountant(delta=1e-6, radius=0.5, limit=3.0)
        epsilon = accountant.plan(n_fits)
        with accountant:
            assert accountant.remaining() == pytest.approx(3.0, rel=1e-6)
            for _ in range(n_fits):
                BallDPRidgePrototype(epsilon, radius=0.5).fit(X, Y)
            assert accountant.total().epsilon == pytest.approx(3.0, rel=1e-4)
            assert accountant.total().epsilon <= 3.0
            with pytest.raises(BudgetExceededError):
                BallDPRidgePrototype(0.05, radius=0.5).fit(X, Y)
        assert accountant.remaining() < 1e-3
        assert accountant.plan(3) < 1e-3


def test_what_remains_can_be_spent_and_no_more():
    with PrivacyAccountant(radius=0.5, limit=3.0) as accountant:
        BallDPRidgePrototype(1.0, radius=0.5).fit(X, Y)
        left = accountant.remaining()
        spent = mu_from_budget(1.0, 1e-6) ** 2 + mu_from_budget(left, 1e-6) ** 2
        assert spent == pytest.approx(mu_from_budget(3.0, 1e-6) ** 2, rel=1e-6)
        with pytest.raises(BudgetExceededError):
            BallDPRidgePrototype(left * 1.001, radius=0.5).fit(X, Y)
        BallDPRidgePrototype(left, radius=0.5).fit(X, Y)


def test_a_search_is_refused_before_its_first_fit():
    search = GridSearchCV(
        BallDPRidgePrototype(1.0, radius=0.5), {"alpha": [0.1, 1.0]}, cv=3, error_score="raise"
    )
    with PrivacyAccountant(radius=0.5, limit=2.0, n_fits=7) as accountant:
        with pytest.raises(
            BudgetExceededError, match=r"n_fits=7 fits like this one .* none was made"
        ):
            search.fit(X, Y)
        assert not accountant.records
        search.estimator.epsilon = accountant.plan(7)
        search.fit(X, Y)
    assert accountant.total().n_releases == 7
    assert accountant.total().epsilon <= 2.0


def test_limits_that_are_missing():
    with pytest.raises(ValueError, match="plans against a limit"):
        PrivacyAccountant(n_fits=3)
    with pytest.raises(ValueError, match="n_fits must be an integer"):
        PrivacyAccountant(limit=1.0, n_fits=0)
    with pytest.raises(ValueError, match="limit=None"):
        PrivacyAccountant().remaining()
    with pytest.raises(ValueError, match="n_fits must be an integer"):
        PrivacyAccountant(limit=1.0).plan(0.5)


class Old:
    """A transformer of before scikit-learn had tags."""

    def fit(self, X, y=None):
        return self

    def fit_transform(self, X, y=None):
        return X

    def transform(self, X):
        return X


@pytest.mark.filterwarnings("default")
def test_steps_without_tags_count_as_learning():
    with PrivacyAccountant() as accountant:
        make_pipeline(Old(), HEAD).fit(X, Y)
    with pytest.warns(UncoveredWarning, match="Old before the head learns"):
        accountant.total()


def test_a_plan_counts_the_radius_of_every_fit():
    policy = RadiusPolicy(0.5, source="private", epsilon=2.0)
    head = BallDPRidgePrototype(3.0, radius=policy)
    with PrivacyAccountant(radius=0.5, limit=30.0, n_fits=6) as accountant:
        with pytest.raises(BudgetExceededError, match="n_fits=6"):
            head.fit(X, Y)
        assert not accountant.releases
