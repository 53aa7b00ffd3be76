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
from typing import Any, TypeGuard

from ..adjacency import UNITS
from .fields import check_follows, check_types, with_floats

# Totals are sums of floats; two ways of adding them up differ by less.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Weights:
    """Public numbers of weighted records: all that a sensitivity takes from the weights."""

    unit: str  # what one substitution replaces: of UNITS
    n_units: int
    most_records: int  # of one unit
    most_classes: int  # that the records of one unit are in
    total: float  # W
    largest: float  # s: largest total weight of one unit, rounded up
    record: float  # largest weight of one record
    class_records: tuple[int, ...] | None  # None where labels are protected, as the next two
    class_totals: tuple[float, ...] | None
    class_largest: tuple[float, ...] | None  # largest weight that one unit has of each class
    block_factor: float = 1.0  # q
    by_class: tuple[float, ...] | None = None  # factors in the loss, where classes are weighted

    def __post_init__(self) -> None:
        check_types(self, "weights")
        if self.unit not in UNITS:
            raise ValueError(f"unit must be one of {', '.join(UNITS)}; got {self.unit!r}.")
        if not (self.n_units >= 1 and self.most_records >= self.most_classes >= 1):
            raise ValueError(
                f"n_units={self.n_units!r}, most_records={self.most_records!r} and most_classes="
                f"{self.most_classes!r} must be positive, classes no more than records."
            )
        up = 1.0 + _ROUNDING
        if not (
            0.0 < self.record <= self.largest * up
            and self.largest <= self.most_records * self.record * up
            and self.largest <= self.total * up
            and self.total <= self.n_units * self.largest * up
        ):
            raise ValueError(
                f"total={self.total!r}, largest={self.largest!r} and record={self.record!r} are no "
                "weights of these units."
            )
        if not 1.0 <= self.block_factor <= math.sqrt(self.most_classes) * up:
            raise ValueError(
                f"block_factor={self.block_factor!r} must lie between 1 and the root of "
                "most_classes."
            )
        if self.class_records is None:
            if not (self.class_totals is self.class_largest is self.by_class is None):
                raise ValueError("class_totals, class_largest and by_class need class_records.")
        else:
            self._check_classes(up)

    def _check_classes(self, up: float) -> None:
        """Raise a ValueError unless so many records of each class can have these weights.

        The checks use that a unit has at most weight 1 before class weights, and that the largest
        of some numbers is at least their mean.
        """
        records, totals, largest = self.class_records, self.class_totals, self.class_largest
        factors = (1.0,) * len(records or ()) if self.by_class is None else self.by_class
        if records is None or totals is None or largest is None or not records:
            raise ValueError("class_records, class_totals and class_largest go together.")
        for n, total, s, factor in zip(records, totals, largest, factors, strict=True):
            if not (
                total >= 0.0
                and s <= factor * up
                and total / max(1, min(n, self.n_units)) <= s * up
                and s <= total * up
            ):
                raise ValueError(
                    f"class_totals={totals!r}, class_largest={largest!r} are no weights of classes "
                    f"of {records!r} records, by {factors!r}."
                )
        most, base = max(largest), self.largest / max(largest)
        told = zip(totals, factors, strict=True)
        if not (
            self.record <= most * up
            and most <= self.largest * up
            and self.largest <= sum(largest) * up
            and base <= self.block_factor * math.sqrt(self.most_classes) * up
            and abs(sum(totals) - self.total) <= _ROUNDING * self.total
            and sum(t / f for t, f in told if t > 0.0) <= self.n_units * up
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
        least = n_samples if self.unit == "record" else 1
        if not max(least, n_samples / self.most_records) <= self.n_units <= n_samples:
            raise ValueError(
                f"record: weights.n_units={self.n_units!r} of at most {self.most_records!r} "
                f"records are not {n_samples!r} records."
            )
        if self.unit == "record":
            check_follows("weights.most_records", self.most_records, 1)
            check_follows("weights.largest", self.largest, self.record)
            check_follows("weights.block_factor", self.block_factor, 1.0)
        if (self.class_totals is None) != (labels == "protected"):
            raise ValueError(
                "record: weights.class_totals go with public labels, and with no others."
            )
        if self.class_records is not None:
            check_follows("the length of weights.class_records", len(self.class_records), n_classes)
            check_follows("the sum of weights.class_records", sum(self.class_records), n_samples)
        if self.most_classes > min(self.most_records, n_classes):
            raise ValueError(f"record: weights.most_classes={self.most_classes!r} is too large.")


def is_weighted(weights: Weights | None) -> TypeGuard[Weights]:
    """Whether records have weights, class weights or shared owners."""
    return weights is not None and not weights.uniform


def weights_from(value: Any) -> Weights | None:
    """Weights from the fields that JSON holds; None stays None."""
    return None if value is None else Weights(**with_floats(Weights, value))


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
