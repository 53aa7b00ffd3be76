"""Everything that the package writes: in places where nothing is, and as a whole or not at all."""

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

# A file that is closed takes this process's locks on it along, those of SQLite in another thread
# too; and a child that is forked while a thread holds one finds it held for ever.
IN_USE = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=IN_USE.acquire, after_in_parent=IN_USE.release, after_in_child=IN_USE.release
    )


def write_new(path: Path, body: bytes, *, private: bool = False) -> None:
    """Write a file that must not be there; after an error nothing is left of it.

    A ``private`` one is for its owner alone.
    """
    flags, mode = os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666
    os.close(os.open(path, flags, mode))
    try:
        path.write_bytes(body)
    except BaseException:
        path.unlink()
        raise


def own_file(path: str | Path) -> None:
    """Make an empty file for its owner alone, which a database then fills, unless it is there."""
    with IN_USE:
        if not os.path.exists(path):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


@contextlib.contextmanager
def new_folder(folder: Path, name: str = "folder", *, private: bool = False) -> Iterator[Path]:
    """A folder to write to, whose files take the place of a new or an empty one if nothing fails.

    It lies in that place, so that nobody else finds the place empty, and only its owner can open
    it. If its files cannot be moved in the end it stays, and the error names it. ``name`` is that
    of the parameter, for errors; a ``private`` folder stays its owner's.
    """
    if os.path.islink(folder) or (
        os.path.exists(folder) and not (os.path.isdir(folder) and not os.listdir(folder))
    ):
        raise ValueError(
            f"{name}={str(folder)!r} exists, and nothing is overwritten: name another one, or an "
            "empty folder."
        )
    missing = [p for p in (folder, *folder.absolute().parents) if not os.path.exists(p)]
    held, written, reason = None, False, None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700 if private else 0o777, exist_ok=True)
        held = Path(tempfile.mkdtemp(prefix=".balldp-", dir=folder))
        yield held
        written = True
        _move(held, folder, private)
        shutil.rmtree(held, ignore_errors=True)
    except BaseException as error:
        if isinstance(error, OSError) and (written or held is None):
            reason = error.strerror or type(error).__name__
        if held is not None and reason is None:
            shutil.rmtree(held, ignore_errors=True)
        for place in missing:
            # What others have put there meanwhile stays.
            with contextlib.suppress(OSError):
                place.rmdir()
        if reason is None:
            raise
    if held is None:
        near = next(p for p in (folder, *folder.absolute().parents) if os.path.exists(p))
        raise ValueError(
            f"{name}={str(folder)!r} cannot be made: {near} takes no new folder ({reason}); name "
            "another one."
        )
    if reason is not None:
        raise OSError(
            f"{name}={str(folder)!r} could not be filled ({reason}): everything was written, and "
            f"lies in {str(held)!r}; move it to another place."
        )


def _move(held: Path, folder: Path, private: bool) -> None:
    """Give what a folder holds its places in another one: all of it, or none."""
    moved = list[Path]()
    try:
        if os.listdir(folder) != [held.name]:
            raise FileExistsError(17, "something else lies there by now")
        for path in sorted(held.rglob("*")):
            place = folder / path.relative_to(held)
            if path.is_dir():
                place.mkdir()
            else:
                write_new(place, path.read_bytes(), private=private)
            moved.append(place)
    except BaseException:
        for place in reversed(moved):
            place.rmdir() if place.is_dir() else place.unlink()
        raise
