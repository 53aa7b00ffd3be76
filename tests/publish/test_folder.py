"""A folder to publish: written whole, checked file by file, loaded by a stranger."""

import json
import os
import sys
import types

import numpy as np
import pytest
import sklearn
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, Normalizer, StandardScaler

from sklearn_balldp import BallDPLogisticRegression, BallDPRidgePrototype, verify
from sklearn_balldp.audit import PooledPreprocessingWarning
from sklearn_balldp.command import main
from sklearn_balldp.encoders import SentenceEncoder
from sklearn_balldp.publish import folder as folder_module
from sklearn_balldp.publish import load, save
from sklearn_balldp.publish.folder import FILES
from sklearn_balldp.publish.saving import check_writable
from sklearn_balldp.rows import DenseRows

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((300, 6)), np.arange(300) % 3


def model(**params):
    head = BallDPLogisticRegression(**{"epsilon": 4.0, "radius": 0.5, **params})
    return make_pipeline(Normalizer(), head).fit(X, Y)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return save(model(), tmp_path_factory.mktemp("published") / "model")


@pytest.fixture
def copied(published, tmp_path):
    """The folder again, to tamper with."""
    target = tmp_path / "copy"
    target.mkdir()
    for path in published.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def failed(folder, **options):
    return [check.name for check in verify(folder, **options).checks if check.verdict == "FAIL"]


def test_what_is_written_is_loaded_and_verified(tmp_path):
    own = model()
    folder = save(own, tmp_path / "deep" / "model")
    assert {path.name for path in folder.iterdir()} == set(FILES)
    assert not failed(folder)
    np.testing.assert_array_equal(load(folder).predict(X), own.predict(X))
    np.testing.assert_array_equal(load(str(folder)).predict_proba(X), own.predict_proba(X))
    config = json.loads((folder / "config.json").read_text())["sklearn"]
    assert config["model"]["file"] == "model.skops"
    assert config["model_format"] == "skops"
    assert (folder / "README.md").read_text().startswith("---\nlibrary_name: sklearn_balldp\n")
    assert not [path.name for path in folder.parent.iterdir() if path.name.startswith(".")]


def replaced(name, old, new):
    def change(folder):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return change


def added(name, text="rows"):
    return lambda folder: (folder / name).write_text(text)


def linked(folder):
    (folder / "card.html").rename(folder.parent / "elsewhere")
    (folder / "card.html").symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (replaced("README.md", "at most 32.", "at most 12."), ["README.md"]),
        (
            replaced("README.md", "compares it. -->\n", "compares it. -->\nepsilon 0.1\n"),
            ["README.md"],
        ),
        (replaced("card.html", "epsilon", "epsilon "), ["card.html"]),
        (replaced("config.json", "skops", "pickle"), ["config.json"]),
        (replaced("predict.py", "import sys", "import sys, os"), ["predict.py"]),
        (replaced("release.json", '"epsilon": 4', '"epsilon": 3'), ["record"]),
        (replaced("release.json", "{", "{ "), ["release.json"]),
        (replaced("release.json", "\n", "\r\n"), ["release.json"]),
        (added("further.txt"), ["folder"]),
        (added("rows.npz\n\x1b[2JPASS"), ["folder"]),
        (lambda folder: (folder / "private").mkdir(), ["folder"]),
        (lambda folder: (folder / "card.html").unlink(), ["folder"]),
        (lambda folder: (folder / "card.html").write_bytes(b"\xff" * 20), ["card.html"]),
        (lambda folder: (folder / "README.md").write_bytes(b"a" * 2**24), ["README.md"]),
        (linked, ["card.html"]),
    ],
)
def test_what_was_tampered_with_is_named(copied, change, names):
    change(copied)
    assert failed(copied) == names
    # Nothing of a file reaches the terminal as it is.
    assert "\x1b" not in str(verify(copied))


def test_a_model_of_another_fit_is_named(copied, tmp_path):
    other = save(model(), tmp_path / "other")
    (copied / "model.skops").write_bytes((other / "model.skops").read_bytes())
    assert "the model's own record" in failed(copied)
    with pytest.raises(ValueError, match="the record beside the model is not its own"):
        load(copied)


def test_the_publishers_own_text_is_to_be_read(copied):
    replaced("README.md", "FILL IN", "Letters to a bank")(copied)
    (line,) = [c for c in verify(copied).checks if c.name == "text of the README"]
    assert line.verdict == "CANNOT CHECK"
    assert not failed(copied)


