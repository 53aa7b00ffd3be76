"""Total guarantees of several releases from the same records."""

import math
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .._parameters import check_inside, check_option, check_positive, check_whole, is_real
from ..privacy.gaussian import (
    LARGEST_EPSILON,
    compose,
    epsilon_from_mu,
    mu_from_budget,
    mu_from_pure,
)
from ..privacy.release import Release
from .ledger import (
    Ledger,
    OtherRelease,
    Record,
    Row,
    adjacency_of,
    charged,
    check_adjacency,
    check_spent,
    read_record,
    square_of,
)
from .searching import selection_of, touching_one_record
from .tickets import Ticket, active_tickets, begin, end

#: What heads and scores release besides, and no total covers: as far as is known, all of it.
NOT_COVERED = (
    "scores on private rows, and what is chosen by them (a best candidate, columns, a threshold), "
    "unless the scores are private themselves",
    "what a wrapper fits on private scores beside the heads: a calibration, a stacked estimator, "
    "predictions for private rows",
    "steps that learn from private rows before a head",
    "folds, splits and samples that follow private labels (stratified ones, one-versus-one) or "
    "private rows, beside heads that protect labels",
    "seeds that a wrapper gives to heads (bagging): their noise hides nothing",
    "heads that a process of your own builds and fits",
)


@dataclass(frozen=True)
class Total:
    """Guarantee of several releases from the same records, taken together.

    Attributes
    ----------
    n_releases : int
        Releases counted.
    radius : float
        Substitutions hidden, in the releases' metric.
    mu : float
        Gaussian differential privacy parameter of them all.
    epsilon, delta : float
        They are together (epsilon, delta)-private for substitutions within ``radius``.
    labels : {"public", "protected"}
        Whether label changes are part of the adjacency.
    kind : {"a priori", "ex post"}
        "a priori": ``limit`` was enforced before each release. The limit is the guarantee, whatever
        was chosen on the way, and ``epsilon`` is what was used of it. "ex post": ``epsilon`` only
        adds up what was released. It is a guarantee if no release was chosen after seeing earlier
        outputs.
    private : bool or str
        False when a release was seeded; "conditional" when a radius was declared public.
    limit : float or None
        The enforced epsilon.
    selection : {None, "unprotected", "private", "public"}
        Of a search: whether the choice of the best candidate, and the scores, are covered.
    unit : {"record", "person"}
        What one substitution replaces: a record, or all records of one person.
    """

    n_releases: int
    radius: float | None
    mu: float
    epsilon: float
    delta: float
    labels: str
    kind: str
    private: bool | str
    limit: float | None = None
    selection: str | None = None
    unit: str = "record"

    @property
    def covers(self) -> str:
        """What the total is of, in words."""
        selection = {
            None: "",
            "unprotected": "; not the choice of the best candidate, nor the scores",
            "private": ", and the choice of the best candidate with its private scores",
            "public": ", and the choice of the best candidate by public rows",
        }[self.selection]
        return f"the heads' own fits, and what else was counted{selection}"

    def __str__(self) -> str:
        private = {
            "True": "yes",
            "False": "NO: a release was drawn from a seed",
            "conditional": "if a radius, a quantile of private rows, is public",
        }
        owners = "all records of a person are hidden together"
        if self.unit == "record":
            owners = (
                "NOT known: no fit was given groups=, so each record counts for itself (a search "
                "passes them to heads by metadata routing alone)"
            )
        within = "any distance" if self.radius is None else f"within {self.radius:g}"
        limit = "" if self.limit is None else f" of the limit {self.limit:g}"
        rows = [
            ("releases", str(self.n_releases)),
            ("hides", f"one {self.unit}'s substitution {within}, in all of them together"),
            ("owners", owners),
            ("labels", self.labels),
            (
                "guarantee",
                f"epsilon={self.epsilon:.4g}{limit}, delta={self.delta:g} (mu={self.mu:.4f}, "
                f"zCDP rho={0.5 * self.mu**2:.4f})",
            ),
            ("kind", self.kind),
            ("private", private[str(self.private)]),
            ("covers", self.covers),
            *zip(("NOT covered", *[""] * len(NOT_COVERED)), NOT_COVERED, strict=False),
        ]
        width = max(len(name) for name, _ in rows)
        return "Total\n" + "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)


