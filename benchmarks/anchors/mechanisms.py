"""Private linear classifiers of other kinds, for rows of unit norm: what this package is not.

All hide the replacement of one record and its label, and are mu-GDP or (epsilon, delta) by the
bounds beside them, in real arithmetic. Noise is NumPy's: they are comparators, not releases.
"""

import functools

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.optimize import brentq, minimize
from scipy.special import log_ndtr, softmax
from scipy.stats import norm

from sklearn_balldp.privacy.gaussian import mu_from_budget

#: Frobenius distance of two outer products of unit rows.
MOMENT = np.sqrt(2.0)
_LAST: dict = {}
#: Norm of a softmax gradient at a unit row: that of (p - e_y).
GRADIENT = np.sqrt(2.0)


def _sums(X, y, n_classes):
    return X.T.astype(np.float64) @ np.eye(n_classes)[y]


def _moment(X, weights=None):
    left = X if weights is None else X * weights[:, None].astype(X.dtype)
    return (left.T @ X).astype(np.float64)


def _kept_moment(X):
    """The second moment of these rows, computed once while they are the same array."""
    if _LAST.get("rows") is not X:
        _LAST.update(rows=X, moment=_moment(X))
    return _LAST["moment"]


def _noisy_moment(moment, scale, rng):
    """Noise on the diagonal and sqrt(2) times the upper triangle, whose norm is the matrix's."""
    noise = rng.standard_normal(moment.shape) * scale / np.sqrt(2.0)
    noise = np.triu(noise, 1)
    noise += noise.T + np.diag(rng.standard_normal(len(moment)) * scale)
    values, vectors = eigh(moment + noise)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


def _solver(moment, ridge):
    factor = cho_factor(moment + ridge * np.eye(len(moment)))
    return lambda right: cho_solve(factor, right)


def scales_of_statistics(mu, share):
    """Noise of class sums and second moment, mu-GDP together for every pair of unit rows.

    A pair of rows at cosine c moves the sums by 2 - 2c, squared, and the moment by 2 - 2c^2 (one
    label; of two labels the sums move by 2, which c = 0 covers). ``share`` goes to the sums.
    """
    sums, moment = share, 1.0 - share
    at = -sums / (2.0 * moment)
    at = max(at, -1.0)
    most = sums * (2.0 - 2.0 * at) + moment * (2.0 - 2.0 * at**2)
    return np.sqrt(most / sums) / mu, np.sqrt(most / moment) / mu


def least_squares(X, y, n_classes, mu, rng, *, share, ridge):
    """Ridge regression on one-hot labels from noisy sums and second moment.

    One Newton step of softmax regression from zero gives the same classifier: the curvature there
    is the second moment, and its targets differ by a vector that all classes share.
    """
    of_sums, of_moment = scales_of_statistics(mu, share)
    sums = _sums(X, y, n_classes)
    sums += of_sums * rng.standard_normal(sums.shape)
    moment = _noisy_moment(_kept_moment(X), of_moment, rng)
    return _solver(moment, ridge * of_moment * np.sqrt(X.shape[1]))(sums)


def newton(X, y, n_classes, mu, rng, *, first, share, ridge, clip):
    """Two Newton steps of softmax regression: least squares, then one from there.

    The second step takes clipped gradients at the first's end and one matrix for all classes,
    weighted by the mean of p (1 - p).
    """
    start = n_classes * least_squares(
        X, y, n_classes, mu * np.sqrt(first), rng, share=share, ridge=ridge
    )
    rest = mu * np.sqrt(1.0 - first)
    p = softmax(X @ start.astype(X.dtype), axis=1)
    residual = p - np.eye(n_classes)[y]
    residual *= np.minimum(1.0, clip / np.linalg.norm(residual, axis=1))[:, None]
    gradient = X.T.astype(np.float64) @ residual
    gradient += 2.0 * clip / (rest * np.sqrt(share)) * rng.standard_normal(gradient.shape)
    most = (1.0 - 1.0 / n_classes) / n_classes
    weights = np.minimum(np.mean(p * (1.0 - p), axis=1), most)
    scale = MOMENT * most / (rest * np.sqrt(1.0 - share))
    curvature = _noisy_moment(_moment(X, weights), scale, rng)
    return start - _solver(curvature, ridge * scale * np.sqrt(X.shape[1]))(gradient)


