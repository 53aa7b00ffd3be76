"""``balldp verify``: check a published model from the command line."""

import argparse

import numpy as np

from ..mechanisms import Transcript
from ..publish import Verdict
from ..publish import verify as verdict_of
from .options import InputError


def verify(options: argparse.Namespace) -> Verdict:
    """Check the model."""
    file, transcript = options.kept_transcript, None
    if file is not None:
        try:
            with np.load(file, allow_pickle=False) as arrays:
                transcript = Transcript(**arrays)
        except Exception as error:
            raise InputError(
                f"--kept-transcript {file} is none that train kept ({type(error).__name__})."
            ) from None
    verdict = verdict_of(
        options.model,
        options.release,
        private=options.private,
        transcript=transcript,
        earlier=options.earlier,
        encoder=options.encoder,
    )
    if options.html is not None:
        options.html.write_text(verdict.to_html(), encoding="utf-8")
    return verdict
