"""Names of encoders in records: which of two mean the same embedding.

A name reads ``NAME sha256:DIGEST``, with settings: the last two alone are compared.
"""

import re
from pathlib import Path

# What comes before the name, and behind the digest: an architecture, a length, a library.
_NAME = re.compile(
    r"(?P<kind>[a-z0-9_]{1,40}@)?"
    r"[\w./-]{1,100} sha256:(?P<digest>[0-9a-f]{16})"
    r"(?P<settings>(?:, [0-9]{1,6} tokens)?|, torchvision [0-9A-Za-z.+_]{1,40})"
)
_HUB_FOLDER = re.compile(r"models--(.+?)--(.+)/snapshots/[^/]+$")
_NOT_IN_NAMES = re.compile(r"[^\w./-]+|sha256:", re.ASCII)


def name_of_weights(path: str, digest: str) -> str:
    """Name of local weights: that of their folder, and the first 16 digits of their digest."""
    return f"{public_name(path)} sha256:{digest[:16]}"


def public_name(path: str) -> str:
    """Name of a folder or file of weights, without its place: the hub's, a card's, or its own."""
    path = path.replace("\\", "/").rstrip("/")
    hub = _HUB_FOLDER.search(path)
    name = "/".join(hub.groups()) if hub else _title(Path(path)) or path.split("/")[-1]
    return _NOT_IN_NAMES.sub("-", name)[:100] or "weights"


def _title(folder: Path) -> str | None:
    """Title of a model card, if it is one word."""
    try:
        text = (folder / "README.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    title = re.search(r"^# (.*)$", text, re.MULTILINE)
    name = title[1].strip() if title else ""
    return name if re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name, re.ASCII) else None


def has_digest(name: str | None) -> bool:
    """Whether a name tells weights apart that have one name."""
    return name is not None and _NAME.fullmatch(name) is not None


def same_encoder(name: str | None, other: str | None) -> bool | None:
    """Whether two names mean the same embedding; None if only one of them has a digest."""
    if has_digest(name) != has_digest(other):
        return None
    return _what_counts(name) == _what_counts(other)


def _what_counts(name: str | None) -> str | tuple[str, ...] | None:
    match = None if name is None else _NAME.fullmatch(name)
    # Whatever else a name says is compared as it stands.
    if match is None:
        return name
    return match["kind"], match["digest"], match["settings"]
