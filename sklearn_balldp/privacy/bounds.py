r"""What a release guarantees as a function of the radius, from public numbers alone.

A bound is the part of a public record from which the guarantee follows. :meth:`Bound.mu` gives mu
at every Euclidean radius, for public and for protected labels; a record needs nothing else. A
custom mechanism brings a custom bound: a frozen dataclass that derives from :class:`Bound`.
Deriving registers the class, so that records which hold it can be read back.
Proofs are in this package's documentation.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from .._parameters import check_option
from ..adjacency import DOMAINS, LABELS, Domain
from ..losses import Loss, make_loss
from .fields import check_follows, check_types, with_floats
from .noise import grid_slack
from .rounding import UNIT_ROUNDOFF, additions
from .sensitivity import gap_over_minimisers, minimizer_norm_bound, prototype_sensitivity
from .weights import Weights, class_sizes_of, effective_size_of, is_weighted, total_of, weights_from

Blocks = float | tuple[float, ...]

_KINDS: dict[str, type["Bound"]] = {}


def _tag(kind: type) -> str:
    """Name of a bound's class in records; outside of this package it includes the module."""
    own = kind.__module__.startswith(f"{__package__}.")
    return kind.__qualname__ if own else f"{kind.__module__}:{kind.__qualname__}"


def kinds_of_bounds() -> dict[str, str]:
    """Names of bounds in records, by module and name of their classes."""
    return {f"{kind.__module__}.{kind.__qualname__}": tag for tag, kind in _KINDS.items()}


class Bound(ABC):
    """Guarantee of one release as a function of the radius; derive a frozen dataclass from it.

    A subclass needs the field ``labels`` ("public" or "protected", as released), the property
    ``theorem`` and the method :meth:`mu_at`. Its fields go into JSON: beside ``weights`` they must
    be numbers, strings, None, and tuples of these. A field that holds a dataclass needs a
    ``from_fields`` that makes it anew.
    """

    #: What the noise was added to, for the record.
    what: ClassVar[str] = "noise on the released values"
    #: What a record lists several sensitivities and noise scales by.
    parts: ClassVar[str] = "parts"
    #: The mechanism of this package that makes such releases. A custom mechanism needs a custom
    #: bound, which may derive from one of these.
    mechanism: ClassVar[str] = ""
    labels: str
    #: Public weights of the records; None if every record counts once and has an owner of its own.
    #: A custom bound needs this field if its releases protect persons.
    weights: Weights | None = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _KINDS[_tag(cls)] = cls
        if ":" in _tag(cls) and "mechanism" not in vars(cls):
            # A custom bound that derives from one of ours is not for our mechanism.
            cls.mechanism = ""

    @property
    @abstractmethod
    def theorem(self) -> str:
        """The proved formula that the bound uses, in one line."""

    @abstractmethod
    def mu_at(self, radius: float, labels: str) -> float:
        """Gaussian differential privacy at a Euclidean radius; :meth:`mu` calls this.

        Parameters
        ----------
        radius : float
            Euclidean radius.
        labels : {"public", "protected"}
            Whether label changes count; "protected" for releases that hide them only.

        Returns
        -------
        float
            Mu; infinite where nothing is promised.
        """

    def mu(self, radius: float, labels: str | None = None) -> float:
        """Gaussian differential privacy of the release at a Euclidean radius.

        Parameters
        ----------
        radius : float
            Euclidean radius.
        labels : {"public", "protected"}, optional
            Whether label changes count; as released by default.

        Returns
        -------
        float
            Mu; infinite for label changes where labels are public.

        Raises
        ------
        ValueError
            If ``labels`` is neither.
        """
        labels = self.labels if labels is None else labels
        check_option("labels", labels, LABELS)
        if labels == "protected" and self.labels == "public":
            # The published class counts alone reveal a label change.
            return math.inf
        return self.mu_at(radius, labels)

    def scales(self, radius: float) -> tuple[Blocks, Blocks] | None:
        """Sensitivity at a Euclidean radius, and noise scale, if the bound determines them.

        Parameters
        ----------
        radius : float
            Euclidean radius.

        Returns
        -------
        tuple of (float or tuple of float) or None
            One number each, or one for each part; None if the record has to state them.
        """
        return None

    def signal_and_noise(self, record: Any) -> dict[str, tuple[float, float]]:
        """Largest length of the values before noise, and expected length of the noise, by part.

        Parameters
        ----------
        record : Release
            The record that holds the bound.

        Returns
        -------
        dict of str to (float, float)
            Both from public numbers, by the name of the part; empty where the bound does not tell.
        """
        return {}

    def class_signals(self, masses: tuple[float, ...]) -> tuple[float, ...]:
        """Largest effect of each class's records on the released values, over their noise.

        Parameters
        ----------
        masses : tuple of float
            Weight of each class in sums, or its records.

        Returns
        -------
        tuple of float
            One number for each class; empty where the bound does not tell.
        """
        return ()

    def check(self, record: Any, radius: float, mu: float) -> None:  # noqa: B027
        """Raise a ValueError if a record contradicts this bound; by default nothing can.

        Parameters
        ----------
        record : Release
            The record that holds the bound.
        radius : float
            Its radius, Euclidean.
        mu : float
            Mu that it was allowed to spend there.
        """

    def to_dict(self) -> dict[str, Any]:
        """Fields, and the name of the kind, for JSON.

        Returns
        -------
        dict
            Built-in types; :func:`bound_from_dict` reads it.
        """
        fields: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        return {"type": _tag(type(self)), **with_floats(type(self), fields)}

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Self:
        """The bound of these fields, as they come from JSON with tuples for lists."""
        own = dict(values)
        if own.get("weights") is not None:
            own["weights"] = weights_from(own["weights"])
        return cls(**own)


