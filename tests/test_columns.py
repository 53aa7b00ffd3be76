"""Tables through the command: a draft, what is hidden in words, and nothing altered in silence."""

import json
import math
import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from sklearn_balldp import BallDPRidgePrototype, verify
from sklearn_balldp.command import demo, main
from sklearn_balldp.command.columns import declared_in
from sklearn_balldp.command.files import Columns
from sklearn_balldp.command.options import InputError
from sklearn_balldp.command.records import read
from sklearn_balldp.encoders import TableEncoder
from sklearn_balldp.privacy.noise import Noise
from sklearn_balldp.publish import card, load, save
from sklearn_balldp.publish.files import json_text
from sklearn_balldp.verdicts import FAIL

DECLARED = """\
"Größe" = ["", 100, 220]   # cm
age = [18, 90]
"Geschlecht, amtlich" = ["männlich", "weiblich", ""]
since = [2000-01-01, 2025-12-31]
zip = 64
"""
TRAIN = "patients.csv --columns columns.toml --label outcome --epsilon 4 --out model"


def patients(n=1000):
    rng = np.random.default_rng(0)
    age = rng.integers(10, 95, n)
    days = np.datetime64("2001-01-01") + rng.integers(0, 9000, n)
    return pd.DataFrame(
        {
            "Größe": rng.normal(170, 10, n).round(1),
            "age": [None if gap else v for v, gap in zip(age, rng.random(n) < 0.1, strict=True)],
            "Geschlecht, amtlich": rng.choice(["männlich", "weiblich", "divers", ""], n),
            "since": np.where(rng.random(n) < 0.1, "", days.astype(str)),
            "zip": [f"{v:05d}" for v in rng.integers(0, 300, n)],
            "Patient": [f"Secret {i // 2}" for i in range(n)],
            "note": [f"a secret that nobody must ever read, number {i}" for i in range(n)],
            "outcome": np.where(age + rng.normal(0, 10, n) > 55, "krank", "gesund"),
        }
    )


@pytest.fixture
def balldp(tmp_path, monkeypatch, capsys):
    """Run a command beside ``patients.csv``: what it said, on both streams."""
    monkeypatch.chdir(tmp_path)
    patients().to_csv("patients.csv", index=False, sep=";", encoding="utf-8-sig")
    Path("columns.toml").write_text(DECLARED, encoding="utf-8")
    Path("classes.txt").write_text("krank\ngesund\n")

    def run(command, status=0):
        capsys.readouterr()
        try:
            found = main(shlex.split(command))
        except SystemExit as ended:
            found = ended.code
        out, error = capsys.readouterr()
        assert found == status, error
        assert "ecret" not in out + error
        return out + error

    return run


def test_from_a_table_to_labels(balldp, tmp_path):
    """Columns, plan, train, verify, predict: umlauts, gaps, dates, codes and owners."""
    draft = balldp("columns patients.csv")
    assert tomllib.loads(draft) == {name: [] for name in patients()}
    kinds = "numbers numbers categories dates codes codes texts categories"
    assert re.findall(r"= \[\]  # (\w+): ", draft) == kinds.split()
    cells = {str(cell) for cells in patients().to_numpy() for cell in cells}
    assert not {*re.findall(r"\w+", draft)} & cells
    # As PowerShell writes it.
    Path("draft.toml").write_text(draft, encoding="utf-16")
    drafted = TRAIN.replace("columns.toml", "draft.toml") + " --classes classes.txt"
    assert "columns['Größe']=[] is not filled in" in balldp(f"train {drafted}", 2)
    Path("draft.toml").write_text("outcome = ['a', 'b']\n", encoding="utf-16")
    assert "the model would be told the label" in balldp(f"train {drafted}", 2)
    options = f"{TRAIN} --classes classes.txt --owner Patient --keep-transcript kept"
    planned = balldp(f"plan {options.replace('--out model', '').partition('--keep')[0]}")
    said = balldp(f"train {options}")
    for text in (planned, said):
        assert "Hidden: all five columns of every record of one person, whatever they" in text
        assert re.search(
            r"age: \d+ not as declared \(beyond the bounds, or unknown\), \d+ missing", text
        )
    [check] = re.findall(r"balldp (verify kept .*)$", said, re.MULTILINE)
    assert "PASS          scale of the noise" in balldp(check)
    assert "name the --label" in balldp("verify kept --private patients.csv", 2)
    assert "pass these together" in balldp("verify kept --owner Patient", 2)
    assert "pass them (--owner)" in balldp(check.partition(" --owner")[0])
    release = load("model")[-1].release_
    shown = balldp("verify model")
    assert "Nothing was refuted." in shown
    assert "can test it (--private)" in shown
    assert re.search(rf"PASS +encoder +{release.encoder}", shown)
    assert (release.labels, release.unit, release.domain) == ("protected", "person", "sphere")
    published = "".join(path.read_text("utf-8", "replace") for path in Path("model").iterdir())
    assert "ecret" not in published
    assert "not as declared" not in published
    shuffled = patients()[["zip", "since", "Geschlecht, amtlich", "note", "age", "Größe"]]
    shuffled.to_csv("new.csv", index=False)
    balldp("predict model new.csv --out labelled.csv")
    found = pd.read_csv("labelled.csv")["prediction"]
    for X in (patients(), patients().to_dict("list")):
        assert found.tolist() == load("model").predict(X).tolist()
    assert (found == patients()["outcome"]).mean() > 0.75
    shuffled.drop(columns="age").to_csv("few.csv", index=False)
    assert "no column 'age'" in balldp("predict model few.csv", 2)
    shuffled.assign(age=["30", *["secret"] * 999]).to_csv("few.csv", index=False)
    assert "'age' in row 2 is no number" in balldp("predict model few.csv", 2)
    one = declared_in(Path("columns.toml"))
    assert one.identity == release.encoder


