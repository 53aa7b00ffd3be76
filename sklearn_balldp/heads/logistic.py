"""Logistic regression, binary and softmax."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._validation import checked_priors
from ..privacy.bounds import Bound
from .base import ProbabilitiesMixin, Problem, masses_of
from .linear import BaseLinearClassifier
from .ridge_prototype import log_priors_of


class BallDPLogisticRegression(ProbabilitiesMixin, BaseLinearClassifier):
    r"""Ball-DP logistic regression: binary, or softmax for three classes and more.

    Releases the minimiser of

    .. math:: \frac1n \sum_i \ell(W x_i + b; y_i) + \frac{\alpha}{2} (\|W\|^2 + \|b\|^2),

    :math:`\ell = \log(1 + e^{-y(wx+b)})` for two classes and
    :math:`\log\sum_c e^{s_c} - s_y` for more, plus Gaussian noise that hides the substitution of
    one row by another of the same label within ``radius``, at (epsilon, delta).

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy loss bound, positive.
    delta : float, default=1e-6
        Failure probability, strictly between 0 and 1; below ``1 / n_samples``.
    radius : float, RadiusPolicy or None, default=None
        Substitutions hidden, in units of ``metric`` and in the coordinates this head sees. None
        is the full radius ``2 * norm_bound``: every feature substitution is hidden, labels being
        public (with ``protect_labels=True``, standard bounded DP).
    metric : {"euclidean", "manhattan", "chebyshev"}, default="euclidean"
        Distance between rows of equal label.
    mechanism : {"auto", "output", "gradient"} or Mechanism, default="auto"
        How the parameters are released. "gradient" (:class:`.GradientPerturbation`) adds noise to
        class sums, and then to the gradients of a descent that starts from them. "output"
        (:class:`.OutputPerturbation`) adds noise to the certified minimiser, as the paper does.
        "auto" takes "output" where the noise in a parameter would be small at ``alpha``, or at
        ``0.3 / n_samples`` if that is None (epsilons of hundreds), and "gradient" elsewhere:
        it is more accurate by far. The record names the choice. Pass an object to set their
        parameters, or a mechanism of your own.
    alpha : float or None, default=None
        Regularisation strength, the paper's lambda; scikit-learn's ``C`` is
        ``1 / (alpha * n_samples)``. None is 0 with noise on gradients. With
        noise on the minimiser, which shrinks as alpha grows, it is the least that keeps the noise
        small, from public numbers; ``0.3 / n_samples`` at least.
    norm_bound : float, default=1.0
        Radius B of the ball that rows are projected onto. Declare it; never read it off the rows.
    fit_intercept : bool, default=True
        Augment rows by a constant (1; on gradients 0.3 times ``norm_bound``), whose weight,
        the intercept, is regularised.
    class_weight : "balanced", dict or None, default=None
        Weight of each class in the loss, for public labels. "balanced" is ``n_samples / (n_classes
        * n_c)``, capped at ``max_weight``. Noise follows the largest weight: it grows by n s / W, s
        being the largest and W the sum of all weights.
    max_weight : float or None, default=None
        Largest ``sample_weight`` that ``fit`` takes: naming it declares that those are public. None
        refuses them. Without them it is the cap of balanced weights (None: 4).
    priors : array-like of shape (n_classes,), "uniform" or None, default=None
        Class probabilities that predictions assume, for public labels. None takes the shares that
        the classes have in the loss; "uniform" keeps rare classes in view, as ``class_weight``
        does, but adds no noise. It can be changed after the fit, at no cost.
    prior : array-like of shape (n_classes, n_features) or None, default=None
        Public vector for each class, such as the embedding of its name: a descent starts from noisy
        class means that are shrunk towards a fitted multiple of it. Not for noise on the minimiser.
    protect_labels : bool, default=False
        Hide a change of one record's label as well. Needs ``classes``.
    classes : array-like or None, default=None
        Label set, public. None takes the labels seen in ``y`` (public labels only).
    calibration : {"analytic", "classic"}, default="analytic"
        "classic" is the textbook formula, proved only for ``epsilon < 1``.
    coordinates : str or None, default=None
        Name of the rows' coordinates (encoder, scale), for the record: releases that name different
        ones are not added up.
    random_state : None, int, Generator or RandomState, default=None
        None draws exact noise from operating-system entropy. A seed makes the release
        reproducible and therefore not private, which ``release_.private`` states.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Noisy weights; softmax weights are centred over classes, which costs no privacy.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Noisy intercepts, as released: without ``priors``; zeros without ``fit_intercept``.
    classes_ : ndarray of shape (n_classes,)
        Labels.
    class_counts_ : ndarray of shape (n_classes,)
        Public class counts; absent with ``protect_labels=True``.
    transcript_ : Transcript
        Noisy gradients, iterates and noise scales, where the mechanism keeps them.
    release_ : Release
        Public record of the release: guarantee, gradient gap, noise, assumptions.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Feature names, when ``X`` has string column names.

    References
    ----------
    Menon et al. (2021), "Long-tail learning via logit adjustment" (``priors``); Margaryan & Gupta,
    "Ball Differential Privacy: How to Mitigate Data Reconstruction with Less Noise" (output
    perturbation, "paper" sensitivity); the "tight" gradient gap is proved in this package's
    documentation.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import Normalizer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> head = BallDPLogisticRegression(epsilon=8.0, radius=0.1, alpha=0.1)
    >>> head = make_pipeline(Normalizer(), head).fit(X, y)
    >>> head.predict_proba(X[:3]).shape
    (3, 2)
    """

    def __init__(
        self,
        epsilon=1.0,
        delta=1e-6,
        radius=None,
        metric="euclidean",
        *,
        mechanism="auto",
        alpha=None,
        norm_bound=1.0,
        fit_intercept=True,
        class_weight=None,
        max_weight=None,
        priors=None,
        prior=None,
        protect_labels=False,
        classes=None,
        calibration="analytic",
        coordinates=None,
        random_state=None,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.radius = radius
        self.metric = metric
        self.mechanism = mechanism
        self.alpha = alpha
        self.norm_bound = norm_bound
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.max_weight = max_weight
        self.priors = priors
        self.prior = prior
        self.protect_labels = protect_labels
        self.classes = classes
        self.calibration = calibration
        self.coordinates = coordinates
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.priors is not None and self.protect_labels:
            raise ValueError(
                f"priors={self.priors!r} with protect_labels=True: the shares that they replace "
                "are private; use priors=None."
            )

    def _problem(self, **public: Any) -> Problem:
        checked_priors(self.priors, len(public["classes"]), masses_of(public))
        return super()._problem(**public)

    def _linear_rule(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        coef, intercept = super()._linear_rule()
        if self.priors is None:
            return coef, intercept
        if self.release_.labels == "protected":
            raise ValueError(
                f"priors={self.priors!r}: this release keeps the shares that they replace private; "
                "use priors=None."
            )
        # Scores are log-odds of these shares (logit adjustment: Menon et al., 2021).
        shares = self._class_masses()
        priors = checked_priors(self.priors, len(shares), shares)
        moved = log_priors_of(priors, shares)
        moved[shares > 0.0] -= log_priors_of(None, shares)[shares > 0.0]
        return coef, intercept + (moved if len(coef) > 1 else moved[1:] - moved[:1])

    def _loss_name(self, n_classes: int) -> str:
        return "logistic" if n_classes == 2 else "softmax"

    def _publish(
        self, parameters: NDArray[np.float64], problem: Problem, bound: Bound
    ) -> dict[str, Any]:
        if len(parameters) > 1:
            # The minimiser's rows sum to zero: what the noise adds to the sum carries no signal.
            parameters = parameters - parameters.mean(axis=0)
        return super()._publish(parameters, problem, bound)
