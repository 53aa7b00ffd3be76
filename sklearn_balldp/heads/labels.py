"""Labels of a fit: its classes in order, the records' places among them, and their counts."""

import contextlib
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from .._parameters import check_no_mask, check_whole
from .._validation import check_complete, complete_labels
from ..labels import fault_of, native


@dataclass(frozen=True, repr=False)
class Labels:
    """Labels of a fit or of a plan."""

    classes: NDArray[Any]  # in order, each once
    #: Positions of the records' labels among them; None in a plan that was told counts alone.
    codes: Any
    counts: tuple[int, ...] | None  # records of each class; None where labels are protected

    @classmethod
    def of(cls, y: NDArray[Any], declared: NDArray[Any] | None, protected: bool) -> "Labels":
        """The labels of records, checked; among the ``declared`` classes, if there are any."""
        classes, codes = _found(y) if declared is None else (declared, _places(y, declared))
        counts = tuple(np.bincount(codes, minlength=len(classes)).tolist())
        return cls(classes, codes, None if protected else counts)

    @classmethod
    def planned(
        cls,
        n_samples: int,
        declared: NDArray[Any] | None,
        protected: bool,
        *,
        class_counts: Any = None,
        y: ArrayLike | None = None,
        of_persons: bool = False,
    ) -> "Labels":
        """What a plan is told of labels: counts or public labels, or nothing if protected."""
        if protected and declared is not None:
            return cls(declared, None, None)
        if y is not None:
            return cls.of(_planned(n_samples, class_counts, y), declared, False)
        if class_counts is None:
            raise ValueError(
                "class_counts=None: with public labels the noise may follow the counts; pass the "
                "records of each class."
            )
        if of_persons:
            raise ValueError(
                "y=None: with public labels the noise follows the classes of each owner; pass y "
                "with groups."
            )
        counts = _counts(class_counts, declared)
        if sum(counts) != n_samples:
            raise ValueError(
                f"class_counts={counts!r} add up to {sum(counts)}, not to n_samples={n_samples!r}."
            )
        # No record is looked at: a plan of many takes no memory.
        return cls(np.arange(len(counts)) if declared is None else declared, None, counts)


def declared_classes(listed: Any) -> NDArray[Any] | None:
    """The parameter ``classes``: labels in order, each once; None where the records tell them."""
    if listed is None:
        return None
    # A set is a list too.
    values = list(listed) if isinstance(listed, Set) else listed
    check_complete("classes", values, "leave them out")
    declared = classes = np.empty(0)
    with contextlib.suppress(TypeError, ValueError):
        declared = np.asarray(native(values))
        classes = np.unique(declared)
    if declared.ndim != 1 or len(classes) < 2:
        raise ValueError(f"classes must list at least 2 labels of one type, got {listed!r}.")
    _check_classes("classes", classes)
    return classes


def is_label(label: Any, classes: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of the classes a label is, in whatever class of Python."""
    day = classes.dtype if classes.dtype.kind == "M" else None
    with contextlib.suppress(TypeError, ValueError):
        return np.broadcast_to(classes == np.asarray(label, dtype=day), classes.shape)
    return np.zeros(len(classes), dtype=bool)


def checked_class_embeddings(
    vectors: Any, classes: NDArray[Any], n_features: int
) -> NDArray[np.float64] | None:
    """Public vectors of the classes in their order, as float64; None where there are none."""
    if vectors is None:
        return None
    if isinstance(vectors, Mapping):
        # Labels that no class has are ignored: a fold of a search may lack a class.
        held = [(is_label(label, classes), vector) for label, vector in vectors.items()]
        places = {int(np.argmax(own)): vector for own, vector in held if own.any()}
        if len(places) < len(classes):
            raise ValueError(
                f"class_embeddings lacks a vector for {len(classes) - len(places)} of the classes; "
                "give each of them one."
            )
        vectors = [places[i] for i in range(len(classes))]
    check_no_mask("class_embeddings", vectors)
    array, shape = np.empty(0), (len(classes), n_features)
    with contextlib.suppress(TypeError, ValueError):  # of vectors of several lengths
        array = np.asarray(vectors)
    fits = array.shape == shape and array.dtype.kind in "iuf"
    if not (fits and np.isfinite(array).all()):
        raise ValueError(
            f"class_embeddings must be None or finite vectors of shape {shape}, one for each class "
            f"(or a mapping from labels to them); got an array of shape {array.shape}."
        )
    return array.astype(np.float64)


def known_places(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Places of labels among the classes; -1 of others."""
    codes = np.full(len(y), -1, dtype=np.intp)
    with contextlib.suppress(TypeError, np.exceptions.DTypePromotionError):
        near = np.searchsorted(classes, y).clip(max=len(classes) - 1)
        codes = np.where(classes[near] == y, near, -1)
    return codes


def _found(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Classes that the labels tell, and the labels' places among them."""
    if y.dtype.kind not in "biu":  # whole numbers are classes, and need no slow look
        if type_of_target(y) == "unknown":
            raise ValueError(
                f"Unknown label type in y, {type(y.flat[0]).__name__}: pass texts or whole "
                "numbers (y.astype(str))."
            )
        check_classification_targets(y)
    pair = None
    with contextlib.suppress(TypeError):
        pair = np.unique(y, return_inverse=True)
    # Outside of the handler: an error's context may quote a label.
    if pair is None:
        raise ValueError("y mixes labels of types that cannot be compared; use one type.")
    if len(pair[0]) < 2:
        raise ValueError(
            "y holds 1 class; a classifier needs at least 2 classes (pass classes=[...] "
            "to declare labels that are absent from y)."
        )
    _check_classes("y", pair[0])
    return pair


def _places(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Places of labels among declared classes."""
    codes = known_places(y, classes)
    if (codes < 0).any():
        raise ValueError(
            "y holds labels outside the declared classes; add them to classes or drop "
            "those records (a continuous target is for a regressor)."
        )
    return codes


def _planned(n_samples: int, class_counts: Any, y: ArrayLike) -> NDArray[Any]:
    """Public labels that a plan is told in place of counts."""
    array: NDArray[Any] = np.empty(())
    y = complete_labels(y)
    with contextlib.suppress(TypeError, ValueError):
        array = np.asarray(y)
    if class_counts is not None or array.shape != (n_samples,):
        raise ValueError(
            f"y must hold one label for each of n_samples={n_samples!r} records, and takes "
            "the place of class_counts."
        )
    return array


def _counts(class_counts: Any, classes: NDArray[Any] | None) -> tuple[int, ...]:
    """The records of each class that a plan is told."""
    check_no_mask("class_counts", class_counts)
    array: NDArray[Any] = np.empty(())
    with contextlib.suppress(TypeError, ValueError):
        array = np.asarray(class_counts)
    n_classes = array.size if classes is None else len(classes)
    if array.shape != (n_classes,) or n_classes < 2:
        raise ValueError(
            "class_counts must list the records of each class, in the order of classes, for at "
            f"least 2 classes ({n_classes} declared), got {class_counts!r}."
        )
    counts: tuple[Any, ...] = tuple(array.tolist())
    for count in counts:
        check_whole("class_counts", count, 0)
    return counts


def _check_classes(name: str, classes: NDArray[Any]) -> None:
    """Raise a ValueError for classes that no folder holds, before anything is charged for them."""
    fault = fault_of(classes)
    if fault is not None:
        raise ValueError(f"{name} holds labels {fault}.")
