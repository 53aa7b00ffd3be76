"""Mechanisms and queries of one's own: promise, charge, conversation, record, plan and audit."""

import json
import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
from head_cases import fitted_names, records_of, refused, rows

from sklearn_balldp import (
    BallDPLogisticRegression,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    PrivacyAccountant,
    ReconstructionAuditor,
    compose_releases,
)
from sklearn_balldp.audit import FailedGuaranteeWarning
from sklearn_balldp.audit.attacks import answer_again
from sklearn_balldp.audit.noise_tests import weight_checks
from sklearn_balldp.mechanisms import MeanGradient, Mechanism, PrivacyError, Query, Records, Sums
from sklearn_balldp.privacy import Noise, Release
from sklearn_balldp.privacy.bounds import Bound, Promised
from sklearn_balldp.privacy.gaussian import mu_from_budget
from sklearn_balldp.publish import summary
from sklearn_balldp.publish.checks import released_checks
from sklearn_balldp.publish.words import assumptions

MU = mu_from_budget(4.0, 1e-6)


class StopsEarly(Mechanism):
    """Gradient steps until a noisy gradient is hardly longer than its noise: nothing to prove."""

    def __init__(self, *, share=0.25, least=1.3):
        self.share = share
        self.least = least

    def bound(self, problem, mu):
        return Promised(mu)

    def conversation(self, problem, bound):
        theta = np.zeros((problem.kind.n_scores, problem.n_features + problem.fit_intercept))
        constant = float(problem.fit_intercept)
        for _ in range(round(self.share**-2)):
            query = MeanGradient(theta, clip=0.2, constant=constant)
            query = query.calibrated(problem, self.share * bound.budget * (1.0 - 1e-12))
            gradient = yield query
            if np.linalg.norm(gradient) < self.least * query.sigma * math.sqrt(theta.size):
                break
            theta = theta - 20.0 * gradient
        return theta


@dataclass(frozen=True)
class Means(Query):
    """Class sums over the number of records: a substitution moves one by t / n."""

    what: ClassVar[str] = "noise on sums over n"

    sigma: float = 1.0
    scale: float = 1.0

    def shape(self, problem):
        return problem.n_classes, problem.n_features

    def ratio(self, problem, radius, labels):
        if labels == "protected":
            return math.inf
        return radius * (1.0 + 1e-6) / problem.n_samples / self.sigma

    def values(self, problem, records):
        sums = Sums().values(problem, records).reshape(self.shape(problem))
        return self.scale * sums / problem.n_samples

    def theorem(self, problem):
        return "t / n: class sums over the number of records"


class ClassMeans(Mechanism):
    """Class sums over the number of records, as weights."""

    name = "class means"
    accepts = (Means,)

    def __init__(self, *, scale=1.0):
        self.scale = scale

    def bound(self, problem, mu):
        return Means(scale=self.scale).calibrated(problem, mu)

    def conversation(self, problem, bound):
        return (yield bound)


def head_of(mechanism=None, Head=BallDPSquaredHingeSVC, **params):
    given = {"epsilon": 4.0, "radius": 0.6, "mechanism": mechanism or ClassMeans()}
    return Head(**{**given, "fit_intercept": False, **params})


def audited(head, **params):
    given = {"n_draws": 3, "n_candidates": 5, "n_supports": 3, "random_state": 0, **params}
    return ReconstructionAuditor(head, **given).fit(*rows())


# -- nothing to prove ------------------------------------------------------------------------------


@pytest.mark.parametrize("protect", [False, True])
@pytest.mark.parametrize(("Head", "k"), [(BallDPLogisticRegression, 3), (BallDPSquaredHingeSVC, 2)])
def test_an_algorithm_over_proved_queries_in_every_linear_head(Head, k, protect):
    X, y = rows(600, k)
    labels = {"protect_labels": True, "classes": range(k)} if protect else {}
    for given in ({"fit_intercept": True}, {"domain": "sphere"}, {"alpha": 0.5}):
        head = head_of(StopsEarly(), Head, epsilon=8.0, **labels, **given)
        plan = head.plan(600, 5, np.bincount(y)).release
        accountant = PrivacyAccountant(radius=0.6)
        release = accountant.attach(head).fit(X, y).release_
        assert plan.bound == release.bound == Promised(mu_from_budget(8.0, 1e-6))
        assert accountant.total().mu == pytest.approx(release.mu)
        assert Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release
        assert release.mechanism == "StopsEarly"
        assert release.accepted == ()
        assert (release.sensitivity, release.sigma) == ((), ())
        assert release.guarantee().epsilon == pytest.approx(8.0, rel=1e-6)
        assert release.guarantee(0.3).mu == release.mu
        assert release.guarantee(2.0).mu >= (2 if protect else 4) * release.mu
        assert "privacy filter" in summary(release)
    if not protect:
        assert head_of(StopsEarly(), Head, epsilon=50.0).fit(X, y).score(X, y) > 0.7


# -- a query of one's own --------------------------------------------------------------------------


