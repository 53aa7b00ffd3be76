"""
Labels protected, or not
========================

A ball hides which record of a class was used; labels and class counts are public. With
``protect_labels=True`` a change of the label is hidden too, at any distance. Class counts are then
private, and are released with noise beside the class sums. That costs a few points of accuracy at a
large epsilon and many at a small one.
"""

# %%
# The classes are declared: with protected labels they may not be read off the records.
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
heads = {
    "prototypes": BallDPRidgePrototype(radius=0.6),
    "logistic, noise on gradients": BallDPLogisticRegression(radius=0.6),
}
promises = {
    "labels public": {"protect_labels": False, "classes": None},
    "labels protected": {"protect_labels": True, "classes": range(10)},
}
epsilons = [0.5, 1.0, 2.0, 4.0, 8.0]
scores = {}
for head_name, head in heads.items():
    for promise, options in promises.items():
        scores[head_name, promise] = [
            np.mean(
                [
                    head.set_params(epsilon=epsilon, **options)
                    .fit(X_train, y_train)
                    .score(X_test, y_test)
                    for _ in range(3)
                ]
            )
            for epsilon in epsilons
        ]

# %%
figure, ax = plt.subplots(figsize=(7, 4.3), layout="constrained")
for (head_name, promise), values in scores.items():
    ax.plot(
        epsilons,
        values,
        "o-" if promise == "labels public" else "D--",
        color="C0" if head_name == "prototypes" else "C3",
        label=f"{head_name}, {promise}",
    )
ax.set_xscale("log", base=2)
ax.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
ax.set_ylim(0, 1)
ax.set_xlabel(r"$\varepsilon$, ball of radius 0.6")
ax.set_ylabel("test accuracy")
ax.legend()
plt.show()
