"""What a stranger receives: a model, its record, and the means to check one against the other."""

from ..audit.residuals import Check
from .verify import Verdict, verify

__all__ = ["Check", "Verdict", "verify"]
