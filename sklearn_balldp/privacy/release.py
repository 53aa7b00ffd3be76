"""The public record of one release: what was published, under which guarantee, and why."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import ArrayLike

from .._cached import cached_property
from .._parameters import Count, Epsilon, Inside, check_whole, one_of
from .._version import __version__
from ..adjacency import METRICS
from ..showing import one_line
from .bounds import Blocks, Bound, as_float_or_tuple, check_rising
from .contradictions import ROUNDING, check, loss_of, usual_mechanism
from .digest import record_digest
from .gaussian import epsilon_from_mu
from .guarantee import Guarantee
from .noise import EXACT_SAMPLER, SEEDED_SAMPLER
from .origins import NUMBER, Declared, Origin
from .problem import Problem
from .serialisation import (
    FORMAT,
    check_same,
    contradictions,
    jsonable,
    kind_of,
    read,
    schema_of,
    sized,
)

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
    problem : Problem
        Public numbers of the fit; many are attributes of the record too.
    bound : Bound
        What the mechanism chose: the guarantee as a function of the radius.
    epsilon, delta : float
        Guarantee at ``radius``.
    mechanism : str
        "prototypes" (noise on class sums), "statistics" (with a second moment), "output" (noise on
        the minimiser), "gradient" (noise on the gradients of a descent): it follows from ``head``
        and ``bound``, and only another's name is stated.
    radius_from : Number, Reference, Edits or Declared
        Where the radius came from: a public number, public reference rows, public records before
        and after an edit, or private rows, of which it was declared public.
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
    examples : int
        Number of public examples that the fit started from.
    digest : str
        SHA-256 of the released parameters (:func:`.parameters_digest`); empty before the run.
    """

    head: _ClassName
    problem: Problem
    bound: Bound
    epsilon: Epsilon
    delta: Inside
    mechanism: _Word = field(
        default="", metadata={"follows": lambda made: usual_mechanism(made.head, made.bound)}
    )
    radius_from: Origin = NUMBER
    sampler: Annotated[str, one_of((EXACT_SAMPLER, SEEDED_SAMPLER))]
    version: _Version
    numpy_version: _Version
    date: _Day
    encoder: str | None = None
    rule: str = ""
    accepted: tuple[str, ...] = ()
    examples: Count = 0
    digest: _Digest = ""

    def __post_init__(self) -> None:
        if not self.mechanism:
            object.__setattr__(self, "mechanism", usual_mechanism(self.head, self.bound))

    def __repr__(self) -> str:
        return (
            f"<Release of a {self.head}: epsilon={self.epsilon!r}, delta={self.delta!r}, "
            f"radius={self.radius!r} ({self.metric})>"
        )

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

    weights = _of_problem("sums_weights", "Public numbers of the weights of the records.")
    unit = _of_problem(
        "sums_weights.unit",
        'What one substitution replaces: a "record", or all records of one "person".',
    )
    n_units = _of_problem("sums_weights.n_units", "Number of records, or of persons.")

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
        if self.sampler != EXACT_SAMPLER:
            return False
        return "conditional" if isinstance(self.radius_from, Declared) else True

    @property
    def theorem(self) -> str:
        """The statement that the sensitivity rests on."""
        return self.bound.theorem(self.problem)

    @cached_property
    def epsilon_full_radius(self) -> float:
        """Epsilon at radius ``2 * norm_bound`` and the same delta (labels as in ``labels``)."""
        mu = self._mu_at(self.problem.diameter, self.labels)
        return epsilon_from_mu(mu, self.delta)

    def guarantee(
        self, radius: float | None = None, labels: str | None = None, records: int = 1
    ) -> Guarantee:
        """Guarantee at any radius, and for any number of records, at this release's delta.

        For prototypes and the discriminant it is exact at Euclidean distances, for one record of
        one owner; for several records, and for noise on a minimiser or on gradients, it is an upper
        bound.

        The ``radius`` is in the units of ``metric``, the declared one by default. ``labels`` is as
        in the release by default; "public" compares a release that protects labels with one that
        does not. ``records`` (or persons, see ``unit``) are replaced at once, each within the
        radius: mu counts so many times.

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
        mu = self._mu_at(self.problem.euclidean(radius), labels)
        if records > 1:
            mu = math.nextafter(records * mu, math.inf)
        epsilon = epsilon_from_mu(mu, self.delta)
        replaced = self.unit, int(records), self.weights.most_records
        kept = labels, self.private, *replaced
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
        blind guess succeeds with probability ``kappa``: ``1 / m`` for m equally likely candidates
        (if the fit had public examples, to somebody who has seen these).
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
        # Of each possible record that is near to all candidates: the centre of their ball,
        possible = [asked]
        if self.domain == "ball":
            # the zero record, where no row is further from it than B (rounded up in the unit),
            modulus = METRICS[self.metric].euclidean_per_unit(self.n_features)
            to_zero = math.nextafter(self.norm_bound / modulus, math.inf)
            possible.append(self.guarantee(to_zero, labels, records))
        alone = records == self.weights.most_records == 1
        if self.labels == "protected" and (asked.labels == "public" or alone):
            # and one of another label, which is next to all candidates of one label, however far.
            # Those of several labels are next to each other: a point lies between their answers.
            possible.append(self.guarantee(labels="protected", records=records))
        return min(possible, key=attrgetter("mu", "radius"))

    # -- reading and writing ------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Give the record as JSON-ready built-in types, which :meth:`from_dict` reads.

        Fields that have their defaults, or follow from others, are left out; ``follows`` shows what
        else does, for those who read it with other tools.

        Raises
        ------
        ValueError
            If it is too long to be read again.
        """
        record = {"format": FORMAT, **self._stated(), "follows": jsonable(Follows.of(self))}
        return {**sized(record), "checksum": record_digest(record)}

    def _stated(self) -> dict[str, Any]:
        """What is no version, checksum or consequence."""
        stated: dict[str, Any] = jsonable(self)
        if self.problem.loss == loss_of(self.head, self.problem.n_classes):
            stated["problem"].pop("loss", None)
        return stated

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
        release, written = cls._made(record)
        beside = {name: record[name] for name in ("format", "checksum")}
        follows = jsonable(written.follows)
        check_same({**release._stated(), **beside, "follows": follows}, record)
        _check_follows(written.follows, release)
        del record["checksum"]
        if written.checksum != record_digest(record):
            raise ValueError(
                f"record: checksum={written.checksum!r} is not that of the other fields, so one "
                "of them was edited after the record was written; ask for the original."
            )
        return release

    @classmethod
    def _made(cls, record: dict[str, Any]) -> "tuple[Release, Record]":
        """The release of a record of the right types, and all that the record says."""
        said = record.get("bound")
        bound = read(kind_of(said), said, "bound")
        written = read(Record, record | {"bound": bound})
        held = {field.name: getattr(written, field.name) for field in fields(cls)}
        loss = loss_of(written.head, written.problem.n_classes)
        if loss is not None:
            held["problem"] = replace(written.problem, loss=loss)
        return cls(**held), written

    def checked(self) -> "Release":
        """The record itself; a ValueError where :meth:`from_dict` would not read it."""
        with contradictions():
            release, written = self._made(self.to_dict())
            if release != self:
                raise ValueError("record: it is not what is read from its own fields.")
            _check_follows(written.follows, release)
        return self


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


def _check_follows(said: Follows, release: Release) -> None:
    """Raise a ValueError if a record contradicts itself, or what it says follows from it."""
    check(release)
    for name, expected in vars(Follows.of(release)).items():
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
