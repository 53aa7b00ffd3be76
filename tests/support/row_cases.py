"""Heads, records and files of every format, for rows from every kind of source."""

import numpy as np
import pyarrow as pa
import pytest
import zarr
from pyarrow import parquet
from sklearn.base import clone

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
)
from sklearn_balldp.rows import from_npy, from_parquet, from_zarr

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


#: Formats of Zarr, and all formats: what a chunk or row group holds is an eighth of the rows.
ZARR = ("zarr", "zarr 2", "zarr shards")
LAYOUTS = (*ZARR, "npy", "parquet", "two parquet files", "memmap")


def store(X, layout, folder, written=None):
    """A store of which some rows were written: what opens it, and the files that hold rows."""
    folder.mkdir(exist_ok=True)
    path, n = folder / "x", len(X)
    if layout in ("memmap", "npy"):
        file = folder / "x.npy"
        np.save(file, X)
        return lambda: from_npy(file) if layout == "npy" else np.load(file, mmap_mode="r"), [file]
    if layout.startswith("zarr"):
        options = {"chunks": (n // 8, D), "zarr_format": 2 if "2" in layout else 3}
        options |= {"shards": (n // 2, D)} if "shards" in layout else {}
        array = zarr.create_array(str(path), shape=X.shape, dtype=X.dtype, **options)
        for rows in [slice(None)] if written is None else written:
            array[rows] = X[rows]
        return lambda: from_zarr(path), [f for f in path.rglob("*") if f.name[0] not in "z."]
    cuts, options = {"parquet": [X]}.get(layout, [X[: n // 3], X[n // 3 :]]), {}
    files = [path.with_name(f"x{place or ''}") for place in range(len(cuts))]
    for rows, file in zip(cuts, files, strict=True):
        column = pa.array(list(map(list, rows)), pa.list_(pa.from_numpy_dtype(X.dtype)))
        if layout == "parquet":
            column = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), D)
            options = {"write_page_checksum": True}
        parquet.write_table(pa.table({"e": column}), file, row_group_size=n // 8, **options)
    return lambda: from_parquet(files, "e", verify_checksums=layout == "parquet"), files


def stored(X, layout, folder):
    """The rows in a file of some format."""
    return store(X, layout, folder)[0]()


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


def assert_same(head, other, rtol=0.0, atol=0.0):
    """What both released, bit for bit by default, and the noise that both drew."""
    np.testing.assert_allclose(other.release_.sigma, head.release_.sigma, min(rtol, 1e-9))
    for key, values in head.released_parameters().items():
        exact = values.dtype.kind != "f"
        found, near = other.released_parameters()[key], (0.0, 0.0) if exact else (rtol, atol)
        np.testing.assert_allclose(found, values, *near, err_msg=key)


def assert_refused(name, X, y, match):
    """A fit ends with this error and leaves no release."""
    head = clone(HEADS[name]).set_params(delta=1e-4, radius=0.3)
    with pytest.raises(ValueError, match=match):
        head.fit(X, y)
    assert not hasattr(head, "release_")
