"""An encoder of texts or images by the name of its weights, or by what a record says of them."""

from typing import Any

from ..encoder_name import has_digest, same_encoder
from .base import BaseEncoder
from .images import ImageEncoder
from .texts import SentenceEncoder
from .weights import DEFAULT, copies


def encoder_of(kind: str, weights: str | None, **settings: Any) -> BaseEncoder:
    """An encoder of texts or images, by the name of its weights or the default's."""
    if kind == "image":
        return ImageEncoder(**settings, **({} if weights is None else {"weights": weights}))
    return SentenceEncoder(DEFAULT if weights is None else weights, **settings)


def installed(identity: str | None, **settings: Any) -> SentenceEncoder | None:
    """An encoder of texts by its name in a record: weights of this machine that have its digest.

    Nothing is downloaded; None for a name without a digest.
    """
    for folder in copies(identity) if has_digest(identity) else ():
        encoder = SentenceEncoder(str(folder), **settings)
        if same_encoder(encoder.identity, identity):
            return encoder
    return None
