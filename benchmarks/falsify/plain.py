"""Projections, sums, gradients and minimisers, written from their definitions, in plain NumPy."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from sklearn_balldp.mechanisms import MeanGradient, Minimiser, Query, Sums

from .replay import Records, Violation
from .settings import Setting

Array = NDArray[np.float64]
Codes = NDArray[np.intp]
LOSSES = {"BallDPSquaredHingeSVC": "squared_hinge", "BallDPLogisticRegression": "softmax"}


def placed(setting: Setting, records: Records) -> Array:
    """Rows in the domain."""
    rows = np.asarray(records.X, dtype=np.float64)
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    if setting.parameters.get("domain") == "sphere":
        return rows / size * setting.norm_bound
    return rows * np.minimum(1.0, setting.norm_bound / np.maximum(size, 1e-300))


def weights(records: Records) -> Array:
    """What a record counts: one, or one over the number of its owner's."""
    if records.groups is None:
        return np.ones(len(records.y))
    _, owners, counts = np.unique(records.groups, return_inverse=True, return_counts=True)
    return 1.0 / counts[owners]


def residuals(loss: str, scores: Array, codes: Codes, k: int) -> Array:
    """Derivative of each record's loss by its scores."""
    if loss == "softmax" and k > 2:
        return softmax(scores, axis=1) - np.eye(k)[codes]
    sign = 2.0 * (codes[:, None] == (np.arange(k) if k > 2 else [1])) - 1.0
    if loss == "squared_hinge":
        return -2.0 * sign * np.maximum(1.0 - sign * scores, 0.0)
    return -sign * expit(-sign * scores)


def gradient(
    loss: str, theta: Array, rows: Array, codes: Codes, k: int, clip: float | None = None
) -> Array:
    """Gradients of the records, one matrix for each; residuals are clipped first."""
    found = residuals(loss, rows @ theta.T, codes, k)
    if clip is not None:
        found = (
            found
            * np.minimum(1.0, clip / np.maximum(np.linalg.norm(found, axis=1), 1e-300))[:, None]
        )
    return found[:, :, None] * rows[:, None, :]


def with_constant(rows: Array, constant: float) -> Array:
    """Rows, with a constant column unless it is zero."""
    return np.hstack([rows, np.full((len(rows), 1), constant)]) if constant else rows


def seen_through(seen: Any, rows: Array) -> Array:
    """Rows moved, projected, shortened by a symmetric matrix, and projected again."""

    def onto(rows: Array, norm: float) -> Array:
        size = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows * np.minimum(1.0, norm / np.maximum(size, 1e-300))

    shorter = np.eye(rows.shape[1])
    for direction, factor in zip(seen.directions.T, seen.factors, strict=True):
        shorter -= (1.0 - factor) * np.outer(direction, direction)
    return onto(onto(rows - seen.centre, seen.reach) @ shorter, seen.norm)


def minimiser(
    loss: str,
    rows: Array,
    codes: Codes,
    k: int,
    alpha: float,
    own: Array | None = None,
) -> Array:
    """Of the weighted mean loss and half alpha times the squared norm, by the gradients alone."""
    shape = k if k > 2 else 1, rows.shape[1]
    share = np.full(len(rows), 1.0 / len(rows)) if own is None else own / own.sum()

    def slopes(flat: Array) -> Array:
        """Gradients at several parameters, one a row."""
        return np.stack(
            [
                (np.tensordot(share, gradient(loss, t, rows, codes, k), 1) + alpha * t).ravel()
                for t in flat.reshape(-1, *shape)
            ]
        )

    theta, step = np.zeros(math.prod(shape)), 1e-6
    for _ in range(200):
        here = slopes(theta)[0]
        if np.linalg.norm(here) < 1e-11:
            break
        moves = step * np.eye(len(theta))
        jacobian = (slopes(theta + moves) - slopes(theta - moves)) / (2.0 * step)
        move = np.linalg.solve(0.5 * (jacobian + jacobian.T), here)
        # Newton's step, or less: to where the convex objective stops falling along it. Gradients
        # alone may rise on the way over a kink.
        part, left, right = 1.0, 0.0, 1.0
        for _ in range(50):
            if slopes(theta - part * move)[0] @ move >= 0.0:
                left = part
            else:
                right = part
            if left == 1.0:
                break
            part = 0.5 * (left + right)
        theta = theta - part * move
    return theta.reshape(shape)


def values(setting: Setting, records: Records, query: Query, released: Any) -> Array:
    """What a query asks of the records, laid out as its answer is."""
    rows, own = placed(setting, records), weights(records)
    codes, k = np.searchsorted(released.classes, records.y), len(released.classes)
    if isinstance(query, Sums):
        return _sums(query, rows, own, 0 * codes if query.pooled else codes, k)
    loss = LOSSES[setting.head]
    if isinstance(query, Minimiser):
        rows = with_constant(rows, 1.0 if setting.parameters["fit_intercept"] else 0.0)
        return minimiser(loss, rows, codes, k, setting.parameters["alpha"], own)
    if not isinstance(query, MeanGradient):
        raise TypeError(f"no plain formula is known for {type(query).__name__}.")
    if query.whitening is not None:
        rows = seen_through(query.whitening, rows)
    rows = with_constant(rows, query.constant)
    found = gradient(loss, query.theta, rows, codes, k, query.clip)
    mean: Array = np.tensordot(own, found, axes=1) / own.sum()
    return mean


def _sums(query: Sums, rows: Array, own: Array, codes: Codes, k: int) -> Array:
    """Class sums, then the moment by its cyclic diagonals, then counts times the constant."""
    d, classes = rows.shape[1], range(1 if query.pooled else k)
    parts = [(own * (codes == c)) @ rows for c in classes]
    if query.moment is not None:
        moment = (rows * own[:, None]).T @ rows
        places = [(i, (i + away) % d) for away in range(d // 2 + 1) for i in range(d)]
        pairs = places[: d * (d + 1) // 2]
        # Off the diagonal, an entry stands for two.
        parts.append(np.array([moment[i, j] * (1.0 if i == j else 2.0**0.5) for i, j in pairs]))
    if query.constant > 0.0:
        parts.append(np.array([query.constant * own[codes == c].sum() for c in classes]))
    return np.concatenate(parts)


def check(setting: Setting, records: Records, query: Query, released: Any, hidden: Array) -> None:
    """Whether a fit hid what the query's definition says; a Violation if it was something else."""
    expected = values(setting, records, query, released)
    if hidden.shape != expected.shape:
        raise Violation(f"The values of {type(query).__name__} are not of their shape.")
    b, total = setting.norm_bound, max(float(weights(records).sum()), 1.0)
    slack = (1e-4 if setting.dtype == "float32" else 1e-9) * max(b, b**2)
    if isinstance(query, MeanGradient):
        # The scores err with the parameters, and the residuals with the scores.
        reach = math.hypot(b, query.constant)
        slack = slack / max(b, b**2) * reach * (1.0 + reach * float(np.linalg.norm(query.theta)))
        slack *= 2.0
    elif isinstance(query, Minimiser):
        slack = 2.0 * query.tol / setting.parameters["alpha"] + 1e-9 / b
    else:
        slack *= total * max(1.0, query.constant / b)
    if np.abs(hidden - expected).max() > slack:
        what = type(query).__name__
        raise Violation(f"The values of {what} that were hidden are not those of the records.")
