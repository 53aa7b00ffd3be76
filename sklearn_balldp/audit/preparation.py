"""Preparation of an audit: split the records, run transformers, and complete the problem."""

import contextlib
import math
import numbers
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import column_or_1d, indexable
from sklearn.utils.validation import check_is_fitted

from .._parameters import check_option
from .._validation import caller_level, raise_alone
from ..heads import BaseBallDPClassifier, Released, owners_of
from ..heads.inspection import fit_with_answers, records_of, rows_and_codes
from ..heads.known_radius import known_radius
from ..mechanisms import Records
from ..pipelines import ModelParts, parts_of
from ..radius import PUBLIC_SOURCES
from ..rows import rows_in_domain, whole
from .supports import Pool

# Keeps the auditor's stream apart from that of a head with the same seed.
_STREAM = int.from_bytes(b"audit", "big")
# What the auditor's ``fit`` takes, in order.
_GIVEN = ("X", "y", "X_public", "y_public", "X_examples", "y_examples", "groups")


class PooledPreprocessingWarning(UserWarning):
    """A step may map a row by other private rows too; no guarantee covers what that reveals."""


@dataclass(frozen=True, repr=False)
class PreparedAudit:
    """A fitted head and the records of its audit, as the head sees them."""

    head: BaseBallDPClassifier  # the fitted head
    released: Released  # what was released, with every noisy answer of a fit that the audit made
    #: The fitted estimator in the form of the one that was passed; it may be published.
    estimator: Any
    records: Records  # all records of the release
    position: NDArray[np.intp]  # positions of the training records in the rows that were passed
    pool: Pool  # records that candidates are drawn from
    #: Their positions in the public rows, or in the rows that some were held out of.
    pool_positions: NDArray[np.intp]
    frozen: bool  # whether the model is audited as it was released
    #: Owner of each training record, where the release hides all records of one person.
    owners: NDArray[np.intp] | None


def prepare(
    estimator: Any, given: tuple[Any, ...], holdout: float, rng: np.random.Generator
) -> PreparedAudit:
    """Fit the estimator, unless it is frozen, and gather what its audit needs of ``_GIVEN``."""
    # Audits look at single rows: those of a store or of Dask are read.
    X, y, X_public, y_public, X_examples, y_examples, groups = map(whole, _GIVEN, given)
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None.")
    X, y = indexable(X, column_or_1d(y, warn=True))
    if (X_public is None) != (y_public is None):
        raise ValueError("X_public and y_public go together: pass both or neither.")
    transformers, head, parts = split_model(estimator)
    warn_of_pooling(parts)
    if parts.frozen:
        check_is_fitted(head)
        if X_examples is not None or y_examples is not None:
            raise ValueError(
                "X_examples, y_examples: a frozen estimator holds the examples of its fit; leave "
                "them out."
            )
    if groups is not None:
        if np.shape(groups) != (len(y),):
            raise ValueError(f"groups must hold one value for each of the {len(y)} records.")
        groups = np.asarray(groups)
    position, source = np.arange(len(y)), "X_public"
    if X_public is None:
        if parts.frozen:
            raise ValueError(
                "X_public=None: a frozen estimator was fitted on all of X, so candidates must "
                "come from elsewhere; pass X_public and y_public."
            )
        held = hold_out(y, groups, holdout, not head.protect_labels, rng)
        position, held_out = np.flatnonzero(~held), np.flatnonzero(held)
        source = "holdout"
        X_public, y_public = _take(X, held_out), y[held_out]
        X, y = _take(X, position), y[position]
        groups = None if groups is None else groups[position]
    X_public, y_public = indexable(X_public, column_or_1d(y_public, warn=True))

    if transformers is not None:
        if parts.frozen:
            X = transformers.transform(X)
        else:
            transformers = clone(transformers)
            X = transformers.fit_transform(X, y)
        X_public = transformers.transform(X_public)
        X_examples = None if X_examples is None else transformers.transform(X_examples)
    if parts.frozen:
        released = head.released_
    else:
        head = clone(head)
        # A policy may choose from rows that were passed: those held out are private. Candidates
        # are no examples: an attacker's list for a record would begin the fit.
        asks = known_radius(head) is None and head._policy.source in PUBLIC_SOURCES
        apart = X_examples is None and y_examples is None
        chooses = apart and asks and source == "X_public"
        given = (X_public, y_public) if chooses else (X_examples, y_examples)
        public = dict(zip(("X_public", "y_public"), given, strict=True))
        # The noise of this fit is tested.
        released = fit_with_answers(head, X, y, **public, groups=groups, examples=not apart)
        estimator = rebuilt_estimator(estimator, transformers, head)
    records = records_of(head, X, y, groups)
    pool, kept = candidate_pool(head, X_public, y_public, source)
    return PreparedAudit(
        head=head,
        released=released,
        estimator=estimator,
        records=records,
        position=position,
        pool=pool,
        pool_positions=held_out[kept] if source == "holdout" else kept,
        frozen=parts.frozen,
        owners=owners_of(groups, len(y)) if head.release_.unit == "person" else None,
    )


def audit_generator(random_state: Any) -> np.random.Generator:
    """A generator with another stream than a head's generator from the same seed."""
    if random_state is None:
        return np.random.default_rng()
    if isinstance(random_state, np.random.Generator):
        random_state = int(random_state.integers(2**63))
    elif isinstance(random_state, np.random.RandomState):
        random_state = int(random_state.randint(2**31))
    if isinstance(random_state, numbers.Integral) and int(random_state) >= 0:
        return np.random.default_rng([int(random_state), _STREAM])
    raise ValueError(
        "random_state must be None, a non-negative integer, a Generator or a RandomState; got "
        f"{random_state!r}."
    )


