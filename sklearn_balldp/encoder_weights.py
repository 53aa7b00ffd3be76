"""Weights of encoders on this machine: a folder, a package that carries some, or a cache."""

import importlib.util
import site
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .encoder_name import has_digest, same_encoder
from .encoders import BaseEncoder, ImageEncoder, SentenceEncoder

#: A file that every folder of a sentence-transformers model has.
_MARK = "modules.json"


def named_by_digest(encoder: Any) -> Any:
    """The same encoder, by the folder of the hub's cache that its weights lie in.

    A record then has their digest, by which others find them. The weights are downloaded if they
    are not there.
    """
    if not isinstance(encoder, SentenceEncoder) or Path(encoder.model).exists():
        return encoder
    encoder.transform(["one text"])
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return encoder
    mark = try_to_load_from_cache(str(encoder.model), _MARK, revision=encoder.revision)
    if not isinstance(mark, str):
        return encoder
    return SentenceEncoder(str(Path(mark).parent), max_length=encoder.max_length)


def encoder_of(kind: str, weights: str | None, max_length: int | None = None) -> BaseEncoder:
    """An encoder of texts or images, whose weights are a file, a folder, a package or a name.

    A name of a model of texts may have a revision, NAME@REVISION.
    """
    if kind == "image":
        return ImageEncoder() if weights is None else ImageEncoder(weights=weights)
    if weights is None:
        return SentenceEncoder(max_length=max_length)
    weights = located(weights)
    name, at, revision = weights.partition("@")
    if not at or Path(weights).exists():
        return SentenceEncoder(weights, max_length=max_length)
    return SentenceEncoder(name, revision=revision, max_length=max_length)


def located(weights: str) -> str:
    """The folder of a package that carries weights; other names and folders as they are."""
    if not weights.strip():
        raise ValueError("encoder='' names no weights; give a name or a folder.")
    if Path(weights).exists():
        return weights
    package = weights.replace("-", "_")
    if package.isidentifier():
        found = importlib.util.find_spec(package)
        for place in (found.submodule_search_locations or []) if found else []:
            folders = [Path(place), *(p for p in Path(place).iterdir() if p.is_dir())]
            own = [folder for folder in folders if (folder / _MARK).is_file()]
            if own:
                return str(own[0])
    return weights


def installed(stated: Any, identity: str | None) -> BaseEncoder | None:
    """An encoder whose weights lie on this machine and have the digest of a record.

    Parameters
    ----------
    stated : BaseEncoder
        The model's own encoder, of whose settings only the length of texts counts.
    identity : str or None
        What the record names. Nothing is downloaded, and a name without a digest finds nothing.
    """
    if not isinstance(stated, SentenceEncoder) or not has_digest(identity):
        return None
    for folder in _folders():
        own = SentenceEncoder(str(folder), max_length=stated.max_length)
        if same_encoder(own.identity, identity):
            return own
    return None


def _folders() -> Iterator[Path]:
    """Folders of installed packages, and of the hub's cache, that hold such weights."""
    packages = {*site.getsitepackages(), *(p for p in sys.path if p.endswith("site-packages"))}
    for place in sorted(packages):
        for mark in sorted(Path(place).glob(f"*/{_MARK}")) + sorted(
            Path(place).glob(f"*/*/{_MARK}")
        ):
            yield mark.parent
    try:
        from huggingface_hub.constants import HF_HUB_CACHE
    except ImportError:
        return
    cache = Path(HF_HUB_CACHE)
    for mark in sorted(cache.glob(f"models--*/snapshots/*/{_MARK}")):
        yield mark.parent
