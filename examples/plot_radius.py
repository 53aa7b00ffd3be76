"""
How much does the radius buy?
=============================

A ball promises less than standard differential privacy. What is that worth? The linear discriminant
is released as two noisy sums, and their noise falls with the radius. As the radius shrinks,
its accuracy rises from about that of standard differential privacy to that of no noise. The price
is weaker protection further away: the release states epsilon at any distance. Logistic regression
starts from such sums, and uses the rest of its budget to fit what a discriminant cannot.
"""

# %%
# Test accuracy on scikit-learn's digits at epsilon 0.5, four releases per point.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
)

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    normalize(X), y, test_size=0.3, stratify=y, random_state=0
)
radii = [0.02, 0.05, 0.1, 0.2, 0.4, 0.8]
heads = {
    "discriminant": BallDPLinearDiscriminant(epsilon=0.5, domain="sphere"),
    "prototypes": BallDPRidgePrototype(epsilon=0.5),
    "logistic": BallDPLogisticRegression(epsilon=0.5, domain="sphere"),
}


def accuracy(head, **params):
    """Mean test accuracy of four releases."""
    head.set_params(**params)
    return np.mean([head.fit(X_train, y_train).score(X_test, y_test) for _ in range(4)])


curves = {name: [accuracy(head, radius=radius) for radius in radii] for name, head in heads.items()}
standard = accuracy(heads["logistic"], radius=None, protect_labels=True, classes=range(10))

# %%
# What the same releases promise at any distance (labels are public). A tiny ball is nearly
# free where it is asked for, and hides little beyond it.
discriminant = heads["discriminant"]
everywhere = [
    discriminant.set_params(radius=radius).fit(X_train, y_train).release_.epsilon_full_radius
    for radius in radii
]

figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
for name, values in curves.items():
    left.plot(radii, values, "o-", label=name)
left.axhline(standard, color="0.4", linestyle="--", label="standard DP (logistic)")
left.set(xscale="log", xlabel="radius", ylabel="test accuracy, epsilon 0.5")
left.legend()
right.plot(radii, everywhere, "o-", color="tab:red")
right.set(xscale="log", yscale="log", xlabel="radius", ylabel="epsilon at any distance")
for ax in (left, right):
    ax.set_xticks(radii, [f"{radius:g}" for radius in radii])
    ax.minorticks_off()
right.set_yticks([2, 5, 10, 20, 50], ["2", "5", "10", "20", "50"])
plt.show()

# %%
# The sums are public once they are released. Another head of the same release costs nothing:
# here one that expects every class equally often.
uniform = discriminant.with_rule(priors="uniform")
print(f"accuracy {uniform.score(X_test, y_test):.3f}, epsilon still {uniform.release_.epsilon:g}")
