"""Heads, records and stores of every kind, for rows from everywhere."""

import h5py
import numpy as np
import pytest
import zarr
from sklearn.base import clone

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
)

D = 16
FEW_STEPS = GradientPerturbation(n_steps=5)
MINIMISER = {"mechanism": "output", "alpha": 0.01}
HEADS = {
    "prototypes": BallDPRidgePrototype(),
    "discriminant": BallDPLinearDiscriminant(),
    "discriminant, sphere": BallDPLinearDiscriminant(domain="sphere"),
    "descent": BallDPLogisticRegression(mechanism=GradientPerturbation(n_steps=10)),
    "SVC": BallDPSquaredHingeSVC(mechanism=GradientPerturbation(start="zero", n_steps=10)),
    "minimiser": BallDPLogisticRegression(**MINIMISER),
    "descent, sphere": BallDPLogisticRegression(domain="sphere", mechanism=FEW_STEPS),
    "minimiser, sphere": BallDPLogisticRegression(domain="sphere", **MINIMISER),
}
#: One of each kind of pass.
KINDS = ("prototypes", "discriminant", "descent", "minimiser")


def records(dtype=np.float64, n=3000, n_classes=3):
    """Rows around a long mean, some of them outside of the ball."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, n)
    X = 0.3 * rng.standard_normal((n, D)) + 0.4 * np.eye(n_classes, D)[y] + 0.2
    return X.astype(dtype), y


class Store:
    """Rows of one's own: shape, type and slices, and perhaps not what they say."""

    def __init__(self, X, read=lambda X, rows: X[rows]):
        self.X, self.shape, self.dtype, self._read = X, X.shape, X.dtype, read

    def __getitem__(self, rows):
        return self._read(self.X, rows)


#: Kinds of stores: what a chunk holds is an eighth of the rows.
ZARR = ("zarr", "zarr 2", "zarr shards")
STORES = (*ZARR, "hdf5", "memmap", "own")


def stored(X, kind, folder, written=(slice(None),)):
    """Rows in a store of some kind, of which some were written."""
    folder.mkdir(exist_ok=True)
    path, n = folder / "x", len(X)
    if kind == "own":
        return Store(X)
    if kind == "memmap":
        np.save(folder / "x.npy", X)
        return np.load(folder / "x.npy", mmap_mode="r")
    if kind == "hdf5":
        array = h5py.File(path, "w").create_dataset("x", X.shape, X.dtype, chunks=(n // 8, D))
    else:
        options = {"chunks": (n // 8, D), "zarr_format": 2 if "2" in kind else 3}
        options |= {"shards": (n // 2, D)} if "shards" in kind else {}
        array = zarr.create_array(str(path), shape=X.shape, dtype=X.dtype, **options)
    for rows in written:
        array[rows] = X[rows]
    return array


#: A file that tells of each kind of table which keeps deleted rows.
TABLES = {
    "Delta": "_delta_log/00000000000000000000.json",
    "Hudi": ".hoodie/hoodie.properties",
    "Iceberg": "metadata/v2.metadata.json",
    "Paimon": "snapshot/snapshot-1",
}


def with_history(folder, table, write):
    """A table of two versions: a row of the first was deleted in the second."""
    for file in (folder / TABLES[table], folder / "data" / "0.parquet"):
        file.parent.mkdir(parents=True, exist_ok=True)
    (folder / TABLES[table]).write_text("{}")
    for version in range(2):
        write(folder / "data" / f"{version}.parquet")


def refused_rows(domain):
    """Values of a row that a domain does not admit, at the edge of those that it does."""
    huge = np.nextafter(1e140, np.inf)
    tiny = [np.nextafter(1e-100, 0.0), 1e-170, 5e-324] if domain == "sphere" else []
    return [np.nan, np.inf, -np.inf, huge, -huge, -1e300, *tiny]


def fitted(name, X, y, **sides):
    """A head of this name with seeded noise."""
    head = clone(HEADS[name]).set_params(delta=1e-5, radius=0.3, random_state=0)
    return head.fit(X, y, **sides)


def assert_same(head, other):
    """What both released is the same, but for 1e-12 of its size: and so is the noise both drew.

    Minimisers are as far apart as the tolerance of their solver lets them be.
    """
    np.testing.assert_allclose(other.release_.sigma, head.release_.sigma, rtol=1e-9)
    bound = head.release_.bound
    apart = 2.0 * getattr(bound, "tol", 0.0) / max(head.release_.alpha, 1e-300)
    for key, values in head.released_parameters().items():
        found, exact = other.released_parameters()[key], values.dtype.kind != "f"
        size = 0.0 if exact else 1e-12 * float(np.abs(values).max()) + apart
        np.testing.assert_allclose(found, values, rtol=0.0, atol=size, err_msg=key)


def assert_refused(name, X, y, match):
    """A fit ends with this error and leaves no release."""
    head = clone(HEADS[name]).set_params(delta=1e-4, radius=0.3)
    with pytest.raises(ValueError, match=match):
        head.fit(X, y)
    assert not hasattr(head, "release_")
