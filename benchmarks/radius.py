"""Radii of the benchmarks, the private quantile's error, and what choosing a radius costs.

python benchmarks/radius.py --data DIR    # DIR/{trec6,emotion,banking77,imdb}.npz
"""

import argparse
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
from speed_convex import embeddings

from sklearn_balldp.__main__ import load
from sklearn_balldp.policy.radius import private_quantile, same_label_quantile

QUANTILES = (0.5, 0.8, 0.95)


def measured(function):
    start = time.perf_counter()
    function()
    seconds = time.perf_counter() - start
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return f"{seconds:.2f} s, {peak / 1e6:.0f} MB"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epsilon", type=float, default=0.5)
    parser.add_argument("--draws", type=int, default=20)
    options = parser.parse_args()
    rows = []
    for name in ("trec6", "emotion", "banking77", "imdb"):
        data = load(options.data / f"{name}.npz")
        X, y = data.X_train, data.y_train
        for quantile in QUANTILES:
            radius = same_label_quantile(X, y, quantile)
            draws = [
                private_quantile(X, y, quantile, epsilon=options.epsilon, norm_bound=1.0)
                for _ in range(options.draws)
            ]
            errors = np.array(draws) - radius
            rows.append(
                {
                    "data": name,
                    "quantile": quantile,
                    "radius": radius,
                    "pooled": same_label_quantile(X, y, quantile, aggregate="pooled"),
                    "private, mean": np.mean(draws),
                    "mean error": errors.mean(),
                    "root mean square": np.sqrt(np.mean(errors**2)),
                }
            )
        rows.append({"data": name, "quantile": 1.0, "radius": same_label_quantile(X, y, 1.0)})
    print(f"radii, and the private quantile at epsilon={options.epsilon:g} "
          f"({options.draws} draws)")  # fmt: skip
    table = pd.DataFrame(rows)
    print(table.to_string(index=False, float_format="{:.4f}".format, na_rep=""))

    X, y = embeddings(120_000, 384, 4)
    print("\n120000 x 384, 4 classes, float32")
    print("largest class's median:", measured(lambda: same_label_quantile(X, y)))
    print(
        "pooled median:         ", measured(lambda: same_label_quantile(X, y, aggregate="pooled"))
    )
    print("private median:        ", measured(lambda: private_quantile(X, y, epsilon=0.5)))
    print("exact diameter:        ", measured(lambda: same_label_quantile(X, y, 1.0)))


if __name__ == "__main__":
    main()