def bound_from_dict(record: Mapping[str, Any]) -> Bound:
    """Rebuild a bound from :meth:`Bound.to_dict`."""
    values = dict(record) if isinstance(record, Mapping) else {}
    tag = str(values.pop("type", None))
    kind = _KINDS.get(tag)
    if kind is None or inspect.isabstract(kind):
        raise ValueError(
            f"record: unknown bound {tag!r}; import the module that defines it, or pass "
            "Release.to_dict()."
        )
    try:
        bound = kind.from_fields(with_floats(kind, values))
        check_types(bound, tag)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"record: no {tag} has these fields ({error}).") from error
    return bound


class ParameterBound(Bound):
    """Noise of fixed scales on values whose sensitivity is known: mu is their ratio.

    A subclass needs ``n_values`` (a field or a property), the field ``sigma`` (empty until
    calibrated) and the method :meth:`sensitivity`.
    """

    what = "noise on the parameters"
    parts = "class blocks"
    n_values: int
    sigma: tuple[float, ...]

    @abstractmethod
    def sensitivity(self, radius: float, labels: str | None = None) -> NDArray[np.float64]:
        """L2 sensitivity at a Euclidean radius.

        Parameters
        ----------
        radius : float
            Euclidean radius.
        labels : {"public", "protected"}, optional
            Whether label changes count; as released by default.

        Returns
        -------
        ndarray of shape (n_blocks,)
            One bound per block of values that a substitution moves by itself.
        """

    def calibrated(self, radius: float, mu: float) -> Self:
        """The same bound with the noise that makes it mu-GDP at a Euclidean radius.

        Parameters
        ----------
        radius : float
            Euclidean radius.
        mu : float
            Target for the sensitivity over the noise scale, with the sampler's slack.

        Returns
        -------
        ParameterBound
            With noise scales.

        Raises
        ------
        ValueError
            If mu is smaller than what rounding to the sampler's grid takes.
        """
        left = self._left_of(mu)
        sigma = tuple((self.sensitivity(radius) / left).tolist())
        return replace(self, sigma=sigma)  # type: ignore[type-var]

    def _left_of(self, mu: float) -> float:
        """What rounding to the sampler's grid leaves of mu for the ratio; ValueError if nothing."""
        # The last factor covers the rounding of a division by this, and of the ratio in mu_at.
        left = (mu - 2.0 * grid_slack(self.n_values)) * (1.0 - 2.0**-50)
        if left <= 0.0:
            raise ValueError(
                f"epsilon is too small: its mu={mu!r} is less than rounding to the sampler's grid "
                "takes; raise epsilon."
            )
        return left

    def _check_sigma(self, n_blocks: int, radius: float) -> None:
        """Raise a ValueError unless every block that a substitution moves states its noise."""
        check_follows("the length of bound.sigma", len(self.sigma), n_blocks)
        moved, sigma = self.sensitivity(radius) > 0.0, np.array(self.sigma)
        if not ((sigma > 0.0) | (~moved & (sigma == 0.0))).all():
            raise ValueError(f"record: bound.sigma={self.sigma!r} must be positive noise scales.")

    def scales(self, radius: float) -> tuple[Blocks, Blocks]:
        return as_float_or_tuple(self.sensitivity(radius)), as_float_or_tuple(self.sigma)

    def mu_at(self, radius: float, labels: str) -> float:
        sensitivity = self.sensitivity(radius, labels)
        moved = sensitivity > 0.0
        if not moved.any():
            return 0.0
        scale = np.broadcast_to(np.asarray(self.sigma, dtype=np.float64), sensitivity.shape)
        with np.errstate(divide="ignore"):
            ratio = float(np.max(sensitivity[moved] / scale[moved]))
        return math.nextafter(ratio + grid_slack(self.n_values), math.inf)


