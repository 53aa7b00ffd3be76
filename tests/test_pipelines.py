"""Steps that map each row by itself: those listed do, to the last bit; no other is taken."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from other_rows import LAYOUTS, of_many_sizes, strangers
from sklearn import feature_extraction, impute, preprocessing, random_projection
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.ensemble import VotingClassifier
from sklearn.feature_extraction import text
from sklearn.feature_selection import SelectKBest, SelectPercentile, VarianceThreshold
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import PolynomialCountSketch, RBFSampler, SkewedChi2Sampler
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler, scale
from sklearn.utils import all_estimators

from sklearn_balldp import BallDPRidgePrototype, RadiusPolicy
from sklearn_balldp.encoders import ImageEncoder, SentenceEncoder
from sklearn_balldp.pipelines import (
    LEARN_NOTHING,
    ROW_WISE_ONCE_FITTED,
    DenseRows,
    RowWise,
    beside_head,
    beyond_row,
    parts_of,
)

RNG = np.random.default_rng(0)
N, D = 40, 10
X, Y = RNG.standard_normal((N, D)), np.arange(N) % 2
WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
UNKNOWN = "is not known to map each row by itself"


# Kinds of records: some that a step is fitted to, some that it maps, others that may stand in the
# place of one of these, and the container that it takes.


def dense():
    """Rows, and rows of all sizes, in several layouts and precisions."""
    for dtype, layout in ((np.float64, "C"), (np.float32, "F")):
        for rows in (X.astype(dtype), of_many_sizes(X.astype(dtype))):
            yield X.astype(dtype), rows, strangers(rows[7]), LAYOUTS[layout]
    yield X, X, strangers(X[7])[:3], LAYOUTS["strided"]


def sparse(forms=(sp.csr_array, sp.csc_matrix)):
    yield from dense()
    for form in forms:
        for rows in (X * (X > 0.3), of_many_sizes(X) * (X > 0.3)):
            yield X, rows, strangers(rows[7]), form


def positive():
    yield np.abs(X), np.abs(X), [np.abs(row) for row in strangers(X[7])], np.asarray


def gaps():
    yield from dense()
    rows = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
    yield X, rows, [*strangers(X[7]), np.full(D, np.nan)], np.asarray


def tokens():
    lists = [RNG.choice([*WORDS], size=1 + i % 9).tolist() for i in range(N)]
    yield lists, lists, [[], ["z"], ["one"] * 3000, [*WORDS][::-1], [*WORDS] * 20], list


def texts():
    ((lists, _, others, _),) = tokens()
    some = [*map(" ".join, lists)]
    yield some, some, [*map(" ".join, others), "caf\u00e9 \u2603", "ONE"], list


def categories():
    cells = RNG.choice(["red", "green", "blue"], size=(N, 3)).astype(object)
    others = [["", "", ""], ["a new and much longer one", "red", "x"], ["blue", "blue", "blue"]]
    yield cells, cells, [np.array(row, dtype=object) for row in others], np.asarray


#: Of each listed class: an unfitted step, and the records that it takes.
CASES = [
    (feature_extraction.FeatureHasher(4, input_type="string"), tokens),
    (text.HashingVectorizer(n_features=8), texts),
    (PolynomialCountSketch(n_components=9, coef0=1, random_state=0), sparse),
    (RBFSampler(n_components=9, random_state=0), sparse),
    (SkewedChi2Sampler(n_components=9, random_state=0), positive),
    (preprocessing.Binarizer(), sparse),
    (Normalizer(), sparse),
    (preprocessing.PolynomialFeatures(2), sparse),
    (random_projection.GaussianRandomProjection(5, random_state=0), sparse),
    (random_projection.SparseRandomProjection(5, random_state=0), sparse),
    (IncrementalPCA(4, whiten=True, batch_size=16), sparse),
    (PCA(4, whiten=True), dense),
    (TruncatedSVD(4, random_state=0), sparse),
    (text.CountVectorizer(), texts),
    (text.TfidfTransformer(sublinear_tf=True), positive),
    (text.TfidfVectorizer(sublinear_tf=True), texts),
    (SelectKBest(k=4), sparse),
    (SelectPercentile(percentile=40), sparse),
    (VarianceThreshold(0.3), sparse),
    (impute.SimpleImputer(add_indicator=True), gaps),
    (preprocessing.KBinsDiscretizer(4, strategy="uniform"), dense),
    (preprocessing.MaxAbsScaler(), sparse),
    (preprocessing.MinMaxScaler(clip=True), dense),
    (preprocessing.OneHotEncoder(handle_unknown="ignore"), categories),
    (
        preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
        categories,
    ),
    (preprocessing.RobustScaler(), dense),
    (StandardScaler(), dense),
]
CASES = {type(step).__name__: (step, kind) for step, kind in CASES}
OWN = {"DenseRows": (DenseRows(), lambda: sparse([sp.csr_array, sp.csc_matrix, sp.coo_array]))}


def listed(*lists):
    return [name for classes in lists for names in classes.values() for name in names]


def without(rows, place):
    """All rows but one, as bytes of a dense array."""
    rows = rows.toarray() if sp.issparse(rows) else np.asarray(rows)
    return rows.dtype, np.delete(rows, place, axis=0).tobytes()


def replaced(rows, place, other):
    changed = rows.copy()
    changed[place] = other
    return changed


def test_every_listed_class_has_a_case():
    assert sorted(CASES) == sorted(listed(LEARN_NOTHING, ROW_WISE_ONCE_FITTED))
    for name, (step, _) in CASES.items():
        assert beyond_row(FrozenEstimator(step)) is None
        learns = None if name in listed(LEARN_NOTHING) else "learns from the rows"
        assert beyond_row(step) == learns


def test_the_documentation_lists_them():
    page = Path(__file__).parents[1] / "docs" / "troubleshooting.md"
    section = page.read_text().partition("## Steps that are not known")[2]
    rows = [line for line in section.splitlines() if line.startswith("|`")]
    others = {"encoders", "RadiusPolicy", "FrozenEstimator"}
    for classes, row in zip((LEARN_NOTHING, ROW_WISE_ONCE_FITTED), rows, strict=False):
        assert set(listed(classes)) == set(re.findall(r"`(\w+)[`(]", row)) - others


def moves_others(step, kind, learns=True):
    """Whether any record in the place of another moves what a fitted step makes of the rest.

    What learns nothing is fitted to the other record too.
    """
    with np.errstate(all="ignore"):
        for plain, rows, others, made in kind():
            fitted = clone(step).fit(made(plain), Y)
            expected = without(fitted.transform(made(rows)), 7)
            for other in others:
                changed = made(replaced(rows, 7, other))
                fitted = fitted if learns else clone(step).fit(changed)
                if without(fitted.transform(changed), 7) != expected:
                    return True
    return False


@pytest.mark.parametrize("name", [*CASES, *OWN])
def test_a_row_moves_no_other(name):
    assert not moves_others(*{**CASES, **OWN}[name], name in listed(ROW_WISE_ONCE_FITTED))


def test_the_search_finds_steps_that_pool():
    assert moves_others(Pooling(), dense)
    assert moves_others(FunctionTransformer(lambda X: X / np.abs(X).max()), dense)
    assert moves_others(StandardScaler(), dense, learns=False)


def test_repeated_entries_are_added_up_row_by_row():
    """SciPy sorts the entries of all rows, in an order of its own, if one row has them unsorted."""
    values = RNG.standard_normal(40) * 10.0 ** RNG.integers(-8, 8, 40)

    def rows(columns):
        place = np.r_[np.zeros(40, dtype=int), 1, 1], np.r_[np.zeros(40, dtype=int), columns]
        return sp.coo_array((np.r_[values, 1.0, 1.0], place), shape=(2, 3))

    step = DenseRows().fit(rows([0, 1]))
    assert without(step.transform(rows([0, 1])), 1) == without(step.transform(rows([1, 0])), 1)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.coo_array, sp.csc_matrix])
def test_dense_rows_are_those_of_the_sparse_ones(form):
    X = np.array([[0.0, 1.0, 0.0], [2.0, 0.0, -3.0]])
    dense = DenseRows().fit_transform(form(X))
    assert type(dense) is np.ndarray
    np.testing.assert_array_equal(dense, X)
    with pytest.raises(ValueError, match="3 features"):
        DenseRows().fit(form(X)).transform(form(X)[:, :2] if form is np.asarray else X[:, :2])


# Steps that are not taken -------------------------------------------------------------------------


class Logarithms(RowWise, TransformerMixin, BaseEstimator):
    """A step of one's own, whose author vouches for it."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return np.log1p(np.abs(X))


