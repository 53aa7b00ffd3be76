"""The page to play with computes what the package computes."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.privacy.gaussian import epsilon_from_mu, mu_from_budget

pytestmark = pytest.mark.needs("dukpy")
SCRIPT = (Path(__file__).parents[1] / "docs" / "static" / "play.js").read_text()


def run(expression):
    import dukpy

    return json.loads(dukpy.evaljs(f"{SCRIPT}; JSON.stringify({expression});"))


def test_normal_distribution():
    x = np.linspace(-30.0, 8.0, 400)
    found = run(f"{x.tolist()}.map(balldp.cdf)")
    np.testing.assert_allclose(found, norm.cdf(x), rtol=1e-11)


@pytest.mark.parametrize("epsilon", [0.125, 0.5, 2.0, 16.0])
def test_promises(epsilon):
    mu = mu_from_budget(epsilon, 1e-6)
    assert run(f"balldp.muOf({epsilon}, 1e-6)") == pytest.approx(mu, rel=1e-7)
    for times in (0.5, 1.0, 4.0, 40.0):
        own = epsilon_from_mu(times * mu, 1e-6)
        assert run(f"balldp.epsilonOf({times * mu!r}, 1e-6)") == pytest.approx(own, rel=1e-6)


def test_what_an_attacker_gains():
    X, y = np.random.default_rng(0).standard_normal((60, 4)), np.arange(60) % 2
    release = BallDPRidgePrototype(2.0, radius=0.3, norm_bound=1.0).fit(X, y).release_
    guarantee = release.guarantee()
    for m in (2, 10, 100):
        found = run(f"balldp.certificate({guarantee.mu!r}, {m})")
        assert found == pytest.approx(release.certificate(1 / m), rel=1e-8)
    assert run(f"balldp.advantage({guarantee.mu!r})") == pytest.approx(
        guarantee.advantage, rel=1e-8
    )
    # The table's other distances.
    for times in (0.5, 2.0):
        own = release.guarantee(0.3 * times)
        assert run(f"balldp.epsilonOf({guarantee.mu * times!r}, 1e-6)") == pytest.approx(
            own.epsilon, rel=1e-6
        )
