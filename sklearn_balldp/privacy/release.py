"""The public record of one release: what was published, under which guarantee, and why."""

import html
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import ArrayLike

from .._cached import cached_property
from .._parameters import Count, Epsilon, Inside, Share, Spent, check_whole, one_of
from .._version import __version__
from ..adjacency import METRICS
from ..encoder_name import same_encoder
from ..text import DOWN, UP, one_line, rounded
from .bounds import Blocks, Bound, as_float_or_tuple, check_rising
from .contradictions import ROUNDING, check
from .digest import parameters_digest, record_digest
from .guarantee import Guarantee, total_epsilon
from .noise import EXACT_SAMPLER, SEEDED_SAMPLER
from .problem import Problem
from .record import FORMAT, check_same, contradictions, kind_of, plain, read, schema_of, sized

#: Where a radius may come from; "private" and "seeded" ones are drawn by permute-and-flip.
RADIUS_SOURCES = ("number", "reference", "edits", "declared", "private", "seeded")
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
_PROTOTYPES = "BallDPRidgePrototype"
# Texts of a record: a version, a day, a SHA-256 or nothing, the name of a class, and a word.
_Version = Annotated[str, Meta(pattern=r"^[0-9A-Za-z.+!_-]{1,40}$")]
_Day = Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]
_Digest = Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?$")]
_ClassName = Annotated[str, Meta(pattern=r"^\w+$", max_length=100)]
_Word = Annotated[str, Meta(min_length=1, max_length=100)]
#: Of what follows from a record, which numbers may be stated larger than they are, and which (those
#: of noise) smaller; the rest is the same.
_MAY_BE_MORE = {
    **dict.fromkeys(("mu", "epsilon", "epsilon_full_radius", "sensitivity"), True),
    "sigma": False,
}


@dataclass(frozen=True)
class Follows:
    """What follows from a record, for those who read its JSON; infinite numbers are None."""

    mu: float | None
    epsilon: float | None
    epsilon_full_radius: float | None
    sensitivity: float | tuple[float, ...]
    sigma: float | tuple[float, ...]
    labels: str
    unit: str
    private: bool | str
    theorem: str

    @classmethod
    def of(cls, release: "Release") -> "Follows":
        """What follows from a record, computed."""
        values = {field.name: getattr(release, field.name) for field in fields(cls)}
        values["epsilon"] = release.guarantee().epsilon
        infinite = [n for n, v in values.items() if isinstance(v, float) and not math.isfinite(v)]
        return cls(**(values | dict.fromkeys(infinite)))


def _of_problem(name: str, doc: str) -> Any:
    """A public number of the fit as an attribute of its record."""
    return property(attrgetter(f"problem.{name}"), doc=doc)


