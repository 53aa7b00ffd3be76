"""A folder that holds a published model: what belongs in it, made from model and record alone.

The files beside model and record can be made again by whoever receives them. So they are compared,
and none of them is believed.
"""

import atexit
import json
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.pipeline import Pipeline

from .._version import __version__
from ..audit.residuals import CANNOT_CHECK, FAIL, PASS, Check
from ..encoders import ImageEncoder, SentenceEncoder
from ..privacy.release import Release
from ..text import one_line
from .received import Received

MODEL, RECORD, README = "model.skops", "release.json", "README.md"
#: Nothing else belongs in a folder.
FILES = (README, "card.html", "config.json", MODEL, "predict.py", RECORD)
#: No file beside the model is longer.
_MOST_BYTES = 2**23
_BEGIN = "<!-- What follows is made from the record: verify compares it. -->\n"
_END = "<!-- The end of what is made from the record. -->\n"
#: The hub's names of what a model is for.
_TASKS = ("text-classification", "image-classification", "tabular-classification")
_ENCODER = (
    "If a model embeds the records, it is not part of the\n"
    "folder: name the one that you trust (`--encoder`)."
)
_EMBEDDINGS = "The records are rows of numbers, as\nthe head sees them."
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_PREDICT = '''\
"""Predict for new records: python predict.py FILE [--encoder FOLDER] [--out FILE]."""

import sys
from pathlib import Path

from sklearn_balldp.command import main

if __name__ == "__main__":
    sys.exit(main(["predict", str(Path(__file__).parent), *sys.argv[1:]]))
'''


def files_of(received: Received, record: Release) -> dict[str, str]:
    """Texts of the files that follow from model and record; README.md with its text of the start.

    Parameters
    ----------
    received : Received
        The model as its file holds it.
    record : Release
        Its record.
    """
    model = as_pipeline(received, record)
    card, task = record.card(model), _task(received)
    config = {
        "sklearn": {
            # A host installs these by name, and no index has this package under its own.
            "environment": [f"numpy=={record.numpy_version}"],
            "model": {"file": MODEL},
            "model_format": "skops",
            "task": task,
        }
    }
    return {
        README: _front(task) + _BEGIN + _body(card.to_markdown()) + _END,
        "card.html": card.to_html(),
        "config.json": json.dumps(config, indent=2) + "\n",
        "predict.py": _PREDICT,
        RECORD: json.dumps(record.to_dict(), indent=2) + "\n",
    }


def as_pipeline(received: Received, record: Release) -> Any:
    """The model with its steps as its file names them, whether or not they can run."""
    head = received.head
    head.release_ = record
    steps = [
        (step.name, _Named(step.encoder_name) if step.encoder is not None else step.made)
        for step in received.steps
    ]
    return Pipeline([*steps, (received.name, head)]) if steps else head


@dataclass(frozen=True)
class _Named:
    """In place of an encoder of a file, which must open nothing: what it calls itself."""

    identity: str


def _task(received: Received) -> str:
    """The hub's name of what the model does."""
    kinds = [step.encoder or step.made for step in received.steps]
    if any(isinstance(kind, (SentenceEncoder, HashingVectorizer)) for kind in kinds):
        return _TASKS[0]
    if any(isinstance(kind, ImageEncoder) for kind in kinds):
        return _TASKS[1]
    return _TASKS[2]


def _front(task: str) -> str:
    """The hub's fields, of which the licence is for the publisher to fill in, and how to use it."""
    return f"""\
---
library_name: sklearn_balldp
license: unknown
pipeline_tag: {task}
tags:
- ball-differential-privacy
- differential-privacy
- sklearn
- skops
---

FILL IN: what the records are, what the model is for, its licence (above), and the address of the
source of sklearn_balldp, in the version that the card names.

`balldp verify FOLDER` checks this folder, and `balldp predict FOLDER FILE` labels new records. Both
come with sklearn_balldp: install it from a source that you trust. A package of that name in an
index may be a stranger's. {_ENCODER if task in _TASKS[:2] else _EMBEDDINGS}

"""


def _body(markdown: str) -> str:
    """A card without its own front matter."""
    return markdown.split("---\n", 2)[2].lstrip("\n")


