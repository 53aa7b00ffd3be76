"""What is public about the classes: sums of examples of them, and a linear model.

These are public numbers of a fit, and cost no privacy: they never depend on a private record.
"""

from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from ..losses import Array
from ..rows import blas_threads_for, rows_in_domain
from .settings import CLIP

#: Inverse penalty of the examples' own model.
_PENALTY = 10.0
#: Folds that tell the factor of its scores, and factors that are tried.
_FOLDS, _FACTORS = 5, np.geomspace(1e-3, 10.0, 200)


@dataclass(frozen=True, eq=False)
class Examples:
    """Sums of public records in units of the norm bound, and a linear model of them.

    Scores of the model are log-odds of classes that are equally common. Everything that is said of
    them comes from records that the model has not seen. All of it is zero where nothing is known:
    ``within`` and what follows from scores if no class has two records.

    Attributes
    ----------
    counts : ndarray of shape (n_classes,)
        Records of each class.
    means : ndarray of shape (n_classes, n_features)
        Mean of each class.
    within : ndarray of shape (n_features, n_features)
        Covariance within classes.
    coef, intercept : ndarray of shape (n_classes, n_features) and (n_classes,)
        Their own logistic regression, scaled so that its scores fit records that it has not seen.
    cross, spread : ndarray of shape (n_classes, n_features) and (n_classes,)
        Covariance within classes of each score with the features, and its variance there.
    told : ndarray of shape (2,)
        Mean variance of a record's scores under their own probabilities, and the mean curvature of
        the loss of clipped residuals, added up over the scores.
    """

    counts: Array = field(metadata={"axes": "k"})
    means: Array = field(metadata={"axes": "kd"})
    within: Array = field(metadata={"axes": "dd"})
    coef: Array = field(metadata={"axes": "kd"})
    intercept: Array = field(metadata={"axes": "k"})
    cross: Array = field(metadata={"axes": "kd"})
    spread: Array = field(metadata={"axes": "k"})
    told: Array = field(metadata={"axes": "2"})

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
        with blas_threads_for(rows.shape[1]):
            coef, intercept, scores = _model(rows, codes, n_classes)
        counts = np.bincount(codes, minlength=n_classes).astype(np.float64)
        known = counts > 0.0
        intercept[known] -= np.log(counts[known]) - np.log(counts[known]).mean()
        means = _means(rows, codes, counts)
        apart, moved = rows - means[codes], scores - _means(scores, codes, counts)[codes]
        freedom = max(len(rows) - int(known.sum()), 1)
        return cls(
            counts=counts,
            means=means,
            within=apart.T @ apart / freedom,
            coef=coef,
            intercept=intercept,
            cross=moved.T @ apart / freedom,
            spread=np.vecdot(moved.T, moved.T) / freedom,
            told=_told(scores, codes) if counts.max() > 1.0 else _told_of_vectors(coef),
        )

    @classmethod
    def of_vectors(cls, vectors: Array) -> Self:
        """Of one public vector for each class, such as the embedding of its name."""
        n_classes, n_features = vectors.shape
        return cls(
            counts=np.ones(n_classes),
            means=np.array(vectors, dtype=np.float64),
            within=np.zeros((n_features, n_features)),
            coef=vectors - vectors.mean(axis=0),
            intercept=np.zeros(n_classes),
            cross=np.zeros(vectors.shape),
            spread=np.zeros(n_classes),
            told=_told_of_vectors(vectors - vectors.mean(axis=0)),
        )

    def arrays(self) -> dict[str, Array]:
        """All of it by name, as a folder keeps it: ``Examples(**arrays)`` is the same."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @classmethod
    def shapes(cls, n_classes: int, n_features: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays by name, as a folder keeps them."""
        size = {"k": n_classes, "d": n_features, "2": 2}
        return {f.name: tuple(size[axis] for axis in f.metadata["axes"]) for f in fields(cls)}

    @property
    def total(self) -> int:
        """Number of records."""
        return int(self.counts.sum())

    @property
    def freedom(self) -> int:
        """Records beyond the first of each class: with none, nothing tells how classes spread."""
        return self.total - int((self.counts > 0.0).sum())

    def covariance(self) -> Array:
        """Covariance of all records, shrunk towards a multiple of the identity (OAS).

        Where nothing tells how classes spread, it is that of rows of norm 1 in all directions.
        """
        n, d = float(self.total), self.means.shape[1]
        if self.freedom == 0:
            return np.eye(d) / d
        apart = self.means - self.counts @ self.means / n
        moment = self.within * (self.freedom / n) + (apart.T * self.counts) @ apart / n
        mean, square = float(np.trace(moment)) / d, float((moment**2).sum()) / d**2
        below = (n + 1.0) * (square - mean**2 / d)
        share = min((square + mean**2) / below, 1.0) if below > 0.0 else 1.0
        covariance: Array = (1.0 - share) * moment + share * mean * np.eye(d)
        return covariance


