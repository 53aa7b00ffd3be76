"""Noise of one release: by default exact and free of floating-point leaks; NumPy's for a seed.

Values are divided by their noise scale and rounded to the grid of the exact sampler. Then the grid
cell of a normal deviate is added. So the published value is a function of the value on the grid
plus an exact normal deviate (:mod:`.exact_normal`). :func:`grid_slack` is the mu that the rounding
costs.
"""

import math
import numbers
import os
from fractions import Fraction
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .exact_normal import GRID_EXPONENT, Entropy, rounded_normal

Array = NDArray[np.float64]
RandomState = int | np.random.Generator | np.random.RandomState | None

#: What records call the samplers.
EXACT_SAMPLER = "exact normal in cells of a grid (OS entropy)"
SEEDED_SAMPLER = "NumPy (seeded, reproducible: not private)"

# Doubles of at least this size are multiples of the grid step.
_ON_GRID = 2.0 ** (53 + GRID_EXPONENT)


def grid_slack(n_values: int) -> float:
    """Addition to mu for rounding ``n_values`` values to the sampler's grid.

    Twice what rounding needs: it moves each of two neighbouring values by half a grid step. The
    division by the noise scale, which rounds to ``2**-53`` of the value, is in the sensitivity.
    """
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
        If ``random_state`` is of no known kind.
    """

    def __init__(self, random_state: RandomState = None) -> None:
        self._generator = check_random_state(random_state)
        #: Whether noise was drawn: what it was added to may be known to somebody from then on.
        self.used = False

    @property
    def private(self) -> bool:
        """Whether the noise is drawn without a seed, so that nobody can draw it again."""
        return self._generator is None

    @property
    def name(self) -> str:
        """Name of the sampler, as stated in the release."""
        return EXACT_SAMPLER if self.private else SEEDED_SAMPLER

    def __call__(self, values: ArrayLike, sigma: ArrayLike) -> Array:
        """Values with independent noise, as float64.

        ``sigma`` is the noise scale in the units of ``values``, broadcast against them. A zero
        scale marks values that do not depend on private data; they pass unchanged. A ValueError
        says that a value is not finite or too large for its scale, or a scale negative or infinite.
        """
        values = np.asarray(values, dtype=np.float64)
        scale = np.broadcast_to(np.asarray(sigma, dtype=np.float64), values.shape)
        if not np.isfinite(values).all():
            raise ValueError("values must be finite.")
        if not (np.isfinite(scale).all() and (scale >= 0.0).all()):
            raise ValueError("sigma must be finite and non-negative.")
        self.used = True
        released, noisy = values.copy(), scale > 0.0
        grid = 2.0**GRID_EXPONENT
        with np.errstate(all="ignore"):
            scaled = values[noisy] / scale[noisy]
        if not np.isfinite(scaled).all():
            raise ValueError("values are too large for sigma.")
        # Larger values are on the grid already.
        scaled = np.where(np.abs(scaled) < _ON_GRID, np.rint(scaled / grid) * grid, scaled)
        released[noisy] = (scaled + self._deviates(len(scaled))) * scale[noisy]
        return released

    def _deviates(self, size: int) -> Array:
        """Standard normal deviates that nobody has used."""
        if self._generator is None:
            return rounded_normal(size)
        return self._generator.standard_normal(size)

    def __reduce__(self) -> NoReturn:
        raise TypeError("Noise is not copied: it must not repeat.")


def permute_and_flip(scores: ArrayLike, epsilon: float, random_state: RandomState = None) -> int:
    r"""Choose an index with a large score, by permute-and-flip: pure epsilon-DP.

    Candidates are visited in random order; one is accepted with probability
    :math:`\exp(-\epsilon (\max score - score) / 2)`. The first accepted one is a uniform choice
    among all that would be accepted, which is how it is drawn here.

    One substitution must move each of the scores, which are whole, by at most one. Without
    ``random_state`` the coins are exact, with operating-system entropy; otherwise NumPy draws bits:
    reproducible, and therefore not private.

    References
    ----------
    McKenna & Sheldon, "Permute-and-flip", NeurIPS 2020. Its coins are those of Canonne, Kamath &
    Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Algorithm 1.
    """
    whole = np.asarray(scores)
    if whole.dtype.kind not in "iu" or whole.ndim != 1 or len(whole) == 0:
        raise ValueError("scores must be a non-empty vector of whole numbers.")
    if not 0.0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be positive, got {epsilon!r}.")
    generator = check_random_state(random_state)
    bits: Entropy = os.urandom if generator is None else generator.bytes
    half = Fraction(epsilon) / 2
    gaps = [int(gap) for gap in int(whole.max()) - whole.astype(object)]
    rates = {gap: divmod(half * gap, 1) for gap in set(gaps)}
    # exp(-rate) is the product of floor(rate) factors exp(-1) and of exp(-rest).
    left = np.array([min(rates[gap][0], 2**62) for gap in gaps], dtype=np.int64)
    alive = np.arange(len(gaps))
    while (waiting := left[alive] > 0).any():
        accepted = np.ones(len(alive), dtype=bool)
        accepted[waiting] = _coins_of_inverse_e(int(waiting.sum()), bits)
        left[alive] -= 1
        alive = alive[accepted]
    kept = [i for i in alive.tolist() if _coin_of_exponential(rates[gaps[i]][1], bits)]
    return kept[_below(len(kept), bits)]


def _coin_of_exponential(rate: Fraction, bits: Entropy) -> bool:
    """True with probability exp(-rate), for a rate in [0, 1].

    Trial j succeeds with probability rate / j; the first to fail has an odd number.
    """
    trial = 1
    while _below(rate.denominator * trial, bits) < rate.numerator:
        trial += 1
    return trial % 2 == 1


def _coins_of_inverse_e(size: int, bits: Entropy) -> NDArray[np.bool_]:
    """Many coins that are True with probability exp(-1), by the same trials at rate 1."""
    odd = np.zeros(size, dtype=bool)
    going, trial = np.arange(size), 1
    while len(going):
        succeeds = _many_below(trial, len(going), bits) == 0
        odd[going[~succeeds]] = trial % 2 == 1
        going, trial = going[succeeds], trial + 1
    return odd


def _below(most: int, bits: Entropy) -> int:
    """A uniform whole number below ``most``, by rejection."""
    n_bits = (most - 1).bit_length()
    n_bytes = (n_bits + 7) // 8
    while True:
        drawn = int.from_bytes(bits(n_bytes), "little") >> (8 * n_bytes - n_bits)
        if drawn < most:
            return drawn


def _many_below(most: int, size: int, bits: Entropy) -> NDArray[np.uint64]:
    """Uniform whole numbers below a small ``most``, by rejection."""
    drawn = np.frombuffer(bits(8 * size), dtype="<u8").copy()
    # Words from here on would make small remainders more likely.
    end = 2**64 // most * most
    while (again := np.flatnonzero(drawn > np.uint64(end - 1))).size:
        drawn[again] = np.frombuffer(bits(8 * len(again)), dtype="<u8")
    return drawn % np.uint64(most)
