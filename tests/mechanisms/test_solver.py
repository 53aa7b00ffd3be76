"""The solver reaches its tolerance on every dataset of the domain, and proves it."""

import numpy as np
import pytest
from mean_gradients import objective_of
from threadpoolctl import threadpool_info, threadpool_limits

from sklearn_balldp.mechanisms import Minimiser, solver
from sklearn_balldp.mechanisms.solver import ConvergenceError, minimise
from sklearn_balldp.privacy.problem import Problem

CASES = [("logistic", 2), ("softmax", 3), ("squared_hinge", 2), ("squared_hinge", 3)]
RNG = np.random.default_rng(0)


def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def hostile():
    y = np.arange(60) % 3
    direction = unit(RNG.standard_normal((3, 8)))
    yield "separable", direction[y], y
    yield "all zero", np.zeros((60, 8)), y
    yield "duplicated", np.tile(unit(RNG.standard_normal((1, 8))), (60, 1)), y
    rare = np.r_[1, 2, np.zeros(58, int)]
    yield "one record in a class", unit(RNG.standard_normal((60, 8))), rare
    yield "a class is absent", unit(RNG.standard_normal((60, 8))), np.zeros(60, int)
    yield "more features than records", unit(RNG.standard_normal((6, 200))), np.arange(6) % 3
    yield "one record", unit(RNG.standard_normal((1, 8))), np.zeros(1, int)
    yield "opposed duplicates", np.repeat(unit(RNG.standard_normal((30, 8))), 2, axis=0), y
    yield "tiny rows", 1e-12 * RNG.standard_normal((60, 8)), y
    yield "huge rows", 1e12 * RNG.standard_normal((60, 8)), y
    columns = RNG.standard_normal((500, 20)) * np.logspace(0, -8, 20)
    yield "columns of all sizes", columns, np.arange(500) % 3


def assert_converges(objective, tol):
    theta = minimise(objective, tol=tol)
    assert np.linalg.norm(objective.value_and_gradient(theta)[1]) <= tol


HOSTILE = list(hostile())


@pytest.mark.parametrize(("alpha", "fit_intercept"), [(1e-7, True), (1.0, False)])
@pytest.mark.parametrize("case", HOSTILE, ids=lambda c: c[0])
@pytest.mark.parametrize(("loss", "n_classes"), CASES)
def test_hostile_datasets(loss, n_classes, case, alpha, fit_intercept):
    _, X, y = case
    if n_classes > 2 and loss == "squared_hinge":
        alpha = max(alpha, 1e-6)  # at less, one case takes 150,000 steps of the last stage
    y = np.minimum(y, n_classes - 1)
    counts = tuple(np.bincount(y, minlength=n_classes).tolist())
    public = {"n_samples": len(X), "n_features": X.shape[1], "n_classes": n_classes}
    public |= {"class_counts": counts, "loss": loss, "alpha": alpha, "radius": 0.5}
    reachable, _ = Minimiser(0.0).rounding(Problem(**public, fit_intercept=fit_intercept))
    chosen = {"alpha": alpha, "fit_intercept": fit_intercept}
    # Whatever stops there would have stopped before at a larger one, which takes as long.
    assert_converges(objective_of(loss, X, y, n_classes, **chosen), reachable)


def fails(error):
    def call(*_, **__):
        raise error

    return call


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"_newton": lambda *_: None},
        {"newton_krylov": fails(solver.NoConvergence)},
        {"newton_krylov": fails(ValueError("zero vector"))},
    ],
    ids=["all", "no Newton", "no convergence", "zero vector"],
)
@pytest.mark.parametrize(("loss", "n_classes"), [("softmax", 3), ("squared_hinge", 2)])
def test_each_fallback_converges_alone(monkeypatch, loss, n_classes, broken):
    """What Newton fails at is left to the descent."""
    for name, call in ({"_lbfgs": lambda *_: None} | broken).items():
        monkeypatch.setattr(solver, name, call)
    for _, X, y in HOSTILE[: 1 if "newton_krylov" in broken else None]:
        one = objective_of(loss, X, np.minimum(y, n_classes - 1), n_classes, alpha=1e-2)
        assert_converges(one, 1e-9)


def test_what_ends_a_solve_shows_no_parameters(monkeypatch):
    """An interruption beside it would print it in a traceback."""
    errors, lbfgs = [], solver._lbfgs

    def spy(*given):
        try:
            lbfgs(*given)
        except Exception as error:
            errors.append(error)
            raise

    monkeypatch.setattr(solver, "_lbfgs", spy)
    assert_converges(objective_of("softmax", *HOSTILE[0][1:], 3, alpha=0.01), 1e-6)
    assert [(error.args, vars(error)) for error in errors] == [((), {})]


def test_unreachable_tolerance_raises_without_data():
    X, y = unit(RNG.standard_normal((20, 3))), np.arange(20) % 2
    with pytest.raises(ConvergenceError) as error:
        minimise(objective_of("logistic", X, y, 2, alpha=1.0), tol=-1.0)  # a gradient may be zero
    assert not any(character.isdigit() for character in str(error.value))
    assert error.value.__context__ is None


def test_many_equal_rows_do_not_drift():
    """Sequential sums of equal terms move in steps that would keep the gradient off zero."""
    n = 262_144
    codes = (np.arange(n) < 0.63 * n).astype(int)
    assert_converges(objective_of("softmax", np.full((n, 1), 0.7), codes, 3, alpha=1.0), 3e-13)


def test_a_tolerance_holds_the_errors_of_two_passes():
    """No two passes need err alike: the solver ends all the same, whatever the tolerance."""
    public = {"n_samples": 10**9, "n_features": 64, "n_classes": 2, "radius": 0.5}
    problem = Problem(**public, class_counts=(1, 10**9 - 1), loss="logistic", alpha=1e-3)
    for tol in (0.0, 1e-13, 1e-9):
        query = Minimiser(tol).certifiable(problem)
        error = query.rounding(problem)[1]
        assert query.accepted(problem) >= 2.0 * error
        assert query.accepted(problem) + error <= query.tol * (1.0 + 1e-12)
        assert query.ratio(problem, 0.5, "public") < np.inf
        assert Minimiser(2.9 * error).ratio(problem, 0.5, "public") == np.inf


def test_overlapping_solves_restore_the_blas_threads_once():
    """Another solve that ends first must not lift this one's limit, nor fix it for good."""

    def threads():
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with solver.SINGLE_BLAS_THREAD:
            with solver.SINGLE_BLAS_THREAD:
                assert set(threads()) == {1}
            assert set(threads()) == {1}
        assert threads() == before
