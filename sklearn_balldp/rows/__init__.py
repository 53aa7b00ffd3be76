"""Rows: in memory, in stores or in Dask; passes over them, and their projection onto the ball."""

from .passes import SINGLE_BLAS_THREAD as SINGLE_BLAS_THREAD
from .passes import blas_threads_for as blas_threads_for
from .passes import blocks_of as blocks_of
from .passes import joined as joined
from .passes import kept_rows as kept_rows
from .passes import total as total
from .projection import REFUSED as REFUSED
from .projection import check_sizes as check_sizes
from .projection import domain_factors as domain_factors
from .projection import project_onto_ball as project_onto_ball
from .projection import rows_in_domain as rows_in_domain
from .sources import RowsError as RowsError
from .sources import in_memory as in_memory
from .sources import rows_outside as rows_outside
from .sources import whole as whole
