"""
Account for a model search
==========================

Every fit of a search reads the private rows. An accountant counts them all, refuses the fit that
would go over its limit, and tells the cost of what was done at any radius.
"""

# %%
# A search with three candidates and four folds is 12 fits, and a refit.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.preprocessing import normalize

from sklearn_balldp import BallDPRidgePrototype, PrivacyAccountant
from sklearn_balldp.accounting import BudgetExceededError
from sklearn_balldp.privacy.gaussian import epsilon_from_mu

X, y = load_digits(return_X_y=True)
X = normalize(X)
accountant = PrivacyAccountant(radius=0.6)
head = BallDPRidgePrototype(epsilon=1.0, radius=0.6, accountant=accountant)
folds = KFold(4, shuffle=True, random_state=0)
search = GridSearchCV(head, {"alpha": [0.01, 0.1, 1.0]}, cv=folds).fit(X, y)
whole = accountant.total()
print(f"{whole.n_releases} fits: epsilon {whole.epsilon:.2f}, {whole.kind}")

# %%
# With a limit, the fit that would exceed it is refused before it sees a row. The ledger is a file,
# so that the budget outlives this process: whoever opens it goes on with what is left.
path = Path(tempfile.mkdtemp()) / "budget.ledger"
limited = PrivacyAccountant(path, radius=0.6, limit=2.5)
limited.attach(head)
try:
    for _ in range(100):
        head.fit(X, y)
except BudgetExceededError as error:
    print(f"{type(error).__name__}: {error}")
again = PrivacyAccountant(path)
print(again)
print(f"each of two more fits may have epsilon {again.remaining(n_fits=2):.2f}")

# %%
# Gaussian releases add up exactly. Together, k equal fits have a mu that is only the square root of
# k times as large. Their epsilon is far less than k times epsilon.
mu = search.best_estimator_.release_.mu
numbers = np.arange(1, 17)
figure, ax = plt.subplots(figsize=(7, 4.3), layout="constrained")
ax.plot(numbers, numbers * 1.0, "--", color="0.5", label="adding up epsilons")
ax.plot(
    numbers,
    [epsilon_from_mu(np.sqrt(k) * mu, 1e-6) for k in numbers],
    "o-",
    label="exact composition",
)
notes = ((again.total(), "up to the limit", "left"), (whole, "the search", "right"))
for total, text, side in notes:
    ax.annotate(
        text,
        ((total.mu / mu) ** 2, total.epsilon),
        xytext=(0, -38),
        ha=side,
        textcoords="offset points",
        arrowprops={"arrowstyle": "->"},
    )
ax.set_xlabel(r"fits at $\varepsilon = 1$")
ax.set_ylabel(r"$\varepsilon$ of all together, $\delta = 10^{-6}$")
ax.set_ylim(0)
ax.legend()
plt.show()
