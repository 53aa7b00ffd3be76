"""``balldp predict``: labels of new records, by a model from a folder."""

import argparse
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
from ..encoder_weights import installed
from ..encoders import SentenceEncoder
from ..pipelines import ModelParts, parts_of
from ..publish.folder import kind_of, loaded, located
from ..publish.model import Published
from ..text import one_line
from .tables import Columns, InputError, contents_of, names_of, parts_of_table

#: Columns that are added.
LABEL, PROBABILITY = "prediction", "probability"
# Values of rows that are held at a time, whatever width a stranger's steps give them.
_MOST_VALUES = 2**22


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of predict."""
    parser.add_argument("folder", metavar="DIR", help="folder of the model")
    parser.add_argument("file", type=Path, metavar="FILE", help="new records")
    parser.add_argument(
        "--column",
        "--text",
        "--image",
        "--embedding",
        dest="column",
        help="column of the records (default: text, image or embedding, or the only one)",
    )
    parser.add_argument("--out", type=Path, help="CSV to write (default: the terminal)")
    parser.add_argument(
        "--encoder",
        metavar="NAME|FOLDER",
        help="weights that you trust (default: installed ones of the record's digest)",
    )


def predict(options: argparse.Namespace) -> None:
    """Label the records of a file, part by part; its columns are kept."""
    if options.out is not None and options.out.exists():
        raise InputError(f"--out {options.out} exists; name another file.")
    if options.out is not None and options.out.suffix.lower() not in (".csv", ".tsv"):
        raise InputError(f"--out {options.out} must end in .csv or .tsv.")
    model, published = opened(options.folder, options.encoder)
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


def opened(folder: str, encoder: str | None) -> tuple[Any, Published]:
    """The model of a folder, with an encoder of this machine; and what the folder holds."""
    published = read(folder)
    published.check()
    step, stated = published.encoder, published.record.encoder
    if encoder is not None:
        model = loaded(published, folder, encoder)
        known = parts_of(model).encoder
        if None not in (known, stated) and not same_encoder(known, stated):
            warnings.warn(
                f"--encoder {encoder} is not that of the record ({stated}): labels may be wrong.",
                stacklevel=2,
            )
        return model, published
    weights = None
    if step is not None:
        if step.settings["of"] == "texts":
            like = SentenceEncoder(max_length=step.settings["max_length"])
            weights = installed(like, stated)
        if weights is None:
            raise InputError(
                f"{folder}: no weights on this machine have the digest of its encoder "
                f"({stated or step.settings['name']}); install or name those that you trust "
                "(--encoder FOLDER)."
            )
    return loaded(published, folder, weights), published


def read(folder: str) -> Published:
    """What a folder holds, or the hub's repository of that name."""
    try:
        return Published.read(located(folder))
    except ValueError as error:
        raise InputError(f"model={folder!r}: {error}") from None


def _columns(published: Published, options: argparse.Namespace) -> Columns:
    """Which column holds the records, by what the model takes."""
    kind = {"texts": "text", "images": "image", "rows": "embedding"}[kind_of(published)]
    if options.column is not None or options.file.is_dir():
        return Columns(**{kind: options.column or kind})
    names = names_of(options.file)
    # A column of another name can be meant if it is the only one.
    return Columns(**{kind: names[0] if len(names) == 1 else kind})
