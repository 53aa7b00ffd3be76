r"""Upper bounds on the success of an informed reconstruction attack (Ball-ReRo).

The adversary knows every record but one, the public examples of the fit, a finite set of candidates
for the record, and the release. Its prior over the candidates is one with the examples at hand. Its
success is compared with kappa, that of the best blind guess. The bounds, from the one that uses the
most knowledge to the one that uses the least, are:

Bayes success <= support <= ball (anchor) at the same reference <= direct <= min(DP, RDP).

DP, RDP and direct bounds hold when one admissible record lies within the radius of every
candidate, in the declared adjacency. The other bounds hold for any reference point. They use the
*candidate models*: the noiseless model for each candidate, in units of the noise.

References
----------
Margaryan & Gupta, "Ball Differential Privacy: How to Mitigate Data Reconstruction with Less
Noise" (DP, direct, anchor and support bounds). The closed RDP form, arbitrary references and the
calibration to a stated risk are this package's.
"""

import math
from contextlib import suppress

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from .._parameters import NonNegative, Share, check_number, check_option
from ..losses import Array
from ..privacy.gaussian import epsilon_from_mu, gaussian_power, mu_from_budget


def check_prior(prior: ArrayLike | None, n_candidates: int, name: str = "prior") -> Array:
    """Validated prior over candidates; None is uniform. ``name`` is that of the parameter."""
    if prior is None:
        return np.full(n_candidates, 1.0 / n_candidates)
    with suppress(TypeError, ValueError):
        weights = np.asarray(prior, dtype=np.float64)
        fits = weights.shape == (n_candidates,) and bool((weights >= 0.0).all())
        if fits and math.isclose(weights.sum(), 1.0, rel_tol=1e-9):
            return weights
    raise ValueError(
        f"{name} must be None (uniform), or one weight for each of the {n_candidates} candidates, "
        f"none negative, that sum to 1; got {prior!r}."
    )


def rero_bound_dp(kappa: float, epsilon: float, delta: float) -> float:
    """Upper bound on the probability that any attack names the true record, by epsilon and delta.

    It is ``min(1, e^epsilon kappa + delta)``, never below the direct bound of :func:`.rero_bound`.

    Parameters
    ----------
    kappa : float
        Success probability of the best blind guess.
    epsilon, delta : float
        The guarantee at a radius that covers the candidates from one admissible record.

    Returns
    -------
    float
        The bound; a ValueError if an argument is out of range.
    """
    check_number("kappa", kappa, Share)
    check_number("delta", delta, Share)
    check_number("epsilon", epsilon, NonNegative)
    kappa, delta = float(kappa), float(delta)
    if kappa == 0.0 and not math.isinf(epsilon):
        return delta
    # Compare logarithms: the exponential may overflow.
    if epsilon + math.log(kappa or 5e-324) >= 0.0:
        return 1.0
    return min(1.0, math.exp(epsilon) * kappa + delta)


def rero_bound(kappa: float, mu: float, *, method: str = "direct") -> float:
    r"""Upper bound on the probability that any attack names the true record, from mu.

    Parameters
    ----------
    kappa : float
        Success probability of the best blind guess.
    mu : float
        Sensitivity over noise scale, at a radius that covers the candidates from one admissible
        record.
    method : {"direct", "rdp"}, default="direct"
        "direct": :math:`\Phi(\Phi^{-1}(\kappa) + \mu)`. "rdp": the best Renyi order,
        :math:`\exp(-(\sqrt{\ln(1/\kappa)} - \mu/\sqrt2)_+^2)`, never below "direct".

    Returns
    -------
    float
        The bound; a ValueError if an argument is out of range.
    """
    check_option("method", method, ("direct", "rdp"))
    direct = gaussian_power(kappa, mu)
    if method == "direct" or kappa in (0.0, 1.0) or math.isinf(mu):
        return direct
    # Optimal order alpha* = sqrt(2 ln(1 / kappa)) / mu, above 1 or the bound is trivial.
    room = math.sqrt(math.log(1.0 / kappa)) - mu / math.sqrt(2.0)
    return 1.0 if room <= 0.0 else math.exp(-(room**2))


def mu_from_certificate(gamma: float, kappa: float) -> float:
    """Largest mu, rounded down, whose direct certificate is at most ``gamma`` for ``kappa``."""
    gamma, kappa = float(gamma), float(kappa)
    if not 0.0 < kappa < gamma < 1.0:
        raise ValueError(
            f"gamma={gamma!r} must lie between the blind guess kappa={kappa!r} and 1: no release "
            "lowers the risk below a blind guess."
        )
    mu = max(0.0, float(ndtri(gamma) - ndtri(kappa)))
    step = 2.0**-50
    while mu > 0.0 and gaussian_power(kappa, mu) > gamma:
        mu *= max(0.0, 1.0 - step)
        step *= 2.0
    return mu