@pytest.mark.parametrize(
    ("hide", "change", "said"),
    [
        ("all", 5, "all five columns of a record, whatever they hold, and its label"),
        ("any 5", 5, "all five columns of a record, whatever they hold"),
        ("any 2", 2, "any two of the 5 columns of a record, whatever they hold"),
        ("any 1", 1, "any one of the 5 columns of a record, whatever it holds"),
        (
            "zip",
            {"zip": None},
            "this change, in a record: zip to any value; or any one of the 5 columns of a record",
        ),
        (
            "age=5, since=30",
            {"age": 5, "since": 30},
            "these changes at once, in a record: age by up to 5, and since by up to 30 days",
        ),
        (
            '"Geschlecht, amtlich",age=5.0',
            {"age": 5, "Geschlecht, amtlich": None},
            "these changes at once, in a record: age by up to 5, and "
            '"Geschlecht, amtlich" to any value; or any one of the 5 columns of a record, '
            "whatever it holds",
        ),
    ],
)
@pytest.mark.kills("command/job.py", "radius = table.radius(change)", "radius = table.radius(1)")
def test_what_is_hidden_is_said_on_terminal_and_card(balldp, hide, change, said):
    """In a saved folder the card is made again of the declaration."""
    labels = "--classes classes.txt" if hide == "all" else ""
    shown = balldp(f"train {TRAIN} {labels} --hide {shlex.quote(hide)}")
    assert f"Hidden: {said}" in " ".join(shown.split())
    text = Path("model/CARD.md").read_text(encoding="utf-8")
    assert f"- Hidden: {said}" in text
    model, encoder = load("model"), declared_in(Path("columns.toml"))
    release = model[-1].release_
    assert release.radius == encoder.radius(change)
    assert release.labels == ("protected" if hide == "all" else "public")
    assert ("| column | may hold |" in text) == hide.startswith("age=5, since")
    assert ("larger changes" in text) == (not said.startswith("all"))
    config = json.loads(Path("model/config.json").read_text("utf-8"))
    assert config["change"] == change
    assert "STATED        radius" in (found := balldp("verify model"))
    assert f"it hides {said}" in found
    # Of one model there is one epsilon at any distance.
    anywhere = re.search(r"^\| epsilon .* (\S+) \|$", text, re.M)[1]
    assert f"epsilon={anywhere}" in re.search("PASS +record .*", found)[0]
    if "| column" in text:
        rows = {r[0]: r[1:] for r in re.findall(r"^\| (.*?) \| (.*?) \| (.*?) \|$", text, re.M)}
        assert rows["age"] == ("18 to 90", "by 5 or less")
        assert rows["Geschlecht, amtlich"] == ("männlich, weiblich, or missing", "not hidden")
        assert rows["Größe"][0] == "100 to 220, or missing"
        assert [name for name in rows if "days" in rows[name][1]] == ["since"]
        assert rows["since"][0] == "2000-01-01 to 2025-12-31"
        assert rows["zip"] == ("codes, in 64 cells", "not hidden")
        for name in ("Größe", "age", "since"):
            amount = float(rows[name][1].split(" ")[1].replace(",", ""))
            assert encoder.radius({name: amount}) <= release.radius
            assert encoder.radius({name: 1.01 * amount + 1}) > release.radius


