"""Parameters that are refused by name, before anything is released."""

import copy
import functools
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from head_cases import HIDDEN, refused
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import accuracy_score

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    RadiusPolicy,
    ReconstructionAuditor,
)
from sklearn_balldp.audit.preparation import hold_out
from sklearn_balldp.rows import project_onto_ball

RANGE = "must be a number, at least 1e-30 and at most"
VECTORS, HUGE = np.eye(3, 6), 10**400
PROTOTYPES, DISCRIMINANT = BallDPRidgePrototype(), BallDPLinearDiscriminant()
MINIMISER = BallDPLogisticRegression(mechanism="output", alpha=0.01)
DESCENT = BallDPLogisticRegression(mechanism="gradient")
SVC = BallDPSquaredHingeSVC(fit_intercept=False)
MASKED = np.ma.masked_array([0.2, 0.3, 0.5], [0, 1, 0])
#: Numbers that each head takes, and what is none of them.
NUMBERS = [
    (PROTOTYPES, ["epsilon", "delta", "radius", "alpha", "norm_bound"]),
    (DISCRIMINANT, ["share", "shrinkage"]),
    (MINIMISER, ["alpha", "mechanism__tol"]),
    (DESCENT, ["alpha", "mechanism__n_steps", "mechanism__learning_rate", "mechanism__clip"]),
]
NO_NUMBERS = [-1.0, np.nan, np.inf, -HUGE, "1", 1j, np.array([0.5, 0.5]), [0.5]]
#: What is refused of one parameter, by its name and by what is said of it.
VALUES = [
    *((head, name, NO_NUMBERS, name.split("__")[-1]) for head, names in NUMBERS for name in names),
    (PROTOTYPES, "epsilon", [HUGE, 1e16], "epsilon must be a number, above 0 and at most"),
    (PROTOTYPES, "delta", [1.0, Fraction(HUGE, 3)], "delta"),
    (PROTOTYPES, "radius", [HUGE, 1e-31], f"radius {RANGE}"),
    (PROTOTYPES, "alpha", [0.0, 1e31], f"alpha {RANGE}"),
    (PROTOTYPES, "norm_bound", [HUGE, 1e160], f"norm_bound {RANGE}"),
    (PROTOTYPES, "protect_labels", [[True]], "protect_labels"),
    (PROTOTYPES, "protect_labels", [True], "classes=None.*pass classes"),
    (PROTOTYPES, "metric", [np.array(["euclidean"])], "metric"),
    (PROTOTYPES, "metric", ["cosine"], "metric .*euclidean"),
    (PROTOTYPES, "classes", [[[0, 1, 2]], [0, "a", None], [0]], "classes"),
    (PROTOTYPES, "classes", [[0, 1], ["a", "b"]], "outside the declared classes"),
    (PROTOTYPES, "counts", ["mean"], "counts .*per_class"),
    (PROTOTYPES, "decision", ["far"], "decision .*nearest"),
    (PROTOTYPES, "random_state", ["x", True, -1, 1.5], "random_state"),
    (PROTOTYPES, "encoder", [3], "encoder must be None or one line"),
    (PROTOTYPES, "verbose", [np.array([1, 0]), "yes"], "verbose must be True or False"),
    (PROTOTYPES, "priors", [MASKED], "priors has a mask"),
    (PROTOTYPES, "priors", [[1j, 0.5, 0.5], [0.5, 0.5], [1.0, 1.0, -1.0], "equal"], "priors"),
    (DISCRIMINANT, "domain", ["cube"], "domain .*ball, sphere"),
    (DISCRIMINANT, "share", [0.0], "share must be a number, .*, or 'auto'; got 0.0"),
    (DISCRIMINANT, "share", [5e-324], "share"),
    (DISCRIMINANT, "priors", [[0.5, 0.6, -0.1]], "priors must be None, 'uniform', or 3 prob"),
    (DISCRIMINANT, "priors", [[0.5, 0.5], "flat"], "priors"),
    (DISCRIMINANT, "class_embeddings", [[[1.0, 2.0]]], r"finite vectors of shape \(3, 6\)"),
    (DISCRIMINANT, "class_embeddings", [np.full((3, 6), np.nan)], "class_embeddings"),
    (DISCRIMINANT, "protect_labels", [True], "classes=None"),
    (MINIMISER, "alpha", [1e-30], "alpha=1e-30 is too small"),
    (MINIMISER, "mechanism__sensitivity", ["best"], "sensitivity .*tight"),
    (MINIMISER, "fit_intercept", ["yes"], "fit_intercept"),
    (DESCENT, "class_weight", ["balance", {0: -1.0}, {0: 1j}, 2.0], "class_weight must be"),
    (DESCENT, "class_weight", [{7: 1.0}, {(0, 1): 1.0}, {"0": 2.0}], "which is none of the class"),
    (DESCENT, "class_weight", [{0: 0.0}], r"numbers; got \{0: 0.0\}.*leave out its records"),
    (MINIMISER, "class_weight", ["balanced", {0: 2.0}], "log-odds.*use mechanism='gradient'"),
    (DESCENT, "mechanism", ["objective"], "mechanism"),
    (DESCENT, "mechanism", [GradientPerturbation], "must be one of auto, output, gradient"),
    (DESCENT, "mechanism__n_steps", [10**5 + 1, 2.5], "n_steps"),
    (DESCENT, "mechanism__clip", [1e-85], f"clip {RANGE}"),
    (DESCENT, "mechanism__keep_transcript", ["yes"], "keep_transcript"),
    (DESCENT, "mechanism__start", ["warm"], "one of auto, statistics, prototypes, mean, zero"),
    (DESCENT, "class_embeddings", [VECTORS.T], r"must be None or finite vectors of shape \(3, 6\)"),
    (SVC, "domain", ["cube"], "domain must be one of ball, sphere; got 'cube'"),
]
#: And of several together.
TOGETHER = [
    (PROTOTYPES, {**HIDDEN, "decision": "gaussian"}, "decision='gaussian'"),
    (PROTOTYPES, {"priors": "uniform", "decision": "nearest"}, "gaussian"),
    (DESCENT, {"class_weight": "balanced", **HIDDEN}, "are private; use class_weight=None, or a"),
    (DESCENT, {"class_weight": {0: 2.0}, "alpha": 0.1}, "log-odds.*alpha=0.1 shrinks.*alpha=None"),
    (DESCENT, {"norm_bound": 1e-80, "mechanism__clip": 1e-85}, f"norm_bound {RANGE}"),
    (DESCENT, {"mechanism__start": "mean", "fit_intercept": False}, "fit_intercept=False rules"),
    (DESCENT, {"mechanism__start": "mean", "class_embeddings": VECTORS}, "begins without them"),
    (DESCENT, {"mechanism__start": "zero", "class_embeddings": VECTORS}, "begins without them"),
    (DESCENT, {"epsilon": 1e-14, "delta": 1e-14, "mechanism__n_steps": 1000}, "epsilon"),
    (SVC, {"mechanism": "output", "class_embeddings": VECTORS}, "mechanism='gradient'"),
    (SVC, {"norm_bound": 1e100, "mechanism": "gradient"}, f"norm_bound {RANGE}"),
    (SVC, {"norm_bound": 1e-100, "mechanism": GradientPerturbation(clip=None)}, RANGE),
]
BAD = [(head, {name: v}, match) for head, name, values, match in VALUES for v in values]


