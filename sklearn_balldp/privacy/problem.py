"""Public numbers of a fit: all that a promise, a bound and a record rest on, held once."""

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from .._cached import cached_property
from .._parameters import (
    MAX_CLASSES,
    Classes,
    Count,
    Features,
    Length,
    Size,
    Strength,
    check_option,
    is_real,
    one_of,
)
from ..adjacency import DOMAINS, METRICS
from ..losses import LOSSES, Array, Loss, make_loss
from .weights import Weights, uniform_weights

#: Records of at least two classes.
Counts = Annotated[tuple[Count, ...], Meta(min_length=2, max_length=MAX_CLASSES)]


def _counted(class_counts: tuple[int, ...] | None) -> dict[str, int]:
    """What follows from public counts."""
    if class_counts is None:
        return {}
    return {"n_samples": sum(class_counts), "n_classes": len(class_counts)}


def _of_counts(name: str) -> dict[str, Any]:
    """A number that a record leaves out where counts tell it."""
    return {"follows": lambda problem: _counted(problem.class_counts).get(name)}


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Public numbers of a fit.

    Numbers are Python's: NumPy scalars of few bits would overflow in the bounds.

    Attributes
    ----------
    n_features : int
        Number of features.
    class_counts : tuple of int or None
        Records of each class; None where labels are protected, so that a label change is adjacent.
    n_samples, n_classes : int
        Numbers of records and classes, which follow from ``class_counts`` where these are public.
    radius : float
        Radius of the adjacency, in the units of ``metric``.
    metric : {"euclidean", "manhattan", "chebyshev"}
        Metric that radii are declared in.
    norm_bound : float
        Radius B of the ball of rows.
    alpha : float
        Regularisation strength.
    domain : {"ball", "sphere"}
        Whether rows are projected onto the ball, or all scaled to norm B.
    loss : str
        Loss of a linear head; empty for another head. A record states it of heads that are none of
        this package.
    fit_intercept : bool
        Whether a linear head has an intercept.
    sums_weights : Weights, optional
        Public numbers of the records' weights. By default every record counts once, and is all
        that its owner has.
    """

    n_features: Features
    class_counts: Counts | None
    n_samples: Size = field(default=None, metadata=_of_counts("n_samples"))  # type: ignore[assignment]
    n_classes: Classes = field(default=None, metadata=_of_counts("n_classes"))  # type: ignore[assignment]
    radius: Length
    metric: Annotated[str, one_of(METRICS)] = "euclidean"
    norm_bound: Length = 1.0
    alpha: Strength = 0.0
    domain: Annotated[str, one_of(DOMAINS)] = "ball"
    loss: Annotated[str, one_of(("", *LOSSES))] = ""
    fit_intercept: bool = False
    sums_weights: Weights = field(  # type: ignore[assignment]
        default=None, metadata={"follows": attrgetter("uniform_weights")}
    )

    def __post_init__(self) -> None:
        for name, number in _counted(self.class_counts).items():
            if getattr(self, name) not in (None, number):
                raise ValueError(
                    f"{name}={getattr(self, name)!r} does not go with class_counts, which say "
                    f"{number!r}; leave it out."
                )
            object.__setattr__(self, name, number)
        if None in (self.n_samples, self.n_classes):
            raise ValueError("n_samples and n_classes are stated where class_counts are not.")
        if self.sums_weights is None:
            object.__setattr__(self, "sums_weights", self.uniform_weights)

    @property
    def labels(self) -> str:
        """Whether label changes are hidden: "public" or "protected"."""
        return "protected" if self.class_counts is None else "public"

    @cached_property
    def kind(self) -> Loss:
        """The loss itself."""
        return make_loss(self.loss, self.n_classes)

    # -- radii --------------------------------------------------------------------------------

    @cached_property
    def euclidean_radius(self) -> float:
        """Largest Euclidean distance between two adjacent rows of one label."""
        return self.euclidean(self.radius)

    def euclidean(self, radius: float) -> float:
        """Largest Euclidean distance between two rows within a ``radius`` in ``metric``."""
        check_option("metric", self.metric, METRICS)
        if not (is_real(radius) and radius > 0.0):
            raise ValueError(f"radius must be a positive number, or None; got {radius!r}.")
        modulus = METRICS[self.metric].euclidean_per_unit(self.n_features)
        return min(modulus * float(radius), self.diameter)

    @property
    def full_radius(self) -> float:
        """Radius in ``metric`` that every substitution of rows is within."""
        return METRICS[self.metric].per_euclidean_unit(self.n_features) * self.diameter

    @property
    def diameter(self) -> float:
        """Largest Euclidean distance between two rows."""
        return 2.0 * self.norm_bound

    # -- weights ------------------------------------------------------------------------------

    @cached_property
    def uniform_weights(self) -> Weights:
        """Weights of these records if each of them counts once."""
        return uniform_weights(self.n_samples, self.class_counts)

    @property
    def weighted(self) -> bool:
        """Whether records have owners or weights, so that each of them is needed to tell these."""
        return self.sums_weights != self.uniform_weights

    @property
    def effective_size(self) -> float:
        """Total weight over the largest of one unit: the size that noise follows."""
        return self.sums_weights.effective_size

    @property
    def class_sizes(self) -> Array | None:
        """Weight of each class; None where labels are protected."""
        totals = self.sums_weights.class_totals
        return None if totals is None else np.array(totals, dtype=np.float64)
