"""From records to rows: frozen encoders of texts, images and tables, as transformers."""

from .images import ImageEncoder
from .tables import TableEncoder, UnknownCellsWarning
from .texts import SentenceEncoder

__all__ = ["ImageEncoder", "SentenceEncoder", "TableEncoder", "UnknownCellsWarning"]
