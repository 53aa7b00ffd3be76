"""What docs/worth.md says of other accountants, held against dp-accounting itself."""

import math

import pytest
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from sklearn_balldp.privacy.gaussian import (
    compose,
    delta_from_mu,
    epsilon_from_mu,
    mu_from_budget,
    mu_from_pure,
)

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


def test_a_private_radius_is_randomised_response():
    """Under replacement its epsilon is the radius's own, and beside a release no more than ours."""
    pure = 0.5
    event = dp_event.RandomizedResponseDpEvent(2 / (1 + math.exp(pure)), 2)
    alone = PLDAccountant(REPLACE).compose(event)
    assert alone.get_epsilon(1e-9) == pytest.approx(pure, rel=1e-3)
    both = gaussian(PLDAccountant(REPLACE).compose(event), 2 / MU).get_epsilon(1e-6)
    ours = min(2.0 + pure, epsilon_from_mu(compose([MU, mu_from_pure(pure)]), 1e-6))
    assert 2.0 < both <= ours * (1 + 1e-3)
    as_gaussian = gaussian(gaussian(PLDAccountant(ADD), 1 / MU), 1 / mu_from_pure(pure))
    expected = epsilon_from_mu(compose([MU, mu_from_pure(pure)]), 1e-6)
    assert as_gaussian.get_epsilon(1e-6) == pytest.approx(expected, rel=1e-3)
