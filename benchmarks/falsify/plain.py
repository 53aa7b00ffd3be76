"""Projections, sums, gradients and minimisers, written from their definitions, in plain NumPy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from .replay import Records, Replay, Violation
from .settings import Setting

Array = NDArray[np.float64]


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


def residuals(loss: str, scores: Array, codes: NDArray[np.intp], k: int) -> Array:
    """Derivative of each record's loss by its scores."""
    if loss == "softmax" and k > 2:
        return softmax(scores, axis=1) - np.eye(k)[codes]
    sign = 2.0 * (codes[:, None] == (np.arange(k) if k > 2 else [1])) - 1.0
    if loss == "squared_hinge":
        return -2.0 * sign * np.maximum(1.0 - sign * scores, 0.0)
    return -sign * expit(-sign * scores)


def gradient(
    loss: str, theta: Array, rows: Array, codes: NDArray[np.intp], k: int, clip: float | None = None
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


def check(setting: Setting, records: Records, head: Any, replay: Replay) -> None:
    """Whether a fit hid what its definition says; a Violation if it hid something else."""
    rows, own = placed(setting, records), weights(records)
    classes = head.classes_
    codes = np.searchsorted(classes, records.y)
    k, total, hidden = len(classes), own.sum(), replay.hidden[0]
    single = np.dtype(setting.dtype) == np.float32
    slack = setting.norm_bound * (1e-4 if single else 1e-9) * max(total, 1.0)
    sums = np.stack([(own * (codes == c)) @ rows for c in range(k)])
    loss = {"BallDPSquaredHingeSVC": "squared_hinge"}.get(setting.head, "softmax")
    if setting.mechanism == "ridge prototypes":
        shrink = 2.0 * np.array([own[codes == c].sum() for c in range(k)])
        ridge = setting.parameters["alpha"] * total
        _same(hidden, 2.0 * sums / (shrink + ridge)[:, None], slack, "prototypes")
    elif setting.mechanism == "discriminant":
        moment = (rows * own[:, None]).T @ rows
        for name, value in (("class sums", sums), ("second moment", moment / setting.norm_bound)):
            scaled = hidden.ravel() / (1.0 if name == "class sums" else setting.norm_bound)
            apart = np.abs(scaled[:, None] - value.ravel()).min(axis=0)
            # The entries off the diagonal may be scaled by the root of two.
            other = np.abs(scaled[:, None] - np.sqrt(2.0) * value.ravel()).min(axis=0)
            if np.minimum(apart, other).max() > slack:
                raise Violation(f"The {name} that were released are not those of the records.")
    elif setting.mechanism == "descent from zero" and "class_weight" not in setting.parameters:
        constant = 0.15 * setting.norm_bound if setting.parameters["fit_intercept"] else 0.0
        rows = with_constant(rows, constant)
        theta = np.zeros((1 if k == 2 else k, rows.shape[1]))
        found = gradient(loss, theta, rows, codes, k, head.release_.bound.descent.clip)
        mean = np.tensordot(own, found, axes=1) / total
        _same(hidden, mean, slack * 2.0, "gradients of the first step")
    elif setting.mechanism.startswith("minimiser") and "class_weight" not in setting.parameters:
        rows = with_constant(rows, 1.0 if setting.parameters["fit_intercept"] else 0.0)
        theta = hidden.reshape(-1, rows.shape[1])
        found = np.tensordot(own, gradient(loss, theta, rows, codes, k), axes=1) / total
        left = np.linalg.norm(found + setting.parameters["alpha"] * theta)
        if left > head.release_.tol:
            raise Violation(f"What was released is no minimiser: a gradient of {left:.3g} is left.")


def _same(hidden: Array, plain: Array, slack: float, what: str) -> None:
    if np.abs(hidden.reshape(plain.shape) - plain).max() > slack:
        raise Violation(f"The {what} that were released are not those of the records.")
