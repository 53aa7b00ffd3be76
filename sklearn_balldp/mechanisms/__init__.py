"""What is asked of the records: queries, the kernel that answers them, and the mechanisms."""

from .base import Mechanism
from .descent import DescentBound, GradientPerturbation, Transcript
from .gradients import MeanGradient
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
from .minimiser import Minimiser, OutputPerturbation
from .sums import PrototypePerturbation, Statistics, StatisticsPerturbation, Sums, prototypes_of

#: The queries whose sensitivity is proved here.
PROVED: tuple[type[Query], ...] = (Sums, MeanGradient, Minimiser)

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


def answered(mechanism: Mechanism) -> tuple[type[Query], ...]:
    """The kinds of queries that the kernel answers for a mechanism."""
    return (*PROVED, *mechanism.accepts)


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
    "answered",
    "drive",
    "drive_many",
    "prototypes_of",
]
