"""Steps of a received pipeline: what could harm whoever predicts, or deceive, is a FAIL."""

import json
import sys
import zipfile

import numpy as np
import pytest
import skops.io as skops_io
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler
from sklearn.random_projection import GaussianRandomProjection

from sklearn_balldp import BallDPRidgePrototype, verify
from sklearn_balldp.command import main
from sklearn_balldp.encoders import ImageEncoder, SentenceEncoder
from sklearn_balldp.pipelines import stretch_of
from sklearn_balldp.publish import load, save
from sklearn_balldp.rows import DenseRows

TEXTS = [f"{word} {i}" for i in range(40) for word in ("pay my card", "return the money")]
LABELS = ["card", "money"] * 40


def words(**params):
    step = HashingVectorizer(**{"n_features": 16, **params})
    rows = HashingVectorizer(n_features=16).transform(TEXTS).toarray()
    head = BallDPRidgePrototype(8.0, radius=0.5).fit(rows, LABELS)
    return make_pipeline(step, DenseRows(), head)


def sampled():
    X = np.random.default_rng(0).standard_normal((80, 3))
    step = RBFSampler(gamma=0.5, n_components=7, random_state=0)
    return make_pipeline(step, BallDPRidgePrototype(8.0, radius=0.5)).fit(X, LABELS)


def failed(tmp_path, model):
    """Lines of FAIL for a model that a stranger wrote to a file."""
    path = tmp_path / "m.skops"
    skops_io.dump(model, path)
    found = verify(path, model[-1].release_)
    if found.failed:
        with pytest.raises(ValueError, match="which no head releases"):
            load(path)
    return found.failed


@pytest.mark.parametrize(
    "grams", [(1, 100_000), (-(10**18), 2), (0, 2), (3, 2), (1.5, 2), (1, 1e300), (1, 2, 3)]
)
def test_long_grams_are_refused(tmp_path, grams):
    assert not failed(tmp_path, words(ngram_range=(1, 10)))
    assert failed(tmp_path, words(ngram_range=grams))


@pytest.mark.parametrize("n_features", [8, 2**17, 2**30])
def test_widths_of_steps_fit_together(tmp_path, n_features):
    assert failed(tmp_path, words(n_features=n_features))


@pytest.mark.parametrize(
    "change",
    [
        {"random_weights_": np.ones((3, 10**6)), "random_offset_": np.ones(10**6)},
        {"random_weights_": np.zeros((3, 7))},
        {"random_weights_": np.full((3, 7), np.nan)},
        {"random_offset_": np.full(7, np.inf)},
        {"n_components": 1},
        {"_n_features_out": 123456789},
        {"_gamma": 0.123456789},
        {"n_features_in_": 10**9},
    ],
)
def test_a_sampler_says_one_thing(tmp_path, change):
    model = sampled()
    assert not failed(tmp_path, model)
    vars(model[0]).update(change)
    # Weights of zero say nothing false: no distance is stated for them.
    assert failed(tmp_path, model) != (not np.any(change.get("random_weights_", 1.0)))
    model[-1].release_.card(model)


def test_a_scaler_that_does_not_scale():
    step = StandardScaler(with_std=False).fit(np.eye(3))
    vars(step)["scale_"] = np.full(3, 1000.0)
    assert stretch_of(step) == 1.0


def test_many_steps_are_refused(tmp_path):
    model = Pipeline([(f"s{i}", Normalizer()) for i in range(30)] + [("head", sampled()[-1])])
    assert failed(tmp_path, model)


@pytest.mark.parametrize("kind", [SentenceEncoder, ImageEncoder])
def test_no_place_of_a_stranger_is_opened(tmp_path, kind):
    """Neither verify nor the card looks at the weights that a received encoder names."""
    place = tmp_path / "weights"
    place.mkdir()
    (place / "README.md").write_text("# a-model\n")
    named = {"model": str(place)} if kind is SentenceEncoder else {"weights": str(place)}
    head = BallDPRidgePrototype(8.0, radius=0.5).fit(np.eye(6), [0, 1] * 3)
    folder = save(make_pipeline(kind(**named), head), tmp_path / "folder")
    # An honest publisher's folder names no place; a stranger's does.
    with zipfile.ZipFile(folder / "model.skops") as file:
        held = {name: file.read(name) for name in file.namelist()}
    text = held["schema.json"].decode()
    own, its = (json.dumps(json.dumps(name)) for name in ("a-model", str(place)))
    assert own in text
    held["schema.json"] = text.replace(own, its).encode()
    with zipfile.ZipFile(folder / "model.skops", "w") as file:
        for name, body in held.items():
            file.writestr(name, body)
    opened = []

    def hook(event, arguments):
        if event == "open" and str(arguments[0]).startswith(str(place)):
            opened.append(arguments[0])

    sys.addaudithook(hook)
    verify(folder)
    main(["card", str(folder)])
    main(["verify", str(folder)])
    assert not opened


