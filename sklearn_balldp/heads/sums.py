"""What heads of class sums share: the released sums, by name."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..mechanisms import Statistics
from .base import BaseBallDPClassifier
from .released import Released


class BaseSumsClassifier(BaseBallDPClassifier):
    """Head that is made of noisy class sums."""

    @property
    def statistics_(self) -> Statistics:
        """What was released: noisy sums, and the scales of their noise."""
        return self._fitted().statistics()

    @classmethod
    def _named(cls, released: Released) -> dict[str, NDArray[Any]]:
        statistics, counts = released.statistics(), released.problem.class_counts
        named = {"classes_": released.classes, "class_sums": statistics.class_sums}
        if statistics.second_moment is not None:
            named["second_moment"] = statistics.second_moment
        # Public counts are whole; noisy ones are released values.
        named["counts"] = statistics.counts if counts is None else np.array(counts)
        return named
