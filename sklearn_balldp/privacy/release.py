"""The public record of one release: what was published, under which guarantee, and why."""

import html
import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from ..policy.adjacency import euclidean_radius
from .gaussian import (
    compose,
    delta_from_rho,
    epsilon_from_rho,
    gaussian_power,
    rho_from_pure,
)
from .noise import grid_slack
from .sensitivity import MinimizerBound, PrototypeBound
from .transcript import Descent, TranscriptBound

Blocks = float | tuple[float, ...]
Bound = PrototypeBound | MinimizerBound | TranscriptBound
_BOUNDS = {bound.__name__: bound for bound in (PrototypeBound, MinimizerBound, TranscriptBound)}


@dataclass(frozen=True)
class Guarantee:
    """Guarantee of a release at one radius.

    Parameters
    ----------
    radius : float
        Radius in the units of the release's metric.
    rho : float
        Gaussian differential privacy parameter of the parameters at that radius.
    epsilon, delta : float
        The release is (epsilon, delta)-private for substitutions within ``radius``, a private
        radius included.
    labels : {"public", "protected"}
        Whether label changes are part of the adjacency.
    private : bool or str
        False when the noise was seeded: the numbers then state a law, not a protection.
        "conditional" when the radius was read off private rows and declared public.
    radius_epsilon : float
        Pure differential privacy that choosing the radius spent.
    """

    radius: float
    rho: float
    epsilon: float
    delta: float
    labels: str
    private: bool | str
    radius_epsilon: float = 0.0

    @property
    def rho_total(self) -> float:
        """Gaussian differential privacy parameter, a private radius included."""
        return compose([self.rho, rho_from_pure(self.radius_epsilon)])

    def delta_at(self, epsilon: float) -> float:
        """Delta at another epsilon, same radius; exact unless choosing the radius cost some.

        Parameters
        ----------
        epsilon : float
            Privacy loss bound.

        Returns
        -------
        float
            Delta of the release, and of the radius with it.
        """
        delta = delta_from_rho(self.rho_total, epsilon)
        if self.radius_epsilon > 0.0 and epsilon >= self.radius_epsilon:
            # Basic composition of the two releases; the rounding of the difference is covered.
            less = (epsilon - self.radius_epsilon) * (1.0 - 2.0**-50)
            delta = min(delta, delta_from_rho(self.rho, less))
        return delta

    def certificate(self, kappa: float) -> float:
        """Largest success probability of an informed attack, for a best blind guess of ``kappa``.

        The direct Gaussian bound; a private radius multiplies it by at most ``e^radius_epsilon``,
        or counts as Gaussian, whichever is less.

        Parameters
        ----------
        kappa : float
            Success probability of the best blind guess.

        Returns
        -------
        float
            The bound, between ``kappa`` and 1.
        """
        bound = gaussian_power(kappa, self.rho_total)
        if self.radius_epsilon > 0.0:
            raised = math.exp(min(self.radius_epsilon, 700.0)) * gaussian_power(kappa, self.rho)
            bound = min(bound, raised)
        return bound


