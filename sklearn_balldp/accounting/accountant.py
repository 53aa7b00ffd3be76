"""Total guarantees of several releases from the same records."""

import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator

from .._parameters import check_positive, check_whole
from ..privacy.gaussian import epsilon_from_mu, mu_from_budget
from ..privacy.release import Release
from ..showing import UP, rounded
from .ledger import (
    Charge,
    Ledger,
    LedgerError,
    OtherRelease,
    Record,
    charge_of,
    hidden_by_all,
    kinds_of,
    mu_of,
)

#: What heads and scores release besides, and no total covers: all of it, as far as we know.
NOT_COVERED = (
    "scores on private rows, and what is chosen by them (a best candidate, columns, a threshold), "
    "unless the scores are private themselves",
    "what a wrapper fits on private scores beside the heads: a calibration, a stacked estimator, "
    "predictions for private rows",
    "steps that learn from private rows before a head",
    "folds, splits and samples that follow private labels (stratified ones, one-versus-one) or "
    "private rows, beside heads that protect labels",
    "seeds that a wrapper gives to heads (bagging): their noise hides nothing",
    "heads, policies and scores that the accountant was not passed to",
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
        Whether label changes are part of the adjacency: only if every release hides them.
    kind : {"a priori", "ex post"}
        "a priori": ``limit`` was enforced before each release. The limit is the guarantee, whatever
        was chosen on the way, and ``epsilon`` is what was used of it. "ex post": ``epsilon`` only
        adds up what was released. It is a guarantee if no release was chosen after seeing earlier
        outputs.
    private : bool or str
        False when a release was seeded; "conditional" when a radius was declared public.
    limit : float or None
        The enforced epsilon.
    unit : {"record", "person"}
        What one substitution replaces: a record, or all records of one person if every release
        hides those.
    epsilon_full_radius : float or None
        Of :func:`compose_releases`: epsilon at any distance, where ``radius`` is smaller.
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
    unit: str = "record"
    epsilon_full_radius: float | None = None

    def __str__(self) -> str:
        private = {
            "True": "yes",
            "False": "NO: a release was drawn from a seed",
            "conditional": "if a radius, a quantile of private rows, is public",
        }
        owners = "all records of a person are hidden together"
        if self.unit == "record":
            owners = (
                "NOT known: a fit was given no groups=, so each record counts for itself (a search "
                "passes them to heads by metadata routing alone)"
            )
        if self.n_releases == 0:
            owners = "nothing was counted so far"
        within = "any distance" if self.radius is None else f"within {self.radius:g}"
        limit = "" if self.limit is None else f" of the limit {self.limit:g}"
        anywhere = []
        if self.epsilon_full_radius is not None:
            shown = f"epsilon={rounded(self.epsilon_full_radius, 4, UP)}"
            anywhere = [("any distance", shown)]
        rows = [
            ("releases", str(self.n_releases)),
            ("hides", f"one {self.unit}'s substitution {within}, in all of them together"),
            ("owners", owners),
            ("labels", self.labels),
            (
                "guarantee",
                f"epsilon={rounded(self.epsilon, 4, UP)}{limit}, delta={self.delta:g} "
                f"(mu={rounded(self.mu, 4, UP)}, zCDP rho={rounded(0.5 * self.mu**2, 4, UP)})",
            ),
            *anywhere,
            ("kind", self.kind),
            ("private", private[str(self.private)]),
            ("covers", "what was counted: the fits of heads, and what else was spent"),
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
        The radius that the total holds at, in the releases' metric. The default is theirs if it is
        one and the same, else the full radius, where the total is larger.

    Returns
    -------
    Total
        Labelled "ex post". A ValueError if there is none, one was drawn from a seed, or they differ
        in metric, norm bound, domain, number of features or declared encoder: no common adjacency
        covers them.

    Notes
    -----
    A radius is a distance between rows as the heads see them. Releases of rows from elsewhere
    (another encoder, rows scaled by 4) do not add up at one radius, and rows do not tell: declare
    ``encoder=`` on the heads, and releases that name different ones are refused. Nor do records
    tell whose rows they are: releases that hide persons must have been fitted with the same owners.

    A release that protects labels hides substitutions of one label too, and one that hides persons
    hides single records. Beside others they count as such: the total states what all of them hide.

    References
    ----------
    Dong, Roth & Su (2022), Corollary 3.3.
    """
    records = [r if isinstance(r, Release) else Release.from_dict(r) for r in releases]
    if not records:
        raise ValueError("releases is empty; pass at least one release.")
    if any(release.private is False for release in records):
        raise ValueError("a release was drawn from a seed, which hides nothing; fit it without.")
    radii = {release.radius for release in records}
    if radius is None and len(radii) == 1:
        [radius] = radii
    total, anywhere = (
        _total([charge_of(release, at) for release in records], delta, at) for at in (radius, None)
    )
    if total.radius == anywhere.radius:
        return total
    return replace(total, epsilon_full_radius=anywhere.epsilon)


def _total(charges: Sequence[Charge], delta: float, radius: float | None) -> Total:
    """Compose charges that were made out at one radius."""
    kinds = kinds_of(charge.kind for charge in charges)
    if radius is None:
        radius = next((kind["full_radius"] for kind in kinds if "full_radius" in kind), None)
    mu = mu_of(charges)
    epsilon = epsilon_from_mu(mu, delta)
    return Total(
        len(charges),
        radius,
        mu,
        epsilon,
        delta,
        hidden_by_all(kinds, "labels", "protected", "public"),
        "ex post",
        # A seed gives the noise away; a declared radius makes everything conditional.
        next((p for p in (False, "conditional") if p in [k["private"] for k in kinds]), True),
        unit=hidden_by_all(kinds, "unit", "person", "record"),
    )


def _of_terms(name: str, doc: str) -> Any:
    """A term of the ledger as an attribute of its accountant."""
    return property(attrgetter(f"ledger.terms.{name}"), doc=doc)


class PrivacyAccountant:
    """A ledger in which heads, policies and scores count what they release, before they do.

    Pass it to each of them, ``BallDPRidgePrototype(accountant=accountant)``, or to all parts of a
    model by :meth:`attach`. Their clones, copies and pickles count in the same ledger: in searches,
    votes and calibrations of scikit-learn with any ``n_jobs``, on threads, and in processes of this
    machine. What it was not passed to is not counted. All fits must use one embedding and one scale
    (``encoder=`` on the heads declares them), which rows do not tell.

    The ledger is a file, so that a budget outlives the process that made it. A charge is on disk
    before a query reads the rows, and is never taken back, whatever fails then: the total may count
    too much, and never too little. A fit is refused if the file is missing, locked, damaged, an
    older copy or another one, and also if it would exceed a limit (:class:`.BudgetExceededError`).

    No total covers:

    {NOT_COVERED}

    Parameters
    ----------
    path : str or path-like, optional
        The file of the ledger, on a disk of this machine. It is made if it is missing; otherwise
        counting goes on in it, with the terms of the file: leave them out, or repeat them. Without
        a path the ledger lives as long as this object.
    delta : float, optional
        The small allowance beside the total epsilon; 1e-6 in a new ledger.
    radius : float, optional
        Common radius of the total and of the limit, in the heads' metric: name theirs, or the total
        is larger. In a new ledger None is the full radius ``2 * norm_bound``.
    limit : float, optional
        The largest total epsilon at (``delta``, ``radius``). It is a guarantee even when fits are
        chosen after seeing earlier results. Without a limit the total is "ex post": it only reports
        what has been released.
    labels : {"public", "protected"}, optional
        What each release must hide. "protected" refuses what takes labels for public; a
        total of both kinds would cover substitutions of one label alone. "public" in a new ledger.
    unit : {"record", "person"}, optional
        What each release must hide. "person" refuses a fit without ``groups=``
        before it touches the rows: scikit-learn's searches and cross-validation take ``groups=``
        for their splitter, and pass them to the heads by metadata routing alone. "record" in a new
        ledger.

    Attributes
    ----------
    ledger : Ledger
        The file and its terms.

    Raises
    ------
    ValueError
        If a term is invalid, or not that of the file.
    OSError
        If the file cannot be made or read.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.preprocessing import normalize
    >>> from sklearn_balldp import BallDPRidgePrototype, PrivacyAccountant
    >>> X, y = load_digits(return_X_y=True)
    >>> accountant = PrivacyAccountant(radius=0.6, limit=5.0)
    >>> head = BallDPRidgePrototype(epsilon=1.0, radius=0.6, accountant=accountant)
    >>> search = GridSearchCV(head, {"alpha": [0.01, 0.1, 1.0]}, cv=5).fit(normalize(X), y)
    >>> accountant.total().n_releases
    16
    >>> round(accountant.total().epsilon, 1)
    4.6
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        delta: float | None = None,
        radius: float | None = None,
        limit: float | None = None,
        labels: str | None = None,
        unit: str | None = None,
    ) -> None:
        terms = {"delta": delta, "radius": radius, "limit": limit, "labels": labels, "unit": unit}
        asked = {name: value for name, value in terms.items() if value is not None}
        lasting = path is not None
        if path is None:
            folder = tempfile.mkdtemp(prefix="balldp-")
            path = os.path.join(folder, "temporary.ledger")
            weakref.finalize(self, _remove, folder, os.getpid())
        self.ledger = Ledger(os.path.abspath(path), asked, lasting=lasting)

    delta = _of_terms("delta", "Delta of the total; fixed, as the limit is enforced with it.")
    radius = _of_terms("radius", "Common radius of the total and of the limit; fixed.")
    limit = _of_terms("limit", "Largest total epsilon; fixed.")

    # One budget, whoever holds it: a copy would spend it again.

    def __sklearn_clone__(self) -> "PrivacyAccountant":
        return self

    __copy__ = __sklearn_clone__

    def __deepcopy__(self, memo: Any) -> "PrivacyAccountant":
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PrivacyAccountant) and self._names() == other._names()

    def __hash__(self) -> int:
        return hash(self._names())

    def _names(self) -> tuple[str, str]:
        return self.ledger.path, self.ledger.terms.name

    def attach(self, model: Any) -> Any:
        """Pass this accountant to every part of a model that releases something.

        Parameters
        ----------
        model : estimator
            A head, a policy, a Pipeline, a search with its grid and its scores, or anything else
            that holds them as parameters. Parts in a ``FrozenEstimator`` release nothing more.

        Returns
        -------
        estimator
            The model itself; a ValueError if no part of it takes an accountant, or a head has no
            such parameter.
        """
        parts = list(_releasing_parts(model, {}))
        for part in parts:
            if hasattr(part, "get_params") and "accountant" not in part.get_params(deep=False):
                raise ValueError(
                    f"{type(part).__name__} has no parameter accountant, so that its clones would "
                    "not be counted; add accountant=None to its __init__."
                )
        if not parts:
            raise ValueError(
                f"no part of this {type(model).__name__} takes an accountant: pass a Ball-DP head, "
                "a RadiusPolicy or a PrivateAccuracy, or an estimator that holds one."
            )
        for part in parts:
            part.accountant = self
        return model

    def spend(self, *, mu: float, what: str) -> None:
        """Count a release that was made by hand, before it is made.

        Parameters
        ----------
        mu : float
            Its Gaussian differential privacy for every substitution, at any distance (label
            changes too, beside heads that protect labels). Of values with Gaussian noise it is
            sensitivity over noise scale. If it would exceed the limit, nothing is counted.
        what : str
            What it is, for the record.
        """
        check_positive("mu", mu)
        if not (isinstance(what, str) and what):
            raise ValueError(f"what must name the release, got {what!r}.")
        self.ledger.add(OtherRelease(what, mu=float(mu)))

    @property
    def records(self) -> list[Record]:
        """Everything counted: releases of heads, and what else was spent."""
        return self.ledger.records()

    @property
    def releases(self) -> list[Release]:
        """Releases of heads counted, as they stood before their noise was drawn."""
        return [record for record in self.records if isinstance(record, Release)]

    def total(self, radius: float | None = None) -> Total:
        """Guarantee of everything counted.

        Parameters
        ----------
        radius : float, optional
            Common radius; the accountant's by default.

        Returns
        -------
        Total
            The guarantee of all counted releases together.
        """
        total = _total(self.ledger.charges(), self.delta, self.radius)
        enforced = total.radius
        if radius is not None:
            check_positive("radius", radius)
            charges = [charge_of(record, radius) for record in self.records]
            total = _total(charges, self.delta, float(radius))
        # What was enforced at a radius holds for closer substitutions, not for further ones.
        if self.limit is None or (radius and enforced is not None and radius > enforced):
            return total
        return replace(total, kind="a priori", limit=self.limit)

    def remaining(self, n_fits: int = 1) -> float:
        """Epsilon that each of so many more fits may spend before the limit.

        Parameters
        ----------
        n_fits : int, default=1
            Fits that are to come: of a search, candidates times folds, and the refit.

        Returns
        -------
        float
            For heads with the accountant's delta and radius; 0 when nothing remains. A ValueError
            if the accountant has no limit.
        """
        check_whole("n_fits", n_fits)
        if self.limit is None:
            raise ValueError("limit=None: no budget remains to be planned; pass limit=.")
        square = mu_from_budget(self.limit, self.delta) ** 2 - mu_of(self.ledger.charges()) ** 2
        # Room for the rounding of as many sums.
        mu = math.sqrt(max(square, 0.0) / n_fits) * (1.0 - 1e-9)
        if mu <= 0.0:
            return 0.0
        epsilon = epsilon_from_mu(mu, self.delta)
        while epsilon > 0.0 and mu_from_budget(epsilon, self.delta) > mu:
            epsilon *= 1.0 - 1e-9
        return epsilon

    def __repr__(self) -> str:
        name = os.path.basename(self.ledger.path)
        try:
            total = self.total()
        except LedgerError:
            return f"PrivacyAccountant({name!r}, cannot be read)"
        limit = "" if self.limit is None else f", limit={self.limit:g}"
        spent = f"epsilon={rounded(total.epsilon, 4, UP)}{limit}, n_releases={total.n_releases}"
        return f"PrivacyAccountant({name!r}, {spent})"


