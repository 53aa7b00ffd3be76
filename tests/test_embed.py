"""``balldp embed``: rows that are made once, and are the records for every other command."""

import json
import os
import pickle
import re
import shutil
import warnings
import zlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.classifiers import text_classifier
from sklearn_balldp.command import embed, main
from sklearn_balldp.encoders import SentenceEncoder, base
from sklearn_balldp.names import in_words
from sklearn_balldp.publish import load

GOAL = "--label topic --epsilon 30"
ROWS = f"rows.npz --embedding embedding {GOAL}"
TEXTS = f"texts.csv --text message {GOAL}"


@pytest.fixture
def embedded(monkeypatch):
    """An encoder without a library: how many texts it embedded, and its name."""
    texts = []
    name = ["weights sha256:0123456789abcdef"]

    def encode(self, records, progress):
        rows = np.zeros((len(records), 16), dtype=np.float32)
        for row, text in zip(rows, records, strict=True):
            texts.append(text)
            for word in text.split():
                row[zlib.crc32(word.encode()) % 16] += 1.0
        progress(len(records))
        return rows

    monkeypatch.setattr(SentenceEncoder, "_encode", encode)
    monkeypatch.setattr(SentenceEncoder, "_identity", lambda self: {})
    monkeypatch.setattr(SentenceEncoder, "identity", property(lambda self: name[0]))
    monkeypatch.setattr(SentenceEncoder, "check_library", lambda self: None)
    monkeypatch.setattr(SentenceEncoder, "cut", lambda self, texts: (0, 0, 0, None))
    return texts, name


@pytest.fixture
def balldp(tmp_path, monkeypatch, capsys, embedded):
    """Run a command beside texts of two topics: what it printed, or its error."""
    monkeypatch.chdir(tmp_path)
    words = np.array(["card bank", "rain wind"])[np.arange(120) % 2]
    texts = [f"{own} {i} EUR on {i % 28 + 1} May" for i, own in enumerate(words)]
    table = {"message": texts, "topic": ["a", "b"] * 60, "who": [f"p{i // 2}" for i in range(120)]}
    pd.DataFrame(table).to_csv("texts.csv", index=False)
    table["message"] = [f"public {text}" for text in texts]
    pd.DataFrame(table).to_csv("public.csv", index=False)

    def run(command, status=0):
        capsys.readouterr()
        assert main(command.split()) == status, capsys.readouterr().err
        out, error = capsys.readouterr()
        return error if status else out

    return run


@pytest.mark.kills("command/embed.py", "body.getvalue(), private=True", "body.getvalue()")
@pytest.mark.kills(
    "command/embed.py", "        shutil.rmtree(parts_of(out)", "        str(parts_of(out)"
)
@pytest.mark.kills("command/job.py", "step, column = made\n", "step, _ = made\n")
@pytest.mark.kills("command/verify.py", "encoder = _Made(maker)", "pass")
@pytest.mark.parametrize("owner", ["", " --owner who"])
def test_rows_and_texts_make_one_model(owner, balldp, embedded):
    """Whether a file was embedded before or on the way, and whichever of both is checked."""
    said = balldp(f"embed texts.csv --text message --label topic --out rows.npz{owner}")
    assert "rows.npz: 120 rows of 16 numbers" in said
    assert "balldp plan rows.npz --embedding embedding" in said
    assert sorted(path.name for path in Path().iterdir()) == ["public.csv", "rows.npz", "texts.csv"]
    if os.name == "posix":
        assert Path("rows.npz").stat().st_mode & 0o077 == 0
    with np.load("rows.npz") as held:
        columns = ["embedding", "topic", *(["who"] if owner else [])]
        assert held.files == [*columns, "balldp.made"]
        assert np.abs(np.linalg.norm(held["embedding"], axis=1) - 1.0).max() < 1e-6
    del embedded[0][:]
    for records, place in ((ROWS, "of_rows"), (TEXTS, "of_texts")):
        balldp(f"train {records} --radius 0.6 --out {place} --keep-transcript {place}_kept{owner}")
    assert len(embedded[0]) == 120
    config, other = (
        json.loads(Path(p, "config.json").read_text()) for p in ("of_rows", "of_texts")
    )
    del config["digest"], other["digest"]
    assert config == other
    assert (config["column"], config["steps"][0]["name"]) == ("message", embedded[1][0])
    for own in ("of_texts_kept --private rows.npz", "of_rows_kept --private texts.csv --encoder x"):
        shown = balldp(f"verify {own} --label topic{owner}")
        assert "PASS          scale of the noise" in shown
    released = load("of_rows", encoder=SentenceEncoder())[-1].release_
    assert (released.encoder, released.unit) == (embedded[1][0], "person" if owner else "record")


