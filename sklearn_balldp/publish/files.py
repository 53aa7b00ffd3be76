"""Models, records, private rows and transcripts from files, without running what they hold."""

import json
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..heads import Transcript
from ..text import one_line
from .tree import array_of, tree_of_skops

#: A file may unpack to so many bytes, or to twice its own length: noise cannot be compressed.
_MOST_BYTES = 2**26
#: A longer file than this is no model of a head: the reader's memory is not a stranger's.
_MOST_IN_ALL = 2**29
#: No description of a model, and no record, is longer.
_MOST_JSON = 2**23
_MOST_MEMBERS = 10_000
_MOST_DIRECTORY = 200 * _MOST_MEMBERS


class _Archive:
    """Members of a zip file, each read once, after their sizes were added up.

    What no reader looks at could hold private rows: all else in the file must be as Python's
    ``zipfile`` writes it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        length = file.seek(0, 2)
        if length > _MOST_IN_ALL:
            raise ValueError(f"it is {length} bytes long")
        file.seek(max(length - 42, 0))
        tail = file.read()
        end = tail[-22:]
        if end[:4] != b"PK\5\6" or end[20:] != b"\0\0" or tail[:4] == b"PK\6\7":
            raise ValueError("it does not end as a short zip file without a comment does")
        if int.from_bytes(end[12:16], "little") > _MOST_DIRECTORY:
            raise ValueError("its list of members is too long")
        members = zipfile.ZipFile(file).infolist()
        if len(members) > _MOST_MEMBERS:
            raise ValueError(f"it has {len(members)} members")
        self._members = {member.filename: member for member in members}
        if len(self._members) < len(members):
            raise ValueError("two members have one name")
        size = sum(member.file_size for member in members)
        if size > min(max(_MOST_BYTES, 2 * length), _MOST_IN_ALL):
            raise ValueError(f"it would unpack to {size} bytes")
        if any(member.compress_type not in (0, 8) for member in members):
            raise ValueError("its compression is none that is read")
        self._starts: dict[str, int] = {}
        place = directory = 0
        for member in members:
            if member.header_offset != place:
                raise ValueError("it holds bytes outside its members")
            self._starts[member.filename] = place + self._header(member)
            place = self._starts[member.filename] + member.compress_size
            directory += 46 + len(_name(member))
        count = len(members)
        if end != struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, directory, place, 0):
            raise ValueError("it holds bytes outside its members")
        self._read: dict[str, NDArray[Any]] = {}

    def _header(self, member: zipfile.ZipInfo) -> int:
        """Length of what comes before a member's data, which must be as ``zipfile`` writes it."""
        name, shown = _name(member), one_line(member.filename, 60)
        if member.comment or member.extra:
            raise ValueError(f"its member {shown} has a comment or an extra field")
        known = member.create_system in (0, 3) and member.flag_bits in (0, 0x800)
        versions = (member.create_version, member.extract_version)
        attributes = (member.internal_attr, member.external_attr, member.volume, member.reserved)
        if not known or not {*versions} <= {20, 45} or attributes != (0, 0o600 << 16, 0, 0):
            raise ValueError(f"its member {shown} is none that zipfile writes")
        year, month, day, hour, minute, second = member.date_time
        date, time = (year - 1980) << 9 | month << 5 | day, hour << 11 | minute << 5 | second // 2
        kind = (member.extract_version, member.flag_bits, member.compress_type, time, date)
        sizes = (member.compress_size, member.file_size)
        # numpy.savez leaves room for sizes of 64 bits in each.
        wide = struct.pack("<2H2Q", 1, 16, *reversed(sizes))
        self._file.seek(member.header_offset)
        header = self._file.read(30 + len(name) + len(wide))
        for stated, extra in ((sizes, b""), ((2**32 - 1,) * 2, wide), (sizes, wide)):
            lengths = (len(name), len(extra))
            values = (*kind, member.CRC, *stated, *lengths)
            own = struct.pack("<4s5H3L2H", b"PK\3\4", *values) + name + extra
            if header.startswith(own):
                return len(own)
        raise ValueError(f"its member {shown} is listed otherwise than it is stored")

    def body(self, name: str) -> bytes:
        member = self._members[name]
        self._file.seek(self._starts[name])
        body = self._file.read(member.compress_size)
        whole = True
        if member.compress_type:
            # zipfile unpacks as much as there is, whatever size was stated.
            stream = zlib.decompressobj(-15)
            body = stream.decompress(body, member.file_size + 1)
            whole = stream.eof and not stream.unused_data and not stream.unconsumed_tail
        if not whole or len(body) != member.file_size or zlib.crc32(body) != member.CRC:
            raise ValueError(f"its member {one_line(name, 60)} is not of the size or sum stated")
        return body

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


def _name(member: zipfile.ZipInfo) -> bytes:
    return member.orig_filename.encode("utf-8" if member.flag_bits & 0x800 else "cp437")


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
        with path.open("rb") as file:
            archive = _Archive(file)
            text = _short(archive.body("schema.json"))
            schema = json.loads(text)
            # Spaces, other spellings and keys given twice could hold anything.
            if text not in (json.dumps(schema, indent=2), json.dumps(schema)):
                raise ValueError("its schema.json is not written as skops does")
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
        # A file may hold millions of mappings: keys are counted only where one is given twice.
        if len({key for key, _ in pairs}) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            twice.extend(key for key, times in counts.items() if times > 1)
        return dict(pairs)

    def read() -> Any:
        if path.stat().st_size > _MOST_JSON:
            raise ValueError("it is too long")
        return json.loads(_short(path.read_bytes()), object_pairs_hook=once)

    record = _read(read, f"{name} is no JSON")
    if twice:
        keys = one_line(", ".join(twice))
        raise ValueError(f"{name} holds {keys} more than once: readers may differ.")
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
        with path.open("rb") as file:
            archive = _Archive(file)
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
    """What a file holds; any fault in it gives one error."""
    try:
        return read()
    except Exception as error:
        raise ValueError(f"{none} ({type(error).__name__}: {error}).") from None
