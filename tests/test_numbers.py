"""Numbers in pages are those that ``benchmarks/claims.py`` computes, or settings."""

import ast
import inspect
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import sklearn_balldp
from benchmarks import __main__ as driver
from benchmarks import claims
from benchmarks import tables as tables_study
from benchmarks.study import RESULTS
from sklearn_balldp import (
    BallDPLogisticRegression,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    OutputPerturbation,
    RadiusPolicy,
    ReconstructionAuditor,
)
from sklearn_balldp.audit.noise_tests import ENOUGH
from sklearn_balldp.mechanisms import settings
from sklearn_balldp.radius import MAX_ROWS_READ

ROOT = Path(__file__).parents[1]
TEXTS = {page.stem: page.read_text() for page in claims.PAGES}
#: Pages of which every number is looked at, and classes whose docstrings are pages too.
PAGES = ("README", "install", "worth", "reproduction", "heads", "people", "guide", "radius")
NAMED = (getattr(sklearn_balldp, name) for name in sklearn_balldp.__all__)
CLASSES = [*filter(inspect.isclass, NAMED)]
#: What a run measures, in digits or in words: shares, points, time and memory.
_FRACTIONS = "half|third|quarter|fifth|tenth|hundredth|thousandth"
_WORDS = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|eighteen|twenty"
MEASURED = re.compile(
    rf"(?:(?<![\w.-])\d*[\d,]*\.?\d+|\b(?:{_WORDS}))[- ]"
    r"(?:%|percent\b|points?\b|seconds?\b|minutes?\b|hours?\b|ms\b|[GMk]i?B\b)"
    rf"|\ba (?:{_FRACTIONS}) (?:longer|slower|faster|less|more|of the (?:time|processor|accuracy))"
    rf"|\b(?:{_WORDS}|\d+) times (?:as (?:long|fast)|faster|slower|longer)"
)
NUMBER = re.compile(r"(?<![\w.-])\d(?:[\d,]*\d)?(?:\.\d+)?(?![\w-])")
#: What no run measures: what a parameter is set to, sizes, years, versions, bounds of a range; and
#: how long a page takes to read.
SETTING = re.compile(
    r"(?:(?:epsilon|delta|radius|norm|weight) (?:of |is |at |above )?|\bat |between )"
    r"\d[\d,.e-]*(?: and \d)?(?! ?(?:%|points?|times))"
    r"|\b20\d\d\b|\b3\.1\d|# \d\."
    r"|\d[\d,]* (?:classes|features|columns|texts|tokens)\b"
    r"|(?<![\d.,])[01](?![\d.,]*\d| ?%| points?)"
    r"|five minutes",
    re.IGNORECASE,
)


def prose(text):
    """A page without marked numbers, code, tables, formulas, pictures and addresses."""
    text = re.sub(r"```.*?```", "", claims.MARKED.sub("", text), flags=re.DOTALL)
    text = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("|"))
    for pattern in (r"\{\w+\}`[^`]*`", r"`[^`]*`", r"\$[^$]*\$", r"!\[[^\]]*\]\([^)]*\)"):
        text = re.sub(pattern, "", text)
    return " ".join(re.sub(r"\]\([^)]*\)", "]", text).split())


def prose_of(docstring):
    """A docstring without code, formulas, headers of parameters, references and examples."""
    text = re.split(r"\n\n *(?:References|Examples|See Also)\n", docstring or "")[0]
    text = re.sub(r"^ *[\w, ]+ : .*$", "", text, flags=re.MULTILINE)
    for pattern in (r"``[^`]*``", r":\w+:`[^`]*`", r"\.\. math::(?:\n? +.*)+"):
        text = re.sub(pattern, "", text)
    return " ".join(text.split())


def untied(text, pattern):
    """What a text says in numbers that is neither marked nor a setting, with the words around."""
    settings = {place for own in SETTING.finditer(text) for place in range(*own.span())}
    return [
        text[max(0, own.start() - 40) : own.end() + 20]
        for own in pattern.finditer(text)
        if not {*range(*own.span())} <= settings
    ]


def test_filling_a_page_changes_nothing():
    """Every number between marks is what its formula gives; hosts do not show the marks."""
    names = set()
    for page, text in TEXTS.items():
        assert claims.filled(text) == text, page
        names |= {name for name, _ in claims.MARKED.findall(text)}
        assert 2 * len(claims.MARKED.findall(text)) == text.count("<!--"), page
        code = re.findall(r"```.*?```|\$[^$\n]*\$|`[^`\n]*`|!\[.*?\]", text, re.DOTALL)
        assert not [own for own in code if "<!--" in own], page
        # A comment at the beginning of a line ends a paragraph, and does no harm where it is alone.
        assert not re.search(r"^ {0,3}<!--(?! =[\w.]+ -->$| \. -->$)", text, re.MULTILINE), page
    assert names == {*claims.CLAIMS} | claims.KEPT


