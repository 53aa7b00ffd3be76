"""What the linear heads share: a loss, a mechanism, weights and intercepts."""

import copy
import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .._parameters import check_flag, check_positive, checked_class_embeddings, is_auto, is_real
from ..losses import make_loss
from ..privacy.bounds import Bound, counts_intercept
from ..privacy.release import Release
from .base import BaseBallDPClassifier
from .descent import GradientPerturbation
from .mechanism import Budget, Mechanism, Problem
from .output import OutputPerturbation
from .weighing import check_class_weight

#: What ``mechanism=`` takes by name, beside "auto".
MECHANISMS: dict[str, type[Mechanism]] = {
    kind.name: kind for kind in (OutputPerturbation, GradientPerturbation)
}


def mechanism_of(given: Any) -> Mechanism:
    """The mechanism that ``mechanism=`` names, or is."""
    if isinstance(given, Mechanism):
        return given
    if isinstance(given, str) and given in MECHANISMS:
        return MECHANISMS[given]()
    raise ValueError(
        f"mechanism must be one of auto, {', '.join(MECHANISMS)}, or a Mechanism such as "
        f"GradientPerturbation(n_steps=50); got {given!r}."
    )


class BaseLinearClassifier(BaseBallDPClassifier):
    """Linear head that minimises a regularised mean loss; subclasses name the loss."""

    _loss: ClassVar[str]
    mechanism: Any
    class_embeddings: Any
    class_weight: Any

    def _mechanism(self) -> Mechanism:
        return GradientPerturbation() if is_auto(self.mechanism) else mechanism_of(self.mechanism)

    def _chosen_mechanism(self, problem: Problem, budget: Budget) -> Mechanism:
        """Of "auto", noise on the minimiser where that costs next to nothing; else on gradients.

        The first where the noise in one parameter would be small although the minimiser is hardly
        regularised, or at the ``alpha`` that was given
        (:meth:`.OutputPerturbation.has_small_noise`). That mostly takes an epsilon of hundreds to
        thousands.
        """
        output, free = OutputPerturbation(), problem.class_embeddings is None
        if is_auto(self.mechanism) and free and output.has_small_noise(problem, budget):
            return output
        return self._mechanism()

    def _mechanism_named(self, name: str) -> Mechanism:
        if is_auto(self.mechanism) and name in MECHANISMS:
            return MECHANISMS[name]()
        return self._mechanism()

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
        check_class_weight(self.class_weight)
        if self.class_weight is not None and self.protect_labels:
            raise ValueError(
                f"class_weight={self.class_weight!r} with protect_labels=True: weights that follow "
                "private labels would show them; use class_weight=None."
            )
        super()._check_parameters()

    def _check_alpha(self, mechanism: Mechanism) -> None:
        free = is_real(self.alpha) and float(self.alpha) == 0.0 and not mechanism.needs_alpha
        if self.alpha is not None and not free:
            check_positive("alpha", self.alpha, " or None")

    def _given_alpha(self) -> float:
        return math.nan if self.alpha is None else float(self.alpha)

    def _class_weight(self) -> Any:
        return self.class_weight

    def _loss_name(self, n_classes: int) -> str:
        """Loss of this many classes."""
        return self._loss

    def _problem(self, **public: Any) -> Problem:
        loss = self._loss_name(len(public["classes"]))
        shape = len(public["classes"]), public["n_features"]
        vectors = checked_class_embeddings(self.class_embeddings, *shape)
        own = {"loss": loss, "fit_intercept": bool(self.fit_intercept), "class_embeddings": vectors}
        return super()._problem(**{**own, **public})

    def _publish(
        self, parameters: NDArray[np.float64], problem: Problem, bound: Bound
    ) -> dict[str, Any]:
        n_scores = make_loss(problem.loss, problem.n_classes).n_scores
        shape = n_scores, problem.n_features + int(problem.fit_intercept)
        if parameters.shape != shape:
            raise ValueError(
                f"mechanism {self._mechanism().name}: parameters of shape {parameters.shape}, "
                f"where this head needs {shape} (scores, features and intercept)."
            )
        if not problem.fit_intercept:
            return {"coef_": parameters, "intercept_": np.zeros(len(parameters))}
        return {"coef_": parameters[:, :-1].copy(), "intercept_": parameters[:, -1].copy()}

    def _released_values(self, record: Release) -> NDArray[np.float64]:
        told = counts_intercept(record.bound)
        if not (self.fit_intercept if told is None else told):
            return self.coef_
        return np.hstack([self.coef_, self.intercept_[:, None]])
