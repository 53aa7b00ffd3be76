"""The one template of every head: parameters, a fit in four steps, and a linear decision."""

import copy
import math
import numbers
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from .._parameters import (
    Epsilon,
    Inside,
    check_flag,
    check_number,
    check_option,
    check_positive,
    check_whole,
)
from .._validation import (
    all_finite,
    all_or_nothing,
    complete_labels,
    raise_alone,
    validated,
)
from ..accounting.accountant import check_accountant
from ..adjacency import DOMAINS, METRICS
from ..losses import Array
from ..mechanisms import Examples, Mechanism, Records, Statistics
from ..pipelines import Head
from ..privacy.noise import Noise, check_random_state
from ..privacy.problem import Problem
from ..privacy.release import Release
from ..progress import shown
from ..radius import (
    PUBLIC_SOURCES,
    ChosenRadius,
    RadiusPolicy,
    checked_edits,
    choose_radius,
)
from ..rows import in_memory, joined
from .fitting import Pledge, promise, release, warn_of_large_delta
from .known_radius import known_radius
from .labels import Labels, declared_classes, known_places
from .plan import Plan, plan_of
from .released import Released, Settings
from .scoring import ScoreRule, decisions, largest_of
from .serving import plain_model
from .weighing import FitWeights, fit_weights