@pytest.fixture(scope="module")
def fitted(ball_rows):
    return functools.cache(lambda head: clone(head).fit(*ball_rows))


@pytest.mark.kills("heads/logistic.py", "self._mechanism().needs_alpha", "False")
@pytest.mark.kills("heads/logistic.py", "float(self.alpha) > 0.0", "float(self.alpha) > 9.0")
@pytest.mark.parametrize(
    ("head", "params", "match"), BAD + TOGETHER, ids=lambda value: str(value)[:60]
)
def test_bad_parameters(ball_rows, fitted, head, params, match):
    """Refused by a head that was fitted, too: nothing of that fit stays."""
    refused(copy.copy(fitted(head)).set_params(**params), *ball_rows, match)


def test_odd_rows(ball_rows):
    X, y = ball_rows
    for rows, match in (
        (np.ma.masked_array(X, X > 0.5), "X has a mask"),
        (np.full(X.shape, "2026-01-01", dtype="M8[s]"), "dates or durations"),
        (np.ones(X.shape, dtype="m8[s]"), "dates or durations"),
    ):
        refused(BallDPRidgePrototype(radius=0.5), rows, y, match)


POLICY, STEPS = RadiusPolicy(source="edits"), GradientPerturbation(n_steps=5)
HEADS = [
    Head(mechanism=STEPS, radius=POLICY)
    for Head in (BallDPLogisticRegression, BallDPSquaredHingeSVC)
]


