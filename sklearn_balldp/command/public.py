"""Public records, compared with others; those of no class are left out."""

import hashlib
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..showing import listed, one_line
from .options import InputError
from .records import Records, aligned, read
from .table import SHOWN, Columns


def read_further(
    option: str, path: Path | None, columns: Columns, others: Records | None
) -> Records | None:
    """Records of a public file that lack nothing, if one is named; others must not pass for them.

    Those of ``--public`` are compared with the private ones, and ``--examples`` with ``--public``
    alone: what is said of the private ones would tell that one is there.
    """
    if path is None:
        return None
    named, found = f"--{option} {path}", read(path, columns, missing="drop")
    if found.n_dropped:
        warnings.warn(
            f"{named}: {found.n_dropped:,} of its records lack something, and are left out.",
            stacklevel=2,
        )
    # Short answers are given by many: what counts is how many different ones there are.
    contents = {*map(_digest, found.X)}
    common = 0 if others is None else len({*map(_digest, others.X)} & contents)
    most, of, remedy = {
        "public": (0.5, "among the private ones", "name records that may be published"),
        "examples": (0.0, "in --public too, which tests the model", "take them out of one of both"),
    }[option]
    # In tables of few values many records are equal by chance.
    if common > (most * len(contents) if columns.table is None else len(found.X) / 2):
        raise InputError(
            f"{named}: {common:,} of its {len(contents):,} different records are {of}; {remedy}."
        )
    if common:
        warnings.warn(f"{named}: {common:,} of its records are {of}.", stacklevel=2)
    return found


def _digest(record: Any) -> bytes:
    # Rows and images would take their memory again.
    body = record.encode() if isinstance(record, str) else np.asarray(record).tobytes()
    return hashlib.blake2b(body, digest_size=16).digest()


def of_classes(named: str, public: Records, classes: Any) -> Records | None:
    """Public records that a model can be right about; None if there are none."""
    y = np.array(aligned(np.asarray(public.y).tolist(), classes))
    labels, counts = np.unique(y, return_counts=True)
    strange = ~np.isin(labels, classes)
    if not strange.any():
        return replace(public, y=y)
    shown = [
        f"{one_line(label, 40)!r} ({count:,} records)"
        for label, count in zip(labels[strange].tolist(), counts[strange], strict=True)
    ]
    places = np.flatnonzero(~np.isin(y, labels[strange]))
    use = f"The other {len(places):,} records are used" if len(places) else "No accuracy is stated"
    warnings.warn(
        f"{named}: {len(shown):,} of its {len(labels):,} labels are no class: "
        f"{listed(shown, SHOWN)}. {use}.",
        stacklevel=2,
    )
    if not len(places):
        return None
    X = public.X[places] if isinstance(public.X, np.ndarray) else [public.X[i] for i in places]
    return replace(public, X=X, y=y[places])
