"""An accountant, and a place for a ledger."""

import pytest

from sklearn_balldp import PrivacyAccountant


@pytest.fixture
def counts():
    """An accountant at the radius of the heads."""
    return PrivacyAccountant(radius=0.5)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.ledger"
