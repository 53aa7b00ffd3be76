"""A folder that holds a published model: its card, the text to begin with, and further files."""

import unicodedata
from collections.abc import Iterator
from pathlib import Path

from .._version import __version__
from ..names import appearance
from ..showing import listed, one_line
from ..verdicts import CANNOT_CHECK, FAIL, PASS, STATED, WEAK, Check
from .card import card_text
from .files import CARD, FILES, README, Differs, difference
from .model import Published

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
#: Further files that a repository has, whose names say what is in them; and what tools leave: git,
#: downloads from a hub, and the Finder.
_USUAL = {".gitattributes", ".gitignore", "CITATION.cff", "LICENSE", "LICENSE.txt", "NOTICE"}
_USUAL |= {".git", ".cache", ".DS_Store"}
_MAX_NAMED = 10


def readme(model: Published) -> bytes:
    """A README.md for the publisher to fill in, with the hub's fields; nothing ever reads it."""
    task, how = _TASKS.get(model.kind, _TABLE), ""
    if model.encoder is not None:
        how = " Name the weights of the encoder, which are\nnot part of it (`--encoder`)."
    return f"""\
---
library_name: sklearn_balldp
license: unknown
pipeline_tag: {task}
tags: [ball-differential-privacy, differential-privacy, sklearn]
---

FILL IN: what the records are, what the model is for, its licence (above), and the address of the
source of sklearn_balldp, in the version that CARD.md names: an index may have a stranger's.

CARD.md says what the model hides. `balldp verify FOLDER` checks the folder, this text excepted, and
`balldp predict FOLDER FILE` labels new records.{how}
""".encode()


# -- checks of the folder -------------------------------------------------------------------------


def folder_checks(model: Published, same: bool) -> Iterator[Check]:
    """Whether a folder holds its files, and a card that follows from model and record."""
    source = model.source
    if source is None:
        return
    taken = [name for name in sorted(source.names) if _may_be_taken(name)]
    odd = [f"no {name}" for name in FILES if name not in source.names]
    odd += [f"a further file {one_line(name, 60)}" for name in taken]
    if odd:
        basis = "no further file may pass for a part of the model"
        yield Check("folder", FAIL, "; ".join(odd[:_MAX_NAMED]), basis)
    further = [name for name in source.further if name not in taken]
    usual = sorted({*further} & _USUAL)
    data = [name for name in further if name not in _USUAL]
    if data:
        basis = "they may hold records: take them out before you publish"
        yield Check(
            "further files", WEAK, f"{listed(data, _MAX_NAMED)}: no part of the model", basis
        )
    if usual or README in source.names:
        names = ", ".join([*usual, *({README} & source.names)])
        shown = f"{names}: the publisher's own, or left by tools; not read"
        basis = f"four files are the model, and {CARD} is what was checked"
        yield Check("own texts", STATED, shown, basis)
    if CARD in source.names:
        given = {"change": model.change, "names": model.has_names}
        expected = card_text(model.record, model.named_steps, same, **given)
        yield _card_check(source.card, expected.encode(), model.record.version)


def _may_be_taken(name: str) -> bool:
    """Whether a reader could take a further file of the folder for a part of the model."""
    if name in (*FILES, README) or name.strip().startswith("."):
        return False
    looks = appearance(name)
    stem, ending = looks.split(".")[0], Path(looks).suffix
    # Latin letters beside those of another alphabet, which may look the same.
    mixed = {unicodedata.name(c, "").partition(" ")[0] for c in stem if c.isalpha()} > {"LATIN"}
    imitates = mixed and ending in ("", ".md")
    return stem in _STEMS or ending in _ENDINGS or imitates or not name.isprintable()


def _card_check(card: bytes | None, expected: bytes, version: str) -> Check:
    """Whether a card is, byte for byte, what this version writes of model and record."""
    basis = "it is made again from model and record"
    if card == expected:
        return Check(CARD, PASS, "it is what follows from model and record", basis)
    if card is None:
        return Check(CARD, FAIL, "it is no short text of this folder", basis)
    if version != __version__:
        how = f"this version writes it otherwise than {version} did, or it was changed: install "
        how += "that version to compare it, and do not trust it before"
        return Check(CARD, CANNOT_CHECK, how, basis)
    where = difference(card.decode("utf-8", "replace"), expected.decode())
    return Check(CARD, FAIL, Differs(CARD, where).found, basis)
