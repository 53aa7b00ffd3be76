"""A stranger's checks: every forgery is caught, by the line that should catch it."""

import copy
import dataclasses
import datetime
import pickle
import re
from fractions import Fraction
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler
from verdicts import failed, line, lines, resealed, verified, written

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
from sklearn_balldp.mechanisms import MeanGradient, Mechanism
from sklearn_balldp.privacy import Noise
from sklearn_balldp.privacy.bounds import Promised
from sklearn_balldp.privacy.digest import parameters_digest
from sklearn_balldp.publish import save
from sklearn_balldp.publish.checks import replay_check
from sklearn_balldp.publish.model import Published
from sklearn_balldp.verdicts import PASS, STATED

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
DESCENTS = [name for name in HEADS if "descent" in name]


def fresh(name, **params):
    return clone(HEADS[name]).set_params(**params).fit(*data())


@cache
def once(name):
    return fresh(name)


def fitted(name):
    """A copy of the one fit of each kind."""
    return copy.deepcopy(once(name))


def changed(head, **parts):
    """The head with other released parts, in place."""
    head.released_ = dataclasses.replace(head.released_, **parts)
    return head


def sealed(head):
    """With the digest of what it holds now, as a forger would write it."""
    digest = parameters_digest(head.released_parameters())
    return changed(head, release=dataclasses.replace(head.release_, digest=digest))


def garbage(head):
    changed(head, values=np.full_like(head.released_.values, 123.0))


def other_labels(head):
    head.classes_ = head.classes_[::-1].copy()


def test_a_digest_made_anew_leaves_the_size_or_the_transcript():
    """Garbage with an honest digest: too long for the noise, which needs no rows to see."""
    for name in HEADS:
        head = fitted(name)
        garbage(head)
        line = "transcript" if name in DESCENTS else "size of the numbers"
        assert failed(verified(sealed(head))) == [line]


@pytest.mark.parametrize("name", ["prototypes", "started descent"])
def test_forgeries_that_rows_convict(monkeypatch, name):
    """An honest record beside other noise: only whoever holds the rows sees it."""
    real = Noise.__call__
    monkeypatch.setattr(Noise, "__call__", lambda self, v, s: real(self, v, 0.5 * np.asarray(s)))
    head = fresh(name)
    monkeypatch.undo()
    assert not verified(head).failed
    verdict = verified(head, private=data())
    assert "scale of the noise" in failed(verdict)
    text = str(verdict)
    assert "must not decide whether to publish" in text
    assert "delta=1e-06) into" in text


def test_wrong_rows():
    head = fitted("prototypes")
    X, y = data()
    assert failed(verified(head, private=(X[:-1], y[:-1]))) == ["rows"]
    assert failed(verified(head, private=(X, np.roll(y, 1)))) != []
    assert failed(verified(head, private=(X, np.zeros_like(y)))) == ["rows"]
    assert failed(verified(head, private=data(seed=3)))


def test_owners_are_passed_where_the_fit_had_them_and_nowhere_else():
    X, y = data()
    rows, groups = {"X": X, "y": y}, np.arange(N) // 2
    for fit, given in ((None, groups), (groups, None)):
        head = clone(HEADS["prototypes"]).fit(X, y, groups=fit)
        private = rows if given is None else {**rows, "groups": given}
        verdict = verified(head, private=private)
        assert line(verdict, "rows").verdict == "CANNOT CHECK"
        assert "was fitted with" in line(verdict, "rows").found
        private = rows if fit is None else {**rows, "groups": fit}
        assert lines(verified(head, private=private))["scale of the noise"] == "PASS"


def test_delta_sampler_and_radius():
    X, y = data()
    with pytest.warns(UserWarning, match="1/n_samples"):
        head = BallDPRidgePrototype(1.0, delta=0.01, radius=0.5).fit(X, y)
    assert failed(verified(head)) == ["delta"]
    seeded = BallDPRidgePrototype(4.0, radius=0.5, random_state=0).fit(X, y)
    assert failed(verified(seeded)) == ["sampler"]
    own = BallDPRidgePrototype(1.0, radius=RadiusPolicy(source="declared")).fit(X, y)
    assert lines(verified(own))["radius"] == "CANNOT CHECK"