def split_model(estimator: Any) -> tuple[Pipeline | None, BaseBallDPClassifier, ModelParts]:
    """Transformers (or None), head, and all parts."""
    parts = parts_of(estimator)
    whole = estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator
    inner = whole.steps[-1][1] if isinstance(whole, Pipeline) and whole.steps else whole
    if not isinstance(inner, BaseBallDPClassifier):
        raise ValueError(
            "estimator must be a Ball-DP head, a Pipeline whose last step is one, or either in a "
            "FrozenEstimator (freeze the whole Pipeline, and nest none); got "
            f"{type(inner).__name__}."
        )
    return (whole[:-1] if parts.steps else None), inner, parts


def warn_of_pooling(parts: ModelParts) -> None:
    """Warn of the steps that look beyond one row, or may."""
    if parts.beyond_rows:
        unless = " (unless they were fitted on public rows)" if parts.frozen else ""
        warnings.warn(
            f"steps before the head: {parts.beyond_rows}{unless}. One record may then move every "
            "row, which neither the guarantee nor this audit covers. Use steps that map each row "
            "by itself, or fit them on public rows and put each into a FrozenEstimator.",
            PooledPreprocessingWarning,
            stacklevel=caller_level(),
        )


def rebuilt_estimator(
    estimator: Any, transformers: Pipeline | None, head: BaseBallDPClassifier
) -> Any:
    """The fitted estimator, in the form of the one that was passed."""
    if not isinstance(estimator, Pipeline):
        return head
    steps = [] if transformers is None else list(transformers.steps)
    options = estimator.get_params(deep=False)
    options["steps"] = [*steps, (estimator.steps[-1][0], head)]
    return Pipeline(**options)


def _take(X: Any, position: NDArray[np.intp]) -> Any:
    if hasattr(X, "iloc"):
        return X.iloc[position]
    if hasattr(X, "shape"):
        return X[position]
    return [X[i] for i in position]


def hold_out(
    y: NDArray[Any],
    groups: NDArray[Any] | None,
    share: float,
    by_class: bool,
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """Which records are kept for candidates, all of an owner together; each class keeps a record.

    Private labels do not decide: a label change must not move other records.
    """
    codes = None
    with contextlib.suppress(TypeError):
        codes = np.unique(y, return_inverse=True)[1]
    if codes is None:
        raise ValueError("y mixes labels of types that cannot be compared; use one type.")
    held = np.zeros(len(y), dtype=bool)
    if groups is not None:
        owners = owners_of(groups, len(y))
        order = np.argsort(owners, kind="stable")
        members = np.split(order, np.cumsum(np.bincount(owners))[:-1])
        n_held, remaining = 0, np.bincount(codes)
        for owner in rng.permutation(len(members)).tolist():
            classes, counts = np.unique(codes[members[owner]], return_counts=True)
            fits = n_held + len(members[owner]) <= share * len(y)
            if fits and (not by_class or np.all(remaining[classes] > counts)):
                held[members[owner]] = True
                n_held += len(members[owner])
                remaining[classes] -= counts
        return held
    order = rng.permutation(len(y))
    if not by_class:
        held[order[: int(share * len(y))]] = True
        return held
    for code in range(codes.max(initial=-1) + 1):
        of_class = order[codes[order] == code]
        # Every class of two or more has candidates, and keeps a record to train on.
        held[of_class[: min(len(of_class) - 1, math.ceil(share * len(of_class)))]] = True
    return held


def in_domain(head: BaseBallDPClassifier, X: NDArray[np.floating]) -> NDArray[np.floating]:
    """Rows where radii are declared: scaled to the sphere, or as they are."""
    problem = head.release_.problem
    if problem.domain == "ball":
        return X
    return rows_in_domain(X.astype(np.float64), problem.norm_bound, problem.domain)


def candidate_pool(
    head: BaseBallDPClassifier, X_public: Any, y_public: NDArray[Any], name: str
) -> tuple[Pool, NDArray[np.intp]]:
    """Records that candidates are drawn from, and their positions; without unknown labels."""
    kept = np.flatnonzero(np.isin(y_public, head.classes_))
    if len(kept) == 0:
        raise ValueError(
            f"{name} holds no label of the model; pass public rows of its classes as X_public, "
            "or keep more rows back (holdout)."
        )
    try:
        rows, codes = rows_and_codes(head, _take(X_public, kept), y_public[kept])
    except ValueError as error:
        raise_alone(ValueError(f"{name}: {error}"))
    return Pool(in_domain(head, rows), codes, head.release_.norm_bound), kept


def anchors_of(prepared: PreparedAudit, asked: Any) -> NDArray[np.intp]:
    """Positions of possible anchors, those that an audit asks for."""
    codes = prepared.records.codes
    anchors = np.arange(len(codes))
    if isinstance(asked, str):
        check_option("anchors", asked, ("random", "rarest"))
        if asked == "random":
            return anchors
        classes, counts = np.unique(codes, return_counts=True)
        return anchors[codes == classes[counts.argmin()]]
    positions = np.asarray(asked)
    if positions.ndim != 1 or positions.dtype.kind not in "iu":
        raise ValueError(
            f"anchors must be 'random', 'rarest' or positions of records in X, got {asked!r}."
        )
    anchors = anchors[np.isin(prepared.position, positions)]
    if len(anchors) == 0:
        raise ValueError(
            "anchors: none of them is a record that the model was fitted on (training_rows_); name "
            "others."
        )
    return anchors