@pytest.mark.kills("command/records.py", "if found.n_dropped:", "if False:")
@pytest.mark.kills(
    "command/train.py", "**job.records.groups, **job.examples", "**job.records.groups"
)
@pytest.mark.kills("command/records.py", '"examples": (0.0,', '"examples": (0.5,')
@pytest.mark.kills("command/options.py", "examples and described", "False")
@pytest.mark.parametrize("protected", [False, True])
def test_public_examples_of_a_file(protected, balldp, embedded, capsys):
    """As texts or as rows; nothing compares them with the private records."""
    table = pd.read_csv("public.csv").assign(message=lambda t: "an example: " + t["message"])
    table[:10].to_csv("examples.csv", index=False)
    table[:9].assign(topic="c").to_csv("strange.csv", index=False)
    pd.read_csv("texts.csv")[:10].to_csv("private.csv", index=False)
    table[9:30].to_csv("tests.csv", index=False)
    Path("classes.txt").write_text("a\nb\n")
    hidden = " --labels protected --classes classes.txt" if protected else ""
    given = f"--radius 0.6{hidden}"
    said = balldp(f"train {TEXTS} {given} --out model --examples examples.csv --public public.csv")
    assert "Examples  10 public ones" in said
    assert "started from 10 public examples" in Path("model/CARD.md").read_text()
    kept = load("model", encoder=SentenceEncoder())[-1].released_.settings.examples
    # Records that lack something are left out with a word.
    table[:10].assign(topic=["", *table["topic"][1:10]]).to_csv("lacking.csv", index=False)
    lacking = f"train {TEXTS} {given} --out fewer --examples lacking.csv"
    assert main(lacking.split()) == 0
    assert "1 of its records lack something" in capsys.readouterr().err
    # Records of the private file say nothing, and change nothing; with examples none is lost.
    little = f"train {TEXTS} {given} --out other".replace("epsilon 30", "epsilon 0.01")
    assert protected or "every class is likely lost" in balldp(little, 2)
    again = balldp(f"{little} --examples private.csv")
    assert not re.search("among|private.csv", again)
    for name in ("texts", "examples"):
        balldp(f"embed {name}.csv --text message --label topic --out {name}.npz")
    rows = f"texts.npz --embedding embedding {GOAL} {given} --examples"
    assert "Examples  10 public ones" in balldp(f"plan {rows} examples.npz")
    balldp(f"train {rows} examples.npz --out of_rows")
    own = load("of_rows", encoder=SentenceEncoder())[-1].released_.settings.examples
    np.testing.assert_allclose(own.means, kept.means, atol=1e-6)
    wrong = {
        f"train {TEXTS} {given} --out x --examples examples.csv --public tests.csv": "1 of its 10 ",
        f"plan {rows} texts.npz": "are the private records; name public ones",
        f"plan {rows} examples.csv": "embedding",
        f"plan {rows} none.npz": "there is no such file",
        f"train {TEXTS} {given} --out x --examples examples.csv --class-texts d.csv": "of both",
        f"plan {rows} examples.npz --head prototypes": "--head prototypes has no use for them",
        f"train {TEXTS} {given} --out x --examples strange.csv": "none of its labels is a class",
    }
    for command, reason in wrong.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert reason in balldp(command, 2)
    assert not Path("x").exists()


