"""Checks of parameters that estimators share; errors name the parameter and the value."""

import numbers
from typing import Any


def is_real(value: Any) -> bool:
    """Whether ``value`` is a number and no truth value."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def check_positive(name: str, value: Any, otherwise: str = "") -> None:
    """Raise a ValueError unless ``value`` is a positive number whose square is one too."""
    if not (is_real(value) and 1e-100 <= float(value) <= 1e100):
        raise ValueError(
            f"{name} must be a positive number between 1e-100 and 1e100{otherwise}, got {value!r}."
        )


def check_option(name: str, value: Any, options: tuple[str, ...]) -> None:
    """Raise a ValueError unless ``value`` is one of ``options``."""
    if not (isinstance(value, str) and value in options):
        raise ValueError(f"{name} must be one of {', '.join(options)}; got {value!r}.")


def check_whole(name: str, value: Any, least: int = 1) -> None:
    """Raise a ValueError unless ``value`` is a whole number of at least ``least``."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not (whole and int(value) >= least):
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}.")
