"""Models, records, private rows and transcripts from files, without running what they hold."""

import json
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..heads import Transcript
from .tree import array_of, tree_of_skops

#: A file may unpack to so many bytes, or to twice its own length: noise cannot be compressed.
_MOST_BYTES = 2**26
#: No description of a model, and no record, is longer.
_MOST_JSON = 2**23
_MOST_MEMBERS = 10_000


class _Archive:
    """Members of a zip file, each read once, after their sizes were added up."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path)
        members = self._zip.infolist()
        if len(members) > _MOST_MEMBERS:
            raise ValueError(f"it has {len(members)} members")
        self._members = {member.filename: member for member in members}
        if len(self._members) < len(members):
            raise ValueError("two members have one name")
        size = sum(member.file_size for member in members)
        if size > max(_MOST_BYTES, 2 * path.stat().st_size):
            raise ValueError(f"it would unpack to {size} bytes")
        if any(member.compress_type not in (0, 8) for member in members):
            raise ValueError("its compression is none that is read")
        self._read: dict[str, NDArray[Any]] = {}

    def body(self, name: str) -> bytes:
        with self._zip.open(self._members[name]) as file:
            return file.read()

    def array(self, name: str) -> NDArray[Any]:
        if name not in self._read:
            self._read[name] = array_of(self.body(name))
        return self._read[name]

    @property
    def names(self) -> list[str]:
        return list(self._members)

    def others(self, *known: str) -> list[str]:
        """Members that nobody asked for."""
        return [name for name in self._members if name not in self._read and name not in known]


def load_model(path: str | Path, *, allow_joblib: bool = False) -> tuple[Any, list[str]]:
    """What a skops file holds, as a tree, and the members that do not belong to it.

    A joblib or pickle file gives the model itself, and only when asked to: it runs code.
    """
    path = _existing(path, "model")
    if path.suffix != ".skops":
        if not allow_joblib:
            raise ValueError(
                f"model={str(path)!r}: only .skops files are loaded without running code of "
                "theirs; ask for such a file, or allow joblib for a publisher whom you trust "
                "(--joblib, allow_joblib=True)."
            )
        import joblib

        return _read(lambda: joblib.load(path), f"model={str(path)!r} is no joblib file"), []

    def read() -> tuple[Any, list[str]]:
        archive = _Archive(path)
        schema = json.loads(_short(archive.body("schema.json")))
        tree = tree_of_skops(schema, archive.array)
        return tree, archive.others("schema.json")

    return _read(read, f"model={str(path)!r} is no skops file")


def _short(text: bytes) -> str:
    if len(text) > _MOST_JSON:
        raise ValueError(f"its text is {len(text)} bytes long")
    return text.decode("utf-8")


def load_record(path: str | Path) -> dict[str, Any]:
    """A record as written by ``json.dump(release_.to_dict(), file)``."""
    path = _existing(path, "release")
    name = f"release={str(path)!r}"
    twice: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.extend(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        return dict(pairs)

    def read() -> Any:
        if path.stat().st_size > _MOST_JSON:
            raise ValueError("it is too long")
        return json.loads(_short(path.read_bytes()), object_pairs_hook=once)

    record = _read(read, f"{name} is no JSON")
    if twice:
        raise ValueError(f"{name} holds {', '.join(twice)} more than once: readers may differ.")
    if not isinstance(record, dict):
        raise ValueError(f"release={str(path)!r} is no record; write release_.to_dict() into it.")
    return record


def load_rows(path: str | Path) -> dict[str, NDArray[Any]]:
    """Private records of an npz file: X and y, or X_train and y_train, and groups if it has any."""
    path = _existing(path, "private")

    def read() -> dict[str, NDArray[Any]]:
        # Objects would run code of the file's.
        with open(path, "rb") as handle, np.load(handle, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}

    file = _read(read, f"private={str(path)!r} is no npz file of plain arrays")
    declared: dict[str, NDArray[Any]] = {k: file[k] for k in ("groups",) if k in file}
    for rows, labels in (("X", "y"), ("X_train", "y_train")):
        if rows in file and labels in file:
            return {"X": file[rows], "y": file[labels], **declared}
    raise ValueError(
        f"private={str(path)!r} holds {', '.join(file)}; save X and y in it "
        "(numpy.savez(FILE, X=X, y=y))."
    )


def load_transcript(path: str | Path) -> Transcript:
    """A transcript as written by ``numpy.savez(FILE, **vars(transcript))``."""
    path = _existing(path, "transcript")

    def read() -> dict[str, NDArray[Any]]:
        archive = _Archive(path)
        return {name.removesuffix(".npy"): archive.array(name) for name in archive.names}

    file = _read(read, f"transcript={str(path)!r} is no npz file of plain arrays")
    known = Transcript.__dataclass_fields__
    missing = [name for name in ("gradients", "iterates", "sigma") if name not in file]
    if missing or not file.keys() <= known.keys():
        odd = ", ".join(sorted(file.keys() - known.keys())) or "nothing else"
        raise ValueError(
            f"transcript={str(path)!r} lacks {', '.join(missing) or 'nothing'}, and holds {odd}; "
            "write it by numpy.savez(FILE, **vars(head.transcript_))."
        )
    return Transcript(**file)


def _existing(path: str | Path, name: str) -> Path:
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{name}={str(path)!r} is no file.")
    return path


def _read(read: Callable[[], Any], none: str) -> Any:
    """What a file holds; whatever is wrong with it, it is none of its kind."""
    try:
        return read()
    except Exception as error:
        raise ValueError(f"{none} ({type(error).__name__}: {error}).") from None
