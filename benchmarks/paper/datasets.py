"""The datasets of the paper, fetched once from their authors and cached.

Files are those of the original releases, checked against a known checksum. Each ``fetch_*`` looks
into ``data_home`` first, so files put there by hand serve on a machine without a network.
"""

import csv
import gzip
import inspect
import io
import struct
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.datasets import get_data_home
from sklearn.utils import Bunch

SUBSETS = ("train", "test", "all")


#: Files of each dataset, by subset; :data:`REGISTRY` says where they are published.
FILES = {
    "ag_news": {
        "train": "train.csv",
        "test": "test.csv",
    },
    "banking77": {
        "train": "train.csv",
        "test": "test.csv",
    },
    "cifar10": {
        # The binary release: the other one is a pickle, which would run code.
        "all": "cifar-10-binary.tar.gz",
    },
    "emotion": {
        "train": "train.txt",
        "test": "test.txt",
    },
    "imdb": {
        "all": "aclImdb_v1.tar.gz",
    },
    "mnist": {
        "train images": "train-images-idx3-ubyte.gz",
        "train labels": "train-labels-idx1-ubyte.gz",
        "test images": "t10k-images-idx3-ubyte.gz",
        "test labels": "t10k-labels-idx1-ubyte.gz",
    },
    "trec6": {
        "train": "train_5500.label",
        "test": "TREC_10.label",
    },
}
#: Names, known hashes and addresses, in the format of pooch.
REGISTRY = Path(__file__).with_name("datasets.txt")

_PARAMETERS = """
    Parameters
    ----------
    subset : {"train", "test", "all"}, default="train"
        Which official split to return; "all" is the training split, then the test split.
    data_home : str or path-like, optional
        Folder of the cache; by default scikit-learn's (``sklearn.datasets.get_data_home``).
    download_if_missing : bool, default=True
        Whether to download files that are not in ``data_home``.
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    Bunch
        With data, target (integers), target_names and DESCR.

    Raises
    ------
    OSError
        If a file is missing and cannot be, or may not be, downloaded; or if it is another file
        than the release's.
    ImportError
        If a file must be checked and the extra ``data`` is not installed.
"""


def _documented(function: Any) -> Any:
    function.__doc__ = f"{function.__doc__}\n\n{inspect.cleandoc(_PARAMETERS)}\n"
    return function


def _pooch() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise ImportError(
            "datasets are fetched and checked with pooch; pip install pooch."
        ) from error
    return pooch


def _fetch(
    dataset: str, names: Iterable[str], data_home: Any, download_if_missing: bool
) -> list[Path]:
    """Paths of checked files of a dataset, downloaded where they are missing."""
    pooch = _pooch()
    store = pooch.create(Path(get_data_home(data_home)) / "balldp", base_url="")
    store.load_registry(REGISTRY)
    paths = []
    for name in names:
        file = f"{dataset}/{FILES[dataset][name]}"
        path, url = store.abspath / file, store.get_url(file)
        if path.exists():
            # Fetching would replace a file that was put there by hand.
            algorithm, digest = store.registry[file].split(":")
            if pooch.file_hash(str(path), alg=algorithm) != digest:
                raise OSError(
                    f"{path} is not the released file (its {algorithm} differs); delete it, and "
                    f"fetch {url} again."
                )
        elif not download_if_missing:
            raise OSError(
                f"{path} does not exist and download_if_missing=False; put {url} there, or allow "
                "the download."
            )
        try:
            paths.append(Path(store.fetch(file, progressbar=sys.stderr.isatty())))
        except (OSError, ValueError) as error:
            raise OSError(
                f"could not download {url} ({type(error).__name__}): without a network, put the "
                f"file at {path}."
            ) from error
    return paths


def _splits(subset: str) -> tuple[str, ...]:
    if subset not in SUBSETS:
        raise ValueError(f"subset must be one of {', '.join(SUBSETS)}; got {subset!r}.")
    return ("train", "test") if subset == "all" else (subset,)


def _bunch(data: Any, target: ArrayLike, names: Iterable[str], text: str, return_X_y: bool) -> Any:
    codes = np.asarray(target, dtype=np.intp)
    if return_X_y:
        return data, codes
    return Bunch(data=data, target=codes, target_names=list(names), DESCR=text)


@_documented
def fetch_ag_news(*, subset="train", data_home=None, download_if_missing=True, return_X_y=False):
    """AG News: 120000 and 7600 news items (title and description), four topics."""
    texts, codes = [], []
    for path in _fetch("ag_news", _splits(subset), data_home, download_if_missing):
        with open(path, encoding="utf-8", newline="") as file:
            for label, *parts in csv.reader(file):
                codes.append(int(label) - 1)
                texts.append(" ".join(parts))
    names = ["World", "Sports", "Business", "Sci/Tech"]
    return _bunch(texts, codes, names, "AG News (Zhang, Zhao & LeCun, 2015).", return_X_y)


