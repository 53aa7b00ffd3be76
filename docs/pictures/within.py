"""Which candidates a certificate covers: those within the radius of one possible record."""

import matplotlib.pyplot as plt
import numpy as np

figure, axes = plt.subplots(1, 2, figsize=(7.4, 3.8), dpi=110, layout="constrained")
angles = np.array([0.0, 1.1, 2.2, np.pi, 4.0, 5.3])
covered = (
    np.array([0.95, 0.6, 0.8, 0.95, 0.75, 0.9])[:, None] * np.c_[np.cos(angles), np.sin(angles)]
)
spread = np.array([[-1.3, -0.5], [1.25, -0.35], [0.1, 1.15], [-0.5, 0.2]])
titles = "covered: one ball holds them all", "not covered: no ball holds them all"
for ax, candidates, colour, title in zip(
    axes, (covered, spread), ("C0", "0.6"), titles, strict=True
):
    ax.add_patch(plt.Circle((0, 0), 1, facecolor=colour, alpha=0.12))
    ax.add_patch(plt.Circle((0, 0), 1, fill=False, edgecolor=colour, linewidth=1.5))
    ax.plot(0, 0, "*", color=colour, markersize=13)
    ax.annotate(
        "a possible record", (0, 0), (0, -10), textcoords="offset points", ha="center", va="top"
    )
    ax.plot(*candidates.T, "^", color="C3", markersize=8)
    ax.annotate(
        "", (np.cos(0.75), np.sin(0.75)), (0, 0), arrowprops={"arrowstyle": "->", "color": colour}
    )
    ax.annotate("radius", (0.42, 0.22), color="0.25")
    ax.text(0, 1.32, title, ha="center", fontsize=11)
    ax.set(xlim=(-1.55, 1.55), ylim=(-1.6, 1.5), aspect="equal")
    ax.axis("off")
left, right = axes
left.annotate("", (-0.95, -1.22), (0.95, -1.22), arrowprops={"arrowstyle": "<->", "color": "C3"})
left.annotate(
    "two candidates, almost twice the radius apart",
    (0, -1.42),
    ha="center",
    va="center",
    color="C3",
)
right.annotate(
    "candidates (red) too far apart: the certificate\nsays nothing of them",
    (0, -1.36),
    ha="center",
    va="center",
    color="C3",
)
