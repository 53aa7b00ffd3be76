"""Pictures in files."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..encoders.images import check_colours, pixels_of
from ..showing import one_line
from .options import InputError
from .table import fault_of

#: Formats of pictures, by their content; others of Pillow's run programs, or only look like one.
PICTURES = (
    *("AVIF", "BMP", "DIB", "GIF", "ICO", "JPEG", "JPEG2000", "MPO", "PCX", "PNG", "PPM", "QOI"),
    *("TGA", "TIFF", "WEBP"),
)


@dataclass(frozen=True)
class Picture:
    """An image file, opened when it is embedded; errors tell its ``place``, no private name."""

    file: Path
    place: str = field(compare=False)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.uint8]:
        return self.opened(pixels_of)

    def opened(self, use: Callable[[Any], Any]) -> Any:
        """What a function makes of the image; an InputError unless it is one."""
        known = {*formats().values()}
        from PIL import Image

        try:
            reason = fault_of(self.file)
            if reason is None:
                with Image.open(self.file, formats=[*known]) as image:
                    if image.format != "TIFF" or getattr(image, "n_frames", 1) == 1:
                        return use(image)
                reason = "it has pages"
        except Exception as error:
            # Readers of damaged pictures raise what they like.
            reason = str(error) if "eight bits" in str(error) else type(error).__name__
        raise InputError(f"{self.place}: no image that can be read ({reason}).")


def formats() -> dict[str, str]:
    """Formats of pictures that this Pillow reads, by the endings of their files."""
    try:
        from PIL import Image
    except ImportError:
        raise InputError("images are read by Pillow; pip install pillow.") from None
    endings = Image.registered_extensions().items()
    return {end: name for end, name in endings if name in PICTURES and name in Image.OPEN}


def opened(path: Path, names: list[str | None]) -> list[Picture | None]:
    """The pictures of a table or a folder, by their names, whose beginnings are read."""
    pictures = list[Picture | None]()
    for i, name in enumerate(names, 1):
        picture = None
        if name is not None:
            # Of a folder the owner must find the file.
            folder, place = (
                (path, one_line(name, 200)) if path.is_dir() else (path.parent, f"row {i}")
            )
            picture = Picture(folder / name, f"{path}: {place}")
            picture.opened(check_colours)
        pictures.append(picture)
    return pictures
