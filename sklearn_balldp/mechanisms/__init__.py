"""What is asked of the records: queries, the kernel that answers them, and the mechanisms."""

from .base import Mechanism as Mechanism
from .descent import DescentBound as DescentBound
from .descent import GradientPerturbation as GradientPerturbation
from .descent import Transcript as Transcript
from .examples import Examples as Examples
from .gradients import MeanGradient as MeanGradient
from .kernel import Conversation as Conversation
from .kernel import Kernel as Kernel
from .kernel import PrivacyError as PrivacyError
from .kernel import PrivacyFilter as PrivacyFilter
from .kernel import Query as Query
from .kernel import Records as Records
from .kernel import drive as drive
from .kernel import drive_many as drive_many
from .minimiser import Minimiser as Minimiser
from .minimiser import OutputPerturbation as OutputPerturbation
from .sums import PrototypePerturbation as PrototypePerturbation
from .sums import Statistics as Statistics
from .sums import StatisticsPerturbation as StatisticsPerturbation
from .sums import Sums as Sums
from .sums import prototypes_of as prototypes_of

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