@_documented
def fetch_banking77(*, subset="train", data_home=None, download_if_missing=True, return_X_y=False):
    """BANKING77: 10003 and 3080 requests to a bank, 77 intents."""
    splits = _splits(subset)
    rows = {}
    # The label set is that of the training split, whichever is asked for.
    for name, path in zip(
        ("train", "test"),
        _fetch("banking77", ("train", "test"), data_home, download_if_missing),
        strict=True,
    ):
        with open(path, encoding="utf-8", newline="") as file:
            rows[name] = [(row["text"], row["category"]) for row in csv.DictReader(file)]
    names = sorted({label for _, label in rows["train"]}, key=str.lower)
    code = {name: i for i, name in enumerate(names)}
    chosen = [row for split in splits for row in rows[split]]
    texts, codes = [text for text, _ in chosen], [code[label] for _, label in chosen]
    return _bunch(texts, codes, names, "BANKING77 (Casanueva et al., 2020).", return_X_y)


@_documented
def fetch_cifar10(*, subset="train", data_home=None, download_if_missing=True, return_X_y=False):
    """CIFAR-10: 50000 and 10000 colour images, uint8 of shape (32, 32, 3), ten classes."""
    splits = _splits(subset)
    [path] = _fetch("cifar10", ("all",), data_home, download_if_missing)
    batches = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}
    wanted = [name for split in splits for name in batches[split]]
    records, names = {}, []
    with tarfile.open(path) as archive:
        for member in archive:
            name = Path(member.name).name
            if name in wanted:
                raw = np.frombuffer(archive.extractfile(member).read(), dtype=np.uint8)
                records[name] = raw.reshape(-1, 1 + 3 * 32 * 32)
            elif name == "batches.meta.txt":
                names = archive.extractfile(member).read().decode().split()
    table = np.concatenate([records[name] for name in wanted])
    images = table[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    text = "CIFAR-10 (Krizhevsky, 2009)."
    return _bunch(np.ascontiguousarray(images), table[:, 0], names, text, return_X_y)


@_documented
def fetch_emotion(*, subset="train", data_home=None, download_if_missing=True, return_X_y=False):
    """Emotion: 16000 and 2000 short messages, six emotions (no validation split)."""
    names = ["sadness", "joy", "love", "anger", "fear", "surprise"]
    texts, codes = [], []
    for path in _fetch("emotion", _splits(subset), data_home, download_if_missing):
        for line in path.read_text(encoding="utf-8").splitlines():
            text, label = line.rsplit(";", 1)
            texts.append(text)
            codes.append(names.index(label))
    return _bunch(texts, codes, names, "Emotion (Saravia et al., 2018).", return_X_y)


@_documented
def fetch_imdb(*, subset="train", data_home=None, download_if_missing=True, return_X_y=False):
    """IMDb: 25000 and 25000 film reviews, negative or positive."""
    splits = _splits(subset)
    [path] = _fetch("imdb", ("all",), data_home, download_if_missing)
    names = ["neg", "pos"]
    found: dict[str, list[tuple[int, int, str]]] = {"train": [], "test": []}
    with tarfile.open(path) as archive:
        for member in archive:
            parts = Path(member.name).parts
            if not (member.isfile() and len(parts) == 4 and parts[2] in names):
                continue
            text = archive.extractfile(member).read().decode("utf-8")
            number = int(parts[3].split("_")[0])
            found[parts[1]].append((names.index(parts[2]), number, text))
    rows = [row for split in splits for row in sorted(found[split])]
    texts, codes = [text for *_, text in rows], [code for code, *_ in rows]
    return _bunch(texts, codes, names, "IMDb reviews (Maas et al., 2011).", return_X_y)


@_documented
def fetch_mnist(*, subset="train", data_home=None, download_if_missing=True, return_X_y=False):
    """MNIST: 60000 and 10000 grey images of digits, uint8 of shape (28, 28)."""
    images, codes = [], []
    for split in _splits(subset):
        parts = (f"{split} images", f"{split} labels")
        at_images, at_labels = _fetch("mnist", parts, data_home, download_if_missing)
        images.append(_idx(at_images))
        codes.append(_idx(at_labels))
    text = "MNIST (LeCun, Cortes & Burges, 1998)."
    names = [str(digit) for digit in range(10)]
    return _bunch(np.concatenate(images), np.concatenate(codes), names, text, return_X_y)


def _idx(path: Path) -> NDArray[np.uint8]:
    """Array in the IDX format of unsigned bytes."""
    with gzip.open(path) as file:
        raw = io.BytesIO(file.read())
    kind, n_dimensions = struct.unpack(">HBB", raw.read(4))[1:]
    if kind != 8:
        raise OSError(f"{path} holds no unsigned bytes.")
    shape = struct.unpack(f">{n_dimensions}I", raw.read(4 * n_dimensions))
    return np.frombuffer(raw.read(), dtype=np.uint8).reshape(shape)


@_documented
def fetch_trec6(*, subset="train", data_home=None, download_if_missing=True, return_X_y=False):
    """TREC-6: 5452 training and 500 test questions, six kinds of answer."""
    names = ["ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM"]
    texts, codes = [], []
    for path in _fetch("trec6", _splits(subset), data_home, download_if_missing):
        for line in path.read_text(encoding="latin-1").splitlines():
            label, text = line.split(" ", 1)
            texts.append(text)
            codes.append(names.index(label.split(":")[0]))
    return _bunch(texts, codes, names, "TREC question types (Li & Roth, 2002).", return_X_y)
