"""Files of a published model: named arrays and JSON, each of which can be written in one way only.

What is read is written again, and must give the same bytes. So a file has no place for anything
that no reader looks at: spaces, comments, repeated keys, gaps between arrays. Text may have the
line ends of another system, as a copy of a repository gets them.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ..hub import from_hub, hub_name
from ..pointers import unfetched
from ..showing import one_line

CARD, CONFIG, MODEL, RECORD = "CARD.md", "config.json", "model.safetensors", "release.json"
FILES = (CARD, CONFIG, MODEL, RECORD)
#: The publisher's own text, which is never read.
README = "README.md"
#: Longer files are no model of a head: the reader's memory is not a stranger's.
_MAX_BYTES, _MAX_TEXT = 2**29, 2**24
_FAULTS = (ValueError, TypeError, KeyError, OverflowError, RecursionError, SafetensorError)
# Further files that are looked for, and named.
_MAX_FURTHER = 1000


class Differs(ValueError):
    """A file that can be read, and is not what this version writes of what it holds."""

    def __init__(self, name: str, where: str = "") -> None:
        self.name = name
        self.found = f"it differs from what this version writes{where and f': {where}'}"
        super().__init__(f"{name}: {self.found}.")


@dataclass(frozen=True, eq=False)
class Folder:
    """What a folder holds beside record, settings and arrays."""

    #: ``CARD.md``, with line feeds as line ends; None if it is no short text of this folder.
    card: bytes | None
    #: Names of everything in the folder.
    names: frozenset[str]
    #: Further files, and those of folders in it, by their place.
    further: tuple[str, ...]
    #: What the files of data hold.
    arrays: dict[str, NDArray[Any]]
    record: dict[str, Any]
    config: dict[str, Any]

    @classmethod
    def of(cls, path: str | Path) -> "Folder":
        """Read a folder, or one of the hub; a ValueError if a file of data cannot be read."""
        folder = located(path)
        # The hub's cache keeps files under "blobs", and links to them under "snapshots/REVISION".
        root = Path(os.path.realpath(folder))
        if root.parent.name == "snapshots" and root.parents[1].name.startswith("models--"):
            root = root.parents[1]

        def leads_out(path: Path) -> bool:
            return not Path(os.path.realpath(path)).is_relative_to(root)

        for name in (RECORD, CONFIG, MODEL):
            if leads_out(folder / name):
                raise ValueError(
                    f"{name} is a link that leads out of its folder; ask for the file."
                )
        return cls(
            None if leads_out(folder / CARD) else text_of(folder / CARD),
            frozenset(path.name for path in folder.iterdir()),
            tuple(islice(_further(folder, leads_out), _MAX_FURTHER)),
            read_arrays(folder / MODEL),
            *(read_json(folder / name) for name in (RECORD, CONFIG)),
        )


def _further(folder: Path, leads_out: Callable[[Path], bool]) -> Iterator[str]:
    """What a folder holds beside the model and the publisher's text; links are not followed."""
    own, locked = {folder / name for name in (*FILES, README)}, list[OSError]()
    for place, folders, files in os.walk(folder, onerror=locked.append):
        # What an archive of changes holds is named by its folder.
        closed = {n for n in folders if n.startswith(".") or Path(place, n).is_symlink()}
        folders[:] = sorted({*folders} - closed)
        for path in (Path(place, name) for name in sorted([*files, *closed])):
            linked = " (a link)" if leads_out(path) else ""
            if linked or path not in own:
                yield f"{path.relative_to(folder).as_posix()}{linked}"
        if not folders and not files and not closed and Path(place) != folder:
            yield Path(place).relative_to(folder).as_posix()
    for error in locked:
        yield f"{Path(error.filename).relative_to(folder).as_posix()} (cannot be opened)"


def arrays_text(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Arrays as the bytes of a safetensors file."""
    return save({name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)})


def json_text(value: Any) -> bytes:
    """A value as the bytes of a JSON file."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Arrays of a safetensors file."""
    arrays, differs = _read_again(path, _body(path, _MAX_BYTES), load, arrays_text)
    if differs:
        raise Differs(path.name)
    return dict(arrays)


def read_json(path: Path) -> dict[str, Any]:
    """An object of a JSON file."""
    body = _body(path, _MAX_TEXT).replace(b"\r\n", b"\n")
    value, differs = _read_again(path, body, json.loads, json_text)
    if differs:
        where = difference(body.decode("utf-8", "replace"), json_text(value).decode())
        raise Differs(path.name, where)
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} holds no JSON object.")
    return value


def _read_again(
    path: Path, body: bytes, read: Callable[[bytes], Any], write: Callable[[Any], bytes]
) -> tuple[Any, bool]:
    """What the bytes of a file hold, and whether it is written in another way."""
    try:
        value = read(body)
        return value, write(value) != body
    except _FAULTS as error:
        raise ValueError(f"{path.name} cannot be read ({type(error).__name__}).") from None


def text_of(path: Path) -> bytes | None:
    """A short text with line feeds as line ends; None where there is none."""
    try:
        return _body(path, _MAX_TEXT).replace(b"\r\n", b"\n")
    except ValueError:
        return None


def _body(path: Path, max_bytes: int) -> bytes:
    if not path.is_file():
        raise ValueError(f"{str(path.parent)!r} holds no {path.name}; ask for the whole folder.")
    fault = unfetched(path)
    if fault is not None:
        raise ValueError(f"{path.name}: {fault}.")
    if path.stat().st_size > max_bytes:
        raise ValueError(f"{path.name} is longer than {max_bytes} bytes.")
    return path.read_bytes()


def difference(text: str, expected: str) -> str:
    """The first line in which two texts differ, in words."""
    if text.rstrip("\n") == expected.rstrip("\n") and text != expected:
        ends = [len(part) - len(part.rstrip("\n")) for part in (text, expected)]
        return "behind its last line are {} line ends, expected {}".format(*ends)
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


def load_rows(path: str | Path) -> dict[str, NDArray[Any]]:
    """Private records of an npz file: X and y, or X_train and y_train, and groups if it has any."""
    path = Path(path)
    name = f"private={str(path)!r}"
    if not path.is_file():
        raise ValueError(f"{name} is no file.")
    try:
        # Objects would run code of the file's.
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            held: dict[str, NDArray[Any]] = {key: file[key] for key in file.files}
    except Exception as error:
        kind = type(error).__name__
        raise ValueError(f"{name} is no npz file of plain arrays ({kind}: {error}).") from None
    for rows, labels in (("X", "y"), ("X_train", "y_train")):
        if rows in held and labels in held:
            owners = {"groups": held["groups"]} if "groups" in held else {}
            return {"X": held[rows], "y": held[labels], **owners}
    raise ValueError(
        f"{name} holds {one_line(', '.join(held))}; save X and y in it "
        "(numpy.savez(FILE, X=X, y=y))."
    )