def check_accountant(value: Any) -> None:
    """Raise a ValueError unless ``value`` is an accountant or None."""
    if not (value is None or isinstance(value, PrivacyAccountant)):
        raise ValueError(
            f"accountant must be a PrivacyAccountant or None, got a {type(value).__name__}; for a "
            "ledger in a file pass PrivacyAccountant(PATH)."
        )


def _remove(folder: str, process: int) -> None:
    """Remove a temporary ledger with its object: a forked child holds a copy, and not the file."""
    if process == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)


def _releasing_parts(value: Any, visited: dict[int, Any]) -> Iterator[Any]:
    """Heads, policies and scores among the parameters of a model, in lists and mappings too."""
    if id(value) in visited or isinstance(value, (FrozenEstimator, type)):
        return
    visited[id(value)] = value  # kept, so that its number does not become another's
    inner: Iterable[Any] = ()
    if isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, (list, tuple, set)) or getattr(value, "dtype", None) == np.dtype(object):
        inner = value
    elif hasattr(value, "get_params"):
        inner = value.get_params(deep=False).values()
    if getattr(value, "_takes_accountant", False):
        yield value
    for part in inner:
        yield from _releasing_parts(part, visited)


if PrivacyAccountant.__doc__:  # python -OO leaves out docstrings
    PrivacyAccountant.__doc__ = PrivacyAccountant.__doc__.replace(
        "{NOT_COVERED}", ";\n    ".join(f"- {point}" for point in NOT_COVERED) + "."
    )