@dataclass(frozen=True)
class Release:
    """Frozen public record of a fit: public numbers, and functions of what was released.

    Attributes
    ----------
    head : str
        Estimator class.
    n_samples, n_features, n_classes : int
        Shape of the problem, public by assumption.
    alpha, norm_bound, metric : float, float, str
        Public parameters of the fit.
    radius : float
        Radius in the units of ``metric``.
    radius_source : {"number", "reference", "declared", "private"}
        Where the radius came from: a public number, public reference rows, private rows whose
        quantile is declared public, or the private quantile.
    radius_epsilon : float
        Pure differential privacy that the private quantile spent, else 0; part of the total.
    radius_draw : str
        Identifies the private quantile, so that releases which share it count it once.
    epsilon, delta : float
        Guarantee of the parameters at ``radius``; :meth:`guarantee` adds ``radius_epsilon``.
    calibration : {"analytic", "classic"}
        How rho was derived from (epsilon, delta).
    rho : float
        Sensitivity over noise scale, with the sampler's allowance.
    sensitivity, sigma : float or tuple of float
        L2 sensitivity and noise scale; one number a class block when the noise has blocks, one a
        step when gradients are noisy.
    tol : float
        Gradient norm at which the minimiser was certified; 0 for a closed form or a descent.
    labels : {"public", "protected"}
        Whether label changes are part of the adjacency.
    sampler : str
        Where the noise came from.
    private : bool or str
        True; False when the noise was seeded; "conditional" when a quantile of private rows was
        declared public.
    n_values : int
        Number of released values.
    bound : PrototypeBound, MinimizerBound or TranscriptBound
        The guarantee as a function of the radius, and the theorem it rests on.
    epsilon_full_radius : float
        epsilon at radius ``2 * norm_bound`` and the same delta (labels as in ``labels``).
    assumptions : tuple of str
        What the guarantee takes for granted.
    version : str
        Package version.
    mechanism : {"output", "gradient"}
        Whether the noise is added to the minimiser or to the gradients of a descent.
    descent : Descent or None
        Settings of the descent.
    epsilon_full_radius_ex_post : float or None
        Of a descent: epsilon at the full radius by the gaps at the iterates that occurred. It
        depends on the release and is no guarantee; :meth:`guarantee` is.
    """

    head: str
    n_samples: int
    n_features: int
    n_classes: int
    alpha: float
    norm_bound: float
    metric: str
    radius: float
    radius_source: str
    radius_epsilon: float
    radius_draw: str
    epsilon: float
    delta: float
    calibration: str
    rho: float
    sensitivity: Blocks
    sigma: Blocks
    tol: float
    labels: str
    sampler: str
    private: bool | str
    n_values: int
    bound: Bound
    epsilon_full_radius: float
    assumptions: tuple[str, ...]
    version: str
    mechanism: str = "output"
    descent: Descent | None = None
    epsilon_full_radius_ex_post: float | None = None

    @property
    def theorem(self) -> str:
        """The statement that the sensitivity rests on."""
        return self.bound.theorem

    def guarantee(self, radius: float | None = None, labels: str | None = None) -> Guarantee:
        """Guarantee at any radius, at this release's delta.

        The exact Gaussian profile of the sensitivity there: exact for prototypes, and for
        minimisers that of a proved upper bound. For noisy gradients it is the one that held
        before the first step: what was promised, at other radii by group privacy and the limits
        of the gap. With a private radius the noise follows from that draw: figures at a fixed
        other radius are then ex post.

        Parameters
        ----------
        radius : float, optional
            Radius in the units of ``metric``; the declared one by default.
        labels : {"public", "protected"}, optional
            The release's own adjacency by default. "public" restricts a label-protecting release
            to same-label substitutions, to compare it with one that keeps labels public.

        Returns
        -------
        Guarantee
            With ``delta_at(epsilon)`` for the whole profile.

        Raises
        ------
        ValueError
            If the radius is not positive, or the release does not protect labels but is asked to.

        References
        ----------
        Margaryan & Gupta, Proposition 3.6, with the exact Gaussian profile in place of the
        classic formula.
        """
        labels = self.labels if labels is None else labels
        if labels not in ("public", self.labels):
            raise ValueError(
                f"labels={labels!r}: this release keeps labels {self.labels}; fit with "
                "protect_labels=True to hide label changes."
            )
        radius = self.radius if radius is None else float(radius)
        euclidean = euclidean_radius(
            radius, self.metric, norm_bound=self.norm_bound, n_features=self.n_features
        )
        rho = rho_of(self.bound, euclidean, self.sigma, self.n_values, labels == "protected")
        epsilon = total_epsilon(rho, self.delta, self.radius_epsilon)
        return Guarantee(
            radius, rho, epsilon, self.delta, labels, self.private, self.radius_epsilon
        )

    def certificate(
        self, kappa: float, radius: float | None = None, labels: str | None = None
    ) -> float:
        """Largest success probability of an informed reconstruction attack.

        Parameters
        ----------
        kappa : float
            Success probability of the best blind guess (``1 / m`` for m equally likely
            candidates within ``radius`` of one admissible record).
        radius : float, optional
            Radius in the units of ``metric``; the declared one by default.
        labels : {"public", "protected"}, optional
            As in :meth:`guarantee`; "public" suffices for candidates of one label.

        Returns
        -------
        float
            The direct Gaussian bound ``Phi(Phi^-1(kappa) + rho)``.

        Raises
        ------
        ValueError
            If ``kappa`` is not a probability.
        """
        return self.guarantee(radius, labels).certificate(kappa)

    def to_dict(self) -> dict[str, Any]:
        """Give the record as JSON-ready built-in types.

        Returns
        -------
        dict
            Field by field; :meth:`from_dict` reads it.
        """
        record = asdict(self)
        record["bound"] = {"type": type(self.bound).__name__, **record["bound"]}
        return {key: _to_json(value) for key, value in record.items()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "Release":
        """Rebuild a record from :meth:`to_dict`, also after a JSON round trip.

        Raises
        ------
        ValueError
            If a field is missing or unknown.
        """
        names = {field.name for field in fields(cls)}
        optional = {field.name for field in fields(cls) if field.default is not MISSING}
        if set(record) | optional != names:
            odd = sorted((set(record) | optional) ^ names)
            raise ValueError(f"record: missing or unknown fields {odd}; pass Release.to_dict().")
        values = {key: _from_json(value) for key, value in record.items()}
        bound = dict(values["bound"])
        kind = bound.pop("type", None)
        if kind not in _BOUNDS:
            raise ValueError(f"record: unknown bound {kind!r}; pass Release.to_dict().")
        values["bound"] = _BOUNDS[kind](**bound)
        if values.get("descent") is not None:
            values["descent"] = Descent(**values["descent"])
        return cls(**values)

    def _rows(self) -> list[tuple[str, str]]:
        shape = f"{self.n_samples} records, {self.n_features} features, {self.n_classes} classes"
        private = {
            "True": "yes",
            "False": "NO: the noise was drawn from a seed",
            "conditional": "if the radius, a quantile of private rows, is public",
        }
        spent = ""
        if self.radius_epsilon > 0.0:
            spent = f"; with the radius epsilon={self.guarantee().epsilon:.4g}"
        blocks = "class blocks" if self.descent is None else "steps"
        return [
            ("head", self.head),
            ("mechanism", self._mechanism()),
            ("data", shape),
            ("hides", f"one record's substitution within {self.radius:g} ({self.metric})"),
            ("labels", self.labels),
            (
                "guarantee",
                f"epsilon={self.epsilon:g}, delta={self.delta:g} (rho={self.rho:.4f}){spent}",
            ),
            ("at full radius", f"epsilon={self.epsilon_full_radius:.4g}, labels {self.labels}"),
            ("sensitivity", f"{_range(self.sensitivity, blocks)}, {self.theorem}"),
            ("noise scale", f"{_range(self.sigma, blocks)}, {self.sampler}"),
            ("private", private.get(str(self.private), str(self.private))),
            ("assumes", "; ".join(self.assumptions)),
        ]

    def _mechanism(self) -> str:
        if self.descent is None:
            return "noise on the minimiser" if self.tol > 0.0 else "noise on the parameters"
        clip = "unclipped" if self.descent.clip is None else f"clipped at {self.descent.clip:g}"
        return f"noise on the gradients of {self.descent.n_steps} steps, {clip}"

    def __str__(self) -> str:
        rows = self._rows()
        width = max(len(name) for name, _ in rows)
        return "Release\n" + "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self._rows()
        )
        return f"<table><caption>Release</caption>{cells}</table>"


