"""The public record of one release: what was published, under which guarantee, and why."""

import contextlib
import datetime
import html
import math
import numbers
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from typing import Any

from .._parameters import MOST, check_inside, check_option, check_positive, check_whole, is_real
from .._version import __version__
from ..adjacency import DOMAINS, LABELS, METRICS, euclidean_radius, full_radius, full_radius_in
from ..pipelines import parts_of
from .bounds import Blocks, Bound, bound_from_dict
from .card import Card, card_of
from .digest import parameters_digest, record_digest
from .encoder_name import same_encoder
from .fields import check_at_least, check_follows, check_types, with_floats
from .gaussian import epsilon_from_mu, mu_from_budget
from .guarantee import Guarantee, total_epsilon
from .noise import EXACT_SAMPLER, SEEDED_SAMPLER
from .weights import Weights, is_weighted, units_of

#: Where a radius may come from; "private" and "seeded" ones are drawn by permute-and-flip.
RADIUS_SOURCES = ("number", "reference", "edits", "declared", "private", "seeded")
_OPTIONS = {
    "metric": METRICS,
    "radius_source": RADIUS_SOURCES,
    "sampler": (EXACT_SAMPLER, SEEDED_SAMPLER),
}
#: Layout of the records that :meth:`Release.to_dict` writes. Every version from here on reads this
#: one: fields that a later version adds have defaults.
FORMAT = 1
#: Numbers and words that a record shows beside its own fields. Reading one computes them again: of
#: the first a record may state more than that, of the others the same.
_UPPER_BOUNDS = ("mu", "sensitivity", "epsilon_full_radius")
_DERIVED = ("sigma", "labels", "unit", "private")
#: What bounds and records both hold.
_SHARED = ("n_samples", "n_features", "n_classes", "alpha", "norm_bound")
_RADIUS_ASSUMPTIONS = {
    "reference": ("the radius was read off public reference rows",),
    "edits": ("the radius was read off public records before and after an edit",),
    "declared": ("the radius, a quantile of the private rows, is declared public",),
    "private": ("the radius, a private quantile, is spent beside the parameters",),
    "seeded": ("the radius, a quantile of the private rows, was drawn from a seed",),
}
_LABEL_ASSUMPTIONS = {
    "public": "labels and class counts are public",
    "protected": "label changes are hidden too",
}
_UNIT_ASSUMPTIONS = {
    "person": ("whose each record is, and how many records each person has, are public",),
}
_DOMAIN_ASSUMPTIONS = {"sphere": ("radii are distances between rows scaled to one norm",)}
#: Losses of this package's own heads; mechanisms of one's own need not name theirs. None is the
#: logistic loss of two classes, and softmax of more.
_LOSSES = {
    "BallDPLinearDiscriminant": "discriminant",
    "BallDPLogisticRegression": None,
    "BallDPRidgePrototype": "prototypes",
    "BallDPSquaredHingeSVC": "squared_hinge",
}
#: Longer texts are no names.
_LONGEST_TEXT = 500
#: More classes than these are no record.
_MOST_CLASSES = 10**9
#: Of more records than these the proved rounding of a sum exceeds what one record moves.
_MOST_RECORDS = 10**12
#: Names of this package's own mechanisms, each with bounds of its own.
_MECHANISMS = ("output", "gradient", "statistics")
_VERSION = re.compile(r"[0-9A-Za-z.+!_-]{1,40}")
_DIGEST = re.compile("([0-9a-f]{64})?")