@pytest.mark.kills("publish/columns.py", "(self.change) <= self._radius", "(self.change) <= 9.0")
@pytest.mark.parametrize(
    "forged", [{"age": 6}, {"age": 5.0}, {"sex": 1}, {"zip": None, "age": 5}, 0, 2, True, "any 2"]
)
def test_a_declared_change_that_the_radius_does_not_hide_is_refuted(balldp, forged):
    balldp(f"train {TRAIN} --hide age=5")
    place = Path("model/config.json")
    assert json.loads(place.read_text("utf-8"))["change"] == {"age": 5}
    place.write_bytes(json_text(json.loads(place.read_text("utf-8")) | {"change": forged}))
    found = verify("model")
    assert [check.name for check in found.checks if check.verdict == FAIL] == ["model"]
    with pytest.raises(ValueError, match="declared change"):
        load("model")
    # Nor does anybody write one.
    model = declared_in(Path("columns.toml"))
    head = BallDPRidgePrototype(2.0, delta=1e-4, radius=model.radius({"age": 5}))
    fitted = make_pipeline(model, head).fit(patients(), patients()["outcome"])
    if forged != {"age": 5.0}:
        with pytest.raises(ValueError, match="change"):
            card(fitted, change=forged)
        with pytest.raises(ValueError, match="change"):
            save(fitted, "m", change=forged)


def test_the_card_never_says_more_than_the_radius_hides():
    """For any radius, norm and domain: one more cell, or a little more, lies further away."""
    X = {"a": [1, 2, 5], "b": ["x", "y", "x"], "c": ["1", "2", "3"]}
    encoder = TableEncoder({"a": [0, 10], "b": ["x", "y"], "c": 8})
    for radius in (1e-3, 0.1, encoder.radius(1), 0.9, encoder.radius(2), 1.3, 1.4142, 2.0):
        for bound in (0.5, 1.0, 3.0):
            for domain in ("ball", "sphere"):
                scale = bound if domain == "sphere" else min(bound, 1.0)
                head = BallDPRidgePrototype(
                    8.0, delta=1e-3, radius=radius * scale, norm_bound=bound, domain=domain
                )
                text = card(make_pipeline(encoder, head).fit(X, ["p", "q", "p"]))
                found = re.search(r"- Hidden: (?:any (\w+) of|(all three) col|(a change) of)", text)
                words = {"one": 1, "two": 2, "all three": 3, "a change": 0}
                # Dividing by a norm may cost the last digit, which is on the safe side.
                m = words[found[1] or found[2] or found[3]]
                assert m == 0 or encoder.radius(m) <= radius * (1 + 1e-9) or radius > math.sqrt(2)
                assert m == 3 or encoder.radius(m + 1) > radius * (1 - 1e-9)
    steps = (encoder, Normalizer(), BallDPRidgePrototype(8.0, delta=1e-3, radius=0.9))
    # Nobody says how far apart records are before that.
    text = card(make_pipeline(*steps).fit(X, ["p", "q", "p"]))
    assert "Hidden: whether a record was swapped" in text


REFUSED = """\
-C  ::  needs --classes FILE, a public list of labels
-C --hide all --labels public  ::  how many cells are hidden
-C --hide 'any 2' --radius 1  ::  not allowed with
-C --hide 'any 2' --labels protected --classes classes.txt  ::  as much noise
-C --hide 'any 6'  ::  there are 5 columns
-C --hide agee=5  ::  must name declared columns: 'Größe',
-C --hide age=old  ::  could not convert
-C --hide age=nan  ::  must be
-C --hide zip=1  ::  a category changes to any other
-C --hide age=1,age=2  ::  named twice
--columns patients.csv --hide 'any 2'  ::  it is no TOML
-C --hide 'any 2' --owner zip  ::  told the owner
-C --hide 'any 2' --owner outcome  ::  cannot serve as two
-C --hide 'any 2' --encoder x  ::  --encoder
-C --radius edits  ::  needs --public FILE
-C --radius 3  ::  at most 2
-C --hide all --rare --classes classes.txt  ::  --rare needs --labels public
--text note --hide 'any 2'  ::  --hide is for --columns
--text note  ::  required: --radius"""