def folder_checks(folder: Path, received: Received, record: Release) -> list[Check]:
    """Whether a folder holds what it should, and what follows from model and record."""
    names = sorted(path.name for path in folder.iterdir())
    others = [name for name in names if name not in FILES]
    missing = [name for name in FILES if name not in names]
    checks = []
    if others or missing:
        odd = [f"a further file {one_line(name, 60)}" for name in others]
        odd += [f"no {name}" for name in missing]
        checks.append(Check("folder", FAIL, "; ".join(odd), "six files belong in it"))
    expected, basis = files_of(received, record), "it is made again from model and record"
    same = record.version == __version__
    for name, text in expected.items():
        if name in missing:
            continue
        own = _text(folder / name)
        if name == README and same:
            checks += _readme_checks(own, text)
        elif own == text:
            checks.append(Check(name, PASS, "it matches model and record", basis))
        elif same or name == "predict.py":
            # Code that a receiver may run is known, whatever version a record names.
            checks.append(Check(name, FAIL, "it differs from what follows", basis))
        else:
            found = (
                f"this version writes it otherwise than {record.version} did, or it was changed: "
                "install that version to compare it, and do not run or trust it before"
            )
            checks.append(Check(name, CANNOT_CHECK, found, basis))
    return checks


def _readme_checks(own: str | None, expected: str) -> list[Check]:
    """Of a README: the card in it, and the publisher's own text."""
    basis = "the card in it is made again from model and record"
    front, card = expected.split(_BEGIN)
    if own is None or own.count(_BEGIN) != 1 or own.split(_BEGIN)[1] != card:
        return [Check(README, FAIL, "its card differs from what follows", basis)]
    checks = [Check(README, PASS, "its card matches model and record", basis)]
    if own.split(_BEGIN)[0] != front:
        found = "the text above the card is the publisher's own: read it"
        checks.append(Check("text of the README", CANNOT_CHECK, found, "nothing that it says"))
    return checks


def own_text(folder: Path) -> str | None:
    """What the publisher wrote above the card of a folder; None if it is the text of the start.

    Raises
    ------
    ValueError
        If the card cannot be told from that text, or it is too long.
    """
    if not (folder / README).exists():
        return None
    text = (_text(folder / README) or "").replace("\r\n", "\n")
    front = text.split(_BEGIN)[0]
    whole = text.count(_BEGIN) == 1 and text.endswith(_END)
    if not whole or len(front) > _MOST_BYTES // 4:
        raise ValueError(
            f"folder={str(folder)!r}: its README.md was edited so that your text cannot be told "
            "from the card, and would be lost; move it away."
        )
    return None if front in map(_front, _TASKS) else front


def with_own_text(text: str, own: str | None) -> str:
    """A new README.md with the publisher's text above its card."""
    if own is None:
        return text
    front, card = text.split(_BEGIN)
    task = re.search(r"^pipeline_tag: .*$", front, re.MULTILINE)
    assert task is not None
    return re.sub(r"^pipeline_tag: .*$", task[0], own, count=1, flags=re.MULTILINE) + _BEGIN + card


def _text(path: Path) -> str | None:
    """What a file of the folder holds; None where that is no short text, or another's file."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _MOST_BYTES:
        return None
    try:
        # Line ends count: universal ones would hide characters.
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return None


def parts_of_folder(path: str | Path) -> tuple[Path, Path, Path] | None:
    """The folder, its model and its record; None if the path is no folder, or a file's."""
    folder = Path(path)
    if not folder.is_dir():
        return None
    for name in (MODEL, RECORD):
        own = folder / name
        if own.is_symlink() or not own.is_file():
            raise ValueError(f"model={str(path)!r} holds no {name}; ask for the whole folder.")
    return folder, folder / MODEL, folder / RECORD


def model_in(model: Any) -> Any:
    """The model's file, where a folder is given; anything else as it is."""
    folder = parts_of_folder(model) if isinstance(model, (str, Path)) else None
    return model if folder is None else folder[1]


def downloaded(path: str | Path) -> str | Path:
    """The same path; or the folder that a repository of the model hub was downloaded to.

    Only the six files are downloaded, and none of them is run.
    """
    text = str(path)
    is_file = text.endswith((".skops", ".joblib", ".pkl", ".pickle"))
    if Path(path).exists() or is_file or not _HUB_NAME.fullmatch(text):
        return path
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ValueError(
            f"model={text!r} is no file and no folder; to download a repository of that name, "
            "pip install huggingface_hub."
        ) from None
    try:
        cache = Path(snapshot_download(text, allow_patterns=list(FILES)))
    except Exception as error:
        # Whatever is wrong with the network or the name.
        reason = one_line(f"{type(error).__name__}: {error}", 200)
        raise ValueError(
            f"model={text!r} is no folder, and cannot be downloaded: {reason}"
        ) from None
    # The hub's cache holds links: a folder of files takes their place while this process runs.
    folder = Path(tempfile.mkdtemp(prefix="balldp-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in FILES:
        if (cache / name).is_file():
            shutil.copyfile(cache / name, folder / name)
    return folder
