"""The parts of a model: its head, the steps before it, and which of them look beyond one row.

A step that learns nothing may still compare rows. So steps are known by their class, or are not.
"""

import contextlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import joblib
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import validate_data

#: Classes by the public module that has them.
Classes = Mapping[str, tuple[str, ...]]

#: The fit of these reads at most the shape and the type of the rows.
LEARN_NOTHING: Classes = {
    "sklearn.feature_extraction": ("FeatureHasher",),
    "sklearn.feature_extraction.text": ("HashingVectorizer",),
    "sklearn.kernel_approximation": ("PolynomialCountSketch", "RBFSampler", "SkewedChi2Sampler"),
    "sklearn.preprocessing": ("Binarizer", "Normalizer", "PolynomialFeatures"),
    "sklearn.random_projection": ("GaussianRandomProjection", "SparseRandomProjection"),
}
#: These map each row by itself once they are fitted.
ROW_WISE_ONCE_FITTED: Classes = {
    "sklearn.decomposition": ("IncrementalPCA", "PCA", "TruncatedSVD"),
    "sklearn.feature_extraction.text": ("CountVectorizer", "TfidfTransformer", "TfidfVectorizer"),
    "sklearn.feature_selection": ("SelectKBest", "SelectPercentile", "VarianceThreshold"),
    "sklearn.impute": ("SimpleImputer",),
    "sklearn.preprocessing": (
        *("KBinsDiscretizer", "MaxAbsScaler", "MinMaxScaler", "OneHotEncoder", "OrdinalEncoder"),
        *("RobustScaler", "StandardScaler"),
    ),
}
_LEARNS = "learns from the rows"
_UNKNOWN = "is not known to map each row by itself"


class ByContent:
    """An estimator that Dask tells from others by all of it: several fits may share parameters."""

    def __dask_tokenize__(self) -> str:
        return str(joblib.hash(self))


class Head(ByContent):
    """What the heads of this package derive from: rooms below theirs know them by it."""


class RowWise:
    """A step that maps each row by itself: derive a transformer of your own from it to say so.

    Whatever the other rows are, in ``fit`` and in ``transform``, what becomes of a row stays the
    same, to the last bit. Nobody checks that: it is you who vouches for it. Audits, :func:`.save`
    and cards then warn of the step no more, and :class:`.PrivateAccuracy` scores models that have
    it.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.base import BaseEstimator, TransformerMixin
    >>> from sklearn_balldp.pipelines import RowWise
    >>> class Logarithms(RowWise, TransformerMixin, BaseEstimator):
    ...     def fit(self, X, y=None):
    ...         return self
    ...
    ...     def transform(self, X):
    ...         return np.log1p(X)
    """


class Stateless(RowWise, TransformerMixin, BaseEstimator):
    """A step of this package that learns nothing, and transforms without a fit."""

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


class DenseRows(OneToOneFeatureMixin, Stateless):
    """Make sparse rows dense, for the heads take no others.

    It learns nothing, so that one record moves one row. A model that holds it can be saved and
    verified, other than one with a function of yours as a step.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import HashingVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_balldp.pipelines import DenseRows
    >>> words = make_pipeline(HashingVectorizer(n_features=512), DenseRows())
    >>> words.transform(["one text", "another"]).shape
    (2, 512)
    """

    def fit(self, X: Any, y: Any = None) -> "DenseRows":
        """Note the number of features; nothing is learned."""
        validate_data(self, X, accept_sparse=True)
        return self

    def transform(self, X: Any) -> Any:
        """The same rows, dense."""
        is_first = not hasattr(self, "n_features_in_")
        # From other formats SciPy makes these, and sorts what is repeated in one way for all rows:
        # the order of one row's entries would change how those of another are added up.
        X = validate_data(self, X, accept_sparse=["csr", "csc", "coo"], reset=is_first)
        return X.toarray() if hasattr(X, "toarray") else X

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@dataclass(frozen=True)
class ModelParts:
    """A model taken apart: its ``head``, named ``steps`` before it, and whether it is ``frozen``.

    ``outer_type`` names what held the model (an auditor, say); it is empty if nothing did.
    """

    head: Any
    steps: tuple[tuple[str, Any], ...] = ()
    frozen: bool = False
    outer_type: str = ""

    @property
    def encoder(self) -> str | None:
        """Name and digest of the encoder among the steps; None without one, or without weights."""
        for _, step in self.steps:
            with contextlib.suppress(AttributeError, ImportError, ValueError):
                return str(step.identity)
        return None

    @property
    def beyond_rows(self) -> str:
        """Which steps look beyond one row, or may, and why; empty if none does."""
        return "; ".join(_named_reasons(self.steps))


