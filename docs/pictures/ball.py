"""The ball, the candidates and the adversary; and what the noise does to what it sees."""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

from sklearn_balldp.privacy.gaussian import mu_from_budget

rng = np.random.default_rng(4)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), dpi=110, layout="constrained")

known = rng.normal(0, 1.1, (70, 2))
centre, radius = np.array([0.2, 0.1]), 0.9
left.plot(*known.T, "o", color="0.6", markersize=5, label="records the attacker knows")
angles = np.linspace(0, 2 * np.pi, 10, endpoint=False) + 0.2
reach = radius * np.array([0.93, 0.6, 0.85, 0.5, 0.9, 0.7, 0.92, 0.55, 0.8, 0.65])
candidates = centre + reach[:, None] * np.c_[np.cos(angles), np.sin(angles)]
left.add_patch(plt.Circle(centre, radius, color="C0", alpha=0.15))
left.add_patch(plt.Circle(centre, radius, fill=False, color="C0"))
left.plot(*candidates.T, "^", color="C3", markersize=7, label="ten candidates for the last one")
left.plot(*centre, "*", color="C0", markersize=14, label="the hidden record, and its ball")
edge = centre + radius * np.array([np.cos(-0.6), np.sin(-0.6)])
left.annotate("", edge, centre, arrowprops={"arrowstyle": "->", "color": "C0"})
left.annotate("$r$", edge, xytext=(4, -4), textcoords="offset points", color="C0")
left.set_aspect("equal")
left.set_xlim(-3, 3)
left.set_ylim(-2.4, 2.4)
left.set_xticks([])
left.set_yticks([])
left.set_title("embedding space")
left.legend(loc="lower left", fontsize=8)

epsilon = 4.0
mu = mu_from_budget(epsilon, 1e-6)
x = np.linspace(-3.5, 3.5 + mu, 400)
for place, colour, text in ((0.0, "C0", "the hidden record"), (mu, "C3", "a candidate")):
    right.plot(x, norm.pdf(x, place), color=colour)
    right.fill_between(x, norm.pdf(x, place), alpha=0.15, color=colour)
    right.axvline(place, ymax=0.93, color=colour, linewidth=0.8)
    side = "right" if place == 0.0 else "left"
    right.annotate(
        text,
        (place, 0.405),
        ha=side,
        xytext=(-4 if side == "right" else 4, 0),
        textcoords="offset points",
        color=colour,
        fontsize=9,
    )
right.annotate("", (0.0, 0.06), (mu, 0.06), arrowprops={"arrowstyle": "<->"})
right.annotate(rf"$\mu = {mu:.2f}$", (mu / 2, 0.075), ha="center")
right.set_ylim(0, 0.45)
right.set_yticks([])
right.set_xlabel("released parameters along one direction, in units of the noise")
right.set_title(rf"what is released with each of two records ($\varepsilon={epsilon:g}$)")
