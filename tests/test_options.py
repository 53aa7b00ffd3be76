"""What is wrong with a command before it starts: told at once, with the remedy."""

import ast
import importlib
import inspect
import pickle
import subprocess
import sys

import pytest

import sklearn_balldp
from sklearn_balldp.command import main
from sklearn_balldp.command.options import COMMANDS, PARAMETERS, in_options, parsed

GIVEN = "f.csv --text t --label l --radius 1"
#: What needs no library, as each takes seconds to import.
AT_ONCE = [
    "--help",
    *(f"{command} --help" for command in COMMANDS),
    "tran f.csv",
    "plan --epsilom 2",
    f"plan {GIVEN} --epsilon 1",
    f"train {GIVEN} --epsilon 1 --out m",
    f"train options.txt{GIVEN[5:]} --epsilon 1 --out m --public no.csv",
    "verify m",
    "predict m f.csv",
    "predict m f.csv --out none/f.csv",
]
HEAVY = ("sklearn", "pandas", "scipy", "numpy", "matplotlib", "torch")
SCRIPT = """
import sys
from contextlib import suppress
from sklearn_balldp.command import main

for command in sys.argv[1:]:
    with suppress(SystemExit):
        print(main(command.split()))
print({name.partition(".")[0] for name in sys.modules} & {%r})
"""


def run(script, *words, **options):
    command = [sys.executable, "-c", script, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, **options)


def test_help_mistakes_and_missing_files_import_no_library(tmp_path):
    (tmp_path / "options.txt").touch()
    done = run(SCRIPT.replace("%r", repr(HEAVY)[1:-1]), *AT_ONCE, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "set()"
    errors = done.stderr.splitlines()
    assert len(errors) == len(AT_ONCE) - 1 - len(COMMANDS)
    assert sum("no such file or folder" in line for line in errors) == 5


def test_what_proves_imports_no_estimator():
    loaded = run("import sys, sklearn_balldp.privacy; print(*sys.modules)").stdout.split()
    assert "sklearn_balldp.privacy.release" in loaded
    assert not {"sklearn", "pandas", "scipy.stats", "joblib"} & {*loaded}


def test_names_of_the_package_are_there_when_they_are_asked_for():
    """For the type checker they are written a second time."""
    tree = ast.parse(inspect.getsource(sklearn_balldp))
    [checked] = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {a.name: node.module for node in checked.body for a in node.names}
    held = {name: module for module, names in sklearn_balldp._HELD.items() for name in names}
    assert typed == held
    assert {*held, "__version__"} == {*sklearn_balldp.__all__} <= {*dir(sklearn_balldp)}
    for name in held:
        own = getattr(sklearn_balldp, name)
        assert own.__name__ == name
        assert pickle.loads(pickle.dumps(own)) is own
    assert sklearn_balldp.verify is importlib.import_module("sklearn_balldp.publish").verify
    with pytest.raises(AttributeError, match="no attribute 'BallDPSVC'"):
        _ = sklearn_balldp.BallDPSVC


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (f"plan {GIVEN} --epsilom 2", "--epsilom is no option of plan (did you mean --epsilon?)"),
        (f"plan {GIVEN} --epsilom=2", "--epsilom is no option of plan (did you mean --epsilon?)"),
        (f"plan {GIVEN} -epsilon 2", "-epsilon is no option of plan (did you mean --epsilon?)"),
        # What an abbreviation means would change with the next option.
        ("demo --ou x", "--ou is no option of demo (did you mean --out?)"),
        ("train --lable l", "--lable is no option of train (did you mean --label?)"),
        (f"plan {GIVEN} --out m", "--out is no option of plan; see balldp plan --help"),
        ("verify m --zzz", "--zzz is no option of verify; see balldp verify --help"),
        ("tran f.csv", "'tran' is no command (did you mean train?)"),
        ("plan f.csv --text t", "the following arguments are required: --label"),
        (f"plan {GIVEN} --epsilon two", "argument --epsilon: invalid float value: 'two'"),
    ],
)
def test_a_mistake_is_told_in_one_line_with_what_was_meant(command, said, capsys):
    with pytest.raises(SystemExit) as caught:
        main(command.split())
    assert caught.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert said in line


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"balldp {sklearn_balldp.__version__}\n"


def test_a_value_is_no_option():
    words = ["plan", "--", "--f.csv"]
    given = ["--text=--t", "--label", "a --b", "--radius", "-1", "--epsilon", "2"]
    options = parsed([words[0], *given, *words[1:]])
    assert (options.text, options.label, options.radius) == ("--t", "a --b", "-1")
    assert str(options.file) == "--f.csv"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("one is named (encoder=).", "one is named (--encoder)."),
        ("folder='a b' exists.", "--out 'a b' exists."),
        ("keep_transcript='a b' exists.", "--keep-transcript 'a b' exists."),
        ("this fit was given no groups=: it", "this fit was given no --owner: it"),
        ("one (Descent(keep_transcript=True)) and", "one (--keep-transcript) and"),
        ("take mechanism=Descent(keep_transcript=True).", "take --keep-transcript."),
        ("a label named Big(size=True)", "a label named Big(size=True)"),
        ("private=data.npz is no file", "--private data.npz is no file"),
        ("epsilon=2 at group=3", "epsilon=2 at group=3"),
    ],
)
def test_advice_is_in_the_callers_language(message, shown):
    assert in_options(message) == shown
    assert {*PARAMETERS.values()} <= {w for _, table in COMMANDS.values() for w in table.split()}
