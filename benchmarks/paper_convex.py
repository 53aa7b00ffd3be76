"""The paper's convex-head table on IMDb, and three heads with "tight" beside "paper" sensitivity.

python benchmarks/paper_convex.py --data DIR    # DIR/{imdb,trec6,emotion,banking77}.npz
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from sklearn_balldp import BallDPLogisticRegression, BallDPRidgePrototype, BallDPSquaredHingeSVC
from sklearn_balldp.__main__ import load
from sklearn_balldp.policy.radius import same_label_quantile

# Margaryan & Gupta, IMDb: accuracy at epsilon 8, 16, 32.
PAPER = {
    ("ridge", "q50"): (0.728, 0.743, 0.748),
    ("ridge", "r=2"): (0.702, 0.731, 0.743),
    ("logistic", "q50"): (0.720, 0.747, 0.757),
    ("logistic", "r=2"): (0.679, 0.725, 0.748),
    ("svc", "q50"): (0.721, 0.759, 0.776),
    ("svc", "r=2"): (0.673, 0.729, 0.761),
}


def accuracy(head, data, releases, rng):
    head.set_params(random_state=rng)
    scores = [
        head.fit(data.X_train, data.y_train).score(data.X_test, data.y_test)
        for _ in range(releases)
    ]
    return np.mean(scores)


def imdb(data, alphas, releases, rng):
    radius = same_label_quantile(data.X_train, data.y_train, 0.5)
    rows = []
    for (name, policy), paper in PAPER.items():
        for epsilon, reference in zip((8.0, 16.0, 32.0), paper, strict=True):
            row = {"head": name, "policy": policy, "epsilon": epsilon, "paper's table": reference}
            common = (epsilon, 1e-6, radius if policy == "q50" else None)
            for alpha in alphas if name != "ridge" else [0.01]:
                for kind in ("paper", "tight"):
                    if name == "ridge":
                        counts = {"paper": "worst", "tight": "per_class"}[kind]
                        head = BallDPRidgePrototype(*common, alpha=alpha, counts=counts)
                    elif name == "logistic":
                        head = BallDPLogisticRegression(*common, alpha=alpha, sensitivity=kind)
                    else:
                        head = BallDPSquaredHingeSVC(
                            *common, alpha=alpha, sensitivity=kind, fit_intercept=True
                        )
                    row[f"{kind} {alpha:g}"] = accuracy(head, data, releases, rng)
            rows.append(row)
    print(f"\nIMDb, radius {radius:.3f}, {releases} releases; columns: sensitivity and alpha")
    print("(ridge: 'paper' is counts='worst', 'tight' is counts='per_class', alpha 0.01)")
    print(pd.DataFrame(rows).to_string(index=False, float_format="{:.3f}".format, na_rep=""))


def best_alpha(name, data, alphas, releases, rng):
    radius = same_label_quantile(data.X_train, data.y_train, 0.5)
    heads = {
        "softmax tight": (BallDPLogisticRegression, {"sensitivity": "tight"}),
        "softmax tight, no intercept": (BallDPLogisticRegression, {"fit_intercept": False}),
        "softmax paper": (BallDPLogisticRegression, {"sensitivity": "paper"}),
        "svc tight": (BallDPSquaredHingeSVC, {"sensitivity": "tight"}),
        "svc paper": (BallDPSquaredHingeSVC, {"sensitivity": "paper"}),
        "ridge per_class": (BallDPRidgePrototype, {"counts": "per_class"}),
        "ridge worst": (BallDPRidgePrototype, {"counts": "worst"}),
    }
    rows = []
    for label, (Head, params) in heads.items():
        row = {"head": label}
        for alpha in alphas:
            head = Head(2.0, 1e-6, radius, alpha=alpha, **params)
            row[f"alpha {alpha:g}"] = accuracy(head, data, releases, rng)
        row["best"] = max(value for key, value in row.items() if key != "head")
        rows.append(row)
    print(f"\n{name}, epsilon 2, q50 radius {radius:.3f}, {releases} releases")
    print(pd.DataFrame(rows).to_string(index=False, float_format="{:.3f}".format))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["trec6", "emotion", "banking77", "imdb"])
    parser.add_argument("--releases", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    for name in options.sets:
        data = load(options.data / f"{name}.npz")
        if name == "imdb":
            imdb(data, [0.003, 0.01, 0.03], options.releases, rng)
        else:
            best_alpha(name, data, [1e-3, 3e-3, 1e-2, 3e-2, 1e-1], options.releases, rng)


if __name__ == "__main__":
    main()
