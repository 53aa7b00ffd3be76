"""``balldp embed``: rows of texts or pictures, made once, which other commands take as they are.

It is public work: it draws no noise, and spends nothing. Its file is as private as the records.
"""

import argparse
import io
import json
import shutil
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator

from ..edits import edit_pairs
from ..encoders import SentenceEncoder
from ..encoders.base import BaseEncoder
from ..encoders.named import encoder_of
from ..encoders.weights import DEFAULT, hub_name, located
from ..progress import shown
from ..publish.steps import Encoder, NamedEncoder, Step, step_of
from ..radius import RadiusPolicy
from ..writing import write_new
from .names import NAMES, beside_of
from .options import HIDDEN_EDITS, InputError
from .records import Records, read
from .table import BESIDE, Columns

#: The array of the rows, and the one that says what made them.
EMBEDDING, _MADE = "embedding", f"{BESIDE}made"
# Arrays of rows before and after an edit, and the number of the record that each was made of.
_EDITS = tuple(f"{BESIDE}edits_{name}" for name in ("before", "after", "record"))


class _Made(msgspec.Struct, forbid_unknown_fields=True):
    """What a file of rows says of them: their encoder, and the column that it read."""

    step: Encoder
    column: str


def embed(options: argparse.Namespace) -> None:
    """Write the rows of a file, with its labels and owners."""
    out, start = options.out, time.monotonic()
    columns = Columns(options.text, options.image, label=options.label, owner=options.owner)
    encoder = encoder_from(columns.kind, options, options.cache or parts_of(out))
    records = read(options.file, columns, missing=options.missing)
    for name in columns.named:
        if name == EMBEDDING or name.startswith(BESIDE):
            raise InputError(f"{options.file}: rename the column {name!r}, as the rows use it.")
    beside = beside_of(options, records, encoder)
    made = rows_of(options.file, records, encoder, columns.content, edits=options.edits)
    made.beside.update(beside)
    held = zip(columns.named, (a for a in (made.y, made.owners) if a is not None), strict=True)
    body = io.BytesIO()
    np.savez(body, **{EMBEDDING: made.X, **dict(held), **made.beside})
    write_new(out, body.getvalue(), private=True)
    if options.cache is None:
        shutil.rmtree(parts_of(out), ignore_errors=True)
    n, width = made.X.shape
    print(f"Wrote     {out}: {n:,} rows of {width} numbers, in {time.monotonic() - start:.0f} s")
    if beside:
        print(f"Names     of {len(beside[NAMES]):,} classes are embedded too, as they are public")
    if records.n_dropped:
        print(f"{'':10}{records.n_dropped:,} records lacked something and are left out")
    if options.edits:
        choice = radius_of_edits(made).estimator.choice_
        print(
            f"Edits     {choice.origin.n:,}; {HIDDEN_EDITS:.0%} of them move a row by up to",
            end=" ",
        )
        print(f"{choice.value:.3g} (train --radius edits --public {out})")
    print(f"Next      balldp plan {out} --embedding {EMBEDDING} --label ... --radius ...")


def interrupted(options: argparse.Namespace) -> str:
    """What a run has done that was interrupted, in words."""
    kept = options.cache or parts_of(options.out)
    if not kept.exists():
        return "nothing was written"
    return f"what it has embedded lies in {kept}, and the same command goes on from there"


def parts_of(out: Path) -> Path:
    """Where embeddings are kept until the file of rows is written."""
    return out.with_name(f"{out.name}.part")


def encoder_from(kind: str, options: argparse.Namespace, cache: Path | None) -> BaseEncoder:
    """The encoder that options name; an error, before a file is read, if it cannot be used."""
    name = options.encoder
    if kind == "text" and name not in (None, DEFAULT) and hub_name(name) is None:
        # A name that means nothing is mistyped.
        located(name)
    length = {} if options.max_length is None else {"max_length": options.max_length}
    encoder = encoder_of(kind, name, cache_dir=cache, **length)
    encoder.check_library()
    return encoder


def rows_of(
    path: Path, records: Records, encoder: BaseEncoder, column: str, *, edits: bool = False
) -> Records:
    """The same records as rows, with what made them, as a file of rows holds it."""
    if isinstance(encoder, SentenceEncoder):
        tell_cut(path, records.X, encoder)
    with shown(True):
        X, step = encoder.transform(records.X), step_of(encoder)
        assert step is not None
        said = {"step": {"kind": step.kind, **step.settings}, "column": column}
        beside: dict[str, Any] = {_MADE: np.array(json.dumps(said))}
        beside |= edits_of(records.X, encoder) if edits else {}
    return replace(records, X=X, beside=beside)


def edits_of(texts: list[str], encoder: Any) -> dict[str, NDArray[Any]]:
    """Rows of public texts before and after small edits, as a file of rows holds them."""
    pairs = edit_pairs(texts)
    before, after = (encoder.transform(own) for own in (pairs.before, pairs.after))
    return dict(zip(_EDITS, (before, after, pairs.record), strict=True))


def maker_of(path: Path, records: Records) -> tuple[NamedEncoder, str] | None:
    """What made the rows of a file, and the column that it read; None where the file tells nothing.

    An InputError if nothing that :func:`embed` wrote says so.
    """
    if _MADE not in records.beside:
        return None
    try:
        text = str(records.beside[_MADE])
        column = msgspec.json.decode(text, type=_Made).column
    except msgspec.MsgspecError:
        raise InputError(f"{path}: its array {_MADE!r} is not what embed writes.") from None
    settings = json.loads(text)["step"]
    return NamedEncoder(Step(settings.pop("kind"), settings)), column


def radius_of_edits(public: Records) -> Any:
    """A policy that was fitted on edits of public texts; an InputError if rows lack these."""
    if not public.beside.keys() >= {*_EDITS}:
        raise InputError("--radius edits: make the rows of --public by balldp embed --edits.")
    before, after, record = (public.beside[name] for name in _EDITS)
    policy = RadiusPolicy(HIDDEN_EDITS, source="edits")
    return FrozenEstimator(policy.fit(before, after, record=record))


def tell_cut(path: Path, texts: list[str], encoder: SentenceEncoder) -> None:
    """Warn of texts whose ends the encoder does not read, with the length that would do."""
    count, limit, longest, most = encoder.cut(texts)
    if count:
        remedy = f"--max-length {longest} would do"
        if most is not None and longest > most:
            remedy = f"{longest} would do, and the encoder takes {most} at most: divide such texts"
        warnings.warn(
            f"{path}: {count:,} of {len(texts):,} texts are longer than the {limit} tokens that "
            f"are read of each; what follows is ignored. {remedy}, or use another encoder.",
            stacklevel=2,
        )
