"""A linear discriminant from noisy sums: what to spend on which, and what to make of them.

Both are functions of public numbers and of what was released, so neither costs privacy. The scores
are those of a Gaussian model of the classes; "Noisy sums" of the documentation says how.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx

from ...losses import Array
from ...rows import blas_threads_for
from ..settings import LEAST_REACH, RIDGE, TAIL, WITHIN_CLASS_FLOOR
from .prototypes import discounted, gaussian_rule, log_priors_of


def discriminant_rule(
    statistics: Any, *, shrinkage: Any = "auto", priors: Any = None
) -> tuple[Array, Array]:
    """Weights and offsets of the scores, in the coordinates of the rows.

    The offset of a class without records is minus infinity.
    """
    scale = statistics.norm_bound
    occupied, counts, log_priors, means, noise = of_occupied(statistics, priors)
    if statistics.second_moment is None:
        weights, offsets = gaussian_rule(
            means, counts.astype(np.float64), np.sqrt(noise), alpha=0.0, norm_bound=1.0
        )
        offsets = offsets + log_priors - np.log(counts / counts.sum())
    else:
        n_samples = statistics.total
        moment = statistics.second_moment / (n_samples * scale**2)
        sigma = statistics.sigma_moment / (n_samples * scale**2)
        with blas_threads_for(moment.shape[0]):
            weights, offsets = _scores(means, noise, counts, moment, sigma, log_priors, shrinkage)
    coef, intercept = np.zeros(statistics.class_sums.shape), np.full(len(occupied), -np.inf)
    coef[occupied], intercept[occupied] = weights / scale, offsets
    return coef, intercept


def of_occupied(statistics: Any, priors: Any) -> tuple[NDArray[Any], Array, Array, Array, Array]:
    """Which classes have records, and of these: weights, logarithms of priors, means, their noise.

    Means are those of rows of norm 1, and the noise is its variance in each value of them.
    """
    counts, scale = likely_counts(statistics), statistics.norm_bound
    occupied = counts > 0.0
    counts, log_priors = counts[occupied], log_priors_of(priors, counts)[occupied]
    means = statistics.class_sums[occupied] / counts[:, None] / scale
    sigma = np.broadcast_to(statistics.sigma_sums, len(occupied))[occupied]
    return occupied, counts, log_priors, means, (sigma / counts / scale) ** 2


def likely_counts(statistics: Any) -> Array:
    """Weight of each class: public numbers, or noisy ones as far as they can be believed.

    A mean over too small a count would be long, and its class predicted too often.
    """
    counts = np.asarray(statistics.counts, dtype=np.float64)
    noise = statistics.sigma_counts**2
    if noise == 0.0:
        return counts
    equal, freedom = statistics.total / len(counts), len(counts) - 1
    deviations = counts - equal
    spread = discounted(deviations @ deviations / freedom - noise, noise * np.sqrt(2.0 / freedom))
    return np.maximum(equal + spread / (spread + noise) * deviations, 1.0)


def believed(told: float, noise: float, least: float) -> float:
    """What is expected of a number that is at least ``least``, told with so much normal noise.

    Nothing else is known of it beforehand: where noise is small this is what was told, and a
    variance that noise took below 0 is about as large as the noise.
    """
    if noise == 0.0:
        return max(told, least)
    z = (least - told) / noise
    # Density of a standard normal law beyond z over its tail, which may underflow.
    beyond = math.sqrt(2.0 / math.pi) / float(erfcx(z / math.sqrt(2.0)))
    return least + noise * max(beyond - z, 0.0)


def spectrum_of_mean(values: Array, mean: float, floor: float) -> Array:
    """Nearest point to ``values`` with this mean and no entry below ``floor``."""
    ordered = np.sort(values)[::-1] - floor
    ranks = np.arange(1, len(values) + 1)
    shifts = (np.cumsum(ordered) - len(values) * (mean - floor)) / ranks
    # The first always, also where its shift is rounded to the value itself.
    last = np.flatnonzero(ordered > shifts)[-1:]
    shift = shifts[last[0] if len(last) else 0]
    return floor + np.maximum(values - floor - shift, 0.0)


@dataclass(frozen=True)
class _Spread:
    """Deviations of noisy class means from the grand mean, and what adds to their products.

    The noises of two deviations have the covariance ``base - common - common[:, None]``, value by
    value, and on the diagonal the noise of the class itself too. Sampling adds, in units of the
    covariance within classes, 1 / counts on the diagonal, less 1 / counts.sum(). No matrix of
    classes is made.
    """

    means: Array
    noise: Array  # variance of the noise in each value of a class mean
    counts: Array

    @property
    def shares(self) -> Array:
        return self.counts / self.counts.sum()

    @property
    def grand(self) -> Array:
        return self.shares @ self.means

    @property
    def deviations(self) -> Array:
        return self.means - self.grand

    @property
    def common(self) -> Array:
        return self.shares * self.noise

    @property
    def base(self) -> float:
        return float(self.shares**2 @ self.noise)

    @property
    def noise_of(self) -> Array:
        """Variance of the noise in each value of a deviation."""
        return self.noise - 2.0 * self.common + self.base

    @property
    def sampling_of(self) -> Array:
        """What sampling adds to it, in units of the variance within classes."""
        return 1.0 / self.counts - 1.0 / self.counts.sum()


def _scores(
    means: Array,
    noise: Array,
    counts: Array,
    moment: Array,
    sigma: float,
    log_priors: Array,
    shrinkage: Any,
) -> tuple[Array, Array]:
    """Weights and offsets for rows of norm 1, from means and moment and their noise."""
    spread = _Spread(means, noise, counts)
    raw, vectors, clean, inverse = _clean_spectrum(spread, moment, sigma, shrinkage)
    rotated = spread.deviations @ vectors
    weights = (rotated * inverse) @ vectors.T
    norms = _unbiased_norms(spread, weights, clean, inverse)
    signal = max(float(spread.shares @ norms), np.finfo(np.float64).tiny)
    # Weights depend on the noise of the moment that they are measured with.
    bias = rotated**2 @ _stein(raw, inverse, sigma)
    measured = _products(spread, weights, norms, moment, clean, inverse) + bias
    # The noise of a class is in its scores alone; the rest has one law for all classes.
    isotropic = float(inverse**2 @ clean)
    of_class = spread.noise_of * isotropic + spread.sampling_of * float(inverse**2 @ clean**2)
    smallest = signal * isotropic / inverse.sum()
    # All scores are measured with one noisy moment.
    doubt = sigma * float(np.linalg.norm((weights.T * spread.shares) @ weights))
    within = float(spread.shares @ (measured - of_class))
    variance = of_class + believed(within, doubt, smallest)

    log_odds = signal**2 / float(spread.shares @ variance)
    slope = signal / variance / (1.0 + log_odds / TAIL)
    return slope[:, None] * weights, log_priors - slope * (weights @ spread.grand + 0.5 * norms)


def _clean_spectrum(
    spread: _Spread, moment: Array, sigma: float, shrinkage: Any
) -> tuple[Array, Array, Array, Array]:
    """Eigenvalues and directions of the moment within classes; without noise; their inverse."""
    n_features = len(moment)
    # What the means explain goes, but for their noise.
    explained = (spread.means.T * spread.shares) @ spread.means
    noise_of_means = float(spread.shares @ spread.noise)
    raw, vectors = np.linalg.eigh(moment - explained + noise_of_means * np.eye(n_features))
    mean = max(float(raw.mean()), WITHIN_CLASS_FLOOR / n_features)
    if not isinstance(shrinkage, str):
        clean = np.maximum((1.0 - shrinkage) * raw + shrinkage * mean, 1e-6 * mean)
        return raw, vectors, clean, 1.0 / clean
    # Noise spreads the eigenvalues and leaves their sum: back to the nearest ones of that sum.
    clean = spectrum_of_mean(raw, mean, LEAST_REACH**2 * mean)
    # Directions whose eigenvalue is less than the noise must not count as exact.
    edge = sigma * np.sqrt(2.0 * n_features)
    unsure = edge / RIDGE + mean * n_features / spread.counts.sum()
    return raw, vectors, clean, 1.0 / (clean + 1.0 / (1.0 / unsure + 1.0 / (RIDGE * mean)))


def _unbiased_norms(spread: _Spread, weights: Array, clean: Array, inverse: Array) -> Array:
    """Squared lengths of the deviations in that metric, less what noise and sampling add."""
    added = float(inverse.sum()) * spread.noise_of + float(inverse @ clean) * spread.sampling_of
    return np.vecdot(weights, spread.deviations) - added


def _products(
    spread: _Spread, weights: Array, norms: Array, moment: Array, clean: Array, inverse: Array
) -> Array:
    """Variances of the scores within classes, as the noisy moment and means tell them."""
    total = moment - np.outer(spread.grand, spread.grand)
    # Inner products with all deviations are those of augmented vectors, but for one's own.
    trace, ones = float(inverse.sum()), np.ones(len(spread.counts))
    offset = trace * (spread.common - spread.base) + float(inverse @ clean) / spread.counts.sum()
    left = np.column_stack((weights, ones, offset))
    right = np.column_stack((spread.deviations, trace * spread.common, ones))
    squares = np.vecdot(left @ ((right.T * spread.shares) @ right), left)
    squares += spread.shares * (norms**2 - np.vecdot(left, right) ** 2)
    return np.vecdot(weights @ total, weights) - squares


def _stein(raw: Array, inverse: Array, sigma: float) -> Array:
    """By Stein's identity for eigenvalues: what the noise of the moment adds, by direction."""
    gaps = raw[:, None] - raw
    close = np.abs(gaps) <= 1e-9 * (np.abs(raw[-1]) + np.abs(raw[0]))
    slopes = np.zeros(gaps.shape)
    np.divide(inverse[:, None] - inverse, gaps, out=slopes, where=~close)
    return -(sigma**2) * inverse * slopes.sum(axis=1)
