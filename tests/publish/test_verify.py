"""A stranger's checks: every forgery is caught, by the line that should catch it."""

import copy
import dataclasses
import json
import pickle
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import TunedThresholdClassifierCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    OutputPerturbation,
    RadiusPolicy,
    ReconstructionAuditor,
    verify,
)
from sklearn_balldp.__main__ import main
from sklearn_balldp.command import verify as command
from sklearn_balldp.encoders import ImageEncoder, SentenceEncoder
from sklearn_balldp.heads import ReleasedModel, Transcript, weighing
from sklearn_balldp.heads.initialisation import initialise
from sklearn_balldp.privacy import Noise, Release
from sklearn_balldp.privacy.digest import parameters_digest, record_digest
from sklearn_balldp.privacy.transcript import TranscriptBound
from sklearn_balldp.publish import load, save
from sklearn_balldp.publish.files import (
    load_model,
    load_record,
    load_rows,
    load_transcript,
)

N, D, K = 400, 30, 3


def data(seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(N) % K
    X = rng.standard_normal((N, D)) + 4 * np.eye(D)[y]
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


KEPT = GradientPerturbation(n_steps=6, keep_transcript=True, start="zero")
STARTED = GradientPerturbation(n_steps=6, keep_transcript=True, start="statistics")
FROM_MEAN = GradientPerturbation(n_steps=6, keep_transcript=True, start="mean")
HEADS = {
    "whitened descent": BallDPLogisticRegression(60.0, radius=0.1, mechanism=STARTED),
    "descent from the mean": BallDPLogisticRegression(4.0, radius=0.5, mechanism=FROM_MEAN),
    "hinge from the mean": BallDPSquaredHingeSVC(4.0, radius=0.5, mechanism=FROM_MEAN),
    "started descent": BallDPSquaredHingeSVC(
        4.0, radius=0.5, mechanism=STARTED, fit_intercept=False
    ),
    "prototypes": BallDPRidgePrototype(4.0, radius=0.5),
    "statistics": BallDPLinearDiscriminant(4.0, radius=0.5, domain="sphere"),
    "minimiser": BallDPSquaredHingeSVC(
        4.0, radius=0.5, alpha=0.1, fit_intercept=True, mechanism="output"
    ),
    "descent": BallDPLogisticRegression(4.0, radius=0.5, mechanism=KEPT),
}


def fitted(name, **params):
    return copy.deepcopy(HEADS[name]).set_params(**params).fit(*data())


def saying(head, **params):
    """A head that says otherwise than its fit, as a forged file does; ``set_params`` cannot."""
    for name, value in params.items():
        owner, _, own = name.rpartition("__")
        setattr(getattr(head, owner) if owner else head, own, value)
    return head


def failed(verdict):
    return [check.name for check in verdict.checks if check.verdict == "FAIL"]


def lines(verdict):
    return {check.name: check.verdict for check in verdict.checks}


@pytest.mark.parametrize("name", HEADS)
def test_honest_models_pass(name):
    head = fitted(name)
    for private in (None, data()):
        verdict = verify(head, head.release_.to_dict(), private=private)
        assert not verdict.failed
        assert "No check can certify" in str(verdict)
    assert verify(head).release == head.release_
    assert lines(verify(head))["noise in the weights"] == "CANNOT CHECK"


def test_the_whitened_descent_is_whitened():
    head = fitted("whitened descent")
    begun = initialise(head.transcript_.start, ReleasedModel(head).problem, head.release_.bound)
    assert begun.map.shortens


def weights_of(head):
    return head.prototypes_ if hasattr(head, "prototypes_") else head.coef_


def resealed(record):
    record.pop("checksum", None)
    record["checksum"] = record_digest(record)
    return record


# The table of forgeries: what was done, and the line that says so.
def garbage(head):
    weights_of(head)[:] = 123.0


def other_counts(head):
    head.class_counts_ = head.class_counts_[::-1] + np.array([2, 0, -2])


def other_labels(head):
    head.classes_ = head.classes_[::-1].copy()


def forged_in_memory(head):
    """A cached number of the record itself, as an edited file would hold it."""
    vars(head.release_)["mu"] = 0.01


def smaller_epsilon(head):
    object.__setattr__(head.release_, "epsilon", 0.1)


def smaller_delta(head):
    object.__setattr__(head.release_, "delta", 1e-30)


def said_private(head):
    seeded = copy.deepcopy(head).set_params(random_state=0).fit(*data())
    vars(head).update(vars(seeded))


def other_digest(head):
    object.__setattr__(head.release_, "digest", "0" * 64)


FORGERIES = [
    (garbage, "parameters"),
    (other_counts, "parameters"),
    (other_labels, "parameters"),
    (forged_in_memory, "record"),
    (smaller_epsilon, "record"),
    (smaller_delta, "record"),
    (said_private, "sampler"),
    (other_digest, "parameters"),
]


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize(("forge", "line"), FORGERIES, ids=lambda f: getattr(f, "__name__", f))
def test_forgeries_without_rows(name, forge, line):
    head = fitted(name)
    forge(head)
    assert line in failed(verify(head))


def test_a_digest_made_anew_leaves_the_size():
    """Garbage with an honest digest: too long for the noise, which needs no rows to see."""
    for name in ("prototypes", "minimiser"):
        head = fitted(name)
        garbage(head)
        object.__setattr__(head.release_, "digest", parameters_digest(head.released_parameters()))
        assert failed(verify(head)) == ["size of the weights"]


def test_a_forged_transcript_needs_no_rows():
    head = fitted("descent")
    head.coef_ = head.coef_ + 1e-9
    object.__setattr__(head.release_, "digest", parameters_digest(head.released_parameters()))
    assert failed(verify(head)) == ["transcript"]


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("factor", [0.0, 0.5, 2.0])
def test_forgeries_that_rows_convict(monkeypatch, name, factor):
    """An honest record beside other noise: only whoever holds the rows sees it."""
    real = Noise.__call__
    monkeypatch.setattr(
        Noise, "__call__", lambda self, v, s: real(self, v, factor * np.asarray(s, dtype=float))
    )
    head = fitted(name)
    monkeypatch.undo()
    assert not verify(head).failed or name == "minimiser"
    verdict = verify(head, private=data())
    assert "scale of the noise" in failed(verdict)
    text = str(verdict)
    assert "must not decide whether to publish" in text
    assert "delta=1e-06) into" in text


def test_wrong_rows():
    head = fitted("prototypes")
    X, y = data()
    assert failed(verify(head, private=(X[:-2], y[:-2]))) == ["rows"]
    assert failed(verify(head, private=(X, np.roll(y, 1)))) != []
    assert failed(verify(head, private=(X, np.zeros_like(y)))) == ["rows"]
    assert lines(verify(head, private=(X[:-1], y[:-1])))["rows"] == "CANNOT CHECK"
    assert failed(verify(head, private=data(seed=3)))


def test_another_record():
    head = fitted("prototypes")
    other = fitted("prototypes", epsilon=2.0)
    verdict = verify(head, other.release_)
    assert {"the model's own record", "parameters"} <= set(failed(verdict))
    linear = fitted("minimiser")
    assert "model" in failed(verify(head, linear.release_.to_dict()))


def test_delta_and_radius():
    X, y = data()
    with pytest.warns(UserWarning, match="1/n_samples"):
        head = BallDPRidgePrototype(1.0, delta=0.01, radius=0.5).fit(X, y)
    assert failed(verify(head)) == ["delta"]
    declared = BallDPRidgePrototype(1.0, radius=RadiusPolicy(source="declared")).fit(X, y)
    assert lines(verify(declared))["radius"] == "CANNOT CHECK"
    private = RadiusPolicy(source="private", epsilon=1.0)
    # An exact quantile could be stated as a drawn one.
    verdict = verify(BallDPRidgePrototype(radius=private).fit(X, y))
    assert lines(verdict)["radius"] == "CANNOT CHECK"
    private.random_state = 0
    seeded = BallDPRidgePrototype(radius=private).fit(X, y)
    assert failed(verify(seeded)) == ["radius"]


def test_pipelines_and_encoders():
    X, y = data()
    head = BallDPRidgePrototype(4.0, radius=0.5, encoder="a model@revision 3").fit(X, y)
    assert head.release_.encoder == "a model@revision 3"
    assert "encoder a model@revision 3" in str(head.release_)
    assert lines(verify(head))["encoder"] == "CANNOT CHECK"

    class Encoder(Normalizer):
        identity = "a model@revision 3"

    pipeline = make_pipeline(Encoder(), head)
    assert lines(verify(pipeline))["encoder"] == "PASS"
    assert head.release_.matches(pipeline)
    Encoder.identity = "another@1"
    assert failed(verify(pipeline)) == ["encoder"]
    assert not head.release_.matches(pipeline)

    scaled = make_pipeline(StandardScaler(), BallDPRidgePrototype(4.0, radius=0.5)).fit(X, y)
    assert lines(verify(scaled, private=(X, y)))["preprocessing"] == "CANNOT CHECK"
    frozen = make_pipeline(Normalizer(), BallDPRidgePrototype(4.0, radius=0.5)).fit(3 * X, y)
    verdict = verify(FrozenEstimator(frozen), private=(5 * X, y))
    assert lines(verdict)["preprocessing"] == "PASS"
    assert not verdict.failed


def test_frozen_steps_do_not_tell_what_they_were_fitted_on():
    X, y = data()
    frozen = FrozenEstimator(StandardScaler().fit(X))
    pipeline = make_pipeline(frozen, BallDPRidgePrototype(4.0, radius=0.5)).fit(X, y)
    assert lines(verify(pipeline))["preprocessing"] == "CANNOT CHECK"
    plain = make_pipeline(FrozenEstimator(Normalizer()), BallDPRidgePrototype()).fit(X, y)
    assert lines(verify(plain))["preprocessing"] == "PASS"


def test_steps_that_fail_quote_no_record():
    X, y = data()
    pipeline = make_pipeline(Normalizer(), fitted("prototypes"))
    rows = X.astype(object)
    rows[3, 2] = "a secret"
    verdict = verify(pipeline, private=(rows, y))
    assert failed(verdict) == ["rows"]
    assert "secret" not in str(verdict)
    assert "the step normalizer cannot transform them (ValueError)" in str(verdict)


@pytest.mark.parametrize("model", [LogisticRegression(), BallDPRidgePrototype(), None, 3])
def test_what_is_no_model(model):
    with pytest.raises(ValueError, match="expected a fitted Ball-DP head"):
        verify(model)


def test_earlier_releases_by_their_noise():
    first = fitted("prototypes")
    second = fitted("prototypes")
    assert not verify(second, private=data(), earlier=[first]).failed
    copied = copy.deepcopy(first)
    assert failed(verify(copied, private=data(), earlier=[first])) == ["reuse of noise"]


# Files ------------------------------------------------------------------------------------------


def files(tmp_path, head):
    skops.io.dump(head, tmp_path / "model.skops")
    release = getattr(head, "release_", None) or head[-1].release_
    (tmp_path / "release.json").write_text(json.dumps(release.to_dict()))
    X, y = data()
    np.savez(tmp_path / "data.npz", X=X, y=y)
    paths = [
        tmp_path / "model.skops",
        tmp_path / "release.json",
        "--private",
        tmp_path / "data.npz",
    ]
    if hasattr(head, "transcript_"):
        np.savez(tmp_path / "transcript.npz", **vars(head.transcript_))
        paths += ["--transcript", tmp_path / "transcript.npz"]
    return [str(path) for path in paths]


def status(arguments):
    with pytest.raises(SystemExit) as stop:
        main(["verify", *arguments])
    return stop.value.code


@pytest.mark.parametrize("name", HEADS)
def test_command_line(tmp_path, capsys, name):
    head = fitted(name)
    arguments = files(tmp_path, head)
    if name == "descent":
        del head.transcript_
        skops.io.dump(head, tmp_path / "model.skops")
    assert status(arguments) == 0
    out = capsys.readouterr().out
    assert "PASS" in out
    assert "scale of the noise" in out
    assert "FAIL" not in out
    record = json.loads((tmp_path / "release.json").read_text())
    (tmp_path / "release.json").write_text(json.dumps({**record, "epsilon": 0.1}))
    assert status(arguments) == 1
    assert "epsilon=0.1 does not follow" in capsys.readouterr().out


def test_transcript_without_rows(tmp_path, capsys):
    head = fitted("descent")
    model, release, _, _, *transcript = files(tmp_path, head)
    assert status([model, release, *transcript]) == 0
    assert "6 steps lead to the released model" in capsys.readouterr().out


def test_faults_of_the_check_itself_quote_nothing(tmp_path, capsys, monkeypatch):
    model, *_ = files(tmp_path, fitted("prototypes"))

    def checker(*arguments, **options):
        raise SystemError("a secret")

    monkeypatch.setattr(command, "verify", checker)
    assert status([model]) == 2
    said = capsys.readouterr()
    assert "SystemError" in said.err
    assert "secret" not in said.out + said.err


def test_the_record_is_written_out_once(monkeypatch):
    head = fitted("descent")
    record, times = head.release_.to_dict(), []
    to_dict = Release.to_dict
    monkeypatch.setattr(Release, "to_dict", lambda own: times.append(1) or to_dict(own))
    assert not verify(head, record).failed
    assert len(times) < 10


def test_steps_take_time_in_proportion_to_their_number(monkeypatch):
    """The mu of all steps, made anew at each of them, is time squared."""
    head, times = fitted("descent"), []
    step_mu = TranscriptBound.step_mu
    monkeypatch.setattr(TranscriptBound, "step_mu", lambda own: times.append(1) or step_mu(own))
    bound = head.release_.bound
    steps = [bound.step(theta, s) for s, theta in enumerate(head.transcript_.iterates)]
    assert not times
    np.testing.assert_array_equal([s for _, s in steps], [m for m, _ in steps] / step_mu(bound))
    assert not verify(head).failed


def received_encoder(tmp_path, encoder, name):
    """What embeds records, once a receiver names the weights of an encoder in a file."""
    pipeline = Pipeline([("embed", encoder), ("head", fitted("prototypes"))])
    skops.io.dump(pipeline, tmp_path / "m.skops")
    return load(tmp_path / "m.skops", encoder=name)[0]


def test_a_name_takes_no_settings_of_the_strangers(tmp_path):
    stranger = SentenceEncoder(
        "anything", revision="refs/pr/13", max_length=64, batch_size=10**12, device="cuda:7"
    )
    own = received_encoder(tmp_path, stranger, "trusted/model")
    assert own.get_params() == SentenceEncoder("trusted/model", max_length=64).get_params()
    chosen = SentenceEncoder("trusted/model", revision="3")
    assert received_encoder(tmp_path, stranger, chosen) is chosen


@pytest.mark.needs("torchvision")
def test_weights_in_a_file_take_no_settings_of_the_strangers(tmp_path):
    pictures = ImageEncoder("resnet50", batch_size=10**12, device="cuda:7")
    own = received_encoder(tmp_path, pictures, tmp_path / "own.pt")
    expected = ImageEncoder("resnet50", weights=str(tmp_path / "own.pt"))
    assert own.get_params() == expected.get_params()


@pytest.mark.parametrize("length", [0, 2**16 + 1, 10**12, True, 8.0, "a secret"])
def test_lengths_of_texts_are_limited(tmp_path, length):
    stranger = SentenceEncoder("anything", max_length=length)
    with pytest.raises(ValueError, match="max_length") as error:
        received_encoder(tmp_path, stranger, "trusted/model")
    assert "secret" not in str(error.value)


def test_an_encoder_of_another_kind_has_no_name():
    class Encoder(Normalizer):
        identity = "a model@1"

    pipeline = make_pipeline(Encoder(), fitted("prototypes"))
    with pytest.raises(ValueError, match="of another kind"):
        verify(pipeline, encoder="trusted/model")


@pytest.mark.parametrize("names", [("same", "same"), ("a__b", "c")])
def test_steps_are_loaded_under_names_that_a_pipeline_can_have(tmp_path, names):
    steps = [(name, Normalizer()) for name in names]
    pipeline = Pipeline([*steps, ("last", fitted("prototypes"))])
    skops.io.dump(pipeline, tmp_path / "m.skops")
    with pytest.raises(ValueError, match="names"):
        load(tmp_path / "m.skops")


def test_only_what_is_trusted_is_loaded(tmp_path, capsys):
    joblib.dump(fitted("prototypes"), tmp_path / "model.joblib")
    assert status([str(tmp_path / "model.joblib")]) == 2
    assert "only .skops files" in capsys.readouterr().err
    assert status([str(tmp_path / "model.joblib"), "--joblib"]) == 0
    assert not verify(tmp_path / "model.joblib", allow_joblib=True).failed
    skops.io.dump(joblib.Memory(None), tmp_path / "other.skops")
    assert status([str(tmp_path / "other.skops")]) == 2
    assert "expected a fitted Ball-DP head" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("load", "name", "body", "match"),
    [
        (load_record, "a.json", b"{", "is no JSON"),
        (load_record, "a.json", b"[]", "is no record"),
        (load_record, "a.json", b"\xff\xfe", "is no JSON"),
        (load_rows, "a.npz", b"nothing", "is no npz file"),
        (load_transcript, "a.npz", b"", "is no npz file"),
        (load_model, "a.pkl", b"", "only .skops files"),
        (load_model, "a.skops", b"nothing", "is no skops file"),
    ],
)
def test_files_that_are_none(tmp_path, load, name, body, match):
    path = tmp_path / name
    with pytest.raises(ValueError, match="is no file"):
        load(path)
    path.write_bytes(body)
    with pytest.raises(ValueError, match=match):
        load(path)


