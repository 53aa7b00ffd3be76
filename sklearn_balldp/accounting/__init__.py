"""Accounting: the only room with a state, which counts releases across threads and processes."""

from .accountant import PrivacyAccountant, Total, compose_releases
from .ledger import BudgetExceededError, OtherRelease, charged
from .searching import PrivateAccuracy
from .tickets import CountedMixin

__all__ = [
    "BudgetExceededError",
    "CountedMixin",
    "OtherRelease",
    "PrivacyAccountant",
    "PrivateAccuracy",
    "Total",
    "charged",
    "compose_releases",
]
