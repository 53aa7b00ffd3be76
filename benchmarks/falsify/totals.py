"""Attacks on the accountant: what one record takes part in, by brute force over the folds."""

import math
import warnings
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
)

from sklearn_balldp import BallDPLinearDiscriminant, BallDPRidgePrototype, PrivacyAccountant
from sklearn_balldp.accounting import PrivateAccuracy

from .search import Found
from .settings import Rng


def attack(rng: Rng, tries: int) -> Found:
    """Fits by hand, by folds and by searches; the total covers the record in most of them."""
    n = int(rng.integers(24, 60))
    X, y = rng.standard_normal((n, 3)), np.arange(n) % 2
    radius = float(rng.choice([0.2, 0.5]))
    head = rng.choice([BallDPRidgePrototype, BallDPLinearDiscriminant])(1.0, radius=radius)
    seed = int(rng.integers(1000))
    k = int(rng.integers(2, 6))
    splits = [
        KFold(k, shuffle=True, random_state=seed),
        StratifiedKFold(k),
        ShuffleSplit(k, train_size=0.4, random_state=seed),
    ]
    cv: Any = splits[rng.integers(3)]
    # The square of mu that each record has spent.
    spent = np.zeros(n)
    kind = str(rng.choice(["fits", "folds", "search"]))
    accountant = PrivacyAccountant(radius=radius)
    scoring = PrivateAccuracy(0.7, accountant=accountant)
    head.set_params(accountant=accountant)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "fits":
            for _ in range(k):
                part = np.sort(rng.permutation(n)[: n - int(rng.integers(3))])
                epsilon = float(rng.uniform(0.2, 3.0))
                head.set_params(epsilon=epsilon).fit(X[part], y[part])
                spent[part] += mu_of(epsilon) ** 2
        elif kind == "folds":
            cross_val_score(head, X, y, cv=cv, scoring=scoring)
            _folds(spent, cv, X, y, [1.0])
        else:
            grid = {"epsilon": [0.5, 1.0, 2.0][: int(rng.integers(1, 4))]}
            search = GridSearchCV(head, grid, cv=cv, scoring=scoring).fit(X, y)
            _folds(spent, cv, X, y, grid["epsilon"])
            spent += mu_of(search.best_params_["epsilon"]) ** 2
    total = accountant.total()
    most = math.sqrt(float(spent.max()))
    where = f"{kind}, {type(cv).__name__}({k}), n {n}, {type(head).__name__}"
    return Found("sums of the accountant", most / total.mu, len(accountant.records), where)


def _folds(spent: Any, cv: Any, X: Any, y: Any, epsilons: list[float]) -> None:
    """Add what every fold spends of its records, trained on or scored."""
    for epsilon in epsilons:
        for train, test in cv.split(X, y):
            spent[train] += mu_of(epsilon) ** 2
            spent[test] += mu_of(0.7) ** 2


def mu_of(epsilon: float, delta: float = 1e-6) -> float:
    """Distance of two normals that are (epsilon, delta)-indistinguishable, and no further apart."""

    def excess(mu: float) -> float:
        near, far = norm.cdf(mu / 2.0 - epsilon / mu), norm.logcdf(-mu / 2.0 - epsilon / mu)
        return float(near - math.exp(epsilon + far)) - delta

    return float(brentq(excess, 1e-3, 40.0, xtol=1e-12))
