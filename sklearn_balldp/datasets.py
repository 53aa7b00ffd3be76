"""The benchmarks of the paper, fetched once from their authors and cached; embeddings of yours.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.datasets import get_data_home
from sklearn.utils import Bunch

SUBSETS = ("train", "test", "all")
_ARRAYS = ("X_train", "y_train", "X_test", "y_test")


@dataclass(frozen=True)
class RemoteFile:
    """A file of an original release.

    Attributes
    ----------
    name : str
        Name in the cache.
    url : str
        Where its authors publish it.
    checksum : str
        ``"algorithm:digest"``.
    """

    name: str
    url: str
    checksum: str


_AG_NEWS = "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"
_BANKING = (
    "https://raw.githubusercontent.com/PolyAI-LDN/task-specific-datasets/master/banking_data/"
)
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_TREC = "https://cogcomp.seas.upenn.edu/Data/QA/QC/"

#: Files of each dataset, by subset.
FILES: dict[str, dict[str, RemoteFile]] = {
    "ag_news": {
        "train": RemoteFile(
            "train.csv", _AG_NEWS + "train.csv", "md5:b1a00f826fdfbd249f79597b59e1dc12"
        ),
        "test": RemoteFile(
            "test.csv", _AG_NEWS + "test.csv", "md5:d52ea96a97a2d943681189a97654912d"
        ),
    },
    "banking77": {
        "train": RemoteFile(
            "train.csv",
            _BANKING + "train.csv",
            "sha256:b06e26ac675513959a63135f11b94ea7786ed02da65db93a5650d8838cbc664b",
        ),
        "test": RemoteFile(
            "test.csv",
            _BANKING + "test.csv",
            "sha256:d12d6e3bc4c3103966ae786dc435913c0c563dfa328f5a3646d0e62cfeeb474d",
        ),
    },
    "cifar10": {
        # The binary release: the other one is a pickle, which would run code.
        "all": RemoteFile(
            "cifar-10-binary.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "md5:c32a1d4ab5d03f1284b67883e8d87530",
        ),
    },
    "emotion": {
        "train": RemoteFile(
            "train.txt",
            "https://www.dropbox.com/s/1pzkadrvffbqw6o/train.txt?dl=1",
            "sha256:3ab03d945a6cb783d818ccd06dafd52d2ed8b4f62f0f85a09d7d11870865b190",
        ),
        "test": RemoteFile(
            "test.txt",
            "https://www.dropbox.com/s/ikkqxfdbdec3fuj/test.txt?dl=1",
            "sha256:60f531690d20127339e7f054edc299a82c627b5ec0dd5d552d53d544e0cfcc17",
        ),
    },
    "imdb": {
        "all": RemoteFile(
            "aclImdb_v1.tar.gz",
            "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
            "md5:7c2ac02c03563afcf9b574c7e56c153a",
        ),
    },
    "mnist": {
        "train images": RemoteFile(
            "train-images-idx3-ubyte.gz",
            _MNIST + "train-images-idx3-ubyte.gz",
            "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
        ),
        "train labels": RemoteFile(
            "train-labels-idx1-ubyte.gz",
            _MNIST + "train-labels-idx1-ubyte.gz",
            "md5:d53e105ee54ea40749a09fcbcd1e9432",
        ),
        "test images": RemoteFile(
            "t10k-images-idx3-ubyte.gz",
            _MNIST + "t10k-images-idx3-ubyte.gz",
            "md5:9fb629c4189551a2d022fa330f9573f3",
        ),
        "test labels": RemoteFile(
            "t10k-labels-idx1-ubyte.gz",
            _MNIST + "t10k-labels-idx1-ubyte.gz",
            "md5:ec29112dd5afa0611ce80d1b7f02629c",
        ),
    },
    "trec6": {
        "train": RemoteFile(
            "train_5500.label",
            _TREC + "train_5500.label",
            "sha256:9e4c8bdcaffb96ed61041bd64b564183d52793a8e91d84fc3a8646885f466ec3",
        ),
        "test": RemoteFile(
            "TREC_10.label",
            _TREC + "TREC_10.label",
            "sha256:033f22c028c2bbba9ca682f68ffe204dc1aa6e1cf35dd6207f2d4ca67f0d0e8e",
        ),
    },
}

_PARAMETERS = """
    Parameters
    ----------
    subset : {"train", "test", "all"}, default="train"
        The official split; "all" is train, then test.
    data_home : str or path-like, optional
        Folder of the cache; by default scikit-learn's (``sklearn.datasets.get_data_home``).
    download_if_missing : bool, default=True
        Whether to fetch files that are not there.
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
            "datasets are fetched and checked with pooch; pip install 'sklearn_balldp[data]'."
        ) from error
    return pooch


