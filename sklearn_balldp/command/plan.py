"""``balldp plan``: what train would do, without doing it."""

import argparse

from ..progress import shown
from .job import prepare
from .outlook import describe, foretold


def plan(options: argparse.Namespace) -> None:
    """Print what train would do; nothing of the private records is released or written."""
    job = prepare(options)
    print(describe(job), flush=True)
    if job.public is not None:
        with shown(True):
            print(f"Accuracy  {foretold(job)}")
