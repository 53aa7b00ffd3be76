"""Files of the repository that no code reads, but people and machines do."""

import configparser
import re
from pathlib import Path

import pytest
import yaml

import sklearn_balldp

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
    for path in re.findall(r"`((?:docs|benchmarks|examples)/(?!_build)[\w./]+)`", text):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"`([A-Z]+\.md)`", text):
        assert (ROOT / path).exists(), path