def rho_at(sensitivity: np.ndarray, sigma: Blocks, n_values: int) -> float:
    """Rho of a release whose blocks have these sensitivities and noise scales.

    A same-label substitution moves one block of a block release, so rho is the largest ratio.
    """
    scale = np.atleast_1d(np.asarray(sigma, dtype=np.float64))
    moved = sensitivity > 0.0
    if not moved.any():
        return 0.0
    ratio = np.max(sensitivity[moved] / np.broadcast_to(scale, sensitivity.shape)[moved])
    return math.nextafter(float(ratio) + grid_slack(n_values), math.inf)


def rho_of(bound: Bound, radius: float, sigma: Blocks, n_values: int, label_change: bool) -> float:
    """Rho of a release with this bound and noise at a Euclidean radius.

    ``label_change`` is whether label changes count, for a release that may or may not hide them.
    """
    if isinstance(bound, TranscriptBound):
        return bound.rho(radius, label_change)
    if label_change != bound.label_change:
        bound = replace(bound, label_change=label_change)
    return rho_at(bound.at(radius), sigma, n_values)


def total_epsilon(rho: float, delta: float, radius_epsilon: float) -> float:
    """Epsilon of a Gaussian release beside a pure one: the better of two compositions."""
    epsilon = epsilon_from_rho(rho, delta)
    if radius_epsilon == 0.0:
        return epsilon
    total = compose([rho, rho_from_pure(radius_epsilon)])
    summed = (epsilon + radius_epsilon) * (1.0 + 2.0**-50)
    return min(summed, epsilon_from_rho(total, delta))


def _range(values: Blocks, blocks: str) -> str:
    if isinstance(values, float):
        return f"{values:.4g}"
    if not values:
        return "known after the steps"
    return f"{min(values):.4g} to {max(values):.4g} over {len(values)} {blocks}"


def _to_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _to_json(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _from_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _from_json(item) for key, item in value.items()}
    return tuple(value) if isinstance(value, list) else value
