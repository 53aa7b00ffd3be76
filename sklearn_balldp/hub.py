"""Folders by their names on the model hub: ``hf://OWNER/NAME``, or with ``@REVISION``."""

import re
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ._validation import caller_level

#: What a name on the hub looks like.
HUB = re.compile(r"hf://(?P<name>[\w-][\w.-]*/[\w-][\w.-]*)(?:@(?P<revision>[\w./-]+))?")
# Seconds that the hub has to answer.
_PATIENCE = 5.0


def hub_name(name: str) -> tuple[str, str | None] | None:
    """OWNER/NAME and revision of ``hf://OWNER/NAME[@REVISION]``; None for any other name."""
    match = HUB.fullmatch(name)
    if match is None and name.startswith("hf:"):
        raise ValueError(f"{name!r}: a name on the hub reads hf://OWNER/NAME, or with @REVISION.")
    return None if match is None else (match["name"], match["revision"])


def from_hub(
    name: str, revision: str | None, files: Sequence[str], *, download: bool = True
) -> Path:
    """Folder of these files of the hub, or else of its cache; a ValueError if of neither."""
    try:
        from huggingface_hub import HfApi, snapshot_download
    except ImportError:
        raise ValueError(f"hf://{name} needs huggingface_hub; pip install it") from None
    only = {"allow_patterns": [*files], "ignore_patterns": ["onnx/*", "openvino/*"]}
    fetch = partial(snapshot_download, name, revision=revision, **only)
    reason = "none was tried"
    try:
        if download:
            # Asked first, as a download would try again and again.
            HfApi().model_info(name, revision=revision, timeout=_PATIENCE)
            return Path(fetch())
    except Exception as error:
        # Whatever is wrong with the network or the name.
        reason = type(error).__name__
    try:
        folder = Path(fetch(local_files_only=True))
    except (OSError, ValueError):
        raise ValueError(
            f"hf://{name} is not in the hub's cache, and no download: {reason}"
        ) from None
    if download:
        warnings.warn(
            f"hf://{name}: the hub did not answer ({reason}), and the copy in its cache is taken.",
            stacklevel=caller_level(),
        )
    return folder
