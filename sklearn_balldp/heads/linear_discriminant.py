"""The linear discriminant: a closed-form head of noisy sufficient statistics."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._parameters import Portion, Share, check_number, is_auto
from ..losses import Array
from ..mechanisms import Mechanism, StatisticsPerturbation
from ..mechanisms.rules.initialisation import scores_of
from .base import BaseSumsClassifier
from .documentation import documented
from .released import Released
from .scoring import ProbabilitiesMixin


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class BallDPLinearDiscriminant(ProbabilitiesMixin, BaseSumsClassifier):
    r"""Ball-DP linear discriminant analysis on noisy sufficient statistics.

    Releases the class sums :math:`S_c = \sum_{y_i = c} x_i` and the second moment
    :math:`M = \sum_i x_i x_i^T` once, with Gaussian noise that hides the substitution of one row by
    another of the same label within ``radius``, at (epsilon, delta). The noise falls with
    the radius, nearly in proportion. In a small ball, at a small epsilon, this head is nearly as
    accurate as logistic regression, for one pass over the rows. Its epsilon is exact at every
    Euclidean distance, and of persons with several records an upper bound. All else is computed
    from the noisy sums, at no further cost: class means, the covariance within classes (its
    eigenvalues cleaned of the noise by its distribution), and the linear scores

    .. math:: x^T \Sigma^{-1} (m_c - g) - \tfrac12 (m_c - g)^T \Sigma^{-1} (m_c + g) + \log \pi_c.

    Parameters
    ----------
    share : float or "auto", default="auto"
        How the budget is divided: what takes the larger share gets less noise. It is the share of
        mu squared that the class sums take, above 0 and at most 1; the second moment takes the
        rest. 1 leaves the second moment out: the scores are then those of noise-aware prototypes.
        "auto" chooses it from public numbers.
    shrinkage : float or "auto", default="auto"
        How the covariance within classes is cleaned of noise. It costs no privacy, so that several
        can be tried: see :meth:`with_rule`. "auto" uses the distribution of the noise.
        A number between 0 and 1 mixes the covariance with a multiple of the identity, as
        scikit-learn's ``LinearDiscriminantAnalysis`` does.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Weights of the scores.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Offsets; infinite for a class without records, which is never predicted.
    statistics_ : Statistics
        What was released: noisy sums, and the scales of their noise.

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
    >>> uniform = head.with_rule(priors="uniform")
    >>> uniform.release_ == head.release_  # nothing more was spent
    True
    """

    share: Any = "auto"
    shrinkage: Any = "auto"
    priors: Any = None
    class_embeddings: Any = None

    _of_the_rule = ("priors", "shrinkage", "class_embeddings")

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not is_auto(self.shrinkage):
            check_number("shrinkage", self.shrinkage, Share, ", or 'auto'")
        if not is_auto(self.share):
            check_number("share", self.share, Portion, ", or 'auto'")

    def _uses_examples(self) -> bool:
        return True

    def _mechanism(self) -> Mechanism:
        return StatisticsPerturbation(None if is_auto(self.share) else self.share)

    @property
    def coef_(self) -> Array:
        """Weights of the scores, of shape (1, n_features) or (n_classes, n_features)."""
        return self._linear_rule()[0]

    @property
    def intercept_(self) -> Array:
        """Offsets; infinite for a class without records, which is never predicted."""
        return self._linear_rule()[1]

    @staticmethod
    def _rule_of(released: Released) -> tuple[Array, Array]:
        statistics, settings = released.statistics(), released.settings
        of_rule = {"shrinkage": settings.shrinkage, "priors": settings.priors}
        coef, intercept = scores_of(statistics, settings.known(released.problem), **of_rule)
        if len(coef) == 2:
            with np.errstate(invalid="ignore"):
                return coef[1:] - coef[:1], intercept[1:] - intercept[:1]
        return coef, intercept