def test_arrays_that_are_missing(tmp_path):
    X, y = data()
    np.savez(tmp_path / "a.npz", rows=X)
    np.save(tmp_path / "b.npy", X)
    np.savez(tmp_path / "c.npz", X_train=X, y_train=y)
    np.savez(tmp_path / "d.npz", X=np.array([{}], dtype=object), y=y)
    with pytest.raises(ValueError, match="holds rows; save X and y"):
        load_rows(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="lacks gradients, iterates, sigma"):
        load_transcript(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="is no npz file"):
        load_rows(tmp_path / "b.npy")
    with pytest.raises(ValueError, match="Object arrays"):
        load_rows(tmp_path / "d.npz")
    np.testing.assert_array_equal(load_rows(tmp_path / "c.npz")["X"], X)


def test_a_process_without_the_rows(tmp_path):
    """What the other side runs: the model's files, and nothing of the process that made them."""
    model, release, *_ = files(tmp_path, make_pipeline(Normalizer(), fitted("minimiser")))
    code = "import sys; from sklearn_balldp.__main__ import main; main(['verify', *sys.argv[1:]])"
    done = subprocess.run(
        [sys.executable, "-c", code, model, release], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CANNOT CHECK  noise in the weights" in done.stdout


# Forgeries that were once believed --------------------------------------------------------------


def test_nothing_else_may_be_on_the_model():
    for name in HEADS:
        head = fitted(name)
        head.rows_ = data()[0]
        assert failed(verify(head)) == ["model"]
        head = fitted(name)
        vars(head.release_)["rows"] = data()[0]
        assert failed(verify(head)) == ["model"]
        vars(head.release_)["guarantee"] = lambda: None
        assert failed(verify(head)) == ["model"]


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.1},
        {"delta": 1e-9},
        {"norm_bound": 0.25},
        {"metric": "manhattan"},
        {"protect_labels": True},
        {"encoder": "another"},
        {"alpha": 9.0},
        {"radius": 0.3},
        {"radius": None},
    ],
)
def test_parameters_that_say_otherwise(change):
    assert failed(verify(saying(fitted("prototypes"), **change))) == ["model"]
    for other in ({"fit_intercept": False}, {"mechanism": "gradient"}):
        for private in (None, data()):
            verdict = verify(saying(fitted("minimiser"), **other), private=private)
            assert failed(verdict) == ["model"]