@pytest.mark.kills("command/embed.py", "options.cache or parts_of(out))", "options.cache)")
@pytest.mark.parametrize("cache", ["", " --cache kept"])
def test_who_interrupts_embeddings_goes_on_from_there(cache, balldp, embedded, monkeypatch):
    monkeypatch.setattr(base, "_KEPT", 50)
    encode, texts = SentenceEncoder._encode, embedded[0]

    def interrupted(self, records, progress):
        if len(texts) >= 100:
            raise KeyboardInterrupt
        return encode(self, records, progress)

    command = f"embed texts.csv --text message --out rows.npz{cache}"
    with monkeypatch.context() as patch:
        patch.setattr(SentenceEncoder, "_encode", interrupted)
        said = balldp(command, 2)
    kept = "kept" if cache else "rows.npz.part"
    assert said.endswith(
        f"interrupted; what it has embedded lies in {kept}, and the same command "
        "goes on from there.\n"
    )
    kept_mode = Path(kept, "embeddings.sqlite").stat().st_mode
    assert os.name != "posix" or kept_mode & 0o077 == 0
    assert not Path("rows.npz").exists()
    balldp(command)
    assert len(texts) == 120
    assert Path(kept).exists() == (cache != "")
    with np.load("rows.npz") as held:
        assert np.array_equal(held["embedding"], SentenceEncoder().transform(texts_of()))


def texts_of():
    return pd.read_csv("texts.csv")["message"].tolist()


@pytest.mark.kills("command/embed.py", "after, record=record)", "after)")
def test_edits_are_rows_too(balldp):
    said = balldp("embed public.csv --text message --label topic --edits --out public.npz")
    moved = float(said.partition("by up to ")[2].split()[0])
    balldp("embed texts.csv --text message --label topic --out rows.npz")
    for records, public in ((ROWS, "public.npz"), (TEXTS, "public.csv")):
        shown = balldp(f"train {records} --radius edits --public {public} --out {public[-3:]}")
        release = load(public[-3:], encoder=SentenceEncoder())[-1].release_
        assert release.radius == pytest.approx(moved, rel=1e-2)
        told = (
            r"this covers 9\d(\.\d)? % of the \d+ given edits, and all of them for [\d.]+ % of the"
        )
        assert re.search(told, " ".join(shown.split()))
        assert "on 120 public records" in shown


@pytest.mark.kills("command/job.py", "!= step.identity", "== ''")
@pytest.mark.kills("command/verify.py", "same_encoder(maker, other) is False", "False")
def test_rows_of_another_encoder_are_refused(balldp, embedded):
    for name in ("texts.csv --out rows.npz", "public.csv --out same.npz"):
        balldp(f"embed {name} --text message --label topic")
    embedded[1][0] = "others sha256:fedcba9876543210"
    balldp("embed public.csv --text message --label topic --out public.npz")
    balldp(f"train {TEXTS} --radius 0.6 --out model --head prototypes")
    given = f"{ROWS} --radius 0.6"
    assert "not made as those of rows.npz" in balldp(f"plan {given} --public public.npz", 2)
    assert "says what made its rows" in balldp(f"plan {given} --encoder others", 2)
    assert "--public FILE" in balldp(f"plan {ROWS} --radius edits", 2)
    assert "embed --edits" in balldp(f"plan {ROWS} --radius edits --public same.npz", 2)
    said = balldp("verify model --private rows.npz --label topic", 2)
    assert "its rows were made by weights sha256:0123456789abcdef, the model's by others" in said


@pytest.mark.parametrize("made", ["", "{}", '{"step": {"kind": "table"}, "column": "t"}', "7"])
def test_what_embed_does_not_write_is_refused(made, balldp):
    balldp("embed texts.csv --text message --label topic --out rows.npz")
    with np.load("rows.npz") as held:
        arrays = {**held, "balldp.made": np.array(made)}
    np.savez("rows.npz", **arrays)
    assert "'balldp.made' is not what embed writes" in balldp(f"plan {ROWS} --radius 0.6", 2)


