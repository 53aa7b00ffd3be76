r"""What noisy gradient descent guarantees before any step is made, and what its steps look like.

Step s publishes
:math:`g_s = \frac1n \sum_i g(\theta_{s-1}; z_i) + N(0, \sigma_s^2 I)`, g the gradient of one
record's loss, its residual clipped or not. The iterate is public, so that
:math:`\sigma_s = G_s(r) / (n \mu_s)` may use the gap at it (:func:`.iterate_gap`), and each step is
:math:`\mu_s`-GDP with :math:`\mu_s` fixed in advance: the transcript, and every model made from it,
is :math:`\sqrt{\sum \mu_s^2}`-GDP at radius r. Steps that move the released model less have more
noise (:meth:`Descent.shares`). At other radii the gaps depend on the iterates, so
their realised sum is no guarantee. What holds beforehand for t > r is
:math:`\mu(t) \le \mu \min(\lceil t / r \rceil, \sup G_\theta(t) / \inf G_\theta(r))`: a chain of
records r apart, and public limits of the gap (:func:`.gap_limits`).

A descent may start from noisy sums (:class:`.StatisticsBound`), and may see its rows in
coordinates that these tell: moved by their noisy mean c, shortened along the directions in which
they vary most, and projected onto a ball of radius :math:`\tau`. No two rows move further apart by
that, and every gap is that of the smaller ball. As the sums are released, the steps may depend on
them as they do on iterates.

With weights W / s takes the place of n: the weighted mean gradient moves by s G / W at most,
clipped or not. Weights of classes are in the steps alone; sums have those of the records.

References
----------
Dong, Roth & Su (2022): composition (Corollary 3.3) and group privacy (Theorem 2.14) of Gaussian
differential privacy. Proofs of the gaps are in this package's documentation.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
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
from .rounding import mean_rounding
from .statistics import StatisticsBound
from .weights import Weights, is_weighted, mass_of, weights_from

#: Least norm that the coordinates of the steps leave for rows, in units of B.
LEAST_REACH = 0.3
#: Share of mu squared that the steps take after class sums, at most.
MOST_OF_STEPS = 0.84
#: A mean whose release is repeated has so many times its share in all: noise is halved exactly.
REPEATED = 4.0
#: What noise may then add to the square of the mean, in units of B squared; a smaller share of the
#: budget suffices for it where records are many. Least and largest share.
MEAN_NOISE, LEAST_OF_MEAN, MOST_OF_MEAN = 0.1, 0.012, 0.3
#: More steps are no descent, and their shares would take long to compute.
MOST_STEPS = 10**5
# The radius, and a second one.
_MOST_PROMISES = 2
# Gaps over pairs of more classes take for ever.
_MOST_CLASSES = 10_000
# A chain is not lengthened by the rounding of a radius, which the allowance for rows covers.
_CHAIN = 1.0 - 1e-9
# Two machines' values of one formula may differ by less.
_LESS = 1.0 - 1e-9


def share_of_mean(n_features: int, mass: float, distance: float, mu: float) -> float:
    """Share of mu squared for the first release of a mean of all rows.

    Parameters
    ----------
    n_features : int
        Number of features.
    mass : float
        Number of records; with weights W / s.
    distance : float
        How far one substitution moves a row, in units of B.
    mu : float
        What is promised at the radius.

    Returns
    -------
    float
        With a second release it is :data:`REPEATED` times as much.
    """
    whole = n_features * (distance / (mass * mu)) ** 2
    return min(max(whole / MEAN_NOISE, LEAST_OF_MEAN), MOST_OF_MEAN) / REPEATED


@dataclass(frozen=True)
class Descent:
    """Public settings of noisy gradient descent.

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

    @property
    def averaged(self) -> int:
        """Number of the iterates whose mean is released."""
        return max(1, round(self.averaging * self.n_steps))

    def gains(self, pull: float = 1.0) -> NDArray[np.float64]:
        """How far a released parameter moves if the gradient of a step is larger by one.

        Parameters
        ----------
        pull : float, default=1.0
            What a regulariser divides every iterate by.

        Returns
        -------
        ndarray of shape (n_steps,)
            For each step, in units of the step size.
        """
        taken = np.array(_taken(self.n_steps, self.momentum, pull))
        # Every step acts on those that follow it as the first one does.
        left = np.arange(self.n_steps, 0, -1)
        return (taken[left] - taken[np.maximum(left - self.averaged, 0)]) / self.averaged

    def shares(self) -> NDArray[np.float64]:
        """Share of mu squared that each step has, of all that steps have.

        Noise of a step stays in the model by its gain. If nothing pulled it back, shares in
        proportion to the gains would leave the least in all. A loss pulls more of the earlier noise
        back, so they are in proportion to the roots.
        """
        return _shares(self)


