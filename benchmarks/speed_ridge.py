"""Ridge prototype fit: time against one pass over X and NearestCentroid, memory, sampler share.

python benchmarks/speed_ridge.py
"""

import time
import tracemalloc

import numpy as np
from sklearn.neighbors import NearestCentroid

import sklearn_balldp.heads.base as base
from sklearn_balldp import BallDPRidgePrototype


def interleaved(functions, repeats=9):
    """Median seconds of each function, measured in turn so that drift hits all alike."""
    times = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: np.median(values) for name, values in times.items()}


def without_noise(function, *arguments):
    """Call ``function`` with a sampler that adds nothing."""
    sampler, base.add_gaussian_noise = base.add_gaussian_noise, lambda values, *_: values
    try:
        function(*arguments)
    finally:
        base.add_gaussian_noise = sampler


def unit_rows(rng, n, d):
    X = rng.standard_normal((n, d), dtype=np.float32)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def main():
    rng = np.random.default_rng(0)
    X, y = unit_rows(rng, 120_000, 384), rng.integers(4, size=120_000)
    head = BallDPRidgePrototype(radius=0.5)
    seconds = interleaved(
        {
            "one pass: X.sum(axis=0)": lambda: X.sum(axis=0),
            "fit apart from noise": lambda: without_noise(head.fit, X, y),
            "BallDPRidgePrototype.fit": lambda: head.fit(X, y),
            "NearestCentroid.fit": lambda: NearestCentroid().fit(X, y),
        }
    )
    for name, value in seconds.items():
        print(f"{name:<28} {1e3 * value:8.1f} ms")
    fit = seconds["fit apart from noise"]
    print(f"fit apart from noise / one pass   {fit / seconds['one pass: X.sum(axis=0)']:.2f}")
    print(f"NearestCentroid / fit apart from noise  {seconds['NearestCentroid.fit'] / fit:.2f}")
    whole = seconds["BallDPRidgePrototype.fit"]
    print(f"NearestCentroid / fit with noise        {seconds['NearestCentroid.fit'] / whole:.2f}")
    tracemalloc.start()
    head.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"peak memory over X                {100 * peak / X.nbytes:.1f} %")

    for n, d, n_classes in [(10_000, 384, 77), (50_000, 2048, 1000)]:
        X, y = unit_rows(rng, n, d), rng.permutation(np.arange(n) % n_classes)
        start = time.perf_counter()
        head.fit(X, y)
        whole = time.perf_counter() - start
        start = time.perf_counter()
        without_noise(head.fit, X, y)
        rest = time.perf_counter() - start
        print(f"{n_classes} x {d} parameters, {n} rows: fit {whole:.2f} s, "
              f"exact sampler {100 * (1 - rest / whole):.0f} %")  # fmt: skip


if __name__ == "__main__":
    main()
