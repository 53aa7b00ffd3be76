"""Time of a noisy descent and of its exact noise.

python benchmarks/speed_gradient.py

Fits are timed in turn with the output mechanism's on the same rows; the sampler against NumPy's
(which is not exact) and against OpenDP's.
"""

import functools
import time

import numpy as np
from speed_convex import embeddings

from sklearn_balldp import BallDPLogisticRegression
from sklearn_balldp.privacy.exact_normal import rounded_normal
from sklearn_balldp.privacy.noise import add_gaussian_noise

SHAPES = [(25_000, 384, 2), (50_000, 512, 10), (10_000, 384, 77), (120_000, 384, 4)]
STEPS = 150


def clock(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main():
    for n, d, n_classes in SHAPES:
        X, y = embeddings(n, d, n_classes)
        output = BallDPLogisticRegression(2.0, radius=1.2)
        gradient = BallDPLogisticRegression(2.0, radius=1.2, mechanism="gradient", n_steps=STEPS)
        n_scores = 1 if n_classes == 2 else n_classes
        n_values = STEPS * n_scores * (d + 1)
        jobs = [
            functools.partial(output.fit, X, y),
            functools.partial(gradient.fit, X, y),
            functools.partial(rounded_normal, n_values),
        ]
        times = [[clock(job) for job in jobs] for _ in range(5)]
        a, b, c = np.median(times, axis=0).tolist()
        print(
            f"n={n} d={d} K={n_classes}: output {a:.2f} s, {STEPS} steps {b:.2f} s "
            f"(of which noise {c:.2f} s), ratio {b / a:.2f}, without noise {(b - c) / a:.2f}",
            flush=True,
        )
    n_values = 1_000_000
    ours = clock(lambda: rounded_normal(n_values))
    numpy = clock(lambda: np.random.default_rng().standard_normal(n_values))
    opendp = clock(lambda: add_gaussian_noise(np.zeros(50_000), 1.0)) * n_values / 50_000
    print(
        f"exact noise: {ours / n_values * 1e9:.0f} ns a value, {ours / numpy:.1f} times NumPy's "
        f"(not exact), {opendp / ours:.0f} times faster than OpenDP's discrete Gaussian"
    )


if __name__ == "__main__":
    main()
