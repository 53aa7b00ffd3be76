"""Each number of docs/definitions.md, as its sentence says it: real fits, real noise, the attacker.

An attack may exceed a bound by its own error of simulation alone (below one run in a million).
"""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.accounting import PrivateAccuracy

R, N = 0.4, 1200
#: Five standard errors of a share of N releases.
ERROR = 5.0 * np.sqrt(0.25 / N)
HEAD = BallDPRidgePrototype(4.0, 1e-5, radius=R, alpha=1.0)


def others():
    """Records that the attacker knows; those to be hidden come first."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 3))
    return X / (2.0 * np.linalg.norm(X, axis=1, keepdims=True)), np.arange(12) % 2


def releases(rows, places=(0,)):
    """N releases with these rows in the place of hidden records."""
    X, y = others()
    X = X.copy()
    X[list(places)] = rows
    return np.array([HEAD.fit(X, y).prototypes_.ravel() for _ in range(N)]), HEAD.release_


def noiseless(rows, places=(0,)):
    X, y = others()
    X = X.copy()
    X[list(places)] = rows
    sums = np.array([X[y == c].sum(axis=0) for c in (0, 1)])
    counts = np.bincount(y)[:, None]
    return (2.0 * sums / (2.0 * counts + len(X))).ravel()


def along(found, one, other):
    """What an attacker sees of each release: its place between two candidates' models."""
    step = other - one
    return (found - (one + other) / 2.0) @ step / np.linalg.norm(step)


CENTRE = np.array([0.3, 0.0, 0.0])
STEP = np.array([0.0, R / 2.0, 0.0])


def test_two_records_within_the_distance_of_each_other():
    """Advantage, true positives and epsilon are about such a pair, which reaches them."""
    pair = CENTRE - STEP, CENTRE + STEP
    models = [noiseless(rows) for rows in pair]
    (first, release), (second, _) = (releases(rows) for rows in pair)
    first, second = along(first, *models), along(second, *models)
    stated = release.guarantee()
    advantage = (second > 0.0).mean() - (first > 0.0).mean()
    assert abs(advantage - stated.advantage) <= 2 * ERROR
    for fpr in (0.01, 0.1):
        threshold = np.quantile(first, 1.0 - fpr)
        found = (second > threshold).mean()
        assert found <= stated.tpr(fpr) + 2 * ERROR
        assert found >= stated.tpr(fpr) - 3 * ERROR
    for epsilon in (0.5, 1.0, 2.0):
        for threshold in np.linspace(-0.2, 0.4, 7):
            excess = (second > threshold).mean() - np.exp(epsilon) * (first > threshold).mean()
            assert excess <= stated.delta_at(epsilon) + (1 + np.exp(epsilon)) * ERROR
    # Two records at that distance of one record lie twice as far apart, and are told apart better.
    wide = CENTRE - 2 * STEP, CENTRE + 2 * STEP
    models = [noiseless(rows) for rows in wide]
    (first, _), (second, _) = (releases(rows) for rows in wide)
    first, second = along(first, *models), along(second, *models)
    far = (second > 0.0).mean() - (first > 0.0).mean()
    assert far > stated.advantage + 2 * ERROR
    assert far <= release.guarantee(2 * R).advantage + 2 * ERROR


def test_candidates_within_the_distance_of_one_possible_record():
    """They may be twice as far apart; two opposite ones reach the certificate."""
    candidates = CENTRE - 2 * STEP, CENTRE + 2 * STEP
    models = np.array([noiseless(rows) for rows in candidates])
    right = 0.0
    for place, rows in enumerate(candidates):
        found, release = releases(rows)
        gaps = np.linalg.norm(found[:, None] - models, axis=2)
        right += (gaps.argmin(axis=1) == place).mean() / 2.0
    assert abs(right - release.certificate(0.5)) <= ERROR


@pytest.mark.parametrize("copies", [1, 2])
def test_a_record_that_is_there_twice_belongs_to_the_promise_for_two(copies):
    """Whoever knows less than the attacker of the others may still know that they are copies."""
    places = (0, 2)[:copies]
    candidates = [np.tile(CENTRE + s * STEP * 2, (copies, 1)) for s in (-1, 1)]
    models = np.array([noiseless(rows, places) for rows in candidates])
    right = 0.0
    for place, rows in enumerate(candidates):
        found, release = releases(rows, places)
        gaps = np.linalg.norm(found[:, None] - models, axis=2)
        right += (gaps.argmin(axis=1) == place).mean() / 2.0
    assert (right > release.certificate(0.5) + ERROR) == (copies == 2)
    assert right <= release.certificate(0.5, records=copies) + ERROR


def test_a_score_is_about_one_scored_row():
    X, y = others()
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
    page = (Path(__file__).parents[1] / "docs" / "definitions.md").read_text(encoding="utf-8")
    assert len(page.split()) <= 900
    release = HEAD.fit(*others()).release_
    stated = release.guarantee()
    for name in re.findall(r"`guarantee\(\.\.\.\)\.(\w+)", page):
        assert hasattr(stated, name)
    for name in ("certificate", "epsilon_full_radius", "radius_hides", "radius_hides_records"):
        assert f"`{name}" in page
        assert hasattr(release, name)
