"""Each number of docs/definitions.md, as its sentence says it: real fits, real noise, the attacker.

An attack may exceed a bound by its own error of simulation alone (below one run in a million).
"""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from sklearn_balldp import BallDPLinearDiscriminant, BallDPRidgePrototype
from sklearn_balldp.accounting import PrivateAccuracy
from sklearn_balldp.datasets import load_messages
from sklearn_balldp.heads import base, fitting
from sklearn_balldp.publish.card import candidates_of

R, N = 0.4, 800
#: Five standard errors of a share of N releases.
ERROR = 5.0 * np.sqrt(0.25 / N)
HEAD = BallDPRidgePrototype(4.0, 1e-5, radius=R, alpha=1.0)


CENTRE = np.array([0.3, 0.0, 0.0])
STEP = np.array([0.0, R / 2.0, 0.0])


def records(steps=0, copies=1):
    """Records that the attacker knows, and hidden ones so many half distances from the centre."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 3))
    X /= 2.0 * np.linalg.norm(X, axis=1, keepdims=True)
    X[[0, 2][:copies]] = CENTRE + steps * STEP
    return X, np.arange(12) % 2


@cache
def releases(*which):
    """N releases of these records, and the record of one."""
    data = records(*which)
    made = {}

    def promise(head, problem, radius, settings):
        """Of equal public numbers one is made; each fit draws noise of its own."""
        if problem not in made:
            made[problem] = fitting.promise(head, problem, radius, settings)
        return replace(made[problem], noise=head._noise())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "promise", promise)
        return np.array([HEAD.fit(*data).prototypes_.ravel() for _ in range(N)]), HEAD.release_


def page(name):
    path = Path(__file__).parents[1] / "docs" / f"{name}.md"
    return " ".join(path.read_text(encoding="utf-8").split())


def noiseless(X, y):
    sums = np.array([X[y == c].sum(axis=0) for c in (0, 1)])
    return (2.0 * sums / (2.0 * np.bincount(y)[:, None] + len(X))).ravel()


def seen_by_an_attacker(one, other, copies=1):
    """Of N releases of each of two data sets, the place between their models; and a record."""
    (first, release), (second, _) = releases(one, copies), releases(other, copies)
    near, far = (noiseless(*records(steps, copies)) for steps in (one, other))
    axis = (far - near) / np.linalg.norm(far - near)
    return (first - (near + far) / 2.0) @ axis, (second - (near + far) / 2.0) @ axis, release


def test_two_records_within_the_distance_of_each_other():
    """Advantage, true positives and epsilon are about such a pair, which reaches them."""
    first, second, release = seen_by_an_attacker(-2, 0)
    stated = release.guarantee()
    advantage = (second > 0.0).mean() - (first > 0.0).mean()
    assert abs(advantage - stated.advantage) <= 2 * ERROR
    for fpr in (0.01, 0.1):
        threshold = np.quantile(first, 1.0 - fpr)
        assert -3 * ERROR <= (second > threshold).mean() - stated.tpr(fpr) <= 2 * ERROR
    for epsilon in (0.5, 1.0, 2.0):
        for threshold in np.linspace(-0.2, 0.4, 7):
            excess = (second > threshold).mean() - np.exp(epsilon) * (first > threshold).mean()
            assert excess <= stated.delta_at(epsilon) + (1 + np.exp(epsilon)) * ERROR


@pytest.mark.parametrize("copies", [1, 2])
def test_candidates_within_the_distance_of_one_possible_record(copies):
    """They may be twice as far apart; two opposite ones reach the certificate.

    A record that is there twice belongs to the promise for two: whoever knows less than the
    attacker of the others may still know that they are copies.
    """
    first, second, release = seen_by_an_attacker(-2, 2, copies)
    right = ((first < 0.0).mean() + (second > 0.0).mean()) / 2.0
    if copies == 1:
        assert abs(right - release.certificate(0.5)) <= ERROR
        # Two such records are told apart better than two within the distance of each other.
        assert 2.0 * right - 1.0 > release.guarantee().advantage + 2 * ERROR
        assert 2.0 * right - 1.0 <= release.guarantee(2 * R).advantage + 2 * ERROR
    else:
        assert right > release.certificate(0.5) + ERROR
    assert right <= release.certificate(0.5, records=copies) + ERROR


def test_a_score_is_about_one_scored_row():
    X, y = records()
    head = BallDPRidgePrototype(40.0, 1e-5).fit(X, y)
    scorer = PrivateAccuracy(8.0, 1e-5)
    moved = y.copy()
    wrong = np.flatnonzero(head.predict(X) == y)[0]
    moved[wrong] = 1 - moved[wrong]
    first = np.array([scorer(head, X, y) for _ in range(N)])
    second = np.array([scorer(head, X, moved) for _ in range(N)])
    middle = (first.mean() + second.mean()) / 2.0
    advantage = (first > middle).mean() - (second > middle).mean()
    stated = 2.0 * norm.cdf(scorer.mu / 2.0) - 1.0
    assert abs(advantage - stated) <= 2 * ERROR


def test_the_page_defines_what_there_is():
    """Names of the page exist, and its length stays what a reader finishes."""
    text = page("definitions")
    assert len(text.split()) <= 900
    release = HEAD.fit(*records()).release_
    stated = release.guarantee()
    for name in re.findall(r"`guarantee\(\.\.\.\)\.(\w+)", text):
        assert hasattr(stated, name)
    for name in ("certificate", "epsilon_full_radius", "radius_from"):
        assert f"`{name}" in text
        assert hasattr(release, name)


def test_candidates_that_no_ball_holds_may_all_be_told_apart():
    """Why every sentence with a certificate says which candidates it is about."""
    messages = load_messages()
    X, y = messages.X_train, messages.y_train
    places = np.flatnonzero(y == y[0])[:10]
    kept = np.delete(np.arange(len(X)), places[1:])
    X, y, candidates = X[kept].copy(), y[kept], X[places]
    code = np.searchsorted(np.unique(y), y[0])
    right, head = 0, BallDPRidgePrototype(1.0, radius=0.02)
    for true in range(10):
        X[0] = candidates[true]
        head.fit(X, y)
        shrink = 2.0 / (2.0 * head.class_counts_[code] + 0.01 * len(X))
        rest = X[y == y[0]].astype(float).sum(axis=0) - X[0]
        models = shrink * (rest + candidates.astype(float))
        right += np.linalg.norm(models - head.prototypes_[code], axis=1).argmin() == true
    release = head.release_
    assert release.certificate(0.1) < 0.15
    assert right == 10 <= 10 * release.certificate(0.1, radius=2.0)
    named = "candidates of one label, all inside one ball of radius 0.02 around a possible record"
    assert candidates_of(release) == named


@pytest.mark.parametrize("persons", [False, True])
def test_hidden_labels_hide_all_candidates_of_single_records_alone(persons):
    X, y = records()
    head = BallDPLinearDiscriminant(
        4.0, 1e-5, radius=R, domain="sphere", protect_labels=True, classes=[0, 1]
    )
    release = head.fit(X, y, groups=np.arange(12) // 2 if persons else None).release_
    declared, anywhere = (release.certificate(0.5, radius=radius) for radius in (None, 2.0))
    assert (anywhere > 1.05 * declared) == persons
    assert ("inside one ball" in candidates_of(release)) == persons
    said = "with labels protected [any](attacks.md#the-certificates), unless a person has several"
    assert said in page("definitions")
    said = "With labels protected it holds for any, unless a person has several records"
    assert said in page("protection")


def test_guarantees_that_are_exact_are_those_of_single_records():
    """Of persons whose records are spread over classes, the bound of prototypes is not reached."""
    X, y = records()[0], np.tile([0, 0, 1], 4)
    head = BallDPRidgePrototype(4.0, 1e-5, radius=R, counts="min")
    for groups, attained in ((None, True), (np.arange(12) // 3, False)):
        release = head.fit(X, y, groups=groups).release_
        weights = np.ones(12) if groups is None else np.full(12, 1.0 / 3.0)
        owners = np.arange(12) if groups is None else groups
        sigma = head.statistics_.sigma_sums
        # The largest move of all records of one owner by t, each its own way.
        moves = [
            np.hypot(*[0.3 * weights[(owners == o) & (y == c)].sum() / sigma[c] for c in (0, 1)])
            for o in np.unique(owners)
        ]
        stated = release.guarantee(radius=0.3).mu
        assert max(moves) <= stated * (1 + 1e-9)
        assert (max(moves) > stated * (1 - 1e-4)) == attained
    assert "unless a person has several records" in page("folder")
