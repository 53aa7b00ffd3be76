"""A released model, as audits and checks see it: parameters, record, decision, candidate models."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import assert_all_finite
from sklearn.utils.validation import check_is_fitted

from .._validation import validated
from ..adjacency import euclidean_radius
from ..privacy.bounds import counts_intercept
from ..privacy.noise import Noise
from ..privacy.release import Release
from ..rows import Rows, rows_in_domain
from .base import BaseBallDPClassifier
from .descent import Transcript
from .mechanism import (
    Array,
    Budget,
    Codes,
    Mechanism,
    Neighbours,
    PrivateProblem,
    Problem,
    Promise,
)
from .settings import RULE
from .weighing import FitWeights, fit_weights, follow_class_weight


class ReleasedModel:
    """A fitted head beside a record (its own by default): all that audits and checks ask of either.

    What was released counts, and the parameters of the fit: not those that were set since.
    """

    def __init__(self, head: BaseBallDPClassifier, record: Release | None = None) -> None:
        check_is_fitted(head)
        self.head = head._as_fitted()
        self.record: Release = head.release_ if record is None else record

    # -- what was published -------------------------------------------------------------------

    @property
    def classes(self) -> NDArray[Any]:
        """Labels."""
        return self.head.classes_

    def parameters(self) -> Array:
        """The noisy values, as they were when noise was added: a row for each score or sum."""
        return self.head._released_values(self.record)

    def named_parameters(self) -> dict[str, NDArray[Any]]:
        """The released values by name: what the record's digest is a digest of."""
        return self.head.released_parameters()

    @property
    def attributes(self) -> tuple[str, ...]:
        """Names of the fitted attributes that hold released values, or public counts."""
        return ("classes_", *self.head._parameters)

    def published(self, parameters: Array) -> dict[str, Any]:
        """Fitted attributes that noisy values would give."""
        return self.head._publish(parameters, self.problem, self.record.bound)

    @property
    def same_rule(self) -> bool:
        """Whether this version chooses settings by the numbers that the record names."""
        return self.record.rule == RULE

    def decision_follows(self) -> bool:
        """Whether what the head predicts with is what follows from the released values."""
        return self.head.decision_follows(self.record)

    def decision(self) -> tuple[Array, Array]:
        """Weights (n_scores, n_features) and offsets (n_scores,) that it predicts with."""
        return self.head._linear_rule()

    # -- what the head's parameters say --------------------------------------------------------

    def check_head(self) -> None:
        """Raise a ValueError if the head has parameters that no fit would take."""
        self.head._check_parameters()

    @property
    def declared_classes(self) -> NDArray[Any] | None:
        """Labels that the head declares, in order; None where it reads them."""
        declared: NDArray[Any] | None = self.head._declared_classes()
        return declared

    @property
    def given_alpha(self) -> float | None:
        """Regularisation strength that the head asks for; None where the mechanism chooses it."""
        alpha = self.head._given_alpha()
        return None if math.isnan(alpha) else alpha

    # -- how it was released ------------------------------------------------------------------

    @property
    def promise(self) -> Promise:
        """What was promised before the run."""
        return Promise(self.record.bound, self.record.sensitivity, self.record.sigma)

    @property
    def named_mechanism(self) -> Mechanism:
        """The head's mechanism; of one that chooses, what the record names."""
        return self.head._mechanism_named(self.record.mechanism)

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism that made the release: audits run it again."""
        mechanism = self.named_mechanism
        if mechanism.name != self.record.mechanism:
            raise ValueError(
                f"mechanism: released by {self.record.mechanism!r}, but the head's parameter "
                f"says {mechanism.name!r} by now; set it back, or fit again."
            )
        return mechanism

    def noise(self) -> Noise:
        """Noise of another release by the same head, for an audit's trial."""
        return self.head._noise()

    @property
    def class_counts(self) -> NDArray[np.intp] | None:
        """Public class counts; None where labels are protected."""
        return getattr(self.head, "class_counts_", None)

    @property
    def problem(self) -> Problem:
        """Public numbers of the fit."""
        record, counts = self.record, self.class_counts
        loss = sums = record.weights
        if loss is not None and loss.by_class is not None:
            # Without a start nothing is made of sums.
            start = getattr(record.bound, "start", None)
            sums = None if start is None else start.weights
        intercept = counts_intercept(record.bound)
        told = {} if intercept is None else {"fit_intercept": intercept}
        return self.head._problem(
            **told,
            n_samples=record.n_samples,
            n_features=record.n_features,
            classes=self.classes,
            class_counts=None if counts is None else tuple(counts.tolist()),
            alpha=record.alpha,
            norm_bound=record.norm_bound,
            radius=euclidean_radius(
                record.radius,
                record.metric,
                norm_bound=record.norm_bound,
                n_features=record.n_features,
            ),
            metric=record.metric,
            labels=record.labels,
            domain=record.domain,
            sums_weights=sums,
            loss_weights=loss,
        )

    # -- records of an audit ------------------------------------------------------------------

    def coded(self, X: Any, y: Any) -> tuple[NDArray[np.floating], Codes]:
        """Rows as passes take them, and positions of their labels among those of the fit."""
        X, y = validated(self.head, X, y, reset=False, domain=self.record.domain)
        # Audits look at single rows: those of a file are read.
        X = np.asarray(X) if isinstance(X, Rows) else X
        classes = self.classes
        codes = np.searchsorted(classes, y).clip(max=len(classes) - 1)
        if not np.all(classes[codes] == y):
            raise ValueError("y holds labels that the released model does not know.")
        # It names no cell; the passes of an audit do not look.
        assert_all_finite(X, estimator_name=type(self.head).__name__, input_name="X")
        return X, codes

    def on(self, X: Any, y: Any, groups: ArrayLike | None = None) -> PrivateProblem:
        """The problem on the records of an audit, with their owners."""
        X, codes = self.coded(X, y)
        stated, class_weight = self.record.weights, None
        if stated is not None and stated.by_class is not None:
            class_weight = dict(zip(self.classes.tolist(), stated.by_class, strict=True))
        weighed = fit_weights(
            None if self.record.labels == "protected" else codes,
            len(codes),
            self.classes,
            groups=groups,
            class_weight=class_weight,
        )
        return self.on_coded(X, codes, weighed)

    def on_coded(
        self, X: NDArray[np.floating], codes: Codes, weighed: FitWeights
    ) -> PrivateProblem:
        """The problem on rows that were looked at already."""
        if weighed.loss != self.record.weights:
            raise ValueError(
                "groups: they are not those of the fit, or not of all of its records; pass what "
                "it was given, in the order of the rows."
            )
        public = replace(self.problem, sums_weights=weighed.sums)
        return public.with_rows(X, codes, weighed.rows)

    def in_domain(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        """Rows where radii are declared: scaled to the sphere, or as they are."""
        if self.record.domain == "ball":
            return X
        return rows_in_domain(X.astype(np.float64), self.record.norm_bound, self.record.domain)

    def neighbours(self, problem: PrivateProblem) -> Neighbours | None:
        """Candidate models without noise; None for a descent, whose values depend on the path."""
        mechanism = self.mechanism
        return None if mechanism.adaptive else mechanism.neighbours(problem, self.promise)

    def class_weight_follows(self) -> bool:
        """Whether the record's weights of classes are those that the head asks for."""
        weights, asked = self.record.weights, getattr(self.head, "class_weight", None)
        if asked is None or weights is None or weights.by_class is None:
            return asked is None and (weights is None or weights.by_class is None)
        return follow_class_weight(weights, asked, self.classes)


def fit_and_transcript(
    head: BaseBallDPClassifier, X: Any, y: Any, **data: Any
) -> Transcript | None:
    """Fit a head, and return the transcript of its descent, which it keeps only if asked to.

    None where there is no descent, or one that keeps none.
    """
    own = head._mechanism().get_params(deep=False).get("keep_transcript", False)
    chosen = head._chosen_mechanism

    def keeping(problem: Problem, budget: Budget) -> Mechanism:
        mechanism = chosen(problem, budget)
        if mechanism.get_params(deep=False).get("keep_transcript") is not False:
            return mechanism
        return clone(mechanism).set_params(keep_transcript=True)

    head._chosen_mechanism = keeping  # type: ignore[method-assign]
    try:
        head.fit(X, y, **data)
    finally:
        del head._chosen_mechanism
        transcript = getattr(head, "transcript_", None)
        if not own:
            head.__dict__.pop("transcript_", None)
    return transcript
