"""What is public about the classes: examples of them, as sums and as a linear model.

These are public numbers of a fit, and cost no privacy: they never depend on a private record.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from ..losses import Array
from ..rows import rows_in_domain

#: Inverse penalty of the examples' own model.
_PENALTY = 10.0
#: Sizes of the arrays that a folder keeps: k classes, d features.
_SIZES = dict(counts="k", means="kd", moment="dd", coef="kd", intercept="k", told="2")
#: Folds that tell the factor of its scores, and factors that are tried.
_FOLDS, _FACTORS = 5, np.geomspace(1e-3, 10.0, 200)


@dataclass(frozen=True, eq=False)
class Examples:
    """Sums of public records in units of the norm bound, and a linear model of them.

    Attributes
    ----------
    counts : ndarray of shape (n_classes,)
        Records of each class; a class without any has none of what follows (zeros).
    means : ndarray of shape (n_classes, n_features)
        Mean of each class.
    moment : ndarray of shape (n_features, n_features)
        Second moment of all records, divided by their number; zeros where there is no model.
    coef, intercept : ndarray of shape (n_classes, n_features) and (n_classes,)
        Their own logistic regression, scaled so that its scores fit records that it has not seen.
    told : ndarray of shape (2,)
        On such records: mean variance of the scores under their own probabilities, and mean
        variance of a class's indicator, added up over the classes. Zeros where there is no model.
    """

    counts: Array
    means: Array
    moment: Array
    coef: Array
    intercept: Array
    told: Array

    def __post_init__(self) -> None:
        # What was released stays as it is, and so does what it follows from.
        for array in self.arrays().values():
            array.setflags(write=False)

    @classmethod
    def of(
        cls,
        X: Array,
        codes: NDArray[np.intp],
        n_classes: int,
        *,
        norm_bound: float = 1.0,
        domain: str = "ball",
    ) -> Self:
        """Of public rows, which are brought into the domain, and the positions of their classes."""
        rows = rows_in_domain(np.array(X, dtype=np.float64), norm_bound, domain) / norm_bound
        counts = np.bincount(codes, minlength=n_classes).astype(np.float64)
        sums = np.zeros((n_classes, rows.shape[1]))
        np.add.at(sums, codes, rows)
        coef, intercept, scores = _model(rows, codes, n_classes)
        return cls(
            counts=counts,
            means=sums / np.maximum(counts, 1.0)[:, None],
            moment=rows.T @ rows / max(len(rows), 1),
            coef=coef,
            intercept=intercept,
            told=_told(scores),
        )

    @classmethod
    def of_vectors(cls, vectors: Array) -> Self:
        """Of one public vector for each class, such as the embedding of its name: no model."""
        n_classes, n_features = vectors.shape
        return cls(
            counts=np.ones(n_classes),
            means=np.array(vectors, dtype=np.float64),
            moment=np.zeros((n_features, n_features)),
            coef=np.zeros(vectors.shape),
            intercept=np.zeros(n_classes),
            told=np.zeros(2),
        )

    def arrays(self) -> dict[str, Array]:
        """All of it by name, as a folder keeps it: ``Examples(**arrays)`` is the same."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @classmethod
    def shapes(cls, n_classes: int, n_features: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays by name."""
        size = {"k": n_classes, "d": n_features, "2": 2}
        return {name: tuple(size[axis] for axis in axes) for name, axes in _SIZES.items()}

    def with_names(self, vectors: Array) -> Self:
        """The same, with one ``vector`` in place of the mean of each class that has no example.

        It counts as one example there, in units of the norm bound. The model does not know it.
        """
        lacks = self.counts == 0.0
        counts, added = np.where(lacks, 1.0, self.counts), vectors[lacks]
        moment = (self.counts.sum() * self.moment + added.T @ added) / counts.sum()
        means = np.where(lacks[:, None], vectors, self.means)
        return replace(self, counts=counts, means=means, moment=moment)

    @property
    def targets(self) -> Array:
        """What class means are shrunk towards: a class without examples is where the others are."""
        lacks = self.counts == 0.0
        middle = self.means[~lacks].mean(axis=0) if not lacks.all() else 0.0
        return np.where(lacks[:, None], middle, self.means)

    @property
    def total(self) -> int:
        """Number of records."""
        return int(self.counts.sum())

    @property
    def has_model(self) -> bool:
        """Whether there is a model, or vectors of the classes alone."""
        return bool(self.told.any())

    def noise_of_means(self) -> float:
        """What sampling adds to the squared norm of a class mean; infinite for one example each."""
        n, occupied = self.counts.sum(), self.counts > 0.0
        freedom = n - occupied.sum()
        if freedom <= 0.0 or not self.moment.any():
            return math.inf
        within = n * float(np.trace(self.moment)) - float(
            self.counts @ np.vecdot(self.means, self.means)
        )
        return max(within, 0.0) / float(freedom) / float(self.counts[occupied].mean())


def _model(X: Array, codes: NDArray[np.intp], n_classes: int) -> tuple[Array, Array, Array]:
    """Weights and intercepts of each class, and scores by models that have not seen the record."""
    coef, intercept = _fitted(X, codes, n_classes)
    counts = np.bincount(codes, minlength=n_classes)
    # Each class in all folds as evenly as can be; one alone is scored by a model without it.
    order = np.argsort(codes, kind="stable")
    starts = np.cumsum(counts) - counts
    folds = np.empty(len(codes), dtype=int)
    folds[order] = (np.arange(len(codes)) - starts[codes[order]]) % _FOLDS
    scores = np.empty((len(codes), n_classes))
    for fold in np.unique(folds):
        seen = folds != fold
        if not seen.any():
            return coef, intercept, np.zeros(scores.shape)
        weights, offsets = _fitted(X[seen], codes[seen], n_classes)
        scores[~seen] = X[~seen] @ weights.T + offsets
    own = scores[np.arange(len(codes)), codes]
    losses = [float(np.mean(logsumexp(f * scores, axis=1) - f * own)) for f in _FACTORS]
    factor = float(_FACTORS[int(np.argmin(losses))])
    return factor * coef, factor * intercept, factor * scores


def _fitted(X: Array, codes: NDArray[np.intp], n_classes: int) -> tuple[Array, Array]:
    """Weights and intercepts whose sum is zero; zeros for a class without records."""
    from sklearn.linear_model import LogisticRegression

    coef, intercept = np.zeros((n_classes, X.shape[1])), np.zeros(n_classes)
    present = np.unique(codes)
    if len(present) > 1:
        fit = LogisticRegression(C=_PENALTY, max_iter=300).fit(X, codes)
        weights, offsets = fit.coef_, fit.intercept_
        if len(present) == 2:
            weights, offsets = np.vstack([-weights, weights]) / 2.0, np.hstack([-offsets, offsets])
            offsets = offsets / 2.0
        coef[present], intercept[present] = weights - weights.mean(axis=0), offsets - offsets.mean()
    return coef, intercept


def _told(scores: Array) -> Array:
    """How sure the model is, from scores of records that it has not seen."""
    p: Any = softmax(scores, axis=1)
    spread = np.vecdot(p, scores**2) - np.vecdot(p, scores) ** 2
    return np.array([float(np.mean(spread)), float(np.mean(np.vecdot(p, 1.0 - p)))])