LATER = [
    ("statistics", {"priors": "uniform"}),
    ("statistics", {"shrinkage": 0.5, "share": 1.0}),
    ("statistics", {"class_embeddings": np.eye(K, D)}),
    ("prototypes", {"alpha": 9.0, "counts": "worst", "radius": 0.1}),
    ("prototypes", {"protect_labels": True, "classes": [0, 1, 2]}),
    ("prototypes", {"priors": "uniform", "decision": "gaussian"}),
    ("minimiser", {"fit_intercept": False}),
    ("minimiser", {"mechanism": "gradient", "epsilon": 1.0}),
    ("minimiser", {"mechanism__sensitivity": "paper"}),
    ("descent", {"fit_intercept": False, "norm_bound": 2.0}),
    ("descent", {"mechanism__n_steps": 7, "domain": "sphere"}),
    ("started descent", {"class_embeddings": np.eye(K, D), "fit_intercept": True}),
    ("whitened descent", {"class_weight": "balanced", "random_state": 0}),
]


@pytest.mark.parametrize(("name", "later"), LATER, ids=str)
def test_parameters_that_are_set_after_a_fit_change_nothing_released(name, later, tmp_path):
    """They are for the next fit: no check, audit or file of the last one reads them."""
    head = fitted(name)
    before = [str(check) for check in verify(head, private=data()).checks]
    released, scores = ReleasedModel(head).parameters(), head.decision_function(data()[0])
    changed = head.set_params(**later).set_params(verbose=True).set_params(**later)
    model = ReleasedModel(changed)
    np.testing.assert_array_equal(model.parameters(), released)
    assert model.problem.fit_intercept == ReleasedModel(fitted(name)).problem.fit_intercept
    assert [str(check) for check in verify(changed, private=data()).checks] == before
    assert changed.decision_follows()
    if "priors" not in later or name == "statistics":
        np.testing.assert_array_equal(changed.decision_function(data()[0]), scores)
    # A published model has the parameters of its fit; the next fit has the new ones.
    pytest.importorskip("skops")
    assert not verify(save(changed, tmp_path / "model")).failed
    assert all(value is changed.get_params()[key] for key, value in later.items())
    # Set back, nothing is kept of it.
    back = fitted(name).set_params(delta=1e-9, verbose=True).set_params(delta=1e-6)
    assert "_params_of_fit_" not in vars(back)
    assert not verify(changed.fit(*data())).failed or later.get("random_state") == 0
    assert "_params_of_fit_" not in vars(changed)


