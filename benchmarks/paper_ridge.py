"""The paper's Table 1 (ridge prototypes), beside this package's calibrations.

python benchmarks/paper_ridge.py --data DIR    # DIR/{trec6,emotion,banking77}.npz
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.__main__ import load
from sklearn_balldp.policy.radius import same_label_quantile

# Margaryan & Gupta, Table 1: q50, q80, q95 and "standard DP" (full radius).
PAPER = {
    "trec6": (0.2496, 0.2460, 0.2412, 0.2036),
    "emotion": (0.3010, 0.2932, 0.2887, 0.2458),
    "banking77": (0.6358, 0.5697, 0.5218, 0.2711),
}
VARIANTS = {
    "worst": {"counts": "worst"},
    "min": {"counts": "min"},
    "per_class": {"counts": "per_class"},
    "gaussian": {"counts": "per_class", "decision": "gaussian"},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[2.0])
    parser.add_argument("--releases", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    rows = []
    for name, paper in PAPER.items():
        data = load(options.data / f"{name}.npz")
        radii = {
            f"q{round(100 * q)}": same_label_quantile(data.X_train, data.y_train, q)
            for q in (0.5, 0.8, 0.95)
        }
        for epsilon in options.epsilon:
            for (policy, radius), value in zip([*radii.items(), ("r=2", None)], paper, strict=True):
                row = {"data": name, "epsilon": epsilon, "policy": policy, "radius": radius or 2.0}
                row["paper"] = value if epsilon == 2.0 else np.nan
                for variant, params in VARIANTS.items():
                    head = BallDPRidgePrototype(epsilon, 1e-6, radius, random_state=rng, **params)
                    scores = [
                        head.fit(data.X_train, data.y_train).score(data.X_test, data.y_test)
                        for _ in range(options.releases)
                    ]
                    row[variant] = np.mean(scores)
                    if variant == "worst":
                        row["+-"] = np.std(scores, ddof=1) / np.sqrt(options.releases)
                row["worst - paper"] = row["worst"] - row["paper"]
                rows.append(row)
    table = pd.DataFrame(rows)
    print(f"test accuracy, mean of {options.releases} releases (+- standard error of 'worst')")
    print(table.to_string(index=False, float_format="{:.4f}".format))


if __name__ == "__main__":
    main()