def test_embed_says_what_is_wrong_before_anything_is_embedded(balldp, monkeypatch):
    monkeypatch.setattr(SentenceEncoder, "transform", lambda *_: pytest.fail("it was embedded"))
    pd.read_csv("texts.csv").rename(columns={"topic": "embedding"}).to_csv("t.csv", index=False)
    given = "t.csv --text message --out"
    for command, said in (
        (f"{given} rows.npz --label embedding", "rename the column 'embedding'"),
        (f"{given} rows.npz --label topic", "no column 'topic'"),
        (f"{given} rows.csv", "must end in .npz"),
        (f"{given} none/rows.npz", "no folder that can be written to"),
        ("no.csv --text message --out rows.npz", "there is no such file"),
        (f"{given} rows.npz --encoder bank/letters", "say hf://bank/letters"),
    ):
        assert said in balldp(f"embed {command}", 2)
    for option in ("--edits", "--max-length 7"):
        said = balldp(f"embed t.csv --image message --out rows.npz {option}", 2)
        assert "is for --text" in said
    with monkeypatch.context() as patch:
        patch.setattr(embed, "read", interrupt)
        assert "interrupted; nothing was written" in balldp(f"embed {given} rows.npz", 2)
    assert not list(Path().glob("rows*"))


def interrupt(*_, **__):
    raise KeyboardInterrupt


# Names of classes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "text"),
    [
        *(("card_arrival", "card arrival"), ("cardArrival", "card Arrival"), ("ATM", "ATM")),
        *(
            ("why-not?", "why not?"),
            ("\u732b", "\u732b"),
            ("\u0939\u093f\u0928", "\u0939\u093f\u0928"),
        ),
        *(
            (code, "")
            for code in ("7", "-1.5", "c0", "E11.9", "a", "A_b", "2024-01-01", "\u0663", "?")
        ),
    ],
)
def test_what_is_a_name(label, text):
    assert in_words(label) == text


@pytest.mark.kills("classifiers.py", "in_words(str(label))", "str(label)")
@pytest.mark.kills("classifiers.py", "zip(texts, model", "zip(sorted(texts), model")
def test_a_pipeline_embeds_texts_of_its_classes(embedded):
    """By its own encoder, for every copy of it; a fold that lacks a class leaves its text out."""
    y = np.array(["bank_card", "other", "rainWind"])[np.arange(90) % 3]
    X, two = [f"{in_words(label)} {i}" for i, label in enumerate(y)], y != "rainWind"
    folds = [(np.flatnonzero(two), np.arange(90)), (np.arange(90), np.flatnonzero(two))]
    described = {"rainWind": "rain or wind", "elsewhere": "x", "other": "any", "bank_card": "card"}
    for given, texts in (
        (["rainWind", "other", "bank_card"], ["bank card", "other", "rain Wind"]),
        (described, ["card", "any", "rain or wind"]),
    ):
        model = text_classifier(class_texts=given, epsilon=5.0, radius=0.5)
        search = GridSearchCV(model, {"head__epsilon": [4.0]}, cv=folds, error_score="raise")
        for own in (model, clone(model), pickle.loads(pickle.dumps(model)), search):
            head = getattr(own.fit(X, y), "best_estimator_", own)[-1]
            vectors = head.released_.settings.class_embeddings
            assert np.array_equal(vectors, SentenceEncoder().transform(texts))


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"class_texts": ["card", 7]}, "class_texts: label 7 has no word; map each label to a te"),
        ({"class_texts": {"card": "a card", "rain": " "}}, "label 'rain' has no word"),
        ({"class_texts": {"card": "a card", "rain": None}}, "label 'rain' has no word"),
        ({"class_texts": ["card"], "class_embeddings": [[1.0]]}, "pass one of both"),
        ({"class_texts": ["card"], "head": BallDPRidgePrototype()}, "parameter 'class_embeddings'"),
    ],
)
def test_texts_of_classes_that_are_refused(embedded, given, match):
    with pytest.raises(ValueError, match=match):
        text_classifier(**given)


@pytest.fixture
def named(balldp):
    """Texts of two classes with names, and descriptions of them and of a third one."""
    for name in ("texts.csv", "public.csv"):
        table = pd.read_csv(name)
        table["topic"] = table["topic"].map({"a": "bank_card", "b": "rainWind"})
        table.to_csv(name, index=False)
    described = {"label": ["other", "rainWind", "bank_card"], "text": ["x", "rain or wind", "card"]}
    pd.DataFrame(described).to_csv("d.csv", index=False)
    Path("declared").write_text("bank_card\nrainWind\n")
    Path("further").write_text("animals\nbank_card\nrainWind\nother\n")

    def run(command):
        said = balldp(f"{command} --out m")
        head = load("m", encoder=SentenceEncoder())[-1]
        assert "Nothing was refuted" in balldp("verify m")
        shutil.rmtree("m")
        used = head.class_embeddings is not None
        assert ("Names     of the classes are public" in said) == used
        return head.class_embeddings if used else None

    return run


@pytest.mark.kills(
    "command/names.py", "found[name] for name in classes]).", "found[name] for name in names])."
)
@pytest.mark.kills(
    "command/names.py", 'options.labels == "protected" and not records', "False and not records"
)
@pytest.mark.kills("command/train.py", "or job.named or", "or")
def test_names_of_classes_are_embedded_with_the_texts(named, balldp, capsys):
    """By the encoder of the texts, in the order of the classes; of protected labels only declared
    ones, as others tell which classes occur."""
    texts, rows = f"train {TEXTS} --radius 0.6", f"train {ROWS} --radius 0.6"
    vectors = SentenceEncoder().transform(["bank card", "rain Wind", "card", "rain or wind"])
    assert np.array_equal(named(texts), vectors[:2])
    assert np.array_equal(named(f"{texts} --class-texts d.csv"), vectors[2:])
    protected = " --labels protected --classes declared"
    for given, shown, hidden in (
        ("", vectors[:2], None),
        (" --classes further", vectors[:2], vectors[:2]),
        (" --classes declared --class-texts d.csv", vectors[2:], vectors[2:]),
        (" --class-texts none", None, None),
    ):
        balldp(f"embed texts.csv --text message --label topic --out rows.npz{given}")
        for further, expected in (("", shown), (protected, hidden), (" --class-texts none", None)):
            found = named(rows + further)
            assert (found is None) == (expected is None)
            assert found is None or np.array_equal(found, expected)
        Path("rows.npz").unlink()
    assert np.array_equal(named(texts + protected), vectors[:2])
    # Prototypes have no use for them.
    balldp(f"{texts} --head prototypes --out m")
    # They tell the classes where the records are too few for the noise.
    little = texts.replace("epsilon 30", "epsilon 0.01")
    assert "every class is likely lost" in balldp(f"{little} --class-texts none --out n", 2)
    assert "the noise may drown most of the model" in balldp(f"{little} --out n")


def test_names_that_are_no_words_are_told_and_descriptions_are_whole(named, balldp, capsys):
    table = pd.read_csv("texts.csv")
    table.assign(topic=table["topic"].map({"bank_card": 7, "rainWind": "rain"})).to_csv("t.csv")
    given = "embed t.csv --text message --label topic --out rows.npz"
    assert main(given.split()) == 0
    assert "names of 1 of 2 classes are no words, so none is embedded" in capsys.readouterr().err
    Path("rows.npz").unlink()
    assert "it lacks 7, rain; name each" in balldp(f"{given} --class-texts d.csv", 2)
    Path("twice.csv").write_text("label,text\n7,x\nrain,y\n7,z\n")
    assert "it describes a class twice" in balldp(f"{given} --class-texts twice.csv", 2)
    assert "no such file" in balldp(f"{given} --class-texts absent.csv", 2)
    balldp(f"{given} --class-texts none")
    assert "is for --text" in balldp(f"plan {ROWS} --radius 0.6 --class-texts d.csv", 2)