def test_a_record_says_whose_query_it_rests_on():
    release = head_of().fit(*rows()).release_
    assert release.mechanism == "class means"
    assert type("Unnamed", (ClassMeans,), {}).name == "Unnamed"
    assert release.guarantee(0.3).mu == pytest.approx(MU / 2, rel=1e-5)
    assert release.theorem.startswith("t / n")
    assert "noise on sums over n" in summary(release)
    # Nobody else has checked the proof.
    assert release.accepted == (f"{__name__}:Means",)
    assert any("nobody else has checked it" in line for line in assumptions(release))
    assert Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release


@dataclass(frozen=True)
class Picky(Means):
    """It fails on some data sets only."""

    def values(self, problem, records):
        if records.X[0, 0] > 0.0:
            raise ValueError("this data set is told from others")
        return super().values(problem, records)


def test_a_query_that_fails_on_some_data_sets_costs_the_same_on_all():
    """Taken back, its charge told one data set from another: exactly, and for nothing."""

    class Tells(ClassMeans):
        accepts = (Picky,)
        conversation = ClassMeans.conversation

        def bound(self, problem, mu):
            return Picky().calibrated(problem, mu)

    X, y = rows()
    counted = []
    for sign in (1.0, -1.0):
        X[0, 0] = sign * abs(X[0, 0])
        accountant = PrivacyAccountant(radius=0.6)
        head = accountant.attach(head_of(Tells()))
        with pytest.raises(ValueError, match="told from") if sign > 0.0 else nullcontext():
            head.fit(X, y)
        assert bool(fitted_names(head)) == (sign < 0.0)
        counted.append(accountant.records)
    assert counted[0] == counted[1]
    assert len(counted[0]) == 1


@dataclass(frozen=True)
class Falling(Promised):
    """It claims another mu between two radii."""

    claimed: str = ""
    start: float = 0.0
    end: float = 0.0

    def mu_at(self, problem, radius, labels):
        within = self.start < radius < self.end
        return float(self.claimed) if within else super().mu_at(problem, radius, labels)


@pytest.mark.parametrize("claimed", ["0.0", "nan", "-1.0", "0.2"])
@pytest.mark.parametrize("radius", [None, 1.0])
@pytest.mark.kills("privacy/bounds.py", "if not mu >= least * (1.0 - 1e-9):", "if mu < 0.0:")
def test_a_bound_that_falls_as_the_radius_grows_is_refused(claimed, radius):
    """Three fits were once counted as 0 under a limit of 1."""

    class Falls(StopsEarly):
        def bound(self, problem, mu):
            # At the radius that the ledger counts at, and at the full one.
            return Falling(mu, claimed, *((1.9, 2.1) if radius is None else (0.9, 1.1)))

    X, y = rows()
    accountant = PrivacyAccountant(radius=radius, limit=1.0)
    head = accountant.attach(head_of(Falls(), epsilon=0.9))
    for _ in range(3):
        with pytest.raises(ValueError, match="does not fall as the radius grows"):
            head.fit(X, y)
    assert not accountant.records
    assert not fitted_names(head)
    if radius is not None:
        # No fit names that radius, and no total believes it afterwards.
        release = head.set_params(accountant=None).fit(X, y).release_
        for asks in (release.guarantee, partial(compose_releases, [release])):
            with pytest.raises(ValueError, match="does not fall"):
                asks(radius=radius)


@pytest.mark.parametrize(
    ("mechanism", "noise"),
    [
        (ClassMeans(), "simulated"),
        (ClassMeans(), "mechanism"),
        (StopsEarly(least=0.0), "simulated"),
    ],
)
def test_audits_and_checks_run_it(mechanism, noise):
    head = head_of(mechanism, epsilon=16.0)
    auditor = audited(head, noise=noise)
    assert auditor.guarantee_holds_
    # Candidates within the radius move the sums by up to that over n.
    share = auditor.supports_["distance"] / auditor.supports_["mu"]
    assert (0.5 if isinstance(mechanism, ClassMeans) else 0.1) < share.max() <= 1.0
    checks = weight_checks(head.fit(*rows()).released_, records_of(head, *rows()))
    assert "FAIL" not in {check.verdict for check in checks}


@pytest.mark.kills("heads/released.py", "self.by_package and isinstance(self.", "isinstance(self.")
def test_the_size_of_its_numbers_is_not_judged():
    """What it makes of the answer is its own: only its own algorithm says whether that follows."""
    released = head_of(epsilon=16.0).fit(*rows()).released_
    assert isinstance(released.bound, Query)
    (check,) = released_checks(released)
    assert (check.name, check.verdict) == ("transcript", "PASS")


def test_an_audit_convicts_a_query_that_moves_further_than_it_says():
    with pytest.warns(FailedGuaranteeWarning, match="further apart"):
        audited(head_of(ClassMeans(scale=4.0)), n_draws=30)


# -- what no head releases -------------------------------------------------------------------------


