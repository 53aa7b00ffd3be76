"""
Accuracy against radius and epsilon
===================================

A smaller ball takes less noise, and so does a larger epsilon. How much each buys depends on where
the noise goes. On class prototypes it grows in proportion to the radius. Logistic regression spends
its budget on sums where the ball is small, and on the gradients of a descent where it is large: a
record's share of a gradient is capped.
"""

# %%
# Two heads on scikit-learn's digits, two releases per cell.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from sklearn_balldp import BallDPLogisticRegression, BallDPRidgePrototype

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    normalize(X), y, test_size=0.3, stratify=y, random_state=0
)
epsilons, radii = [0.5, 1.0, 2.0, 8.0], [0.1, 0.3, 0.6, 2.0]
heads = {
    "prototypes (noise on parameters)": BallDPRidgePrototype(),
    "logistic (noise on gradients)": BallDPLogisticRegression(),
}


def accuracy(head, epsilon, radius):
    """Mean test accuracy of two releases."""
    head.set_params(epsilon=epsilon, radius=radius)
    return np.mean([head.fit(X_train, y_train).score(X_test, y_test) for _ in range(2)])


tables = {
    name: np.array([[accuracy(head, e, r) for e in epsilons] for r in radii])
    for name, head in heads.items()
}

# %%
figure, axes = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained", sharey=True)
for ax, (name, table) in zip(axes, tables.items(), strict=True):
    image = ax.imshow(table, origin="lower", vmin=0.1, vmax=1.0, cmap="viridis")
    for (row, column), value in np.ndenumerate(table):
        ax.text(
            column, row, f"{value:.2f}", ha="center", va="center", color="k" if value > 0.6 else "w"
        )
    ax.set_xticks(range(len(epsilons)), [f"{epsilon:g}" for epsilon in epsilons])
    ax.set_xlabel(r"$\varepsilon$")
    ax.set_title(name)
axes[0].set_yticks(range(len(radii)), [f"{radius:g}" for radius in radii])
axes[0].set_ylabel("radius of the ball")
figure.colorbar(image, ax=axes, label="test accuracy")
plt.show()
