"""What people pass by mistake: every case is accepted, or refused in one sentence."""

import tempfile
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet
from PIL import Image, ImageCms

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.encoders import ImageEncoder, SentenceEncoder
from sklearn_balldp.encoders.weights import DEFAULT, located

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((6, 2)), np.array([0, 1, 0, 1, 0, 1])
TEXTS = ["a card", "some rain", "a bank", "snow", "cash", "wind"]
TWO = {"text": TEXTS, "other": TEXTS}
#: Errors that may be raised; anything else is a fault.
REFUSALS = (ValueError, TypeError, ImportError)


def fitted(rows=X, labels=Y):
    return BallDPRidgePrototype(4.0, radius=0.5).fit(rows, labels)


def texts(values, **options):
    return SentenceEncoder(**options).fit_transform(values)


def images(values, **options):
    return ImageEncoder(**{"weights": None, **options}).fit_transform(values)


def minilm():
    return str(located(DEFAULT))


def picture(mode):
    pixels = RNG.integers(256, size=(8, 8, 3)).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


def lab():
    rgb, own = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    return ImageCms.profileToProfile(picture("RGB"), rgb, own, outputMode="LAB")


def torch_of(values, kind=None, grad=False):
    import torch

    own = torch.tensor(np.asarray(values, dtype=float), requires_grad=grad)
    return own if kind is None else own.to(getattr(torch, kind))


def written(folder):
    pyarrow.parquet.write_table(pa.table({"e": list(X)}), folder / "rows.parquet")
    return folder / "rows.parquet"


def static_model(folder):
    """A model that looks vectors of tokens up, and adds them."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(minilm()) / "tokenizer.json"))
    weights = RNG.standard_normal((tokenizer.get_vocab_size(), 16)).astype(np.float32)
    module = StaticEmbedding(tokenizer, embedding_weights=weights)
    SentenceTransformer(modules=[module], device="cpu").save(str(folder / "static"))
    return str(folder / "static")


def model_of(**prompts):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(minilm(), device="cpu", **prompts)


def prompted_model(folder):
    model = model_of(prompts={"query": "query: "}, default_prompt_name="query")
    model.save(str(folder / "prompted"))
    return str(folder / "prompted")


#: What is passed, and how; a folder is there to write into.
CASES = {
    "labels of bfloat16": lambda _: fitted(X, torch_of(Y, "bfloat16")),
    "labels with gradients": lambda _: fitted(X, torch_of(Y, grad=True)),
    "rows of bfloat16": lambda _: fitted(torch_of(X, "bfloat16")),
    "rows with gradients": lambda _: fitted(torch_of(X, grad=True)),
    "a matrix": lambda _: fitted(np.matrix(X)),
    "a generator of rows": lambda _: fitted(row for row in X),
    "a mapping of columns": lambda _: fitted({"a": X[:, 0], "b": X[:, 1]}),
    "a lazy table of polars": lambda _: fitted(pl.DataFrame(X).lazy()),
    "a table of pyarrow": lambda _: fitted(pa.table({"a": X[:, 0], "b": X[:, 1]})),
    "a column of lists of polars": lambda _: fitted(pl.DataFrame({"e": X.tolist()})),
    "the path of a Parquet file, to fit": lambda f: fitted(written(f)),
    "its name, to fit": lambda f: fitted(str(written(f))),
    "texts, to fit a head": lambda _: fitted([[text] for text in TEXTS]),
    "no texts": lambda _: texts([]),
    "no texts, with a cache": lambda f: texts([], cache_dir=f / "cache"),
    "a batch of columns": lambda _: texts({"text": TEXTS}),
    "a generator of texts": lambda _: texts(text for text in TEXTS),
    "one column of polars": lambda _: texts(pl.DataFrame({"text": TEXTS})),
    "two columns of polars": lambda _: texts(pl.DataFrame(TWO)),
    "a lazy table of texts": lambda _: texts(pl.DataFrame({"text": TEXTS}).lazy()),
    "one column of pyarrow": lambda _: texts(pa.table({"text": TEXTS})),
    "an array of pyarrow": lambda _: texts(pa.table({"text": TEXTS})["text"]),
    "two columns of pyarrow": lambda _: texts(pa.table(TWO)),
    "a matrix of texts": lambda _: texts(np.matrix(TEXTS).T),
    "a model in memory": lambda _: texts(TEXTS, model=model_of()),
    "a static model": lambda f: texts(TEXTS, model=static_model(f)),
    "a model with a prompt": lambda f: texts(TEXTS, model=prompted_model(f)),
    "more tokens than positions": lambda _: texts(TEXTS, max_length=100_000),
    **{
        f"an image of {mode}": lambda _, mode=mode: images([picture(mode)])
        for mode in ("P", "YCbCr", "HSV", "CMYK", "RGBA")
    },
    "an image of LAB": lambda _: images([picture("RGB"), lab()]),
    "an image of 16 bits": lambda _: images([Image.fromarray(np.ones((8, 8), np.uint16))]),
    "one image": lambda _: images(np.zeros((32, 32, 3), dtype=np.uint8)),
    "weights of a name that is none": lambda _: images([picture("RGB")], weights="IMAGENET9K"),
    "a model of videos": lambda _: images([picture("RGB")], model="r3d_18"),
    "a model of another kind": lambda _: images([picture("RGB")], model="vit_b_16"),
}


def outcome(name):
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
