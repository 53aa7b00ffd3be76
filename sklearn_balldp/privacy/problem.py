"""Public numbers of a fit: all that a promise, a bound and a record rest on, held once."""

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from .._cached import cached_property
from .._parameters import (
    Classes,
    Count,
    Features,
    Length,
    Mass,
    Size,
    Strength,
    check_option,
    is_real,
    one_of,
)
from ..adjacency import DOMAINS, LABELS, METRICS, full_radius_in
from ..losses import LOSSES, Array, Loss, make_loss
from .weights import Weights, uniform_weights

#: Of rows.
PRECISIONS = ("float64", "float32")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Public numbers of a fit.

    Numbers are Python's: NumPy scalars of few bits would overflow in the bounds.

    Attributes
    ----------
    n_samples, n_features, n_classes : int
        Sizes.
    class_counts : tuple of int or None
        Records of each class; None where labels are protected.
    radius : float
        Radius of the adjacency, in the units of ``metric``.
    metric : {"euclidean", "manhattan", "chebyshev"}
        Metric that radii are declared in.
    norm_bound : float
        Radius B of the ball of rows.
    labels : {"public", "protected"}
        Whether label changes are adjacent.
    alpha : float
        Regularisation strength.
    domain : {"ball", "sphere"}
        Whether rows are projected onto the ball, or all scaled to norm B.
    loss : str
        Loss of a linear head; empty for another head.
    fit_intercept : bool
        Whether a linear head has an intercept.
    precision : {"float64", "float32"}
        Precision of the rows: rounding in it is part of a sensitivity.
    sums_weights : Weights, optional
        Public numbers of the records' weights in sums. By default every record counts once, and is
        all that its owner has.
    class_weights : tuple of float or None
        Factor of each class in the loss; None where all are 1.
    largest_in_loss : float or None
        Of persons, where classes have weights: the largest total weight of one in the loss.
    class_embeddings : ndarray of shape (n_classes, n_features) or None
        Public vector for each class, which noisy class means are shrunk towards. It is no part of
        a record: the model holds it.
    """

    n_samples: Size
    n_features: Features
    n_classes: Classes
    class_counts: tuple[Count, ...] | None
    radius: Length
    metric: Annotated[str, one_of(METRICS)] = "euclidean"
    norm_bound: Length = 1.0
    labels: Annotated[str, one_of(LABELS)] = "public"
    alpha: Strength = 0.0
    domain: Annotated[str, one_of(DOMAINS)] = "ball"
    loss: Annotated[str, one_of(("", *LOSSES))] = ""
    fit_intercept: bool = False
    precision: Annotated[str, one_of(PRECISIONS)] = "float64"
    sums_weights: Weights = field(  # type: ignore[assignment]
        default=None, metadata={"follows": "uniform_weights"}
    )
    class_weights: tuple[Mass, ...] | None = None
    largest_in_loss: Mass | None = None
    class_embeddings: Array | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.sums_weights is None:
            object.__setattr__(self, "sums_weights", self.uniform_weights)

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
        return full_radius_in(self.metric, self.norm_bound, self.n_features)

    @property
    def diameter(self) -> float:
        """Largest Euclidean distance between two rows."""
        return 2.0 * self.norm_bound

    # -- weights ------------------------------------------------------------------------------

    @cached_property
    def uniform_weights(self) -> Weights:
        """Weights of these records if each of them counts once."""
        return uniform_weights(self.n_samples, self.class_counts)

    @cached_property
    def loss_weights(self) -> Weights:
        """Public numbers of the records' weights in the loss, where those of classes join them."""
        if self.class_weights is None:
            return self.sums_weights
        return self.sums_weights.times(self.class_weights, self.largest_in_loss)

    @property
    def weighted(self) -> bool:
        """Whether records have owners or weights, so that each of them is needed to tell these."""
        return not self.sums_weights == self.loss_weights == self.uniform_weights

    @property
    def effective_size(self) -> float:
        """Total weight in the loss over the largest of one unit: the size that noise follows."""
        return self.loss_weights.effective_size

    @property
    def class_sizes(self) -> Array | None:
        """Weight of each class in sums; None where labels are protected."""
        totals = self.sums_weights.class_totals
        return None if totals is None else np.array(totals, dtype=np.float64)