@pytest.mark.parametrize("mistake", REFUSED.splitlines())
def test_a_mistake_is_told_before_anything_is_fitted(balldp, monkeypatch, mistake):
    options, match = mistake.replace("-C", "--columns columns.toml").split("  ::  ")
    monkeypatch.setattr(Noise, "__call__", lambda *_: pytest.fail("noise was drawn"))
    before = sorted(Path().iterdir())
    train = "train patients.csv --label outcome --epsilon 4 --out model --ledger budget"
    assert match in balldp(f"{train} {options}", 2)
    assert sorted(Path().iterdir()) == before


NUMBER, DAY, LETTER = [0, 10], ["2000-01-01", "2010-12-31"], ["a", "b"]
COMMA, POINT = ({"holds": [0, 2000], "decimal": mark} for mark in ",.")
GERMAN, DIGITS = ({"holds": DAY, "format": form} for form in ("%d.%m.%Y", "%Y%m%d"))
#: Cells, what is declared, and what they are taken for with the cells that are counted as outside
#: and missing; or None where the first of them is refused.
ODD = [
    (["1", "2.50", " 3 ", "+4", ".5"], NUMBER, [1, 2.5, 3, 4, 0.5], (0, 0)),
    (["1e1", "1e-2", "-1E-2", "1e3", "1e400"], NUMBER, [10, 0.01, 0, 10, 10], (3, 0)),
    (["inf", "-Infinity", "-3"], NUMBER, [10, 0, 0], (3, 0)),
    (["NaN", "NA", "n/a", "null", "", "?", "None"], NUMBER, [None] * 7, (0, 7)),
    ([0.1, 7, 2.5, None], NUMBER, [0.1, 7, 2.5, None], (0, 1)),
    (["2001-02-03", "2001-02-03 10:00", "2001-02-03T23:59:59Z"], DAY, ["2001-02-03"] * 3, (0, 0)),
    (["1900-01-01", "NaT", "2999-01-01"], DAY, ["2000-01-01", None, "2010-12-31"], (2, 1)),
    (["a", " a", "A", "b\n", "c", ""], LETTER, ["a", "a", None, "b", None, None], (2, 1)),
    (["\u00fc", "u\u0308", "u"], ["u\u0308", "o"], ["\u00fc", "\u00fc", None], (1, 0)),
    (["1", "1.0", "01", "1,0"], ["1", "2"], ["1", "1", "1", None], (1, 0)),
    ([1, 1.0, True], ["1", "2"], ["1", "1", None], (1, 0)),
    (["True", "no"], [False, True], ["true", None], (1, 0)),
    (["NA", "NB"], ["NA", "NB"], ["NA", "NB"], (0, 0)),
    (["", "NA", "z"], ["a", ""], ["", "z", "z"], (2, 1)),
    (["NA", "None", "null", "?", ""], 4096, ["NA", "None", "null", "?", ""], (0, 1)),
    (["01067", "1067", "1067.0", 1067], 4096, ["1067"] * 4, (0, 0)),
    (["1,5", "1.234,5", "1 234", "7", 1.5], COMMA, [1.5, 1234.5, 1234, 7, 1.5], (0, 0)),
    (["1,234.5", "1'234", "1.5", "12"], POINT, [1234.5, 1234, 1.5, 12], (0, 0)),
    (["31.12.2001", "1.2.2003 10:00", ""], GERMAN, ["2001-12-31", "2003-02-01", None], (0, 1)),
    (["20011231", 20030201], DIGITS, ["2001-12-31", "2003-02-01"], (0, 0)),
    *(([c], COMMA, None, None) for c in ("1.500", "1.5", "1.23,4", "1 23", "1,2,3", ",", True)),
    *(([c], GERMAN, None, None) for c in ("2001-12-31", "31.02.2001", "12/31/2001", "31.12.01")),
    *(([c], NUMBER, None, None) for c in (True, "true", "FALSE")),
    *(([c], NUMBER, None, None) for c in ("1,5", "1_000", "0x10", "12 kg", "50%", "1/2")),
    *(([c], NUMBER, None, None) for c in ("\u0663", "\u22125", "1 000", "1.000,5", [1], {})),
    *(([c], DAY, None, None) for c in ("3.2.2001", "2/3/2001", "2001-2-3", "2001-02-30", "37000")),
    *(([c], DAY, None, None) for c in ("2001-02-03 25:00", "2001-02-03 --::Z", "20010203", 3)),
    *(([c], LETTER, None, None) for c in (["a"], {"a": 1})),
]


