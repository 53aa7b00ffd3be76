"""What encoders of texts and images share: validation, the cache, the progress bar, unit norm.

A record's embedding must depend on that record alone, so that one substitution moves one row.
Batches therefore have fixed shapes: even the rounding of a row does not depend on the other records
of its batch. Models come from sentence-transformers and torchvision; this package adds only the
shapes, the unit norm and the cache.
"""

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils import Tags

from .._parameters import check_whole
from .._validation import raise_alone
from ..datasets import unit_rows
from ..pipelines import Stateless
from ..progress import bar
from ..writing import own_file

Rows = NDArray[np.float32]
# Records after which embeddings are written to the cache.
_KEPT = 512


def require(module: str, name: str, extra: str, beside: str = "") -> None:
    """An error that names the remedy, before anything else is imported."""
    if find_spec(module) is None:
        raise ImportError(
            f"{name} needs {module}: install the extra {extra} (pip install '.[{extra}]' in a copy "
            f"of the repository), or pip install {module.replace('_', '-')}{beside}."
        )


def device_of(torch: Any, device: str | None) -> str:
    return device or ("cuda" if torch.cuda.is_available() else "cpu")


class _Cache:
    """Embeddings on disk by the digest of model, settings and record."""

    def __init__(self, folder: str | Path) -> None:
        self._path = Path(folder) / "embeddings.sqlite"
        with self._open() as base:
            base.execute("CREATE TABLE IF NOT EXISTS row (key BLOB PRIMARY KEY, value BLOB)")

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection; whatever is wrong with the file is a ValueError with the remedy."""
        try:
            # As private as the records, and so its owner's alone.
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            own_file(self._path)
            # Threads and processes share the file; every statement commits by itself.
            base = sqlite3.connect(self._path, timeout=60.0, isolation_level=None)
            with contextlib.closing(base):
                yield base
            return
        except (sqlite3.Error, OSError) as error:
            reason = str(error)
        raise_alone(self._unusable(reason))

    def _unusable(self, reason: str) -> ValueError:
        return ValueError(
            f"{self._path} cannot be used as a cache of embeddings ({reason}): name another folder "
            "(cache_dir=), or remove the file, and they are computed again."
        )

    def read(self, keys: Iterable[bytes]) -> dict[bytes, Rows]:
        query = "SELECT key, value FROM row WHERE key = ?"
        with self._open() as base:
            found = [row for key in keys for row in base.execute(query, (key,))]
        sizes = {len(value) if isinstance(value, bytes) else 1 for _, value in found}
        whole = len(sizes) < 2 and all(size % 4 == 0 for size in sizes)
        rows = {key: np.frombuffer(value, np.float32) for key, value in found} if whole else {}
        norms = np.array([np.linalg.norm(row) for row in rows.values()])
        if not (whole and np.all((norms == 0.0) | (np.abs(norms - 1.0) < 0.01))):
            raise self._unusable("a row in it is damaged")
        return rows

    def write(self, rows: dict[bytes, Rows]) -> None:
        values = [(key, row.tobytes()) for key, row in rows.items()]
        with self._open() as base, base:
            base.execute("BEGIN IMMEDIATE")
            base.executemany("INSERT OR REPLACE INTO row VALUES (?, ?)", values)


class BaseEncoder(ClassNamePrefixFeaturesOutMixin, Stateless):
    """What the encoders share: validation, the cache, the progress bar, unit norm.

    Each has ``_records(X)``, the records as a list or a ValueError; ``_identity()``, in JSON the
    model and every setting that moves its output; ``_bytes(record)``, the content of a record;
    ``_encode(records, progress)``, embeddings, each computed on its own; ``_n_features_out``;
    ``identity``, name and digest of the weights, as the record of a fit on its rows states them;
    and ``check_library()``, which asks for the library that all of this needs.
    """

    def _check_parameters(self) -> None:
        if self.batch_size is not None:
            check_whole("batch_size", self.batch_size)

    def fit(self, X: Any, y: Any = None) -> "BaseEncoder":
        """Check parameters and records; nothing is learned.

        Parameters
        ----------
        X : sequence
            Records.
        y : ignored

        Returns
        -------
        self
            The encoder.
        """
        self._check_parameters()
        self._records(X)
        return self

    def transform(self, X: Any) -> Rows:
        """Embed records.

        Parameters
        ----------
        X : sequence
            Records, as ``fit`` takes them.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            float32 rows of unit norm. Pass ``encoder=encoder.identity`` to the head, so that its
            record names where they come from.
        """
        self._check_parameters()
        records = self._records(X)
        if not records:
            return np.empty((0, self._n_features_out), dtype=np.float32)
        if self.cache_dir is None:
            with bar(None, "embed", "record", len(records)) as done:
                return unit_rows(self._encode(records, done.update))
        # The number changes with how a record becomes a row.
        prefix = json.dumps({"format": 2, **self._identity()}, sort_keys=True).encode()
        contents = map(self._bytes, records)
        sized = [(hashlib.sha256(prefix + b"\0" + own).digest(), len(own)) for own in contents]
        keys = [key for key, _ in sized]
        cache = _Cache(self.cache_dir)
        rows = cache.read(dict.fromkeys(keys))
        lacking = {k: r for k, r in zip(keys, records, strict=True) if k not in rows}
        # Long records beside long ones, which share a shape.
        order = sorted(lacking, key=dict(sized).__getitem__, reverse=True)
        with bar(None, "embed", "record", len(order)) as done:
            for start in range(0, len(order), _KEPT):
                part = order[start : start + _KEPT]
                made = unit_rows(self._encode([lacking[key] for key in part], done.update))
                new = dict(zip(part, made, strict=True))
                # Whoever is interrupted goes on from here.
                cache.write(new)
                rows |= new
        return np.stack([rows[key] for key in keys])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags
