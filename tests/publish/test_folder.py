"""A folder to publish: written whole, checked file by file, loaded by a stranger."""

import os
import shutil
import sys
import time
import types
from functools import cache
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
import sklearn
from sklearn.decomposition import PCA
from sklearn.ensemble import VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler
from verdicts import failed, line

from sklearn_balldp import (
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    GradientPerturbation,
    verify,
)
from sklearn_balldp.audit import PooledPreprocessingWarning
from sklearn_balldp.command import main
from sklearn_balldp.encoders import SentenceEncoder
from sklearn_balldp.publish import folder as folder_module
from sklearn_balldp.publish import load, save
from sklearn_balldp.publish.files import CARD, FILES, README

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((300, 6)), np.arange(300) % 3


@cache
def model(**params):
    head = BallDPLogisticRegression(**{"epsilon": 4.0, "radius": 0.5, **params})
    return make_pipeline(Normalizer(), head).fit(X, Y)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return save(model(), tmp_path_factory.mktemp("published") / "model")


@pytest.fixture
def copied(published, tmp_path):
    """The folder again, to tamper with."""
    return shutil.copytree(published, tmp_path / "copy")


def refused(folder, match, readers=(verify, load)):
    for read in readers:
        with pytest.raises(ValueError, match=match):
            read(folder)


def test_a_clone_with_other_line_ends_is_honest(copied):
    for path in copied.iterdir():
        if path.suffix != ".safetensors":
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    verdict = verify(copied)
    assert not verdict.failed, str(verdict)
    assert load(copied)
    arrays = copied / "model.safetensors"
    arrays.write_bytes(arrays.read_bytes() + b"\n")
    refused(copied, "safetensors")


def replaced(name, old, new):
    def change(folder):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return change


def added(name, text="rows"):
    return lambda folder: (folder / name).write_text(text)


def linked(folder, name=CARD):
    (folder / name).rename(folder.parent / "elsewhere")
    (folder / name).symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (replaced(CARD, "at most 32.", "at most 12."), [CARD]),
        (replaced(CARD, "# Privacy", "epsilon 0.1\n\n# Privacy"), [CARD]),
        (replaced("release.json", '"epsilon": 4', '"epsilon": 3'), ["record"]),
        (replaced("release.json", '"epsilon": 4.0', '"epsilon": 4'), ["release.json"]),
        (replaced("config.json", '"norm": "l2"', '"norm": "l5"'), ["config.json"]),
        (replaced("config.json", '"digest": null', '"digest": "0"'), ["config.json"]),
        (lambda folder: (folder / CARD).unlink(), ["folder"]),
        (lambda folder: (folder / CARD).write_bytes(b"\xff" * 20), [CARD]),
        (lambda folder: (folder / CARD).write_bytes(b"![" * 2**24), [CARD]),
        (replaced(CARD, "## In short", 2**22 * "!["), [CARD]),
        (linked, [CARD]),
        *[
            (added(name), ["folder"])
            for name in (
                *("model.skops", "rows.npz", "further.safetensors", "predict.py", "card.html"),
                *("Readme.MD", "release.json.bak", "rows.npz\n\x1b[2JPASS", "labels\n.csv"),
                *("CARD .md", "\uff23\uff21\uff32\uff24.md", "release\u2024json", "\u0421ARD"),
            )
        ],
        (lambda folder: (folder / "model").mkdir(), ["folder"]),
    ],
)
@pytest.mark.kills("publish/folder.py", ".names) if _may_be_taken(name)]", ".names) if False]")
def test_what_was_tampered_with_is_named(copied, change, names):
    change(copied)
    begin = time.process_time()
    verdict = verify(copied)
    assert failed(verdict) == names
    # Nothing of a file reaches the terminal as it is, and long files are slow for nobody.
    assert "\x1b" not in str(verdict)
    assert time.process_time() - begin < 10.0


