"""Folders that a stranger made to deceive whoever checks them: nothing in a folder acts."""

import contextlib
import io
import json
import os
import random
import re
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from verdicts import resealed, written

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    publish,
)
from sklearn_balldp.command import main
from sklearn_balldp.encoders import SentenceEncoder, TableEncoder
from sklearn_balldp.privacy import Release
from sklearn_balldp.publish import load, save
from sklearn_balldp.publish.files import FILES, README, json_text
from sklearn_balldp.publish.model import Published
from sklearn_balldp.showing import one_line

try:
    import resource
except ImportError:  # memory is counted on POSIX alone
    resource = None

# Steps that learned from rows: save says so.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn_balldp.audit.PooledPreprocessingWarning")

#: Folders of one run of the generators; the long run takes 10,000.
N_FILES = int(os.environ.get("BALLDP_HOSTILE_FILES", "180"))
#: Of this process: what else runs on the machine does not count.
SECONDS, BYTES = 10.0, 2**30
N, D, K = 90, 8, 3
ROWS = "0123456789abcdef" * 20


def data(seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(N) % K
    X = 0.3 * rng.standard_normal((N, D)) + np.eye(K, D)[y]
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def prototypes(**params):
    return BallDPRidgePrototype(**{"epsilon": 4.0, "radius": 0.5, **params}).fit(*data())


def minimiser(**params):
    head = BallDPSquaredHingeSVC(4.0, radius=0.5, alpha=0.1, mechanism="output", **params)
    return head.fit(*data())


def descent(public=None, **params):
    steps = GradientPerturbation(n_steps=4, keep_transcript=True, start="statistics")
    head = BallDPLogisticRegression(30.0, radius=0.2, mechanism=steps, **params)
    return head.fit(*data(), **(public or {}))


#: Its rows have the features of the others.
COLUMNS = TableEncoder({"age": [0, 100], "sex": ["f", "m"]}, knots=6).fit()

KINDS = {
    "prototypes": lambda: prototypes(),
    "descent": lambda: descent(class_embeddings=np.eye(K, D)),
    "examples": lambda: descent(dict(zip(("X_public", "y_public"), data(1), strict=True))),
    "discriminant": lambda: BallDPLinearDiscriminant(4.0, radius=0.5, share=0.5).fit(*data()),
    "minimiser": minimiser,
    "flat": lambda: minimiser(fit_intercept=False),
    "absent": lambda: prototypes(classes=range(K + 1)),
    "pipeline": lambda: make_pipeline(StandardScaler(), Normalizer(), prototypes()).fit(*data()),
    "table": lambda: make_pipeline(COLUMNS, prototypes(encoder=COLUMNS.identity)),
    # Any file is weights that nobody runs.
    "encoder": lambda: make_pipeline(SentenceEncoder(__file__, max_length=64), prototypes()),
}


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A folder of each kind, with transcripts, and the owner's rows."""
    place = tmp_path_factory.mktemp("honest")
    for name, make in KINDS.items():
        save(make(), place / name, transcript=name in ("descent", "examples"))
    X, y = data()
    np.savez(place / "private-rows.npz", X=X, y=y)
    return place


@pytest.fixture
def forged(honest, tmp_path):
    """What writes a folder again with another text or other bytes of a file."""
    target = tmp_path / "forged"
    target.mkdir()

    def write(kind, **files):
        for path in (honest / kind).iterdir():
            (target / path.name).write_bytes(files.get(path.stem, path.read_bytes()))
        return target

    return write


@pytest.fixture(scope="module")
def said_of(honest):
    """The report about each honest folder."""
    return {kind: run(honest / kind)[1] for kind in KINDS}


def run(*arguments):
    """Exit status, and lines of the report."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["verify", *map(str, arguments)])
    return status, out.getvalue().splitlines(), err.getvalue()


#: Verdicts that tell the reader something; a FAIL, and what he is to ask or to read.
TOLD = "FAIL", "WEAK", "STATED", "CANNOT CHECK"


def said(lines, verdict):
    return [line for line in lines if line.startswith(verdict)]


@pytest.fixture
def opened():
    """Files, folders, sockets, processes and code that are touched."""
    seen, on = [], [True]
    watched = ("open", "socket.", "subprocess.", "os.", "sqlite3.", "compile", "exec", "shutil.")

    def hook(event, arguments):
        if on[0] and event.startswith(watched):
            seen.append((event, arguments))

    sys.addaudithook(hook)
    yield seen
    on[0] = False


def outside(seen, *folders):
    """What was touched beside these folders, the package, and what Python itself reads."""
    own = [Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[2], *folders]
    odd = []
    for event, arguments in seen:
        what = arguments[0] if arguments else None
        found = event.startswith(("socket.", "subprocess.", "sqlite3.", "os.mkdir", "os.system"))
        if event == "open" and isinstance(what, str | bytes | os.PathLike):
            what = Path(os.fsdecode(what)).resolve()
            writes = bool(set(arguments[1] or "r") & set("wax+"))
            found = writes or not any(what.is_relative_to(place.resolve()) for place in own)
        if event == "compile":
            # A module that is imported late has the name of its file.
            found = arguments[1] in (None, "<unknown>", "<string>")
        if found:
            odd.append((event, what))
    return odd


@pytest.mark.parametrize("kind", ["prototypes", "descent", "pipeline", "table", "encoder"])
def test_nothing_beside_the_folder_is_touched(honest, opened, kind, tmp_path, forged):
    run(honest / kind)  # so that all modules are imported
    if kind == "encoder":
        # A stranger's may name a place, where an honest one has a digest: its weights stay closed.
        (tmp_path / "weights").mkdir()
        config = json.loads((honest / kind / "config.json").read_text())
        put(config, ("steps", 0, "name"), f"{tmp_path / 'weights'}, 64 tokens")
        folder = forged(kind, config=json_text(config))
        opened.clear()
        run(folder)
        assert any(folder.name in str(what) for what in opened)
        assert outside(opened, folder) == []
    opened.clear()
    status, lines, _ = run(honest / kind)
    assert status == 0, lines
    assert outside(opened, honest) == []
    opened.clear()
    status, lines, _ = run(honest / kind, "--private", honest / "private-rows.npz")
    # NumPy parses the header of the owner's own rows.
    assert [what for what in outside(opened, honest) if what[0] != "compile"] == []
    if kind == "encoder":
        assert any("rows" in line and "--encoder" in line for line in said(lines, "CANNOT CHECK"))


def arrays(**changes):
    """Other arrays, or none in the place of None."""

    def forge(model):
        held = {**model.arrays, **changes}
        return replace(model, arrays={n: a for n, a in held.items() if a is not None})

    return forge


def step_with(**arrays):
    def forge(model):
        first = replace(model.steps[0], arrays={**model.steps[0].arrays, **arrays})
        return replace(model, steps=(first, *model.steps[1:]))

    return forge


def turned(model):
    """Settings of the first step in another order."""
    settings = dict(reversed(model.steps[0].settings.items()))
    return replace(model, steps=(replace(model.steps[0], settings=settings), *model.steps[1:]))


def following(**changes):
    """A record that states some of what follows in another spelling."""

    def forge(model):
        follows = model.as_json["follows"] | {
            n: f(model.as_json["follows"][n]) for n, f in changes.items()
        }
        return replace(model, as_json=resealed({**model.as_json, "follows": follows}))

    return forge


def setting(**changes):
    return lambda model: replace(model, settings={**model.settings, **changes})


def parts(**changes):
    return lambda model: replace(model, **changes)


X, Y = data()


@pytest.mark.parametrize(
    ("kind", "forge", "named"),
    [
        ("pipeline", arrays(rows=X), "an array rows"),
        ("pipeline", arrays(class_sums=None), "class_sums that is no array"),
        ("pipeline", arrays(class_sums=X[:K].astype(np.float32)), "class_sums that is no array"),
        ("prototypes", arrays(class_sums=np.where(X[:K] > 0, np.nan, X[:K])), "sums"),
        ("minimiser", arrays(coef_=np.full((K, D), 1e200)), "coef"),
        ("minimiser", arrays(class_embeddings=X[:K]), "an array class_embeddings"),
        ("discriminant", arrays(class_embeddings=X), "class_embeddings that is no array"),
        ("pipeline", arrays(**{"transcript.gradients": X}), "an array transcript.gradients"),
        ("descent", arrays(**{"transcript.start": X}), "transcript.start that is no array"),
        ("descent", arrays(**{"transcript.start": None}), "transcript"),
        ("minimiser", arrays(intercept_=None), "intercept_ that is no array"),
        ("examples", arrays(**{"examples.means": None}), "examples.means that is no array"),
        ("examples", arrays(**{"examples.spread": np.zeros(K)}), "covariances of public examples"),
        ("prototypes", arrays(**{"examples.counts": np.ones(K)}), "an array examples.counts"),
        ("pipeline", step_with(rows=X), "step 1 (affine)"),
        ("pipeline", step_with(shift=X), "step 1 (affine)"),
        ("pipeline", parts(steps=()), ""),
        ("minimiser", following(sensitivity=lambda s: [s]), "release.json"),
        ("table", turned, "config.json"),
        ("prototypes", arrays(**{"step0.shift": X[0]}), "an array step0.shift"),
        ("discriminant", arrays(second_moment=np.eye(D, k=1)), "that is not symmetric"),
        ("flat", arrays(intercept_=np.ones(K)), "an intercept that is not zero"),
        ("absent", arrays(class_sums=np.ones((K + 1, D))), "sums of a class without records"),
        ("pipeline", setting(rows=X.tolist()), "settings that are not"),
        ("pipeline", setting(priors=X.ravel().tolist()), "priors must be"),
        ("pipeline", setting(priors=[2.0, -0.5, -0.5]), "priors must be"),
        ("pipeline", setting(priors=10**400), "its parts are of no use"),
        ("descent", setting(class_weight=X.ravel().tolist()), "its parts are of no use"),
        ("descent", setting(class_weight=[1.0, -1.0, 1.0]), "class_weight must be"),
        ("minimiser", setting(class_weight="balanced"), "settings that are not empty"),
        ("pipeline", setting(decision=ROWS), "decision must be one of"),
        ("discriminant", setting(shrinkage=7.0), "shrinkage must be a number"),
        ("prototypes", parts(columns=[row.tobytes().hex() for row in X[:D]]), "$.columns[0]"),
        ("prototypes", parts(columns=["a"] * D), "names of columns"),
        ("prototypes", parts(labels=np.arange(9)), "labels that are no list"),
        ("prototypes", parts(labels=np.array([2, 1, 0])), "labels that are not in order"),
        ("prototypes", parts(labels=np.array([1, 1, 2])), "labels that are not in order"),
        ("prototypes", parts(labels=np.array([[0, 1, 2]])), "$.labels.values[0]"),
        ("prototypes", parts(labels=np.array(["0", "1", "2"])), "parameters"),
    ],
)
@pytest.mark.kills(
    "publish/model.py",
    "for name in sorted(arrays.keys() - wanted.keys() - allowed.keys()):",
    "for name in set():",
)
def test_what_a_folder_carries_is_named(honest, tmp_path, kind, forge, named):
    folder = written(forge(Published.read(honest / kind)), tmp_path / "forged")
    status, lines, _ = run(folder)
    if not named:
        # Steps are the publisher's: a head without them is another model, and an honest one.
        assert status == 0
        return
    assert status == 1, lines
    assert named in "\n".join(said(lines, "FAIL"))
    assert not any(text in "\n".join(lines) for text in (X[0].tobytes().hex()[:40], ROWS[:200]))
    if named != "transcript":  # which predicts nothing
        with pytest.raises(ValueError, match="model="):
            load(folder)


@pytest.mark.kills("publish/checks.py", "[noise > 0.0] ** 2).sum() < least", "[:0] ** 2).sum() < 0")
def test_answers_are_no_smaller_than_the_noise_that_is_stated(tmp_path):
    """More noise promises more, and is seen by anybody, whatever else follows from it."""
    steps = GradientPerturbation(n_steps=4, keep_transcript=True)
    head = BallDPLogisticRegression(30.0, radius=0.2, mechanism=steps).fit(X, Y)
    model = Published.read(save(head, tmp_path / "honest", transcript=True))
    record = json.loads(json.dumps(model.as_json))
    record["bound"]["sigma"] *= 20.0
    lying = written(replace(model, as_json=resealed(record)), tmp_path / "forged")
    assert "smaller than the noise" in "".join(said(run(lying)[1], "FAIL"))


@pytest.mark.kills("publish/checks.py", "if given != defaults[name]:", "if False:")
@pytest.mark.kills("publish/checks.py", "name in _USUAL or name in words", "name in _USUAL")
def test_settings_that_move_predictions_are_told(honest, tmp_path):
    """Neither record nor card has them: whoever kept the folder may have changed them."""
    model = Published.read(honest / "descent")
    for weights, verdict in (("balanced", "STATED"), ([1.0, 9.0, 1.0], "CANNOT CHECK")):
        folder = written(setting(class_weight=weights)(model), tmp_path / "forged")
        assert any(f"class_weight={weights!r}" in line for line in said(run(folder)[1], verdict))


@pytest.mark.parametrize("name", ["x\nPASS  noise", "a\x1b[2J", "<script>|`*_"])
def test_names_forge_no_line(honest, tmp_path, name):
    """Of labels, columns, encoders and further files."""
    model = Published.read(honest / "prototypes")
    model = replace(model, columns=[name, *"bcdefgh"])
    folder = written(model, tmp_path / "forged")
    if "\n" not in name and "|" not in name:
        (folder / f"{name}.npz").write_text("rows")
    _, lines, error = run(folder)
    assert sum(line.startswith("PASS  noise") for line in lines) == 0
    assert all(line.isprintable() for line in [*lines, *error.splitlines()])
    status, lines, error = run(tmp_path / name.replace("/", ""))
    assert status == 2
    assert all(line.isprintable() for line in error.splitlines())


def test_faults_of_the_check_itself_quote_nothing(honest, monkeypatch):
    def checker(*arguments, **options):
        raise SystemError("a secret")

    monkeypatch.setattr("sklearn_balldp.command.verify.verdict_of", checker)
    status, lines, error = run(honest / "minimiser")
    assert status == 2
    assert "SystemError" in error
    assert "secret" not in error + "".join(lines)


def test_earlier_releases_are_named_one_by_one(honest):
    rows = ("--private", honest / "private-rows.npz")
    earlier = ("--earlier", honest / "flat", "--earlier", honest / "minimiser")
    status, lines, _ = run(honest / "minimiser", *rows, *earlier)
    assert status == 1
    assert "reuse of noise" in said(lines, "FAIL")[0]
    assert run(honest / "minimiser", *rows, *earlier[:2])[0] == 0


def test_long_labels_are_told(tmp_path):
    names = np.array(["a", "b", "c"])[Y].astype(object)
    names[Y == 2] = "what a customer wrote to us, word by word, in a letter of three pages"
    status, lines, _ = run(
        save(BallDPRidgePrototype(4.0, radius=0.5).fit(X, names), tmp_path / "b")
    )
    assert status == 0
    assert any("labels of up to 69 characters" in line for line in said(lines, "CANNOT CHECK"))


@pytest.mark.parametrize(("epsilon", "weak"), [(1e9, 1), (40.0, 1), (8.0, 0)])
def test_a_record_that_promises_nothing_is_weak(tmp_path, epsilon, weak):
    status, lines, _ = run(save(prototypes(epsilon=epsilon), tmp_path / "m"))
    assert status == 0
    assert [line.split()[1] for line in said(lines, "WEAK")] == ["promise"] * weak
    assert (lines[2] == "Verdict   Nothing was refuted.") == (not weak)


def places(tree, path=()):
    """Where a JSON tree holds something."""
    yield path
    if isinstance(tree, dict | list):
        for key, item in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from places(item, (*path, key))


def put(tree, path, value):
    for key in path[:-1]:
        tree = tree[key]
    tree[path[-1]] = value


HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.sampled_from([0, 1, -1, 10**400, 1e308, 5e-324, -0.0]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(["\n", "\x1b[2J", "../../etc/passwd", "x" * 10**5, "\ud800", "text", "affine"]),
    st.lists(st.integers(), max_size=4),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=3),
    st.builds(lambda n: [0] * n, st.sampled_from([10, 10**4])),
    st.just({"kind": "encoder", "of": "texts", "name": "x", "max_length": None}),
    st.just({"type": "Sums", "sigma": [1.0, 1.0, 1.0]}),
)


def peak_memory():
    if resource is None:
        return 0
    # Linux counts in kilobytes.
    scale = 1 if sys.platform == "darwin" else 2**10
    return scale * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


#: Lines on a model that is the one of its record.
OF_WHOLE_MODELS = {
    *("CARD.md", "delta", "folder", "radius", "sampler", "size of the numbers", "transcript")
}


def check_end(folder):
    """Whatever a folder holds, the check ends in a report or in one line."""
    begin, before = time.process_time(), peak_memory()
    status, lines, error = run(folder)
    assert status in (0, 1, 2)
    assert "Traceback" not in error
    assert "it stopped" not in error
    assert all(line.isprintable() for line in [*lines, *error.splitlines()])
    # Other doors to the same reader. What contradicts itself is not loaded.
    failed = {line[14:].partition("  ")[0] for line in said(lines, "FAIL")}
    for encoder in (None, SentenceEncoder("own")):
        with contextlib.suppress(ValueError):
            load(folder, encoder=encoder)
            assert not failed - OF_WHOLE_MODELS
    with contextlib.suppress(ValueError):
        str(publish.card(Release.from_dict(json.loads((folder / "release.json").read_bytes()))))
    assert time.process_time() - begin < SECONDS
    assert peak_memory() - before < BYTES
    return status, lines


FUZZ = settings(
    max_examples=N_FILES // 3,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("file", ["config", "release"])
@pytest.mark.kills("publish/files.py", "return value, write(value) != body", "return value, False")
@FUZZ
@given(
    kind=st.sampled_from(list(KINDS)),
    seed=st.integers(0, 2**32),
    change=st.one_of(
        st.sampled_from(["dropped", "doubled", "turned"]), st.builds(lambda v: [v], HOSTILE)
    ),
)
def test_any_description_ends_in_a_report(honest, forged, file, kind, seed, change):
    tree = json.loads((honest / kind / f"{file}.json").read_text())
    way = random.Random(seed).choice([p for p in places(tree) if p])
    if change in ("doubled", "turned"):
        # Two of one name are read as either; an order could tell something that no reader sees.
        pick = random.Random(seed).choice
        if change == "turned":
            held = pick([t for t in (tree, *tree.values()) if isinstance(t, dict) and len(t) > 1])
            for name in reversed([*held]):
                held[name] = held.pop(name)
        lines = json_text(tree).splitlines(keepends=True)
        if change == "doubled":
            fields = [i for i, line in enumerate(lines) if re.match(rb' +".*": [^{\[]*,$', line)]
            place = pick(fields)
            lines.insert(place, lines[place])
        assert check_end(forged(kind, **{file: b"".join(lines)}))[0] == 1
        return
    if change == "dropped":
        *inner, key = way
        held = tree
        for step in inner:
            held = held[step]
        del held[key]
    else:
        put(tree, way, change[0])
    if file == "release":
        tree = resealed(tree)
    check_end(forged(kind, **{file: json_text(tree)}))


@pytest.mark.kills("publish/model.py", "not faults and self.digest != self.record.digest", "False")
@FUZZ
@given(
    kind=st.sampled_from(list(KINDS)),
    file=st.sampled_from(["model", "config", "release", "CARD"]),
    edits=st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=9),
    more=st.lists(st.tuples(st.integers(0, 2**20), st.binary(max_size=9)), max_size=3),
    cut=st.one_of(st.none(), st.integers(0, 2**16)),
)
def test_any_bytes_end_in_a_report(honest, forged, said_of, kind, file, edits, more, cut):
    [path] = (honest / kind).glob(f"{file}.*")
    body = bytearray(path.read_bytes())
    for place, value in edits:
        body[place % len(body)] = value
    for place, inserted in more:
        place %= len(body) + 1
        body[place:place] = inserted
    status, lines = check_end(forged(kind, **{file: bytes(body[:cut])}))
    if bytes(body[:cut]) != path.read_bytes():
        more = {*said(lines, "CANNOT CHECK"), *said(lines, "STATED")} - set(said_of[kind])
        assert status != 0 or more or re.sub(rb"\r\n", b"\n", body) == path.read_bytes()


NAMES = st.one_of(
    st.sampled_from(
        ["data/rows.csv", ".git/x", "model.npz", "LICENSE", "a/b/c", "CARD.md.bak", ".x"]
    ),
    st.text("ab.-_ \x1b\n\u202e\u00fc", min_size=1, max_size=9).filter(lambda n: n.strip(". ")),
)


@FUZZ
@given(names=st.lists(NAMES, min_size=1, max_size=4), link=st.booleans())
def test_any_further_file_is_named(honest, tmp_path_factory, names, link):
    """In a line that is no PASS, and above all lines where it may hold records."""
    folder = tmp_path_factory.mktemp("further") / "model"
    shutil.copytree(honest / "prototypes", folder)
    for name in names:
        with contextlib.suppress(OSError):  # one of two names may be a folder of the other
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if link:
                (folder / name).symlink_to(folder.parent)
            else:
                (folder / name).write_text("rows")
    before = {*FILES, README}
    added = {path.name for path in folder.iterdir()} - before
    status, lines = check_end(folder)
    told = "\n".join(line for verdict in TOLD for line in said(lines, verdict))
    for name in added:
        assert one_line(name, 60) in told
    assert status == 1 or not added & {"model.npz", "CARD.md.bak"}
    # What git leaves is no fault, and is not looked into.
    if added - {"LICENSE", ".git"} or (link and added != {".git"}):
        assert status == 1 or any("but it holds files" in line for line in lines)


#: What may be another number or text without a line that says so: it moves nothing that is
#: released. Of what says that there is more noise than there is, whoever holds the rows sees it.
FREE = {
    *("numpy_version", "rule", "radius_draw", "norm"),
    *("sigma", "moment", "alpha", "least_reach"),
}


def another(value, lower):
    if lower:
        return 0.5 * value - 0.01
    if value is None or isinstance(value, bool):
        return not value
    if isinstance(value, str):
        swaps = {"euclidean": "manhattan", "ball": "sphere", "text": "object"}
        return swaps.get(value, value + "x")
    return value + 1 if isinstance(value, int) else value * 1.5 + 0.125


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("flat", "absent")])
def test_every_field_that_is_another_shows(honest, forged, said_of, kind):
    """The card is made anew: records and settings have tests of their own."""
    missed = set()
    for file in ("config", "release"):
        tree = json.loads((honest / kind / f"{file}.json").read_text())
        for path in [p for p in places(tree) if p]:
            held = tree
            for key in path:
                held = held[key]
            if isinstance(held, dict | list) or path[-1] == "checksum":
                continue
            # What is no setting of the kind is read by the same lines of two others.
            of_kind = file == "config" or path[0] in ("problem", "bound")
            if not of_kind and kind not in ("descent", "prototypes"):
                continue
            # The noise of a descent shows in no number of it: larger radii are for the rows. A
            # smaller one, with the same mu, is a weaker promise.
            if kind == "descent" and path[-1] == "radius":
                continue
            # A record may state more than what follows, and never less.
            stated = path[0] == "follows" or path[-1] == "epsilon"
            other = json.loads(json.dumps(tree))
            put(other, path, another(held, stated and isinstance(held, float)))
            text = json_text(resealed(other) if file == "release" else other)
            folder = forged(kind, **{file: text})
            with contextlib.suppress(Exception):
                written(Published.read(folder), folder)
            status, lines = check_end(folder)
            more = {line for verdict in TOLD for line in said(lines, verdict)} - set(said_of[kind])
            if status == 0 and not more and not FREE & {str(key) for key in path}:
                missed.add((file, *path))
    assert missed == set()
