"""Bounds: what a mechanism chose, and what it guarantees at every radius, end to end.

Every test of randomness here rejects a correct mechanism with probability below 1e-6.
"""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from sklearn_balldp.mechanisms import (
    DescentBound,
    GradientPerturbation,
    MeanGradient,
    Records,
    Sums,
    drive,
    drive_many,
)
from sklearn_balldp.mechanisms.descent import gains, shares_of
from sklearn_balldp.mechanisms.sums import class_sums
from sklearn_balldp.privacy import Bound, Problem, Promised
from sklearn_balldp.privacy.bounds import KINDS, chain_of, tag_of
from sklearn_balldp.privacy.gaussian import delta_from_mu

Z = 5.5


def problem_of(loss="logistic", *, n_classes=2, r=0.8, labels="public", n_features=3, n_samples=6):
    half = n_samples // 2
    counts = (half, n_samples - half, *(0,) * (n_classes - 2))
    return Problem(
        n_samples=n_samples,
        n_features=n_features,
        n_classes=n_classes,
        class_counts=counts if labels == "public" else None,
        radius=r,
        labels=labels,
        loss=loss,
        fit_intercept=True,
    )


def bound_of(n_steps=3, *, mu=1.0, clip=0.2, learning_rate=1.0, momentum=0.5, averaging=0.5):
    averaged = max(1, round(averaging * n_steps))
    return DescentBound(
        budget=mu,
        learning_rate=learning_rate,
        momentum=momentum,
        clip=clip,
        averaged=averaged,
        shares=shares_of(n_steps, momentum, averaged),
        constant=0.5,
    )


