"""The parts of a model: its head, the steps before it, and which steps learn from the rows."""

import contextlib
from dataclasses import dataclass
from typing import Any

from sklearn.ensemble import VotingClassifier
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import PolynomialCountSketch, RBFSampler, SkewedChi2Sampler
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.pipeline import Pipeline
from sklearn.random_projection import BaseRandomProjection
from sklearn.utils import get_tags

# These fit nothing beside the models that they hold.
_OF_SEVERAL = (OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier, VotingClassifier)
# The fit of these reads at most the shape of the rows, which older hashers do not declare.
_SHAPE_ONLY = (
    BaseRandomProjection,
    FeatureHasher,
    HashingVectorizer,
    PolynomialCountSketch,
    RBFSampler,
    SkewedChi2Sampler,
)


@dataclass(frozen=True)
class ModelParts:
    """A model taken apart.

    Attributes
    ----------
    head : estimator
        The last estimator: the Ball-DP head, if the model has one.
    steps : tuple of (str, estimator)
        Named steps before it.
    frozen : bool
        Whether the model is in a ``FrozenEstimator``.
    outer_type : str
        Type name of an outer estimator that held the model (an auditor, say); empty if none.
    """

    head: Any
    steps: tuple[tuple[str, Any], ...] = ()
    frozen: bool = False
    outer_type: str = ""

    @property
    def encoder(self) -> str | None:
        """Name and digest of the encoder among the steps; None without one, or without weights."""
        for _, step in self.steps:
            with contextlib.suppress(AttributeError, ImportError, ValueError):
                return str(step.identity)
        return None

    @property
    def learners(self) -> list[str]:
        """Names of steps that learn from the rows; frozen ones and row-wise ones do not."""
        return [name for name, step in self.steps if learns(step)]


def parts_of(model: Any) -> ModelParts:
    """Take a model apart: a Pipeline, a frozen model, or what an auditor holds."""
    steps: list[tuple[str, Any]] = []
    frozen, wrapper = False, ""
    while True:
        if isinstance(model, FrozenEstimator):
            frozen, model = True, model.estimator
        elif isinstance(model, Pipeline) and model.steps:
            steps += model.steps[:-1]
            model = model.steps[-1][1]
        elif not hasattr(model, "release_") and hasattr(model, "estimator_"):
            wrapper = wrapper or type(model).__name__
            model = model.estimator_
        else:
            return ModelParts(model, tuple(steps), frozen, wrapper)


def heads_of(model: Any) -> list[Any] | None:
    """Fitted Ball-DP heads that a model's predictions are made of; None if they take anything else.

    Looked through are pipelines whose steps do not learn, votes, fixed thresholds, auditors, and
    what makes one problem of several classes many of two.
    """
    while True:
        if isinstance(model, FrozenEstimator):
            model = model.estimator
        elif isinstance(model, Pipeline) and model.steps:
            if any(learns(step) for _, step in model.steps[:-1]):
                return None
            model = model.steps[-1][1]
        elif _holds_one(model):
            model = model.estimator_
        else:
            break
    if hasattr(model, "release_"):
        return [model]
    parts = [heads_of(part) for part in model.estimators_] if type(model) in _OF_SEVERAL else []
    if not parts or None in parts:
        return None
    return [part for heads in parts for part in heads or []]


def _holds_one(model: Any) -> bool:
    """Whether a model predicts by one other and by nothing else that its fit learned."""
    ours = type(model).__module__.startswith("sklearn_balldp.") and not hasattr(model, "release_")
    return (ours or type(model) is FixedThresholdClassifier) and hasattr(model, "estimator_")


def learns(step: Any) -> bool:
    """Whether the fit of a step reads the rows."""
    if isinstance(step, (str, type(None), FrozenEstimator, *_SHAPE_ONLY)):
        return False
    try:
        fitted = bool(get_tags(step).requires_fit)
    except Exception:
        return True  # without tags, assume that the step learns
    # Of the class alone: an object may say anything of itself.
    return fitted and not getattr(type(step), "_row_wise", False)
