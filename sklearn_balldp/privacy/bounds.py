r"""What a release guarantees as a function of the radius: public numbers alone.

A bound is the part of a public record that a guarantee rests on. It answers :meth:`Bound.mu` at
every Euclidean radius, for public and for protected labels, and every bound answers alike: a record
asks no more. A mechanism of one's own brings a bound of its own, a frozen dataclass that derives
from :class:`Bound`; deriving registers it, so that records which hold it can be read back.

*Noise on parameters* is mu-GDP with mu their sensitivity over the noise scale
(:class:`ParameterBound`): :class:`PrototypeBound`, :class:`MinimizerBound`.

*Noise on gradients.* Step s publishes
:math:`g_s = \frac1n \sum_i g(\theta_{s-1}; z_i) + N(0, \sigma_s^2 I)`, g the gradient of one
record's loss, its residual clipped or not. The iterate is public, so that
:math:`\sigma_s = G_s(r) / (n \mu_s)` may use the gap at it (:func:`.iterate_gap`), and each step is
:math:`\mu_s`-GDP with :math:`\mu_s` fixed in advance: the transcript, and every model made from it,
is :math:`\sqrt{\sum \mu_s^2}`-GDP at radius r. At other radii the gaps depend on the iterates, so
their realised sum is no guarantee. What holds beforehand for t > r is
:math:`\mu(t) \le \mu \min(\lceil t / r \rceil, \sup G_\theta(t) / \inf G_\theta(r))`: a chain of
records r apart, and public limits of the gap (:func:`.gap_limits`).

References
----------
Dong, Roth & Su (2022): composition (Corollary 3.3) and group privacy (Theorem 2.14) of Gaussian
differential privacy. Proofs of the sensitivities and gaps are in this package's documentation.
"""

import inspect
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..adjacency import LABELS, Domain
from ..losses import Loss, make_loss
from .fields import check_follows, check_types, with_floats
from .gaussian import epsilon_from_mu
from .iterate_gap import GapLimits, gap_at, limits_over_iterates
from .noise import grid_slack
from .sensitivity import gap_over_minimisers, minimizer_norm_bound, prototype_sensitivity

Blocks = float | tuple[float, ...]

_UNIT_ROUNDOFF = 2.0**-53
# A chain is not lengthened by the rounding of a radius, which the allowance for rows covers.
_CHAIN = 1.0 - 1e-9
# Two machines' values of one formula may differ by less.
_LESS = 1.0 - 1e-9
_KINDS: dict[str, type["Bound"]] = {}


def _tag(kind: type) -> str:
    """What a record calls a bound: one of another module is named with it, and replaces none."""
    own = kind.__module__ == __name__
    return kind.__qualname__ if own else f"{kind.__module__}:{kind.__qualname__}"


