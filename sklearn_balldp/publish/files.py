"""Files of a published model: named arrays and JSON, each of which can be written in one way only.

What is read is written again, and must give the same bytes. So a file has no place for anything
that no reader looks at: spaces, comments, keys given twice, gaps between arrays. Text may have the
line ends of another system, as a copy of a repository gets them.
"""

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ..encoder_weights import from_hub, hub_name
from ..text import one_line

README, CONFIG, MODEL, RECORD = "README.md", "config.json", "model.safetensors", "release.json"
FILES = (README, CONFIG, MODEL, RECORD)
#: Longer files are no model of a head: the reader's memory is not a stranger's.
_MOST_BYTES, _MOST_TEXT = 2**29, 2**24
_FAULTS = (ValueError, TypeError, KeyError, OverflowError, RecursionError, SafetensorError)


@dataclass(frozen=True, eq=False)
class Files:
    """What a folder holds; of each file that is read, all at once.

    Attributes
    ----------
    arrays, record, config : dict
        Of the three files that are data.
    config_text : str
        The text of ``config.json``.
    readme : str or None
        The text of ``README.md``; None if it is no short text of this folder.
    names : frozenset of str
        Names of everything in the folder.
    """

    arrays: dict[str, NDArray[Any]]
    record: dict[str, Any]
    config: dict[str, Any]
    config_text: str
    readme: str | None
    names: frozenset[str]


def read_folder(path: str | Path) -> Files:
    """The files of a folder, or of the hub's repository of that name.

    Raises
    ------
    ValueError
        If there is no such folder, or a file of data cannot be read.
    """
    folder = located(path)
    root = root_of(folder)
    return Files(
        record=read_json(folder / RECORD, root),
        config=read_json(folder / CONFIG, root),
        arrays=read_arrays(folder / MODEL, root),
        config_text=text_of(folder / CONFIG, root) or "",
        readme=text_of(folder / README, root),
        names=frozenset(path.name for path in folder.iterdir()),
    )


def arrays_text(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Arrays as the bytes of a safetensors file."""
    return save({name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)})


def json_text(value: Any) -> bytes:
    """A value as the bytes of a JSON file."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def config_text(config: Mapping[str, Any], others: Mapping[str, NDArray[Any]]) -> str:
    """The text of ``config.json``, with a digest of arrays that the record's does not cover."""
    digest = sha256(arrays_text(others)).hexdigest() if others else None
    return json_text({**config, "digest": digest}).decode()


def read_arrays(path: Path, root: Path) -> dict[str, NDArray[Any]]:
    """Arrays of a safetensors file."""
    body = _body(path, root, _MOST_BYTES)
    arrays = _parsed(path, lambda: load(body))
    if _parsed(path, lambda: arrays_text(arrays)) != body:
        raise ValueError(f"{path.name} is not written as this package writes it.")
    return arrays


def read_json(path: Path, root: Path) -> dict[str, Any]:
    """An object of a JSON file."""
    body = _body(path, root, _MOST_TEXT).replace(b"\r\n", b"\n")
    found = _parsed(path, lambda: json.loads(body))
    expected = _parsed(path, lambda: json_text(found))
    if expected != body:
        where = difference(body.decode("utf-8", "replace"), expected.decode())
        raise ValueError(f"{path.name} is not written as this package writes it: {where}.")
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} holds no JSON object.")
    return found


def text_of(path: Path, root: Path) -> str | None:
    """A short text with line feeds as line ends; None where there is none."""
    try:
        return _body(path, root, _MOST_TEXT).decode("utf-8", "replace").replace("\r\n", "\n")
    except ValueError:
        return None