@dataclass(eq=False, repr=False)
class BaseBallDPClassifier(Head, ClassifierMixin, BaseEstimator, metaclass=ABCMeta):
    """A head: its parameters, the fit, and the linear rule by which it predicts.

    Parameters
    ----------
    epsilon : float, default=1.0
        How strongly a substitution is hidden: a smaller value hides more, and takes more noise.
        Positive.
    delta : float, default=1e-6
        A small allowance beside ``epsilon``: a smaller value promises more, and takes a little more
        noise. Strictly between 0 and 1. Choose it far below ``1 / n_samples``; ``fit`` warns if it
        is not below.
    radius : float, RadiusPolicy or None, default=None
        Which substitutions are hidden: a larger radius hides larger changes, and takes more noise.
        It is a distance in units of ``metric`` between rows as this head sees them; a
        :class:`.RadiusPolicy` chooses it. None is the full radius ``2 * norm_bound``: every change
        of a row is hidden, and labels and class counts stay public (with ``protect_labels=True``
        this is standard bounded DP).
    metric : {"euclidean", "manhattan", "chebyshev"}, default="euclidean"
        How the distance between two rows of one label is measured. "euclidean" wastes no noise. For
        the others the noise is that of the smallest Euclidean ball that holds theirs; with
        "chebyshev" its radius is up to ``sqrt(n_features)`` times as large.
    domain : {"ball", "sphere"}, default="ball"
        Choose "sphere" for rows of unit norm and a small radius: the second moment of the rows,
        which a descent starts from too, then takes less noise. It scales every row to norm
        ``norm_bound`` by itself, and radii are distances between scaled rows; zero rows stay zero.
        "ball" projects rows outside the ball of radius ``norm_bound`` onto it.
    norm_bound : float, default=1.0
        The radius B of the ball that rows are projected onto: longer rows are shortened to it (on
        the sphere all rows have this norm). A large B can cost noise, a small one changes the rows.
        1 suits embeddings of unit norm. Declare it; never read it off the rows.
    priors : array-like of shape (n_classes,), "uniform" or None, default=None
        Keeps rare classes in view without any noise: the class probabilities that predictions
        assume. "uniform" takes all classes to be equally common; None takes the shares that the
        classes have in the fit. Prototypes need public labels for them; the discriminant releases
        noisy counts. :meth:`with_rule` changes them after a fit, at no
        cost.
    class_embeddings : array-like of shape (n_classes, n_features), mapping or None, default=None
        Helps where classes are many and the noise is large, at no cost in privacy: a public vector
        for each class, such as the embedding of its name, in the order of ``classes_`` or by label
        (labels beyond ``classes_`` are ignored). Scores start as a sum of those that noisy sums
        give and those of the vectors, each as much as it fits. Vectors add nothing to a noisy
        second moment. With public examples (see :meth:`fit`), with ``start="zero"`` or "mean", and
        with noise on the minimiser they raise a ValueError.
    protect_labels : bool, default=False
        Hides a change of one record's label too, at any distance. Needs ``classes``. The noise is
        at least that of such a change, so that a small radius saves little.
    classes : array-like or None, default=None
        Which labels exist: a public list, needed with ``protect_labels=True``. It may name labels
        that are absent from ``y``; noise may then have some rows predicted as these. None takes the
        labels of ``y`` (public labels only).
    encoder : str or None, default=None
        Keeps apart what must not be added up: a name for where the rows come from (encoder, scale),
        which goes into the record. Releases that name different ones are not added up.
    accountant : PrivacyAccountant or None, default=None
        Counts each fit in its ledger before a query reads the rows, and refuses the fit that would
        pass its limit. Clones and pickles count there too; what is published does not name it.
    random_state : None, int, Generator or RandomState, default=None
        Leave it at None for privacy: noise is then drawn exactly, from operating-system entropy. A
        seed makes the release reproducible and therefore not private, which ``release_.private``
        states.
    verbose : bool, default=False
        Long passes and descents of a fit show a bar on a terminal. True shows it in notebooks and
        logs too.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    class_counts_ : ndarray of shape (n_classes,)
        Public class counts; absent with ``protect_labels=True``.
    release_ : Release
        Public record of the release: guarantee, sensitivity, noise, assumptions.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Feature names, when ``X`` has string column names.
    """

    epsilon: float = 1.0
    delta: float = 1e-6
    radius: Any = None
    metric: str = "euclidean"
    _: KW_ONLY
    domain: str = "ball"
    norm_bound: float = 1.0
    protect_labels: bool = False
    classes: Any = None
    encoder: Any = None
    accountant: Any = None
    random_state: Any = None
    verbose: Any = False

    _takes_accountant: ClassVar[bool] = True
    #: Parameters that a new rule may have without a new fit.
    _of_the_rule: ClassVar[tuple[str, ...]] = ("priors",)
    #: Whether a fit keeps every noisy answer: an audit that makes the fit tests their noise.
    _keep_answers = False
    #: Whether public rows are examples, and not for a policy alone, as in an audit.
    _takes_examples = True

    # What a head is made of.

    @abstractmethod
    def _mechanism(self) -> Mechanism:
        """How the parameters are released."""

    @staticmethod
    @abstractmethod
    def _rule_of(released: Released) -> tuple[Array, Array]:
        """Weights (n_scores, n_features) and offsets (n_scores,) of the released scores."""

    def _settings(self, examples: Examples | None) -> Settings:
        """Settings of the rule, as the head's parameters say now, and public examples."""
        # Copies: what a caller does to an array later changes nothing that was released.
        names = vars(self).keys() & Settings.__dataclass_fields__.keys()
        given = {name: copy.deepcopy(getattr(self, name)) for name in names}
        return Settings(**given, examples=examples)

    def _uses_examples(self) -> bool:
        """Whether public examples of the classes help it."""
        return self._mechanism().takes_examples()

    def _problem(self, **public: Any) -> Problem:
        """The fit's public numbers; linear heads add theirs."""
        return Problem(**public)

    def _noise(self) -> Noise:
        """Noise of one release: of a fit, or of an audit's trial."""
        return Noise(self.random_state)

    # Parameters.

    def set_params(self, **params: Any) -> "BaseBallDPClassifier":
        """Set all of these parameters, or none if one is unknown, for the next fit.

        What was released stays as it is, and so do predictions, audits and checks of it:
        :meth:`with_rule` gives another head from the same release.

        Those of a mechanism or a policy are named like ``mechanism__n_steps``. An object whose
        parameters are set is copied before, as other heads may hold it; a mechanism that was named
        becomes its object.

        Parameters
        ----------
        **params
            Any of the parameters.

        Returns
        -------
        self
            The head.
        """
        nested = {name.partition("__")[0] for name in params if "__" in name}
        present = self.get_params(deep=False)
        copies = {
            name: self._with_parameters(name, params.get(name, present[name]))
            for name in nested & set(present)
        }
        trial = type(self)(**present)
        super(BaseBallDPClassifier, trial).set_params(**{**params, **copies})
        for name in {name.partition("__")[0] for name in params}:
            setattr(self, name, getattr(trial, name))
        return self

    def _with_parameters(self, name: str, value: Any) -> Any:
        """A copy of an object whose parameters are to be set."""
        if not hasattr(value, "set_params"):
            raise ValueError(f"{name}={value!r} has no parameters; pass {name}= itself.")
        return copy.copy(value)

    def _check_parameters(self) -> None:
        check_number("epsilon", self.epsilon, Epsilon)
        check_number("delta", self.delta, Inside)
        check_positive("norm_bound", self.norm_bound)
        if not isinstance(self._policy, (RadiusPolicy, type(None))):
            check_positive("radius", self.radius, ", a RadiusPolicy, or None (2 * norm_bound)")
        check_option("metric", self.metric, METRICS)
        check_option("domain", self.domain, DOMAINS)
        check_flag("protect_labels", self.protect_labels)
        if not isinstance(self.verbose, numbers.Integral):
            check_flag("verbose", self.verbose)
        check_random_state(self.random_state)
        check_accountant(self.accountant)
        name = "" if self.encoder is None else self.encoder
        if not (isinstance(name, str) and name.isprintable() and len(name) <= 200):
            raise ValueError(
                f"encoder must be None or one line of 200 characters at most, got {name!r:.60}."
            )
        if self.protect_labels and self.classes is None:
            raise ValueError(
                "classes=None with protect_labels=True: the label set must be declared, not read "
                "from private labels; pass classes=[...]."
            )
        self._mechanism().check()

    @property
    def _policy(self) -> Any:
        """What ``radius`` holds, out of a FrozenEstimator."""
        frozen = isinstance(self.radius, FrozenEstimator)
        return self.radius.estimator if frozen else self.radius

    # The fit.

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        X_public: ArrayLike | None = None,
        y_public: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> "BaseBallDPClassifier":
        """Fit the head and release its noisy parameters.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The private embeddings, one record per row: an array, a memory map, an array of Zarr
            or HDF5, or one of Dask.
        y : array-like of shape (n_samples,)
            Class labels.
        X_public : array-like of shape (n_public, n_features), optional
            Public records of the same kind, chosen without a look at the private ones: examples of
            the classes, which the fit starts from at no cost in privacy. A class may have none. A
            :class:`.RadiusPolicy` with ``source="reference"`` chooses the radius from them too. For
            ``source="edits"`` they are rows before an edit, and no examples. Refused where neither
            the policy nor the mechanism uses them. A search cuts them into folds if there are as
            many as private records.
        y_public : array-like of shape (n_public,), optional
            Their labels; records with others than those of the head are left out. For
            ``source="edits"`` the rows after the edit, of shape (n_public, n_features). The record
            then has no share of records: a policy that was fitted with the numbers of the records,
            in a ``FrozenEstimator``, states it.
        groups : array-like of shape (n_samples,), optional
            The public owner of each record. Hides **all** records of one owner together, and takes
            as much noise as a fit on as many records as there are owners (for prototypes more, as
            records spread over classes). Each record may be replaced by one of its label within
            ``radius``, and counts for one over the number of its owner's records. Texts are
            compared in NFC and without blanks at their ends, and numbers among them by value: 7.0,
            "7 " and "007" are one owner.

        Returns
        -------
        self
            The fitted head; ``release_`` states what it guarantees.

        Raises
        ------
        ValueError
            If a parameter or the data is invalid; nothing is released then.
        """
        with shown(self.verbose), all_or_nothing(self):
            self._check_parameters()
            rows, targets = validated(self, X, y)
            labels = Labels.of(targets, declared_classes(self.classes), self.protect_labels)
            self.classes_ = labels.classes
            weights = self._weights(len(rows), labels, groups)
            reference, examples = self._public(X_public, y_public, self.classes_)
            radius = known_radius(self)
            if radius is None:
                if reference is None and self._policy.source in PUBLIC_SOURCES:
                    edits = self._policy.source == "edits"
                    after = " (records before and after an edit)" if edits else ""
                    raise ValueError(
                        f"radius: RadiusPolicy(source={self._policy.source!r}) needs public rows"
                        f"{after}: pass X_public and y_public to fit, or choose source='declared'."
                    )
                radius = self._chosen_radius(reference or (rows, targets), weights)
            pledge = self._pledge(rows.shape, labels, weights, radius, examples)
            self.released_ = release(self, pledge, Records(rows, labels.codes, weights.rows))
        return self

    def plan(
        self,
        n_samples: int,
        n_features: int,
        class_counts: Sequence[int] | NDArray[np.integer] | None = None,
        *,
        y: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        X_public: ArrayLike | None = None,
        y_public: ArrayLike | None = None,
    ) -> Plan:
        """What a fit would release, and how much noise it would add, before any row is touched.

        Parameters
        ----------
        n_samples, n_features : int
            Shape of the rows.
        class_counts : array-like of int, shape (n_classes,), optional
            Records of each class, in the order of ``classes``: needed where labels are public.
        y : array-like of shape (n_samples,), optional
            Public labels, in place of ``class_counts``: needed for ``groups``.
        groups : array-like of shape (n_samples,), optional
            Owner of each record, as in :meth:`fit`.
        X_public : array-like of shape (n_public, n_features), optional
            Public records, as in :meth:`fit`.
        y_public : array-like of shape (n_public,), optional
            Their labels.

        Returns
        -------
        Plan
            What is released, its noise and its signal; printing it shows all of them.

        Raises
        ------
        ValueError
            If a parameter is invalid, counts do not add up, or the radius is chosen from private
            rows: give a number or a fitted policy in a ``FrozenEstimator``.
        """
        self._check_parameters()
        for name, value in (("n_samples", n_samples), ("n_features", n_features)):
            check_whole(name, value)
        shape = int(n_samples), int(n_features)
        labels = Labels.planned(
            shape[0],
            declared_classes(self.classes),
            self.protect_labels,
            class_counts=class_counts,
            y=y,
            of_persons=groups is not None,
        )
        weights = self._weights(shape[0], labels, groups)
        seer = copy.copy(self)  # on which validation may leave what it found
        reference, examples = seer._public(X_public, y_public, labels.classes, reset=True)
        if X_public is not None and seer.n_features_in_ != n_features:
            raise ValueError(
                f"X_public has {seer.n_features_in_} features, and n_features={n_features!r}; pass "
                "rows as the fit takes them."
            )
        radius = known_radius(self)
        if radius is None and reference is None:
            raise ValueError(
                "radius: this policy chooses from rows, and a plan has none; pass a number, or a "
                "policy that was fitted on public rows in a FrozenEstimator."
            )
        radius = radius or self._chosen_radius(reference, weights)
        pledge = self._pledge(shape, labels, weights, radius, examples)
        return plan_of(pledge.release, labels.classes.tolist(), labels.counts)

    def _weights(self, n_samples: int, labels: Labels, groups: ArrayLike | None) -> FitWeights:
        """The weights of the records, and what a radius and a delta must be for them."""
        owners = in_memory("groups", groups)
        weights = fit_weights(n_samples, labels.counts, labels.codes, owners)
        warn_of_large_delta(self.delta, weights.public)
        return weights

    def _chosen_radius(self, pair: Any, weights: FitWeights) -> ChosenRadius:
        """What the policy chooses from rows and labels, or from rows before and after an edit."""
        return choose_radius(
            self._policy,
            *pair,
            metric=self.metric,
            norm_bound=float(self.norm_bound),
            domain=self.domain,
            accountant=self.accountant,
            unit=weights.public.unit,
        )

    def _pledge(
        self,
        shape: tuple[int, int],
        labels: Labels,
        weights: FitWeights,
        radius: ChosenRadius,
        examples: Examples | None,
    ) -> Pledge:
        """What a fit will release, from its public numbers and examples."""
        alpha = getattr(self, "alpha", 0.0)
        problem = self._problem(
            n_samples=shape[0],
            n_features=shape[1],
            n_classes=len(labels.classes),
            class_counts=labels.counts,
            alpha=math.nan if alpha is None else float(alpha),
            norm_bound=float(self.norm_bound),
            radius=math.nan if radius.value is None else float(radius.value),
            metric=self.metric,
            domain=self.domain,
            sums_weights=weights.public,
        )
        if radius.value is None:
            problem = replace(problem, radius=problem.full_radius)
        settings = self._settings(examples).checked(labels.classes, problem)
        return promise(self, problem, radius, settings)

    # What was released.

    @property
    def release_(self) -> Release:
        """Public record of the release."""
        return self._fitted().release

    @property
    def class_counts_(self) -> NDArray[np.intp]:
        """Public records of each class."""
        counts = self._fitted().problem.class_counts
        if counts is None:
            raise AttributeError("class_counts_: the counts of this release are private.")
        return np.array(counts)

    def _fitted(self) -> Released:
        released = vars(self).get("released_")
        if released is None:
            raise AttributeError(f"this {type(self).__name__} is not fitted yet; call fit.")
        return released

    def _linear_rule(self) -> tuple[Array, Array]:
        """Weights (n_scores, n_features) and offsets (n_scores,) that it predicts with."""
        released = self._fitted()
        return released.cached("rule", lambda: self._rule_of(released))

    def released_parameters(self) -> dict[str, NDArray[Any]]:
        """The released arrays by name, of which ``release_.digest`` is a digest."""
        check_is_fitted(self)
        return self._fitted().arrays()

    def with_rule(self, **settings: Any) -> "BaseBallDPClassifier":
        """Another fitted head from the same release, at no cost in privacy.

        Parameters
        ----------
        **settings
            ``class_weight`` of logistic regression; ``priors`` of the others but the SVC, of
            prototypes ``decision`` too, of the discriminant ``shrinkage`` and
            ``class_embeddings``. Others raise a ValueError.

        Returns
        -------
        BaseBallDPClassifier
            Fitted, with these parameters; its ``release_`` is this head's.
        """
        check_is_fitted(self)
        odd = sorted(set(settings) - set(self._of_the_rule))
        if odd:
            raise ValueError(
                f"{', '.join(odd)}: a new rule of this head takes "
                f"{', '.join(self._of_the_rule) or 'no settings'}; everything else needs a new fit."
            )
        head = clone(self).set_params(**settings)
        head._check_parameters()
        released = self._fitted()
        rule = replace(released.settings, **copy.deepcopy(settings))
        rule = rule.checked(self.classes_, released.problem)
        vars(head).update({k: v for k, v in vars(self).items() if k.endswith("_")})
        head.released_ = replace(released, settings=rule)
        head._linear_rule()
        return head

    def _public(
        self,
        X_public: ArrayLike | None,
        y_public: ArrayLike | None,
        classes: NDArray[Any],
        *,
        reset: bool = False,
    ) -> tuple[Any, Examples | None]:
        """Public rows that a policy chooses the radius from, and examples of the classes, if any.

        Private records decide nothing here, and nothing compares these with them.
        """
        if X_public is None and y_public is None:
            return None, None
        if X_public is None or y_public is None:
            raise ValueError("X_public and y_public go together: pass both or neither.")
        chooses = known_radius(self) is None and self._policy.source in PUBLIC_SOURCES
        helps = self._takes_examples and self._uses_examples()
        # Vectors of the classes take the place of examples where a policy needs these rows.
        helps = helps and not (chooses and getattr(self, "class_embeddings", None) is not None)
        if chooses and self._policy.source == "edits":
            return checked_edits(self, X_public, y_public, reset=reset), None
        if not (chooses or helps):
            raise ValueError(
                "X_public and y_public are for a RadiusPolicy that chooses the radius from public "
                f"rows, and for examples, which mechanism {self._mechanism().name} does not use: "
                "leave them out, or take another head, or mechanism='gradient'."
            )
        examples = None
        try:
            rows, labels = validated(self, X_public, y_public, reset=reset, whole=True)
            codes = known_places(labels, classes)
            known = codes >= 0
            rows, labels, codes = rows[known], labels[known], codes[known]
            if len(codes) == 0:
                raise ValueError("y_public holds no label of the head; pass rows of its classes.")
            if helps:
                at: dict[str, Any] = {"norm_bound": float(self.norm_bound), "domain": self.domain}
                with all_finite():
                    examples = Examples.of(rows, codes, len(classes), **at)
        except ValueError as error:
            raise_alone(ValueError(f"X_public: {error}"))
        return ((rows, labels) if chooses else None), examples

    def _predicted(self, X: Any, finish: Callable[[Array], NDArray[Any]]) -> Any:
        """What is made of the scores of rows: lazily, where these are an array of Dask."""
        check_is_fitted(self)
        X = validated(self, X, reset=False)
        release = self.release_
        rule = ScoreRule(*self._linear_rule(), release.norm_bound, release.domain, finish)
        if hasattr(X, "lazily"):
            return X.lazily(rule)
        with all_finite():
            return joined(rule, X)

    def decision_function(self, X: ArrayLike) -> Array:
        """Scores of the released rule: (n_samples,) for two classes, else (n_samples, n_classes).

        Rows ``X`` are brought into the domain as in ``fit``; those of Dask give an array of Dask. A
        score of two classes is positive for ``classes_[1]``.
        """
        return self._predicted(X, decisions)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predicted labels of rows ``X``, each one of ``classes_``; of Dask, where they are its."""
        check_is_fitted(self)
        return self._predicted(X, partial(_labels_of, self.classes_))

    def score(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy: the share of the rows whose label is predicted.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as :meth:`predict` takes them.
        y : array-like of shape (n_samples,)
            True labels, as :meth:`fit` takes them.
        sample_weight : array-like of shape (n_samples,), default=None
            How much each row counts.

        Returns
        -------
        float
            Of private rows it is private information, and no part of the release.
        """
        labels, found = complete_labels(y), in_memory("X", self.predict(X))
        # Loaded when it is asked for: a check of a folder scores nothing.
        from sklearn.metrics import accuracy_score

        return accuracy_score(labels, found, sample_weight=sample_weight)

    def to_sklearn(self, *, project: bool = True) -> Any:
        """The released model as plain scikit-learn, for a place where this package is not.

        Parameters
        ----------
        project : bool, default=True
            True gives the same predictions for rows of any usual length: the first steps of a
            Pipeline bring rows into the domain. False gives the linear model alone, which converts
            to ONNX, for rows that are in place already (embeddings of unit norm).

        Returns
        -------
        estimator
            ``LogisticRegression`` where this head gives probabilities, else ``LinearSVC``, or a
            Pipeline that ends in one. It agrees for rows in double precision, on the sphere with an
            entry above 1e-14. It carries no record: publish ``release_`` beside it.
        """
        check_is_fitted(self)
        check_flag("project", project)
        return plain_model(self, project)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # Noise calibrated to a handful of records rightly drowns them.
        tags.classifier_tags.poor_score = True
        return tags


class BaseSumsClassifier(BaseBallDPClassifier):
    """Head that is made of noisy class sums."""

    @property
    def statistics_(self) -> Statistics:
        """What was released: noisy sums, and the scales of their noise."""
        return self._fitted().statistics()


def _labels_of(classes: NDArray[Any], scores: Array) -> NDArray[Any]:
    """The labels of largest score."""
    return classes[largest_of(scores)]