def test_released_values_are_read_through_the_record():
    """Whatever the head says by now, by any way."""
    for name in ("minimiser", "descent", "started descent"):
        head = fitted(name)
        released = ReleasedModel(head).parameters()
        saying(head, fit_intercept=not head.fit_intercept)
        np.testing.assert_array_equal(ReleasedModel(head).parameters(), released)
        assert failed(verify(head)) == ["model"]


HONEST = [
    # Few records and any distance: the start is the mean, with public labels too.
    ("descent from the mean", {"mechanism__start": "auto", "radius": None, "epsilon": 0.1}),
    ("prototypes", {"radius": None}),
    ("prototypes", {"counts": "min", "priors": [0.2, 0.2, 0.6]}),
    ("prototypes", {"epsilon": Fraction(9, 4), "norm_bound": np.float32(1.0)}),
    ("prototypes", {"classes": ("x", 0, 1, 2)[1:], "verbose": 0}),
    ("descent", {"mechanism": GradientPerturbation(clip=Fraction(1, 3), n_steps=np.int64(4))}),
    ("statistics", {"share": Fraction(1, 3)}),
    ("prototypes", {"counts": np.str_("worst")}),
    ("minimiser", {"mechanism": OutputPerturbation(sensitivity=np.str_("paper"))}),
    ("prototypes", {"protect_labels": True, "classes": range(K)}),
    ("prototypes", {"radius": RadiusPolicy(source="private", epsilon=0.3)}),
    ("prototypes", {"radius": RadiusPolicy(source="declared")}),
    ("prototypes", {"radius": FrozenEstimator(RadiusPolicy(source="declared").fit(*data()))}),
    (
        "prototypes",
        {"radius": FrozenEstimator(RadiusPolicy(source="private", epsilon=0.2).fit(*data()))},
    ),
    ("statistics", {"share": 0.3}),
    ("statistics", {"protect_labels": True, "classes": range(K)}),
    ("minimiser", {"mechanism": OutputPerturbation(sensitivity="paper"), "class_weight": None}),
    ("minimiser", {"alpha": None, "class_weight": "balanced"}),
    ("minimiser", {"mechanism": "auto", "alpha": None}),
    (
        "descent",
        {"mechanism": GradientPerturbation(n_steps=3, learning_rate=0.5, clip=None)},
    ),
    ("descent", {"mechanism": GradientPerturbation(start="prototypes")}),
    ("descent", {"mechanism": "gradient", "metric": "chebyshev", "radius": 0.1}),
    ("descent", {"mechanism": "gradient", "class_weight": "balanced", "radius": 0.02}),
    ("minimiser", {"class_weight": {0: 0.5, 2: np.float32(0.1)}}),
]


