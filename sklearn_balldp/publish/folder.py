"""A folder that holds a published model: the model's files, and the card that follows from them."""

import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from .._version import __version__
from ..text import one_line
from ..verdicts import CANNOT_CHECK, FAIL, PASS, WEAK, Check
from .card import card_text
from .files import FILES, README, difference, text_of
from .model import Published
from .steps import encoder_for

_BEGIN = "<!-- What follows is made from the record: verify compares it. -->\n"
_END = "<!-- The end of what is made from the record. -->\n"
_TASKS = {"texts": "text-classification", "images": "image-classification"}
_TABLE = "tabular-classification"
#: Names of further files that a reader could take for part of the model: before the first dot, and
#: behind the last one.
_STEMS = {"card", "config", "model", "model_card", "modelcard", "predict", "readme", "release"}
_ENDINGS = {
    *(".bin", ".ckpt", ".gguf", ".h5", ".joblib", ".mat", ".msgpack", ".npy", ".npz", ".onnx"),
    *(".pb", ".pickle", ".pkl", ".pt", ".pth", ".safetensors", ".skops", ".so", ".zip"),
    *(".html", ".ipynb", ".json", ".py", ".pyc", ".yaml", ".yml"),
}
_MAX_NAMED = 10
# Characters above the card that are looked at.
_MAX_READ = 2**15
# Of what stands above the card: results that the hub shows, or a name that hides in its escapes.
_RESULTS = re.compile(r"model-index|\\[xu]", re.IGNORECASE)
_WITH_TAGS = MarkdownIt("commonmark").enable("table")


def load(path: str | Path, *, encoder: Any = None) -> Any:
    """Load a published model. It is plain data: nothing of it runs.

    Parameters
    ----------
    path : str or path-like
        The folder that :func:`.save` wrote, or ``hf://OWNER/NAME`` (``hf://OWNER/NAME@REVISION``)
        on the model hub.
    encoder : str, path-like, estimator or None, default=None
        Embeds new records, where the model has a step for that: an encoder, or the name or folder
        of the weights that you trust, as :class:`.SentenceEncoder` takes it. Its other settings are
        the defaults, except for the model's own ``max_length``, or its architecture for images;
        pass an encoder for others.

    Returns
    -------
    estimator
        The head, or a Pipeline of scikit-learn's own steps, whose parameters are those of its
        record (``release_``). That says nothing of the noise, or of who made it: :func:`.verify`
        has further checks.

    Raises
    ------
    ValueError
        If a file cannot be read, holds what no head releases, or a record that contradicts itself
        or is of another model; or if the model needs an encoder, and none is named.
    """
    try:
        model = Published.read(path)
        model.check()
    except ValueError as error:
        raise ValueError(f"model={str(path)!r}: {error}") from None
    return loaded(model, str(path), encoder)


def loaded(model: Published, path: str, encoder: Any = None) -> Any:
    """A model that was read, ready to predict."""
    if model.encoder is not None and encoder is None:
        raise ValueError(
            f"model={path!r}: its encoder {model.encoder.settings['name']!r} is not in the folder; "
            "pass encoder=, the weights that you trust."
        )
    return model.pipeline(None if encoder is None else encoder_for(model.encoder, encoder))


# -- the card -------------------------------------------------------------------------------------


def kind_of(model: Published) -> str:
    """What a model labels: "texts", "images" or "rows"."""
    for step in model.steps:
        if step.kind in ("encoder", "words"):
            return str(step.settings.get("of", "texts"))
    return "rows"


def readme(model: Published, text: str | None = None, *, same: bool = True) -> str:
    """The README.md: the publisher's text, or that of the start, and the card.

    ``same`` says whether parameters and encoder are those of the record.
    """
    task = _TASKS.get(kind_of(model), _TABLE)
    front = _front(task)
    if text is not None:
        tag = f"pipeline_tag: {task}"
        front = re.sub(r"^pipeline_tag: .*$", tag, text, count=1, flags=re.MULTILINE)
    card = card_text(model.record, model.named_steps, same)
    return f"{front}{_BEGIN}{card}{_END}"


def _front(task: str) -> str:
    """The hub's fields, of which the licence is for the publisher to fill in, and how to use it."""
    how = "The records are rows of numbers, as\nthe head sees them."
    if task != _TABLE:
        how = "If a model embeds the records, it is\nnot part of the folder: name the one that you "
        how += "trust (`--encoder`)."
    return f"""\
---
library_name: sklearn_balldp
license: unknown
pipeline_tag: {task}
tags:
- ball-differential-privacy
- differential-privacy
- sklearn
---

FILL IN: what the records are, what the model is for, its licence (above), and the address of the
source of sklearn_balldp, in the version that the card names.

`balldp verify FOLDER` checks this folder, and `balldp predict FOLDER FILE` labels new records. Both
come with sklearn_balldp: install it from a source that you trust. A package of that name in an
index may be a stranger's. {how}

"""


