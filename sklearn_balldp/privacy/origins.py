"""Where the radius of a release came from: one field of its record, of one of four types.

The radius itself is a public number of the problem, which all proofs read.
"""

from msgspec import Struct

from .._parameters import Portion, Share, Size


class Number(Struct, frozen=True, tag=True):
    """A plain number, or none: the full radius."""


class Reference(Struct, frozen=True, tag=True):
    """A quantile of distances between public reference rows."""


class Declared(Struct, frozen=True, tag=True):
    """A quantile of distances between the private rows, which was declared public."""


class Edits(Struct, frozen=True, tag=True, omit_defaults=True):
    """A distance of public records before and after an edit.

    Parameters
    ----------
    n : int
        Number of such pairs.
    share : float
        Share of them that lie within the radius.
    share_of_records : float or None
        Share of the records all of whose pairs do; None where pairs came without the numbers of
        their records.
    """

    n: Size
    share: Portion
    share_of_records: Share | None = None


#: What a record states where it states nothing.
NUMBER = Number()
#: What a record may state.
Origin = Number | Reference | Declared | Edits
