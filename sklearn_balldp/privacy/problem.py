"""Public numbers of a fit: all that a promise, a bound and a record rest on, held once."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..adjacency import DOMAINS, LABELS, METRICS, euclidean_radius, full_radius, full_radius_in
from ..losses import LOSSES, Loss, make_loss
from .ranges import Classes, Count, Features, Length, Size, Strength
from .weights import Weights, class_sizes_of, effective_size_of, total_of, units_of

Array = NDArray[np.float64]
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
    sums_weights, loss_weights : Weights or None
        Public numbers of the records' weights in sums, and in the loss, where those of their
        classes join them; None where every record counts once, and is all that its owner has.
    class_embeddings : ndarray of shape (n_classes, n_features) or None
        Public vector for each class, which noisy class means are shrunk towards. It is no part of
        a record: the model holds it.
    """

    n_samples: Size
    n_features: Features
    n_classes: Classes
    class_counts: tuple[Count, ...] | None
    radius: Length
    metric: Annotated[str, tuple(METRICS)] = "euclidean"
    norm_bound: Length = 1.0
    labels: Annotated[str, LABELS] = "public"
    alpha: Strength = 0.0
    domain: Annotated[str, DOMAINS] = "ball"
    loss: Annotated[str, ("", *LOSSES)] = ""
    fit_intercept: bool = False
    precision: Annotated[str, PRECISIONS] = "float64"
    sums_weights: Weights | None = None
    loss_weights: Weights | None = None
    class_embeddings: Array | None = field(default=None, repr=False, compare=False)

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
        """Largest Euclidean distance between two rows within a radius in ``metric``.

        Parameters
        ----------
        radius : float
            In the units of ``metric``.

        Returns
        -------
        float
            At most the diameter of the ball.
        """
        return euclidean_radius(
            radius, self.metric, norm_bound=self.norm_bound, n_features=self.n_features
        )

    @property
    def full_radius(self) -> float:
        """Radius in ``metric`` that every substitution of rows is within."""
        return full_radius_in(self.metric, self.norm_bound, self.n_features)

    @property
    def diameter(self) -> float:
        """Largest Euclidean distance between two rows."""
        return full_radius(self.norm_bound)

    # -- weights ------------------------------------------------------------------------------

    @property
    def n_units(self) -> int:
        """Number of records, or of persons."""
        return units_of(self.loss_weights, self.n_samples)

    @property
    def effective_size(self) -> float:
        """Total weight in the loss over the largest of one unit; else the number of records."""
        return effective_size_of(self.loss_weights, self.n_samples)

    @property
    def loss_total(self) -> float:
        """What a sum of losses is divided by."""
        return total_of(self.loss_weights, self.n_samples)

    @property
    def class_weights(self) -> tuple[float, ...] | None:
        """Weight of each class in the loss; None where all are 1."""
        return None if self.loss_weights is None else self.loss_weights.by_class

    @property
    def sums_effective_size(self) -> float:
        """As :attr:`effective_size`, in sums."""
        return effective_size_of(self.sums_weights, self.n_samples)

    @property
    def sums_total(self) -> float:
        """Total weight in sums; the number of records without weights."""
        return total_of(self.sums_weights, self.n_samples)

    @property
    def class_sizes(self) -> Array | None:
        """Weight of each class in sums; None where labels are protected."""
        if self.class_counts is None:
            return None
        return np.array(class_sizes_of(self.sums_weights, self.class_counts), dtype=np.float64)
