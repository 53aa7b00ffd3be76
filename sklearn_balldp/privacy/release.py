"""The public record of one release: what was published, under which guarantee, and why."""

import html
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from ..adjacency import euclidean_radius
from .bounds import Blocks, Bound, bound_from_dict
from .gaussian import (
    compose,
    delta_from_mu,
    epsilon_from_mu,
    gaussian_power,
    mu_from_pure,
)


@dataclass(frozen=True)
class Guarantee:
    """Guarantee of a release at one radius.

    Parameters
    ----------
    radius : float
        Radius in the units of the release's metric.
    mu : float
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
    mu: float
    epsilon: float
    delta: float
    labels: str
    private: bool | str
    radius_epsilon: float = 0.0

    @property
    def mu_total(self) -> float:
        """Gaussian differential privacy parameter, a private radius included."""
        return compose([self.mu, mu_from_pure(self.radius_epsilon)])

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
        delta = delta_from_mu(self.mu_total, epsilon)
        if self.radius_epsilon > 0.0 and epsilon >= self.radius_epsilon:
            # Basic composition of the two releases; the rounding of the difference is covered.
            less = (epsilon - self.radius_epsilon) * (1.0 - 2.0**-50)
            delta = min(delta, delta_from_mu(self.mu, less))
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
        bound = gaussian_power(kappa, self.mu_total)
        if self.radius_epsilon > 0.0:
            raised = math.exp(min(self.radius_epsilon, 700.0)) * gaussian_power(kappa, self.mu)
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
        How mu was derived from (epsilon, delta).
    mu : float
        Sensitivity over noise scale, with the sampler's allowance.
    sensitivity, sigma : float or tuple of float
        L2 sensitivity and noise scale; one number per class block when the noise has blocks, one
        per step when gradients are noisy.
    tol : float
        Gradient norm at which the minimiser was certified; 0 for a closed form or a descent.
    labels : {"public", "protected"}
        Whether label changes are part of the adjacency.
    sampler : str
        Where the noise came from.
    private : bool or str
        True; False when the noise was seeded; "conditional" when a quantile of private rows was
        declared public.
    bound : Bound
        The guarantee as a function of the radius, and the theorem it rests on.
    epsilon_full_radius : float
        epsilon at radius ``2 * norm_bound`` and the same delta (labels as in ``labels``).
    assumptions : tuple of str
        What the guarantee takes for granted.
    version : str
        Package version.
    mechanism : str
        How it was released: "output" (noise on the parameters), "gradient" (noise on the gradients
        of a descent), or the name of a mechanism of one's own.
    coordinates : str or None
        Declared name of the rows' coordinates (encoder, scale): releases that name different ones
        are not added up.
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
    mu: float
    sensitivity: Blocks
    sigma: Blocks
    tol: float
    labels: str
    sampler: str
    private: bool | str
    bound: Bound
    epsilon_full_radius: float
    assumptions: tuple[str, ...]
    version: str
    mechanism: str
    coordinates: str | None = None
    epsilon_full_radius_ex_post: float | None = None

    @property
    def theorem(self) -> str:
        """The statement that the sensitivity rests on."""
        return self.bound.theorem

    @property
    def rho(self) -> float:
        """The parameters' guarantee in zero-concentrated differential privacy: mu^2 / 2."""
        return 0.5 * self.mu**2

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
        mu = self.bound.mu(euclidean, labels)
        epsilon = total_epsilon(mu, self.delta, self.radius_epsilon)
        return Guarantee(radius, mu, epsilon, self.delta, labels, self.private, self.radius_epsilon)

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
            The direct Gaussian bound ``Phi(Phi^-1(kappa) + mu)``.

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
        record = {field.name: getattr(self, field.name) for field in fields(self)}
        record.update(bound=self.bound.to_dict(), rho=self.rho)
        return {key: _to_json(value) for key, value in record.items()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "Release":
        """Rebuild a record from :meth:`to_dict`, also after a JSON round trip.

        Raises
        ------
        ValueError
            If a field is missing or unknown.
        """
        names = {field.name for field in fields(cls)} | {"rho"}
        optional = {field.name for field in fields(cls) if field.default is not MISSING}
        if set(record) | optional != names:
            odd = sorted((set(record) | optional) ^ names)
            raise ValueError(f"record: missing or unknown fields {odd}; pass Release.to_dict().")
        values = {key: _from_json(value) for key, value in record.items()}
        rho = values.pop("rho")
        values["bound"] = bound_from_dict(values["bound"])
        release = cls(**values)
        if rho != release.rho:
            raise ValueError(f"record: rho={rho!r} is not mu^2 / 2 = {release.rho!r}.")
        if release.labels != release.bound.labels:
            raise ValueError(
                f"record: labels={release.labels!r}, but its bound keeps them "
                f"{release.bound.labels!r}."
            )
        stated = release.guarantee().mu
        if not math.isclose(stated, release.mu, rel_tol=1e-9):
            raise ValueError(f"record: mu={release.mu!r}, but its bound states {stated!r}.")
        return release

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
        return [
            ("head", self.head),
            ("mechanism", self.bound.what),
            (
                "data",
                shape if self.coordinates is None else f"{shape}, coordinates {self.coordinates}",
            ),
            ("hides", f"one record's substitution within {self.radius:g} ({self.metric})"),
            ("labels", self.labels),
            (
                "guarantee",
                f"epsilon={self.epsilon:g}, delta={self.delta:g} (mu={self.mu:.4f}, "
                f"zCDP rho={self.rho:.4f}){spent}",
            ),
            ("at full radius", f"epsilon={self.epsilon_full_radius:.4g}, labels {self.labels}"),
            ("sensitivity", f"{_range(self.sensitivity, self.bound.parts)}, {self.theorem}"),
            ("noise scale", f"{_range(self.sigma, self.bound.parts)}, {self.sampler}"),
            ("private", private.get(str(self.private), str(self.private))),
            ("assumes", "; ".join(self.assumptions)),
        ]

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


def total_epsilon(mu: float, delta: float, radius_epsilon: float) -> float:
    """Epsilon of a Gaussian release beside a pure one: the better of two compositions."""
    epsilon = epsilon_from_mu(mu, delta)
    if radius_epsilon == 0.0:
        return epsilon
    total = compose([mu, mu_from_pure(radius_epsilon)])
    summed = (epsilon + radius_epsilon) * (1.0 + 2.0**-50)
    return min(summed, epsilon_from_mu(total, delta))


def _range(values: Blocks, parts: str) -> str:
    if isinstance(values, float):
        return f"{values:.4g}"
    if not values:
        return "known after the steps"
    return f"{min(values):.4g} to {max(values):.4g} over {len(values)} {parts}"


def _to_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _to_json(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _from_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _from_json(item) for key, item in value.items()}
    return tuple(map(_from_json, value)) if isinstance(value, (list, tuple)) else value
