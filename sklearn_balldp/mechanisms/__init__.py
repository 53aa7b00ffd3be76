"""What is asked of the records: queries, the kernel that answers them, and the mechanisms."""

from .base import Mechanism
from .descent import DescentBound, GradientPerturbation, Transcript
from .kernel import (
    Conversation,
    Kernel,
    PrivacyError,
    PrivacyFilter,
    Query,
    Records,
    drive,
    drive_many,
)
from .minimiser import OutputPerturbation
from .queries import PROVED, MeanGradient, Minimiser, Statistics, Sums
from .sums import PrototypePerturbation, StatisticsPerturbation, prototypes_of

#: Mechanisms of this package, by the names that records call them by.
MECHANISMS: dict[str, type[Mechanism]] = {
    kind.name: kind
    for kind in (
        GradientPerturbation,
        OutputPerturbation,
        PrototypePerturbation,
        StatisticsPerturbation,
    )
}

__all__ = [
    "MECHANISMS",
    "PROVED",
    "Conversation",
    "DescentBound",
    "GradientPerturbation",
    "Kernel",
    "MeanGradient",
    "Mechanism",
    "Minimiser",
    "OutputPerturbation",
    "PrivacyError",
    "PrivacyFilter",
    "PrototypePerturbation",
    "Query",
    "Records",
    "Statistics",
    "StatisticsPerturbation",
    "Sums",
    "Transcript",
    "drive",
    "drive_many",
    "prototypes_of",
]
