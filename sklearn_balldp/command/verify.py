"""``balldp verify``: check a published model from the command line."""

import argparse
import os
import sys
from pathlib import Path

from ..publish import verify
from ..text import one_line

_EPILOG = """\
Each line says PASS, FAIL, WEAK or CANNOT CHECK, with what was found and what it rests on. The exit
status is 0 without a FAIL, 1 with one, 2 if something could not be read. A check can refute a
model, and cannot certify one. With --private the results are for the owner of the records.

The folder holds plain data, and nothing of it runs.
"""


def verify_command(arguments: list[str]) -> int:
    """Run the check; the exit status."""
    parser = argparse.ArgumentParser(
        prog="balldp verify",
        description="Check a published Ball-DP model, its record, and the noise in its weights.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model", metavar="MODEL", help="the model: its folder, or OWNER/NAME on the model hub"
    )
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
        "--earlier",
        metavar="MODEL",
        action="append",
        default=[],
        help="an earlier release from the same records, to find noise that was used again; may be "
        "given several times",
    )
    parser.add_argument(
        "--encoder",
        metavar="WEIGHTS",
        help="name or folder of the weights that embed the private records, which you trust",
    )
    parser.add_argument(
        "--html",
        metavar="FILE",
        type=Path,
        help="write the card and the lines that are for everybody as a page",
    )
    options = parser.parse_args(arguments)
    try:
        verdict = verify(
            options.model,
            options.release,
            private=options.private,
            earlier=options.earlier,
            encoder=options.encoder,
        )
        if options.html is not None:
            options.html.write_text(verdict.to_html(), encoding="utf-8")
    except (ValueError, ImportError, OSError) as error:
        print(f"verify: {one_line(error, 2000)}", file=sys.stderr)
        return 2
    except Exception as error:
        # Its text may quote private records, and Python's own status would be that of a FAIL.
        kind = one_line(type(error).__name__, 60)
        print(f"verify: the check stopped ({kind}), and found nothing.", file=sys.stderr)
        return 2
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        print(verdict, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1 if verdict.failed else 0
