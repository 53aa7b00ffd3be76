"""Messages that come with the package, and rows of unit norm."""

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Bunch


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