@pytest.mark.parametrize("value", [5, None, 0.5])
def test_an_encoder_is_named_by_a_text(tmp_path, value):
    head = BallDPRidgePrototype(8.0, radius=0.5).fit(np.eye(6), [0, 1] * 3)
    path = tmp_path / "m.skops"
    skops_io.dump(make_pipeline(SentenceEncoder(value), head), path)
    assert verify(path, head.release_).failed


def test_wide_rows_are_labelled_a_few_at_a_time(tmp_path, monkeypatch, capsys):
    folder = save(words().fit(TEXTS, LABELS), tmp_path / "model")
    (tmp_path / "new.csv").write_text("text\n" + "\n".join(TEXTS) + "\n")
    given = ["predict", str(folder), str(tmp_path / "new.csv")]
    assert main(given) == 0
    whole, sizes = capsys.readouterr().out, []
    own = DenseRows.transform

    def transform(self, X):
        sizes.append(X.shape[0])
        return own(self, X)

    monkeypatch.setattr(DenseRows, "transform", transform)
    monkeypatch.setattr("sklearn_balldp.command.predict._MOST_VALUES", 16 * 7)
    assert main(given) == 0
    assert capsys.readouterr().out == whole
    assert max(sizes) == 7
    assert len(whole.splitlines()) == 81


@pytest.mark.parametrize(
    ("step", "change"),
    [
        (GaussianRandomProjection(2, random_state=0), {"_n_features_out": 2**40}),
        (GaussianRandomProjection(2, random_state=0), {"n_components_": 3}),
        (StandardScaler(), {"scale_": np.zeros(3)}),
        (StandardScaler(), {"scale_": -np.ones(3)}),
        (StandardScaler(), {"mean_": np.full(3, np.nan)}),
        (MinMaxScaler(), {"scale_": -1000.0 * np.ones(3)}),
        (StandardScaler(), {"scale_": "abc"}),
        (StandardScaler(), {"scale_": 0.0}),
        (StandardScaler(), {"scale_": np.array(["a", "b", "c"])}),
        (StandardScaler(), {"scale_": np.array([1, 2, 3], dtype="M8[s]")}),
        (PCA(2), {"components_": 1.0}),
        (PCA(2), {"components_": [[1.0], [1.0, 2.0]]}),
        (RBFSampler(n_components=4, random_state=0), {"random_weights_": [[1.0], [2.0]]}),
        (RBFSampler(n_components=4, random_state=0), {"_n_features_out": [4]}),
        (RBFSampler(n_components=4, random_state=0), {"n_components": 0}),
        (StandardScaler(), {"feature_names_in_": np.array([1, 2, 3], dtype=object)}),
    ],
)
def test_state_of_another_kind_is_a_fail(tmp_path, step, change):
    X = np.random.default_rng(0).standard_normal((80, 3))
    model = make_pipeline(step, BallDPRidgePrototype(8.0, radius=0.5)).fit(X, LABELS)
    assert not failed(tmp_path, model)
    vars(model[0]).update(change)
    assert failed(tmp_path, model)


def test_wide_rows_between_two_steps_are_refused(tmp_path):
    """A small file could ask for them: its arrays are zeros, and compressed."""
    X = np.random.default_rng(0).standard_normal((80, 3))
    head = BallDPRidgePrototype(8.0, radius=0.5).fit(X[:, :1], LABELS)
    first, second = PCA(1).fit(X), TruncatedSVD(1).fit(X)
    wide = 2**17
    vars(first).update(components_=np.zeros((wide, 3)), n_components_=wide)
    vars(second).update(components_=np.zeros((1, wide)), n_features_in_=wide)
    assert failed(tmp_path, make_pipeline(first, second, head))


@pytest.mark.parametrize("scales", [(1e-306,), (1e200, 1e200), (1e-200, 1e-200)])
def test_scales_of_any_size_stop_nothing(tmp_path, scales):
    X = np.random.default_rng(0).standard_normal((80, 3))
    steps = [StandardScaler().fit(X) for _ in scales]
    for step, scale in zip(steps, scales, strict=True):
        step.scale_ = np.full(3, scale)
    head = BallDPRidgePrototype(8.0, radius=0.5).fit(X, LABELS)
    model = make_pipeline(*steps, head)
    assert "before is not known" in str(head.release_.card(model))
    failed(tmp_path, model)


def test_a_step_that_does_nothing(tmp_path, capsys):
    X = np.random.default_rng(0).standard_normal((80, 3))
    model = make_pipeline("passthrough", Normalizer(), BallDPRidgePrototype(8.0, radius=0.5))
    folder = save(model.fit(X, LABELS), tmp_path / "model")
    np.savez(tmp_path / "new.npz", e=X)
    given = ["predict", str(folder), str(tmp_path / "new.npz"), "--column", "e"]
    assert main([*given, "--out", str(tmp_path / "out.csv")]) == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 81
