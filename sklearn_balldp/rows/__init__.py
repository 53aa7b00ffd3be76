"""Rows: in memory or in files, passes over them, and their projection onto the ball."""

from .cluster import on_cluster
from .files import from_npy, from_parquet, from_zarr, history_of
from .passes import (
    SINGLE_BLAS_THREAD,
    blas_threads_for,
    block_rows,
    place_rows,
    row_blocks,
    shards_of,
    side_by_side,
    working_precision,
)
from .projection import (
    REFUSED,
    are_plain,
    check_sizes,
    check_unchanged,
    domain_factors,
    project_onto_ball,
    rows_in_domain,
)
from .sources import Rows, RowsError, in_memory
from .table import Shard, table_of

__all__ = [
    "REFUSED",
    "SINGLE_BLAS_THREAD",
    "Rows",
    "RowsError",
    "Shard",
    "are_plain",
    "blas_threads_for",
    "block_rows",
    "check_sizes",
    "check_unchanged",
    "domain_factors",
    "from_npy",
    "from_parquet",
    "from_zarr",
    "history_of",
    "in_memory",
    "on_cluster",
    "place_rows",
    "project_onto_ball",
    "row_blocks",
    "rows_in_domain",
    "shards_of",
    "side_by_side",
    "table_of",
    "working_precision",
]
