"""The auditor: what it reports, that it can fail, and that it drops in.

Noise is independent in every test. Together these tests reject correct code with probability
below 1e-6 a run: intervals have confidence 1 - 1e-9, and everything else is seeded.
"""

import copy
import itertools
import pickle
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.stats import binom
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler, normalize, scale

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    RadiusPolicy,
    ReconstructionAuditor,
)
from sklearn_balldp.audit import (
    FailedGuaranteeWarning,
    PooledPreprocessingWarning,
    neg_certificate_scorer,
    neg_success_scorer,
)
from sklearn_balldp.audit.attacks import audit_support
from sklearn_balldp.audit.auditor import refuting_successes
from sklearn_balldp.audit.preparation import audit_generator
from sklearn_balldp.heads.inspection import records_of
from sklearn_balldp.mechanisms import Sums, drive
from sklearn_balldp.pipelines import DenseRows, RowWise
from sklearn_balldp.privacy import Noise

SURE = 1 - 1e-9


def noiseless(head, X, y):
    """What the head's conversation returns for these records, without noise."""
    released, records = head.released_, records_of(head, X, y)
    return drive(released.conversation(), lambda query: query.values(released.problem, records))


def audit(head, *rows, **params):
    return ReconstructionAuditor(head, **{"random_state": 0, **params}).fit(*rows)


def two_classes(digits):
    X, y = digits
    return X[y < 2], y[y < 2]


def split(X, y, n):
    """Private rows and labels, and public ones."""
    return (X[:n], y[:n]), (X[n:], y[n:])


RIDGE = BallDPRidgePrototype(4.0, radius=0.6)
TEN = {"protect_labels": True, "classes": range(10)}


@pytest.mark.parametrize(
    "head", [RIDGE, BallDPSquaredHingeSVC(4.0, radius=0.6, mechanism="output", fit_intercept=False)]
)
def test_certificates_and_their_order(head, digits):
    X, y = digits
    auditor = audit(head, X, y, n_supports=2, n_draws=200, confidence=SURE)
    assert auditor.guarantee_holds_
    assert auditor.baseline_ == pytest.approx(0.1)
    certificate = auditor.certificate_
    assert list(certificate.index) == ["dp", "rdp", "direct", "anchor", "ball", "support", "bayes"]
    # Printed to the nearest number, one in two would be less than is proved.
    shown = float(re.search(r"certificate (\S+)", auditor.summary())[1])
    assert certificate["direct"] <= shown <= certificate["direct"] + 1e-3
    # What a certificate leaves out only raises it; the anchor need not be the best reference.
    low, high = auditor.success_interval_["clopper_pearson"]
    assert low - 0.05 <= certificate["bayes"] <= high + 0.05
    assert low <= certificate["support"] <= certificate["ball"] + 1e-9
    assert max(certificate["ball"], certificate["anchor"]) <= certificate["direct"] + 1e-9
    assert certificate["direct"] <= min(certificate["dp"], certificate["rdp"]) + 1e-9
    assert (auditor.supports_["distance"] <= auditor.supports_["mu"]).all()
    assert auditor.score(X, y) == auditor.estimator_.score(X, y)


@pytest.fixture(scope="module")
def audited(digits):
    return audit(RIDGE, *digits, n_draws=5, n_supports=12)


