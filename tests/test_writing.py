"""What the package writes: in places where nothing is, whole or not at all, and its owner's."""

import os
import re
import stat
from pathlib import Path

import numpy as np
import pytest

from sklearn_balldp import (
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    GradientPerturbation,
    PrivacyAccountant,
    writing,
)
from sklearn_balldp.encoders.base import _Cache
from sklearn_balldp.publish import load, save, verify
from sklearn_balldp.publish.files import FILES, README
from sklearn_balldp.writing import new_folder, write_new

posix = pytest.mark.skipif(os.name == "nt", reason="this system is not POSIX")
RECORDS = np.eye(4)[[0, 1] * 20], [0, 1] * 20
HEAD = BallDPRidgePrototype(epsilon=8.0, radius=0.5).fit(*RECORDS)


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = os.umask(0o022)
    yield
    os.umask(own)


@pytest.mark.kills("writing.py", "os.O_CREAT | os.O_EXCL", "os.O_CREAT")
def test_a_file_that_is_there_stays_as_it_is():
    Path("file").write_text("a colleague's")
    with pytest.raises(FileExistsError):
        write_new(Path("file"), b"mine")
    assert Path("file").read_text() == "a colleague's"
    with pytest.raises(TypeError):
        write_new(Path("other"), "no bytes")
    assert not Path("other").exists()


@posix
@pytest.mark.kills("writing.py", "os.O_WRONLY | os.O_CREAT, 0o600", "os.O_WRONLY | os.O_CREAT")
@pytest.mark.kills("encoders/base.py", "mkdir(mode=0o700, ", "mkdir(")
@pytest.mark.kills("publish/saving.py", "private=transcript", "private=False")
def test_what_is_private_is_its_owners_alone():
    accountant = PrivacyAccountant("ledger")
    accountant.spend(mu=0.1, what="an answer")
    _Cache("cache").write({b"key": np.ones(4, np.float32) / 2})
    steps = GradientPerturbation(n_steps=2, keep_transcript=True)
    head = BallDPLogisticRegression(epsilon=8.0, radius=0.5, mechanism=steps).fit(*RECORDS)
    kept = save(head, "steps", transcript=True).iterdir()
    for path in ("ledger", "cache/embeddings.sqlite", *kept):
        assert mode(path) == 0o600, path
    for path in ("cache", "steps"):
        assert mode(path) == 0o700, path
    # What is published is for everybody.
    folder = save(HEAD, "model")
    assert mode(folder) == 0o755
    assert {mode(path) for path in folder.iterdir()} == {0o644}


@posix
@pytest.mark.parametrize("there", [False, True])
def test_a_folder_is_its_owners_and_its_place_is_held_until_it_is_whole(there):
    if there:
        Path("m").mkdir()
    with new_folder(Path("m")) as new:
        assert mode(new) == 0o700
        with pytest.raises(ValueError, match="folder='m' exists"), new_folder(Path("m")):
            pytest.fail("two write to one place")
        write_new(new / "file", b"whole")
        assert [path.name for path in Path("m").rglob("file")] == ["file"]
    assert os.listdir("m") == ["file"]


def interrupted(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("stop", [0, 3, None])
def test_all_of_a_model_is_written_or_nothing(there, stop, monkeypatch):
    """Whether its own checks stop it, or whoever waits for it."""
    if there:
        Path("a/m").mkdir(parents=True)
    calls = []

    def stopped(*given, **settings):
        calls.append(given)
        return interrupted() if len(calls) > stop else write_new(*given, **settings)

    if stop is None:
        monkeypatch.setattr("sklearn_balldp.publish.saving.verify", interrupted)
    else:
        monkeypatch.setattr(writing, "write_new", stopped)
    with pytest.raises(KeyboardInterrupt):
        save(HEAD, "a/m")
    assert [*Path().rglob("*")] == ([Path("a"), Path("a/m")] if there else [])


@pytest.mark.parametrize("fault", ["a full disk", "a file that appears"])
def test_a_model_that_cannot_take_its_place_lies_where_the_error_says(fault, monkeypatch):
    """It may be paid for: noise is never drawn twice for one charge."""

    def appears(folder):
        Path("m/mine").write_text("mine")
        return verify(folder)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    if fault == "a full disk":
        monkeypatch.setattr(writing, "write_new", full)
    else:
        monkeypatch.setattr("sklearn_balldp.publish.saving.verify", appears)
    with pytest.raises(
        OSError, match=r"folder='m' could not be filled \((No space|something)"
    ) as e:
        save(HEAD, "m")
    kept = re.search(r"lies in '(.*)';", str(e.value))[1]
    assert {*os.listdir(kept)} == {*FILES, README}
    assert load(kept).classes_.tolist() == [0, 1]
    assert os.path.exists("m/mine") == (fault != "a full disk")
    assert not [name for name in FILES if os.path.exists(f"m/{name}")]


@pytest.mark.parametrize("place", ["file/model", "m" * 256, "locked/model", "locked"])
def test_where_nothing_can_be_written_is_told_beforehand(place, monkeypatch):
    Path("file").write_text("mine")
    Path("locked").mkdir()
    mkdir = os.mkdir

    def refused(path, *mode):
        if "locked" in Path(path).parent.parts:
            raise PermissionError(13, "Permission denied")
        mkdir(path, *mode)

    # Whoever runs the tests may be allowed everything.
    monkeypatch.setattr(os, "mkdir", refused)
    with (
        pytest.raises(ValueError, match=r"folder=.* cannot be made: .* takes no new folder \("),
        new_folder(Path(place)),
    ):
        pytest.fail("it was begun")
    assert sorted(path.name for path in Path().rglob("*")) == ["file", "locked"]
