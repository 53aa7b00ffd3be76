"""What sums of public examples must be like, whatever the examples were."""

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from ..mechanisms import Examples

#: Share of a size that rounding may take or add.
_ROUNDING = 1e-9


def fault_of(e: Examples, stated: int) -> str | None:
    """What no public examples have; None where nothing is wrong with these sums.

    Their model was fitted to the examples themselves, which no folder holds: any other would do.
    """
    lengths = np.vecdot(e.means, e.means)
    whole = ((e.counts >= 0.0) & (e.counts % 1.0 == 0.0)).all()
    if not whole or e.counts.sum() != stated:
        return "sums of other public examples than the record states"
    if (lengths > 1.0 + _ROUNDING).any():
        return "means of public examples outside of the domain of rows"
    if any(array[e.counts == 0.0].any() for array in (e.means, e.coef, e.intercept, e.spread)):
        return "sums of a class without public examples"
    for weights in (e.coef, e.intercept):
        if (np.abs(weights.sum(axis=0)) > _ROUNDING * np.abs(weights).sum(axis=0)).any():
            return "a model of public examples whose scores do not add up to zero"
    if e.told.min() < 0.0 or e.told[1] > 1.0 - 1.0 / len(e.counts) + _ROUNDING:
        return "public examples that tell a variance or curvature that no scores have"
    if e.freedom == 0:
        # One record of a class is its mean, and nothing tells how far others are from it.
        alone = not any(array.any() for array in (e.within, e.cross, e.spread))
        same = np.allclose(e.told, Examples.of_vectors(e.coef).told, _ROUNDING, 0.0)
        return None if alone and same else "a spread of single public examples"
    room, trace = e.total - float(e.counts @ lengths), float(np.trace(e.within))
    if trace * e.freedom > room + _ROUNDING * e.total:
        return "public examples that spread further than the domain of rows"
    try:
        # Covariances of features and score together have no negative variance in any direction.
        slack = np.eye(len(e.within)) * (_ROUNDING * trace)
        root = cholesky(e.within + slack, lower=True) if trace else e.within
        told = solve_triangular(root, e.cross.T, lower=True) if trace else e.cross.T
        sound = (np.vecdot(told.T, told.T) <= e.spread * (1.0 + 1e-6)).all()
    except LinAlgError:
        sound = False
    if not (sound and np.allclose(e.within, e.within.T, _ROUNDING, _ROUNDING * trace)):
        return "covariances of public examples that no rows have"
    return None