def test_report(audited, digits, success_interval):
    X, y = digits
    report, supports = audited.report_, audited.supports_
    assert list(report) == ["support", "target", "guess", "success", "posterior"]
    assert len(report) == 12 * 10 * 5
    assert (report["success"] == (report["target"] == report["guess"])).all()
    # Every candidate is hidden equally often in every support, in another order.
    assert set(report.groupby(["support", "target"]).size()) == {5}
    assert report["posterior"].nunique() == len(report)
    assert len({tuple(trials["target"]) for _, trials in report.groupby("support")}) == 12
    assert audited.success_rate_ == report["success"].mean()
    hits = report["success"].sum()
    interval = audited.success_interval_
    assert interval["clopper_pearson"] == success_interval(hits, len(report), 0.95)
    means = report.groupby("support")["success"].mean()
    half = 2.200985 * means.std(ddof=1) / np.sqrt(12)  # Student's t, 11 degrees of freedom
    np.testing.assert_allclose(
        interval["seed_first"], [means.mean() - half, means.mean() + half], rtol=1e-6
    )
    assert len(supports) == 12
    np.testing.assert_allclose(supports["success_rate"], means)
    for _, row in supports.iterrows():
        candidates = list(row["candidates"])
        assert (y[candidates] == row["label"]).all()
        assert y[row["anchor"]] == row["label"]
        gaps = np.linalg.norm(X[candidates] - X[row["anchor"]], axis=1)
        assert gaps.max() <= 0.6
        # As far apart as their sums are, in units of the noise of their class.
        sigma = audited.estimator_.release_.bound.sigma[row["label"]]
        assert row["distance"] == pytest.approx(gaps.max() / sigma)
    # Held-out rows were not trained on, and anchors were.
    n_held = len(y) - audited.estimator_.release_.n_samples
    assert n_held == sum(int(np.ceil(0.2 * n)) for n in np.bincount(y))
    held = set(np.concatenate(supports["candidates"].to_list()))
    trained = set(audited.training_rows_)
    assert len(trained) == audited.estimator_.release_.n_samples
    assert not held & trained
    assert set(supports["anchor"]) <= trained


def test_ball_is_never_above_anchor():
    """Candidates all around the anchor: the iterative centre is a little off the best one."""
    X = np.zeros((200, 6))
    X[::2, 0] = 0.5
    rng = np.random.default_rng(0)
    for _ in range(3):
        # One pole and many near it, and the opposite pole: the mean is off the centre.
        pole = rng.standard_normal(6)
        offsets = np.vstack([pole + 0.5 * rng.standard_normal((18, 6)), pole, -pole])
        offsets *= 0.2 / np.linalg.norm(offsets, axis=1, keepdims=True)
        public, labels = np.vstack([offsets, X[0] + offsets]), np.repeat([1, 0], 20)
        head = BallDPRidgePrototype(4.0, radius=0.3)
        table = audit(head, X, np.arange(200) % 2, public, labels, n_candidates=20).supports_
        assert (table["ball_bound"] <= table["anchor_bound"]).all()
        assert (table["support_bound"] <= table["ball_bound"] + 1e-9).all()


def test_a_sensitivity_divided_by_four_is_caught(digits, monkeypatch):
    ratio = Sums.ratio
    monkeypatch.setattr(Sums, "ratio", lambda self, *args: ratio(self, *args) / 4.0)
    with pytest.warns(FailedGuaranteeWarning, match="FAILED GUARANTEE") as caught:
        auditor = audit(RIDGE, *two_classes(digits), n_draws=50, confidence=SURE)
    assert not auditor.guarantee_holds_
    # The warning says what failed, and holds no result.
    text = str(caught[0].message)
    assert "the MAP attack succeeds more often" in text
    assert "further apart than the sensitivity allows" in text
    assert len(auditor.failures_) == 2
    assert not any(character.isdigit() for character in text)
    assert (auditor.supports_["distance"] > auditor.supports_["mu"]).any()
    # The measured rate alone convicts it.
    low, _ = auditor.success_interval_["clopper_pearson"]
    assert low > auditor.certificate_["direct"]


DRAW = Noise.__call__


def scaled_by(factor):
    return lambda self, values, sigma: DRAW(self, values, np.asarray(sigma) * factor)


def seeded(self, values, sigma):
    self.rng = getattr(self, "rng", np.random.default_rng(7))
    return values + self.rng.standard_normal(np.shape(values)) * sigma


