"""Rows that know which encoder they came from, so that the record of a fit can name it."""

from typing import Any

import numpy as np


class EncodedRows(np.ndarray):
    """An ndarray with the name and revision of its encoder, which slices and copies keep."""

    encoder: str | None = None

    def __array_finalize__(self, source: Any) -> None:
        self.encoder = getattr(source, "encoder", None)


def encoded(rows: np.ndarray[Any, Any], encoder: str | None) -> np.ndarray[Any, Any]:
    """The rows with the name of their encoder, if there is one."""
    if encoder is None:
        return rows
    named = rows.view(EncodedRows)
    named.encoder = encoder
    return named


def encoder_of(X: Any) -> str | None:
    """The encoder that rows came from, where they tell."""
    return X.encoder if isinstance(X, EncodedRows) else None
