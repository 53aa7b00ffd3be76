"""The main job, ``balldp demo``, as a user would run it; and ``python -m sklearn_balldp``."""

import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sklearn_balldp import verify
from sklearn_balldp.command import demo, main
from sklearn_balldp.command.options import parsed
from sklearn_balldp.datasets import load_messages


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What the command printed, and where it wrote."""
    place = tmp_path_factory.mktemp("demo")
    out, error = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(error):
        patch.chdir(place)
        patch.setattr(demo, "RELEASES", 2)
        assert main(["demo"]) == 0
    assert error.getvalue() == ""
    return out.getvalue(), place


def test_the_package_runs_as_the_command():
    given = [sys.executable, "-m", "sklearn_balldp", "--help"]
    done = subprocess.run(given, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.startswith("usage: balldp")


def test_the_demo_compares_writes_checks_and_says_what_is_next(run):
    text, place = run
    assert len(text.splitlines()) <= 120
    assert [path.name for path in place.iterdir()] == ["balldp-demo"]
    for path in (place / "balldp-demo").iterdir():
        assert path.name in text
    cell = r" +(0\.\d+) \(0\.\d+\)"
    numbers = re.findall(rf"^ +([\d.]+){cell}{cell} +(0\.\d+)$", text, re.M)
    assert [float(row[0]) for row in numbers] == list(demo.EPSILONS)
    ball, standard, plain = (float(cell) for cell in numbers[0][1:])
    assert standard < ball < plain
    model = place / "balldp-demo" / "model"
    assert str(verify(model)).splitlines()[4] in text
    bound = float(re.search(r"probability ([\d.]+) % at most", text).group(1)) / 100.0
    exact = verify(model).release.certificate(0.1)
    assert exact <= bound < exact + 0.001
    shown = re.findall(r"^[A-Z]\w+(?=  )", text.partition("\nFolder")[0], re.M)
    own = ["Records", "Promises", "Accuracy", "Wrote"]
    assert shown == [*own, *("Records", "Promise", "Wrote", "Next")]


@pytest.mark.kills("command/demo.py", "balldp {shlex.join(words)}", "balldp {' '.join(words)}")
def test_the_demo_prints_what_its_commands_print(run, monkeypatch, capsys, tmp_path):
    """But for the digest of the parameters, in which there is noise, and the day."""
    text, place = run
    typed = re.findall(r"^\$ balldp (.*)$", text, re.M)
    assert [line.split()[0] for line in typed] == ["train", "verify"]
    (tmp_path / "balldp-demo").mkdir()
    monkeypatch.chdir(tmp_path)
    for path in (place / "balldp-demo").glob("*.*"):
        (tmp_path / "balldp-demo" / path.name).write_bytes(path.read_bytes())
    for line in typed:
        assert main(shlex.split(line)) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    shown = text.partition("\n$ balldp ")[2].rpartition("\n\nNext")[0]
    lines = [line for line in shown.splitlines()[1:] if line and not line.startswith("$ ")]
    bare = re.compile(r"SHA-256 \w+|\d{4}-\d\d-\d\d")
    assert [bare.sub("", line) for line in lines] == [
        bare.sub("", line) for line in said.splitlines() if line
    ]


def test_the_readme_shows_lines_that_are_printed(run):
    """But for what the noise makes of the numbers."""
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    lines = "".join(re.findall(r"```text\n(.*?)```", readme, re.DOTALL)).splitlines()
    assert len(lines) == 10
    number = r"\d[\d.]*"
    for line in lines:
        pattern = number.join(map(re.escape, re.split(number, line)))
        assert re.search(f"^{pattern}", run[0], re.MULTILINE), line


def test_what_comes_next_works_as_it_is_printed(run, monkeypatch, capsys):
    text, place = run
    monkeypatch.chdir(place)
    lines = re.findall(r"^(?:Next)? +balldp (.*)$", text.rpartition("\n\n")[2], re.M)
    assert [line.split()[0] for line in lines] == ["predict", "train"]
    assert main(shlex.split(lines[0])) == 0, capsys.readouterr().err
    # Texts need an encoder.
    options = parsed(shlex.split(lines[1]))
    assert {options.text, options.label} <= {*pd.read_csv(options.file).columns}
    labelled = pd.read_csv("labelled.csv")
    messages = load_messages()
    assert labelled["message"].tolist() == messages.texts_test.tolist()
    assert np.mean(labelled["prediction"] == messages.y_test) > 0.9
