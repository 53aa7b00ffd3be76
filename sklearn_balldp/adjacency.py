"""Which substitutions are adjacent: metric, radius, labels, unit, and the domain of the rows."""

import math
from dataclasses import dataclass, replace


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
#: Relative allowance for the rounding of rows and of their norms.
ROW_ALLOWANCE = 1e-6
# Smallest radius other than zero that bounds are computed at.
_SMALLEST_RADIUS = 1e-140


@dataclass(frozen=True)
class RowGeometry:
    """Where rows lie, and how far apart two adjacent ones of one label may be."""

    norm_bound: float  # B
    radius: float  # Euclidean, of same-label substitutions; capped at 2 B
    constant: float = 0.0  # that rows are augmented by; 0 for no intercept

    def __post_init__(self) -> None:
        # Low-precision NumPy scalars would overflow or round in the formulas below.
        norm_bound, radius = float(self.norm_bound), float(self.radius)
        # The squares of smaller radii lose digits and vanish; a larger radius bounds them all.
        if 0.0 < radius < _SMALLEST_RADIUS:
            radius = _SMALLEST_RADIUS
        object.__setattr__(self, "norm_bound", norm_bound)
        object.__setattr__(self, "constant", float(self.constant))
        object.__setattr__(self, "radius", min(radius, 2.0 * norm_bound))

    @classmethod
    def of_rounded_rows(
        cls, norm_bound: float, radius: float, constant: float = 0.0
    ) -> "RowGeometry":
        """The declared domain, enlarged for rounding; no other code adds this allowance."""
        up = 1.0 + ROW_ALLOWANCE
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
        """B^2 - ((B - r)+)^2, without cancelling: how far the squared norm may drop."""
        r, b = self.radius, self.norm_bound
        return r * (2.0 * b - r) if r < b else b * b
