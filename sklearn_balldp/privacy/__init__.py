"""What a release costs: pure functions of public numbers, noise, and the public record."""

from .bounds import Bound, Promised
from .guarantee import Guarantee
from .noise import Noise
from .problem import Problem
from .release import Release, json_schema

__all__ = ["Bound", "Guarantee", "Noise", "Problem", "Promised", "Release", "json_schema"]