FAULTS = {"none": scaled_by(1e-9), "nine tenths": scaled_by(0.9), "a seed": seeded}
MECHANISMS = {
    "prototypes": BallDPRidgePrototype(4.0, radius=0.6),
    "discriminant": BallDPLinearDiscriminant(4.0, radius=0.6, share=0.5),
    "minimiser": BallDPLogisticRegression(4.0, radius=0.6, mechanism="output", alpha=0.1),
    "descent": BallDPLogisticRegression(4.0, radius=0.6, mechanism=GradientPerturbation(n_steps=4)),
}


def with_noise(head, call):
    """The same head, whose noise, in fits and trials, is added by ``call``."""
    noise = type("FaultyNoise", (Noise,), {"__call__": call})
    kind = type(type(head).__name__, (type(head),), {"_noise": lambda self: noise()})
    return kind(**head.get_params(deep=False))


@pytest.mark.parametrize(
    ("name", "fault", "noise"),
    [
        *itertools.product(MECHANISMS, FAULTS, ["mechanism"]),
        *itertools.product(["prototypes", "descent"], FAULTS, ["simulated"]),
    ],
)
def test_every_faulty_sampler_is_found(name, fault, noise, digits):
    """In the release itself, also where trials simulate noise: an audit runs what it audits."""
    X, y = (rows[:700] for rows in digits)
    head = with_noise(MECHANISMS[name], FAULTS[fault])
    # Four draws hold 10,000 values: a tenth too little noise is missed once in 10^9 times.
    n_draws = 4 if (fault, noise) == ("nine tenths", "mechanism") else 1
    options = {"n_supports": 1, "n_candidates": 4, "n_draws": n_draws, "noise": noise}
    with pytest.warns(FailedGuaranteeWarning) as caught:
        auditor = audit(head, X, y, radius=1.0, **options)
    assert not auditor.guarantee_holds_
    failed = [failure for failure in auditor.failures_ if "check of the" in failure]
    assert failed
    if noise == "mechanism":
        assert any("trials'" in failure for failure in failed)
    # The warning quotes no number that depends on the records.
    assert not any(character.isdigit() for character in str(caught[0].message))


@pytest.mark.parametrize(
    ("name", "noise"), [("descent", "simulated"), *((name, "mechanism") for name in MECHANISMS)]
)
def test_honest_samplers_pass(name, noise, digits):
    X, y = (rows[:700] for rows in digits)
    options = {"n_supports": 1, "n_candidates": 4, "noise": noise, "radius": 1.0}
    auditor = audit(clone(MECHANISMS[name]), X, y, **options)
    assert auditor.guarantee_holds_
    assert set(auditor.noise_["verdict"]) == {"PASS"}
    assert ("trials' scale of the noise" in set(auditor.noise_["name"])) == (noise == "mechanism")
    # Few values are made many by holding the conversation again.
    (found,) = auditor.noise_.set_index("name").loc[["scale of the noise"], "found"]
    assert int(found.split(" values")[0].split()[-1]) >= 5000


@pytest.mark.parametrize(
    ("n", "bound"),
    [*itertools.product([1, 40], [0.11, 0.33, 0.6, 0.99, 1.0]), (400, 0.11), (400, 0.6)],
)
def test_a_sound_release_is_not_convicted(n, bound, success_interval):
    """Exact probability of a false alarm at the worst success that the certificate allows."""
    level, needed = 1e-6 / 3, refuting_successes(n, bound)
    # The attack, the noise of the release and that of the trials have a third each.
    assert binom.sf(needed - 1, n, bound) <= level
    if needed <= n:
        assert success_interval(needed, n, 1 - 2 * level)[0] > bound
        assert success_interval(needed - 1, n, 1 - 2 * level)[0] <= bound
    if n == 400:
        # It is no empty promise: 0.2 above the certificate is found nearly always.
        assert binom.sf(needed - 1, n, bound + 0.2) > 0.99


