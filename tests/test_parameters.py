"""A range is written once: a caller's parameter and a record's field are compared with the same."""

import math

import msgspec
import numpy as np
import pytest

from sklearn_balldp._parameters import (
    LARGEST_EPSILON,
    LEAST,
    MOST,
    Epsilon,
    Inside,
    Length,
    Portion,
    Share,
    Spent,
    Strength,
    check_number,
    in_range,
)

ENDS = [0.0, LEAST, 0.5, 1.0, LARGEST_EPSILON, MOST]
VALUES = [
    *(
        at
        for end in ENDS
        for at in (math.nextafter(end, -math.inf), end, math.nextafter(end, 2e30))
    ),
    *(-1.0, 2, math.inf, -math.inf, 1e308),
]


@pytest.mark.parametrize("kind", [Epsilon, Inside, Length, Portion, Share, Spent, Strength])
def test_a_caller_may_pass_what_a_record_may_say(kind):
    accepted = 0
    for value in VALUES:
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError:
            assert not in_range(value, kind), value
            with pytest.raises(ValueError, match=r"^it must be a number, .*, or None; got "):
                check_number("it", value, kind, ", or None")
        else:
            assert in_range(value, kind), value
            check_number("it", np.float64(value), kind)
            accepted += 1
    assert 1 < accepted < len(VALUES)


@pytest.mark.parametrize(
    "value", [math.nan, "0.5", None, True, 0.5j, [0.5], 10**400, np.array(0.5)]
)
def test_what_is_no_number_is_in_no_range(value):
    assert not in_range(value, Share)
    with pytest.raises(ValueError, match=r"^it must be a number, at least 0 and at most 1; got "):
        check_number("it", value, Share)
