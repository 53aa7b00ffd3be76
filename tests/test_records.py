"""Files of people: each of these inputs was once read wrongly, and nothing was said."""

import io
import json
import os
import re
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image, features
from row_cases import TABLES, with_history
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.pipeline import make_pipeline

from sklearn_balldp import BallDPLogisticRegression, BallDPRidgePrototype
from sklearn_balldp.command import main
from sklearn_balldp.command.records import Columns, InputError, read
from sklearn_balldp.encoders import ImageEncoder
from sklearn_balldp.pipelines import DenseRows
from sklearn_balldp.publish import save

# Notes of the command go through Python's warnings.
pytestmark = pytest.mark.filterwarnings("default")

N = 120
CODES = np.arange(N) % 2
X = np.round(np.eye(4)[CODES] + np.random.default_rng(0).normal(0.0, 0.1, (N, 4)), 3)
LISTS = [json.dumps(row) for row in X.tolist()]
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


def table(header="e,label,owner", mark=",", **columns):
    """A CSV of lists, labels and owners; keywords replace columns, or add some."""
    owners = [f"p{i % 30}" for i in range(N)]
    cells = {"e": LISTS, "label": LABELS, "owner": owners, **columns}
    rows = [mark.join(f'"{cell}"' for cell in row) for row in zip(*cells.values(), strict=True)]
    return "\n".join([header, *rows, ""])


def lines(**columns):
    """The same as JSONL, where cells have types."""
    cells = {"e": X.tolist(), "label": LABELS, **columns}
    rows = (dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True))
    return "\n".join(map(json.dumps, rows))


def numbered(cell, header="e0;e1;e2;e3;label"):
    """Numbered columns, with a cell in row 3."""
    rows = [[*map(str, row), label] for row, label in zip(X.tolist(), LABELS, strict=True)]
    rows[2][1] = cell
    return "\n".join([header, *map(";".join, rows)])


def listed(cell):
    """A CSV of lists whose third one is this cell."""
    return table(e=[*LISTS[:2], cell, *LISTS[3:]])


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


def partitions(path, **columns):
    """A folder of Parquet files whose labels are the names of its folders."""
    for code, label in enumerate(["neg", "pos"]):
        own = {"e": X[code == CODES].tolist(), "label": None, **columns}
        parquet(path / f"label={label}" / "0.parquet", **own)


def public(*labels):
    """Other rows, with these labels in turn."""
    rows = [cells.replace("]", "1]") for cells in LISTS]
    return table(e=rows, label=[labels[i % len(labels)] for i in range(N)])