def _fetch(
    dataset: str, names: Iterable[str], data_home: Any, download_if_missing: bool
) -> list[Path]:
    """Paths of checked files of a dataset, downloaded where they are missing."""
    pooch = _pooch()
    folder = Path(get_data_home(data_home)) / "balldp" / dataset
    paths = []
    for name in names:
        file = FILES[dataset][name]
        path = folder / file.name
        if not path.exists() and not download_if_missing:
            raise OSError(
                f"{path} does not exist and download_if_missing=False; put {file.url} there, or "
                "allow the download."
            )
        algorithm, digest = file.checksum.split(":")
        if path.exists() and pooch.file_hash(str(path), alg=algorithm) != digest:
            raise OSError(
                f"{path} is not the released file (its {algorithm} differs); delete it, and fetch "
                f"{file.url} again."
            )
        if not path.exists():
            try:
                pooch.retrieve(
                    file.url,
                    known_hash=file.checksum,
                    fname=file.name,
                    path=folder,
                    progressbar=sys.stderr.isatty(),
                )
            except (OSError, ValueError) as error:
                raise OSError(
                    f"could not download {file.url} ({type(error).__name__}): without a network, "
                    f"put the file at {path}."
                ) from error
        paths.append(path)
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
    """TREC-6: 5452 and 500 questions, six kinds of answer."""
    names = ["ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM"]
    texts, codes = [], []
    for path in _fetch("trec6", _splits(subset), data_home, download_if_missing):
        for line in path.read_text(encoding="latin-1").splitlines():
            label, text = line.split(" ", 1)
            texts.append(text)
            codes.append(names.index(label.split(":")[0]))
    return _bunch(texts, codes, names, "TREC question types (Li & Roth, 2002).", return_X_y)


def load_embeddings(path: Any, *, normalize: bool = True) -> Bunch:
    """Embeddings of both splits of a dataset, from one file.

    Parameters
    ----------
    path : str or path-like
        A ``.npz`` file with arrays X_train, y_train, X_test and y_test.
    normalize : bool, default=True
        Scale rows to unit norm: each on its own, so that adjacency is kept.

    Returns
    -------
    Bunch
        X_train and X_test as float32 of shape (n_samples, n_features), y_train and y_test.

    Raises
    ------
    OSError
        If there is no such file.
    ValueError
        If an array is missing.
    """
    with np.load(path) as file:
        missing = [name for name in _ARRAYS if name not in file]
        if missing:
            raise ValueError(
                f"{path} lacks the array(s) {', '.join(missing)}; it needs {', '.join(_ARRAYS)}."
            )
        arrays = {name: file[name] for name in _ARRAYS}
    for name in ("X_train", "X_test"):
        rows = np.asarray(arrays[name], dtype=np.float32)
        arrays[name] = unit_rows(rows) if normalize else rows
    return Bunch(**arrays)


def unit_rows(X: ArrayLike) -> NDArray[np.float32]:
    """Rows of unit norm as float32; a zero row stays zero.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Rows.

    Returns
    -------
    ndarray of shape (n_samples, n_features)
        New rows; ``X`` stays as it is.
    """
    X = np.asarray(X, dtype=np.float32)
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.finfo(np.float32).tiny)