def publishers_text(folder: Path) -> str | None:
    """What the publisher wrote above the card; None if it is the text of the start."""
    if not os.path.lexists(folder / README):
        return None
    front, mark, card = (text_of(folder / README) or "").partition(_BEGIN)
    if not mark or _BEGIN in card or not card.endswith(_END):
        raise ValueError(
            f"folder={str(folder)!r}: its README.md was edited so that your text cannot be told "
            "from the card, and would be lost; move it away."
        )
    return None if front in map(_front, (*_TASKS.values(), _TABLE)) else front


# -- checks of the folder -------------------------------------------------------------------------


def folder_checks(model: Published, same: bool) -> list[Check]:
    """Whether a folder holds its files, and a card that follows from model and record."""
    if model.source is None:
        return []
    names, text = model.source.names, model.source.readme
    further = sorted(names - set(FILES))
    odd = [f"no {name}" for name in FILES if name not in names]
    odd += [f"a further file {one_line(name, 60)}" for name in further if may_be_taken(name)]
    others = [one_line(name, 60) for name in further if not may_be_taken(name)]
    checks = []
    if odd:
        basis = "no further file may pass for a part of the model"
        checks.append(Check("folder", FAIL, "; ".join(odd[:_MAX_NAMED]), basis))
    if others:
        more = f" and {len(others) - _MAX_NAMED} more" if len(others) > _MAX_NAMED else ""
        shown = f"{', '.join(others[:_MAX_NAMED])}{more}: no part of the model, and not looked at"
        checks.append(Check("further files", CANNOT_CHECK, shown, "four files are the model"))
    if README in names:
        checks += _readme_checks(model, text, same)
    return checks


def may_be_taken(name: str) -> bool:
    """Whether a reader could take a further file for a part of the model."""
    lower = name.lower().strip()
    if lower.startswith("."):
        return False
    return lower.split(".")[0] in _STEMS or Path(lower).suffix in _ENDINGS or not name.isprintable()


def _readme_checks(model: Published, text: str | None, same: bool) -> Iterator[Check]:
    """Of a README: the card in it, and the publisher's text."""
    basis = "the card in it is made again from model and record"
    if text is None:
        yield Check(README, FAIL, "it is no short text of this folder", basis)
        return
    front, mark, card = text.partition(_BEGIN)
    first, _, expected = readme(model, same=same).partition(_BEGIN)
    if mark and card == expected:
        yield Check(README, PASS, "its card matches model and record", basis)
    elif mark and model.record.version != __version__:
        how = f"this version writes it otherwise than {model.record.version} did, or it was "
        how += "changed: install that version to compare it, and do not trust it before"
        yield Check(README, CANNOT_CHECK, how, basis)
    else:
        lines = "\n" * (front.count("\n") + 1)
        where = difference(lines + card, lines + expected)
        where = where if mark else "no line says where its card begins"
        yield Check(README, FAIL, f"differs from what model and record give: {where}", basis)
    if front == first:
        return
    note = "the text above the card is the publisher's own: read it"
    yield Check("text of the README", CANNOT_CHECK, note, "nothing that it says")
    odd = _mistakable(front, expected) if mark else []
    if odd:
        note = f"{', '.join(odd)}: none of it is checked, only what stands below the mark is"
        yield Check("above the card", WEAK, note, "nobody may take it for the card")


def _mistakable(front: str, card: str) -> list[str]:
    """What above the card may be taken for it, is shown beside it, or hides it."""
    if len(front) > _MAX_READ:
        return [f"more than {_MAX_READ} characters"]
    fields, body = "", front
    if front.startswith("---\n") and "\n---\n" in front:
        fields, _, body = front.partition("\n---\n")
    tokens, titles = _WITH_TAGS.parse(body), _titles(_WITH_TAGS.parse(card))
    above, shown = _titles(tokens), _titles(_WITH_TAGS.parse(f"{body}{_BEGIN}{card}"), deepest=0)
    parts = [part for token in tokens for part in (token, *(token.children or ()))]
    second = bool(titles & above) or any("card" in title.split() for title in above)
    odd = {
        "a second card": second or "privacy card" in " ".join(map(_words, tokens)).casefold(),
        "HTML": any(part.type.startswith("html_") for part in parts),
        "a model-index": _RESULTS.search(fields) is not None,
        "what keeps the card from being shown": not titles <= shown,
    }
    return [what for what, there in odd.items() if there]


def _titles(tokens: list[Token], deepest: int = 99) -> set[str]:
    """Headings of a page; with 0 those that stand in no list or quotation."""
    return {
        _words(text).casefold()
        for mark, text in pairwise(tokens)
        if mark.type == "heading_open" and mark.level <= deepest
    }


def _words(token: Token) -> str:
    """The words of a part of a page as a reader sees them."""
    shown = "".join(part.content or " " for part in token.children or ()) or token.content
    return " ".join(shown.split())