READERS = {
    "ball": {},
    "any distance": {"radius": None},
    "protected": {"protect_labels": True, "classes": range(K)},
}


@pytest.mark.parametrize("name", READERS)
def test_the_first_line_states_what_is_promised_and_no_less(name):
    head = fresh("prototypes", **READERS[name])
    release = head.release_
    found = line(verified(head), "record").found
    stated = [float(number) for number in re.findall(r"epsilon=([\d.]+)", found)]
    promised = [release.guarantee().epsilon, release.epsilon_full_radius]
    for shown, epsilon in zip(stated, promised[-len(stated) :], strict=True):
        assert epsilon * (1.0 - 1e-12) <= shown <= epsilon * 1.001
    assert (len(stated) == 1) == (release.radius == release.full_radius)


def test_above_the_lines_stand_folder_date_and_verdict(tmp_path):
    folder = save(fitted("prototypes"), tmp_path / "model")
    today = datetime.date.today().isoformat()
    head = [f"Folder    {folder}", f"Date      {today}", "Verdict   Nothing was refuted.", ""]
    assert str(verify(folder)).splitlines()[:4] == head
    (folder / "release.json").write_text((folder / "release.json").read_text() + "\n")
    assert verify(folder).sentence.startswith("At least one check failed (release.json): ")
    assert verify(folder).release is None


@pytest.mark.kills("publish/verify.py", "self._named(CANNOT_CHECK)", "[]")
@pytest.mark.kills(
    "publish/checks.py",
    "CANNOT_CHECK if isinstance(record.radius_from, Declared)",
    "STATED if True",
)
@pytest.mark.kills("publish/checks.py", "verdict = STATED\n", "verdict = PASS\n")
@pytest.mark.kills("publish/checks.py", 'Check("labels", STATED', 'Check("labels", PASS')
def test_what_is_usual_and_what_to_read(tmp_path):
    X, y = data()
    usual = verified(fitted("prototypes"))
    assert usual.sentence == "Nothing was refuted."
    assert set(lines(usual).values()) == {PASS, STATED}
    words = ("labels", "sampler", "version", "radius", "encoder", "noise in the numbers")
    assert {lines(usual)[name] for name in words} == {STATED}
    declared = BallDPRidgePrototype(4.0, radius=RadiusPolicy(source="declared")).fit(X, y)
    # It holds only if the radius may be public, which is for the reader to ask.
    assert verified(declared).sentence.endswith("CANNOT CHECK, read them: radius.")


def test_wrappers_are_no_models(tmp_path):
    """They may hold a threshold, scores or chosen columns that were made of private rows."""
    X, y = data()
    head = BallDPLogisticRegression(4.0, radius=0.5)
    tuned = TunedThresholdClassifierCV(head, cv=2).fit(X, y == 1)
    auditor = ReconstructionAuditor(
        fresh("prototypes", radius=None), n_supports=1, n_candidates=3
    ).fit(X, y)
    for model in (tuned, auditor):
        with pytest.raises(ValueError, match=f"got {type(model).__name__}, and a .* may publish"):
            save(model, tmp_path / "model")
    assert not verified(tuned.estimator_).failed


def test_what_is_on_a_live_model_and_never_published():
    """Neither parameters nor what was put on it is written."""
    X, y = data()
    head = fitted("prototypes").set_params(epsilon=0.1, norm_bound=9.0, priors=[1.0, 0.0, 0.0])
    head.rows_, head.release_.__dict__["rows"] = X, X
    assert not verified(head).failed
    assert not {"rows_", "rows"} & Published.of(head).arrays.keys()
    again = pickle.loads(pickle.dumps(head))
    assert not verified(again, private=(X, y)).failed
    assert again.release_ == head.release_