@lru_cache(maxsize=8)
def _shares(descent: Descent) -> NDArray[np.float64]:
    roots = np.sqrt(descent.gains())
    shares: NDArray[np.float64] = roots / roots.sum()
    shares.flags.writeable = False
    return shares


def _taken(n_steps: int, momentum: float, pull: float) -> list[float]:
    """Sums of the first iterates, from none to all, after a gradient of minus one at first."""
    theta, velocity, sums = 0.0, 1.0, [0.0]
    for _ in range(n_steps):
        theta = (theta + velocity) / pull
        velocity *= momentum
        sums.append(sums[-1] + theta)
    return sums


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
    start : StatisticsBound or None
        Noisy sums that the first iterate was made of; None if it is zero.
    centred : bool
        Whether steps see the rows in the coordinates that the start tells: moved by the mean, and
        partially whitened if there is a second moment.
    weights : Weights or None
        Public weights of the records in the loss.
    rows : {"ball", "sphere"}
        Whether rows have norm at most B, or are scaled to B.
    repeated : bool
        Whether the start is a mean that was released twice: the weighted mean of both.
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
    start: StatisticsBound | None = None
    centred: bool = False
    weights: Weights | None = None
    rows: str = "ball"
    repeated: bool = False

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Self:
        promises = tuple((float(radius), float(mu)) for radius, mu in values["promises"])
        descent = Descent(**with_floats(Descent, values["descent"]))
        check_types(descent, "descent")
        start = values["start"]
        if start is not None:
            own = {**start, "weights": weights_from(start["weights"])}
            start = StatisticsBound(**with_floats(StatisticsBound, own))
            check_types(start, "start")
        weights = weights_from(values["weights"])
        read = {"promises": promises, "descent": descent, "start": start, "weights": weights}
        return cls(**{**values, **read})

    @property
    def mass(self) -> float:
        """W / s, or the number of records."""
        return mass_of(self.weights, self.n_samples)

    @property
    def step_promises(self) -> tuple[tuple[float, float], ...]:
        """Radii, and the mu that is left for the steps at each."""
        if self.start is None:
            return self.promises
        spent = [self.start.mu(radius) for radius, _ in self.promises]
        return tuple(
            # Shaved so that both together, rounded up, are no more than promised.
            (radius, math.sqrt(max((mu * (1.0 - 2.0**-49)) ** 2 - used**2, 0.0)))
            for (radius, mu), used in zip(self.promises, spent, strict=True)
        )

    @property
    def promised(self) -> Self:
        if self.start is None or not self.repeated:
            return self
        return replace(self, start=self.start.scaled(math.sqrt(REPEATED)), repeated=False)

    def repeating(self) -> tuple[StatisticsBound, Self] | None:
        """Bound of another release of the mean, and that of all with both together.

        Both are one release of the weighted mean of the two, of :data:`REPEATED` times the share.
        None where the sampler's grid leaves nothing for another.
        """
        first = self.start
        if first is None or not first.pooled or self.repeated:
            raise ValueError("only a sum of all rows is released again, and once.")
        both = first.scaled(1.0 / math.sqrt(REPEATED))
        # Each is rounded to the grid: the second has a little more noise than both would ask for.
        grid = grid_slack(first.n_values)
        ratios = []
        for radius, _ in self.promises:
            spent = first.mu(radius)
            left = math.sqrt(both.mu(radius) ** 2 - spent**2) - grid
            ratios.append(left / (spent - grid))
        if not min(ratios) > 0.0:
            return None
        again = first.scaled((1.0 + 1e-12) / min(ratios))
        return again, replace(self, start=both, repeated=True)

    def after(self, reach: float, longer_steps: float = 1.0) -> Self:
        """What is left once the start was released, and rows have norm ``reach`` at most.

        Step sizes are in units of one over the square of that norm, times ``longer_steps``.
        """
        scale = self.norm_bound / reach
        rate = self.descent.learning_rate * scale**2 * longer_steps
        return replace(
            self,
            norm_bound=reach,
            constant=self.constant / scale,
            promises=self.step_promises,
            descent=replace(self.descent, learning_rate=rate),
            start=None,
            centred=False,
            rows="ball",
            repeated=False,
        )

    def check(self, record: Any, radius: float, mu: float) -> None:
        if self.n_classes > _MOST_CLASSES:
            raise ValueError(
                f"record: n_classes={self.n_classes!r} must not exceed {_MOST_CLASSES}."
            )
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
        # A computed gap is at most a hundredth above the true one.
        least = epsilon_from_mu(max(0.99 * (mu - slack), 0.0), record.delta)
        if ex_post is not None and not ex_post >= least * (1.0 - 1e-6):
            raise ValueError(
                f"record: epsilon_full_radius_ex_post={ex_post!r} must not be below epsilon="
                f"{record.epsilon!r}, at the smaller radius."
            )

    def _check_settings(self) -> None:
        """Raise a ValueError unless promises and settings are some that a descent can have."""
        check_option("record: bound.rows", self.rows, DOMAINS)
        radii, mus = zip(*self.promises, strict=True)
        ascending = all(a < b for a, b in itertools.pairwise((0.0, *radii)))
        growing = all(a <= b for a, b in itertools.pairwise(mus)) and mus[0] > 0.0
        few = len(radii) <= _MOST_PROMISES
        if not (few and ascending and growing and all(map(math.isfinite, (*radii, *mus)))):
            raise ValueError(
                f"record: bound.promises={self.promises[:3]!r} must be positive, grow from one to "
                f"the next, and be at most {_MOST_PROMISES}."
            )
        if not all(mu > 0.0 for _, mu in self.step_promises):
            raise ValueError("record: bound.start spends all that is promised; nothing is left.")
        if self.centred and self.start is None:
            raise ValueError("record: bound.centred=True needs bound.start, which tells the mean.")
        if self.centred and not self.constant > 0.0:
            raise ValueError("record: bound.centred=True needs an intercept: bound.constant > 0.")
        if self.repeated and not (self.start is not None and self.start.pooled):
            raise ValueError("record: bound.repeated=True needs bound.start.pooled=True.")
        if self.start is not None:
            for name in ("n_samples", "n_features", "n_classes", "norm_bound", "labels"):
                stated = getattr(self.start, name)
                check_follows(f"bound.start.{name}", stated, getattr(self, name))
            self._check_weights(self.start.weights)
            check_follows("bound.start.rows", self.start.rows, self.rows)
            # What calibrating takes off for the sampler's grid is twice what mu counts.
            spent = self.start.mu(radii[0]) + grid_slack(self.start.n_values)
            self.start.check_calibrated("bound.start", radii[0], spent)
            used = max(self.start.mu(radius) / mu for radius, mu in self.promises)
            least = 1.0 - MOST_OF_STEPS
            if self.start.pooled:
                least = self._check_share_of_mean(self.start, used)
            if not used >= math.sqrt(least) * (1.0 - 1e-6):
                raise ValueError(
                    f"record: bound.start.sigma={self.start.sigma!r} leaves {used**2:.3g} of what "
                    f"is promised to the start; it takes {least:.3g} at least."
                )
            if self.start.pooled and not self.centred:
                raise ValueError("record: bound.start.pooled=True needs bound.centred=True.")
        own = self.descent
        clipped = own.clip is None or own.clip > 0.0
        steps = 1 <= own.n_steps <= MOST_STEPS and own.learning_rate > 0.0
        shares = 0.0 <= own.momentum < 1.0 and 0.0 <= own.averaging <= 1.0
        if not (clipped and steps and shares and self.constant >= 0.0):
            raise ValueError(
                f"record: bound.descent={own!r}, constant={self.constant!r} must be settings of a "
                f"descent (positive, shares between 0 and 1, at most {MOST_STEPS} steps)."
            )
        if not all((self.step_mu(mu) > 0.0).all() for _, mu in self.step_promises):
            raise ValueError(
                f"record: bound.promises={self.promises!r} leave nothing for a step on the grid."
            )

    def _check_share_of_mean(self, start: StatisticsBound, used: float) -> float:
        """Share of a mean, which public numbers tell; raises a ValueError for another."""
        distance = 2.0
        if self.labels == "public":
            distance = self.promises[0][0] / self.norm_bound
        mass, mu = mass_of(start.weights, self.n_samples), self.promises[0][1]
        share = share_of_mean(self.n_features, mass, distance, mu)
        share *= REPEATED if self.repeated else 1.0
        # The grid of the sampler takes its part off.
        rounding = 4.0 * grid_slack(start.n_values) / mu
        if abs(used - math.sqrt(share)) > 1e-4 * math.sqrt(share) + rounding:
            raise ValueError(
                f"record: bound.start takes {used**2:.3g} of what is promised; a mean of these "
                f"rows takes {share:.3g}."
            )
        return share * (1.0 - 1e-3)

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
        base = tuple(map(float, records)) if sums is None else sums.class_totals
        pairs = zip(self.weights.by_class, base or (), strict=True)
        totals = tuple(factor * total for factor, total in pairs)
        check_follows("bound.weights.class_totals", self.weights.class_totals, totals)
        if sums is not None:
            check_follows("bound.start.weights.class_records", sums.class_records, records)

    def _check_steps(self, moved: NDArray[np.float64], sigma: NDArray[np.float64]) -> None:
        """Raise a ValueError unless every step's noise keeps every promise, as far as it is known.

        The first step starts from zero, where the gap is known; later ones have no less than the
        least gap. What rounding adds to those grows with iterates that a record does not hold.
        """
        n = self.mass
        start = np.zeros((self.kind.n_scores, 1 + int(self.constant > 0.0)))
        # What rounding adds to the first step, in the precision where that is more.
        rounding = max(self.rounding(start, precision) for precision in (np.float32, np.float64))

        def known(radius: float) -> NDArray[np.float64]:
            least = np.full(len(moved), self._least_gap(radius) / n)
            if self.start is None:
                least[0] = self.sensitivity(start, radius)
            return least

        promises = self.step_promises
        low = known(promises[0][0])
        high = np.full(len(moved), math.inf)
        if self.start is None:
            high[0] = low[0] + 2.0 * rounding
        _check_range("sensitivity", moved, low, high)
        stated = moved / self.step_mu(promises[0][1])
        others = [known(radius) / self.step_mu(mu) for radius, mu in promises[1:]]
        allowed = np.full(len(moved), math.inf) if others else stated
        _check_range("sigma", sigma, np.max([stated, *others], axis=0), allowed)

    def signal_and_noise(self, record: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
        # All steps together, at the start: T mean gradients, weighted so that they tell the most.
        n_steps = self.descent.n_steps
        noise = n_steps * math.sqrt(self.step_values) / self._precision_of_steps()
        return (n_steps * self._longest_gradient(),), (noise,)

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
        return float(np.linalg.norm(1.0 / self._scales(np.zeros(self.shape))[1]))

    @property
    def theorem(self) -> str:
        clipped = "" if self.descent.clip is None else f", clipped at {self.descent.clip:g}"
        change = ", label changes included" if self.labels == "protected" else ""
        begun = "" if self.start is None else f", after {self.start.theorem}"
        if self.repeated:
            begun += ", released twice"
        if self.centred:
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
        return gap / self.mass + 2.0 * rounding

    def rounding(
        self,
        theta: NDArray[np.float64],
        precision: DTypeLike,
        reach: float | None = None,
        *,
        whitened: bool = False,
    ) -> float:
        """Half of what rounding adds to the sensitivity of a step, of rows in a precision.

        They are computed with where they have norm ``reach``, before they are whitened; by default
        as they are.
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

    def step_mu(self, mu: float) -> NDArray[np.float64]:
        """Sensitivity over noise scale that every step may spend of a total mu.

        The rounding to the sampler's grid is taken off, so that it may come on top.
        """
        spent = mu * np.sqrt(self.descent.shares()) * (1.0 - 1e-12)
        return spent - 2.0 * grid_slack(self.step_values)

    def step(
        self, theta: NDArray[np.float64], number: int, rounding: float = 0.0
    ) -> tuple[float, float]:
        """Sensitivity at the first promised radius, and noise scale, of a step at ``theta``.

        The noise scale is the largest that a promise asks for. The first step has number 0.
        """
        moved, scales = self._scales(theta, rounding)
        return moved, float(scales[number])

    def _scales(
        self, theta: NDArray[np.float64], rounding: float = 0.0
    ) -> tuple[float, NDArray[np.float64]]:
        """Sensitivity of a step at ``theta``, and its noise scale for every number it may have."""
        promises = self.step_promises
        moved = [self.sensitivity(theta, radius, rounding) for radius, _ in promises]
        scales = [
            sensitivity / self.step_mu(mu)
            for sensitivity, (_, mu) in zip(moved, promises, strict=True)
        ]
        return moved[0], np.max(scales, axis=0)

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
        """Gap that no iterate goes below, in whatever coordinates."""
        own = self.after(LEAST_REACH * self.norm_bound) if self.centred else self
        return own.limits(radius).least

    def mu_at(self, radius: float, labels: str) -> float:
        if self.repeated and self.start is not None:
            # Noise decided that: what held before is what is guaranteed.
            return self.promised.mu_at(radius, labels)
        # Known before the first step: the least of what the promises give.
        most = self.limits(radius, labels).most
        found = []
        for promised, mu in self.step_promises:
            chain: float = max(1, math.ceil(radius / promised * _CHAIN))
            if self.labels == "protected":
                # By way of a record of another label, any two are two changes apart.
                chain = min(chain, 2)
            least = self._least_gap(promised)
            growth = most / least if least > 0.0 else math.inf
            # Below one, rounding would count for more than its share of the sensitivity.
            found.append(mu * min(chain, max(growth * (1.0 + 1e-9), 1.0)))
        if self.start is None:
            return min(found)
        return math.nextafter(math.hypot(min(found), self.start.mu(radius, labels)), math.inf)


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