@pytest.mark.parametrize(("name", "params"), HONEST)
def test_settings_that_the_record_follows(name, params):
    verdict = verify(fitted(name, **params), private=data())
    assert not verdict.failed, str(verdict)
    assert ("priors" in lines(verdict)) == ("priors" in params)


@pytest.mark.parametrize(
    ("name", "change", "found"),
    [
        ("prototypes", {"random_state": 0}, "random_state=0"),
        ("prototypes", {"counts": "worst"}, "its counts='worst'"),
        ("prototypes", {"radius": RadiusPolicy(source="declared")}, "radius is from 'declared'"),
        (
            "prototypes",
            {"radius": RadiusPolicy(source="private", epsilon=0.3)},
            "radius is from 'private'",
        ),
        ("prototypes", {"radius": np.array([0.5, 0.5])}, "its parameter radius="),
        ("prototypes", {"epsilon": np.array([4.0, 4.0])}, "its parameter epsilon=an array"),
        ("statistics", {"share": 0.123}, "its share=0.123"),
        (
            "minimiser",
            {"mechanism": OutputPerturbation(sensitivity="paper")},
            "sensitivity='paper'",
        ),
        ("minimiser", {"mechanism": None}, "of no use (ValueError)"),
        ("minimiser", {"alpha": "x"}, "of no use (ValueError)"),
        ("minimiser", {"class_weight": "balanced"}, "other weights of classes, or none"),
        ("descent", {"mechanism__n_steps": 7}, "its n_steps=7, the record has 6"),
        ("descent", {"mechanism__clip": 1.0}, "its clip=1.0"),
        ("descent", {"mechanism__learning_rate": 3.0}, "its learning_rate=3.0"),
        ("descent", {"mechanism__start": "auto"}, "its start from zero=False"),
        ("started descent", {"mechanism__start": "prototypes"}, "its second moment=False"),
        ("started descent", {"mechanism__start": "mean"}, "its start from the mean=True"),
        ("descent from the mean", {"mechanism__start": "statistics"}, "from the mean=False"),
        ("descent from the mean", {"mechanism__start": "zero"}, "its start from zero=True"),
        ("hinge from the mean", {"mechanism__start": "auto"}, "its start from the mean=False"),
    ],
)
def test_settings_that_say_otherwise(name, change, found):
    for private in (None, data()):
        verdict = verify(saying(fitted(name), **change), private=private)
        assert failed(verdict) == ["model"]
        assert found in str(verdict)


