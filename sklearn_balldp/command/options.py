"""What each command takes, and what is wrong with it before any library is imported."""

import argparse
import difflib
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .._version import __version__
from ..pointers import unfetched

#: What ``--head`` takes, and the class that it stands for.
HEADS = {
    "logistic": "BallDPLogisticRegression",
    "svc": "BallDPSquaredHingeSVC",
    "prototypes": "BallDPRidgePrototype",
    "discriminant": "BallDPLinearDiscriminant",
}
#: A radius that public texts tell, and the share of their edits that it hides.
EDITS, HIDDEN_EDITS = "edits", 0.9
#: What ``--class-texts`` says to do without names.
NO_NAMES = "none"
#: Any replacement of a record in a table, and of its label.
HIDE_ALL = "all"
#: Equally likely candidates that a risk is about.
CANDIDATES = 10
#: Parameters that messages of the package advise to set, by the options that set them.
PARAMETERS = {
    "cache_dir": "--cache",
    "encoder": "--encoder",
    "folder": "--out",
    "groups": "--owner",
    "max_length": "--max-length",
    "keep_transcript": "--keep-transcript",
    "private": "--private",
    "weights": "--encoder",
}
# Files that are read, without and with an option; a model may lie on the hub too.
_PLACES = ("model", "file")
_READ = "public", "examples", "classes", "class_texts", "columns", "private", "earlier"
_VERIFY = """\
Each line says PASS or FAIL (computed here), WEAK (true, and next to nothing), STATED (the
publisher's word) or CANNOT CHECK (unusual), with what was found and what it rests on. The exit
status is 0 without a FAIL, 1 with one, 2 if something could not be read. A check can refute a
model, and cannot certify one. With --private the results are for the owner of the records.

The folder holds plain data, and nothing of it runs.
"""


class InputError(ValueError):
    """What is wrong with a file or an option, in one line."""


# -- what is taken --------------------------------------------------------------------------------

# An option has its name, its metavar and its help. Neighbours behind a bar exclude each other, "!"
# says that one must be given, and dots that it may be given several times.
_RECORDS = """\
file FILE               the records
--owner COLUMN          hide all records of one owner together
--encoder NAME|FOLDER   weights that embed the records: a folder, an installed package or
    hf://OWNER/NAME; of embeddings, what made them
--max-length TOKENS     tokens that are read of each text (default: the limit of the encoder)
--cache DIR             keep embeddings there: as private as the records
--class-texts FILE|none CSV of label and text that describes each class, in place of its name; none
    does without (the fit starts from their vectors too, which are published; --examples take their
    place)
--classes FILE          a public list of labels, one a line: for protected labels, or their names
--missing error|drop    what to do with records that lack something: stop (the default), or leave
    them out"""
_PROMISE = f"""\
|! --text COLUMN        column of texts
| --image COLUMN        column of image files (any name for a folder)
| --embedding COLUMN    column of lists, or prefix of columns
| --columns TOML        what each column of a table may hold (TOML), which balldp columns drafts
{_RECORDS}
! --label COLUMN        column of labels
--public FILE           public records in the same columns: for --radius edits, and to test the
    model on
--examples FILE         public records in the same columns that the fit starts from, chosen without
    a look at the private ones, and published as sums
| --radius R|edits|none distance between unit rows within which a replaced record is hidden; edits
    takes it from public texts, so that a share of {HIDDEN_EDITS:g} of small edits is hidden; none
    hides replacements at any distance
| --hide WHAT           with --columns, in place of a radius: all (any replacement, and the label;
    the default), "any 2" (any two cells), or "age=5,sex" (both: a change by 5, and any value)
--delta DELTA           default 1e-6
|! --epsilon EPSILON    privacy loss: smaller hides more
| --risk P              in place of epsilon: how often an attacker may name the right one of
    {CANDIDATES} candidates within the radius of one possible record
--labels public|protected  default public, but with --hide all
--head {"|".join(HEADS)}  default logistic
--rare                  rare classes count as much as others when predicting"""
_COMMANDS = f"""\
demo: the main job on bundled messages of a bank's customers
--out DIR               folder to make, or an empty one (default: balldp-demo, or balldp-demo-table)
--table                 the same on a table of columns, which scikit-learn brings

columns: draft a file that says what the columns of a table may hold
file FILE               a table of private records

embed: rows of texts or images, made once for plan, train and verify
|! --text COLUMN        column of texts
| --image COLUMN        column of image files (any name for a folder)
{_RECORDS}
--label COLUMN          column of labels
! --out FILE            file of rows to write (.npz)
--edits                 of public texts: embed small edits of them too, for train --radius edits

plan: what train would do: nothing is released, no file written
{_PROMISE}
--n-features N          how wide rows of texts or images will be (default: those of the default
    encoder)

train: from a file of private records to a folder to publish
{_PROMISE}
! --out DIR             folder to make, or an empty one
--ledger FILE           count the fit in this file, which is made if it is missing, and keep its
    limit
--limit EPSILON         the largest total epsilon of a new ledger, at the radius of this fit
--keep-transcript DIR   the same folder with the noisy steps, for you alone, to test the noise later
--anyway                train even where the plan says that every class is likely lost in the noise

verify: check a model that you received
model MODEL             its folder, or hf://OWNER/NAME
--private FILE          the private records, to test the noise itself: the file that train was told,
    with its --label (and --owner); or arrays X and y (and groups) in an npz
--label COLUMN          column of labels in --private FILE
--owner COLUMN          column of owners in it
--earlier MODEL...      an earlier release from the same records, to find noise that was used again;
    may be given several times
--encoder NAME|FOLDER   weights that embed the private records, which you trust

predict: labels of new records
model MODEL             its folder, or hf://OWNER/NAME
file FILE               new records
--column COLUMN         column of the records (default: the one that train was told)
--out FILE              CSV to write (default: the terminal)
--strict                write nothing if most cells of a column are not as declared, or a row tells
    nothing
--encoder NAME|FOLDER   weights that you trust (default: installed ones of the record's name and
    digest)
--cache DIR             keep embeddings there
"""
#: Of each command: what it does in a few words, and what it takes.
COMMANDS = {
    name: (told, table)
    for name, told, table in re.findall(r"^(\w+): (.*)\n((?:.+\n)*)", _COMMANDS, re.MULTILINE)
}
_OPTION = re.compile(r"^(\|?)(!?) ?(\S+)(?: ([^ \n.]+)(\.*))? +(.*(?:\n    .*)*)", re.MULTILINE)
_TYPES = {"FILE": Path, "DIR": Path, "TOML": Path, "TOKENS": int, "N": int}
_TYPES |= dict.fromkeys(("EPSILON", "DELTA", "P"), float)
_DEFAULTS = {"delta": 1e-6, "head": "logistic", "missing": "error", "earlier": []}


