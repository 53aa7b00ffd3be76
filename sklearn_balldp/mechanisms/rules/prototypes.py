"""The rule of noisy class means: what public numbers and the release make of them."""

from typing import Any

import numpy as np

from ...losses import Array
from ..settings import EFFECTIVE_DIMENSION, WITHIN_CLASS_FLOOR


def log_priors_of(priors: Any, counts: Array) -> Array:
    """Logarithms of the class probabilities; classes without records are left out of them."""
    if isinstance(priors, str):
        weights = np.ones(len(counts))
    else:
        weights = counts if priors is None else np.asarray(priors, dtype=np.float64)
    with np.errstate(divide="ignore"):
        logs: Array = np.log(weights / weights.sum())
    return logs


def shift_of_priors(priors: Any, counts: Array) -> Array:
    """What class probabilities add to scores that know the shares of the classes."""
    occupied = counts > 0.0
    moved = log_priors_of(priors, counts)
    moved[occupied] -= log_priors_of(None, counts)[occupied]
    return moved


def discounted(estimate: float, deviation: float) -> float:
    """An estimate of a square, the less believed the nearer it is to its standard deviation."""
    estimate = max(float(estimate), 0.0)
    return estimate**2 / (estimate + deviation + np.finfo(np.float64).tiny)


def gaussian_rule(
    prototypes: Array, counts: Array, sigma: Array, *, alpha: float, norm_bound: float
) -> tuple[Array, Array]:
    """Noise-aware linear scores: the Bayes rule of a Gaussian class model, with shrunken means.

    Of released and public numbers alone. Signal lies in ``k = EFFECTIVE_DIMENSION`` dimensions. The
    temperature is the variance within classes plus what the posterior of the means keeps.
    """
    present = counts > 0
    coef, intercept = np.zeros(prototypes.shape), np.full(len(counts), -np.inf)
    n_features = prototypes.shape[1]
    n_present = counts[present].astype(np.float64)
    energy_bound = norm_bound**2
    k = min(EFFECTIVE_DIMENSION, n_features)
    tiny = np.finfo(np.float64).tiny

    # Undo the ridge: means are observed with noise of known scale.
    prior = n_present / n_present.sum()
    undo = 1.0 + alpha * n_present.sum() / (2.0 * n_present)
    means = prototypes[present] * undo[:, None]
    noise = (sigma[present] * undo) ** 2

    # Deviations from the grand mean; the noise of a mean is part of the grand mean's.
    grand = prior @ means
    grand_noise = prior**2 @ noise
    deviations = means - grand
    deviation_noise = noise * (1.0 - 2.0 * prior) + grand_noise
    covariance = prior * noise - grand_noise

    # Squared norms less what noise adds to them; rows of norm B leave no more than the cap. Classes
    # weigh by the inverse variance of their estimates, whose signal is at least B^2 / d.
    cap = (1.0 - WITHIN_CLASS_FLOOR) * energy_bound
    raw = np.vecdot(deviations, deviations) - n_features * deviation_noise
    weights = prior / (noise + energy_bound / n_features) ** 2
    weights /= weights.sum()
    # A squared norm of d normal deviates of variance v has standard deviation sqrt(2 d) v.
    spread = np.sqrt(2.0 * n_features * (weights**2 @ deviation_noise**2))
    between = min(discounted(weights @ raw, spread), cap)
    grand_spread = grand_noise * np.sqrt(2.0 * n_features)
    square = float(grand @ grand) - n_features * grand_noise
    centre = min(discounted(square, grand_spread), cap - between)

    # Signal lies in k of d dimensions: per dimension it is d / k times as strong against the noise.
    shrink = k * between / (k * between + n_features * noise + tiny)
    shrink_grand = k * centre / (k * centre + n_features * grand_noise + tiny)
    temperature = k / n_features * (energy_bound - centre - between) + np.max(shrink * noise)
    # Posterior expectation of the squared norm of each mean, up to a constant.
    cross = deviations @ grand - n_features * covariance
    norms = shrink * (2.0 * shrink_grand * cross + between + shrink**2 * (raw - between))
    coef[present] = shrink[:, None] * deviations / temperature
    intercept[present] = np.log(prior) - norms / (2.0 * temperature)
    return coef, intercept
