"""
A table of columns
==================

Columns are declared and never learnt, so a table has rows of norm 1 under any promise. Here are
nuclei of breast cells: standard differential privacy beside a promise for any one cell, and beside
two other libraries.
"""

# %%
# What the columns may hold is declared. The package holds bounds for this public table; bounds of
# private records come from what the world knows.
import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from sklearn_balldp import BallDPLogisticRegression
from sklearn_balldp.datasets import BREAST_CANCER
from sklearn_balldp.encoders import TableEncoder

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
encoder = TableEncoder(BREAST_CANCER)
X, X_test, y, y_test = train_test_split(encoder.transform(X), y, stratify=y, random_state=0)

# %%
# Any two rows are at most the root of 2 apart: that radius, with labels protected, is standard
# differential privacy. A smaller promise, for one cell of a record, takes less noise.
promises = {
    "standard DP": {"radius": 2**0.5, "protect_labels": True, "classes": [0, 1]},
    "any one cell": {"radius": encoder.radius(1)},
}
epsilons = [0.25, 0.5, 1.0, 2.0]
# With the same bounds (DP-EBM hides a record added or removed); means of ten splits, percent, from
# ``benchmarks/results/tables.csv``.
others = {"DP-EBM": [63.7, 72.2, 78.8, 89.4], "diffprivlib": [60.5, 62.1, 60.7, 73.5]}
figure, ax = plt.subplots(figsize=(6, 3))
for name, promise in promises.items():
    accuracies = []
    for epsilon in epsilons:
        heads = [
            BallDPLogisticRegression(epsilon, domain="sphere", random_state=seed, **promise)
            for seed in range(5)
        ]
        accuracies.append(sum(head.fit(X, y).score(X_test, y_test) for head in heads) / len(heads))
    ax.plot(epsilons, accuracies, "o-", label=name)
    print(f"{name}: accuracy {accuracies[0]:.2f} to {accuracies[-1]:.2f}")
for name, percent in others.items():
    ax.plot(epsilons, [value / 100 for value in percent], "s--", label=name)
ax.set_xscale("log", base=2)
ax.set_xlabel("epsilon")
ax.set_ylabel("accuracy on the test")
ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
figure.tight_layout()