#: Text of a CSV, and what labelling its texts says; after ! if it stops.
OF_TEXTS = {
    # Rows that vanish.
    "blank lines of one column": (
        'text\nfine day\n\nbad day\n""\n   \nfine\n',
        r"^text,.*\n(.*,(pos|neg),[\d.]+\n){6}$",
    ),
    "a blank line": ("id,text\n1,fine\n\n2,bad\n", "! row 2 is a blank line"),
    "a line feed without quotes": ("id,text\n1,secret\nday\n2,b\n", "! row 2 has fewer fields"),
    "a comma without quotes": ("id,text\n1,fine\n2,a, secret\n", "! row 2 has more fields"),
    "a quote that swallows rows": (
        'id,text\n1,"fine\n2,bad\n3,"secret"\n4,fine\n',
        "! quotes of row 1 do not match",
    ),
    "two files in one": ("id,text\n1,f\nid,text\n2,b\n", "! row 2 repeats the first line"),
    "texts without a header": ("fine\nbad\n", "names the only column, and is no record"),
    "columns that are one": ("text|id\nfine|7\n", "! separated by commas"),
}
#: A file, its content, and what a plan says.
OF_PLANS = {
    # Two columns of one name.
    "two labels": ("a.csv", table("e,label,label"), "! columns 2 and 3 have one name"),
    "two numbered columns": (
        *("a.csv", numbered("0.5", "e0;e1;e2;e2;label"), "! columns 3 and 4 have one name"),
    ),
    "two columns of a TSV": (
        *("a.tsv", table("e\tlabel\tlabel", "\t"), "! columns 2 and 3 have one name"),
    ),
    "two names in JSON": (
        *("a.jsonl", lines().replace('"label"', '"label": "x", "label"')),
        "! columns 2 and 3 have one name; rename one of them. (line 1)",
    ),
    "two arrays of one name": ("a.npz", of_one_name, "! columns 2 and 3 have one name"),
    "two names but for a blank": (
        *("a.csv", table("e,label,label "), "! columns 2 and 3 have one name"),
    ),
    "two names but for their form": (
        *("a.csv", table("e,label,e\u0301,\xe9"), "! columns 3 and 4 have one name"),
    ),
    "blanks around a name": ("a.csv", table("e, label ,owner"), "120 in 2 classes"),
    "a column of the files and of their folders": (
        *("a", lambda path: partitions(path, label=LABELS[:60])),
        "! columns 2 and 3 have one name",
    ),
    # One value, two spellings.
    "labels 0 and 0.0": (
        *("a.jsonl", lines(label=[k % 2 * (1 if k < 60 else 1.0) for k in range(N)])),
        "write their class otherwise.*120 in 2 classes",
    ),
    "labels pos and 'pos '": (
        *("a.csv", table(label=["pos", "neg", "pos\u200b", "neg "] * 30)),
        "60 records write their class otherwise.*120 in 2 classes",
    ),
    "labels that differ by case": (
        *("a.csv", table(label=["pos", "neg", "Pos", "neg"] * 30)),
        "2 classes differ by case, .*: 'Pos', 'pos'.*in 3 classes",
    ),
    # Numbers.
    "decimal commas": ("a.csv", listed("0,5 1,5 2,5 3,5"), "! row 3 is no list of real numbers"),
    "decimal commas everywhere": (
        *("a.csv", table(e=[cells[1:-1].replace(",", "").replace(".", ",") for cells in LISTS])),
        "! cell in row 1 is no list of real numbers",
    ),
    "decimal commas between commas": ("a.csv", listed("[0,5, 1,5]"), "! row 3 is no list of real"),
    "thousands": ("a.csv", listed("1 000.5, 2, 3, 4"), "! row 3 is no list of real numbers"),
    "another number of numbers": ("a.csv", listed("0.5 1.5 2.5"), "! row 3 holds more or fewer"),
    "underscores": ("a.csv", listed("1_0 2 3 4"), "! row 3 is no list of real numbers"),
    # Other files.
    "a folder of partitions": ("a", partitions, "120 in 2 classes"),
    "a spreadsheet": ("a.xls", "", "! spreadsheets are not read; save the sheet as CSV"),
}
#: Thirty owners of four records each, in several spellings.
THIRTY_OWNERS = {
    "7 and 7.0 as texts": spelled("{}", "{}.0"),
    "7 and 007": spelled("{}", "00{}", "+{}"),
    "70000 and 7e+04": spelled("{}0000", "{}E+04"),
    "digits of another script": [*spelled("{}")[:90], *map(chr, range(0x667, 0x66A)), *"789" * 9],
    "p7 and 'p7 '": spelled("p{}", "p{} ", " p{}"),
    "a no-break space": spelled("p{}", "p{}\xa0", "\u3000p{}"),
    "marks of no width": spelled("p{}", "p{}\u200b", "\ufeffp{}", "p{}\u200e"),
    "NFC and NFD": spelled("Zo\xeb {}", "Zoe\u0308 {}"),
}
#: Labels of a public file, and what training says of it.
OF_PUBLIC = {
    "0 and 0.0": ((0, 1), ("0.0", "1.0"), r"accuracy (1\.0|0\.9)\d+ on 120 (?!.*noise)"),
    "another case": (
        *(("neg", "pos"), ("Neg", "Pos")),
        r"(?!.*(accuracy 0|may drown)).*labels are no class: 'Neg' \(60 records, nearly 'neg'\)"
        r", 'Pos' \(60 records, nearly 'pos'\)\. No accuracy is stated",
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
        f"owners: {name}": ("a.csv", table(owner=owners), OWNERS, THIRTY)
        for name, owners in THIRTY_OWNERS.items()
    },
    **{
        f"public labels: {name}": ("a.csv", table(label=private * 60), TRAIN, said, public(*labels))
        for name, (private, labels, said) in OF_PUBLIC.items()
    },
    "a blank line of JSONL": (
        *("a.jsonl", '{"text": "fine"}\n\n{"text": "bad"}\n', TEXTS, "! line 2 is blank"),
    ),
    "embeddings without a header": (
        *("a.csv", "\n".join(f'"{cells}"' for cells in LISTS), "predict rows FILE"),
        "! first line must name the columns",
    ),
    "unreadable numbers that are dropped": (
        *("a.csv", numbered("0,5"), f"{PLAN} --missing drop"),
        "! a cell of e0... in row 3 is no number",
    ),
    "two owners": (
        *("a.csv", table("e,label,owner,owner", more=spelled("p{}")), OWNERS),
        "! columns 3 and 4 have one name",
    ),
    "owners 7 and 7.0": (
        *("a.jsonl", lines(owner=[i % 30 * (1 if i < 60 else 1.0) for i in range(N)])),
        *(OWNERS, THIRTY),
    ),
    "owners that differ by case": (
        *("a.csv", table(owner=spelled("p{}", "P{}")), OWNERS),
        r"60 owners in owner differ .* alone, the first in rows 1, 31\..*Owners    60;",
    ),
    "owners that differ by an inner blank": (
        *("a.csv", table(owner=spelled("p {}", "p\xa0{}")), OWNERS, "60 owners in owner differ"),
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
    "turned right": ("1/a.jpg", (-1, 8), None),
    "upside down": ("1/a.png", (2, 3), None),
    "jfif": ("1/a.jfif", None, "JPEG"),
    **({"avif": ("1/a.avif", None, "AVIF")} if features.check("avif") else {}),
    "JPEG 2000": ("1/a.jp2", None, "JPEG2000"),
    "ppm": ("1/a.ppm", None, "PPM"),
    "no ending": ("1/a", None, "PNG"),
    "behind a link": ("2/a.png", None, None),
    "the name of a partition": ("label=1/a.png", None, None),
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
    with pytest.raises(InputError, match=rf"a table of {table}, whose files keep rows that were"):
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