def compose_releases(
    releases: Iterable[Release | Mapping[str, Any]],
    *,
    delta: float = 1e-6,
    radius: float | None = None,
) -> Total:
    """Total guarantee of releases, such as those read from JSON.

    Parameters
    ----------
    releases : iterable of Release or dict
        Releases from the same records, or their ``to_dict()``.
    delta : float, default=1e-6
        Delta of the total.
    radius : float, optional
        The radius that the total is stated at, in the releases' metric. Name their own radius: the
        default is the full radius, where the total is larger.

    Returns
    -------
    Total
        Labelled "ex post".

    Raises
    ------
    ValueError
        If there is none, one was drawn from a seed, or they differ in metric, norm bound, number
        of features, label adjacency, unit (records or persons) or declared encoder: no common
        adjacency covers them.

    Notes
    -----
    A radius is a distance between rows as the heads see them. Releases of rows from elsewhere
    (another encoder, rows scaled by 4) do not add up at one radius, and rows do not tell: declare
    ``encoder=`` on the heads, and releases that name different ones are refused. Nor do records
    tell whose rows they are: releases that hide persons must have been fitted with the same owners.

    References
    ----------
    Dong, Roth & Su (2022), Corollary 3.3; pure releases by their Gaussian cover, or added up,
    whichever is less.
    """
    known = [r if isinstance(r, Release) else Release.from_dict(r) for r in releases]
    if not known:
        raise ValueError("releases is empty; pass at least one release.")
    if any(release.private is False for release in known):
        raise ValueError("a release was drawn from a seed, which hides nothing; fit it without.")
    return _total(known, delta, radius)


def _total(
    records: Sequence[Record],
    delta: float,
    radius: float | None,
    touching: list[Record] | None = None,
) -> Total:
    """Compose records at a common radius; of a search those that touch one record are enough.

    Whether they are private, and which private radii they rest on, all of them decide.
    """
    releases = [record for record in records if isinstance(record, Release)]
    spent = [record for record in records if isinstance(record, OtherRelease)]
    labels, unit = "public", "record"
    if releases:
        known = [adjacency_of(release) for release in releases]
        for place, own in enumerate(known):
            check_adjacency(known[:place], own)
        labels, unit = releases[0].labels, releases[0].unit
        for item in spent:
            check_spent(labels, unit, item)
        if radius is None:
            radius = releases[0].full_radius
    mus = [
        record.guarantee(radius).mu if isinstance(record, Release) else record.mu
        for record in (records if touching is None else touching)
    ]
    pure = _pure_epsilons(releases, spent)
    mu = compose([*mus, *map(mu_from_pure, pure)])
    epsilon = epsilon_from_mu(mu, delta)
    if any(pure):
        summed = (epsilon_from_mu(compose(mus), delta) + sum(pure)) * (1.0 + 2.0**-50)
        epsilon = min(epsilon, summed)
    private: bool | str = True
    if any(record.private == "conditional" for record in records):
        private = "conditional"
    if any(record.private is False for record in records):
        # A known seed gives the noise away.
        private, mu, epsilon = False, math.inf, math.inf
    return Total(len(records), radius, mu, epsilon, delta, labels, "ex post", private, unit=unit)


def _pure_epsilons(releases: Iterable[Release], spent: Iterable[OtherRelease]) -> list[float]:
    """What was spent beside Gaussian noise: each private radius once, by its largest statement."""
    draws: dict[str, float] = {}
    stated = [(item.draw, item.epsilon) for item in spent]
    stated += [(release.radius_draw, release.radius_epsilon) for release in releases]
    for draw, epsilon in stated:
        if draw:
            draws[draw] = max(epsilon, draws.get(draw, 0.0))
    return [*draws.values(), *(epsilon for draw, epsilon in stated if not draw)]