class Pooling(Normalizer):
    """A subclass of a listed class, which does otherwise."""

    _row_wise = True

    def transform(self, X):
        return scale(X)


class Sampled(TransformerMixin, BaseEstimator):
    """A step without tags that scikit-learn can read."""

    def __sklearn_tags__(self):
        raise RuntimeError


def columns(step, names=(0, 1), **options):
    return ColumnTransformer([("some", step, names)], **options)


LEARNS = "learns from the rows"
SCALED = FrozenEstimator(StandardScaler().fit(X))
STEPS = [
    *((step, None) for step in (None, "passthrough", SCALED, DenseRows(), Logarithms())),
    *((step, None) for step in (SentenceEncoder("m"), ImageEncoder("n"), RadiusPolicy())),
    (FunctionTransformer(), None),
    (FunctionTransformer(scale), UNKNOWN),
    (FrozenEstimator(FunctionTransformer(scale)), UNKNOWN),
    (Pooling(), UNKNOWN),
    (FrozenEstimator(Pooling()), UNKNOWN),
    (Sampled(), LEARNS),
    (StandardScaler(), LEARNS),
    # Its width follows from the variance of the rows.
    (RBFSampler(gamma="scale"), LEARNS),
    (FrozenEstimator(RBFSampler(gamma="scale").fit(X)), None),
    # Values that collide are rounded in an order that other rows may change.
    (feature_extraction.FeatureHasher(4), UNKNOWN),
    # What holds others is as they are.
    (make_pipeline(Normalizer(), SCALED), None),
    (make_pipeline(Normalizer(), StandardScaler()), LEARNS),
    (FrozenEstimator(make_pipeline(Normalizer(), StandardScaler()).fit(X)), None),
    (FrozenEstimator(make_pipeline(FunctionTransformer(scale), PCA(2)).fit(X)), UNKNOWN),
    (FeatureUnion([("a", Normalizer()), ("b", "passthrough"), ("c", "drop")]), None),
    (FeatureUnion([("a", Normalizer()), ("b", "passthrough")]).fit(X), None),
    (FeatureUnion([("a", Normalizer()), ("b", FunctionTransformer(scale))]), UNKNOWN),
    (columns(SCALED, sparse_threshold=0), None),
    (columns(Normalizer(), sparse_threshold=0, remainder=StandardScaler()), LEARNS),
    (columns(StandardScaler(), sparse_threshold=0), LEARNS),
    (FrozenEstimator(columns(StandardScaler(), remainder=Normalizer()).fit(X)), None),
    (FrozenEstimator(columns(FunctionTransformer(scale)).fit(X)), UNKNOWN),
    (columns(Normalizer()), "makes its output sparse or not by the rows: set sparse_threshold=0"),
    (
        columns(Normalizer(), make_column_selector(), sparse_threshold=0),
        "chooses columns by the rows: name them",
    ),
]


