"""``balldp``: train, predict, verify, card and plan, from the command line."""

import argparse
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from ..text import one_line
from . import predict as predicting
from . import train as training
from .verify import verify_command

COMMANDS = ("train", "plan", "predict", "verify", "card")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit status: 0, 1 for a check that failed, 2 for bad input."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["verify"]:
        return verify_command(arguments[1:])
    numbers = any(argument.partition("=")[0] == "--counts" for argument in arguments)
    options = _parser(numbers).parse_args(arguments)
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
    try:
        if options.command == "card":
            print(predicting.opened_record(options.folder), flush=True)
        else:
            run = {
                "train": training.train,
                "plan": training.plan_of_numbers if "counts" in options else training.plan,
                "predict": predicting.predict,
            }
            run[options.command](options)
    except BrokenPipeError:
        # Whoever reads has seen enough; but a model may not have been written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2 if options.command == "train" else 0
    except (ValueError, ImportError, OSError) as error:
        print(f"{options.command}: {one_line(error, 2000)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{options.command}: interrupted.", file=sys.stderr)
        return 2
    except Exception as error:
        # Its text may quote private records.
        kind = one_line(type(error).__name__, 60)
        print(f"{options.command}: it stopped ({kind}).", file=sys.stderr)
        return 2
    return 0


def _parser(numbers: bool = False) -> argparse.ArgumentParser:
    """Options of all commands; a plan may be of numbers alone."""
    parser = argparse.ArgumentParser(
        prog="balldp",
        description="Train a classifier on private texts or images, and publish it with a proof of "
        "what it hides.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser(
        "train", help="from a file of private records to a folder to publish"
    )
    training.add_options(train)
    train.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    train.add_argument("--force", action="store_true", help="replace a model in that folder")
    plan = commands.add_parser(
        "plan",
        help="what train would do: nothing is released, no file written",
        epilog="In place of a file, public numbers: balldp plan --counts 120,80,5 --features 384 "
        "--radius 0.6 --epsilon 2.",
    )
    (training.add_numbers if numbers else training.add_options)(plan)
    predict = commands.add_parser("predict", help="labels of new records")
    predicting.add_options(predict)
    card = commands.add_parser("card", help="print the card of a model")
    card.add_argument("folder", metavar="DIR", help="folder of the model")
    commands.add_parser("verify", help="check a model that you received (balldp verify --help)")
    return parser
