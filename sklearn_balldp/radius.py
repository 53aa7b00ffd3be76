"""Radii from distances between records, and what each costs.

The paper reads its radius off the training rows, which makes it a function of private records:
:class:`RadiusPolicy` offers three honest ways.
"""

import warnings
from bisect import bisect_right
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from ._parameters import Share, check_number, check_option, check_positive
from ._validation import all_finite, all_or_nothing, caller_level, validated
from .accounting import OtherRelease, PrivacyAccountant, count
from .accounting.accountant import check_accountant
from .adjacency import METRICS
from .distances import edit_quantile, same_label_quantile
from .pipelines import ByContent, RowWise
from .privacy.noise import check_random_state
from .privacy.origins import NUMBER, Declared, Edits, Origin, Reference
from .rows import project_onto_ball, rows_in_domain
from .showing import listed

SOURCES = ("reference", "edits", "declared")
#: Those that read public rows alone.
PUBLIC_SOURCES = SOURCES[:2]
COVERAGES = ("pairs", "records")
#: Public classes with fewer rows are named.
FEW_ROWS = 5
# Rows whose norm is B up to this relative error count as on the sphere: float32 rounds that much.
_SPHERE_TOLERANCE = 1e-6
#: Most private rows that a policy reads (but it reads at least two of each class).
MAX_ROWS_READ = 2**16


@dataclass(frozen=True)
class ChosenRadius:
    """A radius, and where it came from."""

    value: float | None  # radius in the units of the metric; None is the full radius
    metric: str
    origin: Origin = NUMBER
    norm_bound: float = 0.0  # radius of the ball that a policy projected rows onto
    #: Whether all public rows lie on its surface, so that scaling to it changes nothing.
    on_sphere: bool = False