class Bound(ABC):
    """Guarantee of one release as a function of the radius; derive a frozen dataclass from it.

    A subclass needs the field ``labels`` ("public" or "protected": the adjacency that was released
    under), the property ``theorem`` and the method :meth:`mu_at`; its fields must be plain numbers,
    strings and tuples, as they go into JSON.
    """

    #: What the noise was added to, for the record.
    what: ClassVar[str] = "noise on the released values"
    #: What sensitivities and noise scales are listed by, where there are several.
    parts: ClassVar[str] = "parts"
    #: Which of this package's mechanisms makes such releases.
    mechanism: ClassVar[str] = ""
    labels: str

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _KINDS[_tag(cls)] = cls

    @property
    @abstractmethod
    def theorem(self) -> str:
        """What the bound rests on, in one line."""

    @abstractmethod
    def mu_at(self, radius: float, labels: str) -> float:
        """Gaussian differential privacy at a Euclidean radius: what :meth:`mu` asks.

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
        if labels not in LABELS:
            raise ValueError(f"labels must be one of {', '.join(LABELS)}; got {labels!r}.")
        if labels == "protected" and self.labels == "public":
            # Class counts are published, if nothing else.
            return math.inf
        return self.mu_at(radius, labels)

    def scales(self, radius: float) -> tuple[Blocks, Blocks] | None:
        """Sensitivity at a Euclidean radius, and noise scale, where the bound itself tells them.

        Parameters
        ----------
        radius : float
            Euclidean radius.

        Returns
        -------
        tuple of (float or tuple of float) or None
            Numbers, or one for each part; None where a record has to state them.
        """
        return None

    def signal_and_noise(self, record: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Largest length of the values before noise, and expected length of the noise, by part.

        Parameters
        ----------
        record : Release
            The record that holds the bound.

        Returns
        -------
        tuple of (tuple of float, tuple of float)
            Both from public numbers; empty where the bound does not tell.
        """
        return (), ()

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
        """The bound of these fields.

        Parameters
        ----------
        values : mapping
            Fields by name, as they come from JSON, with tuples for lists.

        Returns
        -------
        Bound
            Equal to the one written.
        """
        return cls(**values)


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

    A subclass needs the fields ``n_values`` and ``sigma`` (empty until calibrated) and the method
    :meth:`sensitivity`.
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
            What the sensitivity over the noise scale, with the sampler's slack, comes to.

        Returns
        -------
        ParameterBound
            With noise scales.

        Raises
        ------
        ValueError
            If mu is smaller than what rounding to the sampler's grid takes.
        """
        # The last factor is for the rounding of the division, and of what undoes it.
        left = (mu - 2.0 * grid_slack(self.n_values)) * (1.0 - 2.0**-50)
        if left <= 0.0:
            raise ValueError(
                f"epsilon is too small: its mu={mu!r} is less than rounding to the sampler's grid "
                "takes; raise epsilon."
            )
        sigma = tuple((self.sensitivity(radius) / left).tolist())
        return replace(self, sigma=sigma)  # type: ignore[type-var]

    def scales(self, radius: float) -> tuple[Blocks, Blocks]:
        return as_float_or_tuple(self.sensitivity(radius)), as_float_or_tuple(self.sigma)

    def mu_at(self, radius: float, labels: str) -> float:
        sensitivity = self.sensitivity(radius, labels)
        moved = sensitivity > 0.0
        if not moved.any():
            return 0.0
        scale = np.broadcast_to(np.asarray(self.sigma, dtype=np.float64), sensitivity.shape)
        ratio = float(np.max(sensitivity[moved] / scale[moved]))
        return math.nextafter(ratio + grid_slack(self.n_values), math.inf)


@dataclass(frozen=True)
class PrototypeBound(ParameterBound):
    """Noise on ridge prototypes: a substitution within the label moves one block.

    Parameters
    ----------
    n_samples, n_values : int
        Number of records n, and of released values.
    alpha : float
        Regularisation strength.
    norm_bound : float
        Radius B of the admissible ball.
    mode : {"per_class", "min", "worst"}
        See :func:`.prototype_sensitivity`.
    class_counts : tuple of int or None
        Public class counts where ``mode`` uses them, else None.
    labels : {"public", "protected"}
        Whether label changes are adjacent.
    sigma : tuple of float
        Noise scales, one per class block or one for all.

    Raises
    ------
    ValueError
        If the mode needs counts that are missing, or counts do not add up to ``n_samples``.
    """

    mechanism = "output"
    #: Of the head: there is no loss that it could be confused with.
    loss = "prototypes"

    n_samples: int
    n_values: int
    alpha: float
    norm_bound: float
    mode: str = "worst"
    class_counts: tuple[int, ...] | None = None
    labels: str = "public"
    sigma: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if (self.mode == "worst") != (self.class_counts is None):
            raise ValueError(f"mode={self.mode!r} and class_counts do not go together.")
        if self.class_counts is not None:
            if self.labels == "protected":
                raise ValueError("class_counts are private when label changes are adjacent.")
            if sum(self.class_counts) != self.n_samples:
                raise ValueError("class_counts must add up to n_samples.")

    def check(self, record: Any, radius: float, mu: float) -> None:
        check_follows("bound.n_values", self.n_values, record.n_classes * record.n_features)
        if self.class_counts is not None:
            if not all(isinstance(n, int) and n >= 0 for n in self.class_counts):
                raise ValueError("record: bound.class_counts must be whole numbers, none negative.")
            check_follows(
                "the length of bound.class_counts", len(self.class_counts), record.n_classes
            )
        check_follows("bound.sigma", self.sigma, self.calibrated(radius, mu).sigma)

    def signal_and_noise(self, record: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
        # Without counts any class may hold all records.
        counts = self.class_counts or (self.n_samples,) * record.n_classes
        sigma = np.broadcast_to(np.asarray(self.sigma), len(counts)).tolist()
        ridge = self.alpha * self.n_samples
        signal = [2.0 * n * self.norm_bound / (2.0 * n + ridge) if n else 0.0 for n in counts]
        return tuple(signal), tuple(s * math.sqrt(record.n_features) for s in sigma)

    @property
    def theorem(self) -> str:
        if self.labels == "protected":
            return "max(2r, 2 sqrt(2) B) / (2 + alpha n): prototypes, labels protected"
        return {
            "worst": "2r / (2 + alpha n): ridge prototypes, counts unused (Margaryan & Gupta)",
            "min": "2r / (2 n_min + alpha n): ridge prototypes, count-aware (Margaryan & Gupta)",
            "per_class": "2r / (2 n_c + alpha n) per class block: a substitution moves one block",
        }[self.mode]

    def sensitivity(self, radius: float, labels: str | None = None) -> NDArray[np.float64]:
        counts = np.asarray(self.class_counts or [self.n_samples], dtype=np.float64)
        domain = Domain.of_rounded_rows(self.norm_bound, radius)
        exact = prototype_sensitivity(
            domain.radius,
            counts,
            alpha=self.alpha,
            mode=self.mode,
            label_change=(labels or self.labels) == "protected",
            norm_bound=domain.norm_bound,
        )
        # Summing n_c rows errs by at most n_c^2 u B on each side, in any order of summation; the
        # two divisions err by 2 u B more. Label changes move two blocks.
        sums = 4.0 * counts**2 / (2.0 * counts + self.alpha * self.n_samples)
        rounding = 2.0 * (sums + 4.0) * _UNIT_ROUNDOFF * domain.norm_bound
        if self.mode != "per_class":
            rounding = np.full(1, rounding.max())
        bound = np.atleast_1d(np.asarray(exact + rounding, dtype=np.float64))
        if self.mode == "per_class":
            bound[counts == 0] = 0.0
        return bound


@dataclass(frozen=True)
class MinimizerBound(ParameterBound):
    """Noise on a certified minimiser.

    Parameters
    ----------
    loss : {"logistic", "softmax", "squared_hinge"}
        Loss of one record.
    n_samples, n_features, n_classes : int
        Number of records n, of features, and of classes K.
    alpha, norm_bound : float
        Regularisation strength and radius of the admissible ball.
    fit_intercept : bool
        Whether rows are augmented by a constant 1.
    method : {"tight", "paper"}
        See :func:`.gradient_gap`.
    labels : {"public", "protected"}
        Whether label changes are adjacent.
    tol : float
        Gradient norm, fixed before data, below which every released minimiser was certified.
    sigma : tuple of float
        Noise scale.
    """

    what = "noise on the minimiser"
    mechanism = "output"

    loss: str
    n_samples: int
    n_features: int
    n_classes: int
    alpha: float
    norm_bound: float
    fit_intercept: bool
    method: str
    labels: str
    tol: float
    sigma: tuple[float, ...] = ()

    def check(self, record: Any, radius: float, mu: float) -> None:
        if not self.tol >= 0.0:
            raise ValueError(f"record: bound.tol={self.tol!r} must not be negative.")
        check_follows("bound.sigma", self.sigma, self.calibrated(radius, mu).sigma)

    def signal_and_noise(self, record: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
        longest = math.sqrt(self.kind.n_stacked) * self.norm()
        return (longest,), (self.sigma[0] * math.sqrt(self.n_values),)

    @property
    def theorem(self) -> str:
        gap = {
            "tight": "G the certified gradient gap",
            "paper": "G = L_z r (Margaryan & Gupta)",
        }[self.method]
        return f"G / (alpha n) + 2 tol / alpha: {self.loss} minimiser, {gap}"

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
        moved = self.gap(radius, labels) / (self.alpha * self.n_samples)
        moved += 2.0 * self.tol / self.alpha
        norm = math.sqrt(self.kind.n_stacked) * self.norm()
        return np.array([moved + 4.0 * _UNIT_ROUNDOFF * (norm + self.tol / self.alpha)])


@dataclass(frozen=True)
class Descent:
    """Public settings of noisy gradient descent; all but ``clip`` and ``n_steps`` cost nothing.

    Parameters
    ----------
    n_steps : int
        Steps T.
    learning_rate : float
        Step size.
    momentum : float
        Share of the velocity that is kept from step to step (heavy ball).
    clip : float or None
        Norm that the residual of each record, its derivative by the scores, is clipped to.
    averaging : float
        Share of the iterates, the last ones, whose mean is released; 0 for the last alone.
    """

    n_steps: int
    learning_rate: float
    momentum: float
    clip: float | None
    averaging: float


@dataclass(frozen=True)
class TranscriptBound(Bound):
    """Noise on the gradients of a descent, before any step is made.

    Parameters
    ----------
    loss : {"logistic", "softmax", "squared_hinge"}
        Loss of one record.
    n_samples, n_features, n_classes : int
        Number of records, of features, and of classes.
    norm_bound : float
        Radius of the admissible ball.
    constant : float
        Constant that rows are augmented by; 0 for no intercept.
    labels : {"public", "protected"}
        Whether label changes are adjacent.
    promises : tuple of (float, float)
        Euclidean radii and the mu promised at each, which the noise of every step honours.
    descent : Descent
        Settings of the descent.
    """

    what = "noise on the gradients of a descent"
    mechanism = "gradient"
    parts = "steps"

    loss: str
    n_samples: int
    n_features: int
    n_classes: int
    norm_bound: float
    constant: float
    labels: str
    promises: tuple[tuple[float, float], ...]
    descent: Descent

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Self:
        promises = tuple((float(radius), float(mu)) for radius, mu in values["promises"])
        descent = Descent(**with_floats(Descent, values["descent"]))
        check_types(descent, "descent")
        return cls(**{**values, "promises": promises, "descent": descent})

    def check(self, record: Any, radius: float, mu: float) -> None:
        self._check_settings()
        check_follows("bound.promises[0]", self.promises[0], (radius, mu))
        moved, sigma = (np.atleast_1d(v) for v in (record.sensitivity, record.sigma))
        if not record.digest and not len(sigma) and not len(moved):
            return  # before the first step
        for name, stated in (("sensitivity", moved), ("sigma", sigma)):
            check_follows(f"the length of {name}", len(stated), self.descent.n_steps)
        self._check_steps(moved, sigma)
        ex_post = record.epsilon_full_radius_ex_post
        slack = 4.0 * math.sqrt(self.descent.n_steps) * grid_slack(self.step_values)
        least = epsilon_from_mu(max((mu - slack) * (1.0 - 1e-6), 0.0), record.delta)
        if ex_post is not None and not ex_post >= least * (1.0 - 1e-6):
            raise ValueError(
                f"record: epsilon_full_radius_ex_post={ex_post!r} must not be below epsilon="
                f"{record.epsilon!r}, at the smaller radius."
            )

    def _check_settings(self) -> None:
        """Raise a ValueError unless promises and settings are some that a descent can have."""
        radii, mus = zip(*self.promises, strict=True)
        ascending = all(a < b for a, b in itertools.pairwise((0.0, *radii)))
        growing = all(a <= b for a, b in itertools.pairwise(mus)) and mus[0] > 0.0
        if not (ascending and growing and all(map(math.isfinite, (*radii, *mus)))):
            raise ValueError(
                f"record: bound.promises={self.promises!r} must be positive, and grow from one to "
                "the next."
            )
        own = self.descent
        clipped = own.clip is None or own.clip > 0.0
        steps = own.n_steps >= 1 and own.learning_rate > 0.0 and 0.0 <= own.momentum < 1.0
        if not (clipped and steps and 0.0 <= own.averaging <= 1.0 and self.constant >= 0.0):
            raise ValueError(
                f"record: bound.descent={own!r}, constant={self.constant!r} must be settings of a "
                "descent (positive, shares between 0 and 1)."
            )

    def _check_steps(self, moved: NDArray[np.float64], sigma: NDArray[np.float64]) -> None:
        """Raise a ValueError unless every step's noise keeps every promise, as far as it is known.

        The first step starts from zero, where the gap is known; later ones have no less than the
        least gap, and clipped ones no more than what clipping leaves.
        """
        scores, n = self.kind.n_scores, self.n_samples
        start = np.zeros((scores, 1 + int(self.constant > 0.0)))
        largest = self.kind.score_residual_limit(0.0) * math.sqrt(scores)
        clip = largest if self.descent.clip is None else min(largest, self.descent.clip)
        row = self.domain(0.0).augmented
        # What rounding adds to the first step, in single precision at worst.
        rounding = (0.01 * clip + 5e-7 * (scores + 20.0) * largest) * row / n
        rounding += (n / 64.0 + 600.0) * _UNIT_ROUNDOFF * clip * row
        most = math.inf if self.descent.clip is None else 4.0 * self.descent.clip * row / n
        promised = self.promises[0][0]
        first = self.sensitivity(start, promised)
        low = np.full(len(moved), self.limits(promised).least / n)
        low[0] = first
        high = np.full(len(moved), most + rounding)
        high[0] = first + rounding
        _check_range("sensitivity", moved, low, high)
        needed = np.stack(
            [
                np.r_[
                    self.sensitivity(start, radius),
                    np.full(len(moved) - 1, self.limits(radius).least / n),
                ]
                / self.step_mu(mu)
                for radius, mu in self.promises
            ]
        )
        needed[0] = moved / self.step_mu(self.promises[0][1])
        allowed = needed[0] if len(self.promises) == 1 else np.full(len(moved), math.inf)
        _check_range("sigma", sigma, needed.max(axis=0), allowed)

    def signal_and_noise(self, record: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
        # All steps together, at the start: T mean gradients, and T deviates.
        n_steps = self.descent.n_steps
        residual = self.kind.score_residual_limit(0.0) * math.sqrt(self.kind.n_scores)
        if self.descent.clip is not None:
            residual = min(residual, self.descent.clip)
        sigma = self.step(np.zeros(self.shape))[1]
        longest = n_steps * residual * self.domain(0.0).augmented
        return (longest,), (sigma * math.sqrt(n_steps * self.step_values),)

    @property
    def theorem(self) -> str:
        clipped = "" if self.descent.clip is None else f", clipped at {self.descent.clip:g}"
        change = ", label changes included" if self.labels == "protected" else ""
        return f"gradient gap at each public iterate / n{clipped}{change}"

    @property
    def kind(self) -> Loss:
        """The loss itself."""
        return make_loss(self.loss, self.n_classes)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the parameters: columns of scores, and of (augmented) rows."""
        return self.kind.n_scores, self.n_features + int(self.constant > 0.0)

    @property
    def step_values(self) -> int:
        """Values that one step releases."""
        return math.prod(self.shape)

    def domain(self, radius: float) -> Domain:
        """Rows and radius, with the allowance for rounding."""
        return Domain.of_rounded_rows(self.norm_bound, radius, self.constant)

    def sensitivity(
        self,
        theta: NDArray[np.float64],
        radius: float,
        rounding: float = 0.0,
        labels: str | None = None,
    ) -> float:
        """L2 sensitivity of one step at a Euclidean radius."""
        gap = gap_at(
            self.kind,
            theta,
            self.domain(radius),
            clip=self.descent.clip,
            labels=labels or self.labels,
        )
        return gap / self.n_samples + 2.0 * rounding

    def step_mu(self, mu: float) -> float:
        """Sensitivity over noise scale that each step may spend of a total mu.

        The rounding to the sampler's grid is taken off, so that it may come on top.
        """
        share = mu / math.sqrt(self.descent.n_steps) * (1.0 - 1e-12)
        return share - 2.0 * grid_slack(self.step_values)

    def step(self, theta: NDArray[np.float64], rounding: float = 0.0) -> tuple[float, float]:
        """Sensitivity at the first promised radius, and noise scale, of the step at ``theta``.

        The noise scale is the largest that a promise asks for.
        """
        moved = [self.sensitivity(theta, radius, rounding) for radius, _ in self.promises]
        scales = [
            sensitivity / self.step_mu(mu)
            for sensitivity, (_, mu) in zip(moved, self.promises, strict=True)
        ]
        return moved[0], max(scales)

    def limits(self, radius: float, labels: str | None = None) -> GapLimits:
        """Gaps at a Euclidean radius over all iterates."""
        return limits_over_iterates(
            self.kind,
            self.n_features,
            self.domain(radius),
            clip=self.descent.clip,
            labels=labels or self.labels,
        )

    def mu_at(self, radius: float, labels: str) -> float:
        # Known before the first step: the least of what the promises give.
        most = self.limits(radius, labels).most
        found = []
        for promised, mu in self.promises:
            chain: float = max(1, math.ceil(radius / promised * _CHAIN))
            if self.labels == "protected":
                # By way of a record of another label, any two are two changes apart.
                chain = min(chain, 2)
            least = self.limits(promised).least
            growth = most / least if least > 0.0 else math.inf
            # Below one, rounding would count for more than its share of the sensitivity.
            found.append(mu * min(chain, max(growth * (1.0 + 1e-9), 1.0)))
        return min(found)


def _check_range(
    name: str,
    stated: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
) -> None:
    """Raise a ValueError that names the first number outside of its range."""
    for values, outside in ((low, stated < low * _LESS), (high, stated > high / _LESS)):
        for step in np.flatnonzero(outside | ~(stated > 0.0))[:1].tolist():
            check_follows(f"{name}[{step}]", float(stated[step]), float(values[step]))
            raise ValueError(f"record: {name}[{step}]={stated[step]!r} must be positive.")


def as_float_or_tuple(values: Sequence[float] | NDArray[np.float64]) -> Blocks:
    """One float for one block, else a tuple: how blocks are stated in the public record."""
    values = tuple(float(v) for v in values)
    return values[0] if len(values) == 1 else values
