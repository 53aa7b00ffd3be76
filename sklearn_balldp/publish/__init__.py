"""A model to publish, and checks of one that somebody else published."""

from .folder import load, save
from .verify import Verdict, verify

__all__ = ["Verdict", "load", "save", "verify"]
