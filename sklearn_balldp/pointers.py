"""Pointers of git-lfs: what a copy of a repository holds in place of files not fetched."""

import os
from pathlib import Path

_MARK = b"version https://git-lfs.github.com/spec/"


def unfetched(path: str | Path) -> str | None:
    """What is wrong with a file that is a pointer, in words; None for all others."""
    # A pipe would wait for whoever writes it.
    if not os.path.isfile(path):
        return None
    with open(path, "rb") as file:
        if file.read(len(_MARK)) != _MARK:
            return None
    return "it is a pointer of git-lfs in place of the file itself; fetch it (git lfs pull)"
