"""What an attacker rebuilds of one digit: from a head without noise, and from a Ball-DP release."""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.audit.inversion import invert_noisy_ridge, invert_ridge

X, y = load_digits(return_X_y=True)
X = normalize(X)
hidden, known, labels = X[0], X[1:], y[1:]
sums = np.array([known[labels == label].sum(axis=0) for label in range(10)])
counts = np.bincount(labels)

plain = BallDPRidgePrototype(epsilon=1e10).fit(X, y)
found = invert_ridge(plain.prototypes_, sums, counts, alpha=0.01, norm_bound=1.01, tol=1e-3)
head = BallDPRidgePrototype(epsilon=2.0, radius=0.6).fit(X, y)
sigma = head.release_.sigma
estimate, *_ = invert_noisy_ridge(head.prototypes_, sums, counts, sigma, alpha=0.01)

figure, axes = plt.subplots(1, 3, figsize=(7.5, 2.7), layout="constrained")
pictures = {
    "a private record": hidden,
    "rebuilt from a model\nwithout noise": found.rows[0],
    "rebuilt from a Ball-DP model\n(epsilon 2, radius 0.6)": estimate,
}
for ax, (title, row) in zip(axes, pictures.items(), strict=True):
    ax.imshow(row.reshape(8, 8), cmap="gray_r")
    ax.set_title(title, fontsize=10)
    ax.set_xticks([])
    ax.set_yticks([])

if __name__ == "__main__":
    figure.savefig("docs/pictures/rebuilt.png", dpi=110, metadata={"Software": None})
    assert np.abs(found.rows[0] - hidden).max() < 0.01
