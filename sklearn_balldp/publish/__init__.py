"""A model to publish, and checks of one that somebody else published."""

from .card import card
from .model import load
from .saving import save
from .verify import Verdict, verify
from .words import summary

__all__ = ["Verdict", "card", "load", "save", "summary", "verify"]
