"""Images: a frozen residual network of torchvision."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags

from ..encoder_name import name_of_weights
from .base import BaseEncoder, Rows, device_of, require
from .weights import digest_of


@lru_cache(maxsize=4)
def _image_model(
    model: str, weights: str | Path | None, device: str | None
) -> tuple[Any, Any, int]:
    """Network without its classifier, its preprocessing, and its number of features."""
    models, torch = import_module("torchvision").models, import_module("torch")
    try:
        published = models.get_model_weights(model)
    except ValueError:
        published = None
    is_named = published is not None and model in models.list_models(module=models)
    # Its weights are drawn from a fixed seed, whatever the global one.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = models.get_model(model, weights=None) if is_named else None
    if not hasattr(network, "fc"):
        raise ValueError(
            f"model={model!r} is no residual network of torchvision; use 'resnet18', 'resnet50' or "
            "the like."
        )
    if isinstance(weights, Path):
        try:
            network.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
        except Exception as error:
            # Readers of such files raise what they like.
            raise ValueError(
                f"weights={str(weights)!r} is no state dict of {model} ({type(error).__name__})."
            ) from None
    elif weights in published.__members__:
        try:
            network = models.get_model(model, weights=published[weights])
        except (OSError, RuntimeError) as error:
            # No network, or a file that broke off.
            raise ValueError(
                f"weights={weights!r} of {model} are not on this machine, and cannot be downloaded "
                f"({type(error).__name__}); name the file of a state dict (weights=)."
            ) from None
    elif weights is not None:
        names = ", ".join(published.__members__)
        raise ValueError(f"weights={weights!r} is no file, and none of {names}.")
    width = network.fc.in_features
    network.fc = torch.nn.Identity()
    return network.eval().to(device_of(torch, device)), published.DEFAULT.transforms(), width


def check_colours(image: Any) -> None:
    """Raise a ValueError unless eight bits for each of three colours hold an image of Pillow's."""
    if image.mode not in ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "YCbCr", "HSV", "CMYK"):
        raise ValueError(
            f"an image of mode {image.mode!r} has no eight bits for each colour; convert it to RGB."
        )


def pixels_of(image: Any) -> NDArray[np.uint8]:
    """Colours of an image that Pillow opened, whatever it stores them as, and upright.

    Palettes, YCbCr, HSV and CMYK become RGB, and what shines through is drawn on white. A
    ValueError if eight bits for each of three colours cannot hold it.
    """
    from PIL import Image, ImageOps

    check_colours(image)
    # A camera may store a turned picture, and say so beside it.
    image = ImageOps.exif_transpose(image)
    if image.mode in ("LA", "PA", "RGBA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.asarray(image.convert("RGB"), dtype=np.uint8)


def _array_of(image: Any) -> NDArray[np.uint8]:
    """One record of an encoder of images as an array."""
    array = pixels_of(image) if hasattr(image, "convert") else np.asarray(image)
    colours = array.shape[2:] in ((), (1,), (3,))
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or not colours:
        raise ValueError(
            "X holds an image of another form; pass uint8 arrays of shape (height, width) or "
            "(height, width, 3), or images that Pillow opened."
        )
    return array


@dataclass(eq=False, repr=False)
class ImageEncoder(BaseEncoder):
    """Embed images with a residual network of torchvision, without its last layer.

    Parameters
    ----------
    model : str, default="resnet18"
        Which residual network of torchvision embeds the images, and so what distances mean. Images
        are RGB images or uint8 arrays of shape (height, width) or (height, width, 3). Needs
        torchvision.
    weights : str, enum, path-like or None, default="DEFAULT"
        "DEFAULT" takes the published weights (downloaded once by torchvision); so do their other
        names ("IMAGENET1K_V1") and members of torchvision's enums. Else the path to a
        state dict, or None for an untrained network from a fixed seed.
    batch_size : int, default=32
        How many images are embedded at a time: more take more memory.
    device : str or None, default=None
        Torch device to compute on. None is a GPU if there is one.
    cache_dir : str, path-like or None, default=None
        Saves time: a folder that keeps embeddings by content. It then holds embeddings of private
        records: keep it as safe as them.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_balldp import BallDPRidgePrototype
    >>> from sklearn_balldp.encoders import ImageEncoder
    >>> pipeline = make_pipeline(ImageEncoder(), BallDPRidgePrototype(epsilon=4.0, radius=0.8))
    """

    model: str = "resnet18"
    _: KW_ONLY
    weights: Any = "DEFAULT"
    batch_size: int = 32
    device: str | None = None
    cache_dir: Any = None

    def _records(self, X: Any) -> list[Any]:
        if isinstance(X, str) or not np.iterable(X):
            raise ValueError("X must be a sequence of images.")
        if getattr(X, "shape", ())[2:] == (3,) and X.dtype == np.uint8:
            raise ValueError("X is one image; pass a list of images, [X].")
        images = list(X)
        for image in images:
            if hasattr(image, "convert"):
                check_colours(image)
            elif hasattr(image, "shape") or not hasattr(image, "__array__"):
                _array_of(image)
            # Any other is opened when it is embedded: many pictures fill a memory.
        return images

    def _source(self) -> str | Path | None:
        """The name of published weights, or the file of others; None is an untrained network."""
        if self.weights is None:
            return None
        name = str(self.weights.name if isinstance(self.weights, Enum) else self.weights)
        return name if name.isidentifier() and not Path(name).exists() else Path(name)

    def _identity(self) -> dict[str, Any]:
        source = self._source()
        weights = digest_of(source) if isinstance(source, Path) else source
        # Published weights may change with the version of the library.
        self.check_library()
        version = import_module("torchvision").__version__
        return {"kind": "image", "model": self.model, "weights": weights, "version": version}

    @property
    def identity(self) -> str:
        identity, source = self._identity(), self._source()
        weights = identity["weights"]
        if isinstance(source, Path):
            weights = name_of_weights(str(source), weights)
        return f"{self.model}@{weights}, torchvision {identity['version']}"

    def _bytes(self, record: Any) -> bytes:
        pixels = _array_of(record)
        return repr(pixels.shape).encode() + pixels.tobytes()

    def check_library(self) -> None:
        """An ImportError that names the extra, if torchvision is missing."""
        require("torchvision", "ImageEncoder", "vision")

    def _loaded(self) -> tuple[Any, Any, int]:
        self.check_library()
        source = self._source()
        if isinstance(source, Path) and not source.is_file():
            raise ValueError(f"weights={str(source)!r} is no file; pass a state dict's path.")
        return _image_model(self.model, source, self.device)

    @property
    def _n_features_out(self) -> int:
        return self._loaded()[2]

    def _encode(self, records: Sequence[Any], progress: Any) -> Rows:
        network, prepare, width = self._loaded()
        torch = import_module("torch")
        rows = np.empty((len(records), width), dtype=np.float32)
        device = next(network.parameters()).device
        for start in range(0, len(records), self.batch_size):
            images = []
            for image in map(_array_of, records[start : start + self.batch_size]):
                channels = image.reshape(*image.shape[:2], -1)
                colour = np.repeat(channels, 3 // channels.shape[2], axis=2)
                images.append(prepare(torch.from_numpy(colour.transpose(2, 0, 1).copy())))
            filled = torch.zeros((self.batch_size, *images[0].shape))
            filled[: len(images)] = torch.stack(images)
            with torch.inference_mode():
                out = network(filled.to(device))
            rows[start : start + len(images)] = out[: len(images)].float().cpu().numpy()
            progress(len(images))
        return rows

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags
