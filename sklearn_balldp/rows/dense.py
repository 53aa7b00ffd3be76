"""Sparse rows as dense ones, as a step of a pipeline."""

from typing import Any, ClassVar

from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

from ..pipelines import RowWise


class DenseRows(RowWise, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Make sparse rows dense, for the heads take no others.

    It learns nothing, so that one record moves one row. A model that holds it can be saved and
    verified, other than one with a function of yours as a step.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import HashingVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_balldp.rows import DenseRows
    >>> words = make_pipeline(HashingVectorizer(n_features=512), DenseRows())
    >>> words.transform(["one text", "another"]).shape
    (2, 512)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {}

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

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.sparse = True
        return tags
