"""A solver that certifies the gradient norm of its result, by a full evaluation in float64.

L-BFGS in whitened coordinates; damped Newton, which needs no function values and so reaches the
rounding level; then accelerated gradient descent, whose number of steps is public on every dataset.
"""

import contextlib
import math

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import NoConvergence, minimize, newton_krylov
from scipy.sparse.linalg import LinearOperator, cg

from ..losses import Array
from ..rows import SINGLE_BLAS_THREAD
from .objective import LinearObjective

# Public caps of each stage; the cap of the last one is proved (:func:`descent_steps`).
_LBFGS_EVALUATIONS = 2000
_NEWTON_STEPS = 100
_CG_STEPS = 500
_LARGEST_PRECONDITIONER = 2048


class ConvergenceError(ArithmeticError):
    """The solver stopped before its tolerance; nothing is released."""


class _ToleranceReached(Exception):
    """The gradient is small enough. It carries no parameters, which a traceback would print."""


class _StopAtTolerance:
    """An objective that stops the solver at its tolerance, and keeps its best parameters."""

    def __init__(self, objective: LinearObjective, tol: float) -> None:
        self.objective, self.tol = objective, tol
        self.best, self._smallest = np.zeros(objective.shape), math.inf

    def __call__(self, theta: Array) -> tuple[float, Array]:
        value, gradient = self.objective.value_and_gradient(theta)
        norm = float(np.linalg.norm(gradient))
        if norm < self._smallest:
            self.best, self._smallest = theta, norm
        if norm <= self.tol:
            raise _ToleranceReached
        return value, gradient


def descent_steps(smoothness: float, alpha: float, first_value: float, tol: float) -> int:
    """Accelerated steps that suffice on every dataset of the domain: a public number."""
    # ||grad F||^2 <= 2 L (F - F*), and F - F* <= (1 - sqrt(alpha / L))^k 2 F(0).
    log = math.log(max(4.0 * smoothness * first_value / tol**2, 2.0))
    return math.ceil(math.sqrt(smoothness / alpha) * log) + 1


def minimise(objective: LinearObjective, *, tol: float) -> Array:
    """Parameters whose computed gradient norm is at most ``tol``."""
    watched = _StopAtTolerance(objective, tol)
    # Row ranges run on threads; BLAS inside them must not spawn more.
    with SINGLE_BLAS_THREAD:
        factor = _whitening(objective)
        try:
            _lbfgs(watched, factor)
            _newton(watched, factor)
            _descent(watched)
        except _ToleranceReached:
            return watched.best
    raise ConvergenceError(
        "the gradient did not reach tol; tol is below what rounding allows: pass a larger tol."
    )


def _whitening(objective: LinearObjective) -> Array | None:
    """Lower Cholesky factor of a cheap model of the Hessian, shared by all score columns."""
    n_columns, dimension = objective.shape
    if dimension > _LARGEST_PRECONDITIONER:
        return None
    weight = objective.loss.curvature / n_columns
    # Eight rows per dimension: enough for a preconditioner, and far less than a pass.
    model = weight * objective.second_moment(8 * dimension)
    # Rounding of the sample must not make the model indefinite.
    model[np.diag_indices(dimension)] += objective.alpha + 1e-12 * np.trace(model)
    return cholesky(model, lower=True, overwrite_a=True, check_finite=False)


def _whiten(factor: Array | None, rows: Array, back: bool = False) -> Array:
    """Gradients in whitened coordinates; or ``back``, parameters from whitened coordinates."""
    if factor is None:
        return rows
    solved: Array = solve_triangular(
        factor, rows.T, lower=True, trans=int(back), check_finite=False
    )
    return solved.T


def _lbfgs(watched: _StopAtTolerance, factor: Array | None) -> None:
    def whitened(u: Array) -> tuple[float, Array]:
        value, gradient = watched(_whiten(factor, u.reshape(watched.best.shape), back=True))
        return value, _whiten(factor, gradient).ravel()

    capped = {"maxfun": _LBFGS_EVALUATIONS, "maxiter": _LBFGS_EVALUATIONS}
    options = {"maxcor": 20, "ftol": 0.0, "gtol": 0.0, **capped}
    minimize(whitened, np.zeros(watched.best.size), jac=True, method="L-BFGS-B", options=options)


def _newton(watched: _StopAtTolerance, factor: Array | None) -> None:
    """Newton steps, accepted on the gradient norm, from differences of gradients."""
    shape, size = watched.best.shape, watched.best.size

    def precondition(flat: Array) -> Array:
        return _whiten(factor, _whiten(factor, flat.reshape(shape)), back=True).ravel()

    # It gives up where rounding hides a descent; SciPy says ValueError where steps vanish.
    with contextlib.suppress(NoConvergence, ValueError):
        newton_krylov(
            lambda theta: watched(theta)[1],
            watched.best,
            method=cg,
            inner_maxiter=_CG_STEPS,
            inner_M=LinearOperator((size, size), precondition, dtype=np.float64),
            f_tol=0.0,
            maxiter=_NEWTON_STEPS,
        )


def _descent(watched: _StopAtTolerance) -> None:
    """Nesterov's descent for strongly convex functions, with its public number of steps."""
    objective, theta = watched.objective, watched.best
    value, _ = watched(theta)
    if not value <= objective.value_at_zero:
        theta = np.zeros(objective.shape)
    ratio = math.sqrt(objective.alpha / objective.smoothness)
    momentum = (1.0 - ratio) / (1.0 + ratio)
    previous, smoothness = theta, objective.smoothness
    steps = descent_steps(smoothness, objective.alpha, objective.value_at_zero, watched.tol)
    for _ in range(steps):
        ahead = theta + momentum * (theta - previous)
        _, gradient = watched(ahead)
        previous, theta = theta, ahead - gradient / smoothness
    watched(theta)