def test_another_version_is_no_forgery(copied, monkeypatch):
    """Yet nothing that it differs in passes: a forger may name any version."""
    monkeypatch.setattr(folder_module, "__version__", "9.9")
    assert not [c for c in verify(copied).checks if c.verdict == "CANNOT CHECK" and "." in c.name]
    replaced("predict.py", "import sys", "import sys, os")(copied)
    assert failed(copied) == ["predict.py"]
    replaced("card.html", "<p>", "<p> ")(copied)
    (line,) = [c for c in verify(copied).checks if c.name == "card.html"]
    assert line.verdict == "CANNOT CHECK"
    assert "do not run or trust it" in line.found
    assert "not normal for such a model at: card.html" in str(verify(copied))


@pytest.mark.parametrize("missing", ["model.skops", "release.json"])
def test_a_folder_without_its_parts(copied, missing):
    (copied / missing).unlink()
    for read in (verify, load):
        with pytest.raises(ValueError, match=f"holds no {missing}"):
            read(copied)


def test_a_folder_is_replaced_only_by_force_and_only_if_it_is_a_model(published, tmp_path):
    own = model()
    folder = save(own, tmp_path / "model")
    before = (folder / "release.json").read_text()
    with pytest.raises(ValueError, match="exists: name another one"):
        save(own, folder)
    assert (folder / "release.json").read_text() == before
    save(model(epsilon=2.0), folder, force=True)
    assert '"epsilon": 2.0' in (folder / "release.json").read_text()
    (folder / "diary.txt").write_text("mine")
    with pytest.raises(ValueError, match="it holds something else"):
        save(own, folder, force=True)
    assert (folder / "diary.txt").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_comes_back_where_its_place_cannot_be_taken(tmp_path, monkeypatch):
    folder = save(model(), tmp_path / "model")
    before = (folder / "release.json").read_text()
    rename = os.rename

    def interrupted(source, target):
        if target == folder and os.path.basename(source) != "old":
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(model(), folder, force=True)
    assert (folder / "release.json").read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_the_publisher_wrote_stays(tmp_path):
    folder = save(model(), tmp_path / "model")
    readme = folder / "README.md"
    plain = readme.read_text()
    readme.write_text(plain.replace("license: unknown", "license: mit"))
    save(model(epsilon=2.0), folder, force=True)
    assert "license: mit" in readme.read_text()
    assert readme.read_text().split("<!--")[1] != plain.split("<!--")[1]
    assert not failed(folder)
    assert [c.verdict for c in verify(folder).checks if c.name == "text of the README"]


def test_hashed_words_travel(tmp_path):
    """A pipeline of scikit-learn's hashing and dense rows is made anew by whoever receives it."""
    texts = [f"{word} {i}" for i in range(40) for word in ("pay my card", "return the money")]
    labels = ["card", "money"] * 40
    words = HashingVectorizer(n_features=64, ngram_range=(1, 2))
    own = make_pipeline(words, DenseRows(), BallDPRidgePrototype(8.0, radius=0.5))
    folder = save(own.fit(texts, labels), tmp_path / "model")
    assert not failed(folder)
    assert "pipeline_tag: text-classification" in (folder / "README.md").read_text()
    np.testing.assert_array_equal(load(folder).predict(texts), own.predict(texts))
    checks = {check.name: check.verdict for check in verify(own, own[-1].release_).checks}
    assert checks["model"] == "PASS"


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("input", "filename"),
        ("token_pattern", "(a+)+b"),
        ("stop_words", ["secret"]),
        ("tokenizer", str.split),
        ("dtype", np.float32),
        ("n_features", 2**30),
    ],
)
def test_a_vectorizer_that_could_harm_is_refused(tmp_path, parameter, value):
    """It would read files, run a slow pattern or a function, hold words, or fill the memory."""
    words = HashingVectorizer(**{"n_features": 64, parameter: value})
    own = make_pipeline(words, DenseRows(), BallDPRidgePrototype(8.0, radius=0.5).fit(X, Y))
    with pytest.raises(ValueError, match=r"would be refused|is no skops file"):
        save(own, tmp_path / "model")


@pytest.mark.parametrize("step", [StandardScaler(), MaxAbsScaler(), PCA(3), TruncatedSVD(3)])
def test_a_step_that_learned_from_rows_is_told(tmp_path, step):
    """Of which rows a model does not tell; its owner knows."""
    head = BallDPRidgePrototype(8.0, radius=0.5)
    own = make_pipeline(step, head).fit(X, Y)
    with pytest.warns(PooledPreprocessingWarning, match=f"{own.steps[0][0]} learned from rows"):
        folder = save(own, tmp_path / "pooled")
    assert not failed(folder)
    # In silence: what was fitted elsewhere and frozen, and what learns nothing.
    public = FrozenEstimator(step.fit(RNG.standard_normal((50, 6))))
    features = RBFSampler(n_components=8, random_state=0)
    for steps in ([public, Normalizer()], [features], ["passthrough"]):
        own = make_pipeline(*steps, head).fit(X, Y)
        save(own, tmp_path / f"folder {len(list(tmp_path.iterdir()))}")


