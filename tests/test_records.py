"""Files of people: each of these inputs was once read wrongly, and nothing was said."""

import bz2
import csv
import errno
import gzip
import io
import itertools
import json
import lzma
import os
import re
import shutil
import sys
import threading
import warnings
import zipfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from unicodedata import normalize

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, features
from row_cases import TABLES, with_history
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.pipeline import make_pipeline

from sklearn_balldp import BallDPLogisticRegression, BallDPRidgePrototype
from sklearn_balldp.command import main, predict
from sklearn_balldp.command.embed import tell_cut
from sklearn_balldp.command.files import table_of
from sklearn_balldp.command.records import Columns, InputError, read
from sklearn_balldp.encoders import ImageEncoder, SentenceEncoder
from sklearn_balldp.pipelines import DenseRows
from sklearn_balldp.publish import load, save

# Notes of the command go through Python's warnings.
pytestmark = pytest.mark.filterwarnings("default")

N = 120
CODES = np.arange(N) % 2
X = np.round(np.eye(4)[CODES] + np.random.default_rng(0).normal(0.0, 0.1, (N, 4)), 3)
CELLS = ['","'.join(map(str, row)) for row in X.tolist()]
LABELS = np.array(["neg", "pos"])[CODES].tolist()
PLAN = "plan FILE --embedding e --label label --radius 0.5 --epsilon 8"
OWNERS = f"{PLAN} --owner owner"
TRAIN = "train FILE --embedding e --label label --radius 0.5 --epsilon 20 --out m --public public"
TEXTS, ROWS = "predict texts FILE", "predict rows FILE --column e"
THIRTY = "Owners    30;"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model of texts, one of rows, and one with a formula for a label."""
    folder = tmp_path_factory.mktemp("models")
    texts = ["fine day", "bad day"] * 60
    words = HashingVectorizer(n_features=16, alternate_sign=False)
    head = BallDPLogisticRegression(epsilon=50, radius=2.0)
    save(make_pipeline(words, DenseRows(), head).fit(texts, LABELS[::-1]), folder / "texts")
    head = BallDPRidgePrototype(epsilon=50, radius=0.5)
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    save(head.fit(rows, LABELS), folder / "rows")
    formulas = np.array(['=HYPERLINK("a")', "-1.5"])[CODES]
    save(head.fit(rows, formulas), folder / "formulas")
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("place")


def table(header="label,owner", **columns):
    """A CSV of numbers, labels and owners; keywords replace columns, or add some."""
    owners = [f"p{i % 30}" for i in range(N)]
    cells = {"e": CELLS, "label": LABELS, "owner": owners, **columns}
    rows = [",".join(f'"{cell}"' for cell in row) for row in zip(*cells.values(), strict=True)]
    return "\n".join([f"e0,e1,e2,e3,{header}", *rows, ""])


def lines(**columns):
    """The same as JSONL, where cells have types."""
    cells = {"e": X.tolist(), "label": LABELS, **columns}
    rows = (dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True))
    return "\n".join(map(json.dumps, rows))


def numbered(cell):
    """Numbered columns, with a cell in row 3."""
    rows = [[*map(str, row), label] for row, label in zip(X.tolist(), LABELS, strict=True)]
    rows[2][1] = cell
    return "\n".join(["e0;e1;e2;e3;label", *map(";".join, rows)])


def spelled(*spellings):
    """Thirty owners, each in all of these spellings."""
    return [spellings[i // 30 % len(spellings)].format(7 + i % 30) for i in range(N)]


def parquet(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {"e": X.tolist(), "label": LABELS, **columns}
    kept = {name: cells for name, cells in columns.items() if cells is not None}
    pyarrow.parquet.write_table(pyarrow.table(kept), path)


def of_one_name(path):
    """An NPZ that holds one name twice, as zip allows."""
    np.savez(path, e=X, label=LABELS)
    other = io.BytesIO()
    np.save(other, LABELS[::-1])
    with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("label.npy", other.getvalue())


def partitions(path, keep=False):
    """A folder of Parquet files whose labels are the names of its folders, or their columns too."""
    for code, label in enumerate(["neg", "pos"]):
        own = {"e": X[code == CODES].tolist(), "label": [label] * 60 if keep else None}
        parquet(path / f"label={label}" / "0.parquet", **own)


def public(*labels):
    """Other rows, with these labels in turn."""
    rows = [f"{cells}1" for cells in CELLS]
    return table(e=rows, label=[labels[i % len(labels)] for i in range(N)])


#: Text of a CSV, and what labelling its texts says; after ! if it stops.
OF_TEXTS = {
    # Rows that vanish.
    "blank lines of one column": (
        'text\nfine day\n\nbad day\n""\n   \nfine\n',
        r"nothing is known of rows 2, 4, 5: .*\ntext,[^\n]*\n([^\n]*,(pos|neg),[\d.]+\n){6}$",
    ),
    "a blank line": ("id,text\n1,fine\n\n2,bad\n", "! row 2 has fewer fields (a blank line has"),
    "Excel's separator": ("sep=;\nid;text\n1;fine\n", "! numbers, other marks or Excel's sep=."),
    "a line break in a name": ('"text","number\n(own)"\nfine,7\n', r"^text,number \(own\),predic"),
    "texts without a header": (
        "fine\nbad\n",
        "! no column 'text' among its 1; the first line must name them",
    ),
    "columns that are one": ("text|id\nfine|7\n", "! separated by commas"),
    "one column of decimal commas": ("text\n1,5\n2,5\n", r"^text;pred.*\n1,5;(pos|neg);"),
    "quotes that swallow a record each": (
        "text,home\n" + '"I came home at 0.,home\nIt was late number 0.",home\nfine,x\n' * 60,
        r"cells of 60 records hold line breaks, of 120\. Quotes that are part",
    ),
}
#: A file, its content, and what a plan says.
OF_PLANS = {
    # Two columns of one name.
    "two labels": ("a.csv", table("label,label"), "! columns 5 and 6 have one name"),
    "two names in JSON": (
        *("a.jsonl", lines().replace('"label"', '"label": "x", "label"')),
        "! line 1: columns 2 and 3 have one name; rename one of them.",
    ),
    "two arrays of one name": ("a.npz", of_one_name, "! columns 2 and 3 have one name"),
    "two names but for their form": (
        *("a.csv", table("label,e\u0301,\xe9"), "! columns 6 and 7 have one name"),
    ),
    "blanks around a name": ("a.csv", table(" label ,owner"), "120 in 2 classes"),
    # One value, two spellings.
    "labels 0 and 0.0": (
        *("a.jsonl", lines(label=[k % 2 * (1 if k < 60 else 1.0) for k in range(N)])),
        "^Records   120 in 2 classes",
    ),
    "labels pos and 'pos '": (
        *("a.csv", table(label=["pos", "neg", "pos\u200b", "neg "] * 30)),
        "^Records   120 in 2 classes",
    ),
    "labels that differ by case": (
        *("a.csv", table(label=["pos", "neg", "Pos", "neg"] * 30)),
        "2 names in label differ .* in rows 1, 3\\..*in 3 classes",
    ),
    # Numbers.
    "lists in texts": ("a.csv", 'e,label\n"[1, 2]",a\n', "! e in row 1 is no list of two"),
    "texts in lists": ("a.jsonl", lines(e=[["1", "2"]] * N), "! e in row 1 is no list of two"),
    "truth in lists": ("a.jsonl", lines(e=[[True, 2]] * N), "! e in row 1 is no list of two"),
    "lists of one": ("a.jsonl", lines(e=[[1.5]] * N), "! e in row 1 is no list of two"),
    "thousands": ("a.csv", numbered("1 000.5"), "! e in row 3 is no list of two"),
    "underscores": ("a.csv", numbered("1_0"), "! e in row 3 is no list of two"),
    "another number of numbers": (
        *("a.jsonl", lines(e=[*X[:2].tolist(), [0.5, 1.5, 2.5], *X[3:].tolist()])),
        "! row 3 holds more or fewer",
    ),
    # What another program wrote.
    "objects": (
        *("a.npz", lambda path: np.savez(path, e=X, label=np.array(LABELS, dtype=object))),
        "! it holds Python objects, which are not loaded; save texts by y.astype(str)",
    ),
    "a further array": (
        *("a.npz", lambda path: np.savez(path, e=X, label=LABELS, classes=["neg", "pos"])),
        "! arrays differ in length (e 120, label 120, classes 2); save those with one entry",
    ),
    # Other files.
    "a folder whose names say what a column holds": ("a", partitions, "! no column 'label' among"),
    "a folder of partitions that keep their column": (
        *("a", lambda path: partitions(path, keep=True)),
        "120 in 2 classes",
    ),
    "a spreadsheet": ("a.xls", "", "! save the sheet of a spreadsheet as CSV"),
}
#: Labels of a public file, and what training says of it.
OF_PUBLIC = {
    "0 and 0.0": ((0, 1), ("0.0", "1.0"), r"accuracy (1\.0|0\.9)\d+ on 120 (?!.*noise)"),
    "another case": (
        *(("neg", "pos"), ("Neg", "Pos")),
        r"(?!.*(accuracy 0|may drown)).*labels are no class: 'Neg' \(60 records\), "
        r"'Pos' \(60 records\)\. No accuracy is stated",
    ),
    "blanks": (
        *(("neg", "pos"), ("neg ", "pos", "neg", "\ufeffpos")),
        r"accuracy (1\.0|0\.9)\d+ on 120 ",
    ),
    "another class": (
        *(("neg", "pos"), ("neg", "pos", "neg", "other")),
        r"labels are no class: 'other' \(30 .*accuracy (1\.0|0\.9)\d+ on 90 ",
    ),
}
#: Name and content of a file, a command, and what it says, after ! if it stops; a public file.
CASES = {
    **{name: ("a.csv", text, TEXTS, said) for name, (text, said) in OF_TEXTS.items()},
    **{name: (file, body, PLAN, said) for name, (file, body, said) in OF_PLANS.items()},
    **{
        f"public labels: {name}": ("a.csv", table(label=private * 60), TRAIN, said, public(*labels))
        for name, (private, labels, said) in OF_PUBLIC.items()
    },
    "a blank line of JSONL": (
        *("a.jsonl", '{"text": "fine"}\n\n{"text": "bad"}\n', TEXTS, "! line 2 is no JSON object"),
    ),
    "a number of more digits than Python reads": (
        *("a.jsonl", '{"text": 1' + "0" * 5000 + "}", TEXTS, "! line 1 is no JSON object"),
    ),
    "embeddings without a header": (
        *("a.csv", "\n".join(f'"{cells}"' for cells in CELLS), "predict rows FILE"),
        "! no column 'embedding' among its 4; the first line must name them",
    ),
    "unreadable numbers that are dropped": (
        *("a.csv", numbered("0,5"), f"{PLAN} --missing drop"),
        "! e in row 3 is no list of two",
    ),
    "owners 7 and 7.0": (
        *("a.jsonl", lines(owner=[i % 30 * (1 if i < 60 else 1.0) for i in range(N)])),
        *(OWNERS, THIRTY),
    ),
    "owners that differ by case": (
        *("a.csv", table(owner=spelled("p{}", "P{}")), OWNERS),
        r"60 names in owner differ .* the first in rows 1, 31\..*Owners    60;",
    ),
    "owners that differ by an inner blank": (
        *("a.csv", table(owner=spelled("p {}", "p\xa0{}")), OWNERS, "60 names in owner differ"),
    ),
    "owners of bytes": (
        *("a.parquet", lambda path: parquet(path, owner=[b"p%d" % (i % 30) for i in range(N)])),
        *(OWNERS, THIRTY),
    ),
    "an owner whom nobody sees": (
        *("a.csv", table(owner=["\u200b", *spelled("p{}")[1:]]), OWNERS, "! no owner in row 1;"),
    ),
    "protected labels in other forms": (
        *("a.csv", table(label=["Zoe\u0308", "0.0"] * 60)),
        *(f"{PLAN} --labels protected --classes public", "in 2 classes(?!.*Note)"),
        "Zo\xeb \n0\n",
    ),
    "a cell that is a list": (
        *("a.jsonl", '{"id": 1, "text": "fine"}\n{"id": 2, "text": "bad", "tags": ["a", "b"]}\n'),
        *(TEXTS, r"id,text,tags,prediction.*\n1,fine,,.*\n2,bad,\"\[\"\"a\"\", \"\"b\"\"\]\",neg"),
    ),
    "a formula for a label": (
        *("a.csv", table(), "predict formulas FILE --column e", r"'=HYPERLINK.*,-1\.5,"),
    ),
}


def said(command, path, models, monkeypatch, capsys):
    """Status and words of a command, in the folder of its file."""
    monkeypatch.chdir(models)
    capsys.readouterr()
    status = main([{"FILE": str(path)}.get(word, word) for word in command.split()])
    return status, *capsys.readouterr()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.kills(
    "command/files.py", "if not isinstance(row, dict):", "if row is None and line.strip():"
)
@pytest.mark.kills("command/records.py", "types - {str}", "types")
@pytest.mark.kills("command/records.py", 'any("_" in str(cell)', 'any("\\n" in str(cell)')
@pytest.mark.kills("command/records.py", "and len(cells) > 1:", "and cells:")
def test_what_was_read_wrongly(name, models, tmp_path, monkeypatch, capsys):
    file, content, command, expected, *others = CASES[name]
    path = tmp_path / file
    if callable(content):
        content(path)
    else:
        path.write_bytes(content.encode())
    for other in others:
        (tmp_path / "public").with_suffix(".csv").write_bytes(other.encode())
    command = command.replace(" public", f" {tmp_path / 'public.csv'}")
    command = command.replace("--out m", f"--out {tmp_path / 'm'}")
    status, out, error = said(command, path, models, monkeypatch, capsys)
    assert status == (2 if expected.startswith("! ") else 0), error
    if status:
        assert expected.removeprefix("! ") in error
        assert len(error.splitlines()) == 1
        assert not out
    else:
        # How many records were labelled is said last.
        error = re.sub(r"Labelled  .*\n$", "", error)
        assert re.search(expected, error + out, re.DOTALL), error + out
    assert "secret" not in error


@pytest.mark.parametrize("page", ["ascii", "cp1252", "gbk"])
def test_what_is_piped_is_utf8(page, models, tmp_path, monkeypatch):
    cell = "S\xf8ren \u674e"
    (tmp_path / "a.csv").write_text(f"id,text\n{cell},fine day\n", encoding="utf-8")
    pipe = io.TextIOWrapper(io.BytesIO(), encoding=page, errors="strict")
    monkeypatch.setattr(sys, "stdout", pipe)
    assert main(["predict", str(models / "texts"), str(tmp_path / "a.csv")]) == 0
    pipe.flush()
    assert f"\n{cell},fine day,pos," in pipe.buffer.getvalue().decode("utf-8")


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
@pytest.mark.parametrize("packed", [gzip.compress, bz2.compress, lzma.compress, "parquet"])
def test_a_packed_file_is_not_blamed_on_its_letters(packed, ending, tmp_path):
    path = tmp_path / f"a.{ending}"
    if packed == "parquet":
        parquet(path)
    else:
        path.write_bytes(packed(table().encode()))
    with pytest.raises(InputError, match=r"no text in UTF-8; .* unpack it .*, or give Parquet the"):
        read(path, Columns("text"))


def test_cells_come_out_as_they_went_in(models, tmp_path, monkeypatch, capsys):
    cells = '1,"fine\rday\r\nbad",=1+2,007,NA,"a""b", c \n'
    (tmp_path / "a.csv").write_bytes(f"id,text,a,b,c,d,e\n{cells}".encode())
    status, out, _ = said(TEXTS, tmp_path / "a.csv", models, monkeypatch, capsys)
    assert status == 0
    assert out.partition("prediction,probability\n")[2].startswith(f"{cells[:-1]},pos,0.")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system is not POSIX")
@pytest.mark.parametrize("name", ["pipe", "pipe.csv", "pipe.jsonl"])
def test_a_pipe_is_read_once(name, models, tmp_path, monkeypatch, capsys):
    os.mkfifo(tmp_path / name)
    row = '{"text": "fine day"}\n' if name.endswith("jsonl") else "text\nfine day\n"
    writer = threading.Thread(target=(tmp_path / name).write_text, args=(row,), daemon=True)
    writer.start()
    status, out, error = said(TEXTS, tmp_path / name, models, monkeypatch, capsys)
    assert (status, error) == (0, "Labelled  1 record\n")
    assert re.fullmatch(r"text,prediction,probability\nfine day,pos,[\d.]+\n", out)
    writer.join()


CELL = st.text(st.sampled_from("ab01.,;\t\"\n\r '\u00e9\u200b\u2028\U0001f600"), max_size=6)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(CELL, CELL, CELL), min_size=1, max_size=5),
    st.sampled_from(",;\t"),
    st.sampled_from([("\n", csv.QUOTE_ALL), ("\r\n", csv.QUOTE_MINIMAL)]),
    st.booleans(),
    st.data(),
)
@pytest.mark.kills(
    "command/files.py",
    '            amount = "more fields" if',
    '            row += [""] * width\n            continue\n            amount = "more fields" if',
)
@pytest.mark.kills("command/files.py", "not any(map(str.strip, row[width:]))", "True")
@pytest.mark.kills("command/files.py", "return len(row) >= width and", "return True or")
@pytest.mark.kills("command/files.py", "key=lambda mark: found[mark][0]", 'key=";,".index')
def test_a_table_comes_back_cell_by_cell_or_is_refused(place, rows, mark, ends, marked, data):
    """In every dialect; one that lacks a cell, holds one more, or an open quote is refused."""
    names, plain, (end, quoting) = ("one", "two; m/f", "three, more"), ("a", "b", "c"), ends
    path = place / ("a.tsv" if mark == "\t" else "a.csv")

    def written(rows, further=""):
        file = io.StringIO()
        csv.writer(file, delimiter=mark, lineterminator=end, quoting=quoting).writerows(rows)
        path.write_bytes(("\ufeff" * marked + file.getvalue() + further).encode())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return table_of(path, Columns("one"))

    with suppress(InputError):
        # Refused where both marks make as many columns of all rows.
        found = written([names, *rows])
        assert [*zip(*found.cells.values(), strict=True)] == rows
        assert ([*found.cells], found.separator, found.marked) == ([*names], mark, marked)
    # A comma within a name parts no row.
    assert written([("a, x", "b", "c"), ("1", "2", "3")]).separator == mark
    at = data.draw(st.integers(0, len(rows) - 1))
    for row in (rows[at][:2], (*rows[at], "x"), plain):
        with pytest.raises(InputError, match=r"than its first line|repeats the first line"):
            written([plain, *rows[:at], row, *rows[at + 1 :]])
    with pytest.raises(InputError, match=rf"the quotes of row {len(rows) + 1} do not match"):
        written([plain, *rows], f'x{mark}"y')


#: Ways to write a name that nobody sees, and to write a number that are equal for owners alone.
UNSEEN = ("{}", "{} ", "\u3000{}", "{}\xa0", "{}\u200b", "\ufeff{}", "{}\u200e")
NUMBERS = ("{}", "{}.0", "00{}", "+{}", "{}E+00", "{}.00", " {}e0")


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["p7", "Zo\xeb", "7", "70", "8471.30", "8471.3", "NA"]),
            st.sampled_from(UNSEEN),
            st.sampled_from(NUMBERS),
            st.sampled_from(["NFC", "NFD"]),
        ),
        min_size=1,
        max_size=12,
    )
)
@pytest.mark.kills("names.py", "return name if number is None else repr(number)", "return name")
@pytest.mark.kills("names.py", 'name.removesuffix(".0") if', "repr(number_of(name)) if True or")
@pytest.mark.kills("command/records.py", "map(trimmed, named[0])", "named[0]")
@pytest.mark.filterwarnings("ignore:.*names in (owner|label) differ")
def test_labels_and_owners_are_equal_where_nobody_sees_a_difference(place, names):
    """Numbers are equal among owners; a label is a code, but for the .0 that tables write."""
    rows, keys = [["text", "label", "owner"]], []
    for name, unseen, number, form in names:
        whole = name.isdecimal()
        label = f"{name}.0" if whole and number == "{}.0" else name
        owner = number.format(name) if whole else name
        rows.append(["x", *(normalize(form, unseen.format(cell)) for cell in (label, owner))])
        keys.append((name, str(float(name)) if name[0].isdecimal() else name))
    with (place / "o.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    found = read(place / "o.csv", Columns("text", label="label", owner="owner"))
    for spelt, column in ((found.y, 0), (found.owners, 1)):
        classes = {(key[column], name) for key, name in zip(keys, spelt.tolist(), strict=True)}
        # One spelling for each, and no two of one.
        assert (
            len(classes) == len({key for key, _ in classes}) == len({name for _, name in classes})
        )
    assert {*found.y.tolist()} <= {f"{n}{end}" for n, _ in keys for end in ("", ".0")}


@pytest.mark.parametrize(("own", "others"), [("1.0", "1"), ("1", "1.0"), ("1.10", "1.10")])
def test_public_and_declared_labels_are_those_of_the_records(own, others, tmp_path, monkeypatch):
    """Each file may write whole numbers in its way; a folder has them as the private one does."""
    for name, label in (("a", own), ("public", others)):
        rows = [f"{cells}1" for cells in CELLS] if name == "public" else CELLS
        body = table(e=rows, label=[label, "x"] * 60)
        (tmp_path / f"{name}.csv").write_text(body)
    (tmp_path / "classes").write_text(f"{others}\nx\n")
    monkeypatch.chdir(tmp_path)
    given = TRAIN.replace("FILE", "a.csv").replace(" public", " public.csv")
    for out, further in (("m", ""), ("p", " --labels protected --classes classes")):
        assert main((given.replace("--out m", f"--out {out}") + further).split()) == 0
        config = json.loads((tmp_path / out / "config.json").read_text())
        assert config["labels"]["values"] == [others if further else own, "x"]


TYPES = {
    "zoned dates": (
        pd.date_range("2024", periods=2, tz="Europe/Berlin"),
        "a (datetime|Timestamp); .*astype",
    ),
    "periods": (pd.period_range("2024", periods=2, freq="M"), "is of type pandas.period; .*astype"),
    "durations": (pd.to_timedelta([1, 2], unit="s"), "a (timedelta|Timedelta); convert .*astype"),
    "images": ([{"bytes": b"\x89PNG", "path": "1"}] * 2, "a dict; .* write images to files"),
    "bytes of images": ([b"\x89PNG"] * 2, "no valid Unicode; .* write images to files"),
}


@pytest.mark.parametrize("name", TYPES)
def test_cells_of_other_types_are_named_with_their_conversion(name, tmp_path):
    cells, expected = TYPES[name]
    pd.DataFrame({"t": ["a", "b"], "c": cells}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match=expected):
        read(tmp_path / "a.parquet", Columns("t", label="c"))
    with pytest.raises(InputError, match=expected):
        read(tmp_path / "a.parquet", Columns(image="c"))
    assert read(tmp_path / "a.parquet", Columns("t")).X == ["a", "b"]


def test_days_of_an_array_are_no_numbers(tmp_path):
    days = np.array(["2024-01-01", "2024-01-02"], "M8[ns]")
    np.savez(tmp_path / "a.npz", t=["a", "b"], day=days)
    with pytest.raises(InputError, match=r"a datetime64; .*astype\(str\)"):
        read(tmp_path / "a.npz", Columns("t", label="day"))


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 52428\n"


@pytest.mark.parametrize(
    "name", ["a.csv", "a.jsonl", "a.npz", "a.parquet", "f/0.parquet", "f/a.png"]
)
def test_pointers_of_git_lfs_are_told(name, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(LFS)
    columns = Columns(image="i") if name.endswith("png") else Columns("t")
    with pytest.raises(InputError, match=r"is a pointer of git-lfs .*\(git lfs pull\)"):
        read(tmp_path / "f" if name.startswith("f") else path, columns)


def test_models_and_weights_that_are_pointers_are_told(models, tmp_path, capsys):
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/model.safetensors").write_text(LFS)
    with pytest.raises(ValueError, match="pointer of git-lfs"):
        _ = SentenceEncoder(tmp_path / "weights").identity
    shutil.copytree(models / "rows", tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").write_text(LFS)
    with pytest.raises(ValueError, match="pointer of git-lfs"):
        load(tmp_path / "m")
    for command, *files in (["verify"], ["predict", str(tmp_path / "weights")]):
        assert main([command, str(tmp_path / "m"), *files]) == 2
        assert "pointer of git-lfs" in capsys.readouterr().err


LEVELS = {
    "parts of a data set": ("train/cat/1 train/dog/1 test/cat/1 test/dog/1", False),
    "one folder around": ("images/cat/1 images/dog/1", False),
    "folders of classes": ("cat/images/1 dog/images/1", False),
    "classes": ("cat/1 dog/1", True),
}


@pytest.mark.kills("command/files.py", "len(name.parts) > 2", "len(name.parts) > 9")
@pytest.mark.parametrize("name", LEVELS)
def test_levels_of_folders_that_are_no_classes(name, tmp_path):
    files, sound = LEVELS[name]
    for file in files.split():
        picture(tmp_path / f"{file}.png")
    if sound:
        assert {*read(tmp_path, Columns(image="i", label="label")).y} == {"cat", "dog"}
    else:
        with pytest.raises(InputError, match="only the first level can be the classes: pass the"):
            read(tmp_path, Columns(image="i", label="label"))
    # New pictures have no labels yet.
    assert len(read(tmp_path, Columns(image="i")).X) == len(files.split())


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system is not POSIX")
def test_special_files_are_not_opened(tmp_path):
    for name in ("f/1/a.png", "d/1/a.png"):
        picture(tmp_path / name)
    for name in ("f/1/b.png", "d/1/control", "p.parquet", "p.npz"):
        os.mkfifo(tmp_path / name)
    parquet(tmp_path / "t" / "0.parquet")
    os.mkfifo(tmp_path / "t" / "1.parquet")
    (tmp_path / "a.csv").write_text("i\nf/1/a.png\nf/1/b.png\n")
    with pytest.raises(InputError, match=r"f: 1/b\.png: .*it is a pipe, a folder or a device"):
        read(tmp_path / "f", Columns(image="i"))
    with pytest.raises(InputError, match=r"row 2: .*it is a pipe, a folder or a device"):
        read(tmp_path / "a.csv", Columns(image="i"))
    with pytest.raises(InputError, match=r"1\.parquet: it is a pipe, a folder or a device"):
        read(tmp_path / "t", Columns(embedding="e"))
    for name in ("p.parquet", "p.npz"):
        with pytest.raises(InputError, match="it is a pipe, a folder or a device"):
            read(tmp_path / name, Columns(embedding="e"))
    with pytest.warns(UserWarning, match=r"1 files are .* left out: 1/control\."):
        assert len(read(tmp_path / "d", Columns(image="i")).X) == 1


def test_a_full_disk_leaves_no_half_answer(models, tmp_path, monkeypatch, capsys):
    (tmp_path / "a.csv").write_text("text\n" + "fine day\n" * 50)
    writer, count = csv.writer, itertools.count()

    def full(file, **settings):
        if next(count) > 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return writer(file, **settings)

    monkeypatch.setattr(predict, "csv", SimpleNamespace(writer=full))
    words = ["predict", str(models / "texts"), str(tmp_path / "a.csv"), "--out"]
    assert main([*words, str(tmp_path / "out.csv")]) == 2
    assert "No space left" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize(
    ("longest", "said"), [(300, "--max-length 300 would do"), (700, "takes 512 at")]
)
def test_texts_that_are_longer_than_what_is_read_are_told(longest, said, monkeypatch):
    monkeypatch.setattr(SentenceEncoder, "cut", lambda *_: (N, 256, longest, 512))
    told = f"120 of 120 texts are longer than the 256 tokens that are read of each.*{said}"
    with pytest.warns(UserWarning, match=told):
        tell_cut(Path("a.csv"), ["long " * 50] * N, SentenceEncoder())


def picture(path, turned=None, kind=None):
    """White above, black below; stored turned, as a camera does."""
    pixels = np.zeros((24, 36, 3), dtype=np.uint8)
    pixels[:12] = 255
    exif = Image.Exif()
    if turned is not None:
        steps, exif[0x0112] = turned
        pixels = np.rot90(pixels, steps)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.copy()).save(path, kind, exif=exif)


PICTURES = {
    "turned left": ("1/a.jpg", (1, 6), None),
    "upside down": ("1/a.png", (2, 3), None),
    "jfif": ("1/a.jfif", None, "JPEG"),
    **({"avif": ("1/a.avif", None, "AVIF")} if features.check("avif") else {}),
    "JPEG 2000": ("1/a.jp2", None, "JPEG2000"),
    "behind a link": ("2/a.png", None, None),
}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_of_a_folder(name, tmp_path):
    file, turned, kind = PICTURES[name]
    folder = tmp_path / "images"
    picture(folder / file, turned, kind)
    if file.startswith("2/"):
        (folder / "2").rename(tmp_path / "2")
        (folder / "1").symlink_to(tmp_path / "2", target_is_directory=True)
    found = read(folder, Columns(image="file", label="label"))
    pixels = np.asarray(found.X[0])
    assert (len(found.X), found.y.tolist(), pixels.shape) == (1, ["1"], (24, 36, 3))
    assert pixels[:10].mean() > 240
    assert pixels[-10:].mean() < 15


def test_files_that_are_no_pictures_are_named(tmp_path):
    picture(tmp_path / "1" / "a.png")
    for name in ("1/Thumbs.db", "1/b.heic", "1/.DS_Store"):
        (tmp_path / name).write_bytes(b"secret")
    with pytest.warns(UserWarning, match=r"3 files .* left out: 1/\.DS_Store, 1/Thumbs\.db, 1/b"):
        assert len(read(tmp_path, Columns(image="file")).X) == 1
    for name in ("1/Thumbs.db", "1/b.heic", "1/.DS_Store"):
        (tmp_path / name).unlink()
    (tmp_path / "1" / "c.png").write_bytes(b"secret")
    with pytest.raises(InputError, match=r"1/c\.png: no image that can be read"):
        read(tmp_path, Columns(image="file"))
    (tmp_path / "1" / "c.png").unlink()
    (tmp_path / "1" / "up").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(InputError, match="a link in it leads to a folder above"):
        read(tmp_path, Columns(image="file"))


def test_pages_of_a_picture_do_not_vanish(tmp_path):
    page = Image.new("RGB", (8, 8))
    page.save(tmp_path / "a.tif", save_all=True, append_images=[page])
    with pytest.raises(InputError, match=r"a\.tif: .* \(it has pages\)"):
        read(tmp_path, Columns(image="file"))


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("place", ["", "data", "data/0.parquet", "elsewhere"])
def test_a_table_with_a_history_is_refused(table, place, tmp_path):
    """Its folder still holds rows that were deleted, in whichever part of it they are named."""
    with_history(tmp_path / "x", table, parquet)
    (tmp_path / "elsewhere").symlink_to(tmp_path / "x" / "data")
    path = tmp_path / place if place == "elsewhere" else tmp_path / "x" / place
    refused = pytest.raises(InputError, match=rf"a table of {table}, whose files keep rows that")
    with warnings.catch_warnings(action="error"), refused:
        read(path, Columns(embedding="e"))


def test_pictures_are_opened_when_they_are_embedded(tmp_path):
    """Ten thousand of a camera would take 86 GiB."""
    for i in range(3):
        picture(tmp_path / "1" / f"{i}.png")
    found = read(tmp_path, Columns(image="file"))
    # What was opened before needs no file any more.
    Path(tmp_path / "1" / "2.png").write_bytes(b"")
    assert len(ImageEncoder()._records(found.X)) == 3
    assert np.asarray(found.X[0]).shape == (24, 36, 3)
    with pytest.raises(InputError, match=r"1/2\.png: no image that can be read"):
        np.asarray(found.X[2])


def test_files_of_a_folder_are_in_the_order_of_their_numbers(tmp_path):
    for i in range(12):
        parquet(tmp_path / f"part.{i}.parquet", t=[f"{i}"] * N)
    assert read(tmp_path, Columns("t")).X[::N] == [str(i) for i in range(12)]
