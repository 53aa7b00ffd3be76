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

R, N = 0.4, 800
#: Five standard errors of a share of N releases.
ERROR = 5.0 * np.sqrt(0.25 / N)
HEAD = BallDPRidgePrototype(4.0, 1e-5, radius=R, alpha=1.0)


def records(rows, places=(0,)):
    """Records that the attacker knows, and these rows in the place of hidden ones."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 3))
    X /= 2.0 * np.linalg.norm(X, axis=1, keepdims=True)
    X[list(places)] = rows
    return X, np.arange(12) % 2


def releases(*data):
    """N releases of these records, and the record of one."""
    return np.array([HEAD.fit(*data).prototypes_.ravel() for _ in range(N)]), HEAD.release_


def noiseless(X, y):
    sums = np.array([X[y == c].sum(axis=0) for c in (0, 1)])
    return (2.0 * sums / (2.0 * np.bincount(y)[:, None] + len(X))).ravel()


def seen_by_an_attacker(one, other):
    """Of N releases of each of two data sets, the place between their models; and a record."""
    (first, release), (second, _) = releases(*one), releases(*other)
    near, far = noiseless(*one), noiseless(*other)
    axis = (far - near) / np.linalg.norm(far - near)
    return (first - (near + far) / 2.0) @ axis, (second - (near + far) / 2.0) @ axis, release


CENTRE = np.array([0.3, 0.0, 0.0])
STEP = np.array([0.0, R / 2.0, 0.0])


def test_two_records_within_the_distance_of_each_other():
    """Advantage, true positives and epsilon are about such a pair, which reaches them."""
    first, second, release = seen_by_an_attacker(records(CENTRE - STEP), records(CENTRE + STEP))
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
    places = (0, 2)[:copies]
    both = [records(np.tile(CENTRE + s * STEP, (copies, 1)), places) for s in (-2, 2)]
    first, second, release = seen_by_an_attacker(*both)
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
    X, y = records(CENTRE)
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
    release = HEAD.fit(*records(CENTRE)).release_
    stated = release.guarantee()
    for name in re.findall(r"`guarantee\(\.\.\.\)\.(\w+)", page):
        assert hasattr(stated, name)
    for name in ("certificate", "epsilon_full_radius", "radius_hides", "radius_hides_records"):
        assert f"`{name}" in page
        assert hasattr(release, name)
