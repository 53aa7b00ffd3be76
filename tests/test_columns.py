"""Tables through the command: a draft, what is hidden in words, and nothing altered in silence."""

import json
import math
import re
import shlex
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from verdicts import failed

from sklearn_balldp import BallDPRidgePrototype, verify
from sklearn_balldp.command import demo, main
from sklearn_balldp.command.columns import declared_in
from sklearn_balldp.command.files import Columns
from sklearn_balldp.command.options import InputError
from sklearn_balldp.command.records import read
from sklearn_balldp.encoders import TableEncoder
from sklearn_balldp.privacy.noise import Noise
from sklearn_balldp.publish import card, load
from sklearn_balldp.publish.files import json_text

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
        assert "it hides all five columns of every record of one person, whatever they" in text
        assert re.search(r"age: \d+ not as declared \(clipped, or spread\), \d+ missing", text)
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
    Path("columns.json").write_text(json.dumps(dict(one.to_dict()["columns"])))
    same = declared_in(Path("columns.json"))
    assert one.identity == same.identity == release.encoder


@pytest.mark.parametrize(
    ("hide", "change", "said"),
    [
        ("all", 5, "all five columns of a record, whatever they hold, and its label"),
        ("any 5", 5, "all five columns of a record, whatever they hold"),
        ("any 2", 2, "any two of the 5 columns of a record, whatever they hold"),
        ("zip", 1, "any one of the 5 columns of a record, whatever they hold"),
        ("age=5, since=30", {"age": 5, "since": 30}, "a change of one column of a record by no"),
        ('age=5,"Geschlecht, amtlich"', {"age": 5, "Geschlecht, amtlich": None}, "any one of the"),
    ],
)
def test_what_is_hidden_is_said_on_terminal_and_card(balldp, hide, change, said):
    """In a saved folder the card is made again of the declaration."""
    labels = "--classes classes.txt" if hide == "all" else ""
    shown = balldp(f"train {TRAIN} {labels} --hide {shlex.quote(hide)}")
    assert f"it hides {said}" in shown
    text = Path("model/CARD.md").read_text(encoding="utf-8")
    assert f"- Hidden: {said}" in text
    model, encoder = load("model"), declared_in(Path("columns.toml"))
    release = model[-1].release_
    assert release.radius == encoder.radius(change)
    assert release.labels == ("protected" if hide == "all" else "public")
    assert ("| column | may hold |" in text) == hide.startswith("age=5, since")
    assert ("larger changes" in text) == (not said.startswith("all"))
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
-C --hide agee=5  ::  must name declared columns
-C --hide age=old  ::  could not convert
-C --hide age=nan  ::  must be
-C --hide zip=1  ::  a category changes to any other
-C --hide age=1,age=2  ::  named twice
--columns patients.csv --hide 'any 2'  ::  it is no TOML
-C --hide 'any 2' --owner zip  ::  told the owner
-C --hide 'any 2' --owner outcome  ::  cannot serve as two
-C --hide 'any 2' --encoder x  ::  --encoder
-C --radius edits  ::  needs --text
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
#: Cells, what is declared, and what they are taken for with the cells that are counted as outside
#: and missing; or None where the first of them is refused.
ODD = [
    (["1", "2.50", " 3 ", "+4", ".5"], NUMBER, [1, 2.5, 3, 4, 0.5], (0, 0)),
    (["1e1", "1e-2", "-1E-2", "1e3", "1e400"], NUMBER, [10, 0.01, 0, 10, 10], (3, 0)),
    (["inf", "-Infinity", "-3"], NUMBER, [10, 0, 0], (3, 0)),
    (["NaN", "NA", "n/a", "null", "", "?", "None"], NUMBER, [None] * 7, (0, 7)),
    (["true", "FALSE"], NUMBER, [1, 0], (0, 0)),
    ([True, 7, 2.5, None], NUMBER, [1, 7, 2.5, None], (0, 1)),
    (["2001-02-03", "2001-02-03 10:00", "2001-02-03T23:59:59Z"], DAY, ["2001-02-03"] * 3, (0, 0)),
    (["1900-01-01", "NaT", "2999-01-01"], DAY, ["2000-01-01", None, "2010-12-31"], (2, 1)),
    (["a", " a", "A", "b\n", "c", ""], LETTER, ["a", "a", None, "b", None, None], (2, 1)),
    (["\u00fc", "u\u0308", "u"], ["u\u0308", "o"], ["\u00fc", "\u00fc", None], (1, 0)),
    (["1", "1.0", "01", "1,0"], ["1", "2"], ["1", "1", None, None], (2, 0)),
    ([1, 1.0, True], ["1", "2"], ["1", "1", None], (1, 0)),
    (["True", "no"], [False, True], ["true", None], (1, 0)),
    (["NA", "NB"], ["NA", "NB"], ["NA", "NB"], (0, 0)),
    (["", "NA", "z"], ["a", ""], ["", "", "z"], (1, 2)),
    (["01067", "1067", "1067.0", 1067], 4096, ["01067", "1067", "1067", "1067"], (0, 0)),
    *(([c], NUMBER, None, None) for c in ("1,5", "1_000", "0x10", "12 kg", "50%", "1/2")),
    *(([c], NUMBER, None, None) for c in ("\u0663", "\u22125", "1 000", "1.000,5", [1], {})),
    *(([c], DAY, None, None) for c in ("3.2.2001", "2/3/2001", "2001-2-3", "2001-02-30", "37000")),
    *(([c], DAY, None, None) for c in ("2001-02-03 25:00", "2001-02-03 --::Z", "20010203", 3)),
    *(([c], LETTER, None, None) for c in (["a"], {"a": 1})),
]


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
        assert np.array_equal(records.X, encoder.transform({"v": [None, *taken]}))
        assert records.counts["v"] == (counted[0], counted[1] + 1)


