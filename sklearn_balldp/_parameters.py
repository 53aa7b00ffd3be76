"""Ranges of parameters, and checks of them, whose errors name the value and the remedy.

A range is the type of a record's field, and what :func:`check_number` compares a parameter with.
"""

import math
import numbers
import re
from collections.abc import Collection
from typing import Annotated, Any, get_args

import numpy as np
from msgspec import Meta

#: Public lengths and weights lie between these, so that products of a few of them, and the squares
#: of such products, stay within the range of float64.
LEAST, MOST = 1e-30, 1e30
#: More classes than these are no record.
MAX_CLASSES = 20_000
#: Of more records than these the proved rounding of a sum exceeds what one record moves.
MAX_RECORDS = 10**12
#: Beyond this epsilon of a budget double precision cannot resolve the profile.
LARGEST_EPSILON = 1e10

# -- ranges ---------------------------------------------------------------------------------------

#: Number of records, or of their owners; and a number that may be zero.
Size = Annotated[int, Meta(ge=1, le=MAX_RECORDS)]
Count = Annotated[int, Meta(ge=0, le=MAX_RECORDS)]
#: Number of features, and of classes.
Features = Annotated[int, Meta(ge=1, le=10**9)]
Classes = Annotated[int, Meta(ge=2, le=MAX_CLASSES)]
#: Length, and regularisation strength.
Length = Annotated[float, Meta(ge=LEAST, le=MOST)]
Strength = Annotated[float, Meta(ge=0.0, le=MOST)]
#: Weight of a record, or of many.
Mass = Annotated[float, Meta(ge=0.0, le=MOST * MOST)]
#: A budget's epsilon, and what else was spent.
Epsilon = Annotated[float, Meta(gt=0.0, le=LARGEST_EPSILON)]
Spent = Annotated[float, Meta(ge=0.0, le=LARGEST_EPSILON)]
#: A part of a whole; one that is not nothing; and one that is not all of it either.
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Portion = Annotated[float, Meta(ge=LEAST, le=1.0)]
Inside = Annotated[float, Meta(gt=0.0, lt=1.0)]
#: A number of any size, infinity too.
NonNegative = Annotated[float, Meta(ge=0.0)]


def one_of(words: Collection[str]) -> Meta:
    """A text that is one of these words."""
    pattern = f"^({'|'.join(map(re.escape, words))})$".replace("\\ ", " ")
    return Meta(pattern=pattern, extra_json_schema={"enum": list(words)})


# -- checks ---------------------------------------------------------------------------------------


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


def in_range(value: Any, kind: Any) -> bool:
    """Whether ``value`` is a number in the range of a type, such as :data:`Length`."""
    number, limits = float(value) if is_real(value) else math.nan, get_args(kind)[1]
    return (
        (limits.ge is None or number >= limits.ge)
        and (limits.gt is None or number > limits.gt)
        and (limits.le is None or number <= limits.le)
        and (limits.lt is None or number < limits.lt)
    )


def check_number(name: str, value: Any, kind: Any, otherwise: str = "") -> None:
    """Raise a ValueError unless ``value`` is in a range; ``otherwise`` names what else is taken."""
    if not in_range(value, kind):
        limits = get_args(kind)[1]
        ends = {"at least": limits.ge, "above": limits.gt, "at most": limits.le, "below": limits.lt}
        shown = " and ".join(f"{side} {end:g}" for side, end in ends.items() if end is not None)
        raise ValueError(f"{name} must be a number, {shown}{otherwise}; got {value!r}.")


def check_positive(name: str, value: Any, otherwise: str = "") -> None:
    """Raise a ValueError unless ``value`` is a number in the range of lengths."""
    check_number(name, value, Length, otherwise)


def check_option(name: str, value: Any, options: Collection[str]) -> None:
    """Raise a ValueError unless ``value`` is one of ``options``."""
    if not (isinstance(value, str) and value in options):
        raise ValueError(f"{name} must be one of {', '.join(options)}; got {value!r}.")


def check_whole(name: str, value: Any, smallest: int = 1) -> None:
    """Raise a ValueError unless ``value`` is a whole number from ``smallest`` on."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not (whole and smallest <= int(value) < 2**63):
        raise ValueError(f"{name} must be an integer of at least {smallest}, got {value!r}.")


def check_flag(name: str, value: Any) -> None:
    """Raise a ValueError unless ``value`` is a truth value."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {value!r}.")


def checked_priors(priors: Any, n_classes: int, class_sizes: Any) -> Any:
    """Class probabilities; a ValueError if they do not go with classes or their sizes."""
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
