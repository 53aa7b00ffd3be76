r"""One Gaussian release is one number, :math:`\mu = \Delta / \sigma` (rho, in zCDP, is mu^2 / 2).

Its privacy profile is exact, in a form that neither overflows nor cancels:
:math:`\delta = \varphi(u)\,(M(u) - M(v))`, with :math:`u = \varepsilon/\mu - \mu/2`,
:math:`v = u + \mu` and the Mills ratio M ("One release, many releases").

References
----------
Balle & Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018.
Dong, Roth & Su, "Gaussian differential privacy", JRSS-B 2022.
"""

import math
import sys
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from scipy.optimize import brentq
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

from .._parameters import Inside, NonNegative, Share, Spent, check_number

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_SQRT_HALF_PI = math.sqrt(0.5 * math.pi)
# The profile is evaluated to a relative error below 1e-10; targets keep this margin on top of it.
_MARGIN = 1e-9
_NODES, _WEIGHTS = (a.tolist() for a in np.polynomial.legendre.leggauss(10))
_GUESS = "the success of a blind guess (1/10 for ten candidates)"
# A privacy loss may be as large as a double, and not infinite.
_Loss = Annotated[float, Meta(ge=0.0, le=sys.float_info.max)]


def _checked(name: str, value: Any, kind: Any = NonNegative) -> float:
    check_number(name, value, kind)
    return float(value)


def _mills(x: float) -> float:
    return _SQRT_HALF_PI * float(erfcx(x / math.sqrt(2.0)))


def _log_delta(u: float, mu: float) -> float:
    """Logarithm of the profile at ``epsilon = mu * (u + mu / 2)``, for ``0 < mu < inf``."""
    v = u + mu
    if u < -30.0:
        # Here epsilon + log Phi(-v) is at most log phi(u) + log M(v): no overflow.
        ratio = -0.5 * u * u - _LOG_SQRT_2PI + math.log(_mills(v)) - float(log_ndtr(-u))
        return float(log_ndtr(-u)) + math.log1p(-math.exp(ratio))
    if mu < 0.1:
        # M(u) - M(v) cancels; integrate -M'(x) = 1 - x M(x) instead, which does not.
        half, middle = 0.5 * mu, u + 0.5 * mu
        gap = 0.0
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            x = middle + half * node
            gap += weight * max(1.0 - x * _mills(x), 0.0)
        gap *= half
    else:
        gap = _mills(u) - _mills(v)
    return -0.5 * u * u - _LOG_SQRT_2PI + math.log(gap) if gap > 0.0 else -math.inf


def _step_until(x: float, factor: float, accept: Callable[[float], bool]) -> float:
    """Move a root off its bracket, by a growing relative step, until ``accept(x)`` holds."""
    step = 2.0**-52
    while not accept(x):
        x *= 1.0 + factor * step
        step *= 2.0
    return x


def delta_from_mu(mu: float, epsilon: float) -> float:
    """Exact delta of a mu-GDP Gaussian release at ``epsilon`` (Balle & Wang, 2018, Theorem 8).

    Parameters
    ----------
    mu : float
        Sensitivity divided by the noise scale, ``>= 0`` (``inf`` for no noise).
    epsilon : float
        Privacy loss bound, finite and ``>= 0``.

    Returns
    -------
    float
        The smallest delta for which the release is (epsilon, delta)-private, to a relative
        error below 1e-10.

    Raises
    ------
    ValueError
        If an argument is out of range.
    """
    mu, epsilon = _checked("mu", mu), _checked("epsilon", epsilon, _Loss)
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    return min(1.0, math.exp(_log_delta(epsilon / mu - 0.5 * mu, mu)))


