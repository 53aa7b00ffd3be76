"""Ranges of the numbers and texts that a record holds, as its types state them.

Every number has an upper limit, so that infinity is none. Reading a record checks them
(:mod:`.record`); making one does when it is promised.
"""

import re
from collections.abc import Collection
from typing import Annotated

from msgspec import Meta

from .._parameters import LEAST, MOST
from .gaussian import LARGEST_EPSILON

#: More classes than these are no record.
MAX_CLASSES = 20_000
#: Of more records than these the proved rounding of a sum exceeds what one record moves.
MAX_RECORDS = 10**12


def one_of(words: Collection[str]) -> Meta:
    """A text that is one of these words."""
    pattern = f"^({'|'.join(map(re.escape, words))})$".replace("\\ ", " ")
    return Meta(pattern=pattern, extra_json_schema={"enum": list(words)})


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
#: A budget's epsilon and delta, and what else was spent.
Epsilon = Annotated[float, Meta(gt=0.0, le=LARGEST_EPSILON)]
Spent = Annotated[float, Meta(ge=0.0, le=LARGEST_EPSILON)]
Delta = Annotated[float, Meta(gt=0.0, lt=1.0)]
#: A part of a whole.
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
#: A version, a day, and a SHA-256, or nothing.
Version = Annotated[str, Meta(pattern=r"^[0-9A-Za-z.+!_-]{1,40}$")]
Day = Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
Digest = Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?$")]
Checksum = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
#: The name of a class.
ClassName = Annotated[str, Meta(pattern=r"^\w+$", max_length=100)]
Word = Annotated[str, Meta(min_length=1, max_length=100)]
