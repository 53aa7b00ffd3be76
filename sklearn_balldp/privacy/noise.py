"""Noise of one release: by default exact and free of floating-point leaks; NumPy's for a seed.

Values are rounded to the grid of the exact sampler, in units of the noise, and the cell of a normal
deviate (:mod:`.exact_normal`) is added: :func:`grid_slack` is the mu that the rounding costs.
"""

import math
import numbers
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .exact_normal import GRID_EXPONENT, rounded_normal

Array = NDArray[np.float64]
RandomState = int | np.random.Generator | np.random.RandomState | None

#: What records call the samplers.
EXACT_SAMPLER = "exact normal in cells of a grid (OS entropy)"
SEEDED_SAMPLER = "NumPy (seeded, reproducible: not private)"

# Doubles of at least this size are multiples of the grid step.
_ON_GRID = 2.0 ** (53 + GRID_EXPONENT)


def grid_slack(n_values: int) -> float:
    """Mu of rounding ``n_values`` values, of two neighbours, to the sampler's grid, taken twice."""
    return 2.0 * math.sqrt(n_values) * 2.0**GRID_EXPONENT


def check_random_state(
    random_state: RandomState,
) -> np.random.Generator | np.random.RandomState | None:
    """None, or a NumPy generator; a ValueError for anything that is no ``random_state``."""
    if random_state is None or isinstance(
        random_state, (np.random.Generator, np.random.RandomState)
    ):
        return random_state
    whole = isinstance(random_state, numbers.Integral) and not isinstance(random_state, bool)
    if whole and random_state >= 0:  # type: ignore[operator]
        return np.random.default_rng(int(random_state))
    raise ValueError(
        "random_state must be None (exact noise from the operating system), a non-negative "
        f"integer or a numpy Generator; got {random_state!r}."
    )


class Noise:
    """Gaussian noise of one release: call it with values and their noise scales.

    Without a seed each call draws its deviates from the operating system. Nothing is drawn ahead,
    and nothing is kept, so that threads and processes, forked ones too, never share a deviate. A
    copy of a seeded one would repeat its noise, so none can be copied.

    Parameters
    ----------
    random_state : None, int, Generator or RandomState
        None draws exact noise from operating-system entropy. Anything else draws from NumPy:
        reproducible, and therefore not private.

    Raises
    ------
    ValueError
        If ``random_state`` is of another kind.
    """

    def __init__(self, random_state: RandomState = None) -> None:
        self._generator = check_random_state(random_state)

    @property
    def private(self) -> bool:
        """Whether the noise is drawn without a seed, so that nobody can draw it again."""
        return self._generator is None

    @property
    def name(self) -> str:
        """Name of the sampler in records."""
        return EXACT_SAMPLER if self.private else SEEDED_SAMPLER

    def __call__(self, values: ArrayLike, sigma: ArrayLike) -> Array:
        """Values with independent noise, as float64.

        ``sigma`` is the noise scale in the units of ``values``, broadcast against them. A zero
        scale marks values that do not depend on private data; they pass unchanged. A ValueError
        says that a value is not finite or too large for its scale, or a scale negative or infinite.
        """
        values = np.asarray(values, dtype=np.float64)
        scales = np.asarray(sigma, dtype=np.float64)
        if not np.isfinite(values).all():
            raise ValueError("values must be finite.")
        least = scales.min(initial=math.inf)  # NaN, where one is
        if not (least >= 0.0 and scales.max(initial=0.0) < math.inf):
            raise ValueError("sigma must be finite and non-negative.")
        released, scale = values.copy(), np.full(values.shape, scales)
        # All of them, without a copy, where none is zero.
        noisy: Any = ... if least > 0.0 else scale > 0.0
        grid = 2.0**GRID_EXPONENT
        with np.errstate(all="ignore"):
            scaled = values[noisy] / scale[noisy]
        if not np.isfinite(scaled).all():
            raise ValueError("values are too large for sigma.")
        # Larger values are on the grid already.
        scaled = np.where(np.abs(scaled) < _ON_GRID, np.rint(scaled / grid) * grid, scaled)
        deviates = self._deviates(scaled.size).reshape(scaled.shape)
        released[noisy] = (scaled + deviates) * scale[noisy]
        return released

    def _deviates(self, size: int) -> Array:
        """Standard normal deviates that nobody has used."""
        if self._generator is None:
            return rounded_normal(size)
        return self._generator.standard_normal(size)

    def __reduce__(self) -> NoReturn:
        raise TypeError("Noise is not copied: it must not repeat.")
