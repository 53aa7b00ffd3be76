"""Embeddings from a file of the user's, and messages that come with the package."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Bunch

_ARRAYS = ("X_train", "y_train", "X_test", "y_test")


def load_embeddings(path: Any, *, normalize: bool = True) -> Bunch:
    """Embeddings of both splits of a dataset, from one file.

    Parameters
    ----------
    path : str or path-like
        A ``.npz`` file with arrays X_train, y_train, X_test and y_test.
    normalize : bool, default=True
        Scale rows to unit norm: each on its own, so that adjacency is kept.

    Returns
    -------
    Bunch
        X_train and X_test as float32 of shape (n_samples, n_features), y_train and y_test.

    Raises
    ------
    OSError
        If there is no such file.
    ValueError
        If an array is missing.
    """
    with np.load(path) as file:
        missing = [name for name in _ARRAYS if name not in file]
        if missing:
            raise ValueError(
                f"{path} lacks the array(s) {', '.join(missing)}; it needs {', '.join(_ARRAYS)}."
            )
        try:
            arrays = {name: file[name] for name in _ARRAYS}
        except ValueError as error:
            if "allow_pickle" not in str(error):
                raise
            raise ValueError(
                f"{path} holds Python objects, which are not loaded; save labels as y.astype(str)."
            ) from error
    for name in ("X_train", "X_test"):
        rows = np.asarray(arrays[name], dtype=np.float32)
        arrays[name] = unit_rows(rows) if normalize else rows
    return Bunch(**arrays)


def load_messages() -> Bunch:
    """Messages of a bank's customers on four topics, with their embeddings.

    They are real, public, and stand for private ones in the tutorial. The Bunch has ``texts_train``
    of 717 messages, ``X_train`` (float32 rows of unit norm, shape (717, 384), by all-MiniLM-L6-v2)
    and ``y_train`` (topics); the same with ``test``, of 160.

    References
    ----------
    Casanueva et al., "Efficient Intent Detection with Dual Sentence Encoders" (2020): BANKING77, by
    PolyAI, under CC BY 4.0. Four of its 77 topics.

    Examples
    --------
    >>> from sklearn_balldp.datasets import load_messages
    >>> load_messages().X_train.shape
    (717, 384)
    """
    with np.load(Path(__file__).parent / "messages.npz") as file:
        arrays = dict(file)
    return Bunch(**{k: unit_rows(v) if k[0] == "X" else v for k, v in arrays.items()})


def unit_rows(X: ArrayLike) -> NDArray[np.float32]:
    """New rows of unit norm as float32; a zero row stays zero."""
    X = np.asarray(X, dtype=np.float32)
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.finfo(np.float32).tiny)
