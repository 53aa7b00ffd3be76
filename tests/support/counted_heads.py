"""Rows and heads whose fits are counted."""

import os

import numpy as np

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.privacy.gaussian import mu_from_budget

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 4))
X /= np.linalg.norm(X, axis=1, keepdims=True)
Y = np.arange(120) % 3
MU = mu_from_budget(1.0, 1e-6)


def head_of(accountant=None, epsilon=1.0, **options):
    return BallDPRidgePrototype(epsilon, accountant=accountant, **{"radius": 0.5, **options})


FITTED = head_of().fit(X, Y)


def in_child(work, *args):
    """A process that does this and ends; its number."""
    child = os.fork()
    if child:
        return child
    try:
        work(*args)
        os._exit(0)
    finally:
        os._exit(1)


def interrupted(*_, **__):
    raise KeyboardInterrupt
