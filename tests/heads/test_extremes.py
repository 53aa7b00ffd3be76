"""Extreme public parameters either work or are refused by name; none fails without a word."""

import numpy as np
import pytest

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    OutputPerturbation,
)
from sklearn_balldp.mechanisms.solver import ConvergenceError

SIZES = [1e-30, 1e-20, 1e-10, 1e-3, 1.0, 1e3, 1e10, 1e20, 1e30]
NAMED = ("epsilon", "alpha", "norm_bound", "radius", "clip", "learning_rate", "tol")
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((60, 4)), np.arange(60) % 3


def drawn(rng):
    """A head with some of its parameters at the ends of what is accepted, and rows to fit."""

    def pick(otherwise, share=0.5):
        return float(rng.choice(SIZES)) if rng.random() < share else otherwise

    norm_bound = pick(1.0)
    params = {
        "epsilon": pick(2.0, 0.2),
        "norm_bound": norm_bound,
        "radius": None if rng.random() < 0.3 else pick(0.5 * norm_bound),
    }
    kind = rng.integers(5)
    if kind == 0:
        head = BallDPRidgePrototype(alpha=pick(0.01), decision="gaussian", **params)
    elif kind == 4:
        domain = str(rng.choice(["ball", "sphere"]))
        head = BallDPLinearDiscriminant(domain=domain, **params)
    elif kind == 1:
        mechanism = OutputPerturbation(tol=None if rng.random() < 0.5 else pick(1e-6))
        head = BallDPLogisticRegression(mechanism=mechanism, alpha=pick(0.01), **params)
    else:
        mechanism = GradientPerturbation(
            n_steps=3,
            clip=None if rng.random() < 0.3 else pick(0.2),
            learning_rate=None if rng.random() < 0.7 else pick(1.0),
        )
        Head = [BallDPLogisticRegression, BallDPSquaredHingeSVC][kind - 2]
        head = Head(mechanism=mechanism, fit_intercept=bool(rng.random() < 0.5), **params)
    return head, X * float(rng.choice([norm_bound, 1.0]))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", range(7))
def test_finite_or_refused_by_name(seed):
    rng = np.random.default_rng(seed)
    n_fitted = 0
    for _ in range(40):
        head, rows = drawn(rng)
        refused = ""
        try:
            head.fit(rows, Y)
        except (ValueError, ConvergenceError) as error:
            refused = str(error)
        if refused:
            assert any(name in refused for name in NAMED), refused
            continue
        n_fitted += 1
        release = head.release_
        assert np.isfinite(head.decision_function(rows)).all()
        assert np.isfinite(release.sigma).all()
        # The noise of a step follows from its iterate.
        assert np.min(release.sigma, initial=np.inf) > 0.0
        assert release.guarantee().epsilon <= release.epsilon * (1 + 1e-6)
    assert n_fitted > 10