@pytest.mark.kills("audit/attacks.py", "((gaps <= 2.0 * setting.eta) @", "((gaps <= setting.eta) @")
def test_approximate_reconstruction(digits):
    X, y = digits
    head = BallDPRidgePrototype(4.0, radius=0.8)
    common = {"support": "nearest", "n_draws": 100, "confidence": SURE}
    exact = audit(head, X, y, **common)
    loose = audit(head, X, y, eta=0.4, **common)
    assert loose.baseline_ > exact.baseline_
    assert loose.success_rate_ > exact.success_rate_
    assert np.isnan(loose.certificate_["support"])
    low, high = loose.success_interval_["clopper_pearson"]
    assert low - 0.02 <= loose.certificate_["bayes"] <= high + 0.02
    assert low <= loose.certificate_["ball"] <= loose.certificate_["direct"] + 1e-9
    row = loose.supports_.iloc[0]
    rows = X[list(row["candidates"])]
    gaps = np.linalg.norm(rows[:, None] - rows, axis=2)
    trials = loose.report_[loose.report_["support"] == 0]
    assert ((gaps[trials["target"], trials["guess"]] <= 0.4) == trials["success"]).all()
    # No point is near two candidates that are further apart than twice eta.
    assert row["kappa"] == pytest.approx((gaps <= 0.8).mean(axis=1).max())


def test_the_guess_is_the_one_that_succeeds_with_the_largest_probability(digits):
    """Where the release tells nothing: between three near candidates, not at the likeliest.

    Records are hidden as often as the prior says.
    """
    angles = np.r_[0.1, 0.2, 0.3, 0.9]
    public = np.column_stack([np.cos(angles), np.sin(angles)])
    X = np.tile([1.0, 0.0], (100, 1))
    head = BallDPRidgePrototype(0.01, radius=1.0)
    prior = [0.28, 0.1, 0.28, 0.34]
    options = {"support": "nearest", "attacker_prior": prior, "eta": 0.12, "n_draws": 400}
    rows, labels = np.tile(public, (2, 1)), np.repeat([0, 1], 4)
    auditor = audit(head, X, np.arange(100) % 2, rows, labels, n_candidates=4, **options)
    assert set(auditor.report_["guess"]) == {1}
    success = auditor.report_["success"]
    assert (success == auditor.report_["target"].isin([0, 1, 2])).all()
    assert auditor.baseline_ == auditor.certificate_["bayes"].round(2) == pytest.approx(0.66)
    assert abs((auditor.report_["target"] == 3).mean() - 0.34) < 0.04


@pytest.mark.kills("audit/preparation.py", "not head.protect_labels, rng)", "True, rng)")
def test_any_label_under_label_protection(digits):
    X, y = digits
    head = BallDPRidgePrototype(4.0, radius=0.6, **TEN)
    auditor = audit(head, X, y, candidate_labels="any", n_draws=50, confidence=SURE)
    labels = y[list(auditor.supports_["candidates"].iloc[0])]
    assert len(set(labels)) > 1
    assert auditor.guarantee_holds_
    assert (auditor.supports_["distance"] <= auditor.supports_["mu"]).all()
    release = auditor.estimator_.release_
    # Hidden labels do not steer the split.
    assert release.n_samples == len(y) - int(0.2 * len(y))
    assert auditor.certificate_["direct"] == pytest.approx(release.certificate(0.1))
    same = audit(head, X, y, n_draws=50)
    assert same.certificate_["direct"] < auditor.certificate_["direct"]
    with pytest.raises(ValueError, match=r"candidate_labels='any'.*protect_labels"):
        audit(RIDGE, X, y, candidate_labels="any")


def test_radius_of_the_supports(digits):
    head = BallDPRidgePrototype(4.0, radius=1.2)
    near, whole = audit(head, *digits, radius=0.6), audit(head, *digits)
    release = near.estimator_.release_
    assert near.certificate_["direct"] == pytest.approx(release.certificate(0.1, radius=0.6))
    assert near.certificate_["direct"] < whole.certificate_["direct"]
    assert near.supports_["n_in_ball"].mean() < whole.supports_["n_in_ball"].mean()