@dataclass(frozen=True, kw_only=True)
class Release:
    """Frozen public record of a fit.

    It stores the public numbers of the fit, what its mechanism chose for them, and where the radius
    and the noise came from. Mu, noise scales and guarantees are computed from these.

    Attributes
    ----------
    head : str
        Estimator class.
    mechanism : str
        "prototypes" (noise on class sums), "statistics" (with a second moment), "output" (noise on
        the minimiser), "gradient" (noise on the gradients of a descent), or another's name.
    problem : Problem
        Public numbers of the fit; many are attributes of the record too.
    bound : Bound
        What the mechanism chose: the guarantee as a function of the radius.
    epsilon, delta : float
        Guarantee of the parameters at ``radius``; :meth:`guarantee` adds ``radius_epsilon``.
    radius_source : {"number", "reference", "edits", "declared", "private", "seeded"}
        A public number, or read off public reference rows, public records before and after an
        edit, or a quantile of private rows: declared public, private, or drawn from a seed.
    radius_epsilon : float
        Pure differential privacy that the private quantile spent, else 0; part of the total.
    radius_draw : str
        Identifies the private quantile, which releases that share it count once.
    radius_edits : int
        Public edits that the radius was read off, else 0.
    radius_hides : float
        Share of these edits that lie within the radius.
    radius_hides_records : float or None
        Share of the records all of whose edits do; None where edits came without the numbers of
        their records.
    sampler : str
        Where the noise came from.
    version, numpy_version : str
        Versions of this package and of NumPy.
    date : str
        Day of the fit (UTC), as in 2026-01-31.
    encoder : str or None
        Declared origin of the rows (encoder, scale): releases of different ones are not added up.
    rule : str
        Digest of the tuned rule that settings followed from, which no guarantee rests on.
    accepted : tuple of str
        Kinds of queries whose sensitivity the publisher alone vouches for.
    digest : str
        SHA-256 of the released parameters (:func:`.parameters_digest`); empty before the run.
    """

    head: _ClassName
    mechanism: _Word
    problem: Problem
    bound: Bound
    epsilon: Epsilon
    delta: Inside
    radius_source: Annotated[str, one_of(RADIUS_SOURCES)] = "number"
    radius_epsilon: Spent = 0.0
    radius_draw: str = ""
    radius_edits: Count = 0
    radius_hides: Share = 0.0
    radius_hides_records: Share | None = None
    sampler: Annotated[str, one_of((EXACT_SAMPLER, SEEDED_SAMPLER))]
    version: _Version
    numpy_version: _Version
    date: _Day
    encoder: str | None = None
    rule: str = ""
    accepted: tuple[str, ...] = ()
    digest: _Digest = ""

    def __reduce__(self) -> tuple[Any, ...]:
        # Read from a file, a record is checked as one of JSON is.
        return type(self).from_dict, (self.to_dict(),)

    def __deepcopy__(self, memo: Any) -> "Release":
        return self

    # -- public numbers -----------------------------------------------------------------------

    n_samples = _of_problem("n_samples", "Number of records.")
    n_features = _of_problem("n_features", "Number of features.")
    n_classes = _of_problem("n_classes", "Number of classes.")
    alpha = _of_problem("alpha", "Regularisation strength.")
    norm_bound = _of_problem("norm_bound", "Radius B of the ball of rows.")
    metric = _of_problem("metric", "Metric that radii are declared in.")
    radius = _of_problem("radius", "Radius in the units of ``metric``.")
    full_radius = _of_problem(
        "full_radius", "Radius in ``metric`` that every substitution of rows is within."
    )
    labels = _of_problem("labels", 'Whether label changes are hidden: "public" or "protected".')
    domain = _of_problem("domain", 'Where rows lie: in the "ball", or on the "sphere" of radius B.')

    weights = _of_problem(
        "loss_weights", "Public numbers of the weights of the records, in the loss if there is one."
    )
    unit = _of_problem(
        "loss_weights.unit",
        'What one substitution replaces: a "record", or all records of one "person".',
    )
    n_units = _of_problem("loss_weights.n_units", "Number of records, or of persons.")

    @property
    def unit_in_words(self) -> str:
        """The unit in words."""
        if self.unit == "record":
            return "one record"
        n_records = self.weights.most_records
        return f"one person (at most {n_records} record{'s' if n_records > 1 else ''})"

    @property
    def tol(self) -> float:
        """Gradient norm at which the minimiser was certified; 0 for others."""
        return float(getattr(self.bound, "tol", 0.0))

    # -- what follows from them ---------------------------------------------------------------

    @cached_property
    def mu(self) -> float:
        """Gaussian differential privacy of the parameters at the radius, sampler included.

        Of a descent it is that of all steps, and of the sums they start from, together.
        """
        return float(self.bound.mu(self.problem))

    def _mu_at(self, distance: float, labels: str) -> float:
        """Mu at a Euclidean radius; an error if that is less than at the declared one, within."""
        within = min(self.problem.euclidean_radius, distance)
        return check_rising(self.bound, self.problem, {within, distance}, labels)

    @property
    def rho(self) -> float:
        """The parameters' guarantee in zero-concentrated differential privacy: mu^2 / 2."""
        return 0.5 * self.mu**2

    @cached_property
    def _scales(self) -> tuple[Blocks, Blocks]:
        sensitivity, sigma = self.bound.stated(self.problem)
        sizes = self.problem.class_sizes
        if self.head != _PROTOTYPES or sizes is None:
            return sensitivity, sigma
        # Prototypes are public multiples of the class sums.
        divisors = 2.0 * sizes + self.problem.alpha * self.problem.sums_weights.total
        factors = np.where(sizes > 0.0, 2.0 / np.where(sizes > 0.0, divisors, 1.0), 0.0)
        return _blocks(factors * sensitivity), _blocks(factors * sigma)

    @property
    def sensitivity(self) -> Blocks:
        """L2 sensitivity; one number for each prototype or part where they differ.

        Of a descent it is empty where the steps follow from released sums.
        """
        return self._scales[0]

    @property
    def sigma(self) -> Blocks:
        """Noise scale, a standard deviation; as ``sensitivity``."""
        return self._scales[1]

    @property
    def private(self) -> bool | str:
        """True; False when a seed drew the noise; "conditional" on a radius declared public."""
        if self.sampler != EXACT_SAMPLER or self.radius_source == "seeded":
            return False
        return "conditional" if self.radius_source == "declared" else True

    @property
    def theorem(self) -> str:
        """The statement that the sensitivity rests on."""
        return self.bound.theorem(self.problem)

    @cached_property
    def epsilon_full_radius(self) -> float:
        """Epsilon at radius ``2 * norm_bound`` and the same delta (labels as in ``labels``)."""
        mu = self._mu_at(self.problem.diameter, self.labels)
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
            *((self.vouched_for,) if self.accepted else ()),
        )

    @property
    def vouched_for(self) -> str:
        """Which proofs the publisher alone vouches for, in words; empty where none."""
        if not self.accepted:
            return ""
        names = ", ".join(one_line(name, 80) for name in self.accepted)
        return f"the sensitivity of {names} is as the publisher states; nobody else has checked it"

    @property
    def has_weights(self) -> bool:
        """Whether records count by other weights than one over those of their owner."""
        differ = abs(self.weights.total - self.n_units) > 1e-9 * self.n_units
        return differ or self.problem.class_weights is not None

    @property
    def hidden_edits(self) -> str:
        """Which share of the edits the radius hides, in words; empty without edits."""
        if self.radius_edits == 0:
            return ""
        # Rounded down: they are claims.
        pairs, records = (
            None if share is None else f"{math.floor(1000.0 * share + 1e-9) / 10.0:g} %"
            for share in (self.radius_hides, self.radius_hides_records)
        )
        all_of = "" if records is None else f", and all of them for {records} of the records"
        return f"{pairs} of the {self.radius_edits} given edits{all_of}"

    def matches(self, model: Any) -> bool:
        """Whether the parameters of a ``model``, and its encoder, are those of this record.

        False as well for a model that is, or holds, no Ball-DP head.
        """
        # Models are estimators, which nothing else of this room needs.
        from ..pipelines import parts_of

        parts = parts_of(model)
        parameters = getattr(parts.head, "released_parameters", None)
        if parameters is None or parameters_digest(parameters()) != self.digest:
            return False
        # What only the weights could tell is no contradiction.
        named = None not in (self.encoder, parts.encoder)
        return not named or same_encoder(self.encoder, parts.encoder) is not False

    def guarantee(
        self, radius: float | None = None, labels: str | None = None, records: int = 1
    ) -> Guarantee:
        """Guarantee at any radius, and for any number of records, at this release's delta.

        For prototypes and the discriminant it is exact at Euclidean distances, for one record of
        one owner; for several records, and for noise on a minimiser or on gradients, it is an upper
        bound. If the radius was chosen privately, figures at a fixed other radius describe this run
        only.

        The ``radius`` is in the units of ``metric``, the declared one by default. ``labels`` is as
        in the release by default; "public" compares a release that protects labels with one that
        does not. ``records`` (or persons, see ``unit``) are replaced at once, each within the
        radius: mu, and what a private radius spent, count so many times.

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
        radius = self.radius if radius is None else radius
        distance, pure = self.problem.euclidean(radius), self.radius_epsilon
        mu = self._mu_at(distance, labels)
        if records > 1:
            mu = math.nextafter(records * mu, math.inf)
            pure = math.nextafter(records * pure, math.inf) if pure > 0.0 else 0.0
        epsilon = total_epsilon(mu, self.delta, pure)
        replaced = self.unit, int(records), self.weights.most_records
        kept = labels, self.private, pure, *replaced
        return Guarantee(float(radius), mu, epsilon, self.delta, *kept)

    def certificate(
        self,
        kappa: ArrayLike,
        radius: float | None = None,
        labels: str | None = None,
        records: int = 1,
    ) -> Any:
        """Upper bound on the probability that any attacker names the true record.

        The attacker knows all other records, and holds a list of candidates that lie within
        ``radius`` (the declared one by default) of one possible record, not of each other. The best
        blind guess succeeds with probability ``kappa``: ``1 / m`` for m equally likely candidates.
        If a guess that is near enough counts, it is the largest probability of any ball of that
        radius: ``(eta / r) ** d`` for a record that is uniform in a ball of radius r in d
        dimensions.

        In the ball of rows none is further than ``norm_bound`` from the zero record, so a larger
        Euclidean radius changes nothing. With labels protected no radius above the declared one
        does either (for several ``records``, or a person with several, if the candidates have one
        label). ``labels`` are "public" for candidates of one label. The bound is the direct
        Gaussian one, ``Phi(Phi^-1(kappa) + mu)``; of an array of guesses one for each.

        Raises
        ------
        ValueError
            If ``kappa`` is not a probability.

        References
        ----------
        Margaryan & Gupta, Ball-ReRo; the choice of the possible record is proved on the page
        "Attacks, and what bounds them".
        """
        return self.guarantee_of_candidates(radius, labels, records).certificate(kappa)

    def guarantee_of_candidates(
        self, radius: float | None = None, labels: str | None = None, records: int = 1
    ) -> Guarantee:
        """Guarantee whose certificate holds for candidates within a radius of a possible record.

        It is :meth:`guarantee` at the distance of the possible record that suits them best. Two of
        the candidates may be twice as far apart: between these it promises nothing. It holds
        at the distance to that possible record, and its labels; ``radius``, ``labels`` and
        ``records`` are as in :meth:`certificate`.
        """
        asked = self.guarantee(radius, labels, records)
        distance = asked.radius
        # Given a radius that was drawn, only the promise for all draws is a bound.
        drawn = radius is None and self.radius_source in ("private", "seeded")
        if self.domain == "ball" and not drawn:
            # No row is further from the zero record. One step more covers the rounding of the unit.
            modulus = METRICS[self.metric].euclidean_per_unit(self.n_features)
            distance = min(distance, math.nextafter(self.norm_bound / modulus, math.inf))
        guarantees = [self.guarantee(distance, labels, records)]
        alone = records == self.weights.most_records == 1
        if self.labels == "protected" and (asked.labels == "public" or alone):
            # A record of another label is next to all candidates of one label, however far. Those
            # of several labels are next to each other, and so is a point between their answers.
            guarantees.append(self.guarantee(labels="protected", records=records))
        return min(guarantees, key=lambda guarantee: guarantee.mu_total)

    # -- reading and writing ------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Give the record as JSON-ready built-in types, which :meth:`from_dict` reads.

        Fields that have their defaults are omitted; ``follows`` is computed, for human readers.

        Raises
        ------
        ValueError
            If it is too long to be read again.
        """
        record = {"format": FORMAT, **plain(self), "follows": plain(Follows.of(self), "follows")}
        return {**sized(record), "checksum": record_digest(record)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "Release":
        """Rebuild a ``record`` from :meth:`to_dict`, also after a JSON round trip.

        What ``follows`` shows is computed again. A record may state more of it (and of noise less),
        as a version with looser bounds does, and never less.

        Raises
        ------
        ValueError
            If a field is missing or unknown, holds what it cannot, or contradicts the others; the
            error names the field, its value and what it should be.
        """
        if not isinstance(record, Mapping):
            raise ValueError(
                f"record: expected a mapping, got {type(record).__name__}; of a fitted head pass "
                "release_."
            )
        with contradictions():
            return cls._read(record)

    @classmethod
    def _read(cls, record: Mapping[str, Any]) -> "Release":
        if record.get("format") != FORMAT:
            raise ValueError(
                f"record: format={one_line(repr(record.get('format')), 40)} is not known: "
                f"sklearn_balldp {__version__} reads format {FORMAT}. The record is of version "
                f"{one_line(repr(record.get('version')), 40)}; install that one, or a later one."
            )
        record = sized(record)
        said = record.get("bound")
        bound = read(kind_of(said), said, "bound")
        written = read(Record, record | {"bound": bound})
        check_same(plain(written), record)
        release = cls(**{field.name: getattr(written, field.name) for field in fields(cls)})
        check(release)
        _check_follows(written.follows, Follows.of(release))
        del record["checksum"]
        if written.checksum != record_digest(record):
            raise ValueError(
                f"record: checksum={written.checksum!r} is not that of the other fields, so one "
                "of them was edited after the record was written; ask for the original."
            )
        return release

    def checked(self) -> "Release":
        """The record itself; a ValueError where :meth:`from_dict` would not read it."""
        with contradictions():
            if self._read(self.to_dict()) != self:
                raise ValueError("record: its bound is not what is read from its own fields.")
        return self

    # -- in words -----------------------------------------------------------------------------

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
            spent = f"; with the radius epsilon={_up(self.guarantee().epsilon)}"
        parts = "prototypes" if self.head == _PROTOTYPES else self.bound.parts
        return [
            ("head", self.head),
            ("mechanism", self.bound.what),
            ("data", shape + (f", encoder {self.encoder}" if self.encoder else "")),
            (
                "hides",
                ("one record's" if self.unit == "record" else f"{self.unit_in_words}:")
                + f" substitution within {self.radius:g} ({self.metric})"
                + (f": {self.hidden_edits}" if self.hidden_edits else ""),
            ),
            ("labels", self.labels),
            (
                "guarantee",
                f"epsilon={self.epsilon:g}, delta={self.delta:g} (mu={_up(self.mu)}, "
                f"zCDP rho={_up(self.rho)}){spent}",
            ),
            *self.weight_rows(),
            ("at full radius", f"epsilon={_up(self.epsilon_full_radius)}, labels {self.labels}"),
            ("sensitivity", f"{_range(self.sensitivity, parts, UP)}; {self.theorem}"),
            ("noise scale", f"{_range(self.sigma, parts, DOWN)}; {self.sampler}"),
            ("private", private.get(str(self.private), str(self.private))),
            ("assumes", "; ".join(self.assumptions)),
            (
                "parameters",
                f"SHA-256 {self.digest[:16] or 'not yet known'}, {self.date}, "
                f"sklearn_balldp {self.version}, numpy {self.numpy_version}",
            ),
        ]

    def weight_rows(self) -> list[tuple[str, str]]:
        """Public weights in words, a title and a text; nothing where records count once each."""
        weights, factors = self.weights, self.problem.class_weights
        if weights.uniform:
            return []
        classes = ""
        if factors is not None:
            classes = f"; classes by {min(factors):.4g} to {max(factors):.4g}"
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


@dataclass(frozen=True, kw_only=True)
class Record(Release):
    """A release, and what its JSON says beside it."""

    format: Annotated[int, Meta(ge=FORMAT, le=FORMAT)]
    follows: Follows
    checksum: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


def json_schema() -> dict[str, Any]:
    """JSON Schema of records, made from the types that a reader checks.

    Returns
    -------
    dict
        JSON Schema (2020-12), with the bounds of this package alone.
    """
    return schema_of(Record)


def _blocks(values: Iterable[float]) -> Blocks:
    """One float where all agree to rounding, else a tuple."""
    blocks = as_float_or_tuple(values)
    if isinstance(blocks, tuple) and blocks and max(blocks) - min(blocks) <= 1e-9 * max(blocks):
        return max(blocks)
    return blocks


def _check_follows(said: Follows, computed: Follows) -> None:
    """Raise a ValueError if a record states too little, or of noise too much."""
    for name, expected in vars(computed).items():
        shown, more = getattr(said, name), _MAY_BE_MORE.get(name)
        if more is None:
            sound, should = type(shown) is type(expected) and shown == expected, "the same as"
        else:
            sign, should = (1.0, "at least") if more else (-1.0, "at most")
            s, c = (np.ravel(math.inf if value is None else value) for value in (shown, expected))
            sound = s.shape == c.shape and bool(
                ((s >= 0.0) & (sign * s >= sign * c * (1.0 - sign * ROUNDING))).all()
            )
        if not sound:
            raise ValueError(
                f"record: follows.{name}={one_line(repr(shown), 60)} does not follow from the rest "
                f"of it: it should be {should} {one_line(repr(expected), 60)}."
            )


def _up(value: float) -> str:
    """A bound in four digits, never below it."""
    return rounded(value, 4, UP) if math.isfinite(value) else "infinite"


def _range(values: Blocks, parts: str, way: str) -> str:
    """Of sensitivities no less than there is, of noise scales no more."""
    if isinstance(values, float):
        return rounded(values, 4, way) if math.isfinite(values) else "infinite"
    if not values:
        return f"one for each of its {parts}, which depends on released values"
    ends = dict.fromkeys(rounded(end, 4, way) for end in (min(values), max(values)))
    return f"{' to '.join(ends)} over {len(values)} {parts}"
