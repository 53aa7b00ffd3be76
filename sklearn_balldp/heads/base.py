"""The one fit template of every head: rows -> bound -> noise scale -> parameters -> release."""

import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Tags, assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from .._validation import (
    all_finite,
    check_option,
    check_positive,
    fit_all_or_nothing,
    is_real,
    validated,
)
from .._version import __version__
from ..policy.adjacency import (
    METRICS,
    ball_factors,
    clip_entries,
    euclidean_radius,
    full_radius,
    full_radius_in,
    map_row_ranges,
    row_blocks,
)
from ..policy.radius import ChosenRadius, RadiusPolicy, choose_radius
from ..privacy.gaussian import classic_rho, delta_from_rho, rho_from_budget
from ..privacy.ledger import CountedMixin, charged
from ..privacy.noise import add_gaussian_noise, check_random_state, grid_slack, sampler_name
from ..privacy.release import Release, rho_of, total_epsilon
from ..privacy.sensitivity import as_float_or_tuple
from .solver import SINGLE_BLAS_THREAD

Neighbours = Callable[[int, NDArray[np.floating], NDArray[np.intp]], NDArray[np.float64]]


_RADIUS_ASSUMPTIONS = {
    "reference": ("the radius was read off public reference rows",),
    "declared": ("the radius, a quantile of the private rows, is declared public",),
    "private": ("the radius, a private quantile, is spent beside the parameters",),
}


@dataclass(frozen=True)
class Problem:
    """Training rows with encoded labels, and the public numbers of the fit as Python floats.

    Heads read numbers from here, not from their parameters: NumPy scalars of few bits would
    overflow in the bounds.
    """

    X: NDArray[np.floating]
    codes: NDArray[np.intp]
    classes: NDArray[Any]
    alpha: float
    norm_bound: float
    #: Euclidean radius of the adjacency.
    radius: float

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    def counts(self) -> NDArray[np.intp]:
        """Class counts: public only while labels are public."""
        return np.bincount(self.codes, minlength=self.n_classes)


