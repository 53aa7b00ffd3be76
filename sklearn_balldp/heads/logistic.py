"""Logistic regression, binary and softmax."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .documentation import documented
from .linear import BaseLinearClassifier
from .released import Released
from .scoring import ProbabilitiesMixin
from .weighing import check_class_weight, weights_of_classes


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class BallDPLogisticRegression(ProbabilitiesMixin, BaseLinearClassifier):
    r"""Ball-DP logistic regression: binary, or softmax for three classes and more.

    Fits the weights that make this small, as far as noise allows:

    .. math:: \frac1n \sum_i \ell(W x_i + b; y_i) + \frac{\alpha}{2} (\|W\|^2 + \|b\|^2),

    :math:`\ell = \log(1 + e^{-y(wx+b)})` for two classes and
    :math:`\log\sum_c e^{s_c} - s_y` for more. Gaussian noise hides the substitution of one row by
    another of the same label within ``radius``, at (epsilon, delta). ``mechanism`` says where the
    noise is added: by default to class sums and to the gradients of a descent.

    ``protect_labels`` costs accuracy against a ball, most of it at a small epsilon, and hardly any
    against ``radius=None``.

    Parameters
    ----------
    class_weight : "balanced", dict or None, default=None
        Keeps rare classes in view without any noise: how much an error on each class counts when
        predicting. Scores move by the logarithm of the weights, once they are released;
        :meth:`with_rule` changes it after a fit, at no cost. As in scikit-learn "balanced" is one
        over the share of a class, as if all were equally common, and a dict maps labels to positive
        weights; classes without records, and those that a dict leaves out, have weight 1.
        "balanced" needs public labels. Scores must be log-odds: ``mechanism="output"`` and an
        ``alpha`` above 0 raise a ValueError.

    References
    ----------
    Menon et al. (2021), "Long-tail learning via logit adjustment" (``class_weight``); Margaryan &
    Gupta, "Ball Differential Privacy: How to Mitigate Data Reconstruction with Less Noise" (output
    perturbation, "paper" sensitivity); the "tight" gradient gap is proved in this package's
    documentation.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import Normalizer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> head = BallDPLogisticRegression(epsilon=8.0, radius=0.1)
    >>> head = make_pipeline(Normalizer(), head).fit(X, y)
    >>> head.predict_proba(X[:3]).shape
    (3, 2)
    """

    class_weight: Any = None

    _losses = "logistic", "softmax"
    _of_the_rule = ("class_weight",)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_class_weight(self.class_weight)
        if self.class_weight is None:
            return
        if self._mechanism().needs_alpha:
            raise ValueError(
                f"class_weight={self.class_weight!r} moves scores that are log-odds, and those of "
                f"mechanism={self.mechanism!r} are not: use mechanism='gradient'."
            )
        if self.alpha is not None and float(self.alpha) > 0.0:
            raise ValueError(
                f"class_weight={self.class_weight!r} moves scores that are log-odds, and "
                f"alpha={self.alpha!r} shrinks them: use alpha=None."
            )

    @staticmethod
    def _rule_of(released: Released) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        coef, intercept = BaseLinearClassifier._rule_of(released)
        given, sizes = released.settings.class_weight, released.problem.class_sizes
        # Scores are log-odds for the shares of the classes (Menon et al., 2021).
        moved = np.log(weights_of_classes(given, released.classes, sizes))
        return coef, intercept + (moved if len(coef) > 1 else moved[1:] - moved[:1])
