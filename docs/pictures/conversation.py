"""A release as a conversation: who asks, who answers with noise, and what leaves."""

import matplotlib.pyplot as plt

figure, ax = plt.subplots(figsize=(7.4, 3.7), dpi=110, layout="constrained")
ASKS = "decides what to ask next,\nsees no record"
ANSWERS = "1  refuses what breaks\n    the promise\n2  counts it\n3  computes it, adds noise"
LEAVES = "noisy answers, the rule,\nthe record of promises"
#: Left edge, bottom, width, height, colour, title and text of each.
BOXES = (
    (0.0, 2.0, 2.5, 2.0, "C0", "public algorithm", ASKS),
    (4.3, 2.0, 2.6, 2.0, "C1", "kernel", ANSWERS),
    (8.0, 2.0, 1.9, 2.0, "C3", "records", "private: rows\nand labels"),
    (0.0, 0.0, 2.5, 1.2, "C2", "what is published", LEAVES),
)
for left, bottom, width, height, colour, title, text in BOXES:
    box = (left, bottom), width, height
    ax.add_patch(plt.Rectangle(*box, facecolor=colour, alpha=0.12))
    ax.add_patch(plt.Rectangle(*box, fill=False, edgecolor=colour, linewidth=1.5))
    ax.text(left + width / 2, bottom + height - 0.1, title, ha="center", va="top", weight="bold")
    middle = bottom + (height - 0.35) / 2
    ax.text(left + 0.12, middle, text, ha="left", va="center", fontsize=9, linespacing=1.4)


def arrow(start, end, text, at, colour="0.3"):
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.3})
    ax.text(*at, text, ha="center", va="center", fontsize=9, color=colour)


arrow((2.55, 3.4), (4.25, 3.4), "a query", (3.3, 3.6))
arrow((4.25, 2.6), (2.55, 2.6), "a noisy answer", (3.3, 2.4))
arrow((7.95, 3.0), (6.95, 3.0), "rows", (7.45, 3.2), "C3")
arrow((1.25, 1.95), (1.25, 1.25), "", (1.25, 1.6))
ax.text(1.4, 1.6, "after the last answer", va="center", fontsize=9, color="0.3")
# What is on the right of this line never leaves.
ax.plot([4.13, 4.13], [-0.05, 4.2], linestyle="--", color="0.5", linewidth=1)
ax.text(4.25, 0.6, "private: stays with the owner", va="center", fontsize=9, color="0.35")
ax.text(4.01, 0.6, "public", va="center", ha="right", fontsize=9, color="0.35")
ax.set(xlim=(-0.1, 10.0), ylim=(-0.15, 4.25))
ax.axis("off")
