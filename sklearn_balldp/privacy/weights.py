"""Public weights and owners of records, and the effective sample size that they give.

A *unit* is what one substitution replaces: one record, or all records of one person. Means move in
proportion to the largest weight of a unit, s, over that of all, W. So the *effective sample size*
W / s takes the place of n ("Weights and persons"). Weights never depend on a row.
"""

import math
from dataclasses import dataclass
from typing import Annotated

from .._parameters import Mass, Size, check_option, one_of
from ..adjacency import UNITS


@dataclass(frozen=True)
class Weights:
    """Public numbers of weighted records: all that a sensitivity takes from the weights."""

    unit: Annotated[str, one_of(UNITS)]  # what one substitution replaces
    n_units: Size
    most_records: Size  # of one unit
    total: Mass  # W
    largest: Mass  # s: largest total weight of one unit, rounded up
    record: Mass  # largest weight of one record
    class_totals: tuple[Mass, ...] | None  # None where labels are protected, as the next
    class_largest: tuple[Mass, ...] | None  # largest weight that one unit has of each class
    #: q: the largest that sqrt(sum over classes of (w / s)^2) is for one unit, with w its weight in
    #: a class and s the largest weight there (``class_largest``): it moves all class sums at once.
    block_factor: float = 1.0

    def __post_init__(self) -> None:
        check_option("unit", self.unit, UNITS)
        if not (
            min(self.n_units, self.most_records) >= 1
            and 0.0 < self.record < math.inf
            and 0.0 < self.largest <= self.total * (1.0 + 1e-9) < math.inf
            and 1.0 <= self.block_factor < math.inf
        ):
            raise ValueError(
                f"n_units={self.n_units!r}, most_records={self.most_records!r}, total="
                f"{self.total!r}, largest={self.largest!r}, record={self.record!r} and "
                f"block_factor={self.block_factor!r} are no weights of units: all are positive, "
                "largest is at most total, and block_factor at least 1."
            )
        totals, largest = self.class_totals, self.class_largest
        if totals is None or largest is None:
            sound = totals is largest is None
        else:
            sound = len(totals) == len(largest) and all(
                t == s == 0.0 or min(t, s) > 0.0 for t, s in zip(totals, largest, strict=True)
            )
        if not sound:
            raise ValueError(
                f"class_totals={totals!r} and class_largest={largest!r} do not go together: a "
                "class without records has a total and a largest weight of 0, all else is positive."
            )

    @property
    def effective_size(self) -> float:
        """Effective sample size W / s, which takes the place of the number of records."""
        return self.total / self.largest

    @property
    def uniform(self) -> bool:
        """Whether every record has weight 1, and one owner each."""
        return self.most_records == 1 and self.record == 1.0 and self.total == self.n_units


def uniform_weights(n_samples: int, class_counts: tuple[int, ...] | None) -> Weights:
    """Weights of records that count once each; counts are None where labels are protected."""
    totals = largest = None
    if class_counts is not None:
        totals = tuple(map(float, class_counts))
        largest = tuple(float(count > 0) for count in class_counts)
    return Weights(
        unit="record",
        n_units=n_samples,
        most_records=1,
        total=float(n_samples),
        largest=1.0,
        record=1.0,
        class_totals=totals,
        class_largest=largest,
    )
