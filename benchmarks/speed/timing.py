"""What every measurement of speed shares: data, clocks and the row of the table."""

import contextlib
import time
import tracemalloc
from typing import NamedTuple

import numpy as np

from sklearn_balldp.privacy import Noise


class Row(NamedTuple):
    """One figure: a job, what it is held against, and the ratio of their seconds."""

    topic: str
    job: str
    seconds: float
    against: str
    their_seconds: float
    ratio: float
    least: float
    most: float
    asked: float


class Memory(NamedTuple):
    """Peak memory of a job over the bytes of its rows."""

    topic: str
    job: str
    share: float
    asked: float


#: Seconds between two measurements: threads of a BLAS spin for a while after a product, and would
#: take a core from what is measured next.
PAUSE = 0.1


def interleaved(functions, repeats=5, clock=time.perf_counter):
    """Seconds of each function, measured in turn so that drift hits all alike.

    With ``clock=time.process_time`` they are those of all cores together.
    """
    times = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            time.sleep(PAUSE)
            start = clock()
            function()
            times[name].append(clock() - start)
    return {name: np.array(values) for name, values in times.items()}


@contextlib.contextmanager
def without_noise():
    """A sampler that adds nothing, for as long as it takes to time the rest of a fit."""
    call, Noise.__call__ = Noise.__call__, lambda self, values, sigma: np.array(values)
    try:
        yield
    finally:
        Noise.__call__ = call


def row(topic, job, ours, against, theirs, asked=np.nan):
    """The row of two series of seconds: medians, and the range of the ratio over rounds."""
    ratios = ours / theirs
    seconds = float(np.median(ours)), float(np.median(theirs))
    return Row(
        topic,
        job,
        seconds[0],
        against,
        seconds[1],
        seconds[0] / seconds[1],
        float(ratios.min()),
        float(ratios.max()),
        asked,
    )


def peak(function):
    """Peak bytes that a call allocates."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def unit_rows(n, d):
    """Rows without structure, of unit norm, float32."""
    X = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def embeddings(n, d, n_classes):
    """Unit rows with a decaying spectrum and noisy class structure, float32."""
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=n)
    scale = (1.0 + np.arange(d)) ** -0.5
    X = rng.standard_normal((n, d)) * scale + 0.4 * (rng.standard_normal((n_classes, d)) * scale)[y]
    X += 0.5 * scale
    y = np.where(rng.random(n) < 0.1, rng.integers(n_classes, size=n), y)
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), y
