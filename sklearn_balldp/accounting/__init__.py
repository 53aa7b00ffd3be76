"""Accounting: the only room with a state, ledgers in which releases are counted."""

from .accountant import PrivacyAccountant, Total, compose_releases
from .ledger import BudgetExceededError, OtherRelease, charged
from .scoring import PrivateAccuracy

__all__ = [
    "BudgetExceededError",
    "OtherRelease",
    "PrivacyAccountant",
    "PrivateAccuracy",
    "Total",
    "charged",
    "compose_releases",
]
