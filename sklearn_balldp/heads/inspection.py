"""What audits, checks and publishers ask of a head, beside what its users do."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._validation import all_finite, validated
from ..encoder_name import same_encoder
from ..mechanisms import Records
from ..pipelines import parts_of
from ..privacy.digest import parameters_digest
from ..privacy.noise import Noise
from ..privacy.release import Release
from ..rows import check_sizes
from . import HEADS
from .base import BaseBallDPClassifier
from .fitting import keeps_answers
from .released import Released
from .weighing import fit_weights


def head_of(released: Released, parameters: dict[str, Any], names: Any = None) -> Any:
    """The fitted head of this package that a record names; ``names`` of its features, if any.

    A ValueError says that parameters, or settings of the rule, are invalid.
    """
    head = HEADS[released.release.head](**parameters)
    head._check_parameters()
    released.settings.checked(released.classes, released.problem)
    head.n_features_in_ = released.problem.n_features
    if names is not None:
        head.feature_names_in_ = np.array(names, dtype=object)
    head.classes_, head.released_ = released.classes, released
    return head


def fit_with_answers(
    head: BaseBallDPClassifier, X: Any, y: Any, *, examples: bool = True, **given: Any
) -> Released:
    """Fit a head, and give what it released with every answer, which it need not keep.

    ``examples`` says whether public rows are examples, beside what a policy makes of them.
    """
    head._keep_answers, head._takes_examples = True, examples
    try:
        released = head.fit(X, y, **given).released_
    finally:
        del head._keep_answers, head._takes_examples
    if not keeps_answers(released.mechanism, released.bound):
        head.released_ = replace(released, answers=())
    return released


def matches(release: Release, model: Any) -> bool:
    """Whether the parameters of a ``model``, and its encoder, are those of a record.

    False as well for a model that is, or holds, no Ball-DP head.
    """
    parts = parts_of(model)
    parameters = getattr(parts.head, "released_parameters", None)
    if parameters is None or parameters_digest(parameters()) != release.digest:
        return False
    # What only the weights could tell is no contradiction.
    named = None not in (release.encoder, parts.encoder)
    return not named or same_encoder(release.encoder, parts.encoder) is not False


def noise_of(head: BaseBallDPClassifier) -> Noise:
    """Noise of one more release of a head, such as a trial."""
    return head._noise()


def rule_of(head: BaseBallDPClassifier) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights (n_scores, n_features) and offsets (n_scores,) that a fitted head predicts with."""
    return head._linear_rule()


def rows_and_codes(
    head: BaseBallDPClassifier, X: Any, y: Any
) -> tuple[NDArray[np.floating], NDArray[np.intp]]:
    """Rows as a fitted head sees them, in memory, and positions of their labels among its own."""
    # Audits look at single rows: those of a file are read.
    X, y = validated(head, X, y, reset=False, whole=True)
    codes = np.searchsorted(head.classes_, y).clip(max=len(head.classes_) - 1)
    if not np.all(head.classes_[codes] == y):
        raise ValueError("y holds labels that the released model does not know.")
    # The passes of an audit do not look.
    with all_finite():
        check_sizes(X, head.release_.domain)
    return X, codes


def records_of(
    head: BaseBallDPClassifier, X: Any, y: Any, groups: ArrayLike | None = None
) -> Records:
    """The records of a fitted head as its fit saw them; a ValueError if they are others."""
    (X, codes), problem = rows_and_codes(head, X, y), head.release_.problem
    if len(codes) != problem.n_samples:
        raise ValueError(
            f"X has {len(codes)} records, but the model was fitted on {problem.n_samples}: pass "
            "all records of the fit."
        )
    counts = problem.class_counts
    if counts is not None and np.bincount(codes, minlength=len(counts)).tolist() != list(counts):
        raise ValueError(
            "y contradicts the public class counts of the model (class_counts_): pass the records "
            "it was fitted on, with their labels."
        )
    weighed = fit_weights(len(codes), counts, codes, groups)
    if weighed.public != problem.sums_weights:
        raise ValueError(
            "groups: they are not those of the fit, or not of all of its records; pass what "
            "it took, in the order of the rows."
        )
    return Records(X, codes, weighed.rows)