@contextmanager
def written_as_a_whole(folder: Path) -> Iterator[Path]:
    """A new folder to write to, which takes its name, and another's place, if nothing fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder: its name is taken once all files are there.
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as place:
        new, old = Path(place, "new"), Path(place, "old")
        new.mkdir()
        yield new
        if folder.exists():
            os.rename(folder, old)
        try:
            os.rename(new, folder)
        except BaseException:
            if old.exists():
                os.rename(old, folder)
            raise


def difference(text: str, expected: str) -> str:
    """The first line in which two texts differ, in words."""
    pairs = zip_longest(text.split("\n"), expected.split("\n"))
    for number, (line, other) in enumerate(pairs, 1):
        if line != other:
            # Of long lines, from shortly before they part.
            letters = enumerate(zip_longest(line or "", other or ""))
            start = max(0, next((i for i, (a, b) in letters if a != b), 0) - 20)
            shown, wanted = (
                "nothing" if part is None else repr(one_line(part[start:].strip(" "), 60))
                for part in (line, other)
            )
            return f"line {number} is {shown}, expected {wanted}"
    return "no line differs"


def located(path: str | Path) -> Path:
    """The folder; or where the four files of ``hf://OWNER/NAME`` were downloaded to."""
    folder, hub = Path(path), hub_name(str(path))
    if hub is not None:
        try:
            return from_hub(*hub, FILES)
        except ValueError as error:
            raise ValueError(f"{error}; name a folder of this machine.") from None
    if not folder.is_dir():
        what = "is a file, and no folder" if folder.exists() else "is no folder"
        raise ValueError(
            f"{str(path)!r} {what}; name the folder that publish.save wrote, or hf://OWNER/NAME on "
            "the model hub."
        )
    return folder


def root_of(folder: Path) -> Path:
    """The folder that links may lead into: the folder itself, or that of a hub's cache.

    The hub's cache keeps files under ``blobs``, and links to them under ``snapshots/REVISION``.
    """
    own = folder.resolve()
    cached = own.parent.name == "snapshots" and own.parents[1].name.startswith("models--")
    return own.parents[1] if cached else own


def _body(path: Path, root: Path, most: int) -> bytes:
    if not path.is_file():
        raise ValueError(f"{str(path.parent)!r} holds no {path.name}; ask for the whole folder.")
    if not path.resolve().is_relative_to(root):
        raise ValueError(f"{path.name} is a link that leads out of its folder; ask for the file.")
    if path.stat().st_size > most:
        raise ValueError(f"{path.name} is longer than {most} bytes.")
    return path.read_bytes()


def _parsed(path: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except _FAULTS as error:
        raise ValueError(f"{path.name} cannot be read ({type(error).__name__}).") from None


def load_record(path: str | Path) -> dict[str, Any]:
    """A record as written by ``json.dump(release_.to_dict(), file)``, however it is indented."""
    path = Path(path)
    name, twice = f"release={str(path)!r}", list[str]()

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        held = dict(pairs)
        if len(held) < len(pairs):
            keys = [key for key, _ in pairs]
            twice.extend(key for key in held if keys.count(key) > 1)
        return held

    if not path.is_file():
        raise ValueError(f"{name} is no file.")
    if path.stat().st_size > _MOST_TEXT:
        raise ValueError(f"{name} is longer than {_MOST_TEXT} bytes.")
    try:
        record = json.loads(path.read_bytes(), object_pairs_hook=once)
    except _FAULTS as error:
        raise ValueError(f"{name} is no JSON ({type(error).__name__}).") from None
    if twice:
        keys = one_line(", ".join(twice))
        raise ValueError(f"{name} holds {keys} more than once: readers may differ.")
    if not isinstance(record, dict):
        raise ValueError(f"{name} is no record; write release_.to_dict() into it.")
    return record


def load_rows(path: str | Path) -> dict[str, NDArray[Any]]:
    """Private records of an npz file: X and y, or X_train and y_train, and groups if it has any."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"private={str(path)!r} is no file.")
    try:
        # Objects would run code of the file's.
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            held: dict[str, NDArray[Any]] = {key: file[key] for key in file.files}
    except Exception as error:
        raise ValueError(
            f"private={str(path)!r} is no npz file of plain arrays ({type(error).__name__}: "
            f"{error})."
        ) from None
    declared = {name: held[name] for name in ("groups",) if name in held}
    for rows, labels in (("X", "y"), ("X_train", "y_train")):
        if rows in held and labels in held:
            return {"X": held[rows], "y": held[labels], **declared}
    raise ValueError(
        f"private={str(path)!r} holds {one_line(', '.join(held))}; save X and y in it "
        "(numpy.savez(FILE, X=X, y=y))."
    )