@pytest.mark.filterwarnings("ignore:.*hold line breaks")
@pytest.mark.parametrize(("cells", "declared", "taken", "counted"), ODD)
def test_no_cell_is_altered_in_silence(cells, declared, taken, counted, tmp_path):
    """It is read as what it says, counted, or refused by its row, whatever the file."""
    encoder, path = TableEncoder({"v": declared}), tmp_path / "t.jsonl"
    columns = Columns(table=encoder, label="y")
    rows = [{"v": cell, "y": "pq"[i % 2]} for i, cell in enumerate(["", *cells])]
    path.write_text("\n".join(map(json.dumps, rows)))
    paths = [path]
    if all(isinstance(cell, str) for cell in cells):
        paths.append(tmp_path / "t.csv")
        pd.DataFrame(rows).to_csv(paths[1], index=False)
    for path in paths:
        if taken is None:
            with pytest.raises(InputError, match=r"'v' in row 2 is no (number|date|text)"):
                read(path, columns)
            continue
        records = read(path, columns)
        plain = TableEncoder({"v": declared["holds"] if isinstance(declared, dict) else declared})
        assert np.array_equal(records.X, plain.transform({"v": [None, *taken]}))
        assert records.counts["v"] == (counted[0], counted[1] + 1)


#: Cells of a column, its kind, and what its owner is told to declare, of how many of them.
WRITTEN = [
    (
        ["1,5", "1.234,5", "7", "12,25", ""],
        "numbers",
        4,
        'have decimal commas: declare decimal = ","',
    ),
    (["1,234.5", "7", "12,345,678"], "numbers", 3, 'between thousands: declare decimal = "."'),
    (["31.12.2024", "1.2.2024", ""], "dates", 2, 'such as 31.12.2000: declare format = "%d.%m.%Y"'),
    (["12/31/2024", "01/02/2024"], "dates", 2, 'such as 12/31/2000: declare format = "%m/%d/%Y"'),
    (["13/01/2024", "01/02/2024"], "dates", 2, 'such as 31/12/2000: declare format = "%d/%m/%Y"'),
    (["20241231", "20230105"], "dates", 2, 'such as 20001231: declare format = "%Y%m%d"'),
    (["7,5"] * 38 + ["?", "x", "y"], "numbers", 38, "have decimal commas"),
    (["2024-12-31", "2023-01-05 10:00"], "dates", 0, ""),
    (["1.5", "7", "1e3"], "numbers", 0, ""),
    (["True", "False"], "categories", 0, ""),
    (["01067", "80331"], "categories", 0, ""),
    (["NA", "DE", "?"], "categories", 0, ""),
    # Of the first cells alone, numbers.
    ([*map(str, range(300)), *(f"x{i}" for i in range(60))], "codes", 0, ""),
]


@pytest.mark.kills("command/columns.py", "best >= _SHARE * total", "best > 0")
@pytest.mark.parametrize(("cells", "kind", "count", "told"), WRITTEN)
def test_the_draft_knows_how_a_whole_column_is_written(cells, kind, count, told, tmp_path, capsys):
    """The file has no count; the terminal of the owner has."""
    path = tmp_path / "t.csv"
    pd.DataFrame({"v": cells, "other": "a"}).to_csv(path, index=False)
    assert main(["columns", str(path)]) == 0
    draft, notes = capsys.readouterr()
    assert tomllib.loads(draft) == {"v": [], "other": []}
    [hint] = re.findall(rf"^v     = \[\]  # {kind}: (.*)$", draft, re.M)
    present = sum(cell not in ("", "?") for cell in cells)
    assert (f"v: {count:,} of {present:,} cells " in notes) == (count > 0)
    assert told in notes
    assert not notes or count > 0
    if count > 0:
        option = re.search(r"declare (\w+ = .*)$", notes)[1].strip()
        assert f", {option}}}" in hint
        # What the hint shows is a declaration, once its words are numbers.
        shown = re.search(r"\{.*?\}", hint)[0].replace("lowest", "0").replace("highest", "9")
        columns = tmp_path / "c.toml"
        columns.write_text(f"v = {shown}")
        fitting = [cell for cell in cells if cell not in ("x", "y")]
        assert declared_in(columns).counts({"v": fitting})["v"].missing == len(fitting) - count
    else:
        assert "declare" not in notes


