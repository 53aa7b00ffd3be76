"""Searches that try to exceed a bound."""

import numpy as np


def into_ball(vectors, size):
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors * np.minimum(1.0, size / np.maximum(norms, 1e-300))


def climbed(value, starts, rng, rounds=60, survivors=12, children=16):
    """The largest value that the best of the starts reach, by random steps of all sizes.

    ``value`` takes rows of free numbers, and from which of the starts each of them came.
    """
    order = np.argsort(value(starts, np.arange(len(starts))))[-survivors:]
    best, which = starts[order], np.repeat(order, children + 1)
    for k in range(rounds):
        shape = survivors, children, 1
        sizes = 10.0 ** rng.uniform(-0.5 - 5.0 * k / rounds, 0.3 - 4.0 * k / rounds, shape)
        steps = sizes * rng.standard_normal((survivors, children, best.shape[1]))
        steps *= rng.random(steps.shape) < rng.choice([0.3, 1.0], shape)
        moved = np.concatenate([best[:, None], best[:, None] + steps], axis=1)
        values = value(moved.reshape(-1, best.shape[1]), which).reshape(survivors, -1)
        best = moved[np.arange(survivors), values.argmax(axis=1)]
    return float(values.max())
