"""A mechanism of one's own: promise, charge, run, record, accountant and auditor."""

import dataclasses
import json
import math

import numpy as np
import pytest

from sklearn_balldp import (
    BallDPSquaredHingeSVC,
    PrivacyAccountant,
    ReconstructionAuditor,
)
from sklearn_balldp.accounting import BudgetExceededError
from sklearn_balldp.audit import FailedGuaranteeWarning
from sklearn_balldp.heads import Budget, Mechanism, Outcome, PrivateProblem, Problem, Promise
from sklearn_balldp.privacy import ParameterBound, Release
from sklearn_balldp.privacy.gaussian import mu_from_budget
from sklearn_balldp.rows import project_onto_ball


@dataclasses.dataclass(frozen=True)
class MeansBound(ParameterBound):
    """Class sums over the number of records: a substitution moves one by t / n."""

    n_samples: int
    n_values: int
    labels: str = "public"
    sigma: tuple[float, ...] = ()
    theorem = "t / n: class sums over the number of records"

    def sensitivity(self, radius, labels=None):
        return np.array([radius * (1 + 1e-6) / self.n_samples])


@dataclasses.dataclass(frozen=True)
class Unscaled(MeansBound):
    """Leaves sensitivity and noise scale to the promise."""

    def scales(self, radius):
        return None


class ClassMeans(Mechanism):
    """Class sums over the number of records, as weights."""

    name = "class means"

    def __init__(self, *, scale=1.0):
        self.scale = scale

    def promise(self, problem, budget):
        assert not hasattr(problem, "X")
        bound = MeansBound(problem.n_samples, problem.n_classes * problem.n_features)
        bound = bound.calibrated(problem.radius, budget.mu)
        return Promise(bound)

    def run(self, problem, promise, noise):
        X = project_onto_ball(problem.X, problem.norm_bound)
        sums = np.array([X[problem.codes == c].sum(axis=0) for c in range(problem.n_classes)])
        return Outcome(noise(self.scale * sums / problem.n_samples, promise.bound.sigma))


