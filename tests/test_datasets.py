"""Datasets: small files of the original forms, fetched from a server on this machine."""

import gzip
import hashlib
import io
import shutil
import struct
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from benchmarks.paper import datasets
from sklearn_balldp.datasets import load_embeddings

RNG = np.random.default_rng(0)


def tar_of(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, body in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return buffer.getvalue()


def idx(array):
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.tobytes())


CIFAR = RNG.integers(256, size=(12, 3073)).astype(np.uint8)
CIFAR[:, 0] = np.arange(12) % 10
DIGITS = RNG.integers(256, size=(6, 28, 28)).astype(np.uint8)
NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]

# One small file for each released one, as their authors write them.
BODIES = {
    "ag_news": {
        "train": b'"3","Wall St. Bears","Short-sellers, ""again""."\n"1","Talks","They met."\n',
        "test": b'"2","Cup final","A late goal."\n',
    },
    "banking77": {
        "train": b"text,category\nWhere is it?,Refund_not_showing_up\nWhy?,request_refund\n"
        b'"Card, please",activate_my_card\nNow?,receiving_money\n',
        "test": b"text,category\nHello?,activate_my_card\n",
    },
    "cifar10": {
        "all": tar_of(
            {
                "cifar-10-batches-bin/batches.meta.txt": "\n".join([*NAMES, ""]).encode(),
                **{
                    f"cifar-10-batches-bin/data_batch_{i}.bin": CIFAR[2 * i - 2 : 2 * i].tobytes()
                    for i in (3, 1, 2, 5, 4)
                },
                "cifar-10-batches-bin/test_batch.bin": CIFAR[10:].tobytes(),
            }
        ),
    },
    "emotion": {
        "train": b"i didnt feel humiliated;sadness\ni feel strong; alive;joy\n",
        "test": b"im feeling rather rotten;sadness\n",
    },
    "imdb": {
        "all": tar_of(
            {
                "aclImdb/README": b"Large Movie Review Dataset",
                "aclImdb/train/pos/10_9.txt": b"Great.<br />Really.",
                "aclImdb/train/pos/2_10.txt": "Superb, très bon.".encode(),
                "aclImdb/train/neg/0_3.txt": b"Dull.",
                "aclImdb/train/unsup/0_0.txt": b"Unknown.",
                "aclImdb/train/urls_pos.txt": b"http",
                "aclImdb/test/neg/1_1.txt": b"Bad.",
            }
        ),
    },
    "mnist": {
        "train images": idx(DIGITS[:4]),
        "train labels": idx(np.array([5, 0, 4, 1], dtype=np.uint8)),
        "test images": idx(DIGITS[4:]),
        "test labels": idx(np.array([7, 2], dtype=np.uint8)),
    },
    "trec6": {
        "train": b"DESC:manner How did serfdom develop ?\nENTY:cremat What films featured it ?\n"
        b"NUM:date When was Nabokov\xe9 born ?\n",
        "test": b"LOC:other Where is it ?\n",
    },
}

# Texts and codes of both splits, and the names of the classes.
EXPECTED = {
    "ag_news": (
        (['Wall St. Bears Short-sellers, "again".', "Talks They met."], [2, 0]),
        (["Cup final A late goal."], [1]),
        ["World", "Sports", "Business", "Sci/Tech"],
    ),
    "banking77": (
        (["Where is it?", "Why?", "Card, please", "Now?"], [2, 3, 0, 1]),
        (["Hello?"], [0]),
        ["activate_my_card", "receiving_money", "Refund_not_showing_up", "request_refund"],
    ),
    "emotion": (
        (["i didnt feel humiliated", "i feel strong; alive"], [0, 1]),
        (["im feeling rather rotten"], [0]),
        ["sadness", "joy", "love", "anger", "fear", "surprise"],
    ),
    "imdb": (
        (["Dull.", "Superb, très bon.", "Great.<br />Really."], [0, 1, 1]),
        (["Bad."], [0]),
        ["neg", "pos"],
    ),
    "trec6": (
        (
            ["How did serfdom develop ?", "What films featured it ?", "When was Nabokové born ?"],
            [2, 1, 5],
        ),
        (["Where is it ?"], [4]),
        ["ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM"],
    ),
}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        self.server.requests.append(self.path)


def register(monkeypatch, tmp_path, change):
    """Let the package take other hashes and addresses than those of the released files."""
    path = tmp_path / "registry.txt"
    entries = [change(*entry) for entry in known_files()]
    path.write_text("".join(f"{' '.join(entry)}\n" for entry in entries))
    monkeypatch.setattr(datasets, "REGISTRY", path)