def parts_of(model: Any) -> ModelParts:
    """Take a model apart: a Pipeline, a frozen model, or what an auditor holds."""
    steps: list[tuple[str, Any]] = []
    frozen, wrapper = False, ""
    while True:
        if isinstance(model, FrozenEstimator):
            frozen, model = True, model.estimator
        elif isinstance(model, Pipeline) and model.steps:
            steps += model.steps[:-1]
            model = model.steps[-1][1]
        elif not isinstance(model, Head) and hasattr(model, "estimator_"):
            wrapper = wrapper or type(model).__name__
            model = model.estimator_
        else:
            return ModelParts(model, tuple(steps), frozen, wrapper)


def beside_head(model: Any) -> list[str]:
    """What a model's predictions take beside one fitted Ball-DP head that it ends in, in words."""
    others: list[str] = []
    while type(model) is FrozenEstimator or (type(model) is Pipeline and model.steps):
        if type(model) is FrozenEstimator:
            model = model.estimator
        else:
            others += _named_reasons(model.steps[:-1])
            model = model.steps[-1][1]
    if not (isinstance(model, Head) and hasattr(model, "release_")):
        others.append(f"{type(model).__name__} is no fitted Ball-DP head")
    return others


def is_one_of(instance: Any, classes: Classes) -> bool:
    """Whether an object is of one of these classes themselves, of modules that were imported."""
    imported = {module: vars(sys.modules[module]) for module in classes if module in sys.modules}
    return any(
        type(instance) is content.get(name)
        for module, content in imported.items()
        for name in classes[module]
    )


def _named_reasons(steps: Iterable[tuple[str, Any]]) -> list[str]:
    named = ((name, beyond_row(step)) for name, step in steps)
    return [f"{name} {reason}" for name, reason in named if reason]


def beyond_row(step: Any, *, frozen: bool = False) -> str | None:
    """How a step looks, or may look, beyond the one row that it maps; None where it does not."""
    if step is None or isinstance(step, (str, RowWise)):
        return None
    if type(step) is FrozenEstimator:
        return beyond_row(step.estimator, frozen=True)
    if is_one_of(step, {"sklearn.compose": ("ColumnTransformer",)}):
        inner = [*(part for _, part, _ in step.transformers), step.remainder]
        if not frozen and any(callable(columns) for *_, columns in step.transformers):
            return "chooses columns by the rows: name them"
        if not frozen and step.sparse_threshold != 0:
            return "makes its output sparse or not by the rows: set sparse_threshold=0"
        return _first_reason(inner, frozen)
    if is_one_of(step, {"sklearn.pipeline": ("FeatureUnion", "Pipeline")}):
        parts = step.steps if type(step) is Pipeline else step.transformer_list
        return _first_reason([part for _, part in parts], frozen)
    if is_one_of(step, {"sklearn.preprocessing": ("FunctionTransformer",)}) and step.func is None:
        return None  # what a fit puts in place of "passthrough"
    if is_one_of(step, LEARN_NOTHING):
        # Colliding values are added up in an order that other rows may change; ones stay exact.
        if getattr(step, "input_type", "string") != "string":
            return _UNKNOWN
        return _LEARNS if not frozen and getattr(step, "gamma", None) == "scale" else None
    if is_one_of(step, ROW_WISE_ONCE_FITTED):
        return None if frozen else _LEARNS
    return _UNKNOWN if frozen or not _requires_fit(step) else _LEARNS


def _first_reason(steps: Iterable[Any], frozen: bool) -> str | None:
    return next(filter(None, (beyond_row(step, frozen=frozen) for step in steps)), None)


def _requires_fit(step: Any) -> bool:
    try:
        return bool(get_tags(step).requires_fit)
    except Exception:
        return True  # without tags, assume that it does