HONEST = [
    *((name, {}) for name in HEADS),
    ("prototypes", {"radius": None}),
    ("prototypes", {"counts": "min", "priors": [0.2, 0.2, 0.6]}),
    ("prototypes", {"epsilon": Fraction(9, 4), "norm_bound": np.float32(1.0)}),
    ("prototypes", {"counts": np.str_("worst")}),
    ("prototypes", {"protect_labels": True, "classes": range(K)}),
    ("prototypes", {"radius": FrozenEstimator(RadiusPolicy(source="declared").fit(*data()))}),
    ("statistics", {"share": 0.3, "shrinkage": np.float64(0.25)}),
    ("statistics", {"protect_labels": True, "classes": range(K), "share": 0.5}),
    ("minimiser", {"mechanism": OutputPerturbation(sensitivity=np.str_("paper"))}),
    ("descent", {"class_weight": {0: 0.5, 2: np.float32(0.1)}}),
    ("descent", {"mechanism": GradientPerturbation(n_steps=3, learning_rate=0.5, clip=None)}),
    ("descent", {"mechanism": GradientPerturbation(clip=Fraction(1, 3), n_steps=np.int64(4))}),
    ("descent", {"mechanism": "gradient", "metric": "chebyshev", "radius": 0.1}),
    ("descent", {"mechanism": GradientPerturbation(n_steps=3), "class_weight": "balanced"}),
    ("whitened descent", {"class_embeddings": np.eye(K, D), "class_weight": "balanced"}),
]


@pytest.mark.parametrize(("name", "params"), HONEST)
def test_settings_that_the_record_follows(name, params, tmp_path):
    head = fresh(name, **params)
    kept = bool(getattr(head.released_.mechanism, "keep_transcript", False))
    for model in (head, save(head, tmp_path / "model", transcript=kept)):
        verdict = verified(model, private=data())
        assert not verdict.failed, str(verdict)
        assert "No check can certify" in str(verdict)
        for rule in ("priors", "class_weight"):
            assert (rule in lines(verdict)) == (params.get(rule) is not None)
        assert ("class_embeddings" in lines(verdict)) == ("class_embeddings" in params)
    assert verified(head).release == head.release_
    assert lines(verified(head))["noise in the numbers"] == "STATED"
    scores = Published.of(head).head().decision_function(data()[0])
    np.testing.assert_array_equal(scores, head.decision_function(data()[0]))


def test_a_step_does_not_tell_what_it_was_fitted_on():
    X, y = data()
    frozen = FrozenEstimator(StandardScaler().fit(X))
    for step, expected in ((frozen, "CANNOT CHECK"), (Normalizer(), "PASS"), (None, None)):
        own = make_pipeline(step, BallDPRidgePrototype(4.0, radius=0.5)).fit(3 * X, y)
        verdict = verified(FrozenEstimator(own), private=(3 * X, y))
        assert lines(verdict).get("preprocessing") == expected
        assert not verdict.failed


def test_steps_that_fail_quote_no_record():
    X, y = data()
    pipeline = make_pipeline(Normalizer(), fitted("prototypes"))
    rows = X.astype(object)
    rows[3, 2] = "a secret"
    verdict = verified(pipeline, private=(rows, y))
    assert failed(verdict) == ["rows"]
    assert "secret" not in str(verdict)
    assert "the step norm cannot transform them (ValueError)" in str(verdict)


class OneStep(Mechanism):
    """A mechanism of one's own: a single noisy gradient, which nothing has to be proved of."""

    spends = 1.0

    def bound(self, problem, mu):
        return Promised(mu)

    def conversation(self, problem, bound):
        theta = np.zeros((problem.kind.n_scores, problem.n_features + 1))
        mu = self.spends * bound.budget
        gradient = yield MeanGradient(theta, constant=1.0).calibrated(problem, mu)
        return -gradient


@pytest.mark.kills("publish/checks.py", "            privacy.charge(query)\n", "            pass\n")
def test_a_query_that_spends_more_than_is_promised_is_refused():
    """The fit would have refused it too: what came out of it is of another mechanism."""
    head = BallDPLogisticRegression(4.0, radius=0.5, mechanism=OneStep()).fit(*data())
    assert replay_check(head.released_).verdict == "PASS"
    head.released_.mechanism.spends = 1.01
    check = replay_check(head.released_)
    assert check.verdict == "FAIL"
    assert check.found.startswith("query 1: ")