def epsilon_from_certificate(gamma: float, kappa: float, delta: float) -> float:
    """Epsilon to ask for when you know the risk ``gamma`` that you accept.

    Parameters
    ----------
    gamma : float
        Stated risk: largest acceptable success probability of the attack.
    kappa : float
        Success probability of the best blind guess, ``1 / m`` for m equally likely candidates.
    delta : float
        Delta of the release.

    Returns
    -------
    float
        Epsilon, rounded down so that the certificate at (epsilon, delta) keeps ``gamma``.

    Raises
    ------
    ValueError
        If ``gamma`` is not above ``kappa``, an argument is out of range, or ``delta`` is so large
        that even epsilon = 0 would allow more than ``gamma``.

    Examples
    --------
    "At most 20% among ten candidates", instead of an epsilon:

    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from sklearn_balldp import BallDPRidgePrototype
    >>> epsilon = epsilon_from_certificate(gamma=0.20, kappa=1 / 10, delta=1e-6)
    >>> round(epsilon, 2)
    1.96
    >>> X, y = load_digits(return_X_y=True)
    >>> head = BallDPRidgePrototype(epsilon, radius=0.6).fit(normalize(X), y)
    >>> round(head.release_.certificate(kappa=1 / 10), 4)
    0.2
    """
    # epsilon_from_mu rounds up by its margin; step back so that the calibration stays below.
    mu = mu_from_certificate(gamma, kappa)
    epsilon = epsilon_from_mu(mu, delta)
    if epsilon == 0.0:
        raise ValueError(
            f"delta={delta!r} alone allows a success above gamma={gamma!r}; choose a smaller delta."
        )
    step = 1e-12
    while mu_from_budget(epsilon, delta) > mu:
        epsilon *= 1.0 - step
        step *= 2.0
    return epsilon


def scaled_models(models: ArrayLike, sigma: ArrayLike) -> Array:
    """Candidate models in units of the noise, one flat row each; those without noise must agree."""
    table = np.asarray(models, dtype=np.float64)
    scale = np.broadcast_to(np.asarray(sigma, dtype=np.float64), table.shape[1:])
    if not (scale >= 0.0).all():
        raise ValueError("sigma must be non-negative.")
    silent = scale == 0.0
    if np.ptp(table[:, silent], axis=0).any():
        raise ValueError("candidates differ in parameters without noise: they are identified.")
    return table[:, ~silent] / scale[~silent]


def enclosing_ball(points: ArrayLike, n_steps: int = 1000) -> tuple[Array, float]:
    """A small enclosing ball (Badoiu & Clarkson, 2003): a centre, and the largest distance from it.

    The radius exceeds the smallest one by a factor of at most ``1 + 1 / sqrt(n_steps)``.
    """
    table = np.asarray(points, dtype=np.float64)
    squares = np.vecdot(table, table)
    centre = table.mean(axis=0)
    best, smallest = centre, math.inf
    for step in range(n_steps):
        distances = squares - 2.0 * (table @ centre) + centre @ centre
        farthest = int(np.argmax(distances))
        if distances[farthest] < smallest:
            best, smallest = centre, float(distances[farthest])
        centre = centre + (table[farthest] - centre) / (step + 2.0)
    return best, float(np.linalg.norm(table - best, axis=1).max())


def support_bound(
    models: ArrayLike,
    sigma: ArrayLike,
    prior: ArrayLike | None = None,
    reference: ArrayLike | None = None,
) -> float:
    r"""Bound from the distance :math:`d_i` of each candidate model to a reference.

    It maximises :math:`\sum_i \pi_i \Phi(\Phi^{-1}(q_i) + d_i)` over :math:`q \ge 0`,
    :math:`\sum q_i \le 1`, where :math:`q_i` is the probability, under the reference, that the
    attacker names candidate i. The problem is concave. Its dual, at the multiplier where the
    shares add up to one, is an upper bound up to rounding.

    Parameters
    ----------
    models : array-like of shape (n_candidates, ...)
        Noiseless parameters that each candidate would give.
    sigma : array-like
        Noise scale, broadcast against one model.
    prior : array-like of shape (n_candidates,), optional
        Prior; uniform by default.
    reference : array-like, optional
        Any point in parameter space; the centre of a small enclosing ball by default.

    Returns
    -------
    float
        The bound; a ValueError if an argument is invalid.

    References
    ----------
    Margaryan & Gupta, appendix.
    """
    table = np.asarray(models, dtype=np.float64)
    weights = check_prior(prior, len(table))
    if reference is None:
        scaled = span_coordinates(scaled_models(table, sigma))
        centre, _ = enclosing_ball(scaled)
    else:
        both = scaled_models(np.concatenate([table, np.asarray(reference)[None]]), sigma)
        scaled, centre = both[:-1], both[-1]
    keep = weights > 0.0
    distances = np.linalg.norm(scaled - centre, axis=1)[keep]
    if len(distances) == 1 or np.isinf(distances).any():
        return 1.0
    # Without a distance the objective is linear, with slope the prior.
    tied = distances < 1e-12
    log_prior, d = np.log(weights[keep]), np.where(tied, 1.0, distances)

    def shares(log_nu: float) -> tuple[Array, Array]:
        """Best shares at a multiplier, and the success that they give."""
        x = (log_prior - log_nu) / d - d / 2.0
        share = np.where(tied, log_prior > log_nu, ndtr(x))
        return share, np.exp(log_prior) * np.where(tied, share, ndtr(x + d))

    # Each share is 1 / m at its end, so that they add up to one between the outer ends.
    z = ndtri(1.0 / len(d))
    ends = log_prior - np.where(tied, 0.0, d * (z + d / 2.0))
    margin = 1e-9 * (1.0 + np.abs(ends).max())
    bracket = ends.min() - margin, ends.max() + margin
    log_nu = brentq(lambda at: shares(at)[0].sum() - 1.0, *bracket, xtol=1e-12)
    share, success = shares(log_nu)
    best = float(math.exp(log_nu) * (1.0 - share.sum()) + success.sum())
    # Distances below 1e-12 counted as zero above; this covers what they could add.
    return min(1.0, best + 1e-12)


def span_coordinates(points: Array) -> Array:
    """Coordinates of points in their affine span: same distances, at most n_points - 1 columns."""
    shifted = points - points.mean(axis=0)
    if shifted.shape[1] < len(shifted):
        return shifted
    rotation, values, _ = np.linalg.svd(shifted, full_matrices=False)
    return rotation * values