def data(n=300, n_classes=3, d=5, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.standard_normal((n, d)) + 2.0 * rng.standard_normal((n_classes, d))[y]
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def head_of(mechanism=None, **params):
    given = {"epsilon": 4.0, "radius": 0.6, "mechanism": mechanism or ClassMeans(), **params}
    return BallDPSquaredHingeSVC(**given, fit_intercept=False)


def test_record_and_json():
    X, y = data()
    release = head_of().fit(X, y).release_
    assert release.mechanism == "class means"
    assert type("Unnamed", (ClassMeans,), {}).name == "Unnamed"
    assert release.mu == pytest.approx(mu_from_budget(4.0, 1e-6))
    assert release.guarantee(0.3).mu == pytest.approx(release.mu / 2, rel=1e-5)
    assert release.alpha == 0.0
    assert release.theorem.startswith("t / n")
    assert "class sums over" in str(release)
    again = Release.from_dict(json.loads(json.dumps(release.to_dict())))
    assert again == release
    assert again.guarantee(1.1) == release.guarantee(1.1)
    # Labels were never promised.
    with pytest.raises(ValueError, match="protect_labels"):
        release.guarantee(labels="protected")
    assert release.bound.mu(0.6, "protected") == math.inf


def test_noise_of_the_stated_scale():
    X, y = data(d=50)
    head = head_of()
    exact = [X[y == c].sum(axis=0) / len(X) for c in range(3)]
    z = np.array([(head.fit(X, y).coef_ - exact) / head.release_.sigma for _ in range(20)])
    assert z.std() == pytest.approx(1.0, abs=0.1)  # over seven standard errors
    assert abs(z.mean()) < 0.15


def test_accountant_and_limit():
    X, y = data()
    with PrivacyAccountant(radius=0.6) as accountant:
        for _ in range(3):
            head_of().fit(X, y)
    assert accountant.total().mu == pytest.approx(math.sqrt(3) * mu_from_budget(4.0, 1e-6))
    with PrivacyAccountant(radius=0.6, limit=5.0) as accountant:
        head_of().fit(X, y)
        head = head_of()
        with pytest.raises(BudgetExceededError):
            head.fit(X, y)
        assert not hasattr(head, "release_")
    assert accountant.total().n_releases == 1


@pytest.mark.parametrize("noise", ["simulated", "mechanism"])
def test_auditor(noise):
    X, y = data()
    auditor = ReconstructionAuditor(head_of(), n_draws=10, noise=noise, random_state=0)
    assert auditor.fit(X, y).guarantee_holds_
    # Candidates within the radius move the sums by up to that over n.
    share = auditor.supports_["distance"] / auditor.supports_["mu"]
    assert 0.5 < share.max() <= 1.0


def test_auditor_convicts_a_mechanism_that_moves_further_than_it_says():
    X, y = data()
    auditor = ReconstructionAuditor(head_of(ClassMeans(scale=4.0)), n_draws=30, random_state=0)
    with pytest.warns(FailedGuaranteeWarning, match="further apart than the sensitivity"):
        auditor.fit(X, y)


@pytest.fixture
def fails(refused):
    """Neither fitted nor charged."""
    return lambda mechanism, match, error=ValueError: refused(
        head_of(mechanism), *data(), match, error
    )


def overriding(**methods):
    return type("Broken", (ClassMeans,), methods)()


def convicted(match, **methods):
    """By an audit."""
    auditor = ReconstructionAuditor(head_of(overriding(**methods)), random_state=0)
    with pytest.raises(ValueError, match=match):
        auditor.fit(*data())


def test_promises_that_are_none(fails):
    fails(overriding(promise=lambda self, problem, budget: None), "Broken: promise.. must return")
    nothing = Promise(None)
    fails(overriding(promise=lambda self, problem, budget: nothing), "Promise with a Bound")

    def greedy(self, problem, budget):
        return ClassMeans.promise(self, problem, Budget(1.1 * budget.epsilon, budget.delta))

    def infinite(self, problem, budget):
        bound = dataclasses.replace(ClassMeans.promise(self, problem, budget).bound, sigma=(0.0,))
        return Promise(bound)

    with np.errstate(divide="ignore"):
        for promise in (greedy, infinite):
            fails(overriding(promise=promise), "misses its own guarantee", RuntimeError)

    def arrays(self, problem, budget):
        promise = ClassMeans.promise(self, problem, budget)
        return Promise(dataclasses.replace(promise.bound, sigma=np.array(promise.bound.sigma)))

    fails(overriding(promise=arrays), "sigma=.* must be a list of finite numbers")
    # A promise sees no rows.
    peeking = overriding(promise=lambda self, problem, budget: problem.X.mean())
    fails(peeking, "'Problem' object has no attribute 'X'", AttributeError)
    head = head_of(protect_labels=True, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="keeps labels public, where this head needs them protect"):
        head.fit(*data())
    assert not hasattr(head, "release_")


def test_numbers_of_other_types_are_shown_as_floats():
    def promise(self, problem, budget):
        found = ClassMeans.promise(self, problem, budget)
        return Promise(Unscaled(*dataclasses.astuple(found.bound)), np.float32(1.5), [1, 2])

    release = head_of(overriding(promise=promise)).fit(*data()).release_
    assert (release.sensitivity, release.sigma) == (1.5, (1.0, 2.0))
    assert Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release


@pytest.mark.parametrize(
    ("outcome", "match"),
    [
        (Outcome(np.zeros(5)), r"shape \(5,\), where this head needs \(3, 5\)"),
        (Outcome(np.zeros((3, 6))), "where this head needs"),
        (Outcome(np.full((3, 5), np.nan)), "must be finite"),
        (Outcome(np.zeros((3, 5)), attributes={"epsilon": 9.0}), r"not \['epsilon'\]"),
    ],
)
def test_outcomes_that_no_head_can_publish(outcome, match):
    head = head_of(overriding(run=lambda self, problem, promise, noise: outcome))
    with pytest.raises(ValueError, match=match):
        head.fit(*data())
    assert not [name for name in vars(head) if name.endswith("_")]


def test_attributes_replace_nothing_that_was_published():
    """Neither weights nor labels: what the digest is of is what the head holds."""
    forged = {"coef_": np.zeros((3, 5)), "classes_": np.arange(3) + 7, "release_": None, "a_": 1}

    def run(self, problem, promise, noise):
        outcome = ClassMeans.run(self, problem, promise, noise)
        return dataclasses.replace(outcome, attributes=forged)

    head = head_of(overriding(run=run)).fit(*data())
    assert head.a_ == 1
    assert np.abs(head.coef_).max() > 0.0
    assert head.classes_.tolist() == [0, 1, 2]
    assert head.release_.matches(head)


def test_what_bypasses_the_noise_is_found():
    """A dummy call hides nothing: all that is published must follow from noisy values."""

    def silent(self, problem, promise, noise):
        return ClassMeans.run(self, problem, promise, lambda values, sigma: values)

    def parameters(self, problem, promise, noise):
        noise(np.zeros(1), 1.0)
        return Outcome(silent(self, problem, promise, noise).parameters)

    def attributes(self, problem, promise, noise):
        found = ClassMeans.run(self, problem, promise, noise)
        return Outcome(found.parameters, attributes={"mean_": problem.X.mean(axis=0)})

    convicted("drew no noise", run=silent)
    for run in (parameters, attributes):
        convicted("bypasses its noise", run=run)


def test_what_an_audit_of_one_release_cannot_attack_is_found():
    """Noise scales that tell what the rows are, and mechanisms that are adaptive."""

    def scales(self, problem, promise, noise):
        noise(np.zeros(1), 1.0 + np.abs(problem.X).sum())
        return ClassMeans.run(self, problem, promise, noise)

    def forgotten(self, problem, promise, noise):
        first = ClassMeans.run(self, problem, promise, noise).parameters
        X = project_onto_ball(problem.X, problem.norm_bound)
        return Outcome(noise(np.tanh(X @ first.T).T @ X / problem.n_samples, promise.bound.sigma))

    convicted("noise scales differ between neighbours", run=scales)
    convicted("adaptive = True", run=forgotten)
    convicted("adaptive", adaptive=True)


def test_noisy_values_may_be_changed_in_place():
    """What the audit keeps is a copy."""

    def run(self, problem, promise, noise):
        outcome = ClassMeans.run(self, problem, promise, noise)
        outcome.parameters[:] *= 100.0
        return outcome

    auditor = ReconstructionAuditor(head_of(overriding(run=run)), random_state=0)
    assert auditor.fit(*data()).guarantee_holds_


def test_problem_and_rows():
    """Public numbers alone, then the same with rows; a neighbour keeps the rest."""
    X, codes = data()
    problem = Problem(
        n_samples=300,
        n_features=5,
        classes=np.arange(3),
        class_counts=(100, 100, 100),
        alpha=0.1,
        norm_bound=1.0,
        radius=0.5,
        metric="euclidean",
        labels="public",
    )
    private = problem.with_rows(X, codes)
    assert isinstance(private, PrivateProblem)
    assert private.counts().tolist() == [100, 100, 100]
    assert "0." not in repr(private).split("alpha")[0]
    assert "X=" not in repr(private)
    neighbour = private.replaced(3, np.ones(5, np.float32), 2)
    assert neighbour.X[3].tolist() == [1.0] * 5
    assert (neighbour.codes[3], neighbour.alpha) == (2, 0.1)
    assert private.X[3].tolist() == X[3].tolist()
