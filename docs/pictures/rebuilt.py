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

assert np.abs(found.rows[0] - hidden).max() < 0.01

# It is read on telephones too, 400 pixels wide.
figure, axes = plt.subplots(1, 3, figsize=(4.0, 1.75), dpi=200, layout="constrained")
pictures = {
    "a private\nrecord": hidden,
    "rebuilt,\nwithout noise": found.rows[0],
    "rebuilt from\nBall-DP": estimate,
}
for ax, (title, row) in zip(axes, pictures.items(), strict=True):
    ax.imshow(row.reshape(8, 8), cmap="gray_r")
    ax.set_title(title, fontsize=9.5)
    ax.set_xticks([])
    ax.set_yticks([])