@pytest.mark.parametrize(
    ("fit", "claim"),
    [
        ({"class_weight": "balanced"}, {"class_weight": {0: 1.0, 1: 2.0}}),
        ({"class_weight": {0: 1.0, 1: 2.0}}, {"class_weight": "balanced"}),
        ({"class_weight": {0: 1.0, 1: 2.0}}, {"class_weight": {0: 1.0, 1: 2.001}}),
        ({"class_weight": {0: 1.0, 1: 2.0}}, {"class_weight": {7: 1.0}}),
    ],
)
@pytest.mark.parametrize("grouped", [False, True])
def test_weights_of_classes_that_say_otherwise(fit, claim, grouped):
    X, y = data()
    # Classes of unlike sizes.
    kept = (y == 1) | (np.arange(len(y)) > len(y) // 3)
    X, y = X[kept], y[kept]
    groups = np.arange(len(y)) // 2 if grouped else None
    head = fitted("minimiser", **fit).fit(X, y, groups=groups)
    assert not verify(head).failed
    verdict = verify(saying(head, **claim))
    assert failed(verdict) == ["model"]


@pytest.mark.parametrize("grouped", [False, True])
def test_a_class_of_records_is_not_left_out_of_balanced_weights(grouped, monkeypatch):
    """Less noise for the others would be the gain of that lie."""
    honest = weighing._class_weights

    def forged(class_weight, classes, masses, cap):
        return honest(class_weight, classes, masses * (np.arange(len(masses)) > 0), cap)

    X, y = data()
    groups = np.arange(len(y)) // 2 if grouped else None
    monkeypatch.setattr(weighing, "_class_weights", forged)
    head = fitted("minimiser", class_weight="balanced").fit(X, y, groups=groups)
    monkeypatch.undo()
    assert head.release_.bound.weights.by_class[0] == 0.0
    assert failed(verify(head)) == ["model"]


def test_totals_of_weighted_classes_do_not_drift():
    """A long sum of equal terms is short; a product is not, and the record is compared with it."""
    codes = np.repeat([0, 1], [4_900_000, 100_000])
    loss = weighing.fit_weights(codes, len(codes), np.arange(2), class_weight="balanced").loss
    exact = np.bincount(codes) * np.array(loss.by_class)
    np.testing.assert_array_equal(loss.class_totals, exact)
    assert weighing.follow_class_weight(loss, "balanced", np.arange(2))


def test_radii_of_policies_that_say_otherwise():
    head = fitted("prototypes", radius=RadiusPolicy(source="private", epsilon=0.3))
    assert failed(verify(saying(head, radius__epsilon=3.0))) == ["model"]
    assert failed(verify(saying(head, radius__epsilon=0.3, radius__random_state=0))) == ["model"]
    seeded = saying(head, radius__epsilon=0.3, radius__random_state=None)
    seeded.radius.rows = data()[0]
    assert failed(verify(seeded)) == ["model"]
    other = FrozenEstimator(RadiusPolicy(0.9, source="private", epsilon=0.3).fit(*data()))
    assert failed(verify(saying(head, radius=other))) == ["model"]


def test_labels_of_any_kind_and_public_policies_pass():
    X, y = data()
    days = np.array(["2026-01-01", "2026-01-02", "2026-01-03"], dtype="datetime64[D]")
    for labels in (days, np.array(["a", "b", "c"]), np.array([1.0, 2.0, 3.0], dtype=np.float32)):
        for declared in (labels, labels[::-1].tolist(), None):
            if declared is None or np.asarray(declared).dtype.kind == labels.dtype.kind:
                head = BallDPRidgePrototype(4.0, radius=0.5, classes=declared).fit(X, labels[y])
                assert not verify(head).failed
    for policy in (RadiusPolicy(0.5), RadiusPolicy(0.9, source="edits")):
        public = {"X_public": X, "y_public": y}
        if policy.source == "edits":
            public = {"X_public": X[:50], "y_public": X[50:100]}
        for own in (policy, FrozenEstimator(clone(policy).fit(**public))):
            head = BallDPRidgePrototype(4.0, radius=own).fit(X, y, **public)
            assert not verify(head).failed


def test_heads_made_of_statistics_pass():
    X, y = data()
    policies = [
        RadiusPolicy(0.5),
        RadiusPolicy(source="declared"),
        RadiusPolicy(source="private", epsilon=0.5),
        FrozenEstimator(RadiusPolicy(source="declared").fit(X, y)),
    ]
    for policy in policies:
        public = {"X_public": X, "y_public": y} if policy is policies[0] else {}
        head = BallDPLinearDiscriminant(4.0, radius=policy).fit(X, y, **public)
        other = BallDPLinearDiscriminant.from_statistics(head.statistics_, priors="uniform")
        for private in (None, (X, y)):
            assert not verify(head, private=private).failed
            assert not verify(other, private=private).failed


def test_public_counts_may_not_be_missing():
    for name in HEADS:
        head = fitted(name)
        del head.class_counts_
        head.release_ = dataclasses.replace(
            head.release_, digest=parameters_digest(head.released_parameters())
        )
        assert "model" in failed(verify(head))


def test_rows_do_not_ride_along():
    X, y = data()
    for name in ("prototypes", "minimiser", "statistics"):
        head = fitted(name)
        head.transcript_ = Transcript(X, X, y)
        assert failed(verify(head)) == ["model"]
    pipeline = make_pipeline(Normalizer(), fitted("prototypes"))
    assert not verify(FrozenEstimator(pipeline)).failed
    frozen = FrozenEstimator(fitted("prototypes"))
    frozen.rows = X
    assert failed(verify(frozen)) == ["model"]
    for name in ("verbose", "encoder", "classes"):
        assert failed(verify(saying(fitted("prototypes"), **{name: X}))) == ["model"]
    pipeline.rows = X
    assert failed(verify(pipeline)) == failed(verify(FrozenEstimator(pipeline))) == ["model"]
    head = fitted("descent")
    head.mechanism.rows = X
    assert failed(verify(head)) == ["model"]


def test_wrappers_are_no_models():
    """They may hold a threshold, scores or chosen columns that were made of private rows."""
    X, y = data()
    head = BallDPLogisticRegression(4.0, radius=0.5)
    tuned = TunedThresholdClassifierCV(head, cv=2).fit(X, y == 1)
    auditor = ReconstructionAuditor(
        fitted("prototypes", radius=None), n_supports=1, n_candidates=3
    ).fit(X, y)
    for model in (tuned, auditor):
        with pytest.raises(ValueError, match=f"got {type(model).__name__}, which may publish more"):
            verify(model)
    assert not verify(tuned.estimator_).failed


@pytest.mark.parametrize("stated", [None, 4.01])
def test_figures_ex_post_are_those_of_the_iterates(stated):
    for name in ("descent", "started descent"):
        head = fitted(name)
        head.release_ = dataclasses.replace(head.release_, epsilon_full_radius_ex_post=stated)
        assert failed(verify(head)) == ["transcript"]


def test_records_that_say_a_thing_twice(tmp_path):
    head = fitted("prototypes")
    record = json.dumps(head.release_.to_dict())
    path = tmp_path / "release.json"
    path.write_text(record)
    assert not verify(head, path).failed
    for text in ('{"epsilon": 0.1, ' + record[1:], record.replace('"mode"', '"mode": "x", "mode"')):
        path.write_text(text)
        with pytest.raises(ValueError, match="more than once"):
            verify(head, path)


def test_a_record_is_checked_when_it_is_read_from_a_pickle(tmp_path):
    for name in HEADS:
        head = fitted(name)
        assert pickle.loads(pickle.dumps(head)).release_ == head.release_
        vars(head.release_)["mu"] = 1e-3
        vars(head.release_)["rows"] = data()[0]
        again = pickle.loads(pickle.dumps(head))
        assert again.release_.mu == fitted(name).release_.mu > 1e-2
        assert failed(verify(again)) == ["model"]
        object.__setattr__(head.release_, "epsilon", 0.1)
        with pytest.raises(ValueError, match="epsilon"):
            pickle.loads(pickle.dumps(head))
        skops.io.dump(head, tmp_path / "m.skops")
        assert failed(verify(tmp_path / "m.skops")) == ["record"]


def test_private_rows_as_a_list_or_a_mapping():
    X, y = data()
    for private in ([X, y], {"X": X, "y": y}):
        assert not verify(fitted("prototypes"), private=private).failed


@pytest.mark.parametrize("private", [5, {"X": 1}, (1, 2, 3)])
def test_private_rows_of_no_sense(private):
    with pytest.raises(ValueError, match="private"):
        verify(fitted("prototypes"), private=private)


def test_weights_of_no_sense():
    for name in HEADS:
        for value in (np.nan, np.inf, 1e200, -1e308):
            head = fitted(name)
            weights_of(head)[0, 0] = value
            verdict = verify(head, private=data())
            assert "parameters" in failed(verdict)
            assert {"noise in the weights", "size of the weights", "transcript"} & set(
                failed(verdict)
            )
        for change in (
            lambda h: vars(h).update({n: v[:, 1:] for n, v in vars(h).items() if n in WEIGHTS}),
            lambda h: vars(h).update({n: "x" for n in vars(h) if n in WEIGHTS}),
            lambda h: [vars(h).pop(n, None) for n in WEIGHTS],
            lambda h: vars(h).update(classes_=5),
            lambda h: vars(h).update(classes_=np.arange(9)),
        ):
            head = fitted(name)
            change(head)
            for private in (None, data()):
                assert "model" in failed(verify(head, private=private))


WEIGHTS = ("coef_", "prototypes_")


@pytest.mark.parametrize("transcript", [5, object(), (1, 2)])
def test_transcripts_of_no_sense(transcript):
    head = fitted("descent")
    assert "transcript" in failed(verify(head, transcript=transcript, private=data()))


def test_steps_that_do_nothing_and_odd_earlier_models():
    X, y = data()
    head = fitted("prototypes")
    for step in ("passthrough", None):
        pipeline = Pipeline([("nothing", step), ("head", head)])
        assert not verify(pipeline, private=(X, y)).failed
    with pytest.raises(ValueError, match="earlier: expected a fitted Ball-DP head"):
        verify(head, private=(X, y), earlier=[LogisticRegression()])
    fewer = BallDPRidgePrototype(4.0, radius=0.5).fit(X[:, :5], y)
    garbage_head = fitted("prototypes")
    garbage(garbage_head)
    verdict = verify(head, private=(X, y), earlier=[fewer, garbage_head])
    assert not verdict.failed
    assert lines(verdict)["earlier releases"] == "CANNOT CHECK"
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(D)])
    first, second = (BallDPRidgePrototype(4.0, radius=0.5).fit(frame, y) for _ in range(2))
    assert not verify(second, private=(frame, y), earlier=[first]).failed