#: How the name of the part of one class begins; the position of the class follows.
PROTOTYPE = "prototype of class "


@dataclass(frozen=True)
class PrototypeBound(ParameterBound):
    """Noise on ridge prototypes: a substitution within the label moves one block."""

    mechanism = "output"
    #: Name of the head's loss in a record; no loss function has this name.
    loss = "prototypes"
    #: Where rows lie.
    rows = "ball"

    n_samples: int
    n_values: int
    alpha: float
    norm_bound: float
    mode: str = "worst"  # of prototype_sensitivity
    class_counts: tuple[int, ...] | None = None  # public; None where the mode does not use them
    labels: str = "public"
    sigma: tuple[float, ...] = ()  # one per class block, or one for all
    weights: Weights | None = None

    def __post_init__(self) -> None:
        weighted = is_weighted(self.weights)
        if self.mode == "worst" and self.labels == "public" and weighted:
            raise ValueError(
                "counts='worst' is the paper's, for one record of one weight a person; use "
                "counts='per_class' with groups or weights."
            )
        if (self.mode == "worst") != (self.class_counts is None):
            raise ValueError(f"mode={self.mode!r} and class_counts do not go together.")
        if self.class_counts is not None:
            if self.labels == "protected":
                raise ValueError("class_counts are private when label changes are adjacent.")
            if sum(self.class_counts) != self.n_samples:
                raise ValueError("class_counts must add up to n_samples.")

    def check(self, record: Any, radius: float, mu: float) -> None:
        check_follows("bound.n_values", self.n_values, record.n_classes * record.n_features)
        counts = self.class_counts
        if counts is not None:
            if self.weights is not None:
                told = self.weights.class_records
                check_follows("bound.weights.class_records", told, counts)
            if not all(isinstance(n, int) and n >= 0 for n in counts):
                raise ValueError("record: bound.class_counts must be whole numbers, none negative.")
            check_follows("the length of bound.class_counts", len(counts), record.n_classes)
        self._check_sigma(record.n_classes if self.mode == "per_class" else 1, radius)

    def signal_and_noise(self, record: Any) -> dict[str, tuple[float, float]]:
        # Without counts any class may hold all records.
        total = total_of(self.weights, self.n_samples)
        counts: tuple[float, ...] = (total,) * record.n_classes
        if self.class_counts:
            counts = class_sizes_of(self.weights, self.class_counts)
        return {f"{PROTOTYPE}{code}": pair for code, pair in enumerate(self._by_class(counts))}

    def class_signals(self, masses: tuple[float, ...]) -> tuple[float, ...]:
        pairs = self._by_class(masses)
        return tuple(signal / noise if noise > 0.0 else 0.0 for signal, noise in pairs)

    def _by_class(self, masses: tuple[float, ...]) -> list[tuple[float, float]]:
        """Largest length of each class's prototype, and expected length of its noise."""
        root = math.sqrt(self.n_values / len(masses))
        ridge = self.alpha * total_of(self.weights, self.n_samples)
        signal = [2.0 * n * self.norm_bound / (2.0 * n + ridge) if n else 0.0 for n in masses]
        sigma = np.broadcast_to(np.asarray(self.sigma), len(masses)).tolist()
        return [(longest, root * scale) for longest, scale in zip(signal, sigma, strict=True)]

    @property
    def theorem(self) -> str:
        weighted = is_weighted(self.weights)
        if self.labels == "protected":
            if weighted:
                return (
                    "the least of s max(2r, 2 sqrt(2) B) / (alpha W), 2 B sqrt(2 k), and the move "
                    "by way of the data without the person: prototypes, labels protected"
                )
            return "max(2r, 2 sqrt(2) B) / (2 + alpha n): prototypes, labels protected"
        if weighted:
            return "q 2r s_c / (2 W_c + alpha W) per class block: weights of one unit"
        return {
            "worst": "2r / (2 + alpha n): ridge prototypes, counts unused (Margaryan & Gupta)",
            "min": "2r / (2 n_min + alpha n): ridge prototypes, count-aware (Margaryan & Gupta)",
            "per_class": "2r / (2 n_c + alpha n) per class block: a substitution moves one block",
        }[self.mode]

    def sensitivity(self, radius: float, labels: str | None = None) -> NDArray[np.float64]:
        counts = np.asarray(self.class_counts or [self.n_samples], dtype=np.float64)
        domain = Domain.of_rounded_rows(self.norm_bound, radius)

        def exact(radius: float) -> NDArray[np.float64]:
            found = prototype_sensitivity(
                radius,
                counts,
                alpha=self.alpha,
                mode=self.mode,
                label_change=(labels or self.labels) == "protected",
                norm_bound=domain.norm_bound,
                weights=self.weights,
            )
            return np.atleast_1d(np.asarray(found, dtype=np.float64))

        # Rounding may move the blocks of all classes, in both datasets. The noise of each block is
        # proportional to its exact sensitivity, so the errors are added in units of the noise.
        rounding, largest = self._roundings() * domain.norm_bound, exact(domain.norm_bound)
        if self.mode == "per_class":
            here = largest > 0.0
            added = largest * float(np.linalg.norm(rounding[here] / largest[here]))
        else:
            added = np.full(1, float(np.linalg.norm(rounding)))
        return exact(domain.radius) + added

    def _roundings(self) -> NDArray[np.float64]:
        """What rounding adds to the distance of two computed prototypes of a class, over B.

        A sum of n_c rows of total weight W_c has the errors of the rows' factors, which come from
        the squares in their norms, and those of the additions. Zeros, of other classes' rows, add
        no error. The division adds 2 u B. The result is twice that for two datasets, and twice
        again as a margin.
        """
        total = total_of(self.weights, self.n_samples)
        ridge = self.alpha * total
        if self.class_counts is None:
            # This holds for any number of classes. Class c has at most 1.02 n_c + 40 additions: the
            # first terms add up to those of one class of all records, and 40 counts per value.
            whole = 1.02 * self.n_samples * total / (2.0 * total + ridge) + 40.0 * self.n_values
            return np.array([8.0 * whole * UNIT_ROUNDOFF])
        n_features = max(1, self.n_values // len(self.class_counts))
        masses = np.asarray(class_sizes_of(self.weights, self.class_counts), dtype=np.float64)
        terms = np.array([additions(n, n_features) for n in self.class_counts]) + n_features + 16.0
        held = np.where(masses > 0.0, masses, 1.0)
        errors = 8.0 * (terms * masses / (2.0 * held + ridge) + 2.0) * UNIT_ROUNDOFF
        return np.where(masses > 0.0, errors, 0.0)


@dataclass(frozen=True)
class MinimizerBound(ParameterBound):
    """Noise on a minimiser whose gradient was certified to have norm ``tol`` at most."""

    what = "noise on the minimiser"
    mechanism = "output"

    loss: str
    n_samples: int
    n_features: int
    n_classes: int
    alpha: float
    norm_bound: float
    fit_intercept: bool  # rows are augmented by a constant 1
    method: str  # of gradient_gap
    labels: str
    tol: float  # fixed before data
    sigma: tuple[float, ...] = ()
    weights: Weights | None = None
    rows: str = "ball"

    def check(self, record: Any, radius: float, mu: float) -> None:
        check_option("record: bound.rows", self.rows, DOMAINS)
        self._check_sigma(1, radius)
        if not self.tol >= 0.0:
            raise ValueError(f"record: bound.tol={self.tol!r} must not be negative.")

    def signal_and_noise(self, record: Any) -> dict[str, tuple[float, float]]:
        longest = math.sqrt(self.kind.n_stacked) * self.norm()
        return {"minimiser": (longest, self.sigma[0] * math.sqrt(self.n_values))}

    def class_signals(self, masses: tuple[float, ...]) -> tuple[float, ...]:
        # A class moves the minimiser by its share of the mean gradient, over alpha.
        pull = self.kind.residual_limit(0.0) * self.domain(0.0).augmented
        longest = min(pull / self.alpha, self.norm())
        noise = self.sigma[0] * math.sqrt(self.n_features)
        return tuple(share * longest / noise for share in class_shares(self.weights, masses))

    @property
    def theorem(self) -> str:
        gap = {
            "tight": "G the certified gradient gap",
            "paper": "G = L_z r (Margaryan & Gupta)",
        }[self.method]
        n = "alpha W / s" if is_weighted(self.weights) else "alpha n"
        return f"G / ({n}) + 2 tol / alpha: {self.loss} minimiser, {gap}"

    @property
    def kind(self) -> Loss:
        """The loss itself."""
        return make_loss(self.loss, self.n_classes)

    @property
    def n_values(self) -> int:  # type: ignore[override]
        """Released values."""
        return self.kind.n_scores * (self.n_features + int(self.fit_intercept))

    def domain(self, radius: float) -> Domain:
        """Rows and radius, with the allowance for rounding."""
        return Domain.of_rounded_rows(self.norm_bound, radius, float(self.fit_intercept))

    def gap(self, radius: float, labels: str | None = None) -> float:
        """Gradient gap at a Euclidean radius, with the allowance for rounded rows."""
        labels = labels or self.labels
        return gap_over_minimisers(
            self.kind, self.domain(radius), self.alpha, method=self.method, labels=labels
        )

    def norm(self) -> float:
        """Largest norm of one problem's weights before noise."""
        return minimizer_norm_bound(
            self.loss,
            alpha=self.alpha,
            norm_bound=self.domain(0.0).norm_bound,
            fit_intercept=self.fit_intercept,
            n_classes=self.n_classes,
        )

    def sensitivity(self, radius: float, labels: str | None = None) -> NDArray[np.float64]:
        moved = self.gap(radius, labels) / (
            self.alpha * effective_size_of(self.weights, self.n_samples)
        )
        moved += 2.0 * self.tol / self.alpha
        norm = math.sqrt(self.kind.n_stacked) * self.norm()
        return np.array([moved + 4.0 * UNIT_ROUNDOFF * (norm + self.tol / self.alpha)])


def class_shares(weights: Weights | None, masses: tuple[float, ...]) -> tuple[float, ...]:
    """Share of each class in the loss."""
    own = class_sizes_of(weights, masses)
    return tuple(mass / sum(own) for mass in own)


def as_float_or_tuple(values: Sequence[float] | NDArray[np.float64]) -> Blocks:
    """One float for one block, else a tuple: how blocks are stated in the public record."""
    values = tuple(float(v) for v in values)
    return values[0] if len(values) == 1 else values


def counts_intercept(bound: Any) -> bool | None:
    """Whether a bound counts an intercept; None if it does not tell."""
    told = getattr(bound, "fit_intercept", getattr(bound, "constant", None))
    return None if told is None else bool(told)
