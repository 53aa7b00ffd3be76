r"""Public weights and owners of records, and the effective sample size that they give.

With weights :math:`w_i \ge 0` and :math:`W = \sum_i w_i`, a head minimises
:math:`\frac1W \sum_i w_i \ell(\theta; z_i) + \frac\alpha2 \|\theta\|^2`. A *unit* is what one
substitution replaces: one record, or all records of one person, each by one of the same label
within the radius. With :math:`s_p` the total weight of unit p and :math:`s = \max_p s_p`, means of
gradients move by at most :math:`s G / W`: the *effective sample size* :math:`W / s` takes the place
of n. Weights are public. They depend on labels, owners and declared numbers, never on a row.

One unit moves the noiseless values of class block c in proportion to :math:`s_{p,c}`, its weight in
that class. In units of :math:`s_c = \max_p s_{p,c}`, it moves all blocks together by at most
:math:`q = \max_p (\sum_c (s_{p,c} / s_c)^2)^{1/2}`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeGuard

from ..adjacency import UNITS
from .ranges import Count, Mass, Size

# Totals are sums of floats; two ways of adding them up differ by less.
_UP = 1.0 + 1e-9


@dataclass(frozen=True)
class Weights:
    """Public numbers of weighted records: all that a sensitivity takes from the weights."""

    unit: Annotated[str, UNITS]  # what one substitution replaces
    n_units: Size
    most_records: Size  # of one unit
    most_classes: Size  # that the records of one unit are in
    total: Mass  # W
    largest: Mass  # s: largest total weight of one unit, rounded up
    record: Mass  # largest weight of one record
    class_records: tuple[Count, ...] | None  # None where labels are protected, as the next two
    class_totals: tuple[Mass, ...] | None
    class_largest: tuple[Mass, ...] | None  # largest weight that one unit has of each class
    block_factor: float = 1.0  # q
    by_class: tuple[Mass, ...] | None = None  # factors in the loss, where classes are weighted

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise ValueError(f"unit must be one of {', '.join(UNITS)}; got {self.unit!r}.")
        if not (self.n_units >= 1 and self.most_records >= self.most_classes >= 1):
            raise ValueError(
                f"n_units={self.n_units!r}, most_records={self.most_records!r} and most_classes="
                f"{self.most_classes!r} must be positive, classes no more than records."
            )
        # One unit has at least the mean of all, and no more than all of its records.
        if not (
            0.0 < self.record <= self.largest * _UP
            and self.largest <= self.most_records * self.record * _UP
            and self.largest <= self.total * _UP
            and self.total <= self.n_units * self.largest * _UP
        ):
            raise ValueError(
                f"total={self.total!r}, largest={self.largest!r} and record={self.record!r} are no "
                "weights of these units."
            )
        if not 1.0 <= self.block_factor <= math.sqrt(self.most_classes) * _UP:
            raise ValueError(
                f"block_factor={self.block_factor!r} must lie between 1 and the root of "
                "most_classes."
            )
        if self.class_records is None:
            if not (self.class_totals is self.class_largest is self.by_class is None):
                raise ValueError("class_totals, class_largest and by_class need class_records.")
        else:
            self._check_classes(self.class_records)

    def _check_classes(self, records: tuple[int, ...]) -> None:
        """Raise a ValueError if weights of classes are less than those of the units allow."""
        totals, largest = self.class_totals, self.class_largest
        if totals is None or largest is None or not records:
            raise ValueError("class_records, class_totals and class_largest go together.")
        lengths = {len(records), len(totals), len(largest), len(self.by_class or records)}
        classes = zip(records, totals, largest, strict=False)
        factor = self.block_factor * math.sqrt(self.most_classes)
        # The largest weight that a unit has of a class is at least the mean of those who have some.
        if not (
            len(lengths) == 1
            and all(t <= min(n, self.n_units) * s * _UP and s >= 0.0 for n, t, s in classes)
            and self.record <= max(largest) * _UP
            and max(largest) <= self.largest * _UP
            and abs(sum(totals) - self.total) <= (_UP - 1.0) * self.total
            and self.largest <= factor * max(largest) * _UP
        ):
            raise ValueError(
                f"class_totals={totals!r}, class_largest={largest!r} and block_factor="
                f"{self.block_factor!r} do not go with total={self.total!r} and largest="
                f"{self.largest!r}."
            )

    @property
    def effective_size(self) -> float:
        """Effective sample size W / s, which takes the place of the number of records."""
        return self.total / self.largest

    @property
    def uniform(self) -> bool:
        """Whether every record has weight 1, and an owner of its own."""
        whole = self.most_records == 1 and self.record == 1.0 and self.total == self.n_units
        return whole and self.by_class is None

    def check(self, n_samples: int, n_classes: int, labels: str) -> None:
        """Raise a ValueError unless so many records can have such weights."""
        persons = self.unit == "person"
        least = max(1 if persons else n_samples, n_samples / self.most_records)
        if not least <= self.n_units <= n_samples:
            raise ValueError(
                f"n_units={self.n_units!r} of at most {self.most_records!r} records are not "
                f"{n_samples!r} records."
            )
        alone = self.most_records == 1 and self.block_factor == 1.0
        if not persons and not (alone and self.largest == self.record):
            raise ValueError(
                f"most_records={self.most_records!r}, largest={self.largest!r} and block_factor="
                f"{self.block_factor!r} are not those of single records."
            )
        if (self.class_totals is None) != (labels == "protected"):
            raise ValueError("class_totals go with public labels, and with no others.")
        if self.class_records is not None:
            found = len(self.class_records), sum(self.class_records)
            if found != (n_classes, n_samples):
                raise ValueError(
                    f"class_records tell of {found[0]} classes and {found[1]} records; there are "
                    f"{n_classes} and {n_samples}."
                )
        if self.most_classes > min(self.most_records, n_classes):
            raise ValueError(f"most_classes={self.most_classes!r} is too large.")


def is_weighted(weights: Weights | None) -> TypeGuard[Weights]:
    """Whether records have weights, class weights or shared owners."""
    return weights is not None and not weights.uniform


def effective_size_of(weights: Weights | None, n_samples: int) -> float:
    """Effective sample size W / s; without weights, the number of records."""
    return float(n_samples) if weights is None else weights.effective_size


def units_of(weights: Weights | None, n_samples: int) -> int:
    """Number of persons, or of records."""
    return n_samples if weights is None else weights.n_units


def class_sizes_of(weights: Weights | None, counts: Sequence[float]) -> tuple[float, ...]:
    """Total weight of each class; without weights of classes, its number of records."""
    if weights is None or weights.class_totals is None:
        return tuple(map(float, counts))
    return weights.class_totals


def total_of(weights: Weights | None, n_samples: int) -> float:
    """Divisor of a mean: the total weight W; without weights, the number of records."""
    return float(n_samples) if weights is None else weights.total
