"""Linear support vector classification with the squared hinge."""

from .linear import BaseLinearClassifier


class BallDPSquaredHingeSVC(BaseLinearClassifier):
    r"""Ball-DP linear SVM with the squared hinge; one-versus-rest for three classes and more.

    Fits, for each of the scores (one for two classes, else one per class), the weights that make
    this small, as far as noise allows:

    .. math:: \frac1n \sum_i \max(0, 1 - y_i (w x_i + b))^2 + \frac{\alpha}{2} (\|w\|^2 + b^2),

    Gaussian noise hides the substitution of one row by another of the same label within
    ``radius``, at (epsilon, delta). ``mechanism`` says where the noise is added: by default to
    class sums and to the gradients of a descent. Every record enters all scores, so one noise
    covers all of them together.

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
        of a row is hidden, and labels stay public (with ``protect_labels=True`` this is standard
        bounded DP).
    metric : {"euclidean", "manhattan", "chebyshev"}, default="euclidean"
        How the distance between two rows of one label is measured. "euclidean" wastes no noise. For
        the others the noise is that of the smallest Euclidean ball that holds theirs; with
        "chebyshev" its radius is up to ``sqrt(n_features)`` times as large.
    domain : {"ball", "sphere"}, default="ball"
        Choose "sphere" for rows of unit norm and a small radius: the second moment that a descent
        starts from then takes up to 29 % less noise. It scales every row to norm ``norm_bound`` by
        itself, and radii are distances between scaled rows; zero rows stay zero. "ball" projects
        rows outside the ball of radius ``norm_bound`` onto it.
    mechanism : {"auto", "output", "gradient"} or Mechanism, default="auto"
        Where the noise is added, which decides how accurate the head is. "gradient"
        (:class:`.GradientPerturbation`) adds it to class sums, and then to the gradients of a
        descent that starts from them. "output" (:class:`.OutputPerturbation`) adds it to the
        certified minimiser, as the paper does. "auto" takes "output" if the noise in a parameter
        would be small at ``alpha``, or at ``0.3 / n_samples`` if that is None (practically never).
        Elsewhere it takes "gradient", which is more accurate by far. The record names the choice.
        Pass an object to set a mechanism's parameters, or a mechanism of your own.
    alpha : float or None, default=None
        Strength of the regularisation, which pulls the weights towards zero. Leave it at None with
        noise on gradients, which needs none (None is 0): alpha saves no noise there, and the model
        fits worse. With noise on the minimiser a larger alpha takes less noise. None is then
        the least that keeps the noise small, from public numbers, and
        ``0.3 / n_samples`` at least. A number also enters the choice of "auto", and can turn it to
        "output". Alpha is the paper's lambda; ``LinearSVC``'s ``C`` is ``1 / (alpha * n_samples)``.
    norm_bound : float, default=1.0
        The radius B of the ball that rows are projected onto: longer rows are shortened to it (on
        the sphere all rows have this norm). A large B can cost noise, a small one changes the rows.
        1 suits embeddings of unit norm. Declare it; never read it off the rows.
    fit_intercept : bool, default=True
        Gives each score an offset of its own. That costs noise where noise is added to the
        minimiser; where it is added to gradients, it lets rows be centred, which saves noise. Rows
        are augmented by a constant (1; on gradients 0.15 times ``norm_bound``), whose weight, the
        intercept, is regularised. The paper has no intercept.
    class_weight : "balanced", dict or None, default=None
        Makes rare classes count more in the loss, and takes more noise: it grows by n s / W, with s
        the largest weight and W the sum of all weights. For public labels. "balanced" is
        ``n_samples / (n_classes * n_c)``, capped at 4; a dict maps labels to weights.
    class_embeddings : array-like of shape (n_classes, n_features) or None, default=None
        Helps where classes are many and the noise is large, at no cost in privacy: a public vector
        for each class, such as the embedding of its name. A descent then starts from noisy class
        means that are shrunk towards a fitted multiple of it. With ``start="zero"``, and with noise
        on the minimiser, it raises a ValueError.
    protect_labels : bool, default=False
        Hides a change of one record's label too, at any distance. At epsilon 2, against a ball of
        the median distance, that cost up to seven points of accuracy (with 77 classes), and more at
        smaller epsilons. Needs ``classes``.
    classes : array-like or None, default=None
        Which labels exist: a public list, needed with ``protect_labels=True``. It may name labels
        that are absent from ``y``; noise may then have some rows predicted as these. None takes the
        labels seen in ``y`` (public labels only).
    encoder : str or None, default=None
        Keeps apart what must not be added up: a name for where the rows come from (encoder, scale),
        which goes into the record. Releases that name different ones are not added up.
    random_state : None, int, Generator or RandomState, default=None
        Leave it at None for privacy: noise is then drawn exactly, from operating-system entropy. A
        seed makes the release reproducible and therefore not private, which ``release_.private``
        states.
    verbose : bool, default=False
        Long passes and descents of a fit show a bar on a terminal. True shows it in notebooks and
        logs too.

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
    >>> head = BallDPSquaredHingeSVC(epsilon=8.0, radius=0.1)
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
        domain="ball",
        mechanism="auto",
        alpha=None,
        norm_bound=1.0,
        fit_intercept=True,
        class_weight=None,
        class_embeddings=None,
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
        self.mechanism = mechanism
        self.alpha = alpha
        self.norm_bound = norm_bound
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.class_embeddings = class_embeddings
        self.protect_labels = protect_labels
        self.classes = classes
        self.encoder = encoder
        self.random_state = random_state
        self.verbose = verbose
