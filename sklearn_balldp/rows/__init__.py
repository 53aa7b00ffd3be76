"""Rows: passes over them in blocks, and their projection onto the admissible ball."""

from .encoded import EncodedRows, encoded, encoder_of
from .passes import (
    SINGLE_BLAS_THREAD,
    block_rows,
    map_row_ranges,
    row_blocks,
    row_ranges,
    working_precision,
)
from .projection import (
    ball_factors,
    clip_entries,
    factors_into_domain,
    project_onto_ball,
    rows_in_domain,
)

__all__ = [
    "SINGLE_BLAS_THREAD",
    "EncodedRows",
    "ball_factors",
    "block_rows",
    "clip_entries",
    "encoded",
    "encoder_of",
    "factors_into_domain",
    "map_row_ranges",
    "project_onto_ball",
    "row_blocks",
    "row_ranges",
    "rows_in_domain",
    "working_precision",
]