def test_threads_and_seeds(digits):
    rows, public = split(*digits, 1400)
    first, second = (audit(RIDGE, *rows, *public, n_jobs=n_jobs) for n_jobs in (None, 2))
    pd.testing.assert_frame_equal(first.report_, second.report_)
    # Supports draw from a generator of the head, in turn.
    seed, steps = np.random.default_rng(0), GradientPerturbation(n_steps=2)
    head = BallDPLogisticRegression(4.0, radius=0.9, mechanism=steps, random_state=seed).fit(*rows)
    released = FrozenEstimator(head), *rows, *public
    with pytest.warns(FailedGuaranteeWarning):  # a seed repeats its noise
        one, many = (audit(*released, noise="mechanism", n_jobs=n, n_candidates=3) for n in (1, 4))
    pd.testing.assert_frame_equal(one.report_, many.report_)
    # The audit is reproducible; the released model is not, and shares no stream with it.
    assert not np.array_equal(first.estimator_.prototypes_, second.estimator_.prototypes_)
    assert first.estimator_.release_.private is True
    for given, seed in ((0, 0), (3, 3), (np.random.default_rng(3), 3)):
        drawn = audit_generator(given).standard_normal(50)
        assert not np.isin(drawn, np.random.default_rng(seed).standard_normal(1000)).any()
    one, two = (audit_generator(np.random.RandomState(0)).integers(10**6) for _ in range(2))
    assert one == two


class Encoder(RowWise, FunctionTransformer):
    """A function of each row by itself."""


def test_pipeline_encodes_once(digits):
    X, y = digits
    rows, public = split(X, y, 1500)
    calls = []
    encoder = Encoder(lambda X: calls.append(len(X)) or normalize(X))
    pipeline = Pipeline([("encode", encoder), ("head", clone(RIDGE))])
    auditor = audit(pipeline, *rows, *public)
    assert calls == [1500, len(X) - 1500]
    assert isinstance(auditor.estimator_, Pipeline)
    assert list(auditor.estimator_.named_steps) == ["encode", "head"]
    assert auditor.predict(X[:5]).shape == (5,)
    assert auditor.estimator_.named_steps["head"].release_.n_samples == 1500
    assert not hasattr(pipeline.named_steps["head"], "release_")
    calls.clear()
    audit(pipeline, X, y)
    assert sum(calls) == len(X)


def test_pooled_preprocessing_is_named(digits):
    rows, public = split(*digits, 1400)
    pools = FunctionTransformer(scale)  # it learns nothing, and compares rows
    for step, reason in (
        (StandardScaler(), "standardscaler learns from the rows"),
        (FrozenEstimator(pools), "frozenestimator is not known to map each row by itself"),
    ):
        with pytest.warns(PooledPreprocessingWarning, match=reason):
            audit(make_pipeline(step, Normalizer(), RIDGE), *digits, radius=1.5)
    # Fitted on public rows and frozen, it is a map of each row.
    frozen = FrozenEstimator(PCA(20).fit(public[0]))
    audit(make_pipeline(frozen, Normalizer(), RIDGE), *rows, *public, radius=1.5)
    audit(make_pipeline(RadiusPolicy(source="declared"), RIDGE), *digits, radius=1.5)
    # In frozen pipelines too.
    head = BallDPRidgePrototype(4.0, radius=0.7)
    scaled = make_pipeline(StandardScaler(), Normalizer(), head).fit(*rows)
    with pytest.warns(PooledPreprocessingWarning, match="unless they were fitted on public rows"):
        audited_as_released(scaled, rows, public, radius=1.9)


