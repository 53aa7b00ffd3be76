r"""Identification: which of some candidates is the missing record?

The adversary knows every record but one (the known records), every public number and the law of
the noise. Everything here is a function of arrays: no estimator, no randomness.

With public labels all candidates have one label, because the class counts reveal it.

References
----------
Margaryan & Gupta, "Ball Differential Privacy: How to Mitigate Data Reconstruction with Less
Noise" (MAP attack).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from .certificates import check_prior

Array = NDArray[np.float64]
_TRIALS_VALUES = 2**22


def log_posterior(
    released: ArrayLike, models: ArrayLike, sigma: ArrayLike, prior: ArrayLike | None = None
) -> Array:
    r"""Log-posterior of each candidate, given a release.

    :math:`\log \pi_i - \frac12 \|(\tilde\theta - \theta_i) / \sigma\|^2`, normalised. A candidate
    whose model differs in a parameter without noise has posterior 0.
    """
    table = np.asarray(models, dtype=np.float64)
    seen = np.asarray(released, dtype=np.float64)
    shape = table.shape[1:]
    if seen.shape[seen.ndim - len(shape) :] != shape:
        raise ValueError(f"released of shape {seen.shape} does not end in a model's {shape}.")
    leading = seen.shape[: seen.ndim - len(shape)]
    scale = np.broadcast_to(np.asarray(sigma, dtype=np.float64), shape).ravel()
    if not (scale >= 0.0).all():
        raise ValueError("sigma must be non-negative.")
    weights = check_prior(prior, len(table))
    flat, rows = table.reshape(len(table), -1), seen.reshape(-1, scale.size)
    noisy = scale > 0.0
    with np.errstate(divide="ignore"):
        log_prior = np.log(weights)

    # Subtract the mean model first: the squares of a large common part would cancel.
    centre = flat.mean(axis=0)
    points = (flat - centre)[:, noisy] / scale[noisy]
    half = 0.5 * np.vecdot(points, points)
    scores = np.empty((len(rows), len(flat)))
    size = max(1, _TRIALS_VALUES // max(scale.size, len(flat)))
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        shifted = (part - centre)[:, noisy] / scale[noisy]
        scores[start : start + size] = shifted @ points.T - half + log_prior
        if not noisy.all():
            agrees = (part[:, None, ~noisy] == flat[None][:, :, ~noisy]).all(axis=2)
            scores[start : start + size][~agrees] = -np.inf
    total = logsumexp(scores, axis=1, keepdims=True)
    if np.isneginf(total).any():
        raise ValueError("no candidate explains the parameters that are released without noise.")
    return (scores - total).reshape(*leading, len(flat))


def decode(log_posteriors: ArrayLike, hits: ArrayLike | None = None) -> NDArray[np.intp]:
    """Best answer for each release: the one that hits the most posterior mass.

    ``hits`` says which candidates each answer hits, of shape (n_answers, n_candidates); by default
    an answer names one candidate.
    """
    logs = np.asarray(log_posteriors, dtype=np.float64)
    if hits is None:
        return np.argmax(logs, axis=-1)
    return np.argmax(np.exp(logs) @ np.asarray(hits, dtype=np.float64).T, axis=-1)