@dataclass(eq=False, repr=False)
class RadiusPolicy(ByContent, RowWise, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Choose the radius that a Ball-DP head protects, and say what the choice costs.

    Pass it to a head as ``radius=RadiusPolicy(...)``. A search can then choose its parameters
    (``radius__quantile``), and the head's ``norm_bound`` and ``metric`` take the place of its own.
    As a step of a Pipeline it only projects rows onto the admissible ball: you can read its
    ``radius_``, but no head uses it.

    Parameters
    ----------
    quantile : float, default=0.5
        How much the radius covers, between 0 and 1: a larger quantile hides more, and takes more
        noise. Of edits it is the share that is to be hidden, at least; the default hides only half.
        Of same-label pairs it is the largest class's quantile of their distances; 1 is the
        same-label diameter.
    source : {"reference", "edits", "declared"}, default="reference"
        Which rows the distances come from, and so what the choice costs. "reference" reads public
        rows of the same kind (``X_public`` and ``y_public``), and costs no privacy; so does
        "edits", of public records before and after an edit that is to be hidden, such as another
        name or number in a text (:func:`.edit_pairs` makes such pairs): ``fit(X_before,
        X_after)``, or to a head ``X_public`` and ``y_public``.
        "declared" reads the private rows and declares their quantile public, as the paper does; the
        release is then private on that condition only. It reads at most 65536 rows (two of each
        class at least), also in stores and in Dask, and then refuses ``quantile=1``. Heads with
        ``protect_labels=True`` refuse it.
    coverage : {"pairs", "records"}, default="pairs"
        What ``quantile`` is a share of, for ``source="edits"``. "pairs" counts every edit by
        itself. "records" counts a record only if all of its edits lie within the radius: else an
        attacker tells it from the others that do not. It takes a larger radius, and needs
        ``fit(X_before, X_after, record=pairs.record)``, and the policy in a ``FrozenEstimator``
        for a head.
    norm_bound : float, default=1.0
        The radius of the admissible ball that rows are projected onto. A head uses its own instead.
    metric : {"euclidean", "manhattan", "chebyshev"}, default="euclidean"
        How distances between rows are measured. A head uses its own instead.
    accountant : PrivacyAccountant or None, default=None
        Notes a "declared" radius. Where it is None, a head that the policy is passed to has its
        own accountant note it.
    random_state : None, int, Generator or RandomState, default=None
        Draws the sampled pairs, which are no secret (None draws the same ones every time).

    Attributes
    ----------
    radius_ : float
        The radius, in units of ``metric``.
    choice_ : ChosenRadius
        The radius with its metric and where it came from (``origin``).
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Feature names, when the rows have string column names.

    References
    ----------
    Margaryan & Gupta (quantiles, "declared").

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from sklearn_balldp import BallDPRidgePrototype, RadiusPolicy
    >>> X, y = load_digits(return_X_y=True)
    >>> X = normalize(X)
    >>> head = BallDPRidgePrototype(epsilon=4.0, radius=RadiusPolicy(quantile=0.8))
    >>> release = head.fit(X[:1400], y[:1400], X_public=X[1400:], y_public=y[1400:]).release_
    >>> round(release.radius, 1), release.radius_from, release.private
    (0.9, Reference(), True)
    """

    _takes_accountant: ClassVar[bool] = True

    quantile: float = 0.5
    _: KW_ONLY
    source: str = "reference"
    coverage: str = "pairs"
    norm_bound: float = 1.0
    metric: str = "euclidean"
    accountant: Any = None
    random_state: Any = None

    def _check_parameters(self) -> None:
        check_number("quantile", self.quantile, Share)
        check_option("source", self.source, SOURCES)
        check_option("coverage", self.coverage, COVERAGES)
        check_option("metric", self.metric, METRICS)
        check_positive("norm_bound", self.norm_bound)
        check_random_state(self.random_state)
        check_accountant(self.accountant)

    def fit(
        self,
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        X_public: ArrayLike | None = None,
        y_public: ArrayLike | None = None,
        *,
        record: ArrayLike | None = None,
    ) -> "RadiusPolicy":
        """Choose the radius.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), optional
            The private rows, for "declared"; ``source="reference"`` does not look at
            them. With ``source="edits"`` they are the public rows before an edit.
        y : array-like of shape (n_samples,), optional
            Their labels. With ``source="edits"`` the rows after the edit, of shape (n_samples,
            n_features).
        X_public, y_public : array-like of shape (n_public, n_features), (n_public,), optional
            The public rows that ``source="reference"`` needs, and their labels. With
            ``source="edits"`` they take the place of ``X`` and ``y``.
        record : array-like of int, shape (n_samples,), optional
            For ``source="edits"``: number of the record that each pair came from
            (:attr:`.EditPairs.record`). Without it no share of records is stated.

        Returns
        -------
        self
            The fitted policy.

        Raises
        ------
        ValueError
            If a parameter is invalid, or the rows that the source needs are missing.
        """
        with all_or_nothing(self):
            chosen = self._chosen(X, y, X_public, y_public, record)
            self.radius_, self.choice_ = chosen.value, chosen
        return self

    def _chosen(self, X: Any, y: Any, X_public: Any, y_public: Any, record: Any) -> ChosenRadius:
        self._check_parameters()
        in_ball: dict[str, Any] = {"metric": self.metric, "norm_bound": self.norm_bound}
        if self.source == "edits":
            pair = (X, y) if X_public is None and y_public is None else (X_public, y_public)
            return choose_radius(self, *checked_edits(self, *pair), **in_ball, record=record)
        if record is not None:
            raise ValueError(
                f"record is for source='edits'; source={self.source!r} has no use for it: leave it "
                "out."
            )
        if self.source == "reference":
            if X_public is None or y_public is None:
                raise ValueError(
                    "source='reference' needs X_public and y_public, public rows given by name: "
                    "fit(X_public=rows, y_public=labels); or choose source='declared'."
                )
            return choose_radius(self, *validated(self, X_public, y_public, whole=True), **in_ball)
        if X is None or y is None:
            if X is not None:
                raise ValueError("requires y to be passed, but the target y is None.")
            raise ValueError(f"source={self.source!r} needs X and y: pass them to fit.")
        return choose_radius(self, *validated(self, X, y), **in_ball, accountant=self.accountant)

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Project rows onto the admissible ball, each on its own.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Rows of norm at most ``norm_bound``.
        """
        check_is_fitted(self)
        return project_onto_ball(validated(self, X, reset=False, whole=True), self.norm_bound)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def choose_radius(
    policy: RadiusPolicy,
    rows: Any,
    others: NDArray[Any],
    *,
    metric: str,
    norm_bound: float,
    domain: str = "ball",
    accountant: PrivacyAccountant | None = None,
    unit: str = "record",
    record: Any = None,
) -> ChosenRadius:
    """The radius of validated rows and their labels, or of rows before and after an edit."""
    origin: Origin = Declared() if policy.source == "declared" else Reference()
    on_sphere = False
    if policy.source not in PUBLIC_SOURCES:
        # Counted before rows are read, and never taken back: what fails may depend on them.
        spent = OtherRelease("radius", private="conditional", labels="public", unit=unit)
        count(accountant, spent)
        rows, others = rows_to_read(policy, rows, others)
    if domain == "sphere":
        # Radii are declared between scaled rows.
        rows = scaled_rows(rows, norm_bound)
        others = scaled_rows(others, norm_bound) if policy.source == "edits" else others
    quantile = float(policy.quantile)
    if policy.source == "edits":
        # In double precision: the record states the exact share of pairs within the radius.
        rows, others = (
            project_onto_ball(side.astype(np.float64), norm_bound) for side in (rows, others)
        )
        how = {"metric": metric, "coverage": policy.coverage, "record": record}
        value, share, of_records = edit_quantile(rows, others, quantile, **how)
        origin, rows = Edits(len(rows), share, of_records), np.concatenate([rows, others])
        what = "edits' distances is zero: too many edits leave their row as it was"
        remedy = "raise quantile, or pass other edits"
    else:
        rows = project_onto_ball(rows, norm_bound)
        if policy.source == "reference":
            _warn_of_small_classes(others)
        # Pairs are no secret, so that None always draws the same ones.
        stream = 0 if policy.random_state is None else policy.random_state
        if isinstance(stream, np.random.RandomState):
            stream = int(stream.randint(2**31))
        value = same_label_quantile(rows, others, quantile, metric=metric, random_state=stream)
        what, remedy = "same-label distances is zero: too many rows repeat", "raise quantile"
    if not value > 0.0:
        raise ValueError(f"quantile={policy.quantile!r} of the {what}; {remedy}.")
    if policy.source != "declared":
        # Whether private rows do is private.
        norms = np.linalg.norm(rows.astype(np.float64), axis=1)
        on_sphere = bool((np.abs(norms - norm_bound) <= _SPHERE_TOLERANCE * norm_bound).all())
    return ChosenRadius(value, metric, origin, float(norm_bound), on_sphere)


