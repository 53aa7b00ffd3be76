"""Steps of a published pipeline: five kinds, made again as scikit-learn's own."""

from dataclasses import replace

import msgspec
import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler
from sklearn.random_projection import GaussianRandomProjection

from sklearn_balldp import BallDPRidgePrototype, publish, verify
from sklearn_balldp.command import main
from sklearn_balldp.encoders import ImageEncoder, SentenceEncoder
from sklearn_balldp.pipelines import DenseRows
from sklearn_balldp.publish import load, save
from sklearn_balldp.publish.model import Published
from sklearn_balldp.publish.steps import KINDS, Step, encoder_for, fault_of, step_of

# Steps that learned from rows: save says so.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn_balldp.audit.PooledPreprocessingWarning")

TEXTS = [f"{word} {i}" for i in range(40) for word in ("pay my card", "return the money")]
LABELS = ["card", "money"] * 40
X = np.random.default_rng(0).standard_normal((80, 5)) * np.arange(1.0, 6.0) + 2.0


def head():
    return BallDPRidgePrototype(8.0, radius=0.5)


def refused(step, width=5, first=True):
    """By the type of its settings, or by its arrays and its place."""
    try:
        msgspec.convert({"kind": step.kind, **step.settings}, KINDS)
    except msgspec.ValidationError:
        return True
    return fault_of(step, width, first=first)[0] is not None


@pytest.mark.parametrize(
    "step",
    [
        *(MinMaxScaler(clip=True), StandardScaler(), PCA(2), RBFSampler(), MaxAbsScaler()),
        HashingVectorizer(input="filename"),
        HashingVectorizer(stop_words=["secret"]),
        HashingVectorizer(tokenizer=str.split),
        type("Own", (Normalizer,), {})(),
    ],
)
def test_steps_that_no_receiver_knows_are_not_written(tmp_path, step):
    """They are not fitted, or would read files, run a slow pattern or a function, or hold words."""
    if isinstance(step, MinMaxScaler):
        step.fit(X)
    own = make_pipeline(step, head().fit(X, LABELS))
    with pytest.raises(ValueError, match="cannot be published"):
        save(own, tmp_path / "model")


AFFINE = {"shift": np.zeros(5), "scale": np.ones(5)}
MATRIX = {"shift": np.zeros(5), "matrix": np.ones((5, 2))}
FOURIER = {"weights": np.ones((5, 7)), "offset": np.ones(7)}
SCALED = {"scale": np.ones(4)}, {"scale": np.array([1.0, 0.0, 1.0, 1.0, 1.0])}
WIDE = {"matrix": np.ones((5, 2**17))}, {"matrix": np.ones((5, 0))}


@pytest.mark.parametrize(
    ("kind", "arrays", "more"),
    [("affine", AFFINE, SCALED), ("affine", MATRIX, WIDE), ("fourier", FOURIER, ())],
)
def test_arrays_that_are_none_of_such_a_step(kind, arrays, more):
    assert not refused(Step(kind, {}, arrays))
    assert refused(Step("norm", {"norm": "l2"}, arrays))
    assert refused(Step("rows", {}, arrays))
    for change in ({"rows": np.ones(5)}, {"scale": np.ones(5), "matrix": np.ones((5, 2))}, *more):
        assert refused(Step(kind, {}, {**arrays, **change}))
    for name, array in arrays.items():
        assert refused(Step(kind, {}, {key: arrays[key] for key in arrays if key != name}))
        odd = array[:-1], array[..., None, None], np.array(1.0), array * np.nan, array + np.inf
        for other in (*odd, array.astype(int), array.astype(str)):
            assert refused(Step(kind, {}, {**arrays, name: other}))
    fewer = {name: array[:-1] if len(array) == 5 else array for name, array in arrays.items()}
    assert refused(Step(kind, {}, fewer))


WORDS = step_of(HashingVectorizer(n_features=16)).settings
TEXT_ENCODER = {"of": "texts", "name": "a model@newest, 64 tokens", "max_length": 64}


ODD = [
    # Long grams and wide rows fill the memory of whoever predicts.
    ("words", "ngram_range", ([1, 10**5], [-(10**18), 2], [0, 2], [3, 2], [1.5, 2], "12", 5, None)),
    ("words", "ngram_range", ([1, 1e300], [1, 2, 3])),
    ("words", "n_features", (2**17, 2**30, 0, -5, 16.0, True, "16", None)),
    ("words", "analyzer", ("(a+)+b",)),
    ("words", "lowercase", (1,)),
    ("words", "norm", ("l3",)),
    ("words", "strip_accents", ("x",)),
    ("words", "tokenizer", ("os.system",)),
    # An encoder is a name and a length.
    ("encoder", "max_length", (0, 2**16 + 1, 10**12, True, 8.0, "a secret")),
    ("encoder", "name", (5, None, "", "a\nPASS, 64 tokens", "x" * 201, "x")),
    ("encoder", "of", ("sounds", None, [], {})),
    ("encoder", "device", ("cuda:7",)),
    ("encoder", "revision", ("refs/pr/13",)),
]