def test_records_as_people_hold_them(digits):
    """In a table with names, whose labels have an index of their own; and texts."""
    X, y = digits
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    labels = pd.Series(np.array(list("abcdefghij"))[y], index=np.arange(len(y))[::-1])
    auditor = audit(RIDGE, frame, labels)
    assert (auditor.feature_names_in_[0], auditor.n_features_in_) == ("f0", 64)
    assert set(auditor.supports_["label"]) <= set("abcdefghij")
    assert auditor.score(frame, labels) > 0.5
    texts = [" ".join(f"word{i}" for i in np.flatnonzero(row > 0.1)) for row in X[:200]]
    hashed, head = HashingVectorizer(n_features=64), BallDPLinearDiscriminant(4.0, radius=1.3)
    auditor = audit(
        make_pipeline(hashed, DenseRows(), head), texts, y[:200] % 2, n_supports=1, n_candidates=5
    )
    assert auditor.predict_proba(texts[:3]).shape == (3, 2)


def test_the_warning_in_a_search_points_to_who_called_the_search(digits):
    bare = type("Bare", (Noise,), {"__call__": lambda self, values, sigma: np.array(values)})
    Head = type("Loud", (BallDPRidgePrototype,), {"_noise": lambda self: bare()})
    auditor = ReconstructionAuditor(Head(4.0, radius=0.6), random_state=0)
    search = GridSearchCV(auditor, {"estimator__epsilon": [4.0]}, cv=2, scoring=neg_success_scorer)
    with pytest.warns(FailedGuaranteeWarning) as caught:
        search.fit(*digits)
    assert {warning.filename for warning in caught} == {__file__}


def test_public_rows_are_routed_through_a_search(digits):
    X, y = digits
    with sklearn.config_context(enable_metadata_routing=True):
        auditor = ReconstructionAuditor(RIDGE, random_state=0)
        auditor.set_fit_request(X_public=True, y_public=True)
        search = GridSearchCV(auditor, {"estimator__epsilon": [4.0]}, cv=2)
        search.fit(X[:1200], y[:1200], X_public=X[1200:], y_public=y[1200:])
        assert search.best_estimator_.estimator_.release_.n_samples == 1200
        pipeline = Pipeline(
            [("encode", Normalizer()), ("audit", auditor)], transform_input=["X_public"]
        )
        pipeline.fit(50 * X[:1200], y[:1200], X_public=70 * X[1200:], y_public=y[1200:])
        inner = pipeline.named_steps["audit"]
        assert inner.supports_["n_in_ball"].min() >= 10
        assert neg_success_scorer(pipeline) == -inner.success_rate_
        assert neg_certificate_scorer(pipeline) == -inner.certificate_["direct"]


def test_a_released_model_is_audited_as_it_is(digits):
    """Also the state of its generator."""
    rows, public = split(*digits, 1400)
    whole = make_pipeline(Normalizer(), clone(RIDGE)).fit(*rows)
    auditor = audit(FrozenEstimator(whole), *rows, *public)
    np.testing.assert_array_equal(auditor.predict(rows[0]), whole.predict(rows[0]))
    released = BallDPRidgePrototype(4.0, radius=0.6, random_state=np.random.default_rng(0))
    before = pickle.dumps(released.fit(*rows))
    with pytest.warns(FailedGuaranteeWarning):  # its noise came from a seed
        auditor = audit(FrozenEstimator(released), *rows, *public, noise="mechanism")
    assert auditor.failures_ == ("the check of the sampler failed",)
    assert pickle.dumps(released) == before


