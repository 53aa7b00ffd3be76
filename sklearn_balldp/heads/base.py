"""The one fit template of every head: a promise, the charge, the run, the release."""

import contextlib
import json
import math
import numbers
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Tags, assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from .._parameters import check_flag, check_inside, check_option, check_positive, check_whole
from .._validation import all_finite, caller_level, fit_all_or_nothing, validated, validated_public
from .._version import __version__
from ..accounting.ledger import charged
from ..accounting.tickets import CountedMixin
from ..adjacency import DOMAINS, METRICS, euclidean_radius, full_radius_in
from ..privacy.bounds import Bound, as_float_or_tuple
from ..privacy.digest import parameters_digest
from ..privacy.gaussian import CALIBRATIONS, delta_from_mu
from ..privacy.guarantee import total_epsilon
from ..privacy.noise import Noise, check_random_state
from ..privacy.release import Release
from ..privacy.weights import Weights, units_of
from ..progress import shown
from ..radius import ChosenRadius, RadiusPolicy, checked_edits, choose_radius
from ..rows import (
    Rows,
    computed,
    encoder_of,
    rows_in_domain,
    tame_input,
)
from .mechanism import Budget, Mechanism, Outcome, PrivateProblem, Problem, Promise
from .plan import Plan
from .scoring import projected_scores
from .serving import plain_model
from .weighing import Weighed, weigh