def test_bytes_that_are_no_text_do_not_pass_for_what_shows_them(tmp_path):
    head = BallDPRidgePrototype(4.0, radius=0.5, encoder="a \ufffd").fit(X, Y)
    folder = save(head, tmp_path / "model")
    card = folder / CARD
    card.write_bytes(card.read_bytes().replace("\ufffd".encode(), b"\xff", 1))
    assert failed(verify(folder)) == [CARD]


@pytest.mark.kills("publish/folder.py", '{".git", ".cache", ".DS_Store"}', "set()")
def test_files_that_every_repository_has_are_a_note(copied):
    for name in ("LICENSE", ".gitattributes", "CITATION.cff", ".DS_Store"):
        added(name)(copied)
    for add in map(in_a_folder, (".git/config", ".cache/huggingface/x")):
        add(copied)
    verdict = verify(copied)
    note = line(verdict, "own texts")
    assert note.verdict == "STATED"
    names = ".DS_Store, .cache, .git, .gitattributes, CITATION.cff, LICENSE, README.md: "
    assert note.found.startswith(names)
    assert {check.verdict for check in verdict.checks} <= {"PASS", "STATED"}
    assert verdict.sentence == "Nothing was refuted."
    assert load(copied)


def in_a_folder(name):
    def add(folder):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("rows")

    return add


@pytest.mark.parametrize(
    ("add", "named"),
    [
        (added("patients.csv"), "patients.csv"),
        (added("\u0437\u0430\u043c.md"), "\u0437\u0430\u043c.md"),
        (in_a_folder("data/.DS_Store"), "data/.DS_Store"),
        (in_a_folder("data/deep/LICENSE"), "data/deep/LICENSE"),
        (in_a_folder("data/\x1b[2Jx"), r"data/\x1b[2Jx"),
        (in_a_folder(".ssh/key"), ".ssh"),
        (lambda folder: (folder / ".git").symlink_to(folder.parent), ".git (a link)"),
        (lambda folder: (folder / "pictures").mkdir(), "pictures"),
        (lambda folder: linked(folder, README), "README.md (a link)"),
        (lambda folder: (folder / "data").symlink_to(folder.parent), "data (a link)"),
        (lambda folder: (folder / "loop").symlink_to("loop"), "loop"),
        (lambda folder: [added(f"{i:02}.csv")(folder) for i in range(30)], "09.csv and 20 more"),
    ],
)
def test_files_that_may_hold_records_are_named(copied, add, named):
    add(copied)
    verdict = verify(copied)
    assert line(verdict, "further files").verdict == "WEAK"
    assert not verdict.failed
    assert line(verdict, "further files").found.endswith(f"{named}: no part of the model")
    assert "files that are no part of the model and may hold records" in verdict.sentence


def test_what_cannot_be_opened_is_named(copied, monkeypatch):
    """A locked folder may hold records as well, and a locked file is no traceback."""
    in_a_folder("data/patients.csv")(copied)
    scandir, read = os.scandir, Path.read_bytes

    def closed(path, *names):
        if Path(path).name in names:
            raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", lambda path: closed(path, "data") or scandir(path))
    assert line(verify(copied), "further files").found.startswith("data (cannot be opened): ")
    for name in ("release.json", CARD):
        monkeypatch.setattr(Path, "read_bytes", lambda path, n=name: closed(path, n) or read(path))
        refused(copied, rf"{name}' cannot be read \(Permission denied\)")


def test_the_publishers_own_text_is_never_read(copied):
    before = verify(copied).checks
    for text in ("# Privacy card\n\nepsilon 0.01\n", 2**22 * "![", "\x1b[2J\ud800"):
        (copied / README).write_bytes(text.encode("utf-8", "surrogatepass"))
        assert verify(copied).checks == before
    assert (
        "README.md: the publisher's own, or left by tools; not read"
        in line(verify(copied), "own texts").found
    )
    (copied / README).unlink()
    assert not failed(verify(copied))
    assert load(copied)