def test_audit_results_stay_out_of_the_released_model(digits):
    """The fitted head is byte for byte what a plain fit gives, and knows nothing of the audit."""
    rows, public = split(*digits, 1500)
    head = BallDPLogisticRegression(4.0, radius=0.6, random_state=5)
    with pytest.warns(FailedGuaranteeWarning):  # its noise came from a seed
        auditor = audit(head, *rows, *public, n_supports=1)
    assert pickle.dumps(auditor.estimator_) == pickle.dumps(clone(head).fit(*rows))
    assert pickle.loads(pickle.dumps(auditor)).success_rate_ == auditor.success_rate_
    assert "success" not in repr(auditor)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"n_candidates": 1}, "n_candidates"),
        ({"n_draws": 2.5}, "n_draws"),
        ({"support": "best"}, "support must be one of"),
        ({"noise": "none"}, "noise"),
        ({"radius": -1.0}, "radius"),
        ({"confidence": 1.0}, "confidence"),
        ({"holdout": 0.0}, "holdout"),
        ({"eta": -0.1}, "eta"),
        ({"attacker_prior": [0.5, 0.5]}, "prior"),
        ({"n_supports": True}, "n_supports"),
        ({"random_state": "seed"}, "random_state"),
        ({"anchors": [0.5]}, "anchors must be 'random', 'rarest' or positions"),
        ({"anchors": [10**6]}, "anchors: none of them"),
        ({"n_candidates": 500}, r"distinct candidates.*X_public"),
        ({"radius": 1e-3}, r"only 0 of n_supports=12.*a radius of"),
    ],
)
def test_bad_parameters_leave_nothing(options, match, audited, digits):
    auditor = copy.deepcopy(audited).set_params(**options)
    with pytest.raises(ValueError, match=match):
        auditor.fit(*digits)
    assert not [name for name in vars(auditor) if name.endswith("_")]


def test_bad_data_and_estimators(digits):
    X, y = digits
    head, spoiled = BallDPRidgePrototype(radius=0.6), X.copy()
    spoiled[3, 4] = np.nan
    released = FrozenEstimator(clone(head).fit(X, y))
    labels = np.array([1, "a", None, 2], dtype=object)
    for estimator, rows, match in [
        (LogisticRegression(), (X, y), r"estimator must be a Ball-DP head.*LogisticRegression"),
        (head, (X, y, X), "X_public and y_public go together"),
        (head, (X, y, X, y + 100), "X_public holds no label"),
        (head, (X[:4], labels), "y (mixes|holds|has)"),
        (released, (X, y), "X_public=None: a frozen estimator"),
        (released, (X, y + 1, X, y), "labels that the released model does not know"),
        (released, (X, np.r_[y[:-1], 0], X, y), "y contradicts the public class counts"),
        (released, (X, y, X[:, :30], y), "X_public: X has 30 features"),
        (released, (spoiled, y, X, y), "NaN"),
    ]:
        with pytest.raises(ValueError, match=match):
            audit(estimator, *rows)
    with pytest.raises(ValueError, match=r"holdout holds no label.*holdout\)"):
        audit(BallDPRidgePrototype(**TEN), X, y, holdout=1e-4)


def audited_as_released(head, rows, public, **params):
    return audit(FrozenEstimator(head), *rows, *public, n_supports=1, **params)


@pytest.fixture
def released(digits):
    rows, public = split(*digits, 1400)
    return BallDPRidgePrototype(4.0, radius=0.7).fit(*rows), rows, public


@pytest.mark.kills("audit/auditor.py", "checks + noise_checks(noise, level=_LEVEL)", "checks")
def test_the_noise_of_a_released_model(released):
    auditor = audited_as_released(*released)
    assert auditor.guarantee_holds_
    assert set(auditor.noise_["verdict"]) == {"PASS"}
    assert auditor.report_.attrs["noise"] == "PASS"
    assert "noise: PASS         scale of the noise" in auditor.summary()
    # It has only its own 640 values, and says what they can show.
    for said in ("over 640 values", "from 0.80 down it would be seen", "no audit certifies"):
        assert said in auditor.summary()
    _, rows, public = released
    descent = GradientPerturbation(n_steps=3)
    kept_none = BallDPLogisticRegression(4.0, radius=0.7, mechanism=descent).fit(*rows)
    auditor = audited_as_released(kept_none, rows, public)
    assert auditor.report_.attrs["noise"] == "CANNOT CHECK"


