"""``balldp plan``: what train would do, without doing it."""

import argparse

from .job import prepare
from .outlook import describe, foretell, warning


def plan(options: argparse.Namespace) -> None:
    """Print what train would do; nothing of the private records is released or written."""
    job = prepare(options)
    print(describe(job), flush=True)
    foretell(job)
    if odd := warning(job):
        print(f"Warning   {odd}")
