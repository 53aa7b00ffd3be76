"""What people pass by mistake: every case is accepted, or refused in one sentence."""

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.encoders import ImageEncoder, SentenceEncoder
from sklearn_balldp.encoders.weights import DEFAULT, located

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((6, 2)), np.array([0, 1, 0, 1, 0, 1])
TEXTS = ["a card", "some rain", "a bank", "snow", "cash", "wind"]
#: Errors that may be raised; anything else is a fault.
REFUSALS = (ValueError, TypeError, ImportError)


def fitted(rows: Any = X, labels: Any = Y) -> Any:
    return BallDPRidgePrototype(4.0, radius=0.5).fit(rows, labels)


def texts(values: Any, **options: Any) -> Any:
    return SentenceEncoder(**options).fit_transform(values)


def images(values: Any, **options: Any) -> Any:
    return ImageEncoder(**{"weights": None, **options}).fit_transform(values)


def minilm() -> str:
    return str(located(DEFAULT))


def picture(mode: str) -> Any:
    from PIL import Image

    pixels = RNG.integers(256, size=(8, 8, 3)).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


def deep() -> Any:
    from PIL import Image

    return Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8))


def torch_of(values: Any, kind: str | None = None, grad: bool = False) -> Any:
    import torch

    own = torch.tensor(np.asarray(values, dtype=float), requires_grad=grad)
    return own if kind is None else own.to(getattr(torch, kind))


def polars(values: Any, lazy: bool = False) -> Any:
    import polars as pl

    frame = pl.DataFrame(values)
    return frame.lazy() if lazy else frame


def arrow(values: Any) -> Any:
    import pyarrow

    return pyarrow.table(values)


def written(folder: Path) -> Path:
    import pyarrow.parquet

    pyarrow.parquet.write_table(arrow({"e": list(X)}), folder / "rows.parquet")
    return folder / "rows.parquet"


def cached(folder: Path) -> Any:
    return texts([], cache_dir=folder / "cache")


def static_model(folder: Path) -> str:
    """A model that looks vectors of tokens up, and adds them."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(minilm()) / "tokenizer.json"))
    weights = RNG.standard_normal((tokenizer.get_vocab_size(), 16)).astype(np.float32)
    model = SentenceTransformer(
        modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu"
    )
    model.save(str(folder / "static"))
    return str(folder / "static")


def prompted_model(folder: Path) -> str:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(
        minilm(), prompts={"query": "query: "}, default_prompt_name="query", device="cpu"
    )
    model.save(str(folder / "prompted"))
    return str(folder / "prompted")


def as_object() -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(minilm(), device="cpu")


#: What is passed, and how; a folder is there to write into.
CASES: dict[str, Callable[[Path], Any]] = {
    "labels of bfloat16": lambda _: fitted(X, torch_of(Y, "bfloat16")),
    "labels with gradients": lambda _: fitted(X, torch_of(Y, grad=True)),
    "rows of bfloat16": lambda _: fitted(torch_of(X, "bfloat16")),
    "rows with gradients": lambda _: fitted(torch_of(X, grad=True)),
    "a matrix": lambda _: fitted(np.matrix(X)),
    "a generator of rows": lambda _: fitted(row for row in X),
    "a mapping of columns": lambda _: fitted({"a": X[:, 0], "b": X[:, 1]}),
    "a lazy table of polars": lambda _: fitted(polars(X, lazy=True)),
    "a table of pyarrow": lambda _: fitted(arrow({"a": X[:, 0], "b": X[:, 1]})),
    "a column of lists of polars": lambda _: fitted(polars({"e": X.tolist()})),
    "the path of a Parquet file, to fit": lambda f: fitted(written(f)),
    "its name, to fit": lambda f: fitted(str(written(f))),
    "texts, to fit a head": lambda _: fitted([[text] for text in TEXTS]),
    "no texts": lambda _: texts([]),
    "no texts, with a cache": cached,
    "a batch of columns": lambda _: texts({"text": TEXTS}),
    "a generator of texts": lambda _: texts(text for text in TEXTS),
    "one column of polars": lambda _: texts(polars({"text": TEXTS})),
    "two columns of polars": lambda _: texts(polars({"text": TEXTS, "other": TEXTS})),
    "a lazy table of texts": lambda _: texts(polars({"text": TEXTS}, lazy=True)),
    "one column of pyarrow": lambda _: texts(arrow({"text": TEXTS})),
    "an array of pyarrow": lambda _: texts(arrow({"text": TEXTS})["text"]),
    "two columns of pyarrow": lambda _: texts(arrow({"text": TEXTS, "other": TEXTS})),
    "a matrix of texts": lambda _: texts(np.matrix(TEXTS).T),
    "a model in memory": lambda _: texts(TEXTS, model=as_object()),
    "a static model": lambda f: texts(TEXTS, model=static_model(f)),
    "a model with a prompt": lambda f: texts(TEXTS, model=prompted_model(f)),
    "more tokens than positions": lambda _: texts(TEXTS, max_length=100_000),
    "an image of a palette": lambda _: images([picture("P")]),
    "an image of YCbCr": lambda _: images([picture("YCbCr")]),
    "an image of HSV": lambda _: images([picture("HSV")]),
    "an image of CMYK": lambda _: images([picture("CMYK")]),
    "an image of LAB": lambda _: images([picture("RGB").convert("RGB"), lab()]),
    "an image with transparency": lambda _: images([picture("RGBA")]),
    "an image of 16 bits": lambda _: images([deep()]),
    "one image": lambda _: images(np.zeros((32, 32, 3), dtype=np.uint8)),
    "weights of a name that is none": lambda _: images([picture("RGB")], weights="IMAGENET9K"),
    "a model of videos": lambda _: images([picture("RGB")], model="r3d_18"),
    "a model of another kind": lambda _: images([picture("RGB")], model="vit_b_16"),
}


def lab() -> Any:
    from PIL import Image, ImageCms

    rgb, own = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    image: Image.Image = picture("RGB")
    return ImageCms.profileToProfile(image, rgb, own, outputMode="LAB")


def outcome(name: str) -> tuple[str, bool]:
    """What a case gives, in words; and whether that is an answer."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = CASES[name](Path(folder))
        except REFUSALS as error:
            text = str(error).replace(folder, "FOLDER")
            return f"{type(error).__name__}: {text}", "\n" not in text and len(text) < 400
        except Exception as error:
            return f"FAULT {type(error).__name__}", False
        shape = getattr(found, "shape", None)
        return ("fitted" if shape is None else f"rows {tuple(shape)}"), True
