"""Gaussian noise: an exact, floating-point-safe sampler by default, NumPy for a seed.

Values are divided by their noise scale, so one call with unit scale serves blocks of different
scales, and rounded to the grid of the exact sampler before noise is added. Both the rounding and
the sampler's own allowance for it are part of the accounted rho: see :func:`grid_slack`.

OpenDP's sampler adds a discrete Gaussian (Canonne, Kamath & Steinke, 2020) on a grid of 2**-40
noise scales, with randomness from the operating system. The law of such noise differs from the
continuous Gaussian's by terms of order exp(-2 pi^2 2**80) in mass and 2**-80 in the privacy
profile, far below the margin that the calibration keeps. The many values of a transcript take
:mod:`.exact_normal` instead: cells, of the same grid, of exact continuous deviates.
"""

import math
import numbers
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import opendp.prelude as dp
from numpy.typing import ArrayLike, NDArray

from .exact_normal import GRID_EXPONENT, NormalStream, rounded_normal

# Doubles from here on are multiples of the grid.
_ON_GRID = 2.0 ** (53 + GRID_EXPONENT)
_CHUNK = 1024

RandomState = int | np.random.Generator | np.random.RandomState | None


def grid_slack(n_values: int) -> float:
    """Addition to rho for rounding ``n_values`` values to the sampler's grid.

    Parameters
    ----------
    n_values : int
        Number of released values.

    Returns
    -------
    float
        ``2 sqrt(n_values) 2**-40`` in units of the noise scale: rounding moves each of two
        neighbouring values by half a grid step, and the sampler allows as much again. The division
        by the noise scale, which rounds to ``2**-53`` of the value, is part of the sensitivity.
    """
    return 2.0 * math.sqrt(n_values) * 2.0**GRID_EXPONENT


def exact_sampler(n_values: int) -> dp.Measurement:
    """OpenDP measurement that adds unit-scale discrete Gaussian noise to ``n_values`` values.

    Parameters
    ----------
    n_values : int
        Length of the vector it takes.

    Returns
    -------
    opendp.Measurement
        Its privacy map gives zero-concentrated divergence, ``(distance + slack)**2 / 2``.
    """
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=n_values)
    return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=1.0, k=GRID_EXPONENT)


def sampler_name(random_state: RandomState, *, vectorised: bool = False) -> str:
    """Name of the sampler that :func:`add_gaussian_noise` uses, as stated in the release."""
    if random_state is None and vectorised:
        return "exact normal in cells of a grid (OS entropy)"
    if random_state is None:
        return "OpenDP discrete Gaussian (OS entropy)"
    return "NumPy (seeded, reproducible: not private)"


def check_random_state(
    random_state: RandomState,
) -> np.random.Generator | np.random.RandomState | None:
    """Validate ``random_state`` and turn a seed into a NumPy generator.

    Raises
    ------
    ValueError
        If it is not None, an int, a Generator or a RandomState.
    """
    if random_state is None or isinstance(
        random_state, (np.random.Generator, np.random.RandomState)
    ):
        return random_state
    if isinstance(random_state, numbers.Integral) and random_state >= 0:
        return np.random.default_rng(int(random_state))
    raise ValueError(
        "random_state must be None (exact noise from the operating system), a non-negative "
        f"integer or a numpy Generator; got {random_state!r}."
    )


def _add_exact_noise(scaled: NDArray[np.float64]) -> NDArray[np.float64]:
    def noisy(chunk: NDArray[np.float64]) -> list[float]:
        return exact_sampler(len(chunk))(chunk.tolist())

    chunks = [scaled[i : i + _CHUNK] for i in range(0, len(scaled), _CHUNK)]
    # The sampler runs outside the interpreter lock.
    with ThreadPoolExecutor(max(1, min(len(chunks), joblib.effective_n_jobs(-1)))) as pool:
        results = list(pool.map(noisy, chunks))
    return np.concatenate([np.empty(0), *results])


def add_gaussian_noise(
    values: ArrayLike,
    sigma: ArrayLike,
    random_state: RandomState = None,
    *,
    vectorised: bool | NormalStream = False,
) -> NDArray[np.float64]:
    """Release ``values`` with independent Gaussian noise.

    Parameters
    ----------
    values : array-like
        Noiseless values.
    sigma : array-like
        Noise scale in the units of ``values``, broadcast against them. A zero scale marks values
        that do not depend on private data; they pass unchanged.
    random_state : None, int, Generator or RandomState
        None draws exact noise from operating-system entropy through OpenDP. Anything else draws
        from NumPy: reproducible, and therefore not private.
    vectorised : bool or NormalStream, default=False
        Draw exact noise with :func:`.rounded_normal` instead of OpenDP, some fifty times faster:
        for the many values of a transcript. A stream of it saves time over many small calls.

    Returns
    -------
    ndarray
        Noisy values, float64.

    Raises
    ------
    ValueError
        If a value is not finite, a scale negative or not finite, or ``random_state`` of no known
        kind.
    """
    values = np.asarray(values, dtype=np.float64)
    scale = np.broadcast_to(np.asarray(sigma, dtype=np.float64), values.shape)
    if not np.isfinite(values).all():
        raise ValueError("values must be finite.")
    if not (np.isfinite(scale).all() and (scale >= 0.0).all()):
        raise ValueError("sigma must be finite and non-negative.")
    generator = check_random_state(random_state)
    released = values.copy()
    noisy = scale > 0.0
    grid = 2.0**GRID_EXPONENT
    scaled = values[noisy] / scale[noisy]
    if not np.isfinite(scaled).all():
        raise ValueError("values are too large for sigma.")
    # Larger ones are on the grid as they are.
    scaled = np.where(np.abs(scaled) < _ON_GRID, np.rint(scaled / grid) * grid, scaled)
    if generator is None and vectorised:
        draw = vectorised if isinstance(vectorised, NormalStream) else rounded_normal
        scaled = scaled + draw(len(scaled))
    elif generator is None:
        scaled = _add_exact_noise(scaled)
    else:
        scaled = scaled + generator.standard_normal(scaled.shape)
    released[noisy] = scaled * scale[noisy]
    return released


def exponential_choice(scores: ArrayLike, epsilon: float, random_state: RandomState = None) -> int:
    r"""Choose an index with probability proportional to :math:`\exp(\epsilon\, score / 2)`.

    Parameters
    ----------
    scores : array-like of int, shape (n_candidates,)
        Whole scores, each of which one substitution moves by at most one.
    epsilon : float
        Pure differential privacy of the choice, positive.
    random_state : None, int, Generator or RandomState
        None draws Gumbel noise exactly from operating-system entropy through OpenDP. Anything
        else draws from NumPy: reproducible, and therefore not private.

    Returns
    -------
    int
        The chosen index.

    Raises
    ------
    ValueError
        If scores are not whole, or ``epsilon`` is not positive.

    References
    ----------
    McSherry & Talwar (2007), exponential mechanism, in its Gumbel form.
    """
    whole = np.asarray(scores)
    if whole.dtype.kind not in "iu" or whole.ndim != 1 or len(whole) == 0:
        raise ValueError("scores must be a non-empty vector of whole numbers.")
    if not epsilon > 0.0:
        raise ValueError(f"epsilon must be positive, got {epsilon!r}.")
    generator = check_random_state(random_state)
    if generator is not None:
        noise = -np.log(-np.log(generator.uniform(size=len(whole))))
        return int(np.argmax(0.5 * epsilon * whole + noise))
    dp.enable_features("contrib")
    choose = dp.m.make_noisy_max(
        dp.vector_domain(dp.atom_domain(T="i64")),
        dp.linf_distance(T="i64"),
        dp.zero_concentrated_divergence(),
        scale=2.0 / epsilon,
    )
    return int(choose(whole.tolist()))
