"""Linear support vector classification with the squared hinge."""

from .linear import BaseLinearClassifier


class BallDPSquaredHingeSVC(BaseLinearClassifier):
    r"""Ball-DP linear SVM with the squared hinge; one-versus-rest for three classes and more.

    Releases, for each of the heads (one for two classes, else one per class), the minimiser of

    .. math:: \frac1n \sum_i \max(0, 1 - y_i (w x_i + b))^2 + \frac{\alpha}{2} (\|w\|^2 + b^2),

    plus Gaussian noise that hides the substitution of one row by another of the same label
    within ``radius``, at (epsilon, delta). All heads see the record, so they share one noise
    scale, calibrated to their stacked sensitivity.

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
        Regularisation strength, the paper's lambda; ``LinearSVC``'s ``C`` is
        ``1 / (alpha * n_samples)``. None is 0 with noise on gradients. With
        noise on the minimiser, which shrinks as alpha grows, it is the least that keeps the noise
        small, from public numbers; ``0.3 / n_samples`` at least.
    norm_bound : float, default=1.0
        Radius B of the ball that rows are projected onto. Declare it; never read it off the rows.
    fit_intercept : bool, default=True
        Augment rows by a constant (1; on gradients 0.3 times ``norm_bound``), whose weight,
        the intercept, is regularised. The paper has none.
    class_weight : "balanced", dict or None, default=None
        Weight of each class in the loss, for public labels. "balanced" is ``n_samples / (n_classes
        * n_c)``, capped at ``max_weight``. Noise follows the largest weight: it grows by n s / W, s
        being the largest and W the sum of all weights.
    max_weight : float or None, default=None
        Largest ``sample_weight`` that ``fit`` takes: naming it declares that those are public. None
        refuses them. Without them it is the cap of balanced weights (None: 4).
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
        Noisy weights.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Noisy intercepts; zeros without ``fit_intercept``.
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
    Margaryan & Gupta, "Ball Differential Privacy: How to Mitigate Data Reconstruction with Less
    Noise" (output perturbation, "paper" sensitivity); the "tight" gradient gap is proved in this
    package's documentation.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import Normalizer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> head = BallDPSquaredHingeSVC(epsilon=8.0, radius=0.1, alpha=0.1, fit_intercept=True)
    >>> make_pipeline(Normalizer(), head).fit(X, y).decision_function(X[:3]).shape
    (3,)
    """

    _loss = "squared_hinge"

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
        self.prior = prior
        self.protect_labels = protect_labels
        self.classes = classes
        self.calibration = calibration
        self.coordinates = coordinates
        self.random_state = random_state
