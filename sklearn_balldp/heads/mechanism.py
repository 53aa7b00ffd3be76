"""What a mechanism is: it promises from public numbers, and runs on rows once it was charged.

A mechanism of one's own derives from :class:`Mechanism` and brings a :class:`.Bound`. A linear head
takes it as ``mechanism=``; release, JSON, accountant and auditor then work as with the others.
"""

import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from ..privacy.bounds import Blocks, Bound
from ..privacy.gaussian import mu_from_budget
from ..privacy.noise import Noise
from ..privacy.release import Release
from ..privacy.rounding import BLOCK
from ..privacy.weights import Weights, effective_size_of, is_weighted, total_of

Array = NDArray[np.float64]
Rows = NDArray[np.floating]
Codes = NDArray[np.intp]


@dataclass(frozen=True)
class Budget:
    """What a release may spend at the radius of its problem.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee asked for.
    """

    epsilon: float
    delta: float

    @property
    def mu(self) -> float:
        """The same as Gaussian differential privacy: the largest mu that keeps it."""
        return mu_from_budget(self.epsilon, self.delta)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Public numbers of a fit, all that a promise may rest on.

    Numbers are Python's: NumPy scalars of few bits would overflow in the bounds.

    Attributes
    ----------
    n_samples, n_features : int
        Shape of the rows.
    classes : ndarray of shape (n_classes,)
        Labels.
    class_counts : tuple of int or None
        Public class counts; None where labels are protected.
    alpha, norm_bound : float
        Regularisation strength, and radius B of the admissible ball.
    radius : float
        Euclidean radius of the adjacency.
    metric : {"euclidean", "manhattan", "chebyshev"}
        Metric that radii are declared in.
    labels : {"public", "protected"}
        Whether label changes are adjacent.
    loss : str
        Loss of a linear head; empty for another head.
    fit_intercept : bool
        Whether a linear head has an intercept.
    domain : {"ball", "sphere"}
        Whether rows are projected onto the ball, or all scaled to norm B.
    class_embeddings : ndarray of shape (n_classes, n_features) or None
        Public vector for each class, which noisy class means are shrunk towards.
    sums_weights, loss_weights : Weights or None
        Public numbers of the records' weights in sums, and in the loss, where those of their
        classes join them; None where every record counts once, and is all that its owner has.
    """

    n_samples: int
    n_features: int
    classes: NDArray[Any]
    class_counts: tuple[int, ...] | None
    alpha: float
    norm_bound: float
    radius: float
    metric: str
    labels: str
    loss: str = ""
    fit_intercept: bool = False
    domain: str = "ball"
    class_embeddings: Array | None = None
    sums_weights: Weights | None = None
    loss_weights: Weights | None = None

    @property
    def n_classes(self) -> int:
        """Number of labels."""
        return len(self.classes)

    @property
    def effective_size(self) -> float:
        """What takes the place of the number of records in a mean loss."""
        return effective_size_of(self.loss_weights, self.n_samples)

    @property
    def class_weights(self) -> tuple[float, ...] | None:
        """Weight of each class in the loss; None where all are 1."""
        return None if self.loss_weights is None else self.loss_weights.by_class

    @property
    def sums_effective_size(self) -> float:
        """What takes the place of the number of records in sums."""
        return effective_size_of(self.sums_weights, self.n_samples)

    @property
    def sums_total(self) -> float:
        """Total weight in sums; the number of records without weights."""
        return total_of(self.sums_weights, self.n_samples)

    @property
    def class_sizes(self) -> Array | None:
        """Total weight of each class in sums; its records without weights."""
        if self.class_counts is None:
            return None
        totals = None if self.sums_weights is None else self.sums_weights.class_totals
        return np.array(self.class_counts if totals is None else totals, dtype=np.float64)

    @property
    def public_counts(self) -> NDArray[Any] | None:
        """Records of each class, or their weights in sums; None where labels are protected."""
        if self.class_counts is None:
            return None
        return self.class_sizes if is_weighted(self.sums_weights) else np.array(self.class_counts)

    def with_rows(
        self, X: Rows, codes: Codes, row_weights: Array | None = None
    ) -> "PrivateProblem":
        """The problem with its private records, for :meth:`Mechanism.run`.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            Rows.
        codes : ndarray of shape (n_samples,)
            Positions of their labels among ``classes``.
        row_weights : ndarray of shape (n_samples,), optional
            Weight of each record in sums; 1 by default.

        Returns
        -------
        PrivateProblem
            Of as many records as there are rows.
        """
        public = {item.name: getattr(self, item.name) for item in fields(Problem)}
        public["n_samples"] = len(X)
        return PrivateProblem(**public, X=X, codes=codes, row_weights=row_weights)


@dataclass(frozen=True, kw_only=True)
class PrivateProblem(Problem):
    """A problem with its rows, for :meth:`Mechanism.run`.

    Attributes
    ----------
    X : ndarray of shape (n_samples, n_features)
        Rows, not yet projected onto the ball or scaled to the sphere
        (``sklearn_balldp.rows.rows_in_domain`` does both).
    codes : ndarray of shape (n_samples,)
        Positions of the records' labels among ``classes``.
    row_weights : ndarray of shape (n_samples,) or None
        Weight of each record in sums; None where all are 1.
    """

    X: Rows = field(repr=False)
    codes: Codes = field(repr=False)
    row_weights: Array | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        # Weights must not be lost on the way: noise is calibrated to them.
        weighted = is_weighted(self.sums_weights)
        if weighted != (self.row_weights is not None):
            raise RuntimeError("the weights of the records are not those of the problem.")

    def counts(self) -> Array:
        """Weight of each class in sums: public only while labels are public.

        Returns
        -------
        ndarray of shape (n_classes,)
            Without weights the number of its records.
        """
        if self.row_weights is None:
            return np.bincount(self.codes, minlength=self.n_classes).astype(np.float64)
        # No term may pass through more additions than are accounted for: blocks, and then pairs.
        blocks = [
            np.bincount(self.codes[a : a + BLOCK], self.row_weights[a : a + BLOCK], self.n_classes)
            for a in range(0, len(self.codes), BLOCK)
        ]
        counted: Array = np.ascontiguousarray(np.transpose(blocks)).sum(axis=1)
        return counted

    @property
    def loss_row_weights(self) -> Array | None:
        """Weight of each record in the loss; None where all are 1."""
        if self.class_weights is None:
            return self.row_weights
        own = np.array(self.class_weights)[self.codes]
        return own if self.row_weights is None else own * self.row_weights

    def with_precision(self, dtype: Any) -> "PrivateProblem":
        """The same records in another precision.

        Parameters
        ----------
        dtype : dtype
            Of the rows.

        Returns
        -------
        PrivateProblem
            With a copy of the rows.
        """
        return replace(self, X=self.X.astype(dtype))

    def without(self, left_out: Codes) -> "PrivateProblem":
        """All records but some, with the public numbers of all of them.

        Parameters
        ----------
        left_out : ndarray of shape (n_left_out,)
            Positions of the others.

        Returns
        -------
        PrivateProblem
            Of fewer records.
        """
        weights = self.row_weights
        return self.with_rows(
            np.delete(self.X, left_out, axis=0),
            np.delete(self.codes, left_out),
            None if weights is None else np.delete(weights, left_out),
        )

    def replaced(self, left_out: Any, row: Rows, code: Any) -> "PrivateProblem":
        """The neighbour in which a record, or several of one person, changed.

        Parameters
        ----------
        left_out : int or ndarray of shape (n_changed,)
            Position of the record that leaves, or positions of those that do.
        row : ndarray of shape (n_features,) or (n_changed, n_features)
            Rows that take their places, with their weights.
        code : int or ndarray of shape (n_changed,)
            Their classes.

        Returns
        -------
        PrivateProblem
            As many records.
        """
        X = self.X.astype(np.promote_types(self.X.dtype, row.dtype))
        codes = self.codes.copy()
        X[left_out], codes[left_out] = row, code
        return replace(self, X=X, codes=codes)


@dataclass(frozen=True)
class Promise:
    """What a mechanism states before it touches the rows.

    Attributes
    ----------
    bound : Bound
        The guarantee at every radius; at the problem's it must keep the budget.
    sensitivity, sigma : float or tuple of float
        L2 sensitivity at the problem's radius, and noise scale, for the record, where the bound
        does not tell them (:meth:`.Bound.scales`); empty where they are known after the run only.
    """

    bound: Bound
    sensitivity: Blocks = ()
    sigma: Blocks = ()


@dataclass(frozen=True)
class Outcome:
    """What a mechanism released: public from here on.

    Attributes
    ----------
    parameters : ndarray
        Noisy parameters: for linear heads of shape (n_scores, n_features), with one more column for
        the intercept if there is one.
    sensitivity, sigma : tuple of float or None
        Those of each step, where the promise could not state them.
    mu_ex_post : float or None
        Mu at the full radius, computed from the run that happened, where that differs from the
        promise. It is no guarantee.
    attributes : mapping
        Further fitted attributes.
    """

    parameters: Array
    sensitivity: tuple[float, ...] | None = None
    sigma: tuple[float, ...] | None = None
    mu_ex_post: float | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Neighbours:
    """Noiseless values of datasets next to one, for audits, and their noise scales.

    ``models`` takes the position of the record to leave out, and the rows and codes of the records
    each of which takes its place in turn; it gives one array of released values before noise for
    each. For several records of one person positions have shape (n_changed,), rows
    (n_candidates, n_changed, n_features), codes (n_candidates, n_changed). ``sigma`` is broadcast
    against one of the arrays.
    """

    models: Callable[[Any, Rows, Codes], Array]
    sigma: ArrayLike


def as_sets(left_out: Any, rows: Rows, codes: Codes) -> tuple[Codes, Rows, Codes]:
    """Positions, rows and codes as :class:`Neighbours` takes them for several records.

    One record is a set of one: its rows and codes get an axis for the records that change.
    """
    places = np.atleast_1d(np.asarray(left_out, dtype=np.intp))
    shape = len(rows), len(places)
    return places, np.reshape(rows, (*shape, rows.shape[-1])), np.reshape(codes, shape)


class Mechanism(BaseEstimator, ABC):
    """Base class of mechanisms: how a head's parameters are released.

    To write your own, derive from it; constructor parameters are those of a scikit-learn estimator,
    stored as they are. A fit asks for the promise, lets every accountant count it, and then calls
    ``run``. Neither ``promise`` nor ``run`` may store anything on the mechanism.
    """

    #: What the record calls it; the class's name by default.
    name: ClassVar[str] = ""
    #: Regularisation strength of a linear head whose ``alpha`` is None.
    default_alpha: ClassVar[float] = 0.0
    #: Whether ``alpha`` must be positive.
    needs_alpha: ClassVar[bool] = False
    #: Whether a noisy value decides where a later one is taken.
    adaptive: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.name = vars(cls).get("name", cls.__name__)

    def check(self) -> None:
        """Raise a ValueError if a parameter is invalid."""

    def alpha_for(self, problem: Problem, budget: Budget) -> float:
        """Regularisation strength where ``alpha`` is None.

        Parameters
        ----------
        problem, budget : Problem, Budget
            Public numbers of the fit, and what may be spent.

        Returns
        -------
        float
            :attr:`default_alpha`, unless public numbers tell more.
        """
        return self.default_alpha

    @abstractmethod
    def promise(self, problem: Problem, budget: Budget) -> Promise:
        """What a run will guarantee, from public numbers alone.

        Parameters
        ----------
        problem, budget : Problem, Budget
            Public numbers of the fit, and what may be spent at the problem's radius.

        Returns
        -------
        Promise
            Its ``bound.mu(problem.radius)`` is at most ``budget.mu``.
        """

    @abstractmethod
    def run(self, problem: PrivateProblem, promise: Promise, noise: Noise) -> Outcome:
        """Release the parameters.

        Parameters
        ----------
        problem : PrivateProblem
            The same public numbers, and the rows.
        promise : Promise
            What :meth:`promise` returned, and what was charged.
        noise : Noise
            All randomness: everything that depends on rows goes through it.

        Returns
        -------
        Outcome
            Noisy parameters.
        """

    def settings_beside(self, record: Release) -> dict[str, tuple[Any, Any]]:
        """Settings that are fixed, each beside what the record of a release of it states.

        Parameters
        ----------
        record : Release
            Of one of its releases.

        Returns
        -------
        dict of str to tuple
            By name; those that public numbers choose are left out.
        """
        return {}

    def noiseless(
        self, problem: PrivateProblem, promise: Promise
    ) -> tuple[Array, ArrayLike] | None:
        """What :meth:`run` adds its noise to, for checks of released parameters.

        Parameters
        ----------
        problem, promise : PrivateProblem, Promise
            Records, and the promise of the release.

        Returns
        -------
        tuple of ndarray and array-like, or None
            Noiseless parameters and their noise scales; None unless the parameters are noisy values
            of one piece as they are, so that the noise can be read off them.
        """
        if self.adaptive:
            return None
        first = _Recorder()
        outcome = self.run(problem, promise, first)
        if len(first.calls) != 1:
            return None
        values, sigma = first.calls[0]
        if not np.array_equal(outcome.parameters, values):
            return None
        # Near and far: a step that clips what is far is none.
        far = 8.0 * np.random.default_rng(0).standard_normal(values.shape)
        for moved in (values + sigma, values + far * sigma):
            if not np.array_equal(self.run(problem, promise, _Recorder([moved])).parameters, moved):
                return None
        return values, sigma

    def neighbours(self, problem: PrivateProblem, promise: Promise) -> Neighbours:
        """Noiseless values for audits: by default those that :meth:`run` hands to its noise.

        Parameters
        ----------
        problem, promise : PrivateProblem, Promise
            Records of the audit, and the promise of the audited release.

        Returns
        -------
        Neighbours
            Values in one row, in the order in which they were released.
        """
        first = _Recorder()
        outcome = self.run(problem, promise, first)
        if not first.calls:
            raise ValueError(
                f"mechanism {self.name}: it drew no noise through the one that run() is given, so "
                "there is nothing to audit, and nothing is hidden."
            )
        again = _Recorder([values + scale for values, scale in first.calls])
        self.run(problem, promise, again)
        if again.values.tolist() != first.values.tolist():
            raise ValueError(
                f"mechanism {self.name}: a noisy value decides where a later one is taken; state "
                "adaptive = True on its class."
            )
        seen, published = [values for values, _ in first.calls], _published(outcome)

        def values_of(neighbour: PrivateProblem) -> Array:
            # It sees the same noisy values, so all else that it publishes must be the same too.
            recorder = _Recorder(seen)
            other = self.run(neighbour, promise, recorder)
            if not np.array_equal(recorder.sigma, first.sigma):
                raise ValueError(
                    f"mechanism {self.name}: noise scales differ between neighbours, so its noise "
                    "gives records away; derive them from the promise."
                )
            if _published(other) != published:
                raise ValueError(
                    f"mechanism {self.name}: what it publishes depends on rows in a way that "
                    "bypasses its noise."
                )
            return recorder.values

        def models(left_out: Any, rows: Rows, codes: Codes) -> Array:
            return np.stack(
                [
                    values_of(problem.replaced(left_out, row, code))
                    for row, code in zip(rows, codes, strict=True)
                ]
            )

        return Neighbours(models, first.sigma)


def _published(outcome: Outcome) -> bytes:
    """All that an outcome shows, to compare."""
    late = outcome.sensitivity, outcome.sigma, outcome.mu_ex_post
    return pickle.dumps((outcome.parameters, dict(outcome.attributes), late))


class _Recorder(Noise):
    """No noise: keeps what it was called with, and gives back what it is told, or that."""

    def __init__(self, answers: Sequence[Array] = ()) -> None:
        super().__init__()
        self.calls: list[tuple[Array, Array]] = []
        self._answers = answers

    def __call__(self, values: ArrayLike, sigma: ArrayLike) -> Array:
        given = np.array(values, dtype=np.float64)
        scale = np.array(np.broadcast_to(np.asarray(sigma, dtype=np.float64), given.shape))
        place = len(self.calls)
        self.calls.append((given, scale))
        return self._answers[place].copy() if place < len(self._answers) else given.copy()

    @property
    def values(self) -> Array:
        return np.concatenate([values.ravel() for values, _ in self.calls])

    @property
    def sigma(self) -> Array:
        return np.concatenate([sigma.ravel() for _, sigma in self.calls])

    def __reduce__(self) -> NoReturn:
        raise TypeError("it holds private values.")