def add_options(parser: argparse.ArgumentParser, table: str) -> None:
    """Options of a table."""
    group: Any = None
    for bar, needed, name, metavar, dots, told in _OPTION.findall(table):
        given: dict[str, Any] = {"help": told}
        if not metavar:
            given["action"] = "store_true"
        elif re.fullmatch(r"[a-z|]+", metavar):
            given["choices"] = metavar.split("|")
        else:
            given |= {"metavar": metavar, "type": _TYPES.get(metavar, str)}
        given |= {"action": "append"} if dots else {}
        given |= {"required": True} if needed and not bar else {}
        group = bar and (group or parser.add_mutually_exclusive_group(required=needed == "!"))
        added = (group or parser).add_argument(name, **given)
        added.default = _DEFAULTS.get(added.dest, added.default)


# -- what is wrong with it ------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """A parser whose errors take one line."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")

    @property
    def names(self) -> list[str]:
        """Every option."""
        return [*re.findall(r"--[a-z][a-z-]*", self.format_usage()), "--help", "-h"]


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """Options of a command; what is misspelt ends the process, and is told with what was meant."""
    words = sys.argv[1:] if arguments is None else arguments
    parser = _Parser(
        prog="balldp",
        description="Train a classifier on private tables, texts or images, and publish it with a "
        "record of what it hides, which anyone can check against the model.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"balldp {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    parsers: dict[str, _Parser] = {}
    for name, (told, table) in COMMANDS.items():
        parsers[name] = commands.add_parser(name, help=told, description=told, allow_abbrev=False)
        add_options(parsers[name], table)
        traceback = "show where an error arose: its lines may quote records"
        parsers[name].add_argument("--debug", action="store_true", help=traceback)
    parsers["verify"].epilog = _VERIFY
    parsers["verify"].formatter_class = argparse.RawDescriptionHelpFormatter
    command = next((word for word in words if not word.startswith("-")), None)
    if command is not None and command not in COMMANDS:
        parser.error(f"{command!r} is no command{_meant(command, COMMANDS)}")
    if command is not None:
        _check_names(words[words.index(command) :], command, parsers[command])
    return parser.parse_args(words)


def settle(options: argparse.Namespace) -> None:
    """Fill in what is hidden by default; an InputError where options contradict each other."""
    of = vars(options).get
    text, table, private = of("text"), of("columns") is not None, of("private")
    hide, labels, radius = of("hide"), of("labels"), of("radius")
    if table and radius is None:
        hide = options.hide = (hide or HIDE_ALL).strip()
    everything, train = hide == HIDE_ALL, options.command in ("plan", "train")
    if train:
        options.labels = labels or ("protected" if everything else "public")
    protected, classes = of("labels") == "protected", of("classes") is not None
    head, rare, risk, examples = of("head"), of("rare"), of("risk"), of("examples")
    steps, described = of("keep_transcript"), of("class_texts") not in (None, NO_NAMES)
    refused = {
        "--hide is for --columns; of other records name a --radius": hide and not table,
        "the following arguments are required: --radius": train and not table and radius is None,
        'with public labels say how many cells are hidden, as --hide "any 2"': (
            everything and labels == "public"
        ),
        f"--hide {hide!r} is for public labels: where they are protected, it takes as much noise "
        "as --hide all, which hides more": hide and not everything and protected,
        "--classes is for --labels protected; public labels are read from FILE": (
            train and classes and not protected
        ),
        "--public, --examples and --encoder of texts or images are for train, or for a plan of "
        "rows, which balldp embed makes; how wide these are says --n-features": (
            options.command == "plan"
            and (text or of("image"))
            and (of("public") or examples or of("encoder"))
        ),
        "--radius edits needs --public FILE: texts of the same kind, with train --text, or rows of "
        "them that balldp embed --edits made": radius == EDITS and (table or not of("public")),
        f"--risk {risk} must lie between a blind guess, {1.0 / CANDIDATES:g}, and 1": (
            risk is not None and not 1.0 < CANDIDATES * risk < CANDIDATES
        ),
        "--rare needs --labels public: sizes of classes are hidden otherwise": rare and protected,
        "--rare: scores of the SVC are no log-odds; use --head logistic": rare and head == "svc",
        f"--examples {examples} are the private records; name public ones": (
            examples and examples.resolve() == options.file.resolve()
        ),
        "--examples: --head prototypes has no use for them": examples and head == "prototypes",
        "--labels protected, or --hide all, needs --classes FILE, a public list of labels, one "
        'a line; or hide less, with public labels, as --hide "any 2"': protected and not classes,
        "--class-texts FILE: --examples tell more about the classes; name one of both": (
            examples and described
        ),
        "--class-texts FILE is for --text; rows bring vectors of classes along": (
            described and not text
        ),
        f"--keep-transcript: --head {head} has no steps to keep": (
            steps and head not in ("logistic", "svc")
        ),
        "--max-length is for --text": of("max_length") is not None and not text,
        "--edits is for --text": of("edits") and not text,
        "--encoder: the rows of a table follow from --columns; leave it out": (
            table and of("encoder")
        ),
        "--limit needs --ledger FILE: the file that keeps it": (
            of("limit") is not None and of("ledger") is None
        ),
        "--label, and --owner, are for --private FILE: pass these together": (
            options.command == "verify"
            and (of("label") or of("owner"))
            and not (private and of("label"))
        ),
        f"--private {private}: name the --label that train was told, and the --owner if it was "
        "told one; or save X and y as the head took them (numpy.savez)": (
            private and not of("label") and private.suffix.lower() != ".npz"
        ),
    }
    for reason, wrong in refused.items():
        if wrong:
            raise InputError(f"{reason}.")


def _check_names(words: list[str], command: str, own: _Parser) -> None:
    """End the process at an option that the command lacks, before what is missing is told."""
    for word in words[: words.index("--") if "--" in words else None]:
        name = word.partition("=")[0]
        # A text, or a number below zero, is a value.
        if re.fullmatch(r"--?[^\W\d][^ ]*", name) and name not in own.names:
            own.error(f"{name} is no option of {command}{_meant(name, own.names)}")


def _meant(word: str, names: Iterable[str]) -> str:
    """The name that was meant, if one is near."""
    bare = {name.lstrip("-"): name for name in names}
    near = difflib.get_close_matches(word.lstrip("-"), bare, 1)
    return f" (did you mean {bare[near[0]]}?)" if near else ""


def check_files(options: argparse.Namespace) -> None:
    """Raise an InputError for a file that cannot be written, or is not there to be read."""
    given = vars(options)
    endings = {"predict": (".csv", ".tsv"), "embed": (".npz",)}.get(options.command)
    if endings is not None and options.out is not None:
        out, parent = options.out, options.out.parent
        if out.exists() or out.is_symlink():
            raise InputError(f"--out {out} exists; name another file.")
        if not (parent.is_dir() and os.access(parent, os.W_OK)):
            raise InputError(f"--out {out}: {parent} is no folder that can be written to.")
        if out.suffix.lower() not in endings:
            raise InputError(f"--out {out} must end in {' or '.join(endings)}.")
    for name in (*_PLACES, *_READ):
        value, option = given.get(name), "" if name in _PLACES else f"--{name.replace('_', '-')} "
        value = None if (name, value) == ("class_texts", NO_NAMES) else value
        for path in value if isinstance(value, list) else [value]:
            if path is not None and not str(path).startswith("hf:") and not os.path.exists(path):
                raise InputError(f"{option}{path}: there is no such file or folder.")
            reason = None if path is None else unfetched(path)
            if reason is not None:
                raise InputError(f"{option}{path}: {reason}.")


def in_options(message: str) -> str:
    """A message of the package, with options of the command for parameters of Python."""

    def option(match: re.Match[str]) -> str:
        return PARAMETERS[match[1]] + (" " if match[2] else "")

    names = "|".join(PARAMETERS)
    # What a class of Python would be made with: the command has the option alone.
    message = re.sub(rf"(?:mechanism=)?\b[A-Z]\w+\((({names})=True)\)", r"\1", message)
    return re.sub(rf"\b({names})=(?:True\b|(?=([\w'\"]?)))", option, message)