def _means(values: Array, codes: NDArray[np.intp], counts: Array) -> Array:
    """Mean of each class; zeros for one without records."""
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, codes, values)
    return sums / np.maximum(counts, 1.0)[:, None]


def _model(X: Array, codes: NDArray[np.intp], n_classes: int) -> tuple[Array, Array, Array]:
    """Weights and intercepts of each class, and scores by models that have not seen the record."""
    coef, intercept = _fitted(X, codes, n_classes)
    counts = np.bincount(codes, minlength=n_classes)
    if counts.max() < 2:
        return coef, intercept, np.zeros((len(codes), n_classes))
    # Each class in all folds as evenly as can be; one alone is scored by a model without it.
    order = np.argsort(codes, kind="stable")
    starts = np.cumsum(counts) - counts
    folds = np.empty(len(codes), dtype=int)
    folds[order] = (np.arange(len(codes)) - starts[codes[order]]) % _FOLDS
    scores = np.empty((len(codes), n_classes))
    for fold in np.unique(folds):
        seen = folds != fold
        weights, offsets = _fitted(X[seen], codes[seen], n_classes)
        scores[~seen] = X[~seen] @ weights.T + offsets
    own = scores[np.arange(len(codes)), codes]
    losses = [float(np.mean(logsumexp(f * scores, axis=1) - f * own)) for f in _FACTORS]
    factor = float(_FACTORS[int(np.argmin(losses))])
    return factor * coef, factor * intercept, factor * scores


def _fitted(X: Array, codes: NDArray[np.intp], n_classes: int) -> tuple[Array, Array]:
    """Weights and intercepts whose sum is zero; zeros for a class without records."""
    # Loaded where it is asked for: a check of a folder fits nothing.
    from sklearn.linear_model import LogisticRegression

    coef, intercept = np.zeros((n_classes, X.shape[1])), np.zeros(n_classes)
    present = np.unique(codes)
    if len(present) > 1:
        fit = LogisticRegression(C=_PENALTY, max_iter=1000).fit(X, codes)
        weights, offsets = fit.coef_, fit.intercept_
        if len(present) == 2:
            weights, offsets = np.vstack([-weights, weights]), np.hstack([-offsets, offsets])
            weights, offsets = weights / 2.0, offsets / 2.0
        coef[present], intercept[present] = weights - weights.mean(axis=0), offsets - offsets.mean()
    return coef, intercept


def _told(scores: Array, codes: NDArray[np.intp]) -> Array:
    """How sure the model is, and how much residuals that are clipped leave of the curvature."""
    p: Any = softmax(scores, axis=1)
    variances = np.vecdot(p, scores**2) - np.vecdot(p, scores) ** 2
    residuals = p.copy()
    residuals[np.arange(len(codes)), codes] -= 1.0
    # Of two classes there is one score, whose residual is either entry.
    norms = np.sqrt(np.vecdot(residuals, residuals) / (2.0 if p.shape[1] == 2 else 1.0))
    kept = np.minimum(1.0, CLIP / np.maximum(norms, 1e-300))
    return np.array([float(variances.mean()), float((np.vecdot(p, 1.0 - p) * kept).mean())])


def _told_of_vectors(coef: Array) -> Array:
    """The same of scores that nobody has seen: small ones, of rows in all directions."""
    n_classes, n_features = coef.shape
    variance = float(np.vecdot(coef, coef).mean()) / n_features
    return np.array([variance, _told(np.zeros((n_classes,) * 2), np.arange(n_classes))[1]])