@pytest.mark.parametrize(("step", "reason"), STEPS)
@pytest.mark.kills(
    "pipelines.py",
    "return _UNKNOWN if frozen or not _requires_fit(step) else _LEARNS",
    "return None if frozen or not _requires_fit(step) else _LEARNS",
)
def test_what_is_said_of_a_step(step, reason):
    assert beyond_row(step) == reason
    model = Pipeline([("it", step), ("head", BallDPRidgePrototype())])
    assert parts_of(model).beyond_rows == ("" if reason is None else f"it {reason}")


def test_no_other_class_of_scikit_learn_is_taken():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kinds = dict(all_estimators(type_filter="transformer"))
    known = set()
    for name, kind in kinds.items():
        required = {
            "ColumnTransformer": {"transformers": []},
            "FeatureUnion": {"transformer_list": []},
        }
        try:
            step = kind(**required.get(name, {}))
        except TypeError:
            step = kind.__new__(kind)
        if beyond_row(step, frozen=True) is None:
            known.add(name)
    hollow = {"ColumnTransformer", "FeatureUnion", "FunctionTransformer"}
    # These are no transformers by their class; by default the last takes numbers.
    others = {"CountVectorizer", "TfidfVectorizer", "FeatureHasher"}
    assert known == {*CASES, *hollow} - others


# Heads --------------------------------------------------------------------------------------------


class Fake(BaseEstimator):
    """Anything may have such attributes."""

    release_ = estimator_ = None
    __module__ = "sklearn_balldp.heads"


def test_heads_are_known_by_their_type():
    head = BallDPRidgePrototype(4.0, radius=0.5).fit(X, Y)
    assert beside_head(head) == []
    assert beside_head(make_pipeline(Normalizer(), FrozenEstimator(head))) == []
    vote = VotingClassifier([("a", head), ("b", clone(head))]).fit(X, Y)
    for other in (Fake(), BallDPRidgePrototype(), FrozenEstimator(Fake()), vote):
        name = type(getattr(other, "estimator", other)).__name__
        assert beside_head(other) == [f"{name} is no fitted Ball-DP head"]
    assert parts_of(Fake()).outer_type == "Fake"

    class Own(Pipeline):
        pass

    assert beside_head(Own([("head", head)])) == ["Own is no fitted Ball-DP head"]
    steps = make_pipeline(FunctionTransformer(scale), head)
    assert beside_head(steps) == [f"functiontransformer {UNKNOWN}"]
