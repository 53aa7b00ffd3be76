"""Accounting: the only room with a state, which counts releases across threads and processes."""

from .accountant import PrivacyAccountant, Total, UncoveredWarning, compose_releases
from .ledger import BudgetExceededError
from .searching import PrivateAccuracy

__all__ = [
    "BudgetExceededError",
    "PrivacyAccountant",
    "PrivateAccuracy",
    "Total",
    "UncoveredWarning",
    "compose_releases",
]