@pytest.mark.parametrize(
    ("kind", "change"), [(kind, {name: value}) for kind, name, values in ODD for value in values]
)
@pytest.mark.kills("publish/steps.py", "if not (sound and", "if not (True and")
@pytest.mark.kills("publish/steps.py", "ngram_range[1] <= _MAX_GRAMS", "ngram_range[1] <= math.inf")
def test_settings_that_could_harm(kind, change):
    sound = WORDS if kind == "words" else TEXT_ENCODER
    assert not refused(Step(kind, sound), None)
    assert refused(Step(kind, {**sound, **change}), None)
    assert refused(Step(kind, sound), None, first=False)
    images = {"of": "images", "name": "a model@newest", "model": "resnet18"}
    assert not refused(Step("encoder", images), None)
    assert refused(Step("encoder", {**images, "model": 5}), None)


def test_a_name_takes_no_settings_of_the_strangers(tmp_path):
    texts = Step("encoder", {"of": "texts", "name": "anything@refs/pr/13", "max_length": 64})
    own = encoder_for(texts, "trusted/model")
    assert own.get_params() == SentenceEncoder("trusted/model", max_length=64).get_params()
    pictures = Step("encoder", {"of": "images", "name": "anything", "model": "resnet50"})
    expected = ImageEncoder("resnet50", weights=str(tmp_path / "own.pt"))
    assert encoder_for(pictures, tmp_path / "own.pt").get_params() == expected.get_params()
    chosen = SentenceEncoder("trusted/model", batch_size=3)
    assert encoder_for(texts, chosen) is chosen
    with pytest.raises(ValueError, match="has no step that embeds"):
        encoder_for(None, "trusted/model")


def test_widths_of_steps_fit_together():
    model = Published.of(make_pipeline(PCA(3), StandardScaler(), head()).fit(X, LABELS))
    assert not model.faults()
    first, second = model.steps
    for steps in ((second, first), (first,) * 2, (second,) * 30):
        assert "step" in replace(model, steps=steps).faults()[0]
    assert "where the head takes others" in replace(model, steps=(PLAIN,)).faults()[0]


PLAIN = Step("affine", {}, MATRIX)


@pytest.mark.parametrize("scales", [(1e-306,), (1e200, 1e200), (1e-200, 1e-200)])
def test_scales_of_any_size_stop_nothing(tmp_path, scales):
    own = head().fit(X, LABELS)
    arrays = [{"shift": np.zeros(5), "scale": np.full(5, scale)} for scale in scales]
    steps = tuple(Step("affine", {}, held) for held in arrays)
    model = replace(Published.of(own), steps=steps)
    assert not model.faults()
    assert "before is not known" in str(publish.card(model.pipeline()))