def known_files():
    """Name, hash and address of every file, as registered."""
    lines = datasets.REGISTRY.read_text().splitlines()
    return [tuple(line.split()) for line in lines if not line.startswith("#")]


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The registry, pointed at small files on this machine."""
    root = tmp_path / "server"
    here = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root)))
    here.requests = []
    threading.Thread(target=here.serve_forever, args=(0.01,), daemon=True).start()
    for dataset, bodies in BODIES.items():
        (root / dataset).mkdir(parents=True)
        for key, body in bodies.items():
            (root / dataset / datasets.FILES[dataset][key]).write_bytes(body)

    def local(name, known, url):
        digest = hashlib.sha256((root / name).read_bytes()).hexdigest()
        return name, f"sha256:{digest}", f"http://127.0.0.1:{here.server_port}/{name}"

    register(monkeypatch, tmp_path, local)
    yield here
    here.shutdown()
    here.server_close()


def fetch(name, folder, subset="train", **options):
    return datasets.fetch(name, subset, data_home=folder, **options)


@pytest.mark.parametrize("name", list(EXPECTED))
def test_texts(name, server, tmp_path):
    (train, train_codes), (test, test_codes), names = EXPECTED[name]
    both = train + test, train_codes + test_codes
    for subset, own in {
        "train": (train, train_codes),
        "test": (test, test_codes),
        "all": both,
    }.items():
        found = fetch(name, tmp_path, subset)
        assert (found.data, found.target.tolist(), found.target_names) == (*own, names)
    with pytest.raises(ValueError, match="subset must be one of train, test, all"):
        fetch(name, tmp_path, "validation")


def test_images(server, tmp_path):
    train = fetch("cifar10", tmp_path)
    assert train.data.shape == (10, 32, 32, 3)
    assert train.target.tolist() == list(range(10))
    assert train.target_names == NAMES
    # Red, then green, then blue, each row by row.
    assert train.data[3, 0, 1].tolist() == CIFAR[3, [2, 1 + 1024 + 1, 1 + 2048 + 1]].tolist()
    assert fetch("cifar10", tmp_path, "all").target.tolist() == [*range(10), 0, 1]
    both = fetch("mnist", tmp_path, "all")
    np.testing.assert_array_equal(both.data, DIGITS)
    assert both.target.tolist() == [5, 0, 4, 1, 7, 2]
    np.testing.assert_array_equal(fetch("mnist", tmp_path, "test").data, DIGITS[4:])


@pytest.mark.parametrize("name", datasets.FILES)
def test_the_cache_is_used_and_checked(name, server, tmp_path, monkeypatch):
    with pytest.raises(OSError, match="download_if_missing=False"):
        fetch(name, tmp_path, download_if_missing=False)
    fetch(name, tmp_path)
    n_requests = len(server.requests)
    assert n_requests == len(BODIES[name])
    fetch(name, tmp_path, download_if_missing=False)
    assert len(server.requests) == n_requests
    path = tmp_path / "balldp" / name / next(iter(datasets.FILES[name].values()))
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(OSError, match="is not the released file"):
        fetch(name, tmp_path)
    # Files put there by hand serve without a network.
    shutil.rmtree(tmp_path / "balldp")
    closed = "http://127.0.0.1:9/closed"
    register(monkeypatch, tmp_path, lambda file, known, url: (file, known, closed))
    with pytest.raises(OSError, match=r"could not download .*put the file at"):
        fetch(name, tmp_path)
    assert not list(tmp_path.glob("balldp/*/*"))
    for key, file in datasets.FILES[name].items():
        (tmp_path / "balldp" / name / file).write_bytes(BODIES[name][key])
    assert len(fetch(name, tmp_path).target) > 0


def test_a_tampered_download_is_refused(server, tmp_path, monkeypatch):
    register(monkeypatch, tmp_path, lambda file, known, url: (file, f"sha256:{'0' * 64}", url))
    with pytest.raises(OSError, match="could not download"):
        fetch("trec6", tmp_path)
    assert not list(tmp_path.glob("balldp/*/*"))


def test_released_files_have_checksums():
    lengths = {"md5": 32, "sha256": 64}
    names = {f"{name}/{file}" for name, files in datasets.FILES.items() for file in files.values()}
    assert {name for name, _, _ in known_files()} == names
    for _, known, url in known_files():
        algorithm, digest = known.split(":")
        assert len(digest) == lengths[algorithm]
        assert url.startswith("https://")


def test_load_embeddings(tmp_path):
    rows = RNG.standard_normal((5, 3)).astype(np.float16)
    rows[0] = 0
    path, y = tmp_path / "small.npz", np.array([0, 1, 0, 1, 1])
    np.savez(path, X_train=rows, y_train=y, X_test=rows[:2], y_test=[1, 0])
    found = load_embeddings(path)
    assert found.X_train.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found.X_train, axis=1), [0, 1, 1, 1, 1], rtol=1e-6)
    np.testing.assert_array_equal(load_embeddings(path, normalize=False).X_test, rows[:2])
    np.savez(path, X_train=rows, y_train=y.astype(object), X_test=rows, y_test=y)
    with pytest.raises(ValueError, match=r"holds Python objects.*y.astype\(str\)"):
        load_embeddings(path)
    np.savez(path, X_train=rows, y_train=y)
    with pytest.raises(ValueError, match=r"lacks the array\(s\) X_test, y_test"):
        load_embeddings(path)
    with pytest.raises(OSError, match="nothing"):
        load_embeddings(tmp_path / "nothing.npz")