class BaseBallDPClassifier(CountedMixin, ClassifierMixin, BaseEstimator, metaclass=ABCMeta):
    """Fit template and linear decision rule shared by the heads."""

    # In no signature: scikit-learn takes a named weight for a number of repetitions, which it is
    # not, as each repetition is another record to hide.
    __metadata_request__fit: ClassVar[dict[str, None]] = {"sample_weight": None}

    #: Where rows are brought: heads that can scale them take it as a parameter.
    domain: str = "ball"

    #: Fitted attributes that are released parameters, or public counts of records.
    _parameters: ClassVar[tuple[str, ...]] = ("coef_", "intercept_", "class_counts_")

    @abstractmethod
    def _mechanism(self) -> Mechanism:
        """How the parameters are released."""

    @abstractmethod
    def _publish(
        self, parameters: NDArray[np.float64], problem: Problem, bound: Bound
    ) -> dict[str, Any]:
        """Fitted attributes from the noisy parameters and public numbers."""

    @abstractmethod
    def _parameters_as_published(self) -> NDArray[np.float64]:
        """The noisy parameters back from the fitted attributes, one row for each score."""

    @abstractmethod
    def _linear_rule(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weights (n_scores, n_features) and offsets (n_scores,) of the released scores."""

    def _check_parameters(self) -> None:
        for name in ("epsilon", "norm_bound"):
            check_positive(name, getattr(self, name))
        check_inside("delta", self.delta)
        radius = self.radius
        policy = radius.estimator if isinstance(radius, FrozenEstimator) else radius
        if not isinstance(policy, (RadiusPolicy, type(None))):
            check_positive("radius", self.radius, ", a RadiusPolicy, or None (2 * norm_bound)")
        check_option("metric", self.metric, METRICS)
        takes_domain = "domain" in self.get_params(deep=False)
        check_option("domain", self.domain, DOMAINS if takes_domain else DOMAINS[:1])
        check_option("calibration", self.calibration, CALIBRATIONS)
        check_flag("protect_labels", self.protect_labels)
        if not isinstance(self.verbose, numbers.Integral):
            check_flag("verbose", self.verbose)
        if self.max_weight is not None:
            check_positive("max_weight", self.max_weight, " or None")
        check_random_state(self.random_state)
        if not (self.coordinates is None or isinstance(self.coordinates, str)):
            raise ValueError(f"coordinates must be a string or None, got {self.coordinates!r}.")
        if self.protect_labels and self.classes is None:
            raise ValueError(
                "classes=None with protect_labels=True: the label set must be declared, not read "
                "from private labels; pass classes=[...]."
            )
        mechanism = self._mechanism()
        mechanism.check()
        self._check_alpha(mechanism)

    def _check_alpha(self, mechanism: Mechanism) -> None:
        check_positive("alpha", self.alpha)

    def _given_alpha(self) -> float:
        """Regularisation strength; NaN where the mechanism is to choose it."""
        return float(self.alpha)

    def _problem(self, **public: Any) -> Problem:
        """The fit's public numbers; linear heads add theirs."""
        return Problem(**public)

    def _class_weight(self) -> Any:
        """Weights of classes in the loss, where the head has one."""
        return None

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        X_public: ArrayLike | None = None,
        y_public: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        **weights: ArrayLike | None,
    ) -> "BaseBallDPClassifier":
        """Fit the head and release its noisy parameters.

        Parameters
        ----------
        X : array-like or Rows of shape (n_samples, n_features)
            The private embeddings, one record per row. They may be an array, a memory map, a file
            (:func:`.from_parquet`), a dask array or a tensor on a GPU. Rows outside the ball of
            radius ``norm_bound`` are projected onto it; with ``domain="sphere"`` all rows are
            scaled to its surface.
        y : array-like of shape (n_samples,)
            Class labels.
        X_public : array-like of shape (n_public, n_features), optional
            Public rows that a :class:`.RadiusPolicy` chooses the radius from: reference rows for
            ``source="reference"``, rows before an edit for ``source="edits"``. Not used otherwise.
        y_public : array-like of shape (n_public,), optional
            The labels of the reference rows; for ``source="edits"`` the rows after the edit, of
            shape (n_public, n_features).
        groups : array-like of shape (n_samples,), optional
            Hides **all** records of one owner together, and takes more noise: as much as a fit on
            as many records as there are owners (for prototypes it also depends on how records
            spread over classes). It names the owner of each record, which is public. Each record
            may be replaced by one of its own label within ``radius``, and counts for one over the
            number of its owner's records.
        **weights : dict
            ``sample_weight``, of shape (n_samples,): public weights, which need ``max_weight``.
            Only their ratios matter.

        Returns
        -------
        self
            The fitted head; ``release_`` states what it guarantees.

        Raises
        ------
        ValueError
            If a parameter or the data is invalid; nothing is released then.
        """
        with shown(self.verbose):
            fit_all_or_nothing(self, lambda: self._fit(X, y, X_public, y_public, groups, weights))
        return self

    def _fit(
        self,
        X: Any,
        y: Any,
        X_public: ArrayLike | None,
        y_public: ArrayLike | None,
        groups: ArrayLike | None,
        weights: Mapping[str, ArrayLike | None],
    ) -> dict[str, Any]:
        self._check_parameters()
        self._check_reachable()
        encoder = encoder_of(X)
        X, y = validated(self, X, y)
        X = self._taken(X)
        classes, codes = self._encode(y)
        weighed = self._weighed(codes, classes, groups, weights, self._class_weight())
        self._warn_of_large_delta(weighed.sums, len(X))
        labels = "protected" if self.protect_labels else "public"
        norm_bound = float(self.norm_bound)
        if weighed.sums is not None and weighed.sums.most_records > 1:
            self._check_radius_of_persons()
        chosen = choose_radius(
            self.radius,
            lambda policy: self._policy_rows(policy, X, y),
            lambda edits: self._validate_public(X_public, y_public, edits),
            metric=self.metric,
            norm_bound=norm_bound,
            labels=labels,
            domain=self.domain,
        )
        counts = np.bincount(codes, minlength=len(classes))
        declared = self._declared(
            len(X), X.shape[1], classes, tuple(counts.tolist()), chosen, weighed
        )
        noise = self._noise()
        mechanism, problem, promise, release = self._promised(declared, noise, chosen, encoder)
        # Counted before the rows are touched: everything in the record is public. Neither warnings
        # nor errors of arithmetic may depend on the rows.
        with charged(release), all_finite(), np.errstate(all="ignore"):
            outcome = mechanism.run(problem.with_rows(X, codes, weighed.rows), promise, noise)
        surplus = [name for name in outcome.attributes if name[-1:] != "_" or name[:1] == "_"]
        if surplus or not np.isfinite(outcome.parameters).all():
            raise ValueError(
                f"mechanism {mechanism.name}: parameters must be finite, and names of attributes "
                f"end in an underscore (not {surplus}); nothing is published."
            )
        bound = _kept_bound(outcome, promise)
        fitted = self._publish(outcome.parameters, problem, bound)
        published = {"classes_": classes, **fitted}
        # What was published, and digested, stands whatever a mechanism names its attributes.
        return {
            **outcome.attributes,
            **published,
            "release_": _completed(
                release, outcome, bound, parameters_digest(self._released(published))
            ),
        }

    def _listed_classes(self) -> Any:
        """Declared classes, of which a set is a list too."""
        return list(self.classes) if isinstance(self.classes, Set) else self.classes

    def _check_radius_of_persons(self) -> None:
        """Raise a ValueError for a private radius, before it is drawn."""
        frozen = isinstance(self.radius, FrozenEstimator)
        policy = self.radius.estimator if frozen else self.radius
        if isinstance(policy, RadiusPolicy):
            source = policy.choice_.source if frozen else policy.source
            if source == "private":
                raise ValueError(
                    "radius: a private quantile hides one record, and groups= asks for all of one "
                    "person; use source='reference' or 'edits', or a number."
                )

    def _weighed(
        self,
        codes: NDArray[np.intp],
        classes: NDArray[Any],
        groups: ArrayLike | None,
        weights: Mapping[str, ArrayLike | None],
        class_weight: Any,
    ) -> Weighed:
        """Weights of the records, from public things alone."""
        odd = sorted(set(weights) - {"sample_weight"})
        if odd:
            raise TypeError(f"fit() got an unexpected keyword argument {odd[0]!r}.")
        return weigh(
            None if self.protect_labels else codes,
            len(codes),
            classes,
            groups=computed("groups", groups),
            sample_weight=computed("sample_weight", weights.get("sample_weight")),
            class_weight=class_weight,
            max_weight=self.max_weight,
        )

    def _declared(
        self,
        n_samples: int,
        n_features: int,
        classes: NDArray[Any],
        class_counts: tuple[int, ...] | None,
        chosen: ChosenRadius,
        weighed: Weighed,
    ) -> Problem:
        """The problem of this head's parameters; counts are left out where labels are protected."""
        norm_bound = float(self.norm_bound)
        return self._problem(
            n_samples=n_samples,
            n_features=n_features,
            classes=classes,
            class_counts=None if self.protect_labels else class_counts,
            alpha=self._given_alpha(),
            norm_bound=norm_bound,
            radius=euclidean_radius(
                chosen.value, self.metric, norm_bound=norm_bound, n_features=n_features
            ),
            metric=self.metric,
            labels="protected" if self.protect_labels else "public",
            domain=self.domain,
            sums_weights=weighed.sums,
            loss_weights=weighed.loss,
        )

    def _promised(
        self, problem: Problem, noise: Noise, chosen: ChosenRadius, encoder: str | None = None
    ) -> tuple[Mechanism, Problem, Promise, Release]:
        """The mechanism, what it promises, and the record of it: all from public numbers."""
        budget = Budget(float(self.epsilon), float(self.delta), self.calibration)
        mechanism = self._mechanism().chosen(problem, budget)
        if math.isnan(problem.alpha):
            problem = replace(problem, alpha=mechanism.alpha_for(problem, budget))
        promise = _checked(mechanism, mechanism.promise(problem, budget))
        record = self._record(problem, budget, mechanism.name, promise, noise, chosen, encoder)
        return mechanism, problem, promise, record

    def plan(
        self,
        n_samples: int,
        n_features: int,
        class_counts: Sequence[int] | NDArray[np.integer] | None = None,
        *,
        y: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        **weights: ArrayLike | None,
    ) -> Plan:
        """What a fit would release, and how much noise it would add, before any row is touched.

        Parameters
        ----------
        n_samples, n_features : int
            Shape of the rows.
        class_counts : array-like of int, shape (n_classes,), optional
            Number of records of each class, in the order of ``classes``. They are needed where
            labels are public, and not used where labels are protected.
        y : array-like of shape (n_samples,), optional
            Public labels, in place of ``class_counts``. Needed for ``groups`` or weights where
            labels are public.
        groups : array-like of shape (n_samples,), optional
            Owner of each record, as in :meth:`fit`.
        **weights : dict
            ``sample_weight``, as in :meth:`fit`.

        Returns
        -------
        Plan
            ``release`` (the record before the run), ``noise``, ``signal_to_noise``,
            ``class_signal_to_noise``; printing it shows all of them.

        Raises
        ------
        ValueError
            If a parameter is invalid, counts do not add up, or the radius is chosen from rows:
            give a number or a fitted policy in a ``FrozenEstimator``.
        """
        self._check_parameters()
        for name, value in (("n_samples", n_samples), ("n_features", n_features)):
            check_whole(name, value)
        counts = None
        codes = None
        if y is not None and not self.protect_labels:
            if class_counts is not None or np.shape(y) != (n_samples,):
                raise ValueError(
                    f"y must hold one label for each of n_samples={n_samples!r} records, and takes "
                    "the place of class_counts."
                )
            found, codes = self._encode(np.asarray(y))
            class_counts = np.bincount(codes, minlength=len(found))
        if class_counts is not None:
            counts = tuple(np.asarray(class_counts).tolist())
            for count in counts:
                check_whole("class_counts", count, 0)
            if sum(counts) != n_samples:
                raise ValueError(
                    f"class_counts={counts!r} add up to {sum(counts)}, not to "
                    f"n_samples={n_samples!r}."
                )
        if counts is None and not self.protect_labels:
            raise ValueError(
                "class_counts=None: with public labels the noise may follow the counts; pass the "
                "records of each class."
            )
        declared = self._listed_classes()
        classes = np.arange(len(counts or ())) if declared is None else np.unique(declared)
        if codes is not None:
            classes = found
        if len(classes) < 2 or (counts is not None and len(counts) != len(classes)):
            raise ValueError(
                f"class_counts={counts!r} must hold one count for each of at least 2 classes "
                f"({len(classes)} declared)."
            )
        if codes is None and counts is not None:
            # Weights of classes need no more than counts.
            codes = np.repeat(np.arange(len(counts)), counts)
            if groups is not None or weights.get("sample_weight") is not None:
                raise ValueError(
                    "y=None: with public labels the noise follows the classes of each owner; pass "
                    "y with groups and weights."
                )
        if codes is None:
            codes = np.zeros(int(n_samples), dtype=np.intp)
        weighed = self._weighed(codes, classes, groups, weights, self._class_weight())
        self._warn_of_large_delta(weighed.sums, int(n_samples))
        chosen = choose_radius(
            self.radius,
            _no_rows,
            _no_rows,
            metric=self.metric,
            norm_bound=float(self.norm_bound),
            labels="protected" if self.protect_labels else "public",
            domain=self.domain,
        )
        problem = self._declared(int(n_samples), int(n_features), classes, counts, chosen, weighed)
        _, problem, promise, release = self._promised(problem, self._noise(), chosen)
        masses = problem.class_masses
        signals: tuple[float, ...] = ()
        if masses is not None:
            signals = promise.bound.class_signals(tuple(masses.tolist()))
        return Plan(release, counts, *promise.bound.signal_and_noise(release), signals)

    def _warn_of_large_delta(self, weights: Weights | None, n_samples: int) -> None:
        share = 1.0 / units_of(weights, n_samples)
        if self.delta >= share:
            persons = weights is not None and weights.unit == "person"
            number, units = ("n_persons", "persons") if persons else ("n_samples", "records")
            warnings.warn(
                f"delta={self.delta!r} is not below 1/{number}={share:.3g}: releasing whole "
                f"{units} at random would satisfy it; choose a smaller delta.",
                UserWarning,
                stacklevel=caller_level(),
            )

    def _record(
        self,
        problem: Problem,
        budget: Budget,
        mechanism: str,
        promise: Promise,
        noise: Noise,
        chosen: ChosenRadius,
        encoder: str | None = None,
    ) -> Release:
        """The public record of what is about to be released."""
        bound, norm_bound = promise.bound, problem.norm_bound
        if bound.labels != problem.labels:
            raise ValueError(
                f"mechanism {mechanism}: its bound keeps labels {bound.labels}, where this head "
                f"needs them {problem.labels} (protect_labels)."
            )
        if bound.weights != problem.loss_weights:
            raise ValueError(
                f"mechanism {mechanism}: its bound knows nothing of the weights, or the persons, "
                "of this fit (groups, class_weight, sample_weight); give it a field weights, or "
                "leave them out."
            )
        mu = float(bound.mu(problem.radius))
        if not (mu >= 0.0 and delta_from_mu(mu, budget.epsilon) <= budget.delta):
            raise RuntimeError(
                f"mechanism {mechanism}: at the radius its promise states mu={mu!r}, which misses "
                f"its own guarantee (at most {budget.mu!r}); nothing was released."
            )
        radius = chosen.value
        if radius is None:
            radius = full_radius_in(self.metric, norm_bound, problem.n_features)
        own = bound.scales(problem.radius) is None
        with np.errstate(all="ignore"):
            release = Release(
                head=type(self).__name__,
                mechanism=mechanism,
                n_samples=problem.n_samples,
                n_features=problem.n_features,
                n_classes=problem.n_classes,
                alpha=problem.alpha,
                norm_bound=norm_bound,
                metric=self.metric,
                radius=radius,
                radius_source="seeded" if chosen.seeded else chosen.source,
                radius_epsilon=chosen.epsilon,
                radius_draw=chosen.draw,
                radius_edits=chosen.n_edits,
                radius_hides=chosen.hidden,
                epsilon=budget.epsilon,
                delta=budget.delta,
                calibration=budget.calibration,
                sampler=noise.name,
                bound=bound,
                version=__version__,
                numpy_version=np.__version__,
                date=datetime.now(UTC).date().isoformat(),
                coordinates=None if self.coordinates is None else str(self.coordinates),
                encoder=encoder,
                stated_sensitivity=promise.sensitivity if own else (),
                stated_sigma=promise.sigma if own else (),
            )
        if release.domain != problem.domain:
            raise ValueError(
                f"mechanism {mechanism}: its bound is for rows in the {release.domain}, where this "
                f"head has domain={problem.domain!r}; give the bound a field rows, and bring the "
                "rows there, or set domain to the other."
            )
        if not bound.mechanism:
            # Of somebody's own: whether it is a plain record is not known.
            try:
                json.dumps(release.to_dict())
            except TypeError as error:
                raise ValueError(
                    f"mechanism {mechanism}: its bound is no plain record ({error}); use Python's "
                    "own numbers, strings and tuples for its fields."
                ) from error
        return release

    def released_parameters(self) -> dict[str, NDArray[Any]]:
        """The released parameters by name: what ``release_.digest`` is a digest of.

        Returns
        -------
        dict of str to ndarray
            Parameters, labels and, where they are public, class counts.
        """
        check_is_fitted(self)
        return self._released(vars(self))

    def _released(self, fitted: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """The released parameters among fitted attributes."""
        names = ("classes_", *self._parameters)
        return {name: fitted[name] for name in names if name in fitted}

    def _parameters_follow(self) -> bool:
        """Whether what the head predicts with is what follows from the released parameters."""
        return True

    def _taken(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        """Rows as passes take them: their squares neither overflow nor vanish."""
        taken: NDArray[np.floating] = tame_input(X, self.domain)
        return taken

    def _policy_rows(
        self, policy: RadiusPolicy, X: Any, y: NDArray[Any]
    ) -> tuple[NDArray[np.floating], NDArray[Any]]:
        """Private rows that a radius policy reads, and their labels."""
        rows, labels = policy._read(X, y)
        return self._in_domain(rows), labels

    def _in_domain(self, X: NDArray[np.floating]) -> NDArray[np.floating]:
        """Rows in the coordinates that radii are declared in; passes project onto the ball."""
        if self.domain == "ball":
            return X
        with np.errstate(all="ignore"):
            finite = bool(np.isfinite(X).all())
        if not finite:
            raise ValueError("X: rows hold NaN or infinity; drop those rows, or repair them.")
        return rows_in_domain(X.astype(np.float64), float(self.norm_bound), self.domain)

    def _noise(self) -> Noise:
        """Noise of one release: of a fit, or of an audit's trial."""
        return Noise(self.random_state)

    def _mechanism_named(self, name: str) -> Mechanism:
        """The mechanism, or the one of this name where it chooses among others."""
        return self._mechanism()

    def _released_by(self) -> Mechanism:
        """The mechanism of the fitted head: audits run it again."""
        mechanism = self._mechanism_named(self.release_.mechanism)
        if mechanism.name != self.release_.mechanism:
            raise ValueError(
                f"mechanism: released by {self.release_.mechanism!r}, but the head's parameter "
                f"says {mechanism.name!r} by now; set it back, or fit again."
            )
        return mechanism

    def _known(
        self,
        X: Any,
        y: Any,
        groups: ArrayLike | None = None,
        **weights: ArrayLike | None,
    ) -> PrivateProblem:
        """The fitted head's problem on the records of an audit, with their owners and weights."""
        X, codes = self._coded(X, y)
        # What was released counts, not what the parameters say by now.
        stated, class_weight = self.release_.weights, None
        if stated is not None and stated.by_class is not None:
            class_weight = dict(zip(self.classes_.tolist(), stated.by_class, strict=True))
        weighed = self._weighed(codes, self.classes_, groups, weights, class_weight)
        return self._of_rows(X, codes, weighed)

    def _coded(self, X: Any, y: Any) -> tuple[NDArray[np.floating], NDArray[np.intp]]:
        """Rows as passes take them, and positions of their labels among those of the fit."""
        check_is_fitted(self)
        X, y = validated(self, X, y, reset=False)
        # Audits look at single rows: those of a file are read.
        X = np.asarray(X) if isinstance(X, Rows) else X
        classes = self.classes_
        codes = np.searchsorted(classes, y).clip(max=len(classes) - 1)
        if not np.all(classes[codes] == y):
            raise ValueError("y holds labels that the released model does not know.")
        # It names no cell; the passes of an audit do not look.
        assert_all_finite(X, estimator_name=type(self).__name__, input_name="X")
        return self._taken(X), codes

    def _of_rows(
        self, X: NDArray[np.floating], codes: NDArray[np.intp], weighed: Weighed
    ) -> PrivateProblem:
        """The fitted head's problem on rows that were looked at already."""
        if weighed.loss != self.release_.weights:
            raise ValueError(
                "groups, sample_weight: they are not those of the fit, or not of all of its "
                "records; pass what it was given, in the order of the rows."
            )
        public = replace(self._released_problem(), sums_weights=weighed.sums)
        return public.with_rows(X, codes, weighed.rows)

    def _released_problem(self) -> Problem:
        """The fitted head's problem, as far as it is public."""
        release = self.release_
        counts = getattr(self, "class_counts_", None)
        return self._problem(
            n_samples=release.n_samples,
            n_features=release.n_features,
            classes=self.classes_,
            class_counts=None if counts is None else tuple(counts.tolist()),
            alpha=release.alpha,
            norm_bound=release.norm_bound,
            radius=euclidean_radius(
                release.radius,
                release.metric,
                norm_bound=release.norm_bound,
                n_features=release.n_features,
            ),
            metric=release.metric,
            labels=release.labels,
            domain=release.domain,
            **self._released_weights(),
        )

    def _released_weights(self) -> dict[str, Any]:
        """Public weights of the fitted head, by the names that a problem gives them."""
        loss = sums = self.release_.weights
        if loss is not None and loss.by_class is not None:
            # Without a start nothing is made of sums.
            start = getattr(self.release_.bound, "start", None)
            sums = None if start is None else start.weights
        return {"sums_weights": sums, "loss_weights": loss}

    def _class_masses(self) -> NDArray[np.float64]:
        """Total weight of each class, or its records, of a fitted head with public labels."""
        weights = self.release_.weights
        totals = None if weights is None else weights.class_totals
        return np.array(self.class_counts_ if totals is None else totals, dtype=np.float64)

    def _validate_public(
        self, X_public: ArrayLike | None, y_public: ArrayLike | None, edits: bool
    ) -> tuple[NDArray, NDArray] | None:
        """Public rows and labels, or rows before and after an edit; None when there are none."""
        if X_public is None and y_public is None:
            return None
        if X_public is None or y_public is None:
            raise ValueError("X_public and y_public go together: pass both or neither.")
        if edits:
            before, after = checked_edits(self, X_public, y_public, reset=False)
            return self._in_domain(before), self._in_domain(after)
        rows, labels = validated_public(self, X_public, y_public, reset=False)
        return self._in_domain(rows), labels

    def _encode(self, y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
        if self.classes is None:
            if y.dtype.kind not in "biu":  # whole numbers are classes, and need no slow look
                check_classification_targets(y)
            found = None
            with contextlib.suppress(TypeError):
                found = np.unique(y, return_inverse=True)
            # Outside of the handler: an error's context may quote a label.
            if found is None:
                raise ValueError("y mixes labels of types that cannot be compared; use one type.")
            classes, codes = found
            if len(classes) < 2:
                raise ValueError(
                    "y holds 1 class; a classifier needs at least 2 classes (pass classes=[...] "
                    "to declare labels that are absent from y)."
                )
            return classes, codes
        declared = classes = np.empty(0)
        with contextlib.suppress(TypeError, ValueError):
            declared = np.asarray(self._listed_classes())
            classes = np.unique(declared)
        if declared.ndim != 1 or len(classes) < 2:
            raise ValueError(
                f"classes must list at least 2 labels of one type, got {self.classes!r}."
            )
        known = False
        with contextlib.suppress(TypeError, np.exceptions.DTypePromotionError):
            codes = np.searchsorted(classes, y).clip(max=len(classes) - 1)
            known = bool(np.all(classes[codes] == y))
        if not known:
            raise ValueError(
                "y holds labels outside the declared classes; add them to classes or drop those "
                "records (a continuous target is for a regressor)."
            )
        return classes, codes

    def _scores(self, X: ArrayLike, *, largest: bool = False) -> NDArray[Any]:
        check_is_fitted(self)
        X = self._taken(validated(self, X, reset=False))
        coef, intercept = self._linear_rule()
        bound, domain = self.release_.norm_bound, self.release_.domain
        with all_finite():
            return projected_scores(X, coef, intercept, bound, domain, largest=largest)

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores of the released rule.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Embeddings; rows are brought into the domain as in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
            With two classes one score per row, positive for ``classes_[1]``. With more, one score
            per class and row, all of them in memory.
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
            One label of ``classes_`` per row.
        """
        codes = self._scores(X, largest=True)
        return self.classes_[codes]

    def to_sklearn(self, *, project: bool = True) -> Any:
        """The released model as plain scikit-learn, for a place where this package is not.

        Parameters
        ----------
        project : bool, default=True
            True gives the same predictions for every row: the model is a Pipeline, whose first
            steps, scikit-learn's own, project rows outside of the ball of radius ``norm_bound``
            onto it (or scale rows to its surface). False gives the linear model alone, which
            converts to ONNX. It predicts the same for rows that are in place already (embeddings of
            unit norm).

        Returns
        -------
        estimator
            ``LogisticRegression`` where this head gives probabilities, else ``LinearSVC``, or a
            Pipeline that ends in one. Labels, scores and probabilities are this head's for rows in
            double precision (on the sphere with entries above 1e-14). It carries no record: publish
            ``release_`` beside it.
        """
        check_is_fitted(self)
        check_flag("project", project)
        coef, intercept = self._linear_rule()
        return plain_model(
            coef,
            intercept,
            self.classes_,
            norm_bound=self.release_.norm_bound if project else None,
            domain=self.release_.domain,
            probabilities=hasattr(self, "predict_proba"),
            names=getattr(self, "feature_names_in_", None),
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # Noise calibrated to a handful of records rightly drowns them.
        tags.classifier_tags.poor_score = True
        return tags


def masses_of(public: Mapping[str, Any]) -> Any:
    """Weight of each class in the loss among a problem's public numbers, or its records."""
    weights = public["loss_weights"]
    totals = None if weights is None else weights.class_totals
    return public["class_counts"] if totals is None else totals


def _no_rows(*_: Any) -> Any:
    raise ValueError(
        "radius: this policy chooses from rows, and a plan has none; pass a number, or a policy "
        "that was fitted on public rows in a FrozenEstimator."
    )


def _checked(mechanism: Mechanism, promise: Any) -> Promise:
    """The promise, with numbers as the record shows them."""
    if not (isinstance(promise, Promise) and isinstance(promise.bound, Bound)):
        raise ValueError(
            f"mechanism {mechanism.name}: promise() must return a Promise with a Bound, got "
            f"{type(promise).__name__}."
        )
    sensitivity = as_float_or_tuple(np.ravel(promise.sensitivity))
    sigma = as_float_or_tuple(np.ravel(promise.sigma))
    return Promise(promise.bound, sensitivity, sigma)


def _kept_bound(outcome: Outcome, promise: Promise) -> Bound:
    """The bound of a run: what it promised and was charged for, however it divided the budget."""
    bound = promise.bound if outcome.bound is None else outcome.bound
    if bound.promised != promise.bound:
        raise RuntimeError(
            f"mechanism {promise.bound.mechanism}: the bound of the run is not one of what was "
            "promised and charged (its property promised); nothing is published."
        )
    return bound


def _completed(release: Release, outcome: Outcome, bound: Bound, digest: str) -> Release:
    """The record with what is known after the run only."""
    late: dict[str, Any] = {"digest": digest, "bound": bound}
    if outcome.sensitivity is not None:
        late["stated_sensitivity"] = as_float_or_tuple(outcome.sensitivity)
    if outcome.sigma is not None:
        late["stated_sigma"] = as_float_or_tuple(outcome.sigma)
    if outcome.mu_ex_post is not None:
        late["epsilon_full_radius_ex_post"] = total_epsilon(
            outcome.mu_ex_post, release.delta, release.radius_epsilon
        )
    return replace(release, **late)
