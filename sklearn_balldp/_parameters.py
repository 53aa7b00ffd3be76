"""Checks of parameters, whose errors name the value and the remedy."""

import math
import numbers
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Public lengths and weights lie between these, so that products of a few of them, and the squares
#: of such products, stay within the range of float64.
LEAST, MOST = 1e-30, 1e30


def is_real(value: Any) -> bool:
    """Whether ``value`` is a number that a float can hold, and no truth value."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def check_no_mask(name: str, values: Any) -> None:
    """Raise a ValueError for a masked array: what it masks would be read."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ValueError(f"{name} has a mask, which would be ignored; drop what it masks.")


def is_auto(value: Any) -> bool:
    """Whether ``value`` leaves a choice to public numbers."""
    return isinstance(value, str) and value == "auto"


def check_positive(name: str, value: Any, otherwise: str = "") -> None:
    """Raise a ValueError unless ``value`` is a number from :data:`LEAST` to :data:`MOST`."""
    number = float(value) if is_real(value) else math.nan
    if not LEAST <= number <= MOST:
        raise ValueError(
            f"{name} must be a positive number between {LEAST:g} and {MOST:g}{otherwise}, got "
            f"{value!r}."
        )


def check_option(name: str, value: Any, options: Collection[str]) -> None:
    """Raise a ValueError unless ``value`` is one of ``options``."""
    if not (isinstance(value, str) and value in options):
        raise ValueError(f"{name} must be one of {', '.join(options)}; got {value!r}.")


def check_whole(name: str, value: Any, smallest: int = 1) -> None:
    """Raise a ValueError unless ``value`` is a whole number from ``smallest`` on."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not (whole and smallest <= int(value) < 2**63):
        raise ValueError(f"{name} must be an integer of at least {smallest}, got {value!r}.")


def check_share(name: str, value: Any, others: str = "", *, below_one: bool = False) -> None:
    """Raise a ValueError unless ``value`` lies in [0, 1] or [0, 1).

    ``others`` is text for the message that names the other values which the caller accepts.
    """
    if not (is_real(value) and 0.0 <= value <= 1.0 and not (below_one and value == 1.0)):
        interval = "[0, 1)" if below_one else "[0, 1]"
        raise ValueError(f"{name} must lie in {interval}{others}, got {value!r}.")


def check_inside(name: str, value: Any) -> None:
    """Raise a ValueError unless ``value`` lies strictly between 0 and 1."""
    if not (is_real(value) and 0.0 < float(value) < 1.0):
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}.")


def check_flag(name: str, value: Any) -> None:
    """Raise a ValueError unless ``value`` is a truth value."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {value!r}.")


def checked_priors(priors: Any, n_classes: int, class_sizes: Any) -> Any:
    """Class probabilities; a ValueError if they do not match the classes.

    Some class with records must have positive probability. ``class_sizes`` are the public counts
    or total weights of the classes, or None.
    """
    if priors is None or (isinstance(priors, str) and priors == "uniform"):
        return priors
    check_no_mask("priors", priors)
    array = np.asarray(priors)
    fits = array.shape == (n_classes,) and array.dtype.kind in "iuf"
    if not (fits and (array >= 0.0).all() and abs(array.sum() - 1.0) < 1e-6):
        raise ValueError(
            f"priors must be None, 'uniform', or {n_classes} probabilities that sum to 1; "
            f"got {priors!r}."
        )
    present = array if class_sizes is None else array[np.asarray(class_sizes) > 0]
    if len(present) and not present.sum() > 0.0:
        raise ValueError(
            f"priors={priors!r} leave nothing for the classes that have records; give them a "
            "probability."
        )
    return priors


def checked_class_embeddings(
    vectors: Any, n_classes: int, n_features: int
) -> NDArray[np.float64] | None:
    """Public vectors of the classes as float64; None where there are none."""
    if vectors is None:
        return None
    check_no_mask("class_embeddings", vectors)
    array = np.asarray(vectors)
    fits = array.shape == (n_classes, n_features) and array.dtype.kind in "iuf"
    if not (fits and np.isfinite(array).all()):
        raise ValueError(
            f"class_embeddings must be None or finite vectors of shape {(n_classes, n_features)}, "
            f"one for each class; got an array of shape {array.shape}."
        )
    return array.astype(np.float64)