@dataclass(frozen=True, kw_only=True)
class Release:
    """Frozen public record of a fit: public numbers, and functions of what was released.

    A record stores its bound and the public numbers of the fit. Mu, noise scales, guarantees and
    ``private`` are computed from these. A record that contradicts itself cannot be made, nor read.

    Attributes
    ----------
    head : str
        Estimator class.
    mechanism : str
        How it was released: "output" (noise on the parameters), "gradient" (noise on the gradients
        of a descent), "statistics" (noise on class sums and the second moment), or the name of a
        mechanism of one's own.
    n_samples, n_features, n_classes : int
        Shape of the problem, public by assumption.
    alpha, norm_bound, metric : float, float, str
        Public parameters of the fit.
    radius : float
        Radius in the units of ``metric``.
    radius_source : {"number", "reference", "edits", "declared", "private", "seeded"}
        Where the radius came from: a public number, public reference rows, public records before
        and after an edit, private rows whose quantile is declared public, the private quantile, or
        that quantile drawn from a seed.
    radius_epsilon : float
        Pure differential privacy that the private quantile spent, else 0; part of the total.
    radius_draw : str
        Identifies the private quantile, so that releases which share it count it once.
    radius_edits : int
        Public pairs of records before and after an edit that the radius was read off, else 0.
    radius_hides : float
        Share of these edits that lie within the radius.
    radius_hides_records : float or None
        Share of the records before them all of whose edits do; None where the edits came without
        the numbers of their records.
    epsilon, delta : float
        Guarantee of the parameters at ``radius``; :meth:`guarantee` adds ``radius_epsilon``.
    sampler : str
        Where the noise came from.
    bound : Bound
        The guarantee as a function of the radius, and the theorem it rests on.
    version, numpy_version : str
        Versions of this package and of NumPy.
    date : str
        Day of the fit (UTC), as in 2026-01-31.
    encoder : str or None
        Declared name of where the rows come from (encoder, scale): releases that name different
        ones are not added up.
    rule : str
        Digest of the numbers by which settings followed from public numbers (a tuned rule, which
        no guarantee rests on); empty where there is no rule.
    digest : str
        SHA-256 of the released parameters (:func:`.parameters_digest`); empty before the run.
    stated_sensitivity, stated_sigma : float or tuple of float
        ``sensitivity`` and ``sigma`` where they do not follow from the bound: of a descent's steps,
        or as a mechanism of one's own states them.
    epsilon_full_radius_ex_post : float or None
        Of a descent: epsilon at the full radius by the gaps at the iterates that occurred. It
        depends on the release and is no guarantee; :meth:`guarantee` is.
    """

    head: str
    mechanism: str
    n_samples: int
    n_features: int
    n_classes: int
    alpha: float
    norm_bound: float
    metric: str
    radius: float
    radius_source: str
    radius_epsilon: float = 0.0
    radius_draw: str = ""
    radius_edits: int = 0
    radius_hides: float = 0.0
    radius_hides_records: float | None = None
    epsilon: float
    delta: float
    sampler: str
    bound: Bound
    version: str
    numpy_version: str
    date: str
    encoder: str | None = None
    rule: str = ""
    digest: str = ""
    stated_sensitivity: Blocks = ()
    stated_sigma: Blocks = ()
    epsilon_full_radius_ex_post: float | None = None

    def __post_init__(self) -> None:
        check_types(self, "record")
        if not isinstance(self.bound, Bound):
            raise ValueError(f"record: bound must be a Bound, got {type(self.bound).__name__}.")
        check_types(self.bound, "record: bound")
        for name, options in _OPTIONS.items():
            check_option(f"record: {name}", getattr(self, name), options)
        for name in ("norm_bound", "radius"):
            check_positive(f"record: {name}", getattr(self, name))
        for name in ("n_samples", "n_features", "epsilon"):
            if not getattr(self, name) > 0:
                raise ValueError(f"record: {name}={getattr(self, name)!r} must be positive.")
        check_inside("record: delta", self.delta)
        if not (2 <= self.n_classes <= _MOST_CLASSES and self.n_samples <= _MOST_RECORDS):
            raise ValueError(
                f"record: n_classes={self.n_classes!r} must lie between 2 and {_MOST_CLASSES}, "
                f"n_samples={self.n_samples!r} must not exceed {_MOST_RECORDS}."
            )
        for name in ("alpha", "radius_epsilon", "stated_sensitivity", "stated_sigma"):
            value = getattr(self, name)
            if not all(v >= 0.0 for v in (value if isinstance(value, tuple) else (value,))):
                raise ValueError(f"record: {name}={value!r} must not be negative.")
        if self.alpha > MOST:
            raise ValueError(f"record: alpha={self.alpha!r} must not exceed {MOST:g}.")
        for name in (
            "head",
            "mechanism",
            "version",
            "numpy_version",
            "encoder",
            "radius_draw",
            "rule",
        ):
            value = getattr(self, name)
            if value is not None and not (value.isprintable() and len(value) <= _LONGEST_TEXT):
                raise ValueError(f"record: {name}={value[:99]!r} must be one short line of text.")
        for name in ("version", "numpy_version"):
            if not _VERSION.fullmatch(getattr(self, name)):
                raise ValueError(f"record: {name}={getattr(self, name)[:40]!r} is no version.")
        if not (self.head.isidentifier() and self.mechanism and _DIGEST.fullmatch(self.digest)):
            raise ValueError(
                f"record: head={self.head!r} must be the name of a class, mechanism="
                f"{self.mechanism!r} not empty, digest={self.digest!r} a SHA-256."
            )
        try:
            datetime.date.fromisoformat(self.date)
        except ValueError:
            raise ValueError(f"record: date={self.date!r} must be a day, as 2026-01-31.") from None
        self._check_radius()
        with _contradictions():
            self._check_bound()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Read from a file, a record is checked as if it were made anew."""
        for name, value in state.items():
            # What is computed from the fields is computed again.
            if not isinstance(getattr(type(self), name, None), cached_property):
                vars(self)[name] = value
        # A field that a later version added has its default, which the class holds.
        missing = [f.name for f in fields(self) if not hasattr(self, f.name)]
        if isinstance(vars(self).get("bound"), Bound):
            bound: Any = self.bound
            missing += [f"bound.{f.name}" for f in fields(bound) if not hasattr(bound, f.name)]
        if missing:
            raise ValueError(f"record: {', '.join(missing)} missing; ask for the original.")
        self.__post_init__()

    def _check_radius(self) -> None:
        """Where the radius came from, and what that spent."""
        drawn = self.radius_source in ("private", "seeded")
        if (self.radius_epsilon > 0.0) != drawn or bool(self.radius_draw) != drawn:
            raise ValueError(
                f"record: radius_source={self.radius_source!r}, radius_epsilon="
                f"{self.radius_epsilon!r} and radius_draw={self.radius_draw!r} do not go together: "
                "a private quantile spends epsilon and is identified, no other radius is."
            )
        n_edits, hides = self.radius_edits, self.radius_hides
        if self.radius_source == "edits":
            hidden = hides * n_edits
            whole = abs(hidden - round(hidden)) <= 1e-9 * max(1.0, hidden)
            sound = n_edits > 0 and whole and 0.0 < hides <= 1.0
        else:
            sound = n_edits == 0 and hides == 0.0 and self.radius_hides_records is None
        if self.radius_hides_records is not None:
            sound = sound and 0.0 <= self.radius_hides_records <= 1.0
        if not sound:
            raise ValueError(
                f"record: radius_source={self.radius_source!r}, radius_edits="
                f"{self.radius_edits!r} and radius_hides={self.radius_hides!r} do not go together: "
                "a radius read off edits hides a share of them, no other radius does."
            )
        check_option("record: labels", self.labels, LABELS)
        without_labels = ("number", "reference", "edits")
        if self.labels == "protected" and self.radius_source not in without_labels:
            raise ValueError(
                f"record: radius_source={self.radius_source!r} reads labels, which must not be "
                "where they are protected."
            )

        if self.weights is not None:
            self.weights.check(self.n_samples, self.n_classes, self.labels)
            if self.weights.most_records > 1 and self.radius_epsilon > 0.0:
                raise ValueError(
                    f"record: radius_source={self.radius_source!r} hides one record, where the "
                    "release hides all of one person."
                )

    def _check_bound(self) -> None:
        """What the bound says of the same numbers, and whether it keeps (epsilon, delta)."""
        if self.bound.mechanism or self.mechanism in _MECHANISMS:
            # This package's mechanisms and bounds go together; others bring bounds of their own.
            check_follows("mechanism", self.mechanism, self.bound.mechanism)
            self._check_own_bound(self.bound)
        budget, mu = mu_from_budget(self.epsilon, self.delta), self.mu
        if not (0.0 <= mu <= budget * (1.0 + 1e-9)):
            raise ValueError(
                f"record: epsilon={self.epsilon!r} does not follow from the rest of it: it should "
                f"be {epsilon_from_mu(mu, self.delta)!r}, as its bound gives mu={mu!r} (delta="
                f"{self.delta!r})."
            )
        self.bound.check(self, self._euclidean(self.radius), budget)
        if self._bound_scales is not None:
            check_follows("stated_sensitivity", self.stated_sensitivity, ())
            check_follows("stated_sigma", self.stated_sigma, ())
            check_follows("epsilon_full_radius_ex_post", self.epsilon_full_radius_ex_post, None)

    def _check_own_bound(self, bound: Any) -> None:
        """What a bound of this package says of the same numbers."""
        for field in fields(bound):
            if field.name in _SHARED:
                stated = getattr(bound, field.name)
                check_follows(f"bound.{field.name}", stated, getattr(self, field.name))
        log_loss = "logistic" if self.n_classes == 2 else "softmax"
        if self.head in _LOSSES or bound.loss in ("logistic", "softmax"):
            check_follows("bound.loss", bound.loss, _LOSSES.get(self.head) or log_loss)

    def _euclidean(self, radius: float) -> float:
        return euclidean_radius(
            radius, self.metric, norm_bound=self.norm_bound, n_features=self.n_features
        )

    @cached_property
    def _bound_scales(self) -> tuple[Blocks, Blocks] | None:
        """Sensitivity and noise scale where the bound tells them."""
        return self.bound.scales(self._euclidean(self.radius))

    @cached_property
    def mu(self) -> float:
        """Gaussian differential privacy of the parameters at the radius, sampler included.

        Of noise on parameters or sums it is sensitivity over noise scale. Of a descent it is that
        of all steps, and of the sums they start from, together: it was fixed before the first
        step, and ``sensitivity`` over ``sigma`` is that of each step alone.
        """
        return float(self.bound.mu(self._euclidean(self.radius)))

    @property
    def rho(self) -> float:
        """The parameters' guarantee in zero-concentrated differential privacy: mu^2 / 2."""
        return 0.5 * self.mu**2

    @property
    def sensitivity(self) -> Blocks:
        """L2 sensitivity; one number per class block or per step where they differ."""
        return self.stated_sensitivity if self._bound_scales is None else self._bound_scales[0]

    @property
    def sigma(self) -> Blocks:
        """Noise scale, a standard deviation; as ``sensitivity``."""
        return self.stated_sigma if self._bound_scales is None else self._bound_scales[1]

    @property
    def tol(self) -> float:
        """Gradient norm at which the minimiser was certified; 0 for others."""
        return float(getattr(self.bound, "tol", 0.0))

    @property
    def labels(self) -> str:
        """Whether label changes are part of the adjacency: "public" or "protected"."""
        return self.bound.labels

    @property
    def weights(self) -> Weights | None:
        """Public weights of the records; None where each counts once, and for one owner."""
        return self.bound.weights

    @property
    def unit(self) -> str:
        """What one substitution replaces: a "record", or all records of one "person"."""
        return "record" if self.weights is None else self.weights.unit

    @property
    def n_units(self) -> int:
        """Number of records, or of persons."""
        return units_of(self.weights, self.n_samples)

    @property
    def unit_in_words(self) -> str:
        """The unit in words."""
        if self.weights is None or self.unit == "record":
            return "one record"
        most = self.weights.most_records
        return f"one person (at most {most} record{'s' if most > 1 else ''})"

    @property
    def domain(self) -> str:
        """Where rows lie: in the "ball" of radius B, or scaled to norm B, on the "sphere"."""
        rows = getattr(self.bound, "rows", None)
        return rows if rows in DOMAINS else "ball"

    @property
    def private(self) -> bool | str:
        """True; False when a seed drew the noise; "conditional" on a radius declared public."""
        if self.sampler != EXACT_SAMPLER or self.radius_source == "seeded":
            return False
        return "conditional" if self.radius_source == "declared" else True

    @property
    def theorem(self) -> str:
        """The statement that the sensitivity rests on."""
        return self.bound.theorem

    @cached_property
    def epsilon_full_radius(self) -> float:
        """Epsilon at radius ``2 * norm_bound`` and the same delta (labels as in ``labels``)."""
        mu = self.bound.mu(full_radius(self.norm_bound))
        return total_epsilon(mu, self.delta, self.radius_epsilon)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee takes for granted."""
        return (
            "the number of records, the label set, the encoder and every parameter are public",
            _LABEL_ASSUMPTIONS[self.labels],
            *_UNIT_ASSUMPTIONS.get(self.unit, ()),
            *(("the weights of the records are public",) if self.has_weights else ()),
            "each record is one row, mapped to it without looking at the others",
            *_DOMAIN_ASSUMPTIONS.get(self.domain, ()),
            *_RADIUS_ASSUMPTIONS.get(self.radius_source, ()),
        )

    @property
    def has_weights(self) -> bool:
        """Whether records count by other weights than one over those of their owner."""
        weights = self.weights
        if weights is None:
            return False
        plain = weights.by_class is None and weights.total <= self.n_units * (1.0 + 1e-9)
        return not (plain and weights.total >= self.n_units * (1.0 - 1e-9))

    @property
    def hidden_edits(self) -> str:
        """Which share of the given edits the radius hides, in words; empty without edits."""
        if self.radius_edits == 0:
            return ""
        # Rounded down: they are claims.
        pairs, records = (
            None if share is None else f"{math.floor(1000.0 * share + 1e-9) / 10.0:g} %"
            for share in (self.radius_hides, self.radius_hides_records)
        )
        all_of = "" if records is None else f", and all of them for {records} of the records"
        return f"{pairs} of the {self.radius_edits} given edits{all_of}"

    @property
    def promised(self) -> "Release":
        """The record as it was before the run, without what was known only after it."""
        late: Any = {"stated_sensitivity": (), "stated_sigma": ()}
        return replace(self, digest="", epsilon_full_radius_ex_post=None, **late)

    @property
    def full_radius(self) -> float:
        """Radius in ``metric`` that every substitution of rows is within."""
        return full_radius_in(self.metric, self.norm_bound, self.n_features)

    def card(self, model: Any = None, audit: Any = None) -> Card:
        """The release in plain words, on one page.

        Parameters
        ----------
        model : estimator, optional
            The published model, to compare its parameters with this record's digest.
        audit : ReconstructionAuditor, optional
            A fitted audit. Its results are functions of private records: the card says that this
            part is not for publication.

        Returns
        -------
        Card
            With ``to_markdown()``, ``to_html()``, ``to_yaml()`` (an entry of the public registry of
            deployments) and ``save(path)``.

        References
        ----------
        NIST SP 800-226 for what a guarantee has to state; the registry of deployments of
        differential privacy (OpenDP) for the fields; Kulynych et al. (2025) for the one bound on
        re-identification, attribute inference and reconstruction.
        """
        return card_of(self, model, audit)

    def matches(self, model: Any) -> bool:
        """Whether a model's parameters, and its encoder, are those of this record.

        Parameters
        ----------
        model : estimator
            A Ball-DP head, or a Pipeline, frozen model or auditor that holds one.

        Returns
        -------
        bool
            False as well for a model that is no Ball-DP head.
        """
        parts = parts_of(model)
        parameters = getattr(parts.head, "released_parameters", None)
        if parameters is None or parameters_digest(parameters()) != self.digest:
            return False
        follow = getattr(parts.head, "decision_follows", None)
        if follow is not None and not follow(self):
            return False
        # What only the weights could tell is no contradiction.
        named = None not in (self.encoder, parts.encoder)
        return not named or same_encoder(self.encoder, parts.encoder) is not False

    def guarantee(
        self, radius: float | None = None, labels: str | None = None, records: int = 1
    ) -> Guarantee:
        """Guarantee at any radius, and for any number of records, at this release's delta.

        For prototypes and the discriminant it is exact (for one record). For noise on a minimiser
        it follows from a proved upper bound on the sensitivity there. For noise on gradients it is
        what held before the first step: the promise at the declared radius, and at others what
        follows from group privacy and the limits of the gap. If the radius was chosen privately,
        the noise follows from that draw, and figures at a fixed other radius describe this run
        only.

        Parameters
        ----------
        radius : float, optional
            Radius in the units of ``metric``; the declared one by default.
        labels : {"public", "protected"}, optional
            Whether changes of labels count; by default as in the release. "public" counts
            substitutions of the same label only, to compare a release that protects labels with one
            that does not.
        records : int, default=1
            Records that are replaced at once, each within the radius; persons, where the release
            hides those (``unit``). Group privacy: mu, and what a private radius spent, count so
            many times.

        Returns
        -------
        Guarantee
            With ``delta_at(epsilon)`` for the whole profile.

        Raises
        ------
        ValueError
            If the radius is not positive, ``records`` is no positive whole number, or the release
            does not protect labels but is asked to.

        References
        ----------
        Dong, Roth & Su (2022), Theorem 2.14, for several records. Margaryan & Gupta, Proposition
        3.6, with the exact Gaussian profile in place of the classic formula.
        """
        labels = self.labels if labels is None else labels
        if labels not in ("public", self.labels):
            raise ValueError(
                f"labels={labels!r}: this release keeps labels {self.labels}; fit with "
                "protect_labels=True to hide label changes."
            )
        check_whole("records", records)
        if not (radius is None or is_real(radius)):
            raise ValueError(f"radius must be a positive number, or None; got {radius!r}.")
        radius = self.radius if radius is None else float(radius)
        mu, pure = self.bound.mu(self._euclidean(radius), labels), self.radius_epsilon
        if records > 1:
            mu = math.nextafter(records * mu, math.inf)
            pure = math.nextafter(records * pure, math.inf) if pure > 0.0 else 0.0
        epsilon = total_epsilon(mu, self.delta, pure)
        return Guarantee(
            radius,
            mu,
            epsilon,
            self.delta,
            labels,
            self.private,
            pure,
            unit=self.unit,
            records=int(records),
            most_records=1 if self.weights is None else self.weights.most_records,
        )

    def certificate(
        self,
        kappa: float,
        radius: float | None = None,
        labels: str | None = None,
        records: int = 1,
    ) -> float:
        """Upper bound on the probability that any attacker names the true record.

        He knows all other records, and holds a list of candidates that lie within ``radius`` of one
        possible record (not of each other).

        Parameters
        ----------
        kappa : float
            Success probability of the best blind guess: ``1 / m`` for m equally likely candidates.
            If a guess that is near enough counts, it is the largest probability of any ball of that
            radius: ``(eta / r) ** d`` for a record that is uniform in a ball of radius r in d
            dimensions.
        radius : float, optional
            Distance of the candidates from one possible record, in the units of ``metric``; the
            declared radius by default. In the ball of rows none is further than ``norm_bound`` from
            the zero record, so a larger Euclidean radius changes nothing.
        labels : {"public", "protected"}, optional
            "public" for candidates of one label. "protected", the default where labels are, for
            those of any label.
        records : int, default=1
            As in :meth:`guarantee`: records that are hidden together.

        Returns
        -------
        float
            The direct Gaussian bound ``Phi(Phi^-1(kappa) + mu)``.

        Raises
        ------
        ValueError
            If ``kappa`` is not a probability.

        References
        ----------
        Margaryan & Gupta, Ball-ReRo; the choice of the possible record is proved on the page
        "Certificates and audits".
        """
        return self.guarantee_of_candidates(radius, labels, records).certificate(kappa)

    def guarantee_of_candidates(
        self, radius: float | None = None, labels: str | None = None, records: int = 1
    ) -> Guarantee:
        """Guarantee whose certificate holds for candidates within a radius of a possible record.

        It is :meth:`guarantee` at the distance of the possible record that suits them best. Two of
        the candidates may be twice as far apart: between these it promises nothing.

        Parameters
        ----------
        radius : float, optional
            As in :meth:`certificate`.
        labels : {"public", "protected"}, optional
            As in :meth:`certificate`.
        records : int, default=1
            As in :meth:`certificate`.

        Returns
        -------
        Guarantee
            Stated for the distance to that possible record, and its labels.
        """
        asked = self.guarantee(radius, labels, records)
        distance = asked.radius
        # Given a radius that was drawn, only the promise for all draws is a bound.
        drawn = radius is None and self.radius_source in ("private", "seeded")
        # A bound of one's own that does not say where rows lie may need all of them on the sphere.
        if getattr(self.bound, "rows", None) == "ball" and not drawn:
            # No row is further from the zero record. One step more covers the rounding of the unit.
            modulus = METRICS[self.metric].euclidean_per_unit(self.n_features)
            distance = min(distance, math.nextafter(self.norm_bound / modulus, math.inf))
        found = [self.guarantee(distance, labels, records)]
        if asked.labels == "public" and self.labels == "protected":
            # A record of another label is next to all candidates of one label, however far.
            found.append(self.guarantee(min(distance, self.radius), "protected", records))
        return min(found, key=lambda guarantee: guarantee.mu_total)

    def to_dict(self) -> dict[str, Any]:
        """Give the record as JSON-ready built-in types.

        Returns
        -------
        dict
            Field by field; :meth:`from_dict` reads it.
        """
        record: dict[str, Any] = {"format": FORMAT}
        record |= {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("stated_sensitivity", "stated_sigma"):
            del record[name]
        record |= {name: getattr(self, name) for name in (*_UPPER_BOUNDS, *_DERIVED)}
        record["bound"] = self.bound.to_dict()
        plain = {key: _to_json(value) for key, value in record.items()}
        return {**plain, "checksum": record_digest(plain)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "Release":
        """Rebuild a record from :meth:`to_dict`, also after a JSON round trip.

        Every derived number is computed again. A record may state more than that, as one does that
        a version with looser bounds wrote, and never less.

        Parameters
        ----------
        record : mapping
            What :meth:`to_dict` gave.

        Returns
        -------
        Release
            Equal to the one written.

        Raises
        ------
        ValueError
            If a field is missing or unknown, holds what it cannot, or does not follow from the
            bound; the error names the field, its value and what it should be.
        """
        if not isinstance(record, Mapping):
            raise ValueError(
                f"record: expected a mapping, got {type(record).__name__}; of a fitted head pass "
                "release_."
            )
        with _contradictions():
            return cls._read(record)

    @classmethod
    def _read(cls, record: Mapping[str, Any]) -> "Release":
        if record.get("format") != FORMAT:
            raise ValueError(
                f"record: format={record.get('format')!r} is not known: sklearn_balldp "
                f"{__version__} reads format {FORMAT}. The record is of version "
                f"{str(record.get('version'))[:40]!r}; install that one, or a later one."
            )
        stated = {field.name: field for field in fields(cls)}
        own = set(stated) - {"stated_sensitivity", "stated_sigma"}
        shown = {*_UPPER_BOUNDS, *_DERIVED, "format", "checksum"}
        needed = {name for name in own if stated[name].default is MISSING} | shown
        odd = sorted(map(str, (needed - set(record)) | (set(record) - own - shown)))
        if odd:
            raise ValueError(f"record: missing or unknown fields {odd}; pass Release.to_dict().")
        values = with_floats(cls, {key: _from_json(value) for key, value in record.items()})
        bound = bound_from_dict(values["bound"])
        given: dict[str, Any] = {name: values[name] for name in own if name in values}
        # What the bound does not tell, the record states.
        if bound.scales(1.0) is None:
            given |= {f"stated_{name}": values[name] for name in ("sensitivity", "sigma")}
        release = cls(**{**given, "bound": bound})
        for name in _UPPER_BOUNDS:
            check_at_least(name, values[name], getattr(release, name))
        for name in _DERIVED:
            check_follows(name, values[name], getattr(release, name))
        plain = {key: _to_json(value) for key, value in record.items() if key != "checksum"}
        if record["checksum"] != record_digest(plain):
            raise ValueError(
                f"record: checksum={record['checksum']!r} is not that of the other fields, so one "
                "of them was edited after the record was written; ask for the original."
            )
        return release

    def _rows(self) -> list[tuple[str, str]]:
        persons = f" of {self.n_units} persons" if self.unit == "person" else ""
        shape = (
            f"{self.n_samples} records{persons}, {self.n_features} features, "
            f"{self.n_classes} classes"
        )
        private = {
            "True": "yes",
            "False": "NO: the "
            + ("radius" if self.radius_source == "seeded" else "noise")
            + " was drawn from a seed",
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
                ", ".join(
                    [
                        shape,
                        *(["encoder " + self.encoder] if self.encoder else []),
                    ]
                ),
            ),
            (
                "hides",
                ("one record's" if self.unit == "record" else f"{self.unit_in_words}:")
                + f" substitution within {self.radius:g} ({self.metric})"
                + (f": {self.hidden_edits}" if self.hidden_edits else ""),
            ),
            ("labels", self.labels),
            (
                "guarantee",
                f"epsilon={self.epsilon:g}, delta={self.delta:g} (mu={self.mu:.4f}, "
                f"zCDP rho={self.rho:.4f}){spent}",
            ),
            *self.weight_rows(),
            ("at full radius", f"epsilon={self.epsilon_full_radius:.4g}, labels {self.labels}"),
            ("sensitivity", f"{_range(self.sensitivity, self.bound.parts)}, {self.theorem}"),
            ("noise scale", f"{_range(self.sigma, self.bound.parts)}, {self.sampler}"),
            ("private", private.get(str(self.private), str(self.private))),
            ("assumes", "; ".join(self.assumptions)),
            (
                "parameters",
                f"SHA-256 {self.digest[:16] or 'not yet known'}, {self.date}, "
                f"sklearn_balldp {self.version}, numpy {self.numpy_version}",
            ),
        ]

    def weight_rows(self) -> list[tuple[str, str]]:
        """Public weights in words, where they are not plain.

        Returns
        -------
        list of tuple of str
            A title and a text; empty where every record counts once.
        """
        weights = self.weights
        if not is_weighted(weights):
            return []
        classes = ""
        if weights.by_class is not None:
            own = [factor for factor in weights.by_class if factor > 0.0]
            classes = f"; classes by {min(own):.4g} to {max(own):.4g}"
        mass = f"noise of {weights.effective_size:.6g} records"
        return [("weights", f"{mass}, for {self.n_units} {self.unit}s{classes}")]

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


@contextlib.contextmanager
def _contradictions() -> Iterator[None]:
    """Fields that no arithmetic can make sense of are a contradiction too."""
    try:
        yield
    except Exception as error:
        # A bound of somebody's own may raise anything.
        if isinstance(error, ValueError) and str(error).startswith("record"):
            raise
        text = f"{type(error).__name__}: {error}"[:200]
        raise ValueError(f"record: it cannot be made sense of ({text}).") from error


def _range(values: Blocks, parts: str) -> str:
    if isinstance(values, float):
        return f"{values:.4g}"
    if not values:
        return "known after the steps"
    ends = dict.fromkeys(f"{end:.4g}" for end in (min(values), max(values)))
    return f"{' to '.join(ends)} over {len(values)} {parts}"


def _to_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        # NumPy's numbers are numbers too, and JSON knows none of them.
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    return value


def _from_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _from_json(item) for key, item in value.items()}
    return tuple(map(_from_json, value)) if isinstance(value, (list, tuple)) else value
