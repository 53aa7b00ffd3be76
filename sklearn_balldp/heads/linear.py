"""What the linear heads share: a loss, a mechanism, weights and intercepts."""

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

from .._parameters import check_flag, check_positive, is_auto, is_real
from ..losses import Array
from ..mechanisms import MECHANISMS, GradientPerturbation, Mechanism, OutputPerturbation, Transcript
from ..privacy.problem import Problem
from .base import BaseBallDPClassifier
from .released import Released

#: What ``mechanism=`` takes by name, beside "auto".
NAMES = OutputPerturbation.name, GradientPerturbation.name


def mechanism_of(mechanism: Any) -> Mechanism:
    """The mechanism that ``mechanism=`` names, or is."""
    if isinstance(mechanism, Mechanism):
        return mechanism
    if isinstance(mechanism, str) and mechanism in NAMES:
        return MECHANISMS[mechanism]()
    raise ValueError(
        f"mechanism must be one of auto, {', '.join(NAMES)}, or a Mechanism such as "
        f"GradientPerturbation(n_steps=50); got {mechanism!r}."
    )


@dataclass(eq=False, repr=False, kw_only=True)
class BaseLinearClassifier(BaseBallDPClassifier):
    """Linear head that minimises a regularised mean loss; subclasses name the loss.

    Parameters
    ----------
    mechanism : {"auto", "gradient", "output"} or Mechanism, default="auto"
        Where the noise is added, which decides how accurate the head is. "gradient"
        (:class:`.GradientPerturbation`), which "auto" is, adds it to class sums, and then to the
        gradients of a descent that starts from them. "output" (:class:`.OutputPerturbation`) adds
        it to the certified minimiser, as the paper does: "gradient" is more accurate by far. Pass
        an object to set its parameters, or another mechanism.
    alpha : float or None, default=None
        Strength of the regularisation, which pulls the weights towards zero. Leave it at None with
        noise on gradients, which needs none (None is 0): alpha saves no noise there, and the model
        fits worse. With noise on the minimiser a larger alpha takes less noise. None then picks the
        smallest that keeps the noise small, by public numbers; it is at least ``0.3 / n_samples``.
        Alpha is the paper's lambda; scikit-learn's ``C`` is ``1 / (alpha * n_samples)``.
    fit_intercept : bool, default=True
        Gives each score an offset. That costs noise where noise is added to the
        minimiser; where it is added to gradients, it lets rows be centred, which saves noise. Rows
        are augmented by a constant (1; on gradients 0.15 times ``norm_bound``), whose weight, the
        intercept, is regularised.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Noisy weights; softmax weights are centred over classes, which costs no privacy.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Noisy intercepts, as released: without ``class_weight``; zeros without ``fit_intercept``.
    transcript_ : Transcript
        Noisy gradients, and the noisy sums before them, where the mechanism keeps them.
    """

    mechanism: Any = "auto"
    alpha: Any = None
    fit_intercept: bool = True
    class_embeddings: Any = None

    #: Loss of two classes, and of more.
    _losses: ClassVar[tuple[str, str]]

    def _mechanism(self) -> Mechanism:
        return GradientPerturbation() if is_auto(self.mechanism) else mechanism_of(self.mechanism)

    def _with_parameters(self, name: str, value: Any) -> Any:
        if name != "mechanism":
            return super()._with_parameters(name, value)
        if is_auto(value):
            raise ValueError(
                "mechanism='auto' has no settings of its own; choose mechanism='gradient' or "
                "'output' first, or pass an object such as GradientPerturbation(n_steps=50)."
            )
        return copy.copy(mechanism_of(value))

    def _check_parameters(self) -> None:
        check_flag("fit_intercept", self.fit_intercept)
        super()._check_parameters()

        free = is_real(self.alpha) and float(self.alpha) == 0.0
        free = free and not self._mechanism().needs_alpha
        if self.alpha is not None and not free:
            check_positive("alpha", self.alpha, " or None")

    def _problem(self, **public: Any) -> Problem:
        return super()._problem(
            loss=self._losses[public["n_classes"] > 2],
            fit_intercept=bool(self.fit_intercept),
            **public,
        )

    @property
    def coef_(self) -> Array:
        """Noisy weights, of shape (n_scores, n_features)."""
        return self._fitted().weights()[0]

    @property
    def intercept_(self) -> Array:
        """Noisy intercepts as released, of shape (n_scores,); zeros where none is fitted."""
        return self._fitted().weights()[1]

    @property
    def transcript_(self) -> Transcript:
        """The noisy answers of a descent, where its mechanism kept them."""
        transcript = self._fitted().transcript()
        if transcript is None:
            raise AttributeError(
                "transcript_: this fit kept none; see GradientPerturbation(keep_transcript=True)."
            )
        return transcript

    @staticmethod
    def _rule_of(released: Released) -> tuple[Array, Array]:
        return released.weights()
