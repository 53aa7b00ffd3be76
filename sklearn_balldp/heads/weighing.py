"""Weights of records, from owners, and of classes in predictions: never from rows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._parameters import Length, in_range, is_real
from .._validation import check_complete
from ..losses import Array, Codes
from ..names import spelling
from ..privacy.weights import Weights, uniform_weights
from .labels import is_label


@dataclass(frozen=True)
class FitWeights:
    """Weights of a fit: ``rows`` are those of its records (None: all 1), and public numbers."""

    rows: Array | None
    public: Weights


def fit_weights(
    n_samples: int,
    counts: tuple[int, ...] | None,
    codes: Codes | None = None,
    groups: ArrayLike | None = None,
) -> FitWeights:
    """Weights of records, of public things alone; ``counts`` are None where labels are protected.

    A record counts for one over those of its owner. The ``codes`` of labels matter beside
    ``groups``, where labels are public. No error quotes an owner, a label or a weight.
    """
    if groups is None:
        return FitWeights(None, uniform_weights(n_samples, counts))
    owners = owners_of(groups, n_samples)
    rows = 1.0 / np.bincount(owners)[owners]
    public = weights_of(rows, None if counts is None else codes, len(counts or ()), owners)
    # Where every owner has one record, all weights are one.
    return FitWeights(None if public.uniform else rows, public)


def owners_of(groups: ArrayLike, n_samples: int) -> Codes:
    """Owners as whole numbers from 0, for numbers or texts of one type.

    One owner in two spellings would be hidden by half: texts are compared by their spelling.
    """
    codes = None
    check_complete("groups", groups, "give records without an owner one each")
    try:
        array = np.asarray(groups)
        if array.shape == (n_samples,) and _is_ordered(array):
            names, codes = np.unique(array, return_inverse=True)
            if isinstance(names[0], (str, bytes)):
                texts = (n if isinstance(n, str) else n.decode("latin-1") for n in names.tolist())
                owners = [spelling(text) for text in texts]
                codes = np.unique(owners, return_inverse=True)[1][codes]
    except (TypeError, ValueError):
        pass
    if codes is None:
        raise ValueError(
            f"groups must name one owner for each of the {n_samples} records, by numbers or texts "
            "of one type."
        )
    return codes.astype(np.intp)


def _is_ordered(owners: NDArray[Any]) -> bool:
    """Whether sorting brings equal ones together: sets, say, are ordered in part only."""
    if owners.dtype != object:
        return owners.dtype.kind in "biufUSTmM"
    return all(isinstance(owner, str) for owner in owners) or all(map(is_real, owners))


def check_class_weight(class_weight: Any) -> None:
    """Raise a ValueError unless this can be a weight for each class."""
    if class_weight is None or (isinstance(class_weight, str) and class_weight == "balanced"):
        return
    mapped = isinstance(class_weight, Mapping)
    if mapped and all(in_range(value, Length) for value in class_weight.values()):
        return
    raise ValueError(
        "class_weight must be None, 'balanced' or a mapping from labels to positive numbers; got "
        f"{class_weight!r}. To leave out a class, leave out its records."
    )


def weights_of_classes(class_weight: Any, classes: NDArray[Any], sizes: Array | None) -> Array:
    """Weight of each class in predictions, from the weights that classes have in a fit.

    "balanced" is one over the share of a class, in units of the mean; a class without records has
    weight 1. A ValueError where the sizes are private, or a label is none of the classes.
    """
    check_class_weight(class_weight)
    weights = np.ones(len(classes))
    if isinstance(class_weight, str):
        if sizes is None:
            raise ValueError(
                "class_weight='balanced' with protect_labels=True: the shares of the classes are "
                "private; use class_weight=None, or a mapping from labels to weights."
            )
        present = sizes > 0.0
        weights[present] = sizes.sum() / present.sum() / sizes[present]
        return weights
    for label, weight in (class_weight or {}).items():
        found = is_label(label, classes)
        if np.sum(found) != 1:
            raise ValueError(
                f"class_weight names the label {label!r}, which is none of the classes; leave it "
                "out, or declare it by classes=."
            )
        weights[found] = float(weight)
    return weights


def weights_of(rows: Array, codes: Codes | None, n_classes: int, owners: Codes) -> Weights:
    """Public numbers of the weights of owned records, with sums rounded up."""
    sizes = np.bincount(owners)
    up = _rounding_up(int(sizes.max()))
    of_classes: dict[str, Any] = {"class_totals": None, "class_largest": None}
    total = float(rows.sum())
    if codes is not None:
        totals = np.bincount(codes, rows, n_classes)
        total = float(totals.sum())
        # What each owner has of each class, if anything.
        pairs, inverse = np.unique(owners * n_classes + codes, return_inverse=True)
        held, (holders, kinds) = np.bincount(inverse, rows), np.divmod(pairs, n_classes)
        largest = np.zeros(n_classes)
        np.maximum.at(largest, kinds, held)
        of_classes = {
            "class_totals": tuple(totals.tolist()),
            "class_largest": tuple((up * largest).tolist()),
            "block_factor": _block_factor(held / largest[kinds], holders),
        }
    return Weights(
        unit="person",
        n_units=len(sizes),
        most_records=int(sizes.max()),
        total=total,
        largest=up * float(np.bincount(owners, rows).max()),
        record=float(rows.max()),
        **of_classes,
    )


def _block_factor(shares: Array, holders: Codes) -> float:
    """q, the largest sqrt(sum of (w / s)^2) of an owner, from all shares w / s and whose they are.

    It is rounded up, but lies between 1 and the root of the most classes that an owner has.
    """
    factor = (1.0 + 2.0**-40) * math.sqrt(float(np.bincount(holders, shares**2).max()))
    return min(max(1.0, factor), math.sqrt(int(np.bincount(holders).max())))


def _rounding_up(n_terms: int) -> float:
    """What covers the rounding of a sum: it is short by a share of (m - 1) roundoffs at most."""
    return 1.0 + (n_terms - 1) * 2.0**-52
