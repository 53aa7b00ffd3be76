"""``balldp verify``: check a published model from the command line."""

import argparse
from pathlib import Path

import numpy as np

from ..mechanisms import Transcript
from ..publish import Verdict
from ..publish import verify as verdict_of
from .records import InputError

_EPILOG = """\
Each line says PASS, FAIL, WEAK or CANNOT CHECK, with what was found and what it rests on. The exit
status is 0 without a FAIL, 1 with one, 2 if something could not be read. A check can refute a
model, and cannot certify one. With --private the results are for the owner of the records.

The folder holds plain data, and nothing of it runs.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of verify."""
    parser.description = (
        "Check a published Ball-DP model, its record, and the noise in its weights."
    )
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("model", metavar="MODEL", help="its folder, or hf://OWNER/NAME")
    record = "its record, written from release_.to_dict() (default: the one in the folder)"
    add("release", metavar="RELEASE.json", nargs="?", help=record)
    rows = "the private records, arrays X and y (and groups), to test the noise itself"
    add("--private", metavar="DATA.npz", help=rows)
    steps = "what train --keep-transcript kept, to test the noise on the steps of a descent"
    add("--kept-transcript", type=Path, metavar="FILE.npz", help=steps)
    earlier = "an earlier release from the same records, to find noise that was used again; may be "
    earlier += "given several times"
    add("--earlier", metavar="MODEL", action="append", default=[], help=earlier)
    weights = "weights that embed the private records, which you trust"
    add("--encoder", metavar="NAME|FOLDER", help=weights)
    page = "write the card and the lines that are for everybody as a page"
    add("--html", metavar="FILE", type=Path, help=page)


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
