"""Properties that are computed once, without a lock."""

import functools
from typing import Any


class cached_property(functools.cached_property):
    """Python's own without the lock that all objects of a class share on Python 3.11.

    A child that is forked while another thread computes one would wait for it for ever.
    """

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """The value, which the object holds from then on."""
        if instance is None:
            return self
        value = vars(instance)[self.attrname] = self.func(instance)
        return value