def test_notes_for_the_owner_alone(balldp):
    table = patients().assign(number=range(1000), height=patients()["Größe"] / 100)
    table.to_csv("patients.csv", index=False)
    Path("columns.toml").write_text("number = 64\nheight = [100, 220]\nzip = 64")
    said = balldp(f"plan {TRAIN} --hide 'any 1'".replace("--out model", ""))
    notes = re.findall(r"^Note +columns.toml: (most \w+ of \w+|\d+)", said, re.M)
    assert notes == ["most cells of height", "most codes of number", "132"]
    table.assign(height=[*["1.500"] * 999, ""]).to_csv("patients.csv", index=False, sep=";")
    said = balldp(f"plan {TRAIN} --hide 'any 1'".replace("--out model", ""))
    assert "numbers of height such as 1.500 are read as 1.5" in said
    assert "numbers of number" not in said


def test_names_have_one_spelling(balldp):
    Path("columns.toml").write_text('"Gro\u0308ße " = [100, 220]\nage = [18, 90]', encoding="utf-8")
    assert "a change of one column" in balldp(f"train {TRAIN} --hide Größe=1,age=1")
    assert "Labelled" in balldp("predict model patients.csv --out labelled.csv")
    Path("columns.toml").write_text('"Gro\u0308ße" = [1, 2]\n"Größe" = [1, 2]', encoding="utf-8")
    assert "two names differ" in balldp(f"train {TRAIN} --hide 'any 1'".replace("model", "m"), 2)


def test_risk_radius_and_rare_are_those_of_other_records(balldp):
    given = "train patients.csv --columns columns.toml --label outcome"
    balldp(f"{given} --hide 'any 2' --risk 0.3 --out risk")
    assert load("risk")[-1].release_.certificate(0.1) == pytest.approx(0.3, abs=1e-9)
    said = balldp(f"{given} --radius 0.5 --rare --epsilon 4 --out radius")
    assert "may change unseen, alone: Größe by" in said
    head = load("radius")[-1]
    assert (head.release_.radius, head.release_.labels, head.class_weight) == (
        0.5,
        "public",
        "balanced",
    )


def test_forged_declarations_are_caught(balldp):
    """Even with the record's name for them: the card follows from them too."""
    balldp(f"train {TRAIN} --hide age=5")
    folder, record = Path("model"), load("model")[-1].release_
    kept = {path.name: path.read_text("utf-8", "replace") for path in folder.iterdir()}
    config = json.loads(kept["config.json"])
    honest = json.dumps(config["steps"], separators=(",", ":"), ensure_ascii=False)

    def forge(old, new):
        assert old in honest
        config["steps"] = json.loads(honest.replace(old, new))
        (folder / "config.json").write_bytes(json_text(config))

    spellings = {
        "[18,90]": ("[18.0,90]", "[90,18]"),
        '"knots":4': ('"knots":5', '"knots":true', '"knots":4,"further":1'),
        '["age",[18,90]]': ('["age",[18,90]],["age",[18,90]]', "7"),
        '"m\u00e4nnlich"': ('"ma\u0308nnlich"', '"m\u00e4nnlich "'),
    }
    for old, others in spellings.items():
        for new in others:
            forge(old, new)
            assert failed(verify(folder)), new
    for old, new in (("[18,90]", "[18,99]"), ("[18,90]", "[0,90]"), ('"weiblich"', '"divers"')):
        forge(old, new)
        assert "encoder" in failed(verify(folder))
        name = TableEncoder(dict(config["steps"][0]["columns"])).identity
        (folder / "release.json").write_bytes(json_text(replace(record, encoder=name).to_dict()))
        assert failed(verify(folder)) == ["CARD.md"]
        for file in ("config.json", "release.json"):
            (folder / file).write_text(kept[file], encoding="utf-8")
    assert not verify(folder).failed
    (folder / "CARD.md").write_text(kept["CARD.md"].replace("by 5", "by 9"), encoding="utf-8")
    assert verify(folder).failed


def test_the_demo_of_a_table(balldp, monkeypatch):
    monkeypatch.setattr(demo, "RELEASES", 2)
    said = balldp("demo --table --out d")
    assert "Nothing was refuted." in said
    [train] = re.findall(r"balldp (train .*--out ball)$", said, re.MULTILINE)
    assert "any one of the 10 columns" in balldp(train)
    assert "Labelled  142 records" in balldp("predict d/model d/new.csv --out labelled.csv")
