"""``balldp verify``: check a published model from the command line."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..encoder_name import same_encoder
from ..publish import Verdict
from ..publish import verify as verdict_of
from ..publish.model import Published
from .columns import declared_cells
from .embed import EMBEDDING, maker_of
from .files import table_of
from .options import InputError
from .records import aligned, read
from .table import Columns


def verify(options: argparse.Namespace) -> Verdict:
    """Check the model."""
    private, encoder = options.private, options.encoder
    if options.label is not None:
        private, encoder = _as_trained(Path(private), options)
    return verdict_of(options.model, private=private, earlier=options.earlier, encoder=encoder)


@dataclass(frozen=True)
class _Made:
    """In place of an encoder, where records are the rows that it made."""

    identity: str

    def transform(self, X: Any) -> Any:
        return X


def _as_trained(path: Path, options: argparse.Namespace) -> tuple[dict[str, Any] | None, Any]:
    """Private records as train took them, None where the folder holds no model; their encoder."""
    try:
        published = Published.read(options.model)
        classes = published.labels.tolist()
        columns = Columns.of(published, label=options.label, owner=options.owner)
    except ValueError:
        # The verdict says what is wrong with it.
        return None, None
    of_rows = published.encoder is not None and path.suffix.lower() == ".npz"
    if of_rows and table_of(path, Columns()).beside:
        columns = Columns(embedding=EMBEDDING, label=options.label, owner=options.owner)
    records = read(path, columns, missing="drop")
    made, encoder = maker_of(path, records), options.encoder
    if made is not None:
        maker, other = made[0].identity, published.record.encoder
        encoder = _Made(maker)
        if options.encoder is not None or same_encoder(maker, other) is False:
            raise InputError(
                f"--private {path}: its rows were made by {maker}, the model's by {other}; leave "
                "--encoder out, or name the rows of the fit."
            )
    X = records.X
    if columns.table is not None:
        cells = declared_cells(table_of(path, columns), columns.table)
        X = {name: [own[i] for i in records.kept] for name, own in cells.items()}
    own = {str(label): label for label in classes}
    y = [own.get(label, label) for label in aligned(np.asarray(records.y).tolist(), own)]
    return {"X": X, "y": np.array(y), **records.groups}, encoder
