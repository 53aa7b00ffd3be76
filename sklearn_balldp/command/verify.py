"""``balldp verify``: check a published model from the command line."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from ..publish import Verdict
from ..publish import verify as verdict_of
from ..publish.model import Published
from .files import Columns, table_of
from .options import InputError
from .records import aligned, declared_cells, read


def verify(options: argparse.Namespace) -> Verdict:
    """Check the model."""
    private = options.private
    if options.label is not None or options.owner is not None:
        if None in (private, options.label):
            raise InputError("--label, and --owner, are for --private FILE: pass these together.")
        private = _as_trained(Path(private), options)
    elif private is not None and not private.lower().endswith(".npz"):
        raise InputError(
            f"--private {private}: name the --label that train was told, and the --owner if it was "
            "told one; or save X and y as the head took them (numpy.savez)."
        )
    return verdict_of(
        options.model, private=private, earlier=options.earlier, encoder=options.encoder
    )


def _as_trained(path: Path, options: argparse.Namespace) -> dict[str, Any] | None:
    """Private records as train took them from a file; None where the folder holds no model."""
    try:
        published = Published.read(options.model)
        kind, classes = published.kind, published.labels.tolist()
        table = published.pipeline()[0] if kind == "tables" else None
    except ValueError:
        # The verdict says what is wrong with it.
        return None
    name = {"texts": "text", "images": "image", "rows": "embedding"}.get(kind)
    content: dict[str, Any] = {} if name is None else {name: published.column or name}
    columns = Columns(label=options.label, owner=options.owner, table=table, **content)
    records = read(path, columns, missing="drop")
    X = records.X
    if table is not None:
        cells = declared_cells(table_of(path, columns), table)
        X = {name: [own[i] for i in records.kept] for name, own in cells.items()}
    own = {str(label): label for label in classes}
    y = [own.get(label, label) for label in aligned(np.asarray(records.y).tolist(), own)]
    return {"X": X, "y": np.array(y), **records.groups}