class PrivacyAccountant:
    """Count every release made inside a ``with`` block, and in workers that estimators are sent to.

    It counts fits of Ball-DP heads, private radii and private scores: under ``clone``, Pipelines,
    searches and cross-validation of scikit-learn, with any ``n_jobs``; on threads; in processes
    that are forked inside the block; and wherever on this machine an unfitted estimator is sent by
    pickle.

    It does **not** count heads that another process builds by itself: in a function that you send
    to a pool, a script that you start, or a worker of a cluster. Build them inside the block and
    send them, or add up the releases that come back with :func:`compose_releases`. Nor
    can it see what rows mean: all fits must use one embedding and one scale (``encoder=`` on the
    heads declares them).

    No total covers:

    {NOT_COVERED}

    An interrupt or an error after noise was drawn leaves the charge where it is.

    The total is exact for Gaussian releases that are fixed beforehand. With a limit, a fit that
    would exceed it raises a :class:`.BudgetExceededError` before it touches the rows. That makes
    the limit a guarantee even when fits are chosen after seeing earlier results. Without a limit
    the total is "ex post": it only reports what has been released.

    It covers the models. Scores on private folds, and so the choice of the best candidate, are
    not covered unless they are private themselves (:class:`PrivateAccuracy`) or computed on public
    rows.

    Parameters
    ----------
    delta : float, default=1e-6
        The small allowance beside the total epsilon: the smaller it is, the larger that epsilon.
    radius : float or None, default=None
        Name the heads' radius here, or the total is larger than theirs. It is the common radius of
        the total and of the limit, in the heads' metric. None is the full radius
        ``2 * norm_bound``.
    limit : float or None, default=None
        Makes the total a guarantee: the largest total epsilon at (``delta``, ``radius``).
    n_fits : int or None, default=None
        Stops a search that is too expensive before its first fit. It is the number of fits that are
        planned, such as candidates times folds plus the refit, and needs a ``limit``. The first fit
        that the accountant sees is refused if that many like it would exceed the limit. Later ones
        are refused one by one, as without it.
    unit : {"record", "person"} or None, default=None
        What each release must hide. With "person" a fit that is given no ``groups=`` is refused
        before it touches the rows: scikit-learn's searches and cross-validation take ``groups=``
        for their splitter, and pass them to the heads by metadata routing alone. None takes what
        the first fit hides.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.preprocessing import normalize
    >>> from sklearn_balldp import BallDPRidgePrototype, PrivacyAccountant
    >>> X, y = load_digits(return_X_y=True)
    >>> with PrivacyAccountant(radius=0.6) as accountant:
    ...     head = BallDPRidgePrototype(epsilon=1.0, radius=0.6)
    ...     search = GridSearchCV(head, {"alpha": [0.01, 0.1, 1.0]}, cv=5).fit(normalize(X), y)
    >>> accountant.total().n_releases
    16
    >>> round(accountant.total().epsilon, 1), round(accountant.total(search=search).epsilon, 1)
    (4.6, 4.1)
    """

    def __init__(
        self,
        delta: float = 1e-6,
        radius: float | None = None,
        *,
        limit: float | None = None,
        n_fits: int | None = None,
        unit: str | None = None,
    ) -> None:
        check_inside("delta", delta)
        if radius is not None:
            check_positive("radius", radius, ", or None")
        if limit is not None and not (is_real(limit) and 0.0 < limit <= LARGEST_EPSILON):
            raise ValueError(f"limit must be a positive epsilon, or None, got {limit!r}.")
        if n_fits is not None:
            check_whole("n_fits", n_fits)
            if limit is None:
                raise ValueError(f"n_fits={n_fits!r} plans against a limit; pass limit= too.")
        if unit is not None:
            check_option("unit", unit, ("record", "person"))
        self._unit = unit
        self._n_fits = None if n_fits is None else int(n_fits)
        self._delta = float(delta)
        self._radius = None if radius is None else float(radius)
        self._limit = None if limit is None else float(limit)
        self._ticket: Ticket | None = None
        self._process = 0
        self._rows: list[Row] = []
        self._lost = False

    @property
    def delta(self) -> float:
        """Delta of the total; fixed, as the limit is enforced with it."""
        return self._delta

    @property
    def radius(self) -> float | None:
        """Common radius of the total and of the limit; fixed."""
        return self._radius

    @property
    def limit(self) -> float | None:
        """Largest total epsilon; fixed."""
        return self._limit

    def __enter__(self) -> "PrivacyAccountant":
        if self._ticket is not None:
            raise RuntimeError("this accountant is active already; make another one.")
        self._check_complete()
        ticket = Ticket.issue(self.delta, self.radius, self.limit, self._n_fits, self._unit)
        try:
            Ledger(ticket.path).create(self._rows)
            begin(ticket)
        except BaseException:
            shutil.rmtree(Path(ticket.path).parent, ignore_errors=True)
            raise
        self._ticket, self._process = ticket, os.getpid()
        return self

    def _check_complete(self) -> None:
        if self._lost:
            raise RuntimeError(
                "this accountant's ledger was lost before it could be read: it does not know what "
                "was released. Compose the releases themselves with compose_releases."
            )

    def __exit__(self, *_: object) -> None:
        ticket = self._ticket
        # A forked child that leaves the block ends nothing: the accountant is its parent's.
        if ticket is None or self._process != os.getpid():
            return
        self._lost = True
        try:
            self._rows = Ledger(ticket.path).close()
            self._lost = False
        finally:
            self._ticket = None
            end(ticket)
            shutil.rmtree(Path(ticket.path).parent, ignore_errors=True)

    def __reduce__(self) -> Any:
        raise TypeError("an accountant cannot be copied or pickled: its budget would start anew.")

    def spend(self, *, mu: float, what: str) -> None:
        """Count a release that was made by hand, before it is made.

        Parameters
        ----------
        mu : float
            Its Gaussian differential privacy for every substitution, at any distance (label
            changes too, beside heads that protect labels). Of values with Gaussian noise it is
            sensitivity over noise scale.
        what : str
            What it is, for the record.

        Raises
        ------
        ValueError
            If ``mu`` is no positive number, or would exceed the limit; then nothing is counted.
        RuntimeError
            If the accountant is not active: outside of its ``with`` block.
        """
        check_positive("mu", mu)
        if not (isinstance(what, str) and what):
            raise ValueError(f"what must name the release, got {what!r}.")
        if self._ticket is None or self._ticket not in active_tickets():
            raise RuntimeError("this accountant is not active; call spend inside its with block.")
        with charged(OtherRelease(what, mu=float(mu))):
            pass

    def _counted(self) -> list[Row]:
        self._check_complete()
        return self._rows if self._ticket is None else Ledger(self._ticket.path).rows()

    @property
    def records(self) -> list[Record]:
        """Everything counted: releases of heads, and what else was spent."""
        return [read_record(body) for body, *_ in self._counted()]

    @property
    def releases(self) -> list[Release]:
        """Releases of heads counted."""
        return [record for record in self.records if isinstance(record, Release)]

    def total(
        self,
        radius: float | None = None,
        *,
        search: Any = None,
        scored_on: str = "private",
        n_samples: int | None = None,
    ) -> Total:
        """Guarantee of everything counted.

        Parameters
        ----------
        radius : float, optional
            Common radius; the accountant's by default.
        search : fitted GridSearchCV or RandomizedSearchCV, optional
            Lowers the total: pass the search that made all the fits counted. If its folds are
            disjoint, each record is left out of one fit of each candidate.
        scored_on : {"private", "public"}, default="private"
            Whether the search scored on folds of the private rows, or on public rows.
        n_samples : int, optional
            Number of records of a search with ``refit=False``; otherwise the refit tells.

        Returns
        -------
        Total
            The guarantee of all counted releases together.

        Raises
        ------
        ValueError
            If the search did not make these fits, or its splits are not disjoint, or follow labels
            that the releases protect.
        """
        records = self.records
        heads = [record for record in records if isinstance(record, Release)]
        enforced = self.radius
        if enforced is None and heads:
            enforced = heads[0].full_radius
        radius = enforced if radius is None else float(radius)
        selection = touching = None
        if search is not None:
            selection = selection_of(search, scored_on)
            touching = touching_one_record(search, records, radius, n_samples)
        total = _total(records, self.delta, radius, touching)
        # What was enforced at a radius holds for closer substitutions, not for further ones.
        covered = self.limit is not None and (
            enforced is None or radius is None or radius <= enforced
        )
        return replace(
            total,
            n_releases=len(records),
            kind="a priori" if covered else "ex post",
            limit=self.limit if covered else None,
            selection=selection,
        )

    def remaining(self) -> float:
        """Epsilon that one more fit may spend before the limit.

        Returns
        -------
        float
            At the accountant's delta and radius; 0 when nothing is left.

        Raises
        ------
        ValueError
            If the accountant has no limit.
        """
        return self.plan(1)

    def plan(self, n_fits: int) -> float:
        """Epsilon that each of several fits may spend before the limit.

        Parameters
        ----------
        n_fits : int
            Fits that are to come: of a search, candidates times folds, and the refit.

        Returns
        -------
        float
            For heads with the accountant's delta and radius; 0 when nothing is left.

        Raises
        ------
        ValueError
            If ``n_fits`` is no positive whole number, or the accountant has no limit.
        """
        check_whole("n_fits", n_fits)
        if self.limit is None:
            raise ValueError("limit=None: no budget remains to be planned; pass limit=.")
        left = mu_from_budget(self.limit, self.delta) ** 2 - square_of(self._counted())
        # Room for the rounding of as many sums.
        mu = math.sqrt(max(left, 0.0) / n_fits) * (1.0 - 1e-9)
        if mu <= 0.0:
            return 0.0
        epsilon = epsilon_from_mu(mu, self.delta)
        while epsilon > 0.0 and mu_from_budget(epsilon, self.delta) > mu:
            epsilon *= 1.0 - 1e-9
        return epsilon

    def __repr__(self) -> str:
        state = "lost" if self._lost else "active" if self._ticket else "ended"
        rows = Ledger(self._ticket.path).rows() if self._ticket else self._rows
        return f"PrivacyAccountant({state}, {len(rows)} release(s))"


if PrivacyAccountant.__doc__:  # python -OO leaves out docstrings
    PrivacyAccountant.__doc__ = PrivacyAccountant.__doc__.replace(
        "{NOT_COVERED}", ";\n    ".join(f"- {point}" for point in NOT_COVERED) + "."
    )