@pytest.mark.kills("publish/steps.py", "[NamedEncoder(step)]", '[SentenceEncoder(s["name"])]')
def test_encoders_that_the_receiver_names(tmp_path):
    """The weights that he trusts are compared, and run; the folder holds none."""
    for name in ("theirs", "others"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(name.encode())
    encoder = SentenceEncoder(str(tmp_path / "theirs"))
    own = BallDPRidgePrototype(8.0, radius=0.5, encoder=encoder.identity)
    own.fit(np.eye(6), [0, 1] * 3)
    folder = save(make_pipeline(encoder, own), tmp_path / "model")
    for name, verdict in (("theirs", "PASS"), ("others", "FAIL")):
        found = {c.name: c.verdict for c in verify(folder, encoder=tmp_path / name).checks}
        assert found["encoder"] == verdict
    # What is not here is not compared: it may be the same.
    with pytest.raises(ValueError, match="is no folder here, and no installed package"):
        verify(folder, encoder="absent")
    rows = verify(folder, private=(["a text"] * 6, [0, 1] * 3)).checks
    [line] = [check for check in rows if check.name == "rows"]
    assert line.verdict == "CANNOT CHECK"
    assert "encoder=" in line.found
    assert main(["predict", str(folder), str(tmp_path / "new.csv")]) == 2


@pytest.mark.filterwarnings("ignore:X (has|does not have)")
def test_wide_rows_are_labelled_a_few_at_a_time(tmp_path, monkeypatch, capsys):
    words = make_pipeline(HashingVectorizer(n_features=16), DenseRows(), head())
    folder = save(words.fit(TEXTS, LABELS), tmp_path / "model")
    assert "pipeline_tag: text-classification" in (folder / "README.md").read_text()
    loaded = load(folder)
    for output in ("default", "pandas"):
        with config_context(transform_output=output):
            assert answered(loaded, TEXTS) == answered(words, TEXTS)
    (tmp_path / "new.csv").write_text("text\n" + "\n".join(10 * TEXTS) + "\n")
    expected, sizes, transform = words.predict(10 * TEXTS).tolist(), [], DenseRows.transform

    def watched(self, X):
        sizes.append(X.shape[0])
        return transform(self, X)

    monkeypatch.setattr(DenseRows, "transform", watched)
    assert main(["predict", str(folder), str(tmp_path / "new.csv")]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert [row.split(",")[1] for row in rows] == expected
    assert max(sizes) == 256


PUBLIC = X + 0.01
FRAME = pd.DataFrame(X, columns=list("abcde"))


PIPELINES = {
    "head alone": [],
    "nothing": ["passthrough", None],
    "dense rows first": [DenseRows(), Normalizer("max")],
    "scales": [StandardScaler(with_mean=False), MaxAbsScaler(), MinMaxScaler((-1, 1))],
    "centres": [StandardScaler(with_std=False), PCA(3, whiten=True)],
    "frozen scaler": [FrozenEstimator(StandardScaler().fit(FRAME + 0.01)), Normalizer()],
    "frozen scaler of an array": [FrozenEstimator(StandardScaler().fit(PUBLIC)), Normalizer()],
    "PCA": [PCA(3), StandardScaler()],
    "SVD": [TruncatedSVD(2, random_state=0)],
    "projection": [GaussianRandomProjection(3, random_state=0, compute_inverse_components=True)],
    "random features": [StandardScaler(), RBFSampler(n_components=7, random_state=0)],
}


def answered(model, rows):
    """Labels and scores, or the kind of error."""
    try:
        return model.predict(rows).tolist(), model.decision_function(rows).round(6).tolist()
    except ValueError:
        return "refused"


@pytest.mark.filterwarnings("ignore:X (has|does not have)")
@pytest.mark.parametrize(
    ("name", "fit_output"),
    [*((name, "default") for name in PIPELINES), ("PCA", "pandas"), ("frozen scaler", "pandas")],
)
def test_a_loaded_pipeline_is_the_saved_one(name, fit_output, tmp_path):
    """Side by side: columns in their order and in another, arrays, and every output of steps."""
    turned, single = FRAME[FRAME.columns[::-1]], X.astype(np.float32)
    # A range and a whitening are written as a shift and a scale: exact but for rounding.
    own_rows = (FRAME, X) if name in ("scales", "centres") else (FRAME, X, single)
    others = *own_rows, turned, FRAME.rename(columns={"a": "z"}), FRAME.iloc[:, 1:], X[:, :4]
    for number, own in enumerate(own_rows):
        with config_context(transform_output=fit_output):
            model = clone(make_pipeline(*PIPELINES[name], head())).fit(own, LABELS)
        folder = save(model, tmp_path / f"{number}")
        loaded, again = load(folder), save(load(folder), tmp_path / f"{number} again")
        # What is made of the plain data gives the same plain data, of scikit-learn's own steps.
        assert {path.name: path.read_bytes() for path in again.iterdir()} == {
            path.name: path.read_bytes() for path in folder.iterdir()
        }
        assert not verify(folder, private=(own, LABELS)).failed
        for _, step in getattr(loaded, "steps", [])[:-1]:
            assert type(step).__module__.startswith("sklearn.") or isinstance(step, DenseRows)
        for output in ("default", "pandas"):
            for rows in others:
                with config_context(transform_output=output):
                    assert answered(loaded, rows) == answered(model, rows)
        # What a folder of the frame refuses, and what a frozen step of arrays cannot.
        if own is FRAME and name != "frozen scaler of an array" and name != "nothing":
            assert answered(loaded, turned) == "refused"
        if own is FRAME and getattr(loaded, "feature_names_in_", None) is not None:
            assert loaded.feature_names_in_.tolist() == list("abcde")


def test_names_of_columns_are_as_many_as_the_first_step_takes():
    for step in ("frozen scaler", "PCA"):
        model = Published.of(make_pipeline(*PIPELINES[step], head()).fit(FRAME, LABELS))
        assert model.columns == list("abcde")
        for columns in (list("abcd"), list("abcdef"), []):
            assert replace(model, columns=columns).faults()
    words = Published.of(make_pipeline(HashingVectorizer(n_features=5), head().fit(X, LABELS)))
    assert replace(words, columns=list("abcde")).faults()
