"""Files of the repository that no code reads, but people and machines do."""

import ast
import configparser
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from sklearn.datasets import load_iris

import sklearn_balldp
from sklearn_balldp import BallDPRidgePrototype, publish
from sklearn_balldp.command import main
from sklearn_balldp.heads import HEADS
from sklearn_balldp.publish import save
from sklearn_balldp.publish.files import FILES, README

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def setup():
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def test_the_version_is_the_same_wherever_it_is_written():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == sklearn_balldp.__version__
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M).group(1)
    assert heading == sklearn_balldp.__version__


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda p: p.name)
def test_workflows_and_forms_can_be_read(path):
    assert isinstance(yaml.safe_load(path.read_text()), dict)


def test_ci_runs_the_pythons_that_the_package_names(setup):
    named = re.findall(r"Python :: (3\.\d+)", setup["metadata"]["classifiers"])
    text = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    assert named == ["3.11", "3.12", "3.13", "3.14"]
    assert all(f'"{version}"' in text for version in named)
    assert setup["options"]["python_requires"] == f">={named[0]}"


def test_ci_runs_the_readmes_commands_where_nothing_else_is_installed():
    parts = re.split(r"\n(?:begin|echo) ", (ROOT / ".ci" / "run").read_text())
    own = [part for part in parts if "eval " in part]
    assert len(own) == 4
    assert not [part for part in own if "pip install" in part]


def test_a_package_has_one_floor(setup):
    """A requirement that is written twice, in two extras, must say the same."""
    floors = {}
    texts = [setup["options"]["install_requires"], *setup["options.extras_require"].values()]
    for line in "\n".join(texts).split():
        name = re.split(r"[\[><=]", line)[0]
        floors.setdefault(name, set()).update(re.findall(r">=.*", line))
    assert not {name: found for name, found in floors.items() if len(found) > 1}


def test_the_readme_has_two_commands_and_names_files_that_exist():
    text = (ROOT / "README.md").read_text()
    assert text.count("```sh\n") == 2
    named = re.findall(r"`((?:docs|benchmarks|examples)/(?!_build)[\w./]+)`", text)
    named += re.findall(r"`([\w.]+/[\w./]+\.(?:py|md|csv))`", (ROOT / "CHANGELOG.md").read_text())
    for path in named:
        assert (ROOT / path).exists() or (ROOT / "sklearn_balldp" / path).exists(), path
    # Of a published folder it names every file.
    for path in {*re.findall(r"`([\w.]+\.(?:md|json|safetensors))`", text)}:
        assert path in {*FILES, README}, path


PAGES = ["README", "SECURITY", "CONTRIBUTING", "CHANGELOG", "CODE_OF_CONDUCT", "benchmarks/README"]


def anchors_of(path):
    """Names of the headings of a page, as hubs and the site make them."""
    titles = re.findall(r"^#+ (.*)$", path.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_outside_of_the_site_lead_somewhere(page):
    path = ROOT / f"{page}.md"
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        place, _, anchor = link.partition("#")
        if "://" not in link and not link.startswith("mailto:"):
            target = path.parent / place if place else path
            assert target.exists(), link
            assert not anchor or anchor in anchors_of(target), link


def test_pages_know_the_default_of_the_radius():
    """No ball is hidden by default in Python, and the command has no default."""
    assert {head().radius for head in HEADS.values()} == {None}
    for page in ("README.md", "docs/protection.md"):
        text = (ROOT / page).read_text()
        assert "default in Python" in " ".join(text.split())
        assert not re.search(r"By default it hides|Ball-DP \(default\)", text)
    assert main(["plan", "rows.csv", "--embedding", "e", "--label", "l", "--epsilon", "1"]) == 2


def test_the_readme_promises_no_more_than_its_card():
    """At its epsilon, 2, an attacker can tell two records apart a little better than by chance."""
    head = BallDPRidgePrototype(2.0, radius=0.6).fit(*load_iris(return_X_y=True))
    assert "tells a little better than by chance" in publish.card(head)
    front = (ROOT / "docs" / "index.md").read_text()
    for page in ((ROOT / "README.md").read_text(), front):
        assert "BallDPLogisticRegression(epsilon=2.0, radius=0.6" in page
        assert "hardly" not in page
    # A certificate is about candidates near one possible record.
    before = front.partition(">>> head.release_.certificate")[0].splitlines()[-1]
    assert "within 0.6 of one possible record" in before


#: What would fetch the package by its name, from an index where that name is nobody's yet.
FETCHED = re.compile(
    r"(?:pip|uv|pipx|conda) (?:add|install)\b[^\n&;`]*\bsklearn[-_.]balldp\b"
    r"|\bsklearn[-_.]balldp *(?:\[|[=~<>!]=)",
    re.IGNORECASE,
)
TEXTS = {".py", ".md", ".html", ".json", ".toml", ".cfg", ".yml", ".cff"}


def test_nothing_fetches_the_package_by_its_name(tmp_path):
    head = sklearn_balldp.BallDPRidgePrototype(4.0, radius=0.5)
    save(head.fit(*load_iris(return_X_y=True)), tmp_path / "model")
    folders = ("sklearn_balldp", "docs", "examples", "benchmarks", ".github")
    paths = [*ROOT.glob("*.*"), *(path for name in folders for path in (ROOT / name).rglob("*"))]
    paths += (tmp_path / "model").iterdir()
    built = {"_build", "auto_examples"}
    texts = {p: p.read_text("utf-8") for p in paths if p.suffix in TEXTS and not built & {*p.parts}}
    assert not {path: FETCHED.findall(text) for path, text in texts.items() if FETCHED.search(text)}
    readme, card = (texts[tmp_path / "model" / f"{name}.md"] for name in ("README", "CARD"))
    assert "the address of the\nsource of sklearn_balldp" in readme
    assert f"by sklearn\\_balldp {sklearn_balldp.__version__}" in card
    assert FETCHED.search("pip install -U 'sklearn_balldp[text]'")
    assert not FETCHED.search("pip install . && balldp demo")


SKIPPING = """
import pytest

@pytest.mark.skip(reason="this system does not fork")
def test_listed(): pass

@pytest.mark.needs("no_such_library")
def test_unknown_library(): pass

@pytest.mark.needs("pytest")
def test_library_that_is_there(): pass

@pytest.mark.skipif(True, reason="no time")
def test_unlisted(): pass

def test_missing():
    pytest.importorskip("no_such_library")
"""


def reasons(tree):
    """Why a file's tests may be skipped, in words."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = getattr(call.func, "attr", "")
        given = [word.value for word in call.keywords if word.arg == "reason"]
        if name in ("skip", "skipif"):
            (reason,) = given or call.args[:1]
            yield reason.value


def test_every_reason_to_skip_is_listed():
    """A machine that lacks nothing skips none of them, and shows no reason that is missing."""
    listed = runpy.run_path(str(ROOT / "conftest.py"))["MACHINE"]
    texts = [path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py")]
    found = {reason for text in texts if "skip" in text for reason in reasons(ast.parse(text))}
    assert found == set(listed)


def test_a_skip_needs_a_listed_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "test_skips.py").write_text(SKIPPING)
    (tmp_path / "test_file.py").write_text("import pytest; pytest.importorskip('no_such_library')")
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--continue-on-collection-errors"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed, 1 skipped, 3 errors" in done.stdout, done.stdout
