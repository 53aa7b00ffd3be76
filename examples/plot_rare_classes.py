"""
Rare classes
============

Noise hides what few records say, so a rare class may never be predicted.
``class_weight="balanced"`` brings it back: an error on a rare class counts as much more as the
class is rarer. It moves scores after the release, so that it adds no noise, and can be set after
the fit.
"""

# %%
# Digits, cut to a long tail: half as many ones as zeros, a third as many twos, and so on. The test
# digits stay balanced.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import recall_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from sklearn_balldp import BallDPLogisticRegression

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(normalize(X), y, test_size=0.3, stratify=y, random_state=0)
kept = np.concatenate([np.flatnonzero(y == digit)[: int(120 / (digit + 1))] for digit in range(10)])
X, y = X[kept], y[kept]
counts = np.bincount(y)
print("records of each digit:", *counts)

# %%
# A plan tells beforehand how much of each class stands out from the noise. Below a half a class is
# likely lost, below one it is at risk.
head = BallDPLogisticRegression(epsilon=2.0, radius=0.6)
print(head.plan(len(X), X.shape[1], counts))

# %%
# Recall of each digit, the mean of ten releases.
settings = {"as they are": None, "balanced": "balanced"}
releases = [BallDPLogisticRegression(epsilon=2.0, radius=0.6).fit(X, y) for _ in range(10)]
recalls = {}
for name, weight in settings.items():
    predictions = [head.with_rule(class_weight=weight).predict(X_test) for head in releases]
    recalls[name] = np.mean(
        [recall_score(y_test, own, average=None, zero_division=0) for own in predictions], axis=0
    )
    print(f"{name:<17} balanced accuracy {recalls[name].mean():.2f}")

# %%
figure, ax = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
for place, (name, recall) in enumerate(recalls.items()):
    ax.bar(np.arange(10) + 0.4 * (place - 0.5), recall, width=0.38, label=name, color=f"C{place}")
ax.set_xticks(range(10), [f"{digit}\n({count})" for digit, count in enumerate(counts)])
ax.set_xlabel("digit (records)")
ax.set_ylabel("recall")
ax.set_ylim(0, 1)
ax.set_title(r"$\varepsilon = 2$, ball of radius 0.6", fontsize=10)
figure.legend(loc="outside lower center", ncols=2)
plt.show()