def test_the_noise_of_an_earlier_descent():
    X, y = data()
    first = fitted("descent")
    second = copy.deepcopy(first)
    assert failed(verify(second, private=(X, y), earlier=[first])) == ["reuse of noise"]
    assert not verify(fitted("descent"), private=(X, y), earlier=[first]).failed


@pytest.mark.parametrize("damage", [lambda b: b[:-30], lambda b: b[:50], lambda b: b"PK" + b[:9]])
def test_damaged_files(tmp_path, capsys, damage):
    head = fitted("descent")
    model, release, _, rows, _, steps = files(tmp_path, head)
    whole = {path: Path(path).read_bytes() for path in (model, rows, steps)}
    for path in whole:
        Path(path).write_bytes(damage(whole[path]))
        assert status([model, release, "--private", rows, "--transcript", steps]) == 2
        assert "is no " in capsys.readouterr().err
        Path(path).write_bytes(whole[path])
    Path(release).write_text("[" * 100_000)
    assert status([model, release]) == 2
    assert status([release, "--joblib"]) == 2


def test_floors_of_a_descent_are_seen_without_rows():
    """Sensitivities at the least there is, noise to match: the transcript's iterates tell."""
    head = fitted("descent")
    record = head.release_.to_dict()
    bound = head.release_.bound
    least = bound.limits(0.5).least / N
    share = bound.step_mu()
    moved = [record["sensitivity"][0], *[least * 1.001] * 5]
    record = {**record, "sensitivity": moved, "sigma": (moved / share).tolist()}
    record = json.loads(json.dumps(resealed(record)))
    forged = dataclasses.replace(head.transcript_, sigma=np.array(record["sigma"]))
    assert {"the model's own record", "transcript"} <= set(
        failed(verify(head, record, transcript=forged))
    )
