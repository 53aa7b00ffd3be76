"""The datasets of the paper, fetched once from their authors and cached.

Files are those of the original releases, checked against a known checksum. :func:`fetch` looks
into ``data_home`` first, so files put there by hand serve on a machine without a network.
"""

import csv
import gzip
import struct
import sys
import tarfile
from pathlib import Path

import numpy as np
from sklearn.datasets import get_data_home
from sklearn.utils import Bunch

#: Files of each dataset, by split, or by what is in them.
FILES = {
    "ag_news": {"train": "train.csv", "test": "test.csv"},
    "banking77": {"train": "train.csv", "test": "test.csv"},
    # The binary release: the other one is a pickle, which would run code.
    "cifar10": {"all": "cifar-10-binary.tar.gz"},
    "emotion": {"train": "train.txt", "test": "test.txt"},
    "imdb": {"all": "aclImdb_v1.tar.gz"},
    "mnist": {
        "train images": "train-images-idx3-ubyte.gz",
        "train labels": "train-labels-idx1-ubyte.gz",
        "test images": "t10k-images-idx3-ubyte.gz",
        "test labels": "t10k-labels-idx1-ubyte.gz",
    },
    "trec6": {"train": "train_5500.label", "test": "TREC_10.label"},
}
#: Names, known hashes and addresses, in the format of pooch.
REGISTRY = Path(__file__).with_name("datasets.txt")


def files_of(dataset, data_home, download_if_missing):
    """Paths of the checked files of a dataset, downloaded where they are missing."""
    try:
        import pooch
    except ImportError as error:
        raise ImportError(
            "datasets are fetched and checked with pooch; pip install pooch."
        ) from error
    store = pooch.create(Path(get_data_home(data_home)) / "balldp", base_url="")
    store.load_registry(REGISTRY)
    paths = {}
    for key, name in FILES[dataset].items():
        file = f"{dataset}/{name}"
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
            paths[key] = Path(store.fetch(file, progressbar=sys.stderr.isatty()))
        except (OSError, ValueError) as error:
            raise OSError(
                f"could not download {url} ({type(error).__name__}): without a network, put the "
                f"file at {path}."
            ) from error
    return paths


def _news(path):
    with open(path, encoding="utf-8", newline="") as file:
        return [(" ".join(parts), int(label) - 1) for label, *parts in csv.reader(file)]


def _requests(path):
    with open(path, encoding="utf-8", newline="") as file:
        return [(row["text"], row["category"]) for row in csv.DictReader(file)]


def _messages(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    return [tuple(line.rsplit(";", 1)) for line in lines]


def _questions(path):
    lines = [line.split(" ", 1) for line in path.read_text(encoding="latin-1").splitlines()]
    return [(text, label.split(":")[0]) for label, text in lines]


def _reviews(path):
    """Records of both splits, each in the order of its file's name."""
    found = {"train": [], "test": []}
    with tarfile.open(path) as archive:
        for member in archive:
            parts = Path(member.name).parts
            if member.isfile() and len(parts) == 4 and parts[2] in ("neg", "pos"):
                text = archive.extractfile(member).read().decode("utf-8")
                found[parts[1]].append((parts[2], int(parts[3].split("_")[0]), text))
    return {split: [(t, label) for label, _, t in sorted(own)] for split, own in found.items()}


def _pictures(path):
    """Records of both splits, the batches of each in their order, and the names of classes."""
    found = {"train": [], "test": []}
    with tarfile.open(path) as archive:
        files = {Path(own.name).name: archive.extractfile(own) for own in archive if own.isfile()}
        names = files["batches.meta.txt"].read().decode().split()
        for name in sorted(name for name in files if name.endswith(".bin")):
            raw = np.frombuffer(files[name].read(), dtype=np.uint8).reshape(-1, 1 + 3 * 32 * 32)
            images = raw[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            split = found["test" if name.startswith("test") else "train"]
            split += zip(np.ascontiguousarray(images), raw[:, 0], strict=True)
    return found, names


def _idx(path):
    """Array in the IDX format of unsigned bytes."""
    with gzip.open(path) as file:
        raw = file.read()
    kind, n_dimensions = struct.unpack_from(">HBB", raw)[1:]
    if kind != 8:
        raise OSError(f"{path} holds no unsigned bytes.")
    shape = struct.unpack_from(f">{n_dimensions}I", raw, 4)
    return np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * n_dimensions).reshape(shape)


#: How a split's file is read, and the names of the classes in the order of their codes.
READERS = {
    "ag_news": (_news, ["World", "Sports", "Business", "Sci/Tech"]),
    # The label set is that of the training split, whichever is asked for.
    "banking77": (_requests, None),
    "emotion": (_messages, ["sadness", "joy", "love", "anger", "fear", "surprise"]),
    "trec6": (_questions, ["ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM"]),
}


def fetch(name, subset="train", *, data_home=None, download_if_missing=True):
    """Records of an official split ("train", "test", or "all": one after the other).

    Returns a Bunch with data (texts, or uint8 images), target (integers) and target_names. Raises
    OSError if a file is missing and cannot be, or may not be, downloaded; or if it is another file
    than the release's.
    """
    if subset not in ("train", "test", "all"):
        raise ValueError(f"subset must be one of train, test, all; got {subset!r}.")
    paths = files_of(name, data_home, download_if_missing)
    if name == "cifar10":
        records, names = _pictures(paths["all"])
    elif name == "mnist":
        names, records = [str(digit) for digit in range(10)], {}
        for split in ("train", "test"):
            both = (_idx(paths[f"{split} {kind}"]) for kind in ("images", "labels"))
            records[split] = list(zip(*both, strict=True))
    elif name == "imdb":
        records, names = _reviews(paths["all"]), ["neg", "pos"]
    else:
        read, names = READERS[name]
        records = {split: read(path) for split, path in paths.items()}
        names = names or sorted({label for _, label in records["train"]}, key=str.lower)
    chosen = [
        own for split in ("train", "test") if subset in (split, "all") for own in records[split]
    ]
    data, labels = map(list, zip(*chosen, strict=True))
    codes = [names.index(label) if isinstance(label, str) else label for label in labels]
    data = np.stack(data) if name in ("cifar10", "mnist") else data
    return Bunch(data=data, target=np.asarray(codes, dtype=np.intp), target_names=names)
