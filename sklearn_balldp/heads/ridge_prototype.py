"""Ridge prototypes: one noisy shrunken mean per class."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._parameters import check_option, check_positive
from ..losses import Array
from ..mechanisms import Mechanism, PrototypePerturbation, prototypes_of
from ..mechanisms.rules.prototypes import gaussian_rule, shift_of_priors
from .base import BaseSumsClassifier
from .documentation import documented
from .released import Released
from .scoring import ProbabilitiesMixin


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class BallDPRidgePrototype(ProbabilitiesMixin, BaseSumsClassifier):
    r"""Ball-DP classifier by noisy class means (ridge prototypes).

    Releases one prototype per class, the minimiser of

    .. math:: \frac1n \sum_i \|x_i - \mu_{y_i}\|^2 + \frac{\alpha}{2} \sum_c \|\mu_c\|^2,
              \qquad \mu_c = \frac{2 S_c}{2 n_c + \alpha n},

    with class sums :math:`S_c`, plus Gaussian noise that hides the substitution of one row by
    another of the same label within ``radius``, at (epsilon, delta). At a small epsilon
    ``protect_labels`` costs much accuracy.

    Parameters
    ----------
    alpha : float, default=0.01
        How far prototypes are shrunk towards zero. With ``counts="per_class"`` the noise shrinks as
        much, so it hardly matters. With ``counts="worst"`` or protected labels a larger alpha takes
        less noise relative to the prototypes. It is the paper's lambda.
    counts : {"per_class", "min", "worst"}, default="per_class"
        How much noise each class gets: accuracy falls from "per_class" to "worst", and so does the
        measured success of an attack. "per_class" gives each class the noise that its public count
        asks for. "min" gives all classes the noise of the smallest, under the same certificate.
        "worst" does not use counts (the paper's Table 1): its noise is more than epsilon asks for,
        and its certificate smaller. It raises a ValueError for unequal
        weights, and for persons with several records. Not used with ``protect_labels=True``, where
        counts are private.
    decision : {"auto", "nearest", "gaussian"}, default="auto"
        How a row is classified; :meth:`with_rule` changes it after a fit, at no cost. "gaussian"
        knows how much of a prototype is noise, uses class priors and offers ``predict_proba``; it
        needs public labels. "nearest" takes the closest noisy prototype, as the paper does. "auto"
        is "gaussian" where labels are public, else "nearest".

    Attributes
    ----------
    prototypes_ : ndarray of shape (n_classes, n_features)
        Noisy prototypes.

    References
    ----------
    Margaryan & Gupta, "Ball Differential Privacy: How to Mitigate Data Reconstruction with Less
    Noise" (mechanism, "worst" and "min"); per-class noise, label protection and the "gaussian"
    rule are derived in this package's documentation.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> X, y = load_digits(return_X_y=True)
    >>> head = BallDPRidgePrototype(epsilon=4.0, radius=0.5, random_state=0)
    >>> head.fit(normalize(X), y).score(normalize(X), y) > 0.8
    True
    >>> head.release_.private  # seeded: reproducible, so not private
    False
    """

    alpha: float = 0.01
    counts: str = "per_class"
    decision: str = "auto"
    priors: Any = None

    _of_the_rule = ("priors", "decision")

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_positive("alpha", self.alpha)
        check_option("decision", self.decision, ("auto", "nearest", "gaussian"))
        if self.protect_labels and self.decision == "gaussian":
            raise ValueError(
                "decision='gaussian' uses class counts, which protect_labels=True keeps private; "
                "use decision='nearest'."
            )
        if self.priors is not None and not _is_gaussian(self.decision, self.protect_labels):
            raise ValueError(
                f"priors={self.priors!r} go with the 'gaussian' decision, for public labels; use "
                "priors=None."
            )

    def _mechanism(self) -> Mechanism:
        return PrototypePerturbation(self.counts)

    @property
    def prototypes_(self) -> Array:
        """Noisy prototypes, of shape (n_classes, n_features)."""
        released = self._fitted()
        return released.cached("prototypes", lambda: _prototypes(released))

    def _has_probabilities(self) -> bool:
        released = vars(self).get("released_")
        if released is None:
            return _is_gaussian(self.decision, self.protect_labels)
        return _is_gaussian(released.settings.decision, released.problem.labels == "protected")

    @staticmethod
    def _rule_of(released: Released) -> tuple[Array, Array]:
        problem, settings = released.problem, released.settings
        prototypes, masses = _prototypes(released), problem.class_sizes
        if masses is not None and _is_gaussian(settings.decision, False):
            shrink = 2.0 * masses + problem.alpha * problem.sums_weights.total
            noise = 2.0 * released.statistics().sigma_sums / shrink
            public = {"alpha": problem.alpha, "norm_bound": problem.norm_bound}
            coef, intercept = gaussian_rule(prototypes, masses, noise, **public)
            return coef, intercept + shift_of_priors(settings.priors, masses)
        offsets = -0.5 * np.vecdot(prototypes, prototypes)
        if masses is not None:
            offsets[masses == 0] = -np.inf
        return prototypes, offsets


def _is_gaussian(decision: str, protected: bool) -> bool:
    """Whether a rule is the noise-aware one."""
    return decision == "gaussian" or (decision == "auto" and not protected)


def _prototypes(released: Released) -> Array:
    return prototypes_of(released.statistics(), released.problem.alpha)
