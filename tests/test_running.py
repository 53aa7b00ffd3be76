"""While a command runs: what is asked, noted and told, whatever ends it and wherever it prints."""

import os
import re
import shutil
import warnings
from pathlib import Path

import pytest
from axes import frame

from sklearn_balldp import PrivacyAccountant, progress, verify
from sklearn_balldp.command import main, plan, train
from sklearn_balldp.mechanisms.kernel import PrivacyFilter
from sklearn_balldp.privacy.noise import Noise

GIVEN = "rows.csv --embedding e --label label --radius 0.5"


@pytest.fixture(autouse=True)
def rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame().to_csv("rows.csv", index=False)


@pytest.fixture
def run(capsys):
    """Run a command: its status, what it printed, and the lines of its errors and notes."""

    def of(command):
        capsys.readouterr()
        status = main(command.split())
        out, error = capsys.readouterr()
        return status, out, error.splitlines()

    return of


# What is asked ------------------------------------------------------------------------------------


def test_a_fit_that_may_lose_every_class_is_asked_for(run, monkeypatch):
    lost = f"train {GIVEN} --epsilon 0.001 --out model --ledger ledger"
    status, out, [error] = run(lost)
    assert "3 of 3 classes likely lost in the noise, 0 more at risk" in out
    assert (status, "--anyway" in error) == (2, True)
    assert not Path("model").exists()
    assert not Path("ledger").exists()
    assert run(f"{lost} --anyway")[0] == 0
    # One class that stays is enough.
    monkeypatch.setattr(train, "LOST", 0.0)
    assert run(lost.replace("model", "other"))[0] == 0


def test_a_long_fit_shows_a_bar(run, monkeypatch):
    """Also where the output is a file, as that of a job on a cluster is."""
    monkeypatch.setattr(progress, "DELAY", 0.0)
    status, _, lines = run(f"train {GIVEN} --epsilon 8 --out model")
    assert status == 0
    assert any("descent" in line for line in lines)


# Interruptions ------------------------------------------------------------------------------------


def interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ((train, "foretell"), "nothing was charged or written"),
        ((PrivacyFilter, "charge"), "nothing was charged or written"),
        ((Noise, "__call__"), "ledger counts this fit, whose model was not written"),
        ((train, "write_model"), "ledger counts this fit, whose model was not written"),
        ((train, "warning"), "the model is in model"),
    ],
)
def test_who_interrupts_a_fit_is_told_whether_it_was_charged(place, said, run, monkeypatch):
    PrivacyAccountant("ledger", radius=0.5)
    monkeypatch.setattr(*place, interrupt)
    status, _, [error] = run(f"train {GIVEN} --epsilon 8 --out model --ledger ledger")
    assert PrivacyAccountant("ledger").total().n_releases == (not said.startswith("nothing"))
    assert status == 2
    assert error.startswith(f"balldp train: interrupted; {said}")
    assert Path("model").exists() == ("the model is" in said)


# A model that is paid for -------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["a full disk", "a file that appears"])
def test_a_model_that_was_charged_is_never_lost(fault, run, monkeypatch):
    """Whatever fails between the charge and the end: the error says where the model lies."""
    write = train.write_model

    def failing(model, folder, **given):
        if fault == "a file that appears":
            Path("model/mine").write_text("mine")
        elif "model" in folder.parts:
            raise OSError(28, "No space left on device")
        write(model, folder, **given)

    monkeypatch.setattr(train, "write_model", failing)
    status, out, [error] = run(f"train {GIVEN} --epsilon 8 --out model --ledger ledger")
    assert (status, "Wrote" in out) == (2, False)
    assert PrivacyAccountant("ledger").total().n_releases == 1
    kept = re.search(r"lies in '?([^';]+?)'?(\.$|; move)", error)[1]
    assert verify(kept).failed is False
    assert not Path("model/release.json").exists()
    shutil.rmtree(kept)


def test_steps_that_cannot_be_written_take_no_model_along(run, monkeypatch):
    write = train.write_model

    def failing(model, folder, *, transcript=False, **given):
        if transcript:
            raise OSError(28, "No space left on device")
        write(model, folder, **given)

    monkeypatch.setattr(train, "write_model", failing)
    status, out, [error] = run(f"train {GIVEN} --epsilon 8 --out model --keep-transcript kept")
    assert (status, "No space left" in error) == (2, True)
    assert re.search(r"Wrote     model \(\d+ kB\)", out)
    assert verify("model").failed is False
    assert not Path("kept").exists()


@pytest.mark.kills("command/train.py", '"keep_transcript", private=True', '"keep_transcript"')
def test_lines_stand_in_their_places(run):
    out = run(f"train {GIVEN} --epsilon 8 --out model --keep-transcript kept --ledger ledger")[1]
    lines = [line.partition(" ")[0] for line in out.splitlines() if line[0] != " "]
    order = ["Records", "Promise", "At", "Ledger", "Wrote", "Ledger", "Next"]
    assert lines == order
    [at] = [i for i, line in enumerate(out.splitlines()) if line.startswith("Wrote")]
    assert out.splitlines()[at + 1].startswith("          kept, with the noisy steps")
    if os.name == "posix":
        for path in (Path("kept"), *Path("kept").iterdir()):
            assert path.stat().st_mode & 0o077 == 0
    # What nobody has filled in is not uploaded.
    assert out.splitlines()[-1].startswith("Next      fill in model/README.md; balldp verify model")


# Errors, notes, and places to print ---------------------------------------------------------------


def test_an_unexpected_error_says_how_to_see_where_it_arose(run, monkeypatch):
    def broken(options):
        return {"secret row": 1}["another secret"]

    with monkeypatch.context() as patch:
        patch.setattr(plan, "prepare", broken)
        status, out, [error] = run(f"plan {GIVEN} --epsilon 8")
        assert (status, out) == (2, "")
        assert error.startswith("balldp plan: it stopped (KeyError); --debug shows where")
        assert "secret" not in error
        status, out, lines = run(f"plan {GIVEN} --epsilon 8 --debug")
    assert (status, out) == (2, "")
    assert lines[0].startswith("Traceback")
    assert any("in broken" in line for line in lines)
    assert lines[-2:] == ["KeyError: 'another secret'", error]
    # What is wrong with an option is told as ever.
    wrong = f"plan {GIVEN} --epsilon 8 --delta 1"
    [error] = run(wrong)[2]
    assert "--debug" not in error
    assert run(f"{wrong} --debug")[2][-1] == error


@pytest.mark.parametrize("action", ["default", "ignore", "error"])
def test_notes_are_told_whatever_is_asked_of_warnings(action, run):
    own = Path("rows.csv").read_text()
    # Other rows, a class of which is no class.
    other = re.sub(r"(?m)^(-?)(\d)", r"\g<1>1\2", own).replace("blue", "another")
    Path("public.csv").write_text(other)
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        status, _, [note] = run(f"plan {GIVEN} --epsilon 8 --public public.csv")
    assert status == 0
    assert note.startswith("Note      --public public.csv: 1 of its 3 labels are no class")
