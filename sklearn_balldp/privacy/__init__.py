"""What a release costs: pure functions of public numbers, noise, and the public record."""

from .bounds import Bound, ParameterBound
from .card import Card
from .guarantee import Guarantee
from .noise import Noise
from .release import Release

__all__ = ["Bound", "Card", "Guarantee", "Noise", "ParameterBound", "Release"]
