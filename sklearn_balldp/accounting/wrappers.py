"""What surrounds a fit, and lets private labels or scores out beside it.

An accountant counts what heads release. Some of scikit-learn's estimators fit heads and release
more than those: a calibration, a threshold, chosen columns. They are found on the stack of calls
that leads to a fit, in worker processes too, where functions of their modules make it.
"""

import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from sklearn.model_selection import (
    FixedThresholdClassifier,
    RepeatedStratifiedKFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
)
from sklearn.pipeline import Pipeline

from ..pipelines import parts_of

#: Splitters whose folds depend on labels.
STRATIFIED = (
    StratifiedKFold,
    StratifiedGroupKFold,
    StratifiedShuffleSplit,
    RepeatedStratifiedKFold,
)
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


def wrappers_above(protected: bool = False) -> list[str]:
    """What surrounds the present fit and releases more than it, in words.

    If labels are protected, that includes what chooses records by their labels.
    """
    return list(dict.fromkeys(_found(protected)))


def _found(protected: bool) -> Iterator[str]:
    frame = sys._getframe()
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if protected and module.startswith("sklearn."):
            yield from _chosen_by_label(frame)
        if module in _BESIDE:
            if not isinstance(frame.f_locals.get("self"), FixedThresholdClassifier):
                yield _BESIDE[module]
        elif module == "sklearn.pipeline":
            yield from _learning_steps(frame.f_locals.get("self"))
        elif frame.f_code.co_name == "_fit_and_predict":
            yield "cross_val_predict: predictions for private rows, and what is fitted on them"
        frame = frame.f_back  # type: ignore[assignment]


def _chosen_by_label(frame: FrameType) -> Iterator[str]:
    if frame.f_code.co_name == "_fit_ovo_binary":
        yield "OneVsOneClassifier: a protected label decides which heads are fitted on its record"
    if any(isinstance(value, STRATIFIED) for value in frame.f_locals.values()):
        yield "stratified folds: a changed label, which heads protect, moves other records"


def _learning_steps(pipeline: Any) -> Iterator[str]:
    if isinstance(pipeline, Pipeline):
        steps = dict(pipeline.steps)
        for name in parts_of(pipeline).learning:
            if name in steps:
                yield f"{type(steps[name]).__name__} before the head learns from private rows"
