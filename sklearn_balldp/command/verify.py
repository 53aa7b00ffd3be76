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
    parser.add_argument("model", metavar="MODEL", help="its folder, or hf://OWNER/NAME")
    parser.add_argument(
        "release",
        metavar="RELEASE.json",
        nargs="?",
        help="its record, written from release_.to_dict() (default: the one in the folder)",
    )
    parser.add_argument(
        "--private",
        metavar="DATA.npz",
        help="the private records, arrays X and y (and groups), to test the noise itself",
    )
    parser.add_argument(
        "--kept-transcript",
        type=Path,
        metavar="FILE.npz",
        help="what train --keep-transcript kept, to test the noise on the steps of a descent",
    )
    parser.add_argument(
        "--earlier",
        metavar="MODEL",
        action="append",
        default=[],
        help="an earlier release from the same records, to find noise that was used again; may be "
        "given several times",
    )
    parser.add_argument(
        "--encoder",
        metavar="NAME|FOLDER",
        help="weights that embed the private records, which you trust",
    )
    parser.add_argument(
        "--html",
        metavar="FILE",
        type=Path,
        help="write the card and the lines that are for everybody as a page",
    )


def verify(options: argparse.Namespace) -> Verdict:
    """Check the model."""
    verdict = verdict_of(
        options.model,
        options.release,
        private=options.private,
        transcript=None if options.kept_transcript is None else _kept(options.kept_transcript),
        earlier=options.earlier,
        encoder=options.encoder,
    )
    if options.html is not None:
        options.html.write_text(verdict.to_html(), encoding="utf-8")
    return verdict


def _kept(file: Path) -> Transcript:
    """A transcript that train kept."""
    try:
        with np.load(file, allow_pickle=False) as arrays:
            return Transcript(**arrays)
    except Exception as error:
        raise InputError(
            f"--kept-transcript {file} is none that train kept ({type(error).__name__})."
        ) from None