def moved(array, place):
    moved = array.copy()
    moved.flat[place] += 1e-3
    return moved


OF_GRADIENTS = {
    "another": lambda g: moved(g, 0),
    "another at the end": lambda g: moved(g, -1),
    "one fewer": lambda g: g[:-1],
    "of another shape": lambda g: g[:, :, :-1],
    "huge": lambda g: np.full_like(g, 1e200),
}
OF_THE_START = {"another": lambda s: moved(s, 0), "none": lambda s: s[:0], "less": lambda s: s[1:]}


@pytest.mark.parametrize("name", DESCENTS)
def test_forged_transcripts_are_refused_by_anybody(name):
    head = fitted(name)
    forged = [{"gradients": forge(head.transcript_.gradients)} for forge in OF_GRADIENTS.values()]
    if name != "descent":
        forged += [{"start": forge(head.transcript_.start)} for forge in OF_THE_START.values()]
    for parts in forged:
        arrays = {f"transcript.{name}": array for name, array in parts.items()}
        verdict = verified(head, arrays=arrays, private=data())
        assert {"model", "transcript"} & set(failed(verdict)), str(verdict)


@pytest.mark.kills("publish/checks.py", "if not _close(values,", "if False and not _close(values,")
def test_the_iterates_are_those_of_the_record():
    """Another step size, or regulariser, leads elsewhere."""
    head = fitted("descent")
    rate = head.release_.bound.learning_rate
    for change in ({"learning_rate": 1.01 * rate}, {"momentum": 0.7}):
        record = head.release_.to_dict()
        record["bound"] = {**record["bound"], **change}
        assert "transcript" in failed(verified(head, resealed(record))), change


def test_earlier_releases_by_their_noise(tmp_path):
    X, y = data()
    first, second = fresh("prototypes"), fresh("prototypes")
    folder = save(first, tmp_path / "first")
    for earlier in (first, folder, str(folder)):
        assert not verified(second, private=(X, y), earlier=[earlier]).failed
        assert failed(verified(first, private=(X, y), earlier=[earlier])) == ["reuse of noise"]
    steps = fitted("descent")
    assert failed(verified(steps, private=(X, y), earlier=[steps])) == ["reuse of noise"]
    broken = fitted("prototypes")
    other_labels(broken)
    verdict = verified(second, private=(X, y), earlier=[broken])
    assert not verdict.failed
    assert lines(verdict)["earlier release"] == "CANNOT CHECK"
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(D)])
    first, second = (BallDPRidgePrototype(4.0, radius=0.5).fit(frame, y) for _ in range(2))
    assert not verified(second, private=(frame, y), earlier=[first]).failed


def test_private_rows_of_any_form(tmp_path):
    X, y = data()
    np.savez(tmp_path / "a.npz", X=X, y=y)
    np.savez(tmp_path / "b.npz", X_train=X, y_train=y)
    np.savez(tmp_path / "c.npz", rows=X)
    np.save(tmp_path / "d.npy", X)
    np.savez(tmp_path / "e.npz", X=np.array([{}], dtype=object), y=y)
    folder = written(Published.of(fitted("prototypes")), tmp_path / "model")
    for private in ([X, y], {"X": X, "y": y}, tmp_path / "a.npz", str(tmp_path / "b.npz")):
        assert "rows" in lines(verify(folder, private=private))
    for private, said in (
        *((5, "private must be"), ({"X": 1}, "private holds")),
        (tmp_path / "c.npz", "holds rows; save X and y"),
        (tmp_path / "d.npy", "is no npz file"),
        (tmp_path / "e.npz", "Object arrays"),
        (tmp_path / "f.npz", "is no file"),
    ):
        with pytest.raises(ValueError, match=said):
            verify(folder, private=private)
