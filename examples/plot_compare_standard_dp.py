"""
Ball-DP against standard DP
===========================

The same head at the same epsilon, under three promises: a ball of 0.6, every feature substitution,
and every substitution, labels included (standard DP). A ball is a weaker promise, and costs less
noise. Logistic regression is shown beside them, because it is this package's best head under
standard DP.
"""

# %%
# Accuracy by cross-validation on scikit-learn's digits, beside a noiseless logistic regression.
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, normalize

from sklearn_balldp import (
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    PrivacyUtilityDisplay,
    ReconstructionAuditor,
)
from sklearn_balldp.audit import neg_certificate_scorer

X, y = load_digits(return_X_y=True)
standard = {"protect_labels": True, "classes": range(10)}
heads = {
    "prototypes, ball of 0.6": BallDPRidgePrototype(radius=0.6),
    "prototypes, any distance, labels public": BallDPRidgePrototype(),
    "prototypes, standard DP": BallDPRidgePrototype(**standard),
    "logistic, ball of 0.6": BallDPLogisticRegression(radius=0.6),
    "logistic, standard DP": BallDPLogisticRegression(**standard),
}
epsilons = [0.5, 1.0, 2.0, 8.0]
folds = KFold(3, shuffle=True, random_state=0)
scores = {
    name: [
        cross_val_score(
            make_pipeline(Normalizer(), head.set_params(epsilon=epsilon)), X, y, cv=folds
        ).mean()
        for epsilon in epsilons
    ]
    for name, head in heads.items()
}
exact = cross_val_score(make_pipeline(Normalizer(), LogisticRegression()), X, y, cv=folds).mean()

# %%
# A ball takes less noise, so accuracy falls only at smaller epsilons. How much smaller they are
# depends on the head as well as on the promise.
figure, ax = plt.subplots(layout="constrained")
for name, values in scores.items():
    ax.plot(
        epsilons,
        values,
        "D--" if "standard" in name else "o-",
        label=name,
        color="C0" if "prototypes" in name else "C3",
        alpha=0.5 if "any distance" in name else 1.0,
    )
ax.axhline(exact, color="0.5", linestyle=":", label="noiseless logistic regression")
ax.set_xscale("log", base=2)
ax.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
ax.set_xlabel(r"$\varepsilon$")
ax.set_ylabel("accuracy")
ax.set_ylim(0, 1)
ax.legend(frameon=False, fontsize=9)
plt.show()

# %%
# At equal epsilon the promises differ. What is the same for both is an attacker: here one whose
# candidates lie within 0.6 of one training record. A search audits prototypes of both radii (2 is
# any distance) against this attacker, and shows accuracy over the certificate of success. At equal
# certificates a ball gains little: the wider promise takes a larger epsilon for the same one.
auditor = ReconstructionAuditor(BallDPRidgePrototype(), radius=0.6, n_supports=2, random_state=0)
search = GridSearchCV(
    auditor,
    {"estimator__radius": [0.6, 2.0], "estimator__epsilon": [0.5, 1.0, 2.0, 4.0, 16.0]},
    scoring={"certificate": neg_certificate_scorer, "accuracy": "accuracy"},
    refit=False,
    cv=folds,
).fit(normalize(X), y)
PrivacyUtilityDisplay.from_cv_results(search.cv_results_, group="estimator__radius").plot()
plt.show()
