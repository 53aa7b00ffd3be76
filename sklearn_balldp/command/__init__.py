"""``balldp``: demo, plan, train, verify and predict, from the command line."""

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from ..text import one_line
from . import demo, plan, predict, train, verify

#: Of each command: what it does in a few words, its options, and what runs it.
COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None], Callable[..., Any]]] = {
    "demo": ("the main job on bundled messages of a bank's customers", demo.add_options, demo.demo),
    "plan": (
        "what train would do: nothing is released, no file written",
        train.add_options,
        plan.plan,
    ),
    "train": (
        "from a file of private records to a folder to publish",
        train.add_training_options,
        train.train,
    ),
    "verify": ("check a model that you received", verify.add_options, verify.verify),
    "predict": ("labels of new records", predict.add_options, predict.predict),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status: 0, 1 for a check that failed, 2 for bad input."""
    parser = argparse.ArgumentParser(
        prog="balldp",
        description="Train a classifier on private texts or images, and publish it with a proof of "
        "what it hides.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (help_, add_options, _) in COMMANDS.items():
        add_options(commands.add_parser(name, help=help_, description=help_, allow_abbrev=False))
    options = parser.parse_args(arguments)
    if hasattr(sys.stdout, "reconfigure"):
        # Another code page lacks letters of a label or a cell.
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.showwarning = _warn  # type: ignore[assignment]
        return _run(options)


def _warn(message: Warning | str, *_: Any) -> None:
    """A warning in one line, without a place in the code."""
    print(f"Note      {one_line(message, 2000)}", file=sys.stderr)


def _run(options: argparse.Namespace) -> int:
    """Run it; whatever is wrong is said in one line, which quotes no private record."""
    status = 0
    try:
        verdict = COMMANDS[options.command][2](options)
        if verdict is not None:
            status = int(verdict.failed)
            print(verdict, flush=True)
        return status
    except BrokenPipeError:
        # Whoever reads has seen enough; but a model may not have been written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2 if options.command in ("demo", "train") else status
    except (ValueError, ImportError, OSError) as error:
        reason = one_line(error, 2000)
    except KeyboardInterrupt:
        reason = "interrupted."
    except Exception as error:
        # Its text may quote private records, and Python's own status would be that of a FAIL.
        reason = f"it stopped ({one_line(type(error).__name__, 60)})."
    print(f"{options.command}: {reason}", file=sys.stderr)
    return 2
