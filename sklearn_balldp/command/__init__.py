"""``balldp``: demo, columns, embed, plan, train, verify and predict, from the command line."""

import argparse
import os
import sys
import traceback
import warnings
from importlib import import_module
from typing import Any

from ..showing import one_line
from .options import check_files, in_options, parsed, settle


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status: 0, 1 for a check that failed, 2 for bad input."""
    options = parsed(arguments)
    if hasattr(sys.stdout, "reconfigure"):
        # Another code page lacks letters of a label or a cell.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    with warnings.catch_warnings():
        # Notes are part of the answer, whatever filters the environment asks for.
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = _warn  # type: ignore[assignment]
        return _run(options)


def _warn(message: Warning | str, category: type[Warning], *_: Any) -> None:
    """A warning in one line, without a place in the code."""
    # What libraries tell those who program with them is no note to the reader.
    if not issubclass(category, DeprecationWarning):
        print(f"Note      {_in_one_line(message)}", file=sys.stderr)


def _in_one_line(message: object) -> str:
    return one_line(in_options(str(message)), 2000)


def _run(options: argparse.Namespace) -> int:
    """Run it; whatever is wrong is said in one line, which quotes no private record."""
    status = 0
    caught: BaseException
    module = None
    try:
        settle(options)
        check_files(options)
        # A command imports what it needs, which takes seconds.
        module = import_module(f".{options.command}", __package__)
        verdict = getattr(module, options.command)(options)
        if verdict is not None:
            status = int(verdict.failed)
            print(in_options(str(verdict)), flush=True)
        return status
    except BrokenPipeError:
        # Whoever reads has seen enough; but a model may not have been written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2 if options.command in ("demo", "train") else status
    except (ValueError, ImportError, OSError) as error:
        caught, reason = error, _in_one_line(error)
    except KeyboardInterrupt as error:
        tell = getattr(module, "interrupted", None)
        caught, reason = error, "interrupted." if tell is None else f"interrupted; {tell(options)}."
    except Exception as error:
        # Its text may quote private records, and Python's own status would be that of a FAIL.
        caught, kind = error, one_line(type(error).__name__, 60)
        reason = f"it stopped ({kind}); --debug shows where, in lines that may quote records."
    if options.debug:
        traceback.print_exception(caught)
    print(f"balldp {options.command}: {reason}", file=sys.stderr)
    return 2
