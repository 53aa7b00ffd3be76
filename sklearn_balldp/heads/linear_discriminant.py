"""The linear discriminant: a closed-form head of noisy sufficient statistics."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._parameters import LEAST, checked_class_embeddings, checked_priors, is_auto, is_real
from ..privacy.bounds import Bound
from ..privacy.digest import parameters_digest
from ..privacy.release import Release
from ..privacy.statistics import StatisticsBound
from ..privacy.weights import is_weighted
from .base import BaseBallDPClassifier
from .descriptions import described
from .discriminant_rule import discriminant_rule
from .mechanism import Array, Mechanism, Problem
from .scoring import ProbabilitiesMixin
from .settings import RULE
from .statistics import Layout, Statistics, StatisticsPerturbation, statistics_of


@described
class BallDPLinearDiscriminant(ProbabilitiesMixin, BaseBallDPClassifier):
    r"""Ball-DP linear discriminant analysis on noisy sufficient statistics.

    Releases the class sums :math:`S_c = \sum_{y_i = c} x_i` and the second moment
    :math:`M = \sum_i x_i x_i^T` once, with Gaussian noise that hides the substitution of one row by
    another of the same label within ``radius``, at (epsilon, delta). The noise is proportional to
    the radius down to zero. Up to a radius of about 0.1 this head is within two points of the
    accuracy of logistic regression, for one pass over the rows, and its epsilon is exact at every
    distance. All else is computed from the noisy sums, at no further cost: class means, the
    covariance within classes (its eigenvalues cleaned of the noise, whose distribution is known),
    and the linear scores

    .. math:: x^T \Sigma^{-1} (m_c - g) - \tfrac12 (m_c - g)^T \Sigma^{-1} (m_c + g) + \log \pi_c.

    Parameters
    ----------
    $epsilon
    $delta
    $radius
    $metric
    $domain
    share : float or "auto", default="auto"
        How the budget is divided: what takes the larger share gets less noise. It is the share of
        mu squared that the class sums take, above 0 and at most 1; the second moment takes the
        rest. 1 leaves the second moment out: the scores are then those of noise-aware prototypes.
        "auto" chooses it from public numbers.
    shrinkage : float or "auto", default="auto"
        How the covariance within classes is cleaned of noise. It costs no privacy, so that several
        can be tried: see :meth:`from_statistics`. "auto" uses the known distribution of the noise.
        A number between 0 and 1 mixes the covariance with a multiple of the identity, as
        scikit-learn's ``LinearDiscriminantAnalysis`` does.
    $priors
        They act at the next fit; :meth:`from_statistics` needs none.
    $class_embeddings
        Without it they are shrunk to their common mean.
    norm_bound : float, default=1.0
        The norm B of the rows, which the noise in the second moment grows with. Declare it; never
        read it off the rows.
    $protect_labels
        The noise is then at least that of such a change, so that a small radius saves little.
    $classes
    $encoder
    $random_state
    $verbose

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights of the scores.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Offsets; infinite for a class without records, which is never predicted.
    statistics_ : Statistics
        What was released: noisy sums, and the scales of their noise.
    $classes_
    $class_counts_
    $release_
    $n_features_in_
    $feature_names_in_

    See Also
    --------
    BallDPRidgePrototype : Class means alone.
    sklearn.discriminant_analysis.LinearDiscriminantAnalysis : The same head without privacy.

    References
    ----------
    Stein (1981), "Estimation of the mean of a multivariate normal distribution" (the identity that
    corrects the measured variance). Sensitivities and the rule are derived in this package's
    documentation.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> X, y = load_digits(return_X_y=True)
    >>> head = BallDPLinearDiscriminant(epsilon=1.0, radius=0.1, domain="sphere", random_state=0)
    >>> head.fit(normalize(X), y).score(normalize(X), y) > 0.8
    True
    >>> uniform = BallDPLinearDiscriminant.from_statistics(head.statistics_, priors="uniform")
    >>> uniform.release_ == head.release_  # nothing more was spent
    True
    """

    _parameters = ("coef_", "intercept_", "class_counts_", "statistics_")

    def __init__(
        self,
        epsilon=1.0,
        delta=1e-6,
        radius=None,
        metric="euclidean",
        *,
        domain="ball",
        share="auto",
        shrinkage="auto",
        priors=None,
        class_embeddings=None,
        norm_bound=1.0,
        protect_labels=False,
        classes=None,
        encoder=None,
        random_state=None,
        verbose=False,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.radius = radius
        self.metric = metric
        self.domain = domain
        self.share = share
        self.shrinkage = shrinkage
        self.priors = priors
        self.class_embeddings = class_embeddings
        self.norm_bound = norm_bound
        self.protect_labels = protect_labels
        self.classes = classes
        self.encoder = encoder
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def from_statistics(
        cls,
        statistics: Statistics,
        *,
        shrinkage: Any = "auto",
        priors: Any = None,
        class_embeddings: Any = None,
    ) -> "BallDPLinearDiscriminant":
        """Another fitted head from statistics that were released already, at no further cost.

        Parameters
        ----------
        statistics : Statistics
            ``statistics_`` of a fitted head.
        shrinkage, priors, class_embeddings
            As in the constructor.

        Returns
        -------
        BallDPLinearDiscriminant
            Fitted; its ``release_`` is that of the statistics.

        Raises
        ------
        ValueError
            If a parameter is invalid, or the statistics are not those of their record.
        """
        release: Any = statistics.release
        bound = release.bound if release is not None else None
        if not isinstance(bound, StatisticsBound):
            raise ValueError(
                "statistics: they name no release of class sums; pass statistics_ of a fitted head."
            )
        head = cls(
            epsilon=release.epsilon,
            delta=release.delta,
            radius=release.radius,
            metric=release.metric,
            domain=release.domain,
            share=bound.share,
            shrinkage=shrinkage,
            priors=priors,
            class_embeddings=class_embeddings,
            norm_bound=release.norm_bound,
            protect_labels=release.labels == "protected",
            classes=statistics.classes,
            encoder=release.encoder,
        )
        head._check_parameters()
        fitted = {"classes_": statistics.classes, "statistics_": statistics}
        if release.labels == "public" and not is_weighted(bound.weights):
            fitted["class_counts_"] = statistics.counts
        if parameters_digest(head._released(fitted)) != release.digest:
            raise ValueError(
                "statistics: they are not those of their record (digest); pass statistics_ as it "
                "was released."
            )
        public = statistics.counts if release.labels == "public" else None
        checked_class_embeddings(class_embeddings, release.n_classes, release.n_features)
        checked_priors(priors, release.n_classes, public)
        coef, intercept = head._rule(statistics)
        for name, value in {**fitted, "coef_": coef, "intercept_": intercept}.items():
            setattr(head, name, value)
        head.n_features_in_, head.release_ = release.n_features, release
        if not head.decision_follows():
            raise ValueError(
                "statistics: its scales, domain or sizes are not those of its record; pass "
                "statistics_ as it was released."
            )
        return head

    def _check_parameters(self) -> None:
        super()._check_parameters()
        shrinkage, share = self.shrinkage, self.share
        if not (is_auto(shrinkage) or (is_real(shrinkage) and 0.0 <= shrinkage <= 1.0)):
            raise ValueError(f"shrinkage must lie in [0, 1], got {shrinkage!r}.")
        if not (is_auto(share) or (is_real(share) and LEAST <= share <= 1.0)):
            raise ValueError(f"share must be 'auto' or a number in (0, 1]; got {share!r}.")

    def _check_alpha(self, mechanism: Mechanism) -> None:
        """This head has no regulariser."""

    def _given_alpha(self) -> float:
        return 0.0

    def _mechanism(self) -> Mechanism:
        return StatisticsPerturbation(None if is_auto(self.share) else self.share)

    def _problem(self, **public: Any) -> Problem:
        shape = len(public["classes"]), public["n_features"]
        checked_class_embeddings(self.class_embeddings, *shape)
        return super()._problem(**public)

    def _completed(self, fitted: dict[str, Any], release: Release) -> dict[str, Any]:
        statistics = replace(fitted["statistics_"], release=release)
        return super()._completed({**fitted, "statistics_": statistics}, release)

    def _publish(self, parameters: Array, problem: Problem, bound: Bound) -> dict[str, Any]:
        statistics = statistics_of(parameters, bound, problem.classes, problem.public_counts)
        coef, intercept = self._rule(statistics)
        return {"statistics_": statistics, "coef_": coef, "intercept_": intercept}

    def _rule(self, statistics: Statistics) -> tuple[Array, Array]:
        """Weights and offsets, one row for two classes."""
        coef, intercept = discriminant_rule(
            statistics,
            shrinkage=self.shrinkage,
            priors=self.priors,
            class_embeddings=self.class_embeddings,
        )
        if len(coef) == 2:
            with np.errstate(invalid="ignore"):
                return coef[1:] - coef[:1], intercept[1:] - intercept[:1]
        return coef, intercept

    def _released(self, fitted: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        statistics = fitted["statistics_"]
        named = {"classes_": fitted["classes_"], "class_sums": statistics.class_sums}
        if statistics.second_moment is not None:
            named["second_moment"] = statistics.second_moment
        # Public counts are whole; noisy ones are released values.
        return {**named, "counts": statistics.counts}

    def _released_values(self, record: Release) -> Array:
        bound: Any = record.bound
        counts = None
        if bound.count_constant > 0.0:
            counts = self.statistics_.counts * bound.count_constant
        own = self.statistics_
        return Layout.of(bound).pack(own.class_sums, own.second_moment, counts)

    def decision_follows(self, record: Release | None = None) -> bool:
        try:
            head: Any = self._as_fitted()
            return bool(head._follows(self.release_ if record is None else record))
        except (AttributeError, ArithmeticError, LookupError, TypeError, ValueError):
            # A received model may hold anything.
            return False

    def _follows(self, record: Release) -> bool:
        # Numbers that are held twice must agree too.
        counts = getattr(self, "class_counts_", None)
        if is_weighted(record.weights):
            counts = np.array(record.weights.class_totals)
        again = statistics_of(self._released_values(record), record.bound, self.classes_, counts)
        exact = self._rule(again)
        own = self.statistics_
        if set(vars(own)) != {item.name for item in fields(Statistics)}:
            return False
        copies = [(own.classes, self.classes_)]
        if not is_weighted(record.weights):
            copies += [(own.counts, getattr(self, "class_counts_", own.counts))]
        numbers = ("sigma_sums", "sigma_moment", "sigma_counts", "domain", "norm_bound", "total")
        same = all(getattr(own, name) == getattr(again, name) for name in numbers)
        same = same and own.release == record
        same = same and np.allclose(own.counts, again.counts, rtol=1e-12, atol=0.0)
        if not (same and all(np.array_equal(a, b) for a, b in copies)):
            return False
        given = self.coef_, self.intercept_
        if record.rule != RULE:
            return all(np.shape(a) == b.shape for a, b in zip(given, exact, strict=True))
        return all(
            np.shape(a) == b.shape and np.allclose(a, b, rtol=1e-6, atol=1e-6 * _largest(b))
            for a, b in zip(given, exact, strict=True)
        )


def _largest(values: Array) -> float:
    return float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
