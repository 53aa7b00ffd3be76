"""What surrounds a fit, and lets private labels or scores out beside it.

An accountant counts what heads release. Some of scikit-learn's estimators fit heads and release
more than those: a calibration, a threshold, chosen columns. They are found on the stack of calls
that leads to a fit, in worker processes too, where functions of their modules make it.
"""

import sys
from collections.abc import Iterator
from typing import Any

from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import Pipeline

from ..pipelines import parts_of

#: What is released beside the heads, by the module that does it.
_BESIDE = {
    "sklearn.calibration": "CalibratedClassifierCV: its calibration is fitted on private scores",
    "sklearn.ensemble._bagging": "Bagging: it gives every head a seed, which hides nothing",
    "sklearn.ensemble._stacking": "Stacking: its last estimator is fitted on private scores",
    "sklearn.feature_selection._rfe": "RFE: columns are chosen by weights on private rows",
    "sklearn.feature_selection._sequential": "SequentialFeatureSelector: columns are chosen by "
    "private scores",
    "sklearn.model_selection._classification_threshold": "TunedThresholdClassifierCV: its "
    "threshold is chosen by private scores",
    "sklearn.semi_supervised._self_training": "SelfTraining: labels of unlabelled rows, and which "
    "rows are taken, follow from private rows",
}


def wrappers_above() -> list[str]:
    """What surrounds the present fit and releases more than it, in words."""
    return list(dict.fromkeys(_found()))


def _found() -> Iterator[str]:
    frame = sys._getframe()
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module in _BESIDE:
            if not isinstance(frame.f_locals.get("self"), FixedThresholdClassifier):
                yield _BESIDE[module]
        elif module == "sklearn.pipeline":
            yield from _learning_steps(frame.f_locals.get("self"))
        elif frame.f_code.co_name == "_fit_and_predict":
            yield "cross_val_predict: predictions for private rows, and what is fitted on them"
        frame = frame.f_back  # type: ignore[assignment]


def _learning_steps(pipeline: Any) -> Iterator[str]:
    if isinstance(pipeline, Pipeline):
        steps = dict(pipeline.steps)
        for name in parts_of(pipeline).learning:
            if name in steps:
                yield f"{type(steps[name]).__name__} before the head learns from private rows"