class BaseBallDPClassifier(CountedMixin, ClassifierMixin, BaseEstimator, metaclass=ABCMeta):
    """Fit template and linear decision rule shared by the heads."""

    _flags: ClassVar[tuple[str, ...]] = ("protect_labels",)

    @abstractmethod
    def _bound(self, problem: Problem) -> Any:
        """Sensitivity bound of the release, from public numbers only."""

    @abstractmethod
    def _minimise(self, problem: Problem, bound: Any) -> NDArray[np.float64]:
        """Noiseless parameters; blocks of different noise along the first axis."""

    @abstractmethod
    def _publish(self, parameters: NDArray[np.float64], problem: Problem) -> dict[str, Any]:
        """Fitted attributes from the noisy parameters and public numbers."""

    @abstractmethod
    def _linear_rule(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weights (n_scores, n_features) and offsets (n_scores,) of the released scores."""

    def _check_parameters(self) -> None:
        for name in ("epsilon", "norm_bound"):
            check_positive(name, getattr(self, name))
        self._check_alpha()
        if not (is_real(self.delta) and 0.0 < float(self.delta) < 1.0):
            raise ValueError(f"delta must lie strictly between 0 and 1, got {self.delta!r}.")
        radius = self.radius
        policy = radius.estimator if isinstance(radius, FrozenEstimator) else radius
        if not isinstance(policy, (RadiusPolicy, type(None))):
            check_positive("radius", self.radius, ", a RadiusPolicy, or None (2 * norm_bound)")
        check_option("metric", self.metric, METRICS)
        check_option("calibration", self.calibration, ("analytic", "classic"))
        for name in self._flags:
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}.")
        check_random_state(self.random_state)
        if self.protect_labels and self.classes is None:
            raise ValueError(
                "classes=None with protect_labels=True: the label set must be declared, not read "
                "from private labels; pass classes=[...]."
            )

    def _check_alpha(self) -> None:
        check_positive("alpha", self.alpha)

    def _alpha(self) -> float:
        """Regularisation strength in use."""
        return float(self.alpha)

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_public: ArrayLike | None = None,
        y_public: ArrayLike | None = None,
    ) -> "BaseBallDPClassifier":
        """Fit the head and release its noisy parameters.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Embeddings, one private record a row. Rows outside the ball of radius ``norm_bound``
            are projected onto it.
        y : array-like of shape (n_samples,)
            Class labels.
        X_public : array-like of shape (n_public, n_features), optional
            Public reference rows, for ``radius=RadiusPolicy(source="reference")``; not used
            otherwise.
        y_public : array-like of shape (n_public,), optional
            Their labels.

        Returns
        -------
        self
            The fitted head; ``release_`` states what it guarantees.

        Raises
        ------
        ValueError
            If a parameter or the data is invalid; nothing is released then.
        """
        fit_all_or_nothing(self, lambda: self._fit(X, y, X_public, y_public))
        return self

    def _fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        X_public: ArrayLike | None,
        y_public: ArrayLike | None,
    ) -> dict[str, Any]:
        self._check_parameters()
        self._check_reachable()
        X, y = validated(self, X, y)
        X = clip_entries(X)
        n_samples, n_features = X.shape
        epsilon, delta = float(self.epsilon), float(self.delta)
        alpha, norm_bound = self._alpha(), float(self.norm_bound)
        if delta >= 1.0 / n_samples:
            warnings.warn(
                f"delta={delta!r} is not below 1/n_samples={1.0 / n_samples:.3g}: releasing "
                "whole records at random would satisfy it; choose a smaller delta.",
                UserWarning,
                stacklevel=5,
            )
        classes, codes = self._encode(y)
        chosen = choose_radius(
            self.radius,
            lambda: (X, y),
            lambda: self._validate_public(X_public, y_public),
            metric=self.metric,
            norm_bound=norm_bound,
            labels_public=not self.protect_labels,
        )
        radius = euclidean_radius(
            chosen.value, self.metric, norm_bound=norm_bound, n_features=n_features
        )
        problem = Problem(X, codes, classes, alpha, norm_bound, radius)

        calibrate = classic_rho if self.calibration == "classic" else rho_from_budget
        rho = calibrate(epsilon, delta)
        plan = self._plan(problem, rho, calibrate)
        bound, sigma, n_values = plan["bound"], plan["sigma"], plan["n_values"]

        def rho_within(euclidean: float) -> float:
            return rho_of(bound, euclidean, sigma, n_values, bool(self.protect_labels))

        rho_full = rho_within(full_radius(norm_bound))
        public_labels = "labels and class counts are public"
        release = Release(
            head=type(self).__name__,
            n_samples=n_samples,
            n_features=n_features,
            n_classes=len(classes),
            alpha=alpha,
            norm_bound=norm_bound,
            metric=self.metric,
            radius=chosen.value
            if chosen.value is not None
            else full_radius_in(self.metric, norm_bound, n_features),
            radius_source=chosen.source,
            radius_epsilon=chosen.epsilon,
            radius_draw=chosen.draw,
            epsilon=epsilon,
            delta=delta,
            calibration=self.calibration,
            rho=rho_within(radius),
            labels="protected" if self.protect_labels else "public",
            private=_is_private(self.random_state is not None, chosen),
            epsilon_full_radius=total_epsilon(rho_full, delta, chosen.epsilon),
            assumptions=(
                "the number of records, the label set, the encoder and every parameter are public",
                "label changes are hidden too" if self.protect_labels else public_labels,
                "each record is one row, mapped to it without looking at the others",
                *_RADIUS_ASSUMPTIONS.get(chosen.source, ()),
            ),
            version=__version__,
            **plan,
        )
        if delta_from_rho(release.rho, epsilon) > delta:
            raise RuntimeError("the release misses its own guarantee: please report this.")
        # Counted before the rows are touched: everything in the record is public.
        with charged(release):
            # Neither warnings nor errors of arithmetic may depend on the rows.
            with all_finite(), np.errstate(all="ignore"):
                parameters, release, kept = self._release(problem, release)
        published = self._publish(parameters, problem)
        return {"classes_": classes, **published, **kept, "release_": release}

    def _plan(
        self, problem: Problem, rho: float, calibrate: Callable[[float, float], float]
    ) -> dict[str, Any]:
        """Bound, noise and sampler of the release, from public numbers: fields of its record."""
        bound = self._bound(problem)
        sensitivity = bound.at(problem.radius)
        n_values = self._n_values(problem)
        slack = 2.0 * grid_slack(n_values)
        if rho <= slack:
            raise ValueError(
                f"epsilon={self.epsilon!r} is too small for the sampler's grid; raise epsilon."
            )
        return {
            "bound": bound,
            "sensitivity": as_float_or_tuple(sensitivity),
            "sigma": as_float_or_tuple(sensitivity / (rho - slack)),
            "tol": float(getattr(bound, "tol", 0.0)),
            "n_values": n_values,
            "sampler": sampler_name(self.random_state),
        }

    def _release(
        self, problem: Problem, release: Release
    ) -> tuple[NDArray[np.float64], Release, dict[str, Any]]:
        """Noisy parameters, the completed record, and further public attributes."""
        parameters = self._minimise(problem, release.bound)
        return self._add_noise(parameters, release.sigma), release, {}

    def _add_noise(self, parameters: NDArray[np.float64], sigma: Any) -> NDArray[np.float64]:
        """The parameters with noise of this head's own sampler, one scale a block."""
        blocks = np.reshape(sigma, (-1,) + (1,) * (parameters.ndim - 1))
        return add_gaussian_noise(parameters, blocks, self.random_state)

    def _known(self, X: ArrayLike, y: ArrayLike) -> Problem:
        """The fitted head's problem on the records of an audit."""
        check_is_fitted(self)
        X, y = validated(self, X, y, reset=False)
        release, classes = self.release_, self.classes_
        codes = np.searchsorted(classes, y).clip(max=len(classes) - 1)
        if not np.all(classes[codes] == y):
            raise ValueError("y holds labels that the released model does not know.")
        radius = euclidean_radius(
            release.radius,
            release.metric,
            norm_bound=release.norm_bound,
            n_features=release.n_features,
        )
        # It names no cell; the passes of an audit do not look.
        assert_all_finite(X, estimator_name=type(self).__name__, input_name="X")
        rows = clip_entries(X)
        return Problem(rows, codes, classes, release.alpha, release.norm_bound, radius)

    def _neighbours(self, problem: Problem, bound: Any) -> Neighbours:
        """Noiseless models of datasets next to ``problem``, for audits; nothing stays here.

        The function returned takes the position of the record to leave out, and the records
        (rows, codes) each of which takes its place in turn.
        """

        def models(
            left_out: int, rows: NDArray[np.floating], codes: NDArray[np.intp]
        ) -> NDArray[np.float64]:
            X = problem.X.astype(np.promote_types(problem.X.dtype, rows.dtype))
            labels = problem.codes.copy()
            fits = []
            for X[left_out], labels[left_out] in zip(rows, codes, strict=True):
                fits.append(self._minimise(replace(problem, X=X, codes=labels), bound))
            return np.stack(fits)

        return models

    def _validate_public(
        self, X_public: ArrayLike | None, y_public: ArrayLike | None
    ) -> tuple[NDArray, NDArray] | None:
        """Public reference rows, which errors may quote; None when there are none."""
        if X_public is None and y_public is None:
            return None
        if X_public is None or y_public is None:
            raise ValueError("X_public and y_public go together: pass both or neither.")
        return validated(self, X_public, y_public, reset=False)

    def _encode(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
        if self.classes is None:
            if y.dtype.kind not in "biu":  # whole numbers are classes, and need no slow look
                check_classification_targets(y)
            try:
                classes, codes = np.unique(y, return_inverse=True)
            except TypeError:
                classes = codes = None
            if classes is None:
                raise ValueError("y mixes labels of types that cannot be compared; use one type.")
            if len(classes) < 2:
                raise ValueError(
                    "y holds 1 class; a classifier needs at least 2 classes (pass classes=[...] "
                    "to declare labels that are absent from y)."
                )
            return classes, codes
        try:
            declared = np.asarray(self.classes)
            classes = np.unique(declared)
        except (TypeError, ValueError):
            declared = classes = np.empty(0)
        if declared.ndim != 1 or len(classes) < 2:
            raise ValueError(
                f"classes must list at least 2 labels of one type, got {self.classes!r}."
            )
        try:
            codes = np.searchsorted(classes, y).clip(max=len(classes) - 1)
            known = bool(np.all(classes[codes] == y))
        except (TypeError, np.exceptions.DTypePromotionError):
            known = False
        if not known:
            raise ValueError(
                "y holds labels outside the declared classes; add them to classes or drop those "
                "records (a continuous target is for a regressor)."
            )
        return classes, codes

    def _n_values(self, problem: Problem) -> int:
        return problem.n_classes * problem.X.shape[1]

    def _scores(self, X: ArrayLike) -> NDArray[np.float64]:
        check_is_fitted(self)
        X = clip_entries(validated(self, X, reset=False))
        coef, intercept = self._linear_rule()
        with all_finite():
            return projected_scores(X, coef, self.release_.norm_bound) + intercept

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores of the released rule.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Embeddings; rows are projected onto the ball as in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            Binary: positive for ``classes_[1]``. Else one score a class.
        """
        scores = self._scores(X)
        if scores.shape[1] == 2:
            return scores[:, 1] - scores[:, 0]
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predicted labels.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Embeddings.

        Returns
        -------
        ndarray of shape (n_samples,)
            One label of ``classes_`` a row.
        """
        scores = self.decision_function(X)
        codes = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return self.classes_[codes]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # Noise calibrated to a handful of records rightly drowns them.
        tags.classifier_tags.poor_score = True
        return tags


def projected_scores(
    X: NDArray[np.floating], coef: NDArray[np.float64], norm_bound: float
) -> NDArray[np.float64]:
    """Products of projected rows with weights, in the rows' own precision where it can hold them.

    Raises
    ------
    FloatingPointError
        If a row holds NaN or infinity.
    """
    half = np.finfo(np.float32).max ** 0.5
    single = X.dtype.itemsize <= 4 and norm_bound < half and bool((np.abs(coef) < half).all())
    precision = np.float32 if single else np.float64
    weights = np.ascontiguousarray(coef.T, dtype=precision)
    scores = np.empty((len(X), len(coef)), dtype=precision)

    def score(start: int, stop: int) -> None:
        for rows, block in row_blocks(X, start, stop, dtype=precision):
            with np.errstate(all="ignore"):
                np.matmul(block, weights, out=scores[rows])
                squares = np.vecdot(block, block)
            outside = np.flatnonzero(~(squares <= norm_bound**2))
            if len(outside):
                # Few rows, as a rule; float64 has room for the square of any of them.
                far = block[outside].astype(np.float64)
                factors = ball_factors(far, norm_bound)
                inside = far if factors is None else far * factors[:, None]
                scores[rows][outside] = inside.astype(precision) @ weights

    with SINGLE_BLAS_THREAD:
        map_row_ranges(score, *X.shape)
    return scores


def _is_private(seeded: bool, chosen: ChosenRadius) -> bool | str:
    if seeded or chosen.seeded:
        return False
    return "conditional" if chosen.source == "declared" else True


def log_probabilities(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log-softmax of scores, minus infinity where the probability itself underflows to zero."""
    logs = log_softmax(scores, axis=1)
    return np.where(np.exp(logs) > 0.0, logs, -np.inf)
