r"""A solver that certifies the gradient norm of its result.

Three stages, each of which stops as soon as the gradient norm is small enough: L-BFGS in
coordinates whitened by a sampled second moment; damped Newton with conjugate gradients, which
needs no function values and so reaches the rounding level; accelerated gradient descent, whose
rate is known on every dataset of the domain, so that its number of steps is public. Whichever stage
produced it, the result is certified by a full evaluation in float64.
"""

import math

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

from ..losses import Array
from ..rows import SINGLE_BLAS_THREAD
from .objective import LinearObjective

# Public caps of each stage; the cap of the last one is proved (:func:`descent_steps`).
_LBFGS_EVALUATIONS = 2000
_NEWTON_STEPS = 100
_CG_STEPS = 500
_HALVINGS = 14
# Distance of two points whose gradients tell the curvature, over the size of the parameters.
_DIFFERENCE = 2.0**-26
_LARGEST_PRECONDITIONER = 2048


class ConvergenceError(ArithmeticError):
    """The solver stopped before its tolerance; nothing is released."""


class _ToleranceReached(Exception):
    """Carries the parameters at which the gradient became small enough."""

    def __init__(self, theta: Array) -> None:
        super().__init__()
        self.theta = theta


class _StopAtTolerance:
    """An objective that stops the solver at its tolerance."""

    def __init__(self, objective: LinearObjective, tol: float) -> None:
        self.objective, self.tol = objective, tol

    def value_and_gradient(self, theta: Array) -> tuple[float, Array]:
        value, gradient = self.objective.value_and_gradient(theta)
        if np.linalg.norm(gradient) <= self.tol:
            raise _ToleranceReached(theta)
        return value, gradient


def descent_steps(smoothness: float, alpha: float, first_value: float, tol: float) -> int:
    """Accelerated steps that suffice on every dataset of the domain: a public number."""
    # ||grad F||^2 <= 2 L (F - F*), and F - F* <= (1 - sqrt(alpha / L))^k 2 F(0).
    log = math.log(max(4.0 * smoothness * first_value / tol**2, 2.0))
    return math.ceil(math.sqrt(smoothness / alpha) * log) + 1


def minimise(objective: LinearObjective, *, tol: float) -> Array:
    """Parameters whose computed gradient norm is at most ``tol``."""
    watched = _StopAtTolerance(objective, tol)
    theta = np.zeros(objective.shape)
    # Row ranges run on threads; BLAS inside them must not spawn more.
    with SINGLE_BLAS_THREAD:
        factor = _whitening(objective)
        try:
            theta = _lbfgs(watched, theta, factor)
            theta = _newton(watched, theta, factor)
            _descent(watched, theta)
        except _ToleranceReached as reached:
            return reached.theta
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


def _whiten(factor: Array | None, rows: Array) -> Array:
    """Rows times the inverse transpose of the factor: gradients to whitened coordinates."""
    if factor is None:
        return rows
    return solve_triangular(factor, rows.T, lower=True, check_finite=False).T


def _unwhiten(factor: Array | None, rows: Array) -> Array:
    """Rows times the inverse of the factor: whitened coordinates to parameters."""
    if factor is None:
        return rows
    return solve_triangular(factor, rows.T, lower=True, trans="T", check_finite=False).T


def _lbfgs(watched: _StopAtTolerance, theta: Array, factor: Array | None) -> Array:
    shape = watched.objective.shape
    best, smallest = theta, math.inf

    def whitened(u: Array) -> tuple[float, Array]:
        nonlocal best, smallest
        point = _unwhiten(factor, u.reshape(shape))
        value, gradient = watched.value_and_gradient(point)
        norm = float(np.linalg.norm(gradient))
        if norm < smallest:
            best, smallest = point, norm
        return value, _whiten(factor, gradient).ravel()

    first = theta.ravel() if factor is None else (theta @ factor).ravel()
    minimize(
        whitened,
        first,
        jac=True,
        method="L-BFGS-B",
        options={
            "maxcor": 20,
            "maxfun": _LBFGS_EVALUATIONS,
            "maxiter": _LBFGS_EVALUATIONS,
            "ftol": 0.0,
            "gtol": 0.0,
        },
    )
    return best


def _newton(watched: _StopAtTolerance, theta: Array, factor: Array | None) -> Array:
    """Damped Newton steps, accepted on the gradient norm.

    An exact Newton direction lowers that norm; one from conjugate gradients does so once it is
    solved well enough, so a step that fails is solved again to the end.
    """
    shape = watched.objective.shape
    size = theta.size

    def precondition(flat: Array) -> Array:
        return _unwhiten(factor, _whiten(factor, flat.reshape(shape))).ravel()

    preconditioner = LinearOperator((size, size), precondition, dtype=np.float64)
    for _ in range(_NEWTON_STEPS):
        _, gradient = watched.value_and_gradient(theta)
        norm = float(np.linalg.norm(gradient))

        def curve(flat: Array, theta: Array = theta, gradient: Array = gradient) -> Array:
            # A difference of gradients: exact to the root of the roundoff, which is enough.
            length = float(np.linalg.norm(flat))
            apart = _DIFFERENCE * (1.0 + float(np.linalg.norm(theta))) / max(length, 1e-300)
            ahead = theta + apart * flat.reshape(shape)
            return (watched.objective.value_and_gradient(ahead)[1] - gradient).ravel() / apart

        hessian = LinearOperator((size, size), curve, dtype=np.float64)
        # Inexact first; a step that fails is solved further before Newton gives up.
        for accuracy in (1e-3, 1e-7):
            step, _ = cg(
                hessian, -gradient.ravel(), rtol=accuracy, maxiter=_CG_STEPS, M=preconditioner
            )
            moved = _backtrack(watched, theta, step.reshape(shape), norm)
            if moved is not None:
                theta = moved
                break
        else:
            return theta
    return theta


def _backtrack(watched: _StopAtTolerance, theta: Array, step: Array, norm: float) -> Array | None:
    """``theta`` after the longest halved step that lowers the gradient norm; None if none does."""
    length = 1.0
    for _ in range(_HALVINGS):
        _, gradient = watched.value_and_gradient(theta + length * step)
        # Armijo's rule on the gradient norm, of which a full Newton step removes all.
        if np.linalg.norm(gradient) <= (1.0 - 0.1 * length) * norm:
            return theta + length * step
        length *= 0.5
    return None


def _descent(watched: _StopAtTolerance, theta: Array) -> None:
    """Nesterov's descent for strongly convex functions, with its public number of steps."""
    objective = watched.objective
    value, _ = watched.value_and_gradient(theta)
    if not value <= objective.value_at_zero:
        theta = np.zeros(objective.shape)
    ratio = math.sqrt(objective.alpha / objective.smoothness)
    momentum = (1.0 - ratio) / (1.0 + ratio)
    previous = theta
    for _ in range(
        descent_steps(objective.smoothness, objective.alpha, objective.value_at_zero, watched.tol)
    ):
        ahead = theta + momentum * (theta - previous)
        _, gradient = watched.value_and_gradient(ahead)
        previous, theta = theta, ahead - gradient / objective.smoothness
    watched.value_and_gradient(theta)
