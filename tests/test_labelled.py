"""What ``balldp predict`` writes: a table like the one that it read, and a line that says so."""

import csv
import io
import sys
from pathlib import Path

import numpy as np
import pytest

from sklearn_balldp.command import main

N = 40


def table(separator=",", columns=("name", "note", "label")):
    """Rows around two axes, with a name for each."""
    rng, y = np.random.default_rng(0), np.arange(N) % 2
    X = np.eye(2, 3)[y] + 0.05 * rng.standard_normal((N, 3))
    cells = {
        "name": [f"Zoë {i}" for i in range(N)],
        "note": ["a; b, c\td"] * N,
        "label": [f"c{code}" for code in y],
    }
    held = {name: cells[name] for name in columns}
    held |= {f"e{i}": column for i, column in enumerate(X.round(3).T.tolist())}
    buffer = io.StringIO()
    lines = csv.writer(buffer, delimiter=separator, lineterminator="\n")
    lines.writerow(held)
    lines.writerows(zip(*held.values(), strict=True))
    return buffer.getvalue()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    (place / "rows.csv").write_text(table(), encoding="utf-8")
    words = ["--embedding", "e", "--label", "label", "--radius", "0.3", "--epsilon", "50"]
    given = ["train", str(place / "rows.csv"), *words, "--out", str(place / "m"), "--anyway"]
    assert main(given) == 0
    return str(place / "m")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize(
    ("separator", "name", "out", "expected"),
    [
        (",", "new.csv", "out.csv", ","),
        (";", "new.csv", "out.csv", ";"),
        ("\t", "new.tsv", "out.tsv", "\t"),
        (";", "new.csv", "out.tsv", "\t"),
        ("\t", "new.tsv", "out.csv", ","),
        (";", "new.csv", None, ";"),
        ("\t", "new.tsv", None, "\t"),
    ],
)
def test_a_table_is_written_as_it_was_read(separator, name, out, expected, marked, model, capsys):
    mark = "\ufeff" if marked else ""
    Path(name).write_text(mark + table(separator, ("name", "note")), encoding="utf-8")
    capsys.readouterr()
    assert main(["predict", model, name, *(["--out", out] if out else [])]) == 0
    shown = capsys.readouterr()
    body = Path(out).read_text(encoding="utf-8") if out else shown.out
    assert body.startswith("\ufeff") == marked
    rows = list(csv.DictReader(io.StringIO(body.removeprefix("\ufeff")), delimiter=expected))
    assert list(rows[0]) == ["name", "note", "prediction", "probability"]
    assert [row["name"] for row in rows] == [f"Zoë {i}" for i in range(N)]
    assert {row["note"] for row in rows} == {"a; b, c\td"}
    assert [row["prediction"] for row in rows] == ["c0", "c1"] * (N // 2)
    said = shown.out if out else shown.err
    where = f" in {out}" if out else ""
    assert said == f"Labelled  40 records{where}, without e0 and 2 more, of embeddings\n"


def test_a_mark_is_not_shown_on_a_terminal(model, capsys, monkeypatch):
    Path("new.csv").write_text("\ufeff" + table(), encoding="utf-8")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    capsys.readouterr()
    assert main(["predict", model, "new.csv"]) == 0
    assert capsys.readouterr().out.startswith("name,")
