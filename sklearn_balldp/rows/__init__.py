"""Rows: in memory or in files, passes over them, and their projection onto the ball."""

from .cluster import computed, on_cluster
from .dense import DenseRows
from .device import as_rows, on_device
from .passes import (
    SINGLE_BLAS_THREAD,
    blas_threads_for,
    block_rows,
    n_threads,
    place_rows,
    row_blocks,
    shards_of,
    working_precision,
)
from .projection import (
    ball_factors,
    check_unchanged,
    domain_factors,
    project_onto_ball,
    rows_in_domain,
    squarable_input,
    were_squarable,
)
from .sources import Rows, from_hdf5, from_parquet, from_zarr
from .table import Shard, table_of

__all__ = [
    "SINGLE_BLAS_THREAD",
    "DenseRows",
    "Rows",
    "Shard",
    "as_rows",
    "ball_factors",
    "blas_threads_for",
    "block_rows",
    "check_unchanged",
    "computed",
    "domain_factors",
    "from_hdf5",
    "from_parquet",
    "from_zarr",
    "n_threads",
    "on_cluster",
    "on_device",
    "place_rows",
    "project_onto_ball",
    "row_blocks",
    "rows_in_domain",
    "shards_of",
    "squarable_input",
    "table_of",
    "were_squarable",
    "working_precision",
]