def scaled_rows(rows: NDArray[np.floating], norm_bound: float) -> NDArray[np.floating]:
    """Rows scaled to the sphere, in double precision."""
    with all_finite():
        return rows_in_domain(rows.astype(np.float64), norm_bound, "sphere")


def rows_to_read(
    policy: RadiusPolicy, X: Any, y: NDArray[Any]
) -> tuple[NDArray[np.floating], NDArray[Any]]:
    """The private rows that a policy reads, and their labels: of large classes evenly spaced ones.

    Positions depend on labels alone, so a substitution still changes one row. The largest distance
    of more rows than are read is refused.
    """
    if len(y) <= MAX_ROWS_READ:
        return (X.whole() if hasattr(X, "whole") else X), y
    codes = np.unique(y, return_inverse=True)[1]
    counts = np.bincount(codes)
    # The largest number of rows per class whose total is at most MAX_ROWS_READ.
    limit = bisect_right(
        range(counts.max()), MAX_ROWS_READ, key=lambda n: int(np.minimum(counts, n).sum())
    )
    classes = np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1])
    chosen = [
        members[np.linspace(0, len(members) - 1, min(len(members), max(2, limit - 1)), dtype=int)]
        for members in classes
    ]
    read = np.sort(np.concatenate(chosen))
    if policy.source == "declared" and policy.quantile == 1.0 and len(read) < len(y):
        raise ValueError(
            f"quantile=1.0 is the largest distance of all pairs, and of {len(y)} rows at most "
            f"{MAX_ROWS_READ} are read; lower quantile, or pass a radius."
        )
    return (X.at(read) if hasattr(X, "at") else X[read]), y[read]


def _warn_of_small_classes(labels: NDArray[Any]) -> None:
    """Warn of classes whose few public rows count as much as the many of others."""
    classes, counts = np.unique(labels, return_counts=True)
    small = classes[(counts > 1) & (counts < FEW_ROWS)].tolist()
    if small:
        warnings.warn(
            f"y_public: the classes {listed(small, 5)} have fewer than {FEW_ROWS} rows, and their "
            "few distances count as much as those of other classes; leave them out, or give more "
            "rows.",
            UserWarning,
            stacklevel=caller_level(),
        )


def checked_edits(
    estimator: Any, before: Any, after: Any, *, reset: bool = True
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Public rows before and after an edit, validated; a ValueError if they are no pairs."""
    if before is None or after is None or np.ndim(after) != 2:
        raise ValueError(
            "source='edits' needs public rows before and after an edit: pass fit(X_before, "
            "X_after), or to a head X_public=X_before and y_public=X_after."
        )
    first = validated(estimator, before, reset=reset, whole=True)
    second = validated(estimator, after, reset=False, whole=True)
    if first.shape != second.shape or len(first) == 0:
        raise ValueError(
            f"source='edits' needs pairs: {len(first)} rows before an edit, {len(second)} after."
        )
    return first, second