def mu_from_budget(epsilon: float, delta: float) -> float:
    """Largest mu whose Gaussian release is (epsilon, delta)-private.

    Parameters
    ----------
    epsilon : float
        Privacy loss bound, between 0 and 1e10.
    delta : float
        Delta, strictly between 0 and 1.

    Returns
    -------
    float
        Mu, rounded down: the exact delta at the returned value never exceeds ``delta``.
        The noise scale of a release of sensitivity ``D`` is ``D / mu`` (Balle & Wang, 2018,
        Algorithm 1, in a form that does not cancel).

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> round(mu_from_budget(2.0, 1e-6), 4)
    0.4483
    """
    epsilon, delta = _checked("epsilon", epsilon, Spent), _checked("delta", delta, Inside)
    target = math.log(delta) + math.log1p(-_MARGIN)

    def excess(mu: float) -> float:
        return _log_delta((epsilon - 0.5 * mu * mu) / mu, mu) - target

    high = math.sqrt(2.0 * epsilon) + 10.0
    while excess(high) <= 0.0:  # only for delta within 1e-23 of 1
        high *= 2.0
    low = high
    while excess(low) > 0.0:
        low *= 0.5
    root = brentq(excess, low, 2.0 * low if low < high else high, xtol=1e-300, rtol=1e-15)
    return _step_until(root, -1.0, lambda mu: excess(mu) <= 0.0)


def epsilon_from_mu(mu: float, delta: float) -> float:
    """Smallest epsilon at which a mu-GDP Gaussian release is (epsilon, delta)-private.

    Parameters
    ----------
    mu : float
        Sensitivity divided by the noise scale, ``>= 0``.
    delta : float
        Delta, strictly between 0 and 1.

    Returns
    -------
    float
        Epsilon, rounded up (Balle & Wang, 2018, Theorem 8); 0 when total variation alone stays
        below ``delta``; ``inf`` when ``mu`` is infinite.

    Raises
    ------
    ValueError
        If an argument is out of range.
    """
    mu, delta = _checked("mu", mu), _checked("delta", delta, Inside)
    if math.isinf(mu):
        return math.inf
    target = math.log(delta) + math.log1p(-_MARGIN)
    if mu == 0.0 or _log_delta(-0.5 * mu, mu) <= target:
        return 0.0
    # delta(eps) <= Phi(-u) <= exp(-u^2 / 2) brackets the root from above.
    low, high = -0.5 * mu, math.sqrt(-2.0 * target) + 1.0
    u = brentq(
        lambda u: _log_delta(u, mu) - target, low, high, xtol=1e-15, rtol=1e-15, maxiter=5000
    )
    epsilon = max(mu * (u + 0.5 * mu) * (1.0 + 2.0**-50), 5e-324)
    return _step_until(epsilon, 1.0, lambda e: _log_delta(e / mu - 0.5 * mu, mu) <= target)


def compose(mus: Iterable[float]) -> float:
    """Mu of several Gaussian releases over the same records, taken together.

    Parameters
    ----------
    mus : iterable of float
        One mu per release, each fixed before any output, all for one adjacency (same
        metric, encoder, norm bound, radius and label rule).

    Returns
    -------
    float
        ``sqrt(sum(mu ** 2))``, exact for Gaussian releases, also adaptively chosen ones (Dong, Roth
        & Su, 2022, Corollary 3.3).

    Raises
    ------
    ValueError
        If a mu is negative or not a number.
    """
    return math.hypot(*(_checked("mu", mu) for mu in mus))


def gaussian_power(level: float, mu: float) -> float:
    r"""Largest power of a test of ``level`` between two Gaussians at distance ``mu``, rounded up.

    This is the direct certificate: an adversary whose best blind guess succeeds with probability
    ``level`` succeeds with at most :math:`\Phi(\Phi^{-1}(level) + \mu)` after the release.
    """
    level, mu = _checked(_GUESS, level, Share), _checked("mu", mu)
    if math.isinf(mu):
        return 1.0
    if level in (0.0, 1.0) or mu == 0.0:
        return level
    quantile = float(ndtri(level))
    # A quantile is off by some units in its last place, and a tail by its square as many.
    up = 1.0 + (8.0 + 8.0 * quantile**2) * 2.0**-52
    return min(1.0, math.nextafter(float(ndtr(quantile + mu)) * up, math.inf))
