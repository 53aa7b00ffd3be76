"""What docs/worth.md says of other accountants, held against dp-accounting itself."""

import math
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from scipy.special import expit, ndtri

from sklearn_balldp.privacy.gaussian import delta_from_mu, mu_from_budget

ROOT = Path(__file__).parents[1]

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
MU = mu_from_budget(2.0, 1e-6)


def gaussian(accountant, multiplier):
    return accountant.compose(dp_event.GaussianDpEvent(multiplier))


@pytest.mark.parametrize(("relation", "multiplier"), [(ADD, 1 / MU), (REPLACE, 2 / MU)])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 3.0])
def test_loss_distributions_have_the_exact_profile(relation, multiplier, epsilon):
    accountant = gaussian(PLDAccountant(relation), multiplier)
    assert accountant.get_delta(epsilon) == pytest.approx(delta_from_mu(MU, epsilon), rel=1e-4)
    assert accountant.get_epsilon(1e-6) == pytest.approx(2.0, rel=1e-4)


def test_renyi_holds_for_one_relation_and_not_for_the_other():
    above = gaussian(RdpAccountant(neighboring_relation=ADD), 1 / MU).get_epsilon(1e-6)
    assert 2.0 <= above <= 2.3
    # The page warns of this one: half of what is true.
    below = gaussian(RdpAccountant(neighboring_relation=REPLACE), 2 / MU).get_epsilon(1e-6)
    assert below < 0.6 * 2.0


def test_a_pure_release_counts_as_a_gaussian_one():
    """As docs/radius.md counts a quantile: the profile of randomised response lies below."""
    for epsilon in (1e-3, 0.5, 2.0, 30.0):
        mu = 2.0 * ndtri(expit(epsilon))
        for order in np.linspace(0.0, epsilon, 7):
            truth = expit(epsilon) - math.exp(order) * expit(-epsilon)
            assert max(truth, 0.0) <= delta_from_mu(mu, order) * (1 + 1e-9) + 1e-15
    assert "mu=2 * ndtri(expit(draw.map(2)))" in (ROOT / "docs/radius.md").read_text()
