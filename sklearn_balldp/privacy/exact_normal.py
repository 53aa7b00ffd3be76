"""Standard normal deviates whose distribution has no rounding error, many at a time.

A deviate +-(k + x), k whole and x in [0, 1), comes from rejection: propose k with probability
2^(-k-1) and x uniform, and accept with probability exp(-(k + x)^2 / 2 + (k - 1) log 2 + 1/2). Bits
of uniforms are drawn as needed. They are compared in double precision where its error, bounded by
:data:`TOLERANCE`, cannot change the outcome, and otherwise by :func:`accepts` in as many digits as
it takes. So the cell of a grid that holds the deviate has exactly the normal's probability.

References
----------
Karney, "Sampling exactly from the normal distribution", ACM TOMS 42 (2016).
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import ROUND_HALF_EVEN, Context, Decimal

import numpy as np
from numpy.typing import NDArray

Entropy = Callable[[int], bytes]

#: Grid of the exact samplers, as a power of two, in units of the noise scale.
GRID_EXPONENT = -40
#: Bound on the error of the comparison in double precision, with room to spare (the error stays
#: below 2**-46). It covers rounding, the bits of both uniforms not yet drawn, and p for k >= 10.
TOLERANCE = 2.0**-40

# A word holds 53 bits of x, ten of k (leading zeros; all zero: ten or more) and the sign.
_BITS = 53
_MAX_WHOLE = 10
_WHOLE = np.array(
    [_MAX_WHOLE, *(_MAX_WHOLE - i.bit_length() for i in range(1, 2**_MAX_WHOLE))], dtype=np.float64
)
_OFFSET = (np.arange(_MAX_WHOLE + 1) - 1.0) * np.log(2.0) + 0.5
_BLOCK = 2**14
# Deviates that a thread draws at once; so many in all are not worth a second thread.
_PART = 2**15
# More proposals than are needed on average, so that few blocks come up short.
_PROPOSALS = 2.1


def rounded_normal(size: int, entropy: Entropy = os.urandom) -> NDArray[np.float64]:
    """Standard normal deviates, each moved to the middle of its cell of the grid.

    Many are drawn in parts on all cores, each part by itself; other entropy keeps to one thread.
    """
    deviates = np.empty(size)
    if size <= _PART or entropy is not os.urandom:
        _fill(deviates, entropy)
        return deviates
    # Whoever only reads a record needs none of it.
    from joblib import cpu_count

    parts = [deviates[start : start + _PART] for start in range(0, size, _PART)]
    # Not effective_n_jobs, which warns in workers of multiprocessing.
    with ThreadPoolExecutor(min(4, cpu_count())) as pool:
        # An error in a part is raised here, as no part may stay unwritten.
        list(pool.map(_fill, parts, [entropy] * len(parts)))
    return deviates


def _fill(deviates: NDArray[np.float64], entropy: Entropy) -> None:
    """Write deviates that are independent of all others."""
    filled, size = 0, len(deviates)
    while filled < size:
        n_proposals = min(_BLOCK, int(_PROPOSALS * (size - filled)) + 16)
        accepted = _proposals(n_proposals, entropy)[: size - filled]
        deviates[filled : filled + len(accepted)] = accepted
        filled += len(accepted)


def _proposals(n_proposals: int, entropy: Entropy) -> NDArray[np.float64]:
    """Draw ``n_proposals`` proposals, and return those that are accepted."""
    words = np.frombuffer(entropy(16 * n_proposals), dtype="<u8").reshape(2, n_proposals)
    fraction = words[0] >> np.uint64(64 - _BITS)
    rest = (words[0] & np.uint64(2 ** (64 - _BITS) - 1)).astype(np.intp)
    whole = _WHOLE[rest >> 1]
    uniform = words[1] >> np.uint64(64 - _BITS)
    z = whole + fraction * 2.0**-_BITS
    excess = np.exp(_OFFSET[whole.astype(np.intp)] - 0.5 * z * z) - uniform * 2.0**-_BITS
    accepted = excess > 0.0
    for i in np.flatnonzero(np.abs(excess) <= TOLERANCE).tolist():
        k = int(whole[i])
        if k == _MAX_WHOLE:
            while not entropy(1)[0] & 1:
                k += 1
            whole[i] = k
        accepted[i] = accepts(k, int(fraction[i]), int(uniform[i]), _BITS, entropy)
    cell = whole * 2.0**-GRID_EXPONENT + (fraction >> np.uint64(_BITS + GRID_EXPONENT))
    deviates = (cell + 0.5) * 2.0**GRID_EXPONENT
    np.negative(deviates, out=deviates, where=(rest & 1).astype(bool))
    return deviates[accepted]


def accepts(k: int, fraction: int, uniform: int, bits: int, entropy: Entropy = os.urandom) -> bool:
    r"""Whether a uniform real lies below p(k, x), for a uniform real x: the exact decision."""
    while True:
        context = Context(
            prec=bits // 3 + 40, rounding=ROUND_HALF_EVEN, Emin=-(10**8), Emax=10**8, traps=[]
        )
        # p falls with x; computed digits beyond this slack are right (exp rounds correctly).
        slack = context.power(Decimal(10), -(bits // 3 + 20))
        high = context.add(_log_acceptance(k, fraction, bits, context), slack)
        low = context.subtract(_log_acceptance(k, fraction + 1, bits, context), slack)
        unit = context.power(Decimal(2), -bits)
        if context.multiply(Decimal(uniform + 1), unit) < context.exp(low):
            return True
        if context.multiply(Decimal(uniform), unit) > context.exp(high):
            return False
        fraction = fraction << 64 | int.from_bytes(entropy(8), "little")
        uniform = uniform << 64 | int.from_bytes(entropy(8), "little")
        bits += 64


def _log_acceptance(k: int, fraction: int, bits: int, context: Context) -> Decimal:
    """log p(k, fraction / 2**bits)."""
    z = context.divide(Decimal((k << bits) + fraction), Decimal(1 << bits))
    square = context.multiply(z, z)
    twos = context.multiply(Decimal(k - 1), context.ln(Decimal(2)))
    return context.subtract(context.add(twos, Decimal("0.5")), context.divide(square, Decimal(2)))