def neighbours(r, n_features=3, n_samples=6):
    """Two datasets that differ in the first row, by r across the first axis."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_samples, n_features))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X[0] = 0.0
    X[0, 0] = r / 2
    other = X.copy()
    other[0, 0] = -r / 2
    return X, other, np.arange(n_samples) % 2


def log_ratios(problem, bound, here, there, n_runs):
    """Log-likelihood ratios of what a descent releases, of the records against their neighbour."""
    rng, ratios = np.random.default_rng(1), np.zeros(n_runs)

    def answer(runs, queries):
        mean = np.array(MeanGradient.together(queries, problem, here))
        moved = np.array(MeanGradient.together(queries, problem, there))
        sigma = np.array([query.sigma for query in queries])[:, None, None]
        noise = sigma * rng.standard_normal(mean.shape)
        change = (moved - mean - noise) / sigma
        ratios[runs] += 0.5 * (change**2).sum(axis=(1, 2))
        ratios[runs] -= 0.5 * ((noise / sigma) ** 2).sum(axis=(1, 2))
        return list(mean + noise)

    mechanism = GradientPerturbation()
    drive_many([mechanism.conversation(problem, bound) for _ in range(n_runs)], answer)
    return ratios


@pytest.mark.parametrize(
    ("loss", "n_steps", "learning_rate", "clip"),
    [
        ("logistic", 1, 1.0, 0.2),
        ("logistic", 5, 0.0, None),
        ("squared_hinge", 1, 1.0, None),
        ("squared_hinge", 5, 0.0, 0.2),
    ],
)
def test_worst_pair_at_zero_spends_mu_exactly(loss, n_steps, learning_rate, clip):
    """One step, or iterates that stay: L is N(mu^2/2, mu^2), neither more nor less."""
    r, mu, n_runs = 0.8, 0.7, 10_000
    problem = problem_of(loss, r=r)
    bound = bound_of(n_steps, mu=mu, clip=clip, learning_rate=learning_rate)
    X, other, y = neighbours(r)
    ratios = log_ratios(problem, bound, Records(X, y), Records(other, y), n_runs)
    assert stats.kstest((ratios - mu**2 / 2) / mu, "norm").pvalue > 1e-7
    # Two decimals of mu, from the mean.
    assert ratios.mean() == pytest.approx(mu**2 / 2, abs=Z * mu / math.sqrt(n_runs))


@pytest.mark.parametrize(
    ("loss", "n_classes", "clip", "labels"),
    [
        ("logistic", 2, 0.2, "public"),
        ("logistic", 2, 0.3, "protected"),
        ("squared_hinge", 2, 0.5, "public"),
        ("softmax", 3, 0.2, "public"),
        ("softmax", 3, 0.5, "protected"),
    ],
)
def test_whole_transcripts_keep_the_guarantee(loss, n_classes, clip, labels):
    """Iterates that move by much: mean, second moment and privacy profile of L stay below."""
    # Where gaps are quick to find there are more runs.
    r, mu, n_runs = 1.2, 1.2, 2_000 if n_classes > 2 else 5_000
    problem = problem_of(loss, n_classes=n_classes, r=r, labels=labels)
    bound = bound_of(3, mu=mu, clip=clip, learning_rate=18.0)
    X, other, y = neighbours(r)
    there = Records(other, y)
    if labels == "protected":
        changed = y.copy()
        changed[0] = 1 - y[0]
        X[0] = other[0] = [1.0, 0.0, 0.0]
        there = Records(other, changed)
    ratios = log_ratios(problem, bound, Records(X, y), there, n_runs)

    def mean_with_error(values):
        return values.mean(), Z * values.std() / math.sqrt(n_runs)

    mean, error = mean_with_error(ratios)
    assert mean <= mu**2 / 2 + error
    second, error = mean_with_error(np.exp(ratios))
    assert second <= math.exp(mu**2) + error
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0):
        profile, error = mean_with_error(np.maximum(-np.expm1(epsilon - ratios), 0.0))
        assert profile <= delta_from_mu(mu, epsilon) + error
    # The pair is a bad one: most of the budget is used, so that a bound half as large would show.
    assert mean > 0.3 * mu**2 / 2


@pytest.mark.parametrize("clip", [None, 0.2])
@pytest.mark.parametrize(
    ("loss", "n_classes"),
    [("logistic", 2), ("squared_hinge", 2), ("softmax", 4), ("squared_hinge", 3)],
)
@pytest.mark.parametrize("labels", ["public", "protected"])
@pytest.mark.parametrize("near", [0.1, 0.5, 0.9, 1.6])
def test_growth_holds_for_rows_of_any_norm(loss, n_classes, clip, labels, near):
    """A run has one map: the largest ratio of limits at one norm, and hardly more."""
    problem = problem_of(loss, n_classes=n_classes, n_features=8, r=near, labels=labels)
    bound = dataclasses.replace(bound_of(clip=clip), least_reach=0.3)
    for far in (1.1 * near, 2.0 * near, 2.0):
        if far <= near:
            continue
        found = bound.growth(problem, near, far, labels)
        ratios = [
            bound.limits(problem, far, labels, norm).largest
            / bound.limits(problem, near, labels, norm).smallest
            for norm in np.linspace(0.3, 1.0, 1001)
        ]
        chain = min(math.ceil(far / near * (1 - 1e-9)), 2 if labels == "protected" else 99)
        assert min(max(ratios), chain) <= found <= min(1.1 * max(*ratios, 1.0), chain)
        if labels == "protected" and clip is not None:
            # Twice the clip times the row, at every radius.
            assert found <= 1.0 + 1e-8
    assert bound.growth(problem, near, near, labels) == 1.0


RADII = (0.2, 0.3, 0.4, 0.6, 0.8, 1.3, 2.0)


@pytest.mark.parametrize("reach", [0.3, 1.0])
@pytest.mark.parametrize("labels", ["public", "protected"])
def test_promises_hold_at_every_radius(labels, reach):
    """Whatever the answers are; a promise that decides the noise is used up."""
    rng = np.random.default_rng(0)
    problem = problem_of("softmax", n_classes=3, r=0.2, n_features=6, labels=labels)
    start = class_sums(problem, 0.5, 1.0)
    for further in (((2.0, 2.5),), ((0.4, 1.2), (0.8, 1.4), (2.0, 3.0)), ((2.0, 100.0),)):
        bound = dataclasses.replace(bound_of(6, clip=0.2), further=further)
        if reach < 1.0:
            further = tuple((t, math.hypot(mu, start.mu(problem, t))) for t, mu in further)
            bound = dataclasses.replace(bound, further=further, start=start, least_reach=reach)
        bound.check(problem)
        for size, rate in itertools.product((0.0, 1.0, 1e3), (1e-9, 30.0)):
            chosen = dataclasses.replace(bound, learning_rate=rate)
            spent = {t: [] for t in RADII}

            def answer(query, size=size, spent=spent):
                for t in RADII:
                    spent[t].append(query.mu(problem, t))
                return size * rng.standard_normal(query.shape(problem))

            drive(GradientPerturbation().conversation(problem, chosen), answer)
            used = {t: math.hypot(*mus) for t, mus in spent.items()}
            assert all(used[t] <= chosen.mu(problem, t) * (1.0 + 1e-12) for t in RADII)
            shares = [used[t] / mu for t, _, mu in chosen.promises(problem)]
            assert max(shares) >= 0.999999
            if labels == "public" and rate < 1.0 and reach == 1.0 and len(further) == 3:
                # Where iterates stay at zero, gaps grow with the radius: the farthest decides.
                assert used[0.2] < 0.5


def test_further_promises_have_their_limits():
    problem = problem_of("softmax", n_classes=3, r=0.5, n_features=6)
    for further, fault in (
        (((0.5, 2.0),), "rising radii"),
        (((1.0, 2.0), (0.9, 2.0)), "rising radii"),
        (((2.5, 3.0),), "rising radii"),
        (((1.0, 0.5),), "at least the mu"),
        (tuple((0.6 + 0.1 * i, 2.0) for i in range(9)), "there are 8 at most"),
    ):
        with pytest.raises(ValueError, match=fault):
            dataclasses.replace(bound_of(), further=further).check(problem)


def test_no_settings_make_the_steps_spend_more_than_mu():
    """Exactly added up: however many steps, and however long a gradient acts."""
    rng, problem = np.random.default_rng(0), problem_of()
    for _ in range(100):
        bound = bound_of(
            int(10.0 ** rng.uniform(0, 3.7)),
            mu=0.9,
            momentum=float(rng.choice([0.0, 0.5, 0.9, 1.0 - 10.0 ** rng.uniform(-16, -1)])),
            averaging=float(rng.choice([0.0, 0.2, 1.0])),
        )
        spent = bound.step_mu(problem)
        exact = sum((Fraction(share) ** 2 for share in spent.tolist()), Fraction(0))
        assert 0.98 * Fraction(0.9) ** 2 <= exact <= Fraction(0.9) ** 2
        gain = gains(bound.n_steps, bound.momentum, bound.averaged)
        assert (np.diff(gain) <= 1e-12 * gain[0]).all()
        shares = np.array(bound.shares)
        np.testing.assert_allclose((shares / shares[0]) ** 2, gain / gain[0], rtol=1e-6)


@pytest.mark.parametrize("clip", [None, 0.2])
@pytest.mark.parametrize(
    ("loss", "n_classes"),
    [("logistic", 2), ("squared_hinge", 2), ("softmax", 4), ("squared_hinge", 3)],
)
@pytest.mark.parametrize("labels", ["public", "protected"])
def test_other_radii_hold_at_every_iterate(loss, n_classes, clip, labels):
    """mu(t) covers every gap at t that could occur, over the noise that the promise gives."""
    problem = problem_of(loss, n_classes=n_classes, n_features=8, r=0.5, labels=labels)
    bound = bound_of(3, clip=clip)
    least, stated = bound.limits(problem, 0.5, labels).smallest, []
    for t, change in itertools.product((0.1, 0.5, 0.6, 1.0, 1.3, 2.0), sorted({"public", labels})):
        limit, chain = bound.mu(problem, t, change), math.ceil(t / 0.5 * (1 - 1e-9))
        most = bound.limits(problem, t, change).largest
        assert limit <= most / least * (1 + 1e-8) or limit <= math.ceil(2 * t)
        # A chain of records is no bound on gaps that are themselves bounds from above.
        if limit < chain:
            stated.append((t, change, limit))
    rng = np.random.default_rng(0)
    for _ in range(40):
        theta = rng.choice([0.0, 0.1, 1.0, 5.0, 30.0]) * rng.standard_normal(bound.shape(problem))
        # Large intercepts leave one label without a gradient.
        theta[:, -1] *= rng.choice([1.0, 20.0])
        query = MeanGradient(theta, clip=clip, constant=bound.constant)
        steps = [query.calibrated(problem, mu) for mu in np.sqrt(bound.shares)]
        for t, change, limit in stated:
            spent = np.linalg.norm([step.ratio(problem, t, change) for step in steps])
            assert spent <= limit * (1 + 1e-9)


@pytest.mark.parametrize("clip", [None, 0.2])
def test_guarantee_at_other_radii(clip):
    problem, bound = problem_of(n_features=10, r=0.5), bound_of(clip=clip)
    assert bound.mu(problem, 0.1) == bound.mu(problem, 0.5) == bound.mu(problem) == 1.0
    assert bound.mu(problem, 0.5 * (1 + 1e-12)) <= 1.0 + 1e-9  # rounding lengthens no chain
    mus = [bound.mu(problem, t) for t in np.linspace(0.05, 2.0, 40)]
    assert (np.diff(mus) >= 0).all()
    assert bound.mu(problem, 1.0) <= 2.0
    assert bound.mu(problem, 2.0) <= 4.0
    if clip:
        # max(B~, 2) / r: clipping keeps gaps from growing with the parameters.
        assert bound.mu(problem, 2.0) == pytest.approx(4.0, rel=1e-5)
        assert bound.mu(problem, 1.1) == pytest.approx(math.hypot(1, 0.5) / 0.5, rel=1e-5)


def test_label_protection_asked_less():
    """Same-label substitutions of a release that hides label changes too."""
    problem, bound = problem_of(labels="protected", r=0.5, n_features=10), bound_of(clip=0.2)
    assert bound.mu(problem, 0.5) == 1.0
    # No less, as rounding keeps its share, and no more: max(B~, t) stays below 2 B~.
    assert bound.mu(problem, 0.5, labels="public") == 1.0
    assert bound.mu(problem, 2.0, labels="public") <= 1.0 + 1e-12
    assert bound.mu(problem, 2.0) == pytest.approx(1.0, rel=1e-6)
    assert bound_of(clip=None).mu(problem, 2.0) <= 2.0
    # Labels are public, and class counts are published.
    for loss in ("logistic", "squared_hinge"):
        assert bound.mu(problem_of(loss, r=0.5), 0.5, labels="protected") == math.inf
    with pytest.raises(ValueError, match="labels must be one of public, protected"):
        bound.mu(problem, 0.5, "private")


def test_no_limit_without_features_to_spare():
    """With one feature all rows move along the weights: only the chain is left."""
    problem = problem_of(n_features=1, r=0.5)
    assert bound_of().mu(problem, 1.2) == pytest.approx(3.0, rel=1e-12)


def test_chains_of_substitutions():
    ball = problem_of(r=0.5)
    for t, length in ((0.1, 1), (0.5, 1), (0.5 * (1 + 1e-12), 1), (0.51, 2), (2.0, 4), (9.0, 4)):
        assert chain_of(ball, t, 0.5, in_the_ball=False, hidden="public") == length
    # On the sphere the records in between lie on an arc, which is longer.
    sphere = dataclasses.replace(ball, domain="sphere")
    for t in (0.7, 1.3, 1.99, 2.0):
        angle = 2 * math.asin(t / 2)
        length = chain_of(sphere, t, 0.5, in_the_ball=False, hidden="public")
        assert 2 * math.sin(angle / length / 2) <= 0.5 < 2 * math.sin(angle / (length - 1) / 2)
    assert chain_of(sphere, 2.0, 0.5, in_the_ball=False, hidden="public") == 7
    assert chain_of(sphere, 2.0, 0.5, in_the_ball=True, hidden="public") == 4
    # By way of another label.
    hidden = problem_of(r=0.5, labels="protected")
    assert chain_of(hidden, 2.0, 0.5, in_the_ball=True, hidden="protected") == 2
    assert chain_of(hidden, 2.0, 0.5, in_the_ball=True, hidden="public") == 4


def test_promises_that_the_filter_keeps():
    problem, bound = problem_of(r=0.5), Promised(0.7)
    assert bound.promises(problem) == [(0.5, "public", 0.7)]
    assert bound.mu(problem) == bound.mu(problem, 0.2) == 0.7
    assert bound.mu(problem, 1.1) == pytest.approx(3 * 0.7)
    assert bound.stated(problem) == ((), ())
    assert "privacy filter" in bound.theorem(problem)
    assert "clipped" in bound_of().theorem(problem_of())
    assert "label" in bound_of().theorem(problem_of(labels="protected"))


def test_kinds_are_registered_by_name():
    assert KINDS["DescentBound"] is DescentBound
    assert tag_of(Sums) == "Sums"
    name = f"{__name__}:test_kinds_are_registered_by_name.<locals>.Mine"

    class Mine(Bound):
        pass

    assert KINDS[name] is Mine
    with pytest.raises(TypeError, match="abstract"):
        Mine()


@dataclasses.dataclass(frozen=True)
class TwoPromises(Promised):
    """One for label changes at the radius, one for records of equal labels at any distance."""

    def promises(self, problem):
        alike = problem.diameter, "public", 0.1 * self.budget
        return [(problem.euclidean_radius, "protected", self.budget), alike]


def test_a_promise_for_equal_labels_says_nothing_of_others():
    problem, bound = problem_of(r=0.5, labels="protected"), TwoPromises(1.0)
    assert bound.mu(problem, 0.5, "protected") == 1.0
    assert bound.mu(problem, 2.0, "protected") == 2.0
    assert bound.mu(problem, 0.5, "public") == bound.mu(problem, 2.0, "public") == 0.1


@dataclasses.dataclass(frozen=True)
class Elsewhere(Bound):
    """It states one thing, and promises another."""

    budget: float

    def mu_at(self, problem, radius, labels):
        return self.budget

    def promises(self, problem):
        return [(problem.diameter, problem.labels, 1e3)]


def test_what_is_stated_is_kept_whatever_else_is_promised():
    problem = problem_of(r=0.5)
    stated = (0.5, "public", 0.3)
    assert Elsewhere(0.3).kept(problem) == [stated, (2.0, "public", 1e3)]
    assert Promised(0.3).kept(problem) == [stated]