def test_earlier_releases_are_folders_too(published, tmp_path):
    other = save(model(), tmp_path / "other")
    names = [check.name for check in verify(published, earlier=[other], private=(X, Y)).checks]
    assert "rows" in names


@pytest.mark.parametrize(
    ("own", "match"),
    [
        (lambda: model(random_state=0), "would see FAIL .sampler"),
        (
            lambda: make_pipeline(FunctionTransformer(), BallDPRidgePrototype(4.0, radius=0.5)).fit(
                X, Y
            ),
            "the step functiontransformer, which nobody can load",
        ),
        (lambda: Normalizer(), "expected a fitted Ball-DP head"),
        (lambda: BallDPRidgePrototype(), "expected a fitted Ball-DP head"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_a_receiver_would_refuse_is_not_written(tmp_path, own, match):
    with pytest.raises(ValueError, match=match):
        save(own(), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_nothing_of_the_owners_travels(tmp_path):
    """Caches, devices, paths and requests of metadata stay where they are."""
    weights = tmp_path / "secret place" / "weights"
    weights.mkdir(parents=True)
    encoder = SentenceEncoder(str(weights), cache_dir=tmp_path / "cache", device="cpu")
    head = BallDPRidgePrototype(4.0, radius=0.5, encoder=encoder.identity).fit(X, Y)
    with sklearn.config_context(enable_metadata_routing=True):
        head.set_fit_request(groups=True)
    own = make_pipeline(encoder, head)
    folder = save(own, tmp_path / "model")
    for path in folder.iterdir():
        assert b"secret place" not in path.read_bytes()
        assert b"cache" not in path.read_bytes().replace(b"cache_dir", b"")
    # The owner's model is as it was.
    assert own.steps[0][1].cache_dir == tmp_path / "cache"
    assert not failed(folder)
    with pytest.raises(ValueError, match="pass encoder="):
        load(folder)


def test_a_repository_of_the_hub(published, tmp_path, monkeypatch):
    asked, cache = [], tmp_path / "cache"
    cache.mkdir()
    for path in published.iterdir():
        # As the hub's cache holds them.
        (cache / path.name).symlink_to(path)

    def snapshot_download(name, allow_patterns):
        asked.append((name, allow_patterns))
        return str(cache)

    hub = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    np.testing.assert_array_equal(load("bank/letters").predict(X), load(published).predict(X))
    assert asked == [("bank/letters", list(FILES))]
    assert main(["card", "bank/letters-v1.0"]) == 0

    def refused(name, allow_patterns):
        raise OSError("no network\nPASS")

    hub.snapshot_download = refused
    with pytest.raises(ValueError, match="cannot be downloaded: OSError: no network") as caught:
        load("bank/letters")
    assert "\n" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match="is no file and no folder"):
        load("bank/letters")


@pytest.mark.skipif(os.name != "posix", reason="this system is not POSIX")
def test_predict_py_runs_in_a_process_of_its_own(published, tmp_path):
    import subprocess

    (tmp_path / "rows.csv").write_text("embedding\n" + '"1 0 0 0 0 0"\n"0 1 0 0 0 0"\n')
    done = subprocess.run(
        [sys.executable, str(published / "predict.py"), "rows.csv"],
        cwd=tmp_path,
        env={"HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "embedding,prediction,probability"
    assert len(done.stdout.splitlines()) == 3


def test_a_text_that_would_be_lost_ends_it_before_the_noise(tmp_path):
    folder = save(model(), tmp_path / "model")
    readme = folder / "README.md"
    own = readme.read_text().replace("license: unknown", "license: mit")
    readme.write_bytes(own.replace("\n", "\r\n").encode())
    save(model(), folder, force=True)
    assert "license: mit" in readme.read_text()
    readme.write_text(own + "\n## Citation\n")
    with pytest.raises(ValueError, match="would be lost; move it away"):
        check_writable(folder, True)
    readme.write_text(own.replace("<!-- What follows", "<!-- what follows"))
    with pytest.raises(ValueError, match="would be lost; move it away"):
        check_writable(folder, True)
    with pytest.raises(ValueError, match="would be lost; move it away"):
        save(model(), folder, force=True)
    assert "license: mit" in readme.read_text()