@pytest.mark.parametrize(
    ("head", "params", "match"),
    [
        (PROTOTYPES, {"bogus": 1}, "Invalid parameter 'bogus'"),
        (DISCRIMINANT, {"bogus__a": 1}, "Invalid parameter 'bogus'"),
        (DISCRIMINANT, {"epsilon__a": 1}, "epsilon=1.0 has no param"),
        (BallDPRidgePrototype(radius=POLICY), {"radius__bogus": 1}, "'bogus' for estimator Radius"),
        (DESCENT, {"mechanism__n_steps": 7, "mechanism__bogus": 1}, "Invalid parameter 'bogus'"),
        (DESCENT, {"mechanism": "auto", "mechanism__n_steps": 7}, "has no settings of its own"),
        (HEADS[0], {"mechanism__n_steps": 7, "mechanism__bogus": 1}, "Invalid parameter 'bogus'"),
        (HEADS[0], {"mechanism": "none", "mechanism__n_steps": 7}, "mechanism must be one of"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_parameters_are_set_all_or_none(head, params, match):
    """A mechanism that was given by name stays what it is."""
    head = clone(head)
    before, text = head.get_params(), repr(head)
    with pytest.raises(ValueError, match=match):
        head.set_params(**{"delta": 1e-3, **params})
    assert head.get_params() == before
    assert repr(head) == text


def test_objects_that_heads_share_stay_as_they_are():
    before = HEADS[1].get_params()
    changed = HEADS[0].set_params(mechanism__n_steps=7, radius__quantile=0.3)
    assert (changed.mechanism.n_steps, changed.radius.quantile) == (7, 0.3)
    assert HEADS[1].get_params() == before
    # One that comes with its own settings is not changed either.
    assert HEADS[0].set_params(mechanism=STEPS, mechanism__n_steps=9).mechanism.n_steps == 9
    assert STEPS.n_steps == 5


def texts(nothing):
    return ["a", "b", nothing]


TEXT, DAYS = np.dtypes.StringDType, np.array(["2026-01-01", "2026-01-02", "NaT"], dtype="M8[D]")
#: Three labels or owners, the last of them missing.
MISSING = {
    "list with None": texts(None),
    "list with NaN": texts(np.nan),
    "list with NA": texts(pd.NA),
    "list with NaT": texts(pd.NaT),
    "list with a masked value": texts(np.ma.masked),
    "list with an array of NaN": texts(np.array(np.nan)),
    "list of whole numbers and NaN": [0, 1, float("nan")],
    "bytes and NaN": [b"a", b"b", np.nan],
    "signalling NaN": [Decimal(0), Decimal(1), Decimal("sNaN")],
    "floats": np.array([0.0, 1.0, np.nan]),
    "dates": DAYS,
    "durations": (DAYS - DAYS[0]),
    "texts that spell it NaN": np.array(texts(np.nan), dtype=TEXT(na_object=np.nan)),
    "texts that spell it by a text": np.array(texts("-"), dtype=TEXT(na_object="-")),
    "mask": np.ma.masked_array(["a", "b", "c"], [False, False, True]),
    "pandas texts": pd.Series(texts(None), dtype="string"),
    "pandas categories": pd.Series(texts(None), dtype="category"),
    "pandas whole numbers": pd.Series([0, 1, None], dtype="Int64"),
    "pandas dates with a zone": pd.Series(pd.DatetimeIndex(DAYS, tz="UTC")),
    "arrow numbers of pandas": ("int64[pyarrow]", [0, 1, None]),
    "arrow numbers": ("pyarrow", [0, 1, None]),
    "polars numbers": ("polars", [0, 1, None]),
}


def made(kind):
    """Values of a kind; of a library that need not be there, made where it is."""
    values = MISSING[kind]
    if not (isinstance(values, tuple) and len(values) == 2):
        return values
    library, values = values
    if library.endswith("[pyarrow]"):
        pytest.importorskip("pyarrow")
        return pd.Series(values, dtype=library)
    module = pytest.importorskip(library)
    build = {"pyarrow": "array", "polars": "Series"}[library]
    return getattr(module, build)(values)


@pytest.mark.parametrize("kind", MISSING)
def test_what_is_missing_is_no_class_and_no_owner(kind):
    values = made(kind)
    # Three records, each of a class of its own; as owners, and as classes.
    X, head, match = np.eye(3), clone(PROTOTYPES), "(holds missing values|has a mask)"
    refused(head, X, values, f"^y {match}")
    refused(head, X, [0, 1, 1], f"^groups {match}", groups=values)
    declared = BallDPRidgePrototype(classes=values)
    refused(declared, X, [0, 1, 1], f"^classes {match}")
    for planned, name, given in (
        (head, "y", {"y": values}),
        (head, "groups", {"y": [0, 1, 1], "groups": values}),
        (declared, "classes", {"class_counts": [1, 1, 1]}),
    ):
        with pytest.raises(ValueError, match=f"^{name} {match}"):
            planned.plan(3, 3, **given)


@pytest.mark.kills("_validation.py", "len({*map(_kind_of, y)}) > 1", "False")
@pytest.mark.parametrize("other", ["a", True, b"a", np.str_("1")])
def test_no_label_changes_all_others(other):
    """NumPy makes texts of all numbers for one text, and numbers of truth values."""
    for y in ([0, 1, 2, other], (0.0, 1.0, other, 2)):
        refused(clone(PROTOTYPES), np.eye(4), y, "^y holds labels of several types")


@pytest.mark.parametrize(
    "values",
    [
        pd.date_range("2024", periods=3, tz="UTC"),
        pd.period_range("2024", periods=3),
        [Decimal(1)] * 3,
    ],
    ids=["zone", "period", "decimal"],
)
def test_labels_of_other_types_are_refused_with_the_remedy(values):
    y = np.empty(3, dtype=object)
    y[:] = list(values)
    kind = type(y[0]).__name__
    refused(clone(PROTOTYPES), np.eye(3), y, f"Unknown label type in y, {kind}: .*astype")
    with pytest.raises(ValueError, match="pass texts or whole numbers"):
        clone(PROTOTYPES).plan(3, 3, y=y)


@pytest.mark.parametrize(
    "values",
    [["a", "b", "nan"], np.array(["a", "None", ""]), np.array(["a", "b", ""], dtype=TEXT())],
    ids=str,
)
def test_texts_that_look_like_nothing_are_labels(values):
    head = BallDPRidgePrototype(radius=0.5, delta=1e-3).fit(np.eye(3), values, groups=values)
    assert head.classes_.tolist() == sorted(values)
    assert head.release_.n_units == 3
    declared = BallDPRidgePrototype(radius=0.5, delta=1e-3, classes=values).fit(np.eye(3), values)
    for fitted in (head, declared):
        # What it predicts can be scored: scikit-learn takes no texts of variable width.
        assert 0.0 <= accuracy_score(list(values), fitted.predict(np.eye(3))) <= 1.0


POLICY_OF_ROWS = {"radius": RadiusPolicy()}


def odd(X):
    X = X.copy()
    X[3, 0] = np.nan
    return X


@pytest.mark.kills("_validation.py", "error.__context__ = None", "pass")
@pytest.mark.parametrize(
    "of_rows",
    [
        lambda head, X, y: clone(head).fit(odd(X), y),
        lambda head, X, y: head.predict(odd(X)),
        lambda head, X, y: RadiusPolicy(source="declared").fit(odd(X), y),
        lambda head, X, y: project_onto_ball(odd(X), 1.0),
        lambda head, X, y: (
            clone(head)
            .set_params(domain="sphere", **POLICY_OF_ROWS)
            .fit(X, y, X_public=odd(X), y_public=y)
        ),
        lambda head, X, y: ReconstructionAuditor(FrozenEstimator(head), n_candidates=2).fit(
            X, y, odd(X), y
        ),
        lambda head, X, y: hold_out(np.array([1, "a"], dtype=object), None, 0.5, True, None),
    ],
    ids=["fit", "predict", "policy", "projection", "public", "audit", "labels"],
)
def test_no_error_keeps_one_whose_frames_hold_rows(ball_rows, of_rows):
    head = BallDPLogisticRegression(2.0, radius=0.5).fit(*ball_rows)
    with pytest.raises(ValueError, match=r"NaN|refused|hold|mixes") as caught:
        of_rows(head, *ball_rows)
    assert caught.value.__context__ is None
