"""What heads of class sums share: the released sums, by name."""

from ..mechanisms import Statistics
from .base import BaseBallDPClassifier


class BaseSumsClassifier(BaseBallDPClassifier):
    """Head that is made of noisy class sums."""

    @property
    def statistics_(self) -> Statistics:
        """What was released: noisy sums, and the scales of their noise."""
        return self._fitted().statistics()