@pytest.mark.needs("huggingface_hub")
def test_hubs_read_the_fields_of_a_readme(published):
    from huggingface_hub import ModelCard

    card = ModelCard.load(published / "README.md")
    assert card.data.library_name == "sklearn_balldp"
    assert card.data.pipeline_tag == "tabular-classification"


@pytest.mark.kills(
    "publish/model.py", "sha256(arrays_text(others)).hexdigest() if others", "None if 1"
)
def test_an_accident_in_a_step_is_found(tmp_path):
    frozen = FrozenEstimator(StandardScaler().fit(X))
    own = make_pipeline(frozen, BallDPRidgePrototype(4.0, radius=0.5)).fit(X, Y)
    folder = save(own, tmp_path / "model")
    path = folder / "model.safetensors"
    body = bytearray(path.read_bytes())
    place = body.index(frozen.estimator.mean_.tobytes())
    body[place + 3] ^= 1
    path.write_bytes(body)
    assert failed(verify(folder)) == ["config.json"]
    refused(folder, r"config\.json: it differs .*digest", [load])


def test_a_folder_may_have_backslashes_in_its_name(published, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(published, tmp_path / "out\\model")
    assert main(["verify", "out\\model"]) == 0
    with pytest.raises(ValueError, match="is no folder"):
        load("bank\\letters")


def test_another_version_is_no_forgery(copied, monkeypatch):
    """Yet nothing that it differs in passes: a forger may name any version."""
    monkeypatch.setattr(folder_module, "__version__", "9.9")
    assert not failed(verify(copied))
    assert line(verify(copied), CARD).verdict == "PASS"
    replaced(CARD, "In short", "Briefly")(copied)
    assert line(verify(copied), CARD).verdict == "CANNOT CHECK"
    assert "do not trust it" in line(verify(copied), CARD).found
    assert verify(copied).sentence.endswith("CANNOT CHECK, read them: CARD.md.")


@pytest.mark.parametrize("missing", ["model.safetensors", "release.json", "config.json"])
@pytest.mark.kills("publish/files.py", "if leads_out(folder / name):", "if False:")
def test_a_folder_without_its_parts(copied, missing):
    linked(copied, missing)
    refused(copied, f"{missing} is a link that leads out of its folder")
    (copied / missing).unlink()
    refused(copied, f"holds no {missing}")
    (copied / missing).symlink_to(copied / CARD)
    refused(copied, "cannot be read")
    for path in (copied / CARD, f"{copied}/mistyped"):
        refused(path, "no folder")


@pytest.mark.parametrize("name", [CARD, "LICENSE", ".git/config"])
def test_nothing_is_overwritten(tmp_path, name):
    in_a_folder(f"m/{name}")(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    for place in ("m", "link"):
        with pytest.raises(ValueError, match=r"folder=.*exists, and nothing is overwritten: name"):
            save(model(), tmp_path / place)
    assert (tmp_path / "m" / name).read_text() == "rows"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "m" / name]


def test_transcripts_travel_where_they_are_asked_for(tmp_path):
    steps = GradientPerturbation(n_steps=4, keep_transcript=True)
    own = model(mechanism=steps)
    quiet, open_ = save(own, tmp_path / "quiet"), save(own, tmp_path / "open", transcript=True)
    assert "transcript" not in {check.name for check in verify(quiet).checks}
    assert line(verify(open_), "transcript").found.startswith("4 steps lead to the released model")
    named = {check.name: check.verdict for check in verify(open_, private=(X, Y)).checks}
    assert named["scale of the noise"] == "PASS"
    np.testing.assert_array_equal(
        load(open_)[-1].transcript_.gradients, own[-1].transcript_.gradients
    )
    assert not hasattr(load(quiet)[-1], "transcript_")
    for other in (model(), BallDPRidgePrototype(4.0, radius=0.5).fit(X, Y)):
        with pytest.raises(ValueError, match="the head kept none"):
            save(other, tmp_path / "none", transcript=True)


class Own(BallDPRidgePrototype):
    """A head of one's own."""


@pytest.mark.parametrize(
    ("own", "match"),
    [
        (lambda: model(random_state=0), "would see FAIL .sampler"),
        (
            lambda: make_pipeline(FunctionTransformer(), model()[-1]),
            "FunctionTransformer cannot be published",
        ),
        (lambda: Own(4.0, radius=0.5).fit(X, Y), "Own cannot be published|cannot be published"),
        (lambda: Normalizer(), "expected a fitted Ball-DP head"),
        (lambda: BallDPRidgePrototype(), "expected a fitted Ball-DP head"),
        (
            lambda: VotingClassifier([("one", BallDPRidgePrototype())]).fit(np.eye(2), [0, 1]),
            "VotingClassifier, which holds several models.*save each of its estimators_",
        ),
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
        assert b"cache" not in path.read_bytes()
    # The owner's model is as it was.
    assert own.steps[0][1].cache_dir == tmp_path / "cache"
    assert not failed(verify(folder))
    with pytest.raises(ValueError, match="pass encoder="):
        load(folder)


@pytest.fixture
def cache(published, tmp_path):
    """The hub's cache: a folder of links to the files, under names of their content."""
    place = tmp_path / "hub" / "models--bank--letters"
    (place / "blobs").mkdir(parents=True)
    snapshot = place / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    for number, path in enumerate(published.iterdir()):
        (place / "blobs" / str(number)).write_bytes(path.read_bytes())
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")
    return snapshot


def test_a_repository_of_the_hub(published, cache, monkeypatch, tmp_path):
    """A name of the hub says that it is one: a mistyped path is nobody's repository."""
    asked = []

    def snapshot_download(name, **options):
        asked.append((name, options["revision"], options["allow_patterns"]))
        return str(cache)

    hub = types.SimpleNamespace(snapshot_download=snapshot_download, HfApi=MagicMock())
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.chdir(tmp_path)
    named = "hf://bank/letters"
    np.testing.assert_array_equal(load(named).predict(X), load(published).predict(X))
    assert not verify(f"{named}@v1.0").failed
    assert main(["verify", named]) == 0
    revisions = (None, "v1.0", None)
    assert asked == [("bank/letters", revision, list(FILES)) for revision in revisions]
    asked.clear()
    for mistyped in ("bank/letters", "models/leters", "letters"):
        with pytest.raises(ValueError, match="is no folder; name the folder"):
            load(mistyped)
        assert main(["verify", mistyped]) == 2
        assert main(["predict", mistyped, "new.csv"]) == 2
    with pytest.raises(ValueError, match="reads hf://OWNER/NAME"):
        load("hf://letters")
    assert not asked

    hub.HfApi.return_value.model_info.side_effect = ConnectionError("no network\nPASS")
    # What is in the cache is taken without the hub, and not silently.
    with pytest.warns(UserWarning, match="did not answer .*the copy in its cache is taken"):
        assert not verify(named).failed
    hub.snapshot_download = MagicMock(side_effect=FileNotFoundError("no cache"))
    with pytest.raises(ValueError, match="no download: ConnectionError") as caught:
        load("hf://post/letters")
    assert "\n" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match="needs huggingface_hub"):
        load("hf://post/letters")


@pytest.mark.parametrize("step", [StandardScaler(), PCA(3)])
def test_a_step_that_learned_from_rows_is_told(tmp_path, step):
    """Of which rows a model does not tell; its owner knows."""
    head = BallDPRidgePrototype(8.0, radius=0.5)
    own = make_pipeline(step, head).fit(X, Y)
    with pytest.warns(PooledPreprocessingWarning, match=f"{own.steps[0][0]} learns from the rows"):
        folder = save(own, tmp_path / "pooled")
    assert not failed(verify(folder))
    # In silence: what was fitted elsewhere and frozen, and what learns nothing.
    public = FrozenEstimator(step.fit(RNG.standard_normal((50, 6))))
    save(make_pipeline(public, RBFSampler(n_components=8), head).fit(X, Y), tmp_path / "public")
