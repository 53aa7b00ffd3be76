"""Accounting: the only room with a state, ledgers in which releases are counted."""

from .accountant import PrivacyAccountant, Total, compose_releases
from .ledger import BudgetExceededError, OtherRelease, count
from .scoring import PrivateAccuracy

__all__ = [
    "BudgetExceededError",
    "OtherRelease",
    "PrivacyAccountant",
    "PrivateAccuracy",
    "Total",
    "compose_releases",
    "count",
]
