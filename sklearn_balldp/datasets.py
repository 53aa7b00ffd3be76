"""Messages that come with the package, bounds of a public table, and rows of unit norm."""

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Bunch

_NUCLEI: dict[str, tuple[float, float]] = {
    "radius": (5, 30),
    "texture": (5, 40),
    "perimeter": (30, 190),
    "area": (75, 2800),
    "smoothness": (0.04, 0.18),
    "compactness": (0, 0.4),
    "concavity": (0, 0.5),
    "concave points": (0, 0.25),
    "symmetry": (0.1, 0.35),
    "fractal dimension": (0.04, 0.1),
}
#: What the columns of ``sklearn.datasets.load_breast_cancer`` may hold, for a
#: :class:`~sklearn_balldp.encoders.TableEncoder`: radii of nuclei of cells from 5 to 30, perimeters
#: and areas of circles of these radii. The other bounds are round numbers without a source, set
#: with these public records at hand; those of private records must come from elsewhere.
BREAST_CANCER: dict[str, list[float]] = {
    **{f"mean {name}": [low, high] for name, (low, high) in _NUCLEI.items()},
    **{f"{name} error": [0, high / 10] for name, (_, high) in _NUCLEI.items()},
    **{f"worst {name}": [low, round(1.5 * high, 3)] for name, (low, high) in _NUCLEI.items()},
}


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
