"""Rows: in memory or in files, passes over them, and their projection onto the ball."""

from .cluster import computed, is_dask, on_cluster
from .device import is_on_device, on_device
from .encoded import EncodedRows, encoded, encoder_of
from .passes import (
    SINGLE_BLAS_THREAD,
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
    tame_input,
    were_tame,
)
from .sources import Rows, from_hdf5, from_parquet, from_zarr
from .table import Part, table_of

__all__ = [
    "SINGLE_BLAS_THREAD",
    "EncodedRows",
    "Part",
    "Rows",
    "ball_factors",
    "block_rows",
    "check_unchanged",
    "computed",
    "domain_factors",
    "encoded",
    "encoder_of",
    "from_hdf5",
    "from_parquet",
    "from_zarr",
    "is_dask",
    "is_on_device",
    "n_threads",
    "on_cluster",
    "on_device",
    "place_rows",
    "project_onto_ball",
    "row_blocks",
    "rows_in_domain",
    "shards_of",
    "table_of",
    "tame_input",
    "were_tame",
    "working_precision",
]
