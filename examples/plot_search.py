"""
Search a head and its radius, and count what it cost
====================================================

``GridSearchCV`` over epsilon, regularisation and the quantile of a nested radius policy, whose
reference rows are public and travel through the same pipeline. An accountant counts every fit.
"""

# %%
# Public reference rows reach the head through the pipeline's own scaling.
import matplotlib.pyplot as plt
import sklearn
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, KFold, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer

from sklearn_balldp import BallDPRidgePrototype, PrivacyAccountant, RadiusPolicy

sklearn.set_config(enable_metadata_routing=True)
X, X_public, y, y_public = train_test_split(
    *load_digits(return_X_y=True), test_size=0.2, random_state=0
)
head = BallDPRidgePrototype(radius=RadiusPolicy(), counts="min")
head.set_fit_request(X_public=True, y_public=True)
pipeline = Pipeline([("unit", Normalizer()), ("head", head)], transform_input=["X_public"])
grid = {
    "head__epsilon": [0.25, 1.0],
    "head__alpha": [0.01, 0.1],
    "head__radius__quantile": [0.5, 0.95],
}
with PrivacyAccountant(radius=0.5) as accountant:
    search = GridSearchCV(pipeline, grid, cv=KFold(4, shuffle=True, random_state=0))
    search.fit(X, y, X_public=X_public, y_public=y_public)
sklearn.set_config(enable_metadata_routing=False)
print("best:", search.best_params_)

# %%
# The whole search costs far more than the model that comes out of it; its folds being disjoint, no
# record takes part in all of it. The choice itself was made on private scores.
release = search.best_estimator_["head"].release_
whole, touching = accountant.total(), accountant.total(search=search)
print(f"{whole.n_releases} fits; selection: {touching.selection}")
figure, ax = plt.subplots(layout="constrained")
bars = {
    "the best model alone": release.guarantee(0.5).epsilon,
    "all fits that one record is in": touching.epsilon,
    "all fits": whole.epsilon,
}
ax.barh(list(bars), list(bars.values()))
for i, value in enumerate(bars.values()):
    ax.text(value, i, f" {value:.2f}", va="center")
ax.set_xlim(0, 1.15 * max(bars.values()))
ax.set_xlabel(r"$\varepsilon$ at radius 0.5, $\delta = 10^{-6}$")
plt.show()