def feature_covariance(X, y, n_classes, mu, rng, *, share, ridge, steps, rate, clip):
    """DP-FC: noisy steps of softmax regression, preconditioned by one noisy second moment.

    After Mehta, Krichene, Thakurta, Kurakin and Cutkosky (2023); here with softmax, exact
    accounting and a share for the moment.
    """
    scale = MOMENT / (mu * np.sqrt(share))
    solve = _solver(_noisy_moment(_kept_moment(X), scale, rng), ridge * scale * np.sqrt(X.shape[1]))
    noise = 2.0 * clip * np.sqrt(steps) / (mu * np.sqrt(1.0 - share))
    theta = np.zeros((X.shape[1], n_classes))
    one_hot = np.eye(n_classes, dtype=X.dtype)[y]
    for _ in range(steps):
        residual = softmax(X @ theta.astype(X.dtype), axis=1) - one_hot
        residual *= np.minimum(1.0, clip / np.linalg.norm(residual, axis=1))[:, None]
        gradient = (X.T @ residual).astype(np.float64)
        gradient += noise * rng.standard_normal(gradient.shape)
        theta -= rate * n_classes * solve(gradient)
    return theta


def objective_noise(epsilon, delta, n_classes, ridge):
    """Standard deviation of the linear term that makes the exact minimiser (epsilon, delta)-DP.

    The minimiser theta of sum of losses + ridge/2 |theta|^2 + <b, theta> determines b. For two
    datasets the b of one theta differ by v, the gradient of one record less that of the other, of
    norm at most G = 2 sqrt(2). The privacy loss is at most <b, v>/s^2 + G^2/(2 s^2) + t.

    v depends on b, so <b, v> is bounded for all v at once: with u = b'x/s, which is standard
    normal,
    a record's part is u'(p - e_y) <= max u - u_y = A. Two such parts exceed a number only if one
    exceeds its half, whatever their dependence. t bounds the logarithm of the ratio of the
    Jacobians: a record adds a matrix of rank K - 1 and trace at most 1 - 1/K to a Hessian of at
    least ridge. Chaudhuri, Monteleoni and Sarwate (2011); Kifer, Smith and Thakurta (2012).
    """
    gap, rank = 2.0 * GRADIENT, n_classes - 1
    jacobian = rank * np.log1p((1.0 - 1.0 / n_classes) / (rank * ridge))
    sums, survival = _two_parts(n_classes)

    def excess(scale):
        # Sums over cells at their right ends: the integrand increases.
        loss = sums / scale + gap**2 / (2.0 * scale**2) + jacobian
        values = -np.expm1(np.minimum(0.0, epsilon - loss))
        masses = -np.diff(survival, prepend=1.0)
        return float(masses @ values + survival[-1]) - delta

    if excess(1e9) > 0.0:
        return None
    scale = brentq(excess, 1e-3, 1e9, rtol=1e-6)
    while excess(scale) > 0.0:
        scale *= 1.0 + 1e-6
    return scale


@functools.cache
def _two_parts(n_classes):
    """Numbers, and bounds on the probability that two of max u - u_y add up to more."""
    halves = np.linspace(0.0, 16.0, 8001)
    own = np.linspace(-12.0, 12.0, 2401)
    weights = norm.pdf(own) * (own[1] - own[0])
    others = (n_classes - 1) * log_ndtr(own + halves[:, None])
    return 2.0 * halves, np.minimum(1.0, 2.0 * (-np.expm1(others) @ weights))


def objective(X, y, n_classes, epsilon, delta, rng, *, ridge):
    """Objective perturbation of softmax regression: the minimiser with a random linear term.

    The solver's last point is taken for the minimiser, which favours this mechanism.
    """
    scale = objective_noise(epsilon, delta, n_classes, ridge)
    if scale is None:
        return np.zeros((X.shape[1], n_classes))
    linear = scale * rng.standard_normal((X.shape[1], n_classes))
    one_hot = np.eye(n_classes, dtype=X.dtype)[y]

    def value_and_gradient(flat):
        theta = flat.reshape(linear.shape)
        scores = X @ theta.astype(X.dtype)
        top = scores.max(axis=1, keepdims=True)
        p = np.exp(scores - top)
        total = p.sum(axis=1, keepdims=True)
        loss = np.sum(np.log(total) + top, dtype=np.float64)
        loss -= np.sum(scores * one_hot, dtype=np.float64)
        gradient = (X.T @ (p / total - one_hot)).astype(np.float64) + ridge * theta + linear
        value = loss + ridge / 2 * np.sum(theta**2) + np.sum(linear * theta)
        return value / len(X), gradient.ravel() / len(X)

    found = minimize(
        value_and_gradient,
        np.zeros(linear.size),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 100},
    )
    return found.x.reshape(linear.shape)


def gaussian(mechanism):
    """A mechanism that takes mu, as one that takes (epsilon, delta)."""

    def fit(X, y, n_classes, epsilon, delta, rng, **settings):
        return mechanism(X, y, n_classes, mu_from_budget(epsilon, delta), rng, **settings)

    return fit
