"""What a stranger receives: a model, its record, and the means to check one against the other."""

from .loading import load
from .saving import save
from .verify import Verdict, verify

__all__ = ["Verdict", "load", "save", "verify"]