@pytest.mark.parametrize("forgery", ["noiseless", "another dataset"])
def test_forged_values_fail_the_audit(released, forgery):
    """An honest record beside other values."""
    head, rows, public = released
    values = noiseless(head, *rows) if forgery == "noiseless" else head.released_.values
    if forgery == "another dataset":
        rows, public = ((np.roll(X, 1, axis=1), y) for X, y in (rows, public))
    head.released_ = replace(head.released_, values=values, answers=(values,))
    with pytest.warns(FailedGuaranteeWarning) as caught:
        auditor = audited_as_released(head, rows, public)
    assert "the check of the scale of the noise failed" in auditor.failures_
    follows = "the check of the parameters failed" not in auditor.failures_
    assert follows == (forgery == "another dataset")
    assert auditor.report_.attrs["noise"] == "FAIL"
    assert "FAILED: the check of the" in auditor.summary()
    # The warning quotes no number that depends on the records.
    text = str(caught[0].message)
    assert "start over with a fresh budget" in text
    assert not any(found in text for found in auditor.noise_["found"])


def test_how_little_few_trials_see(released):
    few, many, weak = (
        audited_as_released(*released, **options)
        for options in ({"n_draws": 4}, {"n_draws": 100}, {"n_candidates": 2})
    )
    stated = few.certificate_["direct"]
    assert few.refutation_threshold_ > many.refutation_threshold_ > stated
    for auditor in (few, many):
        needed = auditor.refutation_threshold_
        assert needed == refuting_successes(len(auditor.report_), stated) / len(auditor.report_)
        assert f"it convicts from a success of {needed:.3f} on" in auditor.summary()
    assert weak.refutation_threshold_ > 1.0
    assert "2 trials can convict nobody" in weak.summary()


def test_anchors_that_have_most_to_fear(digits):
    """With noise of the smallest class for all, records of that class are named most often."""
    X, y = digits
    kept = (y != 3) | (np.arange(len(y)) % 12 == 3)
    head = BallDPRidgePrototype(8.0, radius=0.9, counts="min")
    options = {"n_candidates": 4, "n_draws": 60}
    rare, spread, chosen = (
        audit(head, X[kept], y[kept], *digits, anchors=anchors, n_supports=n, **options)
        for anchors, n in (("rarest", 4), ("random", 20), (np.flatnonzero(y[kept] == 7)[:2], 2))
    )
    assert set(rare.supports_["label"]) == {3}
    assert rare.success_by_class_.index.tolist() == [3]
    table = spread.success_by_class_
    assert (table["anchors"].sum(), table["trials"].sum()) == (20, len(spread.report_))
    assert ((table["low"] <= table["success"]) & (table["success"] <= table["high"])).all()
    assert rare.success_rate_ > spread.success_rate_ + 0.05
    assert re.search(r"most of all in class \d:", spread.summary())
    assert set(chosen.supports_["anchor"]) == set(np.flatnonzero(y[kept] == 7)[:2])


def test_no_part_of_a_job_shows_a_record(monkeypatch):
    """Debuggers and reports of errors print what functions were passed."""
    shown = []

    def spy(*parts):
        shown.extend(map(repr, parts))
        return audit_support(*parts)

    monkeypatch.setattr("sklearn_balldp.audit.auditor.audit_support", spy)
    X, y = np.random.default_rng(0).standard_normal((200, 3)) / 9.0, np.arange(200) % 2
    owners = 1_000_003 + np.arange(200)
    audit = ReconstructionAuditor(BallDPRidgePrototype(3.0), n_candidates=4, n_supports=1)
    audit.fit(X, y, groups=owners)
    text = "".join(shown)
    assert "AuditSetting(" in text
    assert not [number for number in X.ravel() if repr(float(number))[:8] in text]
