"""``balldp verify``: check a published model from the command line."""

import argparse

from ..publish import Verdict
from ..publish import verify as verdict_of


def verify(options: argparse.Namespace) -> Verdict:
    """Check the model."""
    return verdict_of(
        options.model, private=options.private, earlier=options.earlier, encoder=options.encoder
    )