@pytest.mark.parametrize("page", TEXTS)
def test_a_number_that_a_run_measures_is_marked(page):
    text = prose(TEXTS[page])
    assert not untied(text, MEASURED)
    assert page not in PAGES or not untied(text, NUMBER)


def test_docstrings_leave_what_a_run_measures_to_pages():
    quoted = "|".join(words for own in QUOTED.values() for words in own)
    for path in (ROOT / "sklearn_balldp").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                text = re.sub(quoted, "", prose_of(ast.get_docstring(node)))
                assert not untied(text, MEASURED), path


def tolerance():
    """Noise that covers the tolerance of a minimiser, in percent."""
    exact, usual = (
        BallDPLogisticRegression(radius=0.5, alpha=0.01, mechanism=OutputPerturbation(tol=tol))
        .plan(1000, 10, [500, 500])
        .release.sensitivity
        for tol in (1e-12, None)
    )
    return 100.0 * (usual / exact - 1.0)


#: What docstrings say of numbers in the code.
QUOTED = {
    BallDPLogisticRegression: [f"on gradients {settings.CONSTANT:g} times"],
    BallDPSquaredHingeSVC: [f"on gradients {settings.CONSTANT:g} times"],
    GradientPerturbation: [
        f"takes {settings.STEPS} after class sums, and {settings.LONG_STEPS} from zero",
        f'"auto" is {settings.CLIP}.',
    ],
    OutputPerturbation: [f"about {tolerance():.1f} %"],
    RadiusPolicy: [f"at most {MAX_ROWS_READ} rows"],
    ReconstructionAuditor: [f"than {ENOUGH} noisy"],
}


@pytest.mark.parametrize("own", CLASSES, ids=lambda own: own.__name__)
def test_docstrings_quote_the_numbers_of_the_code(own):
    text = prose_of(inspect.getdoc(own))
    for words in QUOTED.get(own, []):
        assert words in text
        text = text.replace(words, "")
    assert not untied(text, NUMBER)


@pytest.mark.parametrize(
    "text",
    ["it takes 2 % less", "up to .8 points", "in 12 minutes", "a fifth longer", "six times as long",
     "about one point", "95 to 99 %", "within 0.25 seconds", "and 6 GB", "1 point at 2",
     "epsilon 2 % more", "<!-- =worth.any -->63<!-- . --> and 3 points"],
)  # fmt: skip
def test_a_number_that_nothing_ties_is_found(text):
    assert untied(prose(text), MEASURED)


def test_pages_are_few_words():
    """Marks are none."""
    assert sum(len(claims.plain(text).split()) for text in TEXTS.values()) <= 23_500


def assert_same_page(found, expected):
    """Equal but for last digits, as libraries add up in other orders."""
    number = r"[-+]?\d+\.\d+"
    assert re.sub(number, "0.0", found) == re.sub(number, "0.0", expected)
    for own, its in zip(re.findall(number, found), re.findall(number, expected), strict=True):
        assert abs(float(own) - float(its)) < 1.5 * 10.0 ** -len(its.split(".")[1])


@pytest.mark.parametrize("name", driver.ENTRIES)
def test_tables_are_those_of_the_committed_cells(name, tmp_path):
    entry = driver.ENTRIES[name]
    for own in entry.studies:
        shutil.copy(RESULTS / own.file, tmp_path)
    assert not entry.report(tmp_path)
    for file in entry.written.split():
        if not file.endswith(".png"):
            assert_same_page((tmp_path / file).read_text(), (RESULTS / file).read_text())


def test_the_example_of_a_table_shows_the_cells_of_others():
    text = (ROOT / "examples" / "plot_table.py").read_text()
    cells = tables_study.CELLS.read(RESULTS).query("dataset == 'cancer'").sort_values("epsilon")
    for name in tables_study.PEERS:
        own = (100.0 * cells.loc[cells["method"] == name, "accuracy"]).round(1)
        assert f'"{name}": {own.to_list()}' in text


def test_what_a_radius_hides_is_what_was_measured():
    """Nine in ten is a 90 % quantile within the radius, half a median beside it."""
    quantile = r"\d\.\d\d"
    cells = re.findall(
        rf"({quantile}) \({quantile} to ({quantile})\)", (RESULTS / "edits.md").read_text()
    )
    median, upper = np.array(cells, dtype=float).reshape(4, 2, 2).transpose(2, 0, 1)
    date, number, city, name = range(4)
    sentence, message = range(2)
    assert (upper[[date, number], sentence] <= 0.6).all()
    assert np.abs(median[[city, name], sentence] - 0.6).max() <= 0.02
    assert (upper[[date, number, name], message] <= 0.6).all()
    assert median[city, message] < 0.6 < upper[city, message]
    assert "0.6 hides nine in ten other dates and numbers in a sentence" in prose(TEXTS["choose"])
