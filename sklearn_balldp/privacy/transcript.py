r"""What noisy gradient descent guarantees before any step is made, and what its steps look like.

Step s publishes
:math:`g_s = \frac1n \sum_i g(\theta_{s-1}; z_i) + N(0, \sigma_s^2 I)`, g the gradient of one
record's loss, its residual clipped or not. The iterate is public, so that
:math:`\sigma_s = G_s(r) / (n \mu_s)` may use the gap at it (:func:`.iterate_gap`), and each step is
:math:`\mu_s`-GDP with :math:`\mu_s` fixed in advance: the transcript, and every model made from it,
is :math:`\sqrt{\sum \mu_s^2}`-GDP at radius r. The record states each step's share of
:math:`\mu^2`. At other radii the gaps depend on the iterates, so
their realised sum is no guarantee. What holds beforehand for t > r is
:math:`\mu(t) \le \mu \min(\lceil t / r \rceil, \sup G_\theta(t) / \inf G_\theta(r))`: a chain of
records r apart, and public limits of the gap (:func:`.gap_limits`).

A descent may start from noisy sums (:class:`.StatisticsBound`), and may see its rows through a
*whitening map* that these tell: moved by their noisy mean c, shortened along the directions in
which they vary most, and projected onto a ball of radius :math:`\tau`. No two rows move further
apart by that, and every gap is that of the smaller ball. As the sums are released, the steps may
depend on them as they do on iterates.

With weights W / s takes the place of n: the weighted mean gradient moves by s G / W at most,
clipped or not. Weights of classes are in the steps alone; sums have those of the records.

References
----------
Dong, Roth & Su (2022): composition (Corollary 3.3) and group privacy (Theorem 2.14) of Gaussian
differential privacy. Proofs of the gaps are in this package's documentation.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .._parameters import check_option
from ..adjacency import DOMAINS, Domain
from ..losses import Loss, make_loss
from .bounds import Bound, class_shares
from .fields import check_follows, check_types, with_floats
from .gaussian import epsilon_from_mu
from .iterate_gap import GapLimits, gap_at, limits_over_iterates
from .noise import grid_slack
from .rounding import SHORTEST, mean_rounding
from .statistics import StatisticsBound
from .weights import Weights, class_sizes_of, effective_size_of, is_weighted

#: A record of more is not read: the gaps of 5000 searched iterates alone take up to 10 s to check.
MOST_STEPS, _MOST_CLASSES = 5000, 10_000
# The allowance for rounded rows covers the rounding of a radius, which must not lengthen a chain.
_CHAIN_SLACK = 1.0 - 1e-9
# Two machines' values of one formula may differ by less.
_RECORD_SLACK = 1.0 - 1e-9


@dataclass(frozen=True)
class Descent:
    """Public settings of noisy gradient descent."""

    learning_rate: float  # step size for rows of norm norm_bound
    momentum: float  # share of the velocity that each step keeps (heavy ball)
    clip: float | None  # norm that the residual of each record is clipped to
    averaged: int  # how many iterates, the last ones, have their mean released
    shares: tuple[float, ...]  # of each step in the mu squared of all steps

    @property
    def n_steps(self) -> int:
        """Number of steps T."""
        return len(self.shares)


@dataclass(frozen=True)
class TranscriptBound(Bound):
    """Noise on the gradients of a descent, before any step is made."""

    what = "noise on the gradients of a descent"
    mechanism = "gradient"
    parts = "steps"

    loss: str
    n_samples: int
    n_features: int
    n_classes: int
    norm_bound: float
    constant: float  # that rows are augmented by; 0 for no intercept
    labels: str
    promised_radius: float  # Euclidean
    promised_mu: float  # of sums and steps together, at that radius
    descent: Descent
    start: StatisticsBound | None = None  # sums that the first iterate was made of; None: zero
    #: Norm that the whitening map leaves for rows at least, in units of ``norm_bound``; 1: no map.
    least_reach: float = 1.0
    weights: Weights | None = None  # in the loss
    rows: str = "ball"

    def __post_init__(self) -> None:
        if not SHORTEST <= self.least_reach <= 1.0:
            raise ValueError(
                f"least_reach={self.least_reach!r} must lie between {SHORTEST} and 1: the rounding "
                "of shorter rows is not covered."
            )

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Self:
        descent = Descent(**with_floats(Descent, values["descent"]))
        check_types(descent, "descent")
        start = values.get("start")
        if start is not None:
            start = StatisticsBound.from_fields(with_floats(StatisticsBound, start))
            check_types(start, "start")
        return super().from_fields({**values, "descent": descent, "start": start})

    @property
    def effective_size(self) -> float:
        """W / s, or the number of records."""
        return effective_size_of(self.weights, self.n_samples)

    @property
    def whitened(self) -> bool:
        """Whether the steps see the rows through a whitening map."""
        return self.least_reach < 1.0

    @property
    def steps_mu(self) -> float:
        """Mu that is left for all steps at the promised radius."""
        if self.start is None:
            return self.promised_mu
        # Shaved so that both together, rounded up, are no more than promised.
        whole, used = self.promised_mu * (1.0 - 2.0**-49), self.start.mu(self.promised_radius)
        return math.sqrt(max(whole**2 - used**2, 0.0))

    def after(self, reach: float) -> Self:
        """What is left once the start was released, and rows have norm ``reach`` at most.

        Step sizes are in units of one over the square of that norm.
        """
        scale = self.norm_bound / reach
        rate = self.descent.learning_rate * scale**2
        return replace(
            self,
            norm_bound=reach,
            constant=self.constant / scale,
            promised_mu=self.steps_mu,
            descent=replace(self.descent, learning_rate=rate),
            start=None,
            least_reach=1.0,
            rows="ball",
        )

    def check(self, record: Any, radius: float, mu: float) -> None:
        if self.n_classes > _MOST_CLASSES:
            raise ValueError(
                f"record: n_classes={self.n_classes!r} must not exceed {_MOST_CLASSES}."
            )
        self._check_settings()
        check_follows("bound.promised_radius", self.promised_radius, radius)
        moved, sigma = (np.atleast_1d(v) for v in (record.sensitivity, record.sigma))
        if not record.digest and not len(sigma) and not len(moved):
            return  # before the first step
        for name, stated in (("sensitivity", moved), ("sigma", sigma)):
            check_follows(f"the length of {name}", len(stated), self.descent.n_steps)
        self._check_steps(moved, sigma)
        ex_post = record.epsilon_full_radius_ex_post
        slack = 4.0 * math.sqrt(self.descent.n_steps) * grid_slack(self.step_values)
        # A computed gap is at most a hundredth above the true one.
        least = epsilon_from_mu(max(0.99 * (self.mu(radius) - slack), 0.0), record.delta)
        if ex_post is not None and not ex_post >= least * (1.0 - 1e-6):
            raise ValueError(
                f"record: epsilon_full_radius_ex_post={ex_post!r} must not be below epsilon="
                f"{record.epsilon!r}, at the smaller radius."
            )

    def _check_settings(self) -> None:
        """Raise a ValueError unless promise and settings are some that a descent can have."""
        check_option("record: bound.rows", self.rows, DOMAINS)
        own = self.descent
        if not 1 <= own.n_steps <= MOST_STEPS:
            raise ValueError(
                f"record: bound.descent states {own.n_steps} steps; there are 1 to {MOST_STEPS}."
            )
        if not (0.0 < self.promised_radius < math.inf and 0.0 < self.promised_mu < math.inf):
            raise ValueError(
                f"record: bound.promised_radius={self.promised_radius!r} and promised_mu="
                f"{self.promised_mu!r} must be positive."
            )
        if not (min(own.shares) > 0.0 and math.fsum(own.shares) <= 1.0 + 1e-12):
            raise ValueError("record: bound.descent.shares must be positive, and sum to 1 at most.")
        if not self.steps_mu > 0.0:
            raise ValueError("record: bound.start spends all that is promised; nothing is left.")
        if self.whitened and not (self.start is not None and self.constant > 0.0):
            raise ValueError(
                "record: bound.least_reach below 1 needs bound.start, which tells the mean, and an "
                "intercept: bound.constant > 0."
            )
        if self.start is not None:
            self._check_start(self.start)
        clipped = own.clip is None or own.clip > 0.0
        steps = 1 <= own.averaged <= own.n_steps and own.learning_rate > 0.0
        if not (clipped and steps and 0.0 <= own.momentum < 1.0 and self.constant >= 0.0):
            raise ValueError(
                f"record: bound.descent (learning_rate={own.learning_rate!r}, momentum="
                f"{own.momentum!r}, clip={own.clip!r}, averaged={own.averaged!r}) and constant="
                f"{self.constant!r} must be settings of a descent: positive, and momentum between "
                "0 and 1."
            )
        if not (self.step_mu() > 0.0).all():
            raise ValueError(
                f"record: bound.promised_mu={self.promised_mu!r} leaves nothing for a step on the "
                "grid."
            )

    def _check_start(self, start: StatisticsBound) -> None:
        """Raise a ValueError unless the sums of a start are of the same records."""
        for name in ("n_samples", "n_features", "n_classes", "norm_bound", "labels", "rows"):
            check_follows(f"bound.start.{name}", getattr(start, name), getattr(self, name))
        self._check_weights(start.weights)
        if not start.sigma:
            raise ValueError("record: bound.start states no noise.")
        if start.pooled and not self.whitened:
            raise ValueError("record: bound.start.pooled=True needs bound.least_reach below 1.")

    def _check_weights(self, sums: Weights | None) -> None:
        """Raise a ValueError unless weights in sums and in the loss are of the same units."""
        if sums is not None:
            sums.check(self.n_samples, self.n_classes, self.labels)
        told = [
            (1, self.n_samples, "record") if w is None else (w.most_records, w.n_units, w.unit)
            for w in (sums, self.weights)
        ]
        if told[0] != told[1]:
            raise ValueError(
                f"record: bound.start.weights are of units {told[0]!r}, bound.weights of "
                f"{told[1]!r}."
            )
        if self.weights is None or self.weights.by_class is None:
            if sums != self.weights:
                raise ValueError("record: bound.start.weights and bound.weights differ.")
            return
        # Weights of classes are factors of those in the sums.
        records: Any = self.weights.class_records
        pairs = zip(self.weights.by_class, class_sizes_of(sums, records), strict=True)
        totals = tuple(factor * total for factor, total in pairs)
        check_follows("bound.weights.class_totals", self.weights.class_totals, totals)
        if sums is not None:
            check_follows("bound.start.weights.class_records", sums.class_records, records)

    def _check_steps(self, moved: NDArray[np.float64], sigma: NDArray[np.float64]) -> None:
        """Raise a ValueError unless every step's noise keeps the promise, as far as it is known.

        A first step from zero moves by the gap there, at least; others by the least gap there is.
        A record does not hold the iterates, which decide how much more later steps move.
        """
        least = np.full(len(moved), self._least_gap(self.promised_radius) / self.effective_size)
        if self.start is None:
            zero = np.zeros((self.kind.n_scores, 1 + int(self.constant > 0.0)))
            least[0] = self.sensitivity(zero, self.promised_radius)
        for name, stated, needed in (
            ("sensitivity", moved, least),
            ("sigma", sigma, moved / self.step_mu()),
        ):
            kept = (stated >= needed * _RECORD_SLACK) & (stated > 0.0)
            if not kept.all():
                step = int(kept.argmin())
                raise ValueError(
                    f"record: {name}[{step}]={float(stated[step])!r} does not follow from the rest "
                    f"of it: it should be at least {float(needed[step])!r}, and positive."
                )

    def signal_and_noise(self, record: Any) -> dict[str, tuple[float, float]]:
        # All steps together, at the start: T mean gradients, weighted so that they tell the most.
        n_steps = self.descent.n_steps
        noise = n_steps * math.sqrt(self.step_values) / self._precision_of_steps()
        return {"gradients": (n_steps * self._longest_gradient(), noise)}

    def class_signals(self, masses: tuple[float, ...]) -> tuple[float, ...]:
        # Gradients of the steps, and the sums that they start from, tell the class apart
        # independently of each other.
        pull = self._longest_gradient() * self._precision_of_steps() / math.sqrt(self.n_features)
        own = tuple(share * pull for share in class_shares(self.weights, masses))
        begun = (0.0,) * len(own) if self.start is None else self.start.class_signals(masses)
        return tuple(map(math.hypot, own, begun))

    def _longest_gradient(self) -> float:
        """Length that a mean gradient has at the start, at most."""
        residual = self.kind.score_residual_limit(0.0) * math.sqrt(self.kind.n_scores)
        if self.descent.clip is not None:
            residual = min(residual, self.descent.clip)
        return residual * self.domain(0.0).augmented

    def _precision_of_steps(self) -> float:
        """One over the noise scale of the best mean of all steps' gradients, at the start."""
        moved = self.sensitivity(np.zeros(self.shape), self.promised_radius)
        return float(np.linalg.norm(self.step_mu() / moved))

    @property
    def theorem(self) -> str:
        clipped = "" if self.descent.clip is None else f", clipped at {self.descent.clip:g}"
        change = ", label changes included" if self.labels == "protected" else ""
        begun = "" if self.start is None else f", after {self.start.theorem}"
        if self.whitened:
            begun += ", whose mean the rows are moved by"
            if self.start is not None and self.start.moment and self.descent.n_steps > 1:
                begun += ", partially whitened"
        n = "(W / s)" if is_weighted(self.weights) else "n"
        return f"gradient gap at each public iterate / {n}{clipped}{change}{begun}"

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
        return gap / self.effective_size + 2.0 * rounding

    def rounding(
        self,
        theta: NDArray[np.float64],
        precision: DTypeLike,
        reach: float | None = None,
        *,
        whitened: bool = False,
    ) -> float:
        """Half of what rounding adds to the sensitivity of a step, of rows in a precision.

        ``reach`` is the norm of the rows before they are whitened; by default the norm bound.
        """
        return mean_rounding(
            self.kind,
            theta,
            n_samples=self.n_samples,
            n_features=self.n_features,
            norm_bound=self.norm_bound if reach is None else reach,
            constant=self.constant,
            clip=self.descent.clip,
            dtype=precision,
            weights=self.weights,
            whitened=whitened,
        )

    def step_mu(self) -> NDArray[np.float64]:
        """Sensitivity over noise scale of every step, with room for rounding to the grid."""
        return self._mu_of(np.array(self.descent.shares))

    def _mu_of(self, share: Any) -> Any:
        spent = self.steps_mu * np.sqrt(share) * (1.0 - 1e-12)
        return spent - 2.0 * grid_slack(self.step_values)

    def step(
        self, theta: NDArray[np.float64], number: int, rounding: float = 0.0
    ) -> tuple[float, float]:
        """Sensitivity at the promised radius, and noise scale, of a step; the first is number 0."""
        moved = self.sensitivity(theta, self.promised_radius, rounding)
        # Of this step alone: the mu of all, at every step, would take time T squared.
        return moved, moved / float(self._mu_of(self.descent.shares[number]))

    def limits(self, radius: float, labels: str | None = None) -> GapLimits:
        """Gaps at a Euclidean radius over all iterates."""
        return limits_over_iterates(
            self.kind,
            self.n_features,
            self.domain(radius),
            clip=self.descent.clip,
            labels=labels or self.labels,
        )

    def _least_gap(self, radius: float) -> float:
        """Gap that no iterate goes below, whatever map the steps see the rows through."""
        own = self.after(self.least_reach * self.norm_bound) if self.whitened else self
        return own.limits(radius).least

    def mu_at(self, radius: float, labels: str) -> float:
        # Known before the first step: a chain of adjacent records, or the limits of the gap.
        chain: float = max(1, math.ceil(radius / self.promised_radius * _CHAIN_SLACK))
        if self.labels == "protected":
            # By way of a record of another label, any two are two changes apart.
            chain = min(chain, 2)
        most, least = self.limits(radius, labels).most, self._least_gap(self.promised_radius)
        growth = most / least if least > 0.0 else math.inf
        # Below one, rounding would count for more than its share of the sensitivity.
        steps = self.steps_mu * min(chain, max(growth * (1.0 + 1e-9), 1.0))
        if self.start is None:
            return steps
        return math.nextafter(math.hypot(steps, self.start.mu(radius, labels)), math.inf)