def test_a_declared_way_of_writing_travels_with_the_model(balldp):
    """The card shows what may be held, ``predict`` reads alike, and a file that differs is told."""
    table = patients()
    written = table.assign(
        **{"Größe": [f"{v:.1f}".replace(".", ",") for v in table["Größe"]]},
        since=["" if not v else f"{v[8:]}.{v[5:7]}.{v[:4]}" for v in table["since"]],
    )
    written.to_csv("patients.csv", index=False, sep=";")
    Path("columns.toml").write_text(
        '"Größe" = {holds = [100, 220], decimal = ","}\nage = [18, 90]\n'
        'since = {holds = [2000-01-01, 2025-12-31], format = "%d.%m.%Y"}',
        encoding="utf-8",
    )
    balldp(f"train {TRAIN} --hide age=5")
    assert "100 to 220" in Path("model/CARD.md").read_text(encoding="utf-8")
    assert "Nothing was refuted." in balldp("verify model")
    balldp("predict model patients.csv --out labelled.csv")
    found = pd.read_csv("labelled.csv", sep=";")["prediction"]
    model = load("model")
    # As numbers and days of a library they are the same cells.
    numbers = table.assign(since=[v and np.datetime64(v).item() for v in table["since"]])
    for X in (written, numbers):
        assert found.tolist() == model.predict(X).tolist()
    Path("columns.toml").write_text('"Größe" = [100, 220]', encoding="utf-8")
    said = balldp(f"plan {TRAIN} --hide 'any 1'".replace("--out model", ""), 2)
    assert "'Größe' in row 1 is no number such as 1.5" in said
    assert 'Größe: 1,000 of 1,000 cells have decimal commas: declare decimal = ","' in said


def test_notes_for_the_owner_alone(balldp):
    table = patients().assign(number=range(1000), height=patients()["Größe"] / 100)
    table.to_csv("patients.csv", index=False)
    Path("columns.toml").write_text("number = 64\nheight = [100, 220]\nzip = 64")
    said = balldp(f"plan {TRAIN} --hide 'any 1'".replace("--out model", ""))
    notes = re.findall(r"^Note +columns.toml: (most \w+ of \w+|\d+)", said, re.M)
    assert notes == ["most cells of height"]
    assert "Columns   3 in 132 cells, many for so few records: delete what is not" in said
    table.assign(height=[*["1.500"] * 999, ""]).to_csv("patients.csv", index=False, sep=";")
    said = balldp(f"plan {TRAIN} --hide 'any 1'".replace("--out model", ""))
    assert "numbers of height such as 1.500 are read as 1.5" in said
    assert "numbers of number" not in said


def test_names_have_one_spelling(balldp):
    Path("columns.toml").write_text('"Gro\u0308ße " = [100, 220]\nage = [18, 90]', encoding="utf-8")
    assert '" by up to 1, and age by up to 1' in balldp(f"train {TRAIN} --hide Größe=1,age=1")
    assert "Labelled" in balldp("predict model patients.csv --out labelled.csv")
    Path("columns.toml").write_text('"Gro\u0308ße" = [1, 2]\n"Größe" = [1, 2]', encoding="utf-8")
    assert "two names differ" in balldp(f"train {TRAIN} --hide 'any 1'".replace("model", "m"), 2)


def test_the_demo_of_a_table(balldp, monkeypatch):
    monkeypatch.setattr(demo, "RELEASES", 2)
    said = balldp("demo --table")
    # Beside that of the other demo.
    assert Path("balldp-demo-table/model").is_dir()
    assert "Nothing was refuted." in said
    assert "and its label, which is standard differential privacy." in " ".join(said.split())
    [train] = re.findall(r"balldp (train .*--out ball)$", said, re.MULTILINE)
    assert "Hidden: any one of the 10 columns" in balldp(train)
    [predict] = re.findall(r"balldp (predict .*)$", said, re.MULTILINE)
    assert "Labelled  142 records" in balldp(predict)