def fails(mechanism, match, error=ValueError):
    refused(head_of(mechanism), *rows(), match, error)


def overriding(**methods):
    return type("Broken", (ClassMeans,), {"bound": ClassMeans.bound, **methods})()


def test_another_conversation_needs_a_bound_of_its_own():
    """The filter keeps what is promised at one radius, and an inherited bound states others too."""
    with pytest.raises(TypeError, match="Broken holds another conversation"):
        type("Broken", (GradientPerturbation,), {"conversation": ClassMeans.conversation})
    own = {"conversation": ClassMeans.conversation, "bound": StopsEarly.bound}
    assert type("Own", (GradientPerturbation,), own).name == "Own"


def test_promises_that_are_none():
    fails(overriding(bound=lambda self, problem, mu: None), r"bound\(\) must return a Bound")
    peeking = overriding(bound=lambda self, problem, mu: problem.X.mean())
    fails(peeking, "'Problem' object has no attribute 'X'", AttributeError)

    def greedy(self, problem, mu):
        return ClassMeans.bound(self, problem, 1.1 * mu)

    def infinite(self, problem, mu):
        return replace(ClassMeans.bound(self, problem, mu), sigma=1e-320)

    def negative(self, problem, mu):
        return Promised(-1.0)

    for bound in (greedy, negative, infinite):
        fails(overriding(bound=bound), "misses its own guarantee", RuntimeError)

    def arrays(self, problem, mu):
        found = ClassMeans.bound(self, problem, mu)
        return replace(found, sigma=np.full(2, found.sigma))

    fails(overriding(bound=arrays), "truth value|sigma|only 0-dimensional", (ValueError, TypeError))
    head = head_of(protect_labels=True, classes=[0, 1, 2])
    with pytest.raises(RuntimeError, match="mu=inf, which misses its own guarantee"):
        head.fit(*rows())
    assert not hasattr(head, "release_")


@pytest.mark.parametrize(
    ("values", "match"),
    [
        (np.zeros(5), r"shape \(5,\), where this head needs \(3, 6\)"),
        (np.zeros((3, 5)), "where this head needs"),
        (np.full((3, 6), np.nan), "must be finite"),
    ],
)
def test_values_that_no_head_can_publish(values, match):
    def conversation(self, problem, bound):
        yield bound
        return values

    head = head_of(overriding(conversation=conversation))
    with pytest.raises(ValueError, match=match):
        head.fit(*rows())
    assert not fitted_names(head)


class OtherQuery(ClassMeans):
    """States what its means cost at every radius, and asks for a gradient."""

    bound = ClassMeans.bound

    def conversation(self, problem, bound):
        zero = np.zeros((problem.kind.n_scores, problem.n_features))
        return (yield MeanGradient(zero, clip=0.2).calibrated(problem, bound.mu(problem)))


class OtherSteps(GradientPerturbation):
    """States what clipped gradients cost at every radius, and asks for another kind."""

    bound = GradientPerturbation.bound

    def conversation(self, problem, bound):
        zero, mu = np.zeros(bound.shape(problem)), bound.mu(problem) * (1.0 - 1e-9)
        if self.start == "mean":
            yield replace(bound.start, sigma=1.01 * bound.start.sigma)
        return (yield MeanGradient(zero, clip=9.0, constant=bound.constant).calibrated(problem, mu))


@pytest.mark.parametrize(
    "mechanism",
    [
        OtherQuery(),
        OtherSteps(start="zero", n_steps=1, clip=0.2),
        OtherSteps(start="mean", n_steps=5, clip=0.2),
    ],
)
@pytest.mark.kills("mechanisms/kernel.py", "return asked == 0 and", "return True or")
@pytest.mark.kills("mechanisms/descent.py", "(query.clip, query.constant) == stated", "True")
def test_a_bound_is_believed_of_its_queries_alone(mechanism):
    """At the radius the filter would allow them; beyond, nothing is proved of them."""
    head = head_of(
        mechanism,
        Head=BallDPLogisticRegression,
        fit_intercept=getattr(mechanism, "start", None) == "mean",
    )
    refused(head, *rows(), "states what its own queries cost at every radius", PrivacyError)


def test_what_is_stated_at_the_radius_is_kept():
    @dataclass(frozen=True)
    class Stated(Bound):
        near: float

        def mu_at(self, problem, radius, labels):
            return self.near

    class Loud(ClassMeans):
        def bound(self, problem, mu):
            return Stated(mu)

        def conversation(self, problem, bound):
            return (yield Means().calibrated(problem, self.scale * bound.near))

    X, y = rows()
    released = head_of(Loud(scale=1.0)).fit(X, y).released_
    with pytest.raises(PrivacyError, match="more than is left"):
        head_of(Loud(scale=1.01)).fit(X, y)
    # An audit runs the same filter.
    louder = replace(released, mechanism=Loud(scale=1.01))
    with pytest.raises(PrivacyError, match="more than is left"):
        answer_again(louder, Records(X, y), Noise())
