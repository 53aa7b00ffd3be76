"""Linear support vector classification with the squared hinge."""

from dataclasses import dataclass

from .documentation import documented
from .linear import BaseLinearClassifier


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class BallDPSquaredHingeSVC(BaseLinearClassifier):
    r"""Ball-DP linear SVM with the squared hinge; one-versus-rest for three classes and more.

    Fits, for each of the scores (one for two classes, else one per class), the weights that make
    this small, as far as noise allows:

    .. math:: \frac1n \sum_i \max(0, 1 - y_i (w x_i + b))^2 + \frac{\alpha}{2} (\|w\|^2 + b^2),

    Gaussian noise hides the substitution of one row by another of the same label within
    ``radius``, at (epsilon, delta). ``mechanism`` says where the noise is added: by default to
    class sums and to the gradients of a descent. Every record enters all scores, so one noise
    covers all of them together. Scores are no log-odds, so that classes have no weights here.

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

    _losses = "squared_hinge", "squared_hinge"
    _of_the_rule = ()
