"""Which substitutions are adjacent: metric, radius, labels, unit, and the domain of the rows."""

import math
from dataclasses import dataclass, replace

from ._parameters import check_option


@dataclass(frozen=True)
class Metric:
    """A distance between rows: its names in other libraries, and its ratio to the Euclidean one."""

    scipy_name: str  # in scipy.spatial.distance
    order: float  # of the norm, as numpy.linalg.norm takes it

    def per_euclidean_unit(self, n_features: int) -> float:
        """Largest distance between two rows at Euclidean distance 1."""
        return math.sqrt(n_features) if self.order < 2.0 else 1.0

    def euclidean_per_unit(self, n_features: int) -> float:
        """Largest Euclidean distance between two rows at distance 1."""
        return math.sqrt(n_features) if self.order > 2.0 else 1.0


#: Metrics on the rows. Records with different labels are never adjacent, unless labels are
#: protected.
METRICS = {
    "euclidean": Metric("euclidean", 2.0),
    "manhattan": Metric("cityblock", 1.0),
    "chebyshev": Metric("chebyshev", math.inf),
}
#: Whether the guarantee covers label changes: for "protected" labels it does, for "public" not.
LABELS = ("public", "protected")
#: What one substitution replaces: one record, or all records of one person.
UNITS = ("record", "person")
#: Where rows lie: in the ball of radius B (longer ones are projected onto it), or all on its
#: surface (every row is scaled to norm B, and radii are distances between scaled rows).
DOMAINS = ("ball", "sphere")
# Relative allowance for the rounding of rows and of their norms.
_ROUNDING = 1e-6
# Least radius other than zero that bounds are computed at.
_LEAST_RADIUS = 1e-140


def full_radius(norm_bound: float) -> float:
    """Euclidean diameter of the ball of rows: every feature substitution is within it.

    The guarantee at this radius keeps labels and class counts public; it is standard (bounded)
    differential privacy only when labels are protected as well.
    """
    return 2.0 * float(norm_bound)


def full_radius_in(metric: str, norm_bound: float, n_features: int) -> float:
    """Smallest radius in ``metric`` that covers every substitution of rows in the ball."""
    return METRICS[metric].per_euclidean_unit(n_features) * full_radius(norm_bound)


def euclidean_radius(
    radius: float | None, metric: str, *, norm_bound: float, n_features: int
) -> float:
    """Largest Euclidean distance between two rows of the ball within ``radius`` in ``metric``.

    None is the full radius. The Manhattan distance is at least the Euclidean one. The Chebyshev
    distance is at least the Euclidean one over the square root of d.
    """
    check_option("metric", metric, METRICS)
    norm_bound = float(norm_bound)
    if radius is None:
        return full_radius(norm_bound)
    if not radius > 0.0:
        raise ValueError(
            f"radius must be positive, or None for the full radius 2 * norm_bound; got {radius!r}."
        )
    modulus = METRICS[metric].euclidean_per_unit(n_features)
    return min(modulus * float(radius), full_radius(norm_bound))


@dataclass(frozen=True)
class RowGeometry:
    """Where rows lie, and how far apart two adjacent ones of one label may be."""

    norm_bound: float  # B
    radius: float  # Euclidean, of same-label substitutions; capped at 2 B
    constant: float = 0.0  # that rows are augmented by; 0 for no intercept

    def __post_init__(self) -> None:
        # Low-precision NumPy scalars would overflow or round in the formulas below.
        norm_bound, constant = float(self.norm_bound), float(self.constant)
        object.__setattr__(self, "norm_bound", norm_bound)
        object.__setattr__(self, "constant", constant)
        # The squares of smaller radii lose digits and vanish; a larger radius bounds them all.
        radius = float(self.radius)
        if 0.0 < radius < _LEAST_RADIUS:
            radius = _LEAST_RADIUS
        object.__setattr__(self, "radius", min(radius, 2.0 * norm_bound))

    @classmethod
    def of_rounded_rows(
        cls, norm_bound: float, radius: float, constant: float = 0.0
    ) -> "RowGeometry":
        """The declared domain, enlarged for rounding; no other code adds this allowance."""
        up = 1.0 + _ROUNDING
        return cls(norm_bound * up, radius * up, constant)

    def at(self, radius: float) -> "RowGeometry":
        """The same domain at another radius."""
        return replace(self, radius=radius)

    @property
    def augmented(self) -> float:
        """Largest norm of an augmented row."""
        return math.hypot(self.norm_bound, self.constant)

    @property
    def squared_norm_drop(self) -> float:
        """B^2 - ((B - r)+)^2: how much smaller the squared norm of an adjacent row can be.

        The code computes it in a form that does not cancel.
        """
        r, b = self.radius, self.norm_bound
        return r * (2.0 * b - r) if r < b else b * b
