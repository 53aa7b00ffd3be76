"""Rows: in memory or in files, passes over them, and their projection onto the ball."""

from .files import from_npy as from_npy
from .files import from_parquet as from_parquet
from .files import from_zarr as from_zarr
from .files import history_of as history_of
from .passes import SINGLE_BLAS_THREAD as SINGLE_BLAS_THREAD
from .passes import blas_threads_for as blas_threads_for
from .passes import each as each
from .passes import row_blocks as row_blocks
from .passes import total as total
from .projection import REFUSED as REFUSED
from .projection import check_sizes as check_sizes
from .projection import domain_factors as domain_factors
from .projection import project_onto_ball as project_onto_ball
from .projection import rows_in_domain as rows_in_domain
from .sources import Rows as Rows
from .sources import RowsError as RowsError
from .sources import in_memory as in_memory
